//! SORT: items of a list, a set or a sorted set in another order.

use state::linear::functions::sort::names_keys;

use super::*;

const SEES: &str = "where BY or GET name keys, of a namespace with shards = 1; a set that is not sorted comes in the order of its members";

pub const ALL: &[Spec] = &[
    noted(
        spec(
            "SORT",
            -2,
            Keys::AndStored(2),
            Does::Write,
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] [STORE to]",
            "items in another order, or what other keys say of them",
            |call| sort(call, true),
        ),
        SEES,
    ),
    noted(
        spec(
            "SORT_RO",
            -2,
            Keys::One,
            Does::Read,
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]",
            "the same, which stores nothing",
            |call| sort(call, false),
        ),
        SEES,
    ),
];

fn sort(call: &Call<'_>, may_store: bool) -> Act {
    let command = call.command;
    let (mut order, mut kind, mut limit) = ("asc", "number", (0, -1));
    let (mut by, mut gets, mut to, mut at) = (None, Vec::new(), None, 2);
    while at < command.len() {
        let behind = command.len() - at - 1;
        let takes = |name: &str, args: usize| is(command.arg(at), name) && behind >= args;
        if takes("ASC", 0) {
            order = "asc";
        } else if takes("DESC", 0) {
            order = "desc";
        } else if takes("ALPHA", 0) {
            kind = "alpha";
        } else if takes("LIMIT", 2) {
            limit = match (integer(command.arg(at + 1)), integer(command.arg(at + 2))) {
                (Some(offset), Some(count)) => (offset, count),
                _ => return Act::Now(not_an_integer()),
            };
            at += 2;
        } else if may_store && takes("STORE", 1) {
            to = Some(command.key(at + 1));
            at += 1;
        } else if takes("BY", 1) {
            by = Some(command.value(at + 1));
            at += 1;
        } else if takes("GET", 1) {
            gets.push(command.value(at + 1));
            at += 1;
        } else {
            return syntax_error();
        }
        at += 1;
    }
    if by.iter().chain(&gets).any(|pattern| names_keys(pattern)) && !sees_all(call) {
        return Act::Now(Reply::error(
            "ERR SORT sees one shard, and BY or GET may name keys of others: declare the namespace with shards = 1",
        ));
    }
    let by = match by {
        Some(pattern) if names_keys(&pattern) => [word("by"), pattern],
        Some(_) => [word("none"), word("-")],
        None => [word("own"), word("-")],
    };
    let (offset, count) = limit;
    let mut args = vec![word(order), word(kind), word(offset.to_string()), word(count.to_string())];
    args.extend(by.into_iter().chain(gets));
    let then: Then = |got| match only(got) {
        Got::Wrong(Wrong::NotAFloat) => Reply::error("ERR One or more scores can't be converted into double"),
        other => plain_one(other),
    };
    match to {
        Some(to) => {
            args.insert(0, to);
            one_with(call, "sort.store", args, then)
        }
        None => one_with(call, "sort", args, then),
    }
}

/// Is all of the namespace in one shard? Within a script who runs it looks.
fn sees_all(call: &Call<'_>) -> bool {
    let (space, view) = (call.space(), call.node.gate.view());
    let named = view.namespaces.iter().find(|namespace| *namespace.name == *space.name);
    call.node.gate.is_at_once() || named.is_none_or(|namespace| namespace.shards.len() <= 1)
}
