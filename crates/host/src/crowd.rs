//! Those who have come to a door and have something of it, as places are few. Each belongs to somebody: an address, while nothing
//! more is known of it, or whose token it showed. When there is no room, whoever has most gives one up: its oldest. So who comes
//! with many pushes out nobody but itself, and who shows at once who it is, is never the oldest, not even among strangers on its
//! own machine, whose address it has.
//!
//! Doors decide what counts as showing it (a certificate, a token, a request); who has shown it goes to another crowd.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Resource, getrlimit};
use tokio::sync::Notify;

use crate::limits::{CROWD_FILES_PART, CROWD_MIN};

/// `K` is whose each one is.
#[derive(Debug)]
pub struct Crowd<K: Ord + Clone + Debug = IpAddr> {
    most: usize,
    inside: Mutex<Inside<K>>,
}

#[derive(Debug)]
struct Inside<K> {
    last: u64,
    count: usize,
    /// By whose they are, the oldest first.
    of: BTreeMap<K, BTreeMap<u64, Arc<Gone>>>,
    /// Invariant: the rank of each in `of`, and no other. The last one is the first to give one up.
    ranks: BTreeSet<Rank<K>>,
}

/// How somebody hears that a place is given to somebody else. One for a connection, whichever crowd it is in.
#[derive(Debug, Default)]
pub struct Gone {
    is: AtomicBool,
    told: Notify,
}

/// Who asks for a page, for whoever writes it.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub from: IpAddr,
    pub is_operator: bool,
}

/// How many one has, and the oldest of them.
type Rank<K> = (usize, Reverse<u64>, K);

/// One of the crowd until dropped.
#[derive(Debug)]
pub struct Place<K: Ord + Clone + Debug = IpAddr> {
    crowd: Arc<Crowd<K>>,
    whose: K,
    id: u64,
    gone: Arc<Gone>,
}

impl Gone {
    /// Costs next to nothing, so that it can be asked all the time.
    pub fn is(&self) -> bool {
        self.is.load(Acquire)
    }

    /// For one at a time.
    pub async fn heard(&self) {
        while !self.is() {
            self.told.notified().await;
        }
    }

    /// Somebody else is given the place, or whoever has a word in it wants it empty.
    pub fn tell(&self) {
        self.is.store(true, Release);
        // Kept for who does not listen yet.
        self.told.notify_one();
    }
}

impl Crowd<IpAddr> {
    /// One more stranger from this address. If there is no room somebody's [`Place::within`] ends.
    pub fn come(self: &Arc<Self>, from: IpAddr) -> Place {
        self.enter(network(from), Arc::default())
    }
}

impl<K: Ord + Clone + Debug> Crowd<K> {
    pub fn new(most: usize) -> Arc<Self> {
        let inside = Inside { last: 0, count: 0, of: BTreeMap::new(), ranks: BTreeSet::new() };
        Arc::new(Self { most, inside: Mutex::new(inside) })
    }

    /// For connections: fewer where a process may have few files.
    pub fn of_strangers(most: usize) -> Arc<Self> {
        let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize);
        Self::new(most.min((files / CROWD_FILES_PART).max(CROWD_MIN)))
    }

    /// One more of this one's. If there is no room, the oldest of whoever has most is told to go.
    pub fn enter(self: &Arc<Self>, whose: K, gone: Arc<Gone>) -> Place<K> {
        let mut inside = self.lock();
        let id = inside.put(&whose, &gone);
        if inside.count > self.most
            && let Some((_, Reverse(oldest), whose)) = inside.ranks.last().cloned()
        {
            inside.leave(&whose, oldest);
        }
        drop(inside);
        Place { crowd: Arc::clone(self), whose, id, gone }
    }

    /// The same, but who has most already does not get another one, and keeps all that it has.
    pub fn try_enter(self: &Arc<Self>, whose: K, gone: Arc<Gone>) -> Option<Place<K>> {
        let mut inside = self.lock();
        if inside.count >= self.most {
            let (most, Reverse(oldest), theirs) = inside.ranks.last().cloned()?;
            if inside.of.get(&whose).map_or(0, BTreeMap::len) + 1 >= most {
                return None;
            }
            inside.leave(&theirs, oldest);
        }
        let id = inside.put(&whose, &gone);
        drop(inside);
        Some(Place { crowd: Arc::clone(self), whose, id, gone })
    }

    /// How many are this one's.
    pub fn count_of(&self, whose: &K) -> usize {
        self.lock().of.get(whose).map_or(0, BTreeMap::len)
    }

    pub fn count(&self) -> usize {
        self.lock().count
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inside<K>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone + Debug> Inside<K> {
    fn put(&mut self, whose: &K, gone: &Arc<Gone>) -> u64 {
        self.last += 1;
        self.count += 1;
        let id = self.last;
        self.change(whose, |all| all.insert(id, Arc::clone(gone)));
        id
    }

    fn leave(&mut self, whose: &K, id: u64) {
        if let Some(gone) = self.change(whose, |all| all.remove(&id)) {
            self.count -= 1;
            gone.tell();
        }
    }

    fn change<T>(&mut self, whose: &K, how: impl FnOnce(&mut BTreeMap<u64, Arc<Gone>>) -> T) -> T {
        let rank = |all: &BTreeMap<u64, _>| Some((all.len(), Reverse(*all.keys().next()?), whose.clone()));
        let all = self.of.entry(whose.clone()).or_default();
        let before = rank(all);
        let changed = how(all);
        let after = rank(all);
        if after.is_none() {
            self.of.remove(whose);
        }
        if before != after {
            before.map(|before| self.ranks.remove(&before));
            after.map(|after| self.ranks.insert(after));
        }
        changed
    }
}

impl<K: Ord + Clone + Debug> Place<K> {
    /// What the work comes to; none if somebody else is given this place before.
    pub async fn within<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.gone.heard() => None,
        }
    }

    /// Ends when somebody else is given this place.
    pub async fn left(self) {
        self.gone.heard().await;
    }

    pub fn whose(&self) -> &K {
        &self.whose
    }
}

impl<K: Ord + Clone + Debug> Drop for Place<K> {
    fn drop(&mut self) {
        let mut inside = self.crowd.lock();
        if inside.change(&self.whose, |all| all.remove(&self.id)).is_some() {
            inside.count -= 1;
        }
    }
}

/// Of IPv6 one client has a whole network of 64 bits.
pub fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(ip) => IpAddr::from((u128::from(ip) >> 64 << 64).to_be_bytes()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    struct Fake {
        crowd: Arc<Crowd>,
        all: Vec<(&'static str, Place)>,
    }

    impl Fake {
        fn of(most: usize) -> Self {
            Self { crowd: Crowd::new(most), all: Vec::new() }
        }

        fn come(&mut self, from: &'static str, count: usize) {
            let address = from.parse().unwrap();
            (0..count).for_each(|_| self.all.push((from, self.crowd.come(address))));
        }

        /// Who has still a place: by address, how many.
        fn left(&mut self) -> Vec<(&'static str, usize)> {
            self.all.retain(|(_, place)| !place.gone.is());
            let mut left: Vec<(&str, usize)> = Vec::new();
            for (from, _) in &self.all {
                match left.iter_mut().find(|(of, _)| of == from) {
                    Some((_, count)) => *count += 1,
                    None => left.push((from, 1)),
                }
            }
            assert_eq!(self.crowd.count(), self.all.len(), "who is gone is not counted");
            left
        }
    }

    #[test]
    fn whoever_comes_with_many_pushes_out_itself() {
        let mut fake = Fake::of(10);
        fake.come("203.0.113.1", 3);
        fake.come("203.0.113.2", 1000);
        assert_eq!(fake.left(), [("203.0.113.1", 3), ("203.0.113.2", 7)]);
        // Many addresses come to the same number each, and the latest of each are left.
        fake.come("203.0.113.3", 1000);
        assert_eq!(fake.left(), [("203.0.113.1", 3), ("203.0.113.2", 3), ("203.0.113.3", 4)]);
        let ids: Vec<u64> = fake.all.iter().filter(|(from, _)| *from == "203.0.113.2").map(|(_, at)| at.id).collect();
        assert_eq!(ids, [1001, 1002, 1003]);
        fake.come("203.0.113.1", 1000);
        assert_eq!(fake.left().iter().map(|(_, count)| count).sum::<usize>(), 10);
        fake.all.clear();
        assert_eq!(fake.left(), []);
        let inside = fake.crowd.lock();
        assert!(inside.of.is_empty() && inside.ranks.is_empty(), "nothing is kept of who has left");
    }

    #[test]
    fn who_has_most_gets_no_other_one_and_others_get_theirs() {
        let crowd = Crowd::<&str>::new(6);
        let enter = |whose| crowd.try_enter(whose, Arc::default());
        let mut greedy: Vec<Place<&str>> = std::iter::from_fn(|| enter("greedy")).collect();
        assert_eq!((greedy.len(), crowd.count()), (6, 6));
        let modest: Vec<Place<&str>> = std::iter::from_fn(|| enter("modest")).collect();
        assert_eq!((modest.len(), crowd.count()), (3, 6));
        greedy.retain(|place| !place.gone.is());
        let ids: Vec<u64> = greedy.iter().map(|place| place.id).collect();
        assert_eq!(ids, [4, 5, 6], "its oldest went");
        let other = enter("other");
        assert!(other.is_some() && enter("greedy").is_none());
        assert_eq!((crowd.count_of(&"modest"), crowd.count_of(&"nobody")), (3, 0));
        drop((greedy, modest, other));
        assert_eq!(crowd.count(), 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let mut fake = Fake::of(2);
        fake.come("203.0.113.1", 1);
        for from in ["2001:db8::1", "2001:db8::2", "2001:db8::3:4", "::ffff:203.0.113.1"] {
            fake.come(from, 1);
        }
        assert_eq!(fake.left(), [("2001:db8::3:4", 1), ("::ffff:203.0.113.1", 1)]);
    }

    #[tokio::test]
    async fn work_that_is_done_counts_and_other_work_ends_with_the_place() {
        let crowd = Crowd::new(1);
        let address = "203.0.113.1".parse().unwrap();
        let first = crowd.come(address);
        let second = crowd.come(address);
        assert_eq!(first.within(std::future::pending::<()>()).await, None);
        assert_eq!(second.within(ready(7)).await, Some(7));
    }
}
