//! Clients that write a whole pipeline before they read the first answer of it, through the real program, in both classes: they
//! are answered as by Redis, and those that ask for more than a node keeps are told so.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use e2e::{Shared, Up, http, wait_for};

static UP: Shared = Shared::alone(|| {
    let up = Up::bare(3);
    let (carts, bank) = ("[namespace.carts]\nclass = \"session\"\n", "[namespace.bank]\nclass = \"linear\"\n");
    up.apply("both.toml", &format!("{carts}\n{bank}")).good();
    up.linear(1, "bank", &up.token("bank"));
    up
});

/// With a debug binary beside a compiler. Nothing that hangs comes so far.
const WITHIN: Duration = Duration::from_secs(300);

fn line(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend([format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
    }
    bytes
}

/// A connection to the first node that has stored a value.
fn stored(up: &Up, namespace: &str, key: &[u8], value: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(up.at(1).resp).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream.set_write_timeout(Some(WITHIN)).unwrap();
    let hello = line(&[b"AUTH", namespace.as_bytes(), up.token(namespace).as_bytes()]);
    stream.write_all(&[hello, line(&[b"SET", key, value])].concat()).unwrap();
    let mut got = [0; 10];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"+OK\r\n+OK\r\n");
    stream
}

#[test]
fn whoever_writes_a_whole_pipeline_before_reading_is_answered() {
    let up = UP.take();
    let (key, value) = ([b'k'; 250], [b'v'; 1000]);
    let answer = [b"$1000\r\n", &value[..], b"\r\n"].concat();
    for (namespace, count) in [("carts", 20_000), ("carts", 60_000), ("bank", 20_000)] {
        let mut stream = stored(&up, namespace, &key, &value);
        stream.write_all(&line(&[b"GET", &key]).repeat(count)).unwrap();
        let mut got = vec![0; answer.len()];
        for n in 0..count {
            stream.read_exact(&mut got).unwrap_or_else(|error| panic!("{namespace}: {n} of {count}: {error}"));
            assert!(got == answer, "{namespace}: {n} of {count}: {}", String::from_utf8_lossy(&got));
        }
    }
}

/// Operations of class `linear` that the first node's Redis door has begun, as it last told.
fn begun(up: &Up) -> Result<u64, String> {
    let metrics = http::get(up.at(1).api, "/metrics").map_err(|error| error.to_string())?.text();
    let name = "coppice_stage_started_total{stage=\"resp-linear\"}";
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)).ok_or("it tells nothing of them yet")?;
    line.trim().parse().map_err(|_| line.to_owned())
}

#[test]
fn a_pipeline_of_one_key_waits_for_a_majority_a_few_times() {
    let up = UP.take();
    let mut stream = stored(&up, "bank", b"counted", b"0");
    let (before, _) = wait_for("figures", Duration::from_secs(60), || begun(&up));
    stream.write_all(&line(&[b"INCR", b"counted"]).repeat(100)).unwrap();
    let answers: String = (1..=100).map(|n| format!(":{n}\r\n")).collect();
    let mut got = vec![0; answers.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), answers);
    // One after the other, so that each is an operation.
    for n in 101..=105 {
        stream.write_all(&line(&[b"INCR", b"counted"])).unwrap();
        let mut got = [0; 6];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(String::from_utf8_lossy(&got), format!(":{n}\r\n"));
    }
    let (after, _) = wait_for("all are counted", Duration::from_secs(60), || {
        let after = begun(&up)?;
        if after >= before + 6 { Ok(after) } else { Err(format!("{after}")) }
    });
    // One of the node's own, or from before the first look, may be among them.
    assert!(after <= before + 30, "{} operations for 100 commands that came at once", after - before);
}

#[test]
fn whoever_asks_for_more_than_a_node_keeps_and_does_not_read_is_told_so() {
    let up = UP.take();
    let value = vec![b'v'; 1 << 20];
    let mut stream = stored(&up, "carts", b"large", &value);
    stream.write_all(&line(&[b"GET", b"large"]).repeat(200)).unwrap();
    wait_for("it is given up", Duration::from_secs(60), || {
        let metrics = http::get(up.at(1).api, "/metrics").map_err(|error| error.to_string())?.text();
        let line = metrics.lines().find(|line| line.starts_with("coppice_resp_unread_closed_total"));
        if line.is_some_and(|line| line.ends_with(" 1")) { Ok(()) } else { Err(format!("{line:?}")) }
    });
    let mut got = vec![];
    stream.read_to_end(&mut got).unwrap();
    let (answers, why) = got.split_at(got.iter().rposition(|byte| *byte == b'-').expect("an error"));
    let count = answers.len() / (b"$1048576\r\n\r\n".len() + value.len());
    assert!((65..200).contains(&count), "{count} answers");
    assert!(
        why.starts_with(b"-ERR too many answers are unread: a connection may have 65 MiB"),
        "{}",
        why.escape_ascii()
    );
}
