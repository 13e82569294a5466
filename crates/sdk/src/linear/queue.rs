//! Queues of jobs of class `linear`. What was put is on a majority's disks; each job is one worker's at a time, until that one says that
//! it is done, or its time is over: then another one gets it. So a job may happen twice, and none is lost.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use sdk::{Linear, LinearError, Works};
//! # async fn example(jobs: &Linear<()>) -> Result<(), LinearError> {
//! let mails = jobs.queue::<String>("mails");
//! mails.put(&"welcome ann".to_owned()).await?;
//! mails.work(Works::default(), std::future::pending::<()>(), async |job| {
//!     println!("{}", job.job);
//!     Ok::<(), std::io::Error>(())
//! }).await;
//! # Ok(()) }
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use base::Refused;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Linear, LinearError, failed, of_read, unreadable};
use crate::limits::{JOB_WAIT, OPERATION_TIME_MAX, WORK_AGAIN};
use crate::node::{Answer, quoted};

/// One queue, whose jobs are JSON of `T`. Cheap to clone.
pub struct Queue<T> {
    linear: Linear<Value>,
    name: Arc<str>,
    job: PhantomData<fn() -> T>,
}

/// How a job is put.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Put {
    /// Time from the put on in which nobody gets it.
    pub delay: Duration,
    /// 0 to 9: what matters most comes first. Else 5.
    pub priority: Option<u8>,
    /// Tries after which it is dead. Else 5.
    pub tries: Option<u32>,
    /// A job that was put with the same key is not put again while the key is remembered.
    pub key: Option<String>,
    /// For how long it is. Else an hour; a week at most.
    pub keep: Option<Duration>,
}

/// A job that this worker has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken<T> {
    /// For [`Queue::done`] and its like.
    pub ticket: String,
    pub id: u64,
    pub job: T,
    /// Which try this is: 1 at first.
    pub nth: u32,
    /// For how long it was in the queue.
    pub age: Duration,
}

/// What became of a job that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// The job comes again.
    Again,
    /// That was its last try.
    Dead,
    /// The job was not this worker's any more: its time was over.
    Gone,
}

/// What is in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Depth {
    pub waiting: u64,
    pub later: u64,
    pub held: u64,
    pub dead: u64,
    /// How long the one waits that has waited longest.
    pub oldest: Duration,
}

/// When a job is put again and again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Times {
    /// `0 3 * * *`: minute, hour, day of the month, month, day of the week, in UTC.
    Cron(String),
    /// A second at least.
    Every(Duration),
}

/// How a worker works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Works {
    /// Jobs that are worked on at a time.
    pub at_once: usize,
    /// Time for which the worker has a job, and which it prolongs while it works. If it dies another one gets the job after this.
    pub hold: Duration,
}

impl Default for Works {
    fn default() -> Self {
        Self { at_once: 1, hold: Duration::from_secs(30) }
    }
}

impl<T> Linear<T> {
    /// The queue of this name.
    pub fn queue<J>(&self, name: &str) -> Queue<J> {
        Queue { linear: self.of(), name: name.into(), job: PhantomData }
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { linear: self.linear.clone(), name: Arc::clone(&self.name), job: PhantomData }
    }
}

impl<T> Queue<T> {
    /// Prolongs the time of a job, from now on. False: it was over, and another one may have it.
    pub async fn renew(&self, ticket: &str, hold: Duration) -> Result<bool, LinearError> {
        let body = json!({"ticket": ticket, "hold_ms": millis(hold)});
        self.post("renew", &body).await?["held"].as_bool().ok_or_else(unreadable)
    }

    /// The job is done, and gone. False: another one has it, or has done it.
    pub async fn done(&self, ticket: &str) -> Result<bool, LinearError> {
        Ok(self.post("done", &json!({"tickets": [ticket]})).await?["done"].as_u64().ok_or_else(unreadable)? == 1)
    }

    /// Gives a job back that was not begun with: it waits again, as if it had not been given.
    pub async fn back(&self, ticket: &str) -> Result<bool, LinearError> {
        Ok(self.post("back", &json!({"tickets": [ticket]})).await?["back"].as_u64().ok_or_else(unreadable)? == 1)
    }

    /// Says that a job could not be done. It comes again: after `delay`, or after a second, two, four and so on.
    pub async fn fail(&self, ticket: &str, delay: Option<Duration>, why: &str) -> Result<Failed, LinearError> {
        let mut body = json!({"ticket": ticket, "why": why});
        if let Some(delay) = delay {
            body["delay_ms"] = millis(delay).into();
        }
        of_failure(&self.post("fail", &body).await?)
    }

    /// Says that a job can never be done: it is dead, whatever tries it has left.
    pub async fn fail_for_good(&self, ticket: &str, why: &str) -> Result<Failed, LinearError> {
        of_failure(&self.post("fail", &json!({"ticket": ticket, "why": why, "dead": true})).await?)
    }

    /// Dead jobs wait again, a thousand at most; how many are dead still.
    pub async fn retry_dead(&self) -> Result<u64, LinearError> {
        self.post("retry", &json!({})).await?["dead"].as_u64().ok_or_else(unreadable)
    }

    /// What is in it; nothing, if it is not there.
    pub async fn depth(&self) -> Result<Depth, LinearError> {
        let call = self.linear.call(Method::GET, &self.path(""));
        let answer = self.linear.node.call(&call).await.map_err(of_read)?;
        match answer.status {
            StatusCode::OK => (),
            StatusCode::NOT_FOUND => return Ok(Depth::default()),
            _ => return Err(failed(&answer)),
        }
        let body: Value = serde_json::from_slice(&answer.body).map_err(|_| unreadable())?;
        let number = |name: &str| body[name].as_u64().ok_or_else(unreadable);
        Ok(Depth {
            waiting: number("waiting")?,
            later: number("later")?,
            held: number("held")?,
            dead: number("dead")?,
            oldest: Duration::from_millis(number("oldest_ms")?),
        })
    }

    /// No job is put any more by this name. False: none was.
    pub async fn unrepeat(&self, name: &str) -> Result<bool, LinearError> {
        let call = self.linear.call(Method::DELETE, &self.path(&format!("/repeats/{}", quoted(name))));
        let answer = self.linear.node.call(&call.once()).await?;
        match answer.status {
            StatusCode::NO_CONTENT => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(failed(&answer)),
        }
    }

    fn path(&self, rest: &str) -> String {
        format!("queues/{}{rest}", quoted(&self.name))
    }

    /// A write, which happens once.
    async fn post(&self, what: &str, body: &Value) -> Result<Value, LinearError> {
        let call = self.linear.call(Method::POST, &self.path(&format!("/{what}"))).once().body(body.to_string());
        read(&self.linear.node.call(&call).await?)
    }
}

impl<T: Serialize + DeserializeOwned> Queue<T> {
    /// Puts a job; its id.
    pub async fn put(&self, job: &T) -> Result<u64, LinearError> {
        self.put_with(job, &Put::default()).await
    }

    /// Puts a job; its id, or that of the job that was put with the same key.
    pub async fn put_with(&self, job: &T, put: &Put) -> Result<u64, LinearError> {
        let mut body = Map::from_iter([("payload".to_owned(), payload(job)?)]);
        let mut say = |name: &str, value: Option<Value>| value.map(|value| body.insert(name.to_owned(), value));
        say("delay_ms", (!put.delay.is_zero()).then(|| millis(put.delay).into()));
        say("priority", put.priority.map(Value::from));
        say("tries", put.tries.map(Value::from));
        say("key", put.key.clone().map(Value::from));
        say("keep_ms", put.keep.map(|keep| millis(keep).into()));
        self.post("jobs", &Value::Object(body)).await?["id"].as_u64().ok_or_else(unreadable)
    }

    /// Puts a job at these times, instead of what was repeated by this name.
    pub async fn repeat(&self, name: &str, times: &Times, job: &T) -> Result<(), LinearError> {
        let mut body = match times {
            Times::Cron(cron) => json!({"cron": cron}),
            Times::Every(every) => json!({"every_ms": millis(*every)}),
        };
        body["payload"] = payload(job)?;
        let call = self.linear.call(Method::PUT, &self.path(&format!("/repeats/{}", quoted(name))));
        read(&self.linear.node.call(&call.once().body(body.to_string())).await?).map(drop)
    }

    /// Takes jobs, so many at most; waits for one for so long if there is none. Each is this worker's for `hold`. One that is no JSON of
    /// `T` is dead at once.
    pub async fn take(&self, count: usize, hold: Duration, wait: Duration) -> Result<Vec<Taken<T>>, LinearError> {
        let wait = wait.min(JOB_WAIT);
        let body = json!({"count": count.max(1), "hold_ms": millis(hold), "wait_ms": millis(wait)});
        let mut call = self.linear.call(Method::POST, &self.path("/take")).body(body.to_string());
        // If its answer is lost its jobs come again when their time is over.
        call.most = OPERATION_TIME_MAX + wait;
        let body = read(&self.linear.node.call(&call).await?)?;
        let mut taken = Vec::new();
        for job in body["jobs"].as_array().ok_or_else(unreadable)? {
            let ticket = job["ticket"].as_str().ok_or_else(unreadable)?.to_owned();
            let number = |name: &str| job[name].as_u64().ok_or_else(unreadable);
            match job["payload"].as_str().map(serde_json::from_str) {
                Some(Ok(read)) => taken.push(Taken {
                    ticket,
                    id: number("id")?,
                    job: read,
                    nth: u32::try_from(number("try")?).unwrap_or(u32::MAX),
                    age: Duration::from_millis(number("age_ms")?),
                }),
                Some(Err(error)) => {
                    self.fail_for_good(&ticket, &format!("it is no JSON of this type: {error}")).await?;
                }
                None => {
                    self.fail_for_good(&ticket, "it is no text").await?;
                }
            }
        }
        Ok(taken)
    }

    /// Does jobs as they come, until `until` ends; then those that were begun. `act` says how each ended: one that failed comes again.
    pub async fn work<F, E>(&self, works: Works, until: impl Future<Output = ()>, act: F)
    where
        F: AsyncFn(&Taken<T>) -> Result<(), E>,
        E: fmt::Display,
    {
        let mut until = std::pin::pin!(until);
        let (mut running, mut ends) = (FuturesUnordered::new(), false);
        let most = works.at_once.max(1);
        while !ends {
            while running.len() >= most {
                running.next().await;
            }
            let mut taking = std::pin::pin!(self.take(most - running.len(), works.hold, JOB_WAIT));
            let taken = loop {
                tokio::select! {
                    taken = &mut taking => break taken,
                    Some(()) = running.next(), if !running.is_empty() => (),
                    // What it takes in this moment comes again when its time is over.
                    () = &mut until => { ends = true; break Ok(Vec::new()) }
                }
            };
            match taken {
                Ok(jobs) => jobs.into_iter().for_each(|job| running.push(self.one(job, works.hold, &act))),
                Err(error) => {
                    tracing::warn!(queue = &*self.name, %error, "no job could be taken");
                    tokio::select! {
                        () = tokio::time::sleep(WORK_AGAIN) => (),
                        () = &mut until => ends = true,
                    }
                }
            }
        }
        while running.next().await.is_some() {}
    }

    /// One job from here to its end.
    async fn one<F, E>(&self, job: Taken<T>, hold: Duration, act: &F)
    where
        F: AsyncFn(&Taken<T>) -> Result<(), E>,
        E: fmt::Display,
    {
        let mut acting = std::pin::pin!(act(&job));
        let mut renewals = tokio::time::interval((hold / 3).max(Duration::from_millis(1)));
        renewals.tick().await;
        let ended = loop {
            tokio::select! {
                ended = &mut acting => break ended,
                _ = renewals.tick() => match self.renew(&job.ticket, hold).await {
                    Ok(true) => (),
                    Ok(false) => tracing::warn!(queue = &*self.name, job.id, "its time was over before it was done"),
                    Err(error) => tracing::warn!(queue = &*self.name, job.id, %error, "its time could not be prolonged"),
                },
            }
        };
        let told = match ended {
            Ok(()) => self.done(&job.ticket).await.map(drop),
            Err(why) => self.fail(&job.ticket, None, &why.to_string()).await.map(drop),
        };
        if let Err(error) = told {
            tracing::warn!(queue = &*self.name, job.id, %error, "how it ended could not be said: it comes again");
        }
    }
}

fn read(answer: &Answer) -> Result<Value, LinearError> {
    match answer.status {
        StatusCode::OK => serde_json::from_slice(&answer.body).map_err(|_| unreadable()),
        _ => Err(failed(answer)),
    }
}

fn of_failure(body: &Value) -> Result<Failed, LinearError> {
    match &body["state"] {
        Value::Null => Ok(Failed::Gone),
        Value::String(state) if state == "again" => Ok(Failed::Again),
        Value::String(state) if state == "dead" => Ok(Failed::Dead),
        _ => Err(unreadable()),
    }
}

fn payload(job: &impl Serialize) -> Result<Value, LinearError> {
    let no_json = |error| LinearError::Refused(Refused::wrong(format!("the job cannot be JSON: {error}")));
    serde_json::to_string(job).map(Value::String).map_err(no_json)
}

/// At least one, where it is not none.
fn millis(span: Duration) -> u64 {
    let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    if span.is_zero() { 0 } else { ms.max(1) }
}
