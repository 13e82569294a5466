//! No clone runs twice for long: after faults have ended, each clone that is declared runs exactly once, and nothing
//! else runs. A clone that moves may run twice for a moment; not for [`CLONES_WITHIN`]. And none runs on a drained node.

use std::collections::{BTreeMap, BTreeSet};

use base::{Span, Time};

use super::{Broken, CLONES_WITHIN};

const PROMISE: &str = "no clone runs twice for long, and every one runs";
const DRAINED: &str = "no clone stays on a drained node";

/// `service/number`
pub type Name = String;

#[derive(Default)]
pub struct Clones {
    /// Since when a clone does not run as often as it should.
    wrong_since: BTreeMap<Name, Time>,
    /// Since when one is where it should not be.
    misplaced_since: BTreeMap<(usize, Name), Time>,
}

impl Clones {
    /// Faults strike: what is wrong now does not count.
    pub fn excuse(&mut self) {
        self.wrong_since.clear();
        self.misplaced_since.clear();
    }

    /// `misplaced`: children of live nodes that are drained, while others are not.
    pub fn check_drained(&mut self, at: Time, misplaced: impl Iterator<Item = (usize, Name)>) -> Result<(), Broken> {
        let misplaced: BTreeSet<(usize, Name)> = misplaced.collect();
        self.misplaced_since.retain(|one, _| misplaced.contains(one));
        for one in misplaced {
            let since = *self.misplaced_since.entry(one.clone()).or_insert(at);
            if at.since(since) >= CLONES_WITHIN {
                let what = format!("{} runs on node {}, which is drained, since {since:?}", one.1, one.0);
                return Err(Broken { promise: DRAINED, at, what });
            }
        }
        Ok(())
    }

    /// `within`: a clone may be wrong for so long. `wanted`: what is declared. `running`: every child process of every live node.
    pub fn check(
        &mut self,
        at: Time,
        within: Span,
        wanted: impl Iterator<Item = Name>,
        running: impl Iterator<Item = (usize, Name)>,
    ) -> Result<(), Broken> {
        // Wanted, and where it runs.
        let mut all: BTreeMap<Name, (usize, Vec<usize>)> = wanted.map(|name| (name, (1, Vec::new()))).collect();
        for (node, name) in running {
            all.entry(name).or_default().1.push(node);
        }
        self.wrong_since.retain(|name, _| all.get(name).is_some_and(|(wanted, at)| *wanted != at.len()));
        for (name, (wanted, nodes)) in all {
            if wanted == nodes.len() {
                continue;
            }
            let since = *self.wrong_since.entry(name.clone()).or_insert(at);
            if at.since(since) >= within {
                let what = format!("{name} should run {wanted} times and runs on nodes {nodes:?} since {since:?}");
                return Err(Broken { promise: PROMISE, at, what });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(running: &[(usize, &str)]) -> Result<(), Broken> {
        let mut clones = Clones::default();
        for second in 0..=15 {
            let wanted = ["shop/0", "shop/1"].into_iter().map(String::from);
            let running = running.iter().map(|(node, name)| (*node, (*name).to_string()));
            clones.check(Time::ZERO + Span::secs(second), CLONES_WITHIN, wanted, running)?;
        }
        Ok(())
    }

    #[test]
    fn twins_missing_ones_and_strangers_are_seen() {
        assert_eq!(check(&[(0, "shop/0"), (2, "shop/1")]), Ok(()));
        assert!(check(&[(0, "shop/0"), (2, "shop/1"), (1, "shop/1")]).is_err());
        assert!(check(&[(0, "shop/0")]).is_err());
        assert!(check(&[(0, "shop/0"), (2, "shop/1"), (2, "old/0")]).is_err());
    }

    #[test]
    fn one_that_stays_on_a_drained_node_is_seen() {
        let mut clones = Clones::default();
        let at = |second| Time::ZERO + Span::secs(second);
        for second in 0..14 {
            assert_eq!(clones.check_drained(at(second), [(0, "a/0".to_string())].into_iter()), Ok(()));
        }
        assert!(clones.check_drained(at(15), [(0, "a/0".to_string())].into_iter()).is_err());
        assert_eq!(clones.check_drained(at(16), [(1, "a/0".to_string())].into_iter()), Ok(()), "another place");
    }

    #[test]
    fn a_short_overlap_is_a_move() {
        let mut clones = Clones::default();
        for second in 0..60 {
            let twice = if second % 20 < 10 {
                vec![(0, "a/0".to_string()), (1, "a/0".into())]
            } else {
                vec![(1, "a/0".into())]
            };
            let at = Time::ZERO + Span::secs(second);
            assert_eq!(clones.check(at, CLONES_WITHIN, ["a/0".to_string()].into_iter(), twice.into_iter()), Ok(()));
        }
    }
}
