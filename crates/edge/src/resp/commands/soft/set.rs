//! Sets.

use super::*;

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
    spec("SCARD", 2, Keys::One, Does::Read, "key", "how many members", |call| {
        act(call, all(call, Kind::Member), how_many)
    }),
];
