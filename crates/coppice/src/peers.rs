//! How this program asks the same program on other nodes: HTTP over the tunnels, so encrypted and authenticated. That it is one of
//! the cluster's nodes that asks is proof enough, and no token travels, but where more is at stake than what nodes tell each other.

use std::future::Future;
use std::time::Duration;

use base::NodeId;
use bytes::Bytes;
use host::{Dialer, OwnStream};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use node::view::{NodeState, NodeView};
use node::{Door, View};

/// One question to another node.
pub struct Question<'a> {
    /// Name of what is asked there, of those that its `TunnelDesk` knows.
    pub target: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub body: Bytes,
    /// Programs that are asked by their API want one.
    pub token: Option<&'a str>,
    pub within: Duration,
    /// Of the answer.
    pub bytes_max: usize,
}

/// The body of a good answer, or why there is none.
pub async fn ask(dialer: &Dialer, to: &NodeView, question: Question<'_>) -> Result<Bytes, String> {
    let Question { target, method, path, body, token, within, bytes_max } = question;
    let exchange = async {
        let stream = dialer.dial(to.doors.at(Door::Peer), NodeId(to.id.0), target).await.map_err(|e| e.to_string())?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        let connection = tokio::spawn(connection);
        let mut request =
            Request::builder().method(method).uri(path).header("host", to.doors.at(Door::Api).to_string());
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body)).map_err(|e| e.to_string())?;
        let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), bytes_max).collect().await.map_err(|e| e.to_string());
        connection.abort();
        let body = body?.to_bytes();
        if status.is_success() { Ok(body) } else { Err(format!("{status}: {}", String::from_utf8_lossy(&body).trim())) }
    };
    tokio::time::timeout(within, exchange).await.unwrap_or_else(|_| Err("no answer in time".into()))
}

/// What an answer is: the body, or a status and why.
pub type Answered = Result<Bytes, (StatusCode, String)>;

/// Answers another node that asks by [`ask`]. `what` is for the log.
pub async fn serve<F: Future<Output = Answered>>(
    stream: OwnStream,
    within: Duration,
    what: &str,
    answer: impl Fn(Request<Incoming>) -> F,
) {
    let answer = service_fn(|request: Request<Incoming>| {
        let answered = answer(request);
        async move {
            let (status, body) = match answered.await {
                Ok(body) => (StatusCode::OK, body),
                Err((status, why)) => (status, why.into()),
            };
            Response::builder().status(status).body(Full::new(body))
        }
    });
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    match tokio::time::timeout(within, served).await {
        Ok(Ok(())) => (),
        Ok(Err(error)) => tracing::debug!(%error, "a node that asked for {what} went away"),
        Err(_) => tracing::debug!("a node that asked for {what} was too slow"),
    }
}

/// The live nodes but this one.
pub fn others(view: &View) -> impl Iterator<Item = &NodeView> {
    view.nodes.iter().filter(|n| n.state == NodeState::Live && n.name != view.me)
}
