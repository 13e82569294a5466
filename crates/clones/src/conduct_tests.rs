//! Who is found ill by behaviour, and who is not.

use std::collections::BTreeSet;

use super::*;
use crate::demand::{CloneDemand, GroupDemand};
use crate::plan::Absence;
use crate::{CloneState, NodeClones, NodeLoad, ServiceSpec};

const STEP: Span = LOAD_EVERY;

/// Clones of one service on one node, and what one edge says of them.
struct Fake {
    conduct: Conduct,
    began: Time,
    now: Time,
    demand: Demand,
    /// By the service's own word, how long an answer may take.
    says: Option<Span>,
    /// When each came to serve.
    since_ms: Vec<u64>,
    /// By one that hangs.
    owed: u64,
    found: Vec<(u64, String)>,
}

/// What a clone does to those who ask.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Answer,
    Fail,
    Hang,
    /// Nobody asks.
    Idle,
}

use Does::*;

impl Fake {
    fn new(clones: usize) -> Self {
        let began = Time(5_000_000);
        let demand = Demand { span_ms: 250, groups: BTreeMap::from([("shop".into(), GroupDemand::default())]) };
        let since_ms = vec![1000; clones];
        Self {
            conduct: Conduct::default(),
            began,
            now: began,
            demand,
            says: None,
            since_ms,
            owed: 6,
            found: Vec::new(),
        }
    }

    fn group(&mut self) -> &mut GroupDemand {
        self.demand.groups.get_mut("shop").unwrap()
    }

    /// Lets time pass while clones do this: four a second fail.
    fn pass(&mut self, span: Span, does: &[Does]) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + STEP;
            let (owed, before) = (self.owed, std::mem::take(&mut self.group().clones));
            self.group().clones = (does.iter().enumerate())
                .map(|(number, does)| {
                    let number = number as u32;
                    let was = before.iter().find(|was| was.number == number).copied().unwrap_or_default();
                    let clone = CloneDemand { number, ..CloneDemand::default() };
                    let step = STEP.as_millis() as u32;
                    match does {
                        Answer => CloneDemand { done: 10, failed: 1, ..clone },
                        Fail => {
                            let (failing, failing_ms) = (was.failing + 1, was.failing_ms + step);
                            CloneDemand { done: 1, failed: 1, failing, failing_ms, ..clone }
                        }
                        Hang => CloneDemand { in_flight: owed, owes: owed, mute_ms: was.mute_ms + step, ..clone },
                        Idle => clone,
                    }
                })
                .collect();
            self.look();
        }
    }

    fn look(&mut self) {
        let id = |number: usize| CloneId::new("shop", number as u32);
        let all = self.since_ms.iter().enumerate();
        let serving = all.clone().map(|(number, since_ms)| (id(number), (0, *since_ms))).collect();
        let clones = all.clone().map(|(number, _)| (id(number), CloneState::Serving)).collect();
        let node = NodeLoad { serving, clones, ..NodeLoad::new(NodeId(1), "n1", 0, Some(&NodeClones::default())) };
        let mut spec = ServiceSpec { clones: (self.since_ms.len() as u32).into(), ..ServiceSpec::new(["app"]) };
        spec.answer_timeout = self.says;
        let cluster = Cluster {
            services: BTreeMap::from([("shop".into(), spec)]),
            live: vec![node],
            absence: Absence::Believed,
            dead: BTreeSet::new(),
            resting: BTreeSet::new(),
            off: BTreeSet::new(),
            next: BTreeMap::new(),
            sizes: BTreeMap::new(),
            busy: BTreeSet::new(),
        };
        let of = all.map(|(number, _)| (id(number), NodeId(1))).collect();
        let current = Assignments { of, ..Assignments::default() };
        self.conduct.hear(self.now, &self.demand);
        for (id, why) in self.conduct.look(self.now, self.began, &cluster, &current, &[&self.demand]) {
            self.found.push((self.now.since(self.began).as_millis() / 1000, format!("{id} {why}")));
        }
    }

    fn found(&mut self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.found)
    }

    fn ill(&self) -> Vec<u32> {
        self.conduct.ill().keys().map(|id| id.number).collect()
    }
}

#[test]
fn who_answers_nothing_while_another_does_is_ill_and_is_told_once() {
    let mut fake = Fake::new(2);
    fake.pass(Span::secs(30), &[Answer, Hang]);
    let text = "shop/1 answered none of 6 requests in 10 s, while 1 other is well";
    assert_eq!(fake.found(), [(10, text.to_owned())]);
    assert_eq!(fake.conduct.ill()[&CloneId::new("shop", 1)].since_ms, 1000);
    assert!(fake.conduct.has_suspects([].into_iter()));
    // Its next life is not that one.
    fake.since_ms[1] = 2000;
    fake.pass(Span::secs(1), &[Answer, Idle]);
    assert_eq!(fake.ill(), Vec::<u32>::new());
    assert!(!fake.conduct.has_suspects([].into_iter()));
}

#[test]
fn who_fails_request_after_request_while_others_are_well_is_ill() {
    let mut fake = Fake::new(3);
    fake.pass(Span::secs(8), &[Answer, Fail, Answer]);
    let text = "shop/1 failed 20 requests in a row in 5 s, while 2 others are well";
    assert_eq!(fake.found(), [(5, text.to_owned())]);
}

#[test]
fn nobody_is_ill_while_too_few_others_are_well() {
    for does in [&[Hang, Hang][..], &[Fail, Fail, Fail], &[Hang, Idle], &[Hang], &[Fail], &[Answer, Fail, Fail]] {
        let mut fake = Fake::new(does.len());
        fake.pass(Span::secs(60), does);
        assert_eq!((fake.found(), fake.ill()), (Vec::new(), Vec::new()));
    }
}

#[test]
fn what_begins_with_one_and_comes_to_all_is_nobodys_fault() {
    let mut fake = Fake::new(3);
    fake.pass(Span::secs(1), &[Answer, Answer, Answer]);
    fake.pass(Span::secs(4), &[Fail, Answer, Answer]);
    fake.pass(Span::secs(30), &[Fail, Fail, Fail]);
    assert_eq!(fake.found(), []);
    let mut fake = Fake::new(3);
    fake.pass(Span::secs(1), &[Answer, Answer, Answer]);
    fake.pass(Span::secs(4), &[Hang, Answer, Answer]);
    fake.pass(Span::secs(30), &[Hang, Hang, Hang]);
    assert_eq!(fake.found(), []);
}

#[test]
fn few_requests_or_a_slow_service_are_no_illness() {
    let mut fake = Fake::new(2);
    fake.pass(Span::secs(9), &[Answer, Hang]);
    // It answers after all.
    fake.pass(Span::secs(9), &[Answer, Answer]);
    assert_eq!(fake.found(), []);
    // A long answer that two wait for.
    fake.owed = HUNG_OWES - 1;
    fake.pass(Span::secs(60), &[Answer, Hang]);
    assert_eq!(fake.found(), []);
}

#[test]
fn as_long_as_the_slowest_answer_took_nobody_is_hung() {
    let mut fake = Fake::new(2);
    fake.group().slowest_ms = 10_000;
    fake.pass(Span::secs(29), &[Answer, Hang]);
    assert_eq!(fake.found(), []);
    fake.pass(Span::secs(2), &[Answer, Hang]);
    assert_eq!(fake.found().len(), 1);
}

#[test]
fn as_long_as_the_service_says_that_an_answer_may_take_nobody_is_hung() {
    let mut fake = Fake::new(2);
    fake.says = Some(Span::secs(66));
    fake.pass(Span::secs(65), &[Answer, Hang]);
    assert_eq!(fake.found(), []);
    fake.pass(Span::secs(2), &[Answer, Hang]);
    assert_eq!(fake.found().len(), 1);
}

#[test]
fn an_edge_that_gets_good_answers_is_believed() {
    let mut fake = Fake::new(2);
    let good = CloneDemand { number: 1, done: 1, ..CloneDemand::default() };
    let groups = BTreeMap::from([("shop".into(), GroupDemand { clones: vec![good], ..GroupDemand::default() })]);
    for _ in 0..20 {
        fake.pass(Span::secs(3), &[Answer, Fail]);
        let now = fake.now;
        fake.conduct.hear(now, &Demand { span_ms: 250, groups: BTreeMap::clone(&groups) });
    }
    assert_eq!(fake.found(), []);
}

#[test]
fn who_is_ill_again_is_given_longer_each_time_and_who_comes_back_is_left_alone() {
    let mut fake = Fake::new(2);
    let mut took = Vec::new();
    for life in 0..4 {
        let began = fake.now;
        fake.since_ms[1] = 1000 + life;
        while fake.found().is_empty() {
            fake.pass(STEP, &[Answer, Fail]);
        }
        took.push(fake.now.since(began).as_millis() / 1000);
    }
    assert_eq!(took, [5, 10, 20, 40]);
    assert_eq!(fake.ill(), [1]);
    fake.pass(Span::secs(1), &[Answer, Answer]);
    assert_eq!(fake.ill(), Vec::<u32>::new());
}
