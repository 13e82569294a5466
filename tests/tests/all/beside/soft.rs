//! Class `soft` by the Redis protocol: what is written at one node is read at all, also while one of them is killed and when it
//! is back.

use std::time::Duration;

use e2e::procs::{Signal, kill};
use e2e::resp::{Resp, Word};
use e2e::{Up, wait_for};

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
    script(&mut nodes[1], "INCRBY visits 4 => 7\nHINCRBY cart:7 honey 1 => 2\nZADD seen 2 ann 1 bob => 2");
    script(&mut nodes[2], "SADD online bob => 1");
    for resp in &mut nodes {
        wait_for("all nodes read the same", SOON, || reads(resp));
    }
    kinds(&mut nodes[0]);

    // One ends without a word: no read fails elsewhere, nor a write.
    let before = up.node_pid(3);
    kill(before, Signal::KILL);
    for n in 0..200 {
        script(&mut nodes[n % 2], "GET flag => \"on\"\nHGET cart:7 honey => \"2\"");
        let set = asked(&mut nodes[n % 2], &format!("SET k{n} v"));
        assert_eq!(set, "+OK");
    }
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
        ZADD z NX 1 a => -ERR ZADD with NX is not offered by class soft: two nodes could both succeed
        SET s v NX => -ERR SET with a condition is not offered by class soft: two nodes could both succeed
        SETNX s v => -ERR 'SETNX' is not offered by class soft: two nodes could both succeed
        LPOP l => -ERR 'LPOP' is not offered by class soft: two nodes could both succeed
        SPOP set => -ERR 'SPOP' is not offered by class soft: two nodes could both succeed
        MULTI => -ERR 'MULTI' is not offered by class soft: nodes do not wait
        DEL text h set z => 4
        SCAN 0 COUNT 100 TYPE zset => ["0" ["seen"]]
        DBSIZE => 5
        "#,
    );
}
