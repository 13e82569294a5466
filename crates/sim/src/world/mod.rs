//! The world: an event queue in virtual time that carries out effects and delivers events, all drawn from one seed.
//!
//! Each part of what a host does has its file: `net` links and frames, `disk` the log, `children` processes, `clock` the
//! two clocks of a machine. This file owns the nodes: their lives, stops and starts, and the loop. Whoever drives the
//! world takes what [`World::step`] reports ([`Happened`]) and acts through the other methods; faults are such acts.

mod children;
mod clock;
mod disk;
mod liar;
mod net;
mod queue;
mod saved;
mod trace;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use base::{
    AskId, Boot, Effect, Event, Exit, Frame, GroupId, LinkEnd, Machine, NodeId, Note, Now, PackSaid, PackWant, ProcId,
    Rng, Span, Time,
};
use bytes::Bytes;

pub use children::{Child, ChildState, Manners};
pub use clock::{Clock, WALL_EPOCH_MS};
pub use disk::{Disk, Image};
pub use liar::Overheard;
pub use net::{Counts, Weather};
pub use trace::Trace;

use disk::{Done, Safe, Write};
use liar::Liar;
use net::Net;
use queue::Queue;

/// Makes the machine of a node, once per boot.
pub trait Factory {
    type Machine: Machine;
    fn birth(&mut self, life: &Life) -> Birth<Self::Machine>;
}

/// One life of a node, as its host would know it at start.
#[derive(Clone, Debug)]
pub struct Life {
    /// Which machine of the world, from 0.
    pub index: usize,
    pub id: NodeId,
    pub boot: Boot,
    /// Where it listens for peers.
    pub peer: SocketAddr,
    /// Entropy for its generators.
    pub seed: u64,
    pub now: Now,
}

/// A machine and what its host tells peers about it.
pub struct Birth<M> {
    pub machine: M,
    pub card: Bytes,
}

/// What a driver of the world hears.
pub enum Happened<M: Machine> {
    Answered {
        node: usize,
        id: AskId,
        answer: M::Answer,
    },
    Published {
        node: usize,
        view: M::View,
    },
    Noted {
        node: usize,
        note: Note,
    },
    /// A process began.
    Started {
        node: usize,
    },
    /// A process ended because its disk is not to be trusted. It does not start again as who it was.
    Distrusted {
        node: usize,
    },
    /// A process ended because its program knows less than the cluster has agreed on.
    Outdated {
        node: usize,
    },
    /// A process is gone, and all it had in memory.
    Died {
        node: usize,
    },
    /// A stopped process goes on; for so long its machine's monotonic clock stood still.
    Resumed {
        node: usize,
        stood: Span,
    },
    /// A moment asked for by [`World::alarm`].
    Alarm(u64),
    /// A machine asked to be woken so often within a second that a real core would be busy with nothing else.
    Spins {
        node: usize,
        wakes: u32,
    },
}

type AnswerOf<F> = <<F as Factory>::Machine as Machine>::Answer;
type ViewOf<F> = <<F as Factory>::Machine as Machine>::View;
type AskOf<F> = <<F as Factory>::Machine as Machine>::Ask;

/// More wakes than this in one second of one node is a busy loop.
const WAKES_PER_SECOND_MAX: u32 = 20_000;

pub struct World<F: Factory> {
    now: Time,
    queue: Queue<Due<AskOf<F>>>,
    rng: Rng,
    factory: F,
    places: Vec<Place<F::Machine>>,
    by_id: BTreeMap<NodeId, usize>,
    by_addr: BTreeMap<SocketAddr, usize>,
    net: Net,
    liar: Option<Liar>,
    /// How children that are started from now on behave.
    pub manners: Manners,
    pub trace: Trace,
    happened: VecDeque<Happened<F::Machine>>,
    /// Nodes that said so within the event that is being handled.
    distrusts: VecDeque<usize>,
    /// Processes with too old a program.
    outdated: VecDeque<usize>,
    asks: u64,
    lives: u64,
    pids: u32,
    effects: Vec<Effect<AnswerOf<F>, ViewOf<F>>>,
}

/// A machine of the world: its disk and clocks stay, processes come and go.
struct Place<M: Machine> {
    id: NodeId,
    boot: Boot,
    peer: SocketAddr,
    clock: Clock,
    disk: Disk,
    powered: bool,
    /// Its disk is not to be trusted: it does not start as who it was.
    distrusted: bool,
    /// It has been without power, and its node has not made up for what that may have cost.
    rebooted: bool,
    /// It stands still since then, with its monotonic clock.
    stands: Option<Time>,
    running: Option<Running<M>>,
}

/// A process of the shipped program.
struct Running<M: Machine> {
    machine: M,
    life: u64,
    card: Bytes,
    /// Wakes that are in the queue.
    wakes_due: BTreeSet<Time>,
    /// Wakes since its last vitals.
    wakes: u32,
    children: BTreeMap<ProcId, Child>,
    /// The machine was told that the disk is full.
    told_full: bool,
    /// Stopped by SIGSTOP: what came due for it meanwhile, in order.
    stopped: Option<Vec<Due<M::Ask>>>,
}

enum Due<Ask> {
    /// For the machine of `node`, if it still lives that life.
    Deliver {
        node: usize,
        life: u64,
        event: Event<Ask>,
    },
    Arrive {
        to: usize,
        from: usize,
        link: u64,
        frame: Frame,
    },
    DialEnds {
        node: usize,
        life: u64,
        addr: SocketAddr,
        peer: Option<NodeId>,
        began: Time,
    },
    LinkEnds {
        node: usize,
        peer: usize,
        link: u64,
        why: LinkEnd,
    },
    /// Frames could not get through since that moment: the kernel gives the connection up.
    LinkStuck {
        node: usize,
        peer: usize,
        link: u64,
        since: Time,
    },
    Wake {
        node: usize,
        life: u64,
    },
    Vitals {
        node: usize,
        life: u64,
    },
    DiskDone {
        node: usize,
        life: u64,
        done: Done,
    },
    ChildEnds {
        node: usize,
        life: u64,
        proc: ProcId,
        exit: Exit,
    },
    Alarm(u64),
}

impl<Ask> Due<Ask> {
    /// The process it is for; no life means whichever runs there.
    fn target(&self) -> Option<(usize, Option<u64>)> {
        match *self {
            Due::Deliver { node, life, .. }
            | Due::DialEnds { node, life, .. }
            | Due::Wake { node, life }
            | Due::Vitals { node, life }
            | Due::DiskDone { node, life, .. } => Some((node, Some(life))),
            Due::LinkEnds { node, .. } => Some((node, None)),
            // These are the kernel's and the children's own: a stopped process does not stop them.
            Due::Arrive { .. } | Due::LinkStuck { .. } | Due::ChildEnds { .. } | Due::Alarm(_) => None,
        }
    }
}

impl<F: Factory> World<F> {
    /// A world of so many machines, none started. Machine `n` listens on `10.0.0.(n+1):7071`.
    pub fn new(seed: u64, machines: usize, factory: F) -> Self {
        assert!((1..=200).contains(&machines), "{machines} machines do not fit into one network of the world");
        let mut rng = Rng::new(seed);
        let mut places = Vec::new();
        for n in 0..machines {
            places.push(Place {
                id: fresh_id(&mut rng),
                boot: Boot(0),
                peer: SocketAddr::from(([10, 0, 0, n as u8 + 1], 7071)),
                clock: Clock::new(&mut rng),
                disk: Disk::default(),
                powered: true,
                distrusted: false,
                rebooted: true,
                stands: None,
                running: None,
            });
        }
        Self {
            now: Time::ZERO,
            queue: Queue::new(),
            factory,
            by_id: places.iter().enumerate().map(|(n, place)| (place.id, n)).collect(),
            by_addr: places.iter().enumerate().map(|(n, place)| (place.peer, n)).collect(),
            net: Net::new(machines),
            liar: None,
            places,
            rng,
            manners: Manners::default(),
            trace: Trace::default(),
            happened: VecDeque::new(),
            distrusts: VecDeque::new(),
            outdated: VecDeque::new(),
            asks: 0,
            lives: 0,
            pids: 1000,
            effects: Vec::new(),
        }
    }

    /// Time of the world. No node ever sees it.
    pub fn now(&self) -> Time {
        self.now
    }

    pub fn factory_mut(&mut self) -> &mut F {
        &mut self.factory
    }

    pub fn machines(&self) -> usize {
        self.places.len()
    }

    pub fn id(&self, node: usize) -> NodeId {
        self.places[node].id
    }

    pub fn index(&self, id: NodeId) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    pub fn peer_addr(&self, node: usize) -> SocketAddr {
        self.places[node].peer
    }

    pub fn is_running(&self, node: usize) -> bool {
        self.places[node].running.is_some()
    }

    /// Stopped by [`World::hang`] and not resumed.
    pub fn is_hung(&self, node: usize) -> bool {
        self.places[node].running.as_ref().is_some_and(|running| running.stopped.is_some())
    }

    pub fn boot(&self, node: usize) -> Boot {
        self.places[node].boot
    }

    /// What its wall clock shows, milliseconds since 1970.
    pub fn wall_ms(&self, node: usize) -> u64 {
        self.places[node].clock.now(self.now).wall_ms
    }

    pub fn machine(&self, node: usize) -> Option<&F::Machine> {
        self.places[node].running.as_ref().map(|running| &running.machine)
    }

    pub fn disk(&self, node: usize) -> &Disk {
        &self.places[node].disk
    }

    /// Asks for [`Happened::Alarm`] with this token.
    pub fn alarm(&mut self, after: Span, token: u64) {
        self.queue.push(self.now + after, Due::Alarm(token));
    }

    /// Runs until something happened that the driver must hear, or until the given moment (then `None`).
    pub fn next(&mut self, until: Time) -> Option<Happened<F::Machine>> {
        loop {
            if let Some(happened) = self.happened.pop_front() {
                return Some(happened);
            }
            match self.queue.next_at() {
                Some(at) if at <= until => {
                    let (at, due) = self.queue.pop().expect("its head was just seen");
                    assert!(at >= self.now, "time went back from {:?} to {at:?}", self.now);
                    self.now = at;
                    self.take(due);
                }
                _ => {
                    self.now = until;
                    return None;
                }
            }
        }
    }

    fn take(&mut self, due: Due<AskOf<F>>) {
        if let Some((node, wanted)) = due.target() {
            let Some(running) = &mut self.places[node].running else { return };
            if wanted.is_some_and(|life| life != running.life) {
                return;
            }
            if let Some(stopped) = &mut running.stopped {
                stopped.push(due);
                return;
            }
        }
        match due {
            Due::Deliver { node, event, .. } => self.deliver(node, event),
            Due::Arrive { to, from, link, frame } => self.arrive(to, from, link, frame),
            Due::DialEnds { node, addr, peer, began, .. } => self.dial_ends(node, addr, peer, began),
            Due::LinkEnds { node, peer, link, why } => self.link_ends(node, peer, link, why),
            Due::LinkStuck { node, peer, link, since } => self.link_stuck(node, peer, link, since),
            Due::Wake { node, .. } => self.wake(node),
            Due::Vitals { node, life } => self.vitals(node, life),
            Due::DiskDone { node, done, .. } => self.disk_done(node, done),
            Due::ChildEnds { node, life, proc, exit } => self.child_ends(node, life, proc, exit),
            Due::Alarm(token) => self.happened.push_back(Happened::Alarm(token)),
        }
    }

    /// Hands an event to the machine at once and carries out what it wants.
    fn deliver(&mut self, node: usize, event: Event<AskOf<F>>) {
        let place = &mut self.places[node];
        let Some(running) = &mut place.running else { return };
        self.trace.event(self.now, node, &event);
        let mut effects = std::mem::take(&mut self.effects);
        running.machine.handle(place.clock.now(self.now), event, &mut effects);
        for effect in effects.drain(..) {
            self.carry_out(node, effect);
        }
        self.effects = effects;
        self.plan_wake(node);
        // The process ends with it, as the host's does.
        while let Some(node) = self.distrusts.pop_front() {
            if self.is_running(node) {
                self.kill(node);
                self.places[node].distrusted = true;
                self.happened.push_back(Happened::Distrusted { node });
            }
        }
        while let Some(node) = self.outdated.pop_front() {
            if self.is_running(node) {
                self.kill(node);
                self.happened.push_back(Happened::Outdated { node });
            }
        }
    }

    /// Has an event reach the machine after a while, if this process still lives then.
    fn deliver_after(&mut self, node: usize, after: Span, event: Event<AskOf<F>>) {
        if let Some(running) = &self.places[node].running {
            self.queue.push(self.now + after, Due::Deliver { node, life: running.life, event });
        }
    }

    fn carry_out(&mut self, node: usize, effect: Effect<AnswerOf<F>, ViewOf<F>>) {
        match effect {
            Effect::Dial { addr, peer } => self.dial(node, addr, peer),
            Effect::Hangup { peer } => self.hangup(node, peer),
            Effect::Send { to, frame } => self.send(node, to, frame),
            Effect::Answer { id, answer } => self.happened.push_back(Happened::Answered { node, id, answer }),
            Effect::Append { group, records, ticket, force } => {
                let records = records.into_iter().map(Bytes::from).collect();
                self.write(node, Write::Append(group, records, ticket, force))
            }
            Effect::Save { group, parts, ticket } => self.write(node, Write::Save(group, parts, ticket)),
            Effect::Forget { group } => self.write(node, Write::Forget(group)),
            Effect::Pack { group, want } => self.pack(node, group, want),
            // Nobody does such work here: whoever wants it goes on without.
            Effect::Work { .. } => (),
            Effect::Recovered => self.places[node].rebooted = false,
            Effect::Outdated { why } => {
                self.trace.remark(self.now, format!("node {node}: {why}"));
                self.outdated.push_back(node);
            }
            Effect::Distrust { why } => {
                self.trace.remark(self.now, format!("node {node} does not trust its disk: {why}"));
                self.distrusts.push_back(node);
            }
            Effect::Spawn { proc, spec } => self.spawn(node, proc, spec),
            Effect::Signal { proc, signal } => self.signal(node, proc, signal),
            Effect::Probe { proc, probe } => self.probe(node, proc, &probe),
            Effect::Publish(view) => self.happened.push_back(Happened::Published { node, view }),
            Effect::Note(note) => {
                self.trace.remark(self.now, format!("node {node} notes: {:?} {}", note.level, note.text));
                self.happened.push_back(Happened::Noted { node, note });
            }
        }
    }

    fn pack(&mut self, node: usize, group: GroupId, want: PackWant) {
        match want {
            PackWant::Write { pack, parts, .. } => self.write(node, Write::Pack(group, pack, parts)),
            PackWant::Read { number, pack, from, len } => {
                let bytes = self.places[node].disk.read(group, pack, from, len);
                let said = PackSaid::Read { number, bytes };
                self.deliver_after(node, Span::micros(200), Event::Pack { group, said });
            }
            PackWant::Drop { pack } => self.places[node].disk.drop_pack(group, pack),
        }
    }

    fn write(&mut self, node: usize, write: Write) {
        let place = &mut self.places[node];
        let life = place.running.as_ref().expect("only a running machine writes").life;
        if let Some((at, done)) = place.disk.submit(self.now, write, &mut self.rng) {
            self.queue.push(at, Due::DiskDone { node, life, done });
        }
        if place.disk.is_full()
            && let Some(running) = place.running.as_mut().filter(|running| !running.told_full)
        {
            running.told_full = true;
            self.deliver_after(node, Span::millis(1), Event::Disk { trouble: Some("no room".into()) });
        }
    }

    fn disk_done(&mut self, node: usize, done: Done) {
        let place = &mut self.places[node];
        let (safe, next) = place.disk.complete(self.now, done, &mut self.rng);
        if let (Some((at, done)), Some(running)) = (next, &place.running) {
            self.queue.push(at, Due::DiskDone { node, life: running.life, done });
        }
        for safe in safe {
            self.deliver(
                node,
                match safe {
                    Safe::Appended(group, ticket) => Event::Appended { group, ticket },
                    Safe::Saved(group, ticket) => Event::Saved { group, ticket },
                    Safe::Pack(group, said) => Event::Pack { group, said },
                },
            );
        }
    }

    fn plan_wake(&mut self, node: usize) {
        let place = &mut self.places[node];
        let Some(running) = &mut place.running else { return };
        let Some(wanted) = running.machine.wake_at() else { return };
        let at = place.clock.when(wanted).max(self.now + Span(1));
        let earliest = running.wakes_due.first().copied().unwrap_or(Time::NEVER);
        if at < earliest {
            running.wakes_due.insert(at);
            self.queue.push(at, Due::Wake { node, life: running.life });
        }
    }

    fn wake(&mut self, node: usize) {
        let place = &mut self.places[node];
        let running = place.running.as_mut().expect("a wake finds the process it is for");
        // After a stop it may be late.
        while running.wakes_due.first().is_some_and(|&at| at <= self.now) {
            running.wakes_due.pop_first();
        }
        let mono = place.clock.now(self.now).mono;
        let is_due = running.machine.wake_at().is_some_and(|at| at <= mono);
        if !is_due {
            return self.plan_wake(node);
        }
        running.wakes += 1;
        if running.wakes == WAKES_PER_SECOND_MAX {
            self.happened.push_back(Happened::Spins { node, wakes: WAKES_PER_SECOND_MAX });
        }
        self.deliver(node, Event::Wake);
    }

    fn vitals(&mut self, node: usize, life: u64) {
        if let Some(running) = &mut self.places[node].running {
            running.wakes = 0;
        }
        let cpu_millis = self.rng.between(5, 400) as u32;
        let resident_bytes = self.rng.between(20 << 20, 40 << 20);
        self.queue.push(self.now + Span::secs(1), Due::Vitals { node, life });
        let (gauges, procs) = (BTreeMap::new(), BTreeMap::new());
        self.deliver(node, Event::Vitals { cpu_millis, resident_bytes, gauges, procs });
    }

    /// Puts a question of a front door to a node. `None` if no process runs there. A stopped one takes it later.
    pub fn ask(&mut self, node: usize, budget: Span, ask: AskOf<F>) -> Option<AskId> {
        self.places[node].running.as_ref()?;
        self.asks += 1;
        let id = AskId(self.asks);
        self.deliver_after(node, Span::ZERO, Event::Ask { id, budget, ask });
        Some(id)
    }

    /// Powers the machine on if need be and starts the program on what its disk has.
    pub fn start(&mut self, node: usize) {
        let place = &mut self.places[node];
        assert!(place.running.is_none(), "machine {node} runs already");
        place.powered = true;
        if place.distrusted {
            return self.happened.push_back(Happened::Distrusted { node });
        }
        place.boot = Boot(place.boot.0 + 1);
        place.clock.boot(self.now, &mut self.rng);
        self.lives += 1;
        let life = Life {
            index: node,
            id: place.id,
            boot: place.boot,
            peer: place.peer,
            seed: self.rng.u64(),
            now: place.clock.now(self.now),
        };
        self.trace.remark(self.now, format!("node {node} ({}) starts, {}", life.id, life.boot));
        let Birth { machine, card } = self.factory.birth(&life);
        place.running = Some(Running {
            machine,
            life: self.lives,
            card,
            wakes_due: BTreeSet::new(),
            wakes: 0,
            children: BTreeMap::new(),
            told_full: false,
            stopped: None,
        });
        place.disk.open();
        let (log, there) = (place.disk.kept(), place.disk.packs());
        let rebooted = place.rebooted;
        self.happened.push_back(Happened::Started { node });
        self.queue.push(self.now + Span::secs(1), Due::Vitals { node, life: self.lives });
        self.deliver(node, Event::Start { log, remarks: Vec::new(), rebooted });
        self.deliver(node, Event::Packs { there });
    }

    /// SIGKILL: the process and its children are gone at once, its kernel closes its connections.
    pub fn kill(&mut self, node: usize) {
        if self.places[node].running.take().is_none() {
            return;
        }
        self.places[node].stands = None;
        let lost = self.places[node].disk.crash(self.now, &mut self.rng);
        self.trace.remark(self.now, format!("node {node} is killed, {lost} unsynced records lost"));
        self.happened.push_back(Happened::Died { node });
        self.close_all(node);
        self.unlink_liar(node);
    }

    /// The machine loses power: nobody closes its connections, and nobody answers for it.
    pub fn power_off(&mut self, node: usize) {
        self.places[node].powered = false;
        self.kill(node);
        let place = &mut self.places[node];
        place.rebooted = true;
        let (lost, lied) = place.disk.power_off(&mut self.rng);
        if lost > 0 {
            self.trace.remark(self.now, format!("node {node} loses {lost} records that were not forced"));
        }
        if lied {
            self.trace.remark(self.now, format!("node {node} loses what its disk lied about"));
        }
    }

    /// SIGSTOP: nothing is handled until [`World::resume`]; children run on.
    pub fn hang(&mut self, node: usize) {
        if let Some(running) = &mut self.places[node].running {
            running.stopped.get_or_insert_default();
            self.trace.remark(self.now, format!("node {node} hangs"));
        }
    }

    /// As a hang, and its monotonic clock stands still, as that of a virtual machine does which is paused.
    pub fn suspend(&mut self, node: usize) {
        if self.is_running(node) && !self.is_hung(node) {
            self.places[node].stands = Some(self.now);
            self.hang(node);
        }
    }

    /// SIGCONT: all that came due meanwhile is handled now, late and in order.
    pub fn resume(&mut self, node: usize) {
        let place = &mut self.places[node];
        let Some(running) = &mut place.running else { return };
        let Some(stopped) = running.stopped.take() else { return };
        let stood = place.stands.take().map_or(Span::ZERO, |since| self.now.since(since));
        place.clock.stood(stood);
        self.trace.remark(self.now, format!("node {node} goes on, {} events late", stopped.len()));
        for due in stopped {
            self.queue.push(self.now, due);
        }
        self.happened.push_back(Happened::Resumed { node, stood });
    }

    /// Swaps the disk of a machine that does not run for an empty one. It is a new node from now on (state.md, rule 8).
    pub fn empty_disk(&mut self, node: usize) {
        assert!(self.places[node].running.is_none(), "the disk of a running machine cannot be swapped");
        let id = fresh_id(&mut self.rng);
        let place = &mut self.places[node];
        self.by_id.remove(&place.id);
        self.by_id.insert(id, node);
        self.trace.remark(self.now, format!("node {node} has an empty disk: {} is {id} now", place.id));
        place.id = id;
        place.boot = Boot(0);
        place.disk.empty();
    }

    /// Swaps the disk for an empty one and takes the name that the cluster gave it.
    pub fn enter_anew(&mut self, node: usize, id: NodeId) {
        self.places[node].distrusted = false;
        self.empty_disk(node);
        let place = &mut self.places[node];
        self.by_id.remove(&place.id);
        self.by_id.insert(id, node);
        self.trace.remark(self.now, format!("node {node} enters anew: {} is {id} now", place.id));
        place.id = id;
    }

    /// Something on the disk of a machine that does not run is not what was written: its host sees that when it starts.
    pub fn damage_disk(&mut self, node: usize) {
        assert!(self.places[node].running.is_none(), "a running machine has read its disk");
        self.trace.remark(self.now, format!("a byte on the disk of node {node} is wrong"));
        self.places[node].distrusted = true;
    }

    /// Its machine has been without power, and the node does not hold again yet what that may have cost.
    pub fn is_rebooted(&self, node: usize) -> bool {
        self.places[node].rebooted
    }

    pub fn is_distrusted(&self, node: usize) -> bool {
        self.places[node].distrusted
    }

    /// A copy of the disk as it is now, for [`World::put_back`].
    pub fn image(&self, node: usize) -> (Boot, Image) {
        (self.places[node].boot, self.places[node].disk.image())
    }

    /// A machine that does not run gets an older disk, on which an older boot stands.
    pub fn put_back(&mut self, node: usize, (boot, image): (Boot, Image)) {
        assert!(self.places[node].running.is_none(), "the disk of a running machine cannot be swapped");
        self.trace.remark(self.now, format!("node {node} has its disk of {boot} again"));
        self.places[node].boot = boot;
        self.places[node].disk.put_back(image);
    }

    /// Its disk says that it has forced what it has not, or has forced all by now.
    pub fn lying_disk(&mut self, node: usize, lies: bool) {
        self.places[node].disk.lie(lies);
    }

    /// Its disk takes nothing, or takes all again.
    pub fn fill_disk(&mut self, node: usize, full: bool) {
        let place = &mut self.places[node];
        if place.disk.is_full() == full {
            return;
        }
        self.trace.remark(self.now, format!("disk of node {node} is full: {full}"));
        let due = place.disk.fill(self.now, full, &mut self.rng);
        let Some(running) = &mut place.running else { return };
        for (at, done) in due {
            self.queue.push(at, Due::DiskDone { node, life: running.life, done });
        }
        if std::mem::take(&mut running.told_full) {
            self.deliver_after(node, Span::millis(1), Event::Disk { trouble: None });
        }
    }

    /// Its writes take up to so much longer; zero for a healthy disk.
    pub fn slow_disk(&mut self, node: usize, by: Span) {
        let place = &mut self.places[node];
        let due = place.disk.slow_down(self.now, by, &mut self.rng);
        let Some(running) = &place.running else { return };
        for (at, done) in due {
            self.queue.push(at, Due::DiskDone { node, life: running.life, done });
        }
    }

    /// Its wall clock jumps; `None` puts it right again.
    pub fn jump_clock(&mut self, node: usize, by_ms: Option<i64>) {
        self.trace.remark(self.now, format!("wall clock of node {node} jumps: {by_ms:?} ms"));
        match by_ms {
            Some(by_ms) => self.places[node].clock.jump(by_ms),
            None => self.places[node].clock.correct(),
        }
    }
}

/// As a host draws them: 48 bits, never zero.
fn fresh_id(rng: &mut Rng) -> NodeId {
    NodeId((rng.u64() >> 16).max(1))
}
