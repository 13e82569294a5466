//! ONCE: a write with an id, so that it happens once although its client asks several times, at whatever node.

use super::*;

pub const ALL: &[Spec] = &[noted(
    spec(
        "ONCE",
        -3,
        Keys::Wrapped(2),
        Does::WriteAll,
        "id command [arg ...]",
        "runs a write once: asked again with the same id, at any node, it gets the first answer",
        once,
    ),
    "not in Redis; the id is a UUID of version 7, known for 5 minutes; goes with EXEC, too",
)];

fn once(call: &mut Call<'_>) -> Act {
    let id = match state::linear::once::parse(&String::from_utf8_lossy(call.command.arg(1))) {
        Ok(id) => id,
        Err(why) => return in_multi(call, Act::Now(Reply::Error(format!("ERR {why}")))),
    };
    let command = call.command.without(2);
    let name = String::from_utf8_lossy(command.arg(0)).to_uppercase();
    let Some(spec) = find(command.arg(0)) else {
        return in_multi(call, Act::Now(not_offered(Class::Linear, &command)));
    };
    if !spec.is_arity_right(command.len()) {
        return in_multi(call, Act::Now(arity_error(spec)));
    }
    let ends_multi = spec.name == "EXEC";
    if call.client.multi.is_some() && !ends_multi {
        let why = "ERR inside MULTI the id goes with EXEC: ONCE id EXEC";
        return in_multi(call, Act::Now(Reply::error(why)));
    }
    // Most writes are one operation; FCALL may be of a service, which takes the id itself.
    let is_script = matches!(spec.name, "EVAL" | "EVALSHA");
    let takes = spec.does == Does::Write || ends_multi || is_script || spec.name == "FCALL";
    let refused = || Act::Now(Reply::Error(format!("ERR ONCE does not go with '{name}'")));
    if !takes {
        return refused();
    }
    let said = differs(&command).then(|| command.said(0));
    let act = (spec.run)(&mut Call { command: &command, client: call.client, node: call.node, once: Some(id) });
    match act {
        Act::Linear(op, then) => Act::Linear(Op { once: Some(id), said, ..op }, then),
        Act::Later(later) if ends_multi || spec.name == "FCALL" => Act::Later(later),
        Act::Now(reply) => Act::Now(reply),
        // Several operations: each would need an id of its own.
        Act::Later(_) | Act::Op(..) | Act::Cache(..) | Act::Soft(..) | Act::Block(_) | Act::Close(_) => refused(),
    }
}

/// Does more come into its steps than what was said: a number that is drawn, the time of day, a script's text? Said again it would not be known by
/// its steps.
fn differs(command: &Command) -> bool {
    let is_any = |arg: &[u8], words: &[&str]| words.iter().any(|word| is(arg, word));
    const DIFFER: &[&str] = &[
        "SPOP",
        "EXPIREAT",
        "PEXPIREAT",
        "EVAL",
        "EVALSHA",
        "XADD",
        "XREADGROUP",
        "XCLAIM",
        "XAUTOCLAIM",
        "XGROUP",
        "RESTORE",
    ];
    is_any(command.arg(0), DIFFER) || command.args().any(|arg| is_any(arg, &["EXAT", "PXAT"]))
}

/// An error inside of MULTI spoils the transaction, as any other command's does.
fn in_multi(call: &mut Call<'_>, act: Act) -> Act {
    if let Some(multi) = &mut call.client.multi {
        multi.spoil();
    }
    act
}
