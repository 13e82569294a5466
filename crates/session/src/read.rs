//! Reads by key: ask the own brick and as many others as it takes for enough settled answers; the newest version found
//! counts. What is older somewhere is repaired in passing.

use base::Span;
use base::frame::Priority;
use bytes::Bytes;

use super::brick::{Found, Standing, Want, Write};
use super::limits::{BRICKS_ACKED, DOUBT_RESTS, HEDGE_MIN, HEDGE_TIMES};
use super::map::Placement;
use super::op::{Action, Lease, Reply, When};
use super::ops::{Leg, LegState, Phase, Running};
use super::peers::Peer;
use super::run::Next;
use super::table::Key;
use super::wire;
use super::{Call, Kind, Output, Session, Version};

impl Leg {
    fn has_answered(&self) -> bool {
        self.state == LegState::Answered && !self.found.damaged
    }

    fn is_sure(&self, filled_wanted: u64) -> bool {
        self.has_answered() && self.filled >= filled_wanted
    }
}

impl Running {
    /// Enough settled bricks of this placement have answered: among them is one with the last acknowledged write.
    fn is_sure(&self, place: &Placement) -> bool {
        let wanted = self.filled_wanted();
        self.of(place).filter(|leg| leg.is_sure(wanted)).count() >= place.answers()
    }

    /// The newest version that was found is one of a conditional write, at too few bricks to have been decided: it may
    /// be on its way to the others, and it may have lost and be about to be taken back. In the second case an older
    /// version is the one that was acknowledged.
    fn is_in_doubt(&self, newest: Version) -> bool {
        #[cfg(test)]
        if super::tests::planted(super::tests::Planted::TentativeCounts) {
            return false;
        }
        let holds = |leg: &Leg| leg.has_answered() && leg.found.version == Some(newest);
        self.legs.iter().filter(|leg| holds(leg)).all(|leg| matches!(leg.found.standing, Standing::Open(_)))
            && self.places().any(|place| !self.is_enough(place, holds, holds))
    }

    fn may_be_taken_back(&self, newest: Version) -> bool {
        self.legs.iter().any(|leg| leg.has_answered() && leg.found.version == Some(newest) && leg.found.tentative)
    }

    /// The version that enough bricks have, settled ones: another may have forgotten that it had the newer. Writing on it is safe whatever is at the others: a write that overtakes it
    /// meets it, or is met, at one of these.
    fn decided(&self) -> Option<Version> {
        let wanted = self.filled_wanted();
        let holds = |leg: &&Leg, version| leg.is_sure(wanted) && leg.found.version == Some(version);
        let enough = |version| {
            self.places().all(|place| self.of(place).filter(|leg| holds(leg, version)).count() >= place.acks())
        };
        self.legs.iter().filter_map(|leg| leg.found.version).filter(|version| enough(*version)).max()
    }

    /// Whether another brick knows better than this one.
    fn has_lost(&self, leg: &Leg) -> bool {
        #[cfg(test)]
        if super::tests::planted(super::tests::Planted::TentativeCounts) {
            return false;
        }
        let Some(version) = leg.found.version else { return false };
        self.legs.iter().filter(|other| other.has_answered()).any(|other| {
            other
                .found
                .version
                .is_some_and(|other_is| leg.found.standing.lost_to(version, other_is, other.found.standing))
        })
    }

    /// It was begun for another node, see [`Session::resolve`].
    fn resolves(&self) -> bool {
        self.ask.is_none()
    }

    fn depends_on_what_is_there(&self) -> bool {
        match &self.action {
            // A touch names the version it found, and puts it where it is missing: what has lost would come to stay.
            Action::Touch { .. } | Action::GetTouch { .. } => true,
            Action::Put { .. } | Action::RemoveIf { .. } | Action::Take => true,
            // Of a document that is merged: the loser's lacks a field that another was acknowledged for.
            Action::Get => self.merges,
            Action::Remove | Action::Count | Action::Scan { .. } => false,
        }
    }

    fn wants_value(&self) -> bool {
        match &self.action {
            Action::Put { want_old, .. } => *want_old || self.merge.is_some(),
            Action::Get | Action::Touch { .. } | Action::GetTouch { .. } | Action::Take => true,
            Action::Remove | Action::RemoveIf { .. } | Action::Count | Action::Scan { .. } => false,
        }
    }
}

impl Session {
    pub(super) fn step_read(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Next {
        if op.by_cookie {
            return self.step_cookie_read(call, number, op);
        }
        loop {
            let sure = op.places().all(|place| op.is_sure(place));
            if !sure {
                if self.ask_more(call, number, op) {
                    continue;
                }
                if op.is_waiting() {
                    self.hedge(call, number, op);
                    return Next::Wait;
                }
                // Not enough settled ones answered. Who is slow, or not met yet, may be the one that knows better.
                if self.ask_again(call, op) {
                    continue;
                }
                if self.awaits_first_meeting(call, op) {
                    return self.wait_or_give_up(call, number, op, "this node has not met all bricks of the key yet");
                }
                let no_room = op.legs.iter().any(|leg| matches!(leg.state, LegState::NoRoom | LegState::TimedOut));
                if no_room {
                    return self.give_up(call, op, super::write::OVERLOADED);
                }
                // Who is out of reach may only be cut off, and be the one that knows: without enough settled ones,
                // nothing less than all will do.
                if !op.legs.iter().all(Leg::has_answered) {
                    return self.wait_or_give_up(call, number, op, "too few bricks of the key are live");
                }
            }
            // The value of the newest version, if nobody has sent it yet.
            // A version that was only told of by a brick which is gone since, and that enough settled others do not
            // know, was never acknowledged; without these others it may have been.
            let answered = op.legs.iter().filter(|leg| leg.has_answered());
            let lost = answered.clone().filter(|leg| op.has_lost(leg)).filter_map(|leg| leg.found.version).max();
            let mut newest = if sure || lost.is_some() && lost == op.newest_seen {
                answered.filter(|leg| !op.has_lost(leg)).filter_map(|leg| leg.found.version).max()
            } else {
                op.newest_seen
            };
            if let Some(lost) = lost {
                self.clock.pass(lost);
            }
            if let Some(version) = newest
                && op.is_in_doubt(version)
            {
                if let Some(at) = op.legs.iter().position(|leg| leg.state == LegState::Idle) {
                    self.send_read(call, number, op, at, Want::Newer(Version::default()));
                    continue;
                }
                if op.is_waiting() {
                    return Next::Wait;
                }
                let decided = op.decided();
                if decided.is_none()
                    && op.may_be_taken_back(version)
                    && op.depends_on_what_is_there()
                    && self.is_live(version.node)
                {
                    self.have_it_resolved(call, op);
                    let span = Span::micros(self.rng.between(DOUBT_RESTS.0 / 2, DOUBT_RESTS.0));
                    return self.rest(call, number, op, span);
                }
                // What is written next must be newer than what is left behind, too.
                self.clock.pass(version);
                newest = decided.or(newest);
                if let Some(decided) = decided {
                    self.confirm(call, op, decided);
                }
            }
            if op.resolves() {
                if let Some(idle) = op.legs.iter().position(|leg| leg.state == LegState::Idle) {
                    self.send_read(call, number, op, idle, Want::Newer(Version::default()));
                    continue;
                }
                if op.is_waiting() {
                    return Next::Wait;
                }
            }
            let holders = || op.legs.iter().filter(|leg| leg.has_answered() && leg.found.version == newest);
            let best = holders().max_by_key(|leg| (leg.found.value.is_some(), leg.found.live));
            let best = best.map(|leg| leg.found.clone()).filter(|_| newest.is_some());
            let complete = best.as_ref().is_some_and(|best| !best.live || best.value.is_some() || !op.wants_value());
            if newest.is_none() || complete {
                return self.read_done(call, number, op, best, sure);
            }
            if op.is_waiting() {
                return Next::Wait;
            }
            let may_have = |leg: &Leg| {
                leg.tries < FETCH_TRIES
                    && (leg.state == LegState::Idle || leg.has_answered() && leg.found.version == newest)
            };
            if let Some(at) = op.legs.iter().position(may_have) {
                self.send_read(call, number, op, at, Want::Newer(Version::default()));
                continue;
            }
            if self.ask_again(call, op) {
                continue;
            }
            // It is known that there is something newer than what could be read; an older value would be stale.
            return self.read_done(call, number, op, None, false);
        }
    }

    /// Asks as many more bricks as are missing to be sure, the best first. True if one was asked.
    fn ask_more(&mut self, call: &mut Call, number: u64, op: &mut Running) -> bool {
        let wanted = op.filled_wanted();
        let in_transition = op.places[1].is_some();
        self.note_late(call, op);
        let hopeful = |leg: &Leg| {
            let peer = self.peers.get(&leg.node);
            leg.is_sure(wanted)
                || leg.state == LegState::Waiting && peer.is_some_and(|peer| !peer.slow && peer.filled >= wanted)
        };
        let short =
            |op: &Running| op.places().any(|place| op.of(place).filter(|l| hopeful(l)).count() < place.answers());
        if !in_transition && !short(op) {
            return false;
        }
        let rank = |leg: &Leg| match self.peers.get(&leg.node) {
            _ if leg.node == self.me => 0,
            Some(peer) if peer.is_usable(call.now, op.priority) => 1 + peer.badness(wanted),
            Some(_) | None => u8::MAX,
        };
        let idle = || op.legs.iter().enumerate().filter(|(_, leg)| leg.state == LegState::Idle);
        let Some(best) = idle().map(|(_, leg)| rank(leg)).min() else { return false };
        // Equals share the work, by the room in their windows.
        let equals = || idle().filter(|(_, leg)| rank(leg) == best);
        let room = |leg: &Leg| self.peers.get(&leg.node).map_or(1, Peer::room);
        let mut draw = self.rng.below(equals().map(|(_, leg)| room(leg)).sum());
        let drawn = equals().find(|(_, leg)| {
            let found = draw < room(leg);
            draw = draw.saturating_sub(room(leg));
            found
        });
        let at = drawn.expect("the number is below the sum").0;
        let known = op.newest_seen;
        let value_comes = op.legs.iter().any(|leg| {
            leg.state == LegState::Waiting && hopeful(leg)
                || leg.state == LegState::Answered && leg.found.version.is_some()
        });
        let want = match (op.wants_value(), known) {
            (false, _) => Want::Version,
            (true, Some(known)) => Want::Newer(known),
            // One sends its value, the others just say if theirs is newer.
            (true, None) if value_comes => Want::Version,
            (true, None) => Want::Newer(Version::default()),
        };
        self.send_read(call, number, op, at, want);
        true
    }

    /// A brick that is slow slows no read: after a while in which it should have answered another one is asked as well. Only if
    /// that one has little to do; so there are no more requests when there are too many.
    fn hedge(&mut self, call: &Call, number: u64, op: &mut Running) {
        let quickest =
            self.peers.values().filter(|peer| peer.live && peer.takes > Span::ZERO).map(|peer| peer.takes).min();
        let is_idle = |leg: &Leg| leg.state == LegState::Idle && leg.node != self.me;
        if op.hedge_at.is_some() || !op.legs.iter().any(is_idle) {
            return;
        }
        let Some(quickest) = quickest else { return };
        // Of few lengths, as timers of one length stand in one queue.
        let after = quickest.times(HEDGE_TIMES).as_millis().max(HEDGE_MIN.as_millis()).next_power_of_two();
        let after = Span::millis(after);
        if after < op.timeout {
            op.hedge_at = Some(call.now + after);
            self.ops.time_legs(call.now, number, op, after);
        }
    }

    /// Once it is time to hedge, those that have not answered count as slow.
    fn note_late(&mut self, call: &Call, op: &Running) {
        let Some(at) = op.hedge_at.filter(|at| *at <= call.now) else { return };
        let can_help = |leg: &&Leg| {
            let peer = self.peers.get(&leg.node).filter(|_| leg.state == LegState::Idle);
            peer.is_some_and(|peer| f64::from(peer.window.under_way()) * 2.0 < peer.window.size())
        };
        if !op.legs.iter().any(|leg| can_help(&leg)) {
            return;
        }
        for leg in op.legs.iter().filter(|leg| leg.state == LegState::Waiting && leg.sent < at) {
            if let Some(peer) = self.peers.get_mut(&leg.node) {
                peer.slow = true;
            }
        }
    }

    /// This node has just started and has not met one of the key's bricks, be it dead or alive.
    pub(super) fn awaits_first_meeting(&self, call: &Call, op: &Running) -> bool {
        self.is_young(call.now) && op.legs.iter().any(|leg| leg.node != self.me && !self.peers.contains_key(&leg.node))
    }

    /// Gives those that did not answer another chance. False if there are none.
    pub(super) fn ask_again(&mut self, call: &Call, op: &mut Running) -> bool {
        let mut any = false;
        let is_silent =
            |leg: &&mut Leg| leg.state == LegState::TimedOut || leg.state == LegState::NoRoom && leg.tries > 0;
        for leg in op.legs.iter_mut().filter(is_silent).filter(|leg| leg.tries < FETCH_TRIES) {
            let peer = self.peers.get(&leg.node);
            if leg.node == self.me || peer.is_some_and(|peer| peer.is_usable(call.now, op.priority)) {
                leg.state = LegState::Idle;
                any = true;
            }
        }
        any
    }

    fn read_done(&mut self, call: &mut Call, number: u64, op: &mut Running, best: Option<Found>, sure: bool) -> Next {
        if let Some(best) = &best {
            self.repair(call, op, best);
        }
        if op.resolves() {
            return self.resolved(call, op, best.and_then(|best| best.version));
        }
        let live = best.as_ref().filter(|best| best.live);
        if best.as_ref().and_then(|best| best.version).is_some_and(|version| op.tried.contains(&version)) {
            // Our own write, about to be taken back.
            let span = self.pause(op);
            return self.rest(call, number, op, span);
        }
        if let Some(kind) = live.and_then(|live| op.other_kind(live)) {
            self.done(call, op, Reply::OtherKind(kind));
            return Next::Over;
        }
        let known = op.newest_seen.is_some();
        let nothing =
            || if best.is_some() || sure || !known && !op.may_be_lost() { Reply::Absent } else { Reply::Lost };
        let reply = match (&op.action, live) {
            (Action::Get, Some(found)) => match (&found.value, found.version) {
                (Some(value), Some(version)) => {
                    let (value, kind) = (value.bytes.clone(), value.kind);
                    Some(Reply::Value { value, kind, version, lease_left: found.lease_left })
                }
                _ => Some(Reply::Lost),
            },
            (Action::Get | Action::GetTouch { .. } | Action::Take, None) => Some(nothing()),
            (Action::Touch { .. }, None) => Some(Reply::Touched(false)),
            // Nothing to remove, and no version to overrule; unless that is the doing of an earlier try.
            (Action::Remove, None) if sure => Some(Reply::Removed(op.had)),
            (Action::RemoveIf { .. }, None) => Some(Reply::Removed(false)),
            (Action::RemoveIf { version }, Some(live)) => {
                (live.version != Some(*version)).then_some(Reply::NotStored { version: live.version, old: None })
            }
            (Action::Put { when, want_old, .. }, live) => {
                let met = match when {
                    When::Always => true,
                    When::Absent => live.is_none(),
                    When::Present => live.is_some(),
                    When::Version(version) => live.is_some_and(|live| live.version == Some(*version)),
                };
                (!met).then(|| Reply::NotStored {
                    version: live.and_then(|live| live.version),
                    old: live.filter(|_| *want_old).and_then(|live| live.value.as_ref()).map(|v| v.bytes.clone()),
                })
            }
            (Action::Touch { .. } | Action::GetTouch { .. } | Action::Take | Action::Remove, _)
            | (Action::Count | Action::Scan { .. }, _) => None,
        };
        if let Some(reply) = reply {
            self.done(call, op, reply);
            return Next::Over;
        }
        let lost = nothing() == Reply::Lost;
        let there = live.and_then(|live| live.value.clone());
        match self.merge_with(op, there.as_ref(), lost) {
            None => (),
            Some(Ok(reply)) => {
                self.done(call, op, reply);
                return Next::Over;
            }
            Some(Err(refused)) => return self.refuse(call, op, refused),
        }
        let guard = best.as_ref().and_then(|best| best.version).unwrap_or_default();
        op.base = best;
        self.write_after_read(op, guard);
        self.next_round(op, Phase::Write);
        self.step_write(call, number, op)
    }

    /// Asks the others to find out what cannot be told from here, as somebody who may know is out of reach.
    fn have_it_resolved(&mut self, call: &mut Call, op: &Running) {
        if op.legs.iter().all(Leg::has_answered) {
            return;
        }
        for leg in &op.legs {
            if leg.node != self.me && self.is_live(leg.node) {
                self.tell(call, leg.node, op.epoch, wire::resolve(&op.key), Bytes::new());
            }
        }
    }

    /// Reads for another node, and for nobody's answer: so that all bricks which this node reaches know what was decided.
    pub(super) fn resolve(&mut self, call: &mut Call, key: Key) {
        let mut op = Box::new(Running::new(key, Action::Get));
        if self.place_keyed(call, &mut op).is_ok() {
            self.launch(call, op);
        }
    }

    fn resolved(&mut self, call: &mut Call, op: &mut Running, newest: Option<Version>) -> Next {
        let Some(newest) = newest else { return Next::Over };
        let is_confirmed = |leg: &Leg| {
            leg.has_answered() && leg.found.version == Some(newest) && leg.found.standing == Standing::Confirmed
        };
        if op.decided() == Some(newest) || op.legs.iter().any(is_confirmed) {
            self.confirm(call, op, newest);
        }
        Next::Over
    }

    /// Writes the newest to bricks that answered with something older. Nobody waits for it.
    pub(super) fn repair(&mut self, call: &mut Call, op: &Running, best: &Found) {
        let (Some(version), Some(write)) = (best.version, best.copy()) else { return };
        if best.tentative || best.live && best.value.is_none() {
            return;
        }
        let needs = |leg: &Leg| leg.found.version < Some(version) || op.has_lost(leg);
        for leg in op.legs.iter().filter(|leg| leg.state == LegState::Answered && needs(leg)) {
            self.figures.repairs += 1;
            if leg.node == self.me {
                self.brick_write(call, self.me, op.epoch, &op.key, write.clone());
            } else {
                let (what, body) = wire::write(&op.key, &write);
                self.tell(call, leg.node, op.epoch, what, body);
            }
        }
    }

    /// A frame that nobody waits to be answered.
    pub(super) fn tell(&mut self, call: &mut Call, to: base::NodeId, epoch: u64, what: wire::What, body: Bytes) {
        let head = self.head(0, epoch, call.now, what);
        let frame = wire::frame(&head, body, Span::ZERO, Priority::LOWEST);
        call.out.push(Output::Send { to, frame });
    }

    /// A short random rest that doubles from try to try, so that writers which met do not meet again.
    pub(super) fn pause(&mut self, op: &Running) -> Span {
        let most = 4000u64 << op.tried.len().min(5);
        Span::micros(self.rng.between(most / 4, most))
    }
}

impl Found {
    /// What another brick is told that lacks it.
    pub(super) fn copy(&self) -> Option<Write> {
        Some(Write {
            version: self.version?,
            value: self.value.clone(),
            lease: self.lease_left,
            keep: self.keep_left,
            guard: None,
            repair: true,
            extend: false,
            standing: self.standing,
            bricks: self.bricks,
        })
    }
}

impl Running {
    /// As many bricks may have lost the key as could have held it alone.
    fn may_be_lost(&self) -> bool {
        let wanted = self.filled_wanted();
        // In a transition what was acknowledged before is in the old placement.
        let place = self.places[1].as_ref().or(self.places[0].as_ref());
        place.is_some_and(|place| {
            self.of(place).filter(|leg| !leg.is_sure(wanted)).count() >= BRICKS_ACKED.min(place.nodes().len())
        })
    }

    /// The kind of what is there, if it is not the one that is to be handed out and changed.
    fn other_kind(&self, live: &Found) -> Option<Kind> {
        let hands_out = match &self.action {
            Action::GetTouch { .. } | Action::Take => true,
            Action::Put { want_old, .. } => *want_old,
            Action::Get | Action::Touch { .. } | Action::Remove | Action::RemoveIf { .. } => false,
            Action::Count | Action::Scan { .. } => false,
        };
        live.value.as_ref().map(|value| value.kind).filter(|kind| hands_out && *kind != Kind::Text)
    }

    pub(super) fn lease_of_action(&self) -> Span {
        self.lease(match &self.action {
            Action::Put { lease, .. } | Action::Touch { lease } | Action::GetTouch { lease } => *lease,
            Action::Get | Action::Remove | Action::RemoveIf { .. } | Action::Take => Lease::Default,
            Action::Count | Action::Scan { .. } => Lease::Default,
        })
    }
}

/// Times a leg is asked in one round, the fetch of its value included. Lost frames cost a try each; the budget ends
/// long before. A brick that answers without a value so often has none.
pub(super) const FETCH_TRIES: u8 = 40;
