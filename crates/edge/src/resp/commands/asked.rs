//! What monitors and libraries ask of a Redis beside its values: how many copies a write has, what took long, who one is, what is
//! loaded. The answers are what these mean here.

use std::time::Duration;

use node::view::NodeState;

use super::*;
use crate::resp::slow::Slow;

pub static WAIT: Spec = noted(
    spec(
        "WAIT",
        3,
        Keys::None,
        Does::Ask,
        "numreplicas timeout",
        "on how many other nodes each acknowledged write is",
        wait,
    ),
    "answers at once: what is acknowledged is there already; 0 in class cache",
);

pub static WAITAOF: Spec = noted(
    spec(
        "WAITAOF",
        4,
        Keys::None,
        Does::Ask,
        "numlocal numreplicas timeout",
        "the same, on disks: of this node, and of how many others",
        wait_aof,
    ),
    "answers at once; the first number is 0: which nodes a write is on is not told, how many is; 0 0 where nothing is on disk",
);

pub static SLOWLOG: Spec = noted(
    spec(
        "SLOWLOG",
        -2,
        Keys::None,
        Does::Ask,
        "GET | LEN | RESET | HELP [count]",
        "commands of this namespace that took 10 ms or more at this node",
        slowlog,
    ),
    "from the last command's byte to the answer, so with the work of other nodes; the command's name without its arguments",
);

pub static LATENCY: Spec = noted(
    spec(
        "LATENCY",
        -2,
        Keys::None,
        Does::Ask,
        "LATEST | HISTORY | RESET | DOCTOR | HELP [event]",
        "the same as times: the event command",
        latency,
    ),
    "HISTOGRAM and GRAPH are not offered: /metrics has histograms",
);

pub static MODULE: Spec = noted(
    spec("MODULE", -2, Keys::None, Does::Ask, "LIST | HELP", "there are no modules", module),
    "LOAD is not offered",
);

pub static ACL: Spec = noted(
    spec(
        "ACL",
        -2,
        Keys::None,
        Does::Ask,
        "WHOAMI | LIST | USERS | HELP",
        "who this connection is: its namespace",
        acl,
    ),
    "a namespace is a user, and may do all in it; nobody sees others",
);

fn wait(call: &mut Call<'_>) -> Act {
    match (counted(call, 1), counted(call, 2)) {
        (Ok(_), Ok(_)) => Act::Now(Reply::Int(copies(call).elsewhere)),
        (Err(error), _) | (_, Err(error)) => Act::Now(error),
    }
}

fn wait_aof(call: &mut Call<'_>) -> Act {
    let args = [counted(call, 1), counted(call, 2), counted(call, 3)];
    if let Some(error) = args.into_iter().find_map(Result::err) {
        return Act::Now(error);
    }
    let copies = copies(call);
    let elsewhere = if copies.is_on_disk { copies.elsewhere } else { 0 };
    Act::Now(Reply::List(vec![Reply::Int(0), Reply::Int(elsewhere)]))
}

fn counted(call: &Call<'_>, at: usize) -> Result<i64, Reply> {
    let number = integer(call.command.arg(at)).ok_or_else(not_an_integer)?;
    if number < 0 { Err(Reply::error("ERR value is out of range, must be positive")) } else { Ok(number) }
}

struct Copies {
    /// Nodes beside one that have each acknowledged write.
    elsewhere: i64,
    is_on_disk: bool,
}

/// What the class promises of an acknowledged write.
fn copies(call: &Call<'_>) -> Copies {
    let (space, view, class) = (call.space(), call.node.gate.view(), call.client.class());
    let others = view.nodes.iter().filter(|node| node.state == NodeState::Live).count().saturating_sub(1);
    let declared = view.namespaces.iter().find(|namespace| *namespace.name == *space.name);
    let elsewhere = match class {
        // A majority has it. The smallest group counts.
        Class::Linear => {
            let groups = declared.map(|namespace| namespace.shards.iter().map(|shard| shard.members.len() / 2));
            groups.and_then(Iterator::min).unwrap_or(0)
        }
        Class::Session | Class::Soft | Class::Object | Class::Sql => others.min(1),
        _ => 0,
    };
    let is_in_memory = declared.is_some_and(|namespace| namespace.durability.as_deref() == Some("memory"));
    Copies { elsewhere: elsewhere as i64, is_on_disk: class == Class::Linear && !is_in_memory }
}

/// The log of this client's namespace, the latest first.
fn slow(call: &Call<'_>) -> Vec<Slow> {
    call.node.slow.borrow().of(&call.home()).cloned().collect()
}

fn slowlog(call: &mut Call<'_>) -> Act {
    let sub = call.command.arg(1).to_ascii_uppercase();
    Act::Now(match (&sub[..], call.command.len()) {
        (b"GET", 2 | 3) => {
            let count = if call.command.len() == 2 { Some(10) } else { integer(call.command.arg(2)) };
            match count {
                // -1 is all of them.
                Some(count) if count >= -1 => {
                    let count = usize::try_from(count).unwrap_or(usize::MAX);
                    Reply::List(slow(call).into_iter().take(count).map(entry).collect())
                }
                Some(_) => Reply::error("ERR count should be greater than or equal to -1"),
                None => not_an_integer(),
            }
        }
        (b"LEN", 2) => Reply::Int(slow(call).len() as i64),
        (b"RESET", 2) => {
            call.node.slow.borrow_mut().forget(&call.home());
            Reply::OK
        }
        (b"HELP", 2) => help("SLOWLOG", &["GET [<count>]", "LEN", "RESET"]),
        _ => return unknown_subcommand(call, "GET [count], LEN, RESET"),
    })
}

fn entry(slow: Slow) -> Reply {
    Reply::List(vec![
        Reply::Int(slow.id as i64),
        Reply::Int(slow.at as i64),
        Reply::Int(slow.took.as_micros() as i64),
        Reply::List(vec![Reply::word(slow.command)]),
        Reply::text(slow.client.to_string()),
        Reply::text(slow.client_name),
    ])
}

fn latency(call: &mut Call<'_>) -> Act {
    let sub = call.command.arg(1).to_ascii_uppercase();
    let is_asked = call.command.len() == 2 || (2..call.command.len()).any(|at| is(call.command.arg(at), "command"));
    let all = slow(call);
    let point = |slow: &Slow| [Reply::Int(slow.at as i64), Reply::Int(millis(slow.took))];
    Act::Now(match (&sub[..], call.command.len()) {
        (b"LATEST", 2) => {
            let worst = all.iter().map(|slow| millis(slow.took)).max().unwrap_or(0);
            let event = |latest: &Slow| {
                let [at, took] = point(latest);
                Reply::List(vec![Reply::word("command"), at, took, Reply::Int(worst)])
            };
            Reply::List(all.first().map(event).into_iter().collect())
        }
        (b"HISTORY", 3) if is_asked => {
            Reply::List(all.iter().rev().map(|slow| Reply::List(point(slow).into())).collect())
        }
        (b"HISTORY", 3) => Reply::List(vec![]),
        (b"RESET", _) => {
            let any = is_asked && !all.is_empty();
            if any {
                call.node.slow.borrow_mut().forget(&call.home());
            }
            Reply::Int(i64::from(any))
        }
        (b"DOCTOR", 2) => Reply::Text(match all.first() {
            None => "No command of this namespace took 10 ms or more at this node.\n".to_owned(),
            Some(slow) => format!(
                "{} commands took 10 ms or more, the last one {} with {} ms. `coppice status` and the monitor tell what the \
                 nodes are busy with.\n",
                all.len(),
                slow.command,
                millis(slow.took)
            ),
        }),
        (b"HELP", 2) => help("LATENCY", &["LATEST", "HISTORY <event>", "RESET [<event> ...]", "DOCTOR"]),
        _ => return unknown_subcommand(call, "LATEST, HISTORY event, RESET [event ...], DOCTOR"),
    })
}

fn millis(took: Duration) -> i64 {
    took.as_millis() as i64
}

fn module(call: &mut Call<'_>) -> Act {
    let sub = call.command.arg(1).to_ascii_uppercase();
    Act::Now(match (&sub[..], call.command.len()) {
        (b"LIST", 2) => Reply::List(vec![]),
        (b"HELP", 2) => help("MODULE", &["LIST"]),
        _ => return unknown_subcommand(call, "LIST: there are no modules; services and their functions are deployed"),
    })
}

fn acl(call: &mut Call<'_>) -> Act {
    let sub = call.command.arg(1).to_ascii_uppercase();
    let name = call.home();
    Act::Now(match (&sub[..], call.command.len()) {
        (b"WHOAMI", 2) => Reply::text(name.to_string()),
        (b"USERS", 2) => Reply::List(vec![Reply::text(name.to_string())]),
        (b"LIST", 2) => Reply::List(vec![Reply::text(format!("user {name} on ~* &* +@all"))]),
        (b"HELP", 2) => help("ACL", &["WHOAMI", "LIST", "USERS"]),
        _ => return unknown_subcommand(call, "WHOAMI, LIST, USERS: `coppice ns token` tells a namespace's token"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::slow::SlowLog;

    #[test]
    fn what_took_long_is_told_as_redis_tells_it() {
        let slow = Slow {
            id: 7,
            at: 1_700_000_000,
            took: Duration::from_micros(12_345),
            command: "EVAL",
            namespace: "jobs".into(),
            client: "127.0.0.1:9".parse().unwrap(),
            client_name: "worker".into(),
        };
        assert_eq!(
            entry(slow),
            Reply::List(vec![
                Reply::Int(7),
                Reply::Int(1_700_000_000),
                Reply::Int(12_345),
                Reply::List(vec![Reply::word("EVAL")]),
                Reply::text("127.0.0.1:9"),
                Reply::text("worker"),
            ])
        );
        assert!(SlowLog::wants(Duration::from_millis(10)));
    }
}
