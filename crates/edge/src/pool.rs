//! The clones that doors may choose from, taken from the node's view, with what this edge knows of each: its own
//! requests in flight, failures of a moment ago, idle connections. Also how a clone on another node is reached (`Dial`,
//! which the wiring implements by a tunnel). Which request goes where, and what a failure means, is the doors' matter.

use std::cell::LazyCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use base::NodeId;
use base::checksum::place_hash;
use clones::route::RouteClone;
use futures_util::future::BoxFuture;
use node::View;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};

use crate::affinity;
use crate::demand::{CloneCount, Demands};
use crate::http::line::Idle;
use crate::limits::{AVOID, CONNECT_TIME, OUTLIER_MAX, PANIC_PART};
use crate::outlier::Outlier;
use crate::pace::{Manner, Stay, Stays};
use crate::table::{Table, Target};
use crate::tunnels::{TunnelStream, Tunnels};
use crate::turnstile::Turnstiles;

/// A stream in both directions: a tunnel, in tests a socket.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Reaches clones on other nodes.
pub trait Dial: Send + Sync {
    /// Opens an encrypted stream to the clone `target` (`shop/2`) of `node`, whose peer address is `peer`.
    ///
    /// # Errors
    /// Nothing was sent to the clone; another one may be tried.
    fn dial(&self, node: NodeId, peer: SocketAddr, target: &str) -> BoxFuture<'static, io::Result<Box<dyn Duplex>>>;
}

/// One clone as this edge sees it. Lives as long as it is in the routes, whatever else changes in them.
pub struct Upstream {
    pub name: String,
    /// What its node is asked for.
    target: String,
    pub node: NodeId,
    pub local: bool,
    pub addr: SocketAddr,
    pub peer: SocketAddr,
    /// Its place for consistent hashing.
    pub hash: u64,
    /// What a sticky cookie says of it.
    pub tag: String,
    pub node_load: AtomicU16,
    pub in_flight: AtomicU32,
    /// Connections of TCP that ask for something, and to which it has not said a word.
    pub unheard: AtomicU32,
    /// Milliseconds since the pool began until which it is avoided.
    avoid_until_ms: AtomicU64,
    outlier: Outlier,
    pub idle: Idle,
    pub(crate) stays: Arc<Stays>,
    /// What the manager is told of it.
    pub count: Arc<CloneCount>,
}

/// Counts as in flight at its clone until dropped.
pub struct InFlight(Arc<Upstream>);

/// Counts as one that waits for its clone's first word until dropped.
pub struct Unheard(Arc<Upstream>);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Prefers {
    /// The least loaded.
    Any,
    /// Where this hash belongs.
    Hash(u64),
    /// The one with this tag.
    Tag(Vec<u8>),
}

pub struct Pool {
    table: ArcSwap<Table>,
    changed: Notify,
    began: Instant,
    /// Milliseconds since it began until which some clone is left alone. Mostly none is, and nobody looks at each.
    outlier_until_ms: AtomicU64,
    dial: Arc<dyn Dial>,
    tunnels: Tunnels,
    turnstiles: Arc<Turnstiles>,
    demands: Arc<Demands>,
}

/// A stream to a clone.
pub enum Stream {
    Local(TcpStream),
    Tunnel(TunnelStream),
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        self.0.unheard.fetch_sub(1, Relaxed);
    }
}

impl InFlight {
    /// It may last: when the clone leaves, or this edge whose long connections `of_edge` are, its turn to go comes.
    pub fn stay(&self, of_edge: &Arc<Stays>, manner: Manner) -> Stay {
        Stay::new([&self.0.stays, of_edge], manner)
    }
}

impl Upstream {
    pub fn new(clone: &RouteClone, secret: &str, demands: &Demands) -> Self {
        Self {
            hash: place(&clone.name),
            tag: affinity::tag(secret, &clone.name),
            name: clone.name.clone(),
            target: clone.target(),
            node: clone.node,
            local: clone.local,
            addr: clone.addr,
            peer: clone.peer,
            node_load: AtomicU16::new(clone.node_load),
            in_flight: AtomicU32::new(0),
            unheard: AtomicU32::new(0),
            avoid_until_ms: AtomicU64::new(0),
            outlier: Outlier::default(),
            idle: Idle::default(),
            stays: Arc::default(),
            count: demands.clone_count(&clone.name, clone.version, clone.addr),
        }
    }

    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(Arc::clone(self))
    }

    /// A connection is to wait for its first word.
    pub fn begin_unheard(self: &Arc<Self>) -> Unheard {
        self.unheard.fetch_add(1, Relaxed);
        Unheard(Arc::clone(self))
    }
}

/// A clone's place for consistent hashing: by its name alone, so it keeps its keys when it moves or starts anew.
pub fn place(clone: &str) -> u64 {
    place_hash(clone.as_bytes())
}

impl Pool {
    /// A pool that follows the view until the view's owner is gone.
    pub fn start(
        view: watch::Receiver<Arc<View>>,
        dial: Arc<dyn Dial>,
        turnstiles: Arc<Turnstiles>,
        demands: Arc<Demands>,
    ) -> Arc<Self> {
        let (table, changed) = (ArcSwap::default(), Notify::new());
        let (began, outlier_until_ms) = (Instant::now(), AtomicU64::new(0));
        let tunnels = Tunnels::default();
        let pool = Arc::new(Self { table, changed, began, outlier_until_ms, dial, tunnels, turnstiles, demands });
        pool.take(&view.borrow());
        tokio::spawn(follow(Arc::downgrade(&pool), view));
        pool
    }

    fn take(&self, view: &View) {
        let old = self.table.load();
        if !Arc::ptr_eq(&old.routes, &view.routes) {
            let next =
                old.next(Arc::clone(&view.routes), Arc::clone(&view.admin_token), &self.turnstiles, &self.demands);
            self.table.store(Arc::new(next));
            self.changed.notify_waiters();
        }
    }

    pub fn table(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }

    /// Waits until the routes change, `limit` at most.
    pub async fn wait_for_change(&self, limit: Duration) {
        // A timeout is as good as a change: the caller looks again.
        let _ = tokio::time::timeout(limit, self.changed.notified()).await;
    }

    /// It failed: avoided for a moment if there is another. Its idle connections are not trusted any more.
    pub fn failed(&self, upstream: &Upstream) {
        upstream.avoid_until_ms.store(self.now_ms() + AVOID.as_millis() as u64, Relaxed);
        upstream.idle.clear();
    }

    /// It answered, or will not answer any more.
    pub fn answered(&self, upstream: &Upstream, failed: bool) {
        let now_ms = if failed { self.now_ms() } else { 0 };
        if upstream.outlier.answered(failed, now_ms) {
            self.outlier_until_ms.fetch_max(now_ms + OUTLIER_MAX.as_millis() as u64, Relaxed);
            self.demands.left_alone.fetch_add(1, Relaxed);
            tracing::info!(clone = %upstream.name, "fails request after request: it is left alone for a while");
        }
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// A clone for the next request: none of the `tried` ones; one that failed a moment ago, is left alone, or is meant for others,
    /// only if there is no other.
    pub fn choose(&self, target: &Target<'_>, tried: &[Arc<Upstream>]) -> Option<Arc<Upstream>> {
        // Mostly nobody asks what time it is.
        let now_ms = LazyCell::new(|| self.now_ms());
        let untried = |u: &&Arc<Upstream>| !tried.iter().any(|t| Arc::ptr_eq(t, u));
        let is_outlier = |u: &Arc<Upstream>| u.outlier.is(*now_ms);
        let is_after = |until_ms: u64| until_ms > 0 && until_ms > *now_ms;
        let minds = is_after(self.outlier_until_ms.load(Relaxed))
            && target.meant.iter().filter(|u| is_outlier(u)).count() * PANIC_PART < target.meant.len();
        let is_well = |u: &&Arc<Upstream>| !(is_after(u.avoid_until_ms.load(Relaxed)) || minds && is_outlier(u));
        let Target { meant, all, prefers, homing } = target;
        let is_good = |u: &Arc<Upstream>| untried(&u) && is_well(&u);
        meant
            .pick(prefers, *homing, is_good)
            .or_else(|| all.pick(prefers, *homing, is_good))
            .or_else(|| meant.pick(prefers, *homing, |u| untried(&u)))
            .or_else(|| all.pick(prefers, *homing, |u| untried(&u)))
            .map(Arc::clone)
    }

    /// So many clones as there are of those for a request that are well, the fastest first; in place of the first the one that
    /// requests go to that are asked of one.
    pub fn choose_some(&self, target: &Target<'_>, most: usize, first: Option<&Arc<Upstream>>) -> Vec<Arc<Upstream>> {
        let now_ms = self.now_ms();
        let is_well = |u: &Arc<Upstream>| u.avoid_until_ms.load(Relaxed) <= now_ms && !u.outlier.is(now_ms);
        let is_other = |u: &Arc<Upstream>| first.is_none_or(|first| !Arc::ptr_eq(first, u));
        let others = target.meant.fastest(most - usize::from(first.is_some()), |u| is_well(u) && is_other(u));
        first.cloned().into_iter().chain(others).collect()
    }

    /// A new stream to a clone.
    ///
    /// # Errors
    /// The clone was not reached in time; it has seen nothing.
    pub async fn connect(&self, upstream: &Upstream) -> io::Result<Stream> {
        let connecting = async {
            if upstream.local {
                let stream = TcpStream::connect(upstream.addr).await?;
                stream.set_nodelay(true)?;
                return Ok(Stream::Local(stream));
            }
            let stream = self.dial.dial(upstream.node, upstream.peer, &upstream.target).await?;
            Ok(Stream::Tunnel(self.tunnels.hold(upstream.node, stream)))
        };
        tokio::time::timeout(CONNECT_TIME, connecting)
            .await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to connect within 1 s")))
    }
}

async fn follow(pool: std::sync::Weak<Pool>, mut view: watch::Receiver<Arc<View>>) {
    loop {
        // Once a second at least: idle connections end then.
        let changed = tokio::time::timeout(Duration::from_secs(1), view.changed()).await;
        let Some(pool) = pool.upgrade() else { return };
        if matches!(changed, Ok(Err(_))) {
            return;
        }
        let now = Arc::clone(&view.borrow_and_update());
        pool.take(&now);
        // Also what was opened while its node died.
        pool.tunnels.end(&now);
        for group in &pool.table().groups {
            group.given_away.turn(pool.now_ms(), &group.all);
            group.all.iter().for_each(|upstream| upstream.idle.sweep());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use clones::partition::{Affinity, HashOn, Partition};
    use clones::route::{Found, RouteService, Routes, tcp_asked};
    use clones::spec::{ServiceSpec, TcpRoute};

    use super::*;
    use crate::limits::{ADMISSION, OUTLIER_AFTER};
    use crate::spread::Homing;

    struct Nobody;
    impl Dial for Nobody {
        fn dial(&self, _: NodeId, _: SocketAddr, _: &str) -> BoxFuture<'static, io::Result<Box<dyn Duplex>>> {
            Box::pin(async { Err(io::Error::other("there is nobody")) })
        }
    }

    fn clone(name: &str, local: bool) -> RouteClone {
        let addr = SocketAddr::from(([127, 0, 0, 1], name.len() as u16));
        RouteClone { name: name.into(), node: NodeId(1), local, addr, peer: addr, node_load: 0, version: 0 }
    }

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn view(partitions: Vec<Partition>, clones: Vec<RouteClone>) -> View {
        let mut spec = ServiceSpec::new(["s"]);
        (spec.tcp, spec.partitions, spec.clones) = (vec![TcpRoute::on(1)], partitions, (clones.len() as u32).into());
        let service = RouteService { clones, ..RouteService::new("s", &spec) };
        View { routes: Arc::new(Routes::new(vec![service])), admin_token: "secret".into(), ..View::default() }
    }

    fn pool(clones: Vec<RouteClone>) -> Pool {
        parted(Vec::new(), clones)
    }

    fn parted(partitions: Vec<Partition>, clones: Vec<RouteClone>) -> Pool {
        let began = Instant::now();
        let (table, turnstiles, demands) = (ArcSwap::default(), Arc::default(), Arc::default());
        let (changed, dial) = (Notify::new(), Arc::new(Nobody));
        let outlier_until_ms = AtomicU64::new(0);
        let tunnels = Tunnels::default();
        let pool = Pool { table, changed, began, outlier_until_ms, dial, tunnels, turnstiles, demands };
        pool.take(&view(partitions, clones));
        pool
    }

    fn chosen(pool: &Pool, tried: &[Arc<Upstream>]) -> Option<Arc<Upstream>> {
        at(pool, 1, tried)
    }

    /// For a request.
    fn asked(pool: &Pool, tried: &[Arc<Upstream>]) -> Option<Arc<Upstream>> {
        let found = Found { service: 0, partition: None };
        pool.choose(&pool.table().target(found, &tcp_asked(1, CLIENT)), tried)
    }

    fn at(pool: &Pool, port: u16, tried: &[Arc<Upstream>]) -> Option<Arc<Upstream>> {
        pool.choose(&pool.table().tcp_target(port, CLIENT, None).unwrap(), tried)
    }

    #[test]
    fn reserved_clones_serve_their_partition_alone_until_no_other_is_left() {
        let own = Partition { port: Some(7), share: "50%".parse().unwrap(), ..Partition::new("own") };
        let pool = parted(vec![own], (0..4).map(|n| clone(&format!("s/{n}"), true)).collect());
        let names = |port, tried: &[Arc<Upstream>]| -> BTreeSet<String> {
            (0..100).filter_map(|_| Some(at(&pool, port, tried)?.name.clone())).collect()
        };
        assert_eq!(names(7, &[]), ["s/0", "s/1"].map(String::from).into());
        assert_eq!(names(1, &[]), ["s/2", "s/3"].map(String::from).into());
        let all: Vec<_> = pool.table().groups[0].all.iter().cloned().collect();
        assert_eq!(names(7, &all[..2]), ["s/2", "s/3"].map(String::from).into(), "better than none");
        assert_eq!(names(1, &all[2..]), ["s/0", "s/1"].map(String::from).into(), "better than none");
        assert_eq!(names(1, &all), BTreeSet::new());
    }

    #[test]
    fn a_hash_keeps_to_its_clone_until_that_has_much_more_than_the_others() {
        let by = Partition { affinity: Affinity::Hash(HashOn::Client), ..Partition::new("by-client") };
        let pool = parted(vec![by], (0..4).map(|n| clone(&format!("s/{n}"), n == 0)).collect());
        let home = chosen(&pool, &[]).unwrap();
        assert!((0..50).all(|_| chosen(&pool, &[]).unwrap().name == home.name));
        let busy: Vec<_> = (0..2).map(|_| home.begin()).collect();
        let second = chosen(&pool, &[]).unwrap();
        assert!(second.name != home.name && chosen(&pool, &[]).unwrap().name == second.name);
        drop(busy);
        assert_eq!(chosen(&pool, &[]).unwrap().name, home.name);
        pool.failed(&home);
        assert_eq!(chosen(&pool, &[]).unwrap().name, second.name, "the next in its order");
    }

    #[test]
    fn a_tag_leads_to_its_clone_and_nobody_else_can_make_one() {
        let pool = pool((0..4).map(|n| clone(&format!("s/{n}"), true)).collect());
        let table = pool.table();
        let clones = &table.groups[0].all;
        let all: Vec<_> = clones.iter().collect();
        let to = |tag: &str| Target {
            meant: clones,
            all: clones,
            prefers: Prefers::Tag(tag.into()),
            homing: Homing { given_away: 0, at_once: 64, lasts: false },
        };
        assert!((0..50).all(|_| pool.choose(&to(&all[2].tag), &[]).unwrap().name == "s/2"));
        assert!(all.iter().all(|u| !u.tag.contains("s/") && u.tag.len() == 16));
        assert_ne!(affinity::tag("secret", "s/2"), affinity::tag("other", "s/2"));
        let strays: BTreeSet<_> = (0..100).map(|_| pool.choose(&to("x"), &[]).unwrap().name.clone()).collect();
        assert!(strays.len() > 1, "{strays:?}");
    }

    #[test]
    fn a_clone_that_fails_again_and_again_is_left_alone_unless_half_of_them_do() {
        let pool = pool((0..4).map(|n| clone(&format!("s/{n}"), true)).collect());
        let all: Vec<_> = pool.table().groups[0].all.iter().cloned().collect();
        let names = || -> BTreeSet<String> { (0..200).map(|_| chosen(&pool, &[]).unwrap().name.clone()).collect() };
        let fail = |u: &Upstream| (0..OUTLIER_AFTER).for_each(|_| pool.answered(u, true));
        fail(&all[0]);
        assert_eq!(names(), ["s/1", "s/2", "s/3"].map(String::from).into());
        fail(&all[1]);
        assert_eq!(names().len(), 4, "half of them: it is not the clones");
        assert_eq!(pool.demands.left_alone.load(Relaxed), 2);
    }

    #[test]
    fn a_local_clone_is_chosen_until_it_is_loaded() {
        let pool = pool(vec![clone("s/far", false), clone("s/near", true)]);
        let near = asked(&pool, &[]).unwrap();
        assert!((0..100).all(|_| asked(&pool, &[]).unwrap().name == "s/near"));
        let busy: Vec<_> = (0..ADMISSION.first).map(|_| near.begin()).collect();
        assert!((0..100).all(|_| asked(&pool, &[]).unwrap().name == "s/far"));
        drop(busy);
        assert_eq!(asked(&pool, &[]).unwrap().name, "s/near");
        // It has learned that a clone does one at a time: a second one waits here while the others have nothing to do.
        pool.table().groups[0].doors[0].turnstile.learned(2);
        let _busy = near.begin();
        assert!((0..100).all(|_| asked(&pool, &[]).unwrap().name == "s/far"));
    }

    #[test]
    fn a_connection_stays_here_whatever_a_clone_here_has_until_many_wait_for_its_first_word() {
        let pool = pool(vec![clone("s/far", false), clone("s/near", true)]);
        let near = chosen(&pool, &[]).unwrap();
        let far = chosen(&pool, &[Arc::clone(&near)]).unwrap();
        let all = |name: &str| (0..200).all(|_| chosen(&pool, &[]).unwrap().name == name);
        let _open: Vec<_> = (0..2 * ADMISSION.first).map(|_| near.begin()).collect();
        for (clone, ms) in [(&near, 100), (&far, 1)] {
            clone.count.begin().ended_at(false, Instant::now() + Duration::from_millis(ms));
        }
        assert!(all("s/near"), "it has many, and is slower");
        let mut unheard: Vec<_> = (0..ADMISSION.first).map(|_| near.begin_unheard()).collect();
        assert!(all("s/far"), "it is overloaded");
        unheard.pop();
        assert!(all("s/near"));
        pool.failed(&near);
        assert!(all("s/far"), "it fails");
    }

    #[test]
    fn who_would_be_served_sooner_elsewhere_goes_there() {
        let pool = pool(vec![clone("s/far", false), clone("s/near", true)]);
        let near = asked(&pool, &[]).unwrap();
        let far = asked(&pool, &[Arc::clone(&near)]).unwrap();
        let took = |clone: &Upstream, ms| {
            let begun = clone.count.begin();
            begun.ended_at(false, Instant::now() + Duration::from_millis(ms));
        };
        let part = |name: &str| (0..1000).filter(|_| asked(&pool, &[]).unwrap().name == name).count();
        took(&near, 100);
        assert_eq!(part("s/far"), 0, "nobody is before it");
        let _busy = near.begin();
        assert_eq!(part("s/far"), 1000, "nobody knows what it takes there");
        took(&far, 90);
        assert!((1..50).contains(&part("s/far")), "a look now and then: a tunnel costs");
        (0..40).for_each(|_| took(&far, 40));
        assert_eq!(part("s/far"), 1000, "here there is a queue");
        let _more = far.begin();
        assert_eq!(part("s/far"), 0, "and there as well");
    }

    #[test]
    fn a_clone_that_failed_is_avoided_if_there_is_another_and_a_tried_one_never_comes_again() {
        let pool = pool(vec![clone("s/far", false), clone("s/near", true)]);
        let near = chosen(&pool, &[]).unwrap();
        pool.failed(&near);
        let far = chosen(&pool, &[]).unwrap();
        assert_eq!(far.name, "s/far");
        assert_eq!(chosen(&pool, &[Arc::clone(&far)]).unwrap().name, "s/near", "better than none");
        assert!(chosen(&pool, &[far, near]).is_none());
    }

    #[test]
    fn a_view_that_differs_in_loads_alone_makes_nothing_anew() {
        let parts: Vec<Partition> = (0..5_000)
            .map(|n| Partition { path_contains: Some(format!("/{n}/")), ..Partition::new(format!("p{n}")) })
            .collect();
        let own = Partition { port: Some(7), share: "50%".parse().unwrap(), ..Partition::new("own") };
        let declared = view([vec![own], parts].concat(), vec![clone("s/0", false), clone("s/1", true)]);
        let pool = pool(Vec::new());
        pool.take(&declared);
        let before = pool.table.load_full();
        let names: Vec<String> = pool.turnstiles.each().map(|(name, _)| name).collect();
        assert_eq!(names, ["s", "s/own", "tcp:s", "tcp:s/own"], "a turnstile is for who has clones of his own");

        let mut loaded = declared.routes.services.clone();
        (loaded[0].clones[0].node_load, loaded[0].clones[1].node_load) = (500, 200);
        pool.take(&View { routes: Arc::new(declared.routes.next(loaded.clone())), ..declared.clone() });
        let after = pool.table.load_full();
        assert!(after.has_groups(&before.groups));
        let loads = |table: &Table| table.groups[0].all.iter().map(|u| u.node_load.load(Relaxed)).collect::<Vec<_>>();
        assert_eq!(loads(&after), [200, 500], "the local one first");

        loaded[0].is_off = true;
        pool.take(&View { routes: Arc::new(declared.routes.next(loaded)), ..declared.clone() });
        assert!(!pool.table.load_full().has_groups(&after.groups));
        pool.take(&view(Vec::new(), vec![clone("s/1", true)]));
        let names: Vec<String> = pool.turnstiles.each().map(|(name, _)| name).collect();
        assert_eq!(names, ["s", "tcp:s"], "what is not declared any more is forgotten");
    }

    #[test]
    fn what_is_known_of_a_clone_survives_a_change_of_routes() {
        let pool = pool(vec![clone("s/1", true), clone("s/22", true)]);
        let one = Arc::clone(pool.table().groups[0].all.iter().next().unwrap());
        pool.take(&view(Vec::new(), vec![clone("s/333", true), clone("s/1", true)]));
        let table = pool.table();
        let now: Vec<_> = table.groups[0].all.iter().collect();
        assert!(Arc::ptr_eq(now[1], &one) && now[0].name == "s/333");
        assert!(table.tcp_target(2, CLIENT, None).is_none());
    }
}
