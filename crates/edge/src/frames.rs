//! Where one WebSocket frame ends and the next begins (RFC 6455 5.2), in bytes that only pass: nothing is kept, changed or
//! refused. A control frame may stand between any two frames, also inside of a message (5.4), so that is all one must know
//! to put one in.

/// A close frame of a server: 1001, going away. It is not masked, and not compressed, whatever was agreed on.
pub const GOING_AWAY: &[u8] = &[0x88, 2, 0x03, 0xe9];

const CLOSE: u8 = 8;

/// How far the frame has come that passes now. `Default` is between two.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frames {
    head: [u8; HEAD_BYTES_MAX],
    /// Bytes of its head that are here; 0 between two frames.
    have: usize,
    /// Bytes of its content that are not.
    left: u64,
    has_closed: bool,
}

/// Two bytes, a long length, a mask.
const HEAD_BYTES_MAX: usize = 2 + 8 + 4;

impl Frames {
    /// Lets bytes pass up to the end of the frame: how many.
    pub fn take(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while let Some((&first, after)) = rest.split_first() {
            if self.left > 0 {
                let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                self.left -= count as u64;
                rest = &rest[count..];
            } else {
                self.head[self.have] = first;
                self.have += 1;
                rest = after;
                match self.whole_head() {
                    Some(content) => self.left = content,
                    None => continue,
                }
            }
            if self.left == 0 {
                self.has_closed |= self.head[0] & 0x0f == CLOSE;
                self.have = 0;
                break;
            }
        }
        bytes.len() - rest.len()
    }

    /// Lets all bytes pass.
    pub fn skip(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = &bytes[self.take(bytes)..];
        }
    }

    pub fn is_between(&self) -> bool {
        self.have == 0
    }

    /// A close frame has passed: nothing may follow it.
    pub fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// The length of the content, once the head is whole.
    fn whole_head(&self) -> Option<u64> {
        let (have, second) = (&self.head[..self.have], *self.head[..self.have].get(1)?);
        let mask = if second & 0x80 != 0 { 4 } else { 0 };
        let long = match second & 0x7f {
            126 => 2,
            127 => 8,
            short => return (have.len() == 2 + mask).then_some(short.into()),
        };
        let length = have.get(2..2 + long)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        (have.len() == 2 + long + mask).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame's bytes.
    fn frame(opcode: u8, content: usize, masked: bool) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut bytes = vec![0x80 | opcode];
        match content {
            0..=125 => bytes.push(mask | content as u8),
            126..=0xffff => {
                bytes.push(mask | 126);
                bytes.extend((content as u16).to_be_bytes());
            }
            _ => {
                bytes.push(mask | 127);
                bytes.extend((content as u64).to_be_bytes());
            }
        }
        bytes.extend(vec![0x55; content + if masked { 4 } else { 0 }]);
        bytes
    }

    #[test]
    fn a_close_frame_is_known_and_nothing_else_is_one() {
        for (opcode, closes) in [(1, false), (2, false), (8, true), (9, false), (10, false)] {
            let mut frames = Frames::default();
            frames.skip(&frame(opcode, 2, false));
            assert_eq!((frames.is_between(), frames.has_closed()), (true, closes), "opcode {opcode}");
        }
        let mut frames = Frames::default();
        frames.skip(GOING_AWAY);
        assert!(frames.is_between() && frames.has_closed());
    }

    proptest! {
        #[test]
        fn the_borders_are_found_however_the_bytes_are_cut(
            all in prop::collection::vec((0u8..3, prop_oneof![0usize..130, 65_530usize..65_540, 200usize..3000], any::<bool>()), 1..8),
            cuts in prop::collection::vec(1usize..5000, 1..40),
        ) {
            let each: Vec<Vec<u8>> = all.iter().map(|(opcode, content, masked)| frame(*opcode, *content, *masked)).collect();
            let mut borders: Vec<usize> = each.iter().scan(0, |at, frame| { *at += frame.len(); Some(*at) }).collect();
            let bytes = each.concat();
            let (mut frames, mut at, mut found) = (Frames::default(), 0, Vec::new());
            let mut cuts = cuts.into_iter().cycle();
            while at < bytes.len() {
                let mut piece = &bytes[at..bytes.len().min(at + cuts.next().unwrap())];
                while !piece.is_empty() {
                    let count = frames.take(piece);
                    (at, piece) = (at + count, &piece[count..]);
                    if frames.is_between() {
                        found.push(at);
                    }
                }
            }
            borders.dedup();
            prop_assert_eq!(found, borders);
        }

        #[test]
        fn any_bytes_pass(bytes: Vec<u8>) {
            let mut frames = Frames::default();
            frames.skip(&bytes);
        }
    }
}
