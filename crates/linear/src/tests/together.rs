//! Weak operations of one node, beside a leader elsewhere that answers what and when the test wants.

use base::{AskId, Outcome, Priority, Time, kind};

use super::*;
use crate::limits::TOGETHER_MAX;
use crate::op::Op;
use class::Class;

pub(super) struct Door {
    pub linear: Linear,
    pub now: Now,
    asks: u64,
    pub ended: Vec<(u64, Outcome<Ran>)>,
    /// Sent to the leader, and not answered.
    pub sent: Vec<Command>,
    /// How much each of all that were sent matters.
    pub priorities: Vec<Priority>,
}

impl Door {
    pub fn new() -> Self {
        let mut linear = with_group(4, &[], &mut Vec::new());
        linear.handle(Now::default(), Input::Birth { peer: NodeId(1), boot: Boot(1) }, &mut Vec::new());
        Self { linear, now: Now::default(), asks: 0, ended: Vec::new(), sent: Vec::new(), priorities: Vec::new() }
    }

    pub fn handle(&mut self, input: Input) {
        let mut out = Vec::new();
        self.linear.handle(self.now, input, &mut out);
        for output in out {
            match output {
                Output::Answer { id, answer: outcome } => self.ended.push((id.0, outcome)),
                Output::Send { frame: Frame { priority, head, .. }, .. } => match wire::decode_call(head) {
                    Some(Call::Do { command, .. }) => {
                        self.sent.push(command);
                        self.priorities.push(priority);
                    }
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        }
    }

    /// With a budget in milliseconds.
    fn ask(&mut self, budget: u64, weak: bool, step: Step) -> u64 {
        self.ask_op(budget, Op { weak, ..Op::of("bank".into(), vec![step]) })
    }

    pub fn ask_op(&mut self, budget: u64, op: Op) -> u64 {
        self.asks += 1;
        self.handle(Input::Ask { id: AskId(self.asks), budget: Span::millis(budget), op });
        self.asks
    }

    fn weak(&mut self, function: &'static str, arg: &str) -> u64 {
        self.ask(1_000, true, step("k", function, &[arg]))
    }

    /// What was sent, as words.
    fn sent(&self) -> Vec<String> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let words = |step: &Step| {
            let all = [step.function.to_owned(), text(&step.key)].into_iter().chain(step.args.iter().map(text));
            all.collect::<Vec<_>>().join(" ")
        };
        self.sent.iter().flat_map(|command| &command.steps).map(words).collect()
    }

    /// The leader answers the first that it was sent.
    pub fn answers(&mut self, answer: Answer) {
        self.answers_of(NodeId(1), answer);
    }

    /// Another node does.
    pub fn answers_of(&mut self, from: NodeId, answer: Answer) {
        let id = self.sent.remove(0).id;
        let call = Call::Answer { group: GroupId(7 << 16), id, answer };
        let frame = Frame::new(kind::LINEAR_CALL, wire::encode_call(&call));
        self.handle(Input::Frame { from, frame });
    }

    fn replies(&mut self, reply: Reply) {
        self.answers(Answer::Ran(Ran::Done(vec![reply]), 1));
    }

    fn ended(&mut self) -> Vec<u64> {
        let ended = std::mem::take(&mut self.ended);
        ended.into_iter().map(|(id, _)| id).collect()
    }
}

#[test]
fn weak_operations_that_wait_for_the_same_go_as_one_command() {
    let mut door = Door::new();
    let first = ["1", "10"].map(|delta| door.weak("number.add", delta));
    let more = ["2", "-3", "40"].map(|delta| door.weak("number.add", delta));
    assert_eq!(door.sent(), ["number.add k 1", "number.add k 10"], "two go at once, the others wait for an end");
    // What is not weak, of another key or another function goes beside them.
    door.ask(1_000, false, step("k", "number.add", &["7"]));
    door.ask(1_000, true, step("other", "number.add", &["8"]));
    door.weak("set.add", "m");
    assert_eq!(door.sent()[2..], ["number.add k 7", "number.add other 8", "set.add k m"]);
    door.replies(Reply::Int(1));
    assert_eq!((door.ended(), &door.sent()[4]), (vec![first[0]], &"number.add k 39".to_owned()));
    door.sent[..4].rotate_left(1);
    (0..3).for_each(|_| door.replies(Reply::Int(0)));
    assert_eq!(door.ended().len(), 3);
    let late = door.weak("number.add", "5");
    assert_eq!(door.sent(), ["number.add k 10", "number.add k 39"]);
    door.replies(Reply::Int(1));
    assert_eq!(
        (door.ended(), door.sent()),
        (vec![first[1]], ["number.add k 39", "number.add k 5"].map(str::to_owned).into())
    );
    door.replies(Reply::Int(1));
    assert_eq!(door.ended(), more);
    door.replies(Reply::Int(1));
    assert_eq!(door.ended(), [late]);
    // Nothing is left of them: the next one goes at once.
    door.weak("number.add", "6");
    assert_eq!(door.sent(), ["number.add k 6"]);
    let joined = door.linear.shown().find(|(figure, _)| figure.name == "linear.joined").unwrap().1;
    assert_eq!(joined, 2);
}

#[test]
fn operations_in_parts_are_told_apart_also_if_all_their_parts_join_others() {
    let mut door = Door::new();
    let (id, half) = (GroupId(7 << 16), 1 << 63);
    let other = GroupId(8 << 16);
    // Where the key is, the leader of these tests answers.
    let (low, high) = if crate::split::hash_of(b"k") < half { (id, other) } else { (other, id) };
    let groups = [(low, 0, half - 1), (high, half, u64::MAX)].map(|(id, from, to)| Placed { id, from, to, ..placed() });
    door.handle(crate::declared(8, base::LEVEL, groups));
    let wide =
        |weak| Op { weak, over: crate::op::Over::Each, ..Op::of("bank".into(), vec![step("k", "number.add", &["1"])]) };
    let first = ["1", "1"].map(|delta| door.weak("number.add", delta));
    let gathers = door.weak("number.add", "1");
    let joins = door.ask_op(1_000, wide(true));
    let other = door.ask_op(1_000, wide(false));
    while !door.sent.is_empty() {
        door.replies(Reply::Int(1));
    }
    let mut ended = door.ended();
    ended.sort_unstable();
    assert_eq!(ended, [first[0], first[1], gathers, joins, other], "each hears of its end");
}

#[test]
fn items_go_together_and_what_cannot_be_added_goes_alone() {
    let mut door = Door::new();
    for function in ["list.push-left", "list.push-right", "set.add", "set.remove"] {
        for item in ["a", "b", "m", "n", "o"] {
            door.weak(function, item);
        }
        (0..2).for_each(|_| door.replies(Reply::Int(1)));
        assert_eq!(door.sent(), [format!("{function} k m n o")]);
        door.replies(Reply::Int(1));
        assert_eq!(door.ended().len(), 5);
    }
    for delta in ["1", "1", "2", "two"] {
        door.weak("number.add", delta);
    }
    assert_eq!(door.sent(), ["number.add k 1", "number.add k 1", "number.add k two"], "what makes no sense goes alone");
    (0..4).for_each(|_| door.replies(Reply::Int(1)));
    // And another field.
    for [field, delta] in [["f", "1"], ["f", "1"], ["f", "2"], ["f", "4"], ["g", "3"]] {
        door.ask(1_000, true, step("h", "hash.add", &[field, delta]));
    }
    assert_eq!(door.sent(), ["hash.add h f 1", "hash.add h f 1", "hash.add h g 3"]);
    (0..2).for_each(|_| door.replies(Reply::Int(1)));
    assert_eq!(door.sent(), ["hash.add h g 3", "hash.add h f 6"]);
}

#[test]
fn each_hears_what_is_wrong_with_its_own() {
    let mut door = Door::new();
    let first = [door.weak("number.add", "1"), door.weak("number.add", "1")];
    let (good, bad) = (door.weak("number.add", "1"), door.weak("number.add", "9223372036854775805"));
    (0..2).for_each(|_| door.replies(Reply::Int(1)));
    assert_eq!(door.ended(), first);
    // Together they are too much: it did not happen, and each is asked for alone.
    door.replies(Reply::Wrong(Wrong::Overflow));
    assert_eq!(door.sent(), ["number.add k 1", "number.add k 9223372036854775805"]);
    door.replies(Reply::Int(2));
    door.replies(Reply::Wrong(Wrong::Overflow));
    let done = |reply| Outcome::Done(Ran::Done(vec![reply]));
    assert_eq!(door.ended, [(good, done(Reply::Int(2))), (bad, done(Reply::Wrong(Wrong::Overflow)))]);
}

#[test]
fn who_gathers_has_ended_when_the_first_of_them_gives_up() {
    let mut door = Door::new();
    let first = [door.weak("number.add", "1"), door.weak("number.add", "1")];
    let waits = [door.weak("number.add", "2"), door.ask(100, true, step("k", "number.add", &["3"]))];
    door.now = Now { mono: Time::default() + Span::millis(100), wall_ms: 0 };
    door.handle(Input::Wake);
    let refused = door.ended.iter().all(|(_, outcome)| matches!(outcome, Outcome::Refused(_)));
    assert!(refused && door.ended() == waits, "nothing of them was sent");
    assert_eq!(door.sent().len(), 2);
    let next = door.weak("number.add", "4");
    door.now = Now { mono: Time::default() + Span::millis(1_000), wall_ms: 0 };
    door.handle(Input::Wake);
    let unknown = door.ended.iter().all(|(_, outcome)| matches!(outcome, Outcome::Unknown(_)));
    assert!(unknown && door.ended() == first, "those that were sent may have happened");
    assert_eq!(door.sent().pop(), Some("number.add k 4".to_owned()));
    door.sent.rotate_right(1);
    door.replies(Reply::Int(0));
    assert_eq!(door.ended(), [next]);
}

#[test]
fn who_may_go_too_late_is_refused_and_not_left_in_doubt() {
    let mut door = Door::new();
    let first = [door.weak("number.add", "1"), door.weak("number.add", "1")];
    door.now = Now { mono: Time::default() + Span::millis(5), wall_ms: 0 };
    let waits = [door.weak("number.add", "2"), door.weak("number.add", "3")];
    door.now = Now { mono: Time::default() + Span::millis(1_000), wall_ms: 0 };
    door.handle(Input::Wake);
    let refused =
        |id: &u64| door.ended.iter().any(|(ended, outcome)| ended == id && matches!(outcome, Outcome::Refused(_)));
    assert!(waits.iter().all(refused) && !first.iter().any(refused), "{:?}", door.ended);
    assert_eq!((door.ended().len(), door.sent().len()), (4, 2), "they were not sent with 5 ms left");
}

#[test]
fn a_batch_has_bounds_and_what_is_over_them_goes_beside_it() {
    let mut door = Door::new();
    for _ in 0..TOGETHER_MAX + 4 {
        door.weak("number.add", "1");
    }
    assert_eq!(door.sent(), ["number.add k 1"; 4], "the first two, and two that have no room");
    door.replies(Reply::Int(1));
    assert_eq!(door.sent().last(), Some(&format!("number.add k {TOGETHER_MAX}")));
    let long = "x".repeat(200 << 10);
    let mut door = Door::new();
    for _ in 0..4 {
        door.weak("set.add", &long);
    }
    assert_eq!(door.sent.len(), 3, "the fourth does not fit beside the third");
}
