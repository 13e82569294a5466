//! What waits to be sent to one peer: two bounded queues, control first, so that data never keeps the news of who is
//! alive from getting through. What does not fit is dropped and counted; protocols expect loss. A large frame goes in pieces, one
//! such frame at a time, and what is smaller goes between them, if its kind is one whose frames may overtake each other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use base::{Frame, Lane, kind};
use tokio::sync::Notify;

use crate::limits::{CONTROL_QUEUE_BYTES_MAX, DATA_QUEUE_BYTES_MAX, LARGE_FRAME_BYTES, PIECE_BYTES};
use crate::piece::Large;

#[derive(Default)]
pub(crate) struct Outbox {
    lanes: RefCell<[Queue; 2]>,
    /// The writer waits in `changed`.
    parked: Cell<bool>,
    finished: Cell<bool>,
    changed: Notify,
    /// The peer puts them together.
    in_pieces: bool,
    /// What is on its way so.
    large: RefCell<Option<Large>>,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Frame>,
    bytes: usize,
}

impl Outbox {
    pub fn new(in_pieces: bool) -> Self {
        Self { in_pieces, ..Self::default() }
    }

    fn is_large(&self, frame: &Frame) -> bool {
        self.in_pieces && frame.wire_len() > LARGE_FRAME_BYTES && kind::may_overtake(frame.kind)
    }

    /// False if there was no room.
    pub fn push(&self, frame: Frame) -> bool {
        let (lane, max) = match frame.lane() {
            Lane::Control => (0, CONTROL_QUEUE_BYTES_MAX),
            Lane::Data => (1, DATA_QUEUE_BYTES_MAX),
        };
        let queue = &mut self.lanes.borrow_mut()[lane];
        let bytes = frame.wire_len();
        // A single frame may be larger than the whole queue; it goes alone.
        if queue.bytes > 0 && queue.bytes + bytes > max {
            return false;
        }
        queue.bytes += bytes;
        queue.frames.push_back(frame);
        self.wake();
        true
    }

    /// Moves frames to `to`, control first, until they are more than `bytes_max`, and with them a piece of a large one. Gives how many
    /// frames are whole with that.
    pub fn take(&self, bytes_max: usize, to: &mut Vec<Frame>) -> u64 {
        let (mut taken, mut whole) = (0, 0);
        let mut large = self.large.borrow_mut();
        for queue in self.lanes.borrow_mut().iter_mut() {
            while taken < bytes_max
                && let Some(at) = queue.frames.iter().position(|frame| large.is_none() || !self.is_large(frame))
            {
                let frame = queue.frames.remove(at).expect("it was just found");
                if self.is_large(&frame) {
                    // It counts as waiting until its last piece goes.
                    *large = Some(Large::new(frame));
                    continue;
                }
                queue.bytes -= frame.wire_len();
                taken += frame.wire_len();
                whole += 1;
                to.push(frame);
            }
            // One burst should not keep its memory for the life of the link.
            if queue.frames.is_empty() && queue.frames.capacity() > 1024 {
                queue.frames = VecDeque::new();
            }
        }
        if let Some(piece) = large.as_mut().map(|large| large.next(PIECE_BYTES)) {
            to.push(piece);
            if let Some(gone) = large.take_if(|large| large.is_over()) {
                self.lanes.borrow_mut()[usize::from(gone.lane() == Lane::Data)].bytes -= gone.bytes();
                whole += 1;
            }
        }
        whole
    }

    /// Nothing more will be pushed: the writer sends what is here and ends.
    pub fn finish(&self) {
        self.finished.set(true);
        self.wake();
    }

    pub fn is_finished(&self) -> bool {
        self.finished.get()
    }

    pub fn wake(&self) {
        if self.parked.replace(false) {
            self.changed.notify_one();
        }
    }

    /// Waits for `wake`. Nothing may happen between finding the box empty and the first poll of this; on one thread
    /// nothing does.
    pub async fn changed(&self) {
        self.parked.set(true);
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn data(bytes: usize) -> Frame {
        Frame { body: Bytes::from(vec![0; bytes]), ..Frame::new(kind::SESSION, Bytes::new()) }
    }

    #[test]
    fn control_goes_first_and_has_room_when_data_has_none() {
        let outbox = Outbox::default();
        let mut sent = 0;
        while outbox.push(data(1 << 20)) {
            sent += 1;
        }
        assert_eq!(sent, 15, "sixteen of a mebibyte and their heads are over 16 MiB");
        assert!(outbox.push(Frame::new(kind::MEMBERSHIP, &b"alive"[..])));
        let mut out = Vec::new();
        outbox.take(1, &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].kind, kind::MEMBERSHIP);
        outbox.take(usize::MAX, &mut out);
        assert_eq!(out.len(), 16);
        assert!(outbox.push(data(1 << 20)), "room comes back");
    }

    #[test]
    fn the_largest_frame_fits_into_an_empty_queue_alone() {
        let outbox = Outbox::default();
        assert!(outbox.push(data(16 << 20)));
        assert!(!outbox.push(data(1)));
    }

    #[test]
    fn what_is_small_goes_between_the_pieces_of_what_is_large() {
        let outbox = Outbox::new(true);
        let (large, other) = (Frame::new(kind::LINEAR_CALL, vec![1; 1 << 20]), data(2 << 20));
        let in_order = Frame::new(kind::LINEAR_DATA, vec![2; 1 << 20]);
        assert!([&large, &other, &data(5), &in_order, &data(6)].iter().all(|frame| outbox.push((*frame).clone())));
        let (mut out, mut whole) = (Vec::new(), outbox.take(1 << 10, &mut Vec::new()));
        assert_eq!(whole, 2, "what is small, and what keeps its order");
        while outbox.large.borrow().is_some() || outbox.lanes.borrow()[1].bytes > 0 {
            whole += outbox.take(1 << 10, &mut out);
        }
        assert_eq!((whole, outbox.lanes.borrow()[1].bytes), (5, 0));
        assert!(out[0].kind == kind::SESSION && out[0].body.len() == 6);
        assert!(out[1..].iter().all(|frame| frame.kind == kind::PIECE && frame.body.len() <= PIECE_BYTES));
        assert!(outbox.push(data(1 << 20)), "room comes back");

        let plain = Outbox::default();
        assert!(plain.push(large.clone()) && plain.push(data(5)));
        let mut out = Vec::new();
        assert_eq!((plain.take(usize::MAX, &mut out), &out[0]), (2, &large), "to a peer that does not know pieces");
    }
}
