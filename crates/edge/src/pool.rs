//! The clones that doors may choose from, taken from the node's view, with what this edge knows of each: its own
//! requests in flight, failures of a moment ago, idle connections. Also how a clone on another node is reached (`Dial`,
//! which the wiring implements by a tunnel). Which request goes where, and what a failure means, is the doors' matter.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use base::{NodeId, Rng};
use clones::route::{RouteClone, RouteService, RouteSession, Routes};
use flow::balance::pick_two;
use futures_util::future::BoxFuture;
use node::View;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};

use crate::http::limits::{AVOID, CONNECT_TIME, LOCAL_LOADED, NODE_LOADED};
use crate::http::line::Idle;

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
    pub node: NodeId,
    pub local: bool,
    pub addr: SocketAddr,
    pub peer: SocketAddr,
    node_load: AtomicU16,
    in_flight: AtomicU32,
    /// Milliseconds since the pool began until which it is avoided.
    avoid_until_ms: AtomicU64,
    pub idle: Idle,
}

/// Counts as in flight at its clone until dropped.
pub struct InFlight(Arc<Upstream>);

/// The services of a view, each with its clones. Replaced whole.
#[derive(Default)]
pub struct Table {
    pub routes: Arc<Routes>,
    /// In the order of `routes.services`.
    clones: Vec<Vec<Arc<Upstream>>>,
}

pub struct Pool {
    table: ArcSwap<Table>,
    changed: Notify,
    began: Instant,
    dial: Arc<dyn Dial>,
}

/// A stream to a clone.
pub enum Stream {
    Local(TcpStream),
    Tunnel(Box<dyn Duplex>),
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl Upstream {
    fn new(clone: &RouteClone) -> Self {
        Self {
            name: clone.name.clone(),
            node: clone.node,
            local: clone.local,
            addr: clone.addr,
            peer: clone.peer,
            node_load: AtomicU16::new(clone.node_load),
            in_flight: AtomicU32::new(0),
            avoid_until_ms: AtomicU64::new(0),
            idle: Idle::default(),
        }
    }

    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(Arc::clone(self))
    }
}

impl Table {
    /// Takes over what is known of clones that stay.
    fn next(&self, routes: Arc<Routes>) -> Self {
        type Key<'a> = (&'a str, NodeId, SocketAddr, SocketAddr);
        let known: BTreeMap<Key<'_>, &Arc<Upstream>> =
            self.clones.iter().flatten().map(|u| ((u.name.as_str(), u.node, u.addr, u.peer), u)).collect();
        let upstream = |clone: &RouteClone| match known.get(&(clone.name.as_str(), clone.node, clone.addr, clone.peer))
        {
            Some(upstream) if upstream.local == clone.local => {
                upstream.node_load.store(clone.node_load, Relaxed);
                Arc::clone(upstream)
            }
            _ => Arc::new(Upstream::new(clone)),
        };
        let clones = routes.services.iter().map(|s| s.clones.iter().map(upstream).collect()).collect();
        Self { routes, clones }
    }

    /// The clones of one of this table's own services.
    fn clones_of(&self, service: &RouteService) -> &[Arc<Upstream>] {
        let index = self.routes.services.iter().position(|s| std::ptr::eq(s, service));
        index.map_or(&[], |index| &self.clones[index])
    }

    pub fn of_http(&self, host: &str, path: &str) -> Option<&[Arc<Upstream>]> {
        self.routes.find(host, path).map(|service| self.clones_of(service))
    }

    /// How sessions of the service for this host and path are kept, if the edge keeps them.
    pub fn session(&self, host: &str, path: &str) -> Option<Arc<RouteSession>> {
        self.routes.find(host, path)?.session.clone()
    }

    pub fn of_tcp(&self, port: u16) -> Option<&[Arc<Upstream>]> {
        self.routes.find_tcp(port).map(|service| self.clones_of(service))
    }
}

impl Pool {
    /// A pool that follows the view until the view's owner is gone.
    pub fn start(view: watch::Receiver<Arc<View>>, dial: Arc<dyn Dial>) -> Arc<Self> {
        let pool = Arc::new(Self { table: ArcSwap::default(), changed: Notify::new(), began: Instant::now(), dial });
        pool.take(&view.borrow().routes);
        tokio::spawn(follow(Arc::downgrade(&pool), view));
        pool
    }

    fn take(&self, routes: &Arc<Routes>) {
        let old = self.table.load();
        if !Arc::ptr_eq(&old.routes, routes) {
            self.table.store(Arc::new(old.next(Arc::clone(routes))));
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

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// A clone for the next request: none of the `tried` ones; one that failed a moment ago only if there is no other.
    pub fn choose(&self, clones: &[Arc<Upstream>], tried: &[Arc<Upstream>]) -> Option<Arc<Upstream>> {
        let now_ms = self.now_ms();
        let untried = |u: &&Arc<Upstream>| !tried.iter().any(|t| Arc::ptr_eq(t, u));
        let is_well = |u: &&Arc<Upstream>| u.avoid_until_ms.load(Relaxed) <= now_ms;
        pick(clones.iter().filter(untried).filter(is_well))
            .or_else(|| pick(clones.iter().filter(untried)))
            .map(Arc::clone)
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
            Ok(Stream::Tunnel(self.dial.dial(upstream.node, upstream.peer, &upstream.name).await?))
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
        let routes = Arc::clone(&view.borrow_and_update().routes);
        pool.take(&routes);
        for upstream in pool.table().clones.iter().flatten() {
            upstream.idle.sweep();
        }
    }
}

thread_local! {
    static CHANCE: RefCell<Rng> = RefCell::new(Rng::new(RandomState::new().hash_one(0)));
}

/// The less loaded of two random local clones. Only when that one is loaded, too, of two random ones anywhere: a clone
/// elsewhere costs a tunnel, and a death elsewhere cannot hurt who does not go there.
fn pick<'a>(clones: impl Iterator<Item = &'a Arc<Upstream>> + Clone) -> Option<&'a Arc<Upstream>> {
    let score = |u: &Upstream| {
        let load = u64::from(u.node_load.load(Relaxed));
        // Own requests count as they are; a node's report is old and about all it does, so it tips the scale only.
        u64::from(u.in_flight.load(Relaxed)) * 64 + load
    };
    let is_loaded =
        |u: &Upstream| u.in_flight.load(Relaxed) >= LOCAL_LOADED || u.node_load.load(Relaxed) >= NODE_LOADED;
    CHANCE.with_borrow_mut(|rng| {
        let local = two(clones.clone().filter(|u| u.local), rng, score);
        match local {
            Some(local) if !is_loaded(local) => Some(local),
            _ => two(clones, rng, score),
        }
    })
}

fn two<'a>(
    mut clones: impl Iterator<Item = &'a Arc<Upstream>> + Clone,
    rng: &mut Rng,
    score: impl Fn(&Upstream) -> u64,
) -> Option<&'a Arc<Upstream>> {
    let load = |index| clones.clone().nth(index).map_or(u64::MAX, |u| score(u));
    let index = pick_two(rng, clones.clone().count(), load)?;
    clones.nth(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;
    impl Dial for Nobody {
        fn dial(&self, _: NodeId, _: SocketAddr, _: &str) -> BoxFuture<'static, io::Result<Box<dyn Duplex>>> {
            Box::pin(async { Err(io::Error::other("there is nobody")) })
        }
    }

    fn clone(name: &str, local: bool) -> RouteClone {
        let addr = SocketAddr::from(([127, 0, 0, 1], name.len() as u16));
        RouteClone { name: name.into(), node: NodeId(1), local, addr, peer: addr, node_load: 0 }
    }

    fn routes(clones: Vec<RouteClone>) -> Arc<Routes> {
        let service = RouteService { name: "s".into(), http: None, tcp: Some(1), session: None, clones };
        Arc::new(Routes { services: vec![service] })
    }

    fn pool(clones: Vec<RouteClone>) -> Pool {
        let began = Instant::now();
        let pool = Pool { table: ArcSwap::default(), changed: Notify::new(), began, dial: Arc::new(Nobody) };
        pool.take(&routes(clones));
        pool
    }

    fn chosen(pool: &Pool, tried: &[Arc<Upstream>]) -> Option<Arc<Upstream>> {
        pool.choose(pool.table().of_tcp(1).unwrap(), tried)
    }

    #[test]
    fn a_local_clone_is_chosen_until_it_is_loaded() {
        let pool = pool(vec![clone("s/far", false), clone("s/near", true)]);
        let near = chosen(&pool, &[]).unwrap();
        assert!((0..100).all(|_| chosen(&pool, &[]).unwrap().name == "s/near"));
        let busy: Vec<_> = (0..LOCAL_LOADED).map(|_| near.begin()).collect();
        assert!((0..100).all(|_| chosen(&pool, &[]).unwrap().name == "s/far"));
        drop(busy);
        assert_eq!(chosen(&pool, &[]).unwrap().name, "s/near");
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
    fn what_is_known_of_a_clone_survives_a_change_of_routes() {
        let pool = pool(vec![clone("s/1", true), clone("s/22", true)]);
        let one = Arc::clone(&pool.table().of_tcp(1).unwrap()[0]);
        pool.take(&routes(vec![clone("s/333", true), clone("s/1", true)]));
        let table = pool.table();
        let now = table.of_tcp(1).unwrap();
        assert!(Arc::ptr_eq(&now[1], &one) && now[0].name == "s/333");
        assert!(table.of_tcp(2).is_none());
    }
}
