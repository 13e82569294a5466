//! How many keys a namespace has, for INFO: asked of the node now and then, and known in between.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Outcome;
use bytes::Bytes;
use state::linear::{Op as Linear, Over, Ran, Reply as Got, Step};
use state::session::{Action, Reply as Found};
use state::{Class, cache};

use crate::resp::limits::*;
use crate::resp::offers;
use crate::resp::ops::Space;

/// What was counted last, by namespace. As many as this node has asked for lately.
#[derive(Default, Debug)]
pub struct Keyspace(RefCell<HashMap<Arc<str>, Counted>>);

#[derive(Clone, Copy, Debug)]
struct Counted {
    /// When the count was begun.
    at: Instant,
    /// None while none has succeeded.
    keys: Option<Keys>,
    /// How long nobody needs to count again.
    lasts: Duration,
}

/// How many there are, and how many of them have an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    all: u64,
    ending: u64,
}

impl Keyspace {
    /// What is known, if it is not too old to be said without asking. Nothing, while it is being counted for the first time.
    pub fn fresh(&self, namespace: &str) -> Option<Option<Keys>> {
        let known = self.0.borrow().get(namespace).copied();
        known.filter(|known| known.at.elapsed() < known.lasts).map(|known| known.keys)
    }

    /// What is known, however old it is.
    pub fn last(&self, namespace: &str) -> Option<Keys> {
        self.0.borrow().get(namespace)?.keys
    }

    /// Counts them, if that does not take too long; else what was counted before.
    pub async fn count(self: Rc<Self>, space: Space, class: Class) -> Option<Keys> {
        // However many ask meanwhile, and however it ends, this is asked once in that time.
        self.note(
            &space.name,
            Counted { at: Instant::now(), keys: self.last(&space.name), lasts: KEYSPACE_TRIED_EVERY },
        );
        let counting = (offers::of(class).count)(&space);
        if let Ok(Some(keys)) = tokio::time::timeout(KEYSPACE_TIME_MAX, counting).await {
            self.note(&space.name, Counted { at: Instant::now(), keys: Some(keys), lasts: KEYSPACE_AGE_MAX });
        }
        self.last(&space.name)
    }

    fn note(&self, namespace: &Arc<str>, counted: Counted) {
        let mut known = self.0.borrow_mut();
        // Of namespaces that there are no more nobody asks.
        known.retain(|_, known| known.at.elapsed() < 2 * KEYSPACE_AGE_MAX);
        known.insert(Arc::clone(namespace), counted);
    }
}

impl Keys {
    /// As Redis writes it: nothing if there is none.
    pub fn line(self, database: u32) -> String {
        let Keys { all, ending } = self;
        if all == 0 { String::new() } else { format!("db{database}:keys={all},expires={ending},avg_ttl=0\r\n") }
    }
}

/// Each value has an end.
pub async fn count_session(space: &Space) -> Option<Keys> {
    match space.ask(space.op(Bytes::new(), Action::Count)).await {
        Outcome::Done(Found::Count(all)) => Some(Keys { all, ending: all }),
        _ => None,
    }
}

/// Any entry may go, but most have no end of their own.
pub async fn count_cache(space: &Space) -> Option<Keys> {
    match super::cache::ask(space, Bytes::new(), cache::Act::Count).await {
        Outcome::Done(cache::Reply::Count(all)) => Some(Keys { all, ending: 0 }),
        _ => None,
    }
}

pub async fn count_soft(space: &Space) -> Option<Keys> {
    match space.ask_soft(state::soft::Action::Count).await {
        Outcome::Done(state::soft::Reply::Int(all)) => Some(Keys { all: all.unsigned_abs(), ending: 0 }),
        _ => None,
    }
}

pub async fn count_linear(space: &Space) -> Option<Keys> {
    // Not all nodes may know the second one yet.
    for functions in [&["count", "count.ending"][..], &["count"]] {
        let steps = functions.iter().map(|function| Step::new(Bytes::new(), function, Vec::new())).collect();
        let op = Linear { over: Over::Each, ..Linear::of(Arc::clone(&space.name), steps) };
        match space.ask_linear(op).await {
            Outcome::Done(Ran::Done(got)) => {
                let number = |got: Option<&Got>| if let Some(Got::Int(n)) = got { n.unsigned_abs() } else { 0 };
                return Some(Keys { all: number(got.first()), ending: number(got.get(1)) });
            }
            Outcome::Refused(refused) if refused.retry_after.is_none() => (),
            _ => return None,
        }
    }
    None
}
