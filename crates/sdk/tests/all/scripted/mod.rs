//! Nodes that answer, refuse, hang and die on script.
#![allow(clippy::unwrap_used, dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use Does::{Answers, Dies, Hangs};

/// What a node does with a request.
#[derive(Clone)]
pub enum Does {
    Answers(u16, &'static str, &'static str),
    /// Takes the request and closes.
    Dies,
    /// Takes the request and says nothing.
    Hangs,
}

/// A node with a script, one entry a request; the last one stays. Keeps what it was asked: method, path, body.
pub struct Scripted {
    pub at: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    /// The ids of what it was asked, where there were any.
    ids: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    pub fn new(script: &[Does]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (script, seen) = (script.to_vec(), Arc::clone(&asked));
        let ids = Arc::new(Mutex::new(Vec::new()));
        let named = Arc::clone(&ids);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, seen, named) = (script.clone(), Arc::clone(&seen), Arc::clone(&named));
                std::thread::spawn(move || converse(stream.unwrap(), &script, &seen, &named));
            }
        });
        Self { at, asked, ids }
    }

    pub fn ids(&self) -> Vec<String> {
        self.ids.lock().unwrap().clone()
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// What a program says of the request that it serves.
pub const PASSED_ON: [&str; 3] = ["coppice-priority", "coppice-deadline-ms", "last-event-id"];

/// Ends when the client or the script does.
fn converse(stream: TcpStream, script: &[Does], seen: &Mutex<Vec<String>>, ids: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let length = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok();
        let mut body = vec![0; head.lines().find_map(length).unwrap_or(0usize)];
        reader.read_exact(&mut body).ok()?;
        let id = head.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
        ids.lock().unwrap().extend(id.map(str::to_owned));
        let nth = {
            let mut seen = seen.lock().unwrap();
            let line = head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1");
            let told = head.lines().filter(|line| PASSED_ON.iter().any(|name| line.starts_with(name)));
            let told: String = told.map(|line| format!(" {line}")).collect();
            seen.push(format!("{line}{told} {}", String::from_utf8_lossy(&body)).trim().to_owned());
            seen.len() - 1
        };
        match &script[nth.min(script.len() - 1)] {
            Answers(status, headers, body) => {
                let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len());
                stream.write_all(text.as_bytes()).ok()?;
            }
            Dies => return None,
            Hangs => std::thread::sleep(Duration::from_secs(60)),
        }
    }
}
