//! Running operations as data: their legs (one per brick), phases and rounds, and the list of all with its timers. What
//! moves them is in `run`; what they do next in `read`, `write`, `walk` and `cookie_ops`.
//!
//! Timers of legs have few lengths (the namespaces' timeouts): those of one length stand in a queue in order of time. The
//! few others (short budgets, rests between tries) are in an ordered set.

use std::collections::{BTreeSet, VecDeque};

use base::{AskId, NodeId, Priority, Span, Time};

use super::Version;
use super::brick::{Found, Write, Wrote};
use super::limits::{BRICK_TIMEOUT, TIMER_QUEUES_KEPT};
use super::map::Placement;
use super::merge_ops::Merge;
use super::op::Action;
use super::table::Key;
use super::walk::Walk;

/// One brick's part in one round of an operation.
#[derive(Debug)]
pub(super) struct Leg {
    pub node: NodeId,
    pub state: LegState,
    pub sent: Time,
    pub tries: u8,
    /// Epoch for which the brick is filled, by its answer.
    pub filled: u64,
    /// What it found, in answer to a read.
    pub found: Found,
    /// It knows that this version stays.
    pub confirmed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LegState {
    /// Not asked yet.
    Idle,
    Waiting,
    /// Found is set.
    Answered,
    Wrote(Wrote),
    TimedOut,
    Dead,
    /// No room in its window, or it has too much to do for what matters so little: it was not asked.
    NoRoom,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Read,
    Write,
    /// Answered; the remaining bricks are still to get the write.
    Finish,
    /// Takes a conditional write back. Nobody waits for it.
    Undo,
    /// Waits for a moment, then begins anew.
    Rest,
    Walk,
}

pub(super) struct Running {
    /// Who waits for it; none once answered, or from the start.
    pub ask: Option<AskId>,
    pub deadline: Time,
    /// How long one brick is waited for.
    pub timeout: Span,
    pub priority: Priority,
    pub key: Key,
    pub action: Action,
    pub lease_default: Span,
    pub phase: Phase,
    /// Part of each request's id, so that answers to an earlier round are not taken for this one's.
    pub round: u8,
    /// Invariant: one leg for each node of `places`.
    pub legs: Vec<Leg>,
    /// The present placement, and the one before while a transition lasts.
    pub places: [Option<Placement>; 2],
    /// A read that waits for a brick then asks another one as well.
    pub hedge_at: Option<Time>,
    /// Epoch of the map they come from; 0 in cookie mode.
    pub epoch: u64,
    /// Newest version that a brick told of in this read: whatever becomes of that brick, nothing older is returned.
    pub newest_seen: Option<Version>,
    /// What the read before a conditional write found.
    pub base: Option<Found>,
    pub write: Option<Write>,
    /// The newest version that a write of it met.
    pub met: Option<Version>,
    /// Versions that were tried and taken back.
    pub tried: Vec<Version>,
    /// A write went out that was not surely taken back.
    pub may_have_happened: bool,
    /// The same, of its writes but the present one.
    pub earlier_may_have: bool,
    /// It waited for the bricks' clocks, and is refused for this node's if that is still ahead.
    pub knows_clocks: bool,
    pub had: bool,
    pub by_cookie: bool,
    pub cookie: Option<super::cookie::Cookie>,
    pub namespace: Option<Box<str>>,
    pub walk: Option<Box<Walk>>,
    /// Its namespace merges fields.
    pub merges: bool,
    pub merge: Option<Box<Merge>>,
}

impl Running {
    /// One that nobody waits for and that has no legs yet.
    pub fn new(key: Key, action: Action) -> Self {
        Self {
            ask: None,
            deadline: Time::NEVER,
            timeout: BRICK_TIMEOUT,
            // What others have begun is brought to its end.
            priority: Priority::HIGHEST,
            key,
            action,
            lease_default: Span::ZERO,
            phase: Phase::Read,
            round: 0,
            legs: Vec::new(),
            places: [None, None],
            hedge_at: None,
            epoch: 0,
            newest_seen: None,
            base: None,
            write: None,
            tried: Vec::new(),
            met: None,
            may_have_happened: false,
            earlier_may_have: false,
            knows_clocks: false,
            had: false,
            by_cookie: false,
            cookie: None,
            namespace: None,
            walk: None,
            merges: false,
            merge: None,
        }
    }

    /// Bricks filled for this epoch know all that was acknowledged under this operation's map or before. The epoch
    /// before will do: a stable map has the members its transition was filled for, and in a transition what counts is
    /// what the old members hold.
    pub fn filled_wanted(&self) -> u64 {
        #[cfg(test)]
        if super::tests::planted(super::tests::Planted::UnsettledCounts) {
            return 0;
        }
        if self.by_cookie { 0 } else { self.epoch.saturating_sub(1).max(1) }
    }

    pub fn places(&self) -> impl Iterator<Item = &Placement> {
        self.places.iter().flatten()
    }

    /// Legs of one placement.
    pub fn of<'a>(&'a self, place: &'a Placement) -> impl Iterator<Item = &'a Leg> {
        self.legs.iter().filter(|leg| place.contains(leg.node))
    }

    /// Those that hold a version make it a decided one: as many as a write waits for, and none that would know says there is
    /// something newer. A brick that restarted would not know what it forgot: where it is one of them, all must hold it,
    /// or as many settled ones as a read asks. `tell` are those of whom it is known whether they are settled.
    pub fn is_enough(&self, place: &Placement, hold: impl Fn(&Leg) -> bool, tell: impl Fn(&Leg) -> bool) -> bool {
        let wanted = self.filled_wanted();
        let holders = || self.of(place).filter(|leg| hold(leg));
        let settled = holders().filter(|leg| leg.filled >= wanted || !tell(leg)).count();
        holders().count() >= place.acks() && (settled >= place.answers() || self.of(place).all(&hold))
    }

    pub fn is_waiting(&self) -> bool {
        self.legs.iter().any(|leg| leg.state == LegState::Waiting)
    }

    pub fn next_round(&mut self, phase: Phase) {
        self.phase = phase;
        self.newest_seen = None;
        self.hedge_at = None;
        self.round = self.round.wrapping_add(1);
        for leg in &mut self.legs {
            *leg = Leg::new(leg.node);
        }
    }
}

impl Leg {
    pub fn new(node: NodeId) -> Self {
        let (state, found) = (LegState::Idle, Found::default());
        Self { node, state, sent: Time::ZERO, tries: 0, filled: 0, found, confirmed: false }
    }
}

/// All running operations by number; numbers only go up.
pub(super) struct Ops {
    first: u64,
    running: VecDeque<Slot>,
    /// One queue for each length. Invariant: each is in order of time.
    legs_end: Vec<(Span, VecDeque<LegsEnd>)>,
    pub others: BTreeSet<(Time, u64)>,
}

/// When an operation's legs have had their time: the moment, its number, its round.
type LegsEnd = (Time, u64, u8);

enum Slot {
    Over,
    /// Being worked on right now.
    Taken,
    Waits(Box<Running>),
}

/// Request ids: the operation's number above, its round in the low byte. Fills have the top bit.
pub(super) const NUMBER_MASK: u64 = (1 << 54) - 1;
pub(super) const FILL_BIT: u64 = 1 << 63;

impl Ops {
    /// Numbers start anywhere, so that two lives of a node do not take each other's answers.
    pub fn new(seed: u64) -> Self {
        let first = seed & (NUMBER_MASK >> 1);
        Self { first, running: VecDeque::new(), legs_end: Vec::new(), others: BTreeSet::new() }
    }

    pub fn len(&self) -> u64 {
        self.running.iter().filter(|slot| !matches!(slot, Slot::Over)).count() as u64
    }

    /// The number of a new operation, which counts as taken.
    pub fn add(&mut self) -> u64 {
        self.running.push_back(Slot::Taken);
        self.first + self.running.len() as u64 - 1
    }

    pub fn take(&mut self, number: u64) -> Option<Box<Running>> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let slot = self.running.get_mut(at)?;
        match std::mem::replace(slot, Slot::Taken) {
            Slot::Waits(op) => Some(op),
            other => {
                *slot = other;
                None
            }
        }
    }

    pub fn put(&mut self, number: u64, op: Box<Running>) {
        let at = (number - self.first) as usize;
        self.running[at] = Slot::Waits(op);
    }

    pub fn over(&mut self, number: u64) {
        let at = (number - self.first) as usize;
        self.running[at] = Slot::Over;
        while self.running.front().is_some_and(|slot| matches!(slot, Slot::Over)) {
            self.running.pop_front();
            self.first += 1;
        }
        for (_, queue) in &mut self.legs_end {
            while queue.front().is_some_and(|(_, number, _)| *number < self.first) {
                queue.pop_front();
            }
        }
    }

    /// The earliest end of legs.
    pub fn first_legs_end(&self) -> Option<LegsEnd> {
        self.legs_end.iter().filter_map(|(_, queue)| queue.front()).min().copied()
    }

    /// Drops what [`Ops::first_legs_end`] showed.
    pub fn pop_legs_end(&mut self, first: LegsEnd) {
        let at = self.legs_end.iter().position(|(_, queue)| queue.front() == Some(&first));
        let at = at.expect("it was just seen at the front of a queue");
        self.legs_end[at].1.pop_front();
        if self.legs_end[at].1.is_empty() && self.legs_end.len() > TIMER_QUEUES_KEPT {
            self.legs_end.swap_remove(at);
        }
    }

    pub fn numbers(&self) -> Vec<u64> {
        let waiting = self.running.iter().enumerate().filter(|(_, slot)| matches!(slot, Slot::Waits(_)));
        waiting.map(|(at, _)| self.first + at as u64).collect()
    }

    pub fn wake_at(&self) -> Option<Time> {
        let leg = self.first_legs_end().map(|(at, ..)| at);
        let other = self.others.first().map(|(at, _)| *at);
        leg.into_iter().chain(other).min()
    }

    /// The operation wants to be looked at when its legs have had this time.
    pub fn time_legs(&mut self, now: Time, number: u64, op: &Running, length: Span) {
        let end = now + length;
        let at = self.legs_end.iter().position(|(of, _)| *of == length).unwrap_or_else(|| {
            self.legs_end.push((length, VecDeque::new()));
            self.legs_end.len() - 1
        });
        let queue = &mut self.legs_end[at].1;
        if queue.back() != Some(&(end, number, op.round)) {
            queue.push_back((end, number, op.round));
        }
        if op.ask.is_some() && op.deadline < end {
            self.others.insert((op.deadline, number));
        }
    }

    pub fn time_at(&mut self, at: Time, number: u64) {
        self.others.insert((at, number));
    }
}
