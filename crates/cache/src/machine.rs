//! The machine: an operation goes to the node that owns its key, which has it or not. A node that has come lately first asks the one
//! that owned the key before, and takes the entry over: a node that joins costs no storm of misses.
//!
//! Nothing is asked twice of a node that does not answer: a read is a miss then, a write is unknown. Who dies meanwhile is replaced by
//! the new owner. Where two nodes do not agree on who owns a key the operation rests, and is tried again.
//!
//! An entry on its way from its former owner could pass a purge by: that node may not have known of it yet. So what arrives is
//! compared with all purges that this node has done in the last seconds. That is enough: the former owner gives only while it holds
//! leases, so a purge that it does not know is not done at that moment, and has begun no longer ago than a purge may take.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::checksum::Checksum;
use base::hash::FixedMap;
use base::limits::KEY_BYTES_MAX;
use base::{AskId, Boot, Frame, NodeId, Outcome, Priority, Refused, Span, Time, Unknown};
use bytes::Bytes;
use class::{Class, Declared};
use prost::Message as _;

use super::claims::Claims;
use super::lease::{Leases, Wants};
use super::limits::*;
use super::loads::{Loads, Waiter};
use super::marks::Marks;
use super::near::Near;
use super::shown::Counts;
use super::store::{Store, Value};
use super::verbs::{self, End};
use super::view::Views;
use super::wire::{self, AnswerMessage, AskMessage, Control, Data, MarkMessage, Said};
use super::{Act, Entry, Input, LEVEL, LEVEL_FETCH, Mark, Op, Output, Purge, Reply, Spec, What};

pub struct Cache {
    pub(super) me: NodeId,
    pub(super) boot: Boot,
    level: u32,
    spaces: FixedMap<Box<str>, (u32, Spec)>,
    pub(super) stores: BTreeMap<u32, Store>,
    pub(super) views: Views,
    /// Those that came when there was nothing here that could be theirs.
    pub(super) bare_for: BTreeSet<NodeId>,
    pub(super) leases: Leases,
    lives: BTreeMap<NodeId, Boot>,
    ops: BTreeMap<u64, Running>,
    timers: BTreeSet<(Time, u64)>,
    op_last: u64,
    takes: BTreeMap<(u32, Bytes), Take>,
    counting: BTreeMap<u64, Counting>,
    /// Purges done here lately, the newest last.
    purged: VecDeque<(Time, Purge)>,
    /// When the last one was dropped from those, as they were too many.
    purged_lost: Option<Time>,
    pub(super) marks: Marks,
    claims: Claims,
    is_leased: bool,
    pub(super) loads: Loads,
    pub(super) near: Near,
    pub(super) counts: Counts,
}

/// An operation of this node's doors.
struct Running {
    ask: AskId,
    deadline: Time,
    namespace: u32,
    key: Bytes,
    act: Act,
    priority: Priority,
    /// Who was asked; none: it rests.
    asked: Option<NodeId>,
    /// When something is to happen next.
    at: Time,
    /// Somebody else fetches it.
    waits: bool,
}

/// A key that is taken over.
struct Take {
    id: u64,
    from: NodeId,
    until: Time,
    waiting: Vec<(Who, Act)>,
}

struct Counting {
    ask: AskId,
    from: BTreeSet<NodeId>,
    sum: u64,
    until: Time,
}

/// Who wants something of an owner: an operation of this node, or one of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Who {
    Here(u64),
    There { peer: NodeId, id: u64, life: u64 },
}

impl Cache {
    pub fn new(me: NodeId, boot: Boot, near: Near) -> Self {
        near.is_of(me);
        Self {
            me,
            boot,
            level: 0,
            spaces: FixedMap::default(),
            stores: BTreeMap::new(),
            views: Views::new(me),
            bare_for: BTreeSet::new(),
            leases: Leases::new(me, boot),
            lives: BTreeMap::new(),
            ops: BTreeMap::new(),
            timers: BTreeSet::new(),
            op_last: 0,
            takes: BTreeMap::new(),
            counting: BTreeMap::new(),
            purged: VecDeque::new(),
            purged_lost: None,
            marks: Marks::default(),
            claims: Claims::default(),
            is_leased: false,
            loads: Loads::default(),
            near,
            counts: Counts::default(),
        }
    }

    pub(super) fn is_leased(&self) -> bool {
        self.is_leased
    }

    pub(super) fn turn(&mut self, now: Time, input: Input, out: &mut Vec<Output>) {
        let mut wants = Vec::new();
        self.leases.look(now, &mut wants);
        self.carry_out(now, &mut wants, out);
        match input {
            Input::Ask { id, budget, op } => self.ask(now, id, budget, op, out),
            Input::Frame { from, frame } => self.frame(now, from, frame, out),
            Input::Birth { peer, boot } => self.birth(now, peer, boot),
            Input::Death { peer } => self.death(now, peer, out),
            Input::Declared(Declared { level, spaces, .. }) => {
                self.level = level;
                self.declare(spaces.into_iter().map(|(name, space)| (name, (space.id, space.spec))).collect());
            }
            Input::Voters(voters) => self.leases.set_voters(voters),
            // It has no report, no group and no log, and leads nothing.
            Input::Told { .. } | Input::Appended { .. } | Input::Saved { .. } | Input::Worked { .. } => (),
            Input::Packs(there) => self.packs_are_there(&there),
            Input::Pack { group, said } => self.pack_said(now, group, said, out),
            Input::DiskFull(is_full) => self.disk_is_full(is_full),
            Input::DiskRoom { free, all } => self.disk_room(free, all),
            Input::Aside(_) | Input::Leaving(_) => (),
            Input::Probe { id, .. } => out.push(Output::Probed { id, answers: false }),
            Input::Tend | Input::Wake => (),
        }
        self.run_timers(now, out);
        self.leases.settle(now, &mut wants);
        self.carry_out(now, &mut wants, out);
        self.stores.values_mut().for_each(|store| store.sweep(now));
        self.is_leased = self.leases.holds(now);
        self.near.held(self.leases.until());
        self.disk_wants(out);
    }

    fn declare(&mut self, spaces: BTreeMap<String, (u32, Spec)>) {
        let ids: BTreeSet<u32> = spaces.values().map(|(id, _)| *id).collect();
        let over: Vec<u32> = self.stores.keys().copied().filter(|id| !ids.contains(id)).collect();
        if !over.is_empty() {
            self.near.changed_all();
        }
        over.iter().filter_map(|id| self.stores.remove(id)).for_each(|store| self.loads.over(store.ring));
        for (id, spec) in spaces.values() {
            let ring = || self.loads.ring(*id, spec);
            let store = self.stores.entry(*id).or_insert_with(|| Store::new(spec.size_max, ring()));
            if store.size_max() != spec.size_max {
                store.resize(spec.size_max);
            }
            store.ring.resize(spec.disk_max, spec.size_max);
        }
        self.spaces = spaces.into_iter().map(|(name, space)| (name.into(), space)).collect();
        self.leases.needed(!self.spaces.is_empty() && self.level >= LEVEL);
    }

    fn birth(&mut self, now: Time, peer: NodeId, boot: Boot) {
        if peer == self.me || self.lives.get(&peer) == Some(&boot) {
            return;
        }
        if self.lives.insert(peer, boot).is_some() {
            // Of its life before nobody has heard the end.
            self.leases.death(peer);
            self.claims.death(peer);
            self.views.change(now, peer, false);
        }
        self.views.change(now, peer, true);
        self.near.changed_all();
        self.leases.birth(now, peer, boot);
        let is_bare = self.stores.values().all(|store| store.len() == 0);
        if is_bare {
            self.bare_for.insert(peer)
        } else {
            self.bare_for.remove(&peer)
        };
    }

    fn death(&mut self, now: Time, peer: NodeId, out: &mut Vec<Output>) {
        if self.lives.remove(&peer).is_none() {
            return;
        }
        self.views.change(now, peer, false);
        self.near.changed_all();
        self.leases.death(peer);
        self.claims.death(peer);
        let asked: Vec<u64> = self.ops.iter().filter(|(_, op)| op.asked == Some(peer)).map(|(id, _)| *id).collect();
        for id in asked {
            self.again(now, id, out);
        }
        let taken: Vec<_> =
            self.takes.iter().filter(|(_, take)| take.from == peer).map(|(key, _)| key.clone()).collect();
        for key in taken {
            self.took(now, key, None, out);
        }
    }

    fn carry_out(&mut self, now: Time, wants: &mut Vec<Wants>, out: &mut Vec<Output>) {
        for want in wants.drain(..) {
            match want {
                Wants::Tell(to, told) => {
                    out.push(Output::Send { to, frame: wire::control(Self::NUMBER, self.boot.0, told) });
                }
                Wants::Do(purge) => self.purge_here(now, purge),
                Wants::Forget => {
                    if self.stores.values().any(|store| store.len() > 0) {
                        self.counts.forgotten += 1;
                    }
                    self.stores.values_mut().for_each(|store| _ = store.purge(&What::All));
                    self.near.changed_all();
                    self.marks.forget();
                    self.views.rejoin(now);
                }
                Wants::Ended(id, true) => {
                    self.counts.purges += 1;
                    out.push(Output::Answer { id, answer: Outcome::Done(Reply::Purged) });
                }
                Wants::Ended(id, false) => {
                    let why = "not most voters of the root group have told in time that all nodes have purged it; purge it again";
                    out.push(Output::Answer { id, answer: Outcome::Unknown(Unknown { why: why.into() }) });
                }
                Wants::Bad(from) => out.push(bad(from)),
            }
        }
    }

    fn purge_here(&mut self, now: Time, purge: Purge) {
        self.near.purged(&purge.what);
        if let Some(store) = self.stores.get_mut(&purge.namespace) {
            store.purge(&purge.what);
        }
        // It is told several times, by each voter.
        if self.purged.iter().rev().take(8).any(|(at, known)| *at == now && *known == purge) {
            return;
        }
        self.marks.push(purge.clone());
        while self.purged.front().is_some_and(|(at, _)| now.since(*at) > PURGES_COMPARED) {
            self.purged.pop_front();
        }
        if self.purged.len() >= PURGES_COMPARED_MAX {
            self.purged_lost = self.purged.pop_front().map(|_| now);
        }
        self.purged.push_back((now, purge));
    }

    /// May a purge be about it that who gave it did not know?
    fn may_be_purged(&self, now: Time, namespace: u32, key: &[u8], tags: &[Bytes]) -> bool {
        self.purged_lost.is_some_and(|at| now.since(at) <= PURGES_COMPARED)
            || self.purged.iter().any(|(_, purge)| purge.covers(namespace, key, tags))
    }

    // Of this node's doors.

    fn ask(&mut self, now: Time, ask: AskId, budget: Span, op: Op, out: &mut Vec<Output>) {
        let refuse = |refused| Output::Answer { id: ask, answer: Outcome::Refused(refused) };
        let Some((namespace, spec)) = self.spaces.get(&*op.namespace).cloned() else {
            let why = format!("there is no namespace {} of class cache", op.namespace);
            return out.push(refuse(Refused::wrong(why)));
        };
        if self.level < LEVEL {
            let has = self.level;
            let why = format!(
                "not every node has a program with caches yet: this cluster agreed on level {has}, they need {LEVEL}"
            );
            return out.push(refuse(Refused::busy(why, Span::secs(1))));
        }
        if let Err(why) = op.check() {
            return out.push(refuse(Refused::wrong(why)));
        }
        if self.ops.len() >= OPS_MAX {
            return out.push(refuse(Refused::busy("too many operations are under way", RETRY_AFTER)));
        }
        let Op { key, act, priority, .. } = op;
        let act = match act {
            Act::Purge(what) => {
                let busy = |why: &str| refuse(Refused::busy(why, RETRY_AFTER));
                let mut wants = Vec::new();
                if !self.leases.has_voters() {
                    return out.push(busy("this node does not know the voters of the root group yet"));
                }
                if !self.leases.purge(now, ask, budget, Purge { namespace, what }, &mut wants) {
                    return out.push(busy("too many purges are under way"));
                }
                return self.carry_out(now, &mut wants, out);
            }
            Act::Count => return self.count(now, ask, budget, namespace, out),
            Act::ReadHere => return self.read_here(now, ask, namespace, &key, out),
            Act::KeepHere { value, ttl, mark } => {
                let reply = self.keep_here(now, (namespace, key), value, ttl, mark);
                return out.push(Output::Answer { id: ask, answer: Outcome::Done(reply) });
            }
            Act::Set { value, kind, tags, ttl, only_present, mark } => {
                Act::Set { value, kind, tags, ttl: ttl.or(spec.ttl()), only_present, mark }
            }
            Act::Fetch(_) if self.level < LEVEL_FETCH => Act::Read,
            other => other,
        };
        self.op_last += 1;
        let (id, deadline) = (self.op_last, now + budget);
        let running = Running { ask, deadline, namespace, key, act, priority, asked: None, at: deadline, waits: false };
        self.timers.insert((deadline, id));
        self.ops.insert(id, running);
        self.begin(now, id, out);
    }

    /// Asks who owns the key now.
    fn begin(&mut self, now: Time, id: u64, out: &mut Vec<Output>) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        let owner = self.views.owner(&op.key);
        op.asked = Some(owner);
        let wait = if matches!(op.act, Act::Fetch(_)) { FETCH_OWNER_WAIT } else { OWNER_WAIT };
        let at = (now + wait).min(op.deadline);
        self.timers.remove(&(op.at, id));
        self.timers.insert((at, id));
        op.at = at;
        if owner == self.me {
            let (namespace, key, act) = (op.namespace, op.key.clone(), op.act.clone());
            return self.serve(now, Who::Here(id), namespace, key, act, false, out);
        }
        let (message, body) = verbs::ask_message(op.namespace, &op.key, &op.act);
        let head = Data { id, life: self.boot.0, said: Some(Said::Ask(message)) };
        let frame = wire::data(Self::NUMBER, &head, body, op.deadline.since(now), op.priority);
        out.push(Output::Send { to: owner, frame });
    }

    /// A moment later, as nodes do not agree; or at once, as the one that was asked is dead.
    fn again(&mut self, now: Time, id: u64, out: &mut Vec<Output>) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        if now + MOVED_RESTS < op.deadline {
            op.asked = None;
            self.timers.remove(&(op.at, id));
            op.at = now + MOVED_RESTS;
            self.timers.insert((op.at, id));
            return;
        }
        self.end(id, End::Moved, None, out);
    }

    /// A moment later it may be there; or nothing comes of it, as nobody waits any longer.
    fn waits(&mut self, now: Time, id: u64, mark: Option<Mark>, out: &mut Vec<Output>) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        if !op.waits {
            op.waits = true;
            self.counts.waited += 1;
        }
        if now + FETCH_RESTS < op.deadline {
            op.asked = None;
            self.timers.remove(&(op.at, id));
            op.at = now + FETCH_RESTS;
            self.timers.insert((op.at, id));
            return;
        }
        self.end(id, End::Absent, mark, out);
    }

    /// What the owner says becomes the answer.
    fn end(&mut self, id: u64, end: End, mark: Option<Mark>, out: &mut Vec<Output>) {
        let Some(op) = self.ops.remove(&id) else { return };
        self.timers.remove(&(op.at, id));
        let is_read = op.act.is_read();
        let wants_mark = matches!(op.act, Act::Read | Act::Fetch(_));
        let end = match end {
            // A cache that cannot tell has nothing.
            End::Moved | End::Unleased | End::Fetched if is_read => End::Absent,
            End::Found(value, _) if op.act != Act::Look && !Checksum(value.sum).matches(&value.bytes) => {
                self.counts.damaged += 1;
                End::Absent
            }
            other => other,
        };
        if is_read {
            *(if matches!(end, End::Found(..)) { &mut self.counts.hits } else { &mut self.counts.misses }) += 1;
        }
        let answer = match end {
            End::Found(Value { bytes, kind, tags, .. }, ttl_left) if wants_mark => {
                let entry = Some(Entry { value: bytes, kind, tags, ttl_left });
                Outcome::Done(Reply::Read { entry, mark })
            }
            End::Absent if wants_mark => Outcome::Done(Reply::Read { entry: None, mark }),
            End::Found(Value { bytes, kind, tags, .. }, ttl_left) => {
                Outcome::Done(Reply::Value { value: bytes, kind, tags, ttl_left })
            }
            End::Absent => Outcome::Done(Reply::Absent),
            End::Stored => Outcome::Done(Reply::Stored),
            End::NotStored => Outcome::Done(Reply::NotStored),
            End::Changed(there) => Outcome::Done(Reply::Changed(there)),
            End::Moved | End::Fetched => {
                Outcome::Refused(Refused::busy("nodes do not agree yet on who is live", RETRY_AFTER))
            }
            End::Unleased => {
                let why = "the key's node does not reach most voters of the root group, so it may not serve";
                Outcome::Refused(Refused::busy(why, RETRY_AFTER))
            }
        };
        out.push(Output::Answer { id: op.ask, answer });
    }

    fn timed_out(&mut self, now: Time, id: u64, out: &mut Vec<Output>) {
        let Some(op) = self.ops.get(&id) else { return };
        let Some(owner) = op.asked else { return self.begin(now, id, out) };
        self.counts.unreached += 1;
        if owner != self.me {
            out.push(Output::Doubt { peer: owner });
        }
        if op.act.is_read() {
            return self.end(id, End::Absent, None, out);
        }
        let (ask, at) = (op.ask, op.at);
        self.ops.remove(&id);
        self.timers.remove(&(at, id));
        let why = "the key's node did not answer in time".to_owned();
        out.push(Output::Answer { id: ask, answer: Outcome::Unknown(Unknown { why }) });
    }

    fn count(&mut self, now: Time, ask: AskId, budget: Span, namespace: u32, out: &mut Vec<Output>) {
        self.op_last += 1;
        let id = self.op_last;
        let sum = self.stores.get(&namespace).map_or(0, |store| store.len() as u64);
        let from: BTreeSet<NodeId> = self.lives.keys().copied().collect();
        let message = AskMessage { namespace, verb: verbs::COUNT, ..AskMessage::default() };
        for peer in &from {
            let head = Data { id, life: self.boot.0, said: Some(Said::Ask(message.clone())) };
            let frame = wire::data(Self::NUMBER, &head, Bytes::new(), budget, Priority::NORMAL);
            out.push(Output::Send { to: *peer, frame });
        }
        let until = now + budget.min(OWNER_WAIT);
        self.counting.insert(id, Counting { ask, from, sum, until });
        self.counted(now, out);
    }

    /// Answers what has been counted everywhere, or where it could be in time.
    fn counted(&mut self, now: Time, out: &mut Vec<Output>) {
        self.counting.retain(|_, one| {
            let is_done = one.from.is_empty() || one.until <= now;
            if is_done {
                out.push(Output::Answer { id: one.ask, answer: Outcome::Done(Reply::Count(one.sum)) });
            }
            !is_done
        });
    }

    fn run_timers(&mut self, now: Time, out: &mut Vec<Output>) {
        while let Some((_, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            self.timed_out(now, id, out);
        }
        let late: Vec<_> =
            self.takes.iter().filter(|(_, take)| take.until <= now).map(|(key, _)| key.clone()).collect();
        for key in late {
            if let Some(take) = self.takes.get(&key) {
                // What it still has of former days is lost: it may be older than what is stored here from now on.
                let from = take.from;
                self.views.give_up(from);
                out.push(Output::Doubt { peer: from });
            }
            self.took(now, key, None, out);
        }
        self.late_loads(now, out);
        self.counted(now, out);
    }

    pub(super) fn next_wake(&self) -> Option<Time> {
        let ops = self.timers.first().map(|(at, _)| *at);
        let takes = self.takes.values().map(|take| take.until).min();
        let counting = self.counting.values().map(|one| one.until).min();
        let ends = self.stores.values().filter_map(Store::first_end).min().map(|at| at + SWEEP_EVERY);
        [ops, takes, counting, ends, self.loads.wake_at(), self.leases.wake_at()].into_iter().flatten().min()
    }

    // At the owner.

    #[allow(clippy::too_many_arguments, reason = "an operation and where it comes from")]
    pub(super) fn serve(
        &mut self,
        now: Time,
        who: Who,
        namespace: u32,
        key: Bytes,
        act: Act,
        is_settled: bool,
        out: &mut Vec<Output>,
    ) {
        if self.views.owner(&key) != self.me || !self.stores.contains_key(&namespace) {
            return self.say(now, who, End::Moved, out);
        }
        if !self.leases.holds(now) {
            self.counts.unleased += 1;
            return self.say(now, who, End::Unleased, out);
        }
        let store = self.stores.get_mut(&namespace).expect("it was there just now");
        if let Some((_, view)) = store.peek(now, &key) {
            if self.views.has_kept(&key, view) {
                store.confirm(&key, self.views.number());
                let end = self.act(now, who, namespace, key, act);
                return self.say(now, who, end, out);
            }
            store.remove(now, &key);
        }
        if let Some(view) = store.ring.peek(now, &key) {
            if self.views.has_kept(&key, view) {
                store.ring.confirm(&key, self.views.number());
                if act.is_read() && !is_settled {
                    return self.load(now, Waiter::Act(who, act), namespace, key, out);
                }
                let end = self.act(now, who, namespace, key, act);
                return self.say(now, who, end, out);
            }
            store.ring.remove(&key);
        }
        if !is_settled && let Some(former) = self.views.former(now, &key) {
            let place = (namespace, key);
            if let Some(take) = self.takes.get_mut(&place) {
                match take.waiting.len() < TAKE_WAITERS_MAX {
                    true => take.waiting.push((who, act)),
                    false => self.say(now, who, End::Moved, out),
                }
                return;
            }
            if self.takes.len() < TAKES_MAX {
                return self.take(now, place, former, (who, act), out);
            }
            return self.say(now, who, End::Moved, out);
        }
        let end = self.act(now, who, namespace, key, act);
        self.say(now, who, end, out);
    }

    fn act(&mut self, now: Time, who: Who, namespace: u32, key: Bytes, act: Act) -> End {
        let view = self.views.number();
        let by = if let Who::There { peer, .. } = who { peer } else { self.me };
        if matches!(act, Act::Set { only_present: false, .. } | Act::Remove) {
            self.claims.end(namespace, &key);
        }
        if matches!(act, Act::Set { .. } | Act::Remove | Act::End(_)) {
            self.near.changed(&key);
        }
        let Some(store) = self.stores.get_mut(&namespace) else { return End::Moved };
        let left = |value: &Value| value.ends.map(|ends| ends.since(now));
        match act {
            Act::Get | Act::Read => {
                store.get(now, &key).map_or(End::Absent, |(value, _)| End::Found(value.clone(), left(value)))
            }
            Act::Fetch(within) => match store.get(now, &key) {
                Some((value, _)) => End::Found(value.clone(), left(value)),
                None if self.claims.claim(now, namespace, &key, by, now + within.min(FETCH_MAX)) => End::Absent,
                None => End::Fetched,
            },
            Act::Look => store.peek(now, &key).map_or(End::Absent, |(value, _)| {
                End::Found(Value { bytes: Bytes::new(), ..value.clone() }, left(value))
            }),
            Act::Set { only_present: true, .. }
                if store.peek(now, &key).is_none() && store.ring.peek(now, &key).is_none() =>
            {
                End::NotStored
            }
            Act::Set { mark: Some(mark), ref tags, .. }
                if (mark.node, mark.life) != (self.me, self.boot.0)
                    || !self.marks.is_clear_since(mark.number, namespace, &key, tags) =>
            {
                End::NotStored
            }
            Act::Set { value, kind, tags, ttl, only_present: _, mark: _ } => {
                let sum = Checksum::of(&value).0;
                let value = Value { bytes: value, kind, sum, ends: ttl.map(|ttl| now + ttl), tags };
                store.insert(key, value, view);
                End::Stored
            }
            Act::Remove => {
                let was_there = store.ring.peek(now, &key).is_some() | store.remove(now, &key).is_some();
                store.ring.remove(&key);
                self.marks.push(Purge { namespace, what: What::Key(key) });
                End::Changed(was_there)
            }
            Act::End(ttl) => End::Changed(store.set_end(now, &key, ttl.map(|ttl| now + ttl))),
            Act::Count | Act::Purge(_) | Act::ReadHere | Act::KeepHere { .. } => End::Moved,
        }
    }

    pub(super) fn say(&mut self, now: Time, who: Who, end: End, out: &mut Vec<Output>) {
        match (who, end) {
            (Who::Here(id), End::Moved) => self.again(now, id, out),
            (Who::Here(id), End::Fetched) => self.waits(now, id, Some(self.mark()), out),
            (Who::Here(id), end) => self.end(id, end, Some(self.mark()), out),
            (Who::There { peer, id, life }, end) => {
                let is_read = matches!(end, End::Found(..) | End::Absent | End::Fetched);
                let (mut answer, body) = verbs::answer_message(end);
                answer.mark = is_read.then(|| MarkMessage::of(self.mark()));
                self.tell(peer, id, life, answer, body, out);
            }
        }
    }

    /// This moment, for who fetches what is missing: only while it holds leases.
    pub(super) fn mark(&self) -> Mark {
        Mark { node: self.me, life: self.boot.0, number: self.marks.now() }
    }

    pub(super) fn tell(
        &self,
        to: NodeId,
        id: u64,
        life: u64,
        answer: AnswerMessage,
        body: Bytes,
        out: &mut Vec<Output>,
    ) {
        let head = Data { id, life, said: Some(Said::Answer(answer)) };
        out.push(Output::Send { to, frame: wire::data(Self::NUMBER, &head, body, Span::ZERO, Priority::NORMAL) });
    }

    /// Asks who had the key before for what it has.
    fn take(&mut self, now: Time, place: (u32, Bytes), from: NodeId, first: (Who, Act), out: &mut Vec<Output>) {
        self.op_last += 1;
        let id = self.op_last;
        let message =
            AskMessage { namespace: place.0, verb: verbs::TAKE, key: place.1.clone(), ..AskMessage::default() };
        let head = Data { id, life: self.boot.0, said: Some(Said::Ask(message)) };
        let frame = wire::data(Self::NUMBER, &head, Bytes::new(), TAKE_WAIT, Priority::NORMAL);
        out.push(Output::Send { to: from, frame });
        self.takes.insert(place, Take { id, from, until: now + TAKE_WAIT, waiting: vec![first] });
    }

    /// Here it is, if there was something; who waits for it goes on.
    fn took(&mut self, now: Time, place: (u32, Bytes), value: Option<Value>, out: &mut Vec<Output>) {
        let Some(take) = self.takes.remove(&place) else { return };
        let (namespace, key) = place;
        let view = self.views.number();
        if let Some(value) = value
            && self.views.owner(&key) == self.me
            && !self.may_be_purged(now, namespace, &key, &value.tags)
            && let Some(store) = self.stores.get_mut(&namespace)
        {
            self.counts.taken += 1;
            self.near.changed(&key);
            store.insert(key.clone(), value, view);
        }
        for (who, act) in take.waiting {
            self.serve(now, who, namespace, key.clone(), act, true, out);
        }
    }

    /// A peer owns the key now: it gets what was here, and nothing stays.
    fn give(&mut self, now: Time, peer: NodeId, id: u64, life: u64, ask: AskMessage, out: &mut Vec<Output>) {
        let AskMessage { namespace, key, .. } = ask;
        if self.views.owner(&key) == self.me {
            let (answer, body) = verbs::answer_message(End::Moved);
            return self.tell(peer, id, life, answer, body, out);
        }
        let found = self.stores.get_mut(&namespace).and_then(|store| store.remove(now, &key));
        let there = self.stores.get_mut(&namespace).and_then(|store| store.ring.peek(now, &key));
        match there.filter(|_| found.is_none()) {
            Some(_) => self.load(now, Waiter::Give { peer, id, life }, namespace, key, out),
            None => self.give_found(now, peer, (id, life), &key, found, out),
        }
    }

    // Frames.

    fn frame(&mut self, now: Time, from: NodeId, frame: Frame, out: &mut Vec<Output>) {
        if frame.kind == Self::NUMBER.control(0) {
            let Ok(Control { life, told: Some(told) }) = Control::decode(frame.head) else {
                return out.push(bad(from));
            };
            // Of a life that is over, or of one that is not known yet.
            if self.lives.get(&from) != Some(&Boot(life)) {
                return;
            }
            let mut wants = Vec::new();
            self.leases.hear(now, from, Boot(life), told, &mut wants);
            return self.carry_out(now, &mut wants, out);
        }
        if frame.kind != Self::NUMBER.data(0) {
            // A newer program's.
            return;
        }
        let Ok(Data { id, life, said: Some(said) }) = Data::decode(frame.head) else { return out.push(bad(from)) };
        match said {
            Said::Ask(ask) => self.asked(now, from, (id, life), ask, frame.body, out),
            Said::Answer(answer) if life == self.boot.0 => self.answered(now, from, id, answer, frame.body, out),
            Said::Answer(_) => (),
        }
    }

    fn asked(
        &mut self,
        now: Time,
        from: NodeId,
        (id, life): (u64, u64),
        ask: AskMessage,
        body: Bytes,
        out: &mut Vec<Output>,
    ) {
        if ask.key.len() > KEY_BYTES_MAX || body.len() > VALUE_BYTES_MAX {
            return out.push(bad(from));
        }
        match ask.verb {
            verbs::TAKE => return self.give(now, from, id, life, ask, out),
            verbs::COUNT => {
                let number = self.stores.get(&ask.namespace).map_or(0, |store| store.len() as u64);
                let answer = AnswerMessage { end: verbs::COUNTED, number, ..AnswerMessage::default() };
                return self.tell(from, id, life, answer, Bytes::new(), out);
            }
            _ => (),
        }
        let (namespace, key) = (ask.namespace, ask.key.clone());
        // What a newer program asks for is none of ours: it will not be answered.
        let Some(act) = verbs::act_of(ask, body) else { return out.push(bad(from)) };
        self.serve(now, Who::There { peer: from, id, life }, namespace, key, act, false, out);
    }

    fn answered(
        &mut self,
        now: Time,
        from: NodeId,
        id: u64,
        answer: AnswerMessage,
        body: Bytes,
        out: &mut Vec<Output>,
    ) {
        if let Some(one) = self.counting.get_mut(&id) {
            if answer.end == verbs::COUNTED && one.from.remove(&from) {
                one.sum = one.sum.saturating_add(answer.number);
            }
            return self.counted(now, out);
        }
        let (code, bare) = (answer.end, answer.bare);
        let mark = answer.mark.map(MarkMessage::take);
        let Some(end) = verbs::end_of(answer, body) else { return out.push(bad(from)) };
        if let Some(op) = self.ops.get(&id) {
            if op.asked != Some(from) {
                return;
            }
            return match end {
                End::Moved => self.again(now, id, out),
                End::Fetched => self.waits(now, id, mark, out),
                end => self.end(id, end, mark, out),
            };
        }
        let is_it = |take: &Take| take.id == id && take.from == from;
        let Some(place) = self.takes.iter().find(|(_, take)| is_it(take)).map(|(place, _)| place.clone()) else {
            return;
        };
        if bare {
            self.views.give_up(from);
        }
        match end {
            End::Found(value, left) if code == verbs::FOUND => {
                let value = Value { ends: left.map(|left| now + left), ..value };
                self.took(now, place, Some(value), out);
            }
            // It believes that the key is still its own: whoever asked for it asks again.
            End::Moved => {
                let Some(take) = self.takes.remove(&place) else { return };
                take.waiting.into_iter().for_each(|(who, _)| self.say(now, who, End::Moved, out));
            }
            _ => self.took(now, place, None, out),
        }
    }
}

fn bad(from: NodeId) -> Output {
    Output::Bad { from, why: "is not one of class cache".to_owned() }
}
