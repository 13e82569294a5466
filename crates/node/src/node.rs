//! The node: takes each event to the machine it is for. What the machines then want of each other is in `wires.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use base::{Effect, Event, Frame, GroupId, Machine, NodeId, Note, Now, Rng, Span, Time, kind};
use clones::deploy::Deployed;
use clones::{Demand, Doors, Group, Manager, Members, Off, RouteService, Routes, ServiceSpec, group, manager, members};
use cluster::raft::LogBounds;
use cluster::root::Change;
use cluster::{Beacons, Card, Membership, beacon, membership, root};
use flow::stage::Shown;
use state::linear::{self, HotKey, Linear, Placed};
use state::namespace::NamespaceSpec;
use state::session::{self, Session};

use crate::asked::Asked;
use crate::asks::Pending;
use crate::facts::{self, BrickLoad, NodeReport};
use crate::leave::{Departure, Wish};
use crate::limits::{DECISIONS_TOLD_MAX, EVENTS_MAX, REPORT_EVERY, REPORT_TTL, TICK, UNWHOLE_TOLD_MAX, VIEW_EVERY};
use crate::lives::Lives;
use crate::pace::Pace;
use crate::told::Told;
use crate::view::{EventView, HotKeyView, NodeState, ShardView};
use crate::{Answer, Ask, View};

/// What a node is born with.
#[derive(Clone, Debug)]
pub struct Birth {
    /// Name of the cluster, for people.
    pub cluster: String,
    pub card: Card,
    /// Peer addresses of some other nodes; none for a lone one.
    pub seeds: Vec<SocketAddr>,
    /// All chance of this node comes from here.
    pub seed: u64,
    /// Memory of this node's brick.
    pub brick_bytes: u64,
    /// It runs clones only when the others are full.
    pub overflow: bool,
    /// Clones that it is meant to run at most.
    pub room: u32,
    /// How long the logs of `linear` groups become.
    pub linear_log: LogBounds,
    /// First records of a new cluster, if this node founds it and its log is empty.
    pub found: Option<Change>,
}

pub type Out = Vec<Effect<Answer, View>>;

pub struct Node {
    pub(crate) cluster: String,
    pub(crate) card: Card,
    pub(crate) membership: Membership,
    pub(crate) beacons: Beacons,
    pub(crate) told: Told,
    pub(crate) root: root::Root,
    pub(crate) session: Session,
    pub(crate) linear: Linear,
    pub(crate) group: Group,
    pub(crate) manager: Manager,
    /// What other nodes' edges said last, and when.
    pub(crate) doors: BTreeMap<NodeId, (Time, Doors)>,
    /// What this node's own saw of clones.
    pub(crate) asked: Asked,
    pub(crate) members: Members,
    found: Option<Change>,
    pub(crate) report: NodeReport,
    pub(crate) report_at: Time,
    /// At the leader: the declaration at which groups were last looked at, and when they are next.
    pub(crate) groups_seen: u64,
    pub(crate) groups_at: Time,
    pub(crate) shards_shown: ShardsShown,
    pub(crate) lives: Lives,
    /// Passed on for an operator, since then.
    pub(crate) wish: Option<(Wish, Time)>,
    pub(crate) departure: Option<Departure>,
    /// Of all nodes, as the root group and those of class `linear` were last told.
    pub(crate) parting: root::Parting,
    pub(crate) started: Time,
    pub(crate) pace: Pace,
    /// What is wrong with the disk, if it takes nothing.
    trouble: Option<String>,
    /// As the root group's leader: since when nodes' disks take nothing.
    pub(crate) troubled: BTreeMap<NodeId, Time>,
    /// Nodes of the past that everybody was told of.
    pub(crate) formers: BTreeSet<String>,
    /// Nodes with too old a program, to be hung up on.
    pub(crate) turned_away: BTreeSet<NodeId>,
    tick_at: Time,
    /// Nodes as they were last seen.
    pub(crate) seen: BTreeMap<NodeId, Seen>,
    pub(crate) happened: VecDeque<Arc<EventView>>,
    /// What this node decided as the manager, for all to see.
    pub(crate) decisions: VecDeque<EventView>,
    /// Asks of operators that wait for the root group, by the id of their proposal.
    pub(crate) pending: BTreeMap<u64, Pending>,
    /// Renewals that wait for groups to answer, and for how many.
    pub(crate) probing: BTreeMap<u64, (Pending, usize)>,
    pub(crate) proposals: u64,
    pub(crate) tokens: Arc<BTreeMap<String, String>>,
    /// By service.
    pub(crate) service_tokens: Arc<BTreeMap<String, String>>,
    pub(crate) admin_token: Arc<str>,
    /// The declared services and namespaces, and services as routes without clones. Read when the declaration changes, not with each view.
    pub(crate) services: Arc<BTreeMap<String, ServiceSpec>>,
    pub(crate) namespaces: Arc<BTreeMap<String, NamespaceSpec>>,
    pub(crate) routed: Vec<RouteService>,
    /// What an operator has taken out of use.
    pub(crate) off: Off,
    /// As of the last second.
    pub(crate) stages: Arc<[(&'static str, Shown)]>,
    /// Versions of services that were deployed, and the archives that this takes.
    pub(crate) deployed: BTreeMap<String, Deployed>,
    pub(crate) codes: Arc<BTreeSet<String>>,
    /// Those of the last view.
    pub(crate) routes: Arc<Routes>,
    /// Something that the view shows has changed.
    pub(crate) stale: bool,
    /// The routes did: publish at once.
    pub(crate) routes_stale: bool,
    view_at: Time,
    /// Kept from call to call, so that the hot path allocates no vector.
    pub(crate) session_out: Vec<session::Output>,
    pub(crate) linear_out: Vec<linear::Output>,
    /// `linear` namespaces with the functions that are weak in each, and the services whose clones know more, for the front doors.
    pub(crate) linear_names: Arc<BTreeMap<String, Vec<String>>>,
    pub(crate) functions_of: Arc<BTreeMap<String, String>>,
    /// Groups of `linear` namespaces, by `namespace/shard`.
    pub(crate) placed: Arc<BTreeMap<String, Placed>>,
    /// Edges tell the manager, and each other, what comes to them.
    pub(crate) reports: bool,
}

/// A node as it was last seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub card: Card,
    pub state: NodeState,
    pub since_ms: u64,
    pub since: Time,
}

/// Shards by namespace, as views show them: of a version of the declaration, and until then.
#[derive(Default)]
pub(crate) struct ShardsShown {
    pub version: u64,
    pub until: Time,
    pub of: BTreeMap<String, Arc<[ShardView]>>,
}

impl Node {
    pub fn new(birth: Birth) -> Self {
        let Birth { cluster, card, seeds, seed, brick_bytes, overflow, room, linear_log, found } = birth;
        let mut rng = Rng::new(seed);
        let (me, boot) = (card.id, card.boot);
        Self {
            cluster,
            membership: Membership::new(card.clone(), seeds, rng.fork()),
            beacons: Beacons::new(me, boot, rng.fork()),
            told: Told::default(),
            root: root::Root::new(me, boot, rng.fork()),
            session: Session::new(me, boot, rng.fork()).with_brick_bytes(brick_bytes),
            linear: Linear::new(me, boot, rng.fork()).with_log(linear_log).with_level(card.level),
            group: Group::new(me, boot, card.name.clone(), format!("http://{}", card.api), rng.fork()),
            manager: Manager::new(me, boot),
            doors: BTreeMap::new(),
            asked: Asked::default(),
            members: Members::new(me, boot),
            found,
            report: NodeReport { overflow, room, ..NodeReport::default() },
            report_at: Time::ZERO,
            groups_seen: 0,
            groups_at: Time::ZERO,
            shards_shown: ShardsShown::default(),
            lives: Lives::default(),
            wish: None,
            departure: None,
            parting: root::Parting::default(),
            started: Time::ZERO,
            trouble: None,
            troubled: BTreeMap::new(),
            pace: Pace::default(),
            formers: BTreeSet::new(),
            turned_away: BTreeSet::new(),
            tick_at: Time::ZERO,
            seen: BTreeMap::new(),
            happened: VecDeque::new(),
            decisions: VecDeque::new(),
            pending: BTreeMap::new(),
            probing: BTreeMap::new(),
            proposals: 0,
            tokens: Arc::default(),
            service_tokens: Arc::default(),
            admin_token: Arc::from(""),
            services: Arc::default(),
            namespaces: Arc::default(),
            routed: Vec::new(),
            off: Off::default(),
            stages: Arc::default(),
            deployed: BTreeMap::new(),
            codes: Arc::default(),
            routes: Arc::default(),
            stale: true,
            routes_stale: true,
            view_at: Time::ZERO,
            session_out: Vec::new(),
            linear_out: Vec::new(),
            linear_names: Arc::default(),
            functions_of: Arc::default(),
            placed: Arc::default(),
            reports: true,
            card,
        }
    }

    /// What its edge says of its requests is told to nobody, and what others' edges say is not heard: to show that traffic needs none
    /// of it.
    pub fn without_reports(mut self) -> Self {
        self.reports = false;
        self
    }

    /// With windows that have no end and late requests served, to show in the lab what becomes of that.
    pub fn without_protection(mut self) -> Self {
        self.session = self.session.without_protection();
        self
    }

    /// The address on which a node's clones listen: its own if that is a loopback address, else 127.0.0.1. Nothing of a
    /// clone is reachable from another machine but through its node.
    pub fn clone_host(peer: SocketAddr) -> IpAddr {
        if peer.ip().is_loopback() { peer.ip() } else { IpAddr::V4(Ipv4Addr::LOCALHOST) }
    }

    pub fn me(&self) -> NodeId {
        self.card.id
    }

    fn start(
        &mut self,
        now: Now,
        mut kept: BTreeMap<GroupId, Vec<bytes::Bytes>>,
        remarks: Vec<String>,
        rebooted: bool,
        out: &mut Out,
    ) {
        for text in remarks {
            out.push(Effect::Note(Note::warn(text.clone())));
            let name = self.card.name.clone();
            self.happened(now, "disk", &name, text);
        }
        let log = kept.remove(&GroupId::ROOT).unwrap_or_default();
        self.started = now.mono;
        let mut wants = Vec::new();
        let found = self.found.take().filter(|_| log.is_empty());
        if let Err(error) = self.root.start(now, log, found, &mut wants) {
            // Without a believable log the node takes no part in the root group (rule 10); everything else runs.
            out.push(Effect::Note(Note::error(format!("{error}; this node takes no part in the root group"))));
        }
        if self.ends_below(self.agreed(), out) {
            // Nothing of what it has was touched.
            return;
        }
        self.linear.start(kept, rebooted);
        self.wire_root(now, wants, out);
        self.declaration_changed(now, out);
        self.seen.insert(
            self.me(),
            Seen { card: self.card.clone(), state: NodeState::Live, since_ms: now.wall_ms, since: now.mono },
        );
        self.put_fact(now, facts::CLONES, self.group.node_clones().encode(), out);
        self.report_brick(now, out);
        // Before anybody gives this node a clone it must be known whether it is for overflow.
        self.put_fact(now, facts::REPORT, facts::encode(&self.report.clone()), out);
        self.wake(now, out);
    }

    fn frame(&mut self, now: Now, from: NodeId, frame: Frame, out: &mut Out) {
        if self.turned_away.contains(&from) && frame.kind != kind::LEVEL {
            return;
        }
        self.membership.heard(now, from);
        match frame.kind {
            kind::SESSION => self.session_in(now, session::Input::Frame { from, frame }, out),
            kind::LINEAR_CALL | kind::LINEAR_CONTROL | kind::LINEAR_DATA => {
                self.linear_in(now, linear::Input::Frame { from, frame }, out);
            }
            kind::MEMBERS => {
                self.members_in(now, members::Input::Frame { from, head: frame.head, body: frame.body }, out);
            }
            kind::MEMBERSHIP => self.membership_in(now, membership::Input::Frame { from, head: frame.head }, out),
            kind::BEACON => self.beacons_in(now, beacon::Input::Frame { from, head: frame.head }, out),
            kind::ROOT | kind::ROOT_CALL => {
                self.root_in(
                    now,
                    root::Input::Frame { from, kind: frame.kind, head: frame.head, body: frame.body },
                    out,
                );
            }
            kind::LEVEL => {
                if let Some(agreed) = facts::decode(&frame.head) {
                    self.ends_below(agreed, out);
                }
            }
            kind::DEMAND | kind::DOORS if !self.reports => (),
            kind::DEMAND => {
                if let Some(demand) = Demand::decode(&frame.head) {
                    self.manager_in(now, manager::Input::Demand { from, demand }, out);
                }
            }
            kind::DOORS => {
                if let Some(doors) = Doors::decode(&frame.head)
                    && self.live_cards().any(|card| card.id == from)
                {
                    self.doors.insert(from, (now.mono, doors));
                }
            }
            // A newer version's protocol: skipped (rule 8).
            _ => (),
        }
    }

    /// Wakes every machine whose time has come, and does the node's own chores.
    fn wake(&mut self, now: Now, out: &mut Out) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now.mono);
        if due(self.session.wake_at()) {
            self.session_in(now, session::Input::Wake, out);
        }
        if due(self.linear.wake_at()) {
            self.linear_in(now, linear::Input::Wake, out);
        }
        if due(self.membership.wake_at()) {
            self.membership_in(now, membership::Input::Wake, out);
        }
        if due(self.beacons.wake_at()) {
            self.beacons_in(now, beacon::Input::Wake, out);
        }
        if due(self.root.wake_at()) {
            self.root_in(now, root::Input::Wake, out);
        }
        if due(self.group.wake_at()) {
            self.group_in(now, group::Input::Wake, out);
        }
        if due(self.manager.wake_at()) {
            self.manager_in(now, manager::Input::Wake, out);
        }
        if due(self.members.wake_at()) {
            self.members_in(now, members::Input::Wake, out);
        }
        if self.tick_at <= now.mono {
            self.tick_at = now.mono + TICK;
            self.tick(now, out);
        }
        if self.report_at <= now.mono {
            self.report_at = now.mono + REPORT_EVERY;
            self.take_stock(now);
            self.put_fact(now, facts::REPORT, facts::encode(&self.report.clone()), out);
            self.put_fact(now, facts::LIVES, facts::encode(&self.lives.record), out);
            if self.root.is_leader() {
                // How busy machines are changes without any other event.
                self.cluster_changed(now, out);
            }
        }
    }

    /// What no event announces: a brick that has filled, asks that ran out of time, nodes dead for so long that the map changes.
    fn tick(&mut self, now: Now, out: &mut Out) {
        self.report_brick(now, out);
        self.expire_pending(now, out);
        self.lives.tick(now, self.membership.live().count());
        self.keep_leaving(now, out);
        self.tend_groups(now, out);
        self.hang_up_outdated(out);
        if self.root.is_leader() {
            self.keep_level(now, out);
            self.keep_map(now, out);
            self.keep_groups(now, out);
        }
        self.stale = true;
    }

    /// Into the report: what the own brick holds and does.
    fn take_stock(&mut self, now: Now) {
        let figures: BTreeMap<&str, u64> = self.session.figures().into_iter().collect();
        let figure = |name: &str| figures.get(name).copied().unwrap_or(0);
        self.report.brick = BrickLoad {
            entries: figure("session.entries"),
            bytes: figure("session.bytes"),
            bytes_max: figure("session.bytes_max"),
            operations: figure("session.brick_operations"),
            anew: self.session.starts_anew(),
        };
        self.report.opinion = self.session.look(now.mono);
        let intervals = self.session.intervals();
        self.report.intervals = intervals.into_iter().map(|(name, i)| (name.to_owned(), (i.count, i.sum_ms))).collect();
        self.report.whole = self.linear.whole();
        self.report.unwhole = self.linear.unwhole().take(UNWHOLE_TOLD_MAX).collect();
        self.report.large = self.linear.large();
        self.report.asked = self.asked.told(now.mono);
        self.report.hot.clear();
        for (namespace, HotKey { key, rate, waiters }) in self.linear.hot(now.mono) {
            let key = key.escape_ascii().to_string();
            self.report.hot.entry(namespace.into()).or_default().push(HotKeyView { key, rate, waiters });
        }
        self.lives.told_anew(self.card.id, self.report.brick.anew);
    }

    pub(crate) fn put_fact(&mut self, now: Now, key: &str, value: bytes::Bytes, out: &mut Out) {
        self.beacons_in(now, beacon::Input::Put { key: key.to_owned(), value, ttl: REPORT_TTL }, out);
    }

    fn vitals(&mut self, now: Now, cpu_millis: u32, resident_bytes: u64, mut gauges: BTreeMap<String, u64>) {
        self.stages = Arc::new(self.session.stages(now.mono));
        for (stage, shown) in &*self.stages {
            for (figure, value) in shown.gauges().into_iter().chain(shown.totals()) {
                gauges.insert(format!("stage.{stage}.{figure}"), value);
            }
        }
        let load = u16::try_from(cpu_millis.min(1000)).expect("at most 1000");
        let (disk, report) = (self.trouble.clone(), std::mem::take(&mut self.report));
        self.report = NodeReport { load, cpu_millis, resident_bytes, gauges: Arc::new(gauges), disk, ..report };
        // Sent by the next wake, with everything else that is due.
        self.report_at = self.report_at.min(now.mono);
    }

    /// Says so when the disk has become slow, or is not any more.
    fn look_at_pace(&mut self, now: Now, out: &mut Out) {
        let (slow, was) = (self.pace.look(now.mono), self.slow_force(self.me()));
        if slow.is_some() != was.is_some() {
            let (note, text) = match slow {
                Some(took) => {
                    let text = format!("is slow: a force takes {} ms at least", took.as_millis());
                    (Note::warn(format!("the disk {text}; other nodes lead its groups, if they are better")), text)
                }
                None => (Note::info("the disk is not slow any more"), "is not slow any more".to_owned()),
            };
            out.push(Effect::Note(note));
            let name = self.card.name.clone();
            self.happened(now, "disk", &name, text);
        }
        // Also what stands: what is told is forgotten after a while.
        if slow.is_some() || was.is_some() {
            let ms = slow.map_or(0, |took| took.as_millis());
            self.put_fact(now, facts::SLOW_DISK, facts::encode(&ms), out);
        }
    }

    /// The disk takes nothing, or takes all again.
    fn disk(&mut self, now: Now, trouble: Option<String>, out: &mut Out) {
        let full = trouble.is_some();
        let text = trouble.clone().unwrap_or_else(|| "takes all again".to_owned());
        out.push(Effect::Note(if full {
            Note::error(format!("the disk takes nothing ({text}); this node takes no part in any group until it does"))
        } else {
            Note::info("the disk takes all again")
        }));
        let name = self.card.name.clone();
        self.happened(now, "disk", &name, text);
        (self.report.disk, self.trouble) = (trouble.clone(), trouble);
        // Others should know at once.
        self.report_at = now.mono;
        self.root_in(now, root::Input::DiskFull(full), out);
        self.linear_in(now, linear::Input::DiskFull(full), out);
        self.wake(now, out);
    }

    fn publish(&mut self, now: Now, out: &mut Out) {
        if self.routes_stale || (self.stale && self.view_at <= now.mono) {
            (self.stale, self.routes_stale) = (false, false);
            self.view_at = now.mono + VIEW_EVERY;
            out.push(Effect::Publish(self.picture(now)));
        }
    }

    pub(crate) fn happened(&mut self, now: Now, kind: &str, who: &str, text: impl Into<String>) {
        let (kind, who) = (kind.to_owned(), who.to_owned());
        self.keep_event(EventView { at_ms: now.wall_ms, kind, who, text: text.into() });
    }

    fn keep_event(&mut self, event: EventView) {
        if self.happened.len() == EVENTS_MAX {
            self.happened.pop_front();
        }
        self.happened.push_back(Arc::new(event));
        self.stale = true;
    }

    /// A decision of the manager, which is this node.
    pub(crate) fn decided(&mut self, now: Now, kind: &str, who: &str, text: String, out: &mut Out) {
        let event = EventView { at_ms: now.wall_ms, kind: kind.to_owned(), who: who.to_owned(), text };
        self.keep_event(event.clone());
        if self.decisions.len() == DECISIONS_TOLD_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back(event);
        let told = facts::encode(&self.decisions);
        self.put_fact(now, facts::DECISIONS, told, out);
    }

    /// Decisions of another node's manager; some of them are known.
    pub(crate) fn heard_decisions(&mut self, told: Vec<EventView>) {
        for event in told.into_iter().take(DECISIONS_TOLD_MAX) {
            if !self.happened.iter().any(|known| **known == event) {
                self.keep_event(event);
            }
        }
    }
}

impl Machine for Node {
    type Ask = Ask;
    type Answer = Answer;
    type View = View;

    fn handle(&mut self, now: Now, event: Event<Ask>, out: &mut Out) {
        match event {
            Event::Frame { from, frame } => self.frame(now, from, frame, out),
            Event::Ask { id, budget, ask } => self.ask(now, id, budget, ask, out),
            Event::Wake => self.wake(now, out),
            Event::Start { log, remarks, rebooted } => self.start(now, log, remarks, rebooted, out),
            Event::Disk { trouble } => self.disk(now, trouble, out),
            Event::Linked { peer, .. } if self.former(peer).is_some() => {
                let text = format!("{peer} entered this cluster anew and is not to come back as who it was; hung up");
                out.push(Effect::Note(Note::warn(text)));
                out.push(Effect::Hangup { peer });
            }
            Event::Linked { peer, boot, card } => match Card::decode(&card) {
                Some(card) if card.id == peer && card.level < self.agreed() => self.turn_away(&card, out),
                Some(card) if card.id == peer && card.boot == boot => {
                    self.turned_away.remove(&peer);
                    self.membership_in(now, membership::Input::Linked { card }, out);
                }
                Some(_) | None => {
                    out.push(Effect::Note(Note::warn(format!("{peer} showed a card that is not its own; hung up"))));
                    out.push(Effect::Hangup { peer });
                }
            },
            Event::Unlinked { peer, addr, why } => {
                self.membership_in(now, membership::Input::Unlinked { peer, addr, why }, out);
            }
            Event::Appended { group: GroupId::ROOT, ticket } => {
                self.pace.done(now.mono, GroupId::ROOT, ticket);
                self.root_in(now, root::Input::Appended { ticket }, out);
            }
            Event::Saved { group: GroupId::ROOT, ticket } => self.root_in(now, root::Input::Saved { ticket }, out),
            Event::Appended { group, ticket } => {
                self.pace.done(now.mono, group, ticket);
                self.linear_in(now, linear::Input::Appended { group, ticket }, out);
            }
            Event::Saved { group, ticket } => self.linear_in(now, linear::Input::Saved { group, ticket }, out),
            Event::Spawned { proc, pid, port } => self.group_in(now, group::Input::Spawned { proc, pid, port }, out),
            Event::Output { proc, line } => self.group_in(now, group::Input::Output { proc, line }, out),
            Event::Exited { proc, exit } => self.group_in(now, group::Input::Exited { proc, exit }, out),
            Event::Probed { proc, result } => self.group_in(now, group::Input::Probed { proc, result }, out),
            Event::Vitals { cpu_millis, resident_bytes, gauges } => {
                self.vitals(now, cpu_millis, resident_bytes, gauges);
                self.look_at_pace(now, out);
            }
        }
        self.publish(now, out);
    }

    fn wake_at(&self) -> Option<Time> {
        let view = if self.stale { self.view_at } else { Time::NEVER };
        let machines = [
            self.session.wake_at(),
            self.linear.wake_at(),
            self.membership.wake_at(),
            self.beacons.wake_at(),
            self.root.wake_at(),
            self.group.wake_at(),
            self.manager.wake_at(),
            self.members.wake_at(),
        ];
        machines.into_iter().flatten().chain([self.tick_at, self.report_at, view]).min()
    }
}

const _: () = assert!(TICK.as_micros() <= Span::secs(1).as_micros(), "deadlines of operators are kept to the second");
