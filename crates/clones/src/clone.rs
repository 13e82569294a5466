//! One clone: its name, the states of its life, and what its node says of it. What a clone is started with is in `spec`,
//! how it lives in `group`.

use std::fmt;

use base::Boot;
use serde::{Deserialize, Serialize};

use crate::Version;

/// Name of a clone: `shop/2`. Numbers of a service's clones are 0..n.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct CloneId {
    pub service: String,
    pub number: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CloneState {
    /// Its process is being started or has not answered a probe yet.
    Starting,
    /// In the routes.
    Serving,
    /// Out of the routes, finishing what it has.
    Draining,
    /// Not running: waits to be started again after it died, or for what it needs.
    Backoff,
}

/// What a node says of one of its clones. While a clone is replaced by one with a new declaration, both are listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CloneStatus {
    pub id: CloneId,
    pub state: CloneState,
    /// 0 when no process runs.
    pub pid: u32,
    /// 0 when no process runs.
    pub port: u16,
    /// How often it was started again after a death, since it came to this node.
    pub restarts: u32,
    /// Wall clock when it came to be in this state, milliseconds since 1970.
    pub since_ms: u64,
    /// How it last ended, or why it is not started.
    pub last_exit: Option<String>,
    /// Newest last. Of the life that runs, or of the last one while that has printed nothing and does not serve.
    pub last_output: Vec<String>,
    /// Which life of it on this node, in this life of the node; 0 when no process runs.
    pub life: u64,
    /// Hash of the declaration that its process was started with; two clones with one hash run the same thing.
    pub spec_hash: u64,
    /// Version of its program; 0 if it was never deployed.
    pub version: u32,
    /// How often processes of that version died here, since the clone is to run it; none if its node's program does not tell.
    pub deaths: Option<u32>,
    /// Whether it fails its probes, or was restarted for that and does not serve yet.
    pub sick: bool,
}

/// A node's clones: the content of its beacon.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeClones {
    /// Version of the assignments that the node obeys.
    pub obeys: Version,
    pub clones: Vec<CloneStatus>,
}

/// Something for the list of events that people see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Happened {
    /// `clone-started`, `clone-died`, `clone-stopped`, `clone-moved`, `scaled`, `overflow`, `healed`, `warning`.
    pub kind: &'static str,
    /// The clone's name, or that of a service or node.
    pub who: String,
    pub text: String,
}

/// The name of one life of a clone, which no other has: its node's name, the node's life, and the clone's on it.
pub fn life_name(node: &str, boot: Boot, life: u64) -> String {
    format!("{node}.{}.{life}", boot.0)
}

impl CloneId {
    pub fn new(service: impl Into<String>, number: u32) -> Self {
        Self { service: service.into(), number }
    }

    /// Where the host keeps what it prints, below its node's folder.
    pub fn log(&self) -> String {
        format!("logs/{}-{}.log", self.service, self.number)
    }
}

impl fmt::Display for CloneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.number)
    }
}

impl Happened {
    pub fn new(kind: &'static str, who: &CloneId, text: impl Into<String>) -> Self {
        Self { kind, who: who.to_string(), text: text.into() }
    }
}
