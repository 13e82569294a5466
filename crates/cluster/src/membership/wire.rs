//! Membership's messages as bytes. A frame's head is a version, what it is, and for foca's messages their bytes, whose
//! parts are prost messages with their length in front. Tags are never given twice; the golden test holds them.

use std::fmt;
use std::sync::Arc;

use base::Boot;
#[cfg(test)]
use base::NodeId;
use bytes::{Buf, BufMut, Bytes, BytesMut};
#[cfg(test)]
use foca::Identity;
use foca::{Codec, Header, Member, Message, State};
use prost::Message as _;

use super::who::Who;
use crate::Card;
use crate::card::CardWire;

/// A change that older versions cannot skip gets another number; they drop such frames.
pub(super) const VERSION: u8 = 1;
const FOCA: u8 = 0;
const PING: u8 = 1;
const PONG: u8 = 2;
const KNOWN: u8 = 3;

pub(super) enum Head<'a> {
    Foca(&'a [u8]),
    Ping,
    Pong,
    /// A life of the receiver that the sender knows of: boot and process.
    Known(Boot, u32),
}

pub(super) fn head(bytes: &[u8]) -> Option<Head<'_>> {
    match bytes {
        [VERSION, FOCA, rest @ ..] => Some(Head::Foca(rest)),
        [VERSION, PING, ..] => Some(Head::Ping),
        [VERSION, PONG, ..] => Some(Head::Pong),
        [VERSION, KNOWN, rest @ ..] => {
            let mut rest = rest;
            Some(Head::Known(Boot(rest.try_get_u64().ok()?), rest.try_get_u32().ok()?))
        }
        _ => None,
    }
}

pub(super) fn foca_head(data: &[u8]) -> Bytes {
    let mut head = BytesMut::with_capacity(2 + data.len());
    head.put_slice(&[VERSION, FOCA]);
    head.put_slice(data);
    head.freeze()
}

pub(super) fn ping() -> Bytes {
    Bytes::from_static(&[VERSION, PING])
}

pub(super) fn pong() -> Bytes {
    Bytes::from_static(&[VERSION, PONG])
}

pub(super) fn known(card: &Card) -> Bytes {
    let mut head = BytesMut::from(&[VERSION, KNOWN][..]);
    head.put_u64(card.boot.0);
    head.put_u32(card.pid);
    head.freeze()
}

/// Gossip of one piece of news to one member, as foca would send it. Foca itself picks receivers at random, but a suspect
/// must hear of it from us. Incarnation 0 of ours is never news to anybody.
pub(super) fn tell(from: &Who, to: &Who, news: &Member<Who>) -> Bytes {
    let header = Header { src: from.clone(), src_incarnation: 0, dst: to.clone(), message: Message::Gossip };
    let mut data = Vec::new();
    Wire.encode_header(&header, &mut data).expect("a Vec has room");
    data.put_u16(1);
    Wire.encode_member(news, &mut data).expect("a Vec has room");
    foca_head(&data)
}

/// Who says that they sent this. Must be who the link belongs to.
#[cfg(test)]
pub(super) fn sender(mut data: &[u8]) -> Option<NodeId> {
    Some(Wire.decode_header(&mut data).ok()?.src.addr())
}

/// One of foca's messages, taken apart.
pub(super) struct Whole {
    pub header: Header<Who>,
    pub members: Vec<Member<Who>>,
}

impl Whole {
    pub fn decode(mut data: &[u8]) -> Option<Self> {
        let header = Wire.decode_header(&mut data).ok()?;
        let count = if data.is_empty() { 0 } else { data.try_get_u16().ok()? };
        let members = (0..count).map(|_| Wire.decode_member(&mut data)).collect::<Result<_, _>>().ok()?;
        Some(Self { header, members })
    }

    /// The same message with these members.
    pub fn with(&self, members: &[Member<Who>]) -> Vec<u8> {
        let mut data = Vec::new();
        Wire.encode_header(&self.header, &mut data).expect("a Vec has room");
        if !members.is_empty() {
            data.put_u16(members.len() as u16);
            members.iter().for_each(|member| Wire.encode_member(member, &mut data).expect("a Vec has room"));
        }
        data
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct WhoWire {
    #[prost(message, optional, tag = "1")]
    card: Option<CardWire>,
    #[prost(uint32, tag = "2")]
    epoch: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MemberWire {
    #[prost(message, optional, tag = "1")]
    who: Option<WhoWire>,
    #[prost(uint32, tag = "2")]
    incarnation: u32,
    /// 0 alive, 1 suspect, 2 down.
    #[prost(uint32, tag = "3")]
    state: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HeaderWire {
    #[prost(message, optional, tag = "1")]
    src: Option<WhoWire>,
    #[prost(uint32, tag = "2")]
    src_incarnation: u32,
    #[prost(message, optional, tag = "3")]
    dst: Option<WhoWire>,
    /// In the order of [`message_of`].
    #[prost(uint32, tag = "4")]
    message: u32,
    #[prost(uint32, tag = "5")]
    probe: u32,
    /// Target or origin, for messages that have one.
    #[prost(message, optional, tag = "6")]
    third: Option<WhoWire>,
}

impl WhoWire {
    fn of(who: &Who) -> Self {
        Self { card: Some(who.card.to_wire()), epoch: who.epoch }
    }

    fn who(wire: Option<Self>) -> Result<Who, WireError> {
        let wire = wire.ok_or(WireError("nobody named"))?;
        let card = wire.card.and_then(Card::from_wire).ok_or(WireError("not a card"))?;
        Ok(Who { card: Arc::new(card), epoch: wire.epoch })
    }
}

/// Bytes that are not what foca expects; the frame is dropped.
#[derive(Debug)]
pub(super) struct WireError(&'static str);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for WireError {}

/// Foca's messages as prost messages.
pub(super) struct Wire;

impl Codec<Who> for Wire {
    type Error = WireError;

    fn encode_header(&mut self, header: &Header<Who>, mut buf: impl BufMut) -> Result<(), WireError> {
        let (message, probe, third) = message_parts(&header.message);
        let wire = HeaderWire {
            src: Some(WhoWire::of(&header.src)),
            src_incarnation: header.src_incarnation.into(),
            dst: Some(WhoWire::of(&header.dst)),
            message,
            probe: probe.into(),
            third: third.map(WhoWire::of),
        };
        wire.encode_length_delimited(&mut buf).map_err(|_| WireError("no room for a header"))
    }

    fn decode_header(&mut self, buf: impl Buf) -> Result<Header<Who>, WireError> {
        let wire = HeaderWire::decode_length_delimited(buf).map_err(|_| WireError("not a header"))?;
        let probe = u8::try_from(wire.probe).map_err(|_| WireError("probe number over 255"))?;
        Ok(Header {
            src: WhoWire::who(wire.src)?,
            src_incarnation: incarnation(wire.src_incarnation)?,
            dst: WhoWire::who(wire.dst)?,
            message: message_of(wire.message, probe, wire.third)?,
        })
    }

    fn encode_member(&mut self, member: &Member<Who>, mut buf: impl BufMut) -> Result<(), WireError> {
        let state = match member.state() {
            State::Alive => 0,
            State::Suspect => 1,
            State::Down => 2,
        };
        let who = Some(WhoWire::of(member.id()));
        let wire = MemberWire { who, incarnation: member.incarnation().into(), state };
        wire.encode_length_delimited(&mut buf).map_err(|_| WireError("no room for a member"))
    }

    fn decode_member(&mut self, buf: impl Buf) -> Result<Member<Who>, WireError> {
        let wire = MemberWire::decode_length_delimited(buf).map_err(|_| WireError("not a member"))?;
        let state = match wire.state {
            0 => State::Alive,
            1 => State::Suspect,
            2 => State::Down,
            _ => return Err(WireError("unknown state")),
        };
        Ok(Member::new(WhoWire::who(wire.who)?, incarnation(wire.incarnation)?, state))
    }
}

fn incarnation(wire: u32) -> Result<u16, WireError> {
    u16::try_from(wire).map_err(|_| WireError("incarnation over 65535"))
}

fn message_parts(message: &Message<Who>) -> (u32, u8, Option<&Who>) {
    match message {
        Message::Ping(probe) => (1, *probe, None),
        Message::Ack(probe) => (2, *probe, None),
        Message::PingReq { target, probe_number } => (3, *probe_number, Some(target)),
        Message::IndirectPing { origin, probe_number } => (4, *probe_number, Some(origin)),
        Message::IndirectAck { target, probe_number } => (5, *probe_number, Some(target)),
        Message::ForwardedAck { origin, probe_number } => (6, *probe_number, Some(origin)),
        Message::Announce => (7, 0, None),
        Message::Feed => (8, 0, None),
        Message::Gossip => (9, 0, None),
        Message::Broadcast => (10, 0, None),
        Message::TurnUndead => (11, 0, None),
    }
}

fn message_of(message: u32, probe_number: u8, third: Option<WhoWire>) -> Result<Message<Who>, WireError> {
    Ok(match message {
        1 => Message::Ping(probe_number),
        2 => Message::Ack(probe_number),
        3 => Message::PingReq { target: WhoWire::who(third)?, probe_number },
        4 => Message::IndirectPing { origin: WhoWire::who(third)?, probe_number },
        5 => Message::IndirectAck { target: WhoWire::who(third)?, probe_number },
        6 => Message::ForwardedAck { origin: WhoWire::who(third)?, probe_number },
        7 => Message::Announce,
        8 => Message::Feed,
        9 => Message::Gossip,
        10 => Message::Broadcast,
        11 => Message::TurnUndead,
        _ => return Err(WireError("unknown message")),
    })
}

/// For the fuzz crate: whether these bytes are a message, after asserting that what is understood of one is what would be
/// sent again.
pub fn holds(bytes: &[u8]) -> bool {
    let mut data = match head(bytes) {
        None => return false,
        Some(Head::Ping | Head::Pong | Head::Known(..)) => return true,
        Some(Head::Foca(data)) => data,
    };
    let Ok(header) = Wire.decode_header(&mut data) else { return false };
    let mut again = Vec::new();
    Wire.encode_header(&header, &mut again).expect("a Vec has room");
    assert_eq!(Wire.decode_header(&again[..]).ok().as_ref(), Some(&header));
    let Some(mut members) = data.get(2..) else { return true };
    while let Ok(member) = Wire.decode_member(&mut members) {
        let mut again = Vec::new();
        Wire.encode_member(&member, &mut again).expect("a Vec has room");
        assert_eq!(Wire.decode_member(&again[..]).ok().as_ref(), Some(&member));
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::card::tests::card;

    /// What a head says, with all that stands on the cards in it.
    fn read(bytes: &[u8]) -> Option<String> {
        Some(match head(bytes)? {
            Head::Ping => "ping".into(),
            Head::Pong => "pong".into(),
            Head::Known(boot, pid) => format!("{boot:?} {pid}"),
            Head::Foca(mut data) => {
                let header = Wire.decode_header(&mut data).ok()?;
                let count = data.try_get_u16().unwrap_or(0);
                let members: Result<Vec<_>, _> = (0..count).map(|_| Wire.decode_member(&mut data)).collect();
                format!("{header:?} {:?}", members.ok()?)
            }
        })
    }

    fn heads() -> Vec<(&'static str, Bytes, String)> {
        let news = Member::new(who(2), 5, State::Suspect);
        let header = Header { src: who(1), src_incarnation: 0, dst: who(2), message: Message::Gossip };
        let told = format!("{header:?} {:?}", [&news]);
        let mut heads = vec![
            ("gossip", tell(&who(1), &who(2), &news), told),
            ("ping", ping(), "ping".into()),
            ("pong", pong(), "pong".into()),
            ("known", known(&card(1, 2)), "boot-2 101".into()),
        ];
        let names = ["probe", "ack", "ping-req", "indirect-ping", "indirect-ack", "forwarded-ack", "announce", "feed"];
        for (number, name) in (1..).zip(names.into_iter().chain(["foca-gossip", "broadcast", "turn-undead"])) {
            let third = (3..=6).contains(&number).then(|| WhoWire::of(&who(7)));
            let message = message_of(number, if number <= 6 { 200 } else { 0 }, third).unwrap();
            let header = Header { src: who(1), src_incarnation: 4, dst: who(2), message };
            let mut data = Vec::new();
            Wire.encode_header(&header, &mut data).unwrap();
            heads.push((name, foca_head(&data), format!("{header:?} []")));
        }
        heads
    }

    #[test]
    fn fixtures_are_read() {
        let samples: Vec<_> = heads().into_iter().map(|(name, bytes, said)| (name, bytes.to_vec(), said)).collect();
        crate::kept::frames("membership", &samples, |bytes| read(&bytes));
    }

    fn who(id: u64) -> Who {
        Who { card: Arc::new(card(id, 1)), epoch: 3 }
    }

    #[test]
    fn news_have_these_bytes() {
        let bytes = tell(&who(1), &who(2), &Member::new(who(2), 5, State::Suspect));
        let card = |id: u64| card(id, 1).encode();
        // A card has 88 bytes; in a who it has its tag and length in front and the epoch behind.
        let named = |tag: u8, id: u64| [&[tag, 92, 0x0a, 88], &card(id)[..], &[0x10, 3]].concat();
        let header = [&named(0x0a, 1)[..], &named(0x1a, 2), &[0x20, 9]].concat();
        let member = [&named(0x0a, 2)[..], &[0x10, 5, 0x18, 1]].concat();
        // Lengths of 190 and 98 as varints.
        let golden = [&[1, 0, 0xbe, 1], &header[..], &[0, 1, 0x62], &member].concat();
        assert_eq!(&bytes[..], golden);
        assert_eq!(sender(&bytes[2..]), Some(NodeId(1)));
        assert_eq!((&ping()[..], &pong()[..]), (&[1, 1][..], &[1, 2][..]));
        let bytes = known(&crate::card::tests::card(1, 2));
        assert_eq!(&bytes[..], b"\x01\x03\0\0\0\0\0\0\0\x02\0\0\0\x65");
        assert!(matches!(head(&bytes), Some(Head::Known(Boot(2), 101))));
    }

    #[test]
    fn every_message_comes_back_as_it_was() {
        for number in 1..=11 {
            let third = (3..=6).contains(&number).then(|| WhoWire::of(&who(7)));
            let message = message_of(number, if number <= 6 { 200 } else { 0 }, third).unwrap();
            let header = Header { src: who(1), src_incarnation: 4, dst: who(2), message };
            let mut bytes = Vec::new();
            Wire.encode_header(&header, &mut bytes).unwrap();
            let mut rest = &bytes[..];
            assert_eq!(Wire.decode_header(&mut rest).unwrap(), header);
            assert!(rest.is_empty());
        }
        assert!(message_of(12, 0, None).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = sender(&bytes);
            let _ = Wire.decode_member(&mut &bytes[..]);
            let _ = head(&bytes);
        }
    }
}
