//! What is found out about a statement before it runs: what it comes to when SQLite understands it (`weight.rs`), and whether it keeps
//! rows in memory. A replica remembers it for the statements that it is sent again and again, as long as the schema stays.

use rusqlite::Error;

use super::{Broken, End, Inner, SPENT, broken};
use crate::Kind;
use crate::batch::Statement;
use crate::given::lock;
use crate::limits::{
    BYTES_BY_STEP, KNOWN_BYTES_MAX, NESTED_MAX, STATEMENTS_KNOWN, STEPS_BY_WEIGHT, STEPS_COUNTED, WEIGHT_FREE,
    WEIGHT_MAX,
};
use crate::weight::{self, Catalogue};

#[derive(Clone, Copy, Default)]
pub struct Known {
    /// It keeps rows in memory.
    keeps: Option<bool>,
    /// What it comes to when it is understood.
    weight: Option<u64>,
    /// SQLite's own understanding of it may be kept: it looks at the schema and does not change it, and took no steps that are counted.
    pub is_plain: bool,
}

impl Known {
    /// SQLite's understanding of it takes little memory.
    pub fn is_light(&self) -> bool {
        self.weight.is_some_and(|weight| weight <= WEIGHT_FREE)
    }
}

impl Inner {
    /// Counts what SQLite takes to understand a statement.
    pub(super) fn weigh(&mut self, sql: &str) -> Result<Result<(), End>, Broken> {
        let weight = match self.known.get(sql).and_then(|known| known.weight) {
            Some(weight) => weight,
            None => {
                let catalogue = match self.catalogue.take() {
                    Some(catalogue) => catalogue,
                    None => self.read_catalogue()?,
                };
                let weight = catalogue.weigh(sql);
                self.catalogue = Some(catalogue);
                self.remember(sql, |known| known.weight = Some(weight));
                weight
            }
        };
        Ok(match weight > WEIGHT_MAX {
            true => Err(End::Failed(Kind::Budget, too_heavy("the statement"))),
            false => self.charge(weight.saturating_sub(WEIGHT_FREE) * STEPS_BY_WEIGHT),
        })
    }

    /// Looks at the schema that a statement has changed.
    pub(super) fn weigh_schema(&mut self) -> Result<Result<(), End>, Broken> {
        let before = self.catalogue.take().unwrap_or_default();
        let catalogue = self.read_catalogue()?;
        let heavy = catalogue.heavier_than(&before).map(|name| End::Failed(Kind::Budget, too_heavy(name)));
        let is_drawn = catalogue.tables().any(|columns| weight::has_drawn(columns.iter().map(|name| &**name)));
        let steps = catalogue.bytes() as u64 / BYTES_BY_STEP;
        self.catalogue = Some(catalogue);
        Ok(match heavy {
            Some(heavy) => Err(heavy),
            None if is_drawn => Err(drawn()),
            None => self.charge(steps),
        })
    }

    /// Has steps count that SQLite does not count.
    fn charge(&self, steps: u64) -> Result<(), End> {
        let mut shared = lock(&self.shared);
        let left = u64::from(shared.counts_left).checked_sub(steps / u64::from(STEPS_COUNTED));
        shared.counts_left = left.and_then(|left| u32::try_from(left).ok()).unwrap_or(0);
        shared.is_spent |= left.is_none();
        if left.is_none() { Err(End::Failed(Kind::Budget, SPENT.into())) } else { Ok(()) }
    }

    fn read_catalogue(&mut self) -> Result<Catalogue, Broken> {
        self.read_schema().map(|rows| Catalogue::new(&rows)).map_err(|error| broken(&error))
    }

    /// All of its tables, indexes, views and triggers, as they were made.
    pub(super) fn read_schema(&mut self) -> Result<Vec<weight::Row>, Error> {
        self.ours(|connection| {
            let mut all = connection.prepare("select type, name, tbl_name, coalesce(sql, '') from sqlite_schema")?;
            let rows = all.query_map([], |row| {
                Ok(weight::Row { kind: row.get(0)?, name: row.get(1)?, table: row.get(2)?, sql: row.get(3)? })
            })?;
            rows.collect::<Result<Vec<_>, Error>>()
        })
    }

    /// Remembers something of a statement that is short enough.
    pub(super) fn remember(&mut self, sql: &str, what: impl FnOnce(&mut Known)) {
        if sql.len() > KNOWN_BYTES_MAX {
            return;
        }
        if let Some(known) = self.known.get_mut(sql) {
            return what(known);
        }
        if self.known.len() >= STATEMENTS_KNOWN {
            self.known.clear();
        }
        what(self.known.entry(sql.to_owned()).or_default());
    }

    /// The schema has changed.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.connection.flush_prepared_statement_cache();
    }

    /// Whether SQLite has rows in memory of its own while it runs: what it sorts, groups, joins without an index, or has still to visit.
    pub(super) fn keeps_rows(&mut self, asked: &Statement) -> bool {
        if let Some(keeps) = self.known.get(&asked.sql).and_then(|known| known.keeps) {
            return keeps;
        }
        let keeps = self.explained(asked);
        self.remember(&asked.sql, |known| known.keeps = Some(keeps));
        keeps
    }

    fn explained(&mut self, asked: &Statement) -> bool {
        let opcodes = self.ours(|connection| {
            let mut explained = connection.prepare(&format!("explain {}", asked.sql))?;
            let mut found = explained.raw_query();
            while let Some(row) = found.next()? {
                let opcode: String = row.get(1)?;
                if ["SorterOpen", "OpenEphemeral", "OpenAutoindex"].contains(&&*opcode) {
                    return Ok(true);
                }
            }
            Ok(false)
        });
        // What cannot be explained, as it begins in an odd way, is taken for one that does.
        opcodes.unwrap_or(true)
    }
}

pub(super) fn too_heavy(what: &str) -> String {
    format!(
        "{what} comes to over {WEIGHT_MAX} parts, or {NESTED_MAX} within each other, when views, WITH clauses and columns stand in \
         place of their names: name them less often, or keep what they give in a table"
    )
}

pub(super) fn drawn() -> End {
    let why =
        "more than five of its columns have one name, and SQLite would draw those of the others: name each with AS";
    End::Failed(Kind::Refused, why.into())
}
