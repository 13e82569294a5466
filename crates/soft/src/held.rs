//! What is held: entries that are there as long as somebody at the node that wrote them is, for presence. A door gives each of those
//! a number, and says when one is gone; their entries go with it, unless another one at the node holds the same. When a node is dead
//! for the others, the first of them takes away what it held ("sweeps"). Each node says again what is held at it and was taken away so:
//! it was only cut off. What somebody takes away, or writes over, on purpose, is not held any more.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Now, Refused, Span};
use bytes::Bytes;

use crate::Soft;
use crate::catchup::Held;
use crate::dot::Life;
use crate::limits::{FRESH_AFTER, HOLDS_MAX};
use crate::op::{Kind, Reply};
use crate::space::{Address, Space};

/// Of one node, in all namespaces.
#[derive(Default)]
pub struct Holds {
    of: BTreeMap<(u32, u64), BTreeSet<Address>>,
    /// By namespace and place: the value, and by how many it is held.
    what: BTreeMap<(u32, Address), (Option<Bytes>, usize)>,
}

impl Holds {
    pub fn hold(
        &mut self,
        now: Now,
        space: &mut Space,
        id: u32,
        (kind, key): (Kind, Bytes),
        pairs: Vec<(Bytes, Option<Bytes>)>,
        holder: u64,
    ) -> Result<Reply, Refused> {
        if !matches!(kind, Kind::Field | Kind::Member) {
            return Err(Refused::wrong("fields of hashes and members of sets can be held, nothing else"));
        }
        if self.what.len() + pairs.len() > HOLDS_MAX {
            let why = format!("{HOLDS_MAX} entries are held at this node already");
            return Err(Refused::busy(why, Span::secs(1)));
        }
        if space.is_of_other_kind(now.mono, &key, kind) {
            return Ok(Reply::WrongKind);
        }
        space.begin(now, &key);
        let (mut new, mine) = (0, self.of.entry((id, holder)).or_default());
        for (element, value) in pairs {
            let at = Address::new(key.clone(), kind, element);
            new += i64::from(!space.cells.get(&at).is_some_and(crate::cell::Cell::is_there));
            space.hold(now, &at, value.clone());
            let (held, count) = self.what.entry((id, at.clone())).or_default();
            *held = value;
            *count += usize::from(mine.insert(at));
        }
        Ok(Reply::Int(new))
    }

    /// This one is gone.
    pub fn let_go(&mut self, now: Now, space: &mut Space, id: u32, holder: u64) -> Reply {
        let mut gone = 0;
        for at in self.of.remove(&(id, holder)).unwrap_or_default() {
            let Some((_, count)) = self.what.get_mut(&(id, at.clone())) else { continue };
            *count -= 1;
            if *count == 0 {
                self.what.remove(&(id, at.clone()));
                gone += 1;
                space.let_go(now, &at, space.life(), false);
            }
        }
        Reply::Int(gone)
    }

    /// Somebody took it away, or wrote something else.
    fn forget(&mut self, id: u32, at: &Address) {
        if self.what.remove(&(id, at.clone())).is_some() {
            self.of.iter_mut().filter(|((of, _), _)| *of == id).for_each(|(_, all)| _ = all.remove(at));
        }
    }

    /// Of namespaces that are no more.
    pub fn retain(&mut self, ids: &[u32]) {
        self.of.retain(|(id, _), _| ids.contains(id));
        self.what.retain(|(id, _), _| ids.contains(id));
    }
}

impl Soft {
    /// Says again what was taken away from those that live, and takes away what lives held that are over.
    pub(crate) fn tend_held(&mut self, now: Now) {
        if self.spaces.values().all(|held| held.space.held.is_empty() && held.space.lost.is_empty()) {
            return;
        }
        let fresh = self.born.is_none_or(|born| now.mono.since(born) < FRESH_AFTER);
        let live: Vec<NodeId> = self.live().collect();
        let (me, says) = (self.life, self.gossip_at <= now.mono);
        let is_first = live.iter().all(|other| me.node < *other);
        let is_over = |life: &Life| match self.peers.get(&life.node) {
            _ if life.node == me.node => life.boot != me.boot,
            Some(peer) if peer.dead.is_some() => is_first,
            Some(peer) => life.boot < peer.boot && is_first,
            // It may be about to be known.
            None => is_first && !fresh,
        };
        for (id, Held { space, .. }) in self.spaces.iter_mut().filter(|(_, held)| held.is_settled()) {
            let before = space.seq();
            let over: Vec<Life> = space.held.keys().filter(|life| is_over(life)).copied().collect();
            for life in over {
                let all = space.held.get(&life).cloned().unwrap_or_default();
                all.iter().for_each(|at| space.let_go(now, at, life, true));
            }
            // Not sooner: who takes it away again and again would get as many answers.
            let lost = if says { std::mem::take(&mut space.lost) } else { Vec::new() };
            for (at, swept) in lost {
                let is_there = space.held.get(&me).is_some_and(|all| all.contains(&at));
                match self.holds.what.get(&(*id, at.clone())) {
                    Some((value, _)) if swept && !is_there => space.hold(now, &at, value.clone()),
                    Some(_) if !is_there => self.holds.forget(*id, &at),
                    _ => (),
                }
            }
            self.is_due |= space.seq() > before;
        }
    }
}
