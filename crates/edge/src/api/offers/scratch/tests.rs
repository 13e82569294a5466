//! Class `scratch` over HTTP: what is asked of the node, and what its answers become.

use base::Outcome;
use node::{Answer, Ask};
use state::NamespaceSpec;
use state::scratch::{Act, Op, Reply};

use super::super::super::tests::{CARTS, call, request, text, toy};

fn asked(reply: Reply, line: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, Option<Act>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (toy, router) = toy(vec![Answer::Scratch(Outcome::Done(reply))]);
        toy.declare("carts", NamespaceSpec::Scratch(state::scratch::Spec::default()));
        let response = call(&router, request(line, &[&[CARTS], headers].concat(), body)).await;
        let (status, text) = (response.status().as_u16(), text(response).await);
        let act = toy.asked.lock().unwrap().pop().map(|asked| match asked {
            Ask::Scratch(Op { namespace, act, .. }) if &*namespace == "carts" => act,
            other => panic!("{other:?}"),
        });
        (status, text, act)
    })
}

#[test]
fn values_of_a_node_are_put_read_removed_and_counted() {
    const KEY: &str = "/v1/ns/carts/keys/a";
    let plain = |reply, method: &str, body| asked(reply, &format!("{method} {KEY}"), &[], body);
    assert_eq!(plain(Reply::Stored, "PUT", "one"), (204, String::new(), Some(Act::Put("one".into()))));
    assert_eq!(plain(Reply::Value("one".into()), "GET", ""), (200, "one".into(), Some(Act::Get)));
    assert_eq!(plain(Reply::Absent, "GET", "").0, 404);
    assert_eq!(plain(Reply::Removed, "DELETE", ""), (204, String::new(), Some(Act::Remove)));
    assert_eq!(plain(Reply::Absent, "DELETE", "").0, 404);
    let counted = asked(Reply::Count(3), "GET /v1/ns/carts/keys", &[], "");
    assert_eq!(counted, (200, "{\"count\":3}".into(), Some(Act::Count)));
    // What other classes offer it says that it has not.
    let (status, why, act) = asked(Reply::Stored, &format!("PUT {KEY}"), &[("if-match", "*")], "one");
    assert!(status == 400 && act.is_none() && why.contains("not for class scratch"), "{why}");
    let (status, why, _) = asked(Reply::Stored, "POST /v1/ns/carts/touch/a", &[], "");
    assert!(status == 400 && why.contains("/v1/ns/carts/keys/KEY"), "{why}");
}
