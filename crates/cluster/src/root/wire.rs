//! The root group's bytes: raft's messages between members (kind `ROOT`), calls to the leader (kind `ROOT_CALL`), and
//! what stands inside log entries and snapshots. The messages are ours, field by field, though the tags follow raft's own
//! `eraftpb`; so nothing that came over a socket is ever parsed by another codec.

use base::{Boot, NodeId};
use bytes::Bytes;
use prost::Message as _;
use raft::eraftpb as pb;

use super::declared::{Change, ChangeId, Declared, State, Verdict};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WireEntry {
    #[prost(uint32, tag = "1")]
    pub entry_type: u32,
    #[prost(uint64, tag = "2")]
    pub term: u64,
    #[prost(uint64, tag = "3")]
    pub index: u64,
    #[prost(bytes = "bytes", tag = "4")]
    pub data: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WireConfState {
    #[prost(uint64, repeated, tag = "1")]
    pub voters: Vec<u64>,
    #[prost(uint64, repeated, tag = "2")]
    pub learners: Vec<u64>,
    #[prost(uint64, repeated, tag = "3")]
    pub voters_outgoing: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    pub learners_next: Vec<u64>,
    #[prost(bool, tag = "5")]
    pub auto_leave: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WireSnapshot {
    #[prost(message, optional, tag = "1")]
    pub state: Option<WireState>,
    #[prost(message, optional, tag = "2")]
    pub conf: Option<WireConfState>,
    #[prost(uint64, tag = "3")]
    pub index: u64,
    #[prost(uint64, tag = "4")]
    pub term: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WireHardState {
    #[prost(uint64, tag = "1")]
    pub term: u64,
    #[prost(uint64, tag = "2")]
    pub vote: u64,
    #[prost(uint64, tag = "3")]
    pub commit: u64,
}

/// What one step gives the disk: all of it or nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WireStep {
    #[prost(message, optional, tag = "1")]
    pub hard: Option<WireHardState>,
    #[prost(message, repeated, tag = "2")]
    pub entries: Vec<WireEntry>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WireMessage {
    #[prost(uint32, tag = "1")]
    pub msg_type: u32,
    #[prost(uint64, tag = "2")]
    pub to: u64,
    #[prost(uint64, tag = "3")]
    pub from: u64,
    #[prost(uint64, tag = "4")]
    pub term: u64,
    #[prost(uint64, tag = "5")]
    pub log_term: u64,
    #[prost(uint64, tag = "6")]
    pub index: u64,
    #[prost(message, repeated, tag = "7")]
    pub entries: Vec<WireEntry>,
    #[prost(uint64, tag = "8")]
    pub commit: u64,
    #[prost(message, optional, tag = "9")]
    pub snapshot: Option<WireSnapshot>,
    #[prost(bool, tag = "10")]
    pub reject: bool,
    #[prost(uint64, tag = "11")]
    pub reject_hint: u64,
    #[prost(bytes = "bytes", tag = "12")]
    pub context: Bytes,
    #[prost(uint64, tag = "13")]
    pub request_snapshot: u64,
    #[prost(uint64, tag = "15")]
    pub commit_term: u64,
}

/// As `eraftpb.ConfChangeV2` has it: raft itself writes these into entries.
#[derive(Clone, PartialEq, prost::Message)]
struct WireConfChange {
    #[prost(uint32, tag = "1")]
    transition: u32,
    #[prost(message, repeated, tag = "2")]
    changes: Vec<WireConfStep>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireConfStep {
    #[prost(uint32, tag = "1")]
    change_type: u32,
    #[prost(uint64, tag = "2")]
    node: u64,
}

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

impl From<&pb::Entry> for WireEntry {
    fn from(entry: &pb::Entry) -> Self {
        Self { entry_type: entry.entry_type as u32, term: entry.term, index: entry.index, data: entry.data.clone() }
    }
}

impl WireEntry {
    /// None for a type of entry we never write. (The old form of membership changes is one.)
    pub fn take(self) -> Option<pb::Entry> {
        let entry_type = [pb::EntryType::EntryNormal, pb::EntryType::EntryConfChangeV2]
            .into_iter()
            .find(|known| *known as u32 == self.entry_type)?;
        // A copy, as the entry stays for long, and a slice would hold the whole buffer that it came in.
        let data = Bytes::copy_from_slice(&self.data);
        Some(pb::Entry { entry_type, term: self.term, index: self.index, data, ..pb::Entry::default() })
    }
}

impl From<&pb::ConfState> for WireConfState {
    fn from(conf: &pb::ConfState) -> Self {
        Self {
            voters: conf.voters.clone(),
            learners: conf.learners.clone(),
            voters_outgoing: conf.voters_outgoing.clone(),
            learners_next: conf.learners_next.clone(),
            auto_leave: conf.auto_leave,
        }
    }
}

impl WireConfState {
    /// None for what no group can be: raft would stop the process over it.
    pub fn take(self) -> Option<pb::ConfState> {
        let mut all: Vec<u64> = self.voters.iter().chain(&self.learners).copied().collect();
        all.sort_unstable();
        let sound = !self.voters.is_empty()
            && all.windows(2).all(|pair| pair[0] < pair[1])
            && all[0] != 0
            && self.learners_next.iter().all(|id| self.voters_outgoing.contains(id) && !all.contains(id))
            && self.voters_outgoing.iter().all(|id| *id != 0 && !self.learners.contains(id));
        sound.then(|| pb::ConfState {
            voters: self.voters,
            learners: self.learners,
            voters_outgoing: self.voters_outgoing,
            learners_next: self.learners_next,
            auto_leave: self.auto_leave,
            ..pb::ConfState::default()
        })
    }
}

impl From<&pb::HardState> for WireHardState {
    fn from(hard: &pb::HardState) -> Self {
        Self { term: hard.term, vote: hard.vote, commit: hard.commit }
    }
}

impl WireHardState {
    pub fn take(self) -> pb::HardState {
        pb::HardState { term: self.term, vote: self.vote, commit: self.commit, ..pb::HardState::default() }
    }
}

impl WireSnapshot {
    pub fn new(state: &State, conf: &pb::ConfState, index: u64, term: u64) -> Self {
        Self { state: Some(state.into()), conf: Some(conf.into()), index, term }
    }

    fn of_raft(snapshot: &pb::Snapshot) -> Self {
        let meta = snapshot.get_metadata();
        Self {
            state: WireState::decode(snapshot.data.clone()).ok(),
            conf: Some(meta.get_conf_state().into()),
            index: meta.index,
            term: meta.term,
        }
    }

    fn into_raft(self) -> Option<pb::Snapshot> {
        // Parsed and written again, so that raft only ever holds what can be applied.
        let data = WireState::bytes(&self.state?.take()?);
        let mut snapshot = pb::Snapshot { data, ..pb::Snapshot::default() };
        let meta = snapshot.mut_metadata();
        meta.index = self.index;
        meta.term = self.term;
        *meta.mut_conf_state() = self.conf?.take()?;
        (self.index > 0).then_some(snapshot)
    }
}

/// Types of messages that members send each other. Anything else would be a proposal past us or a local message.
const TYPES: [pb::MessageType; 9] = [
    pb::MessageType::MsgAppend,
    pb::MessageType::MsgAppendResponse,
    pb::MessageType::MsgRequestVote,
    pb::MessageType::MsgRequestVoteResponse,
    pb::MessageType::MsgSnapshot,
    pb::MessageType::MsgHeartbeat,
    pb::MessageType::MsgHeartbeatResponse,
    pb::MessageType::MsgRequestPreVote,
    pb::MessageType::MsgRequestPreVoteResponse,
];

pub(super) fn encode_message(message: &pb::Message) -> Bytes {
    WireMessage {
        msg_type: message.msg_type as u32,
        to: message.to,
        from: message.from,
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        entries: message.entries.iter().map(WireEntry::from).collect(),
        commit: message.commit,
        snapshot: message.snapshot.as_ref().filter(|s| !s.is_empty()).map(WireSnapshot::of_raft),
        reject: message.reject,
        reject_hint: message.reject_hint,
        context: message.context.clone(),
        request_snapshot: message.request_snapshot,
        commit_term: message.commit_term,
    }
    .encode_to_vec()
    .into()
}

/// A member's message, if its parts fit together. What raft would take as a broken invariant, and stop the process over,
/// must not get past here.
pub(super) fn decode_message(head: Bytes) -> Option<pb::Message> {
    let wire = WireMessage::decode(head).ok()?;
    let msg_type = TYPES.into_iter().find(|known| *known as u32 == wire.msg_type)?;
    let in_row = (1..).zip(&wire.entries).all(|(n, entry)| wire.index.checked_add(n) == Some(entry.index));
    if !in_row || wire.term == 0 || (msg_type == pb::MessageType::MsgSnapshot) != wire.snapshot.is_some() {
        return None;
    }
    let mut message = pb::Message {
        msg_type,
        to: wire.to,
        from: wire.from,
        term: wire.term,
        log_term: wire.log_term,
        index: wire.index,
        entries: wire.entries.into_iter().map(WireEntry::take).collect::<Option<Vec<_>>>()?.into(),
        commit: wire.commit,
        reject: wire.reject,
        reject_hint: wire.reject_hint,
        context: wire.context,
        request_snapshot: wire.request_snapshot,
        commit_term: wire.commit_term,
        ..pb::Message::default()
    };
    if let Some(snapshot) = wire.snapshot {
        message.set_snapshot(snapshot.into_raft()?);
    }
    Some(message)
}

/// What a committed entry says about the group. Empty data is raft's own "leave the joint group".
pub(super) fn decode_conf_change(data: Bytes) -> Option<pb::ConfChangeV2> {
    let wire = WireConfChange::decode(data).ok()?;
    let transition =
        [pb::ConfChangeTransition::Auto, pb::ConfChangeTransition::Implicit, pb::ConfChangeTransition::Explicit]
            .into_iter()
            .find(|known| *known as u32 == wire.transition)?;
    let mut change = pb::ConfChangeV2 { transition, ..pb::ConfChangeV2::default() };
    for step in wire.changes {
        let change_type =
            [pb::ConfChangeType::AddNode, pb::ConfChangeType::RemoveNode, pb::ConfChangeType::AddLearnerNode]
                .into_iter()
                .find(|known| *known as u32 == step.change_type)?;
        change.changes.push(conf_step(change_type, step.node));
    }
    Some(change)
}

pub(super) fn conf_step(change_type: pb::ConfChangeType, node: u64) -> pb::ConfChangeSingle {
    pb::ConfChangeSingle { change_type, node_id: node, ..pb::ConfChangeSingle::default() }
}

/// For the fuzz crate: whether these bytes are a message, a call, a log entry's data or a snapshot's, after asserting that
/// what is understood of them is what would be sent again.
pub fn holds(bytes: Bytes) -> bool {
    let message = decode_message(bytes.clone());
    if let Some(message) = &message {
        let again = decode_message(encode_message(message)).expect("our own message is one");
        assert_eq!(encode_message(&again), encode_message(message));
    }
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
    let conf = decode_conf_change(bytes);
    message.is_some() || call.is_some() || change.is_some() || state.is_some() || conf.is_some()
}
