//! Splitting a group in two: the keys whose hashes are in the upper half of its range become a group of their own.
//!
//! 1. The root group's leader writes into the group's record where it is to be split, and the new group's name (`place.rs`).
//! 2. The group's leader puts the split into the log. Each member that applies it takes the upper half out of its own space
//!    and founds the new group with it: the same at every member, so nothing is sent. Answers that make commands happen once
//!    go with both halves.
//! 3. When the new group has agreed to something, a majority has its half on disk. Then the root group's leader makes it a
//!    record of its own. Until then members of the old group keep the log from before the split, so that whoever starts
//!    again can found the new group again (`Member::hold`).
//!
//! Who asks the old group for what has gone is told so, and asks the new one. Nothing has happened then, and nothing of it
//! will: the range of a group never grows.

use base::GroupId;
use base::checksum::place_hash;

use super::functions;
use super::limits::{SPLIT_BYTES, SPLIT_KEYS, SPLIT_SAMPLE};
use super::space::Space;
use super::wire::Command;

/// A split that the log of a group orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// Keys with this hash and above go.
    pub at: u64,
    /// Where to.
    pub child: GroupId,
    /// How often the group had been split before: so it happens once.
    pub after: u32,
}

/// The hash that says where a key is. As in Redis' cluster: if there is something between the key's first `{` and the `}`
/// that comes next, that decides alone, so that keys can be kept together.
pub fn hash_of(key: &[u8]) -> u64 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|at| {
        let rest = &key[at + 1..];
        rest.iter().position(|byte| *byte == b'}').map(|end| &rest[..end])
    });
    place_hash(tag.filter(|tag| !tag.is_empty()).unwrap_or(key))
}

impl Space {
    /// Is what this command is about still here?
    pub fn has(&self, command: &Command) -> bool {
        // Who knows how often the group was split has looked for itself.
        if command.splits == self.splits() {
            return true;
        }
        let is_here = |key: &[u8]| self.above().is_none_or(|above| hash_of(key) < above);
        let found = command.steps.iter().map(|step| (functions::find(step.function), step));
        let steps = found
            .into_iter()
            .all(|(function, step)| function.is_none_or(|f| !f.whole && f.keys(step).all(|key| is_here(key))));
        steps && command.conditions.iter().all(|condition| is_here(&condition.key))
    }

    /// So large that two groups would do better, if it were split at this hash. Not if most keys would stay together: many may
    /// have the same tag.
    pub fn is_large(&self, at: u64) -> bool {
        if self.len() <= SPLIT_KEYS && cluster::raft::State::bytes(self) <= SPLIT_BYTES {
            return false;
        }
        let (mut all, mut go) = (0, 0);
        for key in self.map().sample(SPLIT_SAMPLE) {
            all += 1;
            go += usize::from(hash_of(key) >= at);
        }
        go * 8 >= all && (all - go) * 8 >= all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_the_same_tag_lie_together() {
        assert_eq!(hash_of(b"{user7}.cart"), hash_of(b"name.{user7}"));
        assert_eq!(hash_of(b"{user7}.cart"), place_hash(b"user7"));
        assert_eq!(hash_of(b"{a}{b}"), place_hash(b"a"));
        for whole in ["user7", "{}x", "{x", "x}", "}{", ""] {
            assert_eq!(hash_of(whole.as_bytes()), place_hash(whole.as_bytes()), "{whole}");
        }
    }
}
