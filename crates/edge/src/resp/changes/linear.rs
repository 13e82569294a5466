//! Follows a namespace of class `linear`: each shard's changes after a version, by a question that its leader lets wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Span;
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use node::{Ask, View};
use state::Class;
use state::linear::limits::WATCH_HOLD;
use state::linear::{Op, Over, Ran, Reply as Got};
use tokio::time::{Instant, sleep};

use super::events::of_function;
use super::{AGAIN, Changed, Changes, Feed, SILENCE_MAX};
use crate::resp::limits::LINEAR_BUDGET;
use crate::resp::ops;

/// The level of programs that say which function made a change.
pub const LEVEL: u32 = 8;

/// The range of a shard's hashes.
type Shard = (u64, u64);

/// How far one shard is known.
#[derive(Clone, Copy)]
struct Place {
    /// All changes up to this version were told; none: it has not been asked yet.
    told: Option<u64>,
    heard: Instant,
    /// It was silent for long, and those who keep values know.
    is_silent: bool,
}

enum Page {
    Changes(u64, Vec<Changed>),
    /// All keys of the shard are gone, or the changes since are: it goes on after this version.
    Missed(u64),
    Failed,
}

pub async fn follow(all: &Changes, feed: &Feed) {
    let mut places: BTreeMap<Shard, Place> = BTreeMap::new();
    let mut asks = FuturesUnordered::new();
    let mut asked: Vec<Shard> = Vec::new();
    while feed.is_wanted() {
        let view = all.gate.view();
        if view.class_of(&feed.namespace) != Class::Linear {
            return;
        }
        // Where a shard was split, each part goes on from where the whole was.
        let shards = shards(&view, &feed.namespace);
        if !shards.is_empty() && !shards.iter().eq(places.keys()) {
            let begin = Place { told: None, heard: Instant::now(), is_silent: false };
            let of =
                |shard: &Shard| places.range(..=(shard.0, u64::MAX)).next_back().map_or(begin, |(_, place)| *place);
            places = shards.iter().map(|shard| (*shard, of(shard))).collect();
            (asks, asked) = (FuturesUnordered::new(), Vec::new());
        }
        for (shard, place) in &places {
            if !asked.contains(shard) {
                asked.push(*shard);
                let (shard, told) = (*shard, place.told);
                asks.push(ask(all, feed, shard, told).map(move |page| (shard, page)).boxed_local());
            }
        }
        let Some((shard, page)) = asks.next().await else {
            // It was just declared: its shards are to come.
            sleep(AGAIN).await;
            continue;
        };
        asked.retain(|other| *other != shard);
        let Some(place) = places.get_mut(&shard) else { continue };
        let now = Instant::now();
        match page {
            Page::Failed => {
                if place.told.is_some() && !place.is_silent && now - place.heard > SILENCE_MAX {
                    place.is_silent = true;
                    all.missed(feed);
                }
                continue;
            }
            Page::Changes(upto, changed) => {
                let is_first = place.told.is_none();
                *place = Place { told: Some(upto), heard: now, is_silent: false };
                if is_first {
                    // What was read before this answer may have changed before it, too.
                    all.missed(feed);
                }
                all.changed(feed, &changed);
            }
            Page::Missed(now_at) => {
                *place = Place { told: Some(now_at), heard: now, is_silent: false };
                all.missed(feed);
            }
        }
        if places.values().all(|place| place.told.is_some()) {
            feed.runs();
        }
    }
}

fn shards(view: &View, namespace: &str) -> Vec<Shard> {
    let of = view.namespaces.iter().find(|other| other.name == namespace);
    let mut shards: Vec<Shard> = of.into_iter().flat_map(|of| of.shards.iter()).map(|s| (s.from, s.to)).collect();
    shards.sort_unstable();
    shards
}

/// What a shard has after a version, however long that takes; of one that was not asked yet, how far it is.
fn ask(all: &Changes, feed: &Feed, (from, to): Shard, told: Option<u64>) -> impl Future<Output = Page> + use<> {
    let (after, how) = told.map_or(("-".to_owned(), "now+by"), |told| (told.to_string(), "wait+by"));
    let args = vec![Bytes::from(after), Bytes::from_static(how.as_bytes()), Bytes::new()];
    let op = Op::one(Arc::clone(&feed.namespace), Bytes::new(), "changes.prefix", args);
    let budget: Span = WATCH_HOLD + LINEAR_BUDGET;
    let began = Instant::now();
    let waiting = all.gate.ask_for(Ask::Linear(Op { over: Over::Range { from, to }, ..op }), budget);
    async move {
        let page = page(ops::linear_outcome(waiting.await));
        let is_quiet = matches!(&page, Page::Changes(_, changed) if changed.is_empty() && told.is_some());
        if matches!(page, Page::Failed) || is_quiet && began.elapsed() < AGAIN {
            sleep(AGAIN).await;
        }
        page
    }
}

fn page(outcome: base::Outcome<Ran>) -> Page {
    let base::Outcome::Done(Ran::Done(mut replies)) = outcome else { return Page::Failed };
    let Some(Got::List(parts)) = replies.pop() else { return Page::Failed };
    match &parts[..] {
        [Got::Int(upto), Got::List(changes)] => {
            let (upto, read) = (*upto as u64, changes.iter().map(changed).collect::<Option<Vec<_>>>());
            read.map_or(Page::Missed(upto), |changed| Page::Changes(upto, changed))
        }
        [Got::Int(now), Got::Nil, Got::Int(_)] => Page::Missed(*now as u64),
        _ => Page::Failed,
    }
}

/// None: all keys of the shard were removed.
fn changed(change: &Got) -> Option<Changed> {
    let Got::List(parts) = change else { return None };
    let [Got::Int(version), Got::Bytes(key), Got::Bytes(what), _, Got::Bytes(by)] = &parts[..] else { return None };
    (&what[..] != b"cleared").then(|| Changed {
        version: *version as u64,
        key: key.clone(),
        events: of_function(by, what),
    })
}
