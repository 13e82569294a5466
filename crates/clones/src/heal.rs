//! Healing has a budget. Clones that fail their probes are killed so that they are started anew, but of one service only a
//! few at a time over the whole cluster: the next only once the one before is well again, or has had its time to start.
//! If half of a service fails its probes at once, it is rather one cause that its clones share (a database, the network,
//! overload) than so many faults, and killing them all makes it worse: then they go one at a time, with waits that grow as
//! long as that does not help, and people are told (the *panic threshold*).
//!
//! Every node decides for its own clones, from what all nodes say of theirs ([`Sick`]) and in one order, so no node has to
//! be asked. Clones that died by themselves or never came up are not this file's matter: `group` and `life` see to them.

use std::collections::BTreeMap;

use base::{Span, Time};

use crate::limits::*;
use crate::{CloneId, CloneState, CloneStatus};

/// A clone that fails its probes, or was killed for that and is not well again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sick {
    pub id: CloneId,
    /// Whether it still runs, and waits for its turn to be killed.
    pub waits: bool,
    /// How often it was started again: who had fewer turns comes first.
    pub restarts: u32,
}

/// How many of a service's clones are to run, and which of them are sick.
pub(crate) struct Scene {
    pub all: usize,
    pub sick: BTreeMap<CloneId, Sick>,
    /// Sick clones on this node that wait for their turn, and since when all nodes know of each.
    pub mine: BTreeMap<CloneId, Time>,
    /// How long a clone may take to be well.
    pub start_timeout: Span,
}

/// What this node remembers of one service's healing.
#[derive(Default)]
pub(crate) struct Budget {
    /// Killed and not well yet, since when (here).
    down: BTreeMap<CloneId, Time>,
    panic: Option<Panic>,
}

struct Panic {
    /// From the last kill to the next.
    wait: Span,
    next_at: Time,
    /// Sick ones when the last was killed; none was yet if it is 0.
    sick_then: usize,
    /// Since when fewer than half are sick.
    calm_since: Option<Time>,
}

#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    /// Clones of this node to kill now.
    pub kill: Vec<CloneId>,
    /// An event: its kind and text.
    pub say: Option<(&'static str, String)>,
    /// When time alone may change the verdict.
    pub look_at: Option<Time>,
}

impl Sick {
    /// What a node says of one of its clones, if that is sick.
    pub fn of(status: &CloneStatus) -> Option<Self> {
        let waits = status.state == CloneState::Serving;
        status.sick.then(|| Self { id: status.id.clone(), waits, restarts: status.restarts })
    }
}

/// Whether so many of a service's clones fail their probes at once that the cause is not the clones.
fn is_panic(sick: usize, all: usize) -> bool {
    sick >= PANIC_SICK_MIN && sick * 2 >= all
}

/// Whether clones that fail their probes are in the routes all the same: if those that are well are fewer than half, they
/// would fall, too, under what all have to do.
pub fn are_routed(sick: usize, serving: usize) -> bool {
    sick * 2 > serving
}

impl Budget {
    /// What this moment asks for. To be asked again at once after a kill, which changes the scene.
    pub fn look(&mut self, now: Time, scene: &Scene) -> Verdict {
        let is_down = |id: &CloneId| scene.sick.get(id).is_some_and(|sick| !sick.waits);
        self.down.retain(|id, _| is_down(id));
        let before = self.down.len();
        for sick in scene.sick.values().filter(|sick| !sick.waits) {
            self.down.entry(sick.id.clone()).or_insert(now);
        }
        let say = self.count_panic(now, scene, self.down.len() > before);

        let busy = self.down.values().filter(|since| now < **since + scene.start_timeout).count();
        let limit = match &self.panic {
            None => (scene.all / HEAL_PART).max(1),
            Some(panic) => usize::from(now >= panic.next_at),
        };
        let mut turns: Vec<&Sick> = scene.sick.values().filter(|sick| sick.waits).collect();
        turns.sort_by_key(|sick| (sick.restarts, &sick.id));
        turns.truncate(limit.saturating_sub(busy));
        let told = |id: &CloneId| scene.mine.get(id).is_some_and(|told_at| *told_at <= now);
        let kill = turns.iter().filter(|sick| told(&sick.id)).map(|sick| sick.id.clone()).collect();
        Verdict { kill, say, look_at: self.look_at(now, scene) }
    }

    /// Nothing is left to remember.
    pub fn is_idle(&self) -> bool {
        self.down.is_empty() && self.panic.is_none()
    }

    /// `killed`: by some node, since the last look.
    fn count_panic(&mut self, now: Time, scene: &Scene, killed: bool) -> Option<(&'static str, String)> {
        let (sick, all) = (scene.sick.len(), scene.all);
        let Some(panic) = &mut self.panic else {
            if !is_panic(sick, all) {
                return None;
            }
            let wait = PANIC_WAIT_FIRST;
            // One that was killed before it came to this counts as the first.
            let (next_at, sick_then) = if self.down.is_empty() { (now, 0) } else { (now + wait, sick) };
            self.panic = Some(Panic { wait, next_at, sick_then, calm_since: None });
            let text = format!(
                "{sick} of {all} clones fail their probes at once: rather one cause that they share (a database, the network, \
                 overload) than so many faults; they are restarted one at a time, ever more slowly as long as that does not help"
            );
            return Some(("warning", text));
        };
        if killed {
            let helps = panic.sick_then == 0 || sick < panic.sick_then;
            panic.wait = if helps { PANIC_WAIT_FIRST } else { Span(panic.wait.0 * 2).min(PANIC_WAIT_MAX) };
            (panic.next_at, panic.sick_then) = (now + panic.wait, sick);
        }
        if is_panic(sick, all) {
            panic.calm_since = None;
            return None;
        }
        // A restarted clone passes some probes before it fails again: that is not the end yet.
        let since = *panic.calm_since.get_or_insert(now);
        if now < since + PANIC_CALM {
            return None;
        }
        self.panic = None;
        let text =
            format!("{} of {all} clones are well again: restarts are no longer slowed", all.saturating_sub(sick));
        Some(("healed", text))
    }

    fn look_at(&self, now: Time, scene: &Scene) -> Option<Time> {
        let calm = self.panic.as_ref().and_then(|panic| panic.calm_since).map(|since| since + PANIC_CALM);
        let turns = (self.down.values().map(|since| *since + scene.start_timeout))
            .chain(self.panic.as_ref().map(|panic| panic.next_at))
            .chain(scene.mine.values().copied())
            .filter(|_| !scene.mine.is_empty());
        turns.chain(calm).filter(|at| *at > now).min()
    }
}

#[cfg(test)]
#[path = "heal_tests.rs"]
mod tests;
