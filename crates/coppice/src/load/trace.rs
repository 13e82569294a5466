//! Reads a trace line by line, as it is played: a file of any size costs the memory of one line. A mistake is named with its
//! line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;

/// A line, its body included.
const LINE_BYTES_MAX: usize = 1 << 20;

/// One request of a trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// Seconds after the first line's time.
    pub at: f64,
    pub method: Option<Method>,
    pub path: String,
    pub body: Option<Bytes>,
}

pub struct Trace {
    name: String,
    lines: Box<dyn BufRead + Send>,
    number: u64,
    /// Time of the first line, and of the last one that was read.
    first: Option<f64>,
    last: f64,
}

#[derive(Deserialize)]
struct Json {
    #[serde(alias = "at")]
    time: f64,
    method: Option<String>,
    path: String,
    body: Option<String>,
}

impl Trace {
    pub fn open(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        Ok(Self::of(path.display().to_string(), BufReader::new(file)))
    }

    pub fn of(name: String, lines: impl BufRead + Send + 'static) -> Self {
        Self { name, lines: Box::new(lines), number: 0, first: None, last: 0.0 }
    }

    /// The next request, none at the end.
    pub fn next(&mut self) -> Result<Option<Line>, String> {
        loop {
            let mut text = String::new();
            let read = (&mut self.lines).take(LINE_BYTES_MAX as u64 + 1).read_line(&mut text);
            self.number += 1;
            match read {
                Ok(0) if self.first.is_none() => return Err(format!("{} has no request to play", self.name)),
                Ok(0) => return Ok(None),
                Ok(n) if n > LINE_BYTES_MAX => {
                    return Err(self.wrong(&format!("is longer than {LINE_BYTES_MAX} bytes")));
                }
                Ok(_) => (),
                Err(e) => return Err(self.wrong(&format!("cannot be read: {e}"))),
            }
            let text = text.trim();
            let heads = self.number == 1 && text.starts_with("time,");
            if text.is_empty() || text.starts_with('#') || heads {
                continue;
            }
            let mut line =
                if text.starts_with('{') { json(text) } else { csv(text) }.map_err(|why| self.wrong(&why))?;
            let first = *self.first.get_or_insert(line.at);
            line.at -= first;
            if line.at < self.last {
                return Err(self.wrong("is earlier than the line before it; sort the trace by time"));
            }
            self.last = line.at;
            return Ok(Some(line));
        }
    }

    fn wrong(&self, why: &str) -> String {
        format!("{}, line {}: {why}", self.name, self.number)
    }
}

fn json(text: &str) -> Result<Line, String> {
    let example = r#"{"time": 0.5, "method": "GET", "path": "/"}"#;
    let line: Json = serde_json::from_str(text).map_err(|e| format!("{e}; a line is {example}"))?;
    let body = line.body.map(Bytes::from);
    checked(line.time, line.method.as_deref(), line.path, body)
}

fn csv(text: &str) -> Result<Line, String> {
    let mut fields = text.splitn(3, ',').map(str::trim);
    let (Some(time), Some(method), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
        return Err("is neither JSON nor time,method,path: 0.5,GET,/ is one".into());
    };
    let time = time.parse().map_err(|_| format!("{time:?} is no time in seconds"))?;
    checked(time, Some(method).filter(|method| !method.is_empty()), path.trim_matches('"').to_owned(), None)
}

fn checked(at: f64, method: Option<&str>, path: String, body: Option<Bytes>) -> Result<Line, String> {
    if !at.is_finite() {
        return Err(format!("{at} is no time in seconds"));
    }
    if !path.starts_with('/') || path.parse::<hyper::Uri>().is_err() {
        return Err(format!("{path:?} is no path; /cart?id=7 is one"));
    }
    let method = method.map(|m| m.parse().map_err(|_| format!("{m:?} is no method"))).transpose()?;
    Ok(Line { at, method, path, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Result<Vec<Line>, String> {
        let mut trace = Trace::of("t".into(), text.as_bytes());
        let mut lines = Vec::new();
        while let Some(line) = trace.next()? {
            lines.push(line);
        }
        Ok(lines)
    }

    #[test]
    fn both_forms_are_read_and_time_counts_from_the_first_line() {
        let csv = read("time,method,path\n1000.5,GET,/a\n\n# later\n1001,,/b?x=1,2\n").unwrap();
        let line = |at, method, path: &str| Line { at, method, path: path.into(), body: None };
        assert_eq!(csv, [line(0.0, Some(Method::GET), "/a"), line(0.5, None, "/b?x=1,2")]);
        let json =
            read("{\"time\":7,\"path\":\"/a\"}\n{\"at\":7.25,\"method\":\"PUT\",\"path\":\"/b\",\"body\":\"x\"}")
                .unwrap();
        let put = Line { body: Some("x".into()), ..line(0.25, Some(Method::PUT), "/b") };
        assert_eq!(json, [line(0.0, None, "/a"), put]);
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        for (text, why) in [
            ("0,GET,/\nx,GET,/\n", "line 2: \"x\" is no time"),
            ("0,GET\n", "line 1: is neither"),
            ("1,GET,/\n0.5,GET,/\n", "line 2: is earlier"),
            ("0,GET,shop\n", "no path"),
            ("0,G T,/\n", "no method"),
            ("NaN,GET,/\n", "no time"),
            ("time,method,path\n# none yet\n", "t has no request"),
            ("{\"time\":1}\n", "missing field `path`"),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
