//! How a namespace is written to a file and read back: what a class says of itself for that ([`Dump`], and the
//! functions of [`crate::Class`] beside it), and the bytes. They are documented in docs/guide/backup.md and are the
//! same for all classes.
//!
//! ```text
//! magic (8 bytes)   record head   (record part, (record item)*)*   record end
//! record: kind (1 byte)  length of the body (4)  CRC-32C of kind, length and body (4)  body
//! Numbers: little end first.
//! ```

mod walk;

use std::fmt;
use std::marker::PhantomData;

use base::checksum::Checksum;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::limits::{DUMP_HEAD_BYTES_MAX, DUMP_RECORD_BYTES_MAX};
pub use walk::{Walk, Walked};

/// The first bytes of a dump. A transfer as text breaks the last ones.
pub const MAGIC: &[u8; 8] = b"COPPDMP\n";
/// Of what comes behind the magic. A program reads its own and older ones.
pub const FORMAT: u32 = 1;
/// Bytes of a record before its body.
const RECORD_HEAD: usize = 9;

/// A namespace that is being read out: questions that a front door asks one batch after the other.
pub trait Dump: Send {
    type Op;
    type Reply;

    /// What is to be asked next, all at once. Nothing: all was told.
    fn asks(&mut self) -> Vec<Self::Op>;

    /// What came of it, in the same order; `wall_ms` is now. Asked again, a question may be answered anew.
    ///
    /// # Errors
    /// Why the dump cannot go on: it has to begin again.
    fn take(&mut self, replies: Vec<Self::Reply>, wall_ms: u64) -> Result<Vec<Record>, String>;
}

/// Of a class whose namespaces are not written to files ([`crate::Class::NOT_DUMPED`]).
#[derive(Clone, Copy, Debug)]
pub struct Nothing<Op, Reply>(PhantomData<fn() -> (Op, Reply)>);

impl<Op, Reply> Default for Nothing<Op, Reply> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Op, Reply> Dump for Nothing<Op, Reply> {
    type Op = Op;
    type Reply = Reply;

    fn asks(&mut self) -> Vec<Op> {
        Vec::new()
    }

    fn take(&mut self, _: Vec<Reply>, _: u64) -> Result<Vec<Record>, String> {
        Ok(Vec::new())
    }
}

/// What a dump consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    Head(Head),
    Part(Part),
    Item(Item),
    End(Counts),
    /// The dump could not be ended, and why: what came before is not whole.
    Broken(String),
}

/// The first record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Head {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    pub namespace: String,
    pub class: String,
    /// When the dump began, milliseconds since 1970.
    pub at_ms: u64,
    /// Whether the class keeps it on disk.
    pub on_disk: bool,
    /// Version of the program that wrote it.
    pub program: String,
}

/// What follows is of these hashes, as they were at this version. Classes without versions have one part, of version
/// 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    pub from: u64,
    pub to: u64,
    pub version: u64,
}

/// One key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    pub key: Bytes,
    pub kind: ItemKind,
    /// When it ends, milliseconds since 1970; none: it does not end.
    pub end_ms: Option<u64>,
    /// Of a lease: its fencing token. Else 0.
    pub token: u64,
    /// The text; fields and values in turn; fields, values and ends (Unix milliseconds as text, or nothing) in turn; items; members; members and scores (text) in turn; a ledger's bytes; parts of a stream
    /// (`linear/src/stream/wire.rs`), or of a queue (`linear/src/queue/wire.rs`); the holder.
    pub values: Vec<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ItemKind {
    Text,
    Hash,
    List,
    Set,
    Sorted,
    Ledger,
    Lease,
    Stream,
    /// A hash of which some fields end by themselves.
    HashEnding,
    Queue,
}

impl ItemKind {
    /// In the order of their bytes: what comes later goes to the end.
    const ALL: [ItemKind; 10] = [
        ItemKind::Text,
        ItemKind::Hash,
        ItemKind::List,
        ItemKind::Set,
        ItemKind::Lease,
        ItemKind::Sorted,
        ItemKind::Ledger,
        ItemKind::Stream,
        ItemKind::HashEnding,
        ItemKind::Queue,
    ];

    /// As Redis' TYPE says it, where that says all.
    pub fn name(self) -> &'static str {
        match self {
            ItemKind::Text => "string",
            ItemKind::Hash => "hash",
            ItemKind::List => "list",
            ItemKind::Set => "set",
            ItemKind::Sorted => "zset",
            ItemKind::Ledger => "ledger",
            ItemKind::Stream => "stream",
            ItemKind::HashEnding => "hash-ending",
            ItemKind::Queue => "queue",
            ItemKind::Lease => "lease",
        }
    }

    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }

    /// Whether it may have so many values.
    fn takes(self, values: usize) -> bool {
        match self {
            ItemKind::Text | ItemKind::Ledger | ItemKind::Lease => values == 1,
            ItemKind::Hash | ItemKind::Sorted => values > 0 && values.is_multiple_of(2),
            ItemKind::HashEnding => values > 0 && values.is_multiple_of(3),
            ItemKind::List | ItemKind::Set | ItemKind::Stream | ItemKind::Queue => values > 0,
        }
    }
}

/// How much came before the last record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    pub parts: u64,
    pub items: u64,
    /// Of all records and the magic.
    pub bytes: u64,
}

/// Writes a dump, and counts.
#[derive(Debug, Default)]
pub struct Writer {
    counts: Counts,
}

impl Writer {
    /// The bytes of the next record. The first is [`Record::Head`]; behind the last comes [`Writer::end`].
    pub fn write(&mut self, record: &Record, out: &mut BytesMut) {
        let before = out.len();
        if self.counts.bytes == 0 {
            out.put_slice(MAGIC);
        }
        let at = out.len();
        out.put_bytes(0, RECORD_HEAD);
        let kind = match record {
            Record::Head(head) => {
                out.put_slice(&serde_json::to_vec(head).expect("a head is plain data"));
                b'H'
            }
            Record::Part(part) => {
                out.put_u64_le(part.from);
                out.put_u64_le(part.to);
                out.put_u64_le(part.version);
                self.counts.parts += 1;
                b'P'
            }
            Record::Item(item) => {
                item.write(out);
                self.counts.items += 1;
                b'I'
            }
            Record::End(counts) => {
                out.put_u64_le(counts.parts);
                out.put_u64_le(counts.items);
                out.put_u64_le(counts.bytes);
                b'E'
            }
            Record::Broken(why) => {
                out.put_slice(&why.as_bytes()[..why.floor_char_boundary(DUMP_HEAD_BYTES_MAX)]);
                b'B'
            }
        };
        let len = (out.len() - at - RECORD_HEAD) as u32;
        out[at] = kind;
        out[at + 1..at + 5].copy_from_slice(&len.to_le_bytes());
        let sum = Checksum::of_parts(&[&out[at..at + 5], &out[at + RECORD_HEAD..]]);
        out[at + 5..at + RECORD_HEAD].copy_from_slice(&sum.0.to_le_bytes());
        self.counts.bytes += (out.len() - before) as u64;
    }

    /// The last record.
    pub fn end(&mut self, out: &mut BytesMut) -> Counts {
        let counts = self.counts;
        self.write(&Record::End(counts), out);
        counts
    }
}

impl Item {
    fn write(&self, out: &mut BytesMut) {
        let kind = ItemKind::ALL.iter().position(|kind| *kind == self.kind).expect("all are listed");
        out.put_u8(kind as u8 + 1);
        out.put_u64_le(self.end_ms.unwrap_or(0));
        out.put_u64_le(self.token);
        for bytes in [&self.key].into_iter().chain(&self.values) {
            out.put_u32_le(bytes.len() as u32);
            out.put_slice(bytes);
        }
    }

    fn read(mut body: Bytes) -> Option<Self> {
        if body.len() < 1 + 8 + 8 {
            return None;
        }
        let kind = *ItemKind::ALL.get(usize::from(body.get_u8().checked_sub(1)?))?;
        let (end, token) = (body.get_u64_le(), body.get_u64_le());
        let mut all = Vec::new();
        while !body.is_empty() {
            let len = body.try_get_u32_le().ok()? as usize;
            if len > body.len() {
                return None;
            }
            all.push(body.split_to(len));
        }
        let mut all = all.into_iter();
        let (key, values) = (all.next().filter(|key| !key.is_empty())?, all.collect::<Vec<_>>());
        kind.takes(values.len()).then_some(Self { key, kind, end_ms: (end != 0).then_some(end), token, values })
    }

    /// Bytes that it holds, about.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.values.iter().map(|value| value.len() + 4).sum::<usize>()
    }
}

/// What is wrong with a dump. `at` is where the record begins that it is about, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Flaw {
    NotOurs,
    Newer(u32),
    Damaged { at: u64 },
    Misplaced { at: u64 },
    Cut { at: u64 },
    Broken(String),
    Counts,
    After { at: u64 },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::NotOurs => f.write_str("this is no dump of a namespace: it does not begin as one"),
            Flaw::Newer(format) => write!(
                f,
                "this dump has format {format}, and this program reads formats up to {FORMAT}: a newer one wrote it"
            ),
            Flaw::Damaged { at } => {
                write!(
                    f,
                    "this dump is damaged: the record at byte {at} does not have the checksum that it was written with"
                )
            }
            Flaw::Misplaced { at } => write!(f, "this dump is damaged: the record at byte {at} cannot stand there"),
            Flaw::Cut { at } => write!(f, "this dump is cut short: it ends at byte {at}, without its last record"),
            Flaw::Broken(why) => write!(f, "this dump could not be ended when it was made: {why}"),
            Flaw::Counts => f.write_str("this dump is damaged: records that its last one counts are missing"),
            Flaw::After { at } => write!(f, "this dump is damaged: there is more behind its last record, at byte {at}"),
        }
    }
}

/// Reads a dump as it comes, in pieces of any size, and believes nothing before its checksum was looked at.
#[derive(Debug, Default)]
pub struct Reader {
    buffer: BytesMut,
    /// What was read and checked; `bytes` is where the buffer begins.
    counts: Counts,
    has_head: bool,
    is_over: bool,
}

impl Reader {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.put_slice(bytes);
    }

    /// The next record; none: more has to be pushed first.
    ///
    /// # Errors
    /// What is wrong with it. Nothing behind it can be read.
    pub fn next_record(&mut self) -> Result<Option<Record>, Flaw> {
        let at = self.counts.bytes;
        if at == 0 {
            let has = self.buffer.len().min(MAGIC.len());
            if self.buffer[..has] != MAGIC[..has] {
                return Err(Flaw::NotOurs);
            }
            if has < MAGIC.len() {
                return Ok(None);
            }
            self.buffer.advance(MAGIC.len());
            self.counts.bytes = MAGIC.len() as u64;
            return self.next_record();
        }
        if self.is_over {
            return if self.buffer.is_empty() { Ok(None) } else { Err(Flaw::After { at }) };
        }
        if self.buffer.len() < RECORD_HEAD {
            return Ok(None);
        }
        let number = |from: usize| {
            u32::from_le_bytes([self.buffer[from], self.buffer[from + 1], self.buffer[from + 2], self.buffer[from + 3]])
        };
        let (kind, len, sum) = (self.buffer[0], number(1) as usize, Checksum(number(5)));
        let most = if kind == b'I' { DUMP_RECORD_BYTES_MAX } else { DUMP_HEAD_BYTES_MAX };
        if len > most {
            return Err(Flaw::Damaged { at });
        }
        if self.buffer.len() < RECORD_HEAD + len {
            return Ok(None);
        }
        let record = self.buffer.split_to(RECORD_HEAD + len).freeze();
        if Checksum::of_parts(&[&record[..5], &record[RECORD_HEAD..]]) != sum {
            return Err(Flaw::Damaged { at });
        }
        let record = self.understood(kind, record.slice(RECORD_HEAD..), at)?;
        self.counts.bytes += (RECORD_HEAD + len) as u64;
        Ok(Some(record))
    }

    fn understood(&mut self, kind: u8, mut body: Bytes, at: u64) -> Result<Record, Flaw> {
        let misplaced = Flaw::Misplaced { at };
        let numbers =
            |body: &mut Bytes| (body.len() == 24).then(|| (body.get_u64_le(), body.get_u64_le(), body.get_u64_le()));
        match kind {
            b'H' if !self.has_head => {
                self.has_head = true;
                let head: serde_json::Value = serde_json::from_slice(&body).map_err(|_| misplaced.clone())?;
                // Of a newer format nothing else can be relied on.
                match head["format"].as_u64() {
                    Some(format) if format > u64::from(FORMAT) => {
                        Err(Flaw::Newer(u32::try_from(format).unwrap_or(u32::MAX)))
                    }
                    Some(_) => Ok(Record::Head(serde_json::from_value(head).map_err(|_| misplaced)?)),
                    None => Err(misplaced),
                }
            }
            _ if !self.has_head => Err(misplaced),
            b'P' => {
                let (from, to, version) = numbers(&mut body).ok_or(misplaced)?;
                self.counts.parts += 1;
                Ok(Record::Part(Part { from, to, version }))
            }
            b'I' if self.counts.parts > 0 => {
                self.counts.items += 1;
                Ok(Record::Item(Item::read(body).ok_or(misplaced)?))
            }
            b'E' => {
                let (parts, items, bytes) = numbers(&mut body).ok_or(misplaced)?;
                let counts = Counts { parts, items, bytes };
                self.is_over = true;
                if counts == self.counts { Ok(Record::End(counts)) } else { Err(Flaw::Counts) }
            }
            b'B' => Err(Flaw::Broken(String::from_utf8_lossy(&body).into_owned())),
            _ => Err(misplaced),
        }
    }

    /// What was read and checked by now.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Nothing more comes.
    ///
    /// # Errors
    /// The last record was not there.
    pub fn end(self) -> Result<Counts, Flaw> {
        match self.counts.bytes + self.buffer.len() as u64 {
            _ if self.is_over && self.buffer.is_empty() => Ok(self.counts),
            at if self.counts.bytes > 0 => Err(Flaw::Cut { at }),
            0 => Err(Flaw::Cut { at: 0 }),
            _ => Err(Flaw::NotOurs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(kind: ItemKind, values: &[&'static str]) -> Item {
        let values = values.iter().map(|value| Bytes::from_static(value.as_bytes())).collect();
        Item { key: "k".into(), kind, end_ms: Some(17), token: 3, values }
    }

    fn records() -> Vec<Record> {
        let head = Head {
            format: FORMAT,
            namespace: "bank".into(),
            class: "linear".into(),
            at_ms: 1,
            on_disk: true,
            program: "0.1.0".into(),
        };
        vec![
            Record::Head(head),
            Record::Part(Part { from: 0, to: u64::MAX, version: 9 }),
            Record::Item(item(ItemKind::Text, &[""])),
            Record::Item(item(ItemKind::Hash, &["f", "v", "g", "w"])),
            Record::Item(item(ItemKind::List, &["a", "a"])),
            Record::Item(item(ItemKind::Set, &["a"])),
            Record::Item(item(ItemKind::Lease, &["me"])),
            Record::Item(item(ItemKind::Sorted, &["a", "0.5"])),
            Record::Item(item(ItemKind::Ledger, &["bytes"])),
        ]
    }

    fn written(records: &[Record]) -> Vec<u8> {
        let (mut writer, mut out) = (Writer::default(), BytesMut::new());
        records.iter().for_each(|record| writer.write(record, &mut out));
        writer.end(&mut out);
        out.to_vec()
    }

    fn read(bytes: &[u8], at_once: usize) -> Result<Vec<Record>, Flaw> {
        let (mut reader, mut all) = (Reader::default(), Vec::new());
        for some in bytes.chunks(at_once) {
            reader.push(some);
            while let Some(record) = reader.next_record()? {
                all.push(record);
            }
        }
        reader.end().map(|_| all)
    }

    #[test]
    fn what_was_written_is_read_in_pieces_of_any_size() {
        let bytes = written(&records());
        for at_once in [1, 7, bytes.len()] {
            let mut all = read(&bytes, at_once).unwrap();
            assert!(matches!(all.pop(), Some(Record::End(Counts { parts: 1, items: 7, .. }))));
            assert_eq!(all, records());
        }
    }

    #[test]
    fn the_bytes_are_what_the_guide_says() {
        let bytes = written(&records()[..2]);
        assert!(bytes.starts_with(b"COPPDMP\nH"));
        let head = u32::from_le_bytes(bytes[9..13].try_into().unwrap()) as usize;
        let part = &bytes[8 + RECORD_HEAD + head..][..RECORD_HEAD + 24];
        assert_eq!((part[0], &part[1..5]), (b'P', &[24, 0, 0, 0][..]));
        assert_eq!(&part[RECORD_HEAD..], [[0; 8], [255; 8], [9, 0, 0, 0, 0, 0, 0, 0]].concat());
        let mut out = BytesMut::new();
        item(ItemKind::Hash, &["f", "v"]).write(&mut out);
        let kinds = records().into_iter().filter_map(|record| match record {
            Record::Item(item) => Some(item),
            _ => None,
        });
        let kinds = kinds.map(|item| {
            let mut out = BytesMut::new();
            item.write(&mut out);
            (item.kind.name(), out[0])
        });
        let guide = [("string", 1), ("hash", 2), ("list", 3), ("set", 4), ("lease", 5), ("zset", 6), ("ledger", 7)];
        assert!(kinds.eq(guide), "these numbers are in files");
        assert_eq!(&out[..], b"\x02\x11\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0k\x01\0\0\0f\x01\0\0\0v");
    }

    #[test]
    fn wherever_it_is_cut_or_flipped_that_is_noticed() {
        let bytes = written(&records());
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end], 64).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x20;
            assert!(read(&flipped, 64).is_err(), "flipped at {at}");
        }
        assert_eq!(read(&bytes[..bytes.len() - 40], 64), Err(Flaw::Cut { at: bytes.len() as u64 - 40 }));
        assert_eq!(read(&[&bytes[..], b"x"].concat(), 64), Err(Flaw::After { at: bytes.len() as u64 }));
        assert_eq!(read(b"hello, this is some text", 64), Err(Flaw::NotOurs));
    }

    #[test]
    fn records_that_are_missing_or_of_a_newer_program_are_noticed_though_each_is_sound() {
        let mut all = records();
        let (mut writer, mut out) = (Writer::default(), BytesMut::new());
        all.iter().for_each(|record| writer.write(record, &mut out));
        let mut last = BytesMut::new();
        let counts = writer.end(&mut last);
        // As if the last item had been left out.
        all.pop();
        let whole = written(&all);
        let end = RECORD_HEAD + 24;
        assert_eq!(read(&[&whole[..whole.len() - end], &last[..]].concat(), 64), Err(Flaw::Counts));
        assert_eq!(counts.items, 7);
        let Record::Head(head) = &mut all[0] else { panic!() };
        head.format = FORMAT + 1;
        assert_eq!(read(&written(&all), 64), Err(Flaw::Newer(FORMAT + 1)));
        assert_eq!(read(&written(&records()[1..]), 64), Err(Flaw::Misplaced { at: 8 }));
        let broken = [records()[..2].to_vec(), vec![Record::Broken("no leader".into())]].concat();
        assert_eq!(read(&written(&broken), 64), Err(Flaw::Broken("no leader".into())));
    }

    #[test]
    fn what_no_class_writes_is_refused_and_nothing_panics() {
        let mut rng = base::Rng::new(7);
        for _ in 0..20_000 {
            let body: Vec<u8> = (0..rng.below(40)).map(|_| if rng.chance(0.7) { 0 } else { rng.u64() as u8 }).collect();
            if let Some(item) = Item::read(body.into()) {
                assert!(item.kind.takes(item.values.len()) && !item.key.is_empty());
            }
        }
        let odd = item(ItemKind::Hash, &["f"]);
        assert!(read(&written(&[records()[0].clone(), records()[1].clone(), Record::Item(odd)]), 64).is_err());
    }
}
