//! Who waits for which key. All that wait for one are taken together, in their order; the first to come starts the key's rounds,
//! and these end when nobody waits any more. No waiting happens here.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use bytes::Bytes;
use state::linear::once::Once;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::End;
use super::limits::*;

/// What calls are done together.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Id {
    pub namespace: Arc<str>,
    pub service: Arc<str>,
    pub key: Bytes,
}

/// A call that waits for its end.
pub struct Waiting {
    pub function: String,
    pub args: Vec<Bytes>,
    pub class: u8,
    pub bytes: usize,
    pub deadline: Instant,
    pub once: Option<Once>,
    pub fate: Arc<Fate>,
    pub tell: oneshot::Sender<End>,
    pub _room: OwnedSemaphorePermit,
}

/// How far a call has come. Who gives it up before it is written knows that it did not happen.
#[derive(Default, Debug)]
pub struct Fate(AtomicU8);

const OPEN: u8 = 0;
const GIVEN_UP: u8 = 1;
const WRITTEN: u8 = 2;

impl Fate {
    /// False if it is being written: it may happen.
    pub fn give_up(&self) -> bool {
        self.0.compare_exchange(OPEN, GIVEN_UP, SeqCst, SeqCst).is_ok()
    }

    /// It will be written now. False if it was given up: then it must not be.
    fn claim(&self) -> bool {
        self.0.compare_exchange(OPEN, WRITTEN, SeqCst, SeqCst).is_ok()
    }

    /// It was not written after all.
    fn release(&self) {
        let _ = self.0.compare_exchange(WRITTEN, OPEN, SeqCst, SeqCst);
    }
}

impl Waiting {
    fn is_wanted(&self) -> bool {
        self.fate.0.load(SeqCst) != GIVEN_UP && !self.tell.is_closed()
    }
}

/// Leaves out those whom nobody waits for any more.
pub fn retain_wanted(batch: &mut Vec<Waiting>) {
    batch.retain(Waiting::is_wanted);
}

/// All of them will be written now, or none, as some were given up: those are left out.
pub fn claim(batch: &mut Vec<Waiting>) -> bool {
    let claimed: Vec<bool> = batch.iter().map(|call| call.fate.claim()).collect();
    if claimed.iter().all(|claimed| *claimed) {
        return true;
    }
    release(batch);
    retain_wanted(batch);
    false
}

/// Nothing of it was written.
pub fn release(batch: &[Waiting]) {
    batch.iter().for_each(|call| call.fate.release());
}

/// Too many wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

#[derive(Default)]
pub struct Queues {
    /// Invariant: an entry's rounds are under way.
    of: HashMap<Id, VecDeque<Waiting>>,
}

impl Queues {
    /// One more waits. True if rounds have to be begun for it.
    pub fn enter(&mut self, id: &Id, waiting: Waiting) -> Result<bool, Full> {
        let Some(queue) = self.of.get_mut(id) else {
            self.of.insert(id.clone(), VecDeque::from([waiting]));
            return Ok(true);
        };
        if queue.len() >= WAITING_MAX {
            queue.retain(Waiting::is_wanted);
        }
        if queue.len() >= WAITING_MAX {
            return Err(Full);
        }
        queue.push_back(waiting);
        Ok(false)
    }

    /// Adds all that wait to those of a batch that are still wanted, as far as there is room. False if that makes none: then
    /// the rounds are over.
    pub fn fill(&mut self, id: &Id, batch: &mut Vec<Waiting>) -> bool {
        retain_wanted(batch);
        let mut bytes: usize = batch.iter().map(|call| call.bytes).sum();
        let queue = self.of.entry(id.clone()).or_default();
        while batch.len() < BATCH_CALLS_MAX
            && let Some(next) = queue.front()
            && (batch.is_empty() || bytes + next.bytes <= BATCH_BYTES_MAX)
        {
            bytes += next.bytes;
            batch.extend(queue.pop_front().filter(Waiting::is_wanted));
        }
        if batch.is_empty() {
            self.of.remove(id);
        }
        !batch.is_empty()
    }

    /// The last of a batch are for the next round.
    pub fn put_back(&mut self, id: &Id, tail: Vec<Waiting>) {
        if let Some(queue) = self.of.get_mut(id) {
            tail.into_iter().rev().for_each(|call| queue.push_front(call));
        }
    }

    /// Its rounds have come to a bad end: who waits hears of it by the end of his channel.
    pub fn abandon(&mut self, id: &Id) {
        self.of.remove(id);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    fn id(key: &'static str) -> Id {
        Id { namespace: "bank".into(), service: "teller".into(), key: Bytes::from_static(key.as_bytes()) }
    }

    fn call(name: usize, bytes: usize) -> (Waiting, oneshot::Receiver<End>) {
        let (tell, answer) = oneshot::channel();
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (function, args, deadline, fate) = (name.to_string(), Vec::new(), Instant::now(), Arc::default());
        (Waiting { function, args, class: 5, bytes, deadline, once: None, fate, tell, _room: room }, answer)
    }

    fn names(batch: &[Waiting]) -> Vec<&str> {
        batch.iter().map(|call| call.function.as_str()).collect()
    }

    #[test]
    fn what_a_round_leaves_comes_first_in_the_next_one() {
        let mut queues = Queues::default();
        let answers: Vec<_> = (0..4)
            .map(|n| {
                let (waiting, answer) = call(n, 1);
                queues.enter(&id("k"), waiting).unwrap();
                answer
            })
            .collect();
        let mut batch = Vec::new();
        assert!(queues.fill(&id("k"), &mut batch));
        let (late, _answer) = call(4, 1);
        queues.enter(&id("k"), late).unwrap();
        queues.put_back(&id("k"), batch.split_off(1));
        batch.clear();
        assert!(queues.fill(&id("k"), &mut batch));
        assert_eq!(names(&batch), ["1", "2", "3", "4"]);
        drop(answers);
    }

    #[test]
    fn all_that_wait_for_a_key_are_taken_at_once_and_in_order() {
        let mut queues = Queues::default();
        let enter = |queues: &mut Queues, key, n| {
            let (waiting, answer) = call(n, 1);
            (queues.enter(&id(key), waiting), answer)
        };
        let kept: Vec<_> = (0..5).map(|n| enter(&mut queues, "a", n)).collect();
        let other = enter(&mut queues, "b", 9);
        assert!(kept.iter().enumerate().all(|(n, (first, _))| *first == Ok(n == 0)) && other.0 == Ok(true));
        let mut batch = Vec::new();
        assert!(queues.fill(&id("a"), &mut batch));
        assert_eq!(names(&batch), ["0", "1", "2", "3", "4"]);
        let _more = enter(&mut queues, "a", 5);
        assert!(queues.fill(&id("a"), &mut batch), "a round that is to be done again takes those who came");
        assert_eq!(names(&batch), ["0", "1", "2", "3", "4", "5"]);
        batch.clear();
        assert!(!queues.fill(&id("a"), &mut batch), "it is over");
        assert_eq!(enter(&mut queues, "a", 6).0, Ok(true), "and begins anew");
    }

    #[test]
    fn a_batch_has_its_bounds_and_a_queue_too() {
        let mut queues = Queues::default();
        let mut kept = Vec::new();
        for n in 0..WAITING_MAX {
            let (waiting, answer) = call(n, if n == 0 { BATCH_BYTES_MAX } else { 1 });
            assert!(queues.enter(&id("a"), waiting).is_ok());
            kept.push(answer);
        }
        assert_eq!(queues.enter(&id("a"), call(0, 1).0), Err(Full));
        let mut batch = Vec::new();
        assert!(queues.fill(&id("a"), &mut batch));
        assert_eq!(names(&batch), ["0"], "a large one goes alone");
        batch.clear();
        assert!(queues.fill(&id("a"), &mut batch));
        assert_eq!(batch.len(), BATCH_CALLS_MAX);
        while queues.fill(&id("a"), &mut batch) {
            batch.clear();
        }
        assert!(queues.is_empty());
    }

    #[test]
    fn who_has_gone_makes_room_and_is_not_taken() {
        let mut queues = Queues::default();
        let kept: Vec<_> = (0..WAITING_MAX)
            .filter_map(|n| {
                let (waiting, answer) = call(n, 1);
                queues.enter(&id("a"), waiting).unwrap();
                (n % 2 == 1).then_some(answer)
            })
            .collect();
        let (waiting, _answer) = call(0, 1);
        assert_eq!(queues.enter(&id("a"), waiting), Ok(false));
        let mut batch = Vec::new();
        assert!(queues.fill(&id("a"), &mut batch));
        assert!(names(&batch).iter().all(|name| name.parse::<usize>().unwrap() % 2 == 1), "{kept:?}");
    }

    #[test]
    fn who_gives_up_before_it_is_written_is_not_written_and_who_is_late_does_not_know() {
        let (mut batch, _answers): (Vec<_>, Vec<_>) = (0..3).map(|n| call(n, 1)).unzip();
        let fates: Vec<_> = batch.iter().map(|call| Arc::clone(&call.fate)).collect();
        assert!(fates[1].give_up());
        assert!(!claim(&mut batch), "what was computed has its effect");
        assert_eq!(names(&batch), ["0", "2"]);
        assert!(claim(&mut batch));
        assert!(!fates[0].give_up(), "it may happen");
        release(&batch);
        assert!(fates[0].give_up(), "somebody else was faster: it has not happened");
        assert!(!claim(&mut batch) && names(&batch) == ["2"]);
    }
}
