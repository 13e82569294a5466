//! The less loaded of two random choices: nearly as even as knowing everything, and no herd runs to the one that
//! looked idle a moment ago (Mitzenmacher; Ninja 3.3 balances on such reports).

use base::Rng;
use base::checksum::place_hash_pair;

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

/// How much more than the average one candidate may have: 1 / this more, so a quarter. Less moves keys without need,
/// more lets one busy key drown its place (Mirrokni, Thorup, Zadimoghaddam: bounded-load consistent hashing).
const SPARE: u64 = 4;

/// Index of the candidate that a key belongs to: of those that have not much more than the average, the one with the
/// highest weight for the key. `of` gives each one's hash and load. A candidate that comes or goes moves only the keys
/// that are its own; loads move only what is above the bound. `None` when there are none.
pub fn pick_bounded(key: u64, count: usize, of: impl Fn(usize) -> (u64, u64)) -> Option<usize> {
    let bound = bound(count as u64, (0..count).map(|i| of(i).1).sum());
    let below = (0..count).filter(|i| of(*i).1 < bound);
    below.max_by_key(|i| (place_hash_pair(&key.to_le_bytes(), of(*i).0), *i))
}

/// What one of `count` may have at most, once one more has come.
fn bound(count: u64, total: u64) -> u64 {
    ((total + 1) * (SPARE + 1)).div_ceil(count.max(1) * SPARE)
}

#[cfg(test)]
mod tests {
    use base::Rng;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nobody_gets_more_than_the_bound_whatever_comes_and_ends(
            count in 1usize..12,
            steps in prop::collection::vec((0u64..6, any::<bool>()), 1..200),
        ) {
            let mut loads = vec![0u64; count];
            let mut open = Vec::new();
            for (key, ends) in steps {
                if ends && !open.is_empty() {
                    let at: usize = open.remove(key as usize % open.len());
                    loads[at] -= 1;
                    continue;
                }
                let at = pick_bounded(key, count, |i| (i as u64, loads[i])).unwrap();
                loads[at] += 1;
                open.push(at);
                let average = open.len() as f64 / count as f64;
                prop_assert!(loads[at] as f64 <= (average * 1.25).ceil(), "{loads:?}");
            }
        }

        #[test]
        fn one_that_comes_or_goes_moves_only_its_own_keys(count in 1usize..40, gone in 0usize..40, keys in any::<[u64; 32]>()) {
            let gone = gone % (count + 1);
            let few: Vec<u64> = (0..=count as u64).filter(|n| *n != gone as u64).collect();
            for key in keys {
                let all = pick_bounded(key, count + 1, |i| (i as u64, 0)).unwrap();
                let left = few[pick_bounded(key, count, |i| (few[i], 0)).unwrap()];
                prop_assert!(all == gone || all as u64 == left, "{key} went from {all} to {left}");
            }
        }
    }

    #[test]
    fn keys_are_spread_and_always_in_the_same_way() {
        let mut hits = [0u32; 5];
        for key in 0..5000 {
            hits[pick_bounded(key, 5, |i| (i as u64, 0)).unwrap()] += 1;
        }
        assert!(hits.iter().all(|n| (900..1100).contains(n)), "{hits:?}");
        // Nodes of adjacent versions must agree: these may not change.
        let firsts: Vec<usize> = (0..12).map(|key| pick_bounded(key, 5, |i| (i as u64, 0)).unwrap()).collect();
        assert_eq!(firsts, [3, 3, 3, 3, 0, 1, 2, 2, 0, 4, 1, 4]);
        assert_eq!(pick_bounded(1, 0, |_| (0, 0)), None);
    }

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
