//! What clients ask of class `sql`: batches that add a row and count it, such that count only if nobody else has, and reads.
//!
//! A part of the seeds has it, told by the seed and no draw: what the others do stays what it was. The database is SQLite itself, as
//! in the shipped node: it is a part of the machine.

use base::checksum::place_hash_pair;
use base::{Rng, Span, Time};
use bytes::Bytes;
use serde_json::{Value, json};
use state::linear::functions::sql::{BATCH, QUERY, answer};
use state::linear::{Op, Ran, Reply, Step};

/// The namespace whose database is used.
pub const LEDGER: &str = "ledger";
/// One seed in so many has the load.
const ONE_IN: u64 = 3;
/// A read gives rows of so many of the last batches.
pub const ROWS_READ: u64 = 60;
/// Bytes that some rows have besides, so that snapshots have several parts.
const FILL: u64 = 2_000;

/// Whether this seed's clients use the class. Where a machine begins with an older program they do not: it does not know it.
pub fn is_in(seed: u64) -> bool {
    !seed.is_multiple_of(3) && place_hash_pair(b"sql", seed).is_multiple_of(ONE_IN)
}

/// What one client does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// A row with this number, and one more in all.
    Add { id: u64, seed: u64 },
    /// The same if there are so many in all, else nothing.
    AddIf { id: u64, total: u64, seed: u64 },
    /// How many there are in all, and the rows behind this number.
    Read { behind: u64 },
}

impl Act {
    pub fn name(&self) -> &'static str {
        match self {
            Act::Add { .. } => "sql-add",
            Act::AddIf { .. } => "sql-add-if",
            Act::Read { .. } => "sql-read",
        }
    }

    /// The row that it adds.
    pub fn id(&self) -> Option<u64> {
        match self {
            Act::Add { id, .. } | Act::AddIf { id, .. } => Some(*id),
            Act::Read { .. } => None,
        }
    }

    pub fn op(&self, now: Time) -> Op {
        let text = |number: u64| Bytes::from(number.to_string());
        let (function, args) = match self {
            Act::Read { behind } => {
                let query = json!([
                    "select t.n, (select count(*) from rows), r.id, r.chance, r.at from total t left join rows r on r.id > ?1 order by r.id",
                    [behind]
                ]);
                (QUERY, vec![text(now.0 / 1_000), text(1), Bytes::from(query.to_string())])
            }
            Act::Add { id, seed } => (BATCH, vec![text(now.0 / 1_000), text(*seed), text(16 << 20), batch(*id, None)]),
            Act::AddIf { id, total, seed } => {
                (BATCH, vec![text(now.0 / 1_000), text(*seed), text(16 << 20), batch(*id, Some(*total))])
            }
        };
        Op::of(LEDGER.into(), vec![Step::new("database".into(), function, args)])
    }
}

/// All in one, so that whoever is first makes the tables.
fn batch(id: u64, if_total: Option<u64>) -> Bytes {
    let count: Value = match if_total {
        None => json!({"sql": "update total set n = n + 1", "must": 1}),
        Some(total) => json!({"sql": "update total set n = n + 1 where n = ?1", "args": [total], "must": 1}),
    };
    let fill = if id.is_multiple_of(5) { FILL } else { 0 };
    json!([
        "create table if not exists rows (id integer primary key, chance not null, at text default current_timestamp, fill)",
        "create table if not exists total (n integer not null, one integer primary key)",
        "create index if not exists by_chance on rows (chance)",
        "insert or ignore into total values (0, 1)",
        ["insert into rows (id, chance, fill) values (?1, random(), hex(zeroblob(?2)))", [id, fill]],
        count,
    ])
    .to_string()
    .into()
}

/// For the history: what is the matter, or how much there is.
pub fn shown(ran: &Ran) -> String {
    match ran {
        Ran::Done(replies) => match replies.first() {
            Some(Reply::Wrong(wrong)) => format!("{wrong:?}"),
            reply => match reply.cloned().and_then(answer) {
                Some(Ok(json)) => String::from_utf8_lossy(&json).into_owned(),
                Some(Err(failure)) => format!("{failure:?}"),
                None => format!("{reply:?}"),
            },
        },
        Ran::Unmet => "unmet".into(),
    }
}

struct Client {
    rng: Rng,
    pause: Span,
    /// How many there were in all when it last looked.
    total: u64,
}

pub struct SqlLoad {
    clients: Vec<Client>,
    rows: u64,
}

impl SqlLoad {
    /// Nobody asks anything in a run without it.
    pub fn new(seed: u64, is_on: bool) -> Self {
        let mut rng = Rng::new(place_hash_pair(b"sql load", seed));
        let pause = Span::millis(*rng.pick(&[150, 400, 800]).expect("it is not empty"));
        let clients = if is_on { rng.between(2, 4) } else { 0 };
        Self { clients: (0..clients).map(|_| Client { rng: rng.fork(), pause, total: 0 }).collect(), rows: 0 }
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    pub fn pause(&mut self, client: usize) -> Span {
        let Client { rng, pause, .. } = &mut self.clients[client];
        Span(rng.between(pause.0 / 10, pause.0 * 2))
    }

    /// A number below `n`, from this client's chance.
    pub fn choose(&mut self, client: usize, n: usize) -> usize {
        self.clients[client].rng.below(n as u64) as usize
    }

    pub fn has_read(&mut self, client: usize, total: u64) {
        self.clients[client].total = total;
    }

    pub fn draw(&mut self, client: usize) -> (Act, Span) {
        let Client { rng, total, .. } = &mut self.clients[client];
        let budget = Span::millis(*rng.pick(&[2_000, 4_000]).expect("it is not empty"));
        // A function's numbers are below 2^63.
        let (drawn, seed) = (rng.below(10), rng.u64() >> 1);
        if drawn < 4 {
            return (Act::Read { behind: self.rows.saturating_sub(ROWS_READ) }, budget);
        }
        self.rows += 1;
        let id = self.rows;
        (if drawn < 7 { Act::Add { id, seed } } else { Act::AddIf { id, total: *total, seed } }, budget)
    }
}
