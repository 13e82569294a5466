//! Who listens to what at this door, and what waits for each: the node is told what is listened to, and brings messages of other
//! nodes; what is published here is given to those who listen here at once. A client that does not read is closed when too much waits for
//! it, or for all: no message is left out before one that is delivered.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use base::{Outcome, glob};
use bytes::Bytes;
use channels::limits::NAME_BYTES_MAX;
use channels::{Kind, Message, Op, Reply as Got};
use node::{Answer, Ask};
use tokio::sync::oneshot;

use super::changes::{self, Wants};
use super::doors;
use super::encode::{Protocol, Reply, bulk};
use super::gate::Gate;
use super::limits::*;
use super::monitors::Monitor;
use crate::Meter;

/// Is given each message between doors.
type OfDoors = Rc<dyn Fn(&Message)>;

pub struct Subscribers {
    gate: Rc<Gate>,
    meter: Arc<Meter>,
    /// Invariant: none is empty.
    spaces: RefCell<HashMap<Arc<str>, Space>>,
    /// All listeners, by their connection's number.
    all: RefCell<BTreeMap<u64, Rc<Listener>>>,
    /// What waits for all of them.
    bytes: Cell<usize>,
    /// Names that they listen to.
    names_bytes: Cell<usize>,
    /// Somebody listened: the node brings messages.
    is_running: Cell<bool>,
    /// Who hears what other doors say.
    doors: RefCell<Option<OfDoors>>,
}

/// Listeners of one namespace: by kind and name, by number.
#[derive(Default)]
struct Space([HashMap<Bytes, BTreeMap<u64, Rc<Listener>>>; 3]);

/// One connection that listens.
pub struct Listener {
    id: u64,
    pub namespace: Arc<str>,
    names: [RefCell<BTreeSet<Bytes>>; 3],
    waiting: RefCell<VecDeque<Reply>>,
    bytes: Cell<usize>,
    closed: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// A connection's part in it: when it goes, nothing is listened to for it any more.
pub struct Hears {
    pub listener: Rc<Listener>,
    /// It listens to what changes in these databases of its namespace.
    pub events: BTreeMap<u32, Wants>,
    /// It watches the commands of its namespace.
    pub monitor: Option<Monitor>,
    all: Rc<Subscribers>,
}

impl std::fmt::Debug for Hears {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hears")
    }
}

impl Subscribers {
    pub fn new(gate: Rc<Gate>, meter: Arc<Meter>) -> Rc<Self> {
        Rc::new(Self {
            gate,
            meter,
            spaces: RefCell::default(),
            all: RefCell::default(),
            bytes: Cell::new(0),
            names_bytes: Cell::new(0),
            is_running: Cell::new(false),
            doors: RefCell::default(),
        })
    }

    /// This connection listens from now on, though to nothing so far.
    pub fn enter(self: &Rc<Self>, id: u64, namespace: &Arc<str>) -> Box<Hears> {
        let listener = Rc::new(Listener {
            id,
            namespace: Arc::clone(namespace),
            names: Default::default(),
            waiting: RefCell::default(),
            bytes: Cell::new(0),
            closed: Cell::new(false),
            waker: RefCell::default(),
        });
        self.all.borrow_mut().insert(id, Rc::clone(&listener));
        self.start();
        Box::new(Hears { listener, events: BTreeMap::new(), monitor: None, all: Rc::clone(self) })
    }

    fn start(self: &Rc<Self>) {
        if !self.is_running.replace(true) {
            tokio::task::spawn_local(Rc::clone(self).run());
        }
    }

    /// What other doors say goes there.
    pub fn hear_doors(self: &Rc<Self>, hear: OfDoors) {
        *self.doors.borrow_mut() = Some(hear);
        self.start();
    }

    /// Takes what other nodes bring, until this node stops.
    async fn run(self: Rc<Self>) {
        while let Ok(Answer::Channels(Outcome::Done(Got::Heard(messages)))) = self.ask(Op::Listen).await {
            for message in &messages {
                self.deliver(message);
            }
        }
    }

    pub fn ask(&self, op: Op) -> oneshot::Receiver<Answer> {
        self.gate.ask_aside(Ask::Channels(op))
    }

    /// Listens to these, or says why not: then to none of them. Gives the names that it did not listen to before.
    pub fn add(&self, listener: &Rc<Listener>, kind: Kind, names: &[Bytes]) -> Result<Vec<Bytes>, String> {
        let refused = |why: String| {
            self.meter.subscribers.refused();
            Err(why)
        };
        let mut had = listener.names[kind as usize].borrow_mut();
        let new: BTreeSet<&Bytes> = names.iter().filter(|name| !had.contains(*name)).collect();
        let (what, most) = match kind {
            Kind::Pattern => ("patterns", PATTERNS_MAX),
            Kind::Channel | Kind::Shard => ("channels", CHANNELS_MAX),
        };
        if had.len() + new.len() > most {
            return refused(format!("one client listens to {most} {what} at most"));
        }
        let bytes = new.iter().map(|name| cost(name)).sum::<usize>();
        if self.names_bytes.get() + bytes > NAMES_BYTES_ALL_MAX {
            return refused(format!("clients of this node listen to {NAMES_BYTES_ALL_MAX} bytes of names at most"));
        }
        let mut spaces = self.spaces.borrow_mut();
        let patterns = spaces.get(&listener.namespace).map(|space| &space.0[Kind::Pattern as usize]);
        let others = new.iter().filter(|name| !patterns.is_some_and(|patterns| patterns.contains_key(**name))).count();
        if kind == Kind::Pattern && patterns.map_or(0, HashMap::len) + others > PATTERNS_OF_SPACE_MAX {
            return refused(format!(
                "clients of a namespace listen to {PATTERNS_OF_SPACE_MAX} patterns at a node at most"
            ));
        }
        self.names_bytes.set(self.names_bytes.get() + bytes);
        let space = &mut spaces.entry(Arc::clone(&listener.namespace)).or_default().0[kind as usize];
        // Names are kept for long, and what they came in is not.
        let new: Vec<Bytes> = new.into_iter().map(|name| Bytes::copy_from_slice(name)).collect();
        for name in &new {
            had.insert(name.clone());
            space.entry(name.clone()).or_default().insert(listener.id, Rc::clone(listener));
        }
        Ok(new)
    }

    /// Does not listen to these any more, of which it did to those that are given back.
    pub fn remove(&self, listener: &Listener, kind: Kind, names: &[Bytes]) -> Vec<Bytes> {
        let mut had = listener.names[kind as usize].borrow_mut();
        let gone: Vec<Bytes> = names.iter().filter(|name| had.remove(*name)).cloned().collect();
        let mut spaces = self.spaces.borrow_mut();
        let Some(space) = spaces.get_mut(&listener.namespace) else { return gone };
        for name in &gone {
            self.names_bytes.set(self.names_bytes.get() - cost(name));
            if let Some(listeners) = space.0[kind as usize].get_mut(name) {
                listeners.remove(&listener.id);
                if listeners.is_empty() {
                    space.0[kind as usize].remove(name);
                }
            }
        }
        if space.0.iter().all(HashMap::is_empty) {
            spaces.remove(&listener.namespace);
        }
        gone
    }

    /// To all who listen here; how many times.
    pub fn deliver(&self, message: &Message) -> u64 {
        if message.namespace == doors::NAMESPACE {
            let hear = self.doors.borrow().clone();
            if let Some(hear) = hear {
                hear(message);
            }
            return 0;
        }
        let mut given = Vec::new();
        {
            let spaces = self.spaces.borrow();
            let Some(Space(named)) = spaces.get(&*message.namespace) else { return 0 };
            let Message { shard, channel, payload, .. } = message;
            let (kind, word) = if *shard { (Kind::Shard, "smessage") } else { (Kind::Channel, "message") };
            if let Some(listeners) = named[kind as usize].get(channel) {
                let told = told(&[word.as_bytes(), channel, payload]);
                given.extend(listeners.values().map(|listener| (Rc::clone(listener), told.clone())));
            }
            let patterns = named[Kind::Pattern as usize].iter().filter(|(p, _)| !shard && channels::fits(p, channel));
            for (pattern, listeners) in patterns {
                let told = told(&[b"pmessage", pattern, channel, payload]);
                given.extend(listeners.values().map(|listener| (Rc::clone(listener), told.clone())));
            }
        }
        let count = given.len() as u64;
        for (listener, told) in given {
            self.put(&listener, Reply::Told(told));
        }
        count
    }

    /// The connection of this number, if it listens.
    pub fn listener(&self, id: u64) -> Option<Rc<Listener>> {
        self.all.borrow().get(&id).cloned()
    }

    /// To this one, behind all that waits for it.
    pub fn put(&self, listener: &Listener, told: Reply) {
        if listener.closed.get() {
            return;
        }
        let bytes = held(&told);
        listener.waiting.borrow_mut().push_back(told);
        self.count(listener, listener.bytes.get() + bytes);
        listener.wake();
        if listener.bytes.get() > HEARD_BYTES_MAX {
            self.close(listener);
        }
        while self.bytes.get() > HEARD_BYTES_ALL_MAX {
            let most = self.all.borrow().values().max_by_key(|listener| listener.bytes.get()).cloned();
            let Some(most) = most.filter(|most| most.bytes.get() > 0) else { break };
            self.close(&most);
        }
    }

    fn count(&self, listener: &Listener, bytes: usize) {
        self.bytes.set(self.bytes.get() - listener.bytes.replace(bytes) + bytes);
        self.meter.subscribers.show(self.bytes.get());
    }

    fn close(&self, listener: &Listener) {
        let (namespace, bytes) = (&*listener.namespace, listener.bytes.get());
        tracing::warn!(
            client = listener.id,
            namespace,
            bytes,
            "resp: a connection is closed: it does not read its messages"
        );
        self.meter.subscribers.closed();
        listener.closed.set(true);
        listener.waiting.borrow_mut().clear();
        self.count(listener, 0);
        listener.wake();
    }
}

/// What other nodes are told of these: of a pattern that is longer than what may be told, a shorter one that fits no less.
pub fn at_nodes(kind: Kind, names: &[Bytes]) -> Vec<Bytes> {
    let told = |name: &Bytes| match kind {
        Kind::Pattern if name.len() > NAME_BYTES_MAX => glob::shortened(name, NAME_BYTES_MAX).into(),
        _ => name.clone(),
    };
    names.iter().map(told).collect()
}

/// About what a name or message that is kept costs.
fn cost(bytes: &Bytes) -> usize {
    bytes.len() + 64
}

/// The same of what waits.
fn held(told: &Reply) -> usize {
    told.bytes() + 64
}

/// A push without its first byte, which is another one in each dialect: encoded once for all.
fn told(parts: &[&[u8]]) -> Bytes {
    let mut bytes = format!("{}\r\n", parts.len()).into_bytes();
    parts.iter().for_each(|part| bulk(&mut bytes, part));
    bytes.into()
}

impl Listener {
    /// How many of a kind it listens to; channels and patterns count together, as in Redis.
    pub fn count(&self, kind: Kind) -> i64 {
        let of = |kind: Kind| self.names[kind as usize].borrow().len();
        (if kind == Kind::Shard { of(kind) } else { of(Kind::Channel) + of(Kind::Pattern) }) as i64
    }

    /// Does it listen to this one?
    pub fn hears(&self, kind: Kind, name: &[u8]) -> bool {
        self.names[kind as usize].borrow().contains(name)
    }

    /// Does it listen to channels of what changes?
    pub fn is_of_events(&self) -> bool {
        let of = |kind: Kind| self.names[kind as usize].borrow().iter().any(|name| changes::is_of_events(name));
        of(Kind::Channel) || of(Kind::Pattern)
    }

    pub fn names(&self, kind: Kind) -> Vec<Bytes> {
        self.names[kind as usize].borrow().iter().cloned().collect()
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Hears {
    /// Not any more: it did not read.
    pub fn is_closed(&self) -> bool {
        self.listener.closed.get()
    }

    pub fn has_any(&self) -> bool {
        !self.listener.waiting.borrow().is_empty()
    }

    pub fn namespace(&self) -> &str {
        &self.listener.namespace
    }

    /// In RESP2 a client that listens may do little else.
    pub fn is_bound(&self, protocol: Protocol) -> bool {
        protocol == Protocol::Resp2 && self.listener.names.iter().any(|names| !names.borrow().is_empty())
    }

    /// Does it listen to what changes in what others have read?
    pub fn is_of_stale(&self) -> bool {
        self.listener.hears(Kind::Channel, changes::tracking::CHANNEL)
    }

    /// Tells this waker when there is something.
    pub fn wakes(&self, waker: &Waker) {
        let mut kept = self.listener.waker.borrow_mut();
        if kept.as_ref().is_none_or(|kept| !kept.will_wake(waker)) {
            *kept = Some(waker.clone());
        }
    }

    pub fn next(&self) -> Option<Reply> {
        let next = self.listener.waiting.borrow_mut().pop_front()?;
        self.all.count(&self.listener, self.listener.bytes.get() - held(&next));
        Some(next)
    }
}

impl Drop for Hears {
    fn drop(&mut self) {
        let listener = &self.listener;
        for kind in [Kind::Channel, Kind::Shard, Kind::Pattern] {
            let gone = self.all.remove(listener, kind, &listener.names(kind));
            if !gone.is_empty() {
                drop(self.all.ask(Op::Unsubscribe {
                    namespace: listener.namespace.to_string(),
                    kind,
                    names: at_nodes(kind, &gone),
                }));
            }
        }
        listener.closed.set(true);
        self.all.count(listener, 0);
        self.all.all.borrow_mut().remove(&listener.id);
    }
}
