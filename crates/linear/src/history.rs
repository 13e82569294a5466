//! The last changes of a space, for those who watch it: bounded, in memory, made by applying entries. So every member
//! has them, and a new leader goes on where the old one was. It is no part of the state that is agreed on: a copy that
//! was read from a snapshot begins its history there.

use std::collections::VecDeque;

use bytes::Bytes;

use super::limits::{HISTORY_BYTES_MAX, HISTORY_CHANGES_MAX, HISTORY_VALUE_BYTES_MAX};
use super::value::Value;

/// A key, or all keys, changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The revision of the group that it made; of several together the last one.
    pub version: u64,
    /// Of all keys: empty.
    pub key: Bytes,
    pub what: What,
    /// The function that made it; empty where time did.
    pub by: &'static str,
}

#[derive(Clone, PartialEq, Debug)]
pub enum What {
    /// It holds a value of this type; with the value itself if it is a text that is not too long to keep.
    Put {
        kind: &'static str,
        text: Option<Bytes>,
    },
    Removed,
    /// Its time had come.
    Ended,
    /// All keys were removed.
    Cleared,
}

impl What {
    pub fn put(value: &Value) -> Self {
        let text = match value {
            Value::Text(text) if text.len() <= HISTORY_VALUE_BYTES_MAX => Some(text.clone()),
            _ => None,
        };
        What::Put { kind: value.type_name(), text }
    }

    pub fn name(&self) -> &'static str {
        match self {
            What::Put { kind, .. } => kind,
            What::Removed => "removed",
            What::Ended => "ended",
            What::Cleared => "cleared",
        }
    }
}

/// Invariant: by version, all changes above `since`.
#[derive(Default)]
pub struct History {
    since: u64,
    changes: VecDeque<Change>,
    bytes: usize,
}

/// What a change costs beside its key and value.
const CHANGE_BYTES: usize = 64;

impl Change {
    fn bytes(&self) -> usize {
        let text = if let What::Put { text: Some(text), .. } = &self.what { text.len() } else { 0 };
        self.key.len() + text + CHANGE_BYTES
    }

    /// Is it about a key with this prefix?
    pub fn is_of(&self, prefix: &[u8]) -> bool {
        self.is_of_all() || self.key.starts_with(prefix)
    }

    pub fn is_of_all(&self) -> bool {
        self.what == What::Cleared
    }
}

impl History {
    /// Of a space whose past is not known.
    pub fn from(revision: u64) -> Self {
        Self { since: revision, ..Self::default() }
    }

    pub fn note(&mut self, change: Change) {
        self.bytes += change.bytes();
        self.changes.push_back(change);
        while self.changes.len() > HISTORY_CHANGES_MAX || self.bytes > HISTORY_BYTES_MAX {
            let Some(oldest) = self.changes.pop_front() else { return };
            self.bytes -= oldest.bytes();
            self.since = oldest.version;
        }
    }

    /// Takes out the changes of keys that go elsewhere; one of all keys stays and goes.
    pub fn part(&mut self, goes: impl Fn(&[u8]) -> bool) -> Self {
        let (mut stay, mut gone) = (Self::from(self.since), Self::from(self.since));
        for change in self.changes.drain(..) {
            if change.is_of_all() {
                gone.note(change.clone());
                stay.note(change);
            } else {
                let to = if goes(&change.key) { &mut gone } else { &mut stay };
                to.note(change);
            }
        }
        *self = stay;
        gone
    }

    /// All changes above this version are here.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// All changes above a version, oldest first; none if some of them are gone.
    pub fn after(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        let first = self.changes.partition_point(|change| change.version <= version);
        (version >= self.since).then(|| self.changes.range(first..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_so_much_and_says_what_is_gone() {
        let mut history = History::default();
        let text = |len: usize| What::put(&Value::Text(Bytes::from(vec![0; len])));
        for version in 1..=10 {
            history.note(Change { version, key: "k".into(), what: text(HISTORY_VALUE_BYTES_MAX), by: "put" });
        }
        let versions =
            |history: &History, after| history.after(after).map(|all| all.map(|c| c.version).collect::<Vec<_>>());
        assert_eq!(versions(&history, 7), Some(vec![8, 9, 10]));
        assert_eq!(versions(&history, 10), Some(vec![]));
        for version in 11..=1_000 {
            history.note(Change { version, key: "k".into(), what: text(HISTORY_VALUE_BYTES_MAX), by: "put" });
        }
        assert!(history.bytes <= HISTORY_BYTES_MAX && history.since() > 10);
        assert_eq!(versions(&history, history.since() - 1), None);
        let kept = versions(&history, history.since()).unwrap();
        assert_eq!((kept[0], kept[kept.len() - 1]), (history.since() + 1, 1_000));
        assert_eq!(text(HISTORY_VALUE_BYTES_MAX + 1), What::Put { kind: "string", text: None });
    }
}
