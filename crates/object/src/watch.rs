//! Changes of objects as they come, those of all nodes as one stream. Each node keeps in which order it has taken what it has (`table.rs`),
//! and tells what stands behind a place in it, so nothing but places has to be remembered for whoever watches: the client holds them, as a
//! cursor, and may go on at any node.
//!
//! A change is told at least once: by each node that has it, so whoever watches compares versions; a node that has another life, or was
//! not there before, tells all that it has. What was put is on a disk when it is told. A deletion goes to all nodes, and is told as long
//! as it is remembered; whoever was away for longer is told so, and reads anew.

use std::collections::BTreeMap;

use base::{NodeId, Outcome, Priority, Refused, Span, Ticket, Time};
use bytes::Bytes;
use prost::Message;

use crate::asker::{Ended, Goal, Look, Running};
use crate::held::Held;
use crate::limits::{
    CURSOR_NODES_MAX, LOOK_LONG, ORDER_ENTRIES, OWNER_BYTES_MAX, SAVE_ENTRIES, WALK_EVERY, WATCH_AWAY_MS_NEWEST,
    WATCH_AWAY_MS_ONCE, WATCH_EVERY, WATCH_GATHER, WATCH_HOLD, WATCH_ITEMS, WATCH_ORDER_KEPT, WATCH_SCAN, WATCHERS_MAX,
};
use crate::table::Taken;
use crate::wire::{self, ChangedMessage, ChangesMessage, CursorMessage, UptoMessage, WatchMessage, What};
use crate::{Call, Change, Changes, Id, Key, Object, Reply, Stamp, Writes};

/// Why a cursor is refused: as of a place that is not known any more, it is to begin anew.
pub const NO_CURSOR: &str =
    "that is no cursor of this namespace: read what there is, and watch from a cursor that a watch begins with";

/// A question for changes, at the node that is asked by its door.
pub(crate) struct Watch {
    /// None: from now on.
    after: Option<BTreeMap<NodeId, UptoMessage>>,
    hold: Span,
    by: u64,
    /// When somebody had something to tell.
    first: Option<Time>,
    /// Who lives has changed: others are to be asked, too.
    again: bool,
}

/// What a node told.
pub(crate) struct Changed {
    upto: UptoMessage,
    items: Vec<(Bytes, Id, Stamp)>,
    more: bool,
    lost: bool,
}

/// Watchers who wait for changes at this node, by who asks and who watches there.
#[derive(Default)]
pub(crate) struct Watchers {
    waiting: BTreeMap<(NodeId, u64), Waiting>,
    /// Watchers who asked while the order was being made, with their questions.
    early: BTreeMap<(NodeId, u64), (u64, WatchMessage)>,
    /// What there was when they were looked at last.
    seen: (u64, Ticket),
    /// Something has changed since: they are looked at then.
    next: Option<Time>,
    last: Time,
    /// Somebody watched until then, or is about to.
    order_until: Option<Time>,
}

struct Waiting {
    id: u64,
    ns: u32,
    prefix: Bytes,
    upto: u64,
    until: Time,
}

impl Watchers {
    pub fn wake_at(&self) -> Option<Time> {
        self.next
    }

    pub fn lose(&mut self, peer: NodeId) {
        self.waiting.retain(|(from, _), _| *from != peer);
        self.early.retain(|(from, _), _| *from != peer);
    }
}

/// As the node that is asked.
impl Watch {
    pub fn begin(ns: u32, after: Option<Bytes>, hold: Span, by: u64) -> Result<Self, Refused> {
        let after = match after {
            None => None,
            Some(bytes) if bytes.is_empty() => Some(BTreeMap::new()),
            Some(bytes) => {
                let cursor = CursorMessage::decode(bytes).ok();
                let cursor = cursor.filter(|cursor| cursor.ns == ns && cursor.nodes.len() <= CURSOR_NODES_MAX);
                let cursor = cursor.ok_or_else(|| Refused::wrong(NO_CURSOR))?;
                Some(cursor.nodes.into_iter().map(|upto| (NodeId(upto.node), upto)).collect())
            }
        };
        Ok(Self { after, hold: hold.min(WATCH_HOLD), by, first: None, again: false })
    }

    pub fn question(&self, key: &Key, to: NodeId) -> WatchMessage {
        // Who was not there before tells all that it has: something may be of the time since.
        let after = self.after.as_ref().map(|nodes| nodes.get(&to).copied().unwrap_or_default());
        let hold_ms = (self.hold.as_micros() / 1000) as u32;
        WatchMessage { ns: key.ns, prefix: key.owner.clone(), by: self.by, after, hold_ms }
    }
}

impl Running {
    /// Ends when all have answered, or soon after one that had something to tell.
    pub(crate) fn watch_on(&mut self, now: Time) -> Ended {
        let has_news = |look: &Look| matches!(look, Look::Changes(of) if of.lost || of.more || !of.items.is_empty());
        let (is_waiting, has_news) = (self.is_waiting(), self.looks.values().any(has_news));
        let Goal::Watch(watch) = &mut self.goal else { return None };
        if has_news {
            watch.first.get_or_insert(now);
        }
        let late = self.since + watch.hold + LOOK_LONG;
        let end = watch.first.map_or(late, |first| late.min(first + WATCH_GATHER));
        if is_waiting && now < end && !watch.again {
            self.wake = end;
            return None;
        }
        Some(Outcome::Done(Reply::Changes(self.changes(now >= late))))
    }

    fn changes(&self, is_late: bool) -> Changes {
        let Goal::Watch(watch) = &self.goal else { return Changes::default() };
        let mut upto = watch.after.clone().unwrap_or_default();
        upto.retain(|node, _| self.looks.contains_key(node));
        let told = || self.looks.iter().filter_map(|(node, look)| Some((*node, changed(look)?)));
        let is_lost = told().any(|(_, of)| of.lost);
        let mut best: BTreeMap<(&Bytes, Id), Stamp> = BTreeMap::new();
        // Of what was lost nothing else is told before all is read anew; the rest comes after that.
        for (node, of) in told().filter(|(_, of)| of.lost || !is_lost) {
            upto.insert(node, UptoMessage { node: node.0, ..of.upto });
            for (owner, id, stamp) in of.items.iter().filter(|_| !is_lost) {
                let best = best.entry((owner, *id)).or_insert(*stamp);
                if stamp.beats(best) {
                    *best = *stamp;
                }
            }
        }
        let change = |((owner, id), stamp): (&(&Bytes, Id), &Stamp)| Change {
            owner: (*owner).clone(),
            id: *id,
            version: stamp.version,
            size: (!stamp.gone).then_some(stamp.size),
        };
        let mut changes: Vec<Change> = best.iter().map(change).collect();
        changes.sort_by_key(|change| change.version);
        let is_away = |look: &Look| matches!(look, Look::Lost) || is_late && matches!(look, Look::Waiting);
        Changes {
            changes,
            cursor: CursorMessage { ns: self.key.ns, nodes: upto.into_values().collect() }.encode_to_vec().into(),
            is_more: told().any(|(_, of)| of.more),
            is_lost,
            missing: self.looks.iter().filter(|(_, look)| is_away(look)).map(|(node, _)| *node).collect(),
        }
    }
}

fn changed(look: &Look) -> Option<&Changed> {
    if let Look::Changes(of) = look { Some(of) } else { None }
}

impl Object {
    /// None for what cannot be.
    pub(crate) fn changes(&mut self, call: &mut Call, from: NodeId, id: u64, told: ChangesMessage) -> Option<()> {
        let ChangesMessage { upto, items, more, lost } = told;
        let item = |item: ChangedMessage| {
            let is_owner = (1..=OWNER_BYTES_MAX).contains(&item.owner.len());
            Some((item.owner, wire::id_of(&item.id)?, item.held?.held()?.stamp)).filter(|_| is_owner)
        };
        let items: Vec<_> = items.into_iter().map(item).collect::<Option<_>>()?;
        if items.len() > WATCH_ITEMS {
            return None;
        }
        self.with(call, id, |_, op| {
            op.hear(from, Look::Changes(Changed { upto, items, more, lost }));
            None
        });
        Some(())
    }

    /// Somebody lives who was not asked: questions that wait are asked anew.
    pub(crate) fn look_again(&mut self, call: &mut Call) {
        for id in self.ops_that_watch() {
            self.with(call, id, |_, op| {
                if let Goal::Watch(watch) = &mut op.goal {
                    watch.again = true;
                }
                None
            });
        }
    }
}

/// As one that has objects.
impl Object {
    pub(crate) fn watched(&mut self, call: &mut Call, from: NodeId, id: u64, watch: WatchMessage) -> Option<()> {
        if watch.prefix.len() > OWNER_BYTES_MAX {
            return None;
        }
        self.watchers.order_until = Some(call.now + WATCH_ORDER_KEPT);
        let place = (from, watch.by);
        self.watchers.waiting.remove(&place);
        // What there is is looked through for the first one who asks, some of it in each turn.
        if !self.watchers.early.is_empty() || !self.table.order_on(ORDER_ENTRIES) {
            if self.watchers.early.len() < WATCHERS_MAX {
                self.watchers.early.insert(place, (id, watch));
            }
            self.watchers.next.get_or_insert(call.now + WALK_EVERY);
            return Some(());
        }
        let WatchMessage { ns, prefix, after, hold_ms, .. } = watch;
        let Some(after) = after else {
            let upto = self.safe_serial();
            self.tell_changes(call, from, id, upto, ChangesMessage::default());
            return Some(());
        };
        if self.has_forgotten(call, ns, after) {
            let upto = self.safe_serial();
            self.tell_changes(call, from, id, upto, ChangesMessage { lost: true, ..ChangesMessage::default() });
            return Some(());
        }
        let from_serial = if after.boot == self.boot.0 { after.upto } else { 0 };
        let (upto, told) = self.changes_behind(ns, &prefix, from_serial);
        if !told.items.is_empty() || told.more || hold_ms == 0 {
            self.tell_changes(call, from, id, upto, told);
        } else if self.watchers.waiting.len() < WATCHERS_MAX {
            let until = call.now + Span::millis(u64::from(hold_ms)).min(WATCH_HOLD);
            // What lies in memory for long must not keep a whole frame.
            let prefix = Bytes::copy_from_slice(&prefix);
            self.watchers.waiting.insert(place, Waiting { id, ns, prefix, upto, until });
        }
        Some(())
    }

    /// Deletions behind this place may be remembered no more.
    fn has_forgotten(&self, call: &Call, ns: u32, after: UptoMessage) -> bool {
        if after.boot == 0 {
            return false;
        }
        if after.boot == self.boot.0 {
            return after.upto < self.table.forgotten;
        }
        let spec = self.spaces.values().find(|(id, _)| *id == ns).map(|(_, spec)| spec.writes);
        let most = if spec == Some(Writes::Newest) { WATCH_AWAY_MS_NEWEST } else { WATCH_AWAY_MS_ONCE };
        call.wall_ms.saturating_sub(after.ms) > most
    }

    /// All up to here is on the disk.
    fn safe_serial(&mut self) -> u64 {
        let (log, last) = (&self.log, self.table.last_serial());
        let unsafe_ones = self.table.behind_serial(0).rev().take_while(|taken| !log.is_safe(taken.ticket));
        unsafe_ones.last().map_or(last, |taken| taken.serial - 1)
    }

    /// As many as go into one answer, and how far that is.
    fn changes_behind(&mut self, ns: u32, prefix: &Bytes, serial: u64) -> (u64, ChangesMessage) {
        let (mut upto, mut told) = (serial, ChangesMessage::default());
        for (looked, Taken { key, stamp, ticket, serial }) in self.table.behind_serial(serial).enumerate() {
            if !self.log.is_safe(ticket) {
                break;
            }
            if looked >= WATCH_SCAN || told.items.len() >= WATCH_ITEMS {
                told.more = true;
                break;
            }
            upto = serial;
            if key.ns == ns && key.owner.starts_with(prefix) {
                let held = Held::bare(stamp);
                let id = Bytes::copy_from_slice(&key.id.0);
                told.items.push(ChangedMessage { owner: key.owner.clone(), id, held: Some((&held).into()) });
            }
        }
        (upto, told)
    }

    fn tell_changes(&mut self, call: &mut Call, to: NodeId, id: u64, upto: u64, told: ChangesMessage) {
        let upto = UptoMessage { node: self.me.0, boot: self.boot.0, upto, ms: call.wall_ms };
        let what = What::Changes(ChangesMessage { upto, ..told });
        self.send(call, to, id, Priority::NORMAL, what, Bytes::new());
    }

    /// Tells watchers what has changed, and when their time is over.
    pub(crate) fn tell_watchers(&mut self, call: &mut Call) {
        if !self.watchers.early.is_empty() && self.watchers.next.is_none_or(|next| call.now >= next) {
            self.watchers.next = Some(call.now + WALK_EVERY);
            if !self.table.order_on(ORDER_ENTRIES) {
                return;
            }
            for ((from, _), (id, watch)) in std::mem::take(&mut self.watchers.early) {
                self.watched(call, from, id, watch);
            }
        }
        if !self.watchers.early.is_empty() {
            return;
        }
        let is = (self.table.last_serial(), self.log.safe());
        if self.watchers.waiting.is_empty() {
            self.watchers.next = None;
            return;
        }
        if is != self.watchers.seen {
            let next = (self.watchers.last + WATCH_EVERY).max(call.now);
            self.watchers.next.get_or_insert(next);
        }
        if self.watchers.next.is_none_or(|next| call.now < next) {
            return;
        }
        (self.watchers.next, self.watchers.last, self.watchers.seen) = (None, call.now, is);
        for ((from, by), mut waiting) in std::mem::take(&mut self.watchers.waiting) {
            let (upto, told) = self.changes_behind(waiting.ns, &waiting.prefix, waiting.upto);
            if told.items.is_empty() && !told.more && call.now < waiting.until {
                waiting.upto = upto;
                self.watchers.waiting.insert((from, by), waiting);
            } else {
                self.tell_changes(call, from, waiting.id, upto, told);
            }
        }
    }

    /// Who has waited long enough is told how far this node is; the order goes when nobody has watched for long.
    pub(crate) fn tend_watchers(&mut self, call: &Call) {
        if self.watchers.waiting.values().any(|waiting| call.now >= waiting.until) {
            self.watchers.next = Some(call.now);
        }
        let is_idle = &(self.watchers.waiting.is_empty() && self.watchers.early.is_empty());
        if self.watchers.order_until.take_if(|until| call.now >= *until && *is_idle).is_some() {
            self.table.drop_order();
        }
        self.table.tend_order(SAVE_ENTRIES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients keep them, and come back to a newer program with them.
    #[test]
    fn a_cursor_has_these_bytes() {
        let upto = UptoMessage { node: 1, boot: 2, upto: 3, ms: 1000 };
        let bytes: Bytes = CursorMessage { ns: 7, nodes: vec![upto] }.encode_to_vec().into();
        assert_eq!(&bytes[..], b"\x08\x07\x12\x10\x09\x01\0\0\0\0\0\0\0\x10\x02\x18\x03\x20\xe8\x07");
        let watch = Watch::begin(7, Some(bytes.clone()), Span::ZERO, 1).unwrap();
        assert_eq!(watch.after, Some([(NodeId(1), upto)].into()));
        assert!(Watch::begin(8, Some(bytes), Span::ZERO, 1).is_err_and(|why| why.why == NO_CURSOR));
    }
}
