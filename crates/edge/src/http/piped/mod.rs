//! Pipelines of a service: its answers pass workers on their way out (TACC 2.3). What comes of them is `exact`; if a
//! step fails or has no time, the answer goes out as the service gave it, `original`, or as it was made of an earlier
//! content of the same URL, `near`, and is asked for anew soon, and made good meanwhile; or 502 goes out: as the pipeline says. What no step is for, or is not to be changed, passes as it comes and is not held
//! here.
//!
//! - `content.rs`: which answers are taken and how they look afterwards. `made.rs`: what workers made before.
//! - `gather.rs`: steps that ask several workers at once; what some of them did not give is missing, and the answer `partial`.
//!
//! A pipeline stands before the edge cache: that one keeps what the service said, so each variant is made of one
//! original.

mod content;
mod gather;
mod made;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use clones::RoutePipeline;
use clones::pipeline::{OnFail, Step};
use futures_util::future::poll_fn;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use state::cache::Mark;
use tokio::time::{Instant, timeout_at};

use super::body::Source;
use super::claim::Claim;
use super::errand::{self, Own};
use super::limits::{PIPED_ANSWER_BYTES_MAX, PIPED_REPAIR_AFTER, PIPED_REPAIR_TRIES, PIPED_WAIT_MIN};
use super::passage::{Cleansed, Edge};
use super::passed::{DEADLINE, Deadline, PRIORITY};
use crate::fields::AnyFields as _;
use crate::meter::PipeCounts;
use content::{ANSWER, Content, is_changeable, is_for_all, of_made, of_near, of_original, of_partial, takes_any};
use gather::Lacking;
use made::Made;

const JOB: HeaderName = HeaderName::from_static("coppice-job");
const JOB_URL: HeaderName = HeaderName::from_static("coppice-url");
/// In a query all but what is surely itself.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A request whose answer passes a pipeline.
#[derive(Clone)]
pub struct Piped {
    pipeline: Arc<RoutePipeline>,
    method: Method,
    url: HeaderValue,
    /// Host and path, of who shows nothing that is his own.
    shared: Option<Arc<str>>,
    class: u8,
    until: Instant,
    /// What who asks wants, if steps go by that.
    wants: Wants,
}

/// The profile of who asks: set before the service is asked, if there is one.
pub type Wants = Arc<OnceLock<Map<String, Value>>>;

/// What a worker made of a content before.
enum Found {
    /// None: the content stays as it is.
    Here(Option<Content>),
    /// With where it is to be kept, if it can be.
    Missing(Option<(Made, Mark)>),
}

/// What came of all steps.
#[derive(Default)]
struct Carried {
    /// None: every step left it as it is.
    content: Option<Content>,
    /// Parts that did not come.
    missing: Vec<String>,
    /// Some part was made of an earlier content.
    is_near: bool,
    /// What is missing may be there when it is asked for anew.
    may_come: bool,
}

/// Why a step came to nothing: for the log.
struct Failed {
    step: usize,
    worker: String,
    why: Why,
}

struct Why {
    /// What the worker answered.
    status: Option<StatusCode>,
    text: String,
}

impl Why {
    fn of(text: impl Into<String>) -> Self {
        Self { status: None, text: text.into() }
    }

    /// Whether the content is to blame, so that the worker would fail again.
    fn is_of_content(&self) -> bool {
        self.status == Some(StatusCode::UNPROCESSABLE_ENTITY)
    }
}

impl Piped {
    /// Takes from the request what would bring a part of the answer, one in another form, or none: what is said to HEAD is known only of
    /// what GET would give.
    pub fn of(
        (pipeline, wants): (Arc<RoutePipeline>, Wants),
        request: &mut Cleansed,
        class: u8,
        deadline: Deadline,
    ) -> Self {
        for name in
            [header::RANGE, header::IF_RANGE, header::ACCEPT_ENCODING, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE]
        {
            request.fields.take(&name);
        }
        if request.method == Method::HEAD {
            request.method = Method::GET;
        }
        let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
        let is_own = [header::COOKIE, header::AUTHORIZATION].iter().any(|name| request.fields.has(name));
        let host = request.uri.authority().map(|host| host.as_str());
        let host = host.or_else(|| request.fields.first(&header::HOST)?.to_str().ok()).unwrap_or_default();
        let is_own = is_own || pipeline.spec.uses_profile();
        let shared = (!is_own && request.method == Method::GET).then(|| format!("{host}{path}").into());
        let url = HeaderValue::from_str(path).unwrap_or_else(|_| HeaderValue::from_static("/"));
        Self { shared, pipeline, method: request.method.clone(), url, class, until: deadline.at.into(), wants }
    }

    /// Where what who asks wants is put, before the service is asked.
    pub fn wants(&self) -> Wants {
        Arc::clone(&self.wants)
    }

    /// What becomes of the service's answer.
    pub async fn pass(self, edge: &Arc<Edge>, answer: (Response<()>, Source)) -> (Response<()>, Source) {
        let spec = &self.pipeline.spec;
        let of_person =
            spec.uses_profile() && answer.0.status() == StatusCode::OK && takes_any(spec, answer.0.headers());
        let mut answer = self.passed(edge, answer).await;
        if of_person {
            // Another person's answer may be another one.
            answer.0.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        }
        answer
    }

    async fn passed(self, edge: &Arc<Edge>, answer: (Response<()>, Source)) -> (Response<()>, Source) {
        let counts = edge.pipes.of(&self.pipeline.name);
        let (mut response, source) = answer;
        let spec = &self.pipeline.spec;
        if matches!(source, Source::Nothing) {
            return (response, source);
        }
        if !takes_any(spec, response.headers()) || response.status() != StatusCode::OK {
            return (response, source);
        }
        if !is_changeable(&self.method, response.headers(), spec.body_max()) {
            return original(response, source, &counts);
        }
        // Beyond its time a client would get nothing at all.
        let until = self.until.min(Instant::now() + Duration::from(spec.timeout));
        let Some(claim) = Claim::of(&edge.pipes.room, spec.body_max() as usize) else {
            return original(response, source, &counts);
        };
        let body = match whole(source, spec.body_max() as usize, until).await {
            Ok(body) => claim.keep(body),
            Err(source) => return original(response, source, &counts),
        };
        let last = self.last(edge, response.headers());
        let original = Content { kind: content::kind(response.headers()).to_owned(), body };
        let url = self.shared.as_deref().filter(|_| is_for_all(response.headers()));
        let made = self.carry(edge, &counts, original.clone(), last.as_ref(), url, until).await;
        match made {
            Ok(Carried { content: None, .. }) => {
                counts.exact.fetch_add(1, Relaxed);
                response.headers_mut().insert(ANSWER, HeaderValue::from_static("exact"));
                (response, Source::Bytes(original.body))
            }
            Ok(Carried { content: Some(Content { kind, body }), missing, is_near, may_come }) => {
                if may_come {
                    self.repair(edge, &counts, &original);
                }
                let fields = response.headers_mut();
                let count = if !missing.is_empty() {
                    of_partial(fields, &kind, &missing);
                    &counts.partial
                } else if is_near {
                    of_near(fields, &kind);
                    &counts.near
                } else {
                    of_made(fields, &kind);
                    &counts.exact
                };
                count.fetch_add(1, Relaxed);
                (response, Source::Bytes(body))
            }
            Err(Failed { step, worker, why }) => {
                tracing::debug!(
                    pipeline = self.pipeline.name,
                    worker,
                    why = why.text,
                    "a step of a pipeline has failed"
                );
                let on_fail = spec.on_fail(&spec.steps[step]);
                if on_fail == OnFail::Error {
                    counts.failed.fetch_add(1, Relaxed);
                    return failed(&worker);
                }
                if !why.is_of_content() {
                    self.repair(edge, &counts, &original);
                }
                let last = last.filter(|_| on_fail == OnFail::Near);
                let near = match last {
                    Some(last) => last.read().await.0.flatten(),
                    None => None,
                };
                if let Some(Content { kind, body }) = near {
                    counts.near.fetch_add(1, Relaxed);
                    of_near(response.headers_mut(), &kind);
                    return (response, Source::Bytes(body));
                }
                counts.original.fetch_add(1, Relaxed);
                of_original(response.headers_mut(), true);
                (response, Source::Bytes(original.body))
            }
        }
    }

    /// Where it stands what was made last for this URL, if anybody may see it.
    fn last(&self, edge: &Edge, fields: &HeaderMap) -> Option<Made> {
        let spec = &self.pipeline.spec;
        let is_kept = spec.steps.iter().any(|step| spec.on_fail(step) == OnFail::Near) && is_for_all(fields);
        let (url, cache) = self.shared.as_ref().filter(|_| is_kept).zip(spec.cache.as_ref())?;
        Some(Made::last(edge, cache, &self.pipeline.name, url))
    }

    /// Makes it when there is room, for who asks anew; what was made is kept by its content.
    fn repair(&self, edge: &Arc<Edge>, counts: &Arc<PipeCounts>, original: &Content) {
        let Ok(turn) = Arc::clone(&edge.pipes.repairs).try_acquire_owned() else { return };
        // Unless it is kept nobody would have it.
        if self.pipeline.spec.cache.is_none() {
            return;
        }
        let (edge, counts, original) = (Arc::clone(edge), Arc::clone(counts), original.clone());
        // Whoever waits for something comes first.
        let piped = Self { class: 0, ..self.clone() };
        tokio::spawn(async move {
            for _ in 0..PIPED_REPAIR_TRIES {
                tokio::time::sleep(PIPED_REPAIR_AFTER).await;
                let until = Instant::now() + Duration::from(piped.pipeline.spec.timeout);
                let end = piped.carry(&edge, &counts, original.clone(), None, None, until).await;
                // What crashes a worker is tried no third time.
                let may_be_well = |status| {
                    matches!(status, None | Some(StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT))
                };
                if end.map_or_else(|failed| !may_be_well(failed.why.status), |carried| !carried.may_come) {
                    break;
                }
            }
            drop(turn);
        });
    }

    /// What a worker had to make is noted as the `last` for its URL; `url` is what earlier parts are kept by.
    async fn carry(
        &self,
        edge: &Edge,
        counts: &PipeCounts,
        mut content: Content,
        last: Option<&Made>,
        url: Option<&str>,
        until: Instant,
    ) -> Result<Carried, Failed> {
        let (mut is_changed, mut mark, mut carried) = (false, None, Carried::default());
        for (step, (spec, version)) in self.pipeline.spec.steps.iter().zip(&self.pipeline.versions).enumerate() {
            if !spec.applies(&content.kind, content.body.len() as u64) {
                continue;
            }
            let own;
            let spec = if spec.uses_profile() {
                let of = spec.of_profile(self.wants.get().unwrap_or(&Map::new()));
                let Some(of) = of else { continue };
                own = of;
                &own
            } else {
                spec
            };
            let own = spec.timeout.map(|own| Instant::now() + Duration::from(own));
            let until = own.map_or(until, |own| own.min(until));
            if !spec.gather.is_empty() {
                // Who makes something of the parts has the last quarter.
                let left = until.saturating_duration_since(Instant::now());
                let until = if own.is_some() { until } else { until - left / 4 };
                let gathered = self.gather(edge, counts, (spec, &version.parts), &content, url, until).await;
                let failed = |Lacking { worker, why }| Failed { step, worker, why };
                if let Some(gathered) = gathered.map_err(failed)? {
                    (content, is_changed) = (gathered.document, true);
                    carried.missing.extend(gathered.missing);
                    carried.is_near |= gathered.is_near;
                    carried.may_come |= gathered.may_come;
                }
                continue;
            }
            let failed = |why| Failed { step, worker: spec.worker.clone(), why };
            let made = match self.find(edge, counts, (spec, version.own), &content).await {
                Found::Here(made) => made,
                Found::Missing(place) => {
                    if let Some(last) = last.filter(|_| mark.is_none()) {
                        // Before it is made: what is purged meanwhile does not come back.
                        mark = last.read().await.1;
                    }
                    let bytes_max = PIPED_ANSWER_BYTES_MAX;
                    let claim = Claim::of(&edge.pipes.room, 0);
                    let made = self.make(edge, counts, spec, place, &content, until, (bytes_max, claim));
                    made.await.map_err(failed)?
                }
            };
            if let Some(made) = made {
                (content, is_changed) = (made, true);
            }
        }
        let is_whole = carried.missing.is_empty() && !carried.is_near;
        if let Some((last, mark)) = last.zip(mark).filter(|_| is_changed && is_whole) {
            last.write(Some(&content), mark).await;
        }
        Ok(Carried { content: is_changed.then_some(content), ..carried })
    }

    async fn find(&self, edge: &Edge, counts: &PipeCounts, (step, version): (&Step, u64), content: &Content) -> Found {
        let Some(cache) = &self.pipeline.spec.cache else { return Found::Missing(None) };
        let made = Made::new(edge, cache, step, version, content);
        match made.read().await {
            (Some(found), _) => {
                counts.hits.fetch_add(1, Relaxed);
                Found::Here(found)
            }
            (None, mark) => Found::Missing(mark.map(|mark| (made, mark))),
        }
    }

    /// None: it leaves the content as it is. The bounds: of bytes, and what counts them, if they are not counted yet.
    #[allow(clippy::too_many_arguments, reason = "what is made of what, where it is kept, and its bounds")]
    async fn make(
        &self,
        edge: &Edge,
        counts: &PipeCounts,
        step: &Step,
        place: Option<(Made, Mark)>,
        content: &Content,
        until: Instant,
        bounds: (usize, Option<Claim>),
    ) -> Result<Option<Content>, Why> {
        counts.jobs.fetch_add(1, Relaxed);
        let done = self.ask(edge, step, content, until, bounds).await?;
        if let Some((made, mark)) = place {
            made.write(done.as_ref(), mark).await;
        }
        Ok(done)
    }

    async fn ask(
        &self,
        edge: &Edge,
        step: &Step,
        content: &Content,
        until: Instant,
        (answer_bytes_max, claim): (usize, Option<Claim>),
    ) -> Result<Option<Content>, Why> {
        let left = until.saturating_duration_since(Instant::now());
        if left < PIPED_WAIT_MIN {
            return Err(Why::of("no time was left"));
        }
        let mut headers = HeaderMap::new();
        if let Ok(kind) = HeaderValue::from_str(&content.kind) {
            headers.insert(header::CONTENT_TYPE, kind);
        }
        headers.insert(JOB_URL, self.url.clone());
        headers.insert(DEADLINE, HeaderValue::from(left.as_millis() as u64));
        headers.insert(PRIORITY, HeaderValue::from(u16::from(self.class)));
        let path = path(step);
        let own = Own {
            service: &step.worker,
            path: &path,
            headers,
            body: content.body.clone(),
            patience: left,
            answer_bytes_max,
            claim,
        };
        let asked = timeout_at(until, errand::ask_whole(&edge.pool, own)).await;
        let (head, body) = match asked {
            Ok(Ok(answer)) => answer,
            Ok(Err(refusal)) => return Err(Why::of(format!("{refusal:?}"))),
            Err(_) => return Err(Why::of("it took too long")),
        };
        match head.status() {
            StatusCode::OK => {
                let kind = head.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
                Ok(Some(Content { kind: kind.unwrap_or(&content.kind).to_owned(), body }))
            }
            StatusCode::NO_CONTENT => Ok(None),
            status => {
                let end = head.headers().get(JOB).and_then(|end| end.to_str().ok()).unwrap_or_default();
                Err(Why { status: Some(status), text: format!("{status} {end}") })
            }
        }
    }
}

/// Where a job is asked for, with its parameters.
fn path(step: &Step) -> String {
    let text = |text: &str| utf8_percent_encode(text, PLAIN).to_string();
    let params: Vec<String> =
        step.params.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect();
    if params.is_empty() { "/".to_owned() } else { format!("/?{}", params.join("&")) }
}

/// As the service gave it, since it is not for pipelines.
fn original(mut response: Response<()>, source: Source, counts: &PipeCounts) -> (Response<()>, Source) {
    counts.original.fetch_add(1, Relaxed);
    of_original(response.headers_mut(), false);
    (response, source)
}

fn failed(worker: &str) -> (Response<()>, Source) {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let text =
        format!("worker {worker:?} has not done its part of this answer; nothing else is wrong with the request\n");
    (response, Source::Bytes(text.into()))
}

/// A whole body. Else, with what was read before the rest: it is too large, too slow, or it broke off.
async fn whole(mut source: Source, bytes_max: usize, until: Instant) -> Result<Bytes, Source> {
    let mut read = BytesMut::new();
    loop {
        let frame = timeout_at(until, poll_fn(|cx| source.poll_frame(cx))).await;
        let (part, fits) = match frame {
            Ok(None) if !source.is_cut() => return Ok(read.freeze()),
            Ok(None) | Err(_) => return Err(Source::Ahead(read.freeze(), Box::new(source))),
            Ok(Some(Err(error))) => return Err(Source::Ahead(read.freeze(), Box::new(Source::Broken(error.kind())))),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(part) => {
                    let fits = read.len() + part.len() <= bytes_max;
                    (part, fits)
                }
                // Fields at its end are of the original.
                Err(_) => continue,
            },
        };
        read.extend_from_slice(&part);
        if !fits {
            return Err(Source::Ahead(read.freeze(), Box::new(source)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_to_the_worker_as_they_were_declared() {
        let step = |params: &str| -> Step { serde_json::from_str(&format!("{{\"worker\":\"a\"{params}}}")).unwrap() };
        assert_eq!(path(&step("")), "/");
        assert_eq!(path(&step(",\"params\":{\"word\":\"a b&c=é\",\"x\":\"\"}")), "/?word=a%20b%26c%3D%C3%A9&x=");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_read_whole_or_passes_with_what_was_read() {
        let until = Instant::now() + Duration::from_secs(1);
        let source = |text: &'static [u8]| Source::Bytes(Bytes::from_static(text));
        assert_eq!(whole(source(b"abc"), 3, until).await.ok(), Some(Bytes::from_static(b"abc")));
        let ahead = Source::Ahead(Bytes::from_static(b"ab"), Box::new(source(b"cd")));
        let Err(mut rest) = whole(ahead, 3, until).await else { panic!("it is too large") };
        let mut all = Vec::new();
        while let Some(frame) = poll_fn(|cx| rest.poll_frame(cx)).await {
            all.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
        assert_eq!(all, b"abcd", "nothing is lost");
        let broken = Source::Ahead(Bytes::from_static(b"ab"), Box::new(Source::Broken(std::io::ErrorKind::Other)));
        assert!(whole(broken, 9, until).await.is_err(), "half a body is not given to a worker");
    }
}
