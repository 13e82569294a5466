//! Class `soft` by the Redis protocol and over HTTP: what is written at one node is read at all, also while one of them is killed and when it
//! is back.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use e2e::procs::{Signal, kill};
use e2e::resp::{Resp, Word};
use e2e::sse::Sse;
use e2e::{Up, http, wait_for};

const SOON: Duration = Duration::from_secs(20);

/// How an answer is written down here: `3`, `"text"`, `nil`, `+OK`, `[a b]`, or an error's text.
fn shown(word: &Word) -> String {
    match word {
        Word::Simple(text) => format!("+{text}"),
        Word::Error(text) => format!("-{text}"),
        Word::Int(n) => n.to_string(),
        Word::Bulk(text) => format!("\"{text}\""),
        Word::Nil => "nil".into(),
        Word::List(words) => format!("[{}]", words.iter().map(shown).collect::<Vec<_>>().join(" ")),
    }
}

fn asked(resp: &mut Resp, command: &str) -> String {
    shown(&resp.ask(&command.split(' ').collect::<Vec<_>>()).unwrap())
}

/// Each line: a command, and how its answer begins.
fn script(resp: &mut Resp, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (command, answer) = line.split_once(" => ").unwrap();
        let said = asked(resp, command);
        assert!(
            said == answer || answer.starts_with('-') && said.starts_with(answer),
            "{command}: {said}, not {answer}"
        );
    }
}

/// What all nodes read, a moment after it was written.
const READ: &str = r#"
    GET flag => "on"
    GET visits => "7"
    HGET cart:7 honey => "2"
    SMEMBERS online => ["ann" "bob"]
    ZRANGE seen 0 -1 => ["bob" "ann"]
    TYPE online => +set
    EXISTS flag none visits => 2
    LRANGE recent 0 -1 => ["c" "a" "b"]
"#;

fn reads(resp: &mut Resp) -> Result<(), String> {
    for line in READ.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (command, answer) = line.split_once(" => ").unwrap();
        let said = shown(&resp.ask(&command.split(' ').collect::<Vec<_>>())?);
        if said != answer {
            return Err(format!("{command}: {said}, not {answer}"));
        }
    }
    Ok(())
}

#[test]
fn every_node_reads_what_one_wrote_and_a_killed_one_is_not_missed() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("floor.toml", "[namespace.floor]\nclass = \"soft\"\n").good();
    let token = up.token("floor");
    let open = |n: u8| Resp::open(up.at(n).resp, "floor", &token);
    let mut nodes: Vec<Resp> = (1..=3).map(|n| open(n).unwrap()).collect();
    script(
        &mut nodes[0],
        "SET flag on => +OK\nINCRBY visits 3 => 3\nHINCRBY cart:7 honey 1 => 1\nSADD online ann => 1",
    );
    wait_for("the second node has it", SOON, || match asked(&mut nodes[1], "GET visits").as_str() {
        "\"3\"" => Ok(()),
        other => Err(other.to_owned()),
    });
    script(
        &mut nodes[1],
        "INCRBY visits 4 => 7\nHINCRBY cart:7 honey 1 => 2\nZADD seen 2 ann 1 bob => 2\nRPUSH recent a b => 2",
    );
    wait_for("the third node has it", SOON, || match asked(&mut nodes[2], "LLEN recent").as_str() {
        "2" => Ok(()),
        other => Err(other.to_owned()),
    });
    script(&mut nodes[2], "SADD online bob => 1\nLPUSH recent c => 3");
    for resp in &mut nodes {
        wait_for("all nodes read the same", SOON, || reads(resp));
    }
    kinds(&mut nodes[0]);
    over_http(&up, &token);
    expires(&mut nodes[0], &mut open(2).unwrap());
    let (held, _other) = (hold(&up, 1, &token, "ann"), hold(&up, 3, &token, "bob"));
    let here = |resp: &mut Resp, what: &str, wanted: &str| {
        wait_for(what, SOON, || match asked(resp, "SMEMBERS here").as_str() {
            said if said == wanted => Ok(()),
            other => Err(other.to_owned()),
        });
    };
    here(&mut nodes[1], "both are held", "[\"ann\" \"bob\"]");
    drop(held);
    here(&mut nodes[1], "one is gone with its connection", "[\"bob\"]");

    // One ends without a word: no read fails elsewhere, nor a write.
    let before = up.node_pid(3);
    kill(before, Signal::KILL);
    for n in 0..200 {
        script(&mut nodes[n % 2], "GET flag => \"on\"\nHGET cart:7 honey => \"2\"");
        let set = asked(&mut nodes[n % 2], &format!("SET k{n} v"));
        assert_eq!(set, "+OK");
    }
    here(&mut nodes[1], "what was held at it is gone", "[]");
    // It is started anew, and has what was written meanwhile before it says anything.
    wait_for("the third node is back", SOON, || {
        if up.node_pid_now(3).is_none_or(|pid| pid == before) {
            return Err("it is not".into());
        }
        let mut resp = open(3)?;
        match shown(&resp.ask(&["GET", "k199"])?).as_str() {
            "\"v\"" => Ok(()),
            other => {
                assert_ne!(other, "nil", "its emptiness is told as truth");
                Err(other.to_owned())
            }
        }
    });
    reads(&mut open(3).unwrap()).unwrap();
    script(&mut nodes[0], "FLUSHDB ASYNC => +OK\nDBSIZE => 0");
    wait_for("all is removed everywhere", SOON, || match asked(&mut nodes[1], "DBSIZE").as_str() {
        "0" => Ok(()),
        other => Err(other.to_owned()),
    });
}

/// Whose time has come is told once, at another node, too.
fn expires(resp: &mut Resp, hears: &mut Resp) {
    hears.ask(&["SUBSCRIBE", "__keyevent@0__:expired"]).unwrap();
    script(
        resp,
        "HSET gone f 1 g 2 => 2\nHSET kept f 1 => 1\nPEXPIRE gone 50 => 1\nDEL kept => 1\nSET later v PX 400 => +OK",
    );
    for key in ["gone", "later"] {
        assert_eq!(shown(&hears.hear().unwrap()), format!("[\"message\" \"__keyevent@0__:expired\" \"{key}\"]"));
    }
}

/// A member that is there as long as the connection.
fn hold(up: &Up, n: u8, token: &str, member: &str) -> TcpStream {
    let at = up.at(n).api;
    let mut stream = TcpStream::connect(at).unwrap();
    let body = format!(r#"{{"members": ["{member}"]}}"#);
    let head = format!("POST /v1/ns/floor/hold/here HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\n");
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut said = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while !said.contains("event: held") {
        assert!(reader.read_line(&mut said).unwrap() > 0 && !said.contains("HTTP/1.1 4"), "{said}");
    }
    stream
}

/// What is written over HTTP at one node is read at the others, and told to who watches there.
fn over_http(up: &Up, token: &str) {
    let bearer = format!("Bearer {token}");
    let ask = |n: u8, method: &str, path: &str, body: &str| {
        let headers = [("authorization", bearer.as_str())];
        http::request(up.at(n).api, method, &format!("/v1/ns/floor/{path}"), &headers, body.as_bytes()).unwrap()
    };
    let mut watch = Sse::open(up.at(3).api, "/v1/ns/floor/watch?prefix=http/", token, None).unwrap();
    let begins = watch.next().unwrap();
    assert_eq!(begins.name, "cursor", "{begins:?}");
    assert_eq!(ask(1, "PUT", "keys/http/flag", "on").status, 204);
    let add = r#"{"function": "set.add", "args": ["ann"]}"#;
    assert_eq!(ask(2, "POST", "apply/http/set", add).json().unwrap()["result"], 1);
    // What node 1 had acknowledged is known to node 2, as that has heard of it since.
    let read = ask(2, "GET", "keys/http/flag?stale=10s", "");
    let age = read.header("coppice-age-ms").and_then(|age| age.parse::<u64>().ok());
    assert!(read.status == 200 && age.is_some_and(|age| age <= 10_000), "{} {age:?}", read.status);
    assert_eq!(ask(2, "GET", "keys/http/flag?stale=0ms", "").status, 503, "nobody knows so soon");
    // A node that may know too little asks another one, which mostly may, too.
    wait_for("some node knows what there was a moment ago", SOON, || {
        let read = ask(2, "GET", "keys/http/flag?stale=100ms", "");
        let age = read.header("coppice-age-ms").and_then(|age| age.parse::<u64>().ok());
        match read.status {
            200 if read.text() == "on" && age.is_some_and(|age| age <= 100) => Ok(()),
            503 => Err("none does".into()),
            other => panic!("{other} {age:?}"),
        }
    });
    // What is asked for so soon after a look at the others is mostly not known here.
    wait_for("it was passed on", SOON, || {
        ask(2, "GET", "keys/http/flag?stale=20ms", "");
        let figures = http::get(up.at(2).api, "/metrics").map_err(|e| e.to_string())?.text();
        let passed =
            figures.lines().find_map(|line| line.strip_prefix("coppice_soft_passed_total ")?.parse::<u64>().ok());
        passed.filter(|passed| *passed > 0).map(|_| ()).ok_or_else(|| "it was not".into())
    });
    let mut told = Vec::new();
    while told.len() < 2 {
        let event = watch.next().unwrap();
        told.extend((event.name == "put").then(|| event.data["key"].as_str().unwrap().to_owned()));
    }
    told.sort();
    assert_eq!(told, ["http/flag", "http/set"]);
    assert_eq!(ask(3, "GET", "keys/http/flag", "").text(), "on");
    // Who was told at one node goes on at another.
    wait_for("the first node has both", SOON, || match ask(1, "GET", "keys/http/set", "").status {
        409 => Ok(()),
        other => Err(other.to_string()),
    });
    let place = format!("/v1/ns/floor/watch?prefix=http/&after={}", begins.id.unwrap());
    let mut other = Sse::open(up.at(1).api, &place, token, None).unwrap();
    let names: Vec<String> = (0..3).map(|_| other.next().unwrap().name).collect();
    assert_eq!(names, ["put", "put", "cursor"]);
    assert_eq!(ask(3, "DELETE", "keys/http/set", "").status, 204);
    assert_eq!(ask(3, "DELETE", "keys/http/flag", "").status, 204);
    wait_for("the removals are told", SOON, || match other.next()?.name.as_str() {
        "remove" => Ok(()),
        other => Err(other.to_owned()),
    });
    wait_for("the first node has them", SOON, || match ask(1, "GET", "keys/http/flag", "").status {
        404 if ask(1, "GET", "keys/http/set", "").status == 404 => Ok(()),
        other => Err(other.to_string()),
    });
}

/// Commands and their answers at one node.
fn kinds(resp: &mut Resp) {
    script(
        resp,
        r#"
        SET s v EX 100 => +OK
        TTL s => 100
        SET s w KEEPTTL => +OK
        TTL s => 100
        PERSIST s => 1
        TTL s => -1
        TTL none => -2
        EXPIRE s 0 => 1
        GET s => nil
        MSET a 1 b 2 => +OK
        MGET a none b online => ["1" nil "2" nil]
        DEL a b none => 2
        INCR online => -WRONGTYPE
        SET text abc => +OK
        INCR text => -ERR value is not an integer
        HSET h f 1 g 2 => 2
        HSET h f 3 => 0
        HGETALL h => ["f" "3" "g" "2"]
        HMGET h f x => ["3" nil]
        HLEN h => 2
        HDEL h f x => 1
        HEXISTS h f => 0
        SADD set a b c => 3
        SREM set b => 1
        SCARD set => 2
        SISMEMBER set a => 1
        SMISMEMBER set a b => [1 0]
        ZADD z 1.5 a 3 b 2 c => 3
        ZADD z 0.5 b => 0
        ZRANGE z 0 -1 WITHSCORES => ["b" "0.5" "a" "1.5" "c" "2"]
        ZRANGE z 0 0 REV => ["c"]
        ZRANGE z (0.5 inf BYSCORE LIMIT 1 5 => ["c"]
        ZRANGE z 2 -inf BYSCORE REV => ["c" "a" "b"]
        ZSCORE z a => "1.5"
        ZRANK z c => 2
        ZREVRANK z c => 0
        ZCOUNT z (0.5 2 => 2
        ZREM z a => 1
        ZCARD z => 2
        TYPE z => +zset
        RPUSH l a b c a => 4
        LINSERT l BEFORE b x => 5
        LSET l -1 d => +OK
        LSET l 9 d => -ERR index out of range
        LSET none 0 d => -ERR no such key
        LINDEX l 1 => "x"
        LPOS l d => 4
        LREM l 0 x => 1
        LTRIM l 1 -1 => +OK
        LPUSHX none x => 0
        LRANGE l 0 -1 => ["b" "c" "d"]
        LLEN l => 3
        TYPE l => +list
        ZADD z NX 1 a => -ERR ZADD with NX is not offered by class soft: two nodes could both succeed
        SET s v NX => -ERR SET with a condition is not offered by class soft: two nodes could both succeed
        SETNX s v => -ERR 'SETNX' is not offered by class soft: two nodes could both succeed
        LPOP l => -ERR 'LPOP' is not offered by class soft: two nodes could both succeed
        SPOP set => -ERR 'SPOP' is not offered by class soft: two nodes could both succeed
        MULTI => -ERR 'MULTI' is not offered by class soft: nodes do not wait
        TOUCH text none set => 2
        EXPIRETIME text => -1
        PEXPIRETIME none => -2
        HSCAN h 0 => ["0" ["g" "2"]]
        HSCAN h 0 NOVALUES => ["0" ["g"]]
        HRANDFIELD h => "g"
        HRANDFIELD h 5 WITHVALUES => ["g" "2"]
        HRANDFIELD h -2 => ["g" "g"]
        SADD other c d => 2
        SSCAN set 0 MATCH c => ["0" ["c"]]
        SSCAN none 0 => ["0" []]
        SRANDMEMBER none => nil
        SRANDMEMBER set 0 => []
        SUNION set none other => ["a" "c" "d"]
        SINTER set other => ["c"]
        SDIFF set other => ["a"]
        SINTERCARD 2 set other LIMIT 5 => 1
        SUNION set h => -WRONGTYPE
        DEL other => 1
        ZSCAN z 0 MATCH c => ["0" ["c" "2"]]
        ZRANDMEMBER none 3 => []
        ZRANGEBYSCORE z (0.5 +inf WITHSCORES => ["c" "2"]
        ZREVRANGEBYSCORE z 3 0 LIMIT 1 5 => ["b"]
        ZREVRANGE z 0 0 => ["c"]
        ZREVRANGE z 0 -1 REV => -ERR syntax error
        KEYS se? => ["set"]
        DEL text h set z l => 5
        SCAN 0 COUNT 100 TYPE zset => ["0" ["seen"]]
        DBSIZE => 6
        "#,
    );
}
