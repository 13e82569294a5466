//! The services of a view as doors need them: which clones each has, which of them are for which partition, and what a request
//! passes before it gets to them.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::NodeId;
use clones::limits::LEAVE_ROUTES;
use clones::partition::{Affinity, Asked, DropHandler, Partition, Priority};
use clones::route::{Found, RouteClone, RoutePipeline, RouteProfile, RouteService, RouteSession, Routes, tcp_asked};
use clones::{AccessLog, Allows, Asks, RouteHttps};

use crate::affinity;
use crate::answers::ByCode;
use crate::demand::{Demands, GroupCount, Visit};
use crate::limits::{ANSWER_TIME, LEAVE_PART};
use crate::pace::Stays;
use crate::part::Part;
use crate::pool::{Prefers, Upstream};
use crate::spread::{Clones, GivenAway, Homing};
use crate::turnstile::{Front, Name, Turnstile, Turnstiles};

/// The services of a view, each with its clones. Replaced whole.
#[derive(Default)]
pub struct Table {
    pub routes: Arc<Routes>,
    /// Makes the tags of sticky cookies, on every node the same.
    secret: Arc<str>,
    /// In the order of `routes.services`.
    pub(crate) groups: Vec<Arc<Group>>,
    /// Clones that have left, and to which connections are open.
    gone: Vec<Arc<Upstream>>,
}

/// A service's clones, and which of them are for whom.
pub(crate) struct Group {
    pub(crate) all: Clones,
    /// Not reserved by a partition.
    open: Clones,
    /// Of each partition that reserves some.
    own: Vec<Option<Clones>>,
    /// What the manager is told of it.
    count: Arc<GroupCount>,
    /// Of each partition, and of the rest.
    pub(crate) doors: Vec<Arc<Doorway>>,
    /// The same for what comes by TCP; empty if nothing does.
    pub(crate) tcp_doors: Vec<Arc<Doorway>>,
    /// What of its requests leaves this node though it has clones here.
    pub(crate) given_away: Arc<GivenAway>,
}

/// What a partition's requests pass.
pub struct Doorway {
    pub turnstile: Arc<Turnstile>,
    pub part: Arc<Part>,
    pub class: u8,
    pub drop: Option<DropHandler>,
    pub session: Option<Arc<RouteSession>>,
    /// Whose profiles go with its requests.
    pub profile: Option<Arc<RouteProfile>>,
    /// The namespace in which answers are kept.
    pub cache: Option<Arc<str>>,
    /// What its answers pass.
    pub pipeline: Option<Arc<RoutePipeline>>,
    /// What is written of each of its requests.
    pub access_log: AccessLog,
    /// Its service is told how fast clients' lines are.
    pub downlink: bool,
    /// Whether plain HTTP is led to HTTPS, and for how long.
    pub https: RouteHttps,
    /// What the manager is told of its service.
    pub count: Arc<GroupCount>,
    /// What is said of its requests; for others the doors have their own numbers.
    pub allows: Allows,
    /// How many clones each of its requests may be asked of.
    pub asks: Asks,
    /// Where its answers are counted, once there was one.
    pub answers: OnceLock<Arc<ByCode>>,
}

impl Doorway {
    /// How long an answer may take to begin.
    pub fn answer_time(&self) -> Duration {
        self.allows.answer_timeout.map_or(ANSWER_TIME, Duration::from)
    }

    /// How long nothing may be said; `default` where nobody has declared it.
    pub fn idle_time(&self, default: Duration) -> Duration {
        self.allows.idle_timeout.map_or(default, Duration::from)
    }
}

/// What takes a request, as of some routes.
#[derive(Clone)]
pub struct Place {
    routes: Arc<Routes>,
    found: Found,
    /// By its name, and not by what is asked: it answers for another one.
    is_named: bool,
    pub doorway: Arc<Doorway>,
}

impl Place {
    /// An operator took it out of use.
    pub fn is_off(&self) -> bool {
        self.routes.is_off(self.found)
    }

    pub fn service_name(&self) -> &str {
        &self.routes.services[self.found.service].name
    }
}

/// Where a request may go, and where it would rather go.
pub struct Target<'a> {
    /// Those meant for it. If none of them will do, any other.
    pub(crate) meant: &'a Clones,
    pub(crate) all: &'a Clones,
    pub prefers: Prefers,
    pub(crate) homing: Homing,
}

impl Table {
    /// Takes over what is known of clones that stay. A service of which only loads have changed keeps its group: views come many times a
    /// second, and what is declared seldom changes.
    pub(crate) fn next(
        &self,
        routes: Arc<Routes>,
        secret: Arc<str>,
        turnstiles: &Turnstiles,
        demands: &Demands,
    ) -> Self {
        type Key<'a> = (&'a str, NodeId, SocketAddr, SocketAddr);
        let known = LazyCell::new(|| -> BTreeMap<Key<'_>, &Arc<Upstream>> {
            let all = self.groups.iter().flat_map(|group| group.all.iter()).chain(&self.gone);
            all.map(|u| ((u.name.as_str(), u.node, u.addr, u.peer), u)).collect()
        });
        let upstream = |clone: &RouteClone| {
            let before = known.get(&(clone.name.as_str(), clone.node, clone.addr, clone.peer));
            if let Some(upstream) = before.filter(|u| u.local == clone.local && secret == self.secret) {
                upstream.node_load.store(clone.node_load, Relaxed);
                upstream.stays.stay();
                return Arc::clone(upstream);
            }
            let stays = before.map(|upstream| Arc::clone(&upstream.stays)).unwrap_or_default();
            stays.stay();
            let mut upstream = Upstream::new(clone, &secret, demands);
            upstream.stays = stays;
            Arc::new(upstream)
        };
        let index = self.routes.services.iter().enumerate().map(|(index, of)| (of.name.as_str(), index));
        let index: BTreeMap<&str, usize> = index.collect();
        let group = |service: &RouteService| {
            let before =
                index.get(service.name.as_str()).map(|index| (&self.routes.services[*index], &self.groups[*index]));
            if let Some((was, group)) = before
                && secret == self.secret
                && was.differs_in_load_alone(service)
            {
                group.take_loads(service);
                return Arc::clone(group);
            }
            let clones: Vec<Arc<Upstream>> = service.clones.iter().map(upstream).collect();
            let some = |of: Vec<usize>| Clones::new(of.into_iter().map(|i| Arc::clone(&clones[i])).collect());
            let (open, own) = service.parted();
            let own: Vec<Option<Clones>> = own.into_iter().map(|own| own.map(some)).collect();
            let (open, all) = (some(open), Clones::new(clones.clone()));
            let count = demands.group(&service.name);
            let doors_of = |front| doors(front, service, &open, &own, turnstiles, &count);
            let (doors, tcp) = (doors_of(Front::Http), (!service.tcp.is_empty()).then(|| doors_of(Front::Tcp)));
            let given_away = before.map(|(_, group)| Arc::clone(&group.given_away)).unwrap_or_default();
            Arc::new(Group { count, doors, tcp_doors: tcp.unwrap_or_default(), open, own, all, given_away })
        };
        let groups: Vec<Arc<Group>> = routes.services.iter().map(group).collect();
        if self.has_groups(&groups) {
            let gone = self.gone.iter().filter(|upstream| !upstream.stays.is_empty()).cloned().collect();
            return Self { routes, secret, groups, gone };
        }
        let gone = self.see_off(&groups);
        turnstiles.keep(&routes.services);
        Self { routes, secret, groups, gone }
    }

    /// Whether these are its own groups, and all of them.
    pub(crate) fn has_groups(&self, groups: &[Arc<Group>]) -> bool {
        self.groups.len() == groups.len() && self.groups.iter().zip(groups).all(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// Clones that are not in these groups any more leave: their long connections end, one after the other. Returns those
    /// that have some.
    fn see_off(&self, next: &[Arc<Group>]) -> Vec<Arc<Upstream>> {
        let stay: BTreeSet<*const Stays> =
            next.iter().flat_map(|group| group.all.iter()).map(|upstream| Arc::as_ptr(&upstream.stays)).collect();
        let leaves = |upstream: &&Arc<Upstream>| !stay.contains(&Arc::as_ptr(&upstream.stays));
        for (service, group) in self.routes.services.iter().zip(&self.groups) {
            // Its program is killed when this time is over; a part of it is for the last ones' way.
            let time = Duration::from(LEAVE_ROUTES) + Duration::from(service.drain);
            group
                .all
                .iter()
                .filter(leaves)
                .for_each(|upstream| upstream.stays.leave(time * LEAVE_PART.0 / LEAVE_PART.1));
        }
        let all = self.groups.iter().flat_map(|group| group.all.iter()).chain(&self.gone);
        all.filter(leaves).filter(|upstream| !upstream.stays.is_empty()).cloned().collect()
    }

    /// Where what was found may go.
    pub fn target(&self, found: Found, asked: &Asked<'_>) -> Target<'_> {
        self.target_of(Front::Http, found, asked)
    }

    fn target_of(&self, front: Front, found: Found, asked: &Asked<'_>) -> Target<'_> {
        let group = &self.groups[found.service];
        let meant = found.partition.and_then(|index| group.own.get(index)?.as_ref()).unwrap_or(&group.open);
        let prefers = affinity::prefers(&self.routes.services[found.service], found, asked);
        let (doors, lasts) = match front {
            Front::Http => (&group.doors, false),
            Front::Tcp => (&group.tcp_doors, true),
        };
        let at_once = of_part(doors, found).turnstile.for_each(meant.len());
        let homing = Homing { given_away: group.given_away.now(), at_once, lasts };
        Target { meant, all: &group.all, prefers, homing }
    }

    /// What all nodes know and nobody else does; empty while this one does not.
    pub fn secret(&self) -> &Arc<str> {
        &self.secret
    }

    /// A request for what was found is here.
    pub fn enter(&self, found: Found) -> Visit {
        self.groups[found.service].count.enter()
    }

    /// What takes this.
    pub fn place(&self, asked: &Asked<'_>) -> Option<Place> {
        Some(self.place_of(self.routes.find(asked)?))
    }

    fn place_of(&self, found: Found) -> Place {
        let doorway = Arc::clone(of_part(&self.groups[found.service].doors, found));
        Place { routes: Arc::clone(&self.routes), found, is_named: false, doorway }
    }

    /// What takes a TCP connection.
    pub fn tcp_place(&self, port: u16, client: IpAddr, sni: Option<&str>) -> Option<Place> {
        let found = self.routes.find_tcp(port, client, sni)?;
        let doorway = Arc::clone(of_part(&self.groups[found.service].tcp_doors, found));
        Some(Place { routes: Arc::clone(&self.routes), found, is_named: false, doorway })
    }

    /// The rest of a service, by its name.
    pub fn service(&self, name: &str) -> Option<Place> {
        self.find_service(name).map(|found| Place { is_named: true, ..self.place_of(found) })
    }

    pub fn find_service(&self, name: &str) -> Option<Found> {
        let service = self.routes.services.iter().position(|service| service.name == name)?;
        Some(Found { service, partition: None })
    }

    /// What takes this: what was found for it, if that was in these routes; else it is looked for anew.
    pub fn find(&self, place: Option<&Place>, asked: &Asked<'_>) -> Option<Found> {
        match place {
            Some(place) if Arc::ptr_eq(&place.routes, &self.routes) => Some(place.found),
            Some(place) if place.is_named => self.find_service(place.service_name()),
            _ => self.routes.find(asked),
        }
    }

    pub fn tcp_target(&self, port: u16, client: IpAddr, sni: Option<&str>) -> Option<Target<'_>> {
        let found = self.routes.find_tcp(port, client, sni)?;
        Some(self.target_of(Front::Tcp, found, &tcp_asked(port, client)))
    }
}

impl Group {
    /// Of the same clones.
    fn take_loads(&self, service: &RouteService) {
        // As `Clones` has them: local ones first.
        let of = |local: bool| service.clones.iter().filter(move |clone| clone.local == local);
        for (upstream, clone) in self.all.iter().zip(of(true).chain(of(false))) {
            assert_eq!(upstream.name, clone.name, "a group keeps the order of its clones");
            upstream.node_load.store(clone.node_load, Relaxed);
        }
    }
}

/// The last one is the rest's.
fn of_part(doors: &[Arc<Doorway>], found: Found) -> &Arc<Doorway> {
    &doors[found.partition.unwrap_or(doors.len() - 1)]
}

/// What requests pass, of each partition and then of the rest. Those with the same clones pass the same turnstile.
fn doors(
    front: Front,
    service: &RouteService,
    open: &Clones,
    own: &[Option<Clones>],
    all: &Turnstiles,
    count: &Arc<GroupCount>,
) -> Vec<Arc<Doorway>> {
    let name = |partition: &str| Name { front, service: &service.name, partition }.to_string();
    let (of_open, part_of_rest) = all.of(&name(""), open.len());
    let session = || service.session.clone();
    let profile = || service.profile.clone();
    let cache = || service.cache.clone();
    let doorway = |(index, (partition, own)): (usize, (&Partition, &Option<Clones>))| {
        let name = name(&partition.name);
        let (turnstile, part) = match own {
            Some(own) => all.of(&name, own.len()),
            None => (Arc::clone(&of_open), all.part(&name)),
        };
        let (class, drop) = (partition.priority.0, partition.drop.clone());
        let allows = partition.allows().or(service.allows);
        // One that is kept with its clone is asked of that one.
        let asks = partition.asks().or(service.asks);
        let asks = if partition.affinity == Affinity::None { asks } else { Asks::default() };
        Arc::new(Doorway {
            turnstile,
            part,
            class,
            drop,
            session: session(),
            profile: profile(),
            cache: cache(),
            pipeline: service.partition_pipelines.get(&index).or(service.pipeline.as_ref()).cloned(),
            access_log: service.access_log,
            downlink: service.downlink,
            https: service.https,
            count: Arc::clone(count),
            allows,
            asks,
            answers: OnceLock::new(),
        })
    };
    let mut doors: Vec<_> = service.partitions.iter().zip(own).enumerate().map(doorway).collect();
    let class = Priority::default().0;
    doors.push(Arc::new(Doorway {
        turnstile: of_open,
        part: part_of_rest,
        class,
        drop: None,
        session: session(),
        profile: profile(),
        cache: cache(),
        pipeline: service.pipeline.clone(),
        access_log: service.access_log,
        downlink: service.downlink,
        https: service.https,
        count: Arc::clone(count),
        allows: service.allows,
        asks: service.asks,
        answers: OnceLock::new(),
    }));
    doors
}
