//! A cell: what lies at an address, and how two of them are joined. Siblings are writes that did not see each other; slots
//! are what each life has counted. A write replaces the siblings that it saw and cuts what it saw of the slots, so what was
//! counted meanwhile elsewhere survives a reset and the old sum does not come back.
//!
//! A push may name a dot as superseded that has not come here itself. It cannot be counted as seen: what *it* superseded
//! is not known. It must not come to life either when it comes late. Such dots are kept in `gone` until they are seen.

use base::Time;
use base::checksum::Checksum;
use bytes::Bytes;

use crate::context::Context;
use crate::dot::{Dot, Life, Stamp};
use crate::limits::PARTS_MAX;
use crate::tally;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sibling {
    pub dot: Dot,
    pub stamp: Stamp,
    /// None where being there is all that is said: a member of a set.
    pub value: Option<Bytes>,
    /// Of the value, made by its origin.
    pub sum: u32,
    /// When it is over, by this node's monotonic clock; what is left of it travels.
    pub ends: Option<Time>,
    /// Somebody at the node that wrote it holds it: it is over with that life of the node, and before, when nobody does.
    pub held: bool,
}

impl Sibling {
    /// Its value is what its origin made.
    pub fn is_whole(&self) -> bool {
        self.value.as_ref().is_none_or(|value| Checksum(self.sum).matches(value))
    }
}

/// What one life has counted since `birth`, or all lives of a node below some boot (`tally.rs`). Numbers only grow;
/// they are joined by the greater one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    pub birth: Dot,
    pub last: Dot,
    pub inc: u64,
    pub dec: u64,
    pub cut_inc: u64,
    pub cut_dec: u64,
}

impl Slot {
    /// Nothing of it counts any more.
    pub fn is_cut(&self) -> bool {
        (self.cut_inc, self.cut_dec) == (self.inc, self.dec)
    }

    fn join(&mut self, other: &Self) {
        self.last = self.last.max(other.last);
        self.inc = self.inc.max(other.inc);
        self.dec = self.dec.max(other.dec);
        self.cut_inc = self.cut_inc.max(other.cut_inc);
        self.cut_dec = self.cut_dec.max(other.cut_dec);
    }

    /// What counts of it.
    fn total(&self) -> i128 {
        (i128::from(self.inc) - i128::from(self.cut_inc)) - (i128::from(self.dec) - i128::from(self.cut_dec))
    }
}

/// Invariants: siblings in order of dots, at most one of a life; slots in order of births; no dot of `gone` is a sibling.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cell {
    pub siblings: Vec<Sibling>,
    pub slots: Vec<Slot>,
    /// Known to be superseded, not yet seen; in order.
    pub gone: Vec<Dot>,
}

/// What the sender of a cell knows.
#[derive(Clone, Copy, Debug)]
pub enum Known<'a> {
    /// A push: its dot and what it supersedes, in order. The cell has what this update changed.
    Push { dot: Dot, supersedes: &'a [Dot] },
    /// Repair: everything in the sender's context. The cell is whole.
    Whole(&'a Context),
}

impl Known<'_> {
    fn contains(&self, dot: Dot) -> bool {
        match self {
            Known::Push { dot: own, supersedes } => *own == dot || supersedes.binary_search(&dot).is_ok(),
            Known::Whole(context) => context.contains(dot),
        }
    }
}

/// Where in order a slot is.
fn has(slots: &[Slot], birth: Dot) -> Result<usize, usize> {
    slots.binary_search_by_key(&birth, |slot| slot.birth)
}

impl Cell {
    /// What comes of both is no more than a cell may have: else no other node would take it.
    pub fn has_room_for(&self, sent: &Cell, supersedes: &[Dot]) -> bool {
        let gone = self.gone.len() + sent.gone.len() + supersedes.len();
        let (siblings, slots) = (self.siblings.len() + sent.siblings.len(), self.slots.len() + sent.slots.len());
        // Of the same lives they are the same ones: only what is far beyond cannot be.
        gone.max(siblings).max(slots) <= 2 * PARTS_MAX
    }

    /// Joins with what another sent, `seen` being this side's context before. The caller then adds what the message covers
    /// and [`Cell::dots`] of the sent cell to `seen`, and calls [`Cell::settle`].
    pub fn join(&mut self, sent: &Cell, seen: &Context, known: Known<'_>) {
        let is_gone = |cell: &Cell, dot: Dot| cell.gone.binary_search(&dot).is_ok();
        let sent_has = |dot: Dot| sent.siblings.binary_search_by_key(&dot, |s| s.dot).is_ok();
        let here = std::mem::take(&mut self.siblings);
        let mut stay: Vec<Sibling> =
            here.into_iter().filter(|s| sent_has(s.dot) || !(known.contains(s.dot) || is_gone(sent, s.dot))).collect();
        for theirs in &sent.siblings {
            if !seen.contains(theirs.dot) && !is_gone(self, theirs.dot) {
                stay.push(theirs.clone());
            }
        }
        stay.sort_by_key(|s| s.dot);
        // A life sees its own writes: of two the later has replaced the earlier, though its dot may not say so in one step.
        // (It is sorted so: the next one has the same life and a higher number.)
        let mut kept: Vec<Sibling> = Vec::with_capacity(stay.len());
        for sibling in stay {
            match kept.last_mut() {
                Some(last) if last.dot.life == sibling.dot.life => *last = sibling,
                _ => kept.push(sibling),
            }
        }
        self.siblings = kept;
        self.join_slots(sent, seen, known);
        self.gone.extend(&sent.gone);
        if let Known::Push { supersedes, .. } = known {
            self.gone.extend(supersedes);
        }
        self.gone.sort_unstable();
        self.gone.dedup();
    }

    fn join_slots(&mut self, sent: &Cell, seen: &Context, known: Known<'_>) {
        let sent = tally::meet(&mut self.slots, &sent.slots);
        // One that the other knows of and has no more was cut there, everywhere. Who lacks a sum has not come so far.
        let is_over = |slot: &Slot, seen: &dyn Fn(Dot) -> bool| slot.below().is_none() && seen(slot.last);
        self.slots.retain(|mine| has(&sent, mine.birth).is_ok() || !is_over(mine, &|last| known.contains(last)));
        self.add_slots(&sent, |theirs| !is_over(theirs, &|last| seen.contains(last)));
    }

    /// Joins with slots that another has, in order; those that are not here come if they may.
    fn add_slots(&mut self, all: &[Slot], may_come: impl Fn(&Slot) -> bool) {
        let mut new = Vec::new();
        for theirs in all {
            match has(&self.slots, theirs.birth) {
                Ok(at) => self.slots[at].join(theirs),
                Err(_) if may_come(theirs) => new.push(*theirs),
                Err(_) => (),
            }
        }
        if !new.is_empty() {
            self.slots.extend(new);
            self.slots.sort_unstable_by_key(|s| s.birth);
        }
    }

    /// Joins with the cell of one that has seen the same and should have the same: what either has stays, and of what both have
    /// differently the greater. True if something changed.
    pub fn mend(&mut self, sent: &Cell) -> bool {
        // That one has added up more is no difference.
        let slots = tally::meet(&mut self.slots, &sent.slots);
        let before = (self.siblings.clone(), self.slots.clone());
        let mut new = Vec::new();
        for theirs in &sent.siblings {
            let rank = |sibling: &Sibling| (sibling.stamp, sibling.value.clone());
            match self.siblings.binary_search_by_key(&theirs.dot, |s| s.dot) {
                Ok(at) if !self.siblings[at].is_whole() || rank(theirs) > rank(&self.siblings[at]) => {
                    self.siblings[at] = theirs.clone()
                }
                Ok(_) => (),
                Err(_) => new.push(theirs.clone()),
            }
        }
        self.siblings.extend(new);
        self.siblings.sort_by_key(|s| s.dot);
        // At most one of a life: the later.
        self.siblings.reverse();
        self.siblings.dedup_by_key(|s| s.dot.life);
        self.siblings.reverse();
        self.add_slots(&slots, |_| true);
        before != (self.siblings.clone(), self.slots.clone())
    }

    /// Forgets of `gone` what has been seen.
    pub fn settle(&mut self, seen: &Context) {
        self.gone.retain(|&dot| !seen.contains(dot));
    }

    /// Dots that are seen by who has this cell. What is added up has none: its lives are over.
    pub fn dots(&self) -> impl Iterator<Item = Dot> + '_ {
        let slots = self.slots.iter().filter(|s| s.below().is_none());
        self.siblings.iter().map(|s| s.dot).chain(slots.map(|s| s.last))
    }

    /// Does a reader see something?
    pub fn is_there(&self) -> bool {
        !self.siblings.is_empty() || self.slots.iter().any(|slot| !slot.is_cut())
    }

    /// Nothing is left to be remembered.
    pub fn is_empty(&self) -> bool {
        self.siblings.is_empty() && self.slots.is_empty() && self.gone.is_empty()
    }

    /// What a reader gets: the newest by stamp.
    pub fn newest(&self) -> Option<&Sibling> {
        self.siblings.iter().max_by_key(|s| (s.stamp, s.dot))
    }

    /// What all lives together have counted and nobody has cut.
    pub fn counted(&self) -> i128 {
        self.slots.iter().map(Slot::total).sum()
    }

    /// A write, or a removal if `sibling` is none: replaces and cuts all that is seen here. Returns what is pushed: the
    /// changed part of the cell, and the dots that it supersedes.
    pub fn put(&mut self, sibling: Option<Sibling>) -> (Cell, Vec<Dot>) {
        let supersedes = self.siblings.drain(..).map(|s| s.dot).collect();
        for slot in &mut self.slots {
            (slot.cut_inc, slot.cut_dec) = (slot.inc, slot.dec);
        }
        self.siblings.extend(sibling);
        (Cell { siblings: self.siblings.clone(), slots: self.slots.clone(), gone: Vec::new() }, supersedes)
    }

    /// Writes what is held: as [`Cell::put`], but what is held by other lives stays beside it, as each of them holds it for itself.
    pub fn hold(&mut self, sibling: Sibling) -> (Cell, Vec<Dot>) {
        let life = sibling.dot.life;
        let supersedes = self.siblings.extract_if(.., |s| !s.held || s.dot.life == life).map(|s| s.dot).collect();
        for slot in &mut self.slots {
            (slot.cut_inc, slot.cut_dec) = (slot.inc, slot.dec);
        }
        self.siblings.push(sibling.clone());
        self.siblings.sort_by_key(|s| s.dot);
        (Cell { siblings: vec![sibling], slots: self.slots.clone(), gone: Vec::new() }, supersedes)
    }

    /// Takes away what this life holds; its dot, if there is something.
    pub fn let_go(&mut self, life: Life) -> Option<Dot> {
        self.siblings.extract_if(.., |s| s.held && s.dot.life == life).map(|s| s.dot).last()
    }

    /// Lives that hold something here.
    pub fn holders(&self) -> impl Iterator<Item = Life> + '_ {
        self.siblings.iter().filter(|s| s.held).map(|s| s.dot.life)
    }

    /// Counts by `by` in the slot of the dot's life, also after that was cut: a counter that is reset again and again has no more slots
    /// than lives. None, and nothing has changed, if the slot would overflow. Returns what is pushed; it supersedes nothing.
    pub fn count(&mut self, dot: Dot, by: i64) -> Option<Cell> {
        let has_room = |s: &Slot| !s.is_cut() || s.inc.max(s.dec) < u64::MAX / 2;
        let own = |life: Life| move |s: &Slot| s.birth.life == life && has_room(s);
        let fresh = Slot { birth: dot, last: dot, inc: 0, dec: 0, cut_inc: 0, cut_dec: 0 };
        let at = self.slots.iter().position(own(dot.life));
        let mut slot = at.map_or(fresh, |at| self.slots[at]);
        let side = if by < 0 { &mut slot.dec } else { &mut slot.inc };
        *side = side.checked_add(by.unsigned_abs())?;
        slot.last = dot;
        match at {
            Some(at) => self.slots[at] = slot,
            // Its own dot is the highest of this life, so it is not there yet.
            None => self.slots.insert(self.slots.partition_point(|s| s.birth < dot), slot),
        }
        Some(Cell { slots: vec![slot], ..Cell::default() })
    }
}
