//! One question for a child's health: a connection to its port, or an HTTP GET whose status decides.

use std::net::SocketAddr;

use base::process::Probe;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::limits::PROBE_ANSWER_BYTES_MAX;

/// Healthy is a connection, or a status that is named, else one of 2xx or 3xx: a program that sends plain HTTP to HTTPS runs,
/// and a redirect is not followed. The error says what was wrong instead.
pub(crate) async fn probe(addr: SocketAddr, probe: &Probe) -> Result<(), String> {
    let late = |_| Err(format!("no answer in {} ms", probe.timeout.as_millis()));
    timeout(probe.timeout.into(), ask(addr, probe)).await.unwrap_or_else(late)
}

async fn ask(addr: SocketAddr, probe: &Probe) -> Result<(), String> {
    let mut tcp = TcpStream::connect(addr).await.map_err(|e| format!("port {}: {e}", addr.port()))?;
    let Some(path) = &probe.path else { return Ok(()) };
    let host = probe.host.clone().unwrap_or_else(|| addr.to_string());
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: coppice-probe\r\nConnection: close\r\n\r\n");
    tcp.write_all(request.as_bytes()).await.map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    while !answer.contains(&b'\n') && answer.len() < PROBE_ANSWER_BYTES_MAX {
        let mut piece = [0; PROBE_ANSWER_BYTES_MAX];
        match tcp.read(&mut piece).await.map_err(|e| e.to_string())? {
            0 => break,
            n => answer.extend_from_slice(&piece[..n]),
        }
    }
    let line = String::from_utf8_lossy(&answer);
    let line = line.lines().next().unwrap_or_default();
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse::<u16>().ok());
    match status {
        Some(status) if probe.status.contains(&status) => Ok(()),
        Some(200..400) if probe.status.is_empty() => Ok(()),
        Some(status) => Err(format!("GET {path} answered {status}")),
        None => Err(format!("GET {path} did not answer with HTTP: {line:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Span;
    use tokio::net::TcpListener;

    fn health(addr: SocketAddr) -> Probe {
        Probe { path: Some("/health".into()), ..Probe::of(addr.port(), Span::secs(5)) }
    }

    /// How a clone is that answers so, and what it was sent.
    async fn asked(answer: &'static str, how: impl FnOnce(Probe) -> Probe) -> (Result<(), String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let clone = tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut bytes = vec![0; 1000];
            let count = tcp.read(&mut bytes).await.unwrap();
            tcp.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(bytes[..count].to_vec()).unwrap()
        });
        let result = probe(addr, &how(health(addr))).await;
        (result, clone.await.unwrap().replace(&addr.to_string(), "ADDRESS"))
    }

    async fn probed(answer: &'static str) -> Result<(), String> {
        asked(answer, |probe| probe).await.0
    }

    #[tokio::test]
    async fn the_status_decides() {
        assert_eq!(probed("HTTP/1.1 200 OK\r\n\r\n").await, Ok(()));
        assert_eq!(probed("HTTP/1.0 302 Found\r\n\r\n").await, Ok(()));
        assert_eq!(probed("HTTP/1.1 301 Moved\r\nLocation: https://shop/health\r\n\r\n").await, Ok(()));
        assert_eq!(probed("HTTP/1.1 399 Last\r\n\r\n").await, Ok(()));
        assert_eq!(probed("HTTP/1.1 199 Early\r\n\r\n").await.unwrap_err(), "GET /health answered 199");
        assert_eq!(probed("HTTP/1.1 400 Host\r\n\r\n").await.unwrap_err(), "GET /health answered 400");
        assert_eq!(probed("HTTP/1.1 500 Oh\r\n\r\n").await.unwrap_err(), "GET /health answered 500");
        assert!(probed("220 smtp\r\n").await.is_err());
        assert!(probed("").await.is_err());
    }

    #[tokio::test]
    async fn where_statuses_are_named_only_these_are_healthy() {
        let of = |answer| asked(answer, |probe| Probe { status: vec![204, 401], ..probe });
        assert_eq!(of("HTTP/1.1 204 Empty\r\n\r\n").await.0, Ok(()));
        assert_eq!(of("HTTP/1.1 401 Who\r\n\r\n").await.0, Ok(()));
        for (answer, status) in [("HTTP/1.1 200 OK\r\n\r\n", 200), ("HTTP/1.1 301 Moved\r\n\r\n", 301)] {
            assert_eq!(of(answer).await.0.unwrap_err(), format!("GET /health answered {status}"));
        }
    }

    #[tokio::test]
    async fn a_program_that_looks_at_the_host_is_asked_for_it() {
        let ok = "HTTP/1.1 200 OK\r\n\r\n";
        let host = asked(ok, |probe| Probe { host: Some("shop.example".into()), ..probe }).await.1;
        assert!(host.starts_with("GET /health HTTP/1.1\r\nHost: shop.example\r\n"), "{host}");
        let host = asked(ok, |probe| probe).await.1;
        assert!(host.starts_with("GET /health HTTP/1.1\r\nHost: ADDRESS\r\n"), "{host}");
    }

    #[tokio::test]
    async fn without_a_path_a_connection_is_enough_and_none_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let connects = Probe::of(addr.port(), Span::secs(5));
        assert_eq!(probe(addr, &connects).await, Ok(()));
        // It accepts nothing and says nothing.
        let hasty = Probe { timeout: Span::millis(50), ..health(addr) };
        assert!(probe(addr, &hasty).await.unwrap_err().contains("no answer"));
        drop(listener);
        assert!(probe(addr, &connects).await.is_err());
    }
}
