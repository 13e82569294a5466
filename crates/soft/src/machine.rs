//! The machine: an update is applied here and goes to all others at the end of the turn; its answer goes when one of them
//! has it. Frames may be lost, doubled, late and reordered: an acknowledgement says what has come, and repair brings the rest.

use std::collections::{BTreeMap, BTreeSet};

use base::{AskId, Because, Boot, Frame, NodeId, Now, Outcome, Refused, Span, Time, Unknown};
use bytes::Bytes;
use class::{Declared, Space as Told};
use prost::Message;

use crate::catchup::{self, Held};
use crate::checkpoint::{self, Keeper};
use crate::claims::{self, Weighed};
use crate::context::{Context, Range};
use crate::dot::Life;
use crate::limits::*;
use crate::space::{Odd, Space};
use crate::stale::Said;
use crate::sweep::Of;
use crate::window::Window;
use crate::wire::{Ack, Delta, DigestOf, Push, pairs};
use crate::{Action, Asked, HELD_LEVEL, Input, LEVEL, LIST_LEVEL, Op, Output, Reply, STALE_LEVEL, Soft};

/// Kinds of frames, each in its lane.
pub(crate) mod kind {
    use class::Class as _;

    use crate::Soft;

    pub const DIGEST: u16 = Soft::NUMBER.control(0);
    pub const HAVE: u16 = Soft::NUMBER.control(1);
    pub const ACK: u16 = Soft::NUMBER.control(2);
    pub const PAGE_ASK: u16 = Soft::NUMBER.control(3);
    pub const PARTS: u16 = Soft::NUMBER.control(4);
    pub const SKETCH_ASK: u16 = Soft::NUMBER.control(5);
    pub const PUSH: u16 = Soft::NUMBER.data(0);
    pub const CELLS: u16 = Soft::NUMBER.data(1);
    pub const PAGE: u16 = Soft::NUMBER.data(2);
    pub const MEND: u16 = Soft::NUMBER.data(3);
    pub const SKETCH: u16 = Soft::NUMBER.data(4);
    pub const CALL: u16 = Soft::NUMBER.data(5);
    pub const CALLED: u16 = Soft::NUMBER.data(6);
    pub const RELAY: u16 = Soft::NUMBER.data(7);
}

/// Another node, in its newest life.
pub struct Peer {
    pub boot: Boot,
    /// Since when it is known.
    pub since: Time,
    /// Since when it is dead.
    pub dead: Option<Time>,
    /// What it had when it told last, by namespace, and what of it was in its checkpoint.
    pub told: BTreeMap<u32, Heard>,
    /// How many updates it said that it has made, by namespace.
    pub said: BTreeMap<u32, Said>,
    /// Its wall clock is so far ahead of this node's, milliseconds; none: it has not said.
    pub ahead_ms: Option<i64>,
    /// It was named as one that gave a time far ahead.
    pub is_named: bool,
    /// What it was told last of each namespace; of those that do not change, up to this one.
    pub digested: BTreeMap<u32, DigestOf>,
    pub digested_to: u32,
    /// Namespaces that it serves, as far as it has said so.
    pub serves: BTreeSet<u32>,
    /// Pushed and not acknowledged.
    pub window: Window,
    /// Updates whose cells were just sent to it, by namespace.
    pub sent: BTreeMap<u32, (Time, Context)>,
}

impl Peer {
    /// Half of what may be.
    pub fn has_much_under_way(&self) -> bool {
        self.window.bytes() >= WINDOW_BYTES / 2
    }
}

/// What a peer has told of one namespace.
pub struct Heard {
    pub at: Time,
    pub context: Context,
    /// None: it writes no checkpoints.
    pub kept: Option<Context>,
}

/// A write that no other node has yet.
pub struct Wait {
    asked: Asked,
    first: u64,
    reply: Reply,
}

impl Soft {
    pub(crate) fn live(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.peers.iter().filter(|(_, peer)| peer.dead.is_none()).map(|(id, _)| *id)
    }

    pub(crate) fn turn(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        self.born.get_or_insert(now.mono);
        self.turn_at = now.mono;
        match input {
            Input::Ask { id, budget, op } => {
                self.asked_at = Some(now.mono);
                self.ask(now, Asked { id, deadline: now.mono + budget }, op, out);
            }
            Input::Frame { from, frame } => {
                if let Err(Odd(why)) = self.frame(now, from, frame, out) {
                    self.seen.odd += 1;
                    out.push(Output::Bad { from, why: why.to_owned() });
                }
            }
            Input::Birth { peer, boot } => self.birth(now, peer, boot, out),
            Input::Death { peer } => self.death(now, peer, out),
            Input::Declared(Declared { level, spaces, unread, nodes, .. }) => {
                (self.level, self.unread, self.members) = (level, unread, nodes);
                self.declare(now, spaces, out);
            }
            Input::Wake => self.flush(out),
            Input::Probe { id, .. } => out.push(Output::Probed { id, answers: false }),
            Input::Appended { group, ticket } | Input::Saved { group, ticket } => self.written(group, ticket),
            Input::DiskFull(is_full) => self.is_disk_full = is_full,
            Input::Tend => self.forget_kept(now, out),
            // It leads nothing, has no scripts and hears no reports.
            Input::Aside(_) | Input::Leaving(_) | Input::Told { .. } | Input::Voters(_) | Input::Worked { .. } => (),
            Input::Packs(_) | Input::Pack { .. } | Input::DiskRoom { .. } => (),
        }
        self.end_keys(now);
        self.tend_sweeps(now, out);
        self.tend_held(now);
        self.gossip(now, out);
        self.prune(now);
        self.catch_up(now, out);
        self.push_around(now, out);
        self.push_again(now, out);
        self.end_waits(now, out);
        self.end_passes(now, out);
        self.keep(now, out);
        self.tell_watchers(now, out);
        self.heal(now, out);
        self.answer_calls(out);
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        if self.is_due {
            return Some(Time::ZERO);
        }
        if self.spaces.is_empty() {
            return None;
        }
        let mut at = self.gossip_at;
        let mut soon = |other: Option<Time>| at = other.map_or(at, |other| at.min(other));
        for held in self.spaces.values() {
            soon(held.space.next_end());
            soon(held.wake_at());
            let keeps = !self.is_disk_full && !held.space.lends();
            soon(held.keeper.as_ref().filter(|_| keeps).and_then(Keeper::wake_at));
            let walks = held.space.is_forgetting() || held.space.is_adopting() || held.space.tally.walks();
            soon(walks.then_some(self.prune_at));
            soon(held.space.has_damaged().then_some(self.heal_at));
        }
        self.peers.values().for_each(|peer| soon(peer.window.again_at()));
        soon(self.watchers_wake_at());
        soon(self.passes.wake_at());
        soon(self.sweeps.wake_at());
        // What has ended in a turn that something else began is seen to by that turn.
        soon(self.deadlines.first().map(|(at, ..)| *at));
        Some(at)
    }

    fn birth(&mut self, now: Now, id: NodeId, boot: Boot, out: &mut Vec<Output>) {
        if id == self.life.node {
            return;
        }
        let fresh = || Peer {
            boot,
            since: now.mono,
            dead: None,
            told: BTreeMap::new(),
            said: BTreeMap::new(),
            ahead_ms: None,
            digested: BTreeMap::new(),
            digested_to: 0,
            is_named: false,
            serves: BTreeSet::new(),
            window: Window::default(),
            sent: BTreeMap::new(),
        };
        if self.peers.get(&id).is_some_and(|peer| peer.boot != boot) {
            self.lose_passes(now, id, out);
        }
        let peer = self.peers.entry(id).or_insert_with(fresh);
        if peer.boot != boot {
            *peer = fresh();
        }
        peer.dead = None;
        // It may have been away: what it lacks is seen at once.
        if !self.round.contains(&id) {
            self.round.push(id);
        }
        self.gossip_at = self.gossip_at.min(now.mono);
    }

    fn death(&mut self, now: Now, id: NodeId, out: &mut Vec<Output>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.dead = Some(now.mono);
        peer.window.clear();
        peer.sent.clear();
        self.lose_passes(now, id, out);
        if self.live().next().is_some() {
            return;
        }
        // Nobody is left who could have it: this is all the copies there are.
        self.deadlines.clear();
        for wait in std::mem::take(&mut self.waits).into_values() {
            self.seen.alone += 1;
            out.push(Output::Answer { id: wait.asked.id, answer: Outcome::Done(wait.reply) });
        }
    }

    fn declare(&mut self, now: Now, spaces: BTreeMap<String, Told<Self>>, out: &mut Vec<Output>) {
        let may_serve = self.level >= LEVEL;
        self.ids = spaces.iter().filter(|_| may_serve).map(|(name, told)| (name.clone(), told.id)).collect();
        let ids: Vec<u32> = self.ids.values().copied().collect();
        let gone: Vec<u32> = self.spaces.keys().filter(|id| !ids.contains(id)).copied().collect();
        for id in gone {
            if self.spaces.remove(&id).is_some_and(|held| held.keeper.is_some()) {
                out.push(Output::Forget { group: checkpoint::group(id) });
            }
        }
        let over: Vec<(u32, u64)> = self.waits.keys().filter(|(id, _)| !ids.contains(id)).copied().collect();
        for wait in over.into_iter().filter_map(|at| self.waits.remove(&at)) {
            out.push(unknown(wait.asked.id, "its namespace was taken out of the declaration"));
        }
        self.deadlines.retain(|(_, id, _)| ids.contains(id));
        self.holds.retain(&ids);
        self.sweeps.retain(&ids, out);
        for peer in self.peers.values_mut() {
            peer.told.retain(|id, _| ids.contains(id));
            peer.said.retain(|id, _| ids.contains(id));
            peer.serves.retain(|id| ids.contains(id));
            peer.digested.retain(|id, _| ids.contains(id));
            peer.sent.retain(|id, _| ids.contains(id));
            peer.window.retain(&ids);
        }
        let catches_up = now.mono.since(self.born.unwrap_or(now.mono)) < FRESH_AFTER;
        for Told { id, spec, .. } in spaces.into_values().filter(|_| may_serve) {
            match self.spaces.get_mut(&id) {
                Some(held) => {
                    held.spec = spec;
                    held.keeps(now.mono, id, out);
                }
                None => {
                    let mut held = Held::new(now.mono, Space::new(self.life), spec, catches_up);
                    held.keeps(now.mono, id, out);
                    if let Some(records) = self.kept.remove(&checkpoint::group(id)) {
                        held.restore(now, id, records, out);
                    }
                    self.spaces.insert(id, held);
                }
            }
        }
    }

    // Operations.

    pub(crate) fn ask(&mut self, now: Now, asked: Asked, op: Op, out: &mut Vec<Output>) {
        let Some(&id) = self.ids.get(&*op.namespace) else {
            let why = format!("there is no namespace {} of class soft", op.namespace);
            return out.push(refuse(asked.id, Refused::wrong(why)));
        };
        let (names, values) = op.action.texts();
        if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            let why = format!("keys, fields and members have {NAME_BYTES_MAX} bytes at most");
            return out.push(refuse(asked.id, Refused::wrong(why)));
        }
        if values.iter().any(|value| value.len() > VALUE_BYTES_MAX) {
            return out.push(refuse(asked.id, Refused::wrong(format!("values have {VALUE_BYTES_MAX} bytes at most"))));
        }
        let held = self.spaces.get_mut(&id).expect("each name has its space");
        if !held.is_settled() {
            if self.is_call(asked.id) {
                return out.push(catchup::refused(asked.id));
            }
            let Some((asked, op)) = self.pass(now, id, (asked, op), Vec::new(), out) else { return };
            let held = self.spaces.get_mut(&id).expect("each name has its space");
            if let Err(asked) = held.wait(asked, op) {
                out.push(catchup::refused(asked.id));
            }
            return;
        }
        let age = match op.stale {
            None => None,
            Some(_) if self.level < STALE_LEVEL => {
                let why = format!("`stale` needs level {STALE_LEVEL} of all nodes: some have an older program");
                return out.push(refuse(asked.id, Refused::wrong(why)));
            }
            Some(most) => {
                let age = self.staleness(now, id);
                if age > most {
                    let Some((asked, _)) = self.pass(now, id, (asked, op), Vec::new(), out) else { return };
                    let why = format!("what this node knows may be {} ms old: ask another one", age.as_millis());
                    return out.push(refuse(asked.id, Refused::busy(why, Span::millis(20))));
                }
                Some(age)
            }
        };
        let held = self.spaces.get_mut(&id).expect("each name has its space");
        let op = match op {
            Op { action: Action::Watch(watch), .. } => return self.watch(now, id, asked, watch, out),
            op => op,
        };
        let adds = match &op.action {
            Action::Set { .. }
            | Action::Put { .. }
            | Action::Add { .. }
            | Action::Hold { .. }
            | Action::Load { .. } => true,
            Action::List { what, .. } => what.adds(),
            _ => false,
        };
        let is_list = match &op.action {
            Action::List { .. } => true,
            Action::Load { whole, .. } => whole.kind == crate::Kind::Item,
            _ => false,
        };
        if is_list && self.level < LIST_LEVEL {
            let why = format!("lists of class soft need level {LIST_LEVEL} of all nodes: some have an older program");
            return out.push(refuse(asked.id, Refused::wrong(why)));
        }
        if matches!(op.action, Action::Hold { .. }) && self.level < HELD_LEVEL {
            let why = format!("what is held needs level {HELD_LEVEL} of all nodes: some have an older program");
            return out.push(refuse(asked.id, Refused::wrong(why)));
        }
        if adds && held.space.bytes() >= held.spec.size_max {
            let why = format!("{}: it has {} bytes, which is its size_max", crate::FULL, held.spec.size_max);
            return out.push(refuse(asked.id, Refused::wrong(why).because(Because::Quota)));
        }
        if op.action.is_write() && self.waits.len() >= WAITS_MAX {
            let why = format!("{WAITS_MAX} updates wait for other nodes already");
            return out.push(refuse(asked.id, Refused::busy(why, Span::millis(20))));
        }
        let large = match &op.action {
            Action::Clear => Some((Of::All, Reply::Done)),
            Action::Remove { keys } if held.space.are_large(keys) => {
                let all: BTreeSet<Bytes> = keys.iter().cloned().collect();
                let there = all.iter().filter(|key| held.space.is_there(now.mono, key)).count();
                Some((Of::Keys(all.into_iter().collect()), Reply::Int(there as i64)))
            }
            _ => None,
        };
        if let Some((of, reply)) = large {
            return self.sweep(id, asked, of, reply, out);
        }
        let before = held.space.seq();
        held.space.takes_met_damaged();
        let reply = match op.action {
            Action::Hold { kind, key, pairs, holder } => {
                match self.holds.hold(now, &mut held.space, id, (kind, key), pairs, holder) {
                    Ok(reply) => reply,
                    Err(refused) => return out.push(refuse(asked.id, refused)),
                }
            }
            Action::LetGo { holder } => self.holds.let_go(now, &mut held.space, id, holder),
            action => held.space.run(now, action),
        };
        let last = held.space.seq();
        if held.space.takes_met_damaged() && last == before {
            let why = "a value there is damaged in this node's memory, and is asked of another node";
            return out.push(refuse(asked.id, Refused::busy(why, HEAL_AGAIN)));
        }
        self.seen.updates += last - before;
        self.is_due |= last > before;
        let reply = match age {
            Some(age) => Reply::Aged { age, of: Box::new(reply) },
            None => reply,
        };
        self.answer_write(id, asked, (before, last), reply, out);
    }

    /// Answers when another node has what was made behind the one update and up to the other, if it is to have it.
    pub(crate) fn answer_write(
        &mut self,
        id: u32,
        asked: Asked,
        (before, last): (u64, u64),
        reply: Reply,
        out: &mut Vec<Output>,
    ) {
        let Some(held) = self.spaces.get(&id) else { return };
        let wants_two = held.spec.copies > 1;
        if held.space.out_bytes >= FRAME_BYTES {
            self.push(id, out);
        }
        let is_alone = self.live().next().is_none();
        if last > before && wants_two && !is_alone {
            self.deadlines.insert((asked.deadline, id, last));
            self.waits.insert((id, last), Wait { asked, first: before + 1, reply });
            return;
        }
        self.seen.alone += u64::from(last > before && wants_two);
        out.push(Output::Answer { id: asked.id, answer: Outcome::Done(reply) });
    }

    /// Another node has these updates of this life.
    pub(crate) fn is_copied(&mut self, space: u32, ranges: &[Range], out: &mut Vec<Output>) {
        for range in ranges.iter().filter(|range| range.life == self.life) {
            let covered = self.waits.range((space, range.first)..=(space, range.last));
            let covered = covered.filter(|(_, wait)| wait.first >= range.first).map(|(at, _)| *at);
            for at in covered.collect::<Vec<_>>() {
                let wait = self.waits.remove(&at).expect("it was just seen");
                self.deadlines.remove(&(wait.asked.deadline, at.0, at.1));
                out.push(Output::Answer { id: wait.asked.id, answer: Outcome::Done(wait.reply) });
            }
        }
    }

    fn end_waits(&mut self, now: Now, out: &mut Vec<Output>) {
        while let Some(&(deadline, space, last)) = self.deadlines.first()
            && deadline <= now.mono
        {
            self.deadlines.pop_first();
            let Some(wait) = self.waits.remove(&(space, last)) else { continue };
            self.seen.unknown += 1;
            let why = "it is applied at this node and will spread, but no other node acknowledged it in time";
            out.push(unknown(wait.asked.id, why));
        }
    }

    /// Removes keys whose end has come. The node that gave the end does it, or if that is dead the first of the others: an
    /// ordinary removal, so that what was added without having seen the end stays. Until then nobody shows the key.
    fn end_keys(&mut self, now: Now) {
        if !self.spaces.values().any(|held| held.space.next_end().is_some_and(|at| at <= now.mono)) {
            return;
        }
        let me = self.life.node;
        let mut due = false;
        let live: Vec<NodeId> = self.live().collect();
        let is_due = |held: &Held| held.space.next_end().is_some_and(|at| at <= now.mono);
        for (id, held) in self.spaces.iter_mut().filter(|(_, held)| is_due(held)) {
            for key in held.space.ended(now.mono) {
                let Some((_, by)) = held.space.end_of(&key) else { continue };
                let is_mine = by == me || !live.contains(&by) && live.iter().all(|other| me < *other);
                if is_mine && held.is_settled() && held.space.are_large(std::slice::from_ref(&key)) {
                    match self.sweeps.has_room() {
                        true => self.sweeps.begin(&held.space, *id, Of::Ended(key), None),
                        false => held.space.look_again(now.mono + END_AGAIN, key),
                    }
                } else if is_mine && held.is_settled() {
                    held.space.remove_ended(now, &key);
                    due = true;
                } else {
                    held.space.look_again(now.mono + END_AGAIN, key);
                }
            }
        }
        self.is_due |= due;
    }

    // Frames.

    /// Sends what this turn has brought.
    fn flush(&mut self, out: &mut Vec<Output>) {
        if !std::mem::take(&mut self.is_due) {
            return;
        }
        let full: Vec<u32> =
            self.spaces.iter().filter(|(_, held)| !held.space.out.is_empty()).map(|(id, _)| *id).collect();
        full.into_iter().for_each(|id| self.push(id, out));
        for (peer, space, boot) in std::mem::take(&mut self.owes) {
            let Some(held) = self.spaces.get(&space) else { continue };
            let all: Vec<Range> = held.space.context.ranges_of(Life { node: peer, boot }).collect();
            // The contiguous part, and the newest beyond it.
            let newest = all.iter().skip(1.max(all.len().saturating_sub(ACK_RANGES_MAX)));
            let bounds = all.iter().take(1).chain(newest).flat_map(|range| [range.first, range.last]).collect();
            let ack = Ack { space, boot: boot.0, bounds };
            out.push(Output::Send { to: peer, frame: Frame::new(kind::ACK, ack.encode_to_vec()) });
        }
    }

    /// What a namespace has to send: an operation may have made more than a frame takes.
    fn push(&mut self, id: u32, out: &mut Vec<Output>) {
        let Some(held) = self.spaces.get_mut(&id) else { return };
        let all = std::mem::take(&mut held.space.out);
        held.space.out_bytes = 0;
        let (mut deltas, mut bytes) = (Vec::new(), 0);
        for delta in all {
            bytes += delta.encoded_len();
            deltas.push(delta);
            if bytes >= FRAME_BYTES {
                self.push_frame(id, std::mem::take(&mut deltas), out);
                bytes = 0;
            }
        }
        self.push_frame(id, deltas, out);
    }

    /// One frame, encoded once, for all that have room for it.
    fn push_frame(&mut self, id: u32, deltas: Vec<Delta>, out: &mut Vec<Output>) {
        let (Some(first), Some(last)) = (deltas.first(), deltas.last()) else { return };
        let range = Range { life: self.life, first: first.seq, last: last.seq };
        let head = Bytes::from(Push { space: id, boot: self.life.boot.0, deltas }.encode_to_vec());
        for (to, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.dead.is_none()) {
            if peer.window.bytes() < WINDOW_BYTES {
                peer.window.push(self.turn_at, id, range, head.clone());
                out.push(Output::Send { to: *to, frame: Frame::new(kind::PUSH, head.clone()) });
            }
        }
    }

    fn frame(&mut self, now: Now, from: NodeId, frame: Frame, out: &mut Vec<Output>) -> Result<(), Odd> {
        fn read<M: Weighed>(frame: &Frame) -> Result<M, Odd> {
            claims::read(frame.head.clone())
        }
        match frame.kind {
            kind::PUSH => self.pushed(now, from, read(&frame)?, out),
            kind::ACK => self.acked(from, &read(&frame)?, out),
            kind::DIGEST => self.digest(now, from, read(&frame)?, out),
            kind::HAVE => self.have(now, from, &read(&frame)?, out),
            kind::CELLS => self.cells(now, from, read(&frame)?, out),
            kind::PAGE_ASK => self.page_ask(now, from, read(&frame)?, out),
            kind::PAGE => self.page(now, from, read(&frame)?, out),
            kind::CALL => self.call(now, from, read(&frame)?, out),
            kind::CALLED => self.called(now, from, read(&frame)?, out),
            kind::SKETCH_ASK => self.sketch_ask(now, from, read(&frame)?, out),
            kind::SKETCH => self.sketch(now, from, read(&frame)?, out),
            kind::PARTS => self.parts(now, from, &read(&frame)?, out),
            kind::MEND => self.mend(now, from, read(&frame)?, out),
            kind::RELAY => self.relay(now, from, (read(&frame)?, frame.head.clone()), out),
            _ => Err(Odd("a kind of frame that this class does not have")),
        }
    }

    pub(crate) fn pushed(&mut self, now: Now, from: NodeId, push: Push, out: &mut Vec<Output>) -> Result<(), Odd> {
        // Not declared here yet, or no more.
        let Some(held) = self.spaces.get_mut(&push.space) else { return Ok(()) };
        let life = Life { node: from, boot: Boot(push.boot) };
        let last = push.deltas.last().map(|delta| delta.seq);
        for delta in push.deltas {
            self.seen.heard += u64::from(held.space.take_delta(now, life, delta)?);
        }
        self.seen.conflicts += std::mem::take(&mut held.space.conflicts);
        self.owes.insert((from, push.space, life.boot));
        self.is_due = true;
        self.names_ahead(from, push.space, out);
        if let Some(last) = last {
            self.says(now, from, life.boot, push.space, last);
        }
        Ok(())
    }

    fn acked(&mut self, from: NodeId, ack: &Ack, out: &mut Vec<Output>) -> Result<(), Odd> {
        if Boot(ack.boot) != self.life.boot {
            return Ok(());
        }
        let ranges = pairs(self.life, &ack.bounds).ok_or(Odd("an acknowledgement of what nobody gives"))?;
        self.has_come(from, ack.space, &ranges);
        self.is_copied(ack.space, &ranges, out);
        Ok(())
    }

    /// The window of a peer has room again.
    pub(crate) fn has_come(&mut self, from: NodeId, space: u32, ranges: &[Range]) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.window.has_come(self.turn_at, space, ranges);
        }
    }

    /// Sends once more what was not acknowledged in time.
    fn push_again(&mut self, now: Now, out: &mut Vec<Output>) {
        for (to, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.dead.is_none()) {
            for head in peer.window.again(now.mono) {
                self.seen.again += 1;
                out.push(Output::Send { to: *to, frame: Frame::new(kind::PUSH, head) });
            }
        }
    }
}

fn refuse(id: AskId, refused: Refused) -> Output {
    Output::Answer { id, answer: Outcome::Refused(refused) }
}

fn unknown(id: AskId, why: &str) -> Output {
    Output::Answer { id, answer: Outcome::Unknown(Unknown { why: why.to_owned() }) }
}
