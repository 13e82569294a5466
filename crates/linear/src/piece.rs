//! Large entries of a log in pieces, so that nobody else's entry, and nothing else on the disk, the links and the core thread of a
//! node, waits for all of one. Each piece is an entry of its own; others go between them. What the whole says happens at the
//! entry that has its last piece, at every member.
//!
//! A leader writes one at a time. If it loses the lead, what came of that stays where it is until another one begins, or the next
//! leader says that it may go: no more than one of the largest commands.

use bytes::{Bytes, BytesMut};

use super::limits::COMMAND_BYTES_MAX;

/// Of programs that know it.
pub const LEVEL: u32 = 10;

/// Largest whole, bytes: a command, and what its entry has besides it.
const MADE_BYTES_MAX: usize = COMMAND_BYTES_MAX + (4 << 10);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Which entry: the term of the leader that wrote it, and how many that one had written before.
    pub of: (u64, u64),
    /// Where it begins there.
    pub at: usize,
    /// Bytes of the whole.
    pub whole: usize,
    pub bytes: Bytes,
}

/// What has come of one, in order, from its beginning.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Pieces {
    of: (u64, u64),
    whole: usize,
    have: Vec<Bytes>,
    bytes: usize,
}

impl Pieces {
    /// Takes the piece if it is the first of one, or the next one of this; the whole, when it was the last.
    pub fn add(&mut self, piece: Piece) -> Option<Bytes> {
        let Piece { of, at, whole, bytes } = piece;
        if at == 0 && whole <= MADE_BYTES_MAX {
            *self = Self { of, whole, ..Self::default() };
        }
        let is_next = (self.of, self.whole, self.bytes) == (of, whole, at);
        if !is_next || bytes.is_empty() || bytes.len() > whole.saturating_sub(at) {
            return None;
        }
        self.bytes += bytes.len();
        self.have.push(bytes);
        if self.bytes < whole {
            return None;
        }
        let mut made = BytesMut::with_capacity(whole);
        std::mem::take(self).have.iter().for_each(|piece| made.extend_from_slice(piece));
        Some(made.freeze())
    }

    pub fn is_empty(&self) -> bool {
        self.have.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it has, for a snapshot.
    pub fn all(&self) -> impl Iterator<Item = Piece> {
        self.have.iter().scan(0, |at, bytes| {
            let piece = Piece { of: self.of, at: *at, whole: self.whole, bytes: bytes.clone() };
            *at += bytes.len();
            Some(piece)
        })
    }
}

/// The piece that begins at `at`.
pub fn cut(whole: &Bytes, of: (u64, u64), at: usize, most: usize) -> Piece {
    let end = whole.len().min(at + most);
    Piece { of, at, whole: whole.len(), bytes: whole.slice(at..end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Bytes {
        (0..=99).collect::<Vec<u8>>().into()
    }

    #[test]
    fn pieces_in_order_are_the_whole_and_what_does_not_follow_is_not_taken() {
        let mut pieces = Pieces::default();
        let cut = |at| cut(&whole(), (3, 1), at, 30);
        assert_eq!(pieces.add(cut(30)), None, "without its beginning");
        assert!(pieces.is_empty());
        assert_eq!((pieces.add(cut(0)), pieces.add(cut(60)), pieces.add(cut(30))), (None, None, None));
        assert_eq!(pieces.add(Piece { of: (4, 1), ..cut(60) }), None, "of another leader");
        assert_eq!(pieces.bytes(), 60);
        let mut copy = Pieces::default();
        assert!(pieces.all().all(|piece| copy.add(piece).is_none()));
        assert_eq!(copy, pieces, "a snapshot has it");
        assert_eq!((pieces.add(cut(60)), pieces.add(cut(90))), (None, Some(whole())));
        assert_eq!(pieces, Pieces::default());
    }

    #[test]
    fn another_one_takes_its_place_and_nothing_grows_without_bound() {
        let mut pieces = Pieces::default();
        pieces.add(cut(&whole(), (3, 1), 0, 30));
        assert_eq!(pieces.add(cut(&whole(), (4, 1), 0, 100)), Some(whole()));
        assert_eq!(pieces.add(Piece { whole: MADE_BYTES_MAX + 1, ..cut(&whole(), (5, 1), 0, 30) }), None);
        assert_eq!(pieces.add(Piece { whole: 20, ..cut(&whole(), (5, 1), 0, 30) }), None);
        assert_eq!(pieces.add(Piece { bytes: Bytes::new(), ..cut(&whole(), (5, 1), 0, 30) }), None);
        assert_eq!(pieces.bytes(), 0);
    }
}
