//! Which clone a partition's request would rather have, and the cookie by which a browser stays with one. The cookie
//! says nothing about the cluster: it is a MAC over the clone's name under a secret that all nodes have, so every edge
//! reads it, and one whose clone is gone simply counts for nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clones::RouteService;
use clones::partition::{Affinity, Asked, cookie};
use clones::route::{Found, Routes};
use http::HeaderValue;
use ring::hmac;

use crate::pool::{Prefers, Upstream};
use crate::table::Target;

/// Of the MAC, this is enough to tell clones apart and too much to guess, bytes.
const TAG_BYTES: usize = 12;

/// What a sticky cookie says of a clone.
pub fn tag(secret: &str, clone: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("sticky clone {clone}").as_bytes());
    URL_SAFE_NO_PAD.encode(&tag.as_ref()[..TAG_BYTES])
}

/// Name of the cookie of a sticky partition.
pub fn cookie_name(service: &str, partition: &str) -> String {
    format!("coppice-at-{service}.{partition}")
}

pub fn prefers(service: &RouteService, found: Found, asked: &Asked<'_>) -> Prefers {
    let Some(partition) = service.partition(found) else { return Prefers::Any };
    match &partition.affinity {
        Affinity::None => Prefers::Any,
        Affinity::Hash(on) => on.key(asked).map_or(Prefers::Any, Prefers::Hash),
        Affinity::Sticky => {
            let mut value = Vec::new();
            cookie(asked.headers, &cookie_name(&service.name, &partition.name), &mut |found| value = found.to_vec());
            Prefers::Tag(value)
        }
    }
}

/// The cookie that a browser needs to come back to the clone that was chosen for it, unless it has it.
pub fn stay(
    routes: &Routes,
    found: Found,
    target: &Target<'_>,
    chosen: &Upstream,
    is_https: bool,
) -> Option<HeaderValue> {
    let Prefers::Tag(shown) = &target.prefers else { return None };
    if chosen.tag.as_bytes() == shown {
        return None;
    }
    let service = &routes.services[found.service];
    let name = cookie_name(&service.name, &service.partition(found)?.name);
    let secure = if is_https { "; Secure" } else { "" };
    let cookie = format!("{name}={}; Path=/; HttpOnly; SameSite=Lax{secure}", chosen.tag);
    Some(HeaderValue::try_from(cookie).expect("names of services and partitions are plain ASCII"))
}
