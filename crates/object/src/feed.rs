//! What a node tells a manager: first all owners of which it has objects, in the buckets that are new there, then what changes. One
//! part is on its way at a time, and is sent again until it was heard: so all is taken in order, whatever is lost on the way.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::directory::{Item, Tenure, Told, Wanted};
use crate::limits::{FEED_CHANGES_MAX, FEED_ITEMS};
use crate::map::bucket_of;
use crate::table::Table;

#[derive(Default)]
pub(crate) struct Feed {
    tenure: Tenure,
    version: u32,
    /// What the manager wants, each bucket with the version since when.
    buckets: BTreeMap<u16, u32>,
    /// Buckets that are yet to be looked through, and behind which owner of the first.
    scan: BTreeSet<u16>,
    after: Option<(u32, Bytes)>,
    changed: BTreeSet<(u32, Bytes)>,
    seq: u32,
    flight: Option<Told>,
    /// What was told to be done.
    done: u32,
    /// Number of the manager's question whether all is told; 0: there is none.
    round: u64,
}

/// What is to be sent.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Say {
    Told(Told),
    /// All was told up to there, as of this round.
    Sure {
        tenure: Tenure,
        seq: u32,
        round: u64,
    },
}

impl Feed {
    pub fn is_under(&self, tenure: Tenure) -> bool {
        self.tenure == tenure
    }

    /// A manager wants to be told.
    pub fn want(&mut self, wanted: Wanted) {
        let Wanted { tenure, version, buckets } = wanted;
        if tenure.life == self.tenure.life && (tenure.count, version) <= (self.tenure.count, self.version) {
            // Of before, or once more.
            return;
        }
        if tenure != self.tenure {
            *self = Self { tenure, ..Self::default() };
        }
        self.version = version;
        self.scan.retain(|bucket| buckets.contains_key(bucket));
        self.scan
            .extend(buckets.iter().filter(|(bucket, since)| self.buckets.get(bucket) != Some(since)).map(|(b, _)| *b));
        // It begins with the first again: that is not the one of before, maybe.
        self.after = None;
        self.buckets = buckets;
    }

    /// A planted bug ([`crate::Bug::Rescans`]).
    pub fn scan_all(&mut self) {
        self.scan.extend(self.buckets.keys());
    }

    /// This node has objects of an owner, or none any more. False: that is too much to keep in mind.
    pub fn change(&mut self, ns: u32, owner: &Bytes) -> bool {
        if self.buckets.contains_key(&bucket_of(ns, owner)) {
            self.changed.insert((ns, owner.clone()));
        }
        self.changed.len() <= FEED_CHANGES_MAX
    }

    /// The manager asks whether all is told.
    pub fn confirm(&mut self, round: u64) {
        self.round = round;
    }

    pub fn heard(&mut self, tenure: Tenure, seq: u32) {
        if tenure == self.tenure {
            self.flight.take_if(|told| told.seq == seq);
        }
    }

    /// What is on its way, to be sent once more.
    pub fn again(&self) -> Option<Told> {
        self.flight.clone()
    }

    /// What is to be said next, if anything.
    pub fn next(&mut self, table: &Table) -> Option<Say> {
        if self.flight.is_some() || self.tenure == Tenure::default() {
            return None;
        }
        let mut items = Vec::new();
        while items.len() < FEED_ITEMS
            && let Some((ns, owner)) = self.changed.pop_first()
        {
            let has = table.objects_of(ns, &owner) > 0;
            items.push(Item { ns, owner, has });
        }
        while items.len() < FEED_ITEMS
            && let Some(bucket) = self.scan.first().copied()
        {
            let room = FEED_ITEMS - items.len();
            let some: Vec<(u32, Bytes)> = table.owners_in(bucket, self.after.as_ref()).take(room).cloned().collect();
            self.after = some.last().cloned();
            if some.len() < room {
                self.scan.pop_first();
                self.after = None;
            }
            items.extend(some.into_iter().map(|(ns, owner)| Item { ns, owner, has: true }));
        }
        let is_all = self.changed.is_empty() && self.scan.is_empty();
        let done = if is_all { self.version } else { 0 };
        let round = if is_all { std::mem::take(&mut self.round) } else { 0 };
        if items.is_empty() && done == self.done {
            return (round > 0).then_some(Say::Sure { tenure: self.tenure, seq: self.seq, round });
        }
        self.seq += 1;
        self.done = self.done.max(done);
        let told = Told { tenure: self.tenure, seq: self.seq, items, done, round };
        self.flight = Some(told.clone());
        Some(Say::Told(told))
    }
}
