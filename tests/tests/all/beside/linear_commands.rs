//! Redis commands of class `linear` and their answers, through the real program: what each gives with its options, what
//! stands inside of MULTI, and what is refused where keys lie in several shards.

use e2e::resp::{Resp, Word};
use e2e::{Shared, Up};

static UP: Shared = Shared::beside(|| {
    let up = Up::bare(3);
    up.apply(
        "bank.toml",
        "[namespace.one]\nclass = \"linear\"\nshards = 1\n\n[namespace.three]\nclass = \"linear\"\nshards = 3\n",
    )
    .good();
    up
});

fn open(up: &Up, n: u8, namespace: &str) -> Resp {
    let mut resp = up.linear(n, namespace, &up.token(namespace));
    resp.ask(&["FLUSHDB"]).unwrap();
    resp
}

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

/// Each line: a command, and how its answer begins.
fn script(resp: &mut Resp, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (command, answer) = line.split_once(" => ").unwrap();
        let said = shown(&resp.ask(&command.split(' ').collect::<Vec<_>>()).unwrap());
        assert!(
            said == answer || answer.starts_with('-') && said.starts_with(answer),
            "{command}: {said}, not {answer}"
        );
    }
}

#[test]
fn lists_sets_and_hashes_with_all_their_options() {
    let up = UP.take();
    script(
        &mut open(&up, 2, "one"),
        r#"
        RPUSH l a b c b => 4
        LPOS l b => 1
        LPOS l b RANK -1 => 3
        LPOS l b COUNT 0 => [1 3]
        LPOS l b COUNT 0 MAXLEN 2 => [1]
        LPOS l z => nil
        LPOS l z COUNT 1 => []
        LPOS l b RANK 0 => -ERR RANK can't be zero
        LMPOP 2 none l LEFT => ["l" ["a"]]
        LMPOP 2 none l RIGHT COUNT 9 => ["l" ["b" "c" "b"]]
        LMPOP 1 l LEFT => nil
        LMPOP 0 l LEFT => -ERR numkeys
        LMPOP 3 l LEFT => -ERR Number of keys
        LMPOP 1 l LEFT COUNT 0 => -ERR count should be greater than 0
        LMPOP 1 l MIDDLE => -ERR syntax error
        LPOP none 3 => nil
        LPOP l 1 2 => -ERR wrong number of arguments
        RPUSH l 1 2 3 => 3
        BLMPOP 1 2 none l LEFT COUNT 2 => ["l" ["1" "2"]]
        BLMPOP 0.05 1 none RIGHT => nil
        BLMPOP -1 1 none RIGHT => -ERR timeout is negative
        SADD a 1 2 3 => 3
        SADD b 2 3 4 => 3
        SINTERCARD 2 a b => 2
        SINTERCARD 2 a b LIMIT 1 => 1
        SINTERCARD 2 a b LIMIT -1 => -ERR LIMIT can't be negative
        SINTERCARD 3 a b => -ERR Number of keys
        SINTERSTORE d a b => 2
        SMEMBERS d => ["2" "3"]
        SUNIONSTORE d a b => 4
        SDIFFSTORE d a b => 1
        SMEMBERS d => ["1"]
        SINTERSTORE d a none => 0
        EXISTS d => 0
        SUNIONSTORE d a l => -WRONGTYPE
        SADD only x => 1
        SRANDMEMBER only -3 => ["x" "x" "x"]
        SRANDMEMBER only 3 => ["x"]
        SRANDMEMBER only -99999 => -ERR value is out of range
        ZADD z 1 a 2 b 2.5 c => 3
        ZRANGE z (1 +inf BYSCORE LIMIT 0 1 WITHSCORES => ["b" "2"]
        ZRANGESTORE d z 0 1 REV => 2
        ZUNION 2 z d WITHSCORES AGGREGATE MAX => ["a" "1" "b" "2" "c" "2.5"]
        ZMPOP 2 none z MAX => ["z" [["c" "2.5"]]]
        BZPOPMIN none z 1 => ["z" "a" "1"]
        BZPOPMIN none 0.05 => nil
        ZADD l 1 a => -WRONGTYPE
        DEL z d => 2
        HSET h f v => 1
        HRANDFIELD h => "f"
        HRANDFIELD h -2 => ["f" "f"]
        HRANDFIELD h 2 WITHVALUES => ["f" "v"]
        HRANDFIELD none => nil
        HRANDFIELD none 2 => []
        HSCAN h 0 NOVALUES => ["0" ["f"]]
        HSCAN h 0 => ["0" ["f" "v"]]
        HGETDEL h FIELDS 2 f g => ["v" nil]
        HGETDEL h FIELDS 3 f => -ERR The `numfields` parameter
        EXISTS h => 0
        "#,
    );
}

/// Whoever listens at another node hears it, and no node shows what has ended.
#[test]
fn fields_of_hashes_end_by_themselves() {
    let up = UP.take();
    let mut resp = open(&up, 1, "one");
    let mut listener = up.linear(2, "one", &up.token("one"));
    listener.ask(&["SUBSCRIBE", "__keyspace@0__:h"]).unwrap();
    script(
        &mut resp,
        r#"
        HSET h a 1 b 2 c 3 => 3
        HEXPIRE h 1000 FIELDS 2 b none => [1 -2]
        HPEXPIRE h 200 FIELDS 1 a => [1]
        HPERSIST h FIELDS 2 b c => [1 -1]
        "#,
    );
    let hear = |listener: &mut Resp, words: &[&str]| {
        for word in words {
            let message = shown(&listener.hear().unwrap());
            assert_eq!(message, format!(r#"["message" "__keyspace@0__:h" "{word}"]"#));
        }
    };
    hear(&mut listener, &["hset", "hexpire", "hexpire", "hpersist", "hexpired"]);
    let mut other = up.linear(3, "one", &up.token("one"));
    script(
        &mut other,
        r#"
        HGETALL h => ["b" "2" "c" "3"]
        HLEN h => 2
        HTTL h FIELDS 2 a b => [-2 -1]
        COPY h copied => 1
        HPEXPIRE h 100 FIELDS 2 b c => [1 1]
        "#,
    );
    hear(&mut listener, &["hexpire", "hexpired", "del"]);
    script(
        &mut other,
        "EXISTS h copied => 1\nHPTTL copied FIELDS 1 b => [-1]\nEVAL return(redis.call('HSETEX',KEYS[1],'EX','90','FIELDS','1','a','1')) 1 h => 1",
    );
    hear(&mut listener, &["hset", "hexpire"]);
}

#[test]
fn bits_ends_copies_and_keys() {
    let up = UP.take();
    let mut resp = open(&up, 3, "one");
    script(
        &mut resp,
        r#"
        SET a abc => +OK
        BITCOUNT a => 10
        BITCOUNT a 1 1 => 3
        BITCOUNT a 0 7 BIT => 3
        BITCOUNT a 1 => -ERR syntax error
        BITCOUNT a 0 1 WORD => -ERR syntax error
        BITPOS a 1 => 1
        BITPOS a 0 1 => 8
        BITPOS a 1 8 -1 BIT => 9
        BITPOS a 2 => -ERR The bit argument must be 1 or 0.
        SET b AB => +OK
        BITOP AND d a b => 3
        GETRANGE d 0 1 => "AB"
        BITOP NOT d a b => -ERR BITOP NOT
        SETBIT a 7 2 => -ERR bit is not an integer or out of range
        SETBIT a -1 1 => -ERR bit offset is not an integer or out of range
        SETBIT a 4294967296 1 => -ERR bit offset is not an integer or out of range
        SETRANGE a -1 x => -ERR offset is out of range
        SETRANGE a 99999999 x => -ERR string exceeds maximum allowed size
        INCRBYFLOAT n +inf => -ERR increment would produce NaN or Infinity
        COPY a c DB 0 => 1
        COPY a c => 0
        COPY a c DB 0 REPLACE => 1
        COPY a c DB 1 => -ERR COPY stays in the database that is selected
        COPY a a => -ERR source and destination objects are the same
        EXPIRE a 100 XX LT => 0
        EXPIRE a 100 => 1
        EXPIRE a 200 XX LT => 0
        EXPIRE a 50 XX LT => 1
        EXPIRE a 50 NX XX => -ERR NX and XX, GT or LT options
        EXPIRE a 50 GT LT => -ERR GT and LT options
        EXPIRE a 50 AB => -ERR Unsupported option AB
        PEXPIREAT a 9223372036854770000 => 1
        EXISTS a => 1
        PEXPIREAT a -9223372036854770000 => 1
        EXISTS a => 0
        KEYS * => ["b" "c" "d"]
        KEYS [bc] => ["b" "c"]
        KEYS none* => []
        MEMORY USAGE b => 51
        MEMORY USAGE none => nil
        MEMORY DOCTOR => -ERR unknown subcommand
        SORT b => -WRONGTYPE Operation against a key holding the wrong kind of value
        "#,
    );
    // Over several pages, and past the most that one answer has.
    for n in 0..70 {
        let names: Vec<String> = (0..1_000).map(|m| format!("many:{n:02}:{m}")).collect();
        let pairs = names.iter().flat_map(|name| [name.as_str(), "x"]);
        let command: Vec<&str> = std::iter::once("MSET").chain(pairs).collect();
        assert_eq!(shown(&resp.ask(&command).unwrap()), "+OK");
    }
    let Word::List(some) = resp.ask(&["KEYS", "many:0[0-2]:*"]).unwrap() else { panic!("no list") };
    assert_eq!(some.len(), 3_000);
    assert!(shown(&resp.ask(&["KEYS", "*"]).unwrap()).starts_with("-ERR more than 65536 keys"));
    script(&mut resp, "FLUSHDB => +OK");
}

#[test]
fn inside_of_multi_nothing_waits_and_what_has_no_keys_is_answered_too() {
    let up = UP.take();
    let mut other = open(&up, 1, "one");
    let mut resp = open(&up, 2, "one");
    script(
        &mut resp,
        r#"
        RPUSH l a b => 2
        MULTI => +OK
        PING => +QUEUED
        BLPOP none l 0 => +QUEUED
        BLMPOP 0 1 l LEFT COUNT 5 => +QUEUED
        BLPOP l 0 => +QUEUED
        BLMOVE l m LEFT LEFT 0 => +QUEUED
        BLPOP l soon => -ERR timeout is not a float
        EXEC => -EXECABORT
        MULTI => +OK
        PING => +QUEUED
        BLPOP none l 0 => +QUEUED
        BLMPOP 0 1 l LEFT COUNT 5 => +QUEUED
        BLPOP l 0 => +QUEUED
        BLMOVE l m LEFT LEFT 0 => +QUEUED
        EXEC => [+PONG ["l" "a"] ["l" ["b"]] nil nil]
        MULTI => +OK
        PING => +QUEUED
        EXEC => [+PONG]
        WATCH l => +OK
        "#,
    );
    other.ask(&["SET", "l", "changed"]).unwrap();
    script(&mut resp, "MULTI => +OK\nPING => +QUEUED\nEXEC => nil\nMULTI => +OK\nPING => +QUEUED\nEXEC => [+PONG]");
}

#[test]
fn a_client_that_waits_is_counted_and_not_woken_by_what_is_no_list() {
    let up = UP.take();
    let mut writes = open(&up, 1, "one");
    let token = up.token("one");
    let mut waits = Resp::open(up.at(2).resp, "one", &token).unwrap();
    waits.tell(&["BLMPOP", "20", "1", "w", "LEFT", "COUNT", "2"]).unwrap();
    let mut asks = Resp::open(up.at(2).resp, "one", &token).unwrap();
    e2e::wait_for("INFO shows who waits", std::time::Duration::from_secs(10), || {
        match asks.ask(&["INFO", "clients"])? {
            Word::Bulk(text) if text.contains("blocked_clients:1\r\n") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    script(&mut writes, "SET w text => +OK");
    // Long enough for whoever waits to look at it.
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(25));
        let Word::Bulk(info) = asks.ask(&["INFO", "clients"]).unwrap() else { panic!("no text") };
        assert!(info.contains("blocked_clients:1\r\n"), "{info}");
    }
    script(&mut writes, "DEL w => 1\nRPUSH w x y z => 3");
    assert_eq!(shown(&waits.hear().unwrap()), "[\"w\" [\"x\" \"y\"]]");
    // Who begins to wait for what is no list hears so at once.
    script(&mut writes, "DEL w => 1\nSET w text => +OK");
    assert!(shown(&waits.ask(&["BLPOP", "w", "20"]).unwrap()).starts_with("-WRONGTYPE"));
}

#[test]
fn keys_in_several_shards_are_refused_where_all_must_be_in_one() {
    let up = UP.take();
    let mut resp = open(&up, 1, "three");
    // Some two of them lie apart.
    for n in 0..10 {
        resp.ask(&["SADD", &format!("s{n}"), "x"]).unwrap();
    }
    let all: Vec<String> = (0..10).map(|n| format!("s{n}")).collect();
    for before in [
        &["SUNIONSTORE"][..],
        &["SINTERCARD", "10"],
        &["LMPOP", "10"],
        &["BITOP", "OR"],
        &["ZUNION", "10"],
        &["ZINTERSTORE", "s0", "10"],
        &["ZMPOP", "10"],
    ] {
        let after: &[&str] = match before[0] {
            "LMPOP" => &["LEFT"],
            "ZMPOP" => &["MIN"],
            _ => &[],
        };
        let command: Vec<&str> =
            before.iter().copied().chain(all.iter().map(String::as_str)).chain(after.iter().copied()).collect();
        let said = shown(&resp.ask(&command).unwrap());
        assert!(said.starts_with("-ERR") && said.contains("shard"), "{before:?}: {said}");
    }
    script(
        &mut resp,
        r#"
        SADD {t}a 1 2 => 2
        SADD {t}b 2 3 => 2
        SINTERSTORE {t}c {t}a {t}b => 1
        SINTERCARD 2 {t}a {t}b => 1
        KEYS {t}* => ["{t}a" "{t}b" "{t}c"]
        FLUSHDB => +OK
        "#,
    );
}
