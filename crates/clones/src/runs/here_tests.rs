//! This node's runs against a leader that gives its word or does not.

use super::*;

struct Fake {
    runs: Runs,
    now: Now,
    started: Vec<Vec<String>>,
    signals: Vec<(ProcId, Signal)>,
    lacks: Option<&'static str>,
}

const WITHIN: Span = Span::secs(60);
const DRAIN: Span = Span::secs(5);

fn job(version: u32) -> Order {
    Order { id: Slot::Job.id("app"), version, stop: false }
}

impl Fake {
    fn new() -> Self {
        let now = Now { mono: Time(9_000_000), wall_ms: 5 };
        Self { runs: Runs::default(), now, started: Vec::new(), signals: Vec::new(), lacks: None }
    }

    fn order(&mut self, orders: &[(u64, Order)]) {
        self.runs.order(self.now.mono, &orders.iter().cloned().collect(), &mut self.signals);
        self.step();
    }

    fn grant(&mut self, number: u64) {
        self.runs.granted(&[number].into(), self.now.mono + RUN_LEASE);
        self.step();
    }

    fn step(&mut self) {
        let lacks = self.lacks;
        let find = |id: &CloneId, version: u32, _: u64, words: Option<&Vec<String>>| {
            let run = words.cloned().unwrap_or_else(|| vec![format!("{id} v{version}")]);
            let spec = ProcSpec {
                name: id.to_string(),
                version,
                run,
                code: None,
                dir: None,
                env: BTreeMap::new(),
                sandbox: None,
                limits: Box::default(),
                user: None,
                given: base::process::Given::default(),
            };
            match lacks {
                Some(why) => Found::Lacks(why.into()),
                None => Found::Ready { spec: Box::new(spec), within: WITHIN, drain: DRAIN },
            }
        };
        let started = &mut self.started;
        let start = |spec: ProcSpec| {
            started.push(spec.run);
            ProcId(started.len() as u64)
        };
        self.runs.step(self.now, find, start, &mut self.signals);
    }

    fn pass(&mut self, span: Span) {
        self.now.mono = self.now.mono + span;
        self.step();
    }

    fn exits(&mut self, proc: u64, exit: Exit) {
        self.runs.exited(self.now.mono, ProcId(proc), &exit);
    }

    fn signals(&mut self) -> Vec<Signal> {
        std::mem::take(&mut self.signals).into_iter().map(|(_, signal)| signal).collect()
    }

    /// How the only run that the root group ordered ended, if it has.
    fn end(&self) -> Option<(bool, String)> {
        let [said] = &self.runs.said()[..] else { panic!("{:?}", self.runs.said()) };
        said.end.as_ref().map(|end| (end.good, end.how.clone()))
    }
}

#[test]
fn a_run_begins_with_the_leaders_word_and_is_killed_when_that_is_over() {
    let mut fake = Fake::new();
    fake.order(&[(7, job(2))]);
    fake.pass(Span::secs(3));
    assert!(fake.started.is_empty() && fake.end().is_none(), "it was ordered, and nobody says that it may");
    fake.grant(7);
    assert_eq!(fake.started, [["app/1001 v2"]]);
    fake.pass(Span::secs(5));
    fake.grant(7);
    fake.pass(Span::secs(5));
    assert_eq!(fake.signals(), [], "the word was given again");
    assert_eq!(fake.runs.wake_at(), Some(fake.now.mono + Span::secs(1)));
    fake.pass(Span::secs(1));
    assert_eq!(fake.signals(), [Signal::Kill]);
    fake.grant(7);
    fake.exits(1, Exit::Signal(9));
    let (good, how) = fake.end().unwrap();
    assert!(!good && how.contains("did not hear from the root group's leader"), "{how}");
    fake.grant(7);
    assert_eq!(fake.started.len(), 1, "it never begins twice");
    // The leader has heard it.
    fake.order(&[]);
    assert!(fake.runs.said().is_empty());
}

#[test]
fn a_late_word_for_what_is_over_begins_nothing() {
    let mut fake = Fake::new();
    fake.order(&[(7, job(2))]);
    fake.runs.granted(&[7].into(), fake.now.mono);
    fake.step();
    assert!(fake.started.is_empty());
    fake.order(&[]);
    fake.grant(7);
    assert!(fake.started.is_empty() && fake.runs.said().is_empty());
}

#[test]
fn a_run_ends_well_or_not_and_says_what_it_printed_last() {
    let mut fake = Fake::new();
    fake.order(&[(7, job(0))]);
    fake.grant(7);
    for n in 0..RUN_LINES + 3 {
        fake.runs.printed(ProcId(1), &format!("line {n}"));
    }
    fake.exits(1, Exit::Code(0));
    assert_eq!(fake.end(), Some((true, "exit status 0".into())));
    let said = fake.runs.said();
    let lines = &said[0].end.as_ref().unwrap().lines;
    assert_eq!((lines.len(), lines.last().unwrap().as_str()), (RUN_LINES, "line 12"));
}

#[test]
fn one_that_takes_too_long_is_asked_to_stop_then_killed_until_it_has_ended() {
    let mut fake = Fake::new();
    fake.order(&[(7, job(0))]);
    for _ in 0..12 {
        fake.grant(7);
        fake.pass(Span::secs(5));
    }
    assert_eq!(fake.signals(), [Signal::Term]);
    fake.grant(7);
    fake.pass(DRAIN);
    assert_eq!(fake.signals(), [Signal::Kill]);
    fake.pass(KILL_AGAIN);
    assert_eq!((fake.signals(), fake.end()), (vec![Signal::Kill], None));
    fake.exits(1, Exit::Signal(9));
    assert!(fake.end().unwrap().1.contains("took longer than 1m"), "{:?}", fake.end());
}

#[test]
fn what_nobody_wants_any_more_ends_and_what_lacks_something_says_so() {
    let mut fake = Fake::new();
    fake.order(&[(7, job(0))]);
    fake.grant(7);
    fake.order(&[(7, Order { stop: true, ..job(0) })]);
    assert_eq!((fake.signals(), fake.end()), (vec![Signal::Term], None));
    fake.exits(1, Exit::Signal(15));
    assert!(fake.end().unwrap().1.contains("nobody wants it"));

    let mut fake = Fake::new();
    fake.lacks = Some("waits for secret PIN");
    fake.order(&[(8, job(0))]);
    fake.pass(RUN_WAITS_MAX);
    assert_eq!(fake.end(), Some((false, "did not begin: waits for secret PIN".into())));
    fake.order(&[(8, job(0)), (9, Order { stop: true, ..job(0) })]);
    assert!(fake.started.is_empty() && fake.runs.said()[1].end.is_some());
}

#[test]
fn operators_run_a_few_things_at_once_that_need_no_leader() {
    let mut fake = Fake::new();
    let once = |word: &str| Once { service: "app".into(), run: vec![word.into()] };
    let now = fake.now.mono;
    let all: Vec<_> = (0..ONCE_MAX).map(|n| fake.runs.once(now, once(&n.to_string()), 3).unwrap()).collect();
    assert!(fake.runs.once(now, once("more"), 3).unwrap_err().contains("4 one-off commands"));
    fake.step();
    assert_eq!((fake.started.len(), fake.runs.said()), (ONCE_MAX as usize, vec![]));
    fake.exits(1, Exit::Code(7));
    let end = |fake: &Fake, n: usize| fake.runs.once_end(all[n].0);
    assert_eq!(end(&fake, 0), Some(Some(OnceEnd { exit: Exit::Code(7), why: None })));
    assert_eq!(end(&fake, 1), Some(None));
    assert_eq!(fake.runs.end_once(fake.now.mono, all[1].0), Some((ProcId(2), Signal::Term)));
    // Whatever the root group orders or forgets.
    fake.order(&[]);
    fake.pass(Span::secs(30));
    assert_eq!((end(&fake, 0), end(&fake, 2)), (None, Some(None)));
    let (_, id) = fake.runs.once(fake.now.mono, once("more"), 3).unwrap();
    assert_eq!(id, all[0].1, "its place is free");
}
