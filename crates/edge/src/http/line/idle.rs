//! Connections to one clone that nobody uses now, the last used on top. Before one is used again it is looked at, since
//! a clone may have closed it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::Line;
use crate::http::limits::{IDLE_MAX, IDLE_TIME};

#[derive(Default)]
pub struct Idle(Mutex<VecDeque<(Instant, Box<Line>)>>);

impl Idle {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(Instant, Box<Line>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line used last that is still good. With `surely`, the system is asked as well.
    pub fn take(&self, surely: bool) -> Option<Box<Line>> {
        loop {
            let (_, line) = self.lock().pop_back()?;
            // Without it, one that has closed gives the request back unsent.
            if !surely || line.is_surely_open() {
                return Some(line);
            }
        }
    }

    pub fn put(&self, mut line: Box<Line>) {
        line.rest();
        let mut lines = self.lock();
        lines.push_back((Instant::now(), line));
        let excess = if lines.len() > IDLE_MAX { lines.pop_front() } else { None };
        drop(lines);
        drop(excess);
    }

    /// Closes those that have been idle for long, or that the clone has closed.
    pub fn sweep(&self) {
        let now = Instant::now();
        let is_good = |at: Instant, line: &Line| now.saturating_duration_since(at) < IDLE_TIME && line.is_surely_open();
        self.lock().retain(|(at, line)| is_good(*at, line));
    }

    pub fn clear(&self) {
        self.lock().clear();
    }
}
