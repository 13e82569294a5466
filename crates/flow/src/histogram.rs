//! Log-linear histograms of microseconds: 16 buckets to a power of two, so a percentile is at most 1/16 too high. The
//! buckets are numbers here; counters may be plain ([`Histogram`]) or somebody's atomics.

use std::collections::BTreeMap;

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
pub struct Histogram {
    counts: Box<[u64]>,
    sum_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), sum_us: 0 }
    }
}

impl Histogram {
    pub fn note(&mut self, took: Span) {
        self.counts[bucket_of(took.0)] += 1;
        self.sum_us = self.sum_us.saturating_add(took.0);
    }

    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.sum_us = 0;
    }

    /// Moves all that was counted to what is kept for ever.
    pub fn clear_into(&mut self, powers: &mut Powers) {
        powers.add(&self.counts, self.sum_us);
        self.clear();
    }
}

/// The shortest time that [`Powers`] tells apart is 2^6 microseconds, the longest 2^24 (17 s).
const POWER_MIN: usize = 6;
const POWERS: usize = 19;

/// What histograms counted since the start, by powers of two: small enough to be kept and told for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Powers {
    /// Below each power, and not below the one before it; the last: above all.
    counts: [u64; POWERS + 1],
    sum_us: u64,
}

impl Powers {
    /// `counts` has [`BUCKETS`] buckets.
    pub fn add(&mut self, counts: &[u64], sum_us: u64) {
        for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let bits = top_of(bucket).checked_ilog2().map_or(0, |bits| bits as usize + 1);
            self.counts[bits.saturating_sub(POWER_MIN).min(POWERS)] += count;
        }
        self.sum_us = self.sum_us.saturating_add(sum_us);
    }

    /// How many took less than so many microseconds (none: any time), the shortest first.
    pub fn below(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let mut all = 0;
        self.counts.iter().enumerate().map(move |(nth, count)| {
            all += count;
            ((nth < POWERS).then(|| 1 << (POWER_MIN + nth)), all)
        })
    }

    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }
}

/// Neighbouring buckets that are one in [`Sparse`]: four of these to a power of two.
const TOGETHER: usize = 4;
/// Buckets of [`Sparse`].
pub const COARSE: usize = BUCKETS / TOGETHER;

pub fn coarse_of(micros: u64) -> usize {
    bucket_of(micros) / TOGETHER
}

/// A histogram that is told between nodes: only the buckets that something fell into, so a percentile is at most a quarter too high.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sparse(BTreeMap<u16, u32>);

impl Sparse {
    /// So many more in a bucket ([`coarse_of`]); one that there is not counts as the last.
    pub fn add(&mut self, bucket: usize, count: u32) {
        if count > 0 {
            let has = self.0.entry(bucket.min(COARSE - 1) as u16).or_default();
            *has = has.saturating_add(count);
        }
    }

    pub fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|(bucket, count)| self.add(usize::from(*bucket), *count));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time, in microseconds, that so many percent of what was counted do not pass; none if nothing was.
    pub fn percentile(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.0.values().map(|count| u64::from(*count)).sum();
        let rank = (all * percent).div_ceil(100);
        let mut seen = 0;
        self.0.iter().find_map(|(bucket, count)| {
            seen += u64::from(*count);
            (seen >= rank).then(|| top_of(usize::from(*bucket) * TOGETHER + TOGETHER - 1))
        })
    }

    /// Each bucket and its count, one after the other: as it is told.
    pub fn flat(&self) -> Vec<u32> {
        self.0.iter().flat_map(|(bucket, count)| [u32::from(*bucket), *count]).collect()
    }

    /// What somebody told.
    pub fn of_flat(told: &[u32]) -> Self {
        let mut all = Self::default();
        told.chunks_exact(2).take(COARSE).for_each(|pair| all.add(pair[0] as usize, pair[1]));
        all
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

    #[test]
    fn what_is_told_is_small_and_a_quarter_too_high_at_most() {
        let mut all = Sparse::default();
        assert_eq!(all.percentile(50), None);
        (1..=100).for_each(|n| all.add(coarse_of(n * 1000), 1));
        let (half, most) = (all.percentile(50).unwrap(), all.percentile(99).unwrap());
        assert!((50_000..62_500).contains(&half) && (99_000..124_000).contains(&most), "{half} {most}");
        let again = Sparse::of_flat(&all.flat());
        assert_eq!(again, all);
        assert!(all.flat().len() < 60);
        all.join(&again);
        assert_eq!(all.percentile(50), Some(half));
        // What a node says may be anything.
        let odd = Sparse::of_flat(&[u32::MAX, u32::MAX, 7, 0, 3]);
        assert_eq!((odd.flat(), odd.percentile(99)), (vec![COARSE as u32 - 1, u32::MAX], Some(top_of(BUCKETS - 1))));
        let many: Vec<u32> = (0..1_000_000).collect();
        assert!(Sparse::of_flat(&many).flat().len() <= 2 * COARSE);
    }

    #[test]
    fn powers_keep_what_many_histograms_counted() {
        let mut powers = Powers::default();
        for _ in 0..2 {
            let mut histogram = Histogram::default();
            for us in [0, 63, 64, 127, 128, 1_000_000, u64::from(u32::MAX)] {
                histogram.note(Span::micros(us));
            }
            histogram.clear_into(&mut powers);
            assert_eq!(histogram.counts().iter().sum::<u64>(), 0);
        }
        let below: Vec<_> = powers.below().collect();
        assert_eq!(below[..3], [(Some(64), 4), (Some(128), 8), (Some(256), 10)]);
        assert_eq!(below[13..15], [(Some(524_288), 10), (Some(1_048_576), 12)]);
        assert_eq!(below[18..], [(Some(1 << 24), 12), (None, 14)]);
        assert_eq!(powers.sum_us(), 2 * (63 + 64 + 127 + 128 + 1_000_000 + u64::from(u32::MAX)));
    }
}
