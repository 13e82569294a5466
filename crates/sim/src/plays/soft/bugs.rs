//! Bugs to plant in class `soft`.

use base::{Effect, Event, Frame, Outcome, Rng, Span};
use bytes::Bytes;
use node::{Answer, Ask, View};
use prost::Message;
use state::class::Number;
use state::soft::{Action, End, Reply};

use crate::plays::{Out, Spoils};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Some updates are acknowledged and not done.
    FalseAck,
    /// What repairs does not say what its sender has seen.
    Blind,
    /// The first cell of what repairs stands for all of the frame, and the others are lost.
    Covers,
    /// Some ends come much later than they were to.
    Late,
}

pub(super) struct Spoiler {
    pub bug: Bug,
    pub rng: Rng,
}

impl Spoils for Spoiler {
    fn event(&mut self, mut event: Event<Ask>, out: &mut Out) -> Option<Event<Ask>> {
        let Event::Ask { id, ask: Ask::Soft(op), .. } = &mut event else { return Some(event) };
        match (self.bug, &mut op.action) {
            (Bug::Late, Action::Set { end: End::After(span), .. }) if self.rng.chance(0.3) => {
                *span = Span(span.0.saturating_mul(40));
            }
            (Bug::FalseAck, action) if action.is_write() && self.rng.chance(0.1) => {
                out.push(Effect::Answer { id: *id, answer: Answer::Soft(Outcome::Done(Reply::Done)) });
                return None;
            }
            _ => (),
        }
        Some(event)
    }

    fn effect(&mut self, effect: Effect<Answer, View>, out: &mut Out) {
        match effect {
            Effect::Send { to, frame } if frame.kind == REPAIR && matches!(self.bug, Bug::Blind | Bug::Covers) => {
                let head = Repair::decode(frame.head.clone()).expect("a node made it").spoilt(self.bug).encode_to_vec();
                out.push(Effect::Send { to, frame: Frame::new(REPAIR, head) });
            }
            effect => out.push(effect),
        }
    }
}

/// Frames of class `soft` with whole cells.
const REPAIR: u16 = Number::SOFT.data(1);

/// One of them (`soft/src/wire.rs`); what is in its parts is left as it is.
#[derive(Clone, PartialEq, prost::Message)]
struct Repair {
    #[prost(uint32, tag = "1")]
    space: u32,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    context: Vec<Bytes>,
    #[prost(message, repeated, tag = "3")]
    cells: Vec<RepairCell>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RepairCell {
    #[prost(bytes = "bytes", tag = "1")]
    at: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    cell: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    covers: Vec<Bytes>,
}

impl Repair {
    fn spoilt(mut self, bug: Bug) -> Self {
        match bug {
            Bug::Blind => self.context.clear(),
            _ => {
                let covers = self.cells.iter().flat_map(|cell| cell.covers.clone()).collect();
                self.cells.truncate(1);
                if let Some(first) = self.cells.first_mut() {
                    first.covers = covers;
                }
            }
        }
        self
    }
}
