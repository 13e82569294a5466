//! Certificates of the cluster: set, listed, removed, with the operator's token; no answer has a key. And those of this node's folder
//! and of the cluster with their keys, for clones that end TLS themselves (STARTTLS, say): they are shown to a clone of a service that
//! was declared so, by the token of that service alone, and on this machine alone.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use node::Ask;
use node::certificates::Deed;
use node::limits::CERTIFICATE_BYTES_MAX;
use ring::digest::{SHA256, digest};
use serde_json::json;

use super::address::Path;
use super::declare::{change, entropy, whole};
use super::limits::CERTIFICATES_BYTES_MAX;
use super::places::Visitor;
use super::{Api, Problem, guard};
use crate::tls::checked;
use crate::wall::wall_ms;

/// `[{"name", "names", "issuer", "begins_at_ms", "ends_at_ms", "at_ms"}]`.
pub async fn list(State(api): State<Api>, headers: HeaderMap) -> Result<Response, Problem> {
    let view = api.view();
    guard::operator(&headers, &view)?;
    Ok(Json(&*view.certificates).into_response())
}

/// One of them.
pub async fn get(State(api): State<Api>, Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    let view = api.view();
    guard::operator(&headers, &view)?;
    match view.certificates.iter().find(|of| of.name == name) {
        Some(found) => Ok(Json(found).into_response()),
        None => Err(Problem::not_found(format!("there is no certificate {name:?}"))),
    }
}

/// Body: the chain and the key in PEM. Answer as for `apply`.
pub async fn set(
    State(api): State<Api>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    let pem = whole(body, CERTIFICATE_BYTES_MAX).await?;
    let certificate = checked(&name, &pem, wall_ms()).map_err(Problem::wrong)?;
    let in_folder = api.backend.certificates_of_files().into_iter().flat_map(|pem| pem.names);
    let notes = in_folder
        .filter(|of| certificate.names.contains(of))
        .map(|of| format!("! {of} is in the folder of node {} (--tls-dir), which shows that one", api.view().me));
    let (notes, certificate) = (notes.collect(), Box::new(certificate));
    change(&api, Ask::Certificate(Deed::Set { name, certificate, notes, entropy: entropy()? })).await
}

/// Answer as for `apply`.
pub async fn remove(State(api): State<Api>, Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    guard::operator(&headers, &api.view())?;
    change(&api, Ask::Certificate(Deed::Remove { name })).await
}

/// `{"certificates": [{"names": [...], "chain": PEM, "key": PEM}]}`, the first one for names that none has; 304 if the clone has these.
pub async fn certificates(
    State(api): State<Api>,
    Path(service): Path<String>,
    visitor: Option<Extension<Visitor>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let view = api.view();
    guard::clone_of(&headers, &view, &service)?;
    if !visitor.is_some_and(|Extension(visitor)| visitor.is_here()) {
        return Err(Problem::forbidden("certificates are for clones on this node's machine: ask the own node"));
    }
    if !view.services.iter().any(|of| of.name == service && of.certificates) {
        let why = format!("service {service:?} is not declared with `certificates = true`");
        return Err(Problem::forbidden(why));
    }
    let pems = api.backend.certificates();
    if pems.is_empty() {
        return Err(Problem::not_found(
            "this node has no certificates: `coppice certificate set` brings some, and --tls-dir names a folder of them",
        ));
    }
    let pems = pems.iter().map(|pem| json!({"names": pem.names, "chain": &*pem.chain, "key": &*pem.key}));
    let body = json!({"certificates": pems.collect::<Vec<_>>()}).to_string();
    if body.len() > CERTIFICATES_BYTES_MAX {
        let why =
            format!("the certificates have {} bytes; a clone is given {CERTIFICATES_BYTES_MAX} at most", body.len());
        return Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, why));
    }
    let sum = digest(&SHA256, body.as_bytes());
    let sum: String = sum.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let tag = HeaderValue::from_str(&format!("\"{sum}\"")).expect("hexadecimal digits are allowed in a header");
    let has = headers.get(header::IF_NONE_MATCH).is_some_and(|has| has == tag);
    let kind = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    let mut response = if has { StatusCode::NOT_MODIFIED.into_response() } else { (kind, body).into_response() };
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}
