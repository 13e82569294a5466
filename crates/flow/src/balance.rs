//! The less loaded of two random choices: nearly as even as knowing everything, and no herd runs to the one that
//! looked idle a moment ago (Mitzenmacher; Ninja 3.3 balances on such reports). Of a few the least loaded is found as quickly: where
//! each can do some things at once, nobody waits at one while another one has a place.
//!
//! What a chooser has under way itself it knows now. What others report is old: with many choosers, all that run to whoever
//! said that it was idle make it busy, and the next moment all run back (SNS 4.5 saw its queues swing so). So a report moves
//! shares less than it differs, and what is still uneven the next report shows.

use base::Rng;
use base::checksum::place_hash_pair;

/// What is known of a candidate's load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Under way from here: exact.
    pub own: u64,
    /// What its node said last, 0 (idle) to 1000 (full): old, and about all that it does.
    pub reported: u16,
}

/// Full, as nodes report it.
const FULL: u64 = 1000;

impl Load {
    /// Who reports full gets half of what an idle one gets. With shares as far apart as reports the answer to a difference would
    /// be larger than the difference wherever less than a third is left, and never come to rest.
    fn weight(self) -> u64 {
        2 * FULL - u64::from(self.reported).min(FULL)
    }
}

/// Up to this many candidates, the load of each is looked at.
const FEW: usize = 8;

/// Index of one of `count` candidates, by the load that `load` tells of each. `None` when there are none.
pub fn pick_less_loaded(rng: &mut Rng, count: usize, load: impl Fn(usize) -> Load) -> Option<usize> {
    match count {
        0 => None,
        1 => Some(0),
        2..=FEW => Some(least(rng, count, load)),
        _ => {
            let first = rng.below(count as u64) as usize;
            let mut second = rng.below(count as u64 - 1) as usize;
            if second >= first {
                second += 1;
            }
            Some(if is_lighter(rng, load(first), load(second)) { second } else { first })
        }
    }
}

/// With the least of our own under way; of those that have as little, each as often as its report lets it.
fn least(rng: &mut Rng, count: usize, load: impl Fn(usize) -> Load) -> usize {
    let (mut best, mut own, mut weights) = (0, u64::MAX, 0);
    for (at, load) in (0..count).map(&load).enumerate() {
        if load.own < own {
            (best, own, weights) = (at, load.own, load.weight());
        } else if load.own == own {
            weights += load.weight();
            if rng.below(weights) < load.weight() {
                best = at;
            }
        }
    }
    best
}

/// Whether the second is to be chosen.
fn is_lighter(rng: &mut Rng, first: Load, second: Load) -> bool {
    if first.own != second.own {
        return second.own < first.own;
    }
    rng.below(first.weight() + second.weight()) < second.weight()
}

/// A machine is as busy as it should be; more, and a burst waits. Per mille.
const BUSY_WANTED: u16 = 850;
/// How much more than the others a node may do before it gives some away: a request that goes elsewhere costs both more.
const MORE_THAN_OTHERS: u16 = 50;

/// Which part of its requests, per mille, a node gives away to others: `before` until now, with which its load was `load`, and the others'
/// on average `others`. What it keeps makes most of its load, so it keeps as much less as it is too busy, half of that at once.
pub fn give_away(before: u16, load: u16, others: u16) -> u16 {
    let wanted = BUSY_WANTED.max(others.saturating_add(MORE_THAN_OTHERS));
    let kept = f64::from(1000 - before.min(1000)).max(10.0);
    let kept = kept * (f64::from(wanted) / f64::from(load.max(1))).sqrt();
    1000 - kept.clamp(0.0, 1000.0) as u16
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

    fn hits<const N: usize>(loads: [Load; N]) -> [u32; N] {
        let (mut rng, mut hits) = (Rng::new(3), [0u32; N]);
        for _ in 0..N * 1000 {
            hits[pick_less_loaded(&mut rng, N, |i| loads[i]).unwrap()] += 1;
        }
        hits
    }

    #[test]
    fn of_a_few_the_least_loaded_is_picked_and_of_many_the_less_loaded_of_two() {
        let few = hits([5, 4, 3, 4, 5].map(|own| Load { own, reported: 0 }));
        assert_eq!(few, [0, 0, 5000, 0, 0]);
        let many = hits([3, 4, 4, 4, 4, 4, 4, 4, 4, 4].map(|own| Load { own, reported: 0 }));
        assert!((1800..2200).contains(&many[0]), "one of five draws has it: {many:?}");
    }

    #[test]
    fn the_one_with_most_of_our_own_is_never_picked_and_the_rest_share() {
        let hits = hits([5, 5, 900, 5].map(|own| Load { own, reported: 300 }));
        assert_eq!(hits[2], 0);
        assert!(hits.iter().enumerate().all(|(i, &n)| i == 2 || (1100..1600).contains(&n)), "{hits:?}");
    }

    #[test]
    fn reports_move_shares_and_never_all() {
        let hits = hits([0, 1000, 0, 0].map(|reported| Load { own: 0, reported }));
        assert!((520..620).contains(&hits[1]), "half of what an idle one gets: {hits:?}");
        assert!(hits.iter().enumerate().all(|(i, &n)| i == 1 || (1050..1240).contains(&n)), "{hits:?}");
    }

    #[test]
    fn a_node_gives_away_what_is_too_much_for_it_and_takes_it_back() {
        // What comes to it would load it to so much; the others are idle.
        let settle = |comes: f64, others: u16, mut given: u16| {
            for _ in 0..60 {
                let load = (comes * f64::from(1000 - given) / 1000.0).min(1000.0) as u16;
                given = give_away(given, load, others);
            }
            given
        };
        for from in [0, 500, 1000] {
            assert_eq!(settle(600.0, 100, from), 0);
            assert!((270..310).contains(&settle(1200.0, 100, from)), "{}", settle(1200.0, 100, from));
            assert!((700..730).contains(&settle(3000.0, 100, from)), "{}", settle(3000.0, 100, from));
            assert_eq!(settle(3000.0, 1000, from), 0, "to whom?");
        }
    }

    #[test]
    fn none_and_one() {
        let mut rng = Rng::new(3);
        assert_eq!(pick_less_loaded(&mut rng, 0, |_| Load::default()), None);
        assert_eq!(pick_less_loaded(&mut rng, 1, |_| Load::default()), Some(0));
    }
}
