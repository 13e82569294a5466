//! Class `sql`.

use std::collections::BTreeMap;

use base::{Rng, Span};
use node::{Answer, Ask};
use state::linear::Op;

use super::{Cast, Declared, Name, Spoils, priority};
use crate::promises::Broken;
use crate::stage::{Asked, Flight, Heard, OpWords, Stage};
use load::{Act, LEDGER, SqlLoad};
use promise::Sql;

pub mod bugs;
pub mod load;
pub mod promise;

pub struct Play {
    load: SqlLoad,
    promise: Sql,
}

impl super::Play for Play {
    const NAME: Name = Name::Sql;
    const BEGINS: Span = Span::secs(7);
    type Act = Act;
    type Bug = bugs::Bug;

    fn is_in(seed: u64) -> bool {
        load::is_in(seed)
    }

    fn declares(_: &Declared) -> String {
        format!("[namespace.{LEDGER}]\nclass = \"sql\"\n")
    }

    fn new(cast: &mut Cast, is_on: bool) -> Self {
        Self { load: SqlLoad::new(cast.seed, is_on), promise: Sql::default() }
    }

    fn clients(&self) -> usize {
        self.load.clients()
    }

    fn ask(&mut self, client: usize, stage: &mut Stage) {
        let (now, token, nodes) = (stage.now(), Self::NAME.token(client), stage.warm());
        if nodes.is_empty() {
            return stage.nobody(token);
        }
        let node = nodes[self.load.choose(client, nodes.len())];
        let (act, budget) = self.load.draw(client);
        let op = Op { priority: priority(stage.seed, token, now), ..act.op(now) };
        self.promise.begin(&act);
        let must = stage.must_serve();
        stage.send(token, node, budget, Ask::Linear(op), must, Asked::Play(super::Act::Sql(act)));
    }

    fn end(&mut self, flight: &Flight, act: &Act, heard: Heard, stage: &mut Stage) -> Result<(), Broken> {
        let outcome = match heard {
            None => None,
            Some(Answer::Linear(outcome)) => Some(outcome),
            Some(other) => return Err(stage.another_kind(&other)),
        };
        let words = OpWords { op: act.name(), key: "", arg: format!("{act:?}") };
        stage.close(flight, &words, outcome.as_ref(), load::shown);
        let (_, client) = Name::of(flight.client);
        stage.goes_on(flight.client, self.load.pause(client));
        // It may have happened: it goes on until somebody has seen it.
        let Some(outcome) = outcome else { return Ok(()) };
        stage.must_be_done(flight, &outcome, false, || format!("{act:?}"))?;
        if let Some(total) = self.promise.end(act, flight.start, stage.now(), outcome)? {
            self.load.has_read(client, total);
        }
        Ok(())
    }

    fn count(&self, _: &Stage, ops: &mut BTreeMap<String, u64>) {
        ops.insert("sql judged".into(), self.promise.judged);
    }

    fn plant(bug: bugs::Bug, rng: Rng) -> Box<dyn Spoils> {
        Box::new(bugs::Spoiler { bug, rng })
    }
}
