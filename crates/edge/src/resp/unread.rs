//! Answers that clients have not taken yet. Many clients write a whole pipeline before they read the first answer of it, so a
//! connection is read and answered on while they do, and what its client has not taken is kept: each connection may have some,
//! more of a share, and all shares come out of what the node has for that, of which no namespace may have more than is left.
//! Who has used its share up is not read from until it takes something. If it takes nothing for a while it will not before it
//! has written all, and is given up. Who takes a little now and then must take more, the more is kept for it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep, sleep};

use super::Node;
use super::limits::*;

/// What one connection keeps.
pub struct Unread {
    node: Rc<Node>,
    /// What of it counts in [`Node::unread`],
    charged: usize,
    /// ... and for which namespace.
    whose: Arc<str>,
    /// Runs while the client wants more than there is room for, and takes nothing.
    patience: Option<Pin<Box<Sleep>>>,
}

/// What all connections of a node keep, but for what each may have anyway.
#[derive(Default)]
pub struct Kept {
    all: usize,
    /// Invariant: sums to `all`; none is 0.
    of: BTreeMap<Arc<str>, usize>,
}

impl Kept {
    fn change(&mut self, whose: &Arc<str>, from: usize, to: usize) {
        let mine = self.of.get(whose).copied().unwrap_or(0) - from + to;
        if mine == 0 {
            self.of.remove(whose);
        } else {
            self.of.insert(Arc::clone(whose), mine);
        }
        self.all = self.all - from + to;
    }

    /// A namespace has no more than is left for all: the first has half, and each other one half of the rest.
    fn has_room(&self, whose: &str) -> bool {
        self.of.get(whose).copied().unwrap_or(0) < UNREAD_BYTES_ALL_MAX.saturating_sub(self.all)
    }
}

/// A client that has something to take. What it takes is measured over a while: a byte now and then would keep all of it.
pub struct Stall {
    until: Pin<Box<Sleep>>,
    last: Instant,
    taken: usize,
    enough: usize,
}

impl Stall {
    /// With so much unread.
    pub fn new(bytes: usize) -> Self {
        Self { until: Box::pin(sleep(STALL_TIME_MAX)), last: Instant::now(), taken: 0, enough: Self::enough(bytes) }
    }

    fn enough(bytes: usize) -> usize {
        let part = bytes.saturating_sub(UNREAD_BYTES_FREE) / STALL_PART;
        bytes.min(part.max(STALL_BYTES_MIN)).max(1)
    }

    pub fn took(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes);
        self.last = Instant::now();
    }

    /// Ready if it took too little, with so much unread now. The next while begins when it last took something: what buffers on
    /// the way have swallowed at first gives nobody a second one.
    pub fn poll(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        while self.until.as_mut().poll(cx).is_ready() {
            if self.taken < self.enough {
                return Poll::Ready(());
            }
            self.until.as_mut().reset(self.last + STALL_TIME_MAX);
            (self.taken, self.enough) = (0, Self::enough(bytes));
        }
        Poll::Pending
    }
}

impl Unread {
    pub fn new(node: Rc<Node>) -> Self {
        Self { node, charged: 0, whose: "".into(), patience: None }
    }

    /// So much is unread now.
    pub fn count(&mut self, bytes: usize) {
        let charge = bytes.saturating_sub(UNREAD_BYTES_FREE);
        if charge != self.charged {
            let mut kept = self.node.unread.borrow_mut();
            kept.change(&self.whose, self.charged, charge);
            self.node.meter.unread.show(kept.all);
            self.charged = charge;
        }
    }

    /// It counts for this namespace from now on.
    pub fn is_of(&mut self, namespace: &Arc<str>) {
        if !Arc::ptr_eq(&self.whose, namespace) && self.whose != *namespace {
            let mut kept = self.node.unread.borrow_mut();
            kept.change(&self.whose, self.charged, 0);
            kept.change(namespace, 0, self.charged);
            self.whose = Arc::clone(namespace);
        }
    }

    /// May there be more, with so much?
    pub fn has_room(&self, bytes: usize) -> bool {
        bytes < UNREAD_BYTES_FREE
            || bytes < UNREAD_BYTES_FREE + UNREAD_BYTES_SHARE && self.node.unread.borrow().has_room(&self.whose)
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
            format!(
                "this namespace has as many as are left of the {all} MiB that this node has for them, and each connection {free} \
                 MiB more"
            )
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
