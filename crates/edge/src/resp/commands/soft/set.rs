//! Sets.

use super::pages::Algebra;
use super::*;
use crate::resp::commands::page::Also;

const ONE_BY_ONE: &str = "sets are read one after the other, so what is written meanwhile may be in one of them";

pub const ALL: &[Spec] = &[
    noted(
        spec("SADD", -3, Keys::One, Does::Write, "key member [member ...]", "adds members; how many are new", |call| {
            let pairs = names(call, 2).into_iter().map(|member| (member, None)).collect();
            act(call, Action::Put { kind: Kind::Member, key: call.command.key(1), pairs }, int)
        }),
        "of an addition and a removal that did not see each other the addition stays",
    ),
    spec(
        "SREM",
        -3,
        Keys::One,
        Does::Write,
        "key member [member ...]",
        "removes members; how many there were",
        |call| take(call, Kind::Member),
    ),
    spec("SMEMBERS", 2, Keys::One, Does::Read, "key", "all members", |call| {
        act(call, all(call, Kind::Member), |got| {
            Reply::Set(all_pairs(got).into_iter().map(|(member, _)| Reply::Bulk(member)).collect())
        })
    }),
    spec("SISMEMBER", 3, Keys::One, Does::Read, "key member", "whether it is a member", |call| {
        act(call, elements(call, Kind::Member, 2), is_there)
    }),
    spec("SMISMEMBER", -3, Keys::One, Does::Read, "key member [member ...]", "whether each is a member", |call| {
        act(call, elements(call, Kind::Member, 2), |got| {
            Reply::List(values(got).iter().map(|value| Reply::Int(value.is_some().into())).collect())
        })
    }),
    noted(
        spec("SSCAN", -3, Keys::One, Does::Read, "key cursor [MATCH pattern] [COUNT n]", "members in pages", |call| {
            pages::pages(call, Kind::Member, Also::Nothing, None)
        }),
        IN_PAGES,
    ),
    spec(
        "SRANDMEMBER",
        -2,
        Keys::One,
        Does::Read,
        "key [count]",
        "some members, each as likely; with a negative count each is drawn anew",
        |call| pages::drawn(call, Kind::Member, "", Reply::Bulk),
    ),
    noted(
        spec("SUNION", -2, Keys::All, Does::Read, "key [key ...]", "members of any of the sets", |call| {
            pages::join(call, Algebra::Union)
        }),
        ONE_BY_ONE,
    ),
    noted(
        spec("SINTER", -2, Keys::All, Does::Read, "key [key ...]", "members of all of the sets", |call| {
            pages::join(call, Algebra::Inter)
        }),
        ONE_BY_ONE,
    ),
    noted(
        spec(
            "SDIFF",
            -2,
            Keys::All,
            Does::Read,
            "key [key ...]",
            "members of the first set that no other has",
            |call| pages::join(call, Algebra::Diff),
        ),
        ONE_BY_ONE,
    ),
    noted(
        spec(
            "SINTERCARD",
            -3,
            Keys::Counted(1),
            Does::Read,
            "numkeys key [key ...] [LIMIT limit]",
            "how many members of all there are",
            pages::count_common,
        ),
        ONE_BY_ONE,
    ),
    spec("SCARD", 2, Keys::One, Does::Read, "key", "how many members", |call| {
        act(call, all(call, Kind::Member), how_many)
    }),
];
