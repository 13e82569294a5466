//! How a clone is asked whether it is well: a path, and where that is not enough the host that is asked for and the statuses that are
//! well. In a declaration `health = "/health"`, or `health = { path = "/health", host = "shop.example", status = [200, 204] }`.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::spec::{SpecError, host_error, path_error};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    pub path: String,
    /// What the question has in `Host`; without one the host of the service's route, if that is one name.
    pub host: Option<String>,
    /// What is well; none here: 200 to 399.
    pub status: Vec<u16>,
}

impl From<&str> for Health {
    fn from(path: &str) -> Self {
        Self { path: path.into(), host: None, status: Vec::new() }
    }
}

impl Health {
    /// More than a path, which is all that programs before [`crate::LEVEL`] read.
    pub fn is_newer(&self) -> bool {
        self.host.is_some() || !self.status.is_empty()
    }

    pub(crate) fn mistakes(&self) -> Vec<SpecError> {
        let mut wrong = Vec::new();
        let mut is_wrong = |key: &str, why| wrong.push(SpecError { key: key.into(), why });
        if let Some(why) = path_error(&self.path) {
            is_wrong(if self.is_newer() { "health.path" } else { "health" }, why);
        }
        if let Some(host) = &self.host {
            let has_port = |(_, port): &(&str, &str)| port.parse::<u16>().is_ok();
            let name = host.rsplit_once(':').filter(has_port).map_or(host.as_str(), |(name, _)| name);
            if name.contains('*') {
                is_wrong("health.host", format!("{host:?} is a pattern; write one name that the program takes"));
            } else if let Some(why) = host_error(name) {
                is_wrong("health.host", why);
            }
        }
        if let Some(status) = self.status.iter().find(|status| !(200..600).contains(*status)) {
            is_wrong("health.status", format!("{status} ends no request; write 200 to 599, like status = [200, 204]"));
        }
        wrong
    }
}

impl Serialize for Health {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if !self.is_newer() {
            return to.serialize_str(&self.path);
        }
        let mut table = to.serialize_struct("Health", 3)?;
        table.serialize_field("path", &self.path)?;
        if let Some(host) = &self.host {
            table.serialize_field("host", host)?;
        }
        if !self.status.is_empty() {
            table.serialize_field("status", &self.status)?;
        }
        table.end()
    }
}

impl<'de> Deserialize<'de> for Health {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Health;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a path like \"/health\", or a table like { path = \"/health\", host = \"shop.example\", status = [200] }",
        )
    }

    fn visit_str<E: de::Error>(self, path: &str) -> Result<Health, E> {
        Ok(path.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Health, A::Error> {
        let (mut path, mut host, mut status) = (None, None, Statuses::default());
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "path" => path = Some(map.next_value()?),
                "host" => host = Some(map.next_value()?),
                "status" => status = map.next_value()?,
                other => return Err(de::Error::unknown_field(other, &["path", "host", "status"])),
            }
        }
        let path = path.ok_or_else(|| de::Error::custom("health needs a path, like { path = \"/health\" }"))?;
        Ok(Health { path, host, status: status.0 })
    }
}

/// One number, or a list.
#[derive(Default)]
struct Statuses(Vec<u16>);

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Statuses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a status like 200, or a list like [200, 204]")
            }

            fn visit_u64<E: de::Error>(self, status: u64) -> Result<Statuses, E> {
                // What does not fit is no status either way.
                Ok(Statuses(vec![u16::try_from(status).unwrap_or(u16::MAX)]))
            }

            fn visit_i64<E: de::Error>(self, status: i64) -> Result<Statuses, E> {
                self.visit_u64(u64::try_from(status).unwrap_or(0))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Statuses, A::Error> {
                let mut all = Vec::new();
                while let Some(status) = seq.next_element()? {
                    all.push(status);
                }
                Ok(Statuses(all))
            }
        }

        from.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Holder {
        health: Health,
    }

    fn read(text: &str) -> Result<Health, String> {
        toml::from_str::<Holder>(&format!("health = {text}")).map(|h| h.health).map_err(|e| e.message().to_owned())
    }

    #[test]
    fn a_path_and_a_table_read_and_write_the_same() {
        let host = Some("shop.example:8000".to_owned());
        for (text, health) in [
            ("\"/up\"", Health::from("/up")),
            ("{ path = \"/up\" }", Health::from("/up")),
            ("{ path = \"/up\", status = 204 }", Health { status: vec![204], ..Health::from("/up") }),
            (
                "{ path = \"/up\", host = \"shop.example:8000\", status = [200, 401] }",
                Health { host, status: vec![200, 401], ..Health::from("/up") },
            ),
        ] {
            assert_eq!(read(text).as_ref(), Ok(&health), "{text}");
            assert_eq!(health.mistakes(), [], "{text}");
            let json = serde_json::to_string(&health).unwrap();
            assert_eq!(serde_json::from_str::<Health>(&json).unwrap(), health, "{json}");
            let holder = Holder { health };
            assert_eq!(toml::from_str::<Holder>(&toml::to_string(&holder).unwrap()).unwrap(), holder);
        }
        assert_eq!(serde_json::to_string(&Health::from("/up")).unwrap(), "\"/up\"", "as older programs read it");
    }

    #[test]
    fn what_is_wrong_says_what_would_be_right() {
        for (text, part) in [
            ("3", "a path like"),
            ("{ host = \"a\" }", "needs a path"),
            ("{ path = \"/\", code = 2 }", "unknown field `code`"),
            ("{ path = \"/\", status = \"2xx\" }", "a list like"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (text, key, part) in [
            ("\"up\"", "health", "begin with /"),
            ("{ path = \"up\", status = 200 }", "health.path", "begin with /"),
            ("{ path = \"/\", host = \"*.shop.example\" }", "health.host", "one name"),
            ("{ path = \"/\", host = \"http://a\" }", "health.host", "without scheme"),
            ("{ path = \"/\", host = \"a\\r\\nb\" }", "health.host", "without scheme"),
            ("{ path = \"/\", status = 100 }", "health.status", "200 to 599"),
            ("{ path = \"/\", status = [200, 600] }", "health.status", "200 to 599"),
            ("{ path = \"/\", status = 70000 }", "health.status", "200 to 599"),
        ] {
            let errors = read(text).unwrap().mistakes();
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert_eq!(errors[0].key, key, "{text}");
            assert!(errors[0].why.contains(part), "{}", errors[0]);
        }
    }
}
