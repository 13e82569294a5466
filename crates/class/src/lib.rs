//! The contract of a state class. A class is a machine that keeps a promise about the namespaces that are declared with its name: it
//! hears [`Input`]s, wants [`Output`]s, reads its own keys of a declaration ([`Spec`]), and says its figures by name, kind and sentence
//! ([`Figure`]).
//!
//! This crate knows no class. `state` has the list of them; `node` wires the list and names no class where it carries events.
//! What classes need of this contract, and what is not in it yet, stands in `docs/design/classes.md`.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod databases;
pub mod dump;
mod figure;
mod flag;
mod io;
pub mod limits;
mod number;
mod plan;
pub mod quota;
mod scene;
mod secret;
mod spec;
pub mod version;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use base::{Boot, GroupId, NodeId, Now, Outcome, Rng, Span, Time};
use bytes::Bytes;
use cluster::raft::LogBounds;
use flow::stage::Shown;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use databases::Databases;
pub use dump::Dump;
pub use figure::{Figure, Kind};
pub use flag::Flag;
pub use io::{Declared, Input, Numbers, Output, Space};
pub use number::Number;
pub use plan::{Groups, Outlook, Plan};
pub use quota::{Bound, Bounds, Quota, Used};
pub use scene::{Leaver, Leaving, Moment, Peer, Scene};
pub use secret::{CookieKey, CookieSecret};
pub use spec::{Key, Line, Spec, Wrong, is_number, size, span};
pub use version::Version;

/// What a node's part of a class is born with.
#[derive(Debug)]
pub struct Birth {
    pub me: NodeId,
    /// Higher at each start of the same node: it makes ids of this life unique.
    pub boot: Boot,
    pub rng: Rng,
    /// What the program of this node understands.
    pub level: u32,
    /// How long the logs of consensus groups become.
    pub log: LogBounds,
}

/// How long nodes are waited for that are away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    pub within: Span,
    /// With more nodes away than that, what they have may be nowhere else until others have made copies of it; 0: it is, for ever.
    pub away_max: usize,
}

/// One class, as the machine of one node.
pub trait Class: Sized {
    /// Its name in declarations and documents.
    const NAME: &'static str;
    /// Owns its frames, its groups in the node's log, and its reports. Never given twice.
    const NUMBER: Number;
    /// The level of programs (`base/src/level.rs`) from which a namespace may be of this class: older ones do not know it.
    const SINCE: u32 = 1;
    /// Kind of the records that it keeps in the root group.
    const RECORDS: &'static str;
    /// All its figures, in order of their names: [`Class::figures`] has a value for each.
    const FIGURES: &'static [Figure];

    /// What whoever starts the node tells it of its own: bounds of memory and the like. The default is what a node has that says nothing.
    type Settings: Clone + Debug + Default + 'static;
    /// Options of `coppice run` and `coppice up` by which a node is told something of its [`Class::Settings`].
    const FLAGS: &'static [Flag<Self::Settings>] = &[];
    /// What is declared of one of its namespaces.
    type Spec: Spec;
    /// An operation that a front door asks for.
    type Op: Debug;
    /// What a done operation answers.
    type Reply: Debug;
    /// What its planner keeps in the root group.
    type Record: Clone + PartialEq + Debug + Serialize + DeserializeOwned;
    /// What its part of a node tells all other nodes, once a second. Reports of all classes are one object of JSON: names of its
    /// fields begin with the class's, but for those that are older than this rule; and what is missing is as by default.
    type Report: Clone + Default + PartialEq + Debug + Serialize + DeserializeOwned;
    /// One of its namespaces that is being written to a file.
    type Dump: Dump<Op = Self::Op, Reply = Self::Reply>;

    /// Whether its values outlive a stop of all nodes: such ones are in a backup.
    const ON_DISK: bool;
    /// Whether its namespaces lie in consensus groups, each with a leader: without one nothing is done there.
    const IN_GROUPS: bool = false;
    /// What a dump of a namespace shows, in a sentence for people.
    const DUMPED: &'static str;
    /// How often it is asked for a plan while nothing is declared, nobody begins to leave, and the last look found nothing to do. Zero: at
    /// each tick of the node, five times a second or so; a class with thousands of records looks less often. None: it plans nothing.
    const PLANS_EVERY: Option<Span> = None;
    /// Whether it wants [`Input::Told`]. Who plans at the root group's leader has the reports anyway.
    const HEARS: bool = false;
    /// Why its namespaces are not written to files, if they are not: front doors refuse with it.
    const NOT_DUMPED: Option<&'static str> = None;

    /// A new life. All its chance comes from `birth`.
    fn born(birth: &mut Birth, settings: Self::Settings) -> Self;

    /// Comes first and once: what the disk has kept of its groups. `rebooted`: the end of what was not forced may be missing.
    /// True: it recovers from that, and says [`Output::Recovered`] when it is done. The node is whole when all that recover are.
    fn start(&mut self, kept: BTreeMap<GroupId, Vec<Bytes>>, rebooted: bool) -> bool;

    /// Takes the time and one input, appends what it wants done.
    fn handle(&mut self, now: Now, input: Input<Self>, out: &mut Vec<Output<Outcome<Self::Reply>>>);

    /// The namespace that an operation is about, and for how many it counts: what is done together costs as much as one by one.
    fn counts(op: &Self::Op) -> (&str, u64);

    /// The moment at which it next wants [`Input::Wake`].
    fn wake_at(&self) -> Option<Time>;

    /// This node leaves for good ([`Input::Leaving`]): what others have yet to take over of what it has, in words.
    fn counted_on(&self) -> Option<String> {
        None
    }

    /// Why no namespace may be of this class where this node takes declarations, if that is so: by what it was started with.
    fn lacks(&self) -> Option<&'static str> {
        None
    }

    /// What its part of this node tells the others: asked for once a second or so, and when something has happened that they wait for.
    fn report(&mut self, _now: Time) -> Self::Report {
        Self::Report::default()
    }

    /// What of a report is worth telling all nodes at once. The rest are figures, which change all the time, and go to a few.
    fn standing(_report: &Self::Report) -> Self::Report {
        Self::Report::default()
    }

    /// What this node has of each namespace and tells of it, with what that part may have. One may come several times, in parts.
    fn used(&self) -> Vec<(&str, Used, Bounds)> {
        Vec::new()
    }

    /// How many nodes tell of each key by [`Class::used`], while so many nodes live. None if nothing is told of its namespaces.
    fn copies(&self, _spec: &Self::Spec, _live: usize) -> Option<u64> {
        None
    }

    /// At the root group's leader: which records should be there and are not. Pure: the same outlook gives the same plan, and what is
    /// planned is proposed by the node.
    fn plan(&self, _outlook: &Outlook<'_, Self>) -> Plan<Self::Record> {
        Plan::default()
    }

    /// For how long it keeps what a node misses that is away, if that is not for ever: later that one is gone, and enters anew.
    fn waits(&self) -> Option<Waits> {
        None
    }

    /// Why a node that leaves is still needed, in words, if it is. Asked of any node, about any.
    fn needs(&self, _scene: &Scene<'_, Self>, _leaver: Leaver) -> Option<String> {
        None
    }

    /// Values of [`Class::FIGURES`], in the same order.
    fn figures(&self) -> Vec<u64>;

    /// All figures with their values, in order of their names.
    fn shown(&self) -> impl Iterator<Item = (&'static Figure, u64)> {
        let values = self.figures();
        debug_assert_eq!(values.len(), Self::FIGURES.len(), "each figure has a value");
        Self::FIGURES.iter().zip(values)
    }

    /// Its stages, by name, since the last look.
    fn stages(&mut self, now: Time) -> Vec<(&'static str, Shown)>;

    /// Begins to read a namespace out. `shards`: the ranges of hashes that it is cut into, if the class has such; `id` is
    /// of this dump alone.
    fn dump(space: Arc<str>, shards: Vec<(u64, u64)>, id: u64) -> Self::Dump;

    /// The operation that puts a part or an item of a dump back; none if there is nothing to do. Doing it again changes
    /// nothing. `wall_ms` is now.
    ///
    /// # Errors
    /// Why the class cannot hold it.
    fn load(space: &Arc<str>, record: &dump::Record, wall_ms: u64) -> Result<Option<Self::Op>, String>;

    /// Whether such an operation did what it should.
    ///
    /// # Errors
    /// Why not.
    fn loaded(reply: &Self::Reply) -> Result<(), String>;
}
