//! A plain HTTP/1.1 client: one connection, one request, one answer, deadlines. Small enough to see what it does.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Longest silence of the other side.
const READ_WITHIN: Duration = Duration::from_secs(15);

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn json(&self) -> Result<Value, String> {
        if self.status != 200 {
            return Err(format!("HTTP {}: {}", self.status, self.text()));
        }
        serde_json::from_slice(&self.body).map_err(|e| format!("{e}: {}", self.text()))
    }
}

pub fn get(at: SocketAddr, path: &str) -> io::Result<Reply> {
    request(at, "GET", path, &[], b"")
}

pub fn request(at: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&at, CONNECT_WITHIN)?;
    stream.set_read_timeout(Some(READ_WITHIN))?;
    stream.set_nodelay(true)?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        head += &format!("Host: {at}\r\n");
    }
    if !body.is_empty() || method == "POST" || method == "PUT" {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    stream.write_all(body)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&bytes, method == "HEAD").ok_or_else(|| {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        io::Error::new(io::ErrorKind::InvalidData, format!("no whole answer came from {at}, only {shown:?}"))
    })
}

/// None unless the answer is whole; to HEAD it has no body, whatever it says.
fn parse(bytes: &[u8], is_head: bool) -> Option<Reply> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let header = |line: &str| line.split_once(':').map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_owned()));
    let headers: Vec<(String, String)> = lines.filter_map(header).collect();
    let value = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let rest = &bytes[end + 4..];
    let body = match (value("transfer-encoding"), value("content-length")) {
        _ if is_head => rest.to_vec(),
        (Some("chunked"), _) => unchunk(rest)?,
        (_, Some(length)) => rest.get(..length.parse().ok()?)?.to_vec(),
        _ => rest.to_vec(),
    };
    Some(Reply { status, headers, body })
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(line + 2..line + 2 + size)?);
        rest = rest.get(line + 2 + size + 2..)?;
    }
}

/// A visitor of the example shop, known by a cookie of its own. Remembers what it was told is in its cart.
#[derive(Clone, Debug)]
pub struct Shopper {
    pub sid: String,
    pub cart: BTreeMap<String, u64>,
}

impl Shopper {
    pub fn new(name: &str) -> Shopper {
        Shopper { sid: format!("e2e-{}-{name}", std::process::id()), cart: BTreeMap::new() }
    }

    /// Puts one into the cart. The answer's status and text if it is not the shop's yes.
    pub fn add(&mut self, at: SocketAddr, ware: &str) -> Result<(), String> {
        let cookie = format!("sid={}", self.sid);
        let headers = [("Cookie", cookie.as_str()), ("Content-Type", "application/x-www-form-urlencoded")];
        let reply = request(at, "POST", "/add", &headers, format!("ware={ware}").as_bytes());
        let reply = reply.map_err(|e| format!("POST /add at {at}: {e}"))?;
        if reply.status != 303 {
            return Err(format!("POST /add at {at}: HTTP {}: {}", reply.status, reply.text()));
        }
        *self.cart.entry(ware.to_owned()).or_default() += 1;
        Ok(())
    }

    /// The cart as the shop shows it, and the clone that showed it.
    pub fn look(&self, at: SocketAddr) -> Result<(BTreeMap<String, u64>, String), String> {
        let cookie = format!("sid={}", self.sid);
        let reply = request(at, "GET", "/cart.json", &[("Cookie", &cookie)], b"")
            .map_err(|e| format!("GET /cart.json at {at}: {e}"))?;
        let json = reply.json().map_err(|e| format!("GET /cart.json at {at}: {e}"))?;
        let cart = json["cart"].as_object().ok_or_else(|| format!("no cart in {json}"))?;
        let cart = cart.iter().map(|(ware, count)| (ware.clone(), count.as_u64().unwrap_or(0))).collect();
        Ok((cart, json["clone"].as_str().unwrap_or_default().to_owned()))
    }

    /// The cart is there and is what it must be.
    pub fn check(&self, at: SocketAddr) -> Result<(), String> {
        let (cart, _) = self.look(at)?;
        if cart == self.cart {
            Ok(())
        } else {
            Err(format!("cart at {at} of {} is {cart:?}, not {:?}", self.sid, self.cart))
        }
    }
}
