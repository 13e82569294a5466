//! `coppice status`: the cluster as a page of text. Scripts use `--json`, which is the node's view as it is.

use std::collections::BTreeMap;
use std::fmt::Write;

use base::text::span_text;
use node::renewed::FormerTokenView;
use node::view::{
    CloneState, CloneView, NodeState, NodeView, RunView, RunsView, ServiceView, Slowest, View, WorkedView,
};

use crate::plain::plain;

/// The page. `now_ms` is the reader's wall clock.
pub fn page(view: &View, now_ms: u64) -> String {
    let mut out = String::new();
    let live = view.nodes.iter().filter(|n| n.state == NodeState::Live).count();
    let leader = view.root.leader.as_deref().unwrap_or("none: changes wait");
    line(
        &mut out,
        format_args!(
            "cluster {}: {live} of {} nodes live, root leader {leader}, declaration {}, level {}\n",
            view.cluster,
            view.nodes.len(),
            view.root.version,
            view.root.level
        ),
    );

    line(
        &mut out,
        format_args!(
            "{:<12} {:<8} {:>7} {:>6} {:>9} {:>18} {:>8}  {}",
            "NODE", "STATE", "PID", "CPU", "MEMORY", "BRICK", "FOR", "ADDRESSES"
        ),
    );
    for n in &view.nodes {
        let state = match n.state {
            NodeState::Live if n.leaving.is_some() => "leaving",
            NodeState::Live if n.drained && busy(view, &n.name) => "draining",
            NodeState::Live if n.drained => "drained",
            NodeState::Live => "live",
            NodeState::Suspect => "suspect",
            NodeState::Dead => "dead",
        };
        line(
            &mut out,
            format_args!(
                "{:<12} {:<8} {:>7} {:>5}% {:>6} MB {:>18} {:>8}  {}",
                n.name,
                state,
                n.pid,
                n.cpu_millis / 10,
                n.resident_bytes >> 20,
                brick(n),
                ago(now_ms, n.since_ms),
                n.doors.shown()
            ),
        );
    }
    if let Some(text) = overflow(view, now_ms) {
        line(&mut out, format_args!("{text}"));
    }
    let newest = view.nodes.iter().map(|n| n.level).max().unwrap_or(0);
    for n in view.nodes.iter().filter(|n| n.level < newest && view.root.level < newest) {
        let (name, version, level) = (&n.name, &n.version, n.level);
        line(&mut out, format_args!("level {newest} waits for {name}, which runs {version} with level {level}"));
    }
    for n in view.nodes.iter().filter(|n| n.certificate_fails) {
        let left = n.certificate_ends_at_ms.unwrap_or(0).saturating_sub(now_ms);
        let when = if left == 0 { "has ended".to_owned() } else { format!("ends in {} hours", left / 3_600_000) };
        line(
            &mut out,
            format_args!("{}'s certificate {when} and cannot be renewed; `coppice events` says why", n.name),
        );
    }
    for of in view.certificates.iter() {
        for text in crate::certificates::lines(of, now_ms) {
            line(&mut out, format_args!("certificate {text}"));
        }
    }
    for FormerTokenView { of, until_ms } in view.former_tokens.iter() {
        // To the second: nobody cares for more.
        let left = span_text(until_ms.saturating_sub(now_ms).div_ceil(1000) * 1000);
        line(&mut out, format_args!("the token of {of} was renewed; the one before opens for {left} more"));
    }
    if view.authority.step > 0 {
        let waits = match &view.authority.waits[..] {
            [] => "`coppice ca rotate` goes on".to_owned(),
            waits => format!("waits for {}", waits.join(", ")),
        };
        line(&mut out, format_args!("another authority takes over, turn {} of 3: {waits}", view.authority.step));
    }
    // Nodes on machines of one kind lack the same.
    let mut lacks = BTreeMap::<&str, Vec<&str>>::new();
    for (n, lack) in view.nodes.iter().flat_map(|n| n.sandbox_lacks.iter().map(move |lack| (n, lack))) {
        lacks.entry(lack).or_default().push(&n.name);
    }
    for (lack, names) in lacks {
        line(&mut out, format_args!("clones on {} can {lack}", names.join(", ")));
    }
    for n in &view.nodes {
        if let Some(ms) = n.slow_force_ms {
            line(
                &mut out,
                format_args!("{}'s disk is slow: a force takes {ms} ms at least; others lead its groups", n.name),
            );
        }
        if let Some(disk) = &n.disk {
            line(&mut out, format_args!("{}'s disk takes nothing: {disk}; it takes no part until it does", n.name));
        }
    }
    for (n, waits) in view.nodes.iter().filter_map(|n| Some((n, n.waits.as_ref()?))) {
        line(&mut out, format_args!("{} is to leave and waits: {waits}", n.name));
    }
    if view.groups.whole < view.groups.all {
        let (all, whole) = (view.groups.all, view.groups.whole);
        line(&mut out, format_args!("{whole} of {all} shards have all their members there and level"));
    }
    if !view.services.is_empty() {
        line(
            &mut out,
            format_args!(
                "\n{:<16} {:<12} {:<9} {:>7} {:>6} {:>8} {:>8} {:>8} {:>6} {:>5} {:>8} {:>8} {:>6} {:>9}  {}",
                "CLONE",
                "NODE",
                "STATE",
                "PID",
                "PORT",
                "RESTARTS",
                "FOR",
                "REQUESTS",
                "FAILED",
                "NOW",
                "P50",
                "P99",
                "CPU",
                "MEMORY",
                "AT"
            ),
        );
    }
    for service in &view.services {
        if !service.off.is_empty() {
            line(
                &mut out,
                format_args!("{:<16} out of use: {} (`coppice enable`)", service.name, service.off.join(", ")),
            );
        }
        for n in view.nodes.iter().filter(|n| n.state != NodeState::Dead) {
            for text in overloads(&n.name, &n.gauges, &service.name) {
                line(&mut out, format_args!("{text}"));
            }
        }
        if let Some(text) = slowest(service) {
            line(&mut out, format_args!("{text}"));
        }
        for text in service.runs.iter().flat_map(|runs| runs_text(runs, now_ms)) {
            line(&mut out, format_args!("{:<16} {text}", service.name));
        }
        for queue in &service.queues {
            line(&mut out, format_args!("{:<16} works on {}", service.name, worked(queue)));
        }
        if service.clones.is_empty() && service.wanted > 0 {
            line(&mut out, format_args!("{:<16} no clone yet, {} wanted", service.name, service.wanted));
        }
        for c in &service.clones {
            let state = match c.state {
                CloneState::Starting => "starting",
                // In the routes or not, it is about to be restarted.
                CloneState::Serving if c.sick => "sick",
                CloneState::Serving => "serving",
                CloneState::Draining => "draining",
                CloneState::Backoff => "backoff",
            };
            let [requests, failed, under_way, p50, p99] = asked(c);
            let [cpu, memory] = used(c);
            line(
                &mut out,
                format_args!(
                    "{:<16} {:<12} {:<9} {:>7} {:>6} {:>8} {:>8} {requests:>8} {failed:>6} {under_way:>5} {p50:>8} {p99:>8} {cpu:>6} {memory:>9}  {}",
                    c.name,
                    c.node,
                    state,
                    c.pid,
                    c.port,
                    c.restarts,
                    ago(now_ms, c.since_ms),
                    service.at.join(" ")
                ),
            );
            if c.state != CloneState::Serving {
                if let Some(exit) = &c.last_exit {
                    line(&mut out, format_args!("    last ended: {}", plain(exit)));
                }
                for text in c.last_output.iter().rev().take(5).rev() {
                    line(&mut out, format_args!("    | {}", plain(text)));
                }
            }
        }
    }
    if !view.namespaces.is_empty() {
        line(
            &mut out,
            format_args!("\n{:<16} {:<8} {:>16} {:>8}  {}", "NAMESPACE", "CLASS", "HOLDS", "LEASE", "PROMISE"),
        );
    }
    for n in &view.namespaces {
        // Values of class `linear` have none.
        let lease = if n.lease_ms == 0 { "-".to_owned() } else { span(n.lease_ms) };
        let holds = crate::ns::holds(n.used);
        line(&mut out, format_args!("{:<16} {:<8} {holds:>16} {lease:>8}  {}", n.name, n.class, n.promise));
    }
    out
}

/// How often, how long and since when nodes for overflow were needed; nothing where there are none and never were.
fn overflow(view: &View, now_ms: u64) -> Option<String> {
    let names: Vec<&str> = view.nodes.iter().filter(|n| n.overflow).map(|n| n.name.as_str()).collect();
    let o = view.overflow;
    if names.is_empty() && o.times == 0 {
        return None;
    }
    let which = if names.is_empty() { "none now".to_owned() } else { names.join(", ") };
    let how = match (o.times, o.since_ms) {
        (0, _) => "never needed".to_owned(),
        (times, since) => {
            let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
            let now = match since {
                Some(since) => format!("needed now, since {}", ago(now_ms, since)),
                None => format!("released {} ago", ago(now_ms, o.last_ms)),
            };
            format!("recruited {times}, for {} in all; {now}", span(o.total_ms))
        }
    };
    Some(format!("nodes for overflow ({which}): {how}"))
}

/// A service, or a part of it, that has more to do than it can, as the doors of a node see it.
fn overloads(node: &str, gauges: &BTreeMap<String, u64>, service: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, refused) in gauges {
        let Some(stage) = name.strip_suffix(".refused_a_second") else { continue };
        let Some(part) = ["stage.http-", "stage.tcp-"].iter().find_map(|front| stage.strip_prefix(front)) else {
            continue;
        };
        if part.split('/').next() != Some(service) {
            continue;
        }
        let figure = |name: &str| gauges.get(&format!("{stage}.{name}")).copied().unwrap_or(0);
        let (limit, waiting, part) = (figure("limit"), figure("waiting"), plain(part));
        lines.push(format!(
            "{part:<16} overloaded at {node}: limit {limit}, {waiting} wait, {refused} a second refused"
        ));
    }
    lines
}

/// A queue that a service works on, and what is in it.
fn worked(queue: &WorkedView) -> String {
    let WorkedView { namespace, queue, is_told, waiting, held, oldest_ms } = queue;
    let name = format!("{}/{}", plain(namespace), plain(queue));
    match (is_told, waiting) {
        (false, _) => format!("{name}: nobody tells of it, so it has had no job yet or its shard has no leader"),
        (true, 0) => format!("{name}: nothing waits, workers have {held}"),
        (true, _) => format!("{name}: {waiting} wait, the oldest for {}, workers have {held}", span_text(*oldest_ms)),
    }
}

/// What a service runs at times, and what goes before its versions while that stands in the way.
fn runs_text(runs: &RunsView, now_ms: u64) -> Vec<String> {
    let mut texts = Vec::new();
    let state = |run: &RunView| match (&run.node, &run.last) {
        (Some(node), _) => format!("runs on {node} for {}", ago(now_ms, run.since_ms)),
        (None, Some(last)) => {
            let how = if last.good { "good".to_owned() } else { format!("FAILED, {}", plain(&last.how)) };
            format!("last: {how}, on {}, {} ago", last.node, ago(now_ms, last.ended_ms))
        }
        (None, None) => "has not run yet".to_owned(),
    };
    if let Some(times) = &runs.times {
        let next = match runs.next_ms {
            Some(at) => format!("next in {}", span(at.saturating_sub(now_ms))),
            None => "never again".to_owned(),
        };
        texts.push(format!("at {}: {}; {next}", plain(times), state(&runs.job)));
    }
    if let Some(version) = runs.waits_for_before {
        texts.push(format!("before version {version}: {}", state(&runs.before)));
    }
    texts
}

/// What doors saw of a clone in the last seconds: requests, those that failed, those under way, what half and what 99 in 100 of the
/// answers took.
fn asked(clone: &CloneView) -> [String; 5] {
    let Some(asked) = clone.asked else { return [(); 5].map(|()| "-".to_owned()) };
    let time = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), millis);
    let [p50, p99] = [time(asked.half_us()), time(asked.p99_us)];
    [asked.requests.to_string(), asked.failed.to_string(), asked.under_way.to_string(), p50, p99]
}

/// Of its process, and of those that this started.
fn used(clone: &CloneView) -> [String; 2] {
    let cpu = clone.cpu_millis.map(|millis| format!("{}%", millis / 10));
    let memory = clone.resident_bytes.map(|bytes| format!("{} MB", bytes >> 20));
    [cpu, memory].map(|text| text.unwrap_or_else(|| "-".to_owned()))
}

pub fn millis(us: u64) -> String {
    match us {
        us if us < 10_000 => format!("{:.1} ms", us as f64 / 1000.0),
        us => format!("{} ms", us / 1000),
    }
}

/// The clone that stands out among those of its service, and by what.
fn slowest(service: &ServiceView) -> Option<String> {
    let Slowest { clone, asked, others_us } = service.slowest()?;
    let (name, others) = (&service.name, millis(others_us));
    let who = format!("{name:<16} slow: {} on {}", clone.name, clone.node);
    Some(match asked.half_us() {
        Some(us) if !asked.is_mute() => format!("{who}, half of its answers take {}, the others' {others}", millis(us)),
        _ => format!("{who} has {} requests and answers none, the others take {others}", asked.under_way),
    })
}

/// Whether a node still runs clones.
fn busy(view: &View, node: &str) -> bool {
    view.services.iter().flat_map(|s| &s.clones).any(|c| c.node == node)
}

/// `12 of 1024 MB`, or that it is being filled.
fn brick(n: &NodeView) -> String {
    match (n.state, n.brick.settled) {
        (NodeState::Dead, _) => "-".to_owned(),
        (_, false) => format!("{} MB, filling", n.brick.bytes >> 20),
        (_, true) => format!("{} of {} MB", n.brick.bytes >> 20, n.brick.bytes_max >> 20),
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes everything");
}

/// How long ago that was, in the largest unit that says it.
pub fn ago(now_ms: u64, since_ms: u64) -> String {
    span(now_ms.saturating_sub(since_ms) / 1000 * 1000)
}

/// The largest unit that says it: `45s`, `30m`, `2h`, `9d`.
fn span(ms: u64) -> String {
    match ms / 1000 {
        s if s < 120 => format!("{s}s"),
        s if s < 7200 => format!("{}m", s / 60),
        s if s < 172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_ever_has_no_lease() {
        let namespace = |name: &str, lease_ms: u64| serde_json::json!({"name": name, "class": "c", "lease_ms": lease_ms, "promise": "p"});
        let all = serde_json::json!({"namespaces": [namespace("bank", 0), namespace("carts", 3_600_000)]});
        let page = page(&serde_json::from_value(all).unwrap(), 0);
        assert!(page.contains(" -  p\n") && page.contains(" 60m  p\n"), "{page}");
    }

    #[test]
    fn it_tells_how_nodes_for_overflow_were_needed() {
        let page = |overflow: serde_json::Value| {
            page(&serde_json::from_value(serde_json::json!({ "overflow": overflow })).unwrap(), 1_000_000)
        };
        assert!(!page(serde_json::json!({})).contains("overflow"));
        let now = page(serde_json::json!({"times": 3, "total_ms": 180_000, "since_ms": 960_000, "last_ms": 900_000}));
        assert!(now.contains("recruited 3 times, for 3m in all; needed now, since 40s\n"), "{now}");
        let over = page(serde_json::json!({"times": 1, "total_ms": 5_000, "since_ms": null, "last_ms": 900_000}));
        assert!(over.contains("recruited once, for 5s in all; released 100s ago\n"), "{over}");
    }

    #[test]
    fn what_a_clone_printed_does_not_steer_the_terminal() {
        let clone = serde_json::json!({"name": "a/0", "node": "n1", "state": "backoff", "pid": 0, "port": 0, "restarts": 2,
            "since_ms": 0, "last_exit": "by\u{7} itself", "last_output": ["\u{1b}[2J\u{1b}]0;x\u{7}"]});
        let all = serde_json::json!({"services": [{"name": "a", "wanted": 1, "at": ["*/"], "clones": [clone]}]});
        let page = page(&serde_json::from_value(all).unwrap(), 0);
        assert!(page.contains("| \\u001b[2J\\u001b]0;x\\u0007\n"), "{page}");
        assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "{page}");
    }

    #[test]
    fn the_slow_one_of_several_clones_is_seen() {
        let clone = |name: &str, asked: serde_json::Value| {
            serde_json::json!({"name": name, "node": "n1", "state": "serving", "pid": 1, "port": 1, "restarts": 0, "since_ms": 0,
                "last_exit": null, "last_output": [], "asked": asked, "cpu_millis": 985, "resident_bytes": 77 << 20})
        };
        let asked = |us: u64| serde_json::json!({"requests": 40, "failed": 3, "mean_us": 7, "p50_us": us, "p99_us": us * 2, "under_way": 6});
        let clones =
            [clone("a/0", asked(20_400)), clone("a/1", asked(1_000_000)), clone("a/2", serde_json::Value::Null)];
        let all = serde_json::json!({"services": [{"name": "a", "wanted": 3, "at": ["*/"], "clones": clones}]});
        let all = page(&serde_json::from_value(all).unwrap(), 0);
        for part in [
            "40      3     6    20 ms    40 ms    98%     77 MB  */",
            "40      3     6  1000 ms  2000 ms    98%     77 MB  */",
            "-      -     -        -        -    98%     77 MB  */",
            "\na                slow: a/1 on n1, half of its answers take 1000 ms, the others' 20 ms\n",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
        // Who hangs answers nothing, so nothing is known of how long it takes.
        let both = |one: serde_json::Value| {
            let of = |asked: serde_json::Value| {
                let clones = [clone("a/0", asked), clone("a/1", one.clone())];
                let all = serde_json::json!({"services": [{"name": "a", "wanted": 2, "at": ["*/"], "clones": clones}]});
                page(&serde_json::from_value(all).unwrap(), 0)
            };
            (of(asked(2_000)), of(serde_json::Value::Null))
        };
        let (beside, alone) = both(serde_json::json!({"under_way": 12}));
        assert!(
            beside.contains("slow: a/1 on n1 has 12 requests and answers none, the others take 2.0 ms"),
            "{beside}"
        );
        assert!(!alone.contains("slow: "), "{alone}");
        // Of a node of the program before, there is the mean alone.
        let (beside, _) = both(serde_json::json!({"requests": 9, "mean_us": 30_000}));
        assert!(
            beside.contains("half of its answers take 30 ms") && beside.contains("9      0     0    30 ms        -")
        );
        // It is asked little, as it is slow; a little slower may be chance.
        let (beside, _) = both(serde_json::json!({"requests": 1, "mean_us": 30_000}));
        assert!(beside.contains("half of its answers take 30 ms"), "{beside}");
        for alike in [serde_json::json!({"requests": 2, "mean_us": 9_000}), asked(3_900)] {
            assert!(!both(alike).0.contains("slow: "));
        }
    }

    #[test]
    fn who_is_overloaded_is_said_beside_the_service() {
        let figures = [("limit", 35), ("waiting", 6), ("refused_a_second", 12)];
        let mut gauges: BTreeMap<String, u64> =
            figures.iter().map(|(name, value)| (format!("stage.http-shop.{name}"), *value)).collect();
        gauges.insert("stage.http-shop/pay.refused_a_second".into(), 1);
        gauges.insert("stage.http-shopping.refused_a_second".into(), 3);
        let expect = [
            "shop             overloaded at n1: limit 35, 6 wait, 12 a second refused",
            "shop/pay         overloaded at n1: limit 0, 0 wait, 1 a second refused",
        ];
        assert_eq!(overloads("n1", &gauges, "shop"), expect);
        gauges.retain(|name, _| !name.ends_with("refused_a_second"));
        assert!(overloads("n1", &gauges, "shop").is_empty());
    }

    #[test]
    fn spans_are_told_in_the_unit_that_fits() {
        assert_eq!([span(1500), span(180_000), span(7_200_000), span(864_000_000)], ["1s", "3m", "2h", "10d"]);
    }
}
