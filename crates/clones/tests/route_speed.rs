//! How long it takes to find who takes a request, among 10,000 routes, by whatever they are told apart. Prints the figures; a release build is held to it.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use clones::partition::{Asked, Fraction, HashOn, HashRange, HeaderMatch, Headers};
use clones::spec::{HttpRoute, ServiceSpec};
use clones::{Partition, RouteService, Routes};

const PROMISED: Duration = Duration::from_micros(2);
const SERVICES: usize = 100;
const PARTITIONS: usize = 100;
const REQUESTS: usize = 10_000;

/// One field, `X-Tenant`.
struct Fields<'a>(&'a str);
impl Headers for Fields<'_> {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        name.eq_ignore_ascii_case("x-tenant") && test(self.0.as_bytes())
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

/// One service of 10,000 partitions that differ in nothing but this.
fn one_service(partition: impl Fn(u16) -> Partition) -> Routes {
    let mut spec = ServiceSpec::new(["x"]);
    spec.http = Some(HttpRoute { host: "*".into(), path: "/".into() });
    spec.partitions = (0..10_000).map(partition).collect();
    Routes::new(vec![RouteService::new("s", &spec)])
}

/// The best of five rounds, each request once. Each must find a partition.
fn held(what: &str, routes: &Routes, count: usize, request: impl Fn(usize) -> (String, String, String)) {
    let all: Vec<_> = (0..REQUESTS).map(|i| request(i * 61 % 10_000)).collect();
    let ask = |(host, path, value): &(String, String, String)| {
        let (client, headers) = ([192, 0, 2, 1].into(), Fields(value));
        routes.find(&Asked { port: 80, host, path, method: "GET", client, headers: &headers })
    };
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        let found = all.iter().filter(|request| ask(request).is_some_and(|found| found.partition.is_some())).count();
        best = best.min(begun.elapsed() / REQUESTS as u32);
        assert!(found > REQUESTS * 6 / 10, "{what}: {found}");
    }
    println!("{count} routes told apart by {what}: {best:?} for each request");
    if !cfg!(debug_assertions) {
        assert!(best < PROMISED, "{what}: {best:?}");
    }
}

#[test]
fn ten_thousand_hosts_and_paths_are_told_apart_in_two_microseconds() {
    held("host and path", &routes(), SERVICES * (PARTITIONS + 1), |i| {
        let (s, p) = (i % (SERVICES + 5), i % (PARTITIONS + 10));
        let below = if s.is_multiple_of(10) { "eu." } else { "" };
        (format!("{below}s{s}.shop.example:8080"), format!("/v1/{}/part{p}/item/{i}", p % 7), String::new())
    });
}

#[test]
fn ten_thousand_ends_of_paths_are_told_apart_in_two_microseconds() {
    let routes =
        one_service(|p| Partition { path_suffix: Some(format!("-{p}.jpg")), ..Partition::new(format!("p{p}")) });
    held("suffix", &routes, 10_000, |i| ("a.example".into(), format!("/images/{}/of-{i}.jpg", i % 7), String::new()));
}

#[test]
fn ten_thousand_parts_of_paths_are_told_apart_in_two_microseconds() {
    let routes =
        one_service(|p| Partition { path_contains: Some(format!("/of-{p}/")), ..Partition::new(format!("p{p}")) });
    held("a part of the path", &routes, 10_000, |i| {
        ("a.example".into(), format!("/images/{}/of-{i}/small.jpg", i % 7), String::new())
    });
}

#[test]
fn ten_thousand_values_of_a_header_are_told_apart_in_two_microseconds() {
    let tenant = |p| HeaderMatch { name: "X-Tenant".into(), is: Some(format!("tenant-{p}")), begins: None };
    let routes = one_service(|p| Partition { header: vec![tenant(p)], ..Partition::new(format!("p{p}")) });
    held("header", &routes, 10_000, |i| ("a.example".into(), "/".into(), format!("tenant-{i}")));
}

#[test]
fn ten_thousand_parts_of_a_hash_are_told_apart_in_two_microseconds() {
    let slice = |p| HashRange { on: HashOn::Path, from: Fraction(p), to: Fraction(p + 1) };
    let routes = one_service(|p| Partition { hash_range: Some(slice(p)), ..Partition::new(format!("p{p}")) });
    held("hash", &routes, 10_000, |i| ("a.example".into(), format!("/carts/{i}"), String::new()));
}
