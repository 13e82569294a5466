//! A stage (SEDA; Ninja 3.2): a bounded queue in front of a handler, batches, and a limit of how many may be in the
//! handler, which adapts ([`Limit`]). It measures how long things wait and how long they are served; when waits pass its target
//! it is *overloaded* ([`Overload`]), keeps its queue short and has no place for more. Its owner carries things to the
//! handler and says when they are done; the stage has no thread and no clock.

use std::collections::VecDeque;

use base::{Span, Time};

use crate::histogram::{Histogram, Powers, percentile};
use crate::limit::{Bounds, Limit, Seen, log_us};
use crate::overload::Overload;

#[derive(Debug)]
pub struct Stage<T> {
    shape: Shape,
    queue: VecDeque<(Time, T)>,
    /// Started since the batch began.
    started: u32,
    under_way: u32,
    limit: Limit,
    seen: Seen,
    overload: Overload,
    /// In this batch.
    has_refused: bool,
    figures: Figures,
}

/// What a stage is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Pieces of work that are started in one go at most; then others on the same thread have their turn.
    pub batch: u32,
    /// Waiting for longer than this is overload.
    pub wait_target: Span,
    /// Pieces of work that may wait at most, however short the wait is.
    pub queue_max: usize,
    pub limit: Bounds,
}

/// What a stage shows of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    pub waiting: u64,
    pub under_way: u64,
    /// Pieces of work that may be under way.
    pub limit: u64,
    pub is_overloaded: bool,
    /// Since it began.
    pub started: u64,
    pub refused: u64,
    /// How often it became overloaded.
    pub overloads: u64,
    /// Microseconds, since the last look.
    pub wait_p50_us: u64,
    pub wait_p99_us: u64,
    pub service_p50_us: u64,
    pub service_p99_us: u64,
    /// Since it began.
    pub waits: Powers,
    pub services: Powers,
}

impl Shown {
    /// What goes up and down, by name.
    pub fn gauges(&self) -> [(&'static str, u64); 8] {
        [
            ("waiting", self.waiting),
            ("under_way", self.under_way),
            ("limit", self.limit),
            ("overloaded", self.is_overloaded.into()),
            ("wait_p50_us", self.wait_p50_us),
            ("wait_p99_us", self.wait_p99_us),
            ("service_p50_us", self.service_p50_us),
            ("service_p99_us", self.service_p99_us),
        ]
    }

    /// What is counted since the stage began.
    pub fn totals(&self) -> [(&'static str, u64); 3] {
        [("started_total", self.started), ("refused_total", self.refused), ("overloads_total", self.overloads)]
    }
}

#[derive(Clone, Debug, Default)]
struct Figures {
    started: u64,
    refused: u64,
    wait: Histogram,
    service: Histogram,
    /// But for what the two above have.
    waits: Powers,
    services: Powers,
}

/// How something ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Done,
    /// Refused or timed out further down: there was too much of it.
    Overload,
    /// For a reason that says nothing about load.
    Gone,
}

impl<T> Stage<T> {
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            queue: VecDeque::new(),
            started: 0,
            under_way: 0,
            limit: Limit::new(shape.limit),
            seen: Seen::default(),
            overload: Overload::new(shape.wait_target),
            has_refused: false,
            figures: Figures::default(),
        }
    }

    /// Is there a place for one more? If not, refuse it, and say so by [`Stage::refused`]. While the stage is overloaded,
    /// only so many wait as fit into a part of what is under way: all others would wait for nothing.
    pub fn has_place(&self) -> bool {
        self.has_place_below(0)
    }

    /// The same where this many priorities above it come, too: for each of them half of the places are kept free.
    pub fn has_place_below(&self, higher: u32) -> bool {
        let most =
            if self.overload.is_up() { (self.limit.size() / OVERLOADED_QUEUE_PART) as usize } else { usize::MAX };
        self.queue.len() < most.min(self.shape.queue_max) >> higher
    }

    pub fn refused(&mut self) {
        self.has_refused = true;
        self.figures.refused += 1;
        self.seen.no_room += 1;
    }

    /// Takes what came at `since`: gives it back if it is to be started now, else it waits for [`Stage::next`].
    pub fn enter(&mut self, now: Time, since: Time, item: T) -> Option<T> {
        if self.queue.is_empty() && self.may_start() {
            self.start(now, since);
            return Some(item);
        }
        self.queue.push_back((since, item));
        None
    }

    /// A new batch begins.
    pub fn new_batch(&mut self, now: Time) {
        self.started = 0;
        if std::mem::take(&mut self.has_refused) {
            self.overload.refused(now);
        }
        // An empty queue is a wait of nothing; else its head has waited for so long at least.
        let wait = self.queue.front().map_or(Span::ZERO, |(since, _)| now.since(*since));
        self.overload.waited(now, wait);
        if self.limit.is_due(now, &self.seen) {
            self.limit.learn(now, &self.seen);
            self.seen = Seen { under_way_max: self.under_way, ..Seen::default() };
        }
    }

    /// The next one that is to be started, and when it came.
    pub fn next(&mut self, now: Time) -> Option<(Time, T)> {
        if !self.may_start() {
            self.seen.no_room += u64::from(!self.queue.is_empty() && !self.has_room());
            return None;
        }
        let (since, item) = self.queue.pop_front()?;
        self.start(now, since);
        Some((since, item))
    }

    /// What was started at some moment has ended now.
    pub fn ended(&mut self, now: Time, started: Time, end: End) {
        self.under_way = self.under_way.saturating_sub(1);
        match end {
            End::Done => {
                let took = now.since(started);
                self.figures.service.note(took);
                self.seen.done += 1;
                self.seen.took_log += log_us(took);
            }
            End::Overload => self.seen.overloads += 1,
            End::Gone => (),
        }
    }

    /// Something waits, and could be started once a new batch begins.
    pub fn wants_batch(&self) -> bool {
        !self.queue.is_empty() && self.has_room()
    }

    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub fn is_overloaded(&self) -> bool {
        self.overload.is_up()
    }

    /// What to show of the time since the last look.
    pub fn show(&mut self) -> Shown {
        let Figures { started, refused, wait, service, waits, services } = &mut self.figures;
        let of = |histogram: &Histogram, percent| percentile(histogram.counts(), percent);
        let mut shown = Shown {
            waiting: self.queue.len() as u64,
            under_way: self.under_way.into(),
            limit: self.limit.size().into(),
            is_overloaded: self.overload.is_up(),
            started: *started,
            refused: *refused,
            overloads: self.overload.rises(),
            wait_p50_us: of(wait, 50),
            wait_p99_us: of(wait, 99),
            service_p50_us: of(service, 50),
            service_p99_us: of(service, 99),
            ..Shown::default()
        };
        wait.clear_into(waits);
        service.clear_into(services);
        (shown.waits, shown.services) = (*waits, *services);
        shown
    }

    fn has_room(&self) -> bool {
        self.under_way < self.limit.size_now()
    }

    fn may_start(&self) -> bool {
        self.started < self.shape.batch && self.has_room()
    }

    fn start(&mut self, now: Time, since: Time) {
        self.started += 1;
        self.under_way += 1;
        self.seen.under_way_max = self.seen.under_way_max.max(self.under_way);
        self.figures.started += 1;
        self.figures.wait.note(now.since(since));
    }
}

/// In overload, one in so many of what may be under way waits.
const OVERLOADED_QUEUE_PART: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        batch: 4,
        wait_target: Span::millis(10),
        queue_max: 100,
        limit: Bounds { first: 6, min: 2, max: 64, tolerance_percent: 200, slack: Span::millis(1) },
    };

    /// A stage that so many have come to, all at this moment.
    fn entered(now: Time, count: u32) -> (Stage<u32>, Vec<u32>) {
        let mut stage = Stage::new(SHAPE);
        let started = (0..count).filter_map(|n| stage.enter(now, now, n)).collect();
        (stage, started)
    }

    fn rest_of_batch(stage: &mut Stage<u32>, now: Time) -> Vec<u32> {
        stage.new_batch(now);
        std::iter::from_fn(|| stage.next(now).map(|(_, n)| n)).collect()
    }

    #[test]
    fn a_batch_starts_so_much_and_no_more_than_the_limit_are_under_way() {
        let now = Time(1_000_000);
        let (mut stage, started) = entered(now, 9);
        assert_eq!(started, [0, 1, 2, 3], "a batch");
        assert!(stage.wants_batch());
        assert_eq!(rest_of_batch(&mut stage, now), [4, 5], "the limit");
        assert!(!stage.wants_batch() && rest_of_batch(&mut stage, now).is_empty());
        stage.ended(now, now, End::Done);
        assert!(stage.wants_batch());
        assert_eq!(rest_of_batch(&mut stage, now), [6]);
        assert_eq!(stage.waiting(), 2);
    }

    #[test]
    fn who_comes_later_waits_behind_those_who_wait() {
        let now = Time(1_000_000);
        let (mut stage, _) = entered(now, 9);
        stage.new_batch(now);
        assert_eq!(stage.enter(now, now, 9), None, "though the batch has room");
        assert_eq!(stage.next(now), Some((now, 4)));
    }

    #[test]
    fn a_standing_queue_is_overload_and_keeps_the_queue_short() {
        let now = Time(1_000_000);
        let (mut stage, _) = entered(now, 30);
        assert!(stage.has_place(), "a burst may wait");
        stage.new_batch(now + Span::millis(10));
        assert!(!stage.is_overloaded());
        stage.new_batch(now + Span::millis(11));
        assert!(stage.is_overloaded() && !stage.has_place());
        while stage.waiting() > 0 {
            let at = now + Span::millis(12);
            rest_of_batch(&mut stage, at).iter().for_each(|_| stage.ended(at, at, End::Done));
        }
        assert!(stage.is_overloaded() && stage.has_place());
        let calm = now + Span::millis(12) + crate::limits::CALM_FOR;
        stage.refused();
        stage.new_batch(calm);
        assert!(stage.is_overloaded(), "who is refused is why nobody waits");
        stage.new_batch(calm + crate::limits::CALM_FOR);
        assert!(!stage.is_overloaded());
        let (stage, _) = entered(now, 4 + SHAPE.queue_max as u32);
        assert!(!stage.has_place(), "there is an end to what may wait");
    }

    #[test]
    fn what_it_shows_is_of_the_time_since_the_last_look() {
        let now = Time(1_000_000);
        let (mut stage, _) = entered(now, 5);
        let later = now + Span::millis(3);
        (0..4).for_each(|_| stage.ended(later, now, End::Done));
        stage.refused();
        rest_of_batch(&mut stage, later);
        let shown = stage.show();
        assert_eq!((shown.started, shown.refused, shown.under_way, shown.waiting), (5, 1, 1, 0));
        assert!((3_000..3_200).contains(&shown.service_p50_us), "{shown:?}");
        assert!((3_000..3_200).contains(&shown.wait_p99_us) && shown.wait_p50_us == 0, "{shown:?}");
        let next = stage.show();
        assert_eq!(next.service_p99_us, 0);
        let all = |powers: &Powers| powers.below().last().map(|(_, count)| count);
        assert_eq!((all(&next.waits), all(&next.services), next.services.sum_us()), (Some(5), Some(4), 12_000));
    }
}
