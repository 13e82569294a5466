//! Weak operations: whoever asks wants to know that it was done, and not what came of it. So those that wait at one node for the
//! same function on the same key are done as one command (Ninja 3.4's weak apply: under contention what costs is the number
//! of updates that are put in order one by one).
//!
//! The first two go at once, so that the disk of one is not idle while the other is asked. Those that come while both are under
//! way are gathered, and go together when one has ended. Each still
//! happens once, at one moment between its start and its end, and is as durable as any other write.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Outcome, Priority, Time};
use bytes::Bytes;

use super::limits::{TOGETHER_BYTES_MAX, TOGETHER_FLYING_MAX, TOGETHER_MAX};
use super::machine::Asker;
use super::op::{Op, Ran, Reply};

/// What may be done as one: namespace, key, function.
pub type What = (Arc<str>, Bytes, &'static str);

/// All that is under way.
#[derive(Default)]
pub struct Together {
    batches: BTreeMap<u64, Batch>,
    of: BTreeMap<What, Turns>,
    /// Operations besides the first of each batch.
    joined: usize,
}

/// Batches for one key and function.
#[derive(Default)]
struct Turns {
    /// At most [`TOGETHER_FLYING_MAX`].
    flying: Vec<u64>,
    gathered: Option<u64>,
}

/// Operations that are one command.
struct Batch {
    what: What,
    /// The call that carries it.
    call: u64,
    bytes: usize,
    /// When the first of those who wait gives up.
    until: Time,
    waiters: Vec<Waiter>,
}

/// Who waiters, with which arguments, until when.
pub struct Waiter {
    pub ask: Asker,
    pub args: Vec<Bytes>,
    pub deadline: Time,
    pub priority: Priority,
}

/// What becomes of a weak operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// It begins a batch that goes at once.
    Goes,
    /// It begins one that goes when one of those under way has ended.
    Waits,
    /// It may join the one that this call carries.
    Joins(u64),
    /// There is no room.
    Alone,
}

/// What is to be done when a batch has ended.
#[derive(Default)]
pub struct Ended {
    /// Who is told how.
    pub told: Vec<Asker>,
    /// What is done alone: nothing of it has happened.
    pub alone: Vec<(Waiter, Op)>,
    /// The call that may go now.
    pub next: Option<u64>,
}

impl Together {
    /// Operations that are done with another one.
    pub fn joined(&self) -> usize {
        self.joined
    }

    pub fn place(&self, what: &What, waiter: &Waiter) -> Place {
        let Some(turns) = self.of.get(what).filter(|turns| turns.flying.len() >= TOGETHER_FLYING_MAX) else {
            return Place::Goes;
        };
        let Some(batch) = turns.gathered.and_then(|gathered| self.batches.get(&gathered)) else { return Place::Waits };
        let has_room = batch.waiters.len() < TOGETHER_MAX && batch.bytes + waiter.bytes() <= TOGETHER_BYTES_MAX;
        if has_room { Place::Joins(batch.call) } else { Place::Alone }
    }

    /// A new batch, of a number of its own; what has its place so.
    pub fn begin(&mut self, number: u64, call: u64, what: What, waiter: Waiter) {
        let turns = self.of.entry(what.clone()).or_default();
        if turns.flying.len() < TOGETHER_FLYING_MAX {
            turns.flying.push(number);
        } else {
            turns.gathered = Some(number);
        }
        self.batches
            .insert(number, Batch { what, call, bytes: waiter.bytes(), until: waiter.deadline, waiters: vec![waiter] });
    }

    /// It is part of the gathered batch now. Says by when that must have ended.
    pub fn join(&mut self, what: &What, waiter: Waiter) -> Option<Time> {
        let batch = self.batches.get_mut(&self.of.get(what)?.gathered?)?;
        batch.bytes += waiter.bytes();
        batch.until = batch.until.min(waiter.deadline);
        batch.waiters.push(waiter);
        self.joined += 1;
        Some(batch.until)
    }

    pub fn ended(&mut self, number: u64, outcome: &Outcome<Ran>) -> Ended {
        let Some(Batch { what, waiters, .. }) = self.batches.remove(&number) else { return Ended::default() };
        self.joined -= waiters.len() - 1;
        let mut next = None;
        if let Some(turns) = self.of.get_mut(&what) {
            turns.gathered.take_if(|gathered| *gathered == number);
            turns.flying.retain(|flying| *flying != number);
            if turns.flying.len() < TOGETHER_FLYING_MAX {
                next = turns.gathered.take();
                turns.flying.extend(next);
            }
            if turns.flying.is_empty() {
                self.of.remove(&what);
            }
        }
        let next = next.and_then(|next| self.batches.get(&next)).map(|batch| batch.call);
        let is_wrong = |ran: &Ran| matches!(ran, Ran::Done(replies) if matches!(replies[..], [Reply::Wrong(_)]));
        // Each may have to hear something else.
        if waiters.len() < 2 || !matches!(outcome, Outcome::Done(ran) if is_wrong(ran)) {
            return Ended { told: waiters.into_iter().map(|waiter| waiter.ask).collect(), alone: Vec::new(), next };
        }
        let (namespace, key, function) = what;
        let alone = |waiter: Waiter| {
            let op = Op::one(Arc::clone(&namespace), key.clone(), function, waiter.args.clone());
            let op = Op { priority: waiter.priority, ..op };
            (waiter, op)
        };
        Ended { told: Vec::new(), alone: waiters.into_iter().map(alone).collect(), next }
    }
}

impl Waiter {
    fn bytes(&self) -> usize {
        self.args.iter().map(|arg| arg.len() + ARG_BYTES).sum()
    }
}

/// What an argument costs besides its bytes, about.
const ARG_BYTES: usize = 16;
