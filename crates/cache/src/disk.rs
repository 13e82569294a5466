//! What a namespace has on its node's disk: entries that memory had no room for. They are written behind one another into segments, files
//! (`base::pack`) of which the oldest goes when there are too many, with all that is left in it. What lies where is known in memory
//! alone, so a purge, a write or a removal ends an entry by forgetting it, and after a restart there is nothing.
//!
//! ```text
//! checksum of the head, u32 | length of key, u32 | of kind, u32 | of value, u32 | checksum of the value, u32 | key | kind | value
//! ```
//! All numbers are little endian; the head is what stands behind its checksum and before the value. An entry whose checksums do not fit,
//! or which is another key's, was never there.
//!
//! An entry is here or in memory, never in both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::checksum::Checksum;
use base::{PackWant, Time};
use bytes::{BufMut, Bytes, BytesMut};

use super::What;
use super::limits::{ENTRY_BYTES, INDEX_PART, SEGMENT_MAX, SEGMENTS, SEGMENTS_UNWRITTEN_MAX, TAG_BYTES};
use super::store::Value;

/// The bytes of a head before the key.
const HEAD: usize = 20;

/// Where an entry lies, and what has to be known of it without reading.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Slot {
    segment: u64,
    from: u64,
    len: u32,
    ends: Option<Time>,
    /// View of who is live in which it was known to be the newest.
    view: u64,
    tags: Vec<Bytes>,
    /// Head and value, as long as they are not on the disk.
    held: Option<[Bytes; 2]>,
}

struct Segment {
    number: u64,
    bytes: u64,
    /// What was put into it; it may be elsewhere by now.
    keys: Vec<Bytes>,
    /// Memory that knowing of those takes.
    index: u64,
    parts: Vec<Bytes>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Under,
    Written,
}

/// Where to look for an entry, or what it is, with its view.
pub enum Found {
    Here(Value, u64),
    /// There, if nothing happens to it meanwhile.
    There(Place),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub segment: u64,
    pub from: u64,
    pub len: u32,
}

pub struct Ring {
    /// 0: there is none.
    size_max: u64,
    /// Memory that knowing of its entries may take.
    index_max: u64,
    index: u64,
    /// Segments on their way to the disk.
    under: usize,
    keys: BTreeMap<Bytes, Slot>,
    tags: BTreeMap<Bytes, BTreeSet<Bytes>>,
    segments: VecDeque<Segment>,
    /// Bytes of all segments.
    bytes: u64,
    next: u64,
    /// The disk has no room to spare.
    is_stopped: bool,
    wants: Vec<PackWant>,
    /// Entries that were put here, since it was made.
    pub written: u64,
    /// Entries that could not be, as the disk is slower than what comes.
    pub passed: u64,
}

impl Ring {
    /// `first`: the number of its first segment; no other one ever has it.
    pub fn new(first: u64, size_max: u64, memory: u64) -> Self {
        Self {
            size_max,
            index_max: memory / INDEX_PART,
            index: 0,
            under: 0,
            keys: BTreeMap::new(),
            tags: BTreeMap::new(),
            segments: VecDeque::new(),
            bytes: 0,
            next: first,
            is_stopped: false,
            wants: Vec::new(),
            written: 0,
            passed: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn size_max(&self) -> u64 {
        self.size_max
    }

    pub fn resize(&mut self, size_max: u64, memory: u64) {
        (self.size_max, self.index_max) = (size_max, memory / INDEX_PART);
        self.make_room();
    }

    /// Nothing more is written, and nothing is dropped.
    pub fn stop(&mut self, is_stopped: bool) {
        self.is_stopped = is_stopped;
    }

    /// The oldest segment goes: others need the disk.
    pub fn shrink(&mut self) {
        self.drop_oldest();
    }

    /// What is wanted of the disk.
    pub fn wants(&mut self) -> Vec<PackWant> {
        std::mem::take(&mut self.wants)
    }

    /// All that it has on the disk, as it ends; what is still being written is not among it.
    pub fn end(self) -> Vec<PackWant> {
        let is_written = |segment: &&Segment| segment.state == State::Written;
        self.segments.iter().filter(is_written).map(|segment| PackWant::Drop { pack: segment.number }).collect()
    }

    /// An entry for which memory has no room.
    pub fn put(&mut self, key: Bytes, value: Value, view: u64) {
        self.remove(&key);
        if self.size_max == 0 || self.is_stopped {
            return;
        }
        if self.under >= SEGMENTS_UNWRITTEN_MAX {
            self.passed += 1;
            return;
        }
        let head = head(&key, &value);
        let len = (head.len() + value.bytes.len()) as u64;
        if self.segments.back().is_none_or(|segment| segment.state != State::Open) {
            let number = self.next;
            self.next += 1;
            let (keys, parts) = (Vec::new(), Vec::new());
            self.segments.push_back(Segment { number, bytes: 0, keys, index: 0, parts, state: State::Open });
        }
        let segment = self.segments.back_mut().expect("one was opened just now");
        let slot = Slot {
            segment: segment.number,
            from: segment.bytes,
            len: len as u32,
            ends: value.ends,
            view,
            tags: value.tags,
            held: Some([head.clone(), value.bytes.clone()]),
        };
        segment.bytes += len;
        segment.index += known(&key, &slot);
        self.index += known(&key, &slot);
        segment.keys.push(key.clone());
        segment.parts.extend([head, value.bytes]);
        if segment.bytes >= SEGMENT_MAX.min(self.size_max / SEGMENTS) {
            segment.state = State::Under;
            self.under += 1;
            let parts = std::mem::take(&mut segment.parts);
            self.wants.push(PackWant::Write { pack: segment.number, parts, hurry: false });
        }
        self.bytes += len;
        self.written += 1;
        for tag in &slot.tags {
            self.tags.entry(tag.clone()).or_default().insert(key.clone());
        }
        self.keys.insert(key, slot);
        self.make_room();
    }

    fn make_room(&mut self) {
        while self.bytes > self.size_max || self.index > self.index_max {
            if !self.drop_oldest() {
                return;
            }
        }
    }

    fn drop_oldest(&mut self) -> bool {
        let Some(segment) = self.segments.pop_front() else { return false };
        self.bytes -= segment.bytes;
        self.index -= segment.index;
        for key in segment.keys {
            if self.keys.get(&key).is_some_and(|slot| slot.segment == segment.number) {
                self.remove(&key);
            }
        }
        // One that is being written goes when it is.
        if segment.state == State::Written {
            self.wants.push(PackWant::Drop { pack: segment.number });
        }
        true
    }

    /// A segment is on the disk.
    pub fn is_written(&mut self, number: u64) {
        self.under = self.under.saturating_sub(1);
        let Some(segment) = self.segments.iter_mut().rev().find(|segment| segment.number == number) else {
            self.wants.push(PackWant::Drop { pack: number });
            return;
        };
        segment.state = State::Written;
        for key in &segment.keys {
            if let Some(slot) = self.keys.get_mut(key).filter(|slot| slot.segment == number) {
                slot.held = None;
            }
        }
    }

    /// The view of an entry that is here and has not ended.
    pub fn peek(&mut self, now: Time, key: &[u8]) -> Option<u64> {
        let slot = self.keys.get(key)?;
        if slot.ends.is_some_and(|ends| ends <= now) {
            self.remove(key);
            return None;
        }
        Some(slot.view)
    }

    pub fn find(&mut self, now: Time, key: &[u8]) -> Option<Found> {
        self.peek(now, key)?;
        let slot = self.keys.get(key)?;
        let Slot { segment, from, len, .. } = *slot;
        Some(match &slot.held {
            Some([head, value]) => {
                let value = decode(key, head, value.clone(), slot);
                match value {
                    Some(value) => Found::Here(value, slot.view),
                    None => {
                        self.remove(key);
                        return None;
                    }
                }
            }
            None => Found::There(Place { segment, from, len }),
        })
    }

    /// What was read from there, if the entry is there still, and its view. An error: it is not what was written.
    pub fn read(
        &mut self,
        now: Time,
        key: &[u8],
        place: Place,
        bytes: Option<Bytes>,
    ) -> Result<Option<(Value, u64)>, ()> {
        if self.peek(now, key).is_none() {
            return Ok(None);
        }
        let Some(slot) = self.keys.get(key) else { return Ok(None) };
        if (Place { segment: slot.segment, from: slot.from, len: slot.len }) != place {
            return Ok(None);
        }
        let split = |bytes: Bytes| {
            let lens = [4, 8]
                .map(|at| bytes.get(at..at + 4).map(|four| u32::from_le_bytes(four.try_into().unwrap_or_default())));
            let head = HEAD.checked_add(lens[0]? as usize)?.checked_add(lens[1]? as usize)?;
            (head <= bytes.len()).then(|| (bytes.slice(..head), bytes.slice(head..)))
        };
        let value = bytes.and_then(split).and_then(|(head, value)| decode(key, &head, value, slot));
        match value {
            Some(value) => Ok(Some((value, slot.view))),
            None => {
                self.remove(key);
                Err(())
            }
        }
    }

    /// Another end for an entry that stays. False: there is none.
    pub fn set_end(&mut self, now: Time, key: &[u8], ends: Option<Time>) -> bool {
        if self.peek(now, key).is_none() {
            return false;
        }
        self.keys.get_mut(key).map(|slot| slot.ends = ends).is_some()
    }

    /// In this view it is known to be the newest still.
    pub fn confirm(&mut self, key: &[u8], view: u64) {
        if let Some(slot) = self.keys.get_mut(key) {
            slot.view = view;
        }
    }

    /// Forgets an entry.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let Some((key, slot)) = self.keys.remove_entry(key) else { return false };
        for tag in &slot.tags {
            if let Some(keys) = self.tags.get_mut(tag) {
                keys.remove(&key);
                if keys.is_empty() {
                    self.tags.remove(tag);
                }
            }
        }
        true
    }

    pub fn purge(&mut self, what: &What) -> usize {
        let keys: Vec<Bytes> = match what {
            What::Key(key) => vec![key.clone()],
            What::Prefix(prefix) => {
                let from = self.keys.range::<Bytes, _>(prefix..);
                from.take_while(|(key, _)| key.starts_with(prefix)).map(|(key, _)| key.clone()).collect()
            }
            What::Tag(tag) => self.tags.get(tag).into_iter().flatten().cloned().collect(),
            What::All => {
                let all = self.keys.len();
                while self.drop_oldest() {}
                return all;
            }
        };
        keys.iter().filter(|key| self.remove(key)).count()
    }
}

/// Memory that knowing of an entry takes.
fn known(key: &[u8], slot: &Slot) -> u64 {
    key.len() as u64 + ENTRY_BYTES + slot.tags.iter().map(|tag| tag.len() as u64 + TAG_BYTES).sum::<u64>()
}

fn head(key: &[u8], value: &Value) -> Bytes {
    let mut head = BytesMut::with_capacity(HEAD + key.len() + value.kind.len());
    head.put_u32_le(0);
    for len in [key.len(), value.kind.len(), value.bytes.len()] {
        head.put_u32_le(len as u32);
    }
    head.put_u32_le(value.sum);
    head.put_slice(key);
    head.put_slice(&value.kind);
    let sum = Checksum::of(&head[4..]).0;
    head[..4].copy_from_slice(&sum.to_le_bytes());
    head.freeze()
}

/// The entry of this key, if it is that and whole.
fn decode(key: &[u8], head: &Bytes, bytes: Bytes, slot: &Slot) -> Option<Value> {
    let number = |at: usize| head.get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_le_bytes);
    let [sum_of_head, key_len, kind_len, len, sum] = [number(0)?, number(4)?, number(8)?, number(12)?, number(16)?];
    let kind_at = HEAD.checked_add(key_len as usize)?;
    let is_it = Checksum(sum_of_head).matches(&head[4..])
        && head.get(HEAD..kind_at) == Some(key)
        && kind_at.checked_add(kind_len as usize) == Some(head.len())
        && len as usize == bytes.len()
        && Checksum(sum).matches(&bytes);
    is_it.then(|| Value { bytes, kind: head.slice(kind_at..), sum, ends: slot.ends, tags: slot.tags.clone() })
}
