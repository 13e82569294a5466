//! Class `object` over HTTP: objects have an address of their own (`objects.rs`), and changes where others have theirs.

use super::super::{address, objects_watch};
use super::{NOTHING, Offer};

pub const OFFER: Offer = Offer {
    places: "objects are at /v1/ns/{ns}/objects/OWNER/ID",
    watch: Some(|of, query| {
        Box::pin(async move { objects_watch::watch(of.api, of.ns, address::read(query)?, of.headers).await })
    }),
    ..NOTHING
};
