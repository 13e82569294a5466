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
}

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
        TunnelStream { stream, end }
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
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut *self.stream).poll_read(cx, to) {
            Poll::Pending => self.waits(&self.end.reader, cx),
            read => read,
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
