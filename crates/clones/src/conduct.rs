//! How clones behave towards those who ask them, judged by the manager from what all edges say: a clone that answers nothing,
//! or fails request after request, while others of its service are well, is *ill*, whatever its probes say (a service may
//! have none). Its node hears of it with the assignments and restarts it as one that fails its probes, so within the same
//! budget (`heal`).
//!
//! A clone is never judged alone: if no other is well it is rather a cause that they share, and then restarts make it worse.
//! One that is found ill again soon after is given twice as long each time: what ails it may be what it is asked.

use std::collections::BTreeMap;

use base::{NodeId, Span, Time};

use crate::limits::*;
use crate::plan::Cluster;
use crate::spec::ServiceSpec;
use crate::{Assignments, CloneId, Demand};

/// A clone that is to be restarted for its behaviour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ill {
    /// Which life of it: when that came to serve, as its node says, milliseconds since 1970.
    pub since_ms: u64,
    /// For people.
    pub why: String,
}

/// What a leader knows of all clones' behaviour.
#[derive(Default)]
pub(crate) struct Conduct {
    /// When each last gave a good answer, by version: while a clone is replaced there are two.
    well_at: BTreeMap<(CloneId, u32), Time>,
    /// Which life of each was seen last, and when first, of those that came after another.
    lives: BTreeMap<CloneId, (u64, Option<Time>)>,
    /// Who is ill now, and since when.
    ill: BTreeMap<CloneId, (Ill, Time)>,
    /// How often each was found ill of late, and when it was last.
    times: BTreeMap<CloneId, (u32, Time)>,
}

/// What all edges together say of a clone now.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    owes: u64,
    mute: Span,
    failing: u64,
    failing_for: Span,
}

/// A clone that serves.
struct Serving<'a> {
    id: &'a CloneId,
    version: u32,
    since_ms: u64,
    seen: Seen,
}

impl Conduct {
    /// What an edge saw.
    pub fn hear(&mut self, now: Time, demand: &Demand) {
        for (service, group) in &demand.groups {
            for clone in group.clones.iter().filter(|clone| clone.done > clone.failed) {
                self.well_at.insert((CloneId::new(service.as_str(), clone.number), clone.version), now);
            }
        }
    }

    /// Whether somebody may be ill: else nobody need look.
    pub fn has_suspects<'a>(&self, demands: impl Iterator<Item = &'a Demand>) -> bool {
        let mut clones = demands.flat_map(|demand| demand.groups.values()).flat_map(|group| &group.clones);
        !self.ill.is_empty()
            || clones.any(|clone| u64::from(clone.mute_ms) >= HUNG_AFTER.as_millis() / 2 || clone.failing > 0)
    }

    /// Finds who is ill. `since`: when this leader began to hear of it all. Returns whom it found just now, and why.
    pub fn look(
        &mut self,
        now: Time,
        since: Time,
        cluster: &Cluster,
        current: &Assignments,
        demands: &[&Demand],
    ) -> Vec<(CloneId, String)> {
        self.well_at.retain(|_, at| now.since(*at) < WELL_KEPT);
        self.times.retain(|_, (_, at)| now.since(*at) < ILL_FORGIVEN);
        let mut found = Vec::new();
        for service in cluster.services.keys() {
            let slowest = demands.iter().filter_map(|demand| demand.groups.get(service));
            let slowest = slowest.map(|group| group.slowest_ms).max().unwrap_or(0);
            let serving = serving(service, cluster, current, demands);
            // How long an answer may take by the service's own word.
            let said = cluster.services.get(service).and_then(ServiceSpec::answer_timeout_max).unwrap_or(Span::ZERO);
            for clone in &serving {
                let life = self.lives.entry(clone.id.clone()).or_insert((clone.since_ms, None));
                if life.0 != clone.since_ms {
                    *life = (clone.since_ms, Some(now));
                }
            }
            let suspects: Vec<(&Serving<'_>, String)> = serving
                .iter()
                .filter_map(|clone| Some((clone, self.ails(now, since, clone, slowest, said)?)))
                .collect();
            let is_suspect = |id: &CloneId| suspects.iter().any(|(clone, _)| clone.id == id);
            let well = serving.iter().filter(|clone| !is_suspect(clone.id) && self.is_well(now, clone)).count();
            self.ill.retain(|id, (ill, at)| {
                if id.service != *service {
                    return true;
                }
                let its = serving.iter().find(|clone| clone.id == id && clone.since_ms == ill.since_ms);
                // It has been restarted, or it has come back by itself.
                its.is_some_and(|its| self.well_at.get(&its.key()).is_none_or(|well_at| well_at <= at))
            });
            if well < suspects.len().max(1) {
                continue;
            }
            for (clone, why) in &suspects {
                if self.ill.contains_key(clone.id) {
                    continue;
                }
                let why = format!("{why}, while {well} other{} well", if well == 1 { " is" } else { "s are" });
                let ill = Ill { since_ms: clone.since_ms, why: why.clone() };
                self.ill.insert(clone.id.clone(), (ill, now));
                let times = self.times.entry(clone.id.clone()).or_insert((0, now));
                *times = (times.0 + 1, now);
                found.push((clone.id.clone(), why));
            }
        }
        self.ill.retain(|id, _| cluster.services.contains_key(&id.service));
        self.lives.retain(|id, _| cluster.services.contains_key(&id.service));
        found
    }

    pub fn ill(&self) -> BTreeMap<CloneId, Ill> {
        self.ill.iter().map(|(id, (ill, _))| (id.clone(), ill.clone())).collect()
    }

    /// Why this one seems to be ill, seen alone.
    fn ails(&self, now: Time, since: Time, clone: &Serving<'_>, slowest_ms: u32, said: Span) -> Option<String> {
        // What its life before did is not its fault, and an edge may still count that.
        let began = self.lives.get(clone.id).and_then(|(_, at)| *at).unwrap_or(since);
        let bad_for = now.since(self.well_at.get(&clone.key()).copied().unwrap_or(since).max(began));
        let again = 1 << self.times.get(clone.id).map_or(0, |(times, _)| *times).min(ILL_DOUBLED_MAX);
        let Seen { owes, mute, failing, failing_for } = clone.seen;
        let seconds = |span: Span| span.as_millis() / 1000;
        // What the service was seen to need for an answer is no sign of illness, and neither is what it says that it may need.
        let slowest = Span(Span::millis(u64::from(slowest_ms)).0 * HUNG_SLOWEST);
        let patience = Span(HUNG_AFTER.max(slowest).max(said).0 * again);
        if owes >= HUNG_OWES && mute.min(bad_for) >= patience {
            return Some(format!("answered none of {owes} requests in {} s", seconds(mute)));
        }
        let patience = Span(FAILING_AFTER.0 * again);
        if failing >= FAILING_ROW && failing_for.min(bad_for) >= patience {
            return Some(format!("failed {failing} requests in a row in {} s", seconds(failing_for)));
        }
        None
    }

    /// It gave a good answer lately, and nothing speaks against it now: what ails all begins with each a little later.
    fn is_well(&self, now: Time, clone: &Serving<'_>) -> bool {
        let is_doubted = clone.seen.failing > 0 || clone.seen.mute.0 * 2 >= HUNG_AFTER.0;
        !is_doubted && self.well_at.get(&clone.key()).is_some_and(|at| now.since(*at) < WELL_WITHIN)
    }
}

impl Serving<'_> {
    fn key(&self) -> (CloneId, u32) {
        (self.id.clone(), self.version)
    }
}

/// A service's clones that serve where they are meant to.
fn serving<'a>(service: &str, cluster: &'a Cluster, current: &'a Assignments, demands: &[&Demand]) -> Vec<Serving<'a>> {
    let lives = current.of_service(service).filter_map(|(id, node)| {
        let node: NodeId = *node;
        let load = cluster.live.iter().find(|load| load.id == node)?;
        let &(version, since_ms) = load.serving.get(id)?;
        let groups = demands.iter().filter_map(|demand| demand.groups.get(service));
        let said = groups.flat_map(|group| &group.clones).filter(|of| of.number == id.number && of.version == version);
        let seen = said.fold(Seen::default(), |seen, of| Seen {
            owes: seen.owes.saturating_add(of.owes),
            mute: seen.mute.max(Span::millis(of.mute_ms.into())),
            failing: seen.failing.saturating_add(of.failing),
            failing_for: seen.failing_for.max(Span::millis(of.failing_ms.into())),
        });
        Some(Serving { id, version, since_ms, seen })
    });
    lives.collect()
}

#[cfg(test)]
#[path = "conduct_tests.rs"]
mod tests;
