//! Certificates of the cluster, as a node's doors show them: beside the pairs of its folder, which come first for a name that both have;
//! and what shows directories that names are ours. Also what is looked at before one is taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base::process::Private;
use node::acme::Acme;
use node::limits::CERTIFICATE_BYTES_MAX;
use node::{Certificate, Keyed, View};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{DEFAULT, Pem, certified};

/// What is shown now, the same for all doors of a node.
#[derive(Debug, Default)]
pub struct Shared {
    now: ArcSwap<Now>,
    proofs: ArcSwap<Proving>,
}

/// What shows directories that names are ours, by name.
#[derive(Debug, Default)]
struct Proving {
    by_name: BTreeMap<String, Arc<CertifiedKey>>,
    of: Arc<Acme>,
}

#[derive(Debug, Default)]
struct Now {
    by_name: BTreeMap<String, Arc<CertifiedKey>>,
    default: Option<Arc<CertifiedKey>>,
    /// The one for all other names first, if there is one.
    pems: Vec<Pem>,
    of: Arc<[Keyed]>,
}

impl Shared {
    /// Takes over what the cluster has, for ever: views come often, and mostly with the same.
    pub async fn follow(self: Arc<Self>, mut views: watch::Receiver<Arc<View>>) {
        loop {
            let (all, acme) = {
                let view = views.borrow_and_update();
                (Arc::clone(&view.keyed), Arc::clone(&view.acme))
            };
            if !Arc::ptr_eq(&all, &self.now.load().of) {
                self.take(&all);
            }
            if !Arc::ptr_eq(&acme, &self.proofs.load().of) {
                self.prove(&acme);
            }
            if views.changed().await.is_err() {
                return;
            }
        }
    }

    fn take(&self, all: &Arc<[Keyed]>) {
        let mut now = Now { of: Arc::clone(all), ..Now::default() };
        // Of two for one name the one that is good for longer.
        let mut in_order: Vec<&Keyed> = all.iter().collect();
        in_order.sort_by_key(|of| (of.name != DEFAULT, std::cmp::Reverse(of.ends_at_ms)));
        for of in in_order {
            let read = certified("its chain", of.chain.as_bytes(), "its key", &of.key.0);
            let (key, names) = match read {
                Ok(read) => read,
                Err(error) => {
                    // It was looked at before it was taken.
                    tracing::error!(name = of.name, %error, "a certificate of the cluster cannot be used");
                    continue;
                }
            };
            if of.name == DEFAULT {
                now.default = Some(Arc::clone(&key));
            }
            for name in &names {
                now.by_name.entry(name.clone()).or_insert_with(|| Arc::clone(&key));
            }
            let key = of.key.text().unwrap_or_default().into();
            now.pems.push(Pem { names, chain: Arc::clone(&of.chain), key });
        }
        tracing::info!(names = now.by_name.len(), "certificates of the cluster were replaced");
        self.now.store(Arc::new(now));
    }

    fn prove(&self, acme: &Arc<Acme>) {
        let before = self.proofs.load();
        let mut proving = Proving { by_name: BTreeMap::new(), of: Arc::clone(acme) };
        for (name, proof) in &acme.proofs {
            let as_before = || before.by_name.get(name).filter(|_| before.of.proofs.get(name) == Some(proof)).cloned();
            let made = || {
                let (cert, key) = host::proof_of(name, proof).map_err(|e| e.to_string())?;
                shows(&cert, &key)
            };
            match as_before().map_or_else(made, Ok) {
                Ok(key) => _ = proving.by_name.insert(name.clone(), key),
                Err(error) => tracing::error!(name, error, "it cannot be shown that a name is ours"),
            }
        }
        self.proofs.store(Arc::new(proving));
    }

    /// What shows that this name is ours, if a directory is about to look.
    pub(super) fn proof(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.proofs.load().by_name.get(&name.to_ascii_lowercase()).cloned()
    }

    /// For exactly this name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.now.load().by_name.get(name).cloned()
    }

    pub(super) fn for_others(&self) -> Option<Arc<CertifiedKey>> {
        self.now.load().default.clone()
    }

    pub(super) fn pems(&self) -> Vec<Pem> {
        self.now.load().pems.clone()
    }
}

/// Not looked at as others are: what is critical in it is known to directories alone (RFC 8737 3), and refused by what looks.
fn shows(cert: &str, key: &str) -> Result<Arc<CertifiedKey>, String> {
    let cert = CertificateDer::from_pem_slice(cert.as_bytes()).map_err(|e| e.to_string())?;
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| e.to_string())?;
    let key = rustls::crypto::ring::default_provider().key_provider.load_private_key(key).map_err(|e| e.to_string())?;
    Ok(Arc::new(CertifiedKey::new(vec![cert], key)))
}

/// Reads a certificate with its chain and its key, all in PEM in any order, and looks at them. `name` is how it is to be called.
///
/// # Errors
/// A sentence that has nothing of the key: what is wrong, and what would be right.
pub fn checked(name: &str, pem: &[u8], wall_ms: u64) -> Result<Certificate, String> {
    if pem.len() > CERTIFICATE_BYTES_MAX {
        return Err(format!("certificate and key have {} bytes; {CERTIFICATE_BYTES_MAX} are the most", pem.len()));
    }
    let (certified, names) = certified("the certificate", pem, "the key", pem)?;
    let chain = &certified.cert;
    let read = |der: &'_ CertificateDer<'_>| -> Option<(String, String, [i64; 2])> {
        let (_, read) = X509Certificate::from_der(der).ok()?;
        let good = read.validity();
        Some((
            read.subject().to_string(),
            read.issuer().to_string(),
            [good.not_before, good.not_after].map(|t| t.timestamp()),
        ))
    };
    let all: Vec<_> =
        chain.iter().map(read).collect::<Option<_>>().ok_or("one of the chain is no X.509 certificate")?;
    for (one, next) in all.iter().zip(&all[1..]) {
        if one.1 != next.0 {
            return Err(format!(
                "the chain is not in order: the certificate of {:?} is signed by {:?}, and after it comes {:?}; its own \
                 is first, then who signed it",
                one.0, one.1, next.0
            ));
        }
    }
    let (_, issuer, good) = &all[0];
    let [begins_at_ms, ends_at_ms] = good.map(|s| u64::try_from(s).unwrap_or(0).saturating_mul(1000));
    if ends_at_ms <= wall_ms {
        return Err(format!("the certificate ended {} ago", roughly(wall_ms - ends_at_ms)));
    }
    if begins_at_ms > wall_ms {
        return Err(format!("the certificate begins in {}; set it then", roughly(begins_at_ms - wall_ms)));
    }
    if names.is_empty() && name != DEFAULT {
        return Err(format!(
            "the certificate is for no host name (subjectAltName), so that nobody would be shown it; for all names that no other has \
             call it {DEFAULT}"
        ));
    }
    let issuer = issuer_name(issuer);
    let chain: String = chain.iter().map(|der| armoured("CERTIFICATE", der)).collect();
    let key = key_pem(pem).ok_or("the key is not in PEM")?;
    Ok(Certificate { names, issuer, begins_at_ms, ends_at_ms, chain, key: Private(key.into()) })
}

/// `3 days`
fn roughly(ms: u64) -> String {
    let (most, name) = [(86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes")]
        .into_iter()
        .find(|(unit, _)| ms >= *unit)
        .unwrap_or((1000, "seconds"));
    format!("{} {name}", ms / most)
}

/// `CN=R11, O=Let's Encrypt` is `R11, Let's Encrypt`.
fn issuer_name(subject: &str) -> String {
    let parts = subject.split(", ").map(|part| part.split_once('=').map_or(part, |(_, value)| value));
    parts.collect::<Vec<_>>().join(", ").chars().take(ISSUER_CHARS_MAX).collect()
}

/// The private key alone, without what stands around it.
fn key_pem(pem: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(pem);
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(pem).ok()?;
    let label = match &key {
        rustls::pki_types::PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        rustls::pki_types::PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    text.contains(label).then(|| armoured(label, key.secret_der()))
}

fn armoured(label: &str, der: &[u8]) -> String {
    use base64::Engine;
    let encoded = base64::engine::general_purpose::STANDARD.encode(der);
    let lines = encoded.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned() + "\n");
    format!("-----BEGIN {label}-----\n{}-----END {label}-----\n", lines.collect::<String>())
}

/// Of who signed a certificate, as people see it.
const ISSUER_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{CHALLENGE, Certs};

    const NOW_MS: u64 = 1_795_000_000_000;

    struct Made {
        cert: String,
        key: String,
    }

    fn made(names: &[&str], days: [i64; 2]) -> Made {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        let at = |days: i64| {
            let s = (NOW_MS / 1000).cast_signed() + days * 86_400;
            (std::time::UNIX_EPOCH + std::time::Duration::from_secs(s.cast_unsigned())).into()
        };
        [params.not_before, params.not_after] = days.map(at);
        let key = rcgen::KeyPair::generate().unwrap();
        Made { cert: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    }

    fn keyed(name: &str, names: &[&str], days: i64) -> Keyed {
        let Made { cert, key } = made(names, [-1, days]);
        let taken = checked(name, format!("{key}{cert}").as_bytes(), NOW_MS).unwrap();
        Keyed { name: name.into(), ends_at_ms: taken.ends_at_ms, chain: taken.chain.into(), key: taken.key }
    }

    #[test]
    fn what_is_wrong_with_a_certificate_is_said_before_it_is_taken() {
        let (good, other) = (made(&["a.example", "*.A.example"], [-1, 9]), made(&["b.example"], [-1, 9]));
        let check = |pem: String| checked("a", pem.as_bytes(), NOW_MS);
        let taken = check(format!("Bag Attributes\n{}\nnotes\n{}", good.key, good.cert)).unwrap();
        assert_eq!(taken.names, ["a.example", "*.a.example"]);
        assert_eq!((taken.begins_at_ms, taken.ends_at_ms), (NOW_MS - 86_400_000, NOW_MS + 9 * 86_400_000));
        assert_eq!(
            (taken.chain.replace('\r', ""), taken.key.text().unwrap()),
            (good.cert.replace('\r', ""), &*good.key)
        );
        let (ended, early, nameless) =
            (made(&["a.example"], [-9, -2]), made(&["a.example"], [2, 9]), made(&[], [-1, 9]));
        for (pem, why) in [
            (good.key.clone(), "the certificate has no certificate in PEM"),
            (good.cert.clone(), "has no private key in PEM"),
            (format!("{}{}", good.cert, other.key), "is not the key of"),
            (format!("{}{}{}", good.cert, other.key, good.key), "is not the key of"),
            (format!("{}{}", ended.cert, ended.key), "ended 2 days ago"),
            (format!("{}{}", early.cert, early.key), "begins in 2 days"),
            (format!("{}{}", nameless.cert, nameless.key), "call it default"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(), "something else than an X.509"),
            (String::new(), "no certificate in PEM"),
            ("x".repeat(CERTIFICATE_BYTES_MAX + 1), "are the most"),
        ] {
            let told = check(pem).unwrap_err();
            assert!(told.contains(why), "{told}");
            assert!(!told.contains("PRIVATE"), "{told}");
        }
        assert!(checked("default", format!("{}{}", nameless.cert, nameless.key).as_bytes(), NOW_MS).is_ok());
    }

    #[test]
    fn a_chain_is_its_own_first_then_who_signed_it() {
        let root_key = rcgen::KeyPair::generate().unwrap();
        let mut root = rcgen::CertificateParams::default();
        root.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        root.distinguished_name.push(rcgen::DnType::CommonName, "Toy Root");
        let root_pem = root.self_signed(&root_key).unwrap().pem();
        let issuer = rcgen::Issuer::new(root, root_key);
        let leaf_key = rcgen::KeyPair::generate().unwrap();
        let leaf = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        let leaf_pem = leaf.signed_by(&leaf_key, &issuer).unwrap().pem();
        let key = leaf_key.serialize_pem();
        let good = checked("a", format!("{leaf_pem}{root_pem}{key}").as_bytes(), NOW_MS).unwrap();
        assert!(good.issuer.contains("Toy Root") && good.chain.matches("BEGIN").count() == 2, "{good:?}");
        let other = made(&["b.example"], [-1, 9]).cert;
        // Told by whom it is and by whom it should be.
        let told = checked("a", format!("{leaf_pem}{other}{root_pem}{key}").as_bytes(), NOW_MS).unwrap_err();
        assert!(told.contains("not in order") && told.contains("Toy Root"), "{told}");
        assert!(checked("a", format!("{root_pem}{leaf_pem}{key}").as_bytes(), NOW_MS).is_err());
    }

    /// What a client of these protocols is shown for a name, and which protocol is agreed on.
    fn spoken(certs: &Arc<Certs>, name: &'static str, protocols: &[&[u8]]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let roots = rustls::RootCertStore::empty();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        config.dangerous().set_certificate_verifier(Arc::new(Any(provider)));
        let shown = async {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let (acceptor, connector) = (certs.acceptor().unwrap(), tokio_rustls::TlsConnector::from(Arc::new(config)));
            let (_served, stream) =
                tokio::join!(acceptor.accept(ours), connector.connect(name.try_into().unwrap(), theirs));
            let stream = stream.ok()?;
            let state = stream.get_ref().1;
            Some((state.peer_certificates()?[0].to_vec(), state.alpn_protocol().map(<[u8]>::to_vec)))
        };
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(shown)
    }

    /// Believes whoever it is.
    #[derive(Debug)]
    struct Any(Arc<rustls::crypto::CryptoProvider>);

    impl rustls::client::danger::ServerCertVerifier for Any {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &rustls::pki_types::ServerName<'_>,
            _: &[u8],
            _: rustls::pki_types::UnixTime,
        ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
            Ok(rustls::client::danger::ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            self.0.signature_verification_algorithms.supported_schemes()
        }
    }

    #[test]
    fn who_looks_whether_a_name_is_ours_is_shown_what_rfc_8737_says_and_others_the_certificate() {
        let Made { cert, key } = made(&["nobody.invalid"], [-1, 9]);
        let shared = Arc::new(Shared::default());
        let certs = Certs::own_beside(&cert, &key, Arc::clone(&shared)).unwrap();
        let proof = [0xa5; 32];
        let proofs = node::acme::Proofs::from([("a.example".to_owned(), proof)]);
        assert_eq!(spoken(&certs, "a.example", &[CHALLENGE]), None, "there is nothing to show yet");
        shared.prove(&Arc::new(Acme { proofs: proofs.clone(), ..Acme::default() }));

        let (shown, protocol) = spoken(&certs, "A.example", &[CHALLENGE]).unwrap();
        assert_eq!(protocol.as_deref(), Some(CHALLENGE));
        let (_, read) = X509Certificate::from_der(&shown).unwrap();
        let of = |oid: &str| read.extensions().iter().find(|of| of.oid.to_id_string() == oid).unwrap();
        // acmeIdentifier: critical, an OCTET STRING of 32 bytes (RFC 8737 3).
        let identifier = of("1.3.6.1.5.5.7.1.31");
        assert!(identifier.critical);
        assert_eq!(identifier.value, [[4, 32].as_slice(), &proof].concat());
        assert_eq!(super::super::names(&shown.clone().into()).unwrap(), ["a.example"]);
        assert_eq!(read.subject(), read.issuer());

        for (name, protocols, agreed) in [
            ("b.example", [CHALLENGE].as_slice(), None),
            ("a.example", &[crate::tls::H2], Some(crate::tls::H2)),
            ("a.example", &[CHALLENGE, crate::tls::H2], Some(crate::tls::H2)),
            ("a.example", &[], Some(b"".as_slice())),
        ] {
            let said = spoken(&certs, name, protocols);
            let theirs = said.as_ref().map(|(_, protocol)| protocol.clone().unwrap_or_default());
            assert_eq!(theirs.as_deref(), agreed, "{name} {protocols:?}");
            assert!(said.is_none_or(|(other, _)| other != shown));
        }
        // The same again is the same certificate; it goes with its order.
        shared.prove(&Arc::new(Acme { proofs, ..Acme::default() }));
        assert_eq!(spoken(&certs, "a.example", &[CHALLENGE]).unwrap().0, shown);
        shared.prove(&Arc::default());
        assert_eq!(spoken(&certs, "a.example", &[CHALLENGE]), None);
    }

    #[test]
    fn a_name_is_shown_the_folders_certificate_then_the_clusters_then_the_default() {
        let dir = std::env::temp_dir().join(format!("coppice-shared-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let Made { cert, key } = made(&["a.example", "*.w.example"], [-1, 9]);
        std::fs::write(dir.join("a.crt"), cert).unwrap();
        std::fs::write(dir.join("a.key"), key).unwrap();
        let Made { cert, key } = made(&["nobody.invalid"], [-1, 9]);
        let shared = Arc::new(Shared::default());
        let folder = Certs::load_beside(&dir, Arc::clone(&shared)).unwrap();
        let bare = Certs::own_beside(&cert, &key, Arc::clone(&shared)).unwrap();
        let shown = |certs: &Certs, name: &str| {
            let found = certs.find(Some(name).filter(|name| !name.is_empty()));
            super::super::names(&found.cert[0]).unwrap().join(" ")
        };
        let all = [
            keyed("a", &["a.example", "b.example"], 5),
            keyed("b", &["b.example", "x.w.example"], 7),
            keyed("c", &["*.c.example"], 7),
        ];
        shared.take(&Arc::from(all.clone()));
        for (name, in_folder, without) in [
            ("a.example", "a.example *.w.example", "a.example b.example"),
            // Of two the one that is good for longer.
            ("B.example.", "b.example x.w.example", "b.example x.w.example"),
            // Exactly this name goes before a wildcard, wherever it is.
            ("x.w.example", "b.example x.w.example", "b.example x.w.example"),
            ("y.w.example", "a.example *.w.example", "nobody.invalid"),
            ("any.c.example", "*.c.example", "*.c.example"),
            ("", "a.example *.w.example", "nobody.invalid"),
        ] {
            assert_eq!((&*shown(&folder, name), &*shown(&bare, name)), (in_folder, without), "{name}");
        }
        let pems = |certs: &Certs| certs.pems().iter().map(|pem| pem.names[0].clone()).collect::<Vec<_>>();
        assert_eq!(pems(&folder), ["a.example", "b.example", "*.c.example", "a.example"]);
        assert_eq!(pems(&bare).len(), 3, "what it shows to nobody's name is nobody else's");

        let default = [keyed(DEFAULT, &["d.example"], 3), all[0].clone()];
        shared.take(&Arc::from(default));
        assert_eq!(
            (&*shown(&folder, "z.example"), &*shown(&bare, "z.example")),
            ("a.example *.w.example", "d.example")
        );
        assert_eq!(pems(&bare), ["d.example", "a.example"]);
        shared.take(&Arc::from([]));
        assert_eq!(shown(&bare, "d.example"), "nobody.invalid");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
