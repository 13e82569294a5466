//! `coppice load` against small servers of the test's own: what was due is counted, a stall is not spared its requests, a trace
//! keeps its order and times, and the exit status says how it went.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::program::coppice;
use serde_json::Value;

/// What was asked, and when.
type Asked = Arc<Mutex<Vec<(Instant, String)>>>;

/// Answers each request with the status that `act` gives for its number, which may take its time.
fn server(act: impl Fn(usize) -> u16 + Send + Sync + 'static) -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (asked, act, number) = (Asked::default(), Arc::new(act), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (seen, act, number) = (Arc::clone(&seen), Arc::clone(&act), Arc::clone(&number));
            std::thread::spawn(move || serve(stream.unwrap(), &seen, &*act, &number));
        }
    });
    (at, asked)
}

fn serve(stream: TcpStream, seen: &Asked, act: &dyn Fn(usize) -> u16, number: &AtomicUsize) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let length = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok();
        let mut body = vec![0; head.lines().find_map(length).unwrap_or(0usize)];
        reader.read_exact(&mut body).ok()?;
        let line = format!("{} {}", head.lines().next()?, String::from_utf8_lossy(&body));
        seen.lock().unwrap().push((Instant::now(), line.replace(" HTTP/1.1", "").trim().to_owned()));
        let status = act(number.fetch_add(1, Relaxed));
        stream.write_all(format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok").as_bytes()).ok()?;
    }
}

struct Loaded {
    code: i32,
    out: String,
    err: String,
}

impl Loaded {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {:?} {:?}", self.out, self.err))
    }
}

/// Runs it, telling it these lines at these moments (milliseconds).
fn load(args: &[&str], say: &[(u64, &str)]) -> Loaded {
    let mut command = Command::new(coppice());
    command.arg("load").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let begun = Instant::now();
    for (at, line) in say {
        std::thread::sleep(Duration::from_millis(*at).saturating_sub(begun.elapsed()));
        writeln!(stdin, "{line}").unwrap();
    }
    // Kept open: its end is not a word.
    let out = child.wait_with_output().unwrap();
    drop(stdin);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Loaded { code: out.status.code().unwrap(), out: text(out.stdout), err: text(out.stderr) }
}

#[test]
fn what_was_due_is_sent_evenly_and_counted() {
    let _turn = e2e::alone();
    let (at, asked) = server(|_| 200);
    let loaded = load(&[&format!("http://{at}/a?b=1"), "--rate", "50", "--duration", "2s", "--json"], &[]);
    let json = loaded.json();
    assert_eq!((loaded.code, json["offered"].as_u64(), json["answered"].as_u64()), (0, Some(100), Some(100)), "{json}");
    assert_eq!((&json["statuses"]["200"], &json["failed"], &json["not_sent"]), (&100.into(), &0.into(), &0.into()));
    assert!(loaded.err.contains("    1 s  rate 50  offered 5"), "a line each second: {}", loaded.err);
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|(_, line)| line == "GET /a?b=1"), "{:?}", asked[0]);
    let took = asked[99].0 - asked[0].0;
    assert!((1900..6000).contains(&took.as_millis()), "100 at 50 a second: {took:?}");
}

#[test]
fn a_stall_is_not_spared_the_requests_of_its_time() {
    let _turn = e2e::alone();
    let (at, _) = server(|number| {
        if number == 20 {
            std::thread::sleep(Duration::from_secs(1));
        }
        200
    });
    let url = format!("http://{at}/");
    let json = load(&[&url, "--rate", "100", "--duration", "2s", "--connections", "1", "-q", "--json"], &[]).json();
    let us = |of: &str, figure: &str| json[of][figure].as_u64().unwrap();
    // One request was slow to who counts from when it was sent; about half of them to who waits for an answer.
    assert!(us("service_us", "p90") < 400_000, "{json}");
    assert!(us("latency_us", "p90") > 500_000 && us("latency_us", "max") >= 990_000, "{json}");
    assert_eq!(json["answered"], 200);
}

#[test]
fn the_exit_status_says_how_it_went() {
    let _turn = e2e::alone();
    let (bad, _) = server(|number| if number == 3 { 503 } else { 200 });
    let loaded = load(&[&format!("http://{bad}/"), "--rate", "20", "--duration", "500ms", "-q"], &[]);
    assert_eq!(loaded.code, 3, "{}", loaded.out);
    assert!(loaded.out.contains("9 with 200, 1 with 503") && loaded.out.contains("failed 1"), "{}", loaded.out);
    let (slow, _) = server(|_| {
        std::thread::sleep(Duration::from_secs(2));
        200
    });
    let few =
        ["--rate", "20", "--duration", "500ms", "--timeout", "300ms", "--connections", "2", "--waiting", "3", "--json"];
    let loaded = load(&[&[&*format!("http://{slow}/")], &few[..]].concat(), &[]);
    let json = loaded.json();
    assert_eq!((loaded.code, json["offered"].as_u64(), json["answered"].as_u64()), (3, Some(10), Some(0)), "{json}");
    let of = |name: &str| json[name].as_u64().unwrap();
    assert!(of("not_sent") > 0 && json["failures"]["timeout"].as_u64() > Some(1), "{json}");
    assert_eq!(of("failed") + of("not_sent"), 10);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let loaded = load(&[&format!("http://{nobody}/")], &[]);
    assert!(loaded.code == 1 && loaded.err.contains("cannot reach"), "{} {}", loaded.code, loaded.err);
    let loaded = load(&["http://192.0.2.1/"], &[]);
    assert!(loaded.code == 1 && loaded.err.contains("--remote"), "{} {}", loaded.code, loaded.err);
    for wrong in [["http://127.0.0.1/", "--rate", "fast"], ["https://127.0.0.1/", "--rate", "10"]] {
        assert_eq!(load(&wrong, &[]).code, 2, "{wrong:?}");
    }
    assert_eq!(load(&["http://127.0.0.1/", "--trace", "day.csv", "--poisson"], &[]).code, 2);
}

#[test]
fn the_rate_is_changed_while_it_runs() {
    let _turn = e2e::alone();
    let (at, asked) = server(|_| 200);
    let begun = Instant::now();
    let words = [(1000, "rate 200"), (1100, "louder"), (2000, "stop")];
    let args = [&*format!("http://{at}/"), "--rate", "10", "--duration", "1h", "--control", "--json"];
    let loaded = load(&args, &words);
    assert!(loaded.code == 0 && begun.elapsed() < Duration::from_secs(20), "{}", loaded.err);
    assert!(loaded.err.contains("\"louder\" is not understood: say `rate 500` or `stop`"), "{}", loaded.err);
    let asked = asked.lock().unwrap();
    let slow = asked.iter().filter(|(when, _)| *when - begun < Duration::from_millis(900)).count();
    assert!(slow <= 12, "ten a second at first: {slow}");
    assert!((100..=400).contains(&asked.len()), "200 a second afterwards: {}", asked.len());
}

#[test]
fn a_trace_is_played_in_its_order_and_times() {
    let _turn = e2e::alone();
    let folder = std::env::temp_dir().join(format!("coppice-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("trace.jsonl");
    let lines = "{\"time\": 90, \"path\": \"/one\"}\n{\"time\": 90.5, \"method\": \"POST\", \"path\": \"/two\", \"body\": \"x\"}\n\
                 {\"time\": 92, \"path\": \"/three\"}\n";
    std::fs::write(&file, lines).unwrap();
    let (at, asked) = server(|_| 200);
    let (url, name) = (format!("http://{at}/"), file.display().to_string());
    let loaded = load(&[&url, "--trace", &name, "--speed", "2", "--json", "-q"], &[]);
    assert_eq!((loaded.code, loaded.json()["answered"].as_u64()), (0, Some(3)), "{}", loaded.err);
    {
        let asked = asked.lock().unwrap();
        let lines: Vec<&str> = asked.iter().map(|(_, line)| line.as_str()).collect();
        assert_eq!(lines, ["GET /one", "POST /two x", "GET /three"]);
        let gaps = [asked[1].0 - asked[0].0, asked[2].0 - asked[1].0].map(|gap| gap.as_millis());
        assert!((150..700).contains(&gaps[0]) && (600..1500).contains(&gaps[1]), "250 and 750 ms: {gaps:?}");
    }
    std::fs::write(&file, "1,GET,/\n0,GET,/\n").unwrap();
    let loaded = load(&[&url, "--trace", &name], &[]);
    assert!(loaded.code == 1 && loaded.err.contains("line 2: is earlier"), "{} {}", loaded.code, loaded.err);
    std::fs::remove_dir_all(&folder).unwrap();
}
