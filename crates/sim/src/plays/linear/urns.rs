//! Sets that are filled, and drawn from by a number that is drawn itself; sorted sets, of which the lowest are drawn. Each item that was
//! put in is drawn once, or is there.

use std::collections::{BTreeMap, BTreeSet};

use base::Time;
use state::linear::Reply;

use super::load::{DRAWN_AT_ONCE, WriteId};
use super::promise::{LINEAR, ONCE, Write, number};
use crate::promises::Broken;

#[derive(Default)]
pub struct Urns(BTreeMap<String, Urn>);

#[derive(Default)]
struct Urn {
    /// When it was known to be there.
    filled: BTreeMap<WriteId, Time>,
    /// By which drawing, and when that was known.
    drawn: BTreeMap<WriteId, (WriteId, Time)>,
    /// Drawings of which nobody knows yet what they drew.
    open: BTreeSet<WriteId>,
}

impl Urns {
    pub fn begin(&mut self, urn: &str, drawing: WriteId) {
        self.0.entry(urn.to_owned()).or_default().open.insert(drawing);
    }

    /// It did not happen.
    pub fn refused(&mut self, urn: &str, drawing: WriteId) {
        self.0.entry(urn.to_owned()).or_default().open.remove(&drawing);
    }

    pub fn filled(&mut self, urn: &str, id: WriteId, now: Time) {
        self.0.entry(urn.to_owned()).or_default().filled.insert(id, now);
    }

    pub fn drew(
        &mut self,
        urn: &str,
        drawing: WriteId,
        items: &[Reply],
        writes: &BTreeMap<WriteId, Write>,
        (start, now): (Time, Time),
    ) -> Result<(), Broken> {
        let broken = |promise, what| Err(Broken { promise, at: now, what });
        let of = self.0.entry(urn.to_owned()).or_default();
        of.open.remove(&drawing);
        for id in known(items, writes, urn, now)? {
            if let Some((other, _)) = of.drawn.insert(id, (drawing, now)) {
                return broken(ONCE, format!("{id} was drawn from {urn} by {other} and by {drawing}"));
            }
        }
        if items.len() > DRAWN_AT_ONCE {
            return broken(LINEAR, format!("{drawing} drew {} items from {urn}", items.len()));
        }
        if items.len() < DRAWN_AT_ONCE {
            // Nothing was left.
            of.check(urn, &BTreeSet::new(), start, now)?;
        }
        Ok(())
    }

    pub fn seen(
        &mut self,
        urn: &str,
        items: &[Reply],
        writes: &BTreeMap<WriteId, Write>,
        (start, now): (Time, Time),
    ) -> Result<(), Broken> {
        let ids = known(items, writes, urn, now)?;
        let of = self.0.entry(urn.to_owned()).or_default();
        if let Some(id) = ids.iter().find(|id| of.drawn.get(id).is_some_and(|(_, by)| *by < start)) {
            return Err(Broken { promise: ONCE, at: now, what: format!("{id} was drawn from {urn}, and is there") });
        }
        of.check(urn, &ids, start, now)
    }
}

impl Urn {
    /// All that was there before `start` is in `left`, or was drawn.
    fn check(&self, urn: &str, left: &BTreeSet<WriteId>, start: Time, now: Time) -> Result<(), Broken> {
        let is_gone = |id: &WriteId| !left.contains(id) && !self.drawn.contains_key(id);
        let gone: Vec<WriteId> =
            self.filled.iter().filter(|(id, by)| **by < start && is_gone(id)).map(|(id, _)| *id).collect();
        if gone.len() > self.open.len() * DRAWN_AT_ONCE {
            let what = format!("{gone:?} are not in {urn}, and {} drawings may have drawn them", self.open.len());
            return Err(Broken { promise: ONCE, at: now, what });
        }
        Ok(())
    }
}

/// The items of a sorted set, with their scores; none, if these are not what they should be, or not in order.
pub fn in_order(reply: &Reply) -> Option<Vec<Reply>> {
    let (items, scores): (Vec<_>, Vec<_>) = match reply {
        Reply::Nil => (Vec::new(), Vec::new()),
        Reply::List(flat) => flat.chunks(2).map(|pair| (pair[0].clone(), pair.get(1).cloned())).unzip(),
        Reply::Int(_) | Reply::Bytes(_) | Reply::Wrong(_) => return None,
    };
    let numbers: Option<Vec<u64>> =
        scores.iter().map(|score| if let Some(Reply::Bytes(bytes)) = score { number(bytes) } else { None }).collect();
    let are_theirs = items.iter().zip(&scores).all(|(item, score)| Some(item) == score.as_ref());
    numbers.filter(|numbers| are_theirs && numbers.is_sorted()).map(|_| items)
}

/// The items by name, each of which somebody has put in.
fn known(
    items: &[Reply],
    writes: &BTreeMap<WriteId, Write>,
    urn: &str,
    now: Time,
) -> Result<BTreeSet<WriteId>, Broken> {
    let broken = |promise, what| Err(Broken { promise, at: now, what });
    let mut ids = BTreeSet::new();
    for item in items {
        let Some(id) = (if let Reply::Bytes(text) = item { number(text) } else { None }) else {
            return broken(LINEAR, format!("{urn} has {item:?}"));
        };
        if writes.get(&id).is_none_or(|write| write.refused) {
            return broken(ONCE, format!("{urn} has {id}, which was refused or nobody put there"));
        }
        if !ids.insert(id) {
            return broken(ONCE, format!("{urn} has {id} twice"));
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const URN: &str = "u";

    fn items(ids: &[WriteId]) -> Vec<Reply> {
        ids.iter().map(|id| Reply::Bytes(Bytes::from(id.to_string()))).collect()
    }

    /// An urn with 1 to 4, of which 5 is about to draw, and 6 of which nobody hears.
    fn urns() -> (Urns, BTreeMap<WriteId, Write>) {
        let mut urns = Urns::default();
        let writes = (1..=5).map(|id| (id, Write { start: Time(1), refused: id == 5 })).collect();
        (1..=4).for_each(|id| urns.filled(URN, id, Time(2)));
        [5, 6].into_iter().for_each(|drawing| urns.begin(URN, drawing));
        (urns, writes)
    }

    /// What 5 draws, and what is seen afterwards; by then it is known what 6 drew, if it did.
    fn check(drawn: &[WriteId], other: Option<&[WriteId]>, left: &[WriteId]) -> Option<&'static str> {
        let (mut urns, writes) = urns();
        let mut run = || {
            urns.drew(URN, 5, &items(drawn), &writes, (Time(3), Time(4)))?;
            match other {
                Some(other) => urns.drew(URN, 6, &items(other), &writes, (Time(3), Time(5)))?,
                None => urns.refused(URN, 6),
            }
            urns.seen(URN, &items(left), &writes, (Time(6), Time(7)))
        };
        run().err().map(|broken: Broken| broken.promise)
    }

    #[test]
    fn items_that_vanish_are_drawn_twice_or_come_back_are_seen() {
        assert_eq!(check(&[1, 2], Some(&[3, 4]), &[]), None);
        assert_eq!(check(&[1, 2], None, &[3, 4]), None);
        assert_eq!(check(&[1, 2], None, &[3]), Some(ONCE), "one is lost");
        assert_eq!(check(&[1, 2], Some(&[2, 3]), &[4]), Some(ONCE), "drawn twice");
        assert_eq!(check(&[1, 2], None, &[2, 3, 4]), Some(ONCE), "it came back");
        assert_eq!(check(&[1, 2], None, &[3, 3, 4]), Some(ONCE), "twice there");
        assert_eq!(check(&[1], None, &[2, 3, 4]), Some(ONCE), "another drawing has two of the three that were left");
        assert_eq!(check(&[1, 2, 3], None, &[4]), Some(LINEAR), "more than were wanted");
        assert_eq!(check(&[1, 5], None, &[2, 3, 4]), Some(ONCE), "it was refused");
    }

    #[test]
    fn a_drawing_of_which_nobody_hears_may_have_drawn() {
        let (mut urns, writes) = urns();
        urns.drew(URN, 5, &items(&[1, 2]), &writes, (Time(3), Time(4))).unwrap();
        for (left, expect) in [(&[3, 4][..], None), (&[], None)] {
            let seen = urns.seen(URN, &items(left), &writes, (Time(6), Time(7)));
            assert_eq!(seen.err().map(|broken| broken.promise), expect);
        }
        urns.refused(URN, 6);
        assert!(urns.seen(URN, &[], &writes, (Time(6), Time(7))).is_err());
    }

    #[test]
    fn what_comes_of_a_sorted_set_is_in_order() {
        let flat = |numbers: &[u64]| Reply::List(items(numbers));
        assert_eq!(in_order(&Reply::Nil), Some(vec![]));
        assert_eq!(in_order(&flat(&[1, 1, 4, 4])), Some(items(&[1, 4])));
        for wrong in [flat(&[4, 4, 1, 1]), flat(&[1, 2]), flat(&[1, 1, 4]), Reply::Int(1)] {
            assert_eq!(in_order(&wrong), None, "{wrong:?}");
        }
    }
}
