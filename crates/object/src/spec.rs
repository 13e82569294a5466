//! What is declared of an `object` namespace: how many copies, over how many nodes an owner is spread, and what a second write does.

use class::{Key, Line, Quota, Wrong, is_number};
use serde_json::{Map, Value};

use crate::limits::{COPIES, COPIES_MAX, SPREAD, SPREAD_MAX};

/// One declared namespace: `copies = 2`, `copies_min = 1`, `spread = 2`, `writes = "once"`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Nodes whose disks have an object when it is acknowledged.
    pub copies: u32,
    /// With fewer nodes alive so many must do; what has fewer than `copies` is *thin*, counted, and completed later.
    pub copies_min: u32,
    /// An owner's objects lie on about so many nodes.
    pub spread: u32,
    pub writes: Writes,
    pub quota: Quota,
}

/// What becomes of a second write of one id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Writes {
    /// Nothing: an object is what it was first, and once deleted it stays so. No clock decides.
    #[default]
    Once,
    /// The newest one stays, by hybrid clock, deletions too.
    Newest,
}

impl Writes {
    pub fn name(self) -> &'static str {
        match self {
            Writes::Once => "once",
            Writes::Newest => "newest",
        }
    }

    fn read(value: &Value) -> Result<Self, Wrong> {
        let name = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        [Writes::Once, Writes::Newest].into_iter().find(|writes| writes.name() == name).ok_or_else(|| {
            let why = format!(
                "\"{name}\" is not known; known are \"once\" (an object never changes, and a deletion is final) and \
                 \"newest\" (the newest write stays)"
            );
            ("writes".to_owned(), why)
        })
    }
}

impl Default for Spec {
    fn default() -> Self {
        Self { copies: COPIES, copies_min: 1, spread: SPREAD, writes: Writes::Once, quota: Quota::default() }
    }
}

impl class::Spec for Spec {
    const KEYS: &'static [Key] = &[
        Key {
            name: "copies",
            example: "3",
            about: "Nodes that have an object on disk when it is acknowledged: 1 to 5, default 2.",
        },
        Key {
            name: "copies_min",
            example: "2",
            about: "With fewer nodes alive, so many copies must do, default 1; what has fewer than `copies` is counted, and completed \
                    when another node lives.",
        },
        Key {
            name: "spread",
            example: "4",
            about: "Nodes over which the objects of one owner are spread: `copies` to 16, default 2.",
        },
        Key {
            name: "writes",
            example: "\"newest\"",
            about: "\"once\" (default): an object never changes, and a deletion is final. \"newest\": the newest write stays.",
        },
        Quota::RATE_MAX,
    ];

    fn read(keys: &Map<String, Value>) -> Result<Self, Wrong> {
        let number = |key: &str| keys.get(key).map(|value| is_number(key, value)).transpose();
        let copies = number("copies")?.unwrap_or(COPIES);
        Ok(Self {
            copies,
            copies_min: number("copies_min")?.unwrap_or(1),
            spread: number("spread")?.unwrap_or(SPREAD.max(copies)),
            writes: keys.get("writes").map(Writes::read).transpose()?.unwrap_or_default(),
            quota: Quota::read(keys)?,
        })
    }

    fn write(&self) -> Vec<(&'static str, Value)> {
        let Self { copies, copies_min, spread, writes, ref quota } = *self;
        let numbers =
            [("copies", copies, COPIES), ("copies_min", copies_min, 1), ("spread", spread, SPREAD.max(copies))];
        let mut keys: Vec<(&'static str, Value)> =
            numbers.into_iter().filter(|(_, n, usual)| n != usual).map(|(key, n, _)| (key, n.into())).collect();
        if writes != Writes::default() {
            keys.push(("writes", writes.name().into()));
        }
        keys.extend(quota.write());
        keys
    }

    fn validate(&self) -> Result<(), Wrong> {
        let Self { copies, copies_min, spread, .. } = *self;
        let within = |key: &str, n: u32, low: u32, high: u32| match (low..=high).contains(&n) {
            true => Ok(()),
            false => Err((key.to_owned(), format!("{n} is not between {low} and {high}"))),
        };
        within("copies", copies, 1, COPIES_MAX)?;
        within("copies_min", copies_min, 1, copies)?;
        within("spread", spread, copies, SPREAD_MAX)?;
        self.quota.validate()
    }

    fn quota(&self) -> &Quota {
        &self.quota
    }

    fn may_follow(&self, before: &Self, _: u32) -> Result<(), Wrong> {
        if self.writes == before.writes {
            return Ok(());
        }
        let (was, is) = (before.writes.name(), self.writes.name());
        Err(("writes".into(), format!("it is \"{was}\" and cannot become \"{is}\": what is there was written so")))
    }

    fn promise(&self) -> &'static str {
        match (self.copies, self.copies_min) {
            (1, _) => "disk of one node: an acknowledged object is there while that disk is",
            (copies, min) if copies == min => {
                "disks of several nodes: an acknowledged object is there while one of them is; with too few nodes alive it is refused"
            }
            _ => {
                "disks of several nodes: an acknowledged object is there while one of them is; with fewer nodes alive it is taken all \
                 the same, counted as thin, and copied when another one lives"
            }
        }
    }

    fn lines(&self) -> Vec<Line> {
        vec![Line::new("promise", self.promise()), Line::new("durability", "disk")]
    }
}

#[cfg(test)]
mod tests {
    use class::Spec as _;

    use super::*;

    fn read(text: &str) -> Result<Spec, Wrong> {
        let spec = Spec::read(&serde_json::from_str(text).unwrap())?;
        spec.validate().map(|()| spec)
    }

    #[test]
    fn a_declaration_is_read_checked_and_written_back() {
        assert_eq!(read("{}"), Ok(Spec::default()));
        for text in [r#"{}"#, r#"{"copies":3}"#, r#"{"copies_min":2,"spread":4,"writes":"newest"}"#] {
            let written: Map<String, Value> =
                read(text).unwrap().write().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            assert_eq!(serde_json::to_string(&written).unwrap(), text);
        }
        for (text, key, why) in [
            (r#"{"copies":0}"#, "copies", "0 is not between 1 and 5"),
            (r#"{"copies":2,"copies_min":3}"#, "copies_min", "3 is not between 1 and 2"),
            (r#"{"copies":3,"spread":2}"#, "spread", "2 is not between 3 and 16"),
        ] {
            assert_eq!(read(text), Err((key.to_owned(), why.to_owned())));
        }
        assert!(read(r#"{"writes":"often"}"#).unwrap_err().1.contains("known are \"once\""));
        let newest = Spec { writes: Writes::Newest, ..Spec::default() };
        assert!(newest.may_follow(&Spec::default(), 0).is_err());
    }
}
