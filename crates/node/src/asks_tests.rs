//! Many wishes at once, of one node and while others change what is declared.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{AskId, Boot, Effect, Event, Machine, NodeId, Now, Outcome, Span, Time};
use cluster::Card;
use cluster::doors::DoorAddrs;
use cluster::root::Change;
use state::Class;
use state::linear::{self, limits::LOG};

use crate::node::{Birth, Node, Out};
use crate::used::OVER_RATE;
use crate::{Answer, Ask, level};

const SECRET: [u8; 32] = [7; 32];
const BUDGET: Span = Span::secs(5);

pub(crate) struct Bench {
    pub node: Node,
    now: Time,
    /// What the disk has yet to say.
    disk: VecDeque<Event<Ask>>,
    pub answers: BTreeMap<AskId, Answer>,
    /// How often something was written to the root group's log.
    forced: usize,
}

impl Bench {
    /// A node alone in its cluster.
    pub fn new() -> Self {
        let doors = DoorAddrs::on([10, 0, 0, 1].into());
        let (id, boot, name, version) = (NodeId(1), Boot(1), "n1".to_owned(), "0.1.0".into());
        let card = Card { id, boot, name, doors, pid: 1, version, level: base::LEVEL };
        let found = Change { expect: None, puts: vec![level::put(base::LEVEL)], removes: Vec::new() };
        let birth = Birth {
            cluster: "home".into(),
            card,
            seeds: Vec::new(),
            seed: 1,
            settings: state::Settings::default(),
            overflow: false,
            room: 8,
            builtins: &[],
            linear_log: LOG,
            found: Some(found),
        };
        let mut bench = Self {
            node: Node::new(birth),
            now: Time(1_000_000),
            disk: VecDeque::new(),
            answers: BTreeMap::new(),
            forced: 0,
        };
        bench.hear(Event::Start { log: BTreeMap::new(), remarks: Vec::new(), rebooted: false });
        bench.settle();
        bench
    }

    pub fn hear(&mut self, event: Event<Ask>) {
        let mut out: Out = Vec::new();
        self.node.handle(Now { mono: self.now, wall_ms: 1_700_000_000_000 + self.now.0 / 1_000 }, event, &mut out);
        for effect in out {
            match effect {
                Effect::Append { group, ticket, .. } => {
                    self.forced += 1;
                    self.disk.push_back(Event::Appended { group, ticket });
                }
                Effect::Save { group, ticket, .. } => self.disk.push_back(Event::Saved { group, ticket }),
                Effect::Answer { id, answer } => assert!(self.answers.insert(id, answer).is_none(), "answered twice"),
                _ => (),
            }
        }
    }

    /// A second, in which the disk takes what it has been given, a millisecond for each.
    pub fn settle(&mut self) {
        let end = self.now + Span::secs(1);
        while self.now < end {
            self.now = self.now + Span::millis(1);
            let event = self.disk.pop_front().unwrap_or(Event::Wake);
            self.hear(event);
        }
    }

    /// All at once, before the disk has taken anything.
    pub fn ask_all(&mut self, asks: Vec<Ask>) -> Vec<Answer> {
        let ids: Vec<AskId> = (0..asks.len() as u64).map(AskId).collect();
        for (id, ask) in ids.iter().zip(asks) {
            self.hear(Event::Ask { id: *id, budget: BUDGET, ask });
        }
        self.settle();
        ids.iter().map(|id| self.answers.remove(id).expect("each ask is answered within its budget")).collect()
    }
}

fn join_token(uses: u32) -> Ask {
    Ask::JoinToken { secret_hash: SECRET, expires_wall_ms: u64::MAX, uses }
}

/// Of 13 nodes that started together 10 were told that the declaration keeps changing.
#[test]
fn many_nodes_that_join_at_once_are_all_let_in_and_none_is_tried_twice() {
    const NODES: u64 = 60;
    let mut bench = Bench::new();
    assert!(matches!(bench.ask_all(vec![join_token(NODES as u32)])[..], [Answer::Done(Outcome::Done(()))]));
    let admit =
        |n| Ask::Admit { secret_hash: SECRET, name: format!("m{n}"), level: base::LEVEL, wish: NodeId(100 + n) };
    let forced = bench.forced;
    let answers = bench.ask_all((0..NODES).map(admit).collect());
    // The cluster's authority is not in this declaration, so nobody can say that it is done; but it is.
    let ends: BTreeSet<String> = answers.iter().map(|answer| format!("{answer:?}")).collect();
    assert!(ends.iter().all(|end| end.contains("authority")), "{ends:?}");
    let declared = bench.node.root.declared();
    assert_eq!(declared.of_kind("node").count() as u64, NODES);
    assert_eq!(declared.of_kind("join").count(), 0, "each use of the token is counted");
    // An entry of the log each, and that it is agreed on.
    assert!(bench.forced - forced <= 2 * NODES as usize, "{} writes", bench.forced - forced);
}

#[test]
fn declarations_that_come_at_once_are_all_made_and_a_wrong_one_holds_nobody_up() {
    let apply = |n: u8| {
        let text =
            if n % 5 == 4 { "[service]\nx = 1".to_owned() } else { format!("[namespace.n{n}]\nclass = \"session\"\n") };
        Ask::Apply { file: format!("{n}.toml"), text, dry_run: false, entropy: [n; 32] }
    };
    let mut bench = Bench::new();
    let answers = bench.ask_all((0..40).map(apply).collect());
    let done = |answer: &Answer| matches!(answer, Answer::Applied(Outcome::Done(_)));
    let right: Vec<bool> = answers.iter().map(done).collect();
    assert_eq!(right, (0..40).map(|n| n % 5 != 4).collect::<Vec<_>>(), "{answers:?}");
}

#[test]
fn a_class_that_nodes_were_not_started_for_is_refused_before_anything_is_changed() {
    let mut bench = Bench::new();
    let lacking = |class: &&Class| bench.node.classes.lacks(**class).is_some();
    let class = Class::ALL.iter().find(lacking).expect("there is a class that nodes are started for").name();
    let text = format!("[namespace.carts]\nclass = \"session\"\n[namespace.notes]\nclass = {class:?}\n");
    for dry_run in [true, false] {
        let apply = Ask::Apply { file: "a.toml".into(), text: text.clone(), dry_run, entropy: [1; 32] };
        let [Answer::Applied(Outcome::Refused(refused))] = &bench.ask_all(vec![apply])[..] else {
            panic!("it was taken")
        };
        assert!(
            refused.why.starts_with(&format!("a.toml:4: namespace.notes.class: class {class} is ")),
            "{}",
            refused.why
        );
        assert!(refused.why.contains("start the nodes with --"), "it says what to do");
    }
    assert_eq!(bench.node.root.declared().of_kind("namespace").count(), 0);
}

#[test]
fn who_waits_for_his_turn_is_refused_when_his_time_is_over() {
    let mut bench = Bench::new();
    for id in 0..3 {
        bench.hear(Event::Ask { id: AskId(id), budget: Span::millis(300), ask: join_token(1) });
    }
    // The disk says nothing.
    let said = std::mem::take(&mut bench.disk);
    bench.settle();
    let refused = |answer: &Answer| matches!(answer, Answer::Done(Outcome::Refused(refused)) if refused.why.contains("changes before it"));
    assert_eq!(bench.answers.values().filter(|answer| refused(answer)).count(), 2, "{:?}", bench.answers);
    assert!(matches!(bench.answers[&AskId(0)], Answer::Done(Outcome::Unknown(_))), "it may be in the log");
    assert!(!said.is_empty());
}

fn declare(bench: &mut Bench, text: &str) {
    let ask = Ask::Apply { file: "a.toml".into(), text: text.into(), dry_run: false, entropy: [1; 32] };
    let answers = bench.ask_all(vec![ask]);
    assert!(matches!(answers[..], [Answer::Applied(Outcome::Done(_))]), "{answers:?}");
    // Until its groups are there.
    (0..5).for_each(|_| bench.settle());
}

fn put(namespace: &str, key: u32) -> Ask {
    let step = linear::Step::new(key.to_string().into(), "put", vec!["v".into(), "always".into(), "none".into()]);
    Ask::Linear(linear::Op::of(namespace.into(), vec![step]))
}

fn refused(answer: &Answer, with: &str) -> bool {
    matches!(answer, Answer::Linear(Outcome::Refused(refused)) if refused.why.starts_with(with) && refused.retry_after.is_some())
}

#[test]
fn a_namespace_is_asked_so_much_a_second_and_others_as_before() {
    let declaration = "[namespace.few]\nclass = \"linear\"\nreplicas = 1\nrate_max = 10\n\
                       [namespace.free]\nclass = \"linear\"\nreplicas = 1\n";
    let mut bench = Bench::new();
    declare(&mut bench, declaration);
    let count = |bench: &mut Bench, namespace: &str| {
        let answers = bench.ask_all((0..30).map(|n| put(namespace, n)).collect());
        assert!(answers.iter().all(|a| matches!(a, Answer::Linear(Outcome::Done(_))) || refused(a, OVER_RATE)));
        answers.iter().filter(|answer| refused(answer, OVER_RATE)).count()
    };
    assert_eq!(count(&mut bench, "few"), 20);
    assert_eq!(count(&mut bench, "free"), 0);
    bench.settle();
    assert_eq!(count(&mut bench, "few"), 20, "a second later it may ask as much again");
    declare(&mut bench, &declaration.replace("rate_max = 10\n", ""));
    assert_eq!(count(&mut bench, "few"), 0, "nothing is declared any more");
    assert_eq!(bench.node.over_rates, 40);
}

#[test]
fn what_a_namespace_holds_is_shown_and_told_when_it_comes_near_its_bound() {
    let mut bench = Bench::new();
    declare(&mut bench, "[namespace.bank]\nclass = \"linear\"\nreplicas = 1\nkeys_max = 10\n");
    let told = |bench: &Bench| {
        let events = bench.node.happened.iter().filter(|event| event.kind == "quota");
        events.map(|event| event.text.clone()).collect::<Vec<_>>()
    };
    let mut puts = |range: std::ops::Range<u32>| {
        let answers = bench.ask_all(range.map(|n| put("bank", n)).collect());
        (0..3).for_each(|_| bench.settle());
        (answers, bench.node.used_view("bank").unwrap(), told(&bench))
    };
    let (_, used, events) = puts(0..7);
    assert_eq!((used.keys, used.bytes, used.percent, events.len()), (7, 7 * 50, 70, 0));
    let (_, used, events) = puts(7..8);
    assert_eq!((used.keys, used.keys_max, used.percent), (8, Some(10), 80));
    assert_eq!(events, ["has 8 of keys_max = 10: 80 % where it is fullest"]);
    let (answers, used, events) = puts(8..15);
    let over = linear::Ran::Done(vec![linear::Reply::Wrong(linear::Wrong::KeysMax)]);
    let is_over = |answer: &&Answer| matches!(answer, Answer::Linear(Outcome::Done(ran)) if *ran == over);
    assert_eq!((answers.iter().filter(is_over).count(), used.keys), (5, 10));
    assert_eq!(events.len(), 2);
    assert_eq!(events[1], "has 10 of keys_max = 10: 100 % where it is fullest; what would be more is refused there");
}
