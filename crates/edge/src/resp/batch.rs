//! Commands of class `linear` that stand behind each other in a pipeline are one operation: one message to the leader, one
//! entry of the log, one answer, instead of one for each. Its steps are done in the order in which the commands came, so
//! what one writes the next one reads, also of the same key. What comes of the operation is true of each command: all were
//! done, none was, or it is not known. Where one could spoil that for others (it is refused for what it says, there is no
//! room for all of them, the answers are too long together) each is asked by itself, one after the other.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base::{Because, Outcome, Priority, Span, Unknown};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use node::Ask;
use node::view::ShardView;
use state::linear::functions::{self, Run};
use state::linear::{Op, Over, Ran, Reply as Got, Step, Wrong, hash_of};

use super::gate::{Gate, Waiting};
use super::limits::{BATCH_BYTES_MAX, BATCH_COMMANDS_MAX, BATCH_STEPS_MAX};
use super::ops;
use super::work::Meets;

/// What must be the same of all that are one operation.
#[derive(Clone, PartialEq)]
pub struct Kind {
    pub namespace: Arc<str>,
    pub priority: Priority,
    pub stale: Option<Span>,
}

pub struct Batch {
    /// Of its connection's; never 0.
    number: u64,
    gate: Rc<Gate>,
    kind: Kind,
    shard: usize,
    /// It changes nothing.
    reads: bool,
    bytes: usize,
    /// Bytes that the answers of its commands may have, by the last ones.
    answers: usize,
    commands: usize,
    state: State,
}

enum State {
    /// Gathers: steps, and how many of them each command has.
    Open(Vec<Step>, Vec<usize>),
    /// With what each is asked by itself, if it has to be.
    Asked(Waiting, Vec<Step>, Vec<usize>),
    Alone(LocalBoxFuture<'static, Outcomes>),
    Ended(Outcomes),
}

/// Of each command, until it is taken.
type Outcomes = Vec<Option<Outcome<Ran>>>;

/// What is known of an operation that may stand among others.
struct Fit {
    shard: usize,
    reads: bool,
}

impl Fit {
    /// None: it is asked by itself. A write whose answer may be long is: it could get lost behind others.
    fn of(op: &Op, is_brief: bool, shards: &[ShardView]) -> Option<Self> {
        let plain = op.conditions.is_empty() && op.once.is_none() && op.said.is_none() && !op.weak;
        let few = (1..=BATCH_STEPS_MAX / 2).contains(&op.steps.len());
        if !plain || !few || matches!(op.over, Over::Range { .. }) {
            return None;
        }
        let (mut shard, mut reads) = (None, true);
        for step in &op.steps {
            let function = functions::find(step.function)?;
            if function.whole || function.keyless || function.waits || function.inner {
                return None;
            }
            reads &= matches!(function.run, Run::Read(_));
            for key in function.keys(step) {
                let its = if shards.len() < 2 { 0 } else { shard_of(key, shards)? };
                if *shard.get_or_insert(its) != its {
                    return None;
                }
            }
        }
        (reads || is_brief).then_some(Self { shard: shard?, reads })
    }
}

/// How an operation of class `linear` is asked.
pub enum Asked {
    In(Rc<RefCell<Batch>>, usize),
    Alone(Box<Op>),
    /// When those before it have ended.
    Later,
}

/// Those of a connection that gather commands now.
pub struct Batches {
    gate: Rc<Gate>,
    open: Vec<Rc<RefCell<Batch>>>,
    made: u64,
    /// Of a namespace, as long as they gather.
    shards: Option<(Arc<str>, Arc<[ShardView]>)>,
}

impl Batches {
    pub fn new(gate: &Rc<Gate>) -> Self {
        Self { gate: Rc::clone(gate), open: Vec::new(), made: 0, shards: None }
    }

    /// Has the one of this number room for one more of this kind?
    pub fn takes(&self, number: u64, kind: &Kind) -> bool {
        self.open.iter().map(|batch| batch.borrow()).any(|batch| batch.number == number && batch.takes(kind))
    }

    /// Puts an operation into one, if it may stand there. `bytes`: of its command, and about so many of its answer. `is_brief`:
    /// its answer is short, whatever is stored. `is_last`: nothing more has come.
    pub fn put(&mut self, op: Op, meets: &Meets, bytes: (usize, usize), is_brief: bool, is_last: bool) -> Asked {
        let kind = Kind { namespace: Arc::clone(&op.namespace), priority: op.priority, stale: op.stale };
        // What is large would hold up the others, and gains nothing.
        let is_only = self.open.is_empty() && is_last || bytes.0 > BATCH_BYTES_MAX / 2;
        let fit = if is_only { None } else { Fit::of(&op, is_brief, &self.shards(&kind.namespace)) };
        let batch = match (meets, fit.as_ref()) {
            (Meets::In(number), Some(fit)) => self.find(&kind, |it| it.number == *number && it.shard == fit.shard),
            (_, Some(fit)) => self.find(&kind, |it| it.reads == fit.reads && it.shard == fit.shard),
            (_, None) => None,
        };
        match (batch, fit) {
            (Some(batch), Some(fit)) => Self::join(batch, op, &fit, bytes),
            // It is to see what those before it do, or they must not see what it does.
            _ if matches!(meets, Meets::In(_)) => Asked::Later,
            (None, Some(fit)) => {
                self.made += 1;
                let batch = Rc::new(RefCell::new(Batch::new(self.made, &self.gate, kind, &fit)));
                self.open.push(Rc::clone(&batch));
                Self::join(batch, op, &fit, bytes)
            }
            (_, None) => {
                self.ask();
                Asked::Alone(Box::new(op))
            }
        }
    }

    fn find(&self, kind: &Kind, is_it: impl Fn(&Batch) -> bool) -> Option<Rc<RefCell<Batch>>> {
        let wanted = |batch: &&Rc<RefCell<Batch>>| is_it(&batch.borrow()) && batch.borrow().takes(kind);
        self.open.iter().find(wanted).map(Rc::clone)
    }

    fn join(batch: Rc<RefCell<Batch>>, op: Op, fit: &Fit, bytes: (usize, usize)) -> Asked {
        let at = batch.borrow_mut().add(op, fit, bytes);
        Asked::In(batch, at)
    }

    fn shards(&mut self, namespace: &Arc<str>) -> Arc<[ShardView]> {
        if let Some((of, shards)) = &self.shards
            && Arc::ptr_eq(of, namespace)
        {
            return Arc::clone(shards);
        }
        let view = self.gate.view();
        let shown = view.namespaces.iter().find(|shown| *shown.name == **namespace);
        let shards = shown.map_or_else(|| [].into(), |shown| Arc::clone(&shown.shards));
        self.shards = Some((Arc::clone(namespace), Arc::clone(&shards)));
        shards
    }

    /// All that gather are asked: nothing more has come, or what comes next goes by itself and is not to overtake them.
    pub fn ask(&mut self) {
        self.shards = None;
        self.open.drain(..).for_each(|batch| batch.borrow_mut().ask());
    }
}

fn shard_of(key: &Bytes, shards: &[ShardView]) -> Option<usize> {
    let hash = hash_of(key);
    shards.iter().position(|shard| (shard.from..=shard.to).contains(&hash))
}

impl Batch {
    fn new(number: u64, gate: &Rc<Gate>, kind: Kind, fit: &Fit) -> Self {
        let state = State::Open(Vec::new(), Vec::new());
        let gate = Rc::clone(gate);
        Self { number, gate, kind, shard: fit.shard, reads: fit.reads, bytes: 0, answers: 0, commands: 0, state }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Has it room for one more command of this kind?
    fn takes(&self, kind: &Kind) -> bool {
        let State::Open(steps, _) = &self.state else { return false };
        let has_room = self.commands < BATCH_COMMANDS_MAX
            && steps.len() < BATCH_STEPS_MAX / 2
            && self.bytes < BATCH_BYTES_MAX
            && self.answers < BATCH_ANSWERS_MAX;
        has_room && self.kind == *kind
    }

    /// Takes one more; its place.
    fn add(&mut self, op: Op, fit: &Fit, (bytes, answer): (usize, usize)) -> usize {
        let State::Open(steps, each) = &mut self.state else { unreachable!("what was asked takes no more") };
        each.push(op.steps.len());
        steps.extend(op.steps);
        self.reads &= fit.reads;
        self.bytes += bytes;
        self.answers += answer;
        self.commands += 1;
        self.commands - 1
    }

    fn op(&self, steps: Vec<Step>) -> Op {
        let Kind { namespace, priority, stale } = self.kind.clone();
        // Of all that write nothing is stale.
        let stale = stale.filter(|_| self.reads);
        Op { priority, stale, commands: self.commands as u32, ..Op::of(namespace, steps) }
    }

    /// From now on it gathers no more.
    pub fn ask(&mut self) {
        let State::Open(steps, each) = &mut self.state else { return };
        let (steps, each) = (std::mem::take(steps), std::mem::take(each));
        let kept = if each.len() > 1 { steps.clone() } else { Vec::new() };
        let waiting = self.gate.ask(Ask::Linear(self.op(steps)));
        self.state = State::Asked(waiting, kept, each);
    }

    /// What came of the command at this place.
    pub fn poll(&mut self, at: usize, cx: &mut Context<'_>) -> Poll<Outcome<Ran>> {
        self.ask();
        loop {
            match &mut self.state {
                State::Open(..) => unreachable!("it has just been asked"),
                State::Asked(waiting, steps, each) => {
                    let answer = ready!(std::pin::Pin::new(waiting).poll(cx));
                    let (steps, each) = (std::mem::take(steps), std::mem::take(each));
                    self.state = self.answered(ops::linear_outcome(answer), steps, each);
                }
                State::Alone(each) => self.state = State::Ended(ready!(each.as_mut().poll(cx))),
                State::Ended(outcomes) => {
                    let taken = || Outcome::Unknown(Unknown { why: "its answer was taken".into() });
                    return Poll::Ready(outcomes.get_mut(at).and_then(Option::take).unwrap_or_else(taken));
                }
            }
        }
    }

    fn answered(&self, outcome: Outcome<Ran>, steps: Vec<Step>, each: Vec<usize>) -> State {
        let count = each.len();
        match outcome {
            outcome if count == 1 => State::Ended(vec![Some(outcome)]),
            Outcome::Refused(refused) if refused.retry_after.is_none() || refused.because == Because::Rate => {
                self.alone(vec![None; count], steps, &each)
            }
            Outcome::Done(Ran::Done(got)) if got.iter().all(is_over) => self.alone(vec![None; count], steps, &each),
            Outcome::Done(Ran::Done(got)) => {
                let (mut got, mut step, mut is_whole) = (got.into_iter(), 0, true);
                let mut of_each = |count: &usize| {
                    let its = &steps[step..step + count];
                    step += count;
                    let got: Vec<Got> = got.by_ref().take(*count).collect();
                    // It has changed nothing, and nothing behind it has changed what it reads.
                    let again = got.contains(&Got::Wrong(Wrong::LongAnswer)) && its.iter().all(is_read);
                    is_whole &= !again;
                    (!again).then_some(Outcome::Done(Ran::Done(got)))
                };
                let outcomes: Outcomes = each.iter().map(&mut of_each).collect();
                if is_whole { State::Ended(outcomes) } else { self.alone(outcomes, steps, &each) }
            }
            other => State::Ended(vec![Some(other); count]),
        }
    }

    /// Asks those that have no outcome yet by themselves, each when the one before has ended.
    fn alone(&self, mut outcomes: Outcomes, steps: Vec<Step>, each: &[usize]) -> State {
        let mut steps = steps.into_iter();
        let ops: Vec<Op> = each
            .iter()
            .map(|count| {
                let steps: Vec<Step> = steps.by_ref().take(*count).collect();
                Op { commands: 1, ..self.op(steps) }
            })
            .collect();
        let gate = Rc::clone(&self.gate);
        State::Alone(Box::pin(async move {
            for (op, outcome) in ops.into_iter().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none()) {
                *outcome = Some(ops::linear_outcome(gate.ask(Ask::Linear(op)).await));
            }
            outcomes
        }))
    }
}

fn is_read(step: &Step) -> bool {
    functions::find(step.function).is_some_and(|function| matches!(function.run, Run::Read(_)))
}

/// It was not done, as its namespace has all that it may.
fn is_over(got: &Got) -> bool {
    matches!(got, Got::Wrong(Wrong::BytesMax | Wrong::KeysMax))
}

/// Bytes of answers of one operation, by what the last ones had: more would hold up what others are told.
const BATCH_ANSWERS_MAX: usize = 4 << 20;

/// May a command of this name stand behind one on the same key, or before it, in one operation? It is made into steps of its
/// key alone, and making them changes nothing here: what turns out to be asked by itself is made again later.
pub fn joins(name: &str) -> bool {
    matches!(
        name,
        "GET"
            | "SET"
            | "SETNX"
            | "SETEX"
            | "PSETEX"
            | "STRLEN"
            | "APPEND"
            | "GETRANGE"
            | "SUBSTR"
            | "SETRANGE"
            | "INCR"
            | "DECR"
            | "INCRBY"
            | "DECRBY"
            | "INCRBYFLOAT"
            | "GETBIT"
            | "SETBIT"
            | "BITCOUNT"
            | "DEL"
            | "UNLINK"
            | "EXISTS"
            | "TYPE"
            | "TTL"
            | "PTTL"
            | "EXPIRE"
            | "PEXPIRE"
            | "EXPIREAT"
            | "PEXPIREAT"
            | "PERSIST"
            | "HGET"
            | "HSET"
            | "HSETNX"
            | "HMSET"
            | "HMGET"
            | "HGETALL"
            | "HKEYS"
            | "HVALS"
            | "HLEN"
            | "HEXISTS"
            | "HDEL"
            | "HINCRBY"
            | "HINCRBYFLOAT"
            | "HSTRLEN"
            | "LPUSH"
            | "RPUSH"
            | "LPUSHX"
            | "RPUSHX"
            | "LLEN"
            | "LRANGE"
            | "LINDEX"
            | "LSET"
            | "LREM"
            | "LTRIM"
            | "SADD"
            | "SREM"
            | "SCARD"
            | "SISMEMBER"
            | "SMEMBERS"
            | "ZADD"
            | "ZINCRBY"
            | "ZREM"
            | "ZCARD"
            | "ZCOUNT"
            | "ZSCORE"
            | "ZRANK"
            | "ZREVRANK"
            | "ZRANGE"
            | "ZRANGEBYSCORE"
            | "ZREVRANGE"
            | "ZREVRANGEBYSCORE"
            | "ZREMRANGEBYSCORE"
            | "ZREMRANGEBYRANK"
            | "XADD"
            | "XLEN"
            | "XACK"
            | "XDEL"
            | "XTRIM"
            | "XRANGE"
            | "XREVRANGE"
            | "PFADD"
    )
}
