//! Values of class `scratch` over HTTP: each node answers with what it has itself.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use base::Span;
use bytes::Bytes;
use node::{Answer, Ask};
use state::scratch::limits::VALUE_BYTES_MAX;
use state::scratch::{Act, Op, Reply};

use super::super::class::without;
use super::super::declare::whole;
use super::super::linear::{ENDS, ONCE};
use super::super::problem::done;
use super::super::values::{LEASE, for_request};
use super::{Api, Done, Keys, NOTHING, Offer, Problem};

#[cfg(test)]
mod tests;

pub const OFFER: Offer = Offer {
    places: "its values are at /v1/ns/{ns}/keys/KEY, and end with their node",
    keys: Some(Keys {
        get: |of, key, _| Box::pin(get(of.api, of.ns, key, of.headers)),
        reads_stale: false,
        put: |of, key, _, body| Box::pin(put(of.api, of.ns, key, of.headers, body)),
        gives_old: false,
        remove: |of, key| Box::pin(remove(of.api, of.ns, key, of.headers)),
    }),
    list: Some(|of, _| Box::pin(count(of.api, of.ns, of.headers))),
    ..NOTHING
};

/// It is answered at once.
const BUDGET: Span = Span::secs(1);

/// 200 with the value, or 404.
async fn get(api: &Api, ns: String, key: Bytes, headers: &HeaderMap) -> Done {
    match operate(api, ns, key, Act::Get, headers).await? {
        Reply::Value(value) => Ok(([(header::CONTENT_TYPE, "application/octet-stream")], value).into_response()),
        _ => Err(absent()),
    }
}

/// 204 when it is stored.
async fn put(api: &Api, ns: String, key: Bytes, headers: &HeaderMap, body: Body) -> Done {
    let value = whole(body, VALUE_BYTES_MAX).await?;
    operate(api, ns, key, Act::Put(value), headers).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// 204 when it is removed, 404 if there was none.
async fn remove(api: &Api, ns: String, key: Bytes, headers: &HeaderMap) -> Done {
    match operate(api, ns, key, Act::Remove, headers).await? {
        Reply::Removed => Ok(StatusCode::NO_CONTENT.into_response()),
        _ => Err(absent()),
    }
}

/// `{"count": ...}`: keys at this node.
async fn count(api: &Api, ns: String, headers: &HeaderMap) -> Done {
    match operate(api, ns, Bytes::new(), Act::Count, headers).await? {
        Reply::Count(count) => Ok(Json(serde_json::json!({ "count": count })).into_response()),
        _ => Err(absent()),
    }
}

async fn operate(api: &Api, ns: String, key: Bytes, act: Act, headers: &HeaderMap) -> Result<Reply, Problem> {
    const NEITHER: [HeaderName; 5] = [LEASE, ENDS, ONCE, header::IF_MATCH, header::IF_NONE_MATCH];
    for name in &NEITHER {
        without(headers, name, "not for class scratch, whose values have no versions, no end and no other copy")?;
    }
    let (_, budget) = for_request(headers, BUDGET)?;
    match api.backend.ask(Ask::Scratch(Op { namespace: ns.into(), key, act }), budget).await? {
        Answer::Scratch(outcome) => done(outcome),
        _ => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the node answered something else")),
    }
}

fn absent() -> Problem {
    Problem::not_found("there is no value here; another node may have one")
}
