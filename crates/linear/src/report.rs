//! What a node's part of class `linear` tells the other nodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use base::{GroupId, Time};
use serde::{Deserialize, Serialize};

use super::heat::{HotKey, KEY_SHOWN_BYTES};
use super::limits::{QUEUES_TOLD_MAX, UNWHOLE_TOLD_MAX};
use super::machine::Linear;

/// Told once a second. It lies in one object with the reports of other classes, so names of its fields are never given twice.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Of the groups that it leads, how many are as they should be, and in which version of the declaration.
    pub whole: (u64, u64),
    /// ... and some of those that are not.
    pub unwhole: BTreeSet<GroupId>,
    /// Of the groups that it leads, those that have grown large.
    pub large: BTreeSet<GroupId>,
    /// By namespace: keys that get many commands at this node.
    pub hot: BTreeMap<String, Vec<HotShown>>,
    /// Queues by namespace: of the groups that it leads, those first that services work on, then those whose jobs wait longest.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, Vec<QueueShown>>,
}

/// A queue of jobs, as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueShown {
    /// Its first 64 bytes; those that are no plain text as `\\x00`.
    pub name: String,
    /// In place of the name there is a hash of it: who looks has no token for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_hidden: bool,
    /// Jobs that wait, that come later, that workers have, and that are dead.
    pub waiting: u64,
    pub later: u64,
    pub held: u64,
    pub dead: u64,
    /// How long the one waits that has waited longest, milliseconds.
    pub oldest_ms: u64,
}

impl QueueShown {
    /// Its name, if what is shown is that: not a hash, not cut off, and plain text.
    pub fn whole_name(&self) -> Option<&str> {
        let is_whole = !self.is_hidden && self.name.len() < KEY_SHOWN_BYTES && !self.name.contains('\\');
        is_whole.then_some(&self.name)
    }
}

/// A key that gets many commands, as people see it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HotShown {
    /// Its first 64 bytes; those that are no plain text as `\\x00`.
    pub key: String,
    /// Commands a second, at least.
    pub rate: u64,
    /// Commands that wait for their turn, or for a change of it.
    pub waiters: u64,
}

impl Report {
    /// What of it is worth telling all nodes at once. The rest are figures, which change all the time.
    pub(super) fn standing(&self) -> Report {
        Report { hot: BTreeMap::new(), queues: BTreeMap::new(), ..self.clone() }
    }
}

impl Linear {
    pub(super) fn told(&self, now: Time) -> Report {
        let mut hot: BTreeMap<String, Vec<HotShown>> = BTreeMap::new();
        for (namespace, HotKey { key, rate, waiters }) in self.hot(now) {
            let key = key.escape_ascii().to_string();
            hot.entry(namespace.into()).or_default().push(HotShown { key, rate, waiters });
        }
        let unwhole = self.unwhole().take(UNWHOLE_TOLD_MAX).collect();
        Report { whole: self.whole(), unwhole, large: self.large(), hot, queues: self.queues(now) }
    }

    fn queues(&self, now: Time) -> BTreeMap<String, Vec<QueueShown>> {
        let mut all: Vec<(&str, QueueShown)> = self.queues_led(now).collect();
        let urgent = |shown: &QueueShown| Reverse((shown.oldest_ms, shown.dead, shown.waiting));
        all.sort_by_key(|(namespace, shown)| {
            (!self.is_worked_on(namespace, &shown.name), urgent(shown), *namespace, shown.name.clone())
        });
        let mut of: BTreeMap<String, Vec<QueueShown>> = BTreeMap::new();
        for (namespace, shown) in all.into_iter().take(QUEUES_TOLD_MAX) {
            of.entry(namespace.into()).or_default().push(shown);
        }
        of
    }
}
