//! The read buffer of a connection: how large it is when, and what of it counts for the node. What is in it is `parse`'s
//! matter.

use std::rc::Rc;

use bytes::BytesMut;

use super::Node;
use super::limits::*;

/// The read buffer. It is as large as what came lately, so that one read takes all that is there and a kept value
/// holds on to little more than itself; and it is gone while nothing comes.
pub struct Input {
    node: Rc<Node>,
    pub buffer: BytesMut,
    /// Size of the memory that `buffer` is a part of.
    pub allocated: usize,
    /// What of it counts in [`Node::read_bytes`].
    charged: usize,
    /// What a read is expected to bring, bytes.
    hint: usize,
}

impl Input {
    pub fn new(node: Rc<Node>) -> Self {
        Self { node, buffer: BytesMut::new(), allocated: 0, charged: 0, hint: READ_BYTES_MIN }
    }

    /// Makes room for what is missing at least. False if all connections together hold too much.
    pub fn make_room(&mut self, missing: usize) -> bool {
        // An unfinished command may be moved to a new buffer rather than be read in small pieces at the end of its own.
        let wanted = if self.buffer.is_empty() { self.hint } else { missing.clamp(self.hint / 2, READ_STEP_BYTES_MAX) };
        let spare = self.buffer.capacity() - self.buffer.len();
        if spare >= wanted {
            return true;
        }
        if self.buffer.is_empty() && self.buffer.try_reclaim(wanted) {
            return true;
        }
        // Mostly no less than doubled, so that a large command is moved a few times only.
        let size = (self.buffer.len() + wanted + READ_SLACK_BYTES).max(self.hint).max(self.doubled());
        let charge = if size > READ_BYTES_MAX { size } else { 0 };
        let all = self.node.read_bytes.get() - self.charged + charge;
        if charge > 0 && all > READ_BYTES_ALL_MAX {
            return false;
        }
        self.node.read_bytes.set(all);
        self.charged = charge;
        let mut buffer = BytesMut::with_capacity(size);
        buffer.extend_from_slice(&self.buffer);
        self.allocated = buffer.capacity();
        self.buffer = buffer;
        true
    }

    /// Twice what an unfinished large command has so far, within bounds.
    fn doubled(&self) -> usize {
        let len = self.buffer.len();
        if len >= READ_STEP_BYTES_MAX { len + len.min(READ_GROWS_MAX) } else { 0 }
    }

    /// The last read brought as much as there was room for.
    pub fn is_full(&self) -> bool {
        self.buffer.len() == self.buffer.capacity()
    }

    /// A read brought `n` bytes: the next is expected to be like it, or like a larger one a while ago.
    pub fn came(&mut self, n: usize) {
        let full = self.is_full();
        let like = if full { n * 2 } else { n + n / 16 };
        let like = (like + READ_SLACK_BYTES).next_multiple_of(512).clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        self.hint = if like > self.hint { like } else { self.hint - (self.hint - like) / 16 };
    }

    /// Nothing comes: gives back memory that holds nothing.
    pub fn rest(&mut self) {
        if self.buffer.is_empty() && self.allocated > 0 {
            self.buffer = BytesMut::new();
            self.allocated = 0;
            self.uncharge();
        }
    }

    fn uncharge(&mut self) {
        self.node.read_bytes.set(self.node.read_bytes.get() - self.charged);
        self.charged = 0;
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.uncharge();
    }
}

/// Room past what is expected, so that a read is not full by chance: a full one has to be repeated.
const READ_SLACK_BYTES: usize = 64;
