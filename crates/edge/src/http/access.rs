//! The access log of a service that has one: a line for each of its requests, written when the answer has ended, and a
//! request id that the program and the client are told. A service without one costs a look at its doorway and nothing
//! else. The files are `host::access`'s; how they are read is the business of `coppice logs --access`.

use std::fmt::Write;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clones::AccessLog;
use host::access::AccessLogs;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode, Version};
use ring::rand::{SecureRandom, SystemRandom};

use super::limits::{ACCESS_FIELD_BYTES_MAX, ACCESS_TARGET_BYTES_MAX, REQUEST_ID_BYTES_MAX};
use super::passage::Cleansed;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A request of which a line is to be written. It is when this is dropped.
pub struct Record {
    logs: AccessLogs,
    form: AccessLog,
    service: Box<str>,
    seen: Seen,
    began: Instant,
    head: Option<Instant>,
}

/// What a line says.
#[derive(Default)]
struct Seen {
    at_ms: u64,
    id: Option<HeaderValue>,
    trace: Option<String>,
    client: String,
    method: String,
    host: String,
    target: String,
    version: &'static str,
    agent: Option<String>,
    referer: Option<String>,
    clone: Option<String>,
    status: u16,
    bytes: u64,
    is_whole: bool,
    head_ms: f64,
    ms: f64,
}

impl Record {
    /// Begins the record of a request as it came, which is given its id. `host` is what it was asked for.
    pub fn begin(
        (logs, form, service): (&AccessLogs, AccessLog, &str),
        request: &mut Cleansed,
        client: std::net::IpAddr,
        began: Instant,
    ) -> Box<Self> {
        let Cleansed { method, uri, version, fields, host, .. } = request;
        let headers = fields.map();
        let id = request_id(headers);
        let is_json = form == AccessLog::Json;
        let field = |name: HeaderName| text_of(headers, &name).filter(|_| is_json);
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let seen = Seen {
            at_ms: at_ms.saturating_sub(began.elapsed().as_millis() as u64),
            trace: field(TRACEPARENT),
            client: client.to_string(),
            method: cut(method.as_str(), ACCESS_FIELD_BYTES_MAX).to_owned(),
            host: if is_json {
                cut(&String::from_utf8_lossy(host.as_bytes()), ACCESS_FIELD_BYTES_MAX).into()
            } else {
                String::new()
            },
            target: cut(target, ACCESS_TARGET_BYTES_MAX).to_owned(),
            version: match *version {
                Version::HTTP_10 => "HTTP/1.0",
                Version::HTTP_2 => "HTTP/2.0",
                _ => "HTTP/1.1",
            },
            agent: field(header::USER_AGENT),
            referer: field(header::REFERER),
            id,
            ..Seen::default()
        };
        Box::new(Self { logs: logs.clone(), form, service: service.into(), seen, began, head: None })
    }

    /// The head of its answer, which is given the id.
    pub fn answered<B>(&mut self, response: &mut Response<B>, clone: Option<&str>) {
        self.seen.status = response.status().as_u16();
        self.seen.clone = clone.filter(|_| self.form == AccessLog::Json).map(str::to_owned);
        self.head = Some(Instant::now());
        self.seen.is_whole = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if let Some(id) = &self.seen.id {
            response.headers_mut().entry(REQUEST_ID).or_insert_with(|| id.clone());
        }
    }

    /// Bytes of its body were taken,
    pub fn moved(&mut self, bytes: usize) {
        self.seen.bytes += bytes as u64;
    }

    /// ... or it has ended as it should.
    pub fn ended(&mut self) {
        self.seen.is_whole = true;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let millis = |at: Instant| (at.saturating_duration_since(self.began).as_micros() as f64) / 1000.0;
        let now = Instant::now();
        (self.seen.head_ms, self.seen.ms) = (millis(self.head.unwrap_or(now)), millis(now));
        let line = match self.form {
            AccessLog::Off => return,
            AccessLog::Common => self.seen.common(),
            AccessLog::Json => self.seen.json(),
        };
        self.logs.write(&self.service, &line);
    }
}

impl Seen {
    /// `192.0.2.1 - - [26/Nov/2026:03:12:07 +0000] "GET /cart HTTP/1.1" 200 512`
    fn common(&self) -> String {
        let mut line = format!("{} - - [{}] \"", self.client, common_date(self.at_ms));
        for text in [&*self.method, " ", &self.target, " ", self.version] {
            escape(text, &mut line);
        }
        // A client that left before it was answered has no status: 499, as other servers write it.
        let status = if self.status == 0 { GONE } else { self.status };
        match self.bytes {
            0 => drop(write!(line, "\" {status} -")),
            bytes => drop(write!(line, "\" {status} {bytes}")),
        }
        line
    }

    fn json(&self) -> String {
        let Self { at_ms, trace, client, method, host, target, version, agent, referer, clone, .. } = self;
        let id = self.id.as_ref().and_then(|id| id.to_str().ok());
        let mut line = serde_json::json!({
            "at_ms": at_ms, "id": id, "client": client, "method": method, "host": host, "path": target, "protocol": version,
            "status": if self.status == 0 { GONE } else { self.status }, "bytes": self.bytes, "whole": self.is_whole,
            "head_ms": self.head_ms, "ms": self.ms,
        });
        for (name, text) in [("traceparent", trace), ("clone", clone), ("user_agent", agent), ("referer", referer)] {
            if let Some(text) = text {
                line[name] = text.as_str().into();
            }
        }
        line.to_string()
    }
}

/// The id that a request has, or a new one, which it then has.
fn request_id(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let is_good = |id: &HeaderValue| {
        let bytes = id.as_bytes();
        (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    let mut said = headers.get_all(REQUEST_ID).iter();
    if let (Some(id), None) = (said.next(), said.next())
        && is_good(id)
    {
        return Some(id.clone());
    }
    // Two ids, or one that no log should have, are none.
    headers.remove(REQUEST_ID);
    let id = new_id()?;
    headers.insert(REQUEST_ID, id.clone());
    Some(id)
}

/// 128 bits by chance.
fn new_id() -> Option<HeaderValue> {
    static RANDOM: OnceLock<SystemRandom> = OnceLock::new();
    let mut bytes = [0; 16];
    RANDOM.get_or_init(SystemRandom::new).fill(&mut bytes).ok()?;
    HeaderValue::try_from(format!("{:032x}", u128::from_be_bytes(bytes))).ok()
}

fn text_of(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?;
    Some(cut(&String::from_utf8_lossy(value.as_bytes()), ACCESS_FIELD_BYTES_MAX).to_owned())
}

fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// As Apache writes it: what would end the quotes or the line, and what is not plain ASCII, as `\xHH`.
fn escape(text: &str, line: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'"' => line.push_str("\\\""),
            b'\\' => line.push_str("\\\\"),
            b' '..=b'~' => line.push(byte as char),
            _ => drop(write!(line, "\\x{byte:02x}")),
        }
    }
}

/// `26/Nov/2026:03:12:07 +0000`, of what HTTP writes as `Thu, 26 Nov 2026 03:12:07 GMT`.
fn common_date(at_ms: u64) -> String {
    let date = httpdate::fmt_http_date(UNIX_EPOCH + std::time::Duration::from_millis(at_ms));
    let words: Vec<&str> = date.split(' ').collect();
    match words[..] {
        [_, day, month, year, time, _] => format!("{day}/{month}/{year}:{time} +0000"),
        _ => date,
    }
}

/// Status of a request whose client left before there was an answer.
const GONE: u16 = 499;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        Seen {
            at_ms: 1_795_662_727_123,
            client: "192.0.2.1".into(),
            method: "GET".into(),
            host: "shop.example".into(),
            target: "/cart?x=1".into(),
            version: "HTTP/1.1",
            status: 200,
            bytes: 512,
            is_whole: true,
            ms: 1.5,
            ..Seen::default()
        }
    }

    #[test]
    fn the_common_form_is_that_of_other_servers_and_one_line() {
        assert_eq!(seen().common(), r#"192.0.2.1 - - [26/Nov/2026:03:12:07 +0000] "GET /cart?x=1 HTTP/1.1" 200 512"#);
        let odd = Seen { method: "A\"\\".into(), target: "/é\n".into(), bytes: 0, status: 0, ..seen() };
        assert_eq!(odd.common(), r#"192.0.2.1 - - [26/Nov/2026:03:12:07 +0000] "A\"\\ /\xc3\xa9\x0a HTTP/1.1" 499 -"#);
    }

    #[test]
    fn the_json_form_has_what_is_known_and_is_one_line() {
        let id = Some(HeaderValue::from_static("abc"));
        let line = Seen { id, clone: Some("shop/1".into()), agent: Some("a\n\"b".into()), ..seen() }.json();
        assert!(!line.contains('\n'));
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expect = serde_json::json!({
            "at_ms": 1_795_662_727_123_u64, "id": "abc", "client": "192.0.2.1", "method": "GET", "host": "shop.example",
            "path": "/cart?x=1", "protocol": "HTTP/1.1", "status": 200, "bytes": 512, "whole": true, "head_ms": 0.0, "ms": 1.5,
            "clone": "shop/1", "user_agent": "a\n\"b",
        });
        assert_eq!(line, expect);
    }

    #[test]
    fn a_good_id_is_passed_on_and_any_other_becomes_a_new_one() {
        let with = |ids: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for id in ids {
                headers.append(REQUEST_ID, HeaderValue::from_bytes(id).unwrap());
            }
            let id = request_id(&mut headers).unwrap();
            let all: Vec<_> = headers.get_all(REQUEST_ID).iter().cloned().collect();
            assert_eq!(all, std::slice::from_ref(&id), "the program has the same one");
            id.to_str().unwrap().to_owned()
        };
        assert_eq!(with(&[&b"abc-1"[..]]), "abc-1");
        let long = [b'a'; REQUEST_ID_BYTES_MAX + 1];
        for bad in [
            vec![],
            vec![&b""[..]],
            vec![&b"a b"[..]],
            vec![&b"a\xff"[..]],
            vec![&long[..]],
            vec![&b"a"[..], &b"b"[..]],
        ] {
            let id = with(&bad);
            assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        }
        assert_ne!(with(&[]), with(&[]));
    }

    #[test]
    fn the_longest_line_fits_into_the_file_whole() {
        let long = "\"".repeat(100_000);
        let text = || Some(cut(&long, ACCESS_FIELD_BYTES_MAX).to_owned());
        let target = cut(&long, ACCESS_TARGET_BYTES_MAX).to_owned();
        let method = text().unwrap();
        let one =
            Seen { target, method, agent: text(), referer: text(), trace: text(), host: text().unwrap(), ..seen() };
        assert!(one.json().len() < host::limits::ACCESS_LINE_BYTES_MAX, "{}", one.json().len());
        assert!(one.common().len() < host::limits::ACCESS_LINE_BYTES_MAX);
        assert_eq!(cut("éé", 3), "é");
    }
}
