//! Class `cache` over HTTP, at addresses that others have, too.

use super::super::cache;
use super::{Keys, NOTHING, Offer};

pub const OFFER: Offer = Offer {
    places: "entries of caches are at /v1/ns/{ns}/keys/KEY, and end by Coppice-Ends-Ms",
    keys: Some(Keys {
        get: |of, key, _| Box::pin(cache::get(of.api, of.ns, key, of.headers)),
        reads_stale: false,
        put: |of, key, _, body| Box::pin(cache::put(of.api, of.ns, key, of.headers, body)),
        gives_old: false,
        remove: |of, key| Box::pin(cache::remove(of.api, of.ns, key, of.headers)),
    }),
    ..NOTHING
};
