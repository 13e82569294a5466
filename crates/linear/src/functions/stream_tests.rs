//! Streams by script, and at a second replica.

use super::tests::{check, list, text};
use super::*;
use Reply::{Int, Nil};
use base::Rng;

fn wrong(wrong: Wrong) -> Reply {
    Reply::Wrong(wrong)
}

/// Entries of the one field `f`.
fn entries(of: &[(&str, &str)]) -> Reply {
    Reply::List(of.iter().flat_map(|(id, value)| [text(id), list(&["f", value])]).collect())
}

fn no_group(key: &str, group: &str) -> Reply {
    Reply::List(vec![wrong(Wrong::NoGroup), text(key), text(group)])
}

fn all<'a>(key: &'a str, of: &[(&str, &str)]) -> (&'a str, &'static str, &'static [&'static str], Reply) {
    (key, "stream.range", &["0-0", "9999-0", "forward", "-1"], entries(of))
}

#[test]
fn entries_have_ids_that_go_up() {
    check(&[
        ("s", "stream.add", &["5-1", "any", "-", "f", "a"], text("5-1")),
        ("s", "type", &[], text("stream")),
        ("s", "stream.add", &["5-1", "any", "-", "f", "b"], wrong(Wrong::IdTooLow)),
        ("s", "stream.add", &["4-9", "any", "-", "f", "b"], wrong(Wrong::IdTooLow)),
        ("s", "stream.add", &["4-*", "any", "-", "f", "b"], wrong(Wrong::IdTooLow)),
        ("s", "stream.add", &["5-*", "any", "-", "f", "b"], text("5-2")),
        // A clock behind the last id, and one before it.
        ("s", "stream.add", &["*3", "any", "-", "f", "c"], text("5-3")),
        ("s", "stream.add", &["*7", "any", "-", "f", "d"], text("7-0")),
        ("s", "stream.add", &["*7", "any", "-", "f", "e"], text("7-1")),
        ("s", "stream.add", &["8-*", "any", "-", "f", "g"], text("8-0")),
        ("s", "stream.length", &[], Int(6)),
        ("s", "stream.last", &[], text("8-0")),
        ("s", "stream.range", &["5-2", "7-0", "forward", "-1"], entries(&[("5-2", "b"), ("5-3", "c"), ("7-0", "d")])),
        ("s", "stream.range", &["5-2", "7-0", "reverse", "2"], entries(&[("7-0", "d"), ("5-3", "c")])),
        ("s", "stream.read", &["7-0", "1"], Reply::List(vec![text("s"), entries(&[("7-1", "e")])])),
        ("s", "stream.read", &["+", "5"], Reply::List(vec![text("s"), entries(&[("8-0", "g")])])),
        ("s", "stream.read", &["$", "5"], Nil),
        ("none", "stream.read", &["+", "5"], Nil),
        ("s", "stream.remove", &["5-2", "5-3", "6-0", "5-2"], Int(2)),
        all("s", &[("5-1", "a"), ("7-0", "d"), ("7-1", "e"), ("8-0", "g")]),
        ("s", "stream.add", &["9-0", "any", "len exact 2 0", "f", "h"], text("9-0")),
        all("s", &[("8-0", "g"), ("9-0", "h")]),
        ("s", "stream.trim", &["id exact 9-0 0"], Int(1)),
        ("s", "stream.trim", &["len exact 1 0"], Int(0)),
        // One without entries stays: it knows its last id.
        ("s", "stream.remove", &["9-0"], Int(1)),
        ("s", "exists", &[], Int(1)),
        ("s", "stream.add", &["9-0", "any", "-", "f", "x"], wrong(Wrong::IdTooLow)),
        ("s", "stream.set-id", &["8-0", "-", "-"], wrong(Wrong::IdBelowDeleted)),
        ("s", "stream.set-id", &["20-0", "100", "15-0"], Int(1)),
        ("s", "stream.add", &["*1", "any", "-", "f", "x"], text("20-1")),
        ("s", "stream.set-id", &["20-0", "-", "-"], wrong(Wrong::IdTooLow)),
        ("s", "stream.set-id", &["20-1", "0", "-"], wrong(Wrong::TooFew)),
        (
            "s",
            "stream.info",
            &[],
            Reply::List(vec![
                Int(1),
                Int(1),
                text("20-1"),
                text("15-0"),
                Int(101),
                text("20-1"),
                Int(0),
                entries(&[("20-1", "x")]),
                entries(&[("20-1", "x")]),
            ]),
        ),
        ("none", "stream.add", &["1-1", "present", "-", "f", "a"], Nil),
        ("none", "stream.add", &["0-0", "any", "-", "f", "a"], wrong(Wrong::IdTooLow)),
        ("none", "stream.add", &["1-1", "any", "-", "f"], wrong(Wrong::Arguments)),
        ("none", "stream.add", &["1-1", "any", "len exact", "f", "a"], wrong(Wrong::Arguments)),
        ("none", "stream.set-id", &["1-1", "-", "-"], wrong(Wrong::NoKey)),
        ("none", "stream.info", &[], wrong(Wrong::NoKey)),
        ("none", "stream.trim", &["len exact 0 0"], Int(0)),
        ("none", "exists", &[], Int(0)),
        ("end", "stream.add", &["18446744073709551615-18446744073709551615", "any", "-", "f", "a"], {
            text("18446744073709551615-18446744073709551615")
        }),
        ("end", "stream.add", &["*5", "any", "-", "f", "b"], wrong(Wrong::IdsEnd)),
        ("t", "put", &["x", "always", "none"], Reply::List(vec![Int(1), Nil, Int(16)])),
        ("t", "stream.add", &["1-1", "any", "-", "f", "a"], wrong(Wrong::Type)),
        ("t", "stream.read", &["$", "-1"], wrong(Wrong::Type)),
        ("s", "get", &[], wrong(Wrong::Type)),
        ("s", "copy", &["y"], Int(1)),
        ("y", "stream.remove", &["20-1"], Int(1)),
        all("s", &[("20-1", "x")]),
        ("s", "rename", &["y"], Int(1)),
        all("y", &[("20-1", "x")]),
    ]);
}

#[test]
fn each_entry_goes_to_one_consumer_of_a_group() {
    let read = |of: &[(&str, &str)]| Reply::List(vec![text("s"), entries(of)]);
    check(&[
        ("s", "stream.group-make", &["g", "$", "-", "present"], wrong(Wrong::NoKey)),
        ("s", "stream.group-make", &["g", "$", "-", "make"], Int(1)),
        ("s", "stream.group-make", &["g", "0-0", "-", "make"], wrong(Wrong::GroupExists)),
        ("s", "stream.read-group", &["none", "c", ">", "10", "-1", "ack"], no_group("s", "none")),
        ("x", "stream.read-group", &["g", "c", ">", "10", "-1", "ack"], no_group("x", "g")),
        ("s", "stream.has-news", &["g"], Int(0)),
        ("s", "stream.read-group", &["g", "a", ">", "10", "-1", "ack"], Nil),
        ("s", "stream.add", &["1-0", "any", "-", "f", "1"], text("1-0")),
        ("s", "stream.add", &["2-0", "any", "-", "f", "2"], text("2-0")),
        ("s", "stream.add", &["3-0", "any", "-", "f", "3"], text("3-0")),
        ("s", "stream.has-news", &["g"], Int(1)),
        ("s", "stream.read-group", &["g", "a", ">", "10", "1", "ack"], read(&[("1-0", "1")])),
        ("s", "stream.read-group", &["g", "b", ">", "20", "1", "ack"], read(&[("2-0", "2")])),
        ("s", "stream.read-group", &["g", "c", ">", "20", "-1", "noack"], read(&[("3-0", "3")])),
        ("s", "stream.read-group", &["g", "b", ">", "30", "-1", "ack"], Nil),
        // What is its own it may have again.
        ("s", "stream.read-group", &["g", "b", "0-0", "30", "-1", "ack"], read(&[("2-0", "2")])),
        ("s", "stream.read-group", &["g", "c", "0-0", "30", "-1", "ack"], read(&[])),
        (
            "s",
            "stream.pending",
            &["g"],
            Reply::List(vec![
                Int(2),
                text("1-0"),
                text("2-0"),
                Reply::List(vec![text("a"), Int(1), text("b"), Int(1)]),
            ]),
        ),
        (
            "s",
            "stream.pending-range",
            &["g", "35", "0", "0-0", "9-0", "10"],
            Reply::List(vec![text("1-0"), text("a"), Int(25), Int(1), text("2-0"), text("b"), Int(5), Int(2)]),
        ),
        (
            "s",
            "stream.pending-range",
            &["g", "35", "20", "0-0", "9-0", "10", "a"],
            Reply::List(vec![text("1-0"), text("a"), Int(25), Int(1)]),
        ),
        ("s", "stream.pending-range", &["g", "35", "20", "0-0", "9-0", "10", "b"], list(&[])),
        // Taken over, if it waits for long enough.
        ("s", "stream.claim", &["g", "b", "40", "31", "-", "-", "-", "plain", "full", "1-0"], list(&[])),
        ("s", "stream.claim", &["g", "b", "40", "30", "-", "-", "-", "plain", "full", "1-0"], entries(&[("1-0", "1")])),
        ("s", "stream.claim", &["g", "b", "40", "0", "30", "9", "-", "plain", "just", "1-0"], list(&["1-0"])),
        ("s", "stream.claim", &["g", "d", "40", "0", "-", "-", "-", "plain", "just", "3-0"], list(&[])),
        ("s", "stream.claim", &["g", "d", "40", "0", "-", "-", "-", "force", "full", "3-0"], entries(&[("3-0", "3")])),
        (
            "s",
            "stream.pending-range",
            &["g", "40", "0", "0-0", "9-0", "10"],
            Reply::List(vec![
                text("1-0"),
                text("b"),
                Int(10),
                Int(9),
                text("2-0"),
                text("b"),
                Int(10),
                Int(2),
                text("3-0"),
                text("d"),
                Int(0),
                Int(2),
            ]),
        ),
        ("s", "stream.remove", &["2-0"], Int(1)),
        // One that has gone is told as such, and needs no acknowledgement.
        (
            "s",
            "stream.claim-auto",
            &["g", "e", "60", "15", "0-0", "2", "full"],
            Reply::List(vec![text("3-0"), entries(&[("1-0", "1")]), list(&["2-0"])]),
        ),
        (
            "s",
            "stream.claim-auto",
            &["g", "e", "60", "15", "3-0", "2", "just"],
            Reply::List(vec![text("0-0"), list(&["3-0"]), list(&[])]),
        ),
        ("s", "stream.ack", &["g", "1-0", "1-0", "2-0"], Int(1)),
        ("s", "stream.ack", &["none", "1-0"], Int(0)),
        ("none", "stream.ack", &["g", "1-0"], Int(0)),
        ("s", "stream.consumer-make", &["g", "new", "70"], Int(1)),
        ("s", "stream.consumer-make", &["g", "new", "70"], Int(0)),
        ("s", "stream.consumer-remove", &["g", "e"], Int(1)),
        ("s", "stream.consumer-remove", &["g", "e"], Int(0)),
        ("s", "stream.consumer-remove", &["none", "e"], no_group("s", "none")),
        ("s", "stream.groups", &[], Reply::List(vec![text("g"), Int(5), Int(0), text("3-0"), Int(3), Int(0)])),
        ("s", "stream.group-set", &["g", "1-0", "-"], Int(1)),
        ("s", "stream.read-group", &["g", "a", ">", "80", "-1", "ack"], read(&[("3-0", "3")])),
        ("s", "stream.group-remove", &["g"], Int(1)),
        ("s", "stream.group-remove", &["g"], Int(0)),
        ("s", "stream.has-news", &["g"], no_group("s", "g")),
    ]);
}

#[test]
fn several_streams_are_read_for_a_group_or_none_is() {
    check(&[
        ("a", "stream.group-make", &["g", "0-0", "-", "make"], Int(1)),
        ("a", "stream.add", &["1-0", "any", "-", "f", "1"], text("1-0")),
        ("a", "stream.read-group", &["b", "g", "c", "> >", "10", "-1", "ack"], no_group("b", "g")),
        ("a", "stream.has-news", &["g"], Int(1)),
        ("b", "stream.group-make", &["g", "0-0", "-", "make"], Int(1)),
        ("a", "stream.read-group", &["b", "g", "c", ">", "10", "-1", "ack"], wrong(Wrong::Arguments)),
        (
            "a",
            "stream.read-group",
            &["b", "g", "c", "> 0-0", "10", "-1", "ack"],
            Reply::List(vec![text("a"), entries(&[("1-0", "1")]), text("b"), list(&[])]),
        ),
        ("a", "stream.has-news", &["b", "g"], Int(0)),
    ]);
}

/// The same replies and the same bytes at a replica that begins anew from a snapshot now and then; and no entry is with two
/// consumers, or delivered anew after it was.
#[test]
fn replicas_of_streams_are_the_same() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let (mut space, mut replica) = (Space::default(), Space::default());
        let mut delivered = BTreeSet::new();
        for n in 0..3_000u64 {
            let now = n.to_string();
            let (id, consumer) = (format!("{}-0", rng.below(n + 1)), format!("c{}", rng.below(5)));
            let words = |text: &str| {
                text.split_whitespace().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect::<Vec<_>>()
            };
            let (name, args) = match rng.below(12) {
                _ if n == 0 => ("stream.group-make", words("g 0-0 - make")),
                0..4 => ("stream.add", words(&format!("*{n} any - f {n}"))),
                4 | 5 => ("stream.read-group", words(&format!("g {consumer} > {now} 3 ack"))),
                6 => ("stream.read-group", words(&format!("g {consumer} {id} {now} 5 ack"))),
                7 => ("stream.ack", words(&format!("g {id} {}-0", rng.below(n + 1)))),
                8 => ("stream.claim-auto", words(&format!("g {consumer} {now} 30 {id} 4 full"))),
                9 => ("stream.remove", words(&id)),
                10 if n % 3 == 0 => {
                    let trim = Bytes::from(format!("len about {} 200", rng.below(400)));
                    ("stream.trim", vec![trim])
                }
                10 => ("stream.pending", words("g")),
                _ if n % 40 == 0 => ("stream.consumer-remove", words(&format!("g {consumer}"))),
                _ => ("stream.info-full", words("20")),
            };
            let got = [&mut space, &mut replica].map(|space| {
                let key = Bytes::from_static(b"s");
                match find(name).unwrap().run {
                    Run::Read(run) => run(space, &key, &args),
                    Run::Write(run) => run(space, &key, &args),
                }
            });
            assert_eq!(got[0], got[1], "seed {seed}, {n}: {name} {args:?}");
            let Ok(reply) = &got[0] else { panic!("seed {seed}, {n}: {name} {args:?} {:?}", got[0]) };
            if name == "stream.read-group" && &args[2][..] == b">" {
                let Reply::List(told) = reply else { continue };
                let [_, Reply::List(flat)] = &told[..] else { panic!("{told:?}") };
                let ids = flat.iter().step_by(2);
                assert!(ids.clone().all(|id| delivered.insert(format!("{id:?}"))), "seed {seed}, {n}: {flat:?}");
            }
            if n % 100 == 99 {
                let parts = |space: &Space| cluster::raft::State::parts(space).0.collect::<Vec<_>>();
                assert_eq!(parts(&space), parts(&replica));
                let bytes = cluster::raft::State::bytes(&replica);
                replica = cluster::raft::State::from_parts(parts(&replica)).unwrap();
                assert_eq!(cluster::raft::State::bytes(&replica), bytes, "what is counted while it changes");
            }
        }
        assert!(delivered.len() > 500, "{}", delivered.len());
    }
}
