//! What an operation does to a namespace. Everything is decided by what this node knows.

use std::collections::BTreeSet;

use base::{Now, Span, Time};
use bytes::Bytes;

use crate::cell::Cell;
use crate::limits::SCAN_COUNT_MAX;
use crate::op::{Action, End, Kind, Reply};
use crate::space::{Address, Space};

impl Space {
    pub fn run(&mut self, now: Now, action: Action) -> Reply {
        match action {
            Action::Read { kind, at } => self.read(now.mono, kind, at),
            Action::Peek { at } => {
                let value = |key: Bytes| self.value_at(now.mono, &Address::new(key, Kind::Register, Bytes::new()));
                Reply::Values(at.into_iter().map(|key| value(key).flatten()).collect())
            }
            Action::All { kind, key } if self.is_of_other_kind(now.mono, &key, kind) => Reply::WrongKind,
            Action::All { kind, key } => Reply::Pairs(self.all(now.mono, kind, &key)),
            Action::Set { pairs, end } => {
                pairs.into_iter().for_each(|(key, value)| self.set(now, key, value, end));
                Reply::Done
            }
            Action::List { key, .. } if self.is_of_other_kind(now.mono, &key, Kind::Item) => Reply::WrongKind,
            Action::List { key, what } => self.list(now, key, what),
            Action::Put { kind, key, .. } | Action::Take { kind, key, .. } | Action::Add { kind, key, .. }
                if self.is_of_other_kind(now.mono, &key, kind) =>
            {
                Reply::WrongKind
            }
            Action::Put { kind, key, pairs } => self.put_all(now, kind, key, pairs),
            Action::Take { kind, key, elements } => self.take_all(now, kind, key, elements),
            Action::Add { kind, key, element, by } => self.add(now, Address::new(key, kind, element), by),
            Action::Remove { keys } => {
                let all: BTreeSet<Bytes> = keys.into_iter().collect();
                let counted = all.iter().filter(|key| self.is_there(now.mono, key)).count();
                all.iter().for_each(|key| self.remove(now, key));
                Reply::Int(counted as i64)
            }
            Action::Exists { keys } => {
                Reply::Int(keys.iter().filter(|key| self.is_there(now.mono, key)).count() as i64)
            }
            Action::End { key, end } => self.end(now, &key, end),
            Action::Left { key } => {
                let left = || self.end_of(&key).map(|(ends, _)| ends.since(now.mono));
                Reply::Left(self.is_there(now.mono, &key).then(left))
            }
            Action::Kind { key } => Reply::Kind(self.kind(now.mono, &key)),
            Action::Count => Reply::Int(self.keys() as i64),
            Action::Scan { cursor, count } => self.scan(now.mono, cursor, count),
            Action::Whole { key } => self.whole(now.mono, &key).map_or(Reply::NoKey, Reply::Whole),
            Action::Load { key, whole } => match self.load(now, key, whole) {
                true => Reply::Done,
                false => Reply::NoRoom,
            },
            Action::Watch(_) => unreachable!("the machine answers it, as it may have to wait"),
            Action::Clear => unreachable!("the machine does it, in parts"),
            Action::Hold { .. } | Action::LetGo { .. } => unreachable!("the machine knows who holds what"),
        }
    }

    /// Does a reader see this key?
    pub(crate) fn is_there(&self, now: Time, key: &Bytes) -> bool {
        self.has(key) && !self.has_ended(key, now)
    }

    /// Has the key something, and nothing of this kind?
    pub(crate) fn is_of_other_kind(&self, now: Time, key: &Bytes, kind: Kind) -> bool {
        let mut kinds = self.cells_of(key).filter(|(at, cell)| at.kind != Kind::End && cell.is_there());
        let first = kinds.next().map(|(at, _)| at.kind);
        first.is_some_and(|first| first != kind) && !kinds.any(|(at, _)| at.kind == kind) && !self.has_ended(key, now)
    }

    /// None: it is not there. None inside: it has no value.
    fn value_at(&self, now: Time, at: &Address) -> Option<Option<Bytes>> {
        let cell = self.cells.get(at).filter(|cell| cell.is_there())?;
        (!self.has_ended(&at.key, now)).then(|| self.value_of(at, cell))
    }

    fn read(&self, now: Time, kind: Kind, at: Vec<(Bytes, Bytes)>) -> Reply {
        if at.iter().any(|(key, _)| self.is_of_other_kind(now, key, kind)) {
            return Reply::WrongKind;
        }
        // Where there is no value it is told by an empty one that the element is there.
        let one = |(key, element)| self.value_at(now, &Address::new(key, kind, element)).map(Option::unwrap_or_default);
        Reply::Values(at.into_iter().map(one).collect())
    }

    pub(crate) fn all(&self, now: Time, kind: Kind, key: &Bytes) -> Vec<(Bytes, Option<Bytes>)> {
        if self.has_ended(key, now) {
            return Vec::new();
        }
        let there = self.cells_of(key).filter(|(at, cell)| at.kind == kind && cell.is_there());
        there.map(|(at, cell)| (at.element.clone(), self.value_of(at, cell))).collect()
    }

    /// What a reader gets; nothing of what is damaged.
    pub(crate) fn value_of(&self, at: &Address, cell: &Cell) -> Option<Bytes> {
        if self.is_damaged(at, cell) { None } else { value(cell) }
    }

    /// Before something is written to a key: what has ended is removed, and an end that is left of what was there before.
    pub(crate) fn begin(&mut self, now: Now, key: &Bytes) {
        if self.end_of(key).is_some() && !self.is_there(now.mono, key) {
            self.remove_ended(now, key);
        }
    }

    fn set(&mut self, now: Now, key: Bytes, value: Bytes, end: End) {
        self.begin(now, &key);
        let is_other = |at: &Address| match at.kind {
            Kind::Register => false,
            Kind::End => end == End::Never,
            Kind::Field | Kind::Member | Kind::Score | Kind::Item => true,
        };
        let others = self.cells_of(&key).filter(|(at, cell)| is_other(at) && cell.is_there());
        let others: Vec<Address> = others.map(|(at, _)| at.clone()).collect();
        others.iter().for_each(|at| self.put(now, at, None));
        self.put(now, &Address::new(key.clone(), Kind::Register, Bytes::new()), Some((Some(value), None)));
        if let End::After(span) = end {
            self.put(now, &Address::first(key), Some((None, Some(now.mono + span))));
        }
    }

    pub(crate) fn put_all(&mut self, now: Now, kind: Kind, key: Bytes, pairs: Vec<(Bytes, Option<Bytes>)>) -> Reply {
        self.begin(now, &key);
        let mut new = 0;
        for (element, value) in pairs {
            let at = Address::new(key.clone(), kind, element);
            new += i64::from(!self.cells.get(&at).is_some_and(Cell::is_there));
            self.put(now, &at, Some((value, None)));
        }
        Reply::Int(new)
    }

    fn take_all(&mut self, now: Now, kind: Kind, key: Bytes, elements: Vec<Bytes>) -> Reply {
        self.begin(now, &key);
        let mut taken = 0;
        for element in elements {
            let at = Address::new(key.clone(), kind, element);
            if self.cells.get(&at).is_some_and(Cell::is_there) {
                taken += 1;
                self.put(now, &at, None);
            }
        }
        Reply::Int(taken)
    }

    fn add(&mut self, now: Now, at: Address, by: i64) -> Reply {
        self.begin(now, &at.key);
        let there = self.cells.get(&at).filter(|cell| cell.is_there());
        if there.is_some_and(|cell| self.is_damaged(&at, cell)) {
            return Reply::NoNumber;
        }
        let is = match there.map(number) {
            None => None,
            Some(Some(number)) => Some(number),
            Some(None) => return Reply::NoNumber,
        };
        let sum = is.unwrap_or(0) + i128::from(by);
        let Ok(sum) = i64::try_from(sum) else { return Reply::Overflow };
        match (is, by) {
            (Some(_), 0) => (),
            // A count of nothing would leave nothing.
            (None, 0) => self.put(now, &at, Some((Some(Bytes::from_static(b"0")), None))),
            _ if !self.count(now, &at, by) => return Reply::Overflow,
            _ => (),
        }
        Reply::Int(sum)
    }

    fn end(&mut self, now: Now, key: &Bytes, end: Option<Span>) -> Reply {
        if !self.is_there(now.mono, key) {
            return Reply::Int(0);
        }
        match end {
            Some(Span::ZERO) => self.remove(now, key),
            Some(span) => self.put(now, &Address::first(key.clone()), Some((None, Some(now.mono + span)))),
            None if self.end_of(key).is_none() => return Reply::Int(0),
            None => self.put(now, &Address::first(key.clone()), None),
        }
        Reply::Int(1)
    }

    /// The kind that was written last, as far as is known.
    pub(crate) fn kind(&self, now: Time, key: &Bytes) -> Option<Kind> {
        let there = self.cells_of(key).filter(|(at, cell)| at.kind != Kind::End && cell.is_there());
        let stamped = there.map(|(at, cell)| (cell.newest().map(|newest| newest.stamp), at.kind));
        stamped.max_by_key(|(stamp, _)| *stamp).map(|(_, kind)| kind).filter(|_| !self.has_ended(key, now))
    }

    fn scan(&self, now: Time, cursor: u64, count: u32) -> Reply {
        let mut keys: Vec<(Bytes, Kind)> = Vec::new();
        let mut from = Address::from_hash(cursor);
        let (mut looked, count) = (0, count.clamp(1, SCAN_COUNT_MAX));
        let mut last = None;
        loop {
            let next = self.cells.range(&from..).next();
            let Some((at, _)) = next else { break };
            // Keys of one hash come together.
            if looked >= count && last != Some(at.hash()) {
                return Reply::Page { cursor: at.hash(), keys };
            }
            (looked, last) = (looked + 1, Some(at.hash()));
            if let Some(kind) = self.kind(now, &at.key) {
                keys.push((at.key.clone(), kind));
            }
            from = Address::behind(&at.key);
        }
        Reply::Page { cursor: 0, keys }
    }
}

/// What a reader gets.
pub(crate) fn value(cell: &Cell) -> Option<Bytes> {
    if cell.slots.iter().all(crate::cell::Slot::is_cut) {
        return cell.newest()?.value.clone();
    }
    let number = cell.counted() + i128::from(cell.newest().and_then(base_of).unwrap_or(0));
    Some(Bytes::from(number.clamp(i64::MIN.into(), i64::MAX.into()).to_string()))
}

/// The number that a cell has, if it is one.
fn number(cell: &Cell) -> Option<i128> {
    let base = match cell.newest() {
        Some(newest) => base_of(newest)?,
        None => 0,
    };
    Some(i128::from(base) + cell.counted())
}

fn base_of(sibling: &crate::cell::Sibling) -> Option<i64> {
    let text = std::str::from_utf8(sibling.value.as_ref()?).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
