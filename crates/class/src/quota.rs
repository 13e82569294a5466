//! What a namespace may take of its nodes, whatever its class: keys that every class has, read and checked in one place. Doors and
//! machines keep to them; the class only hands them on ([`crate::Spec::quota`]).
//!
//! `bytes_max` and `keys_max` are of the whole namespace, and each part of it (a shard, a brick) keeps to its share, as it knows of
//! no other one. Keys lie evenly, so the whole is about what was declared; by chance, or by keys with one tag, a part is full before
//! the others. Shares are rounded up.

use base::{Because, Refused};
use serde_json::{Map, Value};

use crate::limits::{BYTES_MAX_MAX, BYTES_MAX_MIN, CONNECTIONS_MAX_MAX, RATE_MAX_MAX};
use crate::{Key, Wrong, is_number, size};

/// The level from which `bytes_max` and `keys_max` are kept to (`base/src/level.rs`).
pub const LEVEL: u32 = 4;

/// Bounds of one namespace. None: it has none of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Quota {
    /// Connections of the Redis door that have opened it, on each node.
    pub connections_max: Option<u32>,
    /// Of keys and values, each once, however many copies there are.
    pub bytes_max: Option<u64>,
    pub keys_max: Option<u32>,
    /// Operations a second at the doors of each node.
    pub rate_max: Option<u32>,
}

/// What a namespace can have too much of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Bound {
    Bytes,
    Keys,
}

/// What a namespace, or a part of it, may hold. None: as much as there is room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    pub bytes: Option<u64>,
    pub keys: Option<u64>,
}

/// What it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    pub bytes: u64,
    pub keys: u64,
}

impl Bound {
    /// The key of a declaration.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Bytes => Quota::BYTES_MAX.name,
            Bound::Keys => Quota::KEYS_MAX.name,
        }
    }

    /// Why nothing is added.
    pub const fn why(self) -> &'static str {
        match self {
            Bound::Bytes => {
                "bytes_max of this namespace is reached where this key lies: nothing was done; remove something, or have it end"
            }
            Bound::Keys => {
                "keys_max of this namespace is reached where this key lies: nothing was done; remove something, or have it end"
            }
        }
    }

    /// What an operation is told that would be over it: it is no less so a moment later.
    pub fn refused(self) -> Refused {
        Refused::wrong(self.why()).because(Because::Quota)
    }
}

impl Bounds {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// So much of what it may hold it has, in percent, rounded up; 0 if it may hold all.
    pub fn percent(&self, used: Used) -> u32 {
        let of = |used: u64, most: Option<u64>| {
            most.map_or(0, |most| (u128::from(used) * 100).div_ceil(u128::from(most.max(1))))
        };
        of(used.bytes, self.bytes).max(of(used.keys, self.keys)).try_into().unwrap_or(u32::MAX)
    }

    /// Of a part that holds so many of all; rounded up.
    pub fn share(&self, part: u128, all: u128) -> Self {
        let share = |whole: u64| u64::try_from((u128::from(whole) * part).div_ceil(all.max(1))).unwrap_or(u64::MAX);
        Self { bytes: self.bytes.map(share), keys: self.keys.map(share) }
    }

    /// Whether what holds so much may have more: never if it would be too much with it, always if it is no more.
    pub fn over(&self, used: Used, more: Used) -> Option<Bound> {
        let is_over = |most: Option<u64>, used: u64, more: u64| {
            more > 0 && most.is_some_and(|most| used.saturating_add(more) > most)
        };
        if is_over(self.keys, used.keys, more.keys) {
            return Some(Bound::Keys);
        }
        is_over(self.bytes, used.bytes, more.bytes).then_some(Bound::Bytes)
    }
}

impl std::ops::Add for Used {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (bytes, keys) = (self.bytes.saturating_add(other.bytes), self.keys.saturating_add(other.keys));
        Self { bytes, keys }
    }
}

impl Quota {
    pub const CONNECTIONS_MAX: Key = Key {
        name: "connections_max",
        example: "500",
        about: "Redis clients that may have it open at a time, on each node: 1 to 16384. Without it: as many as there is room for.",
    };
    pub const BYTES_MAX: Key = Key {
        name: "bytes_max",
        example: "\"64MiB\"",
        about: "Bytes of its keys and values, and 48 for each key; copies do not count. Without it: as many as there is room for.",
    };
    pub const KEYS_MAX: Key = Key {
        name: "keys_max",
        example: "100000",
        about: "Keys that it may have. Without it: as many as there is room for.",
    };
    pub const RATE_MAX: Key = Key {
        name: "rate_max",
        example: "1000",
        about: "Operations a second that each node does for it: 1 to 1000000. Without it: as many as come.",
    };

    /// # Errors
    /// The first value that has the wrong form.
    pub fn read(keys: &Map<String, Value>) -> Result<Self, Wrong> {
        let number = |key: &Key| keys.get(key.name).map(|value| is_number(key.name, value)).transpose();
        Ok(Self {
            connections_max: number(&Self::CONNECTIONS_MAX)?,
            bytes_max: keys.get(Self::BYTES_MAX.name).map(|value| size(Self::BYTES_MAX.name, value)).transpose()?,
            keys_max: number(&Self::KEYS_MAX)?,
            rate_max: number(&Self::RATE_MAX)?,
        })
    }

    /// The keys that are declared.
    pub fn write(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let Self { connections_max, bytes_max, keys_max, rate_max } = self;
        let keys = [
            (Self::CONNECTIONS_MAX.name, connections_max.map(Value::from)),
            (Self::BYTES_MAX.name, bytes_max.map(|bytes| base::text::size_text(bytes).into())),
            (Self::KEYS_MAX.name, keys_max.map(Value::from)),
            (Self::RATE_MAX.name, rate_max.map(Value::from)),
        ];
        keys.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// # Errors
    /// The first value that is out of bounds.
    pub fn validate(&self) -> Result<(), Wrong> {
        let wrong = |key: &Key, why: String| Err((key.name.to_owned(), format!("{why}; leave it out for no limit")));
        match *self {
            Self { connections_max: Some(most), .. } if !(1..=CONNECTIONS_MAX_MAX).contains(&most) => {
                wrong(&Self::CONNECTIONS_MAX, format!("{most} is not between 1 and {CONNECTIONS_MAX_MAX}"))
            }
            Self { bytes_max: Some(most), .. } if !(BYTES_MAX_MIN..=BYTES_MAX_MAX).contains(&most) => {
                let (least, largest) = (base::text::size_text(BYTES_MAX_MIN), base::text::size_text(BYTES_MAX_MAX));
                wrong(&Self::BYTES_MAX, format!("{} is not between {least} and {largest}", base::text::size_text(most)))
            }
            Self { rate_max: Some(most), .. } if !(1..=RATE_MAX_MAX).contains(&most) => {
                wrong(&Self::RATE_MAX, format!("{most} is not between 1 and {RATE_MAX_MAX}"))
            }
            Self { keys_max: Some(0), .. } => wrong(&Self::KEYS_MAX, "0 is less than one key".to_owned()),
            _ => Ok(()),
        }
    }

    /// What it may hold, as the cluster has agreed on this level.
    pub fn bounds(&self, level: u32) -> Bounds {
        match level >= LEVEL {
            true => Bounds { bytes: self.bytes_max, keys: self.keys_max.map(u64::from) },
            false => Bounds::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_that_make_no_sense_are_refused_with_words() {
        for (key, value, says) in [
            ("connections_max", json!(1), None),
            ("connections_max", json!(16384), None),
            ("connections_max", json!(0), Some("0 is not between 1 and 16384; leave it out for no limit")),
            ("connections_max", json!(16385), Some("16385 is not between 1 and 16384; leave it out for no limit")),
            ("connections_max", json!(-1), Some("write a whole number, like connections_max = 3")),
            ("connections_max", json!(1.5), Some("write a whole number, like connections_max = 3")),
            ("connections_max", json!(u64::MAX), Some("write a whole number, like connections_max = 3")),
            ("connections_max", json!("many"), Some("write a whole number, like connections_max = 3")),
            ("rate_max", json!(1_000_000), None),
            ("rate_max", json!(1_000_001), Some("1000001 is not between 1 and 1000000; leave it out for no limit")),
            ("rate_max", json!(0), Some("0 is not between 1 and 1000000; leave it out for no limit")),
            ("keys_max", json!(1), None),
            ("keys_max", json!(u32::MAX), None),
            ("keys_max", json!(0), Some("0 is less than one key; leave it out for no limit")),
            ("keys_max", json!("5"), Some("write a whole number, like keys_max = 3")),
            ("bytes_max", json!("1KiB"), None),
            ("bytes_max", json!("2GiB"), None),
            ("bytes_max", json!("0KiB"), Some("0 bytes is not between 1KiB and 1024TiB; leave it out for no limit")),
            (
                "bytes_max",
                json!(1 << 20),
                Some("write a size, with its unit and in quotes, like bytes_max = \"64MiB\""),
            ),
            (
                "bytes_max",
                json!("64"),
                Some("\"64\" is not a size; write a whole number and KiB, MiB, GiB or TiB, like \"64MiB\""),
            ),
        ] {
            let keys = Map::from_iter([(key.to_owned(), value.clone())]);
            let read = Quota::read(&keys).and_then(|quota| quota.validate().map(|()| quota));
            if let Ok(quota) = &read {
                assert_eq!(quota.write().collect::<Vec<_>>(), [(key, value.clone())]);
            }
            assert_eq!(read.err(), says.map(|why| (key.to_owned(), why.to_owned())), "{key} = {value}");
        }
    }

    #[test]
    fn a_share_is_rounded_up_and_nothing_is_refused_that_is_no_more() {
        let bounds = Bounds { bytes: Some(1000), keys: Some(10) };
        assert_eq!(bounds.share(1, 1), bounds);
        assert_eq!(bounds.share(3, 4), Bounds { bytes: Some(750), keys: Some(8) });
        assert_eq!(bounds.share(1, 1 << 64), Bounds { bytes: Some(1), keys: Some(1) });
        assert_eq!(Bounds { bytes: Some(u64::MAX), keys: None }.share(3, 1).bytes, Some(u64::MAX));
        let of = |bytes, keys| Used { bytes, keys };
        for (used, more, over) in [
            (of(0, 0), of(1000, 10), None),
            (of(0, 0), of(1001, 1), Some(Bound::Bytes)),
            (of(0, 10), of(1, 1), Some(Bound::Keys)),
            (of(0, 10), of(1, 0), None),
            (of(5000, 50), of(0, 0), None),
            (of(5000, 0), of(1, 0), Some(Bound::Bytes)),
            (of(u64::MAX, 0), of(u64::MAX, 0), Some(Bound::Bytes)),
        ] {
            assert_eq!(bounds.over(used, more), over, "{used:?} and {more:?}");
            assert_eq!(Bounds::default().over(used, more), None);
        }
        assert_eq!((Bound::Keys.refused().because, Bound::Keys.refused().retry_after), (Because::Quota, None));
        for (used, percent) in [(of(0, 0), 0), (of(501, 5), 51), (of(10, 8), 80), (of(2000, 1), 200)] {
            assert_eq!(bounds.percent(used), percent, "{used:?}");
            assert_eq!(Bounds::default().percent(used), 0);
        }
    }

    #[test]
    fn nothing_is_held_to_before_all_programs_know_of_it() {
        let quota = Quota { bytes_max: Some(4096), keys_max: Some(3), ..Quota::default() };
        assert!(quota.bounds(LEVEL - 1).is_none());
        assert_eq!(quota.bounds(LEVEL), Bounds { bytes: Some(4096), keys: Some(3) });
    }
}
