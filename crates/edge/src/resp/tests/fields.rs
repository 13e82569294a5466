//! Hashes whose fields end, at the door: answers and words of Redis 7.4 (`unit/type/hash-field-expire` of its suite) and 8.

use super::*;

const FIELDS_MISSING: &str = "-ERR Mandatory argument FIELDS is missing or not at the right position\r\n";
const NOT_SO_MANY: &str = "-ERR The `numfields` parameter must match the number of arguments\r\n";
const NOT_POSITIVE: &str = "-ERR Number of fields must be a positive integer\r\n";

#[test]
fn fields_end_as_in_redis() {
    check_linear(&[
        ("HEXPIRE none 100 FIELDS 2 a b", "*2\r\n:-2\r\n:-2\r\n"),
        ("HTTL none FIELDS 1 a", "*1\r\n:-2\r\n"),
        ("HPERSIST none FIELDS 1 a", "*1\r\n:-2\r\n"),
        ("HSET h a 1 b 2 c 3", ":3\r\n"),
        ("HEXPIRE h 100 NX FIELDS 2 a x", "*2\r\n:1\r\n:-2\r\n"),
        ("HEXPIRE h 200 nx FIELDS 2 a b", "*2\r\n:0\r\n:1\r\n"),
        ("HTTL h FIELDS 4 a b c x", "*4\r\n:100\r\n:200\r\n:-1\r\n:-2\r\n"),
        ("HPTTL h FIELDS 1 a", "*1\r\n:100000\r\n"),
        ("HEXPIRE h 150 GT FIELDS 3 a b c", "*3\r\n:1\r\n:0\r\n:0\r\n"),
        ("HEXPIRE h 120 LT FIELDS 3 a b c", "*3\r\n:1\r\n:1\r\n:1\r\n"),
        ("HPEXPIRE h 1500 XX FIELDS 1 c", "*1\r\n:1\r\n"),
        ("HTTL h FIELDS 1 c", "*1\r\n:2\r\n"),
        ("HPERSIST h FIELDS 2 c c", "*2\r\n:1\r\n:-1\r\n"),
        ("HINCRBY h a 4", ":5\r\n"),
        ("HTTL h FIELDS 1 a", "*1\r\n:120\r\n"),
        ("HSET h a 5", ":0\r\n"),
        ("HTTL h FIELDS 1 a", "*1\r\n:-1\r\n"),
        // A moment that has passed.
        ("HEXPIREAT h 1 FIELDS 1 a", "*1\r\n:2\r\n"),
        ("HPEXPIRE h 0 FIELDS 1 c", "*1\r\n:2\r\n"),
        ("HGETALL h", "*2\r\n$1\r\nb\r\n$1\r\n2\r\n"),
        ("HEXPIREAT h 4102444800 FIELDS 1 b", "*1\r\n:1\r\n"),
        ("HEXPIRETIME h FIELDS 2 b x", "*2\r\n:4102444800\r\n:-2\r\n"),
        ("HPEXPIREAT h 1 FIELDS 1 b", "*1\r\n:2\r\n"),
        ("EXISTS h", ":0\r\n"),
        ("SET t v", "+OK\r\n"),
        ("HTTL t FIELDS 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
        ("HEXPIRE t 9 FIELDS 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
    ]);
}

#[test]
fn wrong_words_about_ends_are_told_as_redis_tells_them() {
    check_linear(&[
        ("HSET h f v", ":1\r\n"),
        ("HEXPIRE h -1 FIELDS 1 f", "-ERR invalid expire time, must be >= 0\r\n"),
        ("HEXPIRE h x FIELDS 1 f", "-ERR value is not an integer or out of range\r\n"),
        ("HEXPIRE h 281474976711 FIELDS 1 f", "-ERR invalid expire time in 'hexpire' command\r\n"),
        ("HPEXPIRE h 281474976710656 FIELDS 1 f", "-ERR invalid expire time in 'hpexpire' command\r\n"),
        ("HEXPIREAT h 9223372036854775807 FIELDS 1 f", "-ERR invalid expire time in 'hexpireat' command\r\n"),
        ("HPEXPIREAT h 281474976710656 FIELDS 1 f", "-ERR invalid expire time in 'hpexpireat' command\r\n"),
        ("HEXPIRE h 9 NX FIELDS 0 f", "-ERR Parameter `numFields` should be greater than 0\r\n"),
        ("HEXPIRE h 9 FIELDS x f", "-ERR Parameter `numFields` should be greater than 0\r\n"),
        ("HEXPIRE h 9 NX FIELDS 2 f", NOT_SO_MANY),
        ("HEXPIRE h 9 FIELDS 1 f g", NOT_SO_MANY),
        ("HEXPIRE h 9 FIELD 1 f", FIELDS_MISSING),
        ("HEXPIRE h 9 NX XX FIELDS 1 f", FIELDS_MISSING),
        ("HTTL h FIELDS 9223372036854775807 f", NOT_SO_MANY),
        ("HTTL h FIELDS 18446744073709551616 f", NOT_POSITIVE),
        ("HTTL h 1 1 f", FIELDS_MISSING),
        ("HPERSIST h FIELDS 0 f", NOT_POSITIVE),
        ("HGETDEL h FIELDS 0 f", NOT_POSITIVE),
        ("HGETEX h FIELDS 2 f", NOT_SO_MANY),
        ("HGETEX h PXAT 1 FIELD 1 f", FIELDS_MISSING),
        ("HGETEX h PERSIST 1 FIELDS 1 f", FIELDS_MISSING),
        ("HGETEX h PX -1 FIELDS 1 f", "-ERR invalid expire time, must be >= 0\r\n"),
        ("HGETEX h EX x FIELDS 1 f", "-ERR value is not an integer or out of range\r\n"),
        ("HSETEX h FNX FXX FIELDS 1 f v", "-ERR Only one of FXX or FNX arguments can be specified\r\n"),
        (
            "HSETEX h EX 9 KEEPTTL FIELDS 1 f v",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified\r\n",
        ),
        ("HSETEX h NX FIELDS 1 f v", "-ERR unknown argument: NX\r\n"),
        ("HSETEX h FIELDS 1 f v EX", "-ERR missing expire time\r\n"),
        ("HSETEX h FIELDS 0 f v", "-ERR invalid number of fields\r\n"),
        ("HSETEX h FIELDS -1 f v", "-ERR invalid number of fields\r\n"),
        ("HGET h f", "$1\r\nv\r\n"),
        ("HTTL h FIELDS 1 f", "*1\r\n:-1\r\n"),
    ]);
}

#[test]
fn fields_are_read_and_set_with_their_ends() {
    check_linear(&[
        ("HSETEX h FXX EX 100 FIELDS 1 a 1", ":0\r\n"),
        ("HSETEX h FIELDS 2 a 1 b 2 PX 90000 FNX", ":1\r\n"),
        ("HTTL h FIELDS 2 a b", "*2\r\n:90\r\n:90\r\n"),
        ("HSETEX h FXX KEEPTTL FIELDS 1 a 3", ":1\r\n"),
        ("HSETEX h FIELDS 1 b 4", ":1\r\n"),
        ("HTTL h FIELDS 2 a b", "*2\r\n:90\r\n:-1\r\n"),
        ("HGETEX h EX 50 FIELDS 3 a b x", "*3\r\n$1\r\n3\r\n$1\r\n4\r\n$-1\r\n"),
        ("HGETEX h FIELDS 1 a", "*1\r\n$1\r\n3\r\n"),
        ("HTTL h FIELDS 2 a b", "*2\r\n:50\r\n:50\r\n"),
        ("HGETEX h PERSIST FIELDS 1 a", "*1\r\n$1\r\n3\r\n"),
        ("HTTL h FIELDS 2 a b", "*2\r\n:-1\r\n:50\r\n"),
        ("HGETEX h EXAT 4102444800 FIELDS 1 a", "*1\r\n$1\r\n3\r\n"),
        ("HEXPIRETIME h FIELDS 1 a", "*1\r\n:4102444800\r\n"),
        ("HGETEX h PXAT 1 FIELDS 1 a", "*1\r\n$1\r\n3\r\n"),
        ("HGETDEL h FIELDS 2 a b", "*2\r\n$-1\r\n$1\r\n4\r\n"),
        ("EXISTS h", ":0\r\n"),
    ]);
}

#[test]
fn a_hash_whose_fields_end_is_dumped_as_redis_does_and_restored() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        let mut view = View::clone(&toy.view.borrow());
        view.root.level = base::LEVEL;
        *toy.view.borrow_mut() = Arc::new(view);
        sign_in_linear(&mut stream).await;
        let ends = 4_102_444_800_000_u64;
        // As Redis 7.4 has it: the first end, and what each is after it, and one. The door's clock gives the moment back to some
        // milliseconds, so it is another payload that is taken than the one that is given.
        let mut body = vec![24];
        body.extend(ends.to_le_bytes());
        body.extend(b"\x03\x01\x01a\x011\x00\x01b\x012\x43\xe9\x01c\x013");
        let payload = crate::resp::rdb::sealed(body, 12);
        assert_eq!(told(&mut stream, &[b"RESTORE", b"h", b"0", &payload]).await, "+OK");
        send(&mut stream, &["HEXPIRETIME h FIELDS 3 a b c", "HGET h c"]).await;
        expect(&mut stream, "*3\r\n:4102444800\r\n:-1\r\n:4102444801\r\n$1\r\n3\r\n", "RESTORE").await;
        let head = told(&mut stream, &[b"DUMP", b"h"]).await;
        let len: usize = head[1..].parse().unwrap();
        let mut dumped = vec![0; len + 2];
        stream.read_exact(&mut dumped).await.unwrap();
        dumped.truncate(len);
        assert_eq!((dumped[0], dumped.len()), (24, payload.len()));
        assert_eq!(told(&mut stream, &[b"RESTORE", b"i", b"90000", &dumped]).await, "+OK");
        send(&mut stream, &["HEXPIRETIME i FIELDS 3 a b c", "TTL i", "HGETALL i"]).await;
        let rest = "*6\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n$1\r\nc\r\n$1\r\n3\r\n";
        expect(&mut stream, &format!("*3\r\n:4102444800\r\n:-1\r\n:4102444801\r\n:90\r\n{rest}"), "both").await;
    });
}

async fn told(stream: &mut TcpStream, words: &[&[u8]]) -> String {
    stream.write_all(&resp(words)).await.unwrap();
    let mut got = vec![];
    while !got.ends_with(b"\r\n") {
        got.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8_lossy(&got).trim_end().to_owned()
}
