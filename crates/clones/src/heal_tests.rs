//! One service's budget, asked at moments as the test says: who is sick, and whose turn it is.

use super::*;

const START: Span = Span::secs(5);

/// A budget of a service on one node. Clones are numbers; every one is on this node and everybody knows of it.
struct Fake {
    budget: Budget,
    now: Time,
    scene: Scene,
    said: Vec<&'static str>,
}

impl Fake {
    fn new(all: usize) -> Self {
        let scene = Scene { all, sick: BTreeMap::new(), mine: BTreeMap::new(), start_timeout: START };
        Self { budget: Budget::default(), now: Time(1_000_000), scene, said: Vec::new() }
    }

    fn fails(&mut self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            let id = CloneId::new("shop", number);
            let restarts = self.scene.sick.get(&id).map_or(0, |sick| sick.restarts);
            self.scene.mine.insert(id.clone(), self.now);
            self.scene.sick.insert(id.clone(), Sick { id, waits: true, restarts });
        }
    }

    fn well(&mut self, number: u32) {
        let id = CloneId::new("shop", number);
        self.scene.sick.remove(&id);
        self.scene.mine.remove(&id);
    }

    /// Looks until nothing more is to be killed: who was.
    fn look(&mut self) -> Vec<u32> {
        let mut killed = Vec::new();
        loop {
            let verdict = self.budget.look(self.now, &self.scene);
            assert!(verdict.look_at.is_none_or(|at| at > self.now), "it would look for ever");
            self.said.extend(verdict.say.map(|(kind, _)| kind));
            if verdict.kill.is_empty() {
                return killed;
            }
            for id in verdict.kill {
                self.scene.mine.remove(&id);
                let sick = self.scene.sick.get_mut(&id).unwrap();
                (sick.waits, sick.restarts) = (false, sick.restarts + 1);
                killed.push(id.number);
            }
        }
    }

    /// Lets time pass with every look that was asked for: who was killed, and after how many seconds.
    fn pass(&mut self, span: Span) -> Vec<(u64, u32)> {
        let (begin, end) = (self.now, self.now + span);
        let mut killed = Vec::new();
        loop {
            killed.extend(self.look().into_iter().map(|number| (self.now.since(begin).as_millis() / 1000, number)));
            match self.budget.look(self.now, &self.scene).look_at.filter(|at| *at <= end) {
                Some(at) => self.now = at,
                None => break,
            }
        }
        self.now = end;
        killed
    }
}

#[test]
fn a_quarter_of_a_service_goes_at_a_time_and_at_least_one() {
    for (all, sick, killed) in [(1, 1, 1), (3, 1, 1), (7, 3, 1), (8, 3, 2), (16, 7, 4)] {
        let mut fake = Fake::new(all);
        fake.fails(0..sick);
        assert_eq!(fake.look(), (0..killed).collect::<Vec<_>>(), "{sick} of {all}");
    }
}

#[test]
fn the_next_one_goes_when_the_one_before_is_well_or_has_had_its_time_to_start() {
    let mut fake = Fake::new(7);
    fake.fails(0..3);
    assert_eq!(fake.look(), [0]);
    fake.now = fake.now + Span::secs(2);
    assert_eq!(fake.look(), [0; 0]);
    fake.well(0);
    assert_eq!(fake.look(), [1]);
    assert_eq!(fake.pass(Span(START.0 - 1)), [], "it is not well yet");
    assert_eq!(fake.pass(Span(1)), [(0, 2)]);
    assert_eq!(fake.said, [""; 0]);
}

#[test]
fn nobody_goes_before_all_know_of_it_nor_before_those_whose_turn_is_first() {
    let mut fake = Fake::new(4);
    fake.fails([3]);
    let told = fake.now + HEAL_TOLD;
    fake.scene.mine.insert(CloneId::new("shop", 3), told);
    assert_eq!(fake.look(), [0; 0]);
    assert_eq!(fake.budget.look(fake.now, &fake.scene).look_at, Some(told));
    // Another node's, of which it is heard a moment before.
    fake.fails([1]);
    fake.scene.mine.remove(&CloneId::new("shop", 1));
    fake.scene.all = 5;
    fake.now = told;
    assert_eq!(fake.look(), [0; 0], "the other node kills it, and says so");
    fake.well(1);
    assert_eq!(fake.look(), [3]);
}

#[test]
fn who_was_restarted_often_comes_after_the_others() {
    let mut fake = Fake::new(7);
    fake.fails(0..3);
    fake.scene.sick.get_mut(&CloneId::new("shop", 0)).unwrap().restarts = 2;
    assert_eq!(fake.look(), [1]);
}

#[test]
fn if_half_of_a_service_fails_one_goes_at_a_time_ever_more_slowly() {
    let mut fake = Fake::new(16);
    fake.fails(0..16);
    assert_eq!(fake.pass(Span::secs(320)), [(0, 0), (20, 1), (60, 2), (140, 3), (300, 4)]);
    assert_eq!(fake.pass(Span::secs(600)), [(280, 5), (580, 6)]);
    assert_eq!(fake.said, ["warning"]);
    for number in 0..16 {
        fake.well(number);
    }
    assert_eq!(fake.pass(Span(PANIC_CALM.0 - 1)), []);
    assert_eq!(fake.said, ["warning"], "some of them may only have passed a probe or two");
    assert_eq!(fake.pass(Span(1)), []);
    assert_eq!((fake.said.as_slice(), fake.budget.is_idle()), (["warning", "healed"].as_slice(), true));
}

#[test]
fn as_long_as_restarts_help_the_wait_stays_short() {
    let mut fake = Fake::new(4);
    fake.fails(0..4);
    assert_eq!(fake.look(), [0]);
    for number in 0..3 {
        fake.now = fake.now + Span::secs(1);
        fake.well(number);
        assert_eq!(fake.pass(Span::secs(19)), [(19, number + 1)]);
    }
}

#[test]
fn restarted_clones_that_fail_again_do_not_make_it_quick() {
    let mut fake = Fake::new(2);
    fake.fails(0..2);
    let mut killed = 0;
    for _ in 0..30 {
        let gone = fake.pass(Span::secs(1));
        killed += gone.len();
        gone.iter().for_each(|(_, number)| fake.well(*number));
        killed += fake.pass(Span::secs(9)).len();
        fake.fails(0..2);
    }
    // At 0, 20, 60, 140 and 300 s.
    assert_eq!((killed, fake.said.as_slice()), (5, ["warning"].as_slice()));
}

#[test]
fn sick_ones_leave_the_routes_unless_they_are_most() {
    for (sick, serving, stay) in [(1, 1, true), (1, 2, false), (2, 4, false), (2, 3, true), (0, 3, false)] {
        assert_eq!(are_routed(sick, serving), stay, "{sick} of {serving}");
    }
}
