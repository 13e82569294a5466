//! The messages to a service's members that came to this node: numbered, bounded, oldest dropped first. A reader says where it
//! is, and learns how many it missed.

use std::collections::VecDeque;

use bytes::Bytes;

use super::limits::{KEPT_MAX, NEWS_MAX};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Numbers of this node, for this service, in this life of it.
    pub at: u64,
    /// Who sent it, as it says.
    pub from: String,
    pub body: Bytes,
}

#[derive(Default)]
pub(super) struct News {
    /// Number of the newest message that ever came.
    last: u64,
    bytes: usize,
    kept: VecDeque<Message>,
}

impl News {
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Keeps so many bytes at most, with this message.
    pub fn push(&mut self, from: String, body: Bytes, bytes_max: usize) {
        self.last += 1;
        self.bytes += body.len();
        self.kept.push_back(Message { at: self.last, from, body });
        while self.kept.len() > KEPT_MAX || self.bytes > bytes_max {
            let gone = self.kept.pop_front().expect("there is one, or there would be no bytes");
            self.bytes -= gone.body.len();
        }
    }

    /// The next messages after this number, where that leads, and how many are lost to who asks.
    pub fn after(&self, after: u64) -> (Vec<Message>, u64, u64) {
        let next: Vec<Message> = self.kept.iter().filter(|m| m.at > after).take(NEWS_MAX).cloned().collect();
        let first = next.first().map_or(self.last + 1, |m| m.at);
        let missed = first.saturating_sub(after + 1);
        let at = next.last().map_or(self.last, |m| m.at);
        (next, at, missed)
    }
}
