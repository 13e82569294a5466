//! A job, and how it ends; and both as HTTP, which is what a stub speaks for its program.
//!
//! | end | status | `Coppice-Job` |
//! | --- | --- | --- |
//! | content | 200 | `done` |
//! | unchanged: what was given is as good | 204 | `unchanged` |
//! | busy | 503 | `busy` |
//! | bad input: another one may do | 422 | `bad` |
//! | crash: the program ended, broke its protocol, or took too long | 500 | `crash` |
//! | late: nobody waits any more | 504 | `late` |
//! | withheld: this input has crashed workers twice | 422 | `withheld` |

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use percent_encoding::percent_decode_str;
use sdk::axum::body::Body;
use tokio::time::{Duration, Instant};

use crate::limits::*;

pub const JOB: HeaderName = HeaderName::from_static("coppice-job");
const URL: HeaderName = HeaderName::from_static("coppice-url");
const DEADLINE: HeaderName = HeaderName::from_static("coppice-deadline-ms");
const PRIORITY: HeaderName = HeaderName::from_static("coppice-priority");
const PRIORITY_DEFAULT: u8 = 5;
const PRIORITY_MAX: u8 = 9;
const TYPE_DEFAULT: &str = "application/octet-stream";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    pub content: Bytes,
    /// Its type.
    pub kind: String,
    pub params: BTreeMap<String, String>,
    /// Where the content is from, if that is known.
    pub url: Option<String>,
    /// What who asks wants, if the service has a profile and the request came from outside.
    pub profile: Option<Profile>,
    /// 0 is refused first, 9 last.
    pub priority: u8,
    /// Nobody waits after that.
    pub until: Instant,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Done { kind: String, body: Bytes },
    Unchanged,
    Busy(String),
    Bad(String),
    Crash(String),
    Late,
    Withheld,
}

/// What the head of a request says of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    pub kind: String,
    pub params: BTreeMap<String, String>,
    pub url: Option<String>,
    pub profile: Option<Profile>,
    pub priority: u8,
    pub until: Instant,
}

pub type Profile = serde_json::Map<String, serde_json::Value>;

impl Said {
    /// # Errors
    /// A sentence: there is something that is no parameter.
    pub fn of(query: &str, fields: &HeaderMap, now: Instant, timeout: Duration) -> Result<Self, String> {
        let text = |name: &HeaderName| fields.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let number = |name: &HeaderName| text(name).and_then(|text| text.parse::<u64>().ok());
        let left = number(&DEADLINE).map_or(timeout, Duration::from_millis);
        let until = now + left.min(DEADLINE_MAX);
        let priority = number(&PRIORITY).map_or(PRIORITY_DEFAULT, |said| said.min(PRIORITY_MAX.into()) as u8);
        let kind = text(&header::CONTENT_TYPE).unwrap_or(TYPE_DEFAULT).to_owned();
        let url = text(&URL).map(str::to_owned);
        let profile = sdk::profile(fields).and_then(sdk::Wants::value);
        Ok(Self { kind, params: params(query)?, url, profile, priority, until })
    }

    pub fn job(self, content: Bytes) -> Job {
        let Self { kind, params, url, profile, priority, until } = self;
        Job { content, kind, params, url, profile, priority, until }
    }
}

/// `quality=25&grey=1`, percent-encoded.
fn params(query: &str) -> Result<BTreeMap<String, String>, String> {
    if query.len() > QUERY_BYTES_MAX {
        return Err(format!("the query has over {QUERY_BYTES_MAX} bytes"));
    }
    let mut all = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = value.replace('+', " ");
        let value = percent_decode_str(&value).decode_utf8().map_err(|_| format!("parameter {name:?} is not UTF-8"))?;
        if !is_name(name) {
            return Err(format!("{name:?} is no parameter: up to {NAME_BYTES_MAX} of a-z, 0-9 and _ are one"));
        }
        if value.contains('\0') {
            return Err(format!("parameter {name:?} has a zero byte"));
        }
        all.insert(name.to_owned(), value.into_owned());
    }
    if all.len() > PARAMS_MAX {
        return Err(format!("{} parameters are over the limit of {PARAMS_MAX}", all.len()));
    }
    Ok(all)
}

pub fn is_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

impl End {
    /// The status, and the word in `Coppice-Job`.
    fn says(&self) -> (StatusCode, &'static str) {
        match self {
            End::Done { .. } => (StatusCode::OK, "done"),
            End::Unchanged => (StatusCode::NO_CONTENT, "unchanged"),
            End::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            End::Bad(_) => (StatusCode::UNPROCESSABLE_ENTITY, "bad"),
            End::Crash(_) => (StatusCode::INTERNAL_SERVER_ERROR, "crash"),
            End::Late => (StatusCode::GATEWAY_TIMEOUT, "late"),
            End::Withheld => (StatusCode::UNPROCESSABLE_ENTITY, "withheld"),
        }
    }

    pub fn response(self) -> Response<Body> {
        let (status, word) = self.says();
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(JOB, HeaderValue::from_static(word));
        let (kind, body) = match self {
            End::Done { kind, body } => (HeaderValue::try_from(kind).ok(), body),
            End::Unchanged => (None, Bytes::new()),
            End::Busy(why) | End::Bad(why) | End::Crash(why) => (plain(), format!("{why}\n").into()),
            End::Late => (plain(), Bytes::from_static(b"its time was over before the job was done\n")),
            End::Withheld => {
                (plain(), Bytes::from_static(b"this input has crashed workers; it is not tried again for an hour\n"))
            }
        };
        if status == StatusCode::SERVICE_UNAVAILABLE {
            fields.insert(header::RETRY_AFTER, RETRY_AFTER_S.into());
        }
        if status != StatusCode::NO_CONTENT {
            fields.extend(kind.map(|kind| (header::CONTENT_TYPE, kind)));
            *response.body_mut() = body.into();
        }
        response
    }
}

fn plain() -> Option<HeaderValue> {
    Some(HeaderValue::from_static("text/plain; charset=utf-8"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_what_is_none_is_named() {
        let read = |query: &str| params(query).map(|all| all.into_iter().collect::<Vec<_>>());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read("word=a%20b+c&x&y="), Ok(vec![pair("word", "a b c"), pair("x", ""), pair("y", "")]));
        assert_eq!(read(""), Ok(vec![]));
        for (query, why) in [
            ("A=1", "\"A\" is no parameter"),
            ("%61=1", "is no parameter"),
            ("=1", "is no parameter"),
            ("a=%ff", "not UTF-8"),
            ("a=%00", "zero byte"),
            (&*format!("a={}", "x".repeat(QUERY_BYTES_MAX)), "bytes"),
            (&*(0..=PARAMS_MAX).map(|n| format!("p{n}=1&")).collect::<String>(), "33 parameters"),
        ] {
            assert!(read(query).unwrap_err().contains(why), "{query}: {:?}", read(query));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_said_counts_and_what_is_not_has_defaults() {
        let (now, timeout) = (Instant::now(), Duration::from_secs(10));
        let of = |fields: &[(&HeaderName, &str)]| {
            let fields = fields.iter().map(|(name, value)| ((*name).clone(), HeaderValue::from_str(value).unwrap()));
            Said::of("", &fields.collect(), now, timeout).unwrap()
        };
        let bare = of(&[]);
        assert_eq!((&*bare.kind, bare.priority, bare.until), (TYPE_DEFAULT, 5, now + timeout));
        let said = of(&[(&DEADLINE, "250"), (&PRIORITY, "12"), (&header::CONTENT_TYPE, "text/plain"), (&URL, "/a")]);
        assert_eq!((&*said.kind, said.priority, said.until), ("text/plain", 9, now + Duration::from_millis(250)));
        assert_eq!(said.url.as_deref(), Some("/a"));
        // Longer than any clock has.
        assert_eq!(of(&[(&DEADLINE, &u64::MAX.to_string())]).until, now + DEADLINE_MAX);
    }
}
