//! How many clones a service needs that works on queues of jobs (`queues` of a declaration): by how long the oldest job waits. A
//! worker asks a queue for jobs and listens nowhere, so no edge sees it; what leaders of class `linear` tell of their queues once a
//! second is all that is known.
//!
//! When the oldest job has waited longer than hurts, there are twice as many clones, and then nothing changes until those have shown
//! what they do. Clones go when workers have held so few jobs for long that half of the fewer would do. A queue of which nobody tells
//! for a moment has changed its leader: nothing changes then.

use std::collections::BTreeMap;

use base::{Span, Time};

use crate::limits::*;
use crate::size::Size;
use crate::sizing::{Decision, round};
use crate::spec::{ServiceSpec, SpecError};
use crate::text::format_span;

/// A queue, as the leader of its group tells of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Jobs that wait, and that workers have.
    pub waiting: u64,
    pub held: u64,
    /// How long the one waits that has waited longest.
    pub oldest: Span,
}

/// What is told of queues, by `NAMESPACE/QUEUE`.
pub type Backlogs = BTreeMap<String, Backlog>;

/// What is remembered of one service.
#[derive(Clone, Debug)]
pub struct QueueSizer {
    since: Time,
    /// What was told last of each queue, and when.
    told: BTreeMap<String, (Time, Backlog)>,
    /// All queues together at the last telling, and when that was.
    sum: Option<(Time, Backlog)>,
    /// Decrease of waiting jobs each second, on average; below 0 if they become more.
    falls: f64,
    /// Jobs that workers have, on average.
    held: f64,
    /// Jobs that a clone has when there is enough to do.
    width: f64,
    rest_until: Time,
    fewer_since: Option<Time>,
}

impl QueueSizer {
    pub fn new(now: Time) -> Self {
        let (told, sum, fewer_since) = (BTreeMap::new(), None, None);
        Self { since: now, told, sum, falls: 0.0, held: 0.0, width: 1.0, rest_until: now, fewer_since }
    }

    /// What is told of all queues now; `of` are those of this service.
    pub fn observe(&mut self, now: Time, of: &[String], told: &Backlogs) {
        self.told.retain(|name, (at, _)| of.contains(name) && now.since(*at) < QUEUE_GONE_AFTER);
        for name in of {
            if let Some(backlog) = told.get(name) {
                self.told.insert(name.clone(), (now, *backlog));
            }
        }
        let sum = self.told.values().map(|(_, backlog)| *backlog).fold(Backlog::default(), |a, b| Backlog {
            waiting: a.waiting + b.waiting,
            held: a.held + b.held,
            oldest: a.oldest.max(b.oldest),
        });
        let before = self.sum.replace((now, sum));
        let Some((at, before)) = before.filter(|(at, _)| now > *at) else {
            self.held = sum.held as f64;
            return;
        };
        let gap = now.since(at).as_secs_f64();
        let mix = |old: f64, new: f64, over: Span| old + (new - old) * (gap / (over.as_secs_f64() + gap));
        self.falls = mix(self.falls, (before.waiting as f64 - sum.waiting as f64) / gap, QUEUE_TREND_OVER);
        self.held = mix(self.held, sum.held as f64, QUEUE_HELD_OVER);
    }

    /// Whether somebody has told of each queue lately. One that nobody tells of for long is empty: it was removed, or has had no job yet.
    fn is_known(&self, now: Time, of: &[String]) -> bool {
        let is_known = |name: &String| match self.told.get(name) {
            Some((at, _)) => now.since(*at) < QUEUE_GOOD_FOR,
            None => now.since(self.since) >= QUEUE_GONE_AFTER,
        };
        of.iter().all(is_known)
    }

    /// All queues together of which somebody tells, and the one whose oldest job waits longest.
    fn now(&self, now: Time) -> (Backlog, &str) {
        let (mut sum, mut longest) = (Backlog::default(), "");
        for (name, (_, backlog)) in self.told.iter().filter(|(_, (at, _))| now.since(*at) < QUEUE_GOOD_FOR) {
            (sum.waiting, sum.held) = (sum.waiting + backlog.waiting, sum.held + backlog.held);
            if longest.is_empty() || backlog.oldest > sum.oldest {
                (sum.oldest, longest) = (backlog.oldest, name);
            }
        }
        (sum, longest)
    }

    /// The rest D: new clones start and take jobs, and that is told.
    pub fn rest(start: Span) -> Span {
        start + QUEUE_SHOWN_AFTER
    }

    /// Whether the size is to change now. `target` is what is wanted so far, `serving` what is there, `start` what a start takes.
    pub fn decide(
        &mut self,
        now: Time,
        spec: &ServiceSpec,
        start: Span,
        (target, serving): (u32, u32),
    ) -> Option<Decision> {
        let (size, hurts) = (spec.clones, spec.wait.unwrap_or(WAIT_JOBS_DEFAULT));
        if size.clamp(target) != target {
            let to = size.clamp(target);
            return Some(Decision { to, why: format!("{target} -> {to} clones: its range is {size}") });
        }
        if now < self.rest_until || size.is_fixed() {
            return None;
        }
        let (sum, longest) = self.now(now);
        let longest = longest.to_owned();
        // Without a clone nobody takes the first job, however short it waits.
        let hurt = sum.waiting > 0 && (sum.oldest > hurts || target == 0);
        if hurt {
            self.fewer_since = None;
            return self.grow(now, size, (hurts, start), (target, serving), (sum, &longest));
        }
        // What nobody tells of may wait.
        if !self.is_known(now, &spec.queues) || sum.oldest > Span(hurts.0 / 2) {
            self.fewer_since = None;
            return None;
        }
        self.shrink(now, size, (hurts, start), target, sum)
    }

    fn grow(
        &mut self,
        now: Time,
        size: Size,
        (hurts, start): (Span, Span),
        (target, serving): (u32, u32),
        (sum, longest): (Backlog, &str),
    ) -> Option<Decision> {
        if serving > 0 {
            // Jobs wait, so each has as many as it takes.
            self.width = (sum.held as f64 / f64::from(serving)).clamp(1.0, WIDTH_MAX);
        }
        // What waits is gone soon enough as it is: those put at one moment grow old together while they are worked off.
        if target > 0 && self.falls > 0.0 && sum.waiting as f64 / self.falls <= hurts.as_secs_f64() {
            return None;
        }
        // No more than find a job.
        let useful = (sum.waiting as f64 / self.width).ceil().min(f64::from(CLONES_PER_SERVICE_MAX)) as u32;
        let to = size.clamp(target.max(1).saturating_mul(if target == 0 { 1 } else { 2 }).min(target + useful));
        if to <= target {
            return None;
        }
        let rest = Self::rest(start);
        (self.rest_until, self.falls) = (now + rest, 0.0);
        let why = format!(
            "{target} -> {to} clones: the oldest job of {longest} waits {} ({} hurt), {} wait; a start takes {}, so nothing changes for {}",
            round(sum.oldest),
            format_span(hurts),
            sum.waiting,
            round(start),
            round(rest)
        );
        Some(Decision { to, why })
    }

    fn shrink(
        &mut self,
        now: Time,
        size: Size,
        (hurts, start): (Span, Span),
        target: u32,
        sum: Backlog,
    ) -> Option<Decision> {
        let fewer = target.saturating_sub(1);
        let would_do = match fewer {
            // Nobody is left then.
            0 => sum.waiting == 0 && sum.held == 0,
            fewer => self.held <= f64::from(fewer) * self.width * BUSY_LOW,
        };
        if target <= size.min || !would_do {
            self.fewer_since = None;
            return None;
        }
        let since = *self.fewer_since.get_or_insert(now);
        let patience = Span(Self::rest(start).0 * SHRINK_RESTS).max(SHRINK_AFTER_MIN).max(hurts.min(QUEUE_GONE_AFTER));
        if now.since(since) < patience {
            return None;
        }
        let enough = (self.held / (BUSY_LOW * self.width)).ceil() as u32;
        let to = size.clamp(enough.max(target / 2).min(fewer));
        (self.fewer_since, self.rest_until) = (None, now + Self::rest(start));
        let (patience, hurts, held) = (round(patience), format_span(hurts), self.held);
        let why = format!(
            "{target} -> {to} clones: for {patience} no job waited half of {hurts}, and workers had {held:.1} jobs at a time"
        );
        Some(Decision { to, why })
    }
}

/// What this service alone shows to be wrong with its queues.
pub(crate) fn mistakes(spec: &ServiceSpec) -> Vec<SpecError> {
    let mut errors = Vec::new();
    let mut wrong = |why: String| errors.push(SpecError { key: "queues".into(), why });
    for name in &spec.queues {
        if let Some(why) = name_error(name) {
            wrong(why);
        }
    }
    if spec.queues.len() > QUEUES_PER_SERVICE_MAX {
        wrong(format!("{} queues are over the limit of {QUEUES_PER_SERVICE_MAX}", spec.queues.len()));
    }
    if let Some(twice) = spec.queues.iter().enumerate().find(|(n, name)| spec.queues[..*n].contains(name)) {
        wrong(format!("{:?} is there twice", twice.1));
    }
    if !spec.queues.is_empty() && spec.is_at_times() {
        wrong("are worked on by clones that stand, and this service runs at times; leave one of them out".into());
    }
    errors
}

fn name_error(name: &str) -> Option<String> {
    let Some((namespace, queue)) = name.split_once('/') else {
        return Some(format!("{name:?} names no queue of a namespace; write it like \"jobs/mails\""));
    };
    // Others are shown cut off, or written otherwise, and would not be found.
    let is_plain = queue.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'\\' | b'"' | b'\''));
    if namespace.is_empty() || queue.is_empty() || queue.len() > QUEUE_NAME_BYTES_MAX || !is_plain {
        return Some(format!(
            "{name:?} is no queue that a service can say it works on: behind the / there are 1 to {QUEUE_NAME_BYTES_MAX} visible \
             characters of ASCII without quotes and \\"
        ));
    }
    None
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
