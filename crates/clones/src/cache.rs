//! The edge cache of a service: answers of its clones that edges keep in a namespace of class `cache`, and give without asking a
//! clone. What may be kept is said by the answers themselves (RFC 9111). Here is what an operator declares of it.

use serde::{Deserialize, Serialize};

use crate::spec::{ServiceSpec, SpecError};

/// In TOML: `cache = { namespace = "pages" }`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeCache {
    /// Where answers are kept, of class `cache`. Its programs need not know of it.
    pub namespace: String,
}

impl EdgeCache {
    /// All mistakes that can be seen in this service alone.
    pub(crate) fn validate(service: &ServiceSpec) -> Option<SpecError> {
        (service.cache.is_some() && service.http.is_none()).then(|| SpecError {
            key: "cache".into(),
            why: "keeps answers to HTTP requests; add for example http = { path = \"/\" }".into(),
        })
    }
}
