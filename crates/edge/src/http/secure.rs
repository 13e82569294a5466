//! The way from plain HTTP to HTTPS: who is led there and with which words, and what is said to who speaks plain HTTP
//! where TLS is spoken.

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
    /// Port of the HTTP door itself.
    pub plain_port: u16,
    /// Where clients find it, if an operator says so: what is before the nodes may lead another port here.
    pub outside: Option<u16>,
}

impl Secure {
    /// Where a request goes on, if there is a certificate for its host.
    pub fn place_of(&self, host: &HeaderValue, path: Option<&PathAndQuery>) -> Option<HeaderValue> {
        let host = host.to_str().ok()?;
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        if !self.certs.has(name) {
            return None;
        }
        let port = match self.port_for(host) {
            443 => String::new(),
            port => format!(":{port}"),
        };
        let path = path.map_or("/", PathAndQuery::as_str);
        HeaderValue::from_str(&format!("https://{name}{port}{path}")).ok()
    }

    /// Who names no port came to port 80. Where that is not our door's something leads it here, and so it will lead
    /// 443.
    fn port_for(&self, host: &str) -> u16 {
        let came_by_80 = host.rsplit_once(':').is_none_or(|(_, port)| port == "80");
        let ports_are_led = came_by_80 && self.plain_port != 80;
        self.outside.unwrap_or(if ports_are_led { 443 } else { self.port })
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
        let at = |(plain_port, port, outside), host: &str, path: &'static str| {
            let secure = Secure { certs: Arc::clone(&certs), port, plain_port, outside };
            let path = PathAndQuery::from_static(path);
            let found = secure.place_of(&HeaderValue::from_str(host).unwrap(), Some(&path))?;
            Some(found.to_str().unwrap().to_owned())
        };
        let (usual, high, half) = ((80, 443, None), (8080, 8443, None), (80, 8443, None));
        for (ports, host, path, expect) in [
            (usual, "shop.example", "/a?b=c", Some("https://shop.example/a?b=c")),
            (usual, "x.w.example:80", "/", Some("https://x.w.example/")),
            (high, "Shop.example:8080", "/", Some("https://Shop.example:8443/")),
            // Led here from port 80 of somewhere else.
            (high, "shop.example", "/", Some("https://shop.example/")),
            (high, "shop.example:80", "/", Some("https://shop.example/")),
            (half, "shop.example", "/", Some("https://shop.example:8443/")),
            ((80, 8443, Some(443)), "shop.example", "/", Some("https://shop.example/")),
            ((8080, 8443, Some(9443)), "shop.example", "/", Some("https://shop.example:9443/")),
            (usual, "y.x.w.example", "/", None),
            (usual, "other.example", "/", None),
            (usual, "127.0.0.1:80", "/", None),
            (usual, "", "/", None),
        ] {
            assert_eq!(at(ports, host, path).as_deref(), expect, "{ports:?} {host}");
        }
        let (_, body) = ANSWER.split_once("\r\n\r\n").unwrap();
        assert!(ANSWER.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}
