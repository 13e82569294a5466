//! Sines that are the same on every machine. Those of the system differ in their last bit from one library to the next, and what is
//! stored by a function must be the same at every replica: so what is stored is computed by these, in numbers of two parts, which
//! gives the double that is nearest to the true one. What is only answered comes from the system, as Redis' answers do.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

#[derive(Clone, Copy, Debug)]
pub struct Trig {
    pub sin: fn(f64) -> f64,
    pub cos: fn(f64) -> f64,
    /// Of 0 to 1.
    pub asin: fn(f64) -> f64,
}

impl Trig {
    pub const SYSTEM: Self = Self { sin: f64::sin, cos: f64::cos, asin: f64::asin };
    pub const OWN: Self = Self { sin, cos, asin };
}

fn sin(x: f64) -> f64 {
    both(x).0.hi
}

fn cos(x: f64) -> f64 {
    both(x).1.hi
}

fn asin(x: f64) -> f64 {
    if x >= 1.0 {
        return FRAC_PI_2;
    }
    // Whatever the last bits of this are, one step to the root leaves nothing of them.
    let near = x.asin();
    let (sin, cos) = both(near);
    let off = Two::of(x).plus(sin.negative());
    near + off.hi / cos.hi
}

/// Half of pi, in three parts.
const HALF_PI: [f64; 3] = [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_183_3e-33];
/// Beyond, a search looks everywhere, whatever this says.
const ANGLE_MAX: f64 = 64.0;
/// So that what is left out is below the last bit of the second part.
const TERMS: u32 = 15;

/// Sine and cosine.
fn both(x: f64) -> (Two, Two) {
    if x.is_nan() || x.abs() > ANGLE_MAX {
        return (Two::of(0.0), Two::of(1.0));
    }
    let quarters = (x * FRAC_2_PI).round();
    let reduced = HALF_PI.iter().fold(Two::of(x), |left, part| left.plus(Two::product(-quarters, *part)));
    let square = reduced.times(reduced).negative();
    let (mut sin, mut cos) = (reduced, Two::of(1.0));
    let (mut odd, mut even) = (reduced, Two::of(1.0));
    for n in 1..=TERMS {
        let n = f64::from(2 * n);
        even = even.times(square).over((n - 1.0) * n);
        odd = odd.times(square).over(n * (n + 1.0));
        (sin, cos) = (sin.plus(odd), cos.plus(even));
    }
    match quarters as i64 & 3 {
        0 => (sin, cos),
        1 => (cos, sin.negative()),
        2 => (sin.negative(), cos.negative()),
        _ => (cos.negative(), sin),
    }
}

/// A number of twice the precision: the sum of both, the first of which is the double that is nearest to it.
#[derive(Clone, Copy, Debug)]
struct Two {
    hi: f64,
    lo: f64,
}

impl Two {
    const fn of(hi: f64) -> Self {
        Self { hi, lo: 0.0 }
    }

    /// Knuth's: nothing is lost.
    fn sum(a: f64, b: f64) -> Self {
        let hi = a + b;
        let of_b = hi - a;
        Self { hi, lo: (a - (hi - of_b)) + (b - of_b) }
    }

    /// Dekker's: nothing is lost.
    fn product(a: f64, b: f64) -> Self {
        let halves = |x: f64| {
            let upper = x * 134_217_729.0;
            let upper = upper - (upper - x);
            (upper, x - upper)
        };
        let ((a_hi, a_lo), (b_hi, b_lo)) = (halves(a), halves(b));
        let hi = a * b;
        Self { hi, lo: ((a_hi * b_hi - hi) + a_hi * b_lo + a_lo * b_hi) + a_lo * b_lo }
    }

    fn negative(self) -> Self {
        Self { hi: -self.hi, lo: -self.lo }
    }

    fn plus(self, other: Self) -> Self {
        let (upper, lower) = (Self::sum(self.hi, other.hi), Self::sum(self.lo, other.lo));
        let upper = Self::sum(upper.hi, upper.lo + lower.hi);
        Self::sum(upper.hi, upper.lo + lower.lo)
    }

    fn times(self, other: Self) -> Self {
        let product = Self::product(self.hi, other.hi);
        Self::sum(product.hi, product.lo + (self.hi * other.lo + self.lo * other.hi))
    }

    fn over(self, divisor: f64) -> Self {
        let first = self.hi / divisor;
        let left = self.plus(Self::product(first, -divisor));
        Self::sum(first, left.hi / divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the system says is mostly the nearest double, and else the next one.
    #[test]
    fn they_are_those_of_the_system_to_the_last_bit() {
        let mut rng = base::Rng::new(11);
        let (mut same, mut all) = (0, 0);
        for _ in 0..3_000 {
            let x = (rng.below(1 << 53) as f64 / (1_u64 << 52) as f64 - 1.0) * 3.2;
            let (own, system) = (Trig::OWN, Trig::SYSTEM);
            let within = x.abs().min(1.0);
            for (own, system) in [
                ((own.sin)(x), (system.sin)(x)),
                ((own.cos)(x), (system.cos)(x)),
                ((own.asin)(within), (system.asin)(within)),
            ] {
                let apart = own.to_bits().abs_diff(system.to_bits());
                assert!(apart <= 1, "{x}: {own} {system}");
                (same, all) = (same + u32::from(apart == 0), all + 1);
            }
        }
        assert!(same * 10 > all * 9, "{same} of {all}");
        // Known digits: sin(1), cos(1), asin(1/2).
        assert_eq!((sin(1.0), cos(1.0)), (0.841_470_984_807_896_5, 0.540_302_305_868_139_8));
        assert_eq!((asin(0.5), asin(0.0), asin(1.0)), (std::f64::consts::FRAC_PI_6, 0.0, FRAC_PI_2));
    }
}
