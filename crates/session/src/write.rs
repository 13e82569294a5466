//! Writes by key, and by cookie once the bricks are chosen: to all bricks of the key at once, done when two accepted.
//! Before anybody is told, versions are made and values sealed; afterwards the third brick is seen to, and what lost is
//! taken back.

use base::{Because, Priority, Refused, Span, Time};
use bytes::Bytes;
use class::Bound;

use super::brick::{Standing, Want, Write, Wrote};
use super::limits::{
    CLOCK_AHEAD_MS_MAX, CLOCKS_RESTS, DOUBT_RESTS, FINISH_TRIES, OPEN_MAX, SETTLED_BELOW, TOMBSTONE_KEPT, UNDO_TRIES,
};
use super::map::Placement;
use super::op::{Action, Reply};
use super::ops::{Leg, LegState, Phase, Running};
use super::read::FETCH_TRIES;
use super::run::{Next, request_id};
use super::table::Value;
use super::wire;
use super::{Call, Kind, Output, Session, Version};

/// Why a write cannot be begun.
enum Cannot {
    FewLive(String),
    Overloaded,
}

/// So often a conditional write gives way to another one of its own node before any other brick is asked.
const OWN_TRIES: usize = 3;

pub(super) const OVERLOADED: &str = "overloaded: the bricks take no more";

impl Session {
    /// A write that needs to know nothing of what is there.
    pub(super) fn blind_write(&mut self, op: &mut Running) {
        let value = match &op.action {
            Action::Put { value, kind, .. } => Some(Self::sealed(value, *kind)),
            Action::Remove => None,
            Action::Get | Action::Touch { .. } | Action::GetTouch { .. } | Action::Take => None,
            Action::RemoveIf { .. } => None,
            Action::Count | Action::Scan { .. } => None,
        };
        self.make_write(op, value, None);
    }

    /// The write that follows from what the read found.
    pub(super) fn write_after_read(&mut self, op: &mut Running, guard: Version) {
        let old = || op.base.as_ref().and_then(|base| base.value.clone());
        let (value, guard) = match &op.action {
            Action::Put { value, kind, .. } => {
                let value = op.merge.as_ref().map_or(value, |merge| &merge.result);
                (Some(Self::sealed(value, *kind)), Some(guard))
            }
            // A touch says nothing new: it names the version it found. Under a version of its own the old value would
            // overrule what is put meanwhile.
            Action::Touch { .. } | Action::GetTouch { .. } => {
                let lease = op.lease_of_action();
                let (value, keep) = (old(), lease);
                let standing = op.base.as_ref().map_or(Standing::Plain, |base| base.standing);
                op.write = Some(Write {
                    version: guard,
                    value,
                    lease,
                    keep,
                    guard: None,
                    repair: false,
                    extend: true,
                    standing,
                    bricks: Placement::default(),
                });
                return;
            }
            Action::Take | Action::RemoveIf { .. } => (None, Some(guard)),
            // Removing wins over whatever is written meanwhile.
            Action::Remove | Action::Get | Action::Count | Action::Scan { .. } => (None, None),
        };
        self.make_write(op, value, guard);
    }

    pub(super) fn make_write(&mut self, op: &mut Running, value: Option<Value>, guard: Option<Version>) {
        // It is to be newer than what its client has, also where the clock was put back since.
        for known in guard.into_iter().chain(op.cookie.as_ref().map(|cookie| cookie.version)) {
            self.clock.pass(known);
        }
        let lease = op.lease_of_action();
        let keep = match &value {
            // What ends soon is remembered beyond its end, unless all bricks get it: one that missed it may have
            // something older, of a longer lease, which must not come back. By cookie the version is known.
            Some(_) if op.by_cookie => lease,
            Some(_) => lease.max(TOMBSTONE_KEPT),
            // A removal is remembered for as long as what it removes would have been.
            None => op.base.as_ref().map_or(Span::ZERO, |base| base.keep_left),
        };
        let (version, standing) = (self.clock.tick(), Standing::Plain);
        let bricks = Placement::default();
        op.write = Some(Write { version, value, lease, keep, guard, repair: false, extend: false, standing, bricks });
    }

    pub(super) fn step_write(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Next {
        loop {
            if op.legs.iter().any(|leg| leg.state == LegState::Idle) {
                // A brick that it has not met may hold a version which the own brick held in its former life.
                if self.awaits_first_meeting(call, op) {
                    return self.wait_or_give_up(call, number, op, "this node has not met all bricks of the key yet");
                }
                match self.can_write(call, op) {
                    Ok(()) => (),
                    Err(Cannot::FewLive(why)) => return self.wait_or_give_up(call, number, op, &why),
                    Err(Cannot::Overloaded) => {
                        self.count_not_asked(call.now, op);
                        return self.give_up(call, op, OVERLOADED);
                    }
                }
                if let Some(bound) = self.is_over_here(op) {
                    self.brick.over += 1;
                    return self.give_up_as(call, op, bound.refused());
                }
                let before = op.write.as_ref().expect("it is writing").version;
                if let Err(ms) = self.set_clock_right(call, op) {
                    if !op.knows_clocks && !op.legs.iter().any(Leg::may_have_stored) {
                        return self.ask_clocks(call, number, op);
                    }
                    self.note_ahead(call, || {
                        format!("this node's clock is {ms} ms ahead of the others'; its writes are refused")
                    });
                    return self.give_up(call, op, &format!("this node's clock is {ms} ms ahead of the bricks'"));
                }
                let is_another = op.write.as_ref().is_some_and(|write| write.version != before);
                if is_another && op.legs.iter().any(Leg::may_have_stored) {
                    // Those have the version of before, which says nothing of this one.
                    op.earlier_may_have = true;
                    self.undo(call, op, before);
                    self.next_round(op, Phase::Write);
                    continue;
                }
                if let Some(newer) = self.send_writes(call, number, op) {
                    self.figures.conflicts += 1;
                    self.clock.pass(newer);
                    return self.lost_to_another(call, number, op);
                }
            }
            if self.is_written(op) {
                return self.written(call, number, op);
            }
            let conflict = op.legs.iter().filter_map(Leg::conflict).max();
            if op.is_waiting() && (conflict.is_none() || op.can_succeed() || op.may_have_won()) {
                return Next::Wait;
            }
            if let Some(newer) = conflict {
                self.figures.conflicts += 1;
                self.clock.pass(newer);
                op.met = op.met.max(Some(newer));
                if op.write.as_ref().is_some_and(|write| write.is_conditional() || write.extend) {
                    // Who is silent may have stored it, and a reader may have found it at enough bricks: then it has not
                    // lost, in spite of those that said no, and must not be taken back.
                    if op.may_have_won() {
                        if self.ask_again(call, op) {
                            continue;
                        }
                        if op.legs.iter().any(|leg| leg.is_open() && leg.tries < FETCH_TRIES) {
                            // Its window is full.
                            self.ops.time_at(call.now + DOUBT_RESTS, number);
                            return Next::Wait;
                        }
                        return self.write_failed(call, number, op);
                    }
                    return self.lost_to_another(call, number, op);
                }
                // Nobody takes back what has it in the version that lost: what is removed there is removed.
                op.earlier_may_have |= op.legs.iter().any(Leg::may_have_stored);
                op.had |= op.legs.iter().any(Leg::has_replaced);
                let version = self.clock.tick();
                let write = op.write.as_mut().expect("it is writing");
                (write.version, write.guard) = (version, None);
                self.next_round(op, Phase::Write);
                if op.round > super::limits::ROUNDS_MAX {
                    return self.give_up(call, op, "other writers were always faster");
                }
                continue;
            }
            if self.ask_again(call, op) {
                continue;
            }
            return self.write_failed(call, number, op);
        }
    }

    /// The own brick would refuse it, and no other one was asked: then it is not sent, as one brick alone that has less of the
    /// namespace would keep it.
    fn is_over_here(&self, op: &Running) -> Option<Bound> {
        let is_first = op.legs.iter().all(|leg| leg.state == LegState::Idle) && !op.earlier_may_have;
        let own = op.legs.iter().any(|leg| leg.node == self.me);
        op.write.as_ref().filter(|_| is_first && own).and_then(|write| self.brick.is_over(&op.key, write))
    }

    /// A version that is too far ahead would be refused by the others and stay in the own brick: it is not sent. If
    /// only the hybrid clock is ahead (the wall clock had jumped and was put right) it goes back; a version given
    /// before meets a conflict at worst.
    fn set_clock_right(&mut self, call: &mut Call, op: &mut Running) -> Result<(), u64> {
        let live = self.peers.values().filter(|peer| peer.live);
        let mut others_ms: Vec<u64> = live.filter_map(|peer| peer.clock_ms(call.now)).collect();
        others_ms.sort_unstable();
        let (Some(&most), Some(&middle)) = (others_ms.last(), others_ms.get(others_ms.len().saturating_sub(1) / 2))
        else {
            return Ok(());
        };
        // What the bricks hold already may be overtaken, even if it came from a clock that was ahead.
        let held = op.cookie.as_ref().map(|cookie| cookie.version).max(op.met);
        let held = held.max(op.base.as_ref().and_then(|base| base.version));
        let known = held.map_or(0, |version| version.ms + 1);
        let bound = CLOCK_AHEAD_MS_MAX;
        let Some(write) = op.write.as_mut().filter(|w| !w.extend && w.version.ms > (middle + bound).max(known)) else {
            return Ok(());
        };
        if call.wall_ms > middle + bound {
            // Ahead of some, who may be behind: the bricks judge. Ahead of all: no use in sending.
            if call.wall_ms <= most + bound {
                return Ok(());
            }
            return Err(call.wall_ms - most);
        }
        self.clock.step_back(call.wall_ms.max(middle));
        // Not behind what it is to replace (seed 768071062449).
        if let Some(held) = held {
            self.clock.pass(held);
        }
        if write.is_conditional() {
            self.clock.pass(write.guard.expect("it has a condition"));
        } else {
            write.guard = None;
        }
        write.version = self.clock.tick();
        Ok(())
    }

    /// The bricks show their clocks before a write is refused for this node's: what it knows of them it may have heard before
    /// its machine was suspended, and no refused write would ever hear more (seed 600565204040).
    fn ask_clocks(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Next {
        op.knows_clocks = true;
        let next = self.rest(call, number, op, CLOCKS_RESTS);
        if self.clocks_asked.is_none_or(|at| call.now.since(at) >= CLOCKS_RESTS) {
            self.clocks_asked = Some(call.now);
            for leg in op.legs.iter().filter(|leg| self.peers.get(&leg.node).is_some_and(|peer| peer.live)) {
                let what = wire::read(&op.key, Want::Version);
                let head = self.head(request_id(number, op.round), op.epoch, call.now, what);
                let frame = wire::frame(&head, Bytes::new(), CLOCKS_RESTS, Priority::HIGHEST);
                call.out.push(Output::Send { to: leg.node, frame });
            }
        }
        next
    }

    /// Enough of each placement have it, and none of those that would know says there is something newer.
    fn is_written(&self, op: &Running) -> bool {
        #[cfg(test)]
        if super::tests::planted(super::tests::Planted::OneAck) {
            return op.legs.iter().any(Leg::has_stored);
        }
        op.places().all(|place| op.is_enough(place, Leg::has_stored, Leg::has_stored))
    }

    /// Enough bricks can be asked: known before anything is sent, so that a refusal is one.
    fn can_write(&self, call: &Call, op: &Running) -> Result<(), Cannot> {
        for place in op.places() {
            let is_live = |leg: &&Leg| self.is_live(leg.node);
            let usable = |leg: &Leg| {
                leg.node == self.me
                    || leg.has_stored()
                    || leg.state == LegState::Waiting
                    || self.peers.get(&leg.node).is_some_and(|peer| peer.is_usable(call.now, op.priority))
            };
            let live = op.of(place).filter(is_live).count();
            if live < place.acks() {
                let why = format!("{live} of the key's {} bricks live, {} needed", place.nodes().len(), place.acks());
                return Err(Cannot::FewLive(why));
            }
            if op.of(place).filter(is_live).filter(|leg| usable(leg)).count() < place.acks() {
                return Err(Cannot::Overloaded);
            }
        }
        Ok(())
    }

    /// For the figures: who it was that could not be asked.
    fn count_not_asked(&mut self, now: Time, op: &Running) {
        for leg in &op.legs {
            let peer = self.peers.get_mut(&leg.node).filter(|peer| peer.live && !peer.is_usable(now, op.priority));
            if let Some(peer) = peer {
                peer.not_asked();
            }
        }
    }

    /// A conditional write meets another one of this node in the own brick first, which is newer: then no other brick is
    /// asked. It could only lose, or leave behind what nobody could tell from the winner if this node died now, who alone
    /// knows (seed 84356390522).
    fn meets_own(&mut self, call: &mut Call, number: u64, op: &mut Running, write: &Write) -> Option<Version> {
        let own = op.legs.iter().position(|leg| leg.node == self.me && leg.state == LegState::Idle)?;
        // What is left of a former life, or is never decided, must not hold it up for ever.
        if !write.is_conditional()
            || op.tried.len() >= OWN_TRIES
            || op.legs.iter().any(|leg| leg.state != LegState::Idle)
        {
            return None;
        }
        self.send_write(call, number, op, own, write);
        op.legs[own].conflict().filter(|newer| newer.node == self.me)
    }

    /// Some: it was not sent, as another write of this node was before it.
    fn send_writes(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Option<Version> {
        // Bricks that find it ahead of them refuse it: then it can be undone where it is accepted. What was heard of their clocks may
        // be as old as they were cut off, and this node's wall clock be ahead of all (seed 565144201961).
        let heard = op.legs.iter().filter_map(|leg| self.peers.get(&leg.node)?.clock_heard_ms()).min();
        let sure = heard.map_or(call.wall_ms, |heard| heard.min(call.wall_ms)) + CLOCK_AHEAD_MS_MAX / 2;
        let write = op.write.as_mut().expect("it is writing");
        if write.guard.is_none() && !write.extend && write.version.ms > sure {
            write.guard = Some(write.version);
        }
        if op.by_cookie {
            write.bricks = op.places[0].unwrap_or_default();
        }
        let write = write.clone();
        let newer = self.meets_own(call, number, op, &write);
        if newer.is_some() {
            return newer;
        }
        for at in 0..op.legs.len() {
            if op.legs[at].state == LegState::Idle {
                self.send_write(call, number, op, at, &write);
            }
            op.may_have_happened |= op.legs[at].has_stored() || op.legs[at].state == LegState::Waiting;
        }
        None
    }

    fn written(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Next {
        let write = op.write.clone().expect("it is writing");
        let version = write.version;
        op.had |= op.legs.iter().any(Leg::has_replaced);
        let base = op.base.as_ref().filter(|base| base.live);
        let had = op.had || base.is_some();
        let old = base.and_then(|base| base.value.as_ref()).map(|value| value.bytes.clone());
        // What is handed out here was judged to be one when it was read.
        let kind = Kind::Text;
        let reply = match &op.action {
            _ if op.by_cookie => self.cookie_reply(call, op, &write),
            Action::Put { want_old, .. } => Reply::Stored { version, old: old.filter(|_| *want_old), cookie: None },
            Action::Touch { .. } => Reply::Touched(true),
            Action::GetTouch { .. } => {
                Reply::Value { value: old.unwrap_or_default(), kind, version, lease_left: write.lease }
            }
            Action::Take => Reply::Value {
                value: old.unwrap_or_default(),
                kind,
                version: base.and_then(|base| base.version).unwrap_or_default(),
                lease_left: Span::ZERO,
            },
            Action::Remove | Action::RemoveIf { .. } => Reply::Removed(had),
            Action::Get | Action::Count | Action::Scan { .. } => Reply::Removed(had),
        };
        self.merge_done(op);
        if write.guard.is_some() {
            self.confirm(call, op, version);
        }
        self.done(call, op, reply);
        op.phase = Phase::Finish;
        self.step_finish(call, number, op)
    }

    /// A few more tries for bricks that were slow; then read repair and fills see to it.
    pub(super) fn step_finish(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Next {
        let write = op.write.clone().expect("it has written");
        for at in 0..op.legs.len() {
            if op.legs[at].state == LegState::TimedOut && op.legs[at].tries < FINISH_TRIES {
                self.send_write(call, number, op, at, &write);
            }
        }
        if op.is_waiting() {
            return Next::Wait;
        }
        let all = op.legs.iter().all(Leg::has_stored);
        let to_settle = write.value.is_none() || write.keep > write.lease && write.lease < SETTLED_BELOW;
        if to_settle && all && op.places[1].is_none() {
            self.settle(call, op, write.version);
        }
        if write.guard.is_some() {
            self.confirm(call, op, write.version);
        }
        self.note_missed(call, op);
        Next::Over
    }

    /// Tells those that have it that it stays. What may be undone is not copied: a key that is written under conditions all
    /// the time would never be copied to a brick that is new, and that brick never be settled.
    pub(super) fn confirm(&mut self, call: &mut Call, op: &mut Running, version: Version) {
        let (key, epoch) = (op.key.clone(), op.epoch);
        let has_it =
            |leg: &Leg| leg.has_stored() || leg.state == LegState::Answered && leg.found.version == Some(version);
        for leg in op.legs.iter_mut().filter(|leg| has_it(leg) && !leg.confirmed) {
            leg.confirmed = true;
            if leg.node == self.me {
                self.brick.confirm(&key, version);
            } else {
                self.tell(call, leg.node, epoch, wire::confirm(&key, version), Bytes::new());
            }
        }
    }

    fn settle(&mut self, call: &mut Call, op: &Running, version: Version) {
        for leg in &op.legs {
            if leg.node == self.me {
                self.brick.settle(call.now, &op.key, version);
            } else {
                self.tell(call, leg.node, op.epoch, wire::settle(&op.key, version), Bytes::new());
            }
        }
    }

    /// Somebody wrote since the read: takes back what was left at a minority, and begins anew with a read.
    fn lost_to_another(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Next {
        let write = op.write.take().expect("it was writing");
        if write.extend {
            // A longer lease of something older hurts nobody.
            let span = self.pause(op);
            return self.rest(call, number, op, span);
        }
        op.tried.push(write.version);
        self.undo(call, op, write.version);
        if op.ask.is_none() {
            // Its asker was told that it is unknown.
            return Next::Over;
        }
        // If all that could have stored it said no, nothing happened. Where it was stored, be it for a moment, another writer
        // may have read it and made it part of what it writes (a merge does).
        op.earlier_may_have |= op.legs.iter().any(Leg::may_have_stored);
        op.may_have_happened = op.earlier_may_have;
        let span = self.pause(op);
        self.rest(call, number, op, span)
    }

    /// Asks those that have, or may have, this version to take it back, until they say so.
    fn undo(&mut self, call: &mut Call, op: &Running, version: Version) {
        let mut legs = Vec::new();
        for leg in op.legs.iter().filter(|leg| leg.may_have_stored()) {
            self.figures.undos += 1;
            if leg.node == self.me {
                self.brick.undo(call.now, &op.key, version);
            } else {
                legs.push(Leg::new(leg.node));
            }
        }
        if legs.is_empty() {
            return;
        }
        let write = Write {
            version,
            value: None,
            lease: Span::ZERO,
            keep: Span::ZERO,
            guard: None,
            repair: false,
            extend: false,
            standing: Standing::Plain,
            bricks: Placement::default(),
        };
        let mut undo = Running::new(op.key.clone(), Action::Remove);
        (undo.phase, undo.legs, undo.epoch, undo.write) = (Phase::Undo, legs, op.epoch, Some(write));
        undo.timeout = undo.timeout.max(op.timeout);
        self.launch(call, Box::new(undo));
    }

    pub(super) fn step_undo(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Next {
        let version = op.write.as_ref().expect("it has a version").version;
        for at in 0..op.legs.len() {
            let due = matches!(op.legs[at].state, LegState::Idle | LegState::TimedOut | LegState::NoRoom);
            if due && op.legs[at].tries < UNDO_TRIES {
                let what = wire::undo(&op.key, version);
                self.send(call, number, op, at, what, Bytes::new());
            }
        }
        if op.is_waiting() { Next::Wait } else { Next::Over }
    }

    fn write_failed(&mut self, call: &mut Call, number: u64, op: &mut Running) -> Next {
        let write = op.write.as_ref().expect("it was writing");
        if let (Some(ms), Some(_)) = (op.legs.iter().filter_map(Leg::ahead).max(), write.guard)
            && write.version.ms > call.wall_ms
        {
            // Not the wall clock is ahead but the hybrid one: back with it, and anew.
            self.clock.step_back(call.wall_ms.max(write.version.ms.saturating_sub(ms)));
            return self.lost_to_another(call, number, op);
        }
        let said_no = op.legs.iter().find_map(|leg| match leg.state {
            LegState::Wrote(Wrote::Full) => Some(full(self.brick.bytes_max())),
            LegState::Wrote(Wrote::Over(bound)) => Some(bound.refused()),
            LegState::Wrote(Wrote::Ahead(ms)) => {
                let why = format!("this node's clock is {ms} ms ahead of the bricks'");
                Some(Refused::busy(why, super::limits::RETRY_AFTER))
            }
            _ => None,
        });
        let silent = op.legs.iter().any(|leg| matches!(leg.state, LegState::TimedOut | LegState::Dead));
        op.may_have_happened &= op.earlier_may_have || op.legs.iter().any(Leg::may_have_stored);
        let was_asked = op.ask.is_some();
        let next = match said_no {
            Some(refused) => self.give_up_as(call, op, refused),
            None if silent => self.wait_or_give_up(call, number, op, "too few bricks of the key answered in time"),
            None => self.wait_or_give_up(call, number, op, "too few bricks of the key are live"),
        };
        // Who counts as dead may only be cut off, and is soon asked again.
        if next == Next::Over && op.is_left_open() && op.legs.iter().any(|leg| leg.state == LegState::Dead) {
            if was_asked {
                op.deadline = call.now + OPEN_MAX;
            }
            self.ops.time_at(op.deadline, number);
            return Next::Wait;
        }
        next
    }
}

/// No brick of the key has memory for it.
fn full(bytes_max: u64) -> Refused {
    let why = format!(
        "{} (this node's brick may use {} MiB): new sessions are refused until leases end; give nodes more with \
         --brick-memory, add nodes, or declare shorter leases",
        super::FULL,
        bytes_max >> 20
    );
    Refused::busy(why, super::limits::FULL_RETRY_AFTER).because(Because::Room)
}

impl Write {
    /// It counts only where nothing else was written since the read before it. (A guard that names the version itself
    /// just keeps what it replaces.)
    fn is_conditional(&self) -> bool {
        self.guard.is_some_and(|guard| guard != self.version)
    }
}

impl Leg {
    fn ahead(&self) -> Option<u64> {
        match self.state {
            LegState::Wrote(Wrote::Ahead(ms)) => Some(ms),
            _ => None,
        }
    }

    fn may_have_stored(&self) -> bool {
        // Where it is ahead, a copy of the frame may come when that brick's clock has caught up.
        self.has_stored() || self.is_open() || self.state == LegState::Dead || self.ahead().is_some()
    }

    /// It was asked, and has not said anything.
    fn is_open(&self) -> bool {
        match self.state {
            LegState::Waiting | LegState::TimedOut => true,
            // It is to be asked again.
            LegState::Idle | LegState::NoRoom => self.tries > 0,
            LegState::Answered | LegState::Wrote(_) | LegState::Dead => false,
        }
    }

    /// There was a value before.
    fn has_replaced(&self) -> bool {
        self.state == LegState::Wrote(Wrote::Stored { had: true })
    }

    pub(super) fn has_stored(&self) -> bool {
        matches!(self.state, LegState::Wrote(Wrote::Stored { .. }))
    }

    /// A version that the brick has and that is newer. A brick that was told to undo the version knows of none.
    fn conflict(&self) -> Option<Version> {
        match self.state {
            LegState::Wrote(Wrote::Conflict(version)) => Some(version),
            LegState::Wrote(Wrote::Undone) => Some(Version::default()),
            _ => None,
        }
    }
}

impl Running {
    /// Enough bricks have it, or may have it, for a reader to take it as decided. The memory of one that is dead is gone.
    fn may_have_won(&self) -> bool {
        #[cfg(test)]
        if super::tests::planted(super::tests::Planted::UndoneInDoubt) {
            return false;
        }
        let may_have = |leg: &Leg| leg.has_stored() || leg.is_open();
        self.write.as_ref().is_some_and(Write::is_conditional)
            && self.places().all(|place| self.is_enough(place, may_have, Leg::has_stored))
    }

    /// Its asker has given up, and it is open whether it is decided.
    pub(super) fn is_left_open(&self) -> bool {
        self.phase == Phase::Write
            && self.write.as_ref().is_some_and(Write::is_conditional)
            && self.legs.iter().any(Leg::may_have_stored)
    }

    /// In spite of those that said no: enough others have it or may yet have it, settled ones among them.
    fn can_succeed(&self) -> bool {
        let wanted = self.filled_wanted();
        self.places().all(|place| {
            let waiting = self.of(place).filter(|leg| leg.state == LegState::Waiting).count();
            let stored = || self.of(place).filter(|leg| leg.has_stored());
            let settled = stored().filter(|leg| leg.filled >= wanted).count();
            stored().count() + waiting >= place.acks() && settled + waiting >= place.answers()
        })
    }
}
