//! Who may come in. A page of another site can make a browser send requests to a node on the same machine; two checks
//! keep it out: the `Host` must be an address or a name of ours (a rebound DNS name is neither), and a browser that says
//! that another site asks is refused, except when a person follows a link. Then the tokens: compared in constant time.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use node::View;

use super::{Api, Problem};
use crate::resp::same_secret;

/// Stands before every handler.
pub async fn guard(State(api): State<Api>, request: Request, next: Next) -> Response {
    let (headers, method) = (request.headers(), request.method());
    match check_host(headers, request.uri(), &api.view()).and_then(|()| check_site(headers, method)) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check_host(headers: &HeaderMap, uri: &Uri, view: &View) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Problem::wrong("one Host header is needed"));
    };
    let host = host.to_str().map_err(|_| Problem::wrong("the Host header is not text"))?;
    let names_us = |name: &str| {
        let name = name.strip_suffix('.').unwrap_or(name);
        let bare = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
        bare.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || name.eq_ignore_ascii_case(&view.me)
            || view.nodes.iter().any(|node| name.eq_ignore_ascii_case(&node.name))
    };
    // An absolute target must not say something else than the header.
    if names_us(without_port(host)) && uri.host().is_none_or(names_us) {
        return Ok(());
    }
    Err(Problem::forbidden(format!("{host:?} is not a name of this node: use its address, localhost or {:?}", view.me)))
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

/// The operator's token is there, or the problem.
pub fn operator(headers: &HeaderMap, view: &View) -> Result<(), Problem> {
    let token = bearer(headers).filter(|token| same_secret(&view.admin_token, token));
    token
        .map(|_| ())
        .ok_or_else(|| Problem::token("the operator's token (`admin.token` in the data folder of the first node)"))
}

/// The namespace's token is there, or the problem: the same whether the namespace exists or not.
pub fn holder(headers: &HeaderMap, view: &View, namespace: &str) -> Result<(), Problem> {
    let expect = view.tokens.get(namespace).map_or("", String::as_str);
    let token = bearer(headers).filter(|token| same_secret(expect, token));
    token.map(|_| ()).ok_or_else(|| Problem::token("the token of this namespace"))
}

/// The service's token is there, or the operator's, or the problem: the same whether the service exists or not.
pub fn member(headers: &HeaderMap, view: &View, service: &str) -> Result<(), Problem> {
    let expect = view.service_tokens.get(service).map_or("", String::as_str);
    let fits = |token: &&[u8]| same_secret(expect, token) | same_secret(&view.admin_token, token);
    let token = bearer(headers).filter(fits);
    token.map(|_| ()).ok_or_else(|| Problem::token("the token of this service (COPPICE_TOKEN of its clones)"))
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
