//! The first step: what is no request for a clone is refused, whatever service it would be for. What was for one hop,
//! or is not the client's to say, is taken out; from whom it comes is put in.

use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{Method, Request, Uri, Version};
use http_body::Body as _;

use super::change::Wanted;
use super::{Client, Edge};
use crate::fields::{AnyFields, Fields};
use crate::http::body::Counted;
use crate::http::check::Violation;
use crate::http::headers::{set_forwarded, strip_one_hop};
use crate::http::passed::{self, Deadline};
use crate::http::refusal::Refusal;
use crate::http::reserved::is_reserved;
use crate::http::session::remove_ours;

/// Where a directory looks whether a host is ours (RFC 8555 8.3).
const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// A request without what its client must not say.
pub struct Cleansed {
    pub method: Method,
    pub uri: Uri,
    pub version: Version,
    pub fields: Fields,
    pub incoming: Counted,
    pub host: HeaderValue,
    pub upgrade: Option<Box<Wanted>>,
    pub takes_trailers: bool,
    /// The client waits for leave to send its body.
    pub expects: bool,
    /// So long, if it says so.
    pub waits: Option<Duration>,
    /// How much that matters for which it is done.
    pub carried_on: Option<u8>,
}

/// `fields` are the request's, which has none itself then.
pub fn cleanse(
    edge: &Edge,
    client: &Client,
    mut request: Request<Counted>,
    fields: Option<Fields>,
) -> Result<Cleansed, Refusal> {
    // It shows whoever asks what the program was told for itself alone: a ticket, a session.
    if matches!(request.method().as_str(), "TRACE" | "TRACK") {
        return Err(Refusal::Violation(Violation { status: 501, why: "TRACE is not offered" }));
    }
    let websocket = Wanted::over_http2(edge, client, &mut request)?;
    let mut fields = fields.unwrap_or_else(|| std::mem::take(request.headers_mut()).into());
    let expects = takes_leave(client, &request, &mut fields)?;
    if is_reserved(request.uri().path()) {
        return Err(Refusal::Reserved);
    }
    if let Some(token) = request.uri().path().strip_prefix(CHALLENGES)
        && let Some(answer) = edge.sessions.challenge(request.method(), fields.first(&header::HOST), token)
    {
        return Err(Refusal::Challenge(answer));
    }
    let upgrade = websocket.or_else(|| Wanted::over_http1(client, &request, &fields)).map(Box::new);
    let (parts, incoming) = request.into_parts();
    let host = fields.first(&header::HOST).cloned().unwrap_or(HeaderValue::from_static(""));
    let takes_trailers = strip_one_hop(&mut fields);
    set_forwarded(&mut fields, &client.peer, edge.config.trust_forwarded, &edge.config.trusted_headers);
    let waits = Deadline::said(&fields);
    let carried_on = passed::class(&fields, edge.pool.table().secret());
    remove_ours(&mut fields);
    let (method, uri, version) = (parts.method, parts.uri, parts.version);
    Ok(Cleansed { method, uri, version, fields, incoming, host, upgrade, takes_trailers, expects, waits, carried_on })
}

/// Whether the client waits for leave to send its body, which is its program's to give (RFC 9110 10.1.1).
fn takes_leave(client: &Client, request: &Request<Counted>, fields: &mut Fields) -> Result<bool, Refusal> {
    let Some(expect) = fields.take(&header::EXPECT) else { return Ok(false) };
    if !expect.as_bytes().eq_ignore_ascii_case(b"100-continue") {
        return Err(Refusal::Expectation);
    }
    // Of HTTP/2 nobody could pass it on.
    let waits = request.version() == Version::HTTP_11 && !request.body().is_end_stream();
    client.flags.set_owes_continue(waits);
    Ok(waits)
}

impl Cleansed {
    /// Whether the client wants an answer and nothing else: no other protocol, no word to go on.
    pub fn is_plain(&self) -> bool {
        self.upgrade.is_none() && !self.expects
    }

    /// This head without a body, for nobody who waits.
    pub fn again(&self, client: &Client) -> Self {
        Self {
            method: self.method.clone(),
            uri: self.uri.clone(),
            version: Version::HTTP_11,
            fields: self.fields.clone(),
            incoming: Counted::none(&client.flags),
            host: self.host.clone(),
            upgrade: None,
            takes_trailers: false,
            expects: false,
            ..*self
        }
    }

    /// Says to the clone what its client wants of it besides an answer.
    pub fn mark(&mut self) {
        let fields = &mut self.fields;
        if let Some(upgrade) = &self.upgrade {
            fields.set(header::CONNECTION, HeaderValue::from_static("upgrade"));
            fields.set(header::UPGRADE, upgrade.protocol.clone());
        } else if self.takes_trailers {
            fields.set(header::CONNECTION, HeaderValue::from_static("te"));
            fields.set(header::TE, HeaderValue::from_static("trailers"));
        }
        if self.expects {
            fields.set(header::EXPECT, HeaderValue::from_static("100-continue"));
        }
    }
}
