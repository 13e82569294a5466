//! Bugs to plant in class `sql`.

use base::{Event, Rng};
use bytes::Bytes;
use node::Ask;
use state::linear::functions::sql::BATCH;

use crate::plays::{Out, Spoils};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Some batches are acknowledged and not done.
    FalseAck,
    /// Some batches are done in part.
    Torn,
}

pub(super) struct Spoiler {
    pub bug: Bug,
    pub rng: Rng,
}

impl Spoils for Spoiler {
    fn event(&mut self, mut event: Event<Ask>, _: &mut Out) -> Option<Event<Ask>> {
        if let Event::Ask { ask: Ask::Linear(op), .. } = &mut event
            && let [step] = &mut op.steps[..]
            && step.function == BATCH
            && self.rng.chance(0.1)
        {
            let text = String::from_utf8_lossy(&step.args[3]).replace("n = n + 1", "n = n + 0");
            step.args[3] = if self.bug == Bug::Torn { text.into() } else { Bytes::from_static(b"[\"select 1\"]") };
        }
        Some(event)
    }
}
