//! Waiting for a condition with a deadline. A test that needs luck is broken: nothing here sleeps and hopes.

use std::time::{Duration, Instant};

/// Between two looks. Short against everything that is promised in milliseconds.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks until it is so, and says how long that took.
///
/// # Panics
/// If it was not so within the time, with what the last look said.
pub fn wait_for<T>(what: &str, within: Duration, look: impl FnMut() -> Result<T, String>) -> (T, Duration) {
    let begun = Instant::now();
    match poll(within, look) {
        Ok(seen) => (seen, begun.elapsed()),
        Err(last) => panic!("not within {within:?}: {what}\n  at the last look: {last}"),
    }
}

/// The same for a plain condition, in seconds.
pub fn soon(what: &str, seconds: u64, mut is_so: impl FnMut() -> bool) -> Duration {
    wait_for(what, Duration::from_secs(seconds), || if is_so() { Ok(()) } else { Err("it was not so".into()) }).1
}

/// Looks until it is so, or gives what the last look said.
pub fn poll<T>(within: Duration, mut look: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let begun = Instant::now();
    loop {
        match look() {
            Ok(seen) => return Ok(seen),
            Err(last) if begun.elapsed() > within => return Err(last),
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// Looks for the whole of this time, and says what it first saw.
pub fn watch<T>(time: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut look = look;
    poll(time, || look().ok_or_else(String::new)).ok()
}
