//! The class `soft`: collections that every node has whole, writes where it is asked, and joins with what the others have.
//! Each update is a dot; a join needs no order and no exactly-once from the links, which drop, double and reorder.
//!
//! - `dot.rs`, `context.rs`, `cell.rs`: what is joined. `space.rs`: one namespace; `run.rs`: what operations do to it, `list.rs`: to lists.
//! - `machine.rs`: who is told what when, and when an operation is answered. `repair.rs`: what was lost on its way, and what
//!   a node that starts or was away for long gets. `catchup.rs`: until when it serves nobody. `checkpoint.rs`: what is on disk.
//! - `fill.rs`: all cells of others, for one that has nothing.
//! - `compare.rs`, `sketch.rs`: what differs between two whole states, where nobody remembers what happened.
//! - `window.rs`: what was pushed and is not acknowledged; `relay.rs`: by way of another node.
//! - `pass.rs`: what is asked of a node that catches up, or knows too little, another one answers; `words.rs`: as bytes.
//! - `mend.rs`: nodes that have seen the same and have different cells.
//! - `clocks.rs`: a node whose wall clock is off. `sweep.rs`: removals of more than a turn takes. `map.rs`: an ordered map whose copy is cheap.
//! - `watch.rs`: who is told of changes, from a cursor on. `dump.rs`: a namespace as a file, and back.
//! - `over.rs`: lives that are over. `holds.rs`: for the fuzz crate. `claims.rs`: what bytes claim, before it is believed.
//! - `op.rs` the words; `spec.rs` the keys of a declaration; `wire.rs` the bytes; `limits.rs` the bounds.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod catchup;
mod cell;
mod checkpoint;
mod claims;
mod clocks;
mod compare;
mod context;
mod dot;
mod dump;
mod fill;
mod held;
pub mod holds;
pub mod limits;
mod list;
mod machine;
mod map;
mod mend;
mod op;
mod over;
mod pass;
mod relay;
mod repair;
mod run;
mod sketch;
mod space;
mod spec;
mod stale;
mod sweep;
mod tally;
mod watch;
mod why;
mod window;
mod wire;
mod words;

#[cfg(test)]
mod join_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{AskId, Boot, GroupId, NodeId, Now, Outcome, Rng, Time};
use bytes::Bytes;
use class::dump::Record;
use class::{Birth, Class, Figure, Number};
use flow::stage::Shown;

pub use op::{Action, Change, Changes, Did, End, Kind, List, Op, Reply, Side, Watch, Whole, Why};
pub use spec::Spec;

use catchup::Held;
use dot::Life;
use fill::Served;
use held::Holds;
use machine::{Peer, Wait};
use pass::Passes;
use sweep::Sweeps;
pub use watch::NO_CURSOR;
use watch::Watcher;

/// The level from which a namespace may be of this class (`base/src/level.rs`).
pub const LEVEL: u32 = 4;

/// The level from which a namespace may have lists: a node that does not know their kind takes no frame with one.
pub const LIST_LEVEL: u32 = 6;
/// ... of what is held ([`Action::Hold`]).
pub const HELD_LEVEL: u32 = 10;
/// Nodes say how many updates they have made.
pub const STALE_LEVEL: u32 = 11;
/// Who was away for long compares what it has with what another has.
pub const COMPARE_LEVEL: u32 = 12;
/// Lives of nodes that are over are folded.
pub const FOLD_LEVEL: u32 = 14;
/// Slots of such lives are added up.
pub const SLOTS_LEVEL: u32 = 16;

/// Its name in declarations.
pub const NAME: &str = "soft";

/// Why a write was refused as the namespace is full begins with this.
pub const FULL: &str = "the namespace is full";

pub type Input = class::Input<Soft>;
pub type Output = class::Output<Outcome<Reply>>;

/// The part of one node.
pub struct Soft {
    life: Life,
    rng: Rng,
    /// When this life began; none before the first input.
    born: Option<Time>,
    /// The moment of this turn.
    turn_at: Time,
    /// When a client asked something last.
    asked_at: Option<Time>,
    /// All nodes have agreed on this level.
    level: u32,
    /// What the disk has of namespaces that this node has not been told of yet.
    kept: BTreeMap<GroupId, Vec<Bytes>>,
    /// So many records of the declaration cannot be read here.
    unread: usize,
    is_disk_full: bool,
    ids: BTreeMap<String, u32>,
    spaces: BTreeMap<u32, Held>,
    /// All nodes that were let in and not removed since, whether they live or not.
    members: BTreeSet<NodeId>,
    peers: BTreeMap<NodeId, Peer>,
    /// Writes that no other node has yet, by namespace and the number of their last update.
    waits: BTreeMap<(u32, u64), Wait>,
    deadlines: BTreeSet<(Time, u32, u64)>,
    /// Questions for changes, by the moment at which they are answered in any case.
    watchers: BTreeMap<(Time, AskId), Watcher>,
    /// Who holds what at this node.
    holds: Holds,
    /// What other nodes do for this one, and this one for others.
    passes: Passes,
    /// Removals of much that are under way.
    sweeps: Sweeps,
    /// Calls of others since the start.
    served: u32,
    /// Peers that are to be told what has come of a life of theirs, in which namespace.
    owes: BTreeSet<(NodeId, u32, Boot)>,
    /// Peers that are still to be compared with in this round.
    round: Vec<NodeId>,
    gossip_at: Time,
    collect_at: Time,
    prune_at: Time,
    heal_at: Time,
    /// Something is to be sent at the end of this turn.
    is_due: bool,
    /// Cells of a stretch that is compared at once.
    stretch_cells: usize,
    /// Who is given all of which namespace.
    fills: BTreeMap<(NodeId, u32), Served>,
    seen: Seen,
}

/// What is counted since the start.
#[derive(Clone, Copy, Default)]
struct Seen {
    again: u64,
    ahead: u64,
    alone: u64,
    conflicts: u64,
    differed: u64,
    heard: u64,
    mended: u64,
    odd: u64,
    passed: u64,
    repaired: u64,
    transfers: u64,
    unknown: u64,
    updates: u64,
}

impl Class for Soft {
    const NAME: &'static str = NAME;
    const NUMBER: Number = Number::SOFT;
    const SINCE: u32 = LEVEL;
    const RECORDS: &'static str = "soft";
    const FIGURES: &'static [Figure] = &[
        Figure::counter(
            "soft.again",
            "Messages with updates that were sent once more, or by way of another node, as nobody said in time that they had come.",
        ),
        Figure::gauge(
            "soft.age_seconds",
            "How old what this node knows may be, whole seconds: of any namespace, of any node.",
        ),
        Figure::counter(
            "soft.ahead",
            "Writes that came with a time more than a second ahead of this node's: some clock is wrong.",
        ),
        Figure::counter("soft.alone", "Updates that were acknowledged with one copy, as no other node was live."),
        Figure::gauge("soft.bytes", "Keys, values and 128 bytes for each element."),
        Figure::counter(
            "soft.conflicts",
            "Writes of one thing that met others which had not seen them: the newest is read.",
        ),
        Figure::counter(
            "soft.differed",
            "Elements that differed, on either side, when all of a namespace was compared with what another node had.",
        ),
        Figure::gauge("soft.entries", "Elements, and what is remembered of those that are gone."),
        Figure::counter("soft.heard", "Updates of other nodes that came as they were made."),
        Figure::gauge("soft.index", "Updates that not all nodes are known to have."),
        Figure::gauge("soft.keys", "Keys."),
        Figure::counter(
            "soft.mended",
            "Elements that were not what another node had that had seen the same: damaged memory, or a node that lied.",
        ),
        Figure::counter("soft.odd", "Frames that no node of this program can have made."),
        Figure::counter(
            "soft.passed",
            "Operations that were passed to another node, as this one caught up or knew too little.",
        ),
        Figure::counter("soft.repaired", "Elements that came by comparison with another node."),
        Figure::gauge("soft.settled", "1 if this node has what the others had when it started."),
        Figure::counter("soft.transfers", "Namespaces that were got whole from another node."),
        Figure::counter("soft.unknown", "Updates that no other node acknowledged in time."),
        Figure::counter("soft.updates", "Updates that were made here."),
        Figure::gauge("soft.waiting", "Updates that wait for another node."),
        Figure::gauge("soft.watchers", "Questions for changes that wait for one."),
    ];

    type Settings = ();
    type Spec = Spec;
    type Op = Op;
    type Reply = Reply;
    type Record = ();
    type Report = ();

    type Dump = dump::Dump;

    // Checkpoints are there again when all nodes have ended.
    const ON_DISK: bool = true;
    const DUMPED: &'static str = "keys as one node has them, each as it was when it was read: not all at one moment";

    fn born(birth: &mut Birth, (): ()) -> Self {
        Soft::new(birth.me, birth.boot, birth.rng.fork())
    }

    fn start(&mut self, kept: BTreeMap<GroupId, Vec<Bytes>>, _: bool) -> bool {
        self.kept = kept;
        // What the end of it has lost the others have, or it is as if it had been written a moment later.
        false
    }

    fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        self.turn(now, input, out);
    }

    fn counts(op: &Op) -> (&str, u64) {
        (&op.namespace, 1)
    }

    fn wake_at(&self) -> Option<Time> {
        self.next_wake()
    }

    fn figures(&self) -> Vec<u64> {
        let sum = |of: fn(&Held) -> u64| self.spaces.values().map(of).sum::<u64>();
        let Seen {
            again,
            ahead,
            alone,
            conflicts,
            differed,
            heard,
            mended,
            odd,
            passed,
            repaired,
            transfers,
            unknown,
            updates,
        } = self.seen;
        vec![
            again,
            self.age().as_millis() / 1_000,
            ahead,
            alone,
            sum(|held| held.space.bytes()),
            conflicts,
            differed,
            sum(|held| held.space.cells.len() as u64),
            heard,
            sum(|held| held.space.index.len() as u64),
            sum(|held| held.space.keys()),
            mended,
            odd,
            passed,
            repaired,
            u64::from(self.spaces.values().all(Held::is_settled)),
            transfers,
            unknown,
            updates,
            self.waits.len() as u64,
            self.watchers.len() as u64,
        ]
    }

    fn stages(&mut self, _: Time) -> Vec<(&'static str, Shown)> {
        Vec::new()
    }

    fn dump(space: Arc<str>, _: Vec<(u64, u64)>, _: u64) -> dump::Dump {
        dump::dump(space)
    }

    fn load(space: &Arc<str>, record: &Record, wall_ms: u64) -> Result<Option<Op>, String> {
        dump::load(space, record, wall_ms)
    }

    fn loaded(reply: &Reply) -> Result<(), String> {
        dump::loaded(reply)
    }
}

impl Soft {
    fn new(me: NodeId, boot: Boot, rng: Rng) -> Self {
        Self {
            life: Life { node: me, boot },
            rng,
            born: None,
            turn_at: Time::ZERO,
            asked_at: None,
            level: 1,
            kept: BTreeMap::new(),
            unread: 0,
            is_disk_full: false,
            ids: BTreeMap::new(),
            spaces: BTreeMap::new(),
            members: BTreeSet::new(),
            peers: BTreeMap::new(),
            waits: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            watchers: BTreeMap::new(),
            holds: Holds::default(),
            passes: Passes::default(),
            sweeps: Sweeps::default(),
            served: 0,
            owes: BTreeSet::new(),
            round: Vec::new(),
            gossip_at: Time::ZERO,
            collect_at: Time::ZERO,
            prune_at: Time::ZERO,
            heal_at: Time::ZERO,
            is_due: false,
            stretch_cells: limits::STRETCH_CELLS,
            fills: BTreeMap::new(),
            seen: Seen::default(),
        }
    }
}

/// A question that waits.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    id: AskId,
    deadline: Time,
}
