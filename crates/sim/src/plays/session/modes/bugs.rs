//! Bugs to plant in sessions with cookies and in merged documents.

use std::collections::BTreeSet;

use base::{AskId, Effect, Event, Outcome, Rng};
use node::{Answer, Ask, View};
use state::session::doc::Doc;
use state::session::merge::MARK;
use state::session::{Action, Op, Place, Reply};

use super::load::FORMS;
use crate::plays::{Out, Spoils};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Some reads by cookie find nothing.
    CookieForgets,
    /// Documents that are merged are replaced instead.
    Unmerged,
}

pub(super) struct Spoiler {
    bug: Bug,
    rng: Rng,
    /// Reads by cookie that are under way.
    reads: BTreeSet<AskId>,
}

impl Spoiler {
    pub fn of(bug: Bug, rng: Rng) -> Self {
        Self { bug, rng, reads: BTreeSet::new() }
    }
}

impl Spoils for Spoiler {
    fn event(&mut self, mut event: Event<Ask>, _: &mut Out) -> Option<Event<Ask>> {
        if let Event::Ask { id, ask: Ask::Session(op), .. } = &mut event {
            match self.bug {
                Bug::Unmerged => unmark(op),
                Bug::CookieForgets if op.action == Action::Get && op.place != Place::Keyed => {
                    self.reads.insert(*id);
                }
                Bug::CookieForgets => (),
            }
        }
        Some(event)
    }

    fn effect(&mut self, effect: Effect<Answer, View>, out: &mut Out) {
        match effect {
            Effect::Answer { id, answer: Answer::Session(Outcome::Done(_)) }
                if self.reads.remove(&id) && self.rng.chance(0.1) =>
            {
                out.push(Effect::Answer { id, answer: Answer::Session(Outcome::Done(Reply::Absent)) });
            }
            effect => out.push(effect),
        }
    }
}

/// Without its mark a document that is written replaces what is there.
fn unmark(op: &mut Op) {
    if let (FORMS, Action::Put { value, .. }) = (&*op.namespace, &mut op.action)
        && let Some(mut doc) = Doc::parse(value)
    {
        doc.remove(format!("\"{MARK}\"").as_bytes());
        *value = doc.write();
    }
}
