//! What the doors of the node that shows the page answered from edge caches, and by pipelines: how often something was there, and how
//! often something else stood in for what was asked for.

use maud::{Markup, html};

use crate::chart::number;
use crate::limits::ROWS_SHOWN;
use crate::picture::{CacheUse, Picture, PipeUse};

pub fn answers(picture: &Picture) -> Markup {
    html! {
        @if picture.caches.is_empty() && picture.pipelines.is_empty() {
            p { "No edge cache and no pipeline has had a request at this node." }
        }
        @if !picture.caches.is_empty() {
            (table("Table of edge caches", &["Cache of", "Requests", "From the cache", "Not fresh any more", "Not for a cache", "Stored"], html! {
                @for of in picture.caches.iter().take(ROWS_SHOWN) { (cached(of)) }
            }))
        }
        @if !picture.pipelines.is_empty() {
            (table("Table of pipelines", &["Pipeline", "Answers", "Exact", "In part", "Near", "Original", "Failed", "Jobs", "Done before"], html! {
                @for of in picture.pipelines.iter().take(ROWS_SHOWN) { (piped(of)) }
            }))
        }
        @if !picture.caches.is_empty() || !picture.pipelines.is_empty() {
            p.faint { "Of this node's doors, since it started. Wait and time of each step's workers are among the " a href="#stages" { "stages" } "." }
        }
    }
}

fn table(label: &str, heads: &[&str], rows: Markup) -> Markup {
    html! {
        div.wide tabindex="0" role="group" aria-label=(label) {
            table {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { (rows) }
            }
        }
    }
}

fn cached(of: &CacheUse) -> Markup {
    let looked = of.hits + of.stale + of.misses;
    html! {
        tr {
            th scope="row" { (of.service) }
            td.n { (number((looked + of.passed) as f64)) }
            td.n { (share(of.hits + of.stale, looked)) }
            td.n { (share(of.stale, looked)) }
            td.n { (share(of.passed, looked + of.passed)) }
            td.n { (number(of.stored as f64)) }
        }
    }
}

fn piped(of: &PipeUse) -> Markup {
    let all = of.exact + of.partial + of.near + of.original + of.failed;
    html! {
        tr {
            th scope="row" { (of.pipeline) }
            td.n { (number(all as f64)) }
            td.n { (share(of.exact, all)) }
            td.n { (share(of.partial, all)) }
            td.n { (share(of.near, all)) }
            td.n { (share(of.original, all)) }
            td.n { (share(of.failed, all)) }
            td.n { (number((of.jobs + of.hits) as f64)) }
            td.n { (share(of.hits, of.jobs + of.hits)) }
        }
    }
}

/// In per cent, with one more digit where it is little; nothing of nothing.
fn share(part: u64, all: u64) -> String {
    if all == 0 {
        return String::new();
    }
    let percent = part as f64 * 100.0 / all as f64;
    if percent > 0.0 && percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cache_and_each_pipeline_has_its_shares() {
        let picture = Picture::read(serde_json::json!({
            "caches": [{"service": "shop", "hits": 70, "stale": 5, "misses": 25, "passed": 100, "stored": 24, "stored_bytes": 9}],
            "pipelines": [{"pipeline": "page", "exact": 940, "partial": 20, "near": 33, "original": 7, "failed": 0, "jobs": 300, "hits": 700}],
        }))
        .unwrap();
        let shown = answers(&picture).into_string();
        let cells = |row: &str| -> Vec<String> {
            let at = shown.find(&format!("<th scope=\"row\">{row}</th>")).unwrap();
            let row = shown[at..].split("</tr>").next().unwrap();
            row.split("<td class=\"n\">").skip(1).map(|cell| cell.split('<').next().unwrap().to_owned()).collect()
        };
        assert_eq!(cells("shop"), ["200", "75 %", "5.0 %", "50 %", "24"]);
        let hits = number(1_000.0);
        assert_eq!(cells("page"), [&*hits, "94 %", "2.0 %", "3.3 %", "0.7 %", "0 %", &*hits, "70 %"]);
        assert_eq!(share(0, 0), "");
        let none = answers(&Picture::default()).into_string();
        assert!(none.contains("No edge cache and no pipeline") && !none.contains("<table"), "{none}");
    }
}
