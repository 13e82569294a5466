//! A leader lends its space to have scripts run, and the log gets what they come to.

use base::{LEVEL, Outcome, Work};
use class::Bounds;

use super::level::Lone;
use super::*;
use crate::functions::script::{RUN, SAYS};
use crate::op::Op;
use crate::script::{Draft, Loan, Returned, Scripts};

/// "Scripts" are a function and an argument: it is applied to the script's key, twice.
struct Twice {
    /// How many are run of what is lent.
    most: usize,
}

impl Scripts for Twice {
    fn run(&mut self, namespace: &str, draft: &mut Draft, asked: &Step) -> Result<Bytes, Bytes> {
        assert_eq!(namespace, "bank");
        let key = std::str::from_utf8(&asked.key).unwrap();
        let arg = std::str::from_utf8(asked.args.last().unwrap()).unwrap().to_owned();
        let mut said = String::new();
        for _ in 0..2 {
            let op = Op::of("bank".into(), vec![step(key, "number.add", &[&arg]), step(key, "get", &[])]);
            said = format!("{:?}", draft.run(op, 0));
        }
        if arg == "13" { Err("ended".into()) } else { Ok(said.into()) }
    }

    fn goes_on(&mut self) -> bool {
        self.most -= 1;
        self.most > 0
    }

    fn wall_ms(&self) -> u64 {
        0
    }
}

fn script(key: &str, arg: &str) -> Step {
    step(key, RUN, &[arg])
}

fn says(n: i64) -> Outcome<Ran> {
    let two = vec![Reply::Int(n), Reply::Bytes(n.to_string().into())];
    let said = format!("{:?}", Outcome::Done(Ran::Done(two)));
    Outcome::Done(Ran::Done(vec![Reply::Bytes(said.into())]))
}

impl Lone {
    fn lend(&mut self, most: usize) {
        let (number, work) = self.lent.pop().expect("something is lent");
        let loan = work.0.downcast::<Loan>().expect("a loan");
        let returned = loan.work(&mut Twice { most });
        self.handle(Input::Worked { group: Self::ID, number, work: Work(Box::new(returned)) });
        self.wait(Span::millis(20));
    }

    fn number(&mut self) -> Outcome<Ran> {
        self.asks_for(Op::one("bank".into(), "k".into(), "get", vec![]))
    }
}

fn number(n: &str) -> Outcome<Ran> {
    Outcome::Done(Ran::Done(vec![Reply::Bytes(Bytes::copy_from_slice(n.as_bytes()))]))
}

fn op(steps: Vec<Step>) -> Op {
    Op::of("bank".into(), steps)
}

#[test]
fn what_scripts_do_goes_into_the_log_and_writes_wait_for_it() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    lone.ask("number.add", &["1"]);
    lone.begins(op(vec![script("k", "2")]));
    lone.begins(op(vec![script("k", "10")]));
    assert!(lone.lent.len() == 1 && lone.ended.is_empty());
    lone.begins(op(vec![step("k", "number.add", &["100"])]));
    assert!(lone.ended.is_empty(), "a write waits for what is lent");
    assert_eq!(lone.number(), number("1"), "a read does not");
    lone.lend(9);
    // The second script came while the space was lent to the first.
    assert_eq!(lone.ended.drain(..).collect::<Vec<_>>(), [says(5), Outcome::Done(Ran::Done(vec![Reply::Int(105)]))]);
    lone.lend(9);
    assert_eq!(lone.ended.pop(), Some(says(125)));
    assert_eq!(lone.number(), number("125"));
    // A replica that only has the log agrees.
    let mut again = Lone::start(LEVEL, LEVEL, lone.disk.clone());
    assert_eq!(again.number(), number("125"));
}

#[test]
fn a_transaction_has_scripts_among_its_steps_and_conditions() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    lone.begins(op(vec![step("k", "put", &["7", "always", "none"]), script("k", "1"), step("k", "get", &[])]));
    lone.lend(9);
    let Some(Outcome::Done(Ran::Done(replies))) = lone.ended.pop() else { panic!("it was not done") };
    assert_eq!((replies.len(), &replies[2]), (3, &Reply::Bytes("9".into())));
    let conditions = vec![Condition { key: "k".into(), version: 77 }];
    lone.begins(Op { conditions, ..op(vec![script("k", "1")]) });
    lone.lend(9);
    assert_eq!(lone.ended.pop(), Some(Outcome::Done(Ran::Unmet)));
    assert_eq!(lone.number(), number("9"));
}

#[test]
fn one_that_is_ended_has_done_nothing_and_the_next_one_begins_anew() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    let hear = |lone: &mut Lone, n, op| lone.hear(Input::Ask { id: base::AskId(n), budget: Span::secs(4), op });
    hear(&mut lone, 101, op(vec![script("k", "1")]));
    hear(&mut lone, 102, op(vec![script("k", "13"), step("k", "put", &["1", "always", "none"])]));
    hear(&mut lone, 103, op(vec![script("k", "5")]));
    lone.end_turn();
    lone.wait(Span::millis(20));
    lone.lend(9);
    let undone = vec![Reply::Bytes("ended".into()), Reply::Wrong(Wrong::Undone)];
    assert_eq!(lone.ended.drain(..).collect::<Vec<_>>(), [says(2), Outcome::Done(Ran::Done(undone))]);
    lone.lend(9);
    assert_eq!((lone.ended.pop(), lone.number()), (Some(says(12)), number("12")));
}

#[test]
fn what_nobody_brings_back_is_forgotten() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    lone.begins(op(vec![script("k", "1")]));
    let (number, work) = lone.lent.pop().unwrap();
    lone.wait(crate::limits::LENT_MAX + Span::millis(600));
    let late = work.0.downcast::<Loan>().expect("a loan").work(&mut Twice { most: 9 });
    lone.handle(Input::Worked { group: Lone::ID, number, work: Work(Box::new(late)) });
    lone.wait(Span::secs(5));
    assert!(matches!(lone.ended.pop(), Some(Outcome::Unknown(_) | Outcome::Refused(_))));
    lone.lent.clear();
    lone.wait(Span::secs(5));
    assert_eq!(lone.number(), Outcome::Done(Ran::Done(vec![Reply::Nil])), "nothing has happened");
}

#[test]
fn a_step_does_in_the_log_what_it_did_in_the_draft() {
    let mut rng = base::Rng::new(31);
    let mut space = Space::default();
    for (seq, round) in (1..).zip(0..300_u64) {
        let clock = round * 40;
        let mut draft = Draft::new(space.draft(clock), Bounds::default(), (0, u64::MAX), LEVEL);
        let mut replies = Vec::new();
        for _ in 0..rng.below(8) {
            let key = format!("k{}", rng.below(6));
            let arg = rng.below(50).to_string();
            let step = match rng.below(10) {
                0 => step(&key, "put", &[&arg, "always", "90"]),
                1 => step(&key, "number.add", &[&arg]),
                2 => step(&key, "list.push-left", &[&arg]),
                3 => step(&key, "list.pop-right", &["1"]),
                4 => step(&key, "set.add", &[&arg]),
                5 => step(&key, "sorted.add", &["any", "any", &arg, "m"]),
                6 => step(&key, "remove", &[]),
                7 => step(&key, "lease.claim", &[&arg, "70"]),
                8 => step(&key, "expire", &["60", "any"]),
                _ => step(&key, "hash.set", &["f", &arg]),
            };
            replies.push((step.clone(), draft.run(op(vec![step]), 0)));
        }
        let steps = draft.changes();
        assert_eq!(steps.len(), steps.iter().filter(|step| step.function != SAYS).count());
        let mut twin = Space::from_parts(space.parts().0.collect()).unwrap();
        for space in [&mut space, &mut twin] {
            apply(
                space,
                clock,
                vec![command(seq, [vec![crate::functions::script::says(vec![])], steps.clone()].concat())],
            );
        }
        let entries = |space: &Space| space.map().from(b"").cloned().collect::<Vec<_>>();
        assert_eq!(entries(&space), draft.entries(), "{replies:?}");
        assert_eq!(entries(&space), entries(&twin));
        assert_eq!((space.used(), space.revision()), (twin.used(), twin.revision()));
    }
}

#[test]
fn what_is_returned_for_another_loan_is_nothing() {
    let mut lone = Lone::start(LEVEL, LEVEL, Vec::new());
    lone.handle(Input::Worked { group: Lone::ID, number: 1, work: Work(Box::new(Returned::default())) });
    lone.handle(Input::Worked { group: Lone::ID, number: 1, work: Work(Box::new(7)) });
    lone.begins(op(vec![script("k", "1")]));
    let stale = Returned(vec![vec![]]);
    lone.handle(Input::Worked { group: Lone::ID, number: 99, work: Work(Box::new(stale)) });
    assert!(lone.ended.is_empty());
    lone.lend(9);
    assert_eq!(lone.ended.pop(), Some(says(2)));
}
