//! Services: their clones, and their partitions with what their requests met at the doors of the node that shows the page.

use maud::{Markup, html};

use crate::chart::number;
use crate::limits::*;
use crate::page::{ago, span, state};
use crate::picture::{CloneOf, PartFigures, Picture, Run, Runs, Service, Worked};
use crate::stages::{millis, of_service};
use crate::switch::{disable, enable};

pub fn services(picture: &Picture) -> Markup {
    html! {
        @if picture.services.is_empty() { p { "None are declared. " code { "coppice apply -f FILE" } " declares some." } }
        @for service in &picture.services {
            @let is_well = is_well(service);
            details.service id={ "service-" (service.name) } open[!is_well] data-open[!is_well] {
            summary { h3 { (service.name) } " " (in_short(picture, service)) }
            @if let Some(runs) = &service.runs { (runs_of(picture.at_ms, runs)) }
            @for queue in &service.queues { p { "Works on " code { (queue.namespace) "/" (queue.queue) } ": " (worked(queue)) } }
            p {
                @if !service.at.is_empty() { "At " (service.at.join(", ")) ". " }
                @if service.openapi.is_some() { a href={ "/v1/catalog/" (service.name) "/openapi" } { "What it offers" } }
                " " @if !is_off(service, &service.name) { (disable(&service.name)) }
            }
            @if !service.off.is_empty() {
                p { "Out of use: " @for part in &service.off { strong { (part) } " " (enable(part)) " " } }
            }
            @if !service.clones.is_empty() {
                div.wide tabindex="0" role="group" aria-label={ "Table of clones of " (service.name) } {
                    table {
                        thead {
                            tr {
                                @for head in ["Clone", "State", "Node", "Pid", "Port", "Restarts", "For", "Requests", "Failed", "Under way", "p50", "p99", "CPU", "Memory", "Last end", "Maintenance"] {
                                    th scope="col" { (head) }
                                }
                            }
                        }
                        tbody { @for clone in &service.clones { (clone_row(picture, service, clone)) } }
                    }
                }
            }
            @if service.clones.iter().any(|clone| clone.asked.is_some()) {
                p.faint { "Requests and times of clones are what the doors of all nodes saw of them in the last 5 to 10 s; processor and memory those of its process and what that started." }
            }
            (partitions(picture, service))
            (of_service(picture, &service.name))
            }
        }
    }
}

fn serving(service: &Service) -> usize {
    service.clones.iter().filter(|clone| clone.state == "serving").count()
}

/// Nothing of it needs to be looked at: it is one line until somebody opens it.
fn is_well(service: &Service) -> bool {
    let all_serve = serving(service) >= service.wanted as usize && serving(service) == service.clones.len();
    let last_run = service.runs.as_ref().and_then(|runs| runs.job.last.as_ref());
    all_serve && service.off.is_empty() && last_run.is_none_or(|last| last.good)
}

/// A service's line: what serves, and what all doors saw of its clones together.
fn in_short(picture: &Picture, service: &Service) -> Markup {
    let asked = || service.clones.iter().filter_map(|clone| clone.asked);
    let (requests, failed): (u64, u64) = (asked().map(|of| of.requests).sum(), asked().map(|of| of.failed).sum());
    let took: u64 = asked().map(|of| of.mean_us.saturating_mul(of.requests)).sum();
    // Told while it lasts: of the service, or of a partition.
    let told = |figure: &str| {
        let part = figure.strip_suffix(".refused_a_second").and_then(|stage| stage.strip_prefix("stage.http-"));
        part.is_some_and(|part| part.split('/').next() == Some(service.name.as_str()))
    };
    let hot = picture.nodes.iter().filter(|node| node.state != "dead" && node.gauges.keys().any(|figure| told(figure)));
    let at: Vec<&str> = hot.map(|node| node.name.as_str()).collect();
    let restarts: u32 = service.clones.iter().map(|clone| clone.restarts).sum();
    html! {
        span.brief {
            (serving(service)) " of " (service.wanted) " clones serve"
            @if requests > 0 {
                ", " (number(requests as f64)) " requests lately, "
                @if failed > 0 { strong { (number(failed as f64)) " failed" } } @else { "none failed" }
                ", " (millis(took / requests)) " on average"
            }
            @if restarts > 0 { ", " (restarts) @if restarts == 1 { " restart" } @else { " restarts" } }
            @if !at.is_empty() { ", " strong { "overloaded at " (at.join(", ")) } }
            @if !service.off.is_empty() { ", " strong { "partly out of use" } }
        }
    }
}

/// What is in a queue that it works on.
fn worked(queue: &Worked) -> String {
    match (queue.is_told, queue.waiting) {
        (false, _) => "nobody tells of it, so it has had no job yet or its shard has no leader.".to_owned(),
        (true, 0) => format!("nothing waits, workers have {}.", queue.held),
        (true, waiting) => {
            format!("{waiting} wait, the oldest for {}, workers have {}.", span(queue.oldest_ms), queue.held)
        }
    }
}

/// When it runs, how its last run ended, and what a version waits for.
fn runs_of(now_ms: u64, runs: &Runs) -> Markup {
    let state = |run: &Run| match (&run.node, &run.last) {
        (Some(node), _) => format!("runs on {node} for {}", ago(now_ms, run.since_ms)),
        (None, Some(last)) if last.good => {
            format!("the last run was good, on {}, {} ago", last.node, ago(now_ms, last.ended_ms))
        }
        (None, Some(last)) => {
            format!("the last run FAILED on {}, {} ago: {}", last.node, ago(now_ms, last.ended_ms), last.how)
        }
        (None, None) => "has not run yet".to_owned(),
    };
    html! {
        @if let Some(times) = &runs.times {
            p {
                "Runs at " code { (times) } " (UTC); " (state(&runs.job))
                @if let Some(next) = runs.next_ms { "; next in " (span(next.saturating_sub(now_ms))) }
            }
        }
        @if let Some(version) = runs.waits_for_before { p { "Before version " (version) ": " (state(&runs.before)) } }
    }
}

fn is_off(service: &Service, part: &str) -> bool {
    service.off.iter().any(|off| off == part)
}

fn clone_row(picture: &Picture, service: &Service, clone: &CloneOf) -> Markup {
    let output = &clone.last_output[clone.last_output.len().saturating_sub(OUTPUT_LINES_SHOWN)..];
    html! {
        tr {
            th scope="row" { (clone.name) }
            td { (state(&clone.state)) }
            td { (clone.node) }
            td.n { (clone.pid) }
            td.n { (clone.port) }
            td.n { (clone.restarts) }
            td.n { (ago(picture.at_ms, clone.since_ms)) }
            @if let Some(asked) = clone.asked {
                td.n { (number(asked.requests as f64)) }
                td.n { (number(asked.failed as f64)) }
                td.n { (number(asked.under_way as f64)) }
                // Of a node of the program before there is the mean alone.
                td.n { (millis(asked.p50_us.unwrap_or(asked.mean_us))) }
                td.n { @if let Some(us) = asked.p99_us { (millis(us)) } }
            } @else {
                td.n {} td.n {} td.n {} td.n {} td.n {}
            }
            td.n { @if let Some(cpu) = clone.cpu_millis { (cpu / 10) " %" } }
            td.n { @if let Some(bytes) = clone.resident_bytes { (bytes >> 20) " MB" } }
            td {
                @if let Some(exit) = &clone.last_exit { (exit) }
                @if !output.is_empty() {
                    details id={ "output-" (clone.name) } {
                        summary { "Last output" }
                        pre { @for line in output { (line) "\n" } }
                    }
                }
            }
            td { @if !is_off(service, &clone.name) { (disable(&clone.name)) } }
        }
    }
}

/// Of a service that has some, and then its rest.
fn partitions(picture: &Picture, service: &Service) -> Markup {
    let heads = [
        "Partition",
        "Priority",
        "Clones of its own",
        "State",
        "Requests",
        "Refused",
        "Asked again",
        "p50",
        "p99",
        "Maintenance",
    ];
    let none = PartFigures::default();
    // A service that is reached both ways has its partitions for HTTP.
    let of = |name: &str| {
        let of_it = picture.partitions.iter().filter(|p| p.service == service.name && p.partition == name);
        of_it.min_by_key(|p| &p.door).unwrap_or(&none)
    };
    let figures = |of: &PartFigures| {
        html! {
            td.n { (number(of.requests as f64)) }
            td.n { (number(of.refused as f64)) }
            td.n { (number(of.asked_more as f64)) }
            td.n { (millis(of.p50_us)) }
            td.n { (millis(of.p99_us)) }
        }
    };
    html! {
        @if !service.partitions.is_empty() {
            div.wide tabindex="0" role="group" aria-label={ "Table of partitions of " (service.name) } {
                table {
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody {
                        @for partition in service.partitions.iter().take(ROWS_SHOWN) {
                            @let part = format!("{}:{}", service.name, partition.name);
                            tr {
                                th scope="row" { (part) }
                                td.n { (partition.priority) }
                                td.n { (partition.share) }
                                td { @if is_off(service, &part) { strong { "out of use" } } @else { "in use" } }
                                (figures(of(&partition.name)))
                                td { @if is_off(service, &part) { (enable(&part)) } @else { (disable(&part)) } }
                            }
                        }
                        tr {
                            th scope="row" { "the rest" }
                            td { "5" } td {} td {}
                            (figures(of("")))
                            td {}
                        }
                    }
                }
            }
            @if let Some(more @ 1..) = service.partitions.len().checked_sub(ROWS_SHOWN) {
                p { (more) " more are in " a href="/metrics" { "metrics" } "." }
            }
            p.faint { "Requests and times are of this node's doors, since it started." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(off: &[&str]) -> String {
        let picture = Picture::read(serde_json::json!({
            "services": [{"name": "shop", "wanted": 1, "off": off, "clones": [{"name": "shop/0", "state": "serving"}],
                          "partitions": [{"name": "pay", "priority": 9, "share": "25%"}, {"name": "idle"}]}],
            "partitions": [
                {"service": "shop", "partition": "pay", "requests": 77, "refused": 11, "p50_us": 1500, "p99_us": 23456},
                {"service": "shop", "partition": "", "requests": 55},
                {"service": "other", "partition": "pay", "requests": 99},
            ],
        }));
        services(&picture.unwrap()).into_string()
    }

    #[test]
    fn partitions_show_what_they_are_and_what_they_met() {
        let shown = shown(&[]);
        for part in ["shop:pay", ">9<", ">25%<", ">77<", ">11<", ">1.5 ms<", ">23 ms<", "shop:idle", "the rest", ">55<"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains(">99<"), "that is another service's");
    }

    #[test]
    fn the_slow_one_of_several_clones_is_seen() {
        let clone = |number: u32, us: u64| {
            serde_json::json!({"name": format!("shop/{number}"), "state": "serving",
                "cpu_millis": 973, "resident_bytes": 61 << 20,
                "asked": {"requests": 44, "failed": 6, "mean_us": 1, "p50_us": us, "p99_us": us * 3, "under_way": 8}})
        };
        let clones = [clone(0, 20_000), clone(1, 1_000_000)];
        let picture = Picture::read(serde_json::json!({"services": [{"name": "shop", "wanted": 2, "clones": clones}]}));
        let shown = services(&picture.unwrap()).into_string();
        for part in
            [">44<", ">6<", ">8<", ">20 ms<", ">60 ms<", ">1000 ms<", ">97 %<", ">61 MB<", "the doors of all nodes"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn a_service_is_one_line_until_something_is_to_be_looked_at() {
        let service = |state: &str, wanted: u32, more: serde_json::Value| {
            let mut of = serde_json::json!({"name": "shop", "wanted": wanted, "clones": [
                {"name": "shop/0", "state": "serving", "asked": {"requests": 30, "failed": 0, "mean_us": 2000}},
                {"name": "shop/1", "state": state, "asked": {"requests": 10, "failed": 0, "mean_us": 6000}}]});
            of.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let nodes =
                serde_json::json!([{"name": "n1"}, {"name": "n2", "gauges": {"stage.http-shop.refused_a_second": 0}}]);
            services(&Picture::read(serde_json::json!({"services": [of], "nodes": nodes})).unwrap()).into_string()
        };
        let none = serde_json::json!({});
        let well = service("serving", 2, none.clone());
        assert!(well.contains("<details class=\"service\" id=\"service-shop\">"), "{well}");
        assert!(well.contains("2 of 2 clones serve, 40 requests lately, none failed, 3.0 ms on average"), "{well}");
        assert!(well.contains("overloaded at n2"), "{well}");
        let run = serde_json::json!({"runs": {"times": "0 3 * * *", "job": {"last": {"good": false}}}});
        let queue = |waiting| {
            let of = serde_json::json!({"namespace": "jobs", "queue": "mails", "is_told": waiting < 9, "waiting": waiting,
                "held": 2, "oldest_ms": 7_000});
            service("serving", 2, serde_json::json!({"queues": [of]}))
        };
        for (waiting, said) in
            [(0, "nothing waits, workers have 2."), (4, "4 wait, the oldest for 7"), (9, "nobody tells")]
        {
            let shown = queue(waiting);
            assert!(shown.contains("<code>jobs/mails</code>") && shown.contains(said), "{shown}");
        }
        for ill in [
            service("backoff", 2, none.clone()),
            service("serving", 3, none),
            service("serving", 2, serde_json::json!({"off": ["shop/7"]})),
            service("serving", 2, run),
        ] {
            assert!(ill.contains("id=\"service-shop\" open data-open>"), "{ill}");
        }
    }

    #[test]
    fn each_can_be_taken_out_of_use_and_what_is_out_of_use_put_back() {
        let in_use = shown(&[]);
        for part in ["shop", "shop/0", "shop:pay"] {
            assert_eq!(in_use.matches(&format!("data-post=\"/v1/disable/{part}\"")).count(), 1, "{part}: {in_use}");
        }
        assert!(!in_use.contains("/v1/enable/"));
        // A clone that ended has no row any more, and is put back all the same.
        let off = shown(&["shop", "shop/0", "shop/1", "shop:pay"]);
        for part in ["shop", "shop/0", "shop/1", "shop:pay"] {
            assert!(off.contains(&format!("data-post=\"/v1/enable/{part}\"")), "{part}: {off}");
            assert!(!off.contains(&format!("data-post=\"/v1/disable/{part}\"")), "{part}: {off}");
        }
        assert!(off.contains("/v1/disable/shop:idle"));
    }
}
