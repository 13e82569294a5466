//! A brick that becomes slower than its peers, with the program as it ships (SSM figure 13): its process is stopped for some
//! milliseconds again and again. The nodes that ask it find it, it starts anew, and no command of any client fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::procs::{Proc, Signal};
use e2e::resp::{Resp, Word};
use e2e::{Up, wait_for};

/// Six, as in the paper.
const NODES: u8 = 6;
/// Long enough for the others to know what is usual for it: 30 looks, of which few may have nothing to compare.
const BEFORE: Duration = Duration::from_secs(45);

#[test]
fn a_brick_that_becomes_slow_starts_anew_and_says_why_and_no_command_fails() {
    let _turn = e2e::alone();
    let up = Up::bare(NODES);
    up.apply("carts.toml", "[namespace.carts]\nclass = \"session\"\n").good();
    let token = up.token("carts");
    for node in 1..=NODES {
        wait_for("its door is open", Duration::from_secs(10), || {
            Resp::open(up.at(node).resp, "carts", &token).map(drop)
        });
    }
    let stop = Arc::new(AtomicBool::new(false));
    let users: Vec<_> = (1..=4)
        .map(|node| {
            let (at, token, stop) = (up.at(node).resp, token.clone(), Arc::clone(&stop));
            std::thread::spawn(move || user(node, Resp::open(at, "carts", &token).unwrap(), &stop))
        })
        .collect();
    let begun = Instant::now();
    let why = || -> Option<String> {
        let view = up.status(NODES).ok()?;
        let events = view["events"].as_array()?;
        let texts = events.iter().filter_map(|event| event["text"].as_str());
        texts.into_iter().find(|text| text.contains("differs from all others")).map(str::to_owned)
    };
    while begun.elapsed() < BEFORE {
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(why(), None, "before it is slow");
    }
    let slow = Proc::of(up.node_pid(NODES)).unwrap();
    let (since, mut looked) = (Instant::now(), Instant::now());
    let mut said = None;
    while said.is_none() && since.elapsed() < Duration::from_secs(60) {
        slow.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(8));
        slow.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(2));
        if looked.elapsed() > Duration::from_secs(1) {
            (said, looked) = (why(), Instant::now());
        }
    }
    let took = since.elapsed();
    e2e::say(&format!("after {took:?}: {said:?}"));
    assert!(said.is_some_and(|said| said.contains("this brick starts anew")));
    wait_for("it is filled again", Duration::from_secs(30), || {
        let view = up.status(1)?;
        let node = &view["nodes"][usize::from(NODES) - 1];
        if node["brick"]["settled"] == true { Ok(()) } else { Err(node.to_string()) }
    });
    stop.store(true, Ordering::Relaxed);
    let commands: u64 = users.into_iter().map(|user| user.join().unwrap()).sum();
    assert!(commands > 10_000, "{commands}");
}

/// Writes and reads sessions of its own, one after the other, in moderate haste; how many commands that were.
fn user(node: u8, mut door: Resp, stop: &AtomicBool) -> u64 {
    let mut commands = 0;
    while !stop.load(Ordering::Relaxed) {
        let (key, value) = (format!("u{node}-{}", commands % 300), format!("{commands}"));
        assert_eq!(door.ask(&["SET", &key, &value]), Ok(Word::Simple("OK".into())), "at n{node}");
        assert_eq!(door.ask(&["GET", &key]), Ok(Word::Bulk(value)), "at n{node}");
        commands += 2;
        std::thread::sleep(Duration::from_millis(8));
    }
    commands
}
