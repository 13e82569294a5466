//! Namespaces as streams: read out (`dump`), and put back (`load`). Which operations that takes is the business of
//! each class (`class/src/dump.rs`); here they are asked one batch after the other, at the lowest priority and at a
//! pace, and what is held in memory is a batch.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::Span;
use bytes::{Bytes, BytesMut};
use class::dump::{FORMAT, Flaw, Head, Reader, Record, Writer};
use futures_util::future::{join_all, try_join_all};
use futures_util::stream;
use http_body_util::BodyExt;
use node::View;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use state::linear::LoadDatabase;
use state::{Answer, Class, Op};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::address::{Path, Query};
use super::limits::*;
use super::profiles::told_of_all;
use super::{Api, Problem, guard};
use crate::wall::wall_ms;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pace {
    /// Bytes a second, at most.
    rate: Option<u64>,
}

impl Pace {
    fn rate(&self) -> Result<u64, Problem> {
        match self.rate.unwrap_or(DUMP_RATE) {
            0 => Err(Problem::wrong("rate is in bytes a second, 1 at least")),
            rate => Ok(rate),
        }
    }
}

/// What was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Loaded {
    /// Keys that were put in.
    pub keys: u64,
    /// Keys that have ended since they were dumped, and were not.
    pub ended: u64,
}

/// The namespace as a stream of records; the last one says how many there were.
pub async fn dump(
    State(api): State<Api>,
    Path(ns): Path<String>,
    Query(pace): Query<Pace>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let view = api.view();
    guard::operator(&headers, &view)?;
    let (class, rate) = (class_of(&view, &ns)?, pace.rate()?);
    let room = room(&api)?;
    let mut shards: Vec<(u64, u64)> = Vec::new();
    for namespace in view.namespaces.iter().filter(|namespace| namespace.name == ns) {
        shards.extend(namespace.shards.iter().map(|shard| (shard.from, shard.to)));
    }
    let id = drawn()?;
    let head = Head {
        format: FORMAT,
        namespace: ns.clone(),
        class: class.name().into(),
        at_ms: wall_ms(),
        on_disk: class.is_on_disk(),
        program: env!("CARGO_PKG_VERSION").into(),
    };
    let dump = match class {
        // Its groups are those of class `linear`, and so is what reads them.
        Class::Sql => state::Dump::Linear(state::linear::Dump::of_database(ns.into(), id)),
        class => class.dump(ns.into(), shards, id),
    };
    let (pages, told) = mpsc::channel(DUMP_PAGES_AHEAD);
    tokio::spawn(tell(api, dump, head, rate, pages, room));
    let body = stream::unfold(told, |mut told| async { told.recv().await.map(|page| (Ok::<Bytes, Gone>(page), told)) });
    Ok(([(header::CONTENT_TYPE, DUMP_TYPE), (header::CACHE_CONTROL, "no-store")], Body::from_stream(body))
        .into_response())
}

type Gone = std::convert::Infallible;

/// Until all is told, or nobody listens.
async fn tell(
    api: Api,
    mut dump: state::Dump,
    head: Head,
    rate: u64,
    pages: mpsc::Sender<Bytes>,
    _room: OwnedSemaphorePermit,
) {
    let (mut writer, mut out, mut next) = (Writer::default(), BytesMut::new(), Instant::now());
    let mut yields = Yield::of(DUMP_YIELDS);
    writer.write(&Record::Head(head), &mut out);
    loop {
        if !out.is_empty() {
            let page = out.split().freeze();
            // What was missed of the pace is not made up for: nobody is to feel a rush.
            next = next.max(Instant::now()) + Duration::from_secs_f64(page.len() as f64 / rate as f64);
            if pages.send(page).await.is_err() {
                return;
            }
            sleep_until(next).await;
        }
        let asks = dump.asks();
        if asks.is_empty() {
            break;
        }
        yields.pause().await;
        let began = Instant::now();
        let asked = try_join_all(asks.into_iter().map(|op| ask(&api, op))).await;
        yields.worked(began.elapsed());
        let told = match asked {
            Ok(answers) => dump.take(answers, wall_ms()),
            Err(problem) => Err(problem.error),
        };
        match told {
            Ok(records) => records.iter().for_each(|record| writer.write(record, &mut out)),
            Err(why) => {
                writer.write(&Record::Broken(why), &mut out);
                let _ = pages.send(out.freeze()).await;
                return;
            }
        }
    }
    writer.end(&mut out);
    let _ = pages.send(out.freeze()).await;
}

/// What has time leaves it to others: after each piece of work it waits for so many times as long as that took. So it does a part of
/// what the nodes could do however fast they are, and less when they have much to do, as each piece takes longer then.
struct Yield {
    times: u32,
    /// When it may go on; what it waits for another reason counts.
    free_at: Instant,
}

impl Yield {
    fn of(times: u32) -> Self {
        Self { times, free_at: Instant::now() }
    }

    fn worked(&mut self, took: Duration) {
        let now = Instant::now();
        self.free_at = (self.free_at.max(now) + took * self.times).min(now + YIELD_MAX);
    }

    /// Shorter than a timer tells apart is not worth a wait of its own.
    async fn pause(&self) {
        if self.free_at.saturating_duration_since(Instant::now()) >= YIELD_MIN {
            sleep_until(self.free_at).await;
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadPace {
    /// As fast as the cluster takes it, whoever else uses it.
    full: bool,
}

/// Body: a dump. Answer: [`Loaded`]. What is in the dump takes the place of what is there; other keys stay.
pub async fn load(
    State(api): State<Api>,
    Path(ns): Path<String>,
    Query(pace): Query<LoadPace>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let view = api.view();
    guard::operator(&headers, &view)?;
    let class = class_of(&view, &ns)?;
    let _room = room(&api)?;
    let database = match class {
        Class::Sql => {
            let (most, level) = (super::class::only_sql(&api, &ns)?, api.view().root.level);
            Some(LoadDatabase::new((&*ns).into(), drawn()?, most, level))
        }
        _ => None,
    };
    let mut load = Load {
        api,
        class,
        database,
        ns: ns.into(),
        loaded: Loaded::default(),
        batch: Vec::new(),
        bytes: 0,
        yields: Yield::of(if pace.full { 0 } else { LOAD_YIELDS }),
    };
    match load.all(body).await {
        Ok(()) => {
            if load.database.is_some() {
                told_of_all(&load.api, &load.ns).await?;
            }
            Ok(Json(load.loaded).into_response())
        }
        Err(problem) => {
            let keys = load.loaded.keys;
            let error = match keys {
                0 => format!("{}; nothing was loaded", problem.error),
                _ => format!("{}; {keys} keys were loaded before, and loading again does no harm", problem.error),
            };
            Err(Problem { error, ..problem })
        }
    }
}

struct Load {
    api: Api,
    class: Class,
    /// Of class `sql`: it takes its place whole, with the last record.
    database: Option<LoadDatabase>,
    ns: Arc<str>,
    loaded: Loaded,
    /// Operations that are to go together, and about how many bytes they have.
    batch: Vec<Op>,
    bytes: usize,
    yields: Yield,
}

impl Load {
    async fn all(&mut self, mut body: Body) -> Result<(), Problem> {
        let mut reader = Reader::default();
        loop {
            let frame = match timeout(BODY_TIME_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(Problem::wrong(format!("the body could not be read: {error}"))),
                Ok(None) => break,
                Err(_) => return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
            };
            reader.push(frame.data_ref().map_or(&[][..], |data| data));
            while let Some(record) = reader.next_record().map_err(flawed)? {
                self.take(record).await?;
            }
        }
        self.flush().await?;
        reader.end().map(|_| ()).map_err(flawed)
    }

    async fn take(&mut self, record: Record) -> Result<(), Problem> {
        if let Record::Head(head) = &record
            && head.class != self.class.name()
        {
            return Err(Problem::wrong(format!(
                "this dump is of class {}, and namespace {} is of class {}",
                head.class,
                self.ns,
                self.class.name()
            )));
        }
        let op = match &mut self.database {
            Some(database) => database.load(&record, wall_ms()).map(|op| op.map(Op::Linear)),
            None => self.class.load(&self.ns, &record, wall_ms()),
        };
        match (op.map_err(Problem::wrong)?, &record) {
            (Some(op), Record::Item(item)) => {
                self.batch.push(op);
                self.bytes += item.bytes();
                if self.batch.len() >= LOAD_AT_ONCE || self.bytes >= LOAD_BYTES_AT_ONCE {
                    self.flush().await?;
                }
            }
            (Some(op), _) => {
                self.flush().await?;
                ask(&self.api, op).await?.loaded().map_err(Problem::wrong)?;
            }
            (None, Record::Item(_)) => self.loaded.ended += 1,
            (None, _) => (),
        }
        Ok(())
    }

    /// All that wait go, and are counted when they are done.
    async fn flush(&mut self) -> Result<(), Problem> {
        self.bytes = 0;
        self.yields.pause().await;
        let began = Instant::now();
        let all = join_all(self.batch.drain(..).map(|op| ask(&self.api, op))).await;
        self.yields.worked(began.elapsed());
        let mut wrong = None;
        for answer in all {
            match answer.and_then(|answer| answer.loaded().map_err(Problem::wrong)) {
                Ok(()) => self.loaded.keys += 1,
                Err(problem) => wrong = Some(problem),
            }
        }
        wrong.map_or(Ok(()), Err)
    }
}

/// Asks until it is done. What is asked here may happen more than once.
async fn ask(api: &Api, op: Op) -> Result<Answer, Problem> {
    let until = Instant::now() + DUMP_ASKED_MAX;
    let budget = match &op {
        Op::Object(state::object::Op { action: state::object::Action::Put { body, .. }, .. }) => {
            object_budget(body.len())
        }
        _ => LINEAR_BUDGET,
    };
    loop {
        let answer = match api.backend.ask(op.clone().into(), budget).await? {
            node::Answer::Session(outcome) => Answer::Session(outcome),
            node::Answer::Linear(outcome) => Answer::Linear(outcome),
            node::Answer::Cache(outcome) => Answer::Cache(outcome),
            node::Answer::Soft(outcome) => Answer::Soft(outcome),
            node::Answer::Object(outcome) => Answer::Object(outcome),
            other => unreachable!("an operation of a class was answered by {other:?}"),
        };
        match answer.undone() {
            None => return Ok(answer),
            Some((why, None)) => return Err(Problem::wrong(why)),
            Some((why, Some(_))) if Instant::now() >= until => return Err(Problem::busy(why, Span::secs(5))),
            Some((_, Some(after))) => sleep(Duration::from_micros(after.0).max(DUMP_AGAIN)).await,
        }
    }
}

fn class_of(view: &View, ns: &str) -> Result<Class, Problem> {
    let of = view.namespaces.iter().find(|namespace| namespace.name == ns);
    let class = of.and_then(|of| Class::ALL.iter().find(|class| class.name() == of.class));
    let class = *class.ok_or_else(|| Problem::not_found(format!("there is no namespace {ns:?}")))?;
    match class.not_dumped() {
        None => Ok(class),
        Some(why) => Err(Problem::wrong(format!("namespace {ns} is of class {class}, which is not dumped: {why}"))),
    }
}

/// A number that nothing else has.
fn drawn() -> Result<u64, Problem> {
    let mut id = [0; 8];
    match SystemRandom::new().fill(&mut id) {
        Ok(()) => Ok(u64::from_le_bytes(id)),
        Err(_) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the system gives no random numbers")),
    }
}

fn room(api: &Api) -> Result<OwnedSemaphorePermit, Problem> {
    let room = Arc::clone(&api.dumps).try_acquire_owned();
    room.map_err(|_| Problem::busy(format!("{DUMPS_MAX} namespaces are dumped or loaded here already"), Span::secs(5)))
}

fn flawed(flaw: Flaw) -> Problem {
    Problem::wrong(flaw.to_string())
}

const DUMP_TYPE: &str = "application/vnd.coppice.dump";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_has_time_waits_in_proportion_to_what_he_took() {
        let began = Instant::now();
        let waited = |yields: &mut Yield, micros| yields.worked(Duration::from_micros(micros));
        let mut yields = Yield::of(2);
        for _ in 0..3 {
            waited(&mut yields, 300);
            yields.pause().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "they are not worth a wait yet");
        waited(&mut yields, 300);
        yields.pause().await;
        assert!(began.elapsed() >= Duration::from_micros(2400), "{:?}", began.elapsed());
        let before = Instant::now();
        waited(&mut yields, 60_000_000);
        yields.pause().await;
        assert!((YIELD_MAX..2 * YIELD_MAX).contains(&before.elapsed()), "an election is no load");
        // At full speed nothing is waited for.
        let (mut yields, before) = (Yield::of(0), Instant::now());
        waited(&mut yields, 500_000);
        yields.pause().await;
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}
