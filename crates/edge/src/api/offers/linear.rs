//! Class `linear` over HTTP, at addresses that others have, too.

use super::super::{linear, watch};
use super::{Keys, Offer};

pub const OFFER: Offer = Offer {
    places: "there values go by key, at /v1/ns/{ns}/keys/KEY, and end by Coppice-Ends-Ms, or by the function `expire` at \
             /v1/ns/{ns}/apply/KEY",
    keys: Some(Keys {
        get: |of, key, look| Box::pin(async move { linear::get(of.api, &of.ns, key, look, of.headers).await }),
        reads_stale: true,
        put: |of, key, put, body| {
            Box::pin(async move { linear::put(of.api, &of.ns, key, put, of.headers, body).await })
        },
        gives_old: true,
        remove: |of, key| Box::pin(async move { linear::remove(of.api, &of.ns, key, of.headers).await }),
    }),
    list: Some(|of, query| Box::pin(linear::keys(of.api, of.ns, query, of.headers))),
    apply: Some(|of, key, look, body| Box::pin(linear::apply(of.api, of.ns, key, look, of.headers, body))),
    watch: Some(|of, query| Box::pin(watch::watch(of.api, of.ns, query, of.headers))),
};
