//! Class `session` over HTTP. What it has by cookie and by handle is at addresses of its own (`values.rs`).

use super::super::values;
use super::{Keys, NOTHING, Offer};

pub const OFFER: Offer = Offer {
    places: "values of sessions are at /v1/ns/{ns}/keys/KEY, or by cookie at /v1/ns/{ns}/session",
    keys: Some(Keys {
        get: |of, key, _| Box::pin(values::session_get(of.api, of.ns, key, of.headers)),
        reads_stale: false,
        put: |of, key, _, body| Box::pin(values::session_put(of.api, of.ns, key, of.headers, body)),
        gives_old: false,
        remove: |of, key| Box::pin(values::session_remove(of.api, of.ns, key, of.headers)),
    }),
    ..NOTHING
};
