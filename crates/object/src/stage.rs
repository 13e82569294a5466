//! Objects that come in pieces, at the node that is to have them. Each piece goes to the log when it comes, and is acknowledged when it is
//! on the disk; but until the put itself comes, which names the *stage* that they are on, there is no object: nobody reads what is on a
//! stage, and a restart drops it. So an object is there whole or not at all.

use std::collections::BTreeMap;

use base::checksum::Checksum;
use base::{NodeId, Priority, Time};
use bytes::Bytes;

use crate::body::{Body, Piece};
use crate::limits::{OBJECT_BYTES_MAX, PIECES_MAX, STAGED_BYTES_MAX, STAGED_FOR, STAGES_MAX};
use crate::log::{Waiter, Waits};
use crate::wire::{PieceMessage, StagedMessage, What};
use crate::{Call, Object};

/// What is on its way to this node, by who sends it and what that calls it.
#[derive(Default)]
pub(crate) struct Stages {
    of: BTreeMap<(NodeId, u64), Stage>,
    bytes: u64,
}

pub(crate) struct Stage {
    /// What its pieces are called in the log.
    pub set: u64,
    pub pieces: Vec<Piece>,
    len: usize,
    /// So much of it is on the disk.
    safe: usize,
    /// When the last piece came.
    at: Time,
    /// More is on the disk than its sender was told, as packs are behind.
    is_owed: bool,
}

impl Stages {
    /// Memory that they take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn iter(&self) -> impl Iterator<Item = &Stage> {
        self.of.values()
    }

    /// What came under this name, and is there no longer then.
    pub fn take(&mut self, from: NodeId, stage: u64) -> Option<Stage> {
        let stage = self.of.remove(&(from, stage))?;
        self.bytes -= stage.len as u64;
        Some(stage)
    }

    fn drop_if(&mut self, is_over: impl Fn(NodeId, &Stage) -> bool) {
        self.of.retain(|(from, _), stage| !is_over(*from, stage));
        self.bytes = self.of.values().map(|stage| stage.len as u64).sum();
    }

    /// Whoever sent it is gone: no put will name it.
    pub fn lose(&mut self, peer: NodeId) {
        self.drop_if(|from, _| from == peer);
    }

    pub fn drop_old(&mut self, now: Time) {
        self.drop_if(|_, stage| now.since(stage.at) >= STAGED_FOR);
    }

    /// A node sends one object after the other: of what it began before the last one nothing more comes.
    fn make_room(&mut self, from: NodeId, now: Time) {
        let of_sender = |stages: &Self| stages.of.keys().filter(|(of, _)| *of == from).count();
        while of_sender(self) >= STAGES_MAX {
            let is_its = |((of, _), _): &(&(NodeId, u64), &Stage)| *of == from;
            let oldest = self.of.iter().filter(is_its).max_by_key(|(_, stage)| now.since(stage.at));
            let Some((_, name)) = oldest.map(|((of, name), _)| (*of, *name)) else { return };
            self.take(from, name);
        }
    }
}

impl Object {
    /// A piece has come. None for what cannot be.
    pub(crate) fn piece(&mut self, call: &mut Call, from: NodeId, piece: PieceMessage, body: Bytes) -> Option<()> {
        let PieceMessage { stage: name, from: begins, sum } = piece;
        let begins = begins as usize;
        if body.is_empty() || begins + body.len() > OBJECT_BYTES_MAX || name == 0 {
            return None;
        }
        // A damaged frame: as if it had not come. It is sent once more.
        if !Checksum(sum).matches(&body) {
            self.figures.damaged += 1;
            return Some(());
        }
        let there = self.stages.of.get(&(from, name)).map_or(0, |stage| stage.len);
        if begins != there {
            // One that came before, or one behind another that was lost.
            self.say_staged(call, from, name, begins > there);
            return Some(());
        }
        let has_room = self.stages.bytes + body.len() as u64 <= STAGED_BYTES_MAX;
        let pieces = self.stages.of.get(&(from, name)).map_or(0, |stage| stage.pieces.len());
        if self.is_full() || !has_room || pieces >= PIECES_MAX {
            self.stages.take(from, name);
            let staged = StagedMessage { stage: name, full: true, ..StagedMessage::default() };
            self.send(call, from, 0, Priority::NORMAL, What::Staged(staged), Bytes::new());
            return Some(());
        }
        if there == 0 {
            self.stages.make_room(from, call.now);
        }
        // What came in a frame shares its memory with others.
        let bytes = if from == self.me { body } else { Bytes::copy_from_slice(&body) };
        let fresh =
            Stage { set: self.rng.u64().max(1), pieces: Vec::new(), len: 0, safe: 0, at: call.now, is_owed: false };
        let stage = self.stages.of.entry((from, name)).or_insert(fresh);
        stage.len += bytes.len();
        stage.at = call.now;
        self.stages.bytes += bytes.len() as u64;
        let (set, piece) = (stage.set, Piece { bytes, sum });
        stage.pieces.push(piece.clone());
        let waiter = Waiter { to: from, id: 0, waits: Waits::Staged { stage: name, upto: begins + piece.bytes.len() } };
        self.append_piece(call, set, begins, &piece, waiter);
        Some(())
    }

    /// Says how much of it is here. `gap`: what came does not follow upon it.
    fn say_staged(&mut self, call: &mut Call, to: NodeId, name: u64, gap: bool) {
        // Whoever sends it sends no more until then.
        if let Some(stage) =
            self.stages.of.get_mut(&(to, name)).filter(|_| self.store.is_behind(self.table.here, &self.settings))
        {
            stage.is_owed = true;
            return;
        }
        let (safe, next) = self.stages.of.get(&(to, name)).map_or((0, 0), |stage| (stage.safe, stage.len));
        let staged = StagedMessage { stage: name, upto: safe as u32, next: next as u32, gap, full: false };
        self.send(call, to, 0, Priority::NORMAL, What::Staged(staged), Bytes::new());
    }

    /// Packs are not behind any more.
    pub(crate) fn say_owed(&mut self, call: &mut Call) {
        if self.store.is_behind(self.table.here, &self.settings) {
            return;
        }
        let take = |(name, stage): (&(NodeId, u64), &mut Stage)| std::mem::take(&mut stage.is_owed).then_some(*name);
        let owed: Vec<(NodeId, u64)> = self.stages.of.iter_mut().filter_map(take).collect();
        owed.into_iter().for_each(|(to, name)| self.say_staged(call, to, name, false));
    }

    /// All up to there is on the disk.
    pub(crate) fn is_staged(&mut self, call: &mut Call, to: NodeId, name: u64, upto: usize) {
        // It may have been dropped meanwhile.
        let Some(stage) = self.stages.of.get_mut(&(to, name)) else { return };
        stage.safe = stage.safe.max(upto);
        self.say_staged(call, to, name, false);
    }

    /// What a put names, if it is all here and has the checksum of the whole.
    pub(crate) fn take_staged(&mut self, from: NodeId, name: u64, sum: u32, size: u32) -> Option<(u64, Body)> {
        let Stage { set, pieces, .. } = self.stages.take(from, name)?;
        let body = Body::of(pieces);
        if body.len() != size as usize {
            return None;
        }
        if body.sum() != sum {
            self.figures.damaged += 1;
            return None;
        }
        Some((set, body))
    }
}
