//! The `session` class: values with a lease, in the memory of three bricks each (Ling et al., "Session state: beyond
//! soft state", the paper's SSM). A stub in every node asks bricks, a brick in every node keeps values; both are behind
//! one handle, [`Session`], so that a node's own brick is asked by a call and not by a frame.
//!
//! Two ways to find the bricks of a key:
//! - **by cookie** (SSM 3.2, `cookie`): any live bricks; the cookie says which, and of which version and checksum;
//! - **by key** (`read`, `write`), for clients that hold nothing: the first three by rendezvous hash over the
//!   [`BrickMap`]. A write is done when two accepted it. A read needs two answers of **settled** bricks, so it meets
//!   the last acknowledged write; a brick that restarted is not settled until every other one has filled it (`fill`),
//!   so its emptiness is never mistaken for absence. No answer is waited for longer than 60 ms, none is needed from one
//!   particular brick.
//!
//! What keyed mode promises, and what not:
//! - A read never returns a value older than the last write acknowledged before it began, as long as fewer than two of
//!   the key's bricks lost their memory or were cut off between that write and the end of the fills that follow. Where
//!   two have, the newest value found is returned, or `Lost`. One brick alone never answers for three: in a minority
//!   reads are refused.
//! - It is a regular register, not an atomic one: of two reads during a write the later may see the older value.
//! - Conditional writes read first and then write "if nothing is newer than what I read"; a majority decides. The loser
//!   takes back what it left at a minority of bricks (`undo`). Until that has arrived (a round trip; longer if frames
//!   are lost, never if that brick was cut off meanwhile) a read may see the loser's value, and a loser that is killed just then leaves it behind: its client was
//!   told nothing, yet the value may outlive the winner's if its version is newer. So `NX` makes a good hint and no
//!   lock; locks belong in `linear`.
//!
//! Files: `op` the words; `map` who holds what; the clock is `class::version`; `ops` running operations and their timers, `run` what moves them, `read`,
//! `write`, `walk`, `cookie_ops` what they do; `merge`, `merge_ops`, `doc` namespaces that merge fields; `cookie` what clients hold; `shown` figures;
//! `odds` of a loss; `serve` the brick's side of frames, `intake` whom it has too much to do for, `brick`, `table` and `counted` its memory;
//! `fill`; `dump` how a namespace is read out and put back; `report` what others are told, and who is needed; `copies` third ones that were missed; `spec` the keys of a declaration; `wire`.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod brick;
pub mod cookie;
mod cookie_ops;
mod copies;
mod counted;
pub mod doc;
mod dump;
mod fill;
mod intake;
pub mod limits;
pub mod map;
pub mod merge;
mod merge_ops;
pub mod odds;
pub mod op;
mod ops;
mod outlier;
mod peers;
mod planner;
mod read;
mod report;
mod run;
mod serve;
mod shown;
mod spec;
mod table;
mod walk;
mod wire;
mod write;

#[cfg(test)]
extern crate self as session;

#[cfg(test)]
#[path = "../../../tests/fixtures/kept.rs"]
mod kept;

#[cfg(test)]
mod brick_tests;
#[cfg(test)]
mod choice_tests;
#[cfg(test)]
mod map_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::hash::FixedMap;
use base::{AskId, Boot, GroupId, NodeId, Now, Outcome, Rng, Span, Time};
use bytes::Bytes;
use class::dump::Record;
use class::{Birth, Bounds, Class, Declared, Figure, Leaver, Number, Outlook, Plan, Scene, Space, Used};
use flow::Histogram;
use flow::histogram::Powers;
use flow::stage::Shown;

pub use brick::Intervals;
pub use class::{CookieKey, CookieSecret, version};
pub use cookie::{Cookie, CookieError};
pub use map::{BrickMap, next_map};
pub use op::{Action, Kind, Lease, Op, Place, Reply, When};
pub use outlier::{Measure, Opinion, Outlier};
pub use report::{BRICK, BrickLoad, BrickReport, Report};
pub use shown::Stub;
pub use spec::{Merges, Spec};
pub use version::Version;
#[doc(hidden)]
pub use wire::holds as wire_holds;

use self::brick::Brick;
use self::cookie::Sealer;
use self::fill::Fill;
use self::intake::Intake;
use self::limits::{BRICKS_ASKED, CUT_OFF_FORGETS, MINORITY_SERVES};
use self::merge_ops::Writers;
use self::ops::Ops;
use self::peers::Peer;
use self::version::Clock;

pub type Input = class::Input<Session>;
pub type Output = class::Output<Outcome<Reply>>;

/// The record of the brick map: the only one that this class keeps in the root group.
pub const MAP_RECORD: &str = "session";

/// What whoever starts a node tells its part of the class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Memory that values may take in this node's brick, bytes.
    pub brick_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { brick_bytes: limits::BRICK_BYTES }
    }
}

/// Stub and brick of one node behind one handle.
pub struct Session {
    me: NodeId,
    boot: Boot,
    rng: Rng,
    clock: Clock,
    /// Highest wall clock of this life, or version taken over from another brick: what "ahead" is measured against.
    wall_max: u64,
    /// When it was last called.
    last: Time,
    /// When this life began; none before the first input.
    born: Option<Time>,
    map: Option<BrickMap>,
    /// Since when.
    map_since: Time,
    namespaces: FixedMap<Box<str>, Namespace>,
    level: u32,
    peers: BTreeMap<NodeId, Peer>,
    brick: Brick,
    fill: Fill,
    intake: Intake,
    /// How long answers of other bricks took.
    answers: Histogram,
    answers_all: Powers,
    /// Whether the stub was overloaded at the last look, and at how many looks it had come to be.
    stub_overload: (bool, u64),
    ops: Ops,
    /// Since when this node sees less than a majority of the map's members.
    minority_since: Option<Time>,
    /// For so long this node's clock stood still, as bricks that it asked have told.
    stood_ms: u64,
    /// When bricks were last asked for their clocks.
    clocks_asked: Option<Time>,
    /// When a writer whose clock is ahead was last reported.
    ahead_noted: Option<Time>,
    /// When it was last noted that a value could not be merged.
    plain_noted: Option<Time>,
    writers: Writers,
    /// When bricks are next told what they lack.
    tell_missed_at: Option<Time>,
    /// When refused cookies were last reported, and how many had been refused by then.
    cookies_noted: Option<(Time, u64)>,
    figures: Figures,
    /// What this stub thinks of the bricks, and when it last looked.
    opinion: Opinion,
    looked_at: Time,
    /// When this brick started anew as it differed from others, and when it was said that this does not help.
    anew: Vec<Time>,
    incurable_noted: Option<Time>,
    /// False in one experiment only: then windows have no end and late requests are served.
    protects: bool,
}

struct Namespace {
    id: u32,
    lease: Span,
    merges: bool,
    timeout: Span,
    /// What it may have in all bricks.
    bounds: Bounds,
    sealer: Sealer,
}

/// One call of [`Session::handle`].
struct Call<'a> {
    now: Time,
    wall_ms: u64,
    out: &'a mut Vec<Output>,
}

#[derive(Default)]
struct Figures {
    reads: u64,
    writes: u64,
    refused: u64,
    unknown: u64,
    lost: u64,
    timeouts: u64,
    conflicts: u64,
    repairs: u64,
    undos: u64,
    served: u64,
    late: u64,
    filled_values: u64,
    merged: u64,
    ended: u64,
    plain: u64,
    /// Refused cookies, in the order of [`CookieError::ALL`].
    bad_cookies: [u64; CookieError::ALL.len()],
    damaged_frames: u64,
    starts_anew: u64,
}

/// Why a write was refused for lack of memory begins with this.
pub const FULL: &str = "the memory of the key's bricks is full";

impl Class for Session {
    const NAME: &'static str = "session";
    const NUMBER: Number = Number::SESSION;
    const RECORDS: &'static str = "map";
    const FIGURES: &'static [Figure] = shown::FIGURES;

    type Settings = Settings;
    type Spec = Spec;
    type Op = Op;
    type Reply = Reply;
    type Record = BrickMap;
    type Report = Report;
    type Dump = dump::Dump;

    const PLANS_EVERY: Option<Span> = Some(Span::ZERO);
    const ON_DISK: bool = false;
    const HEARS: bool = true;
    const DUMPED: &'static str = "each key that is there throughout, as it was at some moment between begin and end; none that only a cookie finds";

    fn born(birth: &mut Birth, Settings { brick_bytes }: Settings) -> Self {
        Session::new(birth.me, birth.boot, birth.rng.fork()).with_brick_bytes(brick_bytes)
    }

    fn start(&mut self, _: BTreeMap<GroupId, Vec<Bytes>>, _: bool) -> bool {
        false
    }

    fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        self.turn(now, input, out);
    }

    fn counts(op: &Op) -> (&str, u64) {
        (&op.namespace, 1)
    }

    fn wake_at(&self) -> Option<Time> {
        let cut_off = self.minority_since.map(|since| since + CUT_OFF_FORGETS);
        let (fill, missed) = (self.fill_wake_at(), self.tell_missed_wake());
        [self.ops.wake_at(), self.brick.wake_at(), fill, missed, cut_off].into_iter().flatten().min()
    }

    fn report(&mut self, now: Time) -> Report {
        self.told(now)
    }

    fn standing(report: &Report) -> Report {
        report.standing()
    }

    fn used(&self) -> Vec<(&str, Used, Bounds)> {
        let used = self.namespaces.iter().map(|(name, n)| (&**name, self.brick.used(n.id), self.brick.bounds(n.id)));
        used.collect()
    }

    fn copies(&self, _: &Spec, _: usize) -> Option<u64> {
        Some(self.map.as_ref().map_or(1, |map| map.members.len()).clamp(1, BRICKS_ASKED) as u64)
    }

    fn plan(&self, outlook: &Outlook<'_, Self>) -> Plan<BrickMap> {
        planner::plan(outlook)
    }

    fn needs(&self, scene: &Scene<'_, Self>, leaver: Leaver) -> Option<String> {
        self.needed(scene, leaver)
    }

    fn figures(&self) -> Vec<u64> {
        self.values_of_figures()
    }

    fn stages(&mut self, now: Time) -> Vec<(&'static str, Shown)> {
        self.show_stages(now).into()
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

impl Session {
    /// A new life. Its brick is empty and, where there are others, not settled.
    pub fn new(me: NodeId, boot: Boot, mut rng: Rng) -> Self {
        let ops = Ops::new(rng.u64());
        Self {
            me,
            boot,
            clock: Clock::new(me, boot),
            wall_max: 0,
            last: Time::ZERO,
            born: None,
            map: None,
            map_since: Time::ZERO,
            namespaces: FixedMap::default(),
            level: 1,
            peers: BTreeMap::new(),
            brick: Brick::new(),
            fill: Fill::new(rng.u64()),
            intake: Intake::new(),
            answers: Histogram::default(),
            answers_all: Powers::default(),
            stub_overload: (false, 0),
            ops,
            rng,
            minority_since: None,
            stood_ms: 0,
            clocks_asked: None,
            ahead_noted: None,
            plain_noted: None,
            writers: Writers::default(),
            tell_missed_at: None,
            cookies_noted: None,
            figures: Figures::default(),
            opinion: Opinion::default(),
            looked_at: Time::ZERO,
            anew: Vec::new(),
            incurable_noted: None,
            protects: true,
        }
    }

    /// With another bound than 1 GiB for its brick's memory.
    pub fn with_brick_bytes(mut self, bytes: u64) -> Self {
        self.brick.set_bytes_max(bytes);
        self
    }

    /// Without self-protection, to show what becomes of that (SSM figures 5 and 6).
    pub fn without_protection(mut self) -> Self {
        self.protects = false;
        self
    }

    fn turn(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let mut call = Call { now: now.mono, wall_ms: now.wall_ms, out };
        let call = &mut call;
        self.wall_max = self.wall_max.max(now.wall_ms);
        self.clock.wall(now.wall_ms);
        self.born.get_or_insert(now.mono);
        self.last = now.mono;
        match input {
            Input::Ask { id, budget, op } => self.ask(call, id, budget, op),
            Input::Frame { from, frame } => self.frame(call, from, frame),
            Input::Birth { peer, boot } => self.birth(call, peer, boot),
            Input::Death { peer } => self.death(call, peer),
            Input::Declared(Declared { level, spaces, mut records, .. }) => {
                self.level = level;
                self.declare(spaces);
                if let Some(map) = records.remove(MAP_RECORD) {
                    self.adopt(call, map);
                }
            }
            Input::Told { from, report } => self.hear_opinion(call, from, report.opinion),
            // It has no group and no log, and leads nothing.
            Input::Appended { .. }
            | Input::Saved { .. }
            | Input::Worked { .. }
            | Input::Packs(_)
            | Input::Pack { .. }
            | Input::DiskFull(_)
            | Input::DiskRoom { .. }
            | Input::Aside(_)
            | Input::Leaving(_) => (),
            Input::Voters(_) | Input::Tend | Input::Wake => (),
            Input::Probe { id, .. } => call.out.push(Output::Probed { id, answers: false }),
        }
        self.fire(call);
        self.tell_missed(call);
        self.fill_wake(call);
        self.forget_if_cut_off(call);
        self.forget_if_failing(call);
        self.brick.sweep(call.now);
    }

    /// Epoch of the newest map this node knows; 0 before the first. For beacons.
    pub fn map_seen(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.epoch)
    }

    /// Epoch for which this node's brick has all that it should hold; 0 if none. For beacons.
    pub fn filled(&self) -> u64 {
        self.fill.filled
    }

    /// What each namespace may have in this brick: of what is declared as much as of all values lies here, three copies each.
    fn share_out(&mut self) {
        let bricks = self.map.as_ref().map_or(1, |map| {
            let old = map.old.as_ref().map_or(usize::MAX, Vec::len);
            // While it changes some bricks have those of before, too.
            map.members.len().min(old).max(1)
        });
        let of = |bounds: Bounds| bounds.share(bricks.min(BRICKS_ASKED) as u128, bricks as u128);
        let all = self.namespaces.values().filter(|namespace| !namespace.bounds.is_none());
        self.brick.set_bounds(all.map(|namespace| (namespace.id, of(namespace.bounds))).collect());
    }

    /// The map this node works with.
    pub fn map(&self) -> Option<&BrickMap> {
        self.map.as_ref()
    }

    fn declare(&mut self, spaces: BTreeMap<String, Space<Self>>) {
        let namespace = |(name, Space { id, spec, secret }): (String, Space<Self>)| {
            let (lease, timeout, merges) = (spec.lease(), spec.timeout(), spec.merge == Merges::Fields);
            let bounds = spec.quota.bounds(self.level);
            (name.into(), Namespace { id, lease, timeout, merges, bounds, sealer: Sealer::new(&secret) })
        };
        self.namespaces = spaces.into_iter().map(namespace).collect();
        self.share_out();
    }

    fn birth(&mut self, call: &mut Call, peer: NodeId, boot: Boot) {
        if peer == self.me {
            return;
        }
        if self.peers.get(&peer).is_some_and(|known| known.live && known.boot != boot) {
            self.death(call, peer);
        }
        if self.peers.get(&peer).is_some_and(|known| known.live) {
            return;
        }
        let mut known = match self.peers.get(&peer) {
            Some(known) => known.reborn(boot, call.now),
            None => Peer::new(boot, call.now),
        };
        if !self.protects {
            known.window = flow::Window::endless();
        }
        self.peers.insert(peer, known);
        self.count_members(call);
        self.fill_birth(peer);
        self.ops_birth(call, peer);
    }

    fn death(&mut self, call: &mut Call, peer: NodeId) {
        let Some(known) = self.peers.get_mut(&peer).filter(|known| known.live) else { return };
        known.died(call.now);
        self.count_members(call);
        self.fill_death(peer);
        self.ops_death(call, peer);
    }

    /// Takes a newer map, from the root group or from a brick that knew it earlier.
    fn adopt(&mut self, call: &mut Call, map: BrickMap) {
        if self.map.as_ref().is_some_and(|have| have.epoch >= map.epoch) {
            return;
        }
        self.map_since = call.now;
        let before = self.map.replace(map);
        self.share_out();
        self.count_members(call);
        self.fill_map(call, before);
    }

    fn is_live(&self, node: NodeId) -> bool {
        node == self.me || self.peers.get(&node).is_some_and(|peer| peer.live)
    }

    fn count_members(&mut self, call: &Call) {
        let Some(map) = &self.map else { return };
        let live = map.members.iter().filter(|node| self.is_live(**node)).count();
        // Of two members each may go on: neither side can write, so neither can be behind.
        let majority = 2 * live > map.members.len() || map.members.len() <= 2;
        self.minority_since = if majority { None } else { self.minority_since.or(Some(call.now)) };
    }

    /// In a minority for so long that the majority may have dropped this node from the map.
    fn is_cut_off(&self, now: Time) -> bool {
        self.minority_since.is_some_and(|since| now.since(since) >= MINORITY_SERVES)
    }

    fn forget_if_cut_off(&mut self, call: &mut Call) {
        if self.minority_since.is_some_and(|since| call.now.since(since) >= CUT_OFF_FORGETS) {
            self.minority_since = Some(call.now);
            if self.brick.entries() > 0 || self.fill.filled > 0 {
                self.start_anew(call, "cut off from most bricks for too long");
            }
        }
    }

    /// SSM 5.6: a brick whose memory gives back other bytes than it was given restarts. Here it does so inside its process,
    /// and only while the others have what it forgets: until then each damaged value is found and repaired by itself.
    fn forget_if_failing(&mut self, call: &mut Call) {
        if self.brick.is_failing(call.now) && self.others_are_settled() {
            self.start_anew(call, "several values were damaged within a minute, this machine's memory may be failing");
        }
    }

    /// All other bricks are live and filled, as far as this node has heard.
    fn others_are_settled(&self) -> bool {
        let (Some(map), Some(wanted)) = (&self.map, self.settled_wanted()) else { return false };
        // As its last answer said, or as it tells all: it may have been asked nothing.
        let filled = |peer: &Peer| peer.filled.max(peer.opinion.as_ref().map_or(0, |(_, told)| told.filled));
        let settled = |node: &NodeId| self.peers.get(node).is_some_and(|peer| peer.live && filled(peer) >= wanted);
        self.fill.filled >= wanted && map.members.iter().filter(|node| **node != self.me).all(settled)
    }

    /// The epoch for which a brick has to be filled now to count as settled; none while there is one brick only, or the
    /// map changes.
    fn settled_wanted(&self) -> Option<u64> {
        let map = self.map.as_ref().filter(|map| map.old.is_none() && map.members.len() > 1)?;
        Some(map.epoch.saturating_sub(1).max(1))
    }

    fn start_anew(&mut self, call: &mut Call, why: &str) {
        call.warn(format!("{why}: this brick starts anew, empty, and is filled by the others"));
        self.figures.starts_anew += 1;
        self.brick.clear();
        self.fill_anew();
    }
}

impl Call<'_> {
    fn warn(&mut self, text: impl Into<String>) {
        self.out.push(Output::Warn { text: text.into() });
    }

    fn answer(&mut self, id: AskId, outcome: Outcome<Reply>) {
        self.out.push(Output::Answer { id, answer: outcome });
    }
}
