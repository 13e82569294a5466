//! The stub itself: takes jobs over HTTP, lets them wait, gives them to the program's processes, ends those that take
//! too long, and remembers what crashed them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clones::worker::{Form, Worker};
use http::header::{self, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use sdk::axum::body::Body;
use sdk::axum::extract::{Request, State};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::job::{End, Job, Said};
use crate::limits::*;
use crate::poison::{self, Input, Poison};
use crate::program::{Ended, Kept, once};
use crate::queue::{Full, Queue};

pub struct Stub {
    worker: Worker,
    /// Program and arguments.
    words: Vec<String>,
    /// Of the program; what one version crashed on another may do.
    version: String,
    queue: Mutex<Queue<Waiting>>,
    wake: Notify,
    /// Bytes of content that there is room for.
    room: Arc<Semaphore>,
    poison: Mutex<Poison>,
    /// Crashes that the other clones are to hear of.
    tells: mpsc::Sender<Input>,
    counts: Counts,
}

/// What the node is told of it.
#[derive(Default)]
struct Counts {
    under_way: AtomicU64,
    started: AtomicU64,
    refused: AtomicU64,
    crashes: AtomicU64,
    withheld: AtomicU64,
}

struct Waiting {
    job: Job,
    input: Input,
    tell: oneshot::Sender<End>,
    _room: OwnedSemaphorePermit,
}

impl Stub {
    pub fn new(worker: Worker, words: Vec<String>, version: String) -> (Arc<Self>, mpsc::Receiver<Input>) {
        let (tells, told) = mpsc::channel(TOLD_WAITING_MAX);
        let stub = Self {
            worker,
            words,
            version,
            queue: Mutex::new(Queue::new(WAITING_MAX)),
            wake: Notify::new(),
            room: Arc::new(Semaphore::new(HELD_BYTES_MAX)),
            poison: Mutex::default(),
            tells,
            counts: Counts::default(),
        };
        (Arc::new(stub), told)
    }

    /// As many as run at once, for ever. What is wrong with the program ends the stub.
    pub fn begin(self: &Arc<Self>) {
        for _ in 0..self.worker.run_at_once {
            let stub = Arc::clone(self);
            match self.worker.form {
                Form::Stream => drop(tokio::spawn(async move { stub.keep().await })),
                Form::Once | Form::Http => drop(tokio::spawn(async move { stub.one_by_one().await })),
            }
        }
    }

    /// For the monitor and the metrics of the node.
    pub fn figures(&self) -> Vec<(&'static str, u64)> {
        let Counts { under_way, started, refused, crashes, withheld } = &self.counts;
        let [under_way, started, refused, crashes, withheld] =
            [under_way, started, refused, crashes, withheld].map(|count| count.load(Relaxed));
        vec![
            ("waiting", lock(&self.queue).len() as u64),
            ("under_way", under_way),
            ("limit", self.worker.run_at_once.into()),
            ("started_total", started),
            ("refused_total", refused),
            ("crashes_total", crashes),
            ("withheld_total", withheld),
            ("withheld", lock(&self.poison).withheld(Instant::now()) as u64),
        ]
    }

    /// Another clone lost a process to it.
    pub fn heard(&self, input: Input) {
        self.suspect(input);
    }

    fn suspect(&self, input: Input) {
        if lock(&self.poison).crashed(Instant::now(), input) {
            eprintln!(
                "an input has crashed workers {CRASHES_MAX} times and is withheld for an hour: {}",
                poison::text(&input)
            );
        }
    }

    // --- jobs that come ---

    async fn take(self: &Arc<Self>, request: Request) -> Result<End, Response<Body>> {
        let (parts, body) = request.into_parts();
        if parts.method != Method::POST {
            let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "a job is a POST: its body is the content");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
            return Err(response);
        }
        let timeout = Duration::from(self.worker.timeout);
        let query = parts.uri.query().unwrap_or_default();
        let said = match Said::of(query, &parts.headers, Instant::now(), timeout) {
            Ok(said) => said,
            Err(why) => return Ok(End::Bad(why)),
        };
        if !self.worker.takes(&said.kind) {
            return Ok(End::Bad(format!("it takes {}, and this is {:?}", self.worker.takes.join(", "), said.kind)));
        }
        let too_large = || refusal(StatusCode::PAYLOAD_TOO_LARGE, "the content is over 16 MiB");
        let length = parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let length = length.unwrap_or(CONTENT_BYTES_MAX);
        if length > CONTENT_BYTES_MAX {
            return Err(too_large());
        }
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(length as u32) else {
            self.counts.refused.fetch_add(1, Relaxed);
            return Ok(End::Busy("there is no room for more content".into()));
        };
        let content = match timeout_at(said.until, Limited::new(body, CONTENT_BYTES_MAX).collect()).await {
            Ok(Ok(whole)) => whole.to_bytes(),
            Ok(Err(e)) if e.is::<LengthLimitError>() => return Err(too_large()),
            Ok(Err(_)) => return Err(refusal(StatusCode::BAD_REQUEST, "the content did not come whole")),
            Err(_) => return Ok(End::Late),
        };
        Ok(self.end_of(said.job(content), room).await)
    }

    async fn end_of(&self, job: Job, room: OwnedSemaphorePermit) -> End {
        let input = poison::input(&self.version, &job);
        if self.withholds(&input) {
            return End::Withheld;
        }
        let (tell, told) = oneshot::channel();
        let (priority, until) = (job.priority, job.until);
        let full = lock(&self.queue).push(priority, until, Waiting { job, input, tell, _room: room });
        if let Some(Full(waiting)) = full {
            self.counts.refused.fetch_add(1, Relaxed);
            let _ = waiting.tell.send(End::Busy("more jobs come than this worker can do".into()));
        }
        self.wake.notify_one();
        match timeout_at(until, told).await {
            Ok(Ok(end)) => end,
            Ok(Err(_)) => End::Crash("the job was lost".into()),
            Err(_) => End::Late,
        }
    }

    fn withholds(&self, input: &Input) -> bool {
        let withholds = lock(&self.poison).is_withheld(Instant::now(), input);
        if withholds {
            self.counts.withheld.fetch_add(1, Relaxed);
        }
        withholds
    }

    // --- who does them ---

    async fn one_by_one(&self) {
        loop {
            let mut waiting = self.next().await;
            let (until, is_own) = self.until(&waiting.job);
            let ended = tokio::select! {
                ended = once(&self.worker, &self.words, &waiting.job) => ended,
                () = sleep_until(until) => self.too_long(is_own),
                // Nobody waits for it any more.
                () = waiting.tell.closed() => Ended::well(End::Late),
            };
            self.ends(waiting, ended);
        }
    }

    /// Until when it may run, and whether that is the worker's own time.
    fn until(&self, job: &Job) -> (Instant, bool) {
        let own = Instant::now() + Duration::from(self.worker.timeout);
        (own.min(job.until), own <= job.until)
    }

    fn too_long(&self, is_own: bool) -> Ended {
        if is_own {
            Ended::crash(format!("the worker took longer than {:?}", Duration::from(self.worker.timeout)))
        } else {
            Ended::well(End::Late)
        }
    }

    /// Keeps a process, and gives it what comes.
    async fn keep(&self) {
        let mut useless = 0;
        loop {
            let mut kept = match Kept::start(&self.worker, &self.words) {
                Ok(kept) => kept,
                Err(e) => fatal(&format!("no process could be started: {e}")),
            };
            let why = loop {
                let waiting = tokio::select! {
                    // One that has ended gets no job.
                    biased;
                    why = kept.spoils() => break why,
                    waiting = self.next() => waiting,
                };
                // Nobody may wait any more when it is done; it is kept all the same, as it is dear to start another
                // one.
                let own = Instant::now() + Duration::from(self.worker.timeout);
                let left = waiting.job.until.saturating_duration_since(Instant::now());
                let (ended, is_good) = tokio::select! {
                    done = kept.run(&waiting.job, left) => done,
                    () = sleep_until(own) => (self.too_long(true), false),
                };
                self.ends(waiting, ended);
                if !is_good {
                    break "it had to be ended".into();
                }
            };
            useless = if kept.jobs() > 0 { 0 } else { useless + 1 };
            drop(kept);
            if useless >= RESTARTS_MAX {
                fatal(&format!("the worker ends before it does any job: {why}"));
            }
            if useless > 0 {
                sleep((RESTART_FIRST * (1 << useless)).min(RESTART_MAX)).await;
            }
        }
    }

    async fn next(&self) -> Waiting {
        loop {
            let woken = self.wake.notified();
            let mut late = Vec::new();
            let next = lock(&self.queue).pop(Instant::now(), &mut late);
            late.into_iter().for_each(|waiting| _ = waiting.tell.send(End::Late));
            match next {
                Some(waiting) if waiting.tell.is_closed() => (),
                // It may have been tried while it waited.
                Some(waiting) if self.withholds(&waiting.input) => _ = waiting.tell.send(End::Withheld),
                Some(waiting) => {
                    self.counts.started.fetch_add(1, Relaxed);
                    self.counts.under_way.fetch_add(1, Relaxed);
                    return waiting;
                }
                None => woken.await,
            }
        }
    }

    fn ends(&self, waiting: Waiting, ended: Ended) {
        self.counts.under_way.fetch_sub(1, Relaxed);
        if ended.killed {
            self.counts.crashes.fetch_add(1, Relaxed);
            if let End::Crash(why) = &ended.end {
                eprintln!("a job failed: {why}");
            }
            self.suspect(waiting.input);
            let _ = self.tells.try_send(waiting.input);
        }
        let _ = waiting.tell.send(ended.end);
    }
}

/// Any request: a job.
pub async fn job(State(stub): State<Arc<Stub>>, request: Request) -> Response<Body> {
    match stub.take(request).await {
        Ok(end) => end.response(),
        Err(response) => response,
    }
}

/// Ends the stub: its node starts it anew, waits longer each time, and shows why.
pub fn fatal(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(1)
}

fn refusal(status: StatusCode, why: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::from(format!("{why}\n"))));
    *response.status_mut() = status;
    response
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
