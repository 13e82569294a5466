//! A few session machines in virtual time, with a network that loses, doubles, delays and reorders frames, nodes that
//! are killed, hang and restart empty, and a leader that changes the map; clients that write and read; and the checker
//! of what they were promised. Used by `claims.rs` and by the planted bugs of the unit tests.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{AskId, Boot, Frame, NodeId, Now, Outcome, Rng, Span, Time};
use bytes::Bytes;
use class::{Class, Declared, Space};
use session::{
    Action, BrickMap, CookieSecret, Input, Kind, Lease, MAP_RECORD, Merges, Op, Opinion, Output, Reply, Report,
    Session, Spec, When, next_map,
};

pub struct World {
    pub now: Time,
    pub rng: Rng,
    pub nodes: BTreeMap<NodeId, Host>,
    pub net: Net,
    pub map: Option<BrickMap>,
    /// What all programs understand.
    pub level: u32,
    /// What becomes of each frame on its way.
    pub retold: Option<fn(&mut Frame)>,
    pub answers: BTreeMap<AskId, (Time, Outcome<Reply>)>,
    pub notes: Vec<String>,
    /// Nobody moves the map while this is off.
    pub leads: bool,
    pub frames: u64,
    cut: BTreeSet<(NodeId, NodeId)>,
    dead_since: BTreeMap<NodeId, Time>,
    /// When nodes last told each other what they think of the bricks.
    pub told: Time,
    queue: BTreeMap<(Time, u64), Happening>,
    sequence: u64,
    asks: u64,
    brick_bytes: Option<u64>,
    /// Seals the cookies of `carts`.
    pub secret: CookieSecret,
    /// Nodes that take so long for each frame; all others take no time.
    pub service: BTreeMap<NodeId, Span>,
    /// Nodes that sleep for so long before each frame that they send.
    pub lags: BTreeMap<NodeId, Span>,
    /// Nodes that lose this share of all that they send.
    pub loses: BTreeMap<NodeId, f64>,
    /// Share of frames whose value has a bit flipped on its way.
    pub flips: f64,
}

pub struct Host {
    pub boot: Boot,
    /// None: dead.
    pub session: Option<Session>,
    /// Milliseconds by which its wall clock is off.
    pub skew_ms: i64,
    pub hung_until: Time,
}

pub struct Net {
    /// Microseconds.
    pub delay: (u64, u64),
    pub loss: f64,
    pub double: f64,
}

enum Happening {
    Frame { from: NodeId, to: NodeId, boots: (Boot, Boot), frame: Frame },
    Birth { at: NodeId, peer: NodeId, boot: Boot },
    Death { at: NodeId, peer: NodeId, boot: Boot },
    Map { at: NodeId, map: BrickMap },
    Opinion { at: NodeId, from: NodeId, opinion: Opinion },
    Lead,
    Restart { node: NodeId },
}

const WALL_START_MS: u64 = 1_700_000_000_000;

impl World {
    pub fn new(seed: u64, count: u64) -> Self {
        let mut world = Self {
            now: Time(1_000_000),
            rng: Rng::new(seed),
            nodes: BTreeMap::new(),
            net: Net { delay: (100, 400), loss: 0.0, double: 0.0 },
            map: None,
            level: base::level::LEVEL,
            retold: None,
            answers: BTreeMap::new(),
            notes: Vec::new(),
            leads: true,
            frames: 0,
            cut: BTreeSet::new(),
            dead_since: BTreeMap::new(),
            told: Time::ZERO,
            queue: BTreeMap::new(),
            sequence: 0,
            asks: 0,
            brick_bytes: None,
            secret: CookieSecret::new(1, [7; 32]),
            service: BTreeMap::new(),
            lags: BTreeMap::new(),
            loses: BTreeMap::new(),
            flips: 0.0,
        };
        for n in 1..=count {
            let host = Host { boot: Boot(0), session: None, skew_ms: 0, hung_until: Time::ZERO };
            world.nodes.insert(NodeId(n), host);
            world.start(NodeId(n));
        }
        world.push(Span::ZERO, Happening::Lead);
        world
    }

    /// A world whose map is stable and whose bricks are all filled.
    pub fn settled(seed: u64, count: u64) -> Self {
        let mut world = Self::new(seed, count);
        world.settle();
        world
    }

    pub fn settle(&mut self) {
        for _ in 0..600 {
            self.run(Span::millis(100));
            let map = self.map.clone();
            if let Some(map) = map
                && map.old.is_none()
                && self
                    .nodes
                    .values()
                    .filter_map(|host| host.session.as_ref())
                    .all(|session| session.filled() == map.epoch && session.map_seen() == map.epoch)
                && self.nodes.iter().all(|(node, host)| host.session.is_none() || map.members.contains(node))
            {
                return;
            }
        }
        panic!("the world did not settle within a minute: {:?}", self.map);
    }

    fn push(&mut self, after: Span, what: Happening) {
        self.sequence += 1;
        self.queue.insert((self.now + after, self.sequence), what);
    }

    fn between(&mut self, low_ms: u64, high_ms: u64) -> Span {
        Span::micros(self.rng.between(low_ms * 1000, high_ms * 1000))
    }

    pub fn live(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, host)| host.session.is_some()).map(|(node, _)| *node).collect()
    }

    pub fn session(&mut self, node: u64) -> &mut Session {
        self.nodes.get_mut(&NodeId(node)).unwrap().session.as_mut().unwrap()
    }

    pub fn figure(&mut self, node: u64, name: &str) -> u64 {
        self.session(node).shown().find(|(figure, _)| figure.name == name).unwrap().1
    }

    /// What clocks that are right say.
    pub fn wall_ms(&self) -> u64 {
        WALL_START_MS + self.now.0 / 1000
    }

    /// Tells a node what is declared.
    pub fn declare(&mut self, node: NodeId) {
        self.tell(node, None);
    }

    /// Tells a node of this map.
    pub fn tell_map(&mut self, node: NodeId, map: BrickMap) {
        self.tell(node, Some(map));
    }

    fn tell(&mut self, node: NodeId, map: Option<BrickMap>) {
        let merging = Spec { merge: Merges::Fields, ..Spec::default() };
        let timeout = |timeout_ms| Spec { timeout_ms, ..Spec::default() };
        let spaces = [
            ("carts", 1, timeout(60)),
            ("other", 2, timeout(60)),
            ("maps", 3, merging),
            ("hasty", 4, timeout(10)),
            ("patient", 5, timeout(500)),
        ];
        let secret = |id| if id == 1 { self.secret.clone() } else { CookieSecret::new(id, [7; 32]) };
        let spaces = spaces.map(|(name, id, spec)| (name.to_owned(), Space { id, spec, secret: secret(id) })).into();
        let records = map.map(|map| (MAP_RECORD.to_owned(), map)).into_iter().collect();
        self.input(
            node,
            Input::Declared(Declared {
                version: 1,
                level: self.level,
                spaces,
                records,
                unread: 0,
                nodes: BTreeSet::new(),
                numbers: Default::default(),
            }),
        );
    }

    pub fn start(&mut self, node: NodeId) {
        let rng = self.rng.fork();
        let host = self.nodes.get_mut(&node).unwrap();
        host.boot = Boot(host.boot.0 + 1);
        host.hung_until = Time::ZERO;
        let boot = host.boot;
        let mut session = Session::new(node, boot, rng);
        if let Some(bytes) = self.brick_bytes {
            session = session.with_brick_bytes(bytes);
        }
        host.session = Some(session);
        self.dead_since.remove(&node);
        self.declare(node);
        if let Some(map) = self.map.clone() {
            let after = self.between(0, 50);
            self.push(after, Happening::Map { at: node, map });
        }
        for peer in self.live().into_iter().filter(|peer| *peer != node) {
            if !self.cut.contains(&(node, peer)) {
                let peer_boot = self.nodes[&peer].boot;
                let (a, b) = (self.between(1, 50), self.between(1, 50));
                self.push(a, Happening::Birth { at: node, peer, boot: peer_boot });
                self.push(b, Happening::Birth { at: peer, peer: node, boot });
            }
        }
    }

    /// One more node.
    pub fn add(&mut self) -> NodeId {
        let node = NodeId(self.nodes.len() as u64 + 1);
        let host = Host { boot: Boot(0), session: None, skew_ms: 0, hung_until: Time::ZERO };
        self.nodes.insert(node, host);
        self.start(node);
        node
    }

    /// SIGKILL: memory gone, the others hear of it within 300 ms.
    pub fn kill(&mut self, node: NodeId) {
        let host = self.nodes.get_mut(&node).unwrap();
        host.session = None;
        let boot = host.boot;
        self.dead_since.insert(node, self.now);
        for at in self.live() {
            let after = self.between(1, 300);
            self.push(after, Happening::Death { at, peer: node, boot });
        }
    }

    pub fn restart_in(&mut self, node: NodeId, after: Span) {
        self.push(after, Happening::Restart { node });
    }

    pub fn hang(&mut self, node: NodeId, span: Span) {
        let until = self.now + span;
        self.nodes.get_mut(&node).unwrap().hung_until = until;
    }

    /// Both sides lose sight of each other after a while.
    pub fn partition(&mut self, side: &[NodeId]) {
        for a in self.live() {
            for b in self.live() {
                if side.contains(&a) != side.contains(&b) && self.cut.insert((a, b)) {
                    let (after, boot) = (self.between(300, 1500), self.nodes[&b].boot);
                    self.push(after, Happening::Death { at: a, peer: b, boot });
                }
            }
        }
    }

    /// Two nodes lose sight of each other, and all others see both.
    pub fn part(&mut self, a: NodeId, b: NodeId) {
        for (at, peer) in [(a, b), (b, a)] {
            if self.cut.insert((at, peer)) {
                let (after, boot) = (self.between(300, 1500), self.nodes[&peer].boot);
                self.push(after, Happening::Death { at, peer, boot });
            }
        }
    }

    pub fn heal(&mut self) {
        for (a, b) in std::mem::take(&mut self.cut) {
            let (after, boot) = (self.between(1, 300), self.nodes[&b].boot);
            if self.nodes[&b].session.is_some() {
                self.push(after, Happening::Birth { at: a, peer: b, boot });
            }
        }
    }

    pub fn brick_bytes(mut self, bytes: u64) -> Self {
        self.brick_bytes = Some(bytes);
        self
    }

    fn wall(&self, node: NodeId) -> u64 {
        self.wall_ms().saturating_add_signed(self.nodes[&node].skew_ms)
    }

    pub fn input(&mut self, node: NodeId, input: Input) {
        let now = Now { mono: self.now, wall_ms: self.wall(node) };
        let Some(session) = self.nodes.get_mut(&node).unwrap().session.as_mut() else { return };
        let mut out = Vec::new();
        session.handle(now, input, &mut out);
        for output in out {
            self.output(node, output);
        }
    }

    pub fn output(&mut self, from: NodeId, output: Output) {
        match output {
            Output::Send { to, mut frame } => {
                self.frames += 1;
                if let Some(retold) = self.retold {
                    retold(&mut frame);
                }
                if !frame.body.is_empty() && self.flips > 0.0 && self.rng.chance(self.flips) {
                    let mut bytes = frame.body.to_vec();
                    bytes[0] ^= 1;
                    frame.body = bytes.into();
                }
                let loss = self.loses.get(&from).copied().unwrap_or(0.0);
                if loss > 0.0 && self.rng.chance(loss) {
                    return;
                }
                let copies = 1 + u64::from(self.rng.chance(self.net.double));
                for _ in 0..copies {
                    if self.rng.chance(self.net.loss) || !self.nodes.contains_key(&to) {
                        continue;
                    }
                    let after = Span(self.rng.between(self.net.delay.0, self.net.delay.1));
                    let after = after + self.lags.get(&from).copied().unwrap_or_default();
                    let boots = (self.nodes[&from].boot, self.nodes[&to].boot);
                    self.push(after, Happening::Frame { from, to, boots, frame: frame.clone() });
                }
            }
            Output::Answer { id, answer: outcome } => {
                let before = self.answers.insert(id, (self.now, outcome));
                assert!(before.is_none(), "{id} was answered twice");
            }
            Output::Doubt { .. } | Output::Bad { .. } => (),
            Output::Warn { text } => self.notes.push(text),
            other => panic!("the class has no use for {other:?}"),
        }
    }

    /// Runs until this moment.
    pub fn run_to(&mut self, end: Time) {
        loop {
            let queued = self.queue.first_key_value().map(|(key, _)| key.0);
            let wakes = self.nodes.iter().filter_map(|(node, host)| {
                let at = host.session.as_ref()?.wake_at()?;
                Some((at.max(host.hung_until).max(self.now), *node))
            });
            let wake = wakes.min();
            match (queued, wake) {
                (Some(at), wake) if at <= end && wake.is_none_or(|(wake, _)| at <= wake) => {
                    let ((at, _), what) = self.queue.pop_first().unwrap();
                    self.now = self.now.max(at);
                    self.happen(what);
                }
                (_, Some((at, node))) if at <= end => {
                    self.now = self.now.max(at);
                    self.input(node, Input::Wake);
                    let next = self.nodes[&node].session.as_ref().unwrap().wake_at();
                    assert!(next.is_none_or(|next| next > self.now || self.progress(node)), "{node} spins");
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// A wake in the past is right only if calls make it go on, as for the sweep of foreign keys.
    fn progress(&mut self, node: NodeId) -> bool {
        for _ in 0..200 {
            self.input(node, Input::Wake);
            if self.nodes[&node].session.as_ref().unwrap().wake_at().is_none_or(|next| next > self.now) {
                return true;
            }
        }
        false
    }

    pub fn run(&mut self, span: Span) {
        self.run_to(self.now + span);
    }

    fn happen(&mut self, what: Happening) {
        let at = match &what {
            Happening::Frame { to, .. } => Some(*to),
            Happening::Birth { at, .. } | Happening::Death { at, .. } | Happening::Map { at, .. } => Some(*at),
            Happening::Opinion { at, .. } => Some(*at),
            Happening::Lead | Happening::Restart { .. } => None,
        };
        if let Some(at) = at
            && self.nodes[&at].hung_until > self.now
        {
            let after = self.nodes[&at].hung_until.since(self.now);
            return self.push(after, what);
        }
        match what {
            Happening::Frame { from, to, boots, frame } => {
                let same_lives = (self.nodes[&from].boot, self.nodes[&to].boot) == boots;
                if same_lives && !self.cut.contains(&(from, to)) {
                    self.input(to, Input::Frame { from, frame });
                    if let Some(service) = self.service.get(&to) {
                        self.nodes.get_mut(&to).unwrap().hung_until = self.now + *service;
                    }
                }
            }
            Happening::Birth { at, peer, boot } => {
                if self.nodes[&peer].session.is_some() && self.nodes[&peer].boot == boot {
                    self.input(at, Input::Birth { peer, boot });
                }
            }
            Happening::Death { at, peer, boot } => {
                // A death that is told late is of no interest to who has met the next life.
                let gone = self.nodes[&peer].session.is_none() || self.cut.contains(&(at, peer));
                if self.nodes[&peer].boot == boot && gone {
                    self.input(at, Input::Death { peer });
                }
            }
            Happening::Map { at, map } => self.tell_map(at, map),
            Happening::Opinion { at, from, opinion } => {
                self.input(at, Input::Told { from, report: Report { opinion, ..Report::default() } })
            }
            Happening::Lead => {
                if self.leads {
                    self.lead();
                }
                self.tell_opinions();
                self.push(Span::millis(100), Happening::Lead);
            }
            Happening::Restart { node } => {
                if self.nodes[&node].session.is_none() {
                    self.start(node);
                }
            }
        }
    }

    /// Each second each node tells the others what its stub thinks of the bricks.
    fn tell_opinions(&mut self) {
        if self.now.since(self.told) < Span::secs(1) {
            return;
        }
        self.told = self.now;
        let now = self.now;
        let awake = self.nodes.iter_mut().filter(|(_, host)| host.hung_until <= now);
        let said: Vec<_> = awake.filter_map(|(from, host)| Some((*from, host.session.as_mut()?.look(now)))).collect();
        for at in self.live() {
            for (from, opinion) in said.iter().filter(|(from, _)| *from != at) {
                if !self.cut.contains(&(at, *from)) {
                    self.push(Span::millis(50), Happening::Opinion { at, from: *from, opinion: opinion.clone() });
                }
            }
        }
    }

    /// There are others, and none of them sees it.
    fn is_alone(&self, node: NodeId) -> bool {
        let mut others = self.live().into_iter().filter(|other| *other != node).peekable();
        others.peek().is_some() && others.all(|other| self.cut.contains(&(other, node)))
    }

    fn lead(&mut self) {
        let now = self.now;
        let (alone, live): (Vec<_>, Vec<_>) = self.live().into_iter().partition(|node| self.is_alone(*node));
        alone.iter().for_each(|node| _ = self.dead_since.entry(*node).or_insert(now));
        live.iter().for_each(|node| _ = self.dead_since.remove(node));
        let dead_for = self.dead_since.iter().map(|(node, at)| (*node, now.since(*at))).collect();
        let told = |of: fn(&Session) -> u64| {
            let hosts = self.nodes.iter();
            hosts.filter_map(|(node, host)| Some((*node, of(host.session.as_ref()?)))).collect::<BTreeMap<_, _>>()
        };
        let (seen, filled) = (told(Session::map_seen), told(Session::filled));
        if let Some(map) = next_map(self.map.as_ref(), &live, &dead_for, &seen, &filled) {
            self.map = Some(map.clone());
            for at in live {
                let after = self.between(1, 200);
                self.push(after, Happening::Map { at, map: map.clone() });
            }
        }
    }

    /// Asks and goes on; the answer comes into `answers`.
    pub fn ask(&mut self, node: u64, op: Op) -> AskId {
        self.asks += 1;
        let id = AskId(self.asks);
        self.input(NodeId(node), Input::Ask { id, budget: Span::secs(2), op });
        id
    }

    /// Asks and waits.
    pub fn call(&mut self, node: u64, op: Op) -> Outcome<Reply> {
        let id = self.ask(node, op);
        let end = self.now + Span::secs(3);
        while !self.answers.contains_key(&id) && self.now < end {
            self.run(Span::micros(100));
        }
        self.answers.get(&id).expect("every operation ends within its budget").1.clone()
    }

    pub fn done(&mut self, node: u64, op: Op) -> Reply {
        match self.call(node, op.clone()) {
            Outcome::Done(reply) => reply,
            other => panic!("{op:?} ended as {other:?}"),
        }
    }

    pub fn put(&mut self, node: u64, key: &str, value: &str) -> Reply {
        self.done(node, put(key, value))
    }

    pub fn get(&mut self, node: u64, key: &str) -> Reply {
        self.done(node, op(key, Action::Get))
    }

    /// The value, or none if there is none.
    pub fn value(&mut self, node: u64, key: &str) -> Option<String> {
        match self.get(node, key) {
            Reply::Value { value, .. } => Some(String::from_utf8(value.to_vec()).unwrap()),
            Reply::Absent => None,
            other => panic!("{key}: {other:?}"),
        }
    }
}

pub fn op(key: &str, action: Action) -> Op {
    Op::keyed(Arc::from("carts"), Bytes::copy_from_slice(key.as_bytes()), action)
}

pub fn put_action(value: &str) -> Action {
    let value = Bytes::copy_from_slice(value.as_bytes());
    Action::Put { kind: Kind::Text, value, lease: Lease::Default, when: When::Always, want_old: false }
}

/// An operation of another namespace.
pub fn of(namespace: &str, key: &str, action: Action) -> Op {
    Op { namespace: Arc::from(namespace), ..op(key, action) }
}

pub fn by_cookie(key: &str, action: Action, cookie: Option<&str>) -> Op {
    Op::cookie(Arc::from("carts"), Bytes::copy_from_slice(key.as_bytes()), action, cookie.map(str::to_owned))
}

pub fn put(key: &str, value: &str) -> Op {
    op(key, put_action(value))
}

pub fn put_when(key: &str, value: &str, condition: When) -> Op {
    let value = Bytes::copy_from_slice(value.as_bytes());
    op(key, Action::Put { kind: Kind::Text, value, lease: Lease::Default, when: condition, want_old: false })
}

/// What a client did, and when.
#[derive(Clone, Debug)]
pub struct Done {
    pub id: AskId,
    pub node: NodeId,
    pub key: u64,
    /// What it wrote; none for a read.
    pub wrote: Option<u64>,
    pub start: Time,
}

/// Clients that write and read all the time, and what is held against the session class.
pub struct Clients {
    pub busy: Vec<Option<Done>>,
    pub history: Vec<Done>,
    pub keys: u64,
    next_value: u64,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub reads: u64,
    pub writes: u64,
    pub refused: u64,
    pub unknown: u64,
    /// Reads that returned less than what was acknowledged before they began.
    pub stale: Vec<String>,
    /// Reads that said absent or lost though a write was acknowledged.
    pub missing: Vec<String>,
    pub refusals: BTreeSet<String>,
}

impl Clients {
    pub fn new(count: usize, keys: u64) -> Self {
        Self { busy: vec![None; count], history: Vec::new(), keys, next_value: 0 }
    }

    /// Lets the clients work for a time.
    pub fn work(&mut self, world: &mut World, span: Span) {
        let end = world.now + span;
        while world.now < end {
            self.turn(world, true);
            let pause = Span::micros(world.rng.between(100, 2000));
            world.run(pause);
        }
    }

    /// Lets the clients work through these nodes only.
    pub fn work_through(&mut self, world: &mut World, nodes: &[u64], span: Span) {
        let end = world.now + span;
        while world.now < end {
            self.turn_at(world, true, &nodes.iter().map(|n| NodeId(*n)).collect::<Vec<_>>());
            let pause = Span::micros(world.rng.between(100, 2000));
            world.run(pause);
        }
    }

    /// Lets those under way end.
    pub fn finish(&mut self, world: &mut World) {
        for _ in 0..400 {
            self.turn(world, false);
            world.run(Span::millis(10));
        }
        assert!(self.busy.iter().flatten().all(|op| !world.nodes.contains_key(&op.node)), "some op never ended");
    }

    fn turn(&mut self, world: &mut World, more: bool) {
        let live = world.live();
        self.turn_at(world, more, &live);
    }

    fn turn_at(&mut self, world: &mut World, more: bool, live: &[NodeId]) {
        for client in &mut self.busy {
            if let Some(op) = client {
                let node_lives = world.nodes[&op.node].session.is_some();
                if node_lives && !world.answers.contains_key(&op.id) {
                    continue;
                }
                *client = None;
            }
            let Some(node) = world.rng.pick(live).copied().filter(|_| more) else { continue };
            if world.nodes[&node].hung_until > world.now {
                continue;
            }
            let key = world.rng.below(self.keys);
            let wrote = world.rng.chance(0.4).then(|| {
                self.next_value += 1;
                self.next_value
            });
            let name = format!("key-{key}");
            let asked = match wrote {
                Some(value) => put(&name, &format!("{value}")),
                None => op(&name, Action::Get),
            };
            let start = world.now;
            let id = world.ask(node.0, asked);
            let done = Done { id, node, key, wrote, start };
            self.history.push(done.clone());
            *client = Some(done);
        }
    }

    /// Compares every read with what was acknowledged before it began (a regular register).
    pub fn judge(&self, world: &World) -> Verdict {
        let mut verdict = Verdict::default();
        let answer = |op: &Done| world.answers.get(&op.id);
        let sources: BTreeMap<u64, &Done> = self.history.iter().filter_map(|op| Some((op.wrote?, op))).collect();
        // By key, in order of acknowledgement: when it was, and the latest start of all writes acknowledged so far.
        let mut acked: BTreeMap<u64, Vec<(Time, Time, &Done)>> = BTreeMap::new();
        for write in self.history.iter().filter(|op| op.wrote.is_some()) {
            if let Some((at, Outcome::Done(_))) = answer(write) {
                acked.entry(write.key).or_default().push((*at, write.start, write));
            }
        }
        for writes in acked.values_mut() {
            writes.sort_by_key(|(at, ..)| *at);
            for i in 1..writes.len() {
                if writes[i - 1].1 > writes[i].1 {
                    (writes[i].1, writes[i].2) = (writes[i - 1].1, writes[i - 1].2);
                }
            }
        }
        for read in &self.history {
            let Some((_, outcome)) = answer(read) else { continue };
            let reply = match outcome {
                Outcome::Done(reply) => reply,
                Outcome::Refused(refused) => {
                    verdict.refused += 1;
                    verdict.refusals.insert(refused.why.clone());
                    continue;
                }
                Outcome::Unknown(_) => {
                    verdict.unknown += 1;
                    continue;
                }
            };
            if read.wrote.is_some() {
                verdict.writes += 1;
                continue;
            }
            verdict.reads += 1;
            let writes = acked.get(&read.key).map_or(&[][..], Vec::as_slice);
            let before = writes[..writes.partition_point(|(at, ..)| *at < read.start)].last();
            match reply {
                Reply::Value { value, .. } => {
                    let value: u64 = std::str::from_utf8(value).unwrap().parse().unwrap();
                    let source = sources[&value];
                    assert_eq!(source.key, read.key, "a value of another key");
                    let ended = answer(source).filter(|(_, o)| matches!(o, Outcome::Done(_))).map(|(at, _)| *at);
                    let newer = before.filter(|(_, start, _)| ended.is_some_and(|ended| ended < *start));
                    if let Some((_, _, newer)) = newer {
                        verdict.stale.push(format!("{read:?} returned {source:?} after {newer:?}"));
                    }
                }
                Reply::Absent | Reply::Lost if before.is_some() => {
                    verdict.missing.push(format!("{read:?} was {reply:?} after {before:?}"));
                }
                Reply::Absent | Reply::Lost => (),
                other => panic!("{read:?} got {other:?}"),
            }
        }
        verdict
    }
}

/// Kills a random node now and then and restarts it, waiting for its fill before the next is killed; the promise is for
/// one at a time.
pub fn kills(seed: u64, nodes: u64, rounds: u64, net: Net) -> Verdict {
    let mut world = World::settled(seed, nodes);
    for host in world.nodes.values_mut() {
        host.skew_ms = world.rng.below(801) as i64 - 400;
    }
    world.net = net;
    let mut clients = Clients::new(8, 12);
    clients.work(&mut world, Span::millis(200));
    for _ in 0..rounds {
        let live = world.live();
        let victim = *world.rng.pick(&live).unwrap();
        if world.rng.chance(0.25) {
            let span = Span::millis(world.rng.between(20, 2000));
            world.hang(victim, span);
            clients.work(&mut world, span + Span::millis(200));
            continue;
        }
        world.kill(victim);
        let away = Span::millis(world.rng.between(50, 1500));
        world.restart_in(victim, away);
        clients.work(&mut world, away + Span::millis(100));
        for _ in 0..200 {
            let map_epoch = world.map.as_ref().unwrap().epoch;
            if world.live().len() as u64 == nodes && world.session(victim.0).filled() == map_epoch {
                break;
            }
            clients.work(&mut world, Span::millis(20));
        }
        let settle_a_moment = Span::millis(world.rng.between(0, 300));
        clients.work(&mut world, settle_a_moment);
    }
    clients.finish(&mut world);
    clients.judge(&world)
}

pub fn calm() -> Net {
    Net { delay: (100, 400), loss: 0.0, double: 0.0 }
}

pub fn rough() -> Net {
    Net { delay: (100, 5000), loss: 0.01, double: 0.02 }
}

/// One brick hangs and misses writes, then another is killed and is back at once, empty: what was written meanwhile is
/// with the third alone.
pub fn one_sleeps_one_restarts(seed: u64) -> Verdict {
    let mut world = World::settled(seed, 3);
    for host in world.nodes.values_mut() {
        host.skew_ms = world.rng.below(801) as i64 - 400;
    }
    let mut clients = Clients::new(8, 12);
    clients.work(&mut world, Span::millis(100));
    for (sleeper, victim) in [(3, 1), (1, 2), (2, 3)].map(|(a, b)| (NodeId(a), NodeId(b))) {
        world.hang(sleeper, Span::millis(600));
        clients.work(&mut world, Span::millis(590));
        world.kill(victim);
        world.restart_in(victim, Span::millis(50));
        clients.work(&mut world, Span::millis(300));
        clients.finish(&mut world);
        world.settle();
    }
    clients.judge(&world)
}
