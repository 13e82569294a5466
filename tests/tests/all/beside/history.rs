//! Histories of a real cluster under faults, judged by porcupine: a checker of linearizability that is not ours.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::history::{History, can_judge};
use e2e::procs::{Signal, kill};
use e2e::resp::{Resp, Word};
use e2e::{Up, Yard, http, net, skip, tools, wait_for};

const FILE: &str = "[namespace.bank]\nclass = \"linear\"\n";
/// Keys lie in three groups, led by different nodes.
const WIDE: &str = "[namespace.bank]\nclass = \"linear\"\nshards = 3\n";
/// As long as one node at a time is killed, nothing else may happen.
const MEMORY: &str = "[namespace.bank]\nclass = \"linear\"\ndurability = \"memory\"\n";

fn open(up: &Up, file: &str) -> String {
    up.apply("bank.toml", file).good();
    let token = up.token("bank");
    opened(up.at(1).resp, &token);
    token
}

fn opened(door: SocketAddr, token: &str) {
    wait_for("the bank is open", Duration::from_secs(30), || {
        match Resp::open(door, "bank", token)?.ask(&["DBSIZE"])? {
            Word::Int(_) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

#[test]
fn histories_under_kills_and_stops_are_linearizable() {
    let _turn = e2e::beside();
    if !can_judge() {
        return;
    }
    let up = Up::bare(3);
    let token = open(&up, WIDE);
    let doors: Vec<_> = (1..=3).map(|n| up.at(n).resp).collect();
    let history = History::start(&doors, "bank", &token);
    for round in 0u8..6 {
        std::thread::sleep(Duration::from_millis(700));
        let node = round % 3 + 1;
        let Some(pid) = up.node_pid_now(node) else { continue };
        if round % 2 == 0 {
            kill(pid, Signal::KILL);
        } else {
            // Long enough to be taken for dead; then it goes on with what it believed.
            kill(pid, Signal::STOP);
            std::thread::sleep(Duration::from_millis(3_500));
            kill(pid, Signal::CONT);
        }
        let api = up.at(node).api;
        wait_for("the node is back", Duration::from_secs(30), || match http::get(api, "/readyz") {
            Ok(reply) if reply.status == 200 => Ok(()),
            Ok(reply) => Err(reply.text()),
            Err(e) => Err(e.to_string()),
        });
    }
    history.judge(&up.dir);
}

#[test]
fn histories_under_slow_and_failing_forces_are_linearizable() {
    let _turn = e2e::beside();
    if !can_judge() {
        return;
    }
    if !tools::has("strace") {
        return skip("strace is not installed");
    }
    let up = Up::bare(3);
    let token = open(&up, FILE);
    let doors: Vec<_> = (1..=3).map(|n| up.at(n).resp).collect();
    let history = History::start(&doors, "bank", &token);
    for round in 0u8..6 {
        std::thread::sleep(Duration::from_millis(500));
        let node = round % 3 + 1;
        let Some(pid) = up.node_pid_now(node) else { continue };
        // Half a second for each force; or none succeeds, which ends the node.
        let fault = if round % 2 == 0 { "delay_enter=500000" } else { "error=EIO" };
        let mut strace = Command::new("strace")
            .args([
                "-f",
                "-q",
                "-e",
                "trace=fdatasync",
                "-e",
                &format!("inject=fdatasync:{fault}"),
                "-o",
                "/dev/null",
                "-p",
            ])
            .arg(pid.to_string())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_secs(4));
        if round % 2 == 1 {
            wait_for("the node has ended", Duration::from_secs(30), || {
                if up.node_pid_now(node) == Some(pid) { Err("it runs".into()) } else { Ok(()) }
            });
        }
        // It lets go of the node when it is told to end, not when it is killed.
        kill(strace.id(), Signal::TERM);
        let _ = strace.wait();
        up.settle(Duration::from_secs(60), 0);
    }
    history.judge(&up.dir);
}

#[test]
fn histories_under_cuts_and_losses_of_the_network_are_linearizable() {
    let _turn = e2e::beside();
    if !can_judge() {
        return;
    }
    match net::enter(module_path!(), "histories_under_cuts_and_losses_of_the_network_are_linearizable") {
        Ok(true) => (),
        Ok(false) => return,
        Err(why) => return skip(&why),
    }
    let mut yard = Yard::apart(3);
    yard.apply(1, "bank.toml", MEMORY).good();
    let token = yard.namespace_token("bank");
    opened(yard.at(2).resp, &token);
    wait_for(
        "the group has three members",
        Duration::from_secs(30),
        || match yard.status(1)?["namespaces"][0]["shards"][0]["members"].as_array().map(Vec::len) {
            Some(3) => Ok(()),
            other => Err(format!("{other:?}: {}", yard.status(1)?["namespaces"])),
        },
    );
    let doors: Vec<_> = (1..=3).map(|n| yard.at(n).resp).collect();
    let history = History::start(&doors, "bank", &token);
    // So long that the others take who is cut off for dead, and go on without it.
    let cut = Duration::from_secs(4);
    let others = |node: u8| (1..=3).filter(|n| *n != node).collect::<Vec<_>>();
    for round in 0u8..5 {
        let net = yard.net.as_ref().unwrap();
        let node = round % 3 + 1;
        match round % 5 {
            // Cut off, both ways.
            0 => {
                net.deafen(node, &others(node));
                others(node).into_iter().for_each(|other| net.deafen(other, &[node]));
            }
            // It hears nobody, and everybody hears it.
            1 => net.deafen(node, &others(node)),
            // Nobody hears it.
            2 => others(node).into_iter().for_each(|other| net.deafen(other, &[node])),
            // No two hear each other by one of their links only.
            3 => {
                net.deafen(1, &[2]);
                net.deafen(2, &[1]);
            }
            // A third of all is lost, and one is killed meanwhile.
            _ => (1..=3).for_each(|node| net.lose(node, 30)),
        }
        if round % 5 == 4 {
            yard.kill(node);
            std::thread::sleep(cut);
            (1..=3).for_each(|node| yard.net.as_ref().unwrap().mend(node));
            yard.run(node);
        } else {
            std::thread::sleep(cut);
            (1..=3).for_each(|node| net.mend(node));
        }
        std::thread::sleep(Duration::from_millis(1_500));
    }
    history.judge(&yard.dir);
}
