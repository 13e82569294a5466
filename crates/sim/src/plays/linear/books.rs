//! Transactions: each moves one from an account of a book to another, and writes its name into the book's journal. So the
//! journal says in which order they happened, and what every account holds and what each of them was told follows from it.

use std::collections::{BTreeMap, BTreeSet};

use base::Time;
use state::linear::Reply;

use super::load::{ACCOUNTS, WriteId};
use super::promise::{LINEAR, ONCE, Write, newest_by, note, number};
use crate::promises::Broken;

pub const WHOLE: &str = "a transaction is seen whole or not at all";

#[derive(Default)]
pub struct Books {
    books: BTreeMap<u64, Book>,
    /// The accounts of each transfer.
    moves: BTreeMap<WriteId, (u64, u64)>,
}

#[derive(Default)]
struct Book {
    /// The longest journal that was read.
    journal: Vec<WriteId>,
    /// How long it was at least, by a moment.
    newest: Vec<(Time, u64)>,
    /// Acknowledged transfers: when they were, and what they were told.
    acked: BTreeMap<WriteId, (Time, Told)>,
}

/// What both accounts held after it, and which of the journal it was, from 1 on.
type Told = (i64, i64, u64);

impl Books {
    /// Before anybody knows what comes of it.
    pub fn begin(&mut self, id: WriteId, accounts: (u64, u64)) {
        self.moves.insert(id, accounts);
    }

    pub fn transferred(&mut self, book: u64, id: WriteId, told: Told, start: Time, now: Time) -> Result<(), Broken> {
        let book = self.books.entry(book).or_default();
        let (_, _, nth) = told;
        let least = newest_by(&book.newest, start);
        if nth <= least {
            let what = format!("transfer {id} was number {nth}, {least} were there before it began");
            return Err(Broken { promise: LINEAR, at: now, what });
        }
        note(&mut book.newest, now, nth);
        book.acked.insert(id, (now, told));
        Ok(())
    }

    pub fn summed(
        &mut self,
        book: u64,
        accounts: &[Reply],
        journal: &[Reply],
        writes: &BTreeMap<WriteId, Write>,
        start: Time,
        now: Time,
    ) -> Result<(), Broken> {
        let broken = |promise, what| Err(Broken { promise, at: now, what });
        let amount = |reply: &Reply| match reply {
            Reply::Nil => Some(0),
            Reply::Bytes(text) => std::str::from_utf8(text).ok()?.parse::<i64>().ok(),
            _ => None,
        };
        let id = |reply: &Reply| if let Reply::Bytes(text) = reply { number(text) } else { None };
        let held: Option<Vec<i64>> = accounts.iter().map(amount).collect();
        let ids: Option<Vec<WriteId>> = journal.iter().map(id).collect();
        let (Some(held), Some(ids)) = (held, ids) else {
            return broken(WHOLE, format!("book {book} holds {accounts:?} and {journal:?}"));
        };
        let kept = self.books.entry(book).or_default();
        let least = newest_by(&kept.newest, start);
        if (ids.len() as u64) < least {
            return broken(LINEAR, format!("book {book} had {} transfers, {least} were there before", ids.len()));
        }
        let (short, long) = if ids.len() < kept.journal.len() { (&ids, &kept.journal) } else { (&kept.journal, &ids) };
        if !long.starts_with(short) {
            return broken(ONCE, format!("the journal of book {book} was {short:?} and {long:?}"));
        }
        if ids.iter().collect::<BTreeSet<_>>().len() != ids.len() {
            return broken(ONCE, format!("a transfer happened twice: the journal of book {book} is {ids:?}"));
        }
        if let Some(id) = ids.iter().find(|id| writes.get(id).is_none_or(|write| write.refused)) {
            return broken(ONCE, format!("the journal of book {book} holds {id}, which was refused or nobody made"));
        }
        if let Some((id, _)) = kept.acked.iter().find(|(id, (by, _))| *by < start && !ids.contains(id)) {
            return broken(ONCE, format!("transfer {id} was acknowledged, and is not in book {book}: {ids:?}"));
        }
        let mut follows = [0i64; ACCOUNTS as usize];
        for (nth, id) in ids.iter().enumerate() {
            let Some((from, to)) = self.moves.get(id).copied() else {
                return broken(ONCE, format!("the journal of book {book} holds {id}, which was no transfer"));
            };
            follows[from as usize] -= 1;
            let first = follows[from as usize];
            follows[to as usize] += 1;
            let told = kept.acked.get(id).map(|(_, told)| *told);
            let should = (first, follows[to as usize], nth as u64 + 1);
            if told.is_some_and(|told| told != should) {
                return broken(WHOLE, format!("transfer {id} was told {told:?}, after the journal it is {should:?}"));
            }
        }
        if held != follows {
            return broken(WHOLE, format!("book {book} holds {held:?}, after its journal it would be {follows:?}"));
        }
        note(&mut kept.newest, now, ids.len() as u64);
        if ids.len() > kept.journal.len() {
            kept.journal = ids;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn text(n: i64) -> Reply {
        Reply::Bytes(Bytes::from(n.to_string()))
    }

    /// Two transfers from account 0 to 1, told this; then what is in the book.
    fn check(told: [Told; 2], held: [i64; 4], journal: &[i64]) -> Option<&'static str> {
        let mut books = Books::default();
        let mut writes = BTreeMap::new();
        for (n, told) in told.into_iter().enumerate() {
            let (id, at) = (n as u64 + 1, Time(10 * n as u64 + 1));
            writes.insert(id, Write { start: at, refused: false });
            books.begin(id, (0, 1));
            if let Err(broken) = books.transferred(7, id, told, at, Time(at.0 + 1)) {
                return Some(broken.promise);
            }
        }
        writes.insert(9, Write { start: Time(1), refused: true });
        let journal: Vec<_> = journal.iter().copied().map(text).collect();
        books.summed(7, &held.map(text), &journal, &writes, Time(50), Time(51)).err().map(|broken| broken.promise)
    }

    #[test]
    fn what_does_not_follow_from_the_journal_is_seen() {
        let told = [(-1, 1, 1), (-2, 2, 2)];
        assert_eq!(check(told, [-2, 2, 0, 0], &[1, 2]), None);
        assert_eq!(check(told, [-1, 1, 0, 0], &[1, 2]), Some(WHOLE), "half of them");
        assert_eq!(check(told, [-1, 2, 0, 0], &[1, 2]), Some(WHOLE), "half of one");
        assert_eq!(check(told, [-1, 1, 0, 0], &[1]), Some(LINEAR), "lost whole");
        assert_eq!(check(told, [-3, 3, 0, 0], &[1, 2, 2]), Some(ONCE), "twice");
        assert_eq!(check(told, [-2, 2, 0, 0], &[2, 1]), Some(WHOLE), "in another order than they were told");
        assert_eq!(check([(-1, 1, 1), (-2, 2, 1)], [-2, 2, 0, 0], &[1, 2]), Some(LINEAR), "the same place twice");
        assert_eq!(check([(-1, 1, 1), (-1, 2, 2)], [-2, 2, 0, 0], &[1, 2]), Some(WHOLE), "told what was not");
        assert_eq!(check(told, [-3, 3, 0, 0], &[1, 2, 9]), Some(ONCE), "it was refused");
    }
}
