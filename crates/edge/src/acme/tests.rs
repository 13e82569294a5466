//! A toy directory over TLS that goes through an order as RFC 8555 says, or does not: what the client makes of each. The real protocol
//! is tried against pebble, end to end.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use super::jws::AccountKey;
use clones::Challenge as Way;
use node::acme::Proofs;

use super::*;

/// What is wrong with a directory, if something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Quirk {
    None,
    NotJson,
    Missing,
    Endless,
    RateLimit,
    RateLimitDate,
    OldNonceOnce,
    OldNonceAlways,
    External,
    NoWay,
    TlsOnly,
    HttpAway,
    OtherAsked,
    Disbelief,
    OrderFails,
    OtherNames,
    OtherKey,
    NoPem,
    Plain,
}

struct Toy {
    quirk: Quirk,
    base: String,
    /// The account's key, when it is known.
    point: Option<Vec<u8>>,
    nonces: u64,
    is_old: u32,
    /// Which challenge it was told to look at.
    asked: Option<Way>,
    /// What our nodes show by now.
    shown: Proofs,
    certificate: Option<String>,
    requests: u32,
}

fn unsigned(text: &Value) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text.as_str().unwrap()).unwrap()
}

impl Toy {
    /// Looks at what is signed, and gives the payload: for this URL, with the nonce that was given last, by the account.
    fn opened(&mut self, path: &str, body: &[u8]) -> Option<Value> {
        let body: Value = serde_json::from_slice(body).unwrap();
        let head: Value = serde_json::from_slice(&unsigned(&body["protected"])).unwrap();
        assert_eq!(head["url"], format!("{}{path}", self.base));
        assert_eq!((&head["alg"], &head["nonce"]), (&"ES256".into(), &format!("n{}", self.nonces).into()));
        if path == "/account" {
            self.point = Some([vec![4], unsigned(&head["jwk"]["x"]), unsigned(&head["jwk"]["y"])].concat());
        } else {
            assert_eq!(head["kid"], format!("{}/account/1", self.base));
        }
        let signed = format!("{}.{}", body["protected"].as_str().unwrap(), body["payload"].as_str().unwrap());
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.point.as_ref().unwrap());
        key.verify(signed.as_bytes(), &unsigned(&body["signature"])).unwrap();
        serde_json::from_slice(&unsigned(&body["payload"])).ok()
    }

    fn answer(&mut self, path: &str, body: &[u8]) -> (u16, Value, Option<(&'static str, String)>) {
        self.requests += 1;
        let (base, quirk) = (self.base.clone(), self.quirk);
        let at = |path: &str| format!("{base}{path}");
        let problem =
            |kind: &str, detail: &str| json!({"type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail});
        if path == "/dir" {
            let meta = json!({"externalAccountRequired": quirk == Quirk::External});
            let directory = json!({
                "newNonce": at("/nonce"), "newAccount": at("/account"), "newOrder": at("/order"), "meta": meta, "more": 1
            });
            return match quirk {
                Quirk::NotJson => (200, Value::String("<html>".into()), None),
                Quirk::Missing => (404, Value::Null, None),
                Quirk::Endless => (200, Value::String("x".repeat(ANSWER_BYTES_MAX)), None),
                Quirk::Plain => (200, json!({"newNonce": "http://a/", "newAccount": "", "newOrder": ""}), None),
                _ => (200, directory, None),
            };
        }
        if path == "/nonce" {
            return (200, Value::Null, None);
        }
        let payload = self.opened(path, body);
        if quirk == Quirk::OldNonceAlways || quirk == Quirk::OldNonceOnce && self.is_old == 0 {
            self.is_old += 1;
            return (400, problem("badNonce", "too old"), None);
        }
        let status = match (&self.certificate, self.asked.is_some()) {
            (Some(_), _) => "valid",
            (None, true) => "ready",
            (None, false) => "pending",
        };
        let order = json!({
            "status": if quirk == Quirk::OrderFails { "invalid" } else { status },
            "error": problem("unauthorized", "we changed our mind"),
            "authorizations": [at("/authz/1")], "finalize": at("/finalize"), "certificate": at("/certificate"),
        });
        match path {
            "/account" => {
                assert_eq!(payload.unwrap()["termsOfServiceAgreed"], true);
                (201, json!({"status": "valid"}), Some(("location", at("/account/1"))))
            }
            "/order" if quirk == Quirk::RateLimit => {
                (429, problem("rateLimited", "too many\ncertificates"), Some(("retry-after", "7200".into())))
            }
            "/order" if quirk == Quirk::RateLimitDate => {
                let at = std::time::SystemTime::now() + Duration::from_secs(7200);
                (503, Value::Null, Some(("retry-after", httpdate::fmt_http_date(at))))
            }
            "/order" => {
                // What was not believed once is asked anew.
                self.asked = None;
                assert_eq!(payload.unwrap()["identifiers"], json!([{"type": "dns", "value": "shop.example"}]));
                (201, order, Some(("location", at("/order/1"))))
            }
            "/authz/1" => {
                let (status, error) = match (self.asked, quirk) {
                    (Some(_), Quirk::Disbelief) | (Some(Way::Http01), Quirk::HttpAway) => {
                        ("invalid", problem("connection", "10.0.0.1: Connection refused"))
                    }
                    (Some(_), _) => ("valid", Value::Null),
                    (None, _) => ("pending", Value::Null),
                };
                let kinds = match quirk {
                    Quirk::NoWay => ["dns-01", "dns-02"],
                    Quirk::TlsOnly => ["dns-01", "tls-alpn-01"],
                    _ => ["http-01", "tls-alpn-01"],
                };
                let challenges = kinds.map(|kind| {
                    json!({"type": kind, "url": at(&format!("/challenge/{kind}")), "token": "t", "error": error})
                });
                let name = if quirk == Quirk::OtherAsked { "bank.example" } else { "shop.example" };
                let identifier = json!({"type": "dns", "value": name});
                (200, json!({"status": status, "identifier": identifier, "challenges": challenges}), None)
            }
            "/challenge/http-01" | "/challenge/tls-alpn-01" => {
                assert_eq!(payload, Some(json!({})));
                let over_tls = path.ends_with("tls-alpn-01");
                // By then all nodes show it.
                assert_eq!(over_tls, self.shown.contains_key("shop.example"));
                self.asked = Some(if over_tls { Way::TlsAlpn01 } else { Way::Http01 });
                (200, json!({"status": "processing"}), None)
            }
            "/order/1" => (200, order, None),
            "/finalize" => {
                let request = unsigned(&payload.unwrap()["csr"]);
                self.certificate = Some(self.signed(&request));
                (200, order, None)
            }
            "/certificate" => (200, Value::String(self.certificate.clone().unwrap()), None),
            other => panic!("asked for {other}"),
        }
    }

    fn signed(&self, request: &[u8]) -> String {
        let root_key = rcgen::KeyPair::generate().unwrap();
        let mut root = rcgen::CertificateParams::default();
        root.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        root.distinguished_name.push(rcgen::DnType::CommonName, "Toy Root");
        let root_pem = root.self_signed(&root_key).unwrap().pem();
        let issuer = rcgen::Issuer::new(root, root_key);
        let mut request = rcgen::CertificateSigningRequestParams::from_der(&request.into()).unwrap();
        if self.quirk == Quirk::OtherNames {
            request.params.subject_alt_names = vec![rcgen::SanType::DnsName("other.example".try_into().unwrap())];
        }
        let other = rcgen::KeyPair::generate().unwrap();
        let own = match self.quirk {
            Quirk::OtherKey => request.params.signed_by(&other, &issuer).unwrap().pem(),
            _ => request.signed_by(&issuer).unwrap().pem(),
        };
        if self.quirk == Quirk::NoPem { "here you are".into() } else { format!("{own}\n{root_pem}") }
    }
}

/// Serves one; where its directory is, what its certificate is signed by, and what it counts.
async fn serve(quirk: Quirk) -> (String, String, Arc<Mutex<Toy>>) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_protocol_versions(rustls::DEFAULT_VERSIONS);
    let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let (base_of, shown) = (base.clone(), Proofs::new());
    let toy = Toy {
        quirk,
        base: base_of,
        point: None,
        nonces: 0,
        is_old: 0,
        asked: None,
        shown,
        certificate: None,
        requests: 0,
    };
    let toy = Arc::new(Mutex::new(toy));
    let served = Arc::clone(&toy);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, toy) = (acceptor.clone(), Arc::clone(&served));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    let toy = Arc::clone(&toy);
                    async move { Ok::<_, Infallible>(said(&toy, request).await) }
                });
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (format!("{base}/dir"), cert, toy)
}

async fn said(toy: &Mutex<Toy>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut toy = toy.lock().unwrap();
    let (status, body, header) = toy.answer(&path, &body);
    toy.nonces += 1;
    let mut response = Response::builder().status(status).header("replay-nonce", format!("n{}", toy.nonces));
    if let Some((name, value)) = header {
        response = response.header(name, value);
    }
    let text = match body {
        Value::String(text) => text,
        Value::Null => String::new(),
        value => value.to_string(),
    };
    response.body(Full::new(text.into())).unwrap()
}

impl Shows for Arc<Mutex<Toy>> {
    async fn show(&self, proofs: Proofs) -> Result<(), Failed> {
        self.lock().unwrap().shown = proofs;
        Ok(())
    }
}

async fn asked(directory: &str, ca: &str, toy: &Arc<Mutex<Toy>>) -> Result<node::Certificate, Failed> {
    asked_by(directory, ca, toy, &[Way::Http01]).await
}

async fn asked_by(directory: &str, ca: &str, toy: &Arc<Mutex<Toy>>, ways: &[Way]) -> Result<node::Certificate, Failed> {
    let account = AccountKey::read(&AccountKey::generate().unwrap()).unwrap();
    let names = ["shop.example".to_owned()];
    let (key_pem, request) = host::request_for(&names).unwrap();
    let wish = Wish {
        names: &names,
        directory,
        contact: &[],
        ca: Some(ca),
        account: &account,
        ways,
        request: &request,
        key_pem: &key_pem,
    };
    let made = obtain(&wish, toy).await;
    for proof in toy.lock().unwrap().shown.values() {
        assert_eq!(*proof, account.proof("t"));
    }
    made
}

#[tokio::test]
async fn a_directory_that_keeps_to_the_rules_gives_a_certificate_with_its_key() {
    for quirk in [Quirk::None, Quirk::OldNonceOnce] {
        let (directory, ca, toy) = serve(quirk).await;
        let certificate = asked(&directory, &ca, &toy).await.unwrap();
        assert_eq!(
            (certificate.names, certificate.chain.matches("BEGIN").count()),
            (vec!["shop.example".to_owned()], 2)
        );
        assert!(certificate.issuer.contains("Toy Root") && certificate.key.text().unwrap().contains("PRIVATE KEY"));
    }
}

#[tokio::test]
async fn names_are_shown_over_tls_where_that_is_asked_for_or_http_does_not_do() {
    for (quirk, ways, way) in [
        (Quirk::None, Way::ALL.as_slice(), Way::Http01),
        (Quirk::None, &[Way::TlsAlpn01], Way::TlsAlpn01),
        (Quirk::TlsOnly, &Way::ALL, Way::TlsAlpn01),
        (Quirk::HttpAway, &Way::ALL, Way::TlsAlpn01),
    ] {
        let (directory, ca, toy) = serve(quirk).await;
        let certificate = asked_by(&directory, &ca, &toy, ways).await.unwrap();
        let toy = toy.lock().unwrap();
        assert_eq!((certificate.names, toy.asked), (vec!["shop.example".to_owned()], Some(way)), "{quirk:?}");
        assert_eq!(toy.shown.len(), usize::from(way == Way::TlsAlpn01), "what need not be shown is not");
    }
    // What went wrong with each way is said; an order that was refused is not tried by another one.
    let (directory, ca, toy) = serve(Quirk::Disbelief).await;
    let why = asked_by(&directory, &ca, &toy, &Way::ALL).await.unwrap_err().why;
    assert!(why.starts_with("by http-01: 127.0.0.1") && why.contains("(connection); by tls-alpn-01: 127"), "{why}");
    let (directory, ca, toy) = serve(Quirk::RateLimit).await;
    assert!(asked_by(&directory, &ca, &toy, &Way::ALL).await.unwrap_err().why.contains("too many"));
    assert!(toy.lock().unwrap().requests <= 4);
    // Nothing is shown for a name that was not ordered, whatever a directory says.
    let (directory, ca, toy) = serve(Quirk::OtherAsked).await;
    let why = asked_by(&directory, &ca, &toy, &[Way::TlsAlpn01]).await.unwrap_err().why;
    assert!(why.contains("asks for \"bank.example\", which was not ordered"), "{why}");
    assert!(toy.lock().unwrap().shown.is_empty());
}

#[tokio::test]
async fn what_goes_wrong_is_said_in_words_and_asked_for_no_more() {
    let hours = |after: Option<Duration>| after.map(|after| (after.as_secs() + 60) / 3600);
    for (quirk, why, after, requests_max) in [
        (Quirk::NotJson, "answers nonsense where its directory should be", None, 1),
        (Quirk::Missing, "refused its directory with status 404", None, 1),
        (Quirk::Endless, "nonsense", None, 1),
        (Quirk::Plain, "does not begin with https://", None, 1),
        (Quirk::External, "external account binding", None, 1),
        (Quirk::RateLimit, "refused an order: too many certificates (rateLimited)", Some(2), 4),
        (Quirk::RateLimitDate, "refused an order with status 503", Some(2), 4),
        (Quirk::OldNonceAlways, "none of 5 of its own nonces", None, 7),
        (Quirk::NoWay, "offers no challenge http-01 for shop.example", None, 5),
        (Quirk::Disbelief, "not believe that shop.example is here: 10.0.0.1: Connection refused (connection)", None, 7),
        (Quirk::OrderFails, "ended the order: we changed our mind (unauthorized)", None, 8),
        (Quirk::OtherNames, "is not taken: it is not for shop.example", None, 11),
        (Quirk::OtherKey, "is not taken: the key is not the key of the certificate", None, 11),
        (Quirk::NoPem, "is not taken: the certificate has no certificate in PEM", None, 11),
    ] {
        let (directory, ca, toy) = serve(quirk).await;
        let failed = asked(&directory, &ca, &toy).await.unwrap_err();
        assert!(failed.why.contains(why), "{quirk:?}: {failed}");
        assert!(failed.why.contains("127.0.0.1") || quirk == Quirk::Plain, "it says who: {failed}");
        assert!(!failed.why.contains('\n'), "{failed}");
        assert_eq!(hours(failed.after), after, "{quirk:?}");
        let requests = toy.lock().unwrap().requests;
        assert!(requests <= requests_max, "{quirk:?}: {requests} requests");
    }
}

#[tokio::test]
async fn who_is_not_there_or_somebody_else_is_not_asked() {
    let (directory, _, toy) = serve(Quirk::None).await;
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap().cert.pem();
    let failed = asked(&directory, &other, &toy).await.unwrap_err();
    assert!(failed.why.contains("cannot reach 127.0.0.1:") && failed.why.contains("certificate"), "{failed}");
    assert_eq!(toy.lock().unwrap().requests, 0);
    // A port that was free a moment ago: nobody listens.
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let failed = asked(&format!("https://{nobody}/dir"), &other, &toy).await.unwrap_err();
    assert!(failed.why.contains("cannot reach 127.0.0.1:"), "{failed}");
    assert!(asked(&directory, "nothing", &toy).await.unwrap_err().why.contains("root certificates"));
}

#[test]
fn a_thumbprint_is_that_of_rfc_7638() {
    // The key's coordinates are what it is made of, so that two keys have two.
    let [one, two] = [(); 2].map(|()| AccountKey::generate().unwrap());
    let print = |key: &[u8]| AccountKey::read(key).unwrap().thumbprint();
    assert_eq!((print(&one), print(&one).len()), (print(&one), 43));
    assert_ne!(print(&one), print(&two));
    assert!(AccountKey::read(b"nothing").is_err());
}
