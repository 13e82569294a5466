//! Answers of class `cache` that are given again without asking the node's machine, which lives on another thread: what this node has
//! itself, and is asked for again and again. They are the machine's own values, not copies of their bytes; whether one still holds says
//! `cache/src/near.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base::checksum::place_hash;
use base::{Span, Time};
use bytes::Bytes;
use state::cache::{Act, Entry, Mark, Moment, Near, Op, Reply};

/// Shelves, so that threads seldom wait for each other.
const SHELVES: usize = 16;
/// Bytes of values on one shelf: they stay while the machine has let them go.
const SHELF_BYTES_MAX: usize = 1 << 20;
const SHELF_KEPT_MAX: usize = 256;
/// Bytes of a value.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// After so many the machine is asked, so that it knows that something is asked for: it lets go what is not.
const GIVEN_MAX: u32 = 64;

pub struct Shelves {
    near: Near,
    shelves: [Mutex<Shelf>; SHELVES],
}

#[derive(Default)]
struct Shelf {
    kept: HashMap<Place, Kept>,
    bytes: usize,
}

/// Namespace, key, and whether it is this node's own copy of what another one may own: the two are entries of their own.
type Place = (Arc<str>, Bytes, bool);

struct Kept {
    entry: Entry,
    mark: Mark,
    moment: Moment,
    /// Before it was asked for.
    at: Time,
    given: u32,
}

/// What was asked for, and when: its answer may be kept.
pub struct Asked {
    place: Place,
    moment: Moment,
    at: Time,
}

impl Shelves {
    pub fn new(near: Near) -> Self {
        Self { near, shelves: std::array::from_fn(|_| Mutex::default()) }
    }

    fn shelf(&self, key: &[u8]) -> &Mutex<Shelf> {
        &self.shelves[place_hash(key) as usize / 256 % SHELVES]
    }

    /// The answer, if it is here; or what is to be said when it has come. `now`: on the machine's clock.
    pub fn give(&self, now: Time, op: &Op) -> Result<Reply, Option<Asked>> {
        if !matches!(op.act, Act::Read | Act::ReadHere) {
            return Err(None);
        }
        let place = (Arc::clone(&op.namespace), op.key.clone(), matches!(op.act, Act::ReadHere));
        let mut shelf = self.shelf(&op.key).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = shelf.kept.get_mut(&place) {
            kept.given += 1;
            let passed = now.since(kept.at);
            let left = kept.entry.ttl_left.map(|left| left.0.saturating_sub(passed.0));
            let holds = self.near.holds(now, &op.key, kept.moment) && left != Some(0) && kept.given < GIVEN_MAX;
            if holds {
                self.near.hit();
                let entry = Entry { ttl_left: left.map(Span), ..kept.entry.clone() };
                return Ok(Reply::Read { entry: Some(entry), mark: Some(kept.mark) });
            }
            shelf.take(&place);
        }
        let moment = self.near.moment(&op.key);
        Err(Some(Asked { place, moment, at: now }))
    }

    pub fn keep(&self, asked: Asked, reply: &Reply) {
        let Reply::Read { entry: Some(entry), mark: Some(mark) } = reply else { return };
        if !self.near.is_here(*mark) || entry.value.len() > VALUE_BYTES_MAX {
            return;
        }
        let Asked { place, moment, at } = asked;
        let mut shelf = self.shelf(&place.1).lock().unwrap_or_else(PoisonError::into_inner);
        shelf.take(&place);
        if shelf.kept.len() >= SHELF_KEPT_MAX || shelf.bytes + entry.value.len() > SHELF_BYTES_MAX {
            *shelf = Shelf::default();
        }
        shelf.bytes += entry.value.len();
        shelf.kept.insert(place, Kept { entry: entry.clone(), mark: *mark, moment, at, given: 0 });
    }
}

impl Shelf {
    fn take(&mut self, place: &Place) {
        if let Some(kept) = self.kept.remove(place) {
            self.bytes -= kept.entry.value.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use base::NodeId;

    use super::*;

    fn read(value: &str, ttl_left: Option<Span>) -> Reply {
        let value = Bytes::copy_from_slice(value.as_bytes());
        let entry = Entry { value, kind: Bytes::new(), tags: Vec::new(), ttl_left };
        Reply::Read { entry: Some(entry), mark: Some(Mark { node: NodeId(0), life: 1, number: 1 }) }
    }

    #[test]
    fn an_answer_is_given_again_while_it_holds_and_not_for_ever() {
        let near = Near::for_tests(Time(100));
        let shelves = Shelves::new(near.clone());
        let op = |key: &str, act| Op::new("pages".into(), Bytes::copy_from_slice(key.as_bytes()), act);
        let front = op("front", Act::Read);
        assert!(matches!(shelves.give(Time(0), &op("front", Act::Get)), Err(None)), "it is not for others");
        let Err(Some(asked)) = shelves.give(Time(10), &front) else { panic!() };
        shelves.keep(asked, &read("old", Some(Span(50))));
        assert_eq!(shelves.give(Time(30), &front).ok(), Some(read("old", Some(Span(30)))), "as long as it would live");
        assert!(shelves.give(Time(60), &front).is_err(), "it has ended");
        let Err(Some(asked)) = shelves.give(Time(10), &front) else { panic!() };
        shelves.keep(asked, &read("old", None));
        assert!(shelves.give(Time(20), &op("front", Act::ReadHere)).is_err(), "the node's own copy is another entry");
        assert!(shelves.give(Time(20), &front).is_ok());
        near.changed_in_tests(b"front");
        assert!(shelves.give(Time(20), &front).is_err(), "something has happened to it");
        // Of what is large, or another node's, nothing is kept; and after the leases nothing is given.
        let Reply::Read { entry, .. } = read("other", None) else { panic!() };
        let elsewhere = Reply::Read { entry, mark: Some(Mark { node: NodeId(7), life: 1, number: 1 }) };
        for reply in [read(&"x".repeat(VALUE_BYTES_MAX + 1), None), elsewhere] {
            let Err(Some(asked)) = shelves.give(Time(20), &front) else { panic!() };
            shelves.keep(asked, &reply);
            assert!(shelves.give(Time(20), &front).is_err());
        }
        let Err(Some(asked)) = shelves.give(Time(20), &front) else { panic!() };
        shelves.keep(asked, &read("old", None));
        assert!(shelves.give(Time(99), &front).is_ok() && shelves.give(Time(100), &front).is_err());
        // The machine hears of what is asked for.
        let Err(Some(asked)) = shelves.give(Time(20), &front) else { panic!() };
        shelves.keep(asked, &read("old", None));
        let given = (0..1_000).take_while(|_| shelves.give(Time(20), &front).is_ok()).count();
        assert_eq!(given, GIVEN_MAX as usize - 1);
        // However many there are, they take little.
        for n in 0..20_000 {
            let op = op(&n.to_string(), Act::Read);
            let Err(Some(asked)) = shelves.give(Time(20), &op) else { panic!() };
            shelves.keep(asked, &read(&"x".repeat(9_000), None));
        }
        let shelves = shelves.shelves.iter().map(|shelf| shelf.lock().unwrap());
        for shelf in shelves {
            let bytes: usize = shelf.kept.values().map(|kept| kept.entry.value.len()).sum();
            assert!(shelf.bytes == bytes && bytes <= SHELF_BYTES_MAX && shelf.kept.len() <= SHELF_KEPT_MAX);
        }
    }
}
