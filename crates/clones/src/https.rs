//! What a service says of HTTPS: whether plain HTTP is led there, and how long browsers are to come by it alone.

use serde::{Deserialize, Serialize};

use crate::limits::HSTS_MAX;
use crate::spec::{ServiceSpec, SpecError};
use crate::text;

/// What a request in plain HTTP gets, if there is an HTTPS door with a certificate for its host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Https {
    /// What one over HTTPS gets.
    Beside,
    /// The way there (308).
    Redirect,
}

/// The same for the edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouteHttps {
    /// None: the way there for hosts whose certificate comes by itself, as that one is asked for to be used; else what HTTPS gets.
    pub said: Option<Https>,
    /// Browsers come by HTTPS alone for so long (RFC 6797).
    pub hsts_s: Option<u64>,
}

impl RouteHttps {
    pub(crate) fn of(spec: &ServiceSpec) -> Self {
        let hsts_s = spec.hsts.map(|hsts| hsts.as_millis() / 1000);
        Self { said: spec.https, hsts_s }
    }

    /// Whether plain HTTP for a host that has a certificate is led to HTTPS.
    pub fn redirects(self, comes_by_itself: impl FnOnce() -> bool) -> bool {
        match self.said {
            Some(Https::Redirect) => true,
            Some(Https::Beside) => false,
            None => comes_by_itself(),
        }
    }
}

pub(crate) fn mistakes(spec: &ServiceSpec) -> Vec<SpecError> {
    let mut errors = Vec::new();
    let mut wrong = |key: &str, why: String| errors.push(SpecError { key: key.into(), why });
    if let Some(key) = key(spec).filter(|_| spec.http.is_none()) {
        wrong(key, "is of HTTP requests, and the service has no http; leave it out".into());
    }
    if spec.hsts.is_some_and(|hsts| hsts > HSTS_MAX) {
        wrong("hsts", format!("is over the limit of {}", text::format_span(HSTS_MAX)));
    }
    errors
}

/// The key by which a declaration speaks of it.
pub(crate) fn key(spec: &ServiceSpec) -> Option<&'static str> {
    let hsts = spec.hsts.map(|_| "hsts");
    spec.https.map(|_| "https").or(hsts)
}
