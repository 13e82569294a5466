//! What only one class of namespaces offers, and what the others have instead.

use axum::http::{HeaderMap, HeaderName};
use state::Class;

use super::{Api, Problem};

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
                instead(class, ns)
            );
            Err(Problem::wrong(why))
        }
    }
}

/// Not all classes have values that lie at keys.
pub fn has_keys(api: &Api, ns: &str) -> Result<(), Problem> {
    match api.view().class_of(ns) {
        Class::Session | Class::Linear | Class::Cache | Class::Soft | Class::Scratch => Ok(()),
        class @ (Class::Object | Class::Sql) => {
            let why =
                format!("namespace {ns} is of class {class}, which has no keys over HTTP: {}", instead(class, ns));
            Err(Problem::wrong(why))
        }
    }
}

fn instead(class: Class, ns: &str) -> String {
    match class {
        Class::Session => {
            format!("values of sessions are at /v1/ns/{ns}/keys/KEY, or by cookie at /v1/ns/{ns}/session")
        }
        Class::Linear => format!(
            "there values go by key, at /v1/ns/{ns}/keys/KEY, and end by Coppice-Ends-Ms, or by the function `expire` at \
             /v1/ns/{ns}/apply/KEY"
        ),
        Class::Cache => format!("entries of caches are at /v1/ns/{ns}/keys/KEY, and end by Coppice-Ends-Ms"),
        Class::Soft => format!(
            "its values are at /v1/ns/{ns}/keys/KEY, its collections at /v1/ns/{ns}/apply/KEY, or go by the Redis protocol"
        ),
        Class::Sql => format!("statements go to /v1/ns/{ns}/sql"),
        Class::Scratch => format!("its values are at /v1/ns/{ns}/keys/KEY, and end with their node"),
        Class::Object => format!("objects are at /v1/ns/{ns}/objects/OWNER/ID"),
    }
}

/// A header of another class would be passed over in silence, and with it what its sender relies on.
pub fn without(headers: &HeaderMap, name: &HeaderName, instead: &str) -> Result<(), Problem> {
    match headers.contains_key(name) {
        false => Ok(()),
        true => Err(Problem::wrong(format!("{name} is {instead}"))),
    }
}
