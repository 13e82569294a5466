//! What is declared of a `sql` namespace: how many nodes have it, and how large it may become.

use base::text::size_text;
use class::{Groups, Key, Line, Quota, Wrong, is_number, size};
use serde_json::{Map, Value};

use super::limits::{SIZE_MAX, SIZE_MIN};

/// One declared namespace: `replicas = 3`, `size_max = "16MiB"`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Nodes that have the database. None: 3.
    pub replicas: Option<u32>,
    /// Of the database, bytes.
    pub size_max: u64,
    pub quota: Quota,
}

impl Default for Spec {
    fn default() -> Self {
        Self { replicas: None, size_max: SIZE_MAX, quota: Quota::default() }
    }
}

impl class::Spec for Spec {
    const KEYS: &'static [Key] = &[
        Key { name: "replicas", example: "5", about: "Nodes that have the database: 1, 3 or 5, default 3." },
        Key {
            name: "size_max",
            example: "\"16MiB\"",
            about: "Size that the database may have, in the memory of each of its nodes: 1MiB to 64MiB, default 64MiB. A batch that needs \
                    more is not done.",
        },
        Quota::RATE_MAX,
        Quota::CONNECTIONS_MAX,
    ];

    fn foreign(key: &str) -> Option<&'static str> {
        match key {
            "shards" => Some("a database of class sql is one: its statements may use all tables together"),
            "bytes_max" => Some("write size_max: how large the database may be"),
            "durability" => Some("what class sql acknowledges is on a majority's disks"),
            "lease" => Some("class sql keeps rows until they are deleted"),
            _ => None,
        }
    }

    fn read(keys: &Map<String, Value>) -> Result<Self, Wrong> {
        Ok(Self {
            replicas: keys.get("replicas").map(|value| is_number("replicas", value)).transpose()?,
            size_max: keys.get("size_max").map(|value| size("size_max", value)).transpose()?.unwrap_or(SIZE_MAX),
            quota: Quota::read(keys)?,
        })
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        let Self { replicas, size_max, quota } = self;
        let mut keys: Vec<(&'static str, Value)> = Vec::new();
        keys.extend(replicas.map(|replicas| ("replicas", replicas.into())));
        if *size_max != SIZE_MAX {
            keys.push(("size_max", size_text(*size_max).into()));
        }
        keys.extend(quota.write());
        keys
    }

    fn validate(&self) -> Result<(), Wrong> {
        if ![1, 3, 5].contains(&self.replicas.unwrap_or(3)) {
            let why = "write 1, 3 or 5; an even number survives no more than the odd one below it";
            return Err(("replicas".into(), why.into()));
        }
        if !(SIZE_MIN..=SIZE_MAX).contains(&self.size_max) {
            let (is, low, high) = (size_text(self.size_max), size_text(SIZE_MIN), size_text(SIZE_MAX));
            return Err((
                "size_max".into(),
                format!("{is} is not between {low} and {high}: the database is in memory"),
            ));
        }
        self.quota.validate()
    }

    fn may_follow(&self, _: &Self, _: u32) -> Result<(), Wrong> {
        Ok(())
    }

    fn bytes_max(&self) -> Option<u64> {
        Some(self.size_max)
    }

    /// One, whose members each have the database.
    fn groups(&self) -> Option<Groups> {
        Some(Groups { shards: Some(1), grows: false, replicas: self.replicas.unwrap_or(3), memory: false })
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn promise(&self) -> &'static str {
        if self.replicas == Some(1) {
            return "a batch is done whole or not at all, and linearizable; an acknowledged one is on one node's disk, and is lost with it";
        }
        "a batch is done whole or not at all, and linearizable; an acknowledged one is on a majority's disks: any minority of its \
         nodes may be lost, and the power of all may fail"
    }

    fn lines(&self) -> Vec<Line> {
        vec![Line::new("promise", self.promise()), Line::new("durability", "disk")]
    }
}
