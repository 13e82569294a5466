//! What a node took by itself while it was cut off, and that no other node has: it is in a log that was set aside, as the node was away for
//! too long and has entered the cluster anew, as somebody else. Objects that are written once and the deletions of such can always be
//! added, whatever happened meanwhile: whoever knows that one was deleted says so. So they become entries of the new node, which is their
//! only home until it has given them others.

use std::collections::BTreeSet;

use base::{Boot, NodeId, Record, Rng};
use bytes::Bytes;

use crate::held::{At, Held};
use crate::lies::Lies;
use crate::log::{logged, pieces_of};
use crate::table::Entry;
use crate::{Object, Settings};

/// What was left, as records for the new node's log.
#[derive(Default)]
pub struct Left {
    pub records: Vec<Record>,
    /// The former node's packs that these name: they are to be the new node's, too.
    pub packs: BTreeSet<u64>,
    pub entries: u64,
}

/// Finds it in what the former node's log has kept.
///
/// # Errors
/// That this program cannot read the log.
pub fn left_alone(former: NodeId, me: NodeId, kept: Vec<Bytes>) -> Result<Left, String> {
    let mut was = Object::new(former, Boot(1), Rng::new(0), Settings::default());
    was.restore(kept);
    if let Some(why) = was.distrust {
        return Err(why);
    }
    let mut left = Left::default();
    for (slot, entry) in was.table.range(None) {
        let (held, key) = (&entry.held, was.table.key(slot));
        let is_alone = held.has.iter().all(|node| *node == former) && !held.is_spare(former);
        if !is_alone || !held.stamp.once || was.mending.is_bad(&key) {
            continue;
        }
        left.entries += 1;
        if let Lies::Packed(place) = &entry.body {
            left.packs.insert(place.pack);
        }
        let (set, pieces) = match &entry.body {
            Lies::Here(body) if body.is_in_pieces() => (left.entries, body.pieces().to_vec()),
            Lies::Here(_) | Lies::Packed(_) => (0, Vec::new()),
        };
        left.records.extend(pieces_of(set, pieces).map(|piece| piece.record()));
        let held = Held::new(held.stamp, At { homes: [me].into(), has: [me].into(), ..At::default() });
        left.records.push(logged(&key, &Entry { held, set, ..entry.clone() }).record());
    }
    Ok(left)
}
