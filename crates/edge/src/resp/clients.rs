//! The connections of this door as others of their namespace see them: CLIENT LIST, KILL, PAUSE, UNBLOCK. What is asked of them is asked of
//! all nodes' doors (`doors.rs`), and said here in words, so that it is the same for those of this node and of others.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use channels::Kind;
use host::crowd::Gone;

use super::client::Client;
use super::commands::{Does, Spec};
use super::encode::Protocol;
use super::limits::PAUSE_MAX;
use super::parse::integer;
use super::subscribers::Listener;

#[derive(Default)]
pub struct Clients {
    all: RefCell<BTreeMap<u64, Rc<Shown>>>,
    /// Whose commands wait.
    paused: RefCell<HashMap<Arc<str>, Pause>>,
}

#[derive(Clone, Copy)]
struct Pause {
    until: Instant,
    /// Not only those that write.
    all: bool,
}

/// What is known of one connection.
pub struct Shown {
    id: u64,
    addr: SocketAddr,
    local: SocketAddr,
    since: Instant,
    said: RefCell<Said>,
    command: Cell<&'static str>,
    last: Cell<Instant>,
    /// It waits for an item.
    blocked: Cell<bool>,
    /// Commands of its transaction, and bytes of them.
    multi: Cell<Option<(usize, usize)>>,
    watched: Cell<usize>,
    gone: Arc<Gone>,
    unblock: Cell<Option<Unblock>>,
    waker: RefCell<Option<Waker>>,
}

/// What it said of itself.
#[derive(Default)]
struct Said {
    /// None: it has not said.
    namespace: Option<Arc<str>>,
    /// The selected one of that.
    database: u32,
    name: String,
    lib_name: String,
    lib_version: String,
    protocol: Protocol,
    hears: Option<Rc<Listener>>,
}

/// What a client that waited is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unblock {
    /// As if its time were over.
    Timeout,
    Error,
}

/// A connection's place among them, until it is dropped.
pub struct Seat {
    clients: Rc<Clients>,
    pub shown: Rc<Shown>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.clients.all.borrow_mut().remove(&self.shown.id);
    }
}

impl Shown {
    /// What has become of it with a command.
    pub fn follow(&self, client: &Client, command: &'static str, now: Instant) {
        self.command.set(command);
        self.last.set(now);
        self.multi.set(client.multi.as_ref().map(|multi| (multi.kept(), multi.bytes())));
        self.watched.set(client.watched.borrow().len());
        let said = &mut *self.said.borrow_mut();
        let namespace = client.known.as_ref().map(|known| &known.home);
        said.database = client.known.as_ref().map_or(0, |known| known.database);
        let is_same = matches!((&said.namespace, namespace), (Some(said), Some(now)) if Arc::ptr_eq(said, now));
        if !is_same && said.namespace.as_ref() != namespace {
            said.namespace = namespace.cloned();
        }
        for (seen, now) in [
            (&mut said.name, &client.name),
            (&mut said.lib_name, &client.lib_name),
            (&mut said.lib_version, &client.lib_version),
        ] {
            if seen != now {
                seen.clone_from(now);
            }
        }
        said.protocol = client.protocol;
        said.hears = client.hears.as_ref().map(|hears| Rc::clone(&hears.listener));
    }

    pub fn is_blocked(&self, is: bool) {
        self.blocked.set(is);
    }

    /// Tells this waker when something is wanted of it.
    pub fn wakes(&self, waker: &Waker) {
        let mut kept = self.waker.borrow_mut();
        if kept.as_ref().is_none_or(|kept| !kept.will_wake(waker)) {
            *kept = Some(waker.clone());
        }
    }

    pub fn unblocked(&self) -> Option<Unblock> {
        self.unblock.take()
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn is_of(&self, namespace: &str) -> bool {
        self.said.borrow().namespace.as_deref() == Some(namespace)
    }

    fn kind(&self) -> &'static str {
        let listens = |listener: &Rc<Listener>| listener.count(Kind::Channel) + listener.count(Kind::Shard) > 0;
        if self.said.borrow().hears.as_ref().is_some_and(listens) { "pubsub" } else { "normal" }
    }

    /// Every field that Redis 8 has, as libraries parse them by name: true where it means something here, else 0 or -1.
    fn line(&self, own: Option<&str>) -> String {
        let said = self.said.borrow();
        let (id, addr, laddr, name) = (self.id, self.addr, self.local, &said.name);
        let (age, watch) = (self.since.elapsed().as_secs(), self.watched.get());
        let command = own.map_or_else(|| self.command.get().to_lowercase(), |sub| format!("client|{sub}"));
        let idle = if own.is_some() { 0 } else { self.last.get().elapsed().as_secs() };
        let (multi, multi_bytes) = self.multi.get().map_or((-1, 0), |(kept, bytes)| (kept as i64, bytes));
        let mut flags = String::new();
        for (flag, is) in [('P', self.kind() == "pubsub"), ('b', self.blocked.get()), ('x', multi >= 0)] {
            flags.extend(is.then_some(flag));
        }
        let flags = if flags.is_empty() { "N" } else { flags.as_str() };
        let count = |kind| said.hears.as_ref().map_or(0, |listener| listener.names(kind).len());
        let [sub, psub, ssub] = [Kind::Channel, Kind::Pattern, Kind::Shard].map(count);
        let user = said.namespace.as_deref().unwrap_or("");
        let database = said.database;
        let protocol = if said.protocol == Protocol::Resp3 { 3 } else { 2 };
        let (lib, version) = (&said.lib_name, &said.lib_version);
        format!(
            "id={id} addr={addr} laddr={laddr} fd=-1 name={name} age={age} idle={idle} flags={flags} db={database} sub={sub} psub={psub} \
             ssub={ssub} multi={multi} watch={watch} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem={multi_bytes} rbs=0 rbp=0 obl=0 oll=0 \
             omem=0 tot-mem={multi_bytes} events=r cmd={command} user={user} redir=-1 resp={protocol} lib-name={lib} \
             lib-ver={version} io-thread=0 tot-net-in=0 tot-net-out=0 tot-cmds=0\n",
        )
    }
}

impl Clients {
    pub fn enter(self: &Rc<Self>, client: &Client) -> Seat {
        let shown = Rc::new(Shown {
            id: client.id,
            addr: client.addr,
            local: client.local,
            since: client.since,
            said: RefCell::default(),
            command: Cell::new(""),
            last: Cell::new(client.since),
            blocked: Cell::new(false),
            multi: Cell::new(None),
            watched: Cell::new(0),
            gone: Arc::clone(&client.gone),
            unblock: Cell::new(None),
            waker: RefCell::default(),
        });
        self.all.borrow_mut().insert(client.id, Rc::clone(&shown));
        Seat { clients: Rc::clone(self), shown }
    }

    /// The line of one that asks for its own.
    pub fn own_line(&self, client: &Client, sub: &str) -> String {
        let Some(shown) = self.all.borrow().get(&client.id).cloned() else { return String::new() };
        shown.follow(client, "CLIENT", Instant::now());
        shown.line(Some(sub))
    }

    /// What others see of it is as it is now.
    pub fn refresh(&self, client: &Client) {
        let shown = self.all.borrow().get(&client.id).cloned();
        if let Some(shown) = shown {
            shown.follow(client, "CLIENT", Instant::now());
        }
    }

    /// Is there a connection of this number in this namespace?
    pub fn is_there(&self, id: u64, namespace: &str) -> bool {
        self.all.borrow().get(&id).is_some_and(|shown| shown.said.borrow().namespace.as_deref() == Some(namespace))
    }

    /// Is this connection among those that these words want?
    pub fn is_among(&self, id: u64, words: &[Bytes]) -> bool {
        let shown = self.all.borrow().get(&id).cloned();
        shown.zip(Wanted::of(words)).is_some_and(|(shown, wanted)| wanted.has(&shown))
    }

    /// Until when this command waits, if it does.
    pub fn waits_until(&self, client: &Client, spec: &Spec) -> Option<Instant> {
        if self.paused.borrow().is_empty() || spec.does == Does::Connect || spec.name == "CLIENT" {
            return None;
        }
        let namespace = &client.known.as_ref()?.home;
        let pause = self.paused.borrow().get(namespace).copied()?;
        if pause.until <= Instant::now() {
            self.paused.borrow_mut().remove(namespace);
            return None;
        }
        let writes = matches!(spec.does, Does::Write | Does::WriteAll) || matches!(spec.name, "PUBLISH" | "SPUBLISH");
        (pause.all || writes).then_some(pause.until)
    }

    /// Does what words say with the connections of a namespace here: `list`, `kill`, `unblock`, `pause` or `unpause`, and what belongs to
    /// it. What comes of it: lines, or a number.
    pub fn act(&self, namespace: &str, words: &[Bytes]) -> Vec<u8> {
        let Some((what, rest)) = words.split_first() else { return Vec::new() };
        match &what[..] {
            b"list" => {
                let own = rest.first().and_then(|own| number(own));
                let Some(wanted) = rest.get(1..).and_then(Wanted::of) else { return Vec::new() };
                let line = |shown: Rc<Shown>| shown.line((Some(shown.id) == own).then_some("list"));
                self.those(namespace, &wanted).into_iter().map(line).collect::<String>().into_bytes()
            }
            b"kill" => {
                let Some(wanted) = Wanted::of(rest) else { return b"0".to_vec() };
                let those = self.those(namespace, &wanted);
                those.iter().for_each(|shown| shown.gone.tell());
                those.len().to_string().into_bytes()
            }
            b"unblock" => {
                let how =
                    if rest.get(1).is_some_and(|how| &how[..] == b"error") { Unblock::Error } else { Unblock::Timeout };
                let shown = rest.first().and_then(|id| self.all.borrow().get(&number(id)?).cloned());
                let waits = shown.filter(|shown| shown.is_of(namespace) && shown.blocked.get());
                if let Some(shown) = &waits {
                    shown.unblock.set(Some(how));
                    shown.wake();
                }
                if waits.is_some() { b"1".to_vec() } else { b"0".to_vec() }
            }
            b"pause" => {
                let ms = rest.first().and_then(|ms| number(ms)).unwrap_or_default();
                let all = rest.get(1).is_some_and(|what| &what[..] == b"all");
                let until = Instant::now() + Duration::from_millis(ms).min(PAUSE_MAX);
                let mut paused = self.paused.borrow_mut();
                paused.retain(|_, pause| pause.until > Instant::now());
                let pause = paused.entry(namespace.into()).or_insert(Pause { until, all });
                *pause = Pause { until: pause.until.max(until), all: pause.all || all };
                b"1".to_vec()
            }
            b"unpause" => {
                self.paused.borrow_mut().remove(namespace);
                self.all.borrow().values().filter(|shown| shown.is_of(namespace)).for_each(|shown| shown.wake());
                b"1".to_vec()
            }
            _ => Vec::new(),
        }
    }

    fn those(&self, namespace: &str, wanted: &Wanted) -> Vec<Rc<Shown>> {
        let all = self.all.borrow();
        all.values().filter(|shown| shown.is_of(namespace) && wanted.has(shown)).cloned().collect()
    }
}

fn number(word: &[u8]) -> Option<u64> {
    integer(word).and_then(|number| u64::try_from(number).ok())
}

/// Which connections: all for which all of these hold.
#[derive(Default)]
struct Wanted {
    ids: Vec<u64>,
    addr: Option<Bytes>,
    local: Option<Bytes>,
    kind: Option<Bytes>,
    /// Not this one.
    not: Option<u64>,
    age_min: Option<u64>,
}

impl Wanted {
    /// `id`, `addr`, `laddr`, `type`, `not` and `maxage`, each with a word behind it.
    fn of(words: &[Bytes]) -> Option<Self> {
        let mut wanted = Self::default();
        for pair in words.chunks(2) {
            let [what, word] = pair else { return None };
            match &what[..] {
                b"id" => wanted.ids.push(number(word)?),
                b"addr" => wanted.addr = Some(word.clone()),
                b"laddr" => wanted.local = Some(word.clone()),
                b"type" => wanted.kind = Some(word.clone()),
                b"not" => wanted.not = Some(number(word)?),
                b"maxage" => wanted.age_min = Some(number(word)?),
                _ => return None,
            }
        }
        Some(wanted)
    }

    fn has(&self, shown: &Shown) -> bool {
        let is = |wanted: &Option<Bytes>, text: &dyn Fn() -> String| {
            wanted.as_ref().is_none_or(|wanted| wanted == text().as_bytes())
        };
        (self.ids.is_empty() || self.ids.contains(&shown.id))
            && is(&self.addr, &|| shown.addr.to_string())
            && is(&self.local, &|| shown.local.to_string())
            && is(&self.kind, &|| shown.kind().to_owned())
            && self.not != Some(shown.id)
            && self.age_min.is_none_or(|age| shown.since.elapsed().as_secs() >= age)
    }
}
