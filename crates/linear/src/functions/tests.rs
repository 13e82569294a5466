//! Each function by script: what it gives, and that sizes kept are sizes counted.

use super::*;
use Reply::{Int, Nil};

/// Runs functions one after the other on one space: key, function, arguments, and what it must give.
pub fn check(script: &[(&str, &str, &[&str], Reply)]) {
    let mut space = Space::default();
    for (key, name, args, expect) in script {
        let args: Vec<Bytes> = args.iter().map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
        let key = Bytes::copy_from_slice(key.as_bytes());
        let result = match find(name).unwrap_or_else(|| panic!("{name} is in the list")).run {
            Run::Read(run) => run(&space, &key, &args),
            Run::Write(run) => run(&mut space, &key, &args),
        };
        assert_eq!(result.unwrap_or_else(Reply::Wrong), *expect, "{name} {args:?}");
        // Sizes are kept while values change: they must be what counting gives.
        assert!(space.map().from(b"").all(|(_, entry)| entry.size == entry.value.bytes()), "{name} {args:?}");
        assert!(space.map().from(b"").all(|(_, entry)| !entry.value.is_empty()), "{name} left an empty collection");
    }
}

pub fn text(text: &str) -> Reply {
    Reply::Bytes(Bytes::copy_from_slice(text.as_bytes()))
}

pub fn list(texts: &[&str]) -> Reply {
    Reply::List(texts.iter().map(|t| text(t)).collect())
}

#[test]
fn texts_and_numbers() {
    let wrong = Reply::Wrong;
    check(&[
        ("k", "put", &["a", "present", "none"], Reply::List(vec![Int(0), Nil, Int(0)])),
        ("k", "put", &["a", "absent", "none"], Reply::List(vec![Int(1), Nil, Int(1)])),
        ("k", "put", &["b", "version:1", "none", "old"], Reply::List(vec![Int(1), text("a"), Int(2)])),
        ("k", "put", &["c", "version:1", "none"], Reply::List(vec![Int(0), Nil, Int(2)])),
        ("k", "text.append", &["cd"], Int(3)),
        ("k", "text.range", &["1", "-1"], text("cd")),
        ("k", "text.range", &["5", "9"], text("")),
        ("k", "number.add", &["1"], wrong(Wrong::NotANumber)),
        ("n", "number.add", &["5"], Int(5)),
        ("n", "number.add", &["-7"], Int(-2)),
        ("n", "number.add", &["9223372036854775807"], Int(9223372036854775805)),
        ("n", "number.add", &["3"], wrong(Wrong::Overflow)),
        ("n", "number.add", &["+3"], wrong(Wrong::NotANumber)),
        ("f", "number.add-float", &["0.5"], text("0.5")),
        ("f", "number.add-float", &["1"], text("1.5")),
        ("f", "number.add-float", &["nan"], wrong(Wrong::NotAFloat)),
        ("k", "take", &[], text("bcd")),
        ("k", "remove", &[], Int(0)),
        ("j", "json.merge", &[r#"{"a":{"b":1,"c":2}}"#], text(r#"{"a":{"b":1,"c":2}}"#)),
        ("j", "json.merge", &[r#"{"a":{"b":null},"d":[1]}"#], text(r#"{"a":{"c":2},"d":[1]}"#)),
        ("j", "json.merge", &["{"], wrong(Wrong::NotJson)),
        ("n", "rename", &["m"], Int(1)),
        ("n", "rename", &["m"], Nil),
        ("m", "rename", &["f", "nx"], Int(0)),
    ]);
}

#[test]
fn a_write_may_depend_on_what_a_text_is() {
    let put = |stored: i64, version: i64| Reply::List(vec![Int(stored), Nil, Int(version)]);
    let wrong = Reply::Wrong;
    // XXH3-64 of "ab".
    check(&[
        ("k", "put", &["x", "equal:", "none"], put(0, 0)),
        ("k", "put", &["x", "digest:a873719c24d5735c", "none"], put(0, 0)),
        ("k", "remove", &["differs:x"], Int(0)),
        ("k", "put", &["ab", "differs:ab", "none"], put(1, 1)),
        ("k", "put", &["x", "differs:ab", "none"], put(0, 1)),
        ("k", "put", &["x", "equal:a", "none"], put(0, 1)),
        ("k", "put", &["x", "digest:a873719c24d5735d", "none"], put(0, 1)),
        ("k", "put", &["x", "digest-differs:a873719c24d5735c", "none"], put(0, 1)),
        ("k", "put", &["ab", "digest:a873719c24d5735c", "none", "old"], Reply::List(vec![Int(1), text("ab"), Int(2)])),
        ("k", "put", &["abc", "equal:ab", "none"], put(1, 3)),
        ("k", "put", &["v", "digest-differs:a873719c24d5735c", "none"], put(1, 4)),
        ("k", "put", &["x", "equals:v", "none"], wrong(Wrong::Arguments)),
        ("k", "remove", &["equal:x"], Int(0)),
        ("k", "remove", &["differs:x"], Int(1)),
        ("n", "put", &["ab", "digest-differs:a873719c24d5735c", "none"], put(1, 6)),
        ("h", "hash.set", &["f", "1"], Int(1)),
        ("h", "put", &["x", "differs:ab", "none"], wrong(Wrong::Type)),
        ("h", "remove", &["differs:ab"], wrong(Wrong::Type)),
        ("h", "exists", &[], Int(1)),
    ]);
}

#[test]
fn collections() {
    let wrong = Reply::Wrong;
    check(&[
        ("h", "hash.set", &["f", "1", "g", "2", "f", "3"], Int(2)),
        ("h", "hash.all", &[], list(&["f", "3", "g", "2"])),
        ("h", "hash.add", &["f", "4"], Int(7)),
        ("h", "hash.set-new", &["f", "x"], Int(0)),
        ("h", "hash.get-many", &["g", "nope"], Reply::List(vec![text("2"), Nil])),
        ("h", "get", &[], wrong(Wrong::Type)),
        ("h", "list.push-left", &["x"], wrong(Wrong::Type)),
        ("h", "hash.set", &["odd"], wrong(Wrong::Arguments)),
        ("h", "hash.remove", &["f", "g", "nope"], Int(2)),
        ("h", "exists", &[], Int(0)),
        ("l", "list.push-right", &["a", "b", "c"], Int(3)),
        ("l", "list.push-left", &["x", "y"], Int(5)),
        ("l", "list.range", &["0", "-1"], list(&["y", "x", "a", "b", "c"])),
        ("l", "list.at", &["-1"], text("c")),
        ("l", "list.pop-left", &["2"], list(&["y", "x"])),
        ("l", "list.push-right", &["a", "a"], Int(5)),
        ("l", "list.remove", &["-2", "a"], Int(2)),
        ("l", "list.range", &["0", "-1"], list(&["a", "b", "c"])),
        ("l", "list.trim", &["1", "1"], Nil),
        ("l", "list.pop-right", &[], text("b")),
        ("l", "list.pop-right", &[], Nil),
        ("s", "set.add", &["b", "a", "b"], Int(2)),
        ("s", "set.members", &[], list(&["a", "b"])),
        ("s", "set.has", &["a", "z"], Reply::List(vec![Int(1), Int(0)])),
        ("s", "set.remove", &["a", "b"], Int(2)),
        ("s", "type", &[], text("none")),
    ]);
}

#[test]
fn more_of_texts_lists_and_sets() {
    let wrong = Reply::Wrong;
    check(&[
        ("t", "text.set-range", &["2", "ab"], Int(4)),
        ("t", "get", &[], text("\0\0ab")),
        ("t", "text.set-range", &["99999999", "x"], wrong(Wrong::TooLarge)),
        ("t", "text.set-bit", &["1", "1"], Int(0)),
        ("t", "text.set-bit", &["1", "1"], Int(1)),
        ("t", "text.bit", &["1"], Int(1)),
        ("t", "text.bit", &["999"], Int(0)),
        ("t", "text.bits", &["0", "0"], Int(1)),
        ("t", "text.bits", &[], Int(1 + 3 + 3)),
        ("b", "text.set-bit", &["15", "1"], Int(0)),
        ("b", "get", &[], text("\0\u{1}")),
        ("b", "text.bit", &["14"], Int(0)),
        ("t", "copy", &["u"], Int(1)),
        ("t", "copy", &["u"], Int(0)),
        ("t", "copy", &["u", "replace"], Int(1)),
        ("l", "list.push-left-present", &["a"], Int(0)),
        ("l", "list.push-right", &["a", "b", "c"], Int(3)),
        ("l", "list.push-right-present", &["d"], Int(4)),
        ("l", "list.set", &["-1", "dd"], Int(1)),
        ("l", "list.set", &["9", "x"], Int(0)),
        ("l", "list.insert", &["before", "b", "ab"], Int(5)),
        ("l", "list.insert", &["after", "nope", "x"], Int(-1)),
        ("l", "list.find", &["b"], Int(2)),
        ("l", "list.find", &["z"], Nil),
        ("l", "list.move", &["l", "left", "right"], text("a")),
        ("l", "list.range", &["0", "-1"], list(&["ab", "b", "c", "dd", "a"])),
        ("l", "list.move", &["m", "right", "left"], text("a")),
        ("l", "list.move", &["t", "left", "left"], wrong(Wrong::Type)),
        ("none", "list.move", &["m", "left", "left"], Nil),
        ("m", "list.move", &["l", "left", "left"], text("a")),
        ("m", "exists", &[], Int(0)),
        ("s", "set.add", &["a", "b", "c", "d"], Int(4)),
        ("r", "set.add", &["c", "d", "e"], Int(3)),
        ("s", "set.inter", &["r"], list(&["c", "d"])),
        ("s", "set.inter", &["r", "none"], list(&[])),
        ("s", "set.union", &["r", "none"], list(&["a", "b", "c", "d", "e"])),
        ("s", "set.diff", &["r"], list(&["a", "b"])),
        ("s", "set.diff", &["l"], wrong(Wrong::Type)),
        ("s", "set.move", &["r", "a"], Int(1)),
        ("s", "set.move", &["r", "z"], Int(0)),
        ("s", "set.scan", &["first", "", "2"], list(&["b", "c"])),
        ("s", "set.scan", &["after", "c", "2"], list(&["d"])),
        ("s", "set.pop", &["7", "9"], list(&["b", "c", "d"])),
        ("s", "exists", &[], Int(0)),
        ("s", "set.pop", &["7", "1"], list(&[])),
        ("h", "hash.set", &["a", "1", "b", "2", "c", "3"], Int(3)),
        ("h", "hash.scan", &["first", "", "2"], list(&["a", "1", "b", "2"])),
        ("h", "hash.scan", &["after", "b", "2"], list(&["c", "3"])),
    ]);
}

#[test]
fn what_is_left_to_chance_is_drawn_by_who_asks_and_each_is_as_likely() {
    let mut space = Space::default();
    let run = |space: &mut Space, name: &str, key: &str, args: &[&str]| {
        let args: Vec<Bytes> = args.iter().map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect();
        match find(name).unwrap().run {
            Run::Read(run) => run(space, &Bytes::from(key.to_owned()), &args).unwrap(),
            Run::Write(run) => run(space, &Bytes::from(key.to_owned()), &args).unwrap(),
        }
    };
    for key in ["a", "b", "c", "d", "e"] {
        run(&mut space, "set.add", "s", &[key]);
        run(&mut space, "put", key, &["x", "always", "none"]);
    }
    let (mut members, mut keys) = (BTreeMap::new(), BTreeMap::new());
    for number in 0..6_000u64 {
        let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1;
        let chosen = run(&mut space, "set.random", "s", &[&number.to_string(), "2"]);
        assert_eq!(
            chosen,
            run(&mut space, "set.random", "s", &[&number.to_string(), "2"]),
            "the same at every replica"
        );
        let Reply::List(two) = chosen else { panic!("no list") };
        assert!(two.len() == 2 && two[0] != two[1], "{two:?}");
        two.iter().for_each(|one| *members.entry(format!("{one:?}")).or_insert(0) += 1);
        let key = run(&mut space, "random", "", &[&number.to_string()]);
        *keys.entry(format!("{key:?}")).or_insert(0) += 1;
    }
    assert!(members.len() == 5 && members.values().all(|n| (2_200..2_600).contains(n)), "{members:?}");
    assert!(keys.len() == 6 && keys.values().all(|n| (900..1_100).contains(n)), "{keys:?}");
}

#[test]
fn sets_of_several_keys_are_stored_and_counted() {
    let wrong = Reply::Wrong(Wrong::Type);
    check(&[
        ("a", "set.add", &["1", "2", "3"], Int(3)),
        ("b", "set.add", &["2", "3", "4"], Int(3)),
        ("t", "put", &["x", "always", "none"], Reply::List(vec![Int(1), Nil, Int(5)])),
        ("d", "set.store-union", &["a", "b"], Int(4)),
        ("d", "set.members", &[], list(&["1", "2", "3", "4"])),
        ("d", "set.store-inter", &["a", "b"], Int(2)),
        ("d", "set.members", &[], list(&["2", "3"])),
        ("d", "set.store-diff", &["a", "b", "none"], Int(1)),
        ("d", "set.members", &[], list(&["1"])),
        ("d", "set.store-inter", &["a", "t"], wrong.clone()),
        ("d", "set.length", &[], Int(1)),
        // Whatever was there, also nothing in its place; and a key may be among its own sources.
        ("t", "set.store-union", &["a"], Int(3)),
        ("a", "set.store-inter", &["a", "b"], Int(2)),
        ("t", "set.store-inter", &["a", "none"], Int(0)),
        ("t", "exists", &[], Int(0)),
        ("a", "set.count-inter", &["b", "0"], Int(2)),
        ("a", "set.count-inter", &["b", "1"], Int(1)),
        ("a", "set.count-inter", &["none", "0"], Int(0)),
    ]);
}

#[test]
fn lists_are_searched_and_the_first_of_several_is_taken_from() {
    let at = |places: &[i64]| Reply::List(places.iter().map(|at| Int(*at)).collect());
    let popped = |key, items: &[&str]| Reply::List(vec![text(key), list(items)]);
    check(&[
        ("l", "list.push-right", &["a", "b", "c", "b", "b"], Int(5)),
        ("l", "list.positions", &["b", "1", "0", "0"], at(&[1, 3, 4])),
        ("l", "list.positions", &["b", "2", "1", "0"], at(&[3])),
        ("l", "list.positions", &["b", "-1", "2", "0"], at(&[4, 3])),
        ("l", "list.positions", &["b", "-2", "0", "2"], at(&[3])),
        ("l", "list.positions", &["b", "1", "0", "1"], at(&[])),
        ("l", "list.positions", &["b", "9", "0", "0"], at(&[])),
        ("l", "list.positions", &["b", "0", "0", "0"], Reply::Wrong(Wrong::Arguments)),
        ("none", "list.positions", &["b", "1", "0", "0"], at(&[])),
        ("none", "list.pop-first", &["l", "left", "2"], popped("l", &["a", "b"])),
        ("l", "list.pop-first", &["none", "right", "9"], popped("l", &["b", "b", "c"])),
        ("l", "list.pop-first", &["none", "right", "1"], Nil),
        ("s", "set.add", &["x"], Int(1)),
        ("none", "list.pop-first", &["s", "left", "1"], Reply::Wrong(Wrong::Type)),
        ("none", "list.pop-first", &["s", "left", "0"], Reply::Wrong(Wrong::Arguments)),
    ]);
}

#[test]
fn bits_are_counted_found_and_combined() {
    let put = |version| Reply::List(vec![Int(1), Nil, Int(version)]);
    check(&[
        ("k", "put", &["\u{0}\u{f}@", "always", "none"], put(1)),
        ("k", "text.bits", &[], Int(5)),
        ("k", "text.bits", &["1", "1"], Int(4)),
        ("k", "text.bits", &["13", "17", "bit"], Int(4)),
        ("k", "text.bits", &["-8", "-7", "bit"], Int(1)),
        ("k", "text.bits", &["9", "3", "bit"], Int(0)),
        ("k", "text.find-bit", &["1"], Int(12)),
        ("k", "text.find-bit", &["1", "2"], Int(17)),
        ("k", "text.find-bit", &["0", "12", "15", "bit"], Int(-1)),
        ("k", "text.find-bit", &["0", "12", "16", "bit"], Int(16)),
        ("k", "text.find-bit", &["1", "0", "0"], Int(-1)),
        ("none", "text.find-bit", &["1"], Int(-1)),
        ("none", "text.find-bit", &["0"], Int(0)),
        ("f", "text.set-range", &["0", "\u{7f}"], Int(1)),
        ("f", "text.set-bit", &["0", "1"], Int(0)),
        ("f", "text.find-bit", &["0"], Int(8)),
        ("f", "text.find-bit", &["0", "0", "-1"], Int(-1)),
        ("a", "put", &["abc", "always", "none"], put(4)),
        ("b", "put", &["AB", "always", "none"], put(5)),
        ("d", "text.bit-op", &["a", "b", "and"], Int(3)),
        ("d", "get", &[], text("AB\u{0}")),
        ("d", "text.bit-op", &["a", "b", "or"], Int(3)),
        ("d", "get", &[], text("abc")),
        ("d", "text.bit-op", &["a", "b", "xor"], Int(3)),
        ("d", "get", &[], text("  c")),
        ("d", "text.bit-op", &["a", "b", "not"], Reply::Wrong(Wrong::Arguments)),
        ("n", "text.bit-op", &["d", "not"], Int(3)),
        ("n", "text.bit-op", &["n", "not"], Int(3)),
        ("n", "get", &[], text("  c")),
        ("n", "text.bit-op", &["none", "or"], Int(0)),
        ("n", "exists", &[], Int(0)),
    ]);
}

#[test]
fn fields_are_taken_and_ends_come_only_nearer() {
    check(&[
        ("h", "hash.set", &["a", "1", "b", "2"], Int(2)),
        ("h", "hash.take", &["a", "x"], Reply::List(vec![text("1"), Nil])),
        ("h", "hash.take", &["x"], Reply::List(vec![Nil])),
        ("h", "hash.take", &["b"], list(&["2"])),
        ("h", "exists", &[], Int(0)),
        ("k", "size", &[], Nil),
        ("k", "put", &["value", "always", "none"], Reply::List(vec![Int(1), Nil, Int(6)])),
        ("k", "size", &[], Int(1 + 5 + 48)),
        ("k", "expire", &["500", "xxlt"], Int(0)),
        ("k", "expire", &["500", "lt"], Int(1)),
        ("k", "expire", &["600", "xxlt"], Int(0)),
        ("k", "expire", &["400", "xxlt"], Int(1)),
    ]);
}

#[test]
fn what_ends_by_a_moment_that_has_passed_is_gone_for_whatever_comes_next() {
    let stored = |version| Reply::List(vec![Int(1), Nil, Int(version)]);
    check(&[
        ("k", "put", &["5", "always", "passed"], stored(0)),
        ("k", "number.add", &["1"], Int(1)),
        ("k", "put", &["7", "absent", "passed", "old"], Reply::List(vec![Int(0), text("1"), Int(1)])),
        ("k", "get-expire", &["passed"], text("1")),
        ("k", "exists", &[], Int(0)),
        ("k", "get-expire", &["passed"], Nil),
        ("k", "expire", &["passed", "any"], Int(0)),
        ("l", "list.push-right", &["old"], Int(1)),
        ("l", "expire", &["passed", "xx"], Int(0)),
        ("l", "expire", &["passed", "gt"], Int(0)),
        ("l", "expire", &["passed", "nx"], Int(1)),
        ("l", "list.push-right", &["new"], Int(1)),
        ("l", "ttl", &[], Int(-1)),
        ("l", "expire", &["9000", "any"], Int(1)),
        ("l", "expire", &["passed", "nx"], Int(0)),
        ("l", "expire", &["passed", "gt"], Int(0)),
        ("l", "expire", &["passed", "xxlt"], Int(1)),
        ("l", "put", &["new", "absent", "none"], stored(10)),
        ("l", "expire", &["passed", "lt"], Int(1)),
        ("l", "expire", &["at:0", "any"], Reply::Wrong(Wrong::NotANumber)),
        ("n", "put", &["v", "always", "at:0"], Reply::Wrong(Wrong::NotANumber)),
    ]);
}

#[test]
fn moving_a_member_to_a_set_that_has_it_changes_that_set_not_at_all() {
    let mut space = Space::default();
    let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
    let mut run = |key: &Bytes, name: &str, args: &[Bytes]| match find(name).unwrap().run {
        Run::Write(run) => run(&mut space, key, args),
        Run::Read(run) => run(&space, key, args),
    };
    for key in [&a, &b] {
        run(key, "set.add", &["x".into()]).unwrap();
    }
    let before = run(&b, "version", &[]);
    assert_eq!(run(&a, "set.move", &[b.clone(), "x".into()]), Ok(Int(1)));
    assert_eq!(run(&b, "version", &[]), before);
}

/// What is no key is never looked for in another shard.
#[test]
fn keys_of_a_step_are_all_its_keys_and_nothing_else() {
    let keys = |name: &'static str, args: &[&'static str]| {
        let step = Step::new("k".into(), name, args.iter().map(|arg| Bytes::from_static(arg.as_bytes())).collect());
        let keys: Vec<Bytes> = find(name).unwrap().keys(&step).cloned().collect();
        keys
    };
    assert_eq!(keys("set.store-union", &["a", "b"]), ["k", "a", "b"]);
    assert_eq!(keys("set.count-inter", &["a", "0"]), ["k", "a"]);
    assert_eq!(keys("list.pop-first", &["a", "left", "1"]), ["k", "a"]);
    assert_eq!(keys("list.pop-first", &["left"]), ["k"]);
    assert_eq!(keys("text.bit-op", &["a", "b", "and"]), ["k", "a", "b"]);
    assert_eq!(keys("list.move", &["a", "left", "left"]), ["k", "a"]);
    assert_eq!(keys("sorted.pop-first", &["a", "min", "1"]), ["k", "a"]);
    assert_eq!(keys("sorted.union", &["a", "b", "-", "sum"]), ["k", "a", "b"]);
    assert_eq!(keys("sorted.diff", &["a", "b"]), ["k", "a", "b"]);
    assert_eq!(keys("sorted.count-inter", &["a", "0"]), ["k", "a"]);
    assert_eq!(keys("sorted.store-range", &["a", "rank", "0", "1", "forward", "0", "-1"]), ["k", "a"]);
    assert_eq!(keys("sorted.add", &["any", "any", "1", "a"]), ["k"]);
}

#[test]
fn keys_come_in_order_and_in_pages() {
    let mut script: Vec<(&str, &str, &[&str], Reply)> = Vec::new();
    for key in ["b2", "a", "b1", "c", "b3"] {
        script.push((key, "list.push-right", &["x"], Int(1)));
    }
    script.extend([
        ("", "scan", &["", "", "2", "forward"] as &[&str], list(&["a", "b1"])),
        ("", "scan", &["", "b1", "9", "forward"], list(&["b2", "b3", "c"])),
        ("", "scan", &["b", "", "9", "forward"], list(&["b1", "b2", "b3"])),
        ("", "scan", &["b", "", "2", "reverse"], list(&["b3", "b2"])),
        ("", "scan", &["b", "b2", "2", "reverse"], list(&["b1"])),
        ("", "count", &[], Int(5)),
        ("", "clear", &[], Int(5)),
        ("", "scan", &["", "", "9", "forward"], list(&[])),
    ]);
    check(&script);
}

#[test]
fn who_watches_is_told_each_change_once_and_in_order() {
    let change = |version, key: &str, what: &str, value| Reply::List(vec![Int(version), text(key), text(what), value]);
    let page = |upto, changes: Vec<Reply>| Reply::List(vec![Int(upto), Reply::List(changes)]);
    let put = |version, key: &str, value: &str| change(version, key, "string", text(value));
    check(&[
        ("a1", "put", &["x", "always", "none"], Reply::List(vec![Int(1), Nil, Int(1)])),
        ("b1", "put", &["y", "always", "none"], Reply::List(vec![Int(1), Nil, Int(2)])),
        ("", "changes.prefix", &["0", "now", "a"], page(2, vec![put(1, "a1", "x")])),
        ("", "changes.prefix", &["2", "now", ""], page(2, vec![])),
        ("a1", "put", &["no", "absent", "none"], Reply::List(vec![Int(0), Nil, Int(1)])),
        ("a1", "expire", &["9", "any"], Int(1)),
        ("a2", "list.push-right", &["i"], Int(1)),
        ("a2", "list.pop-left", &[], text("i")),
        ("", "revision", &[], Int(7)),
        // An expiry is a change; one of several steps is told as its last one.
        (
            "",
            "changes.prefix",
            &["2", "now", "a"],
            page(7, vec![put(3, "a1", "x"), change(5, "a2", "list", Nil), change(7, "a2", "removed", Nil)]),
        ),
        ("a2", "changes", &["5", "now"], page(7, vec![change(7, "a2", "removed", Nil)])),
        ("a", "changes", &["0", "now"], page(7, vec![])),
        ("b1", "rename", &["a9"], Int(1)),
        ("", "changes.prefix", &["7", "now", "b"], page(9, vec![change(8, "b1", "removed", Nil)])),
        ("", "changes.prefix", &["-", "now", ""], page(9, vec![])),
        ("", "clear", &[], Int(2)),
        ("a", "changes", &["9", "now"], page(10, vec![change(10, "", "cleared", Nil)])),
        // What has never been is nothing to go on after.
        ("a", "changes", &["11", "now"], Reply::List(vec![Int(10), Nil, Int(0)])),
        ("a", "changes", &["9", "never"], Reply::Wrong(Wrong::Arguments)),
    ]);
}
