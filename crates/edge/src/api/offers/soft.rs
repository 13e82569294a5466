//! Class `soft` over HTTP, at addresses that others have, too.

use super::super::{address, soft, soft_watch};
use super::{Keys, Offer};

pub const OFFER: Offer = Offer {
    places: "its values are at /v1/ns/{ns}/keys/KEY, its collections at /v1/ns/{ns}/apply/KEY, or go by the Redis protocol",
    keys: Some(Keys {
        get: |of, key, look| Box::pin(soft::get(of.api, of.ns, key, look, of.headers)),
        reads_stale: true,
        put: |of, key, _, body| Box::pin(soft::put(of.api, of.ns, key, of.headers, body)),
        gives_old: false,
        remove: |of, key| Box::pin(soft::remove(of.api, of.ns, key, of.headers)),
    }),
    list: Some(|of, query| Box::pin(async move { soft::keys(of.api, of.ns, address::read(query)?, of.headers).await })),
    apply: Some(|of, key, look, body| Box::pin(soft::apply(of.api, of.ns, key, look, of.headers, body))),
    watch: Some(|of, query| {
        Box::pin(async move { soft_watch::watch(of.api, of.ns, address::read(query)?, of.headers).await })
    }),
};
