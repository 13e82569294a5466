//! What runs now, and where: decided by the root group's leader, from what is declared, from the records of runs, and from what
//! nodes say. All that must outlive a leader is in the records; what it keeps beside them is whose word it gave when.

use std::collections::{BTreeMap, BTreeSet};

use base::schedule::Schedule;
use base::{Boot, NodeId, Now, Time};

use super::{Ended, Record, Said, SaidEnd, Slot, Under};
use crate::ServiceSpec;
use crate::deploy::Deployed;
use crate::limits::*;

/// A live node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub id: NodeId,
    pub name: String,
    pub boot: Boot,
    /// It is to get nothing new.
    pub drains: bool,
    /// It comes last: it is for overflow.
    pub overflow: bool,
    /// 0 (idle) to 1000 (full).
    pub load: u16,
}

/// What a plan is made from.
pub struct Scene<'a> {
    pub services: &'a BTreeMap<String, ServiceSpec>,
    /// Services that are out of use: what they run ends by itself, and nothing begins.
    pub off: BTreeSet<&'a str>,
    pub deployed: &'a BTreeMap<String, Deployed>,
    pub records: &'a BTreeMap<(String, Slot), Record>,
    pub live: Vec<Place>,
    /// Numbers from here on no run has.
    pub fresh: u64,
}

/// One change of the root group, and what is to be told once it is made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    pub puts: Vec<(String, Slot, Record)>,
    pub verdicts: Vec<Verdict>,
    /// Kind, service, text: of events.
    pub told: Vec<(&'static str, String, String)>,
}

/// What went before a version is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    pub service: String,
    pub number: u32,
    /// Why the version is not to come, if it is not.
    pub failed: Option<String>,
}

/// What the leader keeps of runs; of no use to the next one.
#[derive(Default)]
pub struct Planner {
    /// Since when this node leads.
    since: Option<Time>,
    /// When runs were last given the word that they may go on.
    granted: BTreeMap<u64, Time>,
    ends: BTreeMap<u64, SaidEnd>,
    /// Runs that this leader placed: without a word of it they have not begun.
    placed: BTreeSet<u64>,
    given_up: BTreeSet<u64>,
    /// Runs of which it was told that they stand in the way of the next.
    in_the_way: BTreeSet<u64>,
}

/// How a run that is not known to have ended stands.
enum State {
    GoesOn,
    Ended(SaidEnd),
    /// Its node is gone; it surely never began there, or it may have.
    Lost {
        began: bool,
    },
}

impl Planner {
    pub fn leads(&mut self, now: Time, leads: bool) {
        match (leads, self.since) {
            (true, None) => *self = Self { since: Some(now), ..Self::default() },
            (false, Some(_)) => *self = Self::default(),
            (true, Some(_)) | (false, None) => (),
        }
    }

    /// A node asks for its runs; those that may go on.
    pub fn asked(
        &mut self,
        now: Time,
        from: NodeId,
        said: Vec<Said>,
        records: &BTreeMap<(String, Slot), Record>,
    ) -> Vec<u64> {
        if self.since.is_none() {
            return Vec::new();
        }
        let mut may = Vec::new();
        for Said { id, end } in said.into_iter().take(RUNS_SAID_MAX) {
            let is_its = |run: &Under| run.id == id && run.node == from;
            if !records.values().filter_map(|record| record.run.as_ref()).any(is_its) || self.given_up.contains(&id) {
                continue;
            }
            match end {
                Some(end) => drop(self.ends.insert(id, end)),
                None => {
                    self.granted.insert(id, now);
                    may.push(id);
                }
            }
        }
        may
    }

    /// What is to be changed now. The same until it is.
    pub fn plan(&mut self, now: Now, scene: &Scene<'_>) -> Plan {
        let mut plan = Plan::default();
        let Some(since) = self.since else { return plan };
        let known: BTreeSet<u64> = scene.records.values().filter_map(|r| Some(r.run.as_ref()?.id)).collect();
        self.granted.retain(|id, _| known.contains(id));
        self.ends.retain(|id, _| known.contains(id));
        self.in_the_way.retain(|id| known.contains(id));
        // What is proposed is a record a moment later.
        self.placed.retain(|id| known.contains(id) || *id >= scene.fresh);
        self.given_up.retain(|id| known.contains(id));
        let mut busy: BTreeMap<NodeId, u32> = BTreeMap::new();
        for run in scene.records.values().filter_map(|record| record.run.as_ref()) {
            *busy.entry(run.node).or_default() += 1;
        }
        let mut fresh = scene.fresh;
        let at = Moment { now, since, live: &scene.live };
        for (service, spec) in scene.services {
            if plan.puts.len() >= RUNS_PER_CHANGE {
                break;
            }
            let (all, is_off) = (scene.deployed.get(service), scene.off.contains(service.as_str()));
            let mut place = |version: u32, due_ms: u64, attempt: u32| -> Option<Under> {
                let open = scene.live.iter().filter(|node| !node.drains && !is_off);
                let runs = |node: &Place| busy.get(&node.id).copied().unwrap_or(0);
                let best = open.min_by_key(|node| (node.overflow, runs(node), node.load, node.id))?;
                let (id, node, at, boot) = (fresh, best.id, best.name.clone(), best.boot);
                fresh += 1;
                *busy.entry(node).or_default() += 1;
                Some(Under { id, version, due_ms, node, at, boot, began_ms: now.wall_ms, attempt, stop: false })
            };
            let record = |slot| scene.records.get(&(service.clone(), slot)).cloned();
            let wanted = all.and_then(|all| goes_before(all, spec.version));
            let before = record(Slot::Before);
            let runs = before.as_ref().and_then(|record| record.run.as_ref()).map(|run| run.version);
            match (runs, wanted) {
                (Some(of), wanted) if Some(of) != wanted => {
                    let record = before.unwrap_or_default();
                    self.end_unwanted(&at, service, record, &mut plan);
                }
                (_, Some(number)) => {
                    let is_first = all.is_some_and(|all| all.next.is_none());
                    let (of, record) = ((service.as_str(), number, is_first), before.unwrap_or_default());
                    self.before(&at, of, record, &mut place, &mut plan);
                }
                (_, None) => (),
            }
            let stands = all.and_then(|all| all.version(spec.version)).is_none_or(|version| !version.waits());
            let job = record(Slot::Job);
            let times = spec.times().filter(|_| stands);
            if times.is_some() || job.as_ref().is_some_and(|record| record.run.is_some()) {
                let of = Job { service, spec, times };
                self.job(&at, &of, job, &mut place, &mut plan);
            }
        }
        self.placed.extend(plan.puts.iter().filter_map(|(.., record)| Some(record.run.as_ref()?.id)));
        plan
    }

    /// What goes before a version that was taken back meanwhile.
    fn end_unwanted(&mut self, at: &Moment<'_>, service: &str, mut record: Record, plan: &mut Plan) {
        let Some(mut run) = record.run.take() else { return };
        let end = match self.state(at, &run) {
            State::GoesOn if run.stop => return,
            State::GoesOn => {
                run.stop = true;
                record.run = Some(run);
                return plan.puts.push((service.to_owned(), Slot::Before, record));
            }
            State::Ended(end) => end,
            State::Lost { .. } => {
                self.given_up.insert(run.id);
                lost(&run)
            }
        };
        record.last = Some(run.ended(at.now.wall_ms, end));
        plan.puts.push((service.to_owned(), Slot::Before, record));
    }

    fn before(
        &mut self,
        at: &Moment<'_>,
        (service, number, is_first): (&str, u32, bool),
        mut record: Record,
        place: &mut impl FnMut(u32, u64, u32) -> Option<Under>,
        plan: &mut Plan,
    ) {
        let fails = |plan: &mut Plan, record: &mut Record, ended: Ended| {
            let why = format!("what goes before it failed on {}: {}", ended.at, ended.how);
            let words = ended.lines.last().map_or_else(String::new, |line| format!("; its last line was: {line}"));
            plan.verdicts.push(Verdict { service: service.to_owned(), number, failed: Some(why.clone() + &words) });
            plan.told.push(("before", service.to_owned(), format!("version {number} does not come: {why}")));
            record.last = Some(ended);
        };
        let Some(run) = record.run.take() else {
            // One that failed is over: the next attempt is the next deploy's.
            let failed = record.last.as_ref().filter(|last| !last.good).map(|last| last.version);
            let is_over = failed.is_some_and(|of| of == number || is_first && of > number);
            if !is_over && let Some(run) = place(number, 0, 1) {
                plan.puts.push((service.to_owned(), Slot::Before, Record { run: Some(run), ..record }));
            }
            return;
        };
        match self.state(at, &run) {
            State::GoesOn => return,
            State::Ended(end) if end.good => {
                plan.verdicts.push(Verdict { service: service.to_owned(), number, failed: None });
                let text = format!("what goes before version {number} is done, by {}", run.at);
                plan.told.push(("before", service.to_owned(), text));
                record.last = Some(run.ended(at.now.wall_ms, end));
            }
            State::Ended(end) => fails(plan, &mut record, run.ended(at.now.wall_ms, end)),
            State::Lost { began } => {
                self.given_up.insert(run.id);
                let attempt = run.attempt + u32::from(began);
                if attempt > RUN_ATTEMPTS_MAX {
                    fails(plan, &mut record, run.ended(at.now.wall_ms, lost(&run)));
                } else {
                    let Some(next) = place(number, 0, attempt) else { return };
                    let text =
                        format!("{} died with what goes before version {number}; {} begins it again", run.at, next.at);
                    plan.told.push(("before", service.to_owned(), text));
                    record.run = Some(next);
                }
            }
        }
        plan.puts.push((service.to_owned(), Slot::Before, record));
    }

    fn job(
        &mut self,
        at: &Moment<'_>,
        of: &Job<'_>,
        record: Option<Record>,
        place: &mut impl FnMut(u32, u64, u32) -> Option<Under>,
        plan: &mut Plan,
    ) {
        let Job { service, spec, times } = of;
        let tell = |plan: &mut Plan, kind, text| plan.told.push((kind, (*service).to_owned(), text));
        let Some(mut record) = record else {
            // Its first time is the next one.
            let record = Record { seen_ms: at.now.wall_ms, ..Record::default() };
            return plan.puts.push(((*service).to_owned(), Slot::Job, record));
        };
        let due = times.as_ref().and_then(|times| times.due(record.seen_ms, at.now.wall_ms));
        if let Some(run) = record.run.take() {
            let end = match self.state(at, &run) {
                State::GoesOn => {
                    if let Some(due) = due.filter(|_| self.in_the_way.insert(run.id)) {
                        let text = format!(
                            "the run of {} does not begin, as that of {} goes on at {}",
                            utc(due.last_ms),
                            utc(run.due_ms),
                            run.at
                        );
                        tell(plan, "run-skipped", text);
                    }
                    return;
                }
                State::Ended(end) => end,
                State::Lost { began } => {
                    self.given_up.insert(run.id);
                    let attempt = run.attempt + u32::from(began);
                    let again = (!began || spec.rerun) && attempt <= RUN_ATTEMPTS_MAX;
                    if let Some(next) = again.then(|| place(spec.version, run.due_ms, attempt)).flatten() {
                        let text =
                            format!("{} died with the run of {}; {} begins it again", run.at, utc(run.due_ms), next.at);
                        tell(plan, "run-lost", text);
                        record.run = Some(next);
                        return plan.puts.push(((*service).to_owned(), Slot::Job, record));
                    }
                    lost(&run)
                }
            };
            if !end.good {
                let words = end.lines.last().map_or_else(String::new, |line| format!("; its last line was: {line}"));
                tell(
                    plan,
                    "run-failed",
                    format!("the run of {} failed on {}: {}{words}", utc(run.due_ms), run.at, end.how),
                );
            }
            // Times that came meanwhile were skipped. Whoever comes this very moment is not late.
            if let Some(due) = due.filter(|due| due.count > 1) {
                tell(plan, "run-skipped", format!("{} times were skipped, as a run went on", due.count));
            }
            record.seen_ms = record.seen_ms.max(due.map_or(0, |due| due.last_ms));
            record.last = Some(run.ended(at.now.wall_ms, end));
            return plan.puts.push(((*service).to_owned(), Slot::Job, record));
        }
        let Some(due) = due else { return };
        let is_late = at.now.wall_ms - due.last_ms > RUN_LATE_MAX.as_millis();
        let runs = !is_late || spec.catch_up;
        let missed = due.count - u64::from(runs);
        let run = if runs { place(spec.version, due.last_ms, 1) } else { None };
        if runs && run.is_none() {
            // All nodes drain: it waits, until it is late.
            return;
        }
        if missed > 0 {
            let made_good = if is_late && runs { "; the last one is made good now" } else { "" };
            let times = if missed == 1 { "one time has".to_owned() } else { format!("{missed} times have") };
            let text = format!("{times} passed with nobody to run it, until {}{made_good}", utc(due.last_ms));
            tell(plan, "run-missed", text);
        }
        (record.seen_ms, record.run) = (due.last_ms, run);
        plan.puts.push(((*service).to_owned(), Slot::Job, record));
    }

    fn state(&self, at: &Moment<'_>, run: &Under) -> State {
        let (now, since, live) = (at.now.mono, at.since, at.live);
        if let Some(end) = self.ends.get(&run.id) {
            return State::Ended(end.clone());
        }
        let node = live.iter().find(|node| node.id == run.node);
        let granted = self.granted.get(&run.id);
        let never_began = granted.is_none() && self.placed.contains(&run.id);
        match node {
            Some(node) if node.boot == run.boot => State::GoesOn,
            // A clone does not outlive that life of its node.
            Some(node) if node.boot > run.boot => State::Lost { began: !never_began },
            Some(_) | None if never_began => State::Lost { began: false },
            Some(_) | None => {
                let heard = granted.copied().unwrap_or(since).max(since);
                if now.since(heard) < RUN_GIVE_UP { State::GoesOn } else { State::Lost { began: true } }
            }
        }
    }
}

struct Moment<'a> {
    now: Now,
    /// Since when this node leads.
    since: Time,
    live: &'a [Place],
}

struct Job<'a> {
    service: &'a str,
    spec: &'a ServiceSpec,
    /// None of one that ran at times until now.
    times: Option<Schedule>,
}

fn lost(run: &Under) -> SaidEnd {
    let how = format!("{} died while it ran: whether it had done its work is not known", run.at);
    SaidEnd { good: false, how, lines: Vec::new() }
}

/// The version before which something is to run, if there is one: the one that is to be rolled out, or the first one.
fn goes_before(all: &Deployed, stands: u32) -> Option<u32> {
    let number = all.next.unwrap_or(stands);
    all.version(number).filter(|version| version.waits()).map(|version| version.number)
}

/// `2026-11-26 03:00:00 UTC`
fn utc(ms: u64) -> String {
    let seconds = ms / 1000;
    let (year, month, day) = base::schedule::date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
#[path = "planner_tests.rs"]
mod tests;
