//! Numbers of objects that lie at nodes which come and go: any node numbers at any time, in the steps of `sdk::Ledger::number`, several at
//! once, and some die between two steps. Readers know numbers and changes alone. What is promised of that (docs/design/object.md):
//!
//! - M1 A number is of one object for ever, and none comes below one that a reader was shown as next.
//! - M2 Who follows by changes has the list.
//! - M3 What was acknowledged, and deleted by nobody, is in the list once when all nodes are back.
//! - M4 What was removed is never numbered again.
//!
//! Each has a planted bug, with which some histories break it.

use std::collections::{BTreeMap, BTreeSet};

use base::Rng;
use cluster::raft::State as _;

use super::ledger_tests::{Desk, id, items, numbers, said};
use super::*;

const NODES: usize = 3;
const STEPS: usize = 600;
const HOUR_MS: u64 = 3_600_000;
const WEEK_MS: u64 = 7 * 24 * HOUR_MS;
/// Added to the name of an object that is taken for another one.
const OTHER: u32 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    /// M1: a node that is cut off from the others numbers, too.
    TwoSides,
    /// M2: removals are not told.
    Untold,
    /// M3: what is added again, as the answer was lost, is added once more.
    Again,
    /// M3: it is kept that an object has a number before it has one.
    Settles,
    /// M3: what is out of sight is taken for deleted.
    Expunges,
    /// M4: a removal is closed while not all nodes know of it, and so forgotten by time alone.
    Forgets,
}

#[derive(Clone, Default)]
struct Node {
    has: BTreeSet<u32>,
    gone: BTreeSet<u32>,
    /// Nobody reaches it, since then.
    away: Option<u64>,
}

/// A node that numbers, between two steps.
#[derive(Default)]
struct Numberer {
    step: u32,
    known: BTreeSet<u32>,
    there: BTreeSet<u32>,
    is_all: bool,
    fresh: Vec<u32>,
    back: BTreeSet<u32>,
}

/// Somebody who has the list, and follows it.
#[derive(Default)]
struct Reader {
    change: u64,
    list: BTreeMap<u32, u32>,
    next: u64,
}

struct History {
    rng: Rng,
    bug: Option<Bug>,
    desk: Desk,
    /// That of the side without a majority, where there is one.
    other: Option<Desk>,
    nodes: Vec<Node>,
    numberers: Vec<Numberer>,
    readers: Vec<Reader>,
    clock: u64,
    last: u32,
    acknowledged: BTreeSet<u32>,
    /// Somebody asked to have these deleted.
    deleted: BTreeSet<u32>,
    /// Objects that ever got a number.
    numbered: BTreeSet<u32>,
    /// Taken for numbered ([`Bug::Settles`]).
    settled: BTreeSet<u32>,
}

fn desk() -> Desk {
    let mut desk = Desk::default();
    desk.says("ledger.folder.create", "INBOX 1");
    desk
}

fn listed(desk: &mut Desk) -> (u64, BTreeMap<u32, u32>) {
    let Reply::List(page) = desk.ask("ledger.list", &["1", "0", "1000"]) else { panic!("it has a folder") };
    assert_eq!(page[2], Reply::Int(0), "that is all");
    let list = items(&page[1]).into_iter().map(|(number, (object, ..))| (number, object)).collect();
    (said(&page[0]).parse().unwrap(), list)
}

impl Reader {
    fn sync(&mut self, desk: &mut Desk, bug: Option<Bug>) {
        match desk.ask("ledger.changes", &["1", &self.change.to_string(), "0", "1000"]) {
            Reply::List(page) => {
                let removed = numbers(&said(&page[2]));
                if bug != Some(Bug::Untold) {
                    self.list.retain(|number, _| !removed.contains(number));
                }
                for (number, (object, ..)) in items(&page[1]) {
                    let known = self.list.insert(number, object);
                    assert!(known.is_none_or(|known| known == object), "M1: {number} is of {known:?} and of {object}");
                    assert!(known.is_some() || u64::from(number) >= self.next, "M1: {number} is below {}", self.next);
                }
                self.change = said(&page[0]).parse().unwrap();
            }
            _ => (self.change, self.list) = listed(desk),
        }
        let Reply::List(now) = desk.ask("ledger.numbers", &["1"]) else { panic!("it has a folder") };
        self.next = said(&now[1]).parse().unwrap();
        assert_eq!(self.list, listed(desk).1, "M2: who follows has the list");
    }
}

impl History {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
        Self {
            rng: Rng::new(seed),
            bug,
            desk: desk(),
            other: None,
            nodes: vec![Node::default(); NODES],
            numberers: Vec::new(),
            readers: vec![],
            clock: 0,
            last: 0,
            acknowledged: BTreeSet::new(),
            deleted: BTreeSet::new(),
            numbered: BTreeSet::new(),
            settled: BTreeSet::new(),
        }
    }

    fn pick(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    fn reached(&mut self) -> Vec<&mut Node> {
        self.nodes.iter_mut().filter(|node| node.away.is_none()).collect()
    }

    /// On two nodes, or on the one that is cut off.
    fn put(&mut self) {
        self.last += 1;
        let (n, at) = (self.last, self.pick(NODES));
        self.nodes[at].has.insert(n);
        if self.nodes[at].away.is_none() {
            let mut others = (0..NODES).filter(|other| *other != at && self.nodes[*other].away.is_none());
            if let Some(other) = others.next_back() {
                self.nodes[other].has.insert(n);
            }
        }
        self.acknowledged.insert(n);
    }

    /// At all nodes that are reached; others hear of it when they are back.
    fn delete(&mut self, n: u32) {
        for node in self.reached() {
            node.has.remove(&n);
            node.gone.insert(n);
        }
    }

    /// A client of the ledger does it.
    fn expunge(&mut self) {
        let all: Vec<(u32, u32)> = listed(&mut self.desk).1.into_iter().collect();
        if all.is_empty() {
            return;
        }
        let (number, object) = all[self.pick(all.len())];
        self.desk.says("ledger.remove", &format!("1 0 {number}"));
        self.deleted.insert(object % OTHER);
    }

    fn goes(&mut self) {
        let live: Vec<usize> = (0..NODES).filter(|at| self.nodes[*at].away.is_none()).collect();
        if live.len() == NODES {
            let at = live[self.pick(NODES)];
            self.nodes[at].away = Some(self.clock);
            if self.bug == Some(Bug::TwoSides) {
                let space = Space::from_parts(self.desk.space.parts().0.collect()).expect("it was just written");
                self.other = Some(Desk { space });
            }
        }
    }

    fn is_back(&mut self) {
        self.other = None;
        self.nodes.iter_mut().for_each(|node| node.away = None);
    }

    /// Each hears of deletions that it missed, some time after it is back.
    fn settle(&mut self) {
        let gone: BTreeSet<u32> = self.reached().iter().flat_map(|node| node.gone.iter().copied()).collect();
        for node in self.reached() {
            node.has.retain(|n| !gone.contains(n));
            node.gone.extend(&gone);
        }
    }

    /// One step of a node that numbers; true: that was the last.
    fn number_on(&mut self, of: &mut Numberer) -> bool {
        of.step += 1;
        match of.step {
            1 => of.known = listed(&mut self.desk).1.into_values().map(|object| object % OTHER).collect(),
            2 => {
                of.is_all = self.reached().len() == NODES;
                of.there = self.reached().iter().flat_map(|node| node.has.iter().copied()).collect();
                let known = if self.bug == Some(Bug::Settles) { &self.settled } else { &of.known };
                of.fresh = of.there.difference(known).copied().collect();
                if self.bug == Some(Bug::Settles) {
                    self.settled.extend(&of.fresh);
                }
            }
            3 => self.add(of),
            4 => {
                // It asks again, as the answer was lost.
                if self.pick(4) == 0 {
                    self.add(of);
                }
            }
            5 => self.finish(of),
            _ => {
                if of.is_all || self.bug == Some(Bug::Expunges) {
                    let is_gone = |n: &&u32| self.nodes.iter().any(|node| node.gone.contains(n));
                    let lost = of.known.difference(&of.there);
                    let lost: Vec<String> =
                        lost.filter(|n| self.bug == Some(Bug::Expunges) || is_gone(n)).map(|n| id(*n)).collect();
                    if !lost.is_empty() {
                        self.desk.says("ledger.remove-objects", &lost.join(" "));
                    }
                }
                return true;
            }
        }
        false
    }

    fn add(&mut self, of: &mut Numberer) {
        if of.fresh.is_empty() {
            return;
        }
        let again = if self.bug == Some(Bug::Again) && of.step == 4 { OTHER } else { 0 };
        let args: String = of.fresh.iter().map(|n| format!("{} 1 1 1 0 ", id(*n + again))).collect();
        let Reply::List(added) = self.desk.ask("ledger.add", &args.split_whitespace().collect::<Vec<_>>()) else {
            panic!("it is told of each")
        };
        for (n, added) in of.fresh.iter().zip(&added) {
            match said(added) {
                new if new.starts_with("[new") => {
                    assert!(again > 0 || self.numbered.insert(*n), "M4: {n} is numbered again");
                }
                gone if gone == "[gone]" => drop(of.back.insert(*n)),
                _ => (),
            }
        }
    }

    /// Deletes what the ledger has removed, and closes what no node has any more, if all nodes were asked.
    fn finish(&mut self, of: &mut Numberer) {
        let open = self.desk.ask("ledger.open", &["first", &id(0), "256"]);
        let open: BTreeSet<u32> = said(&open)
            .trim_matches(['[', ']'])
            .split_whitespace()
            .map(|text| u128::from_str_radix(text, 16).unwrap() as u32)
            .collect();
        of.back.extend(&open);
        std::mem::take(&mut of.back).into_iter().for_each(|n| self.delete(n % OTHER));
        let is_over = |n: &&u32| !of.there.contains(n) || self.bug == Some(Bug::Forgets);
        if of.is_all || self.bug == Some(Bug::Forgets) {
            let close: Vec<String> = open.iter().filter(is_over).map(|n| id(*n)).collect();
            if !close.is_empty() {
                self.desk.says("ledger.close", &close.join(" "));
            }
            if self.bug == Some(Bug::Forgets) {
                self.clock += crate::limits::LEDGER_GONE_MS;
            }
        }
    }

    fn tick(&mut self) {
        // Minutes, and now and then days, over which nobody numbers.
        let is_long = self.rng.chance(0.02);
        self.clock += if is_long { HOUR_MS * self.rng.between(12, 72) } else { self.rng.below(HOUR_MS / 6) };
        if is_long {
            self.numberers.clear();
        }
        let batch = crate::wire::Batch { clock: self.clock, ..crate::wire::Batch::default() };
        self.desk.space.apply(1, crate::wire::encode_batch(&batch).into(), &mut Vec::new());
        // Who is away for a week enters anew, without what it had: of that nothing is said here.
        if self.nodes.iter().any(|node| node.away.is_some_and(|since| self.clock - since > WEEK_MS)) {
            self.is_back();
        }
    }

    fn step(&mut self) {
        self.tick();
        match self.pick(20) {
            0..5 => self.put(),
            5 if self.last > 0 => {
                let n = 1 + self.pick(self.last as usize) as u32;
                self.deleted.insert(n);
                self.delete(n);
            }
            6 => self.expunge(),
            7 => self.goes(),
            8 if self.pick(3) == 0 => self.is_back(),
            9 => self.settle(),
            10 if self.numberers.len() < 3 => self.numberers.push(Numberer::default()),
            11 if self.readers.len() < 4 => self.readers.push(Reader::default()),
            12..14 if !self.readers.is_empty() => {
                let at = self.pick(self.readers.len());
                let desk = match &mut self.other {
                    Some(other) if self.rng.chance(0.5) => other,
                    _ => &mut self.desk,
                };
                self.readers[at].sync(desk, self.bug);
            }
            14 if self.other.is_some() => self.number_aside(),
            15 => drop(self.numberers.pop()),
            _ if !self.numberers.is_empty() => {
                let at = self.pick(self.numberers.len());
                let mut of = self.numberers.swap_remove(at);
                if !self.number_on(&mut of) {
                    self.numberers.push(of);
                }
            }
            _ => (),
        }
    }

    /// The node that is cut off gives numbers to what it has.
    fn number_aside(&mut self) {
        let Some(other) = &mut self.other else { return };
        let known: BTreeSet<u32> = listed(other).1.into_values().collect();
        let aside = self.nodes.iter().find(|node| node.away.is_some());
        let fresh = aside.into_iter().flat_map(|node| node.has.difference(&known));
        let args: String = fresh.map(|n| format!("{} 1 1 1 0 ", id(*n))).collect();
        if !args.is_empty() {
            other.says("ledger.add", &args);
        }
    }

    fn judge(mut self) {
        self.numberers.clear();
        self.is_back();
        self.settle();
        for _ in 0..3 {
            let mut last = Numberer::default();
            while !self.number_on(&mut last) {}
            self.settle();
        }
        let mut readers = std::mem::take(&mut self.readers);
        readers.iter_mut().for_each(|reader| reader.sync(&mut self.desk, self.bug));
        let mut count: BTreeMap<u32, usize> = BTreeMap::new();
        for object in listed(&mut self.desk).1.into_values() {
            *count.entry(object % OTHER).or_default() += 1;
        }
        assert!(count.values().all(|times| *times == 1), "M3: something is there twice");
        let stays: BTreeSet<u32> = self.acknowledged.difference(&self.deleted).copied().collect();
        let lost: Vec<&u32> = stays.iter().filter(|n| !count.contains_key(n)).collect();
        assert!(lost.is_empty(), "M3: {lost:?} have no number");
    }
}

fn run(seed: u64, bug: Option<Bug>) {
    let mut history = History::new(seed, bug);
    (0..STEPS).for_each(|_| history.step());
    assert!(history.acknowledged.len() > 50 && history.deleted.len() > 10, "it does something");
    history.judge();
}

#[test]
fn what_is_promised_of_numbers_holds() {
    (1..60).for_each(|seed| run(seed, None));
}

#[test]
fn each_of_these_promises_can_fail() {
    for (bug, promise) in [
        (Bug::TwoSides, "M1"),
        (Bug::Untold, "M2"),
        (Bug::Again, "M3"),
        (Bug::Settles, "M3"),
        (Bug::Expunges, "M3"),
        (Bug::Forgets, "M4"),
    ] {
        let broken = |seed| {
            let told = std::panic::catch_unwind(|| run(seed, Some(bug))).err()?;
            let text = told.downcast_ref::<String>().cloned();
            text.or_else(|| told.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        };
        let said: Vec<String> = (1..60).filter_map(broken).collect();
        assert!(said.iter().any(|text| text.contains(promise)), "{bug:?} does not break {promise}: {said:?}");
    }
}
