//! What clients ask of the `soft` class: counters that are added to and reset, maps, sets, rankings and lists that are written and
//! removed from, a register of each client's own, and one that ends. Half of it is in a namespace with one copy. Judging what came back is for `promises::soft`.
//!
//! A part of the seeds has it, told by the seed and no draw: what the others do stays what it was.

use base::checksum::place_hash_pair;
use base::{Rng, Span, Time};
use bytes::Bytes;
use state::soft::{Action, End, Kind, List, Op, Side};

/// The namespace whose collections converge.
pub const FLOOR: &str = "floor";
/// One that acknowledges what one node has.
pub const LOFT: &str = "loft";
/// Its keys begin so.
const LOFT_KEY: char = 'x';
/// One seed in so many has the load.
const ONE_IN: u64 = 3;
const COUNTERS: u64 = 2;
const COLLECTIONS: u64 = 2;
const ELEMENTS: u64 = 4;
/// An item that is removed was pushed by one of so many writes before.
const ITEMS_AGO: u64 = 30;
/// Of what ends: soon, or long after the run.
const SOON_MS: (u64, u64) = (500, 3_000);
const LATE: Span = Span::secs(3 * 3_600);
/// A client goes to another node after so many operations.
const STAYS: u64 = 12;

pub type WriteId = u64;

/// Whether this seed's clients use the class.
pub fn is_in(seed: u64) -> bool {
    place_hash_pair(b"soft", seed).is_multiple_of(ONE_IN)
}

/// What one client does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// A field of a map with the write's number, or a member of a set; or an item of a list, which no other is equal to.
    Put {
        key: String,
        element: String,
        id: WriteId,
    },
    Take {
        key: String,
        element: String,
        id: WriteId,
    },
    /// The whole collection, or a counter with all that it has counted.
    Clear {
        key: String,
        id: WriteId,
    },
    Add {
        key: String,
        by: i64,
        id: WriteId,
    },
    /// The client's own register.
    Set {
        key: String,
        id: WriteId,
    },
    /// Its other one, which ends after so long.
    Lend {
        key: String,
        id: WriteId,
        ends: Span,
    },
    Get {
        key: String,
    },
}

impl Act {
    pub fn name(&self) -> &'static str {
        match self {
            Act::Put { .. } => "soft-put",
            Act::Take { .. } => "soft-take",
            Act::Clear { .. } => "soft-clear",
            Act::Add { .. } => "soft-add",
            Act::Set { .. } => "soft-set",
            Act::Lend { .. } => "soft-lend",
            Act::Get { .. } => "soft-get",
        }
    }

    pub fn key(&self) -> &str {
        match self {
            Act::Put { key, .. }
            | Act::Take { key, .. }
            | Act::Clear { key, .. }
            | Act::Add { key, .. }
            | Act::Set { key, .. }
            | Act::Lend { key, .. }
            | Act::Get { key } => key,
        }
    }

    /// Of what writes.
    pub fn id(&self) -> Option<WriteId> {
        match self {
            Act::Put { id, .. }
            | Act::Take { id, .. }
            | Act::Clear { id, .. }
            | Act::Add { id, .. }
            | Act::Set { id, .. }
            | Act::Lend { id, .. } => Some(*id),
            Act::Get { .. } => None,
        }
    }

    pub fn op(&self) -> Op {
        let key = bytes(self.key());
        let action = match self {
            Act::Put { element, id, key: name } if kind(name) == Kind::Item => {
                let side = if id.is_multiple_of(2) { Side::Left } else { Side::Right };
                let what = List::Push { side, values: vec![bytes(element)], only_there: false };
                Action::List { key, what }
            }
            Act::Take { element, key: name, .. } if kind(name) == Kind::Item => {
                Action::List { key, what: List::Remove { count: 0, value: bytes(element) } }
            }
            Act::Put { element, id, key: name } => {
                let value = match kind(name) {
                    Kind::Field => Some(bytes(&id.to_string())),
                    // A score: eight bytes.
                    Kind::Score => Some(Bytes::copy_from_slice(&(*id as f64).to_be_bytes())),
                    _ => None,
                };
                Action::Put { kind: kind(name), key, pairs: vec![(bytes(element), value)] }
            }
            Act::Take { element, key: name, .. } => {
                Action::Take { kind: kind(name), key, elements: vec![bytes(element)] }
            }
            Act::Clear { .. } => Action::Remove { keys: vec![key] },
            Act::Add { by, .. } => Action::Add { kind: Kind::Register, key, element: Bytes::new(), by: *by },
            Act::Set { id, .. } => Action::Set { pairs: vec![(key, bytes(&id.to_string()))], end: End::Never },
            Act::Lend { id, ends, .. } => {
                Action::Set { pairs: vec![(key, bytes(&id.to_string()))], end: End::After(*ends) }
            }
            Act::Get { .. } => Action::Read { kind: Kind::Register, at: vec![(key, Bytes::new())] },
        };
        Op::of(space(self.key()).into(), action)
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// What lies at a collection's key.
pub fn kind(key: &str) -> Kind {
    match here(key).as_bytes().first() {
        Some(b'm') => Kind::Field,
        Some(b'l') => Kind::Item,
        Some(b'r') => Kind::Score,
        _ => Kind::Member,
    }
}

pub fn is_counter(key: &str) -> bool {
    here(key).starts_with('n')
}

/// One node's memory is enough for what is at this key.
pub fn has_one_copy(key: &str) -> bool {
    key.starts_with(LOFT_KEY)
}

fn here(key: &str) -> &str {
    key.trim_start_matches(LOFT_KEY)
}

pub fn space(key: &str) -> &'static str {
    if has_one_copy(key) { LOFT } else { FLOOR }
}

/// In both namespaces.
fn twice(keys: impl Iterator<Item = String>) -> Vec<String> {
    let keys: Vec<String> = keys.collect();
    let lofts: Vec<String> = keys.iter().map(|key| format!("{LOFT_KEY}{key}")).collect();
    keys.into_iter().chain(lofts).collect()
}

pub fn collections() -> Vec<String> {
    let of = |letter: char| (0..COLLECTIONS).map(move |n| format!("{letter}{n}"));
    twice(of('m').chain(of('s')).chain(of('l')).chain(of('r')))
}

pub fn counters() -> Vec<String> {
    twice((0..COUNTERS).map(|n| format!("n{n}")))
}

/// A question of what a node has.
pub enum Look {
    Registers(Vec<String>),
    Collection(String),
}

impl Look {
    pub fn op(&self) -> Op {
        let (of, action) = match self {
            Look::Registers(keys) => (&keys[0], Action::Peek { at: keys.iter().map(|key| bytes(key)).collect() }),
            Look::Collection(key) => (key, Action::All { kind: kind(key), key: bytes(key) }),
        };
        Op::of(space(of).into(), action)
    }
}

/// Questions that together show all that a node has.
pub fn looks(clients: usize) -> Vec<Look> {
    let registers = (0..clients).flat_map(|client| [own(client), lent(client)]).chain(counters());
    let (loft, floor) = registers.partition(|key| has_one_copy(key));
    let all = collections().into_iter().map(Look::Collection);
    [Look::Registers(floor), Look::Registers(loft)].into_iter().chain(all).collect()
}

/// The register of one client.
pub fn own(client: usize) -> String {
    format!("own{client}")
}

/// ... and the one that ends.
pub fn lent(client: usize) -> String {
    format!("lent{client}")
}

struct Client {
    rng: Rng,
    pause: Span,
    /// The machine it asks, in which life, and how often still.
    at: Option<(usize, Time)>,
    stays: u64,
}

pub struct SoftLoad {
    clients: Vec<Client>,
    writes: WriteId,
}

impl SoftLoad {
    /// Nobody asks anything in a run without it.
    pub fn new(seed: u64, is_on: bool) -> Self {
        let mut rng = Rng::new(place_hash_pair(b"soft load", seed));
        let pause = Span::millis(*rng.pick(&[60, 150, 400]).expect("it is not empty"));
        let clients = if is_on { rng.between(3, 6) } else { 0 };
        let client = |_| Client { rng: rng.fork(), pause, at: None, stays: 0 };
        Self { clients: (0..clients).map(client).collect(), writes: 0 }
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    pub fn pause(&mut self, client: usize) -> Span {
        let Client { rng, pause, .. } = &mut self.clients[client];
        Span(rng.between(pause.0 / 10, pause.0 * 2))
    }

    /// Which of these machines it asks, each with the beginning of its life: mostly the one that it asked before.
    pub fn choose(&mut self, client: usize, lives: &[(usize, Time)]) -> (usize, Time) {
        let Client { rng, at, stays, .. } = &mut self.clients[client];
        if let Some(life) = at.filter(|life| *stays > 0 && lives.contains(life)) {
            *stays -= 1;
            return life;
        }
        *stays = rng.below(STAYS);
        *at.insert(*rng.pick(lives).expect("somebody runs"))
    }

    pub fn draw(&mut self, client: usize) -> (Act, Span) {
        let rng = &mut self.clients[client].rng;
        let budget = Span::millis(*rng.pick(&[500, 1_000, 2_000]).expect("it is not empty"));
        let drawn = rng.below(100);
        if drawn < 15 {
            return (Act::Get { key: own(client) }, budget);
        }
        self.writes += 1;
        let id = self.writes;
        let collection = rng.pick(&collections()).expect("there are some").clone();
        let counter = rng.pick(&counters()).expect("there are some").clone();
        let mut element = format!("e{}", rng.below(ELEMENTS));
        if kind(&collection) == Kind::Item {
            // The item that this write pushes, or one that a write pushed some time ago, if it was to this list.
            let of = if (30..54).contains(&drawn) { id } else { id.saturating_sub(rng.between(1, ITEMS_AGO)) };
            element = format!("i{of}");
        }
        let act = match drawn {
            15..30 => Act::Set { key: own(client), id },
            30..54 => Act::Put { key: collection, element, id },
            54..70 => Act::Take { key: collection, element, id },
            70..72 => Act::Clear { key: collection, id },
            72..74 => Act::Clear { key: counter, id },
            74..80 => {
                let soon = Span::millis(rng.between(SOON_MS.0, SOON_MS.1));
                Act::Lend { key: lent(client), id, ends: if rng.chance(0.5) { soon } else { LATE } }
            }
            _ => Act::Add { key: counter, by: rng.between(1, 9) as i64, id },
        };
        (act, budget)
    }
}
