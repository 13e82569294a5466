//! Checksums: CRC-32C, which every value carries from the moment it enters the cluster (state.md, rule 3).
//! It finds accidents, not attacks; what a client may forge carries a keyed MAC as well.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C (Castagnoli) of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Checksum(pub u32);

impl Checksum {
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_parts(&[bytes])
    }

    /// The checksum of several parts as if they stood in one piece.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        for part in parts {
            digest.update(part);
        }
        // CRC-32C has 32 bits; the library returns every width in a u64.
        Self(digest.finalize() as u32)
    }

    pub fn matches(self, bytes: &[u8]) -> bool {
        Self::of(bytes) == self
    }
}

/// The checksum of bytes that come one after the other.
#[derive(Clone, Debug)]
pub struct Summing(Digest);

impl Default for Summing {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Summing {
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of all that was added.
    pub fn sum(&self) -> Checksum {
        Checksum(self.0.finalize() as u32)
    }
}

/// Placement hash. It decides where data lies, so it must never change: XXH3-64, seed 0, held by a golden test.
pub fn place_hash(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// Placement hash of two parts (a key and a node, say), without joining them.
pub fn place_hash_pair(bytes: &[u8], salt: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, salt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc32c_as_the_rfc_has_it() {
        // RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(Checksum::of(&[0; 32]), Checksum(0x8A91_36AA));
        assert_eq!(Checksum::of(b"123456789"), Checksum(0xE306_9283));
    }

    #[test]
    fn parts_sum_like_the_whole() {
        assert_eq!(Checksum::of_parts(&[b"1234", b"", b"56789"]), Checksum::of(b"123456789"));
        let mut summing = Summing::default();
        [&b"1234"[..], b"", b"56789"].into_iter().for_each(|part| summing.add(part));
        assert_eq!(summing.sum(), Checksum::of(b"123456789"));
    }

    #[test]
    fn placement_never_changes() {
        assert_eq!(place_hash(b""), 0x2D06_8005_38D3_94C2);
        assert_eq!(place_hash_pair(b"", 0), place_hash(b""));
    }
}
