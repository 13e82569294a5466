//! A put or a deletion, once it is known who has what: it goes to all its homes that live, others are added until enough disks have it,
//! and who is silent is replaced.

use std::collections::{BTreeMap, BTreeSet};

use base::{Because, NodeId, Outcome, Refused, Span, Time};
use bytes::Bytes;

use crate::asker::{Ended, Goal, Look, Running, Step};
use crate::choose::{Candidate, choose};
use crate::held::{At, Held};
use crate::limits::{ALONE_AGAIN, HOMES_MAX, SILENT_FOR};
use crate::ship::{Cargo, Cause};
use crate::wire::{PutMessage, Took, Verdict, What};
use crate::{Body, Bug, Call, Object, Reply, Stamp, Writes};

pub(crate) struct Write {
    stamp: Stamp,
    body: Body,
    /// All that may have it, or an older write of the object.
    homes: BTreeSet<NodeId>,
    /// Turns of this write, if it was there: homes that have given their copies up are not asked once more.
    turns: BTreeMap<NodeId, u32>,
    asked: BTreeMap<NodeId, Asked>,
    /// All homes that live are waited for: they have what this write stands above, and would show it.
    waits_for_all: bool,
}

enum Asked {
    /// Its pieces are on their way: there is nothing to have yet.
    Shipping,
    /// They are there, on this stage.
    There {
        stage: u64,
    },
    Waiting {
        since: Time,
    },
    /// The node did not answer in time, or went. It may have it.
    Silent,
    /// The write is on the node's disk, with these homes.
    Kept {
        homes: BTreeSet<NodeId>,
    },
    /// The node has no room, or another clock: it does not have it.
    Refused,
}

/// What came of sending pieces to a node.
pub(crate) enum Shipped {
    There { stage: u64 },
    Refused,
}

impl Write {
    pub fn lose(&mut self, peer: NodeId) {
        match self.asked.get_mut(&peer) {
            Some(asked @ Asked::Waiting { .. }) => *asked = Asked::Silent,
            Some(asked @ (Asked::Shipping | Asked::There { .. })) => *asked = Asked::Refused,
            _ => (),
        }
    }

    /// Somebody may have it.
    pub fn has_begun(&self) -> bool {
        let may = |asked: &Asked| !matches!(asked, Asked::Refused | Asked::Shipping | Asked::There { .. });
        self.asked.values().any(may)
    }

    fn held(&self, has: BTreeSet<NodeId>) -> Held {
        Held::new(self.stamp, At { homes: self.homes.clone(), has, turns: self.turns.clone() })
    }

    fn kept(&self) -> usize {
        self.asked.values().filter(|asked| matches!(asked, Asked::Kept { .. })).count()
    }

    /// Another node than this one has it.
    fn is_elsewhere(&self, me: NodeId) -> bool {
        self.asked.iter().any(|(node, asked)| *node != me && matches!(asked, Asked::Kept { .. }))
    }

    fn waiting(&self) -> usize {
        let waits = |asked: &&Asked| matches!(asked, Asked::Waiting { .. } | Asked::Shipping | Asked::There { .. });
        self.asked.values().filter(waits).count()
    }
}

impl Object {
    /// What is to be written, now that others have said what they have; or the end of it.
    pub(crate) fn begin_write(&mut self, op: &mut Running) -> Ended {
        let once = op.spec.writes == Writes::Once;
        let best = op.best().map(|best| best.stamp);
        let mut homes: BTreeSet<NodeId> = op.held().flat_map(|(_, held)| held.homes.iter().copied()).collect();
        homes.extend(op.held().map(|(node, _)| node));
        let (stamp, body) = match &op.goal {
            Goal::Put { body } => {
                let (sum, size) = (body.sum(), body.len() as u32);
                let stamp = Stamp { version: self.clock.tick(), once, gone: false, sum, size };
                let stamp = match best.filter(|_| once) {
                    Some(best) if best.gone => return Some(Outcome::Done(Reply::Gone)),
                    // Said once more, as the answer was lost maybe.
                    Some(best) if best.is_same(&stamp) => best,
                    Some(best) => return Some(Outcome::Done(Reply::Conflict { version: best.version })),
                    None => stamp,
                };
                (stamp, body.clone())
            }
            _ => {
                let all_spoke = op.silent().next().is_none();
                if best.is_none() && all_spoke {
                    return Some(Outcome::Done(Reply::Absent));
                }
                // Who did not say may have it. Who said that it does not may get it just now, of a put that is under way.
                homes.extend(op.looks.keys());
                let stamp = Stamp { version: self.clock.tick(), once, gone: true, sum: 0, size: 0 };
                (best.filter(|best| best.gone).unwrap_or(stamp), Body::default())
            }
        };
        let homes: BTreeSet<NodeId> = homes.into_iter().filter(|home| self.is_node(*home)).take(HOMES_MAX).collect();
        let mut known = Held::new(stamp, At { homes: homes.clone(), ..At::default() });
        let same = op.held().filter(|(_, held)| held.stamp.is_same(&stamp));
        same.for_each(|(_, held)| {
            known.merge(self.me, held);
        });
        let turns = known.turns.clone();
        let waits_for_all = best.is_some_and(|best| !best.is_same(&stamp)) || stamp.gone;
        op.step = Step::Write(Write { stamp, body, homes, turns, asked: BTreeMap::new(), waits_for_all });
        None
    }

    pub(crate) fn write_on(&mut self, call: &mut Call, id: u64, op: &mut Running) -> Ended {
        let (copies, copies_min) = (op.spec.copies as usize, op.spec.copies_min as usize);
        let is_first = matches!(&op.step, Step::Write(write) if write.asked.is_empty());
        let Step::Write(write) = &mut op.step else { return None };
        for asked in write.asked.values_mut() {
            if matches!(asked, Asked::Waiting { since } if call.now.since(*since) >= SILENT_FOR) {
                *asked = Asked::Silent;
            }
        }
        let may_end = write.is_elsewhere(self.me) || self.peers.is_in(call.now) || self.has_bug(Bug::Presumes);
        let is_over = |write: &Write| write.kept() >= copies && (!write.waits_for_all || write.waiting() == 0);
        if is_over(write) && may_end {
            return Some(self.written(call, op));
        }
        let lives = |node: &NodeId| *node == self.me || self.peers.is_live(*node);
        let known = write.held(BTreeSet::new());
        let mut to: Vec<NodeId> = match is_first {
            true => write.homes.iter().copied().filter(|home| lives(home) && !known.is_spare(*home)).collect(),
            false => Vec::new(),
        };
        let lacks = copies.saturating_sub(write.kept() + write.waiting() + to.len());
        let candidates = if lacks > 0 { self.candidates(op, &to) } else { Vec::new() };
        let spread = op.spec.spread as usize;
        let chosen = choose(&mut self.rng, candidates, lacks, spread);
        if !is_first {
            self.figures.replaced += chosen.len() as u64;
        }
        to.extend(chosen);
        let Step::Write(write) = &mut op.step else { return None };
        write.homes.extend(&to);
        let held = write.held(BTreeSet::new());
        let put = PutMessage { key: Some((&op.key).into()), held: Some((&held).into()), push: false, stage: 0 };
        if write.body.is_in_pieces() {
            // Only when a node has all of them it is asked to have the object.
            for (node, asked) in &mut write.asked {
                if let Asked::There { stage } = *asked {
                    *asked = Asked::Waiting { since: call.now };
                    let put = What::Put(PutMessage { stage, ..put.clone() });
                    self.send(call, *node, id, op.priority, put, Bytes::new());
                }
            }
            for node in to {
                write.asked.insert(node, Asked::Shipping);
                self.ship(call, node, Cargo::Body(write.body.clone()), Cause::Op(id), op.priority);
            }
        } else {
            for node in to {
                write.asked.insert(node, Asked::Waiting { since: call.now });
                self.send(call, node, id, op.priority, What::Put(put.clone()), write.body.whole());
            }
        }
        let since =
            write.asked.values().filter_map(|a| if let Asked::Waiting { since } = a { Some(*since) } else { None });
        let since = since.min();
        if let Some(first) = since {
            op.wake = first + SILENT_FOR;
        }
        if since.is_some() || write.asked.values().any(|asked| matches!(asked, Asked::Shipping)) {
            return None;
        }
        // Nobody is left who could take it.
        if write.kept() >= copies_min && may_end {
            return Some(self.written(call, op));
        }
        if write.kept() > 0 && !may_end {
            op.wake = call.now + ALONE_AGAIN;
            return None;
        }
        if write.has_begun() {
            return None;
        }
        Some(Outcome::Refused(Refused::busy(crate::NO_ROOM, Span::millis(1000)).because(Because::Room)))
    }

    /// Nodes that could take it and were not asked.
    fn candidates(&self, op: &Running, asked_now: &[NodeId]) -> Vec<Candidate> {
        let Step::Write(write) = &op.step else { return Vec::new() };
        let all = self.peers.live().chain([self.me]);
        let is_new = |node: &NodeId| !write.asked.contains_key(node) && !asked_now.contains(node);
        let is_full = |node: NodeId| if node == self.me { self.is_full() } else { self.peers.is_full(node) };
        let has_room = |node: &NodeId| write.stamp.gone || !is_full(*node);
        let may = all.filter(|node| is_new(node) && self.is_node(*node) && has_room(node));
        let candidate = |node: NodeId| Candidate {
            node,
            pending: if node == self.me { self.log.pending() } else { self.peers.pending(node) },
            has_owner: matches!(op.looks.get(&node), Some(Look::Here { objects, .. }) if *objects > 0),
            is_here: node == self.me,
            is_aside: self.peers.aside.contains(&node),
        };
        let all: Vec<Candidate> = may.map(candidate).collect();
        // Who leaves is asked only if nobody else is there.
        let (leaving, stay): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| self.peers.leaves(one.node));
        if stay.is_empty() { leaving } else { stay }
    }

    /// Enough disks have it. They are told who has it, so that none pushes it to the others.
    fn written(&mut self, call: &mut Call, op: &Running) -> Outcome<Reply> {
        let Step::Write(write) = &op.step else { unreachable!("what was written is a write") };
        let knows_all = |asked: &Asked| matches!(asked, Asked::Kept { homes } if *homes == write.homes);
        let has = write.asked.iter().filter(|(_, asked)| knows_all(asked)).map(|(node, _)| *node).collect();
        let held = write.held(has);
        let done = PutMessage { key: Some((&op.key).into()), held: Some((&held).into()), push: false, stage: 0 };
        if held.has.len() > 1 {
            for (node, _) in write.asked.iter().filter(|(_, asked)| matches!(asked, Asked::Kept { .. })) {
                self.send(call, *node, 0, op.priority, What::Done(done.clone()), Bytes::new());
            }
        }
        let (version, copies) = (write.stamp.version, write.kept() as u32);
        Outcome::Done(match write.stamp.gone {
            true => Reply::Deleted { version, copies },
            false => Reply::Stored { version, copies },
        })
    }

    pub(crate) fn took(&mut self, call: &mut Call, from: NodeId, id: u64, took: Took) -> Option<()> {
        if id == 0 {
            return self.pushed(call, took);
        }
        // A newer program may have more of them: it does not have it, for all that is known.
        let verdict = Verdict::of(took.verdict).unwrap_or(Verdict::Full);
        let held = match took.held {
            Some(held) => Some(held.held()?),
            None => None,
        };
        self.with(call, id, |_, op| op.hear_took(from, verdict, held));
        Some(())
    }
}

impl Running {
    /// Its pieces are at a node, or that has no room for them.
    pub(crate) fn is_shipped(&mut self, to: NodeId, shipped: Shipped) {
        let Step::Write(write) = &mut self.step else { return };
        if let Some(asked @ Asked::Shipping) = write.asked.get_mut(&to) {
            *asked = match shipped {
                Shipped::There { stage } => Asked::There { stage },
                Shipped::Refused => Asked::Refused,
            };
        }
    }

    fn hear_took(&mut self, from: NodeId, verdict: Verdict, held: Option<Held>) -> Ended {
        let Step::Write(write) = &mut self.step else { return None };
        let asked = write.asked.get_mut(&from)?;
        let is_put_once = matches!(self.goal, Goal::Put { .. }) && write.stamp.once;
        *asked = match verdict {
            Verdict::Conflict => {
                let version = held.map_or(write.stamp.version, |held| held.stamp.version);
                return Some(Outcome::Done(Reply::Conflict { version }));
            }
            // Deleted meanwhile.
            Verdict::Newer if is_put_once => return Some(Outcome::Done(Reply::Gone)),
            // What stands above it is as good: that came later.
            Verdict::Kept | Verdict::Newer => {
                let same = held.filter(|held| held.stamp.is_same(&write.stamp));
                Asked::Kept { homes: same.map(|held| held.homes.clone()).unwrap_or_default() }
            }
            Verdict::Full | Verdict::Ahead => Asked::Refused,
        };
        None
    }
}
