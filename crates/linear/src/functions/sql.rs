//! Functions of a namespace of class `sql`: they are about the database that its one group has beside its keys (`crates/sql`).
//! Front doors draw the time and the number for chance, and say how large the database may be.

use ::sql::{Answer, Failure, Given, Kind, Memory, Outside};

use super::*;

/// The level from which there are such namespaces (`base/src/level.rs`).
const LEVEL: u32 = ::sql::LEVEL;
/// Does a batch of statements.
pub const BATCH: &str = "sql.batch";
/// Behind the statements of a batch: what they keep in memory is bounded. So it is where all nodes know of it.
pub const BOUNDED: &str = "bounded";
/// In place of that: and so is what SQLite makes of them before they run. Behind what is loaded: it is looked at in the same way.
pub const WEIGHED: &str = "weighed";
/// A page of the database as it was when the first was asked for (`group/dumps.rs`), as `dump` gives pages of keys: its items are pieces
/// of the file that SQLite would have of it.
pub const DUMP: &str = "sql.dump";
/// Takes what lies in pieces at keys in place of the database.
pub const LOAD: &str = "sql.load";
/// Bytes of a piece: some pages, so that a backup of what changed is not much larger than the pages that did.
pub const PIECE_BYTES: usize = 16 << 10;
/// Pieces of a database.
pub const PIECES_MAX: u64 = ::sql::limits::SIZE_MAX / PIECE_BYTES as u64;
/// How long it is known that a database was loaded.
const LOADED_KNOWN_MS: u64 = 3_600_000;
/// Reads with one.
pub const QUERY: &str = "sql.query";

pub const ALL: &[Function] = &[
    inner(args_since(
        // Marked as bounded it is of level 8: no node that this one runs beside is older.
        ::sql::LEVEL_WEIGHED,
        |args| args.last().is_some_and(|how| args.len() > 4 && how == WEIGHED),
        since(
            LEVEL,
            write(BATCH, "wall_ms number size_max statements [bounded|weighed]", |space, _, args| {
                let (wall_ms, seed, most, json, memory) = match args {
                    [wall_ms, seed, most, json] => (wall_ms, seed, most, json, Memory::Free),
                    [wall_ms, seed, most, json, how] if how == BOUNDED => (wall_ms, seed, most, json, Memory::Bounded),
                    [wall_ms, seed, most, json, how] if how == WEIGHED => (wall_ms, seed, most, json, Memory::Weighed),
                    _ => return Err(Wrong::Arguments),
                };
                let (given, most) = (given(wall_ms, seed)?, unsigned(most)?);
                space.change_database(given, most, memory, json).map(reply)
            }),
        ),
    )),
    inner(since(::sql::LEVEL_DUMPED, read(DUMP, "id first|after piece bytes", dump))),
    inner(args_since(
        ::sql::LEVEL_LOAD_WEIGHED,
        |args| args.get(3).is_some_and(|how| how == WEIGHED),
        since(
            ::sql::LEVEL_DUMPED,
            write(LOAD, "prefix pieces size_max [weighed]", |space, _, args| {
                let (prefix, pieces, most, outside) = match args {
                    [prefix, pieces, most] => (prefix, pieces, most, Outside::Whole),
                    [prefix, pieces, most, how] if how == WEIGHED => (prefix, pieces, most, Outside::Weighed),
                    _ => return Err(Wrong::Arguments),
                };
                let (pieces, most) = (unsigned(pieces)?, unsigned(most)?.min(::sql::limits::SIZE_MAX));
                // Who got no answer asks again.
                let done = Bytes::from([prefix, &b"done"[..]].concat());
                if space.get(&done).is_some() {
                    return Ok(reply(Ok(Bytes::from_static(b"{}"))));
                }
                let mut image = Vec::new();
                for piece in 0..pieces {
                    let Some(Value::Text(text)) = space.get(&piece_key(prefix, piece)).map(|entry| &entry.value) else {
                        return Err(Wrong::NoKey);
                    };
                    if (image.len() + text.len()) as u64 > ::sql::limits::SIZE_MAX {
                        return Err(Wrong::TooLarge);
                    }
                    image.extend_from_slice(text);
                }
                let answer = space.load_database(&image, most, outside)?;
                if answer.is_ok() {
                    let end = space.clock() + LOADED_KNOWN_MS;
                    space.set(&done, Value::Text(Bytes::new()), end);
                }
                for piece in 0..pieces {
                    space.remove(&piece_key(prefix, piece));
                }
                Ok(reply(answer))
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

/// Where a piece of what is to be loaded lies, until all are there.
pub fn piece_key(prefix: &[u8], piece: u64) -> Bytes {
    [prefix, format!("{piece:08}").as_bytes()].concat().into()
}

/// Which piece a key of a dump is. Zeros make the order of keys that of pieces.
pub fn piece_of(key: &[u8]) -> Option<u64> {
    let piece = std::str::from_utf8(key).ok()?.parse().ok()?;
    (piece_key(b"", piece) == *key).then_some(piece)
}

fn dump(space: &Space, _: &Bytes, args: &[Bytes]) -> Result {
    let [_, how, after, bytes_max] = args else { return Err(Wrong::Arguments) };
    let most = usize::try_from(unsigned(bytes_max)?).unwrap_or(usize::MAX).min(crate::limits::DUMP_PAGE_BYTES);
    let first = match &how[..] {
        b"first" => 0,
        _ => piece_of(after).ok_or(Wrong::Arguments)?.saturating_add(1),
    };
    let image = space.beside.shown().ok_or(Wrong::Arguments)?;
    let begin = usize::try_from(first).unwrap_or(usize::MAX).saturating_mul(PIECE_BYTES).min(image.len());
    let end = begin.saturating_add((most / PIECE_BYTES).max(1) * PIECE_BYTES).min(image.len());
    let (mut items, mut last) = (Vec::new(), Reply::Nil);
    for (piece, at) in (first..).zip((begin..end).step_by(PIECE_BYTES)) {
        let key = Reply::Bytes(piece_key(b"", piece));
        let bytes = image.slice(at..(at + PIECE_BYTES).min(end));
        last = key.clone();
        let kind = Reply::Bytes(Bytes::from_static(b"string"));
        items.push(Reply::List(vec![key, kind, Reply::Int(-1), Reply::Int(0), Reply::Bytes(bytes)]));
    }
    let last = if end < image.len() { last } else { Reply::Nil };
    Ok(Reply::List(vec![Reply::Int(0), Reply::Int(space.clock() as i64), last, Reply::List(items)]))
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
