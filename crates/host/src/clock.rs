//! The machine's clock: the one place where time comes in. What is safe by time, leases above all, is counted by it, so it goes on while
//! the machine is suspended: a laptop that wakes up after an hour must not believe a lease of a second. `Instant` stands still there.
//!
//! A virtual machine that its host freezes has no clock that goes on; the machines below the water live with one that stood still, too
//! (`sim` suspends nodes so), except for what `docs/guide/what-survives-what.md` says.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::{Now, Span, Time};
use rustix::time::{ClockId, clock_gettime};

/// Time of a machine starts here, so that "a moment ago" is never before zero.
const START: Duration = Duration::from_secs(3600);
/// A sleep stands still while the machine is suspended: after so long one looks again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
pub struct Clock {
    read: fn() -> Duration,
    start: Duration,
}

impl Clock {
    pub fn new() -> Self {
        Self::of(since_boot)
    }

    fn of(read: fn() -> Duration) -> Self {
        Self { read, start: read() }
    }

    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let passed = (self.read)().saturating_sub(self.start);
        Now { mono: Time(Span::from(passed + START).0), wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX) }
    }

    /// How long to sleep before one looks whether that moment has come: no time if it has.
    pub fn wait(&self, at: Time) -> Duration {
        Duration::from_micros(at.since(self.now().mono).as_micros()).min(LOOK_AGAIN)
    }
}

/// Also while the machine was suspended.
fn since_boot() -> Duration {
    let read = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(read.tv_sec).unwrap_or(0), u32::try_from(read.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static READ: Cell<Duration> = const { Cell::new(Duration::from_secs(5)) };
    }

    fn ahead(by: Duration) {
        READ.with(|read| read.set(read.get() + by));
    }

    #[test]
    fn a_lease_has_ended_when_the_machine_wakes_up_and_its_timer_is_due() {
        let clock = Clock::of(|| READ.with(Cell::get));
        let until = clock.now().mono + Span::secs(1);
        ahead(Duration::from_millis(400));
        assert!(clock.now().mono < until);
        assert_eq!(clock.wait(until), Duration::from_millis(600));
        // Here it was suspended: a sleep that was begun before goes on for what was left of it.
        ahead(Duration::from_secs(3_600));
        assert!(clock.now().mono > until, "whoever looks now does not believe it");
        assert_eq!(clock.wait(until), Duration::ZERO);
        assert_eq!(clock.wait(Time::NEVER), LOOK_AGAIN, "and no sleep is so long that nobody looks");
        assert!(clock.now().mono.0 >= Span::from(START).0);
    }

    #[test]
    fn it_counts_what_the_kernel_calls_the_time_since_it_was_started() {
        let uptime = || -> f64 {
            let said = std::fs::read_to_string("/proc/uptime").unwrap();
            said.split(' ').next().unwrap().parse().unwrap()
        };
        let (before, read, after) = (uptime(), since_boot().as_secs_f64(), uptime());
        // It is said in hundredths of a second.
        assert!(before - 0.02 <= read && read <= after + 0.02, "{before} {read} {after}");
        let clock = Clock::new();
        let first = clock.now();
        assert!(clock.now().mono >= first.mono && first.wall_ms > 1_700_000_000_000);
    }
}
