//! Lists.

use state::soft::{List, Side};

use super::super::linear::list::Positions;
use super::*;

const TOGETHER: &str = "what one command brings stays together, also where two nodes push at one moment";

pub const ALL: &[Spec] = &[
    noted(
        spec(
            "LPUSH",
            -3,
            Keys::One,
            Does::Write,
            "key item [item ...]",
            "puts items at the head; the length",
            |call| push(call, Side::Left, false),
        ),
        TOGETHER,
    ),
    noted(
        spec("RPUSH", -3, Keys::One, Does::Write, "key item [item ...]", "puts items at the end; the length", |call| {
            push(call, Side::Right, false)
        }),
        TOGETHER,
    ),
    spec("LPUSHX", -3, Keys::One, Does::Write, "key item [item ...]", "LPUSH, if there is such a list", |call| {
        push(call, Side::Left, true)
    }),
    spec("RPUSHX", -3, Keys::One, Does::Write, "key item [item ...]", "RPUSH, if there is such a list", |call| {
        push(call, Side::Right, true)
    }),
    spec("LLEN", 2, Keys::One, Does::Read, "key", "how many items", |call| list(call, List::Length, int)),
    spec("LRANGE", 4, Keys::One, Does::Read, "key start stop", "items of a range", |call| {
        match numbers(call, [2, 3]) {
            Some([first, last]) => list(call, List::Range { first, last }, value_list),
            None => Act::Now(not_an_integer()),
        }
    }),
    spec("LINDEX", 3, Keys::One, Does::Read, "key index", "one item", |call| match numbers(call, [2]) {
        Some([at]) => list(call, List::Range { first: at, last: at }, one_value),
        None => Act::Now(not_an_integer()),
    }),
    spec("LSET", 4, Keys::One, Does::Write, "key index item", "replaces one item", |call| match numbers(call, [2]) {
        Some([index]) => list(call, List::Set { index, value: call.command.value(3) }, |got| match got {
            Got::NoKey => Reply::error("ERR no such key"),
            Got::NoIndex => Reply::error("ERR index out of range"),
            got => ok(got),
        }),
        None => Act::Now(not_an_integer()),
    }),
    noted(
        spec(
            "LREM",
            4,
            Keys::One,
            Does::Write,
            "key count item",
            "removes items that are equal",
            |call| match numbers(call, [2]) {
                Some([count]) => list(call, List::Remove { count, value: call.command.value(3) }, int),
                None => Act::Now(not_an_integer()),
            },
        ),
        "those that this node sees",
    ),
    noted(
        spec("LTRIM", 4, Keys::One, Does::Write, "key start stop", "keeps a range", |call| {
            match numbers(call, [2, 3]) {
                Some([first, last]) => list(call, List::Trim { first, last }, ok),
                None => Act::Now(not_an_integer()),
            }
        }),
        "removes what this node sees: a list that two nodes push to and trim may be longer for a moment",
    ),
    noted(
        spec(
            "LINSERT",
            5,
            Keys::One,
            Does::Write,
            "key BEFORE | AFTER pivot item",
            "puts an item beside another; the length, -1 if there is no such other",
            insert,
        ),
        "after some thousand at one place there is no room left there",
    ),
    spec(
        "LPOS",
        -3,
        Keys::One,
        Does::Read,
        "key item [RANK rank] [COUNT count] [MAXLEN length]",
        "positions of items that are equal: the first one, or a list of count",
        positions,
    ),
];

fn list(call: &Call<'_>, what: List, then: Then) -> Act {
    act(call, Action::List { key: call.command.key(1), what }, then)
}

fn push(call: &Call<'_>, side: Side, only_there: bool) -> Act {
    let values = (2..call.command.len()).map(|i| call.command.value(i)).collect();
    list(call, List::Push { side, values, only_there }, room)
}

fn insert(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let side = match () {
        () if is(command.arg(2), "BEFORE") => Side::Left,
        () if is(command.arg(2), "AFTER") => Side::Right,
        () => return syntax_error(),
    };
    list(call, List::Insert { side, pivot: command.value(3), value: command.value(4) }, room)
}

fn room(got: Got) -> Reply {
    match got {
        Got::NoRoom => Reply::error("ERR there is no place left in this list: read it, DEL it, and push it anew"),
        got => int(got),
    }
}

fn numbers<const N: usize>(call: &Call<'_>, at: [usize; N]) -> Option<[i64; N]> {
    let mut numbers = [0; N];
    for (number, at) in numbers.iter_mut().zip(at) {
        *number = integer(call.command.arg(at))?;
    }
    Some(numbers)
}

fn positions(call: &mut Call<'_>) -> Act {
    let wanted = match Positions::read(call.command) {
        Ok(wanted) => wanted,
        Err(error) => return Act::Now(error),
    };
    let (key, item) = (call.command.key(1), call.command.value(2));
    later(call, Action::List { key, what: List::Range { first: 0, last: -1 } }, move |got| {
        let mut found = found(&values(got), &item, &wanted).into_iter().map(Reply::Int);
        if wanted.count.is_some() { Reply::List(found.collect()) } else { found.next().unwrap_or(Reply::Nil) }
    })
}

/// Where the wanted ones are.
fn found(items: &[Option<Bytes>], item: &Bytes, wanted: &Positions) -> Vec<i64> {
    let most = |n: i64| if n == 0 { usize::MAX } else { usize::try_from(n).unwrap_or(usize::MAX) };
    let equal = |(at, has): (usize, &Option<Bytes>)| (has.as_ref() == Some(item)).then_some(at as i64);
    let places = items.iter().enumerate();
    let length = most(wanted.length);
    let in_order: Vec<i64> = match wanted.rank < 0 {
        true => places.rev().take(length).filter_map(equal).collect(),
        false => places.take(length).filter_map(equal).collect(),
    };
    let skip = usize::try_from(wanted.rank.unsigned_abs()).unwrap_or(usize::MAX) - 1;
    in_order.into_iter().skip(skip).take(most(wanted.count.unwrap_or(1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_counted_from_either_end() {
        let items: Vec<Option<Bytes>> = ["a", "b", "c", "b", "b"].map(|item| Some(item.into())).to_vec();
        for (rank, count, length, expected) in [
            (1, None, 0, vec![1]),
            (2, None, 0, vec![3]),
            (-1, None, 0, vec![4]),
            (-2, Some(0), 0, vec![3, 1]),
            (1, Some(2), 0, vec![1, 3]),
            (1, Some(0), 2, vec![1]),
            (-1, Some(0), 2, vec![4, 3]),
            (9, Some(0), 0, vec![]),
            (i64::MAX, None, i64::MAX, vec![]),
            (i64::MIN + 1, None, 0, vec![]),
        ] {
            let is = found(&items, &"b".into(), &Positions { rank, count, length });
            assert_eq!(is, expected, "{rank} {count:?} {length}");
        }
    }
}
