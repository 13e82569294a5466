//! Sends what is due and waits for answers. One task keeps the clock and never waits for an answer; each connection is a task
//! that takes the next waiting request. What waits is bounded: beyond that a request is counted as not sent.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::Word;
use super::report::{Failure, Report};
use super::schedule::Schedule;
use super::trace::Line;
use crate::plain::complain;

/// A request without its headers.
#[derive(Clone, Debug)]
pub struct Want {
    pub method: Method,
    pub path: String,
    pub body: Bytes,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub addr: SocketAddr,
    /// What is sent unless a trace says something else.
    pub want: Want,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub connections: usize,
    pub waiting: usize,
    pub timeout: Duration,
    pub quiet: bool,
}

struct Job {
    due: Instant,
    line: Option<Line>,
}

struct Shared {
    plan: Plan,
    jobs: Mutex<VecDeque<Job>>,
    /// One permit for each job.
    waiting: Semaphore,
    report: Mutex<Report>,
}

/// Before the first request: is anybody there?
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Without a pause the clock's task looks at the others after so many requests.
const BREATH: u32 = 64;
/// Between looks whether all answers are there, after the last request.
const DRAIN_LOOK: Duration = Duration::from_millis(5);

pub async fn run(plan: Plan, schedule: Schedule, words: Option<mpsc::Receiver<Word>>) -> Result<Report, String> {
    let cannot = |why: String| format!("cannot reach {}: {why}", plan.addr);
    let trial = timeout(CONNECT_TIME_MAX, TcpStream::connect(plan.addr)).await;
    trial.map_err(|_| cannot("no answer".into()))?.map_err(|e| cannot(e.to_string()))?;
    let shared = Arc::new(Shared {
        jobs: Mutex::default(),
        waiting: Semaphore::new(0),
        report: Mutex::new(Report::new()),
        plan,
    });
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..shared.plan.connections {
        tasks.spawn(connection(Arc::clone(&shared)));
    }
    if !shared.plan.quiet {
        tasks.spawn(progress(Arc::clone(&shared), begun));
    }
    clock(&shared, begun, schedule, words).await?;
    // All that were sent are answered or late by then.
    let end = Instant::now() + shared.plan.timeout + CONNECT_TIME_MAX;
    while lock(&shared.report).under_way() > 0 && Instant::now() < end {
        sleep(DRAIN_LOOK).await;
    }
    tasks.shutdown().await;
    let mut report = std::mem::replace(&mut *lock(&shared.report), Report::new());
    report.ended(begun.elapsed());
    Ok(report)
}

async fn clock(
    shared: &Shared,
    begun: Instant,
    mut schedule: Schedule,
    mut words: Option<mpsc::Receiver<Word>>,
) -> Result<(), String> {
    let mut in_a_row = 0;
    while let Some(at) = schedule.due()? {
        let (now, due) = (Instant::now(), begun + at);
        if due > now {
            in_a_row = 0;
            tokio::select! {
                () = sleep_until(due) => (),
                Some(word) = hear(&mut words) => obey(&mut schedule, word, begun.elapsed()),
            }
            continue;
        }
        let line = schedule.take();
        let has_room = {
            let mut jobs = lock(&shared.jobs);
            let has_room = jobs.len() < shared.plan.waiting;
            if has_room {
                jobs.push_back(Job { due, line });
            }
            has_room
        };
        lock(&shared.report).offered(now - due, has_room, schedule.rate());
        if has_room {
            shared.waiting.add_permits(1);
        }
        in_a_row += 1;
        if in_a_row >= BREATH {
            in_a_row = 0;
            tokio::task::yield_now().await;
            if let Some(Ok(word)) = words.as_mut().map(mpsc::Receiver::try_recv) {
                obey(&mut schedule, word, begun.elapsed());
            }
        }
    }
    Ok(())
}

/// Never, if nobody says anything any more.
async fn hear(words: &mut Option<mpsc::Receiver<Word>>) -> Option<Word> {
    let word = match words {
        Some(words) => words.recv().await,
        None => None,
    };
    if word.is_none() {
        *words = None;
        std::future::pending::<()>().await;
    }
    word
}

fn obey(schedule: &mut Schedule, word: Word, now: Duration) {
    match word {
        Word::Rate(rate) => schedule.set_rate(now, rate),
        Word::Stop => schedule.stop(),
    }
}

async fn progress(shared: Arc<Shared>, begun: Instant) {
    for second in 1.. {
        sleep_until(begun + Duration::from_secs(second)).await;
        let line = lock(&shared.report).second(second);
        complain!("{line}");
    }
}

async fn connection(shared: Arc<Shared>) {
    let mut sender = None;
    loop {
        let Ok(permit) = shared.waiting.acquire().await else { return };
        permit.forget();
        let Some(job) = lock(&shared.jobs).pop_front() else { continue };
        let sent = Instant::now();
        let until = sent + shared.plan.timeout;
        let answer =
            timeout_at(until, exchange(&shared.plan, &mut sender, job.line)).await.unwrap_or(Err(Failure::Late));
        let now = Instant::now();
        if answer.is_err() {
            sender = None;
        }
        lock(&shared.report).answered(answer, now - job.due, now - sent);
    }
}

/// Status of the answer, when all of it is here.
async fn exchange(
    plan: &Plan,
    kept: &mut Option<SendRequest<Full<Bytes>>>,
    line: Option<Line>,
) -> Result<u16, Failure> {
    let mut request = request(plan, line)?;
    loop {
        let mut sender = match kept.take().filter(SendRequest::is_ready) {
            Some(sender) => sender,
            None => connect(plan.addr).await?,
        };
        let answer = match sender.try_send_request(request).await {
            Ok(answer) => answer,
            Err(mut error) => match error.take_message() {
                // The other side closed a connection that had nothing to do.
                Some(back) => {
                    request = back;
                    continue;
                }
                None => return Err(Failure::Closed),
            },
        };
        let status = answer.status().as_u16();
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            frame.map_err(|_| Failure::Closed)?;
        }
        // Closed after this answer, if it says so: then the next one finds it not ready.
        *kept = sender.ready().await.is_ok().then_some(sender);
        return Ok(status);
    }
}

async fn connect(addr: SocketAddr) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = TcpStream::connect(addr).await.map_err(|_| Failure::Connect)?;
    let _ = stream.set_nodelay(true);
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|_| Failure::Connect)?;
    // Ends with its sender, or with the other side, which the sender then knows.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

fn request(plan: &Plan, line: Option<Line>) -> Result<Request<Full<Bytes>>, Failure> {
    let want = plan.want.clone();
    let (method, path, body) = match line {
        Some(line) => (line.method.unwrap_or(want.method), line.path, line.body.unwrap_or(want.body)),
        None => (want.method, want.path, want.body),
    };
    let mut request = Request::builder().method(method).uri(path).body(Full::new(body)).map_err(|_| Failure::Closed)?;
    request.headers_mut().extend(plan.headers.iter().cloned());
    Ok(request)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
