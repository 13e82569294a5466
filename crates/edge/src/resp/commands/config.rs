//! CONFIG: settings of Redis that clients look for. Only one may be set, and it already says all that it can.

use super::*;

/// Of classes linear and soft.
pub const ALL: &[Spec] = &[Spec {
    name: "CONFIG",
    arity: -2,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "GET pattern [pattern ...] | SET notify-keyspace-events flags | RESETSTAT",
    summary: "settings that clients look for",
    note: "the cluster is configured by `coppice apply`. Changes of keys are always told to who listens to them: any flags of Redis \
           are taken for notify-keyspace-events, and it stays AKE. RESETSTAT changes nothing: figures only rise",
    run: |call| match call.command.arg(1) {
        sub if is(sub, "GET") && call.command.len() >= 3 => get(call),
        sub if is(sub, "SET") && call.command.len() == 4 => Act::Now(set(call)),
        sub if is(sub, "RESETSTAT") && call.command.len() == 2 => Act::Now(Reply::OK),
        sub if is(sub, "HELP") => unknown_subcommand(call, "GET, SET, RESETSTAT"),
        _ => Act::Now(Reply::error(
            "ERR CONFIG GET and SET notify-keyspace-events are offered: the cluster is configured by `coppice apply`",
        )),
    },
}];

/// Settings that mean something here, as they are here.
const SETTINGS: &[(&str, &str)] = &[
    ("cluster-enabled", "no"),
    ("databases", "1"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    (EVENTS, "AKE"),
    ("proto-max-bulk-len", "16777216"),
    ("save", ""),
    ("tcp-keepalive", "300"),
    ("timeout", "0"),
];

/// Those of class `linear`, whose log is forced.
const OF_LINEAR: &[(&str, &str)] = &[("appendfsync", "always"), ("appendonly", "yes")];

const EVENTS: &str = "notify-keyspace-events";
/// Its flags in Redis.
const EVENT_FLAGS: &[u8] = b"AKEg$lszhxetmdn";

fn get(call: &Call<'_>) -> Act {
    let command = call.command;
    if (2..command.len()).any(|i| command.arg(i).len() > crate::resp::limits::PATTERN_BYTES_MAX) {
        return syntax_error();
    }
    let wanted = |name: &str| (2..command.len()).any(|i| fits(&command.arg(i).to_ascii_lowercase(), name.as_bytes()));
    let of_class = if call.client.is_linear() { OF_LINEAR } else { &[] };
    let found = of_class.iter().chain(SETTINGS).filter(|(name, _)| wanted(name));
    Act::Now(Reply::Map(found.map(|(name, value)| (Reply::word(name), Reply::word(value))).collect()))
}

fn set(call: &Call<'_>) -> Reply {
    let (name, value) = (call.command.arg(2), call.command.arg(3));
    if !is(name, EVENTS) {
        let name = String::from_utf8_lossy(&name[..name.len().min(64)]);
        return Reply::Error(format!(
            "ERR CONFIG SET {name} is not offered, only {EVENTS}: the cluster is configured by `coppice apply`"
        ));
    }
    if !value.iter().all(|flag| EVENT_FLAGS.contains(flag)) {
        return Reply::error(
            "ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid event class \
             character. Use 'Ag$lszhxeKEtmdn'.",
        );
    }
    Reply::OK
}
