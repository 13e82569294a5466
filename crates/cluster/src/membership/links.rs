//! When to dial: a full mesh is kept by each pair on its own. One `Dialler` per peer and per seed; whether a link is
//! wanted at all is the machine's decision.

use std::net::SocketAddr;

use base::{Rng, Span, Time};
use flow::Backoff;

use super::limits::*;

#[derive(Clone, Debug)]
pub(super) struct Dialler {
    /// Not before this.
    next: Time,
    /// Since when a dial runs.
    running: Option<Time>,
    backoff: Backoff,
}

impl Dialler {
    pub fn new(next: Time) -> Self {
        Self { next, running: None, backoff: Backoff::new(DIAL_WAIT_MIN, DIAL_WAIT_MAX) }
    }

    pub fn is_due(&self, now: Time) -> bool {
        now >= self.wake()
    }

    /// When to look again.
    pub fn wake(&self) -> Time {
        // Without this, one lost answer would end all dialling.
        self.running.map_or(self.next, |since| since + DIAL_LOST)
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub fn start(&mut self, now: Time) {
        self.running = Some(now);
    }

    /// It came to nothing; the next try waits at most `wait_max`.
    pub fn failed(&mut self, now: Time, wait_max: Span, rng: &mut Rng) {
        self.running = None;
        self.next = now + self.backoff.next(rng).min(wait_max);
    }

    pub fn succeeded(&mut self) {
        self.running = None;
        self.backoff.reset();
    }

    /// There is no hurry.
    pub fn wait_until(&mut self, at: Time) {
        self.next = at;
    }

    /// Something happened that makes a try worthwhile, however often it failed.
    pub fn try_at(&mut self, at: Time) {
        self.backoff.reset();
        self.next = at;
    }
}

/// An address we were told at the start, where some node of the cluster may be.
#[derive(Clone, Debug)]
pub(super) struct Seed {
    pub addr: SocketAddr,
    pub dial: Dialler,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dial_whose_end_got_lost_is_made_again() {
        let mut dial = Dialler::new(Time::ZERO);
        assert!(dial.is_due(Time::ZERO));
        dial.start(Time::ZERO);
        assert!(!dial.is_due(Time::ZERO + Span::secs(2)));
        assert!(dial.is_due(Time::ZERO + DIAL_LOST));
    }

    #[test]
    fn waits_grow_to_their_ceiling_and_news_end_them() {
        let (mut dial, mut rng, now) = (Dialler::new(Time::ZERO), Rng::new(1), Time(1));
        for _ in 0..20 {
            dial.failed(now, DIAL_WAIT_LIVE_MAX, &mut rng);
        }
        assert!(dial.wake() > now + Span::secs(1) && dial.wake() <= now + DIAL_WAIT_LIVE_MAX);
        dial.try_at(now);
        assert!(dial.is_due(now));
    }
}
