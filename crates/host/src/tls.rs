//! TLS 1.3 between nodes: both sides show a certificate of the cluster's authority, and nothing else is spoken.
//! Which node it is comes from the certificate, so that nobody can claim another's id. No session tickets, no
//! resumption: links live long, and a full handshake is what checks who is there.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base::{ClusterId, NodeId};
use ring::digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::ring as provider;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::identity::{cluster_host, node_host, parse_node_host};
use crate::{Error, Identity};

/// All TLS settings of a node. Cheap to clone; all clones show the same certificate.
#[derive(Clone)]
pub struct Tls {
    node: NodeId,
    cluster: ClusterId,
    shown: Arc<Shown>,
    trusts: Arc<ArcSwap<Trusts>>,
    /// For newcomers, who have no certificate yet.
    pub(crate) join_server: Arc<ServerConfig>,
}

/// Whom it trusts now.
struct Trusts {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    /// Their certificates.
    ca_pem: Arc<str>,
}

impl Tls {
    pub fn new(identity: &Identity) -> Result<Tls, Error> {
        let shown = Arc::new(Shown(ArcSwap::from_pointee(certified(identity)?)));
        let trusts = Trusts::of(&identity.ca_pem, &shown)?;
        let bad = |e: rustls::Error| Error::Identity(e.to_string());
        let mut join_server = ServerConfig::builder_with_provider(crypto())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(bad)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as _);
        join_server.send_tls13_tickets = 0;
        Ok(Tls {
            node: identity.node,
            cluster: identity.cluster,
            shown,
            trusts: Arc::new(ArcSwap::from_pointee(trusts)),
            join_server: Arc::new(join_server),
        })
    }

    /// From now on this node shows another certificate, in all handshakes that begin; what is open stays.
    ///
    /// # Errors
    /// It is of another node, or its key is another one's.
    pub fn show(&self, identity: &Identity) -> Result<(), Error> {
        if (identity.node, identity.cluster) != (self.node, self.cluster) {
            return Err(Error::Identity(format!("this is the certificate of {}, not of {}", identity.node, self.node)));
        }
        self.shown.0.store(Arc::new(certified(identity)?));
        Ok(())
    }

    /// From now on this node trusts these authorities and no other, in all handshakes that begin; what is open stays.
    ///
    /// # Errors
    /// There are none, or one is no certificate; then all is as before.
    pub fn trust(&self, ca_pem: &str) -> Result<(), Error> {
        self.trusts.store(Arc::new(Trusts::of(ca_pem, &self.shown)?));
        Ok(())
    }

    /// The certificates of those that it trusts, PEM, the one that signs now first.
    pub fn authorities(&self) -> Arc<str> {
        Arc::clone(&self.trusts.load().ca_pem)
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.trusts.load().server)
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.trusts.load().client)
    }

    /// The name to ask for: this node's if it is known, else any of the cluster.
    pub(crate) fn name_of(&self, peer: Option<NodeId>) -> ServerName<'static> {
        let host = peer.map_or_else(|| cluster_host(self.cluster), |node| node_host(node, self.cluster));
        ServerName::try_from(host).expect("our names are DNS names")
    }
}

impl Trusts {
    fn of(ca_pem: &str, shown: &Arc<Shown>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            let ca = ca.map_err(|e| Error::Identity(format!("ca.pem: {e}")))?;
            roots.add(ca).map_err(|e| Error::Identity(format!("ca.pem: {e}")))?;
        }
        let (roots, provider) = (Arc::new(roots), crypto());
        let bad = |e: rustls::Error| Error::Identity(e.to_string());
        let built = |e: rustls::server::VerifierBuilderError| Error::Identity(e.to_string());
        let clients =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build().map_err(built)?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build().map_err(built)?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(bad)?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::clone(shown) as _);
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(bad)?
            .with_webpki_verifier(servers)
            .with_client_cert_resolver(Arc::clone(shown) as _);
        client.resumption = Resumption::disabled();
        Ok(Self { server: Arc::new(server), client: Arc::new(client), ca_pem: ca_pem.into() })
    }
}

/// This certificate is signed by the first of these authorities.
///
/// # Errors
/// One of them is no certificate.
pub fn is_signed_by(cert_pem: &str, ca_pem: &str) -> Result<bool, Error> {
    let (own, ca) = (cert(cert_pem, "node.pem")?, cert(ca_pem, "ca.pem")?);
    let mut roots = RootCertStore::empty();
    roots.add(ca).map_err(|e| Error::Identity(format!("ca.pem: {e}")))?;
    let own = ParsedCertificate::try_from(&own).map_err(|e| Error::Identity(format!("node.pem: {e}")))?;
    let algorithms = crypto().signature_verification_algorithms;
    let checked = verify_server_cert_signed_by_trust_anchor(&own, &roots, &[], UnixTime::now(), algorithms.all);
    // Its time is looked at elsewhere.
    Ok(matches!(
        checked,
        Ok(())
            | Err(rustls::Error::InvalidCertificate(
                CertificateError::Expired
                    | CertificateError::ExpiredContext { .. }
                    | CertificateError::NotValidYet
                    | CertificateError::NotValidYetContext { .. }
            ))
    ))
}

/// The certificate that this node shows now, to whom it dials and to who dials it.
#[derive(Debug)]
struct Shown(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Finds out that certificate, key and id belong together.
fn certified(identity: &Identity) -> Result<CertifiedKey, Error> {
    let own = cert(&identity.cert_pem, "node.pem")?;
    if peer_of(&own) != Some((identity.node, identity.cluster)) {
        return Err(Error::Identity(format!("node.pem is not the certificate of {}", identity.node)));
    }
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
        .map_err(|e| Error::Identity(format!("node.key: {e}")))?;
    let chain = vec![own, cert(&identity.ca_pem, "ca.pem")?];
    CertifiedKey::from_der(chain, key, &crypto()).map_err(|e| Error::Identity(format!("node.key: {e}")))
}

fn cert(pem: &str, file: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| Error::Identity(format!("{file}: {e}")))
}

/// AES-128 first: it is the fastest on machines that have it in hardware, and 128 bits are plenty.
fn crypto() -> Arc<CryptoProvider> {
    use provider::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256};
    let mut crypto = provider::default_provider();
    crypto.cipher_suites = vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
    Arc::new(crypto)
}

/// The node that a verified certificate belongs to.
pub(crate) fn peer_of(cert: &CertificateDer<'_>) -> Option<(NodeId, ClusterId)> {
    let (_, cert) = X509Certificate::from_der(cert).ok()?;
    let names = cert.subject_alternative_name().ok()??;
    names.value.general_names.iter().find_map(|name| match name {
        GeneralName::DNSName(host) => parse_node_host(host),
        _ => None,
    })
}

/// The node of this cluster at the other end.
pub(crate) fn node_of(tls: &rustls::ServerConnection, cluster: ClusterId) -> io::Result<NodeId> {
    let cert = tls.peer_certificates().and_then(|certs| certs.first()).and_then(peer_of);
    let node = cert.filter(|(_, its)| *its == cluster).map(|(node, _)| node);
    node.ok_or_else(|| io::Error::other("its certificate names no node of this cluster"))
}

/// SHA-256 of a certificate, by which a join token knows the authority.
pub fn fingerprint(ca_pem: &str) -> Result<[u8; 32], Error> {
    Ok(sha256(&cert(ca_pem, "certificate of the authority")?))
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// What went wrong in a handshake, for a person; and whether the other side is simply not for us.
pub(crate) fn explain(e: &io::Error) -> (bool, String) {
    use rustls::{AlertDescription, Error as Tls};
    let Some(tls) = e.get_ref().and_then(|inner| inner.downcast_ref::<Tls>()) else { return (false, e.to_string()) };
    let why = match tls {
        Tls::InvalidCertificate(CertificateError::UnknownIssuer) => "its certificate is of another cluster".into(),
        Tls::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired".into()
        }
        Tls::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "it is another node than the one expected there".into(),
        Tls::NoCertificatesPresented => "it came without a certificate".into(),
        Tls::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            "it refused our certificate: it belongs to another cluster".into()
        }
        Tls::AlertReceived(AlertDescription::CertificateExpired) => "it refused our certificate: it has expired".into(),
        Tls::AlertReceived(AlertDescription::CertificateRequired) => "it wants a certificate from us".into(),
        Tls::AlertReceived(alert) => format!("it refused us: {alert:?}"),
        other => other.to_string(),
    };
    (true, why)
}

/// Trusts whoever is certified by the one authority with this fingerprint: all a newcomer knows.
#[derive(Debug)]
struct PinnedAuthority {
    fingerprint: [u8; 32],
    algorithms: WebPkiSupportedAlgorithms,
}

/// A newcomer's TLS: no certificate of its own, and trust in one authority.
pub(crate) fn join_client(fingerprint: [u8; 32]) -> Result<Arc<ClientConfig>, Error> {
    let provider = crypto();
    let algorithms = provider.signature_verification_algorithms;
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| Error::Identity(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedAuthority { fingerprint, algorithms }))
        .with_no_client_auth();
    client.resumption = Resumption::disabled();
    Ok(Arc::new(client))
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(ca) = intermediates.iter().find(|cert| sha256(cert) == self.fingerprint) else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone().into_owned())?;
        let cert = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(&cert, &roots, &[], now, self.algorithms.all)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// A folder for one test, gone at its end.
#[cfg(test)]
pub(crate) struct TempDir(pub std::path::PathBuf);

#[cfg(test)]
pub(crate) fn temp_dir(name: &str) -> TempDir {
    let unique = crate::identity::random_u64().unwrap();
    let path = std::env::temp_dir().join(format!("coppice-host-{name}-{unique:016x}"));
    std::fs::create_dir_all(&path).unwrap();
    TempDir(path)
}

#[cfg(test)]
impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::Authority;
    use crate::identity::found;
    use crate::limits::CERTIFICATE_LIFE;

    /// What comes of a handshake between two nodes: to the one that dials, and to the other.
    async fn meet(from: &Tls, to: &Tls) -> [bool; 2] {
        let (near, far) = tokio::io::duplex(1 << 16);
        let dial = TlsConnector::from(from.client()).connect(to.name_of(Some(to.node)), near);
        let (dialled, accepted) = tokio::join!(dial, TlsAcceptor::from(to.server()).accept(far));
        [dialled.is_ok(), accepted.is_ok()]
    }

    #[tokio::test]
    async fn as_long_as_two_authorities_are_trusted_all_meet_and_then_who_has_the_old_ones_meets_nobody() {
        let (a, old) = found("home", "a").unwrap();
        let b = Identity { node: NodeId(7), name: "b".into(), ..a.clone() }.renewed(&old, CERTIFICATE_LIFE).unwrap();
        let new = Authority::new("home").unwrap();
        let (of_a, of_b) = (Tls::new(&a).unwrap(), Tls::new(&b).unwrap());
        assert_eq!(meet(&of_a, &of_b).await, [true, true]);
        let both = format!("{}{}", new.cert_pem, old.cert_pem);
        for of in [&of_a, &of_b] {
            of.trust(&both).unwrap();
        }
        let a_new = Identity { ca_pem: both.clone(), ..a.clone() }.renewed(&new, CERTIFICATE_LIFE).unwrap();
        assert_eq!([&a.cert_pem, &a_new.cert_pem].map(|cert| is_signed_by(cert, &both).unwrap()), [false, true]);
        of_a.show(&a_new).unwrap();
        assert_eq!([meet(&of_a, &of_b).await, meet(&of_b, &of_a).await], [[true, true]; 2]);
        of_a.trust(&new.cert_pem).unwrap();
        assert!(!meet(&of_b, &of_a).await[1] && !meet(&of_a, &of_b).await[0]);
        assert_eq!(&*of_a.authorities(), new.cert_pem);
        assert!(of_a.trust("").is_err() && of_a.trust("nonsense").is_err());
        assert_eq!(&*of_a.authorities(), new.cert_pem, "what is none changes nothing");
    }
}
