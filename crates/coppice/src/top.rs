//! `coppice top`: the cluster in the terminal, drawn anew each second. Every figure is the node's own view, as `status` has it.

use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use base::text::span_from_text;
use node::view::{CloneState, CloneView, NodeState, NodeView, ServiceView, View};

use crate::operate::NodeArgs;
use crate::plain::{lines, plain};
use crate::status::{ago, millis};

/// Rows of a terminal that does not say how many it has.
const ROWS: usize = 24;
/// Between two pages, at least.
const EVERY_MIN: Duration = Duration::from_millis(100);
/// Events that are shown at least, if there are so many and as far as the terminal has rows.
const EVENTS_MIN: usize = 3;

pub const MORE: &str = "\
Examples:
  coppice top
  coppice top --every 5s
  coppice top --count 1              one page, for a file or a mail

Ctrl-C ends it. HTTP/s and what follows are of each node's door in the last second; REQ/s of a service is what all doors saw of
its clones in the last 5 to 10 s, CPU and MEMORY what its clones use. A slow clone is one that takes twice what the
others take, or answers none of several requests. Without a terminal, pages follow each other with an empty line between them.";

#[derive(Clone, Debug, clap::Args)]
pub struct TopArgs {
    /// Between two pages: 1s, 500ms, 1m
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span_from_text)]
    pub every: u64,
    /// End after so many pages
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Draws until it is ended. A node that does not answer is told in the page's place, as it may be about to come back.
pub async fn top(args: TopArgs) -> Result<(), String> {
    let api = args.node.reader()?;
    let is_terminal = std::io::stdout().is_terminal();
    let mut drawn = 0u32;
    loop {
        let view = crate::happened::view(api.clone()).await;
        let text = match view {
            Ok(view) => page(&view, if is_terminal { rows() } else { usize::MAX }),
            Err(why) if drawn == 0 => return Err(why),
            Err(why) => format!("{}\n", plain(&why)),
        };
        let text = lines(&text);
        // Home and clear; each line is ended before what was there.
        let out = match (is_terminal, drawn) {
            (true, _) => format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")),
            (false, 0) => text,
            (false, _) => format!("\n{text}"),
        };
        let mut stdout = std::io::stdout().lock();
        // Who reads it has gone: that ends it.
        if stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush()).is_err() {
            return Ok(());
        }
        drop(stdout);
        drawn = drawn.saturating_add(1);
        if args.count.is_some_and(|count| drawn >= count) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(args.every).max(EVERY_MIN)).await;
    }
}

fn rows() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_row > 0 => usize::from(size.ws_row),
        Ok(_) | Err(_) => ROWS,
    }
}

/// A page of at most so many rows: nodes, services by how much they are asked, then the latest events.
fn page(view: &View, rows: usize) -> String {
    let live = view.nodes.iter().filter(|n| n.state == NodeState::Live).count();
    let leader = view.root.leader.as_deref().unwrap_or("none: changes wait");
    let mut lines = vec![
        format!(
            "{}: {live} of {} nodes live, root leader {leader}, {} of {} shards whole",
            view.cluster,
            view.nodes.len(),
            view.groups.whole,
            view.groups.all
        ),
        String::new(),
        format!(
            "{:<12} {:<8} {:>6} {:>9} {:>8} {:>7} {:>9} {:>9} {:>9} {:>9}",
            "NODE", "STATE", "CPU", "MEMORY", "HTTP/s", "5xx/s", "P50", "P99", "REDIS/s", "P99"
        ),
    ];
    lines.extend(view.nodes.iter().map(of_node));
    lines.push(String::new());
    lines.push(format!(
        "{:<20} {:>9} {:>9} {:>8} {:>9} {:>7} {:>6} {:>9}  {}",
        "SERVICE", "SERVING", "WANTED", "REQ/s", "MEAN", "FAILED", "CPU", "MEMORY", "SLOW CLONE"
    ));
    let mut services: Vec<&ServiceView> = view.services.iter().collect();
    services.sort_by_key(|s| (std::cmp::Reverse(asked(s).requests), &s.name));
    let room = rows.saturating_sub(lines.len() + EVENTS_MIN + 2).max(1);
    lines.extend(services.iter().take(room).map(|s| of_service(s)));
    if services.len() > room {
        lines.push(format!("... {} more", services.len() - room));
    }
    lines.push(String::new());
    let room = rows.saturating_sub(lines.len() + 1).min(10);
    for event in view.events.iter().rev().take(room) {
        lines.push(format!("{:>6} ago  {:<14} {}", ago(view.at_ms, event.at_ms), event.kind, plain(&event.text)));
    }
    lines.truncate(rows.saturating_sub(1).max(1));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn of_node(n: &NodeView) -> String {
    let state = match n.state {
        NodeState::Live if n.leaving.is_some() => "leaving",
        NodeState::Live if n.drained => "drained",
        NodeState::Live => "live",
        NodeState::Suspect => "suspect",
        NodeState::Dead => "dead",
    };
    let gauge = |name: &str| n.gauges.get(name).copied().filter(|_| n.state != NodeState::Dead);
    let number = |name: &str| gauge(name).map_or("-".to_owned(), |n| n.to_string());
    let time = |name: &str| gauge(name).map_or("-".to_owned(), millis);
    format!(
        "{:<12} {state:<8} {:>5}% {:>6} MB {:>8} {:>7} {:>9} {:>9} {:>9} {:>9}",
        n.name,
        n.cpu_millis / 10,
        n.resident_bytes >> 20,
        number("http.requests"),
        number("http.errors"),
        time("http.p50_us"),
        time("http.p99_us"),
        number("resp.commands"),
        time("resp.p99_us"),
    )
}

#[derive(Clone, Copy, Default)]
struct Asked {
    requests: u64,
    failed: u64,
    /// Of all answers together.
    mean_us: u64,
}

fn asked(service: &ServiceView) -> Asked {
    let mut all = Asked::default();
    let mut took_us = 0u128;
    for asked in service.clones.iter().filter_map(|c| c.asked) {
        all.requests += asked.requests;
        all.failed += asked.failed;
        took_us += u128::from(asked.requests) * u128::from(asked.mean_us);
    }
    all.mean_us = u64::try_from(took_us / u128::from(all.requests.max(1))).unwrap_or(u64::MAX);
    all
}

/// Doors tell of the last 5 to 10 s.
const ASKED_SECONDS: f64 = 7.5;

fn of_service(service: &ServiceView) -> String {
    let serving = service.clones.iter().filter(|c| c.state == CloneState::Serving).count();
    let all = asked(service);
    // With one clone, or all alike, nobody stands out.
    let slowest = service.slowest().map_or(String::new(), |of| {
        let half = of.asked.half_us().filter(|_| !of.asked.is_mute());
        let takes = half.map_or_else(|| format!("{} wait", of.asked.under_way), millis);
        let cpu = of.clone.cpu_millis.map_or(String::new(), |cpu| format!(", {}%", cpu / 10));
        format!("{} on {}, {takes}{cpu}", of.clone.name, of.clone.node)
    });
    let cpu = sum(service, |c| c.cpu_millis.map(u64::from)).map(|millis| format!("{}%", millis / 10));
    let memory = sum(service, |c| c.resident_bytes).map(|bytes| format!("{} MB", bytes >> 20));
    let [cpu, memory] = [cpu, memory].map(|text| text.unwrap_or_else(|| "-".to_owned()));
    let (rate, mean) = match all.requests {
        0 => ("-".to_owned(), "-".to_owned()),
        n => (format!("{:.0}", (n as f64 / ASKED_SECONDS).ceil()), millis(all.mean_us)),
    };
    let off = if service.off.is_empty() { "" } else { " (parts out of use)" };
    format!(
        "{:<20} {serving:>9} {:>9} {rate:>8} {mean:>9} {:>7} {cpu:>6} {memory:>9}  {slowest}{off}",
        service.name, service.wanted, all.failed
    )
}

/// Of all clones that are known to use some.
fn sum(service: &ServiceView, of: impl Fn(&CloneView) -> Option<u64>) -> Option<u64> {
    service.clones.iter().filter_map(of).reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clone(name: &str, state: &str, asked: serde_json::Value) -> serde_json::Value {
        serde_json::json!({"name": name, "node": "n1", "state": state, "pid": 1, "port": 1, "restarts": 0, "since_ms": 0,
            "last_exit": null, "last_output": [], "asked": asked, "cpu_millis": 120, "resident_bytes": 30 << 20})
    }

    fn view(services: &[serde_json::Value], events: usize) -> View {
        let event = |n: usize| serde_json::json!({"at_ms": n * 1000, "kind": "birth", "who": "n1", "text": format!("event {n}\u{1b}[2J")});
        let events: Vec<_> = (0..events).map(event).collect();
        serde_json::from_value(serde_json::json!({"services": services, "events": events, "at_ms": 60_000})).unwrap()
    }

    #[test]
    fn a_service_is_told_with_its_slowest_clone() {
        let asked =
            |requests: u64, mean_us: u64| serde_json::json!({"requests": requests, "failed": 1, "mean_us": mean_us});
        let clones = [
            clone("a/0", "serving", asked(30, 2_000)),
            clone("a/1", "serving", asked(10, 42_000)),
            clone("a/2", "backoff", serde_json::Value::Null),
        ];
        let busy = serde_json::json!({"name": "a", "wanted": 3, "at": ["*/"], "clones": clones});
        let idle = serde_json::json!({"name": "idle", "wanted": 0, "at": ["*/"], "clones": []});
        let page = page(&view(&[idle, busy], 0), usize::MAX);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        at(" 2         3        6     12 ms       2    36%     90 MB  a/1 on n1, 42 ms, 12%\n");
        assert!(at("\na  ") < at("\nidle  "), "who is asked most stands first: {page}");
        at("0         0        -         -       0      -         -\n");
    }

    #[test]
    fn a_page_has_no_more_rows_than_the_terminal_and_nothing_steers_it() {
        let services: Vec<_> = (0..50)
            .map(|n| serde_json::json!({"name": format!("s{n:02}"), "wanted": 0, "at": [], "clones": []}))
            .collect();
        let view = view(&services, 100);
        for rows in [1, 2, 8, 24, 60] {
            let page = page(&view, rows);
            assert!(page.lines().count() <= rows.saturating_sub(1).max(1), "{rows}: {page}");
            assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "{page}");
        }
        let page = page(&view, 24);
        assert!(page.contains("more\n") && page.contains("event 99"), "{page}");
    }
}
