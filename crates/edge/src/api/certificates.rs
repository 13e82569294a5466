//! The certificates of this node's folder with their keys, for clones that end TLS themselves (STARTTLS, say). They are shown to a
//! clone of a service that was declared so, by the token of that service alone, and on this machine alone.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ring::digest::{SHA256, digest};
use serde_json::json;

use super::address::Path;
use super::limits::CERTIFICATES_BYTES_MAX;
use super::places::Visitor;
use super::{Api, Problem, guard};

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
        return Err(Problem::not_found("this node has no certificates; --tls-dir names their folder"));
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
