//! A request's head that passed `check`, made a request of. It is read once: where its parts are was noted when they
//! were checked.

use http::header::{self, HeaderValue};
use http::{Method, Request, Uri, Version};

use crate::fields::Fields;
use crate::http::check::{self, Framing, HeadScan, Violation};
use crate::http::headers::FIELDS_ADDED;
use crate::http::line::keeps;
use crate::http::rooms;

/// A request without its body.
#[derive(Debug)]
pub struct Head {
    /// It has no fields itself.
    pub request: Request<()>,
    pub fields: Fields,
    /// The client would send another one behind it.
    pub keeps: bool,
    /// Its body comes behind it.
    pub has_body: bool,
}

const UNREADABLE: Violation =
    Violation { status: 400, why: "the request's head has something that no program would read" };

/// Makes it of its bytes, which were scanned.
pub fn of(bytes: &[u8], scan: &HeadScan, framing: Framing) -> Result<Head, Violation> {
    let parts = scan.parts().expect("it was scanned to its end");
    // Values are slices of it, and may live longer than what else was read.
    let head = rooms::head(bytes);
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(&head[parts.method]).map_err(|_| UNREADABLE)?;
    // Of what readers differ in nothing is left, and it means the same.
    let target = if parts.is_odd { check::encoded(&head[parts.target]).into() } else { head.slice(parts.target) };
    *request.uri_mut() = Uri::from_maybe_shared(target).map_err(|_| UNREADABLE)?;
    let is_new = parts.minor > 0;
    *request.version_mut() = if is_new { Version::HTTP_11 } else { Version::HTTP_10 };
    let mut fields = rooms::list(scan.fields().len() + FIELDS_ADDED);
    for field in scan.fields() {
        let name = rooms::name(&head[field.name()]).map_err(|_| UNREADABLE)?;
        let value = HeaderValue::from_maybe_shared(head.slice(field.value())).map_err(|_| UNREADABLE)?;
        // Two that say the same are one.
        if name == header::CONTENT_LENGTH && fields.iter().any(|(of, _)| *of == header::CONTENT_LENGTH) {
            continue;
        }
        fields.push((name, value));
    }
    let fields = Fields::List(fields);
    let keeps = keeps(&fields, is_new);
    Ok(Head { request, fields, keeps, has_body: framing != Framing::Length(0) })
}
