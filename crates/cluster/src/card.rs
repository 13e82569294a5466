//! What a node says of itself: who it is, which life this is, and where it is reached.
//! A card travels in the hello of every link and inside membership's gossip, so that whoever knows a node can dial it.
//! Whether the card is true is for the transport to say: the node id stands in the peer's certificate.

use std::net::SocketAddr;

use base::{Boot, NodeId};
use bytes::Bytes;
use prost::Message;

use crate::{Door, DoorAddrs};

/// What a node says of itself. It does not change during one life of the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    /// Never zero.
    pub id: NodeId,
    pub boot: Boot,
    /// Name for people, at most [`NAME_BYTES_MAX`].
    pub name: String,
    pub doors: DoorAddrs,
    /// Its process, on its own machine.
    pub pid: u32,
    /// Version of its program, at most [`VERSION_BYTES_MAX`].
    pub version: String,
    /// What its program understands ([`base::level`]), at least 1.
    pub level: u32,
}

impl Card {
    /// Where other nodes dial it.
    pub fn peer(&self) -> SocketAddr {
        self.doors.at(Door::Peer)
    }

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
            peer: self.doors.at(Door::Peer).to_string(),
            http: self.doors.at(Door::Http).to_string(),
            resp: self.doors.at(Door::Resp).to_string(),
            api: self.doors.at(Door::Api).to_string(),
            pid: self.pid,
            version: self.version.clone(),
            // As programs say it that know of no levels.
            level: if self.level == 1 { 0 } else { self.level },
            doors: self.doors.open().filter(|(door, _)| !FIRST.contains(door)).map(DoorWire::of).collect(),
        }
    }

    pub(crate) fn from_wire(wire: CardWire) -> Option<Card> {
        if wire.id == 0 || wire.name.len() > NAME_BYTES_MAX || wire.version.len() > VERSION_BYTES_MAX {
            return None;
        }
        let addr = |door: Door| match door {
            Door::Http => wire.http.parse().ok(),
            Door::Resp => wire.resp.parse().ok(),
            Door::Api => wire.api.parse().ok(),
            Door::Peer => wire.peer.parse().ok(),
            _ => wire.door(door),
        };
        Some(Card {
            id: NodeId(wire.id),
            boot: Boot(wire.boot),
            doors: DoorAddrs::of(addr).ok()?,
            name: wire.name,
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
    #[prost(message, repeated, tag = "11")]
    doors: Vec<DoorWire>,
}

/// A door that has no field of its own; programs that do not know it skip it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DoorWire {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    addr: String,
}

impl DoorWire {
    fn of((door, at): (Door, SocketAddr)) -> Self {
        Self { key: door.about().key.to_owned(), addr: at.to_string() }
    }
}

impl CardWire {
    fn door(&self, door: Door) -> Option<SocketAddr> {
        self.doors.iter().find(|wire| wire.key == door.about().key)?.addr.parse().ok()
    }
}

/// Doors with fields of their own, from before there was a list.
const FIRST: [Door; 4] = [Door::Http, Door::Resp, Door::Api, Door::Peer];

/// A host name has at most 63 bytes a label; more than that is not a name for people.
pub const NAME_BYTES_MAX: usize = 64;
/// Room for a version with a build's commit in it.
pub const VERSION_BYTES_MAX: usize = 64;

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn card(id: u64, boot: u64) -> Card {
        let doors = DoorAddrs::on([127, 0, (id / 250) as u8, (id % 250) as u8].into());
        Card {
            id: NodeId(id),
            boot: Boot(boot),
            name: format!("n{id}"),
            doors,
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
    fn a_door_that_came_later_stands_behind_the_level() {
        let first = card(1, 2);
        let secure = Card { doors: first.doors.with(Door::Https, ([127, 0, 0, 1], 8443).into()), ..first.clone() };
        let bytes = secure.encode();
        assert_eq!(&bytes[..], [&first.encode()[..], b"\x5a\x17\x0a\x05https\x12\x0e127.0.0.1:8443"].concat());
        assert_eq!(Card::decode(&bytes), Some(secure));
        let unknown = [&first.encode()[..], b"\x5a\x13\x0a\x04smtp\x12\x0b127.0.0.1:8"].concat();
        assert_eq!(Card::decode(&unknown), Some(first));
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
