//! Commands of very many arguments, and long patterns.

use state::linear::Wrong;

use super::*;
use crate::resp::limits::{ARGS_WHOLE_MAX, SLICE_ARGS};

const MANY: usize = 20_000;
const _: () = assert!(MANY > ARGS_WHOLE_MAX, "they are not done at once");

/// A command of these words, and of so many more of the same beginning.
fn wide(words: &[&str], each: impl Fn(usize) -> Vec<String>) -> Vec<u8> {
    let more: Vec<String> = (0..MANY).flat_map(each).collect();
    let all: Vec<&[u8]> = words.iter().copied().chain(more.iter().map(String::as_str)).map(str::as_bytes).collect();
    resp(&all)
}

#[test]
fn a_command_of_very_many_arguments_is_worked_off_in_slices() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        let ops = || toy.priorities.borrow().len();
        let one = |n: usize| vec![format!("m{n}")];
        let field = |n: usize| vec![format!("m{n}"), n.to_string()];
        let score = |n: usize| vec![n.to_string(), format!("m{n}")];
        for (words, pairs, reply) in [
            (&["SADD", "s"][..], 1, format!(":{MANY}\r\n")),
            (&["SREM", "s"], 1, format!(":{MANY}\r\n")),
            (&["HSET", "h"], 2, format!(":{MANY}\r\n")),
            (&["HMGET", "h"], 1, format!("*{MANY}\r\n$1\r\n0\r\n")),
            (&["ZADD", "z", "NX", "CH"], 3, format!(":{MANY}\r\n")),
            (&["ZMSCORE", "z"], 1, format!("*{MANY}\r\n$1\r\n0\r\n")),
            (&["RPUSH", "l"], 1, format!(":{MANY}\r\n")),
            (&["MSET"], 2, "+OK\r\n".to_owned()),
            (&["EXISTS"], 1, format!(":{MANY}\r\n")),
            (&["MGET"], 1, format!("*{MANY}\r\n$1\r\n0\r\n")),
            (&["DEL"], 1, format!(":{MANY}\r\n")),
            (&["PFADD", "p"], 1, ":1\r\n".to_owned()),
            (&["GEOADD", "g"], 4, format!(":{MANY}\r\n")),
        ] {
            let before = ops();
            let command = match pairs {
                1 => wide(words, one),
                2 => wide(words, field),
                3 => wide(words, score),
                _ => wide(words, |n| vec!["1".to_owned(), "2".to_owned(), format!("m{n}")]),
            };
            stream.write_all(&command).await.unwrap();
            expect(&mut stream, &reply, words[0]).await;
            // What else there is of a list.
            send(&mut stream, &["ECHO end"]).await;
            let mut rest = Vec::new();
            while !rest.ends_with(b"$3\r\nend\r\n") {
                rest.push(stream.read_u8().await.unwrap());
            }
            let least = (MANY * if pairs == 1 { 1 } else { 2 }).div_ceil(SLICE_ARGS);
            assert!(ops() - before >= least, "{words:?}: {} operations", ops() - before);
        }
    });
}

#[test]
fn a_command_of_64_mib_is_worked_off_and_one_beyond_the_limit_is_told() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        let value = "v".repeat(1 << 20);
        let keys: Vec<String> = (0..64).map(|n| format!("m{n}")).collect();
        let pairs = keys.iter().flat_map(|key| [key.as_str(), value.as_str()]);
        let all: Vec<&[u8]> = ["MSET"].into_iter().chain(pairs).map(str::as_bytes).collect();
        let before = toy.priorities.borrow().len();
        stream.write_all(&resp(&all)).await.unwrap();
        expect(&mut stream, "+OK\r\n", "MSET of 64 MiB").await;
        assert!(toy.priorities.borrow().len() - before >= 16, "in slices of 4 MiB");
        let name = "k".repeat(500);
        let names: Vec<String> = (0..60_000).map(|n| format!("{name}{n}")).collect();
        let given = keys.iter().chain(&names).map(String::as_str);
        let all: Vec<&[u8]> = ["DEL"].into_iter().chain(given).map(str::as_bytes).collect();
        stream.write_all(&resp(&all)).await.unwrap();
        expect(&mut stream, ":64\r\n", "DEL of 30 MB").await;
        // What is too much is told as soon as it is announced.
        let most = crate::resp::limits::COMMAND_BYTES_MAX / (16 << 20);
        stream.write_all(format!("*{}\r\n$4\r\nMSET\r\n", 2 * most + 4).as_bytes()).await.unwrap();
        let text = vec![b'v'; 16 << 20];
        for _ in 0..most - 1 {
            stream.write_all(format!("${}\r\n", text.len()).as_bytes()).await.unwrap();
            stream.write_all(&text).await.unwrap();
            stream.write_all(b"\r\n").await.unwrap();
        }
        stream.write_all(format!("${}\r\n", text.len()).as_bytes()).await.unwrap();
        expect(&mut stream, "-ERR Protocol error: ", "more than a command may have").await;
    });
}

#[test]
fn what_must_be_done_at_once_is_refused_and_the_connection_goes_on() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        let pair = |n: usize| vec![format!("m{n}"), n.to_string()];
        stream.write_all(&wide(&["MSETNX"], pair)).await.unwrap();
        let why = "arguments at most here, as it is done at once\r\n";
        expect(&mut stream, &format!("-ERR 'MSETNX' has 16384 {why}"), "MSETNX").await;
        send(&mut stream, &["MULTI"]).await;
        stream.write_all(&wide(&["SADD", "s"], |n| vec![n.to_string()])).await.unwrap();
        send(&mut stream, &["EXEC", "SCARD s"]).await;
        expect(&mut stream, &format!("+OK\r\n-ERR 'SADD' has 16384 {why}-EXECABORT"), "MULTI").await;
        expect(&mut stream, " Transaction discarded because of previous errors.\r\n:0\r\n", "nothing of it").await;
        stream.write_all(&wide(&["HSET", "h", "odd"], pair)).await.unwrap();
        expect(&mut stream, "-ERR wrong number of arguments for 'hset' command", "one without a value").await;
    });
}

#[test]
fn what_ends_in_the_middle_says_how_far_it_came() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        let mut asked = 0;
        *toy.bank.borrow_mut() = Some(Box::new(move |_| {
            asked += 1;
            if asked > 1 { linear::Reply::Wrong(Wrong::Type) } else { linear::Reply::Int(1) }
        }));
        sign_in_linear(&mut stream).await;
        stream.write_all(&wide(&["SADD", "s"], |n| vec![n.to_string()])).await.unwrap();
        let why = format!(
            "-UNKNOWN the first {SLICE_ARGS} of {MANY} arguments are done, of the others some may be: WRONGTYPE"
        );
        expect(&mut stream, &why, "SADD").await;
    });
}

#[test]
fn who_follows_values_reads_only_so_many_at_once() {
    with_door(|toy, mut stream| async move {
        changes::set_bank(&toy, base::LEVEL);
        send(&mut stream, &["HELLO 3 AUTH bank secret3", "CLIENT TRACKING ON", "ECHO on"]).await;
        let mut seen = String::new();
        while !seen.ends_with("$2\r\non\r\n") {
            seen.push(char::from(stream.read_u8().await.unwrap()));
        }
        stream.write_all(&wide(&["MGET"], |n| vec![format!("m{n}")])).await.unwrap();
        expect(&mut stream, "-ERR with CLIENT TRACKING a command reads less than 16384 at once\r\n", "MGET").await;
    });
}

#[test]
fn class_session_takes_them_too() {
    with_door(|_, mut stream| async move {
        sign_in(&mut stream).await;
        stream.write_all(&wide(&["MSET"], |n| vec![format!("m{n}"), "v".to_owned()])).await.unwrap();
        expect(&mut stream, "+OK\r\n", "MSET").await;
        stream.write_all(&wide(&["DEL", "none"], |n| vec![format!("m{n}")])).await.unwrap();
        expect(&mut stream, &format!(":{MANY}\r\n"), "DEL").await;
    });
}

#[test]
fn a_long_pattern_is_compared_and_other_nodes_are_told_a_shorter_one() {
    with_door(|toy, mut stream| async move {
        toy.set_linear();
        *toy.bank.borrow_mut() = Some(bank());
        sign_in_linear(&mut stream).await;
        let mut writer = another(&stream).await;
        let (pattern, name) = ("[ab]".repeat(300), "ab".repeat(150));
        send(&mut writer, &[&format!("SET {name} 1"), &format!("KEYS {pattern}")]).await;
        expect(&mut writer, &format!("+OK\r\n*1\r\n$300\r\n{name}\r\n"), "KEYS").await;
        send(&mut writer, &[&format!("SCAN 0 MATCH {pattern}"), &format!("KEYS {pattern}a")]).await;
        expect(&mut writer, &format!("*2\r\n$1\r\n0\r\n*1\r\n$300\r\n{name}\r\n*0\r\n"), "SCAN").await;
        send(&mut stream, &[&format!("PSUBSCRIBE {pattern}")]).await;
        expect(&mut stream, &format!("*3\r\n$10\r\npsubscribe\r\n$1200\r\n{pattern}\r\n:1\r\n"), "PSUBSCRIBE").await;
        let told = toy.channels.borrow().iter().find_map(|op| match op {
            ::channels::Op::Subscribe { names, .. } => names.first().cloned(),
            _ => None,
        });
        let told = told.unwrap();
        assert!(told.len() <= ::channels::limits::NAME_BYTES_MAX && ::channels::fits(&told, name.as_bytes()));
        // What fits only what others are told is not heard.
        send(&mut writer, &[&format!("PUBLISH {name}a no"), &format!("PUBLISH {name} yes")]).await;
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let heard = ["pmessage", &pattern, &name, "yes"].map(bulk).concat();
        expect(&mut stream, &format!("*4\r\n{heard}"), "the message").await;
    });
}
