//! Tokens are made anew while nodes run: the one before opens for as long as was said at every node, and then nothing, also for who is in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use e2e::resp::{Resp, Word};
use e2e::sse::Sse;
use e2e::tools::Said;
use e2e::{Up, http, wait_for};

const SOON: Duration = Duration::from_secs(30);

fn is_open(resp: &mut Resp) -> Result<(), String> {
    match resp.ask(&["DBSIZE"])? {
        Word::Int(_) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

fn opens(up: &Up, token: &str) -> Result<(), String> {
    is_open(&mut Resp::open(up.at(2).resp, "bank", token)?)
}

/// What a node says to who shows this token of the operator.
fn operates(up: &Up, token: &str) -> Said {
    up.coppice(&["export", "--token", token])
}

#[test]
fn a_token_that_is_made_anew_opens_at_once_and_the_one_before_for_a_while() {
    let _turn = e2e::beside();
    let up = Up::bare(2);
    up.apply("bank.toml", "[namespace.bank]\nclass = \"linear\"\nshards = 1\n").good();
    let first = up.token("bank");
    let mut inside = up.linear(2, "bank", &first);

    let said = up.coppice(&["token", "renew", "ns", "bank", "--keep", "1h"]).good();
    assert!(said.contains("the one before opens for 1h more"), "{said}");
    let second = up.token("bank");
    assert!(second != first && !said.contains(&second) && !said.contains(&first));
    for token in [&first, &second] {
        wait_for("both open", SOON, || opens(&up, token));
    }
    is_open(&mut inside).expect("who was in stays in");
    assert!(
        up.coppice(&["status"]).good().contains("the token of namespace bank was renewed; the one before opens for")
    );
    let shown = up.coppice(&["status", "--json"]).good() + &up.coppice(&["events"]).good();
    assert!(!shown.contains(&first) && !shown.contains(&second));

    let mut stream = Sse::open(up.at(2).api, "/v1/ns/bank/watch?prefix=", &first, None).unwrap();
    stream.next().expect("it begins");

    // Now the second is the one before, and ends by itself; the first ended when the third came.
    up.coppice(&["token", "renew", "ns", "bank", "--keep", "3s"]).good();
    let third = up.token("bank");
    for token in [&first, &second] {
        wait_for("its while is over", SOON, || match opens(&up, token) {
            Err(why) if why.contains("WRONGPASS") => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    wait_for("who came in with it is out", SOON, || match inside.ask(&["DBSIZE"])? {
        Word::Error(why) if why.contains("NOAUTH") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    opens(&up, &third).unwrap();
    up.linear(1, "bank", &third).ask(&["SET", "gold", "1"]).unwrap();
    assert!(stream.next().is_err(), "what was opened with it is told nothing more");
    wait_for("nothing is left to be told", SOON, || match up.coppice(&["status"]).good() {
        said if said.contains("was renewed") => Err(said),
        _ => Ok(()),
    });

    one_services_token_changes_alone(&up);

    let first = up.admin_token();
    up.coppice(&["token", "renew", "operator"]).good();
    let second = up.admin_token();
    assert_ne!(first, second);
    for token in [&first, &second] {
        assert!(operates(&up, token).is_good());
    }
    up.coppice(&["token", "renew", "operator", "--keep", "0s"]).good();
    let third = up.admin_token();
    for token in [&first, &second] {
        assert!(operates(&up, token).wrong().contains("operator's token"));
    }
    assert!(operates(&up, &third).is_good());
    for file in [up.dir.join("admin.token"), up.dir.join("n1/admin.token")] {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), third);
        assert!(!file.with_extension("token.new").exists());
    }
}

/// Clones reach each other with it: here a broadcast, at the node that was not asked.
fn one_services_token_changes_alone(up: &Up) {
    let bearer = |token: &str| format!("Bearer {token}");
    let declared = "[service.shop]\nrun = [\"true\"]\nclones = 0\n[service.till]\nrun = [\"true\"]\nclones = 0\n";
    up.apply("shop.toml", declared).good();
    let of = |service: &str| {
        let headers = [("authorization", &*bearer(&up.admin_token()))];
        let reply =
            http::request(up.at(1).api, "GET", &format!("/v1/services/{service}/token"), &headers, b"").unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json().unwrap()["token"].as_str().unwrap().to_owned()
    };
    let opens = |token: &str| {
        let headers = [("authorization", &*bearer(token))];
        http::request(up.at(2).api, "POST", "/v1/services/shop/broadcast", &headers, b"{}").unwrap().status != 401
    };
    let (first, other) = (of("shop"), of("till"));
    assert!(opens(&first) && !opens(&other));
    let said = up.coppice(&["token", "renew", "service", "shop"]).good();
    let second = of("shop");
    assert!(second != first && of("till") == other && !said.contains(&second));
    assert!(up.coppice(&["status"]).good().contains("the token of service shop was renewed"));
    wait_for("both open", SOON, || if opens(&first) && opens(&second) { Ok(()) } else { Err("one is refused".into()) });
    up.coppice(&["token", "renew", "service", "shop", "--keep", "0s"]).good();
    wait_for("what was before opens nothing", SOON, || match [&first, &second].map(|token| opens(token)) {
        [false, false] => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(opens(&of("shop")));
}
