//! What a key holds. Collections are shared with snapshots and copied when they are changed under one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use super::hash::Hash;
use super::ledger::Ledger;
use super::queue::Queue;
use super::sorted::Sorted;
use super::stream::Stream;

#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Text(Bytes),
    Hash(Arc<Hash>),
    List(Arc<VecDeque<Bytes>>),
    Set(Arc<BTreeSet<Bytes>>),
    Sorted(Arc<Sorted>),
    Ledger(Arc<Ledger>),
    Stream(Arc<Stream>),
    Queue(Arc<Queue>),
    /// Who holds a lease. The fencing token is the version at which it was claimed: later claims have higher ones.
    Lease {
        holder: Bytes,
        token: u64,
    },
}

/// A key's value and what is known of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    pub value: Value,
    /// Revision of the group that last changed it: higher than any version that the key had before.
    pub version: u64,
    /// When it ends, by the group's clock in milliseconds; 0 is never.
    pub end: u64,
    /// [`Value::bytes`], kept, as counting through a collection takes long.
    pub size: usize,
}

/// What an item of a collection counts beside its bytes: more than it costs in a frame.
pub const ITEM_BYTES: usize = 16;

impl Value {
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Text(_) => "string",
            Value::Hash(_) => "hash",
            Value::List(_) => "list",
            Value::Set(_) => "set",
            Value::Sorted(_) => "zset",
            Value::Ledger(_) => "ledger",
            Value::Stream(_) => "stream",
            Value::Queue(_) => "queue",
            Value::Lease { .. } => "lease",
        }
    }

    /// Nothing in it: such a collection is no value. A ledger is one, without items, too: it knows which numbers were given; and a
    /// stream, which knows its last id and has groups; and a queue, which knows keys that were said.
    pub fn is_empty(&self) -> bool {
        match self {
            Value::Text(_) | Value::Ledger(_) | Value::Stream(_) | Value::Queue(_) | Value::Lease { .. } => false,
            Value::Hash(hash) => hash.is_empty(),
            Value::List(list) => list.is_empty(),
            Value::Set(set) => set.is_empty(),
            Value::Sorted(sorted) => sorted.is_empty(),
        }
    }

    /// When the next of its items ends, or has ended that is still in it, or is due; 0: none does. Only fields of hashes end, and jobs
    /// of queues are due.
    pub fn next_item_end(&self) -> u64 {
        match self {
            Value::Hash(hash) => hash.next_end(),
            Value::Queue(queue) => queue.next_end(),
            _ => 0,
        }
    }

    /// All items in it have ended.
    pub fn is_over(&self, clock: u64) -> bool {
        if let Value::Hash(hash) = self { hash.is_over(clock) } else { false }
    }

    /// Bytes that it holds, and [`ITEM_BYTES`] for each item (and its score). Counts through a collection.
    pub fn bytes(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Hash(hash) => hash.bytes(),
            Value::List(list) => list.iter().map(|item| item.len() + ITEM_BYTES).sum(),
            Value::Set(set) => set.iter().map(|member| member.len() + ITEM_BYTES).sum(),
            Value::Sorted(sorted) => sorted.bytes(),
            Value::Ledger(ledger) => ledger.bytes(),
            Value::Stream(stream) => stream.bytes(),
            Value::Queue(queue) => queue.bytes(),
            Value::Lease { holder, .. } => holder.len(),
        }
    }
}
