//! How many clones a service has: a number, or a range within which the manager chooses. In a declaration `clones = 3`, or
//! `clones = { min = 1, max = 8 }`.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    pub min: u32,
    pub max: u32,
}

impl Size {
    /// The manager has nothing to choose.
    pub fn is_fixed(self) -> bool {
        self.min == self.max
    }

    pub fn clamp(self, clones: u32) -> u32 {
        clones.max(self.min).min(self.max)
    }
}

impl From<u32> for Size {
    fn from(clones: u32) -> Self {
        Self { min: clones, max: clones }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_fixed() { write!(f, "{}", self.min) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.is_fixed() {
            return to.serialize_u32(self.min);
        }
        let mut range = to.serialize_struct("Size", 2)?;
        range.serialize_field("min", &self.min)?;
        range.serialize_field("max", &self.max)?;
        range.end()
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of clones, or a range like { min = 1, max = 8 }")
    }

    fn visit_u64<E: de::Error>(self, clones: u64) -> Result<Size, E> {
        let clones = u32::try_from(clones).map_err(|_| E::custom(format!("{clones} clones are too many")))?;
        Ok(clones.into())
    }

    fn visit_i64<E: de::Error>(self, clones: i64) -> Result<Size, E> {
        let clones = u64::try_from(clones).map_err(|_| {
            E::custom(format!(
                "{clones} is no number of clones; write a number like 3, or a range like {{ min = 1, max = 8 }}"
            ))
        })?;
        self.visit_u64(clones)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Size, A::Error> {
        let (mut min, mut max) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "min" => min = Some(map.next_value()?),
                "max" => max = Some(map.next_value()?),
                other => return Err(de::Error::unknown_field(other, &["min", "max"])),
            }
        }
        let min = min.unwrap_or(1);
        let max = max.ok_or_else(|| de::Error::custom("a range of clones needs a max, like { min = 1, max = 8 }"))?;
        Ok(Size { min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Serialize, serde::Deserialize)]
    struct Holder {
        clones: Size,
    }

    fn read(text: &str) -> Result<Size, String> {
        toml::from_str::<Holder>(&format!("clones = {text}")).map(|h| h.clones).map_err(|e| e.message().to_owned())
    }

    #[test]
    fn a_number_and_a_range_read_and_write_the_same() {
        for (text, size) in [("3", Size::from(3)), ("{ min = 1, max = 8 }", Size { min: 1, max: 8 })] {
            assert_eq!(read(text), Ok(size), "{text}");
            let json = serde_json::to_string(&size).unwrap();
            assert_eq!(serde_json::from_str::<Size>(&json).unwrap(), size, "{json}");
        }
        assert_eq!(read("{ max = 4 }"), Ok(Size { min: 1, max: 4 }));
    }

    #[test]
    fn what_is_no_size_says_what_would_be() {
        for (text, part) in [
            ("-1", "-1 is no number of clones"),
            ("5000000000", "too many"),
            ("\"3\"", "{ min = 1, max = 8 }"),
            ("{ min = 2 }", "needs a max"),
            ("{ most = 2 }", "unknown field `most`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
