//! Entries that are read from the disk (`disk.rs`): an operation waits for a moment, and is answered as if the entry had been in memory.
//! What happened to it or to this node meanwhile is looked at when it is there: a purge, a write, other owners, leases that ended.

use std::collections::BTreeMap;

use base::{GroupId, NodeId, PackSaid, PackWant, Time};
use bytes::Bytes;
use class::Number;

use super::disk::{Found, Place, Ring};
use super::limits::*;
use super::machine::Who;
use super::store::Value;
use super::verbs::{self, End};
use super::wire::AnswerMessage;
use super::{Act, Cache, Output, Spec};

/// All segments of this node are packs of it; their numbers begin with that of their namespace.
const GROUP: GroupId = Number::CACHE.group(0);

#[derive(Default)]
pub struct Loads {
    all: BTreeMap<u64, Load>,
    /// The newest of each key.
    of: BTreeMap<(u32, Bytes), u64>,
    last: u64,
    bytes: u64,
    /// Segments of this life have numbers from here on, behind those of lives before.
    first: u64,
    is_full: bool,
    is_low: bool,
    wants: Vec<PackWant>,
    pub hits: u64,
    pub late: u64,
    /// What rings counted that are gone.
    pub passed: u64,
}

struct Load {
    namespace: u32,
    key: Bytes,
    place: Place,
    until: Time,
    /// Empty: they have been told that there is nothing.
    waiting: Vec<Waiter>,
}

/// Who waits for an entry.
pub enum Waiter {
    Act(Who, Act),
    /// Its new owner.
    Give {
        peer: NodeId,
        id: u64,
        life: u64,
    },
}

impl Loads {
    /// For a namespace that is new here.
    pub fn ring(&self, namespace: u32, spec: &Spec) -> Ring {
        let mut ring = Ring::new(u64::from(namespace) << 32 | self.first, spec.disk_max, spec.size_max);
        ring.stop(self.is_full || self.is_low);
        ring
    }

    /// A namespace is no more.
    pub fn over(&mut self, ring: Ring) {
        self.passed += ring.passed;
        self.wants.extend(ring.end());
    }

    pub fn wake_at(&self) -> Option<Time> {
        self.all.values().find(|load| !load.waiting.is_empty()).map(|load| load.until)
    }
}

impl Cache {
    /// What lives before have left goes: purges may have passed it by.
    pub(super) fn packs_are_there(&mut self, there: &BTreeMap<GroupId, BTreeMap<u64, u64>>) {
        let numbers = || there.get(&GROUP).into_iter().flat_map(BTreeMap::keys).copied();
        self.loads.first = numbers().map(|number| (number & u64::from(u32::MAX)) + 1).max().unwrap_or(0);
        self.loads.wants.extend(numbers().map(|pack| PackWant::Drop { pack }));
    }

    pub(super) fn pack_said(&mut self, now: Time, group: GroupId, said: PackSaid, out: &mut Vec<Output>) {
        match said {
            _ if group != GROUP => (),
            PackSaid::Written { pack } => match self.stores.get_mut(&((pack >> 32) as u32)) {
                Some(store) => store.ring.is_written(pack),
                None => self.loads.wants.push(PackWant::Drop { pack }),
            },
            PackSaid::Read { number, bytes } => self.loaded(now, number, bytes, out),
        }
    }

    pub(super) fn disk_is_full(&mut self, is_full: bool) {
        self.loads.is_full = is_full;
        self.stop_rings();
    }

    /// What others must keep goes before what may be forgotten.
    pub(super) fn disk_room(&mut self, free: u64, all: u64) {
        self.loads.is_low = free < FREE_BYTES_MIN.min(all / FREE_PART_MIN);
        self.stop_rings();
        if self.loads.is_low {
            self.stores.values_mut().for_each(|store| store.ring.shrink());
        }
    }

    fn stop_rings(&mut self) {
        let is_stopped = self.loads.is_full || self.loads.is_low;
        self.stores.values_mut().for_each(|store| store.ring.stop(is_stopped));
    }

    /// What this turn wants of the disk.
    pub(super) fn disk_wants(&mut self, out: &mut Vec<Output>) {
        let rings = self.stores.values_mut().flat_map(|store| store.ring.wants());
        out.extend(self.loads.wants.drain(..).chain(rings).map(|want| Output::Pack { group: GROUP, want }));
    }

    /// An entry that is on the disk, or on its way there, is wanted.
    pub(super) fn load(&mut self, now: Time, waiter: Waiter, namespace: u32, key: Bytes, out: &mut Vec<Output>) {
        let Some(store) = self.stores.get_mut(&namespace) else { return };
        let found = store.ring.find(now, &key);
        let at = (namespace, key);
        let place = match found {
            Some(Found::Here(value, view)) => return self.have(now, at, vec![waiter], (value, view), out),
            Some(Found::There(place)) => place,
            None => return self.lack(now, at, vec![waiter], out),
        };
        let same = self.loads.of.get(&at).and_then(|number| self.loads.all.get_mut(number));
        if let Some(load) = same.filter(|load| load.place == place) {
            return match load.waiting.is_empty() || load.waiting.len() >= LOAD_WAITERS_MAX {
                true => self.lack(now, at, vec![waiter], out),
                false => load.waiting.push(waiter),
            };
        }
        if self.loads.all.len() >= LOADS_MAX || self.loads.bytes + u64::from(place.len) > LOAD_BYTES_MAX {
            return self.lack(now, at, vec![waiter], out);
        }
        self.loads.last += 1;
        let number = self.loads.last;
        self.loads.bytes += u64::from(place.len);
        self.loads.of.insert(at.clone(), number);
        let (namespace, key) = at;
        let load = Load { namespace, key, place, until: now + LOAD_WAIT, waiting: vec![waiter] };
        self.loads.all.insert(number, load);
        let Place { segment: pack, from, len } = place;
        out.push(Output::Pack { group: GROUP, want: PackWant::Read { number, pack, from, len } });
    }

    fn loaded(&mut self, now: Time, number: u64, bytes: Option<Bytes>, out: &mut Vec<Output>) {
        let Some(Load { namespace, key, place, waiting, .. }) = self.loads.all.remove(&number) else { return };
        self.loads.bytes -= u64::from(place.len);
        let at = (namespace, key);
        if self.loads.of.get(&at) == Some(&number) {
            self.loads.of.remove(&at);
        }
        let Some(store) = self.stores.get_mut(&namespace) else { return self.lack(now, at, waiting, out) };
        match store.ring.read(now, &at.1, place, bytes) {
            Ok(Some(found)) => self.have(now, at, waiting, found, out),
            // It may be in memory, or elsewhere on the disk.
            Ok(None) => self.anew(now, at, waiting, out),
            Err(()) => {
                self.counts.damaged += 1;
                self.anew(now, at, waiting, out);
            }
        }
    }

    /// Who has waited for too long for a disk has nothing.
    pub(super) fn late_loads(&mut self, now: Time, out: &mut Vec<Output>) {
        while let Some(load) = self.loads.all.values_mut().find(|load| !load.waiting.is_empty() && load.until <= now) {
            let (at, waiting) = ((load.namespace, load.key.clone()), std::mem::take(&mut load.waiting));
            self.loads.late += 1;
            self.lack(now, at, waiting, out);
        }
    }

    /// Answers who waits for it.
    fn have(
        &mut self,
        now: Time,
        (namespace, key): (u32, Bytes),
        waiting: Vec<Waiter>,
        (value, view): (Value, u64),
        out: &mut Vec<Output>,
    ) {
        for waiter in waiting {
            match waiter {
                Waiter::Act(who, act) => {
                    let is_ours = self.views.owner(&key) == self.me && self.views.has_kept(&key, view);
                    let store = self.stores.get_mut(&namespace).filter(|_| is_ours && self.leases.holds(now));
                    let Some(store) = store else {
                        self.serve(now, who, namespace, key.clone(), act, true, out);
                        continue;
                    };
                    self.loads.hits += 1;
                    let left = value.ends.map(|ends| ends.since(now));
                    let value = match act {
                        Act::Look => Value { bytes: Bytes::new(), ..value.clone() },
                        _ => {
                            store.asked(&key);
                            value.clone()
                        }
                    };
                    self.say(now, who, End::Found(value, left), out);
                }
                Waiter::Give { peer, id, life } => {
                    if let Some(store) = self.stores.get_mut(&namespace) {
                        store.ring.remove(&key);
                    }
                    self.give_found(now, peer, (id, life), &key, Some((value.clone(), view)), out);
                }
            }
        }
        // Memory has it from now on, if it is asked for more often than what would have to go.
        if let Some(store) = self.stores.get_mut(&namespace)
            && store.ring.peek(now, &key).is_some()
            && store.would_keep(&key, &value)
        {
            store.insert(key, value, view);
        }
    }

    /// Answers that it cannot be had: it is a miss, and where it lies it stays.
    fn lack(&mut self, now: Time, (namespace, key): (u32, Bytes), waiting: Vec<Waiter>, out: &mut Vec<Output>) {
        for waiter in waiting {
            match waiter {
                Waiter::Act(who, act) => self.serve(now, who, namespace, key.clone(), act, true, out),
                Waiter::Give { peer, id, life } => self.give_found(now, peer, (id, life), &key, None, out),
            }
        }
    }

    /// Something happened to it meanwhile.
    fn anew(&mut self, now: Time, (namespace, key): (u32, Bytes), waiting: Vec<Waiter>, out: &mut Vec<Output>) {
        for waiter in waiting {
            match waiter {
                Waiter::Act(who, act) => self.serve(now, who, namespace, key.clone(), act, false, out),
                Waiter::Give { peer, id, life } => self.give_found(now, peer, (id, life), &key, None, out),
            }
        }
    }

    /// A new owner gets what was here, if it is the newest still.
    pub(super) fn give_found(
        &mut self,
        now: Time,
        peer: NodeId,
        (id, life): (u64, u64),
        key: &[u8],
        found: Option<(Value, u64)>,
        out: &mut Vec<Output>,
    ) {
        let is_leased = self.leases.holds(now);
        let (answer, body) = match found.filter(|(_, view)| is_leased && self.views.has_lost_to(peer, key, *view)) {
            Some((value, _)) => {
                let left = value.ends.map(|ends| ends.since(now));
                verbs::answer_message(End::Found(value, left))
            }
            None => {
                let bare = self.bare_for.contains(&peer);
                (AnswerMessage { end: verbs::ABSENT, bare, ..AnswerMessage::default() }, Bytes::new())
            }
        };
        self.tell(peer, id, life, answer, body, out);
    }
}
