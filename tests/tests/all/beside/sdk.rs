//! Programs on the Rust SDK, as they ship: the notes of examples/ behind three nodes that are killed one after the other.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use e2e::http::{self, Reply};
use e2e::procs::{Proc, Signal};
use e2e::resp::Word;
use e2e::{Shared, Up, program, soon, wait_for};

static NOTES: Shared = Shared::beside(notes);

const BACK_WITHIN: Duration = Duration::from_secs(40);

fn notes() -> Up {
    let program = program::example("notes");
    let up = Up::bare(3);
    let declaration = std::fs::read_to_string(program::repository().join("examples/notes/coppice.toml")).unwrap();
    let declaration = declaration.replace("target/release/notes", &program.display().to_string());
    up.apply("notes.toml", &declaration).good();
    up.settle(BACK_WITHIN, 1);
    up
}

#[test]
fn a_function_of_the_service_is_applied_by_the_sdk_and_by_any_door() {
    let up = NOTES.take();
    let token = up.token("boards");
    let bearer = format!("Bearer {token}");
    // Another test may have been there before.
    up.linear(1, "boards", &token).ask(&["DEL", "all"]).unwrap();
    let mut pinned = BTreeSet::new();
    for node in 1..=3 {
        // The service itself, by the SDK.
        pin(&[up.at(node).http], 0, &format!("by the service at {node}"));
        let body = format!(r#"{{"function":"pin","args":["over HTTP at {node}"]}}"#);
        let headers = [("Authorization", bearer.as_str())];
        let reply =
            http::request(up.at(node).api, "POST", "/v1/ns/boards/apply/all", &headers, body.as_bytes()).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        let mut resp = up.linear(node, "boards", &token);
        let Word::Bulk(board) = resp.ask(&["FCALL", "pin", "1", "all", &format!("by RESP at {node}")]).unwrap() else {
            panic!("a board is what it gives")
        };
        for how in ["by the service at", "over HTTP at", "by RESP at"] {
            pinned.insert(format!("{how} {node}"));
        }
        assert!(pinned.iter().all(|note| board.contains(note)), "{board}");
        let Word::Error(why) = resp.ask(&["FCALL", "unpin", "1", "all"]).unwrap() else { panic!("there is no unpin") };
        assert_eq!(why, "ERR function \"unpin\" of service \"notes\": there is none of this name; there are: pin");
        let Word::Error(why) = resp.ask(&["FCALL", "pin", "1", "all"]).unwrap() else { panic!("it lacks an argument") };
        assert!(why.ends_with("argument 0 is missing: there are 0"), "{why}");
    }
    let seen = listed(&http::get(up.at(1).http, "/boards/all").unwrap()).unwrap();
    assert_eq!(seen, pinned);
    up.linear(1, "boards", &token).ask(&["DEL", "all"]).unwrap();
}

#[test]
fn stages_of_a_program_are_shown_by_its_node_and_told_to_the_others() {
    let up = NOTES.take();
    for node in 1..=3 {
        pin(&[up.at(node).http], 0, &format!("for its stage, by {node}"));
    }
    let clone = up.status(1).unwrap()["services"][0]["clones"][0].clone();
    let (name, home) = (clone["name"].as_str().unwrap(), clone["node"].as_str().unwrap());
    let home = (1..=3).find(|n| up.at(*n).name == home).unwrap();
    let other = home % 3 + 1;
    let labels = format!("{{service=\"notes\",clone=\"{name}\",stage=\"requests\"}} ");
    wait_for("its node shows the stage", BACK_WITHIN, || {
        let text = http::get(up.at(home).api, "/metrics").map_err(|e| e.to_string())?.text();
        let figure = |of: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("coppice_clone_stage_{of}{labels}")));
            line.and_then(|value| value.parse::<u64>().ok()).ok_or(format!("no {of} of {labels} in {text}"))
        };
        if figure("limit")? > 0 && figure("started_total")? > 0 { Ok(()) } else { Err("nothing yet".into()) }
    });
    wait_for("another node shows it", BACK_WITHIN, || {
        let all = up.status(other)?;
        let home = all["nodes"].as_array().unwrap().iter().find(|of| of["name"] == clone["node"]).unwrap();
        let limit = &home["gauges"][format!("stage.clone-{name}:requests.limit")];
        if limit.as_u64() > Some(0) { Ok(()) } else { Err(home["gauges"].to_string()) }
    });
    let page = http::get(up.at(other).api, "/").unwrap().text();
    assert!(page.contains(&format!("{name}:requests")), "the monitor of another node");

    // Who else may say so: nobody.
    let admin = std::fs::read_to_string(up.dir.join("n1/admin.token")).unwrap();
    let token = http::request(
        up.at(1).api,
        "GET",
        "/v1/services/notes/token",
        &[("Authorization", &format!("Bearer {}", admin.trim()))],
        b"",
    );
    let token = token.unwrap().json().unwrap()["token"].as_str().unwrap().to_owned();
    let tell = |node: u8, token: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str()), ("Coppice-Member", clone["life"].as_str().unwrap())];
        http::request(up.at(node).api, "POST", "/v1/services/notes/stages", &headers, body.as_bytes()).unwrap().status
    };
    assert_eq!(tell(home, &token, "{\"mine\": {\"limit\": 7}}"), 204);
    assert_eq!(tell(home, "wrong", "{}"), 401);
    assert_eq!(tell(other, &token, "{}"), 404);
    assert_eq!((tell(home, &token, "[]"), tell(home, &token, "{\"a b\": {}}")), (400, 400));
    let many: Vec<String> = (0..9).map(|n| format!("\"s{n}\": {{}}")).collect();
    assert_eq!(tell(home, &token, &format!("{{{}}}", many.join(","))), 400);
    up.linear(1, "boards", &up.token("boards")).ask(&["DEL", "all"]).unwrap();
}

/// Says "stop" when it goes.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn listed(reply: &Reply) -> Result<BTreeSet<String>, String> {
    let notes = reply.json()?["notes"].as_array().cloned().ok_or("no list")?;
    Ok(notes.iter().filter_map(|note| Some(note.as_str()?.to_owned())).collect())
}

/// Sends a note until it is accepted, as a client does that was told "perhaps": the same one again.
fn pin(at: &[SocketAddr], nth: usize, note: &str) {
    let mut tries = nth;
    wait_for(&format!("{note} is accepted"), BACK_WITHIN, || {
        tries += 1;
        match http::request(at[tries % at.len()], "POST", "/boards/all", &[], note.as_bytes()) {
            Ok(reply) if reply.status == 200 => Ok(()),
            Ok(reply) => Err(format!("HTTP {}: {}", reply.status, reply.text())),
            Err(error) => Err(error.to_string()),
        }
    });
}

#[test]
fn notes_and_drafts_survive_each_node() {
    let mut up = NOTES.take();
    let doors: Vec<SocketAddr> = (1..=3).map(|node| up.at(node).http).collect();
    let draft = |cookie: &str, at: SocketAddr| {
        http::request(at, "GET", "/draft", &[("Cookie", cookie)], b"").map_err(|e| e.to_string())
    };
    let write = |cookie: &str, at: SocketAddr, text: &str| {
        let kept = http::request(at, "PUT", "/draft", &[("Cookie", cookie)], text.as_bytes()).unwrap();
        assert_eq!(kept.status, 200, "{}", kept.text());
        kept.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    };
    let mut cookie = write("theme=dark", doors[0], "a long letter");
    let (stop, accepted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let total = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3usize)
            .map(|writer| {
                let (stop, accepted, doors) = (&stop, &accepted, &doors);
                scope.spawn(move || {
                    let mut notes = BTreeSet::new();
                    while !stop.load(Relaxed) {
                        let note = format!("{writer}-{}", notes.len());
                        pin(doors, writer, &note);
                        notes.insert(note);
                        accepted.fetch_add(1, Relaxed);
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    notes
                })
            })
            .collect();
        let go_on = |notes: usize| {
            let until = accepted.load(Relaxed) + notes;
            soon("notes are accepted", 60, || accepted.load(Relaxed) >= until)
        };
        // Also if something here fails: the writers are waited for.
        let _stops = Stops(&stop);
        go_on(10);
        for node in 1..=3 {
            Proc::of(up.node_pid(node)).unwrap().signal(Signal::KILL);
            // While it is away, by the others.
            go_on(10);
            let seen = draft(&cookie, doors[usize::from(node) % 3]).unwrap();
            assert_eq!((seen.status, seen.text().as_str()), (200, "a long letter"));
            up.event("restarted", BACK_WITHIN);
            up.settle(BACK_WITHIN, 1);
            // What no brick was told since is lost with the second death (SSM 3.7); the cookie is then another one.
            cookie = write(&cookie, doors[usize::from(node) - 1], "a long letter");
        }
        stop.store(true, Relaxed);
        let all: BTreeSet<String> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        all
    });
    e2e::say(&format!("{} notes were accepted while three nodes were killed", total.len()));
    for at in doors {
        let (seen, _) = wait_for("the board is shown", BACK_WITHIN, || {
            listed(&http::get(at, "/boards/all").map_err(|e| e.to_string())?)
        });
        assert_eq!(seen, total, "every note that was accepted, each once, and no other");
        let (reply, _) = wait_for("the draft is shown", BACK_WITHIN, || {
            let reply = draft(&cookie, at)?;
            if reply.status == 200 { Ok(reply) } else { Err(reply.text()) }
        });
        assert_eq!(reply.text(), "a long letter");
    }
    let stranger = draft("coppice-drafts=abc.def", up.at(1).http).unwrap();
    assert_eq!((stranger.status, stranger.text().as_str()), (200, ""), "a forged cookie is nobody's");
}
