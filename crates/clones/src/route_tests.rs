//! The table against the list that it stands for, and the order between services.

use proptest::prelude::*;

use super::*;
use crate::partition::{Fraction, HashOn, HashRange, HeaderMatch};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn service(name: &str, host: &str, path: &str) -> RouteService {
    RouteService {
        name: name.into(),
        http: Some(HttpRoute { host: host.into(), path: path.into() }),
        tcp: [].into(),
        session: None,
        profile: None,
        cache: None,
        pipeline: None,
        partition_pipelines: Default::default(),
        access_log: Default::default(),
        downlink: false,
        https: Default::default(),
        partitions: [].into(),
        wanted: 2,
        clones: Vec::new(),
        drain: crate::limits::DRAIN_DEFAULT,
        is_off: false,
        partitions_off: Vec::new(),
        allows: Default::default(),
        asks: Default::default(),
    }
}

fn routes(of: &[(&str, &str, &str)]) -> Routes {
    Routes::new(of.iter().map(|(name, host, path)| service(name, host, path)).collect())
}

fn asked<'a>(host: &'a str, path: &'a str, headers: &'a Vec<(String, String)>) -> Asked<'a> {
    Asked { port: 80, host, path, method: "GET", client: CLIENT, headers }
}

impl Headers for Vec<(String, String)> {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.as_slice().any(name, test)
    }
}

fn found<'a>(routes: &'a Routes, host: &str, path: &str) -> Option<&'a str> {
    routes.find(&asked(host, path, &Vec::new())).map(|found| routes.services[found.service].name.as_str())
}

#[test]
fn exact_host_then_longest_wildcard_then_longest_prefix_at_a_segment_border() {
    let all = [
        ("any", "*", "/"),
        ("api", "*", "/api"),
        ("deep", "*", "/api/v1/"),
        ("shop", "shop.example", "/"),
        ("six", "[::1]", "/"),
        ("wild", "*.example.org", "/"),
        ("wild-deep", "*.example.org", "/api/deep"),
        ("wilder", "*.eu.example.org", "/api"),
    ];
    let mut turned = all;
    turned.reverse();
    for routes in [routes(&all), routes(&turned)] {
        for (host, path, expect) in [
            ("x", "/", "any"),
            ("x", "", "any"),
            ("x", "*", "any"),
            ("", "/", "any"),
            ("x", "/apiary", "any"),
            ("x", "/api", "api"),
            ("x", "/api/", "api"),
            ("x", "/api/v1", "deep"),
            ("x", "/api/v1/x", "deep"),
            ("x", "/api/v10", "api"),
            ("shop.example", "/api", "shop"),
            ("SHOP.example.:8080", "/", "shop"),
            ("notshop.example", "/", "any"),
            ("www.shop.example", "/", "any"),
            ("[::1]:8080", "/", "six"),
            ("[::2]:8080", "/", "any"),
            ("example.org", "/", "any"),
            ("A.example.org", "/api", "wild"),
            ("b.a.example.org", "/api", "wild"),
            ("b.eu.example.org", "/api/x", "wilder"),
            ("b.eu.example.org", "/api/deep", "wilder"),
            ("b.eu.example.org", "/", "wild"),
        ] {
            assert_eq!(found(&routes, host, path), Some(expect), "{host:?} {path:?}");
        }
    }
}

#[test]
fn what_nobody_declared_is_not_found() {
    let routes = routes(&[("shop", "shop.example", "/cart")]);
    for (host, path) in [("x", "/cart"), ("shop.example", "/"), ("shop.example", "/carts"), ("", "")] {
        assert_eq!(found(&routes, host, path), None, "{host:?} {path:?}");
    }
    assert_eq!(routes.find_tcp(25, CLIENT, None), None);
    assert_eq!(found(&Routes::default(), "x", "/"), None);
}

#[test]
fn a_tcp_service_is_found_by_its_port_and_by_those_of_its_partitions() {
    let mut mail = RouteService { http: None, tcp: [TcpRoute::on(25)].into(), ..service("mail", "", "") };
    let bulk = Partition { port: Some(26), ..Partition::new("bulk") };
    mail.partitions = [bulk].into();
    assert_eq!(mail.tcp_ports().collect::<Vec<_>>(), [25, 26]);
    let routes = Routes::new(vec![mail]);
    assert_eq!(routes.find_tcp(25, CLIENT, None), Some(Found { service: 0, partition: None }));
    assert_eq!(routes.find_tcp(26, CLIENT, None), Some(Found { service: 0, partition: Some(0) }));
    assert_eq!(found(&routes, "x", "/"), None, "a service without an HTTP route is not reached by HTTP");
}

#[test]
fn a_client_is_found_by_any_door_of_a_service_and_the_door_is_known() {
    let doors = [TcpRoute::named("smtp", 25), TcpRoute { sni: Some("*".into()), ..TcpRoute::named("pop3s", 995) }];
    let mut mail = RouteService { http: None, tcp: doors.into(), ..service("mail", "", "") };
    mail.partitions = [Partition { port: Some(25), ..Partition::new("in") }].into();
    assert_eq!(mail.tcp_ports().collect::<Vec<_>>(), [25, 995], "a partition of a door has no port of its own");
    let routes = Routes::new(vec![mail]);
    for (port, partition, name) in [(25, Some(0), "smtp"), (995, None, "pop3s")] {
        let found = routes.find_tcp(port, CLIENT, Some("mail.example")).unwrap();
        assert_eq!(found, Found { service: 0, partition });
        assert_eq!(routes.tcp_door(port, found).unwrap().name.as_deref(), Some(name));
        assert_eq!(routes.tcp(port).unwrap().sni.is_some(), port == 995);
    }
    assert_eq!(routes.find_tcp(110, CLIENT, None), None);
}

#[test]
fn services_on_one_tcp_port_are_told_apart_by_the_host_that_is_asked_for() {
    let tls = |name: &str, sni: &str| {
        let tcp = TcpRoute { sni: Some(sni.into()), ..TcpRoute::on(443) };
        RouteService { http: None, tcp: [tcp].into(), ..service(name, "", "") }
    };
    let all = [tls("any", "*"), tls("wild", "*.db.example"), tls("one", "a.db.example")];
    let routes = Routes::new(all.to_vec());
    for (sni, expect) in
        [(Some("A.db.example"), "one"), (Some("b.db.example"), "wild"), (Some("db.example"), "any"), (None, "any")]
    {
        let found = routes.find_tcp(443, CLIENT, sni).map(|found| routes.services[found.service].name.as_str());
        assert_eq!(found, Some(expect), "{sni:?}");
    }
    assert_eq!(Routes::new(all[1..].to_vec()).find_tcp(443, CLIENT, Some("x")), None);
}

#[test]
fn inside_a_service_the_first_partition_wins_and_the_rest_takes_what_is_left() {
    let mut shop = service("shop", "*", "/");
    let post = Partition { method: vec!["POST".into()], ..Partition::new("post") };
    let api = Partition { path: Some("/api".into()), ..Partition::new("api") };
    shop.partitions = [post, api].into();
    let routes = Routes::new(vec![shop]);
    let none = Vec::new();
    let of = |method, path| {
        let found = routes.find(&Asked { method, ..asked("x", path, &none) }).unwrap();
        routes.services[0].partition(found).map(|p| p.name.as_str())
    };
    assert_eq!(of("POST", "/api/x"), Some("post"), "declared first, though the other is narrower");
    assert_eq!(of("GET", "/api/x"), Some("api"));
    assert_eq!(of("GET", "/"), None);
    let asked = asked("x", "/", &none);
    let why: Vec<String> = routes.explain(&asked).iter().filter_map(|s| Some(s.miss?.to_string())).collect();
    assert_eq!(why, ["method is not POST", "path is not below /api"]);
}

#[test]
fn the_table_is_shared_while_only_clones_change() {
    let before = routes(&[("a", "*", "/"), ("b", "*", "/b")]);
    let mut services = before.services.clone();
    services[0].clones.push(RouteClone {
        name: "a/0".into(),
        node: NodeId(1),
        local: true,
        addr: "127.0.0.1:1".parse().unwrap(),
        peer: "127.0.0.1:2".parse().unwrap(),
        node_load: 0,
        version: 0,
    });
    let after = before.next(services.clone());
    assert!(Arc::ptr_eq(&before.table, &after.table) && after.services[0].clones.len() == 1);
    services[1].partitions = [Partition::new("all")].into();
    let changed = after.next(services);
    assert!(!Arc::ptr_eq(&changed.table, &after.table));
    let none = Vec::new();
    assert_eq!(changed.find(&asked("x", "/b", &none)), Some(Found { service: 1, partition: Some(0) }));
}

/// Few words, so that they meet.
fn host() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a.x", "b.x", "c.b.x", "x", "y", "", "A.x:80", "a..x", ".x", "[::1]"])
        .prop_map(Into::into)
}

fn host_pattern() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["*", "*", "a.x", "b.x", "x", "*.x", "*.b.x", "[::1]"]).prop_map(Into::into)
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "c.jpg", ""]);
    prop::collection::vec(segment, 0..4).prop_map(|segments| match segments.len() {
        0 => "*".into(),
        _ => format!("/{}", segments.join("/")),
    })
}

fn partition() -> impl Strategy<Value = Partition> {
    let header = (0..3).prop_map(|kind| HeaderMatch {
        name: "x".into(),
        is: (kind == 1).then(|| "1".into()),
        begins: (kind == 2).then(|| "2".into()),
    });
    let on = prop::sample::select(vec![HashOn::Path, HashOn::Cookie("c".into()), HashOn::Header("x".into())]);
    let range =
        (on, 0..5000u16).prop_map(|(on, from)| HashRange { on, from: Fraction(from), to: Fraction(from + 3000) });
    let some = |chance| prop::option::weighted(chance, Just(()));
    (
        (prop::option::weighted(0.4, host_pattern()), prop::option::weighted(0.4, path()), some(0.2), some(0.2)),
        (prop::option::weighted(0.3, header), prop::option::weighted(0.2, range), some(0.2), some(0.1)),
    )
        .prop_map(|((host, path, suffix, contains), (header, hash_range, method, port))| Partition {
            host,
            path: path.filter(|path| path != "*"),
            path_suffix: suffix.map(|()| ".jpg".into()),
            path_contains: contains.map(|()| "b/".into()),
            header: header.into_iter().collect(),
            hash_range,
            method: method.map(|()| "PUT".into()).into_iter().collect(),
            port: port.map(|()| 81),
            ..Partition::new("p")
        })
}

fn tables() -> impl Strategy<Value = Routes> {
    let one = (host_pattern(), path(), prop::collection::vec(partition(), 0..8));
    prop::collection::vec(one, 0..8).prop_map(|all| {
        let services = all.into_iter().enumerate().map(|(i, (host, path, partitions))| RouteService {
            partitions: partitions.into(),
            ..service(&format!("s{i}"), &host, if path == "*" { "/" } else { &path })
        });
        Routes::new(services.collect())
    })
}

proptest! {
    #[test]
    fn the_table_finds_what_walking_the_list_finds(
        routes in tables(),
        requests in prop::collection::vec((host(), path(), 0..4u8, 0..9u8, any::<bool>()), 1..40),
    ) {
        for (host, path, header, cookie, put) in requests {
            let mut headers = Vec::new();
            if header > 0 {
                headers.push(("X".to_string(), header.to_string()));
            }
            if cookie > 0 {
                headers.push(("cookie".to_string(), format!("a=1; c={cookie}")));
            }
            let asked = Asked { method: if put { "PUT" } else { "GET" }, ..asked(&host, &path, &headers) };
            let walked = routes.explain(&asked).last().filter(|step| step.miss.is_none()).map(|step| step.found);
            prop_assert_eq!(routes.find(&asked), walked, "{} {}", host, path);
        }
    }
}

proptest! {
    /// So many that they are looked for all at once; some are parts of others, some are asked for twice.
    #[test]
    fn of_many_parts_of_paths_the_first_partition_that_has_one_wins(
        parts in prop::collection::vec(("[ab/]{1,4}", any::<bool>()), 12..60),
        paths in prop::collection::vec("/[ab/]{0,12}", 1..40),
    ) {
        let partition = |(part, put): (String, bool)| Partition {
            path_contains: Some(part),
            method: put.then(|| "PUT".into()).into_iter().collect(),
            ..Partition::new("p")
        };
        let partitions: Vec<_> = parts.into_iter().map(partition).collect();
        let routes = Routes::new(vec![RouteService { partitions: partitions.clone().into(), ..service("s", "*", "/") }]);
        for path in paths {
            let none = Vec::new();
            let asked = asked("x", &path, &none);
            let first = partitions.iter().position(|one| one.miss(&asked).is_none());
            prop_assert_eq!(routes.find(&asked).unwrap().partition, first, "{}", path);
        }
    }
}
