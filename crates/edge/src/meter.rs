//! What the front doors count: requests, failures and latency of the last second, for the monitor and for load reports.
//! Counting costs a few relaxed atomic adds per request and never waits; whoever asks for gauges pays for the sums.
//! Stages ([`flow::Stage`]) leave here what they show of themselves, by name.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flow::histogram::{BUCKETS, Powers, bucket_of, percentile};
use flow::stage::Shown;
use tokio::sync::Semaphore;

use crate::answers::Answers;
use crate::clone_stages::{CloneStages, name as clone_stage};
use crate::demand::Demands;
use crate::limits::{PIPED_BYTES_MAX, PIPED_REPAIRS_MAX};
use crate::newcomers::{Newcomer, Newcomers};
use crate::overload::{Overloads, Told};
use crate::pace::Stays;
use crate::share::{LEAVES, Share, Shares};
use crate::turnstile::{Name, Turnstiles};
use crate::under_way::UnderWay;

/// Gauges are of one second. Asked again sooner than this, the same second is shown: two readers must not halve it.
const ROLL_MIN: Duration = Duration::from_millis(900);

/// All doors of one node.
#[derive(Debug)]
pub struct Meter {
    /// `http.requests`, `http.errors` (5xx of our own making), `http.p50_us`, `http.p99_us`, `http.connections`.
    pub http: Arc<Door>,
    /// `resp.commands`, `resp.errors`, `resp.p50_us`, `resp.p99_us`, `resp.connections`.
    pub resp: Arc<Door>,
    /// `resp.unread_bytes`, `resp.unread_closed_total`.
    pub unread: Unread,
    /// `resp.subscribers_bytes`, `resp.subscribers_closed_total`, `resp.subscriptions_refused_total`.
    pub subscribers: Subscribers,
    /// Of the API's door, no figure: for a node that is about to end.
    pub api: Arc<UnderWay>,
    /// `tcp.streams` (connections ended), `tcp.errors` (no clone reached), `tcp.connections`.
    pub tcp: Arc<Door>,
    /// `http.sessions_read_total` and so on.
    pub sessions: Arc<Sessions>,
    /// Of edge caches, by service.
    pub caches: Arc<CacheMeter>,
    pub pipes: Arc<Pipes>,
    /// `functions.calls_total` and so on.
    pub calls: Arc<Calls>,
    /// `stage.NAME.waiting`, `stage.NAME.limit`, and so on.
    pub stages: Arc<Stages>,
    /// `stage.clone-shop/2:database.waiting` and so on.
    pub clones: CloneStages,
    pub turnstiles: Arc<Turnstiles>,
    /// `stage.NAME.refused_a_second`, while it is overloaded.
    pub overloads: Overloads,
    /// When turnstiles were shown last.
    shown_at: Mutex<Option<Instant>>,
    /// What the clones of services are asked for: for the manager.
    pub demands: Arc<Demands>,
    /// The long connections through all doors.
    pub stays: Arc<Stays>,
}

/// What each stage of a node last showed of itself.
#[derive(Debug, Default)]
pub struct Stages(Mutex<BTreeMap<String, Shown>>);

impl Stages {
    /// Meant to be called once a second.
    pub fn show(&self, name: &str, shown: Shown) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), shown);
    }

    #[cfg(test)]
    pub fn get(&self, name: &str) -> Option<Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    fn all(&self) -> BTreeMap<String, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, is_there: impl Fn(&str) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, _| is_there(name));
    }
}

/// What is shown of scripts that are withheld.
pub const SCRIPTS_WITHHELD: &str = "resp.scripts_withheld";

/// A stage's figures as gauges of a node: `stage.http-shop.limit`.
pub fn stage_gauges<'a>(name: &'a str, shown: &Shown) -> impl Iterator<Item = (String, u64)> + use<'a> {
    let figures = shown.gauges().into_iter().chain(shown.totals());
    figures.map(move |(figure, value)| (format!("stage.{name}.{figure}"), value))
}

/// Nodes tell each other their figures each second: of so many turnstiles, the first by name. A node's own `/metrics`
/// and its monitor have all.
const TURNSTILES_TOLD_MAX: usize = 16;
/// The same of clones' stages, by clone and name.
const CLONE_STAGES_TOLD_MAX: usize = 16;

/// Sessions that the HTTP door carried, counted since the start. Bad cookies are counted by the node (`session.cookies_*`).
#[derive(Debug, Default)]
pub struct Sessions {
    /// Given to a program with a request.
    pub read: AtomicU64,
    /// Written because a program returned a value.
    pub stored: AtomicU64,
    /// Prolonged without a new value.
    pub touched: AtomicU64,
    /// Ended by a program.
    pub ended: AtomicU64,
    /// Requests that ended in 503, since the session could not be read or stored.
    pub failed: AtomicU64,
    /// Requests that went with a copy of the profile that this node keeps.
    pub profiles_kept: AtomicU64,
    /// Profiles that were read for requests, ...
    pub profiles_read: AtomicU64,
    /// ... that could not be, so that the one that was seen last went with the request, ...
    pub profiles_old: AtomicU64,
    /// ... or none, as this node had seen none.
    pub profiles_unknown: AtomicU64,
}

/// What the edge cache of each service did since the start, of those that had requests.
#[derive(Debug, Default)]
pub struct CacheMeter(Mutex<BTreeMap<Box<str>, Arc<CacheCounts>>>);

#[derive(Debug, Default)]
pub struct CacheCounts {
    /// Answered with what was fresh, without a clone.
    pub hits: AtomicU64,
    /// Given to a clone, as nothing was there or it had to be asked for anew.
    pub misses: AtomicU64,
    /// Answered with what was not fresh any more.
    pub stale: AtomicU64,
    /// Never looked for: what they show or want is not for a cache.
    pub passed: AtomicU64,
    pub stored: AtomicU64,
    pub stored_bytes: AtomicU64,
}

impl CacheMeter {
    pub fn of(&self, service: &str) -> Arc<CacheCounts> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = all.get(service) {
            return Arc::clone(counts);
        }
        Arc::clone(all.entry(service.into()).or_default())
    }

    pub fn all(&self) -> Vec<(Box<str>, Arc<CacheCounts>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(name, counts)| (name.clone(), Arc::clone(counts))).collect()
    }
}

impl CacheMeter {
    /// For the monitor's page.
    pub fn figures(&self) -> Vec<serde_json::Value> {
        let of = |(service, counts): (Box<str>, Arc<CacheCounts>)| {
            let [hits, misses, stale, passed, stored] =
                [&counts.hits, &counts.misses, &counts.stale, &counts.passed, &counts.stored].map(|n| n.load(Relaxed));
            serde_json::json!({
                "service": service, "hits": hits, "misses": misses, "stale": stale, "passed": passed, "stored": stored
            })
        };
        self.all().into_iter().map(of).collect()
    }
}

impl Pipes {
    /// For the monitor's page.
    pub fn figures(&self) -> Vec<serde_json::Value> {
        let of = |(pipeline, counts): (Box<str>, Arc<PipeCounts>)| {
            let [exact, near, original] = [&counts.exact, &counts.near, &counts.original].map(|n| n.load(Relaxed));
            let partial = counts.partial.load(Relaxed);
            let [failed, jobs, hits] = [&counts.failed, &counts.jobs, &counts.hits].map(|n| n.load(Relaxed));
            serde_json::json!({
                "pipeline": pipeline, "exact": exact, "partial": partial, "near": near, "original": original,
                "failed": failed, "jobs": jobs, "hits": hits
            })
        };
        self.all().into_iter().map(of).collect()
    }
}

/// What the pipelines of services did since the start, of those that had requests; and the room for what waits in them.
#[derive(Debug)]
pub struct Pipes {
    counts: Mutex<BTreeMap<Box<str>, Arc<PipeCounts>>>,
    /// Bytes.
    pub room: Arc<Semaphore>,
    /// What is made good afterwards.
    pub repairs: Arc<Semaphore>,
}

#[derive(Debug, Default)]
pub struct PipeCounts {
    /// Answers as the pipeline makes them.
    pub exact: AtomicU64,
    /// As it makes them, without parts that did not come.
    pub partial: AtomicU64,
    /// As it made them of an earlier content.
    pub near: AtomicU64,
    /// As the service gave them.
    pub original: AtomicU64,
    /// 502 instead of them.
    pub failed: AtomicU64,
    /// Jobs that workers were asked for.
    pub jobs: AtomicU64,
    /// Jobs that were done before.
    pub hits: AtomicU64,
}

impl Default for Pipes {
    fn default() -> Self {
        Self {
            counts: Mutex::default(),
            room: Arc::new(Semaphore::new(PIPED_BYTES_MAX)),
            repairs: Arc::new(Semaphore::new(PIPED_REPAIRS_MAX)),
        }
    }
}

impl Pipes {
    pub fn of(&self, pipeline: &str) -> Arc<PipeCounts> {
        let mut all = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = all.get(pipeline) {
            return Arc::clone(counts);
        }
        Arc::clone(all.entry(pipeline.into()).or_default())
    }

    pub fn all(&self) -> Vec<(Box<str>, Arc<PipeCounts>)> {
        let all = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(name, counts)| (name.clone(), Arc::clone(counts))).collect()
    }
}

/// Answers of the Redis door that clients have not taken, but for what each connection may have anyway.
#[derive(Debug, Default)]
pub struct Unread {
    bytes: AtomicU64,
    /// Connections closed as they had too many of them, since the start.
    closed: AtomicU64,
}

impl Unread {
    pub fn show(&self, bytes: usize) {
        self.bytes.store(bytes as u64, Relaxed);
    }

    pub fn closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }
}

/// Messages on channels that clients have not taken.
#[derive(Debug, Default)]
pub struct Subscribers {
    bytes: AtomicU64,
    /// Connections closed as they did not read, and subscriptions refused as they were too many, since the start.
    closed: AtomicU64,
    refused: AtomicU64,
}

impl Subscribers {
    pub fn show(&self, bytes: usize) {
        self.bytes.store(bytes as u64, Relaxed);
    }

    pub fn closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    pub fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
}

/// Functions of services, counted since the start.
#[derive(Debug, Default)]
pub struct Calls {
    calls: AtomicU64,
    rounds: AtomicU64,
    conflicts: AtomicU64,
}

impl Calls {
    pub fn asked(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    /// A clone is asked for some calls of one key.
    pub fn round(&self) {
        self.rounds.fetch_add(1, Relaxed);
    }

    /// What it gave was not written, as somebody else was faster.
    pub fn conflicted(&self) {
        self.conflicts.fetch_add(1, Relaxed);
    }
}

/// One front door's counts.
#[derive(Debug)]
pub struct Door {
    name: &'static str,
    /// What one unit of work is called in gauges: `requests`, `commands`.
    unit: &'static str,
    done: AtomicU64,
    errors: AtomicU64,
    connections: AtomicU64,
    shares: Arc<Shares>,
    /// Listeners that take new connections.
    listeners: AtomicU64,
    /// Clients are told with each answer to send no more by the same connection.
    parts: AtomicBool,
    /// Connections that stay open between two requests, of those that came before.
    kept: AtomicU64,
    /// Connections of HTTP/1 since [`Self::part`].
    pub newcomers: Newcomers,
    latency_us: Box<[AtomicU64]>,
    /// Of all of them together.
    sum_us: AtomicU64,
    /// Of the HTTP door alone.
    pub answers: Answers,
    last: Mutex<Last>,
}

/// Sums at the last roll, and what the second before it looked like.
#[derive(Debug)]
struct Last {
    at: Instant,
    done: u64,
    errors: u64,
    latency_us: Vec<u64>,
    shown: Second,
}

#[derive(Clone, Copy, Debug, Default)]
struct Second {
    done: u64,
    errors: u64,
    p50_us: u64,
    p99_us: u64,
}

/// Holds the count of open connections up until it is dropped, and that of its client.
#[derive(Debug)]
pub struct Opened {
    door: Arc<Door>,
    share: Option<Share>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.door.connections.fetch_sub(1, Relaxed);
    }
}

impl Opened {
    /// Who has it open, at a door that has `most` connections. False: that one has too many already, `each` of them if that is
    /// said, and this one is to end.
    pub fn is_of(&mut self, client: IpAddr, most: u64, each: Option<u64>) -> bool {
        let free = most.saturating_sub(self.door.connections() - 1);
        self.share = self.door.shares.take(client, each.unwrap_or(free / LEAVES));
        self.share.is_some()
    }
}

/// A listener takes new connections until this is dropped.
#[derive(Debug)]
pub struct Listens(Arc<Door>);

impl Drop for Listens {
    fn drop(&mut self) {
        // Whoever sees that none listens sees all connections that were taken.
        self.0.listeners.fetch_sub(1, Release);
    }
}

/// A connection is there until this is dropped.
#[derive(Debug)]
pub enum Kept {
    /// It may be kept from one request to the next.
    Before(Arc<Door>),
    /// It came when clients had been told to go, and has one request at most.
    Since(Newcomer),
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Self::Before(door) = self {
            door.kept.fetch_sub(1, Relaxed);
        }
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

impl Meter {
    pub fn new() -> Self {
        Self {
            http: Arc::new(Door::new("http", "requests")),
            resp: Arc::new(Door::new("resp", "commands")),
            unread: Unread::default(),
            subscribers: Subscribers::default(),
            api: Arc::default(),
            tcp: Arc::new(Door::new("tcp", "streams")),
            sessions: Arc::default(),
            caches: Arc::default(),
            pipes: Arc::default(),
            calls: Arc::default(),
            stages: Arc::default(),
            clones: CloneStages::default(),
            turnstiles: Arc::default(),
            overloads: Overloads::default(),
            shown_at: Mutex::default(),
            demands: Arc::default(),
            stays: Arc::default(),
        }
    }

    /// What is counted of services' and namespaces' doors, each once: with TLS and without count as one.
    fn doors(&self) -> impl Iterator<Item = &Arc<Door>> {
        let mut all: Vec<_> = node::Door::all().filter_map(|door| self.of(door)).chain([&self.tcp]).collect();
        all.dedup_by(|one, other| Arc::ptr_eq(one, other));
        all.into_iter()
    }

    /// Where this door's connections and requests are counted; not those of the API and of peers.
    pub fn of(&self, door: node::Door) -> Option<&Arc<Door>> {
        match door {
            node::Door::Http | node::Door::Https => Some(&self.http),
            node::Door::Resp | node::Door::RespTls => Some(&self.resp),
            node::Door::Api | node::Door::ApiTls | node::Door::Peer => None,
        }
    }

    /// Nobody is let in at any of the node's doors, and all who were have gone. Of a TCP service's connection nobody knows when it
    /// is between two requests.
    pub fn is_empty(&self) -> bool {
        node::Door::all().filter_map(|door| self.of(door)).all(|door| door.is_empty())
    }

    /// Open connections by door.
    pub fn connections(&self) -> Vec<(&'static str, u64)> {
        self.doors().map(|door| (door.name, door.connections())).collect()
    }

    /// Figures of the last second (rates are per second), by name. Meant to be asked once a second.
    pub fn gauges(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for door in self.doors() {
            door.gauges(Instant::now(), &mut all);
        }
        all.insert("resp.subscribers_bytes".into(), self.subscribers.bytes.load(Relaxed));
        all.insert("resp.unread_bytes".into(), self.unread.bytes.load(Relaxed));
        self.show_turnstiles(Instant::now());
        let (of_doors, others): (Vec<_>, Vec<_>) =
            self.stages.all().into_iter().partition(|(name, _)| Name::is_stage(name));
        for (name, shown) in others.iter().chain(of_doors.iter().take(TURNSTILES_TOLD_MAX)) {
            all.extend(stage_gauges(name, shown));
        }
        for (name, refused) in self.overloads.each().into_iter().take(TURNSTILES_TOLD_MAX) {
            let stage = Name::of(&name).stage();
            if let Some((_, shown)) = of_doors.iter().find(|(name, _)| *name == stage) {
                all.extend(stage_gauges(&stage, shown));
            }
            all.insert(format!("stage.{stage}.refused_a_second"), refused);
        }
        for (clone, stage, shown) in self.clones.all(Instant::now()).iter().take(CLONE_STAGES_TOLD_MAX) {
            all.extend(stage_gauges(&clone_stage(clone, stage), shown));
        }
        all
    }

    /// All stages of this node's doors, as they were when gauges were asked for last.
    pub fn stages(&self) -> BTreeMap<String, Shown> {
        self.stages.all()
    }

    /// Whose overload begins or ends, as of now.
    pub fn look_for_overload(&self) -> Vec<Told> {
        let used = self.turnstiles.each().filter(|(_, turnstile)| !turnstile.is_unused());
        self.overloads.look(Instant::now(), used.map(|(name, turnstile)| (name, turnstile.heat())))
    }

    /// Turnstiles are stages, too.
    fn show_turnstiles(&self, now: Instant) {
        let mut shown_at = self.shown_at.lock().unwrap_or_else(PoisonError::into_inner);
        if shown_at.is_some_and(|at| now.saturating_duration_since(at) < ROLL_MIN) {
            return;
        }
        *shown_at = Some(now);
        let mut names = std::collections::BTreeSet::new();
        for (name, turnstile) in self.turnstiles.each().filter(|(_, turnstile)| !turnstile.is_unused()) {
            let name = Name::of(&name).stage();
            self.stages.show(&name, turnstile.show());
            names.insert(name);
        }
        self.stages.keep(|name| !Name::is_stage(name) || names.contains(name));
    }

    /// Counted since the start: `http.requests_total`, `http.errors_total`, and so on.
    pub fn totals(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for door in self.doors() {
            all.insert(format!("{}.{}_total", door.name, door.unit), door.done.load(Relaxed));
            all.insert(format!("{}.errors_total", door.name), door.errors.load(Relaxed));
            all.insert(format!("{}.connections_over_share_total", door.name), door.shares.refused());
        }
        all.insert("resp.subscribers_closed_total".into(), self.subscribers.closed.load(Relaxed));
        all.insert("resp.subscriptions_refused_total".into(), self.subscribers.refused.load(Relaxed));
        all.insert("resp.unread_closed_total".into(), self.unread.closed.load(Relaxed));
        all.insert("http.clones_left_alone_total".into(), self.demands.left_alone.load(Relaxed));
        let Calls { calls, rounds, conflicts } = &*self.calls;
        for (what, count) in [("calls", calls), ("rounds", rounds), ("conflicts", conflicts)] {
            all.insert(format!("functions.{what}_total"), count.load(Relaxed));
        }
        let Sessions { read, stored, touched, ended, failed, .. } = &*self.sessions;
        let Sessions { profiles_kept, profiles_read, profiles_old, profiles_unknown, .. } = &*self.sessions;
        for (what, count) in
            [("read", read), ("stored", stored), ("touched", touched), ("ended", ended), ("failed", failed)]
        {
            all.insert(format!("http.sessions_{what}_total"), count.load(Relaxed));
        }
        let profiles = [profiles_kept, profiles_read, profiles_old, profiles_unknown];
        for (what, count) in ["kept", "read", "old", "unknown"].into_iter().zip(profiles) {
            all.insert(format!("http.profiles_{what}_total"), count.load(Relaxed));
        }
        all
    }
}

impl Door {
    fn new(name: &'static str, unit: &'static str) -> Self {
        Self {
            name,
            unit,
            done: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            shares: Arc::default(),
            listeners: AtomicU64::new(0),
            parts: AtomicBool::new(false),
            kept: AtomicU64::new(0),
            newcomers: Newcomers::default(),
            latency_us: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum_us: AtomicU64::new(0),
            answers: Answers::default(),
            last: Mutex::new(Last {
                at: Instant::now(),
                done: 0,
                errors: 0,
                latency_us: vec![0; BUCKETS],
                shown: Second::default(),
            }),
        }
    }

    /// One unit of work ended after `took`; `failed` if we could not do what we are there for.
    pub fn done(&self, took: Duration, failed: bool) {
        self.done.fetch_add(1, Relaxed);
        if failed {
            self.errors.fetch_add(1, Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.latency_us[bucket_of(micros)].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(micros, Relaxed);
    }

    /// What its work took, since the start.
    pub fn took(&self) -> Powers {
        let counts: Vec<u64> = self.latency_us.iter().map(|n| n.load(Relaxed)).collect();
        let mut powers = Powers::default();
        powers.add(&counts, self.sum_us.load(Relaxed));
        powers
    }

    /// A connection is open until the answer is dropped.
    pub fn opened(self: &Arc<Self>) -> Opened {
        self.connections.fetch_add(1, Relaxed);
        Opened { door: Arc::clone(self), share: None }
    }

    /// A connection of HTTP/1.
    pub fn keeps(self: &Arc<Self>) -> Kept {
        if self.parts() {
            return Kept::Since(self.newcomers.came(Instant::now()));
        }
        self.kept.fetch_add(1, Relaxed);
        Kept::Before(Arc::clone(self))
    }

    /// From now on each answer is the last one of its connection.
    pub fn part(&self) {
        self.parts.store(true, Relaxed);
    }

    pub fn parts(&self) -> bool {
        self.parts.load(Relaxed)
    }

    /// Kept connections from before [`part`](Self::part).
    pub fn kept(&self) -> u64 {
        self.kept.load(Relaxed)
    }

    pub fn listens(self: &Arc<Self>) -> Listens {
        self.listeners.fetch_add(1, Relaxed);
        Listens(Arc::clone(self))
    }

    /// Nobody is let in any more, and all who were have gone.
    pub fn is_empty(&self) -> bool {
        self.listeners.load(Acquire) == 0 && self.connections() == 0
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        self.connections.load(Relaxed)
    }

    fn gauges(&self, now: Instant, all: &mut BTreeMap<String, u64>) {
        let shown = self.roll(now);
        let mut put = |what: &str, value| all.insert(format!("{}.{what}", self.name), value);
        put(self.unit, shown.done);
        put("errors", shown.errors);
        put("p50_us", shown.p50_us);
        put("p99_us", shown.p99_us);
        put("connections", self.connections.load(Relaxed));
    }

    fn roll(&self, now: Instant) -> Second {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(last.at);
        if passed < ROLL_MIN {
            return last.shown;
        }
        let per_second = |n: u64| (n as f64 / passed.as_secs_f64()).round() as u64;
        let (done, errors) = (self.done.load(Relaxed), self.errors.load(Relaxed));
        let sums: Vec<u64> = self.latency_us.iter().map(|n| n.load(Relaxed)).collect();
        let new: Vec<u64> = sums.iter().zip(&last.latency_us).map(|(now, then)| now - then).collect();
        last.shown = Second {
            done: per_second(done - last.done),
            errors: per_second(errors - last.errors),
            p50_us: percentile(&new, 50),
            p99_us: percentile(&new, 99),
        };
        (last.at, last.done, last.errors, last.latency_us) = (now, done, errors, sums);
        last.shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_show_the_last_second_and_two_readers_see_the_same() {
        let meter = Meter::new();
        let start = Instant::now();
        for micros in 1..=100 {
            meter.http.done(Duration::from_micros(micros * 100), micros == 7);
        }
        let _open = meter.http.opened();
        let mut all = BTreeMap::new();
        meter.http.gauges(start + Duration::from_secs(1), &mut all);
        assert!((99..=100).contains(&all["http.requests"]) && all["http.connections"] == 1, "{all:?}");
        assert_eq!(all["http.errors"], 1);
        assert!((5_000..5_400).contains(&all["http.p50_us"]), "{all:?}");
        assert!((9_900..10_600).contains(&all["http.p99_us"]), "{all:?}");

        let mut again = BTreeMap::new();
        meter.http.gauges(start + Duration::from_millis(1_500), &mut again);
        assert_eq!(all, again, "asked within the second, the same second is shown");
        meter.http.gauges(start + Duration::from_secs(3), &mut again);
        assert_eq!((again["http.requests"], again["http.p99_us"]), (0, 0), "then nothing happened");
        assert_eq!(meter.totals()["http.requests_total"], 100);
    }

    #[test]
    fn others_are_told_of_the_first_turnstiles_and_this_node_shows_all() {
        let meter = Meter::new();
        for n in 0..TURNSTILES_TOLD_MAX + 4 {
            let (turnstile, _) = meter.turnstiles.of(&format!("s{n:02}"), 1);
            drop(
                futures_util::FutureExt::now_or_never(turnstile.enter(5, 0, Duration::from_secs(1)))
                    .expect("there is room"),
            );
        }
        meter.turnstiles.of("unused", 1);
        let told = meter.gauges();
        let all = told.keys().filter(|name| name.ends_with(".limit")).count();
        assert_eq!((all, meter.stages().len()), (TURNSTILES_TOLD_MAX, TURNSTILES_TOLD_MAX + 4));
        for figure in ["started_total", "refused_total", "overloads_total", "wait_p50_us", "waiting", "overloaded"] {
            assert!(told.contains_key(&format!("stage.http-s00.{figure}")), "{figure} is not in {told:?}");
        }
    }

    #[test]
    fn a_connection_is_open_until_it_is_dropped() {
        let meter = Meter::new();
        let first = meter.resp.opened();
        let second = meter.resp.opened();
        drop(first);
        assert_eq!(meter.resp.connections(), 1);
        drop(second);
        assert_eq!(meter.resp.connections(), 0);
    }
}
