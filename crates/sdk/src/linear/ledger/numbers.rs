//! Sets of numbers as text: `1:3,7`, as IMAP writes them.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Numbers of items in a folder.
///
/// ```
/// let numbers: sdk::Numbers = "1:3,7".parse().unwrap();
/// assert_eq!(numbers.iter().collect::<Vec<_>>(), [1, 2, 3, 7]);
/// assert_eq!(sdk::Numbers::from_iter([9, 3, 2, 2]).to_string(), "2:3,9");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers(
    /// Invariant: in order, and none touches the next one.
    Vec<(u32, u32)>,
);

/// Text that is no set of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoNumbers;

impl Numbers {
    /// All that there are.
    pub fn all() -> Self {
        Self(vec![(1, u32::MAX)])
    }

    pub fn one(number: u32) -> Self {
        Self(vec![(number, number)])
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> u64 {
        self.0.iter().map(|(from, to)| u64::from(to - from) + 1).sum()
    }

    pub fn contains(&self, number: u32) -> bool {
        let at = self.0.partition_point(|(_, to)| *to < number);
        self.0.get(at).is_some_and(|(from, _)| *from <= number)
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|(from, to)| *from..=*to)
    }

    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u32>> {
        self.0.iter().map(|(from, to)| *from..=*to)
    }

    pub fn insert(&mut self, number: u32) {
        self.add(number, number);
    }

    pub fn extend(&mut self, others: &Self) {
        others.0.iter().for_each(|(from, to)| self.add(*from, *to));
    }

    /// Those not below this one.
    pub(super) fn from(&self, least: u32) -> Self {
        let above = self.0.iter().filter(|(_, to)| *to >= least);
        Self(above.map(|(from, to)| ((*from).max(least), *to)).collect())
    }

    fn add(&mut self, from: u32, to: u32) {
        let start = self.0.partition_point(|(_, to)| to.saturating_add(1) < from);
        let end = self.0.partition_point(|(from, _)| *from <= to.saturating_add(1));
        let met = &self.0[start..end.max(start)];
        let least = met.first().map_or(from, |(first, _)| from.min(*first));
        let most = met.last().map_or(to, |(_, last)| to.max(*last));
        self.0.splice(start..end.max(start), [(least, most)]);
    }
}

impl FromIterator<u32> for Numbers {
    fn from_iter<I: IntoIterator<Item = u32>>(all: I) -> Self {
        let mut numbers = Self::default();
        all.into_iter().for_each(|number| numbers.insert(number));
        numbers
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (from, to)) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            if from == to { write!(f, "{from}")? } else { write!(f, "{from}:{to}")? }
        }
        Ok(())
    }
}

impl FromStr for Numbers {
    type Err = NoNumbers;

    fn from_str(text: &str) -> Result<Self, NoNumbers> {
        let mut numbers = Self::default();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (from, to) = part.split_once(':').unwrap_or((part, part));
            let number = |text: &str| text.parse().ok().filter(|number| *number > 0).ok_or(NoNumbers);
            let (from, to): (u32, u32) = (number(from)?, number(to)?);
            numbers.add(from.min(to), from.max(to));
        }
        Ok(numbers)
    }
}

impl fmt::Display for NoNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers are wanted, such as 1:3,7")
    }
}

impl std::error::Error for NoNumbers {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_are_what_a_set_of_them_is() {
        let mut rng = base::Rng::new(4);
        for _ in 0..2_000 {
            let (mut numbers, mut set) = (Numbers::default(), BTreeSet::new());
            for _ in 0..rng.below(12) {
                let from = 1 + rng.below(30) as u32;
                let to = from + rng.below(4) as u32;
                numbers.add(from, to);
                set.extend(from..=to);
            }
            assert_eq!(numbers.iter().collect::<Vec<_>>(), set.iter().copied().collect::<Vec<_>>());
            assert!(numbers.0.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{numbers}");
            assert_eq!(numbers.to_string().parse(), Ok(numbers.clone()));
            assert_eq!(numbers.len(), set.len() as u64);
            let least = rng.below(40) as u32;
            assert_eq!(numbers.contains(least), set.contains(&least));
            assert!(numbers.from(least).iter().eq(set.range(least..).copied()));
        }
    }

    #[test]
    fn what_is_no_set_of_numbers_is_refused() {
        for text in ["0", "a", "1:", ":", "1,,2", "1:2:3", "4294967296", "-1", " 1"] {
            assert_eq!(text.parse::<Numbers>(), Err(NoNumbers), "{text}");
        }
        assert_eq!("3:1".parse::<Numbers>().unwrap().to_string(), "1:3");
        assert_eq!(Numbers::all().to_string(), "1:4294967295");
        assert!("".parse::<Numbers>().unwrap().is_empty());
    }
}
