//! The planner over changes of leaders, deaths of nodes and lost words: what begins, what is over, and what is told.

use base::Span;

use super::*;
use crate::deploy::{Program, Version};

/// A cluster with a root group in one place: leaders come and go, records stay.
struct Fake {
    planner: Planner,
    services: BTreeMap<String, ServiceSpec>,
    deployed: BTreeMap<String, Deployed>,
    records: BTreeMap<(String, Slot), Record>,
    live: Vec<Place>,
    off: BTreeSet<&'static str>,
    now: Now,
    fresh: u64,
    told: Vec<String>,
}

const START_MS: u64 = 7_200_000;

fn place(id: u64) -> Place {
    Place { id: NodeId(id), name: format!("n{id}"), boot: Boot(1), drains: false, overflow: false, load: 0 }
}

fn good() -> SaidEnd {
    SaidEnd { good: true, how: "exit status 0".into(), lines: vec![] }
}

fn bad() -> SaidEnd {
    SaidEnd { good: false, how: "exit status 3".into(), lines: vec!["first".into(), "no such table".into()] }
}

impl Fake {
    fn new(toml: &str) -> Self {
        let spec: ServiceSpec = toml::from_str(&format!("run = [\"a\"]\n{toml}")).unwrap();
        let mut fake = Self {
            planner: Planner::default(),
            services: BTreeMap::from([("app".to_owned(), spec)]),
            deployed: BTreeMap::new(),
            records: BTreeMap::new(),
            live: (1..=3).map(place).collect(),
            off: BTreeSet::new(),
            now: Now { mono: Time(50_000_000), wall_ms: START_MS },
            fresh: 0,
            told: Vec::new(),
        };
        fake.planner.leads(fake.now.mono, true);
        fake
    }

    /// With a version that serves and one that is to follow.
    fn with_next(toml: &str) -> Self {
        let mut fake = Self::new(toml);
        let spec = &fake.services["app"];
        let version = |program: Program| Version {
            number: 0,
            at_ms: 0,
            files: 1,
            bytes: 1,
            program,
            passed: false,
            fate: String::new(),
        };
        let mut all = Deployed::default();
        all.begin(version(Program::of(&ServiceSpec::new(["old"]))));
        all.add(version(Program::of(spec)));
        fake.services.get_mut("app").unwrap().version = 1;
        fake.deployed.insert("app".into(), all);
        fake
    }

    /// Another leader, that knows the records alone.
    fn other_leader(&mut self) {
        self.planner = Planner::default();
        self.planner.leads(self.now.mono, true);
    }

    fn pass(&mut self, span: Span) {
        self.now.mono = self.now.mono + span;
        self.now.wall_ms += span.as_millis();
    }

    /// One look, made so; what was told.
    fn look(&mut self) -> Vec<&'static str> {
        self.fresh += 64;
        let scene = Scene {
            services: &self.services,
            off: self.off.clone(),
            deployed: &self.deployed,
            records: &self.records,
            live: self.live.clone(),
            fresh: self.fresh,
        };
        let plan = self.planner.plan(self.now, &scene);
        let under_way = |record: &Record| record.run.as_ref().map(|run| run.id);
        for (service, slot, record) in plan.puts {
            let before = self.records.insert((service, slot), record.clone()).as_ref().and_then(under_way);
            assert!(under_way(&record).is_none_or(|id| before.is_none_or(|before| id >= before)), "numbers grow");
        }
        for Verdict { service, number, failed } in plan.verdicts {
            let all = self.deployed.get_mut(&service).unwrap();
            match failed {
                None => all.pass(number),
                Some(why) => all.take_back(&why),
            }
        }
        self.told.extend(plan.told.iter().map(|(kind, who, text)| format!("{kind} {who}: {text}")));
        plan.told.into_iter().map(|(kind, ..)| kind).collect()
    }

    fn run(&self, slot: Slot) -> Option<Under> {
        self.records.get(&("app".to_owned(), slot))?.run.clone()
    }

    fn last(&self, slot: Slot) -> Ended {
        self.records[&("app".to_owned(), slot)].last.clone().unwrap()
    }

    /// The node of the run asks for it, or says how it ended; whether it may go on.
    fn asks(&mut self, run: &Under, end: Option<SaidEnd>) -> bool {
        let said = vec![Said { id: run.id, end }];
        !self.planner.asked(self.now.mono, run.node, said, &self.records).is_empty()
    }

    fn dies(&mut self, run: &Under) {
        self.live.retain(|node| node.id != run.node);
    }

    fn is_back(&mut self, run: &Under) {
        self.live.push(Place { boot: Boot(run.boot.0 + 1), ..place(run.node.0) });
    }
}

#[test]
fn a_run_begins_at_each_time_and_the_next_not_before_it_has_ended() {
    let mut fake = Fake::new("every = \"2s\"");
    fake.look();
    assert_eq!(fake.run(Slot::Job), None, "its first time is the next one");
    fake.pass(Span::secs(2));
    fake.look();
    let first = fake.run(Slot::Job).unwrap();
    assert_eq!((first.due_ms, fake.asks(&first, None)), (START_MS + 2000, true));
    fake.pass(Span::secs(3));
    assert_eq!((fake.look(), fake.look()), (vec!["run-skipped"], vec![]), "told once");
    assert_eq!(fake.run(Slot::Job), Some(first.clone()));
    fake.pass(Span::secs(4));
    assert!(!fake.asks(&first, Some(good())));
    assert_eq!(fake.look(), ["run-skipped"]);
    assert!(fake.told[1].contains("3 times were skipped"), "{:?}", fake.told);
    assert!(fake.last(Slot::Job).good && fake.run(Slot::Job).is_none());
    fake.look();
    assert_eq!(fake.run(Slot::Job), None, "what was skipped does not come later");
    fake.pass(Span::secs(1));
    fake.look();
    let next = fake.run(Slot::Job).unwrap();
    assert_eq!((next.due_ms, next.id > first.id), (START_MS + 10_000, true));
    fake.asks(&next, Some(bad()));
    assert_eq!(fake.look(), ["run-failed"]);
    assert!(fake.told.last().unwrap().ends_with("exit status 3; its last line was: no such table"), "{:?}", fake.told);
}

#[test]
fn a_run_whose_node_is_gone_is_over_only_when_it_has_surely_ended() {
    for rerun in [false, true] {
        let mut fake = Fake::new(&format!("every = \"1h\"\nrerun = {rerun}"));
        fake.look();
        fake.pass(Span::secs(3600));
        fake.look();
        let run = fake.run(Slot::Job).unwrap();
        fake.pass(Span::secs(1));
        assert!(fake.asks(&run, None));
        fake.dies(&run);
        fake.pass(RUN_LEASE);
        assert!(fake.look().is_empty() && fake.run(Slot::Job).as_ref() == Some(&run), "it may go on");
        // A new leader does not know when the old one gave its word last.
        fake.pass(Span::secs(2));
        fake.other_leader();
        fake.pass(Span(RUN_GIVE_UP.0 - 1));
        assert!(fake.look().is_empty() && fake.run(Slot::Job).as_ref() == Some(&run));
        // It is only cut off, and reaches the new leader in time: it goes on.
        assert!(fake.asks(&run, None));
        fake.pass(Span(RUN_GIVE_UP.0 - 1));
        assert!(fake.look().is_empty());
        fake.pass(Span(1));
        let told = fake.look();
        assert!(!fake.asks(&run, None), "it was given up");
        let next = fake.run(Slot::Job);
        match rerun {
            true => {
                let next = next.unwrap();
                assert!(told == ["run-lost"] && next.id > run.id && next.node != run.node && next.attempt == 2);
                assert_eq!(next.due_ms, run.due_ms);
            }
            false => {
                assert!(told == ["run-failed"] && next.is_none() && !fake.last(Slot::Job).good);
                assert!(fake.last(Slot::Job).how.contains("is not known"));
            }
        }
    }
}

#[test]
fn what_surely_never_began_begins_elsewhere_at_once_and_another_life_of_a_node_ends_what_the_former_ran() {
    let mut fake = Fake::new("every = \"1h\"");
    fake.look();
    fake.pass(Span::secs(3600));
    fake.look();
    let run = fake.run(Slot::Job).unwrap();
    fake.dies(&run);
    assert_eq!(fake.look(), ["run-lost"]);
    let next = fake.run(Slot::Job).unwrap();
    assert_eq!((next.due_ms, next.attempt, next.node == run.node), (run.due_ms, 1, false));
    // A leader that did not place it cannot say so.
    fake.dies(&next);
    fake.other_leader();
    assert!(fake.look().is_empty());
    fake.is_back(&next);
    assert_eq!(fake.look(), ["run-failed"]);
    assert!(!fake.asks(&next, None));
}

#[test]
fn times_that_passed_while_nobody_led_are_told_once_and_the_last_is_made_good_if_that_is_declared() {
    for catch_up in [false, true] {
        let mut fake = Fake::new(&format!("schedule = \"@hourly\"\ncatch_up = {catch_up}"));
        fake.look();
        fake.pass(Span::secs(5 * 3600 + 1800));
        fake.other_leader();
        assert_eq!(fake.look(), ["run-missed"]);
        assert_eq!(fake.run(Slot::Job).is_some(), catch_up);
        let text = if catch_up { "4 times have passed" } else { "5 times have passed" };
        assert!(fake.told[0].contains(text) && fake.told[0].contains("made good") == catch_up, "{:?}", fake.told);
        fake.other_leader();
        assert!(fake.look().is_empty(), "told once");
        // A change of leaders is no reason to miss one.
        if let Some(run) = fake.run(Slot::Job) {
            fake.asks(&run, Some(good()));
            fake.look();
        }
        fake.now.wall_ms = fake.now.wall_ms / 3_600_000 * 3_600_000 + 3_600_000 + 20_000;
        fake.other_leader();
        assert!(fake.look().is_empty() && fake.run(Slot::Job).is_some());
    }
}

#[test]
fn a_version_comes_when_what_goes_before_it_has_run_and_not_if_that_failed() {
    let mut fake = Fake::with_next("before = [\"migrate\"]");
    fake.look();
    let run = fake.run(Slot::Before).unwrap();
    assert_eq!(run.version, 2);
    fake.pass(Span::secs(1));
    assert!(fake.asks(&run, None) && fake.look().is_empty());
    fake.asks(&run, Some(good()));
    fake.other_leader();
    assert!(fake.look().is_empty(), "another leader hears of it when it is told again");
    assert!(fake.asks(&run, None) || fake.asks(&run, Some(good())));
    fake.asks(&run, Some(good()));
    assert_eq!(fake.look(), ["before"]);
    let passed = |fake: &Fake| fake.deployed["app"].version(2).unwrap().passed;
    assert!(passed(&fake) && fake.look().is_empty() && fake.run(Slot::Before).is_none(), "once for a version");

    let mut fake = Fake::with_next("before = [\"migrate\"]");
    fake.look();
    let run = fake.run(Slot::Before).unwrap();
    fake.asks(&run, Some(bad()));
    assert_eq!(fake.look(), ["before"]);
    let fate = fake.deployed["app"].version(2).unwrap().fate.clone();
    assert!(fate.contains("failed on n1: exit status 3; its last line was: no such table"), "{fate}");
    assert_eq!((fake.deployed["app"].next, fake.last(Slot::Before).lines.len()), (None, 2));
    assert!(fake.look().is_empty() && !passed(&fake));
}

#[test]
fn what_goes_before_a_version_is_tried_again_where_a_node_died_and_ends_with_a_rollback() {
    let mut fake = Fake::with_next("before = [\"migrate\"]");
    fake.look();
    for attempt in 1..=RUN_ATTEMPTS_MAX {
        let run = fake.run(Slot::Before).unwrap();
        assert_eq!(run.attempt, attempt);
        assert!(fake.asks(&run, None));
        fake.dies(&run);
        fake.is_back(&run);
        let boot = fake.live.last().unwrap().boot;
        assert_eq!(fake.look(), ["before"]);
        fake.live.iter_mut().for_each(|node| node.boot = boot.max(node.boot));
    }
    assert!(fake.deployed["app"].version(2).unwrap().fate.contains("died while it ran"));

    let mut fake = Fake::with_next("before = [\"migrate\"]");
    fake.look();
    let run = fake.run(Slot::Before).unwrap();
    fake.asks(&run, None);
    fake.deployed.get_mut("app").unwrap().take_back("an operator did");
    fake.look();
    assert!(fake.run(Slot::Before).unwrap().stop, "its node is to end it");
    assert!(fake.look().is_empty());
    fake.asks(&run, Some(bad()));
    fake.look();
    assert!(fake.run(Slot::Before).is_none() && fake.look().is_empty());
}

#[test]
fn nothing_begins_where_nodes_drain_or_a_service_is_out_of_use_and_nobody_else_plans() {
    let mut fake = Fake::new("every = \"10s\"");
    fake.look();
    fake.pass(Span::secs(10));
    fake.off.insert("app");
    fake.look();
    assert_eq!(fake.run(Slot::Job), None);
    fake.off.clear();
    fake.live.iter_mut().for_each(|node| node.drains = node.id != NodeId(3));
    fake.look();
    assert_eq!(fake.run(Slot::Job).unwrap().node, NodeId(3));
    let run = fake.run(Slot::Job).unwrap();
    fake.planner.leads(fake.now.mono, false);
    assert!(!fake.asks(&run, None), "who does not lead gives no word");
    fake.pass(Span::secs(60));
    fake.look();
    assert_eq!(fake.run(Slot::Job), Some(run));
}
