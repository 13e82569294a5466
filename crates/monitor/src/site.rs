//! Addresses of the monitor: the page, its files, and the stream that keeps open pages current. Each second the parts
//! are written once, whoever looks; pages get them as `event: parts` with `{id: html}` and the newest events.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use futures_util::StreamExt;
use serde::Serialize;
use tokio::sync::{Semaphore, watch};

use crate::Source;
use crate::history::History;
use crate::limits::*;
use crate::page::{self, PARTS};
use crate::picture::Picture;

/// The monitor's addresses: `/`, `/live`, `/assets/...`. Starts the task that samples, so it needs a tokio runtime;
/// the task ends with the router and its pages.
pub fn router(source: Arc<dyn Source>) -> Router {
    let (frames, _) = watch::channel(Arc::from(""));
    let site =
        Arc::new(Site { source, history: Mutex::default(), frames, viewers: Arc::new(Semaphore::new(VIEWERS_MAX)) });
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
    /// The newest parts, as pages get them.
    frames: watch::Sender<Arc<str>>,
    viewers: Arc<Semaphore>,
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
    fn picture(&self) -> (Picture, Option<String>) {
        match Picture::read(self.source.snapshot()) {
            Ok(picture) => (picture, None),
            Err(problem) => (Picture::default(), Some(problem)),
        }
    }

    /// Takes what the last second brought, and tells open pages.
    fn tick(&self) {
        let (picture, problem) = self.picture();
        if problem.is_some() {
            // The page says so when it is loaded; there is nothing to draw.
            return;
        }
        let history = {
            let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
            history.push(&picture);
            history.clone()
        };
        if self.frames.receiver_count() == 0 {
            return;
        }
        let newest = picture.events.iter().rev().take(EVENTS_SHOWN);
        let frame = Frame {
            summary: page::summary(&picture).into_string(),
            parts: PARTS.iter().map(|part| (part.id, (part.write)(&picture, &history).into_string())).collect(),
            events: newest.map(|event| (page::event_key(event), page::event(event).into_string())).collect(),
            at_ms: picture.at_ms,
        };
        let text = serde_json::to_string(&frame).expect("strings and numbers are always JSON");
        self.frames.send_replace(text.into());
    }
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

async fn whole(State(site): State<Arc<Site>>) -> Html<String> {
    let (picture, problem) = site.picture();
    let history = site.history.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Html(page::page(&picture, &history, problem.as_deref()).into_string())
}

async fn live(State(site): State<Arc<Site>>) -> Response {
    let Ok(place) = Arc::clone(&site.viewers).try_acquire_owned() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "too many pages are open; this one shows what was when it was loaded\n",
        )
            .into_response();
    };
    // Holds the site too: while a page is open, sampling goes on.
    let start = (site.frames.subscribe(), place, site);
    let frames = futures_util::stream::unfold(start, |(mut frames, place, site)| async move {
        frames.changed().await.ok()?;
        let text = Arc::clone(&frames.borrow_and_update());
        Some((text, (frames, place, site)))
    });
    let events = frames.map(|text| Ok::<_, Infallible>(Event::default().event("parts").data(&*text)));
    Sse::new(events).keep_alive(KeepAlive::new().interval(STREAM_KEEPALIVE)).into_response()
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
        fn snapshot(&self) -> serde_json::Value {
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

    #[test]
    fn only_so_many_pages_are_kept_current() {
        run(async |router| {
            let mut open = vec![];
            for _ in 0..VIEWERS_MAX {
                open.push(get(&router, "/live").await);
            }
            assert_eq!(get(&router, "/live").await.status(), 503);
            open.pop();
            assert_eq!(get(&router, "/live").await.status(), 200);
        });
    }

    #[test]
    fn a_view_that_cannot_be_read_is_told() {
        struct Broken;
        impl Source for Broken {
            fn snapshot(&self) -> serde_json::Value {
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
