//! What may be asked of the `soft` class, and what it answers: the words that front doors use.

use std::sync::Arc;

use base::{Priority, Span};
use bytes::Bytes;

/// One operation. Ends in `Outcome<Reply>`: done, refused or unknown.
#[derive(Clone, Debug)]
pub struct Op {
    pub namespace: Arc<str>,
    pub action: Action,
    pub priority: Priority,
    /// Of a read: what is known may be so old, else it is refused, and the answer is `Aged`. None: it may be any age.
    pub stale: Option<Span>,
}

impl Op {
    pub fn of(namespace: Arc<str>, action: Action) -> Self {
        Self { namespace, action, priority: Priority::NORMAL, stale: None }
    }
}

/// What lies at a key. A key that two nodes made at one moment may have cells of several kinds: each command sees its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// When the key ends. Not of the data: a key that has only this is not there.
    End = 0,
    /// A text or a number, under the empty element.
    Register = 1,
    /// Of a map: a text or a number.
    Field = 2,
    /// Of a set.
    Member = 3,
    /// Of a ranking: a member with its score.
    Score = 4,
    /// Of a list; the element is its place (`list.rs`).
    Item = 5,
}

impl Kind {
    pub const ALL: [Kind; 6] = [Kind::End, Kind::Register, Kind::Field, Kind::Member, Kind::Score, Kind::Item];

    pub fn told(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// As Redis calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::End => "none",
            Kind::Register => "string",
            Kind::Field => "hash",
            Kind::Member => "set",
            Kind::Score => "zset",
            Kind::Item => "list",
        }
    }
}

/// An end of a list, or a side of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Left,
    Right,
}

/// What is done to a list. Places are counted from 0, negative ones from the end.
#[derive(Clone, PartialEq, Debug)]
pub enum List {
    /// One after the other at an end. Answer: `Int`, how many there are then; 0 if there was none and only then.
    Push { side: Side, values: Vec<Bytes>, only_there: bool },
    /// Answer: `Values`.
    Range { first: i64, last: i64 },
    /// Answer: `Int`.
    Length,
    /// Answer: `Done`, `NoKey` or `NoIndex`.
    Set { index: i64, value: Bytes },
    /// The first ones that are so; the last ones if it is negative; with 0 all. Answer: `Int`, how many there were.
    Remove { count: i64, value: Bytes },
    /// Takes away what is not in between. Answer: `Done`.
    Trim { first: i64, last: i64 },
    /// Before or behind the first one that is so. Answer: `Int`: how many there are then; 0: no list, -1: no such item.
    Insert { side: Side, pivot: Bytes, value: Bytes },
}

impl List {
    fn is_write(&self) -> bool {
        !matches!(self, List::Range { .. } | List::Length)
    }

    /// It brings something that was not there.
    pub(crate) fn adds(&self) -> bool {
        matches!(self, List::Push { .. } | List::Set { .. } | List::Insert { .. })
    }

    fn values(&self) -> Vec<&Bytes> {
        match self {
            List::Push { values, .. } => values.iter().collect(),
            List::Set { value, .. } | List::Remove { value, .. } => vec![value],
            List::Insert { pivot, value, .. } => vec![pivot, value],
            List::Range { .. } | List::Length | List::Trim { .. } => Vec::new(),
        }
    }
}

/// When a key that is written ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Never,
    After(Span),
    /// As before.
    Kept,
}

/// A question for what changes.
#[derive(Clone, PartialEq, Debug)]
pub struct Watch {
    /// Of keys that begin so.
    pub prefix: Bytes,
    /// The cursor of the answer before. None: from now on. An empty one: what there is, then what changes.
    pub after: Option<Bytes>,
    /// How long to wait for a change; 10 s at most.
    pub hold: Span,
    /// Ends of keys are told, too, as changes of [`Kind::End`]: there is one, or no more.
    pub ends: bool,
}

/// What has changed, and how far its reader is then.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Changes {
    /// What the reader has is to be forgotten: all that there is follows.
    pub is_reset: bool,
    /// As things are now. More than one of the same does not matter.
    pub changes: Vec<Change>,
    pub cursor: Bytes,
    /// There is more already.
    pub is_more: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    pub key: Bytes,
    pub kind: Kind,
    pub element: Bytes,
    /// None: it is not there. None inside: it has no value, as a member of a set.
    pub value: Option<Option<Bytes>>,
    /// None: it is told as what there is, and not as something that changed.
    pub why: Option<Why>,
    /// Values of writes that did not see each other, and are not read as this one is newer; the newest first. None: one that is too long
    /// to be told. The next write replaces them all.
    pub lost: Vec<Option<Bytes>>,
    pub did: Did,
    /// The key has nothing any more.
    pub is_last: bool,
}

/// How an element came to be what it is, as far as its cell says, or its last update if it is gone: for those who are
/// told of changes by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    Put,
    /// Counted on since it was put.
    Counted,
    /// Put at an end of a list, or between two items.
    Pushed(Side),
    Inserted,
    /// Another item was put in the place of one.
    Replaced,
    /// Taken away with all that its key had.
    Deleted,
    /// Taken away at an end of a list.
    Trimmed,
}

impl Did {
    /// A mark of an update that leaves nothing which could say it. 0: none.
    pub(crate) fn mark(self) -> u32 {
        match self {
            Did::Deleted => 1,
            Did::Trimmed => 2,
            Did::Put | Did::Counted | Did::Pushed(_) | Did::Inserted | Did::Replaced => 0,
        }
    }

    pub(crate) fn marked(mark: u32) -> Option<Self> {
        [Did::Deleted, Did::Trimmed].into_iter().find(|did| did.mark() == mark)
    }
}

/// Why something has changed, as the node knows that tells it. Of several changes that are told at once it is the last one's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It was done here.
    Local,
    /// Another node did it, and said so at once.
    Remote,
    /// It was found by comparison with another node.
    Repair,
    /// Its time was over.
    Ended,
    /// Who held it does so no more.
    Released,
}

impl Why {
    pub fn name(self) -> &'static str {
        match self {
            Why::Local => "local",
            Why::Remote => "remote",
            Why::Repair => "repair",
            Why::Ended | Why::Released => "ended",
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Elements of a kind, each of its key. Answer: `Values`; of another kind `WrongKind`.
    Read { kind: Kind, at: Vec<(Bytes, Bytes)> },
    /// The same, where keys of another kind are as if they were not there.
    Peek { at: Vec<Bytes> },
    /// All elements of a key, in order of their bytes. Answer: `Pairs`.
    All { kind: Kind, key: Bytes },
    /// Registers, whatever was there. Answer: `Done`.
    Set { pairs: Vec<(Bytes, Bytes)>, end: End },
    /// Elements with their values; of sets without. Answer: `Int`, how many were not there.
    Put { kind: Kind, key: Bytes, pairs: Vec<(Bytes, Option<Bytes>)> },
    /// Takes elements away. Answer: `Int`, how many were there.
    Take { kind: Kind, key: Bytes, elements: Vec<Bytes> },
    /// Fields or members that are there as long as `holder` lives: somebody at this node, whom its door knows by a number. Answer: `Int`, how
    /// many were not there.
    Hold { kind: Kind, key: Bytes, pairs: Vec<(Bytes, Option<Bytes>)>, holder: u64 },
    /// All that this one holds here is let go. Answer: `Int`, how many that were.
    LetGo { holder: u64 },
    /// Counts. Answer: `Int`, what this node knows of the sum.
    Add { kind: Kind, key: Bytes, element: Bytes, by: i64 },
    /// Of a list.
    List { key: Bytes, what: List },
    /// Takes whole keys away. Answer: `Int`, how many were there.
    Remove { keys: Vec<Bytes> },
    /// Takes all away. Answer: `Done`.
    Clear,
    /// Answer: `Int`, how many are there.
    Exists { keys: Vec<Bytes> },
    /// Gives a key another end. Answer: `Int`, 1 if it was there (and had an end, if that is taken away).
    End { key: Bytes, end: Option<Span> },
    /// Answer: `Left`.
    Left { key: Bytes },
    /// Answer: `Kind`.
    Kind { key: Bytes },
    /// Keys. Answer: `Int`.
    Count,
    /// A page of keys. Answer: `Page`.
    Scan { cursor: u64, count: u32 },
    /// What changes. Answer: `Changes`.
    Watch(Watch),
    /// All of a key, to be written to a file. Answer: `Whole` or `NoKey`.
    Whole { key: Bytes },
    /// Puts that in the place of what is there. Answer: `Done` or `NoRoom`.
    Load { key: Bytes, whole: Whole },
}

/// All that a key has.
#[derive(Clone, PartialEq, Debug)]
pub struct Whole {
    pub kind: Kind,
    /// The text; fields and values in turn; members; members and scores in turn; items.
    pub values: Vec<Bytes>,
    /// How long it is still there; none: it does not end.
    pub left: Option<Span>,
}

impl Whole {
    /// Keys or elements, and values.
    fn texts(&self) -> (Vec<&Bytes>, Vec<&Bytes>) {
        let every = |first: usize| self.values.iter().skip(first).step_by(2).collect();
        match self.kind {
            Kind::Field | Kind::Score => (every(0), every(1)),
            Kind::Member => (self.values.iter().collect(), Vec::new()),
            Kind::Register | Kind::Item | Kind::End => (Vec::new(), self.values.iter().collect()),
        }
    }
}

impl Action {
    pub fn is_write(&self) -> bool {
        match self {
            Action::List { what, .. } => what.is_write(),
            Action::Set { .. }
            | Action::Put { .. }
            | Action::Take { .. }
            | Action::Add { .. }
            | Action::Hold { .. }
            | Action::LetGo { .. }
            | Action::Remove { .. }
            | Action::Clear
            | Action::Load { .. }
            | Action::End { .. } => true,
            Action::Read { .. }
            | Action::Peek { .. }
            | Action::All { .. }
            | Action::Exists { .. }
            | Action::Left { .. }
            | Action::Kind { .. }
            | Action::Count
            | Action::Scan { .. }
            | Action::Whole { .. }
            | Action::Watch(_) => false,
        }
    }

    /// Its keys and elements, and its values.
    pub(crate) fn texts(&self) -> (Vec<&Bytes>, Vec<&Bytes>) {
        match self {
            Action::Read { at, .. } => (at.iter().flat_map(|(key, element)| [key, element]).collect(), Vec::new()),
            Action::Set { pairs, .. } => (pairs.iter().map(|p| &p.0).collect(), pairs.iter().map(|p| &p.1).collect()),
            Action::Put { key, pairs, .. } | Action::Hold { key, pairs, .. } => {
                let names = std::iter::once(key).chain(pairs.iter().map(|(element, _)| element));
                (names.collect(), pairs.iter().filter_map(|(_, value)| value.as_ref()).collect())
            }
            Action::Take { key, elements, .. } => (std::iter::once(key).chain(elements).collect(), Vec::new()),
            Action::Add { key, element, .. } => (vec![key, element], Vec::new()),
            Action::Peek { at: keys } | Action::Remove { keys } | Action::Exists { keys } => {
                (keys.iter().collect(), Vec::new())
            }
            Action::All { key, .. }
            | Action::End { key, .. }
            | Action::Left { key }
            | Action::Kind { key }
            | Action::Whole { key } => (vec![key], Vec::new()),
            Action::Load { key, whole } => {
                let (mut names, values) = whole.texts();
                names.push(key);
                (names, values)
            }
            Action::List { key, what } => (vec![key], what.values()),
            Action::Watch(watch) => (vec![&watch.prefix], Vec::new()),
            Action::Clear | Action::Count | Action::Scan { .. } | Action::LetGo { .. } => (Vec::new(), Vec::new()),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Done,
    /// A reply, and how old at most what it says is.
    Aged {
        age: Span,
        of: Box<Reply>,
    },
    Int(i64),
    Values(Vec<Option<Bytes>>),
    /// Elements and values; no value where there is none.
    Pairs(Vec<(Bytes, Option<Bytes>)>),
    /// None: no key. None inside: it has no end.
    Left(Option<Option<Span>>),
    Kind(Option<Kind>),
    Whole(Whole),
    Changes(Changes),
    /// Cursor 0: it was the last.
    Page {
        cursor: u64,
        keys: Vec<(Bytes, Kind)>,
    },
    /// The key has something of another kind, and nothing was done.
    WrongKind,
    /// There is no such key, and nothing was done.
    NoKey,
    /// There is no item at that place, and nothing was done.
    NoIndex,
    /// Between these items there are no places left, and nothing was done.
    NoRoom,
    /// What is there is no number, and nothing was done.
    NoNumber,
    /// The sum would be larger than 64 bits hold, and nothing was done.
    Overflow,
}
