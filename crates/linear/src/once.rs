//! Writes that happen once although they are asked several times, at whatever node: the caller gives a write an id, and the
//! group keeps what came of it. A node's own retries have ids of their own (`space.rs`); this is for callers whose node may die
//! before it answers.
//!
//! - The id is a UUID of version 7 (RFC 9562): it begins with the time at which it was made. Answers lie in tables, one for
//!   each second of that time. A table goes when nothing has come into it for long, by the group's clock; snapshots and splits
//!   share tables.
//! - Nothing of a second whose table has gone is done any more: it may have been done before. So clocks of callers may be as
//!   wrong as they like, and a wrong one harms only who has it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use base::checksum::place_hash;
use bytes::Bytes;
use uuid::{Uuid, Variant};

use super::limits::{ONCE_ANSWER_BYTES_MAX, ONCE_KEPT, ONCES_BYTES_MAX, ONCES_CLOSED_MAX, ONCES_MAX};
use super::op::{Condition, Ran, Step};
use super::wire;

/// What a caller calls its write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Once {
    pub id: Uuid,
    /// A hash of what is to be done: an id is for one thing only.
    pub of: u64,
}

/// What is known of an id.
#[derive(Clone, PartialEq, Debug)]
pub enum Known {
    /// It was done; none: its answer was too large to be kept.
    Ran(Option<Ran>),
    /// It may have been done, so long ago that nothing is known of it any more.
    Forgotten,
    /// It is the id of something else.
    Reused,
}

#[derive(Clone, Default)]
pub struct Onces {
    tables: BTreeMap<u64, Arc<Table>>,
    /// When something came into a table last, by the group's clock, and which.
    touched: BTreeSet<(u64, u64)>,
    /// Seconds whose tables have gone: from, and up to without. Apart from each other.
    closed: BTreeMap<u64, u64>,
    len: usize,
    bytes: usize,
}

#[derive(Clone, Default)]
struct Table {
    kept: BTreeMap<Uuid, Kept>,
    touched: u64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Kept {
    pub of: u64,
    /// None: it was too large.
    pub ran: Option<Ran>,
}

/// An answer's overhead in memory, about.
const KEPT_BYTES: usize = 96;

impl Once {
    pub fn new(id: Uuid, conditions: &[Condition], steps: &[Step]) -> Self {
        Self { id, of: place_hash(&wire::encode_steps(conditions, steps)) }
    }

    /// Of what a front door computes.
    pub fn of_call(id: Uuid, function: &str, args: &[Bytes]) -> Self {
        let step = Step { key: Bytes::copy_from_slice(function.as_bytes()), function: "", args: args.to_vec() };
        Self::new(id, &[], &[step])
    }

    /// As functions take it.
    pub fn args(&self) -> [Bytes; 2] {
        [Bytes::copy_from_slice(self.id.as_bytes()), Bytes::copy_from_slice(&self.of.to_be_bytes())]
    }
}

/// The id that a caller has written down.
pub fn parse(text: &str) -> Result<Uuid, String> {
    let id = Uuid::try_parse(text.trim_matches('"')).map_err(|error| format!("{text:?} is no UUID: {error}"))?;
    match id.get_version_num() {
        7 if id.get_variant() == Variant::RFC4122 => Ok(id),
        other => Err(format!(
            "{text:?} is a UUID of version {other}: one of version 7 is needed, which says when it was made"
        )),
    }
}

/// The second in which an id was made.
fn second(id: Uuid) -> u64 {
    (id.as_u128() >> 80) as u64 / 1_000
}

impl Onces {
    pub fn known(&self, once: &Once) -> Option<Known> {
        let second = second(once.id);
        if self.closed.range(..=second).next_back().is_some_and(|(_, upto)| second < *upto) {
            return Some(Known::Forgotten);
        }
        let kept = self.tables.get(&second)?.kept.get(&once.id)?;
        Some(if kept.of == once.of { Known::Ran(kept.ran.clone()) } else { Known::Reused })
    }

    /// What came of it, at this moment of the group's clock.
    pub fn keep(&mut self, once: &Once, ran: &Ran, clock: u64) {
        let ran = Some(ran).filter(|ran| ran.bytes() <= ONCE_ANSWER_BYTES_MAX).cloned();
        self.restore(once.id, Kept { of: once.of, ran }, clock);
        while self.len > ONCES_MAX || self.bytes > ONCES_BYTES_MAX {
            let Some((_, second)) = self.touched.pop_first() else { break };
            self.close(second);
        }
    }

    /// Forgets what is older than it need be known.
    pub fn forget(&mut self, clock: u64) {
        while let Some((touched, second)) = self.touched.first().copied()
            && touched + ONCE_KEPT.as_millis() < clock
        {
            self.touched.pop_first();
            self.close(second);
        }
    }

    fn close(&mut self, second: u64) {
        let Some(table) = self.tables.remove(&second) else { return };
        self.len = self.len.saturating_sub(table.kept.len());
        self.bytes = self.bytes.saturating_sub(table.kept.values().map(Kept::bytes).sum());
        self.close_range(second, second + 1);
        // Of many, those go together that are next to each other: what lies between counts as forgotten, too.
        if self.closed.len() > ONCES_CLOSED_MAX {
            let pairs = self.closed.iter().zip(self.closed.keys().skip(1));
            let nearest = pairs.map(|((from, upto), next)| (next - upto, *from, *next)).min();
            if let Some((_, from, next)) = nearest {
                self.close_range(from, next);
            }
        }
    }

    /// Joins it to those that it touches.
    pub fn close_range(&mut self, mut from: u64, mut upto: u64) {
        while let Some((has, to)) = self.closed.range(..=upto).next_back().map(|(has, to)| (*has, *to))
            && to >= from
        {
            (from, upto) = (from.min(has), upto.max(to));
            self.closed.remove(&has);
        }
        self.closed.insert(from, upto);
    }

    pub fn closed(&self) -> &BTreeMap<u64, u64> {
        &self.closed
    }

    pub fn restore(&mut self, id: Uuid, kept: Kept, clock: u64) {
        let (second, bytes) = (second(id), kept.bytes());
        let table = Arc::make_mut(self.tables.entry(second).or_default());
        self.touched.remove(&(table.touched, second));
        table.touched = table.touched.max(clock);
        self.touched.insert((table.touched, second));
        self.bytes += bytes;
        match table.kept.insert(id, kept) {
            None => self.len += 1,
            Some(old) => self.bytes -= old.bytes(),
        }
    }

    /// All of them as they are now, and when their tables were touched; made when they are asked for.
    pub fn all(&self) -> impl Iterator<Item = (Uuid, Kept, u64)> + Send + use<> {
        let tables: Vec<Arc<Table>> = self.tables.values().cloned().collect();
        tables.into_iter().flat_map(|table| {
            let mut last = Bound::Unbounded;
            std::iter::from_fn(move || {
                let (id, kept) = table.kept.range((last, Bound::Unbounded)).next()?;
                last = Bound::Excluded(*id);
                Some((*id, kept.clone(), table.touched))
            })
        })
    }
}

impl Kept {
    pub fn bytes(&self) -> usize {
        KEPT_BYTES + self.ran.as_ref().map_or(0, Ran::bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Reply;

    fn at(second: u64, n: u64) -> Once {
        let id = Uuid::from_u128(u128::from(second * 1_000) << 80 | 7 << 76 | 2 << 62 | u128::from(n));
        Once { id, of: 1 }
    }

    fn done(n: i64) -> Ran {
        Ran::Done(vec![Reply::Int(n)])
    }

    #[test]
    fn ids_are_of_version_7() {
        let good = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(second(parse(good).unwrap()), 0x0189_0a5d_ac96 / 1_000);
        assert_eq!(parse(&format!("\"{good}\"")), parse(good), "as a header has it");
        assert!(parse("9f1b2c3d-0000-4000-8000-000000000000").unwrap_err().contains("version 4"));
        assert!(parse("order-17").unwrap_err().contains("no UUID"));
        assert!(parse("").is_err());
    }

    #[test]
    fn an_id_is_known_for_its_time_and_never_done_after() {
        let (mut onces, once, later) = (Onces::default(), at(500, 1), at(500, 2));
        assert_eq!(onces.known(&once), None);
        onces.keep(&once, &done(7), 1_000);
        onces.keep(&later, &done(8), 9_000);
        let kept = ONCE_KEPT.as_millis();
        onces.forget(9_000 + kept);
        assert_eq!(onces.known(&once), Some(Known::Ran(Some(done(7)))));
        assert_eq!(onces.known(&Once { of: 2, ..once }), Some(Known::Reused));
        onces.forget(9_001 + kept);
        assert_eq!(onces.known(&once), Some(Known::Forgotten));
        assert_eq!(onces.known(&at(500, 3)), Some(Known::Forgotten), "it may have been there");
        assert_eq!((onces.known(&at(499, 1)), onces.known(&at(501, 1))), (None, None), "those were not");
        assert_eq!((onces.len, onces.bytes, onces.touched.len()), (0, 0, 0));
    }

    #[test]
    fn a_wrong_clock_harms_nobody_else() {
        let mut onces = Onces::default();
        let kept = ONCE_KEPT.as_millis();
        // Ten a second, one of them by a clock that is years ahead; for an hour.
        for n in 0..3_600u64 {
            let clock = n * 1_000;
            onces.forget(clock);
            onces.keep(&at(1_000_000 + n * 2, n), &done(1), clock);
            onces.keep(&at(90_000_000 + n * 7, n), &done(1), clock);
            assert_eq!(onces.known(&at(1_000_001 + n * 2, n)), None, "what comes next is new");
            assert!(onces.len as u64 <= 2 * (kept / 1_000 + 2) && onces.closed.len() <= ONCES_CLOSED_MAX);
        }
        assert_eq!(onces.known(&at(1_000_000, 0)), Some(Known::Forgotten));
        assert_eq!(onces.known(&at(90_000_000, 0)), Some(Known::Forgotten));
    }

    #[test]
    fn what_takes_the_place_of_another_is_counted_for_it() {
        let (mut onces, long) = (Onces::default(), Ran::Done(vec![Reply::Bytes(vec![0; 500].into())]));
        onces.keep(&at(1, 1), &long, 0);
        onces.keep(&at(1, 1), &done(1), 0);
        assert_eq!((onces.len, onces.bytes), (1, KEPT_BYTES + done(1).bytes()));
    }

    #[test]
    fn so_many_are_kept_and_the_oldest_give_way() {
        let mut onces = Onces::default();
        let large = Ran::Done(vec![Reply::Bytes(vec![0; ONCE_ANSWER_BYTES_MAX - 100].into())]);
        let most = (ONCES_BYTES_MAX / ONCE_ANSWER_BYTES_MAX) as u64;
        (0..most + 2).for_each(|n| onces.keep(&at(n, n), &large, n));
        assert!(onces.bytes <= ONCES_BYTES_MAX, "{}", onces.bytes);
        assert_eq!(onces.known(&at(0, 0)), Some(Known::Forgotten), "not done a second time");
        assert!(matches!(onces.known(&at(most + 1, most + 1)), Some(Known::Ran(Some(_)))));
        let too_large = Ran::Done(vec![Reply::Bytes(vec![0; ONCE_ANSWER_BYTES_MAX + 1].into())]);
        let last = at(most + 2, 0);
        onces.keep(&last, &too_large, most + 2);
        assert_eq!(onces.known(&last), Some(Known::Ran(None)));
    }
}
