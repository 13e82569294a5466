//! What a command of a connection waits for, and which keys it has to do with.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use base::Outcome;
use futures_util::future::LocalBoxFuture;
use state::session::Reply as Found;
use tokio::sync::oneshot;

use super::batch::Batch;
use super::clients::Unblock;
use super::commands::linear::Then;
use super::commands::{self, Does, Given, Keys, Spec};
use super::encode::Reply;
use super::gate::Waiting;
use super::limits::*;
use super::ops;
use super::parse::Command;

pub enum Work {
    Ready(Reply),
    Op(Waiting, fn(Outcome<Found>) -> Reply),
    Linear(Waiting, Then),
    /// The one at this place of several that are asked as one.
    Batched(Rc<RefCell<Batch>>, usize, Then),
    Cache(Waiting, commands::cache::Then),
    Soft(Waiting, commands::soft::Then),
    Later(LocalBoxFuture<'static, Reply>),
    /// Waits for something, perhaps for long, in a task of its own.
    Blocked(oneshot::Receiver<Given>),
}

impl Work {
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        match self {
            Work::Ready(reply) => Poll::Ready(std::mem::replace(reply, Reply::Nil)),
            Work::Op(waiting, then) => {
                let answer = ready!(Pin::new(waiting).poll(cx));
                Poll::Ready(then(ops::outcome(answer)))
            }
            Work::Linear(waiting, then) => {
                let answer = ready!(Pin::new(waiting).poll(cx));
                Poll::Ready(commands::linear::reply(ops::linear_outcome(answer), *then))
            }
            Work::Batched(batch, at, then) => {
                let outcome = ready!(batch.borrow_mut().poll(*at, cx));
                Poll::Ready(commands::linear::reply(outcome, *then))
            }
            Work::Cache(waiting, then) => {
                let answer = ready!(Pin::new(waiting).poll(cx));
                Poll::Ready(then(commands::cache::outcome(answer)))
            }
            Work::Soft(waiting, then) => {
                let answer = ready!(Pin::new(waiting).poll(cx));
                Poll::Ready(commands::soft::reply(ops::soft_outcome(answer), *then))
            }
            Work::Later(future) => future.as_mut().poll(cx),
            Work::Blocked(waiting) => {
                let given = ready!(Pin::new(waiting).poll(cx));
                Poll::Ready(given.map_or_else(|_| Reply::error(UNBLOCKED), Given::take))
            }
        }
    }

    pub fn is_blocked(&self) -> bool {
        matches!(self, Work::Blocked(_))
    }

    /// What waits for long does so no more.
    pub fn unblock(&mut self) {
        if let Work::Blocked(waiting) = self {
            // What comes from now on is not ours any more; what has come is.
            waiting.close();
        }
    }

    /// What waits for long ends now, with what has come or with what its client is told.
    pub fn release(&mut self, how: Unblock, name: &str) {
        let Work::Blocked(waiting) = self else { return };
        waiting.close();
        let reply = match (waiting.try_recv(), how) {
            (Ok(given), _) => given.take(),
            (Err(_), Unblock::Error) => Reply::error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
            (Err(_), Unblock::Timeout) if matches!(name, "BLMOVE" | "BRPOPLPUSH") => Reply::Nil,
            (Err(_), Unblock::Timeout) => Reply::NilList,
        };
        *self = Work::Ready(reply);
    }

    /// Takes its answer if there is one, though nobody can be told yet.
    pub fn settle(&mut self, cx: &mut Context<'_>) {
        if !matches!(self, Work::Ready(_) | Work::Blocked(_))
            && let Poll::Ready(reply) = self.poll(cx)
        {
            *self = Work::Ready(reply);
        }
    }

    /// Lets work of several steps take its next one. A single operation needs no pushing.
    pub fn go_on(&mut self, cx: &mut Context<'_>) {
        if let Work::Later(future) = self
            && let Poll::Ready(reply) = future.as_mut().poll(cx)
        {
            *self = Work::Ready(reply);
        }
    }
}

const UNBLOCKED: &str = "UNBLOCKED this node is about to end: nothing was taken, ask another one";

/// What a command has to do with others: hashes of its keys, each with whether it is written.
pub enum Touches {
    None,
    One([(u64, bool); 1]),
    Some(Vec<(u64, bool)>),
    /// Every key, or too many to tell apart.
    All,
}

impl Touches {
    pub fn of(command: &Command, spec: &Spec) -> Self {
        let key = |at| (base::checksum::place_hash(command.arg(at)), spec.does == Does::Write);
        if spec.does.is_about_all() || spec.does == Does::Listen {
            return Self::All;
        }
        let mut positions = spec.key_positions(command, 0);
        match spec.keys {
            Keys::None => Self::None,
            Keys::One | Keys::Second => positions.next().map_or(Self::None, |at| Self::One([key(at)])),
            _ => {
                let keys: Vec<_> = positions.take(KEYS_TRACKED_MAX + 1).map(key).collect();
                if keys.len() > KEYS_TRACKED_MAX { Self::All } else { Self::Some(keys) }
            }
        }
    }

    pub fn keys(&self) -> &[(u64, bool)] {
        match self {
            Self::One(key) => key,
            Self::Some(keys) => keys,
            Self::None | Self::All => &[],
        }
    }
}

/// A key of a command under way.
pub struct Key {
    pub hash: u64,
    pub writes: bool,
    /// The batch that its command is in; 0: none.
    pub batch: u64,
    pub is_brief: bool,
}

/// What a command has to do with those under way.
pub enum Meets {
    Nothing,
    /// One in this batch, which it may join.
    In(u64),
    /// It waits until they have ended.
    Others,
}

/// What is known of a command's work beside what it is.
#[derive(Clone, Copy, Default)]
pub struct About {
    pub bytes: usize,
    pub batch: u64,
    pub is_brief: bool,
}
