//! The root group on disk: records of the node's one log. A record is one byte of version, one byte of type, and a prost
//! message. A log starts with a snapshot or is empty but for what a member received before it had one; steps follow, and
//! an entry with an index that was there replaces that entry and all after it.
//!
//! A step is one record, because a power cut may leave any number of whole records. With its commit index alone on disk,
//! an old entry at the same index, which a new leader had just replaced, would count as committed. With its entries
//! alone, a member could know a change of the group without knowing that the one before it is committed.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use raft::eraftpb as pb;

use super::machine::StartError;
use super::store::Store;
use super::wire::{WireEntry, WireHardState, WireSnapshot, WireStep};

const VERSION: u8 = 1;
const SNAPSHOT: u8 = 1;
const STEP: u8 = 2;

fn record(kind: u8, message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(2 + message.encoded_len());
    bytes.put_u8(VERSION);
    bytes.put_u8(kind);
    message.encode_raw(&mut bytes);
    bytes.freeze()
}

/// What raft wants on disk at once; none if nothing.
pub(super) fn step(hard: Option<&pb::HardState>, entries: &[pb::Entry]) -> Option<Bytes> {
    let step = WireStep { hard: hard.map(WireHardState::from), entries: entries.iter().map(WireEntry::from).collect() };
    (step != WireStep::default()).then(|| record(STEP, &step))
}

/// The whole log in its shortest form: what is applied as a snapshot, and what is not yet.
pub(super) fn whole(store: &Store) -> Vec<Bytes> {
    let (index, term) = store.applied();
    let mut records = Vec::new();
    if index > 0 {
        records.push(record(SNAPSHOT, &WireSnapshot::new(&store.state, &store.conf, index, term)));
    }
    records.extend(step(Some(&store.hard), store.after(index)));
    records
}

/// Builds the log in memory from what the disk has kept.
pub(super) fn load(records: Vec<Bytes>) -> Result<Store, StartError> {
    let mut store = Store::default();
    for (n, bytes) in records.into_iter().enumerate() {
        one(&mut store, n, bytes).map_err(|why| StartError::Log { record: n, why })?;
    }
    Ok(store)
}

fn one(store: &mut Store, n: usize, mut bytes: Bytes) -> Result<(), String> {
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
            let wire = WireSnapshot::decode(Bytes::copy_from_slice(&bytes)).map_err(damaged)?;
            let state = wire.state.and_then(|s| s.take()).ok_or("is a snapshot without a state")?;
            let conf = wire.conf.and_then(|c| c.take()).ok_or("is a snapshot without a group")?;
            store.install(state, conf, wire.index, wire.term);
            Ok(())
        }
        SNAPSHOT => Err("is a snapshot that does not come first".to_owned()),
        STEP => {
            let step = WireStep::decode(bytes).map_err(damaged)?;
            for wire in step.entries {
                let entry = wire.take().ok_or("has an entry of a type that this program does not know")?;
                store.append_checked(entry)?;
            }
            store.hard = step.hard.map_or(std::mem::take(&mut store.hard), WireHardState::take);
            store.check()
        }
        other => Err(format!("has type {other}, which this program does not know")),
    }
}
