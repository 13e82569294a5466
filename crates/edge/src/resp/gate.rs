//! The gate between connections and the node: it keeps the door quick when more comes than the node can do. In each turn
//! of the thread it starts some operations and holds the rest in order; while the oldest has been held for too long, new
//! ones are refused before anything else is done for them (SSM 3.5: the stub says no at once). So whoever is let in is
//! served in good time, and whoever is not hears so within a turn, instead of both waiting unread in sockets.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use base::Span;
use node::{Answer, Ask, View};
use std::sync::Arc;
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
            let waited = Span::micros(since.elapsed().as_micros() as u64);
            // Nobody waits for the answer any more, or nobody could get one in time: not executed (state.md, rule 2).
            if answer.is_closed() || waited >= OP_BUDGET {
                continue;
            }
            self.backend.ask(ask, Span(OP_BUDGET.0 - waited.0), answer);
        }
        !self.held.borrow().is_empty()
    }
}

const OVERLOADED: &str = "BUSY overloaded: this node takes no more, retry in 100 ms";
