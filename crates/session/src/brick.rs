//! A brick keeps versions and values of keys in memory, and answers at once or not at all. It knows no other brick:
//! what it must hold and whom it is filled from is decided in `fill`, who counts it is the stubs' matter.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::checksum::Checksum;
use base::{Span, Time};
use class::{Bound, Bounds, Used};

use super::cookie_ops::COOKIE_BIT;
use super::limits::{
    BRICK_BYTES, CLOCK_AHEAD_MS_MAX, COPY_AHEAD_MS_MAX, COPY_SHARE, DAMAGE_MAX, DAMAGE_SPAN, FREED_PER_CALL,
    GROWTH_SHARE, SETTLED_KEPT, SHARDS, SHRINK_BELOW, SWEEP_EVERY, TOMBSTONE_KEPT, UNDO_KEPT,
};
use super::map::Placement;
use super::table::{Entry, Key, Table, Value, used_by};
use super::{Kind, Version};

/// How much of a value a reader wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Want {
    /// Just what is known about it.
    Version,
    /// The value as well, if its version is newer than this.
    Newer(Version),
    /// What would come back if this version were taken back, with its value. If that cannot be, all that there is.
    Under(Version),
}

/// How certain it is that a version stays. Writes that carry no condition are [`Standing::Plain`]: the newest of them wins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Standing {
    #[default]
    Plain,
    /// It was written on condition that nothing is newer than this, and whether enough bricks agreed is not known here.
    Open(Version),
    /// Enough bricks agreed.
    Confirmed,
}

impl Standing {
    /// What becomes of it when it is known to stay.
    fn confirmed(self) -> Self {
        if let Standing::Open(_) = self { Standing::Confirmed } else { self }
    }

    /// Has a version of this standing lost to that other one, though it is newer? Both cannot have been written: each was
    /// refused by a brick that had the other.
    pub fn lost_to(self, version: Version, other: Version, others: Standing) -> bool {
        matches!(self, Standing::Open(guard) if guard < other && other < version) && others == Standing::Confirmed
    }
}

/// What a brick knows of a key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Found {
    /// `None`: never heard of.
    pub version: Option<Version>,
    pub live: bool,
    /// There may be a `before`: the write was conditional and may yet be undone.
    pub tentative: bool,
    pub standing: Standing,
    /// The value was damaged and has been dropped: this answer counts for nothing.
    pub damaged: bool,
    pub lease_left: Span,
    pub keep_left: Span,
    pub value: Option<Value>,
    /// See [`Entry::bricks`].
    pub bricks: Placement,
}

/// What should be known of a key from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Write {
    pub version: Version,
    /// `None`: remove it.
    pub value: Option<Value>,
    pub lease: Span,
    /// How long the version is to be remembered at least.
    pub keep: Span,
    /// Only where nothing newer than this is known.
    pub guard: Option<Version>,
    /// A copy of what other bricks accepted already: clocks are not judged again, but for what no clock shows.
    pub repair: bool,
    /// Just a new lease for this very version: whatever is newer stands, and where the version is missing it is put.
    pub extend: bool,
    /// Of what is copied or extended.
    pub standing: Standing,
    /// See [`Entry::bricks`]; empty where placement follows from the key.
    pub bricks: Placement,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wrote {
    /// It holds this version now, or held it before. `had`: there was a live value before.
    Stored { had: bool },
    /// It knows this version, which is newer than the written one or than the guard.
    Conflict(Version),
    /// No memory for a new key.
    Full,
    /// The namespace has as much here as is declared for it.
    Over(Bound),
    /// The version is too far ahead of this brick's clock, by so many milliseconds.
    Ahead(u64),
    /// It was undone before it arrived.
    Undone,
}

/// A line of a walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    pub key: Key,
    pub version: Version,
    pub standing: Standing,
    pub live: bool,
    /// Of the value, where it is live.
    pub kind: Kind,
    pub keep_left: Span,
}

pub(super) struct Brick {
    table: Table,
    bytes_max: u64,
    /// What namespaces may have here, if it is not all that there is room for, by number.
    bounds: BTreeMap<u32, Bounds>,
    /// Entries whose `before` is to be dropped, in order of time.
    befores: VecDeque<(Time, Key, Version)>,
    /// Writes that were undone; each stands in the queue as well.
    undone: BTreeSet<Version>,
    undone_ends: VecDeque<(Time, Version)>,
    next_sweep: Time,
    pub damaged: u64,
    /// Entries that the table has let go, as far as they are among these.
    entries_damaged: u64,
    /// When the last few damaged values were found; at most [`DAMAGE_MAX`].
    damaged_at: VecDeque<Time>,
    pub full: u64,
    /// Writes refused as their namespace has all that it may.
    pub over: u64,
    /// Reads and writes it was asked for, fills and repairs included.
    pub operations: u64,
    /// By number of the namespace.
    pub intervals: BTreeMap<u32, Intervals>,
}

/// How long values stood until they were written anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Intervals {
    pub count: u64,
    pub sum_ms: u64,
}

impl Brick {
    pub fn new() -> Self {
        Self {
            table: Table::new(),
            bytes_max: BRICK_BYTES,
            bounds: BTreeMap::new(),
            befores: VecDeque::new(),
            undone: BTreeSet::new(),
            undone_ends: VecDeque::new(),
            next_sweep: Time::ZERO,
            damaged: 0,
            entries_damaged: 0,
            damaged_at: VecDeque::new(),
            full: 0,
            over: 0,
            operations: 0,
            intervals: BTreeMap::new(),
        }
    }

    pub fn set_bytes_max(&mut self, bytes: u64) {
        self.bytes_max = bytes;
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub fn bytes(&self) -> u64 {
        self.table.bytes() + (self.befores.capacity() * size_of::<(Time, Key, Version)>()) as u64
    }

    /// Values of a namespace, those among them that ended a moment ago.
    pub fn values(&self, namespace: u32) -> u64 {
        self.table.used(namespace).keys
    }

    /// What a namespace has here: by key and by cookie.
    pub fn used(&self, namespace: u32) -> Used {
        self.table.used(namespace & !COOKIE_BIT) + self.table.used(namespace | COOKIE_BIT)
    }

    pub fn bounds(&self, namespace: u32) -> Bounds {
        self.bounds.get(&namespace).copied().unwrap_or_default()
    }

    pub fn set_bounds(&mut self, bounds: BTreeMap<u32, Bounds>) {
        self.bounds = bounds;
    }

    /// Would a write be refused for that? Copies of what was accepted are made in any case: two bricks are to have what one has.
    pub fn is_over(&self, key: &Key, write: &Write) -> Option<Bound> {
        let len = write.value.as_ref().filter(|_| !write.repair && !write.extend)?.bytes.len();
        self.over(key, self.table.get(key), len)
    }

    /// Whether so long a value would be more than its namespace may have here.
    fn over(&self, key: &Key, have: Option<&Entry>, len: usize) -> Option<Bound> {
        let bounds = self.bounds.get(&(key.namespace & !COOKIE_BIT))?;
        // Also one that has ended a moment ago: it goes for this one.
        let old =
            have.and_then(|entry| entry.value.as_ref()).map_or_else(Used::default, |old| used_by(key, old.bytes.len()));
        let new = used_by(key, len);
        let more = Used { bytes: new.bytes.saturating_sub(old.bytes), keys: new.keys - old.keys };
        bounds.over(self.used(key.namespace), more)
    }

    /// So many values were damaged of late that it is not chance: this memory should be given up.
    pub fn is_failing(&self, now: Time) -> bool {
        self.damaged_at.len() >= DAMAGE_MAX && self.damaged_at.iter().all(|at| now.since(*at) <= DAMAGE_SPAN)
    }

    pub fn entries(&self) -> u64 {
        self.table.len()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.table = Table::new();
        self.entries_damaged = 0;
        self.befores = VecDeque::new();
        self.damaged_at.clear();
    }

    pub fn version(&self, key: &Key) -> Option<Version> {
        self.table.get(key).map(|entry| entry.version)
    }

    /// Is what another brick has better than what this one has?
    pub fn wants(&self, line: &Line) -> bool {
        self.table.get(&line.key).is_none_or(|have| {
            line.version > have.version || have.standing.lost_to(have.version, line.version, line.standing)
        })
    }

    pub fn read(&mut self, now: Time, key: &Key, want: Want) -> Found {
        self.operations += 1;
        let Some(entry) = self.table.get(key) else { return self.absent_or_damaged(now, key) };
        let is_under = |entry: &Entry| matches!(want, Want::Under(version) if entry.version == version);
        let entry = match entry.before.as_deref().filter(|_| is_under(entry)) {
            Some(Some(before)) => before,
            Some(None) => return Found::default(),
            None => entry,
        };
        let live = entry.is_live(now);
        if !live && entry.keep_end <= now {
            return Found::default();
        }
        let mut found = Found {
            version: Some(entry.version),
            live,
            tentative: entry.before.is_some(),
            standing: entry.standing,
            damaged: false,
            lease_left: if live { entry.lease_end.since(now) } else { Span::ZERO },
            keep_left: entry.keep_end.since(now),
            value: None,
            bricks: entry.bricks.as_deref().copied().unwrap_or_default(),
        };
        let wants_value = match want {
            Want::Version => false,
            Want::Newer(known) => entry.version > known,
            Want::Under(_) => true,
        };
        if wants_value && live {
            found.value = entry.value.clone();
        }
        if found.value.as_ref().is_some_and(|value| !value.is_whole()) {
            // Never returned; another brick's copy repairs it (state.md, rule 3).
            self.value_damaged(now);
            self.table.remove(key);
            return Found { damaged: true, ..Found::default() };
        }
        found
    }

    /// Of a key of which nothing whole is known.
    fn absent_or_damaged(&mut self, now: Time, key: &Key) -> Found {
        let damaged = self.table.is_damaged(key);
        if damaged {
            // As if its value were: what stands beside that decides as much.
            self.table.remove(key);
            self.note_damaged(now);
        }
        Found { damaged, ..Found::default() }
    }

    fn value_damaged(&mut self, now: Time) {
        self.damaged += 1;
        if self.damaged_at.len() == DAMAGE_MAX {
            self.damaged_at.pop_front();
        }
        self.damaged_at.push_back(now);
    }

    /// Entries that the table let go as they were damaged count like damaged values.
    fn note_damaged(&mut self, now: Time) {
        for _ in self.entries_damaged..self.table.damaged() {
            self.value_damaged(now);
        }
        self.entries_damaged = self.table.damaged();
    }

    /// `clock_ms`: what this node's hybrid clock says.
    pub fn write(&mut self, now: Time, clock_ms: u64, key: &Key, write: Write) -> Wrote {
        self.operations += 1;
        let version = write.version;
        if self.undone.contains(&version) {
            return Wrote::Undone;
        }
        let have = self.table.get(key).filter(|entry| entry.is_live(now) || entry.keep_end > now);
        // What is held already may be overtaken, whatever clock it came from.
        let clock_ms = clock_ms.max(have.map_or(0, |entry| entry.version.ms));
        let ahead = version.ms.saturating_sub(clock_ms);
        let is_copy = write.repair || write.extend;
        if ahead > if is_copy { COPY_AHEAD_MS_MAX } else { CLOCK_AHEAD_MS_MAX } {
            return Wrote::Ahead(ahead);
        }
        let standing = match write.guard {
            _ if write.repair || write.extend => write.standing,
            Some(guard) if guard != version => Standing::Open(guard),
            _ => Standing::Plain,
        };
        if let Some(have) = have {
            let has_lost = have.standing.lost_to(have.version, version, standing);
            let loses = standing.lost_to(version, have.version, have.standing);
            if have.version == version {
                if write.extend && have.is_live(now) {
                    let keep_end = have.keep_end.max(now + write.keep.max(write.lease));
                    let bricks = write.bricks.boxed().or_else(|| have.bricks.clone());
                    let entry = Entry { lease_end: now + write.lease, keep_end, bricks, ..have.clone() };
                    self.table.put(key, entry);
                }
                return Wrote::Stored { had: false };
            }
            if loses || !has_lost && have.version > write.guard.unwrap_or(version).min(version) {
                return Wrote::Conflict(have.version);
            }
        }
        let had = have.is_some_and(|entry| entry.is_live(now));
        let freed = have.and_then(|entry| entry.value.as_ref()).map_or(0, |value| value.bytes.len());
        let stood_ms = have.filter(|_| had && !write.repair).map(|have| version.ms.saturating_sub(have.version.ms));
        let known = have.is_some();
        let kept_before = have.map_or(Time::ZERO, |entry| entry.keep_end);
        let len = write.value.as_ref().map_or(0, |value| value.bytes.len());
        // New keys are refused first. What does not grow is always taken.
        let more = match (write.repair, known) {
            (true, _) => self.bytes_max / COPY_SHARE,
            (false, true) => self.bytes_max / GROWTH_SHARE,
            (false, false) => 0,
        };
        if let Some(bound) = self.is_over(key, &write) {
            self.over += 1;
            return Wrote::Over(bound);
        }
        let grows = !known || len > freed;
        let growth = self.table.growth(key, len, now + write.lease);
        if write.value.is_some() && grows && self.bytes() + growth > self.bytes_max + more + freed as u64 {
            self.full += 1;
            return Wrote::Full;
        }
        if let Some(ms) = stood_ms {
            let intervals = self.intervals.entry(key.namespace).or_default();
            *intervals = Intervals { count: intervals.count + 1, sum_ms: intervals.sum_ms.saturating_add(ms) };
        }
        let lease_end = if write.value.is_some() { now + write.lease } else { now };
        let keep = match (&write.value, write.repair) {
            (Some(_), _) => write.keep.max(write.lease),
            (None, false) => write.keep.max(TOMBSTONE_KEPT),
            // Copies of a removal are not kept longer than the removal: or bricks that fill each other keep it for ever.
            (None, true) => write.keep,
        };
        let before = write.guard.map(|_| {
            let mut before = have.cloned();
            if let Some(before) = &mut before {
                before.before = None;
            }
            Box::new(before)
        });
        let undoable = before.is_some();
        let keep_end = kept_before.max(now + keep);
        let value = write.value.map(Value::kept);
        self.table
            .put(key, Entry { version, value, lease_end, keep_end, before, standing, bricks: write.bricks.boxed() });
        if undoable && let Some(key) = self.table.kept_key(key) {
            self.befores.push_back((now + UNDO_KEPT, key.clone(), version));
        }
        Wrote::Stored { had }
    }

    /// `found` is what another brick has below this version, which may be taken back in both: then it is to come back here, too.
    /// False: this version is not what this brick has.
    pub fn put_under(&mut self, now: Time, key: &Key, version: Version, found: &Found) -> bool {
        let Some(entry) = self.table.get(key).filter(|entry| entry.version == version) else { return false };
        let (Some(before), Some(under)) = (&entry.before, found.version) else { return true };
        if before.as_ref().as_ref().is_none_or(|before| before.version < under) {
            let lease_end = now + found.lease_left;
            let under = Entry {
                version: under,
                value: found.value.clone().map(Value::kept),
                lease_end,
                keep_end: lease_end.max(now + found.keep_left),
                before: None,
                standing: found.standing,
                bricks: found.bricks.boxed(),
            };
            let keep_end = entry.keep_end.max(under.keep_end);
            let before = Some(Box::new(Some(under)));
            self.table.put(key, Entry { before, keep_end, ..entry.clone() });
        }
        true
    }

    /// Takes a conditional write back, or sees to it that it is refused should it arrive later.
    pub fn undo(&mut self, now: Time, key: &Key, version: Version) {
        if self.undone.insert(version) {
            self.undone_ends.push_back((now + UNDO_KEPT.times(2), version));
        }
        let Some(entry) = self.table.get(key).filter(|entry| entry.version == version) else { return };
        match entry.before.as_deref().cloned() {
            Some(Some(before)) => {
                self.table.put(key, before);
            }
            Some(None) => {
                self.table.remove(key);
            }
            None => (),
        }
    }

    /// This write was acknowledged, so it stays: copies may be made of it.
    pub fn confirm(&mut self, key: &Key, version: Version) {
        let Some(entry) = self.table.get(key).filter(|entry| entry.version == version) else { return };
        if entry.before.is_some() || matches!(entry.standing, Standing::Open(_)) {
            let confirmed = Entry { before: None, standing: entry.standing.confirmed(), ..entry.clone() };
            self.table.put(key, confirmed);
        }
    }

    /// Every brick of the key has this version: only what is still on its way could bring an older value back.
    pub fn settle(&mut self, now: Time, key: &Key, version: Version) {
        let Some(entry) = self.table.get(key) else { return };
        let lease_end = if entry.value.is_some() { entry.lease_end } else { now };
        let keep_end = lease_end.max(now + SETTLED_KEPT);
        if entry.version == version && entry.keep_end > keep_end {
            let settled = Entry { keep_end, before: None, standing: entry.standing.confirmed(), ..entry.clone() };
            self.table.put(key, settled);
        }
    }

    /// Keys from shard `cursor` on, whole shards until there are `most` lines; and the shard to go on with, 0 at the
    /// end. `of` says which keys are wanted.
    pub fn list(&self, now: Time, cursor: u64, most: usize, of: impl Fn(&Key, &Entry) -> bool) -> (Vec<Line>, u64) {
        let mut lines = Vec::new();
        let mut visited = 0;
        let from = usize::try_from(cursor).unwrap_or(SHARDS).min(SHARDS);
        for shard in from..SHARDS {
            if self.table.shard_is_empty(shard) {
                continue;
            }
            let keys = self.table.shard(shard);
            visited += keys.len();
            let wanted =
                keys.into_iter().filter(|(key, entry)| (entry.is_live(now) || entry.keep_end > now) && of(key, entry));
            lines.extend(wanted.map(|(key, entry)| Line {
                key: key.clone(),
                version: entry.version,
                standing: entry.standing,
                live: entry.is_live(now),
                kind: entry.value.as_ref().map_or(Kind::Text, |value| value.kind),
                keep_left: entry.keep_end.since(now),
            }));
            // The second bound is for walks that want few of the keys they pass.
            if (lines.len() >= most || visited >= 16 * most) && shard + 1 < SHARDS {
                return (lines, shard as u64 + 1);
            }
        }
        (lines, 0)
    }

    /// Drops the keys of some shards that `keep` does not want, from `shard` on; the shard to go on with, if any.
    pub fn retain(&mut self, shard: usize, keep: impl Fn(&Key) -> bool) -> Option<usize> {
        let end = (shard + SHARDS / 64).min(SHARDS);
        for shard in shard..end {
            let foreign: Vec<Key> =
                self.table.shard(shard).into_iter().filter(|(key, _)| !keep(key)).map(|(key, _)| key.clone()).collect();
            for key in foreign {
                self.table.remove(&key);
            }
        }
        (end < SHARDS).then_some(end)
    }

    /// Frees what has ended, a slice at a time.
    pub fn sweep(&mut self, now: Time) {
        while let Some((end, key, version)) = self.befores.front() {
            // Nearly all are confirmed long before.
            let tentative = self.table.get(key).filter(|entry| entry.version == *version && entry.before.is_some());
            if tentative.is_some() && *end > now {
                break;
            }
            let settled = tentative.map(|entry| Entry { before: None, ..entry.clone() });
            let (_, key, _) = self.befores.pop_front().expect("just seen");
            if let Some(settled) = settled {
                self.table.put(&key, settled);
            }
        }
        if self.befores.is_empty() {
            self.befores = VecDeque::new();
        } else if self.befores.capacity() > SHRINK_BELOW * (self.befores.len() + 1) {
            self.befores.shrink_to(2 * self.befores.len());
        }
        while self.undone_ends.front().is_some_and(|(end, _)| *end <= now) {
            let (_, version) = self.undone_ends.pop_front().expect("just seen");
            self.undone.remove(&version);
        }
        self.note_damaged(now);
        if now >= self.next_sweep {
            let more = self.table.expire(now, FREED_PER_CALL);
            self.next_sweep = if more { now + Span::millis(1) } else { now + SWEEP_EVERY };
        }
    }

    pub fn wake_at(&self) -> Option<Time> {
        let expiry = self.table.first_end().map(|end| end.max(self.next_sweep));
        let before = self.befores.front().map(|(end, ..)| *end);
        let undone = self.undone_ends.front().map(|(end, _)| *end);
        [expiry, before, undone].into_iter().flatten().min()
    }

    /// See [`super::Session::flip_bit`].
    pub fn flip_bit(&mut self, key: Option<&Key>, shard: usize) -> bool {
        let key = key.cloned().or_else(|| self.table.first_valued(shard));
        key.is_some_and(|key| self.table.flip_bit(&key))
    }

    /// See [`super::Session::flip_version`].
    pub fn flip_version(&mut self, key: &Key) -> bool {
        self.table.flip_version(key)
    }
}

/// A value with its checksum, computed here and nowhere else (state.md, rule 3).
pub(super) fn seal(bytes: bytes::Bytes, kind: Kind) -> Value {
    let sum = Checksum::of(&bytes);
    Value { bytes, kind, sum }
}
