//! The three ends of an operation (state.md, rule 1): done, refused (it did not happen), unknown (it may have).

use std::fmt;

use crate::Span;

/// It did not happen. Nothing changed; the caller may try again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why, in words for a person: lower case, no full stop, the value that was wrong.
    pub why: String,
    /// What of it: whoever steers by a refusal steers by this, and never by its words.
    pub because: Because,
    /// When a retry is worth it; `None` if the same request will be refused again.
    pub retry_after: Option<Span>,
}

/// What stands in the way of an operation that was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// What was asked for.
    Wrong,
    /// Too much else is to be done, or a part that is about to come back.
    Busy,
    /// Its namespace has asked for as much as it may in a second (`rate_max`).
    Rate,
    /// Its namespace holds as much as it may (`bytes_max`, `keys_max`, `size_max`).
    Quota,
    /// No node has memory or disk for it.
    Room,
}

/// It may have happened. A write that timed out ends here, never in [`Refused`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown {
    pub why: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<T> {
    Done(T),
    Refused(Refused),
    Unknown(Unknown),
}

impl Refused {
    /// Refused for good: the request itself is wrong.
    pub fn wrong(why: impl Into<String>) -> Self {
        Self { why: why.into(), because: Because::Wrong, retry_after: None }
    }

    /// Refused for now: overload, or a part that is about to come back.
    pub fn busy(why: impl Into<String>, retry_after: Span) -> Self {
        Self { why: why.into(), because: Because::Busy, retry_after: Some(retry_after) }
    }

    /// The same, because of this.
    pub fn because(self, because: Because) -> Self {
        Self { because, ..self }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (it may have happened)", self.why)
    }
}
