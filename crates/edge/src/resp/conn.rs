//! One connection. Everything happens in one `poll`, so that a wake-up costs at most one read and one write:
//! take what was answered, start what has come, write, read.
//!
//! All commands that have come are started at once and answered in order. Only commands that touch the same key (one of
//! them writing it) wait for each other, and all wait behind one that waits for an item. Those of class `linear` that came
//! together are one operation (`batch.rs`), and need not wait for each other in it. What a client may have under way,
//! unread or half sent is bounded; past the bounds nothing more is read from it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use state::linear::functions::is_brief;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use super::batch::{Asked, Batches, Kind, joins};
use super::changes::tracking::Reading;
use super::client::Client;
use super::clients::Seat;
use super::commands::{self, Act, Call, Does, Spec};
use super::encode::{Out, Protocol, Reply};
use super::gate::{Busy, Entry, OVERLOADED};
use super::input::Input;
use super::limits::*;
use super::parse::{Command, Parsed, Parser};
use super::slow::SlowLog;
use super::stream::Stream;
use super::subscribers::Hears;
use super::unread::{Stall, Unread};
use super::work::{About, Key, Meets, Touches, Work};
use super::{Node, ops, slices};
use crate::meter::Opened;

/// Serves one client until either side closes.
pub async fn run(stream: Stream, mut client: Client, node: Rc<Node>, _open: Opened) {
    let gone = Arc::clone(&client.gone);
    client.be_stranger(&node.strangers);
    let mut conn = Conn {
        seat: node.clients.enter(&client),
        stream,
        client,
        input: Input::new(Rc::clone(&node)),
        parser: Parser::default(),
        missing: 1,
        parked: None,
        slots: VecDeque::new(),
        busy: Busy::new(&node.gate),
        keys: VecDeque::new(),
        written: 0,
        batches: Batches::new(&node.gate),
        held_bytes: 0,
        wide: 0,
        began: Instant::now(),
        answer_bytes: ANSWER_BYTES_FIRST,
        out: Out::default(),
        unread: Unread::new(Rc::clone(&node)),
        state: State::Open,
        patience: Some(Box::pin(sleep(STRANGER_TIME_MAX))),
        is_new: true,
        grace: None,
        stall: None,
        pause: None,
        node,
    };
    let said_all = {
        let node = Rc::clone(&conn.node);
        let mut told = std::pin::pin!(node.told.notified());
        let mut heard = std::pin::pin!(gone.heard());
        let mut listens = false;
        poll_fn(|cx| {
            if !std::mem::replace(&mut listens, true) {
                // Wakes this task, whose waker stays the same, when the door closes or somebody else is given this place; what is to
                // be known is in `closing` and `gone`.
                let _ = (told.as_mut().poll(cx), heard.as_mut().poll(cx));
            }
            conn.poll(cx)
        })
        .await
    };
    if said_all {
        // Closing with unread bytes would reset the connection, and the client might never read what was said.
        // In memory of its own, which every connection would have to set aside otherwise.
        let most = if conn.client.known.is_some() { COMMAND_BYTES_MAX } else { STRANGER_LINGER_BYTES_MAX };
        Box::pin(linger(conn.stream, most)).await;
    }
}

/// Ends our side, and waits a moment for the client to end its own.
async fn linger(mut stream: Stream, most: usize) {
    let drain = async {
        stream.shutdown().await?;
        let mut sink = [0u8; 16 << 10];
        let mut seen = 0;
        while seen < most {
            match stream.read(&mut sink).await? {
                0 => break,
                n => seen += n,
            }
        }
        io::Result::Ok(())
    };
    // Whatever goes wrong here, the connection is over.
    let _ = tokio::time::timeout(LINGER_TIME_MAX, drain).await;
}

/// After our last word, so much is still read and thrown away, for so long: of a client the rest of a command that was too
/// long, as most read nothing until they have sent it all.
const STRANGER_LINGER_BYTES_MAX: usize = 256 << 10;
const LINGER_TIME_MAX: Duration = Duration::from_secs(1);

struct Conn {
    stream: Stream,
    client: Client,
    /// How others see it.
    seat: Seat,
    node: Rc<Node>,
    input: Input,
    parser: Parser,
    /// At least so many bytes are missing in the buffer's last command.
    missing: usize,
    /// The next command, which waits for earlier ones on its keys.
    parked: Option<Command>,
    /// Commands under way, in order.
    slots: VecDeque<Slot>,
    /// Told of whether there are any.
    busy: Busy,
    /// Keys of all slots, in order.
    keys: VecDeque<Key>,
    /// How many of them are written.
    written: usize,
    /// Those that gather commands, until all that has come is started.
    batches: Batches,
    /// Bytes of the commands of all slots.
    held_bytes: usize,
    /// Slots of which nobody knows how long their answers are.
    wide: usize,
    /// When those were begun that came last.
    began: Instant,
    /// Bytes that an answer may have, going by the last ones: nobody knows before it comes.
    answer_bytes: usize,
    out: Out,
    /// What of `out` counts for the node.
    unread: Unread,
    state: State,
    /// Runs while the client has not said who it is.
    patience: Option<Pin<Box<Sleep>>>,
    /// It has not come to its first command yet.
    is_new: bool,
    /// Runs while it is new and the door closes.
    grace: Option<Pin<Box<Sleep>>>,
    /// Runs while the client has not taken all that is there for it.
    stall: Option<Stall>,
    /// Runs while its next command waits for the end of a pause.
    pause: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing more is read; what is under way is answered.
    Closing,
    /// Likewise, but what comes is read and thrown away: its client will not read what it is told before it has written all.
    GivenUp,
}

/// A command under way.
struct Slot {
    work: Work,
    /// As it was when the command came: HELLO may change it for those after.
    protocol: Protocol,
    began: Instant,
    /// How many of [`Conn::keys`] are its.
    keys: usize,
    /// Its answer is short.
    is_brief: bool,
    /// In so many bytes it came.
    bytes: usize,
    /// Nothing may run beside it.
    alone: bool,
    /// It changes what the client listens to: messages come behind its reply.
    listens: bool,
    /// Nobody wants its answer.
    silent: bool,
    /// What it reads, of which its client will be told when that changes.
    reading: Option<Reading>,
    /// What it is called.
    name: &'static str,
}

impl Conn {
    /// Ready when the connection is over: true if the client has been told all there was to say.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.node.closing.get() && self.is_new {
            self.grace.get_or_insert_with(|| Box::pin(sleep(HEAR_OUT)));
        }
        self.seat.shown.wakes(cx.waker());
        if self.client.hears.as_deref().is_some_and(Hears::is_closed) {
            return Poll::Ready(false);
        }
        if self.client.gone.is() || self.is_out_of_patience(cx) {
            return Poll::Ready(false);
        }
        loop {
            if self.waits_long() && self.stream.has_left() {
                return Poll::Ready(false);
            }
            while self.collect(cx) | self.start(cx) | self.hear(cx) {}
            let was_full = !self.has_room_for_answers();
            if self.write(cx).is_err() {
                return Poll::Ready(false);
            }
            if was_full && self.has_room_for_answers() || self.is_to_be_given_up(cx) || self.may_hear() {
                // What stood still for lack of room may go on.
                continue;
            }
            if self.state != State::Open && self.slots.is_empty() && self.out.is_empty() {
                return Poll::Ready(true);
            }
            if self.state == State::GivenUp && self.pass_over(cx).is_err() {
                return Poll::Ready(false);
            }
            if !self.wants_more() {
                return Poll::Pending;
            }
            match self.read(cx) {
                Poll::Pending => {
                    self.input.rest();
                    if self.node.closing.get() && self.has_answered() {
                        return Poll::Ready(true);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Ok(1..)) if self.read_on(cx).is_ok() => (),
                Poll::Ready(Ok(1..)) => return Poll::Ready(false),
                // It waits for an item, and will not take it.
                Poll::Ready(Ok(0)) if self.waits_long() => return Poll::Ready(false),
                Poll::Ready(Ok(0)) => self.state = State::Closing,
                Poll::Ready(Err(_)) => return Poll::Ready(false),
            }
        }
    }

    /// Nothing that has come is without its answer, and something has come: who has just connected is about to say it.
    fn has_answered(&self) -> bool {
        !self.is_new && self.slots.is_empty() && self.out.is_empty() && self.input.buffer.is_empty()
    }

    fn may_start(&self) -> bool {
        self.has_room() && !self.waits_long()
    }

    fn has_room(&self) -> bool {
        self.slots.len() < IN_FLIGHT_MAX
            && self.held_bytes < IN_FLIGHT_BYTES_MAX
            && self.wide * self.answer_bytes < IN_FLIGHT_BYTES_MAX
            && self.has_room_for_answers()
    }

    /// Of who is given up all that is under way has room: it will end soon.
    fn has_room_for_answers(&self) -> bool {
        self.unread.has_room(self.out.len()) || self.state == State::GivenUp
    }

    fn wants_more(&self) -> bool {
        let listens = if self.waits_long() {
            // Its end must be noticed, whatever stands before and behind.
            self.input.buffer.len() < READ_BYTES_MAX
        } else {
            self.parked.is_none() && self.has_room()
        };
        self.state == State::Open && listens
    }

    /// Nothing begins behind a command that waits for something, as in Redis: so it is the last.
    fn waits_long(&self) -> bool {
        self.slots.back().is_some_and(|slot| slot.work.is_blocked())
    }

    fn is_out_of_patience(&mut self, cx: &mut Context<'_>) -> bool {
        if self.client.known.is_some() {
            self.patience = None;
        } else if self.client.stranger.is_none() {
            // Its token was taken away.
            self.client.be_stranger(&self.node.strangers);
            self.patience = Some(Box::pin(sleep(STRANGER_TIME_MAX)));
        }
        let mut over = |timer: &mut Option<Pin<Box<Sleep>>>| {
            timer.as_mut().is_some_and(|timer| timer.as_mut().poll(cx).is_ready())
        };
        let is_over = over(&mut self.patience) | (self.is_new && over(&mut self.grace));
        is_over | self.is_stalled(cx)
    }

    fn is_stalled(&mut self, cx: &mut Context<'_>) -> bool {
        let bytes = self.out.len();
        let is_over = self.stall.as_mut().is_some_and(|stall| stall.poll(cx, bytes).is_ready());
        if is_over && bytes > UNREAD_BYTES_FREE {
            let client = self.client.addr;
            tracing::warn!(%client, bytes, "resp: a connection is closed: it takes its answers too slowly");
            self.node.meter.unread.closed();
        }
        is_over
    }

    /// Moves answers, in order, to the output. True if there were any.
    fn collect(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        if self.node.closing.get()
            && let Some(last) = self.slots.back_mut()
        {
            last.work.unblock();
        }
        if let Some(how) = self.seat.shown.unblocked()
            && let Some(last) = self.slots.back_mut()
        {
            last.work.release(how, last.name);
        }
        // One look at the clock for all that are there.
        let mut now = None;
        while self.has_room_for_answers()
            && let Some(slot) = self.slots.front_mut()
            && let Poll::Ready(reply) = slot.work.poll(cx)
        {
            any = true;
            let now = *now.get_or_insert_with(Instant::now);
            let waited = slot.work.is_blocked();
            let slot = self.slots.pop_front().expect("its front was just looked at");
            self.written -= self.keys.drain(..slot.keys).filter(|key| key.writes).count();
            self.held_bytes -= slot.bytes;
            self.wide -= usize::from(!slot.is_brief);
            // The time that a client chose to wait is not ours.
            let reply = if slot.silent { reply.unasked() } else { reply };
            let took = if waited { Duration::ZERO } else { now.saturating_duration_since(slot.began) };
            self.tell(slot.name, reply, slot.protocol, took);
            if let Some(reading) = slot.reading {
                reading.ends();
            }
        }
        self.seat.shown.is_blocked(self.waits_long());
        self.busy.set(!self.slots.is_empty());
        if !self.has_room_for_answers() {
            // Whoever does not read keeps the answers, but not the places of operations under way.
            self.slots.iter_mut().for_each(|slot| slot.work.settle(cx));
        } else {
            // Work of several steps goes on while others are before it.
            self.slots.iter_mut().skip(1).for_each(|slot| slot.work.go_on(cx));
        }
        any
    }

    /// Is there a message for it, and room? What it has just begun to listen to is told first.
    fn may_hear(&self) -> bool {
        let has_any = self.client.hears.as_deref().is_some_and(Hears::has_any);
        has_any && self.out.len() < PUSHED_BYTES_MAX && !self.slots.front().is_some_and(|slot| slot.listens)
    }

    /// Moves messages to the output. True if there were any.
    fn hear(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(hears) = &self.client.hears else { return false };
        hears.wakes(cx.waker());
        if !self.may_hear() {
            return false;
        }
        self.client.still_known(&self.node.gate.view());
        if self.client.known.is_none() {
            // It is a stranger from its next look at itself on, and hears nothing.
            cx.waker().wake_by_ref();
        }
        while self.may_hear()
            && let Some(told) = self.client.hears.as_deref().and_then(Hears::next)
        {
            // Who has gone back to RESP2 while values were followed is told nothing between replies.
            let is_lost = self.client.protocol == Protocol::Resp2 && matches!(told, Reply::Stale(_));
            if !is_lost || self.client.hears.as_deref().is_some_and(Hears::is_of_stale) {
                self.out.push(told, self.client.protocol);
            }
        }
        self.unread.count(self.out.len());
        true
    }

    fn tell(&mut self, name: &'static str, reply: Reply, protocol: Protocol, took: Duration) {
        self.node.meter.resp.done(took, ops::is_ours(&reply));
        if SlowLog::wants(took)
            && let Some(known) = &self.client.known
        {
            let of = (&known.home, self.client.addr, &*self.client.name);
            self.node.slow.borrow_mut().push(name, took, of);
        }
        let before = self.out.len();
        self.out.push(reply, protocol);
        self.answer_bytes = (self.out.len() - before).max(self.answer_bytes / 2);
        if let Some(known) = &self.client.known {
            self.unread.is_of(&known.home);
        }
        self.unread.count(self.out.len());
    }

    /// Starts commands that have come. True if any was.
    fn start(&mut self, cx: &mut Context<'_>) -> bool {
        let any = self.start_all(cx);
        self.batches.ask();
        any
    }

    fn start_all(&mut self, cx: &mut Context<'_>) -> bool {
        if self.state != State::Open && self.parked.is_none() || !self.may_start() {
            return false;
        }
        let mut any = false;
        if self.parked.is_some() || !self.input.buffer.is_empty() {
            self.began = Instant::now();
            let was_known = self.client.known.is_some();
            self.client.still_known(&self.node.gate.view());
            if was_known && self.client.known.is_none() {
                // It is a stranger from its next look at itself on.
                cx.waker().wake_by_ref();
            }
        }
        while self.may_start() {
            let command = match self.parked.take() {
                Some(parked) => parked,
                None if self.state != State::Open => break,
                None => match self.parser.next(&mut self.input.buffer, self.input.allocated, self.client.bounds()) {
                    Ok(Parsed::Need(missing)) => {
                        self.missing = missing;
                        break;
                    }
                    Ok(Parsed::Command(command)) => {
                        self.missing = 1;
                        command
                    }
                    Err(broken) => {
                        any = true;
                        self.say(Reply::Error(format!("ERR {broken}")));
                        self.state = State::Closing;
                        break;
                    }
                },
            };
            // Also one that was parked: its client may have become a stranger meanwhile.
            let spec = match self.admit(&command) {
                Ok(spec) => spec,
                Err(error) => {
                    any = true;
                    if let Some(multi) = &mut self.client.multi {
                        multi.spoil();
                    }
                    self.say(error);
                    continue;
                }
            };
            self.is_new &= spec.does == Does::Connect;
            let touches = Touches::of(&command, spec);
            // Inside of MULTI a command is only queued: refusing one would leave the others to be executed without it, and
            // refusing MULTI would leave all of them to be executed one by one.
            let starts = !spec.does.is_of_connection()
                && self.client.multi.is_none()
                && !commands::linear::FRAMES_MULTI.contains(&spec.name);
            if self.is_paused(cx, spec) {
                self.parked = Some(command);
                break;
            }
            let class = self.client.class();
            let priority = self.client.priority();
            let entry = if starts { self.node.gate.entry(class, priority, self.slots.len()) } else { Entry::Free };
            let meets = self.meets(&touches, spec);
            if matches!(meets, Meets::Others) || entry == Entry::Waits {
                self.parked = Some(command);
                break;
            }
            if entry == Entry::Refused {
                any = true;
                self.node.gate.refused(class, priority);
                commands::linear::refused(&mut self.client, &command, spec);
                self.say(Reply::error(OVERLOADED));
                continue;
            }
            any = true;
            let was_known = self.client.known.is_some();
            let in_multi = self.client.multi.is_some() && !commands::linear::ENDS_MULTI.contains(&spec.name);
            self.client.settle();
            let is_wide = slices::is_wide(spec, &command);
            let reading = if is_wide { None } else { self.client.reads(&command, spec, in_multi) };
            let act = if is_wide {
                slices::run(&self.client, &self.node, spec, &command)
            } else {
                (spec.run)(&mut Call { command: &command, client: &mut self.client, node: &self.node, once: None })
            };
            let mut about = About { bytes: command.bytes(), ..About::default() };
            let act = if in_multi {
                commands::linear::queue(&mut self.client, &command, spec, act)
            } else {
                self.client.owning(act, &self.node.gate)
            };
            let (work, closes) = match act {
                Act::Later(_) | Act::Block(_) if matches!(meets, Meets::In(_)) => {
                    reading.into_iter().for_each(Reading::ends);
                    self.parked = Some(command);
                    break;
                }
                Act::Now(reply) => (Work::Ready(reply), false),
                Act::Close(reply) => (Work::Ready(reply), true),
                Act::Op(mut op, then) => {
                    op.priority = self.client.priority();
                    (Work::Op(self.node.gate.ask(node::Ask::Session(op)), then), false)
                }
                Act::Linear(mut op, then) => {
                    op.priority = self.client.priority();
                    about.is_brief = op.steps.iter().all(is_brief);
                    // Of the first answers nothing is known.
                    let is_known = !about.is_brief && self.answer_bytes != ANSWER_BYTES_FIRST;
                    let bytes = (about.bytes, if is_known { self.answer_bytes } else { 0 });
                    let is_last = self.input.buffer.is_empty();
                    match self.batches.put(op, &meets, bytes, about.is_brief, is_last) {
                        Asked::In(batch, at) => {
                            about.batch = batch.borrow().number();
                            (Work::Batched(batch, at, then), false)
                        }
                        Asked::Alone(op) => (Work::Linear(self.node.gate.ask(node::Ask::Linear(*op)), then), false),
                        Asked::Later => {
                            reading.into_iter().for_each(Reading::ends);
                            self.parked = Some(command);
                            break;
                        }
                    }
                }
                Act::Cache(mut op, then) => {
                    op.priority = self.client.priority();
                    (Work::Cache(self.node.gate.ask(node::Ask::Cache(op)), then), false)
                }
                Act::Soft(mut op, then) => {
                    op.priority = self.client.priority();
                    (Work::Soft(self.node.gate.ask(node::Ask::Soft(op)), then), false)
                }
                Act::Later(future) => {
                    self.batches.ask();
                    (Work::Later(future), false)
                }
                Act::Block(start) => {
                    self.batches.ask();
                    let (client, waiting) = oneshot::channel();
                    tokio::task::spawn_local(start(client));
                    (Work::Blocked(waiting), false)
                }
            };
            if was_known && self.client.known.is_none() {
                cx.waker().wake_by_ref();
            }
            self.seat.shown.follow(&self.client, spec.name, self.began);
            self.node.monitors.show(&self.client, spec.name, &command);
            let before = self.slots.len();
            self.put(spec.name, work, touches, about);
            let is_answered = self.slots.len() == before;
            match (self.slots.back_mut(), reading) {
                (_, Some(reading)) if is_answered => reading.ends(),
                (Some(last), reading) if !is_answered => {
                    last.listens = spec.does == Does::Listen;
                    last.reading = reading;
                }
                _ => (),
            }
            if let Some(last) = self.slots.back_mut() {
                last.work.go_on(cx);
            }
            self.seat.shown.is_blocked(self.waits_long());
            if closes {
                self.state = State::Closing;
            }
        }
        any
    }

    /// Does its namespace's pause hold up this command?
    fn is_paused(&mut self, cx: &mut Context<'_>, spec: &Spec) -> bool {
        let until = self.node.clients.waits_until(&self.client, spec).filter(|_| !self.node.closing.get());
        self.pause = until.map(|until| Box::pin(tokio::time::sleep_until(until.into())));
        // It wakes this task when it is over.
        self.pause.as_mut().is_some_and(|pause| pause.as_mut().poll(cx).is_pending())
    }

    /// The answer to what is not run.
    fn say(&mut self, reply: Reply) {
        self.put("", Work::Ready(reply), Touches::None, About::default());
    }

    fn put(&mut self, name: &'static str, work: Work, touches: Touches, about: About) {
        let (protocol, began) = (self.client.protocol, self.began);
        let silent = !self.client.replies.takes_next();
        match work {
            Work::Ready(reply) if self.slots.is_empty() && silent => {
                self.tell(name, reply.unasked(), protocol, Duration::ZERO);
            }
            // Nothing is before it: no need to queue.
            Work::Ready(reply) if self.slots.is_empty() => self.tell(name, reply, protocol, Duration::ZERO),
            work => {
                let About { bytes, batch, is_brief } = about;
                self.written += touches.keys().iter().filter(|(_, writes)| *writes).count();
                self.keys.extend(touches.keys().iter().map(|(hash, writes)| Key {
                    hash: *hash,
                    writes: *writes,
                    batch,
                    is_brief,
                }));
                let (keys, alone) = (touches.keys().len(), matches!(touches, Touches::All));
                self.held_bytes += bytes;
                self.wide += usize::from(!is_brief);
                self.slots.push_back(Slot {
                    work,
                    protocol,
                    began,
                    keys,
                    is_brief,
                    bytes,
                    alone,
                    listens: false,
                    silent,
                    reading: None,
                    name,
                });
                self.busy.set(true);
            }
        }
    }

    /// The command's place in the list, or why it is not run.
    fn admit(&self, command: &Command) -> Result<&'static Spec, Reply> {
        let class = self.client.class();
        let spec = commands::of_class(class, command.arg(0));
        if self.client.known.is_none() && spec.is_none_or(|spec| spec.does != Does::Connect) {
            return Err(Reply::error("NOAUTH Authentication required: AUTH <namespace> <token>"));
        }
        let spec = spec.ok_or_else(|| commands::not_offered(class, command))?;
        if !spec.is_arity_right(command.len()) {
            return Err(commands::arity_error(spec));
        }
        if let Some(error) = commands::channels::is_out_of_place(&self.client, spec) {
            return Err(error);
        }
        Ok(spec)
    }

    /// Must a command wait for those under way?
    fn meets(&self, touches: &Touches, spec: &Spec) -> Meets {
        // What runs alone began when nothing was before it; behind it there may be errors.
        let Some(first) = self.slots.front() else { return Meets::Nothing };
        if first.alone || matches!(touches, Touches::All) {
            return Meets::Others;
        }
        if self.written == 0 && !touches.keys().iter().any(|(_, writes)| *writes) {
            return Meets::Nothing;
        }
        let mut met = 0;
        for (hash, writes) in touches.keys() {
            for other in self.keys.iter().filter(|other| other.hash == *hash && (other.writes || *writes)) {
                // What it writes could be what that one finds, if it has to be asked for its answer once more.
                let is_read_anew = !other.writes && !other.is_brief;
                if other.batch == 0 || is_read_anew || (met != 0 && met != other.batch) {
                    return Meets::Others;
                }
                met = other.batch;
            }
        }
        if met == 0 {
            return Meets::Nothing;
        }
        let takes = || self.kind().is_some_and(|kind| self.batches.takes(met, &kind));
        if joins(spec.name) && takes() { Meets::In(met) } else { Meets::Others }
    }

    /// What operations of its client have in common now.
    fn kind(&self) -> Option<Kind> {
        let namespace = Arc::clone(&self.client.known.as_ref()?.namespace);
        Some(Kind { namespace, priority: self.client.priority(), stale: self.client.stale })
    }

    /// Writes what the socket takes.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.out.is_empty() {
            let mut slices = [IoSlice::new(&[]); OUT_SEGMENTS_MAX];
            let count = self.out.segments(&mut slices);
            match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..count]) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => {
                    self.out.advance(n);
                    self.unread.count(self.out.len());
                    self.unread.took();
                    if let Some(stall) = &mut self.stall {
                        stall.took(n);
                    }
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    let bytes = self.out.len();
                    if self.stall.get_or_insert_with(|| Stall::new(bytes)).poll(cx, bytes).is_ready() {
                        // It is looked at first thing.
                        cx.waker().wake_by_ref();
                    }
                    return Ok(());
                }
            }
        }
        self.stall = None;
        // With TLS some of it may still be on its way to the socket, which wakes this task when it takes more.
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Gives a client up that wants more than is kept for it, and does not begin to read. True if that is new.
    fn is_to_be_given_up(&mut self, cx: &mut Context<'_>) -> bool {
        let (bytes, open) = (self.out.len(), self.state == State::Open);
        if !open || self.unread.has_room(bytes) || self.waits_long() || !self.has_more_to_say(cx) {
            // Who waits for an item, or has nothing more to say, may read when it likes.
            self.unread.took();
            return false;
        }
        if !self.unread.is_stuck(cx) {
            return false;
        }
        let why = self.unread.why(bytes);
        let namespace = self.client.known.as_ref().map_or("", |known| &*known.namespace);
        tracing::warn!(client = %self.client.addr, namespace, bytes, why, "resp: a connection is closed");
        self.node.meter.unread.closed();
        (self.parked, self.state) = (None, State::GivenUp);
        self.input.buffer.clear();
        self.say(Reply::Error(format!("ERR {why}")));
        true
    }

    fn has_more_to_say(&mut self, cx: &mut Context<'_>) -> bool {
        self.parked.is_some() || !self.input.buffer.is_empty() || self.stream.has_more(cx)
    }

    /// Reads what comes, for nothing.
    fn pass_over(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut sink = [0; 16 << 10];
        loop {
            let mut read = ReadBuf::new(&mut sink);
            match Pin::new(&mut self.stream).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if read.filled().is_empty() => {
                    self.state = State::Closing;
                    return Ok(());
                }
                Poll::Ready(Ok(())) => (),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(()),
            }
        }
    }

    /// Reads what else is there, if the last read brought as much as there was room for: what stands together is started together.
    fn read_on(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.state == State::Open && self.input.is_full() && self.input.buffer.len() < READ_BYTES_MAX {
            match self.read(cx)? {
                Poll::Ready(1..) => (),
                Poll::Ready(0) => self.state = State::Closing,
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Asked first, so that a connection without news needs no buffer.
        ready!(self.stream.poll_news(cx))?;
        if !self.input.make_room(self.missing) {
            if self.waits_long() {
                // It could wait for ever, and then nobody would notice its end.
                return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
            }
            self.say(Reply::error("BUSY too many large commands at once, retry in 100 ms"));
            self.state = State::Closing;
            // Something to say is progress, as bytes would be.
            return Poll::Ready(Ok(1));
        }
        let n = {
            let read = std::pin::pin!(self.stream.read_buf(&mut self.input.buffer));
            ready!(read.poll(cx))?
        };
        self.input.came(n);
        // It is there, though it may not read before it has written all. By that it keeps nothing of what all connections share.
        if self.out.len() < UNREAD_BYTES_FREE {
            self.stall = None;
        }
        Poll::Ready(Ok(n))
    }
}
