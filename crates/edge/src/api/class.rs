//! What only one class of namespaces offers. What several offer at the same address: `offers/`.

use axum::http::{HeaderMap, HeaderName};
use state::Class;

use super::{Api, Problem, offers};

pub fn only_linear(api: &Api, ns: &str) -> Result<(), Problem> {
    only(api, ns, Class::Linear)
}

pub fn only_session(api: &Api, ns: &str) -> Result<(), Problem> {
    only(api, ns, Class::Session)
}

pub fn only_cache(api: &Api, ns: &str) -> Result<(), Problem> {
    only(api, ns, Class::Cache)
}

pub fn only_soft(api: &Api, ns: &str) -> Result<(), Problem> {
    only(api, ns, Class::Soft)
}

pub fn only_object(api: &Api, ns: &str) -> Result<(), Problem> {
    only(api, ns, Class::Object)
}

/// How large the database of this namespace may be.
pub fn only_sql(api: &Api, ns: &str) -> Result<u64, Problem> {
    only(api, ns, Class::Sql)?;
    Ok(api.view().specs.get(ns).and_then(|spec| spec.sql()).map_or(state::sql::limits::SIZE_MAX, |spec| spec.size_max))
}

fn only(api: &Api, ns: &str, wanted: Class) -> Result<(), Problem> {
    match api.view().class_of(ns) {
        class if class == wanted => Ok(()),
        class => {
            let why = format!(
                "namespace {ns} is of class {class}, and class {wanted} alone offers this: {}",
                offers::places(class, ns)
            );
            Err(Problem::wrong(why))
        }
    }
}

/// A header of another class would be passed over in silence, and with it what its sender relies on.
pub fn without(headers: &HeaderMap, name: &HeaderName, instead: &str) -> Result<(), Problem> {
    match headers.contains_key(name) {
        false => Ok(()),
        true => Err(Problem::wrong(format!("{name} is {instead}"))),
    }
}
