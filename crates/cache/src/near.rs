//! What threads beside the machine's may know of it without asking: until when this node holds its leases, and whether anything has gone
//! or changed. Who has kept an answer gives it again, to a request that has begun, only if nothing has happened to its key since before
//! it was asked for, and the leases hold: then the machine would have given the same. So what is asked for again and again costs no
//! change of threads.
//!
//! The machine counts a change before it tells anybody that it was done: what it sends goes out after its turn.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use base::checksum::place_hash;
use base::{NodeId, Time};

use super::{Mark, What};

/// Changes of single keys are counted in so many parts, by the hash of the key: a change makes who has a copy of one of a few hundred
/// others ask again.
const PARTS: usize = 256;

/// One for the machine, and one for each who keeps answers.
#[derive(Clone, Debug)]
pub struct Near(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The node's number.
    me: AtomicU64,
    /// On the machine's clock; 0: it holds none.
    until: AtomicU64,
    /// Changes that are about any key: purges by prefix or tag, what is forgotten, nodes that come and go.
    all: AtomicU64,
    parts: [AtomicU64; PARTS],
    /// Reads that were answered by a copy.
    hits: AtomicU64,
}

impl Default for Near {
    fn default() -> Self {
        let [me, until, all, hits] = [const { AtomicU64::new(0) }; 4];
        Self(Arc::new(Shared { me, until, all, parts: [const { AtomicU64::new(0) }; PARTS], hits }))
    }
}

/// How much had changed of a key at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    all: u64,
    part: u64,
}

impl Near {
    fn part(&self, key: &[u8]) -> &AtomicU64 {
        &self.0.parts[place_hash(key) as usize % PARTS]
    }

    // For the machine.

    pub(super) fn is_of(&self, me: NodeId) {
        self.0.me.store(me.0, Release);
    }

    pub(super) fn held(&self, until: Time) {
        self.0.until.store(until.0, Release);
    }

    pub(super) fn changed(&self, key: &[u8]) {
        self.part(key).fetch_add(1, Release);
    }

    pub(super) fn changed_all(&self) {
        self.0.all.fetch_add(1, Release);
    }

    pub(super) fn purged(&self, what: &What) {
        match what {
            What::Key(key) => self.changed(key),
            What::Prefix(_) | What::Tag(_) | What::All => self.changed_all(),
        }
    }

    pub(super) fn hits(&self) -> u64 {
        self.0.hits.load(Relaxed)
    }

    // For who keeps answers.

    /// The answers of a machine to which nothing happens.
    pub fn for_tests(until: Time) -> Self {
        let near = Self::default();
        near.held(until);
        near
    }

    /// As if something had happened to a key there.
    pub fn changed_in_tests(&self, key: &[u8]) {
        self.changed(key);
    }

    /// To be taken before something is asked for.
    pub fn moment(&self, key: &[u8]) -> Moment {
        Moment { all: self.0.all.load(Acquire), part: self.part(key).load(Acquire) }
    }

    /// Whether what came with this mark was here, and did not come from another node, of whose changes nothing is heard.
    pub fn is_here(&self, mark: Mark) -> bool {
        mark.node.0 == self.0.me.load(Acquire)
    }

    /// Whether an answer to what was asked for after that moment may be given again. `now`: on the machine's clock, taken after the
    /// request has begun that it is given to.
    pub fn holds(&self, now: Time, key: &[u8], moment: Moment) -> bool {
        now.0 < self.0.until.load(Acquire) && self.moment(key) == moment
    }

    /// Counts an answer that was given from here.
    pub fn hit(&self) {
        self.0.hits.fetch_add(1, Relaxed);
    }
}
