//! Calls of this node's front doors: judged, sent to the leader of the group that they are for, sent again, ended; and
//! those of other nodes' front doors, given to our members.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{AskId, Frame, GroupId, NodeId, Now, Outcome, Priority, Refused, Span, Time, Unknown, kind};
use bytes::Bytes;

use super::{Linear, Output};
use crate::apart::{self, Apart};
use crate::functions::changes::may_wait;
use crate::functions::{self, Run};
use crate::group::{Asked, Mark};
use crate::limits::*;
use crate::moment;
use crate::once::Once;
use crate::op::{Op, Over, Ran, Step};
use crate::space::CommandId;
use crate::split::hash_of;
use crate::together::{Ended, Place, Waiter};
use crate::wire::{self, Answer, Call, Command, Do};

/// Who waits for a call.
#[derive(Clone, Copy)]
pub enum Asker {
    Door(AskId),
    Probe(u64),
    /// Part n of an operation in parts.
    Part(u64, usize),
    /// All that asked for a batch of weak operations.
    Together(u64),
}

pub(super) struct Pending {
    ask: Asker,
    namespace: Arc<str>,
    over: Over,
    pub(super) group: GroupId,
    reads: bool,
    command: Command,
    deadline: Time,
    /// When it is sent again.
    again: Time,
    pub(super) to: Option<NodeId>,
    /// All that it was sent to: nobody else can answer it.
    asked: Vec<NodeId>,
    sent: Sent,
    tries: u32,
    begun: Time,
    /// How old what it sees may be, if it only reads and may see something old.
    stale: Option<Span>,
    /// Who leads may let it wait: it is not sent again so soon.
    waits: bool,
    priority: Priority,
    commands: u32,
    /// Bytes of its command when it came: what joins it later is little.
    bytes: usize,
}

/// Who may have put a command into a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Nobody,
    One(NodeId),
    Several,
}

impl Sent {
    fn and(self, to: NodeId) -> Self {
        match self {
            Sent::Nobody => Sent::One(to),
            Sent::One(before) if before == to => self,
            Sent::One(_) | Sent::Several => Sent::Several,
        }
    }
}

enum Parts {
    One(Judged, Op),
    /// The operation, which steps go to which shard, and what each is sent.
    Each(Op, Vec<apart::Part>, Vec<(Judged, Op)>),
}

/// What is known of an operation: the group it is for, how often that has been split, whether it only reads, whether
/// the leader may let it wait.
pub(super) struct Judged {
    pub(super) group: GroupId,
    pub(super) splits: u32,
    pub(super) reads: bool,
    pub(super) waits: bool,
    /// Bytes of its command.
    pub(super) bytes: usize,
}

impl Linear {
    pub(super) fn ask(&mut self, now: Now, ask: Asker, budget: Span, op: Op, out: &mut Vec<Output>) {
        let parts = match self.parts(op) {
            Ok(parts) => parts,
            Err(refused) => return self.ended(ask, Outcome::Refused(refused), out),
        };
        match parts {
            Parts::One(judged, op) => self.begin_call(now, ask, budget, judged, op),
            Parts::Each(op, parts, each) => {
                let apart = self.next_seq;
                // Its parts may all join others, and take no number.
                self.next_seq += 1;
                self.apart.insert(apart, Apart::new(ask, op.steps, parts));
                for (nth, (judged, op)) in each.into_iter().enumerate() {
                    self.begin_call(now, Asker::Part(apart, nth), budget, judged, op);
                }
            }
        }
    }

    /// What is sent for an operation, or why nothing is.
    fn parts(&self, op: Op) -> Result<Parts, Refused> {
        // Asked again it may lie otherwise over the shards, of which each would know of a part.
        if op.once.is_some() && op.over != Over::One && (op.steps.len() > 1 || op.steps.iter().any(is_whole)) {
            return Err(Refused::wrong("with an id an operation is about one key, or about keys of one shard"));
        }
        let shards = match op.over {
            Over::One => Vec::new(),
            Over::Each => self.shards(&op.namespace, 0, u64::MAX),
            // Who follows one shard must know of others itself.
            Over::Range { .. } if waits(&op) => Vec::new(),
            Over::Range { from, to } => self.shards(&op.namespace, from, to),
        };
        if shards.len() < 2 {
            return Ok(Parts::One(self.judge(&op)?, op));
        }
        let parts = apart::split(&op, &shards)?;
        let judged = |op: Op| Ok((self.judge(&op)?, op));
        let each = parts.iter().map(|part| judged(op.part(part))).collect::<Result<Vec<_>, Refused>>()?;
        match each.len() {
            0 => Err(Refused::wrong("an operation has at least one step")),
            _ => Ok(Parts::Each(op, parts, each)),
        }
    }

    /// The ranges of a namespace's groups that lie within these hashes.
    fn shards(&self, namespace: &str, from: u64, to: u64) -> Vec<(u64, u64)> {
        let Some(groups) = self.spaces.get(namespace) else { return Vec::new() };
        let ends = groups.keys().skip(1).map(|next| next - 1).chain([u64::MAX]);
        groups.keys().copied().zip(ends).filter(|shard| from <= shard.0 && shard.1 <= to).collect()
    }

    pub(super) fn call(&mut self, now: Now, ask: Asker, budget: Span, judged: Judged, op: Op) {
        let Judged { group, splits, reads, waits, bytes } = judged;
        let seq = self.next_seq;
        self.next_seq += 1;
        if reads {
            self.counts.reads += if matches!(ask, Asker::Probe(_)) { 0 } else { u64::from(op.commands) };
        } else {
            self.counts.writes += u64::from(op.commands);
            self.writes.insert(seq);
        }
        let id = CommandId { node: self.me, boot: self.boot, seq };
        let once = op.once.filter(|_| !reads).map(|id| match op.said {
            Some(of) => Once { id, of },
            None => Once::new(id, &op.conditions, &op.steps),
        });
        let command = Command { id, floor: 0, conditions: op.conditions, steps: op.steps, splits, once };
        let (deadline, again) = (now.mono + budget, now.mono);
        let begun = now.mono;
        let stale = op.stale.filter(|_| reads);
        let call = Pending {
            ask,
            namespace: op.namespace,
            over: op.over,
            group,
            reads,
            command,
            deadline,
            again,
            to: None,
            asked: Vec::new(),
            sent: Sent::Nobody,
            tries: 0,
            begun,
            stale,
            waits,
            priority: op.priority,
            commands: op.commands,
            bytes,
        };
        self.waiting += usize::from(waits);
        self.calls_bytes += bytes;
        self.calls.insert(seq, call);
        self.timers.insert((again, seq));
    }

    /// A call of its own; or, of a weak operation, one with others, if there are any.
    fn begin_call(&mut self, now: Now, ask: Asker, budget: Span, judged: Judged, op: Op) {
        let combine = match &op.steps[..] {
            [step] if op.weak && op.conditions.is_empty() && op.once.is_none() => {
                functions::find(step.function).and_then(|function| function.combine)
            }
            _ => None,
        };
        let Some(combine) = combine else { return self.call(now, ask, budget, judged, op) };
        let Step { key, function, args } = &op.steps[0];
        let what = (Arc::clone(&op.namespace), key.clone(), *function);
        let waiter = Waiter { ask, args: args.clone(), deadline: now.mono + budget, priority: op.priority };
        let place = self.together.place(&what, &waiter);
        if let Place::Joins(seq) = place
            && let Some(call) = self.calls.get_mut(&seq)
            && combine(&mut call.command.steps[0].args, args)
        {
            self.counts.joined += 1;
            call.priority = call.priority.max(op.priority);
            if let Some(deadline) = self.together.join(&what, waiter) {
                call.deadline = deadline;
                self.look_at(seq, deadline);
            }
            return;
        }
        if !matches!(place, Place::Goes | Place::Waits) {
            return self.call(now, ask, budget, judged, op);
        }
        let (number, seq) = (self.next_seq, self.next_seq + 1);
        self.next_seq += 1;
        self.call(now, Asker::Together(number), budget, judged, op);
        self.together.begin(number, seq, what, waiter);
        if place == Place::Waits {
            self.look_at(seq, now.mono + budget);
        }
    }

    fn judge(&self, op: &Op) -> Result<Judged, Refused> {
        if self.calls.len() + self.together.joined() >= CALLS_MAX {
            return Err(Refused::busy(format!("{CALLS_MAX} operations of this node wait already"), Span::millis(50)));
        }
        if op.steps.is_empty() || op.steps.len() > STEPS_MAX || op.conditions.len() > STEPS_MAX {
            return Err(Refused::wrong(format!(
                "an operation has 1 to {STEPS_MAX} steps and at most as many conditions"
            )));
        }
        let (mut reads, mut whole, waits) = (true, false, may_wait(&op.steps));
        let (mut alone, mut level) = (false, 1);
        let mut keys: Vec<&Bytes> = Vec::with_capacity(op.conditions.len() + op.steps.len());
        keys.extend(op.conditions.iter().map(|condition| &condition.key));
        for step in &op.steps {
            let Some(function) = functions::find(step.function) else {
                return Err(Refused::wrong("no function of this name"));
            };
            reads &= matches!(function.run, Run::Read(_));
            whole |= function.whole;
            alone |= function.waits;
            level = level.max(function.level_of(&step.args));
            keys.extend(function.keys(step));
        }
        if level > self.agreed
            && let Some(why) = functions::too_new(&op.steps, self.agreed)
        {
            return Err(Refused::wrong(why));
        }
        let most = if self.agreed >= LONG_KEYS_LEVEL { KEY_BYTES_MAX } else { base::limits::KEY_BYTES_MAX };
        if let Some(key) = keys.iter().find(|key| !(1..=most).contains(&key.len())) {
            return Err(Refused::wrong(format!("a key has 1 to {most} bytes, this one {}", key.len())));
        }
        if alone && (op.steps.len() > 1 || !op.conditions.is_empty()) {
            return Err(Refused::wrong("what may wait is an operation of its own"));
        }
        if waits && self.waiting >= WAITS_MAX {
            return Err(Refused::busy(format!("{WAITS_MAX} operations of this node wait already"), Span::secs(1)));
        }
        let bytes = wire::command_bytes(&op.conditions, &op.steps);
        if bytes > COMMAND_BYTES_MAX {
            return Err(Refused::wrong(format!(
                "{bytes} bytes are over the limit of {COMMAND_BYTES_MAX} for an operation"
            )));
        }
        if !self.calls.is_empty() && self.calls_bytes + bytes > CALLS_BYTES_MAX {
            let why = format!("operations of {} MiB of this node wait already", CALLS_BYTES_MAX >> 20);
            return Err(Refused::busy(why, Span::millis(50)));
        }
        if self.mute && self.is_alone_with(&op.namespace) {
            let why = format!("the disk of this node is full, and no other node has {}", op.namespace);
            return Err(Refused::busy(why, Span::secs(1)));
        }
        let Some(groups) = self.spaces.get(&op.namespace) else {
            return Err(Refused::busy(format!("{} has no groups yet", op.namespace), Span::millis(200)));
        };
        let of = |key: &Bytes| groups.range(..=hash_of(key)).next_back().map(|(_, id)| *id);
        // Where there is one group it has all keys.
        let looked_for = if groups.len() == 1 { &keys[..keys.len().min(1)] } else { &keys[..] };
        let mut ids: BTreeSet<Option<GroupId>> = looked_for.iter().map(|key| of(key)).collect();
        let named = match op.over {
            Over::Range { from, to } => {
                let is_one = self.shards(&op.namespace, from, to) == [(from, to)];
                let other = || Refused::busy(format!("{} has other shards now", op.namespace), CALL_SOON);
                Some(groups.get(&from).copied().filter(|_| is_one).ok_or_else(other)?)
            }
            Over::One | Over::Each => groups.values().next().copied().filter(|_| groups.len() == 1),
        };
        ids.extend(named.map(Some));
        match (ids.len(), ids.first()) {
            (1, Some(Some(id))) if !whole || named.is_some() => {
                Ok(Judged { group: *id, splits: self.splits_of(*id), reads, waits, bytes })
            }
            _ => Err(Refused::wrong(format!(
                "{} has {} shards, and an operation on several keys needs them in one: give the keys the same {{tag}}, or declare a namespace with shards = 1",
                op.namespace,
                groups.len()
            ))),
        }
    }

    fn is_alone_with(&self, namespace: &str) -> bool {
        let groups = self.placed.values().filter(|placed| placed.namespace == namespace);
        groups.into_iter().any(|placed| placed.members == [self.me])
    }

    /// Sends what is due, ends what is over.
    pub(super) fn send_due(&mut self, now: Now, out: &mut Vec<Output>) {
        while let Some((at, seq)) = self.timers.first().copied()
            && at <= now.mono
        {
            self.timers.remove(&(at, seq));
            let Some(call) = self.calls.get_mut(&seq) else { continue };
            // Those that were gathered for long have little time when they may go: as long as nothing was sent, nothing
            // happened.
            let is_unsent = call.sent == Sent::Nobody;
            let is_late =
                is_unsent && matches!(call.ask, Asker::Together(_)) && call.deadline.since(now.mono) < CALL_SOON;
            if call.deadline <= now.mono || is_late {
                self.end(seq, |call| fails(call, "no answer of its group's leader in time"), out);
                continue;
            }
            let is_own_first = call.stale.is_some() && call.tries == 0 && self.groups.contains_key(&call.group);
            let told = self.told.get(&(call.group, call.reads)).filter(|_| is_unsent && !is_own_first);
            if told.is_some_and(|told| told.turns_away(now.mono, call.priority)) {
                self.turned_away(seq, out);
                continue;
            }
            let to = self.leaders.get(&call.group).copied().filter(|id| self.nodes.live.contains(id));
            // Nobody is known: one after the other of those who should know.
            let members = self.placed.get(&call.group).map_or(&[][..], |placed| &placed.members);
            let may = |id: &NodeId| self.nodes.live.contains(id) && !(self.mute && *id == self.me);
            let living: Vec<NodeId> = members.iter().copied().filter(may).collect();
            let to = to.or_else(|| living.get(call.tries as usize % living.len().max(1)).copied());
            // A member of our own is asked first if it may answer at all.
            let to = to.map(|to| if is_own_first { self.me } else { to });
            call.tries += 1;
            self.counts.again += u64::from(call.tries > 1);
            let wait = match to {
                Some(_) if call.waits => WATCH_HOLD + CALL_AGAIN,
                Some(_) => again_after(call.bytes),
                None => CALL_SOON,
            };
            (call.to, call.again) = (to, (now.mono + wait).min(call.deadline));
            self.timers.insert((call.again, seq));
            let Some(to) = to else { continue };
            if !call.asked.contains(&to) {
                call.asked.push(to);
            }
            call.command.floor = self.writes.first().copied().unwrap_or(seq).min(seq);
            let (group, reads, stale) = (call.group, call.reads, call.stale);
            let resolved = moment::resolved(&call.command.steps, now.wall_ms, self.agreed);
            let resolved = resolved.map(|steps| Command { steps, ..call.command.clone() });
            if !reads {
                call.sent = call.sent.and(to);
            }
            let (sole, priority) = (!reads && call.sent != Sent::Several, call.priority);
            let budget = call.deadline.since(now.mono);
            if to == self.me {
                if self.groups.contains_key(&group) && !self.mute {
                    let until = may_wait_until(now.mono, budget);
                    let command = resolved.unwrap_or_else(|| call.command.clone());
                    let mark = mark(now.mono, budget, priority, sole, &command);
                    let asked = Asked { reads, stale, until, mark, level: self.agreed, command };
                    self.command(now, group, asked, out);
                } else {
                    self.leaders.remove(&group);
                }
                continue;
            }
            let command = resolved.as_ref().unwrap_or(&call.command);
            let head = wire::encode_do(&Do { group, reads, stale, sole, command });
            let budget_ms = u32::try_from(budget.as_millis().max(1)).unwrap_or(u32::MAX);
            let frame = Frame { priority, budget_ms, ..Frame::new(kind::LINEAR_CALL, head) };
            out.push(Output::Send { to, frame });
        }
    }

    pub(super) fn called(&mut self, now: Now, from: NodeId, frame: Frame, out: &mut Vec<Output>) {
        match wire::decode_call(frame.head) {
            Some(Call::Do { group, reads, stale, sole, command }) if command.id.node == from => {
                if self.groups.contains_key(&group) && !self.mute {
                    let budget = Span::millis(frame.budget_ms.into());
                    let until = may_wait_until(now.mono, budget);
                    let mark = mark(now.mono, budget, frame.priority, sole, &command);
                    let asked = Asked { reads, stale, until, mark, level: self.agreed, command };
                    self.command(now, group, asked, out);
                } else {
                    let answer =
                        Answer::Elsewhere { leader: self.leaders.get(&group).copied().filter(|id| *id != self.me) };
                    let call = Call::Answer { group, id: command.id, answer };
                    out.push(Output::Send { to: from, frame: Frame::new(kind::LINEAR_CALL, wire::encode_call(&call)) });
                }
            }
            Some(Call::Answer { group, id, answer }) if id.node == self.me => {
                self.answered(now, group, from, id, answer, out);
            }
            Some(Call::Leaves { group, epoch }) => self.asked_to_leave(from, group, epoch, out),
            Some(Call::Left { group, epoch, end }) => self.left(from, group, epoch, end, out),
            Some(Call::Do { .. } | Call::Answer { .. }) | None => {
                out.push(Output::Bad { from, why: "is no call, or not its own".to_owned() });
            }
        }
    }

    pub(super) fn answered(
        &mut self,
        now: Now,
        group: GroupId,
        from: NodeId,
        id: CommandId,
        answer: Answer,
        out: &mut Vec<Output>,
    ) {
        if id.boot != self.boot {
            // For a former life of this node.
            return;
        }
        let is_of = |call: &&mut Pending| call.group == group && call.asked.contains(&from);
        let Some(call) = self.calls.get_mut(&id.seq).filter(is_of) else { return };
        match answer {
            Answer::Ran(ran, _) if !call.command.is_answered_by(&ran) => {
                // As if it had been lost on its way.
                out.push(Output::Bad { from, why: "answers what it was not asked".to_owned() });
            }
            Answer::Ran(ran, index) => {
                let (begun, stale) = (call.begun, call.stale.is_some() && index == 0);
                self.counts.stale += u64::from(stale);
                self.counts.over += u64::from(ran.is_over());
                if let Some(member) = self.groups.get_mut(&group) {
                    member.learn(begun, index);
                }
                self.end(id.seq, |_| Outcome::Done(ran), out);
            }
            Answer::Forgotten => {
                let why = match call.command.once {
                    Some(_) => "its id is so old that what came of it is forgotten",
                    None => "its fate is forgotten, so long ago it was",
                };
                self.end(id.seq, |_| unknown(why), out);
            }
            Answer::Refused(wrong) => {
                self.end(id.seq, |_| Outcome::Refused(wrong.refused()), out);
            }
            Answer::Elsewhere { leader } => {
                // Only if it was asked last; and a leader that it knows of is worth a try at once.
                if call.to != Some(from) {
                    return;
                }
                let known = leader.filter(|leader| *leader != from && self.nodes.live.contains(leader));
                match known {
                    Some(leader) => drop(self.leaders.insert(group, leader)),
                    None => drop(self.leaders.remove(&group)),
                }
                let at = if known.is_some() && call.tries < 4 { now.mono } else { now.mono + CALL_SOON };
                self.look_at(id.seq, at);
            }
            // Who may wait anyway does not press a leader that lets enough wait; and what is large would press what is
            // beside it.
            Answer::Busy if call.waits || call.bytes > LARGE_CALL_BYTES => self.look_at(id.seq, now.mono + CALL_AGAIN),
            Answer::Busy => self.look_at(id.seq, now.mono + CALL_SOON),
            Answer::TurnedAway { floor } => {
                let is_sure = call.reads || call.sent == Sent::One(from);
                self.told.entry((group, call.reads)).or_default().heard(now.mono, floor.into());
                // Of a write only if nobody else can have put it into a log.
                if is_sure {
                    self.turned_away(id.seq, out);
                } else {
                    self.look_at(id.seq, now.mono + CALL_SOON);
                }
            }
            Answer::Moved => {
                let knew = call.command.splits;
                self.learn_split(group, knew);
                if self.splits_of(group) > knew {
                    self.ask_again(now, id.seq, out);
                } else {
                    // The declaration that says where to is still on its way.
                    self.look_at(id.seq, now.mono + CALL_SOON);
                }
            }
        }
    }

    /// What a call is about has gone to another group. It has not happened; it is asked there, as if for the first
    /// time.
    fn ask_again(&mut self, now: Now, seq: u64, out: &mut Vec<Output>) {
        let Some(call) = self.take(seq) else { return };
        let Pending { ask, namespace, over, stale, command, deadline, priority, commands, .. } = call;
        let Command { conditions, steps, once, .. } = command;
        let (once, said) = (once.map(|once| once.id), once.map(|once| once.of));
        let op = Op { namespace, conditions, steps, stale, over, weak: false, once, said, priority, commands };
        self.ask(now, ask, deadline.since(now.mono), op, out);
    }

    /// Its next life will not know whom it has turned away, and may take a copy.
    pub(super) fn doubt(&mut self, dead: NodeId) {
        let asked = self.calls.values_mut().filter(|call| call.sent == Sent::One(dead));
        asked.for_each(|call| call.sent = Sent::Several);
    }

    /// Its group's leader has too much to do for what matters so little. It has not happened.
    fn turned_away(&mut self, seq: u64, out: &mut Vec<Output>) {
        self.counts.turned_away += 1;
        let why = "its group's leader has too much to do for what matters so little";
        self.end(seq, |_| Outcome::Refused(Refused::busy(why, RETRY_AFTER)), out);
    }

    fn take(&mut self, seq: u64) -> Option<Pending> {
        let call = self.calls.remove(&seq)?;
        self.waiting -= usize::from(call.waits);
        self.calls_bytes -= call.bytes;
        self.timers.remove(&(call.again, seq));
        self.writes.remove(&seq);
        Some(call)
    }

    pub(super) fn look_again(&mut self, now: Time, which: impl Fn(&Pending) -> bool) {
        let seqs: Vec<u64> = self.calls.iter().filter(|(_, call)| which(call)).map(|(seq, _)| *seq).collect();
        seqs.into_iter().for_each(|seq| self.look_at(seq, now));
    }

    fn look_at(&mut self, seq: u64, at: Time) {
        let Some(call) = self.calls.get_mut(&seq) else { return };
        let at = at.min(call.deadline);
        self.timers.remove(&(call.again, seq));
        call.again = at;
        self.timers.insert((at, seq));
    }

    pub(super) fn end(&mut self, seq: u64, outcome: impl FnOnce(&Pending) -> Outcome<Ran>, out: &mut Vec<Output>) {
        let Some(call) = self.take(seq) else { return };
        self.ended(call.ask, outcome(&call), out);
    }

    /// Tells who asked.
    fn ended(&mut self, ask: Asker, outcome: Outcome<Ran>, out: &mut Vec<Output>) {
        match ask {
            Asker::Door(id) => {
                match &outcome {
                    Outcome::Done(_) => (),
                    Outcome::Refused(_) => self.counts.refused += 1,
                    Outcome::Unknown(_) => self.counts.unknown += 1,
                }
                out.push(Output::Answer { id, answer: outcome });
            }
            Asker::Part(apart, nth) => {
                let whole = self.apart.get_mut(&apart).and_then(|it| Some((it.ask, it.ended(nth, outcome)?)));
                let Some((ask, outcome)) = whole else { return };
                self.apart.remove(&apart);
                self.ended(ask, outcome, out);
            }
            Asker::Together(number) => {
                let Ended { told, alone, next } = self.together.ended(number, &outcome);
                told.into_iter().for_each(|ask| self.ended(ask, outcome.clone(), out));
                self.alone.extend(alone);
                if let Some(seq) = next {
                    self.look_at(seq, Time::default());
                }
            }
            Asker::Probe(id) => {
                let answers = matches!(outcome, Outcome::Done(_));
                out.push(Output::Probed { id, answers });
            }
        }
    }
}

/// Is it about all keys?
fn is_whole(step: &Step) -> bool {
    functions::find(step.function).is_some_and(|function| function.whole)
}

/// Is it one that may wait, be it told to or not?
fn waits(op: &Op) -> bool {
    op.steps.iter().any(|step| functions::find(step.function).is_some_and(|function| function.waits))
}

fn unknown(why: &str) -> Outcome<Ran> {
    Outcome::Unknown(Unknown { why: why.into() })
}

/// How long an answer is waited for. What is large takes its time: sent twice, it would take more.
fn again_after(bytes: usize) -> Span {
    CALL_AGAIN + CALL_AGAIN_MIB.times((bytes >> 20) as u64)
}

/// How long a leader may let a question wait: its asker must have an answer before he gives up.
fn may_wait_until(now: Time, budget: Span) -> Time {
    now + Span(budget.0.saturating_sub(CALL_AGAIN.0)).min(WATCH_HOLD)
}

/// The mark of a command that has so much time from now on; a budget of zero is no bound.
fn mark(now: Time, budget: Span, priority: Priority, sole: bool, command: &Command) -> Mark {
    let until = if budget == Span::ZERO { Time::NEVER } else { now + Span(budget.0.saturating_sub(CALL_SOON.0)) };
    Mark { priority, since: now, until, sole, bytes: command.bytes() }
}

/// The end of a call without an answer: a write that was sent may have happened.
pub(super) fn fails(call: &Pending, why: &str) -> Outcome<Ran> {
    if call.sent == Sent::Nobody { Outcome::Refused(Refused::busy(why, RETRY_AFTER)) } else { unknown(why) }
}
