//! The `object` class (O1 to O4 of docs/design/object.md): what was acknowledged and not deleted is there while fewer disks were lost than
//! it had copies, and is never called absent; what was deleted stays deleted; bytes are what they were; and a list that misses nobody
//! has all of it.

use std::collections::{BTreeMap, BTreeSet};

use base::{Outcome, Time};
use state::object::{List, Reply};

use super::load::{Act, Number, body, id, number, owner, size};
use crate::promises::Broken;

pub const KEPT: &str = "an acknowledged object is there while fewer disks were lost than it has copies";
pub const GONE: &str = "an object of which a deletion was acknowledged does not come back";
pub const BYTES: &str = "an object has the bytes that were put";

#[derive(Clone, Copy, Debug)]
struct Acked {
    /// When it was asked, and when it was acknowledged.
    start: Time,
    end: Time,
    copies: u32,
}

/// What is known of one object.
#[derive(Default, Debug)]
struct Known {
    put: Option<Acked>,
    /// Deletions that were asked for, and may have happened.
    deletions: u32,
    deleted: Option<Acked>,
}

#[derive(Default)]
pub struct Objects {
    known: BTreeMap<Number, Known>,
    /// Machines whose disks have forgotten something, and when that was known to be over.
    losses: Vec<(Time, usize)>,
    /// As [`Objects::end`] was told last.
    quiet: Option<Time>,
    pub judged: u64,
}

impl Objects {
    /// It is asked.
    pub fn begin(&mut self, act: &Act) {
        match act {
            Act::Put(number) => _ = self.known.entry(*number).or_default(),
            Act::Delete(number) => self.known.entry(*number).or_default().deletions += 1,
            Act::Get(..) | Act::List(_) => (),
        }
    }

    /// A machine's disk has forgotten some of what it had said to be safe.
    pub fn lost_disk(&mut self, node: usize, now: Time) {
        self.losses.push((now, node));
    }

    /// As many disks were lost since as had it when it was acknowledged.
    fn may_be_lost(&self, acked: &Acked) -> bool {
        let lost = self.losses.iter().filter(|(at, _)| *at >= acked.start).map(|(_, node)| node);
        lost.collect::<BTreeSet<_>>().len() >= acked.copies as usize
    }

    /// It was acknowledged before this moment, no deletion was asked for, and no disks can have taken it with them.
    pub fn must_be_there(&self, number: Number, start: Time) -> bool {
        let known = self.known.get(&number).filter(|known| known.deletions == 0);
        known.and_then(|known| known.put.as_ref()).is_some_and(|put| put.end < start && !self.may_be_lost(put))
    }

    fn must_be_gone(&self, number: Number, start: Time) -> bool {
        let deleted = self.known.get(&number).and_then(|known| known.deleted.as_ref());
        let is_known = |at: Time| self.quiet.is_some_and(|quiet| at < quiet && quiet < start);
        deleted.is_some_and(|deleted| is_known(deleted.end) && !self.may_be_lost(deleted))
    }

    /// Judges what came of an operation. `quiet`: since when there was no fault for so long that all nodes have heard of all that was before; a
    /// deletion that reached one side of a split is not known on the other.
    pub fn end(
        &mut self,
        act: &Act,
        (start, now): (Time, Time),
        quiet: Option<Time>,
        outcome: &Outcome<Reply>,
    ) -> Result<(), Broken> {
        self.quiet = quiet;
        let broken = |promise, what: String| Err(Broken { promise, at: now, what });
        let Outcome::Done(reply) = outcome else { return Ok(()) };
        self.judged += 1;
        let of = |known: Option<&Known>| format!("{act:?} since {start:?} was answered {}; {known:?}", named(reply));
        match (*act, reply) {
            (Act::Put(number), Reply::Stored { copies, .. }) => {
                if self.must_be_gone(number, start) {
                    return broken(GONE, of(self.known.get(&number)));
                }
                let known = self.known.entry(number).or_default();
                known.put.get_or_insert(Acked { start, end: now, copies: *copies });
                Ok(())
            }
            (Act::Delete(number), Reply::Deleted { copies, .. }) => {
                let known = self.known.entry(number).or_default();
                known.deleted.get_or_insert(Acked { start, end: now, copies: *copies });
                Ok(())
            }
            (Act::Put(number) | Act::Get(number, _), Reply::Gone) => {
                let known = self.known.get(&number);
                if known.is_none_or(|known| known.deletions == 0) { broken(KEPT, of(known)) } else { Ok(()) }
            }
            (Act::Get(number, _) | Act::Delete(number), Reply::Absent) => {
                let known = self.known.get(&number);
                let own = u32::from(matches!(act, Act::Delete(_)));
                let put = known.filter(|known| known.deletions == own).and_then(|known| known.put.as_ref());
                let must_be_there = put.is_some_and(|put| put.end < start && !self.may_be_lost(put));
                if must_be_there { broken(KEPT, of(known)) } else { Ok(()) }
            }
            (Act::Get(number, at), Reply::Object { size: whole, body: part, .. }) => {
                if !self.known.contains_key(&number) || u64::from(*whole) != size(number) {
                    return broken(BYTES, of(self.known.get(&number)));
                }
                if self.must_be_gone(number, start) {
                    return broken(GONE, of(self.known.get(&number)));
                }
                let rest = body(number).slice(at as usize..);
                if !rest.starts_with(part) || part.is_empty() != rest.is_empty() {
                    return broken(BYTES, of(self.known.get(&number)));
                }
                Ok(())
            }
            (Act::List(of), Reply::List(list)) => self.listed(of, start, now, list),
            (_, reply) => broken(BYTES, format!("{act:?} was answered {}", named(reply))),
        }
    }

    fn listed(&self, of: u64, start: Time, now: Time, list: &List) -> Result<(), Broken> {
        let broken = |promise, what: String| Err(Broken { promise, at: now, what });
        let mut there = BTreeSet::new();
        for listed in &list.objects {
            let number = number(listed.id);
            let known = self.known.get(&number);
            let is_right = id(number) == listed.id && owner(number) == of && u64::from(listed.size) == size(number);
            if known.is_none() || !is_right {
                return broken(BYTES, format!("{listed:?} is listed of owner {of}"));
            }
            if self.must_be_gone(number, start) {
                return broken(GONE, format!("{number} is listed since {start:?}; {known:?}"));
            }
            there.insert(number);
        }
        if !list.missing.is_empty() || list.after.is_some() {
            return Ok(());
        }
        let of_owner = self.known.keys().filter(|number| owner(**number) == of);
        let missing =
            of_owner.filter(|number| !there.contains(number)).find(|number| self.must_be_there(**number, start));
        match missing {
            Some(number) => broken(
                KEPT,
                format!("{number} is not listed since {start:?}, and nobody was missing; {:?}", self.known[number]),
            ),
            None => Ok(()),
        }
    }
}

fn named(reply: &Reply) -> String {
    crate::plays::object::load::shown(reply)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use state::object::Listed;

    use super::*;

    fn at(n: u64) -> Time {
        Time(n)
    }

    fn stored(copies: u32) -> Outcome<Reply> {
        Outcome::Done(Reply::Stored { version: Default::default(), copies })
    }

    fn deleted() -> Outcome<Reply> {
        Outcome::Done(Reply::Deleted { version: Default::default(), copies: 2 })
    }

    fn object(number: Number, bytes: Bytes) -> Outcome<Reply> {
        let size = size(number) as u32;
        Outcome::Done(Reply::Object { version: Default::default(), size, sum: 0, body: bytes })
    }

    fn list(numbers: &[Number]) -> Outcome<Reply> {
        let listed =
            |number: &Number| Listed { id: id(*number), version: Default::default(), size: size(*number) as u32 };
        Outcome::Done(Reply::List(List { objects: numbers.iter().map(listed).collect(), after: None, missing: vec![] }))
    }

    fn hear(objects: &mut Objects, act: Act, start: u64, outcome: &Outcome<Reply>) -> Result<(), &'static str> {
        objects.begin(&act);
        objects.end(&act, (at(start), at(start + 1)), Some(at(start - 1)), outcome).map_err(|broken| broken.promise)
    }

    /// Objects 1 and 5 are acknowledged, of 9 nobody knows, 13 was deleted. All are of one owner.
    fn some() -> Objects {
        let mut objects = Objects::default();
        for number in [1, 5, 13] {
            hear(&mut objects, Act::Put(number), 1, &stored(2)).unwrap();
        }
        objects.begin(&Act::Put(9));
        hear(&mut objects, Act::Delete(13), 3, &deleted()).unwrap();
        objects
    }

    #[test]
    fn what_was_acknowledged_is_there_with_its_bytes() {
        let absent = Outcome::Done(Reply::Absent);
        let gone = Outcome::Done(Reply::Gone);
        let right = body(1);
        let mut other = right.to_vec();
        other[0] ^= 1;
        for (act, outcome, comes) in [
            (Act::Get(1, 0), object(1, right.clone()), Ok(())),
            (Act::Get(1, 1), object(1, right.slice(1..)), Ok(())),
            (Act::Get(9, 0), absent.clone(), Ok(())),
            (Act::Get(9, 0), object(9, body(9)), Ok(())),
            (Act::Get(13, 0), gone.clone(), Ok(())),
            (Act::List(1), list(&[1, 5]), Ok(())),
            (Act::List(1), list(&[1, 5, 9]), Ok(())),
            (Act::Delete(9), absent.clone(), Ok(())),
            (Act::Get(1, 0), absent.clone(), Err(KEPT)),
            (Act::Get(1, 0), gone.clone(), Err(KEPT)),
            (Act::Put(1), gone, Err(KEPT)),
            (Act::Delete(1), absent, Err(KEPT)),
            (Act::List(1), list(&[1]), Err(KEPT)),
            (Act::Get(1, 0), object(1, other.into()), Err(BYTES)),
            (Act::Get(1, 0), object(1, Bytes::new()), Err(BYTES)),
            (Act::Get(17, 0), object(17, body(17)), Err(BYTES)),
            (Act::List(1), list(&[1, 5, 17]), Err(BYTES)),
            (Act::Get(13, 0), object(13, body(13)), Err(GONE)),
            (Act::Put(13), stored(2), Err(GONE)),
            (Act::List(1), list(&[1, 5, 13]), Err(GONE)),
        ] {
            assert_eq!(hear(&mut some(), act, 8, &outcome), comes, "{act:?} {outcome:?}");
        }
    }

    #[test]
    fn as_many_disks_as_copies_may_take_an_object_with_them() {
        let absent = Outcome::Done(Reply::Absent);
        for (lost, comes) in
            [(vec![(4, 0)], Err(KEPT)), (vec![(4, 0), (4, 0)], Err(KEPT)), (vec![(4, 0), (4, 1)], Ok(()))]
        {
            let mut objects = some();
            lost.into_iter().for_each(|(when, node)| objects.lost_disk(node, at(when)));
            assert_eq!(hear(&mut objects, Act::Get(5, 0), 6, &absent), comes);
        }
        let mut objects = Objects::default();
        hear(&mut objects, Act::Put(2), 1, &stored(1)).unwrap();
        objects.lost_disk(0, at(4));
        assert_eq!(hear(&mut objects, Act::Get(2, 0), 6, &absent), Ok(()), "it was at one node");
    }
}
