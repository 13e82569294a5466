//! One namespace at one node: its cells, what it has seen, and which update touched which cell.
//!
//! The *index* leads from every update above the *floor* to its address, also of those that left nothing: an update that is
//! missing elsewhere is found by it, and a removal is remembered by it. What is below the floor was seen by all members, or
//! came by a transfer; who lacks something of that gets all.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use base::checksum::{Checksum, place_hash};
use base::{Boot, NodeId, Now, Time};
use bytes::Bytes;

use crate::cell::{Cell, Known, Sibling};
use crate::context::{Context, Range};
use crate::dot::{Dot, Life, Stamp};
use crate::limits::*;
use crate::map::Map;
use crate::mend::{self, State};
use crate::op::{Did, Kind, Why};
use crate::tally::Tally;
use crate::why::Whys;
use crate::wire::{ACell, At, Delta, dot, dots_of};

/// Where a cell lies. In order of the hashes of keys, so that a walk can stop between any two keys and go on elsewhere.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    hash: u64,
    pub key: Bytes,
    pub kind: Kind,
    pub element: Bytes,
}

impl Address {
    pub fn new(key: Bytes, kind: Kind, element: Bytes) -> Self {
        Self { hash: place_hash(&key), key, kind, element }
    }

    /// The first that a key can have.
    pub fn first(key: Bytes) -> Self {
        Self::new(key, Kind::End, Bytes::new())
    }

    /// The first that keys of this hash, or above, can have.
    pub fn from_hash(hash: u64) -> Self {
        Self { hash, key: Bytes::new(), kind: Kind::End, element: Bytes::new() }
    }

    /// Behind all that a key can have.
    pub fn behind(key: &Bytes) -> Self {
        let mut next = key.to_vec();
        next.push(0);
        Self { hash: place_hash(key), key: next.into(), kind: Kind::End, element: Bytes::new() }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// What a peer said cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Odd(pub &'static str);

pub struct Space {
    life: Life,
    /// The last number that was given.
    seq: u64,
    pub(crate) cells: Map<Address, Cell>,
    /// Invariant: has the dots of all cells.
    pub(crate) context: Context,
    /// The context as it was at the last tick: what came since is on its way to others, too.
    pub(crate) tick: Context,
    pub(crate) floor: Context,
    /// Invariant: has each dot of the context that is not in the floor.
    pub(crate) index: Map<Dot, Address>,
    /// Of the floor: what the index is still to be rid of.
    forgotten: Vec<Range>,
    /// Addresses that changed since the last checkpoint, while such are written.
    pub(crate) changed: BTreeSet<Address>,
    pub(crate) is_kept: bool,
    /// What all cells come to.
    pub(crate) state: State,
    /// Keys whose ends are to be looked at.
    ends: BTreeSet<(Time, Bytes)>,
    stamp: Stamp,
    /// What is added to this node's wall clock for stamps, milliseconds (`clocks.rs`).
    pub(crate) off_ms: i64,
    /// Writes with a stamp far ahead that came since this was taken.
    pub(crate) ahead: u64,
    /// What was mended here, the last of them, and how many there ever were.
    pub(crate) mended: VecDeque<Address>,
    pub(crate) mended_all: u64,
    /// Values that a reader was not given, as their bits have changed in memory.
    damaged: RefCell<BTreeSet<Address>>,
    /// Somebody met one of them.
    met_damaged: std::cell::Cell<bool>,
    /// Grows with each change of a cell or of what is seen.
    pub(crate) moves: u64,
    /// Cells that know of what was not seen yet.
    unsettled: BTreeSet<Address>,
    /// The start of the transfer that is under way (`fill.rs`).
    pub(crate) coming: Option<Context>,
    /// Cells may have dots of a start that the context has not. One that leaves its cell is seen then.
    lends: bool,
    /// Of a transfer that came to nothing: up to here what it brought is seen.
    adopted: Option<Address>,
    pub(crate) tally: Tally,
    /// Keys that have something.
    keys: u64,
    bytes: u64,
    /// What each life holds.
    pub(crate) held: BTreeMap<Life, BTreeSet<Address>>,
    /// Where something that this node holds is gone, and whether it is not known that somebody took it away on purpose.
    pub(crate) lost: Vec<(Address, bool)>,
    /// What changes now is no such purpose.
    sweeps: bool,
    /// Why updates above the floor are here, and how they were made.
    pub(crate) whys: Whys,
    /// Writes that met others which they had not seen, since this was taken.
    pub(crate) conflicts: u64,
    /// Made here and not sent yet, and about how many bytes.
    pub(crate) out: Vec<Delta>,
    pub(crate) out_bytes: usize,
}

impl Space {
    pub fn new(life: Life) -> Self {
        Self {
            life,
            seq: 0,
            cells: Map::default(),
            context: Context::default(),
            tick: Context::default(),
            floor: Context::default(),
            index: Map::default(),
            forgotten: Vec::new(),
            changed: BTreeSet::new(),
            is_kept: false,
            state: State::default(),
            ends: BTreeSet::new(),
            stamp: Stamp::default(),
            off_ms: 0,
            ahead: 0,
            mended: VecDeque::new(),
            mended_all: 0,
            damaged: RefCell::default(),
            met_damaged: std::cell::Cell::new(false),
            moves: 0,
            unsettled: BTreeSet::new(),
            coming: None,
            lends: false,
            adopted: None,
            tally: Tally::default(),
            keys: 0,
            bytes: 0,
            held: BTreeMap::new(),
            lost: Vec::new(),
            sweeps: false,
            whys: Whys::default(),
            conflicts: 0,
            out: Vec::new(),
            out_bytes: 0,
        }
    }

    pub fn life(&self) -> Life {
        self.life
    }

    /// The number of the last update that was made here.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    pub fn keys(&self) -> u64 {
        self.keys
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Cells of one key, in order of their kinds.
    pub fn cells_of<'a>(&'a self, key: &'a Bytes) -> impl Iterator<Item = (&'a Address, &'a Cell)> {
        self.cells.range(Address::first(key.clone())..).take_while(move |(at, _)| at.key == *key)
    }

    /// Has a key something that a reader sees, whatever its end?
    pub fn has(&self, key: &Bytes) -> bool {
        self.cells_of(key).any(|(at, cell)| at.kind != Kind::End && cell.is_there())
    }

    /// When a key ends, and who said so.
    pub fn end_of(&self, key: &Bytes) -> Option<(Time, NodeId)> {
        let cell = self.cells.get(&Address::first(key.clone()))?;
        let newest = cell.newest()?;
        Some((newest.ends?, newest.dot.life.node))
    }

    /// Its end has come: it is not there, though its cells are until they are removed.
    pub fn has_ended(&self, key: &Bytes, now: Time) -> bool {
        self.end_of(key).is_some_and(|(ends, _)| ends <= now)
    }

    /// What readers would get is not what was written. It is noted, to be asked of another node.
    pub(crate) fn is_damaged(&self, at: &Address, cell: &Cell) -> bool {
        let is_damaged = cell.newest().is_some_and(|newest| !newest.is_whole());
        if is_damaged {
            self.met_damaged.set(true);
            let mut all = self.damaged.borrow_mut();
            if all.len() < DAMAGED_MAX {
                all.insert(at.clone());
            }
        }
        is_damaged
    }

    /// Somebody was not given something, since this was asked last.
    pub(crate) fn takes_met_damaged(&self) -> bool {
        self.met_damaged.take()
    }

    pub(crate) fn has_damaged(&self) -> bool {
        !self.damaged.borrow().is_empty()
    }

    /// What is damaged still.
    pub(crate) fn damaged(&mut self) -> Vec<Address> {
        let is_so = |at: &Address| self.cells.get(at).and_then(Cell::newest).is_some_and(|newest| !newest.is_whole());
        self.damaged.get_mut().retain(is_so);
        self.damaged.get_mut().iter().cloned().collect()
    }

    /// Changes one cell, and what is counted of it.
    pub(crate) fn change<R>(&mut self, at: &Address, how: impl FnOnce(&mut Cell, &mut Context) -> R) -> R {
        let cost = |cell: &Cell| {
            let values: usize = cell.siblings.iter().filter_map(|s| s.value.as_ref()).map(Bytes::len).sum();
            let held = CELL_BYTES + (at.key.len() + at.element.len() + values) as u64;
            if cell.is_empty() { 0 } else { held }
        };
        self.moves += 1;
        if self.is_kept && !self.changed.contains(at) {
            self.changed.insert(at.clone());
        }
        let cell = self.cells.get_or_insert_with(at, Cell::default);
        let before = (cost(cell), cell.is_there());
        let rivals = |cell: &Cell| cell.siblings.iter().filter(|s| s.value.is_some() && !s.held).count() as u64;
        let met = rivals(cell);
        let hashed = mend::hash(at, cell);
        let held: Vec<Life> = cell.holders().collect();
        let lent: Vec<Dot> = if self.lends { cell.dots().collect() } else { Vec::new() };
        let done = how(cell, &mut self.context);
        let seen: Vec<Dot> = lent.into_iter().filter(|dot| cell.dots().all(|other| other != *dot)).collect();
        if !seen.is_empty() {
            seen.iter().for_each(|dot| self.context.insert(*dot));
            cell.settle(&self.context);
        }
        let holds: Vec<Life> = cell.holders().collect();
        let after = (cost(cell), cell.is_there());
        self.conflicts += rivals(cell).saturating_sub(met.max(1));
        if at.kind == Kind::End
            && let Some(ends) = cell.newest().and_then(|newest| newest.ends)
        {
            self.ends.insert((ends, at.key.clone()));
        }
        self.state.moves(at, hashed, mend::hash(at, cell));
        // The first sibling of a cell is mostly the only one: room for more is given back.
        if cell.siblings.capacity() > cell.siblings.len() + 1 {
            cell.siblings.shrink_to_fit();
        }
        match cell.gone.is_empty() {
            true => _ = self.unsettled.remove(at),
            false => _ = self.unsettled.insert(at.clone()),
        }
        if held != holds {
            for life in held.iter().filter(|life| !holds.contains(life)) {
                if let Some(all) = self.held.get_mut(life) {
                    all.remove(at);
                }
                if *life == self.life {
                    self.lost.push((at.clone(), self.sweeps));
                }
            }
            holds.into_iter().for_each(|life| _ = self.held.entry(life).or_default().insert(at.clone()));
            self.held.retain(|_, all| !all.is_empty());
        }
        if cell.is_empty() {
            self.cells.remove(at);
        }
        seen.into_iter().for_each(|dot| self.note(dot, at));
        self.bytes = self.bytes + after.0 - before.0;
        if before.1 != after.1 && at.kind != Kind::End {
            let alone =
                !self.cells_of(&at.key).any(|(other, cell)| other != at && other.kind != Kind::End && cell.is_there());
            match after.1 {
                true => self.keys += u64::from(alone),
                false => self.keys -= u64::from(alone),
            }
        }
        done
    }

    /// Updates of a range that the index has, and what they touched.
    pub(crate) fn updates(&self, of: &Range) -> impl Iterator<Item = (&Dot, &Address)> {
        self.index.range(Dot { life: of.life, seq: of.first }..=Dot { life: of.life, seq: of.last })
    }

    fn note(&mut self, dot: Dot, at: &Address) {
        if !self.floor.contains(dot) {
            self.index.insert(dot, at.clone());
        }
    }

    // Updates that are made here.

    /// The hour by which stamps are given.
    fn wall_ms(&self, now: Now) -> u64 {
        now.wall_ms.saturating_add_signed(self.off_ms)
    }

    /// A stamp above all that this node has given, and has seen that were not far ahead. One that was given by a clock that was is no
    /// measure either: what this node writes from now on has seen it, and replaces it whatever its stamp.
    fn next_stamp(&mut self, now: Now) -> Stamp {
        let wall_ms = self.wall_ms(now);
        self.stamp = match self.stamp {
            Stamp { ms, .. } if ms < wall_ms || ms > wall_ms + AHEAD_MS_MAX => Stamp { ms: wall_ms, counter: 0 },
            Stamp { ms, counter: u32::MAX } => Stamp { ms: ms + 1, counter: 0 },
            Stamp { ms, counter } => Stamp { ms, counter: counter + 1 },
        };
        self.stamp
    }

    fn next_dot(&mut self) -> Dot {
        self.seq += 1;
        Dot { life: self.life, seq: self.seq }
    }

    /// What the next update will be called: a name that nothing else has.
    pub(crate) fn next_tag(&self) -> [u8; 24] {
        let mut tag = [0; 24];
        let parts = [self.life.node.0, self.life.boot.0, self.seq + 1];
        tag.as_chunks_mut::<8>().0.iter_mut().zip(parts).for_each(|(to, part)| *to = part.to_be_bytes());
        tag
    }

    /// Writes a value, or removes what is there.
    pub(crate) fn put(&mut self, now: Now, at: &Address, value: Option<(Option<Bytes>, Option<Time>)>) {
        let (dot, stamp) = (self.next_dot(), self.next_stamp(now));
        let sum = |value: &Option<Bytes>| value.as_ref().map_or(0, |value| Checksum::of(value).0);
        let sibling = value.map(|(value, ends)| Sibling { dot, stamp, sum: sum(&value), value, ends, held: false });
        let (part, supersedes) = self.change(at, |cell, seen| {
            seen.insert(dot);
            cell.put(sibling)
        });
        self.made(now, dot, at, &part, &supersedes);
    }

    /// Writes what is held here.
    pub(crate) fn hold(&mut self, now: Now, at: &Address, value: Option<Bytes>) {
        let (dot, stamp) = (self.next_dot(), self.next_stamp(now));
        let sum = value.as_ref().map_or(0, |value| Checksum::of(value).0);
        let sibling = Sibling { dot, stamp, sum, value, ends: None, held: true };
        let (part, supersedes) = self.change(at, |cell, seen| {
            seen.insert(dot);
            cell.hold(sibling)
        });
        self.made(now, dot, at, &part, &supersedes);
    }

    /// Takes away what this life holds there, and nothing else. `sweeps`: as the life is over.
    pub(crate) fn let_go(&mut self, now: Now, at: &Address, life: Life, sweeps: bool) {
        if !self.held.get(&life).is_some_and(|all| all.contains(at)) {
            return;
        }
        let dot = self.next_dot();
        let gone = self.change(at, |cell, seen| {
            seen.insert(dot);
            cell.let_go(life)
        });
        self.made(now, dot, at, &Cell::default(), gone.as_slice());
        self.whys.over.insert(dot);
        self.whys.released.insert(dot);
        if let Some(made) = self.out.last_mut() {
            (made.sweeps, made.ends) = (sweeps, true);
        }
    }

    /// Counts; false if the cell cannot hold so much.
    pub(crate) fn count(&mut self, now: Now, at: &Address, by: i64) -> bool {
        let dot = self.next_dot();
        let part = self.change(at, |cell, seen| {
            let part = cell.count(dot, by);
            part.inspect(|_| seen.insert(dot))
        });
        match part {
            Some(part) => self.made(now, dot, at, &part, &[]),
            // Nobody has heard of the number.
            None => self.seq -= 1,
        }
        self.context.contains(dot)
    }

    fn made(&mut self, now: Now, of: Dot, at: &Address, part: &Cell, supersedes: &[Dot]) {
        self.note(of, at);
        let values: usize = part.siblings.iter().filter_map(|s| s.value.as_ref()).map(Bytes::len).sum();
        self.out_bytes += at.key.len() + at.element.len() + values + 64 * (1 + part.slots.len() + supersedes.len());
        self.out.push(Delta {
            seq: of.seq,
            at: At::from(at),
            part: ACell::of(part, now.mono),
            supersedes: supersedes.iter().copied().map(dot).collect(),
            sweeps: false,
            ends: false,
            did: 0,
        });
    }

    /// What was made since this number was the last one, and what of it is to be sent, was done so.
    fn mark(&mut self, did: Did, before: u64, made: usize) {
        if before < self.seq {
            let range = Range { life: self.life, first: before + 1, last: self.seq };
            self.whys.marked(did).into_iter().for_each(|all| all.insert_range(range));
            self.out[made..].iter_mut().for_each(|delta| delta.did = did.mark());
        }
    }

    /// Removes all that a key has.
    pub(crate) fn remove(&mut self, now: Now, key: &Bytes) {
        let there: Vec<Address> =
            self.cells_of(key).filter(|(_, cell)| cell.is_there()).map(|(at, _)| at.clone()).collect();
        self.remove_cells(now, &there, Did::Deleted);
    }

    /// Removes all that a key has whose end has come.
    pub(crate) fn remove_ended(&mut self, now: Now, key: &Bytes) {
        let there: Vec<Address> =
            self.cells_of(key).filter(|(_, cell)| cell.is_there()).map(|(at, _)| at.clone()).collect();
        self.end_cells(now, &there);
    }

    /// Removes these.
    pub(crate) fn remove_cells(&mut self, now: Now, all: &[Address], did: Did) {
        let (before, made) = (self.seq, self.out.len());
        all.iter().for_each(|at| self.put(now, at, None));
        self.mark(did, before, made);
    }

    /// ... as their time has come.
    pub(crate) fn end_cells(&mut self, now: Now, all: &[Address]) {
        let (before, made) = (self.seq, self.out.len());
        all.iter().for_each(|at| self.put(now, at, None));
        if before < self.seq {
            self.whys.over.insert_range(Range { life: self.life, first: before + 1, last: self.seq });
            self.out[made..].iter_mut().for_each(|delta| delta.ends = true);
        }
    }

    /// Why an update came to be here.
    pub(crate) fn why(&self, of: Dot) -> Why {
        self.whys.why(of, of.life == self.life)
    }

    // What others send.

    /// Takes an update of another life. True if it was new.
    pub fn take_delta(&mut self, now: Now, life: Life, delta: Delta) -> Result<bool, Odd> {
        let of = Dot::told(life, delta.seq).ok_or(Odd("a number of an update that nobody gives"))?;
        let at = delta.at.read().ok_or(Odd("an address that cannot be"))?;
        let part = delta.part.read(now.mono).ok_or(Odd("a cell that cannot be, or was damaged"))?;
        let mut supersedes = dots_of(&delta.supersedes).ok_or(Odd("numbers of updates that nobody gives"))?;
        supersedes.sort_unstable();
        supersedes.dedup();
        if life == self.life || part.siblings.iter().any(|s| s.dot != of) {
            return Err(Odd("an update of somebody else's"));
        }
        self.is_given(part.dots().chain(supersedes.iter().copied()))?;
        // What was made before a transfer began comes by that, or what came of it: a page may have brought its end.
        if self.coming.as_ref().is_some_and(|start| start.contains(of)) {
            return Ok(false);
        }
        // Without room for a gap more it is as if it were lost.
        if self.context.contains(of) || !part.dots().chain([of]).all(|dot| self.context.has_room(dot)) {
            return Ok(false);
        }
        self.has_room_at(&at, &part, &supersedes)?;
        self.see(now, &part);
        self.sweeps = delta.sweeps;
        if let Some(did) = Did::marked(delta.did) {
            self.whys.marked(did).into_iter().for_each(|all| all.insert(of));
        }
        if delta.ends {
            self.whys.over.insert(of);
            let is_held = |s: &Sibling| s.held && supersedes.contains(&s.dot);
            if self.cells.get(&at).is_some_and(|cell| cell.siblings.iter().any(is_held)) {
                self.whys.released.insert(of);
            }
        }
        self.change(&at, |cell, seen| {
            cell.join(&part, seen, Known::Push { dot: of, supersedes: &supersedes });
            part.dots().chain([of]).for_each(|dot| seen.insert(dot));
            cell.settle(seen);
        });
        self.sweeps = false;
        part.dots().chain([of]).for_each(|dot| self.note(dot, &at));
        Ok(true)
    }

    /// Takes a whole cell of one that knows all in `known`. `covers` are its updates that are missing here.
    pub fn take_whole(
        &mut self,
        now: Now,
        at: &Address,
        cell: &Cell,
        covers: &[Range],
        known: &Context,
    ) -> Result<(), Odd> {
        self.take(now, at, cell, covers, known, None)
    }

    /// ... of a transfer: what is within its start is seen when all of it has come ([`Space::has_all_of`]).
    pub fn take_page(
        &mut self,
        now: Now,
        at: &Address,
        cell: &Cell,
        covers: &[Range],
        known: &Context,
        start: &Context,
    ) -> Result<(), Odd> {
        self.lends = true;
        self.adopted = None;
        if self.coming.as_ref() != Some(start) {
            self.coming = Some(start.clone());
        }
        self.take(now, at, cell, covers, known, Some(start))
    }

    fn take(
        &mut self,
        now: Now,
        at: &Address,
        cell: &Cell,
        covers: &[Range],
        known: &Context,
        start: Option<&Context>,
    ) -> Result<(), Odd> {
        let all = |ranges: &[Range]| ranges.iter().map(|r| r.last - r.first + 1).sum::<u64>();
        if all(covers) > INDEX_MAX as u64 {
            return Err(Odd("a cell of more updates than are remembered"));
        }
        let covered = || covers.iter().flat_map(|r| (r.first..=r.last).map(|seq| Dot { life: r.life, seq }));
        self.is_given(cell.dots().chain(covered()))?;
        self.has_room_at(at, cell, &[])?;
        self.see(now, cell);
        let is_seen = |dot: &Dot| start.is_none_or(|start| !start.contains(*dot));
        let told: Context = covers.iter().copied().chain(cell.dots().filter(is_seen).map(Range::from)).collect();
        self.whys.fetched.join(&told.minus(&self.context).into_iter().collect::<Context>());
        // Who took something away cannot be told from a whole cell.
        self.sweeps = true;
        let seen = self.change(at, |mine, seen| {
            mine.join(cell, seen, Known::Whole(known));
            covers.iter().for_each(|range| seen.insert_range(*range));
            // Those that have not stayed are seen; those that have, when they are not lent; also what an older transfer has lent.
            let has =
                |dot: &Dot| mine.siblings.iter().any(|s| s.dot == *dot) || mine.slots.iter().any(|s| s.last == *dot);
            let gone = cell.dots().filter(|dot| !has(dot));
            let stays = mine.dots().filter(is_seen);
            let all: Vec<Dot> = gone.chain(stays).chain(cell.dots().filter(is_seen)).collect();
            all.iter().for_each(|dot| seen.insert(*dot));
            mine.settle(seen);
            all
        });
        self.sweeps = false;
        seen.into_iter().chain(covered()).for_each(|dot| self.note(dot, at));
        Ok(())
    }

    fn has_room_at(&self, at: &Address, sent: &Cell, supersedes: &[Dot]) -> Result<(), Odd> {
        let has_room = self.cells.get(at).is_none_or(|cell| cell.has_room_for(sent, supersedes));
        has_room.then_some(()).ok_or(Odd("more parts of a cell than there may be"))
    }

    /// Numbers of this life that it has not given are nobody's.
    fn is_given(&self, mut dots: impl Iterator<Item = Dot>) -> Result<(), Odd> {
        match dots.any(|dot| dot.life == self.life && dot.seq > self.seq) {
            true => Err(Odd("updates of this node that it has not made")),
            false => Ok(()),
        }
    }

    /// Later writes of this node are newer than what it has seen.
    fn see(&mut self, now: Now, cell: &Cell) {
        let Some(newest) = cell.siblings.iter().map(|s| s.stamp).max() else { return };
        match newest.ms <= self.wall_ms(now) + AHEAD_MS_MAX {
            true => self.stamp = self.stamp.max(newest),
            false => self.ahead += 1,
        }
    }

    /// All that another had when a transfer of it began is here now. How it came to be there is not known here.
    pub fn has_all_of(&mut self, start: &Context) {
        self.moves += 1;
        self.context.join(start);
        self.forget(start);
        (self.coming, self.lends, self.adopted) = (None, false, None);
        let unsettled = self.unsettled.clone();
        unsettled.iter().for_each(|at| self.change(at, |cell, seen| cell.settle(seen)));
    }

    /// The transfer came to nothing. What it has brought is seen from now on, little by little ([`Space::adopt`]).
    pub fn comes_no_more(&mut self) {
        (self.coming, self.adopted) = (None, None);
    }

    /// Cells may have what is not seen yet, as all of a transfer is seen at once.
    pub fn lends(&self) -> bool {
        self.lends
    }

    /// There is something left to do for that.
    pub fn is_adopting(&self) -> bool {
        self.lends && self.coming.is_none()
    }

    /// Some of what a transfer brought that came to nothing is seen: a turn's work.
    pub fn adopt(&mut self) {
        let behind = self.adopted.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let some = self.cells.range((behind, Bound::Unbounded)).take(PRUNE_MAX);
        let some: Vec<(Address, Vec<Dot>)> = some.map(|(at, cell)| (at.clone(), cell.dots().collect())).collect();
        match some.last() {
            None => (self.lends, self.adopted) = (false, None),
            Some((last, _)) => self.adopted = Some(last.clone()),
        }
        self.moves += 1;
        for (at, dots) in some {
            for dot in dots.into_iter().filter(|dot| !self.context.contains(*dot)).collect::<Vec<_>>() {
                self.context.insert(dot);
                self.note(dot, &at);
            }
        }
    }

    /// Of these nothing is known any more by the index, which is rid of them little by little ([`Space::prune`]).
    pub fn forget(&mut self, stable: &Context) {
        for range in stable.minus(&self.floor) {
            self.whys.forget(range);
            self.forgotten.push(range);
        }
        for (node, folded) in stable.folded() {
            // What the index still has of lives that are over, one after the other.
            let mut at = Life { node, boot: self.floor.folded_of(node).below };
            let end = Life { node, boot: folded.below };
            while at < end
                && let Some((Dot { life, .. }, _)) =
                    self.index.range(Dot { life: at, seq: 0 }..Dot { life: end, seq: 0 }).next()
            {
                let range = Range { life: *life, first: 1, last: SEQ_MAX };
                self.whys.forget(range);
                self.forgotten.push(range);
                at = Life { node, boot: Boot(life.boot.0 + 1) };
            }
        }
        self.floor.join(stable);
    }

    /// Folds lives of a node below this one: all members have the same of them, and the index has forgotten it.
    pub fn fold(&mut self, node: NodeId, below: Boot) {
        self.moves += 1;
        self.context.fold(node, below);
        self.tick.adopts(&self.context);
        let context = self.context.clone();
        self.floor.adopts(&context);
    }

    /// Another member has folded lives, and here is the same of them: so all members had it.
    pub fn adopts(&mut self, theirs: &Context) {
        if !self.context.adopts(theirs) {
            return;
        }
        self.moves += 1;
        self.tick.adopts(&self.context);
        let mut folded = Context::default();
        folded.join_folded(&self.context);
        self.forget(&folded);
    }

    /// There is something left to do for that.
    pub fn is_forgetting(&self) -> bool {
        !self.forgotten.is_empty()
    }

    /// Takes what is forgotten out of the index: a turn's work.
    pub fn prune(&mut self) {
        let mut left = PRUNE_MAX;
        while left > 0
            && let Some(Range { life, first, last }) = self.forgotten.pop()
        {
            let of = Dot { life, seq: first }..=Dot { life, seq: last };
            let old: Vec<Dot> = self.index.range(of).take(left).map(|(dot, _)| *dot).collect();
            old.iter().for_each(|dot| drop(self.index.remove(dot)));
            if let Some(done) = old.last().filter(|done| old.len() == left && done.seq < last) {
                self.forgotten.push(Range { life, first: done.seq + 1, last });
            }
            left -= old.len();
        }
    }

    /// Nothing was there, and now there is what a checkpoint has.
    pub fn restore(
        &mut self,
        cells: Vec<(Address, Cell)>,
        index: Vec<(Address, Range)>,
        context: Context,
        floor: Context,
    ) {
        for (at, cell) in cells {
            let stamp = cell.siblings.iter().map(|s| s.stamp).max();
            self.stamp = self.stamp.max(stamp.unwrap_or_default());
            self.change(&at, |mine, _| *mine = cell);
        }
        for (at, Range { life, first, last }) in index {
            let dots = (first..=last).map(|seq| Dot { life, seq }).filter(|dot| !floor.contains(*dot));
            dots.for_each(|dot| self.index.insert(dot, at.clone()));
        }
        (self.tick, self.context, self.floor) = (context.clone(), context, floor);
        self.changed.clear();
    }

    /// What another knows of this life cannot be more than it has made.
    pub fn may_know(&self, context: &Context) -> Result<(), Odd> {
        let last = |range: Range| Dot { life: self.life, seq: range.last };
        if context.is_over(self.life) {
            return Err(Odd("that this life is over"));
        }
        self.is_given(context.ranges_of(self.life).map(last))
    }

    // Ends.

    pub fn next_end(&self) -> Option<Time> {
        self.ends.first().map(|(ends, _)| *ends)
    }

    /// Keys whose end has come; each is looked at once.
    pub fn ended(&mut self, now: Time) -> Vec<Bytes> {
        let later = self.ends.split_off(&(now + base::Span(1), Bytes::new()));
        let due = std::mem::replace(&mut self.ends, later);
        due.into_iter().map(|(_, key)| key).filter(|key| self.has_ended(key, now)).collect()
    }

    /// Looks at a key again.
    pub fn look_again(&mut self, at: Time, key: Bytes) {
        self.ends.insert((at, key));
    }
}
