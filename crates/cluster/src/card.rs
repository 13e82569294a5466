//! What a node says of itself: who it is, which life this is, and where it is reached.
//! A card travels in the hello of every link and inside membership's gossip, so that whoever knows a node can dial it.
//! Whether the card is true is for the transport to say: the node id stands in the peer's certificate.

use std::net::SocketAddr;

use base::{Boot, NodeId};
use bytes::Bytes;
use prost::Message;

/// What a node says of itself. It does not change during one life of the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    /// Never zero.
    pub id: NodeId,
    pub boot: Boot,
    /// Name for people, at most [`NAME_BYTES_MAX`].
    pub name: String,
    /// Where other nodes dial it.
    pub peer: SocketAddr,
    pub http: SocketAddr,
    pub resp: SocketAddr,
    pub api: SocketAddr,
    /// Its process, on its own machine.
    pub pid: u32,
    /// Version of its program, at most [`VERSION_BYTES_MAX`].
    pub version: String,
    /// What its program understands ([`base::level`]), at least 1.
    pub level: u32,
}

impl Card {
    pub fn encode(&self) -> Bytes {
        self.to_wire().encode_to_vec().into()
    }

    /// The card in some bytes from outside; nothing if they are not one. Fields of a newer version are skipped.
    pub fn decode(bytes: &[u8]) -> Option<Card> {
        Self::from_wire(CardWire::decode(bytes).ok()?)
    }

    pub(crate) fn to_wire(&self) -> CardWire {
        CardWire {
            id: self.id.0,
            boot: self.boot.0,
            name: self.name.clone(),
            peer: self.peer.to_string(),
            http: self.http.to_string(),
            resp: self.resp.to_string(),
            api: self.api.to_string(),
            pid: self.pid,
            version: self.version.clone(),
            // As programs say it that know of no levels.
            level: if self.level == 1 { 0 } else { self.level },
        }
    }

    pub(crate) fn from_wire(wire: CardWire) -> Option<Card> {
        if wire.id == 0 || wire.name.len() > NAME_BYTES_MAX || wire.version.len() > VERSION_BYTES_MAX {
            return None;
        }
        Some(Card {
            id: NodeId(wire.id),
            boot: Boot(wire.boot),
            name: wire.name,
            peer: wire.peer.parse().ok()?,
            http: wire.http.parse().ok()?,
            resp: wire.resp.parse().ok()?,
            api: wire.api.parse().ok()?,
            pid: wire.pid,
            version: wire.version,
            level: wire.level.max(1),
        })
    }
}

/// A card as it travels. Tags are never given twice; the golden test holds them.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CardWire {
    #[prost(fixed64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    boot: u64,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    peer: String,
    #[prost(string, tag = "5")]
    http: String,
    #[prost(string, tag = "6")]
    resp: String,
    #[prost(string, tag = "7")]
    api: String,
    #[prost(uint32, tag = "8")]
    pid: u32,
    #[prost(string, tag = "9")]
    version: String,
    #[prost(uint32, tag = "10")]
    level: u32,
}

/// A host name has at most 63 bytes a label; more than that is not a name for people.
pub const NAME_BYTES_MAX: usize = 64;
/// Room for a version with a build's commit in it.
pub const VERSION_BYTES_MAX: usize = 64;

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn card(id: u64, boot: u64) -> Card {
        let at = |port: u16| SocketAddr::from(([127, 0, (id / 250) as u8, (id % 250) as u8], port));
        Card {
            id: NodeId(id),
            boot: Boot(boot),
            name: format!("n{id}"),
            peer: at(7071),
            http: at(8080),
            resp: at(6379),
            api: at(7070),
            pid: 100 + id as u32,
            version: "0.1.0".into(),
            level: 1,
        }
    }

    #[test]
    fn a_card_has_these_bytes() {
        let golden = b"\x09\x01\0\0\0\0\0\0\0\x10\x02\x1a\x02n1\x22\x0e127.0.0.1:7071\x2a\x0e127.0.0.1:8080\
            \x32\x0e127.0.0.1:6379\x3a\x0e127.0.0.1:7070\x40\x65\x4a\x050.1.0";
        assert_eq!(&card(1, 2).encode()[..], golden);
        assert_eq!(Card::decode(golden), Some(card(1, 2)));
    }

    #[test]
    fn a_level_above_the_first_stands_behind_all_else() {
        let newer = Card { level: 2, ..card(1, 2) };
        assert_eq!(&newer.encode()[..], [&card(1, 2).encode()[..], b"\x50\x02"].concat());
        assert_eq!(Card::decode(&newer.encode()), Some(newer));
    }

    #[test]
    fn fields_of_a_newer_version_are_skipped() {
        let mut bytes = card(1, 2).encode().to_vec();
        bytes.extend_from_slice(b"\xa2\x06\x03new");
        assert_eq!(Card::decode(&bytes), Some(card(1, 2)));
    }

    #[test]
    fn a_card_without_id_or_with_an_endless_name_is_none() {
        assert_eq!(Card::decode(b""), None);
        assert_eq!(Card::decode(&Card { id: NodeId(0), ..card(1, 1) }.encode()), None);
        assert_eq!(Card::decode(&Card { name: "n".repeat(65), ..card(1, 1) }.encode()), None);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Card::decode(&bytes);
        }
    }
}
