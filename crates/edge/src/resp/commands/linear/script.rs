//! EVAL and its kin: what a client says becomes one step, which the leader of the keys' shard has run (`resp/scripts/`).

use std::collections::BTreeSet;
use std::sync::Arc;

use state::linear::functions::texts;

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
        "a script that was only said (EVAL) is kept from its first EVALSHA on, in the shard of its keys; \
         NOSCRIPT, if it was loaded nowhere and another node leads meanwhile",
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
            "LOAD script | EXISTS sha1 [sha1 ...] | FLUSH [ASYNC | SYNC] | KILL | WITHHELD | RELEASE sha1 [sha1 ...]",
            "scripts that are known by their digests",
            script,
        ),
        "loaded scripts are kept with the data, 10,000 of 16 MiB together (the oldest go) and 1 MiB each; KILL \
         finds none, as a script ends by itself; WITHHELD lists scripts that run no more where shards are led now, as a node ended \
         twice while they ran, and RELEASE lets them run again there",
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
    let (sha, text) = if by_sha {
        (Bytes::from(command.arg(1).to_ascii_lowercase()), None)
    } else {
        let text = command.value(1);
        (sha1hex(&text), Some(text))
    };
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
pub fn said(got: Vec<Got>) -> Reply {
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
    let view = call.node.gate.view();
    // Older programs know of no texts that are kept.
    let keeps = view.root.level >= texts::LEVEL;
    let ask = |what, keys, args| {
        let request = Request { what, reads_only: true, protocol, keys, args };
        Op::of(Arc::clone(&space.name), vec![request.step()])
    };
    let (sub, len) = (command.arg(1).to_ascii_uppercase(), command.len());
    match (&sub[..], len) {
        (b"LOAD", 3) => {
            let text = command.value(2);
            let sha = sha1hex(&text);
            // Any leader can tell whether it is a script, and keeps it.
            let op = ask(What::Load { text: text.clone() }, vec![sha.clone()], Vec::new());
            let named = view.namespaces.iter().find(|namespace| *namespace.name == *space.name);
            let is_one = named.is_some_and(|namespace| namespace.shards.len() == 1);
            let space = space.clone();
            Call::later(async move {
                let loaded = reply(space.ask_linear(op).await, said);
                if loaded.is_error() || is_one || !keeps {
                    return loaded;
                }
                let all = everywhere(&space, texts::KEEP, vec![sha, text]);
                match reply(space.ask_linear(all).await, |got| plain_one(only(got))) {
                    wrong if wrong.is_error() => wrong,
                    _ => loaded,
                }
            })
        }
        (b"EXISTS", 3..) => {
            let shas: Vec<Bytes> = (2..len).map(|at| command.value(at)).collect();
            let count = shas.len();
            let all =
                everywhere(&space, "scripts.known", shas.iter().map(|sha| sha.to_ascii_lowercase().into()).collect());
            // Who leads the only shard also knows what it was only shown.
            let op = ask(What::Exists, Vec::new(), shas);
            let space = space.clone();
            Call::later(async move {
                match reply(space.ask_linear(op).await, said) {
                    made @ Reply::Made(_) => made,
                    _ if keeps => known(space.ask_linear(all).await, count),
                    _ => Reply::List(vec![Reply::Int(0); count]),
                }
            })
        }
        (b"FLUSH", 2..=3) if len == 2 || is(command.arg(2), "ASYNC") || is(command.arg(2), "SYNC") => {
            let op = if keeps {
                everywhere(&space, "scripts.flush", Vec::new())
            } else {
                ask(What::Flush, Vec::new(), Vec::new())
            };
            let space = space.clone();
            Call::later(async move {
                match reply(space.ask_linear(op).await, |got| plain_one(only(got))) {
                    wrong if wrong.is_error() && keeps => wrong,
                    _ => Reply::OK,
                }
            })
        }
        (b"FLUSH", 3) => Act::Now(Reply::error("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
        (b"KILL", 2) => Act::Now(Reply::error("NOTBUSY No scripts in execution right now.")),
        (b"WITHHELD", 2) | (b"RELEASE", 3..) => {
            let shas = (2..len).map(|at| command.value(at)).collect();
            let what = if sub == b"RELEASE" { What::Release } else { What::Withheld };
            Act::Linear(Op { over: Over::Each, ..ask(what, Vec::new(), shas) }, of_leaders)
        }
        _ => unknown_subcommand(call, "LOAD, EXISTS, FLUSH, KILL, WITHHELD and RELEASE"),
    }
}

/// What those that lead the shards say of withheld scripts: their digests, or how many were released.
fn of_leaders(got: Vec<Got>) -> Reply {
    let each = match only(got) {
        Got::List(each) => each,
        one => vec![one],
    };
    let (mut withheld, mut released) = (BTreeSet::new(), None);
    for said in each {
        let Got::Bytes(said) = &said else { return plain_one(said) };
        let said = String::from_utf8_lossy(said);
        match said.as_bytes().first() {
            Some(b':') => released = released.max(said[1..].trim_end().parse::<i64>().ok()),
            Some(b'*') => {
                withheld.extend(said.lines().skip(1).filter(|line| !line.starts_with('$')).map(str::to_owned))
            }
            _ => return Reply::Error(said.trim_start_matches('-').trim_end().to_owned()),
        }
    }
    match released {
        Some(released) => Reply::Int(released),
        None => Reply::List(withheld.into_iter().map(Reply::text).collect()),
    }
}

/// Something of all shards.
pub fn everywhere(space: &ops::Space, function: &'static str, args: Vec<Bytes>) -> Op {
    let step = Step::new(Bytes::new(), function, args);
    Op { over: Over::Each, ..Op::of(Arc::clone(&space.name), vec![step]) }
}

/// Digests that all shards know: each has said it of all of them.
fn known(outcome: Outcome<Ran>, count: usize) -> Reply {
    let Outcome::Done(Ran::Done(got)) = outcome else { return reply(outcome, |got| plain_one(only(got))) };
    let Got::List(of_all) = only(got) else { return Reply::error("ERR shards have not said which scripts they know") };
    let is_known = |at: usize| of_all.iter().skip(at).step_by(count).all(|one| *one == Got::Int(1));
    Reply::List((0..count).map(|at| Reply::Int(is_known(at).into())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaders_of_several_shards_say_of_withheld_scripts_is_one_answer() {
        let said = |text: &str| Got::Bytes(Bytes::copy_from_slice(text.as_bytes()));
        let list = |text: &[&str]| Reply::List(text.iter().map(|text| Reply::text(*text)).collect());
        let (one, two) = (said("*1\r\n$2\r\naa\r\n"), said("*2\r\n$2\r\naa\r\n$2\r\nbb\r\n"));
        assert_eq!(of_leaders(vec![two.clone()]), list(&["aa", "bb"]));
        assert_eq!(of_leaders(vec![Got::List(vec![one, two])]), list(&["aa", "bb"]));
        assert_eq!(of_leaders(vec![said("*0\r\n")]), list(&[]));
        assert_eq!(of_leaders(vec![Got::List(vec![said(":0\r\n"), said(":1\r\n")])]), Reply::Int(1));
        // An older program leads one of them.
        let wrong = "ERR this is no script";
        assert_eq!(
            of_leaders(vec![Got::List(vec![said(":0\r\n"), said(&format!("-{wrong}\r\n"))])]),
            Reply::error(wrong)
        );
    }
}
