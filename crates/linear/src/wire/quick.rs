//! Commands and replies to bytes and back, with nothing made between: each write passes here five times on its way through
//! three nodes. The bytes are those of the messages in `super`, which say what each field is; a test compares both.

use base::{Boot, NodeId};
use bytes::Bytes;
use uuid::Uuid;

use super::{BYTES, Command, DEPTH_MAX, INT, LIST, NIL, WRONG, code, of_code};
use crate::functions;
use crate::once::Once;
use crate::op::{Condition, Ran, Reply, Step};
use crate::space::CommandId;

/// Takes bytes: writes them, or counts them.
pub trait Sink {
    fn put(&mut self, bytes: &[u8]);

    fn varint(&mut self, mut number: u64) {
        let (mut bytes, mut len) = ([0; 10], 1);
        while number >= 0x80 {
            bytes[len - 1] = number as u8 | 0x80;
            number >>= 7;
            len += 1;
        }
        bytes[len - 1] = number as u8;
        self.put(&bytes[..len]);
    }

    /// A number that is not 0.
    fn number(&mut self, tag: u32, number: u64) {
        if number != 0 {
            self.varint(u64::from(tag) << 3);
            self.varint(number);
        }
    }

    fn bytes(&mut self, tag: u32, bytes: &[u8]) {
        self.varint(u64::from(tag) << 3 | LENGTH);
        self.varint(bytes.len() as u64);
        self.put(bytes);
    }

    fn some_bytes(&mut self, tag: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.bytes(tag, bytes);
        }
    }

    fn message(&mut self, tag: u32, message: &impl Message) {
        self.varint(u64::from(tag) << 3 | LENGTH);
        self.varint(bytes_of(message) as u64);
        message.write(self);
    }
}

const NUMBER: u64 = 0;
const FIXED: u64 = 1;
const LENGTH: u64 = 2;
const FIXED_SHORT: u64 = 5;

struct Count(usize);

impl Sink for Count {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn varint(&mut self, number: u64) {
        // Seven bits in each byte.
        self.0 += (64 - (number | 1).leading_zeros() as usize).div_ceil(7);
    }

    fn message(&mut self, tag: u32, message: &impl Message) {
        let bytes = bytes_of(message);
        self.varint(u64::from(tag) << 3 | LENGTH);
        self.varint(bytes as u64);
        self.0 += bytes;
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

pub trait Message {
    fn write<S: Sink + ?Sized>(&self, out: &mut S);
}

/// How many bytes it has.
pub fn bytes_of(message: &impl Message) -> usize {
    let mut count = Count(0);
    message.write(&mut count);
    count.0
}

pub fn encode(message: &impl Message) -> Bytes {
    let mut out = Vec::with_capacity(bytes_of(message));
    message.write(&mut out);
    out.into()
}

impl Message for Step {
    fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        out.some_bytes(1, &self.key);
        out.some_bytes(2, self.function.as_bytes());
        self.args.iter().for_each(|arg| out.bytes(3, arg));
    }
}

impl Message for Condition {
    fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        out.some_bytes(1, &self.key);
        out.number(2, self.version);
    }
}

impl Message for CommandId {
    fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        out.number(1, self.node.0);
        out.number(2, self.boot.0);
        out.number(3, self.seq);
    }
}

impl Message for Command {
    fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        self.id.write(out);
        out.number(4, self.floor);
        self.conditions.iter().for_each(|condition| out.message(5, condition));
        self.steps.iter().for_each(|step| out.message(6, step));
        out.number(7, self.splits.into());
        if let Some(Once { id, of }) = &self.once {
            out.bytes(8, id.as_bytes());
            if *of != 0 {
                out.varint(9 << 3 | FIXED);
                out.put(&of.to_le_bytes());
            }
        }
    }
}

impl Message for Reply {
    fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        let int = |out: &mut S, int: i64| out.number(2, (int << 1 ^ int >> 63) as u64);
        match self {
            Reply::Nil => (),
            Reply::Int(n) => {
                out.number(1, INT.into());
                int(out, *n);
            }
            Reply::Bytes(bytes) => {
                out.number(1, BYTES.into());
                out.some_bytes(3, bytes);
            }
            Reply::List(list) => {
                out.number(1, LIST.into());
                list.iter().for_each(|reply| out.message(4, reply));
            }
            Reply::Wrong(wrong) => {
                out.number(1, WRONG.into());
                int(out, code(*wrong).into());
            }
        }
    }
}

impl Message for Ran {
    fn write<S: Sink + ?Sized>(&self, out: &mut S) {
        match self {
            Ran::Done(replies) => replies.iter().for_each(|reply| out.message(2, reply)),
            Ran::Unmet => out.number(1, 1),
        }
    }
}

/// What a field has.
pub enum Field<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
    /// Of a kind that no field here has.
    Other,
}

impl<'a> Field<'a> {
    pub fn number(self) -> Option<u64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    pub fn fixed(self) -> Option<u64> {
        if let Self::Fixed(number) = self { Some(number) } else { None }
    }

    /// Of 32 bits: what is above is dropped, as everywhere in this format.
    pub fn short(self) -> Option<u32> {
        self.number().map(|number| number as u32)
    }

    pub fn truth(self) -> Option<bool> {
        self.number().map(|number| number != 0)
    }

    pub fn bytes(self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

/// Has each field of a message looked at, in order; none if it is not one, or the look says so.
pub fn each_field<'a>(mut from: &'a [u8], mut look: impl FnMut(u32, Field<'a>) -> Option<()>) -> Option<()> {
    while !from.is_empty() {
        let key = varint(&mut from)?;
        let tag = u32::try_from(key).ok()? >> 3;
        let field = match key & 7 {
            NUMBER => Field::Number(varint(&mut from)?),
            FIXED => Field::Fixed(u64::from_le_bytes(from.split_off(..8)?.try_into().ok()?)),
            LENGTH => {
                let len = usize::try_from(varint(&mut from)?).ok()?;
                Field::Bytes(from.split_off(..len)?)
            }
            FIXED_SHORT => {
                from.split_off(..4)?;
                Field::Other
            }
            _ => return None,
        };
        if tag == 0 {
            return None;
        }
        look(tag, field)?;
    }
    Some(())
}

fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *from.split_off_first()?;
        if shift == 63 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

pub fn read_id(from: &[u8]) -> Option<CommandId> {
    let mut id = CommandId { node: NodeId(0), boot: Boot(0), seq: 0 };
    each_field(from, |tag, field| {
        match tag {
            1 => id.node = NodeId(field.number()?),
            2 => id.boot = Boot(field.number()?),
            3 => id.seq = field.number()?,
            _ => (),
        }
        Some(())
    })?;
    Some(id)
}

/// `keep` says in what memory keys and arguments are from then on.
pub fn read_command(from: &[u8], keep: &impl Fn(&[u8]) -> Bytes) -> Option<Command> {
    let id = CommandId { node: NodeId(0), boot: Boot(0), seq: 0 };
    let mut command = Command { id, floor: 0, conditions: Vec::new(), steps: Vec::new(), splits: 0, once: None };
    let (mut once, mut of) = (None, 0);
    each_field(from, |tag, field| {
        match tag {
            1 => command.id.node = NodeId(field.number()?),
            2 => command.id.boot = Boot(field.number()?),
            3 => command.id.seq = field.number()?,
            4 => command.floor = field.number()?,
            5 => command.conditions.push(read_condition(field.bytes()?, keep)?),
            6 => command.steps.push(read_step(field.bytes()?, keep)?),
            7 => command.splits = field.short()?,
            8 => once = Some(field.bytes()?).filter(|id| !id.is_empty()),
            9 => of = field.fixed()?,
            _ => (),
        }
        Some(())
    })?;
    if let Some(id) = once {
        command.once = Some(Once { id: Uuid::from_slice(id).ok()?, of });
    }
    Some(command)
}

fn read_condition(from: &[u8], keep: &impl Fn(&[u8]) -> Bytes) -> Option<Condition> {
    let mut condition = Condition { key: Bytes::new(), version: 0 };
    each_field(from, |tag, field| {
        match tag {
            1 => condition.key = keep(field.bytes()?),
            2 => condition.version = field.number()?,
            _ => (),
        }
        Some(())
    })?;
    Some(condition)
}

fn read_step(from: &[u8], keep: &impl Fn(&[u8]) -> Bytes) -> Option<Step> {
    let mut step = Step::new(Bytes::new(), "", Vec::new());
    each_field(from, |tag, field| {
        match tag {
            1 => step.key = keep(field.bytes()?),
            // One that this program does not know has no name here.
            2 => {
                let name = std::str::from_utf8(field.bytes()?).ok();
                step.function = name.and_then(functions::find).map_or("", |function| function.name);
            }
            3 => step.args.push(keep(field.bytes()?)),
            _ => (),
        }
        Some(())
    })?;
    Some(step)
}

/// `whole`: the memory that it is a part of, and stays in.
pub fn read_ran(from: &[u8], whole: &Bytes) -> Option<Ran> {
    let (mut unmet, mut replies) = (0, Vec::new());
    each_field(from, |tag, field| {
        match tag {
            1 => unmet = field.short()?,
            2 => replies.push(read_reply(field.bytes()?, whole, 0)?),
            _ => (),
        }
        Some(())
    })?;
    match unmet {
        0 => Some(Ran::Done(replies)),
        1 => Some(Ran::Unmet),
        _ => None,
    }
}

fn read_reply(from: &[u8], whole: &Bytes, depth: usize) -> Option<Reply> {
    let (mut kind, mut int, mut bytes, mut list) = (NIL, 0, Bytes::new(), Vec::new());
    each_field(from, |tag, field| {
        match tag {
            1 => kind = field.short()?,
            2 => {
                let number = field.number()?;
                int = (number >> 1) as i64 ^ -((number & 1) as i64);
            }
            3 => bytes = whole.slice_ref(field.bytes()?),
            // Deeper ones make no sense.
            4 => list.push((depth < DEPTH_MAX).then(|| read_reply(field.bytes()?, whole, depth + 1))??),
            _ => (),
        }
        Some(())
    })?;
    Some(match kind {
        NIL => Reply::Nil,
        INT => Reply::Int(int),
        BYTES => Reply::Bytes(bytes),
        LIST if depth < DEPTH_MAX => Reply::List(list),
        WRONG => Reply::Wrong(of_code(int)?),
        _ => return None,
    })
}
