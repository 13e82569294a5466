//! Clients that keep values of their own (`CLIENT TRACKING`): each is told which of the keys that it read have changed, or
//! all with certain beginnings. A key is told once, and again when it was read again.
//!
//! A change may be heard of while an older value is still on its way to the client. So a key that is being read is told
//! behind its reply, never before: else the client would forget nothing, and then keep what is old.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use channels::Kind;
use state::linear::Op;

use super::own::{Own, Whose, Writing};
use super::{Changed, Changes, Wants};
use crate::resp::commands::{Does, Spec};
use crate::resp::encode::{Reply, bulk};
use crate::resp::parse::Command;
use crate::resp::subscribers::{Listener, Subscribers};

/// Keys that are kept for all clients of this node, a key for each client: past that the client with most is told of some,
/// as if they had changed.
pub const KEYS_ALL_MAX: usize = 1_000_000;
/// ... and so many bytes of them.
pub const KEYS_BYTES_ALL_MAX: usize = 128 << 20;
/// Beginnings that one client may name.
pub const PREFIXES_MAX: usize = 1_024;
/// What a key costs beside its bytes, about.
const KEY_BYTES: usize = 128;
/// So many of a client's keys go at once where there are too many.
const GO_AT_ONCE: usize = 1_024;
/// Who is told for another connection listens here.
pub const CHANNEL: &[u8] = b"__redis__:invalidate";

pub struct Tracking {
    subscribers: Rc<Subscribers>,
    spaces: RefCell<HashMap<Arc<str>, Space>>,
    /// Keys of all, a key for each client, and their bytes.
    keys: Cell<usize>,
    bytes: Cell<usize>,
}

#[derive(Default)]
struct Space {
    /// Who has read a key.
    by_key: HashMap<Bytes, BTreeSet<u64>>,
    clients: BTreeMap<u64, Rc<Tracker>>,
}

/// Which keys a client is told of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum How {
    /// Those that it has read: all, only those behind `CLIENT CACHING YES`, or all but those behind `CLIENT CACHING NO`.
    Read(Which),
    /// All with these beginnings.
    Prefixes(Vec<Bytes>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    All,
    OptIn,
    OptOut,
}

pub struct Tracker {
    id: u64,
    /// Whose connections it is among.
    home: Arc<str>,
    /// Of whose keys it is told.
    namespace: Arc<str>,
    how: How,
    to: To,
    /// Invariant: those that `by_key` has for it.
    keys: RefCell<BTreeSet<Bytes>>,
    /// Keys whose replies are under way: how many, and whether they changed meanwhile.
    reading: RefCell<HashMap<Bytes, (u32, bool)>>,
    /// What it changed itself, if it is not to be told of that.
    noloop: bool,
    /// What changes, as long as it is told. None: nobody could tell, or its connection does not want it any more.
    wants: RefCell<Option<Wants>>,
    pub own: Own,
}

/// Who is told.
enum To {
    Itself(Rc<Listener>),
    /// Another connection of this door, which listens to [`CHANNEL`].
    Other(u64),
}

/// A connection's part in it. When it goes, nothing is kept for it.
#[derive(Debug)]
pub struct Tracks {
    tracker: Rc<Tracker>,
    all: Rc<Changes>,
    pub noloop: bool,
    /// What `CLIENT CACHING` said of the next command, or transaction.
    pub caching: Cell<Option<bool>>,
    /// Keys that EXEC will read.
    queued: RefCell<Vec<Bytes>>,
}

/// Keys that a command reads, until its reply is written.
pub struct Reading {
    tracker: Rc<Tracker>,
    all: Rc<Changes>,
    keys: Vec<Bytes>,
}

impl std::fmt::Debug for Tracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tracker")
    }
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Changes")
    }
}

impl Changes {
    /// This connection is told of changes from now on.
    pub fn track(
        self: &Rc<Self>,
        (id, home, namespace): (u64, &Arc<str>, &Arc<str>),
        (how, noloop): (How, bool),
        to: Result<Rc<Listener>, u64>,
        wants: Wants,
    ) -> Tracks {
        let tracker = Rc::new(Tracker {
            id,
            home: Arc::clone(home),
            namespace: Arc::clone(namespace),
            how,
            to: to.map_or_else(To::Other, To::Itself),
            keys: RefCell::default(),
            reading: RefCell::default(),
            noloop,
            wants: RefCell::new(Some(wants)),
            own: Own::default(),
        });
        let mut spaces = self.tracking.spaces.borrow_mut();
        spaces.entry(Arc::clone(namespace)).or_default().clients.insert(id, Rc::clone(&tracker));
        let (caching, queued) = (Cell::new(None), RefCell::default());
        Tracks { tracker, all: Rc::clone(self), noloop, caching, queued }
    }
}

impl Tracking {
    pub fn new(subscribers: Rc<Subscribers>) -> Self {
        Self { subscribers, spaces: RefCell::default(), keys: Cell::new(0), bytes: Cell::new(0) }
    }

    /// How many clients are told, how many keys are kept, and how many prefixes.
    pub fn counts(&self) -> (usize, usize, usize) {
        let spaces = self.spaces.borrow();
        let prefixes = |tracker: &Rc<Tracker>| if let How::Prefixes(all) = &tracker.how { all.len() } else { 0 };
        let clients = || spaces.values().flat_map(|space| space.clients.values());
        (clients().count(), self.keys.get(), clients().map(prefixes).sum())
    }

    /// These keys changed.
    pub(super) fn changed(&self, namespace: &str, changed: &[Changed]) {
        self.tell_of(namespace, changed, None);
    }

    /// The same, for one client alone: what was heard of before it was known whether it was its own.
    pub(super) fn changed_for(&self, tracker: &Tracker, changed: &[Changed]) {
        self.tell_of(&tracker.namespace, changed, Some(tracker.id));
    }

    fn tell_of(&self, namespace: &str, changed: &[Changed], only: Option<u64>) {
        let is_meant = |tracker: &&Rc<Tracker>| only.is_none_or(|id| tracker.id == id);
        let mut told: BTreeMap<u64, (Rc<Tracker>, Vec<Bytes>)> = BTreeMap::new();
        {
            let mut spaces = self.spaces.borrow_mut();
            let Some(space) = spaces.get_mut(namespace) else { return };
            let of_prefixes = |tracker: &&Rc<Tracker>| matches!(tracker.how, How::Prefixes(_));
            let of_prefixes: Vec<Rc<Tracker>> =
                space.clients.values().filter(is_meant).filter(of_prefixes).cloned().collect();
            let silent: Vec<Rc<Tracker>> =
                space.clients.values().filter(is_meant).filter(|it| it.noloop).cloned().collect();
            for Changed { version, key, .. } in changed {
                // Its own, or perhaps, and then it is told later. What it keeps of that it goes on keeping: it may have read it since.
                let is_own = |tracker: &&Rc<Tracker>| tracker.own.hear(key, *version) != Whose::Others;
                let own: BTreeSet<u64> = silent.iter().filter(is_own).map(|tracker| tracker.id).collect();
                let mut tell = |tracker: &Rc<Tracker>| {
                    let (_, told) = told.entry(tracker.id).or_insert_with(|| (Rc::clone(tracker), Vec::new()));
                    if told.last() != Some(key) {
                        told.push(key.clone());
                    }
                };
                let names = |tracker: &&Rc<Tracker>| tracker.how.names(key) && !own.contains(&tracker.id);
                of_prefixes.iter().filter(names).for_each(&mut tell);
                let readers = space.by_key.get(key).cloned().unwrap_or_default();
                let readers = readers.iter().filter(|id| !own.contains(id)).filter_map(|id| space.clients.get(id));
                let readers: Vec<_> = readers.filter(is_meant).cloned().collect();
                for tracker in readers {
                    if tracker.is_read_now(key) {
                        continue;
                    }
                    self.forget(space, &tracker, key);
                    tell(&tracker);
                }
            }
        }
        for (tracker, keys) in told.into_values() {
            self.tell(&tracker, Some(&keys));
        }
    }

    /// Any key may have changed, or may have before changes are told: those who may keep some forget all.
    pub fn missed(&self, namespace: &str, is_begin: bool) {
        let clients: Vec<Rc<Tracker>> = {
            let mut spaces = self.spaces.borrow_mut();
            let Some(space) = spaces.get_mut(namespace) else { return };
            let may_keep = |tracker: &&Rc<Tracker>| match tracker.how {
                How::Read(_) => !tracker.keys.borrow().is_empty(),
                // It waits for the reply to its command.
                How::Prefixes(_) => !is_begin,
            };
            let clients: Vec<Rc<Tracker>> = space.clients.values().filter(may_keep).cloned().collect();
            space.clients.values().for_each(|tracker| tracker.own.forget());
            for tracker in &clients {
                let keys: Vec<Bytes> = tracker.keys.borrow().iter().cloned().collect();
                keys.iter().filter(|key| !tracker.is_read_now(key)).for_each(|key| self.forget(space, tracker, key));
            }
            clients
        };
        clients.iter().for_each(|tracker| self.tell(tracker, None));
    }

    /// None: all keys.
    fn tell(&self, tracker: &Tracker, keys: Option<&[Bytes]>) {
        let keys = keys.map(|keys| {
            let mut list = format!("*{}\r\n", keys.len()).into_bytes();
            keys.iter().for_each(|key| bulk(&mut list, key));
            Bytes::from(list)
        });
        match &tracker.to {
            To::Itself(listener) => self.subscribers.put(listener, Reply::Stale(keys)),
            To::Other(id) => {
                let other = self
                    .subscribers
                    .listener(*id)
                    .filter(|other| *other.namespace == *tracker.home && other.hears(Kind::Channel, CHANNEL));
                if let Some(other) = other {
                    self.subscribers.put(&other, Reply::Stale(keys));
                }
            }
        }
    }

    fn keep(&self, tracker: &Rc<Tracker>, key: &Bytes) {
        let mut spaces = self.spaces.borrow_mut();
        let Some(space) = spaces.get_mut(&tracker.namespace) else { return };
        if !tracker.keys.borrow().contains(key) {
            // What it came in is not kept.
            let key =
                space.by_key.get_key_value(key).map_or_else(|| Bytes::copy_from_slice(key), |(key, _)| key.clone());
            self.count(1, cost(&key) as isize);
            tracker.keys.borrow_mut().insert(key.clone());
            space.by_key.entry(key).or_default().insert(tracker.id);
        }
    }

    fn forget(&self, space: &mut Space, tracker: &Tracker, key: &Bytes) {
        if !tracker.keys.borrow_mut().remove(key) {
            return;
        }
        self.count(-1, -(cost(key) as isize));
        if let Some(readers) = space.by_key.get_mut(key) {
            readers.remove(&tracker.id);
            if readers.is_empty() {
                space.by_key.remove(key);
            }
        }
    }

    /// Nothing is kept for this one any more, and it is told nothing.
    fn leave(&self, tracker: &Rc<Tracker>) {
        let wants = tracker.wants.take();
        let mut spaces = self.spaces.borrow_mut();
        if let Some(space) = spaces.get_mut(&tracker.namespace) {
            let keys: Vec<Bytes> = tracker.keys.borrow().iter().cloned().collect();
            keys.iter().for_each(|key| self.forget(space, tracker, key));
            tracker.reading.borrow_mut().clear();
            if space.clients.get(&tracker.id).is_some_and(|kept| Rc::ptr_eq(kept, tracker)) {
                space.clients.remove(&tracker.id);
            }
            if space.clients.is_empty() {
                spaces.remove(&tracker.namespace);
            }
        }
        drop(spaces);
        drop(wants);
    }

    fn count(&self, keys: isize, bytes: isize) {
        self.keys.set(self.keys.get().saturating_add_signed(keys));
        self.bytes.set(self.bytes.get().saturating_add_signed(bytes));
    }

    /// Makes room, by keys of the clients with most.
    fn make_room(&self) {
        while self.keys.get() > KEYS_ALL_MAX || self.bytes.get() > KEYS_BYTES_ALL_MAX {
            let (tracker, keys) = {
                let mut spaces = self.spaces.borrow_mut();
                let all = spaces.values().flat_map(|space| space.clients.values());
                let Some(most) = all.max_by_key(|tracker| tracker.keys.borrow().len()).cloned() else { return };
                let keys: Vec<Bytes> = most.keys.borrow().iter().take(GO_AT_ONCE).cloned().collect();
                let free: Vec<Bytes> = keys.into_iter().filter(|key| !most.is_read_now(key)).collect();
                let Some(space) = spaces.get_mut(&most.namespace) else { return };
                free.iter().for_each(|key| self.forget(space, &most, key));
                (most, free)
            };
            if keys.is_empty() {
                return;
            }
            self.tell(&tracker, Some(&keys));
        }
    }
}

/// About how many bytes of memory a key holds.
fn cost(key: &Bytes) -> usize {
    key.len() + KEY_BYTES
}

impl How {
    fn names(&self, key: &[u8]) -> bool {
        match self {
            How::Read(_) => false,
            How::Prefixes(prefixes) => prefixes.is_empty() || prefixes.iter().any(|prefix| key.starts_with(prefix)),
        }
    }
}

impl Tracker {
    /// Is its reply under way? Then it is told behind it.
    fn is_read_now(&self, key: &[u8]) -> bool {
        let mut reading = self.reading.borrow_mut();
        let Some((_, has_changed)) = reading.get_mut(key) else { return false };
        *has_changed = true;
        true
    }
}

impl Tracks {
    pub fn how(&self) -> &How {
        &self.tracker.how
    }

    /// The connection that is told for this one.
    pub fn redirect(&self) -> Option<u64> {
        if let To::Other(id) = self.tracker.to { Some(id) } else { None }
    }

    /// Are these the keys that it follows, of this client of the namespace?
    pub fn is_of(&self, home: &str, namespace: &str) -> bool {
        *self.tracker.home == *home && *self.tracker.namespace == *namespace
    }

    /// Is there nobody any more who could be told for it?
    pub fn is_broken(&self) -> bool {
        self.redirect().is_some_and(|id| self.all.subscribers.listener(id).is_none())
    }

    /// EXEC will read nothing.
    pub fn forget_queued(&self) {
        self.queued.borrow_mut().clear();
    }

    /// Waits until changes are told. If nobody tells, the client keeps no values: it is as if it had not asked.
    pub fn begun(&self) -> impl Future<Output = Result<(), Reply>> + use<> {
        let begun = self.tracker.wants.borrow().as_ref().map(Wants::begun);
        let (tracker, all) = (Rc::clone(&self.tracker), Rc::clone(&self.all));
        async move {
            let begun = if let Some(begun) = begun { begun.await } else { Ok(()) };
            if begun.is_err() {
                all.tracking.leave(&tracker);
            }
            begun
        }
    }

    /// Could nobody tell what changes? Then this is to be dropped.
    pub fn is_over(&self) -> bool {
        self.tracker.wants.borrow().is_none()
    }

    /// An operation is about to be asked: what it changes is the client's own, if it does not want to be told of that.
    pub fn writes(&self, op: &mut Op) -> Option<Writing> {
        if self.noloop { Writing::begin(&self.tracker, &self.all, op) } else { None }
    }

    /// A command begins: these keys of its are told of, once its reply is written.
    pub fn begins(&self, command: &Command, spec: &Spec, in_multi: bool) -> Option<Reading> {
        let How::Read(which) = self.tracker.how else { return None };
        if self.is_over() || spec.name == "CLIENT" {
            return None;
        }
        let is_framed = in_multi || spec.name == "MULTI";
        let said = if is_framed { self.caching.get() } else { self.caching.take() };
        let is_wanted = match which {
            Which::All => true,
            Which::OptIn => said == Some(true),
            Which::OptOut => said != Some(false),
        };
        let mut queued = self.queued.borrow_mut();
        let keys = match spec.name {
            "EXEC" => std::mem::take(&mut *queued),
            "DISCARD" => {
                queued.clear();
                return None;
            }
            _ if spec.does == Does::Read && is_wanted => {
                spec.key_positions(command, 0).map(|at| command.value(at)).collect()
            }
            _ => return None,
        };
        if in_multi && spec.name != "EXEC" {
            queued.extend(keys);
            return None;
        }
        for key in &keys {
            self.all.tracking.keep(&self.tracker, key);
            self.tracker.reading.borrow_mut().entry(key.clone()).or_default().0 += 1;
        }
        self.all.tracking.make_room();
        (!keys.is_empty()).then(|| Reading { tracker: Rc::clone(&self.tracker), all: Rc::clone(&self.all), keys })
    }
}

impl Reading {
    /// Its reply is written: what changed meanwhile is told now.
    pub fn ends(self) {
        let mut stale = Vec::new();
        for key in &self.keys {
            let mut reading = self.tracker.reading.borrow_mut();
            let Some((count, has_changed)) = reading.get_mut(key) else { continue };
            *count -= 1;
            // Others that are under way may have read what was there before, too.
            let (is_last, has_changed) = (*count == 0, *has_changed);
            if is_last {
                reading.remove(key);
            }
            if has_changed {
                stale.push(key.clone());
            }
            drop(reading);
            if has_changed && is_last {
                let mut spaces = self.all.tracking.spaces.borrow_mut();
                if let Some(space) = spaces.get_mut(&self.tracker.namespace) {
                    self.all.tracking.forget(space, &self.tracker, key);
                }
            }
        }
        if !stale.is_empty() {
            self.all.tracking.tell(&self.tracker, Some(&stale));
        }
    }
}

impl Drop for Tracks {
    fn drop(&mut self) {
        self.all.tracking.leave(&self.tracker);
    }
}
