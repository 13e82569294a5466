//! Builds the [`View`]: what this node knows of the cluster, put together for front doors, people and scripts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{GroupId, NodeId, Now};
use class::{Databases, Figure};
use clones::assign::Overflow;
use clones::clone::life_name;
use clones::heal::are_routed;
use clones::{CloneState, CloneStatus, RouteClone, RouteService, ServiceSpec};
use cluster::Card;
use flow::histogram::Sparse;
use state::NamespaceSpec;
use state::linear::{Durability, Shards};
use state::session::limits::BRICKS_ACKED;
use state::session::odds::{Observed, odds};
use state::session::{self, Merges};

use crate::View;
use crate::asked::Tally;
use crate::facts::{self, NodeReport};
use crate::limits::{DEAD_SHOWN, SHARDS_EVERY};
use crate::node::{Node, ShardsShown};
use crate::view::{
    self, AskedView, BrickView, CloneView, GroupsView, HotKeyView, LossWindow, NamespaceView, NodeState, NodeView,
    OverflowView, PartitionView, QueueView, RootView, ServiceView, ShardView, StubView, VersionView,
};

/// What the host counts of `durability = "memory"`.
const UNFORCED_FIGURE: &str = "disk.unforced_ms_max";
/// ... and of the disk: bytes that are free, and how many it has.
pub(crate) const FREE_FIGURE: &str = "disk.free_bytes";
pub(crate) const SIZE_FIGURE: &str = "disk.size_bytes";
/// ... and who renews its certificate: when that ends, seconds since 1970.
pub const CERTIFICATE_ENDS: &str = "certificate.ends_at_s";
/// ... and how often it could not be renewed since it should have been, tried again and again.
pub const CERTIFICATE_FAILED: &str = "certificate.renewals_failed";
/// ... and of the certificates that a node has from files, if it has some: when the first one ends, and how many are
/// not taken.
pub const FILES_END: &str = "certificate.files_end_at_s";
pub const FILES_WRONG: &str = "certificate.files_wrong";

/// ... and the version of the kernel's Landlock, by which clones are kept from files; 0 if it has none.
pub const LANDLOCK: &str = "kernel.landlock";
/// ... and whether it may give its clones control groups, 0 or 1.
pub const CONTROL_GROUPS: &str = "kernel.groups";

/// Figures of the node itself, in order of their names.
const FIGURES: [Figure; 12] = [
    Figure::counter("channels.heard", "Messages of other nodes that clients of this node wanted."),
    Figure::gauge("channels.interest", "Channels and patterns that clients of this node listen to."),
    Figure::counter("channels.lost", "Messages of other nodes that did not arrive, or had no room here."),
    Figure::counter("channels.sent", "Messages that went to other nodes, once for each node."),
    Figure::counter("channels.unknown", "Subscriptions that were answered before every live node knew of them."),
    Figure::counter("manager.overflow_recruited", "Times that nodes for overflow were recruited."),
    Figure::counter("node.over_rate", "Operations that were refused as their namespace's rate_max was reached here."),
    Figure::counter("peers.bad_frames", "Frames of peers that were none, or words that their sender cannot have."),
    Figure::counter("peers.hung_up", "Times that a peer was hung up on, as it sent nothing else."),
    Figure::counter("peers.refuted", "Times that somebody said of a node what that node itself denies."),
    Figure::gauge("session.bricks_dead", "Bricks of the map whose nodes are dead, as this node sees it."),
    Figure::gauge("session.settled", "1 if this node's brick holds all that it should."),
];

/// What clones can do on a node of a service that bounds their memory or their number, as the node has no control
/// groups.
const LACKS_GROUPS: &str = "take the memory of their `limits` in each of their processes anew, and start any number of them unless \
                            they have a `user` (no control groups: Delegate=memory pids in the node's unit)";

/// What clones can do on a node because its kernel cannot keep them from it, for people, by the version of its
/// Landlock.
fn sandbox_lacks(has: u64) -> Vec<String> {
    let lacks: &[&str] = match has {
        0 => &["read the node's keys and log: its kernel has no Landlock (Linux 5.13 or later, and lsm=landlock)"],
        1..3 => &["empty the node's files (before Linux 6.2)", "send signals to it (before Linux 6.12)"],
        3..6 => &["send signals to the node (before Linux 6.12)"],
        _ => &[],
    };
    lacks.iter().map(|text| (*text).to_owned()).collect()
}

/// All figures that [`View::figures`] may have.
pub fn figures() -> impl Iterator<Item = &'static Figure> {
    state::Class::ALL.iter().flat_map(|class| class.figures()).chain(&FIGURES)
}

/// What is known of a figure in [`View::figures`].
pub fn figure(name: &str) -> Option<&'static Figure> {
    state::figure(name).or_else(|| FIGURES.iter().find(|figure| figure.name == name))
}

/// Clones of one service on live nodes, each with its node.
type Running<'a> = Vec<(&'a Card, &'a CloneStatus)>;

impl Node {
    /// Some service bounds what its clones take of memory, or how many processes they are.
    fn has_bounds(&self) -> bool {
        self.services.values().any(|spec| spec.limits.memory.is_some() || spec.limits.pids.is_some())
    }

    pub(crate) fn picture(&mut self, now: Now) -> View {
        let gone = |s: &crate::node::Seen| s.state == NodeState::Dead && now.mono.since(s.since) > DEAD_SHOWN;
        self.seen.retain(|_, seen| !gone(seen));
        // Who entered anew is shown once, as who it is now; who was removed, not at all. This node shows itself to the
        // end.
        let (admission, me) = (Arc::clone(&self.admission), self.me());
        self.seen.retain(|id, _| *id == me || !admission.gone.contains_key(id));
        self.show_shards(now);
        // Clones of live nodes only: what a dead one said last is no longer so.
        let mut running: BTreeMap<&str, Running<'_>> = BTreeMap::new();
        for card in self.live_cards() {
            for clone in self.clones_of(card.id) {
                running.entry(&clone.id.service).or_default().push((card, clone));
            }
        }
        let its = |service: &str| running.get(service).map_or(&[][..], |running| running);
        let routed = self.routed.iter().map(|service| self.route(service, its(&service.name))).collect();
        let routes = Arc::new(self.routes.next(routed));
        let view = View {
            cluster: self.cluster.clone(),
            me: self.card.name.clone(),
            at_ms: now.wall_ms,
            nodes: self.nodes(),
            services: self.services.iter().map(|(name, spec)| self.service_view(now, name, spec, its(name))).collect(),
            namespaces: self.namespaces.iter().map(|(name, spec)| self.namespace_view(name, spec)).collect(),
            certificates: Arc::clone(&self.certificates),
            former_tokens: Arc::clone(&self.former_tokens_shown),
            authority: self.authority_view(),
            root: RootView {
                leader: self.root.leader().map(|id| self.name_of(id)),
                voters: self.root.voters().into_iter().map(|id| self.name_of(id)).collect(),
                version: self.root.declared().version,
                level: self.agreed(),
            },
            groups: GroupsView { all: self.placed.len() as u64, whole: self.groups_whole() },
            overflow: self.overflow(now),
            stages: Arc::clone(&self.stages),
            uses: Arc::clone(&self.uses.by_clone),
            stubs: self.stubs(),
            closing: self.departure.as_ref().filter(|departure| departure.ready).map(|departure| departure.how),
            events: self.happened.iter().cloned().collect(),
            figures: self.figures(),
            routes: Arc::clone(&routes),
            tokens: Arc::clone(&self.tokens),
            service_tokens: Arc::clone(&self.service_tokens),
            formers: Arc::clone(&self.former_tokens),
            specs: Arc::clone(&self.namespaces),
            profiles: Arc::clone(&self.profiles),
            functions: Arc::clone(&self.functions_of),
            keyed: Arc::clone(&self.keyed),
            acme: Arc::clone(&self.acme),
            codes: Arc::clone(&self.codes),
            admin_token: Arc::clone(&self.admin_token),
            admission: Arc::clone(&self.admission),
            removed: self.removed,
        };
        self.routes = routes;
        view
    }

    fn figures(&self) -> BTreeMap<Cow<'static, str>, u64> {
        let shown = self.classes.shown();
        let mut figures: BTreeMap<_, _> = shown.map(|(figure, n)| (Cow::Borrowed(figure.name), n)).collect();
        let session = &self.classes.session;
        let (map, live) = (session.map(), |id: &NodeId| self.live_cards().any(|card| card.id == *id));
        let dead = map.map_or(0, |map| map.everyone().iter().filter(|id| !live(id)).count());
        let is_settled = map.is_some() && session.filled() >= session.map_seen();
        let (overflow, bad) = (self.group.assigned().overflow.times, &self.bad);
        let own = [overflow, self.over_rates, bad.frames, bad.hung_up, bad.refuted, dead as u64, u64::from(is_settled)];
        let own = self.channels.figures().into_iter().chain(own);
        figures.extend(FIGURES.iter().map(|figure| Cow::Borrowed(figure.name)).zip(own));
        figures
    }

    fn overflow(&self, now: Now) -> OverflowView {
        let Overflow { times, total_ms, since_ms, last_ms } = self.group.assigned().overflow;
        let present_ms = since_ms.map_or(0, |since| now.wall_ms.saturating_sub(since));
        OverflowView { times, total_ms: total_ms.saturating_add(present_ms), since_ms, last_ms }
    }

    fn nodes(&self) -> Vec<NodeView> {
        let nothing = NodeReport::default();
        let mut nodes: Vec<NodeView> = self
            .seen
            .values()
            .map(|seen| {
                let report = if seen.state == NodeState::Dead { &nothing } else { self.report_of(seen.card.id) };
                let drained = self.off.node(&seen.card.name);
                let Card { id, boot, name, doors, pid, version, level } = seen.card.clone();
                NodeView {
                    id,
                    name,
                    state: seen.state,
                    boot,
                    pid,
                    version,
                    level,
                    doors,
                    load: report.load,
                    cpu_millis: report.cpu_millis,
                    resident_bytes: report.resident_bytes,
                    since_ms: seen.since_ms,
                    gauges: Arc::clone(&report.gauges),
                    certificate_ends_at_ms: report.gauges.get(CERTIFICATE_ENDS).map(|s| s.saturating_mul(1000)),
                    certificate_fails: report.gauges.get(CERTIFICATE_FAILED).is_some_and(|failed| *failed > 0),
                    sandbox_lacks: {
                        let of = |gauge| report.gauges.get(gauge).copied();
                        let lacks = of(LANDLOCK).map_or_else(Vec::new, sandbox_lacks);
                        let unheld = self.has_bounds() && of(CONTROL_GROUPS) == Some(0);
                        lacks.into_iter().chain(unheld.then(|| LACKS_GROUPS.to_owned())).collect()
                    },
                    brick: BrickView {
                        settled: seen.state != NodeState::Dead && self.is_settled(id),
                        entries: report.classes.session.brick.entries,
                        bytes: report.classes.session.brick.bytes,
                        bytes_max: report.classes.session.brick.bytes_max,
                        operations: report.classes.session.brick.operations,
                    },
                    disk: report.disk.clone(),
                    slow_force_ms: self.slow_force(id).map(|took| took.as_millis()),
                    overflow: report.overflow,
                    drained,
                    leaving: self.leaving(id),
                    waits: self.left(id).and_then(|left| left.waits),
                }
            })
            .collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes
    }

    /// As the live nodes say that know the present declaration.
    fn groups_whole(&self) -> u64 {
        let version = self.root.declared().version;
        let told = self.live_cards().map(|card| self.report_of(card.id).classes.linear.whole);
        told.filter(|(of, _)| *of >= version).map(|(_, count)| count).sum()
    }

    fn stubs(&self) -> Vec<StubView> {
        let mut stubs: Vec<StubView> = self
            .classes
            .session
            .stubs()
            .into_iter()
            .map(|stub| StubView {
                brick: self.name_of(stub.brick),
                window: stub.window as u64,
                in_flight: stub.under_way.into(),
                slow: stub.slow,
                timeouts: stub.timeouts,
                no_room: stub.no_room,
                turned_away: stub.turned_away,
                full: stub.full,
            })
            .collect();
        stubs.sort_by(|a, b| a.brick.cmp(&b.brick));
        stubs
    }

    /// Shards as they are shown: looked at anew with each declaration, and once a second, as there may be a thousand.
    fn show_shards(&mut self, now: Now) {
        let version = self.root.declared().version;
        if self.shards_shown.version == version && now.mono < self.shards_shown.until {
            return;
        }
        let leads = |id: NodeId| facts::decode::<BTreeSet<GroupId>>(self.beacons.get(id, facts::LEADS)?);
        let told: BTreeMap<GroupId, NodeId> = self
            .live_cards()
            .flat_map(|card| leads(card.id).into_iter().flatten().map(move |group| (group, card.id)))
            .collect();
        let mut of: BTreeMap<String, Vec<ShardView>> = BTreeMap::new();
        for (name, placed) in &*self.placed {
            let leader = told.get(&placed.id).copied().or_else(|| self.classes.linear.leader_of(placed.id));
            of.entry(placed.namespace.clone()).or_default().push(ShardView {
                name: name.clone(),
                from: placed.from,
                to: placed.to,
                leader: leader.map(|id| self.name_of(id)),
                members: placed.members.iter().map(|id| self.name_of(*id)).collect(),
            });
        }
        let of = of.into_iter().map(|(name, shards)| (name, shards.into())).collect();
        self.shards_shown = ShardsShown { version, until: now.mono + SHARDS_EVERY, of };
    }

    fn namespace_view(&self, name: &str, spec: &NamespaceSpec) -> NamespaceView {
        let record = self.lives.record;
        let told = self
            .live_cards()
            .map(|card| self.report_of(card.id).classes.session.intervals.get(name).copied().unwrap_or((0, 0)));
        let (intervals, intervals_ms) = told.fold((0, 0u64), |all, one| (all.0 + one.0, all.1.saturating_add(one.1)));
        let brick_hours = record.brick_seconds / 3600.0;
        let observed = Observed { deaths: record.deaths, brick_hours, intervals, intervals_ms };
        let bricks = self.classes.session.map().map_or(1, |map| map.members.len());
        let told = |id| &self.report_of(id).classes.linear;
        let hot = together(self.live_cards().filter_map(|card| told(card.id).hot.get(name)).flatten());
        let queues = by_age(self.live_cards().filter_map(|card| told(card.id).queues.get(name)).flatten());
        let (session, linear) = (spec.session(), spec.linear());
        let durability = linear.map(state::linear::Spec::durability);
        let longest = |id| self.report_of(id).gauges.get(UNFORCED_FIGURE).copied();
        NamespaceView {
            name: name.into(),
            class: spec.class().to_string(),
            lease_ms: session.map_or(0, |spec| spec.lease_ms),
            timeout_ms: session.map_or_else(|| session::Spec::default().timeout_ms, |spec| spec.timeout_ms),
            merge: session.map_or(Merges::None, |spec| spec.merge).name().into(),
            promise: spec.promise().into(),
            lines: spec.lines().into_iter().chain(spec.databases().into_iter().flat_map(Databases::lines)).collect(),
            size_max: spec.cache().map(|spec| spec.size_max),
            ttl_ms: spec.cache().and_then(|spec| spec.ttl_ms),
            weak: linear.map(|spec| spec.weak.clone()).unwrap_or_default(),
            functions: linear.and_then(|spec| spec.functions.clone()),
            durability: durability.map(|durability| durability.name().into()),
            connections_max: spec.quota().connections_max,
            used: self.used_view(name),
            rate_max: spec.quota().rate_max,
            loss_window: (durability == Some(Durability::Memory)).then(|| LossWindow {
                force_after_ms: base::limits::UNFORCED_MAX.as_millis(),
                longest_ms: self.live_cards().filter_map(|card| longest(card.id)).max().unwrap_or(0),
            }),
            shards_declared: linear.and_then(|spec| spec.shards).map(|shards| match shards {
                Shards::Count(count) => count.to_string(),
                Shards::Auto => "auto".to_owned(),
            }),
            shards: self.shards_shown.of.get(name).cloned().unwrap_or_default(),
            hot,
            queues,
            odds: session.map(|spec| odds(observed, bricks.min(BRICKS_ACKED) as u32, spec.lease_ms)),
        }
    }

    /// A declared service with the clones that serve it now.
    fn route(&self, service: &RouteService, running: &[(&Card, &CloneStatus)]) -> RouteService {
        let serving = || running.iter().filter(|(_, c)| c.state == CloneState::Serving);
        let sick_too = are_routed(serving().filter(|(_, c)| c.sick).count(), serving().count());
        let clones = serving().filter(|(_, c)| sick_too || !c.sick).map(|(card, c)| RouteClone {
            name: c.id.to_string(),
            node: card.id,
            local: card.id == self.me(),
            addr: (Node::clone_host(card.peer()), c.port).into(),
            peer: card.peer(),
            node_load: self.report_of(card.id).busy(),
            version: c.version,
        });
        RouteService { clones: clones.collect(), wanted: self.wanted(&service.name), ..service.clone() }
    }

    /// How many clones a service is to have now: what the manager chose, if there is something to choose.
    fn wanted(&self, name: &str) -> u32 {
        let Some(size) = self.services.get(name).map(ServiceSpec::standing) else { return 0 };
        let assigned = || self.group.assigned().of.keys().filter(|id| id.service == name).count() as u32;
        if size.is_fixed() { size.min } else { size.clamp(assigned()) }
    }

    fn asked_of(&self, clone: &str) -> Option<AskedView> {
        let (mut all, mut times, mut under_way) = (Tally::default(), Sparse::default(), 0u64);
        for report in self.live_cards().map(|card| self.report_of(card.id)) {
            report.asked.get(clone).into_iter().for_each(|tally| all.add(*tally));
            if let Some(took) = report.took.get(clone) {
                times.join(&Sparse::of_flat(&took.times));
                under_way = under_way.saturating_add(took.under_way);
            }
        }
        let [p50_us, p99_us] = [50, 99].map(|percent| times.percentile(percent));
        let of =
            AskedView { requests: all.done, failed: all.failed, mean_us: all.mean_us(), p50_us, p99_us, under_way };
        (all.done > 0 || under_way > 0).then_some(of)
    }

    fn service_view(&self, now: Now, name: &str, spec: &ServiceSpec, running: &[(&Card, &CloneStatus)]) -> ServiceView {
        let off = &self.off;
        // Of an idle one that waits to be started again, its last process may still be told.
        let use_of = |card: &Card, c: &CloneStatus| self.told.use_of(card.id, &c.id.to_string()).filter(|_| c.life > 0);
        let clones = running.iter().map(|(card, c)| CloneView {
            name: c.id.to_string(),
            life: if c.life > 0 { life_name(&card.name, card.boot, c.life) } else { String::new() },
            node: card.name.clone(),
            state: match c.state {
                CloneState::Starting => view::CloneState::Starting,
                CloneState::Serving => view::CloneState::Serving,
                CloneState::Draining => view::CloneState::Draining,
                CloneState::Backoff => view::CloneState::Backoff,
            },
            pid: c.pid,
            port: c.port,
            restarts: c.restarts,
            version: c.version,
            deaths: c.deaths,
            since_ms: c.since_ms,
            last_exit: c.last_exit.clone(),
            last_output: if c.state == CloneState::Serving { Vec::new() } else { c.last_output.clone() },
            sick: c.sick,
            asked: self.asked_of(&c.id.to_string()),
            cpu_millis: use_of(card, c).map(|(millis, _)| millis),
            resident_bytes: use_of(card, c).map(|(_, mib)| u64::from(mib) << 20),
        });
        let mut clones: Vec<CloneView> = clones.collect();
        clones.sort_by(|a, b| a.name.cmp(&b.name).then_with(|| a.node.cmp(&b.node)));
        let all = self.wanted(name);
        let clones_off = off.clones().iter().filter(|id| id.service == name && id.number < all).count();
        let wanted = if off.service(name) { 0 } else { all - clones_off as u32 };
        let (clones_min, clones_max) = (spec.standing().min, spec.standing().max);
        let partitions = spec.partitions.iter().map(|p| PartitionView {
            name: p.name.clone(),
            priority: p.priority.0,
            share: p.share.to_string(),
        });
        let (at, off) = (spec.reached_at(), off.of_service(name).collect());
        let leader = self.members.leader(name).map(str::to_owned);
        let deployed = self.deployed.get(name);
        let next = deployed.and_then(|all| all.version(all.next?));
        let start_timeout = next.map_or(spec.start_timeout, |next| next.program.start_timeout);
        let versions = deployed.into_iter().flat_map(|all| &all.versions).map(|v| VersionView {
            number: v.number,
            at_ms: v.at_ms,
            code: v.program.code.clone(),
            files: v.files,
            bytes: v.bytes,
            fate: v.fate.clone(),
        });
        ServiceView {
            name: name.into(),
            leader,
            wanted,
            clones_min,
            clones_max,
            clones,
            at,
            certificates: spec.certificates,
            openapi: spec.openapi.clone(),
            off,
            partitions: partitions.collect(),
            version: spec.version,
            next: deployed.and_then(|all| all.next),
            start_timeout_ms: start_timeout.as_millis(),
            versions: versions.collect(),
            queues: self.worked_view(spec),
            runs: self.runs_view(now, name),
        }
    }
}

/// Hot keys as nodes tell of them, the hottest first. Several nodes may read one key: their members answer reads that
/// may be stale.
fn together<'a>(told: impl Iterator<Item = &'a HotKeyView>) -> Vec<HotKeyView> {
    let mut hot: Vec<HotKeyView> = Vec::new();
    for told in told {
        match hot.iter_mut().find(|have| have.key == told.key) {
            Some(have) => (have.rate, have.waiters) = (have.rate + told.rate, have.waiters + told.waiters),
            None => hot.push(told.clone()),
        }
    }
    hot.sort_by(|a, b| b.rate.cmp(&a.rate).then_with(|| a.key.cmp(&b.key)));
    hot
}

/// Queues as nodes tell of them, the one whose job waits longest first. Who led before may tell of one, too, for a
/// moment.
fn by_age<'a>(told: impl Iterator<Item = &'a QueueView>) -> Vec<QueueView> {
    let mut queues: Vec<QueueView> = told.cloned().collect();
    queues.sort_by(|a, b| b.oldest_ms.cmp(&a.oldest_ms).then_with(|| a.name.cmp(&b.name)));
    let mut seen = BTreeSet::new();
    queues.retain(|queue| seen.insert(queue.name.clone()));
    queues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_key_of_which_several_nodes_tell_is_one_and_the_hottest_comes_first() {
        let key = |key: &str, rate, waiters| HotKeyView { key: key.into(), rate, waiters };
        let told = [key("b", 5, 1), key("a", 3, 0), key("c", 6, 0), key("a", 4, 2), key("d", 6, 0)];
        let shown: Vec<_> = together(told.iter()).into_iter().map(|key| (key.key, key.rate, key.waiters)).collect();
        let expected = [("a", 7, 2), ("c", 6, 0), ("d", 6, 0), ("b", 5, 1)];
        assert_eq!(shown, expected.map(|(key, rate, waiters)| (key.to_owned(), rate, waiters)));
        assert_eq!(together(std::iter::empty()).len(), 0);
    }

    #[test]
    fn a_queue_of_which_two_nodes_tell_is_shown_once_as_its_oldest_job_is_older() {
        let queue = |name: &str, oldest_ms| QueueView { name: name.into(), oldest_ms, ..QueueView::default() };
        let told = [queue("mail", 5), queue("bills", 70), queue("mail", 90), queue("alike", 70)];
        let shown: Vec<_> = by_age(told.iter()).into_iter().map(|queue| (queue.name, queue.oldest_ms)).collect();
        assert_eq!(shown, [("mail", 90), ("alike", 70), ("bills", 70)].map(|(name, ms)| (name.to_owned(), ms)));
    }

    #[test]
    fn what_a_kernel_lacks_is_told_as_far_as_clones_can_use_it() {
        let lacks = |has| sandbox_lacks(has).len();
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(lacks), [1, 2, 2, 1, 1, 1, 0, 0]);
        assert!(sandbox_lacks(0)[0].contains("keys"));
    }
}
