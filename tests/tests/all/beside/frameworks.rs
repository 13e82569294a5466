//! Web frameworks with their own Redis clients, unmodified, on a session namespace with `merge = "fields"`: the programs
//! of examples/sessions, run as services of a cluster of three nodes. The races in which Redis loses fields lose none.
//! Packages come from their registries into cargo's folder for test files, once; where they cannot be had, the test
//! says so.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use e2e::procs::Signal;
use e2e::resp::{Resp, Word};
use e2e::tools::{has, run};
use e2e::{Shared, Up, http, procs, say, skip, wait_for};
use serde_json::Value;

static UP: Shared = Shared::beside(|| Up::bare(3));

/// Requests of one session at once: about what a page of today fires.
const AT_ONCE: usize = 16;

#[test]
fn express_and_connect_redis_lose_no_field() {
    framework("express", &["node", "npm"], &[NPM], &["node", "server.mjs"]);
}

#[test]
fn django_and_django_redis_lose_no_field() {
    framework("django", &["python3"], &[PIP], &["sh", "-c", "PYTHONPATH=packages exec python3 app.py"]);
}

#[test]
fn flask_session_loses_no_field() {
    framework("flask", &["python3"], &[PIP], &["sh", "-c", "PYTHONPATH=packages exec python3 app.py"]);
}

#[test]
fn what_rails_does_by_ioredis_loses_no_field() {
    framework("rails", &["node", "npm"], &[NPM], &["node", "like_rails.mjs"]);
}

#[test]
fn spring_session_loses_no_field_and_gets_a_new_id_at_login() {
    let java = ["sh", "-c", "exec java -cp target/classes:$(cat classpath.txt) Sessions"];
    let maven = &["mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath.txt"];
    framework("spring", &["java", "mvn"], &[maven], &java);
}

#[test]
fn a_write_on_what_was_read_happens_only_if_nobody_was_faster_over_both_doors() {
    let up = UP.take();
    up.apply(
        "plain.toml",
        "[namespace.plain]\nclass = \"session\"\n[namespace.maps]\nclass = \"session\"\nmerge = \"fields\"\n",
    )
    .good();
    assert!(up.coppice(&["export"]).good().contains("merge = \"fields\""));
    let (plain, maps) = (up.token("plain"), up.token("maps"));
    wait_for("each node knows them", Duration::from_secs(2), || {
        (1..=3).try_for_each(|n| Resp::open(up.at(n).resp, "maps", &maps).map(|_| ()))
    });
    let bearer = format!("Bearer {plain}");
    let ask = |node: u8, method: &str, condition: &[(&str, &str)], body: &str| {
        let headers: Vec<_> = [("Authorization", &*bearer)].into_iter().chain(condition.iter().copied()).collect();
        http::request(up.at(node).api, method, "/v1/ns/plain/keys/a", &headers, body.as_bytes()).unwrap()
    };
    let first = ask(1, "PUT", &[("If-None-Match", "*")], "one");
    assert_eq!(first.status, 204, "{}", first.text());
    let tag = first.header("etag").unwrap().to_owned();
    let late = ask(2, "PUT", &[("If-None-Match", "*")], "other");
    assert_eq!((late.status, late.header("etag")), (412, Some(&*tag)));
    let second = ask(3, "PUT", &[("If-Match", &tag)], "two");
    assert_eq!(second.status, 204, "{}", second.text());
    let newer = second.header("etag").unwrap().to_owned();
    for method in ["PUT", "DELETE"] {
        let stale = ask(1, method, &[("If-Match", &tag)], "");
        assert_eq!((stale.status, stale.header("etag")), (412, Some(&*newer)), "{method}");
        assert!(stale.text().contains(newer.trim_matches('"')), "it names the newer version: {}", stale.text());
    }
    assert_eq!(ask(2, "GET", &[], "").text(), "two");
    let mut resp = Resp::open(up.at(2).resp, "plain", &plain).unwrap();
    assert_eq!(resp.ask(&["SET", "a", "three", "IFEQ", "one"]).unwrap(), Word::Nil);
    let Word::Bulk(digest) = resp.ask(&["DIGEST", "a"]).unwrap() else { panic!("a digest is a text") };
    assert_eq!(resp.ask(&["SET", "a", "three", "IFDEQ", &digest]).unwrap(), Word::Simple("OK".into()));
    assert_eq!(resp.ask(&["DELEX", "a", "IFEQ", "two"]).unwrap(), Word::Int(0));
    let tag = ask(3, "GET", &[], "").header("etag").unwrap().to_owned();
    assert_eq!(ask(1, "DELETE", &[("If-Match", &tag)], "").status, 204);
    assert_eq!(ask(1, "GET", &[], "").status, 404);

    // What was read may be compared with, mark and all.
    let mut resp = Resp::open(up.at(3).resp, "maps", &maps).unwrap();
    resp.ask(&["SET", "m", r#"{"a": 1}"#]).unwrap();
    let Word::Bulk(read) = resp.ask(&["GET", "m"]).unwrap() else { panic!("it was written") };
    assert!(read.starts_with(r#"{"a":1,"_coppice":""#), "{read}");
    assert_eq!(resp.ask(&["SET", "m", r#"{"b":2}"#, "IFEQ", &read]).unwrap(), Word::Simple("OK".into()));
    assert_eq!(resp.ask(&["SET", "m", r#"{"c":3}"#, "IFEQ", &read]).unwrap(), Word::Nil);
    let Word::Error(error) = resp.ask(&["SADD", "m", "x"]).unwrap() else { panic!("SADD was taken") };
    assert!(error.contains("class session"), "{error}");
    up.apply("plain.toml", "").good();
}

const NPM: &[&str] =
    &["npm", "install", "--no-audit", "--no-fund", "--silent", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"];
const PIP: &[&str] = &[
    "python3",
    "-m",
    "pip",
    "install",
    "-q",
    "--retries",
    "1",
    "--upgrade",
    "--target",
    "packages",
    "-r",
    "requirements.txt",
];

/// One framework's example, against Coppice, and against Redis where that is installed.
fn framework(name: &str, needs: &[&str], install: &[&[&str]], command: &[&str]) {
    if let Some(missing) = needs.iter().find(|program| !has(program)) {
        return skip(&format!("{name}: {missing} is not installed"));
    }
    let dir = match installed(name, install) {
        Ok(dir) => dir,
        Err(why) => return skip(&format!("{name}: its packages could not be installed: {why}")),
    };
    let up = UP.take();
    let text = std::fs::read_to_string(dir.join("coppice.toml")).unwrap();
    let declared = format!("dir = \"examples/sessions/{name}\"");
    assert!(text.contains(&declared), "{text}");
    up.apply("sessions.toml", &text.replace(&declared, &format!("dir = \"{}\"", dir.display()))).good();
    let nodes: Vec<SocketAddr> = (1..=3).map(|n| up.at(n).http).collect();
    for node in &nodes {
        wait_for(&format!("{name} answers"), Duration::from_secs(60), || match http::get(*node, "/health") {
            Ok(reply) if reply.status == 200 => Ok(()),
            Ok(reply) => Err(reply.text()),
            Err(e) => Err(e.to_string()),
        });
    }
    let outcome = race(&nodes);
    assert_eq!(outcome, Race::default(), "{name} on Coppice");
    logout_wins(name, &nodes);
    if name == "spring" {
        let mut visitor = Visitor::new(nodes[0]);
        visitor.go("/set/user/ann");
        let before = visitor.cookie.clone();
        assert_eq!(visitor.go("/login")["user"], "ann");
        assert_ne!(visitor.cookie, before, "RENAME gave it a new id");
        assert_eq!(visitor.go("/")["user"], "ann");
        let gone = Visitor { at: nodes[1], cookie: before }.go("/");
        assert_eq!(gone, serde_json::json!({}), "nothing is left under the old id");
    }
    up.apply("sessions.toml", "").good();
    drop(up);
    if !has("redis-server") {
        return skip("redis-server is not installed: what Redis loses is not shown");
    }
    let redis = Redis::start();
    let app = App::start(&dir, command, redis.at);
    let theirs = race(&[app.at]);
    say(&format!("{name}: of {AT_ONCE} fields Redis lost {}, Coppice none", theirs.lost));
    // Spring Session writes fields by itself. The others read and write the whole.
    assert_eq!(theirs.lost > 0, name != "spring", "the race is a race: {theirs:?}");
}

/// The example in a folder with its packages.
fn installed(name: &str, install: &[&[&str]]) -> Result<PathBuf, String> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/sessions").join(name);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sessions").join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let copied = run(Command::new("cp").arg("-R").arg(from.join(".")).arg(&dir), Duration::from_secs(10));
    assert!(copied.is_good(), "{copied:?}");
    let wanted = ["package.json", "requirements.txt", "pom.xml", "src/main/java/Sessions.java"]
        .map(|f| std::fs::read_to_string(dir.join(f)).unwrap_or_default())
        .concat();
    let mark = dir.join("installed");
    if std::fs::read_to_string(&mark).is_ok_and(|has| has == wanted) {
        return Ok(dir);
    }
    for step in install {
        let said = run(Command::new(step[0]).args(&step[1..]).current_dir(&dir), Duration::from_secs(180));
        if !said.is_good() {
            return Err(format!("{step:?}: {}", said.err.lines().chain(said.out.lines()).next().unwrap_or("no word")));
        }
    }
    std::fs::write(mark, wanted).unwrap();
    Ok(dir)
}

#[derive(Clone, Debug)]
struct Visitor {
    at: SocketAddr,
    cookie: String,
}

impl Visitor {
    fn new(at: SocketAddr) -> Visitor {
        Visitor { at, cookie: String::new() }
    }

    #[track_caller]
    fn go(&mut self, path: &str) -> Value {
        let cookie = self.cookie.clone();
        let headers: &[(&str, &str)] = if cookie.is_empty() { &[] } else { &[("Cookie", &cookie)] };
        let reply = http::request(self.at, "GET", path, headers, b"").unwrap();
        if let Some(set) = reply.header("set-cookie") {
            self.cookie = set.split(';').next().unwrap().to_owned();
        }
        reply.json().unwrap_or_else(|e| panic!("{path}: {e}"))
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Race {
    /// Fields that a request set and that are not there.
    lost: usize,
    /// Fields that a request removed and that came back.
    back: usize,
}

/// Two tabs, and many requests: all of them read the session before any of them writes it.
fn race(nodes: &[SocketAddr]) -> Race {
    let mut visitor = Visitor::new(nodes[0]);
    visitor.go("/set/user/ann");
    visitor.go("/set/basket/full");
    let waits = |nth: usize| 200 + 7 * (nth * 5 % AT_ONCE);
    std::thread::scope(|scope| {
        for nth in 0..AT_ONCE {
            let mut tab = Visitor { at: nodes[nth % nodes.len()], ..visitor.clone() };
            scope.spawn(move || tab.go(&format!("/set/f{nth}/{nth}?wait={}", waits(nth))));
        }
        let mut tab = visitor.clone();
        scope.spawn(move || tab.go("/drop/basket?wait=220"));
    });
    let mut outcome = Race::default();
    for node in nodes {
        let there = Visitor { at: *node, ..visitor.clone() }.go("/");
        let is_lost = |nth: &usize| there[format!("f{nth}")].as_str() != Some(&*nth.to_string());
        let lost = (0..AT_ONCE).filter(is_lost).count() + usize::from(there["user"] != "ann");
        outcome.lost = outcome.lost.max(lost);
        outcome.back = outcome.back.max(usize::from(there.get("basket").is_some()));
    }
    outcome
}

/// A request that was under way when the visitor logged out does not bring the session back.
fn logout_wins(name: &str, nodes: &[SocketAddr]) {
    let mut visitor = Visitor::new(nodes[0]);
    visitor.go("/set/user/ann");
    std::thread::scope(|scope| {
        let slow = visitor.clone();
        scope.spawn(move || {
            // Some frameworks answer this request with an error, which is right as well.
            let _ = http::request(slow.at, "GET", "/set/late/1?wait=400", &[("Cookie", &slow.cookie)], b"");
        });
        std::thread::sleep(Duration::from_millis(150));
        Visitor { at: nodes[nodes.len() - 1], ..visitor.clone() }.go("/logout");
    });
    assert_eq!(visitor.clone().go("/").get("user"), None, "{name}: logged out is logged out");
}

struct Redis {
    at: SocketAddr,
    child: Child,
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Redis {
    fn start() -> Redis {
        let at = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &at.port().to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("Redis listens", Duration::from_secs(10), || {
            std::net::TcpStream::connect(at).map(|_| ()).map_err(|e| e.to_string())
        });
        Redis { at, child }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The example on its own, with a Redis.
struct App {
    at: SocketAddr,
    child: Child,
}

impl App {
    fn start(dir: &Path, command: &[&str], redis: SocketAddr) -> App {
        let at = free_port();
        let mut app = Command::new(command[0]);
        app.args(&command[1..]).current_dir(dir).env("COPPICE_SESSIONS_URL", format!("redis://{redis}"));
        app.env("HOST", "127.0.0.1").env("PORT", at.port().to_string());
        let child = app.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let app = App { at, child };
        wait_for("the program answers", Duration::from_secs(30), || {
            http::get(at, "/health").map(|_| ()).map_err(|e| e.to_string())
        });
        app
    }
}

impl Drop for App {
    fn drop(&mut self) {
        procs::kill(self.child.id(), Signal::KILL);
        let _ = self.child.wait();
    }
}
