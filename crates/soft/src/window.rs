//! What was pushed to one peer and is not acknowledged. It is sent once more when an acknowledgement takes much
//! longer than they do: a frame is lost with its link, or where a queue was full. Of a window that is large nothing
//! is, as then it is the peer that is slow: repair serves it.

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
    /// When the next is to be sent again.
    again_at: Option<Time>,
}

struct Sent {
    space: u32,
    range: Range,
    head: Bytes,
    at: Time,
    tries: u32,
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
        self.sent.push_back(Sent { space, range, head, at: now, tries: 0 });
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
                // Of what was sent twice it is not known which of the two was acknowledged.
                newest = newest.max((sent.tries == 0).then_some(sent.at));
            }
            stays
        });
        if let Some(at) = newest {
            let took = now.since(at).0;
            let (mean, off) = self.takes.unwrap_or((took, took / 2));
            self.takes = Some(((7 * mean + took) / 8, (3 * off + mean.abs_diff(took)) / 4));
        }
        self.look();
    }

    fn due(takes: Option<(u64, u64)>, sent: &Sent) -> Time {
        let wait = takes.map_or(RESEND_MIN, |(mean, off)| Span(2 * mean + 4 * off)).clamp(RESEND_MIN, RESEND_MAX);
        sent.at + Span(wait.0 << sent.tries)
    }

    fn look(&mut self) {
        let takes = self.takes;
        let first = self.sent.iter().take(RESEND_FRAMES).filter(|sent| sent.tries < RESEND_TRIES);
        self.again_at = first.map(|sent| Self::due(takes, sent)).min().filter(|_| self.bytes <= RESEND_BYTES);
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
    fn a_peer_that_is_slow_is_not_made_slower() {
        let mut window = Window::default();
        // It takes half a second for each.
        for seq in 1..20 {
            window.push(at(seq * 1_000), 7, range(seq), Bytes::from_static(b"x"));
            window.has_come(at(seq * 1_000 + 500), 7, &[range(seq)]);
        }
        window.push(at(30_000), 7, range(30), Bytes::from_static(b"x"));
        assert!(window.again_at() >= Some(at(30_900)), "{:?}", window.again_at());
        window.push(at(30_000), 7, range(31), Bytes::from(vec![0; RESEND_BYTES]));
        assert!(window.again(at(60_000)).is_empty(), "much waits there");
    }
}
