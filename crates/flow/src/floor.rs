//! For whom there is too much to do, where what comes waits in a queue for too long: a floor below which it had better not come.
//! It rises by one priority as long as a queue stands, but never above all that comes: so what matters more finds the queue
//! short, and where all matter the same nobody is turned away. Who is asked decides where it is ([`Floor`]), who asks
//! remembers for a moment what it was told ([`Told`]), and refuses what lies below before it sends anything.

use base::{Priority, Span, Time};

use crate::limits::{FLOOR_MOVES_EVERY, FLOOR_TOLD_FOR, QUEUE_MIN};
use crate::overload::Overload;

#[derive(Clone, Debug)]
pub struct Floor {
    /// Whoever waits for longer waits for too long.
    target: Span,
    overload: Overload,
    /// What the last one waited.
    wait: Span,
    /// What matters less than this had better not come while waits are long.
    at: u8,
    moved_at: Time,
    /// Since when all have waited for too long, and how many: a queue stands. A few late messages are none (CoDel's distinction).
    long: Option<(Time, u32)>,
    /// Priorities that came since the floor moved, and in the time before: a bit for each.
    came: [u8; 2],
    noted_at: Time,
}

impl Floor {
    pub fn new(target: Span) -> Self {
        Self {
            target,
            overload: Overload::new(target),
            wait: Span::ZERO,
            at: 0,
            moved_at: Time::ZERO,
            long: None,
            came: [0; 2],
            noted_at: Time::ZERO,
        }
    }

    /// One of this priority was taken when one had to wait for so long.
    pub fn note(&mut self, now: Time, waited: Span, priority: Priority) {
        self.overload.waited(now, waited);
        // Where nobody has come for a while nobody was in a queue.
        let goes_on = now.since(self.noted_at) < FLOOR_TOLD_FOR;
        let (since, count) = self.long.filter(|_| goes_on).unwrap_or((now, 0));
        self.long = (waited > self.target).then_some((since, count + 1));
        (self.wait, self.noted_at) = (waited, now);
        self.came[0] |= 1 << priority.0;
        let is_first = self.at == 0 && self.stands(now);
        if now.since(self.moved_at) >= FLOOR_MOVES_EVERY || is_first {
            self.step(now);
        }
    }

    /// Nobody has come: who is asked nothing has no queue.
    pub fn rest(&mut self, now: Time) {
        self.overload.waited(now, Span::ZERO);
    }

    pub fn overload(&self) -> &Overload {
        &self.overload
    }

    fn stands(&self, now: Time) -> bool {
        self.long.is_some_and(|(since, count)| count >= QUEUE_MIN && now.since(since) >= self.target)
    }

    /// One step up if a queue stands all the same, but never above all that comes; one step down when there is no overload any
    /// more.
    fn step(&mut self, now: Time) {
        self.moved_at = now;
        let came = self.came[0] | self.came[1];
        self.came = [0, self.came[0]];
        if !self.overload.is_up() {
            self.at = self.at.saturating_sub(1);
        }
        self.at = self.at.min(came.checked_ilog2().unwrap_or(0) as u8);
        if self.stands(now) {
            let taken = came >> self.at << self.at;
            // Without the lowest of those that are taken, unless they are all the same.
            let higher = taken & taken.wrapping_sub(1);
            self.at = if higher == 0 { self.at } else { higher.trailing_zeros() as u8 };
        }
    }

    /// What matters less had better not come at this moment; 0 if all may. As soon as the queue is short, or nobody comes, there
    /// is room for all: what the higher ones leave is used.
    pub fn at(&self, now: Time) -> u8 {
        let is_long = self.wait.times(2) >= self.target && now.since(self.noted_at) < FLOOR_TOLD_FOR;
        if is_long { self.at } else { 0 }
    }
}

/// What somebody said of whom it turns away, as those who ask it remember it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told(Option<(Time, Priority)>);

impl Told {
    pub fn heard(&mut self, now: Time, floor: u32) {
        let floor = u8::try_from(floor).ok().filter(|floor| (1..Priority::HIGHEST.0).contains(floor));
        self.0 = floor.map(|floor| (now, Priority(floor)));
    }

    /// Soon whoever asks asks again, as it may be over.
    pub fn turns_away(&self, now: Time, priority: Priority) -> bool {
        self.0.is_some_and(|(at, floor)| priority < floor && now.since(at) < FLOOR_TOLD_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Span = Span::millis(20);
    const LONG: Span = Span(TARGET.0 + 1_000);

    /// For a second, one of each of these priorities each millisecond, all of which waited so long, but for those that stubs
    /// do not send. What came in its last tenth.
    fn second(floor: &mut Floor, now: &mut Time, waited: Span, priorities: &[u8]) -> Vec<u8> {
        let mut came = Vec::new();
        for ms in 0..1_000 {
            *now = *now + Span::millis(1);
            for priority in priorities {
                if *priority < floor.at(*now) {
                    continue;
                }
                floor.note(*now, waited, Priority(*priority));
                if ms >= 900 && !came.contains(priority) {
                    came.push(*priority);
                }
            }
        }
        came
    }

    #[test]
    fn who_matters_least_is_told_first_not_to_come_and_never_all_of_them() {
        let (mut floor, mut now) = (Floor::new(TARGET), Time(1_000_000));
        assert_eq!(second(&mut floor, &mut now, Span::ZERO, &[1, 4, 6]), [1, 4, 6]);
        // One that comes late raises nothing; a queue that stands does so soon, by one.
        now = now + Span::millis(1);
        floor.note(now, LONG, Priority(4));
        assert_eq!(floor.at(now), 0);
        for _ in 0..21 {
            now = now + Span::millis(1);
            floor.note(now, LONG, Priority(4));
        }
        assert_eq!(floor.at(now), 4);
        assert_eq!(second(&mut floor, &mut now, LONG, &[1, 4, 6]), [6]);
        assert!(floor.overload().is_up());
        // Nobody has come for a while: whoever comes now is served.
        now = now + FLOOR_TOLD_FOR;
        assert_eq!(floor.at(now), 0);
        // The highest has gone: of those that come now somebody is served.
        assert_eq!(second(&mut floor, &mut now, LONG, &[1, 4]), [4]);
        // It is over.
        second(&mut floor, &mut now, Span::ZERO, &[1, 4]);
        assert_eq!(second(&mut floor, &mut now, Span::ZERO, &[1, 4]), [1, 4]);
        assert!(!floor.overload().is_up() && floor.at(now) == 0);
    }

    #[test]
    fn late_messages_are_no_queue() {
        let (mut floor, mut now) = (Floor::new(TARGET), Time(1_000_000));
        for n in 0..1_000_u32 {
            // Some of many, and then for a time all, but seldom any.
            now = now + Span::millis(if n < 500 { 7 } else { 150 });
            let waited = if n >= 500 || n % 9 != 0 { LONG } else { Span::millis(1) };
            floor.note(now, waited, Priority((n % 5) as u8));
            assert_eq!(floor.at(now), 0, "{n}");
        }
    }

    #[test]
    fn where_all_matter_the_same_all_come() {
        for priority in [0, 4, 6] {
            let (mut floor, mut now) = (Floor::new(TARGET), Time(1_000_000));
            assert_eq!(second(&mut floor, &mut now, LONG, &[priority]), [priority]);
        }
    }

    #[test]
    fn what_was_said_is_believed_for_a_moment() {
        let (mut told, now) = (Told::default(), Time(1_000_000));
        assert!(!told.turns_away(now, Priority(0)));
        told.heard(now, 4);
        assert!(told.turns_away(now, Priority(3)) && !told.turns_away(now, Priority(4)));
        assert!(!told.turns_away(now + FLOOR_TOLD_FOR, Priority(3)));
        told.heard(now, 0);
        assert!(!told.turns_away(now, Priority(0)));
        for no_floor in [7, 9_999] {
            told.heard(now, no_floor);
            assert!(!told.turns_away(now, Priority(0)), "nobody says so of what nodes do by themselves");
        }
    }
}
