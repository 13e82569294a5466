//! The keys of `[namespace.NAME]` that a class has: read, checked, written by the class alone. What is common to all classes (the key
//! `class`, a key that only another class has) is the business of the list in `state`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Databases, Groups, Quota};

/// A mistake in a declaration: the key that is wrong, and why, as a sentence that says what would be right.
pub type Wrong = (String, String);

/// A key that a class knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// As it is written.
    pub name: &'static str,
    /// An example of a value, in TOML.
    pub example: &'static str,
    /// One sentence: what it is, its default, its bounds.
    pub about: &'static str,
}

/// What is declared of one namespace of a class, without the key `class`.
pub trait Spec: Clone + PartialEq + Eq + std::fmt::Debug {
    /// All keys, in the order in which they are shown.
    const KEYS: &'static [Key];

    /// What to write in place of a key that only another class has, as a sentence. Without one it is said which class has the key.
    fn foreign(_key: &str) -> Option<&'static str> {
        None
    }

    /// Reads the keys. Those that are not in [`Spec::KEYS`] have been refused before.
    ///
    /// # Errors
    /// The first value that has the wrong form.
    fn read(keys: &Map<String, Value>) -> Result<Self, Wrong>;

    /// The keys that are not as by default, in the order of [`Spec::KEYS`].
    fn write(&self) -> Vec<(&'static str, Value)>;

    /// Checks what the form of a value cannot.
    ///
    /// # Errors
    /// The first value that is out of bounds, or does not fit the others.
    fn validate(&self) -> Result<(), Wrong>;

    /// May a namespace that was declared as `before`, and has so many shards now, be declared as this?
    ///
    /// # Errors
    /// The key that cannot change so.
    fn may_follow(&self, before: &Self, shards: u32) -> Result<(), Wrong>;

    /// What it may take of its nodes.
    fn quota(&self) -> &Quota;

    /// What else its Redis clients may open.
    fn databases(&self) -> Option<&Databases> {
        None
    }

    /// Bytes that it may hold in all, copies not counted, if it is bounded.
    fn bytes_max(&self) -> Option<u64> {
        self.quota().bytes_max
    }

    /// Consensus groups of class `linear` that it wants to lie in, if it lies in any.
    fn groups(&self) -> Option<Groups> {
        None
    }

    /// A key with a value that only newer programs know, and from which level on ([`base::level`]).
    fn newer_key(&self) -> Option<(&'static str, u32)> {
        self.databases()?.newer_key()
    }

    /// What an acknowledged write is safe against, in a sentence for people.
    fn promise(&self) -> &'static str;

    /// What `coppice ns show` prints of it behind its name and class, in this order.
    fn lines(&self) -> Vec<Line> {
        vec![Line::new("promise", self.promise())]
    }
}

/// Something that people are shown of a namespace: what it is, and how it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Line {
    /// A word or two, like `durability`.
    pub name: String,
    /// One sentence, or a part of one.
    pub text: String,
}

impl Line {
    pub fn new(name: &str, text: impl Into<String>) -> Self {
        Self { name: name.to_owned(), text: text.into() }
    }
}

/// Reads a length of time, in milliseconds. `example` is shown to whoever wrote something else.
///
/// # Errors
/// It is no text, or has no unit.
pub fn span(key: &str, value: &Value, example: &str) -> Result<u64, Wrong> {
    let Some(text) = value.as_str() else {
        let why = format!("write a length of time, with its unit and in quotes, like {key} = \"{example}\"");
        return Err((key.into(), why));
    };
    base::text::span_from_text(text).map_err(|why| (key.into(), why))
}

/// Reads a size, in bytes.
///
/// # Errors
/// It is no text, or has no unit.
pub fn size(key: &str, value: &Value) -> Result<u64, Wrong> {
    let Some(text) = value.as_str() else {
        let why = format!("write a size, with its unit and in quotes, like {key} = \"64MiB\"");
        return Err((key.into(), why));
    };
    base::text::size_from_text(text).map_err(|why| (key.into(), why))
}

/// Reads a whole number.
///
/// # Errors
/// It is none, or larger than 32 bits hold.
pub fn is_number(key: &str, value: &Value) -> Result<u32, Wrong> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| (key.into(), format!("write a whole number, like {key} = 3")))
}
