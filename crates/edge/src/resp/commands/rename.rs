//! RENAME, which frameworks use to give a session a new id after login.

use state::session::{Action, Lease, Reply as Found, When};

use super::*;

pub static RENAME: Spec = Spec {
    name: "RENAME",
    arity: 3,
    keys: Keys::All,
    does: Does::Write,
    syntax: "key newkey",
    summary: "moves a value, with what is left of its lease, to another key",
    note: "not atomic: for a moment both are there; after an error they may both be",
    run: |call| {
        let (space, from, to) = (call.space(), call.command.key(1), call.command.key(2));
        Call::later(async move {
            let end = space.try_until(|| async {
                let no_such = || Ok(Some(Reply::error("ERR no such key")));
                let Some(seen) = space.see(from.clone()).await? else { return no_such() };
                if from == to {
                    return Ok(Some(Reply::OK));
                }
                let lease = Lease::For(seen.lease_left.max(base::Span::millis(1)));
                ops::done(space.ask(space.put_kind(to.clone(), (seen.value, seen.kind), lease, When::Always)).await)?;
                let remove = space.op(from.clone(), Action::RemoveIf { version: seen.version });
                match ops::done(space.ask(remove).await)? {
                    Found::Removed(true) => Ok(Some(Reply::OK)),
                    // Written in between: that goes along.
                    Found::NotStored { .. } => Ok(None),
                    // Removed in between, by a logout perhaps: then it must not live on under the new key.
                    Found::Removed(false) => {
                        ops::done(space.ask(space.op(to.clone(), Action::Remove)).await)?;
                        no_such()
                    }
                    other => ops::odd(&other),
                }
            });
            end.await
        })
    },
};
