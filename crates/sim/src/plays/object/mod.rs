//! Class `object`.

use std::collections::BTreeMap;

use base::{Rng, Span};
use node::{Answer, Ask};
use state::Settings;
use state::object::Op;

use super::{Cast, Declared, Mishap, Name, Spoils, priority};
use crate::promises::{Broken, SERVED_WITHIN};
use crate::stage::{Asked, Flight, Heard, OpWords, Stage};
use load::{Act, BOX, ObjectLoad};
use promise::Objects;

pub mod bugs;
pub mod load;
pub mod promise;

pub struct Play {
    load: ObjectLoad,
    promise: Objects,
}

impl super::Play for Play {
    const NAME: Name = Name::Object;
    const BEGINS: Span = Span::secs(8);
    type Act = Act;
    type Bug = bugs::Bug;

    fn is_in(seed: u64) -> bool {
        load::is_in(seed)
    }

    fn declares(_: &Declared) -> String {
        format!("[namespace.{BOX}]\nclass = \"object\"\n")
    }

    fn settings(settings: &mut Settings) {
        load::settings(settings);
    }

    fn new(cast: &mut Cast, is_on: bool) -> Self {
        Self { load: ObjectLoad::new(cast.seed, is_on), promise: Objects::default() }
    }

    fn clients(&self) -> usize {
        self.load.clients()
    }

    fn ask(&mut self, client: usize, stage: &mut Stage) {
        // A node of the cluster may have said that anything was deleted.
        if stage.has_lied {
            return;
        }
        let (now, token, nodes) = (stage.now(), Self::NAME.token(client), stage.warm());
        if nodes.is_empty() {
            return stage.nobody(token);
        }
        let node = nodes[self.load.choose(client, nodes.len())];
        let (act, budget) = self.load.draw(client);
        let op = Op { priority: priority(stage.seed, token, now), ..act.op() };
        // Whether something is nowhere is known when all have said so, and who was emptied is waited for.
        let is_known = match act {
            Act::Get(number, _) => self.promise.must_be_there(number, now),
            Act::Put(_) | Act::List(_) => true,
            Act::Delete(number) => self.promise.must_be_there(number, now),
        };
        self.promise.begin(&act);
        let must = stage.must_serve() && is_known;
        stage.send(token, node, budget, Ask::Object(op), must, Asked::Play(super::Act::Object(act)));
    }

    fn end(&mut self, flight: &Flight, act: &Act, heard: Heard, stage: &mut Stage) -> Result<(), Broken> {
        let outcome = match heard {
            None => None,
            Some(Answer::Object(outcome)) => Some(outcome),
            Some(other) => return Err(stage.another_kind(&other)),
        };
        let words = OpWords { op: act.name(), key: "", arg: format!("{act:?}") };
        stage.close(flight, &words, outcome.as_ref(), load::shown);
        let (_, client) = Name::of(flight.client);
        stage.goes_on(flight.client, self.load.pause(client));
        let Some(outcome) = outcome else {
            self.load.has_heard(client, act, None);
            return Ok(());
        };
        stage.must_be_done(flight, &outcome, false, || format!("{act:?}"))?;
        self.load.has_heard(client, act, Some(&outcome));
        if stage.has_lied {
            return Ok(());
        }
        let quiet = stage.calm_for().filter(|calm| *calm > SERVED_WITHIN).map(|_| stage.phase_since + SERVED_WITHIN);
        self.promise.end(act, (flight.start, stage.now()), quiet, &outcome)
    }

    fn excuse(&mut self, node: usize, mishap: Mishap, stage: &mut Stage) {
        if mishap == Mishap::LostDisk {
            self.promise.lost_disk(node, stage.now());
        }
    }

    fn count(&self, _: &Stage, ops: &mut BTreeMap<String, u64>) {
        ops.insert("object judged".into(), self.promise.judged);
    }

    fn plant(bug: bugs::Bug, rng: Rng) -> Box<dyn Spoils> {
        Box::new(bugs::Spoiler { bug, rng })
    }
}
