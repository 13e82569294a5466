//! Objects that go in pieces, at the node that sends them: to each node one after the other, a few pieces ahead of what that node's disk
//! has, so that neither the link nor the log of anybody is filled by one object. When all are there the put follows, which makes an object of them.

use std::collections::{BTreeMap, VecDeque};

use base::{NodeId, Priority, Time};
use bytes::Bytes;

use crate::body::Body;
use crate::lies::{Parts, parts_of};
use crate::limits::{PIECES_AHEAD, PUSHES_WAITING_MAX, SHIP_AGAIN, SHIP_SILENT};
use crate::store::Why;
use crate::wire::{PieceMessage, PutMessage, StagedMessage, What};
use crate::write::Shipped;
use crate::{Call, Key, Object};

#[derive(Default)]
pub(crate) struct Ships {
    /// Objects on their way in pieces, by where they go; the first of each is under way.
    of: BTreeMap<NodeId, VecDeque<Ship>>,
}

pub(crate) struct Ship {
    /// What the pieces are called at the other side.
    stage: u64,
    cargo: Cargo,
    parts: Parts,
    priority: Priority,
    cause: Cause,
    /// Pieces that were sent, and that the other disk has.
    sent: usize,
    acked: usize,
    /// What was sent once more, as something was lost before it; not again before the next time.
    rewound: Option<u32>,
    /// When something was heard of it that is new. None: it waits for others.
    heard: Option<Time>,
    again: Time,
}

/// What is sent.
#[derive(Clone)]
pub(crate) enum Cargo {
    Body(Body),
    /// What this node has, wherever it lies: the entry with this serial.
    Entry(Key, u64),
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// An operation of this node's doors.
    Op(u64),
    Push(Key),
}

impl Ships {
    pub fn wake_at(&self) -> Option<Time> {
        self.of.values().filter_map(|all| all.front().filter(|ship| ship.heard.is_some())).map(|ship| ship.again).min()
    }

    /// An operation is over: nobody needs its pieces. Gives whose turn may have come.
    pub fn drop_op(&mut self, id: u64) -> Vec<NodeId> {
        let mut to = Vec::new();
        for (node, all) in &mut self.of {
            let before = all.len();
            all.retain(|ship| ship.cause != Cause::Op(id));
            if all.len() < before {
                to.push(*node);
            }
        }
        self.of.retain(|_, all| !all.is_empty());
        to
    }

    /// A node went, with all that was to go there.
    pub fn lose(&mut self, to: NodeId) {
        self.of.remove(&to);
    }

    /// This write is on its way there already, or so much is that it has to wait.
    pub fn may_push(&self, to: NodeId, key: &Key) -> bool {
        let Some(all) = self.of.get(&to) else { return true };
        let pushes = all.iter().filter(|ship| matches!(ship.cause, Cause::Push(_))).count();
        let is_there = all.iter().any(|ship| matches!(&ship.cause, Cause::Push(of) if of == key));
        !is_there && pushes < PUSHES_WAITING_MAX
    }
}

impl Object {
    pub(crate) fn ship(&mut self, call: &mut Call, to: NodeId, cargo: Cargo, cause: Cause, priority: Priority) {
        let parts = match &cargo {
            Cargo::Body(body) => parts_of(body),
            Cargo::Entry(key, _) => self.table.get(key).map(|entry| entry.body.parts()).unwrap_or_default(),
        };
        let stage = self.ops.next_id();
        let is_push = matches!(cause, Cause::Push(_));
        let (sent, acked, rewound, heard, again) = (0, 0, None, None, Time::NEVER);
        let ship = Ship { stage, cargo, parts, priority, cause, sent, acked, rewound, heard, again };
        let all = self.ships.of.entry(to).or_default();
        // Somebody waits for a put; what is under way stays so.
        let pushes = all.iter().skip(1).position(|ship| matches!(ship.cause, Cause::Push(_)));
        match pushes.filter(|_| !is_push) {
            Some(at) => all.insert(at + 1, ship),
            None => all.push_back(ship),
        }
        self.ship_on(call, to);
    }

    /// Sends what may go now.
    pub(crate) fn ship_on(&mut self, call: &mut Call, to: NodeId) {
        let Some(ship) = self.ships.of.get_mut(&to).and_then(VecDeque::front_mut) else { return };
        if ship.heard.is_none() {
            (ship.heard, ship.again) = (Some(call.now), call.now + SHIP_AGAIN);
        }
        let (stage, priority, cargo) = (ship.stage, ship.priority, ship.cargo.clone());
        let mut from: usize = ship.parts[..ship.sent].iter().map(|part| part.len as usize).sum();
        let some = &ship.parts[ship.sent..ship.parts.len().min(ship.acked + PIECES_AHEAD).max(ship.sent)];
        let lens: Vec<usize> = some.iter().map(|part| part.len as usize).collect();
        ship.sent += lens.len();
        let is_there = |key: &Key, serial| self.table.get(key).is_some_and(|entry| entry.serial == serial);
        if matches!(&cargo, Cargo::Entry(key, serial) if !is_there(key, *serial)) {
            // It was deleted, say: the other side hears of that.
            return self.shipped(call, to, false);
        }
        for len in lens {
            match &cargo {
                Cargo::Body(body) => {
                    let Some((_, piece)) = body.piece_at(from) else { break };
                    let message = PieceMessage { stage, from: from as u32, sum: piece.sum };
                    let bytes = piece.bytes.clone();
                    self.send(call, to, 0, priority, What::Piece(message), bytes);
                }
                Cargo::Entry(key, _) => _ = self.give(call, key, from, Why::Ship { to, stage, priority }),
            }
            from += len;
        }
    }

    /// A node says how much it has of what it is sent.
    pub(crate) fn staged(&mut self, call: &mut Call, from: NodeId, said: StagedMessage) {
        let Some(all) = self.ships.of.get_mut(&from) else { return };
        let Some(ship) = all.front_mut().filter(|ship| ship.stage == said.stage) else { return };
        if said.full {
            return self.shipped(call, from, false);
        }
        let upto = |bytes: u32| {
            let mut end = 0;
            let ends = ship.parts.iter().map(|part| {
                end += part.len as usize;
                end
            });
            ends.take_while(|end| *end <= bytes as usize).count()
        };
        let (acked, next) = (upto(said.upto), upto(said.next));
        if acked > ship.acked {
            (ship.acked, ship.heard, ship.again) = (acked, Some(call.now), call.now + SHIP_AGAIN);
            ship.sent = ship.sent.max(acked);
        }
        if said.gap && next < ship.sent && ship.rewound != Some(said.next) {
            // It lost what it had, or never had it.
            (ship.sent, ship.rewound) = (next, Some(said.next));
            ship.acked = ship.acked.min(next);
        }
        if ship.acked == ship.parts.len() {
            return self.shipped(call, from, true);
        }
        self.ship_on(call, from);
    }

    /// The first of a node's is over.
    fn shipped(&mut self, call: &mut Call, to: NodeId, is_there: bool) {
        let Some(Ship { stage, cause, .. }) = self.ships.of.get_mut(&to).and_then(VecDeque::pop_front) else { return };
        if self.ships.of.get(&to).is_some_and(VecDeque::is_empty) {
            self.ships.of.remove(&to);
        }
        match cause {
            Cause::Op(id) => self.with(call, id, |_, op| {
                op.is_shipped(to, if is_there { Shipped::There { stage } } else { Shipped::Refused });
                None
            }),
            Cause::Push(key) if is_there => self.push_staged(call, to, &key, stage),
            Cause::Push(_) => (),
        }
        self.ship_on(call, to);
    }

    /// The bytes of what is pushed are there: now it is said what they are, as it is now.
    fn push_staged(&mut self, call: &mut Call, to: NodeId, key: &Key, stage: u64) {
        let Some(entry) = self.table.get(key).filter(|entry| entry.body.is_in_pieces()) else { return };
        let held = Some((&entry.held).into());
        let put = PutMessage { key: Some(key.into()), held, push: true, stage };
        self.send(call, to, 0, Priority::LOWEST, What::Put(put), Bytes::new());
    }

    /// What was not heard of for a while is sent once more; what was not for long is given up.
    pub(crate) fn wake_ships(&mut self, call: &mut Call) {
        let is_due = |ship: &Ship| ship.heard.is_some() && ship.again <= call.now;
        let due: Vec<NodeId> =
            self.ships.of.iter().filter(|(_, all)| all.front().is_some_and(is_due)).map(|(to, _)| *to).collect();
        for to in due {
            let Some(ship) = self.ships.of.get_mut(&to).and_then(VecDeque::front_mut) else { continue };
            if ship.heard.is_some_and(|heard| call.now.since(heard) >= SHIP_SILENT) {
                self.shipped(call, to, false);
                continue;
            }
            (ship.sent, ship.rewound, ship.again) = (ship.acked, None, call.now + SHIP_AGAIN);
            self.ship_on(call, to);
        }
    }
}
