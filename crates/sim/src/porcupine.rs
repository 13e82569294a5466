//! Porcupine's figures 7, 10 and 11 and its table I, drawn by class `object` itself on machines that are made up: a processor that takes
//! so long for each event, a disk that takes so long for a force and for bytes, a network that takes a tenth of a millisecond. Clients
//! are forty a node: nine hand in a letter for one who lists an owner's letters, reads them and deletes them. What counts is
//! letters taken a second of virtual time, as in the paper. No node dies, so there is no membership here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{AskId, Boot, Frame, GroupId, NodeId, Now, Outcome, PackSaid, PackWant, Priority, Rng, Span, Ticket, Time};
use bytes::Bytes;
use serde::Serialize;
use state::class::{Class, CookieSecret, Declared, Number, Numbers, Space};
use state::object::{Action, Id, Object, Op, Output, Reply, Settings, Spec, bucket_of};

type Input = state::object::Input;

/// A processor's time for an event, microseconds: what a node of the lab takes for a frame, links included.
const EVENT_US: u64 = 40;
/// A disk's for a force: one seek, and for bytes (20 MB/s), as at the time of the paper.
const FORCE_US: u64 = 8_000;
const BYTES_PER_US: u64 = 20;
/// A log that needs no seek (the paper's NVRAM).
const MEMORY_FORCE_US: u64 = 50;
const NETWORK_US: u64 = 100;
/// A letter has ten times as much: bytes are counted so, that there is room for all of them here.
const LETTER_BYTES: usize = 470;
const SCALE: u64 = 10;
const CLIENTS_PER_NODE: usize = 40;
const OWNERS_PER_NODE: u64 = 200;
const POP_OF: u64 = 10;
const WARM: Span = Span::millis(1_500);
const COUNTED: Span = Span::millis(2_000);
const BUDGET: Span = Span::secs(30);
const TEND: Span = Span::millis(250);
const WALL_MS: u64 = 1_700_000_000_000;
const GROUP: GroupId = Number::OBJECT.group(0);
/// The bucket of skewed load.
const HOT: u16 = 0;
/// Owners of it that are written to.
const HOT_OWNERS: usize = 100;

/// What is measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Shape {
    pub nodes: usize,
    pub copies: u32,
    /// Nodes over which an owner is spread: 16 is about by chance.
    pub spread: u32,
    /// Which part of all letters is for owners of one bucket: 0 to 1.
    pub skew: f64,
    /// So many of the nodes have a disk three times as fast.
    pub fast: usize,
    /// Forces take no seek.
    pub in_memory: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { nodes: 30, copies: 2, spread: 2, skew: 0.0, fast: 0, in_memory: false }
    }
}

/// What came of it, in the mean of a node where that makes sense.
#[derive(Clone, Debug, Serialize)]
pub struct Drawn {
    pub letters_per_second: f64,
    pub read_per_second: f64,
    /// Parts of the time.
    pub processor: f64,
    pub disk: f64,
    /// Of the node that has most to do.
    pub processor_max: f64,
    pub disk_max: f64,
    /// Megabits a second.
    pub sent: f64,
    /// Operations that were not done.
    pub failed: u64,
}

#[derive(Default)]
struct Disk {
    waiting: Vec<(Ticket, u64, bool)>,
    is_busy: bool,
    factor: u64,
    free_at: Time,
    used: u64,
    packs: BTreeMap<u64, Bytes>,
}

struct Host {
    object: Object,
    inbox: VecDeque<Input>,
    runs: bool,
    free_at: Time,
    wake: Option<Time>,
    used: u64,
    sent: u64,
    disk: Disk,
}

enum Happening {
    Arrives(usize, Input),
    Run(usize),
    Wake(usize),
    Forced(usize, Vec<(Ticket, bool)>),
    Tend,
}

/// What a client is at.
enum Doing {
    Put,
    List { owner: Bytes },
    Read { owner: Bytes, left: Vec<Id>, all: Vec<Id> },
    Delete { owner: Bytes, left: Vec<Id> },
}

struct World {
    shape: Shape,
    now: Time,
    rng: Rng,
    hosts: Vec<Host>,
    queue: BTreeMap<(Time, u64), Happening>,
    count: u64,
    asks: BTreeMap<AskId, (usize, Doing)>,
    hot: Vec<Bytes>,
    counts: bool,
    letters: u64,
    read: u64,
    failed: u64,
}

/// One measurement. The same seed gives the same.
pub fn draw(seed: u64, shape: Shape) -> Drawn {
    draw_for(seed, shape, WARM, COUNTED)
}

fn draw_for(seed: u64, shape: Shape, warm: Span, counted: Span) -> Drawn {
    let mut world = World::new(seed, shape);
    world.run(warm);
    for host in &mut world.hosts {
        (host.used, host.sent, host.disk.used) = (0, 0, 0);
    }
    world.counts = true;
    world.run(counted);
    let (seconds, us) = (counted.as_secs_f64(), counted.as_micros() as f64);
    let mean = |of: fn(&Host) -> u64| world.hosts.iter().map(of).sum::<u64>() as f64 / world.hosts.len() as f64;
    let max = |of: fn(&Host) -> u64| world.hosts.iter().map(of).max().unwrap_or(0) as f64;
    Drawn {
        letters_per_second: world.letters as f64 / seconds,
        read_per_second: world.read as f64 / seconds,
        processor: mean(|host| host.used) / us,
        disk: mean(|host| host.disk.used) / us,
        processor_max: max(|host| host.used) / us,
        disk_max: max(|host| host.disk.used) / us,
        sent: mean(|host| host.sent) * 8.0 / seconds / 1e6,
        failed: world.failed,
    }
}

fn owner(n: u64) -> Bytes {
    format!("user{n}@example.org").into()
}

impl World {
    fn new(seed: u64, shape: Shape) -> Self {
        let mut rng = Rng::new(seed);
        let ids: BTreeSet<NodeId> = (1..=shape.nodes as u64).map(NodeId).collect();
        let hosts = ids.iter().enumerate().map(|(at, id)| Host {
            object: Object::new(*id, Boot(1), rng.fork(), Settings::default()),
            inbox: VecDeque::new(),
            runs: false,
            free_at: Time::ZERO,
            wake: None,
            used: 0,
            sent: 0,
            disk: Disk { factor: if at < shape.fast { 3 } else { 1 }, ..Disk::default() },
        });
        let hosts: Vec<Host> = hosts.collect();
        let hot = (0..).map(owner).filter(|owner| bucket_of(1, owner) == HOT).take(HOT_OWNERS).collect();
        let mut world = Self {
            shape,
            now: Time(1_000_000),
            rng,
            hosts,
            queue: BTreeMap::new(),
            count: 0,
            asks: BTreeMap::new(),
            hot,
            counts: false,
            letters: 0,
            read: 0,
            failed: 0,
        };
        let spec = Spec { copies: shape.copies, copies_min: 1, spread: shape.spread, ..Spec::default() };
        for at in 0..shape.nodes {
            let space = Space { id: 1, spec: spec.clone(), secret: CookieSecret::new(1, [7; 32]) };
            let numbers = Numbers { used: [1].into(), last: 1 };
            let (spaces, nodes) = (BTreeMap::from([("mail".to_owned(), space)]), ids.clone());
            let declared = Declared {
                version: 1,
                level: base::LEVEL,
                spaces,
                records: BTreeMap::new(),
                unread: 0,
                nodes,
                numbers,
            };
            world.arrives(Span::ZERO, at, Input::Packs(BTreeMap::new()));
            world.arrives(Span::ZERO, at, Input::Declared(declared));
            for peer in ids.iter().filter(|id| id.0 != at as u64 + 1) {
                world.arrives(Span::ZERO, at, Input::Birth { peer: *peer, boot: Boot(1) });
            }
        }
        world.push(TEND, Happening::Tend);
        world.run(Span::millis(500));
        (0..shape.nodes * CLIENTS_PER_NODE).for_each(|client| world.next(client));
        world
    }

    fn push(&mut self, after: Span, what: Happening) {
        self.count += 1;
        self.queue.insert((self.now + after, self.count), what);
    }

    fn arrives(&mut self, after: Span, at: usize, input: Input) {
        self.push(after, Happening::Arrives(at, input));
    }

    fn run(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(first) = self.queue.first_entry().filter(|first| first.key().0 <= end) {
            let ((at, _), what) = first.remove_entry();
            self.now = at;
            self.happen(what);
        }
        self.now = end;
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Arrives(at, input) => {
                let host = &mut self.hosts[at];
                host.inbox.push_back(input);
                if !std::mem::replace(&mut host.runs, true) {
                    let wait = host.free_at.since(self.now);
                    self.push(wait, Happening::Run(at));
                }
            }
            Happening::Run(at) => {
                let host = &mut self.hosts[at];
                let Some(input) = host.inbox.pop_front() else { return host.runs = false };
                self.handle(at, input);
            }
            Happening::Wake(at) => {
                self.hosts[at].wake = None;
                self.happen(Happening::Arrives(at, Input::Wake));
            }
            Happening::Forced(at, tickets) => {
                self.hosts[at].disk.is_busy = false;
                if let Some((ticket, _)) = tickets.last() {
                    self.arrives(Span::ZERO, at, Input::Appended { group: GROUP, ticket: *ticket });
                }
                self.force(at);
            }
            Happening::Tend => {
                (0..self.hosts.len()).for_each(|at| self.arrives(Span::ZERO, at, Input::Tend));
                self.push(TEND, Happening::Tend);
            }
        }
    }

    /// The processor does one thing after the other; what comes of it leaves when it is done.
    fn handle(&mut self, at: usize, input: Input) {
        let now = Now { mono: self.now, wall_ms: WALL_MS + self.now.0 / 1_000 };
        let mut out = Vec::new();
        let host = &mut self.hosts[at];
        // What a machine says to itself takes its time, too, but no link.
        let takes = if matches!(input, Input::Wake | Input::Tend) { Span::ZERO } else { Span::micros(EVENT_US) };
        host.object.handle(now, input, &mut out);
        host.used += takes.as_micros();
        host.free_at = self.now + takes;
        for output in out {
            self.carry_out(at, takes, output);
        }
        let (host, now) = (&mut self.hosts[at], self.now);
        if let Some(wake) = host.object.wake_at().map(|wake| wake.max(now + Span::micros(1)))
            && host.wake.is_none_or(|set| wake < set)
        {
            host.wake = Some(wake);
            self.push(wake.since(now), Happening::Wake(at));
        }
        self.push(takes, Happening::Run(at));
    }

    fn carry_out(&mut self, at: usize, takes: Span, output: Output) {
        match output {
            Output::Send { to, frame } => {
                let Frame { head, body, .. } = &frame;
                self.hosts[at].sent += head.len() as u64 + body.len() as u64 * SCALE;
                let input = Input::Frame { from: NodeId(at as u64 + 1), frame };
                self.arrives(takes + Span::micros(NETWORK_US), to.0 as usize - 1, input);
            }
            Output::Append { records, ticket, force, .. } => {
                let bytes = records.iter().map(base::Record::len).sum::<usize>() as u64 * SCALE;
                self.hosts[at].disk.waiting.push((ticket, bytes, force));
                self.force(at);
            }
            Output::Save { ticket, parts, .. } => {
                let bytes = parts.0.map(|part| part.len() as u64).sum::<u64>() * SCALE;
                let after = self.disk_takes(at, bytes / BYTES_PER_US);
                self.arrives(after, at, Input::Saved { group: GROUP, ticket });
            }
            Output::Pack { want, .. } => self.pack(at, want),
            Output::Answer { id, answer } => self.answered(id, answer),
            _ => (),
        }
    }

    /// Uses the disk behind what it does already: when it is done.
    fn disk_takes(&mut self, at: usize, us: u64) -> Span {
        let disk = &mut self.hosts[at].disk;
        let us = us / disk.factor;
        disk.used += us;
        disk.free_at = disk.free_at.max(self.now) + Span::micros(us);
        disk.free_at.since(self.now)
    }

    /// One force for all that waits for one, the next when that is done.
    fn force(&mut self, at: usize) {
        let disk = &mut self.hosts[at].disk;
        if disk.is_busy || !disk.waiting.iter().any(|(.., force)| *force) {
            return;
        }
        disk.is_busy = true;
        let all = std::mem::take(&mut disk.waiting);
        let bytes: u64 = all.iter().map(|(_, bytes, _)| bytes).sum();
        let seek = if self.shape.in_memory { MEMORY_FORCE_US } else { FORCE_US };
        let after = self.disk_takes(at, seek + bytes / BYTES_PER_US);
        self.push(after, Happening::Forced(at, all.into_iter().map(|(ticket, _, force)| (ticket, force)).collect()));
    }

    fn pack(&mut self, at: usize, want: PackWant) {
        let said = match want {
            PackWant::Write { pack, parts, .. } => {
                let bytes: Bytes = parts.concat().into();
                let us = FORCE_US + bytes.len() as u64 * SCALE / BYTES_PER_US;
                self.hosts[at].disk.packs.insert(pack, bytes);
                (us, PackSaid::Written { pack })
            }
            PackWant::Read { number, pack, from, len } => {
                let range = from as usize..from as usize + len as usize;
                let of = self.hosts[at].disk.packs.get(&pack);
                let bytes = of.and_then(|bytes| (range.end <= bytes.len()).then(|| bytes.slice(range)));
                (FORCE_US + u64::from(len) * SCALE / BYTES_PER_US, PackSaid::Read { number, bytes })
            }
            PackWant::Drop { pack } => {
                self.hosts[at].disk.packs.remove(&pack);
                return;
            }
        };
        let after = self.disk_takes(at, said.0);
        self.arrives(after, at, Input::Pack { group: GROUP, said: said.1 });
    }

    fn some_owner(&mut self) -> Bytes {
        match self.rng.chance(self.shape.skew) {
            true => self.rng.pick(&self.hot).cloned().unwrap_or_default(),
            false => owner(self.rng.below(OWNERS_PER_NODE * self.shape.nodes as u64)),
        }
    }

    /// A client begins anew, at any node.
    fn next(&mut self, client: usize) {
        let owner = self.some_owner();
        if self.rng.below(POP_OF) == 0 {
            let action = Action::List { after: None, limit: 1000 };
            return self.ask(client, owner.clone(), action, Doing::List { owner });
        }
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.rng.u64().to_be_bytes());
        let body = Bytes::from_static(&[7; LETTER_BYTES]).into();
        self.ask(client, owner, Action::Put { id: Id(id), body }, Doing::Put);
    }

    fn ask(&mut self, client: usize, owner: Bytes, action: Action, doing: Doing) {
        self.count += 1;
        let (id, at) = (AskId(self.count), self.rng.below(self.hosts.len() as u64) as usize);
        self.asks.insert(id, (client, doing));
        let op = Op { namespace: "mail".into(), owner, action, priority: Priority::NORMAL };
        self.arrives(Span::micros(NETWORK_US), at, Input::Ask { id, budget: BUDGET, op });
    }

    fn answered(&mut self, id: AskId, answer: Outcome<Reply>) {
        let Some((client, doing)) = self.asks.remove(&id) else { return };
        let counts = u64::from(self.counts);
        match (doing, answer) {
            (Doing::Put, Outcome::Done(Reply::Stored { .. })) => self.letters += counts,
            (Doing::List { owner }, Outcome::Done(Reply::List(list))) => {
                let all: Vec<Id> = list.objects.iter().map(|listed| listed.id).collect();
                return self.go_on(client, Doing::Read { owner, left: all.clone(), all });
            }
            (doing @ Doing::Read { .. }, Outcome::Done(Reply::Object { .. })) => {
                self.read += counts;
                return self.go_on(client, doing);
            }
            // Somebody else was there, too.
            (doing @ Doing::Read { .. }, Outcome::Done(Reply::Gone))
            | (doing @ Doing::Delete { .. }, Outcome::Done(Reply::Deleted { .. })) => {
                return self.go_on(client, doing);
            }
            _ => self.failed += counts,
        }
        self.next(client);
    }

    fn go_on(&mut self, client: usize, doing: Doing) {
        match doing {
            Doing::Read { owner, mut left, all } => match left.pop() {
                Some(id) => {
                    self.ask(client, owner.clone(), Action::Get { id, at: 0 }, Doing::Read { owner, left, all });
                }
                None => self.go_on(client, Doing::Delete { owner, left: all }),
            },
            Doing::Delete { owner, mut left } => match left.pop() {
                Some(id) => self.ask(client, owner.clone(), Action::Delete { id }, Doing::Delete { owner, left }),
                None => self.next(client),
            },
            Doing::Put | Doing::List { .. } => self.next(client),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_taken_read_and_deleted_and_more_nodes_do_more() {
        let of = |nodes| draw_for(1, Shape { nodes, ..Shape::default() }, Span::millis(200), Span::millis(300));
        let (two, again, four) = (of(2), of(2), of(4));
        assert!(two.failed + four.failed == 0 && two.read_per_second > 0.0, "{two:?} {four:?}");
        assert!(two.disk > 0.5 && two.processor > 0.0 && two.sent > 0.0, "{two:?}");
        assert!(four.letters_per_second > 1.2 * two.letters_per_second, "{two:?} {four:?}");
        assert_eq!(format!("{two:?}"), format!("{again:?}"), "the same seed gives the same");
    }
}
