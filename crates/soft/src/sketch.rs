//! A rateless sketch of a set of numbers: a list of coded symbols, as long as one wishes, of which the first few more than two sets
//! differ in give that difference, whatever the sets have in common (Yang and others, *Practical Rateless Set Reconciliation*, SIGCOMM
//! 2024). Each number stands in the first symbol, and in each later one the less likely the further it is; the difference of two
//! lists is the list of the difference, and is peeled from symbols in which one number is left.

use base::checksum::place_hash_pair;

/// The numbers that stand in one place, folded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coded {
    pub sum: u64,
    /// Of the numbers' checks: says that one is left, and which.
    pub check: u64,
    pub count: i64,
}

/// What one of two sets has and the other has not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Difference {
    pub mine: Vec<u64>,
    pub theirs: Vec<u64>,
}

impl Coded {
    fn fold(&mut self, number: u64, count: i64) {
        self.sum ^= number;
        self.check ^= check(number);
        self.count = self.count.wrapping_add(count);
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The first `length` symbols of a set.
pub fn coded(numbers: &[u64], length: usize) -> Vec<Coded> {
    let mut all = vec![Coded::default(); length];
    for &number in numbers {
        Places::of(number).take_while(|at| *at < length).for_each(|at| all[at].fold(number, 1));
    }
    all
}

/// What the set behind these symbols and this one differ in; none if that are more numbers than the symbols can tell.
pub fn difference(theirs: &[Coded], mine: &[u64]) -> Option<Difference> {
    let mut left = coded(mine, theirs.len());
    for (left, theirs) in left.iter_mut().zip(theirs) {
        let Coded { sum, check, count } = *theirs;
        *left = Coded { sum: sum ^ left.sum, check: check ^ left.check, count: count.wrapping_sub(left.count) };
    }
    let mut found = Difference::default();
    let mut looks: Vec<usize> = (0..left.len()).collect();
    while let Some(at) = looks.pop() {
        let Coded { sum: number, check: of, count } = left[at];
        if !matches!(count, 1 | -1) || check(number) != of {
            continue;
        }
        if count > 0 { &mut found.theirs } else { &mut found.mine }.push(number);
        // So many numbers cannot be told apart by so few symbols: it is nothing that a node has sent.
        if found.theirs.len() + found.mine.len() > theirs.len() {
            return None;
        }
        for at in Places::of(number).take_while(|at| *at < theirs.len()) {
            left[at].fold(number, -count);
            looks.push(at);
        }
    }
    left.iter().all(Coded::is_empty).then_some(found)
}

fn check(number: u64) -> u64 {
    place_hash_pair(&number.to_be_bytes(), 0x0073_6b65_7463_6821)
}

/// Where a number stands: in place 0, and in place i with a chance of 1 / (1 + i/2).
struct Places {
    next: usize,
    state: u64,
}

impl Places {
    fn of(number: u64) -> Self {
        Self { next: 0, state: number | 1 }
    }
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let at = self.next;
        // All of these operations give the same at every processor (IEEE 754).
        self.state = self.state.wrapping_mul(0xda94_2042_e4dd_58b5);
        let further = (at as f64 + 1.5) * (4_294_967_296.0 / (self.state as f64 + 1.0).sqrt() - 1.0);
        self.next = at.saturating_add(further.ceil().max(1.0) as usize);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers as hashes are.
    fn numbers(from: u64, count: u64) -> Vec<u64> {
        (from..from + count).map(|n| place_hash_pair(&n.to_be_bytes(), 7)).collect()
    }

    fn sorted(Difference { mut mine, mut theirs }: Difference) -> (Vec<u64>, Vec<u64>) {
        mine.sort_unstable();
        theirs.sort_unstable();
        (mine, theirs)
    }

    #[test]
    fn bytes_follow_what_differs_and_not_what_is_the_same() {
        for (same, differ) in [(0, 1), (100, 1), (20_000, 2), (20_000, 80), (4_000, 1_000), (100, 0)] {
            let mine = [numbers(0, same), numbers(1 << 40, differ / 2)].concat();
            let theirs = [numbers(0, same), numbers(1 << 50, differ - differ / 2)].concat();
            let symbols = coded(&theirs, 4 * differ as usize + 8);
            let needed = (1..=symbols.len()).find(|n| difference(&symbols[..*n], &mine).is_some()).unwrap();
            let bound = (2 * differ as usize + 4).max(1);
            assert!(needed <= bound, "{same} the same, {differ} not: {needed} symbols");
            let (mut only_mine, mut only_theirs) =
                (numbers(1 << 40, differ / 2), numbers(1 << 50, differ - differ / 2));
            only_mine.sort_unstable();
            only_theirs.sort_unstable();
            assert_eq!(sorted(difference(&symbols, &mine).unwrap()), (only_mine, only_theirs));
        }
    }

    #[test]
    fn the_symbols_of_a_set_are_the_same_at_every_node_of_every_version() {
        let shown: Vec<(u64, i64)> =
            coded(&[1, 2, 0xffff_ffff_ffff_ffff], 6).iter().map(|c| (c.sum, c.count)).collect();
        let expected = [(u64::MAX - 3, 3), (3, 2), (3, 2), (u64::MAX - 1, 2), (0, 0), (0, 0)];
        assert_eq!(shown, expected);
    }

    proptest! {
        #[test]
        fn it_is_the_difference_or_nothing(
            mine in prop::collection::btree_set(1..2_000u64, 0..300),
            theirs in prop::collection::btree_set(1..2_000u64, 0..300),
            length in 1..700usize,
        ) {
            let of = |set: &std::collections::BTreeSet<u64>| -> Vec<u64> {
                set.iter().flat_map(|n| numbers(*n, 1)).collect()
            };
            let (only_mine, only_theirs): (Vec<u64>, Vec<u64>) =
                (mine.difference(&theirs).copied().collect(), theirs.difference(&mine).copied().collect());
            match difference(&coded(&of(&theirs), length), &of(&mine)) {
                None => prop_assert!(only_mine.len() + only_theirs.len() > length / 3),
                Some(found) => {
                    let expected = (of(&only_mine.into_iter().collect()), of(&only_theirs.into_iter().collect()));
                    let (a, b) = (sorted(found), sorted(Difference { mine: expected.0, theirs: expected.1 }));
                    prop_assert_eq!(a, b);
                }
            }
        }

        #[test]
        fn symbols_that_nobody_made_lead_nowhere(
            told in prop::collection::vec((any::<u64>(), any::<u64>(), -2..3i64), 0..60),
            number in any::<u64>(),
            places in prop::collection::vec(any::<bool>(), 0..60),
        ) {
            let told: Vec<Coded> = told.into_iter().map(|(sum, check, count)| Coded { sum, check, count }).collect();
            drop(difference(&told, &[number]));
            // One that claims to be alone where it cannot stand.
            let alone = Coded { sum: number, check: check(number), count: 1 };
            let forged: Vec<Coded> =
                places.iter().map(|is| if *is { alone } else { Coded::default() }).collect();
            drop(difference(&forged, &[]));
        }
    }
}
