//! Answers that clients have not taken yet. Many clients write a whole pipeline before they read the first answer of it, so a
//! connection is read and answered on while they do, and what its client has not taken is kept: each connection may have some,
//! more of a share, and all shares come out of what the node has for that. Who has used its share up is not read from until
//! it takes something. If it takes nothing for a while it will not before it has written all, and is given up.

use std::pin::Pin;
use std::rc::Rc;
use std::task::Context;

use tokio::time::{Sleep, sleep};

use super::Node;
use super::limits::*;

/// What one connection keeps.
pub struct Unread {
    node: Rc<Node>,
    /// What of it counts in [`Node::unread_bytes`].
    charged: usize,
    /// Runs while the client wants more than there is room for, and takes nothing.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Unread {
    pub fn new(node: Rc<Node>) -> Self {
        Self { node, charged: 0, patience: None }
    }

    /// So much is unread now.
    pub fn count(&mut self, bytes: usize) {
        let charge = bytes.saturating_sub(UNREAD_BYTES_FREE);
        if charge != self.charged {
            let all = self.node.unread_bytes.get() - self.charged + charge;
            self.node.unread_bytes.set(all);
            self.node.meter.unread.show(all);
            self.charged = charge;
        }
    }

    /// May there be more, with so much?
    pub fn has_room(&self, bytes: usize) -> bool {
        bytes < UNREAD_BYTES_FREE
            || bytes < UNREAD_BYTES_FREE + UNREAD_BYTES_SHARE && self.node.unread_bytes.get() < UNREAD_BYTES_ALL_MAX
    }

    /// The client has taken something, or need not.
    pub fn took(&mut self) {
        self.patience = None;
    }

    /// There is no room for what the client wants. For too long, without that it took anything?
    pub fn is_stuck(&mut self, cx: &mut Context<'_>) -> bool {
        self.patience.get_or_insert_with(|| Box::pin(sleep(UNREAD_TIME_MAX))).as_mut().poll(cx).is_ready()
    }

    /// What its client is told, or who reads the log.
    pub fn why(&self, bytes: usize) -> String {
        let (free, share, all) = (UNREAD_BYTES_FREE >> 20, UNREAD_BYTES_SHARE >> 20, UNREAD_BYTES_ALL_MAX >> 20);
        let most = if bytes < UNREAD_BYTES_FREE + UNREAD_BYTES_SHARE {
            format!("all connections of this node have {all} MiB of them, and each {free} MiB more")
        } else {
            format!("a connection may have {} MiB of them", free + share)
        };
        format!("too many answers are unread: {most}. Read while you write, or send shorter pipelines")
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.count(0);
    }
}
