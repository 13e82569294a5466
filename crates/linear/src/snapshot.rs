//! A space as the parts of a snapshot: the clock and the kept answers first, then keys in order. The parts share the
//! space's memory; each one's bytes are made when it is asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Boot, NodeId, Parts};
use bytes::Bytes;
use prost::Message as _;
use uuid::Uuid;

use super::database::{Beside, Image};
use super::hash::Hash;
use super::ledger::Ledger;
use super::limits::PART_BYTES;
use super::map::Leaf;
use super::once::{Kept, Onces};
use super::queue;
use super::sorted::{Scored, Sorted};
use super::space::Space;
use super::stream;
use super::texts::{Library, Texts};
use super::value::{Entry, Value};
use super::wire::{WirePiece, WireRan};

#[derive(Clone, PartialEq, prost::Message)]
struct WireAnswerKept {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(message, optional, tag = "2")]
    ran: Option<WireRan>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireClient {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(uint64, tag = "2")]
    boot: u64,
    #[prost(uint64, tag = "3")]
    floor: u64,
    #[prost(message, repeated, tag = "4")]
    answers: Vec<WireAnswerKept>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireHead {
    #[prost(uint64, tag = "1")]
    clock: u64,
    #[prost(uint64, tag = "2")]
    revision: u64,
    #[prost(uint32, tag = "3")]
    splits: u32,
    #[prost(uint64, optional, tag = "4")]
    above: Option<u64>,
    /// Seconds of which ids are forgotten: from, and up to without, in turn.
    #[prost(uint64, repeated, tag = "5")]
    once_closed: Vec<u64>,
    /// How often all scripts were forgotten.
    #[prost(uint64, tag = "6")]
    flushes: u64,
    /// Of a database: its digest. Its image follows in parts.
    #[prost(uint64, optional, tag = "7")]
    database: Option<u64>,
}

/// What came of a write with a caller's id.
#[derive(Clone, PartialEq, prost::Message)]
struct WireOnceKept {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    #[prost(fixed64, tag = "2")]
    of: u64,
    #[prost(message, optional, tag = "3")]
    ran: Option<WireRan>,
    /// When something came into its table, by the group's clock.
    #[prost(uint64, tag = "4")]
    touched: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireEntry {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(uint64, tag = "2")]
    version: u64,
    #[prost(uint64, tag = "3")]
    end: u64,
    #[prost(uint32, tag = "4")]
    kind: u32,
    #[prost(bytes = "bytes", tag = "5")]
    text: Bytes,
    /// Of a hash: fields and values in turn; of a stream: `stream/wire.rs`; of a queue: `queue/wire.rs`.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    items: Vec<Bytes>,
    #[prost(uint64, tag = "7")]
    token: u64,
    /// Of a sorted set: one for each item.
    #[prost(double, repeated, tag = "8")]
    scores: Vec<f64>,
    /// Of a hash whose fields end: one for each field, 0 where it does not.
    #[prost(uint64, repeated, tag = "9")]
    ends: Vec<u64>,
}

/// Of a script: its digest and text; of a library: its name, text and functions.
#[derive(Clone, PartialEq, prost::Message)]
struct WireText {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    text: Bytes,
    #[prost(bool, tag = "3")]
    is_library: bool,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    functions: Vec<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WirePart {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<WireEntry>,
    /// A node may stand in several parts, each with some of its answers.
    #[prost(message, repeated, tag = "2")]
    clients: Vec<WireClient>,
    #[prost(message, repeated, tag = "3")]
    onces: Vec<WireOnceKept>,
    /// Scripts in the order in which they came.
    #[prost(message, repeated, tag = "4")]
    texts: Vec<WireText>,
    /// The next piece of a database's image.
    #[prost(bytes = "bytes", tag = "5")]
    database: Bytes,
    /// Of an entry of which more is to come.
    #[prost(message, optional, tag = "6")]
    piece: Option<WirePiece>,
}

const TEXT: u32 = 1;
const HASH: u32 = 2;
const LIST: u32 = 3;
const SET: u32 = 4;
const LEASE: u32 = 5;
const SORTED: u32 = 6;
const LEDGER: u32 = 7;
const STREAM: u32 = 8;
/// A hash of which some field ends: of its own, so that a program that knows of no such ends does not take it for one.
const HASH_ENDING: u32 = 9;
const QUEUE: u32 = 10;

pub fn parts(space: &Space) -> Parts {
    let (clock, revision, clients) = space.head();
    let once_closed = space.onces().closed().iter().flat_map(|(from, upto)| [*from, *upto]).collect();
    let image = space.beside.image();
    let head = WireHead {
        clock,
        revision,
        splits: space.splits(),
        above: space.above(),
        once_closed,
        flushes: space.texts().flushes(),
        database: image.as_ref().map(|image| image.digest),
    };
    let mut first = vec![Bytes::from(head.encode_to_vec())];
    for (node, client) in clients {
        let mut wire = WireClient { node: node.0, boot: client.boot.0, floor: client.floor, answers: Vec::new() };
        let mut bytes = 0;
        for (seq, ran) in &client.answers {
            let more = ran.bytes();
            if bytes + more > PART_BYTES && bytes > 0 {
                let full = WireClient { answers: std::mem::take(&mut wire.answers), ..wire.clone() };
                first.push(WirePart { clients: vec![full], ..WirePart::default() }.encode_to_vec().into());
                bytes = 0;
            }
            bytes += more;
            wire.answers.push(WireAnswerKept { seq: *seq, ran: Some(WireRan::new(ran)) });
        }
        first.push(WirePart { clients: vec![wire], ..WirePart::default() }.encode_to_vec().into());
    }
    let body = Body { leaves: space.map().leaves().into_iter(), leaf: None };
    let pieces = image.into_iter().flat_map(Image::pieces);
    let pieces = pieces.map(|database| WirePart { database, ..WirePart::default() }.encode_to_vec().into());
    let begun = space.pieces.all().map(|piece| WirePiece::new(&piece)).collect::<Vec<_>>().into_iter();
    let begun = begun.map(|piece| WirePart { piece: Some(piece), ..WirePart::default() }.encode_to_vec().into());
    let first = first.into_iter().chain(once_parts(space.onces())).chain(text_parts(space.texts()));
    Parts(Box::new(first.chain(body).chain(pieces).chain(begun)))
}

fn text_parts(texts: &Texts) -> Vec<Bytes> {
    let script = |(sha, text): (&Bytes, &Bytes)| WireText {
        name: sha.clone(),
        text: text.clone(),
        is_library: false,
        functions: Vec::new(),
    };
    let library = |(name, library): (&Bytes, &Library)| WireText {
        name: name.clone(),
        text: library.text.clone(),
        is_library: true,
        functions: library.functions.clone(),
    };
    let mut parts = Vec::new();
    let (mut part, mut bytes) = (WirePart::default(), 0);
    for text in texts.scripts().map(script).chain(texts.libraries().iter().map(library)) {
        if bytes > 0 && bytes + text.text.len() > PART_BYTES {
            parts.push(std::mem::take(&mut part).encode_to_vec().into());
            bytes = 0;
        }
        bytes += text.text.len() + 64;
        part.texts.push(text);
    }
    if bytes > 0 {
        parts.push(part.encode_to_vec().into());
    }
    parts
}

fn once_parts(onces: &Onces) -> impl Iterator<Item = Bytes> + Send + use<> {
    let mut all = onces.all().peekable();
    std::iter::from_fn(move || {
        all.peek()?;
        let (mut part, mut bytes) = (WirePart::default(), 0);
        while bytes < PART_BYTES
            && let Some((id, kept, touched)) = all.next()
        {
            bytes += kept.bytes();
            let (id, ran) = (Bytes::copy_from_slice(id.as_bytes()), kept.ran.as_ref().map(WireRan::new));
            part.onces.push(WireOnceKept { id, of: kept.of, ran, touched });
        }
        Some(part.encode_to_vec().into())
    })
}

struct Body {
    leaves: std::vec::IntoIter<Arc<Leaf>>,
    /// The leaf that is being written, and how far.
    leaf: Option<(Arc<Leaf>, usize)>,
}

impl Iterator for Body {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let (mut part, mut bytes) = (WirePart::default(), 0);
        while bytes < PART_BYTES {
            let Some((leaf, at)) = &mut self.leaf else {
                match self.leaves.next() {
                    Some(leaf) => self.leaf = Some((leaf, 0)),
                    None => break,
                }
                continue;
            };
            match leaf.get(*at) {
                // A large value goes alone, so that a part fits into a frame.
                Some((key, entry)) if bytes == 0 || bytes + entry.size <= 2 * PART_BYTES => {
                    bytes += key.len() + entry.size + 16;
                    part.entries.push(WireEntry::new(key, entry));
                    *at += 1;
                }
                Some(_) => break,
                None => self.leaf = None,
            }
        }
        (!part.entries.is_empty()).then(|| part.encode_to_vec().into())
    }
}

/// The space that these are the parts of; none if they make no sense.
pub fn read(parts: Vec<Bytes>) -> Option<Space> {
    let mut parts = parts.into_iter();
    let head = WireHead::decode(parts.next()?).ok()?;
    let mut space = Space::restored(head.clock, head.revision, head.splits, head.above);
    if head.flushes > 0 {
        space.texts_mut().restore_flushes(head.flushes);
    }
    head.once_closed.chunks_exact(2).for_each(|range| space.restore_closed(range[0], range[1]));
    let mut image = Vec::new();
    for part in parts {
        let part = WirePart::decode(part).ok()?;
        image.extend_from_slice(&part.database);
        if let Some(piece) = part.piece {
            space.pieces.add(piece.take()?);
        }
        for WireText { name, text, is_library, functions } in part.texts {
            if is_library {
                space.texts_mut().put_library(&name, Library { text, functions }, true);
            } else {
                space.texts_mut().keep(&name, &text);
            }
        }
        for client in part.clients {
            let mut answers = BTreeMap::new();
            for kept in client.answers {
                answers.insert(kept.seq, kept.ran?.take()?);
            }
            space.restore_client(NodeId(client.node), Boot(client.boot), client.floor, answers);
        }
        for once in part.onces {
            let id = Uuid::from_slice(&once.id).ok()?;
            let ran = match once.ran {
                Some(ran) => Some(ran.take()?),
                None => None,
            };
            space.restore_once(id, Kept { of: once.of, ran }, once.touched);
        }
        for entry in part.entries {
            let (key, entry) = entry.take()?;
            space.restore(key, entry);
        }
    }
    if let Some(digest) = head.database {
        space.beside = Beside::of(&image, digest)?;
    }
    Some(space)
}

impl WireEntry {
    fn new(key: &Bytes, entry: &Entry) -> Self {
        let mut wire = Self { key: key.clone(), version: entry.version, end: entry.end, ..Self::default() };
        match &entry.value {
            Value::Text(text) => (wire.kind, wire.text) = (TEXT, text.clone()),
            Value::Hash(hash) => {
                wire.kind = if hash.has_ends() { HASH_ENDING } else { HASH };
                wire.items = hash.all().flat_map(|(field, value, _)| [field.clone(), value.clone()]).collect();
                if hash.has_ends() {
                    wire.ends = hash.all().map(|(_, _, end)| end).collect();
                }
            }
            Value::List(items) => (wire.kind, wire.items) = (LIST, items.iter().cloned().collect()),
            Value::Set(set) => (wire.kind, wire.items) = (SET, set.iter().cloned().collect()),
            Value::Sorted(sorted) => {
                let items = || sorted.items(0..sorted.len());
                wire.kind = SORTED;
                wire.items = items().map(|item| item.member.clone()).collect();
                wire.scores = items().map(|item| item.score).collect();
            }
            Value::Ledger(ledger) => (wire.kind, wire.text) = (LEDGER, ledger.encode()),
            Value::Stream(stream) => (wire.kind, wire.items) = (STREAM, stream::wire::encode(stream)),
            Value::Queue(queue) => (wire.kind, wire.items) = (QUEUE, queue::wire::encode(queue, 0)),
            Value::Lease { holder, token } => {
                (wire.kind, wire.text, wire.token) = (LEASE, holder.clone(), *token);
            }
        }
        wire
    }

    fn take(self) -> Option<(Bytes, Entry)> {
        // Copies: what is kept would else hold the whole part.
        let own = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let value = match self.kind {
            TEXT => Value::Text(own(&self.text)),
            HASH if self.items.len().is_multiple_of(2) => {
                let pairs = self.items.chunks_exact(2).map(|pair| (own(&pair[0]), own(&pair[1])));
                Value::Hash(Arc::new(pairs.collect()))
            }
            HASH_ENDING if self.items.len() == 2 * self.ends.len() => {
                let pairs = self.items.chunks_exact(2).map(|pair| (own(&pair[0]), own(&pair[1])));
                let mut hash: Hash = pairs.collect();
                for (pair, end) in self.items.chunks_exact(2).zip(&self.ends) {
                    hash.set_end(&pair[0], *end);
                }
                Value::Hash(Arc::new(hash))
            }
            LIST => Value::List(Arc::new(self.items.iter().map(own).collect())),
            SET => Value::Set(Arc::new(self.items.iter().map(own).collect())),
            SORTED if self.items.len() == self.scores.len() => {
                let item = |(member, score): (&Bytes, &f64)| Scored { member: own(member), score: *score };
                Value::Sorted(Arc::new(Sorted::of(self.items.iter().zip(&self.scores).map(item).collect())?))
            }
            LEDGER => Value::Ledger(Arc::new(Ledger::decode(&self.text)?)),
            STREAM => Value::Stream(Arc::new(stream::wire::decode(&self.items)?)),
            QUEUE => Value::Queue(Arc::new(queue::wire::decode(&self.items, None)?)),
            LEASE => Value::Lease { holder: own(&self.text), token: self.token },
            _ => return None,
        };
        let size = value.bytes();
        Some((own(&self.key), Entry { value, version: self.version, end: self.end, size }))
    }
}
