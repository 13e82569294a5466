//! Reads the raw bytes of requests and judges them, so that whoever reads them behind us agrees where each request
//! ends. Libraries are lenient where an attacker needs it: they take bare line feeds, or a Content-Length after a
//! Transfer-Encoding. Here every doubtful head is refused (RFC 9112 11.2). What passes is not read again: where its
//! parts are is noted. Pure: bytes in, verdicts out.

use std::ops::Range;

use super::limits::{CHUNK_LINE_BYTES_MAX, FIELDS_MAX, HEAD_BYTES_MAX, TARGET_BYTES_MAX, TRAILER_BYTES_MAX};

/// Why a request is refused: the status it gets, and a line for a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation {
    pub status: u16,
    pub why: &'static str,
}

/// How the body of a request is framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// This many bytes follow, maybe none.
    Length(u64),
    Chunked,
}

/// A name or an address, with or without a port: one colon before digits.
pub fn is_host(bytes: &[u8]) -> bool {
    let end = match bytes {
        // An address of IPv6 has its colons between brackets.
        [b'[', inside @ ..] => memchr::memchr(b']', inside).map_or(0, |end| end + 2),
        _ => memchr::memchr(b':', bytes).unwrap_or(bytes.len()),
    };
    let (name, port) = bytes.split_at(end);
    let inside = name.strip_prefix(b"[").map_or(name, |name| &name[..name.len() - 1]);
    !inside.is_empty()
        && all(inside, HOST)
        && !inside.iter().any(|b| matches!(b, b'[' | b']'))
        && (port.is_empty() || port[0] == b':' && port[1..].iter().all(u8::is_ascii_digit))
}

/// A field's name, or a method.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

pub fn is_target(bytes: &[u8]) -> bool {
    all(bytes, TARGET)
}

/// What is known of a head that may not be complete yet. Fed with the same growing bytes until it is.
#[derive(Debug, Default)]
pub struct HeadScan {
    /// First byte of the first line that was not checked yet.
    line_start: usize,
    /// Everything before this has been searched for a line end.
    searched: usize,
    request_line: Option<RequestLine>,
    fields: Vec<Field>,
    host: Option<(usize, usize)>,
    length: Option<u64>,
    chunked: bool,
}

#[derive(Clone, Copy, Debug)]
struct RequestLine {
    /// Authority of a target in absolute form, as a range of the head.
    authority: Option<(usize, usize)>,
    /// Where the method, which begins the head, and the target, likewise, end.
    method_end: usize,
    target_end: usize,
    /// The target has bytes that not all readers take.
    is_odd: bool,
    minor: u8,
}

/// A field, as places in its head.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    start: u32,
    colon: u32,
    value: (u32, u32),
}

impl Field {
    pub fn name(self) -> Range<usize> {
        self.start as usize..self.colon as usize
    }

    /// Without the white space around it.
    pub fn value(self) -> Range<usize> {
        self.value.0 as usize..self.value.1 as usize
    }
}

/// The parts of a request line, as places in its head.
#[derive(Clone, Debug)]
pub struct Parts {
    pub method: Range<usize>,
    pub target: Range<usize>,
    /// The target has to be [`encoded`].
    pub is_odd: bool,
    /// N of HTTP/1.N.
    pub minor: u8,
}

const TOKEN: u8 = 1;
const VALUE: u8 = 2;
const TARGET: u8 = 4;
const HOST: u8 = 8;
/// In a target, and no URI (RFC 3986) has them: many clients send them as they are, and the library that reads targets
/// behind us takes some of them in a path alone, some in a query alone.
const ODD: u8 = 16;

/// What each byte may be part of.
const CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        if b.is_ascii_alphanumeric() || is_one_of(b, b"!#$%&'*+-.^_`|~") {
            table[i] |= TOKEN;
        }
        if b == b'\t' || (b >= b' ' && b != 0x7f) {
            table[i] |= VALUE;
        }
        if b > b' ' && b < 0x7f {
            table[i] |= TARGET;
        }
        if is_one_of(b, b"\"<>`") {
            table[i] |= ODD;
        }
        // RFC 3986 reg-name, IP literal and port; no user, no percent tricks.
        if b.is_ascii_alphanumeric() || is_one_of(b, b"-._~:[]") {
            table[i] |= HOST;
        }
        i += 1;
    }
    table
}

const fn is_one_of(b: u8, of: &[u8]) -> bool {
    let mut i = 0;
    while i < of.len() {
        if of[i] == b {
            return true;
        }
        i += 1;
    }
    false
}

/// A target in which what readers differ in is written as %XX, which means the same.
pub fn encoded(target: &[u8]) -> Vec<u8> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Vec::with_capacity(target.len() + 32);
    for b in target {
        match CLASS[usize::from(*b)] & ODD {
            0 => out.push(*b),
            _ => out.extend([b'%', HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]),
        }
    }
    out
}

fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|b| CLASS[usize::from(*b)] & class != 0)
}

const fn bad(why: &'static str) -> Violation {
    Violation { status: 400, why }
}

impl HeadScan {
    /// Where the parts of the request line are, once the whole head was scanned.
    pub fn parts(&self) -> Option<Parts> {
        let line = self.request_line?;
        let (method, target) = (0..line.method_end, line.method_end + 1..line.target_end);
        Some(Parts { method, target, is_odd: line.is_odd, minor: line.minor })
    }

    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Has the places of fields put there, while none is known.
    pub fn lend(&mut self, room: Vec<Field>) {
        debug_assert!(room.is_empty() && self.fields.is_empty(), "nothing was scanned");
        self.fields = room;
    }

    /// What was lent, when the head was made use of.
    pub fn give_back(&mut self) -> Vec<Field> {
        std::mem::take(&mut self.fields)
    }

    /// No byte was looked at.
    pub fn is_new(&self) -> bool {
        self.searched == 0
    }

    /// Looks at a head that begins at `bytes[0]`. `Some`: it ends after so many bytes and is sound; `None`: more is
    /// needed. `bytes` holds what was there at the last call, and more.
    pub fn scan(&mut self, bytes: &[u8], body_bytes_max: u64) -> Result<Option<(usize, Framing)>, Violation> {
        if bytes.first().is_some_and(|b| CLASS[usize::from(*b)] & TOKEN == 0) {
            return Err(bad("this port speaks HTTP/1.1 without TLS, and this is not a request"));
        }
        while let Some(found) = memchr::memchr(b'\n', &bytes[self.searched..]) {
            let end = self.searched + found;
            if end == self.line_start || bytes[end - 1] != b'\r' {
                return Err(bad("a line ends in a bare line feed"));
            }
            let (start, line) = (self.line_start, &bytes[self.line_start..end - 1]);
            (self.line_start, self.searched) = (end + 1, end + 1);
            if self.line_start > HEAD_BYTES_MAX {
                break;
            }
            match self.request_line {
                None => self.request_line = Some(request_line(line)?),
                Some(request) if line.is_empty() => {
                    return Ok(Some((end + 1, self.finish(bytes, request, body_bytes_max)?)));
                }
                Some(_) => self.field(line, start)?,
            }
        }
        self.searched = self.searched.max(bytes.len().saturating_sub(1)).min(bytes.len());
        if self.request_line.is_none() && bytes.len() > TARGET_BYTES_MAX {
            return Err(Violation { status: 414, why: "the request line is longer than 8 KiB" });
        }
        if bytes.len() > HEAD_BYTES_MAX {
            return Err(TOO_LARGE_HEAD);
        }
        Ok(None)
    }

    fn field(&mut self, line: &[u8], start: usize) -> Result<(), Violation> {
        if self.fields.len() == FIELDS_MAX {
            return Err(Violation { status: 431, why: "the request has more than 100 header fields" });
        }
        if line.first().is_some_and(|b| *b == b' ' || *b == b'\t') {
            return Err(bad("a header field is folded over two lines"));
        }
        let Some(colon) = memchr::memchr(b':', line) else {
            return Err(bad("a header field has no colon"));
        };
        let (name, raw) = (&line[..colon], &line[colon + 1..]);
        if !is_token(name) {
            return Err(bad(
                "the name of a header field has characters that are not allowed, or a space before its colon",
            ));
        }
        if !all(raw, VALUE) {
            return Err(bad("the value of a header field has control characters"));
        }
        let value = raw.trim_ascii();
        let at = start + colon + 1 + (raw.len() - raw.trim_ascii_start().len());
        let [from, to, name_from, name_to] = [at, at + value.len(), start, start + colon].map(|place| place as u32);
        self.fields.push(Field { start: name_from, colon: name_to, value: (from, to) });
        // Few fields matter here; their names are told apart by length first, as most requests carry ten others.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                if self.host.replace((at, at + value.len())).is_some() {
                    return Err(bad("the request has two Host fields"));
                }
                if !value.is_empty() && !is_host(value) {
                    return Err(bad("the Host field is not a host and port"));
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let value = length(value).ok_or(bad("Content-Length is not a number"))?;
                if self.length.replace(value).is_some_and(|before| before != value) {
                    return Err(bad("the request has two Content-Length fields that differ"));
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(bad("the only Transfer-Encoding taken here is chunked, once"));
                }
                self.chunked = true;
            }
            _ => (),
        }
        Ok(())
    }

    fn finish(&self, bytes: &[u8], request: RequestLine, body_bytes_max: u64) -> Result<Framing, Violation> {
        let host = self.host.map(|(from, to)| &bytes[from..to]);
        if request.minor > 0 && host.is_none_or(<[u8]>::is_empty) {
            return Err(bad("the request has no Host field"));
        }
        if let Some((from, to)) = request.authority
            && host.is_some_and(|host| !host.eq_ignore_ascii_case(&bytes[from..to]))
        {
            return Err(bad("the request's target and its Host field name different hosts"));
        }
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(bad("the request has both Content-Length and Transfer-Encoding")),
            (true, None) if request.minor == 0 => Err(bad("Transfer-Encoding is not for HTTP/1.0")),
            (true, None) => Ok(Framing::Chunked),
            (false, length) if length.unwrap_or(0) > body_bytes_max => Err(TOO_LARGE),
            (false, length) => Ok(Framing::Length(length.unwrap_or(0))),
        }
    }
}

pub const TOO_LARGE_HEAD: Violation =
    Violation { status: 431, why: "the request's header fields are larger than 64 KiB" };

pub const UNCLEAR_PATH: Violation = Violation { status: 400, why: clones::path::UNCLEAR };
pub const LATE: Violation = Violation { status: 408, why: "the request did not arrive in time" };
pub const TOO_MANY: Violation = Violation { status: 503, why: "too many connections here; try again" };
pub const TOO_LARGE: Violation = Violation { status: 413, why: "the request's body is larger than this cluster takes" };

/// What a Content-Length says, if it is a number and nothing else.
pub fn length(value: &[u8]) -> Option<u64> {
    // Not str::parse: it takes a plus sign.
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// Reads the request line, the first one of a head.
fn request_line(line: &[u8]) -> Result<RequestLine, Violation> {
    if line.len() > TARGET_BYTES_MAX {
        return Err(Violation { status: 414, why: "the request line is longer than 8 KiB" });
    }
    let mut parts = line.split(|b| *b == b' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(bad("the request line is not a method, a target and a version with one space between them"));
    };
    if !is_token(method) {
        return Err(bad("the request's method has characters that are not allowed"));
    }
    // What all its bytes are, and what some are.
    let (every, some) = target.iter().map(|b| CLASS[usize::from(*b)]).fold((TARGET, 0), |(e, s), c| (e & c, s | c));
    if target.is_empty() || every & TARGET == 0 {
        return Err(bad("the request's target has characters that are not allowed; they are sent as %XX"));
    }
    let minor = match version {
        b"HTTP/1.1" => 1,
        b"HTTP/1.0" => 0,
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
            return Err(Violation { status: 505, why: "this port speaks HTTP/1.1 and HTTP/1.0" });
        }
        _ => return Err(bad("the request's version is not HTTP/1.1")),
    };
    if method == b"CONNECT" {
        return Err(Violation { status: 501, why: "this is no forward proxy: CONNECT is not offered" });
    }
    let authority = match target {
        [b'/', ..] => None,
        b"*" if method == b"OPTIONS" => None,
        _ => {
            let scheme = ["http://", "https://"]
                .into_iter()
                .find(|s| target.len() >= s.len() && target[..s.len()].eq_ignore_ascii_case(s.as_bytes()))
                .ok_or(bad("the request's target is neither a path nor an http address"))?;
            let rest = &target[scheme.len()..];
            let end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
            // The library reads it again, as an address of a strict kind.
            if !is_host(&rest[..end]) || http::uri::Authority::try_from(&rest[..end]).is_err() {
                return Err(bad("the request's target does not name a host"));
            }
            let from = method.len() + 1 + scheme.len();
            Some((from, from + end))
        }
    };
    let (method_end, target_end) = (method.len(), method.len() + 1 + target.len());
    Ok(RequestLine { authority, method_end, target_end, is_odd: some & ODD != 0, minor })
}

/// Follows a chunked body to its end.
#[derive(Debug)]
pub struct Chunks {
    at: At,
    /// Bytes of the present chunk that are to come.
    left: u64,
    /// Bytes of the present size line or of all trailers.
    line: usize,
    body_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// Before the first digit of a size.
    Size,
    Digits,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the first byte of a trailer line.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
}

/// What comes behind the framing that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// This many bytes of data, at least one.
    Data(u64),
    /// Nobody knows before more bytes have come.
    More,
    /// The end of the body.
    End,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { at: At::Size, left: 0, line: 0, body_bytes: 0 }
    }
}

impl Chunks {
    /// Takes the next bytes of the body. Returns how many belong to it, and whether it ended with them.
    pub fn scan(&mut self, bytes: &[u8], body_bytes_max: u64) -> Result<(usize, bool), Violation> {
        let mut taken = 0;
        while taken < bytes.len() {
            let (framing, next) = self.next(&bytes[taken..], body_bytes_max)?;
            taken += framing;
            match next {
                Next::End => return Ok((taken, true)),
                Next::More => break,
                Next::Data(left) => {
                    let step = left.min((bytes.len() - taken) as u64);
                    self.took(step);
                    taken += step as usize;
                }
            }
        }
        Ok((taken, false))
    }

    /// Notes that this many bytes of the data that was next were taken.
    pub fn took(&mut self, bytes: u64) {
        self.left -= bytes;
        if self.left == 0 && self.at == At::Data {
            self.at = At::DataCr;
        }
    }

    /// Takes what frames the body from the front of `bytes`: how many that are, and what is behind them.
    pub fn next(&mut self, bytes: &[u8], body_bytes_max: u64) -> Result<(usize, Next), Violation> {
        let mut i = 0;
        while self.at != At::Data {
            let Some(&b) = bytes.get(i) else { return Ok((i, Next::More)) };
            i += 1;
            self.line += 1;
            let next = self.step(b)?;
            match (self.at, next) {
                (At::EndLf, _) => return Ok((i, Next::End)),
                (At::SizeLf, _) => {
                    self.body_bytes = self.body_bytes.saturating_add(self.left);
                    if self.body_bytes > body_bytes_max {
                        return Err(TOO_LARGE);
                    }
                    self.line = 0;
                }
                (At::DataLf, _) => self.line = 0,
                _ => (),
            }
            self.at = next;
        }
        Ok((i, Next::Data(self.left)))
    }

    fn step(&mut self, b: u8) -> Result<At, Violation> {
        let too_long = match self.at {
            At::Size | At::Digits | At::Extension => self.line > CHUNK_LINE_BYTES_MAX,
            _ => self.line > TRAILER_BYTES_MAX,
        };
        if too_long {
            return Err(bad("a chunk's size line or the trailer fields are too long"));
        }
        let class = CLASS[usize::from(b)];
        match (self.at, b) {
            (At::Size | At::Digits, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = (b as char).to_digit(16).expect("matched as hexadecimal above");
                if self.at == At::Size {
                    self.left = 0;
                }
                // One digit less than a u64 holds, so that no reader of this overflows.
                if self.left >> 56 != 0 {
                    return Err(bad("a chunk's size is too large"));
                }
                self.left = self.left << 4 | u64::from(digit);
                Ok(At::Digits)
            }
            (At::Digits, b';') => Ok(At::Extension),
            (At::Digits | At::Extension, b'\r') => Ok(At::SizeLf),
            (At::Extension, _) if class & VALUE != 0 => Ok(At::Extension),
            (At::SizeLf, b'\n') if self.left == 0 => Ok(At::TrailerStart),
            (At::SizeLf, b'\n') => Ok(At::Data),
            (At::DataCr, b'\r') => Ok(At::DataLf),
            (At::DataLf, b'\n') => Ok(At::Size),
            (At::TrailerStart, b'\r') => Ok(At::EndLf),
            (At::TrailerStart | At::TrailerName, _) if class & TOKEN != 0 => Ok(At::TrailerName),
            (At::TrailerName, b':') => Ok(At::TrailerValue),
            (At::TrailerValue, b'\r') => Ok(At::TrailerLf),
            (At::TrailerValue, _) if class & VALUE != 0 => Ok(At::TrailerValue),
            (At::TrailerLf, b'\n') => Ok(At::TrailerStart),
            (At::EndLf, b'\n') => Ok(At::EndLf),
            _ => Err(bad("the request's chunked body is malformed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(head: &str) -> Result<Option<(usize, Framing)>, u16> {
        HeadScan::default().scan(head.as_bytes(), 1000).map_err(|v| v.status)
    }

    fn check(head: &str, expect: Result<Framing, u16>) {
        let whole = scan(head).map(|found| found.unwrap_or_else(|| panic!("{head:?} is incomplete")));
        assert_eq!(whole.map(|(_, framing)| framing), expect, "{head:?}");
        // Byte by byte gives the same verdict, maybe earlier.
        let mut scan = HeadScan::default();
        let slow = (1..=head.len()).find_map(|to| scan.scan(&head.as_bytes()[..to], 1000).transpose());
        let slow = slow.unwrap_or_else(|| panic!("{head:?} has no end"));
        assert_eq!(slow.map(|(_, framing)| framing).map_err(|v| v.status), expect, "{head:?} byte by byte");
    }

    #[test]
    fn sound_requests_pass() {
        check("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Framing::Length(0)));
        check("GET / HTTP/1.0\r\n\r\n", Ok(Framing::Length(0)));
        check("POST /x?y=%20 HTTP/1.1\r\nhOsT: a:80\r\nContent-Length:  12 \r\n\r\n", Ok(Framing::Length(12)));
        check("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", Ok(Framing::Length(1)));
        check("POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nHost: [::1]:80\r\n\r\n", Ok(Framing::Chunked));
        check("GET / HTTP/1.1\r\nHost: a.example:\r\n\r\n", Ok(Framing::Length(0)));
        check("GET / HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n", Ok(Framing::Length(0)));
        check("GET http://A.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n", Ok(Framing::Length(0)));
        check("OPTIONS * HTTP/1.1\r\nHost: a\r\nX:\r\nY: \tz\u{e9}\r\n\r\n", Ok(Framing::Length(0)));
    }

    #[test]
    fn what_two_readers_could_frame_differently_is_refused() {
        for fields in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: \x0bchunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            " Transfer-Encoding: chunked\r\n",
            "X: 1\r\n Transfer-Encoding: chunked\r\n",
            "X: 1\r\n\tfolded\r\n",
            "X: 1\nTransfer-Encoding: chunked\r\n",
            "X: 1\rTransfer-Encoding: chunked\r\n",
            "X: a\0b\r\n",
            "X\r\n",
            ": x\r\n",
            "X(y): x\r\n",
            "Host: b\r\n",
            "Host: a\r\n",
        ] {
            check(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"), Err(400));
        }
        check("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Err(400));
    }

    #[test]
    fn malformed_request_lines_and_hosts_are_refused() {
        for (head, status) in [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: me@a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a:80:90\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a:8o\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: :80\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: []:80\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: [::1]80\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: [::1]:80:90\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a]:80\r\n\r\n", 400),
            ("GET http://a:80:90/ HTTP/1.1\r\nHost: a:80:90\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
            ("GET / a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.11\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
            ("PRI * HTTP/2.0\r\n\r\n", 505),
            ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET http://x@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 501),
            ("GET / HTTP/1.1\nHost: a\n\n", 400),
            ("\x16\x03\x01\r\n\r\n", 400),
            ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", 413),
        ] {
            check(head, Err(status));
        }
    }

    #[test]
    fn long_heads_have_their_own_statuses() {
        check(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(9_000)), Err(414));
        check(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(65_536)), Err(431));
        check(&format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(101)), Err(431));
        assert_eq!(scan(&"x".repeat(9_000)), Err(414), "also without an end in sight");
        assert_eq!(scan(&format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(66_000))), Err(431));
        assert_eq!(scan("GET / HTTP/1.1\r\nHost: a\r\n"), Ok(None));
    }

    /// Statuses and consumed bytes of a body, fed whole and byte by byte.
    fn chunks(body: &str) -> Result<(usize, bool), u16> {
        let whole = Chunks::default().scan(body.as_bytes(), 1000).map_err(|v| v.status);
        let (mut slow, mut used) = (Chunks::default(), 0);
        let mut verdict = Ok((0, false));
        for b in body.as_bytes() {
            verdict = slow.scan(&[*b], 1000).map_err(|v| v.status);
            used += verdict.map_or(0, |(n, _)| n);
            if !matches!(verdict, Ok((_, false))) {
                break;
            }
        }
        assert_eq!(whole, verdict.map(|(_, end)| (used, end)), "{body:?} byte by byte");
        whole
    }

    #[test]
    fn chunked_bodies_end_where_they_end() {
        assert_eq!(chunks("0\r\n\r\nGET"), Ok((5, true)));
        assert_eq!(chunks("5\r\nhello\r\n0\r\n\r\n"), Ok((15, true)));
        assert_eq!(chunks("00A;x=\"y\"\r\n0123456789\r\n0\r\nT: x\r\n\r\nrest"), Ok((34, true)));
        assert_eq!(chunks("5\r\nhel"), Ok((6, false)));
        for body in [
            "\r\n",
            "5\nhello\r\n",
            "5 \r\nhello",
            " 5\r\n",
            "5\r\nhelloX\r\n",
            "5\r\nhello\n",
            "x\r\n",
            "-1\r\n",
            "0x5\r\n",
            "0\r\n\n",
            "0\r\n: x\r\n",
            "0\r\n x\r\n",
            "0\r\nT x\r\n",
            "0\r\nT: \0\r\n",
            "5;\0\r\n",
            "5;a\rb\r\n",
            "fffffffffffffffff\r\n",
        ] {
            assert_eq!(chunks(body), Err(400), "{body:?}");
        }
        assert_eq!(chunks(&format!("5;{}\r\n", "x".repeat(300))), Err(400));
        assert_eq!(chunks(&format!("0\r\n{}\r\n", "T: x\r\n".repeat(2000))), Err(400));
        assert_eq!(chunks("3e9\r\n"), Err(413), "1001 bytes where 1000 are allowed");
    }

    proptest::proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>, split in 0usize..64) {
            let mut head = HeadScan::default();
            let early = head.scan(&bytes[..split.min(bytes.len())], 10);
            if matches!(early, Ok(None)) {
                let whole = HeadScan::default().scan(&bytes, 10);
                proptest::prop_assert_eq!(head.scan(&bytes, 10), whole);
            }
            let _ = Chunks::default().scan(&bytes, 10);
        }

        #[test]
        fn a_head_cut_anywhere_has_the_verdict_of_the_whole(fields in "([a-zC-T-]{1,17}[ :]{0,2}[ -~\t]{0,9}(\r\n|\n|\r)){0,6}", cut in 0usize..200) {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let whole = HeadScan::default().scan(head.as_bytes(), 10);
            let mut scan = HeadScan::default();
            let early = scan.scan(&head.as_bytes()[..cut.min(head.len())], 10);
            if matches!(early, Ok(None)) {
                proptest::prop_assert_eq!(scan.scan(head.as_bytes(), 10), whole);
            } else {
                proptest::prop_assert_eq!(early, whole);
            }
        }
    }
}
