//! What the page shows, as the node's view has it in JSON. Fields that are not there are empty, ones that are not known
//! are skipped: a page of one version shows a node of another.

use std::collections::BTreeMap;

use cluster::DoorAddrs;
use serde::Deserialize;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Picture {
    pub cluster: String,
    /// The node that shows this.
    pub me: String,
    /// Wall clock when it was made, milliseconds since 1970.
    pub at_ms: u64,
    pub nodes: Vec<Node>,
    pub services: Vec<Service>,
    pub namespaces: Vec<Namespace>,
    pub stubs: Vec<Stub>,
    pub root: Root,
    pub certificates: Vec<Certificate>,
    pub overflow: Overflow,
    /// Of the doors of the node that shows this.
    pub partitions: Vec<PartFigures>,
    /// Edge caches at the same doors: of services, and pipelines, that had a request.
    pub caches: Vec<CacheUse>,
    pub pipelines: Vec<PipeUse>,
    /// Newest last.
    pub events: Vec<Event>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Node {
    pub name: String,
    /// `live`, `suspect`, `dead`.
    pub state: String,
    pub pid: u32,
    pub version: String,
    #[serde(flatten)]
    pub doors: Option<DoorAddrs>,
    /// 0 (idle) to 1000 (full).
    pub load: u16,
    /// Thousandths of a core.
    pub cpu_millis: u32,
    pub resident_bytes: u64,
    pub since_ms: u64,
    pub gauges: BTreeMap<String, u64>,
    pub brick: Brick,
    /// It runs clones only when the others are full.
    pub overflow: bool,
    /// An operator drained it.
    pub drained: bool,
    /// `restart` or `remove`, if it is about to.
    pub leaving: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Brick {
    pub settled: bool,
    pub entries: u64,
    pub bytes: u64,
    pub bytes_max: u64,
}

/// What the node that shows this has to do with one other's brick.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Stub {
    pub brick: String,
    pub window: u64,
    pub in_flight: u64,
    pub slow: bool,
    pub timeouts: u64,
    pub no_room: u64,
    pub turned_away: u64,
    pub full: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Service {
    pub name: String,
    pub wanted: u32,
    pub clones: Vec<CloneOf>,
    pub at: Vec<String>,
    /// Its description, a file that was deployed.
    pub openapi: Option<String>,
    /// Parts that an operator took out of use.
    pub off: Vec<String>,
    pub partitions: Vec<Partition>,
    /// What it runs at times, and before its versions.
    pub runs: Option<Runs>,
    /// Queues of jobs that it works on.
    pub queues: Vec<Worked>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Worked {
    pub namespace: String,
    /// Who has no token sees a hash.
    pub queue: String,
    pub is_told: bool,
    pub waiting: u64,
    pub held: u64,
    pub oldest_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Runs {
    /// As declared: `0 3 * * *`.
    pub times: Option<String>,
    pub next_ms: Option<u64>,
    pub job: Run,
    pub before: Run,
    pub waits_for_before: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Where it runs now.
    pub node: Option<String>,
    pub since_ms: u64,
    pub last: Option<RunEnd>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RunEnd {
    pub node: String,
    pub ended_ms: u64,
    pub good: bool,
    pub how: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Partition {
    pub name: String,
    pub priority: u8,
    /// Part of the clones that are its own.
    pub share: String,
}

/// What a partition's requests met, since the node started.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PartFigures {
    /// `http`, `tcp`.
    pub door: String,
    pub service: String,
    /// Empty for the service's rest.
    pub partition: String,
    pub requests: u64,
    pub refused: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    /// Clones asked besides the first.
    pub asked_more: u64,
}

/// What the edge cache of a service did, since the node started.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CacheUse {
    pub service: String,
    pub hits: u64,
    pub misses: u64,
    pub stale: u64,
    pub passed: u64,
    pub stored: u64,
}

/// What a pipeline answered, since the node started.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PipeUse {
    pub pipeline: String,
    pub exact: u64,
    pub partial: u64,
    pub near: u64,
    pub original: u64,
    pub failed: u64,
    pub jobs: u64,
    pub hits: u64,
}

/// How nodes for overflow were needed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Overflow {
    pub times: u64,
    pub total_ms: u64,
    pub since_ms: Option<u64>,
    pub last_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CloneOf {
    pub name: String,
    pub node: String,
    /// `starting`, `serving`, `draining`, `backoff`.
    pub state: String,
    pub pid: u32,
    pub port: u16,
    pub restarts: u32,
    pub since_ms: u64,
    pub last_exit: Option<String>,
    pub last_output: Vec<String>,
    pub asked: Option<AskedOf>,
    pub cpu_millis: Option<u32>,
    pub resident_bytes: Option<u64>,
}

/// What doors saw of a clone in the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AskedOf {
    pub requests: u64,
    pub failed: u64,
    pub mean_us: u64,
    pub p50_us: Option<u64>,
    pub p99_us: Option<u64>,
    pub under_way: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub name: String,
    pub class: String,
    pub lease_ms: u64,
    pub promise: String,
    pub used: Option<Used>,
    /// Keys that get many commands, the hottest first.
    pub hot: Vec<HotKey>,
    /// Its queues of jobs, those whose jobs wait longest first.
    pub queues: Vec<Queue>,
    /// Its consensus groups, if its class has any.
    pub shards: Vec<Shard>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Shard {
    /// `namespace/number`.
    pub name: String,
    pub leader: Option<String>,
    pub members: Vec<String>,
}

/// A queue of jobs. Who has no token sees a hash of its name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Queue {
    pub name: String,
    pub is_hidden: bool,
    pub waiting: u64,
    pub later: u64,
    pub held: u64,
    pub dead: u64,
    pub oldest_ms: u64,
}

/// A certificate of the cluster. One that comes by itself has no end until it is there.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Certificate {
    pub name: String,
    pub names: Vec<String>,
    pub issuer: String,
    pub ends_at_ms: u64,
    /// Where it comes from by itself.
    pub from: Option<String>,
    /// What went wrong the last time.
    pub why: Option<String>,
}

/// What a namespace holds, copies not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Used {
    pub bytes: u64,
    pub keys: u64,
    /// Of what the fullest part of it may hold; 0 if it has no bound.
    pub percent: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct HotKey {
    pub key: String,
    /// Commands a second.
    pub rate: u64,
    pub waiters: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Root {
    pub leader: Option<String>,
    pub voters: Vec<String>,
    pub version: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Event {
    pub at_ms: u64,
    pub kind: String,
    pub who: String,
    pub text: String,
}

impl Picture {
    /// Reads a view. What cannot be read is told, so that the page can say so.
    pub fn read(view: serde_json::Value) -> Result<Self, String> {
        serde_json::from_value(view).map_err(|error| format!("the node's view could not be read: {error}"))
    }

    pub fn live(&self) -> usize {
        self.nodes.iter().filter(|node| node.state == "live").count()
    }

    /// A gauge of all live nodes together.
    pub fn sum(&self, gauge: &str) -> u64 {
        self.nodes.iter().map(|node| node.gauge(gauge)).sum()
    }

    /// A gauge of the live node that has most of it.
    pub fn most(&self, gauge: &str) -> u64 {
        self.nodes.iter().map(|node| node.gauge(gauge)).max().unwrap_or(0)
    }
}

impl Node {
    /// A gauge of this node; 0 if it is dead: what it said last is no longer so.
    pub fn gauge(&self, name: &str) -> u64 {
        if self.state == "dead" { 0 } else { self.gauges.get(name).copied().unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_or_older_view_is_read_as_far_as_it_is_known() {
        let view =
            serde_json::json!({"cluster": "demo", "new": {"a": 1}, "nodes": [{"name": "n1", "id": 7, "new": []}]});
        let picture = Picture::read(view).unwrap();
        assert_eq!((picture.cluster.as_str(), picture.nodes[0].name.as_str(), picture.events.len()), ("demo", "n1", 0));
        assert!(Picture::read(serde_json::json!({"nodes": 3})).unwrap_err().contains("could not be read"));
    }

    #[test]
    fn dead_nodes_do_no_work() {
        let node = |state: &str, n| Node { state: state.into(), gauges: [("x".into(), n)].into(), ..Node::default() };
        let picture =
            Picture { nodes: vec![node("live", 3), node("suspect", 4), node("dead", 9)], ..Picture::default() };
        assert_eq!((picture.sum("x"), picture.most("x"), picture.sum("y"), picture.live()), (7, 4, 0, 1));
    }
}
