//! A table with very many objects and deletions, for tests of what they cost.

use std::collections::BTreeSet;

use base::{NodeId, Rng, Ticket};
use bytes::Bytes;
use class::Version;

use crate::held::{At, Held};
use crate::lies::{Lies, Part, Parts, Place};
use crate::table::{Entry, Table};
use crate::{Id, Key, Stamp};

/// What a node keeps of so many objects that lie in packs, and of so many deletions about which nothing is left to do. For
/// `tests/memory.rs`, which sees what that takes of a process.
pub fn filled(objects: u64, graves: u64) -> impl Sized {
    let mut table = Table::default();
    fill(&mut table, objects, graves);
    table
}

fn stamp(rng: &mut Rng, gone: bool) -> Stamp {
    let version = Version { ms: 1_700_000_000_000 + rng.below(1 << 30), counter: 0, node: NodeId(1) };
    let (sum, size) = if gone { (0, 0) } else { (rng.u64() as u32, 4700) };
    Stamp { version, once: true, gone, sum, size }
}

/// An id as mail has them, of one of the owners.
fn key(rng: &mut Rng, owners: u64) -> Key {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&rng.u64().to_be_bytes());
    id[8..].copy_from_slice(&rng.u64().to_be_bytes());
    let owner = format!("user{}@mail.example", rng.below(owners));
    // Each comes with a name of its own, as from a frame.
    Key { ns: 1, owner: Bytes::from(owner), id: Id(id) }
}

fn held(rng: &mut Rng, gone: bool) -> Held {
    let (first, second) = [(1, 2), (1, 3), (2, 1)][rng.below(3) as usize];
    let homes: BTreeSet<NodeId> = match gone {
        true => (1..=3).map(NodeId).collect(),
        false => [NodeId(first), NodeId(second)].into(),
    };
    Held::new(stamp(rng, gone), At { has: homes.clone(), homes, ..At::default() })
}

/// Adds objects that lie in packs, and deletions about which nothing is left to do.
pub(crate) fn fill(table: &mut Table, objects: u64, graves: u64) {
    let mut rng = Rng::new(7);
    for n in 0..objects {
        let held = held(&mut rng, false);
        let parts = Parts::One(Part { len: held.stamp.size, sum: held.stamp.sum });
        let body = Lies::Packed(Place { pack: 1 + n / 3500, from: n % 3500 * 4700, parts });
        let key = key(&mut rng, 10_000);
        table.insert(key, Entry { held, body, set: 0, ticket: Ticket(0), serial: 0 });
    }
    for n in 0..graves {
        let (key, held) = (key(&mut rng, 10_000), held(&mut rng, true));
        table.restore_grave(&key, held, 1_700_000_000 + (n / 20) as u32);
    }
}
