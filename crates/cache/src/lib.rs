//! The `cache` class: copies of what is kept elsewhere, each in the memory or on the disk of one node. Any of them may be gone at any time; what is
//! promised is that a purge holds.
//!
//! - `view.rs`: which node owns a key, by rendezvous over the live nodes, and whether it has owned it ever since.
//! - `store.rs`, `sketch.rs`: the entries of a namespace at a node, within its bytes; what goes when there is no room.
//! - `disk.rs`, `loads.rs`: what memory has no room for, on the node's disk, and how it is read.
//! - `lease.rs`: purges, and the leases without which no node serves.
//! - `marks.rs`: whether something was purged while it was fetched.
//! - `here.rs`: copies that each node keeps for itself, as of profiles.
//! - `near.rs`: what who keeps answers beside the machine knows of changes and leases.
//! - `claims.rs`: who fetches what is missing, one in the whole cluster.
//! - `machine.rs`: operations: at the node whose door is asked, at the owner, and at the owner before it.
//! - `op.rs` the words of front doors; `spec.rs` the keys of a declaration; `wire.rs`, `verbs.rs` the bytes; `limits.rs` the bounds.
//!
//! What a read may get: the last value that was acknowledged, or nothing. While nodes do not agree on who is live, for up to a second
//! after a link broke, it may also be the value before. Nothing of a cache survives its node, and nothing has to.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod claims;
mod disk;
mod here;
mod lease;
pub mod limits;
mod loads;
mod machine;
mod marks;
mod near;
mod op;
mod shown;
mod sketch;
mod spec;
mod store;
mod verbs;
mod view;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{GroupId, Now, Outcome, Time};
use bytes::Bytes;
use class::dump::{self, Nothing};
use class::{Birth, Class, Figure, Number};
use flow::stage::Shown;

pub use machine::Cache;
pub use near::{Moment, Near};
pub use op::{Act, Entry, Mark, Op, Purge, Reply, What};
pub use spec::Spec;

/// The level from which there are caches (`base/src/level.rs`).
pub const LEVEL: u32 = 4;
/// The level from which one node alone fetches what is missing; before, everybody does.
pub const LEVEL_FETCH: u32 = 8;

/// The level from which entries may be on disks: a declaration with `disk_max` is none to older programs.
pub const LEVEL_RING: u32 = 16;

pub type Input = class::Input<Cache>;
pub type Output = class::Output<Outcome<Reply>>;

impl Class for Cache {
    const NAME: &'static str = "cache";
    const NUMBER: Number = Number::CACHE;
    const SINCE: u32 = LEVEL;
    const RECORDS: &'static str = "cache";
    const FIGURES: &'static [Figure] = shown::FIGURES;

    type Settings = Near;
    type Spec = Spec;
    type Op = Op;
    type Reply = Reply;
    /// It keeps none.
    type Record = ();
    type Report = ();
    type Dump = Nothing<Op, Reply>;

    const ON_DISK: bool = false;
    const DUMPED: &'static str = "nothing";
    const NOT_DUMPED: Option<&'static str> = Some("what it holds is a copy of what is kept elsewhere");

    fn born(birth: &mut Birth, near: Near) -> Self {
        Cache::new(birth.me, birth.boot, near)
    }

    fn start(&mut self, _: BTreeMap<GroupId, Vec<Bytes>>, _: bool) -> bool {
        false
    }

    fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        self.turn(now.mono, input, out);
    }

    fn counts(op: &Op) -> (&str, u64) {
        (&op.namespace, 1)
    }

    fn wake_at(&self) -> Option<Time> {
        self.next_wake()
    }

    fn figures(&self) -> Vec<u64> {
        self.values_of_figures()
    }

    fn stages(&mut self, _: Time) -> Vec<(&'static str, Shown)> {
        Vec::new()
    }

    fn dump(_: Arc<str>, _: Vec<(u64, u64)>, _: u64) -> Self::Dump {
        Nothing::default()
    }

    fn load(_: &Arc<str>, _: &dump::Record, _: u64) -> Result<Option<Op>, String> {
        Err("values of this class are not loaded".into())
    }

    fn loaded(_: &Reply) -> Result<(), String> {
        Ok(())
    }
}
