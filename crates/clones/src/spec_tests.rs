//! Declarations as people write them, right and wrong.

use super::*;
use crate::partition::DropHandler;

fn read(toml: &str) -> Result<ServiceSpec, String> {
    toml::from_str::<ServiceSpec>(toml).map_err(|e| e.to_string())
}

#[test]
fn the_shortest_service_has_working_defaults() {
    let spec = read("run = [\"app\"]").unwrap();
    assert_eq!(spec, ServiceSpec::new(["app"]));
    assert_eq!(spec.validate(), Ok(()));
    assert_eq!((spec.clones.max, spec.stop.signal, spec.stop.drain), (2, Signal::Term, Span::secs(5)));
    assert_eq!(spec.start_timeout, Span::secs(10));
    assert!(!spec.listens());
}

fn full() -> ServiceSpec {
    read(
        r#"
        run = ["python3", "cart.py"]
        code = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
        version = 3
        dir = "examples/cart"
        env = { MODE = "fast" }
        clones = { min = 2, max = 5 }
        wait = "80ms"
        health = "/health"
        http = { path = "/shop" }
        tcp = { port = 2525, accept_proxy = true, send_proxy = "v2", sni = "*.shop.example" }
        partition = [{ name = "bulk", method = ["POST"], priority = "low" }]
        namespaces = ["carts"]
        queues = ["carts/mails"]
        certificates = true
        sandbox = { read = ["/srv/models"], write = ["~/shop"] }
        stop = { signal = "INT", drain = "500ms" }
        start_timeout = "1m"
        answer_timeout = "5m"
        idle_timeout = "1h"
        body_max = "2GiB"
        ask = 2
        ask_late = true
        openapi = "docs/openapi.json"
        "#,
    )
    .unwrap()
}

#[test]
fn a_full_service_reads_as_written_and_survives_toml_and_the_kept_form() {
    let spec = full();
    assert_eq!(spec.validate(), Ok(()));
    assert_eq!(spec.http, Some(HttpRoute { host: "*".into(), path: "/shop".into() }));
    assert_eq!(spec.stop, Stop { signal: Signal::Int, drain: Span::millis(500) });
    assert_eq!(spec.reached_at(), ["*/shop", "tcp 2525"]);
    assert_eq!(read(&toml::to_string(&spec).unwrap()), Ok(spec.clone()));
    assert_eq!(ServiceSpec::from_stored(&spec.to_stored()).unwrap(), spec);
}

#[test]
fn unknown_keys_are_mistakes_in_a_file_and_skipped_in_what_a_newer_version_kept() {
    for toml in [
        "run = [\"a\"]\nclone = 3",
        "run = [\"a\"]\nhttp = { hosts = \"x\" }",
        "run = [\"a\"]\nstop = { after = \"5s\" }",
        "run = [\"a\"]\ntcp = { port = 1, tls = true }",
        "run = [\"a\"]\ncache = { namespace = \"pages\", ttl = \"1s\" }",
        "run = [\"a\"]\nsandbox = { exec = [\"/x\"] }",
    ] {
        assert!(read(toml).unwrap_err().contains("unknown field"), "{toml}");
    }
    let kept = br#"{"run":["a"],"colour":1,"http":{"path":"/x","h3":true},"stop":{"mood":2},"tcp":{"port":1,"tls":1},"cache":{"namespace":"p","size":1},"sandbox":{"net":[1]},"limits":{"cpu":1}}"#;
    let spec = ServiceSpec::from_stored(kept).unwrap();
    assert_eq!((spec.reached_at(), spec.stop), (vec!["*/x".into(), "tcp 1".into()], Stop::default()));
}

#[test]
fn a_clone_is_asked_for_the_host_of_its_route_unless_another_is_declared() {
    for (toml, expect) in [
        ("health = \"/up\"\nhttp = { host = \"shop.example\" }", Some("shop.example")),
        ("health = \"/up\"\nhttp = { host = \"*\" }", None),
        ("health = \"/up\"\nhttp = { host = \"*.shop.example\" }", None),
        ("health = \"/up\"\ntcp = { port = 25 }", None),
        (
            "health = { path = \"/up\", host = \"localhost:8000\" }\nhttp = { host = \"shop.example\" }",
            Some("localhost:8000"),
        ),
    ] {
        let spec = read(&format!("run = [\"a\"]\n{toml}")).unwrap();
        assert_eq!(spec.validate(), Ok(()));
        assert_eq!(spec.health_host(), expect, "{toml}");
        let newer = toml.contains("path").then(|| ("health".to_owned(), LEVEL));
        assert_eq!(spec.newer_key(), newer, "{toml}");
    }
}

#[test]
fn the_known_keys_are_the_types_keys() {
    let priority = Some(crate::partition::Priority(7));
    let session = SessionCookie { path: Some("/shop".into()), priority, ..SessionCookie::new("carts", "sid") };
    let cache = Some(EdgeCache { namespace: "pages".into() });
    let mut worker = Worker::new(crate::worker::Form::Stream);
    (worker.run_at_once, worker.memory, worker.sandbox) = (2, Some(1 << 30), crate::worker::Cage::Net);
    (worker.takes, worker.gives) = (vec!["text/*".into()], Some("text/plain".into()));
    let (worker, builtin) = (Some(worker), Some("till".into()));
    let (secret_files, access_log) = (vec!["KEY".into()], AccessLog::Json);
    let spec = ServiceSpec { session: Some(session), cache, worker, builtin, secret_files, access_log, ..full() };
    let spec = ServiceSpec {
        pipeline: Some("page".into()),
        profile: Some("readers".into()),
        before: vec!["m".into()],
        ..spec
    };
    let (minute, hour) = (Some(Span::secs(60)), Some(Span::secs(3600)));
    let spec = ServiceSpec { before_timeout: minute, run_timeout: hour, schedule: Some("@daily".into()), ..spec };
    let spec = ServiceSpec { every: hour, catch_up: true, rerun: true, downlink: true, ..spec };
    let (https, hsts) = (Some(crate::Https::Redirect), Some(Span::secs(365 * 86_400)));
    let limits = crate::Bounds { memory: Some(1 << 30), pids: Some(100), files: Some(1024) };
    let spec = ServiceSpec { https, hsts, limits, user: Some("shop".into()), ..spec };
    let value = serde_json::to_value(spec).unwrap();
    let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let list = |known: &[&str]| known.iter().map(|k| k.to_string()).collect::<BTreeSet<_>>();
    assert_eq!(keys(&value), list(&SERVICE_KEYS));
    assert_eq!(keys(&value["http"]), list(&HTTP_KEYS));
    let door = TcpRoute { name: Some("smtp".into()), ..full().tcp[0].clone() };
    assert_eq!(keys(&serde_json::to_value(door).unwrap()), list(&crate::tcp::TCP_KEYS));
    assert_eq!(keys(&value["stop"]), list(&STOP_KEYS));
    assert_eq!(keys(&value["session"]), list(&SESSION_KEYS));
    assert_eq!(keys(&value["cache"]), list(&CACHE_KEYS));
    assert_eq!(keys(&value["sandbox"]), list(&SANDBOX_KEYS));
    assert_eq!(keys(&value["limits"]), list(&BOUND_KEYS));
    assert_eq!(keys(&value["worker"]), list(&WORKER_KEYS));
}

#[test]
fn https_is_of_services_that_speak_http_and_needs_new_nodes() {
    let of = |toml: &str| read(&format!("run = [\"a\"]\n{toml}")).unwrap();
    let good = of("http = {}\nhttps = \"redirect\"\nhsts = \"365d\"");
    assert_eq!((good.validate(), good.newer_key()), (Ok(()), Some(("https".into(), crate::LEVEL_CERTIFICATES))));
    assert_eq!(ServiceSpec::from_stored(&good.to_stored()).unwrap(), good);
    for (toml, key, why) in [
        ("https = \"redirect\"", "https", "has no http"),
        ("hsts = \"1d\"", "hsts", "has no http"),
        ("http = {}\nhsts = \"733d\"", "hsts", "over the limit of 732d"),
    ] {
        let errors = of(toml).validate().unwrap_err();
        assert!(errors.len() == 1 && errors[0].key == key && errors[0].why.contains(why), "{errors:?}");
    }
    assert!(read("run = [\"a\"]\nhttps = \"never\"").unwrap_err().contains("redirect"));
}

fn open(path: &str) -> Sandbox {
    Sandbox::On(crate::sandbox::Files { read: Vec::new(), write: vec![path.into()] })
}

#[test]
fn a_sandbox_is_there_unless_it_is_declared_away() {
    use crate::sandbox::Files;
    assert_eq!(read("run = [\"a\"]").unwrap().sandbox, Sandbox::On(Files::default()));
    let none = read("run = [\"a\"]\nsandbox = \"none\"").unwrap();
    assert_eq!((&none.sandbox, none.validate()), (&Sandbox::None, Ok(())));
    assert!(toml::to_string(&none).unwrap().contains("sandbox = \"none\""));
    assert_eq!(ServiceSpec::from_stored(&none.to_stored()).unwrap(), none);
    assert!(!String::from_utf8_lossy(&ServiceSpec::new(["a"]).to_stored()).contains("sandbox"), "older nodes read it");
    for wrong in ["\"off\"", "true", "1", "[]"] {
        let why = read(&format!("run = [\"a\"]\nsandbox = {wrong}")).unwrap_err();
        assert!(why.contains("\"none\"") && why.contains("read = "), "{wrong}: {why}");
    }
}

#[test]
fn a_mistake_names_its_key_and_what_would_be_right() {
    type Break = fn(&mut ServiceSpec);
    let cases: &[(Break, &str, &str)] = &[
        (|s| s.run.clear(), "run", "python3"),
        (|s| s.run[0].clear(), "run", "python3"),
        (|s| s.dir = Some(String::new()), "dir", "leave it out"),
        (|s| s.code = Some("x".into()), "code", "SHA-256"),
        (|s| s.dir = Some("../x".into()), "dir", "leads out"),
        (|s| s.clones.max = 257, "clones", "limit of 256"),
        (|s| s.clones = Size { min: 3, max: 2 }, "clones", "min 3 is over max 2"),
        (|s| s.clones = Size { min: 0, max: 2 }, "clones", "min is 1 at least"),
        (
            |s| *s = ServiceSpec { clones: s.clones, wait: s.wait, ..ServiceSpec::new(["a"]) },
            "clones",
            "needs http, tcp, worker or queues",
        ),
        (
            |s| (s.http, s.partitions, s.body_max, s.ask, s.ask_late) = (None, Vec::new(), None, None, None),
            "answer_timeout",
            "has no http",
        ),
        (
            |s| (s.http, s.partitions, s.body_max, s.answer_timeout) = (None, Vec::new(), None, None),
            "ask",
            "has no http",
        ),
        (|s| (s.ask, s.ask_late) = (Some(0), None), "ask", "0 is not between 1"),
        (|s| s.ask = Some(6), "ask", "6 is not between 1"),
        (|s| s.ask = None, "ask_late", "add ask = 2"),
        (
            |s| {
                (s.builtin, s.run, s.code, s.dir) = (Some("shop".into()), Vec::new(), None, None);
            },
            "openapi",
            "a built-in service has none",
        ),
        (|s| s.openapi = Some("../openapi.json".into()), "openapi", "below the folder"),
        (|s| s.openapi = Some(String::new()), "openapi", "below the folder"),
        (|s| s.queues[0] = "mails".into(), "queues", "like \"jobs/mails\""),
        (|s| s.queues[0] = "jobs/".into(), "queues", "1 to 63 visible"),
        (|s| s.queues[0] = format!("jobs/{}", "m".repeat(64)), "queues", "1 to 63 visible"),
        (|s| s.queues[0] = "jobs/a b".into(), "queues", "1 to 63 visible"),
        (|s| s.queues.push(s.queues[0].clone()), "queues", "there twice"),
        (|s| s.queues = (0..9).map(|n| format!("jobs/{n}")).collect(), "queues", "limit of 8"),
        (|s| s.clones = 3.into(), "wait", "needs a range"),
        (|s| s.wait = Some(Span::millis(1)), "wait", "between 5ms and 1h"),
        (|s| s.health = Some("health".into()), "health", "begin with /"),
        (|s| s.sandbox = open("srv/models"), "sandbox.write", "from / or ~/"),
        (|s| s.sandbox = open("/srv/../etc"), "sandbox.write", "without .."),
        (|s| s.sandbox = open("~other/x"), "sandbox.write", "from / or ~/"),
        (|s| s.sandbox = open(&"/x".repeat(600)), "sandbox.write", "at most 1024 bytes"),
        (|s| s.health.as_mut().unwrap().status.push(99), "health.status", "200 to 599"),
        (|s| s.http.as_mut().unwrap().path = "/a b".into(), "http.path", "' '"),
        (|s| s.http.as_mut().unwrap().path = "/a?b".into(), "http.path", "'?'"),
        (|s| s.http.as_mut().unwrap().host = "http://x".into(), "http.host", "without scheme"),
        (|s| s.http.as_mut().unwrap().host = "a.*.x".into(), "http.host", "every host"),
        (|s| s.http.as_mut().unwrap().host = String::new(), "http.host", "every host"),
        (|s| s.http.as_mut().unwrap().host = "[::g]".into(), "http.host", "every host"),
        (|s| s.tcp = vec![TcpRoute::on(0)], "tcp.port", "1 to 65535"),
        (|s| s.tcp[0].sni = Some("a:b/".into()), "tcp.sni", "without scheme"),
        (|s| drop(s.env.insert("PORT".into(), "1".into())), "env.PORT", "by its node"),
        (|s| drop(s.env.insert("A=B".into(), "1".into())), "env.A=B", "no ="),
        (|s| s.namespaces = vec!["a-b".into(), "a_b".into()], "namespaces", "COPPICE_A_B_URL"),
        (|s| s.stop.drain = Span::secs(7200), "stop.drain", "limit of 1h"),
        (|s| s.start_timeout = Span::ZERO, "start_timeout", "10s"),
        (|s| s.answer_timeout = Some(Span::ZERO), "answer_timeout", "0s is not between 100ms and 1h"),
        (|s| s.answer_timeout = Some(Span::secs(3601)), "answer_timeout", "3601s is not between"),
        (|s| s.idle_timeout = Some(Span::millis(999)), "idle_timeout", "999ms is not between 1s and 7d"),
        (|s| s.body_max = Some(0), "body_max", "0 is not between 1 byte and 1TiB"),
        (|s| s.body_max = Some((1 << 40) + 1), "body_max", "1TiB"),
        (|s| s.partitions[0].body_max = Some(0), "partition.bulk.body_max", "1TiB"),
    ];
    for (spoil, key, hint) in cases {
        let mut spec = full();
        spoil(&mut spec);
        let errors = spec.validate().unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].key, *key);
        assert!(errors[0].why.contains(hint), "{}", errors[0]);
    }
    for (toml, hint) in [
        ("stop = { signal = \"STOP\" }", "known are TERM"),
        ("start_timeout = \"ten\"", "10s"),
        ("start_timeout = 10", "like \"10s\""),
    ] {
        let error = read(&format!("run = [\"a\"]\n{toml}")).unwrap_err();
        assert!(error.contains(hint), "{error}");
    }
}

#[test]
fn two_services_cannot_share_a_route_or_a_port_and_namespaces_must_exist() {
    let carts = BTreeSet::from(["carts".to_string()]);
    let alone = BTreeMap::from([("shop".to_string(), full())]);
    assert_eq!(validate_all(&alone, &carts, &["shop"]), Ok(()));

    let mut other = full();
    other.http = Some(HttpRoute { host: "*".into(), path: "/shop/".into() });
    other.namespaces = vec!["cats".into()];
    let both = BTreeMap::from([("Shop 2".to_string(), full()), ("shop".to_string(), other)]);
    let errors = validate_all(&both, &carts, &["Shop 2", "shop"]).unwrap_err();
    let errors: Vec<String> = errors.iter().map(SpecError::to_string).collect();
    assert_eq!(errors.len(), 4, "{errors:#?}");
    assert!(errors[0].starts_with("service.Shop 2: a service's name"), "{}", errors[0]);
    assert_eq!(
        errors[1],
        "service.shop.http: */shop/ is already where service \"Shop 2\" is reached; choose another host or path"
    );
    assert_eq!(
        errors[2],
        "service.shop.tcp.port: 2525 for host \"*.shop.example\" already belongs to service \"Shop 2\"; choose another \
         host or port"
    );
    assert_eq!(errors[3], "service.shop.namespaces: \"cats\" is not declared; declared are: carts");
    // Whoever declares now is told, not who was there.
    let errors = validate_all(&both, &carts, &["Shop 2"]).unwrap_err();
    let keys: Vec<&str> = errors.iter().map(|e| e.key.as_str()).collect();
    let of_both = ["service.shop.namespaces", "service.Shop 2", "service.Shop 2.http", "service.Shop 2.tcp.port"];
    assert_eq!(keys, of_both);
    // And of his own mistakes he who was there is not told either: he was taken as he is.
    let twice = ServiceSpec {
        http: Some(HttpRoute { host: "*".into(), path: "/".into() }),
        partitions: vec![Partition::new("all"), Partition::new("late")],
        ..ServiceSpec::new(["a"])
    };
    let standing = BTreeMap::from([("a".to_string(), twice), ("b".to_string(), ServiceSpec::new(["b"]))]);
    assert_eq!(validate_all(&standing, &carts, &["b"]), Ok(()));
    assert!(validate_all(&standing, &carts, &["a"]).is_err());

    let dropped_to = |other: &str| {
        let drop = Some(DropHandler { service: Some(other.into()), ..DropHandler::default() });
        let mut spec = full();
        spec.partitions = vec![Partition { drop, ..Partition::new("rest") }];
        let plain = ServiceSpec { http: None, ..ServiceSpec::new(["a"]) };
        let page = ServiceSpec { http: Some(HttpRoute { host: "page".into(), path: "/".into() }), ..plain.clone() };
        let all = [("shop", spec), ("page", page), ("mute", plain)].map(|(name, spec)| (name.to_string(), spec));
        validate_all(&all.into(), &carts, &[]).err().map(|errors| errors[0].to_string())
    };
    assert_eq!(dropped_to("page"), None);
    for (other, hint) in [("shop", "is the service itself"), ("mute", "has no http"), ("nobody", "is not declared")] {
        let why = dropped_to(other).unwrap();
        assert!(why.starts_with("service.shop.partition.rest.drop: ") && why.contains(hint), "{why}");
    }

    let many =
        |n: u32| (0..n).map(|i| (format!("s{i}"), ServiceSpec { clones: 256.into(), ..ServiceSpec::new(["a"]) }));
    assert_eq!(validate_all(&many(16).collect(), &carts, &[]), Ok(()));
    assert!(validate_all(&many(17).collect(), &carts, &[]).unwrap_err()[0].why.contains("limit of 4096"));
}

#[test]
fn services_share_a_tcp_port_only_if_the_host_tells_them_apart() {
    let service = |sni: Option<&str>, accept_proxy| {
        let sni = sni.map(Into::into);
        ServiceSpec { tcp: vec![TcpRoute { sni, accept_proxy, ..TcpRoute::on(443) }], ..ServiceSpec::new(["a"]) }
    };
    let why = |a, b| {
        let both = BTreeMap::from([("a".to_string(), a), ("b".to_string(), b)]);
        validate_all(&both, &BTreeSet::new(), &[]).err().map(|errors| errors[0].to_string())
    };
    assert_eq!(why(service(Some("a.x"), true), service(Some("*.x"), true)), None);
    for (a, b, hint) in [
        (service(Some("a.x"), false), service(Some("A.x"), false), "443 for host \"a.x\" already"),
        (service(Some("a.x"), false), service(Some("b.x"), true), "must be the same for both"),
        (service(Some("a.x"), false), service(None, false), "443 already belongs to service \"a\""),
    ] {
        let why = why(a, b).unwrap();
        assert!(why.starts_with("service.b.tcp.port: ") && why.contains(hint), "{why}");
    }
}

#[test]
fn a_service_has_several_doors_each_with_a_name() {
    let mail = "run = [\"mail\"]\ntcp = [{ name = \"smtp\", port = 2525 }, { name = \"pop3\", port = 2110 }]";
    let spec = read(mail).unwrap();
    assert_eq!(spec.validate(), Ok(()));
    assert_eq!(spec.tcp, [TcpRoute::named("smtp", 2525), TcpRoute::named("pop3", 2110)]);
    assert_eq!(spec.reached_at(), ["tcp 2525 (smtp)", "tcp 2110 (pop3)"]);
    assert_eq!(spec.newer_key(), Some(("tcp".into(), LEVEL_DOORS)));
    assert_eq!(read(&toml::to_string(&spec).unwrap()), Ok(spec.clone()));
    assert_eq!(ServiceSpec::from_stored(&spec.to_stored()).unwrap(), spec);
    let kept = br#"{"run":["a"],"tcp":[{"port":1,"name":"a","colour":1},{"port":2,"name":"b"}]}"#;
    assert_eq!(ServiceSpec::from_stored(kept).unwrap().tcp, [TcpRoute::named("a", 1), TcpRoute::named("b", 2)]);

    // The only one needs no name, and is then kept as programs before doors read it.
    let one = read("run = [\"a\"]\ntcp = [{ port = 9000 }]").unwrap();
    assert_eq!((one.validate(), one.newer_key()), (Ok(()), None));
    let stored: serde_json::Value = serde_json::from_slice(&one.to_stored()).unwrap();
    assert_eq!(stored["tcp"], serde_json::json!({"port": 9000}));
    assert_eq!(read("run = [\"a\"]\ntcp = { port = 9000 }"), Ok(one));
    for wrong in ["9000", "\"smtp\"", "true", "[9000]"] {
        assert!(read(&format!("run = [\"a\"]\ntcp = {wrong}")).is_err(), "{wrong}");
    }
    assert!(read("run = [\"a\"]\ntcp = 9000").unwrap_err().contains("{ name = \"smtp\", port = 2525 }"));
}

#[test]
fn doors_that_cannot_both_be_are_told_apart_in_words() {
    let told = |tcp: &str| {
        let spec = read(&format!("run = [\"a\"]\ntcp = [{tcp}]")).unwrap();
        let errors = spec.validate().err().unwrap_or_default();
        errors.iter().map(SpecError::to_string).collect::<Vec<_>>().join("; ")
    };
    let smtp = "{ name = \"smtp\", port = 25 }";
    assert_eq!(told(smtp), "");
    for (other, says) in [
        (
            "{ name = \"smtp\", port = 26 }",
            "tcp.smtp.name: the door at port 25 is called so, too; give this one another name",
        ),
        (
            "{ name = \"lmtp\", port = 25 }",
            "tcp.lmtp.port: 25 is the port of door \"smtp\" of this service; choose another port",
        ),
        ("{ port = 26 }", "tcp.name: the door at port 26 has none; each of several doors has a name"),
        ("{ name = \"POP 3\", port = 26 }", "tcp.name: a door's name has 1 to 63 of a-z"),
        ("{ name = \"pop3\", port = 0 }", "tcp.pop3.port: 0 is no port"),
        ("{ name = \"pop3\", port = 26, send_proxy = \"v1\" }", "tcp.pop3.send_proxy: \"v1\" cannot say at which door"),
        ("{ name = \"pop3\", port = 26, sni = \"a:b/\" }", "tcp.pop3.sni: "),
    ] {
        let told = told(&format!("{smtp}, {other}"));
        assert!(told.starts_with(says), "{other}: {told}");
    }
    let many: Vec<String> = (1..=33).map(|n| format!("{{ name = \"d{n}\", port = {n} }}")).collect();
    assert!(told(&many.join(", ")).contains("33 doors are over the limit of 32"));

    // Of two services.
    let service = |tcp: &str| read(&format!("run = [\"a\"]\ntcp = {tcp}")).unwrap();
    let both = BTreeMap::from([
        ("chat".to_string(), service("{ port = 110 }")),
        ("mail".to_string(), service(&format!("[{smtp}, {{ name = \"pop3\", port = 110 }}]"))),
    ]);
    let errors = validate_all(&both, &BTreeSet::new(), &["mail"]).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(
        errors[0].to_string(),
        "service.mail.tcp.pop3.port: 110 already belongs to service \"chat\"; choose another port, or share it by tcp.sni in both"
    );

    // A partition is of a door, or of all.
    let mut spec = service(&format!("[{smtp}]"));
    spec.partitions = vec![Partition { port: Some(25), ..Partition::new("in") }, Partition::new("rest")];
    assert_eq!(spec.validate(), Ok(()));
    spec.partitions[0].port = Some(26);
    assert_eq!(
        spec.validate().unwrap_err()[0].to_string(),
        "partition.in.port: 26 is the port of no door; there are: 25"
    );
}

#[test]
fn a_built_in_service_is_the_nodes_own_program_and_no_other() {
    let spec = read("builtin = \"shop\"\nhttp = {}\n").unwrap();
    assert_eq!(spec.validate(), Ok(()));
    assert_eq!(spec.command(), ["/proc/self/exe", "serve-builtin", "shop"]);
    assert_eq!(read(&toml::to_string(&spec).unwrap()), Ok(spec.clone()));
    assert_eq!(ServiceSpec::from_stored(&spec.to_stored()).unwrap(), spec);
    let stored: serde_json::Value = serde_json::from_slice(&spec.to_stored()).unwrap();
    assert_eq!(stored["run"], serde_json::json!([]), "a program before built-in services can read the record");
    let code = "ab".repeat(32);
    for (other, key) in [("run = [\"a\"]", "run"), (&format!("code = {code:?}"), "code"), ("dir = \"a\"", "dir")] {
        let errors = read(&format!("builtin = \"shop\"\n{other}\n")).unwrap().validate().unwrap_err();
        assert_eq!(errors.iter().map(|e| e.key.as_str()).collect::<Vec<_>>(), [key]);
        assert!(errors[0].why.contains("keep one of them"), "{}", errors[0]);
    }
    assert!(read("clones = 1").unwrap().validate().unwrap_err()[0].why.contains("builtin = \"NAME\""));
}

#[test]
fn an_edge_cache_needs_http_a_namespace_and_its_level() {
    let spec = read("run = [\"a\"]\ncache = { namespace = \"pages\" }").unwrap();
    assert_eq!(spec.newer_key(), Some(("cache".into(), 5)));
    assert_eq!(spec.validate().unwrap_err()[0].key, "cache");
    let spec = ServiceSpec { http: Some(HttpRoute::default()), ..spec };
    assert_eq!(spec.validate(), Ok(()));
    let all = BTreeMap::from([("site".to_owned(), spec)]);
    let errors = validate_all(&all, &BTreeSet::from(["carts".to_owned()]), &["site"]).unwrap_err();
    assert_eq!(errors[0].key, "service.site.cache.namespace");
    assert_eq!(validate_all(&all, &BTreeSet::from(["pages".to_owned()]), &["site"]), Ok(()));
    assert_eq!(ServiceSpec::from_stored(&all["site"].to_stored()).unwrap(), all["site"]);
}
