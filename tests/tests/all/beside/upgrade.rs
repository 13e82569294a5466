//! `coppice upgrade`: all nodes become another program under load, and go back; what is none, or does not stay up, harms nobody.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::load::{Does, Load};
use e2e::{Up, program, tools, wait_for};
use serde_json::Value;

/// What a node's process runs.
fn runs(up: &Up, node: u8) -> PathBuf {
    fs::read_link(format!("/proc/{}/exe", up.node_pid(node))).unwrap()
}

fn script(path: &Path, text: &str) -> String {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn all_nodes_become_another_program_under_load_and_go_back() {
    let _turn = e2e::beside();
    let up = Up::shop();
    up.settle(Duration::from_secs(30), 1);
    let dir = std::env::temp_dir().join(format!("coppice-e2e-upgrade-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let installed = runs(&up, 1);

    // Nothing is restarted for what cannot be right.
    let boots = |up: &Up| {
        let nodes = up.status(1).unwrap()["nodes"].as_array().unwrap().clone();
        nodes.iter().map(|node| node["boot"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let before = boots(&up);
    for (text, why) in [
        ("echo hello", "does not say that it is coppice"),
        ("echo coppice 0.0.1; echo level 1", "the program has level 1: nodes would not start with it"),
        ("echo coppice 0.0.1", "know of no upgrades"),
    ] {
        let wrong = up.coppice(&["upgrade", &script(&dir.join("none"), text)]).wrong();
        assert!(wrong.contains("nothing is restarted") && wrong.contains(why), "{wrong}");
    }
    assert!(up.coppice(&["upgrade", "/no/such/file"]).wrong().contains("/no/such/file"));
    assert!(up.coppice(&["upgrade", "--undo"]).wrong().contains("no upgrade to go back from"));
    assert_eq!(boots(&up), before);

    to_be_a_node_is_not_enough(&up);
    assert_eq!(boots(&up), before);

    // Another file, though it does the same: what is behind an ELF file's end is nobody's.
    let newer = dir.join("newer");
    fs::copy(&installed, &newer).unwrap();
    fs::OpenOptions::new().append(true).open(&newer).unwrap().write_all(b"newer").unwrap();
    let newer = newer.display().to_string();
    let load = Load::start(&[up.at(1).http, up.at(2).http, up.at(3).http], Does::AddsAndLooks);
    let pids: Vec<u32> = (1..=3).map(|n| up.node_pid(n)).collect();
    let said = up.coppice(&["upgrade", &newer, "--json"]).good();
    let said: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<&str> = said.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, [vec!["kept"], ["restarting", "restarted", "runs"].repeat(3)].concat(), "{said:?}");
    let digest = said[0]["sha256"].as_str().unwrap().to_owned();
    for node in 1..=3 {
        assert!(runs(&up, node).ends_with(format!("programs/{digest}")), "{:?}", runs(&up, node));
    }
    assert_eq!((1..=3).map(|n| up.node_pid(n)).collect::<Vec<_>>(), pids, "each in its own place");
    assert!(up.coppice(&["upgrade", &newer]).good().contains("n1 runs it already"));

    load.go_on(100);
    load.end().no_failures("all nodes became another program");

    // One that runs, and then does not: the first node leaves it by itself, and no other is asked.
    let level = said[0]["level"].as_u64().unwrap();
    let text = format!("[ \"$1\" = --version ] && {{ echo coppice 9.9.9; echo level {level}; exit 0; }}; exit 9");
    let wrong = up.coppice(&["upgrade", &script(&dir.join("ends"), &text)]).wrong();
    assert!(wrong.contains("went back by itself") && wrong.contains("not asked: "), "{wrong}");
    wait_for("all nodes run", Duration::from_secs(60), || {
        let all = (1..=3).all(|node| up.node_pid_now(node).is_some() && runs(&up, node).ends_with(&digest));
        if all { Ok(()) } else { Err(up.coppice(&["status"]).out) }
    });

    wait_for("all go back", Duration::from_secs(90), || {
        let said = up.coppice(&["upgrade", "--undo"]);
        let back = (1..=3).all(|node| runs(&up, node) == installed);
        if said.is_good() && back { Ok(()) } else { Err(format!("{said:?}")) }
    });
    let _ = fs::remove_dir_all(&dir);
}

/// What has n3's certificate and not the operator's token neither reads, gives nor chooses n1's program.
fn to_be_a_node_is_not_enough(up: &Up) {
    let asks = |method: &str, path: &str, token: &[&str]| {
        let mut command = Command::new("python3");
        command.arg(program::repository().join("tests/programs/tunnel.py")).arg(up.dir.join("n3"));
        command.arg(up.at(1).peer.to_string()).args(["coppice:program", method, path]).args(token);
        let said = tools::run(&mut command, Duration::from_secs(20));
        if said.is_good() { said.out.trim().to_owned() } else { panic!("{said:?}") }
    };
    let digest = "0".repeat(64);
    for (method, path) in [("GET", "/"), ("PUT", &*format!("/{digest}")), ("POST", "/before")] {
        assert_eq!(asks(method, path, &[]), "401", "{method}");
        assert_eq!(asks(method, path, &["guessed"]), "401", "{method}");
    }
    assert_eq!(asks("GET", "/", &[&up.admin_token()]), "200");
    assert_eq!(asks("PUT", &format!("/{digest}"), &[&up.admin_token()]), "400", "its SHA-256 is another one");
}
