//! Commands of class `cache`, run by the class's own machine, alone: what is answered is what Redis answers, or what works instead.

use base::{Boot, Now, Time};
use class::{Class as _, CookieSecret, Declared, Space as Declares};
use state::cache::{Cache, Input, Near, Output};

use super::*;

/// One node that is all of its cluster.
pub fn alone() -> Cache {
    let (mut cache, mut out) = (Cache::new(NodeId(1), Boot(1), Near::default()), Vec::new());
    let space = Declares { id: 1, spec: state::cache::Spec::default(), secret: CookieSecret::new(1, [1; 32]) };
    let spaces = BTreeMap::from([("pages".to_owned(), space)]);
    let declared = Declared {
        version: 1,
        level: base::LEVEL,
        spaces,
        records: BTreeMap::new(),
        unread: 0,
        nodes: Default::default(),
        numbers: Default::default(),
    };
    cache.handle(Now::default(), Input::Declared(declared), &mut out);
    cache.handle(Now::default(), Input::Voters([NodeId(1)].into()), &mut out);
    cache
}

/// What it answers at once.
pub fn run(cache: &mut Cache, op: state::cache::Op) -> Outcome<state::cache::Reply> {
    let mut out = Vec::new();
    let now = Now { mono: Time(1_000_000), wall_ms: 1 };
    cache.handle(now, Input::Ask { id: base::AskId(1), budget: Span::secs(1), op }, &mut out);
    match out.pop() {
        Some(Output::Answer { answer, .. }) => answer,
        other => panic!("{other:?}"),
    }
}

fn check(script: &[(&str, &str)]) {
    with_door(|toy, mut stream| async move {
        toy.set_tokens(&[("carts", "secret"), ("pages", "secret4")]);
        let mut view = View::clone(&toy.view.borrow());
        view.specs = Arc::new([("pages".to_owned(), NamespaceSpec::Cache(state::cache::Spec::default()))].into());
        *toy.view.borrow_mut() = Arc::new(view);
        *toy.cache.borrow_mut() = Some(alone());
        for (command, reply) in [("AUTH pages secret4", "+OK\r\n")].iter().chain(script) {
            send(&mut stream, &[command]).await;
            expect(&mut stream, reply, command).await;
        }
    });
}

#[test]
fn entries_are_set_read_ended_and_removed() {
    check(&[
        ("SET a 1", "+OK\r\n"),
        ("GET a", "$1\r\n1\r\n"),
        ("GET none", "$-1\r\n"),
        ("STRLEN a", ":1\r\n"),
        ("TYPE a", "+string\r\n"),
        ("TYPE none", "+none\r\n"),
        ("TTL a", ":-1\r\n"),
        ("TTL none", ":-2\r\n"),
        ("EXPIRE a 100", ":1\r\n"),
        ("TTL a", ":100\r\n"),
        ("PERSIST a", ":1\r\n"),
        ("PTTL a", ":-1\r\n"),
        ("SET a 2 EX 10", "+OK\r\n"),
        ("PTTL a", ":10000\r\n"),
        ("SET none 1 XX", "$-1\r\n"),
        ("SET a 3 XX PX 5000", "+OK\r\n"),
        ("TTL a", ":5\r\n"),
        ("SETEX b 7 x", "+OK\r\n"),
        ("PSETEX c 900000 y", "+OK\r\n"),
        ("MSET d 1 e 2 d 3", "+OK\r\n"),
        ("MGET a b none d", "*4\r\n$1\r\n3\r\n$1\r\nx\r\n$-1\r\n$1\r\n3\r\n"),
        ("EXISTS a a none", ":2\r\n"),
        ("DBSIZE", ":5\r\n"),
        ("DEL a none", ":1\r\n"),
        ("UNLINK b", ":1\r\n"),
        ("EXPIREAT c 1", ":1\r\n"),
        ("GET c", "$-1\r\n"),
        ("SET d 1 EXAT 1", "+OK\r\n"),
        ("EXISTS d", ":0\r\n"),
        ("SET d 1 XX EXAT 1", "$-1\r\n"),
        ("EXPIRE none 5", ":0\r\n"),
        ("FLUSHDB ASYNC", "+OK\r\n"),
        ("DBSIZE", ":0\r\n"),
    ]);
}

#[test]
fn tags_prefixes_and_keys_are_purged() {
    check(&[
        ("SET page/1 a TAG news TAG shop", "+OK\r\n"),
        ("SET page/2 b TAG shop EX 10", "+OK\r\n"),
        ("SET page/3 c", "+OK\r\n"),
        ("SET pic/1 c", "+OK\r\n"),
        ("PURGE TAG news", "+OK\r\n"),
        ("MGET page/1 page/2 page/3", "*3\r\n$-1\r\n$1\r\nb\r\n$1\r\nc\r\n"),
        ("PURGE PREFIX page/", "+OK\r\n"),
        ("EXISTS page/2 page/3 pic/1", ":1\r\n"),
        ("PURGE KEY pic/1", "+OK\r\n"),
        ("DBSIZE", ":0\r\n"),
        ("PURGE ALL", "+OK\r\n"),
        ("PURGE TAGS x", "-ERR syntax error: PURGE takes KEY name, PREFIX prefix, TAG tag, or ALL\r\n"),
        ("PURGE TAG", "-ERR syntax error: PURGE takes KEY name, PREFIX prefix, TAG tag, or ALL\r\n"),
    ]);
}

#[test]
fn what_a_cache_cannot_keep_is_refused_with_what_can() {
    check(&[
        (
            "SETNX lock me",
            "-ERR 'SETNX' is not offered by class cache: a cache may forget who was first: a namespace of class linear decides it\r\n",
        ),
        (
            "SET lock me NX EX 10",
            "-ERR NX of SET is not offered by class cache: a cache may forget who was first: a namespace of class linear decides it\r\n",
        ),
        ("INCR hits", "-ERR 'INCR' is not offered by class cache: a cache may forget the sum: class linear counts\r\n"),
        (
            "LPUSH jobs a",
            "-ERR 'LPUSH' is not offered by class cache: a cache may forget an item that nobody has taken: lists are of class linear\r\n",
        ),
        ("SET a 1 GET", "-ERR GET of SET is not offered by class cache: GET and SET, one after the other\r\n"),
        ("SET a 1 KEEPTTL", "-ERR KEEPTTL of SET is not offered by class cache: say with EX how long it is kept\r\n"),
        ("SET a 1 EX 0", "-ERR invalid expire time in 'set' command\r\n"),
        ("SET a 1 EX 5 PX 5", "-ERR syntax error\r\n"),
        ("SET a 1 EX 99999999", "-ERR an entry ends within 400 days, or never\r\n"),
    ]);
}
