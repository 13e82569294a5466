//! EVAL and its kin: what a client says becomes one step, which the leader of the keys' shard has run (`resp/scripts/`).

use std::rc::Rc;
use std::sync::Arc;

use super::*;
use crate::resp::scripts::request::{Request, What};
use crate::resp::scripts::texts::sha1hex;

const ATOMIC: &str = "all that it writes is one entry, or nothing; its keys, declared or not, are in one shard";

pub const ALL: &[Spec] = &[
    noted(
        spec(
            "EVAL",
            -3,
            Keys::Counted(2),
            Does::WriteAll,
            "script numkeys [key ...] [arg ...]",
            "runs a Lua script",
            eval,
        ),
        ATOMIC,
    ),
    noted(
        spec(
            "EVALSHA",
            -3,
            Keys::Counted(2),
            Does::WriteAll,
            "sha1 numkeys [key ...] [arg ...]",
            "runs a script that was loaded or run before",
            eval,
        ),
        "NOSCRIPT, if neither this node nor the one that leads the shard has heard it since it started",
    ),
    spec(
        "EVAL_RO",
        -3,
        Keys::Counted(2),
        Does::ReadAll,
        "script numkeys [key ...] [arg ...]",
        "EVAL of a script that only reads",
        eval,
    ),
    spec(
        "EVALSHA_RO",
        -3,
        Keys::Counted(2),
        Does::ReadAll,
        "sha1 numkeys [key ...] [arg ...]",
        "EVALSHA of a script that only reads",
        eval,
    ),
    noted(
        spec(
            "SCRIPT",
            -2,
            Keys::None,
            Does::ReadAll,
            "LOAD script | EXISTS sha1 [sha1 ...] | FLUSH [ASYNC | SYNC] | KILL",
            "scripts that are known by their digests",
            script,
        ),
        "a script is known to this node and to the one that leads the shard; KILL finds none, as a script ends by itself",
    ),
];

fn eval(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let count = match integer(command.arg(2)) {
        None => return Act::Now(not_an_integer()),
        Some(..0) => return Act::Now(Reply::error("ERR Number of keys can't be negative")),
        Some(count) => usize::try_from(count).ok().filter(|count| *count <= command.len() - 3),
    };
    let Some(count) = count else {
        return Act::Now(Reply::error("ERR Number of keys can't be greater than number of args"));
    };
    let space = call.space().name;
    let by_sha = is(command.arg(0), "EVALSHA") || is(command.arg(0), "EVALSHA_RO");
    let mut scripts = call.node.scripts.borrow_mut();
    let (sha, text) = if by_sha {
        let sha = Bytes::from(command.arg(1).to_ascii_lowercase());
        let text = scripts.get(&space, &sha);
        (sha, text)
    } else {
        let text = command.value(1);
        (scripts.keep(&space, &text), Some(text))
    };
    drop(scripts);
    let request = Request {
        what: What::Run { sha, text },
        reads_only: command.arg(0).to_ascii_uppercase().ends_with(b"_RO"),
        protocol: call.client.protocol,
        keys: (3..3 + count).map(|at| command.key(at)).collect(),
        args: (3 + count..command.len()).map(|at| command.value(at)).collect(),
    };
    Act::Linear(Op::of(space, vec![request.step()]), said)
}

/// What was said where the script was run.
fn said(got: Vec<Got>) -> Reply {
    match only(got) {
        Got::Bytes(said) => match said.strip_prefix(b"-") {
            Some(why) => Reply::Error(String::from_utf8_lossy(why).trim_end().to_owned()),
            None => Reply::Made(said),
        },
        other => plain_one(other),
    }
}

fn script(call: &mut Call<'_>) -> Act {
    let (command, space) = (call.command, call.space());
    let protocol = call.client.protocol;
    let ask = |what, args| {
        let request = Request { what, reads_only: true, protocol, keys: Vec::new(), args };
        Op::of(Arc::clone(&space.name), vec![request.step()])
    };
    let mut scripts = call.node.scripts.borrow_mut();
    let (sub, len) = (command.arg(1).to_ascii_uppercase(), command.len());
    match (&sub[..], len) {
        (b"LOAD", 3) => {
            let text = command.value(2);
            let sha = sha1hex(&text);
            let op = ask(What::Load { text: text.clone() }, Vec::new());
            let node = Rc::clone(&call.node.scripts);
            drop(scripts);
            let space = space.clone();
            Call::later(async move {
                let outcome = space.ask_linear(op).await;
                // Of several shards each leader hears it with the first EVALSHA of this node.
                let is_refused = matches!(outcome, Outcome::Refused(_));
                let reply = if is_refused { Reply::Bulk(sha) } else { reply(outcome, said) };
                if !reply.is_error() {
                    node.borrow_mut().keep(&space.name, &text);
                }
                reply
            })
        }
        (b"EXISTS", 3..) => {
            let shas: Vec<Bytes> = (2..len).map(|at| command.value(at)).collect();
            let here: Vec<bool> = shas.iter().map(|sha| scripts.get(&space.name, sha).is_some()).collect();
            let op = ask(What::Exists, shas);
            let space = space.clone();
            Call::later(async move {
                let there = match reply(space.ask_linear(op).await, said) {
                    Reply::Made(made) => made,
                    _ => Bytes::new(),
                };
                let mut there = there.split(|byte| *byte == b'\n').skip(1).map(|line| line.starts_with(b":1"));
                let known = here.into_iter().map(|here| here | there.next().unwrap_or(false));
                Reply::List(known.map(|is| Reply::Int(is.into())).collect())
            })
        }
        (b"FLUSH", 2..=3) if len == 2 || is(command.arg(2), "ASYNC") || is(command.arg(2), "SYNC") => {
            scripts.forget(&space.name);
            let op = ask(What::Flush, Vec::new());
            let space = space.clone();
            Call::later(async move {
                match space.ask_linear(op).await {
                    Outcome::Refused(_) => Reply::OK,
                    outcome => reply(outcome, said),
                }
            })
        }
        (b"FLUSH", 3) => Act::Now(Reply::error("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
        (b"KILL", 2) => Act::Now(Reply::error("NOTBUSY No scripts in execution right now.")),
        _ => {
            drop(scripts);
            unknown_subcommand(call, "LOAD, EXISTS, FLUSH and KILL")
        }
    }
}
