//! How a service's requests are spread over its clones: which of those that may be chosen is. Local ones come first, as a
//! clone elsewhere costs a tunnel, and a death elsewhere cannot hurt who does not go there; what is too much for this node
//! goes elsewhere.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

use base::Rng;
use flow::balance::{Load, give_away, pick_bounded, pick_less_loaded};

use crate::limits::{ASKS_ANOTHER, GIVEN_AWAY_EVERY, LOCAL_SLOWER, LOOKS_ELSEWHERE};
use crate::pool::{Prefers, Upstream};

thread_local! {
    static CHANCE: RefCell<Rng> = RefCell::new(Rng::new(RandomState::new().hash_one(0)));
}

/// What of a service's requests stays on this node, if it has clones of it.
#[derive(Clone, Copy, Debug)]
pub struct Homing {
    /// Which part leaves, per mille.
    pub given_away: u16,
    /// A clone here that has so many of ours under way is loaded: what one clone does well at once, as this edge has learned.
    pub at_once: u32,
    /// They are connections, which stay with their clone. One that is elsewhere ends with its own node or that one, so it goes there only
    /// from a clone that is loaded. How many a clone has does not say so: what does is how many wait for its first word.
    pub lasts: bool,
}

impl Homing {
    fn is_loaded(self, upstream: &Upstream) -> bool {
        let under_way = if self.lasts { &upstream.unheard } else { &upstream.in_flight };
        under_way.load(Relaxed) >= self.at_once
    }
}

/// Some of a service's clones, those on this node first.
#[derive(Default)]
pub struct Clones {
    list: Box<[Arc<Upstream>]>,
    local: usize,
}

impl Clones {
    pub fn new(mut list: Vec<Arc<Upstream>>) -> Self {
        list.sort_by_key(|upstream| !upstream.local);
        let local = list.iter().filter(|upstream| upstream.local).count();
        Self { list: list.into(), local }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.list.iter()
    }

    /// So many of those that `may` be chosen, the fastest first: by what their last answers took, those in whose way they would be
    /// included. Who is not known yet comes first, and now and then another one has the last place, as nobody else would ask it.
    pub fn fastest(&self, count: usize, may: impl Fn(&Arc<Upstream>) -> bool) -> Vec<Arc<Upstream>> {
        CHANCE.with_borrow_mut(|rng| {
            let time =
                |u: &Upstream| u.count.mean_us().unwrap_or(0).saturating_mul(1 + u64::from(u.in_flight.load(Relaxed)));
            let some = self.list.iter().filter(|u| may(u));
            let mut all: Vec<_> = some.map(|u| ((time(u), rng.below(u64::MAX)), u)).collect();
            all.sort_unstable_by_key(|(time, _)| *time);
            if all.len() > count && count > 1 && rng.below(ASKS_ANOTHER) == 0 {
                let other = count + rng.below((all.len() - count) as u64) as usize;
                all.swap(count - 1, other);
            }
            all.into_iter().take(count).map(|(_, u)| Arc::clone(u)).collect()
        })
    }

    /// One of those that `may` be chosen.
    pub fn pick(
        &self,
        prefers: &Prefers,
        homing: Homing,
        may: impl Fn(&Arc<Upstream>) -> bool,
    ) -> Option<&Arc<Upstream>> {
        CHANCE.with_borrow_mut(|rng| match prefers {
            Prefers::Any => self.less_loaded(rng, homing, may),
            Prefers::Tag(tag) => {
                let its = self.list.iter().find(|u| u.tag.as_bytes() == tag && may(u));
                its.or_else(|| self.less_loaded(rng, homing, may))
            }
            Prefers::Hash(key) => {
                let clones: Vec<_> = self.list.iter().filter(|u| may(u)).collect();
                // Only what this edge sent there is known at once; the others see the same keys, so the same picture.
                let of = |i: usize| (clones[i].hash, u64::from(clones[i].in_flight.load(Relaxed)));
                pick_bounded(*key, clones.len(), of).map(|i| clones[i])
            }
        })
    }

    /// Of the local clones; or, if that one is loaded, or the request is to leave, of those anywhere. A request that would be served sooner
    /// elsewhere goes there.
    fn less_loaded(
        &self,
        rng: &mut Rng,
        homing: Homing,
        may: impl Fn(&Arc<Upstream>) -> bool,
    ) -> Option<&Arc<Upstream>> {
        let may_stay = self.local > 0 && rng.below(1000) >= u64::from(homing.given_away);
        let local = if may_stay { of_some(&self.list[..self.local], rng, &may) } else { None };
        let Some(local) = local.filter(|u| !homing.is_loaded(u)) else {
            return of_some(&self.list, rng, &may);
        };
        // With nobody before it nothing is sooner.
        if homing.lasts || local.in_flight.load(Relaxed) == 0 || self.local == self.list.len() {
            return Some(local);
        }
        let looks = rng.below(LOOKS_ELSEWHERE) == 0;
        let other = of_some(&self.list[self.local..], rng, &may).filter(|other| is_sooner(other, local, looks));
        other.or(Some(local))
    }
}

/// Whether a request should go to a clone elsewhere that could go to one here. What a clone that does one thing at a time takes shows in
/// nothing but its answers: its machine has little to do, and a queue is what it has, be its answers slow or many.
fn is_sooner(other: &Upstream, local: &Upstream, looks: bool) -> bool {
    if other.in_flight.load(Relaxed) >= local.in_flight.load(Relaxed) {
        return false;
    }
    match (local.count.mean_us(), other.count.mean_us()) {
        (Some(here), Some(there)) => looks || here > 2 * there + LOCAL_SLOWER.as_micros() as u64,
        // One is enough to know.
        (Some(_), None) => other.in_flight.load(Relaxed) == 0,
        (None, _) => false,
    }
}

fn of_some<'a>(
    clones: &'a [Arc<Upstream>],
    rng: &mut Rng,
    may: impl Fn(&Arc<Upstream>) -> bool,
) -> Option<&'a Arc<Upstream>> {
    let load = |u: &Upstream| Load { own: u.in_flight.load(Relaxed).into(), reported: u.node_load.load(Relaxed) };
    // Mostly all may be chosen, so nobody looks at each of a thousand.
    let chosen = &clones[pick_less_loaded(rng, clones.len(), |i| load(&clones[i]))?];
    if may(chosen) {
        return Some(chosen);
    }
    let some: Vec<_> = clones.iter().filter(|u| may(u)).collect();
    pick_less_loaded(rng, some.len(), |i| load(some[i])).map(|i| some[i])
}

/// Which part of a service's requests leaves this node though there are clones here, because it has more to do than
/// others. It is found anew each second.
#[derive(Default)]
pub struct GivenAway {
    per_mille: AtomicU16,
    turned_ms: AtomicU64,
}

impl GivenAway {
    pub fn now(&self) -> u16 {
        self.per_mille.load(Relaxed)
    }

    /// Looks at what the nodes have reported, if it is time.
    pub fn turn(&self, now_ms: u64, clones: &Clones) {
        if now_ms.saturating_sub(self.turned_ms.load(Relaxed)) < GIVEN_AWAY_EVERY.as_millis() as u64 {
            return;
        }
        self.turned_ms.store(now_ms, Relaxed);
        let (here, elsewhere) = clones.list.split_at(clones.local);
        let reported = |u: &Arc<Upstream>| u.node_load.load(Relaxed);
        let (Some(here), false) = (here.first().map(reported), elsewhere.is_empty()) else {
            return self.per_mille.store(0, Relaxed);
        };
        let sum: u64 = elsewhere.iter().map(|u| u64::from(reported(u))).sum();
        let others = (sum / elsewhere.len() as u64).min(1000) as u16;
        self.per_mille.store(give_away(self.now(), here, others), Relaxed);
    }
}

#[cfg(test)]
#[path = "spread_tests.rs"]
mod tests;
