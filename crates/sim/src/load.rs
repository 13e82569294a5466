//! What clients ask: session operations by keyed clients in closed loops, and one operator who applies declarations.
//! It draws operations and knows their values; judging what came back is for `scene`.

use base::checksum::place_hash_pair;
use base::{Priority, Rng, Span, Time};
use bytes::Bytes;
use cluster::raft::LogBounds;
use state::linear::limits::LOG;
use state::session::{Action, Lease, Version, When};

use crate::linear_load::WIDE_SHARDS;
use crate::modes_load::FORMS;
use crate::object_load::BOX;
use crate::promises::session::{What, WriteId};
use crate::soft_load::{FLOOR, LOFT};
use crate::sql_load::LEDGER;

/// Namespace that load uses, and the one whose lease is the operator's mark.
pub const NAMESPACE: &str = "carts";
const MARK: &str = "mark";
/// Lease of [`NAMESPACE`].
pub const LEASE_DEFAULT: Span = Span::secs(30 * 60);
/// The mark's lease is so much more than its number, in seconds.
const MARK_BASE_SECS: u64 = 60;

/// Classes of which there is a namespace besides those that each run has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Has {
    pub soft: bool,
    pub sql: bool,
    pub object: bool,
}

/// A session operation that was drawn.
#[derive(Clone, Debug)]
pub struct Drawn {
    pub key: String,
    pub action: Action,
    /// For a write: its name and what it does.
    pub write: Option<(WriteId, What)>,
    pub name: &'static str,
    pub budget: Span,
}

/// One client: a closed loop with pauses.
struct Client {
    rng: Rng,
    pause: Span,
    /// The version it read last, and of which key.
    read: Option<(String, Version)>,
}

pub struct Load {
    clients: Vec<Client>,
    keys: u64,
    writes: WriteId,
    operator: Rng,
    marks: u64,
    /// Of what it declares.
    memory: bool,
    has: Has,
}

impl Load {
    pub fn new(memory: bool, has: Has, mut rng: Rng) -> Self {
        let clients = rng.between(3, 8);
        let pause = Span::millis(*rng.pick(&[50, 150, 400]).expect("it is not empty"));
        Self {
            keys: *rng.pick(&[3, 20, 100]).expect("it is not empty"),
            clients: (0..clients).map(|_| Client { rng: rng.fork(), pause, read: None }).collect(),
            writes: 0,
            operator: rng.fork(),
            marks: 0,
            memory,
            has,
        }
    }

    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Until this client's next operation.
    pub fn pause(&mut self, client: usize) -> Span {
        let Client { rng, pause, .. } = &mut self.clients[client];
        Span(rng.between(pause.0 / 10, pause.0 * 2))
    }

    /// A number below `n`, from this client's chance.
    pub fn choose(&mut self, client: usize, n: usize) -> usize {
        self.clients[client].rng.below(n as u64) as usize
    }

    /// What this client does next.
    pub fn draw(&mut self, client: usize) -> Drawn {
        let Client { rng, read, .. } = &mut self.clients[client];
        let key = format!("k{}", rng.below(self.keys));
        let budget = Span::millis(*rng.pick(&[500, 1_000, 2_000]).expect("it is not empty"));
        let kind = rng.below(100);
        if kind < 45 {
            return Drawn { key, action: Action::Get, write: None, name: "get", budget };
        }
        self.writes += 1;
        let id = self.writes;
        let (lease, span) = match rng.below(20) {
            0 => (Lease::For(Span::secs(2)), Span::secs(2)),
            1..=5 => (Lease::For(Span::secs(600)), Span::secs(600)),
            _ => (Lease::Default, LEASE_DEFAULT),
        };
        let put =
            |when| Action::Put { kind: state::session::Kind::Text, value: value(id), lease, when, want_old: false };
        let (name, key, action, what) = match kind {
            45..85 => ("put", key, put(When::Always), What::Put { lease: span }),
            85..90 => match read.take() {
                Some((key, version)) => ("put-if-version", key, put(When::Version(version)), What::Put { lease: span }),
                None => ("put-if-absent", key, put(When::Absent), What::Put { lease: span }),
            },
            90..95 => ("touch", key, Action::Touch { lease }, What::Touch { lease: span }),
            _ => ("remove", key, Action::Remove, What::Remove),
        };
        Drawn { key, action, write: Some((id, what)), name, budget }
    }

    /// A read of one key.
    pub fn get(key: &str) -> Drawn {
        Drawn { key: key.to_owned(), action: Action::Get, write: None, name: "get", budget: Span::secs(1) }
    }

    /// A client has read this.
    pub fn has_read(&mut self, client: usize, key: &str, version: Version) {
        self.clients[client].read = Some((key.to_owned(), version));
    }

    /// Until the operator's next apply.
    pub fn operator_pause(&mut self) -> Span {
        Span::millis(self.operator.between(2_000, 15_000))
    }

    /// Whether the operator drains a node now or puts one back (in place of a declaration), its number from 0, which way,
    /// and which of `n` nodes to ask.
    pub fn switch(&mut self, machines: usize, n: usize) -> Option<(usize, bool, usize)> {
        let rng = &mut self.operator;
        let now = rng.chance(0.3);
        now.then(|| (rng.below(machines as u64) as usize, rng.chance(0.4), rng.below(n as u64) as usize))
    }

    /// The operator's next declaration, its mark, and which of `n` nodes to ask.
    pub fn declare(&mut self, n: usize) -> (String, u64, usize) {
        self.marks += 1;
        (
            declaration(self.marks, self.memory, self.has, &mut self.operator),
            self.marks,
            self.operator.below(n as u64) as usize,
        )
    }
}

/// A declaration that shows its mark. Mark 0 is the one that the cluster is founded with.
/// `memory`: what class `linear` acknowledges is not forced yet.
pub fn declaration(mark: u64, memory: bool, has: Has, rng: &mut Rng) -> String {
    let clones = rng.between(1, 4);
    let colour = rng.below(3);
    let durability = if memory { "memory" } else { "disk" };
    let shards = wide_shards(mark);
    let mut text = format!(
        "[namespace.bank]\nclass = \"linear\"\ndurability = \"{durability}\"\n\
         [namespace.wide]\nclass = \"linear\"\ndurability = \"{durability}\"\nshards = {shards}\n[namespace.{NAMESPACE}]\nclass = \"session\"\nlease = \"{}s\"\n\
         [namespace.{MARK}]\nclass = \"session\"\nlease = \"{}s\"\n\
         [namespace.{FORMS}]\nclass = \"session\"\nmerge = \"fields\"\n\
         [service.shop]\nrun = [\"shop\"]\nclones = {clones}\nhealth = \"/health\"\nhttp = {{ host = \"*\" }}\n\
         namespaces = [\"{NAMESPACE}\"]\nenv = {{ COLOUR = \"{colour}\" }}\n",
        LEASE_DEFAULT.as_millis() / 1000,
        MARK_BASE_SECS + mark,
    );
    if has.object {
        text += &format!("[namespace.{BOX}]\nclass = \"object\"\n");
    }
    if has.sql {
        text += &format!("[namespace.{LEDGER}]\nclass = \"sql\"\n");
    }
    if has.soft {
        text += &format!("[namespace.{FLOOR}]\nclass = \"soft\"\n");
        text += &format!("[namespace.{LOFT}]\nclass = \"soft\"\ncopies = 1\n");
    }
    for extra in 0..rng.below(3) {
        let clones = rng.between(1, 3);
        text += &format!("[service.extra{extra}]\nrun = [\"extra\"]\nclones = {clones}\n");
    }
    text
}

/// Shards of the namespace with many that are declared with this mark.
pub fn wide_shards(mark: u64) -> u64 {
    (1 + mark / 2).min(WIDE_SHARDS)
}

/// The mark that a view shows.
pub fn mark(view: &node::View) -> Option<u64> {
    let namespace = view.namespaces.iter().find(|namespace| namespace.name == MARK)?;
    (namespace.lease_ms / 1000).checked_sub(MARK_BASE_SECS)
}

/// How long the logs of `linear` groups become in this round: in two of three so short that snapshots replace them all the time,
/// and that who was away for a moment needs one. It follows from the seed and is no draw.
pub fn linear_log(seed: u64) -> LogBounds {
    match place_hash_pair(b"log", seed) % 3 {
        0 => LOG,
        1 => LogBounds { records_max: 300, bytes_max: 64 << 10, entries_kept: 16 },
        _ => LogBounds { records_max: 40, bytes_max: 8 << 10, entries_kept: 2 },
    }
}

/// Whether what clients ask in this round matters more or less; else it all matters the same. It follows from the seed and is no
/// draw, so that what clients do besides stays what it was.
fn has_priorities(seed: u64) -> bool {
    place_hash_pair(b"priorities", seed).is_multiple_of(2)
}

/// How much matters what a client asks at this moment: in some rounds any of the edge's ten classes.
pub fn priority(seed: u64, client: u64, now: Time) -> Priority {
    let class = place_hash_pair(&client.to_be_bytes(), now.0) % 10;
    if has_priorities(seed) { Priority::of_ten(class as u8) } else { Priority::NORMAL }
}

/// The value of a write: its name, then bytes that follow from it. One in 16 is a large one.
pub fn value(id: WriteId) -> Bytes {
    let hash = place_hash_pair(b"size", id);
    let size = if hash.is_multiple_of(16) { 8192 } else { 8 + hash % 120 } as usize;
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend(std::iter::repeat_n((hash >> 8) as u8, size.saturating_sub(8)));
    bytes.into()
}

/// The write that stored these bytes, and whether they are all as it stored them.
pub fn written(bytes: &[u8]) -> (WriteId, bool) {
    match bytes.first_chunk::<8>() {
        Some(id) => {
            let id = u64::from_be_bytes(*id);
            (id, value(id) == bytes)
        }
        None => (0, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_their_write_and_every_flipped_bit_is_seen() {
        for id in 1..100 {
            let bytes = value(id);
            assert_eq!(written(&bytes), (id, true));
            let mut other = bytes.to_vec();
            *other.last_mut().unwrap() ^= 1;
            assert_ne!(written(&other), (id, true));
            assert!(!written(&bytes[..bytes.len() - 1]).1);
        }
    }

    #[test]
    fn in_some_rounds_there_are_all_priorities_and_in_the_others_one() {
        let of = |seed| (0..200).map(|us| priority(seed, 1, Time(us))).collect::<std::collections::BTreeSet<_>>();
        let mixed = (0..100).filter(|seed| of(*seed).len() > 1).count();
        assert!((25..75).contains(&mixed), "{mixed} of 100");
        assert!((0..100).all(|seed| [1, 7].contains(&of(seed).len())));
    }

    #[test]
    fn every_declaration_is_right_and_shows_its_mark() {
        let mut rng = Rng::new(5);
        for mark in 0..50_u64 {
            let nothing = cluster::root::Declared::default();
            let every = |n: u64| mark.is_multiple_of(n);
            let has = Has { soft: every(3), sql: every(5), object: every(7) };
            let text = declaration(mark, every(2), has, &mut rng);
            let diff = node::declared::diff(&nothing, "sim.toml", &text, &[1; 32]).unwrap();
            assert!(diff.lines.contains(&"+ service shop".to_string()), "{:?}", diff.lines);
        }
    }
}
