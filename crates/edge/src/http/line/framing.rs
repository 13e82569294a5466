//! Bodies of clones' answers, taken out of what has come (RFC 9112 6 and 7). Pure. A part is handed on as it lies in
//! the read buffer, without a copy.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

use crate::http::headers::strip_for_trailers;
use crate::http::limits::{CHUNK_LINE_BYTES_MAX, TRAILER_BYTES_MAX};

/// Trailer fields of one answer.
const TRAILERS_MAX: usize = 32;

/// What is to come of an answer's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// Nothing any more.
    Over,
    /// This many bytes are to come, at least one.
    Length(u64),
    Chunked(At),
    /// Whatever comes until the connection ends.
    UntilEnd,
}

/// A place in a chunked body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    Size,
    /// In a chunk's data, of which so many bytes are to come.
    Data(u64),
    /// Before the line end behind a chunk.
    DataEnd,
    Trailers,
}

fn bad(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Body {
    pub fn of_length(bytes: u64) -> Body {
        if bytes == 0 { Body::Over } else { Body::Length(bytes) }
    }

    pub fn chunked() -> Body {
        Body::Chunked(At::Size)
    }

    /// How many bytes are to come, if that is known.
    pub fn left(&self) -> Option<u64> {
        match self {
            Body::Over => Some(0),
            Body::Length(left) => Some(*left),
            Body::Chunked(_) | Body::UntilEnd => None,
        }
    }

    /// Takes the next part out of `input`. None: it is over, or more must come first.
    ///
    /// # Errors
    /// It is not framed as it should be.
    pub fn next(&mut self, input: &mut BytesMut) -> io::Result<Option<Frame<Bytes>>> {
        match self {
            Body::Over => Ok(None),
            Body::Length(left) => {
                let part = take(input, left);
                if *left == 0 {
                    *self = Body::Over;
                }
                Ok(part)
            }
            Body::Chunked(_) => self.next_of_chunked(input),
            Body::UntilEnd => Ok((!input.is_empty()).then(|| Frame::data(input.split().freeze()))),
        }
    }

    fn next_of_chunked(&mut self, input: &mut BytesMut) -> io::Result<Option<Frame<Bytes>>> {
        while let Body::Chunked(at) = self {
            match at {
                Size => match httparse::parse_chunk_size(input) {
                    Ok(httparse::Status::Complete((len, size))) => {
                        input.advance(len);
                        *at = if size == 0 { Trailers } else { Data(size) };
                    }
                    Ok(httparse::Status::Partial) if input.len() <= CHUNK_LINE_BYTES_MAX => return Ok(None),
                    _ => return Err(bad("a chunk of the answer has no proper size")),
                },
                Data(left) => {
                    let part = take(input, left);
                    if *left == 0 {
                        *at = DataEnd;
                    }
                    return Ok(part);
                }
                DataEnd => match (input.first(), input.get(1)) {
                    (Some(b'\r'), Some(b'\n')) => {
                        input.advance(2);
                        *at = Size;
                    }
                    (None, _) | (Some(b'\r'), None) => return Ok(None),
                    _ => return Err(bad("a chunk of the answer is longer than it says")),
                },
                Trailers => {
                    let mut fields = [httparse::EMPTY_HEADER; TRAILERS_MAX];
                    let (len, fields) = match httparse::parse_headers(input, &mut fields) {
                        Ok(httparse::Status::Complete(parsed)) => parsed,
                        Ok(httparse::Status::Partial) if input.len() <= TRAILER_BYTES_MAX => return Ok(None),
                        _ => return Err(bad("the answer's trailers are not fields, or too many")),
                    };
                    let mut map = HeaderMap::new();
                    for field in fields {
                        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(io::Error::other)?;
                        map.append(name, HeaderValue::from_bytes(field.value).map_err(io::Error::other)?);
                    }
                    input.advance(len);
                    strip_for_trailers(&mut map);
                    *self = Body::Over;
                    return Ok((!map.is_empty()).then(|| Frame::trailers(map)));
                }
            }
        }
        Ok(None)
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// The body has not.
    pub fn end(&mut self) -> io::Result<()> {
        match self {
            Body::Over => Ok(()),
            Body::UntilEnd => {
                *self = Body::Over;
                Ok(())
            }
            Body::Length(_) | Body::Chunked(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

use At::{Data, DataEnd, Size, Trailers};

fn take(input: &mut BytesMut, left: &mut u64) -> Option<Frame<Bytes>> {
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    *left -= count as u64;
    (count > 0).then(|| Frame::data(input.split_to(count).freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` in steps of `step`; what came out, the trailers, and what was left over.
    fn read(mut body: Body, bytes: &[u8], step: usize) -> io::Result<(Vec<u8>, HeaderMap, BytesMut)> {
        let (mut input, mut data, mut trailers) = (BytesMut::new(), Vec::new(), HeaderMap::new());
        for part in bytes.chunks(step) {
            input.extend_from_slice(part);
            while let Some(frame) = body.next(&mut input)? {
                match frame.into_data() {
                    Ok(part) => data.extend_from_slice(&part),
                    Err(frame) => trailers = frame.into_trailers().unwrap(),
                }
            }
        }
        body.end()?;
        Ok((data, trailers, input))
    }

    #[test]
    fn bodies_come_out_the_same_however_they_are_cut() {
        let chunked = b"5;x=y\r\nhello\r\n1\r\n \r\n05\r\nworld\r\n0\r\nX-Sum: 9\r\n\r\nNEXT";
        for step in 1..=chunked.len() {
            let (data, trailers, rest) = read(Body::chunked(), chunked, step).unwrap();
            assert_eq!((data.as_slice(), rest.as_ref()), (&b"hello world"[..], &b"NEXT"[..]), "{step}");
            assert_eq!(trailers["x-sum"], "9");
            let (data, _, rest) = read(Body::of_length(11), b"hello worldNEXT", step).unwrap();
            assert_eq!((data.as_slice(), rest.as_ref()), (&b"hello world"[..], &b"NEXT"[..]));
            let (data, _, _) = read(Body::UntilEnd, b"hello world", step).unwrap();
            assert_eq!(data, b"hello world");
        }
        let (data, trailers, _) = read(Body::chunked(), b"0\r\n\r\n", 1).unwrap();
        assert!(data.is_empty() && trailers.is_empty());
    }

    #[test]
    fn a_body_that_is_cut_off_or_badly_framed_is_an_error() {
        assert!(read(Body::of_length(3), b"ab", 1).is_err());
        for bad in [
            "5\r\nhello",
            "5\r\nhello\r\n",
            "5\r\nhello\r\n0\r\n",
            "5\r\nhello!\r\n0\r\n\r\n",
            "-1\r\n",
            "x\r\n\r\n",
            "10000000000000000\r\n",
            "0\r\nno colon\r\n\r\n",
        ] {
            assert!(read(Body::chunked(), bad.as_bytes(), 3).is_err(), "{bad}");
        }
        let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(2 * CHUNK_LINE_BYTES_MAX));
        assert!(read(Body::chunked(), long.as_bytes(), 100).is_err());
        let long = format!("0\r\nx: {}\r\n\r\n", "x".repeat(2 * TRAILER_BYTES_MAX));
        assert!(read(Body::chunked(), long.as_bytes(), 100).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_end_or_are_refused(bytes: Vec<u8>, text in "([0-9a-f]{1,3}(;[a-z]{0,3})?\r\n[ -~]{0,20}(\r\n)?){0,6}", step in 1..9usize) {
            for bytes in [bytes.as_slice(), text.as_bytes()] {
                let _ = read(Body::chunked(), bytes, step);
                if let Ok((data, _, rest)) = read(Body::of_length(7), bytes, step) {
                    proptest::prop_assert_eq!(data.len() + rest.len(), bytes.len());
                }
            }
        }
    }
}
