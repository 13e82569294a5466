//! The runs of this node, each from its order to its end: it waits for what it needs and, if the root group ordered it, for the
//! leader's word; it is ended when its time is over, when nobody wants it any more, and when the leader's word is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Exit, Now, ProcId, ProcSpec, Signal, Span, Time};

use super::{Said, SaidEnd, Slot};
use crate::CloneId;
use crate::clone::Happened;
use crate::limits::*;
use crate::text::format_span;
use crate::wire::short;

#[derive(Default)]
pub(crate) struct Runs {
    all: BTreeMap<u64, Run>,
    /// What an operator runs has numbers of this node's own, beyond those of the root group.
    onces: u64,
}

/// A run that the root group gave to this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    pub id: CloneId,
    /// Version of its service.
    pub version: u32,
    /// It is to end.
    pub stop: bool,
}

/// What an operator wants to run once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Once {
    pub service: String,
    /// Program and arguments.
    pub run: Vec<String>,
}

/// How that ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OnceEnd {
    pub exit: Exit,
    /// Why it was ended, if it did not by itself.
    pub why: Option<String>,
}

struct Run {
    id: CloneId,
    version: u32,
    /// What an operator wrote; none of what the declaration says.
    words: Option<Vec<String>>,
    since: Time,
    /// The leader's word is good until then; of what an operator runs for ever.
    until: Time,
    /// It is to end by itself within this, from its start.
    within: Span,
    /// From the stop signal to the kill.
    drain: Span,
    proc: Option<ProcId>,
    phase: Phase,
    /// Why it is ended.
    why: Option<String>,
    lines: VecDeque<String>,
}

enum Phase {
    Waits,
    Runs { until: Time },
    Stopping { kill_at: Time },
    Killed { again_at: Time },
    Ended { good: bool, how: String, exit: Option<Exit>, at: Time },
}

/// What a run is started with, as far as the group knows it now.
pub(crate) enum Found {
    Ready {
        spec: Box<ProcSpec>,
        within: Span,
        drain: Span,
    },
    /// It waits for this.
    Lacks(String),
    /// It is not declared any more.
    Gone,
}

/// Numbers of what operators run begin here: the root group's are versions of the declaration.
const ONCE_FROM: u64 = 1 << 62;

impl Run {
    fn new(id: CloneId, version: u32, words: Option<Vec<String>>, now: Time) -> Self {
        let until = if words.is_some() { Time::NEVER } else { Time::ZERO };
        let (within, drain) = (Span::ZERO, Span::ZERO);
        Self {
            id,
            version,
            words,
            since: now,
            until,
            within,
            drain,
            proc: None,
            phase: Phase::Waits,
            why: None,
            lines: VecDeque::new(),
        }
    }

    fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }

    /// It is to end: `None` if it never began.
    fn stop(&mut self, now: Time, signal: Signal, why: &str) -> Option<(ProcId, Signal)> {
        let ends_already = matches!(self.phase, Phase::Killed { .. } | Phase::Ended { .. })
            || matches!(self.phase, Phase::Stopping { .. }) && signal != Signal::Kill;
        if ends_already {
            return None;
        }
        self.why.get_or_insert_with(|| why.to_owned());
        let Some(proc) = self.proc else {
            self.end(now, false, format!("did not begin: {why}"), None);
            return None;
        };
        self.phase = match signal {
            Signal::Kill => Phase::Killed { again_at: now + KILL_AGAIN },
            _ => Phase::Stopping { kill_at: now + self.drain },
        };
        Some((proc, signal))
    }

    fn end(&mut self, now: Time, good: bool, how: String, exit: Option<Exit>) {
        self.phase = Phase::Ended { good, how, exit, at: now };
    }

    fn wake_at(&self) -> Option<Time> {
        match &self.phase {
            // Its node looks once a second.
            Phase::Waits => None,
            Phase::Runs { until } => Some((*until).min(self.until)),
            Phase::Stopping { kill_at } => Some((*kill_at).min(self.until)),
            Phase::Killed { again_at } => Some(*again_at),
            Phase::Ended { at, .. } => self.words.is_some().then_some(*at + ONCE_KEPT),
        }
    }
}

impl Runs {
    /// Those that the root group gave to this life of this node, by their numbers.
    pub fn order(&mut self, now: Time, ordered: &BTreeMap<u64, Order>, out: &mut Vec<(ProcId, Signal)>) {
        for (number, run) in self.all.iter_mut().filter(|(_, run)| run.words.is_none()) {
            if ordered.get(number).is_none_or(|order| order.stop) {
                out.extend(run.stop(now, Signal::Term, "nobody wants it any more"));
            }
        }
        self.all.retain(|number, run| run.words.is_some() || ordered.contains_key(number) || !run.is_ended());
        for (number, Order { id, version, stop }) in ordered {
            let run = self.all.entry(*number).or_insert_with(|| Run::new(id.clone(), *version, None, now));
            if *stop && matches!(run.phase, Phase::Waits) {
                run.end(now, false, "did not begin: nobody wants it any more".into(), None);
            }
        }
    }

    /// The leader says that these may run until then.
    pub fn granted(&mut self, runs: &BTreeSet<u64>, until: Time) {
        for run in runs {
            if let Some(run) = self.all.get_mut(run).filter(|run| run.words.is_none()) {
                run.until = run.until.max(until);
            }
        }
    }

    /// Begins what an operator runs; its number, and which clone it is.
    pub fn once(&mut self, now: Time, once: Once, version: u32) -> Result<(u64, CloneId), String> {
        let taken: BTreeSet<&CloneId> = self.all.values().filter(|run| !run.is_ended()).map(|run| &run.id).collect();
        let slots = (0..ONCE_MAX).map(|n| Slot::Once(n).id(&once.service));
        let under_way = self.all.values().filter(|run| run.words.is_some() && !run.is_ended()).count();
        let free = slots.into_iter().find(|id| !taken.contains(id)).filter(|_| under_way < ONCE_MAX as usize);
        let Some(id) = free else {
            return Err(format!(
                "{ONCE_MAX} one-off commands run on this node already; wait for one, or choose another with --node"
            ));
        };
        self.onces += 1;
        let number = ONCE_FROM + self.onces;
        self.all.insert(number, Run::new(id.clone(), version, Some(once.run), now));
        Ok((number, id))
    }

    /// None if there is no such run (any more); inside: none while it runs.
    pub fn once_end(&self, number: u64) -> Option<Option<OnceEnd>> {
        let run = self.all.get(&number)?;
        let Phase::Ended { how, exit, .. } = &run.phase else { return Some(None) };
        let exit = exit.clone().unwrap_or_else(|| Exit::NotStarted(how.clone()));
        Some(Some(OnceEnd { exit, why: run.why.clone() }))
    }

    /// Who runs it is gone: it is to end, and be forgotten.
    pub fn end_once(&mut self, now: Time, number: u64) -> Option<(ProcId, Signal)> {
        let run = self.all.get_mut(&number).filter(|run| run.words.is_some())?;
        run.stop(now, Signal::Term, "who ran it went away")
    }

    /// What the leader is told of those that the root group ordered.
    pub fn said(&self) -> Vec<Said> {
        let ordered = self.all.iter().filter(|(_, run)| run.words.is_none());
        let said = ordered.map(|(id, run)| {
            let end = match &run.phase {
                Phase::Ended { good, how, .. } => {
                    Some(SaidEnd { good: *good, how: how.clone(), lines: run.lines.iter().cloned().collect() })
                }
                _ => None,
            };
            Said { id: *id, end }
        });
        said.collect()
    }

    pub fn has(&self, proc: ProcId) -> bool {
        self.all.values().any(|run| run.proc == Some(proc))
    }

    fn of(&mut self, proc: ProcId) -> Option<&mut Run> {
        self.all.values_mut().find(|run| run.proc == Some(proc))
    }

    pub fn printed(&mut self, proc: ProcId, line: &str) {
        if let Some(run) = self.of(proc) {
            if run.lines.len() == RUN_LINES {
                run.lines.pop_front();
            }
            run.lines.push_back(short(line));
        }
    }

    pub fn exited(&mut self, now: Time, proc: ProcId, exit: &Exit) -> Option<Happened> {
        let run = self.of(proc)?;
        let how = match &run.why {
            Some(why) => format!("{exit}; {why}"),
            None => exit.to_string(),
        };
        let good = *exit == Exit::Code(0) && run.why.is_none();
        let happened = run.words.is_some().then(|| named("run-ended", &run.id, how.clone()));
        run.end(now, good, how, Some(exit.clone()));
        happened
    }

    /// Carries every run over what time has brought. `find` says what a run is started with.
    pub fn step(
        &mut self,
        now: Now,
        mut find: impl FnMut(&CloneId, u32, u64, Option<&Vec<String>>) -> Found,
        mut start: impl FnMut(ProcSpec) -> ProcId,
        signals: &mut Vec<(ProcId, Signal)>,
    ) {
        let now = now.mono;
        self.all.retain(|_, run| {
            let is_old = matches!(run.phase, Phase::Ended { at, .. } if now >= at + ONCE_KEPT);
            run.words.is_none() || !is_old
        });
        for (number, run) in &mut self.all {
            if now >= run.until && matches!(run.phase, Phase::Runs { .. } | Phase::Stopping { .. }) {
                // Another node may begin soon: there is no time to ask.
                signals.extend(run.stop(now, Signal::Kill, "its node did not hear from the root group's leader"));
            }
            match run.phase {
                Phase::Waits => {
                    let found = find(&run.id, run.version, *number, run.words.as_ref());
                    let lacks = match found {
                        Found::Ready { spec, within, drain } if now < run.until => {
                            (run.within, run.drain) = (within, drain);
                            run.proc = Some(start(*spec));
                            run.phase = Phase::Runs { until: now + within };
                            continue;
                        }
                        Found::Ready { .. } => None,
                        Found::Lacks(why) => Some(why),
                        Found::Gone => Some("it is not declared any more".to_owned()),
                    };
                    // Without the leader's word it is not this node that gives up: another one may have it.
                    if let Some(why) = lacks.filter(|_| now >= run.since + RUN_WAITS_MAX) {
                        run.end(now, false, format!("did not begin: {why}"), None);
                    }
                }
                Phase::Runs { until } if now >= until => {
                    let why = format!("took longer than {}", format_span(run.within));
                    signals.extend(run.stop(now, Signal::Term, &why));
                }
                Phase::Stopping { kill_at } if now >= kill_at => {
                    let why = "did not stop when asked to";
                    signals.extend(run.stop(now, Signal::Kill, why));
                }
                Phase::Killed { again_at } if now >= again_at => {
                    run.phase = Phase::Killed { again_at: now + KILL_AGAIN };
                    signals.extend(run.proc.map(|proc| (proc, Signal::Kill)));
                }
                Phase::Runs { .. } | Phase::Stopping { .. } | Phase::Killed { .. } | Phase::Ended { .. } => (),
            }
        }
    }

    pub fn wake_at(&self) -> Option<Time> {
        self.all.values().filter_map(Run::wake_at).min()
    }
}

/// An event of a run, by its word in place of its number.
pub(crate) fn named(kind: &'static str, id: &CloneId, text: String) -> Happened {
    let word = Slot::of_number(id.number).map_or_else(|| id.number.to_string(), Slot::word);
    Happened { kind, who: format!("{}/{word}", id.service), text }
}

#[cfg(test)]
#[path = "here_tests.rs"]
mod tests;
