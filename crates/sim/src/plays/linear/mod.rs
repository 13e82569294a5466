//! Class `linear`: one namespace of one shard, and one whose shards are split now and then.

use std::collections::BTreeMap;

use base::checksum::place_hash_pair;
use base::{Outcome, Rng, Span, Time, Unknown};
use cluster::raft::LogBounds;
use node::{Answer, Ask};
use state::linear::limits::LOG;
use state::linear::{Op, Ran, Reply};
use uuid::Uuid;

use super::{Cast, Declared, Name, Spoils, priority};
use crate::operator::wide_shards;
use crate::promises::{Broken, SERVED_WITHIN};
use crate::stage::seen::Seen;
use crate::stage::{Asked, FILLED_AFTER, Flight, Heard, OpWords, Stage};
use load::{Act, LinearLoad, NAMESPACE, WIDE};
use promise::{Linear, ONCE};
use splits::{Can, Splits};

pub mod books;
pub mod bugs;
pub mod ends;
pub mod jobs;
pub mod load;
pub mod promise;
pub mod splits;
pub mod urns;

/// So long a group in memory may wait for a member whose disk went for ever while another lost its power: until the cluster
/// gives that one up (30 s from when the root group has a leader), and 10 s more.
const GIVEN_UP_AFTER: Span = Span::secs(120);
/// The same when the root group may have had no leader before faults ended.
const GIVEN_UP_IN_CALM: Span = Span::secs(50);
/// A client that has given a write an id asks so often in all.
const TRIES_MAX: u32 = 6;
/// What came of a write is known for so long at least, by its id: 5 minutes by the group's clock, which may jump by minutes.
const ID_KNOWN: Span = Span::secs(60);
const SHOWN_BYTES_MAX: usize = 64 << 10;

/// How long the logs of groups become in this round: in two of three so short that snapshots replace them all the time,
/// and that who was away for a moment needs one. It follows from the seed and is no draw.
pub fn log(seed: u64) -> LogBounds {
    match place_hash_pair(b"log", seed) % 3 {
        0 => LOG,
        1 => LogBounds { records_max: 300, bytes_max: 64 << 10, entries_kept: 16 },
        _ => LogBounds { records_max: 40, bytes_max: 8 << 10, entries_kept: 2 },
    }
}

/// An operation, perhaps asked several times.
#[derive(Clone)]
pub struct Tried {
    act: Act,
    budget: Span,
    /// The id that its client has given it.
    once: Option<Uuid>,
    /// When it was asked first, and how often.
    begun: Time,
    tries: u32,
    /// It may have happened when it was asked before ...
    in_doubt: bool,
    /// ... or its client knows what came of it, and asks again nevertheless.
    told: Option<Ran>,
}

pub struct Play {
    load: LinearLoad,
    /// What clients ask next, in place of something new.
    again: BTreeMap<usize, Tried>,
    promise: Linear,
    /// Likewise of the namespace with many shards.
    wide: Linear,
    /// Of that namespace.
    splits: Splits,
    is_on: bool,
}

impl super::Play for Play {
    const NAME: Name = Name::Linear;
    const BEGINS: Span = Span::secs(5);
    const ALWAYS: bool = true;
    type Act = Tried;
    type Bug = bugs::Bug;

    fn declares(declared: &Declared) -> String {
        let durability = if declared.memory { "memory" } else { "disk" };
        let shards = wide_shards(declared.mark);
        format!(
            "[namespace.{NAMESPACE}]\nclass = \"linear\"\ndurability = \"{durability}\"\n\
             [namespace.{WIDE}]\nclass = \"linear\"\ndurability = \"{durability}\"\nshards = {shards}\n"
        )
    }

    fn new(cast: &mut Cast, is_on: bool) -> Self {
        Self {
            load: LinearLoad::new(cast.rng.fork()),
            again: BTreeMap::new(),
            promise: Linear::default(),
            wide: Linear::wide(),
            splits: Splits::default(),
            is_on,
        }
    }

    fn clients(&self) -> usize {
        if self.is_on { self.load.clients() } else { 0 }
    }

    fn ask(&mut self, client: usize, stage: &mut Stage) {
        let (now, token, nodes) = (stage.now(), Self::NAME.token(client), stage.warm());
        if nodes.is_empty() {
            return stage.nobody(token);
        }
        let node = nodes[self.load.choose(client, nodes.len())];
        let tried = match self.again.remove(&client) {
            Some(again) => Tried { tries: again.tries + 1, ..again },
            None => {
                let (act, budget) = self.load.draw(client);
                let once = self.load.name(client, &act, now);
                self.promise_of(&act).begin(&act, now);
                Tried { act, budget, once, begun: now, tries: 1, in_doubt: false, told: None }
            }
        };
        let priority = priority(stage.seed, token, now);
        let (budget, op) = (tried.budget, Op { once: tried.once, priority, ..tried.act.op(tried.tries) });
        let must = stage.must_serve() && !waits_for_memory(stage);
        stage.send(token, node, budget, Ask::Linear(op), must, Asked::Play(super::Act::Linear(tried)));
    }

    fn end(&mut self, flight: &Flight, tried: &Tried, heard: Heard, stage: &mut Stage) -> Result<(), Broken> {
        let outcome = match heard {
            None => None,
            Some(Answer::Linear(outcome)) => Some(outcome),
            Some(other) => return Err(stage.another_kind(&other)),
        };
        let arg = format!("{:?} {:?}", tried.act, tried.once);
        let words = OpWords { op: tried.act.name(), key: tried.act.key(), arg };
        stage.close(flight, &words, outcome.as_ref(), shown);
        let (_, client) = Name::of(flight.client);
        stage.goes_on(flight.client, self.load.pause(client));
        let outcome = match outcome {
            None => Outcome::Unknown(Unknown { why: "its node died".into() }),
            Some(outcome) => {
                // Before all nodes have shown that they agree on it.
                let is_too_new = tried.act.is_newer() && !stage.all_agree();
                // Nothing of an old id is done any more, and nobody knows whether it was.
                let is_old = tried.tries > 1
                    && flight.start.since(tried.begun) > ID_KNOWN
                    && matches!(outcome, Outcome::Unknown(_));
                stage.must_be_done(flight, &outcome, is_too_new || is_old, || format!("{:?}", tried.act))?;
                outcome
            }
        };
        self.judge(client, tried, outcome, stage)
    }

    /// As many shards are made as are declared, one after the other.
    fn tick(&mut self, stage: &mut Stage) -> Result<(), Broken> {
        let now = stage.now();
        let shown = |seen: &Seen| (seen.splits, seen.mark.map_or(0, |mark| wide_shards(mark) - 1));
        let (made, declared) = stage.seen.iter().map(shown).max().unwrap_or_default();
        let calm = stage.calm_for().is_some_and(|calm| calm > SERVED_WITHIN);
        let disk_lost = waits_for_memory(stage) || stage.emptied.values().any(|at| now.since(*at) <= GIVEN_UP_AFTER);
        let can = match stage.groups_are_whole() {
            true if calm => Can::Begin,
            false if calm && !disk_lost => Can::End,
            _ => Can::Nothing,
        };
        self.splits.check(now, can, made, declared)
    }

    fn count(&self, stage: &Stage, ops: &mut BTreeMap<String, u64>) {
        ops.insert("linear judged".into(), self.promise.judged);
        ops.insert("shards judged".into(), self.wide.judged);
        let splits = stage.seen.iter().map(|seen| seen.splits).max().unwrap_or(0);
        ops.insert("shards made by splits".into(), splits);
    }

    fn plant(bug: bugs::Bug, rng: Rng) -> Box<dyn Spoils> {
        Box::new(bugs::Spoiler::of(bug, rng))
    }
}

impl Play {
    fn promise_of(&mut self, act: &Act) -> &mut Linear {
        if act.is_wide() { &mut self.wide } else { &mut self.promise }
    }

    /// Judges it when its client knows what came of it, or asks no more.
    fn judge(&mut self, client: usize, tried: &Tried, outcome: Outcome<Ran>, stage: &Stage) -> Result<(), Broken> {
        let now = stage.now();
        let may_again = tried.once.is_some() && tried.tries < TRIES_MAX;
        let outcome = match (outcome, &tried.told) {
            (Outcome::Done(ran), Some(told)) if ran != *told => {
                let what = format!("{:?} was {told:?}, and is {ran:?} when it is asked again", tried.act);
                return Err(Broken { promise: ONCE, at: now, what });
            }
            (_, Some(_)) => return Ok(()),
            (Outcome::Unknown(_), None) if may_again => {
                self.again.insert(client, Tried { in_doubt: true, ..tried.clone() });
                return Ok(());
            }
            (Outcome::Refused(refused), None) if tried.in_doubt => {
                if may_again && refused.retry_after.is_some() {
                    self.again.insert(client, tried.clone());
                    return Ok(());
                }
                Outcome::Unknown(Unknown { why: refused.why })
            }
            (outcome, None) => outcome,
        };
        if let Outcome::Done(ran) = &outcome {
            self.has_heard(client, &tried.act, ran);
            if tried.once.is_some() && self.load.doubts(client) {
                self.again.insert(client, Tried { told: Some(ran.clone()), ..tried.clone() });
            }
        }
        let calm_since = stage.calm_for().map(|_| stage.phase_since + SERVED_WITHIN);
        let promise = self.promise_of(&tried.act);
        promise.calm_since(calm_since);
        promise.end(&tried.act, tried.begun, now, &outcome)
    }

    /// What a client remembers of an answer.
    fn has_heard(&mut self, client: usize, act: &Act, ran: &Ran) {
        match act {
            Act::Get { key } => {
                if let Some(version) = Linear::version_of(ran) {
                    self.load.has_read(client, key, version);
                }
            }
            Act::Watch { .. } => {
                if let Some(upto) = Linear::upto(ran) {
                    self.load.has_watched(client, upto);
                }
            }
            Act::TakeJobs { queue, .. } => {
                if let Ran::Done(replies) = ran
                    && let [Reply::List(given)] = &replies[..]
                {
                    let tickets = given.iter().filter_map(jobs::ticket_of);
                    tickets.for_each(|(ticket, _)| self.load.has_taken(client, queue, ticket));
                }
            }
            Act::Claim { lease, .. } => {
                if let Ran::Done(replies) = ran
                    && let [Reply::Int(token)] = replies[..]
                {
                    self.load.has_claimed(client, lease, token as u64);
                }
            }
            _ => (),
        }
    }
}

/// Two of a group in memory failed in a row: one's disk went for ever, and then another's power (by now, anybody's).
fn waits_for_memory(stage: &Stage) -> bool {
    let now = stage.now();
    // Groups that were whole since have no member any more that is gone.
    let not_whole_since = |at: Time| stage.whole_at < at + FILLED_AFTER;
    let calm_began = stage.calm_for().is_some_and(|calm| calm <= GIVEN_UP_IN_CALM);
    let waits = |at: Time| now.since(at) <= GIVEN_UP_AFTER || (calm_began && not_whole_since(at));
    let since = stage.emptied.values().filter(|at| waits(**at)).min();
    let lost_power = since.is_some_and(|at| stage.power_lost.is_some_and(|lost| lost + FILLED_AFTER > *at));
    stage.memory && lost_power && !stage.groups_are_whole()
}

/// What came of it; of a large value only its begin.
fn shown(ran: &Ran) -> String {
    let is_large = |reply: &Reply| reply.bytes() > SHOWN_BYTES_MAX;
    match ran {
        Ran::Done(replies) if replies.iter().any(is_large) => {
            format!("version {} of a large value", Linear::newest_in(ran))
        }
        ran => format!("{ran:?}"),
    }
}
