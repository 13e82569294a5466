//! What is declared, and what a committed change does to it. Every member applies the same changes in the same order, so
//! this must give the same result everywhere: no clock, no chance, no limit that a node could set for itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Boot, NodeId, Parts};
use bytes::Bytes;

use super::wire::{self, WireState};
use crate::raft;

use super::limits::{CHANGE_BYTES_MAX, DECLARED_BYTES_MAX, NAME_BYTES_MAX, REMEMBERED_MAX};

/// All that operators declared, as this node knows it. Committed: no later leader takes any of it back.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Declared {
    /// Counts up with each change; 0 is a node that has not heard of the group yet.
    pub version: u64,
    /// (kind, name) to value, e.g. (`service`, `shop`).
    pub records: BTreeMap<(String, String), Bytes>,
}

/// A change: all of it happens, as one version, or nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Only if the declaration has this version.
    pub expect: Option<u64>,
    /// (kind, name, value).
    pub puts: Vec<(String, String, Bytes)>,
    /// (kind, name). What is not there is removed already.
    pub removes: Vec<(String, String)>,
}

/// The declaration was not the one the change expected. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The version it met.
    pub version: u64,
}

/// A proposal, for ever: a retry carries the same id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ChangeId {
    pub node: NodeId,
    pub boot: Boot,
    pub seq: u64,
}

/// What became of a change when it was applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Applied as this version.
    Applied(u64),
    Conflict(u64),
    /// The declaration would have grown past its limit.
    TooLarge,
    /// So old that its fate is forgotten: it may have been applied before, it is not applied now.
    Forgotten,
}

/// The declaration and the memory that makes changes happen once. This is what a snapshot holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct State {
    pub declared: Declared,
    /// Oldest first, at most `REMEMBERED_MAX`.
    pub remembered: VecDeque<(ChangeId, Verdict)>,
    /// Newest (boot, seq) that was dropped from `remembered`, per proposer.
    pub floors: BTreeMap<NodeId, (Boot, u64)>,
}

impl Declared {
    pub fn get(&self, kind: &str, name: &str) -> Option<&Bytes> {
        // A map of pairs of Strings is searched by a pair of Strings; this is no hot path.
        self.records.get(&(kind.to_owned(), name.to_owned()))
    }

    /// Names and values of a kind, by name.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a Bytes)> {
        let from = (kind.to_owned(), String::new());
        self.records
            .range(from..)
            .take_while(move |((k, _), _)| k == kind)
            .map(|((_, name), value)| (name.as_str(), value))
    }

    /// Bytes of all kinds, names and values.
    pub(super) fn size(&self) -> usize {
        self.records.iter().map(|((kind, name), value)| kind.len() + name.len() + value.len()).sum()
    }
}

impl Change {
    /// What is wrong with the change itself, whatever is declared.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut bytes = 0;
        let mut seen = BTreeSet::new();
        let puts = self.puts.iter().map(|(kind, name, value)| (kind, name, value.len()));
        for (kind, name, len) in puts.chain(self.removes.iter().map(|(kind, name)| (kind, name, 0))) {
            for word in [kind, name] {
                if word.is_empty() || word.len() > NAME_BYTES_MAX {
                    return Err(format!("{kind:?} {name:?}: kind and name must have 1 to {NAME_BYTES_MAX} bytes"));
                }
            }
            if !seen.insert((kind, name)) {
                return Err(format!("{kind} {name:?} stands twice in one change"));
            }
            bytes += kind.len() + name.len() + len;
        }
        if bytes > CHANGE_BYTES_MAX {
            return Err(format!("a change of {bytes} bytes is over the limit of {CHANGE_BYTES_MAX}"));
        }
        Ok(())
    }
}

impl State {
    /// The state of a new cluster: the first records, as version 1.
    pub fn founded(first: Change) -> Result<Self, String> {
        first.check()?;
        let mut state = State::default();
        match state.declared.apply(Change { expect: None, ..first }) {
            Verdict::Applied(_) => Ok(state),
            other => Err(format!("the first records cannot be applied: {other:?}")),
        }
    }

    /// What became of a proposal, if it was applied and is remembered.
    pub fn verdict(&self, id: ChangeId) -> Option<Verdict> {
        if let Some((_, verdict)) = self.remembered.iter().find(|(known, _)| *known == id) {
            return Some(*verdict);
        }
        let forgotten = self.floors.get(&id.node).is_some_and(|floor| (id.boot, id.seq) <= *floor);
        forgotten.then_some(Verdict::Forgotten)
    }

    /// Applies a committed change. The same id a second time changes nothing and gets the first verdict.
    pub fn apply(&mut self, id: ChangeId, change: Change) -> Verdict {
        if let Some(known) = self.verdict(id) {
            return known;
        }
        let verdict = self.declared.apply(change);
        self.remembered.push_back((id, verdict));
        while self.remembered.len() > REMEMBERED_MAX {
            let (old, _) = self.remembered.pop_front().expect("it is longer than its limit, so not empty");
            let floor = self.floors.entry(old.node).or_default();
            *floor = (*floor).max((old.boot, old.seq));
        }
        verdict
    }
}

impl raft::State for State {
    type Done = (ChangeId, Verdict);

    fn apply(&mut self, _index: u64, data: Bytes, done: &mut Vec<Self::Done>) -> raft::Applied {
        let Some((id, change)) = wire::decode_change(data) else { return raft::Applied::Senseless };
        let verdict = State::apply(self, id, change);
        done.push((id, verdict));
        raft::Applied::Yes
    }

    fn parts(&self) -> Parts {
        Parts::of(vec![WireState::bytes(self)])
    }

    fn from_parts(parts: Vec<Bytes>) -> Option<Self> {
        match <[Bytes; 1]>::try_from(parts) {
            Ok([only]) => WireState::parse(only),
            Err(_) => None,
        }
    }

    fn bytes(&self) -> usize {
        self.declared.size()
    }
}

impl Declared {
    pub(super) fn apply(&mut self, change: Change) -> Verdict {
        if change.expect.is_some_and(|expected| expected != self.version) {
            return Verdict::Conflict(self.version);
        }
        let mut records = self.records.clone();
        for key in change.removes {
            records.remove(&key);
        }
        for (kind, name, value) in change.puts {
            records.insert((kind, name), value);
        }
        let next = Declared { version: self.version + 1, records };
        if next.size() > DECLARED_BYTES_MAX && next.size() > self.size() {
            return Verdict::TooLarge;
        }
        *self = next;
        Verdict::Applied(self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(seq: u64) -> ChangeId {
        ChangeId { node: NodeId(1), boot: Boot(1), seq }
    }

    fn put(expect: Option<u64>, name: &str, value: &'static [u8]) -> Change {
        Change { expect, puts: vec![("service".into(), name.into(), Bytes::from_static(value))], removes: vec![] }
    }

    #[test]
    fn a_change_happens_whole_once_and_only_at_the_version_it_expects() {
        let mut state = State::default();
        assert_eq!(state.apply(id(1), put(None, "shop", b"1")), Verdict::Applied(1));
        assert_eq!(state.apply(id(2), put(Some(7), "shop", b"2")), Verdict::Conflict(1));
        assert_eq!(state.apply(id(1), put(None, "shop", b"3")), Verdict::Applied(1), "the first verdict, again");
        assert_eq!(state.declared.get("service", "shop"), Some(&Bytes::from_static(b"1")));
        let both = Change { removes: vec![("service".into(), "shop".into())], ..put(Some(1), "chat", b"4") };
        assert_eq!(state.apply(id(3), both), Verdict::Applied(2));
        assert_eq!(state.declared.of_kind("service").map(|(name, _)| name).collect::<Vec<_>>(), ["chat"]);
    }

    #[test]
    fn an_id_that_was_forgotten_is_never_applied_again() {
        let mut state = State::default();
        for seq in 1..=REMEMBERED_MAX as u64 + 1 {
            state.apply(id(seq), put(None, "shop", b"1"));
        }
        let version = state.declared.version;
        assert_eq!(state.apply(id(1), put(None, "shop", b"again")), Verdict::Forgotten);
        assert_eq!(state.declared.version, version);
        assert_eq!(state.apply(id(2), put(None, "shop", b"again")), Verdict::Applied(2), "still remembered");
        assert_eq!(state.remembered.len(), REMEMBERED_MAX);
    }

    #[test]
    fn a_change_past_the_limit_changes_nothing_but_shrinking_always_works() {
        let mut state = State::default();
        let mebi = Bytes::from(vec![0; CHANGE_BYTES_MAX - 20]);
        let big = |n: usize| Change { puts: vec![("s".into(), format!("n{n}"), mebi.clone())], ..Change::default() };
        let verdicts: Vec<_> = (1..=10).map(|n| state.apply(id(n as u64), big(n))).collect();
        assert_eq!(verdicts[7], Verdict::Applied(8));
        assert_eq!(verdicts[8..], [Verdict::TooLarge; 2]);
        let less = Change { removes: vec![("s".into(), "n1".into())], ..Change::default() };
        assert_eq!(state.apply(id(20), less), Verdict::Applied(9));
    }

    #[test]
    fn wrong_changes_are_named() {
        let check = |change: Change| change.check().unwrap_err();
        assert!(check(put(None, "", b"")).contains("1 to 256 bytes"));
        let twice = Change { removes: vec![("service".into(), "shop".into())], ..put(None, "shop", b"1") };
        assert!(check(twice).contains("twice"));
        let large = Bytes::from(vec![0; CHANGE_BYTES_MAX]);
        let large = Change { puts: vec![("s".into(), "n".into(), large)], ..Change::default() };
        assert!(check(large).contains("over the limit"));
    }
}
