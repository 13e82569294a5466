//! What a node's part of class `session` tells the other nodes.

use std::collections::BTreeMap;

use base::{NodeId, Time};
use class::{Class, Leaver, Leaving, Moment, Peer, Scene};
use serde::{Deserialize, Serialize};

use super::limits::{BRICKS_ASKED, MEMBERS_MIN};
use super::{Opinion, Session};

/// Told once a second. It lies in one object with the reports of other classes, so names of its fields are never given twice.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    pub brick: BrickLoad,
    /// What its stub thinks of the bricks that it asks.
    pub opinion: Opinion,
    /// By namespace: how often its values were written anew, and after how long in sum, milliseconds.
    pub intervals: BTreeMap<String, (u64, u64)>,
}

/// What a node's brick holds and does.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BrickLoad {
    pub entries: u64,
    pub bytes: u64,
    pub bytes_max: u64,
    /// Reads and writes since the node started.
    pub operations: u64,
    /// Times that it gave up its memory in this life of its node.
    pub anew: u64,
}

/// Key of [`BrickReport`] among what a node tells all others.
pub const BRICK: &str = "brick";

/// How far a node's brick has followed the brick map: told to all at each change.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BrickReport {
    pub seen: u64,
    pub filled: u64,
}

impl Report {
    /// What of it is worth telling all nodes at once. The rest are figures, which change all the time.
    pub(super) fn standing(&self) -> Report {
        let brick = BrickLoad { anew: self.brick.anew, ..BrickLoad::default() };
        Report { opinion: self.opinion.clone(), brick, intervals: BTreeMap::new() }
    }
}

impl Session {
    pub(super) fn told(&mut self, now: Time) -> Report {
        let figures: BTreeMap<&str, u64> = self.shown().map(|(figure, n)| (figure.name, n)).collect();
        let figure = |name: &str| figures.get(name).copied().unwrap_or(0);
        let brick = BrickLoad {
            entries: figure("session.entries"),
            bytes: figure("session.bytes"),
            bytes_max: figure("session.bytes_max"),
            operations: figure("session.brick_operations"),
            anew: self.starts_anew(),
        };
        let opinion = self.look(now);
        let intervals = self.intervals().into_iter().map(|(name, i)| (name.to_owned(), (i.count, i.sum_ms)));
        Report { brick, opinion, intervals: intervals.collect() }
    }

    pub fn brick_report(&self) -> BrickReport {
        BrickReport { seen: self.map_seen(), filled: self.filled() }
    }

    /// Why this node's brick is needed. Until it ends it does not matter that others are still taking in what they are to have.
    pub(super) fn needed(&self, scene: &Scene<'_, Self>, Leaver { who, how, when }: Leaver) -> Option<String> {
        let Some(map) = self.map() else { return Some("the brick map is not known yet".into()) };
        if !map.is_brick(who) {
            return None;
        }
        let count = map.members.len();
        if how == Leaving::Remove && count <= MEMBERS_MIN && map.members.contains(&who) {
            return Some(format!("{count} bricks are the fewest that keep three copies; let another node join first"));
        }
        if count < BRICKS_ASKED {
            return Some(format!("with {count} of {BRICKS_ASKED} bricks, sessions would be refused or lost meanwhile"));
        }
        if map.old.is_some() && how == Leaving::Restart {
            return Some("bricks are changing places".into());
        }
        // Who leaves for good is out of the brick map only when all others have what they should, whatever they lack now.
        let at_once = when == Moment::Ends || how == Leaving::Restart;
        let told = |id: NodeId| serde_json::from_slice::<BrickReport>((scene.facts)(id, BRICK)?).ok();
        for id in map.everyone().into_iter().filter(|id| *id != who) {
            let unknown = Peer { name: id.to_string(), ..Peer::default() };
            let peer = scene.peers.get(&id).unwrap_or(&unknown);
            let name = &peer.name;
            // Of two that leave at the same time the first goes first.
            let goes_first = peer.leaves.is_some() && id < who;
            let report = if id == scene.me { Some(self.brick_report()) } else { told(id) };
            let is_settled = report.is_some_and(|report| report.filled >= map.epoch);
            match (peer.is_live, goes_first, is_settled) {
                (false, ..) => return Some(format!("{name} is not live: its copies are missing already")),
                (_, true, _) => return Some(format!("{name} is leaving")),
                (.., false) if at_once => return Some(format!("the brick of {name} is not settled yet")),
                (true, false, _) => (),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use base::{Boot, Rng};
    use bytes::Bytes;

    use super::*;
    use crate::BrickMap;

    #[test]
    fn a_brick_is_needed_while_the_others_lack_what_it_has() {
        let ids = |all: &[u64]| all.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
        let needed = |members: &[u64], [gone, leaves]: [u64; 2], filled: u64, old: Option<&[u64]>, how, when| {
            let mut session = Session::new(NodeId(1), Boot(1), Rng::new(1));
            session.map = Some(BrickMap { epoch: 7, members: ids(members), old: old.map(ids) });
            session.fill.filled = 7;
            let peer = |id: &u64| Peer {
                name: format!("n{id}"),
                is_live: *id != gone,
                leaves: (*id == leaves).then_some(Leaving::Restart),
                is_usable: true,
            };
            let peers = members.iter().map(|id| (NodeId(*id), peer(id))).collect();
            let told: Bytes = serde_json::to_vec(&BrickReport { seen: 7, filled }).unwrap().into();
            let facts = |_: NodeId, key: &str| (key == BRICK).then_some(&told);
            let scene = Scene { me: NodeId(1), peers: &peers, spaces: BTreeMap::new(), facts: &facts };
            session.needs(&scene, Leaver { who: NodeId(3), how, when }).unwrap_or_default()
        };
        const FOUR: &[u64] = &[1, 2, 3, 4];
        let (restart, remove, wished, ends) = (Leaving::Restart, Leaving::Remove, Moment::Wished, Moment::Ends);
        for (is, says) in [
            (needed(FOUR, [0, 0], 7, None, restart, wished), ""),
            (needed(FOUR, [2, 0], 7, None, restart, wished), "n2 is not live"),
            (needed(FOUR, [0, 2], 7, None, restart, wished), "n2 is leaving"),
            (needed(FOUR, [0, 4], 7, None, restart, wished), ""),
            (needed(FOUR, [0, 0], 6, None, restart, wished), "the brick of n2 is not settled"),
            (needed(FOUR, [0, 0], 6, None, remove, wished), ""),
            (needed(FOUR, [0, 0], 6, None, remove, ends), "the brick of n2 is not settled"),
            (needed(FOUR, [0, 0], 7, Some(FOUR), restart, ends), "changing places"),
            (needed(FOUR, [0, 0], 7, Some(FOUR), remove, ends), ""),
            (needed(&[1, 2, 3], [0, 0], 7, None, remove, ends), "are the fewest"),
            (needed(&[1, 2, 3], [0, 0], 7, None, restart, ends), ""),
            (needed(&[1, 3], [0, 0], 7, None, restart, ends), "with 2 of 3 bricks"),
            (needed(&[1, 2], [0, 0], 7, None, remove, ends), ""),
        ] {
            assert!(is.contains(says) && is.is_empty() == says.is_empty(), "{is:?} is not {says:?}");
        }
    }
}
