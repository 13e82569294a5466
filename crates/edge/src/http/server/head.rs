//! A request's head that passed `check`, made a request of. It is read once: where its parts are was noted when they were checked.

use bytes::{Buf, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri, Version};

use crate::http::check::{self, HeadScan, Violation};
use crate::http::headers::FIELDS_ADDED;
use crate::http::line::keeps;

/// A request without its body.
#[derive(Debug)]
pub struct Head {
    pub request: Request<()>,
    /// The client would send another one behind it.
    pub keeps: bool,
}

const UNREADABLE: Violation =
    Violation { status: 400, why: "the request's head has something that no program would read" };

/// Takes it, `bytes` long and scanned, from the front of `input`.
pub fn take(input: &mut BytesMut, bytes: usize, scan: &HeadScan) -> Result<Head, Violation> {
    let parts = scan.parts().expect("it was scanned to its end");
    // Values are slices of it, and may live long: they hold no more than the head.
    let head = if bytes == input.len() {
        std::mem::take(input).freeze()
    } else {
        let head = Bytes::copy_from_slice(&input[..bytes]);
        input.advance(bytes);
        head
    };
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(&head[parts.method]).map_err(|_| UNREADABLE)?;
    // Of what readers differ in nothing is left, and it means the same.
    let target = if parts.is_odd { check::encoded(&head[parts.target]).into() } else { head.slice(parts.target) };
    *request.uri_mut() = Uri::from_maybe_shared(target).map_err(|_| UNREADABLE)?;
    let is_new = parts.minor > 0;
    *request.version_mut() = if is_new { Version::HTTP_11 } else { Version::HTTP_10 };
    let map = request.headers_mut();
    *map = HeaderMap::with_capacity(scan.fields().len() + FIELDS_ADDED);
    for field in scan.fields() {
        let name = HeaderName::from_bytes(&head[field.name()]).map_err(|_| UNREADABLE)?;
        let value = HeaderValue::from_maybe_shared(head.slice(field.value())).map_err(|_| UNREADABLE)?;
        // Two that say the same are one.
        if name == header::CONTENT_LENGTH && map.contains_key(header::CONTENT_LENGTH) {
            continue;
        }
        map.append(name, value);
    }
    let keeps = keeps(map, is_new);
    Ok(Head { request, keeps })
}
