//! What an operator declares of a namespace: its class, which is its promise, and how long values are kept.
//! A class that does not exist is an error that lists the known ones.

use std::fmt;
use std::ops::RangeInclusive;

use base::Span;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::linear::functions;

/// One declared namespace. In TOML: `class = "session"`, `lease = "30m"`; or `class = "linear"`, `shards = 1`,
/// `replicas = 3`, `durability = "disk"`, `functions = "bank"`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct NamespaceSpec {
    pub class: Class,
    /// How long a value is kept after it was last written, unless the write says otherwise; milliseconds. 0: for ever,
    /// as in class `linear`.
    #[serde(rename = "lease", skip_serializing_if = "is_zero", serialize_with = "put_span")]
    pub lease_ms: u64,
    /// What becomes of writes that were made from one and the same reading.
    #[serde(skip_serializing_if = "Merges::is_none")]
    pub merge: Merges,
    /// How long one brick is waited for (SSM's t), milliseconds.
    #[serde(rename = "timeout", skip_serializing_if = "is_default_timeout", serialize_with = "put_span")]
    pub timeout_ms: u64,
    /// Of class `linear`: consensus groups that its keys are spread over. None: 1, and more when they are large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
    /// Of class `linear`: members of each group. None: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Of class `linear`: where an acknowledged write is. None: `disk`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Of class `linear`: functions whose callers need no reply but that it is done (`linear/together.rs`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weak: Vec<String>,
    /// Of class `linear`: the service whose clones know functions besides those that are built in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions: Option<String>,
}

/// As people write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    class: Class,
    #[serde(default, deserialize_with = "get_lease")]
    lease: Option<u64>,
    #[serde(default)]
    merge: Merges,
    #[serde(default, deserialize_with = "get_timeout")]
    timeout: Option<u64>,
    shards: Option<u32>,
    replicas: Option<u32>,
    durability: Option<Durability>,
    #[serde(default)]
    weak: Vec<String>,
    functions: Option<String>,
}

impl From<Written> for NamespaceSpec {
    fn from(written: Written) -> Self {
        let Written { class, lease, merge, timeout, shards, replicas, durability, weak, functions } = written;
        let lease_ms = lease.unwrap_or(match class {
            Class::Session => default_lease(),
            Class::Linear => 0,
        });
        let timeout_ms = timeout.unwrap_or(default_timeout());
        Self { class, lease_ms, merge, timeout_ms, shards, replicas, durability, weak, functions }
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl NamespaceSpec {
    /// A `session` namespace with the default lease of 30 minutes.
    pub fn session() -> Self {
        Self {
            class: Class::Session,
            lease_ms: default_lease(),
            merge: Merges::None,
            timeout_ms: default_timeout(),
            shards: None,
            replicas: None,
            durability: None,
            weak: Vec::new(),
            functions: None,
        }
    }

    /// A `linear` namespace of groups with three members.
    pub fn linear() -> Self {
        Self { class: Class::Linear, lease_ms: 0, ..Self::session() }
    }

    /// Groups and members, if it is a `linear` one.
    pub fn groups(&self) -> Option<crate::linear::place::Wanted> {
        let (shards, replicas) = (self.shards, self.replicas.unwrap_or(3));
        let memory = self.durability() == Some(Durability::Memory);
        (self.class == Class::Linear).then_some(crate::linear::place::Wanted { shards, replicas, memory })
    }

    /// Where an acknowledged write is, if it is a `linear` one.
    pub fn durability(&self) -> Option<Durability> {
        (self.class == Class::Linear).then_some(self.durability.unwrap_or(Durability::Disk))
    }

    pub fn lease(&self) -> Span {
        Span::millis(self.lease_ms)
    }

    pub fn timeout(&self) -> Span {
        Span::millis(self.timeout_ms)
    }

    /// What the class promises, in a sentence for people.
    pub fn promise(&self) -> &'static str {
        match (self.class, self.merge) {
            (Class::Session, Merges::None) => {
                "memory only, on three nodes: any one may be killed at any time and nothing is lost; a power cut of the \
                 whole cluster ends all sessions"
            }
            (Class::Session, Merges::Fields) => {
                "memory only, on three nodes: any one may be killed at any time and nothing is lost, and writes of \
                 different fields of a value all count; a power cut of the whole cluster ends all sessions"
            }
            (Class::Linear, _) if self.replicas == Some(1) => {
                "every operation is atomic and linearizable; an acknowledged write is on one node's disk, and is lost with it"
            }
            (Class::Linear, _) if self.durability == Some(Durability::Memory) => {
                "every operation is atomic and linearizable; an acknowledged write is in the memory of a majority of its \
                 nodes, and on their disks soon after: any minority of them may be lost, and all processes may be killed"
            }
            (Class::Linear, _) => {
                "every operation is atomic and linearizable; an acknowledged write is on a majority's disks: any minority \
                 of its nodes may be lost, and the power of all may fail"
            }
        }
    }

    /// Checks what the types cannot: the key that is wrong, and why.
    pub fn validate(&self) -> Result<(), (&'static str, String)> {
        if self.class == Class::Linear {
            return self.validate_linear();
        }
        let of_linear = [
            ("shards", self.shards.is_some()),
            ("replicas", self.replicas.is_some()),
            ("durability", self.durability.is_some()),
            ("weak", !self.weak.is_empty()),
            ("functions", self.functions.is_some()),
        ];
        if let Some((key, _)) = of_linear.into_iter().find(|(_, is_there)| *is_there) {
            return Err((key, "is of class linear, and this is of class session; leave it out".into()));
        }
        let within = |key, ms: u64, bounds: RangeInclusive<u64>| {
            let (low, high) = (span_text(*bounds.start()), span_text(*bounds.end()));
            let wrong = || (key, format!("{} is not between {low} and {high}", span_text(ms)));
            bounds.contains(&ms).then_some(()).ok_or_else(wrong)
        };
        within("lease", self.lease_ms, LEASE_MS_MIN..=LEASE_MS_MAX)?;
        within("timeout", self.timeout_ms, TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX)
    }
}

impl NamespaceSpec {
    fn validate_linear(&self) -> Result<(), (&'static str, String)> {
        let wrong = |key, why: String| Err((key, why));
        if self.lease_ms != 0 {
            return wrong(
                "lease",
                "class linear keeps values until they are removed; give a key an end with EX".into(),
            );
        }
        let of_session = [("merge", !self.merge.is_none()), ("timeout", !is_default_timeout(&self.timeout_ms))];
        if let Some((key, _)) = of_session.into_iter().find(|(_, is_there)| *is_there) {
            return wrong(key, "is of class session, and this is of class linear; leave it out".into());
        }
        if !(1..=SHARDS_MAX).contains(&self.shards.unwrap_or(1)) {
            return wrong("shards", format!("write a number from 1 to {SHARDS_MAX}"));
        }
        if ![1, 3, 5].contains(&self.replicas.unwrap_or(3)) {
            let why = "write 1, 3 or 5; an even number survives no more than the odd one below it";
            return wrong("replicas", why.into());
        }
        if self.durability == Some(Durability::Memory) && self.replicas == Some(1) {
            let why = "\"memory\" needs a second node's memory: write replicas = 3 or 5, or durability = \"disk\"";
            return wrong("durability", why.into());
        }
        let weak = |name: &str| functions::weak_names().any(|known| known == name);
        if let Some(other) = self.weak.iter().find(|name| !weak(name)) {
            let known: Vec<_> = functions::weak_names().collect();
            return wrong("weak", format!("\"{other}\" cannot be weak; those that can: {}", known.join(", ")));
        }
        Ok(())
    }

    /// Whether a namespace that was declared as `before`, and has so many shards now, may be declared as this; else the key that
    /// is wrong, and why.
    pub fn may_follow(&self, before: &Self, shards: u32) -> Result<(), (&'static str, String)> {
        if self.class != before.class {
            let why = format!("it is {}, and cannot become {}; choose another name", before.class, self.class);
            return Err(("class", why));
        }
        if self.shards.is_some_and(|wanted| wanted < shards) {
            let why =
                format!("it has {shards} shards, which cannot become fewer: write {shards} or more, or leave it out");
            return Err(("shards", why));
        }
        if let (Some(was), Some(is)) = (before.durability(), self.durability())
            && was != is
        {
            let (was, is) = (was.name(), is.name());
            let why = format!("it is \"{was}\", and cannot become \"{is}\" yet; choose another name and copy the keys");
            return Err(("durability", why));
        }
        Ok(())
    }
}

/// Shards of one namespace: each costs a log entry and some memory on its nodes.
pub const SHARDS_MAX: u32 = 256;

/// The promise of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Session,
    Linear,
}

impl Class {
    pub const ALL: [Class; 2] = [Class::Session, Class::Linear];

    pub fn name(self) -> &'static str {
        match self {
            Class::Session => "session",
            Class::Linear => "linear",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Class {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Class::ALL.into_iter().find(|class| class.name() == name).ok_or_else(|| {
            let known: Vec<_> = Class::ALL.iter().map(|class| format!("\"{class}\"")).collect();
            D::Error::custom(format!("class \"{name}\" is not known; known are: {}", known.join(", ")))
        })
    }
}

/// Where an acknowledged write of class `linear` is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// On the disks of a majority of the group's nodes.
    Disk,
    /// In the memory of a majority, and on their disks within about [`base::limits::UNFORCED_MAX`].
    Memory,
}

impl Durability {
    pub const ALL: [Durability; 2] = [Durability::Disk, Durability::Memory];

    pub fn name(self) -> &'static str {
        match self {
            Durability::Disk => "disk",
            Durability::Memory => "memory",
        }
    }
}

impl Serialize for Durability {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Durability {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Durability::ALL.into_iter().find(|durability| durability.name() == name).ok_or_else(|| {
            D::Error::custom(format!(
                "durability \"{name}\" is not known; known are \"disk\" (an acknowledged write is on a majority's disks) \
                 and \"memory\" (it is in a majority's memory, and on their disks soon after)"
            ))
        })
    }
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

    fn is_none(&self) -> bool {
        *self == Merges::None
    }
}

impl Serialize for Merges {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Merges::ALL.into_iter().find(|merge| merge.name() == name).ok_or_else(|| {
            D::Error::custom(format!(
                "merge \"{name}\" is not known; known are \"none\" (the last write of a value stays, as in Redis) and \
                 \"fields\" (values are maps, and parallel writes of different fields all stay)"
            ))
        })
    }
}

fn default_lease() -> u64 {
    30 * 60 * 1000
}

fn default_timeout() -> u64 {
    crate::session::limits::BRICK_TIMEOUT.as_millis()
}

fn is_default_timeout(ms: &u64) -> bool {
    *ms == default_timeout()
}

/// Shorter, and a busy moment of the network looks like overload.
const TIMEOUT_MS_MIN: u64 = 5;
/// Longer is longer than front doors wait for a whole operation.
const TIMEOUT_MS_MAX: u64 = 5000;
/// Shorter leases end before their owner's next request.
const LEASE_MS_MIN: u64 = 1000;
/// 400 days: the longest life browsers give a cookie.
pub const LEASE_MS_MAX: u64 = 400 * 24 * 3600 * 1000;

/// Milliseconds from `1500ms`, `20s`, `30m`, `2h` or `7d`.
pub fn span_from_text(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    let number = text[..digits].parse::<u64>().ok().filter(|_| unit > 0);
    number.and_then(|n| n.checked_mul(unit)).ok_or_else(|| {
        format!("\"{text}\" is not a length of time; write a whole number and ms, s, m, h or d, like \"30m\"")
    })
}

/// The shortest text that [`span_from_text`] reads back.
pub fn span_text(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    match units.iter().find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None => format!("{ms}ms"),
    }
}

fn put_span<S: Serializer>(ms: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&span_text(*ms))
}

fn get_lease<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    from.deserialize_str(SpanReader("lease = \"1h\"")).map(Some)
}

fn get_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    from.deserialize_str(SpanReader("timeout = \"100ms\"")).map(Some)
}

/// Reads a length of time. Whoever wrote something else is shown this line.
struct SpanReader(&'static str);

impl Visitor<'_> for SpanReader {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a length of time, with its unit and in quotes, like {}", self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        span_from_text(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_and_written_back() {
        for (text, ms) in
            [("30m", 1_800_000), ("1500ms", 1500), ("20s", 20_000), ("2h", 7_200_000), ("7d", 604_800_000)]
        {
            assert_eq!(span_from_text(text), Ok(ms));
            assert_eq!(span_text(ms), text);
        }
        for wrong in ["", "30", "m", "-1s", "1.5h", "30 m", "99999999999999999999s", "18446744073709551615d"] {
            assert!(span_from_text(wrong).unwrap_err().contains("like \"30m\""), "{wrong}");
        }
    }

    #[test]
    fn a_declaration_is_read_with_defaults_and_its_mistakes_are_named() {
        let read = |text: &str| serde_json::from_str::<NamespaceSpec>(text).map_err(|e| e.to_string());
        assert_eq!(read(r#"{"class":"session"}"#), Ok(NamespaceSpec::session()));
        let spec = read(r#"{"class":"session","lease":"2h"}"#).unwrap();
        assert_eq!(spec.lease_ms, 7_200_000);
        assert_eq!(serde_json::to_string(&spec).unwrap(), r#"{"class":"session","lease":"2h"}"#);
        let spec = read(r#"{"class":"session","timeout":"250ms"}"#).unwrap();
        assert_eq!(spec.timeout_ms, 250);
        assert_eq!(serde_json::to_string(&spec).unwrap(), r#"{"class":"session","lease":"30m","timeout":"250ms"}"#);
        assert!(
            read(r#"{"class":"liner"}"#)
                .unwrap_err()
                .contains("class \"liner\" is not known; known are: \"session\", \"linear\"")
        );
        let merges = read(r#"{"class":"session","merge":"fields"}"#).unwrap();
        assert_eq!(merges.merge, Merges::Fields);
        assert_eq!(serde_json::to_string(&merges).unwrap(), r#"{"class":"session","lease":"30m","merge":"fields"}"#);
        let wrong = read(r#"{"class":"session","merge":"field"}"#).unwrap_err();
        assert!(wrong.contains("\"field\" is not known") && wrong.contains("\"fields\""), "{wrong}");
        let linear = read(r#"{"class":"linear","replicas":5}"#).unwrap();
        assert_eq!(linear, NamespaceSpec { replicas: Some(5), ..NamespaceSpec::linear() });
        assert_eq!(serde_json::to_string(&linear).unwrap(), r#"{"class":"linear","replicas":5}"#);
        let weak = read(r#"{"class":"linear","weak":["set.add"]}"#).unwrap();
        assert_eq!((weak.validate(), &weak.weak[..]), (Ok(()), &["set.add".to_owned()][..]));
        let functions = read(r#"{"class":"linear","functions":"bank"}"#).unwrap();
        assert_eq!(functions.functions.as_deref(), Some("bank"));
        assert_eq!(serde_json::to_string(&functions).unwrap(), r#"{"class":"linear","functions":"bank"}"#);
        let tape = read(r#"{"class":"linear","durability":"tape"}"#).unwrap_err();
        assert!(tape.contains("\"tape\" is not known") && tape.contains("\"memory\""), "{tape}");
        assert!(read(r#"{"class":"session","lease":"soon"}"#).unwrap_err().contains("like \"30m\""));
        assert!(read(r#"{"class":"session","lease":3600}"#).unwrap_err().contains("lease = \"1h\""));
        assert!(read(r#"{"class":"session","leese":"2h"}"#).unwrap_err().contains("lease"));
    }

    #[test]
    fn limits_are_named() {
        assert_eq!(NamespaceSpec::session().validate(), Ok(()));
        let short = NamespaceSpec { lease_ms: 10, ..NamespaceSpec::session() };
        assert_eq!(short.validate(), Err(("lease", "10ms is not between 1s and 400d".into())));
        for (timeout_ms, good) in [(4, false), (5, true), (5000, true), (5001, false)] {
            let spec = NamespaceSpec { timeout_ms, ..NamespaceSpec::session() };
            let wrong = Err(("timeout", format!("{timeout_ms}ms is not between 5ms and 5s")));
            assert_eq!(spec.validate(), if good { Ok(()) } else { wrong });
        }
        assert_eq!(NamespaceSpec::linear().validate(), Ok(()));
        let memory = NamespaceSpec { durability: Some(Durability::Memory), ..NamespaceSpec::linear() };
        assert_eq!(memory.validate(), Ok(()));
        let disk = NamespaceSpec { durability: Some(Durability::Disk), ..NamespaceSpec::linear() };
        assert_eq!(disk.may_follow(&NamespaceSpec::linear(), 1), Ok(()), "it only says so");
        assert_eq!(memory.may_follow(&disk, 1).unwrap_err().0, "durability");
        assert!(disk.may_follow(&memory, 1).is_err());
        for (wrong, says) in [
            (NamespaceSpec { replicas: Some(2), ..NamespaceSpec::linear() }, "replicas"),
            (NamespaceSpec { shards: Some(0), ..NamespaceSpec::linear() }, "shards"),
            (NamespaceSpec { lease_ms: 1000, ..NamespaceSpec::linear() }, "lease"),
            (NamespaceSpec { replicas: Some(1), ..memory.clone() }, "second node's memory"),
            (NamespaceSpec { weak: vec!["put".into()], ..NamespaceSpec::linear() }, "\\\"put\\\" cannot be weak"),
            (NamespaceSpec { weak: vec!["set.add".into()], ..NamespaceSpec::session() }, "\"weak\""),
            (NamespaceSpec { durability: Some(Durability::Disk), ..NamespaceSpec::session() }, "\"durability\""),
            (NamespaceSpec { replicas: Some(3), ..NamespaceSpec::session() }, "\"replicas\""),
            (NamespaceSpec { timeout_ms: 100, ..NamespaceSpec::linear() }, "\"timeout\""),
            (NamespaceSpec { functions: Some("shop".into()), ..NamespaceSpec::session() }, "\"functions\""),
        ] {
            assert!(format!("{:?}", wrong.validate()).contains(says), "{wrong:?}");
        }
        assert!(NamespaceSpec::linear().may_follow(&NamespaceSpec::session(), 0).is_err());
    }
}
