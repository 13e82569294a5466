//! Reads and writes in namespaces that declare `merge = "fields"`, where `merge` says what becomes of a document: marks
//! are put on and taken off here, and a write that brings its mark back becomes a read, a merge and a conditional write,
//! again and again until no other writer was in between.

use std::collections::VecDeque;

use base::{Refused, Span};
use bytes::Bytes;

use super::doc::Doc;
use super::limits::{FIELDS_MAX, PLAIN_NOTED_EVERY, WRITERS_FIELDS_MAX};
use super::merge::{Base, marked, merge, take_mark};
use super::op::{Action, Reply, When};
use super::ops::Running;
use super::table::Value;
use super::{Call, Kind, Session};
use base::hash::FixedMap;

/// What a write is going to merge.
#[derive(Debug)]
pub(super) struct Merge {
    base: Base,
    new: Doc,
    reader: u64,
    /// What it comes to, with the document that was there when it was last looked.
    pub result: Bytes,
}

/// What readers wrote last: one that saves twice (a web socket that keeps its session) goes on from its own document and
/// not from the one it had read. Where this is not known (another node, too long ago) its older changes count again.
#[derive(Default)]
pub(super) struct Writers {
    wrote: FixedMap<u64, Base>,
    /// In order of time.
    order: VecDeque<u64>,
    fields: usize,
}

impl Writers {
    fn remember(&mut self, reader: u64, base: Base) {
        self.fields += base.len() + 1;
        match self.wrote.insert(reader, base) {
            Some(before) => self.fields -= before.len() + 1,
            None => self.order.push_back(reader),
        }
        while self.fields > WRITERS_FIELDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.fields -= self.wrote.remove(&oldest).map_or(0, |base| base.len() + 1);
        }
    }
}

impl Session {
    /// Takes the mark off a document that is put. If it was read under this key, the put is to merge.
    pub(super) fn begin_merge(&mut self, call: &mut Call, name: &str, op: &mut Running) -> Result<(), Refused> {
        let Action::Put { value, kind: Kind::Text, .. } = &mut op.action else { return Ok(()) };
        let Some(mut doc) = Doc::parse(value) else {
            self.figures.plain += 1;
            if self.plain_noted.is_none_or(|at| call.now.since(at) >= PLAIN_NOTED_EVERY) {
                self.plain_noted = Some(call.now);
                call.warn(format!(
                    "namespace {name} merges fields, but was given a value that is neither a JSON object nor a \
                     MessagePack map of at most {FIELDS_MAX} fields: of such values the last one written stays"
                ));
            }
            return Ok(());
        };
        let Some(mark) = take_mark(&mut doc) else { return Ok(()) };
        let mark = mark.map_err(|e| Refused::wrong(e.to_string()))?;
        *value = doc.write();
        if mark.is_of(&op.key.bytes) {
            let base = self.writers.wrote.get(&mark.reader).cloned().unwrap_or(mark.base);
            op.merge = Some(Box::new(Merge { base, new: doc, reader: mark.reader, result: Bytes::new() }));
        }
        Ok(())
    }

    /// A text as it is handed out.
    pub(super) fn hand_out(&mut self, op: &Running, value: Bytes) -> Bytes {
        match Doc::parse(&value) {
            Some(doc) if doc.len() < FIELDS_MAX => marked(&doc, &op.key.bytes, self.rng.u64()),
            _ => value,
        }
    }

    /// Merges with what is there now. `Some`: how the operation ends instead.
    pub(super) fn merge_with(
        &mut self,
        op: &mut Running,
        there: Option<&Value>,
        lost: bool,
    ) -> Option<Result<Reply, Refused>> {
        let merging = op.merge.as_deref_mut()?;
        let Some(there) = there else {
            let blind = matches!(&op.action, Action::Put { when: When::Always, .. });
            if blind && !lost {
                // The session was ended after it was read: by a logout, say. It must not come back.
                self.figures.ended += 1;
                return Some(Ok(Reply::NotStored { version: None, old: None }));
            }
            merging.result = merging.new.write();
            return None;
        };
        let Some(current) =
            Some(there).filter(|there| there.kind == Kind::Text).and_then(|there| Doc::parse(&there.bytes))
        else {
            merging.result = merging.new.write();
            return None;
        };
        let merged = merge(&merging.base, &merging.new, &current);
        self.figures.merged += u64::from(Base::of(&current) != merging.base);
        merging.result = merged.write();
        let (len, max) = (merging.result.len(), base::limits::SESSION_VALUE_BYTES_MAX);
        let why = || {
            format!("with the fields that others have written meanwhile the value has {len} bytes; {max} are possible")
        };
        (len > max).then(|| Err(Refused::wrong(why())))
    }

    /// A merged document was acknowledged.
    pub(super) fn merge_done(&mut self, op: &mut Running) {
        if let Some(merging) = op.merge.take() {
            self.writers.remember(merging.reader, Base::of(&merging.new));
        }
    }
}

const _: () = assert!(PLAIN_NOTED_EVERY.0 > Span::ZERO.0, "one note for each write would be a flood");
