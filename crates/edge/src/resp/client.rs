//! One client as its commands see it: who it is, what it calls itself, which dialect it speaks. Also who may become who:
//! the user name is the namespace, the password its token.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use base::{Outcome, Priority, Span};
use bytes::Bytes;
use channels::Message;
use host::crowd::{Crowd, Gone, Place, network};
use node::View;
use node::renewed::Formers;
use state::Class;
use state::linear::limits::STEPS_MAX;
use state::linear::{Condition, Ran, Step};

use super::changes::tracking::{Reading, Tracks};
use super::commands::linear::Then;
use super::commands::{self, Act, Spec};
use super::encode::{Protocol, Reply};
use super::gate::Gate;
use super::limits::{CLIENT_NAME_BYTES_MAX, MULTI_BYTES_MAX};
use super::ops::Space;
use super::parse::{Bounds, Command};
use super::subscribers::Hears;
use crate::secret::same_secret;

#[derive(Debug)]
pub struct Client {
    pub id: u64,
    pub addr: SocketAddr,
    pub local: SocketAddr,
    pub since: Instant,
    pub name: String,
    pub lib_name: String,
    pub lib_version: String,
    pub protocol: Protocol,
    pub wrong_passwords: u32,
    pub known: Option<Known>,
    /// Of its namespace's, while it is known,
    pub place: Option<Place<Arc<str>>>,
    /// ... and of strangers' else.
    pub stranger: Option<Place>,
    /// Tells it that its place, whichever it has, is somebody else's.
    pub gone: Arc<Gone>,
    /// Commands between MULTI and EXEC (class `linear`).
    pub multi: Option<Multi>,
    /// What it reads may be so old (class `linear`, READONLY).
    pub stale: Option<Span>,
    /// How much what it asks matters, 0 to 9 (PRIORITY).
    pub class: u8,
    /// Keys that EXEC wants unchanged, as they were when they were watched.
    pub watched: Watched,
    /// What it listens to, in its namespace.
    pub hears: Option<Box<Hears>>,
    /// It keeps values, and is told when they change (CLIENT TRACKING). Few do, and each connection has room for this.
    pub tracks: Option<Box<Tracks>>,
    /// Which of its commands are answered (CLIENT REPLY).
    pub replies: Replies,
    /// What EXEC has changed of it, and its next command is to find so.
    pub due: Option<Owed>,
}

pub type Owed = Rc<RefCell<Vec<Change>>>;

/// What a command changes of its client. Between MULTI and EXEC it waits for EXEC, as in Redis.
#[derive(Debug)]
pub enum Change {
    Name(String),
    LibName(String),
    LibVersion(String),
    Replies(Replies),
    /// It is told no more of values that change.
    TracksNone,
}

/// Which commands are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Replies {
    #[default]
    All,
    None,
    /// Not so many more.
    AllBut(u8),
}

impl Replies {
    /// Is the next one?
    pub fn takes_next(&mut self) -> bool {
        match *self {
            Replies::All => true,
            Replies::None => false,
            Replies::AllBut(1) => {
                *self = Replies::All;
                false
            }
            Replies::AllBut(more) => {
                *self = Replies::AllBut(more.saturating_sub(1));
                more == 0
            }
        }
    }
}

/// A transaction that is being put together.
#[derive(Debug, Default)]
pub struct Multi {
    queued: Vec<Queued>,
    /// Of all that is queued.
    steps: usize,
    bytes: usize,
    /// A hash of its commands as they were said.
    said: u64,
    /// A command was refused: EXEC will be.
    is_bad: bool,
}

/// A command between MULTI and EXEC.
#[derive(Debug)]
pub enum Queued {
    /// Its steps, and what makes its reply of theirs.
    Steps(Vec<Step>, Then),
    /// It has nothing to do with keys, and this is its reply.
    Said(Reply),
    /// What is sent when all else was done.
    Message(Message),
    /// What it changes of its client.
    Change(Change),
}

impl Multi {
    /// This is said for EXEC, too.
    pub fn hear(&mut self, command: &Command) {
        self.said = command.said(self.said);
    }

    /// Keeps a command for EXEC, or says why there is no room for it.
    pub fn keep(&mut self, queued: Queued) -> Result<(), Reply> {
        if self.is_bad {
            return Ok(());
        }
        self.steps += queued.steps();
        self.bytes += queued.bytes();
        if self.steps > STEPS_MAX {
            return Err(Reply::Error(format!("ERR a transaction has at most {STEPS_MAX} steps")));
        }
        if self.bytes > MULTI_BYTES_MAX {
            return Err(Reply::Error(format!("ERR a transaction has at most {MULTI_BYTES_MAX} bytes")));
        }
        self.queued.push(queued);
        Ok(())
    }

    /// Nothing more is kept, and EXEC will be refused.
    pub fn is_bad(&self) -> bool {
        self.is_bad
    }

    /// How many commands are kept.
    pub fn kept(&self) -> usize {
        self.queued.len()
    }

    /// ... and about how many bytes of memory they hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A command was refused: EXEC will be, so nothing is kept for it.
    pub fn spoil(&mut self) {
        *self = Self { is_bad: true, ..Self::default() };
    }

    /// All that was kept, if none was refused, and a hash of how it was said.
    pub fn queued(self) -> Option<(Vec<Queued>, u64)> {
        (!self.is_bad).then_some((self.queued, self.said))
    }
}

impl Queued {
    fn steps(&self) -> usize {
        if let Self::Steps(steps, _) = self { steps.len() } else { 1 }
    }

    /// About how many bytes of memory it holds.
    fn bytes(&self) -> usize {
        let held = |bytes: &Bytes| bytes.len() + size_of::<Bytes>();
        match self {
            Self::Steps(steps, _) => steps.iter().flat_map(|step| step.args.iter().chain([&step.key])).map(held).sum(),
            Self::Said(reply) => reply.bytes(),
            Self::Message(message) => held(&message.channel) + held(&message.payload),
            Self::Change(_) => size_of::<Self>() + CLIENT_NAME_BYTES_MAX,
        }
    }
}

/// As at the edge.
const USUAL_CLASS: u8 = 5;

pub type Watched = Rc<RefCell<Vec<Condition>>>;

/// An authenticated client: its namespace, and the token that opened it.
#[derive(Debug)]
pub struct Known {
    /// Whose token it has. Channels are its, and what connections see of each other.
    pub home: Arc<str>,
    /// Which of its databases is selected.
    pub database: u32,
    /// The namespace of that database, which all keys are of: `home` of database 0.
    pub namespace: Arc<str>,
    pub class: Class,
    token: String,
    /// All tokens when it was last looked: the same ones need no second look.
    seen: (Arc<BTreeMap<String, String>>, Arc<Formers>),
}

/// A script does not know which database it was called in.
const OF_SCRIPT: u32 = u32::MAX;

impl Known {
    /// Another database of the same namespace.
    pub fn select(&mut self, database: u32, namespace: Arc<str>, class: Class) {
        (self.database, self.namespace, self.class) = (database, namespace, class);
    }

    /// Is it a script's, which stays where it was called?
    pub fn is_of_script(&self) -> bool {
        self.database == OF_SCRIPT
    }

    /// Is the selected database declared as it was when it was selected?
    fn is_declared(&self, view: &View) -> bool {
        self.database == 0
            || view.specs.get(&*self.home).and_then(|spec| spec.databases()?.get(self.database))
                == Some(&*self.namespace)
                && view.specs.get(&*self.namespace).is_some_and(|spec| spec.class() == self.class)
    }
}

impl Client {
    /// A script of this namespace, of class `linear`.
    pub fn inside(namespace: Arc<str>) -> Self {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let known = Known {
            home: Arc::clone(&namespace),
            database: OF_SCRIPT,
            namespace,
            class: Class::Linear,
            token: String::new(),
            seen: Default::default(),
        };
        Self { known: Some(known), ..Self::new(0, nowhere, nowhere) }
    }

    pub fn new(id: u64, addr: SocketAddr, local: SocketAddr) -> Self {
        Self {
            id,
            addr,
            local,
            since: Instant::now(),
            name: String::new(),
            lib_name: String::new(),
            lib_version: String::new(),
            protocol: Protocol::default(),
            wrong_passwords: 0,
            known: None,
            place: None,
            stranger: None,
            gone: Arc::default(),
            multi: None,
            stale: None,
            class: USUAL_CLASS,
            watched: Watched::default(),
            hears: None,
            tracks: None,
            replies: Replies::All,
            due: None,
        }
    }

    /// Makes a change that one of its commands asked for.
    pub fn change(&mut self, change: Change) {
        match change {
            Change::Name(name) => self.name = name,
            Change::LibName(name) => self.lib_name = name,
            Change::LibVersion(version) => self.lib_version = version,
            Change::Replies(replies) => self.replies = replies,
            Change::TracksNone => self.tracks = None,
        }
    }

    /// What its commands before this one have come to is so from now on.
    pub fn settle(&mut self) {
        let due = self.due.take_if(|due| !due.borrow().is_empty());
        due.into_iter().flat_map(|due| due.take()).for_each(|change| self.change(change));
        if self.tracks.as_ref().is_some_and(|tracks| tracks.is_over()) {
            self.tracks = None;
        }
    }

    /// What is done beside it for it: in the same place, and as it reads and matters now.
    pub fn apart(&self) -> Self {
        let known = self.known.as_ref().map(|known| Known {
            home: Arc::clone(&known.home),
            database: known.database,
            namespace: Arc::clone(&known.namespace),
            class: known.class,
            token: String::new(),
            seen: Default::default(),
        });
        let (stale, class, protocol) = (self.stale, self.class, self.protocol);
        Self { known, stale, class, protocol, ..Self::new(self.id, self.addr, self.local) }
    }

    /// It is as at its beginning, a stranger.
    pub fn reset(&mut self) {
        (self.known, self.place, self.hears, self.tracks) = (None, None, None, None);
        (self.multi, self.stale, self.class) = (None, None, USUAL_CLASS);
        self.watched = Watched::default();
        self.protocol = Protocol::default();
        self.replies = Replies::All;
        self.name.clear();
    }

    /// Of its namespace. A stranger is told of class `session`.
    pub fn class(&self) -> Class {
        self.known.as_ref().map_or(Class::Session, |known| known.class)
    }

    /// Is its namespace of class `linear`?
    pub fn is_linear(&self) -> bool {
        self.class() == Class::Linear
    }

    pub fn priority(&self) -> Priority {
        Priority::of_ten(self.class)
    }

    /// What it may send now.
    pub fn bounds(&self) -> &'static Bounds {
        if self.known.is_some() { &Bounds::KNOWN } else { &Bounds::STRANGER }
    }

    /// A token that was changed or taken away opens nothing any more, also for those who are in; nor does a database that is not
    /// declared any more.
    pub fn still_known(&mut self, view: &View) {
        let Some(known) = &mut self.known else { return };
        let is_seen = Arc::ptr_eq(&known.seen.0, &view.tokens) && Arc::ptr_eq(&known.seen.1, &view.formers);
        if is_seen && known.is_declared(view) {
            return;
        }
        known.seen = (Arc::clone(&view.tokens), Arc::clone(&view.formers));
        let same = view.tokens.get(&*known.home).is_some_and(|token| same_secret(token, known.token.as_bytes()))
            | is_former(view, &known.home, known.token.as_bytes());
        if !same || !known.is_declared(view) {
            (self.known, self.place, self.hears, self.tracks) = (None, None, None, None);
        }
    }

    /// True, and the namespace is open, if the token is right. `user` is the namespace; without one (or with Redis'
    /// `default`) the token alone must say which. Who was there already keeps the database that it has selected, as in Redis.
    pub fn authenticate(&mut self, view: &View, user: Option<&[u8]>, token: &[u8]) -> bool {
        let user = user.filter(|user| *user != b"default" || view.tokens.contains_key("default"));
        // Each token is compared, so that the time says nothing about which namespaces exist.
        let mut fits = view.tokens.iter().filter(|(namespace, expect)| {
            let named = user.is_none_or(|user| namespace.as_bytes() == user);
            (same_secret(expect, token) | is_former(view, namespace, token)) & named
        });
        match (fits.next(), fits.next()) {
            (Some((namespace, _)), None) => {
                let selected = self.known.take().filter(|had| *had.home == **namespace && had.is_declared(view));
                let home: Arc<str> = namespace.as_str().into();
                let new = || (0, Arc::clone(&home), view.class_of(namespace));
                let (database, space, class) =
                    selected.map_or_else(new, |had| (had.database, had.namespace, had.class));
                if self.tracks.as_ref().is_some_and(|tracks| !tracks.is_of(namespace, &space)) {
                    self.tracks = None;
                }
                self.known = Some(Known {
                    home,
                    database,
                    namespace: space,
                    class,
                    token: String::from_utf8_lossy(token).into_owned(),
                    seen: (Arc::clone(&view.tokens), Arc::clone(&view.formers)),
                });
                if self.hears.as_ref().is_some_and(|hears| hears.namespace() != namespace) {
                    self.hears = None;
                }
                self.wrong_passwords = 0;
                (self.multi, self.stale, self.class) = (None, None, USUAL_CLASS);
                self.watched = Watched::default();
                true
            }
            _ => {
                self.wrong_passwords += 1;
                false
            }
        }
    }
}

/// The token of this namespace before the one of now, while that opens.
fn is_former(view: &View, namespace: &str, token: &[u8]) -> bool {
    same_secret(view.formers.namespaces.get(namespace).map_or("", String::as_str), token)
}

impl Client {
    /// What a command asks, so that its client is not told of its own changes, if it wants that. Not of what is put together for EXEC.
    pub fn owning(&self, act: Act, gate: &Rc<Gate>) -> Act {
        let (Some(tracks), Some(known)) = (&self.tracks, &self.known) else { return act };
        let Act::Linear(mut op, then) = act else { return act };
        let Some(writing) = tracks.writes(&mut op) else { return Act::Linear(op, then) };
        let space = Space { name: Arc::clone(&known.namespace), gate: Rc::clone(gate), priority: self.priority() };
        Act::Later(Box::pin(async move {
            let mut outcome = space.ask_linear(op).await;
            if let Outcome::Done(Ran::Done(got)) = &mut outcome {
                writing.done(got);
            }
            commands::linear::reply(outcome, then)
        }))
    }

    /// Keys that this command is about to read, of whose changes the client is to be told.
    pub fn reads(&self, command: &Command, spec: &Spec, in_multi: bool) -> Option<Reading> {
        let tracks = self.tracks.as_ref()?;
        // Of a transaction that will be refused nothing is read, however long it becomes.
        if self.multi.as_ref().is_some_and(Multi::is_bad) {
            tracks.forget_queued();
            return None;
        }
        tracks.begins(command, spec, in_multi)
    }

    /// It counts among those of its namespace from now on, of which there may be so many; or it is a stranger again.
    pub fn take_place(&mut self, among: &Arc<Crowd<Arc<str>>>, most: Option<u32>) -> Result<(), NoPlace> {
        let Some(known) = &self.known else { return Err(NoPlace::Crowded) };
        if self.place.as_ref().is_some_and(|place| *place.whose() == known.home) {
            return Ok(());
        }
        // Nobody comes in between: this door is served by one thread.
        let over = most.filter(|most| among.count_of(&known.home) >= *most as usize);
        let entered = match over {
            Some(most) => Err(NoPlace::Full(most)),
            None => among.try_enter(Arc::clone(&known.home), Arc::clone(&self.gone)).ok_or(NoPlace::Crowded),
        };
        match entered {
            Ok(place) => {
                self.place = Some(place);
                // At once, or it could be pushed out as the stranger that it was.
                self.stranger = None;
                Ok(())
            }
            Err(why) => {
                (self.known, self.place) = (None, None);
                Err(why)
            }
        }
    }

    pub fn be_stranger(&mut self, among: &Arc<Crowd>) {
        self.stranger = Some(among.enter(network(self.addr.ip()), Arc::clone(&self.gone)));
    }
}

/// Why a client that has the right token is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPlace {
    /// Its namespace has as many as are declared for it: `connections_max`.
    Full(u32),
    /// The door is full, and no namespace has more.
    Crowded,
}

impl std::fmt::Display for NoPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoPlace::Full(most) => write!(f, "connections_max = {most} of this namespace, on each node"),
            NoPlace::Crowded => f.write_str("this namespace has most of them, and others need some, too"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(tokens: &[(&str, &str)]) -> View {
        let tokens = tokens.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect();
        View { tokens: Arc::new(tokens), ..View::default() }
    }

    fn check(tokens: &[(&str, &str)], user: Option<&str>, token: &str, expect: Option<&str>) {
        let addr = "127.0.0.1:1".parse().unwrap();
        let mut client = Client::new(1, addr, addr);
        let done = client.authenticate(&view(tokens), user.map(str::as_bytes), token.as_bytes());
        assert_eq!((done, client.known.map(|k| k.namespace.to_string()).as_deref()), (expect.is_some(), expect));
    }

    #[test]
    fn a_token_opens_its_own_namespace() {
        let tokens = [("carts", "aaaa"), ("webs", "bbbb"), ("twin", "bbbb"), ("open", "")];
        check(&tokens, Some("carts"), "aaaa", Some("carts"));
        check(&tokens, Some("carts"), "bbbb", None);
        check(&tokens, Some("carts"), "aaa", None);
        check(&tokens, Some("nosuch"), "aaaa", None);
        check(&tokens, None, "aaaa", Some("carts"));
        check(&tokens, Some("default"), "aaaa", Some("carts"));
        check(&tokens, None, "bbbb", None);
        check(&tokens, Some("twin"), "bbbb", Some("twin"));
        check(&tokens, Some("open"), "", None);
    }

    #[test]
    fn a_transaction_keeps_only_so_much_and_nothing_once_it_is_bad() {
        let value = Bytes::from(vec![0; MULTI_BYTES_MAX / 4]);
        let one = || Step::new("k".into(), "text.set", vec![value.clone()]);
        let steps = |steps| Queued::Steps(steps, |_| Reply::Nil);
        for (queued, fit, why) in [
            (&(|| steps(vec![one()])) as &dyn Fn() -> Queued, 3, "bytes"),
            (&|| steps(vec![Step::new(value.clone(), "text.get", vec![])]), 3, "bytes"),
            (&|| Queued::Said(Reply::List(vec![Reply::Bulk(value.clone())])), 3, "bytes"),
            (&|| steps(vec![Step::new("k".into(), "text.get", vec![]); STEPS_MAX]), 1, "steps"),
            (&|| Queued::Said(Reply::OK), STEPS_MAX, "steps"),
        ] {
            let mut multi = Multi::default();
            (0..fit).for_each(|_| multi.keep(queued()).unwrap());
            assert!(matches!(multi.keep(queued()), Err(Reply::Error(text)) if text.ends_with(why)), "{why}");
            assert_eq!(multi.queued.len(), fit);
            multi.spoil();
            multi.keep(queued()).unwrap();
            assert!(multi.queued.is_empty() && multi.queued().is_none());
        }
    }

    #[test]
    fn a_changed_token_shuts_out_those_who_are_in() {
        let addr = "127.0.0.1:1".parse().unwrap();
        let mut client = Client::new(1, addr, addr);
        assert!(client.authenticate(&view(&[("carts", "aaaa")]), Some(b"carts"), b"aaaa"));
        client.still_known(&view(&[("carts", "aaaa"), ("more", "cccc")]));
        assert!(client.known.is_some());
        client.still_known(&view(&[("carts", "aaab")]));
        assert!(client.known.is_none());
    }
}
