//! A database that comes from outside as an image: is it one that batches could have made?
//!
//! SQLite believes the texts in an image's schema. It asks nobody whether their functions may be used, and puts views and columns in
//! place of their names as soon as it checks rows, however often they double. So, before anything looks at rows, what the texts come
//! to is weighed, and each is run as a batch would on a database of its own: what comes of them has to be the image's schema.

use std::collections::BTreeMap;

use base::checksum::place_hash;
use rusqlite::{Error, ErrorCode};

use super::known::{drawn, too_heavy};
use super::{Broken, Database, End, Given, Inner, Room, SPENT, broken};
use crate::batch;
use crate::given::lock;
use crate::limits::{LOAD_STEPS, LOAD_STEPS_BY_BYTE, PAGE_BYTES, RESULT_BYTES_MAX, ROWS_MAX};
use crate::weight::{self, Catalogue, Row};
use crate::{Failure, Kind};

/// What SQLite makes by itself for columns that count.
const SEQUENCE: (&str, &str) = ("sqlite_sequence", "CREATE TABLE sqlite_sequence(name,seq)");

/// What is asked of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outside {
    /// That it is whole, and has no virtual tables: so it was before level 13.
    Whole,
    /// That its schema is as heavy as batches may make it, and that it takes no more steps to look at than its bytes allow, too.
    Weighed,
}

impl Database {
    /// The database of an image that comes from outside: it has to be whole, with nothing that a batch could not have made, and of at
    /// most so many bytes.
    ///
    /// # Errors
    /// Not in the image: it failed here alone.
    pub fn load(image: &[u8], bytes_max: u64, outside: Outside) -> Result<Result<Self, Failure>, Broken> {
        let refused = |kind: Kind, why: String| Ok(Err(Failure { kind, statement: None, why }));
        if image.len() as u64 > bytes_max {
            let why = format!(
                "the database has {} bytes, and may have {bytes_max} here: declare a higher size_max",
                image.len()
            );
            return refused(Kind::Full, why);
        }
        // The digest of what was done with it is not known; the same at all replicas does.
        let opened = Inner::open(image, place_hash(image));
        let unread = |error: &Error| format!("it is no database that SQLite can read: {error}");
        let mut inner = match opened {
            Ok(inner) => inner,
            Err(error) if is_of_memory(&error) => return Err(broken(&error)),
            Err(error) => return refused(Kind::Bad, unread(&error)),
        };
        match inner.flaw(image.len(), outside) {
            Ok(None) => Ok(Ok(Self(std::sync::Mutex::new(inner)))),
            Ok(Some((kind, flaw))) => refused(kind, flaw),
            Err(Flawed::Broken(broken)) => Err(broken),
            Err(Flawed::Sqlite(error)) if is_of_memory(&error) => Err(broken(&error)),
            Err(Flawed::Sqlite(error)) => refused(Kind::Bad, unread(&error)),
        }
    }
}

/// Why it could not be looked at.
enum Flawed {
    Broken(Broken),
    Sqlite(Error),
}

impl From<Error> for Flawed {
    fn from(error: Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Broken> for Flawed {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

fn is_of_memory(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::OutOfMemory)
}

impl Inner {
    /// What of an image from outside could not have come of batches.
    fn flaw(&mut self, bytes: usize, outside: Outside) -> Result<Option<(Kind, String)>, Flawed> {
        if let Some(flaw) = self.flaw_of_form()? {
            return Ok(Some((Kind::Refused, flaw)));
        }
        if outside == Outside::Weighed {
            if let Some(flaw) = self.flaw_of_schema()? {
                return Ok(Some(flaw));
            }
            let steps = LOAD_STEPS.saturating_add((bytes as u32).saturating_mul(LOAD_STEPS_BY_BYTE));
            self.begin(Given { wall_ms: 0, seed: 0 }, steps);
            lock(&self.shared).counts_ours = true;
        }
        let found = self
            .ours(|connection| connection.query_row("pragma integrity_check(1)", [], |row| row.get::<_, String>(0)));
        let is_spent = std::mem::take(&mut *lock(&self.shared)).is_spent;
        match found {
            _ if is_spent => Ok(Some((Kind::Budget, SPENT_ON_LOOKING.into()))),
            Ok(found) => Ok((found != "ok").then(|| (Kind::Refused, format!("it is damaged: {found}")))),
            Err(error) => Err(error.into()),
        }
    }

    fn flaw_of_form(&mut self) -> Result<Option<String>, Error> {
        self.ours(|connection| {
            let text = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0));
            let page: i64 = connection.query_row("pragma page_size", [], |row| row.get(0))?;
            let encoding = text("pragma encoding")?;
            if page.cast_unsigned() != PAGE_BYTES || encoding != "UTF-8" {
                return Ok(Some(format!("its pages have {page} bytes and its texts are {encoding}; 4096 and UTF-8 are needed")));
            }
            let odd = "select count(*) || '' from sqlite_schema where type not in ('table', 'index', 'view', 'trigger') or sql like 'create virtual%'";
            Ok((text(odd)? != "0").then(|| "it has virtual tables, which class sql has not".into()))
        })
    }

    /// What of its schema no batch could have made.
    fn flaw_of_schema(&mut self) -> Result<Option<(Kind, String)>, Flawed> {
        let rows = self.read_schema()?;
        let catalogue = Catalogue::new(&rows);
        if let Some(heavy) = catalogue.heavier_than(&Catalogue::default()) {
            return Ok(Some((Kind::Budget, too_heavy(heavy))));
        }
        if catalogue.tables().any(|columns| weight::has_drawn(columns.iter().map(|name| &**name)))
            && let End::Failed(kind, why) = drawn()
        {
            return Ok(Some((kind, why)));
        }
        let mut made = Self::open(&[], 0)?;
        made.begin(Given { wall_ms: 0, seed: 0 }, LOAD_STEPS);
        made.ours(|connection| connection.execute_batch("begin"))?;
        for row in rows.iter().filter(|row| !row.sql.is_empty() && (&*row.name, &*row.sql) != SEQUENCE) {
            if let Some((kind, why)) = made.makes(&row.sql)? {
                return Ok(Some((kind, format!("its schema has {} {}: {why}", row.kind, row.name))));
            }
        }
        let (ours, theirs) = (made.read_schema()?, rows);
        let (ours, theirs) = (by_name(&ours), by_name(&theirs));
        let differs = theirs.iter().find(|(name, row)| ours.get(*name) != Some(*row));
        let lacks = ours.keys().find(|name| !theirs.contains_key(*name));
        Ok(differs.map(|(name, _)| name).or(lacks).map(|(kind, name)| {
            let why = format!("its schema has {kind} {name} as its own statements do not make it");
            (Kind::Refused, why)
        }))
    }

    /// Runs one statement of a schema, as a batch would. Why not, if it may not be.
    fn makes(&mut self, sql: &str) -> Result<Option<(Kind, String)>, Broken> {
        let statement = match batch::statement(sql.into()) {
            Ok(statement) => statement,
            Err(why) => return Ok(Some((Kind::Refused, why))),
        };
        lock(&self.shared).schema = false;
        let mut room = Room { rows: ROWS_MAX, bytes: RESULT_BYTES_MAX };
        match self.run(&statement, false, &mut room) {
            Ok(_) if lock(&self.shared).schema => Ok(None),
            Ok(_) => Ok(Some((Kind::Refused, "it makes nothing".into()))),
            Err(End::Failed(Kind::Budget, why)) if why == SPENT => Ok(Some((Kind::Budget, SPENT_ON_LOOKING.into()))),
            Err(End::Failed(_, why)) => Ok(Some((Kind::Refused, why))),
            Err(End::Broken(broken)) => Err(broken),
        }
    }
}

const SPENT_ON_LOOKING: &str = "it takes more steps to look at than a database of its size should: its schema has too many parts, or \
     columns and checks that take too long for each row";

/// What is compared: not where it lies in the file, nor what SQLite made by itself at some time.
fn by_name(rows: &[Row]) -> BTreeMap<(&str, &str), (&str, &str)> {
    let compared = rows.iter().filter(|row| row.name != SEQUENCE.0);
    compared.map(|row| ((&*row.kind, &*row.name), (&*row.table, &*row.sql))).collect()
}
