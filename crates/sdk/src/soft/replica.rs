//! All that a namespace has, in this program's own memory: read without asking anybody. A stream of changes keeps it, which goes on at
//! another node when its own goes, for the price of what differs.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::{Soft, bytes_of};
use crate::node::{Call, quoted};
use crate::stream::{Event, Events, LOST};

/// The copy. Cheap to clone; it is kept as long as there is a clone of it.
#[derive(Clone)]
pub struct Replica(Arc<Kept>);

struct Kept {
    state: Arc<RwLock<State>>,
    keeper: AbortHandle,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

struct State {
    keys: Keys,
    heard: Instant,
}

type Keys = HashMap<Bytes, At>;

/// What lies at a key. One that two nodes made as different kinds at one moment has both.
#[derive(Default)]
struct At {
    register: Option<Bytes>,
    fields: BTreeMap<Bytes, Bytes>,
    members: BTreeMap<Bytes, ()>,
    /// By place.
    items: BTreeMap<Bytes, Bytes>,
    scores: BTreeMap<Bytes, f64>,
}

impl At {
    fn is_empty(&self) -> bool {
        let At { register, fields, members, items, scores } = self;
        register.is_none() && fields.is_empty() && members.is_empty() && items.is_empty() && scores.is_empty()
    }
}

impl Replica {
    pub(super) async fn of(soft: &Soft, prefix: &str) -> Self {
        let state = Arc::new(RwLock::new(State { keys: Keys::new(), heard: Instant::now() }));
        let path = format!("/v1/ns/{}/watch?prefix={}&after=", quoted(&soft.namespace), quoted(prefix));
        let events = Events::new(soft.node.clone(), Call::new(Method::GET, path, &soft.token));
        let (whole, mut is_whole) = watch::channel(false);
        let keeper = Keeper { state: Arc::clone(&state), fresh: None };
        let keeper = tokio::spawn(keeper.keep(events, whole)).abort_handle();
        let kept = Self(Arc::new(Kept { state, keeper }));
        // The keeper has the other end, and ends with this.
        let _ = is_whole.wait_for(|is_whole| *is_whole).await;
        kept
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        // What is inside is whole at every moment.
        self.0.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn at<R>(&self, key: &str, read: impl FnOnce(&At) -> R) -> Option<R> {
        self.state().keys.get(key.as_bytes()).map(read)
    }

    /// A text, or a number as text.
    pub fn get(&self, key: &str) -> Option<Bytes> {
        self.at(key, |at| at.register.clone())?
    }

    /// A number.
    pub fn number(&self, key: &str) -> Option<i64> {
        std::str::from_utf8(&self.get(key)?).ok()?.parse().ok()
    }

    pub fn field(&self, key: &str, field: &str) -> Option<Bytes> {
        self.at(key, |at| at.fields.get(field.as_bytes()).cloned())?
    }

    pub fn fields(&self, key: &str) -> BTreeMap<Bytes, Bytes> {
        self.at(key, |at| at.fields.clone()).unwrap_or_default()
    }

    pub fn contains(&self, key: &str, member: &str) -> bool {
        self.at(key, |at| at.members.contains_key(member.as_bytes())).unwrap_or(false)
    }

    pub fn members(&self, key: &str) -> Vec<Bytes> {
        self.at(key, |at| at.members.keys().cloned().collect()).unwrap_or_default()
    }

    /// Of a list, in order.
    pub fn items(&self, key: &str) -> Vec<Bytes> {
        self.at(key, |at| at.items.values().cloned().collect()).unwrap_or_default()
    }

    pub fn score(&self, key: &str, member: &str) -> Option<f64> {
        self.at(key, |at| at.scores.get(member.as_bytes()).copied())?
    }

    pub fn keys(&self) -> Vec<Bytes> {
        self.state().keys.keys().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.state().keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Since when no node has said how far it is: one that is there does so every 10 s at least.
    pub fn age(&self) -> Duration {
        self.state().heard.elapsed()
    }
}

struct Keeper {
    state: Arc<RwLock<State>>,
    /// All is told anew: what has come of it. Until it is whole what was there before is read.
    fresh: Option<Keys>,
}

impl Keeper {
    async fn keep(mut self, mut events: Events, whole: watch::Sender<bool>) {
        loop {
            let event = events.next().await;
            match event.name.as_str() {
                "put" | "remove" => drop(self.change(&event)),
                // After the latter the stream begins with what there is, as nobody knows where it was.
                "reset" | LOST => self.fresh = Some(Keys::new()),
                "cursor" => {
                    let is_more = serde_json::from_str::<Value>(&event.data).is_ok_and(|body| body["more"] == true);
                    let fresh = if is_more { None } else { self.fresh.take() };
                    self.with(|state| {
                        state.heard = Instant::now();
                        if let Some(keys) = fresh {
                            state.keys = keys;
                        }
                    });
                    if !is_more {
                        whole.send_replace(true);
                    }
                }
                _ => (),
            }
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// None: no node that keeps to docs/guide/soft.md says so.
    fn change(&mut self, event: &Event) -> Option<()> {
        let body: Value = serde_json::from_str(&event.data).ok()?;
        let (key, kind) = (bytes_of(&body["key"])?, body["type"].as_str()?.to_owned());
        let element = bytes_of(&body["element"]).unwrap_or_default();
        let value = match (event.name == "put", &body["value"]) {
            (false, _) => None,
            (true, Value::Null) => Some(Bytes::new()),
            (true, value) => Some(bytes_of(value)?),
        };
        match &mut self.fresh {
            Some(keys) => put(keys, key, &kind, element, value),
            None => self.with(|state| put(&mut state.keys, key, &kind, element, value)),
        }
    }
}

/// Puts a value to its place, or takes away what is there.
fn put(keys: &mut Keys, key: Bytes, kind: &str, element: Bytes, value: Option<Bytes>) -> Option<()> {
    fn place<V>(map: &mut BTreeMap<Bytes, V>, element: Bytes, value: Option<V>) {
        match value {
            Some(value) => drop(map.insert(element, value)),
            None => drop(map.remove(&element)),
        }
    }
    let at = keys.entry(key.clone()).or_default();
    match kind {
        "string" => at.register = value,
        "hash" => place(&mut at.fields, element, value),
        "set" => place(&mut at.members, element, value.map(drop)),
        "list" => place(&mut at.items, element, value),
        "zset" => place(&mut at.scores, element, value.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok())),
        // Of a newer node.
        _ => (),
    }
    if at.is_empty() {
        keys.remove(&key);
    }
    Some(())
}
