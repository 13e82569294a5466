//! The edge cache of a service over three nodes and a Python program: kept at any node, purged at another, given when no clone is left.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use e2e::http::{self, Reply};
use e2e::procs::{Proc, Signal};
use e2e::resp::{Resp, Word};
use e2e::{Up, wait_for};

/// All ask for one site: by the addresses of the nodes it would be three, with entries of their own.
const SITE: (&str, &str) = ("Host", "site.test");

fn get(at: SocketAddr, path: &str) -> Reply {
    http::request(at, "GET", path, &[SITE], b"").unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn did(reply: &Reply) -> &str {
    reply.header("cache-status").unwrap_or_else(|| panic!("{}: {}", reply.status, reply.text()))
}

#[test]
fn answers_are_kept_for_all_nodes_until_they_are_purged_and_given_when_clones_are_gone() {
    let _turn = e2e::beside();
    let up = Up::start(3, &["--no-demo"]);
    let program = e2e::program::service_program("pages.py");
    let gone = up.dir.join("gone");
    let text = format!(
        "[namespace.pages]\nclass = \"cache\"\n[service.site]\nrun = [\"python3\", {program:?}]\nclones = 1\nhealth = \"/health\"\n\
         http = {{ path = \"/\" }}\nsandbox = \"none\"\nenv = {{ GONE = {:?} }}\ncache = {{ namespace = \"pages\" }}\n",
        gone.display().to_string()
    );
    up.apply("site.toml", &text).good();
    let http = |node: u8| up.at(node).http;
    // The clone has to start, and the first leases take a moment.
    wait_for("a page is kept", Duration::from_secs(30), || {
        let reply = http::request(http(1), "GET", "/page", &[SITE], b"").map_err(|error| error.to_string())?;
        match reply.header("cache-status") {
            Some(did) if did.starts_with("coppice; hit") => Ok(()),
            other => Err(format!("{} {other:?}", reply.status)),
        }
    });
    // A node whose question to the entry's node takes too long fetches anew, and that is kept then.
    let (first, _) = wait_for("all nodes give one answer", Duration::from_secs(30), || {
        let all: Vec<Reply> = (1..=3).map(|node| get(http(node), "/page")).collect();
        let alike = all.iter().all(|reply| did(reply).starts_with("coppice; hit") && reply.text() == all[0].text());
        let said: Vec<_> = all.iter().map(|reply| format!("{} {}", did(reply), reply.text())).collect();
        if alike { Ok(all.into_iter().next().unwrap()) } else { Err(format!("{said:?}")) }
    });
    assert!(first.header("age").is_some() && first.header("etag").is_some());
    let tag = first.header("etag").unwrap().to_owned();
    let ask = |node: u8, field: (&str, &str)| http::request(http(node), "GET", "/page", &[SITE, field], b"").unwrap();
    assert_eq!(ask(2, ("if-none-match", &tag)).status, 304);
    let part = ask(3, ("range", "bytes=0-1"));
    assert_eq!((part.status, part.text()), (206, first.text()[..2].to_owned()));
    for _ in 0..2 {
        assert!(did(&get(http(1), "/mine")).starts_with("coppice; fwd=uri-miss"));
    }

    let token = up.token("pages");
    let mut conn = Resp::open(up.at(3).resp, "pages", &token).unwrap();
    for round in 0..5 {
        let before = get(http(1), "/page").text();
        assert_eq!(conn.ask(&["PURGE", "TAG", "of-page"]), Ok(Word::Simple("OK".into())));
        for node in [2, 1, 3] {
            assert_ne!(get(http(node), "/page").text(), before, "round {round}, node {node}");
        }
    }

    // A node that hangs while something is purged gives nothing of before when it goes on, to nobody who asks since: also of what is
    // asked for so often that it is given without asking the node's machine.
    let mut conn = Resp::open(up.at(1).resp, "pages", &token).unwrap();
    let paths: Vec<String> = (0..9).map(|n| format!("/hot-{n}")).collect();
    let hangs = Proc::of(up.node_pid(3)).unwrap();
    for round in 0..3 {
        let before: Vec<String> =
            paths.iter().map(|path| (0..10).fold(String::new(), |_, _| get(http(3), path).text())).collect();
        hangs.signal(Signal::STOP);
        let purged = conn.ask(&["PURGE", "TAG", "pages"]);
        let asks = |path: &String| {
            let (at, path) = (http(3), path.clone());
            thread::spawn(move || get(at, &path))
        };
        let asks: Vec<_> = paths.iter().map(asks).collect();
        hangs.signal(Signal::CONT);
        let replies: Vec<Reply> = asks.into_iter().map(|reply| reply.join().unwrap()).collect();
        assert_eq!(purged, Ok(Word::Simple("OK".into())), "round {round}");
        for (reply, before) in replies.iter().zip(&before) {
            assert_ne!(&reply.text(), before, "round {round}: {}", did(reply));
        }
    }

    // Who is not told in time what is kept asks a clone for himself: another page then, as this one is kept by now.
    let mut tries = 0;
    wait_for("one asks for all", Duration::from_secs(30), || {
        tries += 1;
        let ask = || {
            let at = http(2);
            thread::spawn(move || get(at, &format!("/slow/all-{tries}")))
        };
        let replies: Vec<_> = (0..50).map(|_| ask()).collect();
        let replies: Vec<Reply> = replies.into_iter().map(|reply| reply.join().unwrap()).collect();
        let once = |reply: &Reply| reply.status == 200 && reply.text() == replies[0].text();
        if replies.iter().all(once) && replies[0].text().ends_with(" 1") {
            return Ok(());
        }
        Err(format!("{:?}", replies.iter().map(|reply| (reply.status, reply.text(), did(reply))).collect::<Vec<_>>()))
    });

    let (short, _) = wait_for("what is fresh for a moment is kept", Duration::from_secs(30), || {
        let (one, other) = (get(http(1), "/short"), get(http(2), "/short"));
        let is_kept = did(&other).starts_with("coppice; hit") && one.text() == other.text();
        if is_kept { Ok(other.text()) } else { Err(format!("{} {}", did(&one), did(&other))) }
    });
    std::fs::write(&gone, "").unwrap();
    let pid = short.split(' ').next().unwrap().parse().unwrap();
    Proc::of(pid).expect("the clone that answered is there").signal(Signal::KILL);
    // A node that has to wait for the entry's node for too long has nothing to give: under load the first one may get 503.
    wait_for("what is stale is given in place of an error", Duration::from_secs(20), || match get(http(2), "/short") {
        reply if reply.status != 200 => Err(format!("{}: {}", reply.status, reply.text())),
        reply if did(&reply).contains("detail=stale-if-error") && reply.text() == short => Ok(()),
        reply => Err(did(&reply).to_owned()),
    });
    assert_eq!(get(http(1), "/never-asked").status, 503);
    let figures = http::get(up.at(2).api, "/metrics").unwrap().text();
    let stale = figures.lines().find_map(|line| line.strip_prefix("coppice_edge_cache_stale_total{service=\"site\"} "));
    assert!(stale.and_then(|count| count.parse::<u64>().ok()).is_some_and(|count| count > 0), "{stale:?}");
}
