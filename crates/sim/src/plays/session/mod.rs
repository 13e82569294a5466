//! Class `session`: keyed operations here, sessions with cookies and merged documents in `modes`.

use std::collections::BTreeMap;

use base::{Outcome, Rng, Span, Time};
use node::{Answer, Ask};
use state::session::{Op, Reply};

use super::{Cast, Declared, Mishap, Name, Spoils, priority};
use crate::promises::Broken;
use crate::stage::{Asked, FILLED_AFTER, Flight, Heard, OpWords, Stage};
use load::{Drawn, LEASE_DEFAULT, Load, NAMESPACE};
use promise::{Ended, Found, Sessions};

pub mod bugs;
pub mod load;
pub mod modes;
pub mod promise;

/// A node whose disk went for ever stays a brick of its keys so long (60 s), and the change takes a while.
const REPLACED_AFTER: Span = Span::secs(90);
/// A brick that restarted waits 10 s for the fill of one that is cut off; a moment less, as it may see it dead earlier.
const CUT_OFF_COUNTS: Span = Span::secs(8);

pub struct Play {
    load: Load,
    promise: Sessions,
    is_on: bool,
}

impl super::Play for Play {
    const NAME: Name = Name::Session;
    const BEGINS: Span = Span::secs(3);
    const ALWAYS: bool = true;
    type Act = Drawn;
    type Bug = bugs::Bug;

    fn declares(_: &Declared) -> String {
        let lease = LEASE_DEFAULT.as_millis() / 1000;
        format!("[namespace.{NAMESPACE}]\nclass = \"session\"\nlease = \"{lease}s\"\n")
    }

    fn new(cast: &mut Cast, is_on: bool) -> Self {
        let mut rng = cast.rng.fork();
        let load = Load::new(&mut rng);
        cast.operator = rng.fork();
        Self { load, promise: Sessions::of(cast.nodes), is_on }
    }

    fn clients(&self) -> usize {
        if self.is_on { self.load.clients() } else { 0 }
    }

    fn ask(&mut self, client: usize, stage: &mut Stage) {
        let drawn = self.load.draw(client);
        let (now, token, nodes) = (stage.now(), Self::NAME.token(client), stage.warm());
        if nodes.is_empty() {
            return stage.nobody(token);
        }
        let node = nodes[self.load.choose(client, nodes.len())];
        let mut op = Op::keyed(NAMESPACE.into(), drawn.key.clone().into_bytes().into(), drawn.action.clone());
        op.priority = priority(stage.seed, token, now);
        if let Some((write, what)) = drawn.write {
            self.promise.begin(&drawn.key, write, what, now);
        }
        let must = stage.must_serve();
        let what = Asked::Play(super::Act::Session(drawn.clone()));
        stage.send(token, node, drawn.budget, Ask::Session(op), must, what);
    }

    fn end(&mut self, flight: &Flight, drawn: &Drawn, heard: Heard, stage: &mut Stage) -> Result<(), Broken> {
        let outcome = match heard {
            None => None,
            Some(Answer::Session(outcome)) => Some(outcome),
            Some(other) => return Err(stage.another_kind(&other)),
        };
        let arg = drawn.write.map(|(id, what)| format!("{id} {what:?}")).unwrap_or_default();
        stage.close(flight, &OpWords { op: drawn.name, key: &drawn.key, arg }, outcome.as_ref(), shown);
        let (_, client) = Name::of(flight.client);
        stage.goes_on(flight.client, self.load.pause(client));
        let Some(outcome) = outcome else {
            let Some((id, _)) = drawn.write else { return Ok(()) };
            return self.promise.end(&drawn.key, id, stage.now(), Ended::Unknown);
        };
        stage.must_be_done(flight, &outcome, false, || format!("{} {} {:?}", drawn.name, drawn.key, drawn.write))?;
        self.judge(client, flight.start, drawn, outcome, stage.now())
    }

    fn excuse(&mut self, node: usize, mishap: Mishap, stage: &mut Stage) {
        if let Mishap::Died | Mishap::Dropped = mishap {
            self.died(node, stage);
        }
    }

    fn tick(&mut self, stage: &mut Stage) -> Result<(), Broken> {
        let now = stage.now();
        for node in 0..stage.seen.len() {
            let seen = &stage.seen[node];
            let up = stage.world.is_running(node);
            let long = now.since(seen.since.max(stage.quiet_since)) > FILLED_AFTER;
            // The brick that it was is not back.
            let replaced = stage.emptied.get(&node).is_none_or(|at| now.since(*at) > REPLACED_AFTER);
            if up && replaced && seen.filled.unwrap_or(long) {
                self.promise.filled(node);
            }
        }
        self.count_cut_off(stage);
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.promise.failed().is_empty()
    }

    fn count(&self, _: &Stage, ops: &mut BTreeMap<String, u64>) {
        ops.insert("reads judged".into(), self.promise.judged);
        ops.insert("reads excused".into(), self.promise.excused);
    }

    fn plant(bug: bugs::Bug, rng: Rng) -> Box<dyn Spoils> {
        Box::new(bugs::Spoiler::of(bug, rng))
    }
}

impl Play {
    fn died(&mut self, node: usize, stage: &mut Stage) {
        self.promise.died(node, stage.now());
        stage.void_before = self.promise.void_before();
    }

    /// A restarted brick waits for the fill of one that it cannot reach for a while, and then goes on without: what only
    /// that one holds has failed with it.
    fn count_cut_off(&mut self, stage: &mut Stage) {
        let now = stage.now();
        let unfilled: Vec<usize> = self.promise.failed().keys().copied().collect();
        for empty in unfilled {
            for node in 0..stage.seen.len() {
                // By the links, or by membership: links that come and go, and clones' hangs, may keep two from meeting.
                let seen = &stage.seen[empty];
                let met = seen.met.get(&stage.world.id(node)).copied().unwrap_or_default().max(seen.since);
                let waited = stage.world.is_running(empty) && now.since(seen.since) > CUT_OFF_COUNTS;
                let is_cut = stage.world.cut_for(empty, node) > CUT_OFF_COUNTS || now.since(met) > CUT_OFF_COUNTS;
                if waited && node != empty && is_cut {
                    self.died(node, stage);
                }
            }
        }
    }

    fn judge(
        &mut self,
        client: usize,
        start: Time,
        drawn: &Drawn,
        outcome: Outcome<Reply>,
        now: Time,
    ) -> Result<(), Broken> {
        let Some((id, _)) = drawn.write else {
            let found = match outcome {
                Outcome::Done(Reply::Value { value, version, .. }) => {
                    let (id, intact) = load::written(&value);
                    self.load.has_read(client, &drawn.key, version);
                    Found::Value { id, version, intact }
                }
                Outcome::Done(Reply::Absent) => Found::Absent,
                Outcome::Done(Reply::Lost) => Found::Lost,
                Outcome::Done(other) => return Err(of_another_kind(now, &other)),
                Outcome::Refused(_) | Outcome::Unknown(_) => return Ok(()),
            };
            return self.promise.read(&drawn.key, start, now, found);
        };
        let ended = match outcome {
            Outcome::Done(Reply::Stored { version, .. }) => Ended::Acked { version: Some(version) },
            Outcome::Done(Reply::Removed(true) | Reply::Touched(true)) => Ended::Acked { version: None },
            Outcome::Done(Reply::Removed(false) | Reply::Touched(false)) => {
                // Nothing was there, so nothing was written: as a read that found nothing.
                self.promise.end(&drawn.key, id, now, Ended::NotStored)?;
                return self.promise.read(&drawn.key, start, now, Found::Absent);
            }
            Outcome::Done(Reply::NotStored { .. }) => Ended::NotStored,
            Outcome::Done(other) => return Err(of_another_kind(now, &other)),
            Outcome::Refused(_) => Ended::Refused,
            Outcome::Unknown(_) => Ended::Unknown,
        };
        self.promise.end(&drawn.key, id, now, ended)
    }
}

fn of_another_kind(at: Time, reply: &Reply) -> Broken {
    Broken { promise: "an answer is to its question", at, what: format!("{reply:?}") }
}

/// A reply in a few words: values by their write.
fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Value { value, version, .. } => format!("v{} {version}", load::written(value).0),
        Reply::Stored { version, .. } => format!("stored {version}"),
        Reply::NotStored { .. } => "not stored".into(),
        Reply::Absent => "absent".into(),
        Reply::Lost => "lost".into(),
        Reply::Removed(was) => format!("removed {was}"),
        Reply::OtherKind(kind) => format!("a {kind:?}"),
        Reply::Touched(was) => format!("touched {was}"),
        Reply::BadCookie(error) => format!("{} cookie", error.name()),
        Reply::Count(n) => format!("count {n}"),
        Reply::Page { cursor, keys } => format!("page {cursor} {}", keys.len()),
    }
}
