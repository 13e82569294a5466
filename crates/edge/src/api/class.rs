//! What only one class of namespaces offers, and what the other ones have instead.

use axum::http::{HeaderMap, HeaderName};

use super::{Api, Problem};

/// Values of class `soft` are not offered over HTTP yet.
pub fn not_soft(api: &Api, ns: &str) -> Result<(), Problem> {
    let is_soft = api.view().namespaces.iter().any(|has| has.name == ns && has.class == state::soft::NAME);
    let why = || format!("namespace {ns} is of class soft, whose values go by the Redis protocol: docs/guide/soft.md");
    if is_soft { Err(Problem::wrong(why())) } else { Ok(()) }
}

pub fn only_linear(api: &Api, ns: &str) -> Result<(), Problem> {
    not_soft(api, ns)?;
    let view = api.view();
    if view.linear.contains_key(ns) {
        return Ok(());
    }
    let (class, instead) = match view.caches.contains(ns) {
        true => ("cache", format!("entries of caches are at /v1/ns/{ns}/keys/KEY")),
        false => {
            ("session", format!("values of sessions are at /v1/ns/{ns}/keys/KEY, or by cookie at /v1/ns/{ns}/session"))
        }
    };
    Err(Problem::wrong(format!("namespace {ns} is of class {class}, and class linear alone offers this: {instead}")))
}

pub fn only_session(api: &Api, ns: &str) -> Result<(), Problem> {
    not_soft(api, ns)?;
    let view = api.view();
    let (class, instead) = match (view.linear.contains_key(ns), view.caches.contains(ns)) {
        (false, false) => return Ok(()),
        (true, _) => {
            ("linear", format!("end by Coppice-Ends-Ms, or by the function `expire` at /v1/ns/{ns}/apply/KEY"))
        }
        (false, true) => ("cache", "end by Coppice-Ends-Ms".to_owned()),
    };
    Err(Problem::wrong(format!(
        "namespace {ns} is of class {class}, and class session alone offers this: there values go by key, at \
         /v1/ns/{ns}/keys/KEY, and {instead}"
    )))
}

pub fn only_cache(api: &Api, ns: &str) -> Result<(), Problem> {
    if api.view().caches.contains(ns) {
        return Ok(());
    }
    Err(Problem::wrong(format!(
        "namespace {ns} is not of class cache, which alone can be purged: DELETE removes a key"
    )))
}

/// A header of another class would be passed over in silence, and with it what its sender relies on.
pub fn without(headers: &HeaderMap, name: &HeaderName, instead: &str) -> Result<(), Problem> {
    match headers.contains_key(name) {
        false => Ok(()),
        true => Err(Problem::wrong(format!("{name} is {instead}"))),
    }
}
