//! The `object` class: whole objects of an owner (messages of a mailbox, say), on the disks of a few nodes, put, read and deleted at any
//! node (Saito et al., "Manageability, availability and performance in Porcupine"). No node is needed in particular, and nobody is
//! elected: the node that is asked sends to all it has chosen, and any node that holds a write finishes what was left undone.
//!
//! - A put is answered when the logs of `copies` nodes are forced. A candidate that is dead, full or silent for 250 ms is replaced by
//!   another one; it stays a *home*, a node that may have the object, and hears of all that happens to it.
//! - Of two writes of an object one stays, the same at all nodes (`stamp`). With `writes = "once"` a deletion is above all, whatever
//!   clocks say.
//! - A write that not all its homes have is *open* at those that have it. They push it until all have it.
//! - An object with fewer homes than `copies` is *thin*: the first of its holders gives it another home.
//! - One that is larger than a frame goes in pieces (`ship` sends them, `stage` is where they wait): it is there when the put that names
//!   them is on the disk behind them, and before that there is nothing.
//! - In a cluster of some nodes each owner has a *manager* among them, which is told who has objects of it: so whoever looks for one asks
//!   two or three nodes and not all.
//! - That an object is *absent* is said only when all nodes of the cluster have said that they do not have it.
//!
//! Files: `op` the words; `body` bytes in pieces; `spec` the keys of a declaration; `stamp` names, and which write
//! stays; `table` what a node has (`held` where else it is, `names` whose, `graves` deletions that are over, `order`
//! in which order it came); `walk` looks at all of it; `holder` what it
//! does with it, `log` its disk, `push` what is open or thin, `lies` where bytes lie, `packs` and `store` those on the disk, `give_up` copies that are too many, `mend` bad ones; `dump` a namespace as a file and back;
//! `asker` operations of this node's doors, `write` and `read` their second
//! half, `choose` who gets a new object; `map` who manages which owners, `directory` what a manager is told, `feed` what it is told by one node, `owners` what comes of both;
//! `watch` changes as they come; `left` what a node had alone that enters anew; `probe` for tests; `peers` who lives; `wire` bytes on the wire and in the log, `batch` many entries of a checkpoint in one.
//!
//! What is not there yet, and why an acknowledged object stays: docs/design/object.md.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod alone;
mod asker;
mod batch;
mod body;
mod choose;
mod directory;
mod dump;
mod feed;
mod filled;
mod give_up;
mod graves;
mod held;
mod holder;
mod left;
mod lies;
pub mod limits;
mod log;
mod map;
mod mend;
mod names;
mod op;
mod order;
mod owners;
mod packs;
mod peers;
mod probe;
mod push;
mod read;
#[cfg(test)]
mod scale_tests;
mod ship;
mod spec;
mod stage;
mod stamp;
mod store;
mod table;
mod walk;
mod watch;
mod wire;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::{Boot, Frame, GroupId, NodeId, Now, Outcome, Priority, Rng, Span, Time};
use bytes::Bytes;
use class::dump::Record;
use class::version::Clock;
use class::{Birth, Bounds, Class, Declared, Figure, Leaver, Leaving, Moment, Number, Numbers, Scene, Used, Waits};
use flow::stage::Shown;
use prost::Message;

pub use body::{Body, Cutter};
#[doc(hidden)]
pub use filled::filled;
pub use left::{Left, left_alone};
pub use map::bucket_of;
pub use op::{Action, Change, Changes, List, Listed, Op, Owners, Reply};
#[doc(hidden)]
pub use probe::{Bug, Fragments};
pub use spec::{Spec, Writes};
pub use stamp::{Id, Key, NotAnId, Stamp};
pub use watch::NO_CURSOR;

use asker::Ops;
use directory::Directory;
use feed::Feed;
use give_up::Giving;
use log::Log;
use map::Map;
use mend::Mending;
use peers::Peers;
use push::Open;
use ship::Ships;
use stage::Stages;
use store::Store;
use table::Table;
use walk::{Digging, Walk};
use watch::Watchers;
use wire::{Head, What};

pub type Input = class::Input<Object>;
pub type Output = class::Output<Outcome<Reply>>;

/// The level from which namespaces of this class may be declared (`base/src/level.rs`).
pub const LEVEL: u32 = 4;

/// The level from which objects may be in pieces.
pub const PIECES_LEVEL: u32 = 7;

/// The level from which there may be directories.
pub const DIRECTORIES_LEVEL: u32 = 11;

/// The level from which objects may be watched.
pub const WATCH_LEVEL: u32 = 12;

/// What a put is told when all nodes that could take it are full.
pub const NO_ROOM: &str = "no node has room for it";

/// What whoever starts a node tells its part of the class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// In a cluster of so many nodes there are directories of who has whose objects. In a smaller one all nodes are asked.
    pub directories_from: usize,
    /// What objects may have at this node, bytes.
    pub bytes_max: u64,
    /// So much becomes one pack.
    pub pack_bytes: u64,
    /// Bytes of packs that nothing needs, beside half as many as are needed, which are not worth writing the rest anew.
    pub waste_bytes: u64,
    /// Entries that a checkpoint walks over in one turn.
    pub save_entries: usize,
    /// Entries that are looked at in one turn when nodes came or went.
    pub walk_entries: usize,
    /// Objects of a node.
    pub entries_max: usize,
    /// Deletions that not all nodes have which should have them.
    pub unsettled_max: usize,
    /// Deletions that all have, and that are remembered.
    pub graves_max: usize,
    /// What a node misses is kept for it for so long while it is away.
    pub away_for: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            directories_from: limits::DIRECTORIES_FROM,
            bytes_max: limits::BYTES_MAX,
            pack_bytes: limits::PACK_BYTES,
            waste_bytes: limits::WASTE_BYTES,
            save_entries: limits::SAVE_ENTRIES,
            walk_entries: limits::WALK_ENTRIES,
            entries_max: limits::ENTRIES_MAX,
            unsettled_max: limits::UNSETTLED_MAX,
            graves_max: limits::GRAVES_MAX,
            away_for: limits::AWAY_FOR,
        }
    }
}

/// One node's part of the class.
pub struct Object {
    me: NodeId,
    boot: Boot,
    rng: Rng,
    clock: Clock,
    settings: Settings,
    spaces: BTreeMap<Arc<str>, (u32, Spec)>,
    /// Copies that are declared, by number of the namespace.
    copies: BTreeMap<u32, u32>,
    numbers: Numbers,
    peers: Peers,
    table: Table,
    open: Open,
    giving: Giving,
    mending: Mending,
    /// All entries are being looked at.
    walk: Option<Walk>,
    digging: Digging,
    stages: Stages,
    ships: Ships,
    /// The level of programs that the cluster has agreed on.
    level: u32,
    map: Map,
    directory: Directory,
    /// What this node tells managers.
    feeds: BTreeMap<NodeId, Feed>,
    /// One of them may have something to say.
    has_to_tell: bool,
    /// Who waits for what changes here.
    watchers: Watchers,
    log: Log,
    store: Store,
    /// What is left of the disk is for deletions, and for what makes room.
    is_disk_low: bool,
    ops: Ops,
    /// What this node says to itself, in this turn.
    own: VecDeque<(Head, Bytes)>,
    /// What the disk has kept cannot be read.
    distrust: Option<String>,
    figures: Figures,
    /// A planted one.
    bug: Option<Bug>,
}

/// Counted since the node started.
#[derive(Default)]
struct Figures {
    puts: u64,
    gets: u64,
    deletes: u64,
    refused: u64,
    unknown: u64,
    replaced: u64,
    pushes: u64,
    damaged: u64,
    given_up: u64,
    mended: u64,
    asked_all: u64,
    /// Owners that managers were told of: no door shows it.
    named: u64,
}

/// One call of the machine: its time, and what it wants.
struct Call<'a> {
    now: Time,
    wall_ms: u64,
    out: &'a mut Vec<Output>,
}

impl Class for Object {
    const NAME: &'static str = "object";
    const NUMBER: Number = Number::OBJECT;
    const RECORDS: &'static str = "object";
    const SINCE: u32 = LEVEL;
    const FIGURES: &'static [Figure] = &[
        Figure::counter(
            "object.asked_all",
            "Lookups of this node's doors that went to all nodes, as no directory was there that could do.",
        ),
        Figure::gauge(
            "object.buckets",
            "Buckets of owners of which this node keeps a directory: who has their objects.",
        ),
        Figure::gauge(
            "object.buckets_partial",
            "Those of them of which not all nodes have told it yet: all nodes are asked until then.",
        ),
        Figure::gauge("object.bytes", "Bytes of the objects at this node, with what it costs to know of them."),
        Figure::gauge("object.bytes_max", "What `object.bytes` may be at most."),
        Figure::counter(
            "object.damaged",
            "Copies of objects that were found with a wrong checksum, here or as another node sent them; another copy was read.",
        ),
        Figure::counter("object.deletes", "Deletions that this node's doors asked for."),
        Figure::gauge("object.disk_bytes", "Bytes of the packs on this node's disk, in which its objects lie."),
        Figure::counter("object.gets", "Objects that this node's doors asked for."),
        Figure::counter("object.given_up", "Copies that this node dropped, as enough others have the object."),
        Figure::gauge("object.memory_bytes", "Bytes of objects in this node's memory: those that lie in no pack yet."),
        Figure::counter(
            "object.mended",
            "Copies at this node with a wrong checksum whose place another node's copy took.",
        ),
        Figure::gauge("object.objects", "Objects at this node."),
        Figure::gauge("object.open", "Writes at this node that not all nodes have which should have them."),
        Figure::gauge("object.owners_known", "Owners in this node's directories."),
        Figure::gauge("object.pending", "Writes that wait for this node's disk."),
        Figure::counter("object.pushes", "Writes that this node sent to others which did not have them."),
        Figure::counter("object.puts", "Objects that this node's doors were given."),
        Figure::counter("object.refused", "Operations that were refused: nothing was changed."),
        Figure::counter(
            "object.replaced",
            "Nodes that were replaced by others in a write, as they did not answer or had no room.",
        ),
        Figure::gauge(
            "object.thin",
            "Objects and deletions at this node that have fewer nodes to be on than are declared.",
        ),
        Figure::gauge("object.tombstones", "Deletions that this node remembers."),
        Figure::counter("object.unknown", "Writes of which it is not known whether they happened."),
    ];

    type Settings = Settings;
    type Spec = Spec;
    type Op = Op;
    type Reply = Reply;
    type Record = ();
    type Report = ();
    type Dump = dump::Dump;

    const ON_DISK: bool = true;
    const DUMPED: &'static str =
        "each object that is there throughout; nothing while as many nodes are silent as have an object";

    fn born(birth: &mut Birth, settings: Settings) -> Self {
        Self::new(birth.me, birth.boot, birth.rng.fork(), settings)
    }

    fn start(&mut self, mut kept: BTreeMap<GroupId, Vec<Bytes>>, _: bool) -> bool {
        // All that is acknowledged was forced: a reboot takes nothing that counts.
        self.restore(kept.remove(&GROUP).unwrap_or_default());
        false
    }

    fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        self.clock.wall(now.wall_ms);
        let call = &mut Call { now: now.mono, wall_ms: now.wall_ms, out };
        if let Some(why) = self.distrust.take() {
            call.out.push(Output::Distrust { why });
        }
        match input {
            Input::Ask { id, budget, op } => self.ask(call, id, budget, op),
            Input::Frame { from, frame } => self.frame(call, from, frame),
            Input::Birth { peer, boot } => self.birth(call, peer, boot),
            Input::Death { peer } => self.death(call, peer),
            Input::Declared(declared) => self.declared(call, declared),
            Input::Appended { group, ticket } if group == GROUP => self.appended(call, ticket),
            Input::Saved { group, ticket } if group == GROUP => self.log.saved(ticket),
            Input::Packs(there) => self.packs_are_there(call, there.get(&GROUP).unwrap_or(&BTreeMap::new())),
            Input::Pack { group, said } if group == GROUP => self.pack_said(call, said),
            Input::DiskFull(is_full) => self.log.is_full = is_full,
            Input::DiskRoom { free, all } => {
                self.is_disk_low = free < limits::FREE_BYTES_MIN.min(all / limits::FREE_PART_MIN);
            }
            Input::Aside(aside) => self.peers.aside = aside,
            Input::Leaving(leaving) => self.leaving(call, leaving),
            Input::Probe { id, .. } => call.out.push(Output::Probed { id, answers: false }),
            Input::Tend => self.tend(call),
            Input::Appended { .. } | Input::Saved { .. } | Input::Pack { .. } | Input::Worked { .. } => (),
            Input::Told { .. } | Input::Wake | Input::Voters(_) => (),
        }
        if self.walk.as_ref().is_some_and(|walk| walk.next() <= call.now) {
            self.walk_on(call);
        }
        loop {
            self.wake_ops(call);
            self.wake_ships(call);
            self.tell_managers(call);
            let Some((head, body)) = self.own.pop_front() else { break };
            self.hear(call, self.me, head, body);
        }
        self.tell_watchers(call);
        self.bury_now(call);
        self.pack_on(call);
    }

    fn counts(op: &Op) -> (&str, u64) {
        (&op.namespace, 1)
    }

    fn wake_at(&self) -> Option<Time> {
        if self.distrust.is_some() {
            return Some(Time::ZERO);
        }
        let walk = self.walk.as_ref().map(Walk::next);
        [self.ops.wake_at(), self.ships.wake_at(), self.directory.wake_at(), self.watchers.wake_at(), walk]
            .into_iter()
            .flatten()
            .min()
    }

    fn counted_on(&self) -> Option<String> {
        match self.open.left() {
            0 if self.walk.is_some() && self.peers.leaves(self.me) => Some("it is looking at what others have".into()),
            0 => None,
            1 => Some("others have yet to take over 1 object".into()),
            n => Some(format!("others have yet to take over {n} objects")),
        }
    }

    fn used(&self) -> Vec<(&str, Used, Bounds)> {
        self.spaces.iter().map(|(name, (id, _))| (&**name, self.table.used(*id), Bounds::default())).collect()
    }

    fn copies(&self, spec: &Spec, live: usize) -> Option<u64> {
        Some(u64::from(spec.copies).clamp(1, live.max(1) as u64))
    }

    fn waits(&self) -> Option<Waits> {
        // Of what was acknowledged by all its copies one is then at a node that lives.
        let copies = self.spaces.values().map(|(_, spec)| spec.copies as usize).min()?;
        Some(Waits { within: self.settings.away_for, away_max: copies.saturating_sub(1) })
    }

    fn needs(&self, scene: &Scene<'_, Self>, Leaver { who, how, when }: Leaver) -> Option<String> {
        if how != Leaving::Remove || when != Moment::Wished {
            return None;
        }
        let usable = scene.peers.iter().filter(|(id, peer)| **id != who && peer.is_usable).count();
        let (name, spec) = scene.spaces.iter().find(|(_, spec)| spec.copies as usize > usable)?;
        let copies = spec.copies;
        Some(format!(
            "namespace {name} keeps {copies} copies of each object, and {usable} other live nodes are not enough for that; let another node join first, or declare fewer copies"
        ))
    }

    fn figures(&self) -> Vec<u64> {
        let Figures {
            puts,
            gets,
            deletes,
            refused,
            unknown,
            replaced,
            pushes,
            damaged,
            given_up,
            mended,
            asked_all,
            ..
        } = self.figures;
        let (buckets, whole, owners) = self.directory.counts();
        let objects = self.table.objects() as u64;
        let (open, thin) = self.open.counts();
        vec![
            asked_all,
            buckets as u64,
            (buckets - whole) as u64,
            self.table.bytes + self.stages.bytes(),
            self.settings.bytes_max,
            damaged,
            deletes,
            self.table.packs.bytes(),
            gets,
            given_up,
            self.table.here + self.stages.bytes(),
            mended,
            objects,
            open,
            owners as u64,
            self.log.pending(),
            pushes,
            puts,
            refused,
            replaced,
            thin,
            self.table.tombstones,
            unknown,
        ]
    }

    fn stages(&mut self, _: Time) -> Vec<(&'static str, Shown)> {
        Vec::new()
    }

    fn dump(space: Arc<str>, _: Vec<(u64, u64)>, _: u64) -> dump::Dump {
        dump::Dump::new(space)
    }

    fn load(space: &Arc<str>, record: &Record, _: u64) -> Result<Option<Op>, String> {
        dump::load(space, record)
    }

    fn loaded(reply: &Reply) -> Result<(), String> {
        dump::loaded(reply)
    }
}

/// All that a node holds is one group in its log.
pub const GROUP: GroupId = Number::OBJECT.group(0);
/// Frames: objects, and questions and answers about them.
const DATA: u16 = Number::OBJECT.data(0);
/// Who has what.
const CONTROL: u16 = Number::OBJECT.control(0);

impl Object {
    pub fn new(me: NodeId, boot: Boot, mut rng: Rng, settings: Settings) -> Self {
        Self {
            me,
            boot,
            clock: Clock::new(me, boot),
            settings,
            spaces: BTreeMap::new(),
            copies: BTreeMap::new(),
            numbers: Numbers::default(),
            peers: Peers::default(),
            table: Table::default(),
            open: Open::default(),
            giving: Giving::default(),
            mending: Mending::default(),
            walk: None,
            digging: Digging::default(),
            stages: Stages::default(),
            ships: Ships::default(),
            level: 1,
            map: Map::default(),
            directory: Directory::new(rng.u64().max(1)),
            feeds: BTreeMap::new(),
            has_to_tell: false,
            watchers: Watchers::default(),
            log: Log::default(),
            store: Store::default(),
            is_disk_low: false,
            ops: Ops::new(rng.u64()),
            own: VecDeque::new(),
            distrust: None,
            figures: Figures::default(),
            bug: None,
            rng,
        }
    }

    fn declared(&mut self, call: &mut Call, declared: Declared<Self>) {
        self.copies = declared.spaces.values().map(|space| (space.id, space.spec.copies)).collect();
        let spaces = declared.spaces.into_iter();
        self.spaces = spaces.map(|(name, space)| (name.into(), (space.id, space.spec))).collect();
        (self.numbers, self.level) = (declared.numbers, declared.level);
        self.sweep_graves();
        self.peers.declared(self.me, call.now, declared.nodes);
        self.map_anew(call);
        self.recheck_all(call, None);
    }

    fn birth(&mut self, call: &mut Call, peer: NodeId, boot: Boot) {
        if peer == self.me {
            return;
        }
        if self.peers.birth(call.now, peer, boot) {
            // What was asked of its former life is not answered any more.
            self.lose_all(call, peer);
            self.forget_teller(peer);
        }
        self.map_anew(call);
        self.say_unknown(call, peer);
        self.recheck_all(call, Some(peer));
        self.look_again(call);
    }

    fn death(&mut self, call: &mut Call, peer: NodeId) {
        if self.peers.death(call.now, peer) {
            self.lose_all(call, peer);
            self.map_anew(call);
            if self.peers.leaves(self.me) {
                // What it has counts no more.
                self.recheck_all(call, None);
            }
            self.look_at_graves();
        }
    }

    fn lose_all(&mut self, call: &mut Call, peer: NodeId) {
        self.stages.lose(peer);
        self.watchers.lose(peer);
        self.ships.lose(peer);
        self.lose(call, peer);
    }

    fn frame(&mut self, call: &mut Call, from: NodeId, frame: Frame) {
        match Head::decode(frame.head) {
            Ok(head) => {
                self.peers.hear(from, head.pending, head.full);
                self.hear(call, from, head, frame.body);
            }
            Err(error) => call.bad(from, &error.to_string()),
        }
    }

    fn hear(&mut self, call: &mut Call, from: NodeId, head: Head, body: Bytes) {
        let id = head.id;
        self.exhume_asked(call, &head);
        let understood = match head.what {
            Some(What::Look(key)) => key.key().map(|key| self.looked(call, from, id, &key)),
            Some(What::Get(key)) => {
                let at = key.at;
                key.key().map(|key| self.got(call, from, id, &key, at))
            }
            Some(What::List(list)) => self.listed(call, from, id, list),
            Some(What::Put(put)) => self.put_here(call, from, id, put, body),
            Some(What::Done(done)) => self.done(call, done),
            Some(What::Took(took)) => self.took(call, from, id, took),
            Some(What::Here(here)) => self.here(call, from, id, here),
            Some(What::Got(got)) => self.body(call, from, id, got, body),
            Some(What::Page(page)) => self.page(call, from, id, page),
            Some(What::Walk(list)) => self.walked(call, from, id, list),
            Some(What::Owners(page)) => self.owners(call, from, id, page),
            Some(What::Piece(piece)) => self.piece(call, from, piece, body),
            Some(What::Staged(staged)) => {
                self.staged(call, from, staged);
                Some(())
            }
            Some(What::Where(asked)) => self.where_is(call, from, id, asked),
            Some(What::Known(known)) => self.known(call, from, id, known),
            Some(What::Want(want)) => self.wants(from, want),
            Some(What::Told(told)) => self.told(call, from, told),
            Some(What::Heard(of)) => self.heard(from, of),
            Some(What::Watch(watch)) => self.watched(call, from, id, watch),
            Some(What::Changes(changes)) => self.changes(call, from, id, changes),
            Some(What::Confirm(of)) => self.confirm(call, from, of),
            Some(What::Sure(of)) => self.is_sure(call, from, of),
            // A newer program says more.
            None => Some(()),
        };
        if understood.is_none() {
            call.bad(from, "says of an object what cannot be");
        }
    }

    /// What this is about is an entry while it is heard, if it is anything.
    fn exhume_asked(&mut self, call: &Call, head: &Head) {
        let key = match &head.what {
            Some(What::Look(key) | What::Get(key)) => Some(key),
            Some(What::Put(put) | What::Done(put)) => put.key.as_ref(),
            Some(What::Took(took)) if head.id == 0 => took.key.as_ref(),
            _ => None,
        };
        if let Some(key) = key.filter(|_| self.table.graves().len() > 0)
            && let Some(id) = wire::id_of(&key.id)
        {
            self.exhume(call, &Key { ns: key.ns, owner: key.owner.clone(), id });
        }
    }

    /// Sends, or says it to this node itself.
    fn send(&mut self, call: &mut Call, to: NodeId, id: u64, priority: Priority, what: What, body: Bytes) {
        let kind = if matches!(what, What::Done(_)) { CONTROL } else { DATA };
        let head = Head { id, pending: self.log.pending(), full: self.is_full(), what: Some(what) };
        if to == self.me {
            return self.own.push_back((head, body));
        }
        let frame = Frame { priority, body, ..Frame::new(kind, head.encode_to_vec()) };
        call.out.push(Output::Send { to, frame });
    }

    /// Whether this node takes no more objects. Deletions it takes.
    fn is_full(&self) -> bool {
        self.log.is_full
            || self.is_disk_low
            || self.table.bytes + self.stages.bytes() >= self.settings.bytes_max
            || self.table.here + self.stages.bytes() >= limits::HERE_BYTES_MAX
            || self.table.objects() >= self.settings.entries_max
            || self.table.unsettled() >= self.settings.unsettled_max
            || self.log.unforced_bytes() >= limits::UNFORCED_BYTES_MAX
    }

    /// Nodes leave for good, or stay after all.
    fn leaving(&mut self, call: &mut Call, leaving: BTreeMap<NodeId, bool>) {
        if leaving != self.peers.leaving {
            self.peers.leaving = leaving;
            self.recheck_all(call, None);
        }
    }

    /// Whether this node leaves while others stay: it takes no objects that it does not have already.
    fn declines(&self) -> bool {
        self.peers.leaves(self.me) && self.peers.live().any(|node| !self.peers.leaves(node))
    }

    /// A node that may hold objects: the declaration names it. Before that is known, every node may.
    fn is_node(&self, node: NodeId) -> bool {
        node == self.me || self.peers.is_declared(node)
    }

    /// Live nodes that a write is not at yet.
    fn others(&self, at: &BTreeSet<NodeId>) -> Vec<NodeId> {
        self.peers.live().chain([self.me]).filter(|node| !at.contains(node)).collect()
    }
}

impl Call<'_> {
    fn bad(&mut self, from: NodeId, why: &str) {
        self.out.push(Output::Bad { from, why: why.to_owned() });
    }
}
