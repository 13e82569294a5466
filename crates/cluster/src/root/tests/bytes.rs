//! Bytes of the root group, on the wire and on disk: tags are frozen, damage is an error, random bytes never panic.

use base::{Boot, GroupId, NodeId, Rng, kind};
use bytes::Bytes;
use proptest::prelude::*;
use raft::eraftpb as pb;

use super::super::declared::{ChangeId, State, Verdict};
use super::super::wire::{self, Call};
use super::super::{Input, Root, StartError};
use super::net::{Net, clock, put};
use crate::raft::recall::{Promised, Recalled};
use crate::raft::record;
use crate::raft::wire::{Said, decode, decode_conf_change, encode};

fn id() -> ChangeId {
    ChangeId { node: NodeId(1), boot: Boot(2), seq: 3 }
}

#[test]
fn a_change_and_a_call_have_these_bytes() {
    let change = super::Change { expect: Some(4), removes: vec![("k".into(), "old".into())], ..put("a", "1") };
    let bytes = wire::encode_change(id(), &change);
    assert_eq!(
        bytes,
        b"\x0a\x06\x08\x01\x10\x02\x18\x03\x10\x04\x1a\x0c\x0a\x04test\x12\x01a\x1a\x011\x22\x08\x0a\x01k\x12\x03old"
    );
    assert_eq!(wire::decode_change(Bytes::from(bytes.clone())), Some((id(), change.clone())));
    let call = wire::encode_call(&Call::Propose(id(), change.clone()));
    assert_eq!(call[..2], [0x0a, bytes.len() as u8]);
    assert_eq!(wire::decode_call(call), Some(Call::Propose(id(), change)));
    for (verdict, golden) in [
        (None, &b"\x12\x08\x0a\x06\x08\x01\x10\x02\x18\x03"[..]),
        (Some(Verdict::Applied(9)), b"\x12\x0c\x0a\x06\x08\x01\x10\x02\x18\x03\x10\x01\x18\x09"),
        (Some(Verdict::Conflict(9)), b"\x12\x0c\x0a\x06\x08\x01\x10\x02\x18\x03\x10\x02\x18\x09"),
        (Some(Verdict::TooLarge), b"\x12\x0a\x0a\x06\x08\x01\x10\x02\x18\x03\x10\x03"),
        (Some(Verdict::Forgotten), b"\x12\x0a\x0a\x06\x08\x01\x10\x02\x18\x03\x10\x04"),
    ] {
        let answer = Call::Verdict(id(), verdict);
        assert_eq!(wire::encode_call(&answer), golden);
        assert_eq!(wire::decode_call(Bytes::from_static(golden)), Some(answer));
    }
}

#[test]
fn a_member_s_message_has_these_bytes() {
    let entry = pb::Entry { term: 3, index: 6, data: Bytes::from_static(b"d"), ..pb::Entry::default() };
    let message = pb::Message {
        msg_type: pb::MessageType::MsgAppend,
        to: 1,
        from: 2,
        term: 3,
        log_term: 4,
        index: 5,
        commit: 6,
        entries: vec![entry.clone()].into(),
        ..pb::Message::default()
    };
    let golden = b"\x08\x03\x10\x01\x18\x02\x20\x03\x28\x04\x30\x05\x3a\x07\x10\x03\x18\x06\x22\x01d\x40\x06";
    let said = Said::Raft(message);
    let (from, to) = (NodeId(2), NodeId(1));
    assert_eq!(encode(GroupId::ROOT, from, to, &said), &golden[..]);
    assert_eq!(decode(Bytes::from_static(golden)), Some((from, to, said.clone())));
    // A newer minor version's field is skipped.
    let newer = [&golden[..], b"\xfa\x01\x03new"].concat();
    assert_eq!(decode(newer.into()), Some((from, to, said)));
}

#[test]
fn what_a_member_recalls_has_these_bytes() {
    let promised = Promised { term: 3, entry: (2, 9) };
    for (said, golden) in [
        (Said::Recall { last: 0, lost: false }, &b"\x08\x66\x10\x01\x18\x02\xa0\x01\x07"[..]),
        (
            Said::Recalled(Recalled { promised, ..Recalled::default() }),
            b"\x08\x67\x10\x01\x18\x02\x20\x03\x28\x02\x30\x09\xa0\x01\x07",
        ),
    ] {
        let (from, to) = (NodeId(2), NodeId(1));
        assert_eq!(encode(GroupId(7), from, to, &said), golden);
        assert_eq!(decode(Bytes::from_static(golden)), Some((from, to, said)));
    }
}

#[test]
fn a_step_on_disk_has_these_bytes() {
    let entry = pb::Entry { term: 3, index: 6, data: Bytes::from_static(b"d"), ..pb::Entry::default() };
    let hard = pb::HardState { term: 3, vote: 2, commit: 1, ..pb::HardState::default() };
    let golden = b"\x01\x02\x0a\x06\x08\x03\x10\x02\x18\x01\x12\x07\x10\x03\x18\x06\x22\x01d";
    assert_eq!(Bytes::from(record::step(Some(&hard), &[entry]).unwrap()), &golden[..]);
    assert!(record::step(None, &[]).is_none());
}

#[test]
fn raft_reads_a_change_of_the_group_as_we_do() {
    let mut net = Net::new(1, 1);
    net.until(base::Span::secs(1), |net| net.root(1).is_leader());
    net.add(2);
    net.until(base::Span::secs(1), |net| net.root(2).voters() == [NodeId(1)]);
    // Bytes as rust-protobuf writes them: transition 0, one change, AddLearnerNode 2, node 2.
    let change = decode_conf_change(Bytes::from_static(b"\x12\x04\x08\x02\x10\x02")).unwrap();
    assert_eq!(change.changes.len(), 1);
    assert_eq!((change.changes[0].change_type, change.changes[0].node_id), (pb::ConfChangeType::AddLearnerNode, 2));
    assert!(decode_conf_change(Bytes::new()).unwrap().changes.is_empty(), "raft's own way to leave a joint group");
}

#[test]
fn a_snapshot_keeps_all_of_the_state() {
    let mut state = State::default();
    for seq in 1..=1_100 {
        state.apply(ChangeId { seq, ..id() }, put(&format!("n{}", seq % 7), "1"));
    }
    state.apply(ChangeId { seq: 2_000, ..id() }, super::Change { expect: Some(1), ..put("a", "1") });
    assert!(!state.floors.is_empty());
    assert_eq!(wire::WireState::parse(wire::WireState::bytes(&state)), Some(state));
}

#[test]
fn messages_that_raft_would_stop_the_process_over_are_refused() {
    let mut net = Net::new(2, 3);
    net.until(base::Span::secs(5), |net| net.leader().is_some() && net.root(2).voters().len() == 3);
    let leader = net.leader().unwrap();
    let follower = leader % 3 + 1;
    for (msg_type, to, from) in
        [(pb::MessageType::MsgHeartbeat, follower, leader), (pb::MessageType::MsgAppendResponse, leader, follower)]
    {
        let (term, commit, index) = (1_000, 1_000, 1_000);
        let message = pb::Message { msg_type, to, from, term, commit, index, ..pb::Message::default() };
        let root = net.nodes.get_mut(&to).unwrap().root.as_mut().unwrap();
        let input = |from| Input::Frame {
            from: NodeId(from),
            kind: kind::ROOT,
            head: encode(GroupId::ROOT, NodeId(message.from), NodeId(message.to), &Said::Raft(message.clone())),
            body: Bytes::new(),
        };
        for from in [from, 77] {
            let mut out = Vec::new();
            root.handle(clock(net.now), input(from), &mut out);
            // Of a leader it may be true, and then it is the disk that is wrong.
            use super::super::Output::{Bad, Distrust};
            assert!(matches!(&out[..], [Bad { .. }] | [Distrust(_), Bad { .. }]), "{out:?}");
        }
    }
}

fn start(log: Vec<Bytes>) -> Result<(), StartError> {
    Root::new(NodeId(1), Boot(9), Rng::new(1)).start(clock(base::Time(1)), log, None, &mut Vec::new())
}

#[test]
fn a_log_that_cannot_be_believed_is_an_error_that_names_the_record() {
    let mut net = Net::new(3, 1);
    for n in 0..5 {
        net.apply(1, base::Span::secs(1), put(&format!("n{n}"), "1"));
    }
    let log = net.nodes[&1].disk.clone();
    assert!(start(log.clone()).is_ok());
    let check = |change: &dyn Fn(&mut Vec<Bytes>), record: usize, says: &str| {
        let mut log = log.clone();
        change(&mut log);
        match start(log) {
            Err(StartError::Log { record: n, why }) => assert!(n == record && why.contains(says), "{n}: {why}"),
            other => panic!("{says}: {other:?}"),
        }
    };
    check(&|log| log[1] = Bytes::from_static(b"\x02\x01"), 1, "has format 2");
    check(&|log| log[1] = Bytes::from_static(b"\x01\x09"), 1, "has type 9");
    check(&|log| log[1] = Bytes::from_static(b"\x01"), 1, "cut short");
    check(&|log| log[2] = Bytes::from_static(b"\x01\x02\xff\xff"), 2, "damaged");
    check(&|log| log[1] = Bytes::from_static(b"\x01\x02\x0a\x03\x18\xe7\x07"), 1, "commits entry 999");
    check(&|log| log[1] = Bytes::from_static(b"\x01\x02\x12\x04\x08\x01\x10\x01"), 1, "of a type");
    check(&|log| log[1] = log[0].clone(), 1, "does not come first");
    // A step with entries is lost in the middle: the next one leaves a gap.
    let has_entries = |n: &usize| log[*n].windows(6).any(|bytes| bytes == b"\x0a\x04test");
    let steps: Vec<_> = (1..log.len()).filter(has_entries).collect();
    check(&|log| drop(log.remove(steps[1])), steps[1], "commits entry");
}

#[test]
fn any_torn_end_of_a_log_starts() {
    let mut net = Net::new(4, 3);
    net.until(base::Span::secs(5), |net| net.leader().is_some() && net.root(2).voters().len() == 3);
    for n in 0..10 {
        net.apply(n % 3 + 1, base::Span::secs(1), put(&format!("n{n}"), "1"));
    }
    for id in 1..=3 {
        let log = &net.nodes[&id].disk;
        assert!(log.len() > 10);
        for cut in 0..log.len() {
            assert_eq!(start(log[..cut].to_vec()), Ok(()), "node {id} cut at {cut}");
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), n in 0u8..5) {
        let head = Bytes::from(bytes.clone());
        let _ = decode(head.clone());
        let _ = wire::decode_change(head.clone());
        let _ = decode_conf_change(head.clone());
        let _ = wire::WireState::parse(head.clone());
        let mut root = Root::new(NodeId(1), Boot(1), Rng::new(1));
        let mut out = Vec::new();
        root.start(clock(base::Time(1)), Vec::new(), Some(put("found", "1")), &mut out).unwrap();
        for kind in [kind::ROOT, kind::ROOT_CALL] {
            let input = Input::Frame { from: NodeId(2), kind, head: head.clone(), body: Bytes::new() };
            root.handle(clock(base::Time(2)), input, &mut out);
        }
        let _ = start(vec![[&[1, n], &bytes[..]].concat().into()]);
    }

    #[test]
    fn damaged_messages_never_panic(at in 0usize..200, bit in 0u8..8, seed in 0u64..4) {
        let mut net = Net::new(seed, 3);
        net.run(base::Span::millis(20 + seed * 30));
        let data = wire::encode_change(id(), &put("a", "1")).into();
        let message = pb::Message {
            msg_type: pb::MessageType::MsgAppend,
            to: 1,
            from: 2,
            term: 9,
            index: 1,
            commit: 1,
            entries: vec![pb::Entry { term: 3, index: 2, data, ..pb::Entry::default() }].into(),
            ..pb::Message::default()
        };
        let mut bytes = encode(GroupId::ROOT, NodeId(2), NodeId(1), &Said::Raft(message)).to_vec();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let root = net.nodes.get_mut(&1).unwrap().root.as_mut().unwrap();
        let input = Input::Frame { from: NodeId(2), kind: kind::ROOT, head: bytes.into(), body: Bytes::new() };
        root.handle(clock(net.now), input, &mut Vec::new());
    }
}

#[test]
fn fixtures_are_read() {
    use super::super::declared::Declared;
    use super::super::wire::WireState;
    use crate::kept::frames;
    let change = super::Change { expect: Some(4), removes: vec![("k".into(), "old".into())], ..put("a", "1") };
    let calls = [
        ("propose", Call::Propose(id(), change.clone())),
        ("not-taken", Call::Verdict(id(), None)),
        ("applied", Call::Verdict(id(), Some(Verdict::Applied(9)))),
        ("conflict", Call::Verdict(id(), Some(Verdict::Conflict(9)))),
        ("too-large", Call::Verdict(id(), Some(Verdict::TooLarge))),
        ("forgotten", Call::Verdict(id(), Some(Verdict::Forgotten))),
    ];
    let calls = calls.map(|(name, call)| (name, wire::encode_call(&call).to_vec(), call));
    frames("root-call", &calls, wire::decode_call);
    let bytes = wire::encode_change(id(), &change);
    frames("root-entry", &[("change", bytes, (id(), change))], wire::decode_change);
    let state = State {
        declared: Declared { version: 9, records: [(("service".into(), "shop".into()), "toml".into())].into() },
        remembered: [(id(), Verdict::Applied(8))].into(),
        floors: [(NodeId(1), (Boot(2), 3))].into(),
    };
    frames("root-snapshot", &[("state", WireState::bytes(&state).to_vec(), state)], WireState::parse);
}
