//! How an operation ends when it does not end well. One type for each kind of operation, with just what can go wrong there;
//! each can say whether anything may have changed ([`Happened`]).

use std::fmt;

use base::{Outcome, Refused, Unknown};

use crate::Version;

/// Whether an operation that failed may have changed something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    /// Nothing changed.
    No,
    /// It may have: read before you do it again, or do only what may be done twice.
    Maybe,
}

/// Why a program cannot begin: what its environment lacks, or what it asked for that is not its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartError(pub String);

/// A session's cookie that opens nothing. Treat its holder as a new visitor, and clear it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadCookie {
    /// Cut or mangled on its way.
    Truncated,
    /// Not made by this cluster's keys.
    Forged,
    /// Of another namespace or cluster.
    Foreign,
    /// Its lease is over, its session was ended, or its key was rotated away.
    Expired,
}

/// Why a value could not be read. Nothing changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadError {
    Cookie(BadCookie),
    /// The bricks that may have held it are all gone. Not the same as absent: there may have been a value.
    Lost,
    Refused(Refused),
}

/// Why a value was not written, or perhaps not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteError {
    Cookie(BadCookie),
    /// The condition did not hold: the present version, if there is a value. Nothing changed.
    Conflict(Option<Version>),
    /// The bricks that may have held it are all gone; there is nothing to change.
    Lost,
    Refused(Refused),
    Unknown(Unknown),
}

impl WriteError {
    pub fn happened(&self) -> Happened {
        match self {
            Self::Cookie(_) | Self::Conflict(_) | Self::Lost | Self::Refused(_) => Happened::No,
            Self::Unknown(_) => Happened::Maybe,
        }
    }

    /// The three ends of any operation, for whoever does not need the reasons.
    pub fn outcome<T>(self) -> Outcome<T> {
        match self {
            Self::Refused(refused) => Outcome::Refused(refused),
            Self::Unknown(unknown) => Outcome::Unknown(unknown),
            Self::Cookie(_) | Self::Conflict(_) | Self::Lost => Outcome::Refused(Refused::wrong(self.to_string())),
        }
    }
}

impl BadCookie {
    pub(crate) fn named(kind: &str) -> Option<Self> {
        match kind {
            "cookie-truncated" => Some(Self::Truncated),
            "cookie-forged" => Some(Self::Forged),
            "cookie-foreign" => Some(Self::Foreign),
            "cookie-expired" => Some(Self::Expired),
            _ => None,
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for BadCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the cookie is cut",
            Self::Forged => "the cookie was not made by this cluster",
            Self::Foreign => "the cookie is of another namespace or cluster",
            Self::Expired => "the cookie has expired",
        })
    }
}

const LOST: &str = "the bricks that may have held it are all gone";

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cookie(bad) => bad.fmt(f),
            Self::Lost => f.write_str(LOST),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cookie(bad) => bad.fmt(f),
            Self::Conflict(None) => f.write_str("there is no value"),
            Self::Conflict(Some(version)) => write!(f, "the value has version {version}"),
            Self::Lost => f.write_str(LOST),
            Self::Refused(refused) => refused.fmt(f),
            Self::Unknown(unknown) => unknown.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}
impl std::error::Error for BadCookie {}
impl std::error::Error for ReadError {}
impl std::error::Error for WriteError {}
