//! The one source of chance below the waterline: SplitMix64, seeded at birth, so that the same seed gives the same run.
//! It is not for secrets; those come from the host.

/// A seeded generator. Machines own theirs; `fork` gives a part of a machine one of its own.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn fork(&mut self) -> Self {
        Self(self.u64())
    }

    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`. `n` must not be zero.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a number below zero does not exist");
        ((u128::from(self.u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "{low} is not below {high}");
        match (high - low).checked_add(1) {
            Some(width) => low + self.below(width),
            None => self.u64(),
        }
    }

    /// True with probability `p` (0 to 1).
    pub fn chance(&mut self, p: f64) -> bool {
        ((self.u64() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { Some(&from[self.below(from.len() as u64) as usize]) }
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.u64() == b.u64()));
        assert_eq!(Rng::new(0).u64(), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn bounds_hold() {
        let mut rng = Rng::new(1);
        assert!((0..1000).all(|_| rng.below(3) < 3));
        assert!((0..1000).all(|_| (5..=9).contains(&rng.between(5, 9))));
        assert!((0..100).all(|_| !rng.chance(0.0) && rng.chance(1.0)));
    }
}
