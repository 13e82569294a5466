//! What came with a level that not all nodes have is not used, and who meets it nevertheless takes no part.

use base::{AskId, LEVEL, NoteLevel, Outcome, kind};

use super::*;
use crate::functions;
use crate::op::Op;
use class::Class;

/// The only member of a group, with its disk.
pub(super) struct Lone {
    pub linear: Linear,
    pub now: Now,
    pub disk: Vec<Bytes>,
    /// Of what it has written while the disk does not say so.
    pub stalled: Option<Vec<Ticket>>,
    asks: u64,
    pub ended: Vec<Outcome<Ran>>,
    /// What was lent for scripts, with its number.
    pub lent: Vec<(u64, base::Work)>,
    /// What other nodes were answered, and to which of their commands.
    pub told: Vec<(u64, Answer)>,
    errors: Vec<String>,
}

impl Lone {
    pub const ID: GroupId = GroupId(7 << 16);

    /// By a program of this level, on what a disk has kept.
    pub fn start(level: u32, agreed: u32, disk: Vec<Bytes>) -> Self {
        let mut linear = Linear::new(NodeId(1), Boot(1 + disk.len() as u64), base::Rng::new(1)).with_level(level);
        linear.start(BTreeMap::from([(Self::ID, disk.clone())]), false);
        let (ended, lent, told, errors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut lone = Self { linear, now: Now::default(), disk, stalled: None, asks: 0, ended, lent, told, errors };
        lone.agree(agreed);
        lone.wait(Span::secs(10));
        lone
    }

    fn agree(&mut self, level: u32) {
        let one = vec![NodeId(1)];
        let placed = Placed { members: one.clone(), founders: one, ..placed() };
        self.handle(crate::declared(7 + u64::from(level), level, [placed]));
    }

    pub fn wake(&mut self) {
        if let Some(at) = self.linear.wake_at() {
            self.now.mono = at.max(self.now.mono);
            self.handle(Input::Wake);
        }
    }

    /// Time passes.
    pub fn wait(&mut self, span: Span) {
        let until = self.now.mono + span;
        while self.linear.wake_at().is_some_and(|at| at <= until) {
            self.wake();
        }
        self.now.mono = until;
    }

    /// A turn in which nothing else comes.
    pub fn handle(&mut self, input: Input) {
        self.hear(input);
        self.end_turn();
    }

    pub fn end_turn(&mut self) {
        if self.linear.wake_at().is_some_and(|at| at <= self.now.mono) {
            self.hear(Input::Wake);
        }
    }

    pub fn hear(&mut self, input: Input) {
        let mut out = Vec::new();
        self.linear.handle(self.now, input, &mut out);
        for output in out {
            match output {
                Output::Append { group, records, ticket, .. } => {
                    self.disk.extend(records.into_iter().map(Bytes::from));
                    match &mut self.stalled {
                        Some(stalled) => stalled.push(ticket),
                        None => self.handle(Input::Appended { group, ticket }),
                    }
                }
                Output::Save { group, parts, ticket } => {
                    self.disk = parts.0.collect();
                    self.handle(Input::Saved { group, ticket });
                }
                Output::Note(note) => {
                    assert_eq!(note.level, NoteLevel::Error);
                    self.errors.push(note.text);
                }
                Output::Answer { answer: outcome, .. } => self.ended.push(outcome),
                Output::Work { number, work, .. } => self.lent.push((number, work)),
                Output::Send { frame, .. } => match wire::decode_call(frame.head) {
                    Some(Call::Answer { id, answer, .. }) => self.told.push((id.seq, answer)),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        }
    }

    /// At this node's door.
    pub fn ask(&mut self, function: &'static str, args: &[&str]) -> Outcome<Ran> {
        self.asks_for(Op::of("bank".into(), vec![step("k", function, args)]))
    }

    pub fn begins(&mut self, op: Op) {
        self.asks += 1;
        self.handle(Input::Ask { id: AskId(self.asks), budget: Span::secs(4), op });
    }

    pub fn asks_for(&mut self, op: Op) -> Outcome<Ran> {
        self.begins(op);
        let mut wakes = 0;
        while self.ended.is_empty() && wakes < 20 {
            wakes += 1;
            self.wake();
        }
        self.ended.pop().expect("it is answered soon")
    }

    /// By another node's, which may know more.
    fn called(&mut self, function: &'static str) -> Option<Answer> {
        self.asks += 1;
        let id = CommandId { node: NodeId(4), ..id(self.asks) };
        let command = Command { id, ..command(0, vec![step("k", function, &["token"])]) };
        let call = Call::Do { group: Self::ID, reads: false, stale: None, sole: true, command };
        let frame = Frame::new(kind::LINEAR_CALL, wire::encode_call(&call));
        self.handle(Input::Frame { from: NodeId(4), frame });
        self.told.pop().map(|(_, answer)| answer)
    }
}

#[test]
fn what_not_all_nodes_know_is_refused_at_the_door() {
    let mut lone = Lone::start(LEVEL, 1, Vec::new());
    assert!(matches!(lone.ask("put", &["v", "always", "none"]), Outcome::Done(_)));
    let newer: [(&'static str, &[&str]); 5] = [
        ("release", &["token"]),
        ("size", &[]),
        ("expire", &["9000", "xxlt"]),
        ("put", &["v", "equal:v", "none"]),
        ("remove", &["differs:v"]),
    ];
    for (function, args) in newer {
        let Outcome::Refused(refused) = lone.ask(function, args) else { panic!("{function}") };
        let why = &refused.why;
        assert!(why.contains("until all nodes run the newer program") && why.starts_with(function), "{why}");
    }
    assert!(matches!(lone.ask("expire", &["9000", "any"]), Outcome::Done(_)), "an argument that is as old as it");
    lone.agree(2);
    for (function, args) in newer {
        assert!(matches!(lone.ask(function, args), Outcome::Done(_)), "{function}");
    }
}

/// A kind of value that programs of the level before cannot read: no function that they know makes one, and the others wait.
#[test]
fn the_first_sorted_set_waits_until_all_nodes_can_read_it() {
    let before = crate::sorted::LEVEL - 1;
    let mut lone = Lone::start(LEVEL, before, Vec::new());
    assert!(matches!(lone.ask("set.add", &["x"]), Outcome::Done(_)));
    let makers: [(&'static str, &[&str]); 6] = [
        ("sorted.add", &["any", "any", "1", "a"]),
        ("sorted.increase", &["any", "any", "1", "a"]),
        ("sorted.store-range", &["k", "rank", "0", "-1", "forward", "0", "-1"]),
        ("sorted.store-union", &["k", "-", "sum"]),
        ("sorted.store-inter", &["k", "-", "sum"]),
        ("sorted.store-diff", &["k", "-", "sum"]),
    ];
    let written = lone.disk.len();
    for (function, args) in makers {
        let Outcome::Refused(refused) = lone.ask(function, args) else { panic!("{function}") };
        assert!(refused.why.contains("it needs level 4, the cluster has agreed on 3"), "{}", refused.why);
        assert_eq!(lone.called(function), Some(Answer::Busy), "another node's");
    }
    assert_eq!(lone.disk.len(), written, "nothing was written");
    // So a program of that level takes part in all that is there.
    assert!(Lone::start(before, before, lone.disk.clone()).errors.is_empty());
    lone.agree(LEVEL);
    assert!(matches!(lone.ask("sorted.store-union", &["k", "-", "sum"]), Outcome::Done(_)));
    let older = Lone::start(before, before, lone.disk);
    let said = older.errors.iter().any(|text| text.contains("start the newer program"));
    assert!(said, "{:?}", older.errors);
}

#[test]
fn the_first_ledger_waits_until_all_nodes_can_read_it() {
    let before = crate::ledger::LEVEL - 1;
    let mut lone = Lone::start(LEVEL, before, Vec::new());
    assert!(matches!(lone.ask("set.add", &["x"]), Outcome::Done(_)));
    let all = functions::ALL.iter().flat_map(|some| some.iter());
    let written = lone.disk.len();
    for function in all.filter(|function| function.level == crate::ledger::LEVEL) {
        let Outcome::Refused(refused) = lone.ask(function.name, &["a", "1"]) else { panic!("{}", function.name) };
        assert!(refused.why.contains("it needs level 5, the cluster has agreed on 4"), "{}", refused.why);
        assert_eq!(lone.called(function.name), Some(Answer::Busy), "another node's");
    }
    let Outcome::Refused(_) = lone.ask("load", &["ledger", "none", "0", ""]) else { panic!("it makes one, too") };
    assert_eq!(lone.disk.len(), written, "nothing was written");
    assert!(Lone::start(before, before, lone.disk.clone()).errors.is_empty());
    lone.agree(LEVEL);
    lone.ask("remove", &[]);
    let made = lone.ask("ledger.folder.create", &["INBOX", "7"]);
    let made_is = vec![Reply::List(vec![Reply::Int(1), Reply::Int(7), Reply::Int(1)])];
    assert_eq!(made, Outcome::Done(Ran::Done(made_is)));
    let older = Lone::start(before, before, lone.disk);
    let said = older.errors.iter().any(|text| text.contains("start the newer program"));
    assert!(said, "{:?}", older.errors);
}

#[test]
fn the_first_stream_waits_until_all_nodes_can_read_it() {
    let before = crate::stream::LEVEL - 1;
    let mut lone = Lone::start(LEVEL, before, Vec::new());
    assert!(matches!(lone.ask("set.add", &["x"]), Outcome::Done(_)));
    let makers: [(&'static str, &[&str]); 3] = [
        ("stream.add", &["1-1", "any", "-", "f", "v"]),
        ("stream.group-make", &["g", "$", "-", "make"]),
        ("load", &["stream", "none", "0", ""]),
    ];
    let written = lone.disk.len();
    for (function, args) in makers {
        let Outcome::Refused(refused) = lone.ask(function, args) else { panic!("{function}") };
        assert!(refused.why.contains("it needs level 5, the cluster has agreed on 4"), "{}", refused.why);
        if function != "load" {
            assert_eq!(lone.called(function), Some(Answer::Busy), "another node's");
        }
    }
    assert_eq!(lone.disk.len(), written, "nothing was written");
    assert!(Lone::start(before, before, lone.disk.clone()).errors.is_empty());
    lone.agree(LEVEL);
    assert!(matches!(lone.ask("stream.add", &["1-1", "any", "-", "f", "v"]), Outcome::Done(_)));
    let older = Lone::start(before, before, lone.disk);
    let said = older.errors.iter().any(|text| text.contains("start the newer program"));
    assert!(said, "{:?}", older.errors);
}

#[test]
fn a_leader_puts_into_the_log_only_what_all_know() {
    let mut lone = Lone::start(LEVEL, 1, Vec::new());
    let before = lone.disk.len();
    assert_eq!(lone.called("no.such"), Some(Answer::Refused(Wrong::Unknown)));
    assert_eq!(lone.called("hash.take"), Some(Answer::Busy), "it has yet to hear what the other node knows");
    assert_eq!(lone.disk.len(), before, "nothing was written");
    lone.agree(2);
    assert!(matches!(lone.called("hash.take"), Some(Answer::Ran(..))));
}

#[test]
fn a_member_that_meets_what_it_does_not_know_takes_no_part_and_leaves_all_to_the_newer_program() {
    let mut newer = Lone::start(LEVEL, 2, Vec::new());
    assert!(matches!(newer.ask("put", &["v", "always", "none"]), Outcome::Done(_)));
    assert!(matches!(newer.ask("release", &["token"]), Outcome::Done(_)));
    assert!(matches!(newer.ask("put", &["w", "always", "none"]), Outcome::Done(_)));
    let older = Lone::start(1, 1, newer.disk.clone());
    assert_eq!((older.linear.groups().count(), older.disk.len()), (0, newer.disk.len()), "nothing is forgotten");
    let said = older.errors.iter().any(|text| text.contains("start the newer program"));
    assert!(said, "{:?}", older.errors);
    let mut newer = Lone::start(LEVEL, 2, older.disk);
    assert_eq!(newer.ask("get", &[]), Outcome::Done(Ran::Done(vec![Reply::Bytes("w".into())])));
    assert!(newer.errors.is_empty(), "{:?}", newer.errors);
}

#[test]
fn an_entry_beyond_a_program_changes_nothing() {
    let mut space = Space::default();
    space.held_by(1);
    run(&mut space, 5, 1, step("k", "put", &["v", "always", "none"]));
    let mut before = space.parts().0.collect::<Vec<_>>();
    for (function, args) in [("hold", &["token"][..]), ("no.such", &[]), ("expire", &["9", "xxlt"])] {
        let steps = vec![step("k", "remove", &[]), step("k", function, args)];
        let batch = Batch { clock: 9, commands: vec![command(2, steps)], ..Batch::default() };
        let applied = space.apply(1, wire::encode_batch(&batch).into(), &mut Vec::new());
        assert_eq!(applied, raft::Applied::Beyond, "{function}");
        let after = space.parts().0.collect::<Vec<_>>();
        assert_eq!(std::mem::replace(&mut before, after.clone()), after, "{function}");
    }
}

#[test]
fn what_an_entry_needs_is_said_by_who_wrote_it() {
    let entry = |function, args| {
        let batch = Batch { clock: 9, commands: vec![command(2, vec![step("k", function, args)])], ..Batch::default() };
        wire::encode_batch(&batch)
    };
    for (function, args, level) in [("remove", &[][..], 0), ("release", &["token"], 2), ("expire", &["9", "xxlt"], 2)] {
        let read = wire::decode_batch(entry(function, args).into()).unwrap();
        assert_eq!(read.level, level, "{function}");
    }
    let mut space = Space::default();
    run(&mut space, 5, 1, step("k", "put", &["v", "always", "none"]));
    let before = space.parts().0.collect::<Vec<_>>();
    // An argument of tomorrow: field 4, as programs of the next level will write it.
    let tomorrow = [entry("expire", &["9", "later"]), vec![0x20, LEVEL as u8 + 1]].concat();
    assert_eq!(space.apply(1, tomorrow.into(), &mut Vec::new()), raft::Applied::Beyond);
    assert_eq!(space.parts().0.collect::<Vec<_>>(), before);
    // The same of today is merely wrong.
    assert_eq!(space.apply(1, entry("expire", &["9", "later"]).into(), &mut Vec::new()), raft::Applied::Yes);
}

/// A level is a promise about all programs that have it: this list is only ever added to, together with [`LEVEL`].
#[test]
fn what_came_with_which_level() {
    let all = || functions::ALL.iter().flat_map(|some| some.iter());
    let of = |level| all().filter(|f| f.level == level).map(|f| f.name).collect::<Vec<_>>().join(" ");
    let newer = |level| all().filter(move |f| f.newer.is_some_and(|(at, _)| at == level)).map(|f| f.name);
    assert_eq!(
        of(2),
        "hold release size text.find-bit text.bit-op hash.random hash.take list.positions list.pop-first \
         set.store-union set.store-inter set.store-diff set.count-inter count.ending"
    );
    assert_eq!(of(3), "");
    assert_eq!(
        of(crate::sorted::LEVEL),
        "load sorted.length sorted.scores sorted.rank sorted.count sorted.range sorted.scan sorted.random sorted.add \
         sorted.increase sorted.remove sorted.remove-range sorted.pop sorted.pop-first sorted.store-range sorted.union \
         sorted.inter sorted.diff sorted.count-inter sorted.store-union sorted.store-inter sorted.store-diff \
         dump versions.above"
    );
    assert_eq!(
        of(5),
        "stream.length stream.last stream.range stream.read stream.has-news stream.pending stream.pending-range \
         stream.info stream.info-full stream.groups stream.consumers stream.add stream.remove stream.trim stream.set-id \
         stream.group-make stream.group-set stream.group-remove stream.consumer-make stream.consumer-remove \
         stream.read-group stream.ack stream.claim stream.claim-auto \
         ledger.info ledger.folder.create ledger.folder.rename ledger.folder.delete ledger.folder.subscribe ledger.add \
         ledger.mark ledger.copy ledger.move ledger.remove ledger.remove-objects ledger.list ledger.numbers \
         ledger.changes ledger.find ledger.open ledger.close ledger.skip ledger.keywords \
         script.run script.run-keyless script.says"
    );
    assert_eq!(
        of(7),
        "text.fields text.change-fields sketch.add sketch.count sketch.keep-count sketch.merge text.common sort sort.store \
         geo.search geo.store sql.batch sql.query"
    );
    assert_eq!(of(10), "sql.dump sql.load");
    assert_eq!(
        of(12),
        "hash.expire hash.persist hash.ttl hash.all-ending hash.get-expire hash.set-expire hash.load stream.whole"
    );
    assert_eq!(
        of(crate::queue::LEVEL),
        "queue.put queue.take queue.renew queue.done queue.fail queue.back queue.retry queue.drop queue.drop-dead \
         queue.repeat queue.unrepeat queue.repeats queue.info queue.list queue.job queues queue.load"
    );
    assert_eq!(newer(5).collect::<Vec<_>>(), ["load"]);
    assert_eq!(newer(13).collect::<Vec<_>>(), ["sql.load"]);
    assert_eq!(newer(2).collect::<Vec<_>>(), ["put", "remove", "expire", "get-expire", "text.bits", "set.random"]);
    assert_eq!(all().filter(|f| f.level == 1).count(), OF_LEVEL_1, "what is new has a level of its own");
    assert!(all().all(|f| f.level <= LEVEL && f.newer.is_none_or(|(level, _)| f.level < level && level <= LEVEL)));
}

const OF_LEVEL_1: usize = 77;

#[test]
fn keys_that_are_to_end_know_how_long_ago_that_was_said_after_a_restart_of_all() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    assert!(matches!(lone.ask("put", &["v", "always", "3600000"]), Outcome::Done(_)));
    let idle = Span::secs(1_000);
    let before = lone.disk.len();
    lone.wait(idle);
    let written = lone.disk.len() - before;
    assert!((16..70).contains(&written), "{written} records in 1,000 s");
    let mut lone = Lone::start(LEVEL, LEVEL, lone.disk);
    let Outcome::Done(Ran::Done(left)) = lone.ask("ttl", &[]) else { panic!("it is there") };
    let [Reply::Int(left)] = left[..] else { panic!("{left:?}") };
    assert!((2_600_000 - 20_000..=2_660_000).contains(&left), "{left} ms");
    // Without an end nothing is written.
    assert!(matches!(lone.ask("expire", &["none", "any"]), Outcome::Done(_)));
    let before = lone.disk.len();
    lone.wait(idle);
    assert_eq!(lone.disk.len(), before);
}

#[test]
fn keys_are_long_when_all_nodes_know_such_and_no_longer_than_they_may_be() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    let mut asked =
        |key: usize| lone.asks_for(Op::of("bank".into(), vec![step(&"k".repeat(key), "number.add", &["1"])]));
    assert_eq!(asked(65_536), Outcome::Done(Ran::Done(vec![Reply::Int(1)])));
    assert_eq!(asked(65_536), Outcome::Done(Ran::Done(vec![Reply::Int(2)])));
    let Outcome::Refused(why) = asked(65_537) else { panic!("it is too long") };
    assert_eq!(why.why, "a key has 1 to 65536 bytes, this one 65537");
    // It is the same after a restart.
    let mut again = Lone::start(LEVEL, LEVEL, lone.disk.clone());
    let get = again.asks_for(Op::of("bank".into(), vec![step(&"k".repeat(65_536), "get", &[])]));
    assert_eq!(get, Outcome::Done(Ran::Done(vec![Reply::Bytes("2".into())])));
    let mut older = Lone::start(LEVEL, 14, Vec::new());
    let mut asked =
        |key: usize| older.asks_for(Op::of("bank".into(), vec![step(&"k".repeat(key), "number.add", &["1"])]));
    assert_eq!(asked(512), Outcome::Done(Ran::Done(vec![Reply::Int(1)])));
    let Outcome::Refused(why) = asked(513) else { panic!("an older node refuses it at its door") };
    assert_eq!(why.why, "a key has 1 to 512 bytes, this one 513");
}
