//! Operations and their answers as bytes, for those that a node passes to another one (`pass.rs`). What holds entries, watches, or loads
//! whole keys is for the node itself.

use base::{Because, Outcome, Refused, Span, Unknown};
use bytes::Bytes;

use crate::limits::{END_MAX, SCAN_COUNT_MAX};
use crate::op::{Action, End, Kind, List, Reply, Side, Whole};

#[derive(Clone, PartialEq, prost::Message)]
pub struct Pair {
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub value: Option<Bytes>,
}

/// An operation: what it is, and as much of the rest as that takes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AnAction {
    #[prost(uint32, tag = "1")]
    pub what: u32,
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    #[prost(message, repeated, tag = "4")]
    pub pairs: Vec<Pair>,
    #[prost(sint64, tag = "5")]
    pub first: i64,
    #[prost(sint64, tag = "6")]
    pub last: i64,
    #[prost(bool, tag = "7")]
    pub flag: bool,
    /// Microseconds to an end.
    #[prost(uint64, optional, tag = "8")]
    pub span: Option<u64>,
    #[prost(uint64, tag = "9")]
    pub cursor: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AReply {
    #[prost(uint32, tag = "1")]
    pub what: u32,
    #[prost(sint64, tag = "2")]
    pub number: i64,
    #[prost(message, repeated, tag = "3")]
    pub pairs: Vec<Pair>,
    #[prost(uint32, optional, tag = "4")]
    pub kind: Option<u32>,
    #[prost(uint64, optional, tag = "5")]
    pub span: Option<u64>,
    #[prost(uint64, tag = "6")]
    pub cursor: u64,
    #[prost(uint32, repeated, tag = "7")]
    pub kinds: Vec<u32>,
    /// How old what it says may be, microseconds.
    #[prost(uint64, optional, tag = "8")]
    pub age: Option<u64>,
    /// Of what was refused, or may have happened.
    #[prost(string, tag = "9")]
    pub why: String,
}

/// Asked by one node of another.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Call {
    #[prost(uint32, tag = "1")]
    pub space: u32,
    /// Of the asked.
    #[prost(uint64, tag = "2")]
    pub boot: u64,
    /// The answer has the same.
    #[prost(uint64, tag = "3")]
    pub number: u64,
    /// What is left of the asker's time, microseconds.
    #[prost(uint64, tag = "4")]
    pub budget: u64,
    #[prost(uint64, optional, tag = "5")]
    pub stale: Option<u64>,
    #[prost(message, required, tag = "6")]
    pub action: AnAction,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Called {
    /// Of the asker.
    #[prost(uint64, tag = "1")]
    pub boot: u64,
    #[prost(uint64, tag = "2")]
    pub number: u64,
    #[prost(message, required, tag = "3")]
    pub reply: AReply,
    /// How many updates the asked has made by then.
    #[prost(uint64, tag = "4")]
    pub updates: u64,
}

mod what {
    pub const READ: u32 = 1;
    pub const PEEK: u32 = 2;
    pub const ALL: u32 = 3;
    pub const SET: u32 = 4;
    pub const PUT: u32 = 5;
    pub const TAKE: u32 = 6;
    pub const ADD: u32 = 7;
    pub const REMOVE: u32 = 8;
    pub const EXISTS: u32 = 9;
    pub const END: u32 = 10;
    pub const LEFT: u32 = 11;
    pub const KIND: u32 = 12;
    pub const COUNT: u32 = 13;
    pub const SCAN: u32 = 14;
    pub const WHOLE: u32 = 15;
    pub const PUSH: u32 = 16;
    pub const RANGE: u32 = 17;
    pub const LENGTH: u32 = 18;
    pub const SET_AT: u32 = 19;
    pub const REMOVE_ITEMS: u32 = 20;
    pub const TRIM: u32 = 21;
    pub const INSERT: u32 = 22;
}

mod said {
    pub const DONE: u32 = 1;
    pub const INT: u32 = 2;
    pub const VALUES: u32 = 3;
    pub const PAIRS: u32 = 4;
    pub const LEFT: u32 = 5;
    pub const KIND: u32 = 6;
    pub const WHOLE: u32 = 7;
    pub const PAGE: u32 = 8;
    pub const WRONG_KIND: u32 = 9;
    pub const NO_KEY: u32 = 10;
    pub const NO_INDEX: u32 = 11;
    pub const NO_ROOM: u32 = 12;
    pub const NO_NUMBER: u32 = 13;
    pub const OVERFLOW: u32 = 14;
    pub const REFUSED: u32 = 15;
    pub const UNKNOWN: u32 = 16;
}

fn name(name: &Bytes) -> Pair {
    Pair { name: name.clone(), value: None }
}

fn names(of: &[Bytes]) -> Vec<Pair> {
    of.iter().map(name).collect()
}

fn pair((name, value): (&Bytes, &Bytes)) -> Pair {
    Pair { name: name.clone(), value: Some(value.clone()) }
}

fn side(side: Side) -> bool {
    side == Side::Right
}

fn side_of(flag: bool) -> Side {
    if flag { Side::Right } else { Side::Left }
}

impl AnAction {
    /// None: the node does it itself.
    pub fn of(action: &Action) -> Option<Self> {
        let of = |what: u32, key: &Bytes| Self { what, key: key.clone(), ..Self::default() };
        let many = |what: u32, pairs: Vec<Pair>| Self { what, pairs, ..Self::default() };
        Some(match action {
            Action::Read { kind, at } => {
                let pairs = at.iter().map(|(key, element)| pair((key, element))).collect();
                Self { kind: *kind as u32, ..many(what::READ, pairs) }
            }
            Action::Peek { at } => many(what::PEEK, names(at)),
            Action::All { kind, key } => Self { kind: *kind as u32, ..of(what::ALL, key) },
            Action::Set { pairs, end } => {
                let span = if let End::After(span) = end { Some(span.0) } else { None };
                let pairs = pairs.iter().map(|(key, value)| pair((key, value))).collect();
                Self { span, flag: *end == End::Kept, ..many(what::SET, pairs) }
            }
            Action::Put { kind, key, pairs } => {
                let pair =
                    |(element, value): &(Bytes, Option<Bytes>)| Pair { name: element.clone(), value: value.clone() };
                Self { kind: *kind as u32, pairs: pairs.iter().map(pair).collect(), ..of(what::PUT, key) }
            }
            Action::Take { kind, key, elements } => {
                Self { kind: *kind as u32, pairs: names(elements), ..of(what::TAKE, key) }
            }
            Action::Add { kind, key, element, by } => {
                Self { kind: *kind as u32, pairs: vec![name(element)], first: *by, ..of(what::ADD, key) }
            }
            Action::Remove { keys } => many(what::REMOVE, names(keys)),
            Action::Exists { keys } => many(what::EXISTS, names(keys)),
            Action::End { key, end } => Self { span: end.map(|end| end.0), ..of(what::END, key) },
            Action::Left { key } => of(what::LEFT, key),
            Action::Kind { key } => of(what::KIND, key),
            Action::Count => many(what::COUNT, Vec::new()),
            Action::Scan { cursor, count } => {
                Self { cursor: *cursor, first: i64::from(*count), ..many(what::SCAN, Vec::new()) }
            }
            Action::Whole { key } => of(what::WHOLE, key),
            Action::List { key, what } => Self::list(key, what),
            Action::Clear | Action::Hold { .. } | Action::LetGo { .. } | Action::Watch(_) | Action::Load { .. } => {
                return None;
            }
        })
    }

    fn list(key: &Bytes, list: &List) -> Self {
        let of = |what: u32| Self { what, key: key.clone(), ..Self::default() };
        match list {
            List::Push { side: at, values, only_there } => {
                Self { pairs: names(values), flag: side(*at), first: i64::from(*only_there), ..of(what::PUSH) }
            }
            List::Range { first, last } => Self { first: *first, last: *last, ..of(what::RANGE) },
            List::Length => of(what::LENGTH),
            List::Set { index, value } => Self { first: *index, pairs: vec![name(value)], ..of(what::SET_AT) },
            List::Remove { count, value } => Self { first: *count, pairs: vec![name(value)], ..of(what::REMOVE_ITEMS) },
            List::Trim { first, last } => Self { first: *first, last: *last, ..of(what::TRIM) },
            List::Insert { side: at, pivot, value } => {
                Self { flag: side(*at), pairs: vec![name(pivot), name(value)], ..of(what::INSERT) }
            }
        }
    }

    /// None: nobody asks for this.
    pub fn read(self) -> Option<Action> {
        let Self { what, kind, key, pairs, first, last, flag, span, cursor } = self;
        // Ends and items are written by operations of their own.
        let kind = Kind::told(kind).filter(|kind| !matches!(kind, Kind::End | Kind::Item));
        let span = span.map(|span| Span(span.min(END_MAX.0)));
        let names = |pairs: Vec<Pair>| pairs.into_iter().map(|pair| pair.name).collect::<Vec<_>>();
        let both = |pairs: Vec<Pair>| -> Option<Vec<(Bytes, Bytes)>> {
            pairs.into_iter().map(|pair| Some((pair.name, pair.value?))).collect()
        };
        let one = |pairs: Vec<Pair>| -> Option<Bytes> { pairs.into_iter().next().map(|pair| pair.name) };
        let list = |what: List| Action::List { key: key.clone(), what };
        Some(match what {
            what::READ => Action::Read { kind: kind?, at: both(pairs)? },
            what::PEEK => Action::Peek { at: names(pairs) },
            what::ALL => Action::All { kind: kind?, key },
            what::SET => {
                let end = match (span, flag) {
                    (Some(span), _) => End::After(span),
                    (None, true) => End::Kept,
                    (None, false) => End::Never,
                };
                Action::Set { pairs: both(pairs)?, end }
            }
            what::PUT => {
                let kind = kind?;
                let can_be = |value: &Option<Bytes>| match kind {
                    Kind::Member => value.is_none(),
                    Kind::Score => value.as_ref().is_some_and(|value| value.len() == size_of::<f64>()),
                    _ => value.is_some(),
                };
                pairs.iter().all(|pair| can_be(&pair.value)).then_some(())?;
                Action::Put { kind, key, pairs: pairs.into_iter().map(|pair| (pair.name, pair.value)).collect() }
            }
            what::TAKE => Action::Take { kind: kind?, key, elements: names(pairs) },
            what::ADD => Action::Add { kind: kind?, key, element: one(pairs)?, by: first },
            what::REMOVE => Action::Remove { keys: names(pairs) },
            what::EXISTS => Action::Exists { keys: names(pairs) },
            what::END => Action::End { key, end: span },
            what::LEFT => Action::Left { key },
            what::KIND => Action::Kind { key },
            what::COUNT => Action::Count,
            what::SCAN => Action::Scan { cursor, count: u32::try_from(first).ok()?.min(SCAN_COUNT_MAX) },
            what::WHOLE => Action::Whole { key },
            what::PUSH => list(List::Push { side: side_of(flag), values: names(pairs), only_there: first != 0 }),
            what::RANGE => list(List::Range { first, last }),
            what::LENGTH => list(List::Length),
            what::SET_AT => list(List::Set { index: first, value: one(pairs)? }),
            what::REMOVE_ITEMS => list(List::Remove { count: first, value: one(pairs)? }),
            what::TRIM => list(List::Trim { first, last }),
            what::INSERT => {
                let mut both = pairs.into_iter().map(|pair| pair.name);
                list(List::Insert { side: side_of(flag), pivot: both.next()?, value: both.next()? })
            }
            _ => return None,
        })
    }
}

/// What a refusal is for, on its way. Programs of levels below 14 pass it over, and say 0.
fn number_of(because: Because) -> i64 {
    match because {
        Because::Wrong => 1,
        Because::Busy => 2,
        Because::Rate => 3,
        Because::Quota => 4,
        Because::Room => 5,
    }
}

/// Of an older program all that is known is what its words begin with, and whether it is worth asking again.
fn because_of(number: i64, why: &str, retry_after: Option<Span>) -> Because {
    match number {
        1 => Because::Wrong,
        3 => Because::Rate,
        4 => Because::Quota,
        5 => Because::Room,
        0 if why.starts_with(crate::FULL) => Because::Quota,
        0 if retry_after.is_none() => Because::Wrong,
        _ => Because::Busy,
    }
}

impl AReply {
    pub fn of(outcome: &Outcome<Reply>) -> Self {
        match outcome {
            Outcome::Done(reply) => Self::done(reply),
            Outcome::Refused(Refused { why, because, retry_after }) => Self {
                what: said::REFUSED,
                number: number_of(*because),
                why: why.clone(),
                span: retry_after.map(|span| span.0),
                ..Self::default()
            },
            Outcome::Unknown(Unknown { why }) => Self { what: said::UNKNOWN, why: why.clone(), ..Self::default() },
        }
    }

    fn done(reply: &Reply) -> Self {
        let of = |what: u32| Self { what, ..Self::default() };
        match reply {
            Reply::Done => of(said::DONE),
            Reply::Aged { age, of } => Self { age: Some(age.0), ..Self::done(of) },
            Reply::Int(number) => Self { number: *number, ..of(said::INT) },
            Reply::Values(values) => {
                let pairs = values.iter().map(|value| Pair { name: Bytes::new(), value: value.clone() }).collect();
                Self { pairs, ..of(said::VALUES) }
            }
            Reply::Pairs(pairs) => {
                let pairs = pairs.iter().map(|(name, value)| Pair { name: name.clone(), value: value.clone() });
                Self { pairs: pairs.collect(), ..of(said::PAIRS) }
            }
            Reply::Left(left) => {
                Self { number: i64::from(left.is_some()), span: left.flatten().map(|left| left.0), ..of(said::LEFT) }
            }
            Reply::Kind(kind) => Self { kind: kind.map(|kind| kind as u32), ..of(said::KIND) },
            Reply::Whole(Whole { kind, values, left }) => Self {
                kind: Some(*kind as u32),
                pairs: names(values),
                span: left.map(|left| left.0),
                ..of(said::WHOLE)
            },
            Reply::Page { cursor, keys } => {
                let (pairs, kinds) = keys.iter().map(|(key, kind)| (name(key), *kind as u32)).unzip();
                Self { cursor: *cursor, pairs, kinds, ..of(said::PAGE) }
            }
            Reply::WrongKind => of(said::WRONG_KIND),
            Reply::NoKey => of(said::NO_KEY),
            Reply::NoIndex => of(said::NO_INDEX),
            Reply::NoRoom => of(said::NO_ROOM),
            Reply::NoNumber => of(said::NO_NUMBER),
            Reply::Overflow => of(said::OVERFLOW),
            Reply::Changes(_) => unreachable!("who watches is told by the node that he asks"),
        }
    }

    /// None: no node answers so.
    pub fn read(self) -> Option<Outcome<Reply>> {
        let Self { what, number, pairs, kind, span, cursor, kinds, age, why } = self;
        let span = span.map(Span);
        let names = |pairs: Vec<Pair>| pairs.into_iter().map(|pair| pair.name).collect::<Vec<_>>();
        let reply = match what {
            said::REFUSED => {
                let because = because_of(number, &why, span);
                return Some(Outcome::Refused(Refused { why, because, retry_after: span }));
            }
            said::UNKNOWN => return Some(Outcome::Unknown(Unknown { why })),
            said::DONE => Reply::Done,
            said::INT => Reply::Int(number),
            said::VALUES => Reply::Values(pairs.into_iter().map(|pair| pair.value).collect()),
            said::PAIRS => Reply::Pairs(pairs.into_iter().map(|pair| (pair.name, pair.value)).collect()),
            said::LEFT => Reply::Left((number != 0).then_some(span)),
            said::KIND => Reply::Kind(match kind {
                Some(kind) => Some(Kind::told(kind)?),
                None => None,
            }),
            said::WHOLE => Reply::Whole(Whole { kind: Kind::told(kind?)?, values: names(pairs), left: span }),
            said::PAGE => {
                (pairs.len() == kinds.len()).then_some(())?;
                let kinds = kinds.into_iter().map(Kind::told).collect::<Option<Vec<_>>>()?;
                Reply::Page { cursor, keys: names(pairs).into_iter().zip(kinds).collect() }
            }
            said::WRONG_KIND => Reply::WrongKind,
            said::NO_KEY => Reply::NoKey,
            said::NO_INDEX => Reply::NoIndex,
            said::NO_ROOM => Reply::NoRoom,
            said::NO_NUMBER => Reply::NoNumber,
            said::OVERFLOW => Reply::Overflow,
            _ => return None,
        };
        Some(Outcome::Done(match age {
            Some(age) => Reply::Aged { age: Span(age), of: Box::new(reply) },
            None => reply,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_and_answer_is_what_it_was() {
        let (key, a, b) = (Bytes::from("k"), Bytes::from("a"), Bytes::from_static(b"\xff"));
        let list = |what: List| Action::List { key: key.clone(), what };
        let second = Span::secs(1);
        let actions = [
            Action::Read { kind: Kind::Field, at: vec![(key.clone(), a.clone())] },
            Action::Peek { at: vec![key.clone()] },
            Action::All { kind: Kind::Score, key: key.clone() },
            Action::Set { pairs: vec![(key.clone(), b.clone())], end: End::Never },
            Action::Set { pairs: vec![(key.clone(), b.clone())], end: End::Kept },
            Action::Set { pairs: vec![(key.clone(), b.clone())], end: End::After(second) },
            Action::Put { kind: Kind::Member, key: key.clone(), pairs: vec![(a.clone(), None)] },
            Action::Put { kind: Kind::Field, key: key.clone(), pairs: vec![(a.clone(), Some(b.clone()))] },
            Action::Take { kind: Kind::Member, key: key.clone(), elements: vec![a.clone(), b.clone()] },
            Action::Add { kind: Kind::Register, key: key.clone(), element: Bytes::new(), by: -7 },
            Action::Remove { keys: vec![key.clone(), a.clone()] },
            Action::Exists { keys: vec![key.clone()] },
            Action::End { key: key.clone(), end: Some(second) },
            Action::End { key: key.clone(), end: None },
            Action::Left { key: key.clone() },
            Action::Kind { key: key.clone() },
            Action::Count,
            Action::Scan { cursor: u64::MAX, count: 10 },
            Action::Whole { key: key.clone() },
            list(List::Push { side: Side::Left, values: vec![a.clone()], only_there: true }),
            list(List::Push { side: Side::Right, values: vec![a.clone(), b.clone()], only_there: false }),
            list(List::Range { first: -3, last: -1 }),
            list(List::Length),
            list(List::Set { index: -1, value: a.clone() }),
            list(List::Remove { count: 0, value: b.clone() }),
            list(List::Trim { first: 0, last: 9 }),
            list(List::Insert { side: Side::Right, pivot: a.clone(), value: b.clone() }),
        ];
        for action in actions {
            assert_eq!(AnAction::of(&action).and_then(AnAction::read), Some(action));
        }
        let whole = Whole { kind: Kind::Item, values: vec![a.clone()], left: Some(second) };
        let replies = [
            Reply::Done,
            Reply::Int(-1),
            Reply::Values(vec![None, Some(b.clone())]),
            Reply::Pairs(vec![(a.clone(), None), (b.clone(), Some(a.clone()))]),
            Reply::Left(None),
            Reply::Left(Some(None)),
            Reply::Left(Some(Some(second))),
            Reply::Kind(None),
            Reply::Kind(Some(Kind::Item)),
            Reply::Whole(whole),
            Reply::Page { cursor: 9, keys: vec![(key.clone(), Kind::Field)] },
            Reply::WrongKind,
            Reply::NoKey,
            Reply::NoIndex,
            Reply::NoRoom,
            Reply::NoNumber,
            Reply::Overflow,
            Reply::Aged { age: second, of: Box::new(Reply::Values(vec![None])) },
        ];
        let refused = [Because::Wrong, Because::Rate, Because::Quota, Because::Room].map(|of| {
            let refused = [Refused::wrong("no"), Refused::busy("later", second)];
            refused.map(|refused| Outcome::Refused(refused.because(of)))
        });
        let refused = refused.into_iter().flatten().chain([Outcome::Refused(Refused::busy("later", second))]);
        // Programs of before say it in words.
        assert_eq!(because_of(0, &format!("{}: so much", crate::FULL), None), Because::Quota);
        assert_eq!((because_of(0, "no", None), because_of(0, "no", Some(second))), (Because::Wrong, Because::Busy));
        let unknown = [Outcome::Unknown(Unknown { why: "who knows".into() })];
        for outcome in replies.map(Outcome::Done).into_iter().chain(refused).chain(unknown) {
            assert_eq!(AReply::of(&outcome).read(), Some(outcome));
        }
    }
}
