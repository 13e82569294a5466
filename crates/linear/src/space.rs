//! What one group agrees on: keys and their values, the group's clock, and the answers that make commands happen once.
//!
//! - The **clock** moves only with entries: each carries the time of the leader that proposed it, and the clock is the
//!   latest that was seen. A key whose end is not after the clock is absent, at every replica at the same entry.
//! - A **command** has an id: node, its boot, and a number. Its answer is kept until the node says that it needs no answer
//!   below a number (`floor`); such commands never happen again. Of a node's former boots nothing happens any more.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Boot, GroupId, LEVEL, NodeId, Parts};
use bytes::Bytes;
use class::{Bounds, Used};
use cluster::raft;
use uuid::Uuid;

use super::database::Beside;
use super::functions::{self, Run, script};
use super::history::{Change, History, What};
use super::limits::{ANSWER_BYTES_MAX, ANSWERS_KEPT_MAX, EXPIRED_AT_ONCE, VALUE_BYTES_MAX, WALK_GROWS, WALK_KEPT_MS};
use super::map::Map;
use super::once::{Kept, Known, Once, Onces};
use super::op::{Condition, Ran, Reply, Step, Wrong};
use super::piece::Pieces;
use super::placed::{LastWalked, NamesInOrder};
use super::snapshot;
use super::split::{Split, hash_of};
use super::texts::Texts;
use super::value::{Entry, Value};
use super::wire::{self, Batch, Command};

/// A command, for ever: a retry carries the same id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CommandId {
    pub node: NodeId,
    pub boot: Boot,
    pub seq: u64,
}

/// What became of a command when it was applied.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    Ran(Ran),
    /// So old that its fate is forgotten: it may have happened before, it does not happen now.
    Forgotten,
    /// What it is about is another group's now. It has not happened, and never will here.
    Moved,
    /// Because of the caller's id for it.
    Refused(Wrong),
}

#[derive(Default)]
pub struct Space {
    map: Map,
    /// Ends of keys that have one.
    ends: BTreeSet<(u64, Bytes)>,
    /// Of keys of which some item ends, when the next one does.
    item_ends: BTreeSet<(u64, Bytes)>,
    /// Keys that hold a queue.
    queues: BTreeSet<Bytes>,
    clock: u64,
    /// Counts up with each change.
    revision: u64,
    clients: BTreeMap<NodeId, Client>,
    /// ... and of those with ids that callers gave.
    onces: Onces,
    /// Of scripts and libraries: not among the keys, and not removed with them.
    texts: Arc<Texts>,
    /// Of a namespace of class `sql`, which has nothing else.
    pub(super) beside: Beside,
    /// Of an entry of which more is to come.
    pub(super) pieces: Pieces,
    /// How often it was split, and the first hash that has gone so.
    splits: u32,
    above: Option<u64>,
    /// What was taken out by the last split, for whoever drives the member; not a part of the state.
    born: Option<(GroupId, Box<Space>)>,
    /// Keys and values, about.
    bytes: usize,
    /// What the leader's clock shows, for answers about what is left; not a part of the state.
    shown: u64,
    /// How old at most is what a reader sees, milliseconds; likewise.
    age: u64,
    /// Of the last changes; not a part of the state either.
    history: History,
    /// The function that runs, for the history; empty while keys end.
    doing: &'static str,
    /// Nobody waits here for what comes of commands; likewise.
    unheard: bool,
    /// When somebody walked through its keys; likewise.
    walked: Cell<u64>,
    /// Names of the collection that somebody walked through last; likewise.
    placed: LastWalked,
    /// Is it a draft? Whoever works on it waits for nothing.
    is_draft: bool,
    /// Nor is what the program understands that holds it.
    program: Program,
}

/// The level of a program.
#[derive(Clone, Copy)]
struct Program(u32);

impl Default for Program {
    fn default() -> Self {
        Self(LEVEL)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Client {
    pub boot: Boot,
    pub floor: u64,
    pub answers: BTreeMap<u64, Ran>,
}

/// A key's overhead in memory, about.
pub(super) const KEY_BYTES: usize = class::limits::KEY_BYTES as usize;

impl Space {
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Keys that come into their order with a page of a walk. A draft is gone when somebody asks again.
    pub fn walk_grows(&self) -> usize {
        if self.is_draft { usize::MAX } else { WALK_GROWS }
    }

    /// Somebody walks through its keys.
    pub fn walk_now(&self) {
        self.walked.set(self.clock);
    }

    /// Names of the collection that is the value of this key, in the order of a walk.
    pub fn placed<'a>(&self, key: &Bytes, names: impl Iterator<Item = &'a Bytes>) -> NamesInOrder {
        self.walk_now();
        self.placed.of(key, self.get(key).map_or(0, |entry| entry.version), names)
    }

    /// Milliseconds. As of the last entry.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Milliseconds, for people: what the leader's clock shows, if it is later.
    pub fn shown_clock(&self) -> u64 {
        self.clock.max(self.shown)
    }

    pub fn shown_age(&self) -> u64 {
        self.age
    }

    /// What the next readers are told of the clock, and of the age of what they see.
    pub fn show(&mut self, now: u64, age: u64) {
        (self.shown, self.age) = (now, age);
    }

    /// It is held by a program of this level, or one that takes part as such.
    pub fn held_by(&mut self, level: u32) {
        self.program = Program(level);
    }

    /// Is there nobody who waits here for what comes of commands? Then it is not told of those that are applied.
    pub fn hush(&mut self, is_unheard: bool) {
        self.unheard = is_unheard;
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn next_revision(&self) -> u64 {
        self.revision + 1
    }

    /// How often it was split.
    pub fn splits(&self) -> u32 {
        self.splits
    }

    /// The first hash that is another group's now.
    pub fn above(&self) -> Option<u64> {
        self.above
    }

    /// The space of the group that the last split has made, once.
    pub fn take_born(&mut self) -> Option<(GroupId, Space)> {
        self.born.take().map(|(child, space)| (child, *space))
    }

    fn split(&mut self, split: Split) {
        if split.after != self.splits || self.above.is_some_and(|above| split.at >= above) {
            return;
        }
        let goes = |key: &[u8]| hash_of(key) >= split.at;
        let map = self.map.part(goes);
        let ends = self.ends.extract_if(.., |(_, key)| goes(key)).collect();
        let item_ends = self.item_ends.extract_if(.., |(_, key)| goes(key)).collect();
        let queues = self.queues.extract_if(.., |key| goes(key)).collect();
        let bytes = map.from(b"").map(|(key, entry)| entry_bytes(key, entry)).sum();
        let born = Space {
            map,
            ends,
            item_ends,
            queues,
            clock: self.clock,
            revision: self.revision,
            clients: self.clients.clone(),
            onces: self.onces.clone(),
            texts: Arc::clone(&self.texts),
            above: self.above,
            bytes,
            history: self.history.part(goes),
            ..Space::default()
        };
        self.bytes = self.bytes.saturating_sub(bytes);
        (self.splits, self.above) = (self.splits + 1, Some(split.at));
        self.born = Some((split.child, Box::new(born)));
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    fn note(&mut self, key: &Bytes, what: What) {
        self.history.note(Change { version: self.revision, key: key.clone(), what, by: self.doing });
    }

    /// The function that runs does what this one does, for the history: one that does several things in turn.
    pub fn does(&mut self, function: &'static str) {
        self.doing = function;
    }

    /// The next change has a version above this one.
    pub fn rise(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Its keys as they are at this moment, for readers. Shares their memory.
    pub fn frozen(&self) -> Self {
        Self { map: self.map.clone(), clock: self.shown_clock(), revision: self.revision, ..Self::default() }
    }

    /// Its database as it is at this moment, without its keys.
    pub fn frozen_database(&self) -> Self {
        Self { revision: self.revision, beside: self.beside.frozen(), ..Self::default() }
    }

    /// As it will be when an entry with this clock is applied next, for who changes it to see what comes of it. Shares memory.
    pub fn draft(&self, clock: u64) -> Self {
        let clock = self.clock.max(clock);
        // As many as one entry removes, and in the same order.
        let over = |ends: &BTreeSet<(u64, Bytes)>| {
            ends.iter().take_while(|(end, _)| *end <= clock).take(EXPIRED_AT_ONCE).cloned().collect()
        };
        let mut draft = Self {
            map: self.map.clone(),
            ends: over(&self.ends),
            item_ends: over(&self.item_ends),
            queues: self.queues.clone(),
            texts: Arc::clone(&self.texts),
            clock,
            revision: self.revision,
            bytes: self.bytes,
            splits: self.splits,
            above: self.above,
            history: History::from(self.revision),
            program: self.program,
            is_draft: true,
            ..Self::default()
        };
        draft.expire();
        draft
    }

    pub fn texts(&self) -> &Texts {
        &self.texts
    }

    /// A draft shares them: it gets its own, if one of both is changed.
    pub fn texts_mut(&mut self) -> &mut Texts {
        Arc::make_mut(&mut self.texts)
    }

    /// When the next key ends, or an item in one.
    pub fn next_end(&self) -> Option<u64> {
        [&self.ends, &self.item_ends].into_iter().filter_map(|ends| ends.first()).map(|(end, _)| *end).min()
    }

    /// The queues that there are, in order.
    pub fn queues(&self) -> impl ExactSizeIterator<Item = &Bytes> {
        self.queues.iter()
    }

    /// Keys, those included that end at this moment.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of them have an end.
    pub fn ending(&self) -> usize {
        self.ends.len()
    }

    pub fn is_over(&self, entry: &Entry) -> bool {
        entry.end != 0 && entry.end <= self.clock || entry.value.is_over(self.clock)
    }

    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.map.get(key).filter(|entry| !self.is_over(entry))
    }

    /// Stores a value with its end (0: none); gives its version.
    pub fn set(&mut self, key: &Bytes, value: Value, end: u64) -> u64 {
        let what = What::put(&value);
        self.store(key, value, end);
        self.note(key, what);
        self.revision
    }

    /// What a key holds now, into the history.
    fn note_put(&mut self, key: &Bytes) {
        let what = What::put(&self.map.get(key).expect("it was just stored").value);
        self.note(key, what);
    }

    fn store(&mut self, key: &Bytes, value: Value, end: u64) {
        self.revision += 1;
        let size = value.bytes();
        self.bytes += key.len() + size + KEY_BYTES;
        if end != 0 {
            self.ends.insert((end, key.clone()));
        }
        let item_end = value.next_item_end();
        if matches!(value, Value::Queue(_)) {
            self.queues.insert(key.clone());
        } else {
            self.queues.remove(key);
        }
        let old = self.map.insert(key.clone(), Entry { value, version: self.revision, end, size });
        self.follow_items(key, old.as_ref().map_or(0, |old| old.value.next_item_end()), item_end);
        if let Some(old) = old {
            self.forget(key, &old, end);
        }
    }

    /// The next end of an item of this key was the one, and is the other.
    fn follow_items(&mut self, key: &Bytes, was: u64, is: u64) {
        if was == is {
            return;
        }
        if was != 0 {
            self.item_ends.remove(&(was, key.clone()));
        }
        if is != 0 {
            self.item_ends.insert((is, key.clone()));
        }
    }

    pub fn set_keeping_end(&mut self, key: &Bytes, value: Value) -> u64 {
        let end = self.get(key).map_or(0, |entry| entry.end);
        self.set(key, value, end)
    }

    /// Changes when a key ends, if there is one. That is a change like any other.
    pub fn set_end(&mut self, key: &Bytes, end: u64) {
        if self.get(key).is_none() {
            return;
        }
        self.revision += 1;
        let entry = self.map.get_mut(key).expect("it was just seen");
        let old = std::mem::replace(&mut entry.end, end);
        entry.version = self.revision;
        if old != end && old != 0 {
            self.ends.remove(&(old, key.clone()));
        }
        if end != 0 {
            self.ends.insert((end, key.clone()));
        }
        self.note_put(key);
    }

    /// Changes a collection in place, from `fresh` if there is none; one that is empty after it is removed. `act` keeps
    /// the size true. Refused if it would add more than fits.
    pub fn change(
        &mut self,
        key: &Bytes,
        fresh: Value,
        more: usize,
        act: impl FnOnce(&mut Value, &mut usize) -> functions::Result,
    ) -> functions::Result {
        let now = self.get(key);
        if now.map_or(0, |entry| entry.size) + more > VALUE_BYTES_MAX {
            return Err(Wrong::TooLarge);
        }
        if now.is_none() {
            self.store(key, fresh, 0);
        }
        let version = self.revision + 1;
        let entry = self.map.get_mut(key).expect("it was just seen or made");
        let (before, item_end) = (entry.size, entry.value.next_item_end());
        let result = act(&mut entry.value, &mut entry.size)?;
        entry.version = version;
        self.revision = version;
        self.bytes = (self.bytes + entry.size).saturating_sub(before);
        let (is_empty, next) = (entry.value.is_empty(), entry.value.next_item_end());
        self.follow_items(key, item_end, next);
        if is_empty {
            self.remove(key);
        } else {
            self.note_put(key);
        }
        Ok(result)
    }

    pub fn remove(&mut self, key: &Bytes) -> Option<Entry> {
        let was_over = self.map.get(key).is_some_and(|entry| self.is_over(entry));
        let old = self.map.remove(key)?;
        self.revision += 1;
        self.forget(key, &old, 0);
        self.queues.remove(key);
        self.follow_items(key, old.value.next_item_end(), 0);
        self.note(key, if was_over { What::Ended } else { What::Removed });
        (!was_over).then_some(old)
    }

    /// Removes all keys; how many there were.
    pub fn clear(&mut self) -> usize {
        let count = self.map.len();
        self.map.clear();
        self.ends.clear();
        self.item_ends.clear();
        self.queues.clear();
        (self.bytes, self.revision) = (0, self.revision + 1);
        self.note(&Bytes::new(), What::Cleared);
        count
    }

    fn forget(&mut self, key: &[u8], old: &Entry, new_end: u64) {
        self.bytes = self.bytes.saturating_sub(entry_bytes(key, old));
        if old.end != 0 && old.end != new_end {
            self.ends.remove(&(old.end, Bytes::copy_from_slice(key)));
        }
    }

    /// Removes keys whose time has come, and items, and moves on jobs that are due. A bounded number of each: to readers the others are absent already.
    fn expire(&mut self) {
        self.doing = "";
        for _ in 0..EXPIRED_AT_ONCE {
            match self.ends.first() {
                Some((end, key)) if *end <= self.clock => {
                    let key = key.clone();
                    self.remove(&key);
                }
                _ => break,
            }
        }
        let mut room = EXPIRED_AT_ONCE;
        while room > 0
            && let Some((end, key)) = self.item_ends.first()
            && *end <= self.clock
        {
            let key = key.clone();
            room -= self.drop_ended(&key, room);
        }
        self.doing = "";
    }

    /// Takes items out of a key that have ended, or moves on those that are due, at least one of them; how many. What has none left is
    /// removed.
    fn drop_ended(&mut self, key: &Bytes, most: usize) -> usize {
        let clock = self.clock;
        let entry = self.map.get_mut(key).expect("an item of it ends");
        let (before, item_end) = (entry.size, entry.value.next_item_end());
        let gone = match &mut entry.value {
            Value::Hash(hash) => {
                self.doing = functions::FIELDS_ENDED;
                let hash = Arc::make_mut(hash);
                let gone = hash.drop_ended(clock, most);
                entry.size = hash.bytes();
                gone
            }
            Value::Queue(queue) => {
                self.doing = functions::JOBS_DUE;
                let queue = Arc::make_mut(queue);
                let moved = queue.settle(clock, most);
                entry.size = queue.bytes();
                moved
            }
            _ => unreachable!("only fields of hashes end by themselves, and jobs of queues are due"),
        };
        self.revision += 1;
        entry.version = self.revision;
        self.bytes = (self.bytes + entry.size).saturating_sub(before);
        let (is_empty, next) = (entry.value.is_empty(), entry.value.next_item_end());
        self.follow_items(key, item_end, next);
        if is_empty {
            self.remove(key);
        } else {
            self.note_put(key);
        }
        gone
    }

    /// Runs steps that change nothing.
    pub fn read(&self, conditions: &[Condition], steps: &[Step]) -> Ran {
        if !self.holds(conditions) {
            return Ran::Unmet;
        }
        let run = |step: &Step| match functions::find(step.function).map(|function| function.run) {
            Some(Run::Read(run)) => run(self, &step.key, &step.args),
            Some(Run::Write(_)) | None => Err(Wrong::Unknown),
        };
        let mut room = ANSWER_BYTES_MAX;
        Ran::Done(steps.iter().map(|step| fit(run(step).unwrap_or_else(Reply::Wrong), &mut room)).collect())
    }

    fn holds(&self, conditions: &[Condition]) -> bool {
        let version = |key: &Bytes| self.get(key).map_or(0, |entry| entry.version);
        conditions.iter().all(|condition| version(&condition.key) == condition.version)
    }

    /// What became of a command, if it was applied and is remembered; by its own id, or by that of its caller.
    pub fn verdict(&self, command: &Command) -> Option<Verdict> {
        self.verdict_by_node(command.id).or_else(|| {
            Some(match self.onces.known(command.once.as_ref()?)? {
                Known::Ran(Some(ran)) => Verdict::Ran(ran),
                Known::Ran(None) => Verdict::Ran(Ran::Done(vec![Reply::Wrong(Wrong::NotKept); command.steps.len()])),
                Known::Forgotten => Verdict::Forgotten,
                Known::Reused => Verdict::Refused(Wrong::OnceReused),
            })
        })
    }

    fn verdict_by_node(&self, id: CommandId) -> Option<Verdict> {
        let client = self.clients.get(&id.node)?;
        if id.boot < client.boot || (id.boot == client.boot && id.seq < client.floor) {
            return Some(Verdict::Forgotten);
        }
        client.answers.get(&id.seq).filter(|_| id.boot == client.boot).cloned().map(Verdict::Ran)
    }

    /// Keys and bytes of keys, values and the database, those included that end at this moment.
    pub fn used(&self) -> Used {
        Used { bytes: self.bytes as u64 + self.beside.bytes(), keys: self.map.len() as u64 }
    }

    /// Why a command would not be done, if it could make what is stored more than this: by its arguments, and what they replace or
    /// copy. The same at every replica.
    pub fn over(&self, command: &Command, bounds: Bounds) -> Option<Wrong> {
        // Nothing is done then in any case, and its caller is to hear so.
        let is_unmet = || !self.holds(&command.conditions) || functions::once_done(self, &command.steps);
        // What scripts do was looked at step by step.
        if bounds.is_none() || is_unmet() || script::said(&command.steps).is_some() {
            return None;
        }
        self.over_of(&command.steps, bounds)
    }

    /// The same of these steps, whatever else they depend on.
    pub fn over_of(&self, steps: &[Step], bounds: Bounds) -> Option<Wrong> {
        if bounds.is_none() {
            return None;
        }
        let (mut fresh, mut bytes) = (BTreeSet::new(), 0);
        for step in steps {
            let Some(function) = functions::find(step.function).filter(|function| function.grows()) else { continue };
            let args: usize = step.args.iter().map(Bytes::len).sum();
            let made = function.makes(step);
            let size = |key: &Bytes| self.map.get(key).map_or(0, |entry| entry.size);
            let (more, less) = match function.name {
                "put" => (step.args.first().map_or(0, Bytes::len), size(&step.key)),
                "copy" => (size(&step.key), made.map_or(0, size)),
                "hash.load" => (step.args.iter().skip(1).map(Bytes::len).sum(), size(&step.key)),
                // Behind kind, end and token.
                "load" => (step.args.iter().skip(3).map(Bytes::len).sum(), size(&step.key)),
                _ => (args, 0),
            };
            bytes += more.saturating_sub(less);
            if let Some(key) = made.filter(|key| self.map.get(key).is_none() && fresh.insert(*key)) {
                bytes += key.len() + KEY_BYTES;
            }
        }
        let more = Used { bytes: bytes as u64, keys: fresh.len() as u64 };
        bounds.over(self.used(), more).map(Wrong::from)
    }

    fn run_once(&mut self, command: Command, bounds: Bounds) -> Option<Verdict> {
        if let Some(known) = self.verdict(&command) {
            return Some(known);
        }
        if !self.has(&command) {
            return Some(Verdict::Moved);
        }
        let over = self.over(&command, bounds);
        let ran = match over {
            // Its node may have sent it twice: the second one is not done either.
            Some(wrong) => refusal(&command, wrong),
            None => self.run(&command, bounds),
        };
        // Whoever asks again with the same id later may find room.
        if let Some(once) = command.once.as_ref().filter(|_| over.is_none()) {
            self.onces.keep(once, &ran, self.clock);
        }
        let client = self.clients.entry(command.id.node).or_default();
        if client.boot < command.id.boot {
            *client = Client { boot: command.id.boot, ..Client::default() };
        }
        client.floor = client.floor.max(command.floor);
        while client.answers.first_key_value().is_some_and(|(seq, _)| *seq < client.floor) {
            client.answers.pop_first();
        }
        let told = (!self.unheard).then(|| Verdict::Ran(ran.clone()));
        client.answers.insert(command.id.seq, ran);
        while client.answers.len() > ANSWERS_KEPT_MAX {
            let (oldest, _) = client.answers.pop_first().expect("it is longer than its limit");
            client.floor = client.floor.max(oldest + 1);
        }
        told
    }

    fn run(&mut self, command: &Command, bounds: Bounds) -> Ran {
        if !self.holds(&command.conditions) || functions::once_done(self, &command.steps) {
            return Ran::Unmet;
        }
        // What the last reader here was told of the time is not the same everywhere.
        self.show(0, 0);
        if let Some((replies, steps)) = script::said(&command.steps) {
            for step in steps {
                // What each of them gives was told to the script.
                let _ = self.step(step, bounds);
            }
            return Ran::Done(replies);
        }
        let (mut replies, mut room) = (Vec::with_capacity(command.steps.len()), ANSWER_BYTES_MAX);
        for step in &command.steps {
            let result = self.step(step, bounds);
            replies.push(fit(result.unwrap_or_else(Reply::Wrong), &mut room));
        }
        Ran::Done(replies)
    }

    pub fn step(&mut self, step: &Step, bounds: Bounds) -> functions::Result {
        let too_large = step.args.iter().any(|arg| arg.len() > VALUE_BYTES_MAX);
        let function = functions::find(step.function);
        // Of some functions the arguments do not say what comes of them: so much over all, and one value more.
        let most = bounds.bytes.map(|most| most.saturating_add(VALUE_BYTES_MAX as u64));
        let is_over = most.is_some_and(|most| self.bytes as u64 >= most);
        self.doing = function.map_or("", |function| function.name);
        match function.map(|function| function.run) {
            _ if too_large => Err(Wrong::TooLarge),
            _ if is_over && function.is_some_and(functions::Function::grows) => Err(Wrong::BytesMax),
            Some(Run::Read(run)) => run(self, &step.key, &step.args),
            Some(Run::Write(run)) => run(self, &step.key, &step.args),
            None => Err(Wrong::Unknown),
        }
    }

    pub(super) fn head(&self) -> (u64, u64, &BTreeMap<NodeId, Client>) {
        (self.clock, self.revision, &self.clients)
    }

    pub(super) fn restored(clock: u64, revision: u64, splits: u32, above: Option<u64>) -> Self {
        Self { clock, revision, splits, above, history: History::from(revision), ..Self::default() }
    }

    /// Puts some of a node's answers back.
    pub(super) fn restore_client(&mut self, node: NodeId, boot: Boot, floor: u64, answers: BTreeMap<u64, Ran>) {
        let client = self.clients.entry(node).or_default();
        (client.boot, client.floor) = (boot, floor);
        client.answers.extend(answers);
    }

    pub(super) fn keep_once(&mut self, once: &Once, ran: &Ran) {
        self.onces.keep(once, ran, self.clock);
    }

    pub(super) fn onces(&self) -> &Onces {
        &self.onces
    }

    pub(super) fn restore_once(&mut self, id: Uuid, kept: Kept, clock: u64) {
        self.onces.restore(id, kept, clock);
    }

    pub(super) fn restore_closed(&mut self, from: u64, upto: u64) {
        self.onces.close_range(from, upto);
    }

    /// Puts an entry of a snapshot back. They come in order.
    pub(super) fn restore(&mut self, key: Bytes, entry: Entry) {
        self.bytes += entry_bytes(&key, &entry);
        if entry.end != 0 {
            self.ends.insert((entry.end, key.clone()));
        }
        if entry.value.next_item_end() != 0 {
            self.item_ends.insert((entry.value.next_item_end(), key.clone()));
        }
        if matches!(entry.value, Value::Queue(_)) {
            self.queues.insert(key.clone());
        }
        self.map.append(key, entry);
    }
}

fn entry_bytes(key: &[u8], entry: &Entry) -> usize {
    key.len() + entry.size + KEY_BYTES
}

/// The answer of a command that is not done.
pub fn refusal(command: &Command, wrong: Wrong) -> Ran {
    Ran::Done(vec![Reply::Wrong(wrong); command.steps.len()])
}

/// The reply, if it fits with those before it.
fn fit(reply: Reply, room: &mut usize) -> Reply {
    *room = match room.checked_sub(reply.bytes()) {
        Some(left) => left,
        // All that one value holds, alone: many small items have fewer bytes on their way than they are taken for.
        None if *room == ANSWER_BYTES_MAX && wire::reply_bytes(&reply) <= ANSWER_BYTES_MAX => 0,
        None => return Reply::Wrong(Wrong::LongAnswer),
    };
    reply
}

impl raft::State for Space {
    type Done = (CommandId, Verdict);

    fn apply(&mut self, _index: u64, data: Bytes, done: &mut Vec<Self::Done>) -> raft::Applied {
        let Some(mut batch) = wire::decode_batch(data) else { return raft::Applied::Senseless };
        if batch.level > self.program.0 {
            return raft::Applied::Beyond;
        }
        if batch.drops_pieces {
            self.pieces = Pieces::default();
        }
        if let Some(whole) = batch.piece.take().and_then(|piece| self.pieces.add(piece)) {
            let Some(made) = wire::decode_batch(whole) else { return raft::Applied::Senseless };
            // The clock is that of its last piece, which is later.
            batch = Batch { clock: batch.clock.max(made.clock), piece: None, ..made };
        }
        // Arguments that this program does not know it would take for wrong ones: only their writer can tell.
        let is_known =
            |command: &Command| functions::level(&command.steps).is_some_and(|level| level <= self.program.0);
        if batch.level > self.program.0 || !batch.commands.iter().all(is_known) {
            return raft::Applied::Beyond;
        }
        self.clock = self.clock.max(batch.clock);
        if self.walked.get() + WALK_KEPT_MS < self.clock {
            self.map.forget_order();
            self.placed.forget();
        }
        self.expire();
        self.onces.forget(self.clock);
        for command in batch.commands {
            let id = command.id;
            let verdict = self.run_once(command, batch.bounds);
            done.extend(verdict.map(|verdict| (id, verdict)));
        }
        if let Some(split) = batch.split {
            self.split(split);
        }
        if self.beside.is_broken() {
            // The others have done what failed here: who went on would not be as they are.
            return raft::Applied::Beyond;
        }
        raft::Applied::Yes
    }

    fn parts(&self) -> Parts {
        snapshot::parts(self)
    }

    fn from_parts(parts: Vec<Bytes>) -> Option<Self> {
        snapshot::read(parts)
    }

    fn bytes(&self) -> usize {
        self.bytes + self.texts.bytes() + self.beside.bytes() as usize + self.pieces.bytes()
    }
}
