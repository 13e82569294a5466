//! What a node says of members in its beacon: ranks of its own, and barriers that somebody told it they have reached. JSON, as
//! people read it in traces; two nodes' words are merged by taking the higher number, so order and loss do not matter.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::limits::SAID_BYTES_MAX;

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

    /// False if there is no room for it: nothing changed.
    pub fn reach(&mut self, service: &str, barrier: &str, life: &str, phase: u64) -> bool {
        let before = self.phase(service, barrier, life);
        if before >= Some(phase) {
            return true;
        }
        // A quick look that is never too low: names, quotes, a number of 20 digits.
        let room =
            before.is_some() || self.encode().len() + service.len() + barrier.len() + life.len() + 40 <= SAID_BYTES_MAX;
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
