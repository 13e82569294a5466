//! The manager: spreads the clones of all services over the live nodes. It runs at the root group's leader; a new leader
//! goes on from the newest assignments it has seen and from what the nodes' beacons say runs.
//!
//! What should run where is decided by [`plan`], a pure function; how many clones a service has, by a [`Sizer`] or a
//! [`QueueSizer`] for each. The machine around them keeps what they cannot: terms, the first moments of a leader,
//! moves that take too long, and what the
//! edges said last.

use std::collections::{BTreeMap, BTreeSet};

use base::{Boot, NodeId, Now, Span, Time};

use crate::backlog::{Backlogs, QueueSizer};
use crate::clone::Happened;
use crate::conduct::Conduct;
use crate::limits::*;
use crate::plan::{Absence, Cluster, plan};
use crate::rollout::{LastSaid, Rollout, Scene, Step};
use crate::sizing::{Seen, Sizer};
use crate::{Assignments, CloneId, CloneState, Demand, NodeClones, ServiceSpec, Version};

/// A live node, as its beacons describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeLoad {
    pub id: NodeId,
    /// For messages.
    pub name: String,
    /// 0 (idle) to 1000 (full).
    pub load: u16,
    /// Its beacon is here. Without, `clones` is empty because nothing is known.
    pub reported: bool,
    /// Whether it is to run no clones, as it is drained or about to end.
    pub drains: bool,
    /// Whether it runs clones only when the others are full.
    pub overflow: bool,
    /// Clones that it is meant to run at most.
    pub room: u32,
    /// How busy its machine is, 0 to 1000.
    pub busy: u16,
    /// Version of the assignments it obeys.
    pub obeys: Version,
    /// What it says it runs; the best state of each clone.
    pub clones: BTreeMap<CloneId, CloneState>,
    /// Versions that serve.
    pub versions: BTreeSet<(CloneId, u32)>,
    /// Version of each clone that serves, and since when, as the node says (milliseconds since 1970). No entry
    /// for those of which there are two.
    pub serving: BTreeMap<CloneId, (u32, u64)>,
    /// Deaths of processes of each version that a clone is to run, since it is to run that.
    pub deaths: BTreeMap<(CloneId, u32), u32>,
    /// How those that do not serve ended, and what they printed last.
    pub last_said: BTreeMap<CloneId, LastSaid>,
}

#[derive(Debug)]
pub enum Input {
    /// Whether this node leads the root group. Saying the same again changes nothing.
    Leads(bool),
    /// Assignments in some other node's beacon.
    Seen(Assignments),
    /// What is declared and who lives, this node included: after every change of either, and of what a node says it runs.
    /// A leader needs it; nothing is planned between `Leads(true)` and the first of these, unless one came before.
    Cluster {
        services: BTreeMap<String, ServiceSpec>,
        live: Vec<NodeLoad>,
        /// Nodes that this node saw alive and then die.
        dead: BTreeSet<NodeId>,
        /// Clones that are not to run.
        off: BTreeSet<CloneId>,
        /// Versions that are being rolled out, by service, and whether each is judged.
        next: BTreeMap<String, (u32, bool)>,
    },
    /// What leaders of class `linear` tell of the queues that services work on; before the `Cluster` of the same moment.
    Queues(Backlogs),
    /// What an edge saw.
    Demand {
        from: NodeId,
        demand: Demand,
    },
    Wake,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Put these into our beacon, and give them to our own group.
    Assign(Assignments),
    /// Take our beacon back: another leader's is newer.
    Withdraw,
    Happened(Happened),
    /// A version that was rolled out stays (no reason), or goes, and why. Said again until it is declared.
    Verdict {
        service: String,
        number: u32,
        take_back: Option<String>,
    },
}

pub struct Manager {
    me: NodeId,
    boot: Boot,
    /// The newest seen or written.
    current: Assignments,
    /// None until the node has told about it: nothing is planned for a cluster that only seems empty.
    cluster: Option<Cluster>,
    /// Names of all nodes seen alive, for messages about the dead.
    names: BTreeMap<NodeId, String>,
    leading: Option<Leading>,
    /// Our own beacon holds assignments.
    published: bool,
}

/// What a leader keeps. A new one starts without.
struct Leading {
    since: Time,
    /// `current` is in our beacon as it is.
    published: bool,
    /// When each move under way began.
    moves: BTreeMap<CloneId, Time>,
    /// Services in which a move failed: until when nothing is moved for balance.
    resting: BTreeMap<String, Time>,
    /// When sizes are looked at next.
    look_at: Time,
    /// What each edge said last.
    edges: BTreeMap<NodeId, (Time, Demand)>,
    /// What decides the number of clones, for each service with a range.
    sizers: BTreeMap<String, Sizer>,
    /// What is told of queues, and what decides the number of clones for each service with a range that works on some.
    queues: Backlogs,
    workers: BTreeMap<String, QueueSizer>,
    sizes: BTreeMap<String, u32>,
    /// Clones that were told to start, since when.
    starting: BTreeMap<CloneId, Time>,
    rollouts: BTreeMap<String, Rollout>,
    conduct: Conduct,
    /// How busy machines are, on average.
    machines: BTreeMap<NodeId, f64>,
    busy: BTreeSet<NodeId>,
}

impl NodeLoad {
    /// `says` is the content of the node's beacon, if it is here.
    pub fn new(id: NodeId, name: impl Into<String>, load: u16, says: Option<&NodeClones>) -> Self {
        let rank = |state: CloneState| match state {
            CloneState::Serving => 3,
            CloneState::Starting => 2,
            CloneState::Backoff => 1,
            CloneState::Draining => 0,
        };
        let mut clones: BTreeMap<CloneId, CloneState> = BTreeMap::new();
        for clone in says.iter().flat_map(|says| &says.clones) {
            let best = clones.entry(clone.id.clone()).or_insert(clone.state);
            if rank(clone.state) > rank(*best) {
                *best = clone.state;
            }
        }
        let obeys = says.map_or_else(Version::default, |says| says.obeys);
        let (mut versions, mut deaths, mut last_said) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        let (mut serving, mut twice) = (BTreeMap::new(), BTreeSet::new());
        for clone in says.iter().flat_map(|says| &says.clones) {
            if clone.state == CloneState::Serving {
                versions.insert((clone.id.clone(), clone.version));
                if serving.insert(clone.id.clone(), (clone.version, clone.since_ms)).is_some() {
                    twice.insert(&clone.id);
                }
            }
            let most = deaths.entry((clone.id.clone(), clone.version)).or_insert(0);
            // An older program does not say how often; that it waits after a death it does.
            *most = clone.deaths.unwrap_or_else(|| u32::from(clone.state == CloneState::Backoff)).max(*most);
            let is_down = matches!(clone.state, CloneState::Starting | CloneState::Backoff);
            if is_down && (clone.last_exit.is_some() || !clone.last_output.is_empty()) {
                let (exit, line) = (clone.last_exit.clone(), clone.last_output.last().cloned());
                last_said.insert(clone.id.clone(), LastSaid { exit, line });
            }
        }
        serving.retain(|id, _| !twice.contains(id));
        let (reported, drains, overflow, room, busy) = (says.is_some(), false, false, u32::MAX, 0);
        Self {
            id,
            name: name.into(),
            load,
            reported,
            drains,
            overflow,
            room,
            busy,
            obeys,
            clones,
            versions,
            serving,
            deaths,
            last_said,
        }
    }
}

impl Manager {
    pub fn new(me: NodeId, boot: Boot) -> Self {
        Self {
            me,
            boot,
            current: Assignments::default(),
            cluster: None,
            names: BTreeMap::new(),
            leading: None,
            published: false,
        }
    }

    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Leads(true) if self.leading.is_none() => {
                self.leading = Some(Leading::new(now.mono));
                self.outbid(self.current.term);
            }
            Input::Leads(true) => (),
            // What was known of the cluster goes too: by the next time it leads it would be a picture of the past.
            Input::Leads(false) => (self.leading, self.cluster) = (None, None),
            Input::Seen(seen) => self.saw(now.mono, seen, out),
            Input::Cluster { services, live, dead, off, next } => {
                self.names.extend(live.iter().map(|node| (node.id, node.name.clone())));
                let (absence, resting) = (Absence::Doubted, BTreeSet::new());
                let (sizes, busy) = (BTreeMap::new(), BTreeSet::new());
                self.cluster = Some(Cluster { services, live, dead, absence, resting, off, next, sizes, busy });
            }
            Input::Queues(queues) => {
                if let Some(leading) = &mut self.leading {
                    leading.queues = queues;
                }
                return;
            }
            Input::Demand { from, demand } => {
                if let Some(leading) = &mut self.leading {
                    for (service, rollout) in &mut leading.rollouts {
                        demand.groups.get(service).into_iter().for_each(|group| rollout.count(group));
                    }
                    leading.conduct.hear(now.mono, &demand);
                    leading.edges.insert(from, (now.mono, demand));
                }
                // It is looked at when its time has come, with what the others say.
                if self.leading.as_ref().is_none_or(|leading| now.mono < leading.look_at || !leading.has_suspects()) {
                    return;
                }
            }
            Input::Wake => (),
        }
        self.lead(now, out);
    }

    /// The next moment this manager wants `Input::Wake`, if any.
    pub fn wake_at(&self) -> Option<Time> {
        let leading = self.leading.as_ref()?;
        // With nothing known of the cluster there is nothing to wake for.
        let cluster = self.cluster.as_ref().filter(|cluster| !cluster.live.is_empty())?;
        let believes = cluster.absence == Absence::Believed;
        let settled = (!believes).then_some(leading.since + SETTLE);
        let moves = leading.moves.values().map(|began| *began + MOVE_TIME_MAX);
        let ranged = cluster.services.values().any(|spec| !spec.clones.is_fixed());
        let looks = believes && (ranged || !cluster.next.is_empty() || leading.has_suspects());
        let moves = moves.chain(looks.then_some(leading.look_at));
        moves.chain(leading.resting.values().copied()).chain(settled).min()
    }

    /// The newest assignments seen or written.
    pub fn assignments(&self) -> &Assignments {
        &self.current
    }

    /// Makes ours the newest again, whoever wrote up to `term`.
    fn outbid(&mut self, term: u64) {
        (self.current.term, self.current.seq) = (term + 1, 0);
        (self.current.by, self.current.boot) = (self.me, self.boot);
        if let Some(leading) = &mut self.leading {
            leading.published = false;
        }
    }

    fn saw(&mut self, now: Time, seen: Assignments, out: &mut Vec<Output>) {
        if !seen.is_newer_than(&self.current) {
            return;
        }
        let term = seen.term;
        match &self.leading {
            None => {
                self.current = seen;
                if std::mem::take(&mut self.published) {
                    out.push(Output::Withdraw);
                }
            }
            // Our predecessor's last word came late: go on from it. Once settled, it is from a leader of the past.
            Some(leading) => {
                if now < leading.since + SETTLE {
                    self.current = seen;
                }
                self.outbid(term);
            }
        }
    }

    fn lead(&mut self, now: Now, out: &mut Vec<Output>) {
        let (wall_ms, now) = (now.wall_ms, now.mono);
        let Some(obeyed) = self.cluster.as_ref().and_then(|c| c.live.iter().map(|node| node.obeys).max()) else {
            return; // Nothing is known of the cluster, or nobody lives.
        };
        // Nodes remember what a leader wrote whose beacon is gone; theirs must not stay newer than ours.
        if self.leading.is_some() && obeyed > self.current.version() {
            self.outbid(obeyed.0);
        }
        let (Some(leading), Some(cluster)) = (&mut self.leading, &mut self.cluster) else { return };
        leading.resting.retain(|_, until| *until > now);
        let mut next = self.current.clone();
        for id in leading.take_back(now, &mut next, &cluster.live) {
            leading.moves.remove(&id);
            leading.resting.insert(id.service.clone(), now + MOVE_REST);
            let text = "did not come up at its new node in time and stays where it was";
            out.push(Output::Happened(Happened::new("warning", &id, text)));
        }
        cluster.absence = if now >= leading.since + SETTLE { Absence::Believed } else { Absence::Doubted };
        cluster.resting = leading.resting.keys().cloned().collect();
        if cluster.absence == Absence::Believed {
            let looks = now >= leading.look_at;
            leading.resize(now, cluster, &self.current, out);
            if looks {
                leading.roll_out(now, cluster, &mut next, out);
                leading.judge(now, cluster, &self.current, out);
            }
        }
        next = plan(cluster, &next);
        next.ill = leading.conduct.ill();
        leading.time_starts(now, cluster, &self.current, &next);
        next.starts = leading.starts(cluster, &self.current);
        recruit(wall_ms, cluster, &self.current, &mut next, out);
        leading.moves.retain(|id, _| next.leaving.contains_key(id));
        for id in next.leaving.keys() {
            leading.moves.entry(id.clone()).or_insert(now);
        }
        if next == self.current && leading.published {
            return;
        }
        leading.published = true;
        self.tell_moves(&next, out);
        next.seq += 1;
        self.current = next;
        self.published = true;
        out.push(Output::Assign(self.current.clone()));
    }

    /// An event for each clone that has come to another node.
    fn tell_moves(&self, next: &Assignments, out: &mut Vec<Output>) {
        for (id, to) in &next.of {
            let Some(was_at) = self.current.of.get(id) else { continue };
            let drains = |id: NodeId| {
                self.cluster.as_ref().is_some_and(|c| c.live.iter().any(|node| node.id == id && node.drains))
            };
            let text = match (self.current.leaving.get(id), next.leaving.get(id)) {
                (Some(from), None) if was_at == to => {
                    let why = if drains(*from) { ", which drains" } else { " for balance" };
                    format!("moved to {} from {}{why}", self.name(*to), self.name(*from))
                }
                (None, None) if was_at != to => {
                    let why = if drains(*was_at) { "drains" } else { "is gone" };
                    format!("starts at {}, as {} {why}", self.name(*to), self.name(*was_at))
                }
                _ => continue,
            };
            out.push(Output::Happened(Happened::new("clone-moved", id, text)));
        }
    }

    fn name(&self, node: NodeId) -> String {
        self.names.get(&node).cloned().unwrap_or_else(|| node.to_string())
    }
}

/// Counts and tells when nodes for overflow are recruited, and when they are released.
fn recruit(wall_ms: u64, cluster: &Cluster, current: &Assignments, next: &mut Assignments, out: &mut Vec<Output>) {
    for node in cluster.live.iter().filter(|node| node.overflow) {
        let count = |of: &Assignments| of.of.values().filter(|at| **at == node.id).count();
        let (before, after) = (count(current), count(next));
        let text = match (before, after) {
            (0, 1..) => {
                next.overflow.times += 1;
                format!("recruited for overflow, as the other nodes are full (time {})", next.overflow.times)
            }
            (1.., 0) => "released: the other nodes have room".to_owned(),
            _ => continue,
        };
        out.push(Output::Happened(Happened { kind: "overflow", who: node.name.clone(), text }));
    }
    // A node that has not said what it is may be one.
    if cluster.live.iter().all(|node| node.reported) {
        let has_clones = |node: &NodeLoad| next.of.values().any(|at| *at == node.id);
        let is_used = cluster.live.iter().any(|node| node.overflow && has_clones(node));
        next.overflow.is_used(wall_ms, is_used);
    }
}

impl Leading {
    fn new(since: Time) -> Self {
        Self {
            since,
            published: false,
            moves: BTreeMap::new(),
            resting: BTreeMap::new(),
            look_at: since,
            edges: BTreeMap::new(),
            sizers: BTreeMap::new(),
            queues: Backlogs::new(),
            workers: BTreeMap::new(),
            sizes: BTreeMap::new(),
            starting: BTreeMap::new(),
            rollouts: BTreeMap::new(),
            conduct: Conduct::default(),
            machines: BTreeMap::new(),
            busy: BTreeSet::new(),
        }
    }

    fn has_suspects(&self) -> bool {
        self.conduct.has_suspects(self.edges.values().map(|(_, demand)| demand))
    }

    /// Finds clones that behave ill, and tells of them.
    fn judge(&mut self, now: Time, cluster: &Cluster, current: &Assignments, out: &mut Vec<Output>) {
        let demands: Vec<&Demand> = self.edges.values().map(|(_, demand)| demand).collect();
        for (id, why) in self.conduct.look(now, self.since, cluster, current, &demands) {
            out.push(Output::Happened(Happened::new("warning", &id, format!("{why}: it is to be restarted"))));
        }
    }

    /// Lets each service with a range have the size that its requests need.
    fn resize(&mut self, now: Time, cluster: &mut Cluster, current: &Assignments, out: &mut Vec<Output>) {
        let ranged = |spec: &ServiceSpec| !spec.clones.is_fixed();
        self.sizers.retain(|service, _| cluster.services.get(service).is_some_and(ranged));
        self.sizes.retain(|service, _| self.sizers.contains_key(service));
        let works = |spec: &ServiceSpec| ranged(spec) && !spec.queues.is_empty();
        self.workers.retain(|service, _| cluster.services.get(service).is_some_and(works));
        if now >= self.look_at {
            self.look_at = now + LOAD_EVERY;
            self.look_at_machines(&cluster.live);
            self.edges.retain(|_, (at, _)| now.since(*at) < LOAD_GOOD_FOR);
            let is_whole = cluster.live.iter().all(|node| self.edges.contains_key(&node.id));
            for (service, spec) in cluster.services.iter().filter(|(_, spec)| ranged(spec)) {
                let target = cluster.size(service, spec, current);
                let target = *self.sizes.entry(service.clone()).or_insert(target);
                let serving = cluster.serving(service, current);
                let known = || Sizer::of(current.starts.get(service).map(|ms| Span::millis((*ms).into())));
                let sizer = self.sizers.entry(service.clone()).or_insert_with(known);
                let decision = if works(spec) {
                    let worker = self.workers.entry(service.clone()).or_insert_with(|| QueueSizer::new(now));
                    worker.observe(now, &spec.queues, &self.queues);
                    worker.decide(now, spec, sizer.start().unwrap_or(START_GUESS), (target, serving))
                } else if is_whole {
                    let demands = self.edges.values().map(|(_, demand)| demand);
                    sizer.observe(now, serving, seen(service, demands));
                    sizer.decide(now, spec.clones, spec.wait.unwrap_or(WAIT_HURTS_DEFAULT), target, serving)
                } else {
                    // What only some edges say is no reason to change anything.
                    None
                };
                if let Some(decision) = decision {
                    self.sizes.insert(service.clone(), decision.to);
                    let (who, text) = (service.clone(), decision.why);
                    out.push(Output::Happened(Happened { kind: "scaled", who, text }));
                }
            }
        }
        cluster.sizes = self.sizes.clone();
        cluster.busy = self.busy.clone();
    }

    /// Takes versions that are being rolled out on by a step.
    fn roll_out(&mut self, now: Time, cluster: &Cluster, next: &mut Assignments, out: &mut Vec<Output>) {
        let is_next = |service: &String, number: u32| cluster.next.get(service).is_some_and(|next| next.0 == number);
        self.rollouts.retain(|service, rollout| is_next(service, rollout.number));
        for (service, &(number, judged)) in &cluster.next {
            let Some(spec) = cluster.services.get(service) else { continue };
            let scene = Scene::of(service, (number, judged), spec.start_timeout, cluster, next);
            let begin = || Rollout::new(number, now);
            let take_back = match self.rollouts.entry(service.clone()).or_insert_with(begin).look(now, &scene) {
                Step::Wait => continue,
                Step::Next(more) => {
                    next.fresh.extend(more.into_iter().map(|id| (id, number)));
                    continue;
                }
                Step::Keep => None,
                Step::TakeBack(why) => Some(why),
            };
            out.push(Output::Verdict { service: service.clone(), number, take_back });
        }
    }

    fn look_at_machines(&mut self, live: &[NodeLoad]) {
        self.machines.retain(|id, _| live.iter().any(|node| node.id == *id));
        let weight = LOAD_EVERY.as_secs_f64() / (NODE_AVERAGE_OVER.as_secs_f64() + LOAD_EVERY.as_secs_f64());
        for node in live {
            let mean = self.machines.entry(node.id).or_insert(0.0);
            *mean += (f64::from(node.busy) - *mean) * weight;
            if *mean > NODE_FULL {
                self.busy.insert(node.id);
            } else if *mean < NODE_HAS_ROOM {
                self.busy.remove(&node.id);
            }
        }
        self.busy.retain(|id| self.machines.contains_key(id));
    }

    /// Learns how long clones take from the decision until they serve.
    fn time_starts(&mut self, now: Time, cluster: &Cluster, current: &Assignments, next: &Assignments) {
        for id in next.of.keys().filter(|id| !current.of.contains_key(*id) && self.sizers.contains_key(&id.service)) {
            self.starting.entry(id.clone()).or_insert(now);
        }
        let (starting, sizers) = (&mut self.starting, &mut self.sizers);
        starting.retain(|id, since| {
            let Some(node) = next.of.get(id) else { return false };
            if !cluster.serves(*node, id) {
                return now.since(*since) < TAKES_MAX;
            }
            if let Some(sizer) = sizers.get_mut(&id.service) {
                sizer.started(now.since(*since));
            }
            false
        });
    }

    /// What was learned of starts, by this leader or those before.
    fn starts(&self, cluster: &Cluster, current: &Assignments) -> BTreeMap<String, u32> {
        let is_known = |service: &String| cluster.services.contains_key(service);
        let before = current.starts.iter().filter(|(service, _)| is_known(service));
        let mut starts: BTreeMap<String, u32> = before.map(|(service, ms)| (service.clone(), *ms)).collect();
        let ms = |sizer: &Sizer| Some(u32::try_from(sizer.start()?.as_millis()).unwrap_or(u32::MAX));
        let learned = self.sizers.iter().filter(|(service, _)| is_known(service));
        starts.extend(learned.filter_map(|(service, sizer)| Some((service.clone(), ms(sizer)?))));
        starts
    }

    /// Takes back the moves that took too long, and returns whose they were.
    fn take_back(&self, now: Time, next: &mut Assignments, live: &[NodeLoad]) -> Vec<CloneId> {
        let late = self.moves.iter().filter(|(_, began)| now >= **began + MOVE_TIME_MAX).map(|(id, _)| id);
        let mut taken = Vec::new();
        for id in late {
            let Some(from) = next.leaving.get(id).filter(|from| live.iter().any(|node| node.id == **from)) else {
                continue;
            };
            next.of.insert(id.clone(), *from);
            next.leaving.remove(id);
            taken.push(id.clone());
        }
        taken
    }
}

/// What all edges together see of a service.
fn seen<'a>(service: &str, demands: impl Iterator<Item = &'a Demand>) -> Seen {
    let (mut seen, mut busy, mut answers) = (Seen::default(), 0.0, 0.0);
    for demand in demands {
        let Some(group) = demand.groups.get(service) else { continue };
        let per_second = 1000.0 / f64::from(demand.span_ms.max(1));
        seen.arrived += group.arrived as f64 * per_second;
        seen.refused += group.refused as f64 * per_second;
        seen.done += group.done() as f64 * per_second;
        seen.in_flight += group.in_flight as f64;
        busy += group.clones.iter().map(|clone| clone.busy_us as f64 / 1e6).sum::<f64>();
        answers += group.done() as f64;
    }
    seen.took = if answers > 0.0 { busy / answers } else { 0.0 };
    seen
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
