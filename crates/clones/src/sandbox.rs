//! What of its node's machine a service's clones reach: nothing but the system's files and their own, what else is declared, or
//! all that their user reaches. In a declaration `sandbox = { read = ["/srv/models"], write = ["/var/lib/shop"] }` or
//! `sandbox = "none"`.

use std::fmt;

use base::process::Open;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::limits::{PATH_BYTES_MAX, PATHS_OPEN_MAX};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sandbox {
    None,
    On(Files),
}

/// Files and folders beside those that a clone has anyway.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Files {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
}

pub(crate) const SANDBOX_KEYS: [&str; 2] = ["read", "write"];

const NONE: &str = "none";
const WANTED: &str =
    "\"none\", or what may be reached besides, like { read = [\"/srv/models\"], write = [\"/var/lib/shop\"] }";

impl Default for Sandbox {
    fn default() -> Self {
        Self::On(Files::default())
    }
}

impl Sandbox {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// As a host is told: none, no sandbox.
    pub(crate) fn open(&self) -> Option<Open> {
        match self {
            Self::None => None,
            Self::On(Files { read, write }) => Some(Open { read: read.clone(), write: write.clone() }),
        }
    }

    /// Keys and mistakes.
    pub(crate) fn errors(&self) -> Vec<(&'static str, String)> {
        let Self::On(Files { read, write }) = self else { return Vec::new() };
        [("sandbox.read", read), ("sandbox.write", write)]
            .into_iter()
            .filter_map(|(key, paths)| {
                let many = || format!("{} paths are over the limit of {PATHS_OPEN_MAX}", paths.len());
                let long = paths.len() > PATHS_OPEN_MAX;
                Some((key, paths.iter().find_map(|path| path_error(path)).or_else(|| long.then(many))?))
            })
            .collect()
    }
}

fn path_error(path: &str) -> Option<String> {
    if path.len() > PATH_BYTES_MAX || path.contains('\0') {
        return Some(format!("a path has no zero byte and at most {PATH_BYTES_MAX} bytes"));
    }
    let is_whole = path.starts_with('/') || path.starts_with("~/");
    let fits = is_whole && !path.split('/').any(|part| part == "..");
    (!fits).then(|| format!("{path:?} is not a whole path; write it from / or ~/ on, without .."))
}

impl Serialize for Sandbox {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => to.serialize_str(NONE),
            Self::On(files) => files.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Sandbox {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Sandbox;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WANTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Sandbox, E> {
        if text == NONE { Ok(Sandbox::None) } else { Err(E::custom(format!("{text:?} is no sandbox; write {WANTED}"))) }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Sandbox, A::Error> {
        Files::deserialize(MapAccessDeserializer::new(map)).map(Sandbox::On)
    }
}
