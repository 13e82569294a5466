//! One link: an authenticated connection to a peer, once its handshake is done. A reader turns bytes into frames, a
//! writer everything that waits into few large writes. This is the hot path of a node: each received frame lies in memory
//! of its own (so a stored value pins nothing else), and a sent body is first copied when it is encrypted.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, BufRead, IoSlice, Write};
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, ready};

use base::frame::{FrameError, HEADER_BYTES};
use base::limits::FRAME_BYTES_MAX;
use base::{Boot, Frame, LinkEnd, NodeId, kind};
use bytes::{Bytes, BytesMut};
use rustls::Connection;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::limits::{COPY_BODY_BYTES, LOSER_LINGERS, WRITE_BYTES};
use crate::outbox::Outbox;
use crate::piece::Gathered;

/// A link that the table of links knows.
pub(crate) struct Link {
    pub peer: NodeId,
    pub boot: Boot,
    /// We dialled it, not the peer.
    pub dialled: bool,
    pub since: std::time::Instant,
    pub outbox: Outbox,
    /// The machine asked to close it, and hears of its end.
    pub hung_up: Cell<bool>,
    figures: Rc<Figures>,
    /// We are closing it ourselves.
    cut: Cell<bool>,
    tls: RefCell<Connection>,
    writer: OwnedWriteHalf,
}

/// What all links of a node counted since it started.
#[derive(Default)]
pub(crate) struct Figures {
    pub received: Cell<u64>,
    pub sent: Cell<u64>,
    pub dropped: Cell<u64>,
}

pub(crate) fn count(figure: &Cell<u64>, more: u64) {
    figure.set(figure.get() + more);
}

/// What a finished handshake knows of the other side.
pub(crate) struct Peer {
    pub node: NodeId,
    pub boot: Boot,
    pub card: Bytes,
    /// It puts large frames together again.
    pub takes_pieces: bool,
}

impl Link {
    pub fn new(
        peer: Peer,
        dialled: bool,
        (tcp, mut tls): (TcpStream, Connection),
        figures: Rc<Figures>,
    ) -> (Rc<Link>, OwnedReadHalf) {
        // Bounded by us: never more than one write of plaintext at a time.
        tls.set_buffer_limit(None);
        let (reader, writer) = tcp.into_split();
        let link = Link {
            peer: peer.node,
            boot: peer.boot,
            dialled,
            since: std::time::Instant::now(),
            outbox: Outbox::new(peer.takes_pieces),
            hung_up: Cell::new(false),
            figures,
            cut: Cell::new(false),
            tls: RefCell::new(tls),
            writer,
        };
        (Rc::new(link), reader)
    }

    /// Ends both directions at once; the reader notices.
    pub fn cut(&self) {
        self.cut.set(true);
        self.shutdown(rustix::net::Shutdown::Both);
        self.outbox.finish();
    }

    fn shutdown(&self, how: rustix::net::Shutdown) {
        // It may be closed already, which is what we want.
        let _ = rustix::net::shutdown(self.writer.as_ref(), how);
    }

    /// Reads until the link ends. `deliver` gets all frames of one read, and leaves the list empty. `buffer` is shared by
    /// all links of the thread and used only while one of them is in the middle of a read.
    pub async fn read(
        &self,
        mut reader: OwnedReadHalf,
        buffer: &RefCell<Vec<u8>>,
        mut deliver: impl FnMut(&mut Vec<Frame>),
    ) -> LinkEnd {
        let mut frames = Vec::new();
        let mut assembler = Assembler::default();
        // What came with the last bytes of the handshake.
        let mut step = self.drain(&mut assembler, &mut frames).map(|()| true);
        loop {
            count(&self.figures.received, frames.len() as u64);
            deliver(&mut frames);
            match step {
                Ok(true) => (),
                Ok(false) => return LinkEnd::Closed,
                Err(e) => return self.end_of(&e),
            }
            let full;
            (step, full) = poll_fn(|cx| {
                let mut buffer = buffer.borrow_mut();
                let mut buf = ReadBuf::new(&mut buffer);
                let read = ready!(Pin::new(&mut reader).poll_read(cx, &mut buf));
                let full = buf.remaining() == 0;
                let step = read.and_then(|()| self.open(buf.filled(), &mut assembler, &mut frames));
                Poll::Ready((step, full))
            })
            .await;
            if self.tls.borrow().wants_write() {
                self.outbox.wake();
            }
            if full {
                // More is waiting: first let the others, and our own answers, have their turn.
                count(&self.figures.received, frames.len() as u64);
                deliver(&mut frames);
                tokio::task::yield_now().await;
            }
        }
    }

    /// Decrypts what was read; false at the end of the stream.
    fn open(&self, mut sealed: &[u8], assembler: &mut Assembler, frames: &mut Vec<Frame>) -> io::Result<bool> {
        if sealed.is_empty() {
            return Ok(false);
        }
        while !sealed.is_empty() {
            let mut tls = self.tls.borrow_mut();
            if tls.read_tls(&mut sealed)? == 0 {
                return Ok(false);
            }
            let state = tls.process_new_packets().map_err(io::Error::other)?;
            drop(tls);
            if state.plaintext_bytes_to_read() > 0 {
                self.drain(assembler, frames)?;
            }
            if state.peer_has_closed() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn drain(&self, assembler: &mut Assembler, frames: &mut Vec<Frame>) -> io::Result<()> {
        let mut tls = self.tls.borrow_mut();
        let mut reader = tls.reader();
        loop {
            let chunk = match reader.fill_buf() {
                Ok([]) => return Ok(()),
                Ok(chunk) => chunk,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            };
            let len = chunk.len();
            assembler.push(chunk, frames).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
            reader.consume(len);
        }
    }

    fn end_of(&self, e: &io::Error) -> LinkEnd {
        match e.kind() {
            io::ErrorKind::TimedOut => LinkEnd::TimedOut,
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
                LinkEnd::Closed
            }
            _ => {
                tracing::warn!(peer = %self.peer, "the link is closed: {e}");
                LinkEnd::Closed
            }
        }
    }

    /// Writes until the link is finished or broken.
    pub async fn write(&self) {
        let mut batch = Batch::default();
        loop {
            let whole = self.outbox.take(WRITE_BYTES, &mut batch.frames);
            if batch.frames.is_empty() && !self.tls.borrow().wants_write() {
                if self.outbox.is_finished() {
                    break;
                }
                self.outbox.changed().await;
                continue;
            }
            batch.seal(&mut self.tls.borrow_mut());
            count(&self.figures.sent, whole);
            if self.flush().await.is_err() {
                // The reader finds out why.
                self.shutdown(rustix::net::Shutdown::Both);
                return;
            }
        }
        if !self.cut.get() {
            tokio::time::sleep(LOSER_LINGERS).await;
        }
        self.tls.borrow_mut().send_close_notify();
        let _ = self.flush().await;
        self.shutdown(rustix::net::Shutdown::Write);
    }

    async fn flush(&self) -> io::Result<()> {
        while self.tls.borrow().wants_write() {
            let wrote = self.tls.borrow_mut().write_tls(&mut TryWrite(&self.writer));
            match wrote {
                Ok(_) => (),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writer.writable().await?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Frames on their way into one encrypted write, and the memory used for it.
#[derive(Default)]
struct Batch {
    frames: Vec<Frame>,
    /// Everything but large bodies, one after the other.
    heads: BytesMut,
    /// Large bodies, and where in `heads` each belongs.
    bodies: Vec<(usize, Bytes)>,
}

impl Batch {
    /// Encrypts all frames.
    fn seal(&mut self, tls: &mut Connection) {
        for mut frame in self.frames.drain(..) {
            if frame.body.len() <= COPY_BODY_BYTES {
                frame.encode(&mut self.heads);
                continue;
            }
            let body = mem::take(&mut frame.body);
            encode_without_body(&frame, body.len(), &mut self.heads);
            self.bodies.push((self.heads.len(), body));
        }
        let mut slices = Vec::with_capacity(2 * self.bodies.len() + 1);
        let mut from = 0;
        for (at, body) in &self.bodies {
            slices.push(IoSlice::new(&self.heads[from..*at]));
            slices.push(IoSlice::new(body));
            from = *at;
        }
        if from < self.heads.len() {
            slices.push(IoSlice::new(&self.heads[from..]));
        }
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        if bytes > 0 {
            let taken = tls.writer().write_vectored(&slices).expect("the buffer of an open connection has no limit");
            assert_eq!(taken, bytes, "a part of a frame would be lost");
        }
        self.bodies.clear();
        if self.heads.capacity() > 2 * WRITE_BYTES {
            self.heads = BytesMut::new();
        }
        self.heads.clear();
    }
}

/// The frame's bytes up to where a body of `body` bytes begins: those of the frame without one, with the length set right.
fn encode_without_body(frame: &Frame, body: usize, out: &mut BytesMut) {
    let at = out.len();
    frame.encode(out);
    let len = out.len() - at - 4 + body;
    assert!(len <= FRAME_BYTES_MAX, "a frame of {len} bytes was queued");
    out[at..at + 4].copy_from_slice(&(len as u32).to_be_bytes());
}

/// Puts frames together from pieces of plaintext, each in memory of its own.
#[derive(Default)]
struct Assembler {
    /// The frame's first four bytes, which say how long it is.
    length: [u8; 4],
    have: usize,
    /// The frame so far, from those four bytes on.
    frame: BytesMut,
    /// Bytes that are still missing; 0 between frames.
    missing: usize,
    /// Of a large frame that comes in pieces.
    large: Gathered,
}

impl Assembler {
    fn push(&mut self, mut chunk: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        loop {
            if self.missing == 0 {
                let take = chunk.len().min(4 - self.have);
                self.length[self.have..self.have + take].copy_from_slice(&chunk[..take]);
                self.have += take;
                chunk = &chunk[take..];
                if self.have < 4 {
                    return Ok(());
                }
                let len = u32::from_be_bytes(self.length) as usize;
                if len > FRAME_BYTES_MAX {
                    return Err(FrameError::TooLong { bytes: len });
                }
                if len < HEADER_BYTES {
                    return Err(FrameError::HeaderTooShort { bytes: len });
                }
                self.frame = BytesMut::with_capacity(4 + len);
                self.frame.extend_from_slice(&self.length);
                (self.missing, self.have) = (len, 0);
            }
            let take = chunk.len().min(self.missing);
            self.frame.extend_from_slice(&chunk[..take]);
            self.missing -= take;
            chunk = &chunk[take..];
            if self.missing > 0 {
                return Ok(());
            }
            let frame = Frame::decode(&mut self.frame)?.expect("the frame is whole");
            if frame.kind == kind::PIECE {
                frames.extend(self.large.add(&frame)?);
            } else {
                frames.push(frame);
            }
        }
    }
}

struct TryWrite<'a>(&'a OwnedWriteHalf);

impl Write for TryWrite<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(n: u8, body: usize) -> Frame {
        Frame { body: Bytes::from(vec![n; body]), budget_ms: n.into(), ..Frame::new(kind::SESSION, vec![n; 5]) }
    }

    #[test]
    fn a_frame_without_its_body_has_the_same_bytes_up_to_there() {
        let (mut whole, mut part) = (BytesMut::new(), BytesMut::new());
        frame(7, 5000).encode(&mut whole);
        let mut bare = frame(7, 5000);
        bare.body = Bytes::new();
        encode_without_body(&bare, 5000, &mut part);
        part.extend_from_slice(&[7; 5000]);
        assert_eq!(whole, part);
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_the_bytes_are_cut(
            sizes in prop::collection::vec(0usize..3000, 1..8), cuts in prop::collection::vec(1usize..700, 1..20)
        ) {
            let sent: Vec<Frame> = sizes.iter().enumerate().map(|(i, &size)| frame(i as u8, size)).collect();
            let mut bytes = BytesMut::new();
            sent.iter().for_each(|frame| frame.encode(&mut bytes));
            let (mut assembler, mut got, mut rest, mut cuts) =
                (Assembler::default(), Vec::new(), &bytes[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let cut = (*cuts.next().unwrap()).min(rest.len());
                assembler.push(&rest[..cut], &mut got).unwrap();
                rest = &rest[cut..];
            }
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn any_bytes_are_frames_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Assembler::default().push(&bytes, &mut Vec::new());
        }
    }
}
