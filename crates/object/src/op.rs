//! What front doors ask of class `object`, and the answers.

use std::sync::Arc;

use base::{NodeId, Priority, Span};
use bytes::Bytes;
use class::Version;

use crate::{Body, Id};

/// An operation on one object of an owner, or on all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    pub namespace: Arc<str>,
    /// Whose object it is: 1 to 255 bytes; but see [`Action::Owners`].
    pub owner: Bytes,
    pub action: Action,
    pub priority: Priority,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Answered with `Stored`, `Conflict` or `Gone`.
    Put { id: Id, body: Body },
    /// Answered with `Object`, `Gone` or `Absent`. From this byte on, as much as one piece has; the next one is asked for then, of
    /// whoever lives. Behind the last byte: what is known of it without bytes.
    Get { id: Id, at: u32 },
    /// Answered with `Deleted` or `Absent`.
    Delete { id: Id },
    /// Objects in order of their ids, behind one; at most so many.
    List { after: Option<Id>, limit: usize },
    /// What changed of owners that begin as the operation's `owner` says (an empty one: of all) behind a cursor; without one, nothing, but
    /// where one is now; behind an empty one, what there is. Answered with `Changes`, when there are some or `hold` is over. `by` is of
    /// whoever watches: an earlier question of theirs is over.
    Watch { after: Option<Bytes>, hold: Span, by: u64 },
    /// Owners that have objects, in order, behind the one that the operation names (an empty one: from the first); at most so many.
    Owners { limit: usize },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The object is on the disks of so many nodes. Fewer than are declared: it is thin.
    Stored {
        version: Version,
        copies: u32,
    },
    Object {
        version: Version,
        /// Bytes and CRC-32C of the whole object. Whoever reads several pieces compares these, and checks the whole.
        size: u32,
        sum: u32,
        /// From the byte on that was asked for.
        body: Bytes,
    },
    /// The deletion is on the disks of so many nodes.
    Deleted {
        version: Version,
        copies: u32,
    },
    List(List),
    Owners(Owners),
    Changes(Changes),
    /// There is no such object: all nodes that could have it said so.
    Absent,
    /// The object was there, and was deleted.
    Gone,
    /// There is another object with this id, and objects are written once.
    Conflict {
        version: Version,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct List {
    pub objects: Vec<Listed>,
    /// There are more behind this one.
    pub after: Option<Id>,
    /// Nodes that did not say what they have: objects of theirs may be missing.
    pub missing: Vec<NodeId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    pub id: Id,
    pub version: Version,
    pub size: u32,
}

/// What changed, in the order of versions. One change may be told more than once, and after a later one of the same object: its version
/// says which stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    pub changes: Vec<Change>,
    /// Behind all of them.
    pub cursor: Bytes,
    /// There are more already.
    pub is_more: bool,
    /// Deletions may have been missed, as they are not remembered for so long: all is to be read anew, and watched behind the cursor.
    pub is_lost: bool,
    /// Nodes that are away: what they alone know of is told when they are back.
    pub missing: Vec<NodeId>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub owner: Bytes,
    pub id: Id,
    pub version: Version,
    /// None: it was deleted.
    pub size: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owners {
    pub owners: Vec<Bytes>,
    /// There are more behind this one.
    pub after: Option<Bytes>,
    /// Nodes that did not say whose objects they have.
    pub missing: Vec<NodeId>,
    /// Nodes that are to have an object, as it is declared.
    pub copies: u32,
}
