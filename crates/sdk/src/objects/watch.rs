//! Changes of a namespace's objects as they come, for ever: a stream that goes on at another node when its own goes.

use http::Method;
use serde_json::Value;

use super::{ObjectId, Objects};
use crate::Version;
use crate::node::quoted;
use crate::stream::{Event, Events, LOST};

/// A change, or how far one is. A change is told once, as a rule; after a node has started anew, again: the version says what stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectChange {
    /// All before it was told: a cursor for [`Objects::watch`], good at any node. Told at first, behind changes, and now and then.
    UpTo {
        cursor: String,
        /// Nodes that are away: what they alone know of is told when they are back.
        missing: Vec<String>,
    },
    Put {
        owner: String,
        id: ObjectId,
        version: Version,
        bytes: u64,
    },
    Deleted {
        owner: String,
        id: ObjectId,
        version: Version,
    },
    /// Deletions may have been missed, as they are not remembered any more. Read what there is; the changes that come next are those since.
    Missed,
    /// The namespace is gone, or what is asked for makes no sense, and why. Nothing more comes.
    Over(String),
}

/// Changes of the objects of owners with a prefix.
pub struct ObjectWatch {
    events: Events,
    is_over: bool,
}

impl Objects {
    /// What changes of owners that begin so (of all, with an empty prefix), after the cursor of an [`ObjectChange::UpTo`]; without one,
    /// from now on; after `""`, what there is, and then what changes. Owners whose names are no text are passed over.
    pub fn watch(&self, prefix: &str, after: Option<&str>) -> ObjectWatch {
        let call = self.call(Method::GET, &format!("watch?prefix={}", quoted(prefix)));
        ObjectWatch { events: Events::behind(self.node.clone(), call, after), is_over: false }
    }
}

impl ObjectWatch {
    /// The next change. After [`ObjectChange::Over`] there is none: this waits for ever.
    pub async fn next(&mut self) -> ObjectChange {
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

    fn read(&mut self, event: &Event) -> Option<ObjectChange> {
        if event.name == LOST {
            return Some(ObjectChange::Missed);
        }
        let body: Value = serde_json::from_str(&event.data).ok()?;
        let text = |name: &str| Some(body[name].as_str()?.to_owned());
        let (owner, version) = (text("owner"), text("version").map(|version| Version(version.into())));
        let id = text("id").and_then(|id| id.parse().ok());
        Some(match event.name.as_str() {
            "cursor" => {
                let missing = body["missing"].as_array().into_iter().flatten().filter_map(Value::as_str);
                ObjectChange::UpTo { cursor: text("cursor")?, missing: missing.map(str::to_owned).collect() }
            }
            "put" => ObjectChange::Put { owner: owner?, id: id?, version: version?, bytes: body["bytes"].as_u64()? },
            "remove" => ObjectChange::Deleted { owner: owner?, id: id?, version: version? },
            // The node ends the stream behind it.
            "error" => match (body["type"].as_str()?, text("cursor")) {
                ("compacted", Some(cursor)) => {
                    self.events.goes_on_after(Some(cursor));
                    ObjectChange::Missed
                }
                ("ended", _) => {
                    self.is_over = true;
                    ObjectChange::Over(text("error").unwrap_or_default())
                }
                // It is opened anew where it was.
                _ => return None,
            },
            _ => return None,
        })
    }
}
