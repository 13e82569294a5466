//! What clients and their tools ask beside values, what a client may read, and functions by name.

use std::time::{SystemTime, UNIX_EPOCH};

use base::Span;

use super::fcall::fcall;
use super::*;
use crate::resp::limits::STALE_DEFAULT;

pub const ALL: &[Spec] = &[
    noted(
        spec(
            "READONLY",
            -1,
            Keys::None,
            Does::Ask,
            "[max-age-ms]",
            "what this connection reads from now on may be so old, 1000 ms unless said",
            |call| {
                let bound = match call.command.len() {
                    1 => Some(STALE_DEFAULT),
                    2 => integer(call.command.arg(1)).and_then(|ms| u64::try_from(ms).ok()).map(Span::millis),
                    _ => return syntax_error(),
                };
                let Some(bound) = bound else { return Act::Now(not_an_integer()) };
                call.client.stale = Some(bound);
                Act::Now(Reply::OK)
            },
        ),
        "the node's own copy answers if it is not older; else the leader, as always. Inside of MULTI nothing is stale",
    ),
    spec("READWRITE", 1, Keys::None, Does::Ask, "", "what this connection reads is never stale again", |call| {
        call.client.stale = None;
        Act::Now(Reply::OK)
    }),
    noted(
        spec("CLUSTER", -2, Keys::None, Does::Ask, "INFO", "says that this is not Redis Cluster", |call| {
            match (&call.command.arg(1).to_ascii_uppercase()[..], call.command.len()) {
                (b"INFO", 2) => Act::Now(Reply::Text(CLUSTER_INFO.into())),
                (b"HELP", 2) => unknown_subcommand(call, "INFO"),
                _ => Act::Now(Reply::error(
                    "ERR This instance has cluster support disabled: every node serves every key, as a single Redis does",
                )),
            }
        }),
        "connect to any node as to a single Redis",
    ),
    noted(
        spec("OBJECT", -2, Keys::Second, Does::Read, "ENCODING | REFCOUNT | FREQ key", "how a value is kept", object),
        "FREQ is never kept, as in a Redis that evicts nothing; IDLETIME is not offered",
    ),
    noted(
        spec(
            "MEMORY",
            -2,
            Keys::Second,
            Does::Read,
            "USAGE key [SAMPLES count]",
            "bytes that a key and its value hold in memory, about",
            |call| {
                let command = call.command;
                let sound = is(command.arg(1), "USAGE")
                    && (command.len() == 3
                        || command.len() == 5 && is(command.arg(3), "SAMPLES") && integer(command.arg(4)).is_some());
                if sound {
                    steps(call, vec![Step::new(command.key(2), "size", Vec::new())], plain)
                } else {
                    unknown_subcommand(call, "USAGE key [SAMPLES count]")
                }
            },
        ),
        "all of a value is counted, whatever SAMPLES says",
    ),
    noted(
        spec("TIME", 1, Keys::None, Does::Ask, "", "seconds and microseconds since 1970", |_| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Act::Now(Reply::List(vec![
                Reply::text(now.as_secs().to_string()),
                Reply::text(now.subsec_micros().to_string()),
            ]))
        }),
        "this node's clock; keys end by the group's",
    ),
    spec("ROLE", 1, Keys::None, Does::Ask, "", "a master without replicas, as every node looks to a client", |_| {
        Act::Now(Reply::List(vec![Reply::word("master"), Reply::Int(0), Reply::List(Vec::new())]))
    }),
    noted(
        spec(
            "FCALL",
            -3,
            Keys::Counted(2),
            Does::WriteAll,
            "function numkeys [key ...] [arg ...]",
            "runs a function by name",
            fcall,
        ),
        "functions are built in (FUNCTION LIST LIBRARYNAME coppice) or of the service that the namespace declares, with one key each, or of a library, with any",
    ),
    noted(
        spec(
            "FCALL_RO",
            -3,
            Keys::Counted(2),
            Does::ReadAll,
            "function numkeys [key ...] [arg ...]",
            "FCALL, if it only reads",
            fcall,
        ),
        "functions are built in, with one key, or of a library",
    ),
];

const CLUSTER_INFO: &str = "cluster_enabled:0\r\ncluster_state:ok\r\ncluster_slots_assigned:0\r\ncluster_slots_ok:0\r\n\
    cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:0\r\n";

fn object(call: &mut Call<'_>) -> Act {
    let sub = call.command.arg(1).to_ascii_uppercase();
    let words = if &sub[..] == b"HELP" { 2 } else { 3 };
    if call.command.len() != words {
        return Act::Now(wrong_arity("OBJECT"));
    }
    let then: Then = match &sub[..] {
        b"ENCODING" => |got| match only(got) {
            Got::Bytes(kind) => match &kind[..] {
                b"none" => Reply::Nil,
                b"hash" | b"set" => Reply::word("hashtable"),
                b"list" => Reply::word("quicklist"),
                b"zset" => Reply::word("skiplist"),
                b"stream" => Reply::word("stream"),
                _ => Reply::word("raw"),
            },
            other => plain_one(other),
        },
        b"REFCOUNT" => |got| match only(got) {
            Got::Bytes(kind) if &kind[..] == b"none" => Reply::Nil,
            Got::Bytes(_) => Reply::Int(1),
            other => plain_one(other),
        },
        b"FREQ" => |got| match only(got) {
            Got::Bytes(kind) if &kind[..] == b"none" => Reply::Nil,
            Got::Bytes(_) => Reply::error(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between \
                 policies at runtime LRU and LFU data will take some time to adjust.",
            ),
            other => plain_one(other),
        },
        b"HELP" => return unknown_subcommand(call, "ENCODING, REFCOUNT, FREQ"),
        _ => {
            return Act::Now(Reply::error(
                "ERR OBJECT ENCODING, REFCOUNT and FREQ are offered; nothing tells when a key was used last",
            ));
        }
    };
    steps(call, vec![Step::new(call.command.key(2), "type", Vec::new())], then)
}
