//! A group of consumers: which entries were delivered to it, to whom of them, and which of these nobody has acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::paged::Paged;
use super::{Id, Log};

/// What a group counts beside its name and what is in it.
const GROUP_COST: usize = 128;
/// What a consumer counts beside its name.
const CONSUMER_COST: usize = 128;
/// What is delivered and not acknowledged counts, at the group and at the consumer.
const PENDING_COST: usize = 96;

#[derive(Clone, PartialEq, Default, Debug)]
pub struct Group {
    /// The last that was delivered.
    pub last: Id,
    /// How many of the stream were, if that is known.
    pub read: Option<u64>,
    pending: Paged<Pending>,
    consumers: BTreeMap<Bytes, Arc<Consumer>>,
    /// Of all consumers.
    consumer_bytes: usize,
}

/// Delivered, and not acknowledged.
#[derive(Clone, PartialEq, Debug)]
pub struct Pending {
    pub consumer: Bytes,
    /// When it was delivered last, milliseconds since 1970.
    pub at: u64,
    pub times: u64,
}

/// Times are milliseconds since 1970.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Consumer {
    /// When it asked for something last.
    pub seen: u64,
    /// When it got something last.
    pub active: Option<u64>,
    /// Invariant: what the group has as this one's.
    pending: Paged<()>,
}

impl Consumer {
    pub fn new(seen: u64, active: Option<u64>) -> Self {
        Self { seen, active, ..Self::default() }
    }

    pub fn pending(&self) -> &Paged<()> {
        &self.pending
    }
}

impl Group {
    pub fn new(last: Id, read: Option<u64>) -> Self {
        Self { last, read, ..Self::default() }
    }

    pub fn bytes(&self) -> usize {
        GROUP_COST + self.consumer_bytes + self.pending.len() * PENDING_COST
    }

    pub fn pending(&self) -> &Paged<Pending> {
        &self.pending
    }

    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumers.get(name).map(|consumer| &**consumer)
    }

    pub fn consumers(&self) -> impl ExactSizeIterator<Item = (&Bytes, &Consumer)> {
        self.consumers.iter().map(|(name, consumer)| (name, &**consumer))
    }

    /// Whether it is new.
    pub fn see(&mut self, name: &Bytes, now: u64) -> bool {
        if let Some(consumer) = self.consumers.get_mut(name) {
            Arc::make_mut(consumer).seen = now;
            return false;
        }
        self.add_consumer(name.clone(), Consumer::new(now, None));
        true
    }

    pub fn add_consumer(&mut self, name: Bytes, consumer: Consumer) {
        self.consumer_bytes += name.len() + CONSUMER_COST;
        self.consumers.insert(name, Arc::new(consumer));
    }

    /// It got something.
    pub fn acts(&mut self, name: &[u8], now: u64) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            Arc::make_mut(consumer).active = Some(now);
        }
    }

    /// Removes it with what is delivered to it; how many these were.
    pub fn remove_consumer(&mut self, name: &[u8]) -> usize {
        let Some(consumer) = self.consumers.remove(name) else { return 0 };
        self.consumer_bytes -= name.len() + CONSUMER_COST;
        consumer.pending.from(Id::MIN).for_each(|(id, ())| drop(self.pending.remove(*id)));
        consumer.pending.len()
    }

    /// An entry is a consumer's from now on, that there is.
    pub fn give(&mut self, id: Id, name: &Bytes, at: u64, times: u64) {
        // Its name lies where the consumer's does.
        let Some((name, _)) = self.consumers.get_key_value(name) else { return };
        let name = name.clone();
        let old = self.pending.insert(id, Pending { consumer: name.clone(), at, times });
        if let Some(old) = old.filter(|old| old.consumer != name) {
            self.change(&old.consumer, |consumer| {
                consumer.pending.remove(id);
            });
        }
        self.change(&name, |consumer| {
            consumer.pending.insert(id, ());
        });
    }

    fn change(&mut self, name: &[u8], act: impl FnOnce(&mut Consumer)) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            act(Arc::make_mut(consumer));
        }
    }

    /// It was delivered once more, to the same one.
    pub fn give_again(&mut self, id: Id, at: u64) {
        if let Some(pending) = self.pending.get_mut(id) {
            (pending.at, pending.times) = (at, pending.times.saturating_add(1));
        }
    }

    /// Nobody has to acknowledge it any more. Whether somebody had to.
    pub fn take(&mut self, id: Id) -> bool {
        let Some(pending) = self.pending.remove(id) else { return false };
        self.change(&pending.consumer, |consumer| {
            consumer.pending.remove(id);
        });
        true
    }

    /// Everything up to this entry of the log has been delivered.
    pub fn deliver(&mut self, log: &Log, id: Id) {
        if id <= self.last {
            return;
        }
        self.read = match self.read {
            Some(read) if !log.has_holes(self.last) => Some(read.saturating_add(1)),
            _ => log.added_upto(id),
        };
        self.last = id;
    }

    /// Entries that are yet to be delivered, if that is known.
    pub fn lag(&self, log: &Log) -> Option<i64> {
        if log.added() == 0 || log.is_empty() {
            return Some(0);
        }
        if self.last < log.first() && log.deleted() < log.first() {
            return Some(log.len() as i64);
        }
        let read = match self.read {
            Some(read) if !log.has_holes(self.last) => Some(read),
            _ => log.added_upto(self.last),
        };
        read.map(|read| (log.added() as i64).wrapping_sub(read as i64))
    }
}
