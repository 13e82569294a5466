//! Programs on the Rust SDK, as they ship: the notes of examples/ behind three nodes that are killed one after the other.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use e2e::http::{self, Reply};
use e2e::procs::{Proc, Signal};
use e2e::resp::Word;
use e2e::{Shared, Up, program, soon, wait_for};

static NOTES: Shared = Shared::new(notes);

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
