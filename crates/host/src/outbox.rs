//! What waits to be sent to one peer: two bounded queues, control first, so that data never keeps the news of who is
//! alive from getting through. What does not fit is dropped and counted; protocols expect loss.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use base::{Frame, Lane};
use tokio::sync::Notify;

use crate::limits::{CONTROL_QUEUE_BYTES_MAX, DATA_QUEUE_BYTES_MAX};

#[derive(Default)]
pub(crate) struct Outbox {
    lanes: RefCell<[Queue; 2]>,
    /// The writer waits in `changed`.
    parked: Cell<bool>,
    finished: Cell<bool>,
    changed: Notify,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Frame>,
    bytes: usize,
}

impl Outbox {
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

    /// Moves frames to `to`, control first, until they are more than `bytes_max`.
    pub fn take(&self, bytes_max: usize, to: &mut Vec<Frame>) {
        let mut taken = 0;
        for queue in self.lanes.borrow_mut().iter_mut() {
            while taken < bytes_max
                && let Some(frame) = queue.frames.pop_front()
            {
                queue.bytes -= frame.wire_len();
                taken += frame.wire_len();
                to.push(frame);
            }
            // One burst should not keep its memory for the life of the link.
            if queue.frames.is_empty() && queue.frames.capacity() > 1024 {
                queue.frames = VecDeque::new();
            }
        }
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
    use base::kind;
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
}
