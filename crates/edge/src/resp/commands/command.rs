//! COMMAND: the list, for clients that ask (redis-cli completes by it, cluster clients find keys by it).

use state::Class;

use super::*;

pub static COMMAND: Spec = Spec {
    name: "COMMAND",
    arity: -1,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "[COUNT | LIST | INFO [name ...] | DOCS [name ...] | GETKEYS command [arg ...]]",
    summary: "tells which commands there are",
    note: "",
    run,
};

fn run(call: &mut Call<'_>) -> Act {
    let command = call.command;
    let class = call.client.class();
    let find = |name: &[u8]| of_class(class, name);
    let all = all(class);
    let named = || (2..command.len()).map(|i| command.arg(i));
    let sub = command.arg(1).to_ascii_uppercase();
    Act::Now(match (&sub[..], command.len()) {
        (_, 1) | (b"INFO", 2) => Reply::List(all.into_iter().map(info).collect()),
        (b"COUNT", 2) => Reply::Int(all.len() as i64),
        (b"LIST", 2) => Reply::List(all.into_iter().map(lower).collect()),
        (b"INFO", _) => Reply::List(named().map(|name| find(name).map_or(Reply::Nil, info)).collect()),
        (b"DOCS", 2) => Reply::Map(all.into_iter().map(|spec| (lower(spec), docs(spec))).collect()),
        (b"DOCS", _) => Reply::Map(named().filter_map(find).map(|spec| (lower(spec), docs(spec))).collect()),
        (b"GETKEYS", 3..) => keys(command, find(command.arg(2))),
        _ => return unknown_subcommand(call, "COUNT, LIST, INFO, DOCS, GETKEYS"),
    })
}

/// Commands of the client's class.
fn all(class: Class) -> Vec<&'static Spec> {
    let of_connection = ALL.iter().copied().filter(|spec| spec.does.is_of_connection());
    of_connection.chain((offers::of(class).own)()).collect()
}

fn lower(spec: &Spec) -> Reply {
    Reply::text(spec.name.to_lowercase())
}

/// Of the command that is the third argument.
fn keys(command: &Command, spec: Option<&Spec>) -> Reply {
    let Some(spec) = spec else { return Reply::error("ERR Invalid command specified") };
    if spec.keys == Keys::None {
        return Reply::error("ERR The command has no key arguments");
    }
    if !spec.is_arity_right(command.len() - 2) {
        return Reply::error("ERR Invalid number of arguments specified for command");
    }
    let keys: Vec<Reply> = spec.key_positions(command, 2).map(|i| Reply::Bulk(command.value(i))).collect();
    if keys.is_empty() { Reply::error("ERR Invalid arguments specified for command") } else { Reply::List(keys) }
}

/// Name, arity, flags, first key, last key, step; then what newer versions add, empty.
fn info(spec: &Spec) -> Reply {
    let mut flags = match spec.does {
        Does::Connect => vec![Reply::Simple("fast"), Reply::Simple("no_auth")],
        Does::Ask => vec![Reply::Simple("fast")],
        Does::Listen => vec![Reply::Simple("pubsub")],
        Does::Read | Does::ReadAll => vec![Reply::Simple("readonly")],
        Does::Write | Does::WriteAll => vec![Reply::Simple("write"), Reply::Simple("denyoom")],
    };
    let (first, last, step) = spec.keys.range().unwrap_or_else(|| {
        // Clients take it as: ask COMMAND GETKEYS.
        flags.push(Reply::Simple("movablekeys"));
        (0, 0, 0)
    });
    let empty = || Reply::List(vec![]);
    Reply::List(vec![
        lower(spec),
        Reply::Int(spec.arity.into()),
        Reply::Set(flags),
        Reply::Int(first as i64),
        Reply::Int(last as i64),
        Reply::Int(step as i64),
        Reply::Set(vec![]),
        empty(),
        empty(),
        empty(),
    ])
}

fn docs(spec: &Spec) -> Reply {
    let group = match spec.does {
        Does::Listen => "pubsub",
        Does::Connect | Does::Ask => "connection",
        Does::Read | Does::Write => "string",
        Does::ReadAll | Does::WriteAll => "generic",
    };
    let summary = if spec.note.is_empty() { spec.summary.into() } else { format!("{} ({})", spec.summary, spec.note) };
    Reply::Map(vec![
        (Reply::word("summary"), Reply::text(summary)),
        (Reply::word("since"), Reply::word("0.1.0")),
        (Reply::word("group"), Reply::word(group)),
        (Reply::word("complexity"), Reply::word(if spec.does.is_about_all() { "O(N)" } else { "O(1) a key" })),
    ])
}
