//! Log-linear histograms of microseconds: 16 buckets to a power of two, so a percentile is at most 1/16 too high. The
//! buckets are numbers here; counters may be plain ([`Histogram`]) or somebody's atomics.

use base::Span;

/// Buckets to a power of two.
const STEPS: u64 = 16;
/// Longest time told apart: 2^36 microseconds, 19 hours. Longer ones count as this.
const BITS_MAX: u32 = 36;
pub const BUCKETS: usize = ((BITS_MAX - 3) as usize) * STEPS as usize;

pub fn bucket_of(micros: u64) -> usize {
    let micros = micros.min((1 << BITS_MAX) - 1);
    if micros < STEPS {
        return micros as usize;
    }
    // The highest bit says which power of two, the four bits after it which sixteenth of it.
    let bits = micros.ilog2();
    let step = (micros >> (bits - 4)) & (STEPS - 1);
    (((bits - 3) as u64) * STEPS + step) as usize
}

/// Largest time that falls into a bucket, microseconds.
pub fn top_of(bucket: usize) -> u64 {
    let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    if power == 0 { step } else { ((STEPS + step + 1) << (power - 1)) - 1 }
}

/// The time, in microseconds, that so many percent of what was counted do not pass; 0 if nothing was.
pub fn percentile(counts: &[u64], percent: u64) -> u64 {
    let all: u64 = counts.iter().sum();
    let rank = (all * percent).div_ceil(100);
    let mut seen = 0;
    for (bucket, count) in counts.iter().enumerate() {
        seen += count;
        if *count > 0 && seen >= rank {
            return top_of(bucket);
        }
    }
    0
}

#[derive(Clone, Debug)]
pub struct Histogram(Box<[u64]>);

impl Default for Histogram {
    fn default() -> Self {
        Self(vec![0; BUCKETS].into())
    }
}

impl Histogram {
    pub fn note(&mut self, took: Span) {
        self.0[bucket_of(took.0)] += 1;
    }

    pub fn counts(&self) -> &[u64] {
        &self.0
    }

    pub fn clear(&mut self) {
        self.0.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_a_bucket_that_is_at_most_a_sixteenth_too_high() {
        for micros in (0..2_000).chain([4_095, 4_096, 123_456, 1 << 30, (1 << BITS_MAX) - 1]) {
            let top = top_of(bucket_of(micros));
            assert!(top >= micros && top <= micros + micros / 16, "{micros} became {top}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_of_what_was_counted() {
        let mut histogram = Histogram::default();
        assert_eq!(percentile(histogram.counts(), 50), 0);
        (1..=100).for_each(|n| histogram.note(Span::micros(n * 100)));
        assert!((5_000..5_400).contains(&percentile(histogram.counts(), 50)));
        assert!((9_900..10_600).contains(&percentile(histogram.counts(), 99)));
    }
}
