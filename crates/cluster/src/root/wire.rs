//! The root group's bytes: calls to the leader (kind `ROOT_CALL`), and what stands inside log entries and snapshots. What
//! members say to each other is `raft/wire.rs`'s.

use base::{Boot, NodeId};
use bytes::Bytes;
use prost::Message as _;

use super::declared::{Change, ChangeId, Declared, State, Verdict};

#[derive(Clone, PartialEq, prost::Message)]
struct WireId {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(uint64, tag = "2")]
    boot: u64,
    #[prost(uint64, tag = "3")]
    seq: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireRecord {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(bytes = "bytes", tag = "3")]
    value: Bytes,
}

/// Data of a normal log entry, and a call to the leader.
#[derive(Clone, PartialEq, prost::Message)]
struct WireChange {
    #[prost(message, optional, tag = "1")]
    id: Option<WireId>,
    #[prost(uint64, optional, tag = "2")]
    expect: Option<u64>,
    #[prost(message, repeated, tag = "3")]
    puts: Vec<WireRecord>,
    #[prost(message, repeated, tag = "4")]
    removes: Vec<WireRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireVerdict {
    #[prost(message, optional, tag = "1")]
    id: Option<WireId>,
    #[prost(uint32, tag = "2")]
    verdict: u32,
    #[prost(uint64, tag = "3")]
    version: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireFloor {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(uint64, tag = "2")]
    boot: u64,
    #[prost(uint64, tag = "3")]
    seq: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WireState {
    #[prost(uint64, tag = "1")]
    version: u64,
    #[prost(message, repeated, tag = "2")]
    records: Vec<WireRecord>,
    #[prost(message, repeated, tag = "3")]
    remembered: Vec<WireVerdict>,
    #[prost(message, repeated, tag = "4")]
    floors: Vec<WireFloor>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireCall {
    #[prost(message, optional, tag = "1")]
    call: Option<WireChange>,
    #[prost(message, optional, tag = "2")]
    answer: Option<WireVerdict>,
}

/// What travels in frames of kind `ROOT_CALL`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Call {
    /// Propose this, if you lead.
    Propose(ChangeId, Change),
    /// This became of it. `None`: nothing; it was not put into the log, as I do not lead or have no room.
    Verdict(ChangeId, Option<Verdict>),
}

const NOT_TAKEN: u32 = 0;
const APPLIED: u32 = 1;
const CONFLICT: u32 = 2;
const TOO_LARGE: u32 = 3;
const FORGOTTEN: u32 = 4;

impl From<ChangeId> for WireId {
    fn from(id: ChangeId) -> Self {
        Self { node: id.node.0, boot: id.boot.0, seq: id.seq }
    }
}

impl From<WireId> for ChangeId {
    fn from(id: WireId) -> Self {
        Self { node: NodeId(id.node), boot: Boot(id.boot), seq: id.seq }
    }
}

impl WireVerdict {
    fn new(id: ChangeId, verdict: Option<Verdict>) -> Self {
        let (verdict, version) = match verdict {
            None => (NOT_TAKEN, 0),
            Some(Verdict::Applied(version)) => (APPLIED, version),
            Some(Verdict::Conflict(version)) => (CONFLICT, version),
            Some(Verdict::TooLarge) => (TOO_LARGE, 0),
            Some(Verdict::Forgotten) => (FORGOTTEN, 0),
        };
        Self { id: Some(id.into()), verdict, version }
    }

    fn take(self) -> Option<(ChangeId, Option<Verdict>)> {
        let verdict = match self.verdict {
            NOT_TAKEN => None,
            APPLIED => Some(Verdict::Applied(self.version)),
            CONFLICT => Some(Verdict::Conflict(self.version)),
            TOO_LARGE => Some(Verdict::TooLarge),
            FORGOTTEN => Some(Verdict::Forgotten),
            // A newer version's word: not understood is not known.
            _ => return None,
        };
        Some((self.id?.into(), verdict))
    }
}

impl WireChange {
    fn new(id: ChangeId, change: &Change) -> Self {
        let record = |kind: &String, name: &String, value: &Bytes| WireRecord {
            kind: kind.clone(),
            name: name.clone(),
            value: value.clone(),
        };
        Self {
            id: Some(id.into()),
            expect: change.expect,
            puts: change.puts.iter().map(|(kind, name, value)| record(kind, name, value)).collect(),
            removes: change.removes.iter().map(|(kind, name)| record(kind, name, &Bytes::new())).collect(),
        }
    }

    fn take(self) -> Option<(ChangeId, Change)> {
        let change = Change {
            expect: self.expect,
            puts: self.puts.into_iter().map(|r| (r.kind, r.name, r.value)).collect(),
            removes: self.removes.into_iter().map(|r| (r.kind, r.name)).collect(),
        };
        Some((self.id?.into(), change))
    }
}

/// Data of a log entry.
pub(super) fn encode_change(id: ChangeId, change: &Change) -> Vec<u8> {
    WireChange::new(id, change).encode_to_vec()
}

pub(super) fn decode_change(data: Bytes) -> Option<(ChangeId, Change)> {
    WireChange::decode(data).ok()?.take()
}

pub(super) fn encode_call(call: &Call) -> Bytes {
    let call = match call {
        Call::Propose(id, change) => WireCall { call: Some(WireChange::new(*id, change)), answer: None },
        Call::Verdict(id, verdict) => WireCall { call: None, answer: Some(WireVerdict::new(*id, *verdict)) },
    };
    call.encode_to_vec().into()
}

pub(super) fn decode_call(head: Bytes) -> Option<Call> {
    match WireCall::decode(head).ok()? {
        WireCall { call: Some(call), answer: None } => call.take().map(|(id, change)| Call::Propose(id, change)),
        WireCall { call: None, answer: Some(answer) } => answer.take().map(|(id, verdict)| Call::Verdict(id, verdict)),
        WireCall { .. } => None,
    }
}

impl From<&State> for WireState {
    fn from(state: &State) -> Self {
        Self {
            version: state.declared.version,
            records: (state.declared.records.iter())
                .map(|((kind, name), value)| WireRecord {
                    kind: kind.clone(),
                    name: name.clone(),
                    value: value.clone(),
                })
                .collect(),
            remembered: state.remembered.iter().map(|(id, verdict)| WireVerdict::new(*id, Some(*verdict))).collect(),
            floors: (state.floors.iter())
                .map(|(node, (boot, seq))| WireFloor { node: node.0, boot: boot.0, seq: *seq })
                .collect(),
        }
    }
}

impl WireState {
    pub fn take(self) -> Option<State> {
        let records = self.records.into_iter().map(|r| ((r.kind, r.name), r.value)).collect();
        let remembered = (self.remembered.into_iter())
            .map(|known| known.take().and_then(|(id, verdict)| Some((id, verdict?))))
            .collect::<Option<_>>()?;
        let floors = self.floors.into_iter().map(|f| (NodeId(f.node), (Boot(f.boot), f.seq))).collect();
        Some(State { declared: Declared { version: self.version, records }, remembered, floors })
    }

    /// Bytes of a raft snapshot's data.
    pub fn bytes(state: &State) -> Bytes {
        Self::from(state).encode_to_vec().into()
    }

    pub fn parse(data: Bytes) -> Option<State> {
        Self::decode(data).ok()?.take()
    }
}

/// For the fuzz crate: whether these bytes are a message, a call, a log entry's data or a snapshot's, after asserting that
/// what is understood of them is what would be sent again.
pub fn holds(bytes: Bytes) -> bool {
    let call = decode_call(bytes.clone());
    if let Some(call) = &call {
        assert_eq!(decode_call(encode_call(call)).as_ref(), Some(call));
    }
    let change = decode_change(bytes.clone());
    if let Some((id, change)) = &change {
        let again = decode_change(encode_change(*id, change).into());
        assert_eq!(again.as_ref(), Some(&(*id, change.clone())));
    }
    let state = WireState::parse(bytes.clone());
    if let Some(state) = &state {
        assert_eq!(WireState::parse(WireState::bytes(state)).as_ref(), Some(state));
    }
    crate::raft::wire::holds(bytes) || call.is_some() || change.is_some() || state.is_some()
}
