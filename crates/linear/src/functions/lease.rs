//! Leases (locks that end): who holds one has a token that is higher than that of anybody who held it before. Whoever
//! is guarded by the lease refuses lower tokens, so a holder that was paused past its end does no harm.

use super::*;

pub const ALL: &[Function] = &[
    read("lease.holder", "", |space, key, args| {
        none(args)?;
        Ok(of(space, key)?.map_or(Reply::Nil, |(holder, token)| shown(&holder, token)))
    }),
    write("lease.claim", "holder MS", |space, key, args| {
        let (holder, ms) = two(args)?;
        let end = space.clock().saturating_add(unsigned(ms)?.max(1));
        match of(space, key)? {
            Some((held_by, _)) if held_by != *holder => Ok(Reply::Nil),
            Some((_, token)) => {
                space.set_end(key, end);
                Ok(Reply::Int(token as i64))
            }
            None => {
                let token = space.next_revision();
                space.set(key, Value::Lease { holder: holder.clone(), token }, end);
                Ok(Reply::Int(token as i64))
            }
        }
    }),
    write("lease.renew", "token MS", |space, key, args| {
        let (token, ms) = two(args)?;
        let (token, end) = (unsigned(token)?, space.clock().saturating_add(unsigned(ms)?.max(1)));
        let holds = of(space, key)?.is_some_and(|(_, held)| held == token);
        if holds {
            space.set_end(key, end);
        }
        Ok(flag(holds))
    }),
    write("lease.release", "token", |space, key, args| {
        let token = unsigned(one(args)?)?;
        let holds = of(space, key)?.is_some_and(|(_, held)| held == token);
        if holds {
            space.remove(key);
        }
        Ok(flag(holds))
    }),
];

fn of(space: &Space, key: &[u8]) -> std::result::Result<Option<(Bytes, u64)>, Wrong> {
    match space.get(key).map(|entry| &entry.value) {
        None => Ok(None),
        Some(Value::Lease { holder, token }) => Ok(Some((holder.clone(), *token))),
        Some(_) => Err(Wrong::Type),
    }
}

fn shown(holder: &Bytes, token: u64) -> Reply {
    Reply::List(vec![Reply::Bytes(holder.clone()), Reply::Int(token as i64)])
}
