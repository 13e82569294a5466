//! The brick's side of frames: who asks with too old a map is told, what lay too long in queues is dropped unexecuted
//! (SSM 3.4), everything else is answered at once.

use base::{Frame, NodeId, Priority, Span, Time};
use bytes::Bytes;

use super::brick::Line;
use super::limits::{BUDGET_MAX, LATE_TOLD_EVERY, PAGE_ENTRIES, WAIT_TOLD_MS};
use super::map::place;
use super::ops::FILL_BIT;
use super::table::Key;
use super::wire::{self, BehindMessage, Head, LacksMessage, LateMessage, ListMessage, UndoneMessage, What};
use super::{Call, Output, Session};

impl Session {
    pub(super) fn frame(&mut self, call: &mut Call, from: NodeId, frame: Frame) {
        let Some(mut head) = wire::open(frame.head) else {
            return call.out.push(Output::Bad { from, why: "is not one of class session".to_owned() });
        };
        let known = self.peers.get(&from).map_or(0, |peer| peer.boot.0);
        if head.boot != 0 && head.boot < known {
            // Of a life that is over: nobody waits for an answer, and one of that life's brick says nothing of this one's.
            return;
        }
        // Clocks that are ahead pull the others along, so that a later write has a later version: but not so far that bricks
        // refuse what it leads to, or nodes that put theirs right would be pulled ahead again by those that did not yet. (Nor
        // by what their own wall clock once showed.)
        if head.clock_ms <= call.wall_ms + super::limits::CLOCK_AHEAD_MS_MAX / 2 {
            self.clock.wall(head.clock_ms);
        }
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.heard_clock(call.now, head.clock_ms);
        }
        let Some(what) = head.what.take() else { return };
        let asks = match &what {
            What::Read(_) | What::Write(_) | What::Undo(_) | What::Settle(_) | What::Confirm(_) => true,
            What::Resolve(_) | What::List(_) => true,
            What::Lacks(_) => true,
            What::Found(_) | What::Wrote(_) | What::Undone(_) | What::Page(_) | What::Behind(_) => false,
            What::Late(_) | What::Heard(_) => false,
        };
        // Believed of bricks only: by a great lie all that this node asks from now on would seem to have lain.
        let is_brick = self.map.as_ref().is_none_or(|map| map.is_brick(from));
        let has_stood = head.waited_ms > 0 && is_brick && self.has_stood(call, head.waited_ms, head.asked_ms);
        if matches!(what, What::Late(_)) && (!has_stood || head.id & FILL_BIT != 0) {
            // It lay in queues, and there it would lie again: its time passes. Or it is asked for again in a moment.
            return;
        }
        if let What::Heard(LacksMessage { writes }) = what {
            return self.heard_missed(from, writes);
        }
        if !asks {
            head.what = Some(what);
            return if head.id & FILL_BIT != 0 {
                self.fill_answered(call, from, head, frame.body)
            } else {
                self.answered(call, from, head, frame.body)
            };
        }
        // Each life has a clock of its own. (Seed 331127767058: by that of the life before all that came seemed late.)
        if let Some(peer) = self.peers.get_mut(&from).filter(|_| head.boot == 0 || head.boot == known) {
            let waited = peer.delay.waited_ms(call.now, head.stamp_ms);
            head.waited_ms = waited;
            // What nodes do by themselves, to end or repair something, is never turned away: it does not count.
            let is_asked = matches!(what, What::Read(_) | What::Write(_)) && frame.priority < Priority::HIGHEST;
            if self.protects && is_asked && head.id & FILL_BIT == 0 {
                self.intake.note(call.now, Span::millis(waited), frame.priority);
            }
            if self.protects && frame.budget_ms > 0 && waited > u64::from(frame.budget_ms) {
                self.figures.late += 1;
                if head.id != 0 && peer.late_told.is_none_or(|at| call.now.since(at) >= LATE_TOLD_EVERY) {
                    peer.late_told = Some(call.now);
                    self.reply(call, from, &head, What::Late(LateMessage {}), Bytes::new());
                }
                return;
            }
        }
        self.figures.served += 1;
        self.serve(call, from, &head, what, frame.body);
    }

    fn serve(&mut self, call: &mut Call, from: NodeId, head: &Head, what: What, body: Bytes) {
        let writes = matches!(what, What::Write(_));
        let serves = match &what {
            What::List(list) if list.fill => self.map_seen() == head.epoch,
            What::Lacks(_) => true,
            _ => self.epoch_serves(call.now, head.epoch, writes),
        };
        if !serves {
            let map = self.map.as_ref().map(super::BrickMap::encode).unwrap_or_default();
            return self.reply(call, from, head, What::Behind(BehindMessage { map }), Bytes::new());
        }
        match what {
            What::Read(message) => {
                let (key, want) = message.take();
                let (what, body) = wire::found(self.brick.read(call.now, &key, want));
                self.reply(call, from, head, what, body);
            }
            What::Write(message) => {
                let Some((key, write)) = message.take(body) else { return };
                if write.value.as_ref().is_some_and(|value| !value.is_whole()) {
                    // Not stored and not answered, as if it had been lost on its way: the stub sends it again.
                    self.figures.damaged_frames += 1;
                    return;
                }
                let wrote = self.brick_write(call, from, head.epoch, &key, write);
                if head.id != 0 {
                    self.reply(call, from, head, wire::wrote(wrote), Bytes::new());
                }
            }
            What::Undo(message) => {
                let Some((key, version)) = message.take() else { return };
                // Whoever wrote it takes it back, nobody else.
                if version.node != from {
                    return call.out.push(Output::Bad { from, why: "is not one of class session".to_owned() });
                }
                self.brick.undo(call.now, &key, version);
                self.reply(call, from, head, What::Undone(UndoneMessage {}), Bytes::new());
            }
            What::Settle(message) => {
                if let Some((key, version)) = message.take() {
                    self.brick.settle(call.now, &key, version);
                }
            }
            What::Confirm(message) => {
                if let Some((key, version)) = message.take() {
                    self.brick.confirm(&key, version);
                }
            }
            What::Resolve(message) => self.resolve(call, message.take().0),
            What::List(list) => {
                let (lines, next) = self.list_for(call, from, list);
                let values = (!list.fill).then(|| self.brick.values(list.namespace));
                self.reply(call, from, head, wire::page(lines, next, values), Bytes::new());
            }
            What::Lacks(message) => {
                self.fill_lacks(call.now, from, message.writes);
                self.reply(call, from, head, What::Heard(message), Bytes::new());
            }
            What::Found(_) | What::Wrote(_) | What::Undone(_) | What::Page(_) => (),
            What::Behind(_) | What::Late(_) | What::Heard(_) => (),
        }
    }

    fn list_for(&mut self, call: &Call, from: NodeId, list: ListMessage) -> (Vec<Line>, u64) {
        let most = (list.count as usize).clamp(1, PAGE_ENTRIES);
        if !list.fill {
            return self.brick.list(call.now, list.cursor, most, |key, _| key.namespace == list.namespace);
        }
        // From here on a write that counts without the new placement is not accepted any more: it would be missed.
        self.fill.write_floor = self.fill.write_floor.max(self.map_seen());
        let Some(map) = &self.map else { return (Vec::new(), 0) };
        self.brick.list(call.now, list.cursor, most, |key, entry| {
            if super::cookie_ops::is_cookie_key(key) {
                return entry.bricks.as_ref().is_some_and(|bricks| bricks.contains(from));
            }
            place(&map.members, key.hash).contains(from)
                || map.old.as_ref().is_some_and(|old| place(old, key.hash).contains(from))
        })
    }

    fn reply(&mut self, call: &mut Call, to: NodeId, asked: &Head, what: What, body: Bytes) {
        let mut head = self.head(asked.id, self.map_seen(), call.now, what);
        if asked.waited_ms > WAIT_TOLD_MS {
            (head.waited_ms, head.asked_ms) = (asked.waited_ms, asked.stamp_ms);
        }
        let frame = wire::frame(&head, body, Span::ZERO, Priority::HIGHEST);
        call.out.push(Output::Send { to, frame });
    }

    /// Whether a write by the map before counts without this brick, which gave up the key: those of the present map get it, too.
    /// It would stay here for good, as what is not this brick's was dropped when the transition ended, and the next transition
    /// would bring it back when it is outdated (seed 1049616386687).
    pub(super) fn has_handed_on(&self, epoch: u64, key: &Key) -> bool {
        let is_before = epoch != 0 && epoch < self.map_seen() && !super::cookie_ops::is_cookie_key(key);
        let map = self.map.as_ref().filter(|map| is_before && map.old.is_none());
        map.is_some_and(|map| !place(&map.members, key.hash).contains(self.me))
    }

    /// May a request under this epoch's map count? Two steps behind is never right; writes not even one step, once
    /// another brick is being filled for the present map.
    pub(super) fn epoch_serves(&self, now: Time, epoch: u64, writes: bool) -> bool {
        // Whoever is still there when no operation can be under way any more has not heard of the map: what bricks that have left
        // it hold may be older than what the others have forgotten.
        let is_behind = epoch < self.map_seen() && now.since(self.map_since) > BUDGET_MAX;
        epoch == 0
            || (!is_behind && epoch.saturating_add(1) >= self.map_seen() && (!writes || epoch >= self.fill.write_floor))
    }
}
