//! What a node says of members in its beacon: ranks of its own, and barriers that somebody told it they have reached. JSON, as
//! people read it in traces; where it is long in parts (`parts.rs`). Two nodes' words are merged by taking the higher number, so order and loss do not matter.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::limits::SAID_BYTES_MAX;
use crate::limits::PARTS_FROM;
use crate::parts::{self, Parted};

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Said {
    /// Service, life: rank.
    pub ranks: BTreeMap<String, BTreeMap<String, u64>>,
    /// Service, barrier, life: the highest phase reached.
    pub reached: BTreeMap<String, BTreeMap<String, BTreeMap<String, u64>>>,
}

impl Said {
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("plain data with texts as keys").into()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub fn rank(&self, service: &str, life: &str) -> Option<u64> {
        self.ranks.get(service)?.get(life).copied()
    }

    pub fn phase(&self, service: &str, barrier: &str, life: &str) -> Option<u64> {
        self.reached.get(service)?.get(barrier)?.get(life).copied()
    }

    /// The values of the beacon, in parts if they are many and it `may` be so. A part needs no other one, so the head says nothing.
    pub fn told(&self, may: bool) -> Parted {
        let lives = |ranks: &BTreeMap<String, u64>| ranks.len();
        if !may || self.ranks.values().map(lives).sum::<usize>() <= PARTS_FROM {
            return Parted::whole(self.encode());
        }
        let services: BTreeSet<&str> = self.ranks.keys().chain(self.reached.keys()).map(String::as_str).collect();
        let each: BTreeMap<&str, Self> = services.into_iter().map(|service| (service, self.of(service))).collect();
        let bytes = each.iter().map(|(service, said)| (*service, said.encode().len())).collect();
        let mut parts: BTreeMap<u32, Self> = BTreeMap::new();
        for (service, number) in parts::numbers(&bytes) {
            let part = parts.entry(number).or_default();
            part.take_over(each[service].clone());
        }
        let parts = parts.into_iter().map(|(number, part)| (number, part.encode())).collect();
        Parted { head: Self::default().encode(), parts }
    }

    /// What is said of one service.
    fn of(&self, service: &str) -> Self {
        let of = |(name, all): (&String, &BTreeMap<String, u64>)| (name.clone(), all.clone());
        let ranks = self.ranks.get_key_value(service).map(of);
        let reached = self.reached.get_key_value(service).map(|(name, all)| (name.clone(), all.clone()));
        Self { ranks: ranks.into_iter().collect(), reached: reached.into_iter().collect() }
    }

    /// Adds what the same node says of other services.
    pub fn take_over(&mut self, other: Self) {
        self.ranks.extend(other.ranks);
        self.reached.extend(other.reached);
    }

    /// False if there is no room for it in so many bytes: nothing changed.
    pub fn reach(&mut self, service: &str, barrier: &str, life: &str, phase: u64, bytes_max: usize) -> bool {
        let before = self.phase(service, barrier, life);
        if before >= Some(phase) {
            return true;
        }
        // A quick look that is never too low: names, quotes, a number of 20 digits.
        let more = service.len() + barrier.len() + life.len() + 40;
        let fits = |said: &Self, bytes_max: usize| said.encode().len() + more <= bytes_max;
        let room = before.is_some() || fits(self, bytes_max) && fits(&self.of(service), SAID_BYTES_MAX);
        if room {
            let barriers = self.reached.entry(service.to_owned()).or_default();
            barriers.entry(barrier.to_owned()).or_default().insert(life.to_owned(), phase);
        }
        room
    }

    /// Forgets who is gone.
    pub fn keep(&mut self, mut lives: impl FnMut(&str, &str) -> bool) {
        for (service, ranks) in &mut self.ranks {
            ranks.retain(|life, _| lives(service, life));
        }
        self.ranks.retain(|_, ranks| !ranks.is_empty());
        for (service, barriers) in &mut self.reached {
            for reached in barriers.values_mut() {
                reached.retain(|life, _| lives(service, life));
            }
            barriers.retain(|_, reached| !reached.is_empty());
        }
        self.reached.retain(|_, barriers| !barriers.is_empty());
    }
}
