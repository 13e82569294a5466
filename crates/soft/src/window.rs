//! What was pushed to one peer and is not acknowledged. It is sent once more when an acknowledgement takes much
//! longer than they do: a frame is lost with its link, or where a queue was full. Of a window that is large nothing
//! is, as then it is the peer that is slow: repair serves it.
//!
//! A link that loses packets is late, not lossy: what is sent over it once more waits behind what was lost. So what is
//! late goes by way of another node as well (`relay.rs`), and sooner: after a few times what the fastest of the last
//! acknowledgements took. Of a peer that is slow in itself none is fast.

use std::collections::VecDeque;

use base::{Span, Time};
use bytes::Bytes;

use crate::context::Range;
use crate::limits::*;

/// In the order in which it was sent first.
#[derive(Default)]
pub(crate) struct Window {
    sent: VecDeque<Sent>,
    bytes: usize,
    /// How long an acknowledgement takes, and how far it is off that; microseconds. None before the first.
    takes: Option<(u64, u64)>,
    /// What the last acknowledgements took, microseconds.
    took: VecDeque<u64>,
    /// There is another node by which it may go.
    may_relay: bool,
    /// When the next is to be sent again, by either way.
    again_at: Option<Time>,
}

struct Sent {
    space: u32,
    range: Range,
    head: Bytes,
    at: Time,
    tries: u32,
    /// When it was made, and how often it went by way of another.
    first_at: Time,
    relays: u32,
}

impl Window {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn again_at(&self) -> Option<Time> {
        self.again_at
    }

    pub fn push(&mut self, now: Time, space: u32, range: Range, head: Bytes) {
        self.bytes += head.len();
        self.sent.push_back(Sent { space, range, head, at: now, tries: 0, first_at: now, relays: 0 });
        if self.sent.len() <= RESEND_FRAMES {
            self.look();
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Nobody acknowledges what is under way for a namespace that is no more.
    pub fn retain(&mut self, spaces: &[u32]) {
        self.sent.retain(|sent| spaces.contains(&sent.space));
        self.bytes = self.sent.iter().map(|sent| sent.head.len()).sum();
        self.look();
    }

    /// These have come.
    pub fn has_come(&mut self, now: Time, space: u32, ranges: &[Range]) {
        let covers =
            |sent: &Range| ranges.iter().any(|r| r.life == sent.life && r.first <= sent.first && sent.last <= r.last);
        let mut newest = None;
        self.sent.retain(|sent| {
            let stays = sent.space != space || !covers(&sent.range);
            if !stays {
                self.bytes -= sent.head.len();
                // Of what was sent twice it is not known which of the two was acknowledged: it may seem slower than it is.
                newest = newest.max(Some(sent.first_at));
            }
            stays
        });
        if let Some(at) = newest {
            let took = now.since(at).0;
            self.took.truncate(RELAY_LOOKS - 1);
            self.took.push_front(took);
            let (mean, off) = self.takes.unwrap_or((took, took / 2));
            self.takes = Some(((7 * mean + took) / 8, (3 * off + mean.abs_diff(took)) / 4));
        }
        self.look();
    }

    fn due(takes: Option<(u64, u64)>, sent: &Sent) -> Time {
        let wait = takes.map_or(RESEND_MIN, |(mean, off)| Span(2 * mean + 4 * off)).clamp(RESEND_MIN, RESEND_MAX);
        sent.at + Span(wait.0 << sent.tries)
    }

    fn relay_due(fastest: u64, sent: &Sent) -> Time {
        let wait = Span(RELAY_TIMES * fastest).clamp(RELAY_MIN, RESEND_MAX);
        sent.first_at + Span(wait.0 << sent.relays)
    }

    fn fastest(&self) -> u64 {
        self.took.iter().copied().min().unwrap_or_default()
    }

    fn look(&mut self) {
        let (takes, fastest) = (self.takes, self.fastest());
        let first = || self.sent.iter().take(RESEND_FRAMES);
        let again = first().filter(|sent| sent.tries < RESEND_TRIES).map(|sent| Self::due(takes, sent));
        let relays = first().filter(|sent| self.may_relay && sent.relays < RELAY_TRIES);
        let relays = relays.map(|sent| Self::relay_due(fastest, sent));
        self.again_at = again.chain(relays).min().filter(|_| self.bytes <= RESEND_BYTES);
    }

    /// Whether there is another node by which what is late may go.
    pub fn may_relay(&mut self, is: bool) {
        if self.may_relay != is {
            self.may_relay = is;
            self.look();
        }
    }

    /// What is to go by way of another node.
    pub fn relays(&mut self, now: Time) -> Vec<Bytes> {
        if !self.may_relay || self.again_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let fastest = self.fastest();
        let first = self.sent.iter_mut().take(RESEND_FRAMES);
        let due = first.filter(|sent| sent.relays < RELAY_TRIES && Self::relay_due(fastest, sent) <= now);
        let heads = due
            .map(|sent| {
                sent.relays += 1;
                sent.head.clone()
            })
            .collect();
        self.look();
        heads
    }

    /// What is to be sent once more.
    pub fn again(&mut self, now: Time) -> Vec<Bytes> {
        if self.again_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let takes = self.takes;
        let first = self.sent.iter_mut().take(RESEND_FRAMES);
        let due = first.filter(|sent| sent.tries < RESEND_TRIES && Self::due(takes, sent) <= now);
        let heads = due
            .map(|sent| {
                (sent.at, sent.tries) = (now, sent.tries + 1);
                sent.head.clone()
            })
            .collect();
        self.look();
        heads
    }
}

#[cfg(test)]
mod tests {
    use base::{Boot, NodeId};

    use super::*;
    use crate::dot::Life;

    fn range(seq: u64) -> Range {
        Range { life: Life { node: NodeId(1), boot: Boot(1) }, first: seq, last: seq }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::millis(ms)
    }

    #[test]
    fn what_is_not_acknowledged_goes_again_a_few_times_ever_later() {
        let mut window = Window::default();
        window.push(at(0), 7, range(1), Bytes::from_static(b"one"));
        window.push(at(0), 7, range(2), Bytes::from_static(b"two"));
        window.has_come(at(4), 7, &[range(1)]);
        assert_eq!(window.bytes(), 3);
        let mut times = Vec::new();
        for ms in 5..10_000 {
            times.extend(window.again(at(ms)).iter().map(|head| (ms, head.len())));
        }
        let least = RESEND_MIN.as_millis();
        assert_eq!(times[0], (least, 3));
        assert_eq!(times.len() as u32, RESEND_TRIES);
        assert!(times.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 2 * least), "{times:?}");
        window.has_come(at(10_000), 7, &[range(2)]);
        assert_eq!((window.bytes(), window.again_at()), (0, None));
    }

    #[test]
    fn what_is_late_on_one_link_goes_by_way_of_another_though_the_mean_is_late() {
        let mut window = Window::default();
        window.may_relay(true);
        // Every other one waits for what TCP lost before it.
        for seq in 1..20 {
            window.push(at(seq * 1_000), 7, range(seq), Bytes::from_static(b"x"));
            window.has_come(at(seq * 1_000 + if seq % 2 == 0 { 3 } else { 20 }), 7, &[range(seq)]);
        }
        window.push(at(30_000), 7, range(30), Bytes::from_static(b"y"));
        let least = RELAY_MIN.as_millis();
        let mut times = Vec::new();
        for ms in 30_000..31_000 {
            times.extend(window.relays(at(ms)).iter().map(|_| ms - 30_000));
            drop(window.again(at(ms)));
        }
        assert_eq!(times.len() as u32, RELAY_TRIES);
        assert_eq!((times[0], times[1]), (least, 2 * least));
    }

    #[test]
    fn a_peer_that_is_slow_is_not_made_slower() {
        let mut window = Window::default();
        // It takes half a second for each.
        for seq in 1..20 {
            window.push(at(seq * 1_000), 7, range(seq), Bytes::from_static(b"x"));
            window.has_come(at(seq * 1_000 + 500), 7, &[range(seq)]);
        }
        window.push(at(30_000), 7, range(30), Bytes::from_static(b"x"));
        assert!(window.again(at(30_899)).is_empty() && window.relays(at(30_899)).is_empty());
        assert!(window.again_at() >= Some(at(30_900)), "{:?}", window.again_at());
        window.push(at(30_000), 7, range(31), Bytes::from(vec![0; RESEND_BYTES]));
        assert!(window.again(at(60_000)).is_empty(), "much waits there");
    }
}
