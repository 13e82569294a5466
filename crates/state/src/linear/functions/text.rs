//! Functions on texts.

use super::*;
use crate::linear::limits::VALUE_BYTES_MAX;

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
