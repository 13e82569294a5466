//! A snapshot on its way to a member: part by part, a few under way at once, each checked. What was lost is sent again;
//! after a break it goes on where it stopped, as long as both sides live and the leader's log still meets its end.

use std::collections::VecDeque;
use std::iter::Peekable;

use base::checksum::Checksum;
use base::{Parts, Time};
use bytes::Bytes;
use raft::eraftpb as pb;

use super::limits::{PARTS_AGAIN, PARTS_UNDER_WAY_MAX};
use super::wire::Said;

/// At the leader.
pub(super) struct Sending {
    /// A `MsgSnapshot` without data.
    offer: pb::Message,
    parts: Peekable<Box<dyn Iterator<Item = Bytes> + Send>>,
    /// Sent and not acknowledged: number, last, bytes.
    under_way: VecDeque<(u64, bool, Bytes)>,
    next: u64,
    /// When something was last sent or acknowledged.
    moved: Time,
    /// When something was last acknowledged.
    pub heard: Time,
}

impl Sending {
    pub fn new(offer: pb::Message, parts: Parts, now: Time) -> Self {
        Self { offer, parts: parts.0.peekable(), under_way: VecDeque::new(), next: 0, moved: now, heard: now }
    }

    pub fn index(&self) -> u64 {
        self.offer.get_snapshot().get_metadata().index
    }

    /// All parts before `next` have come.
    pub fn wanted(&mut self, next: u64, now: Time) {
        let before = self.under_way.len();
        self.under_way.retain(|(number, ..)| *number >= next);
        if self.under_way.len() < before {
            (self.moved, self.heard) = (now, now);
        }
    }

    /// What may be sent now: new parts as room allows, old ones that nobody acknowledged for long.
    pub fn send(&mut self, term: u64, now: Time, mut each: impl FnMut(Said, Bytes)) {
        // The offer is the present leader's, whenever it was made.
        self.offer.term = self.offer.term.max(term);
        let mut say = |offer: &pb::Message, (number, last, bytes): &(u64, bool, Bytes)| {
            let said = Said::Part { offer: offer.clone(), number: *number, last: *last, sum: Checksum::of(bytes).0 };
            each(said, bytes.clone());
        };
        if now.since(self.moved) >= PARTS_AGAIN && !self.under_way.is_empty() {
            self.under_way.iter().for_each(|part| say(&self.offer, part));
            self.moved = now;
        }
        while self.under_way.len() < PARTS_UNDER_WAY_MAX
            && let Some(bytes) = self.parts.next()
        {
            let part = (self.next, self.parts.peek().is_none(), bytes);
            say(&self.offer, &part);
            self.under_way.push_back(part);
            self.next += 1;
            self.moved = now;
        }
    }
}

/// At the member.
pub(super) struct Receiving {
    index: u64,
    /// Term of the entry at `index`.
    term: u64,
    parts: Vec<Bytes>,
    pub is_whole: bool,
}

impl Receiving {
    pub fn new(offer: &pb::Message) -> Self {
        let meta = offer.get_snapshot().get_metadata();
        Self { index: meta.index, term: meta.term, parts: Vec::new(), is_whole: false }
    }

    pub fn is_of(&self, offer: &pb::Message) -> bool {
        let meta = offer.get_snapshot().get_metadata();
        (self.index, self.term) == (meta.index, meta.term)
    }

    /// Takes the part if it is the next; says which one is wanted now.
    pub fn take(&mut self, number: u64, last: bool, bytes: Bytes) -> u64 {
        if number == self.parts.len() as u64 && !self.is_whole {
            // A copy, as a slice would hold the whole buffer that it came in.
            self.parts.push(Bytes::copy_from_slice(&bytes));
            self.is_whole = last;
        }
        self.parts.len() as u64
    }

    pub fn into_parts(self) -> Vec<Bytes> {
        self.parts
    }
}
