//! How many clones a service needs, by what its requests wait (SNS 4.5). When the wait passes H, clones are added, as many
//! as what comes needs, and then nothing for D, so that they can show what they do. H and D follow from how long a clone
//! takes to start and from the one number that a user may set, the wait that hurts: who starts slowly must begin earlier and
//! rest longer. Clones go when fewer would still be at ease for long.
//!
//! What edges refuse for lack of room keeps waits short; it is a reason to grow by itself. The averages are late when a burst
//! comes, so what the last reports say of it for sure counts too, and a growth that was made for much less is followed at once.
//!
//! Waiting is not seen, only answers are: it is what a request takes beyond what it took when clones had little to do.

use base::{Span, Time};

use crate::limits::*;
use crate::size::Size;
use crate::text::format_span;

/// What all edges together see of a service now.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Seen {
    /// Requests that came, a second.
    pub arrived: f64,
    /// Requests for which there was no room, a second.
    pub refused: f64,
    /// Requests that were answered, a second.
    pub done: f64,
    /// Requests that wait or are being answered.
    pub in_flight: f64,
    /// How long the answered ones took on average, seconds; 0 if there were none.
    pub took: f64,
}

/// A change of a service's size, and the reason for people.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision {
    pub to: u32,
    pub why: String,
}

/// What is remembered of one service.
#[derive(Clone, Debug)]
pub struct Sizer {
    seen: Seen,
    /// In the last reports.
    newest: Seen,
    /// Mean time of a request over a longer time, seconds: a short average of few requests is chance.
    took_long: f64,
    /// Answers from which `took_long` was made.
    answers: f64,
    /// Least value of `took_long` so far, seconds.
    took_least: f64,
    seen_at: Option<Time>,
    /// What a request takes when it does not wait, seconds.
    service_time: Option<f64>,
    /// Requests that a clone does at once without one waiting: learned whenever clones are all busy.
    width: f64,
    /// From the decision to the first answer of a new clone, on average.
    start: Span,
    rest_until: Time,
    /// Whether it makes no change for a while after the last one, or has just ended to do so.
    rests: bool,
    /// Since when fewer clones would do.
    fewer_since: Option<Time>,
    /// What the last growth began with: whether it helped is seen later.
    grown_from: Option<Seen>,
    grown_for: Option<GrownFor>,
    /// Since when each report tells of refused requests.
    refused_since: Option<Time>,
    /// What came when more clones did not help: until that changes, refusals are no reason for yet more.
    futile_at: Option<f64>,
}

/// What the last growth was made for.
#[derive(Clone, Copy, Debug)]
struct GrownFor {
    /// Requests a second.
    rate: f64,
    /// What a clone did of them then.
    each: f64,
    /// Clones that served then.
    serving: u32,
    /// Whether it followed another growth whose clones served already: then what comes is counted at its
    /// height, with what waited.
    follows: bool,
}

impl Default for Sizer {
    fn default() -> Self {
        Self {
            seen: Seen::default(),
            newest: Seen::default(),
            took_long: 0.0,
            answers: 0.0,
            took_least: f64::INFINITY,
            seen_at: None,
            service_time: None,
            width: 1.0,
            start: START_GUESS,
            rest_until: Time::ZERO,
            rests: false,
            fewer_since: None,
            grown_from: None,
            grown_for: None,
            refused_since: None,
            futile_at: None,
        }
    }
}

impl Sizer {
    /// Of a service whose clones were seen to take so long to start.
    pub fn of(start: Option<Span>) -> Self {
        Self { start: start.unwrap_or(START_GUESS), ..Self::default() }
    }

    /// How long clones take to start; none while that is a guess.
    pub fn start(&self) -> Option<Span> {
        Some(self.start).filter(|start| *start != START_GUESS)
    }

    /// A clone took so long from the decision to start it until it served.
    pub fn started(&mut self, took: Span) {
        let mean = self.start.as_secs_f64() + (took.as_secs_f64() - self.start.as_secs_f64()) * START_WEIGHT;
        self.start = Span((mean * 1e6) as u64);
    }

    /// The threshold H: the earlier the longer a start takes.
    pub fn threshold(&self, hurts: Span) -> Span {
        let share = REACT_IN.as_secs_f64() / (REACT_IN.as_secs_f64() + self.start.as_secs_f64());
        Span((hurts.0 as f64 * share.max(THRESHOLD_SHARE_MIN)) as u64)
    }

    /// The rest D: new clones start, and the averages show what they do.
    pub fn rest(&self) -> Span {
        Span(self.start.0 + 3 * AVERAGE_OVER.0)
    }

    /// What the edges say now.
    pub fn observe(&mut self, now: Time, clones: u32, new: Seen) {
        let before = self.seen_at.replace(now);
        // After a gap the averages are of another time.
        let past = before.map(|at| now.since(at)).filter(|gap| *gap < LOAD_GOOD_FOR);
        let gap = past.map_or(0.0, Span::as_secs_f64);
        let weight = past.map_or(1.0, |_| gap / (AVERAGE_OVER.as_secs_f64() + gap));
        let mix = |old: &mut f64, new: f64| *old += (new - *old) * weight;
        self.newest = new;
        let refuses = new.refused > REFUSED_PART * new.arrived;
        self.refused_since = refuses.then(|| self.refused_since.unwrap_or(now));
        mix(&mut self.seen.arrived, new.arrived);
        mix(&mut self.seen.refused, new.refused);
        mix(&mut self.seen.done, new.done);
        mix(&mut self.seen.in_flight, new.in_flight);
        if new.done > 0.0 {
            mix(&mut self.seen.took, new.took);
            // Few answers count little, however long it took to get them.
            let answers = new.done * gap.max(LOAD_EVERY.as_secs_f64());
            let memory = ANSWERS_MIN.max(new.done * AVERAGE_LONG_OVER.as_secs_f64());
            let weight_long = if self.answers == 0.0 { 1.0 } else { answers / (answers + memory) };
            self.took_long += (new.took - self.took_long) * weight_long;
            self.answers += answers;
        }
        if self.answers >= ANSWERS_FIRST {
            self.took_least = self.took_least.min(self.took_long);
        }
        if self.answers >= ANSWERS_MIN {
            self.learn(f64::from(clones.max(1)));
        }
    }

    /// The least that requests took is what they take without waiting. It may grow while clones have little to do.
    fn learn(&mut self, clones: f64) {
        let took = self.took_long;
        // If a burst came before there was enough to learn from, those before it say more than those that wait.
        let known = self.service_time.get_or_insert(self.took_least);
        if took < *known {
            *known = took;
        } else if self.seen.in_flight <= clones * AT_EASE {
            *known += (took - *known) * LEARN_WEIGHT;
        }
    }

    /// What comes a second: the average, or what the last reports say but for chance, if that is more.
    fn comes(&self) -> f64 {
        let chance = 2.0 * (self.newest.arrived / LOAD_EVERY.as_secs_f64()).sqrt();
        self.seen.arrived.max(self.newest.arrived - chance)
    }

    /// A part of what comes has been refused for a while, and more clones may help.
    fn refuses(&self, now: Time) -> bool {
        let same = |before: f64| (SAME..1.0 / SAME).contains(&(self.seen.arrived / before.max(1e-6)));
        self.refused_since.is_some_and(|since| now.since(since) >= REFUSED_FOR) && !self.futile_at.is_some_and(same)
    }

    /// A queue that grows is seen by Little's law before its requests are answered. Without one that law is chance.
    fn has_queue(&self, clones: f64) -> bool {
        self.seen.in_flight >= BACKLOG * clones * self.width
    }

    /// What a request that comes now will take, seconds.
    fn takes(&self, clones: f64) -> f64 {
        let Seen { in_flight, done, took, .. } = self.seen;
        match self.has_queue(clones) {
            false => self.took_long,
            true if done > 0.0 => took.max(in_flight / done),
            true => TAKES_MAX.as_secs_f64(),
        }
    }

    /// How long requests wait on average, as far as can be known.
    pub fn wait(&self, clones: u32) -> Span {
        let clones = f64::from(clones.max(1));
        // Much fewer requests than clones do not wait for each other, and one alone waits for nobody.
        let waits = self.seen.in_flight >= (clones * AT_EASE).max(ALONE);
        let wait = self.service_time.filter(|_| waits).map_or(0.0, |own| self.takes(clones) - own);
        Span((wait.clamp(0.0, TAKES_MAX.as_secs_f64()) * 1e6) as u64)
    }

    /// Whether the size is to change now. `target` is what is wanted so far, `serving` what is there.
    pub fn decide(&mut self, now: Time, size: Size, hurts: Span, target: u32, serving: u32) -> Option<Decision> {
        if size.clamp(target) != target {
            let to = size.clamp(target);
            return Some(Decision { to, why: format!("{target} -> {to} clones: its range is {size}") });
        }
        // Once new clones serve, what each does is not known until the rest is over; that much more comes may be.
        let may_follow = |last: &GrownFor| serving <= last.serving || !last.follows;
        let is_news = self.grown_for.filter(may_follow).is_some_and(|last| self.comes() > last.rate * MUCH_MORE);
        if now < self.rest_until && !is_news || size.is_fixed() || self.seen_at.is_none() {
            return None;
        }
        if std::mem::take(&mut self.rests) {
            // What requests took before is of another size.
            self.took_long = self.seen.took;
        }
        let (wait, threshold) = (self.wait(serving), self.threshold(hurts));
        if wait > threshold || self.refuses(now) {
            self.fewer_since = None;
            return self.grow(now, size, hurts, target, serving);
        }
        self.grown_from = None;
        let at_ease = wait <= Span(threshold.0 / 2) && self.seen.refused <= REFUSED_PART * self.seen.arrived;
        self.shrink(now, size, target, at_ease)
    }

    fn grow(&mut self, now: Time, size: Size, hurts: Span, target: u32, serving: u32) -> Option<Decision> {
        let Seen { done, in_flight, .. } = self.seen;
        let arrived = self.comes();
        let clones = f64::from(serving.max(1));
        let service_time = self.service_time.unwrap_or(self.took_long).max(1e-6);
        if self.did_not_help(clones, target, serving) {
            return None;
        }
        let (wait, threshold) = (self.wait(serving), self.threshold(hurts));
        // All are busy: what they do now is what they can do.
        let mut each = (done / clones).max(1e-6);
        let followed = self.grown_for.filter(|last| now < self.rest_until && serving > last.serving);
        // The averages have not seen yet what the new ones do: what one did before at least.
        each = each.max(followed.map_or(0.0, |last| last.each));
        self.width = (each * service_time).clamp(1.0, WIDTH_MAX);
        let by_rate = arrived / (each * BUSY_WANTED);
        // Who waits for an answer before asking again comes no faster than answers do: then the number of requests under way
        // says how many clones it takes to answer them in time. It may also be a queue that is left, so no more than twice.
        let keeps_up = arrived <= done * GROWING;
        let in_time = in_flight / (each * (service_time + threshold.as_secs_f64() / 2.0));
        let by_wait = if keeps_up { in_time.min(clones * 2.0) } else { 0.0 };
        let needed = by_rate.max(by_wait).ceil().min(f64::from(u32::MAX)) as u32;
        // Where nobody waits for long clones may have been idle a moment ago: then the part that is missing says how many.
        let let_in = (self.seen.arrived - self.seen.refused).max(self.seen.arrived / f64::from(GROW_MAX)).max(1e-6);
        let missing = (clones * self.seen.arrived / let_in).ceil() as u32;
        let needed = if wait > threshold { needed } else { missing.min(needed) };
        let most = target.max(1).saturating_mul(GROW_MAX);
        let to = size.clamp(needed.max(serving + 1).min(most));
        if to <= target {
            return None;
        }
        (self.rest_until, self.rests) = (now + self.rest(), true);
        let grown_for = GrownFor { rate: arrived, each, serving, follows: followed.is_some() };
        (self.grown_from, self.grown_for) = (Some(self.seen), Some(grown_for));
        let refused = match self.seen.refused {
            few if few <= REFUSED_PART * arrived => String::new(),
            many => format!(", {many:.0} a second are refused"),
        };
        let why = format!(
            "{target} -> {to} clones: requests wait {} (acts at {}, {} hurt){refused}; {arrived:.0} come a second, a clone \
             does {each:.0}; a start takes {}, so nothing changes for {}",
            round(wait),
            round(threshold),
            format_span(hurts),
            round(self.start),
            round(self.rest())
        );
        Some(Decision { to, why })
    }

    /// More clones and the same wait: it is not them that requests wait for. What they take now is what they take.
    fn did_not_help(&mut self, clones: f64, target: u32, serving: u32) -> bool {
        let Some(before) = self.grown_from.filter(|_| serving >= target) else { return false };
        let as_before = |now: f64, before: f64| now < before / SAME;
        // Those who are let in wait no longer for it that more are refused: then it is answers that tell.
        let more_done = before.refused > 0.0 && !as_before(self.seen.done, before.done);
        let same = self.seen.took > before.took * SAME && as_before(self.seen.arrived, before.arrived) && !more_done;
        if same {
            self.futile_at = Some(self.seen.arrived);
            self.service_time = Some(self.took_long.max(self.seen.took));
            self.width = (self.seen.in_flight / clones).clamp(1.0, WIDTH_MAX);
            self.grown_from = None;
        }
        same
    }

    fn shrink(&mut self, now: Time, size: Size, target: u32, at_ease: bool) -> Option<Decision> {
        // Requests that are being answered, not waiting (Little's law): no more than there are, whatever one is thought to take and
        // however many ended in the last moment. One after the other is work for one clone, and two are at ease with it.
        let answered = (self.seen.done * self.service_time.unwrap_or(0.0)).min(self.seen.in_flight / ALONE);
        let busy = |clones: u32| answered / (f64::from(clones.max(1)) * self.width);
        // Who has a request under way for each that the fewer could do would soon wait.
        let crowded = self.seen.in_flight / self.width;
        if target <= size.min || !at_ease || busy(target - 1) > BUSY_LOW || crowded > f64::from(target - 1) {
            self.fewer_since = None;
            return None;
        }
        let since = *self.fewer_since.get_or_insert(now);
        let patience = Span(self.rest().0 * SHRINK_RESTS).max(SHRINK_AFTER_MIN);
        if now.since(since) < patience {
            return None;
        }
        let enough = (answered / (BUSY_LOW * self.width)).max(crowded).ceil() as u32;
        let to = size.clamp(enough.max(target.div_ceil(2)).min(target - 1));
        (self.fewer_since, self.rest_until, self.rests) = (None, now + self.rest(), true);
        self.grown_for = None;
        let percent = busy(to) * 100.0;
        let why = format!(
            "{target} -> {to} clones: for {} the fewer would have been busy to {percent:.0} % and nobody would have waited",
            round(patience)
        );
        Some(Decision { to, why })
    }

    /// When `decide` may have something new to say without anything having happened.
    pub fn rests_until(&self) -> Time {
        self.rest_until
    }
}

/// For people: no microseconds.
pub(crate) fn round(span: Span) -> String {
    match span.as_millis() {
        0 => "0ms".into(),
        ms @ 1..10_000 => format!("{ms}ms"),
        ms => format!("{}s", ms / 1000),
    }
}

#[cfg(test)]
#[path = "sizing_tests.rs"]
mod tests;
