//! Profiles, as they are kept in a namespace of class `sql`: a table for each that is declared, a row for each person. A read sees all that
//! was acknowledged before it, at whichever node: of what a node has read it keeps a copy in a cache of its own, and a change is
//! acknowledged when no node gives a copy from before it any more ([`forget`]; `cache/src/lease.rs` says how that is known).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use base::{Outcome, Priority, Refused, Span, Unknown};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use clones::ProfileSpec;
use node::{Answer, Ask};
use serde_json::{Map, Value, json};
use state::cache::{self, Act, Mark, What};
use state::linear::functions::sql::{QUERY, answer};
use state::linear::{Op, Ran, Step};
use state::sql::{Failure, Kind};

use crate::ask::{Backend, Gone};
use crate::wall::wall_ms;

/// A copy is kept for so long. A change whose node died before it answered is seen everywhere when this is over.
const KEPT: Span = Span::secs(30);
/// A copy is kept, or not, within this: nobody waits for it.
const KEEP_BUDGET: Span = Span::secs(1);
/// People whose profiles a node remembers, for when they cannot be read: 3 KB each at most.
const REMEMBERED: usize = 4_096;

/// What one person wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Higher with each change.
    pub version: i64,
    pub profile: Map<String, Value>,
}

impl Stored {
    /// As it goes with a request.
    pub fn coded(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&self.profile).expect("JSON that was read becomes JSON"))
    }

    /// As it is kept at a node: the version, the profile.
    fn copied(&self) -> Bytes {
        let mut copy = BytesMut::new();
        copy.put_i64(self.version);
        copy.put_slice(&serde_json::to_vec(&self.profile).expect("JSON that was read becomes JSON"));
        copy.freeze()
    }

    fn of_copy(mut copy: Bytes) -> Option<Self> {
        let version = copy.try_get_i64().ok()?;
        Some(Self { version, profile: serde_json::from_slice(&copy).ok()? })
    }

    /// A row of a table: version and profile.
    pub fn of_row(row: &Value) -> Option<Self> {
        let profile = serde_json::from_str(row.get(1)?.as_str()?).ok()?;
        Some(Self { version: row.get(0)?.as_i64()?, profile })
    }
}

/// The table of a profile.
pub fn table(name: &str) -> String {
    format!("\"profile_{name}\"")
}

/// There is no table yet: nobody has one.
pub fn is_nobodys(failure: &Failure) -> bool {
    failure.kind == Kind::Sql && failure.why.contains("no such table")
}

/// What reads one.
pub fn query(name: &str, id: &str) -> Value {
    json!([format!("select version, profile from {} where id = ?1", table(name)), [id]])
}

/// The row that a query gives, if there is one.
pub fn found(json: &[u8]) -> Option<Stored> {
    let answer: Value = serde_json::from_slice(json).ok()?;
    Stored::of_row(answer["rows"].get(0)?)
}

/// Reads one.
///
/// # Errors
/// Why it cannot be read now.
pub async fn read(
    backend: &dyn Backend,
    namespace: &str,
    (name, id): (&str, &str),
    class: u8,
    budget: Span,
) -> Result<Option<Stored>, String> {
    let args = [wall_ms().to_string(), "0".to_owned(), query(name, id).to_string()].map(Bytes::from);
    let step = Step::new(Bytes::from_static(b"database"), QUERY, args.into());
    let op = Op { priority: Priority::of_ten(class), ..Op::of(namespace.into(), vec![step]) };
    match backend.ask(Ask::Linear(op), budget).await {
        Ok(Answer::Linear(Outcome::Done(Ran::Done(mut replies)))) => match replies.pop().and_then(answer) {
            Some(Ok(json)) => Ok(found(&json)),
            Some(Err(failure)) if is_nobodys(&failure) => Ok(None),
            Some(Err(failure)) => Err(failure.why),
            None => Err("its leader answered with what is no row".into()),
        },
        Ok(Answer::Linear(Outcome::Refused(Refused { why, .. }) | Outcome::Unknown(Unknown { why }))) => Err(why),
        Ok(_) => Err("its leader answered with something else".into()),
        Err(Gone) => Err("the node stopped".into()),
    }
}

fn of_cache(namespace: &str, person: (&str, &str), act: Act) -> Ask {
    Ask::Cache(cache::Op::new(ProfileSpec::kept_in(namespace).into(), key(person), act))
}

fn key((name, id): (&str, &str)) -> Bytes {
    format!("{name}/{id}").into()
}

/// The copy that this node has, if it has one: also of who has no profile. Else the mark with which what is read from now on may be kept.
pub async fn kept(
    backend: &dyn Backend,
    namespace: &str,
    person: (&str, &str),
    budget: Span,
) -> (Option<Option<Stored>>, Option<Mark>) {
    match backend.ask(of_cache(namespace, person, Act::ReadHere), budget).await {
        Ok(Answer::Cache(Outcome::Done(cache::Reply::Read { entry: Some(entry), .. }))) if entry.value.is_empty() => {
            (Some(None), None)
        }
        Ok(Answer::Cache(Outcome::Done(cache::Reply::Read { entry, mark }))) => {
            (entry.and_then(|entry| Stored::of_copy(entry.value)).map(Some), mark)
        }
        _ => (None, None),
    }
}

/// Keeps what was read after a mark was given.
pub async fn keep(
    backend: Arc<dyn Backend>,
    namespace: String,
    (name, id): (String, String),
    stored: Option<Stored>,
    mark: Mark,
) {
    let value = stored.map_or_else(Bytes::new, |stored| stored.copied());
    // Nothing is lost if it is not.
    let _ =
        backend.ask(of_cache(&namespace, (&name, &id), Act::KeepHere { value, ttl: KEPT, mark }), KEEP_BUDGET).await;
}

/// What was changed: the profile of one person, or any of a namespace.
pub enum Changed<'a> {
    Of(&'a str, &'a str),
    Any,
}

/// Has all nodes give up their copies: no request that begins after this has returned gets one from before.
///
/// # Errors
/// Why it is not sure that they did.
pub async fn forget(backend: &dyn Backend, namespace: &str, changed: Changed<'_>, budget: Span) -> Result<(), String> {
    let what = match changed {
        Changed::Of(name, id) => What::Key(key((name, id))),
        Changed::Any => What::All,
    };
    let op = cache::Op::new(ProfileSpec::kept_in(namespace).into(), Bytes::new(), Act::Purge(what));
    match backend.ask(Ask::Cache(op), budget).await {
        Ok(Answer::Cache(Outcome::Done(_))) => Ok(()),
        Ok(Answer::Cache(Outcome::Refused(Refused { why, .. }) | Outcome::Unknown(Unknown { why }))) => Err(why),
        Ok(_) => Err("the cache answered with something else".into()),
        Err(Gone) => Err("the node stopped".into()),
    }
}

/// What this node has seen last of some people: also of those who have none.
#[derive(Default)]
pub struct Seen(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    by_person: HashMap<Arc<str>, Option<Stored>>,
    order: VecDeque<Arc<str>>,
}

impl Seen {
    pub fn put(&self, (name, id): (&str, &str), stored: Option<Stored>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let person: Arc<str> = format!("{name}/{id}").into();
        if inner.by_person.insert(Arc::clone(&person), stored).is_none() {
            inner.order.push_back(person);
        }
        while inner.order.len() > REMEMBERED {
            let oldest = inner.order.pop_front();
            oldest.map(|oldest| inner.by_person.remove(&oldest));
        }
    }

    /// None: this node has not seen it.
    pub fn get(&self, (name, id): (&str, &str)) -> Option<Option<Stored>> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.by_person.get(&*format!("{name}/{id}")).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_last_is_remembered_for_so_many() {
        let (seen, stored) = (Seen::default(), |version| Some(Stored { version, profile: Map::new() }));
        assert_eq!(seen.get(("a", "b")), None);
        seen.put(("a", "b"), stored(1));
        seen.put(("a", "b"), stored(2));
        assert_eq!(seen.get(("a", "b")), Some(stored(2)));
        seen.put(("a", "none"), None);
        assert_eq!(seen.get(("a", "none")), Some(None));
        (0..REMEMBERED).for_each(|n| seen.put(("x", &n.to_string()), stored(1)));
        assert_eq!((seen.get(("a", "b")), seen.get(("x", "0"))), (None, Some(stored(1))));
        assert_eq!(seen.0.lock().unwrap().by_person.len(), REMEMBERED);
    }

    #[test]
    fn rows_are_read_and_what_is_none_is_not() {
        let row = found(br#"{"columns": ["version", "profile"], "rows": [[3, "{\"grey\": true}"]]}"#).unwrap();
        assert_eq!((row.version, row.profile["grey"].clone()), (3, Value::Bool(true)));
        assert_eq!(Stored::of_copy(row.copied()), Some(row.clone()));
        for odd in ["", "1234567", "12345678", "12345678[]"] {
            assert_eq!(Stored::of_copy(odd.into()), None, "{odd}");
        }
        assert_eq!(row.coded(), URL_SAFE_NO_PAD.encode(r#"{"grey":true}"#));
        for odd in [
            "",
            "{}",
            r#"{"rows": []}"#,
            r#"{"rows": [[1]]}"#,
            r#"{"rows": [["1", "{}"]]}"#,
            r#"{"rows": [[1, "[]"]]}"#,
        ] {
            assert_eq!(found(odd.as_bytes()), None, "{odd}");
        }
    }
}
