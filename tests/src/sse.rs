//! A small client of server-sent events: one stream, its events one by one, with a deadline for each.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    pub name: String,
    pub id: Option<String>,
    pub data: Value,
}

impl Event {
    /// Its id, in a namespace with one shard.
    pub fn version(&self) -> u64 {
        self.id.as_ref().and_then(|id| id.parse().ok()).expect("an id that is a version")
    }
}

pub struct Sse {
    stream: BufReader<TcpStream>,
}

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Longest silence: a stream says at least how far it is every 10 s.
const READ_WITHIN: Duration = Duration::from_secs(20);

impl Sse {
    /// Err: it could not be opened, or was refused: status and text.
    pub fn open(at: SocketAddr, path: &str, token: &str, last: Option<&str>) -> Result<Sse, String> {
        let open = || {
            let mut stream = TcpStream::connect_timeout(&at, CONNECT_WITHIN)?;
            stream.set_read_timeout(Some(READ_WITHIN))?;
            let last = last.map_or(String::new(), |last| format!("Last-Event-ID: {last}\r\n"));
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\n{last}\r\n")?;
            let mut stream = BufReader::new(stream);
            let (mut head, mut line) = (String::new(), String::new());
            while stream.read_line(&mut line)? > 2 {
                head += &std::mem::take(&mut line);
            }
            Ok((stream, head))
        };
        let (mut stream, head): (_, String) = open().map_err(|e: std::io::Error| format!("{at}: {e}"))?;
        if !head.starts_with("HTTP/1.1 200") {
            let (mut body, length) = (String::new(), head.to_lowercase());
            if length.contains("content-length") {
                let _ =
                    std::io::Read::read_to_string(&mut std::io::Read::take(&mut stream, body_len(&length)), &mut body);
            }
            return Err(format!("{}: {body}", head.lines().next().unwrap_or_default()));
        }
        Ok(Sse { stream })
    }

    /// The next event that is no comment.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Event, String> {
        let mut event = Event { name: String::new(), id: None, data: Value::Null };
        loop {
            let mut line = String::new();
            match self.stream.read_line(&mut line) {
                Ok(0) => return Err("the stream ended".into()),
                Ok(_) => (),
                Err(e) => return Err(e.to_string()),
            }
            // Chunks' sizes stand on lines of their own, and are no fields.
            match line.trim_end().split_once(": ") {
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("id", id)) => event.id = Some(id.to_owned()),
                Some(("data", data)) => event.data = serde_json::from_str(data).map_err(|e| e.to_string())?,
                _ if line.trim().is_empty() && !event.name.is_empty() && !event.data.is_null() => return Ok(event),
                _ => (),
            }
        }
    }
}

fn body_len(head: &str) -> u64 {
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    length.and_then(|length| length.trim().parse().ok()).unwrap_or(0)
}
