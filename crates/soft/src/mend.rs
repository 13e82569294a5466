//! What comparing contexts does not see: two nodes that have seen the same and have different cells, after a peer has lied, or memory
//! was damaged. A hash over all cells goes with each digest. Where it differs twice in a row the hashes of 256 parts of the namespace are
//! compared, and both send the cells of those that differ; each keeps all that either has. Nobody knows which of the two was right:
//! what comes back is seen and can be removed, what is lost is not. A value that is not what its checksum says is given to no reader: the cell
//! is asked of another node.
//!
//! ```text
//! Digest   →   context and state hash        Parts   ←   hash of each part
//! Parts    →   (an answer)                   Cells of parts that differ ↔
//! ```

use std::collections::BTreeSet;

use base::checksum::place_hash;
use base::{Frame, NodeId, Now};
use prost::Message;

use crate::cell::{Cell, Sibling, Slot};
use crate::context::Context;
use crate::dot::Dot;
use crate::limits::*;
use crate::machine::kind;
use crate::repair::{address, digest, fits, read_all};
use crate::space::{Address, Odd, Space};
use crate::wire::{ACell, At, Mend, Parts, Whole, context, tell};
use crate::{LIST_LEVEL, Output, Soft};

/// Hashes of the parts of a namespace, each the sum over its cells, so that a change costs one.
#[derive(Clone, Copy)]
pub struct State([u64; PARTS]);

impl Default for State {
    fn default() -> Self {
        Self([0; PARTS])
    }
}

impl State {
    /// Never 0, which says that a node tells none.
    pub fn whole(&self) -> u64 {
        let mut bytes = Vec::with_capacity(PARTS * 8);
        self.0.iter().for_each(|part| bytes.extend(part.to_be_bytes()));
        place_hash(&bytes).max(1)
    }

    pub fn moves(&mut self, at: &Address, from: u64, to: u64) {
        let part = &mut self.0[part_of(at)];
        *part = part.wrapping_sub(from).wrapping_add(to);
    }
}

fn part_of(at: &Address) -> usize {
    (at.hash() >> 56) as usize
}

/// What is the same at all that have seen the same: not when it ends, nor what is remembered of what was not seen.
pub fn hash(at: &Address, cell: &Cell) -> u64 {
    let live = || cell.slots.iter().filter(|slot| !slot.is_cut());
    if cell.siblings.is_empty() && live().next().is_none() {
        return 0;
    }
    let mut bytes = Vec::with_capacity(128);
    let mut put = |numbers: &[u64]| numbers.iter().for_each(|n| bytes.extend(n.to_be_bytes()));
    let dot = |dot: Dot| [dot.life.node.0, dot.life.boot.0, dot.seq];
    put(&[at.hash(), at.kind as u64, place_hash(&at.element), cell.siblings.len() as u64]);
    for Sibling { dot: of, stamp, value, sum, ends: _, held: _ } in &cell.siblings {
        put(&dot(*of));
        put(&[stamp.ms, stamp.counter.into(), value.is_some().into(), (*sum).into()]);
    }
    for Slot { birth, last, inc, dec, cut_inc, cut_dec } in live() {
        put(&dot(*birth));
        put(&[last.seq, *inc, *dec, *cut_inc, *cut_dec]);
    }
    place_hash(&bytes)
}

impl Space {
    /// Joins a cell of one that has seen the same, and has another one: all that either has stays. True if something came of it.
    fn mend(&mut self, at: &Address, cell: &Cell) -> bool {
        let is_mended = self.change(at, |mine, _| mine.mend(cell));
        if is_mended {
            self.mended_all += 1;
            self.mended.push_back(at.clone());
            if self.mended.len() > MENDED_KEPT {
                self.mended.pop_front();
            }
        }
        is_mended
    }

    /// Addresses that were touched by what is seen here and not there; none if that cannot be told any more.
    fn touched_since(&self, known: &Context) -> Option<BTreeSet<&Address>> {
        let mut touched = BTreeSet::new();
        for range in self.context.minus(known) {
            let before = touched.len();
            let mut count = 0;
            for (_, at) in self.updates(&range) {
                count += 1;
                touched.insert(at);
            }
            if count != range.last - range.first + 1 || touched.len() - before > WATCH_CELLS {
                return None;
            }
        }
        Some(touched)
    }
}

impl Soft {
    /// A peer that has seen the same says what its cells come to.
    pub(crate) fn compare_state(&mut self, from: NodeId, space: u32, theirs: u64, out: &mut Vec<Output>) {
        let at = self.turn_at;
        let Some(held) = self.spaces.get_mut(&space) else { return };
        let is_same = theirs == held.space.state.whole() || held.space.tally.is_under_way(at);
        if theirs == 0 || is_same || self.level < LIST_LEVEL {
            held.unequal.remove(&from);
            return;
        }
        let times = held.unequal.entry(from).or_default();
        *times += 1;
        // Once it may be that one has heard of what the other is about to.
        if *times > 1 {
            *times = 0;
            self.send_parts(from, space, false, out);
        }
    }

    fn send_parts(&self, to: NodeId, space: u32, is_answer: bool, out: &mut Vec<Output>) {
        let Some(held) = self.spaces.get(&space) else { return };
        let State(parts) = &held.space.state;
        let context = digest(&held.space.context);
        let parts = Parts { space, boot: self.life.boot.0, context, parts: parts.to_vec(), is_answer, only: None };
        out.push(Output::Send { to, frame: Frame::new(kind::PARTS, parts.encode_to_vec()) });
    }

    /// Asks another node for what is damaged here.
    pub(crate) fn heal(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.heal_at > now.mono || !self.spaces.values().any(|held| held.space.has_damaged()) {
            return;
        }
        self.heal_at = now.mono + HEAL_AGAIN;
        let live: Vec<NodeId> = self.live().collect();
        let to = self.rng.pick(&live).copied().filter(|_| self.level >= LIST_LEVEL);
        for (id, held) in &mut self.spaces {
            let context = digest(&held.space.context);
            for at in held.space.damaged() {
                let Some(to) = to else { continue };
                // A node of before looks for parts that differ.
                let State(mut parts) = held.space.state;
                parts[part_of(&at)] ^= 1;
                let (boot, parts, only) = (self.life.boot.0, parts.to_vec(), Some(At::from(&at)));
                let parts = Parts { space: *id, boot, context, parts, is_answer: true, only };
                out.push(Output::Send { to, frame: Frame::new(kind::PARTS, parts.encode_to_vec()) });
            }
        }
    }

    pub(crate) fn parts(&mut self, now: Now, from: NodeId, told: &Parts, out: &mut Vec<Output>) -> Result<(), Odd> {
        if !self.is_of_life(from, told.boot) {
            return Ok(());
        }
        if told.parts.len() != PARTS {
            return Err(Odd("hashes of other parts than there are"));
        }
        let start = self.rng.u64();
        let Some(held) = self.spaces.get(&told.space) else { return Ok(()) };
        if let Some(at) = address(told.only.clone())? {
            // It is damaged there. Whoever asks judges whether this one is what it should have.
            let Some(cell) = held.space.cells.get(&at) else { return Ok(()) };
            let cells = vec![Whole { at: At::from(&at), cell: ACell::of(cell, now.mono), covers: Vec::new() }];
            let context = tell(&held.space.context);
            let mend = Mend { space: told.space, boot: self.life.boot.0, context, cells };
            let frame = Frame::new(kind::MEND, mend.encode_to_vec());
            out.extend(fits(&frame).then_some(Output::Send { to: from, frame }));
            return Ok(());
        }
        // Since then one of them has seen more: the next digest tells.
        if told.context != digest(&held.space.context) || held.space.tally.is_under_way(now.mono) {
            return Ok(());
        }
        let State(parts) = &held.space.state;
        let differs: Vec<bool> = parts.iter().zip(&told.parts).map(|(mine, theirs)| mine != theirs).collect();
        let start = Address::from_hash(start);
        // From another place each time, as there may be more than is sent at once.
        let (before, behind) = (held.space.cells.range(..&start), held.space.cells.range(&start..));
        let all = behind.chain(before).filter(|(at, _)| differs[part_of(at)]);
        let context = tell(&held.space.context);
        let mut mend = Mend { space: told.space, boot: self.life.boot.0, context, cells: Vec::new() };
        let (mut bytes, mut frames) = (0, 0);
        let mut send = |mend: &mut Mend| {
            let frame = Frame::new(kind::MEND, mend.encode_to_vec());
            out.extend(fits(&frame).then_some(Output::Send { to: from, frame }));
            mend.cells.clear();
        };
        for (at, cell) in all {
            let whole = Whole { at: At::from(at), cell: ACell::of(cell, now.mono), covers: Vec::new() };
            bytes += whole.encoded_len();
            mend.cells.push(whole);
            if bytes >= FRAME_BYTES {
                send(&mut mend);
                (bytes, frames) = (0, frames + 1);
            }
            if frames >= REPAIR_FRAMES {
                break;
            }
        }
        if !mend.cells.is_empty() {
            send(&mut mend);
        }
        if !told.is_answer && differs.contains(&true) {
            self.send_parts(from, told.space, true, out);
        }
        Ok(())
    }

    pub(crate) fn mend(&mut self, now: Now, from: NodeId, message: Mend, out: &mut Vec<Output>) -> Result<(), Odd> {
        if !self.is_of_life(from, message.boot) {
            return Ok(());
        }
        let known = context(&message.context).ok_or(Odd("a context of what nobody gives"))?;
        let Some(held) = self.spaces.get_mut(&message.space) else { return Ok(()) };
        held.space.may_know(&known)?;
        // Only who has seen all that the sender has can tell what it lacks from what it has seen the end of.
        if !known.is_within(&held.space.context) {
            return Ok(());
        }
        let Some(touched) = held.space.touched_since(&known) else { return Ok(()) };
        let mut cells = Vec::new();
        for (at, cell, _) in read_all(now, message.cells)? {
            if cell.dots().any(|dot| !known.contains(dot)) {
                return Err(Odd("a cell with what its sender has not seen"));
            }
            if !touched.contains(&at) {
                cells.push((at, cell));
            }
        }
        let mended = cells.iter().filter(|(at, cell)| held.space.mend(at, cell)).count();
        if mended > 0 {
            self.seen.mended += mended as u64;
            let name = self.ids.iter().find(|(_, id)| **id == message.space).map_or("", |(name, _)| name);
            let text = format!(
                "class soft: {mended} elements of namespace {name} were not what {from} has, though both had seen the same; \
                 now they are: a node's memory is damaged, or one of them has said what is not so"
            );
            out.push(Output::Warn { text });
        }
        Ok(())
    }
}
