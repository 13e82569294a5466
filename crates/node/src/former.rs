//! Who some nodes were: their records in the root group.

use base::{NodeId, Refused};
use bytes::Bytes;
use clones::off::Target;
use cluster::admission::Gone;
use cluster::root::{Change, Declared};
use serde::{Deserialize, Serialize};
use state::linear::place;

use crate::declared::kind;
use crate::facts;
use crate::limits::{ASK_AGAIN, FORMERS_MAX};
use crate::node::Node;

/// A node that entered the cluster anew, or was removed, or was away for too long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Former {
    pub name: String,
    /// Who it is since; 0: nobody; itself: nobody yet, and it may enter anew.
    pub node: NodeId,
    /// What was wrong with its disk, or who removed it, or for how long it was away.
    pub why: String,
    /// Milliseconds since 1970; 0 in records of older programs.
    #[serde(default)]
    pub at_ms: u64,
}

impl Former {
    pub fn is_removed(&self) -> bool {
        self.node == NodeId(0)
    }

    /// Why the node of this id is none any more.
    pub fn gone(&self, id: NodeId) -> Gone {
        match self.node {
            NodeId(0) => Gone::Removed,
            node if node == id => Gone::Away,
            _ => Gone::Anew,
        }
    }
}

/// Takes a node out of the declaration, for good.
pub(crate) fn removal(now: &Declared, name: &str, id: NodeId, why: &str, at_ms: u64) -> Change {
    let former = Former { name: name.to_owned(), node: NodeId(0), why: why.to_owned(), at_ms };
    let mut removes = vec![(kind::NODE.to_owned(), name.to_owned())];
    let off = Target::Node(name.to_owned()).record();
    // Who gets its name later is in use.
    removes.extend(now.get(kind::OFF, &off).map(|_| (kind::OFF.to_owned(), off)));
    removes.extend(oldest_former(now, id));
    Change {
        expect: Some(now.version),
        puts: vec![(kind::FORMER.to_owned(), former_key(id), facts::encode(&former))],
        removes,
    }
}

/// A node of this name was, and none is.
pub(crate) fn was_removed(now: &Declared, name: &str) -> bool {
    let formers = now.of_kind(kind::FORMER).filter_map(|(_, bytes)| facts::decode::<Former>(bytes));
    now.get(kind::NODE, name).is_none() && formers.into_iter().any(|former| former.is_removed() && former.name == name)
}

/// What makes room for one more of them, if that is needed.
pub(crate) fn oldest_former(now: &Declared, id: NodeId) -> Option<(String, String)> {
    let all = || now.of_kind(kind::FORMER);
    if all().count() < FORMERS_MAX || now.get(kind::FORMER, &former_key(id)).is_some() {
        return None;
    }
    let age = |bytes: &Bytes| facts::decode::<Former>(bytes).map_or(0, |former| former.at_ms);
    all().min_by_key(|(_, bytes)| age(bytes)).map(|(key, _)| (kind::FORMER.to_owned(), key.to_owned()))
}

/// The name of its record, and back.
pub(crate) fn former_key(id: NodeId) -> String {
    format!("{:016x}", id.0)
}

pub(crate) fn former_of(key: &str) -> Option<NodeId> {
    u64::from_str_radix(key, 16).ok().map(NodeId)
}

impl Node {
    /// Who a node has become that was this one, if it is nobody any more.
    pub(crate) fn former(&self, id: NodeId) -> Option<Former> {
        facts::decode(self.root.declared().get(kind::FORMER, &former_key(id))?)
    }

    /// A node may be somebody else when it does not run as who it was, and nothing is needed that only it has.
    pub(crate) fn may_renew(&self, former: NodeId, name: &str) -> Result<(), Refused> {
        let declared = self.root.declared();
        let is = |id: NodeId| declared.get(kind::NODE, name) == Some(&facts::encode(&id));
        // If it crashed before it had its new name on disk, it asks again as who it was.
        let is_free = declared.get(kind::NODE, name).is_none();
        let was = self.former(former).filter(|record| record.name == name).is_some_and(|was| match was.gone(former) {
            Gone::Removed => false,
            Gone::Anew => true,
            // Another one may have its name since.
            Gone::Away => is_free,
        });
        if !is(former) && !was {
            return Err(Refused::wrong(format!("no node {name} of id {former} was ever admitted")));
        }
        // Of this name: who asks as somebody whom it has long ceased to be has an old copy of a folder.
        if self.live_cards().any(|card| card.id == former || card.name == name) {
            return Err(Refused::busy(format!("{name} still counts as live"), ASK_AGAIN));
        }
        match place::sole(former, self.placed.values()) {
            None => Ok(()),
            Some(namespace) => Err(Refused::wrong(format!("nobody else has all of namespace {namespace}"))),
        }
    }
}
