//! A declared service: what its clones run and where the outside reaches it. Read from TOML (an operator's file, where
//! an unknown key is a mistake) and kept as JSON in the root group (where an unknown key is from a newer version and is
//! skipped). The checks here are of one declaration by itself and of all together; nothing is started or decided.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base::process::{OWN_PROGRAM, SERVE_BUILTIN};
use base::{Signal, Span};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::access::AccessLog;
use crate::allows::Allows;
use crate::asks::Asks;
use crate::at_times;
use crate::backlog;
use crate::bounds::{self, BOUND_KEYS, Bounds};
use crate::cache::EdgeCache;
use crate::health::Health;
use crate::https::{self, Https};
use crate::limits::*;
use crate::partition::Partition;
use crate::partition_check as partition;
use crate::path::{canonical, is_clear};
use crate::pipeline;
use crate::route::bare_host;
use crate::sandbox::{SANDBOX_KEYS, Sandbox};
use crate::secrets;
use crate::session::SessionCookie;
use crate::size::Size;
use crate::tcp::{self, keep_tcp_known};
use crate::text;
use crate::worker::{WORKER_KEYS, Worker};
use crate::{LEVEL, LEVEL_DOORS};

pub use crate::tcp::{ProxyVersion, TcpRoute};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceSpec {
    /// Program and arguments; empty for a built-in service. Always written: programs before built-in services read it.
    #[serde(default, deserialize_with = "text::run")]
    pub run: Vec<String>,
    /// Name of the service, one of those inside the node's own program, that its clones are. Each node runs its own version of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin: Option<String>,
    /// The folder that was deployed, as the SHA-256 of its archive; its clones run in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Number of the version that this is; 0 if it was never deployed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: u32,
    /// Working folder; relative ones are relative to what was deployed, else to the node's service folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Secrets that its clones get as files in place of variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_files: Vec<String>,
    /// What runs once before any clone of a version starts: program and arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// ... and how long it may take.
    #[serde(default, with = "text::some_span", skip_serializing_if = "Option::is_none")]
    pub before_timeout: Option<Span>,
    /// It has no standing clones and runs at these times: five fields as cron has them, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// ... or so often.
    #[serde(default, with = "text::some_span", skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// The last time that passed while nobody could run it is made good.
    #[serde(default, skip_serializing_if = "is_false")]
    pub catch_up: bool,
    /// A run whose node died is begun again on another.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rerun: bool,
    /// How long a run may take.
    #[serde(default, with = "text::some_span", skip_serializing_if = "Option::is_none")]
    pub run_timeout: Option<Span>,
    /// How many clones are wanted, over all nodes: a number, or a range within which the manager chooses.
    #[serde(default = "clones_default")]
    pub clones: Size,
    /// With a range: the wait that hurts. The manager adds clones before requests wait so long; of one with `queues`, when a job did.
    #[serde(default, with = "text::some_span", skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// What is asked, and what answers when the clone is well. Without it, a TCP connection is enough; for a service
    /// with neither `health` nor a route, that its process runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpRoute>,
    /// What plain HTTP gets for a host that has a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https: Option<Https>,
    /// So long browsers are told to come by HTTPS alone.
    #[serde(default, with = "text::some_span", skip_serializing_if = "Option::is_none")]
    pub hsts: Option<Span>,
    /// Its doors for TCP, each a port.
    #[serde(default, with = "crate::tcp", skip_serializing_if = "Vec::is_empty")]
    pub tcp: Vec<TcpRoute>,
    /// Parts of its requests that are treated in their own way; the first that matches takes a request.
    #[serde(default, rename = "partition", skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<Partition>,
    /// Namespaces it uses; a clone gets the address of each as `COPPICE_<NAME>_URL`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Queues of jobs that its clones work on, `NAMESPACE/QUEUE`: with a range, how many there are follows from how long jobs wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
    /// Its clones get the certificates of their node's folder and of the cluster, keys and all, for TLS that they end themselves.
    #[serde(default, skip_serializing_if = "is_false")]
    pub certificates: bool,
    /// The edge keeps its users' sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionCookie>,
    /// Edges keep its answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<EdgeCache>,
    /// Its clones make one content of another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Worker>,
    /// Whose profiles go with its requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// What its answers pass on their way out; a partition that names one goes before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// What nodes write of each of its requests.
    #[serde(default, skip_serializing_if = "AccessLog::is_off")]
    pub access_log: AccessLog,
    /// Edges tell it what they measure of the lines of clients that do not say it themselves (header `Downlink`, Mbit/s).
    #[serde(default, skip_serializing_if = "is_false")]
    pub downlink: bool,
    /// What of their node's machine its clones reach.
    #[serde(default, skip_serializing_if = "Sandbox::is_default")]
    pub sandbox: Sandbox,
    /// What each of its clones may take of that machine.
    #[serde(default, skip_serializing_if = "Bounds::is_none")]
    pub limits: Bounds,
    /// Whom its clones run as, where their node may; none: as the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default)]
    pub stop: Stop,
    /// From its start to its first healthy answer at most.
    #[serde(default = "start_timeout_default", with = "text::span")]
    pub start_timeout: Span,
    /// These three as [`Allows`] has them.
    #[serde(default, with = "text::some_span", skip_serializing_if = "Option::is_none")]
    pub answer_timeout: Option<Span>,
    #[serde(default, with = "text::some_span", skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Span>,
    #[serde(default, with = "text::some_bytes", skip_serializing_if = "Option::is_none")]
    pub body_max: Option<u64>,
    /// These two as [`Asks`] has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_late: Option<bool>,
    /// The file that describes it to programs, in the folder that was deployed. The catalogue shows it; nobody acts on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openapi: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRoute {
    /// A host name, `*.` and the end of names, or `*` for every host that no other service has.
    #[serde(default = "any_host")]
    pub host: String,
    /// Path prefix, in whole segments.
    #[serde(default = "root_path")]
    pub path: String,
}

/// How a clone is asked to go: the signal, and how long it then has before it is killed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stop {
    #[serde(with = "text::signal")]
    pub signal: Signal,
    #[serde(with = "text::span")]
    pub drain: Span,
}

/// One mistake in a declaration: the key as written in the file, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpecError {
    /// `clones`, `http.path`, `env.PORT`; of all services together: `service.shop.http`.
    pub key: String,
    pub why: String,
}

/// Why a service without HTTP has no range.
const NO_WAIT: &str =
    "a range needs http, tcp, worker or queues: nobody waits for what is not asked for anything; write a number";

impl Default for Stop {
    fn default() -> Self {
        Self { signal: Signal::Term, drain: DRAIN_DEFAULT }
    }
}

impl Default for HttpRoute {
    fn default() -> Self {
        Self { host: any_host(), path: root_path() }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

impl std::error::Error for SpecError {}

impl ServiceSpec {
    /// A service with all defaults.
    pub fn new(run: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            run: run.into_iter().map(Into::into).collect(),
            builtin: None,
            code: None,
            version: 0,
            dir: None,
            env: BTreeMap::new(),
            secret_files: Vec::new(),
            before: Vec::new(),
            before_timeout: None,
            schedule: None,
            every: None,
            catch_up: false,
            rerun: false,
            run_timeout: None,
            clones: CLONES_DEFAULT.into(),
            wait: None,
            health: None,
            http: None,
            https: None,
            hsts: None,
            tcp: Vec::new(),
            partitions: Vec::new(),
            namespaces: Vec::new(),
            queues: Vec::new(),
            certificates: false,
            session: None,
            profile: None,
            cache: None,
            worker: None,
            pipeline: None,
            access_log: AccessLog::Off,
            downlink: false,
            sandbox: Sandbox::default(),
            limits: Bounds::default(),
            user: None,
            stop: Stop::default(),
            start_timeout: START_TIMEOUT_DEFAULT,
            answer_timeout: None,
            idle_timeout: None,
            body_max: None,
            ask: None,
            ask_late: None,
            openapi: None,
        }
    }

    /// All mistakes that can be seen in this service alone, none if it is right.
    pub fn validate(&self) -> Result<(), Vec<SpecError>> {
        let mut errors = Vec::new();
        let mut wrong = |key: &str, why: String| errors.push(SpecError { key: key.into(), why });
        if self.builtin.is_none() && self.run.first().is_none_or(String::is_empty) {
            let why = "names no program; write for example run = [\"python3\", \"app.py\"], or builtin = \"NAME\"";
            wrong("run", why.into());
        }
        if let Some(name) = &self.builtin {
            let set = [("run", !self.run.is_empty()), ("code", self.code.is_some()), ("dir", self.dir.is_some())];
            for (key, _) in set.iter().filter(|(_, is_set)| *is_set) {
                wrong(
                    key,
                    format!("is of another program, and builtin = {name:?} of the node's own; keep one of them"),
                );
            }
        }
        if self.run.iter().any(|word| word.contains('\0')) {
            wrong("run", "contains a zero byte".into());
        }
        let is_digest = |code: &String| code.len() == 64 && code.bytes().all(|b| b.is_ascii_hexdigit());
        if self.code.as_ref().is_some_and(|code| !is_digest(code)) {
            wrong("code", "is not the SHA-256 of an archive; `coppice deploy` sets it".into());
        }
        let leaves = |dir: &String| dir.starts_with('/') || dir.split('/').any(|part| part == "..");
        if self.code.is_some() && self.dir.as_ref().is_some_and(leaves) {
            let why = "leads out of the folder that is deployed; write a folder below it, or leave dir out";
            wrong("dir", why.into());
        }
        if self.dir.as_ref().is_some_and(|dir| dir.is_empty() || dir.contains('\0')) {
            wrong("dir", "is empty; leave it out to run in the node's service folder".into());
        }
        let Size { min, max } = self.clones;
        if max > CLONES_PER_SERVICE_MAX {
            wrong("clones", format!("{max} is over the limit of {CLONES_PER_SERVICE_MAX}"));
        }
        if min > max {
            wrong("clones", format!("min {min} is over max {max}"));
        } else if min < max && !self.is_asked() && self.queues.is_empty() {
            wrong("clones", NO_WAIT.into());
        } else if min == 0 && min < max && self.is_asked() {
            wrong("clones", "min is 1 at least: a request cannot wait for a start".into());
        }
        match self.wait {
            Some(_) if min == max => wrong("wait", "needs a range, like clones = { min = 1, max = 8 }".into()),
            Some(wait) if !(WAIT_HURTS_MIN..=PATIENCE_MAX).contains(&wait) => {
                let [wait, min, max] = [wait, WAIT_HURTS_MIN, PATIENCE_MAX].map(text::format_span);
                wrong("wait", format!("{wait} is not between {min} and {max}"));
            }
            Some(_) | None => (),
        }
        for error in self.health.iter().flat_map(Health::mistakes) {
            wrong(&error.key, error.why);
        }
        if let Some(http) = &self.http {
            if let Some(why) = host_error(&http.host) {
                wrong("http.host", why);
            }
            if let Some(why) = prefix_error(&http.path) {
                wrong("http.path", why);
            }
        }
        for error in https::mistakes(self) {
            wrong(&error.key, error.why);
        }
        for error in tcp::mistakes(&self.tcp, &self.partitions, self.http.is_some()) {
            wrong(&error.key, error.why);
        }
        for error in partition::check(self) {
            wrong(&error.key, error.why);
        }
        for (name, value) in &self.env {
            if let Some(why) = env_error(name, value) {
                wrong(&format!("env.{name}"), why);
            }
        }
        if !self.access_log.is_off() && self.http.is_none() {
            wrong("access_log", "is of HTTP requests, and the service has no http; leave it out".into());
        }
        if self.downlink && self.http.is_none() {
            wrong("downlink", "is of HTTP clients, and the service has no http; leave it out".into());
        }
        for error in secrets::mistakes(self) {
            wrong(&error.key, error.why);
        }
        let mut variables = BTreeMap::new();
        for namespace in &self.namespaces {
            if let Some(other) = variables.insert(url_variable(namespace), namespace) {
                let why = format!("{other:?} and {namespace:?} would both be {}", url_variable(namespace));
                wrong("namespaces", why);
            }
        }
        for (key, why) in self.sandbox.errors() {
            wrong(key, why);
        }
        for error in bounds::mistakes(self) {
            wrong(&error.key, error.why);
        }
        errors.extend(self.session.iter().flat_map(|session| session.validate(self)));
        errors.extend(EdgeCache::validate(self));
        errors.extend(Worker::validate(self));
        errors.extend(at_times::mistakes(self));
        errors.extend(backlog::mistakes(self));
        let mut wrong = |key: &str, why: String| errors.push(SpecError { key: key.into(), why });
        for (key, span) in [("stop.drain", self.stop.drain), ("start_timeout", self.start_timeout)] {
            if span > PATIENCE_MAX {
                let (span, max) = (text::format_span(span), text::format_span(PATIENCE_MAX));
                wrong(key, format!("{span} is over the limit of {max}"));
            }
        }
        if self.start_timeout == Span::ZERO {
            wrong("start_timeout", "0s leaves no time to start; write for example \"10s\"".into());
        }
        for (key, why) in self.allows().mistakes(self.http.is_some(), !self.tcp.is_empty()) {
            wrong(key, why);
        }
        for (key, why) in self.asks().mistakes(Asks::default(), self.http.is_some()) {
            wrong(key, why);
        }
        if let Some(why) = self.openapi.as_ref().and_then(|path| self.openapi_error(path)) {
            wrong("openapi", why);
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    fn openapi_error(&self, path: &str) -> Option<String> {
        let leaves = path.starts_with('/') || path.split('/').any(|part| matches!(part, ".." | "." | ""));
        if self.builtin.is_some() {
            return Some(
                "is a file of a folder that is deployed, and a built-in service has none; leave it out".into(),
            );
        }
        let fits = !leaves && !path.contains(['\0', '\\']) && path.len() <= OPENAPI_PATH_BYTES_MAX;
        (!fits).then(|| {
            format!("{path:?} is no file below the folder that is deployed; write for example \"openapi.json\"")
        })
    }

    pub fn asks(&self) -> Asks {
        Asks { ask: self.ask, ask_late: self.ask_late }
    }

    pub fn allows(&self) -> Allows {
        let Self { answer_timeout, idle_timeout, body_max, .. } = self;
        Allows { answer_timeout: *answer_timeout, idle_timeout: *idle_timeout, body_max: *body_max }
    }

    /// What a clone's health is asked for: the host that is declared for that, else that of its route, if it is one name.
    pub fn health_host(&self) -> Option<&str> {
        let of_route = self.http.as_ref().map(|http| http.host.as_str()).filter(|host| !host.contains('*'));
        self.health.as_ref()?.host.as_deref().or(of_route)
    }

    /// The longest time that any of its requests may take until its answer begins, where it says one.
    pub fn answer_timeout_max(&self) -> Option<Span> {
        self.partitions.iter().map(|partition| partition.answer_timeout).chain([self.answer_timeout]).flatten().max()
    }

    /// A key that programs before some level know nothing of, and that level: of the highest one.
    pub fn newer_key(&self) -> Option<(String, u32)> {
        if self.downlink {
            return Some(("downlink".to_owned(), crate::LEVEL_DOWNLINK));
        }
        if !self.queues.is_empty() {
            return Some(("queues".to_owned(), crate::LEVEL_QUEUES));
        }
        if self.profile.is_some() {
            return Some(("profile".to_owned(), crate::LEVEL_PROFILES));
        }
        if let Some(key) = bounds::key(self) {
            return Some((key.to_owned(), crate::LEVEL_BOUNDS));
        }
        if let Some(key) = at_times::key(self) {
            return Some((key.to_owned(), crate::LEVEL_RUNS));
        }
        let of_partition = |p: &Partition| p.asks().key().map(|key| format!("partition.{}.{key}", p.name));
        let own = self.asks().key().or(self.openapi.as_ref().map(|_| "openapi")).map(str::to_owned);
        if let Some(key) = own.or_else(|| self.partitions.iter().find_map(of_partition)) {
            return Some((key, crate::LEVEL_ASKS));
        }
        if let Some(key) = https::key(self) {
            return Some((key.to_owned(), crate::LEVEL_CERTIFICATES));
        }
        let of_level_6 = secrets::key(self).or_else(|| (!self.access_log.is_off()).then_some("access_log"));
        if let Some(key) = of_level_6 {
            return Some((key.to_owned(), crate::LEVEL_SECRETS));
        }
        let of_tcp = self.tcp.iter().any(|door| door.name.is_some()) || self.tcp.len() > 1;
        let newest = if of_tcp { Some("tcp") } else { self.certificates.then_some("certificates") };
        let newest = newest.map(|key| (key.to_owned(), LEVEL_DOORS));
        let of_worker = self.worker.as_ref().map(|_| ("worker".to_owned(), crate::LEVEL_WORKERS));
        let newest = of_worker.or_else(|| pipeline::newer_key(self)).or(newest);
        let newest = newest.or_else(|| self.cache.is_some().then(|| ("cache".into(), crate::CACHE_LEVEL)));
        newest.or_else(|| self.key_of_level_4().map(|key| (key, LEVEL)))
    }

    /// A key that came with [`LEVEL`].
    fn key_of_level_4(&self) -> Option<String> {
        let of_partition =
            |partition: &Partition| partition.allows().key().map(|key| format!("partition.{}.{key}", partition.name));
        let of_sandbox = (!self.sandbox.is_default()).then_some("sandbox");
        let of_health = self.health.as_ref().filter(|health| health.is_newer()).map(|_| "health");
        let own = self.allows().key().or(of_health).or(of_sandbox);
        own.map(str::to_owned).or_else(|| self.partitions.iter().find_map(of_partition))
    }

    /// Program and arguments of its clones, as their node starts them.
    pub fn command(&self) -> Vec<String> {
        let own = match &self.builtin {
            None => self.run.clone(),
            Some(name) => [OWN_PROGRAM, SERVE_BUILTIN, name].map(str::to_owned).to_vec(),
        };
        match &self.worker {
            Some(worker) => worker.command(own),
            None => own,
        }
    }

    /// The form kept in the root group.
    pub fn to_stored(&self) -> Bytes {
        serde_json::to_vec(self).expect("a declaration has only string keys").into()
    }

    /// Reads the kept form. Keys that a newer version wrote are skipped.
    pub fn from_stored(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let mut value: serde_json::Value = serde_json::from_slice(bytes)?;
        keep_known(&mut value, &SERVICE_KEYS);
        let inner: [(&str, &[&str]); 7] = [
            ("http", &HTTP_KEYS),
            ("stop", &STOP_KEYS),
            ("session", &SESSION_KEYS),
            ("cache", &CACHE_KEYS),
            ("sandbox", &SANDBOX_KEYS),
            ("limits", &BOUND_KEYS),
            ("worker", &WORKER_KEYS),
        ];
        for (key, known) in inner {
            if let Some(inner) = value.get_mut(key) {
                keep_known(inner, known);
            }
        }
        if let Some(tcp) = value.get_mut("tcp") {
            keep_tcp_known(tcp);
        }
        partition::keep_understood(&mut value);
        serde_json::from_value(value)
    }

    /// Whether its clones listen (and so can be probed).
    pub fn listens(&self) -> bool {
        self.health.is_some() || self.is_asked()
    }

    /// Whether anybody comes to it: the outside, or those for whom it works.
    fn is_asked(&self) -> bool {
        self.is_reached() || self.worker.is_some()
    }

    /// Whether the outside comes to it.
    pub fn is_reached(&self) -> bool {
        self.http.is_some() || !self.tcp.is_empty()
    }

    /// Where it is reached, for people: `*/`, `shop.example/cart`, `tcp 25 (smtp)`.
    pub fn reached_at(&self) -> Vec<String> {
        let http = self.http.iter().map(|http| format!("{}{}", http.host, http.path));
        http.chain(self.tcp.iter().map(TcpRoute::shown)).collect()
    }
}

/// All mistakes in a whole declaration: each of `ours` by itself, and what two services cannot both have. `namespaces` are
/// the declared ones. `ours` are those that somebody declares now, in his order: what one of them has in common with a
/// service that stands is his mistake. Keys begin with `service.NAME`.
pub fn validate_all(
    services: &BTreeMap<String, ServiceSpec>,
    namespaces: &BTreeSet<String>,
    ours: &[&str],
) -> Result<(), Vec<SpecError>> {
    let mut errors = Vec::new();
    let (mut routes, mut ports) = (BTreeMap::new(), BTreeMap::<u16, Vec<_>>::new());
    let others = services.iter().filter(|(name, _)| !ours.contains(&name.as_str()));
    for (name, spec) in others.chain(ours.iter().filter_map(|name| services.get_key_value(*name))) {
        let mut wrong = |key: &str, why: String| {
            let dot = if key.is_empty() { "" } else { "." };
            errors.push(SpecError { key: format!("service.{name}{dot}{key}"), why });
        };
        if let Some(why) = name_error(name) {
            wrong("", why);
        }
        // What stands was right for the program that took it; a stricter one refuses it when it is next declared.
        for error in spec.validate().err().into_iter().flatten().filter(|_| ours.contains(&name.as_str())) {
            wrong(&error.key, error.why);
        }
        if let Some(http) = &spec.http {
            let at = (bare_host(&http.host).to_ascii_lowercase(), http.path.trim_end_matches('/').to_owned());
            if let Some(other) = routes.insert(at, name) {
                let (host, path) = (&http.host, &http.path);
                let why = "is already where service";
                wrong("http", format!("{host}{path} {why} {other:?} is reached; choose another host or path"));
            }
        }
        for (key, port) in partition::tcp_ports(spec) {
            let others: &mut Vec<(&String, &ServiceSpec)> = ports.entry(port).or_default();
            if let Some(why) = others.iter().find_map(|(other, at)| partition::port_quarrel(port, spec, other, at)) {
                wrong(&key, why);
            }
            others.push((name, spec));
        }
        for partition in &spec.partitions {
            let Some(other) = partition.drop.as_ref().and_then(|drop| drop.service.as_ref()) else { continue };
            let key = format!("partition.{}.drop", partition.name);
            match services.get(other) {
                _ if other == name => wrong(&key, "is the service itself, which has no room then; name another".into()),
                Some(spec) if spec.http.is_some() => (),
                Some(_) => wrong(&key, format!("service {other:?} has no http and cannot answer; give it one")),
                None => wrong(&key, format!("service {other:?} is not declared")),
            }
        }
        let kept_in = spec.cache.as_ref().map(|cache| &cache.namespace);
        if let Some(unknown) = kept_in.filter(|name| !namespaces.contains(*name)) {
            wrong("cache.namespace", format!("{unknown:?} is not declared; it needs class = \"cache\""));
        }
        for unknown in spec.namespaces.iter().filter(|name| !namespaces.contains(*name)) {
            let known: Vec<_> = namespaces.iter().map(String::as_str).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            wrong("namespaces", format!("{unknown:?} is not declared; declared are: {known}"));
        }
    }
    if services.len() > SERVICES_MAX {
        let why = format!("{} services are over the limit of {SERVICES_MAX}", services.len());
        errors.push(SpecError { key: "service".into(), why });
    }
    let clones: u64 = services.values().map(|spec| u64::from(spec.standing().max)).sum();
    if clones > u64::from(CLONES_MAX) {
        let why = format!("{clones} clones in all are over the limit of {CLONES_MAX}");
        errors.push(SpecError { key: "service".into(), why });
    }
    let partitions: usize = services.values().map(|spec| spec.partitions.len()).sum();
    if partitions > PARTITIONS_MAX {
        let why = format!("{partitions} partitions in all are over the limit of {PARTITIONS_MAX}");
        errors.push(SpecError { key: "service".into(), why });
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// The environment variable that tells a clone how to reach a namespace: `COPPICE_CARTS_URL`.
pub fn url_variable(namespace: &str) -> String {
    let name: String =
        namespace.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    format!("COPPICE_{name}_URL")
}

/// Why a service may not be called so, if it may not.
pub fn name_error(name: &str) -> Option<String> {
    let fits = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    (!fits)
        .then(|| format!("a service's name has 1 to {NAME_BYTES_MAX} of a-z, 0-9 and inner -; {name:?} does not fit"))
}

/// Of a path that requests are matched by.
pub(crate) fn prefix_error(path: &str) -> Option<String> {
    let plain = canonical(path);
    if plain != path {
        return Some(format!("{path:?} is matched as {plain:?}; write it so"));
    }
    let is_clear = is_clear(path, str::to_owned);
    let why =
        || format!("{path:?} can be read in several ways; write it without dot segments, double and escaped slashes");
    path_error(path).or_else(|| (!is_clear).then(why))
}

pub(crate) fn path_error(path: &str) -> Option<String> {
    if !path.starts_with('/') {
        return Some(format!("{path:?} does not begin with /"));
    }
    let wrong = path.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '?' | '#'))?;
    Some(format!("{path:?} contains {wrong:?}; a path has no blanks, ? or # (percent-encode them)"))
}

pub(crate) fn host_error(host: &str) -> Option<String> {
    if host == "*" {
        return None;
    }
    let host = host.strip_prefix("*.").unwrap_or(host);
    if host.contains('*') {
        return Some(format!(
            "{host:?} has a * inside; write \"*\" for every host, \"*.example.com\" for all below a name, or one whole name"
        ));
    }
    let name = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let fits = match name {
        Some(six) => six.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')),
    };
    (!fits).then(|| format!("{host:?} is not a host name; write it without scheme and port, or \"*\" for every host"))
}

pub(crate) fn env_error(name: &str, value: &str) -> Option<String> {
    if name == "HOST" || name == "PORT" || name.starts_with("COPPICE_") {
        return Some("is given to the clone by its node and cannot be set".into());
    }
    let mistake = name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
    mistake.then(|| "a variable's name is not empty, has no =, and neither name nor value has a zero byte".into())
}

pub(crate) fn keep_known(value: &mut serde_json::Value, known: &[&str]) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|key, _| known.contains(&key.as_str()));
    }
}

/// Keys of each part, for reading what a newer version wrote. A test compares them with the types.
const SERVICE_KEYS: [&str; 43] = [
    "run",
    "builtin",
    "code",
    "version",
    "dir",
    "env",
    "secret_files",
    "before",
    "before_timeout",
    "schedule",
    "every",
    "catch_up",
    "rerun",
    "run_timeout",
    "clones",
    "wait",
    "health",
    "http",
    "https",
    "hsts",
    "tcp",
    "partition",
    "namespaces",
    "queues",
    "certificates",
    "session",
    "cache",
    "worker",
    "profile",
    "pipeline",
    "access_log",
    "downlink",
    "sandbox",
    "limits",
    "user",
    "stop",
    "start_timeout",
    "answer_timeout",
    "idle_timeout",
    "body_max",
    "ask",
    "ask_late",
    "openapi",
];
const HTTP_KEYS: [&str; 2] = ["host", "path"];
const STOP_KEYS: [&str; 2] = ["signal", "drain"];
const CACHE_KEYS: [&str; 1] = ["namespace"];
const SESSION_KEYS: [&str; 7] = ["namespace", "cookie", "same_site", "secure", "path", "max_bytes", "priority"];

fn clones_default() -> Size {
    CLONES_DEFAULT.into()
}
fn start_timeout_default() -> Span {
    START_TIMEOUT_DEFAULT
}
fn is_zero(number: &u32) -> bool {
    *number == 0
}
fn is_false(flag: &bool) -> bool {
    !flag
}
fn any_host() -> String {
    "*".into()
}
fn root_path() -> String {
    "/".into()
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
