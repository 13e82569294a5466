//! Bytes between two nodes. Unknown fields are skipped; what no node can have made is no message.

use base::checksum::Checksum;
use base::{Boot, NodeId, Span, Time};
use bytes::Bytes;

use crate::cell::{Cell, Sibling, Slot};
use crate::context::{Context, Folded, Range};
use crate::dot::{Dot, Life, Stamp};
use crate::limits::{END_MAX, NAME_BYTES_MAX, PARTS_MAX, SEQ_MAX, VALUE_BYTES_MAX};
use crate::op::Kind;
use crate::space::Address;

/// Ranges of one life: first and last in turn. Of boot 0, which no life has: all lives of the node from the first to the last one are over
/// (level 14).
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ranges {
    #[prost(uint64, tag = "1")]
    pub node: u64,
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    #[prost(uint64, repeated, tag = "3")]
    pub bounds: Vec<u64>,
    /// Of the lines of lives that are over.
    #[prost(fixed64, tag = "4")]
    pub sum: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct At {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    #[prost(bytes = "bytes", tag = "3")]
    pub element: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ADot {
    #[prost(uint64, tag = "1")]
    pub node: u64,
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    #[prost(uint64, tag = "3")]
    pub seq: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ASibling {
    #[prost(message, required, tag = "1")]
    pub dot: ADot,
    #[prost(uint64, tag = "2")]
    pub ms: u64,
    #[prost(uint32, tag = "3")]
    pub counter: u32,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub value: Option<Bytes>,
    /// Of the value.
    #[prost(uint32, tag = "5")]
    pub sum: u32,
    /// What is left of it, microseconds.
    #[prost(uint64, optional, tag = "6")]
    pub left: Option<u64>,
    #[prost(bool, tag = "7")]
    pub held: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ASlot {
    #[prost(message, required, tag = "1")]
    pub birth: ADot,
    /// Of the last dot; its life is that of the birth.
    #[prost(uint64, tag = "2")]
    pub last: u64,
    #[prost(uint64, tag = "3")]
    pub inc: u64,
    #[prost(uint64, tag = "4")]
    pub dec: u64,
    #[prost(uint64, tag = "5")]
    pub cut_inc: u64,
    #[prost(uint64, tag = "6")]
    pub cut_dec: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ACell {
    #[prost(message, repeated, tag = "1")]
    pub siblings: Vec<ASibling>,
    #[prost(message, repeated, tag = "2")]
    pub slots: Vec<ASlot>,
    #[prost(message, repeated, tag = "3")]
    pub gone: Vec<ADot>,
}

/// One update, as its origin made it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Delta {
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    #[prost(message, required, tag = "2")]
    pub at: At,
    #[prost(message, required, tag = "3")]
    pub part: ACell,
    #[prost(message, repeated, tag = "4")]
    pub supersedes: Vec<ADot>,
    /// It takes away what was held by a life that is over, as far as its origin knows.
    #[prost(bool, tag = "5")]
    pub sweeps: bool,
    /// It takes away what is over: a key whose end has come, or what is held no more. Readers of changes are told so, and nothing else
    /// comes of it; programs of before skip it.
    #[prost(bool, tag = "6")]
    pub ends: bool,
    /// How something was taken away ([`crate::Did`]), for the names of events: nothing else comes of it, programs of before skip it.
    #[prost(uint32, tag = "7")]
    pub did: u32,
}

/// Updates of the sender's own life.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Push {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    #[prost(message, repeated, tag = "3")]
    pub deltas: Vec<Delta>,
}

/// A push that goes by way of another node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Relay {
    /// Who has made it, and for whom it is.
    #[prost(uint64, tag = "1")]
    pub of: u64,
    #[prost(uint64, tag = "2")]
    pub to: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub push: Bytes,
}

/// What has come of a life of the receiver's.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ack {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    /// First and last in turn.
    #[prost(uint64, repeated, tag = "3")]
    pub bounds: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Digest {
    #[prost(uint64, tag = "1")]
    pub boot: u64,
    #[prost(message, repeated, tag = "2")]
    pub spaces: Vec<DigestOf>,
    /// The sender's wall clock, milliseconds since 1970; 0: not told.
    #[prost(uint64, tag = "3")]
    pub wall_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DigestOf {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    #[prost(fixed64, tag = "2")]
    pub context: u64,
    /// The asker catches up, and wants an answer in any case.
    #[prost(bool, tag = "3")]
    pub settles: bool,
    /// What is in its checkpoint; 0 if it writes none.
    #[prost(fixed64, tag = "4")]
    pub kept: u64,
    /// Over all cells (`mend.rs`); 0: not told.
    #[prost(fixed64, tag = "5")]
    pub state: u64,
    /// Updates of the sender's life, and one; 0: not told.
    #[prost(uint64, tag = "6")]
    pub updates: u64,
}

/// Hashes of the parts of a namespace.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Parts {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    /// Of the context that they are for.
    #[prost(fixed64, tag = "3")]
    pub context: u64,
    #[prost(fixed64, repeated, tag = "4")]
    pub parts: Vec<u64>,
    #[prost(bool, tag = "5")]
    pub is_answer: bool,
    /// This cell alone is wanted, whatever the contexts are.
    #[prost(message, optional, tag = "6")]
    pub only: Option<At>,
}

/// Cells that its receiver may have otherwise, though it has seen the same.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Mend {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    #[prost(message, repeated, tag = "3")]
    pub context: Vec<Ranges>,
    #[prost(message, repeated, tag = "4")]
    pub cells: Vec<Whole>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Have {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    #[prost(message, repeated, tag = "3")]
    pub context: Vec<Ranges>,
    #[prost(message, repeated, tag = "4")]
    pub floor: Vec<Ranges>,
    /// It answers a `Have`: nothing is answered but what is missing.
    #[prost(bool, tag = "5")]
    pub is_answer: bool,
    /// What is in its checkpoint, if it writes such.
    #[prost(message, repeated, tag = "6")]
    pub kept: Vec<Ranges>,
    #[prost(bool, tag = "7")]
    pub keeps: bool,
    /// It wants to know what is in the other's.
    #[prost(bool, tag = "8")]
    pub wants: bool,
    /// It answers operations. Programs of before level 12 do not say so, and are passed none.
    #[prost(bool, tag = "9")]
    pub serves: bool,
}

/// A whole cell, and which updates that its receiver lacks it stands for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Whole {
    #[prost(message, required, tag = "1")]
    pub at: At,
    #[prost(message, required, tag = "2")]
    pub cell: ACell,
    #[prost(message, repeated, tag = "3")]
    pub covers: Vec<Ranges>,
}

/// Repair. Each frame stands alone.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Cells {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    #[prost(message, repeated, tag = "2")]
    pub context: Vec<Ranges>,
    #[prost(message, repeated, tag = "3")]
    pub cells: Vec<Whole>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PageAsk {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    /// Of the asked.
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    /// None: from the beginning.
    #[prost(message, optional, tag = "3")]
    pub after: Option<At>,
    /// What the asked had seen when it sent the first page; empty with that.
    #[prost(message, repeated, tag = "4")]
    pub start: Vec<Ranges>,
    /// From here on all is of level 12 (`compare.rs`). Of a stretch only what differs: cells of these numbers, up to this address.
    #[prost(bool, tag = "5")]
    pub differs: bool,
    #[prost(message, optional, tag = "6")]
    pub until: Option<At>,
    #[prost(fixed64, repeated, tag = "7")]
    pub numbers: Vec<u64>,
    /// The answer has the same.
    #[prost(fixed64, tag = "8")]
    pub ticket: u64,
}

/// What is there in a stretch of addresses? (Level 12.)
#[derive(Clone, PartialEq, prost::Message)]
pub struct SketchAsk {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    /// Of the asked.
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    /// The answer has the same.
    #[prost(fixed64, tag = "3")]
    pub ticket: u64,
    #[prost(message, optional, tag = "4")]
    pub after: Option<At>,
    /// Of the first symbols: the asked says where it ends.
    #[prost(message, optional, tag = "5")]
    pub until: Option<At>,
    /// The first of the symbols that are asked for, and how many.
    #[prost(uint32, tag = "6")]
    pub from: u32,
    #[prost(uint32, tag = "7")]
    pub count: u32,
    /// How many cells it has.
    #[prost(uint32, tag = "8")]
    pub cells: u32,
    /// What the asked had seen when the transfer began.
    #[prost(message, repeated, tag = "9")]
    pub start: Vec<Ranges>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Sketch {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    #[prost(fixed64, tag = "3")]
    pub ticket: u64,
    /// None: there is no more.
    #[prost(message, optional, tag = "4")]
    pub until: Option<At>,
    #[prost(uint32, tag = "5")]
    pub cells: u32,
    /// Of the numbers of all cells: another one, and the symbols are of another set.
    #[prost(fixed64, tag = "6")]
    pub sum: u64,
    #[prost(uint32, tag = "7")]
    pub from: u32,
    /// Of each symbol.
    #[prost(fixed64, repeated, tag = "8")]
    pub sums: Vec<u64>,
    #[prost(fixed64, repeated, tag = "9")]
    pub checks: Vec<u64>,
    #[prost(sint64, repeated, tag = "10")]
    pub counts: Vec<i64>,
    #[prost(message, repeated, tag = "11")]
    pub context: Vec<Ranges>,
    /// Nothing was touched there since the transfer began.
    #[prost(bool, tag = "12")]
    pub is_quiet: bool,
}

/// All cells behind one address up to another: of others in between there is nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Page {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    #[prost(message, optional, tag = "3")]
    pub after: Option<At>,
    /// None: there is no more.
    #[prost(message, optional, tag = "4")]
    pub until: Option<At>,
    #[prost(message, repeated, tag = "5")]
    pub cells: Vec<Whole>,
    #[prost(message, repeated, tag = "6")]
    pub context: Vec<Ranges>,
    #[prost(message, repeated, tag = "7")]
    pub floor: Vec<Ranges>,
    /// As the question: of level 12.
    #[prost(bool, tag = "8")]
    pub differs: bool,
    #[prost(fixed64, tag = "9")]
    pub ticket: u64,
}

/// How far a reader of changes is. Read by nodes alone.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Cursor {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    #[prost(message, repeated, tag = "2")]
    pub told: Vec<Ranges>,
    #[prost(message, optional, tag = "3")]
    pub at: Option<At>,
    /// The life of a node, and of how many elements that were mended there it was told by then.
    #[prost(uint64, tag = "4")]
    pub node: u64,
    #[prost(uint64, tag = "5")]
    pub boot: u64,
    #[prost(uint64, tag = "6")]
    pub mended: u64,
}

/// A record of a checkpoint. Those before one with a commit belong to it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Kept {
    /// As they are then; each covers the updates since the checkpoint before that touched it.
    #[prost(message, repeated, tag = "1")]
    pub cells: Vec<Whole>,
    #[prost(message, optional, tag = "2")]
    pub commit: Option<Commit>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Commit {
    #[prost(message, repeated, tag = "1")]
    pub context: Vec<Ranges>,
    #[prost(message, repeated, tag = "2")]
    pub floor: Vec<Ranges>,
    /// By the writer's wall clock, milliseconds since 1970.
    #[prost(uint64, tag = "3")]
    pub wall_ms: u64,
}

pub fn ranges(of: impl IntoIterator<Item = Range>) -> Vec<Ranges> {
    let mut told: Vec<Ranges> = Vec::new();
    for Range { life, first, last } in of {
        match told.last_mut() {
            Some(of) if (of.node, of.boot) == (life.node.0, life.boot.0) => of.bounds.extend([first, last]),
            _ => told.push(Ranges { node: life.node.0, boot: life.boot.0, bounds: vec![first, last], sum: 0 }),
        }
    }
    told
}

/// All of a context.
pub fn tell(of: &Context) -> Vec<Ranges> {
    let folded = of.folded().map(|(node, Folded { below, sum })| Ranges {
        node: node.0,
        boot: 0,
        bounds: vec![1, below.0 - 1],
        sum,
    });
    folded.chain(ranges(of.ranges())).collect()
}

/// First and last in turn; none if that is no range.
pub fn pairs(life: Life, bounds: &[u64]) -> Option<Vec<Range>> {
    let (pairs, rest) = bounds.as_chunks::<2>();
    (rest.is_empty() && life.boot > Boot(0)).then_some(())?;
    pairs.iter().map(|[first, last]| Range::told(life, *first, *last)).collect()
}

pub fn context(told: &[Ranges]) -> Option<Context> {
    let mut context = Context::default();
    for Ranges { node, boot, bounds, sum } in told {
        if *boot == 0 {
            let [1, last @ 1..=SEQ_MAX] = bounds[..] else { return None };
            context.is_told_over(NodeId(*node), Folded { below: Boot(last + 1), sum: *sum });
            continue;
        }
        pairs(Life { node: NodeId(*node), boot: Boot(*boot) }, bounds)?
            .into_iter()
            .for_each(|r| context.insert_range(r));
    }
    Some(context)
}

pub fn dot(of: Dot) -> ADot {
    ADot { node: of.life.node.0, boot: of.life.boot.0, seq: of.seq }
}

pub fn dot_of(told: ADot) -> Option<Dot> {
    Dot::told(Life { node: NodeId(told.node), boot: Boot(told.boot) }, told.seq)
}

pub fn dots_of(told: &[ADot]) -> Option<Vec<Dot>> {
    (told.len() <= PARTS_MAX).then_some(())?;
    told.iter().map(|told| dot_of(*told)).collect()
}

impl From<&Address> for At {
    fn from(at: &Address) -> Self {
        Self { key: at.key.clone(), kind: at.kind as u32, element: at.element.clone() }
    }
}

impl At {
    pub fn read(self) -> Option<Address> {
        let kind = Kind::told(self.kind)?;
        (self.key.len() <= NAME_BYTES_MAX && self.element.len() <= NAME_BYTES_MAX).then_some(())?;
        Some(Address::new(self.key, kind, self.element))
    }
}

impl ACell {
    pub fn of(cell: &Cell, now: Time) -> Self {
        let sibling = |of: &Sibling| ASibling {
            dot: dot(of.dot),
            ms: of.stamp.ms,
            counter: of.stamp.counter,
            sum: of.sum,
            value: of.value.clone(),
            left: of.ends.map(|ends| ends.since(now).0),
            held: of.held,
        };
        let slot = |of: &Slot| ASlot {
            birth: dot(of.birth),
            last: of.last.seq,
            inc: of.inc,
            dec: of.dec,
            cut_inc: of.cut_inc,
            cut_dec: of.cut_dec,
        };
        Self {
            siblings: cell.siblings.iter().map(sibling).collect(),
            slots: cell.slots.iter().map(slot).collect(),
            gone: cell.gone.iter().copied().map(dot).collect(),
        }
    }

    /// None if no node can have such a cell, or bytes have changed on their way.
    pub fn read(self, now: Time) -> Option<Cell> {
        (self.siblings.len().max(self.slots.len()).max(self.gone.len()) <= PARTS_MAX).then_some(())?;
        let sibling = |told: ASibling| {
            let is_whole = told.value.as_ref().is_none_or(|value| Checksum(told.sum).matches(value));
            let is_short = told.value.as_ref().is_none_or(|value| value.len() <= VALUE_BYTES_MAX);
            (is_whole && is_short).then_some(())?;
            Some(Sibling {
                dot: dot_of(told.dot)?,
                stamp: Stamp { ms: told.ms, counter: told.counter },
                value: told.value,
                sum: told.sum,
                ends: told.left.map(|left| now + Span(left.min(END_MAX.0))),
                held: told.held,
            })
        };
        let slot = |told: ASlot| {
            let birth = dot_of(told.birth)?;
            let last = Dot::told(birth.life, told.last).filter(|last| *last >= birth)?;
            // A sum has the boot of no life.
            (birth.life.boot != Boot(0) || last == birth).then_some(())?;
            let ASlot { inc, dec, cut_inc, cut_dec, .. } = told;
            (cut_inc <= inc && cut_dec <= dec).then_some(Slot { birth, last, inc, dec, cut_inc, cut_dec })
        };
        let mut gone = dots_of(&self.gone)?;
        gone.sort_unstable();
        let siblings: Vec<Sibling> = self.siblings.into_iter().map(sibling).collect::<Option<_>>()?;
        let slots: Vec<Slot> = self.slots.into_iter().map(slot).collect::<Option<_>>()?;
        // Joins look for them by halves.
        let is_in_order = siblings.is_sorted_by(|a, b| a.dot < b.dot) && slots.is_sorted_by(|a, b| a.birth < b.birth);
        is_in_order.then_some(Cell { siblings, slots, gone })
    }
}
