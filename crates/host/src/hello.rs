//! The first bytes of a connection: a preface before TLS that says what it is for, and on a link, as the first frame each
//! way, a hello that says who is there and which wire is spoken. A newer minor version may append to the hello.

use base::{Boot, ClusterId, Frame};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Peers with another major version do not understand each other.
pub(crate) const WIRE_MAJOR: u8 = 1;
/// 1: it puts pieces of large frames together.
pub(crate) const WIRE_MINOR: u8 = 1;
/// Of peers that take large frames in pieces.
pub(crate) const PIECES_MINOR: u8 = 1;

/// What a connection is for; the last of its five plain bytes `COP1?`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    Link,
    Join,
    Tunnel,
    Renew,
}

pub(crate) const PREFACE_BYTES: usize = 5;

impl Purpose {
    pub const fn preface(self) -> &'static [u8; PREFACE_BYTES] {
        match self {
            Self::Link => b"COP1L",
            Self::Join => b"COP1J",
            Self::Tunnel => b"COP1T",
            Self::Renew => b"COP1R",
        }
    }

    pub fn of(preface: &[u8; PREFACE_BYTES]) -> Option<Purpose> {
        [Self::Link, Self::Join, Self::Tunnel, Self::Renew].into_iter().find(|purpose| purpose.preface() == preface)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub major: u8,
    pub minor: u8,
    pub cluster: ClusterId,
    pub boot: Boot,
    pub card: Bytes,
}

/// Not given to any protocol: hellos never reach a machine.
const KIND: u16 = 0;

impl Hello {
    /// A frame whose head is: u8 major, u8 minor, u64 cluster, u64 boot, u32 length of the card, card.
    pub fn encode(&self) -> Bytes {
        let mut head = BytesMut::new();
        head.put_u8(self.major);
        head.put_u8(self.minor);
        head.put_u64(self.cluster.0);
        head.put_u64(self.boot.0);
        head.put_u32(u32::try_from(self.card.len()).expect("a card is small"));
        head.extend_from_slice(&self.card);
        let mut bytes = BytesMut::new();
        Frame::new(KIND, head.freeze()).encode(&mut bytes);
        bytes.freeze()
    }

    /// From a whole frame's bytes. `None`: this is no hello of any version.
    pub fn decode(bytes: &mut BytesMut) -> Option<Hello> {
        let frame = Frame::decode(bytes).ok()??;
        let mut head = frame.head;
        let major = head.try_get_u8().ok()?;
        let minor = head.try_get_u8().ok()?;
        let cluster = ClusterId(head.try_get_u64().ok()?);
        let boot = Boot(head.try_get_u64().ok()?);
        let len = head.try_get_u32().ok()? as usize;
        let card = (frame.kind == KIND && len <= head.len()).then(|| head.split_to(len))?;
        Some(Hello { major, minor, cluster, boot, card })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOLDEN: &[u8] = b"\0\0\0\x28\x0e\x04\0\0\0\0\0\0\0\0\0\0\0\x1a\
        \x01\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x03\0\0\0\x04card";

    fn sample() -> Hello {
        Hello { major: 1, minor: 0, cluster: ClusterId(5), boot: Boot(3), card: Bytes::from_static(b"card") }
    }

    #[test]
    fn fixtures_are_read() {
        let sample = ("hello", sample().encode().to_vec(), sample());
        crate::kept::frames("hello", &[sample], |bytes| Hello::decode(&mut BytesMut::from(&bytes[..])));
    }

    #[test]
    fn a_hello_has_these_bytes() {
        assert_eq!(&sample().encode()[..], GOLDEN);
        assert_eq!(Hello::decode(&mut BytesMut::from(GOLDEN)), Some(sample()));
    }

    #[test]
    fn what_a_newer_minor_version_appends_is_skipped() {
        let mut newer = BytesMut::from(GOLDEN);
        newer.extend_from_slice(b"news");
        newer[3] += 4;
        newer[17] += 4;
        newer[19] = 9;
        assert_eq!(Hello::decode(&mut newer), Some(Hello { minor: 9, ..sample() }));
    }

    #[test]
    fn prefaces_are_told_apart_and_others_are_none() {
        for purpose in [Purpose::Link, Purpose::Join, Purpose::Tunnel, Purpose::Renew] {
            assert_eq!(Purpose::of(purpose.preface()), Some(purpose));
        }
        assert_eq!(Purpose::of(b"GET /"), None);
        assert_eq!(Purpose::of(b"COP2L"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_hello_or_none(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Hello::decode(&mut BytesMut::from(&bytes[..]));
        }
    }
}
