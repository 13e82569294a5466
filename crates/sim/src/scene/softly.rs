//! Load of class `soft`, and when all nodes are compared: some seconds after faults have ended, while its clients wait.

use std::collections::{BTreeMap, BTreeSet};

use base::{Outcome, Span, Time};
use bytes::Bytes;
use node::Ask;
use state::soft::{Action, Kind, Op, Reply};

use super::{Asked, FILLED_AFTER, Flight, SOFT, Scene, WARM_UP};
use crate::load;
use crate::promises::soft::State;
use crate::promises::{Broken, EQUAL_WITHIN};
use crate::soft_load::{self, FLOOR, Look};

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
pub(super) struct Looks {
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

impl Scene {
    pub(super) fn ask_soft(&mut self, client: usize) {
        let now = self.world.now();
        let token = SOFT + client as u64;
        // What a node of the cluster has said of the past nobody can tell from what was.
        if self.has_lied {
            return;
        }
        let warm = |node: &usize| self.world.is_running(*node) && now.since(self.seen[*node].since) > WARM_UP;
        let lives: Vec<(usize, Time)> =
            (0..self.world.machines()).filter(warm).map(|node| (node, self.seen[node].since)).collect();
        let agreed = self.all_agree();
        lives.iter().filter(|_| agreed).for_each(|(node, _)| self.hold(*node));
        // Nodes are compared in peace.
        if lives.is_empty() || self.calm_for().is_some() && !self.looks.done {
            return self.world.alarm(WAITS, token);
        }
        let by = self.soft_load.choose(client, &lives);
        let (act, budget) = self.soft_load.draw(client);
        let op = Op { priority: load::priority(self.seed, token, now), ..act.op() };
        let id = self.world.ask(by.0, budget, Ask::Soft(op)).expect("the node was seen to run");
        self.answers.asked(id, by.0, now, budget, self.world.is_hung(by.0));
        self.soft.begin(&act, by, now);
        // While programs of two levels run lists are refused.
        let must = self.must_serve() && (self.all_agree() || soft_load::kind(act.key()) != Kind::Item);
        self.flights.insert(id, Flight { client: token, node: by.0, start: now, must, what: Asked::Soft(act) });
    }

    /// Each life of a node holds something of its own.
    fn hold(&mut self, node: usize) {
        let (now, since) = (self.world.now(), self.seen[node].since);
        let is_late = self.looks.holds.asked.get(&(node, since)).is_none_or(|at| now.since(*at) > HOLD_AGAIN);
        if !is_late || self.looks.holds.held.contains(&(node, since)) {
            return;
        }
        self.looks.holds.asked.insert((node, since), now);
        let pairs = vec![(Bytes::from(mark(node, since)), None)];
        let action = Action::Hold { kind: Kind::Member, key: HELD.into(), pairs, holder: 1 };
        let id =
            self.world.ask(node, LOOK_BUDGET, Ask::Soft(Op::of(FLOOR.into(), action))).expect("it was seen to run");
        self.answers.asked(id, node, now, LOOK_BUDGET, self.world.is_hung(node));
        let what = Asked::Hold(node, since);
        self.flights.insert(id, Flight { client: SOFT, node, start: now, must: false, what });
    }

    /// It is, unless it was refused.
    pub(super) fn holds(&mut self, node: usize, since: Time, outcome: &Outcome<Reply>) {
        if matches!(outcome, Outcome::Done(_) | Outcome::Unknown(_)) {
            self.looks.holds.held.insert((node, since));
        }
    }

    /// Faults have begun or ended.
    pub(super) fn soft_turn(&mut self) {
        self.looks = Looks { holds: std::mem::take(&mut self.looks.holds), ..Looks::default() };
    }

    pub(super) fn judge_soft(
        &mut self,
        flight: &Flight,
        act: &soft_load::Act,
        outcome: &Outcome<Reply>,
    ) -> Result<(), Broken> {
        if self.has_lied {
            return Ok(());
        }
        let (now, seen) = (self.world.now(), &self.seen[flight.node]);
        let seen_alone = seen.alone_at.is_some_and(|at| at + ALONE_AROUND > flight.start);
        self.soft.end(act, (flight.node, seen.since), now, outcome, seen_alone)
    }

    /// With each tick: what is everywhere by now, and whether it is time to compare.
    pub(super) fn tick_soft(&mut self) {
        if self.soft_load.clients() == 0 || self.has_lied {
            return;
        }
        let (now, machines) = (self.world.now(), self.world.machines());
        let quiet = self.quiet_since;
        let settled = |node: usize| {
            let seen = &self.seen[node];
            self.world.is_running(node) && seen.soft_settled && now.since(seen.since.max(quiet)) > FILLED_AFTER
        };
        let well: Vec<usize> = (0..machines).filter(|node| settled(*node)).collect();
        if well.len() == machines && now.since(quiet) > FILLED_AFTER {
            self.soft.is_everywhere(Time(now.0.saturating_sub(SPREADS_WITHIN.0)), now, machines);
        }
        well.into_iter().for_each(|node| self.soft.has_all(node));
        let is_due = self.calm_for().is_some_and(|calm| calm >= EQUAL_WITHIN);
        let asks = self.flights.values().any(|flight| matches!(flight.what, Asked::Soft(_)));
        if !is_due || self.looks.done || self.looks.under_way > 0 || asks {
            return;
        }
        let old =
            |node: &usize| self.world.is_running(*node) && now.since(self.seen[*node].since) > YOUNG.min(EQUAL_WITHIN);
        for node in (0..machines).filter(old).collect::<Vec<_>>() {
            let held = Action::All { kind: Kind::Member, key: HELD.into() };
            let looks = soft_load::looks(self.soft_load.clients()).into_iter().map(|look| look.op());
            for (nth, op) in looks.chain([Op::of(FLOOR.into(), held)]).enumerate() {
                let id = self.world.ask(node, LOOK_BUDGET, Ask::Soft(op)).expect("it was seen to run");
                self.answers.asked(id, node, now, LOOK_BUDGET, self.world.is_hung(node));
                let what = Asked::Look(node, nth);
                self.flights.insert(id, Flight { client: SOFT, node, start: now, must: false, what });
                self.looks.under_way += 1;
            }
        }
    }

    /// What is held by those that live is there, and nothing else.
    fn judge_held(&self, node: usize, shown: &BTreeSet<String>) -> Result<(), Broken> {
        let now = self.world.now();
        let is_old = |node: usize| self.world.is_running(node) && now.since(self.seen[node].since) > YOUNG;
        if !(0..self.world.machines()).all(is_old) {
            return Ok(());
        }
        let lives = |(of, since): &(usize, Time)| self.world.is_running(*of) && self.seen[*of].since == *since;
        let must: BTreeSet<String> =
            self.looks.holds.held.iter().filter(|life| lives(life)).map(|l| mark(l.0, l.1)).collect();
        let may: BTreeSet<String> =
            self.looks.holds.asked.keys().filter(|life| lives(life)).map(|l| mark(l.0, l.1)).collect();
        if must.is_subset(shown) && shown.is_subset(&may) {
            return Ok(());
        }
        let what = format!("node {node} shows {shown:?} as held, those that live hold {must:?}");
        Err(Broken { promise: crate::promises::soft::HELD, at: now, what })
    }

    /// What a node shows; none if it died over it.
    pub(super) fn looked(&mut self, node: usize, nth: usize, outcome: Option<Outcome<Reply>>) -> Result<(), Broken> {
        if let Some(outcome) = outcome {
            self.looks.answers.insert((node, nth), outcome);
        }
        self.looks.under_way = self.looks.under_way.saturating_sub(1);
        if self.looks.under_way > 0 || self.looks.answers.is_empty() {
            return Ok(());
        }
        let clients = self.soft_load.clients();
        let looks = soft_load::looks(clients);
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
                    self.judge_held(node, &shown)?;
                }
                (Some(Look::Collection(key)), Outcome::Done(Reply::Pairs(pairs))) => {
                    // Items are told by their places; here it is asked which there are, and in which order.
                    let kind = soft_load::kind(key);
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
                    return Err(Broken { promise: crate::promises::soft::EQUAL, at: self.world.now(), what });
                }
            }
        }
        self.looks.done = true;
        let now = self.world.now();
        for (key, orders) in orders {
            let first = orders.values().next();
            if let Some((node, other)) = orders.iter().find(|(_, order)| Some(*order) != first) {
                let what = format!("{key} at node {node} is {other:?}, at another one {first:?}");
                return Err(Broken { promise: crate::promises::soft::EQUAL, at: now, what });
            }
        }
        self.soft.compare(now, &shown, clients, self.world.machines())
    }
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
