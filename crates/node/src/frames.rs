//! Frames of peers that are not what they should be: not of this protocol, or words that their sender cannot have. They
//! change nothing, are counted, and are told now and then; who sends nothing else is hung up on. And lies about this
//! node, which the machines refute by themselves: here they are told to people.

use std::collections::BTreeMap;

use base::{Effect, NodeId, Note, Now, Span, Time};

use crate::limits::{BAD_FRAMES_IN_ROW_MAX, BAD_FRAMES_TOLD_EVERY, LIES_TOLD_EVERY};
use crate::node::{Node, Out};

#[derive(Default)]
pub(crate) struct Bad {
    /// Bad frames in a row, by linked peer: since its last good one.
    in_row: BTreeMap<NodeId, u32>,
    /// Bad frames of all peers, since this node started.
    pub frames: u64,
    pub hung_up: u64,
    pub refuted: u64,
    notes: Pace,
    hangups: Pace,
    told: Pace,
}

/// Tells the first of many, and then now and then how many there were.
#[derive(Default)]
struct Pace {
    next: Time,
    untold: u64,
}

impl Pace {
    /// What to add to the text, if it is to be told now.
    fn may(&mut self, now: Time, every: Span) -> Option<String> {
        if now < self.next {
            self.untold += 1;
            return None;
        }
        self.next = now + every;
        let more = std::mem::take(&mut self.untold);
        Some(if more == 0 { String::new() } else { format!(" (and {more} more since the last time)") })
    }
}

impl Node {
    /// A frame of a peer was none, or none that it may send.
    pub(crate) fn bad_frame(&mut self, now: Now, from: NodeId, why: &str, out: &mut Out) {
        self.bad.frames += 1;
        let in_row = self.bad.in_row.entry(from).or_default();
        *in_row += 1;
        let is_over = *in_row >= BAD_FRAMES_IN_ROW_MAX;
        let name = self.name_of(from);
        if let Some(more) = self.bad.notes.may(now.mono, BAD_FRAMES_TOLD_EVERY) {
            out.push(Effect::Note(Note::error(format!("a frame of {name} {why}{more}"))));
        }
        if !is_over {
            return;
        }
        self.bad.in_row.remove(&from);
        self.bad.hung_up += 1;
        out.push(Effect::Hangup { peer: from });
        if let Some(more) = self.bad.hangups.may(now.mono, LIES_TOLD_EVERY) {
            let text = format!("sent {BAD_FRAMES_IN_ROW_MAX} bad frames in a row and was hung up on{more}");
            out.push(Effect::Note(Note::warn(format!("{name} {text}"))));
            self.happened(now, "bad-frames", &name, text);
        }
    }

    /// How many bad frames there were, before one is handled.
    pub(crate) fn bad_frames(&self) -> u64 {
        self.bad.frames
    }

    /// This frame was handled: if it was good, so is its sender.
    pub(crate) fn was_handled(&mut self, from: NodeId, before: u64) {
        if !self.bad.in_row.is_empty() && self.bad.frames == before {
            self.bad.in_row.remove(&from);
        }
    }

    /// Its link is gone.
    pub(crate) fn forget_bad(&mut self, peer: NodeId) {
        self.bad.in_row.remove(&peer);
    }

    /// Somebody said of a node what that node itself denies.
    pub(crate) fn refuted(&mut self, now: Now, text: String, out: &mut Out) {
        self.bad.refuted += 1;
        if let Some(more) = self.bad.told.may(now.mono, LIES_TOLD_EVERY) {
            let name = self.card.name.clone();
            out.push(Effect::Note(Note::warn(format!("{text}{more}"))));
            self.happened(now, "refuted", &name, format!("{text}{more}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_the_first_is_told_and_then_how_many() {
        let (mut pace, every) = (Pace::default(), Span::secs(1));
        let at = |ms: u64| Time::ZERO + Span::millis(5_000 + ms);
        assert_eq!(pace.may(at(0), every), Some(String::new()));
        assert!((1..1_000).all(|ms| pace.may(at(ms), every).is_none()));
        assert_eq!(pace.may(at(1_000), every), Some(" (and 999 more since the last time)".into()));
        assert_eq!(pace.may(at(9_000), every), Some(String::new()));
    }
}
