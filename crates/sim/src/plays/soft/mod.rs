//! Class `soft`, and when all nodes are compared: some seconds after faults have ended, while its clients wait.

use std::collections::{BTreeMap, BTreeSet};

use base::{Outcome, Rng, Span, Time};
use bytes::Bytes;
use node::{Answer, Ask};
use state::soft::{Action, Kind, Op, Reply};

use super::{Cast, Declared, Mishap, Name, Spoils, priority};
use crate::promises::{Broken, EQUAL_WITHIN};
use crate::stage::{Asked, FILLED_AFTER, Flight, Heard, OpWords, Stage};
use load::{FLOOR, LOFT, Look, SoftLoad};
use promise::{Soft, State};

pub mod bugs;
pub mod load;
pub mod promise;

/// A node that has just started is not compared.
const YOUNG: Span = Span::secs(10);
/// What was acknowledged before so much quiet is everywhere.
const SPREADS_WITHIN: Span = Span::secs(3);
/// A machine that saw nobody so long before or after it answered may have acknowledged by itself.
const ALONE_AROUND: Span = Span::secs(3);
const LOOK_BUDGET: Span = Span::secs(2);
/// Until a client that has to wait tries again.
const WAITS: Span = Span::millis(500);

/// Where it is kept what each life of a node holds.
const HELD: &str = "here";
/// That is asked for again after so long.
const HOLD_AGAIN: Span = Span::secs(5);

/// Nodes that are being compared.
#[derive(Default)]
struct Looks {
    /// Since faults have ended all nodes were compared.
    done: bool,
    /// Answers so far, by node and question.
    answers: BTreeMap<(usize, usize), Outcome<Reply>>,
    under_way: usize,
    holds: Holds,
}

/// What lives hold: when each was last asked for, and those that are held.
#[derive(Default)]
struct Holds {
    asked: BTreeMap<(usize, Time), Time>,
    held: BTreeSet<(usize, Time)>,
}

/// What is asked of a node.
#[derive(Clone, Debug)]
pub enum Act {
    /// A client asked for it.
    Do(load::Act),
    /// All that a node has: its number, and the how manieth question.
    Look(usize, usize),
    /// Something that is there as long as this life of the node, which began then.
    Hold(usize, Time),
}

pub struct Play {
    load: SoftLoad,
    promise: Soft,
    looks: Looks,
}

impl super::Play for Play {
    const NAME: Name = Name::Soft;
    const BEGINS: Span = Span::secs(6);
    type Act = Act;
    type Bug = bugs::Bug;

    fn is_in(seed: u64) -> bool {
        load::is_in(seed)
    }

    fn declares(_: &Declared) -> String {
        format!("[namespace.{FLOOR}]\nclass = \"soft\"\n[namespace.{LOFT}]\nclass = \"soft\"\ncopies = 1\n")
    }

    fn new(cast: &mut Cast, is_on: bool) -> Self {
        let load = SoftLoad::new(cast.seed, is_on);
        Self { load, promise: Soft::of(cast.nodes), looks: Looks::default() }
    }

    fn clients(&self) -> usize {
        self.load.clients()
    }

    fn ask(&mut self, client: usize, stage: &mut Stage) {
        let (now, token) = (stage.now(), Self::NAME.token(client));
        // What a node of the cluster has said of the past nobody can tell from what was.
        if stage.has_lied {
            return;
        }
        let lives: Vec<(usize, Time)> = stage.warm().into_iter().map(|node| (node, stage.seen[node].since)).collect();
        let agreed = stage.all_agree();
        lives.iter().filter(|_| agreed).for_each(|(node, _)| self.hold(*node, stage));
        // Nodes are compared in peace.
        if lives.is_empty() || stage.calm_for().is_some() && !self.looks.done {
            return stage.world.alarm(WAITS, token);
        }
        let by = self.load.choose(client, &lives);
        let (act, budget) = self.load.draw(client);
        let op = Op { priority: priority(stage.seed, token, now), ..act.op() };
        self.promise.begin(&act, by, now);
        // While programs of two levels run lists are refused.
        let must = stage.must_serve() && (stage.all_agree() || load::kind(act.key()) != Kind::Item);
        stage.send(token, by.0, budget, Ask::Soft(op), must, doing(Act::Do(act)));
    }

    fn end(&mut self, flight: &Flight, act: &Act, heard: Heard, stage: &mut Stage) -> Result<(), Broken> {
        let outcome = match heard {
            None => None,
            Some(Answer::Soft(outcome)) => Some(outcome),
            Some(other) => return Err(stage.another_kind(&other)),
        };
        let words = match act {
            Act::Do(act) => OpWords { op: act.name(), key: act.key(), arg: format!("{act:?}") },
            Act::Look(..) => OpWords::bare("soft-look"),
            Act::Hold(..) => OpWords::bare("soft-hold"),
        };
        stage.close(flight, &words, outcome.as_ref(), |reply| format!("{reply:?}"));
        match act {
            Act::Do(act) => self.done(flight, act, outcome, stage),
            Act::Look(node, nth) => self.looked(*node, *nth, outcome, stage),
            Act::Hold(node, since) => {
                self.holds(*node, *since, outcome.as_ref());
                Ok(())
            }
        }
    }

    fn excuse(&mut self, node: usize, mishap: Mishap, _: &mut Stage) {
        if mishap == Mishap::Died {
            self.promise.died(node);
        }
    }

    /// Nodes are compared once after each end of faults.
    fn turn(&mut self) {
        self.looks = Looks { holds: std::mem::take(&mut self.looks.holds), ..Looks::default() };
    }

    /// With each tick: what is everywhere by now, and whether it is time to compare.
    fn tick(&mut self, stage: &mut Stage) -> Result<(), Broken> {
        if self.load.clients() == 0 || stage.has_lied {
            return Ok(());
        }
        let (now, machines) = (stage.now(), stage.world.machines());
        let quiet = stage.quiet_since;
        let settled = |node: usize| {
            let seen = &stage.seen[node];
            stage.world.is_running(node) && seen.soft_settled && now.since(seen.since.max(quiet)) > FILLED_AFTER
        };
        let well: Vec<usize> = (0..machines).filter(|node| settled(*node)).collect();
        if well.len() == machines && now.since(quiet) > FILLED_AFTER {
            self.promise.is_everywhere(Time(now.0.saturating_sub(SPREADS_WITHIN.0)), now, machines);
        }
        well.into_iter().for_each(|node| self.promise.has_all(node));
        let is_due = stage.calm_for().is_some_and(|calm| calm >= EQUAL_WITHIN);
        let asks =
            stage.flights.values().any(|flight| matches!(flight.what, Asked::Play(super::Act::Soft(Act::Do(_)))));
        if !is_due || self.looks.done || self.looks.under_way > 0 || asks {
            return Ok(());
        }
        let old = |node: &usize| {
            stage.world.is_running(*node) && now.since(stage.seen[*node].since) > YOUNG.min(EQUAL_WITHIN)
        };
        for node in (0..machines).filter(old).collect::<Vec<_>>() {
            let held = Action::All { kind: Kind::Member, key: HELD.into() };
            let looks = load::looks(self.load.clients()).into_iter().map(|look| look.op());
            for (nth, op) in looks.chain([Op::of(FLOOR.into(), held)]).enumerate() {
                let what = doing(Act::Look(node, nth));
                stage.send(Name::Soft.token(0), node, LOOK_BUDGET, Ask::Soft(op), false, what);
                self.looks.under_way += 1;
            }
        }
        Ok(())
    }

    fn count(&self, _: &Stage, ops: &mut BTreeMap<String, u64>) {
        ops.insert("soft judged".into(), self.promise.judged);
    }

    fn plant(bug: bugs::Bug, rng: Rng) -> Box<dyn Spoils> {
        Box::new(bugs::Spoiler { bug, rng })
    }
}

impl Play {
    /// Each life of a node holds something of its own.
    fn hold(&mut self, node: usize, stage: &mut Stage) {
        let (now, since) = (stage.now(), stage.seen[node].since);
        let is_late = self.looks.holds.asked.get(&(node, since)).is_none_or(|at| now.since(*at) > HOLD_AGAIN);
        if !is_late || self.looks.holds.held.contains(&(node, since)) {
            return;
        }
        self.looks.holds.asked.insert((node, since), now);
        let pairs = vec![(Bytes::from(mark(node, since)), None)];
        let action = Action::Hold { kind: Kind::Member, key: HELD.into(), pairs, holder: 1 };
        let ask = Ask::Soft(Op::of(FLOOR.into(), action));
        stage.send(Name::Soft.token(0), node, LOOK_BUDGET, ask, false, doing(Act::Hold(node, since)));
    }

    /// It is, unless it was refused.
    fn holds(&mut self, node: usize, since: Time, outcome: Option<&Outcome<Reply>>) {
        if let Some(Outcome::Done(_) | Outcome::Unknown(_)) = outcome {
            self.looks.holds.held.insert((node, since));
        }
    }

    fn done(
        &mut self,
        flight: &Flight,
        act: &load::Act,
        outcome: Option<Outcome<Reply>>,
        stage: &mut Stage,
    ) -> Result<(), Broken> {
        let (_, client) = Name::of(flight.client);
        stage.goes_on(flight.client, self.load.pause(client));
        let now = stage.now();
        let Some(outcome) = outcome else {
            self.promise.broken_off(act, now);
            return Ok(());
        };
        stage.must_be_done(flight, &outcome, false, || format!("{act:?}"))?;
        if stage.has_lied {
            return Ok(());
        }
        let seen = &stage.seen[flight.node];
        let seen_alone = seen.alone_at.is_some_and(|at| at + ALONE_AROUND > flight.start);
        self.promise.end(act, (flight.node, seen.since), now, &outcome, seen_alone)
    }

    /// What is held by those that live is there, and nothing else.
    fn judge_held(&self, node: usize, shown: &BTreeSet<String>, stage: &Stage) -> Result<(), Broken> {
        let now = stage.now();
        let is_old = |node: usize| stage.world.is_running(node) && now.since(stage.seen[node].since) > YOUNG;
        if !(0..stage.world.machines()).all(is_old) {
            return Ok(());
        }
        let lives = |(of, since): &(usize, Time)| stage.world.is_running(*of) && stage.seen[*of].since == *since;
        let must: BTreeSet<String> =
            self.looks.holds.held.iter().filter(|life| lives(life)).map(|l| mark(l.0, l.1)).collect();
        let may: BTreeSet<String> =
            self.looks.holds.asked.keys().filter(|life| lives(life)).map(|l| mark(l.0, l.1)).collect();
        if must.is_subset(shown) && shown.is_subset(&may) {
            return Ok(());
        }
        let what = format!("node {node} shows {shown:?} as held, those that live hold {must:?}");
        Err(Broken { promise: promise::HELD, at: now, what })
    }

    /// What a node shows; none if it died over it.
    fn looked(
        &mut self,
        node: usize,
        nth: usize,
        outcome: Option<Outcome<Reply>>,
        stage: &Stage,
    ) -> Result<(), Broken> {
        if let Some(outcome) = outcome {
            self.looks.answers.insert((node, nth), outcome);
        }
        self.looks.under_way = self.looks.under_way.saturating_sub(1);
        if self.looks.under_way > 0 || self.looks.answers.is_empty() {
            return Ok(());
        }
        let clients = self.load.clients();
        let looks = load::looks(clients);
        let mut shown: BTreeMap<usize, State> = BTreeMap::new();
        let mut orders: BTreeMap<String, BTreeMap<usize, Vec<String>>> = BTreeMap::new();
        for ((node, nth), outcome) in std::mem::take(&mut self.looks.answers) {
            let state = shown.entry(node).or_default();
            match (looks.get(nth), outcome) {
                (Some(Look::Registers(keys)), Outcome::Done(Reply::Values(values))) => {
                    let there = keys.iter().zip(values).filter_map(|(key, value)| Some((key, value?)));
                    state.extend(there.map(|(key, value)| ((key.clone(), String::new()), text(&value))));
                }
                (None, Outcome::Done(Reply::Pairs(pairs))) => {
                    let shown: BTreeSet<String> = pairs.iter().map(|(member, _)| text(member)).collect();
                    self.judge_held(node, &shown, stage)?;
                }
                (Some(Look::Collection(key)), Outcome::Done(Reply::Pairs(pairs))) => {
                    // Items are told by their places; here it is asked which there are, and in which order.
                    let kind = load::kind(key);
                    if kind == Kind::Item {
                        let items: Vec<String> = pairs.iter().filter_map(|(_, item)| item.as_ref()).map(text).collect();
                        state.extend(items.iter().map(|item| ((key.clone(), item.clone()), String::new())));
                        orders.entry(key.clone()).or_default().insert(node, items);
                        continue;
                    }
                    let pair = |(element, value): (bytes::Bytes, Option<bytes::Bytes>)| {
                        let value = value.map(|value| if kind == Kind::Score { score(&value) } else { text(&value) });
                        ((key.clone(), text(&element)), value.unwrap_or_default())
                    };
                    state.extend(pairs.into_iter().map(pair));
                }
                // A key of that kind is not there.
                (None | Some(Look::Collection(_)), Outcome::Done(Reply::WrongKind)) => (),
                (_, outcome) => {
                    let what = format!("node {node} was asked for all it has: {outcome:?}");
                    return Err(Broken { promise: promise::EQUAL, at: stage.now(), what });
                }
            }
        }
        self.looks.done = true;
        let now = stage.now();
        for (key, orders) in orders {
            let first = orders.values().next();
            if let Some((node, other)) = orders.iter().find(|(_, order)| Some(*order) != first) {
                let what = format!("{key} at node {node} is {other:?}, at another one {first:?}");
                return Err(Broken { promise: promise::EQUAL, at: now, what });
            }
        }
        self.promise.compare(now, &shown, clients, stage.world.machines())
    }
}

fn doing(act: Act) -> Asked {
    Asked::Play(super::Act::Soft(act))
}

fn text(bytes: &bytes::Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A score, eight bytes; here they are numbers of writes.
fn score(bytes: &bytes::Bytes) -> String {
    <[u8; 8]>::try_from(&bytes[..]).map_or_else(|_| text(bytes), |bits| f64::from_be_bytes(bits).to_string())
}

fn mark(node: usize, since: Time) -> String {
    format!("{node}-{}", since.0)
}
