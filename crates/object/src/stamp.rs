//! What an object is called, and which of two writes of it stays: a total order that all nodes keep, so that whoever hears of both has
//! the same.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use class::Version;

/// Id of an object, among those of its owner. Chosen by who puts it; text form: 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Id(pub [u8; 16]);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The text is not 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the id of an object is 32 hexadecimal digits")
    }
}

impl FromStr for Id {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = u128::from_str_radix(text, 16).ok().filter(|_| digits && text.len() == 32).ok_or(NotAnId)?;
        Ok(Self(id.to_be_bytes()))
    }
}

/// Where an object stands in a node's table: those of one owner lie side by side.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// Number of the namespace.
    pub ns: u32,
    pub owner: Bytes,
    pub id: Id,
}

/// One write of an object, without its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    pub version: Version,
    /// The namespace has `writes = "once"`.
    pub once: bool,
    /// The write is a deletion.
    pub gone: bool,
    /// CRC-32C and length of the bytes.
    pub sum: u32,
    pub size: u32,
}

impl Stamp {
    /// How this write stands to another one of the same object: the greater one stays. With `once` a deletion is above all; of two
    /// contents under one id, which is a mistake of who puts them, the first stays. Equal: it is the same write, repeated maybe.
    pub fn against(&self, other: &Stamp) -> Ordering {
        if !self.once {
            return self.version.cmp(&other.version);
        }
        match (self.gone, other.gone) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if (self.sum, self.size) == (other.sum, other.size) => Ordering::Equal,
            // No two writes have one version, but somebody may say so.
            (false, false) => {
                other.version.cmp(&self.version).then((other.sum, other.size).cmp(&(self.sum, self.size)))
            }
        }
    }

    pub fn is_same(&self, other: &Stamp) -> bool {
        self.against(other) == Ordering::Equal
    }

    pub fn beats(&self, other: &Stamp) -> bool {
        self.against(other) == Ordering::Greater
    }
}

#[cfg(test)]
mod tests {
    use base::NodeId;

    use super::*;

    fn stamp(ms: u64, once: bool, gone: bool, sum: u32) -> Stamp {
        Stamp { version: Version { ms, counter: 0, node: NodeId(1) }, once, gone, sum, size: 1 }
    }

    #[test]
    fn once_deleted_stays_deleted_whatever_clocks_say_and_else_the_newest_stays() {
        let (old, new) = (stamp(1, true, false, 7), stamp(2, true, false, 8));
        assert!(old.beats(&new) && !new.beats(&old), "what was first stays");
        assert!(stamp(0, true, true, 0).beats(&new) && !stamp(9, true, false, 9).beats(&stamp(0, true, true, 0)));
        assert!(stamp(5, true, false, 7).is_same(&old) && stamp(5, true, true, 0).is_same(&stamp(1, true, true, 0)));
        assert!(stamp(2, false, false, 1).beats(&stamp(1, false, true, 0)));
        assert!(stamp(3, false, true, 0).beats(&stamp(2, false, false, 1)));
    }

    #[test]
    fn ids_are_text_and_back() {
        let id = Id([0xab, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 255]);
        assert_eq!(id.to_string(), "ab000102030405060708090a0b0c0dff");
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in ["", "ab", "+b000102030405060708090a0b0c0dff", "é", &"a".repeat(33)] {
            assert_eq!(wrong.parse::<Id>(), Err(NotAnId));
        }
    }
}
