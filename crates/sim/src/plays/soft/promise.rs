//! The `soft` class: some seconds after the last fault all nodes have the same; what was acknowledged is there or was superseded,
//! what was removed stays removed, sums are exact, and a client reads its own writes at the node that took them.
//!
//! The checker knows of each update when and where it was asked, and what came of it. It says what must be so, what must not, and
//! lets everything pass that a concurrent update, or one that nobody heard of, may have made. When all nodes were compared it
//! begins anew with what they had. An update that is at two nodes may be lost when two have died before it was everywhere.

use std::collections::{BTreeMap, BTreeSet};

use base::{Outcome, Span, Time};
use state::soft::Reply;

use super::load::{Act, WriteId, collections, counters, has_one_copy, is_counter, lent, own};
use crate::promises::Broken;

pub const EQUAL: &str = "all nodes have the same of class soft some seconds after the last fault";
pub const HELD: &str =
    "what is held of class soft is there as long as its holder lives, and some seconds after no more";
pub const KEPT: &str =
    "an acknowledged update of class soft is there or superseded, and what was removed stays removed";
pub const EXACT: &str = "what class soft has counted is exact";
pub const OWN: &str = "who wrote in class soft reads it at the same node";

pub const ENDS: &str = "what has ended of class soft is shown by nobody, and what has not is there";

/// Clocks of machines run a little fast or slow, and an end is seen to a moment after it has come.
const ENDS_WITHIN: Span = Span::secs(4);

/// A machine, and since when it runs.
pub type Life = (usize, Time);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Put,
    Remove,
    Add(i64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Under way, or nobody knows what came of it.
    Open,
    Acked,
    Refused,
}

#[derive(Clone, Debug)]
struct Update {
    id: WriteId,
    /// None: all of the key.
    element: Option<String>,
    what: What,
    by: Life,
    /// The machine had all that is known to be everywhere.
    held_all: bool,
    start: Time,
    end: Option<Time>,
    fate: Fate,
    /// Acknowledged by its machine alone, as it may have seen nobody else.
    alone: bool,
    /// Since when it is known to be everywhere.
    known: Option<Time>,
    /// Machines that have died since it began.
    failed: BTreeSet<usize>,
    may_be_lost: bool,
    /// After so long it is over.
    ends: Option<Span>,
    /// A machine has died since it began, and may have come back with another wall clock.
    has_died: bool,
}

impl Update {
    /// It happened, and nobody may have lost it.
    fn is_certain(&self) -> bool {
        self.fate == Fate::Acked && !self.may_be_lost
    }

    /// Whether this one, if it happened, has seen the other.
    fn saw(&self, other: &Self) -> bool {
        let here = other.by == self.by && other.end.is_some_and(|end| end <= self.start);
        let everywhere = self.held_all && other.known.is_some_and(|known| known <= self.start);
        self.id != other.id && (here || everywhere)
    }

    /// Whether this one may have seen the other.
    fn may_have_seen(&self, other: &Self) -> bool {
        self.id != other.id && self.fate != Fate::Refused && self.end.is_none_or(|end| end >= other.start)
    }
}

/// What all nodes have: values by key and element.
pub type State = BTreeMap<(String, String), String>;

#[derive(Default)]
pub struct Soft {
    /// Of each key, in the order in which they began.
    updates: BTreeMap<String, Vec<Update>>,
    /// So many deaths may lose an update that is not everywhere yet.
    losing: usize,
    /// Machines that have all that is known to be everywhere.
    holders: BTreeSet<usize>,
    /// The last write of each register that was acknowledged, and where.
    wrote: BTreeMap<String, (Life, WriteId)>,
    pub judged: u64,
}

impl Soft {
    /// For a cluster of so many nodes.
    pub fn of(nodes: usize) -> Self {
        Self { losing: nodes.min(2), holders: (0..nodes).collect(), ..Self::default() }
    }

    pub fn begin(&mut self, act: &Act, by: Life, start: Time) {
        let (id, element, what) = match act {
            Act::Put { element, id, .. } => (*id, Some(element.clone()), What::Put),
            Act::Take { element, id, .. } => (*id, Some(element.clone()), What::Remove),
            Act::Clear { id, .. } => (*id, None, What::Remove),
            Act::Add { by, id, .. } => (*id, Some(String::new()), What::Add(*by)),
            Act::Set { id, .. } => (*id, Some(String::new()), What::Put),
            Act::Lend { id, .. } => (*id, Some(String::new()), What::Put),
            Act::Get { .. } => return,
        };
        let ends = if let Act::Lend { ends, .. } = act { Some(*ends) } else { None };
        self.updates.entry(act.key().to_owned()).or_default().push(Update {
            id,
            element,
            what,
            by,
            held_all: self.holders.contains(&by.0),
            start,
            end: None,
            fate: Fate::Open,
            alone: false,
            known: None,
            failed: BTreeSet::new(),
            may_be_lost: false,
            ends,
            has_died: false,
        });
    }

    /// `alone`: its machine may have taken itself for the only one.
    pub fn end(&mut self, act: &Act, by: Life, now: Time, outcome: &Outcome<Reply>, alone: bool) -> Result<(), Broken> {
        let Some(id) = act.id() else { return self.read(act.key(), by, now, outcome) };
        let updates = self.updates.get_mut(act.key()).expect("what ends began");
        let update = updates.iter_mut().find(|update| update.id == id).expect("what ends began");
        update.end = Some(now);
        update.alone |= alone || has_one_copy(act.key());
        match outcome {
            Outcome::Done(Reply::Int(_) | Reply::Done) => update.fate = Fate::Acked,
            Outcome::Done(other) => {
                return Err(Broken { promise: KEPT, at: now, what: format!("{act:?} gave {other:?}") });
            }
            Outcome::Refused(_) => update.fate = Fate::Refused,
            Outcome::Unknown(_) => (),
        }
        if let (Act::Set { key, .. }, Outcome::Done(_)) = (act, outcome) {
            self.wrote.insert(key.clone(), (by, id));
        }
        Ok(())
    }

    /// The machine died before it answered. It may have happened, not later than now.
    pub fn broken_off(&mut self, act: &Act, now: Time) {
        let all = self.updates.get_mut(act.key()).into_iter().flatten();
        all.filter(|update| act.id() == Some(update.id)).for_each(|update| update.end = Some(now));
    }

    fn read(&mut self, key: &str, by: Life, at: Time, outcome: &Outcome<Reply>) -> Result<(), Broken> {
        let broken = |what: String| Err(Broken { promise: OWN, at, what: format!("{key}: {what}") });
        let value = match outcome {
            Outcome::Done(Reply::Values(values)) => values.first().cloned().flatten(),
            Outcome::Done(other) => return broken(format!("a read gave {other:?}")),
            Outcome::Refused(_) | Outcome::Unknown(_) => return Ok(()),
        };
        let Some(&(life, last)) = self.wrote.get(key) else { return Ok(()) };
        if life != by {
            return Ok(());
        }
        self.judged += 1;
        let shown = value.as_deref().and_then(number);
        // What the client wrote elsewhere may be shown in its place, as the clocks of nodes differ; and what it wrote later, of which
        // nobody heard.
        let may_be = |update: &Update| {
            Some(update.id) == shown && (update.by != by || update.known.is_some() || update.id > last)
        };
        if shown == Some(last) || self.updates.get(key).is_some_and(|all| all.iter().any(may_be)) {
            return Ok(());
        }
        broken(format!("a read at node {} shows {value:?}, and {last} was acknowledged there", by.0))
    }

    pub fn died(&mut self, node: usize) {
        let losing = self.losing;
        self.holders.remove(&node);
        let all_lost = self.holders.is_empty();
        for update in self.updates.values_mut().flatten() {
            update.has_died = true;
            if update.known.is_none() {
                update.failed.insert(node);
                let by_itself = update.alone && update.failed.contains(&update.by.0);
                update.may_be_lost |= update.failed.len() >= losing || by_itself;
            }
            update.may_be_lost |= all_lost;
        }
    }

    /// Nothing has been wrong for a while: what was acknowledged by then is everywhere, and every machine has it.
    pub fn is_everywhere(&mut self, by: Time, now: Time, machines: usize) {
        for update in self.updates.values_mut().flatten() {
            let is_old = update.fate == Fate::Acked && !update.may_be_lost && update.end.is_some_and(|end| end < by);
            if is_old && update.known.is_none() {
                update.known = Some(now);
            }
        }
        if !self.holders.is_empty() {
            self.holders = (0..machines).collect();
        }
    }

    /// A machine that started has got from the others all that they had.
    pub fn has_all(&mut self, node: usize) {
        if !self.holders.is_empty() {
            self.holders.insert(node);
        }
    }

    /// What each of these nodes shows, while nothing is asked. From then on this is what there is.
    pub fn compare(
        &mut self,
        now: Time,
        shown: &BTreeMap<usize, State>,
        clients: usize,
        machines: usize,
    ) -> Result<(), Broken> {
        let broken = |promise, what: String| Err(Broken { promise, at: now, what });
        let Some((first, state)) = shown.first_key_value() else { return Ok(()) };
        if let Some((other, differs)) = shown.iter().find(|(_, other)| *other != state) {
            let only = |a: &State, b: &State| {
                a.iter().filter(|(at, v)| b.get(*at) != Some(v)).map(|x| format!("{x:?}")).collect::<Vec<_>>()
            };
            let what = format!(
                "node {first} alone has {:?}, node {other} alone {:?}",
                only(state, differs),
                only(differs, state)
            );
            return broken(EQUAL, what);
        }
        self.judged += 1;
        let none = Vec::new();
        let places = collections().into_iter().map(|key| (key, None));
        for (key, element) in places.chain((0..clients).map(|client| (own(client), Some(String::new())))) {
            let updates = self.updates.get(&key).unwrap_or(&none);
            let named = updates.iter().filter_map(|update| update.element.clone());
            let here = state.keys().filter(|(of, _)| *of == key).map(|(_, element)| element.clone());
            let elements: BTreeSet<String> = element.into_iter().chain(named).chain(here).collect();
            for element in elements {
                let value = state.get(&(key.clone(), element.clone()));
                if let Err(what) = judge(updates, &element, value) {
                    return broken(KEPT, format!("{key} {element}: {what}"));
                }
            }
        }
        for key in (0..clients).map(lent) {
            let updates = self.updates.get(&key).unwrap_or(&none);
            if let Err(what) = judge_end(now, updates, state.get(&(key.clone(), String::new()))) {
                return broken(ENDS, format!("{key}: {what}: {}", told(updates)));
            }
        }
        for key in counters() {
            let updates = self.updates.get(&key).unwrap_or(&none);
            let value = state.get(&(key.clone(), String::new()));
            let (low, high) = bounds(updates);
            let is: i64 = value.map_or(Some(0), |value| value.parse().ok()).unwrap_or(i64::MIN);
            if !(low..=high).contains(&is) {
                return broken(EXACT, format!("{key} is {is}, and not {low} to {high}: {}", told(updates)));
            }
        }
        // One that is not there yet may bring what nobody else has.
        if shown.len() == machines {
            self.begin_anew(now, state, machines);
        }
        Ok(())
    }

    fn begin_anew(&mut self, now: Time, state: &State, machines: usize) {
        let before = std::mem::take(&mut self.updates);
        self.holders = (0..machines).collect();
        for ((key, element), value) in state {
            let what = match is_counter(key) {
                true => What::Add(value.parse().expect("it was judged")),
                false => What::Put,
            };
            // Members of sets do not say whose they are.
            let id = number(value.as_bytes()).filter(|_| what == What::Put).unwrap_or(0);
            // What is there still began to end when it was written.
            let was = before.get(key).into_iter().flatten().find(|update| update.ends.is_some() && update.id == id);
            self.updates.entry(key.clone()).or_default().push(Update {
                id,
                element: Some(element.clone()),
                what,
                by: (usize::MAX, now),
                held_all: true,
                start: was.map_or(now, |was| was.start),
                end: Some(was.and_then(|was| was.end).unwrap_or(now)),
                fate: Fate::Acked,
                alone: false,
                known: Some(now),
                failed: BTreeSet::new(),
                may_be_lost: false,
                ends: was.and_then(|was| was.ends),
                has_died: was.is_some_and(|was| was.has_died),
            });
        }
    }
}

fn number(text: &[u8]) -> Option<WriteId> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn told(updates: &[Update]) -> String {
    updates.iter().map(|update| format!("\n    {update:?}")).collect()
}

/// What is shown of one element, against all updates of its key.
fn judge(updates: &[Update], element: &str, shown: Option<&String>) -> Result<(), String> {
    let of: Vec<&Update> = updates.iter().filter(|u| u.element.as_deref().is_none_or(|of| of == element)).collect();
    let puts = || of.iter().filter(|u| u.what == What::Put);
    let why = |what: String| {
        Err(format!("{what}: {}", of.iter().map(|update| format!("\n    {update:?}")).collect::<String>()))
    };
    let is_over = |put: &Update| of.iter().any(|later| later.is_certain() && later.saw(put));
    let Some(value) = shown else {
        let may_be_gone = |put: &Update| of.iter().any(|u| u.what == What::Remove && u.may_have_seen(put));
        return match puts().find(|put| put.is_certain() && !may_be_gone(put)) {
            Some(put) => why(format!("it is not there, and {} was acknowledged", put.id)),
            None => Ok(()),
        };
    };
    // Members have no value: any that may be there is one.
    let is_it = |put: &Update| value.is_empty() || Some(put.id) == number(value.as_bytes());
    match puts().any(|put| is_it(put) && put.fate != Fate::Refused && !is_over(put)) {
        true => Ok(()),
        false => why(format!("it shows {value:?}, which nobody wrote, or was superseded")),
    }
}

/// What is shown of a register that ends.
fn judge_end(now: Time, updates: &[Update], shown: Option<&String>) -> Result<(), String> {
    let ends = |update: &Update| update.ends.unwrap_or(Span::ZERO);
    if let Some(value) = shown {
        let is_it = |u: &&Update| Some(u.id) == number(value.as_bytes()) && u.fate != Fate::Refused;
        let Some(put) = updates.iter().find(is_it) else { return Err(format!("it shows {value}, which nobody wrote")) };
        let is_over = put.end.is_some_and(|end| end + ends(put) + ENDS_WITHIN < now);
        return if is_over { Err(format!("it shows {value}, which has ended")) } else { Ok(()) };
    }
    // Which end counts of two that did not see each other is not known here.
    let all = || updates.iter().filter(|update| update.fate != Fate::Refused);
    let Some(last) = all().next_back().filter(|last| last.is_certain() && !last.has_died) else { return Ok(()) };
    let saw_all = all().all(|other| other.id == last.id || last.saw(other));
    match saw_all && now + ENDS_WITHIN < last.start + ends(last) {
        true => Err(format!("it is not there, and {} has not ended", last.id)),
        false => Ok(()),
    }
}

/// What a counter may be.
fn bounds(updates: &[Update]) -> (i64, i64) {
    let (mut low, mut high) = (0, 0);
    for add in updates {
        let What::Add(by) = add.what else { continue };
        let resets = || updates.iter().filter(|u| u.what == What::Remove);
        if add.fate == Fate::Refused || resets().any(|reset| reset.is_certain() && reset.saw(add)) {
            continue;
        }
        high += by;
        low += if add.is_certain() && !resets().any(|reset| reset.may_have_seen(add)) { by } else { 0 };
    }
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Life = (0, Time(1));
    const B: Life = (1, Time(1));

    /// Ends an update that began a moment before.
    fn did(soft: &mut Soft, act: &Act, by: Life, at: u64) {
        soft.begin(act, by, Time(at));
        soft.end(act, by, Time(at + 5), &Outcome::Done(Reply::Int(1)), false).unwrap();
    }

    fn put(id: WriteId) -> Act {
        Act::Put { key: "m0".into(), element: "e".into(), id }
    }

    fn take(id: WriteId) -> Act {
        Act::Take { key: "m0".into(), element: "e".into(), id }
    }

    fn shows(soft: &mut Soft, values: &[(&str, &str, &str)]) -> Option<&'static str> {
        let state: State = values.iter().map(|(key, e, v)| (((*key).into(), (*e).into()), (*v).into())).collect();
        let mut copy = Soft { updates: soft.updates.clone(), losing: 2, holders: [0, 1].into(), ..Soft::default() };
        let both = BTreeMap::from([(0, state.clone()), (1, state)]);
        copy.compare(Time(1_000), &both, 1, 2).err().map(|broken| broken.promise)
    }

    #[test]
    fn what_has_ended_is_gone_and_what_has_not_is_there() {
        let lend = |id, ends| Act::Lend { key: "lent0".into(), id, ends };
        let at = |soft: &Soft, shown: &[(&str, &str, &str)]| {
            let state: State = shown.iter().map(|(key, e, v)| (((*key).into(), (*e).into()), (*v).into())).collect();
            let mut copy = Soft { updates: soft.updates.clone(), losing: 2, holders: [0, 1].into(), ..Soft::default() };
            let both = BTreeMap::from([(0, state.clone()), (1, state)]);
            copy.compare(Time(10_000_000), &both, 1, 2).err().map(|broken| broken.promise)
        };
        let mut soft = Soft::of(3);
        did(&mut soft, &lend(1, Span::secs(1)), A, 10);
        assert_eq!(at(&soft, &[]), None);
        assert_eq!(at(&soft, &[("lent0", "", "1")]), Some(ENDS), "it is shown still");
        did(&mut soft, &lend(2, Span::secs(1_000)), A, 20);
        assert_eq!(at(&soft, &[]), Some(ENDS), "it ended too soon");
        assert_eq!(at(&soft, &[("lent0", "", "2")]), None);
        assert_eq!(at(&soft, &[("lent0", "", "9")]), Some(ENDS), "nobody wrote it");
        did(&mut soft, &lend(3, Span::secs(1)), B, 22);
        assert_eq!((at(&soft, &[]), at(&soft, &[("lent0", "", "2")])), (None, None), "two at one moment");
    }

    #[test]
    fn what_one_node_has_may_be_lost_with_it_where_one_copy_is_promised() {
        let mut soft = Soft::of(3);
        let put = |key: &str| Act::Put { key: key.into(), element: "e".into(), id: 1 };
        did(&mut soft, &put("xm0"), A, 10);
        did(&mut soft, &put("m0"), A, 12);
        assert_eq!(shows(&mut soft, &[("m0", "e", "1")]), Some(KEPT));
        soft.died(1);
        assert_eq!(shows(&mut soft, &[("m0", "e", "1")]), Some(KEPT), "it was another one");
        soft.died(0);
        let mut soft = Soft::of(3);
        did(&mut soft, &put("xm0"), A, 10);
        did(&mut soft, &put("m0"), A, 12);
        soft.died(0);
        assert_eq!(shows(&mut soft, &[("m0", "e", "1")]), None);
        assert_eq!(shows(&mut soft, &[("xm0", "e", "1")]), Some(KEPT), "another had this one");
    }

    #[test]
    fn nodes_that_differ_are_seen() {
        let state = |value: &str| State::from([(("m0".to_owned(), "e".to_owned()), value.to_owned())]);
        let shown = BTreeMap::from([(0, state("1")), (1, state("2"))]);
        assert_eq!(Soft::of(2).compare(Time(1), &shown, 1, 2).unwrap_err().promise, EQUAL);
    }

    #[test]
    fn what_was_acknowledged_is_there_or_superseded() {
        let mut soft = Soft::of(3);
        did(&mut soft, &put(1), A, 10);
        assert_eq!(shows(&mut soft, &[]), Some(KEPT), "it is gone");
        assert_eq!(shows(&mut soft, &[("m0", "e", "1")]), None);
        assert_eq!(shows(&mut soft, &[("m0", "e", "7")]), Some(KEPT), "nobody wrote it");
        did(&mut soft, &put(2), A, 20);
        assert_eq!(shows(&mut soft, &[("m0", "e", "1")]), Some(KEPT), "its own node had replaced it");
        did(&mut soft, &put(3), B, 22);
        assert_eq!(shows(&mut soft, &[("m0", "e", "2")]), None, "two at one moment");
        did(&mut soft, &take(4), B, 40);
        assert_eq!(shows(&mut soft, &[("m0", "e", "3")]), Some(KEPT), "what was removed stays removed");
        assert_eq!(shows(&mut soft, &[("m0", "e", "2")]), None, "the removal may not have seen it");
        assert_eq!(shows(&mut soft, &[]), None, "or it has");
    }

    #[test]
    fn what_two_nodes_had_may_be_lost_with_both() {
        let mut soft = Soft::of(3);
        did(&mut soft, &put(1), A, 10);
        soft.died(0);
        assert_eq!(shows(&mut soft, &[]), Some(KEPT));
        soft.died(1);
        assert_eq!(shows(&mut soft, &[]), None);
        let mut soft = Soft::of(3);
        did(&mut soft, &put(1), A, 10);
        soft.is_everywhere(Time(50), Time(60), 3);
        soft.died(0);
        soft.died(1);
        assert_eq!(shows(&mut soft, &[]), Some(KEPT), "the third has it");
        soft.died(2);
        assert_eq!(shows(&mut soft, &[]), None);
    }

    #[test]
    fn sums_are_exact_where_nothing_was_concurrent() {
        let mut soft = Soft::of(3);
        let add = |by, id| Act::Add { key: "n0".into(), by, id };
        did(&mut soft, &add(5, 1), A, 10);
        did(&mut soft, &add(2, 2), B, 12);
        assert_eq!(shows(&mut soft, &[("n0", "", "7")]), None);
        assert_eq!(shows(&mut soft, &[("n0", "", "5")]), Some(EXACT));
        assert_eq!(shows(&mut soft, &[("n0", "", "9")]), Some(EXACT));
        did(&mut soft, &Act::Clear { key: "n0".into(), id: 3 }, A, 30);
        did(&mut soft, &add(1, 4), A, 40);
        assert_eq!(shows(&mut soft, &[("n0", "", "1")]), None);
        assert_eq!(shows(&mut soft, &[("n0", "", "3")]), None, "the other's count was not seen by the reset");
        assert_eq!(shows(&mut soft, &[("n0", "", "8")]), Some(EXACT), "the old sum is back");
    }

    #[test]
    fn a_client_reads_what_it_wrote_at_the_same_node() {
        let mut soft = Soft::of(3);
        let (set, get) = (|id| Act::Set { key: "own0".into(), id }, Act::Get { key: "own0".into() });
        did(&mut soft, &set(1), A, 10);
        did(&mut soft, &set(2), A, 20);
        let mut reads = |by, value: &'static str| {
            let outcome = Outcome::Done(Reply::Values(vec![Some(value.as_bytes().into())]));
            soft.end(&get, by, Time(50), &outcome, false).is_ok()
        };
        assert!(reads(A, "2"));
        assert!(!reads(A, "1"));
        assert!(reads(B, "1"), "another node may be behind");
    }
}
