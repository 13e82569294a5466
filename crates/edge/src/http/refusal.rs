//! Answers of our own: short text that says what happened, whether the request may have been carried out, and what to
//! do.

use std::borrow::Cow;
use std::time::Duration;

use base::{Rng, Span};
use bytes::Bytes;
use clones::text::{format_bytes, format_span};
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use hyper::ext::ReasonPhrase;

use super::body::DownBody;
use super::check::Violation;
use super::limits::RETRY_AFTER_SECONDS;
use super::line::Tongue;

/// Why a request gets no answer from a clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The request itself is wrong. The connection ends, as where the next one begins is in doubt.
    Violation(Violation),
    Expectation,
    /// The answer to a directory that asks whether a host is ours (RFC 8555 8.3), which is no refusal.
    Challenge(String),
    /// The client is sent to this URL, by HTTPS.
    Moved(HeaderValue),
    NoService,
    /// The path is not for clients.
    Reserved,
    /// An operator took it out of use: as its drop handler answers. It did not happen.
    Off(Dropped),
    /// No clone serves it now. It did not happen.
    NoClone,
    /// In overload there is no room for it. It did not happen.
    Dropped(Dropped),
    /// A clone took it and ended. It may have happened.
    CloneEnded,
    /// A clone took it and did not answer within this time. It may have happened.
    CloneSilent(Duration),
    /// Its body has more bytes than so many. What of it a clone has had may have been carried out.
    TooLarge(u64),
    /// Who asks said how long that may take, and it was over before a clone got it. It did not happen.
    Late,
    /// The time that whoever asks gave for it was over when a clone had it. It may have happened.
    LateAnswer,
    /// The clone's answer is not HTTP that we can pass on. It may have happened.
    BadAnswer,
    /// A clone said something before it was asked, so it does not speak HTTP, and there is no other. It did not happen.
    SpokeFirst,
    /// A clone speaks another protocol than it is spoken to in. It did not happen.
    Speaks(Tongue),
    /// The session of its cookie cannot be read now. It did not happen.
    SessionUnread,
    /// A clone has carried it out, but the session that it returned was not stored.
    SessionUnstored,
    /// A clone has carried it out; whether the session that it returned was stored is unknown.
    SessionUnknown,
    /// What the clone's answer says of the session makes no sense, and why. It has been carried out.
    SessionSaid(&'static str),
}

/// How a partition's drop handler answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dropped {
    pub status: StatusCode,
    /// Content type and content.
    pub page: Option<(HeaderValue, Bytes)>,
}

impl Default for Dropped {
    fn default() -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, page: None }
    }
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Refusal::Violation(violation) => {
                StatusCode::from_u16(violation.status).expect("violations carry statuses from a fixed list")
            }
            Refusal::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::Expectation => StatusCode::EXPECTATION_FAILED,
            Refusal::Challenge(_) => StatusCode::OK,
            Refusal::Moved(_) => StatusCode::PERMANENT_REDIRECT,
            Refusal::NoService | Refusal::Reserved => StatusCode::NOT_FOUND,
            Refusal::NoClone | Refusal::SessionUnread | Refusal::SessionUnstored | Refusal::SessionUnknown => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Refusal::Dropped(dropped) | Refusal::Off(dropped) => dropped.status,
            Refusal::CloneEnded
            | Refusal::BadAnswer
            | Refusal::SpokeFirst
            | Refusal::Speaks(_)
            | Refusal::SessionSaid(_) => StatusCode::BAD_GATEWAY,
            Refusal::CloneSilent(_) | Refusal::Late | Refusal::LateAnswer => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    fn text(&self) -> Cow<'static, str> {
        let text = match self {
            Refusal::SessionSaid(what) => {
                return format!(
                    "the program's answer has {what}; the request was carried out, its session was not stored"
                )
                .into();
            }
            Refusal::CloneSilent(time) => {
                let time = format_span(Span(time.as_micros() as u64));
                return format!(
                    "the clone did not answer within {time} (answer_timeout of its service); whether the request was or will be carried \
                     out is unknown"
                )
                .into();
            }
            Refusal::TooLarge(max) => {
                return format!("the request's body is larger than {} (body_max of its service)", format_bytes(*max))
                    .into();
            }
            Refusal::Challenge(answer) => return answer.clone().into(),
            Refusal::Moved(_) => "this goes by HTTPS alone",
            Refusal::Violation(violation) => violation.why,
            Refusal::Expectation => "the only expectation taken here is 100-continue",
            Refusal::NoService => "no service is routed here; see `coppice status`",
            Refusal::Reserved => "paths with .coppice in them are between nodes and programs",
            Refusal::Off(_) => "this is out of use for maintenance; the request was not carried out; try again later",
            Refusal::NoClone => "no clone of this service answers now; the request was not carried out; try again",
            Refusal::Dropped(_) => {
                "more comes than this service can do, and this request was not carried out; try again later"
            }
            Refusal::CloneEnded => {
                "the clone ended before it answered; whether the request was carried out is unknown, look before you repeat it"
            }
            Refusal::Late => "its deadline passed before a clone could take it; the request was not carried out",
            Refusal::LateAnswer => {
                "its deadline passed before the answer; whether the request was or will be carried out is unknown"
            }
            Refusal::BadAnswer => {
                "the clone's answer was not sound HTTP; whether the request was carried out is unknown, look before you repeat it"
            }
            Refusal::SpokeFirst => {
                "the clone spoke before it was asked, as no HTTP server does; the request was not carried out"
            }
            Refusal::Speaks(Tongue::Http2) => {
                "the program speaks HTTP/2 here, as gRPC servers do, and is spoken to in HTTP/1.1; the request was not carried out. \
                 Declare its port as `tcp`, and its clients reach it as it is (docs/guide/routing.md)"
            }
            Refusal::Speaks(Tongue::Tls) => {
                "the program speaks TLS here, and is spoken to in plain HTTP; the request was not carried out. Let it listen without \
                 TLS on $PORT, as the edge speaks TLS with its clients, or declare its port as `tcp`"
            }
            Refusal::SessionUnread => "your session cannot be read now; the request was not carried out; try again",
            Refusal::SessionUnstored => {
                "the request was carried out, but your session was not stored and is as it was before; look before you repeat it"
            }
            Refusal::SessionUnknown => {
                "the request was carried out; whether your session was stored is unknown; look before you repeat it"
            }
        };
        text.into()
    }

    /// Whether it counts as an error of ours.
    pub fn is_ours(&self) -> bool {
        self.status().is_server_error()
            && !matches!(self, Refusal::Violation(_) | Refusal::Off(_) | Refusal::Late | Refusal::LateAnswer)
    }

    pub fn response(&self, chance: &mut Rng) -> Response<DownBody> {
        let (content_type, body) = match self {
            Refusal::Dropped(Dropped { page: Some(page), .. }) | Refusal::Off(Dropped { page: Some(page), .. }) => {
                page.clone()
            }
            // The answer and nothing else.
            Refusal::Challenge(answer) => (HeaderValue::from_static("application/octet-stream"), answer.clone().into()),
            _ => (HeaderValue::from_static("text/plain; charset=utf-8"), format!("{}\n", self.text()).into()),
        };
        let mut response = Response::new(DownBody::text(body));
        *response.status_mut() = self.status();
        if self.status().canonical_reason().is_none() {
            response.extensions_mut().insert(ReasonPhrase::from_static(b"Refused"));
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self {
            Refusal::Violation(_) | Refusal::TooLarge(_) => {
                drop(headers.insert(header::CONNECTION, HeaderValue::from_static("close")))
            }
            Refusal::Moved(place) => drop(headers.insert(header::LOCATION, place.clone())),
            Refusal::Off(_) => drop(headers.insert(header::RETRY_AFTER, HeaderValue::from(chance.between(30, 60)))),
            // Not all at once: those who were refused together shall not come back together.
            Refusal::NoClone | Refusal::SessionUnread | Refusal::SessionUnstored | Refusal::SessionUnknown => {
                drop(headers.insert(header::RETRY_AFTER, HeaderValue::from(chance.between(1, 3))))
            }
            Refusal::Dropped(_) => {
                let (least, most) = RETRY_AFTER_SECONDS;
                drop(headers.insert(header::RETRY_AFTER, HeaderValue::from(chance.between(least, most))))
            }
            _ => (),
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_without_a_phrase_of_its_own_gets_one() {
        let refused = |status| Refusal::Dropped(Dropped { status: StatusCode::from_u16(status).unwrap(), page: None });
        let phrase = |status| {
            let answer = refused(status).response(&mut Rng::new(1));
            answer.extensions().get::<ReasonPhrase>().map(|phrase| phrase.as_bytes().to_vec())
        };
        assert_eq!((phrase(529), phrase(429)), (Some(b"Refused".to_vec()), None));
    }
}
