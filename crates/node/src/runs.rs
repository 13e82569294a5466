//! Runs of services (`clones::runs`) as changes of the declaration, and the words about them between nodes and the root
//! group's leader. What runs where is the planner's matter.

use std::collections::{BTreeMap, BTreeSet};

use base::{Frame, NodeId, Now, Outcome, Refused, Time, kind};
use clones::deploy::Deployed;
use clones::group;
use clones::limits::{RUN_ASKED_EVERY, RUN_LEASE, RUNS_SAID_MAX};
use clones::runs::{Once, Order, Place, Plan, Record, Scene, Slot, Word};
use cluster::root::{Change, Declared};

use crate::ask::{RunEnd, RunStarted};
use crate::declared::{Diff, json, kind as record};
use crate::limits::HANDED_ON_AGAIN;
use crate::node::{Node, Out};
use crate::view::{RunEndView, RunView, RunsView};
use crate::{deploy, facts};

pub(crate) type Records = BTreeMap<(String, Slot), Record>;

/// All records of runs.
pub(crate) fn records(now: &Declared) -> Records {
    let of = |(name, bytes): (&str, &bytes::Bytes)| {
        let (service, word) = name.rsplit_once('/')?;
        Some(((service.to_owned(), Slot::of_word(word)?), facts::decode(bytes)?))
    };
    now.of_kind(record::RUN).filter_map(of).collect()
}

fn name_of(service: &str, slot: Slot) -> String {
    format!("{service}/{}", slot.word())
}

/// Records that go with a service.
pub(crate) fn gone_with<'a>(now: &'a Declared, service: &'a str) -> impl Iterator<Item = (String, String)> + 'a {
    let is_its = move |name: &&str| name.rsplit_once('/').is_some_and(|(of, _)| of == service);
    now.of_kind(record::RUN).map(|(name, _)| name).filter(is_its).map(|name| (record::RUN.to_owned(), name.to_owned()))
}

/// What went before the first version of a service failed: a deploy of the same folder tries it again.
pub(crate) fn again(now: &Declared, service: &str, all: &Deployed, stands: u32, diff: &mut Diff) {
    let failed = records(now).remove(&(service.to_owned(), Slot::Before)).and_then(|record| record.last);
    let waits = all.next.is_none() && all.version(stands).is_some_and(|version| version.waits());
    if waits && failed.is_some_and(|last| last.version >= stands && !last.good) {
        diff.lines.push(format!("~ service {service}: version {stands}: what goes before it is tried again"));
        diff.change.removes.extend(forget_before(now, service));
    }
}

/// What is known of what goes before a version, if that is over.
pub(crate) fn forget_before(now: &Declared, service: &str) -> Option<(String, String)> {
    let is_over = records(now).get(&(service.to_owned(), Slot::Before)).is_some_and(|record| record.run.is_none());
    is_over.then(|| (record::RUN.to_owned(), name_of(service, Slot::Before)))
}

/// What a plan changes.
fn change(now: &Declared, plan: &Plan) -> Option<Change> {
    let mut change = Change { expect: Some(now.version), ..Change::default() };
    for verdict in &plan.verdicts {
        let more = deploy::passed(now, &verdict.service, verdict.number, verdict.failed.as_deref())?;
        change.puts.extend(more.puts);
    }
    let put =
        |(service, slot, kept): &(String, Slot, Record)| (record::RUN.to_owned(), name_of(service, *slot), json(kept));
    change.puts.extend(plan.puts.iter().map(put));
    Some(change)
}

impl Node {
    /// Runs that this life of this node has been given.
    pub(crate) fn runs_here(&self) -> BTreeMap<u64, Order> {
        let here = self.runs.iter().filter_map(|((service, slot), record)| {
            let run = record.run.as_ref().filter(|run| run.node == self.me() && run.boot == self.card.boot)?;
            Some((run.id, Order { id: slot.id(service), version: run.version, stop: run.stop }))
        });
        here.collect()
    }

    /// Looks after this node's runs, and at the leader after all.
    pub(crate) fn keep_runs(&mut self, now: Now, out: &mut Out) {
        self.planner.leads(now.mono, self.root.is_leader());
        let here = self.group.runs_said();
        if !here.is_empty() && now.mono >= self.runs_asked_at {
            self.runs_asked_at = now.mono + RUN_ASKED_EVERY;
            self.group_in(now, group::Input::Wake, out);
            self.ask_for_runs(now, out);
        }
        if self.root.is_leader() && !self.services.is_empty() {
            self.plan_runs(now, out);
        }
    }

    fn ask_for_runs(&mut self, now: Now, out: &mut Out) {
        let said = self.group.runs_said();
        if self.root.is_leader() {
            let may = self.planner.asked(now.mono, self.me(), said, &self.runs);
            return self.granted(now, now.mono, may, out);
        }
        if let Some(leader) = self.root.leader() {
            let word = Word::Ask { at: now.mono.0, runs: said.into_iter().take(RUNS_SAID_MAX).collect() };
            self.send(leader, Frame::new(kind::RUNS, word.encode()), out);
        }
    }

    pub(crate) fn run_word(&mut self, now: Now, from: NodeId, head: &[u8], out: &mut Out) {
        match Word::decode(head) {
            Some(Word::Ask { at, runs }) => {
                if !self.live_cards().any(|card| card.id == from) || !self.root.is_leader() {
                    return;
                }
                self.planner.leads(now.mono, true);
                let runs = self.planner.asked(now.mono, from, runs, &self.runs);
                self.send(from, Frame::new(kind::RUNS, Word::Grant { at, runs }.encode()), out);
                self.plan_runs(now, out);
            }
            // Only who leads gives its word; what it gave while it did is good.
            Some(Word::Grant { at, runs }) if at <= now.mono.0 => {
                if [self.leads, self.led_before].contains(&Some(from)) {
                    self.granted(now, Time(at), runs, out);
                }
            }
            Some(Word::Grant { .. }) => self.bad_frame(now, from, "answers what was not asked yet", out),
            None => self.bad_frame(now, from, "is no word about runs", out),
        }
    }

    fn granted(&mut self, now: Now, asked: Time, runs: Vec<u64>, out: &mut Out) {
        let (runs, until) = (runs.into_iter().collect::<BTreeSet<u64>>(), asked + RUN_LEASE);
        if runs.is_empty() || until <= now.mono {
            return;
        }
        self.group_in(now, group::Input::Granted { runs, until }, out);
    }

    fn plan_runs(&mut self, now: Now, out: &mut Out) {
        if self.plans_runs() {
            return;
        }
        let place = |card: &cluster::Card| {
            let report = self.report_of(card.id);
            Place {
                id: card.id,
                name: card.name.clone(),
                boot: card.boot,
                drains: self.leaving(card.id).is_some() || self.off.node(&card.name),
                overflow: report.overflow,
                load: report.load,
            }
        };
        let scene = Scene {
            services: &self.services,
            off: self.services.keys().map(String::as_str).filter(|name| self.off.service(name)).collect(),
            deployed: &self.deployed,
            records: &self.runs,
            live: self.live_cards().map(place).collect(),
            // One change makes few, and each makes a version.
            fresh: self.root.declared().version.saturating_mul(64),
        };
        let plan = self.planner.plan(now, &scene);
        for (kind, who, text) in plan.told.iter().filter(|_| plan.puts.is_empty()) {
            self.decided(now, kind, who, text.clone(), out);
        }
        if plan.puts.is_empty() {
            return;
        }
        if let Some(change) = change(self.root.declared(), &plan) {
            self.propose_runs(now, plan.told, change, out);
        }
    }

    /// What an operator runs by hand, on this node.
    pub(crate) fn run_once(&mut self, now: Now, once: Once, out: &mut Out) -> Outcome<RunStarted> {
        let mut wants = Vec::new();
        let begun = self.group.once(now, once, &mut wants);
        self.wire_group(now, wants, out);
        match begun {
            Ok((number, id)) => Outcome::Done(RunStarted { number, clone: id.number }),
            Err(why) => Outcome::Refused(Refused::busy(why, HANDED_ON_AGAIN)),
        }
    }

    pub(crate) fn run_end(&self, number: u64) -> Option<Option<RunEnd>> {
        let end = self.group.once_end(number)?;
        Some(end.map(|end| RunEnd { exit: end.exit, why: end.why }))
    }

    /// A service's runs, as they are shown.
    pub(crate) fn runs_view(&self, now: Now, service: &str) -> Option<RunsView> {
        let spec = self.services.get(service)?;
        let times = spec.times();
        let of = |slot| self.runs.get(&(service.to_owned(), slot)).map(view).unwrap_or_default();
        let waits = |all: &Deployed| {
            let number = all.next.unwrap_or(spec.version);
            all.version(number).is_some_and(|version| version.waits()).then_some(number)
        };
        let shown = RunsView {
            times: spec.times_text(),
            next_ms: times.and_then(|times| times.next_after(now.wall_ms)),
            job: of(Slot::Job),
            before: of(Slot::Before),
            waits_for_before: self.deployed.get(service).and_then(waits),
        };
        (shown.times.is_some() || shown.waits_for_before.is_some() || shown.before != RunView::default())
            .then_some(shown)
    }
}

fn view(record: &Record) -> RunView {
    let run = record.run.as_ref();
    let last = record.last.as_ref().map(|last| RunEndView {
        node: last.at.clone(),
        version: last.version,
        due_ms: last.due_ms,
        began_ms: last.began_ms,
        ended_ms: last.ended_ms,
        good: last.good,
        how: last.how.clone(),
        lines: last.lines.clone(),
    });
    RunView { node: run.map(|run| run.at.clone()), since_ms: run.map_or(0, |run| run.began_ms), last }
}

/// A version's word for who may not be scaled.
pub(crate) fn no_scale(spec: &clones::ServiceSpec, service: &str) -> Option<String> {
    let times = spec.times_text()?;
    Some(format!(
        "{service} runs at times ({times}), one run at a time, and has no standing clones to scale; `coppice run {service} -- ...` runs it now"
    ))
}

/// Whether a service's version waits for what goes before it: no clone of it is to start.
pub(crate) fn waits(all: Option<&Deployed>, number: u32) -> bool {
    all.and_then(|all| all.version(number)).is_some_and(|version| version.waits())
}

/// What a file may not say of a service that has no versions.
pub(crate) fn no_versions(file: &str, service: &str) -> String {
    format!(
        "{file}: service.{service}.before: runs once for each version, and this service was never deployed; `coppice deploy DIR` makes versions"
    )
}

const _: () =
    assert!(clones::limits::RUNS_PER_CHANGE + 2 <= 64, "numbers of runs of one change end before those of the next");

#[cfg(test)]
mod tests {
    use base::Boot;
    use clones::deploy::{REPLACED, SERVES};
    use clones::runs::{Ended, Under, Verdict};

    use super::*;
    use crate::declared::after;
    use crate::deploy::{Wish, deployed};

    const OWN: &str = "[service.shop]\nrun = [\"a\"]\nbefore = [\"migrate\"]\n";

    fn made(now: &mut Declared, change: Change) {
        *now = Declared { version: now.version + 1, ..after(now, &change) };
    }

    fn deploys(now: &mut Declared, n: u8) -> Vec<String> {
        let code = format!("{n:02x}").repeat(32);
        let wish = Wish { declaration: Some(OWN.into()), code, ..Wish::default() };
        let diff = deploy::deploy(now, &wish, 5, &[7; 32]).unwrap();
        made(now, diff.change);
        diff.lines
    }

    /// What goes before a version has ended so.
    fn ends(now: &mut Declared, number: u32, good: bool) {
        let under = Under {
            id: u64::from(number),
            version: number,
            due_ms: 0,
            node: NodeId(1),
            at: "n1".into(),
            boot: Boot(1),
            began_ms: 1,
            attempt: 1,
            stop: false,
        };
        let end = clones::runs::SaidEnd { good, how: "exit status 1".into(), lines: vec!["no table".into()] };
        let last: Ended = under.ended(9, end);
        let failed = (!good).then(|| "it failed".to_owned());
        let plan = Plan {
            puts: vec![("shop".into(), Slot::Before, Record { last: Some(last), ..Record::default() })],
            verdicts: vec![Verdict { service: "shop".into(), number, failed }],
            told: Vec::new(),
        };
        let change = change(now, &plan).unwrap();
        made(now, change);
    }

    fn fates(now: &Declared) -> Vec<String> {
        deployed(now, "shop").unwrap().versions.into_iter().map(|v| v.fate).collect()
    }

    fn stands(now: &Declared) -> u32 {
        crate::declared::all::<clones::ServiceSpec>(now, record::SERVICE)["shop"].version
    }

    #[test]
    fn a_first_version_that_failed_is_tried_again_by_the_same_deploy_and_is_followed_at_once_by_a_good_one() {
        let mut now = Declared { version: 1, ..Declared::default() };
        assert_eq!(deploys(&mut now, 1), ["+ service shop: version 1"]);
        ends(&mut now, 1, false);
        assert!(waits(deployed(&now, "shop").as_ref(), 1) && records(&now).len() == 1);
        assert!(deploys(&mut now, 1)[0].contains("is tried again"));
        assert!(records(&now).is_empty(), "the leader begins anew");
        assert!(deploys(&mut now, 1).is_empty(), "while it runs the same deploy changes nothing");
        ends(&mut now, 1, false);
        deploys(&mut now, 2);
        ends(&mut now, 2, true);
        assert_eq!((stands(&now), fates(&now)), (2, vec![REPLACED.to_owned(), SERVES.to_owned()]));
        assert!(!waits(deployed(&now, "shop").as_ref(), 2));
    }

    #[test]
    fn a_version_waits_for_what_goes_before_it_and_is_taken_back_if_that_fails() {
        let mut now = Declared { version: 1, ..Declared::default() };
        deploys(&mut now, 1);
        ends(&mut now, 1, true);
        deploys(&mut now, 2);
        assert!(waits(deployed(&now, "shop").as_ref(), 2));
        ends(&mut now, 2, false);
        assert_eq!((stands(&now), fates(&now)[1].as_str()), (1, "was taken back: it failed"));
        // The same folder again is the next version; one that was taken back can be gone to, and is tried anew.
        assert_eq!(deploys(&mut now, 2), ["~ service shop: version 1 -> 3"]);
        ends(&mut now, 3, false);
        let back = deploy::rollback(&now, "shop", Some(3)).unwrap();
        made(&mut now, back.change);
        assert!(records(&now).is_empty() && waits(deployed(&now, "shop").as_ref(), 3));
        ends(&mut now, 3, true);
        assert_eq!(deployed(&now, "shop").unwrap().next, Some(3), "it is rolled out beside what stands");
        // All of it goes with the service.
        let gone = crate::services::remove(&now, "shop").unwrap();
        made(&mut now, gone.change);
        assert!(records(&now).is_empty() && deployed(&now, "shop").is_none());
    }

    #[test]
    fn without_versions_nothing_can_go_before_them() {
        let now = Declared { version: 1, ..Declared::default() };
        let why = deploy::apply(&now, "shop.toml", OWN, 5, &[7; 32]).unwrap_err();
        assert!(why.contains("service.shop.before") && why.contains("coppice deploy DIR"), "{why}");
    }
}
