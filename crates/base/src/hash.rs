//! A hasher without a random seed, as machines must run alike from the same seed. Iteration order is never relied on.
//! Keys that carry their placement hash pass it through; strings are hashed with XXH3.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash map whose hashes are the same in every process.
pub type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<Fixed>>;

#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed(u64);

impl Hasher for Fixed {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = crate::checksum::place_hash_pair(bytes, self.0);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    /// Mixes once: table positions take low bits and tags high bits, so all bits must matter.
    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_maps_agree_on_every_hash() {
        use std::hash::BuildHasher;
        let (a, b) = (FixedMap::<&str, ()>::default(), FixedMap::<&str, ()>::default());
        for key in ["", "a", "carts", "a rather long name of a namespace"] {
            assert_eq!(a.hasher().hash_one(key), b.hasher().hash_one(key));
        }
        assert_ne!(a.hasher().hash_one("a"), a.hasher().hash_one("b"));
    }
}
