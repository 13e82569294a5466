//! Purges, and the leases that make them hold: no request that begins after a purge was acknowledged gets what was stored before it.
//!
//! The root group's voters *grant*. A node serves values only while it holds leases of a majority of them; a purge is done when a
//! majority of them have *recorded* it, and each records when all nodes that hold a lease of it have done the purge, or their leases
//! have ended. A node that serves and a purge that is done have one of them in common. A node that comes for a lease after its last one
//! has ended is first sent the purges that it lacks; if they are not remembered any more, it forgets all.
//!
//! A hung node delays a purge by what is left of its leases, a second at most; without a majority of the voters there are no purges, and
//! nobody serves for longer than a second. What a voter recorded is forgotten when it restarts: it grants nothing until all purges
//! that it may have recorded are over, and a node that meets it while it holds no majority forgets all.
//!
//! A lease is counted by who holds it from before it asked, by who gave it from after it answered, and looked at when the request has
//! begun: a process that is paused in between is safe. Clocks of two nodes may run 5 % apart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{AskId, Boot, NodeId, Span, Time};

use super::Purge;
use super::limits::*;
use super::wire::{LeaseAsk, LeaseMessage, Mark, PurgeMessage, Told};

pub struct Leases {
    me: NodeId,
    boot: Boot,
    born: Option<Time>,
    /// Those who grant.
    voters: BTreeSet<NodeId>,
    /// There is a namespace that they are needed for.
    is_needed: bool,
    /// What this node holds, by who granted it.
    granted: BTreeMap<NodeId, Grantor>,
    held: bool,
    ask_at: Time,
    /// What it grants, and to whom.
    holders: BTreeMap<NodeId, Holder>,
    /// Purges that it recorded, the newest last; the last number.
    log: VecDeque<(u64, Purge)>,
    number: u64,
    /// What waits to be recorded, and what was, for who asks again; the oldest first, so their numbers are in order.
    records: VecDeque<Record>,
    /// The numbers of these, by who asked.
    asked: BTreeMap<(NodeId, Boot, u64), u64>,
    /// The numbers of those whose askers have still to be told.
    untold: BTreeSet<u64>,
    /// What this node's doors asked for.
    purges: BTreeMap<u64, Running>,
    purge_last: u64,
    again_at: Time,
    /// Since when a peer seems to be live, without a break.
    live: BTreeMap<NodeId, Time>,
}

struct Grantor {
    boot: Boot,
    /// Its last purge that was done here, as were all before it.
    done: u64,
    until: Time,
    /// When it was met, or last said that this node was dead for a while.
    since: Time,
    /// It was met while this node held no majority.
    is_new: bool,
}

struct Holder {
    boot: Boot,
    until: Time,
    done: u64,
}

struct Record {
    from: NodeId,
    boot: Boot,
    id: u64,
    number: u64,
    at: Time,
}

struct Running {
    ask: AskId,
    purge: Purge,
    recorded: BTreeSet<NodeId>,
    deadline: Time,
}

#[derive(Debug)]
pub enum Wants {
    Tell(NodeId, Told),
    /// All entries that it is about go, now.
    Do(Purge),
    /// Everything goes; others may have had this node's keys.
    Forget,
    /// True: it is done. False: it may not be.
    Ended(AskId, bool),
    Bad(NodeId),
}

impl Leases {
    pub fn new(me: NodeId, boot: Boot) -> Self {
        Self {
            me,
            boot,
            born: None,
            voters: BTreeSet::new(),
            is_needed: false,
            granted: BTreeMap::new(),
            held: false,
            ask_at: Time::ZERO,
            holders: BTreeMap::new(),
            log: VecDeque::new(),
            number: 0,
            records: VecDeque::new(),
            asked: BTreeMap::new(),
            untold: BTreeSet::new(),
            purges: BTreeMap::new(),
            purge_last: 0,
            again_at: Time::NEVER,
            live: BTreeMap::new(),
        }
    }

    pub fn needed(&mut self, is_needed: bool) {
        self.is_needed = is_needed;
    }

    pub fn set_voters(&mut self, voters: BTreeSet<NodeId>) {
        self.granted.retain(|node, _| voters.contains(node));
        self.voters = voters;
    }

    /// May this node serve values now?
    pub fn holds(&self, now: Time) -> bool {
        let granted = |voter: &&NodeId| **voter == self.me || self.granted.get(voter).is_some_and(|g| g.until > now);
        2 * self.voters.iter().filter(granted).count() > self.voters.len()
    }

    /// Until when this node may serve, if nothing more is heard; the beginning of time if it may not, or has still to forget.
    pub fn until(&self) -> Time {
        if !self.held {
            return Time::ZERO;
        }
        let of = |voter: &NodeId| match *voter == self.me {
            true => Time::NEVER,
            false => self.granted.get(voter).map_or(Time::ZERO, |granted| granted.until),
        };
        let mut ends: Vec<Time> = self.voters.iter().map(of).collect();
        ends.sort_unstable();
        // More than half of them end then or later.
        let most = ends.len() / 2 + 1;
        ends.len().checked_sub(most).and_then(|at| ends.get(at)).copied().unwrap_or(Time::ZERO)
    }

    /// Comes first with each input: notices what has lapsed or is held again, and asks for leases.
    pub fn look(&mut self, now: Time, out: &mut Vec<Wants>) {
        self.born.get_or_insert(now);
        let (held, holds) = (self.held, self.holds(now));
        self.held = holds;
        if holds && !held {
            let met = self.granted.values().any(|granted| granted.is_new && granted.until > now);
            self.granted.values_mut().for_each(|granted| granted.is_new = false);
            if met {
                out.push(Wants::Forget);
            }
        }
        if self.is_needed && self.ask_at <= now {
            self.ask_at = now + LEASE_EVERY;
            for voter in self.voters.iter().filter(|voter| **voter != self.me) {
                let known = self.granted.get(voter);
                let (of, done) = known.map_or((0, 0), |granted| (granted.boot.0, granted.done));
                out.push(Wants::Tell(*voter, Told::Ask(LeaseAsk { stamp: now.0, of, done })));
            }
        }
    }

    pub fn birth(&mut self, now: Time, peer: NodeId, boot: Boot) {
        self.live.entry(peer).or_insert(now);
        // What its life before has recorded is forgotten.
        let is_other = self.granted.get(&peer).is_none_or(|granted| granted.boot != boot);
        if is_other {
            self.purges.values_mut().for_each(|running| _ = running.recorded.remove(&peer));
        }
        self.ask_at = now;
    }

    pub fn death(&mut self, peer: NodeId) {
        self.live.remove(&peer);
    }

    /// Begins a purge. False: too many are under way.
    pub fn purge(&mut self, now: Time, ask: AskId, budget: Span, purge: Purge, out: &mut Vec<Wants>) -> bool {
        if self.purges.len() >= PURGES_MAX {
            return false;
        }
        self.purge_last += 1;
        let id = self.purge_last;
        for voter in self.voters.iter().filter(|voter| **voter != self.me) {
            out.push(Wants::Tell(*voter, Told::Record(PurgeMessage::of(id, &purge))));
        }
        let deadline = now + budget.min(PURGE_WAIT);
        self.purges.insert(id, Running { ask, purge: purge.clone(), recorded: BTreeSet::new(), deadline });
        if self.voters.contains(&self.me) {
            self.record(now, self.me, self.boot, id, purge, out);
        }
        self.again_at = self.again_at.min(now + PURGE_AGAIN);
        true
    }

    pub fn hear(&mut self, now: Time, from: NodeId, boot: Boot, told: Told, out: &mut Vec<Wants>) {
        match told {
            Told::Ask(ask) => self.grant(now, from, boot, ask, out),
            Told::Lease(lease) => self.lease(now, from, boot, lease, out),
            Told::Purge(message) => {
                let Some((number, purge)) = message.take() else { return out.push(Wants::Bad(from)) };
                if !self.voters.contains(&from) {
                    return;
                }
                out.push(Wants::Do(purge));
                let granted = self.meet(now, from, boot);
                if number == granted.done + 1 {
                    granted.done = number;
                }
                out.push(Wants::Tell(from, Told::Purged(Mark { number: granted.done, of: boot.0 })));
            }
            Told::Purged(mark) => {
                if mark.of != self.boot.0 || mark.number > self.number {
                    return;
                }
                if let Some(holder) = self.holders.get_mut(&from).filter(|holder| holder.boot == boot) {
                    holder.done = holder.done.max(mark.number);
                }
            }
            Told::Record(message) => {
                let Some((id, purge)) = message.take() else { return out.push(Wants::Bad(from)) };
                if self.voters.contains(&self.me) {
                    self.record(now, from, boot, id, purge, out);
                }
            }
            Told::Recorded(mark) => {
                let running = self.purges.get_mut(&mark.number).filter(|_| mark.of == self.boot.0);
                if let Some(running) = running.filter(|_| self.voters.contains(&from)) {
                    running.recorded.insert(from);
                }
            }
        }
    }

    /// What is known of a voter; of another life of it nothing.
    fn meet(&mut self, now: Time, voter: NodeId, boot: Boot) -> &mut Grantor {
        let is_new = !self.held;
        let new = || Grantor { boot, done: 0, until: Time::ZERO, since: now, is_new };
        let granted = self.granted.entry(voter).or_insert_with(new);
        if granted.boot < boot {
            *granted = new();
        }
        granted
    }

    fn grant(&mut self, now: Time, from: NodeId, boot: Boot, ask: LeaseAsk, out: &mut Vec<Wants>) {
        let begun = self.born.is_some_and(|born| now.since(born) >= GRANT_AFTER);
        // Who seems to be dead here is one whose keys others have.
        let Some(since) = self.live.get(&from).copied().filter(|_| begun && self.voters.contains(&self.me)) else {
            return;
        };
        let holder = self.holders.entry(from).or_insert(Holder { boot, until: now, done: 0 });
        if boot < holder.boot {
            return;
        }
        if boot > holder.boot {
            // The life before holds nothing any more.
            *holder = Holder { boot, until: now, done: 0 };
        }
        let done = if ask.of == self.boot.0 { ask.done.min(self.number) } else { 0 };
        holder.done = holder.done.max(done);
        holder.until = now + LEASE + LEASE_MARGIN;
        let first = self.number + 1 - self.log.len() as u64;
        // Who meets this life only now has little to forget, mostly nothing.
        let is_long = ask.of != self.boot.0 && self.number > PURGES_SENT as u64;
        let afresh = done + 1 < first || is_long;
        if !afresh {
            let lacks = self.log.iter().filter(|(number, _)| *number > done).take(PURGES_SENT);
            let message = |(number, purge): &(u64, Purge)| Told::Purge(PurgeMessage::of(*number, purge));
            out.extend(lacks.map(|one| Wants::Tell(from, message(one))));
        }
        let live_ms = now.since(since).as_millis();
        let lease = LeaseMessage { stamp: ask.stamp, of: boot.0, upto: self.number, afresh, live_ms };
        out.push(Wants::Tell(from, Told::Lease(lease)));
    }

    fn lease(&mut self, now: Time, from: NodeId, boot: Boot, lease: LeaseMessage, out: &mut Vec<Wants>) {
        if lease.of != self.boot.0 || !self.voters.contains(&from) {
            return;
        }
        if lease.stamp > now.0 {
            return out.push(Wants::Bad(from));
        }
        let granted = self.meet(now, from, boot);
        if granted.boot != boot {
            return;
        }
        let known = now.since(granted.since).as_millis();
        let was_dead = lease.live_ms.saturating_add(LEASE.as_millis()) < known;
        if was_dead {
            granted.since = now;
        }
        if lease.afresh {
            granted.done = lease.upto;
        }
        if granted.done >= lease.upto {
            granted.until = granted.until.max(Time(lease.stamp) + LEASE);
        }
        if was_dead || lease.afresh {
            out.push(Wants::Forget);
        }
    }

    fn record(&mut self, now: Time, from: NodeId, boot: Boot, id: u64, purge: Purge, out: &mut Vec<Wants>) {
        if let Some(number) = self.asked.get(&(from, boot, id)) {
            // It asks again, as it has not heard.
            self.untold.insert(*number);
            return;
        }
        if self.records.len() >= PURGES_KEPT {
            // Whoever did not hear that it is recorded asks again, and it is done once more.
            let Some(told) = self.records.iter().position(|one| !self.untold.contains(&one.number)) else { return };
            let told = self.records.remove(told);
            self.drop_record(told);
        }
        self.number += 1;
        if self.log.len() == PURGES_KEPT {
            self.log.pop_front();
        }
        self.log.push_back((self.number, purge.clone()));
        for (holder, _) in self.holders.iter().filter(|(_, holder)| holder.until > now) {
            out.push(Wants::Tell(*holder, Told::Purge(PurgeMessage::of(self.number, &purge))));
        }
        out.push(Wants::Do(purge));
        self.asked.insert((from, boot, id), self.number);
        self.untold.insert(self.number);
        self.records.push_back(Record { from, boot, id, number: self.number, at: now });
        self.again_at = self.again_at.min(now + PURGE_AGAIN);
    }

    fn drop_record(&mut self, record: Option<Record>) {
        if let Some(Record { from, boot, id, number, .. }) = record {
            self.asked.remove(&(from, boot, id));
            self.untold.remove(&number);
        }
    }

    /// Comes last with each input: what is recorded or done by now, and what is to be sent again.
    pub fn settle(&mut self, now: Time, out: &mut Vec<Wants>) {
        self.holders.retain(|_, holder| holder.until > now);
        let behind = self.holders.values().map(|holder| holder.done).min().unwrap_or(u64::MAX);
        while let Some(number) = self.untold.first().copied().filter(|number| *number <= behind) {
            self.untold.pop_first();
            let at = self.records.binary_search_by_key(&number, |record| record.number);
            let Some(record) = at.ok().and_then(|at| self.records.get(at)) else { continue };
            if record.from == self.me {
                self.purges.get_mut(&record.id).map(|running| running.recorded.insert(self.me));
            } else {
                let mark = Mark { number: record.id, of: record.boot.0 };
                out.push(Wants::Tell(record.from, Told::Recorded(mark)));
            }
        }
        while self.records.front().is_some_and(|record| now.since(record.at) >= PURGES_COMPARED) {
            let old = self.records.pop_front();
            self.drop_record(old);
        }
        let voters = &self.voters;
        self.purges.retain(|_, running| {
            let recorded = running.recorded.iter().filter(|node| voters.contains(node)).count();
            let is_done = 2 * recorded > voters.len();
            if is_done || running.deadline <= now {
                out.push(Wants::Ended(running.ask, is_done));
                return false;
            }
            true
        });
        if self.again_at <= now {
            self.again(now, out);
        }
    }

    fn again(&mut self, now: Time, out: &mut Vec<Wants>) {
        for (peer, holder) in &self.holders {
            let lacks = self.log.iter().filter(|(number, _)| *number > holder.done).take(PURGES_SENT);
            for (number, purge) in lacks {
                out.push(Wants::Tell(*peer, Told::Purge(PurgeMessage::of(*number, purge))));
            }
        }
        for (id, running) in &self.purges {
            let rest = self.voters.iter().filter(|voter| **voter != self.me && !running.recorded.contains(voter));
            out.extend(rest.map(|voter| Wants::Tell(*voter, Told::Record(PurgeMessage::of(*id, &running.purge)))));
        }
        let waits = !self.purges.is_empty() || !self.untold.is_empty();
        self.again_at = if waits { now + PURGE_AGAIN } else { Time::NEVER };
    }

    pub fn wake_at(&self) -> Option<Time> {
        let asks = (self.is_needed && self.voters.iter().any(|voter| *voter != self.me)).then_some(self.ask_at);
        let again = Some(self.again_at).filter(|at| *at != Time::NEVER);
        let ends = self.purges.values().map(|running| running.deadline).min();
        // A lease that ends may be what a record waits for.
        let waits = !self.untold.is_empty();
        let leases = self.holders.values().map(|holder| holder.until).min().filter(|_| waits);
        [asks, again, ends, leases].into_iter().flatten().min()
    }

    pub fn has_voters(&self) -> bool {
        !self.voters.is_empty()
    }
}
