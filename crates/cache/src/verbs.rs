//! Operations and what an owner says of them, as the messages of `wire.rs`. Numbers are never used twice.

use base::Span;
use base::checksum::Checksum;
use bytes::Bytes;

use super::Act;
use super::limits::{FETCH_MAX, TTL_MS_MAX};
use super::store::Value;
use super::wire::{self, AnswerMessage, AskMessage, MarkMessage, ValueMessage};

/// What an owner says.
#[derive(Debug)]
pub enum End {
    Found(Value, Option<Span>),
    Absent,
    Stored,
    NotStored,
    Changed(bool),
    /// It does not own the key, or not yet.
    Moved,
    Unleased,
    /// Somebody else fetches it.
    Fetched,
}

pub const GET: u32 = 1;
pub const LOOK: u32 = 2;
pub const SET: u32 = 3;
pub const SET_PRESENT: u32 = 4;
pub const REMOVE: u32 = 5;
pub const END_AFTER: u32 = 6;
pub const END_NEVER: u32 = 7;
pub const TAKE: u32 = 8;
pub const COUNT: u32 = 9;
pub const FETCH: u32 = 10;

pub const FOUND: u32 = 1;
pub const ABSENT: u32 = 2;
pub const STORED: u32 = 3;
pub const NOT_STORED: u32 = 4;
pub const CHANGED: u32 = 5;
pub const MOVED: u32 = 6;
pub const UNLEASED: u32 = 7;
pub const COUNTED: u32 = 8;
pub const FETCHED: u32 = 9;

pub fn ask_message(namespace: u32, key: &Bytes, act: &Act) -> (AskMessage, Bytes) {
    let plain = |verb| AskMessage { namespace, verb, key: key.clone(), ..AskMessage::default() };
    match act {
        Act::Get | Act::Read => (plain(GET), Bytes::new()),
        Act::Look => (plain(LOOK), Bytes::new()),
        Act::Fetch(within) => (AskMessage { ttl_ms: wire::millis_up(*within), ..plain(FETCH) }, Bytes::new()),
        Act::Set { value, kind, tags, ttl, only_present, mark } => {
            let sum = Checksum::of(value).0;
            let value = Value { bytes: value.clone(), kind: kind.clone(), sum, ends: None, tags: tags.clone() };
            let (message, body) = ValueMessage::of(&value, *ttl);
            let verb = if *only_present { SET_PRESENT } else { SET };
            (AskMessage { value: Some(message), mark: mark.map(MarkMessage::of), ..plain(verb) }, body)
        }
        Act::Remove => (plain(REMOVE), Bytes::new()),
        Act::End(Some(ttl)) => (AskMessage { ttl_ms: wire::millis_up(*ttl), ..plain(END_AFTER) }, Bytes::new()),
        Act::End(None) => (plain(END_NEVER), Bytes::new()),
        Act::Count | Act::Purge(_) => unreachable!("these go to all nodes, not to the one of a key"),
        Act::ReadHere | Act::KeepHere { .. } => unreachable!("these go to no other node"),
    }
}

/// None: no such operation, or one that no door lets through.
pub fn act_of(ask: AskMessage, body: Bytes) -> Option<Act> {
    if ask.key.is_empty() {
        return None;
    }
    let ttl = |ms: u64| (ms <= TTL_MS_MAX).then(|| (ms > 0).then(|| Span::millis(ms)));
    match ask.verb {
        GET => Some(Act::Get),
        LOOK => Some(Act::Look),
        FETCH => Some(Act::Fetch(Span::millis(ask.ttl_ms).min(FETCH_MAX))),
        SET | SET_PRESENT => {
            let message = ask.value?;
            let ttl = ttl(message.ttl_ms)?;
            let Value { bytes, kind, tags, .. } = message.take(body)?;
            let mark = ask.mark.map(MarkMessage::take);
            Some(Act::Set { value: bytes, kind, tags, ttl, only_present: ask.verb == SET_PRESENT, mark })
        }
        REMOVE => Some(Act::Remove),
        END_AFTER => ttl(ask.ttl_ms).map(Act::End),
        END_NEVER => Some(Act::End(None)),
        _ => None,
    }
}

pub fn answer_message(end: End) -> (AnswerMessage, Bytes) {
    let plain = |end| (AnswerMessage { end, ..AnswerMessage::default() }, Bytes::new());
    match end {
        End::Found(value, left) => {
            let (message, body) = ValueMessage::of(&value, left);
            (AnswerMessage { end: FOUND, value: Some(message), ..AnswerMessage::default() }, body)
        }
        End::Absent => plain(ABSENT),
        End::Stored => plain(STORED),
        End::NotStored => plain(NOT_STORED),
        End::Changed(there) => {
            (AnswerMessage { end: CHANGED, number: u64::from(there), ..AnswerMessage::default() }, Bytes::new())
        }
        End::Moved => plain(MOVED),
        End::Unleased => plain(UNLEASED),
        End::Fetched => plain(FETCHED),
    }
}

pub fn end_of(answer: AnswerMessage, body: Bytes) -> Option<End> {
    Some(match answer.end {
        FOUND => {
            let message = answer.value?;
            let left = (message.ttl_ms > 0).then_some(Span::millis(message.ttl_ms.min(TTL_MS_MAX)));
            End::Found(message.take(body)?, left)
        }
        ABSENT => End::Absent,
        STORED => End::Stored,
        NOT_STORED => End::NotStored,
        CHANGED => End::Changed(answer.number > 0),
        MOVED => End::Moved,
        UNLEASED => End::Unleased,
        FETCHED => End::Fetched,
        _ => return None,
    })
}
