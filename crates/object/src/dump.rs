//! How a namespace is dumped and loaded (`class/src/dump/mod.rs`): its owners are walked over, of each one the list of its objects, and
//! each object is read. So a dump is of no one moment: an object that is there throughout is in it, with bytes that its checksum fits.
//!
//! While so many nodes are silent that an object could be on them alone, there is no dump: it would lack objects and not say so.

use std::collections::VecDeque;
use std::sync::Arc;

use base::checksum::Checksum;
use base::{NodeId, Priority};
use bytes::{BufMut, Bytes, BytesMut};
use class::dump::{self, Item, ItemKind, Part, Record};

use crate::limits::{DUMP_GETS, LIST_MAX};
use crate::op::{Action, List, Op, Owners, Reply};
use crate::{Id, NotAnId};

/// A namespace that is being read out.
#[derive(Debug)]
pub struct Dump {
    space: Arc<str>,
    /// Behind whom the walk over owners goes on; none: it is over.
    owners_after: Option<Bytes>,
    owners: VecDeque<Bytes>,
    /// Behind which object the list of the first owner goes on; none: it is all here.
    list_after: Option<Option<Id>>,
    /// Objects of the first owner that are yet to be read; the last one is next.
    ids: Vec<Id>,
    /// Objects that are being read.
    reading: Vec<Id>,
    /// Objects among those that are larger than one answer, and read one after the other.
    large: Vec<Id>,
    /// The one of them that is being read, and what there is of it.
    partial: Option<Partial>,
    has_begun: bool,
    /// An object is on so many nodes.
    copies: u32,
}

#[derive(Debug)]
struct Partial {
    id: Id,
    /// What it is, as its first piece said.
    is: Option<(u32, u32)>,
    body: BytesMut,
}

impl Partial {
    fn new(id: Id) -> Self {
        Self { id, is: None, body: BytesMut::new() }
    }

    /// The next piece. True: that was the last one, and all together are what they should be.
    fn takes(&mut self, size: u32, sum: u32, piece: &Bytes) -> bool {
        // Another write took its place while it was read.
        if *self.is.get_or_insert((size, sum)) != (size, sum) {
            *self = Self::new(self.id);
            return false;
        }
        self.body.extend_from_slice(piece);
        if self.body.len() < size as usize && !piece.is_empty() {
            return false;
        }
        let is_sound = self.body.len() == size as usize && Checksum::of(&self.body).0 == sum;
        if !is_sound {
            *self = Self::new(self.id);
        }
        is_sound
    }
}

impl Dump {
    pub fn new(space: Arc<str>) -> Self {
        Self {
            space,
            owners_after: Some(Bytes::new()),
            owners: VecDeque::new(),
            list_after: None,
            ids: Vec::new(),
            reading: Vec::new(),
            large: Vec::new(),
            partial: None,
            has_begun: false,
            copies: 1,
        }
    }

    fn op(&self, owner: Bytes, action: Action) -> Op {
        Op { namespace: Arc::clone(&self.space), owner, action, priority: Priority::LOWEST }
    }

    /// Whether those who were silent could have what nobody else has.
    fn check(&self, missing: &[NodeId]) -> Result<(), String> {
        if missing.len() < self.copies as usize {
            return Ok(());
        }
        Err(format!(
            "{} nodes do not say what they have, and an object is on {}: some could be missing; dump again when they are back",
            missing.len(),
            self.copies
        ))
    }
}

impl dump::Dump for Dump {
    type Op = Op;
    type Reply = Reply;

    fn asks(&mut self) -> Vec<Op> {
        let has_large = self.partial.is_some() || !self.large.is_empty();
        if self.ids.is_empty() && self.reading.is_empty() && !has_large && self.list_after.is_none() {
            // The first owner is done, or there was none.
            if self.has_begun {
                self.owners.pop_front();
            }
            if self.owners.is_empty() {
                let after = self.owners_after.clone();
                let walk = |after| self.op(after, Action::Owners { limit: LIST_MAX });
                return after.map(walk).into_iter().collect();
            }
            self.list_after = Some(None);
        }
        let Some(owner) = self.owners.front().cloned() else { return Vec::new() };
        if self.partial.is_none() {
            self.partial = self.large.pop().map(Partial::new);
        }
        if let Some(Partial { id, body, .. }) = &self.partial {
            return vec![self.op(owner, Action::Get { id: *id, at: body.len() as u32 })];
        }
        if self.reading.is_empty() {
            self.reading = self.ids.split_off(self.ids.len().saturating_sub(DUMP_GETS));
        }
        match (self.reading.is_empty(), self.list_after) {
            (true, Some(after)) => vec![self.op(owner, Action::List { after, limit: LIST_MAX })],
            _ => self.reading.iter().map(|id| self.op(owner.clone(), Action::Get { id: *id, at: 0 })).collect(),
        }
    }

    fn take(&mut self, replies: Vec<Reply>, _: u64) -> Result<Vec<Record>, String> {
        let odd = || "a node answered with what was not asked".to_owned();
        let mut records = Vec::new();
        if self.owners.is_empty() {
            let Some(Reply::Owners(Owners { owners, after, missing, copies })) = replies.into_iter().next() else {
                return Err(odd());
            };
            if !self.has_begun {
                records.push(Record::Part(Part { from: 0, to: u64::MAX, version: 0 }));
            }
            self.copies = copies;
            self.check(&missing)?;
            (self.owners, self.owners_after) = (owners.into(), after);
            // In front of those: the one that is done.
            self.has_begun = true;
            self.owners.push_front(Bytes::new());
            return Ok(records);
        }
        if let Some(partial) = &mut self.partial {
            match replies.into_iter().next() {
                Some(Reply::Object { size, sum, body, .. }) => {
                    if partial.takes(size, sum, &body)
                        && let Some(Partial { id, body, .. }) = self.partial.take()
                    {
                        records.push(item(self.owners.front(), id, body.freeze()));
                    }
                }
                Some(Reply::Gone | Reply::Absent) => self.partial = None,
                _ => return Err(odd()),
            }
            return Ok(records);
        }
        if self.reading.is_empty() {
            let Some(Reply::List(List { objects, after, missing })) = replies.into_iter().next() else {
                return Err(odd());
            };
            self.check(&missing)?;
            self.ids = objects.iter().rev().map(|object| object.id).collect();
            self.list_after = after.map(Some);
            return Ok(records);
        }
        for (id, reply) in std::mem::take(&mut self.reading).into_iter().zip(replies) {
            match reply {
                Reply::Object { size, body, .. } if body.len() < size as usize => self.large.push(id),
                Reply::Object { body, .. } => records.push(item(self.owners.front(), id, body)),
                // It was deleted since it was listed.
                Reply::Gone | Reply::Absent => (),
                _ => return Err(odd()),
            }
        }
        Ok(records)
    }
}

fn item(owner: Option<&Bytes>, id: Id, body: Bytes) -> Record {
    let key = key(owner.unwrap_or(&Bytes::new()), id);
    Record::Item(Item { key, kind: ItemKind::Text, end_ms: None, token: 0, values: vec![body] })
}

/// As an object is called in a dump: `OWNER/ID`.
fn key(owner: &Bytes, id: Id) -> Bytes {
    let mut key = BytesMut::from(&owner[..]);
    key.put_u8(b'/');
    key.put_slice(id.to_string().as_bytes());
    key.freeze()
}

fn read_key(key: &Bytes) -> Option<(Bytes, Id)> {
    let at = key.iter().rposition(|byte| *byte == b'/')?;
    let id: Result<Id, NotAnId> = std::str::from_utf8(&key[at + 1..]).ok()?.parse();
    Some((key.slice(..at), id.ok()?))
}

/// What puts this back.
pub fn load(space: &Arc<str>, record: &Record) -> Result<Option<Op>, String> {
    let Record::Item(item) = record else { return Ok(None) };
    let (Some((owner, id)), ItemKind::Text, [body]) = (read_key(&item.key), item.kind, &item.values[..]) else {
        return Err("class object has objects alone: OWNER/ID with their bytes".into());
    };
    let action = Action::Put { id, body: body.clone().into() };
    Ok(Some(Op { namespace: Arc::clone(space), owner, action, priority: Priority::LOWEST }))
}

pub fn loaded(reply: &Reply) -> Result<(), String> {
    match reply {
        Reply::Stored { .. } => Ok(()),
        Reply::Gone => {
            Err("an object of the dump was deleted here, and that is final: load it --as another namespace".into())
        }
        Reply::Conflict { .. } => {
            Err("an object of the dump has other bytes here, and objects are written once".into())
        }
        _ => Err("it was not stored".into()),
    }
}

#[cfg(test)]
mod tests {
    use class::Version;
    use class::dump::Dump as _;

    use super::*;
    use crate::Listed;

    fn owners(owners: &[&'static str], after: Option<&'static str>, missing: Vec<NodeId>) -> Reply {
        let owners = owners.iter().map(|owner| Bytes::from_static(owner.as_bytes())).collect();
        let after = after.map(|owner| Bytes::from_static(owner.as_bytes()));
        Reply::Owners(Owners { owners, after, missing, copies: 2 })
    }

    fn list(ids: &[u8], after: Option<u8>) -> Reply {
        let listed = |n: &u8| Listed { id: Id([*n; 16]), version: Version::default(), size: 1 };
        let after = after.map(|n| Id([n; 16]));
        Reply::List(List { objects: ids.iter().map(listed).collect(), after, missing: vec![NodeId(3)] })
    }

    fn object(text: &'static str) -> Reply {
        part(text, 0..text.len())
    }

    /// A piece of an object.
    fn part(text: &'static str, range: std::ops::Range<usize>) -> Reply {
        let (size, sum) = (text.len() as u32, Checksum::of(text.as_bytes()).0);
        Reply::Object { version: Version::default(), size, sum, body: Bytes::from_static(&text.as_bytes()[range]) }
    }

    fn asked(dump: &mut Dump) -> Vec<(String, Action)> {
        let owner = |op: &Op| String::from_utf8(op.owner.to_vec()).unwrap();
        dump.asks().into_iter().map(|op| (owner(&op), op.action)).collect()
    }

    #[test]
    fn owners_and_their_lists_are_walked_over_in_pages_and_each_object_is_read() {
        let mut dump = Dump::new("mail".into());
        let id = |n: u8| Id([n; 16]);
        assert_eq!(asked(&mut dump), [(String::new(), Action::Owners { limit: LIST_MAX })]);
        let first = dump.take(vec![owners(&["ann", "a/b"], Some("bob"), vec![NodeId(3)])], 0).unwrap();
        assert_eq!(first, [Record::Part(Part { from: 0, to: u64::MAX, version: 0 })]);
        assert_eq!(asked(&mut dump), [("ann".into(), Action::List { after: None, limit: LIST_MAX })]);
        assert!(dump.take(vec![list(&[1, 2], Some(2))], 0).unwrap().is_empty());
        let gets = [
            ("ann".to_owned(), Action::Get { id: id(2), at: 0 }),
            ("ann".to_owned(), Action::Get { id: id(1), at: 0 }),
        ];
        assert_eq!(asked(&mut dump), gets);
        assert_eq!(asked(&mut dump), gets, "asked again");
        let read = dump.take(vec![object("two"), Reply::Gone], 0).unwrap();
        let [Record::Item(item)] = &read[..] else { panic!("{read:?}") };
        assert_eq!((&item.key[..4], &item.values[0][..]), (&b"ann/"[..], &b"two"[..]));
        assert_eq!(asked(&mut dump), [("ann".into(), Action::List { after: Some(id(2)), limit: LIST_MAX })]);
        assert!(dump.take(vec![list(&[], None)], 0).unwrap().is_empty());
        assert_eq!(asked(&mut dump), [("a/b".into(), Action::List { after: None, limit: LIST_MAX })]);
        dump.take(vec![list(&[7], None)], 0).unwrap();
        assert_eq!(asked(&mut dump), [("a/b".into(), Action::Get { id: id(7), at: 0 })]);
        let read = dump.take(vec![object("seven")], 0).unwrap();
        let Some(op) = load(&"other".into(), &read[0]).unwrap() else { panic!("it is put") };
        assert_eq!((&op.owner[..], &*op.namespace), (&b"a/b"[..], "other"));
        assert_eq!(op.action, Action::Put { id: id(7), body: Bytes::from_static(b"seven").into() });
        assert_eq!(asked(&mut dump), [("bob".into(), Action::Owners { limit: LIST_MAX })]);
        dump.take(vec![owners(&[], None, vec![])], 0).unwrap();
        assert_eq!(asked(&mut dump), []);
    }

    #[test]
    fn what_is_in_pieces_is_read_one_after_the_other_and_begun_anew_when_it_changed_meanwhile() {
        let mut dump = Dump::new("mail".into());
        let id = |n: u8| Id([n; 16]);
        let at = |n: u8, at: u32| [("ann".to_owned(), Action::Get { id: id(n), at })];
        dump.asks();
        dump.take(vec![owners(&["ann"], None, vec![])], 0).unwrap();
        dump.asks();
        dump.take(vec![list(&[1, 2, 3], None)], 0).unwrap();
        assert_eq!(asked(&mut dump).len(), 3);
        let read = dump.take(vec![part("three!", 0..4), object("two"), part("first", 0..4)], 0).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(asked(&mut dump), at(1, 0));
        assert_eq!(dump.take(vec![part("first", 0..4)], 0).unwrap(), []);
        assert_eq!(asked(&mut dump), at(1, 4));
        assert_eq!(asked(&mut dump), at(1, 4), "asked again");
        // Another write stands there now.
        assert_eq!(dump.take(vec![part("other", 4..5)], 0).unwrap(), []);
        assert_eq!(asked(&mut dump), at(1, 0));
        dump.take(vec![part("other", 0..4)], 0).unwrap();
        asked(&mut dump);
        let read = dump.take(vec![part("other", 4..5)], 0).unwrap();
        let [Record::Item(item)] = &read[..] else { panic!("{read:?}") };
        assert_eq!(item.values, [Bytes::from_static(b"other")]);
        assert_eq!(asked(&mut dump), at(3, 0));
        assert_eq!(dump.take(vec![Reply::Gone], 0).unwrap(), []);
        assert_eq!(asked(&mut dump), [(String::new(), Action::Owners { limit: LIST_MAX })][..0]);
    }

    #[test]
    fn where_objects_could_be_missing_there_is_no_dump() {
        let mut dump = Dump::new("mail".into());
        dump.asks();
        let error = dump.take(vec![owners(&["ann"], None, vec![NodeId(2), NodeId(3)])], 0).unwrap_err();
        assert!(error.contains("2 nodes"), "{error}");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        let item = |key: &'static str, kind, values: &[&'static str]| {
            let values = values.iter().map(|value| Bytes::from_static(value.as_bytes())).collect();
            load(&"mail".into(), &Record::Item(Item { key: key.into(), kind, end_ms: None, token: 0, values })).is_ok()
        };
        let good = "ann/01010101010101010101010101010101";
        assert!(item(good, ItemKind::Text, &["x"]));
        assert!(!item(good, ItemKind::List, &["x"]) && !item(good, ItemKind::Text, &[]));
        assert!(!item("ann", ItemKind::Text, &["x"]) && !item("ann/01", ItemKind::Text, &["x"]));
        assert!(loaded(&Reply::Gone).unwrap_err().contains("final"));
    }
}
