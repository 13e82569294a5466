//! Repair: what was lost on its way is found by comparing what two nodes have seen, and cells are sent whole. Bytes follow
//! what differs. Who lacks what the other's index has forgotten is sent all cells, page by page, if it has nothing; if it has something (it
//! was away for long, or has an older checkpoint) the two are compared (`compare.rs`). It is joined, too: it keeps what it alone has.
//!
//! ```text
//! Digest   →   hash of what the sender has seen, for all namespaces
//! Have     ←   for each that differs: what it has seen, and its floor
//! Cells    →   what that lacks      Have →   if something is missing here
//! Cells    ←
//! ```

use std::collections::BTreeMap;

use base::checksum::place_hash;
use base::{Boot, Frame, NodeId, Now, Time};
use prost::Message;

use crate::catchup::{self, Held};
use crate::cell::Cell;
use crate::context::{Context, Folded, Range};
use crate::dot::{Dot, Life};
use crate::fill::Transfer;
use crate::limits::*;
use crate::machine::{Heard, kind};
use crate::space::{Address, Odd, Space};
use crate::wire::{ACell, At, Cells, Digest, DigestOf, Have, Whole, context, pairs, ranges, tell};
use crate::{COMPARE_LEVEL, Output, Soft};

impl Soft {
    /// Now and then: compares with the next peer, asks again for pages, forgets what all have.
    pub(crate) fn gossip(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.gossip_at > now.mono || self.spaces.is_empty() {
            return;
        }
        let period = self.spaces.values().map(|held| held.spec.gossip_ms).min().unwrap_or(GOSSIP_MS_DEFAULT) * 1_000;
        self.gossip_at = now.mono + base::Span(self.rng.between(period * 3 / 4, period * 5 / 4));
        for held in self.spaces.values_mut().filter(|held| held.space.tick != held.space.context) {
            held.space.tick = held.space.context.clone();
        }
        if self.collect_at <= now.mono {
            self.collect_at = now.mono + COLLECT_EVERY;
            self.collect(now);
            self.fold_lives(now);
            self.tally(now);
        }
        self.tend_transfers(now, out);
        if let Some(peer) = self.next_peer() {
            self.send_digest(now, peer, false, out);
        }
    }

    /// Each live peer once in a round, in another order each time.
    fn next_peer(&mut self) -> Option<NodeId> {
        while let Some(peer) = self.round.pop() {
            if self.peers.get(&peer).is_some_and(|peer| peer.dead.is_none()) {
                return Some(peer);
            }
        }
        self.round = self.live().collect();
        self.rng.shuffle(&mut self.round);
        self.round.pop()
    }

    /// Tells what has changed since it was told this peer, or `all`; of what has not, a part in turn: idle namespaces cost little.
    pub(crate) fn send_digest(&mut self, now: Now, to: NodeId, all: bool, out: &mut Vec<Output>) {
        let of = |(id, held): (&u32, &Held)| DigestOf {
            space: *id,
            context: digest(&held.space.context),
            settles: !held.is_settled(),
            kept: held.keeper.as_ref().map_or(0, |keeper| digest(keeper.kept())),
            state: held.space.state.whole(),
            updates: held.space.seq() + 1,
        };
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let (mut spaces, mut idle) = (Vec::new(), Vec::new());
        for of in self.spaces.iter().map(of) {
            let is_known = peer.digested.insert(of.space, of) == Some(of);
            if all || of.settles || !is_known { spaces.push(of) } else { idle.push(of) }
        }
        // Those first that had no turn.
        let had_one = idle.partition_point(|of: &DigestOf| of.space <= peer.digested_to);
        idle.rotate_left(had_one);
        idle.truncate(DIGEST_IDLE);
        peer.digested_to = idle.last().map_or(0, |of| of.space);
        spaces.append(&mut idle);
        let message = Digest { boot: self.life.boot.0, spaces, wall_ms: now.wall_ms };
        out.push(Output::Send { to, frame: Frame::new(kind::DIGEST, message.encode_to_vec()) });
    }

    /// Is it from the life of a peer that is known here? What another life had is nobody's now.
    pub(crate) fn is_of_life(&self, from: NodeId, boot: u64) -> bool {
        self.peers.get(&from).is_some_and(|peer| peer.boot == Boot(boot))
    }

    pub(crate) fn digest(&mut self, now: Now, from: NodeId, message: Digest, out: &mut Vec<Output>) -> Result<(), Odd> {
        if !self.is_of_life(from, message.boot) {
            return Ok(());
        }
        self.hears_clock(now, from, message.wall_ms);
        for DigestOf { space, context, settles, kept, state, updates } in message.spaces {
            self.hears_serving(from, space, !settles);
            if let Some(updates) = updates.checked_sub(1) {
                self.says(now, from, Boot(message.boot), space, updates);
            }
            let same = self.spaces.get(&space).filter(|held| digest(&held.space.context) == context);
            let (mut wants, is_same) = (false, same.is_some());
            if let (Some(held), Some(peer)) = (same, self.peers.get_mut(&from)) {
                let before = peer.told.remove(&space).and_then(|heard| heard.kept);
                let known =
                    [Some(held.kept()), before.as_ref()].into_iter().flatten().find(|known| digest(known) == kept);
                let context = held.space.context.clone();
                wants = kept != 0 && known.is_none();
                let known = known.cloned();
                let known = (kept != 0).then(|| known.or(before).unwrap_or_default());
                peer.told.insert(space, Heard { at: now.mono, context, kept: known });
            }
            // What a transfer brings is asked for by it alone.
            let has_come = self.spaces.get(&space).is_some_and(Held::has_come);
            let was_asked = !is_same && self.was_asked(now, space, context);
            if was_asked && !wants && !settles {
                // It has what another one is sending. What this one lacks it asks for when it is told of it.
                if !self.round.contains(&from) {
                    self.round.push(from);
                }
            } else if wants || settles || !is_same && has_come {
                self.send_have(from, space, (false, wants), out);
                self.asks(now, space, context);
            }
            if is_same {
                self.compare_state(from, space, state, out);
            }
        }
        Ok(())
    }

    /// Operations may be passed to who serves.
    fn hears_serving(&mut self, from: NodeId, space: u32, serves: bool) {
        let Some(peer) = self.peers.get_mut(&from).filter(|_| self.spaces.contains_key(&space)) else { return };
        match serves {
            true => peer.serves.insert(space),
            false => peer.serves.remove(&space),
        };
    }

    /// `how`: it is an answer, and it wants one in any case.
    fn send_have(&self, to: NodeId, space: u32, how: (bool, bool), out: &mut Vec<Output>) {
        let keeper = self.spaces.get(&space).and_then(|held| held.keeper.as_ref());
        let of = |which: fn(&Space) -> &Context| self.spaces.get(&space).map(|held| tell(which(&held.space)));
        let have = Have {
            space,
            boot: self.life.boot.0,
            context: of(|space| &space.context).unwrap_or_default(),
            floor: of(|space| &space.floor).unwrap_or_default(),
            is_answer: how.0,
            kept: keeper.map(|keeper| tell(keeper.kept())).unwrap_or_default(),
            keeps: keeper.is_some(),
            wants: how.1,
            serves: self.spaces.get(&space).is_some_and(Held::is_settled),
        };
        out.push(Output::Send { to, frame: Frame::new(kind::HAVE, have.encode_to_vec()) });
    }

    pub(crate) fn have(&mut self, now: Now, from: NodeId, have: &Have, out: &mut Vec<Output>) -> Result<(), Odd> {
        if !self.is_of_life(from, have.boot) {
            return Ok(());
        }
        let mut theirs = context(&have.context).ok_or(Odd("a context of what nobody gives"))?;
        let mut floor = context(&have.floor).ok_or(Odd("a floor of what nobody gives"))?;
        let mut kept = context(&have.kept).ok_or(Odd("a checkpoint of what nobody gives"))?;
        let Some(held) = self.spaces.get_mut(&have.space) else { return Ok(()) };
        held.space.may_know(&theirs)?;
        let told = digest(&theirs);
        // Lives that one side has folded and the other has not, if both have the same of them.
        held.space.adopts(&theirs);
        [&mut theirs, &mut floor, &mut kept].into_iter().for_each(|told| _ = told.adopts(&held.space.context));
        held.tells(from, &theirs);
        let misses = !theirs.is_within(&held.space.context);
        let lacks_floor = !floor.is_within(&held.space.context);
        let may_fill = self.level >= COMPARE_LEVEL;
        let starts = held.has_come() && (lacks_floor || may_fill && held.lacks_much(&theirs));
        match &mut held.transfer {
            Some(transfer) if may_fill => transfer.hears(from, Boot(have.boot), &theirs, &floor),
            Some(_) => (),
            None if starts => {
                let is_fresh = held.is_fresh_beside(&theirs);
                held.transfer = Some(Transfer::new(from, Boot(have.boot), is_fresh));
            }
            None => (),
        }
        let has_come = held.has_come();
        let may_repair = held.space.floor.is_within(&theirs);
        if may_repair && let Some(peer) = self.peers.get_mut(&from) {
            let (since, sent) = peer.sent.remove(&have.space).unwrap_or((now.mono, Context::default()));
            let (since, sent) = match now.mono.since(since) < REPAIR_AGAIN {
                true => (since, sent),
                false => (now.mono, Context::default()),
            };
            let send = |frame| out.push(Output::Send { to: from, frame });
            let chosen = repairs(now, have.space, &held.space, &theirs, &sent, send);
            peer.sent.insert(have.space, (since, chosen));
        }
        let known: Vec<Range> = theirs.ranges_of(self.life).collect();
        self.has_come(from, have.space, &known);
        self.is_copied(have.space, &known, out);
        self.hears_serving(from, have.space, have.serves);
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.told.insert(have.space, Heard { at: now.mono, context: theirs, kept: have.keeps.then_some(kept) });
        }
        if !has_come {
            self.spread(now, have.space, out);
        }
        let misses = misses && has_come && !self.was_asked(now, have.space, told);
        if !have.is_answer && (misses || !may_repair || have.wants) {
            self.send_have(from, have.space, (true, false), out);
            self.asks(now, have.space, told);
        }
        Ok(())
    }

    /// Was one that has seen just this asked for what is missing here, not long ago?
    fn was_asked(&self, now: Now, space: u32, context: u64) -> bool {
        let asked = self.spaces.get(&space).and_then(|held| held.asked);
        asked.is_some_and(|(at, of)| of == context && now.mono.since(at) < REPAIR_AGAIN)
    }

    fn asks(&mut self, now: Now, space: u32, context: u64) {
        if let Some(held) = self.spaces.get_mut(&space) {
            held.asked = Some((now.mono, context));
        }
    }

    pub(crate) fn cells(&mut self, now: Now, from: NodeId, message: Cells, out: &mut Vec<Output>) -> Result<(), Odd> {
        let known = context(&message.context).ok_or(Odd("a context of what nobody gives"))?;
        let Some(held) = self.spaces.get_mut(&message.space) else { return Ok(()) };
        held.space.may_know(&known)?;
        let cells = read_all(now, message.cells)?;
        if !catchup::has_room_for(&mut held.covered, from, &cells) {
            return Ok(());
        }
        for (at, cell, covers) in cells {
            held.space.take_whole(now, &at, &cell, &covers, &known)?;
            self.seen.repaired += 1;
        }
        self.seen.conflicts += std::mem::take(&mut held.space.conflicts);
        self.names_ahead(from, message.space, out);
        if let Some(peer) = self.peers.get(&from) {
            self.owes.insert((from, message.space, peer.boot));
            self.is_due = true;
        }
        Ok(())
    }

    // Collecting.

    /// Rids the index of what is forgotten, a little in each turn.
    pub(crate) fn prune(&mut self, now: Now) {
        if self.prune_at > now.mono {
            return;
        }
        for held in self.spaces.values_mut() {
            if held.space.is_forgetting() {
                held.space.prune();
                self.prune_at = now.mono + PRUNE_AGAIN;
            }
            if held.space.is_adopting() {
                held.space.adopt();
                self.prune_at = now.mono + PRUNE_AGAIN;
            }
            if held.space.tally.walks() {
                held.space.add_up_some();
                self.prune_at = now.mono + PRUNE_AGAIN;
            }
        }
    }

    /// What all members have seen, and have in their checkpoints, is forgotten by the index. Those that are dead count for a while.
    /// Where the index is large nobody's disk is waited for.
    fn collect(&mut self, now: Now) {
        for (id, held) in self.spaces.iter_mut().filter(|(_, held)| held.is_settled() && held.has_come()) {
            let is_large = held.space.index.len() > INDEX_MAX;
            if !is_large {
                held.covered.clear();
            }
            let counts = |dead: Option<Time>| dead.is_none_or(|since| !is_large && now.mono.since(since) < DEAD_COUNTS);
            let mut stable = if is_large { held.space.context.clone() } else { held.kept().clone() };
            for peer in self.peers.values().filter(|peer| counts(peer.dead)) {
                match peer.told.get(id) {
                    Some(Heard { context, kept, .. }) => {
                        stable = stable.meet(kept.as_ref().filter(|_| !is_large).unwrap_or(context));
                    }
                    None => stable = Context::default(),
                }
            }
            // Who was cut off for a moment goes on with its cursor.
            let watched = held.watched.is_some_and(|at| now.mono.since(at) < WATCH_KEPT) && !is_large;
            match &mut held.stable {
                Some((since, old)) if watched => {
                    if now.mono.since(*since) >= WATCH_KEPT {
                        held.space.forget(old);
                        (*since, *old) = (now.mono, stable);
                    }
                }
                none if watched => *none = Some((now.mono, stable)),
                some => {
                    *some = None;
                    held.space.forget(&stable);
                }
            }
        }
    }
}

/// A cell that many nodes wrote at one moment, each a large value, may be more than a frame takes. It waits for the next
/// write, which replaces them.
pub(crate) fn fits(frame: &Frame) -> bool {
    frame.wire_len() <= base::limits::FRAME_BYTES_MAX
}

pub(crate) fn digest(of: &Context) -> u64 {
    let mut bytes = Vec::new();
    for Range { life, first, last } in of.ranges() {
        [life.node.0, life.boot.0, first, last].iter().for_each(|n| bytes.extend(n.to_be_bytes()));
    }
    for (node, Folded { below, sum }) in of.folded() {
        [node.0, 0, below.0, sum].iter().for_each(|n| bytes.extend(n.to_be_bytes()));
    }
    place_hash(&bytes)
}

pub(crate) fn address(told: Option<At>) -> Result<Option<Address>, Odd> {
    told.map(|at| at.read().ok_or(Odd("an address that cannot be"))).transpose()
}

/// Cells of one frame. Each of their updates takes a line of the index, so a frame is of no more than that may have.
pub(crate) fn read_all(now: Now, cells: Vec<Whole>) -> Result<Vec<(Address, Cell, Vec<Range>)>, Odd> {
    let covered = cells.iter().map(covered).fold(0, u64::saturating_add);
    if covered > INDEX_MAX as u64 {
        return Err(Odd("cells of more updates than are remembered"));
    }
    cells.into_iter().map(|whole| read(now, whole)).collect()
}

/// How many updates a cell says it is the outcome of.
fn covered(whole: &Whole) -> u64 {
    let pairs = whole.covers.iter().flat_map(|told| told.bounds.as_chunks::<2>().0);
    pairs.fold(0, |sum: u64, [first, last]| sum.saturating_add(last.saturating_sub(*first).saturating_add(1)))
}

fn read(now: Now, whole: Whole) -> Result<(Address, Cell, Vec<Range>), Odd> {
    let at = whole.at.read().ok_or(Odd("an address that cannot be"))?;
    let cell = whole.cell.read(now.mono).ok_or(Odd("a cell that cannot be, or was damaged"))?;
    let mut covers = Vec::new();
    for told in &whole.covers {
        let life = Life { node: NodeId(told.node), boot: Boot(told.boot) };
        covers.extend(pairs(life, &told.bounds).ok_or(Odd("updates that nobody gives"))?);
    }
    Ok((at, cell, covers))
}

/// Frames with the cells that one with this context lacks; each says of which updates its cells are the outcome.
///
/// Cells are sent as they are now. So a chosen cell is the outcome also of updates that choose none: those since the last tick,
/// and those beyond what fits. They are told with it. Else who takes it has what an update did without having seen it, and
/// would never be repaired if the update were lost elsewhere.
///
/// Gives all updates of which it has sent what they led to; `sent` was sent not long ago, and is not chosen again.
fn repairs(now: Now, id: u32, space: &Space, theirs: &Context, sent: &Context, mut send: impl FnMut(Frame)) -> Context {
    let mut chosen = sent.clone();
    let mut found: BTreeMap<&Address, Context> = BTreeMap::new();
    let mut bytes = 0;
    let mut beyond = 0;
    let older: Context = space.tick.minus(theirs).into_iter().collect();
    for (dot, at) in older.minus(sent).iter().flat_map(|range| space.updates(range)) {
        if bytes < FRAME_BYTES * REPAIR_FRAMES {
            let covers = found.entry(at).or_insert_with(|| {
                let cell = space.cells.get(at).cloned().unwrap_or_default();
                bytes += at.key.len() + at.element.len() + ACell::of(&cell, now.mono).encoded_len() + 64;
                Context::default()
            });
            if !covers.contains(Dot { seq: dot.seq - 1, ..*dot }) {
                bytes += 24;
            }
            covers.insert(*dot);
            chosen.insert(*dot);
        } else if let Some(covers) = found.get_mut(at) {
            covers.insert(*dot);
            chosen.insert(*dot);
        }
        beyond += usize::from(bytes >= FRAME_BYTES * REPAIR_FRAMES);
        if beyond > BEYOND_MAX {
            break;
        }
    }
    let newer = space.context.minus(&space.tick);
    for (dot, at) in newer.iter().flat_map(|range| space.updates(range)) {
        if let Some(covers) = found.get_mut(at).filter(|_| !theirs.contains(*dot)) {
            covers.insert(*dot);
        }
    }
    let context = tell(&space.context);
    let mut frame = Cells { space: id, context, cells: Vec::new() };
    let (mut left, mut bytes, mut updates) = (found.len(), 0, 0);
    let mut close = |frame: &mut Cells| {
        let cells = Frame::new(kind::CELLS, frame.encode_to_vec());
        if fits(&cells) {
            send(cells);
        }
        frame.cells.clear();
    };
    for (at, mut covers) in found {
        let cell = space.cells.get(at);
        // Of what it has itself a cell need not say that it is its outcome.
        cell.iter().flat_map(|cell| cell.dots()).for_each(|dot| covers.remove_range(dot.into()));
        let cell = cell.map(|cell| ACell::of(cell, now.mono)).unwrap_or_default();
        let whole = Whole { at: At::from(at), cell, covers: ranges(covers.ranges()) };
        let of = covered(&whole);
        if updates + of > INDEX_MAX as u64 && !frame.cells.is_empty() {
            close(&mut frame);
            (bytes, updates) = (0, 0);
        }
        (bytes, updates) = (bytes + whole.encoded_len(), updates + of);
        frame.cells.push(whole);
        left -= 1;
        if bytes >= FRAME_BYTES || left == 0 {
            close(&mut frame);
            (bytes, updates) = (0, 0);
        }
    }
    chosen
}
