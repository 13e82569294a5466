//! Profiles (TACC 2.2.4): what each person wants, as the edge finds it with each request and gives it to the service. In a declaration
//! `[profile.NAME]`, which says where they are kept, by what a person is known, and what may stand in one; a service says
//! `profile = "NAME"`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::{PROFILE_BYTES_MAX, PROFILE_FIELDS_MAX, PROFILE_ID_BYTES_MAX};
use crate::pipeline::PipelineSpec;
use crate::spec::{ServiceSpec, SpecError};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSpec {
    /// Where they are kept: of class `sql`.
    pub namespace: String,
    /// By what a person is known: `session`, `cookie:NAME`, `header:NAME`, or `address`.
    pub key: String,
    /// What may stand in one, by name.
    pub schema: BTreeMap<String, Field>,
}

/// By what a person is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key<'a> {
    /// By the id of the session that the edge keeps for the service.
    Session,
    Cookie(&'a str),
    /// Whoever stands before the edge sets it.
    Header(&'a str),
    /// Of the client.
    Address,
}

/// What one field may be: its type, or `{ type = "integer", min = 1, max = 100 }`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Field {
    pub kind: Kind,
    /// Of a number: itself. Of a text: characters. Of texts: how many.
    pub min: Option<i64>,
    pub max: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Boolean,
    Integer,
    Number,
    Text,
    /// A list of texts.
    Texts,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "\"boolean\", \"integer\", \"number\", \"text\", \"texts\", or { type = .., min = 1, max = 9 }"
)]
enum Written {
    Kind(Kind),
    Whole(Whole),
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    #[serde(rename = "type")]
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<i64>,
}

impl From<Written> for Field {
    fn from(written: Written) -> Self {
        match written {
            Written::Kind(kind) => Self { kind, min: None, max: None },
            Written::Whole(Whole { kind, min, max }) => Self { kind, min, max },
        }
    }
}

impl From<Field> for Written {
    fn from(Field { kind, min, max }: Field) -> Self {
        match (min, max) {
            (None, None) => Self::Kind(kind),
            _ => Self::Whole(Whole { kind, min, max }),
        }
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Boolean => "true or false",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Texts => "a list of texts",
        }
    }
}

impl Field {
    /// Why it may not be this, if it may not.
    fn mistake(&self, value: &Value) -> Option<String> {
        let size = match (self.kind, value) {
            (Kind::Boolean, Value::Bool(_)) => return None,
            (Kind::Integer, Value::Number(number)) if number.is_i64() => number.as_f64(),
            (Kind::Number, Value::Number(number)) => number.as_f64(),
            (Kind::Text, Value::String(text)) => Some(text.chars().count() as f64),
            (Kind::Texts, Value::Array(texts)) if texts.iter().all(Value::is_string) => Some(texts.len() as f64),
            _ => return Some(format!("must be {}", self.kind.name())),
        };
        let what = match self.kind {
            Kind::Text => " characters",
            Kind::Texts => " texts",
            Kind::Boolean | Kind::Integer | Kind::Number => "",
        };
        let size = size?;
        let low = self.min.filter(|min| size < *min as f64).map(|min| format!("must be at least {min}{what}"));
        low.or_else(|| self.max.filter(|max| size > *max as f64).map(|max| format!("must be at most {max}{what}")))
    }
}

impl ProfileSpec {
    /// None: it is written in no known way.
    pub fn key(&self) -> Option<Key<'_>> {
        match self.key.split_once(':') {
            None if self.key == "session" => Some(Key::Session),
            None if self.key == "address" => Some(Key::Address),
            Some(("cookie", name)) if is_token(name) => Some(Key::Cookie(name)),
            Some(("header", name)) if is_token(name) => Some(Key::Header(name)),
            _ => None,
        }
    }

    /// The cache in which nodes keep what they have read of the profiles of a namespace. No door leads there, as no namespace may be called so.
    pub fn kept_in(namespace: &str) -> String {
        format!("{namespace}/profiles")
    }

    /// Reads the stored form, if this version understands all of it.
    pub fn from_stored(value: Value) -> Option<Self> {
        serde_json::from_value(value).ok()
    }

    /// All mistakes that can be seen in it, and with it and the namespaces of class `sql`.
    pub fn mistakes(&self, databases: &BTreeSet<String>) -> Vec<(String, String)> {
        let mut wrong = Vec::new();
        if !databases.contains(&self.namespace) {
            wrong.push(("namespace".into(), format!("{:?} is no declared namespace of class sql", self.namespace)));
        }
        if self.key().is_none() {
            let why = format!(
                "{:?} is not \"session\", \"address\", \"cookie:NAME\" or \"header:NAME\", of which one says who asks",
                self.key
            );
            wrong.push(("key".into(), why));
        }
        if self.schema.is_empty() || self.schema.len() > PROFILE_FIELDS_MAX {
            let why = format!("has 1 to {PROFILE_FIELDS_MAX} fields, as {{ quality = \"integer\" }}");
            wrong.push(("schema".into(), why));
        }
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        for (name, field) in &self.schema {
            if !(1..=32).contains(&name.len()) || !name.bytes().all(is_plain) {
                wrong.push(("schema".into(), format!("{name:?} is no field: up to 32 letters, digits and _ are one")));
            }
            if field.min.zip(field.max).is_some_and(|(min, max)| min > max) {
                wrong.push(("schema".into(), format!("{name}: min is over max, so that nothing may stand there")));
            }
            if field.kind == Kind::Boolean && (field.min.is_some() || field.max.is_some()) {
                wrong.push(("schema".into(), format!("{name}: true and false have no min or max")));
            }
        }
        wrong
    }

    /// What is wrong with a profile, if something is. Fields that are not there are.
    pub fn flaw(&self, profile: &Map<String, Value>) -> Option<String> {
        for (name, value) in profile {
            let Some(field) = self.schema.get(name) else {
                let known: Vec<&str> = self.schema.keys().map(String::as_str).collect();
                return Some(format!("{name:?} is not in its schema, which has {}", known.join(", ")));
            };
            if let Some(why) = field.mistake(value) {
                return Some(format!("{name:?} {why}"));
            }
        }
        let bytes = serde_json::to_vec(profile).map_or(usize::MAX, |json| json.len());
        (bytes > PROFILE_BYTES_MAX)
            .then(|| format!("it has {bytes} bytes; {PROFILE_BYTES_MAX} are the most, as it goes with each request"))
    }

    /// What a person may be called.
    pub fn is_id(id: &str) -> bool {
        !id.is_empty() && id.len() <= PROFILE_ID_BYTES_MAX && id.bytes().all(|b| b.is_ascii_graphic())
    }
}

fn is_token(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.len() <= 64 && name.bytes().all(fits)
}

/// Services whose profiles are not there, or cannot be found.
pub fn wrong(name: &str, spec: &ServiceSpec, declared: &BTreeMap<String, ProfileSpec>) -> Option<SpecError> {
    let named = spec.profile.as_ref()?;
    let why = match (declared.get(named), &spec.http) {
        (_, None) => "goes with HTTP requests; add for example http = { path = \"/\" }".to_owned(),
        (None, _) => format!("{named:?} is not declared; write [profile.{named}]"),
        (Some(profile), _) if profile.key() == Some(Key::Session) && spec.session.is_none() => {
            format!("{named:?} is found by the session, and the service has none; add session = {{ .. }}")
        }
        (Some(_), _) if spec.cache.is_some() => {
            "is beside `cache`, which would keep one person's answers for others; leave one of both out".to_owned()
        }
        (Some(_), Some(_)) => return None,
    };
    Some(SpecError { key: format!("service.{name}.profile"), why })
}

/// Services whose answers pass pipelines that go by what is not in their profiles.
pub fn unknown_fields(
    name: &str,
    spec: &ServiceSpec,
    pipelines: &BTreeMap<String, PipelineSpec>,
    declared: &BTreeMap<String, ProfileSpec>,
) -> Vec<SpecError> {
    let of_partitions = spec.partitions.iter().map(|p| (format!("partition.{}.pipeline", p.name), &p.pipeline));
    let all = [("pipeline".to_owned(), &spec.pipeline)].into_iter().chain(of_partitions);
    let wrong = |(key, named): (String, &Option<String>)| {
        let named = named.as_ref()?;
        let mut fields = pipelines.get(named)?.fields();
        let why = match &spec.profile {
            None => {
                let field = fields.next()?;
                format!(
                    "a step of {named:?} goes by {field:?} of who asks, and the service has no profile; add profile = \"NAME\""
                )
            }
            Some(profile) => {
                let schema = &declared.get(profile)?.schema;
                let field = fields.find(|field| !schema.contains_key(*field))?;
                format!("a step of {named:?} goes by {field:?}, which is not in the schema of profile {profile:?}")
            }
        };
        Some(SpecError { key: format!("service.{name}.{key}"), why })
    };
    all.filter_map(wrong).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "namespace = \"people\"\nkey = \"cookie:reader\"\n\
        schema = { quality = { type = \"integer\", min = 1, max = 100 }, name = { type = \"text\", max = 5 }, grey = \"boolean\", \
        scale = \"number\", words = { type = \"texts\", max = 2 } }";

    #[test]
    fn what_is_declared_is_looked_at() {
        let read = |toml: &str| toml::from_str::<ProfileSpec>(toml).unwrap();
        let databases = || BTreeSet::from(["people".to_owned()]);
        let good = read(GOOD);
        assert_eq!(good.mistakes(&databases()), []);
        assert_eq!(good.key(), Some(Key::Cookie("reader")));
        assert_eq!(ProfileSpec::from_stored(serde_json::to_value(&good).unwrap()), Some(good.clone()));
        assert_eq!(read(&toml::to_string(&good).unwrap()), good, "as it is exported");
        for (from, to, key, why) in [
            ("\"people\"", "\"books\"", "namespace", "class sql"),
            ("cookie:reader", "cookie:", "key", "header:NAME"),
            ("cookie:reader", "token", "key", "session"),
            ("cookie:reader", "header:a b", "key", "address"),
            ("min = 1,", "min = 101,", "schema", "min is over max"),
            ("grey = \"boolean\"", "grey = { type = \"boolean\", max = 1 }", "schema", "no min"),
            ("grey =", "\"gr ey\" =", "schema", "no field"),
        ] {
            let found = read(&GOOD.replace(from, to)).mistakes(&databases());
            assert!(found.len() == 1 && found[0].0 == key && found[0].1.contains(why), "{to}: {found:?}");
        }
        toml::from_str::<ProfileSpec>(&GOOD.replace("\"boolean\"", "\"flag\"")).unwrap_err();
        for (key, is) in
            [("session", Key::Session), ("address", Key::Address), ("header:X-User", Key::Header("X-User"))]
        {
            assert_eq!(read(&GOOD.replace("cookie:reader", key)).key(), Some(is));
        }
    }

    #[test]
    fn a_profile_is_as_its_schema_says() {
        let spec = toml::from_str::<ProfileSpec>(GOOD).unwrap();
        let flaw = |json: &str| spec.flaw(&serde_json::from_str(json).unwrap());
        for good in [
            "{}",
            r#"{"quality": 1, "name": "ärger", "grey": true, "scale": 0.5, "words": ["a", "b"]}"#,
            r#"{"quality": 100, "scale": 7, "words": []}"#,
        ] {
            assert_eq!(flaw(good), None, "{good}");
        }
        for (bad, why) in [
            (r#"{"quality": 0}"#, "at least 1"),
            (r#"{"quality": 101}"#, "at most 100"),
            (r#"{"quality": 1.5}"#, "an integer"),
            (r#"{"quality": "1"}"#, "an integer"),
            (r#"{"quality": 18446744073709551615}"#, "an integer"),
            (r#"{"grey": 1}"#, "true or false"),
            (r#"{"name": "longer"}"#, "at most 5 characters"),
            (r#"{"words": ["a", 1]}"#, "list of texts"),
            (r#"{"words": ["a", "b", "c"]}"#, "at most 2 texts"),
            (r#"{"other": null}"#, "grey, name, quality"),
            (r#"{"grey": null}"#, "true or false"),
        ] {
            let said = flaw(bad).unwrap_or_default();
            assert!(said.contains(why), "{bad}: {said}");
        }
        let long = format!(r#"{{"words": ["{}"]}}"#, "x".repeat(PROFILE_BYTES_MAX));
        assert!(flaw(&long).unwrap().contains("each request"));
        assert!(
            ProfileSpec::is_id("a.b@c")
                && !ProfileSpec::is_id("")
                && !ProfileSpec::is_id("a b")
                && !ProfileSpec::is_id("ä")
        );
    }
}
