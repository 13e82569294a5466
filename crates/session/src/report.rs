//! What a node's part of class `session` tells the other nodes.

use std::collections::BTreeMap;

use base::Time;
use class::Class;
use serde::{Deserialize, Serialize};

use super::{Opinion, Session};

/// Told once a second. It lies in one object with the reports of other classes, so names of its fields are never given twice.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    pub brick: BrickLoad,
    /// What its stub thinks of the bricks that it asks.
    pub opinion: Opinion,
    /// By namespace: how often its values were written anew, and after how long in sum, milliseconds.
    pub intervals: BTreeMap<String, (u64, u64)>,
}

/// What a node's brick holds and does.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BrickLoad {
    pub entries: u64,
    pub bytes: u64,
    pub bytes_max: u64,
    /// Reads and writes since the node started.
    pub operations: u64,
    /// Times that it gave up its memory in this life of its node.
    pub anew: u64,
}

impl Report {
    /// What of it is worth telling all nodes at once. The rest are figures, which change all the time.
    pub(super) fn standing(&self) -> Report {
        let brick = BrickLoad { anew: self.brick.anew, ..BrickLoad::default() };
        Report { opinion: self.opinion.clone(), brick, intervals: BTreeMap::new() }
    }
}

impl Session {
    pub(super) fn told(&mut self, now: Time) -> Report {
        let figures: BTreeMap<&str, u64> = self.shown().map(|(figure, n)| (figure.name, n)).collect();
        let figure = |name: &str| figures.get(name).copied().unwrap_or(0);
        let brick = BrickLoad {
            entries: figure("session.entries"),
            bytes: figure("session.bytes"),
            bytes_max: figure("session.bytes_max"),
            operations: figure("session.brick_operations"),
            anew: self.starts_anew(),
        };
        let opinion = self.look(now);
        let intervals = self.intervals().into_iter().map(|(name, i)| (name.to_owned(), (i.count, i.sum_ms)));
        Report { brick, opinion, intervals: intervals.collect() }
    }
}
