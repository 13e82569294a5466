//! The messages whose bytes `quick` makes and reads by hand: other programs, and older ones, have them so.

use base::Boot;
use uuid::Uuid;

use super::quick::Message as _;
use super::*;
use crate::op::Step;

#[derive(Clone, PartialEq, prost::Message)]
struct WireCondition {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(uint64, tag = "2")]
    version: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireStep {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    /// A name, as text.
    #[prost(bytes = "bytes", tag = "2")]
    function: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    args: Vec<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireCommand {
    #[prost(uint64, tag = "1")]
    node: u64,
    #[prost(uint64, tag = "2")]
    boot: u64,
    #[prost(uint64, tag = "3")]
    seq: u64,
    #[prost(uint64, tag = "4")]
    floor: u64,
    #[prost(message, repeated, tag = "5")]
    conditions: Vec<WireCondition>,
    #[prost(message, repeated, tag = "6")]
    steps: Vec<WireStep>,
    #[prost(uint32, tag = "7")]
    splits: u32,
    /// 16 bytes; none: the caller gave none.
    #[prost(bytes = "bytes", tag = "8")]
    once: Bytes,
    #[prost(fixed64, tag = "9")]
    once_of: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireBatch {
    #[prost(uint64, tag = "1")]
    clock: u64,
    #[prost(message, repeated, tag = "2")]
    commands: Vec<WireCommand>,
    #[prost(message, optional, tag = "3")]
    split: Option<WireSplit>,
    /// Not written if it is 1.
    #[prost(uint32, tag = "4")]
    level: u32,
    #[prost(uint64, optional, tag = "5")]
    bytes_max: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    keys_max: Option<u64>,
    #[prost(message, optional, tag = "7")]
    piece: Option<WirePiece>,
    #[prost(bool, tag = "8")]
    drops_pieces: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireAnswer {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(message, optional, tag = "2")]
    ran: Option<WireRan>,
    #[prost(uint64, tag = "3")]
    leader: u64,
    #[prost(uint64, tag = "4")]
    index: u64,
    /// A code of [`Wrong`].
    #[prost(uint32, tag = "5")]
    wrong: u32,
    /// Of what is turned away: the floor, and one more.
    #[prost(uint32, tag = "6")]
    away: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireCall {
    #[prost(uint64, tag = "1")]
    group: u64,
    #[prost(bool, tag = "2")]
    reads: bool,
    /// Of a call: all of it. Of an answer: its id.
    #[prost(message, optional, tag = "3")]
    command: Option<WireCommand>,
    #[prost(message, optional, tag = "4")]
    answer: Option<WireAnswer>,
    /// Microseconds; 0: none.
    #[prost(uint64, tag = "5")]
    stale: u64,
    /// Then nothing else but the group is of interest.
    #[prost(message, optional, tag = "6")]
    leave: Option<WireLeave>,
    #[prost(bool, tag = "7")]
    sole: bool,
}

impl WireCommand {
    fn of_id(id: CommandId) -> Self {
        Self { node: id.node.0, boot: id.boot.0, seq: id.seq, ..Self::default() }
    }

    fn of_steps(conditions: &[Condition], steps: &[Step]) -> Self {
        let condition = |c: &Condition| WireCondition { key: c.key.clone(), version: c.version };
        let step = |s: &Step| {
            let function = Bytes::from_static(s.function.as_bytes());
            WireStep { key: s.key.clone(), function, args: s.args.clone() }
        };
        let (conditions, steps) = (conditions.iter().map(condition).collect(), steps.iter().map(step).collect());
        Self { conditions, steps, ..Self::default() }
    }

    fn new(command: &Command) -> Self {
        let CommandId { node, boot, seq } = command.id;
        Self {
            node: node.0,
            boot: boot.0,
            seq,
            floor: command.floor,
            splits: command.splits,
            once: command.once.map_or_else(Bytes::new, |once| Bytes::copy_from_slice(once.id.as_bytes())),
            once_of: command.once.map_or(0, |once| once.of),
            ..Self::of_steps(&command.conditions, &command.steps)
        }
    }
}

fn ran(ran: &Ran) -> WireAnswer {
    WireAnswer { kind: 1, ran: Some(WireRan::new(ran)), index: 7, ..WireAnswer::default() }
}

fn some(rng: &mut base::Rng, most: u64) -> Bytes {
    let len = rng.below(most);
    Bytes::from((0..len).map(|_| rng.below(256) as u8).collect::<Vec<u8>>())
}

fn reply(rng: &mut base::Rng, depth: u64) -> Reply {
    match rng.below(4 + depth) {
        0 => Reply::Nil,
        1 => Reply::Int(rng.below(u64::MAX) as i64 >> rng.below(64)),
        2 => Reply::Bytes(some(rng, 300)),
        3 => Reply::Wrong(Wrong::ALL[rng.below(Wrong::ALL.len() as u64) as usize]),
        _ => Reply::List((0..rng.below(5)).map(|_| reply(rng, depth - 1)).collect()),
    }
}

fn command(rng: &mut base::Rng) -> Command {
    let number = |rng: &mut base::Rng| rng.below(u64::MAX) >> rng.below(64);
    let step = |rng: &mut base::Rng| {
        let names = ["get", "put", "hash.set", "sorted.add"];
        let args = (0..rng.below(4)).map(|_| some(rng, 200)).collect();
        Step::new(some(rng, 40), names[rng.below(4) as usize], args)
    };
    let condition = |rng: &mut base::Rng| Condition { key: some(rng, 20), version: number(rng) };
    let once = (rng.below(2) == 0).then(|| Once { id: Uuid::from_u128(number(rng).into()), of: rng.below(3) });
    Command {
        id: CommandId { node: NodeId(number(rng)), boot: Boot(number(rng)), seq: number(rng) },
        floor: number(rng),
        conditions: (0..rng.below(3)).map(|_| condition(rng)).collect(),
        steps: (0..rng.below(200)).map(|_| step(rng)).collect(),
        splits: number(rng) as u32,
        once,
    }
}

#[test]
fn what_is_made_by_hand_has_the_bytes_of_the_messages() {
    let mut rng = base::Rng::new(5);
    for _ in 0..200 {
        let command = command(&mut rng);
        let (group, reads, sole) = (GroupId(rng.below(1 << 40)), rng.below(2) == 0, rng.below(2) == 0);
        let stale = (rng.below(2) == 0).then(|| Span(1 + rng.below(1 << 30)));
        let wire = WireCall {
            group: group.0,
            reads,
            sole,
            stale: stale.map_or(0, |stale| stale.0),
            command: Some(WireCommand::new(&command)),
            ..WireCall::default()
        };
        let call = Call::Do { group, reads, stale, sole, command: command.clone() };
        assert_eq!(encode_call(&call), wire.encode_to_vec());
        assert_eq!(decode_call(encode_call(&call)), Some(call));
        assert_eq!(
            encode_steps(&command.conditions, &command.steps),
            WireCommand::of_steps(&command.conditions, &command.steps).encode_to_vec()
        );
        let said = Ran::Done((0..rng.below(6)).map(|_| reply(&mut rng, 3)).collect());
        let (id, answer) = (Some(WireCommand::of_id(command.id)), Some(ran(&said)));
        let wire = WireCall { group: group.0, command: id, answer, ..WireCall::default() };
        let call = Call::Answer { group, id: command.id, answer: Answer::Ran(said.clone(), 7) };
        assert_eq!(encode_call(&call), wire.encode_to_vec());
        assert_eq!(decode_call(encode_call(&call)), Some(call));
        assert_eq!(quick::bytes_of(&said), WireRan::new(&said).encoded_len());
        let wire = WireBatch {
            clock: rng.below(1 << 50),
            commands: vec![WireCommand::new(&command); rng.below(3) as usize],
            split: (rng.below(2) == 0).then_some(WireSplit { at: 1 << 63, child: 9, after: 2 }),
            level: 0,
            bytes_max: None,
            keys_max: (rng.below(2) == 0).then_some(8),
            piece: None,
            drops_pieces: false,
        };
        let batch = decode_batch(wire.encode_to_vec().into()).expect("it is one");
        assert_eq!((batch.clock, batch.commands.len()), (wire.clock, wire.commands.len()));
        assert!(batch.commands.iter().all(|other| *other == command));
        let level = functions::level(&command.steps).filter(|_| !batch.commands.is_empty()).unwrap_or(1);
        let level = level.max(if batch.bounds.is_none() { 1 } else { quota::LEVEL });
        let wire = WireBatch { level: if level > 1 { level } else { 0 }, ..wire };
        assert_eq!(encode_batch(&batch), wire.encode_to_vec());
    }
}

#[test]
fn what_is_cut_or_spoiled_is_no_command_and_does_no_harm() {
    let mut rng = base::Rng::new(6);
    for _ in 0..20 {
        let command = Command { steps: command(&mut rng).steps.into_iter().take(3).collect(), ..command(&mut rng) };
        let mut whole = Vec::new();
        command.write(&mut whole);
        let read = |bytes: &[u8]| quick::read_command(bytes, &Bytes::copy_from_slice);
        let derived = |bytes: &[u8]| WireCommand::decode(bytes).is_ok();
        for at in 0..whole.len().min(400) {
            assert_eq!(read(&whole[..at]).is_some(), derived(&whole[..at]), "cut at {at}");
            let mut spoiled = whole.clone();
            spoiled[at] = rng.below(256) as u8;
            // What has groups in it, of which nobody knows any, is none here.
            assert!(read(&spoiled).is_none() || derived(&spoiled), "spoiled at {at}");
        }
    }
}
