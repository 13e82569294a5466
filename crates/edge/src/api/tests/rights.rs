//! SECURITY.md says of each address whom it shows what; these tests ask each of them.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const SECURITY: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../SECURITY.md"));

/// Method and path of each row, and who may ask.
fn rows() -> BTreeMap<(String, String), String> {
    let (_, section) = SECURITY.split_once("## What the API shows to whom").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut rows = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        for path in cells[2].split(", ") {
            for method in cells[1].split(", ") {
                let of = (method.trim_matches('`').to_owned(), path.trim_matches('`').to_owned());
                assert!(rows.insert(of, cells[3].to_owned()).is_none(), "{line} is there twice");
            }
        }
    }
    rows
}

fn routes() -> BTreeSet<(String, String)> {
    let monitor = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../monitor/src/site.rs"));
    let mut routes = BTreeSet::new();
    for code in [include_str!("../mod.rs"), monitor] {
        let code = code.split("#[cfg(test)]").next().unwrap();
        for rest in code.split(".route(").skip(1) {
            let path = rest.split('"').nth(1).unwrap();
            let handlers = rest.split(".route(").next().unwrap();
            let methods = ["get", "put", "post", "delete"];
            for method in methods.iter().filter(|method| handlers.contains(&format!("{method}("))) {
                routes.insert((method.to_uppercase(), path.to_owned()));
            }
        }
    }
    routes
}

async fn status_of(router: &Router, method: &str, path: &str, token: &str) -> u16 {
    let path = [
        "{service}",
        "{name}",
        "{ns}",
        "{*key}",
        "{*part}",
        "{handle}",
        "{digest}",
        "{barrier}",
        "{owner}",
        "{id}",
        "{queue}",
    ]
    .iter()
    .zip(["shop", "n1", "carts", "a", "shop", "x", "aa", "b", "ann", "00", "mails"])
    .fold(path.replace("{profile}", "readers"), |path, (what, with)| path.replace(what, with));
    let shown = format!("Bearer {token}");
    let headers = if token.is_empty() { vec![] } else { vec![("authorization", &*shown)] };
    call(router, request(&format!("{method} {path}"), &headers, "")).await.status().as_u16()
}

#[test]
fn security_md_lists_every_address_once() {
    let listed: BTreeSet<_> = rows().into_keys().collect();
    let routes = routes();
    assert!(routes.len() > 40, "{routes:?}");
    assert_eq!(listed, routes);
}

#[tokio::test]
async fn each_address_answers_those_whom_security_md_names_and_no_other() {
    let tokens = [("", "anybody"), ("secret", "namespace"), ("clones", "service"), ("root", "operator")];
    for is_private in [false, true] {
        let (toy, _) = toy(vec![]);
        toy.view.send_modify(|view| {
            let service_tokens = Arc::new([("shop".to_string(), "clones".to_string())].into());
            let of_carts =
                clones::ProfileSpec { namespace: "carts".into(), key: "address".into(), schema: Default::default() };
            let profiles = Arc::new([("readers".to_string(), of_carts)].into());
            *view = Arc::new(View { service_tokens, profiles, ..View::clone(view) });
        });
        let meter = Arc::new(Meter::new());
        let functions = Functions::new(&meter);
        let router = router_with(Arc::clone(&toy) as _, Arc::clone(&meter), functions, Router::new(), is_private);
        for ((method, path), who) in rows() {
            for (token, whose) in tokens {
                let may = match &*who {
                    "anybody, always" => true,
                    // The path has a secret in it.
                    "handle" => true,
                    // Its own service's, or namespace's.
                    "anybody" if is_private => {
                        whose == "operator"
                            || whose == "namespace" && (path.starts_with("/v1/ns/") || path.starts_with("/v1/profiles/"))
                            || whose == "service" && path.starts_with("/v1/services/{service}")
                            // Any service is to find the others.
                            || whose == "service" && path.starts_with("/v1/catalog")
                    }
                    "anybody" => true,
                    "service, own node" => whose == "service",
                    "service" => matches!(whose, "service" | "operator"),
                    "namespace or operator" => matches!(whose, "namespace" | "operator"),
                    only => {
                        assert!(matches!(only, "namespace" | "operator"), "{only}");
                        whose == only
                    }
                };
                let status = status_of(&router, &method, &path, token).await;
                assert_eq!(status != 401, may, "{method} {path} with {whose}: {status}, private: {is_private}");
            }
        }
    }
}
