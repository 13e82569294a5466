//! Class `scratch` of `coppice up --scratch`: what each node was given it has alone.

use std::time::Duration;

use e2e::{Up, http, wait_for};

#[test]
fn each_node_has_a_map_of_its_own_of_which_the_cluster_knows_the_sum() {
    let _turn = e2e::beside();
    let up = Up::start(2, &["--no-demo", "--scratch"]);
    up.apply("notes.toml", "[namespace.notes]\nclass = \"scratch\"\n").good();
    let bearer = format!("Bearer {}", up.token("notes"));
    let ask = |n: u8, method: &str, path: &str, body: &[u8]| {
        let reply = http::request(up.at(n).api, method, path, &[("Authorization", &bearer)], body).unwrap();
        (reply.status, reply.text())
    };
    wait_for("the other node knows of the namespace", Duration::from_secs(30), || {
        match ask(2, "GET", "/v1/ns/notes/keys", b"") {
            (200, _) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let (a, all) = ("/v1/ns/notes/keys/a", "/v1/ns/notes/keys");
    assert_eq!(ask(1, "PUT", a, b"one").0, 204);
    assert_eq!(ask(1, "GET", a, b""), (200, "one".to_owned()));
    assert_eq!(ask(2, "GET", a, b"").0, 404, "nothing is copied");
    assert_eq!(ask(2, "PUT", a, b"two").0, 204);
    assert_eq!((ask(1, "GET", a, b"").1, ask(1, "GET", all, b"").1), ("one".to_owned(), "{\"count\":1}".to_owned()));
    wait_for("both are told of", Duration::from_secs(30), || {
        let shown = up.coppice(&["ns", "show", "notes"]).good();
        if shown.contains("2 keys") && shown.contains("for tests") { Ok(()) } else { Err(shown) }
    });
    assert_eq!((ask(1, "DELETE", a, b"").0, ask(1, "DELETE", a, b"").0), (204, 404));
    assert_eq!(ask(2, "GET", a, b""), (200, "two".to_owned()));
}
