//! A program that ends TLS itself, with certificates of its node that change under it.

use std::sync::Arc;

use sdk::tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use sdk::tokio_rustls::rustls::pki_types::CertificateDer;
use sdk::tokio_rustls::rustls::pki_types::pem::PemObject;
use sdk::tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use sdk::tokio_rustls::{TlsAcceptor, TlsConnector};
use sdk::{Certificates, Given, Service, tokio};

use crate::scripted::Does::{self, Answers};
use crate::scripted::Scripted;

struct Made {
    json: String,
    cert: String,
}

fn made(name: &str) -> Made {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let cert = made.cert.pem();
    let json = serde_json::json!({"names": [name], "chain": cert, "key": made.signing_key.serialize_pem()});
    Made { json: json.to_string(), cert }
}

fn answers(tag: &str, all: &[&Made]) -> Does {
    let all: Vec<&str> = all.iter().map(|made| made.json.as_str()).collect();
    let body = format!("{{\"certificates\":[{}]}}", all.join(","));
    let leaked = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
    Answers(200, leaked(format!("etag: \"{tag}\"\r\n")), leaked(body))
}

fn service(script: &[Does]) -> (Scripted, Service) {
    let node = Scripted::new(script);
    let api = node.at.to_string();
    let vars = [("PORT", "80"), ("COPPICE_NODE_API", &*api), ("COPPICE_SERVICE", "mail"), ("COPPICE_TOKEN", "clones")];
    let given = Given::from_vars(vars.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap();
    (node, Service::of(given).unwrap())
}

/// Whether a client that trusts just this certificate gets along with who asks for this name, and the protocol that they agree on.
async fn meets(certificates: &Certificates, trusted: &Made, name: &'static str) -> Result<Option<Vec<u8>>, String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.cert.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut client = client.with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"pop3".to_vec()];
    let (here, there) = duplex(64 << 10);
    let acceptor = TlsAcceptor::from(certificates.config(&[b"imap", b"pop3"]).unwrap());
    tokio::spawn(async move {
        if let Ok(mut stream) = acceptor.accept(there).await {
            let _ = stream.write_all(b"!").await;
            let _ = stream.shutdown().await;
        }
    });
    let connector = TlsConnector::from(Arc::new(client));
    let mut stream = connector.connect(name.try_into().unwrap(), here).await.map_err(|e| e.to_string())?;
    assert_eq!(stream.read_u8().await.unwrap(), b'!');
    Ok(stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec))
}

#[tokio::test]
async fn each_client_is_shown_the_certificate_of_its_name_and_a_renewed_one_without_a_restart() {
    let [first, wild, renewed] = ["mail.example", "*.pop.example", "mail.example"].map(made);
    let same = Answers(304, "etag: \"a\"\r\n", "");
    let broken = Answers(200, "", "{\"certificates\":[{\"names\":[],\"chain\":\"x\",\"key\":\"y\"}]}");
    let gone = Answers(404, "", "{}");
    let script = [answers("a", &[&first, &wild]), same, broken, gone, answers("b", &[&renewed])];
    let (node, service) = service(&script);
    let certificates = service.certificates().await.unwrap();
    assert!(!certificates.is_empty());
    assert_eq!(meets(&certificates, &first, "MAIL.example").await, Ok(Some(b"pop3".to_vec())));
    assert_eq!(meets(&certificates, &wild, "a.pop.example").await, Ok(Some(b"pop3".to_vec())));
    assert!(meets(&certificates, &wild, "mail.example").await.is_err());
    // Nothing new, one that cannot be read, none any more: those before go on.
    certificates.refresh().await.unwrap();
    assert!(certificates.refresh().await.unwrap_err().contains("not in PEM"));
    certificates.refresh().await.unwrap();
    assert_eq!(meets(&certificates, &first, "mail.example").await, Ok(Some(b"pop3".to_vec())));
    certificates.refresh().await.unwrap();
    assert_eq!(meets(&certificates, &renewed, "mail.example").await, Ok(Some(b"pop3".to_vec())));
    assert!(node.asked().iter().all(|line| line == "GET /v1/services/mail/certificates"), "{:?}", node.asked());
}

#[tokio::test]
async fn a_node_without_certificates_is_no_mistake_and_a_service_that_may_not_have_them_is() {
    let (_node, none) = service(&[Answers(404, "", "{\"error\":\"none\"}")]);
    assert!(none.certificates().await.unwrap().is_empty());
    let (_node, refused) =
        service(&[Answers(403, "", "{\"error\":\"it is not declared with `certificates = true`\"}")]);
    assert!(refused.certificates().await.unwrap_err().to_string().contains("certificates = true"));
}
