//! Clients of HTTP/2 that keep their connection for as long as the server lets them, with some requests under way on each. One that
//! is told to go (GOAWAY) gets the answers of what it sent and connects anew, as browsers do; a request that was sent and gets
//! no answer failed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

const HOST: &str = "lab.example";
/// Requests that each connection has under way, and the rest between two of one.
const AT_ONCE: usize = 3;
const REST: Duration = Duration::from_millis(120);
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default)]
pub struct Fates {
    pub connections: u64,
    pub requests: u64,
    /// 503 or 429.
    pub refused: u64,
    pub failed: u64,
    pub first_failure: Option<String>,
}

pub struct Clients {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<Fates, String>>,
}

/// A certificate of its own for the nodes, in this folder.
pub fn certificate(folder: &Path) -> Result<CertificateDer<'static>, String> {
    let made = rcgen::generate_simple_self_signed(vec![HOST.to_owned()]).map_err(|e| e.to_string())?;
    let put = |name: &str, text: String| std::fs::write(folder.join(name), text).map_err(|e| e.to_string());
    put("lab.crt", made.cert.pem())?;
    put("lab.key", made.signing_key.serialize_pem())?;
    Ok(made.cert.der().clone())
}

/// What connects to who has this certificate, for HTTP/2.
pub fn connector(certificate: &CertificateDer<'static>) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).map_err(|e| e.to_string())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|e| e.to_string())?.with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Sends requests by one connection.
pub type Sender = SendRequest<Empty<Bytes>>;

/// A new connection.
pub async fn open(at: SocketAddr, connector: &TlsConnector) -> Result<Sender, String> {
    let tcp = TcpStream::connect(at).await.map_err(|e| format!("connect: {e}"))?;
    tcp.set_nodelay(true).map_err(|e| e.to_string())?;
    let name = ServerName::try_from(HOST).map_err(|e| e.to_string())?;
    let tls = connector.connect(name, tcp).await.map_err(|e| format!("TLS: {e}"))?;
    let shaken = handshake(TokioExecutor::new(), TokioIo::new(tls)).await;
    let (sender, connection) = shaken.map_err(|e| format!("handshake: {e}"))?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Status and body of the answer to one request.
pub async fn get(sender: &mut Sender, path: &str) -> Result<(u16, Bytes), String> {
    let request = Request::get(format!("https://{HOST}{path}")).body(Empty::new()).map_err(|e| e.to_string())?;
    sender.ready().await.map_err(|e| e.to_string())?;
    let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.map_err(|e| format!("in the answer: {e}"))?;
    Ok((status, body.to_bytes()))
}

impl Clients {
    /// One connection to each of these doors.
    pub fn start(doors: Vec<SocketAddr>, certificate: &CertificateDer<'static>) -> Result<Self, String> {
        let connector = connector(certificate)?;
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
            runtime.block_on(run(doors, connector, until))
        });
        Ok(Self { stop, thread })
    }

    pub fn end(self) -> Result<Fates, String> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().map_err(|_| "the HTTP/2 clients panicked")?
    }
}

async fn run(doors: Vec<SocketAddr>, connector: TlsConnector, stop: Arc<AtomicBool>) -> Result<Fates, String> {
    let (mut users, opened) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
    for at in doors {
        let client = Client { at, connector: connector.clone(), now: Arc::default(), opened: Arc::clone(&opened) };
        for user in 0..AT_ONCE {
            users.spawn(use_it(client.clone(), user, Arc::clone(&stop)));
        }
    }
    let mut all = Fates::default();
    while let Some(fates) = users.join_next().await {
        let fates = fates.map_err(|e| e.to_string())?;
        all.requests += fates.requests;
        all.refused += fates.refused;
        all.failed += fates.failed;
        all.first_failure = all.first_failure.take().or(fates.first_failure);
    }
    all.connections = opened.load(Ordering::Relaxed);
    Ok(all)
}

#[derive(Clone)]
struct Client {
    at: SocketAddr,
    connector: TlsConnector,
    /// The connection that new requests go by.
    now: Arc<Mutex<Option<Sender>>>,
    opened: Arc<AtomicU64>,
}

impl Client {
    /// One that takes requests.
    async fn sender(&self) -> Result<Sender, String> {
        let mut now = self.now.lock().await;
        if let Some(sender) = now.as_mut()
            && sender.ready().await.is_ok()
        {
            return Ok(sender.clone());
        }
        let sender = open(self.at, &self.connector).await?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        *now = Some(sender.clone());
        Ok(sender)
    }

    /// The status of the answer.
    async fn ask(&self, path: &str) -> Result<u16, String> {
        let uri = format!("https://{HOST}{path}");
        let mut request = Request::get(uri).body(Empty::new()).map_err(|e| e.to_string())?;
        loop {
            let answer = match self.sender().await?.try_send_request(request).await {
                Ok(answer) => answer,
                Err(mut error) => match error.take_message() {
                    // It was not sent: the connection had just been told to take no more.
                    Some(unsent) => {
                        request = unsent;
                        continue;
                    }
                    None => return Err(error.into_error().to_string()),
                },
            };
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.map_err(|e| format!("in the answer: {e}"))?.to_bytes();
            if status == 200 && !body.starts_with(path.as_bytes()) {
                return Err(format!("asked {path}, got {:?}", String::from_utf8_lossy(&body)));
            }
            return Ok(status);
        }
    }
}

async fn use_it(client: Client, user: usize, stop: Arc<AtomicBool>) -> Fates {
    let mut fates = Fates::default();
    while !stop.load(Ordering::SeqCst) {
        let path = format!("/page?n={}", fates.requests * AT_ONCE as u64 + user as u64);
        fates.requests += 1;
        let why = match tokio::time::timeout(PATIENCE, client.ask(&path)).await {
            Ok(Ok(200)) => None,
            Ok(Ok(429 | 503)) => {
                fates.refused += 1;
                None
            }
            Ok(Ok(status)) => Some(format!("HTTP {status}")),
            Ok(Err(why)) => Some(why),
            Err(_) => Some(format!("no answer within {PATIENCE:?}")),
        };
        if let Some(why) = why {
            fates.failed += 1;
            fates.first_failure.get_or_insert(format!("HTTP/2: {why}"));
        }
        tokio::time::sleep(REST).await;
    }
    fates
}
