//! The less loaded of two random choices: nearly as even as knowing everything, and no herd runs to the one that
//! looked idle a moment ago (Mitzenmacher; Ninja 3.3 balances on such reports).

use base::Rng;

/// Index of one of `count` candidates, by the load that `load` reports for each. `None` when there are none.
pub fn pick_two(rng: &mut Rng, count: usize, load: impl Fn(usize) -> u64) -> Option<usize> {
    match count {
        0 => None,
        1 => Some(0),
        _ => {
            let first = rng.below(count as u64) as usize;
            let mut second = rng.below(count as u64 - 1) as usize;
            if second >= first {
                second += 1;
            }
            Some(if load(second) < load(first) { second } else { first })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_loaded_is_never_picked_and_the_rest_share() {
        let mut rng = Rng::new(3);
        let loads = [5, 5, 900, 5];
        let mut hits = [0u32; 4];
        for _ in 0..4000 {
            hits[pick_two(&mut rng, 4, |i| loads[i]).unwrap()] += 1;
        }
        assert_eq!(hits[2], 0);
        assert!(hits.iter().enumerate().all(|(i, &n)| i == 2 || (1100..1600).contains(&n)), "{hits:?}");
    }

    #[test]
    fn none_and_one() {
        let mut rng = Rng::new(3);
        assert_eq!(pick_two(&mut rng, 0, |_| 0), None);
        assert_eq!(pick_two(&mut rng, 1, |_| 0), Some(0));
    }
}
