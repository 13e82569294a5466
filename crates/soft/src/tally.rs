//! Slots of lives that are over. What they have counted changes no more, so those of a node's lives below a boot
//! become one, which names that boot: its birth is of boot 0, which no life has, and has the boot as its number. Else
//! a counter would grow with each start of a node.
//!
//! Numbers of slots are joined one by one, and a sum only as a whole. So a sum must be all that there is of these
//! lives, and what is cut of it either what all know or everything. The first is so where the lives are folded in the
//! contexts (`over.rs`). As to the second: who makes a reset cuts all slots that it sees. One that was made by a node
//! that had all of those lives cuts all of each; one that was made before is part of what that node had seen when it
//! said that it has folded them. So a node *notes* all that the members have seen at a moment at which all of them
//! have folded the lives, and adds slots up when each has told that it has all of the note, also in its checkpoint.
//! What comes from then on, early or late, from one that has added up or not, is no more than the sum, or all of it:
//! added up first it is joined by the greater number as ever ([`meet`]). So each node adds up when it finds that it
//! may, and nobody needs to be told.
//!
//! A node that falls back behind its checkpoint, serves alone and resets a counter cuts as much of the sum as it
//! sees: of what two resets have cut there and elsewhere only the greater counts. Nothing that was counted is lost or
//! doubled.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use base::{Boot, NodeId, Now, Time};

use crate::cell::{Cell, Slot};
use crate::context::Context;
use crate::dot::{Dot, Life};
use crate::limits::*;
use crate::machine::Heard;
use crate::space::{Address, Space};
use crate::{SLOTS_LEVEL, Soft};

/// Up to which boot slots of each node are one.
pub type Below = BTreeMap<NodeId, Boot>;

impl Slot {
    /// The boot below which it is what all lives of its node have counted.
    pub fn below(&self) -> Option<Boot> {
        (self.birth.life.boot == Boot(0)).then_some(Boot(self.birth.seq))
    }
}

/// Adds up slots of lives of these nodes. Slots that no number can hold together stay as they are: at every node, as all have the same.
pub fn add_up(slots: &mut Vec<Slot>, below: &Below) {
    for (&node, &boot) in below {
        let Some(birth) = Dot::told(Life { node, boot: Boot(0) }, boot.0) else { continue };
        let is_in = |slot: &Slot| {
            let Slot { birth: Dot { life, .. }, .. } = slot;
            life.node == node && life.boot < boot && slot.below().is_none_or(|below| below <= boot)
        };
        let fresh = Slot { birth, last: birth, inc: 0, dec: 0, cut_inc: 0, cut_dec: 0 };
        let sum = slots.iter().filter(|slot| is_in(slot)).try_fold(fresh, |sum, slot| {
            Some(Slot {
                inc: sum.inc.checked_add(slot.inc)?,
                dec: sum.dec.checked_add(slot.dec)?,
                cut_inc: sum.cut_inc.checked_add(slot.cut_inc)?,
                cut_dec: sum.cut_dec.checked_add(slot.cut_dec)?,
                ..sum
            })
        });
        if let Some(sum) = sum.filter(|_| slots.iter().any(is_in)) {
            slots.retain(|slot| !is_in(slot));
            slots.insert(slots.partition_point(|slot| slot.birth < birth), sum);
        }
    }
}

/// Slots of two nodes of which one may have added up more: both as they are when both have.
pub fn meet<'a>(mine: &mut Vec<Slot>, theirs: &'a [Slot]) -> Cow<'a, [Slot]> {
    let mut below = Below::new();
    for slot in mine.iter().chain(theirs) {
        if let Some(boot) = slot.below() {
            let most = below.entry(slot.birth.life.node).or_default();
            *most = boot.max(*most);
        }
    }
    if below.is_empty() {
        return Cow::Borrowed(theirs);
    }
    add_up(mine, &below);
    let mut theirs = theirs.to_vec();
    add_up(&mut theirs, &below);
    Cow::Owned(theirs)
}

/// How far a node has come with it.
#[derive(Default)]
pub struct Tally {
    /// All cells are added up so far, since this life began.
    done: Below,
    next: Option<Next>,
}

struct Next {
    below: Below,
    since: Time,
    step: Step,
}

enum Step {
    /// All members are to have this.
    Noted(Context),
    /// Cells up to this one are added up.
    Walks(Option<Address>),
}

impl Tally {
    pub fn walks(&self) -> bool {
        matches!(self.next, Some(Next { step: Step::Walks(_), .. }))
    }

    /// Other nodes may have added up what this one has not yet, or the other way round: so cells may look otherwise, and are the same.
    pub fn is_under_way(&self, now: Time) -> bool {
        self.next.as_ref().is_some_and(|next| now.since(next.since) < TALLY_LOOKS_ODD)
    }
}

impl Space {
    /// Adds up slots of some cells: a turn's work.
    pub fn add_up_some(&mut self) {
        let Some(Next { below, step: Step::Walks(after), since }) = self.tally.next.take() else { return };
        let lower = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let (mut last, mut changed) = (None, Vec::new());
        for (at, cell) in self.cells.range((lower, Bound::Unbounded)).take(PRUNE_MAX) {
            last = Some(at.clone());
            if is_to_change(cell, &below) {
                changed.push(at.clone());
            }
        }
        if last.is_none() {
            self.tally.done = below;
            return;
        }
        self.tally.next = Some(Next { below: below.clone(), step: Step::Walks(last), since });
        changed.iter().for_each(|at| self.change(at, |cell, _| add_up(&mut cell.slots, &below)));
    }
}

fn is_to_change(cell: &Cell, below: &Below) -> bool {
    let is_of_one = |slot: &Slot| below.get(&slot.birth.life.node).is_some_and(|boot| slot.birth.life.boot < *boot);
    cell.slots.iter().any(|slot| is_of_one(slot) && slot.below() != below.get(&slot.birth.life.node).copied())
}

impl Soft {
    /// Notes what all have seen that have folded the same lives; begins to add up what they counted when all have that.
    pub(crate) fn tally(&mut self, now: Now) {
        if self.level < SLOTS_LEVEL {
            return;
        }
        let members: BTreeSet<NodeId> =
            self.members.iter().copied().chain(self.live()).filter(|id| *id != self.life.node).collect();
        for (id, held) in self.spaces.iter_mut().filter(|(_, held)| held.is_settled() && held.has_come()) {
            let told = members.iter().map(|member| self.peers.get(member)?.told.get(id));
            let Some(told) = told.collect::<Option<Vec<&Heard>>>() else { continue };
            let step = match &held.space.tally.next {
                Some(Next { step: Step::Walks(_), .. }) => continue,
                Some(Next { step: Step::Noted(note), .. }) => {
                    let theirs = told.iter().flat_map(|heard| heard.kept.iter().chain([&heard.context]));
                    if !theirs.chain([held.kept(), &held.space.context]).all(|of| note.is_within(of)) {
                        continue;
                    }
                    Step::Walks(None)
                }
                None => {
                    let folded = |of: &Context, node| of.folded_of(node).below;
                    let below: Below = held.space.context.folded().map(|(node, mine)| (node, mine.below)).collect();
                    let by_all = |(node, mine): (NodeId, Boot)| {
                        (node, told.iter().map(|heard| folded(&heard.context, node)).fold(mine, Boot::min))
                    };
                    let below: Below = below.into_iter().map(by_all).filter(|(_, boot)| *boot > Boot(1)).collect();
                    let done = &held.space.tally.done;
                    if below.iter().all(|(node, boot)| done.get(node).is_some_and(|done| done >= boot)) {
                        continue;
                    }
                    let mut note = held.space.context.clone();
                    told.iter().for_each(|heard| note.join(&heard.context));
                    let next = Next { below, since: now.mono, step: Step::Noted(note) };
                    held.space.tally.next = Some(next);
                    continue;
                }
            };
            if let Some(next) = &mut held.space.tally.next {
                next.step = step;
            }
        }
    }
}
