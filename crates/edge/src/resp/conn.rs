//! One connection. Everything happens in one `poll`, so that a wake-up costs at most one read and one write:
//! take what was answered, start what has come, write, read.
//!
//! All commands that have come are started at once and answered in order. Only commands that touch the same key (one of
//! them writing it) wait for each other, and all wait behind one that waits for an item. What a client may have under way,
//! unread or half sent is bounded; past the bounds nothing more is read from it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use base::Outcome;
use futures_util::future::LocalBoxFuture;
use state::session::Reply as Found;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use super::changes::tracking::Reading;
use super::client::Client;
use super::clients::{Seat, Unblock};
use super::commands::linear::Then;
use super::commands::{self, Act, Call, Does, Given, Keys, Spec};
use super::encode::{Out, Protocol, Reply};
use super::gate::{Busy, Entry, OVERLOADED, Waiting};
use super::input::Input;
use super::limits::*;
use super::parse::{Command, Parsed, Parser};
use super::slow::SlowLog;
use super::stream::Stream;
use super::subscribers::Hears;
use super::unread::{Stall, Unread};
use super::{Node, ops};
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
        held_bytes: 0,
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
    /// Keys of all slots, in order: hash, and whether it is written.
    keys: VecDeque<(u64, bool)>,
    /// Bytes of the commands of all slots.
    held_bytes: usize,
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

enum Work {
    Ready(Reply),
    Op(Waiting, fn(Outcome<Found>) -> Reply),
    Linear(Waiting, Then),
    Cache(Waiting, commands::cache::Then),
    Soft(Waiting, commands::soft::Then),
    Later(LocalBoxFuture<'static, Reply>),
    /// Waits for something, perhaps for long, in a task of its own.
    Blocked(oneshot::Receiver<Given>),
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
                Poll::Ready(Ok(1..)) => (),
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
            && self.slots.len() * self.answer_bytes < IN_FLIGHT_BYTES_MAX
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
        while self.has_room_for_answers()
            && let Some(slot) = self.slots.front_mut()
            && let Poll::Ready(reply) = slot.work.poll(cx)
        {
            any = true;
            let waited = slot.work.is_blocked();
            let slot = self.slots.pop_front().expect("its front was just looked at");
            self.keys.drain(..slot.keys);
            self.held_bytes -= slot.bytes;
            // The time that a client chose to wait is not ours.
            let reply = if slot.silent { reply.unasked() } else { reply };
            self.tell(slot.name, reply, slot.protocol, if waited { Instant::now() } else { slot.began });
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
            self.out.push(told, self.client.protocol);
        }
        self.unread.count(self.out.len());
        true
    }

    fn tell(&mut self, name: &'static str, reply: Reply, protocol: Protocol, began: Instant) {
        let took = began.elapsed();
        self.node.meter.resp.done(took, ops::is_ours(&reply));
        if SlowLog::wants(took)
            && let Some(known) = &self.client.known
        {
            let of = (&known.namespace, self.client.addr, &*self.client.name);
            self.node.slow.borrow_mut().push(name, took, of);
        }
        let before = self.out.len();
        self.out.push(reply, protocol);
        self.answer_bytes = (self.out.len() - before).max(self.answer_bytes / 2);
        if let Some(known) = &self.client.known {
            self.unread.is_of(&known.namespace);
        }
        self.unread.count(self.out.len());
    }

    /// Starts commands that have come. True if any was.
    fn start(&mut self, cx: &mut Context<'_>) -> bool {
        if self.state != State::Open && self.parked.is_none() || !self.may_start() {
            return false;
        }
        let mut any = false;
        if self.parked.is_some() || !self.input.buffer.is_empty() {
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
            if self.must_wait(&touches) || entry == Entry::Waits {
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
            let reading = self.client.reads(&command, spec, in_multi);
            let act =
                (spec.run)(&mut Call { command: &command, client: &mut self.client, node: &self.node, once: None });
            let act = if in_multi { commands::linear::queue(&mut self.client, &command, spec, act) } else { act };
            let (work, closes) = match act {
                Act::Now(reply) => (Work::Ready(reply), false),
                Act::Close(reply) => (Work::Ready(reply), true),
                Act::Op(mut op, then) => {
                    op.priority = self.client.priority();
                    (Work::Op(self.node.gate.ask(node::Ask::Session(op)), then), false)
                }
                Act::Linear(mut op, then) => {
                    op.priority = self.client.priority();
                    (Work::Linear(self.node.gate.ask(node::Ask::Linear(op)), then), false)
                }
                Act::Cache(mut op, then) => {
                    op.priority = self.client.priority();
                    (Work::Cache(self.node.gate.ask(node::Ask::Cache(op)), then), false)
                }
                Act::Soft(mut op, then) => {
                    op.priority = self.client.priority();
                    (Work::Soft(self.node.gate.ask(node::Ask::Soft(op)), then), false)
                }
                Act::Later(future) => (Work::Later(future), false),
                Act::Block(start) => {
                    let (client, waiting) = oneshot::channel();
                    tokio::task::spawn_local(start(client));
                    (Work::Blocked(waiting), false)
                }
            };
            if was_known && self.client.known.is_none() {
                cx.waker().wake_by_ref();
            }
            self.seat.shown.follow(&self.client, spec.name);
            let before = self.slots.len();
            self.put(spec.name, work, touches, command.bytes());
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
        self.put("", Work::Ready(reply), Touches::None, 0);
    }

    fn put(&mut self, name: &'static str, work: Work, touches: Touches, bytes: usize) {
        let (protocol, began) = (self.client.protocol, Instant::now());
        let silent = !self.client.replies.takes_next();
        match work {
            Work::Ready(reply) if self.slots.is_empty() && silent => self.tell(name, reply.unasked(), protocol, began),
            // Nothing is before it: no need to queue.
            Work::Ready(reply) if self.slots.is_empty() => self.tell(name, reply, protocol, began),
            work => {
                self.keys.extend(touches.keys());
                let (keys, alone) = (touches.keys().len(), matches!(touches, Touches::All));
                self.held_bytes += bytes;
                self.slots.push_back(Slot {
                    work,
                    protocol,
                    began,
                    keys,
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

    /// Must a command wait for one under way?
    fn must_wait(&self, touches: &Touches) -> bool {
        // What runs alone began when nothing was before it; behind it there may be errors.
        let Some(first) = self.slots.front() else { return false };
        let meets = |key: &(u64, bool)| self.keys.iter().any(|other| other.0 == key.0 && (other.1 || key.1));
        first.alone || matches!(touches, Touches::All) || touches.keys().iter().any(meets)
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

impl Work {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
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

    fn is_blocked(&self) -> bool {
        matches!(self, Work::Blocked(_))
    }

    /// What waits for long does so no more.
    fn unblock(&mut self) {
        if let Work::Blocked(waiting) = self {
            // What comes from now on is not ours any more; what has come is.
            waiting.close();
        }
    }

    /// What waits for long ends now, with what has come or with what its client is told.
    fn release(&mut self, how: Unblock, name: &str) {
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
    fn settle(&mut self, cx: &mut Context<'_>) {
        if !matches!(self, Work::Ready(_) | Work::Blocked(_))
            && let Poll::Ready(reply) = self.poll(cx)
        {
            *self = Work::Ready(reply);
        }
    }

    /// Lets work of several steps take its next one. A single operation needs no pushing.
    fn go_on(&mut self, cx: &mut Context<'_>) {
        if let Work::Later(future) = self
            && let Poll::Ready(reply) = future.as_mut().poll(cx)
        {
            *self = Work::Ready(reply);
        }
    }
}

const UNBLOCKED: &str = "UNBLOCKED this node is about to end: nothing was taken, ask another one";

/// What a command has to do with others: hashes of its keys, each with whether it is written.
enum Touches {
    None,
    One([(u64, bool); 1]),
    Some(Vec<(u64, bool)>),
    /// Every key, or too many to tell apart.
    All,
}

impl Touches {
    fn of(command: &Command, spec: &Spec) -> Self {
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

    fn keys(&self) -> &[(u64, bool)] {
        match self {
            Self::One(key) => key,
            Self::Some(keys) => keys,
            Self::None | Self::All => &[],
        }
    }
}
