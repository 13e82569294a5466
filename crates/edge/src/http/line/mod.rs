//! One connection to a clone, on which we are the client of HTTP/1.1. It has no task of its own: whoever uses it drives
//! it, so a request stays on one thread and wakes nobody else. Under load a request costs one write and one read.
//!
//! Heads are written and read in `head`, bodies of answers taken apart in `framing`; both are pure.

mod framing;
mod head;
mod idle;
mod stream;

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::future::poll_fn;
use http::Response;
use http_body::{Body as _, Frame};
use tokio::io::{AsyncReadExt, AsyncWrite};

pub use head::{Expects, keeps, request};
pub use idle::Idle;

use super::body::{Counted, UpBody};
use super::check::Framing;
use super::flags::Flags;
use super::limits::{ANSWER_IDLE, CLONE_READ_BYTES, CLONE_READ_BYTES_MAX, CONTINUE_WAIT, HEAD_ROOM_BYTES};
use crate::pool::Stream;
use crate::wait::Wait;
use framing::Body;
use head::Said;
pub use head::Tongue;

const LAST_CHUNK: Bytes = Bytes::from_static(b"0\r\n\r\n");

pub struct Line {
    stream: Stream,
    out: Out,
    upload: Upload,
    /// The clone has not said yet that it wants the body.
    is_held: bool,
    /// What has come and was not taken yet.
    input: BytesMut,
    /// How much one read may bring: more while a long body comes.
    read_bytes: usize,
    body: Body,
    /// The clone takes another request after this one.
    keeps: bool,
    wait: Wait,
    /// The answer's body may be so long without a byte.
    idle: Duration,
    /// This answer's first bytes were acknowledged at once.
    acknowledged: bool,
}

/// A request for a clone.
pub struct Request {
    pub head: Vec<u8>,
    pub expects: Expects,
    pub framing: Framing,
    pub body: UpBody,
    /// How long the head of its answer is waited for.
    pub patience: Duration,
    /// How long its body may then be without a byte.
    pub idle: Duration,
    /// The client waits for leave to send the body, which the clone gives, or answers without it.
    pub asks_leave: bool,
    /// Who gets interim answers.
    pub interim: Option<Arc<Flags>>,
}

/// How a request came to nothing on one line.
pub enum Failed {
    /// The clone has not seen it; here is its body again.
    Unsent(UpBody),
    /// The clone has not seen the request, and has said something before it was asked; here is the body again.
    SpokeFirst(UpBody),
    /// The clone speaks something else: no such program understands what it was asked.
    Speaks(Tongue),
    /// The client broke its body off.
    Upload,
    /// The clone has it, and what it said is no answer: why.
    NoAnswer(&'static str),
    /// The connection ended; the clone may have seen the request.
    Ended(io::Error),
    /// The clone has it and says nothing.
    TimedOut,
}

/// What is to be written now: parts that follow each other, those that are over empty.
#[derive(Default)]
struct Out {
    /// Its room stays for the next one.
    head: Vec<u8>,
    /// So much of it is written.
    written: usize,
    /// The size line of a chunk.
    size: Bytes,
    data: Bytes,
    /// Behind a chunk, or the end of all.
    end: Bytes,
    /// Some of this request was written.
    began: bool,
    /// What was written may still be kept back by the stream.
    unflushed: bool,
}

/// What is to be written later.
enum Upload {
    Done,
    /// This many bytes more, from this body.
    Length(u64, Counted),
    Chunked(Counted),
    /// The body came to a bad end, so the clone waits for more.
    Broken,
}

/// Who broke an upload off.
enum Broken {
    Client,
    Clone,
}

impl Line {
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            out: Out::default(),
            upload: Upload::Done,
            is_held: false,
            input: BytesMut::new(),
            read_bytes: CLONE_READ_BYTES,
            body: Body::Over,
            keeps: true,
            wait: Wait::default(),
            idle: ANSWER_IDLE,
            acknowledged: false,
        }
    }

    /// Whether another request may go here, after an answer was taken.
    pub fn is_ready(&self) -> bool {
        self.keeps
            && self.is_over()
            && self.input.is_empty()
            && matches!(self.upload, Upload::Done)
            && self.out.is_empty()
            && !self.out.unflushed
    }

    /// Room for the head of the next request.
    pub fn room(&mut self) -> Vec<u8> {
        let mut room = std::mem::take(&mut self.out.head);
        room.clear();
        room
    }

    /// Nobody uses it for a while: what a long body or head needed goes back.
    fn rest(&mut self) {
        if self.out.head.capacity() > HEAD_ROOM_BYTES {
            self.out = Out::default();
        }
        if self.input.capacity() > 2 * CLONE_READ_BYTES {
            self.input = BytesMut::new();
        }
    }

    /// Whether all of the answer's body was taken.
    pub fn is_over(&self) -> bool {
        self.body == Body::Over
    }

    /// How many bytes of the answer's body are to come, if that is known.
    pub fn left(&self) -> Option<u64> {
        self.body.left()
    }

    /// Asks the system whether the clone has closed its side, which the runtime may not have noticed yet. A tunnel
    /// cannot be asked.
    pub fn is_surely_open(&self) -> bool {
        use rustix::net::{RecvFlags, recv};
        let mut byte = [0; 1];
        match &self.stream {
            Stream::Local(stream) => {
                let seen = recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
                matches!(seen, Err(rustix::io::Errno::AGAIN))
            }
            Stream::Tunnel(_) => true,
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub fn send(&mut self, request: Request) -> impl Future<Output = Result<Response<()>, Failed>> {
        let (expects, patience, interim) = (request.expects, request.patience, request.interim.clone());
        self.begin(request);
        poll_fn(move |cx| {
            let answer = ready!(self.poll_answer(cx, expects, patience, interim.as_deref()));
            Poll::Ready(match answer {
                Ok(head) => {
                    (self.body, self.keeps) = (head.body, head.keeps);
                    Ok(head.response)
                }
                Err(failed) => {
                    self.keeps = false;
                    Err(failed)
                }
            })
        })
    }

    fn begin(&mut self, request: Request) {
        let Request { head, framing, body, idle, asks_leave, .. } = request;
        self.idle = idle;
        self.wait.over();
        self.is_held = asks_leave;
        (self.acknowledged, self.read_bytes) = (false, CLONE_READ_BYTES);
        self.out = Out { head, ..Out::default() };
        self.upload = match (body, framing) {
            (UpBody::Stream(body), Framing::Length(bytes)) => Upload::Length(bytes, body),
            (UpBody::Stream(body), Framing::Chunked) => Upload::Chunked(body),
            (UpBody::Whole(bytes), _) => {
                self.out.data = bytes;
                Upload::Done
            }
            (UpBody::Empty, Framing::Length(_)) => Upload::Done,
            // It came back from another line when its end was known already.
            (UpBody::Empty, Framing::Chunked) => {
                self.out.end = LAST_CHUNK;
                Upload::Done
            }
        };
    }

    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        expects: Expects,
        patience: Duration,
        interim: Option<&Flags>,
    ) -> Poll<Result<head::Head, Failed>> {
        // A clone that closed while we were idle, or spoke unasked, gets nothing: what it says would be taken for the
        // answer.
        if !self.out.began {
            let closed = self.input.is_empty() && matches!(self.poll_fill(cx), Poll::Ready(Ok(0) | Err(_)));
            if closed {
                return Poll::Ready(Err(Failed::Unsent(self.unsent())));
            }
            if !self.input.is_empty() {
                let body = self.unsent();
                return Poll::Ready(Err(Tongue::of(&self.input).map_or(Failed::SpokeFirst(body), Failed::Speaks)));
            }
        }
        if let Some(failed) = self.sends(cx) {
            return Poll::Ready(Err(failed));
        }
        // Before anything is written there is nothing to be read, and it was looked just now.
        while self.out.began {
            if !self.input.is_empty() {
                match head::next(&mut self.input, expects) {
                    Ok(Some(Said::Answer(head))) => return Poll::Ready(Ok(head)),
                    Ok(Some(Said::Continue)) => {
                        if std::mem::take(&mut self.is_held)
                            && let Some(failed) = self.sends(cx)
                        {
                            return Poll::Ready(Err(failed));
                        }
                        continue;
                    }
                    Ok(Some(Said::Interim(head))) => {
                        interim.inspect(|flags| flags.send_interim(&head));
                        continue;
                    }
                    Ok(None) => (),
                    Err(why) => {
                        let failed = Tongue::of(&self.input).map_or(Failed::NoAnswer(why), Failed::Speaks);
                        return Poll::Ready(Err(failed));
                    }
                }
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(Failed::Ended(io::ErrorKind::UnexpectedEof.into()))),
                Poll::Ready(Ok(_)) => (),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Failed::Ended(error))),
                Poll::Pending => break,
            }
        }
        if self.is_held && self.wait.is_overdue(cx, CONTINUE_WAIT) {
            // It does not know of such.
            self.is_held = false;
            if let Some(failed) = self.sends(cx) {
                return Poll::Ready(Err(failed));
            }
        }
        if self.wait.is_overdue(cx, patience) { Poll::Ready(Err(Failed::TimedOut)) } else { Poll::Pending }
    }

    /// Writes what there is of the request while its answer is waited for; how that came to nothing, if it did.
    fn sends(&mut self, cx: &mut Context<'_>) -> Option<Failed> {
        match self.poll_upload(cx) {
            Poll::Ready(Err(Broken::Client)) => Some(Failed::Upload),
            Poll::Ready(Err(Broken::Clone)) if !self.out.began => Some(Failed::Unsent(self.unsent())),
            // It may have answered before it closed.
            Poll::Ready(_) | Poll::Pending => None,
        }
    }

    /// Reads once. Zero: the clone has closed its side.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.input.reserve(self.read_bytes);
        let room = self.input.capacity() - self.input.len();
        let count = ready!(pin!(self.stream.read_buf(&mut self.input)).poll(cx))?;
        if count == room {
            self.read_bytes = (2 * self.read_bytes).min(CLONE_READ_BYTES_MAX);
        }
        Poll::Ready(Ok(count))
    }

    /// The request comes back as it was; nothing of it was written.
    fn unsent(&mut self) -> UpBody {
        let out = std::mem::take(&mut self.out);
        match std::mem::replace(&mut self.upload, Upload::Done) {
            Upload::Length(_, mut body) | Upload::Chunked(mut body) => {
                body.put_back(out.data);
                UpBody::Stream(body)
            }
            Upload::Done | Upload::Broken if out.data.is_empty() => UpBody::Empty,
            Upload::Done | Upload::Broken => UpBody::Whole(out.data),
        }
    }

    /// Writes what there is of the request. Ready when that is all of it.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        loop {
            let waits = self.next_part(cx).map_err(|()| Broken::Client)?;
            if self.out.is_empty() {
                if self.out.unflushed {
                    ready!(Pin::new(&mut self.stream).poll_flush(cx)).map_err(|_| self.broken())?;
                    self.out.unflushed = false;
                }
                return if waits { Poll::Pending } else { Poll::Ready(Ok(())) };
            }
            let out = &self.out;
            let parts = [&out.head[out.written..], &out.size, &out.data, &out.end].map(IoSlice::new);
            let from = parts.iter().position(|part| !part.is_empty()).unwrap_or(0);
            let to = parts.iter().rposition(|part| !part.is_empty()).unwrap_or(from);
            let stream = Pin::new(&mut self.stream);
            let written = if from == to {
                stream.poll_write(cx, &parts[from])
            } else {
                stream.poll_write_vectored(cx, &parts[from..=to])
            };
            match ready!(written) {
                Ok(0) | Err(_) => return Poll::Ready(Err(self.broken())),
                Ok(count) => {
                    self.out.took(count);
                    self.out.unflushed = matches!(self.stream, Stream::Tunnel(_));
                    // As long as the client sends, the clone's time has not begun.
                    self.wait.over();
                }
            }
        }
    }

    /// The clone takes no more. What kind of error that was will be seen when its answer is read.
    fn broken(&mut self) -> Broken {
        if self.out.began {
            self.out = Out { began: true, ..Out::default() };
            self.upload = Upload::Broken;
        }
        Broken::Clone
    }

    /// Fetches more of the body when the last part is written. True: the client has to send more first.
    fn next_part(&mut self, cx: &mut Context<'_>) -> Result<bool, ()> {
        while self.out.data.is_empty() && self.out.end.is_empty() {
            let (Upload::Length(_, body) | Upload::Chunked(body)) = &mut self.upload else { return Ok(false) };
            if self.is_held {
                return Ok(true);
            }
            let data = match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return Ok(true),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => Some(data),
                    // Trailers are checked and dropped.
                    _ => continue,
                },
                Poll::Ready(None) => None,
                Poll::Ready(Some(Err(_))) => {
                    self.upload = Upload::Broken;
                    return Err(());
                }
            };
            match (&mut self.upload, data) {
                (Upload::Length(left, _), Some(data)) if *left >= data.len() as u64 => {
                    *left -= data.len() as u64;
                    let is_all = *left == 0;
                    self.out.data = data;
                    if is_all {
                        self.upload = Upload::Done;
                    }
                }
                (Upload::Chunked(_), Some(data)) => {
                    self.out.size = format!("{:x}\r\n", data.len()).into();
                    (self.out.data, self.out.end) = (data, Bytes::from_static(b"\r\n"));
                }
                (Upload::Chunked(_), None) => {
                    self.out.end = LAST_CHUNK;
                    self.upload = Upload::Done;
                }
                // More or less than it said.
                _ => {
                    self.upload = Upload::Broken;
                    return Err(());
                }
            }
        }
        Ok(false)
    }

    /// The next part of an answer's body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            match self.body.next(&mut self.input) {
                Ok(Some(frame)) => {
                    self.wait.over();
                    return Poll::Ready(Some(Ok(frame)));
                }
                Ok(None) if self.is_over() => return Poll::Ready(None),
                Ok(None) => (),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            // A clone may answer before it has the whole request; whether it takes the rest does not matter to its
            // answer.
            let _ = self.poll_upload(cx);
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0)) => {
                    self.keeps = false;
                    if let Err(error) = self.body.end() {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                Poll::Ready(Ok(_)) => (),
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending => break,
            }
        }
        if !std::mem::replace(&mut self.acknowledged, true) {
            self.acknowledge();
        }
        if self.wait.is_overdue(cx, self.idle) {
            let why = format!("the clone's answer stopped coming for {:?} (idle_timeout)", self.idle);
            let late = io::Error::new(io::ErrorKind::TimedOut, why);
            return Poll::Ready(Some(Err(late)));
        }
        Poll::Pending
    }

    /// Call when a part of the answer is waited for. True when that has taken so long.
    pub fn has_waited(&mut self, cx: &mut Context<'_>, limit: Duration) -> bool {
        self.wait.is_overdue(cx, limit)
    }

    /// Many small servers (Python's, for one) write head and body apart, and their system holds the body back until the
    /// head is acknowledged, which ours would put off for 40 ms. Costs a call only when a body did not come at once.
    fn acknowledge(&self) {
        if let Stream::Local(stream) = &self.stream {
            // It is a wish; without it all is right, only later.
            let _ = rustix::net::sockopt::set_tcp_quickack(stream, true);
        }
    }

    /// After 101: the stream, and what the clone has sent on it already.
    pub fn into_upgraded(self) -> (Stream, Bytes) {
        (self.stream, self.input.freeze())
    }
}

impl Out {
    fn is_empty(&self) -> bool {
        self.written == self.head.len() && self.size.is_empty() && self.data.is_empty() && self.end.is_empty()
    }

    fn took(&mut self, mut count: usize) {
        self.began = true;
        let of_head = count.min(self.head.len() - self.written);
        self.written += of_head;
        count -= of_head;
        for part in [&mut self.size, &mut self.data, &mut self.end] {
            let of_this = count.min(part.len());
            part.advance(of_this);
            if part.is_empty() {
                // Its room is for the next one.
                *part = Bytes::new();
            }
            count -= of_this;
        }
    }
}

#[cfg(test)]
mod tests;
