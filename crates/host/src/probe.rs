//! One question for a child's health: a connection to its port, or an HTTP GET whose status decides.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::limits::PROBE_ANSWER_BYTES_MAX;

/// Healthy is a connection, or a status of 2xx or 3xx: a program that sends plain HTTP to HTTPS runs, and a redirect is
/// not followed. The error says what was wrong instead.
pub(crate) async fn probe(addr: SocketAddr, path: Option<&str>, wait: std::time::Duration) -> Result<(), String> {
    timeout(wait, ask(addr, path)).await.unwrap_or_else(|_| Err(format!("no answer in {} ms", wait.as_millis())))
}

async fn ask(addr: SocketAddr, path: Option<&str>) -> Result<(), String> {
    let mut tcp = TcpStream::connect(addr).await.map_err(|e| format!("port {}: {e}", addr.port()))?;
    let Some(path) = path else { return Ok(()) };
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nUser-Agent: coppice-probe\r\nConnection: close\r\n\r\n");
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
        Some(200..400) => Ok(()),
        Some(status) => Err(format!("GET {path} answered {status}")),
        None => Err(format!("GET {path} did not answer with HTTP: {line:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn probed(answer: &'static str) -> Result<(), String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let _ = tcp.read(&mut [0; 1000]).await;
            tcp.write_all(answer.as_bytes()).await.unwrap();
        });
        probe(addr, Some("/health"), Duration::from_secs(5)).await
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
    async fn without_a_path_a_connection_is_enough_and_none_is_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        assert_eq!(probe(addr, None, Duration::from_secs(5)).await, Ok(()));
        // It accepts nothing and says nothing.
        assert!(probe(addr, Some("/"), Duration::from_millis(50)).await.unwrap_err().contains("no answer"));
        drop(listener);
        assert!(probe(addr, None, Duration::from_secs(5)).await.is_err());
    }
}
