//! Clones as operators meet them: what they are given, what is shown when they cannot start, when they are started again
//! and where, that they never outlive their node, and which requests are tried twice.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use e2e::procs::{self, Proc, Signal};
use e2e::up::{clones, none_alive};
use e2e::{Shared, Up, Yard, http, wait_for};
use serde_json::Value;

static BARE: Shared = Shared::beside(|| Up::bare(3));

#[test]
fn a_clone_that_cannot_start_shows_its_last_output_and_exit_status() {
    let up = BARE.take();
    let text = r#"
[service.honeyless]
run = ["sh", "-c", "echo looking; echo there is no honey >&2; exit 7"]
clones = 1
[service.missing]
run = ["/no/such/program"]
clones = 1
[service.deaf]
run = ["sleep", "1000"]
clones = 1
http = { host = "deaf.example" }
start_timeout = "1s"
"#;
    up.apply("bad.toml", text).good();
    let expect = [
        ("honeyless/0", "exit status 7", Some("there is no honey")),
        ("missing/0", "could not be started", None),
        ("deaf/0", "was not well within 1s", None),
    ];
    for (clone, exit, output) in expect {
        wait_for(&format!("{clone} shows {exit:?}"), Duration::from_secs(15), || {
            let shown = clones(&up.status(2)?).into_iter().find(|c| c["name"] == clone).ok_or("no such clone")?;
            let has_exit = shown["last_exit"].as_str().is_some_and(|e| e.contains(exit));
            let lines = shown["last_output"].as_array().cloned().unwrap_or_default();
            let has_output = output.is_none_or(|o| lines.iter().any(|l| l.as_str().is_some_and(|l| l.contains(o))));
            let tried = shown["restarts"].as_u64() >= Some(1);
            if has_exit && has_output && tried { Ok(()) } else { Err(shown.to_string()) }
        });
    }
    wait_for("people see it too", Duration::from_secs(10), || {
        let page = up.coppice(&["status"]).good();
        let all = ["exit status 7", "there is no honey", "could not be started", "backoff"];
        if all.iter().all(|word| page.contains(word)) { Ok(()) } else { Err(page) }
    });
    up.apply("bad.toml", "").good();
}

#[test]
fn a_clone_that_dies_is_started_again_after_longer_and_longer_waits() {
    let up = BARE.take();
    let lives = up.dir.join("lives");
    let run = format!("date +%s%N >> {}; exit 3", lives.display());
    up.apply(
        "dies.toml",
        &format!("[service.mayfly]\nrun = [\"sh\", \"-c\", {run:?}]\nclones = 1\nsandbox = \"none\"\n"),
    )
    .good();
    let (times, _) = wait_for("six lives", Duration::from_secs(30), || {
        let text = fs::read_to_string(&lives).unwrap_or_default();
        let times: Vec<u64> = text.lines().filter_map(|l| l.parse().ok()).collect();
        if times.len() >= 6 { Ok(times) } else { Err(text) }
    });
    let waits: Vec<u64> = times.windows(2).map(|w| (w[1] - w[0]) / 1_000_000).collect();
    e2e::say(&format!("waits between lives: {waits:?} ms"));
    // Between half and all of 100, 200, 400, 800, 1600 ms, and the time a shell takes.
    assert!(waits[0] >= 50 && waits[3] >= 400 && waits[4] >= 800 && waits[4] > 2 * waits[1], "{waits:?}");
    up.apply("dies.toml", "").good();
}

#[test]
fn a_clone_gets_its_port_its_names_its_namespaces_and_what_is_declared() {
    let up = BARE.take();
    let seen = up.dir.join("environment");
    let run = format!("env > {0}.new; mv {0}.new {0}; exec sleep 1000", seen.display());
    let text = format!(
        "[namespace.my-boxes]\nclass = \"session\"\n[service.teller]\nrun = [\"sh\", \"-c\", {run:?}]\nclones = 1\n\
         namespaces = [\"my-boxes\"]\nenv = {{ FLAVOUR = \"mint\" }}\nsandbox = \"none\"\n"
    );
    up.apply("env.toml", &text).good();
    let (text, _) =
        wait_for("it has told", Duration::from_secs(15), || fs::read_to_string(&seen).map_err(|e| e.to_string()));
    let get = |name: &str| {
        text.lines()
            .find_map(|l| l.strip_prefix(&format!("{name}=")))
            .unwrap_or_else(|| panic!("no {name} in:\n{text}"))
    };
    let node = get("COPPICE_NODE");
    let number: u8 = node.strip_prefix('n').unwrap().parse().unwrap();
    assert!((1..=3).contains(&number), "{node}");
    assert_eq!(get("HOST"), format!("127.0.0.{number}"));
    assert!(get("PORT").parse::<u16>().unwrap() > 1023);
    assert_eq!((get("COPPICE_SERVICE"), get("COPPICE_CLONE"), get("FLAVOUR")), ("teller", "teller/0", "mint"));
    let url = format!("redis://my-boxes:{}@{}", up.token("my-boxes"), up.at(number).resp);
    assert_eq!(get("COPPICE_MY_BOXES_URL"), url, "it talks to its own node");
    let admin = fs::read_to_string(up.dir.join("n1/admin.token")).unwrap();
    assert!(!text.contains(admin.trim()), "the operator's token is not for clones");
    up.apply("env.toml", "").good();
}

#[test]
fn clones_and_what_they_started_never_outlive_their_node() {
    let mut up = BARE.take();
    let run = "sleep 4321 & exec python3 -m http.server --bind $HOST $PORT";
    let text = format!(
        "[service.parent]\nrun = [\"sh\", \"-c\", {run:?}]\nclones = 6\nhttp = {{ host = \"parent.example\" }}\n"
    );
    up.apply("parent.toml", &text).good();
    up.settle(Duration::from_secs(40), 1);
    let node = up.node_pid(2);
    let family = procs::family(node);
    let count = |what: &str| family.iter().filter(|p| p.command.contains(what)).count();
    assert!(count("http.server") >= 1 && count("sleep 4321") >= 1, "{family:?}");
    Proc::of(node).unwrap().signal(Signal::KILL);
    let (_, took) = wait_for("the node's whole family is dead", Duration::from_secs(2), || none_alive(&family));
    e2e::say(&format!("{} processes were gone {} ms after their node was killed", family.len(), took.as_millis()));
    up.event("restarted", Duration::from_secs(10));
    up.settle(Duration::from_secs(40), 1);
    up.apply("parent.toml", "").good();
    wait_for("a service that is no longer declared leaves nothing", Duration::from_secs(15), || {
        let left: Vec<Proc> = up
            .everything()
            .into_iter()
            .filter(|p| p.command.contains("4321") || p.command.contains("http.server"))
            .collect();
        none_alive(&left)
    });
}

#[test]
fn if_all_clones_of_a_service_hang_one_is_restarted_and_the_rest_may_come_back_by_themselves() {
    let up = BARE.take();
    let run = "exec python3 -m http.server --bind $HOST $PORT";
    let text = format!(
        "[service.frail]\nrun = [\"sh\", \"-c\", {run:?}]\nclones = 4\nhttp = {{ host = \"frail.example\" }}\nhealth = \"/\"\n"
    );
    up.apply("frail.toml", &text).good();
    up.settle(Duration::from_secs(40), 1);
    let frail = || -> Vec<Value> {
        let all = up.status(1).map(|view| clones(&view)).unwrap_or_default();
        all.into_iter().filter(|clone| clone["name"].as_str().is_some_and(|name| name.starts_with("frail/"))).collect()
    };
    let restarts = || frail().iter().filter_map(|clone| clone["restarts"].as_u64()).sum::<u64>();
    let pids: Vec<u32> = frail().iter().filter_map(|clone| clone["pid"].as_u64()?.try_into().ok()).collect();
    let all: Vec<Proc> = pids.into_iter().filter_map(Proc::of).collect();
    assert_eq!(all.len(), 4);
    all.iter().for_each(|clone| clone.signal(Signal::STOP));
    wait_for("one was restarted", Duration::from_secs(40), || {
        if restarts() > 0 { Ok(()) } else { Err(format!("{:?}", frail())) }
    });
    let restarted = Instant::now();
    let (event, _) = wait_for("people are told", Duration::from_secs(15), || {
        let view = up.status(1)?;
        let mut events = view["events"].as_array().into_iter().flatten();
        let is_it = |event: &&Value| event["kind"] == "warning" && event["who"] == "frail";
        events.find(is_it).map(|event| event["text"].to_string()).ok_or_else(|| view["events"].to_string())
    });
    assert!(event.contains("fail their probes at once") && event.contains("one at a time"), "{event}");
    // Another would be next twenty seconds after the first.
    while restarted.elapsed() < Duration::from_secs(10) {
        assert_eq!(restarts(), 1, "{:?}", frail());
        std::thread::sleep(Duration::from_millis(200));
    }
    all.iter().filter(|clone| clone.is_alive()).for_each(|clone| clone.signal(Signal::CONT));
    wait_for("all are well", Duration::from_secs(15), || {
        let well = frail().iter().filter(|clone| clone["state"] == "serving" && clone["sick"] == false).count();
        if well == 4 { Ok(()) } else { Err(format!("{:?}", frail())) }
    });
    assert_eq!(all.iter().filter(|clone| clone.is_alive()).count(), 3, "no other was killed");
    up.apply("frail.toml", "").good();
}

#[test]
fn a_clone_whose_node_stays_dead_is_replaced_elsewhere() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(3);
    let text = "[service.web]\nrun = [\"sh\", \"-c\", \"exec python3 -m http.server --bind $HOST $PORT\"]\nclones = 3\nhttp = { host = \"*\" }\n";
    yard.apply(1, "web.toml", text).good();
    wait_for("one serves on each node", Duration::from_secs(30), || {
        (1..=3).try_for_each(|n| yard.whole(n, &[1, 2, 3], 1).map(|_| ()))
    });
    // The leader too, as it may be the one that dies.
    let leader = yard.status(1).unwrap()["root"]["leader"]
        .as_str()
        .and_then(|n| n.strip_prefix('n')?.parse::<u8>().ok())
        .unwrap();
    yard.kill(leader);
    let left: Vec<u8> = (1..=3).filter(|n| *n != leader).collect();
    let (_, took) = wait_for("three serve on two nodes", Duration::from_secs(20), || {
        left.iter().try_for_each(|n| {
            let view = yard.whole(*n, &left, 1)?;
            let names: Vec<String> = left.iter().map(|n| format!("n{n}")).collect();
            let here = |c: &&Value| c["state"] == "serving" && names.iter().any(|name| c["node"] == name.as_str());
            let serving = clones(&view).iter().filter(here).count();
            if serving == 3 { Ok(()) } else { Err(format!("{serving} serve: {}", view["services"])) }
        })
    });
    e2e::say(&format!("the leader was killed; its clone served elsewhere {} ms later", took.as_millis()));
    assert_eq!(http::get(yard.at(left[0]).http, "/").unwrap().status, 200);
}

#[test]
fn a_post_that_reached_a_clone_is_not_repeated_and_a_get_is_on_another() {
    let up = BARE.take();
    let notes = clumsy(&up);
    let post = http::request(up.at(1).http, "POST", "/fall", &[], b"ware=honey").unwrap();
    assert_eq!(post.status, 502, "{}", post.text());
    assert!(post.text().contains("unknown"), "{}", post.text());
    assert_eq!(count(&notes, "POST /fall"), 1, "{}", fs::read_to_string(&notes).unwrap());
    up.settle(Duration::from_secs(30), 0);

    let get = http::get(up.at(2).http, "/fall").unwrap();
    assert_eq!(get.status, 200, "{}", get.text());
    let lines: Vec<String> =
        fs::read_to_string(&notes).unwrap().lines().filter(|l| l.starts_with("GET /fall")).map(str::to_owned).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_ne!(lines[0], lines[1], "the second one went to another clone");
    assert_eq!(format!("{}\n", lines[1].rsplit(' ').next().unwrap()), get.text());
    up.settle(Duration::from_secs(30), 0);

    // The client may say that it may be repeated. This clone falls each time, so it is tried, and then told.
    let before = count(&notes, "POST /fall");
    let post = http::request(up.at(3).http, "POST", "/fall", &[("Idempotency-Key", "\"a1\"")], b"ware=honey").unwrap();
    assert_eq!(post.status, 502, "{}", post.text());
    assert!(count(&notes, "POST /fall") > before + 1, "{}", fs::read_to_string(&notes).unwrap());
    up.apply("clumsy.toml", "").good();
}

#[test]
fn a_tcp_service_is_reached_through_every_node_also_when_its_one_clone_is_elsewhere() {
    let up = BARE.take();
    let port = e2e::at::free_port(3);
    let text = format!(
        "[service.echo]\nrun = [\"python3\", {:?}]\nclones = 1\ntcp = {{ port = {port} }}\n",
        e2e::program::service_program("echo.py")
    );
    up.apply("echo.toml", &text).good();
    for node in 1..=3 {
        let at = std::net::SocketAddr::new(e2e::at::host(node), port);
        wait_for(&format!("an answer at {at}"), Duration::from_secs(15), || {
            let talk = || {
                let mut stream = TcpStream::connect(at)?;
                stream.set_read_timeout(Some(Duration::from_secs(5)))?;
                stream.write_all(b"honey\nbread\n")?;
                // The end of what we say is passed on, and the answers still come.
                stream.shutdown(Shutdown::Write)?;
                let mut text = String::new();
                stream.read_to_string(&mut text).map(|_| text)
            };
            match talk() {
                Ok(text) if text == "HONEY\nBREAD\n" => Ok(()),
                Ok(text) => Err(text),
                Err(e) => Err(e.to_string()),
            }
        });
    }
    up.apply("echo.toml", "").good();
    let at = std::net::SocketAddr::new(e2e::at::host(2), port);
    e2e::soon("the port is closed again", 10, || TcpStream::connect(at).is_err());
}

#[test]
fn long_connections_to_clones_that_are_replaced_end_one_after_the_other_and_in_order() {
    const EACH: usize = 12;
    let up = BARE.take();
    let port = e2e::at::free_port(3);
    let declare = |version: u32| {
        // It does not end at the stop signal: what is left when its time is over breaks.
        let run = format!("trap '' TERM; exec python3 {}", e2e::program::service_program("echo.py"));
        let text = format!(
            "[service.echo]\nrun = [\"sh\", \"-c\", {run:?}]\nclones = 2\ntcp = {{ port = {port} }}\nstop = {{ drain = \"3s\" }}\nenv = {{ V = \"{version}\" }}\n"
        );
        up.apply("long.toml", &text).good();
        up.settle(Duration::from_secs(40), 0);
    };
    declare(1);
    let mut open = Vec::new();
    for node in (1..=3).flat_map(|node| [node; EACH]) {
        let at = std::net::SocketAddr::new(e2e::at::host(node), port);
        let (stream, _) = wait_for(&format!("an answer at {at}"), Duration::from_secs(15), || {
            let talk = || {
                let mut stream = TcpStream::connect(at)?;
                stream.set_read_timeout(Some(Duration::from_secs(40)))?;
                stream.write_all(b"honey\n")?;
                let mut heard = [0; 6];
                stream.read_exact(&mut heard).map(|()| stream)
            };
            talk().map_err(|error| error.to_string())
        });
        open.push(stream);
    }
    let began = Instant::now();
    let ends: Vec<_> = (open.into_iter())
        .map(|mut stream| {
            std::thread::spawn(move || (stream.read(&mut [0; 8]).map_err(|e| e.to_string()), began.elapsed()))
        })
        .collect();
    declare(2);
    let ends: Vec<_> = ends.into_iter().map(|end| end.join().unwrap()).collect();
    assert!(ends.iter().all(|(read, _)| *read == Ok(0)), "each sees an end and no reset: {ends:?}");
    let mut at: Vec<u128> = ends.into_iter().map(|(_, at)| at.as_millis()).collect();
    at.sort_unstable();
    e2e::say(&format!("{} connections ended after {at:?} ms", at.len()));
    let most = at.iter().map(|from| at.iter().filter(|ms| (*from..*from + 500).contains(*ms)).count()).max().unwrap();
    assert!(most <= at.len() / 2, "{most} of {} ended within half a second: {at:?}", at.len());
    up.apply("long.toml", "").good();
}

/// Deploys three clones of tests/programs/clumsy.py, and gives their notebook.
fn clumsy(up: &Up) -> PathBuf {
    let folder = up.dir.join("notes");
    fs::create_dir_all(&folder).unwrap();
    let notes = folder.join("all");
    let text = format!(
        "[service.clumsy]\nrun = [\"python3\", {:?}]\nclones = 3\nhealth = \"/health\"\nhttp = {{ host = \"*\" }}\nenv = {{ NOTES = {:?} }}\n\
         sandbox = {{ write = [{:?}] }}\n",
        e2e::program::service_program("clumsy.py"),
        notes.display().to_string(),
        folder.display().to_string()
    );
    up.apply("clumsy.toml", &text).good();
    up.settle(Duration::from_secs(30), 1);
    notes
}

fn count(notes: &PathBuf, what: &str) -> usize {
    fs::read_to_string(notes).unwrap_or_default().lines().filter(|l| l.starts_with(what)).count()
}
