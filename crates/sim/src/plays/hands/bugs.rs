//! Bugs to plant where workers are sized by their queue.

use base::{Effect, Event, Outcome, Rng};
use node::{Answer, Ask};
use state::linear::{Ran, Reply};

use super::NAMESPACE;
use crate::plays::{Out, Spoils};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Jobs are acknowledged and not put: whoever sizes the workers hears of none.
    Unheard,
}

pub(super) struct Spoiler {
    pub bug: Bug,
    pub rng: Rng,
}

impl Spoils for Spoiler {
    fn event(&mut self, event: Event<Ask>, out: &mut Out) -> Option<Event<Ask>> {
        match (self.bug, &event) {
            (Bug::Unheard, Event::Ask { id, ask: Ask::Linear(op), .. })
                if *op.namespace == *NAMESPACE && op.steps[0].function == "queue.put" =>
            {
                let job = self.rng.below(1 << 40) as i64;
                let ran = Ran::Done(vec![Reply::List(vec![Reply::Int(job), Reply::Int(1)])]);
                out.push(Effect::Answer { id: *id, answer: Answer::Linear(Outcome::Done(ran)) });
                None
            }
            _ => Some(event),
        }
    }
}
