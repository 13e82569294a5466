//! Changes of a `linear` namespace as server-sent events, from a version on (`changes.rs`). A slow client costs nothing. Each shard has
//! versions of its own and is asked for itself; when one is split, both its halves go on from where it was.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::response::sse::Event;
use base::{Outcome, Priority};
use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use node::{Answer, Ask, View};
use serde::Deserialize;
use serde_json::json;
use state::Class;
use state::linear::limits::WATCH_HOLD;
use state::linear::{Op, Over, Ran, Reply};
use tokio::time::{sleep, timeout};

use super::changes::{self, COMPACTED, last_word, was_removed};
use super::limits::*;
use super::linear::{problem, shown};
use super::places::Who;
use super::problem::{done, odd};
use super::values::passed_on;
use super::versions::Versions;
use super::{Api, Problem, address};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Of one key; else of all with a prefix.
    key: Option<Bytes>,
    prefix: Option<Bytes>,
    /// Of changes with higher versions; without it, of those from now on.
    after: Option<Versions>,
}

/// What is watched.
#[derive(Clone)]
struct What {
    ns: Arc<str>,
    key: Option<Bytes>,
    prefix: Bytes,
    priority: Priority,
}

/// The range of a shard's hashes.
type Shard = (u64, u64);

/// Where somebody watches.
struct Place {
    what: What,
    /// Those that there are, in order.
    shards: Vec<Shard>,
    /// All changes up to these have been told.
    told: Versions,
    /// Questions under way, one for a shard at most.
    asks: FuturesUnordered<BoxFuture<'static, (usize, Result<Page, Event>)>>,
    /// Shards that are to be asked again.
    idle: Vec<usize>,
}

/// What there is after a place.
enum Page {
    Changes {
        upto: u64,
        changes: Vec<Reply>,
    },
    /// Some are gone.
    Missed {
        now: u64,
        oldest: u64,
    },
    /// The namespace has other shards now.
    Split,
}

impl Page {
    /// How far the shard is, as far as it was read.
    fn upto(&self) -> u64 {
        match self {
            Page::Changes { upto, .. } => *upto,
            Page::Missed { now, .. } => *now,
            Page::Split => unreachable!("only who waits hears of it"),
        }
    }
}

/// `event: version` says how far one is, at first and when nothing happens; `put`, `remove`, `clear` are changes. `error` is
/// the last one.
pub async fn watch(api: &Api, ns: String, query: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    let (api, watch): (Api, Watch) = (api.clone(), address::read(query)?);
    if watch.key.is_some() == watch.prefix.is_some() {
        return Err(Problem::wrong("say `key=` for one key, or `prefix=` for many (an empty one for all)"));
    }
    let wrong = "Last-Event-ID must be the id of an event of this stream, a version";
    let after = changes::after(headers, watch.after, |id| id.parse().ok(), wrong)?;
    if let Some(after) = after.as_ref().filter(|after| watch.key.is_some() && after.0.len() > 1) {
        return Err(Problem::wrong(format!("{after} is {} versions, and a key has one", after.0.len())));
    }
    let (key, prefix) = (watch.key, watch.prefix.unwrap_or_default());
    let priority = passed_on(headers)?.0.map_or(Priority::NORMAL, Priority::of_ten);
    let what = What { ns: ns.into(), key, prefix, priority };
    let room = api.watchers.take(Who::Namespace(Arc::clone(&what.ns)))?;
    let shards = what.shards_of(&api, after.as_ref()).await?;
    let (place, first) = Place::begin(&api, what, after, shards).await?;
    Ok(changes::tell(&api, room, first, place))
}

impl What {
    /// The shards that are to be asked. A key is asked for wherever it is.
    fn shards(&self, view: &View) -> Vec<Shard> {
        if self.key.is_some() {
            return vec![(0, u64::MAX)];
        }
        let of = view.namespaces.iter().find(|namespace| namespace.name == *self.ns);
        let mut shards: Vec<Shard> = of.into_iter().flat_map(|of| of.shards.iter()).map(|s| (s.from, s.to)).collect();
        shards.sort_unstable();
        shards
    }

    /// The shards, if these versions are theirs.
    async fn shards_of(&self, api: &Api, after: Option<&Versions>) -> Result<Vec<Shard>, Problem> {
        let versions = after.map_or(1, |after| after.0.len());
        // Another node may have heard of a split, and told of it, before this one.
        let mut views = api.backend.watch();
        let heard = views.wait_for(|view| self.shards(view).len() >= versions);
        let _ = timeout(SHOWN_TIME_MAX, heard).await;
        let shards = self.shards(&api.view());
        match after {
            _ if shards.is_empty() => {
                Err(Problem::busy(format!("this node does not know the shards of {} yet", self.ns), WATCH_AGAIN))
            }
            Some(after) if versions != shards.len() => {
                // Shards are never joined.
                let was = if versions < shards.len() { "shards were split since" } else { "it has never had more" };
                let count = shards.len();
                let why = format!(
                    "{after} is {versions} versions, and this namespace has {count}, one for each shard: {was}"
                );
                let asks = shards.iter().map(|shard| self.ask(api, *shard, None, "now"));
                let pages = join_all(asks).await.into_iter().collect::<Result<Vec<_>, Problem>>()?;
                Err(compacted(&why, Versions(pages.iter().map(Page::upto).collect())))
            }
            _ => Ok(shards),
        }
    }

    /// What a shard has after a version (none: nothing, but how far it is).
    async fn ask(&self, api: &Api, (from, to): Shard, after: Option<u64>, how: &'static str) -> Result<Page, Problem> {
        let after = after.map_or("-".to_owned(), |after| after.to_string());
        let args = vec![Bytes::from(after), Bytes::from_static(how.as_bytes())];
        let op = match &self.key {
            Some(key) => Op::one(Arc::clone(&self.ns), key.clone(), "changes", args),
            None => {
                let args = [args, vec![self.prefix.clone()]].concat();
                let op = Op::one(Arc::clone(&self.ns), Bytes::new(), "changes.prefix", args);
                Op { over: Over::Range { from, to }, ..op }
            }
        };
        let op = Op { priority: self.priority, ..op };
        let outcome = match api.backend.ask(Ask::Linear(op), WATCH_HOLD + LINEAR_BUDGET).await? {
            Answer::Linear(Outcome::Unknown(unknown)) => return Err(Problem::busy(unknown.to_string(), WATCH_AGAIN)),
            Answer::Linear(outcome) => outcome,
            other => unreachable!("a linear operation was answered by {other:?}"),
        };
        match done(outcome)? {
            Ran::Done(mut replies) => match replies.pop() {
                Some(Reply::Wrong(wrong)) => Err(problem(wrong)),
                Some(Reply::List(parts)) => match <[Reply; 2]>::try_from(parts) {
                    Ok([Reply::Int(upto), Reply::List(changes)]) => Ok(Page::Changes { upto: upto as u64, changes }),
                    Ok(other) => Err(odd(&other)),
                    Err(parts) => match parts[..] {
                        [Reply::Int(now), Reply::Nil, Reply::Int(oldest)] => {
                            Ok(Page::Missed { now: now as u64, oldest: oldest as u64 })
                        }
                        _ => Err(odd(&parts)),
                    },
                },
                other => Err(odd(&other)),
            },
            Ran::Unmet => Err(odd(&Ran::Unmet)),
        }
    }

    /// What comes after a version, however long that takes; or the last word.
    async fn wait(&self, api: &Api, shard: Shard, after: u64) -> Result<Page, Event> {
        let mut how = "wait";
        loop {
            match self.ask(api, shard, Some(after), how).await {
                // It is there to be told of: it waits again, if it may.
                Ok(Page::Changes { changes, .. }) if how == "now" && changes.is_empty() => how = "wait",
                Ok(page) => return Ok(page),
                // Nothing is lost meanwhile: the place is kept here. Where so many wait that no more may, what there is is seen by
                // looking.
                Err(Problem { retry_after: Some(_), .. }) => {
                    sleep(WATCH_AGAIN.into()).await;
                    how = "now";
                }
                Err(problem) => return Err(last_word("ended", &problem.error, None)),
            }
            if api.view().class_of(&self.ns) != Class::Linear {
                return Err(was_removed());
            }
            if !self.shards(&api.view()).contains(&shard) {
                return Ok(Page::Split);
            }
        }
    }
}

impl changes::Place for Place {
    async fn next(&mut self, api: &Api) -> (Vec<Event>, bool) {
        for shard in std::mem::take(&mut self.idle) {
            let (api, what, range) = (api.clone(), self.what.clone(), self.shards[shard]);
            let after = self.told.0[shard];
            self.asks.push(async move { (shard, what.wait(&api, range, after).await) }.boxed());
        }
        let Some((shard, page)) = self.asks.next().await else {
            return (vec![last_word("ended", "the namespace has no shards", None)], false);
        };
        self.idle.push(shard);
        match page {
            Ok(Page::Changes { upto, changes }) => match self.tell(shard, upto, &changes) {
                Ok(events) if events.is_empty() => (vec![how_far(&self.told)], true),
                Ok(events) => (events, true),
                Err(events) => (events, false),
            },
            Ok(Page::Missed { now, oldest }) => {
                let after = std::mem::replace(&mut self.told.0[shard], now);
                let why = read_again(&missed(after, now, oldest), &self.told);
                (vec![last_word(COMPACTED, &why, Some(&self.told))], false)
            }
            Ok(Page::Split) => {
                self.follow(self.what.shards(&api.view()));
                (vec![how_far(&self.told)], true)
            }
            Err(event) => (vec![event], false),
        }
    }
}

impl Place {
    /// The place, if it goes on, and the first events.
    async fn begin(
        api: &Api,
        what: What,
        after: Option<Versions>,
        shards: Vec<Shard>,
    ) -> Result<(Option<Self>, Vec<Event>), Problem> {
        let begins = |shard: usize| after.as_ref().map(|after| after.0[shard]);
        let asks = shards.iter().enumerate().map(|(nth, shard)| what.ask(api, *shard, begins(nth), "now"));
        let pages = join_all(asks).await.into_iter().collect::<Result<Vec<_>, Problem>>()?;
        let upto = Versions(pages.iter().map(Page::upto).collect());
        let told = after.clone().unwrap_or_else(|| upto.clone());
        let idle = (0..shards.len()).collect();
        let mut place = Self { what, shards, told, asks: FuturesUnordered::new(), idle };
        let mut events = Vec::new();
        for (shard, page) in pages.into_iter().enumerate() {
            match page {
                Page::Changes { upto, changes } => match place.tell(shard, upto, &changes) {
                    Ok(more) => events.extend(more),
                    Err(more) => {
                        events.extend(more);
                        return Ok((None, events));
                    }
                },
                Page::Missed { now, oldest } => {
                    let after = begins(shard).unwrap_or_default();
                    // All is read again, of the other shards, too.
                    return Err(compacted(&missed(after, now, oldest), upto));
                }
                Page::Split => unreachable!("only who waits hears of it"),
            }
        }
        if events.is_empty() {
            events.push(how_far(&place.told));
        }
        Ok((Some(place), events))
    }

    /// Each of these shards goes on from where the one was that it is a part of.
    fn follow(&mut self, shards: Vec<Shard>) {
        let was = |(from, _): &Shard| self.shards.iter().rposition(|(begin, _)| begin <= from).unwrap_or(0);
        self.told = Versions(shards.iter().map(|shard| self.told.0[was(shard)]).collect());
        (self.idle, self.shards) = ((0..shards.len()).collect(), shards);
        self.asks.clear();
    }

    /// Events of a shard's changes, each with the place behind it. Err: with the last word.
    fn tell(&mut self, shard: usize, upto: u64, changes: &[Reply]) -> Result<Vec<Event>, Vec<Event>> {
        let mut events = Vec::new();
        for change in changes {
            let Some((version, event, is_clear)) = event(change) else {
                events.push(last_word("ended", &odd(change).error, None));
                return Err(events);
            };
            self.told.0[shard] = version;
            // Nobody outside knows which keys those of one shard are.
            if is_clear && self.told.0.len() > 1 {
                self.told.0[shard] = upto;
                let why = format!("cleared: read again, and watch after version {}", self.told);
                events.push(last_word("cleared", &why, Some(&self.told)));
                return Err(events);
            }
            events.push(event.id(self.told.to_string()));
        }
        self.told.0[shard] = upto;
        Ok(events)
    }
}

fn missed(after: u64, now: u64, oldest: u64) -> String {
    if after > now {
        return format!("version {after} has never been");
    }
    format!("changes after version {after} are not kept any more, the oldest are after {oldest}")
}

fn read_again(why: &str, version: &Versions) -> String {
    format!("compacted: {why}: read again, and watch after version {version}")
}

fn compacted(why: &str, version: Versions) -> Problem {
    let problem = Problem::new(StatusCode::GONE, read_again(why, &version));
    Problem { kind: Some(COMPACTED), version: Some(version), ..problem }
}

fn how_far(told: &Versions) -> Event {
    Event::default().event("version").id(told.to_string()).data(json!({"version": told}).to_string())
}

/// Of a change: its version, the event without an id, and whether all keys of its shard are gone. None: it is not one.
fn event(change: &Reply) -> Option<(u64, Event, bool)> {
    let Reply::List(parts) = change else { return None };
    let [Reply::Int(version), key, Reply::Bytes(what), text] = &parts[..] else { return None };
    let (name, body) = match &what[..] {
        b"cleared" => ("clear", json!({"version": version})),
        b"removed" => ("remove", json!({"key": shown(key), "version": version})),
        b"ended" => ("remove", json!({"key": shown(key), "version": version, "ended": true})),
        kind => {
            let mut body = json!({"key": shown(key), "version": version, "type": String::from_utf8_lossy(kind)});
            if let Reply::Bytes(_) = text {
                body["value"] = shown(text);
            }
            ("put", body)
        }
    };
    Some((*version as u64, Event::default().event(name).data(body.to_string()), name == "clear"))
}
