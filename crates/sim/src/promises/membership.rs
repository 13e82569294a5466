//! Membership converges: some seconds after faults have ended, all live nodes see the same live nodes, which are those.

use std::collections::BTreeSet;

use base::{NodeId, Time};

use super::Broken;

const PROMISE: &str = "membership converges after faults end";

/// Compares what each live node sees as live (`seen`: node, its live set) with who lives.
pub fn check<'a>(
    at: Time,
    alive: &BTreeSet<NodeId>,
    seen: impl Iterator<Item = (usize, Option<&'a BTreeSet<NodeId>>)>,
) -> Result<(), Broken> {
    for (node, sees) in seen {
        if sees != Some(alive) {
            let what = format!("node {node} sees {sees:?}, alive are {alive:?}");
            return Err(Broken { promise: PROMISE, at, what });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_one_too_few_and_no_view_at_all_are_seen() {
        let ids = |ids: &[u64]| ids.iter().map(|id| NodeId(*id)).collect::<BTreeSet<_>>();
        let (alive, more, less) = (ids(&[1, 2]), ids(&[1, 2, 3]), ids(&[1]));
        let check =
            |sees: Option<&BTreeSet<NodeId>>| check(Time(1), &alive, [(0, Some(&alive)), (1, sees)].into_iter());
        assert_eq!(check(Some(&alive)), Ok(()));
        for wrong in [Some(&more), Some(&less), None] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }
}
