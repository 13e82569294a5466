//! Bodies on their way: `UpBody` to a clone, `DownBody` to a client. Neither gathers anything; each part is taken when
//! the other side has room for it. The end of a `DownBody` is the end of its request: its line goes back to the pool.
//!
//! What nobody takes of a request's body, since it was answered before, is read and thrown away: in HTTP/2 what comes
//! in a moment, so that the client hears the answer (`Counted::drop`); in HTTP/1 its connection does it (`server`).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use clones::limits::BODY_MAX_MAX;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::runtime::Handle;

use super::access::Record;
use super::cached::Reader;
use super::check::{LATE, TOO_LARGE, Violation};
use super::flags::Flags;
use super::h2::{self, Manners};
use super::lasting::Lasting;
use super::limits::{BODY_IDLE, LINGER};
use super::line::Line;
use super::server::FromClient;
use crate::pool::{InFlight, Upstream};
use crate::wait::Rate;

/// A request's body.
pub enum UpBody {
    Empty,
    /// Kept, since the request may be sent again.
    Whole(Bytes),
    Stream(Counted),
}

/// A body as the client sends it. Of HTTP/1 its connection times it; of HTTP/2 it is done here.
pub struct Counted {
    /// None if there is no body, and when it is dropped.
    from: Option<Origin>,
    /// A part that was taken out and came back.
    ahead: Bytes,
    /// So much more may come.
    bytes_left: u64,
    flags: Arc<Flags>,
}

enum Origin {
    Http1(FromClient),
    Http2(Incoming, Box<Limits>),
}

struct Limits {
    wait: Rate,
    manners: Option<Arc<Manners>>,
}

impl Counted {
    pub fn of_http1(from: FromClient, flags: &Arc<Flags>) -> Self {
        Self::new((!from.is_over()).then_some(Origin::Http1(from)), flags)
    }

    pub fn of_http2(incoming: Incoming, flags: &Arc<Flags>) -> Self {
        let limits = || Box::new(Limits { wait: Rate::default(), manners: h2::manners() });
        Self::new((!incoming.is_end_stream()).then(|| Origin::Http2(incoming, limits())), flags)
    }

    /// No body.
    pub fn none(flags: &Arc<Flags>) -> Self {
        Self::new(None, flags)
    }

    /// A body of up to the most bytes that any may have, until it is known whom it is for ([`Self::may_have`]).
    fn new(from: Option<Origin>, flags: &Arc<Flags>) -> Self {
        Self { from, ahead: Bytes::new(), bytes_left: BODY_MAX_MAX, flags: Arc::clone(flags) }
    }

    /// Bounds the body to so many bytes. False: its head announces more. To be called before any byte is taken.
    pub fn may_have(&mut self, bytes_max: u64) -> bool {
        self.bytes_left = bytes_max;
        if let Some(Origin::Http1(from)) = &self.from {
            from.may_have(bytes_max);
        }
        self.size_hint().lower() <= bytes_max
    }

    /// The part that was taken last, and went nowhere, is the next one again.
    pub fn put_back(&mut self, part: Bytes) {
        self.ahead = part;
    }
}

fn refuse<T>(flags: &Flags, violation: Violation) -> io::Result<T> {
    flags.set_violation(violation);
    Err(io::Error::new(io::ErrorKind::InvalidData, violation.why))
}

impl Body for Counted {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if !this.ahead.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.ahead)))));
        }
        let polled = match &mut this.from {
            None => return Poll::Ready(None),
            Some(Origin::Http1(from)) => {
                this.flags.wants_body();
                match ready!(from.poll_part(cx)) {
                    Some(Ok(part)) => Some(Ok(Frame::data(part))),
                    Some(Err(Some(violation))) => Some(refuse(&this.flags, violation)),
                    Some(Err(None)) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
                    None => None,
                }
            }
            Some(Origin::Http2(incoming, limits)) => match Pin::new(incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    limits.wait.moved(bytes);
                    h2::progress(bytes as u64);
                    Some(Ok(frame))
                }
                Poll::Ready(other) => other.map(|frame| frame.map_err(io::Error::other)),
                Poll::Pending if limits.wait.is_slow(cx, BODY_IDLE) => Some(refuse(&this.flags, LATE)),
                Poll::Pending => return Poll::Pending,
            },
        };
        if let Some(Ok(frame)) = &polled {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            match this.bytes_left.checked_sub(bytes) {
                Some(left) => this.bytes_left = left,
                None => return Poll::Ready(Some(refuse(&this.flags, TOO_LARGE))),
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        let is_over = match &self.from {
            None => true,
            Some(Origin::Http1(from)) => from.is_over(),
            Some(Origin::Http2(incoming, _)) => incoming.is_end_stream(),
        };
        self.ahead.is_empty() && is_over
    }

    fn size_hint(&self) -> SizeHint {
        let rest = match &self.from {
            None => SizeHint::with_exact(0),
            Some(Origin::Http1(from)) => from.left().map_or_else(SizeHint::new, SizeHint::with_exact),
            Some(Origin::Http2(incoming, _)) => incoming.size_hint(),
        };
        more(rest, self.ahead.len())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Some(Origin::Http2(incoming, limits)) = self.from.take() else { return };
        // Without a runtime the connection is over, too.
        if let (false, Ok(runtime)) = (incoming.is_end_stream(), Handle::try_current()) {
            if let Some(manners) = &limits.manners {
                manners.thrown_away.fetch_add(1, Relaxed);
            }
            runtime.spawn(throw_away(incoming, limits.manners));
        }
    }
}

/// Reads what is left of a body for a moment.
async fn throw_away(mut rest: Incoming, manners: Option<Arc<Manners>>) {
    let all = async {
        while let Some(Ok(frame)) = rest.frame().await {
            if let (Some(manners), Some(data)) = (&manners, frame.data_ref()) {
                manners.came(data.len() as u64);
            }
        }
    };
    // Who sends more after it is told to stop (RFC 9113 8.1).
    let _ = tokio::time::timeout(LINGER, all).await;
    if let Some(manners) = &manners {
        manners.thrown_away.fetch_sub(1, Relaxed);
    }
}

/// The size of `rest` with so many bytes before it.
fn more(rest: SizeHint, bytes: usize) -> SizeHint {
    let mut all = SizeHint::new();
    all.set_lower(rest.lower() + bytes as u64);
    if let Some(upper) = rest.upper() {
        all.set_upper(upper + bytes as u64);
    }
    all
}

/// An answer's body.
pub struct DownBody {
    /// Comes before the rest.
    ahead: Bytes,
    kind: Kind,
    /// A line of it is to be written: of services that have an access log.
    record: Option<Box<Record>>,
}

/// Where an answer's body comes from.
pub enum Source {
    Nothing,
    Clone(FromClone),
    Bytes(Bytes),
    /// A clone, while it is kept.
    Fill(Reader),
    /// What was read of it, and the rest.
    Ahead(Bytes, Box<Source>),
    /// The body broke off.
    Broken(io::ErrorKind),
}

enum Kind {
    Text(Bytes),
    Fill(Box<Reader>),
    FromClone(FromClone),
    Broken(io::ErrorKind),
}

pub struct FromClone {
    /// None only while it is dropped.
    pub line: Option<Box<Line>>,
    /// A part that has come already.
    pub first: Option<Frame<Bytes>>,
    pub upstream: Arc<Upstream>,
    pub in_flight: InFlight,
    /// Its end is in its framing: one that breaks off is not taken for whole.
    pub tells_end: bool,
    /// Present if the answer may last, as a stream of events does.
    pub lasting: Option<Box<Lasting>>,
    /// The body was ended here, before its clone ended it.
    pub is_ended: bool,
}

impl DownBody {
    pub fn text(text: impl Into<Bytes>) -> Self {
        Self { ahead: Bytes::new(), kind: Kind::Text(text.into()), record: None }
    }

    pub fn of(source: Source) -> Self {
        let (ahead, source) = source.parted();
        let kind = match source {
            Source::Ahead(..) => unreachable!("it was taken apart"),
            Source::Broken(kind) => Kind::Broken(kind),
            Source::Nothing => Kind::Text(Bytes::new()),
            Source::Bytes(bytes) => Kind::Text(bytes),
            Source::Clone(from) => Kind::FromClone(from),
            Source::Fill(reader) => Kind::Fill(Box::new(reader)),
        };
        Self { ahead, kind, record: None }
    }

    /// Leaves out what there is of it: how many bytes, if that is known. Who was asked for a head alone has left it out
    /// itself.
    pub fn keep_back(&mut self) -> u64 {
        if self.is_end_stream() {
            return 0;
        }
        let bytes = self.size_hint().exact().unwrap_or_default();
        self.ahead = Bytes::new();
        match &mut self.kind {
            Kind::FromClone(from) => {
                // What is still to come on this line is nobody's.
                (from.first, from.line, from.is_ended) = (None, None, true);
            }
            kind => *kind = Kind::Text(Bytes::new()),
        }
        bytes
    }

    /// The clone that it comes from, if it comes from one.
    pub fn clone_name(&self) -> Option<&str> {
        match &self.kind {
            Kind::FromClone(from) => Some(&from.upstream.name),
            Kind::Text(_) | Kind::Fill(_) | Kind::Broken(_) => None,
        }
    }

    /// What goes on into its service's access log.
    pub fn recorded(&mut self, mut record: Box<Record>) {
        // Whoever serves it need not ask for more.
        if self.is_end_stream() {
            record.ended();
        }
        self.record = Some(record);
    }
}

impl Source {
    /// What was read of it, and the rest, of which nothing was.
    fn parted(self) -> (Bytes, Source) {
        match self {
            Source::Ahead(ahead, rest) => match rest.parted() {
                (more, rest) if more.is_empty() => (ahead, rest),
                (more, rest) => ([ahead, more].concat().into(), rest),
            },
            other => (Bytes::new(), other),
        }
    }

    /// The next part of it, for who reads it before its client does.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self {
            Source::Nothing => Poll::Ready(None),
            Source::Bytes(bytes) => text(bytes),
            Source::Clone(from) => from.poll_frame(cx),
            Source::Fill(reader) => reader.poll_frame(cx),
            Source::Ahead(ahead, rest) if ahead.is_empty() => rest.poll_frame(cx),
            Source::Ahead(ahead, _) => text(ahead),
            Source::Broken(kind) => Poll::Ready(Some(Err((*kind).into()))),
        }
    }

    /// Whether its end is none that its clone made: it was cut here.
    pub fn is_cut(&self) -> bool {
        match self {
            Source::Clone(from) => from.is_ended,
            Source::Ahead(_, rest) => rest.is_cut(),
            Source::Nothing | Source::Bytes(_) | Source::Fill(_) | Source::Broken(_) => false,
        }
    }
}

fn text(bytes: &mut Bytes) -> Poll<Option<io::Result<Frame<Bytes>>>> {
    let bytes = std::mem::take(bytes);
    Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
}

impl Body for DownBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let polled = if this.ahead.is_empty() {
            match &mut this.kind {
                Kind::Text(bytes) => text(bytes),
                Kind::Fill(reader) => reader.poll_frame(cx),
                Kind::FromClone(from) => from.poll_frame(cx),
                Kind::Broken(kind) => Poll::Ready(Some(Err((*kind).into()))),
            }
        } else {
            text(&mut this.ahead)
        };
        if this.record.is_some() {
            this.note(&polled);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        if !self.ahead.is_empty() {
            return false;
        }
        match &self.kind {
            Kind::Broken(_) => false,
            Kind::Text(text) => text.is_empty(),
            Kind::Fill(reader) => reader.is_over(),
            Kind::FromClone(from) => from.first.is_none() && from.line.as_ref().is_none_or(|line| line.is_over()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let rest = match &self.kind {
            Kind::Broken(_) => SizeHint::new(),
            Kind::Text(text) => SizeHint::with_exact(text.len() as u64),
            Kind::Fill(reader) => reader.left.map_or_else(SizeHint::new, SizeHint::with_exact),
            Kind::FromClone(from) => {
                let first = from.first.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len);
                let rest = from.line.as_ref().and_then(|line| line.left());
                more(rest.map_or_else(SizeHint::new, SizeHint::with_exact), first)
            }
        };
        more(rest, self.ahead.len())
    }
}

impl DownBody {
    fn note(&mut self, polled: &Poll<Option<io::Result<Frame<Bytes>>>>) {
        let is_over = self.is_end_stream();
        let Some(record) = &mut self.record else { return };
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                record.moved(frame.data_ref().map_or(0, Bytes::len));
                if is_over {
                    record.ended();
                }
            }
            Poll::Ready(None) => record.ended(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => (),
        }
    }
}

impl FromClone {
    /// The next part of it.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if self.is_ended {
            return Poll::Ready(None);
        }
        let line = self.line.as_mut().expect("taken only when dropped");
        let polled = line.poll_frame(cx);
        let Some(lasting) = &mut self.lasting else { return polled };
        match &polled {
            Poll::Ready(Some(Ok(frame))) => lasting.passes(frame.data_ref()),
            Poll::Ready(_) => (),
            Poll::Pending => {
                let ended = ready!(lasting.poll_end(cx, line, &self.in_flight));
                self.is_ended = true;
                return Poll::Ready(ended.err().map(Err));
            }
        }
        polled
    }
}

impl Drop for FromClone {
    fn drop(&mut self) {
        if let Some(line) = self.line.take()
            && line.is_ready()
        {
            self.upstream.idle.put(line);
        }
    }
}
