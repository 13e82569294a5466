//! What SCAN and its like are asked for.

use bytes::Bytes;

use super::*;
use crate::resp::limits::PATTERN_BYTES_MAX;

/// What a page is asked for.
pub struct Page {
    pub cursor: u64,
    pub count: u32,
    pattern: Option<Bytes>,
    kind: Option<Bytes>,
    /// Fields without their values.
    pub names_only: bool,
}

/// What else than a pattern and a count may be said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Also {
    Nothing,
    Type,
    NoValues,
}

impl Page {
    /// Reads the cursor at this position, and the options behind it; a page has `count_max` at most.
    pub fn read(command: &Command, at: usize, also: Also, count_max: u32) -> Result<Page, Reply> {
        let syntax = || Reply::error("ERR syntax error");
        let cursor = std::str::from_utf8(command.arg(at)).ok().and_then(|text| text.parse::<u64>().ok());
        let cursor = cursor.ok_or_else(|| Reply::error("ERR invalid cursor"))?;
        let mut page = Page { cursor, count: 10, pattern: None, kind: None, names_only: false };
        let mut next = at + 1;
        while next < command.len() {
            let at = next;
            if also == Also::NoValues && is(command.arg(at), "NOVALUES") {
                page.names_only = true;
                next += 1;
                continue;
            }
            if at + 1 >= command.len() {
                return Err(syntax());
            }
            next += 2;
            let (option, value) = (command.arg(at), command.arg(at + 1));
            if is(option, "MATCH") {
                if value.len() > PATTERN_BYTES_MAX {
                    return Err(Reply::Error(format!("ERR a pattern may have {PATTERN_BYTES_MAX} bytes")));
                }
                page.pattern = Some(command.key(at + 1));
            } else if is(option, "COUNT") {
                page.count = match integer(value) {
                    Some(n @ 1..) => u32::try_from(n).unwrap_or(u32::MAX).min(count_max),
                    Some(_) => return Err(syntax()),
                    None => return Err(not_an_integer()),
                };
            } else if is(option, "TYPE") && also == Also::Type {
                page.kind = Some(Bytes::from(value.to_ascii_lowercase()));
            } else {
                return Err(syntax());
            }
        }
        Ok(page)
    }

    #[cfg(test)]
    pub fn at(cursor: u64, count: u32) -> Self {
        Page { cursor, count, pattern: None, kind: None, names_only: false }
    }

    pub fn fits(&self, name: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| fits(pattern, name))
    }

    pub fn is_of(&self, kind: &[u8]) -> bool {
        self.kind.as_ref().is_none_or(|wanted| *wanted == kind)
    }

    /// What all that fit begin with: a pattern up to its first sign.
    pub fn prefix(&self) -> Bytes {
        self.pattern.as_ref().map(prefix_of).unwrap_or_default()
    }
}

/// What all that fit a pattern begin with.
pub fn prefix_of(pattern: &Bytes) -> Bytes {
    let plain = pattern.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(pattern.len());
    pattern.slice(..plain)
}
