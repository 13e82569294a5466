//! Checksums of many parts of the same bytes, where the price of one does not grow with its length: what stands behind a
//! log's end may be bytes of clients, and these can look like millions of batches of megabytes each.
//!
//! CRC-32C is linear. Of two parts behind each other it is the first one's times x^(8 * length of the second), xor the
//! second one's, as polynomials over GF(2). So that of a part follows from those of all bytes up to where it begins and ends.

use std::ops::Range;

use base::checksum::Checksum;

/// So far is it from one kept checksum to the next. Every other one is computed from there.
const STEP: usize = 256;
/// The polynomial of CRC-32C. In it, as in the checksums, the highest bit is that of x^0.
const POLYNOMIAL: u32 = 0x82F6_3B78;
const ONE: u32 = 1 << 31;
/// By place and digit of a length in base 256: x to the power of eight times that. A length is a batch's, four bytes.
static POWERS: [[u32; 256]; 4] = powers();

pub struct Sums<'a> {
    bytes: &'a [u8],
    /// Of no bytes, of the first `STEP`, of twice as many, and so on.
    kept: Vec<u32>,
}

impl<'a> Sums<'a> {
    pub fn of(bytes: &'a [u8]) -> Self {
        let mut kept = vec![Checksum::of(&[]).0];
        for step in bytes.chunks_exact(STEP) {
            let before = kept[kept.len() - 1];
            kept.push(moved(before, STEP) ^ Checksum::of(step).0);
        }
        Self { bytes, kept }
    }

    /// The checksum of what has the sum `before` and this part, as if they stood in one piece.
    pub fn behind(&self, before: Checksum, part: Range<usize>) -> Checksum {
        Checksum(self.upto(part.end) ^ moved(self.upto(part.start) ^ before.0, part.len()))
    }

    fn upto(&self, end: usize) -> u32 {
        let steps = end / STEP;
        moved(self.kept[steps], end % STEP) ^ Checksum::of(&self.bytes[steps * STEP..end]).0
    }
}

/// The share that a checksum has in the one of the same bytes and so many more.
fn moved(sum: u32, len: usize) -> u32 {
    let digits = u32::try_from(len).expect("a batch is below 4 GiB").to_le_bytes();
    let powers = digits.iter().zip(&POWERS).filter(|(digit, _)| **digit != 0);
    powers.fold(sum, |sum, (digit, powers)| times(sum, powers[usize::from(*digit)]))
}

const fn times(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, ONE);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ (if b & 1 == 1 { POLYNOMIAL } else { 0 });
        bit >>= 1;
    }
    product
}

const fn powers() -> [[u32; 256]; 4] {
    let mut powers = [[ONE; 256]; 4];
    // Of a digit's one: x^8 at the first place.
    let mut one = ONE >> 8;
    let mut place = 0;
    while place < 4 {
        let mut digit = 1;
        while digit < 256 {
            powers[place][digit] = times(powers[place][digit - 1], one);
            digit += 1;
        }
        one = times(powers[place][255], one);
        place += 1;
    }
    powers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(bytes: &[u8], salt: u64, part: Range<usize>) {
        let salt = salt.to_be_bytes();
        let sum = Checksum::of_parts(&[&salt, &bytes[part.clone()]]);
        assert_eq!(Sums::of(bytes).behind(Checksum::of(&salt), part), sum);
    }

    proptest! {
        #[test]
        fn a_part_has_the_sum_that_it_has_alone(
            bytes in prop::collection::vec(any::<u8>(), 1..3000), salt: u64, one: prop::sample::Index, other: prop::sample::Index
        ) {
            let (one, other) = (one.index(bytes.len() + 1), other.index(bytes.len() + 1));
            check(&bytes, salt, one.min(other)..one.max(other));
        }
    }

    #[test]
    fn lengths_of_one_to_four_bytes_are_right() {
        let bytes: Vec<u8> = (0..(2 << 24) + 300u32).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        for len in [0, 1, 255, 256, 257, 0xFFFF, 0x1_0000, 0x12_3456, 0xFF_FFFF, 0x100_0000, 0x1FE_DCBA] {
            check(&bytes, 7, 77..77 + len);
        }
    }
}
