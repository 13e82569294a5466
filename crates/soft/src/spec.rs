//! What is declared of a `soft` namespace: at how many nodes an acknowledged update is, how often nodes compare what they
//! have, how large it may become.

use base::text::{size_text, span_text};
use class::{Databases, Key, Line, Quota, Wrong, is_number, size, span};
use serde_json::{Map, Value};

use crate::limits::*;

/// One declared namespace: `copies = 2`, `gossip = "100ms"`, `size_max = "256MiB"`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// At so many nodes an update is when it is acknowledged: 1 or 2.
    pub copies: u32,
    /// How often a node compares what it has with another, milliseconds.
    pub gossip_ms: u64,
    /// How often what has changed is written to the disk, milliseconds; 0: never.
    pub checkpoint_ms: u64,
    /// Keys, values and 128 bytes for each element, bytes.
    pub size_max: u64,
    pub databases: Databases,
    pub quota: Quota,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            copies: 2,
            gossip_ms: GOSSIP_MS_DEFAULT,
            checkpoint_ms: CHECKPOINT_MS_DEFAULT,
            size_max: SIZE_DEFAULT,
            databases: Databases::default(),
            quota: Quota::default(),
        }
    }
}

impl class::Spec for Spec {
    const KEYS: &'static [Key] = &[
        Key {
            name: "copies",
            example: "2",
            about: "At how many nodes an update is when it is acknowledged: 2 (default) or 1. A node that is alone acknowledges with one.",
        },
        Key {
            name: "gossip",
            example: "\"100ms\"",
            about: "How often a node compares what it has with another, for what was lost on its way: 20ms to 10s, default 100ms.",
        },
        Key {
            name: "checkpoint",
            example: "\"10s\"",
            about: "How often what has changed is written to each node's disk: 1s to 10m, default 10s; \"off\": never.",
        },
        Key {
            name: "size_max",
            example: "\"256MiB\"",
            about: "Keys, values and 128 bytes for each element: 1MiB to 1TiB, default 256MiB. Each node has all of it in memory.",
        },
        Databases::KEY,
        Quota::RATE_MAX,
        Quota::CONNECTIONS_MAX,
    ];

    fn read(keys: &Map<String, Value>) -> Result<Self, Wrong> {
        let default = Self::default();
        let checkpoint = keys.get("checkpoint").map(|value| match value.as_str() {
            Some("off") => Ok(0),
            // Nothing is written all the time.
            _ => span("checkpoint", value, "10s").map(|ms| ms.max(1)),
        });
        let gossip = keys.get("gossip").map(|value| span("gossip", value, "100ms")).transpose()?;
        Ok(Self {
            copies: keys.get("copies").map(|value| is_number("copies", value)).transpose()?.unwrap_or(default.copies),
            gossip_ms: gossip.unwrap_or(default.gossip_ms),
            checkpoint_ms: checkpoint.transpose()?.unwrap_or(default.checkpoint_ms),
            size_max: keys
                .get("size_max")
                .map(|value| size("size_max", value))
                .transpose()?
                .unwrap_or(default.size_max),
            databases: Databases::read(keys)?,
            quota: Quota::read(keys)?,
        })
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        let (Self { copies, gossip_ms, checkpoint_ms, size_max, databases, quota }, default) = (self, Self::default());
        let mut keys = Vec::new();
        if *copies != default.copies {
            keys.push(("copies", (*copies).into()));
        }
        if *gossip_ms != default.gossip_ms {
            keys.push(("gossip", span_text(*gossip_ms).into()));
        }
        if *checkpoint_ms != default.checkpoint_ms {
            keys.push(("checkpoint", checkpoint_text(*checkpoint_ms).into()));
        }
        if *size_max != default.size_max {
            keys.push(("size_max", size_text(*size_max).into()));
        }
        keys.extend(databases.write());
        keys.extend(quota.write());
        keys
    }

    fn validate(&self) -> Result<(), Wrong> {
        if !(1..=2).contains(&self.copies) {
            return Err(("copies".into(), format!("{} is not 1 or 2", self.copies)));
        }
        if !(GOSSIP_MS_MIN..=GOSSIP_MS_MAX).contains(&self.gossip_ms) {
            let (is, low, high) = (span_text(self.gossip_ms), span_text(GOSSIP_MS_MIN), span_text(GOSSIP_MS_MAX));
            return Err(("gossip".into(), format!("{is} is not between {low} and {high}")));
        }
        if self.checkpoint_ms != 0 && !(CHECKPOINT_MS_MIN..=CHECKPOINT_MS_MAX).contains(&self.checkpoint_ms) {
            let [is, low, high] = [self.checkpoint_ms, CHECKPOINT_MS_MIN, CHECKPOINT_MS_MAX].map(span_text);
            return Err(("checkpoint".into(), format!("{is} is not between {low} and {high}, nor \"off\"")));
        }
        if !(SIZE_MIN..=SIZE_MAX).contains(&self.size_max) {
            let (is, low, high) = (size_text(self.size_max), size_text(SIZE_MIN), size_text(SIZE_MAX));
            return Err(("size_max".into(), format!("{is} is not between {low} and {high}")));
        }
        self.databases.validate()?;
        self.quota.validate()
    }

    fn databases(&self) -> Option<&Databases> {
        Some(&self.databases)
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn may_follow(&self, _: &Self, _: u32) -> Result<(), Wrong> {
        Ok(())
    }

    fn promise(&self) -> &'static str {
        if self.checkpoint_ms == 0 && self.copies == 1 {
            "memory only, on every node; reads are of the node that is asked, and all converge: no update is lost by joining. \
             An acknowledged update is at one node, and at the others a moment later; when all nodes end at once, all is gone"
        } else if self.checkpoint_ms == 0 {
            "memory only, on every node; reads are of the node that is asked, and all converge: no update is lost by joining. \
             An acknowledged update is at two nodes if two are live; when all nodes end at once, all is gone"
        } else if self.copies == 1 {
            "in memory on every node; reads are of the node that is asked, and all converge: no update is lost by joining. \
             An acknowledged update is at one node, and at the others a moment later; when all nodes end at once, what the last \
             checkpoint has is there again"
        } else {
            "in memory on every node; reads are of the node that is asked, and all converge: no update is lost by joining. \
             An acknowledged update is at two nodes if two are live; when all nodes end at once, what the last checkpoint has is \
             there again"
        }
    }

    fn lines(&self) -> Vec<Line> {
        vec![Line::new("promise", self.promise()), Line::new("durability", "memory, on every node")]
    }
}

fn checkpoint_text(ms: u64) -> String {
    if ms == 0 { "off".to_owned() } else { span_text(ms) }
}

#[cfg(test)]
mod tests {
    use class::Spec as _;

    use super::*;

    fn read(text: &str) -> Result<Spec, Wrong> {
        Spec::read(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn keys_are_read_checked_and_written_back() {
        assert_eq!(read("{}"), Ok(Spec::default()));
        assert_eq!(Spec::default().write(), []);
        let spec = read(r#"{"copies":1,"gossip":"1s","checkpoint":"off","size_max":"64MiB"}"#).unwrap();
        let wanted = Spec { copies: 1, gossip_ms: 1000, checkpoint_ms: 0, size_max: 64 << 20, ..Spec::default() };
        assert_eq!(spec, wanted);
        let written: Map<String, Value> =
            spec.write().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        assert_eq!(Spec::read(&written), Ok(spec));
        for (text, key, says) in [
            (r#"{"copies":3}"#, "copies", "3 is not 1 or 2"),
            (r#"{"gossip":"1ms"}"#, "gossip", "1ms is not between 20ms and 10s"),
            (r#"{"gossip":5}"#, "gossip", "gossip = \"100ms\""),
            (r#"{"checkpoint":"1ms"}"#, "checkpoint", "1ms is not between 1s and 10m, nor \"off\""),
            (r#"{"checkpoint":0}"#, "checkpoint", "checkpoint = \"10s\""),
            (r#"{"size_max":"1KiB"}"#, "size_max", "1KiB is not between 1MiB and 1TiB"),
            (r#"{"size_max":"99999999999TiB"}"#, "size_max", "\"64MiB\""),
            (r#"{"size_max":7}"#, "size_max", "\"64MiB\""),
        ] {
            let wrong = read(text).and_then(|spec| spec.validate()).unwrap_err();
            assert!(wrong.0 == key && wrong.1.contains(says), "{text}: {wrong:?}");
        }
    }
}
