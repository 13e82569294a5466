//! A frame: one message between two nodes, with what travels on every message (deadline, priority, sender's load).
//! What a frame's head means is known by the protocol that owns its kind; how frames become bytes is at the end of this file.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::limits::FRAME_BYTES_MAX;

/// Who owns a frame. One list, so that no two protocols take the same number; a number is never given twice.
pub mod kind {
    pub const MEMBERSHIP: u16 = 1;
    pub const BEACON: u16 = 2;
    pub const ROOT: u16 = 3;
    /// A question for the root group's leader, and its answer.
    pub const ROOT_CALL: u16 = 4;
    /// What members of a `linear` group say to each other without data: votes, heartbeats, acknowledgements.
    pub const LINEAR_CONTROL: u16 = 5;
    /// What an edge saw of its requests, for the manager.
    pub const DEMAND: u16 = 6;
    /// What an edge says of its requests by priority, for all other edges.
    pub const DOORS: u16 = 7;
    /// What level the cluster has agreed on, to a node whose program has less.
    pub const LEVEL: u16 = 8;
    /// To a node that was removed: that it was.
    pub const REMOVED: u16 = 9;
    /// What clients of a node listen to, and that a peer knows it.
    pub const CHANNELS: u16 = 10;
    /// What a node has to run, and the root group's leader's word that it may.
    pub const RUNS: u16 = 11;
    /// To a node that was away for too long: that it is to enter the cluster anew.
    pub const ANEW: u16 = 12;
    pub const SESSION: u16 = 16;
    /// Entries and snapshots of a `linear` group.
    pub const LINEAR_DATA: u16 = 17;
    /// Operations for a `linear` group's leader, and their answers.
    pub const LINEAR_CALL: u16 = 18;
    /// Messages to all clones of a service.
    pub const MEMBERS: u16 = 24;
    /// Messages on channels, to a node whose clients listen to them.
    pub const MESSAGES: u16 = 25;
    /// Of a large frame: known to links alone (`host/src/outbox.rs`).
    pub const PIECE: u16 = 26;
    /// Of state classes by their number, eight each (`class/src/number.rs`): control frames, and below them data.
    pub const CLASSES_CONTROL: std::ops::Range<u16> = 0x1000..0x1800;
    pub const CLASSES_DATA: std::ops::Range<u16> = 0x2000..0x2800;

    /// Is nothing gained where frames of this kind come in the order in which they were sent? (They may come otherwise in any case; entries
    /// of a group would have to be sent again, messages of a channel would be told late.)
    pub fn may_overtake(kind: u16) -> bool {
        matches!(kind, SESSION | LINEAR_CALL) || CLASSES_DATA.contains(&kind)
    }
}

/// Control frames (who is here, who leads) have a share of the link that data cannot take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    Control,
    Data,
}

/// How much a request matters: 0 is dropped first, 7 last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Priority(pub u8);

impl Priority {
    pub const LOWEST: Priority = Priority(0);
    pub const NORMAL: Priority = Priority(4);
    pub const HIGHEST: Priority = Priority(7);

    /// Of a request's priority at the edge, 0 to 9 with 5 as the usual one. The highest is kept for what nodes do by themselves.
    pub fn of_ten(class: u8) -> Priority {
        let nearest = (class.min(PRIORITY_MAX) * Self::HIGHEST.0 + PRIORITY_MAX / 2) / PRIORITY_MAX;
        Priority(nearest.min(Self::HIGHEST.0 - 1))
    }
}

/// The highest priority that a request has at the edge.
pub const PRIORITY_MAX: u8 = 9;

/// One message between two nodes. `head` is the protocol's message, `body` a value that is never copied into it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub kind: u16,
    pub priority: Priority,
    /// What is left of the request's time, in milliseconds; 0 means no deadline. A span, as clocks of two nodes differ.
    pub budget_ms: u32,
    /// Load of the sender, 0 (idle) to 1000 (full). Set by the node when it sends.
    pub load: u16,
    pub head: Bytes,
    pub body: Bytes,
}

/// Why bytes are not a frame. The link that sent them cannot be believed any more and is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameError {
    TooLong { bytes: usize },
    HeaderTooShort { bytes: usize },
    HeadPastEnd { head: usize, rest: usize },
    PieceApart { at: usize, whole: usize },
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { bytes } => write!(f, "frame of {bytes} bytes is over the limit of {FRAME_BYTES_MAX}"),
            Self::HeaderTooShort { bytes } => write!(f, "frame header of {bytes} bytes is under {HEADER_BYTES}"),
            Self::HeadPastEnd { head, rest } => write!(f, "head of {head} bytes in a frame with {rest} left"),
            Self::PieceApart { at, whole } => write!(f, "a piece at byte {at} of {whole} does not follow"),
        }
    }
}

impl Frame {
    pub fn new(kind: u16, head: impl Into<Bytes>) -> Self {
        Self { kind, priority: Priority::NORMAL, budget_ms: 0, load: 0, head: head.into(), body: Bytes::new() }
    }

    pub fn lane(&self) -> Lane {
        let is_control = self.kind < kind::SESSION || kind::CLASSES_CONTROL.contains(&self.kind);
        if is_control { Lane::Control } else { Lane::Data }
    }

    pub fn wire_len(&self) -> usize {
        4 + HEADER_BYTES + self.head.len() + self.body.len()
    }

    /// Appends the frame's bytes:
    /// ```text
    /// u32 length of what follows
    /// u8  header length   a newer minor version may make it longer: what is past the known fields is skipped
    /// u8  priority
    /// u16 kind
    /// u16 load
    /// u32 budget, ms
    /// u32 head length
    ///     head, body
    /// ```
    pub fn encode(&self, out: &mut BytesMut) {
        let len = HEADER_BYTES + self.head.len() + self.body.len();
        assert!(len <= FRAME_BYTES_MAX, "a frame of {len} bytes was built");
        out.reserve(4 + len);
        out.put_u32(len as u32);
        out.put_u8(HEADER_BYTES as u8);
        out.put_u8(self.priority.0);
        out.put_u16(self.kind);
        out.put_u16(self.load);
        out.put_u32(self.budget_ms);
        out.put_u32(self.head.len() as u32);
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&self.body);
    }

    /// Takes one frame off the front of `from`, or nothing if it is not whole yet. Head and body share `from`'s memory.
    pub fn decode(from: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let Some(len) = from.first_chunk::<4>().map(|b| u32::from_be_bytes(*b) as usize) else { return Ok(None) };
        if len > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong { bytes: len });
        }
        if len < HEADER_BYTES {
            return Err(FrameError::HeaderTooShort { bytes: len });
        }
        if from.len() < 4 + len {
            return Ok(None);
        }
        from.advance(4);
        let mut whole = from.split_to(len).freeze();
        let header_len = usize::from(whole.get_u8());
        if header_len < HEADER_BYTES || header_len > len {
            return Err(FrameError::HeaderTooShort { bytes: header_len });
        }
        let priority = Priority(whole.get_u8().min(Priority::HIGHEST.0));
        let (kind, load, budget_ms) = (whole.get_u16(), whole.get_u16(), whole.get_u32());
        let head_len = whole.get_u32() as usize;
        whole.advance(header_len - HEADER_BYTES);
        if head_len > whole.len() {
            return Err(FrameError::HeadPastEnd { head: head_len, rest: whole.len() });
        }
        let head = whole.split_to(head_len);
        Ok(Some(Frame { kind, priority, budget_ms, load, head, body: whole }))
    }
}

/// Bytes of the header that this version knows, its own length byte included.
pub const HEADER_BYTES: usize = 14;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Frame {
        Frame {
            kind: kind::SESSION,
            priority: Priority::HIGHEST,
            budget_ms: 60,
            load: 500,
            head: Bytes::from_static(b"head"),
            body: Bytes::from_static(b"body!"),
        }
    }

    #[test]
    fn a_frame_has_these_bytes() {
        let mut bytes = BytesMut::new();
        sample().encode(&mut bytes);
        assert_eq!(&bytes[..], b"\0\0\0\x17\x0e\x07\0\x10\x01\xf4\0\0\0\x3c\0\0\0\x04headbody!");
        assert_eq!(bytes.len(), sample().wire_len());
        assert_eq!(Frame::decode(&mut bytes), Ok(Some(sample())));
        assert!(bytes.is_empty());
    }

    #[test]
    fn half_a_frame_waits() {
        let mut whole = BytesMut::new();
        sample().encode(&mut whole);
        for cut in 0..whole.len() {
            assert_eq!(Frame::decode(&mut BytesMut::from(&whole[..cut])), Ok(None), "cut at {cut}");
        }
    }

    #[test]
    fn a_newer_minor_versions_longer_header_is_understood() {
        let mut bytes = BytesMut::from(&b"\0\0\0\x19\x10\x07\0\x10\x01\xf4\0\0\0\x3c\0\0\0\x04NEheadbody!"[..]);
        assert_eq!(Frame::decode(&mut bytes), Ok(Some(sample())));
    }

    #[test]
    fn lies_about_length_are_errors() {
        let decode = |b: &[u8]| Frame::decode(&mut BytesMut::from(b));
        assert!(matches!(decode(&[0xff; 8]), Err(FrameError::TooLong { .. })));
        assert!(matches!(decode(b"\0\0\0\x02\0\0"), Err(FrameError::HeaderTooShort { .. })));
        let head_past_end = b"\0\0\0\x0e\x0e\0\0\x10\0\0\0\0\0\0\0\0\0\xff";
        assert!(matches!(decode(head_past_end), Err(FrameError::HeadPastEnd { .. })));
    }
}
