//! How often keys were asked for lately, about, in little memory: a count-min sketch whose counters are halved now and then
//! (TinyLFU, Einziger et al.). It knows keys by their hash, also of those that are not here.

use base::checksum::{place_hash, place_hash_pair};

use super::limits::{SKETCH_AGES_AFTER, SKETCH_BYTES_EACH, SKETCH_MAX, SKETCH_MIN};

const ROWS: usize = 4;
const COUNT_MAX: u8 = 15;

pub struct Sketch {
    /// `ROWS` rows, one behind the other.
    counts: Vec<u8>,
    /// Of a row; a power of two.
    width: u64,
    added: u64,
}

impl Sketch {
    /// For a table of so many bytes.
    pub fn new(size: u64) -> Self {
        let width = (size / SKETCH_BYTES_EACH).clamp(SKETCH_MIN, SKETCH_MAX).next_power_of_two();
        Self { counts: vec![0; width as usize * ROWS], width, added: 0 }
    }

    fn places(&self, key: &[u8]) -> [usize; ROWS] {
        let (first, second) = (place_hash(key), place_hash_pair(key, SALT) | 1);
        std::array::from_fn(|row| {
            let hash = first.wrapping_add(second.wrapping_mul(row as u64)) >> 8;
            row * self.width as usize + (hash & (self.width - 1)) as usize
        })
    }

    /// It was asked for once more.
    pub fn add(&mut self, key: &[u8]) {
        for place in self.places(key) {
            self.counts[place] = (self.counts[place] + 1).min(COUNT_MAX);
        }
        self.added += 1;
        if self.added >= self.width * SKETCH_AGES_AFTER {
            self.added /= 2;
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    /// About how often; rather too much than too little.
    pub fn count(&self, key: &[u8]) -> u8 {
        self.places(key).into_iter().map(|place| self.counts[place]).min().unwrap_or(0)
    }
}

const SALT: u64 = 0x5ce7_c4ed_0f1e_a9b3;
