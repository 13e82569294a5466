//! What an address says: parts of its path, and what stands behind its `?`. Keys are bytes and need not be text, so
//! percent-encoding is undone here without making text of what is none (axum replaces such bytes, or refuses them). What
//! cannot be read is a [`Problem`] like any other.

use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use bytes::Bytes;
use percent_encoding::percent_decode;
use serde::de::value::{Error, MapAccessDeserializer};
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

use super::Problem;

/// Parts of the path that are text.
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        read.map(|axum::extract::Path(read)| Self(read)).map_err(|e| Problem::new(e.status(), e.body_text()))
    }
}

/// `/v1/ns/NAMESPACE/keys/KEY` and its like.
pub struct Keyed {
    pub ns: String,
    pub key: Bytes,
}

impl<S: Sync> FromRequestParts<S> for Keyed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut words = parts.uri.path().splitn(6, '/').skip(3);
        let (Some(ns), Some(_), Some(key)) = (words.next(), words.next(), words.next()) else {
            unreachable!("no route with a key has the path {}", parts.uri.path())
        };
        let ns = percent_decode(ns.as_bytes()).decode_utf8();
        let ns = ns.map_err(|_| Problem::wrong("the name of a namespace is UTF-8 text"))?.into_owned();
        Ok(Self { ns, key: percent_decode(key.as_bytes()).collect() })
    }
}

/// What stands behind the `?`, as a form would send it. Fields of type [`Bytes`] are exactly what was encoded.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        read(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

pub(super) fn read<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let pairs = Pairs { rest: query.split('&').filter(|pair| !pair.is_empty()), name: String::new(), value: "" };
    T::deserialize(MapAccessDeserializer::new(pairs))
        .map_err(|error: Error| Problem::wrong(format!("behind `?`: {error}")))
}

fn decoded(text: &str) -> Vec<u8> {
    percent_decode(text.replace('+', " ").as_bytes()).collect()
}

/// Names and their values; what is wrong with a value is said with its name.
struct Pairs<'a, I> {
    rest: I,
    name: String,
    value: &'a str,
}

impl<'de, 'a, I: Iterator<Item = &'a str>> MapAccess<'de> for Pairs<'a, I> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(pair) = self.rest.next() else { return Ok(None) };
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (self.name, self.value) = (String::from_utf8_lossy(&decoded(name)).into_owned(), value);
        seed.deserialize(self.name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = seed.deserialize(Given(decoded(self.value)));
        value.map_err(|error: Error| Error::custom(format!("{}: {error}", self.name)))
    }
}

struct Given(Vec<u8>);

impl Given {
    fn text(self) -> Result<String, Error> {
        String::from_utf8(self.0).map_err(|_| Error::custom("it is not UTF-8 text"))
    }

    fn parse<T: FromStr>(self, wanted: &str) -> Result<T, Error> {
        let text = self.text()?;
        text.parse().map_err(|_| Error::custom(format!("{text:?} is not {wanted}")))
    }
}

impl<'de> Deserializer<'de> for Given {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_byte_buf(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.parse("true or false")?)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u32(self.parse(&format!("a number from 0 to {}", u32::MAX))?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u64(self.parse(&format!("a number from 0 to {}", u64::MAX))?)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.text()?.into_deserializer().deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    // Numbers of other kinds, and all else, are not asked for behind a `?`.
    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char str string bytes unit unit_struct newtype_struct seq tuple
        tuple_struct map struct identifier
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, PartialEq, Debug, Default)]
    #[serde(deny_unknown_fields, default)]
    struct Asked {
        key: Bytes,
        text: Option<String>,
        count: Option<u64>,
        small: u32,
        on: bool,
        order: Option<Order>,
        at: Option<std::net::IpAddr>,
    }

    #[derive(Deserialize, PartialEq, Debug)]
    #[serde(rename_all = "lowercase")]
    enum Order {
        Up,
        Down,
    }

    #[test]
    fn bytes_are_what_was_encoded_and_all_else_is_text() {
        let asked = |query| read::<Asked>(query).map_err(|problem| problem.error);
        let key = |key: &'static [u8]| Ok(Asked { key: Bytes::from_static(key), ..Asked::default() });
        assert_eq!(asked(""), key(b""));
        assert_eq!(asked("&key=%ff%FE%00+%2B%26&"), key(b"\xff\xfe\0 +&"));
        assert_eq!(asked("key=%zz%"), key(b"%zz%"), "what encodes nothing is itself");
        let all = Asked {
            key: "é".into(),
            text: Some("a=b".into()),
            count: Some(u64::MAX),
            small: 7,
            on: true,
            ..Asked::default()
        };
        assert_eq!(asked("k%65y=%C3%A9&text=a=b&count=18446744073709551615&small=7&on=true"), Ok(all));
        for (query, why) in [
            ("text=%ff", "behind `?`: text: it is not UTF-8 text"),
            ("count=-1", "behind `?`: count: \"-1\" is not a number from 0 to 18446744073709551615"),
            ("on=yes", "behind `?`: on: \"yes\" is not true or false"),
            ("on=true&on=true", "behind `?`: duplicate field `on`"),
            ("order=x", "behind `?`: order: unknown variant `x`, expected `up` or `down`"),
            ("at=x", "behind `?`: at: invalid IP address syntax"),
        ] {
            assert_eq!(asked(query), Err(why.to_owned()));
        }
        assert!(asked("nosuch=1").is_err_and(|why| why.contains("unknown field `nosuch`, expected one of `key`")));
        assert_eq!(asked("order=down").map(|asked| asked.order), Ok(Some(Order::Down)));
    }
}
