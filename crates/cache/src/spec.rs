//! What is declared of a `cache` namespace: how much it may take at each node, and how long entries are kept.

use base::Span;
use base::text::{size_text, span_text};
use class::{Databases, Key, Line, Quota, Wrong, size, span};
use serde_json::{Map, Value};

use super::LEVEL_RING;
use super::limits::{DISK_MIN, SIZE_DEFAULT, SIZE_MAX, SIZE_MIN, TTL_MS_MAX, TTL_MS_MIN};

/// One declared namespace: `size_max = "64MiB"`, `ttl = "1h"`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Memory that its entries may take at each node, bytes.
    pub size_max: u64,
    /// What it may have on the disk of each node beside that, bytes; 0: nothing.
    pub disk_max: u64,
    /// How long an entry is kept at most, unless its write says otherwise; milliseconds. None: as long as there is room.
    pub ttl_ms: Option<u64>,
    pub databases: Databases,
    pub quota: Quota,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            size_max: SIZE_DEFAULT,
            disk_max: 0,
            ttl_ms: None,
            databases: Databases::default(),
            quota: Quota::default(),
        }
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
            name: "disk_max",
            example: "\"1GiB\"",
            about: "What entries that memory has no room for may take on each node's disk: 64MiB to 1TiB, default none. A restart empties it.",
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
        let disk_max = keys.get("disk_max").map(|value| size("disk_max", value)).transpose()?.unwrap_or(0);
        let ttl_ms = keys.get("ttl").map(|value| span("ttl", value, "1h")).transpose()?;
        Ok(Self { size_max, disk_max, ttl_ms, databases: Databases::read(keys)?, quota: Quota::read(keys)? })
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        let mut keys = Vec::new();
        if self.size_max != SIZE_DEFAULT {
            keys.push(("size_max", size_text(self.size_max).into()));
        }
        if self.disk_max != 0 {
            keys.push(("disk_max", size_text(self.disk_max).into()));
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
        if self.disk_max != 0 && !(DISK_MIN..=SIZE_MAX).contains(&self.disk_max) {
            let (is, low, high) = (size_text(self.disk_max), size_text(DISK_MIN), size_text(SIZE_MAX));
            return Err(("disk_max".into(), format!("{is} is not between {low} and {high}, and not 0")));
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

    fn newer_key(&self) -> Option<(&'static str, u32)> {
        if self.disk_max > 0 { Some(("disk_max", LEVEL_RING)) } else { self.databases.newer_key() }
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn may_follow(&self, _: &Self, _: u32) -> Result<(), Wrong> {
        Ok(())
    }

    fn promise(&self) -> &'static str {
        "a copy of what is kept elsewhere, at one node each: any entry may be gone at any time; no request that begins \
         after a purge was acknowledged gets what was stored before it"
    }

    fn lines(&self) -> Vec<Line> {
        let size = size_text(self.size_max);
        let disk = match self.disk_max {
            0 => String::new(),
            max => format!(" to its disk, {} at most, and then the oldest", size_text(max)),
        };
        let kept = self.ttl_ms.map_or("as long as there is room".to_owned(), |ms| format!("{} at most", span_text(ms)));
        vec![
            Line::new("promise", self.promise()),
            Line::new("size", format!("{size} at each node; past it, what is asked for least goes{disk}")),
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
        assert_eq!((spec.size_max, spec.disk_max, spec.ttl_ms), (1536 << 20, 0, Some(90_000)));
        assert_eq!(spec.write(), [("size_max", "1536MiB".into()), ("ttl", "90s".into())]);
        let spec = read(r#"{"disk_max":"2GiB"}"#).unwrap();
        assert_eq!((spec.validate(), spec.write()), (Ok(()), vec![("disk_max", "2GiB".into())]));
        assert_eq!(spec.newer_key(), Some(("disk_max", LEVEL_RING)));
        assert!(spec.lines()[1].text.contains("to its disk, 2GiB at most"), "{:?}", spec.lines());
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
            (r#"{"disk_max":"1MiB"}"#, "1MiB is not between 64MiB and 1TiB"),
            (r#"{"ttl":"0s"}"#, "is not between 1ms and 400d"),
            (r#"{"ttl":"401d"}"#, "401d is not between"),
        ] {
            let why = read(text).unwrap().validate().unwrap_err().1;
            assert!(why.contains(says), "{text}: {why}");
        }
    }
}
