//! What a leader writes in pieces (`piece.rs`): one command at a time, a few pieces of it under way, and what is smaller between them.

use std::collections::VecDeque;

use base::Time;
use bytes::Bytes;

use super::{Group, Mark};
use crate::functions::script::is_among;
use crate::limits::{BATCH_BYTES_MAX, PIECE_BYTES, PIECES_FLYING_MAX, WHOLE_BYTES_MAX};
use crate::piece;
use crate::space::CommandId;
use crate::wire::{self, Batch, Command};

#[derive(Default)]
pub(super) struct Writing {
    now: Option<Whole>,
    /// How many this member has begun to write.
    count: u64,
    /// Where pieces of ours are in the log that are not applied.
    flying: VecDeque<u64>,
}

struct Whole {
    id: CommandId,
    /// Its entry.
    bytes: Bytes,
    /// Of them are in the log.
    written: usize,
}

impl Writing {
    pub fn is_writing(&self) -> bool {
        self.now.is_some()
    }

    /// Of what is being written.
    pub fn bytes(&self) -> usize {
        self.now.as_ref().map_or(0, |whole| whole.bytes.len())
    }

    /// It is not led any more: what is not in the log whole never will be.
    pub fn end(&mut self) -> Option<CommandId> {
        self.flying.clear();
        self.now.take().map(|whole| whole.id)
    }
}

/// Does this one go in pieces? Scripts do not go into the log.
fn is_large(command: &Command) -> bool {
    command.bytes() > WHOLE_BYTES_MAX && !is_among(&command.steps)
}

impl Group {
    fn has_large(&self) -> bool {
        let waits = self.queue.bytes_from(base::Priority(0)) > WHOLE_BYTES_MAX;
        waits && self.agreed >= piece::LEVEL && self.queue.iter().any(is_large)
    }

    /// Puts the next pieces into the log, as far as those before are applied. True: some went.
    pub(super) fn write_pieces(&mut self, now: Time) -> bool {
        let applied = self.member.applied();
        while self.writing.flying.pop_front_if(|at| *at <= applied).is_some() {}
        if self.leads.is_none() || self.scripts.is_lent() {
            return false;
        }
        if self.writing.now.is_none() && self.has_large() {
            let mut first = true;
            let (_, commands) = self.queue.part(|command| is_large(command) && std::mem::take(&mut first));
            let Some(command) = commands.into_iter().next() else { return false };
            let id = command.id;
            let batch = Batch { commands: vec![command], bounds: self.bounds, ..Batch::default() };
            self.writing.count += 1;
            self.writing.now = Some(Whole { id, bytes: wire::encode_batch(&batch).into(), written: 0 });
        }
        let mut went = false;
        while self.writing.flying.len() < PIECES_FLYING_MAX && self.write_piece(now) {
            went = true;
        }
        went
    }

    fn write_piece(&mut self, now: Time) -> bool {
        let Some(whole) = &self.writing.now else { return false };
        let of = (self.member.term(), self.writing.count);
        let piece = piece::cut(&whole.bytes, of, whole.written, PIECE_BYTES);
        let (id, written) = (whole.id, whole.written + piece.bytes.len());
        let is_last = written == whole.bytes.len();
        let batch = Batch { clock: self.clock.now(now), piece: Some(piece), ..Batch::default() };
        if !self.member.propose(wire::encode_batch(&batch)) {
            return false;
        }
        self.quiet_ticks = 0;
        self.writing.flying.push_back(self.member.end().1);
        if is_last {
            self.writing.now = None;
            self.flying.push_back(vec![id]);
        } else if let Some(whole) = &mut self.writing.now {
            whole.written = written;
        }
        true
    }

    /// A former leader has left some here.
    pub(super) fn drops_pieces(&self) -> bool {
        self.writing.now.is_none()
            && self.writing.flying.is_empty()
            && self.agreed >= piece::LEVEL
            && self.member.applied() >= self.led_from
            && !self.member.state().pieces.is_empty()
    }

    /// What goes into the next entry, in order; what is large waits until it is its turn.
    pub(super) fn next_batch(&mut self) -> (Vec<Mark>, Vec<Command>) {
        if self.has_large() {
            return self.next_of(|_| true);
        }
        let mut bytes = 0;
        self.queue.take(|command| fits(&mut bytes, command))
    }

    /// Those of them that are wanted, wherever they stand.
    pub(super) fn next_of(&mut self, wants: impl Fn(&Command) -> bool) -> (Vec<Mark>, Vec<Command>) {
        let in_pieces = self.agreed >= piece::LEVEL;
        let (mut bytes, mut is_full) = (0, false);
        self.queue.part(|command| {
            if is_full || !wants(command) || (in_pieces && is_large(command)) {
                return false;
            }
            is_full = !fits(&mut bytes, command);
            !is_full
        })
    }
}

/// Is there room for it in an entry that has so many bytes?
fn fits(bytes: &mut usize, command: &Command) -> bool {
    let is_first = *bytes == 0;
    *bytes += command.bytes();
    is_first || *bytes <= BATCH_BYTES_MAX
}
