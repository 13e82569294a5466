//! Figures of single clones: which of several is slow, or fails, or takes all the processor. What one node's doors saw is counted since
//! the start, so that Prometheus may sum over nodes; what all saw in the last seconds is beside it.

use std::sync::atomic::Ordering::Relaxed;

use node::View;
use node::view::AskedView;

use super::metrics::Text;
use crate::demand::{Demands, Ever};

/// Clones that one node's page shows of those that its doors know, and of those that it runs; the first by name. Each has some twenty
/// lines.
const CLONES_SHOWN_MAX: usize = 500;

/// What all doors saw of each clone in the last seconds, for those who look at one node alone.
pub fn asked(view: &View, out: &mut Text) {
    type Of = fn(&AskedView) -> u64;
    let families: [(&str, &str, Of); 3] = [
        (
            "coppice_clone_recent_requests",
            "Answers of a clone in the last 5 to 10 s, as the doors of all nodes saw them.",
            |a| a.requests,
        ),
        ("coppice_clone_recent_failures", "Of them, those that failed (5xx), and requests never answered.", |a| {
            a.failed
        }),
        ("coppice_clone_recent_mean_seconds", "What they took on average until the answer began.", |a| a.mean_us),
    ];
    for (name, help, of) in families {
        out.family(name, "gauge", help);
        // While one is replaced there are two of one name, which are asked as one.
        let mut last = "";
        for clone in view.services.iter().flat_map(|service| &service.clones) {
            let Some(asked) = clone.asked.as_ref().filter(|_| clone.name != last) else { continue };
            last = &clone.name;
            let value = of(asked) as f64;
            let value = if name.ends_with("_seconds") { value / 1e6 } else { value };
            out.sample(name, &[("clone", &clone.name)], value);
        }
    }
}

/// What this node's doors saw of each clone, wherever it runs, and what the processes of its own clones use.
pub fn here(view: &View, demands: &Demands) -> String {
    let mut out = Text::default();
    let seen = demands.evers(CLONES_SHOWN_MAX);
    let name = "coppice_clone_request_duration_seconds";
    out.family(
        name,
        "histogram",
        "From a request's way to a clone to the beginning of its answer, as this node's doors saw it.",
    );
    for (clone, ever) in &seen {
        out.histogram(name, &labels(clone), ever.took.within(), ever.took.sum_us());
    }
    type Of = fn(&Ever) -> u64;
    let families: [(&str, &str, &str, Of); 2] = [
        (
            "coppice_clone_failures_total",
            "counter",
            "Requests that a clone failed (5xx) or never answered, as this node's doors saw it.",
            |ever| ever.failed.load(Relaxed),
        ),
        (
            "coppice_clone_under_way",
            "gauge",
            "Requests of this node's doors that a clone has, at this moment.",
            |ever| ever.in_flight.load(Relaxed),
        ),
    ];
    for (name, kind, help, of) in families {
        out.family(name, kind, help);
        for (clone, ever) in &seen {
            out.sample(name, &labels(clone), of(ever));
        }
    }
    let name = "coppice_clone_cpu_seconds_total";
    out.family(
        name,
        "counter",
        "Processor time of a clone on this node and of what it started, since its process began.",
    );
    let uses = || view.uses.iter().take(CLONES_SHOWN_MAX);
    for (clone, used) in uses() {
        out.sample(name, &labels(clone), used.cpu_us as f64 / 1e6);
    }
    let name = "coppice_clone_resident_memory_bytes";
    out.family(name, "gauge", "Resident memory of a clone on this node and of what it started.");
    for (clone, used) in uses() {
        out.sample(name, &labels(clone), used.resident_bytes);
    }
    out.0
}

fn labels(clone: &str) -> [(&'static str, &str); 2] {
    [("service", clone.split_once('/').map_or(clone, |(service, _)| service)), ("clone", clone)]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use base::ProcUse;

    use super::*;

    #[test]
    fn each_clone_has_its_own_times_failures_and_process() {
        let (demands, addr) = (Demands::default(), ([127, 0, 0, 1], 1).into());
        let clones = ["shop/0", "shop/1"].map(|name| demands.clone_count(name, 3, addr));
        let ago = |ms| Instant::now().checked_sub(Duration::from_millis(ms)).unwrap();
        clones[0].begin().began(ago(3)).ended(false);
        clones[1].begin().began(ago(30_000)).ended(true);
        let _held = clones[1].begin();
        let used = ProcUse { cpu_us: 2_500_000, cpu_millis: 7, resident_bytes: 4096 };
        let view = View { uses: Arc::new([("shop/1".to_owned(), used)].into()), ..View::default() };
        let text = here(&view, &demands);
        for line in [
            "coppice_clone_request_duration_seconds_bucket{service=\"shop\",clone=\"shop/0\",le=\"10\"} 1",
            "coppice_clone_request_duration_seconds_bucket{service=\"shop\",clone=\"shop/1\",le=\"10\"} 0",
            "coppice_clone_request_duration_seconds_count{service=\"shop\",clone=\"shop/1\"} 1",
            "coppice_clone_failures_total{service=\"shop\",clone=\"shop/0\"} 0",
            "coppice_clone_failures_total{service=\"shop\",clone=\"shop/1\"} 1",
            "coppice_clone_under_way{service=\"shop\",clone=\"shop/1\"} 1",
            "coppice_clone_cpu_seconds_total{service=\"shop\",clone=\"shop/1\"} 2.5",
            "coppice_clone_resident_memory_bytes{service=\"shop\",clone=\"shop/1\"} 4096",
        ] {
            assert!(text.lines().any(|has| has == line), "{line}: {text}");
        }
        let many: Vec<_> = (0..2 * CLONES_SHOWN_MAX).map(|n| demands.clone_count(&format!("s/{n}"), 0, addr)).collect();
        let shown = here(&view, &demands).lines().filter(|line| line.starts_with("coppice_clone_under_way{")).count();
        assert_eq!((many.len(), shown), (2 * CLONES_SHOWN_MAX, CLONES_SHOWN_MAX));
    }
}
