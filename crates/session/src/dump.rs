//! How a namespace is dumped and loaded (`class/src/dump/mod.rs`): its keys are walked, and each is read as it is then.
//! So a dump is of no one moment: a value that is there throughout is in it, as it was at some moment between begin
//! and end. Values by cookie are not: only who has the cookie finds them, and the keys that seal cookies are in no
//! dump.

use std::sync::Arc;

use base::{Priority, Span};
use bytes::Bytes;
use class::dump::{Item, ItemKind, Record, Walk, Walked};

use super::Kind;
use super::doc::{Doc, Form};
use super::limits::{DUMP_GETS, DUMP_KEYS};
use super::op::{Action, Lease, Op, Reply, When};

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
    fn op(&self, key: Bytes, action: Action) -> Op {
        Op { priority: Priority::LOWEST, ..Op::keyed(Arc::clone(&self.space), key, action) }
    }
}

impl Walked for Keys {
    type Op = Op;
    type Reply = Reply;
    const READS: usize = DUMP_GETS;

    fn page(&self, cursor: u64) -> Op {
        self.op(Bytes::new(), Action::Scan { cursor, count: DUMP_KEYS })
    }

    fn read(&self, key: Bytes) -> Op {
        self.op(key, Action::Get)
    }

    fn keys(reply: Reply) -> Option<(u64, Vec<Bytes>)> {
        let Reply::Page { cursor, keys } = reply else { return None };
        Some((cursor, keys.into_iter().map(|(key, _)| key).collect()))
    }

    fn item(key: Bytes, reply: Reply, wall_ms: u64) -> Option<Option<Item>> {
        match reply {
            Reply::Value { value, kind, lease_left, .. } => {
                Some(Some(item(key, value, kind, wall_ms.saturating_add(lease_left.as_millis()))))
            }
            // It has ended since it was walked over.
            Reply::Absent | Reply::Lost => Some(None),
            _ => None,
        }
    }
}

fn item(key: Bytes, value: Bytes, kind: Kind, end_ms: u64) -> Item {
    let doc = Doc::hash(&value).filter(|doc| kind == Kind::Hash && !doc.is_empty());
    let (kind, values) = match doc {
        Some(doc) => {
            (ItemKind::Hash, doc.fields().iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect())
        }
        None => (ItemKind::Text, vec![value]),
    };
    Item { key, kind, end_ms: Some(end_ms), token: 0, values }
}

/// What puts this back.
pub fn load(space: &Arc<str>, record: &Record, wall_ms: u64) -> Result<Option<Op>, String> {
    let Record::Item(item) = record else { return Ok(None) };
    let left = match item.end_ms.map(|end| end.saturating_sub(wall_ms)) {
        Some(0) => return Ok(None),
        Some(left) => Lease::For(Span::millis(left)),
        None => Lease::Default,
    };
    let (value, kind) = match (item.kind, &item.values[..]) {
        (ItemKind::Text, [text]) => (text.clone(), Kind::Text),
        (ItemKind::Hash, pairs) => {
            let fields = pairs.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
            (Doc::of(Form::Hash, fields.collect()).write(), Kind::Hash)
        }
        (kind, _) => return Err(format!("class session has no values of type {}", kind.name())),
    };
    let action = Action::Put { value, kind, lease: left, when: When::Always, want_old: false };
    let op = Op::keyed(Arc::clone(space), item.key.clone(), action);
    Ok(Some(Op { priority: Priority::LOWEST, ..op }))
}

pub fn loaded(reply: &Reply) -> Result<(), String> {
    match reply {
        Reply::Stored { .. } => Ok(()),
        _ => Err("it was not stored".into()),
    }
}

#[cfg(test)]
mod tests {
    use class::dump::{Dump as _, Part};

    use super::*;
    use crate::Version;

    #[test]
    fn keys_are_walked_over_and_read_and_what_is_loaded_is_what_was_read() {
        let mut dump = dump("carts".into());
        let keys = |from: usize, to: usize| (from..to).map(|n| (Bytes::from(format!("k{n}")), Kind::Text)).collect();
        assert!(matches!(dump.asks()[..], [Op { action: Action::Scan { cursor: 0, .. }, .. }]));
        let begun = dump.take(vec![Reply::Page { cursor: 9, keys: keys(0, DUMP_GETS + 1) }], 1_000).unwrap();
        assert_eq!(begun, [Record::Part(Part { from: 0, to: u64::MAX, version: 0 })]);
        let hash = Doc::of(Form::Hash, vec![("f".into(), "v".into())]).write();
        let version = Version::default();
        let value =
            |value: &Bytes, kind| Reply::Value { value: value.clone(), kind, version, lease_left: Span::secs(5) };
        assert_eq!(dump.asks().len(), DUMP_GETS);
        assert_eq!(dump.asks().len(), DUMP_GETS, "asked again");
        let mut replies = vec![Reply::Absent; DUMP_GETS];
        (replies[0], replies[1]) = (value(&hash, Kind::Hash), value(&hash, Kind::Text));
        let read = dump.take(replies, 1_000).unwrap();
        let [Record::Item(first), Record::Item(second)] = &read[..] else { panic!("{read:?}") };
        assert_eq!((first.kind, second.kind, first.end_ms), (ItemKind::Hash, ItemKind::Text, Some(6_000)));
        assert_eq!(dump.asks().len(), 1);
        assert!(dump.take(vec![Reply::Lost], 1_000).unwrap().is_empty());
        assert!(matches!(dump.asks()[..], [Op { action: Action::Scan { cursor: 9, .. }, .. }]));
        dump.take(vec![Reply::Page { cursor: 0, keys: Vec::new() }], 1_000).unwrap();
        assert!(dump.asks().is_empty());

        for (record, of) in read.iter().zip([Kind::Hash, Kind::Text]) {
            let op = load(&"carts".into(), record, 4_000).unwrap().unwrap();
            let lease = Lease::For(Span::secs(2));
            let put = Action::Put { value: hash.clone(), kind: of, lease, when: When::Always, want_old: false };
            assert_eq!(op.action, put);
            assert!(load(&"carts".into(), record, 6_000).unwrap().is_none(), "it has ended");
        }
        let list = Item { kind: ItemKind::List, ..second.clone() };
        assert!(load(&"carts".into(), &Record::Item(list), 1_000).is_err());
    }
}
