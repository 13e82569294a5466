//! How far a `linear` namespace is: a version for each of its shards.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use state::linear::Reply;

/// In the order of the shards. As text `1042`, with several shards `12.40.7`; in JSON a number, or that text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versions(pub Vec<u64>);

impl Versions {
    /// From the reply of the function `revision`.
    pub fn read(reply: &Reply) -> Self {
        let one = |reply: &Reply| if let Reply::Int(n) = reply { *n as u64 } else { 0 };
        match reply {
            Reply::List(each) => Self(each.iter().map(one).collect()),
            only => Self(vec![one(only)]),
        }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, version) in self.0.iter().enumerate() {
            write!(f, "{}{version}", if at > 0 { "." } else { "" })?;
        }
        Ok(())
    }
}

impl FromStr for Versions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let each = text.split('.').map(str::parse).collect::<Result<_, _>>();
        each.map(Self).map_err(|_| format!("{text:?} is not a version: a number, or one for each shard (12.40.7)"))
    }
}

impl Serialize for Versions {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0[..] {
            [only] => to.serialize_u64(only),
            _ => to.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Versions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_a_number_and_several_are_text() {
        for (text, json, each) in [("1042", "1042", &[1042][..]), ("12.40.0", "\"12.40.0\"", &[12, 40, 0])] {
            let versions: Versions = text.parse().unwrap();
            assert_eq!(versions.0, each);
            assert_eq!((versions.to_string(), serde_json::to_string(&versions).unwrap()), (text.into(), json.into()));
        }
        for wrong in ["", "1.", "a", "-1", "1,2", "18446744073709551616"] {
            assert!(wrong.parse::<Versions>().is_err(), "{wrong:?}");
        }
    }
}
