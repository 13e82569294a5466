//! A node that starts has nothing. It serves a namespace when it has what each live node had when it was first heard of: so
//! no emptiness is read as truth, and no removal misses what it would have seen. Until then operations are passed to a node that serves
//! (`pass.rs`), or wait.

use std::collections::{BTreeMap, VecDeque};

use base::{Boot, NodeId, Now, Outcome, Refused, Time};

use crate::cell::Cell;
use crate::checkpoint::Keeper;
use crate::context::{Context, Range};
use crate::fill::Transfer;
use crate::limits::*;
use crate::space::{Address, Space};
use crate::{Asked, Op, Output, Soft, Spec};

/// A namespace, and how far this node has come with it.
pub struct Held {
    pub space: Space,
    pub spec: Spec,
    pub transfer: Option<Transfer>,
    /// It writes checkpoints.
    pub keeper: Option<Keeper>,
    catches_up: Option<CatchUp>,
    /// When somebody asked last for what changes.
    pub watched: Option<Time>,
    /// What is forgotten by the index while somebody watches, and since when: not sooner than it is worth to a cursor.
    pub stable: Option<(Time, Context)>,
    /// Peers that have seen the same and have other cells: how often in a row they have said so.
    pub unequal: BTreeMap<NodeId, u32>,
    /// How many updates peers have said cells are the outcome of, since the index had room.
    pub covered: BTreeMap<NodeId, u64>,
    /// The moves of the space of which watchers were told.
    pub looked: u64,
    /// When one was asked for what is missing here, and the hash of what that one had seen.
    pub asked: Option<(Time, u64)>,
}

pub struct CatchUp {
    /// When it began, or something came last.
    since: Time,
    ask_at: Time,
    /// What each peer had when it was first heard of.
    first: BTreeMap<NodeId, Context>,
    /// Who is asked meanwhile, and whether it has written: all go to one, so that who wrote reads it.
    asks: Option<(NodeId, bool)>,
    /// Operations that wait for the end of it.
    waiting: VecDeque<(Asked, Op)>,
}

impl Held {
    /// `catches_up`: others may have something of it.
    pub fn new(now: Time, space: Space, spec: Spec, catches_up: bool) -> Self {
        let catch_up =
            || CatchUp { since: now, ask_at: now, first: BTreeMap::new(), asks: None, waiting: VecDeque::new() };
        Self {
            space,
            spec,
            transfer: None,
            keeper: None,
            catches_up: catches_up.then(catch_up),
            watched: None,
            stable: None,
            unequal: BTreeMap::new(),
            covered: BTreeMap::new(),
            looked: 0,
            asked: None,
        }
    }

    /// What is here again if this node ends now; everything, where nothing is to be here again.
    pub fn kept(&self) -> &Context {
        self.keeper.as_ref().map_or(&self.space.context, Keeper::kept)
    }

    /// Nothing is on its way here from the whole state of another.
    pub fn has_come(&self) -> bool {
        self.transfer.is_none()
    }

    pub fn is_settled(&self) -> bool {
        self.catches_up.is_none()
    }

    /// Something came of what others have.
    pub fn comes_on(&mut self, now: Time) {
        if let Some(catch_up) = &mut self.catches_up {
            catch_up.since = now;
        }
    }

    /// A peer has told what it has.
    pub fn tells(&mut self, peer: NodeId, context: &Context) {
        if let Some(catch_up) = &mut self.catches_up {
            catch_up.first.entry(peer).or_insert_with(|| context.clone());
        }
    }

    /// Keeps an operation until the end of it. Back, if there is no room.
    pub fn wait(&mut self, asked: Asked, op: Op) -> Result<(), Asked> {
        match &mut self.catches_up {
            Some(catch_up) if catch_up.waiting.len() < HELD_MAX => {
                catch_up.waiting.push_back((asked, op));
                Ok(())
            }
            _ => Err(asked),
        }
    }

    pub fn has_waiting(&self) -> bool {
        self.catches_up.as_ref().is_some_and(|catch_up| !catch_up.waiting.is_empty())
    }

    pub fn take_waiting(&mut self) -> VecDeque<(Asked, Op)> {
        self.catches_up.as_mut().map(|catch_up| std::mem::take(&mut catch_up.waiting)).unwrap_or_default()
    }

    /// Who of these is asked while it catches up. Where another one has written for it that is gone, nobody: then it waits.
    pub fn asks(&mut self, serve: &[(NodeId, Boot)], writes: bool) -> Option<(NodeId, Boot)> {
        let asks = &mut self.catches_up.as_mut()?.asks;
        let same = asks.and_then(|(node, _)| serve.iter().find(|(id, _)| *id == node));
        let (chosen, wrote) = match (same, *asks) {
            (Some(same), Some((_, wrote))) => (*same, wrote),
            (None, Some((_, true))) => return None,
            _ => (*serve.first()?, false),
        };
        *asks = Some((chosen.0, wrote || writes));
        Some(chosen)
    }

    /// Before it serves it has these, too.
    pub fn must_have(&mut self, peer: NodeId, range: Range) {
        if let Some(catch_up) = &mut self.catches_up {
            catch_up.first.entry(peer).or_default().insert_range(range);
        }
    }

    pub fn wake_at(&self) -> Option<Time> {
        let catch_up = self.catches_up.as_ref()?;
        let late = catch_up.waiting.iter().map(|(asked, _)| asked.deadline);
        late.chain([catch_up.ask_at]).min()
    }
}

impl Soft {
    /// Who begins serving, whom others are asked for, and what has waited for too long.
    pub(crate) fn catch_up(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.spaces.values().all(Held::is_settled) {
            return;
        }
        self.pass_waiting(now, out);
        let live: Vec<NodeId> = self.live().collect();
        let alone_at = self.born.unwrap_or(now.mono) + ALONE_AFTER;
        let (mut asks, mut runs) = (false, Vec::new());
        for held in self.spaces.values_mut() {
            let has_come = held.has_come();
            let Some(catch_up) = &mut held.catches_up else { continue };
            let has = |peer: &NodeId| catch_up.first.get(peer).is_some_and(|had| had.is_within(&held.space.context));
            let is_done = match live.is_empty() {
                true => now.mono >= alone_at,
                false => has_come && live.iter().all(has),
            };
            if is_done || now.mono >= catch_up.since + SETTLE_WITHIN {
                runs.extend(std::mem::take(&mut catch_up.waiting));
                held.catches_up = None;
                continue;
            }
            catch_up.waiting.retain(|(asked, _)| {
                let is_late = asked.deadline <= now.mono;
                out.extend(is_late.then(|| refused(asked.id)));
                !is_late
            });
            if catch_up.ask_at <= now.mono {
                catch_up.ask_at = now.mono + SETTLE_EVERY;
                asks = true;
            }
        }
        if asks {
            live.iter().for_each(|peer| self.send_digest(now, *peer, true, out));
        }
        for (asked, op) in runs {
            self.ask(now, asked, op, out);
        }
    }
}

pub(crate) fn refused(id: base::AskId) -> Output {
    let why = "this node has just started, and gets what the others have";
    Output::Answer { id, answer: Outcome::Refused(Refused::busy(why, SETTLE_EVERY)) }
}

/// A frame of a few bytes may say that its cells are the outcome of a million updates, and each takes a line of the
/// index. So while the index is large a peer has what one frame may have; what is more is as if it were lost, and
/// comes when there is room again.
pub(crate) fn has_room_for(
    covered: &mut BTreeMap<NodeId, u64>,
    peer: NodeId,
    cells: &[(Address, Cell, Vec<Range>)],
) -> bool {
    let updates = |range: &Range| range.last - range.first + 1;
    let said: u64 = cells.iter().flat_map(|(.., covers)| covers).map(updates).sum();
    let all = covered.entry(peer).or_default();
    let has_room = *all + said <= INDEX_MAX as u64;
    *all += if has_room { said } else { 0 };
    has_room
}
