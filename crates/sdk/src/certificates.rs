//! Certificates of the node's folder (`--tls-dir`) for a program that ends TLS itself, as mail servers do after `STARTTLS`. The service
//! is declared with `certificates = true`; the own node then shows it what is there, and this keeps it fresh: a renewed certificate is
//! shown to whoever comes next, without a restart.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use http::{Method, StatusCode, header};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use tokio::time::sleep;

use crate::limits::CERTIFICATES_EVERY;
use crate::node::{Call, quoted};
use crate::{Node, Service, StartError};

/// What is shown to clients now. Cheap to clone; all clones show the same.
#[derive(Clone, Debug)]
pub struct Certificates(Arc<Shown>);

struct Shown {
    source: Source,
    /// None while the node has none.
    now: RwLock<Option<Arc<Store>>>,
}

#[derive(Debug)]
struct Store {
    tag: Option<String>,
    /// By name in lower case; a wildcard by its `*.` form.
    by_name: BTreeMap<String, Arc<CertifiedKey>>,
    default: Arc<CertifiedKey>,
}

#[derive(Deserialize)]
struct Told {
    certificates: Vec<Pem>,
}

#[derive(Deserialize)]
struct Pem {
    names: Vec<String>,
    chain: String,
    key: String,
}

/// What a look at the node came to.
enum Look {
    Same,
    New(Store),
    /// It has none.
    Nothing,
}

impl Service {
    /// The certificates of this node, from now on. None are there yet if the node has no folder of them: [`Certificates::is_empty`].
    ///
    /// # Errors
    /// The service was not declared with `certificates = true`, or the node cannot be asked.
    pub async fn certificates(&self) -> Result<Certificates, StartError> {
        let shown = Arc::new(Shown { source: Source::of(self)?, now: RwLock::default() });
        shown.refresh().await.map_err(StartError)?;
        tokio::spawn(follow(Arc::downgrade(&shown)));
        Ok(Certificates(shown))
    }
}

impl Certificates {
    /// Nothing can be shown: offer no TLS.
    pub fn is_empty(&self) -> bool {
        self.0.now().is_none()
    }

    /// Looks now, and not in its time only.
    ///
    /// # Errors
    /// A sentence: the node cannot be asked, or what it says is no certificate. Those before go on.
    pub async fn refresh(&self) -> Result<(), String> {
        self.0.refresh().await
    }

    /// Agrees on TLS 1.2 or 1.3, and on one of these protocols (ALPN) with clients that name some. Give it to
    /// [`TlsAcceptor::from`](tokio_rustls::TlsAcceptor); it shows what is there when a client comes.
    ///
    /// # Errors
    /// The provider has no such versions, which does not happen.
    pub fn config(&self, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.0) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

impl Shown {
    fn now(&self) -> Option<Arc<Store>> {
        // What is inside is whole at every moment.
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn refresh(&self) -> Result<(), String> {
        let has = self.now().and_then(|store| store.tag.clone());
        match self.source.look(has.as_deref()).await? {
            // One that is still good is better than none.
            Look::Same | Look::Nothing => (),
            Look::New(store) => {
                *self.now.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(store));
            }
        }
        Ok(())
    }
}

/// Without a key or a token.
impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let store = self.now()?;
        let found = hello.server_name().and_then(|name| store.find(name));
        Some(Arc::clone(found.unwrap_or(&store.default)))
    }
}

impl Store {
    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        // A wildcard stands for one label (RFC 6125 6.4.3).
        let wild = || self.by_name.get(&format!("*.{}", name.split_once('.')?.1));
        self.by_name.get(&name).or_else(wild)
    }

    fn read(body: &[u8], tag: Option<String>) -> Result<Self, String> {
        let told: Told = serde_json::from_slice(body).map_err(|e| format!("the node's answer is no list: {e}"))?;
        let (mut by_name, mut default) = (BTreeMap::new(), None);
        for pem in told.certificates {
            let key = certified(&pem).map_err(|why| format!("the certificate for {:?}: {why}", pem.names))?;
            default.get_or_insert_with(|| Arc::clone(&key));
            for name in pem.names {
                by_name.entry(name.to_ascii_lowercase()).or_insert_with(|| Arc::clone(&key));
            }
        }
        let default = default.ok_or("the node's list is empty")?;
        Ok(Self { tag, by_name, default })
    }
}

fn certified(pem: &Pem) -> Result<Arc<CertifiedKey>, String> {
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(pem.chain.as_bytes()).collect();
    let chain = chain.map_err(|e| format!("it is not in PEM: {e}"))?;
    let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).map_err(|_| "its key is not in PEM".to_owned())?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map(Arc::new).map_err(|e| e.to_string())
}

/// Where they come from.
struct Source {
    node: Node,
    path: String,
    token: String,
}

impl Source {
    fn of(service: &Service) -> Result<Self, StartError> {
        let given = service.given();
        let Some(token) = &given.token_of_service else {
            return Err(StartError(
                "COPPICE_TOKEN is not set, by which the node gives certificates to its clones".into(),
            ));
        };
        let path = format!("/v1/services/{}/certificates", quoted(&given.service));
        Ok(Self { node: service.node().own(), path, token: token.clone() })
    }

    async fn look(&self, has: Option<&str>) -> Result<Look, String> {
        let mut call = Call::new(Method::GET, self.path.clone(), &self.token);
        if let Some(tag) = has {
            call = call.header(header::IF_NONE_MATCH, tag).map_err(|_| "its tag cannot be sent".to_owned())?;
        }
        let answer = self.node.call(&call).await.map_err(|failed| failed.to_string())?;
        match answer.status {
            StatusCode::OK => {
                let tag = answer.header(&header::ETAG).map(str::to_owned);
                Ok(Look::New(Store::read(&answer.body, tag)?))
            }
            StatusCode::NOT_MODIFIED => Ok(Look::Same),
            StatusCode::NOT_FOUND => Ok(Look::Nothing),
            _ => Err(answer.error()),
        }
    }
}

/// Takes over what changes, while anybody shows it.
async fn follow(shown: Weak<Shown>) {
    let mut complained = String::new();
    loop {
        sleep(CERTIFICATES_EVERY).await;
        let Some(shown) = shown.upgrade() else { return };
        match shown.refresh().await {
            Ok(()) => complained.clear(),
            Err(why) if why != complained => {
                tracing::warn!(error = why, "the node's certificates cannot be had; the former ones go on");
                complained = why;
            }
            Err(_) => (),
        }
    }
}
