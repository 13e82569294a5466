//! Operations under load: nodes are restarted, join and leave, and no command of any client fails. Memory of bricks is
//! bounded and comes back. What a namespace promises is shown.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::at::{Ports, free_port, new_folder};
use e2e::load::{Does, Load};
use e2e::procs::{Proc, Signal};
use e2e::resp::{Resp, Word};
use e2e::sessions::Sessions;
use e2e::wait::poll;
use e2e::{Up, Yard, http, wait_for};
use serde_json::Value;

const CARTS: &str = "[namespace.carts]\nclass = \"session\"\n";

fn lines(json: &str) -> Vec<Value> {
    json.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_rolling_restart_fails_no_command_and_keeps_every_session() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("carts.toml", CARTS).good();
    let token = up.token("carts");
    let doors: Vec<_> = (1..=3).map(|n| up.at(n).resp).collect();
    let mut kept = Resp::open(doors[0], "carts", &token).unwrap();
    for i in 0..200 {
        assert_eq!(kept.ask(&["SET", &format!("kept-{i}"), "here"]), Ok(Word::Simple("OK".into())));
    }
    // One that only a cookie names, and that nobody asks for meanwhile.
    let bearer = format!("Bearer {token}");
    let mut cookie = String::new();
    wait_for("all three have one", Duration::from_secs(60), || {
        let headers = [("Authorization", bearer.as_str())];
        let made = http::request(up.at(1).api, "POST", "/v1/ns/carts/session", &headers, b"idle").unwrap();
        cookie = made.json().unwrap()["cookie"].as_str().unwrap().to_owned();
        let status = up.status(1).unwrap();
        let all = status["nodes"].as_array().unwrap().iter().all(|node| node["brick"]["entries"].as_u64() > Some(200));
        if all { Ok(()) } else { Err(status["nodes"].to_string()) }
    });
    let before: Vec<u32> = (1..=3).map(|n| up.node_pid(n)).collect();
    let load = Sessions::start(&doors, 2, "carts", &token);

    let said = lines(&up.coppice(&["node", "restart", "--rolling", "--json"]).good());
    let events: Vec<_> = said.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["restarting", "restarted"].repeat(3), "{said:#?}");
    let mut names: Vec<_> = said.iter().map(|line| line["name"].as_str().unwrap()).collect();
    names.dedup();
    names.sort_unstable();
    assert_eq!(names, ["n1", "n2", "n3"]);
    for line in said.iter().filter(|line| line["event"] == "restarted") {
        e2e::say(&format!("{} was back and settled after {} ms", line["name"], line["millis"]));
    }
    let after: Vec<u32> = (1..=3).map(|n| up.node_pid(n)).collect();
    assert_eq!(after, before, "each became the new program without ending");
    for line in up.status(1).unwrap()["nodes"].as_array().unwrap() {
        assert_eq!(line["boot"], 2, "{line}");
    }
    load.go_on(200);
    load.end().no_failures("all nodes restarted in turn");
    let headers = [("Authorization", bearer.as_str()), ("Coppice-Cookie", cookie.as_str())];
    let found = http::request(up.at(2).api, "GET", "/v1/ns/carts/session", &headers, b"").unwrap();
    assert_eq!((found.status, found.text().as_str()), (200, "idle"));
    // Its own connection was closed, in order, by the restart of n1.
    assert!(kept.ask(&["PING"]).is_err());
    let mut anew = Resp::open(doors[1], "carts", &token).unwrap();
    for i in 0..200 {
        assert_eq!(anew.ask(&["GET", &format!("kept-{i}")]), Ok(Word::Bulk("here".into())));
    }
}

#[test]
fn clones_of_a_restarted_node_are_moved_first_and_no_request_through_the_others_fails() {
    let _turn = e2e::beside();
    let up = Up::shop();
    up.settle(Duration::from_secs(30), 1);
    let load = Load::start(&[up.at(1).http, up.at(3).http], Does::AddsAndLooks);
    wait_for("n2 may restart", Duration::from_secs(30), || {
        let said = up.coppice(&["node", "restart", "n2"]);
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
    up.settle(Duration::from_secs(30), 0);
    load.go_on(40);
    load.end().no_failures("n2 restarted, with its clone");
}

#[test]
fn a_service_that_did_not_serve_before_holds_no_restart_up() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("broken.toml", "[service.broken]\nrun = [\"/no/such/program\"]\nclones = 2\nhttp = { path = \"/\" }\n")
        .good();
    let begun = Instant::now();
    wait_for("n2 restarts", Duration::from_secs(40), || {
        let said = up.coppice(&["node", "restart", "n2"]);
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
    assert!(begun.elapsed() < Duration::from_secs(60), "it took {:?}", begun.elapsed());
}

/// Each request comes by a connection of its own, to each node in turn, also to the one that restarts just then.
#[test]
fn who_connects_to_a_restarting_node_waits_a_moment_and_is_neither_refused_nor_cut_off() {
    let _turn = e2e::beside();
    let up = Up::shop();
    up.apply("carts.toml", CARTS).good();
    let token = up.token("carts");
    assert_eq!(up.coppice(&["ns", "token", "carts"]).good().trim(), token);
    let port = free_port(3);
    let echo = e2e::program::service_program("echo.py");
    let text = format!("[service.echo]\nrun = [\"python3\", {echo:?}]\nclones = 3\ntcp = {{ port = {port} }}\n");
    up.apply("echo.toml", &text).good();
    up.settle(Duration::from_secs(30), 2);
    let load = Load::start(&[up.at(1).http, up.at(2).http, up.at(3).http], Does::AddsAndLooks);
    let (over, doors) = (AtomicBool::new(false), [up.at(1).resp, up.at(2).resp, up.at(3).resp]);
    let greeted = std::thread::scope(|scope| {
        let greeter = scope.spawn(|| {
            // Not for ever, should the restarts fail.
            let until = Instant::now() + Duration::from_secs(150);
            let goes_on = |_: &&_| !over.load(Ordering::Relaxed) && Instant::now() < until;
            for door in doors.iter().cycle().take_while(goes_on) {
                let mut resp = Resp::open(*door, "carts", &token).unwrap();
                assert_eq!(resp.ask(&["SET", "k", "v"]).unwrap(), Word::Simple("OK".into()));
                let mut tcp = TcpStream::connect((door.ip(), port)).unwrap();
                tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                tcp.write_all(b"honey\n").unwrap();
                let mut said = [0; 6];
                tcp.read_exact(&mut said).unwrap();
                assert_eq!(&said, b"HONEY\n");
            }
        });
        for _ in 0..2 {
            wait_for("all may restart", Duration::from_secs(60), || {
                let said = up.coppice(&["node", "restart", "--rolling"]);
                if said.is_good() { Ok(()) } else { Err(said.err) }
            });
        }
        over.store(true, Ordering::Relaxed);
        greeter.join()
    });
    greeted.expect("each command of a new connection is answered");
    load.go_on(40);
    load.end().no_failures("six restarts, through the restarting nodes, too");
}

/// As a package manager does it: a new file in the place of the one that runs.
#[test]
fn a_restart_is_an_upgrade_to_the_program_that_lies_there_by_now_and_up_goes_on_with_that() {
    let _turn = e2e::beside();
    let dir = new_folder();
    fs::create_dir_all(&dir).unwrap();
    let (program, newer) = (dir.join("coppice"), dir.join("coppice.new"));
    fs::copy(e2e::program::coppice(), &program).unwrap();
    fs::copy(&program, &newer).unwrap();
    let mut up = Up::begin_of(&program, dir, Ports::free(3), 3, vec!["--no-demo".into()]);
    up.ready = up.event("ready", Duration::from_secs(60));
    let runs = |up: &Up, n| fs::metadata(format!("/proc/{}/exe", up.node_pid(n))).unwrap().ino();
    let (old, new) = (fs::metadata(&program).unwrap().ino(), fs::metadata(&newer).unwrap().ino());
    assert!((1..=3).all(|n| runs(&up, n) == old) && old != new);
    fs::rename(&newer, &program).unwrap();
    wait_for("all may restart", Duration::from_secs(60), || {
        let said = up.coppice(&["node", "restart", "--rolling"]);
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
    assert!((1..=3).all(|n| runs(&up, n) == new), "all run what lies there now");
    Proc::of(up.node_pid(2)).unwrap().signal(Signal::KILL);
    up.event("restarted", Duration::from_secs(20));
    up.settle(Duration::from_secs(30), 0);
    assert_eq!(runs(&up, 2), new);
}

#[test]
fn a_restart_is_refused_while_another_brick_is_needed() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    let wrong = up.coppice(&["node", "restart", "nobody"]).wrong();
    assert!(wrong.contains("nobody") && wrong.contains("n1, n2, n3"), "{wrong}");
    // A new cluster's bricks change places for a moment.
    let pid = up.node_pid(2);
    wait_for("n2 may restart", Duration::from_secs(20), || {
        let said = up.coppice(&["node", "restart", "n2"]);
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
    assert_eq!(up.node_pid(2), pid, "it became the new program in its own place");
    let hung = Proc::of(up.node_pid(3)).unwrap();
    hung.signal(Signal::STOP);
    let known = poll(Duration::from_secs(10), || {
        let view = up.status(1)?;
        if view["nodes"][2]["state"] == "dead" { Ok(()) } else { Err("n3 seems to live".into()) }
    });
    let said = up.coppice(&["node", "restart", "n2"]);
    hung.signal(Signal::CONT);
    known.unwrap();
    let wrong = said.wrong();
    assert!(wrong.contains("n3 is not live"), "{wrong}");
    up.settle(Duration::from_secs(30), 0);
    let wrong = up.coppice(&["node", "remove", "n2"]).wrong();
    assert!(wrong.contains("3 bricks are the fewest"), "{wrong}");
}

/// What a client of the restarted node itself sees: answers to all that it sent, then the end of the connection.
#[test]
fn a_client_of_the_restarted_node_gets_its_answers_and_then_an_orderly_end() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("carts.toml", CARTS).good();
    let token = up.token("carts");
    let mut idle = Resp::open(up.at(2).resp, "carts", &token).unwrap();
    idle.ask(&["SET", "k", "v"]).unwrap();
    let reader = std::thread::spawn(move || idle.ended());
    wait_for("n2 may restart", Duration::from_secs(20), || {
        let said = up.coppice(&["node", "restart", "n2"]);
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
    assert_eq!(reader.join().unwrap(), Ok(()), "closed in order, not reset");
}

#[test]
fn a_fourth_node_joins_under_load_carries_its_share_and_leaves_again() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(3);
    yard.apply(1, "carts.toml", CARTS).good();
    let token = yard.namespace_token("carts");
    let doors: Vec<_> = (1..=3).map(|n| yard.at(n).resp).collect();
    let load = Sessions::start(&doors, 3, "carts", &token);
    let join = yard.token("10m");
    yard.join(4, &join).good();
    yard.run(4);
    let begun = Instant::now();
    let fourth = Sessions::start(&[yard.at(4).resp], 3, "carts", &token);
    let share = wait_for("the new brick has an equal share", Duration::from_secs(10), || {
        let before = operations(&yard)?;
        std::thread::sleep(Duration::from_secs(2));
        let after = operations(&yard)?;
        let done: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
        let mean = done.iter().sum::<u64>() / 4;
        let even = done.len() == 4 && mean > 100 && done.iter().all(|n| n.abs_diff(mean) * 4 <= mean);
        if even { Ok(done) } else { Err(format!("{done:?}")) }
    });
    e2e::say(&format!("operations of each brick in 2 s: {:?}, {:?} after the join", share.0, begun.elapsed()));
    load.go_on(200);
    fourth.end().no_failures("through the new node");

    let said = lines(&yard.coppice(1, &["node", "remove", "n4", "--json"]).good());
    assert_eq!(
        (&said[0]["event"], &said[said.len() - 1]["event"]),
        (&"removing".into(), &"removed".into()),
        "{said:?}"
    );
    assert_eq!(yard.ended(4), Some(76));
    load.go_on(200);
    load.end().no_failures("a fourth node joined and left");
    wait_for("three settled bricks are left", Duration::from_secs(10), || {
        let view = yard.status(1)?;
        let settled = view["nodes"].as_array().unwrap().iter().filter(|n| n["brick"]["settled"] == true).count();
        if settled == 3 { Ok(()) } else { Err(view["nodes"].to_string()) }
    });
}

fn operations(yard: &Yard) -> Result<Vec<u64>, String> {
    let view = yard.status(1)?;
    let nodes = view["nodes"].as_array().ok_or("no nodes")?;
    Ok(nodes.iter().filter_map(|n| n["brick"]["operations"].as_u64()).collect())
}

#[test]
fn a_full_brick_refuses_new_sessions_serves_old_ones_and_gives_memory_back() {
    let _turn = e2e::beside();
    let up = Up::start(3, &["--no-demo", "--brick-memory", "64MiB"]);
    up.apply("carts.toml", CARTS).good();
    let mut client = Resp::open(up.at(1).resp, "carts", &up.token("carts")).unwrap();
    let node = |n: usize| -> Result<(u64, u64, u64), String> {
        let view = up.status(1)?;
        let of = |v: &Value| v.as_u64().unwrap_or_default();
        let n = &view["nodes"][n];
        Ok((of(&n["brick"]["bytes"]), of(&n["brick"]["bytes_max"]), of(&n["resident_bytes"])))
    };
    let ((_, max, empty), _) = wait_for("the vitals of n1", Duration::from_secs(10), || match node(0)? {
        (.., 0) => Err("none yet".into()),
        said => Ok(said),
    });
    assert_eq!(max, 64 << 20);
    let value = "v".repeat(8192);
    let begun = Instant::now();
    let (stored, why) = (0..20_000)
        .find_map(|i| match client.ask(&["SET", &format!("k{i}"), &value, "EX", "40"]).unwrap() {
            Word::Simple(_) => None,
            other => Some((i, other)),
        })
        .expect("a brick is full some time");
    e2e::say(&format!("full after {stored} values of 8 KiB, {:?}", begun.elapsed()));
    // Where one of three bricks had room, as it was late with others, the outcome of a write is unknown; some time none has.
    let refused = (0..8_000)
        .map(|i| client.ask(&["SET", &format!("more{i}"), &value, "EX", "20"]).unwrap())
        .find(|word| matches!(word, Word::Error(text) if text.starts_with("OOM ") && text.contains("--brick-memory")));
    assert!(refused.is_some(), "first {why:?}");
    assert_eq!(client.ask(&["GET", "k7"]), Ok(Word::Bulk(value.clone())));
    assert_eq!(client.ask(&["SET", "k7", &value, "EX", "40"]), Ok(Word::Simple("OK".into())));
    let metrics = http::get(up.at(1).api, "/metrics").unwrap().text();
    assert!(metrics.contains(&format!("coppice_session_bytes_max {}", 64 << 20)), "{metrics}");
    for name in ["window", "in_flight", "timeouts_total", "no_room_total", "turned_away_total"] {
        assert!(metrics.contains(&format!("coppice_stub_{name}{{brick=\"n2\"}}")), "{name}: {metrics}");
    }
    // Two had to refuse, so one of the others at least; whichever was the first to say so.
    wait_for("who asked shows that another had no memory", Duration::from_secs(5), || {
        let metrics = http::get(up.at(1).api, "/metrics").map_err(|e| e.to_string())?.text();
        let said: Vec<&str> = metrics.lines().filter(|line| line.starts_with("coppice_stub_full_total{")).collect();
        if said.len() == 2 && said.iter().any(|line| !line.ends_with(" 0")) { Ok(()) } else { Err(said.join(", ")) }
    });
    let full: Vec<u64> = wait_for("resident memory is reported", Duration::from_secs(5), || {
        let full: Vec<u64> = (0..3).map(|n| node(n).map(|of| of.2)).collect::<Result<_, _>>()?;
        if full.iter().all(|n| *n > empty + (40 << 20)) { Ok(full) } else { Err(format!("{full:?}")) }
    })
    .0;
    wait_for("leases end and memory comes back", Duration::from_secs(100), || {
        for (n, full) in full.iter().enumerate() {
            let (bytes, _, resident) = node(n)?;
            let grown = full.saturating_sub(empty);
            if bytes > 1 << 20 || resident > empty + grown / 3 {
                return Err(format!("n{}: {bytes} bytes stored, {resident} resident of {full}, {empty} empty", n + 1));
            }
        }
        Ok(())
    });
    let left: Vec<u64> = (0..3).map(|n| node(n).unwrap().2 >> 20).collect();
    let full: Vec<u64> = full.iter().map(|n| n >> 20).collect();
    e2e::say(&format!("resident MiB: {} empty, {full:?} full, {left:?} after the leases", empty >> 20));
    assert_eq!(client.ask(&["SET", "again", &value]), Ok(Word::Simple("OK".into())));
}

#[test]
fn a_namespace_shows_its_promise_and_the_odds_with_what_was_seen() {
    let _turn = e2e::beside();
    let mut up = Up::bare(3);
    let wrong = up.apply("carts.toml", &format!("{CARTS}timeout = \"2ms\"\n")).wrong();
    assert!(wrong.contains("carts.toml:3: namespace.carts.timeout: 2ms is not between 5ms and 5s"), "{wrong}");
    up.apply("carts.toml", &format!("{CARTS}lease = \"20m\"\ntimeout = \"90ms\"\n")).good();
    let shown = up.coppice(&["ns", "show", "carts"]).good();
    for part in ["session", "20m", "90ms", "power cut", "0 in", "too few", "the lease is taken", "SSM 3.7"] {
        assert!(shown.contains(part), "{part:?} is missing in:\n{shown}");
    }
    // Three deaths, and forty intervals of two keys.
    for node in [2, 3, 2] {
        Proc::of(up.node_pid(node)).unwrap().signal(Signal::KILL);
        up.event("restarted", Duration::from_secs(20));
        up.settle(Duration::from_secs(30), 0);
    }
    let mut client = Resp::open(up.at(1).resp, "carts", &up.token("carts")).unwrap();
    for i in 0..42 {
        client.ask(&["SET", if i % 2 == 0 { "a" } else { "b" }, "v"]).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    let odds = wait_for("the odds have what was seen", Duration::from_secs(10), || {
        let json: Value = serde_json::from_str(&up.coppice(&["ns", "show", "carts", "--json"]).good()).unwrap();
        let odds = json["odds"].clone();
        let enough = odds["deaths"].as_u64() >= Some(3) && odds["intervals"].as_u64() >= Some(40);
        if enough { Ok(odds) } else { Err(odds.to_string()) }
    })
    .0;
    let number = |name: &str| odds[name].as_f64().unwrap();
    assert_eq!(
        (odds["mttf_is_guess"].as_bool(), odds["write_interval_is_guess"].as_bool()),
        (Some(false), Some(false))
    );
    assert!((0.015..0.5).contains(&number("write_interval_s")), "{odds}");
    assert!((number("brick_hours") / number("deaths") / number("mttf_hours") - 1.0).abs() < 1e-6, "{odds}");
    let rho = number("mttf_hours") * 3600.0 / number("write_interval_s");
    assert!((number("p_loss") * (1.0 + rho) * (2.0 + rho) / 2.0 - 1.0).abs() < 1e-3, "{odds}");
    let list = up.coppice(&["ns", "list"]).good();
    assert!(list.contains("carts") && list.contains("90ms"), "{list}");
    let wrong = up.coppice(&["ns", "show", "cart"]).wrong();
    assert!(wrong.contains("there are: carts"), "{wrong}");
}
