//! Sessions that the edge carries, with the program as it ships: the guestbook of examples/ behind three nodes, browsers
//! that keep cookies, nodes that are killed, keys that change, and people who forge.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use e2e::http::{self, Reply};
use e2e::procs::{Proc, Signal};
use e2e::{Shared, Up, program, wait_for};
use serde_json::Value;

static GUESTBOOK: Shared = Shared::beside(guestbook);

const BACK_WITHIN: Duration = Duration::from_secs(30);
/// From a rotation until the new key seals (`ROTATE_LEAD`), and a little.
const NEW_KEY_WITHIN: Duration = Duration::from_secs(8);

fn guestbook() -> Up {
    let up = Up::bare(3);
    let declaration = std::fs::read_to_string(program::repository().join("examples/guestbook/coppice.toml")).unwrap();
    let folder = program::repository().join("examples/guestbook");
    let declaration = declaration.replace("examples/guestbook", &folder.display().to_string());
    up.apply("guestbook.toml", &declaration).good();
    up.settle(BACK_WITHIN, 1);
    up
}

/// A browser with one cookie, and what it expects to find.
#[derive(Clone, Default)]
struct Browser {
    cookie: Option<String>,
    notes: Vec<String>,
}

impl Browser {
    fn ask(&mut self, at: SocketAddr, method: &str, path: &str, body: &str) -> Reply {
        let line = self.cookie.as_ref().map(|cookie| format!("theme=dark; sid={cookie}"));
        let headers: Vec<(&str, &str)> = line.iter().map(|line| ("Cookie", line.as_str())).collect();
        let reply = http::request(at, method, path, &headers, body.as_bytes()).unwrap();
        if let Some(set) = set_cookie(&reply) {
            assert!(set.contains("; Path=/;") && set.contains("; HttpOnly") && set.contains("; SameSite=Lax"), "{set}");
            assert_eq!(reply.header("cache-control"), Some("private"));
            let text = set["sid=".len()..set.find(';').unwrap()].to_owned();
            assert!(text.len() <= 128, "{set}");
            self.cookie = if set.contains("; Max-Age=0;") { None } else { Some(text) };
        }
        let ours = |(name, _): &(String, String)| name.starts_with("coppice-");
        assert!(!reply.headers.iter().any(ours), "what is between program and edge stays there: {reply:?}");
        reply
    }

    #[track_caller]
    fn write(&mut self, at: SocketAddr, note: &str) {
        let reply = self.ask(at, "POST", "/", note);
        assert_eq!(reply.status, 200, "{}", reply.text());
        self.notes.push(note.to_owned());
    }

    #[track_caller]
    fn check(&mut self, at: SocketAddr) {
        assert_eq!(self.read(at), self.notes, "through {at}");
    }

    fn read(&mut self, at: SocketAddr) -> Vec<String> {
        let reply = self.ask(at, "GET", "/", "");
        let json = reply.json().unwrap();
        json["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned()).collect()
    }
}

fn set_cookie(reply: &Reply) -> Option<String> {
    let mut all = reply.headers.iter().filter(|(name, value)| name == "set-cookie" && value.starts_with("sid="));
    let first = all.next().map(|(_, value)| value.clone());
    assert!(all.next().is_none(), "one cookie at most: {reply:?}");
    first
}

fn metric(up: &Up, name: &str) -> u64 {
    let count = |node| {
        let text = http::get(up.at(node).api, "/metrics").unwrap().text();
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.map(|line| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap())
            .unwrap_or_else(|| panic!("no {name} in {text}"))
    };
    (1..=3).map(count).sum()
}

#[test]
fn the_program_sees_the_value_and_neither_the_cookie_nor_what_clients_say_in_our_name() {
    let up = GUESTBOOK.take();
    let at = up.at(1).http;
    let lies = [
        ("Coppice-Session", "eyJub3RlcyI6WyJmb3JnZWQiXX0"),
        ("Coppice_Session", "eyJub3RlcyI6WyJmb3JnZWQiXX0"),
        ("Coppice-Session-Handle", "visits.AAAA"),
    ];
    let reply = http::request(at, "GET", "/", &lies, b"").unwrap();
    assert_eq!(reply.json().unwrap()["notes"], Value::Array(vec![]), "a client cannot give itself a session");
    assert!(set_cookie(&reply).is_none(), "who has nothing to keep gets no cookie");

    let mut me = Browser::default();
    me.write(at, "honey");
    let seen = me.ask(up.at(2).http, "GET", "/headers", "").json().unwrap();
    assert_eq!(seen["cookie"], "theme=dark", "other cookies are the program's");
    assert_eq!(seen["coppice-session"], "eyJub3RlcyI6IFsiaG9uZXkiXX0");
    assert!(seen["coppice-session-handle"].as_str().unwrap().starts_with("visits."), "{seen}");
    assert!(!seen.to_string().contains(&me.cookie.clone().unwrap()[..22]), "not even the id: {seen}");
    for node in 1..=3 {
        me.check(up.at(node).http);
    }
    let before = metric(&up, "coppice_http_sessions_ended_total");
    me.ask(up.at(3).http, "POST", "/logout", "");
    assert_eq!((me.cookie.clone(), metric(&up, "coppice_http_sessions_ended_total")), (None, before + 1));
}

#[test]
fn a_session_survives_the_death_of_any_one_node_and_no_browser_notices() {
    let mut up = GUESTBOOK.take();
    for victim in 1..=3 {
        up.settle(BACK_WITHIN, 1);
        let others: Vec<_> = (1..=3).filter(|node| *node != victim).map(|node| up.at(node).http).collect();
        let mut browsers = vec![Browser::default(); 12];
        for (n, me) in browsers.iter_mut().enumerate() {
            me.write(up.at(n as u8 % 3 + 1).http, "before");
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // A GET may be repeated by the edge; a POST in a clone that dies is told so. So these look.
            let looking: Vec<_> = browsers
                .chunks_mut(4)
                .zip(others.iter().cycle())
                .map(|(mine, at)| {
                    let stop = &stop;
                    scope.spawn(move || {
                        while !stop.load(Relaxed) {
                            mine.iter_mut().for_each(|me| me.check(*at));
                        }
                    })
                })
                .collect();
            Proc::of(up.node_pid(victim)).unwrap().signal(Signal::KILL);
            std::thread::sleep(Duration::from_millis(1500));
            stop.store(true, Relaxed);
            looking.into_iter().for_each(|one| one.join().unwrap());
        });
        for (n, me) in browsers.iter_mut().enumerate() {
            me.write(others[n % 2], "after");
        }
        up.event("restarted", BACK_WITHIN);
        up.settle(BACK_WITHIN, 1);
        for me in &mut browsers {
            me.check(up.at(victim).http);
        }
    }
}

#[test]
fn forged_cut_foreign_and_expired_cookies_are_no_session_and_are_cleared_and_counted() {
    let up = GUESTBOOK.take();
    let at = up.at(1).http;
    up.apply(
        "other.toml",
        "[namespace.other]\nclass = \"session\"\n[namespace.brief]\nclass = \"session\"\nlease = \"1s\"\n",
    )
    .good();
    let mut me = Browser::default();
    me.write(at, "mine");
    let good = me.cookie.clone().unwrap();
    let mut changed = good.clone().into_bytes();
    changed[90] = if changed[90] == b'A' { b'B' } else { b'A' };
    // A cookie of another namespace, by the API.
    let bearer = format!("Bearer {}", up.token("other"));
    let made =
        http::request(up.at(2).api, "POST", "/v1/ns/other/session", &[("Authorization", &bearer)], b"x").unwrap();
    let foreign = made.json().unwrap()["cookie"].as_str().unwrap().to_owned();
    // Another visitor's id before my proof.
    let mut you = Browser::default();
    you.write(at, "yours");
    let mixed = format!("{}{}", &you.cookie.clone().unwrap()[..22], &good[22..]);
    for (cookie, kind) in [
        (String::from_utf8(changed).unwrap(), "forged"),
        (mixed, "forged"),
        (good[..100].to_owned(), "truncated"),
        ("nonsense".to_owned(), "truncated"),
        (foreign.clone(), "foreign"),
    ] {
        let name = format!("coppice_session_cookies_{kind}_total");
        let before = metric(&up, &name);
        let mut thief = Browser { cookie: Some(cookie.clone()), notes: vec![] };
        thief.check(at);
        assert_eq!(thief.cookie, None, "{kind}: cleared");
        wait_for(&format!("{kind} is counted"), Duration::from_secs(5), || {
            if metric(&up, &name) > before { Ok(()) } else { Err(metric(&up, &name).to_string()) }
        });
        // The API says which.
        let bearer = format!("Bearer {}", up.token("visits"));
        let headers = [("Authorization", bearer.as_str()), ("Coppice-Cookie", cookie.as_str())];
        let reply = http::request(up.at(3).api, "GET", "/v1/ns/visits/session", &headers, b"").unwrap();
        let problem: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!((reply.status, problem["type"].as_str()), (400, Some(&*format!("cookie-{kind}"))), "{problem}");
    }
    let log = std::fs::read_to_string(up.dir.join("n1/node.log")).unwrap();
    assert!(log.contains("bad cookies refused"), "{log}");
    // A bad cookie beside the good one does not hide it.
    let line = format!("sid={foreign}; sid={good}");
    let reply = http::request(at, "GET", "/", &[("Cookie", &line)], b"").unwrap();
    assert!(reply.text().contains("mine") && set_cookie(&reply).is_none(), "{reply:?}");
    // One that has expired.
    let bearer = format!("Bearer {}", up.token("brief"));
    let made =
        http::request(up.at(1).api, "POST", "/v1/ns/brief/session", &[("Authorization", &bearer)], b"x").unwrap();
    let brief = made.json().unwrap()["cookie"].as_str().unwrap().to_owned();
    wait_for("the cookie expires", Duration::from_secs(5), || {
        let headers = [("Authorization", bearer.as_str()), ("Coppice-Cookie", brief.as_str())];
        let text = http::request(up.at(2).api, "GET", "/v1/ns/brief/session", &headers, b"").unwrap().text();
        if text.contains("cookie-expired") { Ok(()) } else { Err(text) }
    });
}

#[test]
fn keys_rotate_and_nobody_is_logged_out_until_that_is_what_is_asked_for() {
    let up = GUESTBOOK.take();
    let mut early = Browser::default();
    early.write(up.at(1).http, "early");
    let key_of = |browser: &Browser| {
        // The key's id is the second byte of what comes after the id: of `AQAA`, the low bits of its second letter on.
        browser.cookie.clone().unwrap()[23..27].to_owned()
    };
    let before = key_of(&early);
    let said = up.coppice(&["ns", "rotate", "visits"]).good();
    assert!(said.contains("cookie key 0 -> 1; 1 older key opens"), "{said}");
    wait_for("a new session has the new key", NEW_KEY_WITHIN, || {
        let mut late = Browser::default();
        late.write(up.at(2).http, "late");
        for node in 1..=3 {
            late.check(up.at(node).http);
            early.check(up.at(node).http);
        }
        if key_of(&late) == before { Err("it has the old one".into()) } else { Ok(()) }
    });
    early.check(up.at(3).http);
    early.write(up.at(1).http, "still here");
    assert_ne!(key_of(&early), before, "what is written is sealed anew");
    up.coppice(&["ns", "rotate", "visits"]).good();
    early.check(up.at(2).http);
    let why = up.coppice(&["ns", "rotate", "visits"]).wrong();
    assert!(why.contains("not in use yet"), "{why}");
    std::thread::sleep(NEW_KEY_WITHIN);
    let why = up.coppice(&["ns", "rotate", "visits"]).wrong();
    assert!(why.contains("3 keys are kept") && why.contains("--end-sessions"), "{why}");
    early.check(up.at(3).http);

    let old = early.cookie.clone();
    let said = up.coppice(&["ns", "rotate", "visits", "--end-sessions"]).good();
    assert!(said.contains("all sessions end"), "{said}");
    let mut ended = Browser { cookie: old.clone(), notes: vec![] };
    ended.check(up.at(1).http);
    let bearer = format!("Bearer {}", up.token("visits"));
    let old = old.unwrap();
    let headers = [("Authorization", bearer.as_str()), ("Coppice-Cookie", old.as_str())];
    let text = http::request(up.at(1).api, "GET", "/v1/ns/visits/session", &headers, b"").unwrap().text();
    assert!(text.contains("cookie-expired"), "of a removed key: {text}");
    let why = up.coppice(&["ns", "rotate", "nobody"]).wrong();
    assert!(why.contains("no namespace \"nobody\""), "{why}");
}

#[test]
fn a_large_value_goes_by_the_nodes_api_and_the_limit_is_named() {
    let up = GUESTBOOK.take();
    let mut me = Browser::default();
    me.write(up.at(1).http, &"x".repeat(20_000));
    me.write(up.at(2).http, &"y".repeat(20_000));
    for node in 1..=3 {
        me.check(up.at(node).http);
    }
    let seen = me.ask(up.at(1).http, "GET", "/headers", "").json().unwrap();
    assert_eq!(seen["coppice-session"], "*");
    let handle = seen["coppice-session-handle"].as_str().unwrap();
    let api = up.at(3).api;
    let path = format!("/v1/session/{handle}");
    assert!(http::get(api, &path).unwrap().text().contains("xxxx"), "any node takes it");
    let reply = http::request(api, "PUT", &path, &[], &vec![b'z'; 70_000]).unwrap();
    assert_eq!(reply.status, 413, "{}", reply.text());
    let other = format!("{}A", &path[..path.len() - 1]);
    let other = if other == path { format!("{}B", &path[..path.len() - 1]) } else { other };
    assert_eq!(http::get(api, &other).unwrap().status, 404, "a changed handle");
    // Small again: by header.
    me.ask(up.at(1).http, "POST", "/logout", "");
    me.notes.clear();
    me.write(up.at(1).http, "small");
    me.check(up.at(2).http);
}

#[test]
fn concurrent_requests_of_one_browser_neither_log_it_out_nor_bring_old_values_back() {
    let up = GUESTBOOK.take();
    let mut me = Browser::default();
    me.write(up.at(1).http, "0");
    for round in 0..10 {
        // Requests that left the browser with the same cookie, one of which writes.
        let answers: Vec<(bool, Reply)> = std::thread::scope(|scope| {
            let ask = |n: u8| {
                let (mut tab, at) = (me.clone(), up.at(n % 3 + 1).http);
                scope.spawn(move || match n {
                    0 => (true, tab.ask(at, "POST", "/", "tab")),
                    _ => (false, tab.ask(at, "GET", "/", "")),
                })
            };
            let all: Vec<_> = (0..9).map(ask).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        for (wrote, reply) in &answers {
            assert_eq!(reply.status, 200, "{}", reply.text());
            let set = set_cookie(reply).unwrap_or_default();
            assert!(!set.contains("Max-Age=0"), "logged out: {set}");
            if !wrote {
                let notes = reply.json().unwrap()["notes"].as_array().unwrap().len();
                assert!(notes == me.notes.len() || notes == me.notes.len() + 1, "round {round}: {notes}");
            }
        }
        me.notes.push("tab".into());
        // The older cookie, too, finds what is newer, when the third brick has it: two had when the writer was answered.
        let at = up.at(round % 3 + 1).http;
        wait_for("the older cookie finds it", Duration::from_secs(5), || {
            let notes = me.read(at);
            if notes == me.notes { Ok(()) } else { Err(format!("{notes:?}")) }
        });
        let (_, reply) = answers.iter().find(|(wrote, _)| *wrote).unwrap();
        let set = set_cookie(reply).unwrap();
        me.cookie = Some(set["sid=".len()..set.find(';').unwrap()].to_owned());
        me.check(up.at((round + 1) % 3 + 1).http);
    }
}

#[test]
fn logging_in_renews_the_id_so_that_a_planted_session_is_worthless() {
    let up = GUESTBOOK.take();
    let mut thief = Browser::default();
    thief.write(up.at(1).http, "planted");
    let mut victim = thief.clone();
    assert_eq!(victim.ask(up.at(2).http, "POST", "/login", "secret").status, 200);
    victim.notes.push("secret".into());
    victim.check(up.at(3).http);
    assert_ne!(victim.cookie.as_ref().unwrap()[..22], thief.cookie.as_ref().unwrap()[..22]);
    assert_eq!(thief.read(up.at(1).http), [""; 0], "the planted id is of no session any more");
}

#[test]
fn an_answer_that_makes_no_sense_is_not_passed_on_and_says_so() {
    let up = GUESTBOOK.take();
    let mut me = Browser::default();
    me.write(up.at(1).http, "kept");
    let reply = me.ask(up.at(1).http, "POST", "/bad", "");
    assert_eq!(reply.status, 502);
    assert!(reply.text().contains("not base64url") && reply.text().contains("was carried out"), "{}", reply.text());
    me.check(up.at(2).http);
}

#[test]
fn a_session_that_cannot_be_read_is_503_and_not_a_new_visitor() {
    let up = GUESTBOOK.take();
    up.settle(BACK_WITHIN, 1);
    let mut me = Browser::default();
    me.write(up.at(1).http, "kept");
    // The two others stop, so a write finds no second brick.
    let stopped: Vec<Proc> = [2, 3].map(|node| Proc::of(up.node_pid(node)).unwrap()).into();
    stopped.iter().for_each(|node| node.signal(Signal::STOP));
    let reply = wait_for("a write is refused", Duration::from_secs(20), || {
        let reply = me.ask(up.at(1).http, "POST", "/", "lost");
        if reply.status == 503 { Ok(reply) } else { Err(format!("{}: {}", reply.status, reply.text())) }
    })
    .0;
    stopped.iter().for_each(|node| node.signal(Signal::CONT));
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
    let text = reply.text();
    assert!(text.contains("session") && (text.contains("not stored") || text.contains("unknown")), "{text}");
    assert!(set_cookie(&reply).is_none() && me.cookie.is_some(), "the cookie is left alone");
    up.settle(BACK_WITHIN, 1);
    let notes = me.read(up.at(2).http);
    assert_eq!(notes.first().map(String::as_str), Some("kept"), "nobody was logged out: {notes:?}");
}
