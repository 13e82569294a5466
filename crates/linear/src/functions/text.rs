//! Functions on texts.

use super::*;
use crate::limits::VALUE_BYTES_MAX;

pub const ALL: &[Function] = &[
    read("text.length", "", |space, key, args| {
        none(args).and_then(|()| Ok(count(text_of(space, key)?.map_or(0, Bytes::len))))
    }),
    read("text.range", "start stop", |space, key, args| {
        let (start, stop) = two(args)?;
        let (start, stop) = (integer(start)?, integer(stop)?);
        let text = text_of(space, key)?.cloned().unwrap_or_default();
        let range = slice(start, stop, text.len());
        Ok(Reply::Bytes(text.slice(range)))
    }),
    read("text.bit", "offset", |space, key, args| {
        let (at, bit) = place(one(args)?)?;
        let byte = text_of(space, key)?.and_then(|text| text.get(at)).copied().unwrap_or(0);
        Ok(flag(byte & bit != 0))
    }),
    write("text.set-bit", "offset 0|1", |space, key, args| {
        let (at, bit) = place(two(args)?.0)?;
        let on = match &args[1][..] {
            b"0" => false,
            b"1" => true,
            _ => return Err(Wrong::Arguments),
        };
        let old = text_of(space, key)?.and_then(|text| text.get(at)).copied().unwrap_or(0);
        write_at(space, key, at, &[if on { old | bit } else { old & !bit }])?;
        Ok(flag(old & bit != 0))
    }),
    write("text.set-range", "offset bytes", |space, key, args| {
        let (at, bytes) = two(args)?;
        let at = usize::try_from(unsigned(at)?).map_err(|_| Wrong::TooLarge)?;
        if bytes.is_empty() {
            return Ok(count(text_of(space, key)?.map_or(0, Bytes::len)));
        }
        write_at(space, key, at, bytes)
    }),
    write("text.append", "bytes", |space, key, args| {
        let more = one(args)?;
        let text = text_of(space, key)?;
        let len = text.map_or(0, Bytes::len) + more.len();
        if len > VALUE_BYTES_MAX {
            return Err(Wrong::TooLarge);
        }
        let whole: Bytes = [text.map_or(&[][..], |text| text), more].concat().into();
        space.set_keeping_end(key, Value::Text(whole));
        Ok(count(len))
    }),
];

/// Byte and bit of a bit's number: the first is the highest of the first byte.
fn place(offset: &[u8]) -> std::result::Result<(usize, u8), Wrong> {
    let offset = unsigned(offset)?;
    if offset / 8 >= VALUE_BYTES_MAX as u64 {
        return Err(Wrong::TooLarge);
    }
    Ok(((offset / 8) as usize, 0x80 >> (offset % 8)))
}

/// Writes into a text, which is filled up with zeros before it.
fn write_at(space: &mut Space, key: &Bytes, at: usize, bytes: &[u8]) -> Result {
    let end = at.checked_add(bytes.len()).filter(|end| *end <= VALUE_BYTES_MAX).ok_or(Wrong::TooLarge)?;
    let mut text = text_of(space, key)?.map_or(Vec::new(), |text| text.to_vec());
    text.resize(text.len().max(end), 0);
    text[at..end].copy_from_slice(bytes);
    let len = text.len();
    space.set_keeping_end(key, Value::Text(text.into()));
    Ok(count(len))
}
