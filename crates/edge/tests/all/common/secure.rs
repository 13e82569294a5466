//! A door that speaks TLS, and clients of it.
#![allow(dead_code, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use edge::http::Config;
use edge::tls::Certs;
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use node::{Leaving, View};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Door, clone, routes, soon};

pub struct Secure {
    pub door: Door,
    roots: Arc<RootCertStore>,
    dir: PathBuf,
}

impl Drop for Secure {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Secure {
    pub async fn to(name: &str, clones: &[SocketAddr], body_bytes_max: u64) -> Self {
        Self::with(name, clones, Config { body_bytes_max, ..Config::default() }).await
    }

    pub async fn with(name: &str, clones: &[SocketAddr], config: Config) -> Self {
        let dir = std::env::temp_dir().join(format!("coppice-https-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["shop.example".to_owned()]).unwrap();
        std::fs::write(dir.join("a.crt"), made.cert.pem()).unwrap();
        std::fs::write(dir.join("a.key"), made.signing_key.serialize_pem()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let clones = clones.iter().enumerate().map(|(i, addr)| clone(i, *addr, true)).collect();
        let config = Config { tls: Some(Certs::load(&dir).unwrap()), ..config };
        Self { door: Door::at(routes(clones, None), config).await, roots: Arc::new(roots), dir }
    }

    pub async fn stream(&self, alpn: &[&str]) -> TlsStream<TcpStream> {
        self.over(soon(TcpStream::connect(self.door.addr)).await.unwrap(), alpn).await
    }

    pub async fn over(&self, tcp: TcpStream, alpn: &[&str]) -> TlsStream<TcpStream> {
        self.agree(tcp, alpn).await.unwrap()
    }

    /// Shakes hands, or does not, with a client that speaks these protocols.
    pub async fn agree(&self, tcp: TcpStream, alpn: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(Arc::clone(&self.roots)).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("shop.example").unwrap();
        soon(TlsConnector::from(Arc::new(config)).connect(name, tcp)).await
    }

    pub async fn h2(&self) -> SendRequest<Full<Bytes>> {
        let io = TokioIo::new(self.stream(&["h2", "http/1.1"]).await);
        let (sender, connection) = soon(hyper::client::conn::http2::handshake(TokioExecutor::new(), io)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// A raw connection after its preface, for frames by hand.
    pub async fn raw(&self) -> TlsStream<TcpStream> {
        preface(self.stream(&["h2"]).await).await
    }

    /// The node says that its doors are to close.
    pub fn close(&self) {
        let view = View::clone(&self.door.view.borrow());
        self.door.view.send_replace(Arc::new(View { closing: Some(Leaving::Restart), ..view }));
    }

    /// As whoever runs the door waits for it.
    pub async fn closed(&self) {
        soon(async {
            while !self.door.meter.http.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

pub async fn preface(mut stream: TlsStream<TcpStream>) -> TlsStream<TcpStream> {
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    stream
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Kind, flags, and what is in it.
pub async fn next_frame(stream: &mut TlsStream<TcpStream>) -> std::io::Result<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    soon(stream.read_exact(&mut head)).await?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    soon(stream.read_exact(&mut payload)).await?;
    Ok((head[3], head[4], payload))
}
