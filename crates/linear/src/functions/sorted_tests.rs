//! Sorted sets by script, and beside a dumb twin: a map that is sorted for each question.

use super::tests::{check, list, text};
use super::*;
use crate::limits::VALUE_BYTES_MAX;
use Reply::{Int, Nil};
use base::Rng;

fn wrong(wrong: Wrong) -> Reply {
    Reply::Wrong(wrong)
}

fn counts(added: i64, changed: i64) -> Reply {
    Reply::List(vec![Int(added), Int(changed)])
}

/// All of a key, in order, with scores.
fn all<'a>(key: &'a str, expect: &[&str]) -> (&'a str, &'static str, &'static [&'static str], Reply) {
    (key, "sorted.range", &["rank", "0", "-1", "forward", "0", "-1", "scores"], list(expect))
}

#[test]
fn members_have_scores_and_come_in_their_order() {
    check(&[
        ("z", "sorted.add", &["any", "any", "2", "b", "1", "a", "2", "aa", "1", "a"], counts(3, 0)),
        all("z", &["a", "1", "aa", "2", "b", "2"]),
        ("z", "type", &[], text("zset")),
        ("z", "sorted.length", &[], Int(3)),
        ("z", "sorted.scores", &["b", "nope", "a"], Reply::List(vec![text("2"), Nil, text("1")])),
        ("z", "sorted.rank", &["b", "forward"], Reply::List(vec![Int(2), text("2")])),
        ("z", "sorted.rank", &["b", "reverse"], Reply::List(vec![Int(0), text("2")])),
        ("z", "sorted.rank", &["nope", "forward"], Nil),
        ("none", "sorted.rank", &["a", "forward"], Nil),
        ("z", "sorted.rank", &["a", "sideways"], wrong(Wrong::Arguments)),
        ("z", "sorted.add", &["any", "any", "-inf", "aa", "+inf", "a"], counts(0, 2)),
        all("z", &["aa", "-inf", "b", "2", "a", "inf"]),
        // One member twice in a command: each counts as it comes.
        ("z", "sorted.add", &["any", "any", "5", "new", "6", "new", "2", "b"], counts(1, 1)),
        ("z", "sorted.remove", &["new", "new", "nope"], Int(1)),
        ("z", "sorted.remove", &["nope"], Int(0)),
        ("z", "sorted.remove", &["a", "b", "aa"], Int(3)),
        ("z", "exists", &[], Int(0)),
        ("z", "sorted.remove", &["a"], Int(0)),
        ("z", "sorted.add", &["any", "any", "1"], wrong(Wrong::Arguments)),
        ("z", "sorted.add", &["any", "any", "1", "a", "x", "b"], wrong(Wrong::NotAFloat)),
        ("z", "sorted.add", &["any", "any", "nan", "b"], wrong(Wrong::NotAFloat)),
        ("z", "exists", &[], Int(0)),
        ("t", "put", &["x", "always", "none"], Reply::List(vec![Int(1), Nil, Int(8)])),
        ("t", "sorted.add", &["any", "any", "1", "a"], wrong(Wrong::Type)),
        ("t", "sorted.length", &[], wrong(Wrong::Type)),
        ("t", "sorted.pop", &["min", "1"], wrong(Wrong::Type)),
        ("z", "sorted.add", &["any", "any", "1", "a"], counts(1, 0)),
        ("z", "get", &[], wrong(Wrong::Type)),
        ("z", "set.add", &["a"], wrong(Wrong::Type)),
        ("z", "copy", &["y"], Int(1)),
        ("y", "sorted.add", &["any", "any", "2", "b"], counts(1, 0)),
        all("z", &["a", "1"]),
        ("y", "rename", &["z"], Int(1)),
        all("z", &["a", "1", "b", "2"]),
        ("z", "expire", &["1000", "any"], Int(1)),
        ("z", "sorted.remove", &["a"], Int(1)),
        ("z", "ttl", &[], Int(1000)),
    ]);
}

#[test]
fn scores_change_only_as_they_may() {
    check(&[
        ("z", "sorted.add", &["present", "any", "1", "a"], counts(0, 0)),
        ("z", "exists", &[], Int(0)),
        ("z", "sorted.add", &["absent", "any", "5", "a"], counts(1, 0)),
        ("z", "sorted.add", &["absent", "any", "6", "a", "6", "b"], counts(1, 0)),
        ("z", "sorted.add", &["any", "greater", "4", "a", "7", "b", "1", "c"], counts(1, 1)),
        ("z", "sorted.add", &["any", "less", "9", "a", "6", "b", "0", "d"], counts(1, 1)),
        ("z", "sorted.add", &["present", "greater", "9", "a", "9", "e"], counts(0, 1)),
        all("z", &["d", "0", "c", "1", "b", "6", "a", "9"]),
        ("z", "version", &[], Int(6)),
        // What changes nothing is no change.
        ("z", "sorted.add", &["any", "any", "9", "a", "-0", "d"], counts(0, 0)),
        ("z", "version", &[], Int(6)),
        ("z", "sorted.increase", &["any", "any", "0.1", "a"], text("9.1")),
        ("z", "sorted.increase", &["any", "any", "-0.5", "new"], text("-0.5")),
        ("z", "sorted.increase", &["absent", "any", "1", "a"], Nil),
        ("z", "sorted.increase", &["present", "any", "1", "nope"], Nil),
        ("z", "sorted.increase", &["any", "greater", "-1", "a"], Nil),
        ("z", "sorted.increase", &["any", "less", "-0.1", "a"], text("9")),
        ("z", "sorted.increase", &["any", "greater", "0", "a"], Nil),
        ("z", "sorted.increase", &["any", "any", "0", "a"], text("9")),
        ("z", "sorted.increase", &["any", "any", "inf", "a"], text("inf")),
        ("z", "sorted.increase", &["any", "any", "-inf", "a"], wrong(Wrong::Overflow)),
        ("z", "sorted.increase", &["absent", "any", "-inf", "a"], Nil),
        ("z", "sorted.increase", &["any", "any", "x", "a"], wrong(Wrong::NotAFloat)),
        ("n", "sorted.add", &["any", "any", "-0", "a", "-0.5", "b"], counts(2, 0)),
        ("n", "sorted.increase", &["any", "any", "0.5", "b"], text("0")),
        all("n", &["a", "0", "b", "0"]),
        ("m", "sorted.store-union", &["n", "-1", "sum"], Int(2)),
        all("m", &["a", "0", "b", "0"]),
        ("none", "sorted.increase", &["present", "any", "1", "a"], Nil),
        ("none", "exists", &[], Int(0)),
    ]);
}

#[test]
fn ranges_are_by_rank_by_score_and_by_member() {
    check(&[
        ("z", "sorted.add", &["any", "any", "1", "a", "2", "b", "3", "c", "inf", "d", "-inf", "e"], counts(5, 0)),
        ("z", "sorted.range", &["rank", "0", "1", "forward", "0", "-1"], list(&["e", "a"])),
        ("z", "sorted.range", &["rank", "0", "1", "reverse", "0", "-1"], list(&["d", "c"])),
        ("z", "sorted.range", &["rank", "-2", "-1", "reverse", "0", "-1"], list(&["a", "e"])),
        ("z", "sorted.range", &["rank", "3", "1", "forward", "0", "-1"], list(&[])),
        ("z", "sorted.range", &["rank", "4", "9", "reverse", "0", "-1"], list(&["e"])),
        ("z", "sorted.range", &["score", "(1", "3", "forward", "0", "-1"], list(&["b", "c"])),
        ("z", "sorted.range", &["score", "(1", "3", "reverse", "0", "-1"], list(&["c", "b"])),
        ("z", "sorted.range", &["score", "-inf", "+inf", "forward", "1", "2"], list(&["a", "b"])),
        ("z", "sorted.range", &["score", "-inf", "+inf", "reverse", "1", "2"], list(&["c", "b"])),
        ("z", "sorted.range", &["score", "-inf", "inf", "reverse", "4", "2"], list(&["e"])),
        ("z", "sorted.range", &["score", "-inf", "inf", "forward", "-1", "2"], list(&[])),
        ("z", "sorted.range", &["score", "-inf", "inf", "forward", "9", "2"], list(&[])),
        ("z", "sorted.range", &["score", "-inf", "inf", "forward", "3", "0"], list(&[])),
        ("z", "sorted.range", &["score", "(inf", "(-inf", "forward", "0", "-1"], list(&[])),
        ("z", "sorted.range", &["score", "3", "1", "forward", "0", "-1"], list(&[])),
        ("z", "sorted.count", &["score", "1", "1e999"], Int(4)),
        ("z", "sorted.count", &["score", "x", "1"], wrong(Wrong::NotAFloat)),
        ("none", "sorted.count", &["score", "x", "1"], wrong(Wrong::NotAFloat)),
        ("l", "sorted.add", &["any", "any", "0", "alpha", "0", "bar", "0", "cool", "0", "down"], counts(4, 0)),
        ("l", "sorted.range", &["member", "-", "[cool", "forward", "0", "-1"], list(&["alpha", "bar", "cool"])),
        ("l", "sorted.range", &["member", "(bar", "+", "reverse", "0", "-1"], list(&["down", "cool"])),
        ("l", "sorted.range", &["member", "-", "+", "forward", "1", "2"], list(&["bar", "cool"])),
        ("l", "sorted.range", &["member", "+", "-", "forward", "0", "-1"], list(&[])),
        ("l", "sorted.range", &["member", "-", "-", "forward", "0", "-1"], list(&[])),
        ("l", "sorted.count", &["member", "[b", "(cool"], Int(1)),
        ("l", "sorted.count", &["member", "b", "[c"], wrong(Wrong::Arguments)),
        ("l", "sorted.remove-range", &["member", "[b", "[c"], Int(1)),
        ("z", "sorted.remove-range", &["rank", "0", "0"], Int(1)),
        ("z", "sorted.remove-range", &["score", "(1", "inf"], Int(3)),
        ("z", "sorted.remove-range", &["score", "5", "9"], Int(0)),
        ("z", "sorted.remove-range", &["rank", "0", "-1"], Int(1)),
        ("z", "exists", &[], Int(0)),
        ("to", "sorted.store-range", &["l", "rank", "0", "1", "reverse", "0", "-1"], Int(2)),
        all("to", &["cool", "0", "down", "0"]),
        ("to", "sorted.store-range", &["none", "rank", "0", "1", "reverse", "0", "-1"], Int(0)),
        ("to", "exists", &[], Int(0)),
    ]);
}

#[test]
fn items_are_taken_from_both_ends_of_the_first_that_has_any() {
    check(&[
        ("z", "sorted.add", &["any", "any", "1", "a", "2", "b", "3", "c", "4", "d"], counts(4, 0)),
        ("z", "sorted.pop", &["min", "1"], list(&["a", "1"])),
        ("z", "sorted.pop", &["max", "2"], list(&["d", "4", "c", "3"])),
        ("z", "sorted.pop", &["min", "0"], list(&[])),
        ("none", "sorted.pop", &["min", "1"], Nil),
        ("z", "sorted.pop", &["middle", "1"], wrong(Wrong::Arguments)),
        ("none", "sorted.pop-first", &["z", "max", "9"], Reply::List(vec![text("z"), list(&["b", "2"])])),
        ("none", "sorted.pop-first", &["z", "max", "9"], Nil),
        ("z", "exists", &[], Int(0)),
        ("s", "set.add", &["x"], Int(1)),
        ("none", "sorted.pop-first", &["s", "max", "9"], wrong(Wrong::Type)),
    ]);
}

#[test]
fn several_are_combined_sets_among_them() {
    check(&[
        ("a", "sorted.add", &["any", "any", "1", "x", "2", "y", "inf", "i"], counts(3, 0)),
        ("b", "sorted.add", &["any", "any", "10", "y", "20", "z", "-inf", "i"], counts(3, 0)),
        ("s", "set.add", &["x", "y"], Int(2)),
        ("t", "list.push-right", &["x"], Int(1)),
        // Infinite ones of both signs add up to 0.
        ("a", "sorted.union", &["b", "-", "sum"], list(&["i", "0", "x", "1", "y", "12", "z", "20"])),
        ("a", "sorted.union", &["b", "2 0.5", "sum"], list(&["i", "0", "x", "2", "y", "9", "z", "10"])),
        ("a", "sorted.union", &["b", "0 1", "max"], list(&["i", "0", "x", "0", "y", "10", "z", "20"])),
        ("a", "sorted.inter", &["b", "-", "min"], list(&["i", "-inf", "y", "2"])),
        ("a", "sorted.inter", &["s", "-", "sum"], list(&["x", "2", "y", "3"])),
        ("a", "sorted.inter", &["s", "a", "1 5 -1", "sum"], list(&["x", "5", "y", "5"])),
        ("a", "sorted.inter", &["none", "-", "sum"], list(&[])),
        ("a", "sorted.diff", &["b", "b"], list(&["x", "1"])),
        ("s", "sorted.diff", &["b"], list(&["x", "1"])),
        ("a", "sorted.diff", &["a"], list(&[])),
        ("a", "sorted.count-inter", &["s", "0"], Int(2)),
        ("a", "sorted.count-inter", &["s", "1"], Int(1)),
        ("a", "sorted.count-inter", &["0"], Int(3)),
        ("a", "sorted.union", &["t", "-", "sum"], wrong(Wrong::Type)),
        ("a", "sorted.union", &["b", "1", "sum"], wrong(Wrong::Arguments)),
        ("a", "sorted.union", &["b", "1 x", "sum"], wrong(Wrong::NotAFloat)),
        ("a", "sorted.union", &["b", "-", "mean"], wrong(Wrong::Arguments)),
        ("to", "sorted.store-union", &["a", "s", "1 3", "sum"], Int(3)),
        all("to", &["x", "4", "y", "5", "i", "inf"]),
        ("t", "sorted.store-inter", &["a", "b", "-", "max"], Int(2)),
        all("t", &["y", "10", "i", "inf"]),
        ("a", "sorted.store-diff", &["a", "s"], Int(1)),
        all("a", &["i", "inf"]),
        ("a", "sorted.store-inter", &["a", "none", "-", "sum"], Int(0)),
        ("a", "exists", &[], Int(0)),
        ("to", "sorted.store-union", &["-", "sum"], wrong(Wrong::Arguments)),
        ("to", "sorted.store-diff", &[], wrong(Wrong::Arguments)),
    ]);
}

#[test]
fn who_names_a_large_set_again_and_again_is_refused() {
    let members: Vec<String> = (0..30_000).map(|n| n.to_string()).collect();
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let mut keys = vec!["s"; 100];
    let mut inter = keys.clone();
    keys.extend(["-", "sum"]);
    inter.push("0");
    check(&[
        ("s", "set.add", &members, Int(30_000)),
        ("s", "sorted.union", &keys, wrong(Wrong::TooLarge)),
        ("to", "sorted.store-inter", &keys, wrong(Wrong::TooLarge)),
        ("s", "sorted.count-inter", &inter, wrong(Wrong::TooLarge)),
        // One that is named again brings nothing new here.
        ("none", "sorted.diff", &inter[..100], list(&[])),
    ]);
}

#[test]
fn a_sorted_set_has_its_limit() {
    let large = "x".repeat(VALUE_BYTES_MAX / 2);
    check(&[
        ("z", "sorted.add", &["any", "any", "1", &large], counts(1, 0)),
        ("z", "sorted.add", &["any", "any", "1", &format!("{}y", &large[..large.len() - 1])], wrong(Wrong::TooLarge)),
        // Who is there already adds nothing.
        ("z", "sorted.add", &["any", "any", "2", &large], counts(0, 1)),
        ("y", "sorted.add", &["any", "any", "1", &large[1..]], counts(1, 0)),
        ("to", "sorted.store-union", &["z", "y", "-", "sum"], wrong(Wrong::TooLarge)),
        ("to", "exists", &[], Int(0)),
    ]);
}

/// Members and scores as they come by chance: few, so that they meet.
fn drawn(rng: &mut Rng) -> (String, f64) {
    let scores = [f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.1, 0.2, 1e20, -7.5];
    let score = if rng.chance(0.2) { *rng.pick(&scores).unwrap() } else { rng.below(8) as f64 - 3.0 };
    (format!("m{}", rng.below(40)), score)
}

type Twin = BTreeMap<String, f64>;

fn ordered(twin: &Twin) -> Vec<(&String, f64)> {
    let mut all: Vec<_> = twin.iter().map(|(member, score)| (member, *score)).collect();
    all.sort_by(|a, b| a.1.partial_cmp(&b.1).unwrap().then(a.0.cmp(b.0)));
    all
}

fn said(items: &[(&String, f64)]) -> Reply {
    Reply::List(items.iter().flat_map(|(member, score)| [text(member), text(&crate::score::shown(*score))]).collect())
}

/// Beside the twin, and at a second replica that begins anew from a snapshot now and then: the same replies, the same bytes.
#[test]
fn it_does_what_a_sorted_map_does_at_all_replicas() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let (mut space, mut replica, mut twin) = (Space::default(), Space::default(), Twin::new());
        for n in 0..1_500 {
            let (member, score) = drawn(&mut rng);
            let score_text = crate::score::shown(score);
            let now = twin.get(&member).copied();
            let (name, args, expect): (_, Vec<String>, Reply) = match rng.below(9) {
                0..3 => {
                    let old = twin.insert(member.clone(), score + 0.0);
                    let expect = counts(old.is_none().into(), old.is_some_and(|old| old != score).into());
                    ("sorted.add", vec!["any".into(), "any".into(), score_text, member], expect)
                }
                3 => {
                    let only = *rng.pick(&["greater", "less"]).unwrap();
                    let may = now.is_none_or(|now| if only == "greater" { score > now } else { score < now });
                    if may {
                        twin.insert(member.clone(), score + 0.0);
                    }
                    let expect = counts(now.is_none().into(), (now.is_some() && may).into());
                    ("sorted.add", vec!["any".into(), only.into(), score_text, member], expect)
                }
                4 => {
                    let sum = now.map_or(score, |now| now + score);
                    let expect = if sum.is_nan() {
                        wrong(Wrong::Overflow)
                    } else {
                        twin.insert(member.clone(), sum + 0.0);
                        text(&crate::score::shown(sum))
                    };
                    ("sorted.increase", vec!["any".into(), "any".into(), score_text, member], expect)
                }
                5 => {
                    let expect = Int(twin.remove(&member).is_some().into());
                    ("sorted.remove", vec![member], expect)
                }
                6 if n % 5 == 0 => {
                    let all: Vec<_> = ordered(&twin).into_iter().map(|(m, s)| (m.clone(), s)).collect();
                    let popped = all.iter().map(|(m, s)| (m, *s)).rev().take(2).collect::<Vec<_>>();
                    let expect = if all.is_empty() { Nil } else { said(&popped) };
                    twin.retain(|member, _| popped.iter().all(|(gone, _)| *gone != member));
                    ("sorted.pop", vec!["max".into(), "2".into()], expect)
                }
                6 => {
                    let (min, max) = (score.min(1.0), score.max(1.0));
                    let found: Vec<_> = ordered(&twin).into_iter().filter(|(_, s)| *s > min && *s <= max).collect();
                    let found: Vec<_> = found.into_iter().rev().skip(1).take(3).collect();
                    let edges = [format!("({}", crate::score::shown(min)), crate::score::shown(max)];
                    let [from, to] = edges;
                    let words = ["reverse", "1", "3", "scores"].map(String::from);
                    ("sorted.range", [vec!["score".into(), from, to], words.into()].concat(), said(&found))
                }
                7 => {
                    let rank = ordered(&twin).iter().position(|(m, _)| **m == member);
                    let shown = |(rank, now)| Reply::List(vec![count(rank), text(&crate::score::shown(now))]);
                    ("sorted.rank", vec![member, "forward".into()], rank.zip(now).map_or(Nil, shown))
                }
                _ if n % 7 == 0 => {
                    let last = ordered(&twin).len().min(3);
                    let gone: Vec<String> = ordered(&twin)[..last].iter().map(|(m, _)| (*m).clone()).collect();
                    twin.retain(|member, _| !gone.contains(member));
                    let args = ["rank", "0", "2"].map(String::from);
                    ("sorted.remove-range", args.into(), Int(gone.len() as i64))
                }
                _ => {
                    let words = ["rank", "0", "-1", "forward", "0", "-1", "scores"].map(String::from);
                    ("sorted.range", words.into(), said(&ordered(&twin)))
                }
            };
            let args: Vec<Bytes> = args.into_iter().map(Bytes::from).collect();
            for space in [&mut space, &mut replica] {
                let key = Bytes::from_static(b"z");
                let got = match find(name).unwrap().run {
                    Run::Read(run) => run(space, &key, &args),
                    Run::Write(run) => run(space, &key, &args),
                };
                assert_eq!(got.unwrap_or_else(Reply::Wrong), expect, "seed {seed}, {n}: {name} {args:?}");
            }
            if n % 100 == 99 {
                let parts = |space: &Space| cluster::raft::State::parts(space).0.collect::<Vec<_>>();
                assert_eq!(parts(&space), parts(&replica));
                let bytes = cluster::raft::State::bytes(&replica);
                replica = cluster::raft::State::from_parts(parts(&replica)).unwrap();
                assert_eq!(cluster::raft::State::bytes(&replica), bytes, "what is counted while it changes");
            }
        }
    }
}
