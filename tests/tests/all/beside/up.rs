//! `coppice up`: one command gives a cluster that works, says so to scripts, and leaves nothing behind, however it ends.

use std::net::TcpListener;
use std::time::Duration;

use e2e::at::{Ports, host, new_folder};
use e2e::http::Shopper;
use e2e::procs::{self, Proc, Signal};
use e2e::resp::{Resp, Word};
use e2e::up::none_alive;
use e2e::{Shared, Up, wait_for};

static SHOP: Shared = Shared::beside(Up::shop);

const PROMISED_READY: Duration = Duration::from_secs(3);

#[test]
fn three_nodes_are_ready_within_three_seconds_and_say_so_with_every_documented_field() {
    let up = SHOP.take();
    let ready = &up.ready;
    assert_eq!(ready["demo"], true, "{ready}");
    assert!(ready["millis"].as_u64().is_some_and(|ms| ms > 0), "{ready}");
    let nodes = ready["nodes"].as_array().expect("a list of nodes");
    assert_eq!(nodes.len(), 3, "{ready}");
    for (node, shown) in (1..=3).zip(nodes) {
        let at = up.at(node);
        assert_eq!(shown["name"], at.name.as_str());
        assert_eq!(shown["pid"], up.node_pid(node), "{ready}");
        for (door, addr) in [("http", at.http), ("resp", at.resp), ("api", at.api), ("peer", at.peer)] {
            assert_eq!(shown[door], addr.to_string(), "{ready}");
        }
    }
    let url = format!("redis://carts:{}@{}", up.token("carts"), up.at(1).resp);
    assert_eq!(ready["namespaces"]["carts"], url.as_str(), "{ready}");
    e2e::say(&format!(
        "ready after {} ms by its own word, {} ms from outside ({})",
        ready["millis"],
        up.took.as_millis(),
        e2e::program::profile()
    ));
    if e2e::is_release() {
        assert!(up.took < PROMISED_READY, "ready took {:?}", up.took);
    }
}

#[test]
fn the_shop_works_through_the_address_of_every_node() {
    let up = SHOP.take();
    let mut me = Shopper::new("everywhere");
    for node in 1..=3 {
        me.add(up.at(node).http, "honey").unwrap();
        for other in 1..=3 {
            me.check(up.at(other).http).unwrap();
        }
    }
}

#[test]
fn sigterm_and_sigint_end_it_with_status_0_and_take_everything_along() {
    let _turn = e2e::beside();
    for signal in [Signal::TERM, Signal::INT] {
        let mut up = Up::shop();
        let all = everything_of(&up);
        procs::kill(up.pid(), signal);
        let status = up.ended(Duration::from_secs(5));
        assert_eq!(status.code(), Some(0), "{signal:?}: {status}");
        let (_, took) = wait_for("nothing is left running", Duration::from_secs(2), || none_alive(&all));
        e2e::say(&format!(
            "{signal:?}: the last of {} processes was gone {} ms after the end of `up`",
            all.len(),
            took.as_millis()
        ));
        assert_eq!(procs::marked(&up.dir.display().to_string()), [], "started while it ended");
    }
}

#[test]
fn sigkill_of_up_leaves_nothing_running_after_two_seconds() {
    let _turn = e2e::beside();
    let mut up = Up::shop();
    let all = everything_of(&up);
    procs::kill(up.pid(), Signal::KILL);
    up.ended(Duration::from_secs(1));
    let mark = up.dir.display().to_string();
    let (_, took) = wait_for("nothing is left running", Duration::from_secs(2), || {
        none_alive(&all)?;
        none_alive(&procs::marked(&mark))
    });
    e2e::say(&format!("{} processes were gone {} ms after SIGKILL of `up`", all.len(), took.as_millis()));
}

/// All processes of a cluster with the shop, among them what must be there.
fn everything_of(up: &Up) -> Vec<Proc> {
    let all = up.everything();
    let count = |what: &str| all.iter().filter(|p| p.command.contains(what)).count();
    assert!(
        count(" run --dir ") >= 3 && count("cart.py") >= 3 && count(" reap") >= 3,
        "nodes, clones and reapers: {all:?}"
    );
    all
}

#[test]
fn a_taken_port_is_named_with_its_holder_and_the_option_that_changes_it() {
    let _turn = e2e::beside();
    let ports = Ports::free(3);
    for (port, option) in [
        (ports.http, "--http-port"),
        (ports.resp, "--resp-port"),
        (ports.api, "--api-port"),
        (ports.peer, "--peer-port"),
    ] {
        let held = TcpListener::bind((host(2), port)).unwrap();
        let mut up = Up::begin_in(new_folder(), ports, 3, Vec::new());
        let error = up.event("error", Duration::from_secs(10));
        let text = error["text"].as_str().unwrap().to_owned();
        for word in
            [port.to_string(), option.to_owned(), "127.0.0.2".into(), format!("(process {})", std::process::id())]
        {
            assert!(text.contains(&word), "{word:?} is not in {text:?}");
        }
        assert_eq!(up.ended(Duration::from_secs(5)).code(), Some(1));
        assert!(up.errors().contains(option), "people are told too");
        drop(held);
    }
}

#[test]
fn a_second_up_in_the_same_folder_is_refused_and_does_the_first_no_harm() {
    let up = SHOP.take();
    let mut me = Shopper::new("first");
    me.add(up.at(1).http, "bread").unwrap();
    let before: Vec<u32> = (1..=3).map(|n| up.node_pid(n)).collect();
    let mut second = Up::begin_in(up.dir.clone(), Ports::free(3), 3, Vec::new());
    let error = second.event("error", Duration::from_secs(40));
    let text = error["text"].as_str().unwrap();
    assert!(text.contains("in use") && text.contains(&up.dir.display().to_string()), "{text}");
    assert_eq!(second.ended(Duration::from_secs(5)).code(), Some(1));
    second.forget_folder();
    assert_eq!((1..=3).map(|n| up.node_pid(n)).collect::<Vec<_>>(), before, "the first one's nodes go on");
    me.check(up.at(2).http).unwrap();
}

#[test]
fn one_node_without_the_demo_is_a_cluster_too() {
    let _turn = e2e::beside();
    let up = Up::bare(1);
    assert_eq!(
        (up.ready["demo"].as_bool(), up.ready["nodes"].as_array().map(Vec::len)),
        (Some(false), Some(1)),
        "{}",
        up.ready
    );
    assert!(up.ready["namespaces"].as_object().is_some_and(|n| n.is_empty()), "{}", up.ready);
    let view = up.status(1).unwrap();
    assert_eq!(view["services"].as_array().map(Vec::len), Some(0), "{view}");
    up.apply("one.toml", "[namespace.alone]\nclass = \"session\"\n").good();
    let mut resp = Resp::open(up.at(1).resp, "alone", &up.token("alone")).unwrap();
    assert_eq!(resp.ask(&["SET", "k", "v"]).unwrap(), Word::Simple("OK".into()));
    assert_eq!(resp.ask(&["GET", "k"]).unwrap(), Word::Bulk("v".into()));
}

#[test]
fn a_wrong_command_line_ends_with_status_2_and_names_the_option() {
    for args in [
        vec!["up", "--nodes", "0"],
        vec!["up", "--nodes", "99"],
        vec!["up", "--http-port", "x"],
        vec!["up", "--nonsense"],
        vec!["token", "--ttl", "5"],
    ] {
        let said =
            e2e::tools::run(std::process::Command::new(e2e::program::coppice()).args(&args), Duration::from_secs(10));
        assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
        assert!(said.err.contains(args[1]), "{args:?}: {said:?}");
    }
}
