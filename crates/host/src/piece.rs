//! Large frames in pieces, between the two ends of a link: each piece is a frame of kind `PIECE`, whose head says which bytes of the
//! large one its body has. One large frame is under way at a time.

use base::frame::{FrameError, HEADER_BYTES};
use base::limits::FRAME_BYTES_MAX;
use base::{Frame, Lane, kind};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// One that is sent.
pub(crate) struct Large {
    lane: Lane,
    /// Its bytes on the wire, in order.
    parts: [Bytes; 3],
    bytes: usize,
    /// Of them were sent.
    sent: usize,
}

impl Large {
    pub fn new(mut frame: Frame) -> Self {
        let (lane, bytes) = (frame.lane(), frame.wire_len());
        let (head, body) = (std::mem::take(&mut frame.head), std::mem::take(&mut frame.body));
        let mut first = BytesMut::new();
        frame.encode(&mut first);
        first[..4].copy_from_slice(&((bytes - 4) as u32).to_be_bytes());
        let at = first.len() - 4;
        first[at..].copy_from_slice(&(head.len() as u32).to_be_bytes());
        Self { lane, parts: [first.freeze(), head, body], bytes, sent: 0 }
    }

    pub fn lane(&self) -> Lane {
        self.lane
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_over(&self) -> bool {
        self.sent == self.bytes
    }

    /// The next bytes, no more than so many.
    pub fn next(&mut self, most: usize) -> Frame {
        let mut head = BytesMut::with_capacity(8);
        head.put_u32(self.sent as u32);
        head.put_u32(self.bytes as u32);
        let body = match self.parts.iter_mut().find(|part| !part.is_empty()) {
            Some(part) => part.split_to(part.len().min(most)),
            None => Bytes::new(),
        };
        self.sent += body.len();
        Frame { body, ..Frame::new(kind::PIECE, head.freeze()) }
    }
}

/// What has come of one.
#[derive(Default)]
pub(crate) struct Gathered {
    whole: usize,
    have: BytesMut,
}

impl Gathered {
    /// Takes the next piece; the frame, with the last one.
    pub fn add(&mut self, piece: &Frame) -> Result<Option<Frame>, FrameError> {
        let mut head = piece.head.clone();
        let at = head.try_get_u32().unwrap_or(u32::MAX) as usize;
        let whole = head.try_get_u32().unwrap_or(0) as usize;
        if whole > 4 + FRAME_BYTES_MAX {
            return Err(FrameError::TooLong { bytes: whole });
        }
        if at == 0 && self.have.is_empty() {
            // Nothing is reserved for what is only announced.
            *self = Self { whole, have: BytesMut::new() };
        }
        let fits = !piece.body.is_empty() && whole >= 4 + HEADER_BYTES && at + piece.body.len() <= whole;
        if !fits || (whole, at) != (self.whole, self.have.len()) {
            return Err(FrameError::PieceApart { at, whole });
        }
        self.have.extend_from_slice(&piece.body);
        if self.have.len() < whole {
            return Ok(None);
        }
        let mut bytes = std::mem::take(self).have;
        match Frame::decode(&mut bytes)? {
            Some(frame) if bytes.is_empty() && frame.kind != kind::PIECE => Ok(Some(frame)),
            _ => Err(FrameError::PieceApart { at, whole }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Frame {
        Frame { body: Bytes::from(vec![7; 3000]), budget_ms: 9, ..Frame::new(kind::SESSION, vec![5; 2000]) }
    }

    fn pieces(frame: Frame) -> Vec<Frame> {
        let mut large = Large::new(frame);
        let mut all = Vec::new();
        while !large.is_over() {
            all.push(large.next(700));
        }
        all
    }

    #[test]
    fn pieces_are_the_frame() {
        let mut gathered = Gathered::default();
        // Twice: nothing stays of the first one.
        for frame in [sample(), Frame { body: Bytes::new(), ..sample() }] {
            let mut came: Vec<_> = pieces(frame.clone()).iter().map(|piece| gathered.add(piece).unwrap()).collect();
            assert_eq!(came.pop().unwrap(), Some(frame));
            assert!(came.iter().all(Option::is_none));
        }
    }

    #[test]
    fn what_does_not_follow_ends_the_link_and_takes_no_memory() {
        let all = pieces(sample());
        let apart = |order: &[usize]| {
            let mut gathered = Gathered::default();
            order.iter().map(|n| gathered.add(&all[*n])).find_map(Result::err)
        };
        assert_eq!(apart(&[0, 1, 2]), None);
        assert!([&[1][..], &[0, 2], &[0, 0]].iter().all(|order| apart(order).is_some()));
        let lie = |at: u32, whole: u32, body: usize| {
            let head = [at.to_be_bytes(), whole.to_be_bytes()].concat();
            let piece = Frame { body: vec![1; body].into(), ..Frame::new(kind::PIECE, head) };
            Gathered::default().add(&piece).is_err()
        };
        assert!(lie(0, u32::MAX, 5) && lie(0, 3, 5) && lie(0, 4, 4) && lie(0, 100, 0) && lie(0, 100, 101));
        assert!(Gathered::default().add(&Frame::new(kind::PIECE, &b"no"[..])).is_err());
        let mut nested = Large::new(Frame { kind: kind::PIECE, ..sample() });
        let mut gathered = Gathered::default();
        assert!((0..).map(|_| gathered.add(&nested.next(2500))).find_map(Result::err).is_some());
    }
}
