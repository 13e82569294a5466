//! What released versions have written of a group's messages, of cards and of the root group is read as it was meant.

use base::{GroupId, NodeId};
use bytes::Bytes;
use raft::eraftpb as pb;

use crate::Card;
use crate::card::tests::card;
use crate::kept::{Sample, frames};
use crate::raft::recall::{Promised, Recalled};
use crate::raft::wire::{Said, decode, encode, group_of};

fn raft_samples() -> Vec<(&'static str, Said)> {
    let entry = |index: u64, data: &'static [u8]| pb::Entry {
        term: 3,
        index,
        data: Bytes::from_static(data),
        ..pb::Entry::default()
    };
    let plain = |msg_type| pb::Message { msg_type, to: 1, from: 2, term: 4, ..pb::Message::default() };
    let change = pb::Entry { entry_type: pb::EntryType::EntryConfChangeV2, ..entry(7, b"\x12\x02\x10\x05") };
    let append = pb::Message {
        log_term: 3,
        index: 5,
        commit: 4,
        entries: vec![entry(6, b"one"), change].into(),
        ..plain(pb::MessageType::MsgAppend)
    };
    let mut offer = pb::Message { ..plain(pb::MessageType::MsgSnapshot) };
    let meta = offer.mut_snapshot().mut_metadata();
    (meta.index, meta.term) = (9, 3);
    *meta.mut_conf_state() = pb::ConfState { voters: vec![1, 2], learners: vec![3], ..pb::ConfState::default() };
    let vote = pb::Message { log_term: 3, index: 9, ..plain(pb::MessageType::MsgRequestVote) };
    let refused = pb::Message { reject: true, reject_hint: 8, index: 9, ..plain(pb::MessageType::MsgAppendResponse) };
    let beat = pb::Message { commit: 9, context: Bytes::from_static(b"read"), ..plain(pb::MessageType::MsgHeartbeat) };
    let promised = Promised { term: 4, entry: (3, 9) };
    vec![
        ("append", Said::Raft(append)),
        ("append-response", Said::Raft(refused)),
        ("vote", Said::Raft(vote)),
        ("vote-response", Said::Raft(plain(pb::MessageType::MsgRequestVoteResponse))),
        ("pre-vote", Said::Raft(plain(pb::MessageType::MsgRequestPreVote))),
        ("pre-vote-response", Said::Raft(plain(pb::MessageType::MsgRequestPreVoteResponse))),
        ("heartbeat", Said::Raft(beat)),
        ("heartbeat-response", Said::Raft(plain(pb::MessageType::MsgHeartbeatResponse))),
        ("timeout-now", Said::Raft(plain(pb::MessageType::MsgTimeoutNow))),
        ("part", Said::Part { offer, number: 2, last: true, sum: 0x0102_0304 }),
        ("want", Said::Want { index: 9, next: 3 }),
        ("recall", Said::Recall { last: 9, lost: true }),
        ("recalled", Said::Recalled(Recalled { promised, last: (3, 10), led: 2, in_doubt: true })),
        ("sleep", Said::Sleep { term: 4, commit: 9 }),
    ]
}

#[test]
fn fixtures_of_members_of_a_group() {
    let (group, from, to) = (GroupId(7), NodeId(2), NodeId(1));
    let sample = |(name, said)| (name, encode(group, from, to, &said).to_vec(), (group, from, to, said));
    let samples: Vec<Sample<_>> = raft_samples().into_iter().map(sample).collect();
    frames("raft", &samples, |bytes| {
        let (from, to, said) = decode(bytes.clone())?;
        Some((group_of(&bytes)?, from, to, said))
    });
}

#[test]
fn fixtures_of_cards() {
    let sample: Sample<Card> = ("card", card(1, 2).encode().to_vec(), card(1, 2));
    frames("card", &[sample], |bytes| Card::decode(&bytes));
}
