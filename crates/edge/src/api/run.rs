//! A command that is run once, as a clone of a service, on this node: its output as it comes, then how it ended. Who goes away ends
//! it. The operator's token is needed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use base::{Exit, Span};
use bytes::Bytes;
use clones::runs::Once;
use futures_util::stream;
use host::logs::{LogWish, Source};
use node::{Answer, Ask, RunEnd, RunStarted};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::address::Path;
use super::declare::whole;
use super::limits::{BODY_BYTES_MAX, LIVE_WITHIN, LOG_LINES_MAX};
use super::problem::{done, odd};
use super::{Api, Problem, guard};

/// Between two looks at what it has printed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Whoever says nothing is asked whether he is still there.
const STILL_EVERY: Duration = Duration::from_secs(2);
/// The last line is in the log soon after the end, if the disk is well.
const LAST_LINE_WITHIN: Duration = Duration::from_secs(3);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    run: Vec<String>,
}

/// A run and what was told of it.
struct Running {
    api: Api,
    service: String,
    started: RunStarted,
    /// Moment of the last line that was told, microseconds since 1970.
    after_us: u64,
    said_at: Instant,
    /// How it ended, and since when that is known: its last lines may be on their way to the log.
    ended: Option<(RunEnd, Instant)>,
    over: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let gone = self.api.backend.ask(Ask::EndRun { number: self.started.number }, LIVE_WITHIN);
            tokio::spawn(gone);
        }
    }
}

/// Body: `{"run": ["program", "argument"]}`. Answer: one JSON object a line, `{"source": "out", "line": "..."}`, the last one
/// `{"exit": 0}`, `{"signal": 9}` or `{"failed": "..."}`. Empty lines keep it open.
pub async fn run(
    State(api): State<Api>,
    Path(service): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let body = whole(body, BODY_BYTES_MAX).await?;
    let Wish { run } = serde_json::from_slice(&body)
        .map_err(|e| Problem::wrong(format!("the body must be {{\"run\": [\"program\", \"argument\"]}}: {e}")))?;
    if run.first().is_none_or(String::is_empty) || run.iter().any(|word| word.contains('\0')) {
        return Err(Problem::wrong("run is a program and its arguments, without zero bytes"));
    }
    let after_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    let ask = Ask::Run(Once { service: service.clone(), run });
    let started = match api.backend.ask(ask, Span::secs(5)).await? {
        Answer::Run(outcome) => done(outcome)?,
        other => return Err(odd(&other)),
    };
    let running = Running { api, service, started, after_us, said_at: Instant::now(), ended: None, over: false };
    let pieces = stream::unfold(running, |mut running| async move {
        let piece = running.next().await?;
        Some((Ok::<Bytes, std::io::Error>(piece), running))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, Body::from_stream(pieces)).into_response())
}

impl Running {
    /// The next piece; none after the last.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.over {
                return None;
            }
            let (mut text, last) = self.look().await;
            match &self.ended {
                Some((end, since)) if last || since.elapsed() > LAST_LINE_WITHIN => {
                    text += &format!("{}\n", told(end));
                    self.over = true;
                }
                Some(_) => (),
                None => self.ended = self.is_ended().await.map(|end| (end, Instant::now())),
            }
            if text.is_empty() && self.said_at.elapsed() > STILL_EVERY {
                text = "\n".to_owned();
            }
            if !text.is_empty() {
                self.said_at = Instant::now();
                return Some(text.into());
            }
            if self.ended.is_none() {
                sleep(LOOK_EVERY).await;
            } else {
                sleep(LOOK_EVERY / 5).await;
            }
        }
    }

    /// What it has printed since, and whether its end is among it.
    async fn look(&mut self) -> (String, bool) {
        let wish = LogWish {
            service: self.service.clone(),
            clone: Some(self.started.clone),
            version: None,
            after_us: self.after_us,
            lines: LOG_LINES_MAX,
            oldest: true,
        };
        let Ok(part) = self.api.backend.own_logs(wish).await else { return (String::new(), false) };
        let (mut text, mut is_last) = (String::new(), false);
        for line in part.lines {
            self.after_us = line.at_us;
            match line.source {
                Source::Node => is_last |= line.line.starts_with("ended:") || line.line.starts_with("not started:"),
                source => text += &format!("{}\n", json!({"source": source, "line": line.line})),
            }
        }
        (text, is_last && !part.more)
    }

    async fn is_ended(&self) -> Option<RunEnd> {
        let gone = |why: &str| RunEnd { exit: Exit::NotStarted(why.to_owned()), why: None };
        match self.api.backend.ask(Ask::RunEnd { number: self.started.number }, LIVE_WITHIN).await {
            Ok(Answer::RunEnd(Some(end))) => end,
            Ok(_) => Some(gone("this node does not know of it any more")),
            Err(_) => Some(gone("this node has ended, and the command with it")),
        }
    }
}

fn told(end: &RunEnd) -> serde_json::Value {
    let mut told = match &end.exit {
        Exit::Code(code) => json!({"exit": code}),
        Exit::Signal(signal) => json!({"signal": signal}),
        Exit::NotStarted(why) => json!({"failed": why}),
    };
    if let Some(why) = &end.why {
        told["why"] = json!(why);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_says_how_and_why() {
        let end = |exit, why: Option<&str>| told(&RunEnd { exit, why: why.map(str::to_owned) }).to_string();
        assert_eq!(end(Exit::Code(3), None), r#"{"exit":3}"#);
        assert_eq!(end(Exit::Signal(9), Some("late")), r#"{"signal":9,"why":"late"}"#);
        assert_eq!(end(Exit::NotStarted("no such program".into()), None), r#"{"failed":"no such program"}"#);
    }
}
