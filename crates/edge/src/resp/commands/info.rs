//! INFO: in Redis' own form, for clients and exporters that read it. What it says is true; figures that would need
//! Redis' inner workings are left out.

use std::fmt::Write;

use node::view::NodeState;

use super::*;

pub static INFO: Spec = Spec {
    name: "INFO",
    arity: -1,
    keys: Keys::None,
    does: Does::Ask,
    syntax: "[section ...]",
    summary: "tells about this node",
    note: "sections server, clients, memory, stats, replication, cluster, coppice",
    run,
};

/// The Redis version whose commands those offered here follow. Clients choose by it.
pub const REDIS_VERSION: &str = "7.2.0";

type Section = (&'static str, fn(&Call<'_>, &node::View, &mut String) -> std::fmt::Result);

static SECTIONS: &[Section] = &[
    ("server", server),
    ("clients", clients),
    ("memory", memory),
    ("stats", stats),
    ("replication", replication),
    ("cluster", |_, _, text| text.write_str("cluster_enabled:0\r\n")),
    ("coppice", coppice),
];

fn run(call: &mut Call<'_>) -> Act {
    let view = call.node.gate.view();
    let wanted: Vec<Vec<u8>> = (1..call.command.len()).map(|i| call.command.arg(i).to_ascii_lowercase()).collect();
    let all = wanted.is_empty() || wanted.iter().any(|w| matches!(&w[..], b"all" | b"default" | b"everything"));
    let mut text = String::new();
    for (name, write) in SECTIONS {
        if all || wanted.iter().any(|w| w == name.as_bytes()) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            let title = name[..1].to_uppercase() + &name[1..];
            text += &format!("{gap}# {title}\r\n");
            write(call, &view, &mut text).expect("writing into a string does not fail");
        }
    }
    Act::Now(Reply::Text(text))
}

fn server(call: &Call<'_>, view: &node::View, text: &mut String) -> std::fmt::Result {
    write!(text, "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:coppice\r\n")?;
    write!(text, "coppice_version:{}\r\nprocess_id:{}\r\n", env!("CARGO_PKG_VERSION"), std::process::id())?;
    write!(
        text,
        "tcp_port:{}\r\nuptime_in_seconds:{}\r\n",
        call.client.local.port(),
        call.node.since.elapsed().as_secs()
    )?;
    write!(text, "node:{}\r\n", view.me)
}

fn clients(call: &Call<'_>, _: &node::View, text: &mut String) -> std::fmt::Result {
    write!(
        text,
        "connected_clients:{}\r\nmaxclients:{}\r\nblocked_clients:{}\r\n",
        call.node.meter.resp.connections(),
        crate::resp::limits::CONNECTIONS_MAX,
        call.node.blocked.count()
    )
}

fn memory(_: &Call<'_>, view: &node::View, text: &mut String) -> std::fmt::Result {
    let resident = view.nodes.iter().find(|node| node.name == view.me).map_or(0, |node| node.resident_bytes);
    write!(text, "used_memory_rss:{resident}\r\nmaxmemory_policy:noeviction\r\n")
}

fn stats(call: &Call<'_>, _: &node::View, text: &mut String) -> std::fmt::Result {
    let totals = call.node.meter.totals();
    let total = |name: &str| totals.get(name).copied().unwrap_or(0);
    write!(text, "total_commands_processed:{}\r\n", total("resp.commands_total"))?;
    write!(text, "total_error_replies:{}\r\n", total("resp.errors_total"))
}

fn replication(_: &Call<'_>, _: &node::View, text: &mut String) -> std::fmt::Result {
    // Every node takes reads and writes; to a client it looks like a master without replicas.
    text.write_str("role:master\r\nconnected_slaves:0\r\n")
}

fn coppice(call: &Call<'_>, view: &node::View, text: &mut String) -> std::fmt::Result {
    let live = view.nodes.iter().filter(|node| node.state == NodeState::Live).count();
    let class = if call.client.is_linear() { "linear" } else { "session" };
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
