//! The gate between connections and the node: it keeps the door quick when more comes than the node can do. What comes
//! passes a stage ([`flow::Stage`], one per class), which starts some operations in each turn of the thread, only so many that
//! answers still come soon, and holds the rest in order. While what is held has to wait for too long, new operations are
//! refused before anything else is done for them (SSM 3.5: the stub says no at once); but a connection that itself has
//! sent much of what is held just waits, and one that has nothing under way is let in before it. What matters less is
//! refused first: places are kept free for what matters more, as long as such comes. So whoever is let in is served in good
//! time, and whoever is not hears so within a turn, instead of both waiting unread in sockets.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use base::{Because, Outcome, Priority, Refused, Span, Time};
use flow::stage::{End, Stage};
use node::{Answer, Ask, View};
use state::Class;
use state::linear::functions::changes::may_wait;
use state::linear::limits::WATCH_HOLD;
use state::session::limits::RETRY_AFTER;
use tokio::sync::{Notify, oneshot};

use super::limits::{CAME_WITHIN, CROWD, LINEAR_BUDGET, MOSTLY, OP_BUDGET};
use super::{Backend, offers};
use crate::meter::Stages;

pub struct Gate {
    backend: Rc<dyn Backend>,
    /// False only in the experiment that shows what it is good for.
    sheds: bool,
    began: Instant,
    lanes: [RefCell<Lane>; Class::ALL.len()],
    /// When this turn began, while something is held. What is read in it came since the turn before: a thread that was
    /// away for long (others use its processor) has not just now been asked.
    turn_began: Cell<Option<Time>>,
    /// A turn has begun whose end `run` has not been told of.
    is_in_turn: Cell<bool>,
    wake: Notify,
    /// Connections with something under way.
    busy: Cell<usize>,
}

/// Operations of one class.
struct Lane {
    stage: Stage<Held>,
    /// When each was started; `NEVER` while it is held. A ticket is an index here.
    started: Vec<Time>,
    free: Vec<u32>,
    /// When one of each priority last came.
    came: [Time; PRIORITIES],
}

const PRIORITIES: usize = Priority::HIGHEST.0 as usize + 1;

struct Held {
    ticket: u32,
    ask: Ask,
    answer: oneshot::Sender<Answer>,
}

/// A question on its way: a future of its answer. An error: the node has stopped.
pub struct Waiting {
    answer: oneshot::Receiver<Answer>,
    gate: Rc<Gate>,
    class: Class,
    /// None once it has ended.
    ticket: Option<u32>,
}

/// What becomes of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// It may be asked.
    Free,
    /// When some of its connection's have ended.
    Waits,
    /// It would have to wait too long.
    Refused,
}

/// Whether one connection has something under way: the gate counts those that have.
pub struct Busy {
    gate: Rc<Gate>,
    is: bool,
}

impl Busy {
    pub fn new(gate: &Rc<Gate>) -> Self {
        Self { gate: Rc::clone(gate), is: false }
    }

    pub fn set(&mut self, is: bool) {
        if std::mem::replace(&mut self.is, is) != is {
            let busy = &self.gate.busy;
            busy.set(if is { busy.get() + 1 } else { busy.get() - 1 });
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.set(false);
    }
}

impl Gate {
    pub fn new(backend: Rc<dyn Backend>, sheds: bool) -> Self {
        let lane = |mut shape: flow::stage::Shape| {
            if !sheds {
                (shape.limit.first, shape.limit.min) = (shape.limit.max, shape.limit.max);
            }
            let came = [Time::ZERO; PRIORITIES];
            RefCell::new(Lane { stage: Stage::new(shape), started: Vec::new(), free: Vec::new(), came })
        };
        Self {
            backend,
            sheds,
            began: Instant::now(),
            lanes: std::array::from_fn(|class| lane(offers::of(Class::ALL[class]).lane.shape)),
            turn_began: Cell::new(None),
            is_in_turn: Cell::new(false),
            wake: Notify::new(),
            busy: Cell::new(0),
        }
    }

    pub fn view(&self) -> Arc<View> {
        self.backend.view()
    }

    /// What all nodes understand alike.
    pub fn agreed(&self) -> u32 {
        self.backend.agreed()
    }

    fn now(&self) -> Time {
        Time(self.began.elapsed().as_micros() as u64)
    }

    fn lane(&self, class: Class) -> &RefCell<Lane> {
        &self.lanes[class as usize]
    }

    /// What becomes of one more operation of a connection that has so many under way.
    pub fn entry(&self, class: Class, priority: Priority, of_one: usize) -> Entry {
        let lane = self.lane(class).borrow();
        let stage = &lane.stage;
        // Mostly there is more than enough, and nobody has to look at a clock.
        let has_place =
            || stage.has_place_below(PRIORITIES as u32) || stage.has_place_below(lane.higher(self.now(), priority));
        let is_crowded_by_few = || stage.waiting() >= CROWD * self.busy.get();
        match of_one {
            _ if !self.sheds || has_place() => Entry::Free,
            // A few long pipelines are what is in the way of somebody who wants one thing.
            0 if is_crowded_by_few() => Entry::Free,
            // A client whose own pipeline is what others wait for is not refused: it waits, too.
            1.. if of_one * MOSTLY >= stage.waiting() => Entry::Waits,
            _ => Entry::Refused,
        }
    }

    /// One was refused for that.
    pub fn refused(&self, class: Class, priority: Priority) {
        let mut lane = self.lane(class).borrow_mut();
        lane.stage.refused();
        lane.came[usize::from(priority.0)] = self.now();
    }

    /// Does it answer at once? So it is inside of a script.
    pub fn is_at_once(&self) -> bool {
        self.backend.is_at_once()
    }

    /// Starts a question, now or when those before it have been.
    pub fn ask(self: &Rc<Self>, ask: Ask) -> Waiting {
        let class = class(&ask);
        let (answer, waiting) = oneshot::channel();
        if self.backend.is_at_once() {
            self.backend.ask(ask, OP_BUDGET, answer);
            return Waiting { answer: waiting, gate: Rc::clone(self), class, ticket: None };
        }
        if let Ask::Linear(op) = &ask
            && may_wait(&op.steps)
        {
            // Its leader may let it wait for something to happen: that is no work, and says nothing of load.
            self.backend.ask(ask, WATCH_HOLD + LINEAR_BUDGET, answer);
            return Waiting { answer: waiting, gate: Rc::clone(self), class, ticket: None };
        }
        let now = self.now();
        if !self.is_in_turn.replace(true) {
            self.wake.notify_one();
        }
        let mut lane = self.lane(class).borrow_mut();
        lane.came[usize::from(priority(&ask).0)] = now;
        let ticket = lane.ticket();
        let since = self.turn_began.get().unwrap_or(now);
        let entered = lane.stage.enter(now, since, Held { ticket, ask, answer });
        if entered.is_some() {
            lane.started[ticket as usize] = now;
        }
        drop(lane);
        if let Some(Held { ask, answer, .. }) = entered {
            self.backend.ask(ask, budget(class), answer);
        }
        Waiting { answer: waiting, gate: Rc::clone(self), class, ticket: Some(ticket) }
    }

    /// Asks at once what is no operation on values: it takes the node little, and no place here.
    pub fn ask_aside(&self, ask: Ask) -> oneshot::Receiver<Answer> {
        self.ask_for(ask, OP_BUDGET)
    }

    /// The same, of what may take so long.
    pub fn ask_for(&self, ask: Ask, budget: Span) -> oneshot::Receiver<Answer> {
        let (answer, waiting) = oneshot::channel();
        self.backend.ask(ask, budget, answer);
        waiting
    }

    /// Starts what is held, some in each turn of the thread. Never ends.
    pub async fn run(self: Rc<Self>) {
        loop {
            self.wake.notified().await;
            // A turn later.
            tokio::task::yield_now().await;
            while self.start_some() {
                self.turn_began.set(Some(self.now()));
                tokio::task::yield_now().await;
            }
            self.turn_began.set(None);
            self.is_in_turn.set(false);
        }
    }

    /// Shows what its stages do, once a second. Never ends.
    pub async fn show(self: Rc<Self>, stages: Arc<Stages>) {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            for (class, name) in offers::lanes() {
                stages.show(name, self.lane(class).borrow_mut().stage.show());
            }
        }
    }

    /// True if more is held that a turn later could be started.
    fn start_some(&self) -> bool {
        let now = self.now();
        let mut more = false;
        for (class, _) in offers::lanes() {
            self.lane(class).borrow_mut().stage.new_batch(now);
            while self.start_next(class, now) {}
            more |= self.lane(class).borrow().stage.wants_batch();
        }
        more
    }

    /// False if no more is to be started in this turn.
    fn start_next(&self, class: Class, now: Time) -> bool {
        let mut lane = self.lane(class).borrow_mut();
        let Some((since, Held { ticket, ask, answer })) = lane.stage.next(now) else { return false };
        let left = Span(budget(class).0.saturating_sub(now.since(since).0));
        if answer.is_closed() || left == Span::ZERO {
            lane.stage.ended(now, now, End::Gone);
        }
        if answer.is_closed() {
            // Nobody waits for it any more.
            return true;
        }
        if left == Span::ZERO {
            // Past its deadline, so it is not executed (state.md, rule 2).
            let refused = Refused::busy("this node was too late to begin it", RETRY_AFTER);
            let told = ask.refused(refused.clone());
            let _ = answer.send(told.unwrap_or(Answer::Session(Outcome::Refused(refused))));
            return true;
        }
        lane.started[ticket as usize] = now;
        drop(lane);
        self.backend.ask(ask, left, answer);
        true
    }

    fn ended(&self, class: Class, ticket: u32, end: End) {
        let mut lane = self.lane(class).borrow_mut();
        let started = std::mem::replace(&mut lane.started[ticket as usize], Time::NEVER);
        lane.free.push(ticket);
        if started == Time::NEVER {
            return;
        }
        lane.stage.ended(self.now(), started, end);
        if lane.stage.wants_batch() && !self.is_in_turn.replace(true) {
            self.wake.notify_one();
        }
    }
}

impl Lane {
    /// How many priorities above this one came a moment ago.
    fn higher(&self, now: Time, priority: Priority) -> u32 {
        let above = self.came.iter().skip(usize::from(priority.0) + 1);
        above.filter(|came| now.since(**came) < CAME_WITHIN && **came > Time::ZERO).count() as u32
    }

    fn ticket(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.started.push(Time::NEVER);
            u32::try_from(self.started.len() - 1).expect("memory ends before four billion operations wait")
        })
    }
}

impl Future for Waiting {
    type Output = Result<Answer, oneshot::error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        if let Some(ticket) = self.ticket.take() {
            self.gate.ended(self.class, ticket, answer.as_ref().map_or(End::Gone, end_of));
        }
        Poll::Ready(answer)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.gate.ended(self.class, ticket, End::Gone);
        }
    }
}

/// What an answer says of load.
fn end_of(answer: &Answer) -> End {
    fn of<T>(outcome: &Outcome<T>) -> End {
        match outcome {
            Outcome::Done(_) => End::Done,
            Outcome::Refused(refused) if refused.retry_after.is_none() => End::Done,
            // One namespace has had its rate: of the others' load that says nothing.
            Outcome::Refused(refused) if refused.because == Because::Rate => End::Done,
            Outcome::Refused(_) | Outcome::Unknown(_) => End::Overload,
        }
    }
    match answer {
        Answer::Session(outcome) => of(outcome),
        Answer::Linear(outcome) => of(outcome),
        Answer::Soft(outcome) => of(outcome),
        _ => End::Gone,
    }
}

fn priority(ask: &Ask) -> Priority {
    match ask {
        Ask::Session(op) => op.priority,
        Ask::Linear(op) => op.priority,
        Ask::Cache(op) => op.priority,
        Ask::Soft(op) => op.priority,
        _ => Priority::NORMAL,
    }
}

/// Whose lane an operation takes. What is none of a class goes with those of class `session`.
fn class(ask: &Ask) -> Class {
    ask.class().filter(|class| offers::of(*class).lane.name.is_some()).unwrap_or(Class::Session)
}

/// How long an operation may take.
fn budget(class: Class) -> Span {
    offers::of(class).lane.budget
}

/// What a command is told that would have to wait too long.
pub const OVERLOADED: &str = "BUSY overloaded: this node takes no more, retry in 100 ms";

#[cfg(test)]
mod tests {
    use super::super::limits::{HELD_MAX, SESSION_STAGE};
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
    fn asked(count: usize, sheds: bool) -> (Rc<Mute>, Rc<Gate>, Vec<Waiting>) {
        let node = Rc::new(Mute::default());
        let gate = Rc::new(Gate::new(node.clone(), sheds));
        let waiting = (0..count).map(|n| gate.ask(get(n))).collect();
        (node, gate, waiting)
    }

    const TURN: usize = SESSION_STAGE.batch as usize;

    /// What is asked now came so long ago.
    fn ask_late(gate: &Rc<Gate>, ago: Span, count: usize) -> Vec<Waiting> {
        gate.turn_began.set(Some(gate.now() - ago));
        (0..count).map(|n| gate.ask(get(n))).collect()
    }

    /// A gate that has been there for longer than any deadline.
    fn of_old(mut gate: Rc<Gate>) -> Rc<Gate> {
        let age = Duration::from_secs(10);
        Rc::get_mut(&mut gate).expect("nobody else has it").began =
            Instant::now().checked_sub(age).expect("up for longer");
        gate
    }

    fn quiet(sheds: bool) -> (Rc<Mute>, Rc<Gate>) {
        let (node, gate, _) = asked(0, sheds);
        (node, of_old(gate))
    }

    #[test]
    fn a_turn_starts_so_much_and_the_next_ones_the_rest_in_order() {
        let (node, gate, _waiting) = asked(2 * TURN + 1, true);
        let started = || node.asked.borrow().len();
        assert_eq!(started(), TURN);
        assert!(gate.start_some());
        assert_eq!(started(), 2 * TURN);
        assert!(!gate.start_some());
        let keys: Vec<Bytes> = node.asked.borrow().iter().map(|(key, ..)| key.clone()).collect();
        assert!(keys.iter().enumerate().all(|(n, key)| *key == n.to_string()), "{keys:?}");
    }

    #[test]
    fn new_ones_are_refused_while_those_held_wait_for_too_long_in_their_class_alone() {
        let late = SESSION_STAGE.wait_target + Span::millis(1);
        let over = TURN + SESSION_STAGE.limit.first as usize;
        for (ago, sheds, is_late) in [(Span::ZERO, true, false), (late, true, true), (late, false, false)] {
            let (_, gate) = quiet(sheds);
            let _waiting = ask_late(&gate, ago, over);
            gate.start_some();
            gate.busy.set(over);
            let wanted = if is_late { Entry::Refused } else { Entry::Free };
            assert_eq!(gate.entry(Class::Session, Priority::NORMAL, 0), wanted, "asked {ago:?} ago, sheds: {sheds}");
            assert_eq!(gate.entry(Class::Linear, Priority::NORMAL, 0), Entry::Free);
        }
    }

    #[test]
    fn places_are_kept_free_for_what_matters_more_as_long_as_such_comes() {
        let (_node, gate) = quiet(true);
        let _waiting: Vec<Waiting> = (0..TURN + HELD_MAX / 2).map(|n| gate.ask(get(n))).collect();
        gate.busy.set(HELD_MAX);
        let entry = |priority| gate.entry(Class::Session, Priority(priority), 0);
        let gate_of = |priority| (entry(priority - 1), entry(priority), entry(priority + 1));
        let normal = Priority::NORMAL.0;
        assert_eq!(gate_of(normal), (Entry::Refused, Entry::Free, Entry::Free));
        gate.refused(Class::Session, Priority(normal + 1));
        assert_eq!(gate_of(normal), (Entry::Refused, Entry::Refused, Entry::Free));
        gate.lane(Class::Session).borrow_mut().came = [Time(gate.now().0 - CAME_WITHIN.0); PRIORITIES];
        assert_eq!(entry(Priority::LOWEST.0), Entry::Free, "nobody else comes any more");
    }

    #[test]
    fn no_more_are_started_than_may_be_under_way_until_some_have_ended() {
        let most = SESSION_STAGE.limit.first as usize;
        let (node, gate, mut waiting) = asked(most + 2, true);
        while gate.start_some() {}
        assert_eq!(node.asked.borrow().len(), most);
        // One is answered and taken, one nobody waits for any more.
        let (.., answer) = node.asked.borrow_mut().remove(0);
        answer.send(Answer::Session(Outcome::Done(state::session::Reply::Absent))).expect("it is waited for");
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(&mut waiting[0]).poll(&mut cx).is_ready());
        drop(waiting.remove(1));
        gate.start_some();
        assert_eq!(node.asked.borrow().len(), most - 1 + 2);
    }

    #[test]
    fn one_long_pipeline_is_told_from_many_clients() {
        let (_, gate) = quiet(true);
        let late = SESSION_STAGE.wait_target + Span::millis(1);
        let _waiting = ask_late(&gate, late, TURN + SESSION_STAGE.limit.first as usize);
        gate.start_some();
        let held = gate.lane(Class::Session).borrow().stage.waiting();
        let entry = |of_one| gate.entry(Class::Session, Priority::NORMAL, of_one);
        let (mut one, mut others) = (Busy::new(&gate), Vec::new());
        one.set(true);
        assert_eq!(entry(held), Entry::Waits);
        assert_eq!(entry(held.div_ceil(MOSTLY)), Entry::Waits);
        assert_eq!(entry(held / MOSTLY - 1), Entry::Refused);
        assert_eq!(entry(0), Entry::Free, "it is not his crowd");
        for _ in 0..held / CROWD {
            let mut other = Busy::new(&gate);
            other.set(true);
            others.push(other);
        }
        assert_eq!(entry(0), Entry::Refused, "now it is everybody's");
        drop(others);
        assert_eq!(entry(0), Entry::Free);
    }

    #[test]
    fn what_was_held_has_less_time_left_or_none() {
        let (node, gate) = quiet(true);
        let held = Span::millis(20);
        let mut waiting = ask_late(&gate, held, TURN + 2);
        // Its client has gone.
        drop(waiting.pop());
        gate.start_some();
        let budget = node.asked.borrow()[TURN].1;
        assert!(budget <= Span(OP_BUDGET.0 - held.0) && budget > Span::ZERO, "{budget:?}");
        assert_eq!(node.asked.borrow().len(), TURN + 1);
        let (node, gate) = quiet(true);
        let mut waiting = ask_late(&gate, OP_BUDGET, TURN + 1);
        gate.start_some();
        assert_eq!(node.asked.borrow().len(), TURN);
        let told = waiting.pop().map(|mut waiting| waiting.answer.try_recv());
        assert!(
            matches!(told, Some(Ok(Answer::Session(Outcome::Refused(_))))),
            "it hears that it was not done: {told:?}"
        );
    }
}
