//! Commands of class `linear`, run by the functions that shards run: what is answered is what Redis answers.

use super::*;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
const NO_FLOAT: &str = "-ERR value is not a valid float\r\n";

#[test]
fn clients_are_told_which_arguments_are_keys() {
    let a_b = "*2\r\n$1\r\na\r\n$1\r\nb\r\n";
    let a = "*1\r\n$1\r\na\r\n";
    check_linear(&[
        ("COMMAND GETKEYS SINTERCARD 2 a b LIMIT 1", a_b),
        ("COMMAND GETKEYS LMPOP 2 a b LEFT", a_b),
        ("COMMAND GETKEYS BLMPOP 0 2 a b LEFT COUNT 3", a_b),
        ("COMMAND GETKEYS BLPOP a b 0", a_b),
        ("COMMAND GETKEYS BITOP AND a b", a_b),
        ("COMMAND GETKEYS ZUNIONSTORE a 1 b WEIGHTS 1", a_b),
        ("COMMAND GETKEYS ZUNIONSTORE a 2 b", "-ERR Invalid arguments specified for command\r\n"),
        ("COMMAND GETKEYS ZRANGESTORE a b 0 -1", a_b),
        ("COMMAND GETKEYS ZUNION 2 a b WITHSCORES", a_b),
        ("COMMAND GETKEYS BZMPOP 0 2 a b MIN", a_b),
        ("COMMAND GETKEYS ONCE id ZDIFFSTORE a 1 b", a_b),
        ("COMMAND GETKEYS FCALL number.add 1 a 5", a),
        ("COMMAND GETKEYS FCALL_RO get 1 a", a),
        ("COMMAND GETKEYS MEMORY USAGE a SAMPLES 0", a),
        ("COMMAND GETKEYS OBJECT ENCODING a", a),
        ("COMMAND GETKEYS WATCH a b", a_b),
        ("COMMAND GETKEYS ONCE id SET a 1", a),
        ("COMMAND GETKEYS ONCE id LMPOP 2 a b LEFT", a_b),
        ("COMMAND GETKEYS ONCE id ONCE id SET a 1", "-ERR Invalid arguments specified for command\r\n"),
        ("COMMAND GETKEYS ONCE id EXEC", "-ERR Invalid arguments specified for command\r\n"),
        ("COMMAND GETKEYS SINTERCARD 3 a b", "-ERR Invalid arguments specified for command\r\n"),
        ("COMMAND GETKEYS SINTERCARD 18446744073709551615 a", "-ERR Invalid arguments specified for command\r\n"),
        ("COMMAND GETKEYS SINTERCARD -1 a", "-ERR Invalid arguments specified for command\r\n"),
        ("COMMAND GETKEYS SINTERCARD 1", "-ERR Invalid number of arguments specified for command\r\n"),
        ("COMMAND GETKEYS PING", "-ERR The command has no key arguments\r\n"),
        ("COMMAND GETKEYS NOSUCH a", "-ERR Invalid command specified\r\n"),
        (
            "COMMAND INFO lmpop bitop",
            "*2\r\n*10\r\n$5\r\nlmpop\r\n:-4\r\n*3\r\n+write\r\n+denyoom\r\n+movablekeys\r\n:0\r\n:0\r\n:0\r\n*0\r\n*0\r\n*0\r\n*0\r\n\
             *10\r\n$5\r\nbitop\r\n:-4\r\n*2\r\n+write\r\n+denyoom\r\n:2\r\n:-1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n",
        ),
    ]);
}

#[test]
fn a_transaction_does_not_change_hands() {
    check_linear(&[
        ("MULTI", "+OK\r\n"),
        ("SET a 1", "+QUEUED\r\n"),
        ("AUTH bank secret3", "-ERR AUTH inside MULTI is not allowed: DISCARD first, or EXEC\r\n"),
        ("SET b 1", "+QUEUED\r\n"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
        ("EXISTS a b", ":0\r\n"),
        ("MULTI", "+OK\r\n"),
        ("HELLO 3 AUTH carts secret", "-ERR HELLO inside MULTI is not allowed: DISCARD first, or EXEC\r\n"),
        ("DISCARD", "+OK\r\n"),
        // Neither namespace nor dialect has changed.
        ("LPUSH l a", ":1\r\n"),
        ("GET none", "$-1\r\n"),
    ]);
}

#[test]
fn who_has_lost_its_token_says_who_it_is_also_inside_of_multi() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        sign_in_linear(&mut stream).await;
        send(&mut stream, &["MULTI"]).await;
        expect(&mut stream, "+OK\r\n", "MULTI").await;
        toy.set_tokens(&[("bank", "another")]);
        send(&mut stream, &["EXEC", "AUTH bank another"]).await;
        expect(&mut stream, "-NOAUTH Authentication required: AUTH <namespace> <token>\r\n+OK\r\n", "AUTH").await;
    });
}

#[test]
fn a_member_moves_where_there_is_one() {
    check_linear(&[
        ("SET text 1", "+OK\r\n"),
        ("SADD a x y", ":2\r\n"),
        ("SMOVE none text x", ":0\r\n"),
        ("SMOVE a text x", WRONG_TYPE),
        ("SMOVE a text z", WRONG_TYPE),
        ("SMOVE text a x", WRONG_TYPE),
        ("SMOVE a a x", ":1\r\n"),
        ("SMOVE a a z", ":0\r\n"),
        ("SMOVE a b z", ":0\r\n"),
        ("SMOVE a b x", ":1\r\n"),
        ("SMEMBERS b", "*1\r\n$1\r\nx\r\n"),
    ]);
}

/// Answers of Redis 7.0.15.
#[test]
fn ranges_of_bits_are_cut_as_redis_cuts_them() {
    check_linear(&[
        ("SETRANGE k 0 @@@", ":3\r\n"),
        ("BITCOUNT k 0 -100", ":1\r\n"),
        ("BITCOUNT k -100 -50", ":1\r\n"),
        ("BITCOUNT k -50 -100", ":0\r\n"),
        ("BITCOUNT k -100 -100", ":1\r\n"),
        ("BITCOUNT k 1 -100", ":0\r\n"),
        ("BITCOUNT k 2 1", ":0\r\n"),
        ("BITCOUNT k -100 100", ":3\r\n"),
        ("BITCOUNT k 3 100", ":0\r\n"),
        ("BITCOUNT k 0 -100 BIT", ":0\r\n"),
        ("BITCOUNT k 1 9 BIT", ":2\r\n"),
        ("BITCOUNT k -23 -15 BIT", ":2\r\n"),
        ("BITCOUNT k 0 -9223372036854775808", ":1\r\n"),
        ("BITCOUNT k -9223372036854775808 9223372036854775807 BIT", ":3\r\n"),
        ("BITCOUNT none -50 -100", ":0\r\n"),
        ("BITPOS k 1 0 -100", ":1\r\n"),
        ("BITPOS k 1 1 -100", ":-1\r\n"),
        ("BITPOS k 1 -100 -100", ":1\r\n"),
        ("BITPOS k 1 -50 -100", ":1\r\n"),
        ("BITPOS k 0 -1 -2", ":-1\r\n"),
        ("BITPOS k 1 -100", ":1\r\n"),
        ("BITPOS k 1 100", ":-1\r\n"),
        ("BITPOS k 0 100", ":-1\r\n"),
        ("BITPOS k 1 2 9 BIT", ":9\r\n"),
        ("BITPOS k 1 2 8 BIT", ":-1\r\n"),
        ("BITPOS k 0 0 -100 BIT", ":0\r\n"),
        ("BITPOS k 1 0 -100 BIT", ":-1\r\n"),
        ("BITPOS none 0 5 3", ":0\r\n"),
        ("BITPOS none 1 5 3", ":-1\r\n"),
        ("BITCOUNT k x y NIBBLE", "-ERR value is not an integer or out of range\r\n"),
        ("BITCOUNT k 0 1 NIBBLE", "-ERR syntax error\r\n"),
        // Parts of texts are cut otherwise, in Redis since 8.
        ("GETRANGE k 0 -100", "$0\r\n\r\n"),
    ]);
}

#[test]
fn numbers_with_fractions_add_up_as_people_expect() {
    let too_much = "-ERR increment would produce NaN or Infinity\r\n";
    check_linear(&[
        ("SET n 10.50", "+OK\r\n"),
        ("INCRBYFLOAT n 0.1", "$4\r\n10.6\r\n"),
        ("INCRBYFLOAT n -5", "$3\r\n5.6\r\n"),
        ("SET n 5.0e3", "+OK\r\n"),
        ("INCRBYFLOAT n 2.0e2", "$4\r\n5200\r\n"),
        ("INCRBYFLOAT m 0.1", "$3\r\n0.1\r\n"),
        ("INCRBYFLOAT m 0.2", "$3\r\n0.3\r\n"),
        ("HINCRBYFLOAT h f 0.1", "$3\r\n0.1\r\n"),
        ("HINCRBYFLOAT h f 0.2", "$3\r\n0.3\r\n"),
        ("GET m", "$3\r\n0.3\r\n"),
        ("SADD s a", ":1\r\n"),
        ("INCRBYFLOAT s one", WRONG_TYPE),
        ("INCRBYFLOAT m one", NO_FLOAT),
        ("INCRBYFLOAT m nan", NO_FLOAT),
        ("INCRBYFLOAT m inf", too_much),
        ("SET n 1.7e308", "+OK\r\n"),
        ("INCRBYFLOAT n 1.7e308", too_much),
        ("SET n one", "+OK\r\n"),
        ("INCRBYFLOAT n 1", NO_FLOAT),
        ("HSET h t one", ":1\r\n"),
        ("HINCRBYFLOAT s t one", NO_FLOAT),
        ("HINCRBYFLOAT s t -inf", "-ERR value is NaN or Infinity\r\n"),
        ("HINCRBYFLOAT s t 1", WRONG_TYPE),
        ("HINCRBYFLOAT h t 1", "-ERR hash value is not a float\r\n"),
        ("HINCRBY h t one", "-ERR value is not an integer or out of range\r\n"),
        ("HINCRBY h t 1", "-ERR hash value is not an integer\r\n"),
        ("HSET h t 1.7e308", ":0\r\n"),
        ("HINCRBYFLOAT h t 1.7e308", too_much),
    ]);
}

#[test]
fn what_is_wrong_with_a_number_is_said_in_the_words_of_redis() {
    let must_be_positive = "-ERR value is out of range, must be positive\r\n";
    check_linear(&[
        ("LPOP l x", must_be_positive),
        ("RPOP l -1", must_be_positive),
        ("SPOP s x", must_be_positive),
        ("SINTERCARD 1 s LIMIT x", "-ERR LIMIT can't be negative\r\n"),
        ("SADD s a b", ":2\r\n"),
        ("SINTERCARD 1 s LIMIT 0", ":2\r\n"),
        ("DECRBY n -9223372036854775808", "-ERR decrement would overflow\r\n"),
        ("CLIENT ID x", "-ERR wrong number of arguments for 'client|id' command\r\n"),
    ]);
}

/// Commands whose keys are counted wait for their keys alone; one that may be about others, for all.
#[test]
fn commands_wait_for_those_on_their_own_keys() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        sign_in_linear(&mut stream).await;
        toy.holds.set(true);
        send(&mut stream, &["LMPOP 2 a b LEFT", "GET c", "FCALL rename 1 c d", "GET e"]).await;
        until(|| toy.asked() == ["list.pop-first a", "get c"]).await;
        pause().await;
        assert_eq!(toy.asked().len(), 2);
        toy.give("list.pop-first a", linear::Reply::Nil);
        toy.give("get c", linear::Reply::Nil);
        until(|| toy.asked() == ["rename c"]).await;
        pause().await;
        assert_eq!(toy.asked().len(), 1);
        toy.give("rename c", linear::Reply::Int(1));
        until(|| toy.asked() == ["get e"]).await;
        toy.give("get e", linear::Reply::Nil);
        expect(&mut stream, "*-1\r\n$-1\r\n:1\r\n$-1\r\n", "in order").await;
        send(&mut stream, &["BITOP OR to a b", "STRLEN b"]).await;
        until(|| toy.asked() == ["text.bit-op to"]).await;
        pause().await;
        assert_eq!(toy.asked().len(), 1);
        toy.give("text.bit-op to", linear::Reply::Int(1));
        until(|| toy.asked() == ["text.length b"]).await;
    });
}

#[test]
fn every_write_on_its_keys_may_have_an_id() {
    check_linear(&[
        ("RPUSH l a", ":1\r\n"),
        ("ONCE 01980000-0000-7000-8000-000000000001 LMPOP 2 k l LEFT", "*2\r\n$1\r\nl\r\n*1\r\n$1\r\na\r\n"),
        ("ONCE 01980000-0000-7000-8000-000000000002 BITOP OR to a b", ":0\r\n"),
        ("ONCE 01980000-0000-7000-8000-000000000003 FLUSHDB", "-ERR ONCE does not go with 'FLUSHDB'\r\n"),
    ]);
}

#[test]
fn what_is_not_offered_has_something_instead() {
    check_linear(&[
        (
            "JSON.GET k",
            "-ERR 'JSON.GET' is not offered by class linear: GET and SET a JSON text; FCALL json.merge 1 key patch changes it\r\n",
        ),
        ("NOSUCH", "-ERR 'NOSUCH' is not offered by class linear: COMMAND DOCS and docs/resp.md list what is\r\n"),
    ]);
}

/// The next line.
async fn line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let byte = tokio::time::timeout(std::time::Duration::from_secs(5), stream.read_u8()).await;
        line.push(byte.unwrap_or_else(|_| panic!("after {:?}", String::from_utf8_lossy(&line))).unwrap());
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

/// Sends a command of any bytes; the first line of its reply.
async fn told(stream: &mut TcpStream, command: &[&[u8]]) -> String {
    stream.write_all(&resp(command)).await.unwrap();
    line(stream).await
}

#[test]
fn values_move_as_redis_writes_them() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        let makes = [
            ("SET text hello", "GET text", "$5\r\nhello\r\n"),
            ("RPUSH list a b a", "LRANGE list 0 -1", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\na\r\n"),
            ("SADD set a b", "SMEMBERS set", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
            (
                "ZADD sorted -inf a 2.5 b",
                "ZRANGE sorted 0 -1 WITHSCORES",
                "*4\r\n$1\r\na\r\n$4\r\n-inf\r\n$1\r\nb\r\n$3\r\n2.5\r\n",
            ),
            ("HSET hash f v g w", "HGETALL hash", "*4\r\n$1\r\nf\r\n$1\r\nv\r\n$1\r\ng\r\n$1\r\nw\r\n"),
        ];
        for (make, read, shown) in makes {
            let key = make.split(' ').nth(1).unwrap();
            send(&mut stream, &[make]).await;
            line(&mut stream).await;
            let head = told(&mut stream, &[b"DUMP", key.as_bytes()]).await;
            let len: usize = head[1..].parse().unwrap();
            let mut payload = vec![0; len + 2];
            stream.read_exact(&mut payload).await.unwrap();
            payload.truncate(len);
            let taken = told(&mut stream, &[b"RESTORE", key.as_bytes(), b"0", &payload]).await;
            assert_eq!(taken, "-BUSYKEY Target key name already exists.");
            send(&mut stream, &[&format!("DEL {key}")]).await;
            expect(&mut stream, ":1\r\n", "DEL").await;
            for more in [&[][..], &[&b"REPLACE"[..]]] {
                let command = [&[&b"RESTORE"[..], key.as_bytes(), b"60000", &payload], more].concat();
                assert_eq!(told(&mut stream, &command).await, "+OK");
                send(&mut stream, &[read]).await;
                expect(&mut stream, shown, read).await;
            }
            send(&mut stream, &[&format!("TTL {key}")]).await;
            expect(&mut stream, ":60\r\n", "TTL").await;
            // A moment that has passed.
            let command = [&b"RESTORE"[..], key.as_bytes(), b"1", &payload, b"ABSTTL", b"REPLACE", b"FREQ", b"7"];
            assert_eq!(told(&mut stream, &command).await, "+OK");
            send(&mut stream, &[&format!("EXISTS {key}")]).await;
            expect(&mut stream, ":0\r\n", "EXISTS").await;
        }
        // As Redis 7.0.15 dumps it.
        let of_redis = b"\x00\x05hello\x0a\0\x63\x72\xdf\x76\x65\x34\x20\x0a";
        assert_eq!(told(&mut stream, &[b"RESTORE", b"text", b"0", of_redis]).await, "+OK");
        send(&mut stream, &["GET text", "DUMP none", "XADD stream 1-1 a b", "DUMP stream"]).await;
        // Of nodes of the version before.
        let stream_told = "-ERR values of type stream are not dumped: `coppice ns dump` takes all types\r\n";
        let rest = format!("$5\r\nhello\r\n$-1\r\n$3\r\n1-1\r\n{stream_told}");
        expect(&mut stream, &rest, "what is read").await;
        for (command, error) in [
            ("RESTORE a 0 x", "-ERR DUMP payload version or checksum are wrong\r\n"),
            ("RESTORE a -1 x", "-ERR Invalid TTL value, must be >= 0\r\n"),
            ("RESTORE a x x", "-ERR value is not an integer or out of range\r\n"),
            ("RESTORE a 0 x FREQ 256", "-ERR Invalid FREQ value, must be >= 0 and <= 255\r\n"),
            ("RESTORE a 0 x SOMETHING", "-ERR syntax error\r\n"),
        ] {
            send(&mut stream, &[command]).await;
            expect(&mut stream, error, command).await;
        }
        // Inside MULTI: with REPLACE alone.
        send(&mut stream, &["MULTI"]).await;
        expect(&mut stream, "+OK\r\n", "MULTI").await;
        let replaces = [&b"RESTORE"[..], b"text", b"0", of_redis, b"REPLACE"];
        assert_eq!(told(&mut stream, &replaces).await, "+QUEUED");
        send(&mut stream, &["EXEC"]).await;
        expect(&mut stream, "*1\r\n+OK\r\n", "EXEC").await;
    });
}

#[test]
fn each_command_with_subcommands_tells_them() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        sign_in_linear(&mut stream).await;
        let names = [
            "ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "FUNCTION", "LATENCY", "MEMORY", "MODULE", "OBJECT",
            "PUBSUB", "SCRIPT", "SLOWLOG", "XGROUP", "XINFO",
        ];
        for name in names {
            let count: usize = told(&mut stream, &[name.as_bytes(), b"help"]).await[1..].parse().unwrap();
            let mut lines = vec![];
            for _ in 0..count {
                line(&mut stream).await;
                lines.push(line(&mut stream).await);
            }
            let head = format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
            assert_eq!((&lines[0], &lines[count - 1][..]), (&head, "    Print this help."), "{lines:?}");
            assert!(count > 3 && lines.iter().all(|line| !line.contains(" | ") || line.contains('[')), "{lines:?}");
        }
        send(&mut stream, &["OBJECT", "OBJECT HELP more", "OBJECT ENCODING"]).await;
        for command in ["OBJECT", "OBJECT HELP more", "OBJECT ENCODING"] {
            assert!(line(&mut stream).await.starts_with("-ERR wrong number of arguments"), "{command}");
        }
    });
}
