//! The clones of one node: starts what the assignments give to this node, probes it, starts it again when it dies, drains
//! what is no longer wanted. A clone's life:
//!
//! ```text
//!  Starting ──healthy──> Serving ──not wanted──> leaving (routes forget it) ──> stopping (signal sent) ──> gone
//!     │ too slow            │ hung: 3 probes, and its turn (`heal`)                  │ drain time is over: kill
//!     └────── killed <──────┘            dead without being asked to: a new life, after a growing wait
//! ```
//! When what a service runs changes, a new clone is started beside the old one, which is drained once the new one
//! serves: one clone of a service at a time, and if the new ones do not come up, the old ones go on.
//! Where clones run is the manager's matter; how processes are started is the host's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::checksum::place_hash;
use base::process::{Given, Probe};
use base::{Boot, Exit, NodeId, Now, ProcId, ProcSpec, Rng, Signal, Span, Time};
use flow::Backoff;

use crate::clone::{Happened, life_name};
use crate::heal::{Budget, Scene, Sick};
use crate::life::{Death, Life, Step};
use crate::limits::*;
use crate::runs::{self, Found, Once, OnceEnd, Order, Runs, Said};
use crate::secrets::{self, NONE, Secrets};
use crate::spec::url_variable;
use crate::wire::short;
use crate::{Assignments, CloneId, CloneState, CloneStatus, NodeClones, ServiceSpec};

#[derive(Debug)]
pub enum Input {
    /// What some leader says should run where. Older ones than the newest seen change nothing.
    Assigned(Assignments),
    /// What is declared now.
    Declared(Declared),
    /// Archives of deployed folders that are on this node.
    Codes(BTreeSet<String>),
    /// The APIs of other nodes, for clones that are started from now on.
    Apis(Vec<String>),
    /// What live nodes, without this one, say of their sick clones: after every change.
    Sick(Vec<Sick>),
    /// The leader says that these runs may go on until then.
    Granted {
        runs: BTreeSet<u64>,
        until: Time,
    },
    /// An operator ran it by hand, and is gone.
    EndOnce(u64),
    Spawned {
        proc: ProcId,
        pid: u32,
        port: u16,
    },
    Output {
        proc: ProcId,
        line: String,
    },
    Exited {
        proc: ProcId,
        exit: Exit,
    },
    Probed {
        proc: ProcId,
        result: Result<(), String>,
    },
    Wake,
}

/// What is declared, as far as it is the clones' matter. It holds as a whole from one moment: between two parts of it clones
/// would be started that nobody wants.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    pub services: BTreeMap<String, ServiceSpec>,
    /// The same services with the versions that are being rolled out.
    pub next: BTreeMap<String, ServiceSpec>,
    /// The URL by which this node's clones reach each namespace, by its name. A clone waits until all of its are known.
    pub urls: BTreeMap<String, String>,
    /// The token of each service's clones.
    pub tokens: BTreeMap<String, String>,
    /// The secrets of each service, by its name and theirs.
    pub secrets: BTreeMap<String, Secrets>,
    /// Runs that this life of this node has been given, by their numbers.
    pub runs: BTreeMap<u64, Order>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    Spawn {
        proc: ProcId,
        spec: ProcSpec,
    },
    Signal {
        proc: ProcId,
        signal: Signal,
    },
    Probe {
        proc: ProcId,
        probe: Probe,
    },
    /// `clones()` changed: publish it.
    Changed,
    Happened(Happened),
}

pub struct Group {
    me: NodeId,
    boot: Boot,
    node_name: String,
    /// `http://127.0.0.1:7070`
    node_api: String,
    rng: Rng,
    assigned: Assignments,
    services: BTreeMap<String, Arc<ServiceSpec>>,
    next: BTreeMap<String, Arc<ServiceSpec>>,
    codes: BTreeSet<String>,
    urls: BTreeMap<String, String>,
    tokens: BTreeMap<String, String>,
    secrets: BTreeMap<String, Secrets>,
    apis: Vec<String>,
    /// Clones here that run a version that is being rolled out. They do until the declaration says how that ended: the
    /// leader's word that it is over may come first, and does not say how.
    fresh: BTreeMap<CloneId, u32>,
    /// What should run here: follows from the above.
    wanted: BTreeMap<CloneId, Wanted>,
    /// Invariant: has the keys of `wanted`, no others.
    slots: BTreeMap<CloneId, Slot>,
    /// Processes that were started and have not exited.
    lives: BTreeMap<ProcId, Life>,
    /// Which of them are of each clone. Invariant: has those of `lives`, no others.
    lives_of: BTreeMap<CloneId, BTreeSet<ProcId>>,
    runs: Runs,
    /// Sick clones of other nodes.
    elsewhere: Vec<Sick>,
    /// Clones of each service, by its name, that were killed as sick and are not well yet; kept while there are any.
    budgets: BTreeMap<String, Budget>,
    /// When time alone may give a sick clone its turn.
    heal_at: Option<Time>,
    procs_started: u64,
    changed: bool,
}

/// What a clone of this node is started with.
struct Wanted {
    spec: Arc<ServiceSpec>,
    /// The service's own environment and the URLs.
    env: BTreeMap<String, String>,
    given: Given,
    hash: u64,
    /// Why it cannot be started now.
    lacks: Option<String>,
}

/// A wanted clone's memory over its lives.
struct Slot {
    backoff: Backoff,
    retry_at: Time,
    died: bool,
    restarts: u32,
    /// Deaths of what it is to run now, since it is to run that.
    deaths: u32,
    last_exit: Option<String>,
    last_output: Vec<String>,
    /// Whose output that is.
    last_proc: Option<ProcId>,
    since_ms: u64,
    /// Its last life was, and none has served since.
    sick: bool,
}

impl Slot {
    fn new(now: Now) -> Self {
        Self {
            backoff: Backoff::new(BACKOFF_FIRST, BACKOFF_MAX),
            retry_at: now.mono,
            died: false,
            restarts: 0,
            deaths: 0,
            last_exit: None,
            last_output: Vec::new(),
            last_proc: None,
            since_ms: now.wall_ms,
            sick: false,
        }
    }

    /// It is to run something else: what that does begins now, whatever the one before did.
    fn begin(&mut self, now: Now) {
        let Self { restarts, since_ms, .. } = *self;
        *self = Self { restarts, since_ms, ..Self::new(now) };
    }
}

impl Group {
    /// `me`, `boot`, `node_name` and `node_api` are this node's id, life, name and the URL of its API.
    pub fn new(me: NodeId, boot: Boot, node_name: impl Into<String>, node_api: impl Into<String>, rng: Rng) -> Self {
        Self {
            me,
            boot,
            node_name: node_name.into(),
            node_api: node_api.into(),
            rng,
            assigned: Assignments::default(),
            services: BTreeMap::new(),
            next: BTreeMap::new(),
            codes: BTreeSet::new(),
            urls: BTreeMap::new(),
            tokens: BTreeMap::new(),
            secrets: BTreeMap::new(),
            apis: Vec::new(),
            fresh: BTreeMap::new(),
            wanted: BTreeMap::new(),
            slots: BTreeMap::new(),
            lives: BTreeMap::new(),
            lives_of: BTreeMap::new(),
            runs: Runs::default(),
            elsewhere: Vec::new(),
            budgets: BTreeMap::new(),
            heal_at: None,
            procs_started: 0,
            changed: false,
        }
    }

    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Assigned(new) => {
                if new.is_newer_than(&self.assigned) {
                    self.assigned = new;
                    // What this node obeys is part of its beacon.
                    self.changed = true;
                    self.want(now);
                    for life in self.lives.values_mut() {
                        let ill = self.assigned.ill.get(&life.id).filter(|ill| ill.since_ms == life.since_ms);
                        life.judged(now.mono, ill.map(|ill| ill.why.as_str()));
                    }
                }
            }
            Input::Declared(Declared { services, next, urls, tokens, secrets, runs }) => {
                let mut signals = Vec::new();
                self.runs.order(now.mono, &runs, &mut signals);
                out.extend(signals.into_iter().map(|(proc, signal)| Output::Signal { proc, signal }));
                self.services = services.into_iter().map(|(name, spec)| (name, Arc::new(spec))).collect();
                self.next = next.into_iter().map(|(name, spec)| (name, Arc::new(spec))).collect();
                (self.urls, self.tokens, self.secrets) = (urls, tokens, secrets);
                self.want(now);
            }
            Input::Codes(codes) => {
                self.codes = codes;
                self.want(now);
            }
            Input::Apis(apis) => self.apis = apis,
            Input::Sick(elsewhere) => self.elsewhere = elsewhere,
            Input::Granted { runs, until } => self.runs.granted(&runs, until),
            Input::EndOnce(number) => {
                let signal = self.runs.end_once(now.mono, number);
                out.extend(signal.map(|(proc, signal)| Output::Signal { proc, signal }));
            }
            Input::Output { proc, line } if self.runs.has(proc) => return self.runs.printed(proc, &line),
            Input::Exited { proc, exit } if self.runs.has(proc) => {
                out.extend(self.runs.exited(now.mono, proc, &exit).map(Output::Happened));
            }
            Input::Spawned { proc, pid, port } => {
                if let Some(life) = self.lives.get_mut(&proc) {
                    (life.pid, life.port) = (pid, port);
                    self.changed = true;
                }
            }
            // A line alone is not worth a beacon: it is shown with the next change of state.
            Input::Output { proc, line } => match self.lives.get_mut(&proc) {
                Some(life) => return life.printed(&line),
                None => self.printed_late(proc, &line),
            },
            Input::Exited { proc, exit } => self.exited(now, proc, &exit, out),
            Input::Probed { proc, result } => {
                if let Some(life) = self.lives.get_mut(&proc) {
                    life.probed(now.mono, result);
                }
            }
            Input::Wake => (),
        }
        self.step_lives(now, out);
        self.step_runs(now, out);
        self.heal(now, out);
        self.reconcile(now, out);
        self.tell_states(now, out);
        if std::mem::take(&mut self.changed) {
            out.push(Output::Changed);
        }
    }

    /// The next moment this group wants `Input::Wake`, if any.
    pub fn wake_at(&self) -> Option<Time> {
        let lives = self.lives.values().filter_map(Life::wake_at);
        let room = self.room_to_start_at();
        let starts = self.slots.iter().filter(|(id, _)| self.may_start(id)).map(|(_, slot)| slot.retry_at.max(room));
        lives.chain(starts).chain(self.heal_at).chain(self.runs.wake_at()).min()
    }

    /// This node's clones in order, with one line each for an old and a new one while a clone is replaced.
    pub fn clones(&self) -> Vec<CloneStatus> {
        let mut all: Vec<CloneStatus> =
            self.lives.iter().map(|(proc, life)| self.status_of_life(*proc, life)).collect();
        let idle = self.slots.iter().filter(|(id, slot)| {
            let mut stays = self.lives_of(id).filter(|(_, life)| !life.is_leaving());
            if slot.died { !stays.any(|(_, life)| Some(life.hash) == self.hash_of(id)) } else { stays.next().is_none() }
        });
        all.extend(idle.map(|(id, slot)| self.status_of_idle(id, slot)));
        all.sort_by(|a, b| (&a.id, a.state).cmp(&(&b.id, b.state)));
        all
    }

    /// How many clones are to run here.
    pub fn size(&self) -> usize {
        self.slots.len()
    }

    /// The content of this node's beacon.
    pub fn node_clones(&self) -> NodeClones {
        NodeClones { obeys: self.assigned.version(), clones: self.clones() }
    }

    /// The newest assignments seen.
    pub fn assigned(&self) -> &Assignments {
        &self.assigned
    }

    /// Works out anew what should run here.
    fn want(&mut self, now: Now) {
        let (mut wanted, mut fresh) = (BTreeMap::new(), BTreeMap::new());
        for id in self.assigned.at(self.me) {
            let Some(spec) = self.spec_of(id) else { continue };
            wanted.insert(id.clone(), self.wanted_by(&id.service, spec));
            if self.next.get(&id.service).is_some_and(|next| Arc::ptr_eq(next, spec)) {
                fresh.insert(id.clone(), spec.version);
            }
        }
        self.fresh = fresh;
        for life in self.lives.values_mut() {
            // New probes, signals and patience hold at once; only what the process was started with needs a new one.
            let of = [self.services.get(&life.id.service), self.next.get(&life.id.service)];
            if let Some(spec) = of.into_iter().flatten().find(|spec| spec.version == life.spec.version) {
                life.spec = spec.clone();
            }
        }
        self.slots.retain(|id, _| wanted.contains_key(id));
        for id in wanted.keys() {
            self.slots.entry(id.clone()).or_insert_with(|| Slot::new(now));
        }
        for (id, want) in &wanted {
            let before = self.wanted.get(id);
            let slot = self.slots.get_mut(id).expect("was just made");
            if before.is_some_and(|before| before.hash != want.hash) {
                slot.begin(now);
                self.changed = true;
            }
            // What it waited for has come: it gets its chance at once.
            if before.is_none_or(|before| before.lacks != want.lacks) {
                slot.backoff.reset();
                slot.retry_at = now.mono;
                self.changed = true;
            }
        }
        self.changed |= self.wanted.len() != wanted.len();
        self.wanted = wanted;
    }

    /// What a clone is to run: what is declared, or the version that is being rolled out once its turn has come.
    fn spec_of(&self, id: &CloneId) -> Option<&Arc<ServiceSpec>> {
        let declared = self.services.get(&id.service)?;
        let is_told = |version| self.assigned.fresh.get(id) == Some(version) || self.fresh.get(id) == Some(version);
        let next = self.next.get(&id.service).filter(|next| is_told(&next.version));
        Some(next.unwrap_or(declared))
    }

    fn wanted_by(&self, service: &str, spec: &Arc<ServiceSpec>) -> Wanted {
        let mut env = spec.env.clone();
        if let Some(token) = self.tokens.get(service) {
            env.insert("COPPICE_TOKEN".into(), token.clone());
        }
        let mut lacks = None;
        for namespace in &spec.namespaces {
            match self.urls.get(namespace) {
                Some(url) => drop(env.insert(url_variable(namespace), url.clone())),
                None => lacks = Some(format!("waits for namespace {namespace:?}")),
            }
        }
        if let Some(code) = spec.code.as_ref().filter(|code| !self.codes.contains(*code)) {
            lacks = Some(format!("waits for the folder {} to be fetched", &code[..code.len().min(12)]));
        }
        let run = spec.command();
        let started_with = match &spec.code {
            // What ran before a first deploy is version 1 from then on, and goes on.
            None if spec.version <= 1 => serde_json::to_vec(&(&run, &spec.dir, &env)),
            None => serde_json::to_vec(&(&run, &spec.dir, &env, spec.version)),
            // Two versions of one folder are two: each is judged by its own processes.
            Some(code) => serde_json::to_vec(&(&run, &spec.dir, &env, code, spec.version)),
        };
        let started_with = started_with.expect("strings become JSON");
        let secrets = self.secrets.get(service).unwrap_or(&NONE);
        let started_with = secrets::marked(started_with, spec, secrets);
        let (variables, given) = match secrets::given(spec, secrets, &self.urls) {
            Ok(all) => all,
            Err(why) => {
                lacks = lacks.or(Some(why));
                Default::default()
            }
        };
        // What is declared holds: it may be made of a secret of its name.
        variables.into_iter().for_each(|(name, value)| _ = env.entry(name).or_insert(value));
        Wanted { spec: spec.clone(), env, given, hash: place_hash(&started_with), lacks }
    }

    /// Carries every life over what time has brought.
    fn step_lives(&mut self, now: Now, out: &mut Vec<Output>) {
        for (&proc, life) in &mut self.lives {
            match life.step(now.mono) {
                Step::None => (),
                Step::Probe(probe) => out.push(Output::Probe { proc, probe }),
                Step::Signal(signal) => out.push(Output::Signal { proc, signal }),
            }
        }
    }

    /// Kills clones that fail their probes, as far as the budgets of their services let it.
    fn heal(&mut self, now: Now, out: &mut Vec<Output>) {
        self.heal_at = None;
        for life in self.lives.values().filter(|life| life.is_serving()) {
            if let Some(slot) = self.slots.get_mut(&life.id) {
                slot.sick = false;
            }
        }
        let ours = self.lives.values().filter(|life| life.is_sick()).map(|life| &life.id.service);
        let slots = self.slots.iter().filter(|(_, slot)| slot.sick).map(|(id, _)| &id.service);
        // Also services of which nothing is sick here, or nothing runs: whose turn it is depends on what came before.
        let others = self.elsewhere.iter().map(|sick| &sick.id.service).chain(self.budgets.keys());
        let services: BTreeSet<String> = ours.chain(slots).chain(others).cloned().collect();
        for service in services {
            let mut budget = self.budgets.remove(&service).unwrap_or_default();
            loop {
                let verdict = budget.look(now.mono, &self.scene(&service));
                let who = service.clone();
                out.extend(verdict.say.map(|(kind, text)| Output::Happened(Happened { kind, who, text })));
                if verdict.kill.is_empty() {
                    self.heal_at = self.heal_at.into_iter().chain(verdict.look_at).min();
                    break;
                }
                for (proc, life) in &mut self.lives {
                    let has_turn = life.waits_since().is_some() && verdict.kill.contains(&life.id);
                    if has_turn && let Step::Signal(signal) = life.heal(now.mono) {
                        out.push(Output::Signal { proc: *proc, signal });
                    }
                }
            }
            if !budget.is_idle() {
                self.budgets.insert(service, budget);
            }
        }
    }

    fn scene(&self, service: &str) -> Scene {
        let assigned = || self.assigned.of_service(service);
        let is_its = |id: &CloneId| id.service == service;
        let mut sick: BTreeMap<CloneId, Sick> = BTreeMap::new();
        let elsewhere = self.elsewhere.iter().filter(|sick| is_its(&sick.id)).cloned();
        let slots = self.slots.iter().filter(|(id, slot)| is_its(id) && slot.sick);
        let slots = slots.map(|(id, slot)| Sick { id: id.clone(), waits: false, restarts: slot.restarts });
        let lives = self.lives.values().filter(|life| is_its(&life.id) && life.is_sick()).map(|life| {
            let restarts = self.slots.get(&life.id).map_or(0, |slot| slot.restarts);
            Sick { id: life.id.clone(), waits: life.is_serving(), restarts }
        });
        for one in elsewhere.chain(slots).chain(lives) {
            sick.insert(one.id.clone(), one);
        }
        // Where nobody else has clones of it, nobody has to be told first.
        let told = if assigned().all(|(_, node)| *node == self.me) { Span::ZERO } else { HEAL_TOLD };
        let waits = self.lives.values().filter(|life| is_its(&life.id));
        let mine = waits.filter_map(|life| Some((life.id.clone(), life.waits_since()? + told))).collect();
        let start_timeout = self.services.get(service).map_or(START_TIMEOUT_DEFAULT, |spec| spec.start_timeout);
        Scene { all: assigned().count(), sick, mine, start_timeout }
    }

    /// Notices what state each life has come to, whatever brought it there.
    fn tell_states(&mut self, now: Now, out: &mut Vec<Output>) {
        for life in self.lives.values_mut() {
            let is = (life.state(), life.is_sick());
            let told = std::mem::replace(&mut life.told, is);
            self.changed |= told != is;
            if told.0 == is.0 {
                continue;
            }
            life.since_ms = now.wall_ms;
            if life.is_serving() {
                let text = format!("serves on port {} (pid {})", life.port, life.pid);
                out.push(Output::Happened(Happened::new("clone-started", &life.id, text)));
            }
        }
    }

    fn exited(&mut self, now: Now, proc: ProcId, exit: &Exit, out: &mut Vec<Output>) {
        let Some(life) = self.lives.remove(&proc) else { return };
        if let Some(procs) = self.lives_of.get_mut(&life.id) {
            procs.remove(&proc);
            if procs.is_empty() {
                self.lives_of.remove(&life.id);
            }
        }
        self.changed = true;
        let death = life.death(now.mono, exit);
        let (kind, mut text, served) = match death {
            Death::Drained(text) => {
                out.push(Output::Happened(Happened::new("clone-stopped", &life.id, text)));
                return;
            }
            Death::Died { text, served } => ("clone-died", text, served),
        };
        // One that was about to be replaced says nothing of what replaces it, and must not delay that.
        let runs_wanted = self.hash_of(&life.id) == Some(life.hash);
        if let Some(slot) = self.slots.get_mut(&life.id).filter(|_| runs_wanted) {
            if served >= BACKOFF_FORGIVEN {
                slot.backoff.reset();
            }
            let wait = slot.backoff.next(&mut self.rng);
            slot.retry_at = now.mono + wait;
            slot.died = true;
            slot.deaths = slot.deaths.saturating_add(1);
            slot.sick |= life.is_sick();
            slot.last_exit = Some(text.clone());
            slot.last_output = life.output.into();
            slot.last_proc = Some(proc);
            slot.since_ms = now.wall_ms;
            text = format!("{text}; starts again in {} ms", wait.as_millis());
        }
        out.push(Output::Happened(Happened::new(kind, &life.id, text)));
    }

    /// The last lines may come after the death that they explain.
    fn printed_late(&mut self, proc: ProcId, line: &str) {
        let Some(slot) = self.slots.values_mut().find(|slot| slot.last_proc == Some(proc)) else { return };
        // Bounded: something that the dead one left behind may print for ever.
        if slot.last_output.len() < OUTPUT_LINES {
            slot.last_output.push(short(line));
            self.changed = true;
        }
    }

    /// Starts what is missing and drains what is too much.
    fn reconcile(&mut self, now: Now, out: &mut Vec<Output>) {
        // Wanted again before anybody told it to go: it just stays.
        for life in self.lives.values_mut() {
            if self.wanted.get(&life.id).is_some_and(|want| want.hash == life.hash) {
                life.stay(now.mono);
            }
        }
        let superfluous = self.lives.iter().filter(|(_, life)| self.is_superfluous(life));
        let superfluous: Vec<ProcId> = superfluous.map(|(proc, _)| *proc).collect();
        for proc in superfluous {
            let signal = self.lives.get_mut(&proc).and_then(|life| life.drain(now.mono));
            out.extend(signal.map(|signal| Output::Signal { proc, signal }));
        }
        let due = |(id, slot): &(&CloneId, &Slot)| slot.retry_at <= now.mono && self.may_start(id);
        let due: Vec<CloneId> = self.slots.iter().filter(due).map(|(id, _)| id.clone()).collect();
        for id in due {
            if self.room_to_start_at() > now.mono {
                break;
            }
            // Again, as one started now may be the replacement that the next one has to wait for.
            if self.may_start(&id) {
                self.start(now, id, out);
            }
        }
    }

    /// A life that is not on its way out, and should be: nobody wants it, or it runs what is no longer declared and
    /// another one does its work (or it does none).
    fn is_superfluous(&self, life: &Life) -> bool {
        if life.is_ending() {
            return false;
        }
        let Some(hash) = self.hash_of(&life.id) else { return true };
        let replaced = || self.lives_of(&life.id).any(|(_, other)| other.hash == hash && other.is_serving());
        life.hash != hash && (!life.is_serving() || replaced())
    }

    /// Whether a new life of this slot may begin as soon as its wait is over.
    fn may_start(&self, id: &CloneId) -> bool {
        let want = &self.wanted[id];
        let runs =
            |hash: Option<u64>| self.lives_of(id).any(|(_, l)| !l.is_leaving() && hash.is_none_or(|h| l.hash == h));
        if want.lacks.is_some() || runs(Some(want.hash)) {
            return false;
        }
        // Replacements: one clone of a service at a time, in order of their numbers.
        !runs(None) || self.first_outdated(&id.service) == Some(id)
    }

    /// From when on one more may start, if none of those that start now is up, or gone, before.
    fn room_to_start_at(&self) -> Time {
        let mut held: Vec<Time> = self.lives.values().filter_map(Life::starting_since).collect();
        let Some(first) = held.len().checked_sub(STARTS_AT_ONCE) else { return Time::default() };
        *held.select_nth_unstable(first).1 + STARTS_WAIT
    }

    fn first_outdated(&self, service: &str) -> Option<&CloneId> {
        let outdated = |l: &&Life| l.id.service == service && !l.is_ending() && self.hash_of(&l.id) != Some(l.hash);
        self.lives.values().filter(outdated).map(|life| &life.id).min()
    }

    /// Carries every run over what time has brought.
    fn step_runs(&mut self, now: Now, out: &mut Vec<Output>) {
        let (mut runs, mut signals, mut started) = (std::mem::take(&mut self.runs), Vec::new(), self.procs_started);
        let find = |id: &CloneId, version: u32, number: u64, words: Option<&Vec<String>>| {
            self.found(id, version, number, words)
        };
        let start = |mut spec: ProcSpec| {
            started += 1;
            let proc = ProcId(started);
            spec.env.insert("COPPICE_MEMBER".into(), life_name(&self.node_name, self.boot, started));
            out.push(Output::Spawn { proc, spec });
            proc
        };
        runs.step(now, find, start, &mut signals);
        (self.runs, self.procs_started) = (runs, started);
        out.extend(signals.into_iter().map(|(proc, signal)| Output::Signal { proc, signal }));
    }

    /// What a run is started with: the folder, environment, secrets and sandbox of its version.
    fn found(&self, id: &CloneId, version: u32, number: u64, words: Option<&Vec<String>>) -> Found {
        let of = [self.services.get(&id.service), self.next.get(&id.service)];
        let Some(spec) = of.into_iter().flatten().find(|spec| spec.version == version) else { return Found::Gone };
        let (run, within) = match (runs::Slot::of_number(id.number), words) {
            (_, Some(words)) => (words.clone(), RUN_TIMEOUT_MAX),
            (Some(runs::Slot::Before), None) => {
                (spec.before.clone(), spec.before_timeout.unwrap_or(BEFORE_TIMEOUT_DEFAULT))
            }
            _ => (spec.command(), spec.run_timeout.unwrap_or(RUN_TIMEOUT_DEFAULT)),
        };
        let want = self.wanted_by(&id.service, spec);
        if let Some(why) = want.lacks {
            return Found::Lacks(why);
        }
        let mut spec = self.proc_spec(id, &want);
        spec.run = run;
        spec.env.insert("COPPICE_RUN".into(), number.to_string());
        if let Some(slot) = runs::Slot::of_number(id.number) {
            spec.env.insert("COPPICE_CLONE".into(), format!("{}/{}", id.service, slot.word()));
        }
        Found::Ready { spec: Box::new(spec), within, drain: want.spec.stop.drain }
    }

    /// Begins what an operator runs; its number, and which clone it is.
    ///
    /// # Errors
    /// A sentence: there is no such service, or no room.
    pub fn once(&mut self, now: Now, once: Once, out: &mut Vec<Output>) -> Result<(u64, CloneId), String> {
        let Some(spec) = self.services.get(&once.service) else {
            let known = self.services.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(format!("there is no service {:?}; declared are: {known}", once.service));
        };
        if let Some(why) = self.wanted_by(&once.service, spec).lacks {
            return Err(format!("{} {why} on this node; try again, or another node with --node", once.service));
        }
        let (version, shown) = (spec.version, once.run.join(" "));
        let (number, id) = self.runs.once(now.mono, once, version)?;
        out.push(Output::Happened(runs::named("run", &id, format!("an operator runs: {shown}"))));
        self.handle(now, Input::Wake, out);
        Ok((number, id))
    }

    /// None if there is no such run (any more); inside: none while it runs.
    pub fn once_end(&self, number: u64) -> Option<Option<OnceEnd>> {
        self.runs.once_end(number)
    }

    /// What the root group's leader is told of runs that it ordered here.
    pub fn runs_said(&self) -> Vec<Said> {
        self.runs.said()
    }

    /// What a process of a clone is started with, but for the name of its life.
    fn proc_spec(&self, id: &CloneId, want: &Wanted) -> ProcSpec {
        let (mut env, given) = (want.env.clone(), want.given.clone());
        env.insert("COPPICE_SERVICE".into(), id.service.clone());
        env.insert("COPPICE_CLONE".into(), id.to_string());
        env.insert("COPPICE_NODE".into(), self.node_name.clone());
        env.insert("COPPICE_NODE_API".into(), self.node_api.clone());
        env.insert("COPPICE_DRAIN_MS".into(), want.spec.stop.drain.as_millis().to_string());
        let apis: Vec<&str> = [&self.node_api].into_iter().chain(&self.apis).map(String::as_str).collect();
        env.insert("COPPICE_NODE_APIS".into(), apis.join(","));
        if want.spec.version > 0 {
            env.insert("COPPICE_VERSION".into(), want.spec.version.to_string());
        }
        let run = want.spec.command();
        let ServiceSpec { code, dir, version, sandbox, limits, user, .. } = (*want.spec).clone();
        let (sandbox, limits) = (sandbox.open(), Box::new(limits.of_a_clone()));
        ProcSpec { name: id.to_string(), version, run, code, dir, env, sandbox, limits, user, given }
    }

    fn start(&mut self, now: Now, id: CloneId, out: &mut Vec<Output>) {
        let want = &self.wanted[&id];
        let mut spec = self.proc_spec(&id, want);
        self.procs_started += 1;
        spec.env.insert("COPPICE_MEMBER".into(), life_name(&self.node_name, self.boot, self.procs_started));
        let proc = ProcId(self.procs_started);
        self.lives.insert(proc, Life::new(id.clone(), want.spec.clone(), want.hash, now));
        self.lives_of.entry(id.clone()).or_default().insert(proc);
        let slot = self.slots.get_mut(&id).expect("wanted clones have slots");
        slot.restarts += u32::from(std::mem::take(&mut slot.died));
        self.changed = true;
        out.push(Output::Spawn { proc, spec });
    }

    /// Which clone a process is.
    pub fn clone_of(&self, proc: ProcId) -> Option<&CloneId> {
        self.lives.get(&proc).map(|life| &life.id)
    }

    fn lives_of(&self, id: &CloneId) -> impl Iterator<Item = (&ProcId, &Life)> {
        self.lives_of.get(id).into_iter().flatten().filter_map(|proc| self.lives.get_key_value(proc))
    }

    fn hash_of(&self, id: &CloneId) -> Option<u64> {
        self.wanted.get(id).map(|want| want.hash)
    }

    fn status_of_life(&self, proc: ProcId, life: &Life) -> CloneStatus {
        let slot = self.slots.get(&life.id);
        let is_starting = life.state() == CloneState::Starting;
        let is_mute = is_starting && life.output.is_empty();
        let last_output = match slot.filter(|_| is_mute) {
            Some(slot) => slot.last_output.clone(),
            None => life.output.iter().cloned().collect(),
        };
        CloneStatus {
            id: life.id.clone(),
            state: life.state(),
            pid: life.pid,
            port: life.port,
            restarts: slot.map_or(0, |slot| slot.restarts),
            since_ms: life.since_ms,
            last_exit: slot.and_then(|slot| slot.last_exit.clone()),
            last_output,
            spec_hash: life.hash,
            life: proc.0,
            version: life.version,
            deaths: Some(slot.filter(|_| self.hash_of(&life.id) == Some(life.hash)).map_or(0, |slot| slot.deaths)),
            sick: life.is_sick() || is_starting && slot.is_some_and(|slot| slot.sick),
        }
    }

    fn status_of_idle(&self, id: &CloneId, slot: &Slot) -> CloneStatus {
        let want = &self.wanted[id];
        CloneStatus {
            id: id.clone(),
            state: CloneState::Backoff,
            pid: 0,
            port: 0,
            restarts: slot.restarts,
            since_ms: slot.since_ms,
            last_exit: want.lacks.clone().or_else(|| slot.last_exit.clone()),
            last_output: slot.last_output.clone(),
            spec_hash: want.hash,
            life: 0,
            version: want.spec.version,
            deaths: Some(slot.deaths),
            sick: slot.sick,
        }
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
