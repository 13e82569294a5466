//! Stands between a client's socket and hyper. Heads are held back until they are complete and have passed `check`;
//! bodies are followed to their end, so that the next head is found. What fails is replaced by a request of our own
//! that makes the proxy answer with the reason and close. All waits for the client end here, too.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use clones::limits::BODY_MAX_MAX;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::check::{self, Chunks, Framing, HeadScan, Violation};
use super::limits::{
    BODY_IDLE, HEAD_BYTES_MAX, HEAD_TIME, INTERIM_BYTES_MAX, KEEP_ALIVE, READ_BUFFER_BYTES, READ_BUFFER_KEPT_BYTES,
    REST_BYTES_MAX, WRITE_IDLE,
};
use super::linger::Linger;
use super::wait::Rate;

/// The method of the request that stands for a refused one. A client that sends it gets a 400 as well.
pub const REFUSED_METHOD: &str = "COPPICE-REFUSED";
const REFUSED_REQUEST: &[u8] = b"COPPICE-REFUSED / HTTP/1.1\r\n\r\n";

/// What a connection's guard and its requests tell each other.
#[derive(Debug, Default)]
pub struct Flags {
    /// A request is being answered: a silent client is in its right.
    pub busy: AtomicBool,
    /// A request has come at some time.
    pub served: AtomicBool,
    /// The next bytes are no longer HTTP; set before 101 is sent.
    pub upgraded: AtomicBool,
    /// Why the present request (or its body) was refused.
    pub violation: Mutex<Option<Violation>>,
    /// Bytes that the present request's body may have, once it is known whom it is for; 0 until then.
    body_bytes_max: AtomicU64,
    /// Bytes of the body after the last head that have come or were announced by the sizes of chunks.
    announced: AtomicU64,
    /// Bytes of the present request's body that have not come yet; the largest number if nobody knows.
    unread: AtomicU64,
    /// Heads that were handed on, and requests of which an answer was begun: hyper reads one head ahead.
    heads: AtomicU64,
    begun: AtomicU64,
    /// The client waits for leave to send its body, and was not given it.
    pub owes_continue: AtomicBool,
    /// An answer has broken off: when the client has what came of it the connection is to end.
    pub breaks_off: AtomicBool,
    /// The client has it.
    pub has_parted: AtomicBool,
    /// Interim answers that the client is to get before the next head.
    interim: Mutex<Vec<u8>>,
    pub has_interim: AtomicBool,
}

impl Flags {
    /// An answer is begun.
    pub fn begin(&self) {
        self.body_bytes_max.store(0, Relaxed);
        self.begun.fetch_add(1, Relaxed);
    }

    /// The present request's body may have so many bytes. False: more were announced already.
    pub fn body_may_have(&self, bytes_max: u64) -> bool {
        self.body_bytes_max.store(bytes_max, Relaxed);
        self.announced.load(Relaxed) <= bytes_max || !self.is_present()
    }

    /// Whether the body that is read is the present request's: the beginning of the next one may be read ahead, too.
    fn is_present(&self) -> bool {
        self.heads.load(Relaxed) == self.begun.load(Relaxed)
    }

    fn body_bytes_max(&self) -> u64 {
        Some(self.body_bytes_max.load(Relaxed)).filter(|max| *max > 0 && self.is_present()).unwrap_or(BODY_MAX_MAX)
    }

    /// Whether the rest of a body that was answered unread is to be read, and the connection kept.
    pub fn keeps_rest(&self) -> bool {
        // The next head is here, so all of this body has passed; what is unread is the next one's.
        if self.heads.load(Relaxed) > self.begun.load(Relaxed) {
            return true;
        }
        let unread = self.unread.load(Relaxed);
        unread == 0 || unread <= REST_BYTES_MAX && !self.owes_continue.load(Relaxed)
    }

    /// Has an interim answer sent. What does not fit is left out.
    pub fn send_interim(&self, head: &[u8]) {
        let mut interim = self.interim.lock().unwrap_or_else(PoisonError::into_inner);
        if interim.len() + head.len() <= INTERIM_BYTES_MAX {
            interim.extend_from_slice(head);
            self.has_interim.store(true, Relaxed);
        }
    }

    pub fn violation(&self) -> Option<Violation> {
        *self.violation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_violation(&self, violation: Violation) {
        *self.violation.lock().unwrap_or_else(PoisonError::into_inner) = Some(violation);
    }
}

#[derive(Debug)]
pub struct Guard<S> {
    stream: S,
    flags: Arc<Flags>,
    reading: Reading,
    buffer: Buffer,
    read_wait: Rate,
    write_wait: Rate,
    /// Our side is closed.
    linger: Option<Linger>,
}

#[derive(Debug)]
enum Reading {
    Head(HeadScan),
    /// So many bytes of body have not been handed on yet.
    Length(u64),
    Chunked(Chunks),
    /// Not HTTP any more.
    Raw,
    /// Nothing more is read. Not an end: hyper would take that for a client that left, and not answer.
    Refused,
    /// The client has closed its side.
    Ended,
}

/// Bytes from the socket. Invariant: `start <= passed <= end <= bytes.len()`.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    /// Up to here they were checked and may be handed on.
    passed: usize,
    end: usize,
}

impl Buffer {
    fn unchecked(&self) -> &[u8] {
        &self.bytes[self.passed..self.end]
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn pass(&mut self, count: usize) {
        self.passed += count;
        debug_assert!(self.passed <= self.end, "only bytes that are here can pass");
    }

    fn hand_on(&mut self, to: &mut ReadBuf<'_>) {
        let count = (self.passed - self.start).min(to.remaining());
        to.put_slice(&self.bytes[self.start..self.start + count]);
        self.start += count;
        if self.is_empty() {
            (self.start, self.passed, self.end) = (0, 0, 0);
            if self.bytes.len() > READ_BUFFER_KEPT_BYTES {
                self.bytes = Vec::new();
            }
        }
    }

    /// Room for more; the caller has checked that what is held is below the largest head.
    fn make_room(&mut self) -> &mut [u8] {
        if self.end == self.bytes.len() {
            if self.start > 0 {
                self.bytes.copy_within(self.start..self.end, 0);
                (self.passed, self.end) = (self.passed - self.start, self.end - self.start);
                self.start = 0;
            } else {
                let bytes = (self.bytes.len() * 2).clamp(READ_BUFFER_BYTES, 2 * HEAD_BYTES_MAX);
                self.bytes.resize(bytes, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// The head that has passed just now, `head` bytes long, gets a target that all readers take: what they differ in is
    /// written as %XX, which means the same.
    fn encode(&mut self, head: usize, from: usize, to: usize) {
        let begin = self.passed - head;
        let target = check::encoded(&self.bytes[begin + from..begin + to]);
        let more = target.len() - (to - from);
        self.bytes.truncate(self.end);
        self.bytes.splice(begin + from..begin + to, target);
        (self.passed, self.end) = (self.passed + more, self.end + more);
    }

    fn replace(&mut self, by: &[u8]) {
        self.bytes = by.to_vec();
        (self.start, self.passed, self.end) = (0, by.len(), by.len());
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guard<S> {
    pub fn new(stream: S, flags: Arc<Flags>) -> Self {
        Self {
            stream,
            flags,
            reading: Reading::Head(HeadScan::default()),
            buffer: Buffer::default(),
            read_wait: Rate::default(),
            write_wait: Rate::default(),
            linger: None,
        }
    }

    /// Checks what is in the buffer, as far as it goes.
    fn check(&mut self) -> Result<(), Violation> {
        let fresh = self.buffer.end - self.buffer.passed;
        match &mut self.reading {
            Reading::Head(scan) => {
                // A client may send an empty line after a body (RFC 9112 2.2); only then nothing is held back before it.
                if self.buffer.start == self.buffer.passed && self.buffer.unchecked().starts_with(b"\r\n") {
                    self.buffer.start += 2;
                    self.buffer.passed += 2;
                }
                if self.buffer.unchecked() == b"\r" || self.buffer.unchecked().is_empty() {
                    return Ok(());
                }
                if let Some((bytes, framing)) = scan.scan(self.buffer.unchecked(), BODY_MAX_MAX)? {
                    let target = scan.odd_target();
                    self.buffer.pass(bytes);
                    if let Some((from, to)) = target {
                        self.buffer.encode(bytes, from, to);
                    }
                    self.read_wait.over();
                    self.flags.heads.fetch_add(1, Relaxed);
                    self.flags.announced.store(0, Relaxed);
                    self.reading = match framing {
                        Framing::Length(0) => Reading::Head(HeadScan::default()),
                        Framing::Length(length) => {
                            self.flags.unread.store(length, Relaxed);
                            Reading::Length(length)
                        }
                        Framing::Chunked => {
                            self.flags.unread.store(u64::MAX, Relaxed);
                            Reading::Chunked(Chunks::default())
                        }
                    };
                }
            }
            Reading::Length(left) => {
                let count = (*left).min(fresh as u64);
                *left -= count;
                self.flags.unread.store(*left, Relaxed);
                let ended = *left == 0;
                self.buffer.pass(count as usize);
                if ended {
                    self.reading = Reading::Head(HeadScan::default());
                }
            }
            Reading::Chunked(chunks) => {
                let (count, ended) = chunks.scan(self.buffer.unchecked(), self.flags.body_bytes_max())?;
                self.flags.announced.store(chunks.body_bytes(), Relaxed);
                self.buffer.pass(count);
                if ended {
                    self.flags.unread.store(0, Relaxed);
                    self.reading = Reading::Head(HeadScan::default());
                }
            }
            Reading::Raw => self.buffer.pass(fresh),
            Reading::Refused | Reading::Ended => (),
        }
        Ok(())
    }

    /// A refused head becomes a request of ours; a refused body an error, as its head is with the proxy already.
    fn refuse(&mut self, violation: Violation) -> io::Result<()> {
        self.flags.set_violation(violation);
        let was_head = matches!(self.reading, Reading::Head(_));
        self.reading = Reading::Refused;
        if was_head {
            self.buffer.replace(REFUSED_REQUEST);
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, violation.why))
    }

    fn timed_out(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let partial_head = matches!(self.reading, Reading::Head(_)) && !self.buffer.unchecked().is_empty();
        let limit = match self.reading {
            Reading::Head(_) if partial_head => HEAD_TIME,
            Reading::Head(_) => KEEP_ALIVE,
            Reading::Length(_) | Reading::Chunked(_) => BODY_IDLE,
            Reading::Raw | Reading::Refused | Reading::Ended => return Ok(false),
        };
        let is_body = matches!(self.reading, Reading::Length(_) | Reading::Chunked(_));
        let is_late = if is_body { self.read_wait.is_slow(cx, limit) } else { self.read_wait.is_overdue(cx, limit) };
        if !is_late {
            return Ok(false);
        }
        if !is_body && self.flags.busy.load(Relaxed) {
            // It waits for us. The clock begins again; polling the timer once more leaves it armed.
            self.read_wait.over();
            return Ok(self.read_wait.is_overdue(cx, limit));
        }
        if partial_head || is_body {
            self.refuse(Violation { status: 408, why: "the request did not arrive in time" })?;
        } else {
            self.reading = Reading::Ended;
        }
        Ok(true)
    }

    /// More bytes into the buffer. Ready with 0 when the client has closed its side.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(self.buffer.make_room());
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        let count = room.filled().len();
        // The time for a head runs from its first byte: one byte every nine seconds does not help.
        match self.reading {
            Reading::Head(_) if !self.buffer.unchecked().is_empty() => (),
            Reading::Length(_) | Reading::Chunked(_) => self.read_wait.moved(count),
            _ => self.read_wait.over(),
        }
        self.buffer.end += count;
        Poll::Ready(Ok(count))
    }

    /// A body's bytes go straight to hyper if they surely all belong to it.
    fn poll_direct(&mut self, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Option<Poll<io::Result<()>>> {
        let room = to.remaining() as u64;
        match &self.reading {
            Reading::Raw => (),
            Reading::Length(left) if *left >= room => (),
            _ => return None,
        }
        let before = to.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, to);
        if let Poll::Ready(Ok(())) = polled {
            let count = to.filled().len() - before;
            self.read_wait.moved(count);
            if let Reading::Length(left) = &mut self.reading {
                *left -= count as u64;
                self.flags.unread.store(*left, Relaxed);
                if *left == 0 {
                    self.reading = Reading::Head(HeadScan::default());
                }
            }
        }
        Some(polled)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.buffer.start < this.buffer.passed {
                this.buffer.hand_on(to);
                return Poll::Ready(Ok(()));
            }
            match this.reading {
                Reading::Ended => return Poll::Ready(Ok(())),
                // The answer closes the connection; nobody needs to be woken for more.
                Reading::Refused => return Poll::Pending,
                Reading::Head(_) | Reading::Length(_) | Reading::Chunked(_) | Reading::Raw => (),
            }
            if this.flags.upgraded.load(Relaxed) {
                if !matches!(this.reading, Reading::Raw) {
                    this.reading = Reading::Raw;
                    // Its timer would wake whoever spoke HTTP here, and keep all of that task's memory until then.
                    this.read_wait = Rate::default();
                }
                if this.buffer.is_empty() {
                    // What comes from now on goes past it.
                    this.buffer = Buffer::default();
                }
            }
            if !this.buffer.is_empty() {
                if let Err(violation) = this.check() {
                    this.refuse(violation)?;
                }
                if this.buffer.start < this.buffer.passed || matches!(this.reading, Reading::Refused) {
                    continue;
                }
            }
            let polled = match this.buffer.is_empty().then(|| this.poll_direct(cx, to)).flatten() {
                Some(Poll::Ready(result)) => return Poll::Ready(result),
                Some(Poll::Pending) => Poll::Pending,
                None => this.poll_fill(cx),
            };
            match polled {
                Poll::Ready(Ok(0)) => this.reading = Reading::Ended,
                Poll::Ready(Ok(_)) => (),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if this.timed_out(cx)? => (),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guard<S> {
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flags = Arc::clone(&self.flags);
        let mut interim = flags.interim.lock().unwrap_or_else(PoisonError::into_inner);
        while !interim.is_empty() {
            let polled = Pin::new(&mut self.stream).poll_write(cx, &interim);
            match ready!(self.written(cx, polled))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => drop(interim.drain(..count)),
            }
        }
        flags.has_interim.store(false, Relaxed);
        // Whoever has the next head waits for this.
        cx.waker().wake_by_ref();
        Poll::Ready(Ok(()))
    }

    fn written(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(count)) => self.write_wait.moved(count),
            Poll::Pending if self.write_wait.is_slow(cx, WRITE_IDLE) => {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes too little")));
            }
            Poll::Ready(Err(_)) | Poll::Pending => (),
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.written(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(cx, parts);
        this.written(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes when it has written all that it has.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.flags.has_interim.load(Relaxed) {
            ready!(self.poll_interim(cx))?;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if self.flags.breaks_off.load(Relaxed) && !self.flags.has_parted.load(Relaxed) {
            // How it went does not matter any more.
            let _ = ready!(self.as_mut().poll_shutdown(cx));
            self.flags.has_parted.store(true, Relaxed);
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        let linger = this.linger.get_or_insert_default();
        if matches!(this.reading, Reading::Raw) { Poll::Ready(Ok(())) } else { linger.poll(&mut this.stream, cx) }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Wake, Waker};

    use super::*;

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    /// A waker keeps the memory of its task: six times what an idle WebSocket needs.
    #[tokio::test]
    async fn of_an_upgraded_connection_nothing_holds_on_to_who_spoke_http_on_it() {
        let (_client, ours) = tokio::io::duplex(100);
        let flags = Arc::new(Flags::default());
        let mut guard = Guard::new(ours, Arc::clone(&flags));
        let (spoke_http, splices) = (Arc::new(Task), Arc::new(Task));
        let mut read = |task: &Arc<Task>| {
            let waker = Waker::from(Arc::clone(task));
            let mut room = [0; 100];
            let polled = Pin::new(&mut guard).poll_read(&mut Context::from_waker(&waker), &mut ReadBuf::new(&mut room));
            assert!(polled.is_pending());
        };
        read(&spoke_http);
        assert!(Arc::strong_count(&spoke_http) > 1, "it waits for a head");
        flags.upgraded.store(true, Relaxed);
        read(&splices);
        assert_eq!(Arc::strong_count(&spoke_http), 1);
    }
}
