//! The `linear` class: every operation happens at one moment between its start and its end, what was acknowledged stays,
//! nothing happens twice, and a transaction is seen whole or not at all.
//!
//! For keys that are written and read, the versions that the class itself gives make the check exact and cheap: a write
//! names its version, a read the version it saw. Real time must agree with the order of versions, a version has one value,
//! and a value its write. Lists hold the names of the pushes that made them. Transactions are for `books`, what ends for `ends`,
//! what is drawn for `urns`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use base::{Outcome, Span, Time};
use state::linear::{Ran, Reply};

use super::books::Books;
use super::ends::Ends;
use super::jobs::Jobs;
use super::load::{Act, WriteId, is_watched};
use super::urns::{self, Urns};
use crate::promises::Broken;

pub const LINEAR: &str = "every operation of class linear happens at one moment between its start and its end";
pub const ONCE: &str = "an acknowledged write of class linear stays, and no write happens twice";
const STALE: &str = "a stale read of class linear is not older than it says, nor than it may be";
const WATCH: &str = "who watches class linear is told each change once, in order";

#[derive(Default)]
pub struct Linear {
    keys: BTreeMap<String, Key>,
    lists: BTreeMap<String, List>,
    writes: BTreeMap<WriteId, Write>,
    /// The newest version of any key that was acknowledged by a moment.
    newest: Vec<(Time, u64)>,
    /// What watchers were told: of each version its key and write.
    told: BTreeMap<u64, (String, WriteId)>,
    /// Versions up to the second are told, from behind the first on. Apart from each other.
    covered: BTreeMap<u64, u64>,
    books: Books,
    ends: Ends,
    urns: Urns,
    jobs: Jobs,
    /// It has several shards: versions of different keys say nothing of each other.
    wide: bool,
    /// Operations that were compared with others.
    pub judged: u64,
}

#[derive(Default)]
struct Key {
    /// The write that made a version.
    made: BTreeMap<u64, WriteId>,
    /// The newest version that was acknowledged or read by a moment, in order.
    newest: Vec<(Time, u64)>,
}

#[derive(Default)]
struct List {
    /// The longest that was read.
    seen: Vec<WriteId>,
    /// How long it was at least, by a moment.
    newest: Vec<(Time, u64)>,
    /// Acknowledged pushes, and when they were.
    acked: BTreeMap<WriteId, Time>,
}

pub struct Write {
    pub start: Time,
    pub refused: bool,
}

pub fn newest_by(newest: &[(Time, u64)], start: Time) -> u64 {
    let after = newest.partition_point(|(by, _)| *by < start);
    after.checked_sub(1).map_or(0, |at| newest[at].1)
}

pub fn note(newest: &mut Vec<(Time, u64)>, now: Time, value: u64) {
    if newest.last().is_none_or(|(_, last)| *last < value) {
        newest.push((now, value));
    }
}

impl Linear {
    /// Of a namespace with several shards.
    pub fn wide() -> Self {
        Self { wide: true, ..Self::default() }
    }

    /// Since when nothing disturbs the clocks of groups; none while something may.
    pub fn calm_since(&mut self, since: Option<Time>) {
        self.ends.calm_since(since);
        self.jobs.calm_since(since);
    }

    pub fn begin(&mut self, act: &Act, start: Time) {
        if let Some(id) = named(act) {
            self.writes.insert(id, Write { start, refused: false });
        }
        if let Act::Transfer { from, to, id, .. } = act {
            self.books.begin(*id, (*from, *to));
        }
        if let Act::Draw { urn, id } = act {
            self.urns.begin(urn, *id);
        }
        self.ends.begin(act, start);
        self.jobs.begin(act);
    }

    /// The version that a read of this key saw; for the client.
    pub fn version_of(ran: &Ran) -> Option<u64> {
        match ran {
            Ran::Done(replies) => match replies.first()? {
                Reply::List(list) => match list.get(1)? {
                    Reply::Int(version) => Some(*version as u64),
                    _ => None,
                },
                Reply::Nil => Some(0),
                _ => None,
            },
            Ran::Unmet => None,
        }
    }

    /// The newest version in an answer, or 0.
    pub fn newest_in(ran: &Ran) -> i64 {
        Self::version_of(ran).map_or(0, |version| version as i64).max(match ran {
            Ran::Done(replies) => match replies.first() {
                Some(Reply::List(list)) => match list.get(2) {
                    Some(Reply::Int(version)) => *version,
                    _ => 0,
                },
                _ => 0,
            },
            Ran::Unmet => 0,
        })
    }

    pub fn end(&mut self, act: &Act, start: Time, now: Time, outcome: &Outcome<Ran>) -> Result<(), Broken> {
        let broken = |promise, what| Err(Broken { promise, at: now, what });
        let replies = match outcome {
            Outcome::Done(Ran::Done(replies)) => replies,
            Outcome::Done(Ran::Unmet) if !matches!(act, Act::Cas { apart: true, .. }) => {
                return broken(LINEAR, format!("{act:?} had no condition"));
            }
            Outcome::Done(Ran::Unmet) | Outcome::Refused(_) => {
                if let Some(write) = named(act).and_then(|id| self.writes.get_mut(&id)) {
                    write.refused = true;
                }
                if let Act::Draw { urn, id } = act {
                    self.urns.refused(urn, *id);
                }
                self.jobs.refused(act);
                return Ok(());
            }
            Outcome::Unknown(_) => return Ok(()),
        };
        self.judged += 1;
        match (act, &replies[..]) {
            (Act::Get { key }, [reply]) => match looked(reply) {
                Some((version, id)) => self.saw(key, version, id, start, now),
                None => broken(LINEAR, format!("{act:?} gave {reply:?}")),
            },
            (Act::Stale { key, bound }, [reply, Reply::Int(age)]) => {
                let age = Span::millis(*age as u64);
                let Some((version, id)) = looked(reply) else {
                    return broken(STALE, format!("{act:?} gave {reply:?}"));
                };
                // What it saw says nothing of what others must see: it is not noted as the newest.
                let since = Time(start.0.saturating_sub(age.0));
                let least = self.keys.get(key).map_or(0, |key| newest_by(&key.newest, since));
                if age > *bound || version < least {
                    let what = format!("{act:?} saw version {version} of age {age:?}; {least} was there before that");
                    return broken(STALE, what);
                }
                match id.filter(|id| self.writes.get(id).is_none_or(|write| write.refused)) {
                    Some(id) => broken(STALE, format!("{act:?} saw write {id}, which was refused or nobody made")),
                    None => Ok(()),
                }
            }
            (Act::Put { key, id }, [Reply::List(list)]) => match &list[..] {
                [Reply::Int(1), _, Reply::Int(version)] => self.made(key, *version as u64, *id, start, now),
                _ => broken(LINEAR, format!("{act:?} gave {list:?}")),
            },
            (Act::Cas { key, id, version: expected, .. }, [Reply::List(list)]) => match &list[..] {
                [Reply::Int(1), _, Reply::Int(version)] => {
                    // Nothing may stand between the version that it expected and the one that it made.
                    let between =
                        self.keys.entry(key.clone()).or_default().made.range(expected + 1..*version as u64).next();
                    if let Some((other, by)) = between {
                        return broken(LINEAR, format!("{act:?} made {version} over {other} of write {by}"));
                    }
                    self.made(key, *version as u64, *id, start, now)
                }
                [Reply::Int(0), _, Reply::Int(version)] if *version as u64 != *expected => {
                    if let Some(write) = self.writes.get_mut(id) {
                        write.refused = true;
                    }
                    self.saw(key, *version as u64, None, start, now)
                }
                _ => broken(LINEAR, format!("{act:?} gave {list:?}")),
            },
            (Act::Push { list, id }, [Reply::Int(len)] | [Reply::Bytes(_), Reply::Int(len)])
                if act.is_of_stream() == (replies.len() == 2) =>
            {
                let kept = self.lists.entry(list.clone()).or_default();
                let least = newest_by(&kept.newest, start);
                if *len as u64 <= least {
                    return broken(LINEAR, format!("{act:?} made length {len}, it had {least} before"));
                }
                note(&mut kept.newest, now, *len as u64);
                kept.acked.insert(*id, now);
                Ok(())
            }
            (Act::Range { list }, [Reply::List(items)]) => {
                let Some(items) = (if act.is_of_stream() { entries(items) } else { Some(items.clone()) }) else {
                    return broken(LINEAR, format!("{act:?} gave {items:?}"));
                };
                let ids = items.iter().map(|item| if let Reply::Bytes(b) = item { number(b) } else { None });
                match ids.collect::<Option<Vec<_>>>() {
                    Some(ids) => self.saw_list(list, ids, start, now),
                    None => broken(LINEAR, format!("{act:?} gave what nobody pushed: {items:?}")),
                }
            }
            (Act::Watch { after, .. }, [reply]) => self.watched(*after, reply, now),
            (Act::Scan, [Reply::List(page)]) => self.scanned(page, start, now),
            (Act::Transfer { book, id, .. }, [Reply::Int(a), Reply::Int(b), Reply::Int(len), rest @ ..])
                if rest.len() == if act.is_newer() { 2 } else { 0 } =>
            {
                self.books.transferred(*book, *id, (*a, *b, *len as u64), start, now)
            }
            (Act::Sum { book }, [accounts @ .., Reply::List(journal)]) => {
                self.books.summed(*book, accounts, journal, &self.writes, start, now)
            }
            (Act::Fill { urn, id }, [Reply::List(counts)])
                if act.is_sorted() && counts[..] == [Reply::Int(1), Reply::Int(0)] =>
            {
                self.urns.filled(urn, *id, now);
                Ok(())
            }
            (Act::Draw { urn, id }, [reply]) if act.is_sorted() => match urns::in_order(reply) {
                Some(items) => self.urns.drew(urn, *id, &items, &self.writes, (start, now)),
                None => broken(LINEAR, format!("{act:?} gave {reply:?}")),
            },
            (Act::Urn { urn }, [reply]) if act.is_sorted() => match urns::in_order(reply) {
                Some(items) => self.urns.seen(urn, &items, &self.writes, (start, now)),
                None => broken(LINEAR, format!("{act:?} gave {reply:?}")),
            },
            (Act::Fill { urn, id }, [_, Reply::Bytes(_)]) if act.is_of_stream() => {
                self.urns.filled(urn, *id, now);
                Ok(())
            }
            (Act::Draw { urn, id }, [reply]) if act.is_of_stream() => {
                let items = match reply {
                    Reply::List(list) => match &list[..] {
                        [Reply::Bytes(_), Reply::List(flat)] => entries(flat),
                        // There is no such group, as there is no stream.
                        [Reply::Wrong(_), ..] => Some(Vec::new()),
                        _ => None,
                    },
                    // Nothing is new.
                    Reply::Nil => Some(Vec::new()),
                    _ => None,
                };
                match items {
                    Some(items) => self.urns.drew(urn, *id, &items, &self.writes, (start, now)),
                    None => broken(LINEAR, format!("{act:?} gave {reply:?}")),
                }
            }
            (Act::Fill { urn, id }, [Reply::Int(1)]) => {
                self.urns.filled(urn, *id, now);
                Ok(())
            }
            (Act::Draw { urn, id }, [Reply::List(items)]) => {
                self.urns.drew(urn, *id, items, &self.writes, (start, now))
            }
            (Act::Urn { urn }, [Reply::List(items)]) => self.urns.seen(urn, items, &self.writes, (start, now)),
            (_, [reply]) if act.is_of_queue() => self.jobs.end(act, reply, &self.writes, (start, now)),
            (Act::Brief { .. } | Act::SeeBrief { .. } | Act::EndBrief { .. }, [reply])
            | (Act::Claim { .. } | Act::Release { .. }, [reply]) => self.ends.end(act, reply, start, now),
            (_, replies) => broken(LINEAR, format!("{act:?} gave {replies:?}")),
        }
    }

    /// Each key is there as if it had been read alone.
    fn scanned(&mut self, page: &[Reply], start: Time, now: Time) -> Result<(), Broken> {
        let broken = |what| Err(Broken { promise: LINEAR, at: now, what });
        let mut seen = BTreeSet::new();
        for item in page.chunks(3) {
            let [Reply::Bytes(key), Reply::Bytes(value), Reply::Int(version)] = item else {
                return broken(format!("a scan gave {item:?}"));
            };
            let key = String::from_utf8_lossy(key).into_owned();
            self.saw(&key, *version as u64, number(value), start, now)?;
            if !seen.insert(key) {
                return broken(format!("a scan gave a key twice: {item:?}"));
            }
        }
        let missing = |(key, of): &(&String, &Key)| !seen.contains(*key) && newest_by(&of.newest, start) > 0;
        match self.keys.iter().find(missing) {
            Some((key, _)) => broken(format!("a scan since {start:?} did not give {key}, which was there before")),
            None => Ok(()),
        }
    }

    /// How far a watcher is after this answer.
    pub fn upto(ran: &Ran) -> Option<u64> {
        let Ran::Done(replies) = ran else { return None };
        match replies.first()? {
            Reply::List(parts) => match parts.first()? {
                Reply::Int(upto) => Some(*upto as u64),
                _ => None,
            },
            _ => None,
        }
    }

    fn watched(&mut self, after: u64, reply: &Reply, now: Time) -> Result<(), Broken> {
        let broken = |what| Err(Broken { promise: WATCH, at: now, what });
        let Reply::List(parts) = reply else { return broken(format!("a watch gave {reply:?}")) };
        let (upto, changes) = match &parts[..] {
            [Reply::Int(upto), Reply::List(changes)] => (*upto as u64, changes),
            // A history begins with a restart: those before it are gone, and the watcher hears so.
            [Reply::Int(at), Reply::Nil, Reply::Int(oldest)] if after < *oldest as u64 && oldest <= at => return Ok(()),
            _ => return broken(format!("a watch after {after} gave {parts:?}")),
        };
        let mut last = after;
        for change in changes {
            let Reply::List(change) = change else { return broken(format!("a change was {change:?}")) };
            let (version, key, id) = match &change[..] {
                [Reply::Int(version), Reply::Bytes(key), _, Reply::Bytes(value)] => {
                    (*version as u64, String::from_utf8_lossy(key).into_owned(), number(value))
                }
                _ => return broken(format!("a change was {change:?}")),
            };
            let Some(id) = id.filter(|_| version > last && version <= upto) else {
                return broken(format!("after {last} and up to {upto} came {change:?}"));
            };
            last = version;
            let told = self.told.entry(version).or_insert_with(|| (key.clone(), id));
            if *told != (key.clone(), id) {
                return broken(format!("version {version} was {told:?}, and is {key} by write {id} now"));
            }
            self.saw(&key, version, Some(id), Time::ZERO, now)?;
        }
        let told = changes.len();
        let span = (Bound::Excluded(after), Bound::Included(upto.max(after)));
        let known = self.told.range(span).count();
        let watched = self.keys.iter().filter(|(key, _)| is_watched(key));
        let made = watched.map(|(_, key)| key.made.range(span).count()).sum::<usize>();
        if upto < after || told < known || told < made {
            return broken(format!(
                "from {after} to {upto}: {told} changes told, {made} acknowledged or read, {known} told before"
            ));
        }
        self.cover(after, upto);
        Ok(())
    }

    /// A write that was acknowledged, and was not told to who watched past it.
    fn untold(&self, version: u64) -> bool {
        let covers = self.covered.range(..version).next_back().is_some_and(|(_, upto)| version <= *upto);
        covers && !self.told.contains_key(&version)
    }

    fn cover(&mut self, mut after: u64, mut upto: u64) {
        while let Some((from, to)) =
            self.covered.range(..=upto).next_back().map(|(from, to)| (*from, *to)).filter(|(_, to)| *to >= after)
        {
            (after, upto) = (after.min(from), upto.max(to));
            self.covered.remove(&from);
        }
        self.covered.insert(after, upto);
    }

    fn made(&mut self, key: &str, version: u64, id: WriteId, start: Time, now: Time) -> Result<(), Broken> {
        let broken = |what| Err(Broken { promise: LINEAR, at: now, what });
        let kept = self.keys.entry(key.to_owned()).or_default();
        let of_any = if self.wide { 0 } else { newest_by(&self.newest, start) };
        let least = newest_by(&kept.newest, start).max(of_any);
        if version <= least {
            return broken(format!("write {id} of {key} made version {version}, {least} was there before it began"));
        }
        let untold = is_watched(key) && self.untold(version);
        let kept = self.keys.entry(key.to_owned()).or_default();
        if untold {
            let what = format!("write {id} of {key} made version {version}, who watched was not told");
            return Err(Broken { promise: WATCH, at: now, what });
        }
        if let Some(other) = kept.made.insert(version, id).filter(|other| *other != id) {
            return broken(format!("writes {id} and {other} of {key} both made version {version}"));
        }
        note(&mut kept.newest, now, version);
        note(&mut self.newest, now, version);
        Ok(())
    }

    fn saw(&mut self, key: &str, version: u64, id: Option<WriteId>, start: Time, now: Time) -> Result<(), Broken> {
        let broken = |what| Err(Broken { promise: LINEAR, at: now, what });
        let kept = self.keys.entry(key.to_owned()).or_default();
        let least = newest_by(&kept.newest, start);
        if version < least {
            return broken(format!("a read of {key} since {start:?} saw version {version}, {least} was there before"));
        }
        if let Some(id) = id {
            match self.writes.get(&id) {
                None => return broken(format!("a read of {key} saw write {id}, which nobody made")),
                Some(write) if write.refused => {
                    return broken(format!("a read of {key} saw write {id}, which was refused"));
                }
                Some(write) if write.start > now => return broken(format!("a read of {key} saw write {id} of later")),
                Some(_) => (),
            }
            if let Some(other) = kept.made.insert(version, id).filter(|other| *other != id) {
                return broken(format!("version {version} of {key} was write {other}, and is write {id} now"));
            }
        }
        note(&mut kept.newest, now, version);
        Ok(())
    }

    fn saw_list(&mut self, list: &str, ids: Vec<WriteId>, start: Time, now: Time) -> Result<(), Broken> {
        let broken = |promise, what| Err(Broken { promise, at: now, what });
        let kept = self.lists.entry(list.to_owned()).or_default();
        let least = newest_by(&kept.newest, start);
        if (ids.len() as u64) < least {
            return broken(LINEAR, format!("{list} had {} items, {least} were there before", ids.len()));
        }
        let (short, long) = if ids.len() < kept.seen.len() { (&ids, &kept.seen) } else { (&kept.seen, &ids) };
        if !long.starts_with(short) {
            return broken(ONCE, format!("{list} was {short:?} and {long:?}"));
        }
        let once: BTreeSet<WriteId> = ids.iter().copied().collect();
        if once.len() != ids.len() {
            return broken(ONCE, format!("a push happened twice: {list} is {ids:?}"));
        }
        if let Some(id) = ids.iter().find(|id| self.writes.get(id).is_none_or(|write| write.refused)) {
            return broken(ONCE, format!("{list} holds {id}, which was refused or nobody pushed"));
        }
        if let Some((id, _)) = kept.acked.iter().find(|(id, by)| **by < start && !once.contains(id)) {
            return broken(ONCE, format!("push {id} was acknowledged, and is not in {list}: {ids:?}"));
        }
        note(&mut kept.newest, now, ids.len() as u64);
        if ids.len() > kept.seen.len() {
            kept.seen = ids;
        }
        Ok(())
    }
}

/// The name of a write that has one.
fn named(act: &Act) -> Option<WriteId> {
    match act {
        Act::Put { id, .. } | Act::Cas { id, .. } | Act::Push { id, .. } | Act::Transfer { id, .. } => Some(*id),
        Act::Fill { id, .. } | Act::PutJob { id, .. } => Some(*id),
        _ => None,
    }
}

/// What the entries of a stream hold; none, if their ids do not grow or they are no entries.
fn entries(flat: &[Reply]) -> Option<Vec<Reply>> {
    let mut last = (0, 0);
    let one = |entry: &[Reply]| {
        let [Reply::Bytes(id), Reply::List(fields)] = entry else { return None };
        let (ms, seq) = std::str::from_utf8(id).ok()?.split_once('-')?;
        let id: (u64, u64) = (ms.parse().ok()?, seq.parse().ok()?);
        let [_, held] = &fields[..] else { return None };
        (id > std::mem::replace(&mut last, id)).then(|| held.clone())
    };
    flat.chunks(2).map(one).collect()
}

/// Version and write of what was looked at.
fn looked(reply: &Reply) -> Option<(u64, Option<WriteId>)> {
    match reply {
        Reply::Nil => Some((0, None)),
        Reply::List(list) => match &list[..] {
            [Reply::Bytes(value), Reply::Int(version), _] => Some((*version as u64, number(value))),
            _ => None,
        },
        _ => None,
    }
}

pub fn number(bytes: &[u8]) -> Option<WriteId> {
    // Large values are numbers with spaces behind them.
    std::str::from_utf8(bytes.trim_ascii_end()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn get(version: i64, id: u64) -> Outcome<Ran> {
        let value = Reply::Bytes(Bytes::from(id.to_string()));
        Outcome::Done(Ran::Done(vec![Reply::List(vec![value, Reply::Int(version), Reply::Int(-1)])]))
    }

    fn put(version: i64) -> Outcome<Ran> {
        Outcome::Done(Ran::Done(vec![Reply::List(vec![Reply::Int(1), Reply::Nil, Reply::Int(version)])]))
    }

    /// Runs acts with their starts, ends and outcomes; says which promise broke.
    fn check(script: &[(Act, u64, u64, Outcome<Ran>)], expect: Option<&str>) {
        let mut linear = Linear::default();
        let mut ends: Vec<_> = script.iter().collect();
        script.iter().for_each(|(act, start, ..)| linear.begin(act, Time(*start)));
        ends.sort_by_key(|(_, _, end, _)| *end);
        let broken =
            ends.iter().find_map(|(act, start, end, out)| linear.end(act, Time(*start), Time(*end), out).err());
        assert_eq!(broken.map(|broken| broken.promise), expect, "{script:?}");
    }

    fn write(id: u64) -> Act {
        Act::Put { key: "k".into(), id }
    }

    fn read() -> Act {
        Act::Get { key: "k".into() }
    }

    #[test]
    fn stale_lost_and_swapped_values_are_seen() {
        check(&[(write(1), 1, 5, put(1)), (read(), 6, 7, get(1, 1))], None);
        check(&[(write(1), 1, 5, put(1)), (write(2), 6, 9, put(2)), (read(), 10, 11, get(1, 1))], Some(LINEAR));
        check(&[(write(1), 1, 5, put(1)), (write(2), 6, 9, put(2)), (read(), 8, 11, get(1, 1))], None);
        check(&[(write(1), 1, 5, put(2)), (write(2), 6, 9, put(1))], Some(LINEAR));
        check(&[(read(), 1, 2, get(4, 9))], Some(LINEAR));
        check(&[(write(1), 1, 5, put(1)), (write(2), 2, 6, put(1))], Some(LINEAR));
        let cas = Act::Cas { key: "k".into(), id: 3, version: 1, apart: false };
        check(&[(write(1), 1, 2, put(1)), (write(2), 3, 4, put(2)), (cas, 3, 9, put(3))], Some(LINEAR));
    }

    #[test]
    fn pushes_that_vanish_or_happen_twice_are_seen() {
        let push = |id| Act::Push { list: "l".into(), id };
        let int = |n| Outcome::Done(Ran::Done(vec![Reply::Int(n)]));
        let range = |ids: &[u64]| {
            let items = ids.iter().map(|id| Reply::Bytes(Bytes::from(id.to_string()))).collect();
            Outcome::Done(Ran::Done(vec![Reply::List(items)]))
        };
        let all = Act::Range { list: "l".into() };
        check(&[(push(1), 1, 2, int(1)), (all.clone(), 3, 4, range(&[1]))], None);
        check(&[(push(1), 1, 2, int(1)), (all.clone(), 3, 4, range(&[]))], Some(LINEAR));
        check(&[(push(1), 1, 2, int(1)), (all.clone(), 3, 4, range(&[1, 1]))], Some(ONCE));
        let refused = Outcome::Refused(base::Refused::wrong("no"));
        check(&[(push(1), 1, 2, refused), (all, 3, 4, range(&[1]))], Some(ONCE));
    }

    #[test]
    fn stale_reads_that_are_too_old_or_older_than_they_say_are_seen() {
        let stale = |bound| Act::Stale { key: "k".into(), bound: Span::millis(bound) };
        let saw = |version, id, age| match get(version, id) {
            Outcome::Done(Ran::Done(replies)) => Outcome::Done(Ran::Done([replies, vec![Reply::Int(age)]].concat())),
            other => other,
        };
        let with = |act, out| [(write(1), 1, 2, put(1)), (write(2), 3, 4_000, put(2)), (act, 9_000, 9_001, out)];
        check(&with(stale(5), saw(2, 2, 5)), None);
        check(&with(stale(6), saw(1, 1, 6)), None);
        check(&with(stale(9), saw(1, 1, 4)), Some(STALE));
        check(&with(stale(5), saw(1, 1, 6)), Some(STALE));
    }

    #[test]
    fn changes_that_are_left_out_told_twice_or_turned_round_are_seen() {
        let watch = |after| Act::Watch { after, wait: false };
        let page = |upto, changes: &[(i64, u64)]| {
            let change = |(version, id): &(i64, u64)| {
                let (key, kind, value) = (Bytes::from("k"), Bytes::from("string"), Bytes::from(id.to_string()));
                Reply::List(vec![Reply::Int(*version), Reply::Bytes(key), Reply::Bytes(kind), Reply::Bytes(value)])
            };
            let changes = changes.iter().map(change).collect();
            Outcome::Done(Ran::Done(vec![Reply::List(vec![Reply::Int(upto), Reply::List(changes)])]))
        };
        let (one, two) = ((write(1), 1, 2, put(1)), (write(2), 3, 4, put(2)));
        let with = |end| [one.clone(), two.clone(), end];
        check(&with((watch(0), 5, 6, page(2, &[(1, 1), (2, 2)]))), None);
        check(&with((watch(1), 5, 6, page(2, &[(2, 2)]))), None);
        check(&with((watch(0), 5, 6, page(2, &[(2, 2)]))), Some(WATCH));
        check(&with((watch(0), 5, 6, page(2, &[(2, 2), (1, 1)]))), Some(WATCH));
        check(&with((watch(1), 5, 6, page(2, &[(1, 1), (2, 2)]))), Some(WATCH));
        // The write is acknowledged after a watcher went past it.
        let before = (watch(1), 5, 6, page(3, &[(2, 2)]));
        check(&[one, two, before, (write(3), 1, 9, put(3))], Some(WATCH));
    }
}
