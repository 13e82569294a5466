//! The entries of a stream.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::Id;
use super::block::{Block, Place};

#[derive(Clone, PartialEq, Default, Debug)]
pub struct Log {
    /// Invariant: in order, none is empty.
    blocks: VecDeque<Arc<Block>>,
    len: u64,
    /// The highest id that was ever given.
    last: Id,
    /// The highest that was removed by name.
    deleted: Id,
    /// Entries that were ever added.
    added: u64,
    /// Of all blocks.
    bytes: usize,
}

/// One entry.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    block: &'a Block,
    place: Place,
}

/// How far it is trimmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trim {
    pub to: TrimTo,
    /// Whole blocks only.
    pub about: bool,
    /// Entries at most; 0: all.
    pub limit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrimTo {
    Len(u64),
    /// The first that stays.
    Id(Id),
}

impl Entry<'_> {
    pub fn id(&self) -> Id {
        self.place.id
    }

    /// Names and values in turn.
    pub fn fields(&self) -> Vec<Bytes> {
        self.block.fields(&self.place)
    }
}

impl Log {
    /// Entries in it.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn last(&self) -> Id {
        self.last
    }

    pub fn deleted(&self) -> Id {
        self.deleted
    }

    pub fn added(&self) -> u64 {
        self.added
    }

    pub fn blocks(&self) -> impl ExactSizeIterator<Item = &Block> {
        self.blocks.iter().map(|block| &**block)
    }

    /// Of blocks in order; none, if these make no sense together.
    pub fn of(blocks: Vec<Block>, last: Id, deleted: Id, added: u64) -> Option<Self> {
        let in_order = blocks.windows(2).all(|pair| pair[0].last() < pair[1].first());
        let (len, bytes) = (blocks.iter().map(Block::len).sum(), blocks.iter().map(Block::bytes).sum());
        let is_sound = in_order && blocks.last().is_none_or(|block| block.last() <= last);
        let blocks = blocks.into_iter().map(Arc::new).collect();
        is_sound.then_some(Self { blocks, len, last, deleted, added, bytes })
    }

    /// What its counters say from now on.
    pub fn set(&mut self, last: Id, deleted: Id, added: u64) {
        (self.last, self.deleted, self.added) = (last, deleted, added);
    }

    /// Behind all others: its id is above the last one's.
    pub fn add(&mut self, id: Id, fields: &[Bytes]) {
        assert!(id > self.last, "ids go up");
        (self.last, self.added, self.len) = (id, self.added.saturating_add(1), self.len + 1);
        if let Some(block) = self.blocks.back_mut() {
            let block_before = block.bytes();
            if block.has_room(fields) {
                let block = Arc::make_mut(block);
                block.push(id, fields);
                self.bytes += block.bytes() - block_before;
                return;
            }
            // Not under a copy: that would cost more than it saves.
            if let Some(block) = Arc::get_mut(block) {
                block.close();
            }
        }
        let block = Block::of(id, fields);
        self.bytes += block.bytes();
        self.blocks.push_back(Arc::new(block));
    }

    fn change(&mut self, at: usize, is_gone: impl Fn(Id) -> bool) -> u64 {
        let before = self.blocks[at].bytes();
        let block = Arc::make_mut(&mut self.blocks[at]);
        let gone = block.remove(is_gone);
        self.len -= gone;
        self.bytes = self.bytes + block.bytes() - before;
        if block.len() == 0 {
            self.bytes -= block.bytes();
            self.blocks.remove(at);
        }
        gone
    }

    /// Whether there was one.
    pub fn remove(&mut self, id: Id) -> bool {
        let at = self.blocks.partition_point(|block| block.last() < id);
        if self.get(id).is_none() {
            return false;
        }
        self.deleted = self.deleted.max(id);
        self.change(at, |other| other == id) > 0
    }

    /// Removes the first ones; how many.
    pub fn trim(&mut self, trim: Trim) -> u64 {
        let mut gone = 0;
        while let Some(block) = self.blocks.front() {
            let (len, last) = (block.len(), block.last());
            if matches!(trim.to, TrimTo::Len(most) if self.len <= most) {
                break;
            }
            // As Redis counts the work, for whole blocks.
            if trim.limit > 0 && gone + len > trim.limit {
                break;
            }
            let whole = match trim.to {
                TrimTo::Len(most) => self.len - len >= most,
                TrimTo::Id(first) => last < first,
            };
            if whole {
                self.bytes -= block.bytes();
                self.len -= len;
                gone += len;
                self.blocks.pop_front();
                continue;
            }
            if !trim.about {
                let upto = match trim.to {
                    TrimTo::Len(most) => {
                        let places = block.places();
                        places.get((self.len - most) as usize).map_or(Id::MAX, |place| place.id)
                    }
                    TrimTo::Id(first) => first,
                };
                if block.first() < upto {
                    gone += self.change(0, |id| id < upto);
                }
            }
            break;
        }
        gone
    }

    pub fn get(&self, id: Id) -> Option<Entry<'_>> {
        self.range(id, id).next()
    }

    /// Those between, both included.
    pub fn range(&self, from: Id, to: Id) -> impl Iterator<Item = Entry<'_>> {
        let start = self.blocks.partition_point(|block| block.last() < from);
        let blocks = self.blocks.range(start..).take_while(move |block| block.first() <= to);
        blocks.flat_map(move |block| entries(block).filter(move |entry| is_between(entry, from, to)))
    }

    /// From the last one on.
    pub fn range_back(&self, from: Id, to: Id) -> impl Iterator<Item = Entry<'_>> {
        let end = self.blocks.partition_point(|block| block.first() <= to);
        let blocks = self.blocks.range(..end).rev().take_while(move |block| block.last() >= from);
        blocks.flat_map(move |block| entries(block).rev().filter(move |entry| is_between(entry, from, to)))
    }

    /// Those with a higher id.
    pub fn after(&self, id: Id) -> impl Iterator<Item = Entry<'_>> {
        id.next().into_iter().flat_map(|from| self.range(from, Id::MAX))
    }

    pub fn first_entry(&self) -> Option<Entry<'_>> {
        self.range(Id::MIN, Id::MAX).next()
    }

    pub fn last_entry(&self) -> Option<Entry<'_>> {
        self.range_back(Id::MIN, Id::MAX).next()
    }

    /// Of the first entry that there is, or the lowest.
    pub fn first(&self) -> Id {
        self.first_entry().map_or(Id::MIN, |entry| entry.id())
    }

    /// Is there one above this?
    pub fn has_after(&self, id: Id) -> bool {
        self.blocks.back().is_some_and(|block| block.last() > id)
    }

    /// Was something removed from among those from this one on?
    pub fn has_holes(&self, from: Id) -> bool {
        self.len > 0 && self.deleted != Id::MIN && from <= self.deleted
    }

    /// How many were added up to this one, if that is known.
    pub fn added_upto(&self, id: Id) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= self.last {
            return Some(self.added);
        }
        if id != Id::MIN && id < self.deleted {
            return None;
        }
        if id >= self.last {
            return (id == self.last).then_some(self.added);
        }
        let first = self.first();
        if self.deleted != Id::MIN && self.deleted >= first {
            return None;
        }
        let before = self.added.saturating_sub(self.len);
        match id.cmp(&first) {
            std::cmp::Ordering::Less => Some(before),
            std::cmp::Ordering::Equal => Some(before.saturating_add(1)),
            std::cmp::Ordering::Greater => None,
        }
    }
}

fn entries(block: &Block) -> impl DoubleEndedIterator<Item = Entry<'_>> {
    block.places().into_iter().map(move |place| Entry { block, place })
}

fn is_between(entry: &Entry<'_>, from: Id, to: Id) -> bool {
    (from..=to).contains(&entry.id())
}
