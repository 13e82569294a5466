//! What Redis calls a change (its `notifyKeyspaceEvent`): from the function that made it, or the kind of cell.

use std::collections::BTreeSet;

use bytes::Bytes;
use state::soft::{Change, Did, Kind, Side, Why};

/// Of a function of class `linear` and what is at the key since: a type, `removed` or `ended`. A function that leaves
/// nothing of a key is told twice, as in Redis: what it did, and `del`.
pub fn of_function(by: &[u8], what: &[u8]) -> [&'static str; 2] {
    let is_gone = what == b"removed";
    let did = match by {
        _ if what == b"ended" => "expired",
        b"remove" | b"take" | b"release" => "del",
        b"put" | b"text.bit-op" | b"json.merge" | b"hold" if !is_gone => "set",
        b"put-ending" if !is_gone => return ["set", "expire"],
        b"expire" | b"get-expire" if !is_gone => "expire",
        // An end that has passed already.
        b"put" | b"put-ending" | b"expire" | b"get-expire" => "del",
        b"persist" => "persist",
        b"copy" | b"load" | b"hash.load" if is_gone => "del",
        b"copy" => "copy_to",
        b"load" | b"hash.load" => "restore",
        b"rename" if is_gone => "rename_from",
        b"rename" => "rename_to",
        b"number.add" => "incrby",
        b"number.add-float" => "incrbyfloat",
        b"text.append" => "append",
        b"text.set-range" => "setrange",
        b"text.set-bit" | b"text.change-fields" => "setbit",
        b"hash.set" | b"hash.set-new" => "hset",
        b"hash.add" => "hincrby",
        b"hash.add-float" => "hincrbyfloat",
        b"hash.remove" | b"hash.take" => "hdel",
        b"hash.expire" | b"hash.get-expire" => "hexpire",
        b"hash.persist" => "hpersist",
        // Of fields that have ended, not of a function.
        b"hash.ended" => "hexpired",
        b"hash.set-expire" => return ["hset", "hexpire"],
        b"list.push-left" | b"list.push-left-present" => "lpush",
        b"list.push-right" | b"list.push-right-present" => "rpush",
        b"list.pop-left" | b"list.pop-first" => "lpop",
        b"list.pop-right" => "rpop",
        b"list.insert" => "linsert",
        b"list.set" => "lset",
        b"list.trim" => "ltrim",
        b"list.remove" => "lrem",
        b"set.add" => "sadd",
        b"set.remove" => "srem",
        b"set.pop" => "spop",
        b"set.store-inter" => "sinterstore",
        b"set.store-union" => "sunionstore",
        b"set.store-diff" => "sdiffstore",
        b"sorted.add" => "zadd",
        b"sorted.increase" => "zincr",
        // A node of before does not say what it went by.
        b"sorted.remove" | b"sorted.remove-range" => "zrem",
        b"sorted.remove-by-rank" => "zrembyrank",
        b"sorted.remove-by-score" => "zrembyscore",
        b"sorted.remove-by-member" => "zrembylex",
        b"sorted.pop" | b"sorted.pop-first" | b"sorted.pop-min" => "zpopmin",
        b"sorted.pop-max" => "zpopmax",
        b"sorted.store-inter" => "zinterstore",
        b"sorted.store-union" => "zunionstore",
        b"sorted.store-diff" => "zdiffstore",
        b"sorted.store-range" => "zrangestore",
        b"geo.store" => "geosearchstore",
        b"sort.store" => "sortstore",
        b"sketch.add" | b"sketch.merge" => "pfadd",
        b"stream.add" => "xadd",
        b"stream.trim" => "xtrim",
        b"stream.remove" => "xdel",
        b"stream.set-id" => "xsetid",
        b"stream.group-make" => "xgroup-create",
        b"stream.group-remove" => "xgroup-destroy",
        b"stream.group-set" => "xgroup-setid",
        b"stream.consumer-make" => "xgroup-createconsumer",
        b"stream.consumer-remove" => "xgroup-delconsumer",
        _ => "",
    };
    match did {
        // What a `STORE` of nothing leaves is removed, and nothing else.
        _ if is_gone && (did.ends_with("store") || did.is_empty()) => ["del", ""],
        "del" | "expired" | "rename_from" => [did, ""],
        _ => [did, if is_gone { "del" } else { "" }],
    }
}

/// Names what has changed in class `soft` and is told at once. A command that replaces all of a key is told as what it has put there.
pub fn of_changes(changes: &[Change]) -> Vec<(Bytes, [&'static str; 2])> {
    let puts = |change: &&Change| change.kind == Kind::Register && change.value.is_some();
    let put: BTreeSet<&Bytes> = changes.iter().filter(puts).map(|change| &change.key).collect();
    let data: BTreeSet<&Bytes> = changes.iter().filter(|of| of.kind != Kind::End).map(|change| &change.key).collect();
    let is_told = |change: &&Change| match (change.kind, &change.value) {
        (_, Some(_)) => true,
        // What was there of another kind, or the end that it had.
        (Kind::End, None) => change.why == Some(Why::Ended) || !change.is_last && !data.contains(&change.key),
        // A key that is deleted is one event, when nothing of it is left.
        (Kind::Field | Kind::Member | Kind::Score | Kind::Item, None) if change.did == Did::Deleted => change.is_last,
        (kind, None) => kind == Kind::Register || !put.contains(&change.key),
    };
    let (mut taken, mut events) = (BTreeSet::new(), Vec::new());
    for change in changes.iter().filter(is_told) {
        let is_trimmed = change.did == Did::Trimmed && change.value.is_none();
        // What a command takes away at once is one event.
        if !(is_deleted(change) || is_trimmed) || taken.insert((&change.key, is_trimmed)) {
            events.push((change.key.clone(), of_change(change)));
        }
    }
    events
}

/// As a part of its key; not as what has ended.
fn is_deleted(change: &Change) -> bool {
    change.did == Did::Deleted && change.value.is_none() && change.kind != Kind::End && change.why != Some(Why::Ended)
}

fn of_change(change: &Change) -> [&'static str; 2] {
    let is_there = change.value.is_some();
    let did = match (change.kind, is_there) {
        _ if change.why == Some(Why::Ended) && !is_there => return ["expired", ""],
        (Kind::Register, false) => return ["del", ""],
        _ if is_deleted(change) => return ["del", ""],
        (Kind::End, true) => "expire",
        (Kind::End, false) => "persist",
        (Kind::Register, true) if change.did == Did::Counted => "incrby",
        (Kind::Register, true) => "set",
        (Kind::Field, true) if change.did == Did::Counted => "hincrby",
        (Kind::Field, true) => "hset",
        (Kind::Field, false) => "hdel",
        (Kind::Member, true) => "sadd",
        (Kind::Member, false) => "srem",
        (Kind::Score, true) => "zadd",
        (Kind::Score, false) => "zrem",
        (Kind::Item, true) => match change.did {
            Did::Pushed(Side::Left) => "lpush",
            Did::Inserted => "linsert",
            Did::Replaced => "lset",
            Did::Pushed(Side::Right) | Did::Put | Did::Counted | Did::Deleted | Did::Trimmed => "rpush",
        },
        (Kind::Item, false) if change.did == Did::Trimmed => "ltrim",
        (Kind::Item, false) => "lrem",
    };
    [did, if change.is_last { "del" } else { "" }]
}

#[cfg(test)]
mod tests {
    use state::linear::functions::{self, Run};

    use super::*;

    /// A function that is new here is to be called something, or to stand among these.
    #[test]
    fn each_function_that_writes_has_its_word() {
        let silent = [
            // Redis says nothing of these.
            "clear",
            "sketch.keep-count",
            "stream.ack",
            "stream.claim",
            "stream.claim-auto",
            "stream.read-group",
            // They are of no Redis: of leases, ledgers, texts of scripts, databases.
            "once.keep",
            "library.",
            "scripts.",
            "script.",
            "ledger.",
            "queue.",
            "lease.",
            "versions.above",
            "sql.",
            "list.move",
            "set.move",
        ];
        for function in
            functions::ALL.iter().flat_map(|some| some.iter()).filter(|function| matches!(function.run, Run::Write(_)))
        {
            let is_silent =
                silent.iter().any(|of| *of == function.name || of.ends_with('.') && function.name.starts_with(of));
            let [did, _] = of_function(function.name.as_bytes(), b"string");
            assert_eq!(did.is_empty(), is_silent, "{}", function.name);
        }
    }

    fn change(kind: Kind, value: Option<Option<&'static str>>) -> Change {
        let value = value.map(|value| value.map(|text| Bytes::from_static(text.as_bytes())));
        let (key, element, why) = (Bytes::from_static(b"k"), Bytes::new(), Some(Why::Local));
        Change { key, kind, element, value, why, lost: Vec::new(), did: Did::Put, is_last: false }
    }

    fn told(changes: &[Change]) -> Vec<[&'static str; 2]> {
        of_changes(changes).into_iter().map(|(_, events)| events).collect()
    }

    #[test]
    fn what_has_ended_in_class_soft_is_told_as_expired() {
        let of = |why, value| told(&[Change { why, is_last: true, ..change(Kind::Member, value) }]);
        assert_eq!(of(Some(Why::Ended), None), [["expired", ""]]);
        assert_eq!(of(Some(Why::Released), None), [["srem", "del"]]);
        assert_eq!(of(Some(Why::Remote), None), [["srem", "del"]]);
        // Something was written to it since.
        let there = Change { why: Some(Why::Ended), ..change(Kind::Member, Some(None)) };
        assert_eq!(told(&[there]), [["sadd", ""]]);
    }

    /// What Redis 7.2 documents of each command that class `soft` has and that writes.
    #[test]
    fn changes_of_class_soft_have_the_names_of_redis() {
        let counted = |kind| Change { did: Did::Counted, ..change(kind, Some(Some("7"))) };
        let pushed = |did| Change { did, ..change(Kind::Item, Some(Some("v"))) };
        let ends = |is| change(Kind::End, is);
        let last = |kind| Change { is_last: true, ..change(kind, None) };
        let deleted = |kind| Change { did: Did::Deleted, ..last(kind) };
        let trimmed = |is_last| Change { did: Did::Trimmed, is_last, ..change(Kind::Item, None) };
        let text = || change(Kind::Register, Some(Some("v")));
        let some = |kind| change(kind, Some(Some("v")));
        let two = |one, other| vec![one, other];
        for (command, changes, expected) in [
            ("SET, MSET", vec![text()], vec![["set", ""]]),
            ("SET EX, SETEX, PSETEX", two(text(), ends(Some(None))), vec![["set", ""], ["expire", ""]]),
            ("SET of what had an end", two(text(), ends(None)), vec![["set", ""]]),
            ("SET of what was a hash", two(change(Kind::Field, None), text()), vec![["set", ""]]),
            ("INCR, DECR, INCRBY, DECRBY", vec![counted(Kind::Register)], vec![["incrby", ""]]),
            ("DEL, UNLINK of a text", two(ends(None), last(Kind::Register)), vec![["del", ""]]),
            ("HDEL of the last field", vec![last(Kind::Field)], vec![["hdel", "del"]]),
            ("DEL, UNLINK of a hash", two(deleted(Kind::Field), deleted(Kind::Field)), vec![["del", ""]]),
            ("DEL of a part of it so far", vec![Change { is_last: false, ..deleted(Kind::Field) }], vec![]),
            ("EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT", vec![ends(Some(None))], vec![["expire", ""]]),
            ("PERSIST", vec![ends(None)], vec![["persist", ""]]),
            ("HSET, HMSET", vec![some(Kind::Field)], vec![["hset", ""]]),
            ("HINCRBY", vec![counted(Kind::Field)], vec![["hincrby", ""]]),
            ("HDEL", vec![change(Kind::Field, None)], vec![["hdel", ""]]),
            ("SADD", vec![change(Kind::Member, Some(None))], vec![["sadd", ""]]),
            ("SREM", two(change(Kind::Member, None), last(Kind::Member)), vec![["srem", ""], ["srem", "del"]]),
            ("ZADD", vec![some(Kind::Score)], vec![["zadd", ""]]),
            ("ZREM", vec![change(Kind::Score, None)], vec![["zrem", ""]]),
            ("LPUSH, LPUSHX", vec![pushed(Did::Pushed(Side::Left))], vec![["lpush", ""]]),
            ("RPUSH, RPUSHX", vec![pushed(Did::Pushed(Side::Right))], vec![["rpush", ""]]),
            ("LINSERT", vec![pushed(Did::Inserted)], vec![["linsert", ""]]),
            ("LSET", vec![pushed(Did::Replaced)], vec![["lset", ""]]),
            ("LREM", vec![change(Kind::Item, None)], vec![["lrem", ""]]),
            ("LTRIM", two(trimmed(false), trimmed(false)), vec![["ltrim", ""]]),
            ("LTRIM to nothing", vec![trimmed(true)], vec![["ltrim", "del"]]),
        ] {
            assert_eq!(told(&changes), expected, "{command}");
        }
    }

    #[test]
    fn what_leaves_nothing_is_told_twice() {
        assert_eq!(of_function(b"list.pop-left", b"removed"), ["lpop", "del"]);
        assert_eq!(of_function(b"list.pop-left", b"list"), ["lpop", ""]);
        assert_eq!(of_function(b"set.store-inter", b"removed"), ["del", ""]);
        assert_eq!(of_function(b"expire", b"removed"), ["del", ""]);
        assert_eq!(of_function(b"hash.ended", b"hash"), ["hexpired", ""]);
        assert_eq!(of_function(b"hash.ended", b"removed"), ["hexpired", "del"]);
        assert_eq!(of_function(b"", b"ended"), ["expired", ""]);
    }
}
