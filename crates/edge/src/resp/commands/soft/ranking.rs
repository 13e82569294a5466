//! Sorted sets: members with scores. A score is eight bytes in the cell of its member; order is made when it is asked for.

use super::*;
use crate::resp::commands::page::Also;

pub const ALL: &[Spec] = &[
    noted(
        spec(
            "ZADD",
            -4,
            Keys::One,
            Does::Write,
            "key score member [score member ...]",
            "sets scores of members; how many are new",
            add,
        ),
        "without options; of two scores that two nodes give at one moment the newer counts",
    ),
    spec(
        "ZREM",
        -3,
        Keys::One,
        Does::Write,
        "key member [member ...]",
        "removes members; how many there were",
        |call| take(call, Kind::Score),
    ),
    spec("ZSCORE", 3, Keys::One, Does::Read, "key member", "the score of a member", |call| {
        act(call, elements(call, Kind::Score, 2), |got| {
            values(got).into_iter().next().flatten().map_or(Reply::Nil, shown)
        })
    }),
    spec("ZMSCORE", -3, Keys::One, Does::Read, "key member [member ...]", "scores of members", |call| {
        act(call, elements(call, Kind::Score, 2), |got| {
            Reply::List(values(got).into_iter().map(|score| score.map_or(Reply::Nil, shown)).collect())
        })
    }),
    spec("ZCARD", 2, Keys::One, Does::Read, "key", "how many members", |call| {
        act(call, all(call, Kind::Score), how_many)
    }),
    spec("ZCOUNT", 4, Keys::One, Does::Read, "key min max", "how many have a score from min to max", |call| {
        let (Some(min), Some(max)) = (Edge::read(call.command.arg(2)), Edge::read(call.command.arg(3))) else {
            return Act::Now(not_a_float("min or max is"));
        };
        later(call, all(call, Kind::Score), move |got| {
            Reply::Int(
                ranked(got).iter().filter(|(score, _)| min.is_below(*score) && max.is_above(*score)).count() as i64
            )
        })
    }),
    spec("ZRANK", 3, Keys::One, Does::Read, "key member", "how many members have less", |call| rank(call, false)),
    spec("ZREVRANK", 3, Keys::One, Does::Read, "key member", "how many members have more", |call| rank(call, true)),
    spec(
        "ZRANGE",
        -4,
        Keys::One,
        Does::Read,
        "key start stop [BYSCORE] [REV] [LIMIT offset count] [WITHSCORES]",
        "members in order of their scores",
        |call| range(call, Wanted::default()),
    ),
    spec("ZREVRANGE", -4, Keys::One, Does::Read, "key start stop [WITHSCORES]", "ZRANGE with REV", |call| {
        range(call, Wanted { reversed: true, is_fixed: true, ..Wanted::default() })
    }),
    spec(
        "ZRANGEBYSCORE",
        -4,
        Keys::One,
        Does::Read,
        "key min max [WITHSCORES] [LIMIT offset count]",
        "ZRANGE with BYSCORE",
        |call| range(call, Wanted { by_score: true, is_fixed: true, ..Wanted::default() }),
    ),
    spec(
        "ZREVRANGEBYSCORE",
        -4,
        Keys::One,
        Does::Read,
        "key max min [WITHSCORES] [LIMIT offset count]",
        "ZRANGE with BYSCORE and REV",
        |call| range(call, Wanted { by_score: true, reversed: true, is_fixed: true, ..Wanted::default() }),
    ),
    noted(
        spec(
            "ZSCAN",
            -3,
            Keys::One,
            Does::Read,
            "key cursor [MATCH pattern] [COUNT n]",
            "members and scores in pages",
            |call| pages::pages(call, Kind::Score, Also::Nothing, Some(shown)),
        ),
        IN_PAGES,
    ),
    spec(
        "ZRANDMEMBER",
        -2,
        Keys::One,
        Does::Read,
        "key [count [WITHSCORES]]",
        "some members, each as likely; with a negative count each is drawn anew",
        |call| pages::drawn(call, Kind::Score, "WITHSCORES", shown),
    ),
];

/// One end of a range of scores: `(5` is without 5 itself.
#[derive(Clone, Copy)]
struct Edge {
    at: f64,
    excluded: bool,
}

impl Edge {
    fn read(arg: &[u8]) -> Option<Self> {
        let (excluded, number) = arg.strip_prefix(b"(").map_or((false, arg), |rest| (true, rest));
        Some(Self { at: float(number)?, excluded })
    }

    fn is_below(self, score: f64) -> bool {
        if self.excluded { self.at < score } else { self.at <= score }
    }

    fn is_above(self, score: f64) -> bool {
        if self.excluded { score < self.at } else { score <= self.at }
    }
}

fn float(arg: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(arg).ok()?.parse().ok()?;
    // Both zeros are one score.
    (!number.is_nan()).then_some(number + 0.0)
}

fn not_a_float(what: &str) -> Reply {
    Reply::Error(format!("ERR {what} not a valid float"))
}

fn add(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let options = ["NX", "XX", "GT", "LT", "CH", "INCR"];
    if let Some(option) = options.iter().find(|option| is(command.arg(2), option)) {
        let why = if *option == "CH" { "the reply is how many are new" } else { ONE_GETS_IT };
        return Act::Now(Reply::Error(format!("ERR ZADD with {option} is not offered by class soft: {why}")));
    }
    if !command.len().is_multiple_of(2) {
        return syntax_error();
    }
    let mut pairs = Vec::new();
    for at in (2..command.len()).step_by(2) {
        let Some(score) = float(command.arg(at)) else { return Act::Now(not_a_float("value is")) };
        pairs.push((command.key(at + 1), Some(Bytes::copy_from_slice(&score.to_be_bytes()))));
    }
    act(call, Action::Put { kind: Kind::Score, key: command.key(1), pairs }, int)
}

/// Of eight bytes; what is none of ours (a peer wrote it) is 0.
fn score(value: &Bytes) -> f64 {
    value.first_chunk().map_or(0.0, |bytes| f64::from_be_bytes(*bytes))
}

/// As Redis writes it: without a point if it is whole.
fn shown(value: Bytes) -> Reply {
    Reply::text(score(&value).to_string())
}

/// Members by score, then by name.
fn ranked(got: Got) -> Vec<(f64, Bytes)> {
    let pairs = all_pairs(got).into_iter();
    let mut ranked: Vec<(f64, Bytes)> =
        pairs.map(|(member, value)| (score(&value.unwrap_or_default()), member)).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    ranked
}

fn rank(call: &Call<'_>, reversed: bool) -> Act {
    let member = call.command.key(2);
    later(call, all(call, Kind::Score), move |got| {
        let ranked = ranked(got);
        let Some(at) = ranked.iter().position(|(_, other)| *other == member) else { return Reply::Nil };
        let before = if reversed { ranked.len() - 1 - at } else { at };
        Reply::Int(before as i64)
    })
}

/// What ZRANGE is asked for.
#[derive(Default)]
struct Wanted {
    by_score: bool,
    reversed: bool,
    /// Order and kind of range are the command's own.
    is_fixed: bool,
    scores: bool,
    limit: Option<(usize, usize)>,
}

impl Wanted {
    /// Reads the options behind what a command wants by itself.
    fn read(command: &Command, mut wanted: Self) -> Result<Self, Reply> {
        let mut at = 4;
        while at < command.len() {
            let option = command.arg(at);
            if is(option, "BYSCORE") && !wanted.is_fixed {
                wanted.by_score = true;
            } else if is(option, "REV") && !wanted.is_fixed {
                wanted.reversed = true;
            } else if is(option, "WITHSCORES") {
                wanted.scores = true;
            } else if is(option, "LIMIT") && at + 2 < command.len() {
                let (Some(offset), Some(count)) = (integer(command.arg(at + 1)), integer(command.arg(at + 2))) else {
                    return Err(not_an_integer());
                };
                // As in Redis: a negative offset leaves nothing, a negative count is all.
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                wanted.limit = Some((offset, usize::try_from(count).unwrap_or(usize::MAX)));
                at += 2;
            } else {
                return Err(Reply::error("ERR syntax error"));
            }
            at += 1;
        }
        if wanted.limit.is_some() && !wanted.by_score {
            return Err(Reply::error(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        Ok(wanted)
    }
}

fn range(call: &mut Call<'_>, wanted: Wanted) -> Act {
    let command = call.command;
    let Wanted { by_score, reversed, is_fixed: _, scores, limit } = match Wanted::read(command, wanted) {
        Ok(wanted) => wanted,
        Err(error) => return Act::Now(error),
    };
    if by_score {
        // With REV the greater end comes first.
        let (min, max) = if reversed { (3, 2) } else { (2, 3) };
        let (Some(min), Some(max)) = (Edge::read(command.arg(min)), Edge::read(command.arg(max))) else {
            return Act::Now(not_a_float("min or max is"));
        };
        return later(call, all(call, Kind::Score), move |got| {
            let mut found = ranked(got);
            found.retain(|(score, _)| min.is_below(*score) && max.is_above(*score));
            if reversed {
                found.reverse();
            }
            let (offset, count) = limit.unwrap_or((0, usize::MAX));
            listed(found.into_iter().skip(offset).take(count), scores)
        });
    }
    let (Some(start), Some(stop)) = (integer(command.arg(2)), integer(command.arg(3))) else {
        return Act::Now(not_an_integer());
    };
    later(call, all(call, Kind::Score), move |got| {
        let mut found = ranked(got);
        if reversed {
            found.reverse();
        }
        // Negative ones count from the end.
        let len = found.len() as i64;
        let place = |n: i64| if n < 0 { n.saturating_add(len) } else { n };
        let (start, stop) = (place(start).max(0), place(stop).min(len - 1));
        let count = usize::try_from(stop.saturating_sub(start).saturating_add(1)).unwrap_or(0);
        listed(found.into_iter().skip(start as usize).take(count), scores)
    })
}

fn listed(found: impl Iterator<Item = (f64, Bytes)>, scores: bool) -> Reply {
    if scores {
        Reply::Pairs(found.map(|(score, member)| (Reply::Bulk(member), Reply::text(score.to_string()))).collect())
    } else {
        Reply::List(found.map(|(_, member)| Reply::Bulk(member)).collect())
    }
}
