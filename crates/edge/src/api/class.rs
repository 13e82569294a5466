//! What only one class of namespaces offers, and what the other one has instead.

use axum::http::{HeaderMap, HeaderName};

use super::{Api, Problem};

pub fn only_linear(api: &Api, ns: &str) -> Result<(), Problem> {
    if api.view().linear.contains_key(ns) {
        return Ok(());
    }
    Err(Problem::wrong(format!(
        "namespace {ns} is of class session, and class linear alone offers this: values of sessions are at \
         /v1/ns/{ns}/keys/KEY, or by cookie at /v1/ns/{ns}/session"
    )))
}

pub fn only_session(api: &Api, ns: &str) -> Result<(), Problem> {
    if !api.view().linear.contains_key(ns) {
        return Ok(());
    }
    Err(Problem::wrong(format!(
        "namespace {ns} is of class linear, and class session alone offers this: there values go by key, at \
         /v1/ns/{ns}/keys/KEY, and end by Coppice-Ends-Ms, or by the function `expire` at /v1/ns/{ns}/apply/KEY"
    )))
}

/// A header of the other class would be passed over in silence, and with it what its sender relies on.
pub fn without(headers: &HeaderMap, name: &HeaderName, instead: &str) -> Result<(), Problem> {
    match headers.contains_key(name) {
        false => Ok(()),
        true => Err(Problem::wrong(format!("{name} is {instead}"))),
    }
}
