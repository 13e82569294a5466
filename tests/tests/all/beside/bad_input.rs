//! Bad input at the doors of the real program: each gets a clear error or a bounded buffer, and another client, who
//! measures his own latency meanwhile on the same node, does not notice.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use e2e::probe::{Prober, Seen};
use e2e::procs::resident;
use e2e::resp::{Resp, Word};
use e2e::{Shared, Up, say, skip, wait_for};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

static ONE: Shared = Shared::beside(start);

const MIB: u64 = 1 << 20;
/// The largest value of class `session`.
const VALUE_BYTES_MAX: usize = 1 << 20;
/// What a shell gives a program.
const FILES_OF_A_SHELL: u64 = 1024;

/// One node, started with as few descriptors as a shell would give it; the clients, which are this process, have all they may.
fn start() -> Up {
    let have = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: have.maximum, ..have }).unwrap();
    let up = Up::bare_with_files(1, FILES_OF_A_SHELL.min(have.maximum.unwrap_or(u64::MAX)));
    up.apply("bad.toml", "[namespace.carts]\nclass = \"session\"\n").good();
    wait_for("the namespace is open", Duration::from_secs(5), || open(&up).map(drop));
    up
}

fn open(up: &Up) -> Result<Resp, String> {
    Resp::open(up.at(1).resp, "carts", &up.token("carts"))
}

/// Does harm while another client watches, first without and then with it.
#[track_caller]
fn unnoticed<T>(up: &Up, harm: impl FnOnce() -> T) -> T {
    let token = up.token("carts");
    let prober = || Prober::start(up.at(1).resp, "carts", &token);
    let quiet = prober();
    std::thread::sleep(Duration::from_millis(700));
    let quiet = quiet.seen();
    let watching = prober();
    let begun = Instant::now();
    let done = harm();
    // Enough operations for a percentile, however short the harm was.
    std::thread::sleep(Duration::from_secs(1).saturating_sub(begun.elapsed()));
    let seen = watching.seen();
    let shown = |s: &Seen| format!("p50 {:?} p99 {:?} slowest {:?} of {}", s.p50, s.p99, s.slowest, s.operations);
    say(&format!("another client: {}; before: {}", shown(&seen), shown(&quiet)));
    // A debug build beside compilers: what is looked for is a door that stands still, not a scheduler that is busy.
    assert!(seen.p99 <= 10 * quiet.p99 + Duration::from_millis(300), "another client noticed");
    assert!(seen.slowest < Duration::from_secs(1), "another client waited for a second");
    done
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

/// A connection that is let in, as a plain stream.
fn let_in(at: SocketAddr, token: &str) -> TcpStream {
    let mut stream = connect(at);
    stream.write_all(&command(&[b"AUTH", b"carts", token.as_bytes()])).unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
    stream
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Sends these bytes, of which the node need not take all, and reads until it closes.
#[track_caller]
fn said_at_the_end(mut stream: TcpStream, bytes: Vec<u8>) -> String {
    let mut sender = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || drop(sender.write_all(&bytes)));
    let mut said = Vec::new();
    let end = stream.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said).into_owned();
    if let Err(error) = end {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it was not closed, after {said:?}");
    }
    sending.join().unwrap();
    said
}

#[test]
fn a_command_that_is_wrong_is_told_what_would_be_right_and_the_next_one_works() {
    let up = ONE.take();
    let mut client = open(&up).unwrap();
    let large = "x".repeat(VALUE_BYTES_MAX + 1);
    let long_key = "k".repeat(70_000);
    unnoticed(&up, || {
        for (words, told) in [
            (vec!["NONSENSE"], "docs/resp.md"),
            (vec![""], "not offered"),
            (vec!["GET"], "wrong number of arguments"),
            (vec!["GET", "a", "b"], "wrong number of arguments"),
            (vec!["SET", "k", "v", "EX", "soon"], "integer"),
            (vec!["SET", "k", "v", "EX", "-1"], "expire"),
            (vec!["SET", "k", "v", "NONSENSE"], "syntax"),
            (vec!["SET", "k", &large], "1048576"),
            (vec!["SET", &long_key, "v"], "key"),
        ] {
            let answer = client.ask(&words).unwrap();
            let shown = format!("{:?}: {answer:?}", words[0]);
            let Word::Error(error) = answer else { panic!("{shown} was taken") };
            assert!(error.contains(told), "{shown}");
            assert!(error.len() < 500, "an error is read by a person: {} bytes", error.len());
            assert_eq!(client.ask(&["PING"]).unwrap(), Word::Simple("PONG".into()), "after {shown}");
        }
        let largest = &large[..VALUE_BYTES_MAX];
        assert_eq!(client.ask(&["SET", "largest", largest]).unwrap(), Word::Simple("OK".into()));
        assert_eq!(client.ask(&["GET", "largest"]).unwrap(), Word::Bulk(largest.into()));
    });
}

#[test]
fn what_is_not_the_protocol_is_told_so_and_closed() {
    let up = ONE.take();
    let (at, token) = (up.at(1).resp, up.token("carts"));
    let tls = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 120]].concat();
    let garbage: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 | 0x80).collect();
    let before = resident(up.node_pid(1));
    unnoticed(&up, || {
        for (bytes, told) in [
            (b"*2\r\n$3\r\nGET\r\n$2147483647\r\nabc".to_vec(), "an argument may have"),
            (b"*2\r\n$3\r\nGET\r\n$9223372036854775808\r\n".to_vec(), "invalid length"),
            (b"*2\r\n$3\r\nGET\r\n$-1\r\n".to_vec(), "invalid length"),
            (b"*2\r\n$3\r\nGET\r\n$-9223372036854775808\r\n".to_vec(), "invalid length"),
            (b"*1048577\r\n".to_vec(), "a command may have"),
            (b"*1\r\n".repeat(1_000_000), "expected '$', got '*'"),
            (b"*1\r\n$4\r\nPINGPONG".to_vec(), "does not end where its length says"),
            (garbage.clone(), "an inline command may have"),
            (tls.clone(), "without TLS"),
            (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), "not HTTP"),
            (b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\nSET k v\r\nSET k v\r\n".to_vec(), "not HTTP"),
        ] {
            for known in [true, false] {
                let stream = if known { let_in(at, &token) } else { connect(at) };
                let said = said_at_the_end(stream, bytes.clone());
                let shown = bytes[..bytes.len().min(40)].escape_ascii();
                assert!(said.starts_with("-ERR ") && said.contains(told), "{shown} (let in: {known}): {said:?}");
                assert_eq!(said.matches("\r\n").count(), 1, "{shown}: one error and no more: {said:?}");
            }
        }
    });
    let grown = resident(up.node_pid(1)).saturating_sub(before);
    assert!(grown < 16 * MIB, "{grown} bytes of memory for what was refused");
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let up = ONE.take();
    let mut stream = let_in(up.at(1).resp, &up.token("carts"));
    unnoticed(&up, || {
        let bytes = [command(&[b"SET", b"slow", b"honey"]), command(&[b"GET", b"slow"]), b"PING\r\n".to_vec()].concat();
        for byte in bytes {
            stream.write_all(&[byte]).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut answers = vec![0; "+OK\r\n$5\r\nhoney\r\n+PONG\r\n".len()];
        stream.read_exact(&mut answers).unwrap();
        assert_eq!(String::from_utf8(answers).unwrap(), "+OK\r\n$5\r\nhoney\r\n+PONG\r\n");
    });
}

#[test]
fn half_sent_large_commands_together_hold_a_bounded_part_of_memory() {
    const HALF: usize = 8 << 20;
    /// What all connections together may hold in unfinished commands (resp/limits.rs), doubled while a buffer grows.
    const ALLOWED: u64 = 320 * MIB;
    let up = ONE.take();
    let (at, token, pid) = (up.at(1).resp, up.token("carts"), up.node_pid(1));
    let before = resident(pid);
    let part = [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16777216\r\n"[..], &vec![b'x'; HALF]].concat();
    let refused = unnoticed(&up, || {
        let mut held = Vec::new();
        let mut refused = 0;
        for _ in 0..48 {
            let mut stream = let_in(at, &token);
            stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
            // Refused ones are cut off in the middle.
            let sent = stream.write_all(&part);
            stream.set_nonblocking(true).unwrap();
            let mut said = [0; 200];
            std::thread::sleep(Duration::from_millis(10));
            match stream.read(&mut said) {
                Ok(n) if n > 0 => {
                    let said = String::from_utf8_lossy(&said[..n]).into_owned();
                    assert!(said.starts_with("-BUSY too many large commands"), "{said}");
                    refused += 1;
                }
                Ok(_) => refused += 1,
                Err(e) if e.kind() == ErrorKind::WouldBlock && sent.is_ok() => held.push(stream),
                Err(_) => refused += 1,
            }
            let grown = resident(pid).saturating_sub(before);
            assert!(grown < ALLOWED, "{grown} bytes for {} halves", held.len());
        }
        refused
    });
    assert!((8..40).contains(&refused), "{refused} of 48 were refused");
    say(&format!("{refused} of 48 half commands of 8 MiB were refused"));
    // They are gone, and so is what they held: a large command works again.
    wait_for("a large command is taken again", Duration::from_secs(5), || {
        let value = "x".repeat(VALUE_BYTES_MAX);
        match open(&up)?.ask(&["SET", "large again", &value])? {
            Word::Simple(_) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

/// Has each of many clients do something, and measures what one costs the node: the middle one of the measures of 11 parts, as others
/// use the node too, and what one of them needs falls into few of these.
fn each_costs<T>(up: &Up, many: usize, mut part: impl FnMut(usize) -> Vec<T>) -> (u64, Vec<T>) {
    const PARTS: usize = 11;
    let (pid, mut all, mut each) = (up.node_pid(1), Vec::with_capacity(many), Vec::new());
    for _ in 0..PARTS {
        let before = resident(pid);
        all.extend(part(many / PARTS));
        each.push(resident(pid).saturating_sub(before) / (many / PARTS) as u64);
    }
    each.sort_unstable();
    say(&format!("bytes of the node's memory for each of {many}, in {PARTS} parts: {each:?}"));
    (each[PARTS / 2], all)
}

#[test]
fn five_thousand_idle_web_connections_cost_little_and_nobody_waits() {
    const IDLE: usize = 5_000;
    /// Of the node's own memory, in a debug build; the kernel's sockets come on top.
    const EACH_BYTES_MAX: u64 = 6 << 10;
    const ASK: &[u8] = b"GET /.coppice/x HTTP/1.1\r\nHost: a\r\n\r\n";
    let up = ONE.take();
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    if most < 2 * IDLE as u64 + 500 {
        return skip(&format!("only {most} open files are allowed here (ulimit -Hn)"));
    }
    let at = up.at(1).http;
    // All answers are as long as the first.
    let mut first = connect(at);
    first.write_all(&[&ASK[..ASK.len() - 2], b"Connection: close\r\n\r\n"].concat()).unwrap();
    let mut answer = Vec::new();
    first.read_to_end(&mut answer).unwrap();
    let bytes = answer.len() - "connection: close\r\n".len();
    let answered = |stream: &mut TcpStream| {
        let mut answer = vec![0; bytes];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 404 ") && answer.ends_with(b"\n"), "{}", answer.escape_ascii());
    };
    let (each, mut idle) = unnoticed(&up, || {
        each_costs(&up, IDLE, |many| {
            let mut some: Vec<TcpStream> = Vec::with_capacity(many);
            while some.len() < many {
                // Few at a time: what counts is what they cost when they have been answered.
                let from = some.len();
                for _ in 0..50.min(many - from) {
                    let mut stream = connect(at);
                    stream.write_all(ASK).unwrap();
                    some.push(stream);
                }
                some[from..].iter_mut().for_each(answered);
            }
            some
        })
    });
    assert!(each < EACH_BYTES_MAX, "{each} bytes for each");
    unnoticed(&up, || {
        for stream in idle.iter_mut().step_by(100) {
            stream.write_all(ASK).unwrap();
            answered(stream);
        }
    });
    unnoticed(&up, || drop(idle));
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_nobody_waits() {
    const IDLE: usize = 10_000;
    /// Of the node's own memory; the kernel's sockets come on top.
    const EACH_BYTES_MAX: u64 = 4 << 10;
    let up = ONE.take();
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    if most < IDLE as u64 + 500 {
        return skip(&format!("only {most} open files are allowed here (ulimit -Hn)"));
    }
    let (at, token, pid) = (up.at(1).resp, up.token("carts"), up.node_pid(1));
    let hello = command(&[b"AUTH", b"carts", token.as_bytes()]);
    let mut idle: Vec<TcpStream> = Vec::with_capacity(IDLE);
    let before = resident(pid);
    unnoticed(&up, || {
        while idle.len() < IDLE {
            let from = idle.len();
            for _ in 0..100 {
                let mut stream = connect(at);
                stream.write_all(&hello).unwrap();
                idle.push(stream);
            }
            for stream in &mut idle[from..] {
                let mut answer = [0; 5];
                stream.read_exact(&mut answer).unwrap_or_else(|e| panic!("connection {from} and more: {e}"));
                assert_eq!(&answer, b"+OK\r\n");
            }
        }
    });
    let each = resident(pid).saturating_sub(before) / IDLE as u64;
    say(&format!("{each} bytes of the node's memory for each of {IDLE} idle connections"));
    assert!(each < EACH_BYTES_MAX, "{each} bytes for each");
    unnoticed(&up, || {
        for stream in idle.iter_mut().step_by(100) {
            stream.write_all(b"PING\r\n").unwrap();
            let mut answer = [0; 7];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"+PONG\r\n");
        }
    });
    unnoticed(&up, || drop(idle));
    wait_for("they are forgotten", Duration::from_secs(10), || {
        let Word::Bulk(info) = open(&up)?.ask(&["INFO", "clients"])? else { return Err("no INFO".into()) };
        let count = info.lines().find_map(|l| l.strip_prefix("connected_clients:")?.parse::<u32>().ok());
        if count.is_some_and(|count| count < 10) { Ok(()) } else { Err(info) }
    });
}

#[test]
fn those_who_stand_still_hold_little_and_are_let_go() {
    const REQUESTS: usize = 100_000;
    /// Answers that wait for their reader, commands under way, and what the door reads ahead.
    const UNREAD_BYTES_MAX: u64 = 24 * MIB;
    let up = ONE.take();
    let (at, token, pid) = (up.at(1).resp, up.token("carts"), up.node_pid(1));
    open(&up).unwrap().ask(&["SET", "page", &"x".repeat(8 << 10)]).unwrap();
    let before = resident(pid);
    let (mut greedy, mut half, mut stranger) = (let_in(at, &token), let_in(at, &token), connect(at));
    unnoticed(&up, || {
        stranger.write_all(b"*3\r\n$4\r\nAUTH\r\n$5\r\nca").unwrap();
        half.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000\r\nxx").unwrap();
        let requests = command(&[b"GET", b"page"]).repeat(REQUESTS);
        greedy.set_nonblocking(true).unwrap();
        let (mut sent, begun) = (0, Instant::now());
        // The node stops reading, so at some point nothing more goes.
        while sent < requests.len() && begun.elapsed() < Duration::from_secs(3) {
            match greedy.write(&requests[sent..]) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(5)),
                Err(e) => panic!("{e}"),
            }
        }
        say(&format!("{sent} of {} bytes of requests went", requests.len()));
    });
    let grown = resident(pid).saturating_sub(before);
    say(&format!("{grown} bytes of the node's memory for a client that does not read"));
    assert!(grown < UNREAD_BYTES_MAX, "{grown} bytes");
    // A stranger has 30 s to say who he is, a client 60 s to take something of what he asked for.
    unnoticed(&up, || {
        stranger.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        let mut said = [0; 100];
        let end = stranger.read(&mut said).map_err(|e| e.kind());
        assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "not let go but {end:?}");
    });
    wait_for("the one who does not read is gone", Duration::from_secs(45), || match greedy.write(b"*") {
        Err(e) if e.kind() != ErrorKind::WouldBlock => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // Who was let in and is slow with a small command is in his right.
    half.write_all(&[b"x".repeat(998), b"\r\n".to_vec()].concat()).unwrap();
    let mut answer = [0; 5];
    half.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
}

#[test]
fn slow_web_clients_hold_little_and_are_let_go() {
    const SLOW: usize = 2_000;
    /// A task, which is large in a debug build, and what has come.
    const EACH_BYTES_MAX: u64 = 6 << 10;
    let up = ONE.take();
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    if most < SLOW as u64 + 500 {
        return skip(&format!("only {most} open files are allowed here (ulimit -Hn)"));
    }
    let at = up.at(1).http;
    let mut slow = unnoticed(&up, || {
        let (each, mut slow) = each_costs(&up, SLOW, |many| {
            let half = || {
                let mut stream = connect(at);
                stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ").unwrap();
                stream
            };
            (0..many).map(|_| half()).collect::<Vec<_>>()
        });
        assert!(each < EACH_BYTES_MAX, "{each} bytes for each");
        // Another byte is no progress. (On a slow machine the first have been let go by now.)
        for stream in &mut slow {
            let _ = stream.write_all(b"x");
        }
        let begun = Instant::now();
        let reply = e2e::http::get(at, "/").unwrap();
        assert_eq!(reply.status, 404, "nothing is declared here: {}", reply.text());
        // A node without any service waits a second for the first one to come.
        assert!(begun.elapsed() < Duration::from_secs(2), "another web client waited {:?}", begun.elapsed());
        slow
    });
    let told = unnoticed(&up, || {
        let told = |stream: &mut TcpStream| {
            stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
            let mut said = [0; 12];
            match stream.read_exact(&mut said) {
                Ok(()) => said == *b"HTTP/1.1 408",
                // Our last byte met a closed connection, and the answer is lost on our side.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
                Err(error) => panic!("not let go: {error}"),
            }
        };
        slow.iter_mut().map(told).filter(|told| *told).count()
    });
    assert!(told > SLOW / 2, "{told} of {SLOW} were told why");
}

#[test]
fn guessing_tokens_ends_each_connection_soon_and_slows_nobody() {
    let up = ONE.take();
    let at = up.at(1).resp;
    unnoticed(&up, || {
        let mut guesses = 0;
        for _ in 0..100 {
            let guess = command(&[b"AUTH", b"carts", b"0123456789012345678901234567890123456789"]);
            let said = said_at_the_end(connect(at), guess.repeat(100));
            let wrong = said.matches("-WRONGPASS").count();
            assert_eq!(said.lines().count(), wrong, "{said}");
            assert!((1..=8).contains(&wrong), "{wrong} guesses on one connection");
            guesses += wrong;
        }
        say(&format!("{guesses} guesses on 100 connections"));
    });
    let mut client = connect(at);
    client.write_all(b"GET page\r\n").unwrap();
    let mut said = [0; 7];
    client.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"-NOAUTH");
}
