//! A stream as texts, for a snapshot or a dump: its counters, its blocks in order, its groups.

use bytes::Bytes;
use prost::Message as _;

use super::block::Block;
use super::{Consumer, Group, Id, Log, Stream};

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct WireId {
    #[prost(uint64, tag = "1")]
    ms: u64,
    #[prost(uint64, tag = "2")]
    seq: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireHead {
    #[prost(message, optional, tag = "1")]
    last: Option<WireId>,
    #[prost(message, optional, tag = "2")]
    deleted: Option<WireId>,
    #[prost(uint64, tag = "3")]
    added: u64,
    /// So many texts behind it are blocks, the others are groups.
    #[prost(uint64, tag = "4")]
    blocks: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireBlock {
    #[prost(message, optional, tag = "1")]
    first: Option<WireId>,
    #[prost(uint32, tag = "2")]
    put: u32,
    #[prost(uint32, tag = "3")]
    names: u32,
    /// `block.rs` says what is in it.
    #[prost(bytes = "vec", tag = "4")]
    data: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireConsumer {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(uint64, tag = "2")]
    seen: u64,
    #[prost(uint64, optional, tag = "3")]
    active: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireGroup {
    #[prost(bytes = "bytes", tag = "1")]
    name: Bytes,
    #[prost(message, optional, tag = "2")]
    last: Option<WireId>,
    #[prost(uint64, optional, tag = "3")]
    read: Option<u64>,
    #[prost(message, repeated, tag = "4")]
    consumers: Vec<WireConsumer>,
    /// Of what is not acknowledged: ms, seq, the consumer's place among the above, when it was delivered, how often.
    #[prost(uint64, repeated, tag = "5")]
    pending: Vec<u64>,
}

/// Numbers of one that is not acknowledged.
const PENDING: usize = 5;

impl WireId {
    fn new(id: Id) -> Option<Self> {
        Some(Self { ms: id.ms, seq: id.seq })
    }

    fn take(id: Option<Self>) -> Id {
        id.map_or(Id::MIN, |WireId { ms, seq }| Id { ms, seq })
    }
}

pub fn encode(stream: &Stream) -> Vec<Bytes> {
    let log = &stream.log;
    let head = WireHead {
        last: WireId::new(log.last()),
        deleted: WireId::new(log.deleted()),
        added: log.added(),
        blocks: log.blocks().len() as u64,
    };
    let block = |block: &Block| {
        let (first, put, names, data) = block.parts();
        WireBlock { first: WireId::new(first), put: put.into(), names, data: data.to_vec() }.encode_to_vec().into()
    };
    let blocks = log.blocks().map(block);
    let groups = stream.groups().map(|(name, group)| group_of(name, group).encode_to_vec().into());
    std::iter::once(head.encode_to_vec().into()).chain(blocks).chain(groups).collect()
}

fn group_of(name: &Bytes, group: &Group) -> WireGroup {
    let consumer = |(name, consumer): (&Bytes, &Consumer)| WireConsumer {
        name: name.clone(),
        seen: consumer.seen,
        active: consumer.active,
    };
    let consumers: Vec<_> = group.consumers().map(consumer).collect();
    let place =
        |name: &Bytes| consumers.binary_search_by(|consumer| consumer.name.cmp(name)).unwrap_or_default() as u64;
    let pending = group.pending().from(Id::MIN);
    let pending = pending.flat_map(|(id, has)| [id.ms, id.seq, place(&has.consumer), has.at, has.times]).collect();
    WireGroup { name: name.clone(), last: WireId::new(group.last), read: group.read, consumers, pending }
}

/// None, if these make no sense.
pub fn decode(texts: &[Bytes]) -> Option<Stream> {
    let (head, rest) = texts.split_first()?;
    let WireHead { last, deleted, added, blocks } = WireHead::decode(head.clone()).ok()?;
    let (blocks, groups) = rest.split_at_checked(usize::try_from(blocks).ok()?)?;
    let block = |text: &Bytes| {
        let WireBlock { first, put, names, data } = WireBlock::decode(text.clone()).ok()?;
        Block::read(WireId::take(first), u16::try_from(put).ok()?, names, data)
    };
    let blocks = blocks.iter().map(block).collect::<Option<_>>()?;
    let log = Log::of(blocks, WireId::take(last), WireId::take(deleted), added)?;
    let mut stream = Stream { log, ..Stream::default() };
    for text in groups {
        let wire = WireGroup::decode(text.clone()).ok()?;
        stream.set_group(own(&wire.name), read_group(&wire)?);
    }
    Some(stream)
}

fn read_group(wire: &WireGroup) -> Option<Group> {
    let mut group = Group::new(WireId::take(wire.last), wire.read);
    for consumer in &wire.consumers {
        if group.consumer(&consumer.name).is_some() {
            return None;
        }
        let WireConsumer { name, seen, active } = consumer;
        group.add_consumer(own(name), Consumer::new(*seen, *active));
    }
    for pending in wire.pending.chunks(PENDING) {
        let [ms, seq, consumer, at, times] = *pending else { return None };
        let name = &wire.consumers.get(usize::try_from(consumer).ok()?)?.name;
        group.give(Id { ms, seq }, name, at, times);
    }
    Some(group)
}

/// A copy: what is kept would else hold the whole part.
fn own(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
