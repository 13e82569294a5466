//! What one edge saw of the clones within a moment: how many requests came, waited, were answered and how. Edges send it to
//! the manager some times a second. It may be lost, late or from an edge that is gone: the manager decides less then, and
//! traffic does not notice.

use std::collections::BTreeMap;

use bytes::Bytes;
use flow::histogram::Sparse;
use serde::{Deserialize, Serialize};

/// What one edge tells the manager: what came to each service since its last report.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Demand {
    /// Time since the last report, milliseconds.
    pub span_ms: u32,
    /// Requests of each service, by its name.
    pub groups: BTreeMap<String, GroupDemand>,
}

/// What one service's clones were asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupDemand {
    /// Requests that came, refused ones too.
    pub arrived: u64,
    /// Requests among `arrived` for which there was no room.
    pub refused: u64,
    /// Requests that are here now: answered by a clone, or waiting for one.
    pub in_flight: u64,
    /// What the slowest answer of the last minutes took.
    #[serde(skip_serializing_if = "is_none")]
    pub slowest_ms: u32,
    /// Clones that had requests. While a clone is replaced, the old and the new one have the same number.
    pub clones: Vec<CloneDemand>,
    /// By clone: how long its answers took. Stays at its own node, which tells what it makes of it in its report.
    #[serde(skip)]
    pub took: BTreeMap<u32, Sparse>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CloneDemand {
    pub number: u32,
    /// Answers of this clone.
    pub done: u64,
    /// Answers that say that the program failed (5xx), and requests that it took and never answered.
    pub failed: u64,
    /// Time from request to the beginning of the answer, summed over all requests, microseconds.
    pub busy_us: u64,
    /// Requests that it has now.
    pub in_flight: u64,
    /// Version of the program that it runs; 0 if it was never deployed.
    pub version: u32,
    /// Answers by which it says that it has too much to do.
    #[serde(skip_serializing_if = "is_none")]
    pub overloads: u64,
    /// Requests that it took and has not answered since its last answer, and how long ago that was, or the first of them.
    #[serde(skip_serializing_if = "is_none")]
    pub owes: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub mute_ms: u32,
    /// Failures since its last good answer, and how long ago the first was.
    #[serde(skip_serializing_if = "is_none")]
    pub failing: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub failing_ms: u32,
}

fn is_none<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

impl Demand {
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).expect("numbers and names become JSON").into()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

impl GroupDemand {
    pub fn done(&self) -> u64 {
        self.clones.iter().map(|clone| clone.done).fold(0, u64::saturating_add)
    }
}
