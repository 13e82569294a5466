//! Routes: which service and which of its partitions takes what the outside asks for, and its clones. Built by the node
//! from the declaration and from beacons, so possibly a moment old, and replaced whole; the edges only read them. How a
//! clone is chosen and reached is the edges' matter.
//!
//! Every service's address (`http`), with each of its partitions and then its rest, is an entry of one list; the first
//! that matches takes a request. Addresses stand in this order: whole names, then wildcards, the longer first, then
//! `*`; of one host the longer path first. So between services the more specific address decides, and inside a service
//! the order in its declaration. The list is never walked: a tree of host labels leads to trees of path segments, and
//! of the entries that these find only those are looked at whose header, suffix or hash may fit ([`Table`], `index.rs`). `explain` does walk it, and is what tests compare with.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use base::hash::FixedMap;
use base::{NodeId, Span};

use crate::access::AccessLog;
use crate::allows::Allows;
use crate::asks::Asks;
use crate::https::RouteHttps;
use crate::index::Index;
use crate::partition::{Asked, Fraction, Headers, Miss, Partition, reserved};
use crate::partition_check::door_at;
use crate::pipeline::{self, PipelineSpec};
use crate::profile::ProfileSpec;
use crate::session::SessionCookie;
use crate::spec::{HttpRoute, ServiceSpec, TcpRoute};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Routes {
    /// Changes with the declaration only, and is shared until then. Invariant: made from `services`.
    table: Arc<Table>,
    pub services: Vec<RouteService>,
}

/// A declared service and where it is reached. Without a serving clone it is listed with no clones: an edge may wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteService {
    pub name: String,
    pub http: Option<HttpRoute>,
    /// Every edge listens on their ports for it.
    pub tcp: Arc<[TcpRoute]>,
    /// The edge keeps its users' sessions.
    pub session: Option<Arc<RouteSession>>,
    /// Whose profiles go with its requests.
    pub profile: Option<Arc<RouteProfile>>,
    /// The namespace in which edges keep its answers.
    pub cache: Option<Arc<str>>,
    /// What its answers pass.
    pub pipeline: Option<Arc<RoutePipeline>>,
    /// ... and those of its partitions that name one of their own, by index.
    pub partition_pipelines: BTreeMap<usize, Arc<RoutePipeline>>,
    /// What edges write of each of its requests.
    pub access_log: AccessLog,
    /// Edges tell it how fast its clients' lines are.
    pub downlink: bool,
    /// Whether plain HTTP is led to HTTPS, and for how long.
    pub https: RouteHttps,
    pub partitions: Arc<[Partition]>,
    /// How many clones were declared; their numbers are below.
    pub wanted: u32,
    /// Clones that serve; starting, draining and dead ones are not here.
    pub clones: Vec<RouteClone>,
    /// What a clone that has left these routes and was told to stop still has before it is killed.
    pub drain: Span,
    /// An operator took it out of use: its requests are refused at once.
    pub is_off: bool,
    /// The same of single partitions, by index.
    pub partitions_off: Vec<usize>,
    /// What partitions say goes before.
    pub allows: Allows,
    /// The same.
    pub asks: Asks,
}

/// A pipeline, and what of its workers is in the keys of what they make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoutePipeline {
    pub name: String,
    pub spec: PipelineSpec,
    /// Of each step, and within it of each part that it gathers: changes with the worker's program.
    pub versions: Vec<Versions>,
}

/// Of a step's worker, and of those of its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versions {
    pub own: u64,
    pub parts: Vec<u64>,
}

/// What an edge must know to find who asks, and what that one wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteProfile {
    pub name: String,
    pub spec: ProfileSpec,
}

/// What an edge must know to keep a service's sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteSession {
    pub spec: SessionCookie,
    /// The cookie's path.
    pub path: String,
    /// How long a session lives after its last request, milliseconds.
    pub lease_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteClone {
    /// `shop/2`.
    pub name: String,
    pub node: NodeId,
    /// Whether it runs on the node that reads this.
    pub local: bool,
    /// Where it listens, on its own node.
    pub addr: SocketAddr,
    /// Its node's peer address, for a tunnel.
    pub peer: SocketAddr,
    /// How busy its machine is, 0 (idle) to 1000 (full).
    pub node_load: u16,
    /// Version of its program.
    pub version: u32,
}

impl RouteClone {
    /// What its node is asked for: while a clone is replaced, two there have one name.
    pub fn target(&self) -> String {
        if self.version == 0 { self.name.clone() } else { format!("{}@{}", self.name, self.version) }
    }
}

/// Who takes a request, by index into `Routes::services` and `RouteService::partitions`. `None` is the service's rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    pub service: usize,
    pub partition: Option<usize>,
}

/// The compiled routes: immutable, replaced whole.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// In the order in which they are asked.
    entries: Vec<Entry>,
    hosts: Hosts,
    /// Services that listen, by port, in the order in which they are asked.
    ports: BTreeMap<u16, Vec<Listening>>,
}

#[derive(PartialEq, Eq, Debug)]
struct Listening {
    service: usize,
    /// Pattern of the host that its clients ask for, if they have to.
    sni: Option<Box<str>>,
}

#[derive(PartialEq, Eq, Debug)]
struct Entry {
    found: Found,
    /// Lower case: a name, `*.` and the end of names, or `*`. The narrower of the address's and the partition's.
    host: Box<str>,
    /// Without a `/` at its end. The longer of the address's and the partition's.
    prefix: Box<str>,
}

/// A tree of host labels, last label first. Its lists hold numbers of entries, ascending.
#[derive(PartialEq, Eq, Debug, Default)]
struct Hosts {
    /// Paths of the host name that ends here.
    here: Paths,
    /// Paths of all host names that have more labels than this one (`*.` and this).
    below: Paths,
    labels: FixedMap<Box<str>, Hosts>,
}

#[derive(PartialEq, Eq, Debug, Default)]
struct Paths {
    /// While the table is made; then they are in the index.
    entries: Vec<u32>,
    index: Index,
    segments: FixedMap<Box<str>, Paths>,
}

/// One step of an explanation: an entry and why it does not match, if it does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step<'a> {
    pub found: Found,
    pub miss: Option<Miss<'a>>,
}

impl RoutePipeline {
    /// Of `services` those that do its steps.
    pub fn new(name: &str, spec: &PipelineSpec, services: &BTreeMap<String, ServiceSpec>) -> Self {
        let version = |step: &pipeline::Step| services.get(&step.worker).map_or(0, made_by);
        let versions =
            |step: &pipeline::Step| Versions { own: version(step), parts: step.gather.iter().map(version).collect() };
        Self { name: name.to_owned(), spec: spec.clone(), versions: spec.steps.iter().map(versions).collect() }
    }
}

/// What makes results differ: the program, not how many clones of it there are.
fn made_by(spec: &ServiceSpec) -> u64 {
    let ServiceSpec { code, version, dir, env, .. } = spec;
    let all = serde_json::to_vec(&(spec.command(), code, version, dir, env)).expect("strings become JSON");
    base::checksum::place_hash(&all)
}

impl RouteService {
    /// A declared service, without clones yet.
    pub fn new(name: &str, spec: &ServiceSpec) -> Self {
        Self {
            name: name.into(),
            http: spec.http.clone(),
            tcp: spec.tcp.as_slice().into(),
            session: None,
            profile: None,
            cache: spec.cache.as_ref().map(|cache| cache.namespace.as_str().into()),
            pipeline: None,
            partition_pipelines: BTreeMap::new(),
            access_log: spec.access_log,
            downlink: spec.downlink,
            https: RouteHttps::of(spec),
            partitions: spec.partitions.as_slice().into(),
            wanted: spec.standing().min,
            clones: Vec::new(),
            drain: spec.stop.drain,
            is_off: false,
            partitions_off: Vec::new(),
            allows: spec.allows(),
            asks: spec.asks(),
        }
    }

    /// All that the table is made of is the same.
    fn is_routed_like(&self, other: &Self) -> bool {
        self.name == other.name
            && self.http == other.http
            && (Arc::ptr_eq(&self.tcp, &other.tcp) || self.tcp == other.tcp)
            && (Arc::ptr_eq(&self.partitions, &other.partitions) || self.partitions == other.partitions)
    }

    /// Whether all is the same but how busy the machines of its clones are.
    pub fn differs_in_load_alone(&self, other: &Self) -> bool {
        let Self {
            name: _,
            http: _,
            tcp: _,
            session,
            profile,
            cache,
            pipeline,
            partition_pipelines,
            access_log,
            downlink,
            https,
            partitions: _,
            wanted,
            clones,
            drain,
            is_off,
            partitions_off,
            allows,
            asks,
        } = self;
        let is_same = |(own, other): (&RouteClone, &RouteClone)| {
            let RouteClone { name, node, local, addr, peer, node_load: _, version } = own;
            let place = (*node, *local, *addr, *peer, *version);
            *name == other.name && place == (other.node, other.local, other.addr, other.peer, other.version)
        };
        self.is_routed_like(other)
            && (session, profile) == (&other.session, &other.profile)
            && *cache == other.cache
            && (pipeline, partition_pipelines) == (&other.pipeline, &other.partition_pipelines)
            && (*access_log, *downlink, *https) == (other.access_log, other.downlink, other.https)
            && (*wanted, *drain, *is_off, *allows) == (other.wanted, other.drain, other.is_off, other.allows)
            && *asks == other.asks
            && *partitions_off == other.partitions_off
            && clones.len() == other.clones.len()
            && clones.iter().zip(&other.clones).all(is_same)
    }

    /// Ports on which its TCP clients may come: those of its doors, and without HTTP those of its partitions.
    pub fn tcp_ports(&self) -> impl Iterator<Item = u16> + '_ {
        let is_reached = !self.tcp.is_empty() && self.http.is_none();
        let of_partitions = self.partitions.iter().filter(move |_| is_reached).filter_map(|p| p.port);
        let is_other = |port: &u16| self.tcp.iter().all(|door| door.port != *port);
        self.tcp.iter().map(|door| door.port).chain(of_partitions.filter(is_other))
    }

    /// Indexes of the clones that no partition reserves, or of all if all are reserved; and of those that each reserves.
    /// A clone's number decides, so a death or a move changes nothing for the others.
    pub fn parted(&self) -> (Vec<usize>, Vec<Option<Vec<usize>>>) {
        let shares: Vec<Fraction> = self.partitions.iter().map(|p| p.share).collect();
        let ranges = reserved(self.wanted, &shares);
        let number = |clone: &RouteClone| clone.name.rsplit_once('/').and_then(|(_, n)| n.parse::<u32>().ok());
        let of = |test: &dyn Fn(Option<u32>) -> bool| -> Vec<usize> {
            (self.clones.iter().enumerate()).filter(|(_, clone)| test(number(clone))).map(|(i, _)| i).collect()
        };
        let is_in = |range: &Range<u32>, n: Option<u32>| n.is_some_and(|n| range.contains(&n));
        let own = ranges.iter().map(|r| (!r.is_empty()).then(|| of(&|n| is_in(r, n)))).collect();
        let first_open = ranges.last().map_or(0, |range| range.end);
        let open = of(&|n| n.is_none_or(|n| n >= first_open));
        (if open.is_empty() { of(&|_| true) } else { open }, own)
    }

    pub fn partition(&self, found: Found) -> Option<&Partition> {
        found.partition.map(|index| &self.partitions[index])
    }
}

impl Routes {
    pub fn new(services: Vec<RouteService>) -> Self {
        Self { table: Arc::new(Table::compile(&services)), services }
    }

    /// The routes that follow these. While only clones come and go, the table stays as it is.
    pub fn next(&self, services: Vec<RouteService>) -> Self {
        let is_same = self.services.len() == services.len()
            && self.services.iter().zip(&services).all(|(old, new)| old.is_routed_like(new));
        if is_same { Self { table: Arc::clone(&self.table), services } } else { Self::new(services) }
    }

    pub fn find(&self, asked: &Asked<'_>) -> Option<Found> {
        self.table.find(&self.services, asked)
    }

    /// The service that a TCP client is for, and its partition. `sni` is the host that it asks for, where one is wanted.
    pub fn find_tcp(&self, port: u16, client: IpAddr, sni: Option<&str>) -> Option<Found> {
        let sni = bare_host(sni.unwrap_or_default()).to_ascii_lowercase();
        let mut services = self.table.ports.get(&port)?.iter();
        let takes = |listening: &&Listening| listening.sni.as_deref().is_none_or(|pattern| host_matches(pattern, &sni));
        let service = services.find(takes)?.service;
        let asked = tcp_asked(port, client);
        let mut partitions = self.services[service].partitions.iter();
        let partition = partitions.position(|p| p.http_key().is_none() && p.miss(&asked).is_none());
        Some(Found { service, partition })
    }

    /// The same for a TCP client: who listens on its port, and the partitions of the one that it is for.
    pub fn explain_tcp(&self, port: u16, client: IpAddr, sni: Option<&str>) -> Vec<Step<'_>> {
        let found = self.find_tcp(port, client, sni);
        let mut steps = Vec::new();
        for Listening { service, sni } in self.table.ports.get(&port).into_iter().flatten() {
            let rest = Found { service: *service, partition: None };
            let Some(found) = found.filter(|found| found.service == *service) else {
                steps.push(Step { found: rest, miss: sni.as_deref().map(Miss::Host) });
                continue;
            };
            let asked = tcp_asked(port, client);
            let all = self.services[*service].partitions.iter().enumerate();
            let before = all.take_while(|(index, _)| found.partition.is_none_or(|partition| *index < partition));
            for (index, miss) in before.filter_map(|(index, partition)| Some((index, partition.miss(&asked)?))) {
                steps.push(Step { found: Found { partition: Some(index), ..rest }, miss: Some(miss) });
            }
            steps.push(Step { found, miss: None });
            break;
        }
        steps
    }

    /// How those who listen on this TCP port want its clients; what differs between them is of the first.
    pub fn tcp(&self, port: u16) -> Option<&TcpRoute> {
        door_at(&self.services[self.table.ports.get(&port)?.first()?.service].tcp, port)
    }

    /// The door of the service that was found for a client at this port.
    pub fn tcp_door(&self, port: u16, found: Found) -> Option<&TcpRoute> {
        door_at(&self.services[found.service].tcp, port)
    }

    /// Whether an operator took what was found out of use.
    pub fn is_off(&self, found: Found) -> bool {
        let service = &self.services[found.service];
        service.is_off || found.partition.is_some_and(|index| service.partitions_off.contains(&index))
    }

    /// Every entry in the order in which they are asked, each with its reason, up to the one that matches.
    pub fn explain(&self, asked: &Asked<'_>) -> Vec<Step<'_>> {
        let host = bare_host(asked.host).to_ascii_lowercase();
        let mut steps = Vec::new();
        for entry in &self.table.entries {
            let miss = if !host_matches(&entry.host, &host) {
                Some(Miss::Host(&entry.host))
            } else if !is_below(&entry.prefix, asked.path) {
                Some(Miss::Path(&entry.prefix))
            } else {
                self.services[entry.found.service].partition(entry.found).and_then(|p| p.miss(asked))
            };
            let is_end = miss.is_none();
            steps.push(Step { found: entry.found, miss });
            if is_end {
                break;
            }
        }
        steps
    }
}

/// What is known of a TCP client.
pub fn tcp_asked(port: u16, client: IpAddr) -> Asked<'static> {
    struct Nothing;
    impl Headers for Nothing {
        fn any(&self, _: &str, _: &mut dyn FnMut(&[u8]) -> bool) -> bool {
            false
        }
    }
    Asked { port, host: "", path: "", method: "", client, headers: &Nothing }
}

impl Hosts {
    /// When all entries are there. `of` gives the conditions of one.
    fn index<'a>(&mut self, of: &impl Fn(u32) -> Option<&'a Partition>) {
        self.here.index(of);
        self.below.index(of);
        self.labels.values_mut().for_each(|hosts| hosts.index(of));
    }
}

impl Paths {
    fn index<'a>(&mut self, of: &impl Fn(u32) -> Option<&'a Partition>) {
        self.index = Index::new(std::mem::take(&mut self.entries).into_iter().map(|entry| (entry, of(entry))));
        self.segments.values_mut().for_each(|paths| paths.index(of));
    }
}

impl Table {
    fn compile(services: &[RouteService]) -> Self {
        let mut order: Vec<(usize, &HttpRoute, String)> = services
            .iter()
            .enumerate()
            .filter_map(|(index, service)| Some((index, service.http.as_ref()?)))
            .map(|(index, http)| (index, http, bare_host(&http.host).to_ascii_lowercase()))
            .collect();
        order.sort_by_key(|(index, http, host)| {
            (host_rank(host), Reverse(http.path.trim_end_matches('/').len()), host.clone(), *index)
        });
        let mut table = Table::default();
        for (service, http, host) in order {
            let partitions = services[service].partitions.iter().enumerate().map(|(i, p)| (Some(i), Some(p)));
            for (partition, of) in partitions.chain([(None, None)]) {
                let narrower = of.and_then(|p| p.host.as_deref()).map(|host| bare_host(host).to_ascii_lowercase());
                let deeper = of.and_then(|p| p.path.as_deref()).unwrap_or(&http.path);
                table.add(Entry {
                    found: Found { service, partition },
                    host: narrower.unwrap_or_else(|| host.clone()).into(),
                    prefix: deeper.trim_end_matches('/').into(),
                });
            }
        }
        let Table { entries, hosts, .. } = &mut table;
        hosts.index(&|entry| {
            let found = entries[entry as usize].found;
            services[found.service].partition(found)
        });
        for (index, service) in services.iter().enumerate() {
            for port in service.tcp_ports() {
                let sni = door_at(&service.tcp, port).and_then(|door| door.sni.as_deref());
                let sni = sni.map(|sni| bare_host(sni).to_ascii_lowercase().into());
                table.ports.entry(port).or_default().push(Listening { service: index, sni });
            }
        }
        for services in table.ports.values_mut() {
            services.sort_by_key(|listening| (listening.sni.as_deref().map(host_rank), listening.service));
        }
        table
    }

    fn add(&mut self, entry: Entry) {
        let mut hosts = &mut self.hosts;
        for label in labels(&entry.host).take_while(|label| *label != "*") {
            hosts = hosts.labels.entry(label.into()).or_default();
        }
        let mut paths = if entry.host.starts_with('*') { &mut hosts.below } else { &mut hosts.here };
        for segment in segments(&entry.prefix) {
            paths = paths.segments.entry(segment.into()).or_default();
        }
        paths.entries.push(u32::try_from(self.entries.len()).expect("partitions are limited to some thousands"));
        self.entries.push(entry);
    }

    fn find(&self, services: &[RouteService], asked: &Asked<'_>) -> Option<Found> {
        let host = bare_host(asked.host);
        let host = match host.bytes().any(|b| b.is_ascii_uppercase()) {
            true => Cow::Owned(host.to_ascii_lowercase()),
            false => Cow::Borrowed(host),
        };
        let mut best = u32::MAX;
        let mut hosts = &self.hosts;
        let mut labels = labels(&host);
        loop {
            let label = labels.next();
            let paths = if label.is_some() { &hosts.below } else { &hosts.here };
            best = self.first_below(paths, services, asked, best);
            let Some(deeper) = label.and_then(|label| hosts.labels.get(label)) else { break };
            hosts = deeper;
        }
        self.entries.get(best as usize).map(|entry| entry.found)
    }

    /// The first entry along a path that matches, if it stands before `best`; else `best`.
    fn first_below(&self, mut paths: &Paths, services: &[RouteService], asked: &Asked<'_>, mut best: u32) -> u32 {
        let mut segments = segments(asked.path);
        loop {
            best = paths.index.first(asked, best, |entry| {
                let found = self.entries[entry as usize].found;
                services[found.service].partition(found).is_none_or(|p| p.miss(asked).is_none())
            });
            match segments.next().and_then(|segment| paths.segments.get(segment)) {
                Some(deeper) => paths = deeper,
                None => return best,
            }
        }
    }
}

/// Labels, last first.
fn labels(host: &str) -> impl Iterator<Item = &str> {
    host.rsplit('.')
}

/// Segments of a path or prefix; what does not begin with `/` (`*`, for one) has none.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('/').into_iter().flat_map(|rest| rest.split('/'))
}

/// Whole names first, then the longer ends of names.
fn host_rank(host: &str) -> (u8, Reverse<usize>) {
    match host {
        "*" => (2, Reverse(0)),
        _ if host.starts_with('*') => (1, Reverse(host.len())),
        _ => (0, Reverse(0)),
    }
}

/// Whether a pattern in lower case takes a host in lower case: `*.example` takes any name that has more labels.
pub(crate) fn host_matches(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => host.ends_with(end),
        None => pattern == host,
    }
}

/// Whether all hosts of one pattern are hosts of another.
pub(crate) fn host_covers(outer: &str, inner: &str) -> bool {
    outer == inner || outer.strip_prefix('*').is_some_and(|end| inner.strip_prefix('*').unwrap_or(inner).ends_with(end))
}

/// A host without its port and without the dot that ends a full name.
pub(crate) fn bare_host(host: &str) -> &str {
    let name = if host.starts_with('[') {
        host.find(']').map_or(host, |end| &host[..=end])
    } else {
        host.split_once(':').map_or(host, |(name, _)| name)
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether a path is below a prefix, up to a segment border: `/api` is not for `/apiary`.
pub(crate) fn is_below(prefix: &str, path: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || prefix.is_empty())
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
