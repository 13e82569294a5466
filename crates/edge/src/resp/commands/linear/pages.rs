//! SCAN and its like: what they are asked for, and pages of one collection.

use state::linear::limits::SCAN_KEYS_MAX;

use super::*;
use crate::resp::limits::PATTERN_BYTES_MAX;

/// What a page is asked for.
pub struct Page {
    pub cursor: u64,
    pub count: u32,
    pattern: Option<Bytes>,
    kind: Option<Bytes>,
    /// Of fields: without their values.
    names_only: bool,
}

/// What else than a pattern and a count may be said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Also {
    Nothing,
    Type,
    NoValues,
}

impl Page {
    /// The cursor at this position, and the options behind it.
    pub fn read(command: &Command, at: usize, also: Also) -> Result<Page, Reply> {
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
                    Some(n @ 1..) => u32::try_from(n).unwrap_or(u32::MAX).min(SCAN_KEYS_MAX as u32),
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

    /// What a walk is asked for.
    pub fn args(&self) -> Vec<Bytes> {
        // Those that were given are far below it.
        let cursor = self.cursor.min(i64::MAX as u64);
        vec![word(cursor.to_string()), word(self.count.to_string())]
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

/// A page of the first key's collection: an item has `width` parts.
pub fn pages(call: &Call<'_>, function: &'static str, width: usize, also: Also) -> Act {
    let page = match Page::read(call.command, 2, also) {
        Ok(page) => page,
        Err(error) => return Act::Now(error),
    };
    let step = Step::new(call.command.key(1), function, page.args());
    let op = Op { stale: call.client.stale, ..Op::of(call.space().name, vec![step]) };
    let space = call.space();
    Call::later(async move {
        let (next, items) = match walked(space.ask_linear(op).await) {
            Ok(walked) => walked,
            Err(error) => return error,
        };
        let fits = |item: &&[Got]| matches!(&item[0], Got::Bytes(name) if page.fits(name));
        let shown = |item: &[Got]| item[..if page.names_only { 1 } else { width }].to_vec();
        let shown = items.chunks_exact(width).filter(fits).flat_map(shown).map(plain_one).collect();
        Reply::List(vec![Reply::text(next.to_string()), Reply::List(shown)])
    })
}

/// The next cursor, and what a page has.
pub fn walked(outcome: Outcome<Ran>) -> Result<(i64, Vec<Got>), Reply> {
    match outcome {
        Outcome::Done(Ran::Done(got)) => match only(got) {
            Got::List(mut page) if matches!(page.first(), Some(Got::Int(_))) => {
                let items = page.split_off(1);
                let next = if let Some(Got::Int(next)) = page.first() { *next } else { 0 };
                Ok((next, items))
            }
            other => Err(plain_one(other)),
        },
        other => Err(reply(other, plain)),
    }
}
