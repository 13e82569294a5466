//! Answers without a length that last. When their clone leaves, or this node, each ends when its turn has come
//! (`crate::pace`), so that not all of their clients come back in the moment of the kill.
//!
//! Of a stream of events or lines each is whole in itself, so it ends cleanly, between two. Of any other answer a clean
//! end would make a half pass for the whole; so only one that has lasted very long, and will hardly be over by itself,
//! is broken off, in the last part of the time. One with a length is left alone until the kill: it may be whole by
//! then, and its client knows when it is not.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderMap};

use super::limits::{ANSWER_LASTS, EVENTS_LAST, GOODBYE_TIME};
use super::line::Line;
use crate::pace::{Manner, Stay, Stays};
use crate::pool::InFlight;
use crate::wait::Wait;

/// Bytes at the end of what came by which it is known whether an event ended.
const TAIL_BYTES: usize = 3;
const BEFORE_ALL: &[u8; TAIL_BYTES] = b"\n\n\n";

pub struct Lasting {
    kind: Kind,
    began: Instant,
    of_edge: Arc<Stays>,
    /// Since it was found to last.
    stay: Option<Stay>,
    goodbye: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// What passed last, the newest byte at its end.
    tail: [u8; TAIL_BYTES],
    /// Its turn has come, within an event.
    late: Wait,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// `text/event-stream`: an empty line after each.
    Events,
    /// One JSON a line.
    Lines,
    Other,
}

impl Kind {
    fn of(fields: &HeaderMap) -> Kind {
        // In what is compressed it cannot be seen where one ends.
        if fields.contains_key(header::CONTENT_ENCODING) {
            return Kind::Other;
        }
        let of = fields.get(header::CONTENT_TYPE).map_or(&b""[..], |of| of.as_bytes());
        let of = of.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let is = |name: &str| of.eq_ignore_ascii_case(name.as_bytes());
        match of {
            _ if is("text/event-stream") => Kind::Events,
            _ if is("application/x-ndjson") || is("application/ndjson") || is("application/jsonl") => Kind::Lines,
            _ => Kind::Other,
        }
    }

    fn lasts_after(self) -> Duration {
        if self == Kind::Other { ANSWER_LASTS } else { EVENTS_LAST }
    }

    fn manner(self) -> Manner {
        if self == Kind::Other { Manner::Last } else { Manner::Quiet }
    }

    /// Whether what passed was the end of an event or a line.
    fn is_between(self, tail: &[u8]) -> bool {
        match self {
            Kind::Events => tail.ends_with(b"\n\n") || tail.ends_with(b"\n\r\n") || tail.ends_with(b"\r\r"),
            Kind::Lines => tail.ends_with(b"\n"),
            Kind::Other => true,
        }
    }
}

impl Lasting {
    /// An answer whose head came at `began`, if nobody knows how long it is.
    pub fn of(fields: &HeaderMap, line: &Line, began: Instant, of_edge: &Arc<Stays>) -> Option<Box<Lasting>> {
        let is_open = line.left().is_none();
        is_open.then(|| {
            Box::new(Lasting {
                kind: Kind::of(fields),
                began,
                of_edge: Arc::clone(of_edge),
                stay: None,
                goodbye: None,
                tail: *BEFORE_ALL,
                late: Wait::default(),
            })
        })
    }

    /// A part has passed.
    pub fn passes(&mut self, part: Option<&Bytes>) {
        if let Some(part) = part {
            let new = &part[part.len().saturating_sub(TAIL_BYTES)..];
            self.tail.copy_within(new.len().., 0);
            self.tail[TAIL_BYTES - new.len()..].copy_from_slice(new);
        }
        if let Some(stay) = &self.stay {
            stay.is_active();
        }
    }

    /// Nothing passes now. Ready when it is to end here, and how.
    pub fn poll_end(&mut self, cx: &mut Context<'_>, line: &mut Line, in_flight: &InFlight) -> Poll<io::Result<()>> {
        if self.goodbye.is_none() {
            let lasts_after = self.kind.lasts_after();
            if !line.has_waited(cx, lasts_after) && self.began.elapsed() < lasts_after {
                return Poll::Pending;
            }
            let stay = in_flight.stay(&self.of_edge, self.kind.manner());
            self.goodbye = Some(Box::pin(stay.told()));
            self.stay = Some(stay);
        }
        if let Some(goodbye) = &mut self.goodbye {
            ready!(goodbye.as_mut().poll(cx));
        }
        // A future that is ready is not asked again.
        self.goodbye = Some(Box::pin(std::future::ready(())));
        match self.kind {
            Kind::Other => Poll::Ready(Err(io::Error::other("it lasted, and its clone or this node leaves"))),
            Kind::Events | Kind::Lines if self.kind.is_between(&self.tail) => Poll::Ready(Ok(())),
            _ if !self.late.is_overdue(cx, GOODBYE_TIME) => Poll::Pending,
            // Clients throw an unfinished event away; half a line they would take for one.
            Kind::Events => Poll::Ready(Ok(())),
            Kind::Lines => Poll::Ready(Err(io::Error::other("its clone or this node leaves, in the middle of a line"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_ends_between_two_is_known_by_its_type_and_a_half_is_never_made_to_pass_for_a_whole() {
        let kind = |of| Kind::of(&HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(of))]));
        assert_eq!(kind("Text/Event-Stream; charset=utf-8"), Kind::Events);
        assert_eq!(kind("application/x-ndjson"), Kind::Lines);
        assert_eq!(
            (kind("text/csv"), kind("application/json"), Kind::of(&HeaderMap::new())),
            (Kind::Other, Kind::Other, Kind::Other)
        );
        let gzip = [(header::CONTENT_TYPE, "text/event-stream"), (header::CONTENT_ENCODING, "gzip")];
        let gzip = gzip.map(|(name, value)| (name, HeaderValue::from_static(value)));
        assert_eq!(Kind::of(&HeaderMap::from_iter(gzip)), Kind::Other, "its bytes say nothing");
        assert!(Kind::Events.is_between(b"x\n\n") && Kind::Events.is_between(b"\n\r\n"));
        assert!(Kind::Events.is_between(BEFORE_ALL) && Kind::Lines.is_between(BEFORE_ALL));
        assert!(
            !Kind::Events.is_between(b":x\n") && Kind::Lines.is_between(b"{}\n") && !Kind::Lines.is_between(b"\n{}")
        );
    }
}
