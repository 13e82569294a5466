//! Time and chance of a batch: they come with it, so every replica sees the same. All functions of SQLite that would ask the
//! machine have one of the same name here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::Rng;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::Value;
use rusqlite::{Connection, Error, Result, params_from_iter};

use super::limits::VALUE_BYTES_MAX;

/// What a batch brings along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    /// Time of day, milliseconds since 1970: `now`.
    pub wall_ms: u64,
    /// What chance begins with.
    pub seed: u64,
}

/// What functions and hooks of a connection and who drives it both see.
#[derive(Default)]
pub struct Shared {
    /// What is prepared is not the caller's.
    pub is_ours: bool,
    /// Steps are counted also of what is not the caller's: an image from outside says how many it takes.
    pub counts_ours: bool,
    /// Why the statement was refused that was prepared last.
    pub refused: Option<String>,
    /// Tables, indexes, triggers or views are other ones now.
    pub schema: bool,
    pub now_ms: u64,
    pub rng: Option<Rng>,
    /// So often more, by [`super::limits::STEPS_COUNTED`] steps, and a statement is ended.
    pub counts_left: u32,
    pub is_spent: bool,
    /// A row was inserted since this was last looked at.
    pub inserted: bool,
    /// A row has the highest number that there is: the next one would get one by SQLite's own chance.
    pub is_last_row: bool,
    /// Of the statement before: what `changes()` and `last_insert_rowid()` say.
    pub changes: i64,
    pub last_id: i64,
    /// Of all rows that were ever changed, in order.
    pub digest: u64,
}

pub type Sharing = Arc<Mutex<Shared>>;

pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // What panicked in it is SQLite's callback, which leaves numbers.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Functions of the time of day. Each is asked of a second connection, with the moment in place of `now`.
const OF_TIME: &[&str] = &["date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff"];
const CURRENT: &[(&str, &str)] =
    &[("current_date", "date"), ("current_time", "time"), ("current_timestamp", "datetime")];

/// Not deterministic to SQLite: what is stored in an index must not change with the time. Harmless in views and triggers.
const FLAGS: FunctionFlags = FunctionFlags::SQLITE_UTF8.union(FunctionFlags::SQLITE_INNOCUOUS);

/// Gives a connection its functions.
pub fn install(connection: &Connection, shared: &Sharing) -> Result<()> {
    let with = Arc::clone(shared);
    connection.create_scalar_function("random", 0, FLAGS, move |_| Ok(draw(&mut lock(&with)).cast_signed()))?;
    let with = Arc::clone(shared);
    connection.create_scalar_function("randomblob", 1, FLAGS, move |context| {
        let length = context.get::<Option<i64>>(0)?.unwrap_or(0).max(1);
        let length = usize::try_from(length).ok().filter(|length| *length <= VALUE_BYTES_MAX);
        let length = length.ok_or_else(|| own(format!("randomblob gives up to {VALUE_BYTES_MAX} bytes")))?;
        let mut shared = lock(&with);
        let mut bytes: Vec<u8> = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend(draw(&mut shared).to_le_bytes());
        }
        bytes.truncate(length);
        Ok(bytes)
    })?;
    let with = Arc::clone(shared);
    connection.create_scalar_function("changes", 0, FLAGS, move |_| Ok(lock(&with).changes))?;
    let with = Arc::clone(shared);
    connection.create_scalar_function("last_insert_rowid", 0, FLAGS, move |_| Ok(lock(&with).last_id))?;

    let clock = Arc::new(Mutex::new(Connection::open_in_memory()?));
    for name in OF_TIME {
        let (with, clock) = (Arc::clone(shared), Arc::clone(&clock));
        connection.create_scalar_function(*name, -1, FLAGS, move |context| {
            let args = args(context)?;
            let now_ms = lock(&with).now_ms;
            of_time(&lock(&clock), name, args, now_ms)
        })?;
    }
    for (name, function) in CURRENT {
        let (with, clock) = (Arc::clone(shared), Arc::clone(&clock));
        connection.create_scalar_function(*name, 0, FLAGS, move |_| {
            let now_ms = lock(&with).now_ms;
            of_time(&lock(&clock), function, Vec::new(), now_ms)
        })?;
    }
    Ok(())
}

fn draw(shared: &mut Shared) -> u64 {
    shared.rng.get_or_insert_with(|| Rng::new(0)).u64()
}

fn args(context: &Context<'_>) -> Result<Vec<Value>> {
    (0..context.len()).map(|at| context.get(at)).collect()
}

fn of_time(clock: &Connection, name: &str, mut args: Vec<Value>, now_ms: u64) -> Result<Value> {
    let text = |value: &Value| if let Value::Text(text) = value { text.to_ascii_lowercase() } else { String::new() };
    let is = |value: &Value, words: &[&str]| words.contains(&text(value).trim());
    if args.iter().any(|arg| is(arg, &["localtime", "utc"])) {
        return Err(own(
            "'localtime' and 'utc' are refused: replicas may be in different time zones; all is UTC".into()
        ));
    }
    // The format comes before the moment; without a moment, or with a word about it alone, it is now.
    let at = usize::from(name == "strftime");
    let moments = if name == "timediff" { 2 } else { 1 };
    let is_silent = args.len() == at || args.get(at).is_some_and(|arg| is(arg, &["subsec", "subsecond"]));
    if name != "timediff" && is_silent {
        args.insert(at, Value::Text("now".into()));
    }
    let now = moment(clock, now_ms)?;
    for arg in args.iter_mut().skip(at).take(moments).filter(|arg| is(arg, &["now"])) {
        *arg = Value::Text(now.clone());
    }
    let marks = vec!["?"; args.len()].join(", ");
    let mut statement = clock.prepare(&format!("select {name}({marks})"))?;
    statement.query_row(params_from_iter(args), |row| row.get(0))
}

/// As SQLite reads it.
fn moment(clock: &Connection, now_ms: u64) -> Result<String> {
    // The end of the year 9999, the last that SQLite knows.
    let now_ms = now_ms.min(253_402_300_799_999);
    let seconds = (now_ms / 1_000).cast_signed();
    let text: String = clock.query_row("select datetime(?1, 'unixepoch')", [seconds], |row| row.get(0))?;
    Ok(format!("{text}.{:03}", now_ms % 1_000))
}

fn own(why: String) -> Error {
    Error::UserFunctionError(why.into())
}
