//! A record for the disk, in pieces: what is large (the data of an entry) is handed on as it lies in memory, between small
//! pieces that say what it is. The disk copies it once, into what it writes.

use bytes::{Bytes, BytesMut};

/// Pieces that stand one after the other on the disk.
#[derive(Clone, Debug, Default)]
pub struct Record(Vec<Bytes>);

impl Record {
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.0.push(piece);
        }
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn pieces(&self) -> &[Bytes] {
        &self.0
    }
}

impl From<Bytes> for Record {
    fn from(whole: Bytes) -> Self {
        let mut record = Self::default();
        record.push(whole);
        record
    }
}

/// In one piece.
impl From<Record> for Bytes {
    fn from(Record(mut pieces): Record) -> Self {
        if pieces.len() == 1 {
            return pieces.remove(0);
        }
        let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
        pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
        whole.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole() {
        let mut record = Record::from(Bytes::from_static(b"head"));
        record.push(Bytes::new());
        record.push(Bytes::from_static(b"data"));
        assert_eq!((record.len(), record.pieces().len(), record.is_empty()), (8, 2, false));
        assert_eq!(Bytes::from(record), &b"headdata"[..]);
        assert_eq!(Bytes::from(Record::default()), Bytes::new());
    }
}
