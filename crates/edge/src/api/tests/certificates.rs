//! Certificates with their keys: to whom they are shown, and when.

use std::net::IpAddr;

use node::view::ServiceView;
use serde_json::json;

use super::*;
use crate::api::places::{Door, Room};
use crate::tls::Pem;

const PATH: &str = "GET /v1/services/mail/certificates";
const MAIL: (&str, &str) = ("authorization", "Bearer clones");

fn node(declared: &[&str], pems: Vec<Pem>) -> Router {
    let (toy, _) = toy(vec![]);
    *toy.certificates.lock().unwrap() = pems;
    toy.view.send_modify(|view| {
        let tokens = [("mail".to_string(), "clones".to_string()), ("shop".to_string(), "other".to_string())];
        let services = ["mail", "shop"].map(|name| {
            let certificates = declared.contains(&name);
            serde_json::from_value(
                json!({"name": name, "wanted": 1, "clones": [], "at": [], "certificates": certificates}),
            )
        });
        let services: Vec<ServiceView> = services.into_iter().map(Result::unwrap).collect();
        *view = Arc::new(View { service_tokens: Arc::new(tokens.into()), services, ..View::clone(view) });
    });
    let meter = Arc::new(Meter::new());
    let functions = Functions::new(&meter);
    router(toy, meter, functions, Router::new())
}

/// A request that came from one address to another.
async fn asked(router: &Router, from: &str, to: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
    let mut request = request(PATH, headers, "");
    let [from, to]: [IpAddr; 2] = [from, to].map(|ip| ip.parse().unwrap());
    request.headers_mut().insert("host", to.to_string().parse().unwrap());
    request.extensions_mut().insert(Door::new(Room::default(), None).enter(from, to));
    let response = call(router, request).await;
    let etag = response.headers().get("etag").map_or("", |tag| tag.to_str().unwrap()).to_owned();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, etag, String::from_utf8(body.to_vec()).unwrap())
}

fn pem(name: &str) -> Pem {
    Pem { names: vec![name.into()], chain: format!("chain of {name}").into(), key: format!("key of {name}").into() }
}

#[tokio::test]
async fn a_clone_on_this_machine_gets_what_its_service_was_declared_to_get() {
    let router = node(&["mail"], vec![pem("default.example"), pem("mail.example")]);
    let (status, tag, body) = asked(&router, "127.0.0.1", "127.0.0.1", &[MAIL]).await;
    assert_eq!(status, 200, "{body}");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let one =
        |name: &str| json!({"names": [name], "chain": format!("chain of {name}"), "key": format!("key of {name}")});
    assert_eq!(body, json!({"certificates": [one("default.example"), one("mail.example")]}));
    let again = asked(&router, "10.0.0.1", "10.0.0.1", &[MAIL, ("if-none-match", &tag)]).await;
    assert_eq!((again.0, &*again.2), (304, ""), "by the machine's own address, and nothing new");
}

#[tokio::test]
async fn nobody_else_gets_a_key() {
    let pems = vec![pem("mail.example")];
    let (declared, other) = (node(&["mail"], pems.clone()), node(&["shop"], pems));
    let own = ("127.0.0.1", "127.0.0.1");
    for (router, (from, to), token, expect, says) in [
        (&declared, ("10.0.0.2", "10.0.0.1"), "clones", 403, "on this node's machine"),
        (&declared, own, "other", 401, "token"),
        (&declared, own, "root", 401, "token"),
        (&declared, own, "", 401, "token"),
        (&other, own, "clones", 403, "certificates = true"),
        (&node(&["mail"], vec![]), own, "clones", 404, "--tls-dir"),
    ] {
        let bearer = format!("Bearer {token}");
        let (status, _, body) = asked(router, from, to, &[("authorization", &bearer)]).await;
        assert_eq!((status, body.contains(says)), (expect, true), "{from} {token}: {status} {body}");
        assert!(!body.contains("key of"), "{body}");
    }
    let large = Pem { chain: "x".repeat(limits::CERTIFICATES_BYTES_MAX).into(), ..pem("mail.example") };
    assert_eq!(asked(&node(&["mail"], vec![large]), "127.0.0.1", "127.0.0.1", &[MAIL]).await.0, 507);
    let shown = format!("{:?}", pem("mail.example"));
    assert!(!shown.contains("key of"), "not in logs either: {shown}");
}
