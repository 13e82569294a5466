//! What clients that keep values changed themselves (`CLIENT TRACKING ... NOLOOP`): they are not told of it.
//!
//! Changes are heard of by their versions, and not of whom they are. So such a client's write asks for the versions of its keys
//! before and behind it, in the same operation: nothing comes between, so what lies between those two is its own. Of a key that it
//! removed no version is behind: the next one after the version before is its own. What cannot be known to be its own is told.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use state::linear::functions::{self, Run};
use state::linear::limits::STEPS_MAX;
use state::linear::{Op, Reply as Got, Step};

use super::tracking::Tracker;
use super::{Changed, Changes};

/// Keys of one operation: past that its client is told of its own changes, too.
const KEYS_MAX: usize = 64;
/// Changes of one client that are not heard of yet: past that it is told of the oldest.
const EXPECTED_MAX: usize = 4_096;

/// What one client has changed itself.
#[derive(Default)]
pub struct Own(RefCell<State>);

#[derive(Default)]
struct State {
    /// Keys that operations under way write: how many, and the versions that were heard of meanwhile.
    writing: HashMap<Bytes, (usize, Vec<u64>)>,
    /// What is to be heard of.
    expected: VecDeque<Expected>,
}

struct Expected {
    key: Bytes,
    /// Above this one ...
    before: u64,
    /// ... up to this one; none: the first that comes.
    last: Option<u64>,
}

/// What a version that was heard of is to its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    Own,
    Others,
    /// Known when what is under way has ended.
    Later,
}

impl Own {
    /// A change of a key was heard of.
    pub fn hear(&self, key: &Bytes, version: u64) -> Whose {
        let mut state = self.0.borrow_mut();
        if state.takes(key, version) {
            return Whose::Own;
        }
        match state.writing.get_mut(key) {
            Some((_, heard)) if heard.len() < EXPECTED_MAX => {
                heard.push(version);
                Whose::Later
            }
            _ => Whose::Others,
        }
    }

    /// Some changes may be missing: nothing is to be heard of.
    pub fn forget(&self) {
        self.0.borrow_mut().expected.clear();
    }
}

impl State {
    /// Is this one of those that are expected? Those before it are not any more.
    fn takes(&mut self, key: &Bytes, version: u64) -> bool {
        let is_own =
            |one: &Expected| one.key == *key && version > one.before && one.last.is_none_or(|last| version <= last);
        let found = self.expected.iter().position(is_own);
        if let Some(at) = found.filter(|at| self.expected[*at].last.is_none_or(|last| last == version)) {
            self.expected.remove(at);
        }
        self.expected.retain(|one| one.key != *key || one.last.is_none_or(|last| last > version));
        found.is_some()
    }

    fn expect(&mut self, expected: Expected) {
        if self.expected.len() == EXPECTED_MAX {
            self.expected.pop_front();
        }
        self.expected.push_back(expected);
    }
}

/// A write of such a client, under way.
pub struct Writing {
    tracker: Rc<Tracker>,
    all: Rc<Changes>,
    keys: Vec<Bytes>,
}

impl Writing {
    /// Asks for the versions of the keys of an operation, if that can be.
    pub fn begin(tracker: &Rc<Tracker>, all: &Rc<Changes>, op: &mut Op) -> Option<Self> {
        let mut keys: Vec<Bytes> = Vec::new();
        let mut writes = false;
        for step in &op.steps {
            let function = functions::find(step.function)?;
            if function.whole || function.keyless || function.waits || function.inner {
                return None;
            }
            writes |= !matches!(function.run, Run::Read(_));
            for key in function.keys(step) {
                if !keys.contains(key) {
                    keys.push(key.clone());
                }
                if keys.len() > KEYS_MAX {
                    return None;
                }
            }
        }
        // What was asked under this id before may have been asked without versions.
        if !writes || op.once.is_some() || op.steps.len() + 2 * keys.len() > STEPS_MAX {
            return None;
        }
        let versions = || keys.iter().map(|key| Step::new(key.clone(), "version", Vec::new()));
        op.steps = versions().chain(std::mem::take(&mut op.steps)).chain(versions()).collect();
        let mut state = tracker.own.0.borrow_mut();
        for key in &keys {
            state.writing.entry(key.clone()).or_default().0 += 1;
        }
        drop(state);
        Some(Self { tracker: Rc::clone(tracker), all: Rc::clone(all), keys })
    }

    /// Takes what was asked for besides from what came of the steps, which were done.
    pub fn done(self, got: &mut Vec<Got>) {
        let count = self.keys.len();
        if got.len() < 2 * count {
            return;
        }
        let behind = got.split_off(got.len() - count);
        let before: Vec<Got> = got.drain(..count).collect();
        let number = |got: &Got| if let Got::Int(number) = got { number.unsigned_abs() } else { 0 };
        let mut state = self.tracker.own.0.borrow_mut();
        for (key, (before, behind)) in self.keys.iter().zip(before.iter().zip(&behind)) {
            let (before, behind) = (number(before), number(behind));
            let key = Bytes::copy_from_slice(key);
            match behind {
                // It is not there. Of one that was not there either nobody knows whether it was between.
                0 if before > 0 => state.expect(Expected { key, before, last: None }),
                behind if behind > before => state.expect(Expected { key, before, last: Some(behind) }),
                _ => (),
            }
        }
    }
}

impl Drop for Writing {
    /// However it ended, what was heard of meanwhile is known to be its own now, or is told.
    fn drop(&mut self) {
        let mut told = Vec::new();
        for key in &self.keys {
            let mut state = self.tracker.own.0.borrow_mut();
            let Some((count, heard)) = state.writing.get_mut(key) else { continue };
            *count -= 1;
            let (is_last, heard) = (*count == 0, std::mem::take(heard));
            if is_last {
                state.writing.remove(key);
            }
            told.extend(heard.into_iter().map(|version| Changed { version, key: key.clone(), events: ["", ""] }));
        }
        if !told.is_empty() {
            self.all.tracking.changed_for(&self.tracker, &told);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_two_versions_is_own_and_all_else_is_not() {
        let own = Own::default();
        let key = Bytes::from("k");
        let expect = |before, last| own.0.borrow_mut().expect(Expected { key: key.clone(), before, last });
        let hear = |version| own.hear(&key, version);
        assert_eq!(hear(4), Whose::Others);
        expect(4, Some(6));
        expect(7, None);
        assert_eq!(own.hear(&Bytes::from("other"), 5), Whose::Others);
        assert_eq!([5, 6, 7, 9, 10].map(hear), [Whose::Own, Whose::Own, Whose::Others, Whose::Own, Whose::Others]);
        expect(10, Some(11));
        assert_eq!(hear(12), Whose::Others, "it was passed over");
        assert!(own.0.borrow().expected.is_empty());
        (0..=EXPECTED_MAX as u64).for_each(|at| expect(at, Some(at + 1)));
        assert_eq!(own.0.borrow().expected.len(), EXPECTED_MAX);
        own.forget();
        assert_eq!(hear(1_000), Whose::Others);
    }
}
