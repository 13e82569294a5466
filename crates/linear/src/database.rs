//! The database of a group whose namespace is of class `sql`: a part of the group's state beside its keys. What it is and does is
//! `crates/sql`; here is when it is made, and what is done where it fails.

use bytes::Bytes;
use sql::limits::PART_BYTES;
use sql::{Answer, Broken, Database, Failure, Given, Kind, Memory, Outside};

use super::op::Wrong;
use super::space::Space;

/// Nothing until the first batch.
#[derive(Debug, Default)]
pub struct Beside {
    database: Option<Database>,
    /// It failed here alone, as there was no memory: the member takes no further part.
    broken: Option<Broken>,
    /// As it was at some moment, for who reads it out.
    frozen: Option<Bytes>,
}

/// A database as it goes into a snapshot.
pub struct Image {
    pub bytes: Bytes,
    pub digest: u64,
}

impl Beside {
    pub fn bytes(&self) -> u64 {
        self.database.as_ref().map_or(0, Database::bytes)
    }

    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// None while there is no database.
    pub fn image(&self) -> Option<Image> {
        let database = self.database.as_ref()?;
        // As with any other memory that is not there. A snapshot without it would be a promise that is broken.
        let bytes = database.image().unwrap_or_else(|Broken(why)| panic!("no image of a database can be made: {why}"));
        Some(Image { bytes, digest: database.digest() })
    }

    /// As it is at this moment, for who reads it out.
    pub fn frozen(&self) -> Self {
        Self { frozen: Some(self.image().map_or_else(Bytes::new, |image| image.bytes)), ..Self::default() }
    }

    /// What was frozen.
    pub fn shown(&self) -> Option<&Bytes> {
        self.frozen.as_ref()
    }

    /// As a snapshot has it; none if that makes no sense.
    pub fn of(image: &[u8], digest: u64) -> Option<Self> {
        Some(Self { database: Some(Database::open(image, digest).ok()?), ..Self::default() })
    }

    /// Of all that was ever done with it.
    #[cfg(test)]
    pub fn digest(&self) -> u64 {
        self.database.as_ref().map_or(0, Database::digest)
    }
}

impl Image {
    /// In pieces of a snapshot's parts, which share its memory.
    pub fn pieces(self) -> impl Iterator<Item = Bytes> + Send {
        let mut left = self.bytes;
        std::iter::from_fn(move || (!left.is_empty()).then(|| left.split_to(left.len().min(PART_BYTES))))
    }
}

impl Space {
    /// Does a batch of statements.
    ///
    /// # Errors
    /// It failed here alone.
    pub fn change_database(
        &mut self,
        given: Given,
        bytes_max: u64,
        memory: Memory,
        json: &[u8],
    ) -> std::result::Result<Answer, Wrong> {
        let beside = &mut self.beside;
        let done = match (&mut beside.database, beside.broken.is_some()) {
            (_, true) => return Err(Wrong::Undone),
            (Some(database), _) => database.apply(given, bytes_max, memory, json),
            (none, _) => Database::new().and_then(|new| none.insert(new).apply(given, bytes_max, memory, json)),
        };
        done.map_err(|broken| {
            beside.broken = Some(broken);
            Wrong::Undone
        })
    }

    /// Takes what was loaded in place of what there is.
    ///
    /// # Errors
    /// It failed here alone.
    pub fn load_database(
        &mut self,
        image: &[u8],
        bytes_max: u64,
        outside: Outside,
    ) -> std::result::Result<Answer, Wrong> {
        if self.beside.is_broken() {
            return Err(Wrong::Undone);
        }
        match Database::load(image, bytes_max, outside) {
            Ok(Ok(database)) => {
                let bytes = database.bytes();
                self.beside.database = Some(database);
                Ok(Ok(format!("{{\"bytes\":{bytes}}}").into()))
            }
            Ok(Err(failure)) => Ok(Err(failure)),
            Err(broken) => {
                self.beside.broken = Some(broken);
                Err(Wrong::Undone)
            }
        }
    }

    /// Reads with a statement.
    pub fn query_database(&self, given: Given, json: &[u8]) -> std::result::Result<Answer, Wrong> {
        let fresh;
        let database = match &self.beside.database {
            Some(database) => database,
            None => {
                fresh = Database::new().map_err(|_| Wrong::Undone)?;
                &fresh
            }
        };
        Ok(database.query(given, json).unwrap_or_else(|Broken(why)| {
            Err(Failure { kind: Kind::Budget, statement: None, why: format!("its leader cannot do it: {why}") })
        }))
    }
}
