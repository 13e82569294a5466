//! Some nodes with disks, and a network that loses, doubles and reorders. Kept simple: a death is known after 300 ms, a birth after 20.

use std::collections::{BTreeMap, BTreeSet};

use base::checksum::Checksum;
use base::{AskId, Boot, Frame, GroupId, NodeId, Now, Outcome, PackSaid, PackWant, Priority, Rng, Span, Ticket, Time};
use bytes::Bytes;
use class::{Class, CookieSecret, Declared, Numbers, Space};
use object::{Action, Body, Bug, Id, Object, Op, Output, Reply, Settings, Spec, Writes};

type Input = object::Input;

pub struct World {
    pub now: Time,
    pub rng: Rng,
    pub nodes: BTreeMap<NodeId, Host>,
    /// Declared, whether they live or not.
    pub members: BTreeSet<NodeId>,
    pub answers: BTreeMap<AskId, (Time, Outcome<Reply>)>,
    pub loss: f64,
    pub double: f64,
    /// Microseconds that a frame takes at most.
    pub slow: u64,
    /// Frames between these two are lost.
    pub cut: BTreeSet<(NodeId, NodeId)>,
    /// Added to a node's wall clock, milliseconds.
    pub skew: BTreeMap<NodeId, i64>,
    /// Declared namespaces with their numbers, and the last number given.
    pub spaces: BTreeMap<String, (u32, Spec)>,
    pub last: u32,
    /// Of programs, that all have agreed on.
    pub level: u32,
    /// About to leave for good, each with whether that is by force.
    pub leaving: BTreeMap<NodeId, bool>,
    pub settings: Settings,
    /// Frames that were sent.
    pub sent: u64,
    /// Nodes do not hear that another one has begun a new life.
    pub births_unseen: bool,
    /// A planted bug: disks say that a pack is there when it is written, before it is forced.
    pub packs_lie: bool,
    /// One that is planted in all nodes.
    bug: Option<Bug>,
    queue: BTreeMap<(Time, u64), Happening>,
    count: u64,
    asks: u64,
}

#[derive(Default)]
pub struct Host {
    pub boot: Boot,
    pub object: Option<Object>,
    /// What is forced, and what is on its way there, by when it was appended.
    disk: BTreeMap<u64, Vec<Bytes>>,
    cache: Vec<(u64, Vec<Bytes>, Ticket)>,
    /// A save is on the disk in place of all that was appended before it.
    saved: u64,
    packs: BTreeMap<u64, Bytes>,
    /// Packs that are not forced yet.
    packing: BTreeMap<u64, Bytes>,
    /// Its disk takes so long for a force, microseconds.
    pub force: u64,
    /// It hears and does nothing until then.
    pub hung_until: Time,
}

enum Happening {
    Frame { from: NodeId, to: NodeId, boots: (Boot, Boot), frame: Frame },
    Birth { at: NodeId, peer: NodeId, boot: Boot },
    Death { at: NodeId, peer: NodeId },
    Forced { at: NodeId, boot: Boot, ticket: Ticket },
    Saved { at: NodeId, boot: Boot, ticket: Ticket, upto: u64, records: Vec<Bytes> },
    Packed { at: NodeId, boot: Boot, pack: u64, is_told: bool },
    Read { at: NodeId, boot: Boot, number: u64, bytes: Option<Bytes> },
    Tend,
}

const WALL_MS: u64 = 1_700_000_000_000;
/// Objects of more bytes go in pieces here, so that all histories have some.
pub const PIECE: usize = 5;
pub const GROUP: GroupId = class::Number::OBJECT.group(0);

impl World {
    pub fn new(seed: u64, nodes: u64) -> Self {
        Self::with(seed, nodes, Settings::default())
    }

    /// One in which there are directories, however few nodes.
    pub fn mapped(seed: u64, nodes: u64) -> Self {
        Self::with(seed, nodes, Settings { directories_from: 2, ..Settings::default() })
    }

    /// One in which so few bytes are a pack, checkpoints come all the time, and no turn looks at more than some entries.
    pub fn packed(pack_bytes: u64) -> Settings {
        Settings { pack_bytes, waste_bytes: 0, save_entries: 3, walk_entries: 3, ..Settings::default() }
    }

    pub fn with(seed: u64, nodes: u64, settings: Settings) -> Self {
        let mut world = Self {
            now: Time(1_000_000),
            rng: Rng::new(seed),
            nodes: BTreeMap::new(),
            members: (1..=nodes).map(NodeId).collect(),
            answers: BTreeMap::new(),
            loss: 0.0,
            double: 0.0,
            slow: 400,
            cut: BTreeSet::new(),
            skew: BTreeMap::new(),
            spaces: BTreeMap::new(),
            last: 0,
            level: base::LEVEL,
            leaving: BTreeMap::new(),
            settings,
            sent: 0,
            births_unseen: false,
            packs_lie: false,
            bug: None,
            queue: BTreeMap::new(),
            count: 0,
            asks: 0,
        };
        let newest = Spec { writes: Writes::Newest, ..Spec::default() };
        let sure = Spec { copies_min: 2, ..Spec::default() };
        for (name, spec) in [("mail", Spec::default()), ("notes", newest), ("sure", sure)] {
            world.last += 1;
            world.spaces.insert(name.to_owned(), (world.last, spec));
        }
        for node in world.members.clone() {
            world.start(node);
        }
        world.push(Span::ZERO, Happening::Tend);
        world.run(Span::millis(500));
        world
    }

    fn push(&mut self, after: Span, what: Happening) {
        self.count += 1;
        self.queue.insert((self.now + after, self.count), what);
    }

    /// From now on all nodes have it.
    pub fn plant(&mut self, bug: Option<Bug>) {
        self.bug = bug;
        if let Some(bug) = bug {
            self.nodes.values_mut().filter_map(|host| host.object.as_mut()).for_each(|object| object.plant(bug));
        }
    }

    pub fn live(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, host)| host.object.is_some()).map(|(node, _)| *node).collect()
    }

    /// A new life, with what the disk has kept.
    pub fn start(&mut self, node: NodeId) {
        let rng = self.rng.fork();
        let host = self.nodes.entry(node).or_insert_with(|| Host { force: 800, ..Host::default() });
        host.boot = Boot(host.boot.0 + 1);
        host.hung_until = Time::ZERO;
        let boot = host.boot;
        let mut object = Object::new(node, boot, rng, self.settings);
        let kept = host.disk.values().flatten().cloned().collect();
        assert!(!object.start([(GROUP, kept)].into(), true));
        if let Some(bug) = self.bug {
            object.plant(bug);
        }
        host.object = Some(object);
        let there = host.packs.iter().map(|(pack, bytes)| (*pack, bytes.len() as u64)).collect();
        self.input(node, Input::Packs([(GROUP, there)].into()));
        self.declare(node);
        for peer in self.live().into_iter().filter(|peer| *peer != node) {
            if !self.births_unseen {
                self.push(Span::millis(20), Happening::Birth { at: peer, peer: node, boot });
            }
            let boot = self.nodes[&peer].boot;
            self.push(Span::millis(20), Happening::Birth { at: node, peer, boot });
        }
    }

    /// What was not forced is gone.
    pub fn kill(&mut self, node: NodeId) {
        let host = self.nodes.get_mut(&node).unwrap();
        host.object = None;
        host.cache.clear();
        for (pack, bytes) in std::mem::take(&mut host.packing) {
            if !self.packs_lie && self.rng.chance(0.5) {
                host.packs.insert(pack, bytes);
            }
        }
        for peer in self.live() {
            self.push(Span::millis(300), Happening::Death { at: peer, peer: node });
        }
    }

    /// A byte of each piece of this object on the disk of a node that is down is another one than was written.
    pub fn rot(&mut self, node: NodeId, text: &str) {
        let host = self.nodes.get_mut(&node).unwrap();
        assert!(host.object.is_none(), "its disk is read at its start");
        for record in host.disk.values_mut().flatten() {
            let mut bytes = record.to_vec();
            // They stand last in a record.
            if text.as_bytes().chunks(PIECE).any(|piece| bytes.ends_with(piece)) {
                *bytes.last_mut().unwrap() ^= 1;
            }
            *record = bytes.into();
        }
    }

    /// A byte of each pack of a node is another one than was written. False: it has none.
    pub fn rot_packs(&mut self, node: NodeId) -> bool {
        let host = self.nodes.get_mut(&node).unwrap();
        for bytes in host.packs.values_mut() {
            let mut rotten = bytes.to_vec();
            let at = self.rng.below(rotten.len() as u64) as usize;
            rotten[at] ^= 1;
            *bytes = rotten.into();
        }
        !host.packs.is_empty()
    }

    /// Packs of a node are cut, or gone, while it is down.
    pub fn lose_packs(&mut self, node: NodeId, cut: bool) {
        let host = self.nodes.get_mut(&node).unwrap();
        assert!(host.object.is_none());
        match cut {
            true => host.packs.values_mut().for_each(|bytes| bytes.truncate(bytes.len() - 1)),
            false => host.packs.clear(),
        }
    }

    /// Bytes in packs on a node's disk.
    pub fn pack_bytes(&self, node: u64) -> u64 {
        self.nodes[&NodeId(node)].packs.values().map(|bytes| bytes.len() as u64).sum()
    }

    /// The disk is gone: what comes back is another node.
    pub fn replace(&mut self, node: NodeId, by: NodeId) {
        if self.nodes[&node].object.is_some() {
            self.kill(node);
        }
        self.nodes.remove(&node);
        self.members.remove(&node);
        self.members.insert(by);
        self.start(by);
        self.declare_all();
    }

    /// It was away for too long: it enters anew under another id, and goes on with what it alone had.
    pub fn enters_anew(&mut self, node: NodeId, by: NodeId) {
        if self.nodes[&node].object.is_some() {
            self.kill(node);
        }
        let host = self.nodes.remove(&node).unwrap();
        let kept = host.disk.values().flatten().cloned().collect();
        let left = object::left_alone(node, by, kept).unwrap();
        let packs = host.packs.into_iter().filter(|(pack, _)| left.packs.contains(pack)).collect();
        let records = left.records.into_iter().map(Bytes::from).collect();
        self.nodes.insert(by, Host { force: host.force, disk: [(0, records)].into(), packs, ..Host::default() });
        self.members.remove(&node);
        self.members.insert(by);
        self.start(by);
        self.declare_all();
    }

    pub fn declare_all(&mut self) {
        self.live().into_iter().for_each(|node| self.declare(node));
    }

    fn declare(&mut self, node: NodeId) {
        let secret = CookieSecret::new(1, [7; 32]);
        let space = |(name, (id, spec)): (&String, &(u32, Spec))| {
            (name.clone(), Space { id: *id, spec: spec.clone(), secret: secret.clone() })
        };
        let spaces = self.spaces.iter().map(space).collect();
        let used = self.spaces.values().map(|(id, _)| *id).collect();
        let (nodes, numbers) = (self.members.clone(), Numbers { used, last: self.last });
        let (level, records) = (self.level, BTreeMap::new());
        let declared = Declared { version: 1, level, spaces, records, unread: 0, nodes, numbers };
        self.input(node, Input::Declared(declared));
        self.input(node, Input::Leaving(self.leaving.clone()));
    }

    /// A node is asked to leave for good.
    pub fn leave(&mut self, node: NodeId, by_force: bool) {
        self.leaving.insert(node, by_force);
        self.declare_all();
    }

    /// What it waits for.
    pub fn counted_on(&self, node: NodeId) -> Option<String> {
        self.nodes[&node].object.as_ref().unwrap().counted_on()
    }

    /// It ends, and is not one of the nodes any more.
    pub fn leaves(&mut self, node: NodeId) {
        self.kill(node);
        self.nodes.remove(&node);
        self.members.remove(&node);
        self.leaving.remove(&node);
        self.declare_all();
    }

    /// Takes a namespace away, and declares it anew, with or without a moment in which nodes hear that it is not there.
    pub fn declare_anew(&mut self, name: &str, is_seen: bool) {
        let (_, spec) = self.spaces.remove(name).unwrap();
        if is_seen {
            self.declare_all();
        }
        self.last += 1;
        self.spaces.insert(name.to_owned(), (self.last, spec));
        self.declare_all();
    }

    pub fn input(&mut self, node: NodeId, input: Input) {
        let skew = self.skew.get(&node).copied().unwrap_or(0);
        let wall_ms = (WALL_MS + self.now.0 / 1000).saturating_add_signed(skew);
        let now = Now { mono: self.now, wall_ms };
        let Some(object) = self.nodes.get_mut(&node).and_then(|host| host.object.as_mut()) else { return };
        let mut out = Vec::new();
        object.handle(now, input, &mut out);
        for output in out {
            self.carry_out(node, output);
        }
    }

    fn carry_out(&mut self, node: NodeId, output: Output) {
        match output {
            Output::Send { to, frame } => self.send(node, to, frame),
            Output::Answer { id, answer } => {
                assert!(self.answers.insert(id, (self.now, answer)).is_none(), "{id} was answered twice");
            }
            Output::Append { group, records, ticket, .. } => {
                assert_eq!(group, GROUP);
                self.count += 1;
                let host = self.nodes.get_mut(&node).unwrap();
                host.cache.push((self.count, records.into_iter().map(Bytes::from).collect(), ticket));
                let (boot, force) = (host.boot, host.force);
                let took = Span::micros(force / 2 + self.rng.below(force));
                self.push(took, Happening::Forced { at: node, boot, ticket });
            }
            Output::Bad { from, why } => panic!("{node} of {from}: {why}"),
            Output::Distrust { why } => panic!("{node}: {why}"),
            Output::Save { group, parts, ticket } => {
                assert_eq!(group, GROUP);
                self.count += 1;
                let (upto, host) = (self.count, &self.nodes[&node]);
                let (boot, records) = (host.boot, parts.0.collect());
                let took = Span::micros(1 + self.rng.below(20 * host.force));
                self.push(took, Happening::Saved { at: node, boot, ticket, upto, records });
            }
            Output::Pack { group, want } => {
                assert_eq!(group, GROUP);
                self.pack(node, want);
            }
            _ => (),
        }
    }

    fn pack(&mut self, node: NodeId, want: PackWant) {
        let host = self.nodes.get_mut(&node).unwrap();
        let (at, boot, force) = (node, host.boot, host.force);
        match want {
            PackWant::Write { pack, parts, .. } => {
                let is_new = !host.packs.contains_key(&pack) && !host.packing.contains_key(&pack);
                assert!(is_new, "a number is not used twice");
                host.packing.insert(pack, parts.concat().into());
                let took = Span::micros(1 + self.rng.below(20 * force));
                let lies = self.packs_lie;
                let took = if lies { Span::secs(5) } else { took };
                if lies {
                    self.push(Span::micros(1), Happening::Packed { at, boot, pack, is_told: true });
                }
                self.push(took, Happening::Packed { at, boot, pack, is_told: !lies });
            }
            PackWant::Read { number, pack, from, len } => {
                let range = from as usize..from as usize + len as usize;
                let of = host.packs.get(&pack).or(host.packing.get(&pack).filter(|_| self.packs_lie));
                let bytes = of.and_then(|bytes| (range.end <= bytes.len()).then(|| bytes.slice(range)));
                let took = Span::micros(1 + self.rng.below(force));
                self.push(took, Happening::Read { at, boot, number, bytes });
            }
            PackWant::Drop { pack } => drop(host.packs.remove(&pack)),
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, frame: Frame) {
        self.sent += 1;
        if self.cut.contains(&(from, to)) || self.cut.contains(&(to, from)) {
            return;
        }
        let copies = 1 + u64::from(self.rng.chance(self.double));
        let Some(peer) = self.nodes.get(&to) else { return };
        let boots = (self.nodes[&from].boot, peer.boot);
        for _ in 0..copies {
            if !self.rng.chance(self.loss) {
                let took = Span::micros(self.rng.between(50, self.slow));
                self.push(took, Happening::Frame { from, to, boots, frame: frame.clone() });
            }
        }
    }

    pub fn run(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            let next = self.queue.first_key_value().map(|(at, _)| at.0);
            let wakes = self.nodes.iter().filter(|(_, host)| host.hung_until <= self.now);
            let wake = wakes.filter_map(|(node, host)| Some((host.object.as_ref()?.wake_at()?, *node))).min();
            match (next, wake) {
                (next, Some((at, node))) if at <= end && next.is_none_or(|next| at < next) => {
                    self.now = self.now.max(at);
                    self.input(node, Input::Wake);
                }
                (Some(at), _) if at <= end => {
                    self.now = self.now.max(at);
                    let ((_, _), what) = self.queue.pop_first().unwrap();
                    self.happen(what);
                }
                _ => break,
            }
        }
        self.now = end;
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Frame { from, to, boots, frame } => {
                let Some(host) = self.nodes.get(&to) else { return };
                if host.hung_until > self.now {
                    let (at, count) = (host.hung_until, self.count + 1);
                    self.count = count;
                    self.queue.insert((at, count), Happening::Frame { from, to, boots, frame });
                } else if host.boot == boots.1 && self.nodes.get(&from).is_some_and(|host| host.boot == boots.0) {
                    self.input(to, Input::Frame { from, frame });
                }
            }
            Happening::Birth { at, peer, boot } => {
                if self.nodes.get(&peer).is_some_and(|host| host.boot == boot && host.object.is_some()) {
                    self.input(at, Input::Birth { peer, boot });
                }
            }
            Happening::Death { at, peer } => {
                if self.nodes.get(&peer).is_none_or(|host| host.object.is_none()) {
                    self.input(at, Input::Death { peer });
                }
            }
            Happening::Forced { at, boot, ticket } => {
                let Some(host) = self.nodes.get_mut(&at).filter(|host| host.boot == boot && host.object.is_some())
                else {
                    return;
                };
                let (forced, rest) = std::mem::take(&mut host.cache).into_iter().partition(|(.., t)| *t <= ticket);
                let forced: Vec<(u64, Vec<Bytes>, Ticket)> = forced;
                host.cache = rest;
                let forced = forced.into_iter().map(|(at, records, _)| (at, records));
                host.disk.extend(forced.filter(|(at, _)| *at > host.saved));
                self.input(at, Input::Appended { group: GROUP, ticket });
            }
            Happening::Saved { at, boot, ticket, upto, records } => {
                let Some(host) = self.nodes.get_mut(&at).filter(|host| host.boot == boot && host.object.is_some())
                else {
                    return;
                };
                host.disk.retain(|at, _| *at > upto);
                host.disk.insert(upto, records);
                host.saved = upto;
                self.input(at, Input::Saved { group: GROUP, ticket });
            }
            Happening::Packed { at, boot, pack, is_told } => {
                let Some(host) = self.nodes.get_mut(&at).filter(|host| host.boot == boot && host.object.is_some())
                else {
                    return;
                };
                if let Some(bytes) = host.packing.remove(&pack).filter(|_| is_told || self.packs_lie) {
                    match is_told && self.packs_lie {
                        true => drop(host.packing.insert(pack, bytes)),
                        false => drop(host.packs.insert(pack, bytes)),
                    }
                }
                if is_told {
                    self.input(at, Input::Pack { group: GROUP, said: PackSaid::Written { pack } });
                }
            }
            Happening::Read { at, boot, number, bytes } => {
                if self.nodes.get(&at).is_some_and(|host| host.boot == boot) {
                    self.input(at, Input::Pack { group: GROUP, said: PackSaid::Read { number, bytes } });
                }
            }
            Happening::Tend => {
                let hung = |host: &Host| host.hung_until > self.now;
                for node in self.live().into_iter().filter(|node| !hung(&self.nodes[node])).collect::<Vec<_>>() {
                    self.input(node, Input::Tend);
                }
                self.push(Span::millis(250), Happening::Tend);
            }
        }
    }

    pub fn begin(&mut self, at: u64, namespace: &str, owner: &str, action: Action, budget: Span) -> AskId {
        self.asks += 1;
        let id = AskId(self.asks);
        let owner = Bytes::copy_from_slice(owner.as_bytes());
        let op = Op { namespace: namespace.into(), owner, action, priority: Priority::NORMAL };
        self.input(NodeId(at), Input::Ask { id, budget, op });
        id
    }

    /// Asks, and waits for the answer; of what is in pieces for all of them.
    pub fn ask(&mut self, at: u64, namespace: &str, owner: &str, action: Action) -> Outcome<Reply> {
        let mut said = self.ask_once(at, namespace, owner, action.clone());
        while let (Action::Get { id, .. }, Outcome::Done(Reply::Object { version, size, sum, body })) = (&action, &said)
            && body.len() < *size as usize
        {
            let next = Action::Get { id: *id, at: body.len() as u32 };
            match self.ask_once(at, namespace, owner, next) {
                Outcome::Done(Reply::Object { size: is, sum: of, body: more, .. }) if (is, of) == (*size, *sum) => {
                    assert!(!more.is_empty());
                    let body = [&body[..], &more].concat().into();
                    said = Outcome::Done(Reply::Object { version: *version, size: is, sum: of, body });
                }
                other => return other,
            }
        }
        if let Outcome::Done(Reply::Object { size, sum, body, .. }) = &said {
            assert_eq!((body.len(), Checksum::of(body)), (*size as usize, Checksum(*sum)));
        }
        said
    }

    fn ask_once(&mut self, at: u64, namespace: &str, owner: &str, action: Action) -> Outcome<Reply> {
        let id = self.begin(at, namespace, owner, action, Span::secs(3));
        for _ in 0..4000 {
            if let Some((_, answer)) = self.answers.remove(&id) {
                return answer;
            }
            self.run(Span::millis(1));
        }
        panic!("{id} was never answered");
    }

    pub fn object(&self, node: NodeId) -> &Object {
        self.nodes[&node].object.as_ref().unwrap()
    }

    pub fn figure(&self, node: u64, name: &str) -> u64 {
        let object = self.object(NodeId(node));
        object.shown().find(|(figure, _)| figure.name == name).unwrap().1
    }

    /// Records on a node's disk.
    pub fn records(&self, node: u64) -> usize {
        self.nodes[&NodeId(node)].disk.values().map(Vec::len).sum()
    }

    /// Nodes that have objects, by the count of them.
    pub fn objects(&self) -> BTreeMap<u64, u64> {
        self.live().into_iter().map(|node| (node.0, self.figure(node.0, "object.objects"))).collect()
    }
}

pub fn id(n: u8) -> Id {
    Id([n; 16])
}

pub fn put(n: u8, body: &str) -> Action {
    Action::Put { id: id(n), body: Body::cut([Bytes::copy_from_slice(body.as_bytes())], PIECE) }
}
