//! What happened, as a hash over all of it and as the last few hundred events in words. Two runs of one seed must end
//! with the same hash; when a promise breaks, the words are what a person reads first.

use std::collections::VecDeque;

use base::checksum::place_hash_pair;
use base::{Event, LinkEnd, PackSaid, Time};

/// Events kept for a person to read.
const RECENT_MAX: usize = 300;
/// Remarks (faults, births, deaths, warnings) kept: rarer than frames, so they reach further back.
const REMARKS_MAX: usize = 300;

#[derive(Clone, Copy)]
struct Seen {
    at: Time,
    node: usize,
    what: &'static str,
    a: u64,
    b: u64,
}

#[derive(Default)]
pub struct Trace {
    hash: u64,
    events: u64,
    recent: VecDeque<Seen>,
    remarks: VecDeque<(Time, String)>,
    /// Print each remark as it comes.
    pub loud: bool,
}

impl Trace {
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Events that nodes were given so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Mixes in anything else that a run decided, e.g. the answers it saw.
    pub fn mix(&mut self, bytes: &[u8]) {
        self.hash = place_hash_pair(bytes, self.hash);
    }

    fn mix_all(&mut self, numbers: [u64; 4]) {
        for n in numbers {
            self.hash = (self.hash ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
    }

    /// A remark for people; part of the hash too.
    pub fn remark(&mut self, at: Time, text: String) {
        self.mix(text.as_bytes());
        if self.loud {
            println!("{at:?} {text}");
        }
        if self.remarks.len() == REMARKS_MAX {
            self.remarks.pop_front();
        }
        self.remarks.push_back((at, text));
    }

    pub(crate) fn event<Ask>(&mut self, at: Time, node: usize, event: &Event<Ask>) {
        self.events += 1;
        let (what, a, b) = match event {
            Event::Start { log, .. } => {
                ("start, records on disk", log.values().map(Vec::len).sum::<usize>() as u64, log.len() as u64)
            }
            Event::Wake => ("wake", 0, 0),
            Event::Linked { peer, boot, card } => {
                self.mix(card);
                ("linked with, boot", peer.0, boot.0)
            }
            Event::Unlinked { peer, why, addr: _ } => (why_in_words(*why), peer.map_or(0, |p| p.0), 0),
            Event::Frame { from, frame } => {
                self.mix(&frame.head);
                self.mix(&frame.body);
                ("frame from, kind", from.0, u64::from(frame.kind))
            }
            Event::Ask { id, budget, .. } => ("asked, budget µs", id.0, budget.0),
            Event::Appended { group, ticket } => ("appended", ticket.0, group.0),
            Event::Saved { group, ticket } => ("saved", ticket.0, group.0),
            Event::Packs { there } => ("packs on disk", there.values().map(|of| of.len()).sum::<usize>() as u64, 0),
            Event::Pack { group, said: PackSaid::Written { pack } } => ("packed", *pack, group.0),
            Event::Pack { group, said: PackSaid::Read { number, bytes } } => {
                bytes.iter().for_each(|bytes| self.mix(bytes));
                ("read of a pack", *number, group.0)
            }
            Event::Worked { group, number, .. } => ("worked", *number, group.0),
            Event::Disk { trouble } => ("disk, full", u64::from(trouble.is_some()), 0),
            Event::Spawned { proc, pid, .. } => ("spawned, pid", proc.0, u64::from(*pid)),
            Event::Output { proc, line } => ("output of, bytes", proc.0, line.len() as u64),
            Event::Exited { proc, .. } => ("exited", proc.0, 0),
            Event::Probed { proc, result } => ("probed, healthy", proc.0, u64::from(result.is_ok())),
            Event::Vitals { .. } => ("vitals", 0, 0),
        };
        self.mix_all([at.0, node as u64, place_hash_pair(what.as_bytes(), a), b]);
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Seen { at, node, what, a, b });
    }

    /// The last `remarks` and `events`, oldest first, one a line.
    pub fn last(&self, remarks: usize, events: usize) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for (at, remark) in self.remarks.iter().skip(self.remarks.len().saturating_sub(remarks)) {
            writeln!(text, "{at:?} {remark}").expect("a string takes all");
        }
        for Seen { at, node, what, a, b } in self.recent.iter().skip(self.recent.len().saturating_sub(events)) {
            writeln!(text, "{at:?} node {node}: {what} {a:x} {b}").expect("a string takes all");
        }
        text
    }
}

fn why_in_words(why: LinkEnd) -> &'static str {
    match why {
        LinkEnd::Closed => "unlinked (closed)",
        LinkEnd::Refused => "unlinked (refused)",
        LinkEnd::TimedOut => "unlinked (timed out)",
        LinkEnd::Rejected => "unlinked (rejected)",
        LinkEnd::Ours => "unlinked (ours)",
    }
}
