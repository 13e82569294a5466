//! How a declared namespace is read and written: the key `class`, and the keys of that class, in one table. A class that does not exist
//! is an error that lists the known ones; so is a key that the class does not have, and it says which class has it.

use std::fmt;

use class::Wrong;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{Class, NamespaceSpec};

/// The table of a namespace, as it was written.
pub type Written = Map<String, Value>;

/// The key that every class has.
const CLASS: &str = "class";

impl NamespaceSpec {
    /// A `session` namespace with the default lease of 30 minutes.
    pub fn new_session() -> Self {
        NamespaceSpec::Session(session::Spec::default())
    }

    /// A `linear` namespace of groups with three members.
    pub fn new_linear() -> Self {
        NamespaceSpec::Linear(linear::Spec::default())
    }

    /// A `soft` namespace with two copies.
    pub fn new_soft() -> Self {
        NamespaceSpec::Soft(soft::Spec::default())
    }

    /// Reads what a person wrote.
    ///
    /// # Errors
    /// The first key that is wrong, and why.
    pub fn read(written: &Written) -> Result<Self, Wrong> {
        let class = class_of(written)?;
        let is_known = |key: &str| key == CLASS || class.keys().iter().any(|known| known.name == key);
        if let Some(key) = written.keys().find(|key| !is_known(key)) {
            return Err((key.clone(), unknown(class, key)));
        }
        Self::read_as(class, written)
    }

    /// Reads what a program has stored. Keys that only a newer one knows are skipped.
    pub fn from_stored(mut stored: Written) -> Option<Self> {
        let class = class_of(&stored).ok()?;
        stored.retain(|key, _| class.keys().iter().any(|known| known.name == key));
        Self::read_as(class, &stored).ok()
    }
}

fn class_of(written: &Written) -> Result<Class, Wrong> {
    let known = || Class::ALL.iter().map(|class| format!("\"{class}\"")).collect::<Vec<_>>().join(", ");
    let wrong = |why: String| (CLASS.to_owned(), why);
    let value = written.get(CLASS);
    let value = value.ok_or_else(|| wrong(format!("it is missing; a namespace has a class, one of: {}", known())))?;
    let name = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Class::named(&name).ok_or_else(|| wrong(format!("class \"{name}\" is not known; known are: {}", known())))
}

/// Why a class does not take a key.
fn unknown(class: Class, key: &str) -> String {
    if let Some(instead) = class.foreign(key) {
        return instead.to_owned();
    }
    let has = |other: &&Class| other.keys().iter().any(|known| known.name == key);
    match Class::ALL.iter().find(has) {
        Some(other) => format!("is of class {other}, and this is of class {class}; leave it out"),
        None => {
            let known: Vec<&str> = [CLASS].into_iter().chain(class.keys().iter().map(|known| known.name)).collect();
            format!("is no key of class {class}; there are: {}", known.join(", "))
        }
    }
}

impl Serialize for NamespaceSpec {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let keys = self.keys();
        let mut map = to.serialize_map(Some(keys.len() + 1))?;
        map.serialize_entry(CLASS, self.class().name())?;
        for (key, value) in keys {
            map.serialize_entry(key, &value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for NamespaceSpec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(from)?;
        NamespaceSpec::read(&written).map_err(|(key, why)| serde::de::Error::custom(format!("{key}: {why}")))
    }
}

impl Class {
    /// The class of this name, if this program has it.
    pub fn named(name: &str) -> Option<Class> {
        Self::ALL.iter().copied().find(|class| class.name() == name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use linear::Durability;
    use session::Merges;

    use super::*;

    fn read(text: &str) -> Result<NamespaceSpec, String> {
        serde_json::from_str::<NamespaceSpec>(text).map_err(|e| e.to_string())
    }

    #[test]
    fn a_declaration_is_read_with_defaults_and_written_back() {
        assert_eq!(read(r#"{"class":"session"}"#), Ok(NamespaceSpec::new_session()));
        let spec = read(r#"{"class":"session","lease":"2h"}"#).unwrap();
        assert_eq!(spec.session().unwrap().lease_ms, 7_200_000);
        for same in [
            r#"{"class":"session","lease":"2h"}"#,
            r#"{"class":"session","lease":"30m","timeout":"250ms"}"#,
            r#"{"class":"session","lease":"30m","merge":"fields"}"#,
            r#"{"class":"session","lease":"30m","connections_max":5}"#,
            r#"{"class":"linear","replicas":5}"#,
            r#"{"class":"linear","shards":"auto","replicas":5}"#,
            r#"{"class":"linear","functions":"bank","connections_max":5}"#,
            r#"{"class":"linear","functions":"bank"}"#,
            r#"{"class":"linear","databases":{"1":"results","2":"pages"},"keys_max":5}"#,
            r#"{"class":"soft","databases":{"1":"results"}}"#,
            r#"{"class":"cache"}"#,
            r#"{"class":"sql"}"#,
            r#"{"class":"sql","replicas":5,"size_max":"16MiB","rate_max":100}"#,
            r#"{"class":"cache","size_max":"1GiB","ttl":"1h"}"#,
            r#"{"class":"soft"}"#,
            r#"{"class":"soft","copies":1,"gossip":"1s","size_max":"1GiB"}"#,
            r#"{"class":"linear","shards":4,"replicas":3,"durability":"memory","weak":["set.add"]}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(same).unwrap()).unwrap(), same);
        }
        assert_eq!(read(r#"{"class":"session","merge":"fields"}"#).unwrap().session().unwrap().merge, Merges::Fields);
        let memory = read(r#"{"class":"linear","durability":"memory","weak":["set.add"]}"#).unwrap();
        assert_eq!(memory.linear().unwrap().durability(), Durability::Memory);
        assert_eq!(memory.validate(), Ok(()));
    }

    #[test]
    fn mistakes_are_named_with_their_key_and_what_would_be_right() {
        for (text, says) in [
            (
                r#"{"class":"liner"}"#,
                "class \"liner\" is not known; known are: \"session\", \"linear\", \"cache\", \"soft\"",
            ),
            (r#"{"lease":"1h"}"#, "class: it is missing"),
            (r#"{"class":"session","merge":"field"}"#, "\"field\" is not known; known are \"none\""),
            (r#"{"class":"linear","durability":"tape"}"#, "\"tape\" is not known; known are \"disk\""),
            (r#"{"class":"session","lease":"soon"}"#, "like \"30m\""),
            (r#"{"class":"session","lease":3600}"#, "lease = \"1h\""),
            (r#"{"class":"session","leese":"2h"}"#, "leese: is no key of class session; there are: class, lease"),
            (r#"{"class":"linear","shards":"two"}"#, "shards = 3"),
            (r#"{"class":"linear","weak":"set.add"}"#, "weak = [\"set.add\"]"),
            (r#"{"class":"linear","lease":"1s"}"#, "give a key an end with EX"),
            (r#"{"class":"sql","shards":2}"#, "use all tables together"),
            (r#"{"class":"cache","lease":"1h"}"#, "so it has no lease; ttl = \"30m\""),
            (r#"{"class":"session","size_max":"1GiB"}"#, "size_max: is of class cache, and this is of class session"),
            (r#"{"class":"linear","timeout":"100ms"}"#, "timeout: is of class session, and this is of class linear"),
        ] {
            let wrong = read(text).unwrap_err();
            assert!(wrong.contains(says), "{text}: {wrong}");
        }
        for key in ["shards", "replicas", "durability", "weak", "functions"] {
            let wrong = read(&format!(r#"{{"class":"session","{key}":1}}"#)).unwrap_err();
            assert!(wrong.contains(&format!("{key}: is of class linear, and this is of class session")), "{wrong}");
        }
        assert!(NamespaceSpec::new_linear().may_follow(&NamespaceSpec::new_session(), 0).is_err());
    }

    #[test]
    fn what_a_newer_program_stored_is_read_without_what_is_new() {
        let stored = serde_json::from_str(r#"{"class":"linear","replicas":5,"colour":"red"}"#).unwrap();
        let five = linear::Spec { replicas: Some(5), ..linear::Spec::default() };
        assert_eq!(NamespaceSpec::from_stored(stored), Some(NamespaceSpec::Linear(five)));
        assert_eq!(NamespaceSpec::from_stored(serde_json::from_str(r#"{"class":"later"}"#).unwrap()), None);
    }

    #[test]
    fn names_numbers_and_figures_are_given_once() {
        let mut names: Vec<&str> = Class::ALL.iter().map(|class| class.name()).collect();
        let mut numbers: Vec<_> = Class::ALL.iter().map(|class| class.number()).collect();
        names.sort_unstable();
        names.dedup();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((names.len(), numbers.len()), (Class::ALL.len(), Class::ALL.len()));
        for class in Class::ALL {
            let figures = class.figures();
            assert!(figures.is_sorted_by(|a, b| a.name < b.name), "{class}: a map is made of them without sorting");
            assert!(figures.iter().all(|figure| figure.name.starts_with(class.name()) && figure.about.ends_with('.')));
        }
    }
}
