//! What changes in a namespace, with why and with what it won against: a stream that goes on at another node when its own goes.

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use super::{Soft, bytes_of};
use crate::node::{Call, quoted};
use crate::stream::{Event, Events, LOST};

/// Something that is not as it was, or how far one is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SoftChange {
    Put(Changed),
    Removed(Changed),
    /// All that there is follows: what one has is to be forgotten.
    Reset,
    /// So far one is: a cursor, good at any node.
    UpTo(String),
    /// The cursor is none that a node gave. Read what there is; what comes next are changes since.
    Missed,
    /// The namespace is gone, or what is asked for makes no sense, and why. Nothing more comes.
    Over(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    pub key: Bytes,
    /// `string`, `hash`, `set`, `list`, `zset`: the type, as Redis calls it.
    pub kind: String,
    /// The field, the member, or the place of an item; empty for texts and numbers.
    pub element: Bytes,
    /// None where there is none: of members of sets, and of what was removed.
    pub value: Option<Bytes>,
    /// None: it is told as what there is.
    pub why: Option<Why>,
    /// Values of writes that did not see each other, and lost as this one is newer. None: one that is too long to be told.
    pub lost: Vec<Option<Bytes>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It was done at the node that tells it.
    Local,
    /// Another node did it.
    Remote,
    /// It was found by comparison of nodes: it had been lost on its way, or one of them was away.
    Repair,
    /// Its time was over, or nobody held it any more.
    Ended,
    /// Of a newer node.
    Other,
}

/// A stream of changes.
pub struct SoftChanges {
    events: Events,
    is_over: bool,
}

impl Soft {
    /// What changes of keys that begin so: from now on without `after`, with an empty one what there is and then what changes, else
    /// after a cursor of [`SoftChange::UpTo`], which any node takes.
    ///
    /// ```
    /// # async fn tells(service: sdk::Service) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut changes = service.soft("floor")?.changes("cart:", None);
    /// while let sdk::SoftChange::Put(now) = changes.next().await {
    ///     println!("{:?} is {:?}: {:?}, won against {:?}", now.key, now.value, now.why, now.lost);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn changes(&self, prefix: &str, after: Option<&str>) -> SoftChanges {
        let path = format!("/v1/ns/{}/watch?prefix={}", quoted(&self.namespace), quoted(prefix));
        let call = Call::new(Method::GET, path, &self.token);
        SoftChanges { events: Events::behind(self.node.clone(), call, after), is_over: false }
    }
}

impl SoftChanges {
    /// The next one. After [`SoftChange::Over`] there is none: this waits for ever. Who asks too seldom is let go by the node, and goes
    /// on with what differs by then, or with a [`SoftChange::Reset`].
    pub async fn next(&mut self) -> SoftChange {
        if self.is_over {
            return std::future::pending().await;
        }
        loop {
            let event = self.events.next().await;
            if let Some(change) = self.read(&event) {
                return change;
            }
        }
    }

    /// None: it says nothing that matters here.
    fn read(&mut self, event: &Event) -> Option<SoftChange> {
        if event.name == LOST {
            return Some(SoftChange::Missed);
        }
        let body: Value = serde_json::from_str(&event.data).ok()?;
        Some(match event.name.as_str() {
            "put" => SoftChange::Put(changed(&body)?),
            "remove" => SoftChange::Removed(changed(&body)?),
            "reset" => SoftChange::Reset,
            "cursor" => SoftChange::UpTo(body["cursor"].as_str()?.to_owned()),
            "error" if body["type"] == "ended" => {
                self.is_over = true;
                SoftChange::Over(body["error"].as_str().unwrap_or_default().to_owned())
            }
            // The node ends the stream behind any other: it is opened anew where it was.
            _ => return None,
        })
    }
}

fn changed(body: &Value) -> Option<Changed> {
    let lost = body["lost"].as_array().into_iter().flatten();
    Some(Changed {
        key: bytes_of(&body["key"])?,
        kind: body["type"].as_str()?.to_owned(),
        element: bytes_of(&body["element"]).unwrap_or_default(),
        value: bytes_of(&body["value"]),
        why: body["why"].as_str().map(|why| match why {
            "local" => Why::Local,
            "remote" => Why::Remote,
            "repair" => Why::Repair,
            "ended" => Why::Ended,
            _ => Why::Other,
        }),
        lost: lost.map(bytes_of).collect(),
    })
}
