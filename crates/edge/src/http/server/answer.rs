//! An answer over HTTP/1, as its client gets it: the head written, and the body framed (RFC 9112 6). What a status, a
//! method or a version forbids an answer to say is left out here, whatever its clone said.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use hyper::ext::ReasonPhrase;

use super::wire::Out;
use crate::http::check;
use crate::http::headers::listed;

/// What a request lets its answer be.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// To HEAD nothing follows a head.
    pub is_head: bool,
    /// The request came by HTTP/1.1, not 1.0.
    pub is_new: bool,
    /// The client would send another request on this connection.
    pub keeps: bool,
}

/// How a body is framed, and what is to come of it.
#[derive(Debug)]
pub enum Framed {
    /// Nothing more follows.
    Over,
    /// This many bytes, at least one.
    Length(u64),
    /// In chunks, and then the trailer fields that were named before.
    Chunked(Vec<HeaderName>),
    /// The end of the connection is its end.
    UntilEnd,
}

/// Its framing would not tell its end: the connection is of no use any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken;

/// Writes the head of an answer whose body is so many bytes long, if that is known. `is_last`: the connection ends
/// behind it.
pub fn head(out: &mut Vec<u8>, response: &Response<()>, asked: Asked, length: Option<u64>, is_last: bool) -> Framed {
    let (status, fields) = (response.status(), response.headers());
    let changes = status == StatusCode::SWITCHING_PROTOCOLS;
    let has_none = asked.is_head || changes || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let framed = match length {
        _ if has_none => Framed::Over,
        Some(0) => Framed::Over,
        Some(bytes) => Framed::Length(bytes),
        None if asked.is_new => Framed::Chunked(named(fields)),
        None => Framed::UntilEnd,
    };
    out.reserve(128 + fields.len() * 48);
    out.extend_from_slice(if asked.is_new { b"HTTP/1.1 " } else { b"HTTP/1.0 " });
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    match response.extensions().get::<ReasonPhrase>() {
        Some(reason) => out.extend_from_slice(reason.as_bytes()),
        None => out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes()),
    }
    out.extend_from_slice(b"\r\n");
    let (mut says_length, mut says_date) = (false, false);
    for (name, value) in fields {
        if *name == header::CONTENT_LENGTH {
            // To HEAD it is of the body that does not come.
            let is_said = match framed {
                Framed::Length(bytes) => check::length(value.as_bytes().trim_ascii()) == Some(bytes),
                _ => asked.is_head,
            };
            if !is_said || std::mem::replace(&mut says_length, true) {
                continue;
            }
        } else if *name == header::TRANSFER_ENCODING || *name == header::CONNECTION && !changes {
            continue;
        }
        says_date |= *name == header::DATE;
        field(out, name.as_str().as_bytes(), value);
    }
    match (is_last, asked.is_new) {
        _ if changes => (),
        (true, true) => out.extend_from_slice(b"connection: close\r\n"),
        // Who did not ask for more knows it.
        (true, false) if asked.keeps => out.extend_from_slice(b"connection: close\r\n"),
        (false, false) => out.extend_from_slice(b"connection: keep-alive\r\n"),
        (true, false) | (false, true) => (),
    }
    match framed {
        Framed::Chunked(_) => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Framed::Length(bytes) if !says_length => length_field(out, bytes),
        Framed::Over if !has_none => length_field(out, 0),
        Framed::Over | Framed::Length(_) | Framed::UntilEnd => (),
    }
    if !says_date {
        date(out);
    }
    out.extend_from_slice(b"\r\n");
    framed
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &HeaderValue) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn length_field(out: &mut Vec<u8>, bytes: u64) {
    out.extend_from_slice(format!("content-length: {bytes}\r\n").as_bytes());
}

/// Trailer fields that the head names.
fn named(fields: &HeaderMap) -> Vec<HeaderName> {
    listed(fields, &header::TRAILER).filter_map(|name| HeaderName::from_bytes(name).ok()).collect()
}

/// The time, which is the same for a second.
fn date(out: &mut Vec<u8>) {
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|(of, line)| {
        if *of != second || line.is_empty() {
            (*of, *line) = (second, format!("date: {}\r\n", httpdate::fmt_http_date(now)));
        }
        out.extend_from_slice(line.as_bytes());
    });
}

impl Framed {
    pub fn is_over(&self) -> bool {
        matches!(self, Framed::Over)
    }

    /// The next part of a body.
    ///
    /// # Errors
    /// It is longer than it says.
    pub fn data(&mut self, out: &mut Out, part: Bytes) -> Result<(), Broken> {
        match self {
            // An empty chunk would be the end.
            _ if part.is_empty() => (),
            Framed::Over => return Err(Broken),
            Framed::Length(left) => {
                let rest = left.checked_sub(part.len() as u64).ok_or(Broken)?;
                *self = if rest == 0 { Framed::Over } else { Framed::Length(rest) };
                out.push(part, b"");
            }
            Framed::Chunked(_) => {
                out.bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                out.push(part, b"\r\n");
            }
            Framed::UntilEnd => out.push(part, b""),
        }
        Ok(())
    }

    /// The body has ended, with these trailers.
    ///
    /// # Errors
    /// It is shorter than it says.
    pub fn end(&mut self, out: &mut Out, trailers: &HeaderMap) -> Result<(), Broken> {
        match std::mem::replace(self, Framed::Over) {
            Framed::Length(_) => return Err(Broken),
            Framed::Chunked(named) => {
                out.bytes.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.iter().filter(|(name, _)| named.contains(name)) {
                    field(&mut out.bytes, name.as_str().as_bytes(), value);
                }
                out.bytes.extend_from_slice(b"\r\n");
            }
            Framed::Over | Framed::UntilEnd => (),
        }
        Ok(())
    }
}
