//! TLS as a client: who answers is believed if his certificate is signed by the system's roots, or by those that are given, and is for
//! the name that was asked for.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

#[derive(Clone)]
pub struct Client(TlsConnector);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    /// `ca`: certificates in PEM, in place of the system's roots.
    ///
    /// # Errors
    /// They are none, or the system has no roots.
    pub fn new(ca: Option<&str>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        match ca {
            Some(pem) => {
                for root in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                    let root = root.map_err(|e| format!("ca is not a certificate in PEM: {e}"))?;
                    roots.add(root).map_err(|e| format!("ca is not a certificate: {e}"))?;
                }
            }
            None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
        }
        if roots.is_empty() {
            let why = "the system has no root certificates (Debian: ca-certificates); `ca` may have some";
            return Err(why.to_owned());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .map_err(|e| e.to_string())?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Connects to `at`, where somebody proves to be `name`: a host name, or an address.
    ///
    /// # Errors
    /// Nobody answers there, or not who is asked for.
    pub async fn connect(&self, at: impl ToSocketAddrs, name: &str) -> Result<TlsStream<TcpStream>, String> {
        let stream = TcpStream::connect(at).await.map_err(|e| e.to_string())?;
        let bare = name.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(bare).map_err(|e| e.to_string())?;
        self.0.connect(name, stream).await.map_err(|e| e.to_string())
    }
}
