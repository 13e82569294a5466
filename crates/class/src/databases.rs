//! Databases of a namespace: what `SELECT n` opens at the Redis door, whatever the class. Each is another namespace, of any class that
//! has Redis commands, and 0 is the namespace itself. Whoever may use the namespace may use what it names: the operator's
//! declaration grants that, so the other one's token is not asked for.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::limits::DATABASE_MAX;
use crate::{Key, Line, Wrong};

/// The level from which databases may be declared (`base/src/level.rs`).
pub const LEVEL: u32 = 13;

/// Numbers from 1 on, and the namespaces that they are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Databases(BTreeMap<u32, String>);

impl Databases {
    pub const KEY: Key = Key {
        name: "databases",
        example: "{ 1 = \"jobs-results\" }",
        about: "Namespaces that SELECT opens for its Redis clients, by number, 1 to 63: without their tokens. Without it: 0 alone.",
    };

    /// # Errors
    /// A number or a name has the wrong form.
    pub fn read(keys: &Map<String, Value>) -> Result<Self, Wrong> {
        let wrong = |why: String| (Self::KEY.name.to_owned(), why);
        let Some(value) = keys.get(Self::KEY.name) else { return Ok(Self::default()) };
        let example = || wrong(format!("write numbers and namespaces, like databases = {}", Self::KEY.example));
        let mut all = BTreeMap::new();
        for (number, name) in value.as_object().ok_or_else(example)? {
            let name = name.as_str().ok_or_else(example)?;
            let place = number.parse::<u32>().ok().filter(|place| place.to_string() == *number);
            match place {
                Some(0) => return Err(wrong("0 is the namespace itself: write numbers from 1 on".to_owned())),
                Some(place @ 1..=DATABASE_MAX) => all.insert(place, name.to_owned()),
                _ => return Err(wrong(format!("{number:?} is not a number from 1 to {DATABASE_MAX}"))),
            };
        }
        Ok(Self(all))
    }

    /// As it is written, if any is declared.
    pub fn write(&self) -> Option<(&'static str, Value)> {
        let all = self.0.iter().map(|(number, name)| (number.to_string(), name.clone().into()));
        (!self.0.is_empty()).then(|| (Self::KEY.name, Value::Object(all.collect())))
    }

    /// # Errors
    /// A namespace stands twice: what is told of its keys would have two numbers.
    pub fn validate(&self) -> Result<(), Wrong> {
        let twice = self.0.iter().find(|(number, name)| self.0.range(..*number).any(|(_, other)| other == *name));
        twice.map_or(Ok(()), |(number, name)| {
            Err((Self::KEY.name.into(), format!("{name:?} stands twice, again at {number}")))
        })
    }

    /// What a namespace that declares some needs of programs.
    pub fn newer_key(&self) -> Option<(&'static str, u32)> {
        (!self.0.is_empty()).then_some((Self::KEY.name, LEVEL))
    }

    /// The namespace of this number, which is not 0.
    pub fn get(&self, number: u32) -> Option<&str> {
        self.0.get(&number).map(String::as_str)
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        self.0.iter().map(|(number, name)| (*number, name.as_str()))
    }

    /// For people.
    pub fn lines(&self) -> impl Iterator<Item = Line> {
        self.iter().map(|(number, name)| Line::new(&format!("database {number}"), format!("namespace {name}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<Databases, String> {
        let keys = Map::from_iter([("databases".to_owned(), value)]);
        let read = Databases::read(&keys).and_then(|all| all.validate().map(|()| all));
        read.map_err(|(key, why)| format!("{key}: {why}"))
    }

    #[test]
    fn numbers_and_namespaces_are_read_and_mistakes_are_named() {
        let two = read(json!({"1": "results", "63": "pages"})).unwrap();
        assert_eq!((two.get(1), two.get(2), two.newer_key()), (Some("results"), None, Some(("databases", 13))));
        assert_eq!(two.write(), Some(("databases", json!({"1": "results", "63": "pages"}))));
        assert_eq!(Databases::read(&Map::new()).map(|none| (none.write(), none.newer_key())), Ok((None, None)));
        for (value, says) in [
            (json!(["a"]), "like databases = { 1 ="),
            (json!({"1": 2}), "like databases = { 1 ="),
            (json!({"0": "a"}), "0 is the namespace itself"),
            (json!({"01": "a"}), "\"01\" is not a number from 1 to 63"),
            (json!({"64": "a"}), "\"64\" is not a number"),
            (json!({"one": "a"}), "\"one\" is not a number"),
            (json!({"1": "a", "3": "a"}), "\"a\" stands twice, again at 3"),
        ] {
            let wrong = read(value.clone()).unwrap_err();
            assert!(wrong.contains(says), "{value}: {wrong}");
        }
    }
}
