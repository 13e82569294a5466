//! What is declared of a `cache` namespace: how much it may take at each node, and how long entries are kept.

use base::Span;
use base::text::{size_text, span_text};
use class::{Databases, Key, Line, Quota, Wrong, size, span};
use serde_json::{Map, Value};

use super::limits::{SIZE_DEFAULT, SIZE_MAX, SIZE_MIN, TTL_MS_MAX, TTL_MS_MIN};

/// One declared namespace: `size_max = "64MiB"`, `ttl = "1h"`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Memory that its entries may take at each node, bytes.
    pub size_max: u64,
    /// How long an entry is kept at most, unless its write says otherwise; milliseconds. None: as long as there is room.
    pub ttl_ms: Option<u64>,
    pub databases: Databases,
    pub quota: Quota,
}

impl Default for Spec {
    fn default() -> Self {
        Self { size_max: SIZE_DEFAULT, ttl_ms: None, databases: Databases::default(), quota: Quota::default() }
    }
}

impl Spec {
    pub fn ttl(&self) -> Option<Span> {
        self.ttl_ms.map(Span::millis)
    }
}

impl class::Spec for Spec {
    const KEYS: &'static [Key] = &[
        Key {
            name: "size_max",
            example: "\"64MiB\"",
            about: "Memory that its entries may take at each node: 8MiB to 1TiB, default 64MiB. Past it, what is asked for least goes.",
        },
        Key {
            name: "ttl",
            example: "\"1h\"",
            about: "How long an entry is kept at most, unless its write says otherwise: 1ms to 400d. Without it, as long as there is room.",
        },
        Databases::KEY,
        Quota::RATE_MAX,
        Quota::CONNECTIONS_MAX,
    ];

    fn foreign(key: &str) -> Option<&'static str> {
        match key {
            "lease" => Some(
                "an entry of a cache may go at any time, so it has no lease; ttl = \"30m\" ends it then at the latest",
            ),
            _ => None,
        }
    }

    fn read(keys: &Map<String, Value>) -> Result<Self, Wrong> {
        let size_max = keys.get("size_max").map(|value| size("size_max", value)).transpose()?.unwrap_or(SIZE_DEFAULT);
        let ttl_ms = keys.get("ttl").map(|value| span("ttl", value, "1h")).transpose()?;
        Ok(Self { size_max, ttl_ms, databases: Databases::read(keys)?, quota: Quota::read(keys)? })
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        let mut keys = Vec::new();
        if self.size_max != SIZE_DEFAULT {
            keys.push(("size_max", size_text(self.size_max).into()));
        }
        keys.extend(self.ttl_ms.map(|ms| ("ttl", span_text(ms).into())));
        keys.extend(self.databases.write());
        keys.extend(self.quota.write());
        keys
    }

    fn validate(&self) -> Result<(), Wrong> {
        if !(SIZE_MIN..=SIZE_MAX).contains(&self.size_max) {
            let (is, low, high) = (size_text(self.size_max), size_text(SIZE_MIN), size_text(SIZE_MAX));
            return Err(("size_max".into(), format!("{is} is not between {low} and {high}")));
        }
        match self.ttl_ms {
            Some(ms) if !(TTL_MS_MIN..=TTL_MS_MAX).contains(&ms) => {
                let (is, low, high) = (span_text(ms), span_text(TTL_MS_MIN), span_text(TTL_MS_MAX));
                Err(("ttl".into(), format!("{is} is not between {low} and {high}")))
            }
            _ => self.databases.validate().and_then(|()| self.quota.validate()),
        }
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
        "a copy of what is kept elsewhere, in the memory of one node each: any entry may be gone at any time; no request that begins \
         after a purge was acknowledged gets what was stored before it"
    }

    fn lines(&self) -> Vec<Line> {
        let size = size_text(self.size_max);
        let kept = self.ttl_ms.map_or("as long as there is room".to_owned(), |ms| format!("{} at most", span_text(ms)));
        vec![
            Line::new("promise", self.promise()),
            Line::new("size", format!("{size} at each node; past it, what is asked for least goes")),
            Line::new("kept", format!("{kept}, unless the write says otherwise")),
            Line::new("survives", "nothing: what a node has is gone with it, and asked for anew"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use class::Spec as _;

    use super::*;

    fn read(text: &str) -> Result<Spec, Wrong> {
        Spec::read(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn a_declaration_is_read_checked_and_written_back() {
        assert_eq!(read("{}"), Ok(Spec::default()));
        let spec = read(r#"{"size_max":"1536MiB","ttl":"90s"}"#).unwrap();
        assert_eq!((spec.size_max, spec.ttl_ms), (1536 << 20, Some(90_000)));
        assert_eq!(spec.write(), [("size_max", "1536MiB".into()), ("ttl", "90s".into())]);
        for (text, key, says) in [
            (r#"{"size_max":64}"#, "size_max", "like size_max = \"64MiB\""),
            (r#"{"size_max":"64MB"}"#, "size_max", "like \"64MiB\""),
            (r#"{"size_max":"99999999999TiB"}"#, "size_max", "like \"64MiB\""),
            (r#"{"ttl":60}"#, "ttl", "ttl = \"1h\""),
        ] {
            let (wrong, why) = read(text).unwrap_err();
            assert!(wrong == key && why.contains(says), "{text}: {wrong}: {why}");
        }
        for (text, says) in [
            (r#"{"size_max":"1MiB"}"#, "1MiB is not between 8MiB and 1TiB"),
            (r#"{"size_max":"2TiB"}"#, "2TiB is not between"),
            (r#"{"ttl":"0s"}"#, "is not between 1ms and 400d"),
            (r#"{"ttl":"401d"}"#, "401d is not between"),
        ] {
            let why = read(text).unwrap().validate().unwrap_err().1;
            assert!(why.contains(says), "{text}: {why}");
        }
    }
}
