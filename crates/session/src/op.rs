//! What may be asked of the `session` class, and what it answers: the words that front doors use.

use std::sync::Arc;

use base::{Priority, Span};
use bytes::Bytes;

use super::{CookieError, Version};

/// One operation. Ends in `Outcome<Reply>`: done, refused or unknown.
#[derive(Clone, Debug)]
pub struct Op {
    pub namespace: Arc<str>,
    /// 1 to 512 bytes. Empty for [`Action::Count`] and [`Action::Scan`].
    pub key: Bytes,
    pub action: Action,
    pub place: Place,
    /// In overload bricks turn away what matters less.
    pub priority: Priority,
}

impl Op {
    /// An operation of a client that holds only a key.
    pub fn keyed(namespace: Arc<str>, key: Bytes, action: Action) -> Self {
        Self { namespace, key, action, place: Place::Keyed, priority: Priority::NORMAL }
    }

    /// An operation of a client that keeps a cookie; none yet for the first `Put`.
    pub fn cookie(namespace: Arc<str>, key: Bytes, action: Action, cookie: Option<String>) -> Self {
        Self { namespace, key, action, place: Place::Cookie(cookie), priority: Priority::NORMAL }
    }
}

/// How the bricks of a key are found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// By the key alone.
    Keyed,
    /// By the cookie that the last `Put` gave (SSM 3.2). `Put`, `Get`, `Touch` and `Remove` only; values of the two
    /// ways do not see each other.
    Cookie(Option<String>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Answer: `Value`, `Absent` or `Lost`.
    Get,
    /// Answer: `Stored` or `NotStored`; with `want_old`, which hands out a text, also `OtherKind`.
    Put { value: Bytes, kind: Kind, lease: Lease, when: When, want_old: bool },
    /// A new lease for a value that stays. Answer: `Touched` (in cookie mode `Stored` with the new cookie). The version
    /// changes.
    Touch { lease: Lease },
    /// `Touch` and `Get` of a text in one. Answer: `Value` (with the new lease), `Absent`, `Lost` or `OtherKind`. Keyed only.
    GetTouch { lease: Lease },
    /// Answer: `Removed`, true if there was a value.
    Remove,
    /// Answer: `Removed`, or `NotStored` if the present value has another version. Keyed only.
    RemoveIf { version: Version },
    /// `Remove` of a text that gives what it removed. Answer: `Value`, `Absent`, `Lost` or `OtherKind`. Keyed only.
    Take,
    /// How many values the namespace has: exactly if they are few (one page of a walk), else by what bricks have counted, which may
    /// be off by what ended within ten seconds, and by a copy of each for a moment while bricks come or go. Answer: `Count`.
    Count,
    /// A page of the namespace's keys; a walk starts with cursor 0 and ends when it gets cursor 0 back. A key that is
    /// there throughout the walk is listed; `count` is a hint. Answer: `Page`.
    Scan { cursor: u64, count: u32 },
}

/// What a value is, as who wrote it said. It goes beside the value everywhere, so that no bytes of a client's can be taken for
/// something else than they were written as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// Whatever a client puts: bytes, for most a text.
    #[default]
    Text,
    /// Fields, written as [`super::doc::Form::Hash`].
    Hash,
}

/// How long a value is kept unless it is written or touched again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lease {
    /// What the namespace declares.
    Default,
    /// From now on. Zero is refused; more than 400 days are cut to that.
    For(Span),
    /// What is left of the present one; the default where there is no value.
    Keep,
}

/// The condition of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Always,
    Absent,
    Present,
    /// The present value has just this version.
    Version(Version),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Value {
        value: Bytes,
        kind: Kind,
        version: Version,
        lease_left: Span,
    },
    /// There is no value.
    Absent,
    /// No value was found, but so many bricks lost their memory that there may have been one.
    Lost,
    Stored {
        version: Version,
        /// What was there before, if `want_old`.
        old: Option<Bytes>,
        /// In cookie mode.
        cookie: Option<String>,
    },
    /// The condition did not hold, or what was to be merged has ended; nothing changed.
    NotStored {
        /// Version of the present value, if there is one.
        version: Option<Version>,
        /// The present value, if `want_old`.
        old: Option<Bytes>,
    },
    Removed(bool),
    Touched(bool),
    /// A text was to be handed out and changed, but the value is of this kind. Nothing changed.
    OtherKind(Kind),
    /// The cookie of the operation opens nothing. Nothing was done.
    BadCookie(CookieError),
    Count(u64),
    /// Cursor 0: the walk is over.
    Page {
        cursor: u64,
        keys: Vec<(Bytes, Kind)>,
    },
}
