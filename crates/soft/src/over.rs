//! Lives that are over: those of a node below its present one. Each start of a node adds a line to all contexts; they are folded into one for
//! each node when every member, whether it lives or not, has told that it has the same of them in its memory and in its checkpoint, and the
//! index has forgotten them. So nothing that anybody has is taken for seen that was not.
//!
//! One folds first, as it hears all others first; the others take it over with the next `Have`, as the sum of their lines is the same
//! ([`Context::adopts`]). Who has other lines (an older checkpoint, or nothing) lacks what is in the floor: it compares whole states, or
//! gets all. Where a member is away nothing is folded until it is back, or removed.

use std::collections::BTreeSet;

use base::{Boot, NodeId, Now, Time};

use crate::context::Context;
use crate::limits::FOLD_AFTER;
use crate::machine::Heard;
use crate::{FOLD_LEVEL, Soft};

impl Soft {
    /// Folds what all have agreed on, without a word.
    pub(crate) fn fold_lives(&mut self, now: Now) {
        if self.level < FOLD_LEVEL {
            return;
        }
        let me = (self.life.node, self.life.boot, self.born.unwrap_or(now.mono));
        let lives: Vec<(NodeId, Boot, Time)> =
            self.peers.iter().map(|(id, peer)| (*id, peer.boot, peer.since)).chain([me]).collect();
        let members: BTreeSet<NodeId> =
            self.members.iter().copied().chain(self.live()).filter(|id| *id != self.life.node).collect();
        for (id, held) in self.spaces.iter_mut().filter(|(_, held)| held.is_settled() && held.has_come()) {
            let told = members.iter().map(|member| self.peers.get(member)?.told.get(id));
            let Some(told) = told.collect::<Option<Vec<&Heard>>>() else { continue };
            for (node, boot, since) in &lives {
                // What was under way from the life before has come by then, or never does.
                let known_at = *since + FOLD_AFTER;
                if known_at > now.mono || told.iter().any(|heard| heard.at < known_at) {
                    continue;
                }
                let others = told.iter().flat_map(|heard| heard.kept.iter().chain([&heard.context]));
                let mine = [held.kept(), &held.space.floor];
                let all: Vec<&Context> = others.chain(mine).collect();
                let below = held.space.context.agreed(*node, *boot, &all);
                if below > held.space.context.folded_of(*node).below {
                    held.space.fold(*node, below);
                }
            }
        }
    }
}
