//! The gate between connections and the node: it keeps the door quick when more comes than the node can do. In each turn
//! of the thread it starts some operations and holds the rest in order; while the oldest has been held for too long, new
//! ones are refused before anything else is done for them (SSM 3.5: the stub says no at once). So whoever is let in is
//! served in good time, and whoever is not hears so within a turn, instead of both waiting unread in sockets.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use base::{Outcome, Refused, Span};
use node::{Answer, Ask, View};
use state::session::limits::RETRY_AFTER;
use tokio::sync::{Notify, oneshot};

use super::Backend;
use super::encode::Reply;
use super::limits::{HELD_MAX, HELD_TIME_MAX, OP_BUDGET, STARTED_PER_TURN};

pub struct Gate {
    backend: Rc<dyn Backend>,
    /// False only in the experiment that shows what it is good for.
    sheds: bool,
    held: RefCell<VecDeque<Held>>,
    /// Operations started in this turn of the thread.
    started: Cell<usize>,
    wake: Notify,
}

struct Held {
    since: Instant,
    ask: Ask,
    answer: oneshot::Sender<Answer>,
}

impl Gate {
    pub fn new(backend: Rc<dyn Backend>, sheds: bool) -> Self {
        Self { backend, sheds, held: RefCell::default(), started: Cell::new(0), wake: Notify::new() }
    }

    pub fn view(&self) -> Arc<View> {
        self.backend.view()
    }

    /// What a command is told that would have to wait too long.
    pub fn refusal(&self) -> Option<Reply> {
        let held = self.held.borrow();
        let late = held.front().is_some_and(|first| first.since.elapsed() > HELD_TIME_MAX);
        (self.sheds && (late || held.len() >= HELD_MAX)).then(|| Reply::error(OVERLOADED))
    }

    /// Starts a question, now or when those before it have been.
    pub fn ask(&self, ask: Ask) -> oneshot::Receiver<Answer> {
        let (answer, waiting) = oneshot::channel();
        if self.started.get() == 0 {
            self.wake.notify_one();
        }
        if self.started.get() < STARTED_PER_TURN && self.held.borrow().is_empty() {
            self.started.set(self.started.get() + 1);
            self.backend.ask(ask, OP_BUDGET, answer);
        } else {
            self.held.borrow_mut().push_back(Held { since: Instant::now(), ask, answer });
        }
        waiting
    }

    /// Starts what is held, some in each turn of the thread. Never ends.
    pub async fn run(self: Rc<Self>) {
        loop {
            self.wake.notified().await;
            // A turn later.
            tokio::task::yield_now().await;
            self.started.set(0);
            while self.start_some() {
                tokio::task::yield_now().await;
            }
            self.started.set(0);
        }
    }

    /// True if more is held.
    fn start_some(&self) -> bool {
        for _ in 0..STARTED_PER_TURN {
            let Some(Held { since, ask, answer }) = self.held.borrow_mut().pop_front() else { return false };
            let left = Span(OP_BUDGET.0.saturating_sub(since.elapsed().as_micros() as u64));
            if answer.is_closed() {
                // Nobody waits for it any more.
                continue;
            }
            if left == Span::ZERO {
                // Past its deadline, so it is not executed (state.md, rule 2).
                let refused = Refused::busy("this node was too late to begin it", RETRY_AFTER);
                let _ = answer.send(Answer::Session(Outcome::Refused(refused)));
                continue;
            }
            self.backend.ask(ask, left, answer);
        }
        !self.held.borrow().is_empty()
    }
}

const OVERLOADED: &str = "BUSY overloaded: this node takes no more, retry in 100 ms";

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use state::session::{Action, Op};

    use super::*;

    /// Notes what it is asked and answers nothing.
    #[derive(Default)]
    struct Mute {
        asked: RefCell<Vec<(Bytes, Span, oneshot::Sender<Answer>)>>,
    }

    impl Backend for Mute {
        fn ask(&self, ask: Ask, budget: Span, answer: oneshot::Sender<Answer>) {
            let Ask::Session(op) = ask else { panic!("this door asks for values only") };
            self.asked.borrow_mut().push((op.key, budget, answer));
        }

        fn view(&self) -> Arc<View> {
            Arc::default()
        }
    }

    fn get(n: usize) -> Ask {
        Ask::Session(Op::keyed("carts".into(), Bytes::from(n.to_string()), Action::Get))
    }

    /// A gate that was asked for so much in one turn.
    fn asked(count: usize, sheds: bool) -> (Rc<Mute>, Gate, Vec<oneshot::Receiver<Answer>>) {
        let node = Rc::new(Mute::default());
        let gate = Gate::new(node.clone(), sheds);
        let waiting = (0..count).map(|n| gate.ask(get(n))).collect();
        (node, gate, waiting)
    }

    fn hold_for(gate: &Gate, time: std::time::Duration) {
        for held in gate.held.borrow_mut().iter_mut() {
            held.since = held.since.checked_sub(time).expect("this machine runs for longer than that");
        }
    }

    #[test]
    fn a_turn_starts_so_much_and_the_next_ones_the_rest_in_order() {
        let (node, gate, _waiting) = asked(2 * STARTED_PER_TURN + 1, true);
        let started = || node.asked.borrow().len();
        assert_eq!(started(), STARTED_PER_TURN);
        assert!(gate.start_some());
        assert_eq!(started(), 2 * STARTED_PER_TURN);
        assert!(!gate.start_some());
        let keys: Vec<Bytes> = node.asked.borrow().iter().map(|(key, ..)| key.clone()).collect();
        assert!(keys.iter().enumerate().all(|(n, key)| *key == n.to_string()), "{keys:?}");
    }

    #[test]
    fn new_ones_are_refused_while_the_oldest_is_held_for_too_long() {
        let (_, gate, _waiting) = asked(STARTED_PER_TURN + 1, true);
        assert_eq!(gate.refusal(), None, "a full turn is no overload");
        hold_for(&gate, HELD_TIME_MAX);
        assert_eq!(gate.refusal(), Some(Reply::error(OVERLOADED)));
        gate.start_some();
        assert_eq!(gate.refusal(), None);
        let (_, gate, _waiting) = asked(STARTED_PER_TURN + HELD_MAX, true);
        assert!(gate.refusal().is_some(), "there is an end to what is held");
        let (_, gate, _waiting) = asked(STARTED_PER_TURN + 1, false);
        hold_for(&gate, HELD_TIME_MAX);
        assert_eq!(gate.refusal(), None, "the experiment without protection");
    }

    #[test]
    fn what_was_held_has_less_time_left_or_none() {
        let (node, gate, mut waiting) = asked(STARTED_PER_TURN + 2, true);
        hold_for(&gate, HELD_TIME_MAX);
        // Its client has gone.
        drop(waiting.pop());
        gate.start_some();
        let budget = node.asked.borrow()[STARTED_PER_TURN].1;
        assert!(budget < OP_BUDGET && budget > Span::ZERO, "{budget:?}");
        assert_eq!(node.asked.borrow().len(), STARTED_PER_TURN + 1);
        let (node, gate, mut waiting) = asked(STARTED_PER_TURN + 1, true);
        hold_for(&gate, std::time::Duration::from_micros(OP_BUDGET.0));
        gate.start_some();
        assert_eq!(node.asked.borrow().len(), STARTED_PER_TURN);
        let told = waiting.pop().map(|mut answer| answer.try_recv());
        assert!(matches!(told, Some(Ok(Answer::Session(Outcome::Refused(_))))), "it hears that it was not done: {told:?}");
    }
}
