//! Operations that another node does for this one: while this one catches up, and reads for which it knows too little. The other answers
//! as if it had been asked by its own door; what it cannot answer either goes to the next one. A write that was passed on may have
//! happened once it is under way. While a node catches up it asks one alone, so that who wrote reads it there. Who reads here afterwards sees it: this node serves when it has what the other had made by then.

use std::collections::{BTreeMap, BTreeSet};

use base::{AskId, Boot, Frame, NodeId, Now, Outcome, Refused, Span, Time, Unknown};
use prost::Message;

use crate::context::Range;
use crate::dot::{Dot, Life};
use crate::limits::*;
use crate::machine::kind;
use crate::repair::fits;
use crate::space::Odd;
use crate::words::{AReply, AnAction, Call, Called};
use crate::{Asked, COMPARE_LEVEL, Op, Output, Reply, Soft};

/// What is under way between nodes.
#[derive(Default)]
pub struct Passes {
    /// The number of the last call.
    last: u64,
    calls: BTreeMap<u64, Passed>,
    deadlines: BTreeSet<(Time, u64)>,
    /// Calls of others that are answered here, by what they are asked under.
    serves: BTreeMap<AskId, Served>,
    /// Done, and not seen here yet: until it is, its answer waits.
    unseen: Vec<Unseen>,
}

struct Passed {
    space: u32,
    asked: Asked,
    op: Op,
    to: (NodeId, Boot),
    at: Time,
    tried: Vec<NodeId>,
}

struct Served {
    from: (NodeId, Boot),
    number: u64,
    space: u32,
}

struct Unseen {
    space: u32,
    dot: Dot,
    asked: Asked,
    reply: Reply,
}

impl Passes {
    pub fn wake_at(&self) -> Option<Time> {
        let unseen = self.unseen.iter().map(|unseen| unseen.asked.deadline);
        self.deadlines.first().map(|(at, _)| *at).into_iter().chain(unseen).min()
    }

    fn take(&mut self, number: u64) -> Option<Passed> {
        let passed = self.calls.remove(&number)?;
        self.deadlines.remove(&(passed.asked.deadline, number));
        Some(passed)
    }
}

impl Soft {
    /// Is it asked by another node? Then it is not passed on once more.
    pub(crate) fn is_call(&self, id: AskId) -> bool {
        self.passes.serves.contains_key(&id)
    }

    /// Asks another node that serves the namespace. Back, if none can be asked, or it is not for others.
    pub(crate) fn pass(
        &mut self,
        now: Now,
        space: u32,
        (asked, op): (Asked, Op),
        mut tried: Vec<NodeId>,
        out: &mut Vec<Output>,
    ) -> Option<(Asked, Op)> {
        let may = self.level >= COMPARE_LEVEL
            && !self.is_call(asked.id)
            && self.passes.calls.len() + self.passes.unseen.len() < PASSES_MAX
            && tried.len() < PASS_TRIES
            && asked.deadline > now.mono;
        let serve = |(id, peer): (&NodeId, &crate::machine::Peer)| {
            (peer.dead.is_none() && peer.serves.contains(&space) && !tried.contains(id)).then_some((*id, peer.boot))
        };
        let all: Vec<(NodeId, Boot)> = if may { self.peers.iter().filter_map(serve).collect() } else { Vec::new() };
        let Some(action) = AnAction::of(&op.action).filter(|_| !all.is_empty()) else { return Some((asked, op)) };
        let at = self.rng.below(all.len() as u64) as usize;
        let held = self.spaces.get_mut(&space).filter(|held| !held.is_settled());
        let Some(to) = held.map_or(Some(all[at]), |held| held.asks(&all, op.action.is_write())) else {
            return Some((asked, op));
        };
        tried.push(to.0);
        self.passes.last += 1;
        let number = self.passes.last;
        let budget = asked.deadline.since(now.mono).0;
        let call = Call { space, boot: to.1.0, number, budget, stale: op.stale.map(|stale| stale.0), action };
        let frame = Frame::new(kind::CALL, call.encode_to_vec());
        if !fits(&frame) {
            return Some((asked, op));
        }
        out.push(Output::Send { to: to.0, frame });
        self.seen.passed += 1;
        self.passes.deadlines.insert((asked.deadline, number));
        self.passes.calls.insert(number, Passed { space, asked, op, to, at: now.mono, tried });
        None
    }

    /// What has waited until a node was known that serves.
    pub(crate) fn pass_waiting(&mut self, now: Now, out: &mut Vec<Output>) {
        let ids: Vec<u32> = self.spaces.iter().filter(|(_, held)| held.has_waiting()).map(|(id, _)| *id).collect();
        for id in ids {
            if self.level < COMPARE_LEVEL
                || !self.peers.values().any(|peer| peer.dead.is_none() && peer.serves.contains(&id))
            {
                continue;
            }
            let waiting = self.spaces.get_mut(&id).map(crate::catchup::Held::take_waiting).unwrap_or_default();
            for one in waiting {
                let Some((asked, op)) = self.pass(now, id, one, Vec::new(), out) else { continue };
                let held = self.spaces.get_mut(&id).expect("it was just seen");
                if let Err(asked) = held.wait(asked, op) {
                    out.push(crate::catchup::refused(asked.id));
                }
            }
        }
    }

    /// Another node asks.
    pub(crate) fn call(&mut self, now: Now, from: NodeId, call: Call, out: &mut Vec<Output>) -> Result<(), Odd> {
        let Some(boot) = self.peers.get(&from).map(|peer| peer.boot) else { return Ok(()) };
        if Boot(call.boot) != self.life.boot {
            return Ok(());
        }
        let Call { space, number, budget, stale, action, .. } = call;
        let action = action.read().ok_or(Odd("an operation that there is not"))?;
        self.served += 1;
        // No door has so high a slot.
        let id = AskId(u64::from(self.served) << 32 | u64::from(u32::MAX));
        let name = self.ids.iter().find(|(_, id)| **id == space).map(|(name, _)| name.as_str().into());
        let (Some(namespace), true) = (name, self.passes.serves.len() < PASSES_MAX) else {
            let refused = Outcome::Refused(Refused::busy("the node that was asked has no room for it", SETTLE_EVERY));
            let called = Called { boot: boot.0, number, reply: AReply::of(&refused), updates: 0 };
            out.push(Output::Send { to: from, frame: Frame::new(kind::CALLED, called.encode_to_vec()) });
            return Ok(());
        };
        self.passes.serves.insert(id, Served { from: (from, boot), number, space });
        let asked = Asked { id, deadline: now.mono + Span(budget).min(PASS_WITHIN) };
        let op = Op { stale: stale.map(Span), ..Op::of(namespace, action) };
        self.ask(now, asked, op, out);
        Ok(())
    }

    /// At the end of a turn: answers to other nodes go to them.
    pub(crate) fn answer_calls(&mut self, out: &mut [Output]) {
        if self.passes.serves.is_empty() {
            return;
        }
        for output in out {
            let Output::Answer { id, answer } = output else { continue };
            let Some(Served { from, number, space }) = self.passes.serves.remove(id) else { continue };
            let updates = self.spaces.get(&space).map_or(0, |held| held.space.seq());
            let of = |reply: AReply| {
                let called = Called { boot: from.1.0, number, reply, updates };
                Frame::new(kind::CALLED, called.encode_to_vec())
            };
            let mut frame = of(AReply::of(answer));
            if !fits(&frame) {
                let why = "the answer is too long to be passed on: ask again in a moment, or another node";
                frame = of(AReply::of(&Outcome::Refused(Refused::busy(why, SETTLE_EVERY))));
            }
            *output = Output::Send { to: from.0, frame };
        }
    }

    pub(crate) fn called(&mut self, now: Now, from: NodeId, called: Called, out: &mut Vec<Output>) -> Result<(), Odd> {
        let Called { boot, number, reply, updates } = called;
        if Boot(boot) != self.life.boot || self.passes.calls.get(&number).is_none_or(|passed| passed.to.0 != from) {
            return Ok(());
        }
        let outcome = reply.read().ok_or(Odd("an answer that there is not"))?;
        let Passed { space, asked, op, to, at, tried } = self.passes.take(number).expect("it was just seen");
        let (is_write, answer) = (op.action.is_write(), |answer| Output::Answer { id: asked.id, answer });
        let outcome = match (outcome, op.stale) {
            // It grew older on its way.
            (Outcome::Done(Reply::Aged { age, of }), Some(most)) => {
                let age = age + now.mono.since(at);
                match age > most {
                    true => Outcome::Refused(Refused::busy("what nodes know is too old", SETTLE_EVERY)),
                    false => Outcome::Done(Reply::Aged { age, of }),
                }
            }
            (outcome, _) => outcome,
        };
        match outcome {
            Outcome::Refused(Refused { why, retry_after: Some(after), because }) => {
                let waits = self.spaces.get(&space).is_some_and(|held| op.stale.is_none() && !held.is_settled());
                let passed = if waits { Some((asked, op)) } else { self.pass(now, space, (asked, op), tried, out) };
                let Some((asked, op)) = passed else { return Ok(()) };
                match self.spaces.get_mut(&space).filter(|_| waits) {
                    Some(held) => out.extend(held.wait(asked, op).err().map(|asked| crate::catchup::refused(asked.id))),
                    None => out.push(answer(Outcome::Refused(Refused::busy(why, after).because(because)))),
                }
            }
            Outcome::Done(reply) if is_write && (1..=SEQ_MAX).contains(&updates) => {
                let life = Life { node: to.0, boot: to.1 };
                let dot = Dot { life, seq: updates };
                match self.spaces.get_mut(&space) {
                    Some(held) if !held.is_settled() => {
                        held.must_have(to.0, Range { life, first: 1, last: updates });
                        out.push(answer(Outcome::Done(reply)));
                    }
                    Some(held) if !held.space.context.has_all_to(dot) => {
                        self.passes.unseen.push(Unseen { space, dot, asked, reply });
                    }
                    _ => out.push(answer(Outcome::Done(reply))),
                }
            }
            outcome => out.push(answer(outcome)),
        }
        Ok(())
    }

    /// A node is dead, or lives anew: what it was asked it does not answer.
    pub(crate) fn lose_passes(&mut self, now: Now, id: NodeId, out: &mut Vec<Output>) {
        self.passes.serves.retain(|_, served| served.from.0 != id);
        let lost: Vec<u64> =
            self.passes.calls.iter().filter(|(_, passed)| passed.to.0 == id).map(|(number, _)| *number).collect();
        let lost: Vec<Passed> = lost.into_iter().filter_map(|number| self.passes.take(number)).collect();
        for passed in lost {
            let Passed { space, asked, op, tried, .. } = passed;
            if op.action.is_write() {
                out.push(unanswered(asked.id, true));
            } else if let Some((asked, _)) = self.pass(now, space, (asked, op), tried, out) {
                out.push(unanswered(asked.id, false));
            }
        }
    }

    /// What nobody has answered in time, and what has been seen here by now.
    pub(crate) fn end_passes(&mut self, now: Now, out: &mut Vec<Output>) {
        while let Some(&(at, number)) = self.passes.deadlines.first()
            && at <= now.mono
        {
            self.passes.deadlines.pop_first();
            let Some(passed) = self.passes.calls.remove(&number) else { continue };
            out.push(unanswered(passed.asked.id, passed.op.action.is_write()));
        }
        let Self { passes, spaces, .. } = self;
        passes.unseen.retain(|Unseen { space, dot, asked, reply }| {
            let is_seen = spaces.get(space).is_none_or(|held| held.space.context.has_all_to(*dot));
            if is_seen || asked.deadline <= now.mono {
                // It is done in either case.
                out.push(Output::Answer { id: asked.id, answer: Outcome::Done(reply.clone()) });
            }
            !is_seen && asked.deadline > now.mono
        });
    }
}

fn unanswered(id: AskId, is_write: bool) -> Output {
    let why = "it was passed to another node, which did not answer";
    let answer = match is_write {
        true => Outcome::Unknown(Unknown { why: why.to_owned() }),
        false => Outcome::Refused(Refused::busy(why, SETTLE_EVERY)),
    };
    Output::Answer { id, answer }
}
