//! Writes that happen once although they are asked several times, at whatever node: the caller gives a write an id, and the
//! group keeps what came of it. A node's own retries have ids of their own (`space.rs`); this is for callers whose node may die
//! before it answers.
//!
//! - The id is a UUID of version 7 (RFC 9562): it begins with the time at which it was made. So nothing need be kept for ever:
//!   a group forgets by that time, and an id of which it may have forgotten something is not done.
//! - Answers lie in tables, one for each second of the ids' time. What is too old goes as whole tables, and snapshots and
//!   splits share them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base::checksum::place_hash;
use uuid::{Uuid, Variant};

use super::limits::{ONCE_AHEAD, ONCE_ANSWER_BYTES_MAX, ONCE_KEPT, ONCES_BYTES_MAX, ONCES_MAX};
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
    /// Ids of before this second are forgotten.
    floor: u64,
    tables: BTreeMap<u64, Arc<Table>>,
    len: usize,
    bytes: usize,
}

type Table = BTreeMap<Uuid, Kept>;

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

/// When an id was made, milliseconds.
fn made(id: Uuid) -> u64 {
    (id.as_u128() >> 80) as u64
}

impl Onces {
    pub fn known(&self, once: &Once) -> Option<Known> {
        let second = made(once.id) / 1_000;
        if second < self.floor {
            return Some(Known::Forgotten);
        }
        let kept = self.tables.get(&second)?.get(&once.id)?;
        Some(if kept.of == once.of { Known::Ran(kept.ran.clone()) } else { Known::Reused })
    }

    /// Was it made so much later than now that it would be kept for longer than others?
    pub fn is_early(once: &Once, clock: u64) -> bool {
        made(once.id) > clock + ONCE_AHEAD.as_millis()
    }

    pub fn keep(&mut self, once: &Once, ran: &Ran) {
        let ran = Some(ran).filter(|ran| ran.bytes() <= ONCE_ANSWER_BYTES_MAX).cloned();
        self.restore(once.id, Kept { of: once.of, ran });
        while self.len > ONCES_MAX || self.bytes > ONCES_BYTES_MAX {
            let Some((second, table)) = self.tables.pop_first() else { break };
            self.floor = second + 1;
            self.without(&table);
        }
    }

    /// Forgets what is older than it need be known.
    pub fn forget(&mut self, clock: u64) {
        self.floor = self.floor.max(clock.saturating_sub(ONCE_KEPT.as_millis()) / 1_000);
        while let Some(first) = self.tables.first_entry()
            && *first.key() < self.floor
        {
            let table = first.remove();
            self.without(&table);
        }
    }

    fn without(&mut self, table: &Table) {
        self.len = self.len.saturating_sub(table.len());
        self.bytes = self.bytes.saturating_sub(table.values().map(Kept::bytes).sum());
    }

    pub fn floor(&self) -> u64 {
        self.floor
    }

    pub fn from_floor(floor: u64) -> Self {
        Self { floor, ..Self::default() }
    }

    pub fn restore(&mut self, id: Uuid, kept: Kept) {
        let bytes = kept.bytes();
        let table = Arc::make_mut(self.tables.entry(made(id) / 1_000).or_default());
        if table.insert(id, kept).is_none() {
            self.len += 1;
            self.bytes += bytes;
        }
    }

    /// All of them as they are now, by id, made when they are asked for.
    pub fn all(&self) -> impl Iterator<Item = (Uuid, Kept)> + Send + use<> {
        let tables: Vec<Arc<Table>> = self.tables.values().cloned().collect();
        tables.into_iter().flat_map(|table| {
            let mut last = Bound::Unbounded;
            std::iter::from_fn(move || {
                let (id, kept) = table.range((last, Bound::Unbounded)).next()?;
                last = Bound::Excluded(*id);
                Some((*id, kept.clone()))
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
    use crate::linear::op::Reply;

    fn at(ms: u64, n: u64) -> Once {
        let id = Uuid::from_u128(u128::from(ms) << 80 | 7 << 76 | 2 << 62 | u128::from(n));
        Once { id, of: 1 }
    }

    fn done(n: i64) -> Ran {
        Ran::Done(vec![Reply::Int(n)])
    }

    #[test]
    fn ids_are_of_version_7() {
        let good = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(made(parse(good).unwrap()), 0x0189_0a5d_ac96);
        assert_eq!(parse(&format!("\"{good}\"")), parse(good), "as a header has it");
        assert!(parse("9f1b2c3d-0000-4000-8000-000000000000").unwrap_err().contains("version 4"));
        assert!(parse("order-17").unwrap_err().contains("no UUID"));
        assert!(parse("").is_err());
    }

    #[test]
    fn an_id_is_known_until_its_time_is_over_and_never_done_after() {
        let (mut onces, once) = (Onces::default(), at(1_000_000, 1));
        onces.forget(1_000_000);
        assert_eq!(onces.known(&once), None);
        onces.keep(&once, &done(7));
        let kept = ONCE_KEPT.as_millis();
        onces.forget(1_000_000 + kept);
        assert_eq!(onces.known(&once), Some(Known::Ran(Some(done(7)))));
        assert_eq!(onces.known(&Once { of: 2, ..once }), Some(Known::Reused));
        onces.forget(1_001_000 + kept);
        assert_eq!(onces.known(&once), Some(Known::Forgotten));
        assert_eq!((onces.len, onces.bytes), (0, 0));
        assert!(Onces::is_early(&at(2_000_000, 1), 1_000_000) && !Onces::is_early(&once, 1_000_000));
    }

    #[test]
    fn so_many_are_kept_and_the_oldest_give_way() {
        let mut onces = Onces::default();
        let large = Ran::Done(vec![Reply::Bytes(vec![0; ONCE_ANSWER_BYTES_MAX - 100].into())]);
        let most = (ONCES_BYTES_MAX / ONCE_ANSWER_BYTES_MAX) as u64;
        (0..most + 2).for_each(|n| onces.keep(&at(n * 1_000, n), &large));
        assert!(onces.bytes <= ONCES_BYTES_MAX, "{}", onces.bytes);
        assert_eq!(onces.known(&at(0, 0)), Some(Known::Forgotten), "not done a second time");
        assert!(matches!(onces.known(&at((most + 1) * 1_000, most + 1)), Some(Known::Ran(Some(_)))));
        let too_large = Ran::Done(vec![Reply::Bytes(vec![0; ONCE_ANSWER_BYTES_MAX + 1].into())]);
        let last = at((most + 2) * 1_000, 0);
        onces.keep(&last, &too_large);
        assert_eq!(onces.known(&last), Some(Known::Ran(None)));
    }
}
