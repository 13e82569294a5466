//! Bugs to plant in class `object`.

use base::{Effect, Event, Outcome, Rng};
use node::{Answer, Ask, View};
use state::object::{Action, Reply};
use state::session::Version;

use crate::plays::{Out, Spoils};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Some puts are acknowledged and not done.
    FalseAck,
    /// Some deletions are acknowledged and not done.
    Revives,
    /// A byte of some objects is another one.
    Spoils,
}

pub(super) struct Spoiler {
    pub bug: Bug,
    pub rng: Rng,
}

impl Spoils for Spoiler {
    fn event(&mut self, event: Event<Ask>, out: &mut Out) -> Option<Event<Ask>> {
        if self.bug != Bug::Spoils
            && let Event::Ask { id, ask: Ask::Object(op), .. } = &event
            && self.rng.chance(0.1)
        {
            let version = Version::default();
            let reply = match (self.bug, &op.action) {
                (Bug::FalseAck, Action::Put { .. }) => Reply::Stored { version, copies: 2 },
                (Bug::Revives, Action::Delete { .. }) => Reply::Deleted { version, copies: 2 },
                _ => return Some(event),
            };
            out.push(Effect::Answer { id: *id, answer: Answer::Object(Outcome::Done(reply)) });
            return None;
        }
        Some(event)
    }

    fn effect(&mut self, effect: Effect<Answer, View>, out: &mut Out) {
        match effect {
            Effect::Answer {
                id,
                answer: Answer::Object(Outcome::Done(Reply::Object { version, size, sum, body })),
            } if self.bug == Bug::Spoils && self.rng.chance(0.1) => {
                let body = body.iter().rev().copied().collect::<Vec<u8>>().into();
                let reply = Reply::Object { version, size, sum, body };
                out.push(Effect::Answer { id, answer: Answer::Object(Outcome::Done(reply)) });
            }
            effect => out.push(effect),
        }
    }
}
