//! The `sql` class: a SQLite database that is the same at each of its nodes. Its promise rests on class `linear`: the database is
//! what a consensus group agrees on, beside that group's keys, and a batch of statements is an entry of the group's log.
//!
//! ```text
//! POST /v1/ns/NAME/sql ─► linear's call `sql.batch` ─► the group's log, forced by a majority ─► Database::apply at each member
//!                         linear's call `sql.query` ─► read-index ─────────────────────────────► Database::query at the leader
//! ```
//! - `database.rs`: one replica, in memory; one that comes from outside: `database/outside.rs`. `rules.rs`: what statements may do. `given.rs`: time and chance, which come with a batch.
//! - `weight.rs`: what SQLite makes of a statement before it runs, and how much of that may be.
//! - `batch.rs`: what callers write. `spec.rs`: the keys of a declaration. `limits.rs`: the bounds.
//! - `linear/src/functions/sql.rs` has the two functions, `linear/src/snapshot.rs` the image in parts.
//!
//! The class's machine itself does nothing: groups, their places, logs, snapshots and calls are those of `linear`, which gives a
//! namespace of this class one group.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod batch;
mod database;
mod given;
pub mod limits;
mod rules;
mod spec;
mod weight;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{GroupId, Now, Outcome, Time};
use class::dump::{self, Nothing};
use class::{Birth, Class, Figure, Number};
use flow::stage::Shown;
use serde::{Deserialize, Serialize};

pub use batch::{Statement, parse, parse_query};
pub use bytes::Bytes;
pub use database::{Answer, Broken, Database, Memory, Outside};
pub use given::Given;
pub use spec::Spec;

/// The level from which a namespace may be of this class (`base/src/level.rs`).
pub const LEVEL: u32 = 7;
/// The level from which statements of a batch keep a bounded part of memory.
pub const LEVEL_BOUNDED: u32 = 8;

/// The level from which databases are dumped and loaded.
pub const LEVEL_DUMPED: u32 = 10;

/// The level from which what SQLite makes of a statement of a batch before it runs is bounded.
pub const LEVEL_WEIGHED: u32 = 12;

/// The level from which a database that is loaded is looked at as statements are.
pub const LEVEL_LOAD_WEIGHED: u32 = 13;

/// Its name in declarations.
pub const NAME: &str = "sql";

/// Why a batch or query was not done. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    pub kind: Kind,
    /// Which of the batch, from 0. None: all of it, or there is one.
    pub statement: Option<usize>,
    pub why: String,
}

/// What is the matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It has not the form of a batch or query.
    Bad,
    /// SQLite does not understand it, or there is no such table.
    Sql,
    /// It must not be done, as replicas would differ or the database be left.
    Refused,
    /// A statement changed or gave fewer rows than it must.
    Unmet,
    /// A constraint of a table does not hold.
    Constraint,
    /// It takes too many steps.
    Budget,
    /// It, or what it gives, has too many bytes.
    Large,
    /// The database would have more bytes than it may.
    Full,
}

/// The part of one node: the declaration's, and nothing else.
#[derive(Debug)]
pub struct Sql;

/// No operation is asked of it: those of its namespaces are operations of class `linear`.
#[derive(Clone, Copy, Debug)]
pub enum Never {}

impl Class for Sql {
    const NAME: &'static str = NAME;
    const NUMBER: Number = Number::SQL;
    const SINCE: u32 = LEVEL;
    const RECORDS: &'static str = "sql";
    const FIGURES: &'static [Figure] = &[];

    type Settings = ();
    type Spec = Spec;
    type Op = Never;
    type Reply = Never;
    /// It keeps none: its groups' are those of class `linear`.
    type Record = ();
    type Report = ();
    type Dump = Nothing<Never, Never>;

    const ON_DISK: bool = true;
    const IN_GROUPS: bool = true;
    const DUMPED: &'static str =
        "the whole database as it was at one moment, in pieces of the file that SQLite would have of it";

    fn born(_: &mut Birth, (): ()) -> Self {
        Sql
    }

    fn start(&mut self, _: BTreeMap<GroupId, Vec<Bytes>>, _: bool) -> bool {
        false
    }

    fn handle(&mut self, _: Now, _: class::Input<Self>, _: &mut Vec<class::Output<Outcome<Never>>>) {}

    fn counts(op: &Never) -> (&str, u64) {
        match *op {}
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }

    fn copies(&self, _: &Spec, _: usize) -> Option<u64> {
        Some(1)
    }

    fn figures(&self) -> Vec<u64> {
        Vec::new()
    }

    fn stages(&mut self, _: Time) -> Vec<(&'static str, Shown)> {
        Vec::new()
    }

    fn dump(_: Arc<str>, _: Vec<(u64, u64)>, _: u64) -> Self::Dump {
        Nothing::default()
    }

    fn load(_: &Arc<str>, _: &dump::Record, _: u64) -> Result<Option<Never>, String> {
        Err("databases are loaded by operations of class linear".into())
    }

    fn loaded(reply: &Never) -> Result<(), String> {
        match *reply {}
    }
}
