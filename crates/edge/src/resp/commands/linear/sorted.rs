//! Sorted sets. What is wrong with a score or the edge of a range is said before the key is looked at, as in Redis.

use state::linear::score;

use super::pages::pages;
use super::*;
use crate::resp::commands::page::Also;

const SCORES: &str = "no hexadecimal numbers";
const ONE_SHARD: &str = "all keys must be in one shard";
const COMBINED: &str = "all keys must be in one shard, and have 2,097,152 members together at most";

pub const ALL: &[Spec] = &[
    noted(
        spec(
            "ZADD",
            -4,
            Keys::One,
            Does::Write,
            "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
            "gives members scores; how many are new",
            add,
        ),
        SCORES,
    ),
    noted(
        spec("ZINCRBY", 4, Keys::One, Does::Write, "key delta member", "adds to a member's score", |call| {
            increase(call, "any", "any", 2)
        }),
        SCORES,
    ),
    spec(
        "ZREM",
        -3,
        Keys::One,
        Does::Write,
        "key member [member ...]",
        "removes members; how many there were",
        |call| one(call, "sorted.remove", plain),
    ),
    spec("ZCARD", 2, Keys::One, Does::Read, "key", "how many members", |call| one(call, "sorted.length", plain)),
    spec("ZSCORE", 3, Keys::One, Does::Read, "key member", "a member's score", |call| {
        one(call, "sorted.scores", |got| match only(got) {
            Got::List(list) => double(only(list)),
            other => plain_one(other),
        })
    }),
    spec("ZMSCORE", -3, Keys::One, Does::Read, "key member [member ...]", "members' scores", |call| {
        one(call, "sorted.scores", |got| match only(got) {
            Got::List(list) => Reply::List(list.into_iter().map(double).collect()),
            other => plain_one(other),
        })
    }),
    spec("ZRANK", -3, Keys::One, Does::Read, "key member [WITHSCORE]", "how many have a place below it", |call| {
        rank(call, "ZRANK", "forward")
    }),
    spec("ZREVRANK", -3, Keys::One, Does::Read, "key member [WITHSCORE]", "how many have a place above it", |call| {
        rank(call, "ZREVRANK", "reverse")
    }),
    spec("ZCOUNT", 4, Keys::One, Does::Read, "key min max", "how many have a score between these", |call| {
        between(call, "sorted.count", By::Score)
    }),
    spec("ZLEXCOUNT", 4, Keys::One, Does::Read, "key min max", "how many lie between these members", |call| {
        between(call, "sorted.count", By::Member)
    }),
    spec(
        "ZRANGE",
        -4,
        Keys::One,
        Does::Read,
        "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        "members of a range of ranks, of scores or of members",
        |call| range(call, None, None),
    ),
    spec("ZREVRANGE", -4, Keys::One, Does::Read, "key start stop [WITHSCORES]", "ZRANGE REV", |call| {
        range(call, Some(By::Rank), Some(true))
    }),
    spec(
        "ZRANGEBYSCORE",
        -4,
        Keys::One,
        Does::Read,
        "key min max [WITHSCORES] [LIMIT offset count]",
        "ZRANGE BYSCORE",
        |call| range(call, Some(By::Score), Some(false)),
    ),
    spec(
        "ZREVRANGEBYSCORE",
        -4,
        Keys::One,
        Does::Read,
        "key max min [WITHSCORES] [LIMIT offset count]",
        "ZRANGE BYSCORE REV",
        |call| range(call, Some(By::Score), Some(true)),
    ),
    spec("ZRANGEBYLEX", -4, Keys::One, Does::Read, "key min max [LIMIT offset count]", "ZRANGE BYLEX", |call| {
        range(call, Some(By::Member), Some(false))
    }),
    spec("ZREVRANGEBYLEX", -4, Keys::One, Does::Read, "key max min [LIMIT offset count]", "ZRANGE BYLEX REV", |call| {
        range(call, Some(By::Member), Some(true))
    }),
    spec(
        "ZREMRANGEBYRANK",
        4,
        Keys::One,
        Does::Write,
        "key start stop",
        "removes members with ranks between these; how many",
        |call| between(call, "sorted.remove-range", By::Rank),
    ),
    spec(
        "ZREMRANGEBYSCORE",
        4,
        Keys::One,
        Does::Write,
        "key min max",
        "removes members with scores between these; how many",
        |call| between(call, "sorted.remove-range", By::Score),
    ),
    spec(
        "ZREMRANGEBYLEX",
        4,
        Keys::One,
        Does::Write,
        "key min max",
        "removes members that lie between these; how many",
        |call| between(call, "sorted.remove-range", By::Member),
    ),
    spec("ZPOPMIN", -2, Keys::One, Does::Write, "key [count]", "takes those with the lowest scores", |call| {
        pop(call, "min")
    }),
    spec("ZPOPMAX", -2, Keys::One, Does::Write, "key [count]", "takes those with the highest scores", |call| {
        pop(call, "max")
    }),
    noted(
        spec(
            "ZMPOP",
            -4,
            Keys::Counted(1),
            Does::Write,
            "numkeys key [key ...] MIN | MAX [COUNT count]",
            "takes members from the first sorted set that has any",
            |call| match Many::read(call.command, 1) {
                Ok(Many { keys, end, count }) => {
                    on_keys(call, "sorted.pop-first", keys, vec![word(end), word(count.to_string())], popped)
                }
                Err(error) => Act::Now(error),
            },
        ),
        ONE_SHARD,
    ),
    noted(
        spec(
            "ZRANDMEMBER",
            -2,
            Keys::One,
            Does::Read,
            "key [count [WITHSCORES]]",
            "some members, each as likely",
            |call| match call.command.len() {
                2 => one_with(call, "sorted.random", vec![chance(), word("1")], first),
                3 => drawn(call, "sorted.random", members),
                4 if is(call.command.arg(3), "WITHSCORES") => drawn(call, "sorted.random", scored),
                _ => syntax_error(),
            },
        ),
        "a negative count (each drawn anew) may be down to -16384",
    ),
    noted(
        spec(
            "ZSCAN",
            -3,
            Keys::One,
            Does::Read,
            "key cursor [MATCH pattern] [COUNT n]",
            "members and scores in pages",
            |call| pages(call, ["sorted.walk", "sorted.scan"], 2, Also::Nothing),
        ),
        "what is there throughout the walk is listed at least once; a cursor is good at every node, and after restarts (from level 15 on)",
    ),
    noted(
        spec(
            "ZUNION",
            -3,
            Keys::Counted(1),
            Does::Read,
            "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]",
            "members of any, their scores added up; sets may be among them",
            |call| combine(call, &Combined { name: "zunion", function: "sorted.union", weighs: true }),
        ),
        COMBINED,
    ),
    noted(
        spec(
            "ZINTER",
            -3,
            Keys::Counted(1),
            Does::Read,
            "numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]",
            "members of all, their scores added up; sets may be among them",
            |call| combine(call, &Combined { name: "zinter", function: "sorted.inter", weighs: true }),
        ),
        COMBINED,
    ),
    noted(
        spec(
            "ZDIFF",
            -3,
            Keys::Counted(1),
            Does::Read,
            "numkeys key [key ...] [WITHSCORES]",
            "members of the first and no other; sets may be among them",
            |call| combine(call, &Combined { name: "zdiff", function: "sorted.diff", weighs: false }),
        ),
        COMBINED,
    ),
    noted(
        spec(
            "ZINTERCARD",
            -3,
            Keys::Counted(1),
            Does::Read,
            "numkeys key [key ...] [LIMIT limit]",
            "how many members of all there are; sets may be among them",
            count_common,
        ),
        COMBINED,
    ),
    noted(
        spec(
            "ZUNIONSTORE",
            -4,
            Keys::AndCounted(2),
            Does::Write,
            "to numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX]",
            "stores what ZUNION gives; how many",
            |call| combine(call, &Combined { name: "zunionstore", function: "sorted.store-union", weighs: true }),
        ),
        COMBINED,
    ),
    noted(
        spec(
            "ZINTERSTORE",
            -4,
            Keys::AndCounted(2),
            Does::Write,
            "to numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE SUM | MIN | MAX]",
            "stores what ZINTER gives; how many",
            |call| combine(call, &Combined { name: "zinterstore", function: "sorted.store-inter", weighs: true }),
        ),
        COMBINED,
    ),
    noted(
        spec(
            "ZDIFFSTORE",
            -4,
            Keys::AndCounted(2),
            Does::Write,
            "to numkeys key [key ...]",
            "stores what ZDIFF gives; how many",
            |call| combine(call, &Combined { name: "zdiffstore", function: "sorted.store-diff", weighs: false }),
        ),
        COMBINED,
    ),
    noted(
        spec(
            "ZRANGESTORE",
            -5,
            Keys::Two,
            Does::Write,
            "to key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
            "stores what ZRANGE gives; how many",
            |call| {
                let range = Range::read(call.command, 3, Range { stores: true, ..Range::default() });
                range.map_or_else(Act::Now, |range| {
                    let args = [vec![call.command.key(2)], range.args()].concat();
                    one_with(call, "sorted.store-range", args, plain)
                })
            },
        ),
        "both keys must be in one shard",
    ),
];

// How replies read.

/// A score.
fn double(got: Got) -> Reply {
    match got {
        Got::Bytes(text) => Reply::Double(text),
        Got::Wrong(Wrong::Overflow) => Reply::error("ERR resulting score is not a number (NaN)"),
        other => plain_one(other),
    }
}

/// Members, each with its score behind it.
fn pairs(flat: Vec<Got>) -> Vec<(Reply, Reply)> {
    let mut flat = flat.into_iter();
    std::iter::from_fn(|| Some((plain_one(flat.next()?), double(flat.next()?)))).collect()
}

/// In RESP3 a list for each.
pub fn scored(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) => Reply::Pairs(pairs(list)),
        Got::Nil => Reply::List(Vec::new()),
        other => too_many(other),
    }
}

/// One list of all, in RESP3 too.
fn scored_flat(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) => Reply::List(pairs(list).into_iter().flat_map(|(member, score)| [member, score]).collect()),
        Got::Nil => Reply::List(Vec::new()),
        other => plain_one(other),
    }
}

/// A list for each, in RESP2 too.
fn scored_nested(list: Vec<Got>) -> Reply {
    Reply::List(pairs(list).into_iter().map(|(member, score)| Reply::List(vec![member, score])).collect())
}

/// Of members with scores the members.
fn members(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(list) => Reply::List(list.into_iter().step_by(2).map(plain_one).collect()),
        other => too_many(other),
    }
}

/// A key, and what was taken from it.
pub fn popped(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(parts) => match <[Got; 2]>::try_from(parts) {
            Ok([key, Got::List(items)]) => Reply::List(vec![plain_one(key), scored_nested(items)]),
            _ => Reply::NilList,
        },
        Got::Nil => Reply::NilList,
        other => plain_one(other),
    }
}

/// The same of one member, all in one list.
pub fn popped_one(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::List(parts) => match <[Got; 2]>::try_from(parts) {
            Ok([key, Got::List(items)]) => one_of(plain_one(key), items),
            _ => Reply::NilList,
        },
        Got::Nil => Reply::NilList,
        other => plain_one(other),
    }
}

/// The key, a member and its score.
pub fn one_of(key: Reply, items: Vec<Got>) -> Reply {
    let items = pairs(items).into_iter().flat_map(|(member, score)| [member, score]);
    Reply::List(std::iter::once(key).chain(items).collect())
}

/// The key, and a list for each member.
pub fn many_of(key: Reply, items: Vec<Got>) -> Reply {
    Reply::List(vec![key, scored_nested(items)])
}

fn too_many(got: Got) -> Reply {
    match got {
        Got::Wrong(Wrong::TooLarge) => {
            Reply::error("ERR these sets are too large to be combined, or what comes of it is over 16 MiB")
        }
        other => plain_one(other),
    }
}

fn combined(got: Vec<Got>) -> Reply {
    too_many(only(got))
}

// Scores that change.

fn add(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let (mut nx, mut xx, mut gt, mut lt, mut ch, mut incr) = (false, false, false, false, false, false);
    let mut at = 2;
    while at < command.len() {
        let flags =
            [("NX", &mut nx), ("XX", &mut xx), ("GT", &mut gt), ("LT", &mut lt), ("CH", &mut ch), ("INCR", &mut incr)];
        match flags.into_iter().find(|(name, _)| is(command.arg(at), name)) {
            Some((_, flag)) => *flag = true,
            None => break,
        }
        at += 1;
    }
    let left = command.len() - at;
    if left == 0 || !left.is_multiple_of(2) {
        return syntax_error();
    }
    let error = |text: &str| Act::Now(Reply::error(text));
    if nx && xx {
        return error("ERR XX and NX options at the same time are not compatible");
    }
    if (nx && (gt || lt)) || (gt && lt) {
        return error("ERR GT, LT, and/or NX options at the same time are not compatible");
    }
    if incr && left > 2 {
        return error("ERR INCR option supports a single increment-element pair");
    }
    let when = if nx { "absent" } else { ["any", "present"][usize::from(xx)] };
    let only = if gt { "greater" } else { ["any", "less"][usize::from(lt)] };
    if incr {
        return increase(call, when, only, at);
    }
    if (at..command.len()).step_by(2).any(|at| score::parse(command.arg(at)).is_none()) {
        return Act::Now(wrong(Wrong::NotAFloat));
    }
    let pairs = (at..command.len()).map(|at| command.value(at));
    let args = [word(when), word(only)].into_iter().chain(pairs).collect();
    one_with(call, "sorted.add", args, if ch { changed } else { added })
}

/// How many are new.
pub fn added(got: Vec<Got>) -> Reply {
    only_list(got).map_or_else(|other| other, plain)
}

/// How many are new or have another score.
pub fn changed(got: Vec<Got>) -> Reply {
    only_list(got).map_or_else(|other| other, sum)
}

fn only_list(got: Vec<Got>) -> Result<Vec<Got>, Reply> {
    match only(got) {
        Got::List(list) => Ok(list),
        other => Err(plain_one(other)),
    }
}

/// By the number at this argument, for the member behind it.
fn increase(call: &Call<'_>, when: &'static str, only: &'static str, at: usize) -> Act {
    let command = call.command;
    if score::parse(command.arg(at)).is_none() {
        return Act::Now(wrong(Wrong::NotAFloat));
    }
    let args = vec![word(when), word(only), command.value(at), command.value(at + 1)];
    one_with(call, "sorted.increase", args, |got| double(super::only(got)))
}

fn pop(call: &Call<'_>, end: &'static str) -> Act {
    match call.command.len() {
        2 => one_with(call, "sorted.pop", vec![word(end), word("1")], scored_flat),
        3 => match how_many(call.command.arg(2)) {
            Ok(count) => one_with(call, "sorted.pop", vec![word(end), word(count.to_string())], scored),
            Err(error) => Act::Now(error),
        },
        _ => syntax_error(),
    }
}

/// `numkeys key [key ...] MIN | MAX [COUNT count]`.
pub struct Many {
    pub keys: Vec<Bytes>,
    pub end: &'static str,
    pub count: u64,
}

impl Many {
    pub fn read(command: &Command, at: usize) -> Result<Self, Reply> {
        let syntax = || Reply::error("ERR syntax error");
        let numkeys = integer(command.arg(at)).filter(|n| *n > 0).and_then(|n| usize::try_from(n).ok());
        let numkeys = numkeys.ok_or_else(|| Reply::error("ERR numkeys should be greater than 0"))?;
        let behind = (at + 1).checked_add(numkeys).filter(|behind| *behind < command.len()).ok_or_else(syntax)?;
        let keys = (at + 1..behind).map(|i| command.key(i)).collect();
        let end = ["min", "max"].into_iter().find(|end| is(command.arg(behind), end)).ok_or_else(syntax)?;
        let count = match command.len() - behind {
            1 => 1,
            3 if is(command.arg(behind + 1), "COUNT") => match integer(command.arg(behind + 2)) {
                Some(count @ 1..) => count as u64,
                _ => return Err(Reply::error("ERR count should be greater than 0")),
            },
            _ => return Err(syntax()),
        };
        Ok(Self { keys, end, count })
    }
}

// Ranges.

fn rank(call: &Call<'_>, name: &str, order: &'static str) -> Act {
    let args = vec![call.command.value(2), word(order)];
    match call.command.len() {
        3 => one_with(call, "sorted.rank", args, |got| match only(got) {
            Got::List(list) => plain(list),
            other => plain_one(other),
        }),
        4 if is(call.command.arg(3), "WITHSCORE") => one_with(call, "sorted.rank", args, |got| match only(got) {
            Got::List(list) => match <[Got; 2]>::try_from(list) {
                Ok([rank, score]) => Reply::List(vec![plain_one(rank), double(score)]),
                Err(_) => Reply::NilList,
            },
            Got::Nil => Reply::NilList,
            other => plain_one(other),
        }),
        4 => syntax_error(),
        _ => Act::Now(wrong_arity(name)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum By {
    #[default]
    Rank,
    Score,
    Member,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            By::Rank => "rank",
            By::Score => "score",
            By::Member => "member",
        }
    }

    /// What is wrong with the edges of a range, if anything is.
    fn check(self, edges: [&[u8]; 2]) -> Result<(), Reply> {
        let is_good = |edge: &[u8]| match self {
            By::Rank => integer(edge).is_some(),
            By::Score => score::edge(edge.strip_prefix(b"(").unwrap_or(edge)).is_some(),
            By::Member => matches!(edge, b"-" | b"+" | [b'[' | b'(', ..]),
        };
        if edges.into_iter().all(is_good) {
            return Ok(());
        }
        Err(match self {
            By::Rank => not_an_integer(),
            By::Score => Reply::error("ERR min or max is not a float"),
            By::Member => Reply::error("ERR min or max not valid string range item"),
        })
    }
}

/// A function of all in a range, `key from to`.
fn between(call: &Call<'_>, function: &'static str, by: By) -> Act {
    let command = call.command;
    match by.check([command.arg(2), command.arg(3)]) {
        Ok(()) => one_with(call, function, vec![word(by.name()), command.value(2), command.value(3)], plain),
        Err(error) => Act::Now(error),
    }
}

fn range(call: &Call<'_>, by: Option<By>, reverse: Option<bool>) -> Act {
    let (may_choose_by, may_choose_order) = (by.is_none(), reverse.is_none());
    let (by, reverse) = (by.unwrap_or_default(), reverse.unwrap_or_default());
    let range = Range { by, reverse, may_choose_by, may_choose_order, ..Range::default() };
    match Range::read(call.command, 2, range) {
        Err(error) => Act::Now(error),
        Ok(range) if range.with_scores => {
            one_with(call, "sorted.range", [range.args(), vec![word("scores")]].concat(), scored)
        }
        Ok(range) => one_with(call, "sorted.range", range.args(), plain),
    }
}

struct Range {
    by: By,
    reverse: bool,
    /// May options say otherwise?
    may_choose_by: bool,
    may_choose_order: bool,
    stores: bool,
    with_scores: bool,
    /// From the lowest score on.
    edges: [Bytes; 2],
    limit: (i64, i64),
}

impl Default for Range {
    fn default() -> Self {
        Self {
            by: By::Rank,
            reverse: false,
            may_choose_by: true,
            may_choose_order: true,
            stores: false,
            with_scores: false,
            edges: Default::default(),
            limit: (0, -1),
        }
    }
}

impl Range {
    /// The edges from this argument on, and options behind them.
    fn read(command: &Command, at: usize, mut range: Self) -> Result<Self, Reply> {
        let mut next = at + 2;
        while next < command.len() {
            let option = command.arg(next);
            if !range.stores && is(option, "WITHSCORES") {
                range.with_scores = true;
            } else if is(option, "LIMIT") && next + 2 < command.len() {
                let number = |at| integer(command.arg(at)).ok_or_else(not_an_integer);
                range.limit = (number(next + 1)?, number(next + 2)?);
                next += 2;
            } else if range.may_choose_order && is(option, "REV") {
                (range.reverse, range.may_choose_order) = (true, false);
            } else if range.may_choose_by && is(option, "BYLEX") {
                (range.by, range.may_choose_by) = (By::Member, false);
            } else if range.may_choose_by && is(option, "BYSCORE") {
                (range.by, range.may_choose_by) = (By::Score, false);
            } else {
                return Err(Reply::error("ERR syntax error"));
            }
            next += 1;
        }
        if range.limit.1 != -1 && range.by == By::Rank {
            return Err(Reply::error(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if range.with_scores && range.by == By::Member {
            return Err(Reply::error("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        if range.by == By::Rank {
            range.limit = (0, -1);
        }
        range.edges = [command.value(at), command.value(at + 1)];
        if range.reverse && range.by != By::Rank {
            range.edges.reverse();
        }
        range.by.check([&range.edges[0], &range.edges[1]])?;
        Ok(range)
    }

    /// As the function takes it.
    fn args(self) -> Vec<Bytes> {
        let [from, to] = self.edges;
        let (offset, count) = self.limit;
        let order = if self.reverse { "reverse" } else { "forward" };
        vec![word(self.by.name()), from, to, word(order), word(offset.to_string()), word(count.to_string())]
    }
}

// Several sorted sets.

struct Combined {
    /// Of the command, as its errors have it. One that stores has its target before the number of keys.
    name: &'static str,
    function: &'static str,
    weighs: bool,
}

/// `numkeys key [key ...]` at this argument, with Redis' words for what is wrong; and where it goes on.
fn sources(command: &Command, at: usize, name: &str) -> Result<(Vec<Bytes>, usize), Reply> {
    let count = integer(command.arg(at)).ok_or_else(not_an_integer)?;
    if count < 1 {
        return Err(Reply::Error(format!("ERR at least 1 input key is needed for '{name}' command")));
    }
    let end = usize::try_from(count).ok().and_then(|count| (at + 1).checked_add(count));
    let end = end.filter(|end| *end <= command.len()).ok_or_else(|| Reply::error("ERR syntax error"))?;
    Ok(((at + 1..end).map(|i| command.key(i)).collect(), end))
}

fn combine(call: &Call<'_>, how: &Combined) -> Act {
    let command = call.command;
    let stores = how.name.ends_with("store");
    let (keys, mut at) = match sources(command, if stores { 2 } else { 1 }, how.name) {
        Ok(sources) => sources,
        Err(error) => return Act::Now(error),
    };
    let (mut weights, mut aggregate, mut with_scores) = (word("-"), "sum", false);
    while at < command.len() {
        let left = command.len() - at;
        if how.weighs && left > keys.len() && is(command.arg(at), "WEIGHTS") {
            let said = (at + 1..=at + keys.len()).map(|at| command.arg(at));
            if said.clone().any(|weight| score::parse(weight).is_none()) {
                return Act::Now(Reply::error("ERR weight value is not a float"));
            }
            weights = said.collect::<Vec<_>>().join(&b' ').into();
            at += 1 + keys.len();
        } else if how.weighs && left >= 2 && is(command.arg(at), "AGGREGATE") {
            match ["sum", "min", "max"].into_iter().find(|name| is(command.arg(at + 1), name)) {
                Some(name) => aggregate = name,
                None => return syntax_error(),
            }
            at += 2;
        } else if !stores && is(command.arg(at), "WITHSCORES") {
            with_scores = true;
            at += 1;
        } else {
            return syntax_error();
        }
    }
    let options = if how.weighs { vec![weights, word(aggregate)] } else { Vec::new() };
    if stores {
        return one_with(call, how.function, [keys, options].concat(), combined);
    }
    on_keys(call, how.function, keys, options, if with_scores { scored } else { members })
}

fn count_common(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let (keys, mut at) = match sources(command, 1, "zintercard") {
        Ok(sources) => sources,
        Err(error) => return Act::Now(error),
    };
    let mut limit = 0;
    while at < command.len() {
        if command.len() - at < 2 || !is(command.arg(at), "LIMIT") {
            return syntax_error();
        }
        limit = match integer(command.arg(at + 1)) {
            Some(limit @ 0..) => limit,
            _ => return Act::Now(Reply::error("ERR LIMIT can't be negative")),
        };
        at += 2;
    }
    on_keys(call, "sorted.count-inter", keys, vec![word(limit.to_string())], combined)
}
