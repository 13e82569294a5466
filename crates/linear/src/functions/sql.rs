//! Functions of a namespace of class `sql`: they are about the database that its one group has beside its keys (`crates/sql`).
//! Front doors draw the time and the number for chance, and say how large the database may be.

use ::sql::{Answer, Failure, Given, Kind, Memory};

use super::*;

/// The level from which there are such namespaces (`base/src/level.rs`).
const LEVEL: u32 = ::sql::LEVEL;
/// Does a batch of statements.
pub const BATCH: &str = "sql.batch";
/// Behind the statements of a batch: what they keep in memory is bounded. So it is where all nodes know of it.
pub const BOUNDED: &str = "bounded";
/// Reads with one.
pub const QUERY: &str = "sql.query";

pub const ALL: &[Function] = &[
    inner(args_since(
        ::sql::LEVEL_BOUNDED,
        |args| args.len() > 4,
        since(
            LEVEL,
            write(BATCH, "wall_ms number size_max statements [bounded]", |space, _, args| {
                let (wall_ms, seed, most, json, memory) = match args {
                    [wall_ms, seed, most, json] => (wall_ms, seed, most, json, Memory::Free),
                    [wall_ms, seed, most, json, how] if how == BOUNDED => (wall_ms, seed, most, json, Memory::Bounded),
                    _ => return Err(Wrong::Arguments),
                };
                let (given, most) = (given(wall_ms, seed)?, unsigned(most)?);
                space.change_database(given, most, memory, json).map(reply)
            }),
        ),
    )),
    inner(since(
        LEVEL,
        read(QUERY, "wall_ms number statement", |space, _, args| match args {
            [wall_ms, seed, json] => space.query_database(given(wall_ms, seed)?, json).map(reply),
            _ => Err(Wrong::Arguments),
        }),
    )),
];

fn given(wall_ms: &[u8], seed: &[u8]) -> std::result::Result<Given, Wrong> {
    Ok(Given { wall_ms: unsigned(wall_ms)?, seed: unsigned(seed)? })
}

/// One text if it was done, two if not: what is the matter, and all that is known of it.
fn reply(answer: Answer) -> Reply {
    match answer {
        Ok(json) => Reply::List(vec![Reply::Bytes(json)]),
        Err(failure) => {
            let said = serde_json::to_vec(&failure).unwrap_or_default();
            Reply::List(vec![Reply::Nil, Reply::Bytes(said.into())])
        }
    }
}

/// What such a reply says; none if it is no such reply.
pub fn answer(reply: Reply) -> Option<Answer> {
    let Reply::List(said) = reply else { return None };
    match &said[..] {
        [Reply::Bytes(json)] => Some(Ok(json.clone())),
        [Reply::Nil, Reply::Bytes(failure)] => Some(Err(serde_json::from_slice(failure).unwrap_or_else(|_| Failure {
            kind: Kind::Bad,
            statement: None,
            why: String::from_utf8_lossy(failure).into_owned(),
        }))),
        _ => None,
    }
}
