//! A worker in Rust: a function that makes one content of another. The service is declared with `worker = { form = "http" }`, and this answers
//! as docs/guide/workers.md says: it runs so many jobs at a time, lets others wait a little, is busy beyond that, and neither a
//! panic nor a job that nobody waits for any more ends it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::response::Response;
use bytes::Bytes;
use flow::stage::Shape;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use percent_encoding::percent_decode_str;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::limits::{JOB_BYTES_MAX, JOB_PARAMS_MAX, JOB_TIME_MAX, JOBS_BYTES_MAX, JOBS_WAITING_MAX, STAGE};
use crate::{Overloaded, Service, Stage, StartError};

const JOB: HeaderName = HeaderName::from_static("coppice-job");
const URL: HeaderName = HeaderName::from_static("coppice-url");
const DEADLINE: HeaderName = HeaderName::from_static("coppice-deadline-ms");

/// A worker that is to serve.
///
/// ```no_run
/// use sdk::{Job, Made};
///
/// /// Capitals of a text.
/// fn shout(job: Job) -> Made {
///     match std::str::from_utf8(&job.content) {
///         Ok(text) => Made::new("text/plain", text.to_uppercase()),
///         Err(_) => Made::Bad("it is no text".into()),
///     }
/// }
///
/// #[tokio::main]
/// async fn main() -> Result<(), sdk::StartError> {
///     sdk::Worker::from_env()?.run(shout).await
/// }
/// ```
pub struct Worker {
    service: Service,
    run_at_once: u32,
}

/// A content, and what is to be made of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Job {
    /// `Content-Type`; empty: nobody said.
    pub kind: String,
    pub content: Bytes,
    pub params: BTreeMap<String, String>,
    /// Where it is from.
    pub url: Option<String>,
}

/// How a job ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Made {
    /// Another content, with its type.
    New { kind: String, content: Bytes },
    /// What was given is as good.
    Unchanged,
    /// Later, or another worker.
    Busy,
    /// Nothing can be made of it: a wrong type, a missing parameter, broken content.
    Bad(String),
}

impl Made {
    pub fn new(kind: impl Into<String>, content: impl Into<Bytes>) -> Self {
        Self::New { kind: kind.into(), content: content.into() }
    }
}

/// How it ended for who asked.
enum End {
    Made(Made),
    Late,
    Crashed,
}

struct Works {
    does: Box<dyn Fn(Job) -> Made + Send + Sync>,
    stage: Stage,
    /// Bytes of content that there is room for.
    room: Arc<Semaphore>,
}

impl Worker {
    /// The error names the variable that is missing or wrong.
    pub fn from_env() -> Result<Self, StartError> {
        Ok(Self::of(Service::from_env()?))
    }

    pub fn of(service: Service) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Self { service, run_at_once: processors }
    }

    /// So many jobs at a time, in place of one for each processor.
    pub fn run_at_once(self, jobs: u32) -> Self {
        Self { run_at_once: jobs.max(1), ..self }
    }

    /// Does jobs until the stop signal. The function may compute for as long as it likes: it has a thread of its own.
    pub async fn run(self, does: impl Fn(Job) -> Made + Send + Sync + 'static) -> Result<(), StartError> {
        let (service, routes) = self.routes(does);
        service.serve(routes).await
    }

    /// The same, until `stop` ends.
    pub async fn run_until(
        self,
        does: impl Fn(Job) -> Made + Send + Sync + 'static,
        stop: impl Future<Output = ()>,
    ) -> Result<(), StartError> {
        let (service, routes) = self.routes(does);
        service.serve_until(routes, stop).await
    }

    fn routes(self, does: impl Fn(Job) -> Made + Send + Sync + 'static) -> (Service, Router) {
        let mut shape = Shape { queue_max: JOBS_WAITING_MAX, ..STAGE };
        // What is computed takes no longer because others are: how many go at a time is known.
        (shape.limit.first, shape.limit.min, shape.limit.max) = (self.run_at_once, self.run_at_once, self.run_at_once);
        let works =
            Works { does: Box::new(does), stage: Stage::of(shape), room: Arc::new(Semaphore::new(JOBS_BYTES_MAX)) };
        let service = self.service.shows("jobs", &works.stage);
        let works = Arc::new(works);
        (service, Router::new().fallback(move |request: Request| answer(Arc::clone(&works), request)))
    }
}

async fn answer(works: Arc<Works>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    if head.method != Method::POST {
        return told(StatusCode::METHOD_NOT_ALLOWED, None, "jobs are asked for by POST".into());
    }
    let params = match params(head.uri.query().unwrap_or_default()) {
        Ok(params) => params,
        Err(why) => return shown(End::Made(Made::Bad(why))),
    };
    let length = head.headers.get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse().ok());
    let room = u32::try_from(length.unwrap_or(JOB_BYTES_MAX).min(JOB_BYTES_MAX)).unwrap_or(u32::MAX);
    let Ok(_room) = Arc::clone(&works.room).try_acquire_many_owned(room.max(1)) else {
        return shown(End::Made(Made::Busy));
    };
    let until = until(&head.headers);
    let content = match timeout_at(until, to_bytes(body, JOB_BYTES_MAX)).await {
        Ok(Ok(content)) => content,
        Ok(Err(_)) => return shown(End::Made(Made::Bad(format!("it has over {JOB_BYTES_MAX} bytes, or broke off")))),
        Err(_) => return shown(End::Late),
    };
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let job = Job { kind: text(header::CONTENT_TYPE).unwrap_or_default(), content, params, url: text(URL) };
    let turn = match timeout_at(until, works.stage.enter()).await {
        Ok(Ok(turn)) => turn,
        Ok(Err(Overloaded)) => return shown(End::Made(Made::Busy)),
        Err(_) => return shown(End::Late),
    };
    // Its turn is over when it is done, also if nobody waits for it any more.
    let done = tokio::task::spawn_blocking(move || {
        let made = (works.does)(job);
        turn.done();
        made
    });
    shown(match timeout_at(until, done).await {
        Ok(Ok(made)) => End::Made(made),
        Ok(Err(_)) => End::Crashed,
        Err(_) => End::Late,
    })
}

fn until(headers: &HeaderMap) -> Instant {
    let left = headers.get(DEADLINE).and_then(|ms| ms.to_str().ok()?.trim().parse().ok()).map(Duration::from_millis);
    Instant::now() + left.unwrap_or(JOB_TIME_MAX).min(JOB_TIME_MAX)
}

fn params(query: &str) -> Result<BTreeMap<String, String>, String> {
    let text = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text)
            .decode_utf8()
            .map(|text| text.into_owned())
            .map_err(|_| format!("{text:?} is no text"))
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let params = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| Ok((text(name)?, text(value)?)));
    let params: BTreeMap<String, String> = params.collect::<Result<_, String>>()?;
    if params.len() > JOB_PARAMS_MAX {
        return Err(format!("it has over {JOB_PARAMS_MAX} parameters"));
    }
    Ok(params)
}

fn shown(end: End) -> Response<Body> {
    match end {
        End::Made(Made::New { kind, content }) => {
            let mut response = Response::new(Body::from(content));
            if let Ok(kind) = HeaderValue::from_str(&kind)
                && !kind.is_empty()
            {
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
            }
            response.headers_mut().insert(JOB, HeaderValue::from_static("done"));
            response
        }
        End::Made(Made::Unchanged) => told(StatusCode::NO_CONTENT, Some("unchanged"), String::new()),
        End::Made(Made::Busy) => {
            let mut response =
                told(StatusCode::SERVICE_UNAVAILABLE, Some("busy"), "there are more jobs than can be done".into());
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        End::Made(Made::Bad(why)) => told(StatusCode::UNPROCESSABLE_ENTITY, Some("bad"), why),
        End::Late => told(StatusCode::GATEWAY_TIMEOUT, Some("late"), "nobody waits for it any more".into()),
        End::Crashed => told(StatusCode::INTERNAL_SERVER_ERROR, Some("crash"), "the worker broke off".into()),
    }
}

fn told(status: StatusCode, job: Option<&'static str>, why: String) -> Response<Body> {
    let text = if why.is_empty() { Body::empty() } else { Body::from(why + "\n") };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    if let Some(job) = job {
        response.headers_mut().insert(JOB, HeaderValue::from_static(job));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn works(does: impl Fn(Job) -> Made + Send + Sync + 'static, at_once: u32) -> Arc<Works> {
        let mut shape = Shape { queue_max: 1, ..STAGE };
        (shape.limit.first, shape.limit.min, shape.limit.max) = (at_once, at_once, at_once);
        let (stage, room) = (Stage::of(shape), Arc::new(Semaphore::new(JOBS_BYTES_MAX)));
        Arc::new(Works { does: Box::new(does), stage, room })
    }

    async fn ask(works: &Arc<Works>, path: &str, content: &str, deadline_ms: u64) -> (u16, String, String) {
        let request =
            http::Request::post(path).header(header::CONTENT_TYPE, "text/plain").header(DEADLINE, deadline_ms);
        let response = answer(Arc::clone(works), request.body(Body::from(content.to_owned())).unwrap()).await;
        let job = response.headers().get(JOB).map(|job| job.to_str().unwrap().to_owned()).unwrap_or_default();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, job, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn each_end_of_a_job_is_told_as_workers_tell_it() {
        let works = works(
            |job| match &*job.content {
                b"same" => Made::Unchanged,
                b"bad" => Made::Bad("it is bad".into()),
                b"busy" => Made::Busy,
                b"panic" => panic!("a worker that fails"),
                _ => Made::new("text/plain", format!("{} {:?} {:?}", job.kind, job.params, job.content)),
            },
            2,
        );
        for (content, expected) in [
            ("same", (204, "unchanged", "")),
            ("bad", (422, "bad", "it is bad\n")),
            ("busy", (503, "busy", "there are more jobs than can be done\n")),
            ("panic", (500, "crash", "the worker broke off\n")),
            ("x", (200, "done", "text/plain {\"a\": \"b c\", \"d\": \"é\"} b\"x\"")),
        ] {
            let (status, job, text) = ask(&works, "/?a=b+c&d=%C3%A9", content, 60_000).await;
            assert_eq!((status, job.as_str(), text.as_str()), expected);
        }
        assert_eq!(ask(&works, "/?a=%ff", "x", 60_000).await.0, 422);
        let many: String = (0..=JOB_PARAMS_MAX).map(|n| format!("p{n}=1&")).collect();
        assert_eq!(ask(&works, &format!("/?{many}"), "x", 60_000).await.0, 422);
        let large = "x".repeat(JOB_BYTES_MAX + 1);
        assert_eq!(ask(&works, "/", &large, 60_000).await.0, 422);
        let get = http::Request::get("/").body(Body::empty()).unwrap();
        assert_eq!(answer(works, get).await.status(), 405);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_more_than_it_can_do_is_busy_and_what_is_late_is_not_waited_for() {
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let works = works(
            move |_| {
                let _ = gate.lock().unwrap().recv();
                Made::Unchanged
            },
            1,
        );
        let first = tokio::spawn({
            let works = Arc::clone(&works);
            async move { ask(&works, "/", "1", 60_000).await.0 }
        });
        while works.stage.show().started == 0 {
            tokio::task::yield_now().await;
        }
        // One waits; it is over for it before its turn has come.
        assert_eq!(ask(&works, "/", "2", 1).await.1, "late");
        let waits = tokio::spawn({
            let works = Arc::clone(&works);
            async move { ask(&works, "/", "3", 60_000).await.0 }
        });
        let mut ends = Vec::new();
        while !ends.contains(&"busy".to_owned()) {
            ends.push(ask(&works, "/", "4", 200).await.1);
            assert!(ends.len() < 100, "{ends:?}");
        }
        drop(go);
        assert_eq!(first.await.unwrap(), 204);
        assert!([204, 503].contains(&waits.await.unwrap()), "its turn came, or it had waited for too long");
    }
}
