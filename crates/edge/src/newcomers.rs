//! Connections that came to a door after its clients were told to go, by when they came. Each has one request. Who connects when the door
//! has closed waits for the next program, and that for the last of these: so the door closes when none is in the middle of something long.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Those that came within this time are told apart no further.
const TOGETHER: Duration = Duration::from_millis(20);

/// By when the first of them came, and as many times as there are of them.
#[derive(Debug, Default)]
pub struct Newcomers(Mutex<Vec<(Instant, Arc<()>)>>);

/// One that is there until this is dropped.
#[derive(Debug)]
pub struct Newcomer(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl Newcomers {
    pub fn came(&self, now: Instant) -> Newcomer {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.last().filter(|(at, _)| now.saturating_duration_since(*at) < TOGETHER);
        Newcomer(last.map(|(_, of)| Arc::clone(of)).unwrap_or_else(|| {
            let of = Arc::default();
            all.push((now, Arc::clone(&of)));
            of
        }))
    }

    /// Is one there that came so long ago?
    pub fn has_older(&self, now: Instant, age: Duration) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, of)| Arc::strong_count(of) > 1);
        all.first().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_stays_is_older_than_those_that_come_and_go() {
        let (newcomers, start) = (Newcomers::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let age = Duration::from_millis(100);
        for ms in (0..500).step_by(5) {
            let _short = newcomers.came(at(ms));
            assert!(!newcomers.has_older(at(ms + 20), age));
        }
        let long = newcomers.came(at(500));
        let _young = newcomers.came(at(590));
        assert!(!newcomers.has_older(at(599), age) && newcomers.has_older(at(600), age));
        drop(long);
        assert!(!newcomers.has_older(at(600), age));
        assert_eq!(newcomers.0.lock().unwrap().len(), 1, "nothing is left of those that are gone");
    }
}
