//! Bytes of the `linear` class: batches of commands in log entries, calls to a group's leader and their answers.

use base::{Boot, GroupId, NodeId, Span};
use bytes::Bytes;
use class::{Bounds, quota};
use prost::Message as _;
use uuid::Uuid;

use super::functions;
use super::once::Once;
use super::op::{Condition, Ran, Reply, Step, Wrong};
use super::piece::{self, Piece};
use super::space::CommandId;
use super::split::Split;

/// A command on its way, with what makes it happen once.
#[derive(Clone, PartialEq, Debug)]
pub struct Command {
    pub id: CommandId,
    /// Its node needs no answers to commands below this number.
    pub floor: u64,
    pub conditions: Vec<Condition>,
    pub steps: Vec<Step>,
    /// How often its group has been split, as far as its node knew.
    pub splits: u32,
    /// What its caller calls it.
    pub once: Option<Once>,
}

impl Command {
    /// Can this have come of it: a reply for each step, or a condition that did not hold?
    pub fn is_answered_by(&self, ran: &Ran) -> bool {
        match ran {
            Ran::Done(replies) => replies.len() == self.steps.len(),
            Ran::Unmet => !self.conditions.is_empty(),
        }
    }

    /// About how many bytes it has on its way.
    pub fn bytes(&self) -> usize {
        command_bytes(&self.conditions, &self.steps)
    }
}

/// About how many bytes a command of these has on its way, rather more than less.
pub fn command_bytes(conditions: &[Condition], steps: &[Step]) -> usize {
    let step = |step: &Step| {
        step.key.len() + step.function.len() + 24 + step.args.iter().map(|arg| arg.len() + 6).sum::<usize>()
    };
    let conditions: usize = conditions.iter().map(|c| c.key.len() + 20).sum();
    conditions + steps.iter().map(step).sum::<usize>() + 96
}

/// One entry of a group's log.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Batch {
    /// The leader's reading of the group's clock, milliseconds.
    pub clock: u64,
    pub commands: Vec<Command>,
    /// After them.
    pub split: Option<Split>,
    /// What the group may hold; none below [`quota::LEVEL`].
    pub bounds: Bounds,
    /// Of a larger entry: then there are no commands here.
    pub piece: Option<Piece>,
    /// Pieces that are there are of an entry whose other ones will not come.
    pub drops_pieces: bool,
    /// Of one that was read: what a program must have to take it as it was meant ([`base::level`]), as its writer knew; 0: nothing new.
    pub level: u32,
}

/// What travels in frames of kind `LINEAR_CALL`.
#[derive(Clone, PartialEq, Debug)]
pub enum Call {
    /// Do this, if you lead. `reads`: it changes nothing and needs no entry.
    Do {
        group: GroupId,
        reads: bool,
        /// A member that knows that it is not older than this may answer, too.
        stale: Option<Span>,
        /// No other node was asked to do it: whoever asks believes [`Answer::TurnedAway`].
        sole: bool,
        command: Command,
    },
    Answer {
        group: GroupId,
        id: CommandId,
        answer: Answer,
    },
    /// The group's record of this epoch has me no more. If you lead it: does the group still have me?
    Leaves {
        group: GroupId,
        epoch: u64,
    },
    /// It has not, and my log ended here then (term, index).
    Left {
        group: GroupId,
        epoch: u64,
        end: (u64, u64),
    },
}

#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// With the index of the log that the answer knows of, if the leader gave it: whoever asked before, and has applied
    /// that much, has all that was there when it asked.
    Ran(Ran, u64),
    /// It may have happened before and its fate is forgotten.
    Forgotten,
    /// I do not lead; perhaps this one does. It was not done by me.
    Elsewhere { leader: Option<NodeId> },
    /// I lead and have no room. It was not done.
    Busy,
    /// I lead and have no room for what matters so little; at least this had better come. It was not done, and never will be by
    /// me. To who does not know this it is [`Answer::Busy`].
    TurnedAway { floor: u8 },
    /// What it is about is another group's since this one was split. It was not done, and never will be here.
    Moved,
    /// Because of the caller's id for it. It was not done.
    Refused(Wrong),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WireReply {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(sint64, tag = "2")]
    int: i64,
    #[prost(bytes = "bytes", tag = "3")]
    bytes: Bytes,
    #[prost(message, repeated, tag = "4")]
    list: Vec<WireReply>,
}

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
struct WireSplit {
    #[prost(uint64, tag = "1")]
    at: u64,
    #[prost(uint64, tag = "2")]
    child: u64,
    #[prost(uint32, tag = "3")]
    after: u32,
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
pub(super) struct WirePiece {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    number: u64,
    #[prost(uint64, tag = "3")]
    at: u64,
    #[prost(uint64, tag = "4")]
    whole: u64,
    #[prost(bytes = "bytes", tag = "5")]
    bytes: Bytes,
}

impl WirePiece {
    pub fn new(piece: &Piece) -> Self {
        let Piece { of: (term, number), at, whole, bytes } = piece;
        Self { term: *term, number: *number, at: *at as u64, whole: *whole as u64, bytes: bytes.clone() }
    }

    pub fn take(self) -> Option<Piece> {
        let (at, whole) = (usize::try_from(self.at).ok()?, usize::try_from(self.whole).ok()?);
        Some(Piece { of: (self.term, self.number), at, whole, bytes: Bytes::copy_from_slice(&self.bytes) })
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WireRan {
    /// 0: done, 1: a condition did not hold.
    #[prost(uint32, tag = "1")]
    unmet: u32,
    #[prost(message, repeated, tag = "2")]
    replies: Vec<WireReply>,
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
struct WireLeave {
    #[prost(uint64, tag = "1")]
    epoch: u64,
    /// It is an answer.
    #[prost(bool, tag = "2")]
    left: bool,
    #[prost(uint64, tag = "3")]
    term: u64,
    #[prost(uint64, tag = "4")]
    index: u64,
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

/// What is kept of a buffer is copied, unless it has so many bytes and is most of it.
const SHARED_BYTES_MIN: usize = 64 << 10;

const NIL: u32 = 0;
const INT: u32 = 1;
const BYTES: u32 = 2;
const LIST: u32 = 3;
const WRONG: u32 = 4;

/// Deeper replies make no sense.
const DEPTH_MAX: usize = 4;

fn code(wrong: Wrong) -> u32 {
    Wrong::ALL.iter().position(|known| *known == wrong).expect("all are listed") as u32
}

fn of_code(code: impl TryInto<usize>) -> Option<Wrong> {
    Wrong::ALL.get(code.try_into().ok()?).copied()
}

impl WireReply {
    fn new(reply: &Reply) -> Self {
        let mut wire = Self::default();
        match reply {
            Reply::Nil => (),
            Reply::Int(int) => (wire.kind, wire.int) = (INT, *int),
            Reply::Bytes(bytes) => (wire.kind, wire.bytes) = (BYTES, bytes.clone()),
            Reply::List(list) => (wire.kind, wire.list) = (LIST, list.iter().map(Self::new).collect()),
            Reply::Wrong(wrong) => {
                (wire.kind, wire.int) = (WRONG, code(*wrong).into());
            }
        }
        wire
    }

    fn take(self, depth: usize) -> Option<Reply> {
        Some(match self.kind {
            NIL => Reply::Nil,
            INT => Reply::Int(self.int),
            BYTES => Reply::Bytes(self.bytes),
            LIST if depth < DEPTH_MAX => {
                Reply::List(self.list.into_iter().map(|reply| reply.take(depth + 1)).collect::<Option<_>>()?)
            }
            WRONG => Reply::Wrong(of_code(self.int)?),
            _ => return None,
        })
    }
}

impl WireRan {
    pub fn new(ran: &Ran) -> Self {
        match ran {
            Ran::Done(replies) => Self { unmet: 0, replies: replies.iter().map(WireReply::new).collect() },
            Ran::Unmet => Self { unmet: 1, replies: Vec::new() },
        }
    }

    pub fn take(self) -> Option<Ran> {
        match self.unmet {
            0 => Some(Ran::Done(self.replies.into_iter().map(|reply| reply.take(0)).collect::<Option<_>>()?)),
            1 => Some(Ran::Unmet),
            _ => None,
        }
    }
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

    fn id(&self) -> CommandId {
        CommandId { node: NodeId(self.node), boot: Boot(self.boot), seq: self.seq }
    }

    /// `len`: of the buffer that it came in.
    fn take(self, len: usize) -> Option<Command> {
        let own = |bytes: Bytes| own(bytes, len);
        let step = |s: WireStep| Step {
            key: own(s.key),
            function: std::str::from_utf8(&s.function).ok().and_then(functions::find).map_or("", |f| f.name),
            args: s.args.into_iter().map(own).collect(),
        };
        let once = match &self.once[..] {
            [] => None,
            id => Some(Once { id: Uuid::from_slice(id).ok()?, of: self.once_of }),
        };
        Some(Command {
            id: self.id(),
            floor: self.floor,
            conditions: self.conditions.into_iter().map(|c| Condition { key: c.key, version: c.version }).collect(),
            steps: self.steps.into_iter().map(step).collect(),
            splits: self.splits,
            once,
        })
    }
}

/// What is done, as the same bytes each time.
pub fn encode_steps(conditions: &[Condition], steps: &[Step]) -> Vec<u8> {
    WireCommand::of_steps(conditions, steps).encode_to_vec()
}

/// A copy: what is kept would else hold the whole buffer that it came in. It may, if it is most of it. Of words that say how, most are
/// these.
fn own(bytes: Bytes, len: usize) -> Bytes {
    match &bytes[..] {
        b"" => Bytes::new(),
        b"always" => Bytes::from_static(b"always"),
        b"none" => Bytes::from_static(b"none"),
        large if large.len() >= SHARED_BYTES_MIN && large.len() > len / 2 => bytes,
        _ => Bytes::copy_from_slice(&bytes),
    }
}

pub fn encode_batch(batch: &Batch) -> Vec<u8> {
    let split = batch.split.map(|Split { at, child, after }| WireSplit { at, child: child.0, after });
    let levels = batch.commands.iter().filter_map(|command| functions::level(&command.steps));
    let levels = levels.chain((!batch.bounds.is_none()).then_some(quota::LEVEL));
    let levels = levels.chain((batch.piece.is_some() || batch.drops_pieces).then_some(piece::LEVEL));
    let level = levels.max().filter(|level| *level > 1).unwrap_or(0);
    let commands = batch.commands.iter().map(WireCommand::new).collect();
    let Bounds { bytes: bytes_max, keys: keys_max } = batch.bounds;
    let piece = batch.piece.as_ref().map(WirePiece::new);
    let drops_pieces = batch.drops_pieces;
    WireBatch { clock: batch.clock, commands, split, level, bytes_max, keys_max, piece, drops_pieces }.encode_to_vec()
}

pub fn decode_batch(data: Bytes) -> Option<Batch> {
    let len = data.len();
    let wire = WireBatch::decode(data).ok()?;
    let split = wire.split.map(|WireSplit { at, child, after }| Split { at, child: GroupId(child), after });
    let commands = wire.commands.into_iter().map(|command| command.take(len)).collect::<Option<_>>()?;
    let piece = match wire.piece {
        Some(piece) => Some(piece.take()?),
        None => None,
    };
    let bounds = Bounds { bytes: wire.bytes_max, keys: wire.keys_max };
    Some(Batch {
        clock: wire.clock,
        commands,
        split,
        bounds,
        piece,
        drops_pieces: wire.drops_pieces,
        level: wire.level,
    })
}

/// What was said, in a step that says it again.
pub fn encode_ran(ran: &Ran) -> Bytes {
    WireRan::new(ran).encode_to_vec().into()
}

pub fn decode_ran(data: Bytes) -> Option<Ran> {
    WireRan::decode(data).ok()?.take()
}

/// How many bytes a reply has in an answer.
pub fn reply_bytes(reply: &Reply) -> usize {
    WireReply::new(reply).encoded_len()
}

pub fn encode_call(call: &Call) -> Bytes {
    let wire = match call {
        Call::Do { group, reads, stale, sole, command } => {
            let (stale, command) = (stale.map_or(0, |stale| stale.0), Some(WireCommand::new(command)));
            WireCall { group: group.0, reads: *reads, command, stale, sole: *sole, ..WireCall::default() }
        }
        Call::Answer { group, id, answer } => {
            let wire = match answer {
                Answer::Ran(ran, index) => {
                    WireAnswer { kind: 1, ran: Some(WireRan::new(ran)), index: *index, ..WireAnswer::default() }
                }
                Answer::Forgotten => WireAnswer { kind: 2, ..WireAnswer::default() },
                Answer::Elsewhere { leader } => {
                    WireAnswer { kind: 3, leader: leader.map_or(0, |id| id.0), ..WireAnswer::default() }
                }
                Answer::Busy => WireAnswer { kind: 4, ..WireAnswer::default() },
                Answer::TurnedAway { floor } => {
                    WireAnswer { kind: 4, away: u32::from(*floor) + 1, ..WireAnswer::default() }
                }
                Answer::Moved => WireAnswer { kind: 5, ..WireAnswer::default() },
                Answer::Refused(wrong) => WireAnswer { kind: 6, wrong: code(*wrong), ..WireAnswer::default() },
            };
            let (command, answer) = (Some(WireCommand::of_id(*id)), Some(wire));
            WireCall { group: group.0, command, answer, ..WireCall::default() }
        }
        Call::Leaves { group, epoch } => {
            let leave = Some(WireLeave { epoch: *epoch, ..WireLeave::default() });
            WireCall { group: group.0, leave, ..WireCall::default() }
        }
        Call::Left { group, epoch, end: (term, index) } => {
            let leave = Some(WireLeave { epoch: *epoch, left: true, term: *term, index: *index });
            WireCall { group: group.0, leave, ..WireCall::default() }
        }
    };
    wire.encode_to_vec().into()
}

pub fn decode_call(head: Bytes) -> Option<Call> {
    let len = head.len();
    let WireCall { group, reads, command, answer, stale, leave, sole } = WireCall::decode(head).ok()?;
    let group = GroupId(group);
    if let Some(WireLeave { epoch, left, term, index }) = leave {
        let end = (term, index);
        return Some(if left { Call::Left { group, epoch, end } } else { Call::Leaves { group, epoch } });
    }
    let command = command?;
    let stale = (stale != 0).then_some(Span(stale));
    let Some(answer) = answer else { return Some(Call::Do { group, reads, stale, sole, command: command.take(len)? }) };
    let answer = match answer.kind {
        1 => Answer::Ran(answer.ran?.take()?, answer.index),
        2 => Answer::Forgotten,
        3 => Answer::Elsewhere { leader: (answer.leader != 0).then_some(NodeId(answer.leader)) },
        4 => match answer.away.checked_sub(1) {
            None => Answer::Busy,
            Some(floor) => Answer::TurnedAway { floor: u8::try_from(floor).ok()? },
        },
        5 => Answer::Moved,
        6 => Answer::Refused(of_code(answer.wrong)?),
        _ => return None,
    };
    Some(Call::Answer { group, id: command.id(), answer })
}
