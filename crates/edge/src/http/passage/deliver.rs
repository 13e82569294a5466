//! The ninth step: a clone's answer as its client gets it. What was for one hop is taken out, and what a status, a
//! method or a version of HTTP forbids it to say; or both change to another protocol, which goes on without us.

use std::time::{Duration, Instant};

use http::header::{self, HeaderValue};
use http::{Response, StatusCode};

use super::Edge;
use super::change::Wanted;
use crate::http::body::{DownBody, FromClone, Source};
use crate::http::errand::Answer;
use crate::http::headers::strip_one_hop;
use crate::http::lasting::Lasting;
use crate::http::refusal::Refusal;

/// What is still to be known of a request when it is on its way.
pub struct Underway {
    pub upgrade: Option<Box<Wanted>>,
    pub upgraded_idle: Duration,
    pub takes_trailers: bool,
    pub body_max: u64,
    pub began: Instant,
}

/// A clone's answer.
pub struct Forwarded {
    pub response: Response<()>,
    /// None: nothing follows.
    pub from: Option<FromClone>,
    /// Brings its client back to the clone.
    pub stay: Option<HeaderValue>,
    /// The answer is of the service that was asked, and not of one that answers for it as it has no room.
    pub is_own: bool,
}

impl Forwarded {
    pub fn down(self) -> (Response<()>, Source) {
        let Self { mut response, from, stay, is_own: _ } = self;
        if let Some(stay) = stay {
            response.headers_mut().append(header::SET_COOKIE, stay);
        }
        (response, from.map_or(Source::Nothing, Source::Clone))
    }
}

/// Makes the client's answer of the clone's.
pub fn deliver(edge: &Edge, answer: Answer, asked: Underway) -> Result<(Response<()>, Option<FromClone>), Refusal> {
    let Underway { upgrade, upgraded_idle, takes_trailers, .. } = asked;
    if answer.response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let upgrade = upgrade.ok_or(Refusal::BadAnswer)?;
        return Ok((upgrade.change(edge, answer, upgraded_idle)?, None));
    }
    let Answer { mut response, first, line, upstream, in_flight, at } = answer;
    // It would mean that the WebSocket is open.
    if upgrade.is_some_and(|upgrade| upgrade.accept.is_some()) && response.status().is_success() {
        return Err(Refusal::BadAnswer);
    }
    let headers = response.headers_mut();
    let trailer = takes_trailers.then(|| headers.get_all(header::TRAILER).iter().cloned().collect::<Vec<_>>());
    strip_one_hop(headers);
    for names in trailer.into_iter().flatten() {
        // Those that are named are sent, and no others.
        headers.append(header::TRAILER, names);
    }
    let is_chunked = headers.remove(header::TRANSFER_ENCODING).is_some();
    if is_chunked {
        headers.remove(header::CONTENT_LENGTH);
    }
    let tells_end = is_chunked || line.left().is_some();
    let lasting = Lasting::of(headers, &line, at, &edge.stays);
    let from = FromClone { line: Some(line), first, upstream, in_flight, tells_end, lasting, is_ended: false };
    Ok((response, Some(from)))
}

/// Takes out what an answer may not say to such a request (RFC 9110 6.4.1, 8.6, 9.3.2), whoever made it, in whichever
/// HTTP.
pub fn forbid(is_head: bool, response: &mut Response<DownBody>) {
    let status = response.status();
    if is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        let bytes = response.body_mut().keep_back();
        if bytes > 0 && is_head {
            response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(bytes.into());
        }
    }
    if status == StatusCode::NO_CONTENT {
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
}
