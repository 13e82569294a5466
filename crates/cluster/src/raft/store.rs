//! Raft's log in memory, and what was applied from it. The disk follows behind (`record.rs`); what is not yet on it has
//! not been promised to anybody.

use std::cell::RefCell;
use std::cmp;
use std::collections::BTreeMap;

use raft::eraftpb as pb;
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use base::{NodeId, Parts};

use super::State;
use super::limits::ENTRY_BYTES;

/// Invariant: `entries` are consecutive and begin right after `base`; `base` <= `applied` <= last index.
#[derive(Default)]
pub(crate) struct Store<S> {
    pub state: S,
    /// The group as of `applied`.
    pub conf: pb::ConfState,
    pub hard: pb::HardState,
    applied: Position,
    /// What is no longer in `entries` ends here.
    base: Position,
    entries: Vec<pb::Entry>,
    /// What `entries` take, about.
    entry_bytes: usize,
    /// Nobody gets a snapshot, and the disk none, until what was before the last entries is safe elsewhere.
    pub held: bool,
    /// Snapshots that raft asked for and has not sent yet, by member.
    frozen: RefCell<BTreeMap<u64, (u64, Parts)>>,
}

#[derive(Clone, Copy, Default)]
struct Position {
    index: u64,
    term: u64,
}

impl<S: State> Store<S> {
    /// The log of a new group. It begins with a snapshot, so that whoever joins gets one before anything else.
    pub fn founded(voters: &[NodeId], state: S) -> Self {
        let mut store = Self::default();
        let mut voters: Vec<u64> = voters.iter().map(|id| id.0).collect();
        voters.sort_unstable();
        store.install(state, pb::ConfState { voters, ..pb::ConfState::default() }, 1, 1);
        store
    }

    /// The snapshot that raft took for a member, if it is the one of this index.
    pub fn take_frozen(&self, to: u64, index: u64) -> Option<Parts> {
        self.frozen.borrow_mut().remove(&to).filter(|(at, _)| *at == index).map(|(_, parts)| parts)
    }

    /// Index and term of the last applied entry.
    pub fn applied(&self) -> (u64, u64) {
        (self.applied.index, self.applied.term)
    }

    pub fn last(&self) -> u64 {
        self.entries.last().map_or(self.base.index, |entry| entry.index)
    }

    /// Entries after this index that are still here.
    pub fn after(&self, index: u64) -> &[pb::Entry] {
        let skip = index.saturating_sub(self.base.index).min(self.entries.len() as u64);
        &self.entries[skip as usize..]
    }

    /// Takes over a snapshot: nothing of before counts.
    pub fn install(&mut self, state: S, conf: pb::ConfState, index: u64, term: u64) {
        self.applied = Position { index, term };
        self.base = self.applied;
        self.entries.clear();
        self.entry_bytes = 0;
        self.state = state;
        self.conf = conf;
        self.hard.term = cmp::max(self.hard.term, term);
        self.hard.commit = cmp::max(self.hard.commit, index);
    }

    pub fn append(&mut self, entries: &[pb::Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(first.index > self.applied.index, "entry {} would undo what is applied", first.index);
        assert!(first.index <= self.last() + 1, "entry {} leaves a gap after {}", first.index, self.last());
        let stay = (first.index - self.base.index - 1) as usize;
        self.entry_bytes -= self.entries[stay..].iter().map(bytes_of).sum::<usize>();
        self.entries.truncate(stay);
        self.entries.extend_from_slice(entries);
        self.entry_bytes += entries.iter().map(bytes_of).sum::<usize>();
    }

    /// Append from a disk, which may hold anything.
    pub fn append_checked(&mut self, entry: pb::Entry) -> Result<(), String> {
        let last = self.last();
        if entry.index <= self.base.index || entry.index > last + 1 {
            return Err(format!("has entry {}, which does not follow {last}", entry.index));
        }
        let before = self.term(entry.index - 1).unwrap_or(0);
        if entry.term < before {
            return Err(format!("has entry {} of term {}, after one of term {before}", entry.index, entry.term));
        }
        self.append(&[entry]);
        Ok(())
    }

    /// After each step from a disk: raft stops the process over a commit index outside its log.
    pub fn check(&self) -> Result<(), String> {
        if self.hard.commit < self.base.index || self.hard.commit > self.last() {
            let (base, last) = (self.base.index, self.last());
            return Err(format!("commits entry {}, the log has {base} to {last}", self.hard.commit));
        }
        Ok(())
    }

    pub fn applied_to(&mut self, entry: &pb::Entry) {
        self.applied = Position { index: entry.index, term: entry.term };
    }

    /// Drops applied entries but for the last `keep`.
    pub fn compact(&mut self, keep: u64) {
        let upto = self.applied.index.saturating_sub(keep);
        if upto <= self.base.index {
            return;
        }
        let term = self.term(upto).expect("it lies between base and last");
        let gone = self.entries.drain(..(upto - self.base.index) as usize);
        self.entry_bytes -= gone.map(|entry| bytes_of(&entry)).sum::<usize>();
        self.base = Position { index: upto, term };
    }

    /// Drops the oldest applied entries where all take more than twice so many bytes, until they take no more than those, but for the
    /// last `keep`. Who is further behind gets a snapshot.
    pub fn forget(&mut self, room: usize, keep: u64) {
        let most = self.applied.index.saturating_sub(keep);
        // Not one by one: each time what stays is moved.
        if self.held || self.entry_bytes <= 2 * room || most < self.base.index + keep / 4 + 1 {
            return;
        }
        let (mut upto, mut bytes) = (self.base.index, self.entry_bytes);
        for entry in self.entries.iter().take_while(|entry| entry.index <= most) {
            if bytes <= room {
                break;
            }
            (upto, bytes) = (entry.index, bytes - bytes_of(entry));
        }
        self.compact(self.applied.index - upto);
    }
}

fn bytes_of(entry: &pb::Entry) -> usize {
    entry.data.len() + ENTRY_BYTES
}

impl<S: State> Storage for Store<S> {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.conf.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<pb::Entry>> {
        if low <= self.base.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let mut entries = self.after(low - 1)[..(high - low) as usize].to_vec();
        raft::util::limit_size(&mut entries, max_size.into());
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.base.index {
            return Ok(self.base.term);
        }
        if index < self.base.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        match self.after(index - 1).first() {
            Some(entry) => Ok(entry.term),
            None => Err(Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<pb::Snapshot> {
        if self.applied.index < request_index || self.held {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        self.frozen.borrow_mut().insert(to, (self.applied.index, self.state.parts()));
        let mut snapshot = pb::Snapshot::default();
        let meta = snapshot.mut_metadata();
        meta.index = self.applied.index;
        meta.term = self.applied.term;
        *meta.mut_conf_state() = self.conf.clone();
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::Applied;
    use super::*;

    #[derive(Default)]
    struct Nothing;

    impl State for Nothing {
        type Done = ();

        fn apply(&mut self, _index: u64, _data: Bytes, _done: &mut Vec<()>) -> Applied {
            Applied::Yes
        }

        fn parts(&self) -> Parts {
            Parts::of(Vec::new())
        }

        fn from_parts(_parts: Vec<Bytes>) -> Option<Self> {
            Some(Self)
        }

        fn bytes(&self) -> usize {
            0
        }
    }

    fn entry(index: u64, bytes: usize) -> pb::Entry {
        pb::Entry { index, term: 1, data: vec![0; bytes].into(), ..pb::Entry::default() }
    }

    /// Under a constant load it grew for hours, until the log on the disk was long enough for a snapshot.
    #[test]
    fn entries_in_memory_are_bounded_by_bytes_however_many_are_written_and_the_last_ones_stay() {
        let (room, keep) = (1 << 20, 100);
        let mut store = Store::founded(&[NodeId(1)], Nothing);
        for index in 2..20_000 {
            store.append(&[entry(index, 200)]);
            // The last three are not applied yet.
            if index > 4 {
                store.applied_to(&entry(index - 3, 0));
            }
            store.forget(room, keep);
            assert!(store.entry_bytes <= 2 * room + 1_000, "{} bytes at {index}", store.entry_bytes);
            let sum: usize = store.entries.iter().map(bytes_of).sum();
            assert!(index % 1_000 > 0 || sum == store.entry_bytes);
        }
        assert!(store.entry_bytes > room / 2 && store.after(store.applied().0 - keep).len() as u64 == keep + 3);
        assert_eq!((store.last(), store.term(19_000)), (19_999, Ok(1)));
        assert!(store.entries(5, 6, None, GetEntriesContext::empty(false)).is_err(), "who is there gets a snapshot");

        // However large they are, so many stay; and all of what may have to happen again.
        let mut store = Store::founded(&[NodeId(1)], Nothing);
        for index in 2..300 {
            store.append(&[entry(index, 1 << 16)]);
            store.applied_to(&entry(index, 0));
            store.forget(room, keep);
        }
        assert!((100..130).contains(&store.entries.len()), "{}", store.entries.len());
        let mut held = Store::founded(&[NodeId(1)], Nothing);
        held.held = true;
        for index in 2..300 {
            held.append(&[entry(index, 1 << 16)]);
            held.applied_to(&entry(index, 0));
            held.forget(room, keep);
        }
        assert_eq!(held.entries.len(), 298);
    }
}
