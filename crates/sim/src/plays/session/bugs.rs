//! Bugs to plant in keyed operations of class `session`.

use std::collections::BTreeMap;

use base::{AskId, Effect, Event, Outcome, Rng, Span};
use bytes::Bytes;
use node::{Answer, Ask, View};
use state::session::{Action, Op, Place, Reply};

use super::load::NAMESPACE;
use crate::plays::{Out, Spoils};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Some reads return the first value that was ever found for their key.
    Stale,
    /// Some reads find nothing.
    Forgets,
    /// Some operations are refused without need.
    Refuses,
}

pub(super) struct Spoiler {
    bug: Bug,
    rng: Rng,
    /// Reads under way, by their key.
    reads: BTreeMap<AskId, Bytes>,
    first: BTreeMap<Bytes, Reply>,
}

impl Spoiler {
    pub fn of(bug: Bug, rng: Rng) -> Self {
        Self { bug, rng, reads: BTreeMap::new(), first: BTreeMap::new() }
    }

    fn spoil_read(&mut self, key: Bytes, reply: Reply) -> Reply {
        if matches!(reply, Reply::Value { .. }) {
            self.first.entry(key.clone()).or_insert_with(|| reply.clone());
        }
        match self.bug {
            _ if !self.rng.chance(0.1) => reply,
            // Nothing is another promise's matter.
            Bug::Stale => self.first.get(&key).cloned().unwrap_or(reply),
            _ => Reply::Absent,
        }
    }
}

impl Spoils for Spoiler {
    fn event(&mut self, event: Event<Ask>, out: &mut Out) -> Option<Event<Ask>> {
        if let Event::Ask { id, ask: Ask::Session(op), .. } = &event {
            match self.bug {
                Bug::Refuses if self.rng.chance(0.02) => {
                    let refused = base::Refused::busy("no reason", Span::millis(1));
                    out.push(Effect::Answer { id: *id, answer: Answer::Session(Outcome::Refused(refused)) });
                    return None;
                }
                Bug::Stale | Bug::Forgets if op.action == Action::Get && is_plain(op) => {
                    self.reads.insert(*id, op.key.clone());
                }
                _ => (),
            }
        }
        Some(event)
    }

    fn effect(&mut self, effect: Effect<Answer, View>, out: &mut Out) {
        let Effect::Answer { id, answer: Answer::Session(Outcome::Done(reply)) } = effect else {
            return out.push(effect);
        };
        let reply = match self.reads.remove(&id) {
            Some(key) => self.spoil_read(key, reply),
            None => reply,
        };
        out.push(Effect::Answer { id, answer: Answer::Session(Outcome::Done(reply)) });
    }
}

/// An operation by key in a namespace that merges nothing.
fn is_plain(op: &Op) -> bool {
    op.place == Place::Keyed && *op.namespace == *NAMESPACE
}
