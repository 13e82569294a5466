//! Changes of a namespace from a cursor on. A cursor is what its holder has been told of: a context. What is missing in it leads by
//! the index to the cells that have changed, which are told as they are now: so it costs what differs, and goes on at any node.
//! Where the index has forgotten what is missing everything is told anew, a page at a time.
//!
//! The holder was told by a node that may know what this one does not. What this node lacks is taken out of the cursor: when it
//! comes here its cell is told, as it is then. Otherwise a change that was told in between would stay for ever, though older.
//!
//! A question waits here while there is nothing to tell. A place in it costs a cursor, and no memory of what was told.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use base::{AskId, Boot, NodeId, Now, Outcome, Refused, Span, Time};
use bytes::Bytes;
use prost::Message;

use crate::catchup::Held;
use crate::cell::{Cell, Sibling};
use crate::claims;
use crate::context::Context;
use crate::dot::{Dot, Life};
use crate::limits::*;
use crate::op::{Change, Changes, Did, Kind, Watch, Why};
use crate::space::{Address, Space};
use crate::wire::{self, At, tell};
use crate::{Asked, Output, Reply, Soft};

/// How far somebody is.
#[derive(Clone, PartialEq, Debug)]
pub struct Cursor {
    /// What the holder has been told of; while all is told to it, what was there when that began.
    told: Context,
    /// All is told to it, and of addresses up to this one it has been.
    at: Option<Address>,
    /// What was mended has no update of its own: the life of a node, and how many of those there were told.
    mended: Option<(Life, u64)>,
}

/// A question that waits for a change.
pub struct Watcher {
    asked: Asked,
    space: u32,
    prefix: Bytes,
    ends: bool,
    cursor: Cursor,
}

impl Cursor {
    fn of(told: Context) -> Self {
        Self { told, at: None, mended: None }
    }

    pub(crate) fn text(&self, space: u32) -> Bytes {
        let at = self.at.as_ref().map(At::from);
        let (life, mended) = self.mended.map_or((None, 0), |(life, mended)| (Some(life), mended));
        let (node, boot) = life.map_or((0, 0), |life| (life.node.0, life.boot.0));
        wire::Cursor { space, told: tell(&self.told), at, node, boot, mended }.encode_to_vec().into()
    }

    /// All is told to it from here on.
    fn begin(&mut self, space: &Space) {
        *self = Self { told: space.context.clone(), at: Some(Address::from_hash(0)), mended: None };
    }

    /// None: no node has given this for the namespace.
    pub(crate) fn read(bytes: &Bytes, space: u32) -> Option<Self> {
        let wire::Cursor { space: of, told, at, node, boot, mended } =
            claims::read::<wire::Cursor>(bytes.clone()).ok()?;
        let at = match at {
            Some(at) => Some(at.read()?),
            None => None,
        };
        let life = Life { node: NodeId(node), boot: Boot(boot) };
        let mended = (node > 0).then_some((life, mended));
        (of == space).then_some(Self { told: wire::context(&told)?, at, mended })
    }
}

impl Space {
    /// What has changed since, as much as one answer takes; and moves the cursor behind it.
    fn changes(&self, cursor: &mut Cursor, prefix: &Bytes, ends: bool) -> Changes {
        let mut told = Changes::default();
        let tells = |at: &Address| (ends || at.kind != Kind::End) && at.key.starts_with(prefix);
        // A life that was folded meanwhile was told, if its lines are in the cursor.
        cursor.told.adopts(&self.context);
        if !self.floor.is_within(&cursor.told) {
            cursor.begin(self);
            told.is_reset = true;
        }
        cursor.told = cursor.told.meet(&self.context);
        let mut bytes = 0;
        let known = cursor.mended.filter(|(life, _)| *life == self.life()).map_or(self.mended_all, |(_, known)| known);
        let missed = self.mended_all.saturating_sub(known) as usize;
        if missed > self.mended.len() && !told.is_reset {
            cursor.begin(self);
            told.is_reset = true;
        } else if !told.is_reset {
            for (nth, at) in self.mended.iter().skip(self.mended.len() - missed).enumerate() {
                if at.kind != Kind::End && at.key.starts_with(prefix) {
                    bytes += told.put(self.change_at(at, Some(Why::Repair)));
                }
                if bytes >= WATCH_BYTES {
                    cursor.mended = Some((self.life(), known + nth as u64 + 1));
                    told.is_more = true;
                    return told;
                }
            }
        }
        cursor.mended = Some((self.life(), self.mended_all));
        if let Some(at) = cursor.at.take() {
            for (looked, (at, cell)) in self.cells.range((Bound::Excluded(at), Bound::Unbounded)).enumerate() {
                if at.kind != Kind::End && cell.is_there() && at.key.starts_with(prefix) {
                    bytes += told.put(self.change_at(at, None));
                }
                if bytes >= WATCH_BYTES || looked >= WATCH_CELLS {
                    (cursor.at, told.is_more) = (Some(at.clone()), true);
                    return told;
                }
            }
        }
        // What is told already, where it stands in the answer, and whether the update is known that made it what it is.
        let mut seen: BTreeMap<&Address, Option<(usize, bool)>> = BTreeMap::new();
        'all: for range in self.context.minus(&cursor.told) {
            for (dot, at) in self.updates(&range) {
                let made_it = || self.cells.get(at).and_then(Cell::newest).is_some_and(|newest| newest.dot == *dot);
                match seen.get_mut(at) {
                    None if tells(at) => {
                        let before = told.changes.len();
                        bytes += told.put(self.change_at(at, Some(self.why(*dot))));
                        told.changes[before..].iter_mut().for_each(|change| self.tells_how(change, *dot));
                        seen.insert(at, (told.changes.len() > before).then_some((before, made_it())));
                    }
                    None => drop(seen.insert(at, None)),
                    Some(Some((nth, is_known))) if !*is_known => {
                        *is_known = made_it();
                        told.changes[*nth].why = Some(self.why(*dot));
                        self.tells_how(&mut told.changes[*nth], *dot);
                    }
                    Some(_) => (),
                }
                cursor.told.insert(*dot);
                if bytes >= WATCH_BYTES || seen.len() >= WATCH_CELLS {
                    told.is_more = true;
                    break 'all;
                }
            }
        }
        told
    }

    /// Says of what is gone how its last update took it.
    fn tells_how(&self, change: &mut Change, by: Dot) {
        if change.value.is_none() {
            change.did = self.whys.took(by);
        }
    }

    /// None: what is there is damaged, and is told when it is mended.
    fn change_at(&self, at: &Address, why: Option<Why>) -> Option<Change> {
        let cell = self.cells.get(at).filter(|cell| cell.is_there());
        if cell.is_some_and(|cell| self.is_damaged(at, cell)) {
            return None;
        }
        let value = cell.map(crate::run::value);
        let lost = cell.map(lost).unwrap_or_default();
        let did = cell.map_or(Did::Put, |cell| did(at, cell));
        let is_last = value.is_none() && !self.has(&at.key);
        Some(Change { key: at.key.clone(), kind: at.kind, element: at.element.clone(), value, why, lost, did, is_last })
    }
}

fn did(at: &Address, cell: &Cell) -> Did {
    match cell.newest() {
        Some(newest) if at.kind == Kind::Item => crate::list::did(&at.element, newest.dot),
        // Who puts something cuts what was counted, as far as he has seen it.
        _ if cell.slots.iter().any(|slot| !slot.is_cut()) => Did::Counted,
        _ => Did::Put,
    }
}

/// Values of siblings that are not read, the newest first. What several hold beside each other is no conflict.
fn lost(cell: &Cell) -> Vec<Option<Bytes>> {
    let Some(read) = cell.newest().filter(|_| cell.siblings.len() > 1) else { return Vec::new() };
    let mut others: Vec<&Sibling> =
        cell.siblings.iter().filter(|s| !s.held && s.value.is_some() && s.value != read.value).collect();
    others.sort_by_key(|s| std::cmp::Reverse((s.stamp, s.dot)));
    others.iter().take(LOST_MAX).map(|s| s.value.clone().filter(|value| value.len() <= LOST_BYTES_MAX)).collect()
}

impl Changes {
    /// Adds one, if it is one; its bytes.
    fn put(&mut self, change: Option<Change>) -> usize {
        let Some(change) = change else { return 0 };
        let value = change.value.iter().chain(&change.lost).flatten().map(Bytes::len).sum::<usize>();
        let bytes = change.key.len() + change.element.len() + value + 64;
        self.changes.push(change);
        bytes
    }
}

impl Soft {
    /// Answers what has changed, or keeps the question until something has.
    pub(crate) fn watch(&mut self, now: Now, id: u32, asked: Asked, watch: Watch, out: &mut Vec<Output>) {
        let refuse = |refused| Output::Answer { id: asked.id, answer: Outcome::Refused(refused) };
        let Some(held) = self.spaces.get_mut(&id) else { return };
        held.watched = Some(now.mono);
        let mut cursor = match watch.after {
            None => Cursor::of(held.space.context.clone()),
            Some(text) if text.is_empty() => Cursor::of(Context::default()),
            Some(text) => match Cursor::read(&text, id) {
                Some(cursor) => cursor,
                None => return out.push(refuse(Refused::wrong(NO_CURSOR))),
            },
        };
        let is_new = watch.hold == Span::ZERO;
        let told = held.space.changes(&mut cursor, &watch.prefix, watch.ends);
        if is_new || told.says_something() {
            return out.push(told.answer(asked.id, id, &cursor));
        }
        if self.watchers.len() >= WATCHERS_MAX {
            let why = format!("{WATCHERS_MAX} questions for changes wait already");
            return out.push(refuse(Refused::busy(why, Span::millis(100))));
        }
        let until = (now.mono + watch.hold.min(WATCH_HOLD)).min(asked.deadline);
        self.watchers
            .insert((until, asked.id), Watcher { asked, space: id, prefix: watch.prefix, ends: watch.ends, cursor });
    }

    /// At the end of a turn: tells those who wait what it has brought, and those whose time is over how far they are.
    pub(crate) fn tell_watchers(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.watchers.is_empty() {
            return;
        }
        let moved = |held: &mut Held| held.space.moves != std::mem::replace(&mut held.looked, held.space.moves);
        let moved: BTreeSet<u32> = self.spaces.iter_mut().filter_map(|(id, held)| moved(held).then_some(*id)).collect();
        if moved.is_empty() && self.watchers.first_key_value().is_none_or(|((until, _), _)| *until > now.mono) {
            return;
        }
        self.watchers.retain(|(until, _), watcher| {
            let Some(held) = self.spaces.get(&watcher.space) else {
                let refused = Refused::wrong("the namespace was taken out of the declaration");
                out.push(Output::Answer { id: watcher.asked.id, answer: Outcome::Refused(refused) });
                return false;
            };
            let told = match moved.contains(&watcher.space) {
                true => held.space.changes(&mut watcher.cursor, &watcher.prefix, watcher.ends),
                false => Changes::default(),
            };
            let is_over = told.says_something() || *until <= now.mono;
            if is_over {
                out.push(told.answer(watcher.asked.id, watcher.space, &watcher.cursor));
            }
            !is_over
        });
    }

    pub(crate) fn watchers_wake_at(&self) -> Option<Time> {
        self.watchers.first_key_value().map(|((until, _), _)| *until)
    }
}

/// Why a question with a cursor that is none of the namespace's is refused.
pub const NO_CURSOR: &str = "this is no cursor that a node has given for this namespace";

impl Changes {
    fn says_something(&self) -> bool {
        self.is_reset || self.is_more || !self.changes.is_empty()
    }

    fn answer(mut self, id: AskId, space: u32, cursor: &Cursor) -> Output {
        self.cursor = cursor.text(space);
        Output::Answer { id, answer: Outcome::Done(Reply::Changes(self)) }
    }
}
