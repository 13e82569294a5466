//! The bytes of both beacons: assignments and a node's clones, in one fact or in parts (`parts.rs`). Prost messages with a version in
//! front; unknown fields are skipped. Service names and node ids are tables, so that a clone costs a few bytes. Decoding never panics.

use std::collections::BTreeMap;

use base::{Boot, NodeId};
use bytes::Bytes;
use prost::Message;

use crate::assign::Overflow;
use crate::limits::{
    BEACON_BYTES_MAX, CLONES_MAX, ILL_WHY_BYTES, OUTPUT_LINE_BYTES, OUTPUT_LINES, PART_CLONE_BYTES, PART_PLACE_BYTES,
    PART_SERVICE_BYTES, PARTS_FROM, SERVICES_MAX,
};
use crate::parts::{self, Parted};
use crate::{Assignments, CloneId, CloneState, CloneStatus, Ill, NodeClones};

/// First byte of both. Another one is of a version we cannot read.
const VERSION: u8 = 1;
/// ... of the head of one that is in parts. Each part is as a whole one, of some services.
const IN_PARTS: u8 = 2;

#[derive(Clone, PartialEq, Message)]
struct WireAssignments {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    seq: u64,
    #[prost(fixed64, tag = "3")]
    by: u64,
    #[prost(string, repeated, tag = "4")]
    services: Vec<String>,
    #[prost(fixed64, repeated, tag = "5")]
    nodes: Vec<u64>,
    #[prost(message, repeated, tag = "6")]
    of: Vec<WirePlace>,
    #[prost(uint64, tag = "7")]
    recruited: u64,
    #[prost(uint64, tag = "8")]
    boot: u64,
    #[prost(uint64, tag = "9")]
    overflow_total_ms: u64,
    /// 0 for none.
    #[prost(uint64, tag = "10")]
    overflow_since_ms: u64,
    #[prost(uint64, tag = "11")]
    overflow_last_ms: u64,
    #[prost(message, repeated, tag = "12")]
    starts: Vec<WireStart>,
    /// Of a head: its parts.
    #[prost(uint32, repeated, tag = "13")]
    part_numbers: Vec<u32>,
    #[prost(fixed64, repeated, tag = "14")]
    part_hashes: Vec<u64>,
}

/// How long a service's clones take to start.
#[derive(Clone, PartialEq, Message)]
struct WireStart {
    #[prost(uint32, tag = "1")]
    service: u32,
    #[prost(uint32, tag = "2")]
    ms: u32,
}

/// A clone's node, or with `leaving` the one it comes from.
#[derive(Clone, PartialEq, Message)]
struct WirePlace {
    #[prost(uint32, tag = "1")]
    service: u32,
    #[prost(uint32, tag = "2")]
    number: u32,
    #[prost(uint32, tag = "3")]
    node: u32,
    /// Index of the node it leaves, plus one; 0 for none.
    #[prost(uint32, tag = "4")]
    leaving: u32,
    /// Version that it is to run instead of the declared one; 0 for none.
    #[prost(uint32, tag = "5")]
    fresh: u32,
    /// Why it is to be restarted, and since when the life serves that is meant; 0 for none.
    #[prost(string, tag = "6")]
    ill: String,
    #[prost(uint64, tag = "7")]
    ill_since_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
struct WireClones {
    #[prost(string, repeated, tag = "1")]
    services: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    clones: Vec<WireClone>,
    /// Term, seq, leader and its life of the assignments it obeys.
    #[prost(uint64, tag = "3")]
    term: u64,
    #[prost(uint64, tag = "4")]
    seq: u64,
    #[prost(fixed64, tag = "5")]
    by: u64,
    #[prost(uint64, tag = "6")]
    boot: u64,
    /// Of a head: its parts.
    #[prost(uint32, repeated, tag = "7")]
    part_numbers: Vec<u32>,
    #[prost(fixed64, repeated, tag = "8")]
    part_hashes: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct WireClone {
    #[prost(uint32, tag = "1")]
    service: u32,
    #[prost(uint32, tag = "2")]
    number: u32,
    #[prost(uint32, tag = "3")]
    state: u32,
    #[prost(uint32, tag = "4")]
    pid: u32,
    #[prost(uint32, tag = "5")]
    port: u32,
    #[prost(uint32, tag = "6")]
    restarts: u32,
    #[prost(uint64, tag = "7")]
    since_ms: u64,
    #[prost(string, optional, tag = "8")]
    last_exit: Option<String>,
    #[prost(string, repeated, tag = "9")]
    last_output: Vec<String>,
    #[prost(fixed64, tag = "10")]
    spec_hash: u64,
    #[prost(uint64, tag = "15")]
    life: u64,
    #[prost(uint32, tag = "16")]
    version: u32,
    #[prost(bool, tag = "17")]
    sick: bool,
    /// Not told by programs of 0.1.
    #[prost(uint32, optional, tag = "18")]
    deaths: Option<u32>,
}

/// Numbers names in the order they are first met.
struct Table<T>(BTreeMap<T, u32>, Vec<T>);

impl<T: Ord + Clone> Table<T> {
    fn new() -> Self {
        Self(BTreeMap::new(), Vec::new())
    }

    fn index(&mut self, item: &T) -> u32 {
        if let Some(&index) = self.0.get(item) {
            return index;
        }
        let index = self.1.len() as u32;
        self.0.insert(item.clone(), index);
        self.1.push(item.clone());
        index
    }
}

fn versioned(version: u8, message: &impl Message) -> Bytes {
    let mut bytes = Vec::with_capacity(1 + message.encoded_len());
    bytes.push(version);
    message.encode(&mut bytes).expect("a vector grows");
    bytes.into()
}

fn message<M: Message + Default>(version: u8, bytes: &[u8]) -> Option<M> {
    let (&first, rest) = bytes.split_first()?;
    if first != version {
        return None;
    }
    M::decode(rest).ok()
}

/// Whether this is the head of what is in parts.
pub fn is_in_parts(bytes: &[u8]) -> bool {
    bytes.first() == Some(&IN_PARTS)
}

impl Assignments {
    pub fn encode(&self) -> Bytes {
        let (mut services, mut nodes) = (Table::new(), Table::new());
        let mut of = Vec::with_capacity(self.of.len());
        for (id, node) in &self.of {
            of.push(WirePlace {
                service: services.index(&id.service),
                number: id.number,
                node: nodes.index(&node.0),
                leaving: self.leaving.get(id).map_or(0, |from| nodes.index(&from.0) + 1),
                fresh: self.fresh.get(id).copied().unwrap_or(0),
                ill: self.ill.get(id).map_or_else(String::new, |ill| ill.why.clone()),
                ill_since_ms: self.ill.get(id).map_or(0, |ill| ill.since_ms),
            });
        }
        let start = |(service, ms): (&String, &u32)| WireStart { service: services.index(service), ms: *ms };
        let starts = self.starts.iter().map(start).collect();
        let (services, nodes) = (services.1, nodes.1);
        versioned(VERSION, &WireAssignments { services, nodes, of, starts, ..self.head() })
    }

    /// What is said of no service.
    fn head(&self) -> WireAssignments {
        WireAssignments {
            term: self.term,
            seq: self.seq,
            by: self.by.0,
            boot: self.boot.0,
            recruited: self.overflow.times,
            overflow_total_ms: self.overflow.total_ms,
            overflow_since_ms: self.overflow.since_ms.unwrap_or(0),
            overflow_last_ms: self.overflow.last_ms,
            ..WireAssignments::default()
        }
    }

    /// The values of the beacon, in parts if they are many and it `may` be so.
    pub fn told(&self, may: bool) -> Parted {
        if !may || self.of.len().max(self.starts.len()) <= PARTS_FROM {
            return Parted::whole(self.encode());
        }
        let mut bytes: BTreeMap<&str, usize> = BTreeMap::new();
        for id in self.of.keys() {
            let why = self.ill.get(id).map_or(0, |ill| ill.why.len());
            *bytes.entry(&id.service).or_insert(PART_SERVICE_BYTES) += PART_PLACE_BYTES + why;
        }
        self.starts.keys().for_each(|service| *bytes.entry(service).or_default() += PART_SERVICE_BYTES);
        let numbers = parts::numbers(&bytes);
        let mut parts: BTreeMap<u32, Self> = BTreeMap::new();
        for (id, node) in &self.of {
            let part = parts.entry(numbers[id.service.as_str()]).or_default();
            part.of.insert(id.clone(), *node);
            part.leaving.extend(self.leaving.get(id).map(|from| (id.clone(), *from)));
            part.fresh.extend(self.fresh.get(id).map(|version| (id.clone(), *version)));
            part.ill.extend(self.ill.get(id).map(|ill| (id.clone(), ill.clone())));
        }
        for (service, ms) in &self.starts {
            parts.entry(numbers[service.as_str()]).or_default().starts.insert(service.clone(), *ms);
        }
        let parts: BTreeMap<u32, Bytes> = parts.into_iter().map(|(number, part)| (number, part.encode())).collect();
        let (part_numbers, part_hashes) = parts::list(&parts);
        let head = versioned(IN_PARTS, &WireAssignments { part_numbers, part_hashes, ..self.head() });
        Parted { head, parts }
    }

    /// Assignments that were told, from what is here of them. None if they are of a version unknown here, or if a part is missing.
    pub fn read<'a>(head: &[u8], part: impl Fn(u32) -> Option<&'a Bytes>) -> Option<Self> {
        if !is_in_parts(head) {
            return Self::decode(head);
        }
        let wire: WireAssignments = message(IN_PARTS, head)?;
        let parts = parts::listed(&wire.part_numbers, &wire.part_hashes, part)?;
        let mut read = Self::of_wire(&wire)?;
        for part in parts {
            let Self { of, leaving, fresh, ill, starts, .. } = Self::decode(part)?;
            read.of.extend(of);
            read.leaving.extend(leaving);
            read.fresh.extend(fresh);
            read.ill.extend(ill);
            read.starts.extend(starts);
        }
        (read.of.len() <= CLONES_MAX as usize && read.starts.len() <= SERVICES_MAX).then_some(read)
    }

    /// None if the bytes are not assignments of a version known here, in one fact.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Self::of_wire(&message(VERSION, bytes)?)
    }

    fn of_wire(wire: &WireAssignments) -> Option<Self> {
        if wire.of.len() > CLONES_MAX as usize || wire.services.len() > SERVICES_MAX {
            return None;
        }
        let (term, seq, by, boot) = (wire.term, wire.seq, NodeId(wire.by), Boot(wire.boot));
        let overflow = Overflow {
            times: wire.recruited,
            total_ms: wire.overflow_total_ms,
            since_ms: Some(wire.overflow_since_ms).filter(|since| *since > 0),
            last_ms: wire.overflow_last_ms,
        };
        let mut read = Self { term, seq, by, boot, overflow, ..Self::default() };
        for start in wire.starts.iter().take(SERVICES_MAX) {
            read.starts.insert(wire.services.get(start.service as usize)?.clone(), start.ms);
        }
        let node = |index: u32| wire.nodes.get(index as usize).map(|id| NodeId(*id));
        for place in &wire.of {
            let id = CloneId::new(wire.services.get(place.service as usize)?, place.number);
            if let Some(from) = place.leaving.checked_sub(1) {
                read.leaving.insert(id.clone(), node(from)?);
            }
            if place.fresh > 0 {
                read.fresh.insert(id.clone(), place.fresh);
            }
            if place.ill_since_ms > 0 {
                let why = cut(&place.ill, ILL_WHY_BYTES);
                read.ill.insert(id.clone(), Ill { since_ms: place.ill_since_ms, why });
            }
            read.of.insert(id, node(place.node)?);
        }
        Some(read)
    }
}

impl NodeClones {
    /// The beacon's value. Output is sent only of clones that do not serve, and left out where it would be too long.
    pub fn encode(&self) -> Bytes {
        let mut lines = OUTPUT_LINES;
        loop {
            let bytes = versioned(VERSION, &self.wire(lines));
            if bytes.len() <= BEACON_BYTES_MAX || lines == 0 {
                return bytes;
            }
            lines /= 2;
        }
    }

    /// The values of the beacon, in parts if they are many and it `may` be so. Each part leaves out output by itself.
    pub fn told(&self, may: bool) -> Parted {
        if !may || self.clones.len() <= PARTS_FROM {
            return Parted::whole(self.encode());
        }
        let mut bytes: BTreeMap<&str, usize> = BTreeMap::new();
        for clone in &self.clones {
            *bytes.entry(&clone.id.service).or_insert(PART_SERVICE_BYTES) += PART_CLONE_BYTES;
        }
        let numbers = parts::numbers(&bytes);
        let mut parts: BTreeMap<u32, Self> = BTreeMap::new();
        for clone in &self.clones {
            parts.entry(numbers[clone.id.service.as_str()]).or_default().clones.push(clone.clone());
        }
        let parts: BTreeMap<u32, Bytes> = parts.into_iter().map(|(number, part)| (number, part.encode())).collect();
        let (part_numbers, part_hashes) = parts::list(&parts);
        let (term, seq, by, boot) = self.obeys;
        let (by, boot) = (by.0, boot.0);
        let head = WireClones { term, seq, by, boot, part_numbers, part_hashes, ..WireClones::default() };
        Parted { head: versioned(IN_PARTS, &head), parts }
    }

    /// A node's clones that were told, from what is here of them. None if they are of a version unknown here, or if a part is missing.
    pub fn read<'a>(head: &[u8], part: impl Fn(u32) -> Option<&'a Bytes>) -> Option<Self> {
        if !is_in_parts(head) {
            return Self::decode(head);
        }
        let wire: WireClones = message(IN_PARTS, head)?;
        let parts = parts::listed(&wire.part_numbers, &wire.part_hashes, part)?;
        let obeys = (wire.term, wire.seq, NodeId(wire.by), Boot(wire.boot));
        let mut clones = Vec::new();
        for part in parts {
            clones.extend(Self::decode(part)?.clones);
        }
        clones.sort_by(|a, b| (&a.id, a.state).cmp(&(&b.id, b.state)));
        (clones.len() <= 2 * CLONES_MAX as usize).then_some(Self { obeys, clones })
    }

    fn wire(&self, lines: usize) -> WireClones {
        let mut services = Table::new();
        let clone = |clone: &CloneStatus| {
            let skip = match clone.state {
                CloneState::Serving | CloneState::Draining => clone.last_output.len(),
                CloneState::Starting | CloneState::Backoff => clone.last_output.len().saturating_sub(lines),
            };
            WireClone {
                service: services.index(&clone.id.service),
                number: clone.id.number,
                state: match clone.state {
                    CloneState::Starting => 1,
                    CloneState::Serving => 2,
                    CloneState::Draining => 3,
                    CloneState::Backoff => 4,
                },
                pid: clone.pid,
                port: u32::from(clone.port),
                restarts: clone.restarts,
                since_ms: clone.since_ms,
                last_exit: clone.last_exit.as_deref().filter(|_| lines > 0).map(short),
                last_output: clone.last_output[skip..].iter().map(|line| short(line)).collect(),
                spec_hash: clone.spec_hash,
                life: clone.life,
                version: clone.version,
                sick: clone.sick,
                deaths: clone.deaths,
            }
        };
        let clones = self.clones.iter().map(clone).collect();
        let (term, seq, by, boot) = self.obeys;
        WireClones { services: services.1, clones, term, seq, by: by.0, boot: boot.0, ..WireClones::default() }
    }

    /// None if the bytes are not a node's clones of a version known here. A clone in a state that only a newer version
    /// knows is left out.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let wire: WireClones = message(VERSION, bytes)?;
        // Twice: while a clone is replaced, two are listed.
        if wire.clones.len() > 2 * CLONES_MAX as usize || wire.services.len() > SERVICES_MAX {
            return None;
        }
        let mut clones = Vec::with_capacity(wire.clones.len());
        for clone in wire.clones {
            let state = match clone.state {
                1 => CloneState::Starting,
                2 => CloneState::Serving,
                3 => CloneState::Draining,
                4 => CloneState::Backoff,
                _ => continue,
            };
            clones.push(CloneStatus {
                id: CloneId::new(wire.services.get(clone.service as usize)?, clone.number),
                state,
                pid: clone.pid,
                port: u16::try_from(clone.port).ok()?,
                restarts: clone.restarts,
                since_ms: clone.since_ms,
                last_exit: clone.last_exit,
                last_output: clone.last_output,
                spec_hash: clone.spec_hash,
                life: clone.life,
                version: clone.version,
                sick: clone.sick,
                deaths: clone.deaths,
            });
        }
        let obeys = (wire.term, wire.seq, NodeId(wire.by), Boot(wire.boot));
        Some(Self { obeys, clones })
    }
}

/// A line cut to what a beacon carries, at a letter's border.
pub(crate) fn short(line: &str) -> String {
    cut(line, OUTPUT_LINE_BYTES)
}

fn cut(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
