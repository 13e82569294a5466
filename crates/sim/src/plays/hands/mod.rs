//! Workers that are sized by how long the oldest job of their queue waits: for some minutes jobs are put and nobody takes one, so the
//! service gets all clones that it may have, whatever befalls those who tell of queues and who decides; for as long after that one
//! client takes and ends all jobs, so they become fewer again.

use std::collections::BTreeMap;

use base::checksum::place_hash_pair;
use base::{Outcome, Rng, Span};
use bytes::Bytes;
use node::{Answer, Ask};
use state::linear::{Op, Ran, Reply, Step};

use super::linear::jobs::ticket_of;
use super::{Cast, Declared, Name, Spoils};
use crate::promises::Broken;
use crate::stage::{Asked, Flight, Heard, OpWords, Stage};
use promise::Hands;

pub mod bugs;
pub mod promise;

const NAMESPACE: &str = "hires";
const QUEUE: &str = "work";
const SERVICE: &str = "hands";
/// Clones that the service may have.
pub const CLONES: (u32, u32) = (1, 3);
/// One seed in so many has it.
const ONE_IN: u64 = 4;
/// Jobs pile up for so long, and then for so long they are worked off.
const TURN: Span = Span::secs(240);
/// A worker has a job for so long.
const HOLD: Span = Span::secs(5);
const BUDGET: Span = Span::secs(3);
const PAUSE: Span = Span::secs(2);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    Put,
    Take,
    /// Of a job that was taken.
    End(String),
}

pub struct Play {
    is_on: bool,
    promise: Hands,
    /// Jobs that the worker has.
    taken: Vec<String>,
    asked: u64,
}

impl super::Play for Play {
    const NAME: Name = Name::Hands;
    const BEGINS: Span = Span::secs(8);
    type Act = Act;
    type Bug = bugs::Bug;

    /// Where a machine begins with an older program it is not: that does not know queues.
    fn is_in(seed: u64) -> bool {
        !seed.is_multiple_of(3) && place_hash_pair(b"hands", seed).is_multiple_of(ONE_IN)
    }

    fn declares(_: &Declared) -> String {
        let (min, max) = CLONES;
        format!(
            "[namespace.{NAMESPACE}]\nclass = \"linear\"\n\
             [service.{SERVICE}]\nrun = [\"hands\"]\nclones = {{ min = {min}, max = {max} }}\nwait = \"2s\"\n\
             queues = [\"{NAMESPACE}/{QUEUE}\"]\n"
        )
    }

    fn new(_: &mut Cast, is_on: bool) -> Self {
        Self { is_on, promise: Hands::default(), taken: Vec::new(), asked: 0 }
    }

    fn clients(&self) -> usize {
        usize::from(self.is_on)
    }

    fn ask(&mut self, client: usize, stage: &mut Stage) {
        let (now, token, nodes) = (stage.now(), Self::NAME.token(client), stage.warm());
        if nodes.is_empty() {
            return stage.nobody(token);
        }
        self.asked += 1;
        let node = nodes[self.asked as usize % nodes.len()];
        let act = match self.taken.pop() {
            Some(ticket) => Act::End(ticket),
            None if now.0 % (2 * TURN.0) < TURN.0 => Act::Put,
            None => Act::Take,
        };
        self.promise.begin(&act);
        stage.send(token, node, BUDGET, Ask::Linear(act.op()), stage.must_serve(), Asked::Play(super::Act::Hands(act)));
    }

    fn end(&mut self, flight: &Flight, act: &Act, heard: Heard, stage: &mut Stage) -> Result<(), Broken> {
        let outcome = match heard {
            None => None,
            Some(Answer::Linear(outcome)) => Some(outcome),
            Some(other) => return Err(stage.another_kind(&other)),
        };
        let words = OpWords { op: act.name(), key: QUEUE, arg: format!("{act:?}") };
        stage.close(flight, &words, outcome.as_ref(), |ran| format!("{ran:?}"));
        stage.goes_on(flight.client, if self.taken.is_empty() { PAUSE } else { Span::millis(50) });
        let Some(outcome) = outcome else { return Ok(()) };
        stage.must_be_done(flight, &outcome, !stage.all_agree(), || format!("{act:?}"))?;
        if let (Act::Take, Outcome::Done(Ran::Done(replies))) = (act, &outcome)
            && let [Reply::List(given)] = &replies[..]
        {
            let ticket = |given: &Reply| ticket_of(given).map(|(ticket, _)| format!("{}.{}", ticket.job, ticket.turn));
            self.taken.extend(given.iter().filter_map(ticket));
        }
        self.promise.end(act, stage.now(), &outcome);
        Ok(())
    }

    fn tick(&mut self, stage: &mut Stage) -> Result<(), Broken> {
        if !self.is_on {
            return Ok(());
        }
        let wanted = |node: &usize| stage.seen[*node].wanted.iter().find(|(name, _)| name == SERVICE).map(|(_, n)| *n);
        let wanted: Vec<u32> = stage.warm().iter().filter_map(wanted).collect();
        self.promise.check(stage.now(), stage.calm_for(), &wanted)
    }

    fn count(&self, _: &Stage, ops: &mut BTreeMap<String, u64>) {
        ops.insert("clones of workers judged".into(), self.promise.judged);
    }

    fn plant(bug: bugs::Bug, rng: Rng) -> Box<dyn Spoils> {
        Box::new(bugs::Spoiler { bug, rng })
    }
}

impl Act {
    fn name(&self) -> &'static str {
        match self {
            Act::Put => "hands-put",
            Act::Take => "hands-take",
            Act::End(_) => "hands-end",
        }
    }

    fn op(&self) -> Op {
        let word = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let (function, args) = match self {
            Act::Put => ("queue.put", vec![word("1"), word("tries"), word("1000")]),
            Act::Take => ("queue.take", vec![word("50"), word(&HOLD.as_millis().to_string())]),
            Act::End(ticket) => ("queue.done", vec![word(ticket)]),
        };
        Op::of(NAMESPACE.into(), vec![Step::new(QUEUE.into(), function, args)])
    }
}
