//! Those who wait at a group's leader for a change of some keys: each asks what has changed since a version, and is
//! answered when there is something, or after a while. Nobody is sent anything that it has not asked for, so a slow one
//! costs its question.

use std::collections::{BTreeMap, BTreeSet};

use base::Time;
use bytes::Bytes;

use super::history::History;
use super::limits::WAITS_MAX;
use super::space::CommandId;
use super::wire::Command;

#[derive(Default)]
pub struct Watchers {
    waiting: BTreeMap<CommandId, (Bytes, Read)>,
    by_prefix: BTreeMap<Bytes, BTreeSet<CommandId>>,
    /// How many of the prefixes are so long: a key is looked up by each of its beginnings that somebody waits for.
    lengths: BTreeMap<usize, usize>,
    until: BTreeSet<(Time, CommandId)>,
    /// All changes up to this version have been looked at.
    seen: u64,
}

/// A question, and until when it may wait for something to tell.
pub struct Read {
    pub command: Command,
    pub until: Time,
}

impl Watchers {
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITS_MAX
    }

    /// What those who wait have asked.
    pub fn commands(&self) -> impl Iterator<Item = &Command> {
        self.waiting.values().map(|(_, read)| &read.command)
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Lets a question wait that `revision` has no answer to.
    pub fn wait(&mut self, revision: u64, read: Read) {
        if self.waiting.is_empty() {
            self.seen = revision;
        }
        let step = &read.command.steps[0];
        let prefix =
            if step.function == "changes" { step.key.clone() } else { step.args.last().cloned().unwrap_or_default() };
        let (id, until) = (read.command.id, read.until);
        self.take(id);
        let set = self.by_prefix.entry(prefix.clone()).or_default();
        if set.is_empty() {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        set.insert(id);
        self.until.insert((until, id));
        self.waiting.insert(id, (prefix, read));
    }

    fn take(&mut self, id: CommandId) -> Option<Read> {
        let (prefix, read) = self.waiting.remove(&id)?;
        self.until.remove(&(read.until, id));
        let set = self.by_prefix.get_mut(&prefix).expect("who waits stands under its prefix");
        set.remove(&id);
        if set.is_empty() {
            self.by_prefix.remove(&prefix);
            let count = self.lengths.get_mut(&prefix.len()).expect("each prefix is counted");
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
        Some(read)
    }

    /// Questions about what has changed since it was last looked, up to `revision`.
    pub fn changed(&mut self, history: &History, revision: u64) -> Vec<Read> {
        if self.waiting.is_empty() || revision == self.seen {
            return Vec::new();
        }
        let mut woken = BTreeSet::new();
        match history.after(self.seen) {
            Some(changes) => {
                for change in changes {
                    let beginnings = self.lengths.keys().take_while(|len| **len <= change.key.len());
                    for set in beginnings.filter_map(|len| self.by_prefix.get(&change.key[..*len])) {
                        woken.extend(set);
                    }
                    if change.is_of_all() {
                        woken.extend(self.waiting.keys());
                    }
                }
            }
            // More at once than is kept: each hears that it missed some.
            None => woken.extend(self.waiting.keys()),
        }
        self.seen = revision;
        woken.into_iter().filter_map(|id| self.take(id)).collect()
    }

    /// Questions that have waited for long enough.
    pub fn over(&mut self, now: Time) -> Vec<Command> {
        let over: Vec<CommandId> = self.until.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
        over.into_iter().filter_map(|id| self.take(id)).map(|read| read.command).collect()
    }

    pub fn wake_at(&self) -> Option<Time> {
        self.until.first().map(|(at, _)| *at)
    }

    /// All, to be looked at again or sent elsewhere.
    pub fn drain(&mut self) -> Vec<Read> {
        std::mem::take(self).waiting.into_values().map(|(_, read)| read).collect()
    }
}
