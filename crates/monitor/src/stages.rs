//! The stages of each node, by name: what waits, what is under way and may be, how long things take, who is overloaded.
//! A node's figures come flat (`stage.resp-session.limit`); a new figure of a newer version is simply not shown.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::chart::number;
use crate::history::History;
use crate::limits::ROWS_SHOWN;
use crate::picture::{Node, Picture};

pub fn stages(picture: &Picture, _: &History) -> Markup {
    let all = || all(picture).filter(|(_, name, _)| !name.starts_with(OF_CLONE));
    html! {
        p {
            "A stage lets in as many as it finds to be good, holds the others for a moment, and refuses what would wait too long. "
            "Times are of the last second; what was started and refused, and how often it became overloaded, is counted since it "
            "began. Of other nodes' HTTP doors the first 16 that are used are here: each node's page has all of its own."
        }
        (table("Table of stages", all()))
        @if let Some(more @ 1..) = all().count().checked_sub(ROWS_SHOWN) {
            p { (more) " more are in " a href="/metrics" { "metrics" } "." }
        }
    }
}

/// Stages of a service's programs, as these tell them (`clone-shop/2:database`).
pub fn of_service(picture: &Picture, service: &str) -> Markup {
    let its = || {
        all(picture).filter_map(|(node, name, figures)| {
            let name = name.strip_prefix(OF_CLONE)?;
            let (of, _) = name.split_once('/')?;
            (of == service).then_some((node, name, figures))
        })
    };
    html! {
        @if its().next().is_some() {
            (table(&format!("Table of stages of {service}"), its()))
            @if let Some(more @ 1..) = its().count().checked_sub(ROWS_SHOWN) {
                p { (more) " more are in " a href="/metrics" { "metrics" } "." }
            }
            p.faint { "Stages are what the programs say of themselves; of other nodes' the first 16 are here." }
        }
    }
}

/// Of clones' stages.
const OF_CLONE: &str = "clone-";
const HEADS: [&str; 13] = [
    "Stage",
    "Node",
    "State",
    "Waiting",
    "Under way",
    "Limit",
    "Wait p50",
    "Wait p99",
    "Service p50",
    "Service p99",
    "Started",
    "Refused",
    "Overloads",
];

type Row<'a> = (&'a Node, &'a str, BTreeMap<&'a str, u64>);

fn all(picture: &Picture) -> impl Iterator<Item = Row<'_>> {
    let alive = picture.nodes.iter().filter(|node| node.state != "dead");
    alive.flat_map(|node| of(&node.gauges).into_iter().map(move |(name, figures)| (node, name, figures)))
}

fn table<'a>(label: &str, rows: impl Iterator<Item = Row<'a>>) -> Markup {
    html! {
        div.wide tabindex="0" role="group" aria-label=(label) {
            table {
                thead { tr { @for head in HEADS { th scope="col" { (head) } } } }
                tbody {
                    @for (node, name, figures) in rows.take(ROWS_SHOWN) {
                        tr {
                            th scope="row" { (name) }
                            td { (node.name) }
                            td { @if figures.get("overloaded") == Some(&1) { strong { "overloaded" } } @else { "well" } }
                            @for figure in ["waiting", "under_way", "limit"] {
                                td.n { (figures.get(figure).copied().unwrap_or(0)) }
                            }
                            @for figure in ["wait_p50_us", "wait_p99_us", "service_p50_us", "service_p99_us"] {
                                td.n { (millis(figures.get(figure).copied().unwrap_or(0))) }
                            }
                            @for figure in ["started_total", "refused_total", "overloads_total"] {
                                td.n { (number(figures.get(figure).copied().unwrap_or(0) as f64)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Figures of each stage by their names.
fn of(gauges: &BTreeMap<String, u64>) -> BTreeMap<&str, BTreeMap<&str, u64>> {
    let mut stages: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for (name, value) in gauges {
        if let Some((stage, figure)) = name.strip_prefix("stage.").and_then(|name| name.rsplit_once('.')) {
            stages.entry(stage).or_default().insert(figure, *value);
        }
    }
    stages
}

pub fn millis(us: u64) -> String {
    if us < 10_000 { format!("{}.{} ms", us / 1000, us / 100 % 10) } else { format!("{} ms", us / 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_of_each_live_node_is_a_row() {
        let picture = Picture::read(serde_json::json!({
            "nodes": [
                {"name": "n1", "state": "live", "gauges": {
                    "http.requests": 9, "stage.http-shop.overloaded": 1, "stage.http-shop.limit": 84,
                    "stage.http-shop.wait_p99_us": 12345, "stage.resp-session.waiting": 7, "stage.resp-session.service_p50_us": 450,
                    "stage.http-shop.wait_p50_us": 2100, "stage.http-shop.service_p99_us": 33000, "stage.http-shop.started_total": 61,
                    "stage.http-shop.refused_total": 62, "stage.http-shop.overloads_total": 63, "stage.http-shop.under_way": 64,
                }},
                {"name": "n2", "state": "dead", "gauges": {"stage.resp-session.limit": 77}},
            ],
        }))
        .unwrap();
        let shown = stages(&picture, &History::default()).into_string();
        for part in [
            "http-shop",
            "<strong>overloaded</strong>",
            ">84<",
            ">12 ms<",
            "resp-session",
            ">7<",
            ">0.4 ms<",
            "well",
            ">2.1 ms<",
            ">33 ms<",
            ">61<",
            ">62<",
            ">63<",
            ">64<",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("77") && !shown.contains("requests"), "{shown}");
        assert_eq!(shown.matches("scope=\"row\"").count(), 2);
    }

    #[test]
    fn stages_of_programs_are_shown_under_their_service() {
        let picture = Picture::read(serde_json::json!({
            "nodes": [{"name": "n1", "state": "live", "gauges": {
                "stage.clone-shop/2:database.limit": 84, "stage.clone-shop/2:database.overloaded": 1,
                "stage.clone-shopper/0:requests.limit": 77, "stage.http-shop.limit": 66,
            }}],
        }))
        .unwrap();
        let its = of_service(&picture, "shop").into_string();
        assert!(its.contains("shop/2:database") && its.contains(">84<") && its.contains("overloaded"), "{its}");
        assert!(!its.contains(">77<") && !its.contains(">66<"), "{its}");
        let others = stages(&picture, &History::default()).into_string();
        assert!(others.contains(">66<") && !others.contains(">84<"), "{others}");
        assert_eq!(of_service(&picture, "none").into_string(), "");
    }
}
