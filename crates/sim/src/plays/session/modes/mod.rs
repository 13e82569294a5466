//! The two other ways of class `session`: sessions whose cookie the client keeps, and documents that are merged.

use std::collections::BTreeMap;

use base::{Rng, Span};
use node::{Answer, Ask};
use state::session::Op;

use super::shown;
use crate::plays::{self, Cast, Declared, Mishap, Name, Spoils, priority};
use crate::promises::Broken;
use crate::stage::{Asked, Flight, Heard, OpWords, Stage};
use load::{Act, FORMS, ModesLoad};
use promise::Modes;

pub mod bugs;
pub mod load;
pub mod promise;

pub struct Play {
    load: ModesLoad,
    promise: Modes,
    is_on: bool,
}

impl plays::Play for Play {
    const NAME: Name = Name::Modes;
    const BEGINS: Span = Span::secs(4);
    const ALWAYS: bool = true;
    type Act = Act;
    type Bug = bugs::Bug;

    fn declares(_: &Declared) -> String {
        format!("[namespace.{FORMS}]\nclass = \"session\"\nmerge = \"fields\"\n")
    }

    fn new(cast: &mut Cast, is_on: bool) -> Self {
        Self { load: ModesLoad::new(cast.rng.fork()), promise: Modes::of(cast.nodes), is_on }
    }

    fn clients(&self) -> usize {
        if self.is_on { self.load.clients() } else { 0 }
    }

    fn ask(&mut self, client: usize, stage: &mut Stage) {
        let (token, nodes) = (Self::NAME.token(client), stage.warm());
        if nodes.is_empty() {
            return stage.nobody(token);
        }
        let node = nodes[self.load.choose(client, nodes.len())];
        let (act, budget) = self.load.draw(client);
        let op = Op { priority: priority(stage.seed, token, stage.now()), ..act.op() };
        self.promise.begin(&act);
        let must = stage.must_serve();
        stage.send(token, node, budget, Ask::Session(op), must, Asked::Play(plays::Act::Modes(act)));
    }

    fn end(&mut self, flight: &Flight, act: &Act, heard: Heard, stage: &mut Stage) -> Result<(), Broken> {
        let outcome = match heard {
            None => None,
            Some(Answer::Session(outcome)) => Some(outcome),
            Some(other) => return Err(stage.another_kind(&other)),
        };
        let words = OpWords { op: act.name(), key: act.key(), arg: format!("{act:?}") };
        stage.close(flight, &words, outcome.as_ref(), shown);
        let (_, client) = Name::of(flight.client);
        stage.goes_on(flight.client, self.load.pause(client));
        // It may have happened.
        let Some(outcome) = outcome else { return Ok(()) };
        stage.must_be_done(flight, &outcome, self.promise.may_be_lost(act), || format!("{act:?}"))?;
        self.load.heard(client, act, &outcome);
        self.promise.end(act, flight.start, stage.now(), &outcome, stage.void_before)
    }

    fn excuse(&mut self, node: usize, mishap: Mishap, stage: &mut Stage) {
        if let Mishap::Died | Mishap::Anew | Mishap::Dropped = mishap {
            self.promise.failed(node, stage.now());
        }
    }

    fn count(&self, _: &Stage, ops: &mut BTreeMap<String, u64>) {
        ops.insert("cookies and fields judged".into(), self.promise.judged);
    }

    fn plant(bug: bugs::Bug, rng: Rng) -> Box<dyn Spoils> {
        Box::new(bugs::Spoiler::of(bug, rng))
    }
}
