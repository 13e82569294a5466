//! How a namespace is dumped and loaded (`class/src/dump.rs`): the keys that one node knows are walked over, and each is read as it is
//! then. So a dump is of no one moment. A key that nodes made at one moment as different things is dumped as the one that it is shown as.

use std::sync::Arc;

use base::{Now, Priority, Span, Time};
use bytes::Bytes;
use class::dump::{self, Item, ItemKind, Part, Record};

use crate::limits::{DUMP_GETS, DUMP_KEYS};
use crate::op::{Action, Kind, Op, Reply, Side, Whole};
use crate::space::{Address, Space};

/// A namespace that is being read out.
#[derive(Debug)]
pub struct Dump {
    space: Arc<str>,
    /// Where the walk goes on; none: it is over.
    cursor: Option<u64>,
    /// Keys that were walked over and are yet to be read; the last one is next.
    keys: Vec<Bytes>,
    /// Those that are being read.
    reading: Vec<Bytes>,
    has_begun: bool,
}

impl Dump {
    pub fn new(space: Arc<str>) -> Self {
        Self { space, cursor: Some(0), keys: Vec::new(), reading: Vec::new(), has_begun: false }
    }

    fn op(&self, action: Action) -> Op {
        Op { priority: Priority::LOWEST, ..Op::of(Arc::clone(&self.space), action) }
    }
}

impl dump::Dump for Dump {
    type Op = Op;
    type Reply = Reply;

    fn asks(&mut self) -> Vec<Op> {
        if self.reading.is_empty() {
            self.reading = self.keys.split_off(self.keys.len().saturating_sub(DUMP_GETS));
        }
        if self.reading.is_empty() {
            let scan = |cursor| self.op(Action::Scan { cursor, count: DUMP_KEYS });
            return self.cursor.map(scan).into_iter().collect();
        }
        self.reading.iter().map(|key| self.op(Action::Whole { key: key.clone() })).collect()
    }

    fn take(&mut self, replies: Vec<Reply>, wall_ms: u64) -> Result<Vec<Record>, String> {
        let odd = || "the node answered with what was not asked".to_owned();
        let mut records = Vec::new();
        if !self.has_begun {
            self.has_begun = true;
            records.push(Record::Part(Part { from: 0, to: u64::MAX, version: 0 }));
        }
        if self.reading.is_empty() {
            let Some(Reply::Page { cursor, keys }) = replies.into_iter().next() else { return Err(odd()) };
            self.cursor = (cursor != 0).then_some(cursor);
            self.keys = keys.into_iter().map(|(key, _)| key).collect();
            return Ok(records);
        }
        for (key, reply) in std::mem::take(&mut self.reading).into_iter().zip(replies) {
            match reply {
                Reply::Whole(Whole { kind, values, left }) => {
                    let kind = item_kind(kind).ok_or_else(odd)?;
                    let end_ms = left.map(|left| wall_ms.saturating_add(left.as_millis()));
                    records.push(Record::Item(Item { key, kind, end_ms, token: 0, values }));
                }
                // It has gone since it was walked over.
                Reply::NoKey => (),
                _ => return Err(odd()),
            }
        }
        Ok(records)
    }
}

fn item_kind(kind: Kind) -> Option<ItemKind> {
    Some(match kind {
        Kind::End => return None,
        Kind::Register => ItemKind::Text,
        Kind::Field => ItemKind::Hash,
        Kind::Member => ItemKind::Set,
        Kind::Score => ItemKind::Sorted,
        Kind::Item => ItemKind::List,
    })
}

/// What puts this back.
pub fn load(space: &Arc<str>, record: &Record, wall_ms: u64) -> Result<Option<Op>, String> {
    let Record::Item(item) = record else { return Ok(None) };
    let left = match item.end_ms.map(|end| end.saturating_sub(wall_ms)) {
        Some(0) => return Ok(None),
        left => left.map(Span::millis),
    };
    let kind = match item.kind {
        ItemKind::Text => Kind::Register,
        ItemKind::Hash => Kind::Field,
        ItemKind::Set => Kind::Member,
        ItemKind::Sorted => Kind::Score,
        ItemKind::List => Kind::Item,
        ItemKind::Lease | ItemKind::Ledger | ItemKind::Stream => {
            return Err(format!("class soft has no values of type {}", item.kind.name()));
        }
    };
    let is_whole = match kind {
        Kind::Register => item.values.len() == 1,
        Kind::Field | Kind::Score => item.values.len().is_multiple_of(2),
        _ => true,
    };
    if !is_whole {
        return Err(format!("a {} in the dump has half a value", item.kind.name()));
    }
    let whole = Whole { kind, values: item.values.clone(), left };
    let op = Op::of(Arc::clone(space), Action::Load { key: item.key.clone(), whole });
    Ok(Some(Op { priority: Priority::LOWEST, ..op }))
}

pub fn loaded(reply: &Reply) -> Result<(), String> {
    match reply {
        Reply::Done => Ok(()),
        _ => Err("it was not stored".into()),
    }
}

impl Space {
    /// A key with all that it has.
    pub(crate) fn whole(&self, now: Time, key: &Bytes) -> Option<Whole> {
        let kind = self.kind(now, key)?;
        let left = self.end_of(key).map(|(ends, _)| ends.since(now));
        let values = match kind {
            Kind::Item => self.items(key).map(|item| item.value).collect(),
            _ => {
                let all = self.all(now, kind, key).into_iter();
                match kind {
                    Kind::Register => all.map(|(_, value)| value.unwrap_or_default()).collect(),
                    Kind::Member => all.map(|(element, _)| element).collect(),
                    _ => all.flat_map(|(element, value)| [element, value.unwrap_or_default()]).collect(),
                }
            }
        };
        Some(Whole { kind, values, left })
    }

    /// Puts this in the place of all that the key has. False: there was no room for all items of a list.
    pub(crate) fn load(&mut self, now: Now, key: Bytes, whole: Whole) -> bool {
        self.remove(now, &key);
        let Whole { kind, values, left } = whole;
        let is_whole = match kind {
            Kind::Item => {
                let count = values.len();
                count == 0 || self.push(now, &key, Side::Right, values) == Some(count)
            }
            Kind::Register => {
                let pairs = values.into_iter().take(1).map(|value| (Bytes::new(), Some(value)));
                self.put_all(now, kind, key.clone(), pairs.collect());
                true
            }
            Kind::Member => {
                let pairs = values.into_iter().map(|member| (member, None)).collect();
                self.put_all(now, kind, key.clone(), pairs);
                true
            }
            _ => {
                let pairs = values.chunks_exact(2).map(|pair| (pair[0].clone(), Some(pair[1].clone()))).collect();
                self.put_all(now, kind, key.clone(), pairs);
                true
            }
        };
        if let Some(left) = left {
            self.put(now, &Address::first(key), Some((None, Some(now.mono + left))));
        }
        is_whole
    }
}
