//! A small world for roots: virtual time, a network that loses, doubles, delays and cuts, disks that lose what was not yet
//! forced, membership that hears of deaths after a while. One seed gives one run. It watches all the time that no two nodes
//! ever show different declarations of one version.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Boot, Frame, NodeId, Now, Outcome, Rng, Span, Ticket, Time};
use bytes::Bytes;

use super::super::{Change, Conflict, Declared, Input, Output, Root};

pub struct Net {
    pub now: Time,
    pub rng: Rng,
    pub nodes: BTreeMap<u64, Node>,
    pub faults: Faults,
    /// One-way cuts, (from, to).
    pub cuts: BTreeSet<(u64, u64)>,
    /// Ends of proposals, by the number that `propose` gave.
    pub ends: BTreeMap<u64, Outcome<Result<u64, Conflict>>>,
    /// What the promise that was broken first says.
    pub broken: Option<String>,
    /// Plants the bug in every node that starts.
    pub hasty: bool,
    /// A node whose disk was put back to an older state.
    pub older: Option<u64>,
    /// Nodes that said that their disk is not to be trusted.
    pub distrusted: BTreeSet<u64>,
    /// A node whose disk takes so long for each write.
    pub slow: Option<(u64, Span)>,
    seen: BTreeMap<u64, Declared>,
    agenda: BTreeMap<(Time, u64), Happening>,
    count: u64,
}

pub struct Faults {
    pub loss: f64,
    pub double: f64,
    pub delay_max: Span,
    pub disk_max: Span,
    /// How long until a death is known.
    pub death: Span,
}

#[derive(Default)]
pub struct Node {
    pub root: Option<Root>,
    pub boot: u64,
    pub founder: bool,
    pub disk: Vec<Bytes>,
    pub rewrites: u64,
    pub notes: Vec<base::Note>,
    forcing: VecDeque<Forcing>,
    /// How many of `forcing` the disk is at.
    under_way: usize,
}

struct Forcing {
    rewrite: bool,
    records: Vec<Bytes>,
    ticket: Ticket,
}

enum Happening {
    Arrives {
        from: u64,
        to: u64,
        frame: Frame,
    },
    Forced {
        node: u64,
        boot: u64,
    },
    Birth {
        at: u64,
        peer: u64,
    },
    /// Unless it was born again meanwhile.
    Death {
        at: u64,
        peer: u64,
        boot: u64,
    },
}

impl Net {
    /// Founds a cluster at node 1 and starts the others, all without faults.
    pub fn new(seed: u64, nodes: u64) -> Self {
        Self::founded(seed, nodes, false)
    }

    /// As `new`, with or without the planted bug.
    pub fn founded(seed: u64, nodes: u64, hasty: bool) -> Self {
        let mut net = Self {
            now: Time(1),
            rng: Rng::new(seed),
            nodes: BTreeMap::new(),
            faults: Faults {
                loss: 0.0,
                double: 0.0,
                delay_max: Span::millis(2),
                disk_max: Span::millis(4),
                death: Span::millis(400),
            },
            cuts: BTreeSet::new(),
            ends: BTreeMap::new(),
            broken: None,
            hasty,
            older: None,
            distrusted: BTreeSet::new(),
            slow: None,
            seen: BTreeMap::new(),
            agenda: BTreeMap::new(),
            count: 0,
        };
        for id in 1..=nodes {
            net.nodes.insert(id, Node { founder: id == 1, ..Node::default() });
            net.start(id);
        }
        net
    }

    pub fn root(&self, id: u64) -> &Root {
        self.nodes[&id].root.as_ref().expect("it is up")
    }

    pub fn up(&self) -> Vec<u64> {
        self.nodes.iter().filter(|(_, node)| node.root.is_some()).map(|(id, _)| *id).collect()
    }

    pub fn add(&mut self, id: u64) {
        self.nodes.insert(id, Node::default());
        self.start(id);
    }

    /// Starts a node with what its disk has.
    pub fn start(&mut self, id: u64) {
        let others = self.up();
        let node = self.nodes.get_mut(&id).unwrap();
        assert!(node.root.is_none(), "node {id} is up");
        node.boot += 1;
        node.under_way = 0;
        let mut root = Root::new(NodeId(id), Boot(node.boot), self.rng.fork());
        let found = node.founder.then(|| put("found", "1"));
        let mut out = Vec::new();
        root.start(clock(self.now), node.disk.clone(), found, &mut out).expect("the disk holds what a root wrote");
        if self.hasty {
            root.plant_haste();
        }
        node.root = Some(root);
        self.carry_out(id, out);
        for other in others {
            self.later(Span::millis(20), Happening::Birth { at: other, peer: id });
            self.later(Span::millis(20), Happening::Birth { at: id, peer: other });
        }
    }

    /// SIGKILL with a power cut: of what was not forced, any prefix may be on disk, or nothing.
    pub fn kill(&mut self, id: u64) {
        let node = self.nodes.get_mut(&id).unwrap();
        node.root = None;
        let whole = self.rng.below(node.forcing.len() as u64 + 1);
        for n in 0..=whole {
            let Some(forcing) = node.forcing.pop_front() else { break };
            let part =
                if n < whole { forcing.records.len() as u64 } else { self.rng.below(forcing.records.len() as u64) };
            if forcing.rewrite && n < whole {
                node.disk = forcing.records;
            } else if !forcing.rewrite {
                node.disk.extend(forcing.records.into_iter().take(part as usize));
            }
        }
        node.forcing.clear();
        let boot = node.boot;
        for at in self.up() {
            self.later(self.faults.death, Happening::Death { at, peer: id, boot });
        }
    }

    /// Cuts both ways between a node and all others; nobody is told.
    pub fn isolate(&mut self, id: u64) {
        for other in self.nodes.keys().copied().filter(|other| *other != id) {
            self.cuts.extend([(id, other), (other, id)]);
        }
    }

    pub fn propose(&mut self, at: u64, budget: Span, change: Change) -> u64 {
        self.count += 1;
        let id = self.count;
        self.give(at, Input::Propose { id, budget, change });
        id
    }

    /// Proposes and waits for the end.
    pub fn apply(&mut self, at: u64, budget: Span, change: Change) -> Outcome<Result<u64, Conflict>> {
        let id = self.propose(at, budget, change);
        self.until(budget + Span::millis(1), |net| net.ends.contains_key(&id));
        self.ends[&id].clone()
    }

    pub fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.next_at() <= end {
            self.step();
        }
        self.now = end;
    }

    /// Runs until it is so and says how long that took; panics when it is not so in time.
    pub fn until(&mut self, span: Span, is_so: impl Fn(&Net) -> bool) -> Span {
        let (begin, end) = (self.now, self.now + span);
        while !is_so(self) {
            assert!(self.next_at() <= end, "not so within {span:?}: {}", self.picture());
            self.step();
        }
        self.now.since(begin)
    }

    /// The one live leader that all live nodes know, if it is so.
    pub fn leader(&self) -> Option<u64> {
        let mut leaders = self.up().into_iter().map(|id| self.root(id).leader());
        let first = leaders.next()??;
        let leads = self.nodes.get(&first.0)?.root.as_ref()?.is_leader();
        (leaders.all(|l| l == Some(first)) && leads).then_some(first.0)
    }

    pub fn all_show(&self, version: u64) -> bool {
        self.up().iter().all(|id| self.root(*id).declared().version >= version)
    }

    pub fn picture(&self) -> String {
        let node = |(id, node): (&u64, &Node)| match &node.root {
            Some(root) => {
                format!(
                    "{id}: leader {:?} voters {:?} version {}",
                    root.leader(),
                    root.voters(),
                    root.declared().version
                )
            }
            None => format!("{id}: down"),
        };
        self.nodes.iter().map(node).collect::<Vec<_>>().join("; ")
    }

    fn next_at(&self) -> Time {
        let wakes = self.nodes.values().filter_map(|node| node.root.as_ref()?.wake_at());
        let agenda = self.agenda.first_key_value().map(|((at, _), _)| *at);
        wakes.chain(agenda).min().unwrap_or(Time::NEVER).max(self.now)
    }

    fn step(&mut self) {
        self.now = self.next_at();
        let due =
            self.nodes.iter().find(|(_, n)| n.root.as_ref().and_then(Root::wake_at).is_some_and(|at| at <= self.now));
        if let Some((id, _)) = due {
            let id = *id;
            self.give(id, Input::Wake);
            let next = self.root(id).wake_at().unwrap();
            assert!(next > self.now, "node {id} was woken and wants to be woken at once");
            return;
        }
        let (_, happening) = self.agenda.pop_first().expect("something is due");
        match happening {
            Happening::Arrives { from, to, frame } => {
                let from = NodeId(from);
                self.give(to, Input::Frame { from, kind: frame.kind, head: frame.head, body: frame.body });
            }
            Happening::Forced { node: id, boot } => {
                let node = self.nodes.get_mut(&id).unwrap();
                if node.boot != boot || node.root.is_none() {
                    return;
                }
                let mut ticket = Ticket(0);
                let mut saved = Vec::new();
                for forcing in node.forcing.drain(..std::mem::take(&mut node.under_way)) {
                    ticket = forcing.ticket;
                    if forcing.rewrite {
                        node.disk = forcing.records;
                        node.rewrites += 1;
                        saved.push(forcing.ticket);
                    } else {
                        node.disk.extend(forcing.records);
                    }
                }
                self.give(id, Input::Appended { ticket });
                saved.into_iter().for_each(|ticket| self.give(id, Input::Saved { ticket }));
                self.turn_disk(id);
            }
            Happening::Birth { at, peer } => self.give(at, Input::Birth { peer: NodeId(peer) }),
            Happening::Death { at, peer, boot } => {
                if self.nodes[&peer].boot == boot {
                    self.give(at, Input::Death { peer: NodeId(peer) });
                }
            }
        }
    }

    pub fn disk_full(&mut self, id: u64, full: bool) {
        self.give(id, Input::DiskFull(full));
    }

    /// Other groups have written so much beside the root group.
    pub fn logged(&mut self, id: u64, bytes: u64) {
        self.give(id, Input::Logged(bytes));
    }

    fn give(&mut self, id: u64, input: Input) {
        let Some(root) = self.nodes.get_mut(&id).and_then(|node| node.root.as_mut()) else { return };
        let mut out = Vec::new();
        root.handle(clock(self.now), input, &mut out);
        self.carry_out(id, out);
    }

    fn carry_out(&mut self, id: u64, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Send { to, frame } => self.send(id, to.0, frame),
                Output::Append { records, ticket } => {
                    self.force(id, false, records.into_iter().map(Bytes::from).collect(), ticket)
                }
                Output::Save { parts, ticket } => self.force(id, true, parts.0.collect(), ticket),
                Output::Changed => self.watch(id),
                Output::Leads { .. } => (),
                Output::Proposed { id, outcome } => {
                    let twice = self.ends.insert(id, outcome);
                    assert!(twice.is_none(), "proposal {id} ended twice");
                }
                Output::Distrust(why) => {
                    assert!(self.hasty || self.older == Some(id), "node {id} does not trust a sound disk: {why}");
                    self.distrusted.insert(id);
                }
                Output::Bad { from, why } => {
                    let note = base::Note::error(format!("a frame of {from} {why}"));
                    self.nodes.get_mut(&id).unwrap().notes.push(note);
                }
                Output::Note(note) => self.nodes.get_mut(&id).unwrap().notes.push(note),
            }
        }
    }

    /// The promise: what one node shows as a version, every node shows as that version, for ever.
    fn watch(&mut self, id: u64) {
        let shown = self.root(id).declared().clone();
        let first = self.seen.entry(shown.version).or_insert_with(|| shown.clone());
        if *first != shown && self.broken.is_none() {
            self.broken = Some(format!("node {id} shows another version {} than was seen before", shown.version));
        }
    }

    fn send(&mut self, from: u64, to: u64, frame: Frame) {
        if self.cuts.contains(&(from, to)) || self.rng.chance(self.faults.loss) {
            return;
        }
        if self.rng.chance(self.faults.double) {
            let delay = self.delay();
            self.later(delay, Happening::Arrives { from, to, frame: frame.clone() });
        }
        let delay = self.delay();
        self.later(delay, Happening::Arrives { from, to, frame });
    }

    fn delay(&mut self) -> Span {
        Span(self.rng.between(100, self.faults.delay_max.0))
    }

    fn force(&mut self, id: u64, rewrite: bool, records: Vec<Bytes>, ticket: Ticket) {
        let node = self.nodes.get_mut(&id).unwrap();
        node.forcing.push_back(Forcing { rewrite, records, ticket });
        self.turn_disk(id);
    }

    /// An idle disk forces all that waits, at once.
    fn turn_disk(&mut self, id: u64) {
        let took = Span(self.rng.between(50, self.faults.disk_max.0));
        let took = self.slow.filter(|(slow, _)| *slow == id).map_or(took, |(_, slow)| slow);
        let node = self.nodes.get_mut(&id).unwrap();
        if node.under_way == 0 && !node.forcing.is_empty() {
            node.under_way = node.forcing.len();
            let boot = node.boot;
            self.later(took, Happening::Forced { node: id, boot });
        }
    }

    fn later(&mut self, span: Span, happening: Happening) {
        self.at(self.now + span, happening);
    }

    fn at(&mut self, at: Time, happening: Happening) {
        self.count += 1;
        self.agenda.insert((at, self.count), happening);
    }
}

pub fn clock(now: Time) -> Now {
    Now { mono: now, wall_ms: 0 }
}

pub fn put(name: &str, value: &str) -> Change {
    Change { puts: vec![("test".into(), name.into(), Bytes::copy_from_slice(value.as_bytes()))], ..Change::default() }
}
