//! One file per experiment, one line per experiment.

pub mod backup;
mod bodies;
mod burst;
pub mod cache;
mod cookie;
mod distill;
mod edge;
mod figure10;
pub mod figure11;
mod figure12;
mod figure13;
mod figure14;
mod figure4;
mod figures5to7;
pub mod growth;
mod http2;
mod kills;
pub mod linear;
pub mod mail;
mod mailkills;
mod memory;
mod moves;
mod nats;
mod ninja11;
mod ninja12;
mod ninja13;
mod ninja2;
mod ninja34;
mod objects;
mod onebrick;
mod overload;
pub mod petstore;
mod porcupine14;
mod priorities;
pub mod profiles;
pub mod redis;
mod sentinel;
mod session;
mod session1;
mod slowbrick;
mod sns7;
mod sns8;
mod snstable2;
mod snstrace;
pub mod soft;
pub mod softlong;
pub mod tempest;
mod upgrades;
mod websockets;

use crate::Plan;
use crate::report::Report;

pub type Run = fn(&Plan) -> Result<Report, String>;

/// Name, what it measures, how.
pub const ALL: [(&str, &str, Run); 46] = [
    (
        "session",
        "8 KiB values, write and read in turn, 10, 50, 200 connections, against Redis with two replicas and WAIT 1",
        session::run,
    ),
    ("edge", "HTTP proxying of 1 KiB answers, connections kept and not, against nginx and HAProxy", edge::run),
    ("bodies", "bodies of 1 GiB down and up, here and by another node, against nginx and HAProxy", bodies::run),
    ("http2", "HTTP/2 over TLS, 100 streams on each connection, against nginx and HAProxy", http2::run),
    ("websockets", "memory of a proxy for each idle WebSocket, against HAProxy and nginx", websockets::run),
    ("cookie", "sealing and verifying a cookie on one core, against the promised microsecond", cookie::run),
    ("kills", "the shop under load while nodes are killed: requests, failures, slowest", kills::run),
    ("figure4", "one brick of four killed and started again later: throughput, failures (SSM figure 4)", figure4::run),
    (
        "figure10",
        "a bit of the stack pointer of a live brick flipped, one of five: failures, until it is back (SSM figure 10)",
        figure10::run,
    ),
    (
        "figure11",
        "bits of values, keys and entries in the table of a live brick flipped: wrong answers (SSM figure 11)",
        figure11::run,
    ),
    (
        "figure12",
        "70 % of what one brick of five sends is lost: failures, until it is back (SSM figure 12)",
        figure12::run,
    ),
    (
        "figure13",
        "one brick of five sleeps before each request: until it is found by comparison (SSM figure 13)",
        figure13::run,
    ),
    (
        "figure14",
        "an application with sessions in its memory, on disk, in bricks: served, response, kills (SSM figure 14)",
        figure14::run,
    ),
    ("session1", "the session workload on one node without replication, against Redis alone", session1::run),
    (
        "linear",
        "puts, gets and a killed leader against etcd; one hot key, a start with a million keys, a thousand idle groups",
        linear::run,
    ),
    (
        "soft",
        "updates and reads of class `soft`, and messages to subscribers, against Redis with two replicas, and NATS",
        soft::run,
    ),
    (
        "tempest",
        "class `soft`: requests by number of clients beside Redis and PostgreSQL, stale answers of an overloaded node, pages of seven services (Tempest 4 to 8)",
        tempest::run,
    ),
    (
        "redis",
        "sorted sets, streams, scripts and pipelines on class `linear`, against a Redis that forces each write",
        redis::run,
    ),
    (
        "mail",
        "SMTP in and POP3 out on three nodes, against Postfix with Dovecot; a node killed, all killed (Porcupine)",
        mail::run,
    ),
    (
        "mailkills",
        "mail while a node is killed every five seconds: answered 250 and missing, doubled, back after its deletion",
        mailkills::run,
    ),
    (
        "porcupine14",
        "one of eight nodes killed and back: until all directories of owners are whole again (Porcupine figure 14)",
        porcupine14::run,
    ),
    (
        "cache",
        "hits of 10 KB at the edge, against Varnish and nginx proxy_cache; a purge by tag while a node hangs",
        cache::run,
    ),
    (
        "profiles",
        "changes of profiles, against PostgreSQL alone and with a standby; what a profile costs a request",
        profiles::run,
    ),
    (
        "distill",
        "pictures of 320x240 to half on one core, through edge and service, beside the bare function",
        distill::run,
    ),
    ("objects", "puts and gets of objects of 4.7 KB on the disks of two of three nodes", objects::run),
    ("nats", "puts with `durability = \"memory\"` against NATS KV with three replicas, and against disk", nats::run),
    ("moves", "what paced writers notice when logs are made short and when shards move as nodes leave", moves::run),
    (
        "backup",
        "a backup of a gigabyte, whole and of what changed, and a restore: time, and what clients notice",
        backup::run,
    ),
    ("memory", "resident memory of a stored session of 1 KiB, against Redis", memory::run),
    ("figures5to7", "load raised over time, with and without self-protection (SSM figures 5 to 7)", figures5to7::run),
    (
        "overload",
        "load from 0.5 to 3 times the peak, open loop: goodput, refusals (SSM figures 8 and 9)",
        overload::run,
    ),
    (
        "priorities",
        "five times what a service can do, in two priorities: who is served, who is refused, what comes after",
        priorities::run,
    ),
    (
        "slowbrick",
        "one brick of four is slow for a while: what users of the others see (SSM figure 13)",
        slowbrick::run,
    ),
    (
        "sentinel",
        "a node is killed under load, against Redis with Sentinel: failed requests, writes lost",
        sentinel::run,
    ),
    ("ninja2", "two partitions, one clone and two, as load rises: throughput, latency (Ninja figure 2)", ninja2::run),
    (
        "ninja34",
        "one value updated by 1 to 64 clients: two swaps, apply, weak apply (Ninja figures 3 and 4)",
        ninja34::run,
    ),
    ("ninja11", "a node with one of two clones is killed: takeover, recovery (Ninja figure 11)", ninja11::run),
    ("ninja12", "two partitions in overload, with priorities and without (Ninja figure 12)", ninja12::run),
    (
        "ninja13",
        "version 2 follows version 1 on three nodes: who answers, what is dropped (Ninja figure 13)",
        ninja13::run,
    ),
    ("sns7", "how long GIFs take to be made small, by their length (SNS figure 7)", sns7::run),
    ("sns8", "clones come as load rises, two are killed: queues, decisions (SNS figure 8)", sns8::run),
    (
        "upgrades",
        "20 versions of a service, then 20 upgrades of Coppice itself, under load: what fails, what is reset",
        upgrades::run,
    ),
    ("burst", "load jumps to 4 times what the clones can do: until new ones have absorbed it, flapping", burst::run),
    (
        "growth",
        "idle cost, cost of a change and of a request, by nodes, services, routes, namespaces, keys, connections, watchers",
        growth::run,
    ),
    (
        "snstrace",
        "a trace made up after the paper's: lengths, bursts, hit rates by cache and people (SNS figures 5, 6, 4.4)",
        snstrace::run,
    ),
    ("snstable2", "load rises until no clone is left to add: which number carries what (SNS table 2)", snstable2::run),
];

/// The parts of an experiment that has some; others have none.
pub fn parts(name: &str) -> &'static [&'static str] {
    match name {
        "backup" => &backup::PARTS,
        "linear" => &linear::PARTS,
        "cache" => &cache::PARTS,
        "mail" => &mail::PARTS,
        "profiles" => &profiles::PARTS,
        "redis" => &redis::PARTS,
        "soft" => &soft::PARTS,
        "tempest" => &tempest::PARTS,
        "figure11" => &figure11::PARTS,
        "growth" => &growth::PARTS,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_experiment_is_described_with_its_command() {
        let page = include_str!("../../../docs/performance.md");
        for (name, _, _) in super::ALL {
            let command = format!("`cargo run --release -p lab -- run {name}");
            let found = page.match_indices(&command).any(|(at, _)| page[at + command.len()..].starts_with([' ', '`']));
            assert!(found, "docs/performance.md does not say {command}`");
        }
    }
}
