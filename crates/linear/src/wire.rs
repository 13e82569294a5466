//! Bytes of the `linear` class: batches of commands in log entries, calls to a group's leader and their answers.

use base::{GroupId, NodeId, Span};
use bytes::Bytes;
use class::{Bounds, quota};
use prost::Message as _;

use super::functions;
use super::once::Once;
use super::op::{Condition, Ran, Reply, Step, Wrong};
use super::piece::{self, Piece};
use super::space::CommandId;
use super::split::Split;

#[cfg(test)]
mod derived;
mod quick;

use quick::{Sink, each_field};

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

/// [`Call::Do`], of a command that stays where it is.
pub struct Do<'a> {
    pub group: GroupId,
    pub reads: bool,
    pub stale: Option<Span>,
    pub sole: bool,
    pub command: &'a Command,
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
struct WireSplit {
    #[prost(uint64, tag = "1")]
    at: u64,
    #[prost(uint64, tag = "2")]
    child: u64,
    #[prost(uint32, tag = "3")]
    after: u32,
}

/// Of a batch, behind clock and commands.
#[derive(Clone, PartialEq, prost::Message)]
struct WireBatch {
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

/// What is done, as the same bytes each time.
pub fn encode_steps(conditions: &[Condition], steps: &[Step]) -> Vec<u8> {
    let mut out = Vec::new();
    conditions.iter().for_each(|condition| out.message(5, condition));
    steps.iter().for_each(|step| out.message(6, step));
    out
}

/// A copy: what is kept would else hold the whole buffer that it came in. It may, if it is most of it. Of words that say how, most are
/// these.
fn own(bytes: &[u8], whole: &Bytes) -> Bytes {
    match bytes {
        b"" => Bytes::new(),
        b"always" => Bytes::from_static(b"always"),
        b"none" => Bytes::from_static(b"none"),
        large if large.len() >= SHARED_BYTES_MIN && large.len() > whole.len() / 2 => whole.slice_ref(large),
        _ => Bytes::copy_from_slice(bytes),
    }
}

pub fn encode_batch(batch: &Batch) -> Vec<u8> {
    let split = batch.split.map(|Split { at, child, after }| WireSplit { at, child: child.0, after });
    let levels = batch.commands.iter().filter_map(|command| functions::level(&command.steps));
    let levels = levels.chain((!batch.bounds.is_none()).then_some(quota::LEVEL));
    let levels = levels.chain((batch.piece.is_some() || batch.drops_pieces).then_some(piece::LEVEL));
    let level = levels.max().filter(|level| *level > 1).unwrap_or(0);
    let Bounds { bytes: bytes_max, keys: keys_max } = batch.bounds;
    let piece = batch.piece.as_ref().map(WirePiece::new);
    let (drops_pieces, split_and_more) = (batch.drops_pieces, WireBatch { split, level, ..WireBatch::default() });
    let rest = WireBatch { bytes_max, keys_max, piece, drops_pieces, ..split_and_more };
    let about: usize = batch.commands.iter().map(|command| command.bytes() + 8).sum();
    let mut out = Vec::with_capacity(about + rest.encoded_len() + 16);
    out.number(1, batch.clock);
    batch.commands.iter().for_each(|command| out.message(2, command));
    rest.encode(&mut out).expect("there is room in memory");
    out
}

pub fn decode_batch(data: Bytes) -> Option<Batch> {
    let mut batch = Batch::default();
    let keep = |bytes: &[u8]| own(bytes, &data);
    each_field(&data, |tag, field| {
        match tag {
            1 => batch.clock = field.number()?,
            2 => batch.commands.push(quick::read_command(field.bytes()?, &keep)?),
            3 => {
                let WireSplit { at, child, after } = WireSplit::decode(field.bytes()?).ok()?;
                batch.split = Some(Split { at, child: GroupId(child), after });
            }
            4 => batch.level = field.short()?,
            5 => batch.bounds.bytes = Some(field.number()?),
            6 => batch.bounds.keys = Some(field.number()?),
            7 => batch.piece = Some(WirePiece::decode(data.slice_ref(field.bytes()?)).ok()?.take()?),
            8 => batch.drops_pieces = field.truth()?,
            _ => (),
        }
        Some(())
    })?;
    Some(batch)
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
    quick::bytes_of(reply)
}

impl quick::Message for Answer {
    fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        match self {
            Answer::Ran(ran, index) => {
                out.number(1, 1);
                out.message(2, ran);
                out.number(4, *index);
            }
            Answer::Forgotten => out.number(1, 2),
            Answer::Elsewhere { leader } => {
                out.number(1, 3);
                out.number(3, leader.map_or(0, |id| id.0));
            }
            Answer::Busy => out.number(1, 4),
            Answer::TurnedAway { floor } => {
                out.number(1, 4);
                out.number(6, u64::from(*floor) + 1);
            }
            Answer::Moved => out.number(1, 5),
            Answer::Refused(wrong) => {
                out.number(1, 6);
                out.number(5, code(*wrong).into());
            }
        }
    }
}

impl quick::Message for Do<'_> {
    fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        let Self { group, reads, stale, sole, command } = self;
        out.number(1, group.0);
        out.number(2, (*reads).into());
        out.message(3, *command);
        out.number(5, stale.map_or(0, |stale| stale.0));
        out.number(7, (*sole).into());
    }
}

impl quick::Message for Call {
    fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        let leave = |out: &mut S, group: &GroupId, leave: &WireLeave| {
            out.number(1, group.0);
            out.bytes(6, &leave.encode_to_vec());
        };
        match self {
            Call::Do { group, reads, stale, sole, command } => {
                Do { group: *group, reads: *reads, stale: *stale, sole: *sole, command }.write(out);
            }
            Call::Answer { group, id, answer } => {
                out.number(1, group.0);
                out.message(3, id);
                out.message(4, answer);
            }
            Call::Leaves { group, epoch } => {
                leave(out, group, &WireLeave { epoch: *epoch, ..WireLeave::default() });
            }
            Call::Left { group, epoch, end: (term, index) } => {
                leave(out, group, &WireLeave { epoch: *epoch, left: true, term: *term, index: *index });
            }
        }
    }
}

pub fn encode_call(call: &Call) -> Bytes {
    quick::encode(call)
}

pub fn encode_do(call: &Do<'_>) -> Bytes {
    quick::encode(call)
}

/// What is read stays in the memory that it came in, which is its own.
pub fn decode_call(head: Bytes) -> Option<Call> {
    let (mut group, mut reads, mut stale, mut sole) = (GroupId(0), false, 0, false);
    let (mut command, mut answer, mut leave) = (None, None, None);
    each_field(&head, |tag, field| {
        match tag {
            1 => group = GroupId(field.number()?),
            2 => reads = field.truth()?,
            3 => command = Some(field.bytes()?),
            4 => answer = Some(field.bytes()?),
            5 => stale = field.number()?,
            6 => leave = Some(WireLeave::decode(field.bytes()?).ok()?),
            7 => sole = field.truth()?,
            _ => (),
        }
        Some(())
    })?;
    if let Some(WireLeave { epoch, left, term, index }) = leave {
        let end = (term, index);
        return Some(if left { Call::Left { group, epoch, end } } else { Call::Leaves { group, epoch } });
    }
    let (command, stale) = (command?, (stale != 0).then_some(Span(stale)));
    let Some(answer) = answer else {
        let command = quick::read_command(command, &|bytes: &[u8]| head.slice_ref(bytes))?;
        return Some(Call::Do { group, reads, stale, sole, command });
    };
    Some(Call::Answer { group, id: quick::read_id(command)?, answer: read_answer(answer, &head)? })
}

fn read_answer(from: &[u8], whole: &Bytes) -> Option<Answer> {
    let (mut kind, mut ran, mut leader, mut index, mut wrong, mut away) = (0, None, 0, 0, 0, 0u32);
    each_field(from, |tag, field| {
        match tag {
            1 => kind = field.short()?,
            2 => ran = Some(quick::read_ran(field.bytes()?, whole)?),
            3 => leader = field.number()?,
            4 => index = field.number()?,
            5 => wrong = field.short()?,
            6 => away = field.short()?,
            _ => (),
        }
        Some(())
    })?;
    Some(match kind {
        1 => Answer::Ran(ran?, index),
        2 => Answer::Forgotten,
        3 => Answer::Elsewhere { leader: (leader != 0).then_some(NodeId(leader)) },
        4 => match away.checked_sub(1) {
            None => Answer::Busy,
            Some(floor) => Answer::TurnedAway { floor: u8::try_from(floor).ok()? },
        },
        5 => Answer::Moved,
        6 => Answer::Refused(of_code(wrong)?),
        _ => return None,
    })
}
