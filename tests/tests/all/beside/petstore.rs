//! The built-in pet store: one page of seven services. What is late, and what is dead, is left out and said so, and comes back.

use std::net::SocketAddr;
use std::time::Duration;

use e2e::procs::{Proc, Signal};
use e2e::up::clones;
use e2e::{Up, http, wait_for};
use serde_json::Value;

const WELL_WITHIN: Duration = Duration::from_secs(60);
/// Of the slowest part, and room for a machine that has much else to do.
const PAGE_WITHIN_MS: u64 = 10_000;

fn page(at: SocketAddr) -> Result<Value, String> {
    http::get(at, "/page.json?who=ann&pet=rex").map_err(|e| e.to_string())?.json()
}

/// A page from which just these are missing. A part may be late once in a while on a machine that is loaded.
fn lacks(at: SocketAddr, names: &[&str]) -> Value {
    let what = format!("the page lacks {names:?}");
    wait_for(&what, WELL_WITHIN, || {
        let page = page(at)?;
        let missing: Vec<&str> = page["left_out"].as_object().ok_or("no page")?.keys().map(String::as_str).collect();
        if missing == names { Ok(page.clone()) } else { Err(page.to_string()) }
    })
    .0
}

#[test]
fn a_page_of_seven_services_leaves_out_what_is_late_or_dead_and_says_so() {
    let _turn = e2e::beside();
    let up = Up::start(2, &["--demo", "petstore"]);
    let (one, two) = (up.at(1).http, up.at(2).http);
    let whole = lacks(one, &[]);
    assert_eq!(whole["parts"].as_object().unwrap().len(), 7, "{whole}");
    assert_eq!(whole["parts"]["stock"]["lines"][0], "rex: 10");

    let form = [("Content-Type", "application/x-www-form-urlencoded"), ("Cookie", "who=ann")];
    assert_eq!(http::request(two, "POST", "/buy", &form, b"pet=rex").unwrap().status, 303);
    assert_eq!(http::request(two, "POST", "/rate", &form, b"pet=rex&stars=5").unwrap().status, 303);
    assert_eq!(http::request(two, "POST", "/buy", &form, b"pet=cow").unwrap().status, 400);
    wait_for("all parts know of it", WELL_WITHIN, || {
        let parts = &page(one)?["parts"];
        let first = |part: &str| parts[part]["lines"][0].as_str().map(str::to_owned);
        let are = ["stock", "cart", "rating"].map(first);
        let right = ["rex: 9", "rex: 1", "rex: 5.0 of 5 (1)"].map(|line| Some(line.to_owned()));
        if are == right { Ok(()) } else { Err(parts.to_string()) }
    });

    // One that is late is left out; the page is not as late.
    let mut store = e2e::resp::Resp::open(up.at(1).resp, "store", &up.token("store")).unwrap();
    store.ask(&["SET", "slow:advice", "60000"]).unwrap();
    let late = lacks(one, &["advice"]);
    assert!(late["left_out"]["advice"].as_str().unwrap().contains("not there within 150 ms"), "{late}");
    assert!(late["took_ms"].as_u64().unwrap() < PAGE_WITHIN_MS, "{late}");
    let shown = wait_for("the page for people says it", WELL_WITHIN, || {
        let reply = http::get(two, "/?who=ann").map_err(|e| e.to_string())?;
        let is_it = reply.header("petstore-left-out") == Some("advice");
        if is_it { Ok(reply.text()) } else { Err(format!("{reply:?}")) }
    });
    assert!(shown.0.contains("<h2>You may like</h2><p>left out: not there within 150 ms</p>"), "{}", shown.0);
    store.ask(&["DEL", "slow:advice"]).unwrap();
    // Of two that are asked one is enough.
    store.ask(&["SET", "slow:petstore-advice/0", "60000"]).unwrap();
    let other = lacks(one, &[]);
    assert_eq!(other["parts"]["advice"]["clone"], "petstore-advice/1");

    // A part whose clone is dead is back with it.
    let all = clones(&up.status(1).unwrap());
    let stock = all.iter().find(|clone| clone["name"] == "petstore-stock/0").unwrap();
    Proc::of(stock["pid"].as_u64().unwrap() as u32).unwrap().signal(Signal::KILL);
    assert_eq!(lacks(two, &[])["parts"]["stock"]["lines"][0], "rex: 9");
}
