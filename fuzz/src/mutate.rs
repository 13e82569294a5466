//! Seeded mutations: the same seed gives the same inputs on every machine. Blind, unlike libFuzzer's, but enough to keep what
//! was once mended mended.

use base::Rng;

/// Inputs stay below this: most faults need few bytes, and small inputs run fast.
pub const INPUT_BYTES_MAX: usize = 4 << 10;
/// Changes made to one input, at most.
const CHANGES_MAX: u64 = 6;

/// One input made of a seed and maybe a part of another.
pub fn mutate(rng: &mut Rng, seed: &[u8], other: &[u8], words: &[&[u8]]) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..rng.between(1, CHANGES_MAX) {
        change(rng, &mut data, other, words);
    }
    data.truncate(INPUT_BYTES_MAX);
    data
}

fn change(rng: &mut Rng, data: &mut Vec<u8>, other: &[u8], words: &[&[u8]]) {
    let at = rng.below(data.len() as u64 + 1) as usize;
    match rng.below(9) {
        0 if at < data.len() => data[at] ^= 1 << rng.below(8),
        1 if at < data.len() => data[at] = rng.u64() as u8,
        // Numbers near a border, where lengths and counts lie.
        2 if at < data.len() => data[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff, b'0', b'9', b'-']).expect("not empty"),
        3 => data.truncate(at),
        4 => drop(data.drain(at..some(rng, at, data.len()))),
        5 => {
            let part = data[at..some(rng, at, data.len())].to_vec();
            data.splice(at..at, part);
        }
        6 => {
            let from = rng.below(other.len() as u64 + 1) as usize;
            let part = &other[from..some(rng, from, other.len())];
            data.splice(at..at, part.iter().copied());
        }
        7 if at < data.len() => {
            let with = rng.below(data.len() as u64) as usize;
            data.swap(at, with);
        }
        _ => {
            let word = rng.pick(words).copied().unwrap_or(b"\0");
            data.splice(at..at, word.iter().copied());
        }
    }
}

/// An end of a part from `at` on: often near.
fn some(rng: &mut Rng, at: usize, len: usize) -> usize {
    let most = if rng.chance(0.7) { (len - at).min(8) } else { len - at };
    at + rng.below(most as u64 + 1) as usize
}
