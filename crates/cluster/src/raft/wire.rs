//! What members of a group say to each other, and what stands in their records on disk. The messages are ours, field by
//! field, though the tags follow raft's own `eraftpb`; so nothing that came over a socket is ever parsed by another codec.

use base::{GroupId, NodeId};
use bytes::Bytes;
use prost::Message as _;
use raft::eraftpb as pb;

use super::recall::{Promised, Recalled};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WireEntry {
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
pub(crate) struct WireConfState {
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
pub(crate) struct WireSnapshot {
    /// The first part of the state; on disk only.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub state: Option<Bytes>,
    #[prost(message, optional, tag = "2")]
    pub conf: Option<WireConfState>,
    #[prost(uint64, tag = "3")]
    pub index: u64,
    #[prost(uint64, tag = "4")]
    pub term: u64,
    /// Parts follow in records of their own.
    #[prost(bool, tag = "5")]
    pub more: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WireHardState {
    #[prost(uint64, tag = "1")]
    pub term: u64,
    #[prost(uint64, tag = "2")]
    pub vote: u64,
    #[prost(uint64, tag = "3")]
    pub commit: u64,
}

/// What one step gives the disk: all of it or nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WireStep {
    #[prost(message, optional, tag = "1")]
    pub hard: Option<WireHardState>,
    #[prost(message, repeated, tag = "2")]
    pub entries: Vec<WireEntry>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WireMessage {
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
    /// Which group; the root group is 0. From here on the fields are ours.
    #[prost(uint64, tag = "20")]
    pub group: u64,
    /// Of a snapshot: which part stands in the frame's body, from 0; or the next one that is wanted.
    #[prost(uint64, tag = "21")]
    pub part: u64,
    #[prost(bool, tag = "22")]
    pub last: bool,
    /// CRC-32C of the part.
    #[prost(fixed32, tag = "23")]
    pub sum: u32,
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

impl From<&pb::Entry> for WireEntry {
    fn from(entry: &pb::Entry) -> Self {
        Self { data: entry.data.clone(), ..Self::without_data(entry) }
    }
}

impl WireEntry {
    pub fn without_data(entry: &pb::Entry) -> Self {
        Self { entry_type: entry.entry_type as u32, term: entry.term, index: entry.index, data: Bytes::new() }
    }

    /// None for a type of entry we never write. (The old form of membership changes is one.)
    /// `own`: in memory of its own.
    pub fn take(self, own: bool) -> Option<pb::Entry> {
        let entry_type = [pb::EntryType::EntryNormal, pb::EntryType::EntryConfChangeV2]
            .into_iter()
            .find(|known| *known as u32 == self.entry_type)?;
        let data = if own { Bytes::copy_from_slice(&self.data) } else { self.data };
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
    fn of_raft(snapshot: &pb::Snapshot) -> Self {
        let meta = snapshot.get_metadata();
        let conf = Some(meta.get_conf_state().into());
        Self { conf, index: meta.index, term: meta.term, ..Self::default() }
    }

    fn into_raft(self) -> Option<pb::Snapshot> {
        let mut snapshot = pb::Snapshot::default();
        let meta = snapshot.mut_metadata();
        meta.index = self.index;
        meta.term = self.term;
        *meta.mut_conf_state() = self.conf?.take()?;
        (self.index > 0).then_some(snapshot)
    }
}

/// Types of messages that members send each other. Anything else would be a proposal past us or a local message.
pub(super) const TYPES: [pb::MessageType; 10] = [
    pb::MessageType::MsgAppend,
    pb::MessageType::MsgAppendResponse,
    pb::MessageType::MsgRequestVote,
    pb::MessageType::MsgRequestVoteResponse,
    pb::MessageType::MsgSnapshot,
    pb::MessageType::MsgHeartbeat,
    pb::MessageType::MsgHeartbeatResponse,
    pb::MessageType::MsgRequestPreVote,
    pb::MessageType::MsgRequestPreVoteResponse,
    pb::MessageType::MsgTimeoutNow,
];

/// What a member says to another.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Said {
    Raft(pb::Message),
    /// A part of the snapshot that `offer` (a `MsgSnapshot` without data) is about; the bytes are the frame's body.
    Part {
        offer: pb::Message,
        number: u64,
        last: bool,
        sum: u32,
    },
    /// All parts before `next` of the snapshot at `index` have come.
    Want {
        index: u64,
        next: u64,
    },
    /// I have come back: what have I promised you? `lost`: entries may be missing, my log ends at this index.
    Recall {
        last: u64,
        lost: bool,
    },
    Recalled(Recalled),
    /// All that this term's leader has is committed, and all members live: nobody needs to tick.
    Sleep {
        term: u64,
        commit: u64,
    },
}

/// Types of our own; raft's end at 18.
const WANT: u32 = 100;
const SLEEP: u32 = 101;
const RECALL: u32 = 102;
const RECALLED: u32 = 103;

fn head(group: GroupId, message: &pb::Message) -> WireMessage {
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
        group: group.0,
        ..WireMessage::default()
    }
}

pub(crate) fn encode(group: GroupId, from: NodeId, to: NodeId, said: &Said) -> Bytes {
    let plain = WireMessage { group: group.0, from: from.0, to: to.0, ..WireMessage::default() };
    let wire = match said {
        Said::Raft(message) => head(group, message),
        Said::Part { offer, number, last, sum } => {
            WireMessage { part: *number, last: *last, sum: *sum, ..head(group, offer) }
        }
        Said::Want { index, next } => WireMessage { msg_type: WANT, index: *index, part: *next, ..plain },
        Said::Sleep { term, commit } => WireMessage { msg_type: SLEEP, term: *term, commit: *commit, ..plain },
        Said::Recall { last, lost } => WireMessage { msg_type: RECALL, index: *last, reject: *lost, ..plain },
        Said::Recalled(Recalled { promised, last, led, in_doubt }) => {
            let Promised { term, entry: (log_term, index) } = *promised;
            let (commit_term, commit) = *last;
            let known = WireMessage { commit_term, commit, reject_hint: *led, reject: *in_doubt, ..plain };
            WireMessage { msg_type: RECALLED, term, log_term, index, ..known }
        }
    };
    wire.encode_to_vec().into()
}

/// Which group a frame is for.
pub fn group_of(head: &[u8]) -> Option<GroupId> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Only {
        #[prost(uint64, tag = "20")]
        group: u64,
    }
    Some(GroupId(Only::decode(head).ok()?.group))
}

/// From whom, to whom, and what, if its parts fit together. What raft would take as a broken invariant, and stop the
/// process over, must not get past here.
pub(crate) fn decode(head: Bytes) -> Option<(NodeId, NodeId, Said)> {
    let len = head.len();
    let wire = WireMessage::decode(head).ok()?;
    let ends = (NodeId(wire.from), NodeId(wire.to));
    let said = match wire.msg_type {
        WANT => Said::Want { index: wire.index, next: wire.part },
        SLEEP => Said::Sleep { term: wire.term, commit: wire.commit },
        RECALL => Said::Recall { last: wire.index, lost: wire.reject },
        RECALLED => Said::Recalled(Recalled {
            promised: Promised { term: wire.term, entry: (wire.log_term, wire.index) },
            last: (wire.commit_term, wire.commit),
            led: wire.reject_hint,
            in_doubt: wire.reject,
        }),
        _ => {
            let (number, last, sum) = (wire.part, wire.last, wire.sum);
            let message = message(wire, len)?;
            match message.get_msg_type() {
                pb::MessageType::MsgSnapshot => Said::Part { offer: message, number, last, sum },
                _ => Said::Raft(message),
            }
        }
    };
    Some((ends.0, ends.1, said))
}

/// `len`: of the buffer that it came in.
fn message(wire: WireMessage, len: usize) -> Option<pb::Message> {
    let msg_type = TYPES.into_iter().find(|known| *known as u32 == wire.msg_type)?;
    let in_row = (1..).zip(&wire.entries).all(|(n, entry)| wire.index.checked_add(n) == Some(entry.index));
    if !in_row || wire.term == 0 || (msg_type == pb::MessageType::MsgSnapshot) != wire.snapshot.is_some() {
        return None;
    }
    // Entries stay for long, and what is a slice of the buffer holds all of it: it may, if it is little else.
    let own = wire.entries.iter().map(|entry| entry.data.len()).sum::<usize>() < len / 2;
    let mut message = pb::Message {
        msg_type,
        to: wire.to,
        from: wire.from,
        term: wire.term,
        log_term: wire.log_term,
        index: wire.index,
        entries: wire.entries.into_iter().map(|entry| entry.take(own)).collect::<Option<Vec<_>>>()?.into(),
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
pub(crate) fn decode_conf_change(data: Bytes) -> Option<pb::ConfChangeV2> {
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

pub(crate) fn conf_step(change_type: pb::ConfChangeType, node: u64) -> pb::ConfChangeSingle {
    pb::ConfChangeSingle { change_type, node_id: node, ..pb::ConfChangeSingle::default() }
}

/// For the fuzz crate: whether these bytes are a message or a change of a group, after asserting that what is understood of
/// them is what would be sent again.
pub fn holds(bytes: Bytes) -> bool {
    let message = decode(bytes.clone());
    if let Some((from, to, said)) = &message {
        let group = group_of(&bytes).expect("it was just decoded");
        let again = decode(encode(group, *from, *to, said));
        assert_eq!(again.as_ref().map(|(.., said)| said), Some(said));
    }
    message.is_some() || decode_conf_change(bytes).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_are_most_of_a_message_stay_in_its_memory_and_little_ones_do_not_hold_it() {
        for (context, shares) in [(0, true), (50_000, false)] {
            let entry = pb::Entry { term: 2, index: 8, data: vec![7; 20_000].into(), ..pb::Entry::default() };
            let context = Bytes::from(vec![0; context]);
            let message = pb::Message { term: 2, index: 7, entries: vec![entry].into(), context, ..append() };
            let bytes = encode(GroupId(1), NodeId(1), NodeId(2), &Said::Raft(message));
            let Some((.., Said::Raft(message))) = decode(bytes.clone()) else { panic!("it was just encoded") };
            assert_eq!(message.entries[0].data, vec![7; 20_000]);
            assert_eq!(bytes.as_ptr_range().contains(&message.entries[0].data.as_ptr()), shares);
        }
    }

    fn append() -> pb::Message {
        pb::Message { msg_type: pb::MessageType::MsgAppend, from: 1, to: 2, ..pb::Message::default() }
    }
}
