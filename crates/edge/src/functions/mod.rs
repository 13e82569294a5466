//! Functions of services, applied to values of class `linear`. Replicas cannot run them, as they are programs in any language;
//! so the node that is asked reads the value, has a clone of the service compute the next one, and writes that if the value is still
//! the one that was read. If it is not, all of it is done again.
//!
//! Such a write fails only because another one succeeded, so the whole always goes on; and who was beaten twice reads with a hold, so
//! that other writers of the key wait for him (`linear/src/group/holds.rs`). And all calls that wait at this node for one
//! key are computed and written together, so on a hot key more calls are done with each round instead of fewer.
//!
//! ```text
//! HTTP apply ─┐                                 ┌── read (linearizable) ◄─────────┐
//! RESP FCALL ─┴─► queue of the key ─► a round: ─┼── ask a clone: value, calls     │ somebody else wrote
//!                     (queue.rs)    (rounds.rs) └── write if of the same version ─┘
//! ```
//! - `queue.rs`: who waits for which key; how far a call has come, so that who gives up knows whether it happened.
//! - `rounds.rs`: a round. `wire.rs`: what a clone is asked, and what it may answer.
//!
//! A function may be run more than once for a call and what it gave be thrown away. It sees nothing but the value and its arguments.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base::limits::KEY_BYTES_MAX;
use base::{Outcome, Refused, Span, Unknown};
use bytes::Bytes;
use serde_json::Value;
use state::linear::Uuid;
use state::linear::once::Once;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::ask::Backend;
use crate::meter::Calls;
use crate::pool::Pool;
use crate::{Dial, Meter};

mod limits;
mod queue;
mod rounds;
#[cfg(test)]
mod tests;
pub mod wire;

use limits::*;
use queue::{Fate, Queues, Waiting};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Call {
    pub namespace: Arc<str>,
    /// Whose clones know the function.
    pub service: Arc<str>,
    pub key: Bytes,
    pub function: String,
    pub args: Vec<Bytes>,
    /// How much it matters, 0 to 9. The clone is told.
    pub class: u8,
    /// How long somebody waits for it, if that is less than [`BUDGET`].
    pub left: Option<Span>,
    /// What its caller calls it, so that it happens once however often it is asked.
    pub once: Option<Uuid>,
}

/// What came of a call that was carried out. Only `Done` may have changed something.
#[derive(Clone, PartialEq, Debug)]
pub enum Ran {
    Done(Value),
    /// The key holds a value of another type.
    Type,
    /// The function failed, or said no, or there is none of this name: why.
    Failed(String),
}

pub type End = Outcome<Ran>;

/// The functions of all services, as one node applies them.
pub struct Functions {
    desk: OnceLock<Desk>,
    queues: Mutex<Queues>,
    /// For the bytes of all calls.
    room: Arc<Semaphore>,
    /// By service: for rounds at once.
    rounds: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
    calls: Arc<Calls>,
}

/// Whom they are asked of and written to.
struct Desk {
    backend: Arc<dyn Backend>,
    pool: Arc<Pool>,
    runtime: Handle,
}

impl Functions {
    pub fn new(meter: &Meter) -> Arc<Self> {
        Arc::new(Self {
            desk: OnceLock::new(),
            queues: Mutex::default(),
            room: Arc::new(Semaphore::new(CALLS_BYTES_ALL_MAX)),
            rounds: Mutex::default(),
            calls: Arc::clone(&meter.calls),
        })
    }

    /// From now on calls are carried out, on the runtime that this is called in.
    pub fn open(&self, backend: Arc<dyn Backend>, dial: Arc<dyn Dial>, meter: &Meter) {
        let (turnstiles, demands) = (Arc::clone(&meter.turnstiles), Arc::clone(&meter.demands));
        let pool = Pool::start(backend.watch(), dial, turnstiles, demands);
        let desk = Desk { backend, pool, runtime: Handle::current() };
        assert!(self.desk.set(desk).is_ok(), "it opens once");
    }

    /// Carries out a call, with others of the same key. Who no longer waits for the end may find it done or not.
    pub async fn apply(self: &Arc<Self>, call: Call) -> End {
        let (fate, mut answer, deadline) = match self.enter(call) {
            Ok(entered) => entered,
            Err(refused) => return Outcome::Refused(refused),
        };
        let stopped = || Outcome::Unknown(Unknown { why: "the node stopped before it answered".into() });
        if let Ok(end) = timeout_at(deadline, &mut answer).await {
            return end.unwrap_or_else(|_| stopped());
        }
        if fate.give_up() {
            return Outcome::Refused(Refused::busy("it could not be done in time", RETRY_AFTER));
        }
        let late = || Outcome::Unknown(Unknown { why: "it was being written when its time was over".into() });
        timeout(WRITE_GRACE, answer).await.map_or_else(|_| late(), |end| end.unwrap_or_else(|_| stopped()))
    }

    fn enter(self: &Arc<Self>, call: Call) -> Result<(Arc<Fate>, oneshot::Receiver<End>, Instant), Refused> {
        let desk = self.desk.get().ok_or_else(|| Refused::busy("this node has just started", RETRY_AFTER))?;
        if !(1..=NAME_BYTES_MAX).contains(&call.function.len()) {
            return Err(Refused::wrong(format!("the name of a function has 1 to {NAME_BYTES_MAX} bytes")));
        }
        if !(1..=KEY_BYTES_MAX).contains(&call.key.len()) {
            return Err(Refused::wrong(format!("a key has 1 to {KEY_BYTES_MAX} bytes, this one {}", call.key.len())));
        }
        let args = call.args.iter().map(|arg| arg.len() + ARG_BYTES);
        let bytes = call.key.len() + call.function.len() + args.sum::<usize>();
        if bytes > CALL_BYTES_MAX {
            let most = CALL_BYTES_MAX >> 20;
            return Err(Refused::wrong(format!("a function of a service takes arguments of {most} MiB at most")));
        }
        let busy = || Refused::busy("too many calls of functions wait at this node", RETRY_AFTER);
        let counted = u32::try_from(bytes.max(CALL_BYTES_COUNTED_MIN)).expect("a call is below 4 GiB");
        let room = Arc::clone(&self.room).try_acquire_many_owned(counted).map_err(|_| busy())?;
        let deadline = Instant::now() + call.left.map_or(BUDGET, |left| left.min(BUDGET)).into();
        let (tell, answer) = oneshot::channel();
        let Call { namespace, service, key, function, args, class, left: _, once } = call;
        let once = once.map(|id| Once::of_call(id, &function, &args));
        let id = queue::Id { namespace, service, key };
        let fate = Arc::new(Fate::default());
        let waiting =
            Waiting { function, args, class, bytes, deadline, once, fate: Arc::clone(&fate), tell, _room: room };
        let is_first = self
            .queues()
            .enter(&id, waiting)
            .map_err(|_| Refused::busy("too many calls of functions wait for this key at this node", RETRY_AFTER))?;
        self.calls.asked();
        if is_first {
            desk.runtime.spawn(rounds::run(Arc::clone(self), id));
        }
        Ok((fate, answer, deadline))
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For rounds with this service's clones: a slow one does not hold up the others.
    fn rounds_of(&self, service: &Arc<str>) -> Arc<Semaphore> {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = rounds.get(service) {
            return Arc::clone(known);
        }
        rounds.retain(|_, known| Arc::strong_count(known) > 1);
        let new = Arc::new(Semaphore::new(ROUNDS_MAX));
        rounds.insert(Arc::clone(service), Arc::clone(&new));
        new
    }
}
