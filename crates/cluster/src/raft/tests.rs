//! Members of a group in memory, moved by hand: who lost its power, who is away, whom the cluster has given up. What chance
//! does to whole nodes is the simulator's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Frame, GroupId, NodeId, Parts, Rng, Time, kind};
use bytes::Bytes;

use super::limits::{CLAIMS_MAX, ELECTION_TICKS_MAX, HEARTBEAT_TICKS, PARTS_UNDER_WAY_MAX, REBOOTED_TICKS, TICK};
use super::wire::Said;
use raft::eraftpb as pb;

use super::{Applied, Config, LogBounds, Member, Output, State, Step, wire};

const CONFIG: Config = Config {
    group: GroupId(7),
    control: kind::LINEAR_CONTROL,
    data: kind::LINEAR_DATA,
    log: LogBounds { records_max: 1_000, bytes_max: 1 << 20, entries_kept: 100 },
    memory: true,
    uncommitted_bytes_max: 1 << 20,
};
/// Enough for some elections.
const SOON: u32 = 10 * ELECTION_TICKS_MAX as u32;
const LONG: u32 = 3 * REBOOTED_TICKS;

/// A word that only a newer program knows.
const BEYOND: &[u8] = b"of tomorrow";

/// All words that were written.
#[derive(Default)]
struct Words(Vec<Bytes>);

impl State for Words {
    type Done = ();

    fn apply(&mut self, _index: u64, data: Bytes, _done: &mut Vec<()>) -> Applied {
        if data == BEYOND {
            return Applied::Beyond;
        }
        self.0.push(data);
        Applied::Yes
    }

    fn parts(&self) -> Parts {
        Parts::of([Bytes::from_static(b"words")].into_iter().chain(self.0.clone()).collect())
    }

    fn from_parts(parts: Vec<Bytes>) -> Option<Self> {
        Some(Self(parts.into_iter().skip(1).collect()))
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }
}

/// Disks are at once, the network too, but for what is cut.
struct Bench {
    now: Time,
    up: BTreeMap<u64, Member<Words>>,
    disks: BTreeMap<u64, Vec<Bytes>>,
    /// From, to.
    cuts: BTreeSet<(u64, u64)>,
    given_up: BTreeSet<u64>,
    /// How many records each disk had before the word `lost`.
    before: BTreeMap<u64, usize>,
    frames: VecDeque<(u64, u64, Frame)>,
    /// Parts of snapshots that have come, with their numbers.
    parts: Vec<(u64, Frame)>,
    /// The network is cut everywhere when so many parts have come.
    cut_at: Option<usize>,
    /// Members whose disks may be lost, and that say so.
    may_distrust: BTreeSet<u64>,
    distrusted: BTreeSet<u64>,
}

impl Bench {
    /// Members 1 to `count`, of which 2 leads, with one word that all have.
    fn new(count: u64) -> Self {
        let voters: Vec<NodeId> = (1..=count).map(NodeId).collect();
        let mut bench = Self {
            now: Time(1),
            up: BTreeMap::new(),
            disks: BTreeMap::new(),
            cuts: BTreeSet::new(),
            given_up: BTreeSet::new(),
            before: BTreeMap::new(),
            frames: VecDeque::new(),
            parts: Vec::new(),
            cut_at: None,
            may_distrust: BTreeSet::new(),
            distrusted: BTreeSet::new(),
        };
        for id in 1..=count {
            let mut out = Vec::new();
            let rng = Rng::new(id);
            let member = Member::found(CONFIG, NodeId(id), &voters, Words::default(), rng, &mut out).unwrap();
            bench.up.insert(id, member);
            bench.carry_out(id, out);
        }
        bench.act(2, |member, _, _| member.campaign());
        bench.deliver();
        bench.write(2, "first");
        bench.tick(HEARTBEAT_TICKS as u32 + 1);
        assert!(bench.up.values().all(|member| member.state().0 == ["first"]));
        bench
    }

    /// With a word that the members `having` have acknowledged, 1 among them, before 1 lost its power and the word with it.
    /// It has heard nobody yet.
    fn with_lost_word(count: u64, having: &[u64]) -> Self {
        let mut bench = Self::new(count);
        bench.isolate(|id| !having.contains(&id));
        bench.before = bench.disks.iter().map(|(id, disk)| (*id, disk.len())).collect();
        bench.write(2, "lost");
        assert_eq!(bench.up[&2].state().0, ["first", "lost"], "it is committed");
        bench.lose(1, true);
        bench
    }

    /// It is killed and started, and its disk does not have the word `lost`: because its machine was rebooted, or because the
    /// word was not written yet.
    fn lose(&mut self, id: u64, rebooted: bool) {
        self.kill(id);
        self.disks.get_mut(&id).unwrap().truncate(self.before[&id]);
        self.start(id, rebooted);
        assert_eq!(self.up[&id].state().0, ["first"]);
    }

    fn kill(&mut self, id: u64) {
        self.up.remove(&id);
    }

    fn start(&mut self, id: u64, rebooted: bool) {
        let log = self.disks[&id].clone();
        let member = Member::load(CONFIG, NodeId(id), log, rebooted, Rng::new(id)).unwrap().unwrap();
        self.up.insert(id, member);
        self.carry_out(id, Vec::new());
    }

    /// These hear nobody, and nobody hears them.
    fn isolate(&mut self, which: impl Fn(u64) -> bool) {
        let ids: Vec<u64> = self.disks.keys().copied().collect();
        for a in ids.iter().copied().filter(|id| which(*id)) {
            self.cuts.extend(ids.iter().flat_map(|b| [(a, *b), (*b, a)]));
        }
    }

    fn write(&mut self, id: u64, word: &str) {
        self.act(id, |member, _, _| assert!(member.propose(word.into())));
        self.deliver();
    }

    fn tick(&mut self, ticks: u32) {
        for _ in 0..ticks {
            let ids: Vec<u64> = self.up.keys().copied().collect();
            ids.into_iter().for_each(|id| self.tick_only(id));
        }
    }

    fn tick_only(&mut self, id: u64) {
        self.now = self.now + TICK;
        let given_up = self.given_up.clone();
        self.act(id, |member, now, out| member.tick(now, |id| given_up.contains(&id.0), out));
        self.deliver();
    }

    fn leader(&self) -> Option<u64> {
        self.up.iter().find(|(_, member)| member.is_leader()).map(|(id, _)| *id)
    }

    fn deliver(&mut self) {
        while let Some((from, to, frame)) = self.frames.pop_front() {
            if !self.cuts.contains(&(from, to)) {
                let from = NodeId(from);
                if let Some((_, _, Said::Part { number, .. })) = wire::decode(frame.head.clone()) {
                    self.parts.push((number, frame.clone()));
                    if self.cut_at.take_if(|at| self.parts.len() >= *at).is_some() {
                        self.isolate(|_| true);
                    }
                }
                let may_fail = self.may_distrust.contains(&to);
                self.act(to, |member, now, out| {
                    let done = member.step(now, from, may_fail, frame.head, frame.body, out);
                    assert!(may_fail || done.is_ok(), "{done:?}");
                });
            }
        }
    }

    fn act(&mut self, id: u64, act: impl FnOnce(&mut Member<Words>, Time, &mut Vec<Output>)) {
        let Some(member) = self.up.get_mut(&id) else { return };
        let mut out = Vec::new();
        act(member, self.now, &mut out);
        self.carry_out(id, out);
    }

    fn carry_out(&mut self, id: u64, mut out: Vec<Output>) {
        let (now, member) = (self.now, self.up.get_mut(&id).unwrap());
        let disk = self.disks.entry(id).or_default();
        loop {
            member.pump(now, &mut out, &mut Vec::new());
            if out.is_empty() {
                break;
            }
            for output in std::mem::take(&mut out) {
                match output {
                    Output::Send { to, frame } => self.frames.push_back((id, to.0, frame)),
                    Output::Append { records, ticket, .. } => {
                        disk.extend(records.into_iter().map(Bytes::from));
                        member.persisted(ticket, now, &mut out);
                    }
                    Output::Save { parts, ticket } => {
                        *disk = parts.0.collect();
                        member.saved(ticket, now, &mut out);
                    }
                    Output::Distrust(_) if self.may_distrust.contains(&id) => {
                        self.distrusted.insert(id);
                    }
                    Output::Distrust(why) => panic!("{id} does not trust a sound disk: {why}"),
                    Output::Note(note) if note.text.contains("needs a newer program") => (),
                    Output::Note(note) => panic!("{id}: {note:?}"),
                }
            }
        }
    }
}

#[test]
fn a_floor_goes_when_the_cluster_gives_up_who_told_it() {
    let mut bench = Bench::with_lost_word(3, &[1, 2]);
    bench.tick_only(1);
    bench.kill(2);
    bench.cuts.clear();
    bench.tick(LONG);
    assert_eq!(bench.leader(), None, "only 2 has the word, and may come back");
    bench.given_up.insert(2);
    bench.tick(REBOOTED_TICKS + SOON);
    let leader = bench.leader().expect("nobody waits for who is gone for good");
    assert_eq!(bench.up[&leader].state().0, ["first"], "what only it had is lost");
    bench.write(leader, "second");
    assert!(bench.up.values().all(|member| !member.in_doubt()));
}

#[test]
fn two_do_not_keep_an_end_alive_between_them_that_is_gone() {
    let mut bench = Bench::with_lost_word(3, &[1, 2, 3]);
    bench.lose(3, true);
    [1, 3].into_iter().for_each(|id| bench.tick_only(id));
    bench.kill(2);
    bench.tick(LONG);
    assert_eq!(bench.leader(), None, "only 2 has the word, and may come back");
    bench.given_up.insert(2);
    bench.tick(REBOOTED_TICKS + SOON);
    assert!(bench.leader().is_some(), "each has told the other where its own log ends");
}

#[test]
fn a_floor_does_not_go_before_all_others_were_asked_anew() {
    let mut bench = Bench::with_lost_word(5, &[1, 2, 3]);
    // It leads, so its answer is enough, and 3 is not asked.
    bench.isolate(|id| id == 3);
    bench.tick_only(1);
    bench.kill(2);
    bench.kill(3);
    bench.cuts.clear();
    bench.given_up.insert(2);
    bench.tick(LONG);
    assert_eq!(bench.leader(), None, "3 has the word, and may come back");
    bench.start(3, false);
    bench.tick(SOON);
    let leader = bench.leader().expect("four of five are there");
    assert_eq!(bench.up[&leader].state().0, ["first", "lost"]);
}

#[test]
fn who_asks_anew_still_votes_for_who_has_all_that_it_may_have_lost() {
    let mut bench = Bench::with_lost_word(5, &[1, 2, 3, 4]);
    bench.isolate(|id| id > 2);
    bench.tick_only(1);
    bench.kill(2);
    bench.kill(3);
    bench.kill(4);
    bench.cuts.clear();
    bench.given_up.insert(2);
    bench.tick(LONG);
    assert_eq!(bench.leader(), None, "3 and 4 have the word, and may come back");
    bench.start(4, false);
    bench.tick(SOON);
    assert_eq!(bench.leader(), Some(4), "3 stays away, and nobody needs it");
    assert_eq!(bench.up[&1].state().0, ["first", "lost"]);
}

#[test]
fn a_floor_goes_with_what_only_the_memory_of_a_process_had() {
    let mut bench = Bench::with_lost_word(3, &[1, 2, 3]);
    bench.kill(2);
    bench.given_up.insert(2);
    // The disk of 3 is full: it answers, does nothing else, and is killed.
    (0..REBOOTED_TICKS + 2).for_each(|_| bench.tick_only(1));
    bench.lose(3, false);
    bench.tick(LONG);
    let leader = bench.leader().expect("nobody has what 3 told of");
    assert_eq!(bench.up[&leader].state().0, ["first"]);
}

#[test]
fn who_is_below_its_floor_does_not_stick_to_a_leader_that_stopped() {
    let mut bench = Bench::with_lost_word(3, &[1, 2, 3]);
    bench.tick_only(1);
    // 1 hears its leader, and is not heard: nothing is sent to it again.
    bench.cuts.insert((1, 2));
    (0..HEARTBEAT_TICKS).for_each(|_| bench.tick_only(2));
    assert_eq!((bench.up[&1].leader(), bench.up[&1].in_doubt()), (Some(NodeId(2)), true));
    // Nobody says that it died.
    bench.kill(2);
    bench.tick(SOON);
    assert_eq!(bench.leader(), Some(3), "with the vote of 1");
    assert_eq!(bench.up[&1].state().0, ["first", "lost"]);
}

/// A leader that was voted out, of one change or of a joint group's, by itself or by who led before.
#[test]
fn who_leads_and_is_voted_out_lets_another_one_lead() {
    for go in [vec![NodeId(2)], vec![NodeId(1), NodeId(2)]] {
        let mut bench = Bench::new(4);
        let stays = |id: u64| !go.contains(&NodeId(id));
        bench.act(2, |member, _, _| assert!(member.regroup(&Step::Vote { come: Vec::new(), go: go.clone() })));
        bench.deliver();
        bench.tick(SOON);
        let leader = bench.leader().expect("somebody leads");
        assert!(stays(leader), "{leader} leads, and has no vote");
        bench.write(leader, "second");
        assert!((3..=4).all(|id| bench.up[&id].state().0 == ["first", "second"]));
    }
}

#[test]
fn the_only_voter_stands_again_when_its_disk_has_what_it_led() {
    let (mut out, mut now) = (Vec::new(), Time(1));
    let mut member = Member::found(CONFIG, NodeId(1), &[NodeId(1)], Words::default(), Rng::new(1), &mut out).unwrap();
    let [Output::Save { ticket, .. }] = out[..] else { panic!("it is not founded: {out:?}") };
    out.clear();
    member.saved(ticket, now, &mut out);
    let mut appended = VecDeque::new();
    let mut pump = |member: &mut Member<Words>, now| {
        let mut out = Vec::new();
        member.pump(now, &mut out, &mut Vec::new());
        appended.extend(out.into_iter().filter_map(|output| match output {
            Output::Append { ticket, .. } => Some(ticket),
            _ => None,
        }));
        appended.back().copied()
    };
    let first = pump(&mut member, now).unwrap();
    member.persisted(first, now, &mut out);
    assert!(member.is_leader() && member.propose("word".into()));
    let word = pump(&mut member, now).unwrap();
    assert!(word > first);
    // Its disk is full.
    member.resign(now, &BTreeSet::new(), &mut out);
    member.campaign();
    for _ in 0..SOON {
        now = now + TICK;
        member.tick(now, |_| false, &mut out);
        pump(&mut member, now);
    }
    assert!(!member.is_leader());
    member.persisted(word, now, &mut out);
    for _ in 0..SOON {
        now = now + TICK;
        member.tick(now, |_| false, &mut out);
        if let Some(ticket) = pump(&mut member, now) {
            member.persisted(ticket, now, &mut out);
        }
    }
    pump(&mut member, now);
    assert!(member.is_leader() && member.state().0 == ["word"], "{:?}", member.state().0);
}

#[test]
fn a_member_goes_no_further_than_its_program() {
    let mut bench = Bench::new(3);
    bench.write(2, "of tomorrow");
    bench.write(2, "later");
    bench.tick(SOON);
    for member in bench.up.values() {
        assert!(member.is_beyond());
        assert_eq!(member.state().0, ["first"], "not this entry, and none behind it");
    }
}

#[test]
fn a_snapshot_goes_on_where_a_break_stopped_it_and_takes_no_damaged_part() {
    let mut bench = Bench::new(3);
    bench.isolate(|id| id == 3);
    for n in 0..CONFIG.log.records_max * 3 / 2 {
        bench.write(2, &format!("word {n}"));
    }
    let came = 100;
    (bench.cuts, bench.cut_at) = (BTreeSet::new(), Some(came));
    // Longer than until parts are sent again, and not so long that the leader gives the transfer up.
    bench.tick(8);
    assert_eq!(bench.parts.len(), came, "the snapshot has many parts, and the break is in their midst");
    let damaged = bench.parts[came - 1].1.clone();
    let body = damaged.body.iter().map(|byte| byte ^ 1).collect();
    bench.act(3, |member, now, out| {
        let refused = member.step(now, NodeId(2), false, damaged.head, body, out).unwrap_err();
        assert!(refused.contains("wrong checksum"), "{refused}");
    });
    bench.cuts.clear();
    bench.tick(SOON);
    assert!(bench.up[&2].state().0.len() > CONFIG.log.records_max);
    assert!(bench.up[&3].state().0 == bench.up[&2].state().0, "it has all of it");
    let again = bench.parts[came].0;
    assert!(again + PARTS_UNDER_WAY_MAX as u64 >= came as u64, "after {came} parts it began again with part {again}");
}

#[test]
fn members_write_their_snapshots_at_different_times() {
    let mut bench = Bench::new(3);
    let mut saves: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for n in 0..4 * CONFIG.log.records_max {
        let before: Vec<(u64, usize)> = bench.disks.iter().map(|(id, disk)| (*id, disk.len())).collect();
        bench.write(2, "word");
        let saved = before.iter().filter(|(id, len)| bench.disks[id].len() < *len);
        saved.for_each(|(id, _)| saves.entry(*id).or_default().push(n));
    }
    assert!(saves.len() == 3 && saves.values().all(|at| at.len() > 1), "{saves:?}");
    assert_ne!(saves[&1], saves[&3], "two followers have the same log");
    assert_ne!(saves[&1][1] - saves[&1][0], saves[&1][0], "and it is drawn each time");
}

/// Who hears a stranger, as it has no leader, was taken to a term behind which there is none: its next election ended it.
#[test]
fn nobody_is_taken_to_a_term_that_has_no_next_one() {
    let mut bench = Bench::new(3);
    bench.kill(2);
    bench.tick(ELECTION_TICKS_MAX as u32);
    let before = bench.up[&1].term();
    for kind in [pb::MessageType::MsgRequestVote, pb::MessageType::MsgHeartbeat, pb::MessageType::MsgAppend] {
        let mut message = pb::Message { term: u64::MAX, from: 9, to: 1, ..pb::Message::default() };
        message.set_msg_type(kind);
        let head = wire::encode(CONFIG.group, NodeId(9), NodeId(1), &Said::Raft(message));
        bench.act(1, |member, now, out| {
            let done = member.step(now, NodeId(9), true, head, Bytes::new(), out);
            assert!(done.is_err_and(|why| why.contains("no group comes to")), "{kind:?}");
        });
    }
    bench.kill(3);
    bench.tick(SOON);
    assert!(bench.up[&1].term() < before + 1_000, "it stands for election as before");
}

/// With a term it could depose who leads, with a log take its place, with a promise end a process.
#[test]
fn who_has_no_vote_in_a_group_changes_nothing_there() {
    for learns in [false, true] {
        says_all(learns);
    }
}

/// Node 9 says all that can be said; with or without being a learner.
fn says_all(learns: bool) {
    let mut bench = Bench::new(3);
    bench.write(2, "second");
    if learns {
        bench.act(2, |member, _, _| assert!(member.regroup(&Step::Learn(NodeId(9)))));
        bench.deliver();
        bench.tick(HEARTBEAT_TICKS as u32 + 1);
        assert!(bench.up[&1].has(NodeId(9)));
    }
    let terms: Vec<u64> = bench.up.values().map(Member::term).collect();
    let entry = |term| pb::Entry { term, index: 1, data: "forged".into(), ..pb::Entry::default() };
    for to in 1..=3 {
        for (msg_type, term) in
            wire::TYPES.into_iter().flat_map(|it| [1, 2, 3, 1 << 40, u64::MAX].map(|term| (it, term)))
        {
            for (index, commit) in [(0, 0), (1, 1), (3, 2), (u64::MAX - 1, u64::MAX)] {
                let message = pb::Message {
                    msg_type,
                    from: 9,
                    to,
                    term,
                    index,
                    log_term: term,
                    commit,
                    entries: if index == 0 { vec![entry(term)].into() } else { vec![].into() },
                    ..pb::Message::default()
                };
                let mut offer = message.clone();
                offer.mut_snapshot().mut_metadata().index = index;
                offer.mut_snapshot().mut_metadata().term = term;
                let promised = super::recall::Promised { term, entry: (term, index) };
                let recalled = super::recall::Recalled { promised, ..Default::default() };
                let sum = base::checksum::Checksum::of(b"forged").0;
                let part = Said::Part { offer, number: 0, last: true, sum };
                for said in [Said::Raft(message), part, Said::Recalled(recalled), Said::Want { index, next: 1 }] {
                    let head = wire::encode(CONFIG.group, NodeId(9), NodeId(to), &said);
                    bench.act(to, |member, now, out| {
                        let _ = member.step(now, NodeId(9), false, head, Bytes::from_static(b"forged"), out);
                    });
                    bench.deliver();
                }
            }
        }
    }
    assert_eq!(bench.up.values().map(Member::term).collect::<Vec<_>>(), terms);
    assert_eq!(bench.leader(), Some(2));
    bench.write(2, "third");
    assert!(bench.up.values().all(|member| member.state().0 == ["first", "second", "third"]));
}

/// Raft alone would leave it as it is until the next write, or the next leader: what was acknowledged is not sent again.
#[test]
fn who_lost_all_of_a_group_that_counts_on_it_does_not_trust_its_disk() {
    let mut bench = Bench::new(3);
    bench.may_distrust.insert(1);
    bench.kill(1);
    bench.disks.get_mut(&1).unwrap().clear();
    bench.start(1, false);
    bench.tick(HEARTBEAT_TICKS as u32 * (CLAIMS_MAX - 1));
    assert!(bench.distrusted.is_empty(), "what is late, from before it left and came back, ends nobody");
    bench.tick(HEARTBEAT_TICKS as u32 * 2);
    assert_eq!(bench.distrusted, BTreeSet::from([1]));
}
