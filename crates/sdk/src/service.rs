//! The program: listens where its node says, answers `/health`, and on the stop signal finishes what it has.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::Next;
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::functions::{Args, Functions};
use crate::limits::*;
use crate::pressure::Watch;
use crate::shown;
use crate::stage::{Stage, carry};
use crate::tcp::{Came, Conn, Doors, Leave};
use crate::{
    Cache, FunctionError, Given, Group, Linear, Node, Objects, Profiles, Services, Sessions, Soft, Sql, StartError,
};

/// Where the SDK answers that the program runs: `health = "/health"` in the service's declaration. A program with a better
/// check of its own puts it elsewhere and declares that.
pub const HEALTH: &str = "/health";

/// The name under which the stage of all requests is shown.
const REQUESTS: &str = "requests";

/// A clone of a service.
#[derive(Clone)]
pub struct Service {
    given: Arc<Given>,
    node: Node,
    watch: Option<Arc<Watch>>,
    stage: Option<Stage>,
    shown: BTreeMap<String, shown::Figures>,
    functions: Option<Functions>,
}

impl Service {
    /// What the environment says. The error names the variable that is missing or wrong.
    pub fn from_env() -> Result<Self, StartError> {
        Self::of(Given::from_env()?)
    }

    pub fn of(given: Given) -> Result<Self, StartError> {
        let (node, given, shown) = (Node::of(&given)?, Arc::new(given), BTreeMap::new());
        Ok(Self { node, given, watch: None, stage: None, shown, functions: None })
    }

    pub fn given(&self) -> &Given {
        &self.given
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The sessions of a namespace of class `session` that the service names.
    pub fn sessions<T>(&self, namespace: &str) -> Result<Sessions<T>, StartError> {
        Ok(Sessions::new(self.node.clone(), namespace, self.given.token(namespace)?))
    }

    /// The values of a namespace of class `linear` that the service names.
    pub fn linear<T>(&self, namespace: &str) -> Result<Linear<T>, StartError> {
        Ok(Linear::new(self.node.clone(), namespace, self.given.token(namespace)?))
    }

    /// The objects of a namespace of class `object` that the service names.
    pub fn objects(&self, namespace: &str) -> Result<Objects, StartError> {
        Ok(Objects::new(self.node.clone(), namespace, self.given.token(namespace)?))
    }

    /// The entries of a namespace of class `cache` that the service names.
    pub fn cache(&self, namespace: &str) -> Result<Cache, StartError> {
        Ok(Cache::new(self.node.clone(), namespace, self.given.token(namespace)?))
    }

    /// The values of a namespace of class `soft` that the service names.
    pub fn soft(&self, namespace: &str) -> Result<Soft, StartError> {
        Ok(Soft::new(self.node.clone(), namespace, self.given.token(namespace)?))
    }

    /// Other services of the cluster, by their names.
    pub fn services(&self) -> Services {
        Services::new(self.node.clone(), &self.given)
    }

    /// The database of a namespace of class `sql` that the service names.
    pub fn sql(&self, namespace: &str) -> Result<Sql, StartError> {
        Ok(Sql::new(self.node.clone(), namespace, self.given.token(namespace)?))
    }

    /// The profiles of this name, which are declared to be kept in a namespace of the service.
    pub fn profiles<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        namespace: &str,
    ) -> Result<Profiles<T>, StartError> {
        Ok(Profiles::new(self.node.clone(), name, self.given.token(namespace)?))
    }

    /// The clones of this service as a group.
    pub fn group(&self) -> Result<Group, StartError> {
        Group::of(&self.given, self.node.clone())
    }

    /// Tells when requests say that the service is hard pressed (true), and when it no longer is (false), so that it may do
    /// less for each meanwhile. For single requests there is [`crate::pressure`].
    pub fn on_overload(mut self, tell: impl Fn(bool) + Send + Sync + 'static) -> Self {
        self.watch = Some(Arc::new(Watch::new(tell)));
        self
    }

    /// Carries all requests through a [`Stage`]: so many at a time as the program can do without making them wait, which is found out; a
    /// queue before that; and past it `503` at once. The edge hears of it with the answers and sends less, and so does who
    /// asked to be told by [`Service::on_overload`]. A request is under way until its answer begins, so a program whose
    /// answers wait for something to happen (long polls) is better off without. `/health` passes by. It is shown as `requests`
    /// ([`Service::shows`]).
    ///
    /// ```no_run
    /// # async fn run(routes: sdk::axum::Router) -> Result<(), sdk::StartError> {
    /// let service = sdk::Service::from_env()?.staged(sdk::Stage::new());
    /// service.on_overload(|is_high| eprintln!("overloaded: {is_high}")).serve(routes).await
    /// # }
    /// ```
    pub fn staged(mut self, stage: Stage) -> Self {
        self.stage = Some(stage.clone());
        self.shows(REQUESTS, &stage)
    }

    /// Shows a stage of the program under this name (up to 32 letters, digits, `-` and `_`; up to 8 stages): its figures of each
    /// second are in the monitor under the service, and in `/metrics` of the node. [`Stage::show`] then has no second of its own.
    ///
    /// ```no_run
    /// # let service = sdk::Service::from_env().unwrap();
    /// let database = sdk::Stage::new();
    /// let service = service.shows("database", &database);
    /// ```
    pub fn shows(mut self, name: &str, stage: &Stage) -> Self {
        self.shown.insert(name.to_owned(), shown::of_stage(stage));
        self
    }

    /// The same for something that counts by itself. Names are those of [`Shown`](crate::Shown), and `crashes_total`,
    /// `withheld_total` and `withheld` of a worker; others are not shown.
    pub fn shows_figures(
        mut self,
        name: &str,
        figures: impl Fn() -> Vec<(&'static str, u64)> + Send + Sync + 'static,
    ) -> Self {
        self.shown.insert(name.to_owned(), Arc::new(figures));
        self
    }

    /// Offers a function for values of the `linear` namespaces that declare `functions = "this service"`: from the value before, if
    /// there is one, and the arguments it makes the value after (None: it is removed) and what the caller gets. Who calls it
    /// uses [`Linear::apply`], as for functions that are built in, or any other way to apply.
    ///
    /// ```no_run
    /// # let service = sdk::Service::from_env().unwrap();
    /// let service = service.function("withdraw", |held: Option<u64>, args| {
    ///     let left = held.unwrap_or(0).checked_sub(args.get(0)?).ok_or("not enough")?;
    ///     Ok((Some(left), left))
    /// });
    /// ```
    ///
    /// It must be pure: it may be run several times for one call, on any clone, and what it gave be thrown away. So it looks
    /// at nothing but the value and the arguments, changes nothing, and is quick. If it fails or panics the value stays as it was,
    /// and the caller is told why.
    pub fn function<T, R>(
        mut self,
        name: &str,
        function: impl Fn(Option<T>, &Args) -> Result<(Option<T>, R), FunctionError> + Send + Sync + 'static,
    ) -> Self
    where
        T: Serialize + DeserializeOwned,
        R: Serialize,
    {
        self.functions.get_or_insert_default().add(name, function);
        self
    }

    /// Serves until the stop signal (TERM or INT), then takes no new connection, answers the requests that it has, and
    /// returns. `/health` answers 200.
    pub async fn serve(self, app: Router) -> Result<(), StartError> {
        let stop = stop_signal()?;
        self.serve_until(app, stop).await
    }

    /// Serves connections of TCP doors until the stop signal; then takes no new connection, tells those that are open one after the
    /// other to say goodbye ([`Drain`](crate::Drain)), and returns when they have ended, or their time is over. The service's
    /// declaration gives its doors names, or has `send_proxy = "v2"`: what comes without the node's word of it is closed. `/health`
    /// answers over the same port.
    ///
    /// ```no_run
    /// use sdk::Conn;
    /// use sdk::tokio::io::AsyncWriteExt;
    ///
    /// async fn greet(conn: Conn) {
    ///     let Conn { mut stream, peer, door, .. } = conn;
    ///     let _ = stream.write_all(format!("hello {peer}, this is {door}\r\n").as_bytes()).await;
    /// }
    ///
    /// # async fn run() -> Result<(), sdk::StartError> {
    /// sdk::Service::from_env()?.serve_tcp(greet).await
    /// # }
    /// ```
    pub async fn serve_tcp<F>(self, handler: impl Fn(Conn) -> F + Send + Sync + 'static) -> Result<(), StartError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.serve_both(Router::new(), handler).await
    }

    /// The same for a service that is reached over HTTP, too.
    pub async fn serve_both<F>(
        self,
        app: Router,
        handler: impl Fn(Conn) -> F + Send + Sync + 'static,
    ) -> Result<(), StartError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = stop_signal()?;
        self.serve_both_until(app, handler, stop).await
    }

    /// The same, until `stop` ends.
    pub async fn serve_both_until<F>(
        self,
        app: Router,
        handler: impl Fn(Conn) -> F + Send + Sync + 'static,
        stop: impl Future<Output = ()>,
    ) -> Result<(), StartError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.run(app, Some(Doors::new(handler)), stop).await
    }

    /// The same, until `stop` ends.
    pub async fn serve_until(self, app: Router, stop: impl Future<Output = ()>) -> Result<(), StartError> {
        self.run(app, None, stop).await
    }

    async fn run(
        self,
        mut app: Router,
        doors: Option<Doors>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), StartError> {
        let at = self.given.listen;
        let listener =
            listen(at).map_err(|e| StartError(format!("cannot listen on {at}, which is HOST and PORT: {e}")))?;
        if let Some(stage) = self.stage {
            let watch = self.watch.clone();
            app = app.layer(axum::middleware::from_fn(move |request: Request, next: Next| {
                carry(stage.clone(), watch.clone(), request, next)
            }));
        }
        let mut app = Router::new().route(HEALTH, get(|| async { "well\n" })).fallback_service(app);
        // Whoever comes by a door could ask for them.
        if let Some(functions) = self.functions.filter(|_| doors.is_none()) {
            app = app.merge(functions.router(self.given.token_of_service.clone()));
        }
        if let Some(watch) = self.watch {
            app = app.layer(axum::middleware::from_fn(move |request: Request, next: Next| {
                watch.saw(request.headers());
                next.run(request)
            }));
        }
        let tells = shown::tell(self.node.clone(), Arc::clone(&self.given), self.shown);
        let (stopping, stopped) = watch::channel(None);
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let accepts = Accepts { app, doors, stopped, room: Arc::clone(&room) };
        tokio::select! {
            () = accepts.all(&listener) => (),
            () = tells => (),
            () = stop => (),
        }
        drop(listener);
        let drain = self.given.drain.unwrap_or(DRAIN_MAX);
        let (part, of) = GOODBYES_PART;
        let _ = stopping.send(Some(Leave { since: Instant::now(), within: drain * part / of }));
        // Every connection holds a place until it has ended.
        if timeout(drain, room.acquire_many(CONNECTIONS_MAX as u32)).await.is_err() {
            tracing::warn!("connections were still under way {drain:?} after the stop signal");
        }
        Ok(())
    }
}

/// Listens with room for a crowd: the library's own choice is 128 connections, and a burst through the edge has more.
fn listen(at: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

/// Ends at TERM or INT.
fn stop_signal() -> Result<impl Future<Output = ()>, StartError> {
    let cannot = |e: std::io::Error| StartError(format!("the stop signal cannot be waited for: {e}"));
    let mut term = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut int = signal(SignalKind::interrupt()).map_err(cannot)?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => (),
            _ = int.recv() => (),
        }
    })
}

/// What takes connections.
struct Accepts {
    app: Router,
    doors: Option<Doors>,
    stopped: watch::Receiver<Option<Leave>>,
    room: Arc<Semaphore>,
}

impl Accepts {
    async fn all(&self, listener: &TcpListener) {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Over the limit it is closed at once: better than a queue nobody sees.
            let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else { continue };
            let _ = stream.set_nodelay(true);
            let (app, doors, stopped) = (self.app.clone(), self.doors.clone(), self.stopped.clone());
            tokio::spawn(async move {
                let _place = place;
                let came = match doors {
                    Some(doors) => doors.greet(stream, stopped.clone()).await,
                    None => Came::Http(stream),
                };
                match came {
                    Came::Tcp(serving) => serving.await,
                    Came::Http(stream) => serve_http(stream, app, stopped).await,
                    Came::Nothing => (),
                }
            });
        }
    }
}

async fn serve_http(stream: TcpStream, app: Router, mut stopped: watch::Receiver<Option<Leave>>) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME_MAX);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app)).with_upgrades();
    tokio::pin!(connection);
    // It ends in an error whenever a client goes away; that is no news.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(Option::is_some) => (),
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

const _: () =
    assert!(DRAIN_MAX.as_secs() > Duration::from_secs(5).as_secs(), "longer than what a service drains by default");
