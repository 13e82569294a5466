//! The way from plain HTTP to HTTPS: who is led there and with which words, and what is said to who speaks plain HTTP where
//! TLS is spoken.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::uri::PathAndQuery;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::limits::{HANDSHAKE_TIME, LINGER};
use crate::tls::Certs;

/// The node's HTTPS door, as its HTTP door knows it.
#[derive(Clone, Debug)]
pub struct Secure {
    pub certs: Arc<Certs>,
    pub port: u16,
}

impl Secure {
    /// Where a request goes on, if there is a certificate for its host.
    pub fn place_of(&self, host: &HeaderValue, path: Option<&PathAndQuery>) -> Option<HeaderValue> {
        let host = host.to_str().ok()?;
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        if !self.certs.has(name) {
            return None;
        }
        let port = if self.port == 443 { String::new() } else { format!(":{}", self.port) };
        let path = path.map_or("/", PathAndQuery::as_str);
        HeaderValue::from_str(&format!("https://{name}{port}{path}")).ok()
    }
}

/// Looks at the first byte of a connection, which stays there: whether it is one of a method and not of TLS.
///
/// # Errors
/// The client is gone, or says nothing for so long.
pub async fn is_plain(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    match tokio::time::timeout(HANDSHAKE_TIME, stream.peek(&mut first)).await {
        Ok(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(Ok(_)) => Ok(first[0].is_ascii_alphabetic()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

const ANSWER: &str = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 71\r\n\r\n\
     this port speaks HTTPS, and the request came in plain HTTP: https://...";

/// Says it in words. What has come is read first, as else the answer could be lost.
pub async fn tell_plain(mut stream: TcpStream) {
    let mut waste = [0; 4 << 10];
    let told = async {
        let _ = stream.read(&mut waste).await;
        stream.write_all(ANSWER.as_bytes()).await?;
        stream.shutdown().await?;
        while stream.read(&mut waste).await? > 0 {}
        Ok::<(), io::Error>(())
    };
    let _ = tokio::time::timeout(LINGER.max(Duration::from_millis(100)), told).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_a_certificate_has_its_place_and_the_answer_its_length() {
        let made =
            rcgen::generate_simple_self_signed(vec!["shop.example".to_owned(), "*.w.example".to_owned()]).unwrap();
        let certs = Certs::own(&made.cert.pem(), &made.signing_key.serialize_pem()).unwrap();
        let at = |port, host: &str, path: &'static str| {
            let (secure, path) = (Secure { certs: Arc::clone(&certs), port }, PathAndQuery::from_static(path));
            let found = secure.place_of(&HeaderValue::from_str(host).unwrap(), Some(&path))?;
            Some(found.to_str().unwrap().to_owned())
        };
        for (port, host, path, expect) in [
            (443, "shop.example", "/a?b=c", Some("https://shop.example/a?b=c")),
            (8443, "Shop.example:8080", "/", Some("https://Shop.example:8443/")),
            (443, "x.w.example:80", "/", Some("https://x.w.example/")),
            (443, "y.x.w.example", "/", None),
            (443, "other.example", "/", None),
            (443, "127.0.0.1:80", "/", None),
            (443, "", "/", None),
        ] {
            assert_eq!(at(port, host, path).as_deref(), expect, "{host}");
        }
        let (_, body) = ANSWER.split_once("\r\n\r\n").unwrap();
        assert!(ANSWER.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}
