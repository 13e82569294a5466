//! Cursors of SCAN, HSCAN, SSCAN and ZSCAN in class `linear`. From [`WALK_LEVEL`] on one says by itself how far a walk has come
//! (`linear/src/functions/walk.rs`), to any node. Until all nodes have that level, it is a number that stands for a key
//! which this node remembers.
//!
//! Which of them a cursor is shows its size, so a client may bring what it got before the nodes agreed, or from a node
//! that knows it already. A walk whose cursor says nothing here begins anew: it shows again what it showed, and misses
//! nothing. (Programs of level 14 gave any 63 bits; one in 2,048 of theirs looks like a place.)

use std::collections::VecDeque;

use bytes::Bytes;
use state::linear::functions::WALK_LEVEL;
use state::linear::limits::WALK_CURSORS_MAX;

use super::limits::CURSORS_MAX;

/// The first cursor that stands for a key: all that say it by themselves are below, and none is above 2^53.
const FIRST: u64 = WALK_CURSORS_MAX + 1;
const KINDS: u64 = (1 << 53) - FIRST;

/// Where a walk goes on.
#[derive(Clone, PartialEq, Debug)]
pub enum At {
    /// At this place, for functions that know places.
    Place(u64),
    /// Behind this key, or at the beginning, for those of all levels.
    Behind(Option<Bytes>),
}

#[derive(Default)]
pub struct Cursors {
    /// The oldest first.
    kept: VecDeque<(u64, Bytes)>,
    last: u64,
}

impl Cursors {
    /// The nodes have agreed on this level.
    pub fn at(&self, cursor: u64, agreed: u32) -> At {
        // Whoever has begun behind keys goes on so, also when the nodes have agreed meanwhile.
        if let Some((_, after)) = self.kept.iter().rev().find(|(kept, _)| *kept == cursor) {
            return At::Behind(Some(after.clone()));
        }
        match cursor {
            _ if agreed < WALK_LEVEL => At::Behind(None),
            0..=WALK_CURSORS_MAX => At::Place(cursor),
            _ => At::Place(0),
        }
    }

    /// A cursor that goes on behind this key; the oldest is forgotten for it.
    pub fn keep(&mut self, after: Bytes) -> u64 {
        if self.kept.len() == CURSORS_MAX {
            self.kept.pop_front();
        }
        self.last += 1;
        // Unlike one another, so that a cursor of another node is not taken for one of ours.
        let cursor = FIRST + base::checksum::place_hash_pair(&after, self.last) % KINDS;
        self.kept.push_back((cursor, after));
        cursor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_what_it_was_given_as_or_begins_anew() {
        let mut cursors = Cursors::default();
        let behind = |key: &'static str| At::Behind(Some(Bytes::from_static(key.as_bytes())));
        let (old, new) = (WALK_LEVEL - 1, WALK_LEVEL);
        assert_eq!((cursors.at(0, old), cursors.at(0, new)), (At::Behind(None), At::Place(0)));
        let (a, b) = (cursors.keep("a".into()), cursors.keep("a".into()));
        assert_ne!(a, b, "each is another");
        for cursor in [a, b] {
            assert!((FIRST..1 << 53).contains(&cursor), "{cursor}");
            assert_eq!((cursors.at(cursor, old), cursors.at(cursor, new)), (behind("a"), behind("a")));
        }
        // What the other way gave.
        assert_eq!((cursors.at(7, old), cursors.at(7, new)), (At::Behind(None), At::Place(7)));
        assert_eq!(cursors.at(WALK_CURSORS_MAX, new), At::Place(WALK_CURSORS_MAX));
        // What another node gave, or nobody.
        for cursor in [FIRST, a ^ 1, 1 << 53, u64::MAX] {
            assert_eq!((cursors.at(cursor, old), cursors.at(cursor, new)), (At::Behind(None), At::Place(0)));
        }
        for n in 0..CURSORS_MAX {
            cursors.keep(format!("{n}").into());
        }
        assert_eq!(cursors.at(a, new), At::Place(0), "it was forgotten");
        assert_eq!(cursors.kept.len(), CURSORS_MAX);
    }
}
