//! What comes to a brick: how long it lay in queues, and for whom the brick has too much to do while that is too long. The queue
//! itself is in sockets: a brick serves all that it takes up, at once. But its answers say below which priority it is better
//! not asked, and stubs refuse that before they send anything; so what matters more finds the queue short. Where all matter the
//! same nobody is refused: then windows and budgets alone decide (SSM 3.4). (A brick does not refuse by itself: of a write that one
//! brick refuses and another one stores nobody could say at once what became of it.)

use base::{Priority, Span, Time};
use flow::Histogram;
use flow::histogram::{Powers, percentile};
use flow::overload::Overload;
use flow::stage::Shown;

use super::limits::{FLOOR_MOVES_EVERY, FLOOR_TOLD_FOR, INTAKE_WAIT, QUEUE_MIN};

pub(super) struct Intake {
    overload: Overload,
    /// What the last request waited.
    wait: Span,
    /// What matters less than this had better not come while waits are long.
    floor: u8,
    moved_at: Time,
    /// Since when all have waited for too long, and how many: a queue stands. A few late messages are none (CoDel's distinction).
    long: Option<(Time, u32)>,
    /// Priorities that came since the floor moved, and in the time before: a bit for each.
    came: [u8; 2],
    waits: Histogram,
    waits_all: Powers,
    taken: u64,
    noted_at: Time,
}

impl Intake {
    pub fn new() -> Self {
        Self {
            overload: Overload::new(INTAKE_WAIT),
            wait: Span::ZERO,
            floor: 0,
            moved_at: Time::ZERO,
            long: None,
            came: [0; 2],
            waits: Histogram::default(),
            waits_all: Powers::default(),
            taken: 0,
            noted_at: Time::ZERO,
        }
    }

    /// A request of a client has lain in queues for so long.
    pub fn note(&mut self, now: Time, waited: Span, priority: Priority) {
        self.waits.note(waited);
        self.overload.waited(now, waited);
        // Where nobody has come for a while nobody was in a queue.
        let goes_on = now.since(self.noted_at) < FLOOR_TOLD_FOR;
        let (since, count) = self.long.filter(|_| goes_on).unwrap_or((now, 0));
        self.long = (waited > INTAKE_WAIT).then_some((since, count + 1));
        (self.wait, self.noted_at) = (waited, now);
        self.taken += 1;
        self.came[0] |= 1 << priority.0;
        let is_first = self.floor == 0 && self.stands(now);
        if now.since(self.moved_at) >= FLOOR_MOVES_EVERY || is_first {
            self.move_floor(now);
        }
    }

    fn stands(&self, now: Time) -> bool {
        self.long.is_some_and(|(since, count)| count >= QUEUE_MIN && now.since(since) >= INTAKE_WAIT)
    }

    /// One step up if a queue stands all the same, but never above all that comes; one step down when there is no overload any
    /// more.
    fn move_floor(&mut self, now: Time) {
        self.moved_at = now;
        let came = self.came[0] | self.came[1];
        self.came = [0, self.came[0]];
        if !self.overload.is_up() {
            self.floor = self.floor.saturating_sub(1);
        }
        self.floor = self.floor.min(came.checked_ilog2().unwrap_or(0) as u8);
        if self.stands(now) {
            let taken = came >> self.floor << self.floor;
            // Without the lowest of those that are taken, unless they are all the same.
            let higher = taken & taken.wrapping_sub(1);
            self.floor = if higher == 0 { self.floor } else { higher.trailing_zeros() as u8 };
        }
    }

    /// What matters less had better not come at this moment; 0 if all may. As soon as the queue is short, or nobody comes, there
    /// is room for all: what the higher ones leave is used.
    pub fn floor(&self, now: Time) -> u8 {
        let is_long = self.wait.times(2) >= INTAKE_WAIT && now.since(self.noted_at) < FLOOR_TOLD_FOR;
        if is_long { self.floor } else { 0 }
    }

    /// What to show of the time since the last look. Nothing is ever under way at a brick: it answers at once.
    pub fn show(&mut self, now: Time) -> Shown {
        let of = |percent| percentile(self.waits.counts(), percent);
        let (wait_p50_us, wait_p99_us) = (of(50), of(99));
        if self.waits.counts().iter().all(|count| *count == 0) {
            // Who is asked nothing has no queue.
            self.overload.waited(now, Span::ZERO);
        }
        self.waits.clear_into(&mut self.waits_all);
        Shown {
            is_overloaded: self.overload.is_up(),
            started: self.taken,
            overloads: self.overload.rises(),
            wait_p50_us,
            wait_p99_us,
            waits: self.waits_all,
            ..Shown::default()
        }
    }
}

/// What a brick said of whom it turns away, as its stubs remember it.
#[derive(Clone, Copy, Default)]
pub(super) struct Floor(Option<(Time, Priority)>);

impl Floor {
    pub fn heard(&mut self, now: Time, floor: u32) {
        let floor = u8::try_from(floor).ok().filter(|floor| (1..Priority::HIGHEST.0).contains(floor));
        self.0 = floor.map(|floor| (now, Priority(floor)));
    }

    /// Soon the stub asks again, as it may be over.
    pub fn turns_away(&self, now: Time, priority: Priority) -> bool {
        self.0.is_some_and(|(at, floor)| priority < floor && now.since(at) < FLOOR_TOLD_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Span = Span(INTAKE_WAIT.0 + 1_000);

    /// For a second, one of each of these priorities each millisecond, all of which waited so long, but for those that stubs
    /// do not send. What came in its last tenth.
    fn second(intake: &mut Intake, now: &mut Time, waited: Span, priorities: &[u8]) -> Vec<u8> {
        let mut came = Vec::new();
        for ms in 0..1_000 {
            *now = *now + Span::millis(1);
            for priority in priorities {
                if *priority < intake.floor(*now) {
                    continue;
                }
                intake.note(*now, waited, Priority(*priority));
                if ms >= 900 && !came.contains(priority) {
                    came.push(*priority);
                }
            }
        }
        came
    }

    #[test]
    fn who_matters_least_is_told_first_not_to_come_and_never_all_of_them() {
        let (mut intake, mut now) = (Intake::new(), Time(1_000_000));
        assert_eq!(second(&mut intake, &mut now, Span::ZERO, &[1, 4, 6]), [1, 4, 6]);
        // One that comes late raises nothing; a queue that stands does so soon, by one.
        now = now + Span::millis(1);
        intake.note(now, LONG, Priority(4));
        assert_eq!(intake.floor(now), 0);
        for _ in 0..21 {
            now = now + Span::millis(1);
            intake.note(now, LONG, Priority(4));
        }
        assert_eq!(intake.floor(now), 4);
        assert_eq!(second(&mut intake, &mut now, LONG, &[1, 4, 6]), [6]);
        let shown = intake.show(now);
        assert!(shown.is_overloaded && shown.wait_p99_us >= LONG.0, "{shown:?}");
        // Nobody has come for a while: whoever comes now is served.
        now = now + FLOOR_TOLD_FOR;
        assert_eq!(intake.floor(now), 0);
        // The highest has gone: of those that come now somebody is served.
        assert_eq!(second(&mut intake, &mut now, LONG, &[1, 4]), [4]);
        // It is over.
        second(&mut intake, &mut now, Span::ZERO, &[1, 4]);
        assert_eq!(second(&mut intake, &mut now, Span::ZERO, &[1, 4]), [1, 4]);
        assert!(!intake.show(now).is_overloaded && intake.floor(now) == 0);
    }

    #[test]
    fn late_messages_are_no_queue() {
        let (mut intake, mut now) = (Intake::new(), Time(1_000_000));
        for n in 0..1_000_u32 {
            // Some of many, and then for a time all, but seldom any.
            now = now + Span::millis(if n < 500 { 7 } else { 150 });
            let waited = if n >= 500 || n % 9 != 0 { LONG } else { Span::millis(1) };
            intake.note(now, waited, Priority((n % 5) as u8));
            assert_eq!(intake.floor(now), 0, "{n}");
        }
    }

    #[test]
    fn where_all_matter_the_same_all_come() {
        for priority in [0, 4, 6] {
            let (mut intake, mut now) = (Intake::new(), Time(1_000_000));
            assert_eq!(second(&mut intake, &mut now, LONG, &[priority]), [priority]);
        }
    }

    #[test]
    fn what_a_brick_said_is_believed_for_a_moment() {
        let (mut floor, now) = (Floor::default(), Time(1_000_000));
        assert!(!floor.turns_away(now, Priority(0)));
        floor.heard(now, 4);
        assert!(floor.turns_away(now, Priority(3)) && !floor.turns_away(now, Priority(4)));
        assert!(!floor.turns_away(now + FLOOR_TOLD_FOR, Priority(3)));
        floor.heard(now, 0);
        assert!(!floor.turns_away(now, Priority(0)));
        for no_floor in [7, 9_999] {
            floor.heard(now, no_floor);
            assert!(!floor.turns_away(now, Priority(0)), "no brick says so of what nodes do by themselves");
        }
    }
}
