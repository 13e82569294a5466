//! INFO: in Redis' own form, for clients and exporters that read it by name. What it says is true where it means something here;
//! other fields of Redis are there, too (`info_fields.rs`), as nobody looks whether they are.

use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use node::view::NodeState;

use super::info_fields::FIELDS;
use super::keyspace;
use super::*;

pub static INFO: Spec = Spec {
    name: "INFO",
    arity: -1,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "[section ...]",
    summary: "tells about this node",
    note: "all fields of Redis, 0 or -1 where they mean nothing; used_memory is what the process has in memory; keyspace may be 10 s old, and is left out if it cannot be counted in 0.5 s; avg_ttl and hits are not counted; a section coppice",
    run,
};

/// The Redis version whose commands those offered here follow. Clients choose by it.
pub const REDIS_VERSION: &str = "7.4.0";
const REDIS_VERSION_NUM: u32 = 0x0007_0400;

/// As scripts see it: as text, and with a byte for each part.
pub fn redis_version() -> (&'static str, u32) {
    (REDIS_VERSION, REDIS_VERSION_NUM)
}

type True = HashMap<&'static str, String>;

fn run(call: &mut Call<'_>) -> Act {
    let view = call.node.gate.view();
    let wanted: Vec<Vec<u8>> = (1..call.command.len()).map(|i| call.command.arg(i).to_ascii_lowercase()).collect();
    let all = wanted.is_empty() || wanted.iter().any(|w| matches!(&w[..], b"all" | b"default" | b"everything"));
    let mut text = String::new();
    let is_wanted = |name: &str| all || wanted.iter().any(|w| w == name.as_bytes());
    let truth = if FIELDS.iter().any(|(section, fields)| !fields.is_empty() && is_wanted(section)) {
        truth(call, &view)
    } else {
        True::new()
    };
    for (section, fields) in FIELDS.iter().filter(|(section, _)| is_wanted(section)) {
        let gap = if text.is_empty() { "" } else { "\r\n" };
        let title = section[..1].to_uppercase() + &section[1..];
        text += &format!("{gap}# {title}\r\n");
        for (name, value) in *fields {
            text += &format!("{name}:{}\r\n", truth.get(name).map_or(*value, |value| value));
        }
        if *section == "coppice" {
            coppice(call, &view, &mut text).expect("writing into a string does not fail");
        }
    }
    if !is_wanted("keyspace") {
        return Act::Now(Reply::Text(text));
    }
    // It is the last section.
    let (home, known) = (call.home(), Rc::clone(&call.node.keyspace));
    let others = view.specs.get(&*home).and_then(|spec| spec.databases()).into_iter().flat_map(|all| all.iter());
    let of =
        |(number, name): (u32, &str)| (number, ops::Space { name: name.into(), ..call.space() }, view.class_of(name));
    let databases: Vec<_> = std::iter::once((0, &*home)).chain(others).map(of).collect();
    let line = |number, keys: Option<keyspace::Keys>| keys.map_or_else(String::new, |keys| keys.line(number));
    let is_fresh = |(_, space, _): &(u32, ops::Space, Class)| known.fresh(&space.name).is_some();
    // In a transaction nothing is asked beside it.
    if call.client.multi.is_some() || databases.iter().all(is_fresh) {
        let lines: String = databases.iter().map(|(number, space, _)| line(*number, known.last(&space.name))).collect();
        return Act::Now(Reply::Text(text + &lines));
    }
    Call::later(async move {
        let counts = databases.into_iter().map(|(number, space, class)| {
            let known = Rc::clone(&known);
            async move {
                match known.fresh(&space.name) {
                    Some(keys) => line(number, keys),
                    None => line(number, known.count(space, class).await),
                }
            }
        });
        Reply::Text(text + &join_all(counts).await.concat())
    })
}

/// Fields that mean something here.
fn truth(call: &Call<'_>, view: &node::View) -> True {
    let mut truth = server(call, view);
    truth.extend(memory(view));
    let (gauges, totals) = (call.node.meter.gauges(), call.node.meter.totals());
    let gauge = |name: &str| gauges.get(name).copied().unwrap_or(0).to_string();
    let total = |name: &str| totals.get(name).copied().unwrap_or(0).to_string();
    let [user, sys] = cpu_seconds();
    let (followed, keys, prefixes) = call.node.changes.tracking.counts();
    truth.extend([
        ("connected_clients", call.node.meter.resp.connections().to_string()),
        ("maxclients", crate::resp::limits::CONNECTIONS_MAX.to_string()),
        ("blocked_clients", call.node.blocked.count().to_string()),
        ("tracking_clients", followed.to_string()),
        ("tracking_total_keys", keys.to_string()),
        ("tracking_total_items", keys.to_string()),
        ("tracking_total_prefixes", prefixes.to_string()),
        ("mem_clients_normal", gauge("resp.unread_bytes")),
        ("aof_enabled", u8::from(call.client.is_linear()).to_string()),
        ("total_connections_received", call.node.last_id.get().to_string()),
        ("total_commands_processed", total("resp.commands_total")),
        ("instantaneous_ops_per_sec", gauge("resp.commands")),
        ("rejected_connections", call.node.turned_away.get().to_string()),
        ("total_error_replies", total("resp.errors_total")),
        ("client_output_buffer_limit_disconnections", total("resp.unread_closed_total")),
        ("used_cpu_user", format!("{user:.6}")),
        ("used_cpu_sys", format!("{sys:.6}")),
    ]);
    truth
}

fn server(call: &Call<'_>, view: &node::View) -> True {
    let up = call.node.since.elapsed();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let local = call.client.local;
    True::from([
        ("redis_version", REDIS_VERSION.to_owned()),
        ("os", format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)),
        ("arch_bits", usize::BITS.to_string()),
        ("process_id", std::process::id().to_string()),
        ("master_replid", call.node.run_id.clone()),
        ("run_id", call.node.run_id.clone()),
        ("tcp_port", local.port().to_string()),
        ("server_time_usec", now.as_micros().to_string()),
        ("uptime_in_seconds", up.as_secs().to_string()),
        ("uptime_in_days", (up.as_secs() / 86_400).to_string()),
        ("listener0", format!("name=tcp,bind={},port={}", local.ip(), local.port())),
        ("coppice_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("node", view.me.clone()),
    ])
}

fn memory(view: &node::View) -> True {
    let resident = view.nodes.iter().find(|node| node.name == view.me).map_or(0, |node| node.resident_bytes);
    let peak = kib_of("/proc/self/status", "VmHWM:").max(resident);
    let system = kib_of("/proc/meminfo", "MemTotal:");
    let part = |of: u64| format!("{:.2}%", 100.0 * resident as f64 / of.max(1) as f64);
    True::from([
        ("used_memory", resident.to_string()),
        ("used_memory_human", human(resident)),
        ("used_memory_rss", resident.to_string()),
        ("used_memory_rss_human", human(resident)),
        ("used_memory_dataset", resident.to_string()),
        ("used_memory_dataset_perc", part(resident)),
        ("used_memory_peak", peak.to_string()),
        ("used_memory_peak_human", human(peak)),
        ("used_memory_peak_perc", part(peak)),
        ("total_system_memory", system.to_string()),
        ("total_system_memory_human", human(system)),
    ])
}

/// A line of a file of the kernel that counts KiB, in bytes; 0 if it cannot be read.
fn kib_of(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Processor time of this process, as user and in the kernel.
fn cpu_seconds() -> [f64; 2] {
    // Behind the program's name, which may hold anything; counted in hundredths (USER_HZ) on every Linux.
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = text.rsplit(')').next().unwrap_or_default();
    let field = |at: usize| behind.split_whitespace().nth(at).and_then(|ticks| ticks.parse::<f64>().ok());
    [field(11), field(12)].map(|ticks| ticks.unwrap_or(0.0) / 100.0)
}

/// As Redis writes bytes for people.
fn human(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes >> shift > 0);
    unit.map_or_else(
        || format!("{bytes}B"),
        |(shift, name)| format!("{:.2}{name}", bytes as f64 / (1u64 << shift) as f64),
    )
}

fn coppice(call: &Call<'_>, view: &node::View, text: &mut String) -> std::fmt::Result {
    let live = view.nodes.iter().filter(|node| node.state == NodeState::Live).count();
    let class = call.client.class().name();
    let namespace = call.client.known.as_ref().map_or("", |known| &*known.namespace);
    write!(
        text,
        "cluster:{}\r\nnodes:{}\r\nnodes_live:{live}\r\nnamespace:{namespace}\r\nclass:{class}\r\n",
        view.cluster,
        view.nodes.len()
    )?;
    let of_class = |name: &str| name.strip_prefix(class).is_some_and(|rest| rest.starts_with('.'));
    for (name, value) in view.figures.iter().filter(|(name, _)| of_class(name)) {
        write!(text, "{}:{value}\r\n", name.replace('.', "_"))?;
    }
    Ok(())
}
