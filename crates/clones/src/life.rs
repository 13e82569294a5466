//! One life of a clone: one process from its start to its exit. The group says when it begins and when it is to go; here
//! is what its probes, its patience and its drain time do to it.

use std::collections::VecDeque;
use std::sync::Arc;

use base::process::Probe;
use base::{Exit, Now, Signal, Span, Time};

use crate::limits::*;
use crate::wire::short;
use crate::{CloneId, CloneState, ServiceSpec, text};

pub(crate) struct Life {
    pub id: CloneId,
    /// How it is probed and stopped: the newest declaration, which may differ from what the process was started with.
    pub spec: Arc<ServiceSpec>,
    /// Hash of the declaration that the process was started with.
    pub hash: u64,
    pub version: u32,
    /// Process number, 0 until the host has told it.
    pub pid: u32,
    pub port: u16,
    pub since_ms: u64,
    /// The state that was last told to others.
    pub told: (CloneState, bool),
    /// Last lines of output, newest last.
    pub output: VecDeque<String>,
    phase: Phase,
    probing: Probing,
    /// Probes that failed in a row.
    probes_failed: u32,
    /// Moment since which too many probes failed, while it serves and when it was killed for that.
    sick_since: Option<Time>,
    last_complaint: Option<String>,
    /// Since when, and why, edges that ask it have found it ill (`conduct`).
    ill: Option<(Time, String)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    Starting {
        started: Time,
    },
    Serving {
        since: Time,
    },
    /// Out of the routes; the signal is sent when everyone knows.
    Leaving {
        since: Time,
        signal_at: Time,
    },
    Stopping {
        kill_at: Time,
    },
    /// `why` is none for one that was to go and did not in time.
    Killed {
        why: Option<String>,
        served: Span,
        again_at: Time,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probing {
    Next(Time),
    Sent { lost_at: Time },
}

/// What the world must do for a life now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    None,
    Probe(Probe),
    Signal(Signal),
}

/// How a life ended, in words.
pub(crate) enum Death {
    /// The clone was asked to go.
    Drained(String),
    /// The clone ended without being asked; `served` is for how long it had been well.
    Died { text: String, served: Span },
}

impl Life {
    pub fn new(id: CloneId, spec: Arc<ServiceSpec>, hash: u64, now: Now) -> Self {
        Self {
            id,
            version: spec.version,
            spec,
            hash,
            pid: 0,
            port: 0,
            since_ms: now.wall_ms,
            told: (CloneState::Starting, false),
            output: VecDeque::new(),
            phase: Phase::Starting { started: now.mono },
            probing: Probing::Next(now.mono),
            probes_failed: 0,
            sick_since: None,
            last_complaint: None,
            ill: None,
        }
    }

    pub fn state(&self) -> CloneState {
        match self.phase {
            Phase::Starting { .. } => CloneState::Starting,
            Phase::Serving { .. } => CloneState::Serving,
            Phase::Leaving { .. } | Phase::Stopping { .. } | Phase::Killed { .. } => CloneState::Draining,
        }
    }

    pub fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving { .. })
    }

    /// On its way out, one way or the other.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Leaving { .. } | Phase::Stopping { .. } | Phase::Killed { .. })
    }

    /// On its way out because it was asked to go: its successor need not wait for its end.
    pub fn is_leaving(&self) -> bool {
        match self.phase {
            Phase::Leaving { .. } | Phase::Stopping { .. } | Phase::Killed { why: None, .. } => true,
            Phase::Starting { .. } | Phase::Serving { .. } | Phase::Killed { why: Some(_), .. } => false,
        }
    }

    /// Fails its probes or those who ask it, or was killed for that.
    pub fn is_sick(&self) -> bool {
        (self.sick_since.is_some() || self.ill.is_some()) && !self.is_leaving()
    }

    /// Since when it serves and is sick: it is to be killed when there is room in the budget.
    pub fn waits_since(&self) -> Option<Time> {
        let ill_since = self.ill.as_ref().map(|(since, _)| *since);
        self.sick_since.into_iter().chain(ill_since).min().filter(|_| self.is_serving())
    }

    /// What the manager says of how it behaves: why it is ill, if it is.
    pub fn judged(&mut self, now: Time, why: Option<&str>) {
        if self.is_serving() {
            let since = self.ill.as_ref().map_or(now, |(since, _)| *since);
            self.ill = why.map(|why| (since, why.to_owned()));
        }
    }

    pub fn printed(&mut self, line: &str) {
        if self.output.len() == OUTPUT_LINES {
            self.output.pop_front();
        }
        self.output.push_back(short(line));
    }

    pub fn probed(&mut self, now: Time, result: Result<(), String>) {
        // An answer to a probe that was already counted as lost must not count twice.
        if !matches!(self.probing, Probing::Sent { .. }) {
            return;
        }
        let every = if self.is_serving() { PROBE_SERVING_EVERY } else { PROBE_STARTING_EVERY };
        self.probing = Probing::Next(now + every);
        match result {
            Ok(()) => {
                self.probes_failed = 0;
                match self.phase {
                    Phase::Starting { .. } => self.well(now),
                    Phase::Serving { .. } | Phase::Leaving { .. } => self.sick_since = None,
                    Phase::Stopping { .. } | Phase::Killed { .. } => (),
                }
            }
            Err(complaint) => {
                self.probes_failed += 1;
                self.last_complaint = Some(complaint);
                if self.is_serving() && self.probes_failed >= PROBES_FAILED_MAX {
                    self.sick_since.get_or_insert(now);
                }
            }
        }
    }

    /// What this moment asks for. Called after every input; changes nothing when nothing is due.
    pub fn step(&mut self, now: Time) -> Step {
        match &mut self.phase {
            Phase::Starting { started } => {
                let started = *started;
                if now >= started + self.spec.start_timeout {
                    let patience = text::format_span(self.spec.start_timeout);
                    let why = format!("was not well within {patience}{}", self.complaint());
                    return self.kill(now, Some(why));
                }
                if self.port == 0 {
                    return Step::None;
                }
                if !self.spec.listens() {
                    self.well(now);
                    return Step::None;
                }
                self.probe(now)
            }
            Phase::Serving { .. } if self.spec.listens() => self.probe(now),
            Phase::Serving { .. } => Step::None,
            Phase::Leaving { signal_at, .. } if now >= *signal_at => self.stop(now),
            Phase::Stopping { kill_at } if now >= *kill_at => self.kill(now, None),
            Phase::Killed { again_at, .. } if now >= *again_at => {
                *again_at = now + KILL_AGAIN;
                Step::Signal(Signal::Kill)
            }
            Phase::Leaving { .. } | Phase::Stopping { .. } | Phase::Killed { .. } => Step::None,
        }
    }

    /// There is room in the budget for this one's restart.
    pub fn heal(&mut self, now: Time) -> Step {
        let why = match &self.ill {
            Some((_, why)) if self.sick_since.is_none() => why.clone(),
            _ => format!("was not well {} times in a row{}", self.probes_failed, self.complaint()),
        };
        self.kill(now, Some(why))
    }

    /// When `step` is next worth calling.
    /// When it began, if it does not serve yet.
    pub fn starting_since(&self) -> Option<Time> {
        let Phase::Starting { started } = self.phase else { return None };
        Some(started)
    }

    pub fn wake_at(&self) -> Option<Time> {
        let probe = match self.probing {
            _ if self.port == 0 || !self.spec.listens() => Time::NEVER,
            Probing::Next(at) => at,
            Probing::Sent { lost_at } => lost_at,
        };
        let at = match &self.phase {
            Phase::Starting { started } => (*started + self.spec.start_timeout).min(probe),
            Phase::Serving { .. } => probe,
            Phase::Leaving { signal_at, .. } => *signal_at,
            Phase::Stopping { kill_at } => *kill_at,
            Phase::Killed { again_at, .. } => *again_at,
        };
        (at != Time::NEVER).then_some(at)
    }

    /// It is to go. One that serves stays until the routes have forgotten it; another is told at once.
    pub fn drain(&mut self, now: Time) -> Option<Signal> {
        if let Phase::Serving { since } = self.phase {
            self.phase = Phase::Leaving { since, signal_at: now + LEAVE_ROUTES };
            return None;
        }
        match self.stop(now) {
            Step::Signal(signal) => Some(signal),
            Step::None | Step::Probe(_) => None,
        }
    }

    /// It is wanted after all: if it was not told to go yet, it serves on.
    pub fn stay(&mut self, now: Time) {
        if let Phase::Leaving { since, .. } = self.phase {
            self.phase = Phase::Serving { since };
            self.probing = Probing::Next(now + PROBE_SERVING_EVERY);
        }
    }

    pub fn death(&self, now: Time, exit: &Exit) -> Death {
        match &self.phase {
            Phase::Leaving { .. } | Phase::Stopping { .. } => Death::Drained(format!("stopped: {exit}")),
            Phase::Killed { why: None, .. } => Death::Drained(format!("did not stop when asked to: {exit}")),
            Phase::Killed { why: Some(why), served, .. } => {
                Death::Died { text: format!("{why}; {exit}"), served: *served }
            }
            Phase::Serving { since } => Death::Died { text: exit.to_string(), served: now.since(*since) },
            Phase::Starting { .. } => Death::Died { text: exit.to_string(), served: Span::ZERO },
        }
    }

    fn well(&mut self, now: Time) {
        self.phase = Phase::Serving { since: now };
        self.probing = Probing::Next(now + PROBE_SERVING_EVERY);
        (self.probes_failed, self.sick_since, self.ill) = (0, None, None);
        self.last_complaint = None;
    }

    fn probe(&mut self, now: Time) -> Step {
        match self.probing {
            Probing::Sent { lost_at } if now >= lost_at => self.probed(now, Err("no answer".into())),
            Probing::Sent { .. } | Probing::Next(_) => (),
        }
        match self.probing {
            Probing::Next(at) if now >= at => {
                self.probing = Probing::Sent { lost_at: now + PROBE_LOST };
                let health = self.spec.health.as_ref();
                Step::Probe(Probe {
                    port: self.port,
                    path: health.map(|health| health.path.clone()),
                    host: self.spec.health_host().map(str::to_owned),
                    status: health.map_or_else(Vec::new, |health| health.status.clone()),
                    timeout: PROBE_TIMEOUT,
                })
            }
            Probing::Next(_) | Probing::Sent { .. } => Step::None,
        }
    }

    fn stop(&mut self, now: Time) -> Step {
        self.phase = Phase::Stopping { kill_at: now + self.spec.stop.drain };
        Step::Signal(self.spec.stop.signal)
    }

    fn kill(&mut self, now: Time, why: Option<String>) -> Step {
        let served = match self.phase {
            Phase::Serving { since } => now.since(since),
            Phase::Starting { .. } | Phase::Leaving { .. } | Phase::Stopping { .. } | Phase::Killed { .. } => {
                Span::ZERO
            }
        };
        self.phase = Phase::Killed { why, served, again_at: now + KILL_AGAIN };
        Step::Signal(Signal::Kill)
    }

    fn complaint(&self) -> String {
        self.last_complaint.as_ref().map_or_else(String::new, |complaint| format!(" ({complaint})"))
    }
}
