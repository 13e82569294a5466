//! A group on disk: its records of the node's one log. A record is one byte of version, one byte of type, and what the
//! type says. A log starts with a snapshot or is empty but for what a member received before it had one; steps follow, and
//! an entry with an index that was there replaces that entry and all after it.
//!
//! ```text
//! snapshot   prost message: group, index, term; the first part of the state; whether more parts follow
//! part       u8 1 if it is the last, bytes
//! step       prost message: vote and commit index, entries
//! ```
//! A step is one record, because a power cut may leave any number of whole records. With its commit index alone on disk,
//! an old entry at the same index, which a new leader had just replaced, would count as committed. With its entries
//! alone, a member could know a change of the group without knowing that the one before it is committed.

use base::{Parts, Record};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{self, WireType};
use raft::eraftpb as pb;

use super::store::Store;
use super::wire::{WireEntry, WireHardState, WireSnapshot, WireStep};
use super::{LogError, State};

const VERSION: u8 = 1;
const SNAPSHOT: u8 = 1;
const STEP: u8 = 2;
const PART: u8 = 3;
/// The tag of an entry's data.
const DATA: u32 = 4;
/// Data of so many bytes is handed on without a copy.
const SHARED_BYTES_MIN: usize = 1 << 10;

fn record(kind: u8, message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(2 + message.encoded_len());
    bytes.put_u8(VERSION);
    bytes.put_u8(kind);
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

/// What raft wants on disk at once; none if nothing. The bytes of a [`WireStep`], with large data as it lies in memory.
pub(crate) fn step(hard: Option<&pb::HardState>, entries: &[pb::Entry]) -> Option<Record> {
    if hard.is_none() && entries.is_empty() {
        return None;
    }
    let (mut record, mut out) = (Record::default(), BytesMut::new());
    out.put_slice(&[VERSION, STEP]);
    if let Some(hard) = hard {
        encoding::message::encode(1, &WireHardState::from(hard), &mut out);
    }
    for entry in entries {
        if entry.data.len() < SHARED_BYTES_MIN {
            encoding::message::encode(2, &WireEntry::from(entry), &mut out);
            continue;
        }
        // Its data is the last of its fields.
        let (head, len) = (WireEntry::without_data(entry), entry.data.len());
        let data = encoding::key_len(DATA) + encoding::encoded_len_varint(len as u64) + len;
        encoding::encode_key(2, WireType::LengthDelimited, &mut out);
        encoding::encode_varint((head.encoded_len() + data) as u64, &mut out);
        head.encode_raw(&mut out);
        encoding::encode_key(DATA, WireType::LengthDelimited, &mut out);
        encoding::encode_varint(len as u64, &mut out);
        record.push(out.split().freeze());
        record.push(entry.data.clone());
    }
    record.push(out.freeze());
    Some(record)
}

/// The whole log in its shortest form: what is applied as a snapshot, and what is not yet.
pub(crate) fn whole<S: State>(store: &Store<S>) -> Parts {
    let (index, term) = store.applied();
    let rest = step(Some(&store.hard), store.after(index)).map(Bytes::from);
    if index == 0 {
        return Parts(Box::new(rest.into_iter()));
    }
    let mut parts = store.state.parts().0.peekable();
    let conf = Some((&store.conf).into());
    let mut head = Some(WireSnapshot { conf, index, term, ..WireSnapshot::default() });
    let snapshot = std::iter::from_fn(move || {
        if let Some(mut head) = head.take() {
            head.state = parts.next();
            head.more = parts.peek().is_some();
            return Some(record(SNAPSHOT, &head));
        }
        let part = parts.next()?;
        let mut bytes = BytesMut::with_capacity(3 + part.len());
        bytes.put_slice(&[VERSION, PART, u8::from(parts.peek().is_none())]);
        bytes.put_slice(&part);
        Some(bytes.freeze())
    });
    Parts(Box::new(snapshot.chain(rest)))
}

/// Builds the log in memory from what the disk has kept.
pub(crate) fn load<S: State>(records: Vec<Bytes>) -> Result<Store<S>, LogError> {
    let mut loading = Loading { store: Store::default(), head: None };
    let count = records.len();
    for (n, bytes) in records.into_iter().enumerate() {
        loading.one(n, bytes).map_err(|why| LogError { record: n, why })?;
    }
    match loading.head {
        None => Ok(loading.store),
        Some(_) => {
            Err(LogError { record: count, why: "should be the next part of a snapshot, and is not there".into() })
        }
    }
}

struct Loading<S> {
    store: Store<S>,
    /// A snapshot whose parts still come.
    head: Option<(WireSnapshot, Vec<Bytes>)>,
}

impl<S: State> Loading<S> {
    fn one(&mut self, n: usize, mut bytes: Bytes) -> Result<(), String> {
        if bytes.len() < 2 {
            return Err(format!("is cut short: {} bytes", bytes.len()));
        }
        let head = bytes.split_to(2);
        if head[0] != VERSION {
            return Err(format!("has format {}, this program knows {VERSION}", head[0]));
        }
        let damaged = |_| "is damaged".to_owned();
        match head[1] {
            SNAPSHOT if n == 0 => {
                let mut wire = WireSnapshot::decode(bytes).map_err(damaged)?;
                let first = wire.state.take().ok_or("is a snapshot without a state")?;
                self.head = Some((wire, vec![first]));
                self.install_if_whole()
            }
            SNAPSHOT => Err("is a snapshot that does not come first".to_owned()),
            PART => {
                let (wire, parts) = self.head.as_mut().ok_or("is a part of no snapshot")?;
                if bytes.is_empty() {
                    return Err("is cut short".into());
                }
                wire.more = bytes.get_u8() == 0;
                parts.push(bytes);
                self.install_if_whole()
            }
            _ if self.head.is_some() => Err("stands between the parts of a snapshot".into()),
            STEP => {
                let step = WireStep::decode(bytes).map_err(damaged)?;
                for wire in step.entries {
                    let entry = wire.take(true).ok_or("has an entry of a type that this program does not know")?;
                    self.store.append_checked(entry)?;
                }
                self.store.hard = step.hard.map_or(std::mem::take(&mut self.store.hard), WireHardState::take);
                self.store.check()
            }
            other => Err(format!("has type {other}, which this program does not know")),
        }
    }

    fn install_if_whole(&mut self) -> Result<(), String> {
        let Some((wire, parts)) = self.head.take_if(|(wire, _)| !wire.more) else { return Ok(()) };
        let state = S::from_parts(parts).ok_or("is a snapshot whose state makes no sense")?;
        let conf = wire.conf.and_then(|c| c.take()).ok_or("is a snapshot without a group")?;
        self.store.install(state, conf, wire.index, wire.term);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_step_are_the_bytes_of_its_message() {
        let entry = |index, len: usize| pb::Entry {
            entry_type: if index == 2 { pb::EntryType::EntryConfChangeV2 } else { pb::EntryType::EntryNormal },
            term: 3,
            index,
            data: Bytes::from(vec![index as u8; len]),
            ..pb::Entry::default()
        };
        let hard = pb::HardState { term: 300, vote: 2, commit: 1 << 40, ..pb::HardState::default() };
        let sizes = [0, 1, SHARED_BYTES_MIN - 1, SHARED_BYTES_MIN, 20_000, 3 << 20];
        for first in 0..sizes.len() {
            let entries: Vec<_> = (1..).zip(&sizes[first..]).map(|(index, len)| entry(index, *len)).collect();
            for hard in [None, Some(&hard)] {
                let wire = WireStep {
                    hard: hard.map(WireHardState::from),
                    entries: entries.iter().map(WireEntry::from).collect(),
                };
                let pieces = step(hard, &entries).unwrap();
                assert!(pieces.pieces().iter().any(|piece| piece.as_ptr() == entries.last().unwrap().data.as_ptr()));
                assert_eq!(Bytes::from(pieces), record(STEP, &wire));
            }
        }
    }
}
