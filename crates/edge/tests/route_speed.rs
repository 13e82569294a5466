//! How long it takes to find who takes a request, among 10,000 routes. Prints the figure; a release build is held to it.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use clones::partition::{Asked, Headers};
use clones::spec::{HttpRoute, ServiceSpec};
use clones::{Partition, RouteService, Routes};

const PROMISED: Duration = Duration::from_micros(2);
const SERVICES: usize = 100;
const PARTITIONS: usize = 100;
const REQUESTS: usize = 10_000;

struct Fields;
impl Headers for Fields {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        name == "x-plan" && test(b"gold")
    }
}

/// A hundred services with a host each (some with a wildcard), each with a hundred paths, some with conditions.
fn routes() -> Routes {
    let service = |s: usize| {
        let mut spec = ServiceSpec::new(["x"]);
        let star = if s.is_multiple_of(10) { "*." } else { "" };
        spec.http = Some(HttpRoute { host: format!("{star}s{s}.shop.example"), path: "/".into() });
        spec.partitions = (0..PARTITIONS)
            .map(|p| Partition {
                path: Some(format!("/v1/{}/part{p}", p % 7)),
                method: if p.is_multiple_of(5) { vec!["POST".into()] } else { Vec::new() },
                ..Partition::new(format!("p{p}"))
            })
            .collect();
        RouteService::new(&format!("s{s}"), &spec)
    };
    Routes::new((0..SERVICES).map(service).collect())
}

#[test]
fn ten_thousand_routes_are_found_in_two_microseconds() {
    let routes = routes();
    let all: Vec<(String, String)> = (0..REQUESTS)
        .map(|i| {
            let (s, p) = (i * 37 % (SERVICES + 5), i * 61 % (PARTITIONS + 10));
            let below = if s.is_multiple_of(10) { "eu." } else { "" };
            (format!("{below}s{s}.shop.example:8080"), format!("/v1/{}/part{p}/item/{i}", p % 7))
        })
        .collect();
    let ask = |(host, path): &(String, String)| {
        let client = [192, 0, 2, 1].into();
        routes.find(&Asked { port: 80, host, path, method: "GET", client, headers: &Fields })
    };
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        let found = all.iter().filter(|request| ask(request).is_some()).count();
        best = best.min(begun.elapsed() / REQUESTS as u32);
        assert!(found > REQUESTS * 9 / 10, "{found}");
    }
    println!("{} routes: {best:?} for each request", SERVICES * (PARTITIONS + 1));
    if !cfg!(debug_assertions) {
        assert!(best < PROMISED, "{best:?}");
    }
}
