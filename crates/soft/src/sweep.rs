//! Removals of much: a key with many elements, or a whole namespace. Each element is a removal of its own, so it is done in parts, a
//! turn's work each, and the answer goes when the last one is made and another node has them all. What was written after the operation
//! began stays: it had not been seen.
//!
//! Parts wait while peers have not acknowledged those before, for a while: so the removals reach them as they are made, and not by repair.

use std::collections::VecDeque;
use std::ops::Bound;

use base::{AskId, Now, Outcome, Refused, Span, Time, Unknown};
use bytes::Bytes;

use crate::context::Context;
use crate::limits::*;
use crate::space::{Address, Space};
use crate::{Asked, Did, Output, Reply, Soft};

/// Removals that are under way at this node, one after the other.
#[derive(Default)]
pub struct Sweeps {
    all: VecDeque<Sweep>,
    /// When the next part is made.
    at: Time,
    /// Since when that waits for peers.
    waits: Option<Time>,
}

struct Sweep {
    space: u32,
    of: Of,
    /// All up to here is done.
    after: Option<Address>,
    /// What was seen when it began.
    seen: Context,
    /// The last update before it, and the last one that it made.
    before: u64,
    last: u64,
    /// None: nobody waits for it any more.
    asked: Option<(Asked, Reply)>,
}

/// What is removed.
pub enum Of {
    /// The first of these is under way.
    Keys(VecDeque<Bytes>),
    /// Its time has come.
    Ended(Bytes),
    All,
}

impl Sweeps {
    pub fn wake_at(&self) -> Option<Time> {
        let deadlines = self.all.iter().filter_map(|sweep| Some(sweep.asked.as_ref()?.0.deadline));
        (!self.all.is_empty()).then_some(self.at).into_iter().chain(deadlines).min()
    }

    pub fn has_room(&self) -> bool {
        self.all.len() < SWEEPS_MAX
    }

    pub fn begin(&mut self, space: &Space, id: u32, of: Of, asked: Option<(Asked, Reply)>) {
        let (mut seen, before) = (space.context.clone(), space.seq());
        // What a transfer brings is seen here, too.
        space.coming.iter().for_each(|start| seen.join(start));
        self.all.push_back(Sweep { space: id, of, after: None, seen, before, last: before, asked });
    }

    /// Gives up what belongs to namespaces that are no more.
    pub fn retain(&mut self, ids: &[u32], out: &mut Vec<Output>) {
        self.all.retain(|sweep| {
            let stays = ids.contains(&sweep.space);
            if let Some((asked, _)) = sweep.asked.as_ref().filter(|_| !stays) {
                out.push(unknown(asked.id, "its namespace was taken out of the declaration"));
            }
            stays
        });
    }
}

impl Space {
    /// Have these together more than is removed in a turn?
    pub(crate) fn are_large(&self, keys: &[Bytes]) -> bool {
        keys.iter().flat_map(|key| self.cells_of(key)).nth(SWEEP_CELLS).is_some()
    }

    /// Removes a part of what is there; how far that was, if there is more.
    fn sweep(
        &mut self,
        now: Now,
        of: (Bound<&Address>, Bound<&Address>),
        seen: &Context,
        is_over: bool,
    ) -> Option<Address> {
        let (mut gone, mut last) = (Vec::new(), None);
        let mut is_more = false;
        for (nth, (at, cell)) in self.cells.range(of).take(SWEEP_CELLS + 1).enumerate() {
            if nth == SWEEP_CELLS {
                is_more = true;
                break;
            }
            if cell.is_there() && cell.dots().all(|dot| seen.contains(dot)) {
                gone.push(at.clone());
            }
            last = Some(at);
        }
        let last = last.filter(|_| is_more).cloned();
        match is_over {
            true => self.end_cells(now, &gone),
            false => self.remove_cells(now, &gone, Did::Deleted),
        }
        last
    }
}

impl Soft {
    /// The next part of what is under way.
    pub(crate) fn tend_sweeps(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.sweeps.all.is_empty() {
            return;
        }
        let late = |sweep: &mut Sweep| sweep.asked.take_if(|(asked, _)| asked.deadline <= now.mono);
        for (asked, _) in self.sweeps.all.iter_mut().filter_map(late) {
            self.seen.unknown += 1;
            out.push(unknown(asked.id, "it is under way at this node, and goes on: what is not removed yet will be"));
        }
        let is_full = self.peers.values().any(|peer| peer.dead.is_none() && peer.has_much_under_way());
        if is_full && now.mono < *self.sweeps.waits.get_or_insert(now.mono) + SWEEP_WAITS {
            self.sweeps.at = now.mono + SWEEP_AGAIN;
            return;
        }
        if now.mono < self.sweeps.at {
            return;
        }
        (self.sweeps.at, self.sweeps.waits) = (now.mono + SWEEP_AGAIN, None);
        let Some(sweep) = self.sweeps.all.front_mut() else { return };
        let id = sweep.space;
        let Some(held) = self.spaces.get_mut(&id) else { return drop(self.sweeps.all.pop_front()) };
        let (key, is_over) = match &sweep.of {
            Of::Keys(keys) => (keys.front(), false),
            Of::Ended(key) => (Some(key), true),
            Of::All => (None, false),
        };
        let bounds = key.map(|key| (Address::first(key.clone()), Address::behind(key)));
        let before = held.space.seq();
        let from = sweep.after.as_ref().or(bounds.as_ref().map(|(first, _)| first));
        let from = from.map_or(Bound::Unbounded, Bound::Excluded);
        let until = bounds.as_ref().map_or(Bound::Unbounded, |(_, behind)| Bound::Excluded(behind));
        let after = held.space.sweep(now, (from, until), &sweep.seen, is_over);
        if let (None, Some((end, _))) = (&after, &bounds) {
            // The key's end, which lies before its elements, goes last: what has ended is not shown again meanwhile.
            held.space.sweep(now, (Bound::Included(end), Bound::Included(end)), &sweep.seen, is_over);
        }
        sweep.after = after;
        let made = held.space.seq();
        self.seen.updates += made - before;
        if made > before {
            (self.is_due, sweep.last) = (true, made);
        }
        if sweep.after.is_some() {
            return;
        }
        if let Of::Keys(keys) = &mut sweep.of {
            keys.pop_front();
            if !keys.is_empty() {
                return;
            }
        }
        let Some(Sweep { asked, before, last, .. }) = self.sweeps.all.pop_front() else { return };
        if let Some((asked, reply)) = asked {
            self.answer_write(id, asked, (before, last), reply, out);
        }
    }

    /// Begins to remove much. Back, if too much is being removed already.
    pub(crate) fn sweep(&mut self, id: u32, asked: Asked, of: Of, reply: Reply, out: &mut Vec<Output>) {
        let Some(held) = self.spaces.get(&id) else { return };
        if !self.sweeps.has_room() {
            let refused =
                Refused::busy(format!("{SWEEPS_MAX} large removals are under way already"), Span::millis(100));
            return out.push(Output::Answer { id: asked.id, answer: Outcome::Refused(refused) });
        }
        self.sweeps.begin(&held.space, id, of, Some((asked, reply)));
    }
}

fn unknown(id: AskId, why: &str) -> Output {
    Output::Answer { id, answer: Outcome::Unknown(Unknown { why: why.to_owned() }) }
}
