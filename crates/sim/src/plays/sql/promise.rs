//! The `sql` class: a batch that was acknowledged is in every read that begins after that, whole and once; one that was not done is in
//! none; who saw a row sees it again; and a row is the same whichever replica shows it, with what it drew and when.

use std::collections::{BTreeMap, BTreeSet};

use base::{Outcome, Time};
use serde_json::Value;
use state::linear::functions::sql::answer;
use state::linear::{Ran, Reply, Wrong};
use state::sql::Kind;

use super::load::Act;
use crate::promises::Broken;

pub const KEPT: &str = "an acknowledged batch of class sql is in all reads that begin after it";
pub const ONCE: &str = "a batch of class sql happens once, whole, or not at all";
pub const SAME: &str = "all replicas of class sql show the same";

/// What is known of the rows.
#[derive(Default)]
pub struct Sql {
    /// When each was first known to be there: acknowledged, or seen in a read that has ended.
    there: BTreeMap<u64, Time>,
    asked: BTreeSet<u64>,
    /// Never to be seen.
    undone: BTreeSet<u64>,
    /// What it drew and when, as it was seen first.
    shown: BTreeMap<u64, (Value, Value)>,
    /// Totals that were seen, and when such a read had ended.
    totals: BTreeMap<Time, u64>,
    pub judged: u64,
}

impl Sql {
    /// It is asked.
    pub fn begin(&mut self, act: &Act) {
        self.asked.extend(act.id());
    }

    /// Judges what came of an operation; the total, if it was a read.
    pub fn end(&mut self, act: &Act, start: Time, now: Time, outcome: Outcome<Ran>) -> Result<Option<u64>, Broken> {
        let broken = |promise, what: String| Err(Broken { promise, at: now, what });
        let reply = match outcome {
            Outcome::Done(Ran::Done(mut replies)) if replies.len() == 1 => replies.remove(0),
            Outcome::Done(other) => return broken(ONCE, format!("{act:?} was answered by {other:?}")),
            Outcome::Refused(_) => {
                self.undone.extend(act.id());
                return Ok(None);
            }
            Outcome::Unknown(_) => return Ok(None),
        };
        // It may have happened.
        if reply == Reply::Wrong(Wrong::Undone) {
            return Ok(None);
        }
        self.judged += 1;
        match (act, answer(reply)) {
            (Act::Add { id, .. } | Act::AddIf { id, .. }, Some(Ok(_))) => {
                self.there.entry(*id).or_insert(now);
                Ok(None)
            }
            (Act::AddIf { id, .. }, Some(Err(failure))) if failure.kind == Kind::Unmet => {
                self.undone.insert(*id);
                Ok(None)
            }
            // Nobody has made the tables yet.
            (Act::Read { .. }, Some(Err(failure))) if failure.kind == Kind::Sql && self.totals.is_empty() => {
                match self.there.values().any(|there| *there < start) {
                    true => broken(KEPT, format!("{failure:?} although something was acknowledged")),
                    false => Ok(None),
                }
            }
            (Act::Read { behind }, Some(Ok(json))) => {
                let read: Value = serde_json::from_slice(&json).unwrap_or_default();
                let rows = read["rows"].as_array().cloned().unwrap_or_default();
                self.read(*behind, start, now, &rows).map(Some)
            }
            (act, other) => broken(ONCE, format!("{act:?} ended with {other:?}")),
        }
    }

    fn read(&mut self, behind: u64, start: Time, now: Time, rows: &[Value]) -> Result<u64, Broken> {
        let broken = |promise, what: String| Err(Broken { promise, at: now, what });
        let Some(total) = rows.first().and_then(|row| row[0].as_u64()) else {
            return broken(KEPT, format!("a read has no total: {rows:?}"));
        };
        if rows.iter().any(|row| row[0] != row[1]) {
            return broken(ONCE, format!("{} rows are counted as {total}", rows[0][1]));
        }
        if let Some(before) =
            self.totals.range(..start).next_back().map(|(_, before)| *before).filter(|had| *had > total)
        {
            return broken(KEPT, format!("there are {total} rows, and were {before}"));
        }
        let mut seen = BTreeSet::new();
        for row in rows.iter().filter(|row| !row[2].is_null()) {
            let id = row[2].as_u64().unwrap_or(0);
            if !seen.insert(id) || !self.asked.contains(&id) || self.undone.contains(&id) {
                return broken(ONCE, format!("row {id} is there, and must not be"));
            }
            let is = (row[3].clone(), row[4].clone());
            let was = self.shown.entry(id).or_insert_with(|| is.clone());
            if *was != is {
                return broken(SAME, format!("row {id} was {was:?} and is {is:?}"));
            }
        }
        if let Some((id, at)) = self.there.range(behind + 1..).find(|(id, at)| **at < start && !seen.contains(*id)) {
            return broken(KEPT, format!("row {id}, known since {at:?}, is not in a read that began at {start:?}"));
        }
        for id in seen {
            self.there.entry(id).or_insert(now);
        }
        let most = self.totals.range(..=now).next_back().map_or(0, |(_, before)| *before).max(total);
        self.totals.insert(now, most);
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use state::sql::Failure;

    use super::*;

    fn at(n: u64) -> Time {
        Time(n)
    }

    fn done(json: &Value) -> Outcome<Ran> {
        Outcome::Done(Ran::Done(vec![Reply::List(vec![Reply::Bytes(json.to_string().into())])]))
    }

    fn failed(kind: Kind) -> Outcome<Ran> {
        let said = serde_json::to_vec(&Failure { kind, statement: None, why: String::new() }).unwrap();
        Outcome::Done(Ran::Done(vec![Reply::List(vec![Reply::Nil, Reply::Bytes(said.into())])]))
    }

    fn add(id: u64) -> Act {
        Act::Add { id, seed: 1 }
    }

    /// Rows 1 and 2 are acknowledged, 3 is not met, 4 is unknown; 5 was never asked.
    fn with_rows() -> Sql {
        let mut sql = Sql::default();
        let unmet = Act::AddIf { id: 3, total: 9, seed: 1 };
        for (act, outcome) in [
            (add(1), done(&json!({}))),
            (add(2), done(&json!({}))),
            (unmet, failed(Kind::Unmet)),
            (add(4), Outcome::Unknown(base::Unknown { why: String::new() })),
        ] {
            sql.begin(&act);
            assert_eq!(sql.end(&act, at(1), at(2), outcome), Ok(None));
        }
        sql
    }

    fn read(sql: &mut Sql, start: u64, rows: Value) -> Result<Option<u64>, &'static str> {
        let outcome = done(&json!({ "rows": rows }));
        sql.end(&Act::Read { behind: 0 }, at(start), at(start + 1), outcome).map_err(|broken| broken.promise)
    }

    #[test]
    fn what_was_acknowledged_is_there_once_and_the_same() {
        let two = json!([[2, 2, 1, 7, "a"], [2, 2, 2, 8, "b"]]);
        let three = json!([[3, 3, 1, 7, "a"], [3, 3, 2, 8, "b"], [3, 3, 4, 9, "c"]]);
        let mut sql = with_rows();
        assert_eq!(read(&mut sql, 5, two.clone()), Ok(Some(2)));
        assert_eq!(read(&mut sql, 7, three.clone()), Ok(Some(3)), "it had happened");
        assert_eq!(read(&mut sql, 7, two.clone()), Ok(Some(2)), "beside the one that saw it");
        assert_eq!(read(&mut sql, 9, two.clone()), Err(KEPT), "who saw a row sees it again");
        for (rows, promise) in [
            (json!([[1, 1, 1, 7, "a"]]), KEPT),
            (json!([]), KEPT),
            (json!([[3, 2, 1, 7, "a"], [3, 2, 2, 8, "b"]]), ONCE),
            (json!([[3, 3, 1, 7, "a"], [3, 3, 2, 8, "b"], [3, 3, 3, 9, "c"]]), ONCE),
            (json!([[3, 3, 1, 7, "a"], [3, 3, 2, 8, "b"], [3, 3, 5, 9, "c"]]), ONCE),
            (json!([[2, 2, 1, 7, "a"], [2, 2, 2, 9, "b"]]), SAME),
        ] {
            let mut sql = with_rows();
            read(&mut sql, 5, two.clone()).unwrap();
            assert_eq!(read(&mut sql, 7, rows.clone()), Err(promise), "{rows}");
        }
    }

    #[test]
    fn a_batch_that_was_done_twice_is_seen() {
        let mut sql = with_rows();
        sql.begin(&add(6));
        let twice = sql.end(&add(6), at(3), at(4), failed(Kind::Constraint)).unwrap_err();
        assert_eq!(twice.promise, ONCE);
    }
}
