//! The bytes of both beacons: assignments and a node's clones. Prost messages with a version in front; unknown fields are
//! skipped. Service names and node ids are tables, so that a clone costs a few bytes. Decoding never panics.

use std::collections::BTreeMap;

use base::{Boot, NodeId};
use bytes::Bytes;
use prost::Message;

use crate::assign::Overflow;
use crate::limits::{BEACON_BYTES_MAX, CLONES_MAX, ILL_WHY_BYTES, OUTPUT_LINE_BYTES, OUTPUT_LINES, SERVICES_MAX};
use crate::{Assignments, CloneId, CloneState, CloneStatus, Ill, NodeClones};

/// First byte of both. Another one is of a version we cannot read.
const VERSION: u8 = 1;

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

fn versioned(message: &impl Message) -> Bytes {
    let mut bytes = Vec::with_capacity(1 + message.encoded_len());
    bytes.push(VERSION);
    message.encode(&mut bytes).expect("a vector grows");
    bytes.into()
}

fn message<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    let (&version, rest) = bytes.split_first()?;
    if version != VERSION {
        return None;
    }
    M::decode(rest).ok()
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
        versioned(&WireAssignments {
            term: self.term,
            seq: self.seq,
            by: self.by.0,
            boot: self.boot.0,
            services,
            nodes,
            of,
            recruited: self.overflow.times,
            overflow_total_ms: self.overflow.total_ms,
            overflow_since_ms: self.overflow.since_ms.unwrap_or(0),
            overflow_last_ms: self.overflow.last_ms,
            starts,
        })
    }

    /// None if the bytes are not assignments of a version known here.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let wire: WireAssignments = message(bytes)?;
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
            let bytes = versioned(&self.wire(lines));
            if bytes.len() <= BEACON_BYTES_MAX || lines == 0 {
                return bytes;
            }
            lines /= 2;
        }
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
        WireClones { services: services.1, clones, term, seq, by: by.0, boot: boot.0 }
    }

    /// None if the bytes are not a node's clones of a version known here. A clone in a state that only a newer version
    /// knows is left out.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let wire: WireClones = message(bytes)?;
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
