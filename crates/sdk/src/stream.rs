//! A stream of server-sent events that does not end: when its node goes it is opened anew, at another if need be, from the last
//! event that had an id.

use std::collections::VecDeque;

use base::{Rng, Span};
use bytes::{Buf, BytesMut};
use flow::Backoff;
use http::{HeaderName, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{sleep, timeout};

use crate::limits::*;
use crate::node::{Answer, Call, Node};

const LAST_ID: HeaderName = HeaderName::from_static("last-event-id");

/// An event of our own: some that came before the next one are lost.
pub(crate) const LOST: &str = "lost";

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Event {
    pub name: String,
    pub data: String,
    pub id: Option<String>,
}

pub(crate) struct Events {
    node: Node,
    call: Call,
    open: Option<Incoming>,
    reader: Reader,
    last_id: Option<String>,
    /// The place where it was is not known to any node any more.
    is_lost: bool,
    wait: Backoff,
    rng: Rng,
}

/// Bytes become events (the HTML standard's rules, as far as a node uses them).
#[derive(Default)]
struct Reader {
    bytes: BytesMut,
    event: Event,
    whole: VecDeque<Event>,
}

impl Events {
    pub fn new(node: Node, call: Call) -> Self {
        let seed = base::checksum::place_hash(call.path.as_bytes()) ^ u64::from(std::process::id());
        let wait = Backoff::new(STREAM_WAIT_FIRST, STREAM_WAIT_MAX);
        Self {
            node,
            call,
            open: None,
            reader: Reader::default(),
            last_id: None,
            is_lost: false,
            wait,
            rng: Rng::new(seed),
        }
    }

    /// After a cursor; without one, what comes from now on; after `""`, what there is, and then what changes. `call` has a query.
    pub fn behind(node: Node, mut call: Call, after: Option<&str>) -> Self {
        // An empty cursor is no id of an event: it stands in the address, and the first id takes its place.
        if after == Some("") {
            call.path.push_str("&after=");
        }
        let mut events = Self::new(node, call);
        events.goes_on_after(after.filter(|after| !after.is_empty()).map(str::to_owned));
        events
    }

    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.reader.whole.pop_front() {
                if event.id.is_some() {
                    self.last_id.clone_from(&event.id);
                }
                return event;
            }
            let Some(body) = &mut self.open else {
                self.begin().await;
                continue;
            };
            // Nodes say something now and then; one that does not hangs.
            let data = match timeout(STREAM_SILENCE_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => frame.into_data().ok(),
                Ok(Some(Err(_)) | None) | Err(_) => None,
            };
            match data {
                Some(data) if self.reader.take(&data) => self.wait.reset(),
                _ => self.open = None,
            }
        }
    }

    /// Opens it once. Err: with what the last node said, if one did.
    pub async fn open(&mut self) -> Result<(), Option<Answer>> {
        self.reader = Reader::default();
        if let Some(id) = self.last_id.as_ref().and_then(|id| id.parse().ok()) {
            self.call.headers.insert(LAST_ID, id);
        }
        self.open = Some(self.node.stream(&self.call).await?);
        if std::mem::take(&mut self.is_lost) {
            self.reader.whole.push_back(Event { name: LOST.into(), ..Event::default() });
        }
        Ok(())
    }

    async fn begin(&mut self) {
        let Err(said) = self.open().await else { return };
        // What was last seen is too long ago. What is missed is told when what comes now is heard.
        if said.is_some_and(|answer| answer.status == StatusCode::GONE) && self.last_id.take().is_some() {
            self.call.headers.remove(LAST_ID);
            self.is_lost = true;
            return;
        }
        let wait: Span = self.wait.next(&mut self.rng);
        sleep(wait.into()).await;
    }

    /// Goes on from there when it is opened the next time.
    pub fn goes_on_after(&mut self, id: Option<String>) {
        self.last_id = id;
    }
}

impl Reader {
    /// False if what came is too long to be an event.
    fn take(&mut self, data: &[u8]) -> bool {
        self.bytes.extend_from_slice(data);
        while let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.bytes[..end]).trim_end_matches('\r').to_owned();
            self.bytes.advance(end + 1);
            self.line(&line);
        }
        self.bytes.len() + self.event.data.len() <= EVENT_BYTES_MAX
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if !event.data.is_empty() {
                self.whole.push_back(event);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.name = value.to_owned(),
            "id" => self.event.id = Some(value.to_owned()),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // A comment, or what we have no use for.
            _ => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whole_however_they_are_cut() {
        let text =
            b": hello\n\nevent: birth\nid: n1.2/7\ndata: {\"a\":1}\n\nevent: x\r\ndata: one\r\ndata: two\r\n\r\n";
        for cut in 1..text.len() {
            let mut reader = Reader::default();
            for part in text.chunks(cut) {
                assert!(reader.take(part));
            }
            let all: Vec<Event> = reader.whole.into_iter().collect();
            let birth = Event { name: "birth".into(), data: "{\"a\":1}".into(), id: Some("n1.2/7".into()) };
            assert_eq!(all, [birth, Event { name: "x".into(), data: "one\ntwo".into(), id: None }], "{cut}");
        }
    }

    #[test]
    fn an_event_without_end_is_given_up() {
        let mut reader = Reader::default();
        let part = [b'x'; 4096];
        assert!((0..=EVENT_BYTES_MAX / part.len()).any(|_| !reader.take(&part)));
    }
}
