//! The bytes of an object, in pieces: one, if it is no larger than a frame may be, else as many as that takes. Each piece has a checksum of
//! its own, and all together have the one that stands in the stamp.

use base::checksum::{Checksum, Summing};
use bytes::{Bytes, BytesMut};

use crate::limits::PIECE_BYTES;

/// Cheap to clone: pieces are shared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Body {
    /// Invariant: none is empty.
    pieces: Vec<Piece>,
    len: usize,
    sum: u32,
}

/// A part of an object that travels, and lies in the log, as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub bytes: Bytes,
    /// CRC-32C.
    pub sum: u32,
}

impl Piece {
    /// Its bytes are what they were.
    pub fn is_right(&self) -> bool {
        Checksum(self.sum).matches(&self.bytes)
    }
}

impl Body {
    /// Takes bytes as they came, in parts of any size, and cuts them: none is copied that has not to be joined.
    pub fn cut(parts: impl IntoIterator<Item = Bytes>, piece_bytes: usize) -> Self {
        let mut cutter = Cutter::new(piece_bytes);
        parts.into_iter().for_each(|part| cutter.add(part));
        cutter.body()
    }

    pub(crate) fn of(pieces: Vec<Piece>) -> Self {
        if let [piece] = &pieces[..] {
            let (len, sum) = (piece.bytes.len(), piece.sum);
            return Self { pieces, len, sum };
        }
        let mut summing = Summing::default();
        pieces.iter().for_each(|piece| summing.add(&piece.bytes));
        let len = pieces.iter().map(|piece| piece.bytes.len()).sum();
        Self { pieces, len, sum: summing.sum().0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// CRC-32C of all of it.
    pub fn sum(&self) -> u32 {
        self.sum
    }

    /// All its bytes have this checksum.
    pub(crate) fn is_right(&self, sum: u32) -> bool {
        self.sum == sum && self.pieces.iter().all(Piece::is_right)
    }

    /// Whether the body is more than one frame, or one record of the log, takes.
    pub(crate) fn is_in_pieces(&self) -> bool {
        self.pieces.len() > 1
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The bytes of one that is not in pieces.
    pub(crate) fn whole(&self) -> Bytes {
        debug_assert!(!self.is_in_pieces(), "what is in pieces goes piece by piece");
        self.pieces.first().map(|piece| piece.bytes.clone()).unwrap_or_default()
    }

    /// The piece in which a byte is, and where it begins; none behind the last one.
    pub(crate) fn piece_at(&self, at: usize) -> Option<(usize, &Piece)> {
        let mut from = 0;
        self.pieces.iter().find_map(|piece| {
            let (begins, ends) = (from, from + piece.bytes.len());
            from = ends;
            (at < ends).then_some((begins, piece))
        })
    }

    /// A copy in memory of its own: what lies for long must not keep what it came in.
    pub(crate) fn copied(&self) -> Self {
        let own = |piece: &Piece| Piece { bytes: Bytes::copy_from_slice(&piece.bytes), sum: piece.sum };
        Self { pieces: self.pieces.iter().map(own).collect(), len: self.len, sum: self.sum }
    }
}

impl From<Bytes> for Body {
    fn from(whole: Bytes) -> Self {
        Self::cut([whole], PIECE_BYTES)
    }
}

/// Makes a body of bytes that come one after the other, and holds no more than these.
#[derive(Debug)]
pub struct Cutter {
    piece_bytes: usize,
    pieces: Vec<Piece>,
    /// What is less than a piece yet.
    rest: BytesMut,
    len: usize,
    summing: Summing,
}

impl Default for Cutter {
    fn default() -> Self {
        Self::new(PIECE_BYTES)
    }
}

impl Cutter {
    pub fn new(piece_bytes: usize) -> Self {
        Self { piece_bytes, pieces: Vec::new(), rest: BytesMut::new(), len: 0, summing: Summing::default() }
    }

    pub fn add(&mut self, mut part: Bytes) {
        self.len += part.len();
        self.summing.add(&part);
        while !part.is_empty() {
            if self.rest.is_empty() && part.len() >= self.piece_bytes {
                let piece = part.split_to(self.piece_bytes);
                self.push(piece);
                continue;
            }
            let some = part.split_to(part.len().min(self.piece_bytes - self.rest.len()));
            let len = self.rest.len() + some.len();
            if len > self.rest.capacity() {
                // A small object takes what it has, a large one a piece at once: doubling would keep up to twice as much.
                let more = if len <= self.piece_bytes / 8 { some.len() } else { self.piece_bytes - self.rest.len() };
                self.rest.reserve(more);
            }
            self.rest.extend_from_slice(&some);
            if self.rest.len() == self.piece_bytes {
                let piece = std::mem::take(&mut self.rest).freeze();
                self.push(piece);
            }
        }
    }

    fn push(&mut self, bytes: Bytes) {
        let sum = Checksum::of(&bytes).0;
        self.pieces.push(Piece { bytes, sum });
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn body(mut self) -> Body {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest).freeze();
            self.push(rest);
        }
        Body { pieces: self.pieces, len: self.len, sum: self.summing.sum().0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_parts_come_the_pieces_are_the_same() {
        let text = Bytes::from_static(b"0123456789abcdefg");
        let whole = Body::cut([text.clone()], 4);
        assert_eq!((whole.len(), whole.pieces.len(), whole.is_in_pieces()), (17, 5, true));
        assert_eq!(whole.sum(), Checksum::of(&text).0);
        for at_once in 1..=17 {
            let parts = text.chunks(at_once).map(Bytes::copy_from_slice);
            assert_eq!(Body::cut(parts, 4), whole, "{at_once} at once");
        }
        assert_eq!(Body::of(whole.pieces.clone()), whole);
        let begins: Vec<_> = [0, 3, 4, 16, 17].map(|at| whole.piece_at(at).map(|(from, _)| from)).into();
        assert_eq!(begins, [Some(0), Some(0), Some(4), Some(16), None]);
        let small = Body::from(Bytes::from_static(b"hello"));
        assert_eq!((small.is_in_pieces(), small.whole()), (false, Bytes::from_static(b"hello")));
        assert_eq!((Body::from(Bytes::new()).sum(), Body::default().sum()), (0, 0));
    }
}
