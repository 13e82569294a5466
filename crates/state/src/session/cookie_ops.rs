//! Operations by cookie (SSM 3.2): a write goes to random live bricks, those with more room more often, and the cookie
//! names the ones that acknowledged; a read asks two of these and takes the first good answer.

use std::collections::BTreeMap;

use base::{NodeId, Outcome, Refused};

use super::brick::{Want, Write};
use super::cookie::Cookie;
use super::limits::{BRICKS_ASKED, BRICKS_READ, SETTLE_GRACE};
use super::map::Placement;
use super::op::{Action, Reply};
use super::ops::{Leg, LegState, Phase, Running};
use super::run::Next;
use super::table::Key;
use super::{Call, Session, Version};

/// Set in the namespace's number for keys of cookie mode: they lie elsewhere, so the two ways must not meet.
pub(super) const COOKIE_BIT: u32 = 1 << 31;

pub(super) fn is_cookie_key(key: &Key) -> bool {
    key.namespace & COOKIE_BIT != 0
}

impl Session {
    /// Opens the cookie of an operation, if it has one.
    pub(super) fn open_cookie(&mut self, call: &Call, op: &mut Running, text: Option<&str>) -> Result<(), Refused> {
        op.key = Key::new(op.key.namespace | COOKIE_BIT, op.key.bytes.clone());
        let Some(text) = text else { return Ok(()) };
        let namespace = op.namespace.as_deref().and_then(|name| self.namespaces.get(name)).expect("just looked up");
        let cookie = namespace.sealer.open(text, call.wall_ms).map_err(|e| Refused::wrong(e.to_string()))?;
        self.clock.pass(cookie.version);
        op.cookie = Some(cookie);
        Ok(())
    }

    /// Chooses bricks for a write, or takes those of the cookie.
    pub(super) fn place_cookie(&mut self, op: &mut Running) -> Result<(), Refused> {
        let nodes = match (&op.action, &op.cookie) {
            (Action::Put { .. }, _) | (_, None) => self.random_bricks()?,
            // What is dead has no memory to remove it from.
            (Action::Remove, Some(cookie)) => {
                let live: Vec<_> = cookie.bricks.iter().copied().filter(|node| self.is_live(*node)).collect();
                if live.is_empty() {
                    return Err(Refused::busy("no brick of the cookie is live", super::limits::RETRY_AFTER));
                }
                live
            }
            (_, Some(cookie)) => cookie.bricks.clone(),
        };
        op.place_at(&nodes);
        Ok(())
    }

    /// Up to three live bricks, weighted by the room in their windows.
    fn random_bricks(&mut self) -> Result<Vec<NodeId>, Refused> {
        let busy = |why: &str| Refused::busy(why, super::limits::RETRY_AFTER);
        for peer in self.peers.values_mut().filter(|peer| peer.live && !peer.window.has_room()) {
            peer.counts.no_room += 1;
        }
        let map = self.map.as_ref().ok_or_else(|| busy("this node does not know the bricks yet"))?;
        let room = |node: &NodeId| {
            if *node == self.me {
                return Some(flow::window::WINDOW_FIRST as u64);
            }
            let window = &self.peers.get(node).filter(|peer| peer.is_usable())?.window;
            Some((window.size() - f64::from(window.under_way())).max(1.0) as u64)
        };
        let mut rooms: BTreeMap<NodeId, u64> =
            map.members.iter().filter_map(|node| Some((*node, room(node)?))).collect();
        if rooms.len() < Placement::of(&map.members[..map.members.len().min(BRICKS_ASKED)]).acks() {
            return Err(busy("too few bricks are live and have room"));
        }
        let mut chosen = Vec::new();
        while chosen.len() < BRICKS_ASKED && !rooms.is_empty() {
            let mut at = self.rng.below(rooms.values().sum());
            let pick = rooms.iter().find(|(_, room)| {
                let found = at < **room;
                at = at.saturating_sub(**room);
                found
            });
            let node = *pick.expect("the number is below the sum").0;
            rooms.remove(&node);
            chosen.push(node);
        }
        Ok(chosen)
    }

    pub(super) fn step_cookie_read(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Next {
        let cookie = op.cookie.clone().expect("checked when it was asked");
        loop {
            let good = op.legs.iter().find(|leg| {
                let sum = leg.found.value.as_ref().map(|value| value.sum);
                leg.state == LegState::Answered && leg.found.version == Some(cookie.version) && sum == Some(cookie.sum)
            });
            if let Some(good) = good {
                let found = good.found.clone();
                let value = found.value.clone().expect("it is good");
                // A brick that the cookie names and that has nothing restarted, or found its copy damaged.
                let empty = |leg: &Leg| leg.state == LegState::Answered && leg.found.version.is_none();
                if op.legs.iter().any(empty) {
                    self.repair(call, op, &found);
                }
                if matches!(op.action, Action::Get) {
                    let lease_left = found.lease_left;
                    self.done(call, op, Reply::Value { value: value.bytes, version: cookie.version, lease_left });
                    return Next::Over;
                }
                // Touch: the value goes to new bricks, under a new cookie.
                op.base = Some(found);
                let nodes = match self.random_bricks() {
                    Ok(nodes) => nodes,
                    Err(refused) => return self.give_up(call, op, &refused.why),
                };
                self.let_go(op);
                op.place_at(&nodes);
                self.make_write(op, Some(value), None);
                self.next_round(op, Phase::Write);
                return self.step_write(call, number, op);
            }
            let under_way = op.legs.iter().filter(|leg| leg.state == LegState::Waiting).count();
            let me = self.me;
            let slow = |leg: &Leg| self.peers.get(&leg.node).is_some_and(|peer| peer.slow);
            let idle = (0..op.legs.len()).filter(|at| op.legs[*at].state == LegState::Idle);
            if under_way < BRICKS_READ
                && let Some(at) = idle.min_by_key(|at| (op.legs[*at].node != me, slow(&op.legs[*at])))
            {
                self.send_read(call, number, op, at, Want::Newer(Version::default()));
                continue;
            }
            if under_way > 0 {
                return Next::Wait;
            }
            let newer = op.legs.iter().filter_map(|leg| leg.found.version).any(|version| version > cookie.version);
            if newer {
                op.ask.take().into_iter().for_each(|id| {
                    self.figures.refused += 1;
                    call.answer(id, Outcome::Refused(Refused::wrong("the cookie was superseded by a newer write")));
                });
                return Next::Over;
            }
            if op.legs.iter().any(|leg| leg.state == LegState::TimedOut) && self.ask_again(op) {
                continue;
            }
            if op.legs.iter().any(|leg| leg.state == LegState::NoRoom) {
                return self.give_up(call, op, super::write::OVERLOADED);
            }
            // Not seen for a moment is not lost yet.
            let away =
                |leg: &Leg| self.peers.get(&leg.node).is_none_or(|peer| call.now.since(peer.since) < SETTLE_GRACE);
            if op.legs.iter().any(|leg| leg.state == LegState::Dead && away(leg)) {
                return self.wait_or_give_up(call, number, op, "no brick of the cookie that is live has the value");
            }
            self.done(call, op, Reply::Lost);
            return Next::Over;
        }
    }

    pub(super) fn cookie_reply(&mut self, call: &Call, op: &Running, write: &Write) -> Reply {
        let Some(value) = &write.value else { return Reply::Removed(op.had) };
        let bricks = op.legs.iter().filter(|leg| leg.has_stored()).map(|leg| leg.node).collect();
        let lease_end_ms = call.wall_ms + write.lease.as_millis();
        let cookie = Cookie { bricks, version: write.version, lease_end_ms, sum: value.sum };
        let namespace = op.namespace.as_deref().and_then(|name| self.namespaces.get(name));
        let text = namespace.map(|namespace| namespace.sealer.seal(&cookie));
        Reply::Stored { version: write.version, old: None, cookie: text }
    }
}

impl Running {
    fn place_at(&mut self, nodes: &[NodeId]) {
        self.places = [Some(Placement::of(nodes)), None];
        self.legs = nodes.iter().copied().map(Leg::new).collect();
    }
}
