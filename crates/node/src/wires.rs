//! The wires: what one machine puts out, another takes in. Nothing is decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{AskId, Effect, Frame, GroupId, NodeId, Note, Now, Span, kind};
use bytes::Bytes;
use clones::clone::life_name;
use clones::deploy::Deployed;
use clones::limits::{DEMAND_BYTES_MAX, LOAD_GOOD_FOR, PARTS_FROM, PROFILES_KEPT_BYTES};
use clones::members::lives::{Life, Seen as SeenLives};
use clones::members::{self, Member, Scene};
use clones::{
    CloneState, CloneStatus, Demand, Doors, NodeLoad, PipelineSpec, ProfileSpec, RoutePipeline, RouteProfile,
    RouteService, RouteSession, ServiceSpec, Sick, group, manager,
};
use cluster::admission::Gone;
use cluster::{Card, Door, beacon, membership, root};
use state::{Class, Classes, Declaration, NamespaceSpec, cache};

use crate::declared::{self, kind as record};
use crate::facts::{self, NodeReport};
use crate::former::{self, Former};
use crate::limits::LEADS_TOLD_MAX;
use crate::node::{Node, Out, Seen};
use crate::view::NodeState;
use crate::{Answer, deploy, numbers, renewed, runs};

impl Node {
    pub(crate) fn send(&self, to: NodeId, mut frame: Frame, out: &mut Out) {
        frame.load = self.report.load;
        out.push(Effect::Send { to, frame });
    }

    pub(crate) fn membership_in(&mut self, now: Now, input: membership::Input, out: &mut Out) {
        let mut wants = Vec::new();
        self.membership.handle(now, input, &mut wants);
        for want in wants {
            match want {
                membership::Output::Send { to, head } => self.send(to, Frame::new(kind::MEMBERSHIP, head), out),
                membership::Output::Dial { addr, peer } => out.push(Effect::Dial { addr, peer }),
                membership::Output::Birth { card } => self.birth(now, *card, out),
                membership::Output::Suspect { id } => self.doubted(now, id, true),
                membership::Output::Trust { id } => self.doubted(now, id, false),
                membership::Output::Death { id, .. } => self.death(now, id, out),
                membership::Output::Older { by, why } => self.is_older(now, by, why, out),
                membership::Output::Refuted { what } => self.refuted(now, what, out),
                membership::Output::Bad { from, why } => self.bad_frame(now, from, why, out),
            }
        }
    }

    /// Somebody knows of a later life of this node. Its process ends over that, so the word of one counts only if it
    /// votes on what is declared; of others it takes two.
    fn is_older(&mut self, now: Now, by: NodeId, why: String, out: &mut Out) {
        self.older_by.insert(by);
        let voters = self.root.voters();
        if voters.is_empty() || voters.contains(&by) || self.older_by.len() > 1 {
            return out.push(Effect::Distrust { why });
        }
        self.refuted(now, format!("{why}; nobody else says so"), out);
    }

    fn birth(&mut self, now: Now, card: Card, out: &mut Out) {
        let (peer, boot, name) = (card.id, card.boot, card.name.clone());
        let text = match self.seen.get(&peer) {
            None => "joined".to_owned(),
            Some(seen) if seen.card.boot == boot => {
                if seen.state == NodeState::Dead {
                    self.lives.was_alive();
                }
                "is back; it was only cut off".to_owned()
            }
            Some(seen) => {
                if seen.state != NodeState::Dead {
                    self.lives.died();
                }
                format!("is back, restarted ({boot})")
            }
        };
        // Groups that were whole may not be, and others wait for that.
        self.report_at = now.mono;
        self.seen.insert(peer, Seen { card, state: NodeState::Live, since_ms: now.wall_ms, since: now.mono });
        self.happened(now, "birth", &name, text);
        self.beacons_in(now, beacon::Input::Birth { peer, boot }, out);
        self.root_in(now, root::Input::Birth { peer }, out);
        self.classes_in(now, out, |classes, wants| classes.birth(now, peer, boot, wants));
        self.channels_in(now, channels::Input::Birth { peer, boot }, out);
        self.cluster_changed(now, out);
    }

    fn death(&mut self, now: Now, id: NodeId, out: &mut Out) {
        self.report_at = now.mono;
        if let Some(seen) = self.seen.get_mut(&id) {
            (seen.state, seen.since_ms, seen.since) = (NodeState::Dead, now.wall_ms, now.mono);
            self.lives.died();
            let name = seen.card.name.clone();
            self.happened(now, "death", &name, "no longer answers");
        }
        self.beacons_in(now, beacon::Input::Death { peer: id }, out);
        self.root_in(now, root::Input::Death { peer: id }, out);
        self.classes_in(now, out, |classes, wants| classes.death(now, id, wants));
        self.channels_in(now, channels::Input::Death { peer: id }, out);
        self.cluster_changed(now, out);
    }

    fn doubted(&mut self, now: Now, id: NodeId, doubt: bool) {
        let Some(seen) = self.seen.get_mut(&id) else { return };
        let (from, to) =
            if doubt { (NodeState::Live, NodeState::Suspect) } else { (NodeState::Suspect, NodeState::Live) };
        if seen.state == from {
            (seen.state, seen.since_ms, seen.since) = (to, now.wall_ms, now.mono);
            let name = seen.card.name.clone();
            self.happened(
                now,
                if doubt { "suspect" } else { "trust" },
                &name,
                if doubt { "is slow to answer" } else { "answers again" },
            );
        }
    }

    pub(crate) fn beacons_in(&mut self, now: Now, input: beacon::Input, out: &mut Out) {
        let mut wants = Vec::new();
        self.beacons.handle(now, input, &mut wants);
        // All of it first: what follows from one thing looks at the others.
        for want in &wants {
            if let beacon::Output::Changed { origin, key } = want {
                self.told.changed(&self.beacons, *origin, key);
            }
        }
        self.told.read(&self.beacons);
        for want in wants {
            match want {
                beacon::Output::Send { to, head } => self.send(to, Frame::new(kind::BEACON, head), out),
                beacon::Output::Changed { origin, key } => self.fact_changed(now, origin, &key, out),
                beacon::Output::Refuted { what } => self.refuted(now, what, out),
                beacon::Output::Bad { from } => self.bad_frame(now, from, "is not a beacon", out),
            }
        }
    }

    fn fact_changed(&mut self, now: Now, origin: NodeId, key: &str, out: &mut Out) {
        self.stale = true;
        match facts::whole(key) {
            facts::ASSIGNMENTS if self.told.has_fresh_assignments(origin) => self.assigned(now, origin, out),
            facts::CLONES if self.told.has_fresh_clones() => self.cluster_changed(now, out),
            facts::LEAVING => {
                self.tell_parting(now, out);
                self.cluster_changed(now, out);
            }
            facts::SLOW_DISK => self.tell_parting(now, out),
            facts::MEMBERS if origin != self.me() && self.told.has_fresh_members() => self.members_changed(now, out),
            facts::WISH => {
                if let Some(wish) = self.beacons.get(origin, key).and_then(|bytes| facts::decode(bytes)) {
                    self.wished(now, wish, out);
                }
            }
            facts::LIVES if origin != self.me() => {
                if let Some(record) = self.beacons.get(origin, key).and_then(|bytes| facts::decode(bytes)) {
                    self.lives.take_over(record);
                }
            }
            facts::DECISIONS if origin != self.me() => {
                if let Some(told) = self.beacons.get(origin, key).and_then(|bytes| facts::decode(bytes)) {
                    self.heard_decisions(told);
                }
            }
            facts::REPORT if origin != self.me() => {
                let reports = self.told.report(origin).classes.clone();
                self.lives.told_anew(origin, reports.session.brick.anew);
                self.classes_in(now, out, |classes, wants| classes.told(now, origin, &reports, wants));
            }
            _ => (),
        }
    }

    /// Whose word is heard directly: of them beacons take no hearsay.
    pub(crate) fn tell_links(&mut self, now: Now, out: &mut Out) {
        let speak: BTreeSet<NodeId> =
            self.live_cards().map(|card| card.id).filter(|id| self.membership.speaks(*id)).collect();
        let changed: Vec<NodeId> = self.speak.symmetric_difference(&speak).copied().collect();
        for peer in changed {
            self.beacons_in(now, beacon::Input::Linked { peer, up: speak.contains(&peer) }, out);
        }
        self.speak = speak;
    }

    pub(crate) fn root_in(&mut self, now: Now, input: root::Input, out: &mut Out) {
        let mut wants = Vec::new();
        self.root.handle(now, input, &mut wants);
        self.wire_root(now, wants, out);
    }

    pub(crate) fn wire_root(&mut self, now: Now, wants: Vec<root::Output>, out: &mut Out) {
        for want in wants {
            match want {
                root::Output::Send { to, frame } => self.send(to, frame, out),
                root::Output::Append { records, ticket } => {
                    self.pace.asked(now.mono, GroupId::ROOT, ticket);
                    out.push(Effect::Append { group: GroupId::ROOT, records, ticket, force: true });
                }
                root::Output::Save { parts, ticket } => {
                    out.push(Effect::Save { group: GroupId::ROOT, parts, ticket });
                }
                root::Output::Distrust(why) => out.push(Effect::Distrust { why }),
                root::Output::Changed => self.declaration_changed(now, out),
                root::Output::Leads { leader } => self.led_by(now, leader, out),
                root::Output::Proposed { id, outcome } => self.proposed(now, id, outcome, out),
                root::Output::Bad { from, why } => self.bad_frame(now, from, &why, out),
                root::Output::Note(note) => out.push(Effect::Note(note)),
            }
        }
    }

    fn led_by(&mut self, now: Now, leader: Option<NodeId>, out: &mut Out) {
        if let Some(id) = leader {
            let name = self.name_of(id);
            self.happened(now, "leader", &name, "leads the root group");
            if self.leads != leader {
                self.led_before = std::mem::replace(&mut self.leads, leader);
            }
            // What it said before this node knew that it leads.
            self.assigned(now, id, out);
        }
        self.beacons_in(now, beacon::Input::Near(leader), out);
        self.manager_in(now, manager::Input::Leads(self.root.is_leader()), out);
        self.cluster_changed(now, out);
        self.stale = true;
    }

    /// Takes a new declaration to everyone whom it concerns.
    pub(crate) fn declaration_changed(&mut self, now: Now, out: &mut Out) {
        let level = self.agreed();
        if self.ends_below(level, out) {
            return;
        }
        self.beacons_in(now, beacon::Input::Level(level), out);
        self.channels_in(now, channels::Input::Level(level), out);
        let secrets = declared::secrets(self.root.declared());
        self.namespaces = Arc::new(declared::all::<NamespaceSpec>(self.root.declared(), record::NAMESPACE));
        self.keep_rates();
        let specs = Arc::clone(&self.namespaces);
        let own = self.card.doors.at(Door::Resp);
        let url = |(name, s): (&String, &declared::NamespaceSecret)| {
            (name.clone(), format!("redis://{name}:{}@{own}", s.token))
        };
        let urls = secrets.iter().map(url).collect();
        self.tokens = secrets
            .iter()
            .map(|(name, s)| (name.clone(), s.token.clone()))
            .collect::<std::collections::BTreeMap<_, _>>()
            .into();
        self.admin_token = declared::text(self.root.declared(), record::SECRET, "admin").into();
        self.show_formers(now);
        self.show_certificates();
        let leases = specs.iter().filter_map(|(name, spec)| Some((name.clone(), spec.session()?.lease_ms))).collect();
        let linear = specs.iter().filter_map(|(name, spec)| Some((name, spec.linear()?)));
        let functions = linear.filter_map(|(name, spec)| Some((name.clone(), spec.functions.clone()?)));
        self.functions_of = Arc::new(functions.collect());
        // A record that this version cannot read is left out.
        let placed = self.root.declared().of_kind(record::GROUP);
        let placed = placed.filter_map(|(name, bytes)| Some((name.to_owned(), facts::decode(bytes)?)));
        self.placed = Arc::new(placed.collect());
        self.tell_classes(now, level, out);
        self.tell_formers(now);
        self.admit_anew(now, out);
        let services = declared::all::<ServiceSpec>(self.root.declared(), record::SERVICE);
        self.off = declared::off(self.root.declared());
        let off = &self.off;
        let pipelines = declared::all::<PipelineSpec>(self.root.declared(), record::PIPELINE);
        let pipelines: BTreeMap<&String, Arc<RoutePipeline>> =
            pipelines.iter().map(|(name, spec)| (name, Arc::new(RoutePipeline::new(name, spec, &services)))).collect();
        let profiles = declared::all::<ProfileSpec>(self.root.declared(), record::PROFILE);
        let profile = |spec: &ServiceSpec| {
            let (name, spec) = profiles.get_key_value(spec.profile.as_ref()?)?;
            Some(Arc::new(RouteProfile { name: name.clone(), spec: spec.clone() }))
        };
        let pipeline = |named: &Option<String>| pipelines.get(named.as_ref()?).cloned();
        let routed = |(name, spec): (&String, &ServiceSpec)| RouteService {
            session: route_session(spec, &leases).map(Arc::new),
            profile: profile(spec),
            pipeline: pipeline(&spec.pipeline),
            partition_pipelines: (0..)
                .zip(&spec.partitions)
                .filter_map(|(index, partition)| Some((index, pipeline(&partition.pipeline)?)))
                .collect(),
            is_off: off.service(name),
            partitions_off: (0..)
                .zip(&spec.partitions)
                .filter(|(_, p)| off.partition(name, &p.name))
                .map(|p| p.0)
                .collect(),
            ..RouteService::new(name, spec)
        };
        self.routed = services.iter().map(routed).collect();
        self.profiles = Arc::new(profiles);
        self.services = Arc::new(services.clone());
        self.tell_worked();
        let declared = self.root.declared();
        let salted = |name: &String| declared::service_token(&self.admin_token, name, &renewed::salt(declared, name));
        let token = |name: &String| Some((name.clone(), salted(name)?));
        self.service_tokens = Arc::new(services.keys().filter_map(token).collect());
        let tokens = (*self.service_tokens).clone();
        let deployed = self.root.declared().of_kind(record::DEPLOY);
        self.deployed = deployed.filter_map(|(name, bytes)| Some((name.to_owned(), facts::decode(bytes)?))).collect();
        self.codes = Arc::new(deploy::codes(self.root.declared()));
        let next =
            self.deployed.iter().filter_map(|(name, all)| Some((name.clone(), all.next_on(services.get(name)?)?)));
        let next = next.collect();
        let secrets = crate::secrets::opened(self.root.declared());
        self.runs = runs::records(self.root.declared());
        let runs = self.runs_here();
        let has_runs = !runs.is_empty();
        let declared = group::Declared { services, next, urls, tokens, secrets, runs };
        self.group_in(now, group::Input::Declared(declared), out);
        if has_runs {
            // What is new need not wait for its second.
            self.runs_asked_at = now.mono;
        }
        self.report_brick(now, out);
        self.cluster_changed(now, out);
    }

    /// Tells each class what is declared for it.
    fn tell_classes(&mut self, now: Now, level: u32, out: &mut Out) {
        let declared = self.root.declared();
        let secrets = declared::secrets(declared).into_iter();
        let mut secrets: BTreeMap<String, _> =
            secrets.map(|(name, secret)| (name, (secret.id, secret.cookie))).collect();
        let (version, mut namespaces) = (declared.version, Arc::clone(&self.namespaces));
        // Beside each database with profiles a cache of what was read of them.
        for ProfileSpec { namespace, .. } in declared::all::<ProfileSpec>(declared, record::PROFILE).into_values() {
            let is_database = namespaces.get(&namespace).is_some_and(|spec| spec.sql().is_some());
            if let Some(secret) = secrets.get(&namespace).cloned().filter(|_| is_database) {
                let spec = cache::Spec { size_max: PROFILES_KEPT_BYTES, ..cache::Spec::default() };
                let name = ProfileSpec::kept_in(&namespace);
                Arc::make_mut(&mut namespaces).insert(name.clone(), NamespaceSpec::Cache(spec));
                secrets.insert(name, secret);
            }
        }
        let of_kind = |kind| declared.of_kind(kind).map(|(name, bytes)| (name.to_owned(), bytes.clone())).collect();
        let records: BTreeMap<&str, Vec<(String, Bytes)>> =
            Class::ALL.iter().map(|class| (class.records(), of_kind(class.records()))).collect();
        let records = |kind: &'static str| records.get(kind).cloned().unwrap_or_default();
        let nodes = declared.of_kind(record::NODE).filter_map(|(_, id)| facts::decode(id)).collect();
        let last = numbers::last(declared).unwrap_or(0);
        self.classes_in(now, out, |classes, wants| {
            let (namespaces, secrets, records, nodes) = (&namespaces, &secrets, &records, &nodes);
            let declaration = Declaration { version, level, namespaces, secrets, records, nodes, last };
            classes.declared(now, &declaration, wants);
        });
    }

    /// Whoever entered anew since the last look is told of.
    fn tell_formers(&mut self, now: Now) {
        let all = self.root.declared().of_kind(record::FORMER);
        let all = all.filter_map(|(key, bytes)| Some((key.to_owned(), facts::decode::<Former>(bytes)?)));
        let all: Vec<(String, Former)> = all.collect();
        let known: BTreeSet<(String, NodeId)> = all.iter().map(|(key, former)| (key.clone(), former.node)).collect();
        let before = std::mem::replace(&mut self.formers, known);
        for (key, former) in all.into_iter().filter(|(key, former)| !before.contains(&(key.clone(), former.node))) {
            let Former { name, node, why, .. } = &former;
            let (kind, text) = match former::former_of(&key).map(|id| former.gone(id)) {
                Some(Gone::Removed) => ("removed", format!("is not one of the cluster's nodes any more: {why}")),
                // Whoever leads has told it.
                Some(Gone::Away) | None => continue,
                Some(Gone::Anew) => {
                    ("anew", format!("what its disk has counts no more ({why}); it enters anew as {node}"))
                }
            };
            self.happened(now, kind, name, text);
        }
    }

    /// Has the state classes do something, and carries out what they want of it.
    pub(crate) fn classes_in(
        &mut self,
        now: Now,
        out: &mut Out,
        act: impl FnOnce(&mut Classes, &mut Vec<state::Output>),
    ) {
        let mut wants = std::mem::take(&mut self.classes_out);
        act(&mut self.classes, &mut wants);
        for want in wants.drain(..) {
            self.wire_class(now, want, out);
        }
        self.classes_out = wants;
    }

    /// Gives an operation to its class, unless its namespace has had all that it may ask for now.
    pub(crate) fn ask_class(&mut self, now: Now, id: AskId, budget: Span, op: state::Op, out: &mut Out) {
        if !self.rates.is_empty()
            && let Some(answer) = self.over_rate(now, &op)
        {
            return out.push(Effect::Answer { id, answer });
        }
        self.classes_in(now, out, |classes, wants| classes.ask(now, id, budget, op, wants));
    }

    fn wire_class(&mut self, now: Now, want: state::Output, out: &mut Out) {
        use state::Output;
        match want {
            Output::Send { to, frame } => self.send(to, frame, out),
            Output::Answer { id, answer } => out.push(Effect::Answer { id, answer: answer.into() }),
            Output::Append { group, records, ticket, force } => {
                if force {
                    self.pace.asked(now.mono, group, ticket);
                }
                out.push(Effect::Append { group, records, ticket, force });
            }
            Output::Save { group, parts, ticket } => out.push(Effect::Save { group, parts, ticket }),
            Output::Forget { group } => {
                self.pace.forget(group);
                out.push(Effect::Forget { group });
            }
            Output::Pack { group, want } => out.push(Effect::Pack { group, want }),
            Output::Work { group, number, work } => out.push(Effect::Work { group, number, work }),
            Output::Recovered => out.push(Effect::Recovered),
            Output::Distrust { why } => out.push(Effect::Distrust { why }),
            Output::Doubt { peer } => self.membership_in(now, membership::Input::Doubt { peer }, out),
            Output::Bad { from, why } => self.bad_frame(now, from, &why, out),
            Output::Probed { id, answers } => self.probed(id, answers, out),
            Output::Warn { text } => {
                let name = self.card.name.clone();
                self.happened(now, "warning", &name, text.clone());
                out.push(Effect::Note(Note::warn(text)));
            }
            Output::Note(note) => out.push(Effect::Note(note)),
        }
    }

    /// What no event announces about groups.
    pub(crate) fn tend_groups(&mut self, now: Now, out: &mut Out) {
        self.classes_in(now, out, |classes, wants| classes.tend(now, wants));
        self.root_in(now, root::Input::Logged(self.classes.linear.logged()), out);
        // Putting what stands changes nothing.
        let formed = facts::encode(&self.classes.linear.formed());
        self.put_fact(now, facts::FORMED, formed, out);
        let leads: BTreeSet<GroupId> = self.classes.linear.led().take(LEADS_TOLD_MAX).collect();
        self.put_fact(now, facts::LEADS, facts::encode(&leads), out);
    }

    /// Tells the classes who votes in the root group, when others do. Who is no member of it hears so of its leader.
    pub(crate) fn tell_voters(&mut self, now: Now, out: &mut Out) {
        let mut voters: BTreeSet<NodeId> = self.root.voters().into_iter().collect();
        if self.root.is_leader() {
            self.put_fact(now, facts::VOTERS, facts::encode(&voters), out);
        } else if voters.is_empty() {
            let told = self.root.leader().and_then(|leader| facts::decode(self.beacons.get(leader, facts::VOTERS)?));
            voters = told.unwrap_or_else(|| self.voters.clone());
        }
        if voters != self.voters {
            self.classes_in(now, out, |classes, wants| classes.voters(now, &voters, wants));
            self.voters = voters;
        }
    }

    pub(crate) fn group_in(&mut self, now: Now, input: group::Input, out: &mut Out) {
        let ends_run = matches!(input, group::Input::Exited { .. });
        let mut wants = Vec::new();
        self.group.handle(now, input, &mut wants);
        self.wire_group(now, wants, out);
        if ends_run {
            self.runs_asked_at = now.mono;
        }
    }

    pub(crate) fn wire_group(&mut self, now: Now, wants: Vec<group::Output>, out: &mut Out) {
        for want in wants {
            match want {
                group::Output::Spawn { proc, spec } => out.push(Effect::Spawn { proc, spec }),
                group::Output::Signal { proc, signal } => out.push(Effect::Signal { proc, signal }),
                group::Output::Probe { proc, probe } => out.push(Effect::Probe { proc, probe }),
                group::Output::Changed if self.group.size() > PARTS_FROM && now.mono < self.clones_at => {
                    self.clones_untold = true;
                }
                group::Output::Changed => self.tell_clones(now, out),
                group::Output::Happened(h) => self.happened(now, h.kind, &h.who, h.text),
            }
        }
    }

    pub(crate) fn members_in(&mut self, now: Now, input: members::Input, out: &mut Out) {
        let mut wants = Vec::new();
        self.members.handle(now, input, &mut wants);
        for want in wants {
            match want {
                members::Output::Send { to, head, body } => {
                    self.send(to, Frame { body, ..Frame::new(kind::MEMBERS, head) }, out);
                }
                members::Output::Answer { id, outcome } => {
                    out.push(Effect::Answer { id, answer: Answer::Members(outcome) });
                }
                members::Output::Bad { from } => self.bad_frame(now, from, "is no message to members", out),
                members::Output::Say(said) => {
                    self.put_parted(now, facts::MEMBERS, said.told(self.tells_in_parts()), out);
                }
            }
        }
    }

    pub(crate) fn channels_in(&mut self, now: Now, input: channels::Input, out: &mut Out) {
        let mut wants = Vec::new();
        self.channels.handle(now, input, &mut wants);
        for want in wants {
            match want {
                channels::Output::Tell { to, head } => self.send(to, Frame::new(kind::CHANNELS, head), out),
                channels::Output::Send { to, head } => self.send(to, Frame::new(kind::MESSAGES, head), out),
                channels::Output::Answer { id, outcome } => {
                    out.push(Effect::Answer { id, answer: Answer::Channels(outcome) });
                }
                channels::Output::Bad { from } => self.bad_frame(now, from, "is no word of channels", out),
            }
        }
    }

    /// Who lives, what somebody runs, or what somebody says of its members has changed.
    fn members_changed(&mut self, now: Now, out: &mut Out) {
        let mut members: BTreeMap<String, Vec<Member>> = self.services.keys().map(|s| (s.clone(), vec![])).collect();
        let mut lives = SeenLives::new();
        for card in self.live_cards() {
            for clone in self.clones_of(card.id).iter().filter(|c| c.life > 0) {
                if let Some(of) = members.get_mut(&clone.id.service) {
                    let life = life_name(&card.name, card.boot, clone.life);
                    // One that hangs leads nobody, and nobody waits for it.
                    let hangs = clone.sick && clone.state == CloneState::Serving;
                    let state = if hangs { CloneState::Draining } else { clone.state };
                    let (name, node) = (clone.id.to_string(), card.name.clone());
                    let seen = Life { clone: name, node, state: clone.state };
                    lives.entry(clone.id.service.clone()).or_default().insert(life.clone(), seen);
                    of.push(Member { life, node: card.id, state });
                }
            }
        }
        let live: BTreeSet<NodeId> = self.live_cards().map(|card| card.id).collect();
        let said = |id: &NodeId| Some((*id, self.told.members(*id)?));
        let said = live.iter().filter(|id| **id != self.me()).filter_map(said).collect();
        self.stale = true;
        for (service, payload) in self.lives_told.look(lives) {
            let channel = format!("{}{service}", channels::MEMBERS).into();
            self.channels_in(now, channels::Input::News { channel, payload }, out);
        }
        self.members_in(now, members::Input::Scene(Scene { live, members, said }), out);
    }

    pub(crate) fn manager_in(&mut self, now: Now, input: manager::Input, out: &mut Out) {
        let mut wants = Vec::new();
        self.manager.handle(now, input, &mut wants);
        for want in wants {
            match want {
                // Our own group hears of it as everybody does: when the fact has changed.
                manager::Output::Assign(new) => {
                    self.put_parted(now, facts::ASSIGNMENTS, new.told(self.tells_in_parts()), out);
                }
                manager::Output::Withdraw => self.remove_parted(now, facts::ASSIGNMENTS, out),
                manager::Output::Verdict { service, number, take_back } => {
                    self.propose_verdict(now, service, number, take_back, out);
                }
                manager::Output::Happened(h) => self.decided(now, h.kind, &h.who, h.text, out),
            }
        }
    }

    /// Who lives, or what somebody runs, has changed.
    pub(crate) fn cluster_changed(&mut self, now: Now, out: &mut Out) {
        (self.stale, self.routes_stale) = (true, true);
        self.members_changed(now, out);
        let others = self
            .live_cards()
            .filter(|card| card.id != self.me())
            .map(|card| format!("http://{}", card.doors.at(Door::Api)));
        let others = others.collect();
        self.group_in(now, group::Input::Apis(others), out);
        let others = self.live_cards().filter(|card| card.id != self.me());
        let sick = others.flat_map(|card| self.clones_of(card.id)).filter_map(Sick::of).collect();
        self.group_in(now, group::Input::Sick(sick), out);
        if !self.root.is_leader() {
            return;
        }
        let mut services = BTreeMap::clone(&self.services);
        services.retain(|name, spec| !self.off.service(name) && !runs::waits(self.deployed.get(name), spec.version));
        let live = self.live_cards().map(|card| self.load_of(card)).collect();
        let is_dead = |seen: &&Seen| seen.state == NodeState::Dead;
        let dead = self.seen.values().filter(is_dead).map(|seen| seen.card.id).collect();
        let next =
            |all: &Deployed| all.next.filter(|next| !runs::waits(Some(all), *next)).map(|next| (next, all.judged));
        let next = self.deployed.iter().filter_map(|(name, all)| Some((name.clone(), next(all)?))).collect();
        let queues = self.queues_told();
        self.manager_in(now, manager::Input::Queues(queues), out);
        self.manager_in(now, manager::Input::Cluster { services, live, dead, off: self.off.clones(), next }, out);
    }

    /// What this node's edge saw goes to the leader alone; a lost one is followed by the next.
    pub(crate) fn demanded(&mut self, now: Now, demand: Demand, out: &mut Out) {
        if !self.reports {
            return;
        }
        self.asked.count(now.mono, &demand);
        if self.root.is_leader() {
            let from = self.me();
            return self.manager_in(now, manager::Input::Demand { from, demand }, out);
        }
        let bytes = demand.encode();
        if let Some(leader) = self.root.leader().filter(|_| bytes.len() <= DEMAND_BYTES_MAX) {
            self.send(leader, Frame::new(kind::DEMAND, bytes), out);
        }
    }

    /// What comes to this node's edge goes to all others; what they said lately is the answer.
    pub(crate) fn tell_doors(&mut self, now: Now, doors: &Doors, out: &mut Out) -> Vec<Doors> {
        let others: BTreeSet<NodeId> = self.live_cards().map(|card| card.id).filter(|id| *id != self.me()).collect();
        if self.reports && !doors.0.is_empty() {
            let bytes = doors.encode();
            for id in &others {
                self.send(*id, Frame::new(kind::DOORS, bytes.clone()), out);
            }
        }
        self.doors.retain(|id, (at, _)| others.contains(id) && now.mono.since(*at) <= LOAD_GOOD_FOR);
        self.doors.values().map(|(_, doors)| doors.clone()).collect()
    }

    fn load_of(&self, card: &Card) -> NodeLoad {
        let says = self.told.clones(card.id);
        // Nobody starts a clone where it will have to end.
        let drains = self.leaving(card.id).is_some() || self.off.node(&card.name);
        let report = self.report_of(card.id);
        let busy = report.busy();
        let room = if report.room == 0 { u32::MAX } else { report.room };
        let load = NodeLoad::new(card.id, card.name.clone(), report.load, says);
        // One that has not said what it is comes last: it may be for overflow.
        let known = card.id == self.me() || self.beacons.get(card.id, facts::REPORT).is_some();
        NodeLoad { drains, reported: load.reported && known, overflow: report.overflow || !known, room, busy, ..load }
    }

    /// Live nodes, this one included.
    pub(crate) fn live_cards(&self) -> impl Iterator<Item = &Card> {
        self.membership.live()
    }

    /// What runs on a node, as it says.
    pub(crate) fn clones_of(&self, id: NodeId) -> &[CloneStatus] {
        self.told.clones(id).map_or(&[], |says| &says.clones)
    }

    pub(crate) fn report_of(&self, id: NodeId) -> &NodeReport {
        if id == self.me() { &self.report } else { self.told.report(id) }
    }

    pub(crate) fn report_brick(&mut self, now: Now, out: &mut Out) {
        let report = self.classes.session.brick_report();
        // Putting what stands changes nothing.
        self.put_fact(now, facts::BRICK, facts::encode(&report), out);
    }

    pub(crate) fn name_of(&self, id: NodeId) -> String {
        if id == self.me() {
            return self.card.name.clone();
        }
        self.seen.get(&id).map_or_else(|| id.to_string(), |seen| seen.card.name.clone())
    }
}

/// How the edge keeps a service's sessions, if it does. `leases` are those of the namespaces, milliseconds.
fn route_session(spec: &ServiceSpec, leases: &BTreeMap<String, u64>) -> Option<RouteSession> {
    let (session, http) = (spec.session.as_ref()?, spec.http.as_ref()?);
    let lease_ms = *leases.get(&session.namespace)?;
    let path = session.path.clone().unwrap_or_else(|| http.path.clone());
    Some(RouteSession { spec: session.clone(), path, lease_ms })
}
