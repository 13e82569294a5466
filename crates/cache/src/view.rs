//! Which node owns a key, in a view of who is live: the one whose hash with the key is highest (rendezvous), so that a death moves
//! that node's keys and no others. All nodes offer the same bytes (`size_max`), so all weigh the same.
//!
//! Views are numbered at each node by itself. An entry is good only at a node that has owned its key in all its views since it was
//! stored: in between another node may have stored a newer one.

use std::collections::{BTreeSet, VecDeque};

use base::checksum::place_hash_pair;
use base::{NodeId, Time};

use super::limits::{FORMER_FOR, VIEWS_KEPT};

pub struct Views {
    me: NodeId,
    /// The newest last; never empty.
    all: VecDeque<View>,
    /// When this node came to the others, or came back.
    joined: Option<Time>,
    /// Nodes that did not answer it or have nothing for it, and are not asked any more.
    deaf: BTreeSet<NodeId>,
}

struct View {
    number: u64,
    nodes: Vec<NodeId>,
}

impl Views {
    /// A node that knows nobody.
    pub fn new(me: NodeId) -> Self {
        let alone = View { number: 1, nodes: vec![me] };
        Self { me, all: VecDeque::from([alone]), joined: None, deaf: BTreeSet::new() }
    }

    fn newest(&self) -> &View {
        self.all.back().expect("there is always one")
    }

    pub fn number(&self) -> u64 {
        self.newest().number
    }

    pub fn nodes(&self) -> &[NodeId] {
        &self.newest().nodes
    }

    pub fn owner(&self, key: &[u8]) -> NodeId {
        owner(&self.newest().nodes, key)
    }

    /// Somebody came or went.
    pub fn change(&mut self, now: Time, peer: NodeId, lives: bool) {
        let mut nodes = self.newest().nodes.clone();
        nodes.retain(|node| *node != peer);
        if lives {
            nodes.push(peer);
        }
        nodes.sort_unstable();
        if self.nodes().len() == 1 {
            self.joined = Some(now);
        }
        self.put(nodes);
    }

    fn put(&mut self, nodes: Vec<NodeId>) {
        self.all.push_back(View { number: self.number() + 1, nodes });
        if self.all.len() > VIEWS_KEPT {
            self.all.pop_front();
        }
        self.deaf.clear();
    }

    /// Has this node owned the key in all views since that one, as far as it remembers?
    pub fn has_kept(&self, key: &[u8], since: u64) -> bool {
        let remembers = self.all.front().is_some_and(|view| view.number <= since);
        // Mostly nothing has changed.
        since == self.number()
            || remembers && self.all.iter().filter(|view| view.number >= since).all(|v| owner(&v.nodes, key) == self.me)
    }

    /// Has this node owned the key since that view, until it was this peer's, which has it still?
    pub fn has_lost_to(&self, peer: NodeId, key: &[u8], since: u64) -> bool {
        let remembers = self.all.front().is_some_and(|view| view.number <= since);
        let mut owners = self.all.iter().filter(|view| view.number >= since).map(|view| owner(&view.nodes, key));
        remembers && owners.by_ref().find(|owner| *owner != self.me) == Some(peer) && owners.all(|owner| owner == peer)
    }

    /// Who owned the key before this node was there, if it has come lately and that one is to be asked.
    pub fn former(&self, now: Time, key: &[u8]) -> Option<NodeId> {
        self.joined.filter(|joined| now.since(*joined) < FORMER_FOR)?;
        let others = self.nodes().iter().copied().filter(|node| *node != self.me);
        best(others, key).filter(|former| !self.deaf.contains(former))
    }

    /// Others thought for a while that this node is dead, and may have had its keys.
    pub fn rejoin(&mut self, now: Time) {
        let nodes = self.nodes().to_vec();
        self.put(nodes);
        self.joined = Some(now);
    }

    /// It did not answer, or has nothing that this node could ask for.
    pub fn give_up(&mut self, former: NodeId) {
        self.deaf.insert(former);
    }
}

fn owner(nodes: &[NodeId], key: &[u8]) -> NodeId {
    best(nodes.iter().copied(), key).expect("a node is in its own view")
}

fn best(nodes: impl Iterator<Item = NodeId>, key: &[u8]) -> Option<NodeId> {
    nodes.max_by_key(|node| (place_hash_pair(key, node.0), *node))
}
