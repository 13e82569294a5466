//! Many bits of a text at once. Bit 0 is the highest of the first byte.

use std::ops::Range;

use super::*;
use crate::limits::VALUE_BYTES_MAX;

pub const ALL: &[Function] = &[
    args_since(
        2,
        |args| args.len() > 2,
        read("text.bits", "[start stop [byte|bit]]", |space, key, args| {
            let text = text_of(space, key)?.cloned().unwrap_or_default();
            let bits = match args {
                [] => 0..text.len() * 8,
                [start, stop, unit @ ..] => {
                    let bits = range(start, stop, unit, text.len())?;
                    // Only here Redis takes two from the end for nothing if they are the wrong way round.
                    let is_none = integer(stop)? < integer(start)? && integer(start)? < 0;
                    if is_none { 0..0 } else { bits }
                }
                _ => return Err(Wrong::Arguments),
            };
            Ok(count(parts(&text, bits).map(|(_, byte, mask)| (byte & mask).count_ones() as usize).sum()))
        }),
    ),
    // -1: none. Zeros stand behind the end, unless a stop is given.
    since(
        2,
        read("text.find-bit", "0|1 [start [stop [byte|bit]]]", |space, key, args| {
            let (bit, place) = args.split_first().ok_or(Wrong::Arguments)?;
            let wants_one = match &bit[..] {
                b"0" => false,
                b"1" => true,
                _ => return Err(Wrong::Arguments),
            };
            let Some(text) = text_of(space, key)? else { return Ok(Reply::Int(-i64::from(wants_one))) };
            let (bits, is_open) = match place {
                [] => (0..text.len() * 8, true),
                [start] => (range(start, b"-1", &[], text.len())?, true),
                [start, stop, unit @ ..] => (range(start, stop, unit, text.len())?, false),
            };
            let end = bits.end;
            let is_empty = bits.is_empty();
            let mut found = parts(text, bits).filter_map(|(at, byte, mask)| {
                let hits = if wants_one { byte & mask } else { !byte & mask };
                (hits != 0).then(|| at * 8 + hits.leading_zeros() as usize)
            });
            Ok(match found.next() {
                Some(at) => count(at),
                None if is_open && !wants_one && !is_empty => count(end),
                None => Reply::Int(-1),
            })
        }),
    ),
    since(
        2,
        Function {
            keys: usize::MAX,
            options: 1,
            // Into the key; shorter texts are as if zeros followed.
            ..write("text.bit-op", "key... and|or|xor|not", |space, key, args| {
                let [from @ .., op] = args else { return Err(Wrong::Arguments) };
                // How often each is there: many of the same must not take longer than one.
                let mut times = BTreeMap::new();
                for key in from {
                    *times.entry(key).or_insert(0_usize) += 1;
                }
                let text =
                    |(key, times): (&Bytes, usize)| Ok((text_of(space, key)?.cloned().unwrap_or_default(), times));
                let texts = times.into_iter().map(text).collect::<std::result::Result<Vec<(Bytes, usize)>, Wrong>>()?;
                let len = texts.iter().map(|(text, _)| text.len()).max().ok_or(Wrong::Arguments)?;
                let mut result = vec![if &op[..] == b"and" { u8::MAX } else { 0 }; len];
                for (text, times) in &texts {
                    let (there, behind) = result.split_at_mut(text.len());
                    let pairs = there.iter_mut().zip(text);
                    match &op[..] {
                        b"and" => {
                            pairs.for_each(|(to, byte)| *to &= byte);
                            behind.fill(0);
                        }
                        b"or" => pairs.for_each(|(to, byte)| *to |= byte),
                        b"xor" if times.is_multiple_of(2) => (),
                        b"xor" => pairs.for_each(|(to, byte)| *to ^= byte),
                        b"not" if from.len() == 1 => pairs.for_each(|(to, byte)| *to = !byte),
                        _ => return Err(Wrong::Arguments),
                    }
                }
                if result.is_empty() {
                    space.remove(key);
                } else {
                    space.set(key, Value::Text(result.into()), 0);
                }
                Ok(count(len))
            })
        },
    ),
];

/// The bits that a start, a stop and a unit mean, of a text so long. As Redis has it, other than in lists and parts of texts a stop
/// before the first one is the first one.
fn range(start: &[u8], stop: &[u8], unit: &[Bytes], len: usize) -> std::result::Result<Range<usize>, Wrong> {
    let (start, stop) = (integer(start)?, integer(stop)?);
    let (len, bits) = match unit.iter().map(|unit| &unit[..]).collect::<Vec<_>>()[..] {
        [] | [b"byte"] => (len as i64, 8),
        [b"bit"] => (len as i64 * 8, 1),
        _ => return Err(Wrong::Arguments),
    };
    let at = |n: i64| if n < 0 { n.saturating_add(len).max(0) } else { n };
    let (start, end) = (at(start), at(stop).min(len - 1) + 1);
    if start < end { Ok(start as usize * bits..end as usize * bits) } else { Ok(0..0) }
}

/// The bytes that some bits lie in: where, which, and which of its bits are meant.
fn parts(text: &[u8], bits: Range<usize>) -> impl Iterator<Item = (usize, u8, u8)> + '_ {
    let first = bits.start / 8;
    let last = bits.end.div_ceil(8).min(text.len()).max(first);
    text[first.min(last)..last].iter().enumerate().map(move |(n, byte)| {
        let at = first + n;
        let mut mask = u8::MAX;
        if bits.start > at * 8 {
            mask &= u8::MAX >> (bits.start - at * 8);
        }
        if bits.end < at * 8 + 8 {
            mask &= !(u8::MAX >> (bits.end - at * 8));
        }
        (at, *byte, mask)
    })
}

const _: () = assert!(VALUE_BYTES_MAX < usize::MAX / 8, "each bit has a number");
