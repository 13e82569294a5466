//! What a message says that it has, before memory is taken for it. A list of empty parts costs its sender two bytes for
//! each, and its reader a hundred times as much: 16 MiB of empty updates would be gigabytes. So the bytes are walked once,
//! without taking anything, and what claims more memory than its length lets an honest one have is no message.

use bytes::Bytes;
use prost::Message;

use crate::limits::{CALL_TIMES, CLAIM_FREE, CLAIM_TIMES};
use crate::space::Odd;
use crate::wire::{
    ACell, ADot, ASibling, ASlot, Ack, At, Cells, Commit, Cursor, Delta, Digest, DigestOf, Have, Kept, Mend, Page,
    PageAsk, Parts, Push, Ranges, Relay, Sketch, SketchAsk, Whole,
};
use crate::words::{AReply, AnAction, Call, Called, Pair};

/// A message whose lists are known. `tests` finds a list that is not.
pub trait Weighed: Message + Default {
    /// How many bytes of memory a byte of it may claim.
    const TIMES: usize = CLAIM_TIMES;
    /// The fields that are lists, or lead to some.
    const FIELDS: Fields;
}

/// Fields by their tags.
type Fields = &'static [(u32, Field)];

pub enum Field {
    /// Messages, each of so many bytes in memory; 0: there is one.
    Messages(usize, fn() -> Fields),
    Varints(usize),
    Fixed,
}

fn fields<M: Weighed>() -> Fields {
    M::FIELDS
}

const fn each<M: Weighed>() -> Field {
    Field::Messages(size_of::<M>(), fields::<M>)
}

const fn one<M: Weighed>() -> Field {
    Field::Messages(0, fields::<M>)
}

const NUMBERS: Field = Field::Varints(size_of::<u64>());

macro_rules! claims {
    ($($message:ident: [$($tag:literal => $field:expr),*];)*) => {
        $(impl Weighed for $message {
            const FIELDS: Fields = &[$(($tag, $field)),*];
        })*
    };
}

claims! {
    Ranges: [3 => NUMBERS];
    At: [];
    ADot: [];
    ASibling: [1 => one::<ADot>()];
    ASlot: [1 => one::<ADot>()];
    ACell: [1 => each::<ASibling>(), 2 => each::<ASlot>(), 3 => each::<ADot>()];
    Delta: [2 => one::<At>(), 3 => one::<ACell>(), 4 => each::<ADot>()];
    Push: [3 => each::<Delta>()];
    Relay: [];
    Ack: [3 => NUMBERS];
    Digest: [2 => each::<DigestOf>()];
    DigestOf: [];
    Parts: [4 => Field::Fixed, 6 => one::<At>()];
    Mend: [3 => each::<Ranges>(), 4 => each::<Whole>()];
    Have: [3 => each::<Ranges>(), 4 => each::<Ranges>(), 6 => each::<Ranges>()];
    Whole: [1 => one::<At>(), 2 => one::<ACell>(), 3 => each::<Ranges>()];
    Cells: [2 => each::<Ranges>(), 3 => each::<Whole>()];
    PageAsk: [3 => one::<At>(), 4 => each::<Ranges>(), 6 => one::<At>(), 7 => Field::Fixed];
    SketchAsk: [4 => one::<At>(), 5 => one::<At>(), 9 => each::<Ranges>()];
    Sketch: [4 => one::<At>(), 8 => Field::Fixed, 9 => Field::Fixed, 10 => NUMBERS, 11 => each::<Ranges>()];
    Page: [3 => one::<At>(), 4 => one::<At>(), 5 => each::<Whole>(), 6 => each::<Ranges>(), 7 => each::<Ranges>()];
    Cursor: [2 => each::<Ranges>(), 3 => one::<At>()];
    Kept: [1 => each::<Whole>(), 2 => one::<Commit>()];
    Commit: [1 => each::<Ranges>(), 2 => each::<Ranges>()];
    Pair: [];
    AnAction: [4 => each::<Pair>()];
    AReply: [3 => each::<Pair>(), 7 => Field::Varints(size_of::<u32>())];
}

impl Weighed for Call {
    const TIMES: usize = CALL_TIMES;
    const FIELDS: Fields = &[(6, one::<AnAction>())];
}

impl Weighed for Called {
    const TIMES: usize = CALL_TIMES;
    const FIELDS: Fields = &[(3, one::<AReply>())];
}

/// A message of these bytes. What it takes in memory is known to be bounded by them before it is made.
pub fn read<M: Weighed>(bytes: Bytes) -> Result<M, Odd> {
    is_bounded::<M>(&bytes)?;
    M::decode(bytes).map_err(|_| Odd("bytes that are no message"))
}

/// Would it be read?
pub fn is_bounded<M: Weighed>(bytes: &[u8]) -> Result<(), Odd> {
    let left = CLAIM_FREE.saturating_add(bytes.len().saturating_mul(M::TIMES));
    Walk { left }.message(bytes, M::FIELDS)
}

/// What may still be claimed, bytes.
struct Walk {
    left: usize,
}

impl Walk {
    fn claim(&mut self, bytes: usize) -> Result<(), Odd> {
        self.left = self.left.checked_sub(bytes).ok_or(Odd("more parts than its length lets it have"))?;
        Ok(())
    }

    /// As deep as our messages are: what is no message of ours is not looked into.
    fn message(&mut self, mut bytes: &[u8], fields: Fields) -> Result<(), Odd> {
        const NO_MESSAGE: Odd = Odd("bytes that are no message");
        while !bytes.is_empty() {
            let tag = varint(&mut bytes).ok_or(NO_MESSAGE)?;
            let number = u32::try_from(tag >> 3).map_err(|_| NO_MESSAGE)?;
            let field = fields.iter().find(|(of, _)| *of == number).map(|(_, field)| field);
            let length = match tag & 7 {
                0 => {
                    varint(&mut bytes).ok_or(NO_MESSAGE)?;
                    0
                }
                1 => 8,
                2 => usize::try_from(varint(&mut bytes).ok_or(NO_MESSAGE)?).map_err(|_| NO_MESSAGE)?,
                5 => 4,
                // Groups: no program of ours has any.
                _ => return Err(NO_MESSAGE),
            };
            let content;
            (content, bytes) = bytes.split_at_checked(length).ok_or(NO_MESSAGE)?;
            match (field, tag & 7) {
                (None, _) => (),
                (Some(Field::Messages(size, of)), _) => {
                    self.claim(*size)?;
                    self.message(content, of())?;
                }
                (Some(Field::Varints(size)), 2) => {
                    self.claim(size * content.iter().filter(|byte| **byte < 0x80).count())?;
                }
                (Some(Field::Fixed), 2) => self.claim(content.len())?,
                (Some(Field::Varints(_) | Field::Fixed), _) => self.claim(size_of::<u64>())?,
            }
        }
        Ok(())
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for nth in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * nth);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part that is empty, at the end of a path of fields: `times` of them.
    fn within(path: &[u8], part: &[u8], times: usize) -> Bytes {
        let mut bytes = part.repeat(times);
        for tag in path.iter().rev() {
            let mut outer = vec![tag << 3 | 2];
            prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
            outer.extend(bytes);
            bytes = outer;
        }
        bytes.into()
    }

    fn encoded<M: Weighed>(path: &[u8], part: &[u8], times: usize) -> Option<usize> {
        M::decode(within(path, part, times)).ok().map(|message| message.encoded_len())
    }

    /// Where a message has lists, and of what: found by what it makes of bytes.
    fn lists<M: Weighed>(path: &mut Vec<u8>, found: &mut Vec<(Vec<u8>, Vec<u8>)>) {
        // A field that no message has: text keeps it, a message skips it.
        let (strange, nothing) = ([0xf8, 1, 1], encoded::<M>(path, &[], 0));
        if nothing.is_none() || !path.is_empty() && encoded::<M>(path, &strange, 1) != nothing {
            return;
        }
        for tag in 1..16u8 {
            let parts = [vec![tag << 3 | 2, 0], vec![tag << 3, 1], [&[tag << 3 | 1][..], &[1; 8]].concat()];
            for part in parts {
                let [one, two] = [1, 2].map(|times| encoded::<M>(path, &part, times));
                if one.is_some() && two > one {
                    found.push((path.clone(), part));
                }
            }
            // A number is no message, and is skipped where there is no such field.
            if encoded::<M>(path, &[tag << 3, 1], 1).is_none() {
                path.push(tag);
                lists::<M>(path, found);
                path.pop();
            }
        }
    }

    fn no_list_is_left_out<M: Weighed>(name: &str, count: usize) {
        let mut found = Vec::new();
        lists::<M>(&mut Vec::new(), &mut found);
        for (path, part) in &found {
            let is_message = part.len() == 2 && part[0] & 7 == 2;
            if is_message {
                let hostile = within(path, part, 4 << 20);
                assert!(read::<M>(hostile).is_err(), "{name}: empty parts of {path:?}, {part:?}");
            } else if part.len() == 2 && M::TIMES < size_of::<u64>() {
                let packed = [&path[..], &[part[0] >> 3]].concat();
                let hostile = within(&packed, &[1], 16 << 20);
                assert!(read::<M>(hostile).is_err(), "{name}: numbers of {packed:?}");
            }
        }
        assert_eq!(found.len(), count, "{name}: lists that are found by what it makes of bytes: {found:?}");
    }

    #[test]
    fn each_list_of_each_message_is_counted_before_it_is_made() {
        no_list_is_left_out::<Ranges>("Ranges", 1);
        no_list_is_left_out::<Push>("Push", 5);
        no_list_is_left_out::<Relay>("Relay", 0);
        no_list_is_left_out::<Ack>("Ack", 1);
        no_list_is_left_out::<Digest>("Digest", 1);
        no_list_is_left_out::<Parts>("Parts", 1);
        no_list_is_left_out::<Mend>("Mend", 8);
        no_list_is_left_out::<Have>("Have", 6);
        no_list_is_left_out::<Cells>("Cells", 8);
        no_list_is_left_out::<PageAsk>("PageAsk", 3);
        no_list_is_left_out::<SketchAsk>("SketchAsk", 2);
        no_list_is_left_out::<Sketch>("Sketch", 5);
        no_list_is_left_out::<Page>("Page", 10);
        no_list_is_left_out::<Cursor>("Cursor", 2);
        no_list_is_left_out::<Kept>("Kept", 10);
        no_list_is_left_out::<Call>("Call", 1);
        no_list_is_left_out::<Called>("Called", 2);
    }

    /// What is taken of as many empty updates as are taken at all, counted by what they have in memory.
    #[test]
    fn what_a_frame_of_empty_updates_takes_is_bounded_by_its_bytes() {
        let taken =
            |count: usize| read::<Push>(within(&[], &[3 << 3 | 2, 0], count)).map(|push| push.deltas.capacity());
        let (mut most, mut beyond) = (1, base::limits::FRAME_BYTES_MAX / 2);
        assert!(taken(beyond).is_err(), "a whole frame of them");
        while beyond - most > 1 {
            let middle = usize::midpoint(most, beyond);
            *(if taken(middle).is_ok() { &mut most } else { &mut beyond }) = middle;
        }
        let memory = taken(most).unwrap() * size_of::<Delta>();
        assert!(memory <= 2 * (CLAIM_FREE + CLAIM_TIMES * 2 * most), "{most} updates take {memory} bytes");
        assert!(memory < 32 << 20, "{most} updates take {memory} bytes");
    }

    /// What nodes make is read: the shortest updates that fill a frame, cells of as many slots as there may be, and operations of as many
    /// words as a door takes.
    #[test]
    fn what_nodes_make_is_read() {
        let at = At { key: Bytes::from_static(b"k"), kind: 3, element: Bytes::from_static(b"e") };
        let dot = ADot { node: 1, boot: 1, seq: 1 };
        let delta = Delta { seq: 1, at: at.clone(), supersedes: vec![dot], ..Delta::default() };
        let push = Push { space: 1, boot: 1, deltas: vec![delta; crate::limits::FRAME_BYTES / 15] };
        let bytes = Bytes::from(push.encode_to_vec());
        assert!(bytes.len() > crate::limits::FRAME_BYTES);
        assert_eq!(read::<Push>(bytes).map(|read| read.deltas.len()), Ok(push.deltas.len()));
        let slot = ASlot { birth: dot, last: 1, inc: 1, ..ASlot::default() };
        let cell = ACell { slots: vec![slot; crate::limits::PARTS_MAX], ..ACell::default() };
        let covers = vec![Ranges { node: 1, boot: 1, bounds: vec![1, 1], sum: 0 }];
        let whole = Whole { at: at.clone(), cell, covers: covers.clone() };
        let small = Whole { at, cell: ACell::default(), covers };
        let cells = [vec![small; crate::limits::FRAME_BYTES / 20], vec![whole]].concat();
        assert!(read::<Cells>(Cells { cells, ..Cells::default() }.encode_to_vec().into()).is_ok());
        let pairs = vec![Pair { name: Bytes::from_static(b"m"), value: None }; 1 << 20];
        let call = Call { action: AnAction { pairs, ..AnAction::default() }, ..Call::default() };
        assert!(read::<Call>(call.encode_to_vec().into()).is_ok());
    }

    #[test]
    fn bytes_that_are_no_message_are_none() {
        for bytes in
            [&[0x1b][..], &[0x1a, 5, 1], &[0x80; 11], &[0x1a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]]
        {
            assert!(read::<Push>(Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
    }
}
