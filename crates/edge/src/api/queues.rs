//! Queues of class `linear` over HTTP: jobs are put, taken, renewed, done and failed; what is in a queue is shown, and what is dead is
//! put back. Each request is a function of the queue (`linear/src/functions/queue.rs`).
//!
//! Who takes and finds nothing may wait: of those that wait for one queue at this node the first asks what has changed since it looked
//! (`watchers.rs` of class `linear`), and takes when something has; the others wait for it. So a job wakes one, and a worker that waits in
//! vain writes nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base::{Outcome, Span};
use bytes::Bytes;
use node::{Answer, Ask};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use state::linear::limits::{
    QUEUE_PAYLOAD_BYTES_MAX, QUEUE_RETRIED_MAX, QUEUE_TAKEN_MAX, SCAN_KEYS_MAX, STEPS_MAX, WATCH_HOLD,
};
use state::linear::{Op, Over, Ran, Reply, Step, Wrong};
use tokio::sync::{Mutex as Turns, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::address::{Path, Query};
use super::class::only_linear;
use super::declare::whole;
use super::limits::{LINEAR_BUDGET, TAKE_WAIT_MAX, TAKERS_MAX, TRANSACTION_BYTES_MAX, WATCH_AGAIN};
use super::linear::{Text, once, problem, run, shown, shown_bytes};
use super::problem::{done, odd};
use super::shown::queue_behind;
use super::values::for_request;
use super::{Api, Problem, guard};

type Done = Result<Response, Problem>;
type Name = (Arc<str>, Bytes);

/// A worker has a job for so long, unless it says otherwise, milliseconds.
const HOLD_MS: u64 = 30_000;

/// Who waits for a job at this node.
pub struct Takers {
    /// Who has the lock of a queue is the next to get a job of it.
    turns: Mutex<BTreeMap<Name, Arc<Turns<()>>>>,
    room: Arc<Semaphore>,
}

/// A place among those that wait for a queue.
struct Turn {
    takers: Arc<Takers>,
    name: Name,
    turn: Option<OwnedMutexGuard<()>>,
    _room: OwnedSemaphorePermit,
}

impl Default for Takers {
    fn default() -> Self {
        Self { turns: Mutex::default(), room: Arc::new(Semaphore::new(TAKERS_MAX)) }
    }
}

impl Takers {
    /// Waits for its turn until then; none if it did not come.
    async fn turn(self: &Arc<Self>, name: &Name, until: Instant) -> Result<Option<Turn>, Problem> {
        let full = || Problem::busy(format!("{TAKERS_MAX} clients of this node wait for jobs already"), Span::secs(1));
        let room = Arc::clone(&self.room).try_acquire_owned().map_err(|_| full())?;
        let lock = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(name.clone()).or_default())
        };
        // Made before it waits, so that whoever gives up leaves nothing behind.
        let mut turn = Turn { takers: Arc::clone(self), name: name.clone(), turn: None, _room: room };
        turn.turn = timeout_at(until, lock.lock_owned()).await.ok();
        Ok(turn.turn.is_some().then_some(turn))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.takers.turns.lock().unwrap_or_else(PoisonError::into_inner);
        self.turn = None;
        if turns.get(&self.name).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            turns.remove(&self.name);
        }
    }
}

/// Who works with a queue, and what it asks.
struct Desk<'a> {
    api: &'a Api,
    ns: String,
    queue: Bytes,
    headers: &'a HeaderMap,
}

impl<'a> Desk<'a> {
    /// For workers, and who puts.
    fn of(api: &'a Api, (ns, queue): (String, String), headers: &'a HeaderMap) -> Result<Self, Problem> {
        guard::holder(headers, &api.view(), &ns)?;
        Self::any(api, (ns, queue), headers)
    }

    /// For operators, too, who look at what is there.
    fn seen(api: &'a Api, (ns, queue): (String, String), headers: &'a HeaderMap) -> Result<Self, Problem> {
        guard::holder_or_operator(headers, &api.view(), &ns)?;
        Self::any(api, (ns, queue), headers)
    }

    fn any(api: &'a Api, (ns, queue): (String, String), headers: &'a HeaderMap) -> Result<Self, Problem> {
        only_linear(api, &ns)?;
        if queue.is_empty() {
            return Err(Problem::wrong("a queue has a name"));
        }
        Ok(Self { api, ns, queue: queue.into(), headers })
    }

    fn step(&self, function: &'static str, args: Vec<Bytes>) -> Step {
        Step::new(self.queue.clone(), function, args)
    }

    async fn ask(&self, function: &'static str, args: Vec<Bytes>) -> Result<Reply, Problem> {
        self.all(vec![self.step(function, args)]).await?.pop().ok_or_else(|| odd(&"nothing"))
    }

    async fn all(&self, steps: Vec<Step>) -> Result<Vec<Reply>, Problem> {
        let op = Op { once: once(self.headers)?, ..Op::of(self.ns.as_str().into(), steps) };
        run(self.api, op, self.headers).await.map_err(explained)
    }

    async fn body<T: DeserializeOwned>(&self, body: Body, form: &str) -> Result<T, Problem> {
        let body = whole(body, TRANSACTION_BYTES_MAX).await?;
        let body = if body.is_empty() { Bytes::from_static(b"{}") } else { body };
        serde_json::from_slice(&body).map_err(|error| Problem::wrong(format!("the body must be {form}: {error}")))
    }

    fn absent(&self) -> Problem {
        Problem::not_found(format!(
            "there is no queue {:?}: the first job makes it",
            String::from_utf8_lossy(&self.queue)
        ))
    }
}

/// What its arguments did not fit.
fn explained(problem: Problem) -> Problem {
    if problem.wrong != Some(Wrong::Arguments) {
        return problem;
    }
    let bounds = "priority is 0 to 9, tries 1 to 1000, a delay a year at most, hold_ms 1 ms to a day, keep_ms a week at most, a key \
                  256 bytes, a ticket what `take` gave";
    Problem { error: format!("something is out of its bounds: {bounds}"), ..problem }
}

fn word(text: impl Into<String>) -> Bytes {
    text.into().into()
}

fn number(reply: Reply) -> Result<i64, Problem> {
    if let Reply::Int(number) = reply { Ok(number) } else { Err(odd(&reply)) }
}

/// `{"waiting": ..., ...}` of words and numbers in turn.
fn figures(reply: &Reply) -> Option<Map<String, Value>> {
    let Reply::List(all) = reply else { return None };
    let pair = |pair: &[Reply]| match pair {
        [Reply::Bytes(name), value] => Some((String::from_utf8_lossy(name).into_owned(), shown(value))),
        _ => None,
    };
    all.chunks(2).map(pair).collect()
}

/// All queues of a namespace: `{"queues": [{"name", "waiting", "oldest_ms", ...}]}`.
pub async fn list(State(api): State<Api>, Path(ns): Path<String>, headers: HeaderMap) -> Done {
    guard::holder_or_operator(&headers, &api.view(), &ns)?;
    only_linear(&api, &ns)?;
    let step = Step::new(Bytes::new(), "queues", Vec::new());
    let op = Op { over: Over::Each, ..Op::of(ns.into(), vec![step]) };
    let reply = run(&api, op, &headers).await?.pop();
    let Some(Reply::List(all)) = reply else { return Err(odd(&reply)) };
    let one = |reply: &Reply| match reply {
        Reply::List(parts) => match &parts[..] {
            [Reply::Bytes(name), info] => {
                let mut one = Map::from_iter([("name".to_owned(), shown_bytes(name))]);
                one.extend(figures(info)?);
                Some(Value::Object(one))
            }
            _ => None,
        },
        _ => None,
    };
    let queues = all.iter().map(one).collect::<Option<Vec<Value>>>().ok_or_else(|| odd(&all))?;
    Ok(Json(json!({"queues": queues})).into_response())
}

/// How many jobs of each kind a queue has, how long the oldest waits, and what has happened so far.
pub async fn show(State(api): State<Api>, Path(at): Path<(String, String)>, headers: HeaderMap) -> Done {
    let desk = Desk::seen(&api, at, &headers)?;
    match desk.ask("queue.info", Vec::new()).await? {
        Reply::Nil => Err(desk.absent()),
        reply => Ok(Json(figures(&reply).ok_or_else(|| odd(&reply))?).into_response()),
    }
}

/// The queue with all its jobs.
pub async fn remove(State(api): State<Api>, Path(at): Path<(String, String)>, headers: HeaderMap) -> Done {
    let desk = Desk::of(&api, at, &headers)?;
    // What else lies at that key is none of this address.
    let Reply::List(_) = desk.ask("queue.info", Vec::new()).await? else { return Err(desk.absent()) };
    match number(desk.ask("remove", Vec::new()).await?)? {
        1 => Ok(StatusCode::NO_CONTENT.into_response()),
        _ => Err(desk.absent()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    payload: Text,
    delay_ms: Option<u64>,
    /// Milliseconds since 1970.
    at_ms: Option<u64>,
    priority: Option<u8>,
    tries: Option<u32>,
    key: Option<String>,
    keep_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "one job, or {\"jobs\": [...]}")]
enum Put {
    Many { jobs: Vec<New> },
    One(New),
}

impl New {
    fn args(self) -> Result<Vec<Bytes>, Problem> {
        let delay = match (self.delay_ms, self.at_ms) {
            (Some(_), Some(_)) => return Err(Problem::wrong("say `delay_ms` or `at_ms`, not both")),
            (Some(ms), None) => Some(ms.to_string()),
            (None, Some(ms)) => Some(state::linear::moment::at(ms)),
            (None, None) => None,
        };
        let options = [
            ("delay", delay),
            ("priority", self.priority.map(|n| n.to_string())),
            ("tries", self.tries.map(|n| n.to_string())),
            ("key", self.key),
            ("keep", self.keep_ms.map(|n| n.to_string())),
        ];
        let mut args = vec![self.payload.bytes()?];
        for (name, value) in options {
            args.extend(value.into_iter().flat_map(|value| [word(name), word(value)]));
        }
        Ok(args)
    }
}

/// `{"payload": "...", "delay_ms"?, "at_ms"?, "priority"?, "tries"?, "key"?, "keep_ms"?}`, or `{"jobs": [...]}` for several at one
/// moment. Answers `{"id": 7, "new": true}`, or `{"jobs": [...]}`: they are on a majority's disks.
pub async fn put(State(api): State<Api>, Path(at): Path<(String, String)>, headers: HeaderMap, body: Body) -> Done {
    let desk = Desk::of(&api, at, &headers)?;
    let put: Put = desk.body(body, "{\"payload\": \"...\", ...} or {\"jobs\": [...]}").await?;
    let (news, is_one) = match put {
        Put::One(new) => (vec![new], true),
        Put::Many { jobs } => (jobs, false),
    };
    if news.is_empty() || news.len() > STEPS_MAX {
        return Err(Problem::wrong(format!("put 1 to {STEPS_MAX} jobs at once, not {}", news.len())));
    }
    let steps = news.into_iter().map(|new| Ok(desk.step("queue.put", new.args()?))).collect::<Result<_, Problem>>()?;
    let one = |reply: &Reply| match reply {
        Reply::List(parts) => match parts[..] {
            [Reply::Int(id), Reply::Int(is_new)] => Ok(json!({"id": id, "new": is_new == 1})),
            _ => Err(odd(reply)),
        },
        _ => Err(odd(reply)),
    };
    let jobs = desk.all(steps).await?.iter().map(one).collect::<Result<Vec<Value>, Problem>>()?;
    Ok(match &jobs[..] {
        [only] if is_one => Json(only).into_response(),
        jobs => Json(json!({"jobs": jobs})).into_response(),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Take {
    count: Option<u64>,
    hold_ms: Option<u64>,
    #[serde(default)]
    wait_ms: u64,
}

/// `{"count"?, "hold_ms"?, "wait_ms"?}`: `{"jobs": [{"ticket", "id", "payload", "try", "age_ms"}]}`, none if none came while it
/// waited. Each is this worker's for `hold_ms`.
pub async fn take(State(api): State<Api>, Path(at): Path<(String, String)>, headers: HeaderMap, body: Body) -> Done {
    let desk = Desk::of(&api, at, &headers)?;
    let take: Take = desk.body(body, "{\"count\": 1, \"hold_ms\": 30000, \"wait_ms\": 0}").await?;
    if once(&headers)?.is_some() {
        let why = "a take needs no Idempotency-Key: jobs whose answer is lost come again when their time is over";
        return Err(Problem::wrong(why));
    }
    let (count, wait) = (take.count.unwrap_or(1), Span::millis(take.wait_ms));
    if !(1..=QUEUE_TAKEN_MAX).contains(&count) {
        return Err(Problem::wrong(format!("count must be 1 to {QUEUE_TAKEN_MAX} jobs, not {count}")));
    }
    if wait > TAKE_WAIT_MAX {
        let most = TAKE_WAIT_MAX.as_millis();
        return Err(Problem::wrong(format!("wait_ms must be {most} at most, not {}: ask again then", take.wait_ms)));
    }
    let until = Instant::now() + wait.into();
    let args = vec![word(count.to_string()), word(take.hold_ms.unwrap_or(HOLD_MS).to_string())];
    let name = (Arc::from(desk.ns.as_str()), desk.queue.clone());
    let jobs = if take.wait_ms == 0 {
        desk.ask("queue.take", args).await?
    } else {
        match api.takers.turn(&name, until).await? {
            Some(_turn) => desk.wait(args, until).await?,
            None => Reply::Nil,
        }
    };
    let one = |reply: &Reply| match reply {
        Reply::List(parts) => match &parts[..] {
            [Reply::Bytes(ticket), Reply::Bytes(payload), Reply::Int(nth), Reply::Int(age)] => {
                let ticket = String::from_utf8_lossy(ticket);
                let id: Option<u64> = ticket.split('.').next().and_then(|id| id.parse().ok());
                let payload = shown_bytes(payload);
                Ok(json!({"ticket": ticket, "id": id, "payload": payload, "try": nth, "age_ms": age}))
            }
            _ => Err(odd(reply)),
        },
        _ => Err(odd(reply)),
    };
    let jobs = match jobs {
        Reply::Nil => Vec::new(),
        Reply::List(jobs) => jobs.iter().map(one).collect::<Result<Vec<Value>, Problem>>()?,
        other => return Err(odd(&other)),
    };
    Ok(Json(json!({"jobs": jobs})).into_response())
}

impl Desk<'_> {
    /// Takes jobs, when there are some.
    async fn wait(&self, args: Vec<Bytes>, until: Instant) -> Result<Reply, Problem> {
        let mut seen = 0;
        loop {
            let steps = vec![self.step("queue.take", args.clone()), self.step("version", Vec::new())];
            match self.all(steps).await {
                Ok(replies) => match <[Reply; 2]>::try_from(replies) {
                    Ok([Reply::Nil, Reply::Int(version)]) => seen = seen.max(version as u64),
                    Ok([taken, _]) => return Ok(taken),
                    Err(replies) => return Err(odd(&replies)),
                },
                // Nothing has happened: it is asked again while there is time.
                Err(Problem { retry_after: Some(after), .. }) if Instant::now() + after.into() < until => {
                    sleep_until(Instant::now() + after.into()).await;
                    continue;
                }
                Err(problem) => return Err(problem),
            }
            loop {
                let Ok(changed) = timeout_at(until, self.changed(seen)).await else { return Ok(Reply::Nil) };
                let (upto, is_news) = changed?;
                seen = upto;
                if is_news {
                    break;
                }
            }
        }
    }

    /// How far it is known what has changed of the queue, and whether something has: asked of the leader, which answers when there is
    /// something, or after a while.
    async fn changed(&self, seen: u64) -> Result<(u64, bool), Problem> {
        let args = vec![word(seen.to_string()), word("wait")];
        let op = Op::one(self.ns.as_str().into(), self.queue.clone(), "changes", args);
        let (priority, _) = for_request(self.headers, LINEAR_BUDGET)?;
        let ask = Ask::Linear(Op { priority, ..op });
        match self.api.backend.ask(ask, WATCH_HOLD + LINEAR_BUDGET).await? {
            // A leader that went away, or has too much to do: what there is, is seen by looking.
            Answer::Linear(Outcome::Unknown(_) | Outcome::Refused(base::Refused { retry_after: Some(_), .. })) => {
                sleep_until(Instant::now() + WATCH_AGAIN.into()).await;
                Ok((seen, true))
            }
            Answer::Linear(outcome) => match done(outcome)? {
                Ran::Done(mut replies) => match replies.pop() {
                    Some(Reply::Wrong(wrong)) => Err(problem(wrong)),
                    Some(Reply::List(parts)) => match &parts[..] {
                        [Reply::Int(upto), Reply::List(changes)] => Ok((*upto as u64, !changes.is_empty())),
                        // Its last change is so old that nobody knows it any more.
                        [Reply::Int(now), Reply::Nil, Reply::Int(_)] => Ok((*now as u64, true)),
                        _ => Err(odd(&parts)),
                    },
                    other => Err(odd(&other)),
                },
                Ran::Unmet => Err(odd(&Ran::Unmet)),
            },
            other => unreachable!("a linear operation was answered by {other:?}"),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Renew {
    ticket: String,
    hold_ms: Option<u64>,
}

/// `{"ticket", "hold_ms"?}`: from now on. Answers `{"held": false}` if its time was over.
pub async fn renew(State(api): State<Api>, Path(at): Path<(String, String)>, headers: HeaderMap, body: Body) -> Done {
    let desk = Desk::of(&api, at, &headers)?;
    let renew: Renew = desk.body(body, "{\"ticket\": \"...\", \"hold_ms\": 30000}").await?;
    let args = vec![word(renew.ticket), word(renew.hold_ms.unwrap_or(HOLD_MS).to_string())];
    let held = number(desk.ask("queue.renew", args).await?)?;
    Ok(Json(json!({"held": held == 1})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tickets {
    tickets: Vec<String>,
}

async fn of_tickets(desk: &Desk<'_>, function: &'static str, body: Body) -> Result<i64, Problem> {
    let Tickets { tickets } = desk.body(body, "{\"tickets\": [\"...\"]}").await?;
    if tickets.is_empty() || tickets.len() as u64 > QUEUE_TAKEN_MAX {
        return Err(Problem::wrong(format!("say 1 to {QUEUE_TAKEN_MAX} tickets, not {}", tickets.len())));
    }
    number(desk.ask(function, tickets.into_iter().map(word).collect()).await?)
}

/// `{"tickets": [...]}`: these jobs are done, and gone. `{"done": n}`: so many of them; the others are somebody else's by now.
pub async fn done_with(
    State(api): State<Api>,
    Path(at): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Done {
    let desk = Desk::of(&api, at, &headers)?;
    Ok(Json(json!({"done": of_tickets(&desk, "queue.done", body).await?})).into_response())
}

/// `{"tickets": [...]}`: they were not begun, and wait again as if they had not been given.
pub async fn back(State(api): State<Api>, Path(at): Path<(String, String)>, headers: HeaderMap, body: Body) -> Done {
    let desk = Desk::of(&api, at, &headers)?;
    Ok(Json(json!({"back": of_tickets(&desk, "queue.back", body).await?})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    ticket: String,
    delay_ms: Option<u64>,
    why: Option<String>,
    #[serde(default)]
    dead: bool,
}

/// `{"ticket", "delay_ms"?, "why"?, "dead"?}`: it comes again after that, or is dead if that was its last try. Answers
/// `{"state": "again" | "dead" | null}`; null: its time was over.
pub async fn fail(State(api): State<Api>, Path(at): Path<(String, String)>, headers: HeaderMap, body: Body) -> Done {
    let desk = Desk::of(&api, at, &headers)?;
    let fail: Fail = desk.body(body, "{\"ticket\": \"...\", \"delay_ms\"?, \"why\"?, \"dead\"?}").await?;
    let options = [
        ("delay", fail.delay_ms.map(|ms| ms.to_string())),
        ("why", fail.why),
        ("dead", fail.dead.then(|| "yes".into())),
    ];
    let mut args = vec![word(fail.ticket)];
    for (name, value) in options {
        args.extend(value.into_iter().flat_map(|value| [word(name), word(value)]));
    }
    let state = desk.ask("queue.fail", args).await?;
    Ok(Json(json!({"state": shown(&state)})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    from: Option<String>,
    limit: Option<u64>,
}

/// Jobs of a kind in their order, a page at a time: `{"jobs": [...], "next": PLACE}`.
pub async fn jobs(
    State(api): State<Api>,
    Path(at): Path<(String, String)>,
    look: Result<Query<Look>, Problem>,
    headers: HeaderMap,
) -> Done {
    let desk = Desk::seen(&api, at, &headers)?;
    let Query(Look { state, from, limit }) = look?;
    let (state, limit) = (state.unwrap_or_else(|| "waiting".into()), limit.unwrap_or(100));
    if !["waiting", "later", "held", "dead"].contains(&state.as_str()) {
        return Err(Problem::wrong(format!("state must be waiting, later, held or dead, not {state:?}")));
    }
    if !(1..=SCAN_KEYS_MAX).contains(&limit) {
        return Err(Problem::wrong(format!("limit must be 1 to {SCAN_KEYS_MAX} jobs, not {limit}")));
    }
    let args = vec![word(state), word(from.unwrap_or_else(|| "-".into())), word(limit.to_string())];
    let reply = desk.ask("queue.list", args).await?;
    let Reply::List(parts) = &reply else { return Err(odd(&reply)) };
    let [Reply::List(page), next] = &parts[..] else { return Err(odd(&reply)) };
    let jobs = page.iter().map(job_of).collect::<Option<Vec<Value>>>().ok_or_else(|| odd(&reply))?;
    Ok(Json(json!({"jobs": jobs, "next": shown(next)})).into_response())
}

/// One job, whatever it is doing.
pub async fn job(
    State(api): State<Api>,
    Path((ns, queue, id)): Path<(String, String, u64)>,
    headers: HeaderMap,
) -> Done {
    let desk = Desk::seen(&api, (ns, queue), &headers)?;
    let reply = desk.ask("queue.job", vec![word(id.to_string())]).await?;
    match job_of(&reply) {
        Some(job) => Ok(Json(job).into_response()),
        None => Err(Problem::not_found(format!("there is no job {id} here: it is done, or never was"))),
    }
}

fn job_of(reply: &Reply) -> Option<Value> {
    let Reply::List(parts) = reply else { return None };
    let [id, state, priority, tries, tries_max, age, moment, why, payload] = &parts[..] else { return None };
    let names = ["id", "state", "priority", "tries", "tries_max", "age_ms", "", "why", "payload"];
    let mut job: Map<String, Value> = names
        .into_iter()
        .zip([id, state, priority, tries, tries_max, age, moment, why, payload])
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, reply)| (name.to_owned(), shown(reply)))
        .collect();
    let is_due = matches!(state, Reply::Bytes(state) if matches!(&state[..], b"later" | b"held"));
    job.insert(if is_due { "due_in_ms" } else { "since_ms" }.to_owned(), shown(moment));
    Some(Value::Object(job))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ids {
    ids: Option<Vec<u64>>,
}

impl Ids {
    fn args(&self) -> Result<Option<Vec<Bytes>>, Problem> {
        match &self.ids {
            None => Ok(None),
            Some(ids) if ids.is_empty() || ids.len() > QUEUE_RETRIED_MAX => {
                Err(Problem::wrong(format!("say 1 to {QUEUE_RETRIED_MAX} ids, not {}", ids.len())))
            }
            Some(ids) => Ok(Some(ids.iter().map(|id| word(id.to_string())).collect())),
        }
    }
}

/// How a queue is named in the address.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Named {
    /// By the hash that is shown to who has no token.
    hidden: bool,
}

/// The name behind a hash, for the operator.
fn behind(api: &Api, (ns, hash): (String, String), headers: &HeaderMap) -> Result<(String, String), Problem> {
    let view = api.view();
    guard::operator(headers, &view)?;
    let Some(queue) = queue_behind(&view, &ns, &hash) else {
        return Err(Problem::not_found(format!("no queue of {ns} is shown as {hash} (any more)")));
    };
    let Some(name) = queue.whole_name() else {
        let shown = &queue.name;
        return Err(Problem::wrong(format!("its name is shown cut off or as bytes, {shown}: ask by the name itself")));
    };
    Ok((ns, name.to_owned()))
}

/// `{"ids": [...]}`, or nothing for all dead jobs, a thousand at a time: they wait again. `{"retried": n, "dead": n}`: and so many
/// are dead still.
pub async fn retry(
    State(api): State<Api>,
    Path(at): Path<(String, String)>,
    named: Result<Query<Named>, Problem>,
    headers: HeaderMap,
    body: Body,
) -> Done {
    let Query(Named { hidden }) = named?;
    let at = if hidden { behind(&api, at, &headers)? } else { at };
    let desk = Desk::seen(&api, at, &headers)?;
    let ids: Ids = desk.body(body, "{\"ids\": [...]}, or empty for all").await?;
    let args = ids.args()?.unwrap_or_else(|| vec![word("all")]);
    let steps = vec![desk.step("queue.info", Vec::new()), desk.step("queue.retry", args)];
    let (info, reply) = match <[Reply; 2]>::try_from(desk.all(steps).await?) {
        Ok([info, reply]) => (info, reply),
        Err(replies) => return Err(odd(&replies)),
    };
    if info == Reply::Nil {
        return Err(desk.absent());
    }
    match &reply {
        Reply::List(parts) => match parts[..] {
            [Reply::Int(retried), Reply::Int(dead)] => {
                Ok(Json(json!({"retried": retried, "dead": dead})).into_response())
            }
            _ => Err(odd(&reply)),
        },
        _ => Err(odd(&reply)),
    }
}

/// `{"ids": [...]}`: these jobs, whatever they are doing; or nothing for all dead ones, a thousand at a time. `{"dropped": n}`.
pub async fn drop_jobs(
    State(api): State<Api>,
    Path(at): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Done {
    let desk = Desk::seen(&api, at, &headers)?;
    let ids: Ids = desk.body(body, "{\"ids\": [...]}, or empty for all that are dead").await?;
    let dropped = match ids.args()? {
        Some(args) => desk.ask("queue.drop", args).await?,
        None => desk.ask("queue.drop-dead", Vec::new()).await?,
    };
    Ok(Json(json!({"dropped": number(dropped)?})).into_response())
}

/// What puts jobs again and again: `{"repeats": [{"name", "times", "next_ms", "last_id", "payload"}]}`.
pub async fn repeats(State(api): State<Api>, Path(at): Path<(String, String)>, headers: HeaderMap) -> Done {
    let desk = Desk::seen(&api, at, &headers)?;
    let reply = desk.ask("queue.repeats", Vec::new()).await?;
    let Reply::List(all) = &reply else { return Err(odd(&reply)) };
    let one = |reply: &Reply| {
        let Reply::List(parts) = reply else { return None };
        let [name, times, next, last, payload] = &parts[..] else { return None };
        let [name, times, next, last, payload] = [name, times, next, last, payload].map(shown);
        Some(json!({"name": name, "times": times, "next_ms": next, "last_id": last, "payload": payload}))
    };
    let repeats = all.iter().map(one).collect::<Option<Vec<Value>>>().ok_or_else(|| odd(&reply))?;
    Ok(Json(json!({"repeats": repeats})).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Repeat {
    payload: Text,
    cron: Option<String>,
    every_ms: Option<u64>,
    priority: Option<u8>,
    tries: Option<u32>,
}

/// `{"payload", "cron" | "every_ms", "priority"?, "tries"?}`: `{"next_ms": ...}`, milliseconds since 1970.
pub async fn repeat(
    State(api): State<Api>,
    Path((ns, queue, name)): Path<(String, String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Done {
    let desk = Desk::of(&api, (ns, queue), &headers)?;
    let form = "{\"payload\": \"...\", \"cron\": \"0 3 * * *\"} or {\"payload\": \"...\", \"every_ms\": 60000}";
    let repeat: Repeat = desk.body(body, form).await?;
    let times = match (repeat.cron, repeat.every_ms) {
        (Some(cron), None) => cron,
        (None, Some(ms)) => format!("every {ms}"),
        _ => return Err(Problem::wrong("say `cron` or `every_ms`, one of both")),
    };
    // What is wrong with it is said in more words here than at the replicas.
    state::linear::queue::schedule_of(times.as_bytes()).map_err(Problem::wrong)?;
    let mut args = vec![word(name), word(times), repeat.payload.bytes()?];
    args.extend(repeat.priority.into_iter().flat_map(|n| [word("priority"), word(n.to_string())]));
    args.extend(repeat.tries.into_iter().flat_map(|n| [word("tries"), word(n.to_string())]));
    Ok(Json(json!({"next_ms": number(desk.ask("queue.repeat", args).await?)?})).into_response())
}

pub async fn unrepeat(
    State(api): State<Api>,
    Path((ns, queue, name)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Done {
    let desk = Desk::of(&api, (ns, queue), &headers)?;
    match number(desk.ask("queue.unrepeat", vec![word(name.clone())]).await?)? {
        1 => Ok(StatusCode::NO_CONTENT.into_response()),
        _ => Err(Problem::not_found(format!("nothing is repeated as {name:?} here"))),
    }
}

const _: () = assert!(QUEUE_PAYLOAD_BYTES_MAX < TRANSACTION_BYTES_MAX, "a job fits into a request");
