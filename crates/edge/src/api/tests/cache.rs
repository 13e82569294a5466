//! What requests on entries of class `cache` become, and how what comes of them reads.

use state::cache::{Act, Reply as Got, What};

use super::*;

/// A node that has a namespace `carts` of class `cache` and answers so.
fn cache(
    reply: Got,
    line: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Vec<(String, String)>, String, Option<Act>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (toy, router) = toy(vec![Answer::Cache(Outcome::Done(reply))]);
        toy.declare("carts", NamespaceSpec::Cache(state::cache::Spec::default()));
        let response = call(&router, request(line, &[&[CARTS], headers].concat(), body)).await;
        let headers =
            response.headers().iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_string())).collect();
        let status = response.status().as_u16();
        let asked = toy.asked.lock().unwrap().pop();
        let act = asked.map(|asked| match asked {
            Ask::Cache(op) => op.act,
            other => panic!("{other:?}"),
        });
        (status, headers, text(response).await, act)
    })
}

#[test]
fn an_entry_is_put_with_type_tags_and_end_and_read_back() {
    let headers =
        [("content-type", "text/css"), ("cache-tag", "shop, news"), ("cache-tag", "x"), ("coppice-ends-ms", "500")];
    let (status, _, _, act) = cache(Got::Stored, "PUT /v1/ns/carts/keys/a/b", &headers, "body");
    assert_eq!(status, 204);
    let tags: Vec<Bytes> = ["shop", "news", "x"].map(Bytes::from).to_vec();
    let (value, kind, ttl) = ("body".into(), "text/css".into(), Some(Span::millis(500)));
    assert_eq!(act, Some(Act::Set { value, kind, tags: tags.clone(), ttl, only_present: false, mark: None }));
    let there = Got::Value { value: "body".into(), kind: "text/css".into(), tags, ttl_left: Some(Span::millis(400)) };
    let (status, headers, text, _) = cache(there, "GET /v1/ns/carts/keys/a/b", &[], "");
    assert_eq!((status, &*text), (200, "body"));
    assert_eq!(header(&headers, "content-type"), "text/css");
    assert_eq!(header(&headers, "cache-tag"), "shop, news, x");
    assert_eq!(header(&headers, "coppice-ends-ms"), "400");
    assert_eq!(header(&headers, "content-security-policy"), "sandbox; default-src 'none'");
    assert_eq!(cache(Got::Absent, "GET /v1/ns/carts/keys/a", &[], "").0, 404);
    assert_eq!(cache(Got::Changed(true), "DELETE /v1/ns/carts/keys/a", &[], "").0, 204);
    assert_eq!(cache(Got::Changed(false), "DELETE /v1/ns/carts/keys/a", &[], "").0, 404);
    assert_eq!(cache(Got::NotStored, "PUT /v1/ns/carts/keys/a", &[("if-match", "*")], "v").0, 412);
}

#[test]
fn a_purge_says_what_it_is_about() {
    for (query, what) in [
        ("key=a%2Fb", What::Key("a/b".into())),
        ("prefix=img/", What::Prefix("img/".into())),
        ("tag=news", What::Tag("news".into())),
        ("all=true", What::All),
    ] {
        let (status, _, _, act) = cache(Got::Purged, &format!("POST /v1/ns/carts/purge?{query}"), &[], "");
        assert_eq!((status, act), (204, Some(Act::Purge(what))), "{query}");
    }
    for query in ["", "key=a&tag=b", "all=false"] {
        let (status, _, text, act) = cache(Got::Purged, &format!("POST /v1/ns/carts/purge?{query}"), &[], "");
        assert!(status == 400 && act.is_none() && text.contains("say what is to be purged"), "{query}: {text}");
    }
}

#[test]
fn what_only_other_classes_offer_is_refused_and_the_other_way_round() {
    for (line, headers, says) in [
        ("PUT /v1/ns/carts/keys/a", &[("coppice-lease-ms", "5")][..], "in class cache Coppice-Ends-Ms says when"),
        ("PUT /v1/ns/carts/keys/a", &[("if-none-match", "*")], "class linear decides it"),
        ("PUT /v1/ns/carts/keys/a", &[("if-match", "\"7\"")], "have no versions"),
        ("POST /v1/ns/carts/touch/a", &[], "is of class cache, and class session alone"),
        ("POST /v1/ns/carts/apply/a", &[], "is of class cache, and classes linear and soft offer this"),
        ("POST /v1/ns/carts/mget", &[], "is of class cache, and class linear alone"),
        ("GET /v1/ns/carts/session", &[], "is of class cache, and class session alone"),
    ] {
        let (status, _, text, act) = cache(Got::Stored, line, headers, "v");
        assert!(status == 400 && act.is_none() && text.contains(says), "{line}: {text}");
    }
    let (status, _, text, _) = ask(None, request("POST /v1/ns/carts/purge?all=true", &[CARTS], ""));
    assert!(status == 400 && text.contains("is of class session, and class cache alone"), "{text}");
}
