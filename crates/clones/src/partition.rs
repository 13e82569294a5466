//! Partitions: parts of a service's requests that are to be treated alike (Ninja 3.3: "partitions"). Each says which
//! requests are its own, to which clones they go (affinity, share) and how much they matter (priority). The first of a
//! service's partitions that matches takes the request; what none takes is the service's rest. Here are the words that
//! people write and what they match; `route.rs` finds the partition among thousands.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use base::Span;
use base::checksum::place_hash;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::allows::Allows;
use crate::asks::Asks;
use crate::limits::PRIORITY_MAX;
use crate::text;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// For `route explain` and the name of a sticky cookie.
    pub name: String,
    /// The port the client came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// A name, or `*.` and the end of names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Prefix, in whole segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_suffix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_contains: Option<String>,
    /// Any of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "text::methods")]
    pub method: Vec<String>,
    /// All of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub header: Vec<HeaderMatch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_range: Option<HashRange>,
    #[serde(default, skip_serializing_if = "Affinity::is_none")]
    pub affinity: Affinity,
    #[serde(default)]
    pub priority: Priority,
    /// Part of the clones that serve this partition and no other.
    #[serde(default, skip_serializing_if = "Fraction::is_zero")]
    pub share: Fraction,
    /// What a request gets for which there is no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop: Option<DropHandler>,
    /// What its answers pass on their way out, in place of what its service says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// These three as [`Allows`] has them; what is not said here is as of the service.
    #[serde(default, with = "text::some_span", skip_serializing_if = "Option::is_none")]
    pub answer_timeout: Option<Span>,
    #[serde(default, with = "text::some_span", skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Span>,
    #[serde(default, with = "text::some_bytes", skip_serializing_if = "Option::is_none")]
    pub body_max: Option<u64>,
    /// These two as [`Asks`] has them; what is not said here is as of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_late: Option<bool>,
}

/// Ninja 3.3: what becomes of requests that are dropped in overload. Without one: 503 and a short text. With `service`
/// another service answers; else `status`, and the file as body, if there is one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, like drop = { status = 429 } or { service = \"waiting-room\" }")]
pub struct DropHandler {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// In the node's service folder, or an absolute path on each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

/// A field that is there; with `is` or `begins`, one of its values is or begins so.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table in a list, like header = [{ name = \"x-plan\", is = \"gold\" }]")]
pub struct HeaderMatch {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<String>,
}

/// Requests whose hash lies in a part of the whole: a tenth of all users, say. Always the same ones.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashRange {
    pub on: HashOn,
    #[serde(default)]
    pub from: Fraction,
    pub to: Fraction,
}

/// What of a request is hashed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HashOn {
    Path,
    Client,
    /// The port the client came to: who is given one port meets at one clone (Ninja 4.3 does so with chats).
    Port,
    Header(String),
    Cookie(String),
}

/// Which clone of the partition's a request prefers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Affinity {
    /// The least loaded.
    #[default]
    None,
    /// The one that the hash says, unless it has much more to do than the others.
    Hash(HashOn),
    /// The one that the browser was at before, by cookie.
    Sticky,
}

/// 0 is refused first, 9 last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Priority(pub u8);

/// Hundredths of a percent, 0 to 10,000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Fraction(pub u16);

/// What is known of a request when its partition is looked for.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The port the client came to.
    pub port: u16,
    /// As the client wrote it; a port in it does not matter.
    pub host: &'a str,
    /// Without query.
    pub path: &'a str,
    pub method: &'a str,
    pub client: IpAddr,
    pub headers: &'a dyn Headers,
}

/// Header fields, in whatever form a door has them. Names are compared without case.
pub trait Headers {
    /// Whether `test` holds for a value of the field.
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool;
}

impl Headers for [(String, String)] {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.iter().any(|(n, value)| n.eq_ignore_ascii_case(name) && test(value.as_bytes()))
    }
}

/// Why a partition does not take a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss<'a> {
    Host(&'a str),
    Path(&'a str),
    Port(u16),
    Suffix(&'a str),
    Contains(&'a str),
    Method(&'a [String]),
    Header(&'a HeaderMatch),
    HashRange(&'a HashRange),
}

impl Partition {
    /// A partition of this name that takes everything.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            port: None,
            host: None,
            path: None,
            path_suffix: None,
            path_contains: None,
            method: Vec::new(),
            header: Vec::new(),
            hash_range: None,
            affinity: Affinity::None,
            priority: Priority::default(),
            share: Fraction(0),
            drop: None,
            pipeline: None,
            answer_timeout: None,
            idle_timeout: None,
            body_max: None,
            ask: None,
            ask_late: None,
        }
    }

    pub fn allows(&self) -> Allows {
        let Self { answer_timeout, idle_timeout, body_max, .. } = self;
        Allows { answer_timeout: *answer_timeout, idle_timeout: *idle_timeout, body_max: *body_max }
    }

    pub fn asks(&self) -> Asks {
        Asks { ask: self.ask, ask_late: self.ask_late }
    }

    /// The first condition besides host and path prefix that does not hold.
    pub(crate) fn miss<'a>(&'a self, asked: &Asked<'_>) -> Option<Miss<'a>> {
        if let Some(port) = self.port.filter(|port| *port != asked.port) {
            return Some(Miss::Port(port));
        }
        if let Some(suffix) = self.path_suffix.as_deref().filter(|suffix| !asked.path.ends_with(suffix)) {
            return Some(Miss::Suffix(suffix));
        }
        if let Some(part) = self.path_contains.as_deref().filter(|part| !asked.path.contains(part)) {
            return Some(Miss::Contains(part));
        }
        if !self.method.is_empty() && !self.method.iter().any(|method| method == asked.method) {
            return Some(Miss::Method(&self.method));
        }
        if let Some(header) = self.header.iter().find(|header| !header.holds(asked)) {
            return Some(Miss::Header(header));
        }
        self.hash_range.as_ref().filter(|range| !range.holds(asked)).map(Miss::HashRange)
    }

    /// Whether it can only be told from an HTTP request.
    pub(crate) fn http_key(&self) -> Option<&'static str> {
        let keys = [
            ("host", self.host.is_some()),
            ("path", self.path.is_some()),
            ("path_suffix", self.path_suffix.is_some()),
            ("path_contains", self.path_contains.is_some()),
            ("method", !self.method.is_empty()),
            ("header", !self.header.is_empty()),
            ("hash_range", self.hash_range.as_ref().is_some_and(|range| range.on.is_http())),
        ];
        keys.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key)
    }
}

impl HeaderMatch {
    fn holds(&self, asked: &Asked<'_>) -> bool {
        asked.headers.any(&self.name, &mut |value| match (&self.is, &self.begins) {
            (Some(is), _) => value == is.as_bytes(),
            (None, Some(begins)) => value.starts_with(begins.as_bytes()),
            (None, None) => true,
        })
    }
}

impl HashRange {
    /// What has nothing to hash is in no range.
    fn holds(&self, asked: &Asked<'_>) -> bool {
        self.on.key(asked).is_some_and(|hash| (self.from..self.to).contains(&Fraction::of_hash(hash)))
    }
}

impl HashOn {
    /// The hash, unless the request does not have it.
    pub fn key(&self, asked: &Asked<'_>) -> Option<u64> {
        let mut found = None;
        match self {
            HashOn::Path => found = Some(place_hash(asked.path.as_bytes())),
            HashOn::Port => found = Some(place_hash(&asked.port.to_be_bytes())),
            HashOn::Client => {
                found = Some(match asked.client.to_canonical() {
                    IpAddr::V4(ip) => place_hash(&ip.octets()),
                    IpAddr::V6(ip) => place_hash(&ip.octets()),
                });
            }
            HashOn::Header(name) => {
                asked.headers.any(name, &mut |value| {
                    found = Some(place_hash(value));
                    true
                });
            }
            HashOn::Cookie(name) => {
                cookie(asked.headers, name, &mut |value| found = Some(place_hash(value)));
            }
        }
        found
    }

    pub(crate) fn is_http(&self) -> bool {
        matches!(self, HashOn::Path | HashOn::Header(_) | HashOn::Cookie(_))
    }
}

/// Calls `found` with the first value of a cookie, if it is there and not empty.
pub fn cookie(headers: &(impl Headers + ?Sized), name: &str, found: &mut dyn FnMut(&[u8])) {
    headers.any("cookie", &mut |line| {
        let pairs = line.split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let value = pairs.filter_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")).next();
        value.filter(|value| !value.is_empty()).map(&mut *found).is_some()
    });
}

impl Affinity {
    pub(crate) fn is_none(&self) -> bool {
        *self == Affinity::None
    }
}

impl Priority {
    const NAMED: [(&str, u8); 5] = [("background", 1), ("low", 3), ("normal", 5), ("high", 7), ("critical", 9)];
}

impl Default for Priority {
    fn default() -> Self {
        Self(5)
    }
}

impl Fraction {
    pub const WHOLE: Fraction = Fraction(10_000);

    /// Where a hash lies in the whole.
    pub(crate) fn of_hash(hash: u64) -> Self {
        Self(((u128::from(hash) * u128::from(Self::WHOLE.0)) >> 64) as u16)
    }

    fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

const HASH_ON: &str = "\"path\", \"client\", \"port\", \"header:NAME\" or \"cookie:NAME\"";

impl FromStr for HashOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(is_token);
        match text.split_once(':') {
            None if text == "path" => Ok(HashOn::Path),
            None if text == "client" => Ok(HashOn::Client),
            None if text == "port" => Ok(HashOn::Port),
            Some(("header", name)) if is_name(name) => Ok(HashOn::Header(name.to_ascii_lowercase())),
            Some(("cookie", name)) if is_name(name) => Ok(HashOn::Cookie(name.into())),
            _ => Err(format!("{text:?} is nothing to hash; write {HASH_ON}")),
        }
    }
}

impl fmt::Display for HashOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HashOn::Path => f.write_str("path"),
            HashOn::Client => f.write_str("client"),
            HashOn::Port => f.write_str("port"),
            HashOn::Header(name) => write!(f, "header:{name}"),
            HashOn::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

impl FromStr for Affinity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("hash:")) {
            ("none", _) => Ok(Affinity::None),
            ("sticky", _) => Ok(Affinity::Sticky),
            (_, Some(on)) => on.parse().map(Affinity::Hash),
            _ => Err(format!("{text:?} is no affinity; write \"none\", \"sticky\", or \"hash:\" and one of {HASH_ON}")),
        }
    }
}

impl fmt::Display for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Affinity::None => f.write_str("none"),
            Affinity::Hash(on) => write!(f, "hash:{on}"),
            Affinity::Sticky => f.write_str("sticky"),
        }
    }
}

impl FromStr for Fraction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a part of the whole; write for example \"25%\" or \"0.5%\"");
        let number = text.strip_suffix('%').ok_or_else(wrong)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !is_digits(whole) || !is_digits(part) || whole.len() > 3 || part.len() > 2 {
            return Err(wrong());
        }
        let digits: u32 = format!("{whole}{part:0<2}").parse().map_err(|_| wrong())?;
        u16::try_from(digits).ok().map(Fraction).filter(|f| *f <= Fraction::WHOLE).ok_or_else(wrong)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 100 {
            0 => write!(f, "{}%", self.0 / 100),
            part => write!(f, "{}%", format!("{}.{part:02}", self.0 / 100).trim_end_matches('0')),
        }
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::NAMED.iter().find(|(name, _)| *name == text).map(|(_, n)| Priority(*n));
        named.ok_or_else(|| format!("{text:?} is no priority; {PRIORITIES}"))
    }
}

const PRIORITIES: &str = "write 0 (refused first) to 9, or \"background\", \"low\", \"normal\", \"high\", \"critical\"";

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMED.iter().find(|(_, n)| *n == self.0) {
            Some((name, n)) => write!(f, "{n} ({name})"),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for Priority {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(self.0)
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl de::Visitor<'_> for Either {
            type Value = Priority;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a priority")
            }

            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Priority, E> {
                let fits = u8::try_from(n).ok().filter(|n| *n <= PRIORITY_MAX).map(Priority);
                fits.ok_or_else(|| E::custom(format!("{n} is no priority; {PRIORITIES}")))
            }

            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Priority, E> {
                self.visit_i64(n.try_into().unwrap_or(i64::MAX))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Priority, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_any(Either)
    }
}

/// These are text in files.
macro_rules! as_text {
    ($($of:ty: $like:literal),*) => {$(
        impl Serialize for $of {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $of {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Text;
                impl de::Visitor<'_> for Text {
                    type Value = $of;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "a text in quotes, like {:?}", $like)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$of, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                from.deserialize_str(Text)
            }
        }
    )*};
}
as_text!(HashOn: "cookie:sid", Affinity: "hash:client", Fraction: "25%");

impl fmt::Display for DropHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(service) = &self.service {
            return write!(f, "service {service}");
        }
        write!(f, "status {}", self.status.unwrap_or(503))?;
        self.file.iter().try_for_each(|file| write!(f, " with {file}"))
    }
}

impl fmt::Display for HeaderMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.is, &self.begins) {
            (Some(is), _) => write!(f, "header {} is not {is:?}", self.name),
            (None, Some(begins)) => write!(f, "header {} does not begin with {begins:?}", self.name),
            (None, None) => write!(f, "header {} is not there", self.name),
        }
    }
}

impl fmt::Display for Miss<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Miss::Host(wanted) => write!(f, "host is not {wanted}"),
            Miss::Path(wanted) => write!(f, "path is not below {wanted}"),
            Miss::Port(wanted) => write!(f, "port is not {wanted}"),
            Miss::Suffix(wanted) => write!(f, "path does not end in {wanted:?}"),
            Miss::Contains(wanted) => write!(f, "path does not contain {wanted:?}"),
            Miss::Method(wanted) => write!(f, "method is not {}", wanted.join(" or ")),
            Miss::Header(wanted) => write!(f, "{wanted}"),
            Miss::HashRange(HashRange { on, from, to }) => write!(f, "hash of {on} is not in {from} to {to}"),
        }
    }
}

/// Which clones, by number, are reserved for whom: of `clones` in all, for each share in order, the next ones. A share
/// is at least one clone; but unless all is given away, one is left for everybody, as long as there are two.
pub fn reserved(clones: u32, shares: &[Fraction]) -> Vec<std::ops::Range<u32>> {
    let given: u32 = shares.iter().map(|share| u32::from(share.0)).sum();
    let keep = u32::from(given < u32::from(Fraction::WHOLE.0)).min(clones.saturating_sub(1));
    let (mut next, last) = (0, clones - keep);
    let range = |share: &Fraction| {
        let wanted = (clones * u32::from(share.0) + 5_000) / 10_000;
        let count = if share.0 == 0 { 0 } else { wanted.max(1).min(last - next) };
        next += count;
        next - count..next
    };
    shares.iter().map(range).collect()
}

/// May stand in a token (RFC 9110 5.6.2).
pub(crate) fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
