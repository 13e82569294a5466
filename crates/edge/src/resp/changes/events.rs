//! What Redis calls a change (its `notifyKeyspaceEvent`): from the function that made it, or the kind of cell.

use state::soft::{Change, Kind, Why};

/// Of a function of class `linear` and what is at the key since: a type, `removed` or `ended`. A function that leaves
/// nothing of a key is told twice, as in Redis: what it did, and `del`.
pub fn of_function(by: &[u8], what: &[u8]) -> [&'static str; 2] {
    let is_gone = what == b"removed";
    let did = match by {
        _ if what == b"ended" => "expired",
        b"remove" | b"take" | b"release" => "del",
        b"put" | b"text.bit-op" | b"json.merge" | b"sketch.keep-count" | b"hold" if !is_gone => "set",
        b"expire" | b"get-expire" if !is_gone => "expire",
        // An end that has passed already.
        b"put" | b"expire" | b"get-expire" => "del",
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
        b"sorted.remove" | b"sorted.remove-range" => "zrem",
        b"sorted.pop" | b"sorted.pop-first" => "zpop",
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

/// Of what has changed in class `soft`.
pub fn of_change(change: &Change) -> &'static str {
    match (change.why, change.value.is_some()) {
        (Some(Why::Ended), false) => "expired",
        (_, is_there) => of_cell(change.kind, is_there),
    }
}

/// Of a cell of class `soft` that is there since, or not any more.
fn of_cell(kind: Kind, is_there: bool) -> &'static str {
    match (kind, is_there) {
        (Kind::End, _) => "expire",
        (Kind::Register, true) => "set",
        (Kind::Register, false) => "del",
        (Kind::Field, true) => "hset",
        (Kind::Field, false) => "hdel",
        (Kind::Member, true) => "sadd",
        (Kind::Member, false) => "srem",
        (Kind::Score, true) => "zadd",
        (Kind::Score, false) => "zrem",
        (Kind::Item, true) => "rpush",
        (Kind::Item, false) => "lrem",
    }
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

    #[test]
    fn what_has_ended_in_class_soft_is_told_as_expired() {
        let change = |why, value: Option<Option<bytes::Bytes>>| {
            let (key, element) = (bytes::Bytes::from_static(b"k"), bytes::Bytes::new());
            of_change(&Change { key, kind: Kind::Member, element, value, why, lost: Vec::new() })
        };
        assert_eq!(change(Some(Why::Ended), None), "expired");
        assert_eq!(change(Some(Why::Released), None), "srem");
        assert_eq!(change(Some(Why::Remote), None), "srem");
        // Something was written to it since.
        assert_eq!(change(Some(Why::Ended), Some(None)), "sadd");
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
