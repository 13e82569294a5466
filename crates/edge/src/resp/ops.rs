//! What commands ask of the node, and its outcomes in the words of the Redis protocol. The only file of this door that
//! knows how the `session` class's operations are built (those of `linear` are steps, built by its commands).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use base::{Because, Outcome, Priority, Span};
use bytes::Bytes;
use class::Bound;
use futures_util::StreamExt;
use node::used::OVER_RATE;
use node::{Answer, Ask};
use state::session::{Action, Kind, Lease, Op, Reply as Found, Version, When};
use state::{linear, soft};
use tokio::sync::oneshot;

use super::encode::Reply;
use super::gate::{Gate, Waiting};
use super::limits::*;

/// A namespace as one client sees it, after AUTH.
#[derive(Clone)]
pub struct Space {
    pub name: Arc<str>,
    pub gate: Rc<Gate>,
    /// Of all that is asked here.
    pub priority: Priority,
}

/// A value as it was read.
pub struct Seen {
    pub value: Bytes,
    pub kind: Kind,
    pub version: Version,
    pub lease_left: Span,
}

impl Space {
    pub fn op(&self, key: Bytes, action: Action) -> Op {
        Op::keyed(Arc::clone(&self.name), key, action)
    }

    pub fn get(&self, key: Bytes) -> Op {
        self.op(key, Action::Get)
    }

    pub fn put(&self, key: Bytes, value: Bytes, lease: Lease, when: When, want_old: bool) -> Op {
        self.op(key, Action::Put { value, kind: Kind::Text, lease, when, want_old })
    }

    /// Of either kind.
    pub fn put_kind(&self, key: Bytes, (value, kind): (Bytes, Kind), lease: Lease, when: When) -> Op {
        self.op(key, Action::Put { value, kind, lease, when, want_old: false })
    }

    pub fn start(&self, op: Op) -> Waiting {
        self.gate.ask(Ask::Session(Op { priority: self.priority, ..op }))
    }

    pub async fn ask(&self, op: Op) -> Outcome<Found> {
        outcome(self.start(op).await)
    }

    /// What is there now, for a write that depends on it.
    pub async fn see(&self, key: Bytes) -> Result<Option<Seen>, Reply> {
        done(self.ask(self.get(key)).await).map(value_of)
    }

    /// The same, where only a text will do.
    pub async fn see_text(&self, key: Bytes) -> Result<Option<Seen>, Reply> {
        let seen = self.see(key).await?;
        if seen.as_ref().is_some_and(|seen| seen.kind != Kind::Text) { Err(wrong_type()) } else { Ok(seen) }
    }

    /// Reads and writes on what was read, again and again while others are faster (`None`).
    pub async fn try_until<F: Future<Output = Result<Option<Reply>, Reply>>>(&self, once: impl Fn() -> F) -> Reply {
        let begun = Instant::now();
        for _ in 0..CHANGE_TRIES_MAX {
            match once().await {
                Ok(Some(reply)) | Err(reply) => return reply,
                Ok(None) if begun.elapsed() > CHANGE_TIME_MAX => break,
                Ok(None) => (),
            }
        }
        Reply::error("BUSY other writers of this key were always faster, retry in 100 ms")
    }

    /// Outcomes of several operations, in their order; a few run at once.
    pub async fn ask_each(&self, ops: Vec<Op>) -> Vec<Outcome<Found>> {
        futures_util::stream::iter(ops).map(|op| self.ask(op)).buffered(FAN_OUT_MAX).collect().await
    }
}

impl Space {
    pub async fn ask_linear(&self, op: linear::Op) -> Outcome<linear::Ran> {
        let op = linear::Op { priority: self.priority, ..op };
        linear_outcome(self.gate.ask(Ask::Linear(op)).await)
    }
}

impl Space {
    pub async fn ask_soft(&self, action: soft::Action) -> Outcome<soft::Reply> {
        let op = soft::Op { priority: self.priority, ..soft::Op::of(Arc::clone(&self.name), action) };
        soft_outcome(self.gate.ask(Ask::Soft(op)).await)
    }
}

/// What a node's answer says of a soft operation.
pub fn soft_outcome(answer: Result<Answer, oneshot::error::RecvError>) -> Outcome<soft::Reply> {
    match answer {
        Ok(Answer::Soft(outcome)) => outcome,
        Ok(other) => unreachable!("a soft operation was answered by {other:?}"),
        Err(_) => Outcome::Unknown(base::Unknown { why: "the node stopped before it answered".into() }),
    }
}

/// What a node's answer says of a linear operation.
pub fn linear_outcome(answer: Result<Answer, oneshot::error::RecvError>) -> Outcome<linear::Ran> {
    match answer {
        Ok(Answer::Linear(outcome)) => outcome,
        Ok(other) => unreachable!("a linear operation was answered by {other:?}"),
        Err(_) => Outcome::Unknown(base::Unknown { why: "the node stopped before it answered".into() }),
    }
}

/// It did not happen.
pub fn refused(refused: &base::Refused) -> Reply {
    match refused.retry_after {
        // Redis' own word for it, which clients know.
        _ if matches!(refused.because, Because::Quota | Because::Room) => Reply::Error(format!("OOM {refused}")),
        Some(after) => Reply::Error(format!("BUSY {refused}, retry in {} ms", after.as_millis().max(1))),
        None => Reply::Error(format!("ERR {refused}")),
    }
}

/// It may have happened.
pub fn unknown(unknown: &base::Unknown) -> Reply {
    Reply::Error(format!("UNKNOWN {unknown}"))
}

/// What a node's answer says of a session operation.
pub fn outcome(answer: Result<Answer, oneshot::error::RecvError>) -> Outcome<Found> {
    match answer {
        Ok(Answer::Session(outcome)) => outcome,
        Ok(other) => unreachable!("a session operation was answered by {other:?}"),
        Err(_) => Outcome::Unknown(base::Unknown { why: "the node stopped before it answered".into() }),
    }
}

/// A command does not take values of this kind.
pub fn wrong_type() -> Reply {
    Reply::error(
        "WRONGTYPE Operation against a key holding the wrong kind of value: hashes have the H commands, other values GET and SET",
    )
}

/// What happened, or the error reply that says why it did not or may not have.
pub fn done(outcome: Outcome<Found>) -> Result<Found, Reply> {
    match outcome {
        Outcome::Done(Found::OtherKind(_)) => Err(wrong_type()),
        Outcome::Done(found) => Ok(found),
        Outcome::Refused(why) => Err(refused(&why)),
        Outcome::Unknown(why) => Err(unknown(&why)),
    }
}

/// Did this door fail at its work (so that it counts as an error of ours)?
pub fn is_ours(reply: &Reply) -> bool {
    // A namespace that has all that it may, or asks for more, is its operator's matter.
    let is_quota = |text: &str| {
        let of_bound = [Bound::Bytes, Bound::Keys].iter().any(|bound| text.strip_prefix("OOM ") == Some(bound.why()));
        of_bound || text.trim_start_matches("BUSY ").starts_with(OVER_RATE)
    };
    matches!(reply, Reply::Error(text) if ["BUSY", "OOM", "UNKNOWN"].iter().any(|code| text.starts_with(code)) && !is_quota(text))
}

/// The leader of a group, which may be another node, answered with what is no answer to what it was asked.
pub fn odd_answer() -> Reply {
    unknown(&base::Unknown { why: "it was answered with what is no answer to it".into() })
}

/// A reply of a kind that its operation cannot have.
pub fn odd(found: &Found) -> ! {
    unreachable!("the node answered an operation with {found:?}")
}

/// The value, if there is one. *Lost* (its bricks are gone) is no value either: Redis has no word for it, and a client
/// must go on as if the session had ended. The node counts losses (`session.lost`).
pub fn value_of(found: Found) -> Option<Seen> {
    match found {
        Found::Value { value, kind, version, lease_left } => Some(Seen { value, kind, version, lease_left }),
        Found::Absent | Found::Lost => None,
        other => odd(&other),
    }
}
