//! One replica's database: SQLite in memory. What it does follows from the batches that it was given and from nothing else, so a
//! replica that began with another one's image goes on as that one does.
//!
//! - After a batch that has changed the schema it is opened anew from its own image: SQLite's plans depend on the order in which it
//!   learned of tables and indexes, and a replica that comes later learns of them from an image.
//! - A batch ends by counted steps, never by time.
//! - What fails for want of memory, or as the image is damaged, fails here and not at the others: then the database says that it
//!   is [`Broken`], and whoever drives it takes no further part with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base::Rng;
use base::checksum::place_hash;
use bytes::Bytes;
use rusqlite::config::DbConfig;
use rusqlite::hooks::{Action, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, StatementStatus};
use serde::Serialize;
use serde_json::{Value, json};

use super::batch::{self, Statement};
use super::given::{self, Given, Shared, Sharing, lock};
use super::limits::{
    ARGS_MAX, BATCH_STEPS_MAX, COLUMNS_MAX, KEPT, PAGE_BYTES, QUERY_STEPS_MAX, RESULT_BYTES_MAX, ROWS_MAX,
    SQL_BYTES_MAX, STATEMENTS_KNOWN, STEPS_COUNTED, VALUE_BYTES_MAX,
};
use super::rules::{self, Allowed};
use super::weight::{self, Catalogue};
use super::{Failure, Kind};

mod known;
mod outside;

pub use outside::Outside;

const SPENT: &str =
    "it takes more steps than one batch or query may: look at fewer rows, by an index, or in several batches";
const TOO_LARGE: &str =
    "it keeps too many large rows in memory: sort, group or join by an index, or fewer rows, or without large columns";

/// It does not know what the others know: it fails for a reason of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken(pub String);

/// What a batch or query gives, as JSON, or why nothing was done.
pub type Answer = Result<Bytes, Failure>;

pub struct Database(Mutex<Inner>);

struct Inner {
    connection: Connection,
    shared: Sharing,
    /// Bytes of all its pages.
    bytes: u64,
    /// Bytes that a value or row may have in the statement that runs.
    length: usize,
    /// How often its schema was changed.
    schema: i64,
    digest: u64,
    /// What its schema weighs; none until it is asked for.
    catalogue: Option<Catalogue>,
    /// What is known of statements that were run with this schema, by their text. It changes nothing of what they do, as replicas that
    /// have come later know less.
    known: BTreeMap<String, known::Known>,
    /// Pages that the database may have, as SQLite was told last.
    pages_max: u64,
}

/// What one statement gave.
#[derive(Serialize)]
struct Given1 {
    changed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_id: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    columns: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<Vec<Value>>>,
}

/// What statements of a batch may have in memory: rows that they sort, group, or join without an index; and what SQLite makes of them
/// before they run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// Any: so were batches before level 8, and those that are in a log still are.
    Free,
    /// Rows as [`super::limits::KEPT`] says: so are batches of levels before 12.
    Bounded,
    /// And they weigh what [`super::limits::WEIGHT_MAX`] says at most.
    Weighed,
}

/// How one try of a batch ended.
enum Attempt {
    Ended(Answer),
    /// This statement took all steps that it may while it keeps rows so large; nothing was done. So many are left to the batch.
    KeptTooMuch {
        statement: usize,
        left: u32,
    },
}

/// Rows and bytes that may still be given.
struct Room {
    rows: usize,
    bytes: usize,
}

enum End {
    Failed(Kind, String),
    Broken(Broken),
}

impl Database {
    /// One without tables.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new() -> Result<Self, Broken> {
        Self::open(&[], 0)
    }

    /// As another replica was.
    ///
    /// # Errors
    /// It is no image of a database, or there is no memory for it.
    pub fn open(image: &[u8], digest: u64) -> Result<Self, Broken> {
        Inner::open(image, digest).map(|inner| Self(Mutex::new(inner))).map_err(|error| broken(&error))
    }

    /// Does all of a batch, or nothing. `bytes_max`: of the database after it. `memory`: what its statements may keep there.
    ///
    /// # Errors
    /// Not in the batch: it failed here alone.
    pub fn apply(&self, given: Given, bytes_max: u64, memory: Memory, json: &[u8]) -> Result<Answer, Broken> {
        let statements = match batch::parse(json) {
            Ok(statements) => statements,
            Err(failure) => return Ok(Err(failure)),
        };
        lock(&self.0).apply(given, bytes_max, memory, &statements)
    }

    /// Reads.
    ///
    /// # Errors
    /// Not in the query: it failed here alone.
    pub fn query(&self, given: Given, json: &[u8]) -> Result<Answer, Broken> {
        let statement = match batch::parse_query(json) {
            Ok(statement) => statement,
            Err(failure) => return Ok(Err(failure)),
        };
        lock(&self.0).query(given, &statement)
    }

    /// All of it as SQLite has it in a file; nothing while there is none.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn image(&self) -> Result<Bytes, Broken> {
        lock(&self.0).image().map(Bytes::from).map_err(|error| broken(&error))
    }

    /// Of all pages.
    pub fn bytes(&self) -> u64 {
        lock(&self.0).bytes
    }

    /// What is left of the steps of the last batch, in thousands.
    #[cfg(test)]
    pub fn counts_left(&self) -> u32 {
        lock(&lock(&self.0).shared).counts_left
    }

    /// Of all that was ever done with it, in order: the same at replicas that have done the same.
    pub fn digest(&self) -> u64 {
        lock(&self.0).digest
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({} B)", self.bytes())
    }
}

impl Inner {
    fn open(image: &[u8], digest: u64) -> Result<Self, Error> {
        // Not by URI, so that no name means a file.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_in_memory_with_flags(flags)?;
        if !image.is_empty() {
            connection.deserialize_read_exact("main", image, image.len(), false)?;
        }
        // Nothing of it is ever in a file: what sorts, and what is needed to go back, neither.
        connection.execute_batch(&format!(
            "pragma page_size = {PAGE_BYTES}; pragma journal_mode = memory; pragma temp_store = memory; pragma foreign_keys = on; \
             pragma recursive_triggers = off; pragma cell_size_check = on"
        ))?;
        for (config, is_on) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
            (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
            // Views and triggers use what is allowed there, and nothing else.
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        ] {
            connection.set_db_config(config, is_on)?;
        }
        for (limit, most) in [
            (Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX),
            (Limit::SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES_MAX),
            (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, ARGS_MAX),
            (Limit::SQLITE_LIMIT_ATTACHED, 0),
            (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
            (Limit::SQLITE_LIMIT_COLUMN, COLUMNS_MAX),
            (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
            (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 100),
            (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 32),
            (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
        ] {
            connection.set_limit(limit, i32::try_from(most).unwrap_or(i32::MAX))?;
        }
        let shared = Sharing::default();
        given::install(&connection, &shared)?;
        hook(&mut connection, &shared)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_KNOWN);
        let (catalogue, known, length) = (None, BTreeMap::new(), VALUE_BYTES_MAX);
        let mut inner =
            Self { connection, shared, bytes: 0, length, schema: 0, digest, catalogue, known, pages_max: 0 };
        // What is read of the schema now is read by nobody's statement: those count their own steps.
        let _: i64 = inner
            .ours(|connection| connection.query_row("select count(*) from sqlite_schema", [], |row| row.get(0)))?;
        inner.bytes = inner.count_bytes()?;
        inner.schema = inner.count_schemas()?;
        Ok(inner)
    }

    /// Has the connection do something of our own.
    fn ours<T>(&mut self, act: impl FnOnce(&mut Connection) -> Result<T, Error>) -> Result<T, Error> {
        lock(&self.shared).is_ours = true;
        let result = act(&mut self.connection);
        lock(&self.shared).is_ours = false;
        result
    }

    fn count_bytes(&mut self) -> Result<u64, Error> {
        let pages: i64 =
            self.ours(|connection| connection.prepare_cached("pragma page_count")?.query_row([], |row| row.get(0)))?;
        Ok(pages.cast_unsigned() * PAGE_BYTES)
    }

    fn count_schemas(&mut self) -> Result<i64, Error> {
        self.ours(|connection| connection.query_row("pragma schema_version", [], |row| row.get(0)))
    }

    fn image(&mut self) -> Result<Vec<u8>, Error> {
        if self.bytes == 0 {
            return Ok(Vec::new());
        }
        self.ours(|connection| Ok(connection.serialize("main")?.to_vec()))
    }

    fn begin(&mut self, given: Given, steps: u32) {
        let mut shared = lock(&self.shared);
        let digest = self.digest;
        *shared = Shared {
            now_ms: given.wall_ms,
            rng: Some(Rng::new(given.seed)),
            counts_left: steps / STEPS_COUNTED,
            digest,
            ..Shared::default()
        };
    }

    fn apply(
        &mut self,
        given: Given,
        bytes_max: u64,
        memory: Memory,
        statements: &[Statement],
    ) -> Result<Answer, Broken> {
        let mut left = BATCH_STEPS_MAX;
        let bounds: Vec<Option<(usize, u32)>> = match memory {
            Memory::Free => vec![None],
            Memory::Bounded | Memory::Weighed => KEPT.iter().copied().map(Some).collect(),
        };
        // Each try begins with the same database, time and chance; the steps of all count together.
        for (nth, bounds_of_kept) in bounds.iter().enumerate() {
            match self.attempt((given, left), bytes_max, (*bounds_of_kept, memory), statements)? {
                Attempt::Ended(answer) => return Ok(answer),
                Attempt::KeptTooMuch { left: rest, .. } if nth + 1 < bounds.len() && rest > 0 => left = rest,
                Attempt::KeptTooMuch { statement, .. } => {
                    return Ok(Err(Failure { kind: Kind::Budget, statement: Some(statement), why: SPENT.into() }));
                }
            }
        }
        unreachable!("the last try ends")
    }

    /// All of a batch, or nothing, with at most so many steps. `kept`: bytes of a row and steps of a statement that keeps rows.
    fn attempt(
        &mut self,
        (given, steps): (Given, u32),
        bytes_max: u64,
        (kept, memory): (Option<(usize, u32)>, Memory),
        statements: &[Statement],
    ) -> Result<Attempt, Broken> {
        let ours = |error: Error| broken(&error);
        self.begin(given, steps);
        let pages = (bytes_max / PAGE_BYTES).max(1);
        if self.pages_max != pages {
            self.ours(|connection| connection.execute_batch(&format!("pragma max_page_count = {pages}")))
                .map_err(ours)?;
            self.pages_max = pages;
        }
        self.ours(|connection| connection.prepare_cached("begin immediate")?.execute([])).map_err(ours)?;
        let mut room = Room { rows: ROWS_MAX, bytes: RESULT_BYTES_MAX };
        let mut results = Vec::with_capacity(statements.len());
        let (mut failed, mut keeps_too_much) = (None, None);
        for (at, statement) in statements.iter().enumerate() {
            let (ran, is_over) = match memory {
                Memory::Weighed => self.run_weighed(statement, kept, &mut room)?,
                Memory::Free | Memory::Bounded => self.run_within(statement, kept, &mut room)?,
            };
            keeps_too_much = is_over.then_some(at);
            if lock(&self.shared).schema {
                self.forget();
            }
            match ran {
                Ok(given) => results.push(given),
                Err(End::Broken(broken)) => return Err(broken),
                Err(End::Failed(kind, why)) => {
                    failed = Some(Failure { kind, statement: Some(at), why });
                    break;
                }
            }
        }
        if failed.is_none() {
            // What is to hold at the end only is looked at here: deferred references.
            failed = match self.ours(|connection| connection.prepare_cached("commit")?.execute([])) {
                Ok(_) => None,
                Err(error) => match self.end_of(&error) {
                    End::Failed(kind, why) => Some(Failure { kind, statement: None, why }),
                    End::Broken(broken) => return Err(broken),
                },
            };
        }
        if let Some(failure) = failed {
            if !self.connection.is_autocommit() {
                self.ours(|connection| connection.execute_batch("rollback")).map_err(ours)?;
            }
            if lock(&self.shared).schema {
                self.catalogue = None;
                self.forget();
            }
            return Ok(match keeps_too_much {
                Some(statement) => {
                    Attempt::KeptTooMuch { statement, left: lock(&self.shared).counts_left * STEPS_COUNTED }
                }
                None => Attempt::Ended(Err(failure)),
            });
        }
        let answer = serde_json::to_vec(&json!({ "results": results })).map_err(|error| Broken(error.to_string()))?;
        let (schema, digest) = {
            let shared = lock(&self.shared);
            (shared.schema, shared.digest)
        };
        self.digest = place_hash(&[&digest.to_le_bytes()[..], &answer].concat());
        self.bytes = self.count_bytes().map_err(ours)?;
        // Who says `if not exists` mostly changes nothing.
        if schema && self.count_schemas().map_err(ours)? != self.schema {
            let image = self.image().map_err(ours)?;
            *self = Self::open(&image, self.digest).map_err(ours)?;
        }
        Ok(Attempt::Ended(Ok(answer.into())))
    }

    /// Runs a statement of a batch if it, and what it makes of the schema, is not too heavy.
    fn run_weighed(
        &mut self,
        statement: &Statement,
        kept: Option<(usize, u32)>,
        room: &mut Room,
    ) -> Result<(Result<Given1, End>, bool), Broken> {
        if let Err(end) = self.weigh(&statement.sql)? {
            return Ok((Err(end), false));
        }
        let had_changed = std::mem::take(&mut lock(&self.shared).schema);
        let (ran, is_over) = self.run_within(statement, kept, room)?;
        let has_changed = std::mem::replace(&mut lock(&self.shared).schema, true);
        lock(&self.shared).schema = has_changed || had_changed;
        let ended = match ran {
            Ok(given) if weight::has_drawn(given.columns.iter().map(String::as_str)) => Err(known::drawn()),
            Ok(given) if has_changed => self.weigh_schema()?.map(|()| given),
            ran => ran,
        };
        Ok((ended, is_over))
    }

    /// Runs a statement of a batch, within these bounds if it keeps rows; and whether it has taken all steps of those.
    fn run_within(
        &mut self,
        statement: &Statement,
        kept: Option<(usize, u32)>,
        room: &mut Room,
    ) -> Result<(Result<Given1, End>, bool), Broken> {
        let Some((length, steps)) = kept.filter(|_| self.keeps_rows(statement)) else {
            return Ok((self.run(statement, false, room), false));
        };
        self.limit(length)?;
        let left = lock(&self.shared).counts_left;
        let may = left.min(steps / STEPS_COUNTED);
        lock(&self.shared).counts_left = may;
        let ran = self.run(statement, false, room);
        self.limit(VALUE_BYTES_MAX)?;
        let mut shared = lock(&self.shared);
        shared.counts_left += left - may;
        let is_over = shared.is_spent && may < left;
        Ok((ran, is_over))
    }

    fn query(&mut self, given: Given, statement: &Statement) -> Result<Answer, Broken> {
        self.begin(given, QUERY_STEPS_MAX);
        match self.weigh(&statement.sql)? {
            Ok(()) => (),
            Err(End::Failed(kind, why)) => return Ok(Err(Failure { kind, statement: None, why })),
            Err(End::Broken(broken)) => return Err(broken),
        }
        if !self.keeps_rows(statement) {
            return self.query_within(given, statement, (VALUE_BYTES_MAX, QUERY_STEPS_MAX));
        }
        // SQLite does not say how much a sort has in memory, so rows times their size are bounded: few that are large, or many that
        // are small. A query changes nothing, and begins again with the next bounds.
        let mut answer = Ok(Err(Failure { kind: Kind::Budget, statement: None, why: SPENT.into() }));
        for bounds in KEPT {
            answer = self.query_within(given, statement, *bounds);
            if !lock(&self.shared).is_spent {
                break;
            }
        }
        answer
    }

    fn query_within(
        &mut self,
        given: Given,
        statement: &Statement,
        (length, steps): (usize, u32),
    ) -> Result<Answer, Broken> {
        self.limit(length)?;
        self.begin(given, steps);
        let mut room = Room { rows: ROWS_MAX, bytes: RESULT_BYTES_MAX };
        let done = self.run(statement, true, &mut room);
        self.limit(VALUE_BYTES_MAX)?;
        match done {
            Ok(Given1 { columns, rows, .. }) => {
                let answer = json!({ "columns": columns, "rows": rows.unwrap_or_default() });
                Ok(Ok(serde_json::to_vec(&answer).map_err(|error| Broken(error.to_string()))?.into()))
            }
            Err(End::Failed(kind, why)) => Ok(Err(Failure { kind, statement: None, why })),
            Err(End::Broken(broken)) => Err(broken),
        }
    }

    fn limit(&mut self, length: usize) -> Result<(), Broken> {
        self.length = length;
        let most = i32::try_from(length).unwrap_or(i32::MAX);
        self.connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, most).map(|_| ()).map_err(|error| broken(&error))
    }

    fn run(&mut self, asked: &Statement, only_reads: bool, room: &mut Room) -> Result<Given1, End> {
        if self.known.get(&asked.sql).is_some_and(|known| known.is_plain) {
            let mut statement = self.connection.prepare_cached(&asked.sql).map_err(|error| self.end_of(&error))?;
            // Steps are counted from here, as for one that is new.
            statement.reset_status(StatementStatus::VmStep);
            return self.run_prepared(&mut statement, asked, only_reads, room);
        }
        let counts = lock(&self.shared).counts_left;
        let had_changed = std::mem::take(&mut lock(&self.shared).schema);
        {
            let mut shared = lock(&self.shared);
            (shared.refused, shared.inserted) = (None, false);
        }
        let prepared = self.connection.prepare(&asked.sql);
        let is_plain = {
            let mut shared = lock(&self.shared);
            let is_plain = !shared.schema && shared.counts_left == counts && shared.refused.is_none();
            shared.schema |= had_changed;
            is_plain
        };
        let mut statement = prepared.map_err(|error| self.end_of(&error))?;
        let ran = self.run_prepared(&mut statement, asked, only_reads, room);
        drop(statement);
        if is_plain && ran.is_ok() {
            self.remember(&asked.sql, |known| known.is_plain = known.is_light());
        }
        ran
    }

    fn run_prepared(
        &self,
        statement: &mut rusqlite::Statement<'_>,
        asked: &Statement,
        only_reads: bool,
        room: &mut Room,
    ) -> Result<Given1, End> {
        let end = |error: Error| self.end_of(&error);
        {
            let mut shared = lock(&self.shared);
            (shared.refused, shared.inserted) = (None, false);
        }
        if only_reads && !statement.readonly() {
            let why = "a query only reads: send what changes something as {\"batch\": [..]}";
            return Err(End::Failed(Kind::Refused, why.into()));
        }
        if statement.parameter_count() != asked.args.len() {
            let (takes, has) = (statement.parameter_count(), asked.args.len());
            return Err(End::Failed(Kind::Bad, format!("it takes {takes} arguments, and has {has}")));
        }
        for (at, arg) in asked.args.iter().enumerate() {
            statement.raw_bind_parameter(at + 1, arg).map_err(end)?;
        }
        let before = self.connection.total_changes();
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = Vec::new();
        let mut found = statement.raw_query();
        while let Some(row) = found.next().map_err(end)? {
            let mut values = Vec::with_capacity(columns.len());
            for at in 0..columns.len() {
                let value = shown(row.get_ref(at).map_err(end)?);
                let bytes =
                    8 + value.as_str().map_or(0, str::len) + value.as_object().map_or(0, |_| VALUE_BYTES_MAX / 64);
                room.bytes = room.bytes.checked_sub(bytes).ok_or_else(too_much)?;
                values.push(value);
            }
            room.rows = room.rows.checked_sub(1).ok_or_else(too_much)?;
            rows.push(values);
        }
        drop(found);
        let has_changed = self.connection.total_changes() != before;
        let changed = if has_changed { self.connection.changes() } else { 0 };
        let mut shared = lock(&self.shared);
        if shared.is_last_row {
            let why =
                "a row with the highest number that there is cannot be: the next one would get its number by chance";
            return Err(End::Failed(Kind::Refused, why.into()));
        }
        let last_id = shared.inserted.then(|| self.connection.last_insert_rowid());
        shared.changes = changed.cast_signed();
        shared.last_id = last_id.unwrap_or(shared.last_id);
        let is_met = changed.max(rows.len() as u64) >= asked.must;
        if !is_met {
            let (must, has) = (asked.must, changed.max(rows.len() as u64));
            return Err(End::Failed(
                Kind::Unmet,
                format!("it had to change or give {must} rows, and did so with {has}"),
            ));
        }
        let rows = (!columns.is_empty()).then_some(rows);
        Ok(Given1 { changed, last_id, columns, rows })
    }

    /// What has come of an error of SQLite.
    fn end_of(&self, error: &Error) -> End {
        let shared = lock(&self.shared);
        if shared.is_spent {
            return End::Failed(Kind::Budget, SPENT.into());
        }
        if let Some(why) = &shared.refused {
            return End::Failed(Kind::Refused, why.clone());
        }
        match error {
            Error::Empty => End::Failed(Kind::Bad, "there is no statement in it".into()),
            Error::MultipleStatement => {
                End::Failed(Kind::Bad, "it is several statements: send each as one of the batch".into())
            }
            _ => match error.sqlite_error_code() {
                Some(ErrorCode::ConstraintViolation) => End::Failed(Kind::Constraint, error.to_string()),
                Some(ErrorCode::DiskFull) => End::Failed(
                    Kind::Full,
                    "the database has all the bytes that it may: delete rows, or declare a higher size_max".into(),
                ),
                Some(ErrorCode::TooBig) if self.length < VALUE_BYTES_MAX => End::Failed(Kind::Budget, TOO_LARGE.into()),
                Some(ErrorCode::TooBig) => {
                    End::Failed(Kind::Large, format!("a value or row has over {VALUE_BYTES_MAX} bytes"))
                }
                Some(
                    ErrorCode::OutOfMemory
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::CannotOpen
                    | ErrorCode::NotADatabase
                    | ErrorCode::DatabaseBusy
                    | ErrorCode::InternalMalfunction
                    | ErrorCode::ApiMisuse,
                ) => End::Broken(broken(error)),
                _ if error.to_string().contains("VACUUM") => {
                    let why =
                        "VACUUM is refused: free pages are taken by what comes next, and a batch is one transaction";
                    End::Failed(Kind::Refused, why.into())
                }
                _ => End::Failed(Kind::Sql, error.to_string()),
            },
        }
    }
}

/// What is called back while statements are prepared and run.
fn hook(connection: &mut Connection, shared: &Sharing) -> Result<(), Error> {
    let with = Arc::clone(shared);
    connection.authorizer(Some(move |context: rusqlite::hooks::AuthContext<'_>| {
        let mut shared = lock(&with);
        if shared.is_ours {
            return Authorization::Allow;
        }
        match rules::judge(&context) {
            Ok(Allowed::Rows) => Authorization::Allow,
            Ok(Allowed::Schema) => {
                shared.schema = true;
                Authorization::Allow
            }
            Err(why) => {
                shared.refused = Some(why);
                Authorization::Deny
            }
        }
    }))?;
    let with = Arc::clone(shared);
    connection.progress_handler(
        i32::try_from(STEPS_COUNTED).unwrap_or(i32::MAX),
        Some(move || {
            let mut shared = lock(&with);
            if shared.is_ours && !shared.counts_ours {
                return false;
            }
            let left = shared.counts_left.checked_sub(1);
            shared.counts_left = left.unwrap_or(0);
            shared.is_spent |= left.is_none();
            shared.is_spent
        }),
    )?;
    let with = Arc::clone(shared);
    connection.update_hook(Some(move |action: Action, _: &str, table: &str, row: i64| {
        let mut shared = lock(&with);
        let is_insert = action == Action::SQLITE_INSERT;
        shared.inserted |= is_insert;
        shared.is_last_row |= row == i64::MAX && action != Action::SQLITE_DELETE;
        let what =
            [&shared.digest.to_le_bytes()[..], &(action as i32).to_le_bytes(), &row.to_le_bytes(), table.as_bytes()];
        shared.digest = place_hash(&what.concat());
    }))
}

fn broken(error: &Error) -> Broken {
    Broken(error.to_string())
}

fn too_much() -> End {
    End::Failed(
        Kind::Large,
        format!(
            "it gives over {ROWS_MAX} rows or {RESULT_BYTES_MAX} bytes: ask for less at once, with LIMIT and a condition on the last key"
        ),
    )
}

fn shown(value: ValueRef<'_>) -> Value {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(whole) => whole.into(),
        // JSON has no infinity.
        ValueRef::Real(real) => {
            serde_json::Number::from_f64(real).map_or_else(|| real.to_string().into(), Value::Number)
        }
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
        ValueRef::Blob(blob) => json!({ "base64": STANDARD.encode(blob) }),
    }
}
