//! The page. Its parts are written by the same functions at the first load and later: the stream sends each part anew.
//! Landmarks, one heading per part, header cells in tables; states are words, colour only repeats them.

use maud::{DOCTYPE, Markup, html};

use crate::answers::answers;
use crate::chart::{chart, number};
use crate::headed::headed;
use crate::history::{History, MEASURES};
use crate::limits::*;
use crate::picture::{Certificate, Event, Namespace, Node, Picture, Service, Used};
use crate::services::services;
use crate::stages::stages;
use crate::switch;

/// A part of the page that changes: its id, heading, and how it is written.
pub struct Part {
    pub id: &'static str,
    pub title: &'static str,
    pub write: fn(&Picture, &History) -> Markup,
}

/// In reading order. Events and logs are not here: events are only ever added to, logs are what somebody has asked for.
pub static PARTS: [Part; 10] = [
    Part { id: "nodes", title: "Nodes", write: |picture, _| nodes(picture) },
    Part { id: "traffic", title: "Traffic", write: |_, history| traffic(history) },
    Part { id: "services", title: "Services", write: |picture, _| services(picture) },
    Part { id: "namespaces", title: "Namespaces", write: |picture, _| namespaces(picture) },
    Part { id: "certificates", title: "Certificates", write: |picture, _| certificates(picture) },
    Part { id: "answers", title: "Caches and pipelines", write: |picture, _| answers(picture) },
    Part { id: "stages", title: "Stages", write: stages },
    Part { id: "bricks", title: "Bricks", write: |picture, _| bricks(picture) },
    Part { id: "objects", title: "Objects", write: |picture, _| objects(picture) },
    Part { id: "root", title: "Declared configuration", write: |picture, _| root(picture) },
];

/// The whole page; `problem` if the node's view could not be read.
pub fn page(picture: &Picture, history: &History, problem: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Coppice: " (picture.cluster) }
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/assets/monitor.css";
                script src="/assets/monitor.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to the nodes" }
                header {
                    h1 { "Coppice " span.cluster { (picture.cluster) } }
                    p #summary { (summary(picture)) }
                    p #said role="status" {}
                    p.connection { span #connection { "as of this load" } " " (switch::show()) noscript { ". " a href="/" { "Load again" } } }
                    nav aria-label="Parts of this page" {
                        ul {
                            @for part in &PARTS { li { a href={ "#" (part.id) } { (part.title) } } }
                            li { a href="#events" { "Events" } }
                            li { a href="#logs" { "Logs" } }
                        }
                    }
                }
                main #main tabindex="-1" {
                    @if let Some(problem) = problem { p.problem role="alert" { (problem) } }
                    @for part in &PARTS {
                        section id=(part.id) aria-labelledby={ (part.id) "-title" } {
                            h2 id={ (part.id) "-title" } { (part.title) }
                            div data-part=(part.id) { (headed((part.write)(picture, history))) }
                        }
                    }
                    section #events aria-labelledby="events-title" {
                        h2 #events-title { "Events" }
                        p.find { label for="events-find" { "Only those with " } input #events-find type="search" autocomplete="off"; " " span #events-found role="status" {} }
                        ol.events role="log" aria-live="polite" aria-relevant="additions" aria-label="Events, newest first" tabindex="0" data-most=(EVENTS_SHOWN) {
                            @for item in picture.events.iter().rev().take(EVENTS_SHOWN) { (event(item)) }
                        }
                    }
                    (logs(picture))
                }
                (switch::dialog())
                footer {
                    p {
                        "Seen by node " strong { (picture.me) } ". The same for scripts: "
                        a href="/v1/status" { "status" } ", " a href="/v1/catalog" { "catalogue" } ", " a href="/metrics" { "metrics" } "."
                    }
                }
            }
        }
    }
}

/// What clones have said: asked for by a person who has the operator's token.
fn logs(picture: &Picture) -> Markup {
    html! {
        section #logs aria-labelledby="logs-title" {
            h2 #logs-title { "Logs" }
            form.find #logs-form {
                label for="logs-of" { "What clones of " } " "
                select #logs-of { @for service in &picture.services { option value=(service.name) { (service.name) } } }
                " " label for="logs-find" { "said with " } input #logs-find type="search" autocomplete="off"; " "
                button type="submit" data-lines=(LOG_LINES_READ) { "Read" }
                " " span #logs-found role="status" {}
            }
            noscript { p { "Without scripts: " code { "coppice logs SERVICE" } "." } }
            pre.log #logs-lines tabindex="0" role="log" aria-label="Lines, newest last" {}
        }
    }
}

/// The cluster in a sentence.
pub fn summary(picture: &Picture) -> Markup {
    let (live, all) = (picture.live(), picture.nodes.len());
    let serving = |service: &Service| service.clones.iter().filter(|c| c.state == "serving").count() as u32;
    let short: Vec<&Service> = picture.services.iter().filter(|s| serving(s) < s.wanted).collect();
    html! {
        @if live == all { (live) @if all == 1 { " node live" } @else { " nodes live" } } @else { strong { (live) " of " (all) " nodes live" } }
        @if short.is_empty() { ", all clones serving" }
        @else {
            ", " strong { "too few clones serve " @for (i, s) in short.iter().enumerate() { @if i > 0 { ", " } (s.name) } }
        }
        ", " (number(picture.sum("http.requests") as f64)) " HTTP requests and "
        (number(picture.sum("resp.commands") as f64)) " Redis commands a second"
    }
}

fn nodes(picture: &Picture) -> Markup {
    html! {
        div.wide tabindex="0" role="group" aria-label="Table of nodes" {
            table {
                thead {
                    tr {
                        @for head in ["Node", "State", "Load", "CPU", "Memory", "HTTP a second", "Redis a second", "Clones", "For", "Addresses", "Maintenance"] {
                            th scope="col" { (head) }
                        }
                    }
                }
                tbody { @for node in &picture.nodes { (node_row(picture, node)) } }
            }
        }
        @if let Some(text) = overflow(picture) { p { (text) } }
    }
}

/// How often, how long and since when nodes for overflow were needed; nothing where there are none and never were.
fn overflow(picture: &Picture) -> Option<String> {
    let used = &picture.overflow;
    if used.times == 0 {
        return picture.nodes.iter().any(|node| node.overflow).then(|| "Nodes for overflow were never needed.".into());
    }
    let times = if used.times == 1 { "once".to_owned() } else { format!("{} times", used.times) };
    let now = match used.since_ms {
        Some(since) => format!("needed now, since {}", ago(picture.at_ms, since)),
        None => format!("released {} ago", ago(picture.at_ms, used.last_ms)),
    };
    Some(format!("Nodes for overflow were recruited {times}, for {} in all; {now}.", span(used.total_ms)))
}

fn node_row(picture: &Picture, node: &Node) -> Markup {
    let clones = picture.services.iter().flat_map(|s| &s.clones).filter(|clone| clone.node == node.name).count();
    let alive = node.state != "dead";
    html! {
        tr {
            th scope="row" { (node.name) @if node.name == picture.me { " (this one)" } @if node.overflow { " (for overflow)" } }
            td { (state(&node.state)) @if node.drained { ", drained" } @if let Some(how) = &node.leaving { ", about to " (how) } }
            @if alive {
                td { (load(node.load)) }
                td.n { (node.cpu_millis / 10) " %" }
                td.n { (node.resident_bytes >> 20) " MiB" }
                td.n { (number(node.gauge("http.requests") as f64)) }
                td.n { (number(node.gauge("resp.commands") as f64)) }
                td.n { (clones) }
            } @else {
                td colspan="6" { "pid was " (node.pid) }
            }
            td.n { (ago(picture.at_ms, node.since_ms)) }
            td.addresses { (node.doors.map(|doors| doors.shown()).unwrap_or_default()) }
            td { @if node.drained { (switch::undrain(&node.name)) } @else if alive { (switch::drain(&node.name)) } }
        }
    }
}

fn load(load: u16) -> Markup {
    let percent = format!("{} %", load / 10);
    html! { meter min="0" max="1000" low="700" high="900" optimum="0" value=(load) { (percent) } " " span.n { (percent) } }
}

fn traffic(history: &History) -> Markup {
    html! {
        div.charts {
            @for (i, measure) in MEASURES.iter().enumerate() {
                (chart(measure.id, measure.title, measure.unit, &history.of(i).collect::<Vec<_>>()))
            }
        }
    }
}

fn namespaces(picture: &Picture) -> Markup {
    html! {
        @if picture.namespaces.is_empty() { p { "None are declared." } }
        @else {
            div.wide tabindex="0" role="group" aria-label="Table of namespaces" {
                table {
                    thead { tr { @for head in ["Namespace", "Class", "Lease", "Keys", "Holds", "Shards", "Promise"] { th scope="col" { (head) } } } }
                    tbody {
                        @for namespace in &picture.namespaces {
                            tr {
                                th scope="row" { (namespace.name) }
                                td { (namespace.class) }
                                td.n { (span(namespace.lease_ms)) }
                                td.n { (namespace.used.map_or("-".to_owned(), |used| used.keys.to_string())) }
                                td.n { (namespace.used.as_ref().map_or("-".to_owned(), holds)) }
                                td { (shards(namespace)) }
                                td { (namespace.promise) }
                            }
                        }
                    }
                }
            }
            (hot_keys(picture))
            (queues(picture))
        }
    }
}

/// Consensus groups of a namespace, folded: whether each is led is seen before.
fn shards(namespace: &Namespace) -> Markup {
    let leaderless = namespace.shards.iter().filter(|shard| shard.leader.is_none()).count();
    html! {
        @if namespace.shards.is_empty() { "-" } @else {
            details id={ "shards-" (namespace.name) } open[leaderless > 0] data-open[leaderless > 0] {
                summary {
                    (namespace.shards.len())
                    @if leaderless > 0 { ", " strong { (leaderless) " without a leader" } } @else { ", all led" }
                }
                ul.plain {
                    @for shard in namespace.shards.iter().take(ROWS_SHOWN) {
                        li {
                            (shard.name) ": "
                            @match &shard.leader { Some(leader) => (leader), None => strong { "no leader" } }
                            " of " (shard.members.join(", "))
                        }
                    }
                }
            }
        }
    }
}

/// Of the cluster, and what went wrong with those that come by themselves.
fn certificates(picture: &Picture) -> Markup {
    let end = |of: &Certificate| match of.ends_at_ms {
        0 => "has not come yet".to_owned(),
        at if at <= picture.at_ms => "has ended".to_owned(),
        at => format!("in {}", span(at - picture.at_ms)),
    };
    let is_near = |of: &Certificate| of.ends_at_ms.saturating_sub(picture.at_ms) < CERTIFICATE_NEAR_MS;
    html! {
        @if picture.certificates.is_empty() { p { "The cluster has none of its own. " code { "coppice certificate set" } " sets one." } }
        @else {
            div.wide tabindex="0" role="group" aria-label="Table of certificates" {
                table {
                    thead { tr { @for head in ["Certificate", "For", "Ends", "Signed by", "Comes", "Trouble"] { th scope="col" { (head) } } } }
                    tbody {
                        @for of in &picture.certificates {
                            tr {
                                th scope="row" { (of.name) }
                                td { (of.names.join(", ")) }
                                td { @if is_near(of) { strong { (end(of)) } } @else { (end(of)) } }
                                td { (of.issuer) }
                                td { @match &of.from { Some(from) => { "by itself from " (from) }, None => "by hand" } }
                                td { (of.why.as_deref().unwrap_or_default()) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// How much, and how near to its bound if it has one.
fn holds(used: &Used) -> String {
    let size = base::text::size_text(used.bytes);
    if used.percent == 0 { size } else { format!("{size}, {} %", used.percent) }
}

/// Is this the name itself? A long one is cut off, and bytes that are no plain text are written otherwise.
fn is_whole(name: &str) -> bool {
    name.len() < 64 && !name.contains('\\')
}

/// Queues of jobs, with a button where jobs are dead.
fn queues(picture: &Picture) -> Markup {
    let all = || picture.namespaces.iter().flat_map(|namespace| namespace.queues.iter().map(move |of| (namespace, of)));
    html! {
        @if all().next().is_some() {
            h3 { "Queues of jobs" }
            div.wide tabindex="0" role="group" aria-label="Table of queues" {
                table {
                    thead { tr { @for head in ["Namespace", "Queue", "Waiting", "Oldest", "Later", "Held", "Dead", ""] { th scope="col" { (head) } } } }
                    tbody {
                        @for (namespace, queue) in all() {
                            tr {
                                th scope="row" { (namespace.name) }
                                td { code { (queue.name) } }
                                td.n { (queue.waiting) }
                                td.n { @if queue.waiting == 0 { "-" } @else { (span(queue.oldest_ms)) } }
                                td.n { (queue.later) }
                                td.n { (queue.held) }
                                td.n { @if queue.dead > 0 { strong { (queue.dead) } } @else { "0" } }
                                td { @if queue.dead > 0 && is_whole(&queue.name) { (switch::retry(&namespace.name, &queue.name, queue.is_hidden)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn hot_keys(picture: &Picture) -> Markup {
    let hot = || picture.namespaces.iter().flat_map(|namespace| namespace.hot.iter().map(move |key| (namespace, key)));
    html! {
        @if hot().next().is_some() {
            h3 { "Hot keys" }
            div.wide tabindex="0" role="group" aria-label="Table of hot keys" {
                table {
                    thead { tr { @for head in ["Namespace", "Key", "Commands a second", "Waiting"] { th scope="col" { (head) } } } }
                    tbody {
                        @for (namespace, hot) in hot() {
                            tr {
                                th scope="row" { (namespace.name) }
                                td { code { (hot.key) } }
                                td.n { (hot.rate) }
                                td.n { (hot.waiters) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn bricks(picture: &Picture) -> Markup {
    let refused = ["No room", "Turned away", "Memory full"];
    let heads = ["Brick", "State", "Values", "Memory", "Window", "In flight", "Timeouts"].into_iter().chain(refused);
    html! {
        p { "Windows are those of this node's stub: requests that it may have under way to each brick, by what it answers in time. \
            It refused what a brick's window had no room for, and what the brick turns away while it has too much to do; and bricks refuse writes that they have no memory for." }
        div.wide tabindex="0" role="group" aria-label="Table of bricks" {
            table {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody {
                    @for node in picture.nodes.iter().filter(|node| node.state != "dead") {
                        tr {
                            th scope="row" { (node.name) }
                            td { @if node.brick.settled { "settled" } @else { "being filled" } }
                            td.n { (number(node.brick.entries as f64)) }
                            td.n { (node.brick.bytes >> 20) " of " (node.brick.bytes_max >> 20) " MiB" }
                            @match picture.stubs.iter().find(|stub| stub.brick == node.name) {
                                Some(stub) => {
                                    td.n { (stub.window) @if stub.slow { " (slow)" } }
                                    td.n { (stub.in_flight) }
                                    td.n { (number(stub.timeouts as f64)) }
                                    td.n { (number(stub.no_room as f64)) }
                                    td.n { (number(stub.turned_away as f64)) }
                                    td.n { (number(stub.full as f64)) }
                                }
                                None => { td colspan="6" { "its own: asked by a call" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

const OBJECT_COUNTS: [&str; 6] =
    ["object.thin", "object.open", "object.pending", "object.tombstones", "object.buckets", "object.buckets_partial"];

/// Of class `object`, as each node has them.
fn objects(picture: &Picture) -> Markup {
    let has_any =
        |node: &&Node| ["object.objects", "object.tombstones", "object.open"].iter().any(|name| node.gauge(name) > 0);
    let heads = [
        "Node",
        "Objects",
        "Bytes",
        "On disk",
        "In memory",
        "Thin",
        "Not everywhere",
        "Waiting for the disk",
        "Deletions",
        "Buckets",
        "Not whole",
    ];
    html! {
        @if !picture.nodes.iter().any(|node| has_any(&node)) { p { "There are none." } }
        @else {
            p { "Thin ones have fewer nodes to be on than are declared, as no more lived. \
                What is not everywhere is pushed to those that do not have it yet: while one is away it grows. \
                In larger clusters a node keeps directories of some buckets of owners: who has their objects. \
                Of those that are not whole not all nodes have told it yet, and all are asked." }
            div.wide tabindex="0" role="group" aria-label="Table of objects" {
                table {
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody {
                        @for node in picture.nodes.iter().filter(|node| node.state != "dead") {
                            tr {
                                th scope="row" { (node.name) }
                                td.n { (number(node.gauge("object.objects") as f64)) }
                                @for name in ["object.bytes", "object.disk_bytes", "object.memory_bytes"] {
                                    td.n { (node.gauge(name) >> 20) " MiB" }
                                }
                                @for name in OBJECT_COUNTS {
                                    td.n { (number(node.gauge(name) as f64)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn root(picture: &Picture) -> Markup {
    let root = &picture.root;
    html! {
        dl {
            dt { "Version" } dd { (root.version) }
            dt { "Leader" }
            dd { @match &root.leader { Some(name) => (name), None => strong { "none: what runs goes on, changes wait" } } }
            dt { "Voters" } dd { @if root.voters.is_empty() { "unknown" } @else { (root.voters.join(", ")) } }
        }
    }
}

/// One event. Its key tells it from others, so that the page adds each once.
pub fn event(event: &Event) -> Markup {
    html! {
        li data-key=(event_key(event)) {
            time datetime=(iso(event.at_ms)) { (&iso(event.at_ms)[11..19]) } " "
            span.kind data-kind=(event.kind) { (event.kind) } " "
            strong { (event.who) } " " (event.text)
        }
    }
}

pub fn event_key(event: &Event) -> String {
    format!("{} {} {} {}", event.at_ms, event.kind, event.who, event.text)
}

pub fn state(state: &str) -> Markup {
    html! { span.state data-state=(state) { (state) } }
}

pub fn ago(now_ms: u64, since_ms: u64) -> String {
    span(now_ms.saturating_sub(since_ms))
}

/// A length of time in the unit that says it.
pub fn span(ms: u64) -> String {
    match ms / 1000 {
        s if s < 120 => format!("{s} s"),
        s if s < 7200 => format!("{} min", s / 60),
        s if s < 172_800 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

/// `2026-01-31T23:59:59Z`.
fn iso(ms: u64) -> String {
    let (days, second) = (ms / 86_400_000, ms / 1000 % 86_400);
    // Days since 1970 to a date (Hinnant, "chrono-compatible low-level date algorithms"): years begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = (year_of_era + era * 400 + u64::from(month <= 2)) % 10_000;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Queue;

    fn picture() -> Picture {
        Picture::read(serde_json::json!({
            "cluster": "demo", "me": "n1", "at_ms": 1_000_000,
            "nodes": [
                {"name": "n1", "state": "live", "load": 250, "cpu_millis": 420, "resident_bytes": 33554432, "since_ms": 940000,
                 "gauges": {"http.requests": 1234}},
                {"name": "n2", "state": "dead", "pid": 77, "http": "127.0.0.2:8080", "https": "127.0.0.2:8443",
                 "resp": "127.0.0.2:6379", "api": "127.0.0.2:7070", "peer": "127.0.0.2:7071"},
                {"name": "n3", "state": "live", "brick": {"settled": true, "entries": 5, "bytes": 3145728, "bytes_max": 67108864}},
            ],
            "services": [{"name": "shop", "wanted": 2, "at": ["*"], "clones": [
                {"name": "shop/0", "node": "n1", "state": "serving"},
                {"name": "shop/1", "node": "n1", "state": "backoff", "last_exit": "exit status 1",
                 "last_output": ["<script>alert(1)</script>"]},
            ]}],
            "namespaces": [{"name": "carts", "class": "session", "lease_ms": 1800000, "promise": "kept",
                            "used": {"bytes": 2097152, "keys": 777, "percent": 83},
                            "hot": [{"key": "tickets<1>", "rate": 4321, "waiters": 63}]}],
            "stubs": [{"brick": "n3", "window": 64, "in_flight": 9, "slow": true, "timeouts": 12, "no_room": 3,
                       "turned_away": 41, "full": 17}],
            "root": {"leader": null, "voters": ["n1"], "version": 4},
            "events": [{"at_ms": 0, "kind": "birth", "who": "n1", "text": "came"},
                       {"at_ms": 951827696000u64, "kind": "death", "who": "n2\" onload=\"x", "text": "<b>gone</b>"}],
        }))
        .unwrap()
    }

    fn written() -> String {
        page(&picture(), &History::default(), None).into_string()
    }

    fn count(text: &str, what: &str) -> usize {
        text.matches(what).count()
    }

    #[test]
    fn what_a_namespace_holds_is_shown_with_its_part_of_a_bound() {
        let mut picture = picture();
        let shown = namespaces(&picture).into_string();
        assert!(shown.contains("777") && shown.contains("2MiB, 83 %"), "{shown}");
        picture.namespaces[0].used = Some(Used { percent: 0, ..picture.namespaces[0].used.unwrap() });
        assert!(namespaces(&picture).into_string().contains(">2MiB<"));
    }

    #[test]
    fn queues_are_shown_and_dead_jobs_have_a_button() {
        let mut picture = picture();
        assert!(!namespaces(&picture).into_string().contains("Queues of jobs"));
        let queue =
            |name: &str, dead| Queue { name: name.into(), waiting: 4, oldest_ms: 90_000, dead, ..Queue::default() };
        picture.namespaces[0].queues = vec![queue("mails<1>/x", 3), queue("idle", 0), queue("a\\xff", 1)];
        let shown = namespaces(&picture).into_string();
        for part in ["Queues of jobs", "mails&lt;1&gt;/x", "/v1/ns/carts/queues/mails%3C1%3E%2Fx/retry"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        assert_eq!(count(&shown, "/retry"), 1, "{shown}");
        // Who sees no names has the same button: the node knows what is behind the hash.
        picture.namespaces[0].queues[0] = Queue { is_hidden: true, ..queue("0123abcd", 3) };
        let shown = namespaces(&picture).into_string();
        assert!(shown.contains("/v1/ns/carts/queues/0123abcd/retry?hidden=true"), "{shown}");
    }

    #[test]
    fn hot_keys_are_shown_where_there_are_any() {
        let shown = namespaces(&picture()).into_string();
        for part in ["Hot keys", "tickets&lt;1&gt;", "4321", "63"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        let mut cool = picture();
        cool.namespaces[0].hot.clear();
        assert!(!namespaces(&cool).into_string().contains("Hot keys"));
    }

    #[test]
    fn bricks_show_their_memory_and_the_windows_towards_them() {
        let shown = bricks(&picture()).into_string();
        for part in [
            "settled",
            "3 of 64 MiB",
            "64 (slow)",
            ">9<",
            ">12<",
            ">3<",
            ">41<",
            ">17<",
            "Turned away",
            "being filled",
            "its own: asked by a call",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("n2"), "a dead one has no memory");
    }

    #[test]
    fn objects_are_shown_as_each_node_has_them() {
        let mut of = picture();
        assert!(objects(&of).into_string().contains("There are none."));
        let gauges = [
            ("objects", 821),
            ("bytes", 5 << 20),
            ("disk_bytes", 7 << 20),
            ("memory_bytes", 3 << 20),
            ("thin", 31),
            ("open", 42),
            ("pending", 7),
            ("tombstones", 96),
            ("buckets", 128),
            ("buckets_partial", 64),
        ];
        of.nodes[0].gauges.extend(gauges.map(|(name, value)| (format!("object.{name}"), value)));
        let shown = objects(&of).into_string();
        let cells = [">821<", ">5 MiB<", ">7 MiB<", ">3 MiB<", ">31<", ">42<", ">7<", ">96<", ">128<", ">64<"];
        let at: Vec<_> =
            cells.iter().map(|cell| shown.find(cell).unwrap_or_else(|| panic!("{cell}: {shown}"))).collect();
        assert!(at.is_sorted(), "{shown}");
        assert!(shown.contains("n3") && !shown.contains("n2"), "a dead one has none: {shown}");
    }

    #[test]
    fn it_tells_how_nodes_for_overflow_were_needed() {
        let mut of = picture();
        assert_eq!(overflow(&of), None);
        of.nodes[0].overflow = true;
        assert!(nodes(&of).into_string().contains("never needed"));
        of.overflow = crate::picture::Overflow { times: 2, total_ms: 600_000, since_ms: Some(970_000), last_ms: 1 };
        assert!(nodes(&of).into_string().contains("recruited 2 times, for 10 min in all; needed now, since 30 s."));
        of.overflow.since_ms = None;
        assert!(nodes(&of).into_string().contains("; released 16 min ago."));
    }

    #[test]
    fn shards_and_certificates_show_what_is_wrong_before_anything_is_opened() {
        let mut picture = picture();
        let shard = |leader: Option<&str>| crate::picture::Shard {
            name: "bank/0".into(),
            leader: leader.map(str::to_owned),
            members: vec!["n1".into(), "n2".into()],
        };
        picture.namespaces[0].shards = vec![shard(Some("n1")), shard(Some("n2"))];
        let led = namespaces(&picture).into_string();
        assert!(led.contains("2, all led") && !led.contains(" open"), "{led}");
        picture.namespaces[0].shards[1].leader = None;
        let lost = namespaces(&picture).into_string();
        assert!(lost.contains("1 without a leader") && lost.contains("open data-open"), "{lost}");
        assert!(lost.contains("bank/0: n1 of n1, n2"), "{lost}");

        assert!(certificates(&picture).into_string().contains("coppice certificate set"));
        let of = |ends_at_ms, why: Option<&str>| Certificate {
            name: "shop".into(),
            names: vec!["shop.example".into()],
            issuer: "R11".into(),
            ends_at_ms,
            from: Some("https://ca.example/dir".into()),
            why: why.map(str::to_owned),
        };
        let far = picture.at_ms + 80 * 86_400_000;
        picture.certificates = vec![of(far, None), of(picture.at_ms - 1, None), of(0, Some("<no>"))];
        let shown = certificates(&picture).into_string();
        for part in [
            "<td>in ",
            "<strong>has ended</strong>",
            "has not come yet",
            "&lt;no&gt;",
            "by itself from https://ca.example/dir",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn nodes_can_be_drained_and_put_back() {
        let mut of = picture();
        let shown = nodes(&of).into_string();
        assert_eq!(count(&shown, "data-post=\"/v1/nodes/n1/drain\""), 1, "{shown}");
        assert!(!shown.contains("n2/drain"), "a dead one has nothing to move");
        of.nodes[0].drained = true;
        let shown = nodes(&of).into_string();
        assert!(shown.contains("data-post=\"/v1/nodes/n1/undrain\"") && !shown.contains("n1/drain"), "{shown}");
    }

    #[test]
    fn it_can_be_read_by_its_landmarks_and_headings() {
        let page = written();
        for (what, times) in [
            ("<header>", 1),
            ("<nav ", 1),
            ("<main ", 1),
            ("<footer>", 1),
            ("<h1>", 1),
            ("<h2 ", 13),
            ("<dialog ", 1),
            ("lang=\"en\"", 1),
            ("aria-live=", 1),
        ] {
            assert_eq!(count(&page, what), times, "{what}");
        }
        assert!(page.contains("<a class=\"skip\" href=\"#main\">"));
        for part in &PARTS {
            assert!(
                page.contains(&format!("<section id=\"{0}\" aria-labelledby=\"{0}-title\">", part.id)),
                "{}",
                part.id
            );
        }
        // Each row and each column says what it is.
        assert_eq!(count(&page, "<tr"), count(&page, "<thead") + count(&page, "th scope=\"row\""));
        assert_eq!(count(&page, "<th "), count(&page, "<th scope="));
        assert_eq!(count(&page, "<svg "), count(&page, "role=\"img\""));
    }

    #[test]
    fn nothing_runs_in_it_but_its_own_file() {
        let page = written();
        assert_eq!(count(&page, "<script"), 1);
        assert!(page.contains("<script src=\"/assets/monitor.js\" defer></script>"));
        for inline in ["<style", " style=", " onload", "javascript:", "http://", "https://"] {
            let found = page.find(inline).map(|at| &page[at..(at + 40).min(page.len())]);
            let escaped = inline == " onload" && page.contains("n2&quot; onload=&quot;x");
            assert!(found.is_none() || escaped, "{found:?}");
        }
        assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("&lt;b&gt;gone"));
    }

    #[test]
    fn each_door_of_a_node_is_shown_that_it_has() {
        let shown = nodes(&picture()).into_string();
        let doors = "http 127.0.0.2:8080 https 127.0.0.2:8443 resp 127.0.0.2:6379 api 127.0.0.2:7070";
        assert!(shown.contains(doors), "{shown}");
    }

    #[test]
    fn it_says_what_is_wrong_in_words() {
        let page = written();
        for words in [
            "2 of 3 nodes live",
            "too few clones serve shop",
            "exit status 1",
            "none: what runs goes on, changes wait",
            "1234 HTTP requests",
            "pid was 77",
            "30 min",
            "60 s",
        ] {
            assert!(page.contains(words), "{words}");
        }
        let broken = page_with_problem();
        assert!(broken.contains("<p class=\"problem\" role=\"alert\">no view</p>"));
    }

    fn page_with_problem() -> String {
        page(&Picture::default(), &History::default(), Some("no view")).into_string()
    }

    #[test]
    fn events_stand_newest_first() {
        let page = written();
        let (death, birth) = (page.find("data-kind=\"death\"").unwrap(), page.find("data-kind=\"birth\"").unwrap());
        assert!(death < birth);
        assert!(page.contains("<time datetime=\"2000-02-29T12:34:56Z\">12:34:56</time>"));
    }

    #[test]
    fn moments_are_written_as_iso_8601_has_them() {
        for (ms, expect) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_709_251_199_000, "2024-02-29T23:59:59Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00Z"),
            (4_102_444_799_999, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(iso(ms), expect);
        }
        assert_eq!(iso(u64::MAX).len(), 20, "whatever a node says");
    }
}
