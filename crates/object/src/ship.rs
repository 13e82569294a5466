//! Objects that go in pieces, at the node that sends them: to each node one after the other, a few pieces ahead of what that node's disk
//! has, so that neither the link nor the log of anybody is filled by one object. When all are there the put follows, which makes an object of them.

use std::collections::{BTreeMap, VecDeque};

use base::{NodeId, Priority, Time};
use bytes::Bytes;

use crate::body::Body;
use crate::limits::{PIECES_AHEAD, PUSHES_WAITING_MAX, SHIP_AGAIN, SHIP_SILENT};
use crate::wire::{PieceMessage, PutMessage, StagedMessage, What};
use crate::write::Shipped;
use crate::{Call, Key, Object};

#[derive(Default)]
pub(crate) struct Ships {
    /// By where they go, the first is under way.
    of: BTreeMap<NodeId, VecDeque<Ship>>,
}

pub(crate) struct Ship {
    /// What the pieces are called at the other side.
    stage: u64,
    body: Body,
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
    pub(crate) fn ship(&mut self, call: &mut Call, to: NodeId, body: Body, cause: Cause, priority: Priority) {
        let stage = self.ops.next_id();
        let is_push = matches!(cause, Cause::Push(_));
        let (sent, acked, rewound, heard, again) = (0, 0, None, None, Time::NEVER);
        let ship = Ship { stage, body, priority, cause, sent, acked, rewound, heard, again };
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
        let mut out = Vec::new();
        let Some(ship) = self.ships.of.get_mut(&to).and_then(VecDeque::front_mut) else { return };
        if ship.heard.is_none() {
            (ship.heard, ship.again) = (Some(call.now), call.now + SHIP_AGAIN);
        }
        let pieces = ship.body.pieces();
        let mut from: usize = pieces[..ship.sent].iter().map(|piece| piece.bytes.len()).sum();
        for piece in &pieces[ship.sent..pieces.len().min(ship.acked + PIECES_AHEAD).max(ship.sent)] {
            let message = PieceMessage { stage: ship.stage, from: from as u32, sum: piece.sum };
            from += piece.bytes.len();
            out.push((message, piece.bytes.clone()));
        }
        ship.sent += out.len();
        let priority = ship.priority;
        for (message, bytes) in out {
            self.send(call, to, 0, priority, What::Piece(message), bytes);
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
            let ends = ship.body.pieces().iter().map(|piece| {
                end += piece.bytes.len();
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
        if ship.acked == ship.body.pieces().len() {
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
