//! What a namespace may take of its nodes, whatever its class: keys that every class has, read and checked in one place. Doors and
//! machines keep to them; the class only hands them on ([`crate::Spec::quota`]).

use serde_json::{Map, Value};

use crate::limits::CONNECTIONS_MAX_MAX;
use crate::{Key, Wrong, is_number};

/// Bounds of one namespace. None: it has none of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Quota {
    /// Connections of the Redis door that have opened it, on each node.
    pub connections_max: Option<u32>,
}

impl Quota {
    pub const CONNECTIONS_MAX: Key = Key {
        name: "connections_max",
        example: "500",
        about: "Redis clients that may have it open at a time, on each node: 1 to 16384. Without it: as many as there is room for.",
    };

    /// # Errors
    /// The first value that has the wrong form.
    pub fn read(keys: &Map<String, Value>) -> Result<Self, Wrong> {
        let number = |key: &Key| keys.get(key.name).map(|value| is_number(key.name, value)).transpose();
        Ok(Self { connections_max: number(&Self::CONNECTIONS_MAX)? })
    }

    /// The keys that are declared.
    pub fn write(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let Self { connections_max } = self;
        connections_max.map(|most| (Self::CONNECTIONS_MAX.name, most.into())).into_iter()
    }

    /// # Errors
    /// The first value that is out of bounds.
    pub fn validate(&self) -> Result<(), Wrong> {
        match self.connections_max {
            Some(most) if !(1..=CONNECTIONS_MAX_MAX).contains(&most) => {
                let why = format!("{most} is not between 1 and {CONNECTIONS_MAX_MAX}; leave it out for no limit");
                Err((Self::CONNECTIONS_MAX.name.to_owned(), why))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_that_make_no_sense_are_refused_with_words() {
        for (value, says) in [
            (json!(1), None),
            (json!(16384), None),
            (json!(0), Some("0 is not between 1 and 16384; leave it out for no limit")),
            (json!(16385), Some("16385 is not between 1 and 16384; leave it out for no limit")),
            (json!(-1), Some("write a whole number, like connections_max = 3")),
            (json!(1.5), Some("write a whole number, like connections_max = 3")),
            (json!(u64::MAX), Some("write a whole number, like connections_max = 3")),
            (json!("many"), Some("write a whole number, like connections_max = 3")),
        ] {
            let keys = Map::from_iter([("connections_max".to_owned(), value.clone())]);
            let refused = Quota::read(&keys).and_then(|quota| quota.validate()).err();
            assert_eq!(refused, says.map(|why| ("connections_max".to_owned(), why.to_owned())), "{value}");
        }
    }
}
