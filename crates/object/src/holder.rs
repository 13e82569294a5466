//! A node as holder: it looks, takes writes, and answers when its disk has them.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use base::checksum::Checksum;
use base::{NodeId, Priority, Ticket};
use bytes::Bytes;

use crate::held::{Held, Merged};
use crate::lies::Lies;
use crate::limits::{AHEAD_MS_MAX, LIST_MAX, OWNER_BYTES_MAX, PIECE_BYTES};
use crate::log::{Waiter, Waits};
use crate::store::Why;
use crate::table::Entry;
use crate::wire::{self, Here, Item, ListMessage, OwnersPage, Page, PutMessage, Took, Verdict, What};
use crate::{Body, Bug, Call, Key, Object, Stamp};

/// A write that has come: from who was asked for it, or pushed by a holder.
pub(crate) struct Come {
    pub from: NodeId,
    pub held: Held,
    /// None: it was said to be on a stage, and is not.
    pub body: Option<Body>,
    /// What its pieces are called in the log; 0: it is in none.
    pub set: u64,
    pub push: bool,
}

impl Object {
    pub(crate) fn looked(&mut self, call: &mut Call, from: NodeId, id: u64, key: &Key) {
        let entry = self.table.get(key);
        let (held, safe) = (entry.map(|entry| (&entry.held).into()), entry.is_some_and(|e| self.log.is_safe(e.ticket)));
        let safe = safe && !self.mending.is_bad(key);
        let objects = self.table.objects_of(key.ns, &key.owner);
        let here = Here { objects, held, safe, ..Here::default() };
        self.send(call, from, id, Priority::NORMAL, What::Here(here), Bytes::new());
    }

    pub(crate) fn got(&mut self, call: &mut Call, from: NodeId, id: u64, key: &Key, at: u32) {
        if self.give(call, key, at as usize, Why::Get { to: from, id }) {
            return;
        }
        // A bad one is as if it were not here: the next node is asked.
        let entry = self.table.get(key).filter(|_| !self.mending.is_bad(key));
        let here = Here { held: entry.map(|entry| (&entry.held).into()), ..Here::default() };
        self.send(call, from, id, Priority::NORMAL, What::Got(here), Bytes::new());
    }

    pub(crate) fn listed(&mut self, call: &mut Call, from: NodeId, id: u64, list: ListMessage) -> Option<()> {
        let ListMessage { ns, owner, after, limit } = list;
        if !(1..=OWNER_BYTES_MAX).contains(&owner.len()) {
            return None;
        }
        let after = if after.is_empty() { None } else { Some(wire::id_of(&after)?) };
        let limit = (limit as usize).clamp(1, LIST_MAX);
        let item = |(id, entry): (crate::Id, &Entry)| {
            // Where it is does not matter here, and would make pages long.
            let held = Held::bare(entry.held.stamp);
            Item { id: Bytes::copy_from_slice(&id.0), held: Some((&held).into()) }
        };
        // A deletion that all have whom it concerns says nothing: nobody of them lists the object. An owner may have many.
        let key = |id| Key { ns, owner: owner.clone(), id };
        let is_news = |(id, entry): &(crate::Id, &Entry)| !entry.held.stamp.gone || self.open.has(&key(*id));
        let behind = self.table.behind(ns, &owner, after).filter(is_news);
        let mut items: Vec<Item> = behind.take(limit + 1).map(item).collect();
        let more = items.len() > limit;
        items.truncate(limit);
        self.send(call, from, id, Priority::NORMAL, What::Page(Page { items, more }), Bytes::new());
        Some(())
    }

    pub(crate) fn walked(&mut self, call: &mut Call, from: NodeId, id: u64, list: ListMessage) -> Option<()> {
        let ListMessage { ns, owner, limit, .. } = list;
        if owner.len() > OWNER_BYTES_MAX {
            return None;
        }
        let limit = (limit as usize).clamp(1, LIST_MAX);
        let mut owners: Vec<Bytes> = self.table.owners_behind(ns, &owner).take(limit + 1).cloned().collect();
        let more = owners.len() > limit;
        owners.truncate(limit);
        self.send(call, from, id, Priority::NORMAL, What::Owners(OwnersPage { owners, more }), Bytes::new());
        Some(())
    }

    /// None for what cannot be.
    pub(crate) fn put_here(
        &mut self,
        call: &mut Call,
        from: NodeId,
        id: u64,
        put: PutMessage,
        body: Bytes,
    ) -> Option<()> {
        let (key, held) = (put.key?.key()?, put.held?.held()?);
        let stamp = held.stamp;
        let (body, set) = match put.stage {
            0 => {
                let fits = if stamp.gone { body.is_empty() } else { body.len() == stamp.size as usize };
                if !fits || body.len() > PIECE_BYTES {
                    return None;
                }
                // A damaged frame: as if it had not come. Whoever sent it sends it to somebody else.
                if !stamp.gone && !Checksum(stamp.sum).matches(&body) {
                    self.figures.damaged += 1;
                    return Some(());
                }
                // What came in a frame shares its memory with others.
                let body = Body::from(body);
                (Some(if from == self.me { body } else { body.copied() }), 0)
            }
            stage => match self.take_staged(from, stage, stamp.sum, stamp.size) {
                Some((set, body)) if body.is_in_pieces() && !stamp.gone => (Some(body), set),
                _ => (None, 0),
            },
        };
        let (verdict, ticket) = self.take(call, &key, Come { from, held, body, set, push: put.push });
        let waits = |ticket: &Ticket| !self.log.is_safe(*ticket) && !self.has_bug(Bug::Unforced);
        match ticket.filter(waits) {
            Some(ticket) => self.log.wait(ticket, Waiter { to: from, id, waits: Waits::Took { key, verdict } }),
            None => self.answer_took(call, from, id, key, verdict),
        }
        Some(())
    }

    /// What it says is on the disk, all of it: if the entry has changed meanwhile, that too is waited for.
    pub(crate) fn answer_took(&mut self, call: &mut Call, to: NodeId, id: u64, key: Key, verdict: Verdict) {
        self.exhume(call, &key);
        let ticket = self.table.get(&key).map(|entry| entry.ticket);
        let waits = |ticket: &Ticket| !self.log.is_safe(*ticket) && !self.has_bug(Bug::Unforced);
        if let Some(ticket) = ticket.filter(waits) {
            return self.log.wait(ticket, Waiter { to, id, waits: Waits::Took { key, verdict } });
        }
        let held = self.table.get(&key).map(|entry| (&entry.held).into());
        let took = Took { verdict: verdict.number(), key: Some((&key).into()), held };
        self.send(call, to, id, Priority::NORMAL, What::Took(took), Bytes::new());
    }

    /// Decides about a write. With a ticket the verdict holds as soon as the log is safe up to there.
    fn take(&mut self, call: &mut Call, key: &Key, come: Come) -> (Verdict, Option<Ticket>) {
        let stamp = come.held.stamp;
        // Whoever sends it has not heard yet that its namespace was removed.
        if self.numbers.is_over(key.ns) {
            return (Verdict::Full, None);
        }
        let is_ahead = stamp.version.ms > call.wall_ms.saturating_add(AHEAD_MS_MAX);
        if is_ahead && !stamp.once {
            return (Verdict::Ahead, None);
        }
        if !is_ahead {
            self.clock.pass(stamp.version);
        }
        let Some(entry) = self.table.get(key) else { return self.keep(call, key, come, BTreeSet::new()) };
        let (ticket, mine) = (entry.ticket, entry.held.stamp);
        // Which rules hold is the namespace's business, whatever a peer says.
        let stamp = Stamp { once: mine.once, ..stamp };
        // Two contents under one id: whoever comes second is told. Between holders one of them wins.
        let differ = mine.once && !mine.gone && !stamp.gone && !stamp.is_same(&mine);
        if differ && !come.push {
            return (Verdict::Conflict, None);
        }
        match stamp.against(&mine) {
            Ordering::Greater => {
                let before = entry.held.homes.clone();
                self.keep(call, key, come, before)
            }
            Ordering::Equal if self.mending.is_bad(key) && come.body.is_some() => {
                (Verdict::Kept, self.is_mended(call, key, come))
            }
            Ordering::Equal => (Verdict::Kept, Some(self.merge(call, key, &come.held).unwrap_or(ticket))),
            Ordering::Less => {
                // Whoever has that is to have what stands above it.
                let mut homes = come.held.homes.clone();
                if come.push {
                    homes.insert(come.from);
                }
                self.more_homes(call, key, homes);
                if come.push {
                    self.lacks_it(call, key, come.from);
                }
                let ticket = self.table.get(key).map(|entry| entry.ticket);
                (Verdict::Newer, ticket)
            }
        }
    }

    /// Takes a write that stands above all that was here.
    fn keep(&mut self, call: &mut Call, key: &Key, come: Come, before: BTreeSet<NodeId>) -> (Verdict, Option<Ticket>) {
        let is_new = self.table.get(key).is_none();
        if !come.held.stamp.gone && (self.is_full() || is_new && !come.push && self.declines()) {
            return (Verdict::Full, None);
        }
        // Its pieces were dropped, or are not what they should be: whoever sends it sends it once more, or to somebody else.
        let Some(body) = come.body else { return (Verdict::Full, None) };
        let mut held = come.held;
        let has = held.has.clone();
        if !held.add_homes(self.me, before.into_iter().chain([self.me])) {
            held.has = has;
        }
        if !held.has.contains(&self.me) {
            held.has.insert(self.me);
        }
        self.mending.forget(key);
        let body = Lies::Here(body);
        self.table.insert(key.clone(), Entry { held, body, set: come.set, ticket: Ticket(0), serial: 0 });
        let ticket = self.append(call, key, true, true);
        if let Some((_, of)) = self.table.held_mut(key) {
            *of = ticket;
        }
        self.recheck(call.now, key);
        (Verdict::Kept, Some(ticket))
    }

    /// What somebody says of a write that is here. A ticket if this node's disk has to have something of it.
    pub(crate) fn merge(&mut self, call: &mut Call, key: &Key, other: &Held) -> Option<Ticket> {
        let (held, _) = self.table.held_mut(key)?;
        let merged = held.merge(self.me, other);
        let ticket = match merged {
            Merged::Nothing => return None,
            // If it is lost they are asked once more.
            Merged::Has => {
                self.append(call, key, false, false);
                None
            }
            Merged::Homes => Some(self.append_homes(call, key)),
        };
        self.recheck(call.now, key);
        ticket
    }

    /// Keeps that there are more homes.
    pub(crate) fn append_homes(&mut self, call: &mut Call, key: &Key) -> Ticket {
        let ticket = self.append(call, key, false, true);
        if let Some((_, of)) = self.table.held_mut(key) {
            *of = ticket;
        }
        ticket
    }

    pub(crate) fn done(&mut self, call: &mut Call, done: PutMessage) -> Option<()> {
        let (key, held) = (done.key?.key()?, done.held?.held()?);
        self.hear_of(call, &key, &held);
        Some(())
    }

    /// Somebody says where a write is.
    pub(crate) fn hear_of(&mut self, call: &mut Call, key: &Key, held: &Held) {
        let Some(entry) = self.table.get(key) else { return };
        match entry.held.stamp.against(&held.stamp) {
            Ordering::Equal => {
                self.merge(call, key, held);
            }
            // Who has that is to have what is here.
            Ordering::Greater => self.more_homes(call, key, held.homes.iter().copied()),
            Ordering::Less => (),
        }
    }

    /// A node has shown that it does not have what is here, whatever was known of it.
    fn lacks_it(&mut self, call: &mut Call, key: &Key, node: NodeId) {
        let Some((held, _)) = self.table.held_mut(key) else { return };
        if held.has.contains(&node) {
            held.has.remove(&node);
            self.append(call, key, false, false);
            self.recheck(call.now, key);
        }
    }

    fn more_homes(&mut self, call: &mut Call, key: &Key, homes: impl IntoIterator<Item = NodeId>) {
        let Some((held, _)) = self.table.held_mut(key) else { return };
        if held.add_homes(self.me, homes) {
            self.append_homes(call, key);
            self.recheck(call.now, key);
        }
    }
}
