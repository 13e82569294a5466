//! What nodes say to each other about objects, and how entries stand in the log. Bytes of an object travel in the frame's body,
//! untouched. Tags are never used twice; unknown fields are skipped. A test holds the bytes.

use std::collections::BTreeSet;

use base::{NodeId, Record};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use class::Version;
use prost::{Message, Oneof};

use crate::body::Piece;
use crate::directory::{self, Known, Tenure, Told, Wanted};
use crate::held::{At, Held};
use crate::lies::{Part, Place};
use crate::limits::{FEED_ITEMS, HOMES_MAX, OBJECT_BYTES_MAX, OWNER_BYTES_MAX, PIECES_MAX};
use crate::map::BUCKETS;
use crate::{Id, Key, Stamp};

/// A frame's head.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Head {
    /// Number of the question, chosen by who asks; its answer carries it back. 0: nobody waits.
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    /// Writes that wait for the sender's disk.
    #[prost(uint64, tag = "2")]
    pub pending: u64,
    /// The sender takes no more objects.
    #[prost(bool, tag = "3")]
    pub full: bool,
    #[prost(oneof = "What", tags = "4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25")]
    pub what: Option<What>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum What {
    /// What have you of this? Answer: `Here`.
    #[prost(message, tag = "4")]
    Look(KeyMessage),
    #[prost(message, tag = "5")]
    Here(Here),
    /// Have this, and force it. Answer: `Took`.
    #[prost(message, tag = "6")]
    Put(PutMessage),
    #[prost(message, tag = "7")]
    Took(Took),
    /// Answer: `Got`, with the bytes.
    #[prost(message, tag = "8")]
    Get(KeyMessage),
    #[prost(message, tag = "9")]
    Got(Here),
    /// Answer: `Page`.
    #[prost(message, tag = "10")]
    List(ListMessage),
    #[prost(message, tag = "11")]
    Page(Page),
    /// These nodes have this write, and know all its homes. No answer.
    #[prost(message, tag = "12")]
    Done(PutMessage),
    /// Whose objects have you? Answer: `Owners`.
    #[prost(message, tag = "13")]
    Walk(ListMessage),
    #[prost(message, tag = "14")]
    Owners(OwnersPage),
    /// From level 7 on: a piece of what is to be put, with its bytes. Answer: `Staged`.
    #[prost(message, tag = "15")]
    Piece(PieceMessage),
    #[prost(message, tag = "16")]
    Staged(StagedMessage),
    /// From level 11 on, to the manager of an owner's bucket: which nodes have objects of it? Answer: `Known`.
    #[prost(message, tag = "17")]
    Where(WhereMessage),
    #[prost(message, tag = "18")]
    Known(KnownMessage),
    /// Tell me what you have in these buckets, from now on. Answer: `Told`, many times.
    #[prost(message, tag = "19")]
    Want(WantMessage),
    /// Answer: `Heard`.
    #[prost(message, tag = "20")]
    Told(ToldMessage),
    #[prost(message, tag = "21")]
    Heard(TenureMessage),
    /// Have you told me all? Answer: `Sure`, or the `Told` that has the rest.
    #[prost(message, tag = "22")]
    Confirm(TenureMessage),
    /// Without a tenure: I know of none of yours.
    #[prost(message, tag = "23")]
    Sure(TenureMessage),
    /// From level 12 on: what changed at you? Answer: `Changes`, when there is something or the time is over.
    #[prost(message, tag = "24")]
    Watch(WatchMessage),
    #[prost(message, tag = "25")]
    Changes(ChangesMessage),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchMessage {
    #[prost(uint32, tag = "1")]
    pub ns: u32,
    /// Owners that begin so.
    #[prost(bytes = "bytes", tag = "2")]
    pub prefix: Bytes,
    /// Whoever watches: an earlier question of theirs is over.
    #[prost(fixed64, tag = "3")]
    pub by: u64,
    /// Behind this; none: behind what there is now.
    #[prost(message, optional, tag = "4")]
    pub after: Option<UptoMessage>,
    #[prost(uint32, tag = "5")]
    pub hold_ms: u32,
}

/// How far somebody is with a node.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct UptoMessage {
    #[prost(fixed64, tag = "1")]
    pub node: u64,
    /// The life of the node of which the place is; 0: of none.
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    #[prost(uint64, tag = "3")]
    pub upto: u64,
    /// When that was, by the node's wall clock.
    #[prost(uint64, tag = "4")]
    pub ms: u64,
}

/// Where somebody watches, as clients keep it.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CursorMessage {
    #[prost(uint32, tag = "1")]
    pub ns: u32,
    #[prost(message, repeated, tag = "2")]
    pub nodes: Vec<UptoMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ChangesMessage {
    #[prost(message, required, tag = "1")]
    pub upto: UptoMessage,
    #[prost(message, repeated, tag = "2")]
    pub items: Vec<ChangedMessage>,
    /// There are more already.
    #[prost(bool, tag = "3")]
    pub more: bool,
    /// Deletions behind the place that was named are not all remembered.
    #[prost(bool, tag = "4")]
    pub lost: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ChangedMessage {
    #[prost(bytes = "bytes", tag = "1")]
    pub owner: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub id: Bytes,
    /// Without homes.
    #[prost(message, optional, tag = "3")]
    pub held: Option<HeldMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WhereMessage {
    #[prost(uint32, tag = "1")]
    pub ns: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub owner: Bytes,
    /// The answer is to be about all nodes, as of now: who has nothing is said, too.
    #[prost(bool, tag = "3")]
    pub sure: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KnownMessage {
    /// Not so: nothing is known, all nodes are to be asked.
    #[prost(bool, tag = "1")]
    pub whole: bool,
    #[prost(fixed64, repeated, tag = "2")]
    pub has: Vec<u64>,
    #[prost(fixed64, repeated, tag = "3")]
    pub nothing: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WantMessage {
    #[prost(fixed64, tag = "1")]
    pub life: u64,
    #[prost(uint32, tag = "2")]
    pub count: u32,
    #[prost(uint32, tag = "3")]
    pub version: u32,
    /// Each with the version since when.
    #[prost(uint32, repeated, tag = "4")]
    pub buckets: Vec<u32>,
    #[prost(uint32, repeated, tag = "5")]
    pub sinces: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ToldMessage {
    #[prost(message, required, tag = "1")]
    pub of: TenureMessage,
    #[prost(message, repeated, tag = "2")]
    pub items: Vec<ItemMessage>,
    #[prost(uint32, tag = "3")]
    pub done: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ItemMessage {
    #[prost(uint32, tag = "1")]
    pub ns: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub owner: Bytes,
    #[prost(bool, tag = "3")]
    pub has: bool,
}

/// What stands about a tenure, and as of where.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct TenureMessage {
    #[prost(fixed64, tag = "1")]
    pub life: u64,
    #[prost(uint32, tag = "2")]
    pub count: u32,
    /// Number of the last `Told`.
    #[prost(uint32, tag = "3")]
    pub seq: u32,
    #[prost(uint64, tag = "4")]
    pub round: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyMessage {
    #[prost(uint32, tag = "1")]
    pub ns: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub owner: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub id: Bytes,
    /// In a `Get`: the byte whose piece is wanted.
    #[prost(uint32, tag = "4")]
    pub at: u32,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct PieceMessage {
    /// Chosen by the sender for this object on its way to this node, never 0.
    #[prost(fixed64, tag = "1")]
    pub stage: u64,
    /// Where it begins.
    #[prost(uint32, tag = "2")]
    pub from: u32,
    /// CRC-32C of its bytes.
    #[prost(fixed32, tag = "3")]
    pub sum: u32,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct StagedMessage {
    #[prost(fixed64, tag = "1")]
    pub stage: u64,
    /// Bytes that are on the disk.
    #[prost(uint32, tag = "2")]
    pub upto: u32,
    /// What is to come next.
    #[prost(uint32, tag = "3")]
    pub next: u32,
    /// What came last is not what was to come.
    #[prost(bool, tag = "4")]
    pub gap: bool,
    /// There is no room for it.
    #[prost(bool, tag = "5")]
    pub full: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeldMessage {
    #[prost(uint64, tag = "1")]
    ms: u64,
    #[prost(fixed32, tag = "2")]
    counter: u32,
    #[prost(fixed64, tag = "3")]
    node: u64,
    #[prost(bool, tag = "4")]
    once: bool,
    #[prost(bool, tag = "5")]
    gone: bool,
    #[prost(fixed32, tag = "6")]
    sum: u32,
    #[prost(uint32, tag = "7")]
    size: u32,
    #[prost(fixed64, repeated, tag = "8")]
    homes: Vec<u64>,
    #[prost(fixed64, repeated, tag = "9")]
    has: Vec<u64>,
    /// From level 6 on: homes with turns, and the turn of each.
    #[prost(fixed64, repeated, tag = "10")]
    turned: Vec<u64>,
    #[prost(uint32, repeated, tag = "11")]
    turns: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Here {
    /// Objects of this owner that the sender has.
    #[prost(uint64, tag = "1")]
    pub objects: u64,
    #[prost(message, optional, tag = "2")]
    pub held: Option<HeldMessage>,
    /// The whole object is on the sender's disk.
    #[prost(bool, tag = "3")]
    pub safe: bool,
    /// From level 7 on, with bytes that are a piece of the object: where it begins, and its CRC-32C.
    #[prost(uint32, tag = "4")]
    pub from: u32,
    #[prost(fixed32, tag = "5")]
    pub sum: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutMessage {
    #[prost(message, optional, tag = "1")]
    pub key: Option<KeyMessage>,
    #[prost(message, optional, tag = "2")]
    pub held: Option<HeldMessage>,
    /// From a holder and not from who was asked for it first: it was taken by somebody, and stands.
    #[prost(bool, tag = "3")]
    pub push: bool,
    /// From level 7 on: its bytes came in pieces on this stage. 0: they are in this frame.
    #[prost(fixed64, tag = "4")]
    pub stage: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Took {
    /// Number of a [`Verdict`].
    #[prost(uint32, tag = "1")]
    pub verdict: u32,
    #[prost(message, optional, tag = "2")]
    pub key: Option<KeyMessage>,
    /// What the sender has now, if it has any.
    #[prost(message, optional, tag = "3")]
    pub held: Option<HeldMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListMessage {
    #[prost(uint32, tag = "1")]
    pub ns: u32,
    #[prost(bytes = "bytes", tag = "2")]
    pub owner: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub after: Bytes,
    #[prost(uint64, tag = "4")]
    pub limit: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Page {
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<Item>,
    /// There are more behind the last one.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Item {
    #[prost(bytes = "bytes", tag = "1")]
    pub id: Bytes,
    #[prost(message, optional, tag = "2")]
    pub held: Option<HeldMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OwnersPage {
    /// In order.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub owners: Vec<Bytes>,
    /// There are more behind the last one.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// What a node did with a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The write is on the node's disk.
    Kept,
    /// On its disk is what stands above it.
    Newer,
    /// The node has another object under this id, and objects are written once.
    Conflict,
    /// The node has no room.
    Full,
    /// The version is too far ahead of its clock.
    Ahead,
}

impl Verdict {
    const ALL: [Verdict; 5] = [Self::Kept, Self::Newer, Self::Conflict, Self::Full, Self::Ahead];

    pub fn number(self) -> u32 {
        Self::ALL.iter().position(|verdict| *verdict == self).map_or(0, |n| n as u32 + 1)
    }

    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.get((number as usize).checked_sub(1)?).copied()
    }
}

impl From<&Key> for KeyMessage {
    fn from(key: &Key) -> Self {
        Self { ns: key.ns, owner: key.owner.clone(), id: Bytes::copy_from_slice(&key.id.0), at: 0 }
    }
}

pub(crate) fn id_of(bytes: &[u8]) -> Option<Id> {
    bytes.try_into().ok().map(Id)
}

impl KeyMessage {
    pub fn key(self) -> Option<Key> {
        let id = id_of(&self.id)?;
        // What lies in memory for long must not keep a whole frame.
        let owner = Bytes::copy_from_slice(&self.owner);
        (1..=OWNER_BYTES_MAX).contains(&owner.len()).then_some(Key { ns: self.ns, owner, id })
    }
}

impl TenureMessage {
    pub fn of(tenure: Tenure, seq: u32, round: u64) -> Self {
        Self { life: tenure.life, count: tenure.count, seq, round }
    }

    pub fn tenure(&self) -> Tenure {
        Tenure { life: self.life, count: self.count }
    }
}

impl From<Wanted> for WantMessage {
    fn from(wanted: Wanted) -> Self {
        let Wanted { tenure: Tenure { life, count }, version, buckets } = wanted;
        let (buckets, sinces) = buckets.into_iter().map(|(bucket, since)| (u32::from(bucket), since)).unzip();
        Self { life, count, version, buckets, sinces }
    }
}

impl WantMessage {
    pub fn wanted(self) -> Option<Wanted> {
        let Self { life, count, version, buckets, sinces } = self;
        let fits = buckets.len() == sinces.len() && buckets.iter().all(|bucket| *bucket < u32::from(BUCKETS));
        let buckets = buckets.into_iter().map(|bucket| bucket as u16).zip(sinces).collect();
        (fits && life > 0).then_some(Wanted { tenure: Tenure { life, count }, version, buckets })
    }
}

impl From<&Told> for ToldMessage {
    fn from(told: &Told) -> Self {
        let item = |item: &directory::Item| ItemMessage { ns: item.ns, owner: item.owner.clone(), has: item.has };
        let of = TenureMessage::of(told.tenure, told.seq, told.round);
        Self { of, items: told.items.iter().map(item).collect(), done: told.done }
    }
}

impl ToldMessage {
    pub fn told(self) -> Option<Told> {
        let Self { of, items, done } = self;
        let is_owner = |item: &ItemMessage| (1..=OWNER_BYTES_MAX).contains(&item.owner.len());
        let fits = items.len() <= FEED_ITEMS && items.iter().all(is_owner);
        // What lies in memory for long must not keep a whole frame.
        let item = |item: ItemMessage| directory::Item {
            ns: item.ns,
            owner: Bytes::copy_from_slice(&item.owner),
            has: item.has,
        };
        let items = items.into_iter().map(item).collect();
        fits.then_some(Told { tenure: of.tenure(), seq: of.seq, items, done, round: of.round })
    }
}

impl From<Option<Known>> for KnownMessage {
    fn from(known: Option<Known>) -> Self {
        let whole = known.is_some();
        let Known { has, nothing } = known.unwrap_or_default();
        Self { whole, has: numbers(&has), nothing: numbers(&nothing) }
    }
}

impl KnownMessage {
    pub fn known(self) -> Option<Known> {
        let nodes = |numbers: Vec<u64>| numbers.into_iter().map(NodeId).collect();
        self.whole.then(|| Known { has: nodes(self.has), nothing: nodes(self.nothing) })
    }
}

fn numbers(nodes: &BTreeSet<NodeId>) -> Vec<u64> {
    nodes.iter().map(|node| node.0).collect()
}

fn nodes(numbers: Vec<u64>) -> Option<BTreeSet<NodeId>> {
    (numbers.len() <= HOMES_MAX).then(|| numbers.into_iter().map(NodeId).collect())
}

impl From<&Held> for HeldMessage {
    fn from(held: &Held) -> Self {
        let Stamp { version: Version { ms, counter, node }, once, gone, sum, size } = held.stamp;
        let At { homes, has, turns } = &**held;
        let (homes, has) = (numbers(homes), numbers(has));
        let (turned, turns) = turns.iter().map(|(node, turn)| (node.0, *turn)).unzip();
        Self { ms, counter, node: node.0, once, gone, sum, size, homes, has, turned, turns }
    }
}

impl HeldMessage {
    pub fn held(self) -> Option<Held> {
        let Self { ms, counter, node, once, gone, sum, size, homes, has, turned, turns } = self;
        let stamp = Stamp { version: Version { ms, counter, node: NodeId(node) }, once, gone, sum, size };
        let is_sound = size as usize <= OBJECT_BYTES_MAX && (!gone || (sum, size) == (0, 0));
        let fits = is_sound && turned.len() == turns.len() && turned.len() <= HOMES_MAX;
        let turns = turned.into_iter().map(NodeId).zip(turns).collect();
        fits.then_some(Held::new(stamp, At { homes: nodes(homes)?, has: nodes(has)?, turns }))
    }
}

/// First byte of a record in the log: the form of what follows.
const FORM: u8 = 1;
/// Form of a piece, from level 7 on.
const FORM_PIECE: u8 = 2;
/// Form of an entry whose bytes lie in a pack, from level 8 on: to an older program only its homes would have changed.
const FORM_PLACE: u8 = 3;
const PIECE_HEAD: usize = 1 + 8 + 4 + 4;

/// A piece in the log. It is of the entry behind it that names its set, and of nothing if there is none.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LoggedPiece {
    pub set: u64,
    pub from: usize,
    pub piece: Piece,
}

impl LoggedPiece {
    /// ```text
    /// u8  form: 2
    /// u64 set
    /// u32 where it begins in the object
    /// u32 CRC-32C of its bytes
    ///     bytes
    /// ```
    pub fn record(&self) -> Record {
        let mut head = BytesMut::with_capacity(PIECE_HEAD);
        head.put_u8(FORM_PIECE);
        head.put_u64(self.set);
        head.put_u32(self.from as u32);
        head.put_u32(self.piece.sum);
        let mut record = Record::from(head.freeze());
        record.push(self.piece.bytes.clone());
        record
    }

    /// None: it is none.
    pub fn read(record: &Bytes) -> Option<Self> {
        if record.first() != Some(&FORM_PIECE) || record.len() <= PIECE_HEAD {
            return None;
        }
        let mut head = record.slice(1..PIECE_HEAD);
        let (set, from, sum) = (head.get_u64(), head.get_u32() as usize, head.get_u32());
        Some(Self { set, from, piece: Piece { bytes: record.slice(PIECE_HEAD..), sum } })
    }
}

/// One record of the log: an entry with its bytes, or without them if only its homes changed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Logged {
    pub key: Key,
    pub held: Held,
    /// Bytes of an object that is in no pieces.
    pub body: Option<Bytes>,
    /// Its bytes are the pieces of this set, which stand before it. 0: there is none.
    pub set: u64,
    /// Its bytes lie there.
    pub place: Option<Place>,
    /// This node has given its copy up: there is nothing here any more.
    pub dropped: bool,
}

#[derive(Clone, PartialEq, Message)]
struct LoggedMessage {
    #[prost(message, optional, tag = "1")]
    key: Option<KeyMessage>,
    #[prost(message, optional, tag = "2")]
    held: Option<HeldMessage>,
    #[prost(bool, tag = "3")]
    has_body: bool,
    /// From level 6 on.
    #[prost(bool, tag = "4")]
    dropped: bool,
    /// From level 7 on.
    #[prost(fixed64, tag = "5")]
    set: u64,
    /// From level 8 on, with form 3 alone.
    #[prost(message, optional, tag = "6")]
    place: Option<PlaceMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct PlaceMessage {
    #[prost(uint64, tag = "1")]
    pack: u64,
    #[prost(uint64, tag = "2")]
    from: u64,
    /// Length and CRC-32C of each piece.
    #[prost(uint32, repeated, tag = "3")]
    lens: Vec<u32>,
    #[prost(fixed32, repeated, tag = "4")]
    sums: Vec<u32>,
}

impl From<&Place> for PlaceMessage {
    fn from(place: &Place) -> Self {
        let (lens, sums) = place.parts.iter().map(|part| (part.len, part.sum)).unzip();
        Self { pack: place.pack, from: place.from, lens, sums }
    }
}

impl PlaceMessage {
    fn place(self, size: u32) -> Option<Place> {
        let Self { pack, from, lens, sums } = self;
        let whole: u64 = lens.iter().map(|len| u64::from(*len)).sum();
        let fits = lens.len() == sums.len() && lens.len() <= PIECES_MAX && whole == u64::from(size) && pack > 0;
        let fits = fits && from <= u64::MAX / 2 && !lens.contains(&0);
        let parts = lens.into_iter().zip(sums).map(|(len, sum)| Part { len, sum }).collect();
        fits.then_some(Place { pack, from, parts })
    }
}

impl Logged {
    /// ```text
    /// u8  form: 1, or 3 if its bytes lie in a pack
    /// u32 length of the head
    ///     head, bytes of the object
    /// ```
    pub fn record(&self) -> Record {
        let head = LoggedMessage {
            key: Some((&self.key).into()),
            held: Some((&self.held).into()),
            has_body: self.body.is_some(),
            dropped: self.dropped,
            set: self.set,
            place: self.place.as_ref().map(Into::into),
        };
        let mut bytes = BytesMut::with_capacity(5 + head.encoded_len());
        bytes.put_u8(if self.place.is_some() { FORM_PLACE } else { FORM });
        bytes.put_u32(head.encoded_len() as u32);
        head.encode(&mut bytes).expect("a BytesMut grows");
        let mut record = Record::from(bytes.freeze());
        record.push(self.body.clone().unwrap_or_default());
        record
    }

    /// None for what this program does not understand.
    pub fn read(mut record: Bytes) -> Option<Self> {
        let is_placed = record.first() == Some(&FORM_PLACE);
        if !is_placed && record.first() != Some(&FORM) || record.len() < 5 {
            return None;
        }
        let length = u32::from_be_bytes(record[1..5].try_into().ok()?) as usize;
        let mut rest = record.split_off(5);
        if length > rest.len() {
            return None;
        }
        let head = LoggedMessage::decode(rest.split_to(length)).ok()?;
        let (key, held) = (head.key?.key()?, head.held?.held()?);
        let fits = rest.len() == if head.has_body { held.stamp.size as usize } else { 0 };
        let fits = fits && (head.set == 0 || !head.has_body) && head.place.is_some() == is_placed;
        let place = match head.place {
            Some(place) if head.set == 0 && !head.has_body => Some(place.place(held.stamp.size)?),
            Some(_) => return None,
            None => None,
        };
        let body = head.has_body.then_some(rest);
        fits.then_some(Self { key, held, body, set: head.set, place, dropped: head.dropped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(body: Option<&'static [u8]>) -> Logged {
        let version = Version { ms: 1000, counter: 2, node: NodeId(3) };
        let stamp = Stamp { version, once: true, gone: false, sum: 0x0102_0304, size: 5 };
        let at = At { homes: [NodeId(1), NodeId(3)].into(), has: [NodeId(1)].into(), turns: [].into() };
        let held = Held::new(stamp, at);
        let key = Key { ns: 7, owner: Bytes::from_static(b"ann"), id: Id([9; 16]) };
        Logged { key, held, body: body.map(Bytes::from_static), set: 0, place: None, dropped: false }
    }

    /// Written by this program, and to be read by every later one.
    #[test]
    fn an_entry_has_these_bytes_in_the_log() {
        let record = Bytes::from(logged(Some(b"hello")).record());
        let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "01000000550a1908071203616e6e1a1009090909090909090909090909090909123608e807150200000019030000000000000020013504030201\
             38054210010000000000000003000000000000004a080100000000000000180168656c6c6f"
        );
        let mut given_up = Logged { dropped: true, ..logged(None) };
        given_up.held.turns = [(NodeId(1), 1), (NodeId(3), 2)].into();
        let in_pieces = Logged { set: 0x0102_0304_0506_0708, ..logged(None) };
        for logged in [logged(Some(b"hello")), logged(None), given_up, in_pieces] {
            assert_eq!(Logged::read(logged.record().into()), Some(logged));
        }
    }

    #[test]
    fn an_entry_in_a_pack_has_these_bytes_in_the_log() {
        let parts = [Part { len: 3, sum: 0x0a0b_0c0d }, Part { len: 2, sum: 7 }].into_iter().collect();
        let logged = Logged { place: Some(Place { pack: 9, from: 300, parts }), ..logged(None) };
        let record = Bytes::from(logged.record());
        let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "03000000680a1908071203616e6e1a1009090909090909090909090909090909123608e80715020000001903000000000000002001350403020138\
             054210010000000000000003000000000000004a08010000000000000032130809\
             10ac021a02030222080d0c0b0a07000000"
        );
        for end in 0..record.len() {
            assert_eq!(Logged::read(record.slice(..end)), None, "cut at {end}");
        }
        assert_eq!(Logged::read(record), Some(logged.clone()));
        // Not all of it, or as a form that has no place.
        let mut less = logged.clone();
        less.held.stamp.size = 6;
        assert_eq!(Logged::read(less.record().into()), None);
        let mut older = BytesMut::from(&Bytes::from(logged.record())[..]);
        older[0] = FORM;
        assert_eq!(Logged::read(older.freeze()), None);
    }

    #[test]
    fn a_piece_has_these_bytes_in_the_log() {
        let piece = Piece { bytes: Bytes::from_static(b"hello"), sum: 0x0a0b_0c0d };
        let logged = LoggedPiece { set: 0x0102_0304_0506_0708, from: 0x0010_0000, piece };
        let record = Bytes::from(logged.record());
        assert_eq!(&record[..], b"\x02\x01\x02\x03\x04\x05\x06\x07\x08\x00\x10\x00\x00\x0a\x0b\x0c\x0dhello");
        assert_eq!(LoggedPiece::read(&record), Some(logged));
        assert_eq!(Logged::read(record.clone()), None, "an older program does not take it for something else");
        assert_eq!(LoggedPiece::read(&record.slice(..PIECE_HEAD)), None);
    }

    #[test]
    fn what_is_cut_or_of_a_newer_form_is_not_taken_for_something_else() {
        let record = Bytes::from(logged(Some(b"hello")).record());
        for end in 0..record.len() {
            assert_eq!(Logged::read(record.slice(..end)), None, "cut at {end}");
        }
        let mut newer = BytesMut::from(&record[..]);
        newer[0] = 2;
        assert_eq!(Logged::read(newer.freeze()), None);
    }

    #[test]
    fn verdicts_have_numbers() {
        for verdict in Verdict::ALL {
            assert_eq!(Verdict::of(verdict.number()), Some(verdict));
        }
        assert_eq!((Verdict::of(0), Verdict::of(6)), (None, None));
    }
}
