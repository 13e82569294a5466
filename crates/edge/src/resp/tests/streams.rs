//! Streams: what is answered is what Redis 7 answers, in both dialects.

use linear::Reply as Got;

use super::blocked::{answer, begin, upto};
use super::*;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
const SYNTAX: &str = "-ERR syntax error\r\n";
const BAD_ID: &str = "-ERR Invalid stream ID specified as stream command argument\r\n";
const NO_NUMBER: &str = "-ERR value is not an integer or out of range\r\n";
const NONE: &str = "*0\r\n";
const NIL_LIST: &str = "*-1\r\n";

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// `id f v`, each entry of one field.
fn entries(of: &[&str]) -> String {
    let one = |entry: &&str| {
        let words: Vec<&str> = entry.split(' ').collect();
        let fields: String = words[1..].iter().map(|word| bulk(word)).collect();
        format!("*2\r\n{}*{}\r\n{fields}", bulk(words[0]), words.len() - 1)
    };
    format!("*{}\r\n{}", of.len(), of.iter().map(one).collect::<String>())
}

fn ids(of: &[&str]) -> String {
    format!("*{}\r\n{}", of.len(), of.iter().map(|id| bulk(id)).collect::<String>())
}

fn named(key: &str, of: &[&str]) -> String {
    format!("*1\r\n*2\r\n{}{}", bulk(key), entries(of))
}

fn check(script: &[(&str, String)]) {
    check_linear(&script.iter().map(|(command, reply)| (*command, reply.as_str())).collect::<Vec<_>>());
}

#[test]
fn entries_are_added_and_read() {
    let too_low = "-ERR The ID specified in XADD is equal or smaller than the target stream top item\r\n";
    let both = "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible\r\n";
    check(&[
        ("XADD s 5-1 f a", bulk("5-1")),
        ("XADD s 5-* f b", bulk("5-2")),
        ("XADD s 6 g c h d", bulk("6-0")),
        ("XADD s 6-0 f x", too_low.into()),
        ("XADD s 0-0 f x", "-ERR The ID specified in XADD must be greater than 0-0\r\n".into()),
        ("XADD s 0-* f x", too_low.into()),
        ("XADD new 0-* f x", bulk("0-1")),
        ("XADD s x f x", BAD_ID.into()),
        ("XADD s - f x", BAD_ID.into()),
        ("XADD none NOMKSTREAM 1 f x", "$-1\r\n".into()),
        ("EXISTS none", ":0\r\n".into()),
        ("XADD s MAXLEN 5 MINID 1 7 f x", both.into()),
        ("XADD s MAXLEN -1 7 f x", "-ERR The MAXLEN argument must be >= 0.\r\n".into()),
        ("XADD s MAXLEN x 7 f x", NO_NUMBER.into()),
        (
            "XADD s MAXLEN = 5 LIMIT 4 7 f x",
            "-ERR syntax error, LIMIT cannot be used without the special ~ option\r\n".into(),
        ),
        (
            "XADD s LIMIT 4 7 f x",
            "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy\r\n".into(),
        ),
        ("XTRIM s COUNT 4", SYNTAX.into()),
        ("XLEN s", ":3\r\n".into()),
        ("XLEN none", ":0\r\n".into()),
        ("TYPE s", "+stream\r\n".into()),
        ("OBJECT ENCODING s", bulk("stream")),
        ("XRANGE s - +", entries(&["5-1 f a", "5-2 f b", "6-0 g c h d"])),
        ("XRANGE s 5 5", entries(&["5-1 f a", "5-2 f b"])),
        ("XRANGE s (5-1 + COUNT 1", entries(&["5-2 f b"])),
        ("XREVRANGE s + (5-1", entries(&["6-0 g c h d", "5-2 f b"])),
        ("XREVRANGE s (6 - COUNT 1", entries(&["6-0 g c h d"])),
        ("XRANGE s - + COUNT 0", NIL_LIST.into()),
        ("XREVRANGE none + - COUNT 0", NONE.into()),
        ("XRANGE s - + COUNT", SYNTAX.into()),
        ("XRANGE s (- +", BAD_ID.into()),
        ("XRANGE s (18446744073709551615-18446744073709551615 +", "-ERR invalid start ID for the interval\r\n".into()),
        ("XRANGE s - (0-0", "-ERR invalid end ID for the interval\r\n".into()),
        ("XRANGE none - +", NONE.into()),
        ("XDEL s 5-2 9-9", ":1\r\n".into()),
        ("XDEL s 5-1 x", BAD_ID.into()),
        ("XREAD STREAMS s none 5-1 0", named("s", &["6-0 g c h d"])),
        ("XREAD COUNT 1 STREAMS s 0", named("s", &["5-1 f a"])),
        ("XREAD STREAMS s $", NIL_LIST.into()),
        ("XREAD STREAMS s 6-0", NIL_LIST.into()),
        ("XREAD BLOCK 1 STREAMS s $", NIL_LIST.into()),
        ("XREAD BLOCK 0 STREAMS s 5", named("s", &["5-1 f a", "6-0 g c h d"])),
        ("XREAD BLOCK -1 STREAMS s 5", "-ERR timeout is negative\r\n".into()),
        ("XREAD BLOCK x STREAMS s 5", "-ERR timeout is not an integer or out of range\r\n".into()),
        (
            "XREAD STREAMS s t 5",
            "-ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.\r\n"
                .into(),
        ),
        ("XREAD COUNT 5 STREAMS none s + +", named("s", &["6-0 g c h d"])),
        ("XREAD BLOCK 0 STREAMS s +", named("s", &["6-0 g c h d"])),
        ("XREAD BLOCK 1 STREAMS none +", NIL_LIST.into()),
        ("XREAD STREAMS s >", {
            "-ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.\r\n"
                .into()
        }),
        (
            "XREAD GROUP g c STREAMS s 0",
            "-ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.\r\n".into(),
        ),
        ("XTRIM s MAXLEN 1", ":1\r\n".into()),
        ("XTRIM s MINID ~ 6", ":0\r\n".into()),
        ("XTRIM s MINID ~ 9", ":1\r\n".into()),
        ("XTRIM s MINID 9", ":0\r\n".into()),
        ("XSETID s 5", "-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id\r\n".into()),
        ("XADD s 7 f x", bulk("7-0")),
        ("XSETID s 6", "-ERR The ID specified in XSETID is smaller than the target stream top item\r\n".into()),
        ("XSETID s 8 ENTRIESADDED 9 MAXDELETEDID 6-0", "+OK\r\n".into()),
        ("XSETID none 8", "-ERR no such key\r\n".into()),
        ("SET t v", "+OK\r\n".into()),
        ("XADD t 1 f v", WRONG_TYPE.into()),
        ("XREAD STREAMS s t 0 0", WRONG_TYPE.into()),
        ("XREAD BLOCK 0 STREAMS s t 0 0", WRONG_TYPE.into()),
        ("COMMAND GETKEYS XREAD COUNT 2 STREAMS a b 0 0", ids(&["a", "b"])),
        ("COMMAND GETKEYS XREADGROUP GROUP streams c STREAMS a >", ids(&["a"])),
        ("COMMAND GETKEYS XREAD STREAMS a b 0", "-ERR Invalid arguments specified for command\r\n".into()),
    ]);
}

#[test]
fn a_new_id_is_of_this_moment_and_above_the_last() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
        let before = now();
        send(&mut stream, &["XADD s * f v"]).await;
        let mut got = vec![0; 64];
        let len = stream.read(&mut got).await.unwrap();
        let text = String::from_utf8_lossy(&got[..len]).into_owned();
        let ms: u64 = text.lines().nth(1).unwrap().split('-').next().unwrap().parse().unwrap();
        assert!((before..=now()).contains(&ms), "{text}");
        send(&mut stream, &["XADD s 99999999999999-7 f v"]).await;
        expect(&mut stream, &bulk("99999999999999-7"), "of a time to come").await;
        send(&mut stream, &["XADD s * f v"]).await;
        expect(&mut stream, &bulk("99999999999999-8"), "the next one").await;
    });
}

#[test]
fn groups_share_entries_among_consumers() {
    let no_group = "-NOGROUP No such key 's' or consumer group 'x'\r\n";
    let no_group_2 = "-NOGROUP No such consumer group 'x' for key name 's'\r\n";
    let no_key = "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option \
                  to create an empty stream automatically.\r\n";
    check(&[
        ("XGROUP CREATE s g $", no_key.into()),
        ("XGROUP CREATE s g $ MKSTREAM", "+OK\r\n".into()),
        ("XGROUP CREATE s g $", "-BUSYGROUP Consumer Group name already exists\r\n".into()),
        ("XGROUP SETID s x $", no_group_2.into()),
        ("XGROUP CREATE s h - ENTRIESREAD 0", BAD_ID.into()),
        ("XADD s 1-1 f a", bulk("1-1")),
        ("XADD s 2-1 f b", bulk("2-1")),
        ("XADD s 3-1 f c", bulk("3-1")),
        ("XREADGROUP GROUP g ann COUNT 1 STREAMS s >", named("s", &["1-1 f a"])),
        ("XREADGROUP GROUP g bob COUNT 1 BLOCK 0 STREAMS s >", named("s", &["2-1 f b"])),
        ("XREADGROUP GROUP g cid NOACK STREAMS s >", named("s", &["3-1 f c"])),
        ("XREADGROUP GROUP g ann STREAMS s >", NIL_LIST.into()),
        ("XREADGROUP GROUP g ann BLOCK 1 STREAMS s >", NIL_LIST.into()),
        ("XREADGROUP GROUP g ann STREAMS s 0", named("s", &["1-1 f a"])),
        ("XREADGROUP GROUP g cid BLOCK 0 STREAMS s 0", named("s", &[])),
        ("XREADGROUP GROUP x ann STREAMS s >", {
            "-NOGROUP No such key 's' or consumer group 'x' in XREADGROUP with GROUP option\r\n".into()
        }),
        ("XREADGROUP GROUP x ann BLOCK 0 STREAMS s >", {
            "-NOGROUP No such key 's' or consumer group 'x' in XREADGROUP with GROUP option\r\n".into()
        }),
        (
            "XREADGROUP STREAMS s s > > > > >",
            "-ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.\r\n"
                .into(),
        ),
        ("XREADGROUP COUNT 5 COUNT 5 STREAMS s >", "-ERR Missing GROUP option for XREADGROUP\r\n".into()),
        (
            "XPENDING s g",
            format!(
                "*4\r\n:2\r\n{}{}*2\r\n*2\r\n{}{}*2\r\n{}{}",
                bulk("1-1"),
                bulk("2-1"),
                bulk("ann"),
                bulk("1"),
                bulk("bob"),
                bulk("1")
            ),
        ),
        ("XPENDING s x", no_group.into()),
        ("XPENDING s g - + 10 bob IDLE", SYNTAX.into()),
        ("XPENDING s g IDLE 100000 - + 10", NONE.into()),
        ("XPENDING s g - + 10 nobody", NONE.into()),
        ("XACK s g 1-1 9-9", ":1\r\n".into()),
        ("XACK s x 1-1", ":0\r\n".into()),
        ("XCLAIM s g ann 0 2-1", entries(&["2-1 f b"])),
        ("XCLAIM s g ann 0 2-1 RETRYCOUNT 7 JUSTID", ids(&["2-1"])),
        ("XCLAIM s g ann 100000 2-1", NONE.into()),
        ("XCLAIM s g ann x 2-1", "-ERR Invalid min-idle-time argument for XCLAIM\r\n".into()),
        ("XCLAIM s g ann 0 2-1 WHAT", "-ERR Unrecognized XCLAIM option 'WHAT'\r\n".into()),
        ("XCLAIM s x ann 0 2-1", no_group.into()),
        ("XAUTOCLAIM s g bob 0 0 COUNT 1", format!("*3\r\n{}{}{NONE}", bulk("0-0"), entries(&["2-1 f b"]))),
        ("XAUTOCLAIM s g bob 0 0 COUNT 0", "-ERR COUNT must be > 0\r\n".into()),
        ("XDEL s 2-1", ":1\r\n".into()),
        (
            "XREADGROUP GROUP g bob STREAMS s 0",
            format!("*1\r\n*2\r\n{}*1\r\n*2\r\n{}{NIL_LIST}", bulk("s"), bulk("2-1")),
        ),
        ("XAUTOCLAIM s g bob 0 0 JUSTID", format!("*3\r\n{}{NONE}{}", bulk("0-0"), ids(&["2-1"]))),
        ("XPENDING s g", "*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n".into()),
        ("XGROUP CREATECONSUMER s g dot", ":1\r\n".into()),
        ("XGROUP DELCONSUMER s g dot", ":0\r\n".into()),
        ("XGROUP DELCONSUMER s x dot", no_group_2.into()),
        (
            "XINFO GROUPS s",
            format!(
                "*1\r\n*12\r\n{}{}{}:3\r\n{}:0\r\n{}{}{}:3\r\n{}:0\r\n",
                bulk("name"),
                bulk("g"),
                bulk("consumers"),
                bulk("pending"),
                bulk("last-delivered-id"),
                bulk("3-1"),
                bulk("entries-read"),
                bulk("lag")
            ),
        ),
        ("XINFO CONSUMERS s x", no_group_2.into()),
        ("XINFO STREAM none", "-ERR no such key\r\n".into()),
        ("XGROUP DESTROY s g", ":1\r\n".into()),
        ("XGROUP DESTROY s g", ":0\r\n".into()),
        ("XINFO GROUPS s", NONE.into()),
    ]);
}

#[test]
fn what_is_known_of_a_stream_is_a_map_in_the_newer_dialect() {
    let of = |names: &[&str], values: &[String]| {
        let pairs: String = names.iter().zip(values).map(|(name, value)| bulk(name) + value).collect();
        format!("%{}\r\n{pairs}", names.len())
    };
    let names =
        ["length", "radix-tree-keys", "radix-tree-nodes", "last-generated-id", "max-deleted-entry-id", "entries-added"];
    let counted = [":1\r\n", ":1\r\n", ":2\r\n", &bulk("1-1"), &bulk("0-0"), ":1\r\n"].map(str::to_owned);
    let names = [&names[..], &["recorded-first-entry-id", "groups", "first-entry", "last-entry"]].concat();
    let entry = format!("*2\r\n{}*2\r\n{}{}", bulk("1-1"), bulk("f"), bulk("v"));
    let info = of(&names, &[&counted[..], &[bulk("1-1"), ":0\r\n".into(), entry.clone(), entry]].concat());
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        send(&mut stream, &["HELLO 3"]).await;
        answer_of_hello(&mut stream).await;
        for (command, reply) in [
            ("XADD s 1-1 f v", bulk("1-1")),
            ("XREAD STREAMS s 0", format!("%1\r\n{}{}", bulk("s"), entries(&["1-1 f v"]))),
            ("XREAD STREAMS s 1-1", "_\r\n".into()),
            ("XINFO STREAM s", info),
        ] {
            send(&mut stream, &[command]).await;
            expect(&mut stream, &reply, command).await;
        }
    });
}

/// All that HELLO says: it ends with an empty list, of modules.
async fn answer_of_hello(stream: &mut TcpStream) {
    let mut got = vec![];
    while !got.ends_with(b"*0\r\n") {
        assert!(stream.read_buf(&mut got).await.unwrap() > 0, "{}", String::from_utf8_lossy(&got));
    }
}

fn told() -> Got {
    let fields = Got::List(vec![Got::Bytes("f".into()), Got::Bytes("v".into())]);
    Got::List(vec![Got::Bytes("s".into()), Got::List(vec![Got::Bytes("1-1".into()), fields])])
}

#[test]
fn who_waits_for_a_group_asks_before_it_writes() {
    with_door(|toy, mut stream| async move {
        begin(&toy, &mut stream, &["XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "PING"]).await;
        // It is seen as a consumer at once.
        answer(&toy, "stream.read-group s", Got::Nil).await;
        answer(&toy, "changes s", upto(5)).await;
        answer(&toy, "stream.has-news s", Got::Int(0)).await;
        // Somebody acknowledges, say.
        answer(&toy, "changes s", upto(6)).await;
        answer(&toy, "stream.has-news s", Got::Int(0)).await;
        answer(&toy, "changes s", upto(7)).await;
        answer(&toy, "stream.has-news s", Got::Int(1)).await;
        answer(&toy, "stream.read-group s", told()).await;
        expect(&mut stream, &(named("s", &["1-1 f v"]) + "+PONG\r\n"), "the entry").await;
    });
}

#[test]
fn everyone_who_reads_a_stream_gets_what_comes() {
    with_door(|toy, mut stream| async move {
        begin(&toy, &mut stream, &["XREAD BLOCK 0 STREAMS s $"]).await;
        answer(&toy, "stream.last s", Got::Bytes("1-0".into())).await;
        answer(&toy, "stream.read s", Got::Nil).await;
        answer(&toy, "changes s", upto(5)).await;
        answer(&toy, "stream.read s", Got::Nil).await;
        until(|| toy.asked() == ["changes s"]).await;
        let mut other = another(&stream).await;
        send(&mut other, &["XREAD BLOCK 0 STREAMS s 1-0"]).await;
        answer(&toy, "stream.read s", Got::Nil).await;
        until(|| toy.asked() == ["changes s"]).await;
        pause().await;
        toy.give("changes s", upto(6));
        for _ in 0..2 {
            answer(&toy, "stream.read s", told()).await;
        }
        for stream in [&mut stream, &mut other] {
            expect(stream, &named("s", &["1-1 f v"]), "the entry").await;
        }
    });
}

#[test]
fn a_group_that_goes_is_told_to_who_waits_for_it() {
    let gone = || Got::List(vec![Got::Wrong(linear::Wrong::NoGroup), Got::Bytes("s".into()), Got::Bytes("g".into())]);
    with_door(|toy, mut stream| async move {
        begin(&toy, &mut stream, &["XREADGROUP GROUP g c BLOCK 0 STREAMS s >"]).await;
        answer(&toy, "stream.read-group s", Got::Nil).await;
        answer(&toy, "changes s", upto(5)).await;
        answer(&toy, "stream.has-news s", gone()).await;
        let error = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option\r\n";
        expect(&mut stream, error, "it is told").await;
    });
}
