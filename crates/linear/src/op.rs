//! Commands and replies: what front doors ask of a `linear` namespace, and what they get.

use std::sync::Arc;

use base::{Priority, Refused, Span};
use bytes::Bytes;
use class::Bound;
use uuid::Uuid;

/// What a front door asks: steps that happen together or not at all, at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Op {
    pub namespace: Arc<str>,
    /// All must hold, or nothing happens.
    pub conditions: Vec<Condition>,
    pub steps: Vec<Step>,
    /// Of one that only reads: what it sees may be so old, if that is sooner. Any member may answer then. The function
    /// `age` says how old it was.
    pub stale: Option<Span>,
    pub over: Over,
    /// Whoever asks does not care what comes of it, if only it is done: the reply means nothing, unless it is
    /// [`Reply::Wrong`]. So several may be done as one (`together.rs`).
    pub weak: bool,
    /// What the caller calls a write, so that it happens once however often it is asked (`once.rs`). It must be about keys of
    /// one shard.
    pub once: Option<Uuid>,
    /// A hash of what the caller said, if the steps are not the same each time that it is said (a number that is drawn, a time of
    /// the clock, versions that were seen). By it an id is known to be for the same thing; without it by the steps.
    pub said: Option<u64>,
    /// In overload leaders turn away what matters less.
    pub priority: Priority,
    /// So many commands of its client it stands for, whose steps stand behind each other: figures count them.
    pub commands: u32,
}

/// How an operation lies over the shards of its namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Over {
    /// All in one shard, at one moment.
    #[default]
    One,
    /// Each step where its key is, one about all keys at every shard: not at one moment.
    Each,
    /// Likewise, over the shards that make up this range of hashes.
    Range { from: u64, to: u64 },
}

/// The key has this version; 0: there is no such key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    pub key: Bytes,
    pub version: u64,
}

/// A function by its name (`functions/` lists them), on a key, with arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub key: Bytes,
    /// Of the list in `functions`; empty for one that this program does not know.
    pub function: &'static str,
    pub args: Vec<Bytes>,
}

/// What became of an operation that was done.
#[derive(Clone, PartialEq, Debug)]
pub enum Ran {
    /// A reply for each step.
    Done(Vec<Reply>),
    /// A condition did not hold; nothing happened.
    Unmet,
}

/// What a function gives.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Nil,
    Int(i64),
    Bytes(Bytes),
    List(Vec<Reply>),
    /// Why there is no answer; it changed nothing, but for [`Wrong::LongAnswer`].
    Wrong(Wrong),
}

/// Why a function did nothing. The same at every replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// The key holds a value of another type.
    Type,
    NotANumber,
    Overflow,
    NotAFloat,
    /// The value would be over its limit.
    TooLarge,
    NotJson,
    /// Arguments that this function does not take.
    Arguments,
    /// No function of this name.
    Unknown,
    /// It was done, but its answer would not fit into a frame with those before it.
    LongAnswer,
    /// It was done when it was asked before, and its answer was too large to be kept.
    NotKept,
    /// A caller's id that was another operation's.
    OnceReused,
    /// The namespace holds as many bytes, where this key lies, as are declared for it.
    BytesMax,
    /// ... as many keys.
    KeysMax,
    /// A script of the same transaction was ended by force, and nothing of it is done.
    Undone,
    /// No such key, where one is needed.
    NoKey,
    /// No such group of a stream. In a list, with the names of the key and of the group behind it.
    NoGroup,
    /// There is such a group already.
    GroupExists,
    /// An id that is not above those that were given.
    IdTooLow,
    /// There is no id above the last one.
    IdsEnd,
    /// Fewer than there are.
    TooFew,
    /// An id that is below one that was removed.
    IdBelowDeleted,
    /// A queue holds as many bytes as it may.
    QueueFull,
    /// The payload of a job.
    PayloadTooLarge,
    /// Keys of a queue.
    KeysRemembered,
    /// A repeat's times.
    NoTimes,
    RepeatsMax,
    QueuesMax,
}

impl From<Bound> for Wrong {
    fn from(bound: Bound) -> Self {
        match bound {
            Bound::Bytes => Wrong::BytesMax,
            Bound::Keys => Wrong::KeysMax,
        }
    }
}

impl Reply {
    /// About how many bytes it has on its way.
    pub fn bytes(&self) -> usize {
        match self {
            Reply::Nil | Reply::Int(_) | Reply::Wrong(_) => 12,
            Reply::Bytes(bytes) => bytes.len() + 12,
            Reply::List(list) => list.iter().map(Reply::bytes).sum::<usize>() + 12,
        }
    }
}

impl Wrong {
    pub const ALL: [Wrong; 27] = [
        Wrong::Type,
        Wrong::NotANumber,
        Wrong::Overflow,
        Wrong::NotAFloat,
        Wrong::TooLarge,
        Wrong::NotJson,
        Wrong::Arguments,
        Wrong::Unknown,
        Wrong::LongAnswer,
        Wrong::NotKept,
        Wrong::OnceReused,
        Wrong::BytesMax,
        Wrong::KeysMax,
        Wrong::Undone,
        Wrong::NoKey,
        Wrong::NoGroup,
        Wrong::GroupExists,
        Wrong::IdTooLow,
        Wrong::IdsEnd,
        Wrong::TooFew,
        Wrong::IdBelowDeleted,
        Wrong::QueueFull,
        Wrong::PayloadTooLarge,
        Wrong::KeysRemembered,
        Wrong::NoTimes,
        Wrong::RepeatsMax,
        Wrong::QueuesMax,
    ];

    /// Why, in words for a person: those of Redis, where it has some, without the one that they begin with.
    pub fn why(self) -> &'static str {
        match self {
            Wrong::Type => "Operation against a key holding the wrong kind of value",
            Wrong::NotANumber => "value is not an integer or out of range",
            Wrong::Overflow => "increment or decrement would overflow",
            Wrong::NotAFloat => "value is not a valid float",
            Wrong::TooLarge => "the value would be over 16 MiB",
            Wrong::NotJson => "the value is not a JSON document",
            Wrong::Arguments => "wrong arguments for this function",
            Wrong::Unknown => "no function of this name",
            Wrong::LongAnswer => "it was done, but the answers together are over 16 MiB: ask for less at once",
            Wrong::NotKept => "it was done before; its answer was too large to be kept",
            Wrong::OnceReused => "this id was another operation's: each needs one of its own",
            Wrong::BytesMax => Bound::Bytes.why(),
            Wrong::KeysMax => Bound::Keys.why(),
            Wrong::Undone => "a script of this transaction was ended: nothing of it was done",
            Wrong::NoKey => "no such key",
            Wrong::NoGroup => "No such key or consumer group",
            Wrong::GroupExists => "Consumer Group name already exists",
            Wrong::IdTooLow => "The ID specified in XADD is equal or smaller than the target stream top item",
            Wrong::IdsEnd => "The stream has exhausted the last possible ID, unable to add more items",
            Wrong::TooFew => "The entries_added specified in XSETID is smaller than the target stream length",
            Wrong::IdBelowDeleted => "The ID specified in XSETID is smaller than current max_deleted_entry_id",
            Wrong::QueueFull => {
                "the queue is full: it holds 16 MiB (a job counts 128 bytes beside its payload); let workers catch up, drop dead jobs, or use several queues"
            }
            Wrong::PayloadTooLarge => "the payload is over 60 KiB: keep it as an object (class object), and put its id",
            Wrong::KeysRemembered => {
                "the queue remembers 65536 keys, as many as it may: say with `keep` that they are forgotten sooner"
            }
            Wrong::NoTimes => {
                "these are no times that come: five fields in UTC as cron has them, \"0 3 * * *\", or \"every MS\" (1000 at least)"
            }
            Wrong::RepeatsMax => "the queue has 100 repeats, as many as it may",
            Wrong::QueuesMax => "there are 1000 queues in this shard, as many as there may be",
        }
    }

    /// What an operation is told that did not happen for that.
    pub fn refused(self) -> Refused {
        match self {
            Wrong::BytesMax => Bound::Bytes.refused(),
            Wrong::KeysMax => Bound::Keys.refused(),
            _ => Refused::wrong(self.why()),
        }
    }
}

impl Ran {
    /// Was it not done as its namespace has all that it may?
    pub fn is_over(&self) -> bool {
        matches!(self, Ran::Done(replies) if matches!(replies.first(), Some(Reply::Wrong(Wrong::BytesMax | Wrong::KeysMax))))
    }

    /// About how many bytes it has on its way.
    pub fn bytes(&self) -> usize {
        match self {
            Ran::Done(replies) => replies.iter().map(Reply::bytes).sum::<usize>() + 16,
            Ran::Unmet => 16,
        }
    }
}

impl Op {
    /// One function on one key.
    pub fn one(namespace: Arc<str>, key: Bytes, function: &'static str, args: Vec<Bytes>) -> Self {
        Self::of(namespace, vec![Step::new(key, function, args)])
    }

    /// Steps without a condition.
    pub fn of(namespace: Arc<str>, steps: Vec<Step>) -> Self {
        Self {
            namespace,
            conditions: Vec::new(),
            steps,
            stale: None,
            over: Over::One,
            weak: false,
            once: None,
            said: None,
            priority: Priority::NORMAL,
            commands: 1,
        }
    }
}

impl Step {
    pub fn new(key: Bytes, function: &'static str, args: Vec<Bytes>) -> Self {
        Self { key, function, args }
    }
}
