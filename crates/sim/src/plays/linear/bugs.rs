//! Bugs to plant in class `linear`.

use std::collections::BTreeMap;

use base::checksum::place_hash;
use base::{AskId, Effect, Event, GroupId, Outcome, Rng, Span};
use bytes::Bytes;
use node::{Answer, Ask, View};
use state::linear::{Op, Ran, Reply};

use super::promise::Linear;
use crate::plays::{Out, Spoils};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Some reads return what was first read of their key.
    Stale,
    /// Some writes are acknowledged and not done.
    FalseAck,
    /// Members answer reads that may be stale however old they are.
    Older,
    /// Who watches is sometimes not told the first of several changes.
    Untold,
    /// Some transactions are done in part.
    Torn,
    /// Ids of callers are not heeded: what is asked again happens again.
    Twice,
    /// Values that end live twice as long as they were to.
    Late,
    /// Fields that end live twenty times as long as they were to.
    FieldsLate,
    /// Workers have jobs for a moment, however long they said.
    JobsShared,
    /// Groups of streams give some entries again to others, though they were given without waiting for an acknowledgement.
    EntriesTwice,
    /// After a restart the end of each group's log is not there, and what the others say of it is not heeded.
    Forgets,
}

pub(super) struct Spoiler {
    bug: Bug,
    rng: Rng,
    /// Reads under way, what was first read, and the newest version seen.
    gets: BTreeMap<AskId, Bytes>,
    first: BTreeMap<Bytes, Ran>,
    version: i64,
    /// Streams that are read for a group, and what each gave last.
    reads: BTreeMap<AskId, Bytes>,
    given: BTreeMap<Bytes, Ran>,
}

impl Spoiler {
    pub fn of(bug: Bug, rng: Rng) -> Self {
        Self {
            bug,
            rng,
            gets: BTreeMap::new(),
            first: BTreeMap::new(),
            version: 0,
            reads: BTreeMap::new(),
            given: BTreeMap::new(),
        }
    }

    /// Makes another operation of what is asked.
    fn spoil(&mut self, op: &mut Op) {
        match self.bug {
            Bug::Older if op.stale.is_some() => op.stale = Some(Span::secs(3600)),
            Bug::Twice => op.once = None,
            Bug::Torn => {
                if let [_, second, _] = &mut op.steps[..]
                    && second.function == "number.add"
                    // Asked again it is torn likewise, at whatever node: else its id would be another operation's, and that is refused.
                    && op.once.as_ref().map_or_else(|| self.rng.chance(0.1), |id| place_hash(id.as_bytes()).is_multiple_of(10))
                {
                    second.args = vec![Bytes::from_static(b"0")];
                }
            }
            Bug::Late => {
                if let [step] = &mut op.steps[..]
                    && let ("put", Some(end)) = (step.function, step.args.get_mut(2))
                    && let Some(ms) = std::str::from_utf8(end).ok().and_then(|end| end.parse::<u64>().ok())
                {
                    *end = (2 * ms).to_string().into();
                }
            }
            Bug::FieldsLate | Bug::JobsShared => {
                if let [step] = &mut op.steps[..]
                    && let Some(span) = step.args.get_mut(1)
                    && let Some(ms) = std::str::from_utf8(span).ok().and_then(|end| end.parse::<u64>().ok())
                {
                    match (self.bug, step.function) {
                        (Bug::FieldsLate, "hash.set-expire") => *span = (20 * ms).to_string().into(),
                        (Bug::JobsShared, "queue.take") => *span = Bytes::from_static(b"1"),
                        _ => (),
                    }
                }
            }
            _ => (),
        }
    }
}

impl Spoils for Spoiler {
    fn event(&mut self, mut event: Event<Ask>, out: &mut Out) -> Option<Event<Ask>> {
        match (self.bug, &mut event) {
            (Bug::Forgets, Event::Start { log, .. }) => {
                for (_, records) in log.iter_mut().filter(|(group, _)| **group != GroupId::ROOT) {
                    let kept = records.len().saturating_sub(self.rng.below(40) as usize).max(1);
                    records.truncate(kept);
                }
            }
            (Bug::Stale, Event::Ask { id, ask: Ask::Linear(op), .. }) if op.steps[0].function == "look" => {
                self.gets.insert(*id, op.steps[0].key.clone());
            }
            (Bug::EntriesTwice, Event::Ask { id, ask: Ask::Linear(op), .. })
                if op.steps[0].function == "stream.read-group" && op.once.is_none() =>
            {
                self.reads.insert(*id, op.steps[0].key.clone());
            }
            (Bug::FalseAck, Event::Ask { id, ask: Ask::Linear(op), .. })
                if op.steps[0].function == "put" && self.rng.chance(0.1) =>
            {
                self.version += 1;
                let stored = vec![Reply::Int(1), Reply::Nil, Reply::Int(self.version)];
                let ran = Ran::Done(vec![Reply::List(stored)]);
                out.push(Effect::Answer { id: *id, answer: Answer::Linear(Outcome::Done(ran)) });
                return None;
            }
            (_, Event::Ask { ask: Ask::Linear(op), .. }) => self.spoil(op),
            _ => (),
        }
        Some(event)
    }

    fn effect(&mut self, effect: Effect<Answer, View>, out: &mut Out) {
        let (id, mut ran) = match effect {
            // Else the node would find out by itself.
            Effect::Distrust { .. } if self.bug == Bug::Forgets => return,
            Effect::Answer { id, answer: Answer::Linear(Outcome::Done(ran)) } => (id, ran),
            effect => return out.push(effect),
        };
        match self.bug {
            Bug::Stale => {
                let first = self.gets.remove(&id).map(|key| self.first.entry(key).or_insert_with(|| ran.clone()));
                ran = first.filter(|_| self.rng.chance(0.1)).map_or(ran, |first| first.clone());
            }
            Bug::Untold => {
                if let Ran::Done(replies) = &mut ran
                    && let [Reply::List(page)] = &mut replies[..]
                    && let [Reply::Int(_), Reply::List(changes)] = &mut page[..]
                    && changes.len() > 1
                    && self.rng.chance(0.1)
                {
                    changes.remove(0);
                }
            }
            Bug::EntriesTwice => {
                let of = self.reads.remove(&id);
                let has_some =
                    |ran: &Ran| matches!(ran, Ran::Done(replies) if matches!(&replies[..], [Reply::List(_)]));
                match of.filter(|_| has_some(&ran)) {
                    Some(stream) if self.rng.chance(0.3) => ran = self.given.get(&stream).cloned().unwrap_or(ran),
                    Some(stream) => _ = self.given.insert(stream, ran.clone()),
                    None => (),
                }
            }
            Bug::FalseAck => self.version = self.version.max(Linear::newest_in(&ran)),
            _ => (),
        }
        out.push(Effect::Answer { id, answer: Answer::Linear(Outcome::Done(ran)) });
    }
}
