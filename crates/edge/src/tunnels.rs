//! Streams to clones on other nodes. They end when their node is known to be dead: a process that hangs closes nothing and its
//! kernel acknowledges whatever comes, so a request would wait for its answer to the end of its time, and so would one that had
//! been sent when a network was cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use base::NodeId;
use futures_util::task::AtomicWaker;
use node::View;
use node::view::NodeState;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::pool::Duplex;

/// One stream through a tunnel.
pub struct TunnelStream {
    stream: Box<dyn Duplex>,
    end: Arc<End>,
    /// How it has ended, behind what it said last.
    broke: Option<io::Error>,
}

/// A piece of so many bytes is one of a long body, mostly: the next one may have come, too.
const LONG_BYTES: usize = 8 << 10;

/// How a stream hears that its node is dead. Costs a waker's registration where there is nothing to read or no room to write.
#[derive(Default)]
struct End {
    is_over: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

/// All that are open, by node.
#[derive(Default)]
pub struct Tunnels(Mutex<BTreeMap<NodeId, Vec<Weak<End>>>>);

impl Tunnels {
    /// `stream` leads to this node.
    pub fn hold(&self, node: NodeId, stream: Box<dyn Duplex>) -> TunnelStream {
        let end = Arc::<End>::default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_node = all.entry(node).or_default();
        if of_node.len() == of_node.capacity() {
            of_node.retain(|end| end.strong_count() > 0);
            of_node.reserve(of_node.len());
        }
        of_node.push(Arc::downgrade(&end));
        TunnelStream { stream, end, broke: None }
    }

    /// Ends those to nodes that are dead in this view.
    pub fn end(&self, view: &View) {
        let dead: BTreeSet<NodeId> =
            view.nodes.iter().filter(|node| node.state == NodeState::Dead).map(|node| node.id).collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for end in dead.iter().filter_map(|node| all.remove(node)).flatten().filter_map(|end| end.upgrade()) {
            end.is_over.store(true, SeqCst);
            end.reader.wake();
            end.writer.wake();
        }
    }
}

impl TunnelStream {
    /// Nothing came of it. The waker is registered before it is looked, so whoever is to be woken is.
    fn waits<T>(&self, waker: &AtomicWaker, cx: &Context<'_>) -> Poll<io::Result<T>> {
        waker.register(cx.waker());
        if self.end.is_over.load(SeqCst) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, "the clone's node is dead")));
        }
        Poll::Pending
    }
}

impl AsyncRead for TunnelStream {
    /// As much as there is room for: TLS gives one record at a time, and each read of a body is a write to its client.
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.broke.take() {
            return Poll::Ready(Err(error));
        }
        let first = to.filled().len();
        loop {
            let before = to.filled().len();
            let has_some = before > first;
            match Pin::new(&mut *self.stream).poll_read(cx, to) {
                Poll::Ready(Ok(())) if to.filled().len() - before >= LONG_BYTES && to.remaining() > 0 => (),
                Poll::Ready(Err(error)) if has_some => {
                    self.broke = Some(error);
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending if has_some => return Poll::Ready(Ok(())),
                Poll::Pending => return self.waits(&self.end.reader, cx),
                read => return read,
            }
        }
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut *self.stream).poll_write(cx, bytes) {
            Poll::Pending => self.waits(&self.end.writer, cx),
            written => written,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut *self.stream).poll_write_vectored(cx, parts) {
            Poll::Pending => self.waits(&self.end.writer, cx),
            written => written,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut *self.stream).poll_flush(cx) {
            Poll::Pending => self.waits(&self.end.writer, cx),
            flushed => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut *self.stream).poll_shutdown(cx) {
            Poll::Pending => self.waits(&self.end.writer, cx),
            shut => shut,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Gives one piece with each read; then it breaks, ends, or says nothing more for now.
    struct Records {
        left: Vec<usize>,
        breaks: Option<bool>,
    }

    impl AsyncRead for Records {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            match (self.left.pop(), self.breaks) {
                (Some(piece), _) => to.put_slice(&vec![b'x'; piece]),
                // It says so once, and then looks like an end.
                (None, Some(true)) => {
                    self.breaks = Some(false);
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                (None, Some(false)) => (),
                (None, None) => return Poll::Pending,
            }
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Records {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn one_read_brings_all_records_that_have_come_and_how_it_ended_comes_behind_them() {
        const RECORD: usize = 16 << 10;
        for (left, breaks, reads) in [
            (vec![RECORD; 5], None, vec![Some(4 * RECORD), Some(RECORD), None]),
            (vec![100, RECORD], None, vec![Some(RECORD + 100), None]),
            (vec![RECORD, 100], None, vec![Some(100), Some(RECORD), None]),
            (vec![RECORD; 2], Some(true), vec![Some(2 * RECORD), None, Some(0)]),
            (vec![RECORD; 2], Some(false), vec![Some(2 * RECORD), Some(0), Some(0)]),
        ] {
            let mut stream = Tunnels::default().hold(NodeId(2), Box::new(Records { left: left.clone(), breaks }));
            for read in reads {
                let mut room = vec![0; 4 * RECORD];
                let mut to = ReadBuf::new(&mut room);
                let polled = Pin::new(&mut stream).poll_read(&mut Context::from_waker(Waker::noop()), &mut to);
                let came = matches!(polled, Poll::Ready(Ok(()))).then(|| to.filled().len());
                assert_eq!(came, read, "{left:?} {breaks:?}");
            }
        }
    }
}
