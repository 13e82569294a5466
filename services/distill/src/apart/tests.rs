//! Names, cookies and headers as tables; and two sites by TLS that come under their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sdk::axum::body::{Body, to_bytes};
use sdk::axum::extract::State;
use sdk::axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use sdk::axum::response::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::afterwards::Often;
use crate::fetch::Fetch;
use crate::front::{self, Front, Repairs};
use crate::image;
use crate::marks::Marks;
use crate::preferences::Readers;
use crate::settings::Settings;
use crate::shelf::Shelf;
use crate::site::photograph;
use crate::sizes::Sizes;
use crate::works::Works;

fn apart(base: &str) -> Apart {
    Apart::of(base, Allowed::of([].into_iter(), ["ann:sesame", "bob:other"].into_iter()).unwrap()).unwrap()
}

fn headers(all: &[(&str, &str)]) -> HeaderMap {
    let value = |text: &str| text.parse::<HeaderValue>().unwrap();
    all.iter().map(|(name, text)| (name.parse::<HeaderName>().unwrap(), value(text))).collect()
}

#[test]
fn each_site_has_one_name_and_each_name_one_site() {
    let apart = apart("D.example");
    for (host, name) in [
        ("example.org", "s-example-org"),
        ("Example.ORG.", "s-example-org"),
        ("www.my-shop.example.co.uk", "s-www-my--shop-example-co-uk"),
        ("xn--mnchen-3ya.de", "s-xn----mnchen--3ya-de"),
        ("a.b--c.org", "s-a-b----c-org"),
        ("1.2.3.com", "s-1-2-3-com"),
    ] {
        assert_eq!(apart.name(host).as_deref(), Some(name), "{host}");
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        assert_eq!(apart.site(name), Some(host.clone()));
        assert_eq!(apart.site(&name.to_ascii_uppercase()), Some(host));
    }
    let long = format!("{}.org", "a".repeat(58));
    for host in [
        "localhost",
        "127.0.0.1",
        "8.8.8.8",
        "::1",
        "[::1]",
        "d.example",
        "s-example-org.d.example",
        "a_b.org",
        "-a.org",
        "a-.org",
        "a..org",
        ".org",
        "user@example.org",
        "exämple.org",
        "a.org/x",
        "a.org\\@b.org",
        "",
        &long,
    ] {
        assert_eq!(apart.name(host), None, "{host}");
    }
    // It may not lead where no name does.
    for label in [
        "example-org",
        "s-",
        "s--",
        "s-org",
        "s---example-org",
        "s-example---org",
        "s-example-org-",
        "s-127-0-0-1",
        "s-localhost",
        "s-d-example",
        "s-s--example--org-d-example",
        "enter",
    ] {
        assert_eq!(apart.site(label), None, "{label}");
    }
    for (host, label) in [
        ("s-a-org.d.example", Some("s-a-org")),
        ("S-A-ORG.D.Example.:8443", Some("S-A-ORG")),
        ("d.example", None),
        (".d.example", None),
        ("xd.example", None),
        ("s-a-org.d.example.evil.org", None),
        ("a.b.d.example", None),
        ("[::1]:443", None),
        ("", None),
    ] {
        assert_eq!(apart.label(host), label, "{host}");
    }
}

#[test]
fn links_lead_to_names_and_back() {
    let apart = apart("https://d.example:8443");
    for (link, new) in [
        ("https://example.org", Some("https://s-example-org.d.example:8443")),
        (" HTTPS://example.org:443/a?b#c ", Some("https://s-example-org.d.example:8443/a?b#c")),
        ("//cdn.example.org/x.js?a=1&amp;b", Some("https://s-cdn-example-org.d.example:8443/x.js?a=1&amp;b")),
        ("https://example.org?x", Some("https://s-example-org.d.example:8443?x")),
        ("http://example.org/", None),
        ("https://example.org:8443/", None),
        ("https://a@example.org/", None),
        ("https://example.org\\@other.org/", None),
        ("https://s-a-org.d.example:8443/x", None),
        ("https://127.0.0.1/", None),
        ("/a", None),
        ("mailto:a@example.org", None),
        ("javascript:https://example.org", None),
        ("", None),
    ] {
        assert_eq!(apart.link(link).as_deref(), new, "{link}");
    }
    assert_eq!(apart.meant("https://s-example-org.d.example:8443/a?b").as_deref(), Some("https://example.org/a?b"));
    for link in ["https://d.example:8443/", "http://s-a-org.d.example:8443/", "https://example.org/", "null"] {
        assert_eq!(apart.meant(link), None, "{link}");
    }
}

#[test]
fn a_cookie_is_of_one_host_alone() {
    for (set, kept) in [
        ("a=b", Some("__Host-a=b; Path=/; Secure")),
        (
            "a=b=c; Domain=.example.org; path=/x; HttpOnly; SameSite=None; Secure; Max-Age=9",
            Some("__Host-a=b=c; Path=/; Secure; HttpOnly; SameSite=None; Max-Age=9"),
        ),
        ("__Host-a=b; Secure; Path=/", Some("__Host-__Host-a=b; Path=/; Secure")),
        ("distill-pass=x; Domain=d.example", Some("__Host-distill-pass=x; Path=/; Secure")),
        ("=b", None),
        ("a", None),
        ("", None),
    ] {
        let kept_now = bound(&HeaderValue::from_str(set).unwrap());
        assert_eq!(kept_now.as_ref().map(|it| it.to_str().unwrap()), kept, "{set}");
    }
    let shown = headers(&[("cookie", "__Host-a=b; a=tossed; distill-pass=x; distill=y; __Host-__Host-c=d; __Host-=z")]);
    assert_eq!(bound_cookies(&shown), "a=b; __Host-c=d");
}

#[test]
fn a_site_sees_its_own_names_and_nothing_of_the_reader_s_ways() {
    let apart = apart("d.example");
    let mine = "https://s-example-org.d.example";
    let theirs = "https://s-other-org.d.example";
    let seen = |method: Method, all: &[(&str, &str)]| {
        let mut shown = headers(all);
        apart.inward(&mut shown, &method);
        shown
    };
    let cookie = ("cookie", "__Host-a=b; distill-pass=x");
    // What a page of the same site asks for.
    let form = seen(
        Method::POST,
        &[
            cookie,
            ("origin", mine),
            ("referer", &format!("{mine}/form?x")),
            ("sec-fetch-site", "same-origin"),
            ("x-forwarded-for", "10.1.2.3"),
            ("forwarded", "for=10.1.2.3"),
        ],
    );
    let expected = headers(&[
        ("cookie", "a=b"),
        ("origin", "https://example.org"),
        ("referer", "https://example.org/form?x"),
        ("sec-fetch-site", "same-origin"),
    ]);
    assert_eq!(form, expected);
    // What a neighbour has asked: it is a stranger, and has no cookies, but where its reader follows a link.
    for (method, mode, has_cookie) in [
        (Method::POST, "navigate", false),
        (Method::GET, "no-cors", false),
        (Method::GET, "cors", false),
        (Method::GET, "navigate", true),
    ] {
        let asked = [cookie, ("origin", theirs), ("sec-fetch-site", "same-site"), ("sec-fetch-mode", mode)];
        let said = seen(method.clone(), &asked);
        assert_eq!(said.contains_key("cookie"), has_cookie, "{method} {mode}");
        assert_eq!(said["sec-fetch-site"], "cross-site");
        assert_eq!(said["origin"], "https://other.org");
    }
    assert_eq!(seen(Method::POST, &[("origin", "https://evil.org")])["origin"], "null");
    assert!(!seen(Method::GET, &[("referer", "https://enter.d.example/")]).contains_key("referer"));
}

#[test]
fn answers_name_hosts_as_they_are_called_here() {
    let apart = apart("d.example");
    let url = Url::parse("https://example.org/a/b").unwrap();
    let mut answered = headers(&[
        ("strict-transport-security", "max-age=9; includeSubDomains"),
        ("clear-site-data", "\"*\""),
        ("service-worker-allowed", "/"),
        ("link", "<https://example.org/x>; rel=preload"),
        ("location", "../c?d"),
        ("access-control-allow-origin", "https://shop.example.org"),
        ("content-security-policy", "default-src 'self' cdn.example.org https://x.org *.y.org data:; img-src 'none'"),
        ("cache-control", "public, max-age=60, s-maxage=600"),
        ("set-cookie", "a=b; Domain=example.org"),
    ]);
    answered.append("set-cookie", HeaderValue::from_static("c=d"));
    apart.outward(&mut answered, &url);
    let mut expected = headers(&[
        ("location", "https://s-example-org.d.example/c?d"),
        ("access-control-allow-origin", "https://s-shop-example-org.d.example"),
        (
            "content-security-policy",
            "default-src 'self' https://s-cdn-example-org.d.example https://s-x-org.d.example *.y.org data:; img-src 'none'",
        ),
        ("cache-control", "private, max-age=60"),
        ("set-cookie", "__Host-a=b; Path=/; Secure"),
        ("origin-agent-cluster", "?1"),
    ]);
    expected.append("set-cookie", HeaderValue::from_static("__Host-c=d; Path=/; Secure"));
    assert_eq!(answered, expected);
    for (to, is) in [
        ("https://other.org/x", "https://s-other-org.d.example/x"),
        ("http://example.org/", "http://example.org/"),
        ("https://127.0.0.1/x", "https://127.0.0.1/x"),
    ] {
        let mut answered = headers(&[("location", to)]);
        apart.outward(&mut answered, &url);
        assert_eq!(answered["location"], is);
    }
}

#[test]
fn a_pass_is_of_whom_it_was_given_to_and_ends() {
    let apart = apart("d.example");
    let pass = apart.pass("0a", 100);
    assert_eq!(apart.holder(&pass, 99).as_deref(), Some("0a"));
    assert_eq!(apart.holder(&pass, 100), None);
    let other = Allowed::of([].into_iter(), ["ann:sesame", "bob:new"].into_iter()).unwrap();
    assert_eq!(Apart::of("d.example", other).unwrap().holder(&pass, 1), None, "a password has changed");
    for forged in
        [pass.replacen("0a", "0b", 1), pass.replacen("100", "999", 1), pass[..pass.len() - 2].into(), "..".into()]
    {
        assert_eq!(apart.holder(&forged, 1), None, "{forged}");
    }
    let tossed = headers(&[("cookie", &format!("distill-pass=x.9.00; distill-pass={}", apart.pass("0a", u64::MAX)))]);
    assert_eq!(apart.reader(&tossed).as_deref(), Some("0a"), "a neighbour's cookie of that name is nobody's");
}

/// Two sites by TLS: what each was asked, and a front that reaches them.
struct Sites {
    front: Arc<Front>,
    asked: Arc<std::sync::Mutex<Vec<String>>>,
}

const PAGE: &str = "<!doctype html><html><head><base href=\"/b/\"><link rel=stylesheet href=\"//cdn.other.org/s.css\"></head><body>\
     <a href=\"https://other.org/x?a=1&amp;b\">one</a><a href=/own>two</a><form action=\"https://example.org/f\"></form>\
     <script src=\"https://other.org/s.js\"></script><img src=p.jpg><img src=\"https://other.org/q.jpg\"><a href=\"http://plain.org/\">three</a></body></html>";

impl Sites {
    async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(["example.org".to_owned(), "other.org".to_owned()]).unwrap();
        let cert = made.cert.der().clone();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = || Arc::new(rustls::crypto::ring::default_provider());
        let server =
            rustls::ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let server = server.with_no_client_auth().with_single_cert(vec![cert.clone()], key).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(cert).unwrap();
        let client =
            rustls::ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (at, asked) = (listener.local_addr().unwrap(), Arc::new(std::sync::Mutex::new(Vec::new())));
        let (heard, tls) = (Arc::clone(&asked), tokio_rustls::TlsAcceptor::from(Arc::new(server)));
        let picture = image::jpeg(&photograph(3, 200, 150), 90).unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = tls.accept(stream).await else { continue };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { break };
                    head.push(byte);
                }
                let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
                let (kind, body) = match head.contains(".jpg ") {
                    true => ("image/jpeg", picture.clone()),
                    false => ("text/html", format!("{PAGE}{}", " ".repeat(1024)).into_bytes()),
                };
                heard.lock().unwrap().push(head);
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nSet-Cookie: sid=7; Domain=example.org\r\n\
                     Connection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
                let _ = stream.shutdown().await;
            }
        });
        // They are on this machine, so they are declared; `inside.org` is not.
        let origins: BTreeMap<String, Vec<Url>> = ["example.org", "other.org"]
            .map(|name| (name.into(), vec![Url::parse(&format!("https://{name}/")).unwrap()]))
            .into();
        let fetch = Fetch::for_tests(origins, client, move |_| vec![at]);
        let settings = Settings { apart: Some(Arc::new(apart("d.example"))), ..Settings::default() };
        let front = Arc::new(Front {
            settings,
            fetch,
            works: Works::new(),
            readers: Readers::new(None, None),
            sizes: Sizes::default(),
            marks: Marks::default(),
            shelf: Shelf::new(None),
            repairs: Repairs::default(),
            often: Often::default(),
        });
        Self { front, asked }
    }

    async fn ask(&self, method: Method, url: &str, all: &[(&str, &str)], body: &'static str) -> (Response, Bytes) {
        let (host, path) = url.strip_prefix("https://").unwrap().split_once('/').unwrap();
        let mut request = Request::new(Body::from(body));
        (*request.method_mut(), *request.uri_mut()) = (method, format!("/{path}").parse().unwrap());
        *request.headers_mut() = headers(all);
        request.headers_mut().insert("host", host.parse().unwrap());
        let (head, body) = front::answer(State(Arc::clone(&self.front)), request).await.into_parts();
        let body = to_bytes(body, 1 << 20).await.unwrap();
        (Response::from_parts(head, Body::empty()), body)
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

#[tokio::test]
async fn whoever_has_a_pass_has_sites_by_https_each_under_its_name() {
    let sites = Sites::start().await;
    let at = |host: &str, path: &str| format!("https://{host}.d.example{path}");
    let page = at("s-example-org", "/a/?x");
    // Who has no pass is sent to the entrance, or refused; nothing is fetched for him.
    let (sent, _) = sites.ask(Method::GET, &page, &[], "").await;
    assert_eq!(sent.status(), StatusCode::SEE_OTHER);
    let to = sent.headers()["location"].to_str().unwrap().to_owned();
    assert!(to.starts_with("https://enter.d.example/_distill/enter?back=https%3A%2F%2Fs%2Dexample%2Dorg"), "{to}");
    let refused = sites.ask(Method::POST, &page, &[], "").await.0.status();
    assert_eq!(refused, StatusCode::UNAUTHORIZED);
    let other = apart("d.example").pass("0a", 1);
    let old = format!("distill-pass={other}");
    assert_eq!(sites.ask(Method::GET, &page, &[("cookie", &old)], "").await.0.status(), StatusCode::SEE_OTHER);
    assert!(sites.asked().is_empty());
    let enter = at("enter", "/_distill/enter");
    let (shown, form) = sites.ask(Method::GET, &to, &[], "").await;
    assert!(
        shown.status() == 200
            && String::from_utf8_lossy(&form).contains("value=\"https://s-example-org.d.example/a/?x\"")
    );
    let wrong = "name=ann&password=other&back=";
    assert_eq!(sites.ask(Method::POST, &enter, &[], wrong).await.0.status(), StatusCode::FORBIDDEN);
    let right = "name=ann&password=sesame&back=https%3A%2F%2Fs-example-org.d.example%2Fa%2F%3Fx";
    let foreign = [("sec-fetch-site", "same-site")];
    assert_eq!(sites.ask(Method::POST, &enter, &foreign, right).await.0.status(), StatusCode::FORBIDDEN);
    let (entered, _) = sites.ask(Method::POST, &enter, &[], right).await;
    assert_eq!(entered.headers()["location"], *page);
    let set = entered.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(set.contains("; Domain=d.example; Path=/; HttpOnly; SameSite=Lax;") && set.ends_with("; Secure"), "{set}");
    let outside = "name=ann&password=sesame&back=https%3A%2F%2Fevil.org%2F";
    let (entered, _) = sites.ask(Method::POST, &enter, &[], outside).await;
    assert_eq!(entered.headers()["location"], "https://enter.d.example/");
    let pass = set.split(';').next().unwrap();
    let (led, _) =
        sites.ask(Method::GET, &at("enter", "/_distill/enter?to=example.org%2Fz"), &[("cookie", pass)], "").await;
    assert_eq!(led.headers()["location"], "https://s-example-org.d.example/z");

    // The page: its links lead to names, its pictures are made small, its cookie is its own.
    let cookies = format!("{pass}; __Host-sid=6; sid=tossed");
    let (got, html) = sites.ask(Method::GET, &page, &[("cookie", &cookies)], "").await;
    assert_eq!(got.status(), 200);
    assert_eq!(got.headers()["set-cookie"], "__Host-sid=7; Path=/; Secure");
    let html = String::from_utf8(html.to_vec()).unwrap();
    for part in [
        "href=\"https://s-cdn-other-org.d.example/s.css\"",
        "<a href=\"https://s-other-org.d.example/x?a=1&amp;b\">one</a>",
        "<a href=/own>two</a>",
        "action=\"https://s-example-org.d.example/f\"",
        "<script src=\"https://s-other-org.d.example/s.js\">",
        "<img src=\"/_distill/i/q40/b/p.jpg\">",
        "<img src=\"https://s-other-org.d.example/_distill/i/q40/q.jpg\">",
        "<a href=\"http://plain.org/\">three</a>",
        "<form method=\"post\" action=\"/_distill/preferences\"",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    let asked = sites.asked();
    assert!(asked.len() == 1 && asked[0].starts_with("get /a/?x http/1.1\r\n"), "{asked:?}");
    assert!(asked[0].contains("host: example.org\r\n") && asked[0].contains("cookie: sid=6\r\n"), "{asked:?}");
    assert!(!asked[0].contains("distill-pass") && !asked[0].contains("tossed"), "{asked:?}");

    // A picture of the other site, for a page of this one: no cookies of it.
    let picture = at("s-other-org", "/_distill/i/q40/q.jpg");
    let neighbour = [("cookie", &*cookies), ("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors")];
    let (got, bytes) = sites.ask(Method::GET, &picture, &neighbour, "").await;
    assert!(got.status() == 200 && got.headers()["coppice-answer"] == "exact", "{:?}", got.headers());
    assert!(bytes.starts_with(&[0xff, 0xd8, 0xff]));
    let asked = sites.asked();
    assert!(asked[0].contains("host: other.org\r\n") && !asked[0].contains("cookie"), "{asked:?}");

    // Where nobody may be led, nobody is; workers that stay are refused.
    let shown = [("cookie", pass)];
    for (host, status) in [("s-inside-org", 403), ("s-127-0-0-1", 404), ("s-d-example", 404), ("other", 404)] {
        let (got, _) = sites.ask(Method::GET, &at(host, "/"), &shown, "").await;
        assert_eq!(got.status(), status, "{host}");
    }
    let worker = [("cookie", pass), ("service-worker", "script")];
    assert_eq!(sites.ask(Method::GET, &page, &worker, "").await.0.status(), 403);
    assert!(sites.asked().is_empty());
    // Who guesses is not heard for a while, not even when he is right.
    let guesses = [("x-forwarded-for", "192.0.2.1")];
    for _ in 0..crate::limits::WRONG_MAX {
        sites.ask(Method::POST, &enter, &guesses, wrong).await;
    }
    assert_eq!(sites.ask(Method::POST, &enter, &guesses, right).await.0.status(), 429);
    // Whoever comes from elsewhere is.
    let other = [("x-forwarded-for", "192.0.2.2")];
    assert_eq!(sites.ask(Method::POST, &enter, &other, right).await.0.status(), 303);
}
