//! Functions about the texts that a shard keeps for scripts (`linear/src/texts.rs`). They are about all shards, and no key.

use super::*;
use crate::texts::{Library, Put};

/// The level from which texts are kept (`base/src/level.rs`).
pub const LEVEL: u32 = 6;
pub const KEEP: &str = "scripts.keep";

const fn texts(function: Function) -> Function {
    inner(since(LEVEL, Function { whole: true, ..function }))
}

/// What became of a library that was to be kept, beside the name of a function that another one has.
pub const KEPT: i64 = 1;
pub const EXISTS: i64 = 0;
pub const FULL: i64 = -1;

pub const ALL: &[Function] = &[
    texts(write(KEEP, "digest text", |space, _, args| match args {
        [sha, text] => Ok(Reply::Int(space.texts_mut().keep(sha, text).into())),
        _ => Err(Wrong::Arguments),
    })),
    texts(write("scripts.flush", "", |space, _, args| {
        none(args)?;
        Ok(count(space.texts_mut().flush()))
    })),
    // For each digest 0 or 1, shard by shard.
    texts(read("scripts.known", "digest [digest ...]", |space, _, args| {
        Ok(Reply::List(args.iter().map(|sha| Reply::Int(space.texts().script(sha).is_some().into())).collect()))
    })),
    texts(write("library.put", "name new|replace text function [function ...]", |space, _, args| {
        let [name, how, text, functions @ ..] = args else { return Err(Wrong::Arguments) };
        let replaces = match &how[..] {
            b"new" => false,
            b"replace" => true,
            _ => return Err(Wrong::Arguments),
        };
        let library = Library { text: text.clone(), functions: functions.to_vec() };
        Ok(match space.texts_mut().put_library(name, library, replaces) {
            Put::Kept => Reply::Int(KEPT),
            Put::Exists => Reply::Int(EXISTS),
            Put::HasFunction(name) => Reply::Bytes(name),
            Put::Full => Reply::Int(FULL),
        })
    })),
    texts(write("library.remove", "name", |space, _, args| {
        Ok(Reply::Int(space.texts_mut().remove_library(one(args)?).into()))
    })),
    texts(write("library.flush", "", |space, _, args| {
        none(args)?;
        Ok(count(space.texts_mut().flush_libraries()))
    })),
    // Name and text of each, shard by shard.
    texts(read("library.list", "", |space, _, args| {
        none(args)?;
        let all = space.texts().libraries().iter();
        Ok(Reply::List(
            all.flat_map(|(name, library)| [name, &library.text].map(|b| Reply::Bytes(b.clone()))).collect(),
        ))
    })),
];
