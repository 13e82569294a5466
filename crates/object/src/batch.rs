//! Many entries in one record of a checkpoint: what they have in common stands there once. From level 14 on.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::NodeId;
use bytes::{BufMut, Bytes, BytesMut};
use class::Version;
use prost::Message;

use crate::held::{At, Held};
use crate::lies::{Part, Parts, Place};
use crate::limits::{BATCH_ROWS, HOMES_MAX, OBJECT_BYTES_MAX, OWNER_BYTES_MAX};
use crate::{Id, Key, Stamp};

/// The level from which checkpoints have such records: an older program cannot read them.
pub const LEVEL: u32 = 14;

/// First byte of the record ([`crate::wire::Logged::record`] has the others).
const FORM: u8 = 4;

/// An object that lies in a pack, in one piece; or a deletion about which nothing is left to do.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Row {
    pub key: Key,
    pub held: Held,
    pub lies: RowLies,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowLies {
    /// In this pack, from there on.
    Packed { pack: u64, from: u64 },
    /// Nowhere: it is deleted, and since then (seconds) all nodes know.
    Gone { since: u32 },
}

impl Row {
    /// None: it is no such entry.
    pub fn of(key: &Key, held: &Held, place: &Place) -> Option<Self> {
        let Parts::One(part) = place.parts else { return None };
        let is_plain = !held.stamp.gone && (part.len, part.sum) == (held.stamp.size, held.stamp.sum);
        let lies = RowLies::Packed { pack: place.pack, from: place.from };
        is_plain.then(|| Self { key: key.clone(), held: held.clone(), lies })
    }

    pub fn place(&self) -> Option<Place> {
        let RowLies::Packed { pack, from } = self.lies else { return None };
        let part = Part { len: self.held.stamp.size, sum: self.held.stamp.sum };
        Some(Place { pack, from, parts: Parts::One(part) })
    }
}

/// Columns: each has as many values as there are rows. Those about bytes are of objects alone, `sinces` of deletions alone.
#[derive(Clone, PartialEq, Message)]
struct BatchMessage {
    #[prost(message, repeated, tag = "1")]
    ats: Vec<AtMessage>,
    #[prost(message, repeated, tag = "2")]
    names: Vec<NameMessage>,
    /// Nodes of versions.
    #[prost(fixed64, repeated, tag = "3")]
    nodes: Vec<u64>,
    /// 16 bytes of each.
    #[prost(bytes = "vec", tag = "4")]
    ids: Vec<u8>,
    /// Which of the names, of the places, of the nodes.
    #[prost(uint32, repeated, tag = "5")]
    name: Vec<u32>,
    #[prost(uint32, repeated, tag = "6")]
    at: Vec<u32>,
    #[prost(uint32, repeated, tag = "7")]
    node: Vec<u32>,
    #[prost(uint64, repeated, tag = "8")]
    ms: Vec<u64>,
    #[prost(uint32, repeated, tag = "9")]
    counters: Vec<u32>,
    #[prost(bool, repeated, tag = "10")]
    once: Vec<bool>,
    #[prost(uint32, repeated, tag = "11")]
    sinces: Vec<u32>,
    #[prost(fixed32, repeated, tag = "12")]
    sums: Vec<u32>,
    #[prost(uint32, repeated, tag = "13")]
    sizes: Vec<u32>,
    #[prost(uint64, repeated, tag = "14")]
    packs: Vec<u64>,
    #[prost(uint64, repeated, tag = "15")]
    froms: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct AtMessage {
    #[prost(fixed64, repeated, tag = "1")]
    homes: Vec<u64>,
    #[prost(fixed64, repeated, tag = "2")]
    has: Vec<u64>,
    #[prost(fixed64, repeated, tag = "3")]
    turned: Vec<u64>,
    #[prost(uint32, repeated, tag = "4")]
    turns: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct NameMessage {
    #[prost(uint32, tag = "1")]
    ns: u32,
    #[prost(bytes = "bytes", tag = "2")]
    owner: Bytes,
}

/// Rows of one kind that become one record.
#[derive(Default)]
pub(crate) struct Batch {
    rows: Vec<Row>,
}

impl Batch {
    /// A record, if it is full, or the row is of the other kind than those before.
    pub fn push(&mut self, row: Row) -> Option<Bytes> {
        let is_gone = |row: &Row| matches!(row.lies, RowLies::Gone { .. });
        let ends = self.rows.last().is_some_and(|last| is_gone(last) != is_gone(&row) || self.rows.len() >= BATCH_ROWS);
        let record = if ends { self.end() } else { None };
        self.rows.push(row);
        record
    }

    /// What is left.
    pub fn end(&mut self) -> Option<Bytes> {
        let rows = std::mem::take(&mut self.rows);
        (!rows.is_empty()).then(|| record(&rows))
    }
}

/// ```text
/// u8  form: 4
///     columns
/// ```
fn record(rows: &[Row]) -> Bytes {
    let mut message = BatchMessage::default();
    let (mut ats, mut names, mut nodes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for Row { key, held, lies } in rows {
        let Stamp { version: Version { ms, counter, node }, once, sum, size, .. } = held.stamp;
        let at = ats.len() as u32;
        message.at.push(*ats.entry(held.at()).or_insert_with(|| {
            message.ats.push(AtMessage::from(&**held));
            at
        }));
        let name = names.len() as u32;
        message.name.push(*names.entry((key.ns, &key.owner)).or_insert_with(|| {
            message.names.push(NameMessage { ns: key.ns, owner: key.owner.clone() });
            name
        }));
        let of = nodes.len() as u32;
        message.node.push(*nodes.entry(node).or_insert_with(|| {
            message.nodes.push(node.0);
            of
        }));
        message.ids.extend(key.id.0);
        message.ms.push(ms);
        message.counters.push(counter);
        message.once.push(once);
        match *lies {
            RowLies::Gone { since } => message.sinces.push(since),
            RowLies::Packed { pack, from } => {
                message.sums.push(sum);
                message.sizes.push(size);
                message.packs.push(pack);
                message.froms.push(from);
            }
        }
    }
    let mut bytes = BytesMut::with_capacity(1 + message.encoded_len());
    bytes.put_u8(FORM);
    message.encode(&mut bytes).expect("a BytesMut grows");
    bytes.freeze()
}

/// The rows of a record. None: it is no such record, or one that this program does not understand.
pub(crate) fn read(record: &Bytes) -> Option<Vec<Row>> {
    if record.first() != Some(&FORM) {
        return None;
    }
    let message = BatchMessage::decode(record.slice(1..)).ok()?;
    let ats: Vec<Arc<At>> = message.ats.iter().map(|at| at.at().map(Arc::new)).collect::<Option<_>>()?;
    let owner = |name: &NameMessage| {
        // What lies in memory for long must not keep a whole record.
        let fits = (1..=OWNER_BYTES_MAX).contains(&name.owner.len());
        fits.then(|| (name.ns, Bytes::copy_from_slice(&name.owner)))
    };
    let names: Vec<(u32, Bytes)> = message.names.iter().map(owner).collect::<Option<_>>()?;
    let (ids, rest) = message.ids.as_chunks::<16>();
    let count = ids.len();
    let is_gone = message.sums.is_empty();
    let (gone, packed) = if is_gone { (count, 0) } else { (0, count) };
    let fits = rest.is_empty()
        && [message.name.len(), message.at.len(), message.node.len(), message.ms.len()].iter().all(|n| *n == count)
        && [message.counters.len(), message.once.len()].iter().all(|n| *n == count)
        && message.sinces.len() == gone
        && [message.sums.len(), message.sizes.len(), message.packs.len(), message.froms.len()]
            .iter()
            .all(|n| *n == packed);
    if !fits {
        return None;
    }
    let row = |n: usize| {
        let (ns, owner) = names.get(message.name[n] as usize)?.clone();
        let node = NodeId(*message.nodes.get(message.node[n] as usize)?);
        let version = Version { ms: message.ms[n], counter: message.counters[n], node };
        let (sum, size, lies) = match is_gone {
            true => (0, 0, RowLies::Gone { since: message.sinces[n] }),
            false => {
                let (pack, from) = (message.packs[n], message.froms[n]);
                (message.sums[n], message.sizes[n], RowLies::Packed { pack, from })
            }
        };
        let fits = match lies {
            RowLies::Gone { .. } => true,
            RowLies::Packed { pack, from } => {
                (1..=OBJECT_BYTES_MAX as u32).contains(&size) && pack > 0 && from <= u64::MAX / 2
            }
        };
        let stamp = Stamp { version, once: message.once[n], gone: is_gone, sum, size };
        let held = Held::shared(stamp, ats.get(message.at[n] as usize)?.clone());
        fits.then_some(Row { key: Key { ns, owner, id: Id(ids[n]) }, held, lies })
    };
    (0..count).map(row).collect()
}

impl From<&At> for AtMessage {
    fn from(At { homes, has, turns }: &At) -> Self {
        let numbers = |nodes: &std::collections::BTreeSet<NodeId>| nodes.iter().map(|node| node.0).collect();
        let (turned, turns) = turns.iter().map(|(node, turn)| (node.0, *turn)).unzip();
        Self { homes: numbers(homes), has: numbers(has), turned, turns }
    }
}

impl AtMessage {
    fn at(&self) -> Option<At> {
        let Self { homes, has, turned, turns } = self;
        let fits =
            [homes.len(), has.len(), turned.len()].iter().all(|n| *n <= HOMES_MAX) && turned.len() == turns.len();
        let nodes = |numbers: &[u64]| numbers.iter().copied().map(NodeId).collect();
        let turns = turned.iter().copied().map(NodeId).zip(turns.iter().copied()).collect();
        fits.then(|| At { homes: nodes(homes), has: nodes(has), turns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u8, owner: &'static [u8], gone: bool) -> Row {
        let version = Version { ms: 1000 + u64::from(n), counter: 2, node: NodeId(3) };
        let (sum, size) = if gone { (0, 0) } else { (0x0102_0304, 5) };
        let stamp = Stamp { version, once: true, gone, sum, size };
        let nodes = [NodeId(1), NodeId(3)];
        let turns = if n == 9 { [(NodeId(1), 2)].into() } else { BTreeMap::new() };
        let at = At { homes: nodes.into(), has: nodes.into(), turns };
        let lies = if gone { RowLies::Gone { since: 7 } } else { RowLies::Packed { pack: 9, from: 300 } };
        let key = Key { ns: 7, owner: Bytes::from_static(owner), id: Id([n; 16]) };
        Row { key, held: Held::new(stamp, at), lies }
    }

    fn hex(record: &Bytes) -> String {
        record.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Written by this program, and to be read by every later one.
    #[test]
    fn deletions_and_objects_have_these_bytes_in_a_batch() {
        for (gone, bytes) in [(true, GONE), (false, PACKED)] {
            let rows = [row(1, b"ann", gone), row(2, b"ann", gone), row(9, b"bob", gone)];
            let record = record(&rows);
            assert_eq!(hex(&record), bytes);
            assert_eq!(read(&record).unwrap(), rows);
            for end in 0..record.len() {
                assert!(read(&record.slice(..end)).is_none_or(|read| read.len() < rows.len()), "cut at {end}");
            }
            let mut other = BytesMut::from(&record[..]);
            other[0] = 5;
            assert_eq!(read(&other.freeze()), None);
        }
    }

    const GONE: &str = "040a240a10010000000000000003000000000000001210010000000000000003000000000000000a310a10010000000000000003\
     000000000000001210010000000000000003000000000000001a080100000000000000220102120708071203616e6e1207080712\
     03626f621a0803000000000000002230010101010101010101010101010101010202020202020202020202020202020209090909\
     0909090909090909090909092a0300000132030000013a030000004206e907ea07f1074a0302020252030101015a03070707";
    const PACKED: &str = "040a240a10010000000000000003000000000000001210010000000000000003000000000000000a310a10010000000000000003\
     000000000000001210010000000000000003000000000000001a080100000000000000220102120708071203616e6e1207080712\
     03626f621a0803000000000000002230010101010101010101010101010101010202020202020202020202020202020209090909\
     0909090909090909090909092a0300000132030000013a030000004206e907ea07f1074a030202025203010101620c0403020104\
     030201040302016a0305050572030909097a06ac02ac02ac02";

    #[test]
    fn what_cannot_be_is_not_read() {
        let rows = [row(1, b"ann", true), row(2, b"ann", true)];
        let sound = BatchMessage::decode(record(&rows).slice(1..)).unwrap();
        let spoils: [fn(&mut BatchMessage); 8] = [
            |message| message.at[1] = 1,
            |message| message.name[0] = 9,
            |message| message.node[0] = 1,
            |message| _ = message.ids.pop(),
            |message| _ = message.sinces.pop(),
            |message| message.sizes.push(3),
            |message| message.names[0].owner = Bytes::new(),
            |message| message.ats[0].homes = (0..100).collect(),
        ];
        for spoil in spoils {
            let mut message = sound.clone();
            spoil(&mut message);
            let record: Bytes = [&[FORM][..], &message.encode_to_vec()].concat().into();
            assert_eq!(read(&record), None, "{message:?}");
        }
    }

    proptest::proptest! {
        /// Nor of the other forms: what a disk gives is any bytes.
        #[test]
        fn no_bytes_of_a_disk_make_it_panic(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
            form in 0_u8..6,
            at in 0_usize..400,
            gone: bool,
        ) {
            let mut any = vec![form];
            any.extend_from_slice(&bytes);
            let mut sound = record(&[row(1, b"ann", gone), row(9, b"bob", gone)]).to_vec();
            if let (Some(spoiled), Some(byte)) = (sound.get_mut(at), bytes.first()) {
                *spoiled = *byte;
            }
            for record in [Bytes::from(any), sound.into()] {
                if let Some(rows) = read(&record) {
                    proptest::prop_assert!(rows.len() * 16 <= record.len());
                    proptest::prop_assert!(rows.iter().all(|row| row.place().is_some() != row.held.stamp.gone));
                }
                let _ = (crate::wire::Logged::read(record.clone()), crate::wire::LoggedPiece::read(&record));
            }
        }
    }

    #[test]
    fn a_batch_of_deletions_takes_some_tens_of_bytes_for_each() {
        let mut batch = Batch::default();
        let (mut records, mut count) = (Vec::new(), 0);
        for n in 0..3000_u64 {
            let mut row = row((n % 8) as u8, b"ann", n >= 2000);
            row.key.id.0[..8].copy_from_slice(&n.to_be_bytes());
            row.held.stamp.version.ms = 1_700_000_000_000 + n;
            if let RowLies::Gone { since } = &mut row.lies {
                *since = 1_700_000_000;
            }
            records.extend(batch.push(row));
        }
        records.extend(batch.end());
        for record in &records {
            count += read(record).unwrap().len();
        }
        let bytes: usize = records.iter().map(Bytes::len).sum();
        assert_eq!((count, records.len()), (3000, 2000_usize.div_ceil(BATCH_ROWS) + 1000_usize.div_ceil(BATCH_ROWS)));
        assert!(bytes < 50 * 3000, "{bytes}");
    }
}
