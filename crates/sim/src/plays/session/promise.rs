//! The `session` class, keyed: an acknowledged write is readable until its lease ends while fewer than WQ of its bricks
//! failed since, and a read never returns an older value than the last write acknowledged before the read began.
//!
//! Every write stores a value of its own, so a read names the write it saw. Writes whose end is unknown, and writes
//! under way, may show or not. Which nodes are a key's bricks is not known here: every node counts as one, which is
//! exact for three nodes and forgives too much for more.

use std::collections::{BTreeMap, BTreeSet};

use base::{Span, Time};
use state::session::Version;

use crate::promises::Broken;

const STALE: &str = "never a stale read";
const READABLE: &str = "an acknowledged session write is readable while fewer than 2 of its bricks failed";
const TRUE: &str = "a read returns what was written";

/// What a condition that did not hold may leave visible for a moment (state: undo is kept 2 s).
const RESIDUE_MAX: Span = Span::secs(4);
/// Leases end by clocks that differ by some hundred parts per million, and at a brick's reading of them.
const LEASE_SLACK: Span = Span::millis(300);

/// Names a write, and the value it stores.
pub type WriteId = u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    Put {
        lease: Span,
    },
    /// Keeps the value; its lease counts anew.
    Touch {
        lease: Span,
    },
    Remove,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Open,
    Acked {
        version: Option<Version>,
    },
    Unknown,
    /// Its condition did not hold.
    NotStored,
    Refused,
}

/// What a read found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// `intact`: the bytes are those of that write.
    Value {
        id: WriteId,
        version: Version,
        intact: bool,
    },
    Absent,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    what: What,
    start: Time,
    /// Never, for one that may still take effect.
    end: Time,
    ended: Ended,
}

/// The newest write acknowledged by a moment.
#[derive(Clone, Copy, Debug)]
struct Newest {
    by: Time,
    id: WriteId,
    /// Of all acknowledged by then that the bricks still hold for sure.
    start: Time,
    version: Option<Version>,
}

#[derive(Default)]
struct History {
    writes: BTreeMap<WriteId, Write>,
    /// Acknowledged ones, in order of their ends.
    acked: Vec<(Time, WriteId)>,
    /// Those that may take effect at any later time.
    open: BTreeSet<WriteId>,
    /// In order of `by`; only writes begun after `Sessions::void_before`.
    newest: Vec<Newest>,
}

/// Built by [`Sessions::of`].
#[derive(Default)]
pub struct Sessions {
    keys: BTreeMap<String, History>,
    /// Nodes whose memory went, and when; until they are filled again.
    failed: BTreeMap<usize, Time>,
    /// Failures that may lose a write: WQ, but a lone node has one copy of it.
    losing: usize,
    /// So many bricks failed since then: writes that began before are not promised any more.
    void_before: Time,
    /// Reads that were compared with a write that had to be seen.
    pub judged: u64,
    /// Reads of keys for which nothing was promised at that moment.
    pub excused: u64,
}

impl Sessions {
    /// For a cluster of so many nodes.
    pub fn of(nodes: usize) -> Self {
        Self { losing: nodes.min(2), ..Self::default() }
    }

    pub fn begin(&mut self, key: &str, id: WriteId, what: What, start: Time) {
        let write = Write { what, start, end: Time::NEVER, ended: Ended::Open };
        let history = match self.keys.get_mut(key) {
            Some(history) => history,
            None => self.keys.entry(key.to_owned()).or_default(),
        };
        let before = history.writes.insert(id, write);
        assert!(before.is_none(), "write {id} began twice");
        history.open.insert(id);
    }

    pub fn end(&mut self, key: &str, id: WriteId, at: Time, ended: Ended) -> Result<(), Broken> {
        let void_before = self.void_before;
        let history = self.keys.get_mut(key).expect("a write that ends began");
        let write = history.writes.get_mut(&id).expect("a write that ends began");
        write.ended = ended;
        if !matches!(ended, Ended::Open | Ended::Unknown) {
            history.open.remove(&id);
        }
        let Ended::Acked { version } = ended else { return Ok(()) };
        write.end = at;
        let write = *write;
        history.acked.push((at, id));
        if matches!(write.what, What::Touch { .. }) || write.start <= void_before {
            return Ok(());
        }
        let newest = history.newest_by(write.start);
        // What has ended by its lease may be followed by an older version: nobody can read it any more.
        let ended = newest.is_some_and(|newest| history.may_be_absent(newest, write.start));
        let before = newest.and_then(|newest| newest.version);
        if let (Some(version), Some(before)) = (version, before)
            && version <= before
        {
            if ended {
                history.forget_before(write.start);
                history.acked(at, id, write.start, Some(version));
                return Ok(());
            }
            let what = format!("{key}: write {id} got version {version} after {before} was acknowledged");
            return Err(Broken { promise: STALE, at, what });
        }
        history.acked(at, id, write.start, version);
        Ok(())
    }

    /// A node's memory is gone.
    pub fn died(&mut self, node: usize, at: Time) {
        self.failed.insert(node, at);
        let mut deaths: Vec<Time> = self.failed.values().copied().collect();
        deaths.sort_unstable();
        // With two that may lose a write: what began before the last death but one.
        if let Some(void_before) = deaths.len().checked_sub(self.losing).map(|n| deaths[n])
            && void_before > self.void_before
        {
            self.void_before = void_before;
            self.keys.values_mut().for_each(|history| history.forget_before(void_before));
        }
    }

    /// A node's brick holds again all that it should.
    pub fn filled(&mut self, node: usize) {
        self.failed.remove(&node);
    }

    pub fn failed(&self) -> &BTreeMap<usize, Time> {
        &self.failed
    }

    /// Writes that began by then are not promised any more.
    pub fn void_before(&self) -> Time {
        self.void_before
    }

    /// Judges a read that is done.
    pub fn read(&mut self, key: &str, start: Time, at: Time, found: Found) -> Result<(), Broken> {
        let broken = |promise, what: String| Err(Broken { promise, at, what: format!("{key}: {what}") });
        let empty = History::default();
        let history = self.keys.get(key).unwrap_or(&empty);
        let newest = history.newest_by(start);
        match newest {
            Some(_) => self.judged += 1,
            None => self.excused += 1,
        }
        match found {
            Found::Value { id, version, intact } => {
                let Some(write) = history.writes.get(&id) else {
                    return broken(TRUE, format!("a read shows write {id}, which never began"));
                };
                if !intact || !matches!(write.what, What::Put { .. }) {
                    return broken(TRUE, format!("a read shows other bytes than write {id} stored: {write:?}"));
                }
                let undone = write.ended == Ended::NotStored && start.since(write.start) > RESIDUE_MAX;
                if write.ended == Ended::Refused || undone {
                    return broken(TRUE, format!("a read shows write {id}, which did not happen: {write:?}"));
                }
                let Some(newest) = newest else { return Ok(()) };
                if write.end < newest.start {
                    let what = format!("a read begun at {start:?} shows write {id} ({write:?}), newest is {newest:?}");
                    return broken(STALE, what);
                }
                if newest.version.is_some_and(|newest| version < newest) {
                    return broken(
                        STALE,
                        format!("a read begun at {start:?} shows write {id}, {version}; newest is {newest:?}"),
                    );
                }
            }
            Found::Absent | Found::Lost => {
                let Some(newest) = newest else { return Ok(()) };
                if !history.may_be_absent(newest, at) {
                    let what = format!("a read begun at {start:?} found {found:?}, newest is {newest:?}");
                    return broken(READABLE, what);
                }
            }
        }
        Ok(())
    }

    /// Keys that some write began for.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }
}

impl History {
    /// The newest write of those acknowledged before a moment.
    fn newest_by(&self, moment: Time) -> Option<&Newest> {
        self.newest[..self.newest.partition_point(|newest| newest.by < moment)].last()
    }

    fn acked(&mut self, by: Time, id: WriteId, start: Time, version: Option<Version>) {
        let last = self.newest.last().copied();
        let (id, start) = last.filter(|last| last.start > start).map_or((id, start), |last| (last.id, last.start));
        let version = version.max(last.and_then(|last| last.version));
        self.newest.push(Newest { by, id, start, version });
    }

    fn forget_before(&mut self, moment: Time) {
        self.newest.clear();
        let mut kept: Vec<(Time, WriteId, Time, Option<Version>)> = Vec::new();
        for (id, write) in &self.writes {
            let counts = write.start > moment && !matches!(write.what, What::Touch { .. });
            if let (Ended::Acked { version }, true) = (write.ended, counts) {
                kept.push((write.end, *id, write.start, version));
            }
        }
        kept.sort_unstable();
        kept.into_iter().for_each(|(by, id, start, version)| self.acked(by, id, start, version));
    }

    /// Whether some write not before the newest acknowledged one removed the value, or its lease may have ended.
    fn may_be_absent(&self, newest: &Newest, at: Time) -> bool {
        let from = self.writes[&newest.id].start;
        let acked = self.acked[self.acked.partition_point(|(end, _)| *end < from)..].iter().map(|(_, id)| id);
        acked.chain(&self.open).map(|id| &self.writes[id]).filter(|write| write.start <= at).any(|write| {
            match write.what {
                What::Remove => true,
                What::Put { lease } | What::Touch { lease } => {
                    let certain = Span(lease.0 - lease.0 / 500);
                    write.start + certain < at + LEASE_SLACK
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::NodeId;

    const HOUR: Span = Span::secs(3600);

    fn version(ms: u64) -> Version {
        Version { ms, counter: 1, node: NodeId(1) }
    }

    fn value(id: WriteId) -> Found {
        Found::Value { id, version: version(id), intact: true }
    }

    /// Writes 1 (from 10 to 20) and 2 (from 30 to 40), both acknowledged.
    fn two_writes() -> Sessions {
        let mut sessions = Sessions::of(3);
        for id in [1, 2] {
            put(&mut sessions, id, id * 20 - 10, Ended::Acked { version: Some(version(id)) });
        }
        sessions
    }

    fn put(sessions: &mut Sessions, id: WriteId, start: u64, ended: Ended) {
        sessions.begin("k", id, What::Put { lease: HOUR }, Time(start));
        sessions.end("k", id, Time(start + 10), ended).unwrap();
    }

    fn read(sessions: &mut Sessions, start: u64, found: Found) -> Result<(), &'static str> {
        sessions.read("k", Time(start), Time(start + 5), found).map_err(|broken| broken.promise)
    }

    #[test]
    fn an_older_value_than_the_last_acknowledged_is_stale() {
        let mut sessions = two_writes();
        assert_eq!(read(&mut sessions, 50, value(2)), Ok(()));
        assert_eq!(read(&mut sessions, 50, value(1)), Err(STALE));
        assert_eq!(read(&mut sessions, 35, value(1)), Ok(()), "write 2 was under way");
        assert_eq!(read(&mut sessions, 35, value(2)), Ok(()));
        put(&mut sessions, 3, 60, Ended::Unknown);
        assert_eq!(read(&mut sessions, 100, value(2)), Ok(()));
        assert_eq!(read(&mut sessions, 100, value(3)), Ok(()));
        let old = Found::Value { id: 3, version: version(0), intact: true };
        assert_eq!(read(&mut sessions, 100, old), Err(STALE), "by its version, though its end is unknown");
    }

    #[test]
    fn an_acknowledged_write_must_be_found_while_one_brick_failed() {
        let mut sessions = two_writes();
        assert_eq!(read(&mut sessions, 50, Found::Absent), Err(READABLE));
        sessions.died(0, Time(60));
        assert_eq!(read(&mut sessions, 70, Found::Lost), Err(READABLE));
        sessions.filled(0);
        sessions.died(1, Time(80));
        assert_eq!(read(&mut sessions, 90, Found::Absent), Err(READABLE), "the first was filled before");
        sessions.died(2, Time(100));
        assert_eq!(read(&mut sessions, 110, Found::Lost), Ok(()));
        assert_eq!(read(&mut sessions, 110, value(1)), Ok(()));
        put(&mut sessions, 3, 120, Ended::Acked { version: Some(version(3)) });
        assert_eq!(read(&mut sessions, 140, Found::Lost), Err(READABLE), "a write after the failures counts again");
    }

    #[test]
    fn a_lone_node_holds_the_only_copy() {
        let mut sessions = Sessions::of(1);
        put(&mut sessions, 1, 10, Ended::Acked { version: Some(version(1)) });
        assert_eq!(read(&mut sessions, 50, Found::Absent), Err(READABLE));
        sessions.died(0, Time(60));
        assert_eq!(read(&mut sessions, 70, Found::Absent), Ok(()));
    }

    #[test]
    fn a_write_between_two_failures_has_lost_one_brick_only() {
        let mut sessions = two_writes();
        sessions.died(0, Time(60));
        put(&mut sessions, 3, 70, Ended::Acked { version: Some(version(3)) });
        sessions.died(1, Time(90));
        assert_eq!(read(&mut sessions, 100, Found::Absent), Err(READABLE));
        assert_eq!(read(&mut sessions, 100, value(2)), Err(STALE));
    }

    #[test]
    fn removals_and_ended_leases_explain_absence() {
        let mut sessions = two_writes();
        sessions.begin("k", 3, What::Remove, Time(50));
        assert_eq!(read(&mut sessions, 55, Found::Absent), Ok(()), "under way");
        sessions.end("k", 3, Time(60), Ended::Acked { version: None }).unwrap();
        assert_eq!(read(&mut sessions, 70, Found::Absent), Ok(()));
        assert_eq!(read(&mut sessions, 70, value(2)), Err(STALE));
        put(&mut sessions, 4, 80, Ended::Acked { version: Some(version(4)) });
        assert_eq!(read(&mut sessions, 100, Found::Absent), Err(READABLE));
        sessions.begin("k", 5, What::Touch { lease: Span::secs(1) }, Time(110));
        sessions.end("k", 5, Time(120), Ended::Acked { version: None }).unwrap();
        assert_eq!(read(&mut sessions, 130, Found::Absent), Err(READABLE));
        assert_eq!(read(&mut sessions, 1_200_000, Found::Absent), Ok(()));
    }

    #[test]
    fn bytes_that_nobody_wrote_and_refused_writes_are_seen() {
        let mut sessions = two_writes();
        assert_eq!(read(&mut sessions, 50, value(9)), Err(TRUE));
        assert_eq!(read(&mut sessions, 50, Found::Value { id: 2, version: version(2), intact: false }), Err(TRUE));
        put(&mut sessions, 3, 60, Ended::Refused);
        assert_eq!(read(&mut sessions, 100, value(3)), Err(TRUE));
        put(&mut sessions, 4, 70, Ended::NotStored);
        assert_eq!(read(&mut sessions, 100, value(4)), Ok(()), "for a moment");
        assert_eq!(read(&mut sessions, 5_000_000, value(4)), Err(TRUE));
    }

    #[test]
    fn a_later_write_with_an_older_version_is_seen() {
        let mut sessions = two_writes();
        sessions.begin("k", 3, What::Put { lease: HOUR }, Time(50));
        let ended = sessions.end("k", 3, Time(60), Ended::Acked { version: Some(version(1)) });
        assert_eq!(ended.map_err(|broken| broken.promise), Err(STALE));
    }
}
