//! How often bricks lose their memory: deaths of nodes over hours of their lives, counted by every node for the whole
//! cluster, and told as a fact, so that a node which starts takes over what the others have counted. It is lost if all
//! nodes are down at once; then counting begins anew.

use std::collections::BTreeMap;

use base::{NodeId, Now, Span, Time};
use serde::{Deserialize, Serialize};

/// The fact [`crate::facts::LIVES`].
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Wall clock when counting began.
    pub since_ms: u64,
    pub deaths: u64,
    /// Hours of all live bricks together, in seconds.
    pub brick_seconds: f64,
}

#[derive(Default)]
pub(crate) struct Lives {
    pub record: Record,
    counted_at: Option<Time>,
    /// Bricks that started anew inside their process: how often, in this life of theirs.
    anew: BTreeMap<NodeId, u64>,
}

impl Lives {
    /// At each tick: so many bricks have been live since the last one.
    pub fn tick(&mut self, now: Now, live: usize) {
        if self.record.since_ms == 0 {
            self.record.since_ms = now.wall_ms;
        }
        let span = self.counted_at.map_or(Span::ZERO, |at| now.mono.since(at));
        self.counted_at = Some(now.mono);
        self.record.brick_seconds += span.as_secs_f64() * live as f64;
    }

    pub fn died(&mut self) {
        self.record.deaths += 1;
    }

    /// Takes back a death: the node was only cut off, and its memory is there.
    pub fn was_alive(&mut self) {
        self.record.deaths = self.record.deaths.saturating_sub(1);
    }

    /// What a brick says of how often it started anew. In a new life it begins with none.
    pub fn told_anew(&mut self, id: NodeId, times: u64) {
        let before = self.anew.insert(id, times).unwrap_or(0);
        self.record.deaths += times.saturating_sub(before);
    }

    /// What another node has counted is taken over if it has watched for longer: it saw all that this one saw.
    pub fn take_over(&mut self, other: Record) {
        if !other.brick_seconds.is_finite() {
            return;
        }
        if other.brick_seconds > self.record.brick_seconds * TAKEN_OVER_FROM + 1.0 {
            self.record = other;
        }
    }
}

/// Nodes that watched for about the same time keep their own counts.
const TAKEN_OVER_FROM: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_and_hours_are_counted_and_a_newcomer_takes_over() {
        let mut lives = Lives::default();
        for second in 0..=3600u64 {
            lives.tick(Now { mono: Time(second * 1_000_000), wall_ms: 5 }, 3);
        }
        assert!((lives.record.brick_seconds - 10_800.0).abs() < 1.0);
        lives.died();
        lives.died();
        lives.was_alive();
        lives.told_anew(NodeId(1), 0);
        lives.told_anew(NodeId(1), 2);
        lives.told_anew(NodeId(1), 0);
        assert_eq!((lives.record.deaths, lives.record.since_ms), (3, 5));
        let mut newcomer = Lives::default();
        newcomer.take_over(lives.record);
        assert_eq!(newcomer.record, lives.record);
        let (own, less) = (newcomer.record, Record { brick_seconds: 10_000.0, deaths: 9, since_ms: 1 });
        newcomer.take_over(less);
        assert_eq!(newcomer.record, own);
    }
}
