//! The JSON API of a node, for people, scripts, the command line, scrapers, and programs that reach namespaces by HTTP.
//!
//! - `guard.rs`: who may come in at all (DNS rebinding, other sites' pages), and who holds which token.
//! - `places.rs`: who may have how many connections and streams.
//! - `address.rs`: parts of a path, and what stands behind `?`. `class.rs`: what one class of namespaces alone has.
//! - `offers/`: what each class has at the addresses that several share.
//! - `status.rs`: the view, once or as a stream; `/livez`, `/readyz`. `metrics.rs`: the same for Prometheus.
//! - `shown.rs`: what of the view is shown to whom.
//! - `declare.rs`: apply, export, join tokens, new cookie keys: the operator's token is needed.
//! - `code.rs`: folders that are deployed, versions (operator).
//! - `dump.rs`: namespaces as streams, out and in (operator).
//! - `linear.rs`: what class `linear` offers: conditions, functions, keys in order. `watch.rs`: its changes as a stream;
//!   `changes.rs`: what all streams of changes have in common.
//! - `soft.rs`, `soft_watch.rs`: the same of class `soft`, by named functions, and its changes from a cursor on.
//!   `soft_held.rs`: what is there as long as a connection.
//! - `catalog.rs`: which services there are, where, and what they say of themselves.
//! - `queues.rs`: queues of jobs, of class `linear`.
//! - `certificates.rs`: certificates of the cluster (operator); with their keys, for clones that were declared to have them.
//! - `objects.rs`: objects of an owner, of class `object`; `coming.rs`: room for those on their way in; `objects_watch.rs`: changes.
//! - `members.rs`: a service's clones as a group: who they are, who leads, messages, barriers.
//! - docs/openapi.json describes all of it for programs, and is served.
//! - `secrets.rs`: secrets of services (operator), and all of them sealed for a backup.
//! - `logs.rs`: what clones have printed (operator). `run.rs`: a command that is run once, as a clone (operator).
//! - `program.rs`: another program for nodes (operator).
//! - `operate.rs`: nodes restart, leave and are drained, services are disabled (operator); namespaces are shown.
//! - `explain.rs`: which service and partition takes a request, and why.
//! - `values.rs`: values of a namespace by key, or by cookie: the namespace's token is needed; or by the handle that a
//!   program got with its request.
//! - `problem.rs`: every error is `{"error": "...", "type": "..."?, "retry_after_ms": n?, "version": N?}`.
//!
//! It runs on the many-threaded runtime and asks the node by message ([`Backend`]).

use std::io;
use std::sync::Arc;

pub use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use node::View;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::timeout;

pub use crate::ask::{Backend, Gone, Minted};
use crate::limits::HANDSHAKE_TIME;
use crate::tls::Certs;
use crate::{Functions, Meter};

mod address;
pub mod asks;
mod cache;
mod catalog;
mod certificates;
mod changes;
mod class;
mod clone_metrics;
mod code;
mod coming;
mod declare;
pub mod dump;
mod explain;
pub(crate) mod guard;
pub mod limits;
mod linear;
pub mod logs;
mod many;
mod members;
mod metrics;
mod objects;
mod objects_watch;
mod offers;
mod operate;
mod places;
mod problem;
mod process;
mod profiles;
pub mod program;
mod queues;
mod run;
mod secrets;
mod shown;
mod soft;
mod soft_held;
mod soft_watch;
mod sql;
mod stages;
mod stall;
mod status;
mod values;
mod versions;
mod watch;

pub use places::Room;
pub use problem::Problem;
pub use shown::Sight;

use asks::Asks;
use coming::Coming;
use places::{Door, Streams, Visitor};

/// What every handler has.
#[derive(Clone)]
pub struct Api {
    backend: Arc<dyn Backend>,
    meter: Arc<Meter>,
    functions: Arc<Functions>,
    streams: Arc<Streams>,
    watchers: Arc<Streams>,
    member_streams: Arc<Streams>,
    uploads: Arc<Semaphore>,
    copies: Arc<Semaphore>,
    dumps: Arc<Semaphore>,
    coming: Arc<Coming>,
    takers: Arc<queues::Takers>,
    /// Who shows no token learns nothing but whether the node lives.
    is_private: bool,
}

impl Api {
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.backend.watch().borrow())
    }
}

/// Whether a request has the operator's token, as this node knows it.
pub fn is_operators(headers: &http::HeaderMap, view: &View) -> bool {
    guard::operator(headers, view).is_ok()
}

/// All of the API. `pages` (the monitor) is served beside it, behind the same guard.
pub fn router(backend: Arc<dyn Backend>, meter: Arc<Meter>, functions: Arc<Functions>, pages: Router) -> Router {
    router_with(backend, meter, functions, pages, false)
}

/// [`router`] that answers nobody without a token, if it `is_private`.
pub fn router_with(
    backend: Arc<dyn Backend>,
    meter: Arc<Meter>,
    functions: Arc<Functions>,
    pages: Router,
    is_private: bool,
) -> Router {
    let api = Api {
        backend,
        meter,
        functions,
        streams: Streams::new(limits::STREAMS_MAX, limits::OPERATOR_STREAMS_MAX),
        // Who has no token watches no namespace.
        watchers: Streams::new(0, limits::WATCHERS_MAX),
        member_streams: Streams::new(limits::STREAMS_MAX, limits::MEMBER_STREAMS_MAX),
        uploads: Arc::new(Semaphore::new(limits::UPLOADS_MAX)),
        copies: Arc::new(Semaphore::new(limits::UPLOADS_MAX)),
        dumps: Arc::new(Semaphore::new(limits::DUMPS_MAX)),
        coming: Arc::default(),
        takers: Arc::default(),
        is_private,
    };
    Router::new()
        .route("/v1/openapi.json", get(openapi))
        .route("/v1/status", get(status::status))
        .route("/v1/events", get(status::events))
        .route("/v1/catalog", get(catalog::all))
        .route("/v1/catalog/{service}/openapi", get(catalog::openapi))
        .route("/livez", get(status::livez))
        .route("/readyz", get(status::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/apply", post(declare::apply))
        .route("/v1/export", get(declare::export))
        .route("/v1/code/{digest}", get(code::get).put(code::put).layer(DefaultBodyLimit::disable()))
        .route("/v1/deploy", post(code::deploy))
        .route("/v1/services/{name}/rollback", post(code::rollback))
        .route("/v1/services/{service}", axum::routing::delete(operate::remove_service))
        .route("/v1/services/{service}/scale", post(operate::scale))
        .route("/v1/tokens", get(declare::tokens).post(declare::token))
        .route("/v1/tokens/{name}", axum::routing::delete(declare::revoke))
        .route("/v1/nodes/{name}/restart", post(operate::restart))
        .route("/v1/nodes/{name}/program", get(program::get).post(program::choose))
        .route("/v1/program/{digest}", axum::routing::put(program::put).layer(DefaultBodyLimit::disable()))
        .route("/v1/nodes/{name}/remove", post(operate::remove))
        .route("/v1/nodes/{name}/drain", post(operate::drain))
        .route("/v1/nodes/{name}/undrain", post(operate::undrain))
        .route("/v1/disable/{*part}", post(operate::disable))
        .route("/v1/enable/{*part}", post(operate::enable))
        .route("/v1/ns", get(operate::namespaces))
        .route("/v1/ns/{ns}", get(operate::namespace))
        .route("/v1/route/explain", post(explain::explain))
        .route("/v1/services/{service}/members", get(members::members))
        .route("/v1/services/{service}/token", get(members::token))
        .route("/v1/services/{service}/broadcast", post(members::broadcast))
        .route("/v1/services/{service}/messages", get(members::messages))
        .route("/v1/services/{service}/logs", get(logs::logs))
        .route("/v1/services/{service}/run", post(run::run))
        .route("/v1/services/{service}/secrets", get(secrets::list))
        .route("/v1/services/{service}/secrets/{name}", axum::routing::put(secrets::set).delete(secrets::remove))
        .route("/v1/tokens/renew", post(declare::renew))
        .route("/v1/authority/rotate", post(declare::rotate_authority))
        .route("/v1/sealed", post(secrets::sealed))
        .route("/v1/certificates", get(certificates::list))
        .route("/v1/certificates/{name}", get(certificates::get).put(certificates::set).delete(certificates::remove))
        .route("/v1/services/{service}/stages", post(stages::told))
        .route("/v1/services/{service}/certificates", get(certificates::certificates))
        .route("/v1/services/{service}/barrier/{barrier}", post(members::barrier))
        .route("/v1/ns/{ns}/token", get(declare::namespace_token))
        .route("/v1/ns/{ns}/rotate", post(declare::rotate))
        .route("/v1/ns/{ns}/dump", get(dump::dump))
        .route("/v1/ns/{ns}/load", post(dump::load))
        .route("/v1/session/{handle}", get(values::handle_get).put(values::handle_put))
        .route("/v1/ns/{ns}/keys/{*key}", get(values::get).put(values::put).delete(values::remove))
        .route("/v1/ns/{ns}/touch/{*key}", post(values::touch))
        .route("/v1/ns/{ns}/apply/{*key}", post(values::apply))
        .route("/v1/ns/{ns}/hold/{*key}", post(soft_held::hold))
        .route("/v1/ns/{ns}/mget", post(many::get))
        .route("/v1/ns/{ns}/purge", post(cache::purge))
        .route("/v1/ns/{ns}/txn", post(linear::transaction))
        .route("/v1/ns/{ns}/sql", post(sql::sql))
        .route("/v1/ns/{ns}/queues", get(queues::list))
        .route("/v1/ns/{ns}/queues/{queue}", get(queues::show).delete(queues::remove))
        .route("/v1/ns/{ns}/queues/{queue}/jobs", get(queues::jobs).post(queues::put))
        .route("/v1/ns/{ns}/queues/{queue}/jobs/{id}", get(queues::job))
        .route("/v1/ns/{ns}/queues/{queue}/take", post(queues::take))
        .route("/v1/ns/{ns}/queues/{queue}/renew", post(queues::renew))
        .route("/v1/ns/{ns}/queues/{queue}/done", post(queues::done_with))
        .route("/v1/ns/{ns}/queues/{queue}/fail", post(queues::fail))
        .route("/v1/ns/{ns}/queues/{queue}/back", post(queues::back))
        .route("/v1/ns/{ns}/queues/{queue}/retry", post(queues::retry))
        .route("/v1/ns/{ns}/queues/{queue}/drop", post(queues::drop_jobs))
        .route("/v1/ns/{ns}/queues/{queue}/repeats", get(queues::repeats))
        .route("/v1/ns/{ns}/queues/{queue}/repeats/{name}", axum::routing::put(queues::repeat).delete(queues::unrepeat))
        .route("/v1/profiles/{profile}/{id}", get(profiles::get).put(profiles::put).delete(profiles::remove))
        .route("/v1/ns/{ns}/keys", get(values::list))
        .route("/v1/ns/{ns}/watch", get(values::watch))
        .route("/v1/ns/{ns}/objects/{owner}", get(objects::list))
        .route("/v1/ns/{ns}/objects/{owner}/{id}", get(objects::get).put(objects::put).delete(objects::remove))
        .route("/v1/ns/{ns}/session", get(values::cookie_get).post(values::cookie_put).delete(values::cookie_remove))
        .route("/v1/ns/{ns}/session/touch", post(values::cookie_touch))
        .merge(pages.with_state(()))
        .fallback(|| async { Problem::not_found("there is nothing here; docs/api.md lists what there is") })
        .method_not_allowed_fallback(|| async {
            Problem::method("this address does not take this method; `Allow` says which it takes")
        })
        .layer(axum::middleware::from_fn_with_state(api.clone(), guard::guard))
        .with_state(api)
}

/// What there is, for programs: a test compares it with the routes above.
async fn openapi() -> impl axum::response::IntoResponse {
    ([(axum::http::header::CONTENT_TYPE, "application/json")], OPENAPI)
}

const OPENAPI: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json"));

/// Serves for ever; ends only if the listener cannot be used at all. Runs on the many-threaded runtime. With certificates, TLS is
/// spoken and nothing else, and their names count as the node's.
///
/// # Errors
/// As said.
pub async fn serve(
    listener: std::net::TcpListener,
    router: Router,
    certs: Option<Arc<Certs>>,
    meter: Arc<Meter>,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    serve_with(listener, router, Room::default(), certs, (meter, stop)).await
}

/// [`serve`] with room for more or fewer.
///
/// # Errors
/// As [`serve`].
pub async fn serve_with(
    listener: std::net::TcpListener,
    router: Router,
    room: Room,
    certs: Option<Arc<Certs>>,
    (meter, stop): (Arc<Meter>, impl Future<Output = ()> + Send),
) -> io::Result<()> {
    let mut stop = std::pin::pin!(stop);
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let acceptor = certs.as_ref().map(|certs| certs.acceptor_of(&[b"http/1.1"])).transpose();
    let acceptor = acceptor.map_err(io::Error::other)?;
    let door = Door::new(room, certs);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // Who comes now waits in the kernel's queue for the next program.
            () = &mut stop => std::future::pending().await,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "api: a connection could not be accepted");
                tokio::time::sleep(limits::ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Who is gone already has none.
        let Ok(to) = stream.local_addr() else { continue };
        let visitor = door.enter(from.ip(), to.ip());
        let _ = stream.set_nodelay(true);
        let (router, acceptor, asks) = (router.clone(), acceptor.clone(), Asks::new(Arc::clone(&meter)));
        tokio::spawn(async move {
            let talk = async {
                let Some(acceptor) = acceptor else { return answer(stream, &visitor, router, asks).await };
                match timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => answer(stream, &visitor, router, asks).await,
                    Ok(Err(error)) => tracing::debug!(%error, peer = %from.ip(), "api: TLS was not agreed on"),
                    Err(_) => tracing::debug!(peer = %from.ip(), "api: TLS was not agreed on in time"),
                }
            };
            tokio::select! {
                () = talk => (),
                // Over the limit it is closed at once, also in its handshake: better than a queue nobody sees.
                () = visitor.gone() => (),
            }
        });
    }
}

/// All requests of a connection.
async fn answer<S>(stream: S, visitor: &Visitor, router: Router, asks: Asks)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits::HEADER_TIME_MAX);
    let service = service_fn(|mut request: hyper::Request<hyper::body::Incoming>| {
        let busy = asks.begins();
        request.extensions_mut().insert(visitor.clone());
        let answer = TowerToHyperService::new(router.clone()).call(request);
        let asks = &asks;
        async move { answer.await.map(|response| asks.answers(response, busy)) }
    });
    let talk = http.serve_connection(TokioIo::new(stall::Stall::new(stream)), service);
    // It ends in an error whenever a client goes away; that is no news.
    let _ = asks.beside(talk).await;
}

#[cfg(test)]
mod tests;
