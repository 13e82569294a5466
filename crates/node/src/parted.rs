//! What is said by beacon in another way than one fact to all: in parts, where it is long (what runs where, what is to,
//! and what is said of members: [`clones::parts`]), and as figures, to a few nodes at a time. What was said is read in
//! `told.rs`.

use std::collections::{BTreeMap, BTreeSet};

use base::{Boot, NodeId, Now, ProcId, ProcUse};
use bytes::Bytes;
use clones::{Assignments, LEVEL_PARTS, Parted, group, manager};
use cluster::beacon;

use crate::facts;
use crate::limits::{CLONES_TOLD_EVERY, REPORT_TTL};
use crate::node::{Node, Out};

/// Whether what a node assigns is to be done: it speaks for itself, in this life if that is known, and is one of those
/// who decide it.
fn is_to_be_done(new: &Assignments, origin: NodeId, boot: Option<Boot>, leads: &[Option<NodeId>]) -> bool {
    new.by == origin && boot.is_none_or(|boot| boot == new.boot) && leads.contains(&Some(origin))
}

impl Node {
    /// Whether all nodes understand what is in parts.
    pub(crate) fn tells_in_parts(&self) -> bool {
        self.agreed() >= LEVEL_PARTS
    }

    /// Says this of this node under the key and those of its parts, and what was said there before no more.
    pub(crate) fn put_parted(&mut self, now: Now, key: &str, told: Parted, out: &mut Out) {
        let parts = told.parts.into_iter().map(|(number, part)| (facts::part(key, number), part));
        let puts: Vec<(String, Bytes)> = parts.chain([(key.to_owned(), told.head)]).collect();
        let prefix = format!("{key}.");
        let before = self.beacons.of(self.me(), &prefix).map(|(key, _)| key);
        let stands: BTreeSet<&str> = puts.iter().map(|(key, _)| key.as_str()).collect();
        let removes = before.filter(|key| !stands.contains(key)).map(str::to_owned).collect();
        self.beacons_in(now, beacon::Input::PutAll { puts, removes, ttl: REPORT_TTL }, out);
    }

    /// No longer says it.
    pub(crate) fn remove_parted(&mut self, now: Now, key: &str, out: &mut Out) {
        let all = self.beacons.of(self.me(), key).map(|(key, _)| key);
        let removes = all.filter(|said| facts::whole(said) == key).map(str::to_owned).collect();
        self.beacons_in(now, beacon::Input::PutAll { puts: Vec::new(), removes, ttl: REPORT_TTL }, out);
    }

    /// A node says what is to run where. Only who leads the root group decides that, or did until a moment ago.
    pub(crate) fn assigned(&mut self, now: Now, origin: NodeId, out: &mut Out) {
        let part = |number| self.beacons.get(origin, &facts::part(facts::ASSIGNMENTS, number));
        let head = self.beacons.get(origin, facts::ASSIGNMENTS);
        let Some(new) = head.and_then(|head| Assignments::read(head, part)) else { return };
        let boot = self.live_cards().find(|card| card.id == origin).map(|card| card.boot);
        let leads = [self.leads, self.led_before, Some(self.me())];
        if !self.believes && !is_to_be_done(&new, origin, boot, &leads) {
            return;
        }
        self.manager_in(now, manager::Input::Seen(new.clone()), out);
        self.group_in(now, group::Input::Assigned(new), out);
    }

    /// Says what this node runs.
    pub(crate) fn tell_clones(&mut self, now: Now, out: &mut Out) {
        (self.clones_at, self.clones_untold) = (now.mono + CLONES_TOLD_EVERY, false);
        let told = self.group.node_clones().told(self.tells_in_parts());
        self.put_parted(now, facts::CLONES, told, out);
    }

    /// Says what its clones' processes use, if it is another thing than before.
    pub(crate) fn tell_uses(&mut self, now: Now, procs: &BTreeMap<ProcId, ProcUse>, out: &mut Out) {
        let group = &self.group;
        self.uses.seen(procs, |proc| group.clone_of(proc).map(ToString::to_string));
        if let Some(told) = self.uses.news().map(facts::encode) {
            self.put_fact(now, facts::USES, told, out);
        }
    }

    /// Says how this node is: to all if it is otherwise than before, to a few if only its figures are others.
    pub(crate) fn tell_figures(&mut self, now: Now, out: &mut Out) {
        let standing = self.report.standing();
        let all = standing != self.standing;
        self.standing = standing;
        let is_packed = self.agreed() >= facts::LEVEL_PACKED;
        let report = if is_packed { self.report.packed() } else { facts::encode(&self.report) };
        let report = (facts::REPORT.to_owned(), report);
        let lives = (facts::LIVES.to_owned(), facts::encode(&self.lives.record));
        let put = beacon::Input::PutFigures { figures: vec![report, lives], ttl: REPORT_TTL, all };
        self.beacons_in(now, put, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_leads_or_did_until_now_says_what_runs_where_and_only_in_its_own_name() {
        let said = |by: u64, boot: u64| Assignments { by: NodeId(by), boot: Boot(boot), ..Assignments::default() };
        let leads = |now: Option<u64>, before: Option<u64>| [now.map(NodeId), before.map(NodeId), Some(NodeId(1))];
        for (new, origin, boot, leads, done) in [
            (said(2, 5), 2, Some(5), leads(Some(2), None), true),
            (said(2, 5), 2, None, leads(Some(2), None), true),
            (said(2, 5), 2, Some(5), leads(Some(3), Some(2)), true),
            (said(1, 5), 1, Some(5), leads(Some(3), Some(2)), true),
            // What a former life said does not hold for this one.
            (said(2, 4), 2, Some(5), leads(Some(2), None), false),
            // A node says what another one has said, be that one the leader.
            (said(2, 5), 3, Some(5), leads(Some(2), None), false),
            (said(3, 5), 2, Some(5), leads(Some(2), None), false),
            // Nobody leads, or somebody else does.
            (said(2, 5), 2, Some(5), leads(None, None), false),
            (said(2, 5), 2, Some(5), leads(Some(3), Some(4)), false),
        ] {
            let of = (new.by, new.boot);
            assert_eq!(is_to_be_done(&new, NodeId(origin), boot.map(Boot), &leads), done, "{of:?} {origin} {leads:?}");
        }
    }
}
