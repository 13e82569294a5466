//! The node: takes each event to the machine it is for. What the machines then want of each other is in `wires.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use base::{Effect, Event, Frame, GroupId, Machine, NodeId, Note, Now, Rng, Span, Time, kind};
use channels::Channels;
use clones::deploy::Deployed;
use clones::runs::Planner;
use clones::{
    Demand, Doors, Group, Manager, Members, Off, ProfileSpec, RouteService, Routes, ServiceSpec, group, manager,
    members,
};
use cluster::raft::LogBounds;
use cluster::root::Change;
use cluster::{Admission, Beacons, Card, Door, Membership, beacon, membership, root};
use flow::stage::Shown;
use state::linear::Placed;
use state::{Classes, NamespaceSpec};

use crate::acme::Acme;
use crate::ask::any_class;
use crate::asked::{Asked, Uses};
use crate::asks::Pending;
use crate::away::Away;
use crate::departure::{Departure, Wish};
use crate::facts::{self, NodeReport};
use crate::frames::Bad;
use crate::level;
use crate::limits::{DECISIONS_TOLD_MAX, EVENTS_MAX, REPORT_EVERY, REPORT_TTL, TICK, VIEW_EVERY};
use crate::lives::Lives;
use crate::pace::Pace;
use crate::plans::Plans;
use crate::renewed::{FormerTokenView, Formers};
use crate::runs::Records;
use crate::told::Told;
use crate::view::{CertificateView, EventView, NodeState, ShardView};
use crate::{Answer, Ask, Keyed, View};

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
    /// What each state class is told: bounds of memory and the like.
    pub settings: state::Settings,
    /// The node runs clones only when the others are full.
    pub overflow: bool,
    /// Clones that it is meant to run at most.
    pub room: u32,
    /// Names of the built-in services of this node's program.
    pub builtins: &'static [&'static str],
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
    /// The state classes of this node.
    pub(crate) classes: Classes,
    pub(crate) group: Group,
    pub(crate) manager: Manager,
    /// As the root group's leader: what runs now, and where.
    pub(crate) planner: Planner,
    /// Runs of services that the root group has.
    pub(crate) runs: Records,
    /// When this node asks next whether its runs may go on.
    pub(crate) runs_asked_at: Time,
    /// Names of the built-in services of this node's program.
    pub(crate) builtins: &'static [&'static str],
    /// What other nodes' edges said last, and when.
    pub(crate) doors: BTreeMap<NodeId, (Time, Doors)>,
    /// What this node's own saw of clones.
    pub(crate) asked: Asked,
    pub(crate) uses: Uses,
    pub(crate) members: Members,
    pub(crate) lives_told: members::lives::Lives,
    pub(crate) channels: Channels,
    found: Option<Change>,
    pub(crate) report: NodeReport,
    pub(crate) report_at: Time,
    /// When it may say again what its clones do.
    pub(crate) clones_at: Time,
    /// What all nodes know of its report, without figures.
    pub(crate) standing: NodeReport,
    /// Its clones have changed since it said so.
    pub(crate) clones_untold: bool,
    /// As the root group's leader: what classes plan.
    pub(crate) plans: Plans,
    pub(crate) shards_shown: ShardsShown,
    pub(crate) lives: Lives,
    /// Passed on for an operator, since then.
    pub(crate) wish: Option<(Wish, Time)>,
    pub(crate) departure: Option<Departure>,
    /// Which nodes leave or stand aside, as the root group and groups of class `linear` were last told.
    pub(crate) parting: root::Parting,
    pub(crate) started: Time,
    pub(crate) pace: Pace,
    /// What is wrong with the disk, if it takes nothing.
    trouble: Option<String>,
    /// Nodes of the past that everybody was told of.
    pub(crate) formers: BTreeSet<(String, NodeId)>,
    /// Nodes with too old a program, and such as are gone, to be hung up on.
    pub(crate) turned_away: BTreeSet<NodeId>,
    pub(crate) admission: Arc<Admission>,
    /// Version of the declaration that `admission` is of, and whether this node has followed the root group for long.
    pub(crate) admission_of: (u64, bool),
    /// Who was refused just now, and when a line said so.
    pub(crate) refused: BTreeMap<NodeId, Time>,
    /// Since when this node hears what the root group agrees on.
    pub(crate) follows_since: Option<Time>,
    /// Linked, and not named so far: nothing of them is heard.
    pub(crate) waiting: BTreeMap<NodeId, (Card, Time)>,
    /// Who says that this node was removed.
    pub(crate) told_removed: BTreeSet<NodeId>,
    /// Who says that it was away for too long.
    pub(crate) told_anew: BTreeSet<NodeId>,
    /// At the leader: nodes that are away.
    pub(crate) away: Away,
    /// This node was.
    pub(crate) removed: bool,
    /// Who says that this node's program is too old: since when, when last, and what is agreed on.
    pub(crate) turned_away_by: BTreeMap<NodeId, level::Word>,
    pub(crate) bad: Bad,
    /// Who can be heard over a link, as beacons were last told.
    pub(crate) speak: BTreeSet<NodeId>,
    /// Who leads the root group, or led it last, and who did before.
    pub(crate) leads: Option<NodeId>,
    pub(crate) led_before: Option<NodeId>,
    /// A planted bug: all is believed, whoever says it.
    pub(crate) believes: bool,
    /// A planted bug ([`Node::welcoming`]).
    pub(crate) welcomes: bool,
    /// Who says that this node has lived later than its disk knows of.
    pub(crate) older_by: BTreeSet<NodeId>,
    tick_at: Time,
    /// Nodes as they were last seen.
    pub(crate) seen: BTreeMap<NodeId, Seen>,
    pub(crate) happened: VecDeque<Arc<EventView>>,
    /// What this node decided as the manager, for all to see.
    pub(crate) decisions: VecDeque<EventView>,
    /// Which step towards its bound was told last, by namespace.
    pub(crate) used_told: BTreeMap<String, u32>,
    /// Namespaces that have grown large and are not split, with what was told of them last.
    pub(crate) large_told: BTreeMap<String, u32>,
    /// Certificates of the cluster, as people and as doors see them.
    pub(crate) certificates: Arc<[CertificateView]>,
    pub(crate) keyed: Arc<[Keyed]>,
    pub(crate) acme: Arc<Acme>,
    /// Ends of certificates by name, each with how near to it was told last.
    pub(crate) certificates_told: BTreeMap<String, (u64, usize)>,
    /// Namespaces that may ask only for so much a second, and what they have had here.
    pub(crate) rates: BTreeMap<String, (u32, flow::Rate)>,
    /// Operations refused for that.
    pub(crate) over_rates: u64,
    /// Asks of operators that wait for the root group, by the id of their proposal.
    pub(crate) pending: BTreeMap<u64, Pending>,
    /// Renewals that wait for groups to answer, and for how many.
    pub(crate) probing: BTreeMap<u64, (Pending, usize)>,
    pub(crate) proposals: u64,
    pub(crate) tokens: Arc<BTreeMap<String, String>>,
    /// Tokens of services, by name.
    pub(crate) service_tokens: Arc<BTreeMap<String, String>>,
    pub(crate) admin_token: Arc<str>,
    /// Tokens that open besides those of now, how they are shown, and when the first of them ends, milliseconds since
    /// 1970.
    pub(crate) former_tokens: Arc<Formers>,
    pub(crate) former_tokens_shown: Arc<[FormerTokenView]>,
    pub(crate) former_tokens_end_ms: Option<u64>,
    /// The declared services and namespaces, and services as routes without clones. Read when the declaration changes,
    /// not with each view.
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
    /// Routes of the last view.
    pub(crate) routes: Arc<Routes>,
    /// Something that the view shows has changed.
    pub(crate) stale: bool,
    /// The routes did: publish at once.
    pub(crate) routes_stale: bool,
    view_at: Time,
    /// Kept from call to call, so that the hot path allocates no vector.
    pub(crate) classes_out: Vec<state::Output>,
    /// Voters of the root group, as the classes were told.
    pub(crate) voters: BTreeSet<NodeId>,
    /// Profiles that are declared, for the front doors.
    pub(crate) profiles: Arc<BTreeMap<String, ProfileSpec>>,
    /// `linear` namespaces, and the services whose clones know their functions, for the front doors.
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
        let Birth { cluster, card, seeds, seed, settings, overflow, room, builtins, linear_log, found } = birth;
        let mut rng = Rng::new(seed);
        let (me, boot) = (card.id, card.boot);
        Self {
            cluster,
            membership: Membership::new(card.clone(), seeds, rng.fork()),
            beacons: Beacons::new(me, boot, rng.fork()),
            told: Told::default(),
            root: root::Root::new(me, boot, rng.fork()),
            classes: Classes::new(
                &mut class::Birth { me, boot, rng: rng.fork(), level: card.level, log: linear_log },
                settings,
            ),
            group: Group::new(me, boot, card.name.clone(), format!("http://{}", card.doors.at(Door::Api)), rng.fork()),
            manager: Manager::new(me, boot),
            planner: Planner::default(),
            runs: Records::default(),
            runs_asked_at: Time::ZERO,
            builtins,
            doors: BTreeMap::new(),
            asked: Asked::default(),
            uses: Uses::default(),
            members: Members::new(me, boot),
            lives_told: members::lives::Lives::default(),
            channels: Channels::new(boot),
            found,
            report: NodeReport { overflow, room, ..NodeReport::default() },
            report_at: Time::ZERO,
            clones_at: Time::ZERO,
            standing: NodeReport::default(),
            clones_untold: false,
            plans: Plans::default(),
            shards_shown: ShardsShown::default(),
            lives: Lives::default(),
            wish: None,
            departure: None,
            parting: root::Parting::default(),
            started: Time::ZERO,
            trouble: None,
            pace: Pace::default(),
            formers: BTreeSet::new(),
            turned_away: BTreeSet::new(),
            admission: Arc::default(),
            admission_of: (0, false),
            refused: BTreeMap::new(),
            follows_since: None,
            waiting: BTreeMap::new(),
            told_removed: BTreeSet::new(),
            told_anew: BTreeSet::new(),
            away: Away::default(),
            removed: false,
            turned_away_by: BTreeMap::new(),
            bad: Bad::default(),
            speak: BTreeSet::new(),
            leads: None,
            led_before: None,
            believes: false,
            welcomes: false,
            older_by: BTreeSet::new(),
            tick_at: Time::ZERO,
            seen: BTreeMap::new(),
            happened: VecDeque::new(),
            decisions: VecDeque::new(),
            used_told: BTreeMap::new(),
            large_told: BTreeMap::new(),
            certificates: Arc::default(),
            keyed: Arc::default(),
            acme: Arc::default(),
            certificates_told: BTreeMap::new(),
            rates: BTreeMap::new(),
            over_rates: 0,
            pending: BTreeMap::new(),
            probing: BTreeMap::new(),
            proposals: 0,
            tokens: Arc::default(),
            service_tokens: Arc::default(),
            admin_token: Arc::from(""),
            former_tokens: Arc::default(),
            former_tokens_shown: Arc::default(),
            former_tokens_end_ms: None,
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
            classes_out: Vec::new(),
            voters: BTreeSet::new(),
            profiles: Arc::default(),
            functions_of: Arc::default(),
            placed: Arc::default(),
            reports: true,
            card,
        }
    }

    /// What its edge says of its requests is told to nobody, and what others' edges say is not heard: to show that
    /// traffic needs none of it.
    pub fn without_reports(mut self) -> Self {
        self.reports = false;
        self
    }

    /// With windows that have no end and late requests served, to show in the lab what becomes of that.
    pub fn without_protection(mut self) -> Self {
        self.classes.session = self.classes.session.without_protection();
        self
    }

    /// Plants the bug that who was away for too long is let in as who it was, with what it has, for tests of the
    /// promises.
    pub fn welcoming(mut self) -> Self {
        self.welcomes = true;
        self
    }

    /// Plants the bug that others' words on third parties are believed and those on this node are not refuted, for
    /// tests of the promises.
    pub fn believing(mut self) -> Self {
        (self.membership, self.beacons) = (self.membership.believing(), self.beacons.believing());
        self.believes = true;
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
        if self.classes.start(kept, rebooted) && rebooted {
            out.push(Effect::Recovered);
        }
        self.wire_root(now, wants, out);
        self.declaration_changed(now, out);
        self.seen.insert(
            self.me(),
            Seen { card: self.card.clone(), state: NodeState::Live, since_ms: now.wall_ms, since: now.mono },
        );
        self.put_fact(now, facts::CLONES, self.group.node_clones().encode(), out);
        self.report_brick(now, out);
        // Before anybody gives this node a clone it must be known whether it is for overflow.
        self.tell_figures(now, out);
        self.wake(now, out);
    }

    fn frame(&mut self, now: Now, from: NodeId, frame: Frame, out: &mut Out) {
        if self.waiting.contains_key(&from) || self.admission.gone.contains_key(&from) {
            return;
        }
        if self.turned_away.contains(&from) {
            return;
        }
        if frame.kind == kind::LEVEL {
            return self.told_level(now, from, &frame.head, out);
        }
        self.membership.heard(now, from);
        let before = self.bad_frames();
        self.take_frame(now, from, frame, out);
        self.was_handled(from, before);
    }

    fn take_frame(&mut self, now: Now, from: NodeId, frame: Frame, out: &mut Out) {
        match frame.kind {
            kind::MEMBERS => {
                self.members_in(now, members::Input::Frame { from, head: frame.head, body: frame.body }, out);
            }
            kind::CHANNELS => self.channels_in(now, channels::Input::Told { from, head: frame.head }, out),
            kind::MESSAGES => self.channels_in(now, channels::Input::Messages { from, head: frame.head }, out),
            kind::MEMBERSHIP => self.membership_in(now, membership::Input::Frame { from, head: frame.head }, out),
            kind::BEACON => self.beacons_in(now, beacon::Input::Frame { from, head: frame.head }, out),
            kind::ROOT | kind::ROOT_CALL => {
                self.root_in(
                    now,
                    root::Input::Frame { from, kind: frame.kind, head: frame.head, body: frame.body },
                    out,
                );
            }
            kind::RUNS => self.run_word(now, from, &frame.head, out),
            kind::REMOVED => self.told_removed(now, from, out),
            kind::ANEW => self.told_anew(from, out),
            kind::DEMAND | kind::DOORS if !self.reports => (),
            kind::DEMAND => match Demand::decode(&frame.head) {
                Some(_) if !self.live_cards().any(|card| card.id == from) => (),
                Some(demand) => self.manager_in(now, manager::Input::Demand { from, demand }, out),
                None => self.bad_frame(now, from, "does not say what its edge sees", out),
            },
            kind::DOORS => match Doors::decode(&frame.head) {
                Some(_) if !self.live_cards().any(|card| card.id == from) => (),
                Some(doors) => _ = self.doors.insert(from, (now.mono, doors)),
                None => self.bad_frame(now, from, "does not say what comes to its edge", out),
            },
            // Of a state class; or a newer version's protocol, which is skipped (rule 8).
            _ => self.classes_in(now, out, |classes, wants| {
                classes.frame(now, from, frame, wants);
            }),
        }
    }

    /// Wakes every machine whose time has come, and does the node's own chores.
    fn wake(&mut self, now: Now, out: &mut Out) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now.mono);
        if due(self.classes.wake_at()) {
            self.classes_in(now, out, |classes, wants| classes.wake(now, wants));
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
        if due(self.channels.wake_at()) {
            self.channels_in(now, channels::Input::Wake, out);
        }
        if self.clones_untold && self.clones_at <= now.mono {
            self.tell_clones(now, out);
        }
        if self.tick_at <= now.mono {
            self.tick_at = now.mono + TICK;
            self.tick(now, out);
        }
        if self.report_at <= now.mono {
            self.report_at = now.mono + REPORT_EVERY;
            self.take_stock(now);
            self.tell_figures(now, out);
            if self.root.is_leader() {
                // How busy machines are changes without any other event.
                self.cluster_changed(now, out);
            }
        }
    }

    /// What no event announces: a brick that has filled, asks that ran out of time, nodes dead for so long that the map
    /// changes.
    fn tick(&mut self, now: Now, out: &mut Out) {
        self.report_brick(now, out);
        self.expire_pending(now, out);
        self.lives.tick(now, self.membership.live().count());
        self.keep_leaving(now, out);
        self.tell_voters(now, out);
        self.tend_groups(now, out);
        self.keep_runs(now, out);
        self.tell_links(now, out);
        self.hang_up_outdated(out);
        self.keep_admission(now, out);
        self.keep_turned_away(now, out);
        self.keep_formers(now);
        self.keep_away(now, out);
        if self.root.is_leader() {
            self.keep_level(now, out);
            self.keep_plans(now, out);
            self.keep_used(now, out);
            self.keep_certificates(now, out);
            self.keep_large(now, out);
        }
        self.stale = true;
    }

    /// Into the report: what the classes tell, and what the doors saw of clones.
    fn take_stock(&mut self, now: Now) {
        self.report.classes = self.classes.report(now.mono);
        (self.report.asked, self.report.took) = self.asked.told(now.mono);
        self.lives.told_anew(self.card.id, self.report.classes.session.brick.anew);
        self.take_stock_of_namespaces();
    }

    pub(crate) fn put_fact(&mut self, now: Now, key: &str, value: bytes::Bytes, out: &mut Out) {
        self.beacons_in(now, beacon::Input::Put { key: key.to_owned(), value, ttl: REPORT_TTL }, out);
    }

    fn vitals(&mut self, now: Now, cpu_millis: u32, resident_bytes: u64, mut gauges: BTreeMap<String, u64>) {
        self.stages = self.classes.stages(now.mono).into();
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
        self.classes_in(now, out, |classes, wants| classes.disk_full(now, full, wants));
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
            Event::Ask { id, budget, ask: ask @ state::each_class!(any_class) } => {
                if let Some(op) = ask.op() {
                    self.ask_class(now, id, budget, op, out);
                }
            }
            Event::Ask { id, budget, ask } => self.ask(now, id, budget, ask, out),
            Event::Wake => self.wake(now, out),
            Event::Start { log, remarks, rebooted } => self.start(now, log, remarks, rebooted, out),
            Event::Disk { trouble } => self.disk(now, trouble, out),
            Event::Linked { peer, boot, card } => match Card::decode(&card) {
                Some(card) if card.id == peer && card.boot == boot => self.linked(now, card, out),
                Some(_) | None => {
                    out.push(Effect::Note(Note::warn(format!("{peer} showed a card that is not its own; hung up"))));
                    out.push(Effect::Hangup { peer });
                }
            },
            Event::Unlinked { peer, addr, why } => {
                if let Some(peer) = peer {
                    self.waiting.remove(&peer);
                    self.forget_bad(peer);
                }
                self.membership_in(now, membership::Input::Unlinked { peer, addr, why }, out);
                self.tell_links(now, out);
            }
            Event::Appended { group: GroupId::ROOT, ticket } => {
                self.pace.done(now.mono, GroupId::ROOT, ticket);
                self.root_in(now, root::Input::Appended { ticket }, out);
            }
            Event::Saved { group: GroupId::ROOT, ticket } => self.root_in(now, root::Input::Saved { ticket }, out),
            Event::Appended { group, ticket } => {
                self.pace.done(now.mono, group, ticket);
                self.classes_in(now, out, |classes, wants| classes.appended(now, group, ticket, wants));
            }
            Event::Saved { group, ticket } => {
                self.classes_in(now, out, |classes, wants| classes.saved(now, group, ticket, wants));
            }
            Event::Packs { there } => self.classes_in(now, out, |classes, wants| classes.packs(now, there, wants)),
            Event::Pack { group, said } => {
                self.classes_in(now, out, |classes, wants| classes.pack(now, group, said, wants));
            }
            Event::Worked { group, number, work } => {
                self.classes_in(now, out, |classes, wants| classes.worked(now, group, number, work, wants));
            }
            Event::Spawned { proc, pid, port } => self.group_in(now, group::Input::Spawned { proc, pid, port }, out),
            Event::Output { proc, line } => self.group_in(now, group::Input::Output { proc, line }, out),
            Event::Exited { proc, exit } => self.group_in(now, group::Input::Exited { proc, exit }, out),
            Event::Probed { proc, result } => self.group_in(now, group::Input::Probed { proc, result }, out),
            Event::Vitals { cpu_millis, resident_bytes, gauges, procs } => {
                let room =
                    [crate::picture::FREE_FIGURE, crate::picture::SIZE_FIGURE].map(|name| gauges.get(name).copied());
                if let [Some(free), Some(all)] = room {
                    self.classes_in(now, out, |classes, wants| classes.disk_room(now, free, all, wants));
                }
                self.vitals(now, cpu_millis, resident_bytes, gauges);
                self.tell_uses(now, &procs, out);
                self.look_at_pace(now, out);
            }
        }
        self.propose_next(now, out);
        self.publish(now, out);
    }

    fn wake_at(&self) -> Option<Time> {
        let view = if self.stale { self.view_at } else { Time::NEVER };
        let machines = [
            self.classes.wake_at(),
            self.membership.wake_at(),
            self.beacons.wake_at(),
            self.root.wake_at(),
            self.group.wake_at(),
            self.manager.wake_at(),
            self.members.wake_at(),
            self.channels.wake_at(),
        ];
        let clones = if self.clones_untold { self.clones_at } else { Time::NEVER };
        machines.into_iter().flatten().chain([self.tick_at, self.report_at, clones, view]).min()
    }
}

const _: () = assert!(TICK.as_micros() <= Span::secs(1).as_micros(), "deadlines of operators are kept to the second");
