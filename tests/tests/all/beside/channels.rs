//! Channels over three nodes with redis-py: subscribed at one, published at another, and one of them is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::procs::{Proc, Signal};
use e2e::tools::{has, run};
use e2e::{Up, skip};

const WITHIN: Duration = Duration::from_secs(20);

#[test]
fn what_is_published_at_one_node_comes_to_who_listens_at_another() {
    let _turn = e2e::beside();
    if !has("python3") || !run(Command::new("python3").args(["-c", "import redis"]), WITHIN).is_good() {
        return skip("redis-py is not installed (python3 -m pip install redis)");
    }
    let up = Up::start(3, &["--no-demo"]);
    up.apply("rooms.toml", "[namespace.rooms]\nclass = \"session\"\n").good();
    let urls: Vec<String> = (1..=3).map(|n| format!("redis://rooms:{}@{}", up.token("rooms"), up.at(n).resp)).collect();
    let mut python = Command::new("python3")
        .arg(e2e::program::service_program("channels.py"))
        .args(&urls)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(python.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    if line == "kill\n" {
        Proc::of(up.node_pid(3)).unwrap().signal(Signal::KILL);
        python.stdin.take().unwrap().write_all(b"done\n").unwrap();
        said.read_to_string(&mut line).unwrap();
    }
    assert!(python.wait().unwrap().success() && line.contains("as they should be"), "{line}");
}
