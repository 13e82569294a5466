//! How many requests are under way at a door, counted by what lives as long as they do.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Requests under way, and who has just connected.
#[derive(Debug, Default)]
pub struct UnderWay(AtomicU64);

impl UnderWay {
    pub fn is_empty(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    pub fn begins(self: &Arc<Self>) -> Busy {
        self.0.fetch_add(1, Relaxed);
        Busy(Arc::clone(self))
    }
}

/// Counts as long as it lives.
#[derive(Debug)]
pub struct Busy(Arc<UnderWay>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}
