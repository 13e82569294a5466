//! Texts of scripts and of libraries of functions, which a shard keeps beside its keys: so whoever leads it knows them, also after a
//! failover. Each shard of a namespace has all that were loaded, and those of scripts that were asked for there by their digests.

use std::collections::{BTreeMap, VecDeque};

use base::checksum::place_hash;
use bytes::Bytes;

use super::limits::{LIBRARIES_BYTES_MAX, LIBRARIES_MAX, SCRIPTS_KEPT_BYTES_MAX, SCRIPTS_KEPT_MAX};

#[derive(Clone, Default, PartialEq, Debug)]
pub struct Texts {
    scripts: BTreeMap<Bytes, Bytes>,
    /// Digests of scripts, the one that came first goes first. Invariant: the keys of `scripts`, each once.
    order: VecDeque<Bytes>,
    bytes: usize,
    /// How often all scripts were forgotten: who keeps some in memory forgets them, too.
    flushes: u64,
    libraries: BTreeMap<Bytes, Library>,
}

/// A library of functions.
#[derive(Clone, PartialEq, Debug)]
pub struct Library {
    /// As whoever loads it wrote it down.
    pub text: Bytes,
    /// Names of its functions: no two libraries have one of the same name.
    pub functions: Vec<Bytes>,
}

/// What became of a library that was to be kept.
#[derive(Clone, PartialEq, Debug)]
pub enum Put {
    Kept,
    /// There is one of this name.
    Exists,
    /// Another one has a function of this name.
    HasFunction(Bytes),
    /// There is no room.
    Full,
}

impl Texts {
    pub fn script(&self, sha: &[u8]) -> Option<&Bytes> {
        self.scripts.get(sha)
    }

    pub fn scripts(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.order.iter().filter_map(|sha| self.scripts.get_key_value(sha))
    }

    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Of scripts and libraries.
    pub fn bytes(&self) -> usize {
        self.bytes + self.libraries_bytes()
    }

    /// Those that came first go, if there is no room. False: it was known, or is too long.
    pub fn keep(&mut self, sha: &Bytes, text: &Bytes) -> bool {
        if self.scripts.contains_key(sha) || text.len() > SCRIPTS_KEPT_BYTES_MAX {
            return false;
        }
        while self.order.len() >= SCRIPTS_KEPT_MAX || self.bytes + text.len() > SCRIPTS_KEPT_BYTES_MAX {
            let Some(gone) = self.order.pop_front().and_then(|oldest| self.scripts.remove(&oldest)) else { break };
            self.bytes -= gone.len();
        }
        self.bytes += text.len();
        self.order.push_back(sha.clone());
        self.scripts.insert(sha.clone(), text.clone());
        true
    }

    /// Forgets all scripts; how many there were.
    pub fn flush(&mut self) -> usize {
        let count = self.scripts.len();
        self.scripts.clear();
        self.order.clear();
        (self.bytes, self.flushes) = (0, self.flushes + 1);
        count
    }

    pub fn libraries(&self) -> &BTreeMap<Bytes, Library> {
        &self.libraries
    }

    /// The same for the same libraries, and hardly ever for others.
    pub fn libraries_id(&self) -> u64 {
        let parts = self.libraries.iter().flat_map(|(name, library)| [name, &library.text]);
        parts.fold(0, |id: u64, part| id.rotate_left(7).wrapping_mul(31) ^ place_hash(part))
    }

    pub fn put_library(&mut self, name: &Bytes, library: Library, replaces: bool) -> Put {
        let old = self.libraries.get(name);
        if old.is_some() && !replaces {
            return Put::Exists;
        }
        let others = || self.libraries.iter().filter(|(other, _)| *other != name);
        let known = |function: &&Bytes| others().any(|(_, other)| other.functions.contains(function));
        if let Some(function) = library.functions.iter().find(known) {
            return Put::HasFunction(function.clone());
        }
        let bytes = self.libraries_bytes() - old.map_or(0, |old| old.text.len()) + library.text.len();
        if (old.is_none() && self.libraries.len() >= LIBRARIES_MAX) || bytes > LIBRARIES_BYTES_MAX {
            return Put::Full;
        }
        self.libraries.insert(name.clone(), library);
        Put::Kept
    }

    pub fn remove_library(&mut self, name: &Bytes) -> bool {
        self.libraries.remove(name).is_some()
    }

    /// Removes all libraries; how many there were.
    pub fn flush_libraries(&mut self) -> usize {
        std::mem::take(&mut self.libraries).len()
    }

    fn libraries_bytes(&self) -> usize {
        self.libraries.values().map(|library| library.text.len()).sum()
    }

    /// Puts what a snapshot has of the flushes back.
    pub(super) fn restore_flushes(&mut self, flushes: u64) {
        self.flushes = flushes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn the_first_scripts_go_for_new_ones() {
        let mut texts = Texts::default();
        let large = Bytes::from(vec![b'x'; SCRIPTS_KEPT_BYTES_MAX / 2]);
        assert!(texts.keep(&text("a"), &large) && !texts.keep(&text("a"), &large));
        assert!(texts.keep(&text("b"), &large));
        assert!(texts.keep(&text("c"), &text("y")), "one more");
        assert_eq!((texts.script(b"a"), texts.script(b"c")), (None, Some(&text("y"))));
        assert_eq!(texts.scripts().map(|(sha, _)| sha.clone()).collect::<Vec<_>>(), [text("b"), text("c")]);
        assert!(!texts.keep(&text("d"), &Bytes::from(vec![0; SCRIPTS_KEPT_BYTES_MAX + 1])));
        for n in 0..SCRIPTS_KEPT_MAX {
            texts.keep(&Bytes::from(n.to_string()), &text("z"));
        }
        assert_eq!((texts.scripts().count(), texts.bytes()), (SCRIPTS_KEPT_MAX, SCRIPTS_KEPT_MAX));
        assert_eq!((texts.flush(), texts.flushes(), texts.bytes()), (SCRIPTS_KEPT_MAX, 1, 0));
    }

    #[test]
    fn a_function_is_in_one_library() {
        let mut texts = Texts::default();
        let library = |functions: &[&str]| Library {
            text: text("code"),
            functions: functions.iter().map(|function| text(function)).collect(),
        };
        let none = texts.libraries_id();
        assert_eq!(texts.put_library(&text("one"), library(&["f", "g"]), false), Put::Kept);
        let one = texts.libraries_id();
        assert_ne!(one, none);
        assert_eq!(texts.put_library(&text("one"), library(&["f"]), false), Put::Exists);
        assert_eq!(texts.put_library(&text("two"), library(&["h", "g"]), true), Put::HasFunction(text("g")));
        assert_eq!(texts.put_library(&text("one"), library(&["f"]), true), Put::Kept);
        assert_eq!(texts.put_library(&text("two"), library(&["h", "g"]), false), Put::Kept);
        let large = Library { text: Bytes::from(vec![0; LIBRARIES_BYTES_MAX]), functions: Vec::new() };
        assert_eq!(texts.put_library(&text("three"), large, false), Put::Full);
        assert!(texts.remove_library(&text("two")) && !texts.remove_library(&text("two")));
        assert_eq!((texts.libraries_id(), texts.flush_libraries(), texts.libraries_id()), (one, 1, none));
    }
}
