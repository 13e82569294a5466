//! Walks over all keys of a namespace, page by page. Pages are whole shards of the hash space, which is cut alike on
//! every brick; all live bricks list the same shards, and the newest version of each key decides if it is there. Who wants to know how
//! many there are is told by the first page: exactly if all of them are on it, else by what each brick has counted.

use std::collections::BTreeMap;

use base::NodeId;
use bytes::Bytes;

use super::brick::Line;
use super::limits::{BRICKS_ACKED, BRICKS_ASKED, PAGE_ENTRIES, SHARDS};
use super::op::{Action, Reply};
use super::ops::{Leg, LegState, Phase, Running};
use super::run::Next;
use super::wire::{ListMessage, PageMessage, What};
use super::{Call, Kind, Session, Version};

pub(super) struct Walk {
    cursor: u64,
    count: u64,
    /// First shard that at least one brick did not list.
    end: u64,
    /// By shard and key: the newest version, and of which kind its value is, if it has one.
    keys: BTreeMap<(usize, Bytes), (Version, Option<Kind>)>,
    /// What each brick has counted.
    values: BTreeMap<NodeId, u64>,
}

impl Walk {
    fn from(cursor: u64) -> Self {
        Self { cursor, count: 0, end: SHARDS as u64, keys: BTreeMap::new(), values: BTreeMap::new() }
    }

    pub fn take(&mut self, from: NodeId, page: PageMessage) {
        let next = page.next;
        self.values.extend(page.values.map(|values| (from, values)));
        self.take_lines(page.take(), next);
    }

    fn take_lines(&mut self, lines: Vec<Line>, next: u64) {
        if next > 0 {
            self.end = self.end.min(next);
        }
        for line in lines {
            let (version, kind) = (line.version, line.live.then_some(line.kind));
            let place = (line.key.shard(), line.key.bytes);
            let known = self.keys.entry(place).or_insert((version, kind));
            if version > known.0 {
                *known = (version, kind);
            }
        }
    }
}

impl Session {
    pub(super) fn step_walk(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Next {
        loop {
            let (cursor, count) = match (&op.action, &op.walk) {
                (Action::Scan { cursor, .. }, None) => (*cursor, 0),
                (_, None) => (0, 0),
                (_, Some(walk)) => (walk.cursor, walk.count),
            };
            let idle: Vec<usize> = (0..op.legs.len()).filter(|at| op.legs[*at].state == LegState::Idle).collect();
            if idle.len() == op.legs.len() || op.walk.is_none() {
                op.walk = Some(Box::new(Walk { count, ..Walk::from(cursor) }));
            }
            for at in idle {
                self.list(call, number, op, at);
            }
            if op.is_waiting() {
                return Next::Wait;
            }
            let silent = op.legs.iter().filter(|leg| leg.state != LegState::Answered).count();
            // Every key must have been listed by so many of its bricks that one has the last acknowledged write.
            let bricks = op.legs.len().min(BRICKS_ASKED);
            if silent > bricks.min(BRICKS_ACKED) - 1 {
                if self.ask_again(call, op) {
                    continue;
                }
                return self.wait_or_give_up(call, number, op, "too many bricks are not live to list all keys");
            }
            let walk = op.walk.as_mut().expect("it walks");
            let end = walk.end;
            let there = std::mem::take(&mut walk.keys)
                .into_iter()
                .filter(|((shard, _), _)| (*shard as u64) < end)
                .filter_map(|((_, key), (_, kind))| Some((key, kind?)));
            let next = if end >= SHARDS as u64 { 0 } else { end };
            if matches!(op.action, Action::Scan { .. }) {
                let keys = there.collect();
                self.done(call, op, Reply::Page { cursor: next, keys });
                return Next::Over;
            }
            let (is_first, values) = (walk.cursor == 0, std::mem::take(&mut walk.values));
            let count = walk.count + there.count() as u64;
            if next > 0
                && is_first
                && let Some(count) = self.counted(op, &values)
            {
                self.done(call, op, Reply::Count(count));
                return Next::Over;
            }
            let walk = op.walk.as_mut().expect("it walks");
            if next == 0 {
                self.done(call, op, Reply::Count(count));
                return Next::Over;
            }
            (walk.count, walk.cursor) = (count, next);
            self.next_round(op, Phase::Walk);
            // Pages of one walk are no tries of one round.
            op.round &= 0x1f;
        }
    }

    /// How many values there are by what the settled bricks have counted. None if there is one that cannot say (an older program).
    fn counted(&self, op: &Running, values: &BTreeMap<NodeId, u64>) -> Option<u64> {
        let map = self.map.as_ref()?;
        // In a transition all that was acknowledged is where it was, too.
        let members = map.old.as_ref().unwrap_or(&map.members);
        let wanted = op.filled_wanted();
        let says = |leg: &&Leg| leg.state == LegState::Answered && leg.filled >= wanted && members.contains(&leg.node);
        let said = op.legs.iter().filter(says).map(|leg| values.get(&leg.node).copied());
        estimate(members.len(), &said.collect::<Option<Vec<u64>>>()?)
    }

    fn list(&mut self, call: &mut Call, number: u64, op: &mut Running, at: usize) {
        let cursor = op.walk.as_ref().map_or(0, |walk| walk.cursor);
        let most = match &op.action {
            Action::Scan { count, .. } => (*count as usize).clamp(1, PAGE_ENTRIES),
            _ => PAGE_ENTRIES,
        };
        let namespace = op.key.namespace;
        if op.legs[at].node != self.me {
            let list = ListMessage { cursor, count: most as u32, namespace, fill: false };
            return self.send(call, number, op, at, What::List(list), Bytes::new());
        }
        let (lines, next) = self.brick.list(call.now, cursor, most, |key, _| key.namespace == namespace);
        let walk = op.walk.as_mut().expect("it walks");
        walk.take_lines(lines, next);
        walk.values.insert(self.me, self.brick.values(namespace));
        (op.legs[at].state, op.legs[at].filled) = (LegState::Answered, self.fill.filled);
    }
}

/// Of so many bricks some have said how many values they have. Each value is at three of them, spread evenly; where there are no
/// more than three, each brick has all.
fn estimate(members: usize, said: &[u64]) -> Option<u64> {
    if members <= BRICKS_ASKED {
        return said.iter().copied().max();
    }
    let copies = (said.len() * BRICKS_ASKED) as u128;
    let sum = said.iter().map(|values| u128::from(*values)).sum::<u128>() * members as u128;
    let rounded = (sum + copies / 2).checked_div(copies)?;
    Some(u64::try_from(rounded).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_bricks_make_one_of_values() {
        assert_eq!((estimate(3, &[]), estimate(5, &[])), (None, None));
        assert_eq!((estimate(1, &[7]), estimate(3, &[100, 99, 100])), (Some(7), Some(100)));
        assert_eq!(estimate(5, &[600, 600, 600, 600, 600]), Some(1000));
        assert_eq!(estimate(5, &[600, 610, 590, 600]), Some(1000), "one is away");
        assert_eq!(estimate(4, &[u64::MAX; 4]), Some(u64::MAX));
    }
}
