//! The built-in shop: declared by its name alone, served through every node by the node's own program, and there again after the
//! deaths of a clone and of a node, and after each node was started anew.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::http::{self, Shopper};
use e2e::procs::{Proc, Signal};
use e2e::up::clones;
use e2e::{Up, program, wait_for};
use serde_json::Value;

const WELL_WITHIN: Duration = Duration::from_secs(60);

fn declaration() -> String {
    std::fs::read_to_string(program::repository().join("services/shop/coppice.toml")).unwrap()
}

fn well_at_all(up: &Up, shopper: &Shopper) {
    for node in 1..=up.nodes {
        let at = up.at(node).http;
        wait_for(&format!("the cart is there through n{node}"), WELL_WITHIN, || shopper.check(at));
    }
}

/// Adds until the shop says that it did. What got no answer may have been added, too: from then on it is as many as are shown.
fn adds(up: &Up, node: u8, shopper: &mut Shopper, ware: &str) {
    let at = up.at(node).http;
    wait_for("the shop takes it", WELL_WITHIN, || shopper.add(at, ware));
    let (cart, _) = wait_for("the shop shows it", WELL_WITHIN, || shopper.look(at)).0;
    assert!(cart.get(ware) >= shopper.cart.get(ware), "{cart:?} after {shopper:?}");
    shopper.cart.insert(ware.to_owned(), cart[ware]);
}

#[test]
fn the_built_in_shop_needs_its_name_alone_and_outlives_clones_and_nodes() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    let text = declaration();
    let refused = up.apply("shop.toml", &text.replace("builtin = \"shop\"", "builtin = \"shoe\""));
    let why = "shop.toml:8: service.shop.builtin: there is no built-in service \"shoe\"; there are: ";
    let others = refused.err.split_once(why).map_or("", |(_, others)| others);
    assert!(others.contains("shop"), "{}", refused.err);
    up.apply("shop.toml", &text).good();
    up.settle(WELL_WITHIN, 1);

    let mut ann = Shopper::new("ann");
    for node in 1..=3 {
        ann.add(up.at(node).http, "honey").unwrap();
    }
    ann.add(up.at(1).http, "a%26b+%3Cc").unwrap();
    // It is decoded.
    ann.cart.remove("a%26b+%3Cc");
    ann.cart.insert("a&b <c".into(), 1);
    well_at_all(&up, &ann);
    let seen: BTreeSet<String> = (0..30).map(|nth| ann.look(up.at(nth % 3 + 1).http).unwrap().1).collect();
    assert!(seen.is_subset(&["shop/0", "shop/1", "shop/2"].map(str::to_owned).into()) && seen.len() > 1, "{seen:?}");
    its_answers_are_those_of_the_example(&up, &ann);

    // The clones are the program of their nodes.
    let all = clones(&up.status(1).unwrap());
    let programs: Vec<_> = all.iter().map(|c| exe(c["pid"].as_u64().unwrap() as u32)).collect();
    let nodes: Vec<_> = (1..=3).map(|node| exe(up.node_pid(node))).collect();
    assert_eq!(programs, nodes);

    Proc::of(all[0]["pid"].as_u64().unwrap() as u32).unwrap().signal(Signal::KILL);
    adds(&up, 2, &mut ann, "bread");
    well_at_all(&up, &ann);
    Proc::of(up.node_pid(2)).unwrap().signal(Signal::KILL);
    adds(&up, 3, &mut ann, "cheese");
    well_at_all(&up, &ann);
    up.settle(WELL_WITHIN, 1);

    // A node that is started anew brings its own program's shop, and nothing has to be deployed for that.
    let before = clones(&up.status(1).unwrap());
    up.coppice(&["node", "restart", "n3"]).good();
    up.settle(WELL_WITHIN, 1);
    well_at_all(&up, &ann);
    let pid = |all: &[Value], node: &str| all.iter().find(|c| c["node"] == node).map(|c| c["pid"].clone());
    let after = clones(&up.status(1).unwrap());
    assert_ne!(pid(&before, "n3"), pid(&after, "n3"));
    let exported = up.coppice(&["export"]).good();
    assert!(exported.contains("builtin = \"shop\""), "{exported}");
    up.apply("shop.toml", &exported).good();
}

fn exe(pid: u32) -> std::path::PathBuf {
    std::fs::read_link(format!("/proc/{pid}/exe")).unwrap()
}

fn its_answers_are_those_of_the_example(up: &Up, ann: &Shopper) {
    let at = up.at(1).http;
    let page = http::get(at, &format!("/?sid={}", ann.sid)).unwrap();
    let text = page.text();
    assert!(text.contains("<li>honey: 3</li>") && text.contains("<li>a&amp;b &lt;c: 1</li>"), "{text}");
    assert!(text.contains("value=\"walnut\"") && text.contains("Served by clone shop/"), "{text}");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let cookie = page.header("set-cookie").unwrap();
    assert_eq!(cookie, format!("sid={}; Path=/; HttpOnly; SameSite=Lax", ann.sid));
    // Who shows nothing, or what could be no name of ours, is somebody new.
    for path in ["/cart.json", "/cart.json?sid=%3Cscript%3E"] {
        let new = http::get(at, path).unwrap();
        let sid = new.header("set-cookie").unwrap().split(['=', ';']).nth(1).unwrap().to_owned();
        assert!(sid.len() == 32 && new.json().unwrap()["cart"].as_object().unwrap().is_empty(), "{sid}");
    }
    for (path, form) in [("/add", "ware="), ("/add", "colour=red"), ("/else", "ware=honey")] {
        let headers = [("Content-Type", "application/x-www-form-urlencoded")];
        let reply = http::request(at, "POST", path, &headers, form.as_bytes()).unwrap();
        assert_eq!((reply.status, reply.text().as_str()), (400, "POST /add ware=NAME\n"), "{path} {form}");
    }
    assert_eq!(http::get(at, "/health").unwrap().status, 200);
}

#[test]
fn up_starts_a_cluster_with_a_built_in_service() {
    let _turn = e2e::beside();
    let up = Up::start(3, &["--demo", "shop"]);
    assert_eq!(up.ready["demo"], true);
    let mut ann = Shopper::new("demo");
    // Ready is ready: the first request is served.
    ann.add(up.at(1).http, "honey").unwrap();
    well_at_all(&up, &ann);
    let text = up.coppice(&["export"]).good();
    assert!(text.contains("builtin = \"shop\""), "{text}");
}
