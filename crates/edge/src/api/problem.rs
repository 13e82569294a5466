//! What a request gets when it does not get what it wanted: a status, and JSON that says why and when to try again.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::{Because, Outcome, Span, Unknown};
use serde::Serialize;
use state::linear::Wrong;
use state::session::CookieError;

use super::Gone;
use super::versions::Versions;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub status: StatusCode,
    pub error: String,
    /// For scripts that must tell problems of one status apart: `cookie-forged`.
    pub kind: Option<&'static str>,
    pub retry_after: Option<Span>,
    /// Of a watch that missed changes: where it may go on.
    pub version: Option<Versions>,
    /// What a function of class `linear` said.
    pub wrong: Option<Wrong>,
}

#[derive(Serialize)]
struct Body<'a> {
    error: &'a str,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a Versions>,
}

impl Problem {
    pub fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), kind: None, retry_after: None, version: None, wrong: None }
    }

    pub fn wrong(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    pub fn not_found(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    pub fn method(error: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, error)
    }

    pub fn forbidden(error: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, error)
    }

    pub fn busy(error: impl Into<String>, retry_after: Span) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, error) }
    }

    /// A cookie that opens nothing.
    pub fn cookie(error: CookieError) -> Self {
        let kind = match error {
            CookieError::Truncated => "cookie-truncated",
            CookieError::Forged => "cookie-forged",
            CookieError::Foreign => "cookie-foreign",
            CookieError::Expired => "cookie-expired",
        };
        Self { kind: Some(kind), ..Self::wrong(error.to_string()) }
    }

    /// No token, or a wrong one; `what` says which is wanted.
    pub fn token(what: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, format!("this needs `Authorization: Bearer` with {what}"))
    }
}

impl From<Gone> for Problem {
    fn from(Gone: Gone) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "the node stopped before it answered (it may have happened)")
    }
}

/// The leader of a group, which may be another node, answered with what is no answer to what it was asked. What it did, nobody knows.
pub fn odd(answer: &impl std::fmt::Debug) -> Problem {
    let mut text = format!("{answer:?}");
    text.truncate(text.floor_char_boundary(ODD_SHOWN_MAX));
    Problem::new(StatusCode::GATEWAY_TIMEOUT, Unknown { why: format!("it was answered with {text}") }.to_string())
}

/// Bytes of an answer that makes no sense, in what its asker is told.
const ODD_SHOWN_MAX: usize = 200;

/// What was done, or the problem: refused with a hint is 503, refused for good 400, as a namespace has all that it may 507, as it
/// asks for more than it may 429, unknown 504.
pub fn done<T>(outcome: Outcome<T>) -> Result<T, Problem> {
    match outcome {
        Outcome::Done(done) => Ok(done),
        // Whoever waits and asks again gets the same answer, as long as nobody removes anything.
        Outcome::Refused(refused) if refused.because == Because::Quota => {
            Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, &refused.why))
        }
        Outcome::Refused(refused) => Err(match refused.retry_after {
            Some(after) if refused.because == Because::Rate => {
                Problem { status: StatusCode::TOO_MANY_REQUESTS, ..Problem::busy(refused.why, after) }
            }
            Some(after) => Problem::busy(refused.why, after),
            None => Problem::wrong(refused.why),
        }),
        Outcome::Unknown(unknown) => Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, unknown.to_string())),
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let retry_after_ms = self.retry_after.map(|span| span.as_millis().max(1));
        let Self { error, kind, version, .. } = &self;
        let body = Body { error, kind: *kind, retry_after_ms, version: version.as_ref() };
        let mut response = (self.status, Json(body)).into_response();
        if let Some(ms) = retry_after_ms {
            response.headers_mut().insert(header::RETRY_AFTER, ms.div_ceil(1000).into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
