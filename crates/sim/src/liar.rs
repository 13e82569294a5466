//! What a peer says that says anything at all: copies of true frames of every kind, changed. Numbers in them become smaller, larger,
//! or as large as they can be, so that terms, lives, incarnations, clocks, versions and sequence numbers are wrong; names of nodes
//! become other names, its own too; parts are left out, doubled, exchanged with those of other frames, or made of noise; and
//! checksums fit.
//!
//! It is a node that the declaration admits, and that no part of the cluster belongs to: it says truly that it is about to leave
//! for good, so nobody gives it a brick, a vote, a member of a group or a clone. Two things it does not do. It does not lie about
//! that. And it does not do what every node may do as a door for operators and clients: asking for a change of the declaration, for
//! a node's leave, for a write. Nobody could tell that from the word of a client there (SECURITY.md).

use base::checksum::Checksum;
use base::{Boot, Frame, NodeId, Priority, Rng, kind};
use bytes::Bytes;
use cluster::doors::DoorAddrs;
use cluster::{Beacons, Card, beacon};

use crate::world::Overheard;

/// Who it is; the declaration names it.
pub const LIAR: NodeId = NodeId(0x11a4_11a4_11a4);
/// It comes so many times in a run at most; each time it is another life of it.
const BOOT: Boot = Boot(3);
/// Bytes of one frame that it makes.
const FRAME_BYTES_MAX: usize = 64 << 10;
/// Deeper than any message of ours.
const DEPTH_MAX: usize = 6;

pub struct Liar {
    pub id: NodeId,
    pub card: Card,
    rng: Rng,
    /// All machines, by index.
    nodes: Vec<NodeId>,
    /// What it changes may get its own name.
    names_itself: bool,
}

impl Liar {
    /// In its life so many after the first.
    pub fn new(life: u64, nodes: Vec<NodeId>, rng: Rng) -> Self {
        let (id, boot) = (LIAR, Boot(BOOT.0 + life));
        let doors = DoorAddrs::on([10, 0, 1, 1].into());
        let (name, version) = ("liar".into(), "0.1.0".into());
        let card = Card { id, boot, name, doors, pid: 666, version, level: base::LEVEL };
        Self { id, card, rng, nodes, names_itself: true }
    }

    /// What it says first, and truly: that it is about to leave for good.
    pub fn leaves(&mut self, to: NodeId) -> Frame {
        let now = base::Now::default();
        let (mut beacons, mut out) = (Beacons::new(self.id, self.card.boot, self.rng.fork()), Vec::new());
        beacons.handle(now, beacon::Input::Birth { peer: to, boot: Boot(1) }, &mut out);
        out.clear();
        let value = format!("{{\"boot\":{},\"how\":\"remove\"}}", self.card.boot.0).into();
        let put = beacon::Input::Put { key: "leaving".into(), value, ttl: base::Span::secs(60) };
        beacons.handle(now, put, &mut out);
        let head =
            out.into_iter().find_map(|it| if let beacon::Output::Send { head, .. } = it { Some(head) } else { None });
        Frame::new(kind::BEACON, head.expect("it tells who is live"))
    }

    /// Something to say to a machine, made of what was overheard; nothing if that is not to be said.
    pub fn lie(&mut self, to: usize, heard: &Overheard, other: &Overheard) -> Option<Frame> {
        let mut frame = heard.frame.clone();
        frame.priority = Priority(self.rng.below(8) as u8);
        frame.load = self.rng.below(2_000) as u16;
        if is_word_of_a_door(&frame) {
            return None;
        }
        // A call in its own name would be a client's.
        self.names_itself = frame.kind != kind::ROOT_CALL && frame.kind != kind::LINEAR_CALL;
        if self.names_itself {
            // As itself, to whom it says it.
            let names = [(self.nodes[heard.from], self.id), (self.nodes[heard.to], self.nodes[to])];
            frame.head = renamed(&frame.head, &names);
        }
        let prefix = if frame.kind == kind::MEMBERSHIP { 2 } else { 0 };
        let (before, rest) = frame.head.split_at(frame.head.len().min(prefix));
        let mut head = before.to_vec();
        head.extend(match self.rng.below(10) {
            0 => rest.to_vec(),
            1 => self.noise(rest),
            2 => other.frame.head.to_vec(),
            _ if frame.kind == kind::MEMBERSHIP => self.members(rest),
            _ => self.changed(rest, 0),
        });
        if self.rng.chance(0.1) {
            let was = Checksum::of(&frame.body).0.to_le_bytes();
            frame.body = self.noise(&frame.body).into();
            let sum = Checksum::of(&frame.body).0.to_le_bytes();
            replace(&mut head, &was, &sum);
        }
        if self.rng.chance(0.02) {
            frame.kind = self.rng.below(30) as u16;
        }
        frame.head = head.into();
        let fits = frame.wire_len() <= FRAME_BYTES_MAX && !is_word_of_a_door(&frame);
        fits.then_some(frame)
    }

    /// Bytes of which some are others.
    fn noise(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..self.rng.between(1, 4) {
            if let Some(at) = (!bytes.is_empty()).then(|| self.rng.below(bytes.len() as u64) as usize) {
                bytes[at] = self.rng.u64() as u8;
            }
        }
        bytes
    }

    /// A message of membership: a header and members, each with its length in front, and how many there are between them.
    fn members(&mut self, rest: &[u8]) -> Vec<u8> {
        let Some((header, rest)) = delimited(rest) else { return self.noise(rest) };
        let mut out = Vec::new();
        // Who it says it is has to be itself, or nothing of it is heard.
        put_delimited(&mut out, &if self.rng.chance(0.2) { self.changed(header, 0) } else { header.to_vec() });
        let Some((count, mut rest)) = rest.split_at_checked(2) else { return out };
        out.extend(count);
        while let Some((member, more)) = delimited(rest) {
            put_delimited(&mut out, &self.changed(member, 0));
            rest = more;
        }
        out
    }

    /// A message whose fields are read without knowing what they mean; some are others afterwards.
    fn changed(&mut self, bytes: &[u8], depth: usize) -> Vec<u8> {
        let Some(fields) = fields(bytes) else { return self.noise(bytes) };
        let mut out = Vec::new();
        let some = 1.0 / (fields.len() as f64).max(1.0);
        for Field { key, value } in fields {
            let value = if self.rng.chance(some.max(0.3)) { self.other(value, depth) } else { value };
            match self.rng.below(40) {
                0 => (),
                1 => (0..2).for_each(|_| put(&mut out, key, &value)),
                _ => put(&mut out, key, &value),
            }
        }
        out
    }

    fn other(&mut self, value: Value, depth: usize) -> Value {
        match value {
            Value::Varint(n) => Value::Varint(self.number(n)),
            Value::Fixed64(n) => Value::Fixed64(self.number(n)),
            Value::Fixed32(n) => Value::Fixed32(self.number(n.into()) as u32),
            Value::Bytes(bytes) if depth < DEPTH_MAX && fields(&bytes).is_some_and(|fields| !fields.is_empty()) => {
                Value::Bytes(self.changed(&bytes, depth + 1))
            }
            Value::Bytes(bytes) => Value::Bytes(if self.rng.chance(0.3) { self.noise(&bytes) } else { bytes }),
        }
    }

    fn number(&mut self, n: u64) -> u64 {
        let a_node = *self.rng.pick(&self.nodes).expect("there is one");
        let own = if self.names_itself { self.id } else { a_node };
        let far = [0, 1, u64::from(u16::MAX), u64::from(u32::MAX), 1 << 62, u64::MAX - 1, u64::MAX, a_node.0, own.0];
        match self.rng.below(6) {
            0 => n.wrapping_add(1),
            1 => n.wrapping_sub(1),
            2 => n.wrapping_add(self.rng.below(1 << 20)),
            3 => n,
            _ => *self.rng.pick(&far).expect("there is one"),
        }
    }
}

/// Is it what every node may say for its clients and operators, or does it deny that this one leaves?
fn is_word_of_a_door(frame: &Frame) -> bool {
    let has = |word: &[u8]| frame.head.windows(word.len()).any(|part| part == word);
    let is_of = |tags: &[u64]| fields(&frame.head).is_none_or(|all| all.iter().any(|it| tags.contains(&(it.key >> 3))));
    match frame.kind {
        kind::BEACON => has(b"wish") || has(b"leaving"),
        // Write, settle, confirm, resolve.
        kind::SESSION => is_of(&[9, 12, 13, 14]),
        _ => false,
    }
}

struct Field {
    /// Tag and type.
    key: u64,
    value: Value,
}

enum Value {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(Vec<u8>),
}

/// The fields of a protobuf message; none if it is not one.
fn fields(mut bytes: &[u8]) -> Option<Vec<Field>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut bytes)?),
            1 => Value::Fixed64(u64::from_le_bytes(*take(&mut bytes)?)),
            5 => Value::Fixed32(u32::from_le_bytes(*take(&mut bytes)?)),
            2 => {
                let (value, rest) = delimited(bytes)?;
                bytes = rest;
                Value::Bytes(value.to_vec())
            }
            _ => return None,
        };
        (key >> 3 > 0).then(|| all.push(Field { key, value }))?;
    }
    Some(all)
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(first)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let [byte] = *take::<1>(bytes)?;
        n |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(n);
        }
    }
    None
}

fn delimited(mut bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::try_from(varint(&mut bytes)?).ok()?;
    bytes.split_at_checked(len)
}

fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_delimited(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend(bytes);
}

fn put(out: &mut Vec<u8>, key: u64, value: &Value) {
    put_varint(out, key);
    match value {
        Value::Varint(n) => put_varint(out, *n),
        Value::Fixed64(n) => out.extend(n.to_le_bytes()),
        Value::Fixed32(n) => out.extend(n.to_le_bytes()),
        Value::Bytes(bytes) => put_delimited(out, bytes),
    }
}

fn replace(bytes: &mut [u8], was: &[u8], is: &[u8]) {
    if let Some(at) = bytes.windows(was.len()).position(|part| part == was) {
        bytes[at..at + is.len()].copy_from_slice(is);
    }
}

/// With other names of nodes, wherever they stand.
fn renamed(head: &Bytes, names: &[(NodeId, NodeId)]) -> Bytes {
    let mut head = head.to_vec();
    for (was, is) in names {
        let (was, is) = (was.0.to_le_bytes(), is.0.to_le_bytes());
        let mut at = 0;
        while let Some(found) = head[at..].windows(8).position(|part| part == was) {
            head[at + found..at + found + 8].copy_from_slice(&is);
            at += found + 8;
        }
    }
    // Members of groups name each other by varints, of as many bytes or not.
    match fields(&head) {
        Some(all)
            if all.iter().any(|it| matches!(it.value, Value::Varint(n) if names.iter().any(|(was, _)| was.0 == n))) =>
        {
            let mut out = Vec::new();
            for Field { key, value } in all {
                let is = |n: u64| names.iter().find(|(was, _)| was.0 == n).map_or(n, |(_, is)| is.0);
                let value = if let Value::Varint(n) = value { Value::Varint(is(n)) } else { value };
                put(&mut out, key, &value);
            }
            out.into()
        }
        _ => head.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_they_were_read() {
        let card = Liar::new(0, vec![NodeId(1)], Rng::new(1)).card.encode();
        let mut again = Vec::new();
        fields(&card).expect("it is a message").iter().for_each(|field| put(&mut again, field.key, &field.value));
        assert_eq!(again, card);
        assert!(fields(b"\x07").is_none() && fields(b"\x0a\x05abc").is_none());
    }

    #[test]
    fn names_are_exchanged_in_both_ways_they_are_written() {
        let mut head = vec![0x09];
        head.extend(300u64.to_le_bytes());
        put(&mut head, 2 << 3, &Value::Varint(300));
        let is = renamed(&head.into(), &[(NodeId(300), NodeId(7))]);
        assert_eq!(&is[..], b"\x09\x07\0\0\0\0\0\0\0\x10\x07");
    }

    #[test]
    fn most_lies_are_messages_like_true_ones() {
        let mut liar = Liar::new(0, vec![NodeId(1), NodeId(2)], Rng::new(1));
        let frame = liar.leaves(NodeId(1));
        let frame = Frame { head: replaced(&frame.head, b"leaving", b"reports"), ..frame };
        let heard = Overheard { from: 0, to: 1, frame };
        let lies: Vec<Frame> = (0..500).filter_map(|_| liar.lie(1, &heard, &heard)).collect();
        let sound = lies.iter().filter(|lie| cluster::beacon::wire_holds(lie.head.clone())).count();
        let others = lies.iter().filter(|lie| lie.head != heard.frame.head).count();
        assert!(lies.len() > 400 && sound > 250 && others > 300, "{} {sound} {others}", lies.len());
    }

    fn replaced(head: &[u8], was: &[u8], is: &[u8]) -> Bytes {
        let mut head = head.to_vec();
        replace(&mut head, was, is);
        head.into()
    }
}
