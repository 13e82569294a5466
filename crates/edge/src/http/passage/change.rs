//! A request that would go on as something else: WebSocket mostly, over HTTP/1 by 101 (RFC 9110 7.8), over HTTP/2 by
//! CONNECT (RFC 8441).

use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use http_body::Body as _;

use super::{Client, Edge};
use crate::fields::Fields;
use crate::http::body::Counted;
use crate::http::check::TOO_MANY;
use crate::http::errand::Answer;
use crate::http::h2;
use crate::http::headers::{strip_one_hop, wanted_upgrade};
use crate::http::refusal::Refusal;
use crate::http::upgrade::{self, OfClient};
use crate::http::websocket::{self, Accept};
use crate::meter::Opened;
use crate::pace::Manner;

/// What a client would speak instead.
pub struct Wanted {
    pub protocol: HeaderValue,
    of_client: OfClient,
    /// Over HTTP/2: what the clone must say.
    pub accept: Option<Accept>,
    /// The connection as the door counts it, also when something else is spoken on it.
    open: Arc<Opened>,
}

impl Wanted {
    /// The change that a request of HTTP/2 asks for, which becomes one of HTTP/1.1 here.
    pub fn over_http2(edge: &Edge, client: &Client, request: &mut Request<Counted>) -> Result<Option<Self>, Refusal> {
        if request.version() != Version::HTTP_2 || !h2::to_http1(request).map_err(Refusal::Violation)? {
            return Ok(None);
        }
        // A WebSocket is as dear as a connection.
        let (mut open, most) = (edge.door.opened(), edge.config.connections_max);
        let is_known = !edge.config.trust_forwarded && !client.peer.ip.is_loopback();
        if edge.door.connections() > most
            || is_known && !open.is_of(client.peer.ip, most, edge.config.address_connections_max)
        {
            return Err(Refusal::Violation(TOO_MANY));
        }
        let of_client = OfClient::Http2(hyper::upgrade::on(&mut *request));
        let (protocol, accept) = (HeaderValue::from_static("websocket"), Some(websocket::ask(request.headers_mut())));
        Ok(Some(Self { protocol, of_client, accept, open: Arc::new(open) }))
    }

    pub fn over_http1(client: &Client, request: &Request<Counted>, fields: &Fields) -> Option<Self> {
        if request.version() != Version::HTTP_11 || !request.body().is_end_stream() {
            return None;
        }
        let protocol = wanted_upgrade(fields)?;
        let open = client.open.clone()?;
        Some(Self { protocol, of_client: OfClient::Http1(client.flags.awaits_stream()), accept: None, open })
    }

    /// The clone changes, and so does the client, who hears of it by this answer.
    pub fn change(self, edge: &Edge, answer: Answer, idle: Duration) -> Result<Response<()>, Refusal> {
        let Answer { mut response, line, in_flight, .. } = answer;
        let is_http2 = self.accept.is_some();
        if self.accept.is_some_and(|accept| !accept.take(response.headers_mut())) {
            return Err(Refusal::BadAnswer);
        }
        let protocol = response.headers_mut().remove(header::UPGRADE);
        let is_websocket = protocol.as_ref().is_some_and(|p| p.as_bytes().eq_ignore_ascii_case(b"websocket"));
        let manner = if is_websocket { Manner::Framed } else { Manner::Quiet };
        let stay = in_flight.stay(&edge.stays, manner);
        let counted = upgrade::Counted { stay, _in_flight: in_flight, _open: self.open };
        let manners = if is_http2 { h2::manners() } else { None };
        tokio::spawn(upgrade::splice(*line, self.of_client, counted, manners, is_websocket, idle));
        strip_one_hop(response.headers_mut());
        if is_http2 {
            *response.status_mut() = StatusCode::OK;
            return Ok(response);
        }
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(protocol) = protocol {
            response.headers_mut().insert(header::UPGRADE, protocol);
        }
        Ok(response)
    }
}
