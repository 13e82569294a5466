//! The dump of a class whose keys are walked over: pages of keys, and each key read as it is then.

use bytes::Bytes;

use super::{Dump, Item, Part, Record};

/// What a class says of itself so that its namespaces can be walked over.
pub trait Walked: Send {
    type Op;
    type Reply;
    /// Keys that are read at once.
    const READS: usize;

    /// Asks for the page of keys that begins there.
    fn page(&self, cursor: u64) -> Self::Op;

    /// Asks for all that a key has.
    fn read(&self, key: Bytes) -> Self::Op;

    /// The answer to [`Walked::page`]: where the walk goes on (0: it is over), and keys. None: it is no such answer.
    fn keys(reply: Self::Reply) -> Option<(u64, Vec<Bytes>)>;

    /// The answer to [`Walked::read`], as an item; the inner none: the key has gone since it was walked over.
    /// None: it is no such answer.
    fn item(key: Bytes, reply: Self::Reply, wall_ms: u64) -> Option<Option<Item>>;
}

/// A namespace that is being read out. It is of no one moment.
#[derive(Debug)]
pub struct Walk<W> {
    of: W,
    /// Where the walk goes on; none: it is over.
    cursor: Option<u64>,
    /// Keys that were walked over and are yet to be read; the last one is next.
    keys: Vec<Bytes>,
    /// Those that are being read.
    reading: Vec<Bytes>,
    has_begun: bool,
}

impl<W> Walk<W> {
    pub fn new(of: W) -> Self {
        Self { of, cursor: Some(0), keys: Vec::new(), reading: Vec::new(), has_begun: false }
    }
}

impl<W: Walked> Dump for Walk<W> {
    type Op = W::Op;
    type Reply = W::Reply;

    fn asks(&mut self) -> Vec<W::Op> {
        if self.reading.is_empty() {
            self.reading = self.keys.split_off(self.keys.len().saturating_sub(W::READS));
        }
        if self.reading.is_empty() {
            return self.cursor.map(|cursor| self.of.page(cursor)).into_iter().collect();
        }
        self.reading.iter().map(|key| self.of.read(key.clone())).collect()
    }

    fn take(&mut self, replies: Vec<W::Reply>, wall_ms: u64) -> Result<Vec<Record>, String> {
        let odd = || "a node answered with what was not asked".to_owned();
        let mut records = Vec::new();
        if !self.has_begun {
            self.has_begun = true;
            records.push(Record::Part(Part { from: 0, to: u64::MAX, version: 0 }));
        }
        if self.reading.is_empty() {
            let (cursor, keys) = replies.into_iter().next().and_then(W::keys).ok_or_else(odd)?;
            self.cursor = (cursor != 0).then_some(cursor);
            self.keys = keys;
            return Ok(records);
        }
        for (key, reply) in std::mem::take(&mut self.reading).into_iter().zip(replies) {
            records.extend(W::item(key, reply, wall_ms).ok_or_else(odd)?.map(Record::Item));
        }
        Ok(records)
    }
}
