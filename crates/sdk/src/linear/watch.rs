//! Changes of a namespace as they happen, for ever: a stream that goes on at another node when its own goes.

use std::marker::PhantomData;

use http::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Linear;
use crate::node::quoted;
use crate::stream::{Event, Events, LOST};

/// A change, or how far one is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watched<T> {
    /// There is nothing more up to this version; told at first, and now and then.
    UpTo(String),
    Put {
        key: String,
        version: u64,
        /// None if it is over 64 KiB, or no JSON of this type: then it is to be read.
        value: Option<T>,
    },
    Removed {
        key: String,
        version: u64,
        /// Its time had come.
        ended: bool,
    },
    /// All keys were removed.
    Cleared,
    /// Changes were missed: they are not kept any more, or all keys of a shard were removed. Read what there is; the changes that
    /// come next are those since.
    Missed,
    /// The namespace is gone, or what is asked for makes no sense, and why. Nothing more comes.
    Over(String),
}

/// Changes of the keys with a prefix, or of one key.
pub struct Watch<T> {
    events: Events,
    is_over: bool,
    value: PhantomData<fn() -> T>,
}

impl<T> Linear<T> {
    /// What changes of keys that begin so, after the version of a [`super::Page`] or of [`Watched::UpTo`]; without one, from now on.
    pub fn watch(&self, prefix: &str, after: Option<&str>) -> Watch<T> {
        self.watch_of(&format!("prefix={}", quoted(prefix)), after)
    }

    /// What changes of one key, after its version.
    pub fn watch_key(&self, key: &str, after: Option<u64>) -> Watch<T> {
        self.watch_of(&format!("key={}", quoted(key)), after.map(|after| after.to_string()).as_deref())
    }

    fn watch_of(&self, what: &str, after: Option<&str>) -> Watch<T> {
        let mut events = Events::new(self.node.clone(), self.call(Method::GET, &format!("watch?{what}")));
        events.goes_on_after(after.map(str::to_owned));
        Watch { events, is_over: false, value: PhantomData }
    }
}

impl<T: DeserializeOwned> Watch<T> {
    /// The next change. After [`Watched::Over`] there is none: this waits for ever.
    pub async fn next(&mut self) -> Watched<T> {
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

    fn read(&mut self, event: &Event) -> Option<Watched<T>> {
        if event.name == LOST {
            return Some(Watched::Missed);
        }
        let body: Value = serde_json::from_str(&event.data).ok()?;
        let key = || Some(body["key"].as_str()?.to_owned());
        let version = body["version"].as_u64();
        Some(match event.name.as_str() {
            "version" => Watched::UpTo(text_of(&body["version"])?),
            "put" => {
                let value = body["value"].as_str().and_then(|text| serde_json::from_str(text).ok());
                Watched::Put { key: key()?, version: version?, value }
            }
            "remove" => Watched::Removed { key: key()?, version: version?, ended: body["ended"] == true },
            "clear" => Watched::Cleared,
            // The node ends the stream behind it.
            "error" => match (body["type"].as_str()?, text_of(&body["version"])) {
                ("compacted" | "cleared", Some(version)) => {
                    self.events.goes_on_after(Some(version));
                    Watched::Missed
                }
                ("ended", _) => {
                    self.is_over = true;
                    Watched::Over(body["error"].as_str().unwrap_or_default().to_owned())
                }
                // It is opened anew where it was.
                _ => return None,
            },
            _ => return None,
        })
    }
}

/// A version, or one for each shard.
fn text_of(version: &Value) -> Option<String> {
    match version {
        Value::Number(one) => Some(one.to_string()),
        Value::String(each) => Some(each.clone()),
        _ => None,
    }
}
