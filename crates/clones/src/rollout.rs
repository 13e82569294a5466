//! A new version of a service is rolled out clone by clone, each started beside the old one it replaces. The new ones are
//! judged against the old ones, who serve the same requests at the same time: by their deaths, by answers that fail, and by
//! how long answers take. If they are worse, all goes back by itself. Where the old version serves nowhere there is nothing
//! to compare and nobody to spare: all clones get the new one at once, which has to live and to serve.

use std::collections::{BTreeMap, BTreeSet};

use base::{Span, Time};

use crate::demand::{CloneDemand, GroupDemand};
use crate::limits::*;
use crate::plan::Cluster;
use crate::{Assignments, CloneId};

/// What clones of a version answered.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Tally {
    done: u64,
    failed: u64,
    busy_us: u64,
    overloads: u64,
}

/// What is to be done now.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    Wait,
    /// These are to run the new version, too.
    Next(Vec<CloneId>),
    /// All run it and it is no worse.
    Keep,
    /// The new version is worse, for this reason, and goes back.
    TakeBack(String),
}

/// What is seen of a service.
pub struct Scene {
    /// All its clones.
    pub clones: Vec<CloneId>,
    /// Clones that are to run the new version.
    pub fresh: BTreeSet<CloneId>,
    /// Clones of `fresh` that serve with the new version.
    pub serving: BTreeSet<CloneId>,
    /// Deaths of processes of the new version.
    pub deaths: BTreeMap<CloneId, u32>,
    /// Some clone serves with another version.
    pub old_serves: bool,
    /// All that are to run the old version have died of it, and none serves.
    pub old_died: bool,
    /// Some that is to run the old version does not serve yet, and has not died.
    pub old_starts: bool,
    /// What clones of `fresh` that do not serve left behind.
    pub last_words: BTreeMap<CloneId, LastWords>,
    /// Time within which a started clone has to serve.
    pub start_timeout: Span,
    /// Whether the new version is compared with the old one.
    pub judged: bool,
}

/// What a clone that does not serve left behind.
pub struct LastWords {
    /// Name of its node.
    pub node: String,
    pub said: LastSaid,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LastSaid {
    /// How it ended, and why, if its node knows.
    pub exit: Option<String>,
    /// Its last line of output.
    pub line: Option<String>,
}

impl Scene {
    /// The scene of a service; `number` is the version that is being rolled out, `judged` whether it is compared.
    pub(crate) fn of(
        service: &str,
        (number, judged): (u32, bool),
        start_timeout: Span,
        cluster: &Cluster,
        next: &Assignments,
    ) -> Self {
        let (live, its) = (&cluster.live, |id: &CloneId| id.service == service);
        let clones: Vec<CloneId> = next.of_service(service).map(|(id, _)| id.clone()).collect();
        let told = next.fresh.iter().filter(|(id, of)| its(id) && **of == number);
        let fresh: BTreeSet<CloneId> = told.map(|(id, _)| id.clone()).collect();
        let serves = |id: &&CloneId| {
            live.iter().any(|node| next.has(id, node.id) && node.versions.contains(&((*id).clone(), number)))
        };
        let serving = fresh.iter().filter(serves).cloned().collect();
        // Of the new version, or of others.
        let deaths_of = |id: &CloneId, new: bool| {
            let all = live.iter().flat_map(|node| &node.deaths);
            let of_it = all.filter(|((dead, version), _)| dead == id && (*version == number) == new);
            of_it.map(|(_, deaths)| *deaths).max().unwrap_or(0)
        };
        let deaths = fresh.iter().map(|id| (id.clone(), deaths_of(id, true))).collect();
        let is_old = |(id, version): &(CloneId, u32)| its(id) && *version != number;
        let serve_old: BTreeSet<&CloneId> =
            live.iter().flat_map(|node| &node.versions).filter(|of| is_old(of)).map(|(id, _)| id).collect();
        let old_serves = !serve_old.is_empty();
        let mut old = clones.iter().filter(|id| !fresh.contains(id) && !serve_old.contains(id));
        let old_starts = old.any(|id| deaths_of(id, false) == 0);
        let all_told = live.iter().all(|node| node.reported);
        let old_died = all_told && !old_serves && !old_starts;
        let last_words = |id: &CloneId| {
            let node = live.iter().find(|node| next.has(id, node.id))?;
            let said = node.last_said.get(id).cloned().unwrap_or_default();
            Some((id.clone(), LastWords { node: node.name.clone(), said }))
        };
        let last_words = fresh.iter().filter_map(last_words).collect();
        Self { clones, fresh, serving, deaths, old_serves, old_died, old_starts, last_words, start_timeout, judged }
    }

    /// For people: by the time they read it the clone runs the old version again, and only its log has more.
    fn last_words(&self, id: &CloneId) -> String {
        let log = id.log();
        let Some(LastWords { node, said: LastSaid { exit, line } }) = self.last_words.get(id) else {
            return String::new();
        };
        let exit = exit.as_ref().map_or_else(String::new, |exit| format!(", at last: {exit}"));
        match line {
            Some(line) => format!("{exit}; its last line was: {line} (all of them: {log} in the folder of {node})"),
            None => format!("{exit}; its output: {log} in the folder of {node}"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Rollout {
    pub number: u32,
    old: Tally,
    new: Tally,
    /// A new one that answers nothing, and for how long, while old ones do.
    mute: Option<(u64, Span)>,
    began: Time,
    /// The old version has served since.
    old_served: bool,
    /// When the last clones were told to run it.
    step_at: Time,
    /// Since when all that were told serve, and what the new ones had answered then.
    well_since: Option<(Time, u64)>,
}

impl Tally {
    fn failure_rate(self) -> f64 {
        self.failed as f64 / self.done.max(1) as f64
    }

    fn overload_rate(self) -> f64 {
        self.overloads as f64 / self.done.max(1) as f64
    }

    fn mean_us(self) -> f64 {
        self.busy_us as f64 / self.done.max(1) as f64
    }
}

impl Rollout {
    pub fn new(number: u32, now: Time) -> Self {
        let (old, new) = (Tally::default(), Tally::default());
        Self { number, old, new, mute: None, began: now, old_served: false, step_at: now, well_since: None }
    }

    /// What an edge saw.
    pub fn count(&mut self, seen: &GroupDemand) {
        let patience = OWES_AFTER.max(Span((Span::millis(seen.slowest_ms.into()).0 as f64 * WORSE) as u64));
        let is_mute = |clone: &&CloneDemand| {
            let mute = Span::millis(clone.mute_ms.into());
            clone.version == self.number && clone.owes >= HUNG_OWES && mute >= patience
        };
        let mute = seen.clones.iter().find(is_mute).map(|clone| (clone.owes, Span::millis(clone.mute_ms.into())));
        self.mute = mute.or(self.mute);
        for clone in &seen.clones {
            let tally = if clone.version == self.number { &mut self.new } else { &mut self.old };
            tally.done = tally.done.saturating_add(clone.done);
            tally.failed = tally.failed.saturating_add(clone.failed);
            tally.busy_us = tally.busy_us.saturating_add(clone.busy_us);
            tally.overloads = tally.overloads.saturating_add(clone.overloads);
        }
    }

    pub fn look(&mut self, now: Time, scene: &Scene) -> Step {
        self.old_served |= scene.old_serves;
        if let Some(why) = self.ails(now, scene) {
            return Step::TakeBack(why);
        }
        if let Some(why) = self.is_worse().filter(|_| scene.judged && self.old_served) {
            return Step::TakeBack(why);
        }
        let left: Vec<CloneId> = scene.clones.iter().filter(|id| !scene.fresh.contains(id)).cloned().collect();
        let is_alone = !self.old_served && (scene.old_died || now.since(self.began) > scene.start_timeout);
        if is_alone && !left.is_empty() {
            (self.step_at, self.well_since) = (now, None);
            return Step::Next(left);
        }
        // The old ones are being started as well: it shows soon whether there is something to compare.
        if scene.old_starts && scene.fresh.is_empty() && now.since(self.began) <= scene.start_timeout {
            return Step::Wait;
        }
        if scene.fresh.iter().any(|id| !scene.serving.contains(id)) {
            self.well_since = None;
            return Step::Wait;
        }
        let (since, answered) = *self.well_since.get_or_insert((now, self.new.done));
        let waited = now.since(since);
        let seen_enough = self.new.done >= answered + JUDGE_ANSWERS && waited >= JUDGE_MIN;
        let judged = scene.judged && !is_alone;
        if judged && !scene.fresh.is_empty() && !seen_enough && waited < JUDGE_MAX {
            return Step::Wait;
        }
        // The only one has nobody beside it that goes on with the old version: what that does is seen before.
        let is_only = judged && scene.fresh.is_empty() && scene.clones.len() == 1;
        let seen_before = self.old.done >= JUDGE_ANSWERS || self.old.done == 0 && waited >= JUDGE_MIN;
        if is_only && !seen_before && waited < JUDGE_MAX {
            return Step::Wait;
        }
        if left.is_empty() {
            return if waited >= JUDGE_LAST || !scene.judged { Step::Keep } else { Step::Wait };
        }
        // The first one alone: if it is bad, few have met it.
        let at_once = if scene.fresh.is_empty() { 1 } else { scene.clones.len().div_ceil(ROLLED_AT_ONCE_PART) };
        (self.step_at, self.well_since) = (now, None);
        Step::Next(left.into_iter().take(at_once).collect())
    }

    /// New ones that die, or do not come up.
    fn ails(&self, now: Time, scene: &Scene) -> Option<String> {
        for id in &scene.fresh {
            let deaths = scene.deaths.get(id).copied().unwrap_or(0);
            if deaths >= DEATHS_MAX {
                return Some(format!("{id} died {deaths} times{}", scene.last_words(id)));
            }
            let patience = scene.start_timeout + CODE_PATIENCE;
            if !scene.serving.contains(id) && now.since(self.step_at) > patience {
                let patience = patience.as_millis() / 1000;
                return Some(format!("{id} does not serve after {patience} s{}", scene.last_words(id)));
            }
        }
        None
    }

    /// New ones that do worse than the old ones at the same time.
    fn is_worse(&self) -> Option<String> {
        let (old, new) = (self.old, self.new);
        if new.failed >= FAILURES_MIN && new.failure_rate() > old.failure_rate() * WORSE + FAILURE_RATE_MAX {
            return Some(format!(
                "{} of {} answers failed, of the old ones {} of {}",
                new.failed, new.done, old.failed, old.done
            ));
        }
        if new.overloads >= FAILURES_MIN && new.overload_rate() > old.overload_rate() * WORSE + OVERLOAD_RATE_MAX {
            return Some(format!(
                "{} of {} answers say that it has too much to do, of the old ones {} of {}",
                new.overloads, new.done, old.overloads, old.done
            ));
        }
        if let Some((owes, mute)) = self.mute.filter(|_| old.done >= JUDGE_ANSWERS) {
            return Some(format!(
                "a clone answered none of {owes} requests in {} ms, the old ones {}",
                mute.as_millis(),
                old.done
            ));
        }
        let compares = new.done >= JUDGE_ANSWERS && old.done >= JUDGE_ANSWERS;
        if compares && new.mean_us() > old.mean_us() * WORSE + SLOWER_MAX.as_micros() as f64 {
            return Some(format!(
                "answers take {:.0} ms, those of the old ones {:.0} ms",
                new.mean_us() / 1e3,
                old.mean_us() / 1e3
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake {
        clones: u32,
        rollout: Rollout,
        now: Time,
        fresh: BTreeSet<CloneId>,
        stuck: BTreeSet<CloneId>,
        deaths: BTreeMap<CloneId, u32>,
        /// The old version serves, or has died everywhere.
        old_serves: bool,
        old_died: bool,
        /// (failed of 100, ms) of old and new.
        old: (u64, u64),
        new: (u64, u64),
        /// Of 100 answers.
        overloads: (u64, u64),
        /// New ones take requests and answer none.
        hangs: bool,
        judged: bool,
    }

    impl Fake {
        fn new() -> Self {
            let now = Time(1_000_000);
            Self {
                clones: 4,
                rollout: Rollout::new(7, now),
                now,
                fresh: BTreeSet::new(),
                stuck: BTreeSet::new(),
                deaths: BTreeMap::new(),
                old_serves: true,
                old_died: false,
                old: (0, 10),
                new: (0, 10),
                overloads: (0, 0),
                hangs: false,
                judged: true,
            }
        }

        /// Runs to its end; how many were fresh, and the end.
        fn run(&mut self) -> (usize, Step) {
            let ids: Vec<CloneId> = (0..self.clones).map(|n| CloneId::new("s", n)).collect();
            let mut began = None;
            for _ in 0..400 {
                let last_words = |id: &CloneId| {
                    let line = Some("no module named honey".into()).filter(|_| id.number == 2);
                    let exit = Some("exit status 1".into()).filter(|_| id.number == 2);
                    (id.clone(), LastWords { node: "n1".into(), said: LastSaid { exit, line } })
                };
                let scene = Scene {
                    last_words: self.fresh.iter().map(last_words).collect(),
                    clones: ids.clone(),
                    fresh: self.fresh.clone(),
                    serving: self.fresh.difference(&self.stuck).cloned().collect(),
                    deaths: self.deaths.clone(),
                    old_serves: self.old_serves && self.fresh.len() < ids.len(),
                    old_died: self.old_died,
                    old_starts: !self.old_serves && !self.old_died,
                    start_timeout: Span::secs(5),
                    judged: self.judged,
                };
                match self.rollout.look(self.now, &scene) {
                    Step::Wait => (),
                    Step::Next(more) => self.fresh.extend(more),
                    end @ (Step::Keep | Step::TakeBack(_)) => return (self.fresh.len(), end),
                }
                let began = *began.get_or_insert(self.now);
                let demand = |id: &CloneId| {
                    let is_new = self.fresh.contains(id);
                    if is_new && self.hangs {
                        let mute_ms = self.now.since(began).as_millis() as u32;
                        return CloneDemand {
                            number: id.number,
                            version: 7,
                            owes: 3,
                            mute_ms,
                            ..CloneDemand::default()
                        };
                    }
                    let (failed, ms) = if is_new { self.new } else { self.old };
                    let version = if is_new { 7 } else { 6 };
                    CloneDemand {
                        number: id.number,
                        version,
                        done: 100,
                        failed,
                        busy_us: ms * 100_000,
                        overloads: if is_new { self.overloads.1 } else { self.overloads.0 },
                        ..CloneDemand::default()
                    }
                };
                let seen = GroupDemand { clones: ids.iter().map(demand).collect(), ..GroupDemand::default() };
                self.rollout.count(&seen);
                self.now = self.now + LOAD_EVERY;
            }
            panic!("it never ends");
        }
    }

    #[test]
    fn a_good_version_comes_to_all_clones_and_stays() {
        assert_eq!(Fake::new().run(), (4, Step::Keep));
    }

    #[test]
    fn one_that_fails_or_is_slow_meets_a_single_clone_and_goes_back() {
        for (new, why) in [((40, 10), "of the old ones 0 of"), ((0, 200), "answers take 200 ms")] {
            let (fresh, end) = Fake { new, ..Fake::new() }.run();
            assert!(matches!(&end, Step::TakeBack(text) if text.contains(why)), "{end:?}");
            assert_eq!(fresh, 1);
        }
    }

    #[test]
    fn one_that_says_it_has_too_much_to_do_or_answers_nothing_goes_back() {
        let (fresh, end) = Fake { overloads: (2, 30), ..Fake::new() }.run();
        assert!(matches!(&end, Step::TakeBack(text) if text.contains("too much to do, of the old ones")), "{end:?}");
        assert_eq!(fresh, 1);
        let (fresh, end) = Fake { hangs: true, ..Fake::new() }.run();
        assert!(matches!(&end, Step::TakeBack(text) if text.contains("none of 3 requests in 2500 ms")), "{end:?}");
        assert_eq!(fresh, 1);
        assert_eq!(Fake { overloads: (20, 45), ..Fake::new() }.run(), (4, Step::Keep));
    }

    #[test]
    fn the_only_clone_is_compared_with_what_it_did_before() {
        for (new, hangs) in [((40, 10), false), ((0, 200), false), ((0, 10), true)] {
            let (fresh, end) = Fake { clones: 1, new, hangs, ..Fake::new() }.run();
            assert!(matches!(&end, Step::TakeBack(_)), "{new:?} {hangs}: {end:?}");
            assert_eq!(fresh, 1);
        }
        assert_eq!(Fake { clones: 1, old: (40, 200), new: (40, 200), ..Fake::new() }.run(), (1, Step::Keep));
        let mut idle = Rollout::new(7, Time(0));
        let ids = vec![CloneId::new("s", 0)];
        let scene = Scene {
            clones: ids.clone(),
            fresh: BTreeSet::new(),
            serving: BTreeSet::new(),
            deaths: BTreeMap::new(),
            old_serves: true,
            old_died: false,
            old_starts: false,
            last_words: BTreeMap::new(),
            start_timeout: Span::secs(5),
            judged: true,
        };
        assert_eq!(idle.look(Time(0), &scene), Step::Wait);
        assert_eq!(idle.look(Time(0) + JUDGE_MIN, &scene), Step::Next(ids), "nobody asks it");
    }

    #[test]
    fn one_that_is_no_worse_than_a_bad_old_one_stays() {
        assert_eq!(Fake { old: (40, 200), new: (40, 200), ..Fake::new() }.run(), (4, Step::Keep));
    }

    #[test]
    fn one_that_dies_or_does_not_come_up_goes_back_even_if_an_operator_wanted_it() {
        let mut fake = Fake { judged: false, ..Fake::new() };
        fake.deaths.insert(CloneId::new("s", 2), DEATHS_MAX);
        let why = "s/2 died 2 times, at last: exit status 1; its last line was: no module named honey (all of them: logs/s-2.log in the folder of n1)";
        assert_eq!(fake.run(), (3, Step::TakeBack(why.into())));
        let mut fake = Fake::new();
        fake.stuck.insert(CloneId::new("s", 0));
        assert!(
            matches!(fake.run(), (1, Step::TakeBack(text)) if text.ends_with("its output: logs/s-0.log in the folder of n1"))
        );
    }

    #[test]
    fn where_the_old_one_serves_nowhere_all_get_the_new_one_at_once_and_are_compared_with_nothing() {
        for new in [(0, 10), (40, 200)] {
            let mut fake = Fake { new, old_serves: false, old_died: true, ..Fake::new() };
            let began = fake.now;
            assert_eq!(fake.run(), (4, Step::Keep), "{new:?}");
            assert!(fake.now.since(began) <= JUDGE_LAST + LOAD_EVERY + LOAD_EVERY, "{:?}", fake.now.since(began));
        }
        // One of which it is not known yet whether it will serve has its time to start.
        let mut fake = Fake { old_serves: false, ..Fake::new() };
        let began = fake.now;
        assert_eq!(fake.run(), (4, Step::Keep));
        assert!(fake.now.since(began) > Span::secs(5) + JUDGE_LAST, "{:?}", fake.now.since(began));
        // The new one has to live and to serve all the same.
        let mut fake = Fake { old_serves: false, old_died: true, ..Fake::new() };
        fake.deaths.insert(CloneId::new("s", 1), DEATHS_MAX);
        assert!(matches!(fake.run(), (4, Step::TakeBack(why)) if why.starts_with("s/1 died 2 times")));
    }

    #[test]
    fn what_an_operator_went_back_to_is_not_compared() {
        assert_eq!(Fake { new: (40, 200), judged: false, ..Fake::new() }.run(), (4, Step::Keep));
    }
}
