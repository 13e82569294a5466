//! The `session` class by cookie and with merged fields. By cookie: a client that holds the cookie of its last
//! acknowledged write reads that value or one it wrote later, while fewer than WQ bricks failed since. Merged: a field
//! that one client set and was acknowledged stays, whatever fields others set in the same document at that time.

use std::collections::{BTreeMap, BTreeSet};

use base::{Outcome, Span, Time};
use state::session::{CookieError, Reply};

use super::load::{self as modes_load, Act, WriteId};
use crate::plays::session::load::{self, LEASE_DEFAULT};
use crate::promises::Broken;

const COOKIE: &str = "the last acknowledged write is readable by its cookie while fewer than 2 of its bricks failed";
const FIELDS: &str = "an acknowledged field stays, whatever others write into the same document";

/// Leases end by clocks that differ by some hundred parts per million, and at a brick's reading of them.
const LEASE_CERTAIN: Span = Span(LEASE_DEFAULT.0 - LEASE_DEFAULT.0 / 500);

/// Cookies say when they end by the wall clock of who made them: it jumps by a minute, perhaps several times in a row.
const CLOCKS_WRONG: Span = Span::secs(300);

/// Whether the lease of what was last written then may be over by now.
fn may_have_ended(last: Time, now: Time) -> bool {
    last + LEASE_CERTAIN <= now
}

#[derive(Default)]
pub struct Modes {
    /// When a node's memory went. With cookies nothing is filled again: a write makes all good.
    failed: Vec<(usize, Time)>,
    /// Failures that may lose a write.
    losing: usize,
    sessions: BTreeMap<String, Session>,
    documents: BTreeMap<String, Document>,
    pub judged: u64,
}

#[derive(Default)]
struct Session {
    /// In order; the same client writes one after the other.
    begun: Vec<WriteId>,
    refused: BTreeSet<WriteId>,
    acked: BTreeSet<WriteId>,
    /// The last acknowledged, and when it began.
    last: Option<(WriteId, Time)>,
}

#[derive(Default)]
struct Document {
    fields: BTreeMap<String, Field>,
    /// When the last acknowledged write began.
    last: Option<Time>,
    /// Its lease may have ended since: what was written before is not promised any more.
    ended: Time,
}

#[derive(Default)]
struct Field {
    begun: BTreeSet<WriteId>,
    refused: BTreeSet<WriteId>,
    /// When it was acknowledged, which, and when it began; in order.
    acked: Vec<(Time, WriteId, Time)>,
}

impl Modes {
    /// For a cluster of so many nodes.
    pub fn of(nodes: usize) -> Self {
        Self { losing: nodes.min(2), ..Self::default() }
    }

    pub fn failed(&mut self, node: usize, at: Time) {
        self.failed.push((node, at));
    }

    fn excuses(&self, since: Time) -> bool {
        let failed: BTreeSet<usize> =
            self.failed.iter().filter(|(_, at)| *at >= since).map(|(node, _)| *node).collect();
        failed.len() >= self.losing
    }

    /// So many bricks failed since the last write by this cookie that nobody may know what comes of it.
    pub fn may_be_lost(&self, act: &Act) -> bool {
        let (Act::Get { session, .. } | Act::Put { session, .. }) = act else { return false };
        let last = self.sessions.get(session).and_then(|session| session.last);
        last.is_some_and(|(_, start)| self.excuses(start))
    }

    pub fn begin(&mut self, act: &Act) {
        match act {
            Act::Put { session, id, .. } => self.sessions.entry(session.clone()).or_default().begun.push(*id),
            Act::Set { document, field, id, .. } => {
                let document = self.documents.entry(document.clone()).or_default();
                document.fields.entry(field.clone()).or_default().begun.insert(*id);
            }
            Act::Get { .. } | Act::Found { .. } | Act::Read { .. } => (),
        }
    }

    /// `void_before`: writes into documents that began before are not promised any more.
    pub fn end(
        &mut self,
        act: &Act,
        start: Time,
        now: Time,
        outcome: &Outcome<Reply>,
        void_before: Time,
    ) -> Result<(), Broken> {
        match act {
            Act::Put { session, id, .. } => self.put(session, *id, start, now, outcome),
            Act::Get { session, .. } => self.get(session, now, outcome),
            Act::Found { .. } => Ok(()),
            Act::Set { document, field, id, .. } => {
                let document = self.documents.get_mut(document).expect("what ends began");
                let field = document.fields.get_mut(field).expect("what ends began");
                match outcome {
                    Outcome::Done(Reply::Stored { .. }) => {
                        field.acked.push((now, *id, start));
                        document.ends(now);
                        document.last = document.last.max(Some(start));
                    }
                    Outcome::Done(_) | Outcome::Refused(_) => drop(field.refused.insert(*id)),
                    Outcome::Unknown(_) => (),
                }
                Ok(())
            }
            Act::Read { document } => self.read(document, start, now, outcome, void_before),
        }
    }

    fn put(&mut self, name: &str, id: WriteId, start: Time, at: Time, outcome: &Outcome<Reply>) -> Result<(), Broken> {
        let session = self.sessions.get_mut(name).expect("what ends began");
        match outcome {
            Outcome::Done(Reply::Stored { .. }) => {
                session.acked.insert(id);
                session.last = Some((id, start));
            }
            Outcome::Done(Reply::BadCookie(CookieError::Expired)) if session.may_have_ended(at) => {
                session.refused.insert(id);
            }
            Outcome::Done(other) => {
                let what = format!("{name}: a put with the client's own cookie gave {other:?}");
                return Err(Broken { promise: COOKIE, at, what });
            }
            Outcome::Refused(_) => drop(session.refused.insert(id)),
            Outcome::Unknown(_) => (),
        }
        Ok(())
    }

    fn get(&mut self, name: &str, at: Time, outcome: &Outcome<Reply>) -> Result<(), Broken> {
        let broken = |what: String| Err(Broken { promise: COOKIE, at, what: format!("{name}: {what}") });
        let session = self.sessions.get(name).expect("a cookie comes from a write");
        let (last, start) = session.last.expect("a cookie comes from a write");
        let Outcome::Done(reply) = outcome else { return Ok(()) };
        self.judged += 1;
        match reply {
            Reply::Value { value, .. } => {
                let (id, intact) = load::written(value);
                if !intact || !session.begun.contains(&id) || session.refused.contains(&id) {
                    return broken(format!("a read shows {id}, intact: {intact}, of {:?}", session.begun));
                }
                // One of which nobody heard may happen at any time after it began.
                if id < last && session.acked.contains(&id) {
                    return broken(format!("a read shows {id}, and {last} was acknowledged"));
                }
                Ok(())
            }
            Reply::Lost | Reply::Absent if self.excuses(start) => Ok(()),
            Reply::Lost | Reply::Absent | Reply::BadCookie(CookieError::Expired) if session.may_have_ended(at) => {
                Ok(())
            }
            other => broken(format!("a read gave {other:?}, {last} of {start:?} was acknowledged")),
        }
    }

    fn read(
        &mut self,
        name: &str,
        start: Time,
        at: Time,
        outcome: &Outcome<Reply>,
        void_before: Time,
    ) -> Result<(), Broken> {
        let broken = |what: String| Err(Broken { promise: FIELDS, at, what: format!("{name}: {what}") });
        let Outcome::Done(reply) = outcome else { return Ok(()) };
        let Some(document) = self.documents.get_mut(name) else { return Ok(()) };
        document.ends(at);
        let void_before = void_before.max(document.ended);
        let shown: BTreeMap<String, WriteId> = match reply {
            Reply::Value { value, .. } => match modes_load::fields(value) {
                Some(fields) => fields.into_iter().collect(),
                None => return broken(format!("a read shows what nobody wrote: {value:?}")),
            },
            Reply::Lost | Reply::Absent => BTreeMap::new(),
            other => return broken(format!("a read gave {other:?}")),
        };
        self.judged += 1;
        for (name, field) in &document.fields {
            let shown = shown.get(name).copied().unwrap_or(0);
            if shown != 0 && (!field.begun.contains(&shown) || field.refused.contains(&shown)) {
                return broken(format!("a read shows write {shown} of {name}, which did not happen"));
            }
            let before = &field.acked[..field.acked.partition_point(|(end, ..)| *end < start)];
            if let Some((end, id, _)) = before.last().filter(|(.., began)| *began > void_before)
                && shown < *id
                // One of which nobody heard may happen at any time after it began.
                && (shown == 0 || field.acked.iter().any(|(_, acked, _)| *acked == shown))
            {
                let what = format!("a read begun at {start:?} shows {shown} of {name}, {id} was acknowledged {end:?}");
                return broken(format!("{what}; it gave {reply:?}"));
            }
        }
        Ok(())
    }
}

impl Session {
    fn may_have_ended(&self, now: Time) -> bool {
        self.last.is_some_and(|(_, start)| may_have_ended(start, now + CLOCKS_WRONG))
    }
}

impl Document {
    fn ends(&mut self, now: Time) {
        if self.last.is_some_and(|last| may_have_ended(last, now)) {
            self.ended = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{NodeId, Span};
    use bytes::Bytes;
    use state::session::Version;

    fn version() -> Version {
        Version { ms: 1, counter: 1, node: NodeId(1) }
    }

    fn stored() -> Outcome<Reply> {
        Outcome::Done(Reply::Stored { version: version(), old: None, cookie: None })
    }

    fn value(value: impl Into<Bytes>) -> Outcome<Reply> {
        Outcome::Done(Reply::Value {
            value: value.into(),
            kind: state::session::Kind::Text,
            version: version(),
            lease_left: Span::secs(1),
        })
    }

    #[test]
    fn what_a_cookie_names_must_be_read_until_two_bricks_failed() {
        let mut modes = Modes::of(3);
        let get = Act::Get { session: "s".into(), cookie: String::new() };
        for id in [1, 2] {
            let put = Act::Put { session: "s".into(), id, cookie: None };
            modes.begin(&put);
            modes.end(&put, Time(id * 10), Time(id * 10 + 5), &stored(), Time::ZERO).unwrap();
        }
        let read = |modes: &mut Modes, outcome| modes.end(&get, Time(50), Time(60), &outcome, Time::ZERO).is_ok();
        assert!(read(&mut modes, value(load::value(2))));
        assert!(!read(&mut modes, value(load::value(1))), "older than acknowledged");
        assert!(!read(&mut modes, value(load::value(3))), "never written");
        modes.failed(0, Time(15));
        modes.failed(1, Time(30));
        assert!(!read(&mut modes, Outcome::Done(Reply::Lost)), "one failed since the last write");
        assert!(!modes.may_be_lost(&get));
        modes.failed(2, Time(40));
        assert!(modes.may_be_lost(&get));
        assert!(read(&mut modes, Outcome::Done(Reply::Lost)));
        let late = Time(LEASE_DEFAULT.0 + 20);
        assert!(modes.end(&get, late, late, &Outcome::Done(Reply::Lost), Time::ZERO).is_ok(), "its lease has ended");
    }

    #[test]
    fn a_field_that_was_acknowledged_must_be_there() {
        let mut modes = Modes::of(3);
        for (field, id) in [("f0", 1), ("f1", 2), ("f0", 3)] {
            let set = Act::Set { document: "d".into(), field: field.into(), id, text: Bytes::new() };
            modes.begin(&set);
            modes.end(&set, Time(id * 10), Time(id * 10 + 5), &stored(), Time::ZERO).unwrap();
        }
        let act = Act::Read { document: "d".into() };
        let mut read = |start, text: &'static str, void| {
            modes.end(&act, Time(start), Time(start + 9), &value(text), Time(void)).is_ok()
        };
        assert!(read(50, "{\"f0\":3,\"f1\":2}", 0));
        assert!(!read(50, "{\"f0\":3}", 0), "the other's field is gone");
        assert!(!read(50, "{\"f0\":1,\"f1\":2}", 0), "an older one came back");
        assert!(read(32, "{\"f0\":1,\"f1\":2}", 0), "the third was under way");
        assert!(!read(50, "{\"f0\":3,\"f1\":9}", 0), "nobody wrote that");
        assert!(read(50, "{\"f0\":3}", 25), "two bricks failed after it");
        let ends = LEASE_DEFAULT.0 + 40;
        assert!(!read(ends - LEASE_DEFAULT.0 / 100, "{\"f0\":3}", 0), "it is there until its lease ends");
        assert!(read(ends, "{\"f0\":3}", 0), "its lease may have ended");
    }
}
