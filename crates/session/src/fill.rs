//! Fills: a brick that restarted, came back, or has a new place asks every other brick for the keys it should hold. It
//! asks page by page for keys and versions, then for the values it lacks, a few at a time, so that work goes on.
//!
//! `filled` is the epoch for which that is done. It is what makes a brick *settled*: before, its ignorance of a key
//! means nothing. A member that is not there is waited for only for a while: its memory is gone, or it comes back and
//! is asked then.

use std::collections::{BTreeMap, VecDeque};

use base::frame::Priority;
use base::{NodeId, Time};
use bytes::Bytes;

use super::brick::{Found, Line, Want, Wrote};
use super::limits::{FILL_TIMEOUT, FILL_UNDER_WAY, LACKS_TOLD_EVERY, LOOKS_AGAIN_EVERY, PAGE_ENTRIES, SETTLE_GRACE};
use super::map::place;
use super::ops::FILL_BIT;
use super::table::Key;
use super::wire::{self, Head, ListMessage, What};
use super::{BrickMap, Call, Output, Session, Version};

pub(super) struct Fill {
    /// Epoch for which this brick has all it should hold; 0: for none.
    pub filled: u64,
    /// Writes under an older map are refused: a fill for this epoch has begun.
    pub write_floor: u64,
    next_id: u64,
    pulls: BTreeMap<NodeId, Pull>,
    /// Something is to be done: calls are cheap otherwise.
    busy: bool,
    /// Where dropping keys that are not this brick's any more goes on.
    foreign: Option<usize>,
    /// Writes that this brick lacks, by who told, for which it has not begun to look through the others; those for which it looks
    /// now; and when it began.
    lacks: BTreeMap<NodeId, u64>,
    looks_for: u64,
    looked: Option<Time>,
    /// Since when there is something to look for.
    lacked: Option<Time>,
}

/// What is asked of one other brick.
struct Pull {
    done: bool,
    cursor: u64,
    /// The page under way.
    page: Option<u64>,
    want: VecDeque<Wanted>,
    under_way: Vec<(u64, Wanted)>,
    /// May be taken back: asked for again when all else has come.
    tentative: Vec<Key>,
    /// Last time something moved.
    moved: Time,
}

/// A key; and, if this brick has the same version as the other and it may be taken back in both, that version: then what is
/// below it is asked for. (Under load a key may be written again and again, so that there is always something that may be
/// taken back: seed 564712690306.)
type Wanted = (Key, Option<Version>);

impl Pull {
    fn new() -> Self {
        let (want, under_way, tentative) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { done: false, cursor: 0, page: None, want, under_way, tentative, moved: Time::ZERO }
    }
}

impl Fill {
    pub fn new(seed: u64) -> Self {
        Self {
            filled: 0,
            write_floor: 0,
            next_id: seed,
            pulls: BTreeMap::new(),
            busy: true,
            foreign: None,
            lacks: BTreeMap::new(),
            looks_for: 0,
            looked: None,
            lacked: None,
        }
    }

    /// Writes that this brick lacks, as far as it has been told.
    pub fn lacks(&self) -> u64 {
        self.lacks.values().copied().fold(self.looks_for, u64::saturating_add)
    }

    fn id(&mut self) -> u64 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id | FILL_BIT
    }
}

impl Session {
    pub(super) fn fill_birth(&mut self, peer: NodeId) {
        self.fill.pulls.insert(peer, Pull::new());
        self.fill.busy = true;
    }

    pub(super) fn fill_death(&mut self, peer: NodeId) {
        self.fill.pulls.remove(&peer);
        self.fill.busy = true;
    }

    /// Somebody says that this brick lacks so many writes. Whoever says it twice has not heard the answer.
    pub(super) fn fill_lacks(&mut self, now: Time, from: NodeId, writes: u64) {
        if self.peers.contains_key(&from) || from == self.me {
            let known = self.fill.lacks.entry(from).or_default();
            *known = if from == self.me { known.saturating_add(writes) } else { writes.max(*known) };
            self.fill.lacked.get_or_insert(now);
            self.fill.busy = true;
        }
    }

    /// Looks through all others once more, if it lacks something.
    fn look_again(&mut self, call: &mut Call, everyone: &[NodeId]) {
        self.fill.looks_for = 0;
        if self.fill.lacks.is_empty() || self.looks_again_at().is_some_and(|at| at > call.now) {
            return;
        }
        self.fill.looks_for = std::mem::take(&mut self.fill.lacks).into_values().fold(0, u64::saturating_add);
        (self.fill.looked, self.fill.lacked) = (Some(call.now), None);
        for node in everyone {
            if let Some(pull) = self.fill.pulls.get_mut(node) {
                *pull = Pull::new();
                self.pull_on(call, *node);
            }
        }
    }

    fn looks_again_at(&self) -> Option<Time> {
        // Others miss theirs in the same moment, and tell so soon.
        let told = self.fill.lacked.map(|since| since + LACKS_TOLD_EVERY);
        told.max(self.fill.looked.map(|looked| looked + LOOKS_AGAIN_EVERY))
    }

    /// The own memory is gone.
    pub(super) fn fill_anew(&mut self) {
        self.fill.filled = 0;
        self.fill.busy = true;
        for pull in self.fill.pulls.values_mut() {
            *pull = Pull::new();
        }
    }

    pub(super) fn fill_map(&mut self, call: &mut Call, before: Option<BrickMap>) {
        let Some(map) = &self.map else { return };
        self.fill.busy = true;
        let ends_transition = map.old.is_none()
            && before.is_some_and(|before| before.epoch + 1 == map.epoch && before.members == map.members);
        if map.old.is_none() {
            self.fill.write_floor = self.fill.write_floor.max(map.epoch.saturating_sub(1));
            self.fill.foreign = Some(0);
        }
        if ends_transition && self.fill.filled + 1 == map.epoch {
            self.fill.filled = map.epoch;
            return;
        }
        for pull in self.fill.pulls.values_mut() {
            *pull = Pull::new();
        }
        self.fill_wake(call);
    }

    pub(super) fn fill_wake_at(&self) -> Option<Time> {
        let map = self.map.as_ref().filter(|_| self.fill.busy)?;
        let open =
            |(node, pull): (&NodeId, &Pull)| (map.is_brick(*node) && !pull.done).then(|| pull.moved + FILL_TIMEOUT);
        let pulls = self.fill.pulls.iter().filter_map(open).min().filter(|_| map.is_brick(self.me));
        let grace = if self.fill.filled < map.epoch { self.missing_waited_for() } else { None };
        let grace = grace.filter(|until| *until > self.last);
        let foreign = self.fill.foreign.is_some().then(|| self.born.unwrap_or_default());
        let again = if self.fill.lacks.is_empty() { None } else { self.looks_again_at().filter(|at| *at > self.last) };
        [pulls, grace, foreign, again].into_iter().flatten().min()
    }

    /// Asks for what is to be asked, and sees whether this brick is filled now.
    pub(super) fn fill_wake(&mut self, call: &mut Call) {
        let Some(map) = self.map.as_ref().filter(|_| self.fill.busy) else { return };
        if !map.is_brick(self.me) {
            self.fill.filled = map.epoch;
            (self.fill.lacks, self.fill.looks_for) = (BTreeMap::new(), 0);
            self.drop_foreign();
            self.fill.busy = self.fill.foreign.is_some();
            return;
        }
        let everyone = map.everyone();
        for node in &everyone {
            let Some(pull) = self.fill.pulls.get_mut(node).filter(|pull| !pull.done) else { continue };
            let quiet = call.now.since(pull.moved) >= FILL_TIMEOUT;
            if quiet {
                // Whatever was under way is lost; asking twice does no harm.
                pull.page = None;
                let again = pull.under_way.drain(..).map(|(_, (key, _))| key).chain(pull.tentative.drain(..));
                pull.want.extend(again.map(|key| (key, None)));
                self.pull_on(call, *node);
            }
        }
        let pulling = everyone.iter().any(|node| self.fill.pulls.get(node).is_some_and(|pull| !pull.done));
        if self.fill.filled < self.map_seen() {
            let waits = self.missing_waited_for().is_some_and(|until| until > call.now);
            if !waits && !pulling && self.meets_most() {
                self.fill.filled = self.map_seen();
            }
        }
        if !pulling && self.fill.filled == self.map_seen() {
            self.look_again(call, &everyone);
        }
        let pulling = pulling || self.fill.looks_for > 0;
        self.drop_foreign();
        self.fill.busy =
            pulling || !self.fill.lacks.is_empty() || self.fill.foreign.is_some() || self.fill.filled < self.map_seen();
    }

    /// Until when members that are not there are waited for; none if all are there.
    fn missing_waited_for(&self) -> Option<Time> {
        let map = self.map.as_ref()?;
        let born = self.born.unwrap_or_default();
        let everyone = map.everyone();
        let missing = everyone.iter().filter(|node| !self.is_live(**node));
        missing.map(|node| self.peers.get(node).map_or(born, |peer| peer.since.max(born)) + SETTLE_GRACE).max()
    }

    /// Who meets few others is cut off rather than left behind, and has copied from too few to count.
    fn meets_most(&self) -> bool {
        let Some(map) = &self.map else { return false };
        let is_most_of = |members: &[NodeId]| {
            let met = members.iter().filter(|node| **node == self.me || self.is_live(**node)).count();
            2 * met > members.len()
        };
        is_most_of(&map.members) && map.old.as_deref().is_none_or(is_most_of)
    }

    /// Asks one brick for the next values, or the next page.
    fn pull_on(&mut self, call: &mut Call, node: NodeId) {
        let epoch = self.map_seen();
        let mut asks = Vec::new();
        let Some(mut pull) = self.fill.pulls.remove(&node) else { return };
        while pull.under_way.len() < FILL_UNDER_WAY
            && let Some((key, under)) = pull.want.pop_front()
        {
            let id = self.fill.id();
            asks.push((id, 0, wire::read(&key, under.map_or(Want::Newer(Version::default()), Want::Under))));
            pull.under_way.push((id, (key, under)));
        }
        if pull.under_way.is_empty() && pull.tentative.is_empty() && pull.page.is_none() && !pull.done {
            let id = self.fill.id();
            let list = ListMessage { cursor: pull.cursor, count: PAGE_ENTRIES as u32, namespace: 0, fill: true };
            asks.push((id, epoch, What::List(list)));
            pull.page = Some(id);
        }
        pull.moved = call.now;
        self.fill.pulls.insert(node, pull);
        for (id, epoch, what) in asks {
            let head = self.head(id, epoch, call.now, what);
            let frame = wire::frame(&head, Bytes::new(), FILL_TIMEOUT, Priority::LOWEST);
            call.out.push(Output::Send { to: node, frame });
        }
    }

    pub(super) fn fill_answered(&mut self, call: &mut Call, from: NodeId, head: Head, body: Bytes) {
        let Some(pull) = self.fill.pulls.get_mut(&from).filter(|pull| !pull.done) else { return };
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.filled = head.filled;
        }
        match head.what {
            Some(What::Page(page)) if pull.page == Some(head.id) => {
                pull.page = None;
                let next = page.next;
                let mut want = VecDeque::new();
                for line in page.take() {
                    if !self.brick.wants(&line) {
                        continue;
                    }
                    if line.live {
                        want.push_back((line.key, None));
                    } else {
                        let Line { version, standing, keep_left, .. } = line;
                        let found = Found { version: Some(version), standing, keep_left, ..Found::default() };
                        self.take_over(call, from, &line.key, found);
                    }
                }
                let pull = self.fill.pulls.get_mut(&from).expect("just seen");
                pull.want = want;
                pull.cursor = next;
                // Nothing follows this page, but its values are still to come.
                pull.done = next == 0 && pull.want.is_empty();
            }
            Some(What::Found(found)) => {
                let Some(at) = pull.under_way.iter().position(|(id, _)| *id == head.id) else { return };
                let (_, (key, under)) = pull.under_way.swap_remove(at);
                let found = found.take(body, &key);
                // A value that was damaged on its way stays with who sent it; another brick may have it whole.
                let sound = found.value.as_ref().is_none_or(|value| value.is_whole());
                let sound = sound && found.value.is_some() == found.live;
                if found.tentative {
                    // It may be taken back in a moment; then a copy here would outlive it. Unless this brick was written
                    // to as well, and will hear of it.
                    match found.version.filter(|version| under.is_none() && self.brick.version(&key) == Some(*version))
                    {
                        Some(version) => pull.want.push_back((key, Some(version))),
                        None => pull.tentative.push(key),
                    }
                    return self.pull_on(call, from);
                }
                if let Some(version) = under.filter(|version| found.version < Some(*version) && sound)
                    && !self.brick.put_under(call.now, &key, version, &found)
                {
                    // Something else was written here meanwhile.
                    pull.tentative.push(key);
                    return self.pull_on(call, from);
                }
                pull.done =
                    pull.cursor == 0 && pull.want.is_empty() && pull.under_way.is_empty() && pull.tentative.is_empty();
                if sound {
                    self.take_over(call, from, &key, found);
                }
            }
            // The other has another map. Ours may be the older one; if not, it is asked again in a while.
            Some(What::Behind(behind)) if pull.page == Some(head.id) => {
                if let Some(map) = BrickMap::decode(&behind.map) {
                    self.adopt(call, map);
                }
                return;
            }
            _ => return,
        }
        self.pull_on(call, from);
    }

    fn take_over(&mut self, call: &mut Call, from: NodeId, key: &Key, found: Found) {
        let Some(write) = found.copy() else { return };
        if let Wrote::Stored { .. } = self.brick_write(call, from, self.map_seen(), key, write) {
            self.figures.filled_values += 1;
        }
    }

    /// Once a transition is over, keys that lie elsewhere now are dropped, some shards a call: were they kept, they
    /// would come back to life, outdated, with a later map.
    fn drop_foreign(&mut self) {
        let (Some(map), Some(shard)) = (&self.map, self.fill.foreign) else { return };
        if map.old.is_some() {
            self.fill.foreign = None;
            return;
        }
        let me = self.me;
        self.fill.foreign = self
            .brick
            .retain(shard, |key| super::cookie_ops::is_cookie_key(key) || place(&map.members, key.hash).contains(me));
    }
}
