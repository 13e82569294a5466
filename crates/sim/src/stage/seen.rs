//! What a run keeps of each node: what its last view showed.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Time};
use node::View;
use node::view::NodeState;

use crate::operator;
use crate::plays::linear::load::WIDE;

/// Figure of a node's view that says that its brick holds all that it should, if the node has one.
const FILLED_FIGURE: &str = "session.settled";

/// A node as its last view and its life show it.
#[derive(Default)]
pub struct Seen {
    pub since: Time,
    pub live: Option<BTreeSet<NodeId>>,
    /// When it last took another for live.
    pub met: BTreeMap<NodeId, Time>,
    pub version: u64,
    /// What the cluster has agreed on.
    pub level: u32,
    pub mark: Option<u64>,
    /// Voters of the root group that it takes for live: one whose disk is lost stays a voter until it is replaced.
    pub voters: usize,
    /// Requests that it did not send for their priority.
    pub turned_away: u64,
    /// Bricks of the map that it takes for dead: one whose disk was emptied stays in the map for a while.
    pub bricks_dead: u64,
    pub wanted: Vec<(String, u32)>,
    /// It is about to leave.
    pub leaving: bool,
    /// Names of drained nodes.
    pub drained: BTreeSet<String>,
    pub filled: Option<bool>,
    /// Of class `soft` it has what the others had.
    pub soft_settled: bool,
    /// When it last saw nobody else.
    pub alone_at: Option<Time>,
    /// Groups that it leads and that are whole.
    pub groups_whole: u64,
    /// How many groups there are.
    pub shards: u64,
    /// How many shards splits have made.
    pub splits: u64,
    /// Members of the smallest group, as it should be.
    pub members: usize,
}

impl Seen {
    pub fn take(&mut self, view: &View, now: Time) {
        let live = view.nodes.iter().filter(|node| node.state == NodeState::Live).map(|node| node.id);
        self.live = Some(live.collect());
        if self.live.as_ref().is_some_and(|live| live.len() <= 1) {
            self.alone_at = Some(now);
        }
        self.soft_settled = view.figures.get("soft.settled").is_some_and(|settled| *settled > 0);
        self.version = view.root.version;
        self.level = view.root.level;
        let is_live =
            |name: &&String| view.nodes.iter().any(|node| node.state == NodeState::Live && node.name == **name);
        self.voters = view.root.voters.iter().filter(is_live).count();
        self.bricks_dead = view.figures.get("session.bricks_dead").copied().unwrap_or(0);
        let figures = ["session.turned_away", "linear.turned_away"].map(|name| view.figures.get(name).copied());
        self.turned_away = figures.into_iter().flatten().sum();
        self.mark = operator::mark(view);
        self.wanted = view.services.iter().map(|service| (service.name.clone(), service.wanted)).collect();
        self.leaving = view.nodes.iter().any(|node| node.name == view.me && node.leaving.is_some());
        self.drained = view.nodes.iter().filter(|node| node.drained).map(|node| node.name.clone()).collect();
        let wide = view.namespaces.iter().find(|namespace| namespace.name == WIDE);
        self.splits = wide.map_or(0, |wide| wide.shards.len().saturating_sub(1)) as u64;
        self.groups_whole = view.figures.get("linear.groups_whole").copied().unwrap_or(0);
        let shards = || view.namespaces.iter().flat_map(|namespace| &*namespace.shards);
        self.shards = shards().count() as u64;
        self.members = shards().map(|shard| shard.members.len()).min().unwrap_or(0);
        self.filled = view.figures.get(FILLED_FIGURE).map(|filled| *filled > 0);
    }
}
