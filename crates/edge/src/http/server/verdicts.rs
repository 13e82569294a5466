//! A thousand heads, sound, odd and wrong, and what the guard before hyper said of each (`verdicts.txt`): recorded with
//! its code before this server took its place. What is refused, with which status, and how a body is framed are the
//! same.

use base::Rng;

use crate::http::check::{Framing, HeadScan, Violation};

pub const HEADS: u64 = 1500;
/// Largest body in a record, bytes.
const BODY_BYTES_MAX: u64 = 1000;

const SOUND: [&str; 12] = [
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /x?y=%20 HTTP/1.1\r\nHost: a.example:80\r\nAccept: */*\r\nUser-Agent: curl/8.5.0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n",
    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: [::1]:80\r\n\r\n",
    "GET / HTTP/1.0\r\n\r\n",
    "GET / HTTP/1.0\r\nConnection: keep-alive\r\nX-A: b\r\n\r\n",
    "GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    "PUT /a<b>?c=\"d\" HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "HEAD /x HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE, close\r\nCookie: a=b; c=d\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\nX:\r\n\r\n",
];

const ODD: [&str; 36] = [
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    ":",
    "\0",
    "\u{7f}",
    "\u{e9}",
    ",",
    ";",
    "\"",
    "#",
    "@",
    "[",
    "]",
    "//",
    "%00",
    "0",
    "-1",
    "+",
    "Host: b\r\n",
    "Host:\r\n",
    "Host : a\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "content-length: 1001\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "transfer-encoding: Chunked\r\n",
    " folded\r\n",
    "X\r\n",
    "HTTP/1.2",
    "http://b",
    "X-Long: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n",
];

/// One of them: a sound one with up to three things done to it, at the beginning of a line or anywhere.
pub fn head(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number + 1);
    let mut draw = |below: usize| (rng.u64() % below as u64) as usize;
    let mut head = SOUND[number as usize % SOUND.len()].as_bytes().to_vec();
    for _ in 0..draw(4) {
        let lines: Vec<usize> = (1..head.len()).filter(|at| head[at - 1] == b'\n').collect();
        let at = match draw(2) {
            0 if !lines.is_empty() => lines[draw(lines.len())],
            _ => draw(head.len()),
        };
        let last = head.len() - 1;
        match draw(5) {
            0 => drop(head.remove(at.min(last))),
            1 => head[at.min(last)] = draw(256) as u8,
            _ => drop(head.splice(at..at, ODD[draw(ODD.len())].bytes())),
        }
    }
    head
}

/// A verdict in the words of the record.
pub fn said(verdict: Result<Option<Framing>, Violation>) -> String {
    match verdict {
        Ok(None) => "more".into(),
        Ok(Some(Framing::Length(bytes))) => format!("l{bytes}"),
        Ok(Some(Framing::Chunked)) => "chunked".into(),
        Err(violation) => violation.status.to_string(),
    }
}

pub fn recorded() -> Vec<&'static str> {
    include_str!("verdicts.txt").split_whitespace().collect()
}

#[test]
fn heads_are_judged_as_before() {
    let judge = |number| HeadScan::default().scan(&head(number), BODY_BYTES_MAX).map(|f| f.map(|(_, framing)| framing));
    let now: Vec<String> = (0..HEADS).map(|number| said(judge(number))).collect();
    let before = recorded();
    assert_eq!(before.len() as u64, HEADS);
    for (number, (now, before)) in now.iter().zip(before).enumerate() {
        let head = head(number as u64);
        assert_eq!(now, before, "{number}: {}", head.escape_ascii());
    }
    for kind in ["more", "l0", "l12", "chunked", "400", "413"] {
        assert!(now.iter().filter(|said| *said == kind).count() >= 5, "too few of {kind}");
    }
}
