//! Addresses of the monitor: the page, its files, and the stream that keeps open pages current. Each second the parts
//! are written once, whoever looks; pages get them as `event: parts` with `{id: html}` and the newest events.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use futures_util::StreamExt;
use host::crowd::{Caller, Crowd};
use serde::Serialize;
use tokio::sync::watch;

use crate::Source;
use crate::history::History;
use crate::limits::*;
use crate::page::{self, PARTS};
use crate::picture::Picture;

/// The monitor's addresses: `/`, `/live`, `/assets/...`. Starts the task that samples, so it needs a tokio runtime;
/// the task ends with the router and its pages.
pub fn router(source: Arc<dyn Source>) -> Router {
    let site = Arc::new(Site {
        source,
        history: Mutex::default(),
        frames: [false, true].map(|_| watch::channel(Arc::from("")).0),
        viewers: Crowd::new(VIEWERS_MAX),
        operators: Crowd::new(VIEWERS_MAX),
    });
    tokio::spawn(sample(Arc::downgrade(&site)));
    Router::new()
        .route("/", get(whole))
        .route("/live", get(live))
        .route("/assets/monitor.css", get(|| file("text/css; charset=utf-8", include_str!("../assets/monitor.css"))))
        .route(
            "/assets/monitor.js",
            get(|| file("text/javascript; charset=utf-8", include_str!("../assets/monitor.js"))),
        )
        .route("/assets/icon.svg", get(|| file("image/svg+xml", include_str!("../assets/icon.svg"))))
        .layer(middleware::from_fn(protect))
        .with_state(site)
}

struct Site {
    source: Arc<dyn Source>,
    history: Mutex<History>,
    /// The newest parts, as pages of anybody get them, and as operators' do.
    frames: [watch::Sender<Arc<str>>; 2],
    /// Whose pages are kept current, by address; operators' have places of their own.
    viewers: Arc<Crowd>,
    operators: Arc<Crowd>,
}

/// What an open page gets each second.
#[derive(Serialize)]
struct Frame {
    summary: String,
    parts: Vec<(&'static str, String)>,
    /// Key and HTML, newest first.
    events: Vec<(String, String)>,
    at_ms: u64,
}

impl Site {
    fn picture(&self, to_operator: bool) -> (Picture, Option<String>) {
        match Picture::read(self.source.snapshot(to_operator)) {
            Ok(picture) => (picture, None),
            Err(problem) => (Picture::default(), Some(problem)),
        }
    }

    /// Takes what the last second brought, and tells open pages.
    fn tick(&self) {
        let (picture, problem) = self.picture(false);
        if problem.is_some() {
            // The page says so when it is loaded; there is nothing to draw.
            return;
        }
        let history = {
            let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
            history.push(&picture);
            history.clone()
        };
        let [anybody, operators] = &self.frames;
        if operators.receiver_count() > 0 {
            operators.send_replace(frame(&self.picture(true).0, &history));
        }
        if anybody.receiver_count() > 0 {
            anybody.send_replace(frame(&picture, &history));
        }
    }
}

fn frame(picture: &Picture, history: &History) -> Arc<str> {
    let newest = picture.events.iter().rev().take(EVENTS_SHOWN);
    let frame = Frame {
        summary: page::summary(picture).into_string(),
        parts: PARTS.iter().map(|part| (part.id, (part.write)(picture, history).into_string())).collect(),
        events: newest.map(|event| (page::event_key(event), page::event(event).into_string())).collect(),
        at_ms: picture.at_ms,
    };
    serde_json::to_string(&frame).expect("strings and numbers are always JSON").into()
}

async fn sample(site: std::sync::Weak<Site>) {
    let mut seconds = tokio::time::interval(SAMPLE_EVERY);
    seconds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        seconds.tick().await;
        match site.upgrade() {
            Some(site) => site.tick(),
            None => return,
        }
    }
}

async fn whole(State(site): State<Arc<Site>>, Asks(caller): Asks) -> Html<String> {
    let (picture, problem) = site.picture(caller.is_operator);
    let history = site.history.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Html(page::page(&picture, &history, problem.as_deref()).into_string())
}

async fn live(State(site): State<Arc<Site>>, Asks(caller): Asks, headers: HeaderMap) -> Response {
    if headers.contains_key(header::AUTHORIZATION) && !caller.is_operator {
        return (StatusCode::UNAUTHORIZED, "this is not the operator's token\n").into_response();
    }
    // When there are too many, the oldest of whoever has most ends; that one shows what was until then.
    let place = if caller.is_operator { &site.operators } else { &site.viewers }.come(caller.from);
    // Holds the site too: while a page is open, sampling goes on.
    let start = (site.frames[usize::from(caller.is_operator)].subscribe(), site);
    let frames = futures_util::stream::unfold(start, |(mut frames, site)| async move {
        frames.changed().await.ok()?;
        let text = Arc::clone(&frames.borrow_and_update());
        Some((text, (frames, site)))
    });
    let events = frames.map(|text| Ok::<_, Infallible>(Event::default().event("parts").data(&*text)));
    let events = events.take_until(place.left());
    Sse::new(events).keep_alive(KeepAlive::new().interval(STREAM_KEEPALIVE)).into_response()
}

/// Who asks; somebody from nowhere, if nobody has found out.
struct Asks(Caller);

impl<S: Sync> FromRequestParts<S> for Asks {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let nobody = Caller { from: Ipv4Addr::UNSPECIFIED.into(), is_operator: false };
        Ok(Self(parts.extensions.get::<Caller>().copied().unwrap_or(nobody)))
    }
}

async fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    // Checked at each load, so that after an upgrade page and files fit together.
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text)
}

/// What browsers are told never to do with these pages.
static HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
];

async fn protect(request: axum::extract::Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in &HEADERS {
        response.headers_mut().insert(name.clone(), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    use super::*;

    struct Fixed;

    impl Source for Fixed {
        fn snapshot(&self, _: bool) -> serde_json::Value {
            serde_json::json!({
                "cluster": "demo", "me": "n1",
                "nodes": [{"name": "n1", "state": "live", "gauges": {"http.requests": 7}}],
                "events": [{"at_ms": 5, "kind": "birth", "who": "n1", "text": "came"}],
            })
        }
    }

    async fn get(router: &Router, path: &str) -> axum::response::Response {
        let request = Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
        TowerToHyperService::new(router.clone()).call(request).await.unwrap()
    }

    fn run(test: impl AsyncFnOnce(Router)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async { test(router(Arc::new(Fixed))).await });
    }

    #[test]
    fn the_page_and_its_files_are_there_with_their_headers() {
        run(async |router| {
            for (path, kind) in [
                ("/", "text/html; charset=utf-8"),
                ("/assets/monitor.css", "text/css; charset=utf-8"),
                ("/assets/monitor.js", "text/javascript; charset=utf-8"),
                ("/assets/icon.svg", "image/svg+xml"),
            ] {
                let response = get(&router, path).await;
                assert_eq!(
                    (response.status().as_u16(), response.headers()["content-type"].to_str().unwrap()),
                    (200, kind)
                );
                let policy = response.headers()["content-security-policy"].to_str().unwrap();
                assert!(policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"));
            }
        });
    }

    #[test]
    fn an_open_page_hears_of_each_second() {
        run(async |router| {
            let mut body = get(&router, "/live").await.into_body();
            for _ in 0..3 {
                let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
                let text = String::from_utf8(data.to_vec()).unwrap();
                let json = text.strip_prefix("event: parts\ndata: ").unwrap_or_else(|| panic!("{text}"));
                let frame: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
                assert!(frame["summary"].as_str().unwrap().contains("1 node live"));
                assert_eq!(frame["parts"].as_array().unwrap().len(), PARTS.len());
                assert_eq!(frame["events"][0][0], "5 birth n1 came");
            }
            let page = get(&router, "/").await.into_body().collect().await.unwrap().to_bytes();
            let page = String::from_utf8(page.to_vec()).unwrap();
            assert!(page.contains("now 7 a second"), "the charts know the last seconds");
        });
    }

    async fn get_as(router: &Router, path: &str, from: [u8; 4], is_operator: bool) -> axum::response::Response {
        let mut request = Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
        request.extensions_mut().insert(Caller { from: from.into(), is_operator });
        TowerToHyperService::new(router.clone()).call(request).await.unwrap()
    }

    #[test]
    fn only_so_many_pages_are_kept_current_and_who_opens_many_lets_others_in() {
        run(async |router| {
            let other = get_as(&router, "/live", [203, 0, 113, 2], false).await;
            let operator = get_as(&router, "/live", [203, 0, 113, 1], true).await;
            let mut many = vec![];
            for _ in 0..VIEWERS_MAX {
                many.push(get_as(&router, "/live", [203, 0, 113, 1], false).await);
            }
            for page in [other, operator, many.pop().unwrap()] {
                assert!(page.into_body().frame().await.is_some(), "it is still told");
            }
            assert!(many.swap_remove(0).into_body().frame().await.is_none(), "the oldest of many is over");
        });
    }

    #[test]
    fn a_page_shows_what_its_reader_may_see_and_a_wrong_token_is_told() {
        struct Secret;
        impl Source for Secret {
            fn snapshot(&self, to_operator: bool) -> serde_json::Value {
                let key = if to_operator { "alice" } else { "1f00aa99" };
                serde_json::json!({"namespaces": [{"name": "bank", "hot": [{"key": key, "rate": 5}]}]})
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let router = router(Arc::new(Secret));
            for (path, is_operator) in [("/", false), ("/", true), ("/live", false), ("/live", true)] {
                let mut body = get_as(&router, path, [203, 0, 113, 1], is_operator).await.into_body();
                let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
                let text = String::from_utf8(data.to_vec()).unwrap();
                assert_eq!((text.contains("alice"), text.contains("1f00aa99")), (is_operator, !is_operator), "{path}");
            }
            let wrong = Request::get("/live").header("authorization", "Bearer x").body(Body::empty()).unwrap();
            let refused = TowerToHyperService::new(router.clone()).call(wrong).await.unwrap();
            assert_eq!(refused.status(), 401);
        });
    }

    #[test]
    fn a_view_that_cannot_be_read_is_told() {
        struct Broken;
        impl Source for Broken {
            fn snapshot(&self, _: bool) -> serde_json::Value {
                serde_json::json!({"nodes": 3})
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let page = get(&router(Arc::new(Broken)), "/").await.into_body().collect().await.unwrap().to_bytes();
            assert!(String::from_utf8(page.to_vec()).unwrap().contains("could not be read"));
        });
    }
}
