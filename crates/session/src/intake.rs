//! What comes to a brick: how long it lay in queues, and for whom the brick has too much to do while that is too long. The queue
//! itself is in sockets: a brick serves all that it takes up, at once. But its answers say below which priority it is better
//! not asked ([`flow::floor`]), and stubs refuse that before they send anything; so what matters more finds the queue short.
//! Where all matter the same nobody is refused: then windows and budgets alone decide (SSM 3.4). (A brick does not refuse by
//! itself: of a write that one brick refuses and another one stores nobody could say at once what became of it.)

use base::{Priority, Span, Time};
use flow::Histogram;
use flow::floor::Floor;
use flow::histogram::{Powers, percentile};
use flow::stage::Shown;

use super::limits::INTAKE_WAIT;

pub(super) struct Intake {
    floor: Floor,
    waits: Histogram,
    waits_all: Powers,
    taken: u64,
}

impl Intake {
    pub fn new() -> Self {
        Self { floor: Floor::new(INTAKE_WAIT), waits: Histogram::default(), waits_all: Powers::default(), taken: 0 }
    }

    /// A request of a client has lain in queues for so long.
    pub fn note(&mut self, now: Time, waited: Span, priority: Priority) {
        self.waits.note(waited);
        self.floor.note(now, waited, priority);
        self.taken += 1;
    }

    /// What matters less had better not come at this moment; 0 if all may.
    pub fn floor(&self, now: Time) -> u8 {
        self.floor.at(now)
    }

    /// What to show of the time since the last look. Nothing is ever under way at a brick: it answers at once.
    pub fn show(&mut self, now: Time) -> Shown {
        let of = |percent| percentile(self.waits.counts(), percent);
        let (wait_p50_us, wait_p99_us) = (of(50), of(99));
        if self.waits.counts().iter().all(|count| *count == 0) {
            self.floor.rest(now);
        }
        self.waits.clear_into(&mut self.waits_all);
        Shown {
            is_overloaded: self.floor.overload().is_up(),
            started: self.taken,
            overloads: self.floor.overload().rises(),
            wait_p50_us,
            wait_p99_us,
            waits: self.waits_all,
            ..Shown::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_are_shown_and_over_when_nobody_comes() {
        let (mut intake, long) = (Intake::new(), Span(INTAKE_WAIT.0 + 1_000));
        let at = |ms| Time(1_000_000) + Span::millis(ms);
        (0..100).for_each(|ms| intake.note(at(ms), long, Priority((ms % 2) as u8)));
        assert_eq!(intake.floor(at(99)), 1);
        let shown = intake.show(at(100));
        assert!(shown.is_overloaded && shown.wait_p99_us >= long.0 && shown.started == 100, "{shown:?}");
        assert!(!intake.show(at(1_100)).is_overloaded);
    }
}
