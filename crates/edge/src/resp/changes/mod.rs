//! What changes in a namespace, as long as a client of this door wants to know: keyspace events (`__keyspace@0__:KEY`,
//! `__keyevent@0__:EVENT`, with the number of the database) and what a client that keeps values is told of those
//! (`CLIENT TRACKING`, `tracking.rs`).
//!
//! A feed asks what has changed, a question for each shard, while one client at least wants it; nobody is asked else. It
//! keeps the place, so it goes on when a leader dies. Where some changes may be missing, those who keep values are told
//! to forget them all; an event that is missing is not made up for, as all messages on channels.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use channels::Message;
use state::Class;
use tokio::sync::watch;
use tokio::time::timeout;

use super::encode::Reply;
use super::gate::Gate;
use super::subscribers::Subscribers;

mod events;
mod linear;
pub mod own;
mod soft;
pub mod tracking;

use tracking::Tracking;

/// How long a client waits at most for its feed to begin.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(5);
/// A feed that has heard nothing for so long may hide changes from those who keep values.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Between two questions of which the first was not answered, or at once and with nothing.
const AGAIN: Duration = Duration::from_millis(100);

/// The channels of events begin so, and go on with the number of a database and [`BEHIND`].
const KEYSPACE: &[u8] = b"__keyspace@";
const KEYEVENT: &[u8] = b"__keyevent@";
const BEHIND: &[u8] = b"__:";

/// The namespace whose clients are told, and which database of theirs it is whose keys change.
type Place = (Arc<str>, u32);

pub struct Changes {
    gate: Rc<Gate>,
    subscribers: Rc<Subscribers>,
    pub tracking: Tracking,
    feeds: RefCell<HashMap<Arc<str>, Rc<Feed>>>,
}

/// What changes in one namespace.
struct Feed {
    namespace: Arc<str>,
    /// Who wants it.
    users: Cell<usize>,
    /// Who of those wants events: how many in which place.
    of_events: RefCell<BTreeMap<Place, usize>>,
    state: watch::Sender<State>,
}

#[derive(Clone, Debug)]
enum State {
    Begins,
    /// Each change from now on is told.
    Runs,
    /// Nobody wants to know any more.
    Left,
    Ended,
}

/// One that wants it; when it goes, the feed may end.
pub struct Wants {
    feed: Rc<Feed>,
    all: Rc<Changes>,
    events: Option<Place>,
}

impl std::fmt::Debug for Wants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wants")
    }
}

/// A key that changed, and what Redis calls that: nothing if it has no word for it.
#[derive(Clone, PartialEq, Debug)]
struct Changed {
    /// Of its shard; 0 where nobody counts them.
    version: u64,
    key: Bytes,
    events: [&'static str; 2],
}

/// Does a channel or pattern ask for events?
pub fn is_of_events(name: &[u8]) -> bool {
    name.starts_with(b"__key")
}

/// The database that a channel or pattern of events names; none if it may mean any.
pub fn database_of(name: &[u8]) -> Option<u32> {
    let number = name.strip_prefix(KEYSPACE).or_else(|| name.strip_prefix(KEYEVENT))?;
    let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !number[digits..].starts_with(b"__") {
        return None;
    }
    std::str::from_utf8(&number[..digits]).ok()?.parse().ok()
}

impl Changes {
    pub fn new(gate: Rc<Gate>, subscribers: Rc<Subscribers>) -> Rc<Self> {
        let tracking = Tracking::new(Rc::clone(&subscribers));
        Rc::new(Self { gate, subscribers, tracking, feeds: RefCell::default() })
    }

    /// Wants to know what changes in this namespace, or hears why nobody tells.
    pub fn want(self: &Rc<Self>, namespace: &Arc<str>, class: Class, events: Option<Place>) -> Result<Wants, String> {
        let is_old = class == Class::Linear && self.gate.view().root.level < linear::LEVEL;
        match class {
            Class::Linear if is_old => {
                return Err("changes of keys are told when the last node has the new program".to_owned());
            }
            Class::Linear | Class::Soft => (),
            _ => {
                return Err(format!(
                    "class {class} tells nobody which keys change: classes linear and soft do (docs/guide/channels.md)"
                ));
            }
        }
        let feed = self.feeds.borrow().get(namespace).cloned();
        let feed = feed.unwrap_or_else(|| self.begin(namespace, class));
        feed.users.set(feed.users.get() + 1);
        if let Some(place) = &events {
            *feed.of_events.borrow_mut().entry(place.clone()).or_default() += 1;
        }
        Ok(Wants { feed, all: Rc::clone(self), events })
    }

    fn begin(self: &Rc<Self>, namespace: &Arc<str>, class: Class) -> Rc<Feed> {
        let feed = Rc::new(Feed {
            namespace: Arc::clone(namespace),
            users: Cell::new(0),
            of_events: RefCell::default(),
            state: watch::Sender::new(State::Begins),
        });
        self.feeds.borrow_mut().insert(Arc::clone(namespace), Rc::clone(&feed));
        let (all, of) = (Rc::clone(self), Rc::clone(&feed));
        tokio::task::spawn_local(async move {
            match class {
                Class::Soft => soft::follow(&all, &of).await,
                _ => linear::follow(&all, &of).await,
            }
            all.forget(&of);
            // The namespace is gone, or nobody wants to know.
            if of.is_wanted() {
                of.state.send_replace(State::Ended);
                all.tracking.missed(&of.namespace, false);
            }
        });
        feed
    }

    fn forget(&self, feed: &Rc<Feed>) {
        let mut feeds = self.feeds.borrow_mut();
        if feeds.get(&feed.namespace).is_some_and(|kept| Rc::ptr_eq(kept, feed)) {
            feeds.remove(&feed.namespace);
        }
    }

    /// These keys changed, in this order.
    fn changed(&self, feed: &Feed, changed: &[Changed]) {
        self.tracking.changed(&feed.namespace, changed);
        let places: Vec<Place> = feed.of_events.borrow().keys().cloned().collect();
        for (home, database) in &places {
            let number = database.to_string();
            let begin = |of: &[u8]| [of, number.as_bytes(), BEHIND].concat();
            let (keyspace, keyevent) = (begin(KEYSPACE), begin(KEYEVENT));
            for Changed { key, events, .. } in changed {
                for event in events.iter().filter(|event| !event.is_empty()) {
                    let said = Bytes::from_static(event.as_bytes());
                    self.deliver(home, [&keyspace, &key[..]].concat(), said.clone());
                    self.deliver(home, [&keyevent, &said[..]].concat(), key.clone());
                }
            }
        }
    }

    fn deliver(&self, home: &str, channel: Vec<u8>, payload: Bytes) {
        let namespace = home.to_owned();
        self.subscribers.deliver(&Message { namespace, shard: false, channel: channel.into(), payload });
    }

    /// Some changes may be missing, or all keys are gone.
    fn missed(&self, feed: &Feed) {
        let is_begin = matches!(*feed.state.borrow(), State::Begins | State::Left);
        self.tracking.missed(&feed.namespace, is_begin);
    }
}

impl Feed {
    fn is_wanted(&self) -> bool {
        self.users.get() > 0
    }

    fn runs(&self) {
        self.state.send_if_modified(|state| {
            let begins = matches!(state, State::Begins);
            if begins {
                *state = State::Runs;
            }
            begins
        });
    }
}

impl Wants {
    /// Waits until each change that comes after is told. An error: there is nobody who could tell.
    pub fn begun(&self) -> impl Future<Output = Result<(), Reply>> + use<> {
        let mut state = self.feed.state.subscribe();
        async move {
            let begun = state.wait_for(|state| !matches!(state, State::Begins));
            match timeout(BEGIN_TIME_MAX, begun).await {
                // Who asked in one go with what ends it has had what it wanted.
                Ok(Ok(state)) if matches!(*state, State::Runs | State::Left) => Ok(()),
                Ok(_) => Err(Reply::error("ERR the namespace was removed")),
                Err(_) => Err(Reply::error("BUSY nobody tells now what changes in this namespace, retry in 100 ms")),
            }
        }
    }
}

impl Drop for Wants {
    fn drop(&mut self) {
        let feed = &self.feed;
        feed.users.set(feed.users.get() - 1);
        if let Some(place) = &self.events {
            let mut of_events = feed.of_events.borrow_mut();
            if let Some(count) = of_events.get_mut(place) {
                *count -= 1;
                if *count == 0 {
                    of_events.remove(place);
                }
            }
        }
        if !feed.is_wanted() {
            // Its task ends by the next answer; who wants it meanwhile begins another one.
            self.all.forget(feed);
            feed.state.send_replace(State::Left);
        }
    }
}
