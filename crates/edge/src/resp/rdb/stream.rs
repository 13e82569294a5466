//! Streams as Redis writes them: entries packed in nodes, each entry as what differs from the first of its node; counters; groups, with
//! what is not acknowledged. What is written is the form of Redis 7.0; what is read may be that of 5, too, or of 7.2 and later.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};
use state::linear::stream::{Consumer, Group, Id, Stream};

use super::{DUMP_BYTES_MAX, RESTORED_ITEMS_MAX, length, listpack, put_number, put_text, text};

/// Of Redis 5, 7.0 and 7.2.
pub const KINDS: [u8; 3] = [15, 19, 21];
/// The one that is written, and the version of its format.
const WRITTEN: u8 = 19;
pub const VERSION: u16 = 10;

/// Entries of a node, as Redis has them.
const NODE_ENTRIES: usize = 100;
/// An entry is no longer there.
const DELETED: u64 = 1;
/// Its names are those of the node's first.
const SAME_NAMES: u64 = 2;
/// How Redis says that nobody knows how many were read.
const UNKNOWN: u64 = u64::MAX;

pub fn put(out: &mut Vec<u8>, stream: &Stream) {
    let log = &stream.log;
    let entries: Vec<(Id, Vec<Bytes>)> =
        log.range(Id::MIN, Id::MAX).map(|entry| (entry.id(), entry.fields())).collect();
    let nodes = entries.chunks(NODE_ENTRIES);
    out.push(WRITTEN);
    put_number(out, nodes.len() as u64);
    for node in nodes {
        put_text(out, &raw(node[0].0));
        put_text(out, &packed(node));
    }
    put_number(out, log.len());
    put_id(out, log.last());
    put_id(out, log.first());
    put_id(out, log.deleted());
    put_number(out, log.added());
    put_number(out, stream.groups().len() as u64);
    for (name, group) in stream.groups() {
        put_text(out, name);
        put_id(out, group.last);
        put_number(out, group.read.unwrap_or(UNKNOWN));
        let pending = group.pending();
        put_number(out, pending.len() as u64);
        for (id, has) in pending.from(Id::MIN) {
            out.extend(raw(*id));
            out.extend(has.at.to_le_bytes());
            put_number(out, has.times);
        }
        put_number(out, group.consumers().len() as u64);
        for (name, consumer) in group.consumers() {
            put_text(out, name);
            out.extend(consumer.seen.to_le_bytes());
            put_number(out, consumer.pending().len() as u64);
            consumer.pending().from(Id::MIN).for_each(|(id, ())| out.extend(raw(*id)));
        }
    }
}

fn put_id(out: &mut Vec<u8>, id: Id) {
    put_number(out, id.ms);
    put_number(out, id.seq);
}

/// As it lies in Redis' trees: great end first.
fn raw(id: Id) -> [u8; 16] {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&id.ms.to_be_bytes());
    raw[8..].copy_from_slice(&id.seq.to_be_bytes());
    raw
}

/// A node: how many there are, the names of the first, and each entry with the count of its items behind it.
fn packed(node: &[(Id, Vec<Bytes>)]) -> Vec<u8> {
    let (first, fields) = &node[0];
    let names: Vec<&Bytes> = fields.iter().step_by(2).collect();
    let mut list = Listpack::default();
    [node.len(), 0, names.len()].into_iter().for_each(|number| list.number(number as i64));
    names.iter().for_each(|name| list.text(name));
    list.number(0);
    for (id, fields) in node {
        let is_same = fields.iter().step_by(2).eq(names.iter().copied());
        list.number(if is_same { SAME_NAMES as i64 } else { 0 });
        list.number(id.ms.wrapping_sub(first.ms).cast_signed());
        list.number(id.seq.wrapping_sub(first.seq).cast_signed());
        if is_same {
            fields.iter().skip(1).step_by(2).for_each(|value| list.text(value));
            list.number(names.len() as i64 + 3);
        } else {
            list.number(fields.len() as i64 / 2);
            fields.iter().for_each(|text| list.text(text));
            list.number(fields.len() as i64 + 4);
        }
    }
    list.done()
}

/// What [`listpack`] reads.
#[derive(Default)]
struct Listpack {
    items: Vec<u8>,
    count: usize,
}

impl Listpack {
    fn number(&mut self, number: i64) {
        let from = self.items.len();
        match (u8::try_from(number), i16::try_from(number), i32::try_from(number)) {
            (Ok(small @ 0..0x80), _, _) => self.items.push(small),
            (_, Ok(short), _) => {
                self.items.push(0xf1);
                self.items.extend(short.to_le_bytes());
            }
            (_, _, Ok(medium)) => {
                self.items.push(0xf3);
                self.items.extend(medium.to_le_bytes());
            }
            _ => {
                self.items.push(0xf4);
                self.items.extend(number.to_le_bytes());
            }
        }
        self.end(from);
    }

    fn text(&mut self, text: &[u8]) {
        let from = self.items.len();
        match text.len() {
            len @ 0..64 => self.items.push(0x80 | len as u8),
            len @ 64..0x1000 => self.items.extend([0xe0 | (len >> 8) as u8, len as u8]),
            len => {
                self.items.push(0xf0);
                self.items.extend((len as u32).to_le_bytes());
            }
        }
        self.items.extend_from_slice(text);
        self.end(from);
    }

    /// Behind an item stands its length, seven bits a byte, to be read backwards.
    fn end(&mut self, from: usize) {
        let len = self.items.len() - from;
        let width = match len {
            0..0x80 => 1,
            0x80..0x4000 => 2,
            0x4000..0x20_0000 => 3,
            0x20_0000..0x1000_0000 => 4,
            _ => 5,
        };
        let bits = |at: usize| (len >> (7 * at) & 0x7f) as u8;
        self.items.push(bits(width - 1));
        (0..width - 1).rev().for_each(|at| self.items.push(bits(at) | 0x80));
        self.count += 1;
    }

    fn done(self) -> Vec<u8> {
        let bytes = (self.items.len() + 7) as u32;
        // More than two bytes can say is found by counting.
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        [&bytes.to_le_bytes()[..], &count.to_le_bytes(), &self.items, &[0xff]].concat()
    }
}

/// A stream of one of [`KINDS`].
pub fn read(from: &mut Bytes, kind: u8) -> Option<Stream> {
    let (has_counters, has_active) = (kind >= KINDS[1], kind >= KINDS[2]);
    let mut stream = Stream::default();
    let mut bytes = 0;
    for _ in 0..length(from)? {
        let (first, node) = (text(from)?, text(from)?);
        bytes += node.len();
        if bytes > DUMP_BYTES_MAX || first.len() != 16 {
            return None;
        }
        entries(&mut stream, id(&mut first.clone())?, node)?;
    }
    let len = length(from)? as u64;
    let last = read_id(from)?;
    let (deleted, added) = if has_counters {
        read_id(from)?;
        (read_id(from)?, length(from)? as u64)
    } else {
        (Id::MIN, len)
    };
    if len != stream.log.len() || last < stream.log.last() {
        return None;
    }
    stream.log.set(last, deleted, added);
    for _ in 0..length(from)? {
        let (name, last) = (text(from)?, read_id(from)?);
        let known = if has_counters { Some(length(from)? as u64).filter(|read| *read != UNKNOWN) } else { None };
        let read = if has_counters { known } else { stream.log.added_upto(last) };
        let group = group(from, Group::new(last, read), has_active)?;
        if stream.group(&name).is_some() {
            return None;
        }
        stream.set_group(name, group);
    }
    Some(stream)
}

/// What follows from a node, behind what there is.
fn entries(stream: &mut Stream, first: Id, node: Bytes) -> Option<()> {
    let mut items = listpack(node)?.into_iter();
    let number = |item: Bytes| std::str::from_utf8(&item).ok()?.parse::<i64>().ok();
    let count = |item: Bytes| number(item).and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= RESTORED_ITEMS_MAX);
    let (alive, gone, names) = (count(items.next()?)?, count(items.next()?)?, count(items.next()?)?);
    let names: Vec<Bytes> = items.by_ref().take(names).collect();
    let mut seen = 0;
    // What ends the first.
    number(items.next()?)?;
    for _ in 0..alive.checked_add(gone)? {
        let flags = u64::try_from(number(items.next()?)?).ok()?;
        let (ms, seq) = (number(items.next()?)?, number(items.next()?)?);
        let id = Id { ms: first.ms.wrapping_add_signed(ms), seq: first.seq.wrapping_add_signed(seq) };
        let mut fields = Vec::new();
        if flags & SAME_NAMES == 0 {
            let pairs = count(items.next()?)?;
            fields.extend(items.by_ref().take(pairs.checked_mul(2)?));
        } else {
            for name in &names {
                fields.extend([name.clone(), items.next()?]);
            }
        }
        // How many items it has, for who reads backwards.
        number(items.next()?)?;
        if flags & DELETED != 0 {
            continue;
        }
        if fields.is_empty() || !fields.len().is_multiple_of(2) || id <= stream.log.last() {
            return None;
        }
        stream.log.add(id, &fields);
        seen += 1;
        // A name that is said once may stand in many blocks here.
        if stream.log.bytes() > DUMP_BYTES_MAX {
            return None;
        }
    }
    (seen == alive && items.next().is_none()).then_some(())
}

fn group(from: &mut Bytes, mut group: Group, has_active: bool) -> Option<Group> {
    let mut pending = BTreeMap::new();
    for _ in 0..length(from)? {
        let (id, at, times) = (id(from)?, from.try_get_u64_le().ok()?, length(from)? as u64);
        if pending.insert(id, (at, times)).is_some() {
            return None;
        }
    }
    for _ in 0..length(from)? {
        let (name, seen) = (text(from)?, from.try_get_u64_le().ok()?);
        // Redis writes -1 for one that never got anything.
        let active = if has_active { Some(from.try_get_i64_le().ok()?) } else { seen.try_into().ok() };
        if group.consumer(&name).is_some() {
            return None;
        }
        group.add_consumer(name.clone(), Consumer::new(seen, active.and_then(|at| u64::try_from(at).ok())));
        for _ in 0..length(from)? {
            let id = id(from)?;
            let (at, times) = pending.remove(&id)?;
            group.give(id, &name, at, times);
        }
    }
    pending.is_empty().then_some(group)
}

fn id(from: &mut Bytes) -> Option<Id> {
    Some(Id { ms: from.try_get_u64().ok()?, seq: from.try_get_u64().ok()? })
}

fn read_id(from: &mut Bytes) -> Option<Id> {
    Some(Id { ms: length(from)? as u64, seq: length(from)? as u64 })
}
