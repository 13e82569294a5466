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

/// What one life has counted since `birth`. Numbers only grow; they are joined by the greater one.
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
    /// A push: its dot and what it supersedes. The cell has what this update changed.
    Push { dot: Dot, supersedes: &'a [Dot] },
    /// Repair: everything in the sender's context. The cell is whole.
    Whole(&'a Context),
}

impl Known<'_> {
    fn contains(&self, dot: Dot) -> bool {
        match self {
            Known::Push { dot: own, supersedes } => *own == dot || supersedes.contains(&dot),
            Known::Whole(context) => context.contains(dot),
        }
    }
}

impl Cell {
    /// Joins with what another sent, `seen` being this side's context before. The caller then adds what the message covers
    /// and [`Cell::dots`] of the sent cell to `seen`, and calls [`Cell::settle`].
    pub fn join(&mut self, sent: &Cell, seen: &Context, known: Known<'_>) {
        let is_gone = |cell: &Cell, dot: Dot| cell.gone.binary_search(&dot).is_ok();
        let sent_has = |dot: Dot| sent.siblings.iter().any(|s| s.dot == dot);
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
        // One that the other knows of and has no more was cut there, everywhere.
        self.slots.retain(|mine| sent.slots.iter().any(|s| s.birth == mine.birth) || !known.contains(mine.last));
        for theirs in &sent.slots {
            match self.slots.binary_search_by_key(&theirs.birth, |s| s.birth) {
                Ok(at) => self.slots[at].join(theirs),
                Err(_) if seen.contains(theirs.last) => (),
                Err(at) => self.slots.insert(at, *theirs),
            }
        }
    }

    /// Joins with the cell of one that has seen the same and should have the same: what either has stays, and of what both have
    /// differently the greater. True if something changed.
    pub fn mend(&mut self, sent: &Cell) -> bool {
        let before = (self.siblings.clone(), self.slots.clone());
        for theirs in &sent.siblings {
            let rank = |sibling: &Sibling| (sibling.stamp, sibling.value.clone());
            match self.siblings.binary_search_by_key(&theirs.dot, |s| s.dot) {
                Ok(at) if !self.siblings[at].is_whole() || rank(theirs) > rank(&self.siblings[at]) => {
                    self.siblings[at] = theirs.clone()
                }
                Ok(_) => (),
                Err(at) => self.siblings.insert(at, theirs.clone()),
            }
        }
        // At most one of a life: the later.
        self.siblings.reverse();
        self.siblings.dedup_by_key(|s| s.dot.life);
        self.siblings.reverse();
        for theirs in &sent.slots {
            match self.slots.binary_search_by_key(&theirs.birth, |s| s.birth) {
                Ok(at) => self.slots[at].join(theirs),
                Err(at) => self.slots.insert(at, *theirs),
            }
        }
        before != (self.siblings.clone(), self.slots.clone())
    }

    /// Forgets of `gone` what has been seen.
    pub fn settle(&mut self, seen: &Context) {
        self.gone.retain(|&dot| !seen.contains(dot));
    }

    /// Dots that are seen by who has this cell.
    pub fn dots(&self) -> impl Iterator<Item = Dot> + '_ {
        self.siblings.iter().map(|s| s.dot).chain(self.slots.iter().map(|s| s.last))
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

    /// Counts by `by` in the slot of the dot's life; after that was cut in a new one. None, and nothing has changed, if the
    /// slot would overflow. Returns what is pushed; it supersedes nothing.
    pub fn count(&mut self, dot: Dot, by: i64) -> Option<Cell> {
        let own = |life: Life| move |s: &Slot| s.birth.life == life && !s.is_cut();
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
