//! Commands: what is asked, and what is answered.

use super::*;

#[test]
fn values_are_written_and_read() {
    check(&[
        ("GET a", "$-1\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("get a", "$1\r\n1\r\n"),
        ("STRLEN a", ":1\r\n"),
        ("STRLEN b", ":0\r\n"),
        ("TYPE a", "+string\r\n"),
        ("TYPE b", "+none\r\n"),
        ("SET a 2 NX", "$-1\r\n"),
        ("SET b 2 XX", "$-1\r\n"),
        ("SET a 2 XX GET", "$1\r\n1\r\n"),
        ("SET a 3 NX GET", "$1\r\n2\r\n"),
        ("SET c 3 NX GET", "$-1\r\n"),
        ("SET d 3 XX GET", "$-1\r\n"),
        ("SETNX a 9", ":0\r\n"),
        ("SETNX e 9", ":1\r\n"),
        ("MGET a b c", "*3\r\n$1\r\n2\r\n$-1\r\n$1\r\n3\r\n"),
        ("MSET x 1 y 2 x 3", "+OK\r\n"),
        ("GET x", "$1\r\n3\r\n"),
        ("EXISTS x x y nosuch", ":3\r\n"),
        ("DEL x x nosuch", ":1\r\n"),
        ("UNLINK y", ":1\r\n"),
        ("GETDEL a", "$1\r\n2\r\n"),
        ("GETDEL a", "$-1\r\n"),
        ("DBSIZE", ":2\r\n"),
    ]);
}

#[test]
fn leases_are_given_and_told() {
    check(&[
        ("TTL a", ":-2\r\n"),
        ("PTTL a", ":-2\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("TTL a", ":1800\r\n"),
        ("SET a 1 EX 10", "+OK\r\n"),
        ("PTTL a", ":10000\r\n"),
        ("SET a 2 KEEPTTL", "+OK\r\n"),
        ("TTL a", ":10\r\n"),
        ("SET a 2 PX 1500", "+OK\r\n"),
        ("TTL a", ":2\r\n"),
        ("SETEX a 20 v", "+OK\r\n"),
        ("TTL a", ":20\r\n"),
        ("PSETEX a 2500 v", "+OK\r\n"),
        ("PTTL a", ":2500\r\n"),
        ("EXPIRE a 30", ":1\r\n"),
        ("TTL a", ":30\r\n"),
        ("PEXPIRE a 400 XX", ":1\r\n"),
        ("PTTL a", ":400\r\n"),
        ("EXPIRE a 30 NX", ":0\r\n"),
        ("EXPIRE nosuch 30", ":0\r\n"),
        ("GETEX a", "$1\r\nv\r\n"),
        ("PTTL a", ":400\r\n"),
        ("GETEX a EX 50", "$1\r\nv\r\n"),
        ("TTL a", ":50\r\n"),
        ("GETEX nosuch EX 50", "$-1\r\n"),
        ("EXPIRE a -1", ":1\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("PEXPIREAT a 1", ":1\r\n"),
        ("EXISTS a", ":0\r\n"),
    ]);
}

#[test]
fn what_ends_by_a_moment_that_has_passed_is_removed() {
    check(&[
        ("SET a 1 EXAT 1", "+OK\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("SET a 2 PXAT 1", "+OK\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("SET a 2 EXAT 1 XX", "$-1\r\n"),
        ("SET a 2 EXAT 1 NX", "+OK\r\n"),
        ("SET a 2 EXAT 1 NX GET", "$-1\r\n"),
        ("SET a 2 EXAT 1 GET", "$-1\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("SET a 2 NX EXAT 1", "$-1\r\n"),
        ("SET a 2 NX GET EXAT 1", "$1\r\n1\r\n"),
        ("GET a", "$1\r\n1\r\n"),
        ("SET a 2 EXAT 1 XX", "+OK\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("SET a 2 GET EXAT 1", "$1\r\n1\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("SET a 2 IFEQ 1 EXAT 1", "$-1\r\n"),
        ("SET a 2 IFNE 1 EXAT 1", "+OK\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("SET a 2 IFEQ 3 EXAT 1", "$-1\r\n"),
        ("GET a", "$1\r\n1\r\n"),
        ("SET a 2 IFEQ 1 GET EXAT 1", "$1\r\n1\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("GETEX a EXAT 1", "$-1\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("GETEX a PXAT 1", "$1\r\n1\r\n"),
        ("EXISTS a", ":0\r\n"),
    ]);
}

#[test]
fn wrong_commands_are_told_what_is_wrong() {
    check(&[
        ("GET a b", "-ERR wrong number of arguments for 'get' command: it is GET key\r\n"),
        (
            "SET a",
            "-ERR wrong number of arguments for 'set' command: it is SET key value [NX | XX | IFEQ value | \
             IFNE value | IFDEQ digest | IFDNE digest] [GET] \
             [EX seconds | PX ms | EXAT unix-seconds | PXAT unix-ms | KEEPTTL]\r\n",
        ),
        ("SET a 1 NX XX", "-ERR syntax error\r\n"),
        ("SET a 1 EX", "-ERR syntax error\r\n"),
        ("SET a 1 EX 1 PX 1", "-ERR syntax error\r\n"),
        ("SET a 1 EX 0", "-ERR invalid expire time in 'set' command\r\n"),
        ("SET a 1 EX 9223372036854775807", "-ERR invalid expire time in 'set' command\r\n"),
        ("SET a 1 EX one", "-ERR value is not an integer or out of range\r\n"),
        ("SETEX a 0 v", "-ERR invalid expire time in 'setex' command\r\n"),
        ("EXPIRE a b", "-ERR value is not an integer or out of range\r\n"),
        ("EXPIRE a 1 GT", "-ERR GT and LT are not offered by class session: look with PTTL, then EXPIRE\r\n"),
        ("SELECT 1", "-ERR DB index is out of range: this namespace has 0; its key databases names others\r\n"),
        ("SCAN x", "-ERR invalid cursor\r\n"),
        ("SCAN 0 COUNT", "-ERR syntax error\r\n"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command: it is MSET key value [key value ...]\r\n"),
        ("KEYS *", "-ERR 'KEYS' is not offered by class session: SCAN with MATCH lists keys in pages\r\n"),
        (
            "lpush a 1",
            "-ERR 'LPUSH' is not offered by class session: a value is read and written whole: GET it, change it, \
             SET it; or keep one key for each field\r\n",
        ),
        (
            "GETEX a PERSIST",
            "-ERR 'PERSIST' is not offered by class session: each value ends with its lease: EXPIRE key SECONDS gives a longer one\r\n",
        ),
        ("NOSUCH", "-ERR 'NOSUCH' is not offered by class session: COMMAND DOCS and docs/resp.md list what is\r\n"),
        (
            "CLIENT CACHING x",
            "-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled\r\n",
        ),
    ]);
}

#[test]
fn a_value_is_written_only_while_it_is_what_the_client_believes() {
    check(&[
        ("SET a 1 IFEQ 0", "$-1\r\n"),
        ("EXISTS a", ":0\r\n"),
        ("SET a 1 IFNE 0", "+OK\r\n"),
        ("SET a 2 IFEQ 0", "$-1\r\n"),
        ("SET a 2 IFEQ 1 EX 50", "+OK\r\n"),
        ("TTL a", ":50\r\n"),
        ("SET a 3 IFNE 2 GET", "$1\r\n2\r\n"),
        ("SET a 3 GET IFEQ 2", "$1\r\n2\r\n"),
        ("GET a", "$1\r\n3\r\n"),
        ("DIGEST none", "$-1\r\n"),
        // XXH3-64 of "3".
        ("DIGEST a", "$16\r\n7324dc1e7e9474f0\r\n"),
        ("SET a 4 IFDEQ 0000000000000000", "$-1\r\n"),
        ("SET a 4 IFDEQ 7324DC1E7E9474F0", "+OK\r\n"),
        ("SET a 5 IFDNE 7324dc1e7e9474f0 KEEPTTL", "+OK\r\n"),
        ("SET a 5 IFDEQ 7324", "-ERR a digest is 16 hexadecimal digits, as DIGEST gives them\r\n"),
        ("SET a 5 IFEQ", "-ERR syntax error\r\n"),
        ("SET a 5 NX IFEQ 1", "-ERR syntax error\r\n"),
        ("SET a 5 IFEQ 1 XX", "-ERR syntax error\r\n"),
        ("GETEX a IFEQ 1", "-ERR syntax error\r\n"),
        ("DELEX a IFEQ 4", ":0\r\n"),
        ("DELEX a IFEQ 5", ":1\r\n"),
        ("DELEX a IFNE 5", ":0\r\n"),
        ("SET a 6", "+OK\r\n"),
        ("DELEX a", ":1\r\n"),
        ("DELEX a XX 1", "-ERR syntax error\r\n"),
    ]);
}

#[test]
fn a_hash_is_changed_field_by_field_where_the_namespace_merges() {
    check(&[
        (
            "HSET h a 1",
            "-ERR 'HSET' is not offered by class session unless the namespace declares merge = \"fields\"; without it a value is read and written whole: GET it, change it, SET it; or keep one key for each field\r\n",
        ),
        (
            "HGETALL h",
            "-ERR 'HGETALL' is not offered by class session unless the namespace declares merge = \"fields\"; without it a value is read and written whole: GET it, change it, SET it; or keep one key for each field\r\n",
        ),
    ]);
    with_door(|toy, mut stream| async move {
        toy.merges();
        sign_in(&mut stream).await;
        for (command, reply) in [
            ("HGETALL h", "*0\r\n"),
            ("HSET h b 2 a 3", ":2\r\n"),
            ("HSET h a 4 c 5", ":1\r\n"),
            (
                "HSET h a",
                "-ERR wrong number of arguments for 'hset' command: it is HSET key field value [field value ...]\r\n",
            ),
            (
                "HSET h a 1 b",
                "-ERR wrong number of arguments for 'hset' command: it is HSET key field value [field value ...]\r\n",
            ),
            ("HGETALL h", "*6\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\na\r\n$1\r\n4\r\n$1\r\nc\r\n$1\r\n5\r\n"),
            ("HMSET h d 6", "+OK\r\n"),
            ("HSETNX h d 7", ":0\r\n"),
            ("HSETNX h e 7", ":1\r\n"),
            ("HGET h d", "$1\r\n6\r\n"),
            ("HGET h x", "$-1\r\n"),
            ("HMGET h a x e", "*3\r\n$1\r\n4\r\n$-1\r\n$1\r\n7\r\n"),
            ("HLEN h", ":5\r\n"),
            ("HEXISTS h a", ":1\r\n"),
            ("HEXISTS h x", ":0\r\n"),
            ("HDEL h a b x", ":2\r\n"),
            ("HKEYS h", "*3\r\n$1\r\nc\r\n$1\r\nd\r\n$1\r\ne\r\n"),
            ("HVALS h", "*3\r\n$1\r\n5\r\n$1\r\n6\r\n$1\r\n7\r\n"),
            ("TYPE h", "+hash\r\n"),
            (
                "GET h",
                "-WRONGTYPE Operation against a key holding the wrong kind of value: hashes have the H commands, other values GET and SET\r\n",
            ),
            ("MGET h", "*1\r\n$-1\r\n"),
            ("EXPIRE h 50", ":1\r\n"),
            ("HSET h f 8", ":1\r\n"),
            ("TTL h", ":50\r\n"),
            ("RENAME h i", "+OK\r\n"),
            ("TTL i", ":50\r\n"),
            ("RENAME h i", "-ERR no such key\r\n"),
            ("HDEL i c d e f", ":4\r\n"),
            ("EXISTS i", ":0\r\n"),
            ("SET s 1", "+OK\r\n"),
            (
                "HGET s a",
                "-WRONGTYPE Operation against a key holding the wrong kind of value: hashes have the H commands, other values GET and SET\r\n",
            ),
            (
                "HSET s a 1",
                "-WRONGTYPE Operation against a key holding the wrong kind of value: hashes have the H commands, other values GET and SET\r\n",
            ),
        ] {
            send(&mut stream, &[command]).await;
            expect(&mut stream, reply, command).await;
        }
        // A field more than there may be.
        let many: String = (0..1024).map(|field| format!(" f{field} v")).collect();
        send(&mut stream, &[&format!("HSET big{many}"), "HSET big more v", "HSET big f0 v"]).await;
        let why = "-ERR a hash may have 1024 fields; this one would have 1025\r\n";
        expect(&mut stream, &format!(":1024\r\n{why}:0\r\n"), "bounds").await;
    });
}

#[test]
fn what_changes_and_hands_out_a_text_judges_the_kind_first() {
    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value: hashes have the H commands, \
                         other values GET and SET\r\n";
    with_door(|toy, mut stream| async move {
        toy.merges();
        sign_in(&mut stream).await;
        send(&mut stream, &["HSET h f 1", "EXPIRE h 50"]).await;
        expect(&mut stream, ":1\r\n:1\r\n", "a hash").await;
        for command in [
            "GET h",
            "STRLEN h",
            "DIGEST h",
            "GETDEL h",
            "GETEX h EX 9",
            "SET h x GET",
            "SET h x NX GET",
            "SET h x XX GET EX 9",
            "SET h x IFEQ 1",
            "SET h x IFNE 1",
            "SET h x IFNE 1 GET",
            "SET h x IFDNE 0123456789abcdef",
            "DELEX h IFNE 1",
            "DELEX h IFDNE 0123456789abcdef",
        ] {
            send(&mut stream, &[command, "HGETALL h", "TTL h"]).await;
            let whole = "*2\r\n$1\r\nf\r\n$1\r\n1\r\n:50\r\n";
            expect(&mut stream, &format!("{WRONG}{whole}"), command).await;
        }
        send(&mut stream, &["SETNX h x", "SET h x NX", "SET s x", "HSETNX s f 1", "HDEL s f", "GET s"]).await;
        expect(&mut stream, &format!(":0\r\n$-1\r\n+OK\r\n{WRONG}{WRONG}$1\r\nx\r\n"), "texts").await;
        send(&mut stream, &["SCAN 0", "SCAN 0 TYPE hash", "SCAN 0 TYPE string", "SCAN 0 TYPE list"]).await;
        let page = |keys: &[&str]| {
            let keys: Vec<_> = keys.iter().map(|key| format!("$1\r\n{key}\r\n")).collect();
            format!("*2\r\n$1\r\n0\r\n*{}\r\n{}", keys.len(), keys.concat())
        };
        let pages = [page(&["h", "s"]), page(&["h"]), page(&["s"]), page(&[])].concat();
        expect(&mut stream, &pages, "walks by kind").await;
    });
}

#[test]
fn bytes_of_a_client_are_never_taken_for_a_hash() {
    with_door(|toy, mut stream| async move {
        toy.merges();
        sign_in(&mut stream).await;
        let text = [state::session::doc::HASH_MAGIC, b"\x01\0\0\0f\x01\0\0\x001"].concat();
        stream.write_all(&resp(&[b"SET", b"k", &text])).await.unwrap();
        send(&mut stream, &["RENAME k l", "TYPE l", "HLEN l", "GETEX l EX 9", "MGET l", "GETDEL l"]).await;
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value: hashes have the H commands, \
                     other values GET and SET\r\n";
        let bulk = [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat();
        let head = format!("+OK\r\n+OK\r\n+string\r\n{wrong}");
        let wanted = [head.as_bytes(), &bulk, b"*1\r\n", &bulk, &bulk].concat();
        let mut got = vec![0; wanted.len()];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(got.escape_ascii().to_string(), wanted.escape_ascii().to_string());
    });
}

#[test]
fn a_walk_lists_all_keys_and_only_those_that_fit() {
    check(&[
        ("MSET a1 x a2 x b1 x", "+OK\r\n"),
        ("SCAN 0 COUNT 2", "*2\r\n$1\r\n2\r\n*2\r\n$2\r\na1\r\n$2\r\na2\r\n"),
        ("SCAN 2 COUNT 2", "*2\r\n$1\r\n0\r\n*1\r\n$2\r\nb1\r\n"),
        ("SCAN 0 MATCH a*", "*2\r\n$1\r\n0\r\n*2\r\n$2\r\na1\r\n$2\r\na2\r\n"),
        ("SCAN 0 TYPE hash", "*2\r\n$1\r\n0\r\n*0\r\n"),
    ]);
}

#[test]
fn what_libraries_ask_on_connecting_is_answered() {
    check(&[
        ("PING", "+PONG\r\n"),
        ("PING hi", "$2\r\nhi\r\n"),
        ("ECHO hi", "$2\r\nhi\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n"),
        ("CLIENT SETINFO LIB-VER 7.0", "+OK\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("CLIENT SETNAME shop", "+OK\r\n"),
        ("CLIENT GETNAME", "$4\r\nshop\r\n"),
        ("CLIENT ID", ":1\r\n"),
        ("CLIENT NO-EVICT ON", "+OK\r\n"),
        ("COMMAND COUNT", ":63\r\n"),
        ("WAIT 1 100", ":0\r\n"),
        ("WAIT 1 -1", "-ERR value is out of range, must be positive\r\n"),
        ("WAITAOF 0 0 1", "*2\r\n:0\r\n:0\r\n"),
        ("SLOWLOG GET", "*0\r\n"),
        ("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1\r\n"),
        ("LATENCY LATEST", "*0\r\n"),
        ("MODULE LIST", "*0\r\n"),
        ("COMMAND GETKEYS MSET a 1 b 2", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        (
            "COMMAND INFO get nosuch",
            "*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n$-1\r\n",
        ),
        ("INFO cluster", "$30\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n"),
        ("HELLO 4", "-NOPROTO unsupported protocol version: 2 and 3 are offered\r\n"),
        (
            "HELLO 3 SETNAME x",
            "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.4.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n\
             $4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        ),
        ("GET nosuch", "_\r\n"),
        ("INFO cluster", "=34\r\ntxt:# Cluster\r\ncluster_enabled:0\r\n\r\n"),
        ("QUIT", "+OK\r\n"),
    ]);
}

#[test]
fn what_a_connection_asks_matters_as_much_as_it_says_in_both_classes() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        let priorities = |of: &[u8]| of.iter().map(|of| Priority(*of)).collect::<Vec<_>>();
        sign_in(&mut stream).await;
        // Of one operation, and of several: MGET reads each key by itself.
        send(&mut stream, &["GET a", "PRIORITY 9", "SET a 1", "MGET a b", "PRIORITY 0", "GET a"]).await;
        expect(&mut stream, "$-1\r\n+OK\r\n+OK\r\n*2\r\n$1\r\n1\r\n$-1\r\n+OK\r\n$1\r\n1\r\n", "in order").await;
        assert_eq!(toy.priorities.take(), priorities(&[4, 6, 6, 6, 0]));
        // Another namespace is another matter.
        send(&mut stream, &["AUTH bank secret3", "APPEND a x", "PRIORITY 7", "APPEND a x", "KEYS *"]).await;
        expect(&mut stream, "+OK\r\n:1\r\n+OK\r\n:1\r\n:1\r\n", "in order").await;
        send(&mut stream, &["MULTI", "PRIORITY 1", "APPEND a x", "EXEC"]).await;
        expect(&mut stream, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n:1\r\n", "EXEC").await;
        assert_eq!(toy.priorities.take(), priorities(&[4, 5, 5, 1]));
        for wrong in ["PRIORITY 10", "PRIORITY -1", "PRIORITY high"] {
            send(&mut stream, &[wrong]).await;
            expect(&mut stream, "-ERR a priority is a number from 0 to 9\r\n", wrong).await;
        }
    });
}

#[test]
fn a_write_goes_as_its_client_said_before_it_and_keeps_its_turn() {
    with_door(|toy, mut stream| async move {
        sign_in(&mut stream).await;
        toy.holds.set(true);
        send(&mut stream, &["SET a 1", "PRIORITY 9", "SET a 2", "PRIORITY 0"]).await;
        for priority in [4, 6] {
            until(|| toy.held.borrow().len() == 1).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            // What matters more does not overtake on one key.
            assert_eq!(toy.priorities.take(), [Priority(priority)]);
            toy.release("PUT a");
        }
        expect(&mut stream, "+OK\r\n+OK\r\n+OK\r\n+OK\r\n", "in order").await;
    });
}
