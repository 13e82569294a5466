//! Who may come in. A page of another site can make a browser send requests to a node on the same machine; two checks
//! keep it out: the `Host` must be the address it came to or a name of ours (a rebound DNS name is neither), and a browser that says
//! that another site asks is refused, except when a person follows a link. Then the tokens: compared in constant time.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base::Span;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use host::crowd::Caller;
use hyper::body::{Body as _, Frame, SizeHint};
use node::{Door, View};
use tokio::sync::watch;

use super::places::{self, Visitor, Who};
use super::{Api, Problem};
use crate::secret::same_secret;

/// Stands before every handler.
pub async fn guard(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let view = api.view();
    basic_is_bearer(&mut request);
    if let Err(problem) = admit(&api, &view, &request) {
        let unheard = problem.status == StatusCode::UNAUTHORIZED && !view.has_heard();
        let problem = if unheard { Problem::busy(UNHEARD, Span::millis(500)) } else { problem };
        let mut response = problem.into_response();
        if response.status() == StatusCode::UNAUTHORIZED && !request.uri().path().starts_with("/v1/") {
            // A browser asks the person.
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"coppice\""));
        }
        return response;
    }
    if !request.uri().path().starts_with("/v1/") {
        let from = places::from(request.extensions());
        let caller = Caller { from, is_operator: operator(request.headers(), &view).is_ok() };
        request.extensions_mut().insert(caller);
    }
    let with = Opened { at: request.uri().clone(), token: token_alone(request.headers()), who: None };
    let response = next.run(request).await;
    if response.status() == StatusCode::UNAUTHORIZED && !api.view().has_heard() {
        return Problem::busy(UNHEARD, Span::millis(500)).into_response();
    }
    // A stream lasts, and its token may be made anew meanwhile.
    match with.opened(&view) {
        Some(with) if response.body().size_hint().exact().is_none() => {
            let views = api.backend.watch();
            response.map(|body| Body::new(AsLong { body, views, with }))
        }
        _ => response,
    }
}

pub const UNHEARD: &str = "this node has just started and has not heard of the declaration yet, so it knows no tokens";

/// What a request was opened with.
struct Opened {
    at: Uri,
    token: HeaderMap,
    who: Option<Who>,
}

impl Opened {
    fn opened(mut self, view: &View) -> Option<Self> {
        self.who = Some(places::holder(self.at.path(), &self.token, view)?);
        Some(self)
    }

    fn still_opens(&self, view: &View) -> bool {
        places::holder(self.at.path(), &self.token, view) == self.who
    }
}

fn token_alone(headers: &HeaderMap) -> HeaderMap {
    headers.get(header::AUTHORIZATION).map(|token| (header::AUTHORIZATION, token.clone())).into_iter().collect()
}

/// A body that ends when what it was opened with opens nothing any more.
struct AsLong {
    body: Body,
    views: watch::Receiver<Arc<View>>,
    with: Opened,
}

impl hyper::body::Body for AsLong {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let still = self.with.still_opens(&self.views.borrow());
        Poll::Ready(frame.filter(|_| still))
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn admit(api: &Api, view: &View, request: &Request) -> Result<(), Problem> {
    let (headers, path, visitor) = (request.headers(), request.uri().path(), request.extensions().get::<Visitor>());
    check_host(headers, request.uri(), view, visitor)?;
    check_site(headers, request.method())?;
    if let Some(visitor) = visitor {
        visitor.asks(path, headers, view)?;
    }
    // A handle is a secret itself, and its program has no other.
    let is_open =
        || places::is_probe(path) || path.starts_with("/v1/session/") || places::holder(path, headers, view).is_some();
    if api.is_private && !is_open() {
        return Err(Problem::token("the operator's token: this node's API is private (`--api-private`)"));
    }
    Ok(())
}

/// Browsers show a password by themselves, once they were told it: it is taken for a token of who only looks.
fn basic_is_bearer(request: &mut Request) {
    if !request.method().is_safe() {
        return;
    }
    let Some(value) = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes) else { return };
    let Some((scheme, rest)) = value.split_at_checked("Basic ".len()) else { return };
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return;
    }
    let said = STANDARD.decode(rest.trim_ascii()).unwrap_or_default();
    let password = said.splitn(2, |b| *b == b':').nth(1).unwrap_or_default();
    if let Ok(bearer) = HeaderValue::from_bytes(&[b"Bearer ", password].concat()) {
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
    }
}

/// `visitor` has the node's address that the request came to, if it came by a connection.
fn check_host(headers: &HeaderMap, uri: &Uri, view: &View, visitor: Option<&Visitor>) -> Result<(), Problem> {
    let own = visitor.map(Visitor::to);
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Problem::wrong("one Host header is needed"));
    };
    let host = host.to_str().map_err(|_| Problem::wrong("the Host header is not text"))?;
    // One that the node is reached by from elsewhere is one of those that it tells others.
    let is_ours = |ip: IpAddr| {
        own.is_none_or(|own| own == ip || own.is_loopback() && ip.is_loopback())
            || view.nodes.iter().any(|node| node.doors.at(Door::Api).ip() == ip)
    };
    let names_us = |name: &str| {
        let name = name.strip_suffix('.').unwrap_or(name);
        let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
        bare.parse::<IpAddr>().is_ok_and(|ip| is_ours(ip.to_canonical()))
            || name.eq_ignore_ascii_case("localhost")
            || name.eq_ignore_ascii_case(&view.me)
            || view.nodes.iter().any(|node| name.eq_ignore_ascii_case(&node.name))
            || visitor.is_some_and(|visitor| visitor.is_certified(name))
    };
    // An absolute target must not say something else than the header.
    if names_us(without_port(host)) && uri.host().is_none_or(names_us) {
        return Ok(());
    }
    Err(Problem::forbidden(format!(
        "{host:?} is not a name of this node: use its address, localhost or {0:?}, \
         over TLS also the names of its certificates; \
         where it is reached by another address (NAT, a forwarded port), send `Host: {0}`",
        view.me
    )))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|b| b.is_ascii_digit()) && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

fn check_site(headers: &HeaderMap, method: &Method) -> Result<(), Problem> {
    let says = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match says("sec-fetch-site") {
        // Browsers that do not say that do say whose page asks for a change.
        None | Some("same-origin" | "none") if method.is_safe() || is_own_origin(headers) => Ok(()),
        None => Err(Problem::forbidden("pages of other sites may not ask here")),
        // A link on another page, followed by a person: shows what typing the address would.
        Some(_) if *method == Method::GET && says("sec-fetch-mode") == Some("navigate") => Ok(()),
        Some(_) => Err(Problem::forbidden("pages of other sites may not ask here")),
    }
}

/// No page asks, or one of this very address: `http://HOST`, also behind a proxy that speaks TLS.
fn is_own_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let host = headers.get(header::HOST).map_or(&[][..], |host| host.as_bytes());
    let own = |scheme: &[u8]| origin.as_bytes().strip_prefix(scheme).is_some_and(|of| of.eq_ignore_ascii_case(host));
    own(b"http://") || own(b"https://")
}

/// The operator's token, or the problem.
pub fn operators_token(headers: &HeaderMap, view: &View) -> Result<String, Problem> {
    operator(headers, view)?;
    let token = bearer(headers).unwrap_or_default();
    Ok(String::from_utf8_lossy(token).into_owned())
}

/// The operator's token is there, or the problem.
pub fn operator(headers: &HeaderMap, view: &View) -> Result<(), Problem> {
    let token = bearer(headers).filter(|token| is_operators(view, token));
    token
        .map(|_| ())
        .ok_or_else(|| Problem::token("the operator's token (`admin.token` in the data folder of the first node)"))
}

/// The namespace's token is there, or the problem: the same whether the namespace exists or not.
pub fn holder(headers: &HeaderMap, view: &View, namespace: &str) -> Result<(), Problem> {
    let fits = |token: &&[u8]| either(view.tokens.get(namespace), view.formers.namespaces.get(namespace), token);
    let token = bearer(headers).filter(fits);
    token.map(|_| ()).ok_or_else(|| Problem::token("the token of this namespace (`coppice ns token NAME` prints it)"))
}

/// The namespace's token is there, or the operator's, or the problem: the same whether the namespace exists or not.
pub fn holder_or_operator(headers: &HeaderMap, view: &View, namespace: &str) -> Result<(), Problem> {
    if operator(headers, view).is_ok() { Ok(()) } else { holder(headers, view, namespace) }
}

/// The service's token is there, or the operator's, or the problem: the same whether the service exists or not.
pub fn member(headers: &HeaderMap, view: &View, service: &str) -> Result<(), Problem> {
    let fits = |token: &&[u8]| is_of_service(view, service, token) | is_operators(view, token);
    let token = bearer(headers).filter(fits);
    token.map(|_| ()).ok_or_else(|| Problem::token("the token of this service (COPPICE_TOKEN of its clones)"))
}

/// The service's own token is there, or the problem: the operator's is not enough.
pub fn clone_of(headers: &HeaderMap, view: &View, service: &str) -> Result<(), Problem> {
    let token = bearer(headers).filter(|token| is_of_service(view, service, token));
    token.map(|_| ()).ok_or_else(|| Problem::token("the token of this service (COPPICE_TOKEN of its clones)"))
}

/// The service whose token is there, whichever it is.
pub fn any_clone<'a>(headers: &HeaderMap, view: &'a View) -> Option<&'a str> {
    let token = bearer(headers)?;
    let mut all = view.service_tokens.keys();
    all.find(|service| is_of_service(view, service, token)).map(String::as_str)
}

fn is_operators(view: &View, token: &[u8]) -> bool {
    let former = view.formers.operator.as_deref().unwrap_or_default();
    same_secret(&view.admin_token, token) | same_secret(former, token)
}

fn is_of_service(view: &View, service: &str, token: &[u8]) -> bool {
    either(view.service_tokens.get(service), view.formers.services.get(service), token)
}

/// The token of now, or the one before, while that opens. Both are compared: the time says nothing of which it was.
fn either(is: Option<&String>, was: Option<&String>, token: &[u8]) -> bool {
    let fits = |expect: Option<&String>| same_secret(expect.map_or("", String::as_str), token);
    fits(is) | fits(was)
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_have_a_port() {
        for (host, expect) in
            [("a:1", "a"), ("a", "a"), ("[::1]:7070", "[::1]"), ("[::1]", "[::1]"), ("::1", "::1"), ("a:x", "a:x")]
        {
            assert_eq!(without_port(host), expect);
        }
    }
}
