//! How a namespace is dumped and loaded (`class/src/dump/mod.rs`): the keys that one node knows are walked over, and each is read as it is
//! then. So a dump is of no one moment. A key that nodes made at one moment as different things is dumped as the one that it is shown as.

use std::sync::Arc;

use base::{Now, Priority, Span, Time};
use bytes::Bytes;
use class::dump::{Item, ItemKind, Record, Walk, Walked};

use crate::limits::{DUMP_GETS, DUMP_KEYS};
use crate::op::{Action, Kind, Op, Reply, Side, Whole};
use crate::space::{Address, Space};

/// What the walk over a namespace asks and makes of the answers.
#[derive(Debug)]
pub struct Keys {
    space: Arc<str>,
}

pub type Dump = Walk<Keys>;

/// The dump of a namespace.
pub fn dump(space: Arc<str>) -> Dump {
    Walk::new(Keys { space })
}

impl Keys {
    fn op(&self, action: Action) -> Op {
        Op { priority: Priority::LOWEST, ..Op::of(Arc::clone(&self.space), action) }
    }
}

impl Walked for Keys {
    type Op = Op;
    type Reply = Reply;
    const READS: usize = DUMP_GETS;

    fn page(&self, cursor: u64) -> Op {
        self.op(Action::Scan { cursor, count: DUMP_KEYS })
    }

    fn read(&self, key: Bytes) -> Op {
        self.op(Action::Whole { key })
    }

    fn keys(reply: Reply) -> Option<(u64, Vec<Bytes>)> {
        let Reply::Page { cursor, keys } = reply else { return None };
        Some((cursor, keys.into_iter().map(|(key, _)| key).collect()))
    }

    fn item(key: Bytes, reply: Reply, wall_ms: u64) -> Option<Option<Item>> {
        match reply {
            Reply::Whole(Whole { kind, mut values, left }) => {
                if kind == Kind::Score {
                    values.iter_mut().skip(1).step_by(2).for_each(|score| *score = score_text(score));
                }
                let end_ms = left.map(|left| wall_ms.saturating_add(left.as_millis()));
                Some(Some(Item { key, kind: item_kind(kind)?, end_ms, token: 0, values }))
            }
            // It has gone since it was walked over.
            Reply::NoKey => Some(None),
            _ => None,
        }
    }
}

/// A score, eight bytes, as text, as all classes' dumps have it.
fn score_text(score: &Bytes) -> Bytes {
    <[u8; 8]>::try_from(&score[..]).map_or_else(|_| score.clone(), |bits| f64::from_be_bytes(bits).to_string().into())
}

fn score_of(text: &Bytes) -> Option<Bytes> {
    let score: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!score.is_nan()).then(|| Bytes::copy_from_slice(&score.to_be_bytes()))
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
        ItemKind::Lease | ItemKind::Ledger | ItemKind::Stream | ItemKind::HashEnding | ItemKind::Queue => {
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
    let mut values = item.values.clone();
    if kind == Kind::Score {
        for score in values.iter_mut().skip(1).step_by(2) {
            *score = score_of(score).ok_or_else(|| format!("{score:?} in the dump is no score"))?;
        }
    }
    let whole = Whole { kind, values, left };
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
