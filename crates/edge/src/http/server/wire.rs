//! A client's connection of HTTP/1: what has come and was not taken yet, and what is to be written. Its task and the
//! body of the request that is being answered share it. All waits for the client end here: for a head, for a body, for
//! him to take what is written.
//!
//! While nothing comes no room is held for it: bytes are read into the thread's room and kept only as far as they are
//! not taken at once.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use clones::limits::BODY_MAX_MAX;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};

use super::head::{self, Head};
use crate::copy::{ROOM_BYTES, poll_part};
use crate::http::check::{Chunks, Framing, HeadScan, LATE, Next, Violation};
use crate::http::limits::{
    BODY_IDLE, BODY_READ_BYTES_MAX, HEAD_TIME, KEEP_ALIVE, OUT_BYTES_MAX, REST_BYTES_MAX, SMALL_PART_BYTES, WRITE_IDLE,
};
use crate::http::linger::Linger;
use crate::http::rooms;
use crate::http::upgrade::Handed;
use crate::pool::Duplex;
use crate::wait::Rate;

/// What comes next of a client.
#[expect(
    clippy::large_enum_variant,
    reason = "nobody keeps one: a box for each request would cost more than its moves"
)]
pub enum Said {
    Head(Head),
    /// What came is no request.
    Refused(Violation),
    /// He is gone, or has been silent for long.
    Ended,
}

/// What came where nothing had come before.
#[expect(clippy::large_enum_variant, reason = "as `Said`")]
enum First {
    End,
    Judged(Result<(Head, Framing), Violation>),
    /// Less than a head.
    Some,
}

pub struct Wire(Mutex<Inner>);

pub struct Inner {
    stream: Box<dyn Duplex>,
    /// What has come and was not taken.
    input: BytesMut,
    body: Body,
    /// Number of the request whose body that is: what is left of another request's body has nothing to take here.
    number: u64,
    body_bytes_max: u64,
    /// The last read of a body brought much: it is a long one.
    is_long: bool,
    read_wait: Rate,
    pub out: Out,
    write_wait: Rate,
}

/// What is to come of a request's body.
#[derive(Debug)]
enum Body {
    Over,
    /// This many bytes, at least one.
    Length(u64),
    Chunked(Chunks),
    /// The body came to a bad end, so nobody knows where the next request begins.
    Broken,
}

/// What is to be written: parts that follow each other.
#[derive(Default)]
pub struct Out {
    /// Heads, and small parts of bodies.
    pub bytes: Vec<u8>,
    /// How many of those are written.
    written: usize,
    /// A large part,
    data: Bytes,
    /// ... and what frames it.
    tail: &'static [u8],
    /// Bytes that the stream may still keep back.
    unflushed: usize,
}

/// The request whose head these bytes begin with, how long that is, and how its body is framed. None: more is needed.
fn judge(bytes: &[u8], scan: &mut HeadScan) -> Result<Option<(usize, Head, Framing)>, Violation> {
    if scan.is_new() {
        scan.lend(rooms::fields());
    }
    let Some((len, framing)) = scan.scan(bytes, BODY_MAX_MAX)? else { return Ok(None) };
    let head = head::of(&bytes[..len], scan, framing)?;
    rooms::give_fields(scan.give_back());
    Ok(Some((len, head, framing)))
}

impl Wire {
    pub fn new(stream: Box<dyn Duplex>) -> Self {
        Self(Mutex::new(Inner {
            stream,
            input: BytesMut::new(),
            body: Body::Over,
            number: 0,
            body_bytes_max: BODY_MAX_MAX,
            is_long: false,
            read_wait: Rate::default(),
            out: Out::default(),
            write_wait: Rate::default(),
        }))
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The next head. `scan` is of this one.
    pub fn poll_head(&mut self, cx: &mut Context<'_>, scan: &mut HeadScan) -> Poll<Said> {
        loop {
            // A client may send an empty line after a body (RFC 9112 2.2).
            if scan.is_new() && self.input.starts_with(b"\r\n") {
                self.input.advance(2);
            }
            if self.input.is_empty() {
                // Nothing is held while nothing comes.
                self.input = BytesMut::new();
            } else if self.input[..] != b"\r"[..] {
                match self.next_head(scan) {
                    Ok(Some(head)) => return Poll::Ready(Said::Head(head)),
                    Ok(None) => (),
                    Err(violation) => return Poll::Ready(Said::Refused(violation)),
                }
            }
            let is_idle = self.input.is_empty();
            let polled = if is_idle && scan.is_new() {
                self.poll_first(cx, scan)
            } else {
                self.poll_fill(cx).map_ok(|count| if count == 0 { First::End } else { First::Some })
            };
            match polled {
                Poll::Ready(Ok(First::End) | Err(_)) => return Poll::Ready(Said::Ended),
                Poll::Ready(Ok(First::Judged(Ok((head, framing))))) => {
                    self.begins(framing);
                    return Poll::Ready(Said::Head(head));
                }
                Poll::Ready(Ok(First::Judged(Err(violation)))) => return Poll::Ready(Said::Refused(violation)),
                // The time for a head runs from its first byte: one byte every nine seconds does not help.
                Poll::Ready(Ok(First::Some)) if is_idle => self.read_wait.over(),
                Poll::Ready(Ok(First::Some)) => (),
                Poll::Pending if !self.read_wait.is_overdue(cx, if is_idle { KEEP_ALIVE } else { HEAD_TIME }) => {
                    return Poll::Pending;
                }
                Poll::Pending => return Poll::Ready(if is_idle { Said::Ended } else { Said::Refused(LATE) }),
            }
        }
    }

    fn next_head(&mut self, scan: &mut HeadScan) -> Result<Option<Head>, Violation> {
        let Some((bytes, head, framing)) = judge(&self.input, scan)? else { return Ok(None) };
        self.input.advance(bytes);
        self.begins(framing);
        Ok(Some(head))
    }

    /// Reads what comes first. Mostly that is a whole head, which is not kept elsewhere before it is made a request of.
    fn poll_first(&mut self, cx: &mut Context<'_>, scan: &mut HeadScan) -> Poll<io::Result<First>> {
        poll_part(&mut self.stream, cx, |came| {
            let judged = match came {
                [] => return First::End,
                [b'\r', ..] => Ok(None),
                _ => judge(came, scan),
            };
            match judged {
                Ok(Some((bytes, head, framing))) => {
                    self.input = BytesMut::from(&came[bytes..]);
                    First::Judged(Ok((head, framing)))
                }
                Ok(None) => {
                    // As large as what came, not as what was there before.
                    self.input = BytesMut::from(came);
                    First::Some
                }
                Err(violation) => First::Judged(Err(violation)),
            }
        })
    }

    /// A request's head was taken, and its body is what comes next.
    fn begins(&mut self, framing: Framing) {
        self.read_wait.over();
        self.number += 1;
        (self.body_bytes_max, self.is_long) = (BODY_MAX_MAX, false);
        self.body = match framing {
            Framing::Length(0) => Body::Over,
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked(Chunks::default()),
        };
    }

    /// Nothing of a head has come.
    pub fn is_idle(&self) -> bool {
        self.input.is_empty()
    }

    /// Whether the next request can be found behind what is left of this one's body, without reading much.
    pub fn keeps_rest(&self, owes_continue: bool) -> bool {
        match self.body {
            Body::Over => true,
            Body::Length(left) => left <= REST_BYTES_MAX && !owes_continue,
            Body::Chunked(_) | Body::Broken => false,
        }
    }

    /// Reads what is left of a body that nobody takes. False: the connection is of no use any more.
    pub fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match ready!(self.poll_body(cx)) {
                Some(Ok(_)) => (),
                Some(Err(_)) => return Poll::Ready(false),
                None => return Poll::Ready(true),
            }
        }
    }

    /// The next part of the body. Its error is why it is refused, if the client has not just left.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Option<Violation>>>> {
        loop {
            let end = match self.next_part() {
                Ok(Some(part)) => return Poll::Ready(Some(Ok(part))),
                Ok(None) if matches!(self.body, Body::Over) => return Poll::Ready(None),
                Ok(None) => match self.poll_fill_body(cx) {
                    Poll::Ready(Ok(0) | Err(_)) => None,
                    Poll::Ready(Ok(count)) => {
                        self.read_wait.moved(count);
                        continue;
                    }
                    Poll::Pending if self.read_wait.is_slow(cx, BODY_IDLE) => Some(LATE),
                    Poll::Pending => return Poll::Pending,
                },
                Err(violation) => Some(violation),
            };
            self.body = Body::Broken;
            return Poll::Ready(Some(Err(end)));
        }
    }

    /// The next part of the body as far as it has come.
    fn next_part(&mut self) -> Result<Option<Bytes>, Violation> {
        loop {
            match &mut self.body {
                Body::Over => return Ok(None),
                Body::Broken => return Err(Violation { status: 400, why: "the request's body ended early" }),
                Body::Length(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(self.input.len());
                    *left -= count as u64;
                    if *left == 0 {
                        self.body = Body::Over;
                    }
                    return Ok((count > 0).then(|| self.input.split_to(count).freeze()));
                }
                Body::Chunked(chunks) => {
                    let (bytes, next) = chunks.next(&self.input, self.body_bytes_max)?;
                    self.input.advance(bytes);
                    match next {
                        Next::More => return Ok(None),
                        Next::End => self.body = Body::Over,
                        Next::Data(_) if self.input.is_empty() => return Ok(None),
                        Next::Data(left) => {
                            let count = usize::try_from(left).unwrap_or(usize::MAX).min(self.input.len());
                            chunks.took(count as u64);
                            return Ok(Some(self.input.split_to(count).freeze()));
                        }
                    }
                }
            }
        }
    }

    /// Reads once by way of the thread's room. Zero: the client has closed his side.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        poll_part(&mut self.stream, cx, |came| {
            if self.input.is_empty() {
                // As large as what came, not as what was there before.
                self.input = BytesMut::new();
            }
            self.input.extend_from_slice(came);
            came.len()
        })
    }

    /// Reads more of a body. While a long one comes it is read to where it stays, by as much as comes at once.
    fn poll_fill_body(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let polled = if self.is_long {
            self.input.reserve(BODY_READ_BYTES_MAX);
            let polled = pin!(self.stream.read_buf(&mut self.input)).poll(cx);
            if self.input.is_empty() {
                self.input = BytesMut::new();
            }
            polled
        } else {
            self.poll_fill(cx)
        };
        let count = ready!(polled)?;
        self.is_long = count >= ROOM_BYTES;
        Poll::Ready(Ok(count))
    }

    /// Ready when the client is gone while his request is being answered. What he sends behind it is not read for that.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.input.is_empty() || !matches!(self.body, Body::Over) {
            return Poll::Pending;
        }
        match ready!(self.poll_fill(cx)) {
            Ok(0) | Err(_) => Poll::Ready(()),
            Ok(_) => Poll::Pending,
        }
    }

    /// Writes all that there is to write.
    ///
    /// # Errors
    /// The client is gone, or takes too little.
    pub fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let polled = self.out.poll_once(&mut self.stream, cx);
            match self.in_time(cx, polled) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.write_wait.moved(count);
                    self.out.took(count);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.out.unflushed > 0 {
            let polled = Pin::new(&mut self.stream).poll_flush(cx).map_ok(|()| 0);
            ready!(self.in_time(cx, polled))?;
            self.write_wait.moved(self.out.unflushed);
            self.out.unflushed = 0;
        }
        Poll::Ready(Ok(()))
    }

    fn in_time(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if polled.is_pending() && self.write_wait.is_slow(cx, WRITE_IDLE) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes too little")));
        }
        polled
    }

    /// Ready when our side is closed, and the client's too or he has had a moment for it.
    pub fn poll_part(&mut self, cx: &mut Context<'_>, linger: &mut Option<Linger>) -> Poll<()> {
        if linger.is_none() {
            // How it went does not matter any more.
            let _ = ready!(Pin::new(&mut self.stream).poll_shutdown(cx));
        }
        linger.get_or_insert_default().poll(&mut self.stream, cx).map(drop)
    }

    /// Nothing is under way: what was needed for it goes back.
    pub fn rest(&mut self) {
        debug_assert!(self.out.is_empty(), "an answer is over when it is written");
        rooms::give_bytes(std::mem::take(&mut self.out).bytes);
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
    }

    /// The stream for who speaks something else on it, and what has come of that.
    pub fn hand_over(&mut self) -> Handed {
        let stream = std::mem::replace(&mut self.stream, Box::new(tokio::io::empty()));
        Handed { stream, early: std::mem::take(&mut self.input).freeze() }
    }
}

impl Out {
    pub fn is_empty(&self) -> bool {
        self.written == self.bytes.len() && self.data.is_empty() && self.tail.is_empty()
    }

    /// Whether another part may be put in before these are written.
    pub fn has_room(&self) -> bool {
        self.data.is_empty() && self.tail.is_empty() && self.bytes.len() < OUT_BYTES_MAX
    }

    /// Puts a part of a body in, with `tail` behind it. A small one leaves together with what is before it.
    pub fn push(&mut self, data: Bytes, tail: &'static [u8]) {
        if data.len() <= SMALL_PART_BYTES {
            self.bytes.extend_from_slice(&data);
            self.bytes.extend_from_slice(tail);
        } else {
            (self.data, self.tail) = (data, tail);
        }
    }

    fn poll_once(&self, stream: &mut Box<dyn Duplex>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let bytes = &self.bytes[self.written..];
        let stream = Pin::new(stream);
        if self.data.is_empty() && self.tail.is_empty() {
            return stream.poll_write(cx, bytes);
        }
        let parts = [bytes, &self.data, self.tail].map(IoSlice::new);
        let from = parts.iter().position(|part| !part.is_empty()).unwrap_or(0);
        stream.poll_write_vectored(cx, &parts[from..])
    }

    fn took(&mut self, mut count: usize) {
        self.unflushed += count;
        let of_bytes = count.min(self.bytes.len() - self.written);
        self.written += of_bytes;
        count -= of_bytes;
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        }
        let of_data = count.min(self.data.len());
        self.data.advance(of_data);
        if self.data.is_empty() {
            self.data = Bytes::new();
        }
        self.tail = &self.tail[count - of_data..];
    }
}

/// The body of one request as it comes.
pub struct FromClient {
    wire: Arc<Wire>,
    number: u64,
}

impl FromClient {
    /// The body of the request whose head was taken last.
    pub fn new(wire: &Arc<Wire>) -> Self {
        let number = wire.lock().number;
        Self { wire: Arc::clone(wire), number }
    }

    #[cfg(test)]
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Its connection, as long as that is still at this request.
    fn inner(&self) -> Option<MutexGuard<'_, Inner>> {
        Some(self.wire.lock()).filter(|inner| inner.number == self.number)
    }

    /// All of it was taken.
    pub fn is_over(&self) -> bool {
        self.inner().is_none_or(|inner| matches!(inner.body, Body::Over))
    }

    /// How many bytes are to come, if that is known.
    pub fn left(&self) -> Option<u64> {
        match self.inner()?.body {
            Body::Over => Some(0),
            Body::Length(left) => Some(left),
            Body::Chunked(_) | Body::Broken => None,
        }
    }

    /// Bounds the body to so many bytes, with what the sizes of chunks announce.
    pub fn may_have(&self, bytes_max: u64) {
        if let Some(mut inner) = self.inner() {
            inner.body_bytes_max = bytes_max;
        }
    }

    pub fn poll_part(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Option<Violation>>>> {
        self.inner().map_or(Poll::Ready(Some(Err(None))), |mut inner| inner.poll_body(cx))
    }
}
