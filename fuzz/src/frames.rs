//! What nodes say to each other: the frame around it, each protocol's messages, and the machines that are given them. A
//! machine may be told anything by a peer and must neither stop nor grow past its bounds.

use base::{Boot, Frame, NodeId, Now, Rng, Span, Time, kind};
use bytes::{Bytes, BytesMut};
use clones::doors::Doors;
use clones::{Assignments, Demand, NodeClones};
use cluster::{Beacons, Card, Membership};
use state::session::{BrickMap, CookieSecret, Session};

use crate::memory::bounded;

/// Borders of varints, lengths and tags.
pub const WORDS: &[&[u8]] = &[
    b"\x00\x00\x00\x0e\x0e",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x10",
    b"\x7f",
    b"\x80\x01",
    b"\x0a\x00",
    b"\x12\x00",
    b"\x08\x01",
    b"127.0.0.1:7071",
    b"\xc3\x28",
    b"\x0b",
    b"\x0c",
];

/// A prost message takes this much of its bytes: two empty strings in four bytes are two times 24, in vectors that double.
const MESSAGE_TIMES: usize = 128;

/// One or more frames off a stream.
pub fn frame(data: &[u8]) -> bool {
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match Frame::decode(&mut buffer) {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, None)
    };
    let whole = bounded(data.len(), 16, || read(&mut std::iter::once(data)));
    assert_eq!(read(&mut data.chunks(1)), whole, "byte by byte");
    for frame in &whole.0 {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        assert_eq!(bytes.len(), frame.wire_len());
        assert_eq!(Frame::decode(&mut bytes).as_ref(), Ok(&Some(frame.clone())));
        assert!(bytes.is_empty());
    }
    !whole.0.is_empty()
}

/// A message for a brick or a stub, and a session that is told it.
pub fn session(data: &[u8]) -> bool {
    use state::class::{Class, Declared, Space};
    use state::session::{Input, MAP_RECORD, Spec, wire_holds};
    let Some((messages, body)) = parts(data) else { return false };
    let holds: Vec<bool> =
        messages.iter().map(|m| bounded(m.len(), MESSAGE_TIMES, || wire_holds(m.clone(), body.clone()))).collect();
    let (mut session, mut now, mut out) = (Session::new(NodeId(1), Boot(1), Rng::new(1)), start(), Vec::new());
    let secret = CookieSecret::new(9, [7; 32]);
    let spaces = [("carts".to_owned(), Space { id: 9, spec: Spec::default(), secret })].into();
    let map = BrickMap { epoch: 3, members: (1..=3).map(NodeId).collect(), old: None };
    let records = [(MAP_RECORD.to_owned(), map)].into();
    session.handle(
        now,
        Input::Declared(Declared {
            version: 1,
            level: base::LEVEL,
            spaces,
            records,
            unread: 0,
            nodes: Default::default(),
            numbers: Default::default(),
        }),
        &mut out,
    );
    for peer in 2..=3 {
        session.handle(now, Input::Birth { peer: NodeId(peer), boot: Boot(1) }, &mut out);
    }
    for (nth, head) in messages.into_iter().enumerate() {
        now = later(now);
        let frame = Frame { body: body.clone(), ..Frame::new(kind::SESSION, head) };
        session.handle(now, Input::Frame { from: NodeId(2 + nth as u64 % 2), frame }, &mut out);
        session.handle(now, Input::Wake, &mut out);
        assert!(out.len() < OUTPUTS_MAX, "one frame made {} outputs", out.len());
        out.clear();
    }
    holds.contains(&true)
}

/// Bytes between members of the root group, in their log and in their snapshots. Raft itself is not told: it takes a member
/// at its word.
pub fn root(data: &[u8]) -> bool {
    bounded(data.len(), MESSAGE_TIMES, || cluster::root::wire_holds(Bytes::copy_from_slice(data)))
}

pub fn beacon(data: &[u8]) -> bool {
    use cluster::beacon::{FACTS_PER_ORIGIN_MAX, Input, wire_holds};
    let Some((messages, _)) = parts(data) else { return false };
    let holds: Vec<bool> = messages.iter().map(|m| bounded(m.len(), MESSAGE_TIMES, || wire_holds(m.clone()))).collect();
    let (mut beacons, mut now, mut out) = (Beacons::new(NodeId(1), Boot(1), Rng::new(1)), start(), Vec::new());
    let put = Input::Put { key: "load".into(), value: Bytes::from_static(b"1"), ttl: Span::secs(5) };
    for input in [put, Input::Birth { peer: NodeId(2), boot: Boot(1) }, Input::Birth { peer: NodeId(3), boot: Boot(1) }]
    {
        beacons.handle(now, input, &mut out);
    }
    for (nth, head) in messages.into_iter().enumerate() {
        now = later(now);
        beacons.handle(now, Input::Frame { from: NodeId(2 + nth as u64 % 2), head }, &mut out);
        beacons.handle(now, Input::Wake, &mut out);
        assert!(out.len() < OUTPUTS_MAX, "one frame made {} outputs", out.len());
        out.clear();
        let own = beacons.prefix("").filter(|(origin, _, _)| *origin == NodeId(1)).count();
        assert_eq!(own, 1, "others spoke in this node's name");
        assert!(beacons.prefix("").filter(|(origin, _, _)| *origin == NodeId(2)).count() <= FACTS_PER_ORIGIN_MAX);
    }
    holds.contains(&true)
}

pub fn membership(data: &[u8]) -> bool {
    use cluster::membership::{Input, Standing, wire_holds};
    let Some((messages, _)) = parts(data) else { return false };
    let holds: Vec<bool> = messages.iter().map(|m| bounded(m.len(), MESSAGE_TIMES, || wire_holds(m))).collect();
    let (mut membership, mut now, mut out) = (Membership::new(card(1), vec![], Rng::new(1)), start(), Vec::new());
    for id in 2..=3 {
        membership.handle(now, Input::Linked { card: Box::new(card(id)) }, &mut out);
    }
    for (nth, head) in messages.into_iter().enumerate() {
        now = later(now);
        membership.handle(now, Input::Frame { from: NodeId(2 + nth as u64 % 2), head }, &mut out);
        membership.handle(now, Input::Wake, &mut out);
        assert!(out.len() < OUTPUTS_MAX, "one frame made {} outputs", out.len());
        out.clear();
        assert_eq!(membership.standing(NodeId(1)), Some(Standing::Live), "a node is live to itself");
        assert!(membership.live().any(|c| *c == card(1)), "others rewrote this node's card");
    }
    holds.contains(&true)
}

/// Values that travel inside others: cards, maps, clones, assignments, what comes to edges.
pub fn facts(data: &[u8]) -> bool {
    let card = bounded(data.len(), MESSAGE_TIMES, || Card::decode(data));
    if let Some(card) = &card {
        assert_eq!(Card::decode(&card.encode()).as_ref(), Some(card));
    }
    let map = bounded(data.len(), MESSAGE_TIMES, || BrickMap::decode(data));
    if let Some(map) = &map {
        assert_eq!(BrickMap::decode(&map.encode()).as_ref(), Some(map));
    }
    let clones = bounded(data.len(), MESSAGE_TIMES, || NodeClones::decode(data));
    if let Some(clones) = &clones {
        // Output is left out of clones that serve, so the second writing is the first that must come back.
        let once = NodeClones::decode(&clones.encode()).expect("our own bytes");
        assert_eq!(once.clones.len(), clones.clones.len());
        assert_eq!(NodeClones::decode(&once.encode()).as_ref(), Some(&once));
    }
    let places = bounded(data.len(), MESSAGE_TIMES, || Assignments::decode(data));
    if let Some(places) = &places {
        assert_eq!(Assignments::decode(&places.encode()).as_ref(), Some(places));
    }
    let doors = bounded(data.len(), MESSAGE_TIMES, || Doors::decode(data));
    if let Some(doors) = &doors {
        let once = Doors::decode(&doors.encode()).expect("our own bytes");
        assert!(once.0.keys().all(|name| doors.0.contains_key(name)));
    }
    let demand = bounded(data.len(), MESSAGE_TIMES, || Demand::decode(data));
    if let Some(demand) = &demand {
        assert_eq!(Demand::decode(&demand.encode()).as_ref(), Some(demand));
    }
    let flows = doors.is_some() || demand.is_some();
    card.is_some() || map.is_some() || clones.is_some() || places.is_some() || flows
}

/// Outputs of one small frame.
pub const OUTPUTS_MAX: usize = 4096;

/// Messages, each behind two bytes of length, and a body that all of them carry.
fn parts(data: &[u8]) -> Option<(Vec<Bytes>, Bytes)> {
    let mut rest = data;
    let mut messages = Vec::new();
    while let Some((len, tail)) = rest.split_first_chunk::<2>() {
        let (message, tail) = tail.split_at(usize::from(u16::from_be_bytes(*len)).min(tail.len()));
        messages.push(Bytes::copy_from_slice(message));
        rest = tail;
    }
    (!messages.is_empty()).then(|| (messages, Bytes::from_static(b"value")))
}

pub fn start() -> Now {
    Now { mono: Time(1_000_000), wall_ms: 1_700_000_000_000 }
}

pub fn later(now: Now) -> Now {
    Now { mono: now.mono + Span::millis(30), wall_ms: now.wall_ms + 30 }
}

fn card(id: u8) -> Card {
    let doors = cluster::DoorAddrs::on([127, 0, 0, id].into());
    Card {
        id: NodeId(u64::from(id)),
        boot: Boot(1),
        name: format!("n{id}"),
        doors,
        pid: 100,
        version: "0.1.0".into(),
        level: 1,
    }
}
