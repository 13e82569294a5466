//! What is declared of a `session` namespace: how long values are kept, how writes of one reading are merged, how long bricks are
//! waited for.

use std::ops::RangeInclusive;

use base::Span;
use base::text::span_text;
use class::{Databases, Key, Line, Quota, Wrong, span};
use serde_json::{Map, Value};

use super::limits::{BRICK_TIMEOUT, LEASE_MS_DEFAULT, LEASE_MS_MAX, LEASE_MS_MIN, TIMEOUT_MS_MAX, TIMEOUT_MS_MIN};

/// One declared namespace: `lease = "30m"`, `merge = "none"`, `timeout = "20ms"`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// How long a value is kept after it was last written, unless the write says otherwise; milliseconds.
    pub lease_ms: u64,
    /// What becomes of writes that were made from one and the same reading.
    pub merge: Merges,
    /// How long one brick is waited for (SSM's t), milliseconds.
    pub timeout_ms: u64,
    pub databases: Databases,
    pub quota: Quota,
}

/// What becomes of a write whose writer did not know the newest version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Merges {
    /// It replaces the value, as in Redis.
    #[default]
    None,
    /// Values are maps: the fields it changed are merged into the newest version.
    Fields,
}

impl Merges {
    pub const ALL: [Merges; 2] = [Merges::None, Merges::Fields];

    pub fn name(self) -> &'static str {
        match self {
            Merges::None => "none",
            Merges::Fields => "fields",
        }
    }

    fn read(value: &Value) -> Result<Self, Wrong> {
        let name = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Merges::ALL.into_iter().find(|merge| merge.name() == name).ok_or_else(|| {
            let why = format!(
                "merge \"{name}\" is not known; known are \"none\" (the last write of a value stays, as in Redis) and \
                 \"fields\" (values are maps, and parallel writes of different fields all stay)"
            );
            ("merge".to_owned(), why)
        })
    }
}

impl Default for Spec {
    fn default() -> Self {
        let timeout_ms = BRICK_TIMEOUT.as_millis();
        Self {
            lease_ms: LEASE_MS_DEFAULT,
            merge: Merges::None,
            timeout_ms,
            databases: Databases::default(),
            quota: Quota::default(),
        }
    }
}

impl Spec {
    pub fn lease(&self) -> Span {
        Span::millis(self.lease_ms)
    }

    pub fn timeout(&self) -> Span {
        Span::millis(self.timeout_ms)
    }
}

impl class::Spec for Spec {
    const KEYS: &'static [Key] = &[
        Key {
            name: "lease",
            example: "\"30m\"",
            about: "How long a value is kept after it was last written, unless the write says otherwise: 1s to 400d, default 30m.",
        },
        Key {
            name: "merge",
            example: "\"fields\"",
            about: "\"none\" (default): the last write of a value stays. \"fields\": values are maps, and parallel writes of \
                    different fields all stay.",
        },
        Key { name: "timeout", example: "\"60ms\"", about: "How long one brick is waited for: 5ms to 5s." },
        Databases::KEY,
        Quota::BYTES_MAX,
        Quota::KEYS_MAX,
        Quota::RATE_MAX,
        Quota::CONNECTIONS_MAX,
    ];

    fn read(keys: &Map<String, Value>) -> Result<Self, Wrong> {
        let default = Self::default();
        let span_of = |key: &str, example| keys.get(key).map(|value| span(key, value, example)).transpose();
        Ok(Self {
            lease_ms: span_of("lease", "1h")?.unwrap_or(default.lease_ms),
            merge: keys.get("merge").map(Merges::read).transpose()?.unwrap_or_default(),
            timeout_ms: span_of("timeout", "100ms")?.unwrap_or(default.timeout_ms),
            databases: Databases::read(keys)?,
            quota: Quota::read(keys)?,
        })
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        let Self { lease_ms, merge, timeout_ms, databases, quota } = self;
        let mut keys = vec![("lease", span_text(*lease_ms).into())];
        if *merge != Merges::None {
            keys.push(("merge", merge.name().into()));
        }
        if *timeout_ms != Self::default().timeout_ms {
            keys.push(("timeout", span_text(*timeout_ms).into()));
        }
        keys.extend(databases.write());
        keys.extend(quota.write());
        keys
    }

    fn validate(&self) -> Result<(), Wrong> {
        within("lease", self.lease_ms, LEASE_MS_MIN..=LEASE_MS_MAX)?;
        within("timeout", self.timeout_ms, TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX)?;
        self.databases.validate()?;
        self.quota.validate()
    }

    fn may_follow(&self, _: &Self, _: u32) -> Result<(), Wrong> {
        Ok(())
    }

    fn databases(&self) -> Option<&Databases> {
        Some(&self.databases)
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn promise(&self) -> &'static str {
        match self.merge {
            Merges::None => {
                "memory only, on three nodes: any one may be killed at any time and nothing is lost; a power cut of the \
                 whole cluster ends all sessions"
            }
            Merges::Fields => {
                "memory only, on three nodes: any one may be killed at any time and nothing is lost, and writes of \
                 different fields of a value all count; a power cut of the whole cluster ends all sessions"
            }
        }
    }

    fn lines(&self) -> Vec<Line> {
        vec![
            Line::new("lease", format!("{} after the last write or touch", span_text(self.lease_ms))),
            Line::new("timeout", format!("{}, then a brick is passed over", span_text(self.timeout_ms))),
            Line::new("promise", self.promise()),
        ]
    }
}

fn within(key: &str, ms: u64, bounds: RangeInclusive<u64>) -> Result<(), Wrong> {
    if bounds.contains(&ms) {
        return Ok(());
    }
    let (low, high) = (span_text(*bounds.start()), span_text(*bounds.end()));
    Err((key.to_owned(), format!("{} is not between {low} and {high}", span_text(ms))))
}

#[cfg(test)]
mod tests {
    use class::Spec as _;

    use super::*;

    #[test]
    fn limits_are_named() {
        assert_eq!(Spec::default().validate(), Ok(()));
        let short = Spec { lease_ms: 10, ..Spec::default() };
        assert_eq!(short.validate(), Err(("lease".into(), "10ms is not between 1s and 400d".into())));
        for (timeout_ms, good) in [(4, false), (5, true), (5000, true), (5001, false)] {
            let spec = Spec { timeout_ms, ..Spec::default() };
            let wrong = Err(("timeout".to_owned(), format!("{timeout_ms}ms is not between 5ms and 5s")));
            assert_eq!(spec.validate(), if good { Ok(()) } else { wrong });
        }
    }
}
