//! The second step: whose a request is, and what is declared of such requests. What was found goes with it, and is
//! looked up anew only where other routes have come meanwhile.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use clones::partition::Asked;
use clones::path::{canonical, is_clear};

use super::{Cleansed, Client, Edge};
use crate::fields::AnyFields;
use crate::http::access::Record;
use crate::http::check::UNCLEAR_PATH;
use crate::http::headers::{FORWARDED_PROTO, Peer};
use crate::http::limits::{ANSWER_IDLE, ANSWER_TIME, UPGRADED_IDLE};
use crate::http::refusal::Refusal;
use crate::table::{Place, Table};

/// Who takes a request, and by what its path is matched where that is not how it is written.
pub fn find(table: &Table, peer: &Peer, request: &Cleansed) -> Result<(Option<Place>, Option<Box<str>>), Refusal> {
    let path = match canonical(request.uri.path()) {
        Cow::Borrowed(_) => None,
        Cow::Owned(path) => Some(path.into()),
    };
    let asked = asked(request, peer, path.as_deref());
    if !is_clear(asked.path, |path| table.routes.find(&Asked { path, ..asked })) {
        return Err(Refusal::Violation(UNCLEAR_PATH));
    }
    Ok((table.place(&asked), path))
}

fn asked<'a>(request: &'a Cleansed, peer: &Peer, path: Option<&'a str>) -> Asked<'a> {
    let Cleansed { method, uri, fields, host, .. } = request;
    Asked {
        port: peer.port,
        host: host.to_str().unwrap_or(""),
        path: path.unwrap_or(uri.path()),
        method: method.as_str(),
        client: peer.ip,
        headers: fields,
    }
}

/// What is written of it, where something is; so it has an id.
pub fn recorded(
    edge: &Edge,
    client: &Client,
    place: Option<&Place>,
    request: &mut Cleansed,
    began: Instant,
) -> Option<Box<Record>> {
    let (place, logs) = place.zip(edge.config.access.as_ref())?;
    let form = place.doorway.access_log;
    let log = (logs, form, place.service_name());
    (!form.is_off()).then(|| Record::begin(log, request, client.peer.ip, began))
}

/// What is declared of such requests.
#[derive(Clone, Copy)]
pub struct Terms {
    pub body_max: u64,
    /// How long its answer may take to begin,
    pub answer_time: Duration,
    /// ... be silent,
    pub idle_time: Duration,
    /// ... or what is spoken instead of HTTP.
    pub upgraded_idle: Duration,
    /// Its client is to come by HTTPS alone for so many seconds.
    pub hsts_s: Option<u64>,
}

/// Refuses what they forbid.
pub fn terms(edge: &Edge, place: Option<&Place>, request: &mut Cleansed) -> Result<Terms, Refusal> {
    let doorway = place.map(|place| &place.doorway);
    let https = doorway.map(|doorway| doorway.https).unwrap_or_default();
    let Cleansed { uri, fields, host, .. } = &*request;
    // As the client sees it: what is before this door may speak TLS with it.
    let is_secure = fields.first(&FORWARDED_PROTO).is_some_and(|proto| proto == "https");
    if !is_secure
        && let Some(secure) = &edge.config.secure
        && https.redirects(|| edge.sessions.comes_by_itself(host))
        && let Some(moved) = secure.place_of(host, uri.path_and_query())
    {
        return Err(Refusal::Moved(moved));
    }
    let body_max = doorway.and_then(|doorway| doorway.allows.body_max).unwrap_or(edge.config.body_bytes_max);
    if !request.incoming.may_have(body_max) {
        return Err(Refusal::TooLarge(body_max));
    }
    let idle_time = |default| doorway.map_or(default, |doorway| doorway.idle_time(default));
    Ok(Terms {
        body_max,
        answer_time: doorway.map_or(ANSWER_TIME, |doorway| doorway.answer_time()),
        idle_time: idle_time(ANSWER_IDLE),
        upgraded_idle: idle_time(UPGRADED_IDLE),
        hsts_s: https.hsts_s.filter(|_| is_secure),
    })
}
