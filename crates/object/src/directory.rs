//! The directory of a manager: which nodes have objects of which owners, in the buckets that it manages. It is soft: nodes tell it, and
//! nothing of it is on a disk.
//!
//! Each node tells under a *tenure*, which the manager gives it: another one for each life of the manager, and for each time that the
//! node came back to it. So neither takes what was told in a life that the other has not seen the end of for what is so now. A bucket
//! that comes is empty, and its directory *whole* only when all nodes have told what they have of it since then.
//!
//! That it is whole does not say that no node has taken something this moment. Where that counts (a list that says that it misses
//! nothing) all nodes are asked, in a round, whether all that they have was told; all questions that came before a round began
//! share it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Bound;

use base::{NodeId, Time};
use bytes::Bytes;

use crate::limits::{ASKED_MAX, DIRECTORY_LOOKS, DIRECTORY_OWNERS_MAX, ROUND_EVERY};
use crate::map::bucket_of;

/// Under which a node tells one manager. `life` is drawn by the manager when it starts, `count` grows from one to the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Tenure {
    pub life: u64,
    pub count: u32,
}

/// What a manager wants to be told: buckets, each with the version since when it has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub tenure: Tenure,
    pub version: u32,
    pub buckets: BTreeMap<u16, u32>,
}

/// Somebody has objects of an owner, or none any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    pub ns: u32,
    pub owner: Bytes,
    pub has: bool,
}

/// What a node tells. Those of a tenure are taken in order, each once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    pub tenure: Tenure,
    pub seq: u32,
    pub items: Vec<Item>,
    /// All is told that was wanted in this version; 0: not yet.
    pub done: u32,
    /// This is all up to this round; 0: of none.
    pub round: u64,
}

/// A question that waits for a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub from: NodeId,
    pub id: u64,
    pub ns: u32,
    pub owner: Bytes,
}

/// Which nodes have objects of an owner, and which of the others have none, as the round has shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Known {
    pub has: BTreeSet<NodeId>,
    pub nothing: BTreeSet<NodeId>,
}

pub(crate) struct Directory {
    life: u64,
    tenures: u32,
    /// One more each time that the buckets change.
    version: u32,
    buckets: BTreeMap<u16, Bucket>,
    nodes: BTreeMap<NodeId, Teller>,
    /// Those too that only nodes of before have told of, until they are looked at.
    owners: usize,
    /// What was told by nodes of before is looked for, behind this owner of this bucket.
    sweep: Option<(u16, Option<Owner>)>,
    /// There is more of it since that began.
    sweeps_again: bool,
    round: Option<Round>,
    rounds: u64,
    /// They wait for the next round, which begins then at the earliest: what comes until then shares it.
    next: Vec<Asked>,
    next_at: Time,
}

type Owner = (u32, Bytes);

#[derive(Default)]
struct Bucket {
    since: u32,
    /// Who has said under which tenure that it has objects. What was said under one that is over counts for nothing, and goes later.
    owners: BTreeMap<Owner, BTreeMap<NodeId, u32>>,
    /// There was no room for all.
    lacks: bool,
}

struct Teller {
    tenure: Tenure,
    seq: u32,
    /// Version of the directory in which the node has told all that was wanted.
    done: u32,
}

struct Round {
    number: u64,
    waits: BTreeSet<NodeId>,
    sure: BTreeSet<NodeId>,
    asks: Vec<Asked>,
    is_old: bool,
}

impl Directory {
    /// `life`: by chance, and never 0.
    pub fn new(life: u64) -> Self {
        Self {
            life,
            tenures: 0,
            version: 0,
            buckets: BTreeMap::new(),
            nodes: BTreeMap::new(),
            owners: 0,
            sweep: None,
            sweeps_again: false,
            round: None,
            rounds: 0,
            next: Vec::new(),
            next_at: Time::ZERO,
        }
    }

    /// Buckets, those of them that are whole, and owners that are known.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.buckets.len(), self.buckets.keys().filter(|bucket| self.is_whole(**bucket)).count(), self.owners)
    }

    /// Has the directory manage these buckets from now on. True: others than before.
    pub fn manage(&mut self, mine: &BTreeSet<u16>) -> bool {
        let lost: Vec<u16> = self.buckets.keys().filter(|bucket| !mine.contains(bucket)).copied().collect();
        let new: Vec<u16> = mine.iter().filter(|bucket| !self.buckets.contains_key(bucket)).copied().collect();
        if lost.is_empty() && new.is_empty() {
            return false;
        }
        self.version += 1;
        for bucket in lost {
            self.owners -= self.buckets.remove(&bucket).map_or(0, |bucket| bucket.owners.len());
        }
        // What was told of it in an earlier version is gone: who tells has to begin anew.
        self.buckets
            .extend(new.into_iter().map(|bucket| (bucket, Bucket { since: self.version, ..Bucket::default() })));
        true
    }

    /// Nodes that tell, those alone; who is new has told nothing yet.
    pub fn listen(&mut self, to: &BTreeSet<NodeId>) {
        let gone: Vec<NodeId> = self.nodes.keys().filter(|node| !to.contains(node)).copied().collect();
        gone.into_iter().for_each(|node| self.lose(node));
        for node in to {
            if !self.nodes.contains_key(node) {
                self.renew(*node);
            }
        }
    }

    /// What a node has told counts no more: it is to begin anew.
    pub fn renew(&mut self, node: NodeId) {
        self.lose(node);
        self.tenures += 1;
        let tenure = Tenure { life: self.life, count: self.tenures };
        self.nodes.insert(node, Teller { tenure, seq: 0, done: 0 });
    }

    pub fn lose(&mut self, node: NodeId) {
        if self.nodes.remove(&node).is_none() {
            return;
        }
        // Nobody waits for that: what it has told counts no more from now on.
        self.sweeps_again = self.sweep.is_some();
        self.sweep.get_or_insert((0, None));
        // Whoever asked looks there himself.
        if let Some(round) = &mut self.round {
            round.waits.remove(&node);
            round.sure.remove(&node);
        }
    }

    /// A node says that it knows of no tenure here. True: it has told something before.
    pub fn is_unknown_to(&mut self, node: NodeId) -> bool {
        let has_told = self.nodes.get(&node).is_some_and(|teller| teller.seq > 0);
        if has_told {
            self.renew(node);
        }
        has_told
    }

    /// What is wanted of a node; none of one that has told it, or is none.
    pub fn wanted(&self, node: NodeId) -> Option<Wanted> {
        let teller = self.nodes.get(&node).filter(|teller| teller.done < self.version)?;
        let buckets = self.buckets.iter().map(|(bucket, of)| (*bucket, of.since)).collect();
        Some(Wanted { tenure: teller.tenure, version: self.version, buckets })
    }

    /// Takes what a node tells. True: it has it, now or since before.
    pub fn told(&mut self, from: NodeId, told: Told) -> bool {
        let Some(teller) = self.nodes.get_mut(&from).filter(|teller| teller.tenure == told.tenure) else {
            return false;
        };
        if told.seq != teller.seq.wrapping_add(1) {
            return told.seq == teller.seq;
        }
        teller.seq = told.seq;
        teller.done = teller.done.max(told.done.min(self.version));
        for item in told.items {
            self.take(from, item);
        }
        self.is_sure(from, told.round);
        true
    }

    fn take(&mut self, from: NodeId, Item { ns, owner, has }: Item) {
        let Some(tenure) = self.nodes.get(&from).map(|teller| teller.tenure.count) else { return };
        let Some(bucket) = self.buckets.get_mut(&bucket_of(ns, &owner)) else { return };
        let key = (ns, owner);
        if !has {
            if let Some(nodes) = bucket.owners.get_mut(&key)
                && nodes.remove(&from).is_some()
                && nodes.is_empty()
            {
                bucket.owners.remove(&key);
                self.owners -= 1;
            }
            return;
        }
        match bucket.owners.get_mut(&key) {
            Some(nodes) => _ = nodes.insert(from, tenure),
            None if self.owners >= DIRECTORY_OWNERS_MAX => bucket.lacks = true,
            None => {
                bucket.owners.insert(key, [(from, tenure)].into());
                self.owners += 1;
            }
        }
    }

    fn is_whole(&self, bucket: u16) -> bool {
        let told = |since: u32| self.nodes.values().all(|teller| teller.done >= since);
        self.buckets.get(&bucket).is_some_and(|of| !of.lacks && told(of.since)) && !self.nodes.is_empty()
    }

    /// Whose objects each node has, as far as they have told. None: that is not all that there was.
    pub fn all(&self) -> Option<BTreeMap<NodeId, BTreeSet<Owner>>> {
        let mut all: BTreeMap<NodeId, BTreeSet<Owner>> = BTreeMap::new();
        for (bucket, of) in &self.buckets {
            if !self.is_whole(*bucket) {
                return None;
            }
            for (ns, owner) in of.owners.keys() {
                for node in self.nodes_of(*ns, owner)? {
                    all.entry(node).or_default().insert((*ns, owner.clone()));
                }
            }
        }
        Some(all)
    }

    /// Nodes that have objects of an owner, as far as they have told. None: that is not all that there was.
    pub fn nodes_of(&self, ns: u32, owner: &Bytes) -> Option<BTreeSet<NodeId>> {
        let bucket = bucket_of(ns, owner);
        let of = self.buckets.get(&bucket).filter(|_| self.is_whole(bucket))?;
        let told = of.owners.get(&(ns, owner.clone())).into_iter().flatten();
        let counts = |(node, tenure): (&NodeId, &u32)| {
            self.nodes.get(node).is_some_and(|teller| teller.tenure.count == *tenure).then_some(*node)
        };
        Some(told.filter_map(counts).collect())
    }

    /// A question that wants a round ([`Directory::begin`]). False: there are too many.
    pub fn ask(&mut self, asked: Asked) -> bool {
        let has_room = self.next.len() < ASKED_MAX;
        if has_room {
            self.next.push(asked);
        }
        has_room
    }

    /// When a round is to begin.
    pub fn wake_at(&self) -> Option<Time> {
        (self.round.is_none() && !self.next.is_empty()).then_some(self.next_at)
    }

    /// Begins a round if it is time: its number, and who is to be asked, each under its tenure.
    pub fn begin(&mut self, now: Time) -> Option<(u64, Vec<(NodeId, Tenure)>)> {
        self.wake_at().filter(|at| *at <= now)?;
        self.next_at = now + ROUND_EVERY;
        self.rounds += 1;
        let (number, asks) = (self.rounds, mem::take(&mut self.next));
        let (waits, sure) = (self.nodes.keys().copied().collect(), BTreeSet::new());
        self.round = Some(Round { number, waits, sure, asks, is_old: false });
        Some((number, self.nodes.iter().map(|(node, teller)| (*node, teller.tenure)).collect()))
    }

    /// A node says that it had told all when it was asked in this round, up to there.
    pub fn confirmed(&mut self, from: NodeId, tenure: Tenure, seq: u32, round: u64) {
        if self.nodes.get(&from).is_some_and(|teller| (teller.tenure, teller.seq) == (tenure, seq)) {
            self.is_sure(from, round);
        }
    }

    fn is_sure(&mut self, from: NodeId, number: u64) {
        if let Some(round) = self.round.as_mut().filter(|round| round.number == number)
            && round.waits.remove(&from)
        {
            round.sure.insert(from);
        }
    }

    /// The questions of a round that is over, with what is known; none of what: the directory is not whole.
    pub fn end(&mut self) -> Vec<(Asked, Option<Known>)> {
        let Some(round) = self.round.take_if(|round| round.waits.is_empty()) else { return Vec::new() };
        let known = |asked: &Asked| {
            let has = self.nodes_of(asked.ns, &asked.owner)?;
            let nothing = round.sure.difference(&has).copied().collect();
            Some(Known { has, nothing })
        };
        round.asks.iter().map(|asked| (asked.clone(), known(asked))).collect()
    }

    /// Lets go of what nodes of before have told: looks at some owners, and says at how many.
    fn sweep(&mut self) -> usize {
        let Some((mut at, mut after)) = self.sweep.take() else { return 0 };
        let mut looked = 0;
        while let Some((&number, bucket)) = self.buckets.range_mut(at..).next() {
            if looked >= DIRECTORY_LOOKS {
                self.sweep = Some((at, after));
                return looked;
            }
            let from = after.take().filter(|_| number == at).map_or(Bound::Unbounded, Bound::Excluded);
            let (nodes, mut gone, mut last) = (&self.nodes, Vec::new(), None);
            for (owner, told) in bucket.owners.range_mut((from, Bound::Unbounded)).take(DIRECTORY_LOOKS - looked) {
                told.retain(|node, tenure| nodes.get(node).is_some_and(|teller| teller.tenure.count == *tenure));
                if told.is_empty() {
                    gone.push(owner.clone());
                }
                looked += 1;
                last = Some(owner);
            }
            let is_full = looked >= DIRECTORY_LOOKS;
            (at, after) = if is_full { (number, last.cloned()) } else { (number + 1, None) };
            self.owners -= gone.len();
            gone.iter().for_each(|owner| drop(bucket.owners.remove(owner)));
        }
        self.sweep = mem::take(&mut self.sweeps_again).then_some((0, None));
        looked
    }

    /// Some time has passed. A round that was there before ends without those that are silent.
    pub fn tend(&mut self) {
        self.sweep();
        match &mut self.round {
            Some(round) if round.is_old => round.waits.clear(),
            Some(round) => round.is_old = true,
            None => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{Feed, Say};
    use crate::map::{BUCKETS, Map};
    use crate::table::{Table, tests::put};

    const X: NodeId = NodeId(7);

    fn owner(n: u32) -> Bytes {
        Bytes::from(format!("owner{n}"))
    }

    /// All that the feed has to say, each twice, as a network may; the answers get there or not.
    fn exchange(directory: &mut Directory, feed: &mut Feed, table: &Table) {
        for turn in 0.. {
            if let Some(wanted) = directory.wanted(X) {
                feed.want(wanted);
            }
            let said = match feed.next(table) {
                Some(Say::Told(told)) => told,
                Some(Say::Sure { tenure, seq, round }) => {
                    directory.confirmed(X, tenure, seq, round);
                    continue;
                }
                None => match feed.again() {
                    Some(told) => told,
                    None => break,
                },
            };
            let heard = directory.told(X, said.clone());
            assert_eq!(directory.told(X, said.clone()), heard);
            if heard && turn % 3 > 0 {
                feed.heard(said.tenure, said.seq);
            }
        }
    }

    fn all() -> BTreeSet<u16> {
        (0..BUCKETS).collect()
    }

    fn with(owners: u32) -> (Directory, Feed, Table) {
        let mut table = Table::default();
        (0..owners).for_each(|n| put(&mut table, &owner(n), 1));
        let (mut directory, mut feed) = (Directory::new(1), Feed::default());
        directory.listen(&[X].into());
        assert!(directory.manage(&all()));
        assert_eq!(directory.counts(), (1024, 0, 0));
        exchange(&mut directory, &mut feed, &table);
        (directory, feed, table)
    }

    #[test]
    fn all_is_told_in_parts_and_then_what_changes() {
        let (mut directory, mut feed, mut table) = with(1000);
        assert_eq!(directory.counts(), (1024, 1024, 1000));
        put(&mut table, &owner(5000), 1);
        assert!(feed.change(1, &owner(5000)));
        assert_eq!(directory.nodes_of(1, &owner(5000)), Some([].into()), "not yet");
        exchange(&mut directory, &mut feed, &table);
        assert_eq!(directory.nodes_of(1, &owner(5000)), Some([X].into()));
        table.remove(&crate::Key { ns: 1, owner: owner(3), id: crate::Id([1; 16]) });
        assert!(feed.change(1, &owner(3)));
        exchange(&mut directory, &mut feed, &table);
        assert_eq!(directory.nodes_of(1, &owner(3)), Some([].into()));
        directory.lose(X);
        assert_eq!(directory.nodes_of(1, &owner(1)), None, "nobody tells anything");
        directory.tend();
        assert_eq!(directory.counts(), (1024, 0, 0));
    }

    #[test]
    fn no_turn_looks_at_all_owners_when_a_node_goes_and_what_it_told_counts_no_more_at_once() {
        const OTHER: NodeId = NodeId(8);
        let (mut directory, many) = (Directory::new(1), DIRECTORY_OWNERS_MAX as u32);
        directory.listen(&[X, OTHER].into());
        directory.manage(&all());
        let tell = |directory: &mut Directory, node: NodeId, owners: std::ops::Range<u32>| {
            let items = owners.map(|n| Item { ns: 1, owner: owner(n), has: true }).collect();
            let teller = &directory.nodes[&node];
            let (tenure, seq, done) = (teller.tenure, teller.seq + 1, directory.version);
            assert!(directory.told(node, Told { tenure, seq, items, done, round: 0 }));
        };
        tell(&mut directory, X, 0..many);
        tell(&mut directory, OTHER, 0..many / 4);
        assert_eq!(directory.counts(), (1024, 1024, many as usize));
        directory.renew(X);
        tell(&mut directory, X, 1..2);
        // It has told all that it has: this one alone.
        for (n, who) in [(0, &[OTHER][..]), (1, &[X, OTHER]), (many / 2, &[])] {
            assert_eq!(directory.nodes_of(1, &owner(n)), Some(who.iter().copied().collect()), "{n}");
        }
        let mut turns = 0;
        while directory.sweep.is_some() {
            let looked = directory.sweep();
            assert!(looked <= DIRECTORY_LOOKS && DIRECTORY_LOOKS < many as usize / 10, "{looked} in a turn");
            turns += 1;
            if turns == 3 {
                // Another one goes while that is under way: it goes round once more.
                directory.listen(&[X].into());
            }
        }
        assert!(turns < 3 * many as usize / DIRECTORY_LOOKS, "{turns} turns");
        assert_eq!(directory.counts(), (1024, 1024, 1));
        let left: usize = directory.buckets.values().flat_map(|bucket| bucket.owners.values()).map(BTreeMap::len).sum();
        assert_eq!((left, directory.nodes_of(1, &owner(1))), (1, Some([X].into())));
    }

    #[test]
    fn a_bucket_that_went_and_came_back_is_told_anew_and_no_other() {
        let (mut directory, mut feed, table) = with(1000);
        let share = Map::of([NodeId(1), NodeId(2)].into()).buckets_of(NodeId(1));
        directory.manage(&share);
        // The node does not hear of that: it came back meanwhile.
        directory.manage(&all());
        let (buckets, whole, owners) = directory.counts();
        assert!((buckets, whole) == (1024, share.len()) && owners < 1000);
        exchange(&mut directory, &mut feed, &table);
        assert_eq!(directory.counts(), (1024, 1024, 1000));
        let told = directory.nodes[&X].seq;
        assert!(told <= 1 + 1000 / 256 + 1 + 1 + 500 / 256 + 1, "{told} parts");
    }

    #[test]
    fn what_was_told_in_a_former_life_of_either_counts_for_nothing() {
        let (mut directory, mut feed, table) = with(10);
        // The node has begun anew, and nobody here has seen it.
        let mut reborn = Feed::default();
        let asked = Asked { from: X, id: 1, ns: 1, owner: owner(1) };
        assert!(directory.ask(asked.clone()));
        let (round, nodes) = directory.begin(Time(1)).unwrap();
        assert!(feed.is_under(nodes[0].1) && !reborn.is_under(nodes[0].1));
        assert!(directory.end().is_empty(), "it has not said anything");
        assert!(directory.is_unknown_to(X) && directory.nodes_of(1, &owner(1)).is_none());
        assert_eq!(directory.end(), [(asked.clone(), None)]);
        directory.confirmed(X, nodes[0].1, 1, round);
        exchange(&mut directory, &mut reborn, &table);
        assert_eq!(directory.nodes_of(1, &owner(1)), Some([X].into()));
        // The manager has, and the node has not seen it.
        let mut other = Directory::new(2);
        other.listen(&[X].into());
        other.manage(&all());
        assert_eq!(other.nodes_of(1, &owner(1)), None);
        exchange(&mut other, &mut feed, &table);
        assert_eq!(other.nodes_of(1, &owner(1)), Some([X].into()));
    }

    #[test]
    fn those_who_have_nothing_are_named_as_of_the_round_alone() {
        let (mut directory, mut feed, mut table) = with(10);
        let y = NodeId(8);
        directory.listen(&[X, y].into());
        let (wanted, mut of_y) = (directory.wanted(y).unwrap(), Feed::default());
        of_y.want(wanted);
        let Some(Say::Told(told)) = of_y.next(&Table::default()) else { panic!("it has nothing, and says so") };
        of_y.heard(told.tenure, told.seq);
        assert!(directory.told(y, told));
        let asked = |n| Asked { from: y, id: 1, ns: 1, owner: owner(n) };
        directory.ask(asked(99));
        let (round, nodes) = directory.begin(Time(1)).unwrap();
        assert!(directory.begin(Time(1)).is_none() && nodes.len() == 2);
        // It takes something now, and says so before it says that this is all.
        put(&mut table, &owner(99), 1);
        assert!(feed.change(1, &owner(99)));
        feed.confirm(round);
        of_y.confirm(round);
        let Some(Say::Sure { tenure, seq, round }) = of_y.next(&Table::default()) else { panic!("all is told") };
        directory.confirmed(y, tenure, seq, round);
        directory.ask(asked(1));
        assert!(directory.end().is_empty());
        exchange(&mut directory, &mut feed, &table);
        let known = |has: &[NodeId], nothing: &[NodeId]| {
            Some(Known { has: has.iter().copied().collect(), nothing: nothing.iter().copied().collect() })
        };
        assert_eq!(directory.end(), [(asked(99), known(&[X], &[y]))]);
        // Whoever is silent is not named.
        assert!(directory.begin(Time(1)).is_none(), "those who ask meanwhile share one");
        assert!(directory.begin(Time(1) + ROUND_EVERY).is_some());
        directory.tend();
        assert!(directory.end().is_empty());
        directory.tend();
        assert_eq!(directory.end(), [(asked(1), known(&[X], &[]))]);
    }
}
