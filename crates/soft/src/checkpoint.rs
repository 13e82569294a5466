//! What a node writes now and then, so that it is there again when all nodes have ended at once: the cells that have changed since,
//! which updates they are the outcome of, and in the last record what was seen by then. It is appended in parts, a turn's work each, as others wait for the node's
//! thread meanwhile; what changes again after its part is in a later one, and the last one is whole. Nothing of it is forced: a torn end is an
//! older checkpoint, and a node that comes back with less than the others have forgotten is sent all (`repair.rs`).
//!
//! ```text
//! Kept { cells }   Kept { cells }   Kept { cells, commit }   |   Kept { cells }   torn: not taken
//! ```

use std::collections::BTreeMap;
use std::ops::Bound;

use base::{GroupId, Note, Now, Parts, Span, Ticket, Time};
use bytes::Bytes;
use class::Class as _;
use prost::Message;

use crate::catchup::Held;
use crate::cell::Cell;
use crate::claims;
use crate::context::{Context, Range};
use crate::dot::Dot;
use crate::limits::*;
use crate::map::Map;
use crate::space::{Address, Odd, Space};
use crate::wire::{ACell, At, Commit, Kept, Whole, context, ranges, tell};
use crate::{Output, Soft};

/// How far the checkpoints of one namespace have come.
pub struct Keeper {
    every: Span,
    next_at: Time,
    /// What was seen at the last checkpoint that is written.
    kept: Context,
    /// Of the one that is being written.
    under_way: Option<(Ticket, Context)>,
    /// What was seen at the last one that was begun; none if there is none that this one could go on from.
    logged: Option<Context>,
    /// Since the last one of everything.
    appended: u64,
    last: Ticket,
    /// One is being appended, a part in each turn.
    part: Option<Part>,
}

/// How far a checkpoint of what has changed is. It is whole when nothing has changed that is not written.
struct Part {
    /// When it began.
    since: Time,
    /// Updates of which is written what they led to, or was before this checkpoint.
    told: Context,
    turns: u32,
}

pub fn group(space: u32) -> GroupId {
    Soft::NUMBER.group(space.into())
}

impl Keeper {
    pub fn new(now: Time, every: Span) -> Self {
        Self {
            every,
            next_at: now + every,
            kept: Context::default(),
            under_way: None,
            logged: None,
            appended: 0,
            last: Ticket(0),
            part: None,
        }
    }

    /// What the disk has of it is what this namespace has now. `is_torn`: and the begin of what must not count.
    pub fn goes_on(&mut self, from: &Context, bytes: u64, is_torn: bool) {
        self.kept = from.clone();
        (self.logged, self.appended) = ((!is_torn).then(|| from.clone()), bytes);
    }

    pub fn kept(&self) -> &Context {
        &self.kept
    }

    pub fn set_every(&mut self, every: Span) {
        self.next_at = Time(self.next_at.0.saturating_sub(self.every.0)) + every;
        self.every = every;
    }

    /// When the next is to be written.
    pub fn wake_at(&self) -> Option<Time> {
        self.under_way.is_none().then_some(self.next_at)
    }

    /// It is written, without force.
    pub fn written(&mut self, ticket: Ticket) {
        if let Some((_, context)) = self.under_way.take_if(|(of, _)| *of <= ticket) {
            self.kept = context;
        }
    }

    /// Writes what has changed, if anything has: what the disk has is far behind, or of a life before this.
    pub fn write(&mut self, now: Now, id: u32, space: &mut Space, out: &mut Vec<Output>) {
        if self.under_way.is_some() || now.mono < self.next_at {
            return;
        }
        if self.part.is_some() {
            return self.append(now, id, space, out);
        }
        self.next_at = now.mono + self.every;
        if self.logged.as_ref() == Some(&space.context) {
            return;
        }
        match &self.logged {
            Some(logged) if self.appended < 2 * space.bytes() + SAVE_BYTES_MIN => {
                self.part = Some(Part { since: now.mono, told: logged.clone(), turns: 0 });
                self.append(now, id, space, out);
            }
            _ => self.save(now, id, space, out),
        }
    }

    /// Appends a part of what has changed. What changes again is written again: the last part is of one moment.
    fn append(&mut self, now: Now, id: u32, space: &mut Space, out: &mut Vec<Output>) {
        let Some(part) = &mut self.part else { return };
        let mut room = Room::new(part.turns / KEEP_TURNS);
        part.turns += 1;
        // What is folded has no lines to be written: it goes with the last record.
        part.told.join_folded(&space.context);
        let mut covers: BTreeMap<Address, Vec<Range>> = BTreeMap::new();
        for Range { life, first, last } in space.context.minus(&part.told) {
            let mut done = last;
            for (dot, at) in space.index.range(Dot { life, seq: first }..=Dot { life, seq: last }) {
                done = dot.seq;
                note(&mut covers, *dot, at);
                if !room.takes(space, at) {
                    break;
                }
                done = last;
            }
            part.told.insert_range(Range { life, first, last: done });
            if room.is_full() {
                break;
            }
        }
        covers.keys().for_each(|at| _ = space.changed.remove(at));
        while !room.is_full()
            && let Some(at) = space.changed.pop_first()
        {
            room.takes(space, &at);
            covers.entry(at).or_default();
        }
        let is_whole = space.changed.is_empty() && space.context.is_within(&part.told);
        let cells = covers.into_iter().map(|(at, covers)| {
            let cell = space.cells.get(&at).map(|cell| ACell::of(cell, now.mono)).unwrap_or_default();
            Whole { at: At::from(&at), cell, covers: ranges(covers) }
        });
        let records: Vec<Bytes> = records(cells, is_whole.then(|| commit(now, space))).collect();
        self.last = Ticket(self.last.0 + 1);
        self.appended += records.iter().map(|record| record.len() as u64).sum::<u64>();
        self.next_at = match is_whole {
            true => (part.since + self.every).max(now.mono + KEEP_AGAIN),
            false => now.mono + KEEP_AGAIN,
        };
        if is_whole {
            self.part = None;
            self.logged = Some(space.context.clone());
            self.under_way = Some((self.last, space.context.clone()));
        }
        let records = records.into_iter().map(Into::into).collect();
        out.push(Output::Append { group: group(id), records, ticket: self.last, force: false });
    }

    /// Writes everything anew, as it is now. It is made on another thread, of a copy that shares all that does not change meanwhile.
    fn save(&mut self, now: Now, id: u32, space: &mut Space, out: &mut Vec<Output>) {
        self.last = Ticket(self.last.0 + 1);
        (self.logged, self.appended) = (Some(space.context.clone()), 0);
        space.is_kept = true;
        self.under_way = Some((self.last, space.context.clone()));
        let changed = std::mem::take(&mut space.changed);
        let (cells, index, floor, mono) = (space.cells.clone(), space.index.clone(), space.floor.clone(), now.mono);
        let commit = commit(now, space);
        let whole = |at: &Address, cell, covers| Whole { at: At::from(at), cell, covers };
        let made = move || {
            // To be forgotten here, as that takes a while.
            drop(changed);
            let mut covers: BTreeMap<Address, Vec<Range>> = BTreeMap::new();
            index.iter().filter(|(dot, _)| !floor.contains(**dot)).for_each(|(dot, at)| note(&mut covers, *dot, at));
            // What was the outcome of which is told before: of an address what comes last counts.
            let gone = covers.into_iter().map(move |(at, covers)| whole(&at, ACell::default(), ranges(covers)));
            let all = Every { cells, after: None, mono };
            records(gone.chain(all), Some(commit))
        };
        let mut made = Some(made);
        let mut of: Option<Box<dyn Iterator<Item = Bytes> + Send>> = None;
        let parts = std::iter::from_fn(move || {
            if let Some(made) = made.take() {
                of = Some(Box::new(made()));
            }
            of.as_mut()?.next()
        });
        out.push(Output::Save { group: group(id), parts: Parts(Box::new(parts)), ticket: self.last });
    }
}

/// What one turn takes.
struct Room {
    cells: usize,
    bytes: usize,
}

impl Room {
    fn new(doubled: u32) -> Self {
        let times = 1 << doubled.min(16);
        Self { cells: KEEP_CELLS * times, bytes: KEEP_BYTES * times }
    }

    /// False if this is the last one.
    fn takes(&mut self, space: &Space, at: &Address) -> bool {
        let values = |cell: &Cell| cell.siblings.iter().filter_map(|s| s.value.as_ref()).map(Bytes::len).sum();
        let bytes: usize = space.cells.get(at).map_or(0, values);
        self.cells = self.cells.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes + at.key.len() + at.element.len());
        !self.is_full()
    }

    fn is_full(&self) -> bool {
        self.cells == 0 || self.bytes == 0
    }
}

/// All cells of a copy, in order.
struct Every {
    cells: Map<Address, Cell>,
    after: Option<Address>,
    mono: Time,
}

impl Iterator for Every {
    type Item = Whole;

    fn next(&mut self) -> Option<Whole> {
        let behind = self.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let (at, cell) = self.cells.range((behind, Bound::Unbounded)).next()?;
        let whole = Whole { at: At::from(at), cell: ACell::of(cell, self.mono), covers: Vec::new() };
        self.after = Some(at.clone());
        Some(whole)
    }
}

fn commit(now: Now, space: &Space) -> Commit {
    Commit { context: tell(&space.context), floor: tell(&space.floor), wall_ms: now.wall_ms }
}

/// The index leads from this update to that address.
fn note(covers: &mut BTreeMap<Address, Vec<Range>>, dot: Dot, at: &Address) {
    let covers = covers.entry(at.clone()).or_default();
    match covers.last_mut() {
        Some(range) if range.life == dot.life && range.last + 1 == dot.seq => range.last = dot.seq,
        _ => covers.push(Range::from(dot)),
    }
}

/// Cells, a frame's worth in each record; the last one says that they are all, if they are.
fn records(cells: impl Iterator<Item = Whole>, commit: Option<Commit>) -> impl Iterator<Item = Bytes> {
    let (mut cells, mut commit, mut is_over) = (cells, commit, false);
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let (mut record, mut bytes) = (Kept::default(), 0);
        while bytes < FRAME_BYTES {
            let Some(whole) = cells.next() else {
                (record.commit, is_over) = (commit.take(), true);
                break;
            };
            bytes += whole.encoded_len();
            record.cells.push(whole);
        }
        Some(Bytes::from(record.encode_to_vec()))
    })
}

/// Puts back what the last whole checkpoint says; none if none is there, else whether there is more behind it. What stands
/// behind a record that cannot be read is not taken.
pub fn restore(now: Now, space: &mut Space, records: Vec<Bytes>) -> Result<Option<bool>, Odd> {
    let (mut cells, mut last) = (Vec::new(), None);
    let mut all: BTreeMap<Address, ACell> = BTreeMap::new();
    let mut index = Vec::new();
    let mut is_torn = false;
    for record in records {
        is_torn = true;
        let Ok(kept) = claims::read::<Kept>(record) else { break };
        cells.extend(kept.cells);
        let Some(commit) = kept.commit else { continue };
        let Some((context, floor)) = context(&commit.context).zip(context(&commit.floor)) else { break };
        is_torn = false;
        // What is left of an end has become less meanwhile; by a clock that went back, nothing has.
        let asleep = Span::millis(now.wall_ms.saturating_sub(commit.wall_ms)).min(END_MAX);
        for mut whole in cells.drain(..) {
            let at = whole.at.read().ok_or(Odd("an address that cannot be"))?;
            index.push((at.clone(), whole.covers));
            for sibling in &mut whole.cell.siblings {
                sibling.left = sibling.left.map(|left| left.saturating_sub(asleep.0));
            }
            all.insert(at, whole.cell);
        }
        last = Some((context, floor));
    }
    let Some((context, floor)) = last else { return Ok(None) };
    let mut there = Vec::new();
    for (at, cell) in all {
        there.push((at, cell.read(now.mono).ok_or(Odd("a cell that cannot be"))?));
    }
    let mut noted = Vec::new();
    for (at, covers) in index {
        let covers = crate::wire::context(&covers).ok_or(Odd("updates that nobody gives"))?;
        if !covers.is_within(&context) {
            return Err(Odd("updates that it has not seen"));
        }
        noted.extend(covers.ranges().map(|range| (at.clone(), range)));
    }
    let length = |range: &Range| range.last - range.first + 1;
    let updates = noted.iter().fold(0u64, |sum, (_, range)| sum.saturating_add(length(range)));
    if updates > INDEX_KEPT_MAX {
        return Err(Odd("more updates than are remembered"));
    }
    space.restore(there, noted, context, floor);
    Ok(Some(is_torn))
}

impl Held {
    /// Checkpoints are written, or no more, as it is declared now.
    pub fn keeps(&mut self, now: Time, id: u32, out: &mut Vec<Output>) {
        let every = (self.spec.checkpoint_ms > 0).then(|| Span::millis(self.spec.checkpoint_ms));
        match (every, &mut self.keeper) {
            (Some(every), Some(keeper)) => keeper.set_every(every),
            (Some(every), None) => self.keeper = Some(Keeper::new(now, every)),
            (None, keeper) => {
                if keeper.take().is_some() {
                    out.push(Output::Forget { group: group(id) });
                }
                self.space.changed.clear();
            }
        }
        // Before there is one on disk what has changed is everything.
        self.space.is_kept = self.keeper.as_ref().is_some_and(|keeper| keeper.logged.is_some());
    }

    /// What the disk has of it, before anything else is known.
    pub fn restore(&mut self, now: Now, id: u32, records: Vec<Bytes>, out: &mut Vec<Output>) {
        let bytes = records.iter().map(|record| record.len() as u64).sum();
        let Some(keeper) = &mut self.keeper else { return out.push(Output::Forget { group: group(id) }) };
        match restore(now, &mut self.space, records) {
            Ok(Some(is_torn)) => {
                keeper.goes_on(&self.space.context, bytes, is_torn);
                self.space.is_kept = keeper.logged.is_some();
            }
            Ok(None) => (),
            Err(Odd(why)) => {
                let text = format!("a checkpoint of class soft is as if it were not there: it has {why}");
                out.push(Output::Note(Note::warn(text)));
            }
        }
    }
}

impl Soft {
    /// Writes what is due. What a transfer has brought is written when it is seen.
    pub(crate) fn keep(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.is_disk_full {
            return;
        }
        for (id, held) in self.spaces.iter_mut().filter(|(_, held)| !held.space.lends()) {
            if let Some(keeper) = &mut held.keeper {
                keeper.write(now, *id, &mut held.space, out);
            }
        }
    }

    /// What the disk has of namespaces that are no more.
    pub(crate) fn forget_kept(&mut self, now: Now, out: &mut Vec<Output>) {
        let is_fresh = self.born.is_none_or(|born| now.mono.since(born) < FRESH_AFTER);
        if self.kept.is_empty() || is_fresh || self.unread > 0 {
            return;
        }
        for group in std::mem::take(&mut self.kept).into_keys() {
            out.push(Output::Forget { group });
        }
    }

    pub(crate) fn written(&mut self, group: GroupId, ticket: Ticket) {
        let held = self.spaces.iter_mut().find(|(id, _)| self::group(**id) == group);
        if let Some(keeper) = held.and_then(|(_, held)| held.keeper.as_mut()) {
            keeper.written(ticket);
        }
    }
}
