//! The gate between connections and the node: it keeps the door quick when more comes than the node can do. In each turn
//! of the thread it starts some operations and holds the rest in order; while the oldest has been held for too long, new
//! ones are refused before anything else is done for them (SSM 3.5: the stub says no at once); but a connection that
//! itself has sent much of what is held just waits. So whoever is let in is
//! served in good time, and whoever is not hears so within a turn, instead of both waiting unread in sockets.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use base::{Outcome, Refused, Span};
use node::{Answer, Ask, View};
use state::linear::functions::changes::may_wait;
use state::linear::limits::WATCH_HOLD;
use state::session::limits::RETRY_AFTER;
use tokio::sync::{Notify, oneshot};

use super::Backend;
use super::limits::{HELD_MAX, HELD_TIME_MAX, LINEAR_BUDGET, MOSTLY, OP_BUDGET, STARTED_PER_TURN};

pub struct Gate {
    backend: Rc<dyn Backend>,
    /// False only in the experiment that shows what it is good for.
    sheds: bool,
    held: RefCell<VecDeque<Held>>,
    /// Operations started in this turn of the thread.
    started: Cell<usize>,
    /// When this turn began, while something is held. What is read in it came since the turn before: a thread that was
    /// away for long (others use its processor) has not just now been asked.
    turn_began: Cell<Option<Instant>>,
    wake: Notify,
}

struct Held {
    since: Instant,
    ask: Ask,
    answer: oneshot::Sender<Answer>,
}

impl Gate {
    pub fn new(backend: Rc<dyn Backend>, sheds: bool) -> Self {
        Self {
            backend,
            sheds,
            held: RefCell::default(),
            started: Cell::new(0),
            turn_began: Cell::new(None),
            wake: Notify::new(),
        }
    }

    pub fn view(&self) -> Arc<View> {
        self.backend.view()
    }

    /// Would a new operation have to wait too long?
    pub fn is_late(&self) -> bool {
        let held = self.held.borrow();
        let late = held.front().is_some_and(|first| first.since.elapsed() > HELD_TIME_MAX);
        self.sheds && (late || held.len() >= HELD_MAX)
    }

    /// Are so many operations of one connection a good part of what is held?
    pub fn is_mostly(&self, of_one: usize) -> bool {
        of_one * MOSTLY >= self.held.borrow().len() && of_one > 0
    }

    /// Starts a question, now or when those before it have been.
    pub fn ask(&self, ask: Ask) -> oneshot::Receiver<Answer> {
        let (answer, waiting) = oneshot::channel();
        if self.started.get() == 0 {
            self.wake.notify_one();
        }
        if self.started.get() < STARTED_PER_TURN && self.held.borrow().is_empty() {
            self.started.set(self.started.get() + 1);
            let budget = budget(&ask);
            self.backend.ask(ask, budget, answer);
        } else {
            let since = self.turn_began.get().unwrap_or_else(Instant::now);
            self.held.borrow_mut().push_back(Held { since, ask, answer });
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
                self.turn_began.set(Some(Instant::now()));
                tokio::task::yield_now().await;
            }
            self.turn_began.set(None);
            self.started.set(0);
        }
    }

    /// True if more is held.
    fn start_some(&self) -> bool {
        for _ in 0..STARTED_PER_TURN {
            let Some(Held { since, ask, answer }) = self.held.borrow_mut().pop_front() else { return false };
            let left = Span(budget(&ask).0.saturating_sub(since.elapsed().as_micros() as u64));
            if answer.is_closed() {
                // Nobody waits for it any more.
                continue;
            }
            if left == Span::ZERO {
                // Past its deadline, so it is not executed (state.md, rule 2).
                let refused = Refused::busy("this node was too late to begin it", RETRY_AFTER);
                let _ = answer.send(match ask {
                    Ask::Linear(_) => Answer::Linear(Outcome::Refused(refused)),
                    _ => Answer::Session(Outcome::Refused(refused)),
                });
                continue;
            }
            self.backend.ask(ask, left, answer);
        }
        !self.held.borrow().is_empty()
    }
}

/// How long an operation may take.
fn budget(ask: &Ask) -> Span {
    match ask {
        // Its leader may let it wait.
        Ask::Linear(op) if may_wait(&op.steps) => WATCH_HOLD + LINEAR_BUDGET,
        Ask::Linear(_) => LINEAR_BUDGET,
        _ => OP_BUDGET,
    }
}

/// What a command is told that would have to wait too long.
pub const OVERLOADED: &str = "BUSY overloaded: this node takes no more, retry in 100 ms";

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
        assert!(!gate.is_late(), "a full turn is no overload");
        hold_for(&gate, HELD_TIME_MAX);
        assert!(gate.is_late());
        gate.start_some();
        assert!(!gate.is_late());
        let (_, gate, _waiting) = asked(STARTED_PER_TURN + HELD_MAX, true);
        assert!(gate.is_late(), "there is an end to what is held");
        let (_, gate, _waiting) = asked(STARTED_PER_TURN + 1, false);
        hold_for(&gate, HELD_TIME_MAX);
        assert!(!gate.is_late(), "the experiment without protection");
    }

    #[test]
    fn one_long_pipeline_is_told_from_many_clients() {
        let (_, gate, _waiting) = asked(STARTED_PER_TURN + 100, true);
        assert!(gate.is_mostly(100) && gate.is_mostly(25));
        assert!(!gate.is_mostly(24) && !gate.is_mostly(0));
    }

    #[test]
    fn what_is_read_in_a_turn_came_before_it() {
        let (_, gate, _waiting) = asked(STARTED_PER_TURN + 1, true);
        let away = 2 * HELD_TIME_MAX;
        gate.turn_began.set(Instant::now().checked_sub(away));
        let _late = gate.ask(get(0));
        assert!(gate.held.borrow().back().is_some_and(|held| held.since.elapsed() >= away));
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
        assert!(
            matches!(told, Some(Ok(Answer::Session(Outcome::Refused(_))))),
            "it hears that it was not done: {told:?}"
        );
    }
}
