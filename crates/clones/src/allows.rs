//! What a service, or one of its partitions, says of how long its answers may take, how long its connections may be silent and how
//! much a request may bring. What neither says is as the doors have it (`edge/src/http/limits.rs`).

use base::Span;

use crate::limits::{ANSWER_TIMEOUT_MAX, ANSWER_TIMEOUT_MIN, BODY_MAX_MAX, IDLE_TIMEOUT_MAX, IDLE_TIMEOUT_MIN};
use crate::text::{format_bytes, format_span};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allows {
    /// From a request until its answer begins.
    pub answer_timeout: Option<Span>,
    /// Without a byte from the clone while it answers; of an upgraded or a TCP connection without one in either direction.
    pub idle_timeout: Option<Span>,
    /// Bytes of a request's body.
    pub body_max: Option<u64>,
}

impl Allows {
    /// What this does not say, the other does.
    pub fn or(self, other: Self) -> Self {
        Self {
            answer_timeout: self.answer_timeout.or(other.answer_timeout),
            idle_timeout: self.idle_timeout.or(other.idle_timeout),
            body_max: self.body_max.or(other.body_max),
        }
    }

    /// The first key that is set.
    pub fn key(&self) -> Option<&'static str> {
        let Self { answer_timeout, idle_timeout, body_max } = self;
        let set = [
            ("answer_timeout", answer_timeout.is_some()),
            ("idle_timeout", idle_timeout.is_some()),
            ("body_max", body_max.is_some()),
        ];
        set.into_iter().find_map(|(key, is_set)| is_set.then_some(key))
    }

    /// What is wrong with each key, of something that is reached so.
    pub(crate) fn mistakes(&self, has_http: bool, has_tcp: bool) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let Self { answer_timeout, idle_timeout, body_max } = *self;
        let spans = [
            ("answer_timeout", answer_timeout, ANSWER_TIMEOUT_MIN, ANSWER_TIMEOUT_MAX),
            ("idle_timeout", idle_timeout, IDLE_TIMEOUT_MIN, IDLE_TIMEOUT_MAX),
        ];
        for (key, span, min, max) in spans {
            if let Some(span) = span.filter(|span| !(min..=max).contains(span)) {
                let [span, min, max] = [span, min, max].map(format_span);
                wrong.push((key, format!("{span} is not between {min} and {max}")));
            }
        }
        if let Some(bytes) = body_max.filter(|bytes| !(1..=BODY_MAX_MAX).contains(bytes)) {
            let [bytes, max] = [bytes, BODY_MAX_MAX].map(format_bytes);
            wrong.push(("body_max", format!("{bytes} is not between 1 byte and {max}")));
        }
        let of_http = [("answer_timeout", answer_timeout.is_some()), ("body_max", body_max.is_some())];
        for (key, _) in of_http.into_iter().filter(|(_, is_set)| *is_set && !has_http) {
            wrong.push((key, "is of HTTP requests, and this service has no http; leave it out".into()));
        }
        if idle_timeout.is_some() && !has_http && !has_tcp {
            wrong.push(("idle_timeout", "is of connections, and this service has neither http nor tcp".into()));
        }
        wrong
    }
}
