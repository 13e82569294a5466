//! Partitions as people write them, and what they match.

use proptest::prelude::*;

use super::*;
use crate::spec::{HttpRoute, ServiceSpec, TcpRoute};

fn read(toml: &str) -> Result<ServiceSpec, String> {
    toml::from_str::<ServiceSpec>(&format!("run = [\"a\"]\nhttp = {{ host = \"*.shop.example\" }}\n{toml}"))
        .map_err(|e| e.to_string())
}

fn full() -> Partition {
    let toml = r#"
        [[partition]]
        name = "checkout"
        port = 8443
        host = "eu.shop.example"
        path = "/checkout"
        path_suffix = ".json"
        path_contains = "/v1/"
        method = ["POST", "PUT"]
        header = [{ name = "x-plan", is = "gold" }, { name = "x-beta" }, { name = "user-agent", begins = "curl/" }]
        hash_range = { on = "cookie:sid", from = "10%", to = "12.5%" }
        affinity = "hash:header:x-user"
        priority = "high"
        share = "25%"
    "#;
    let spec = read(toml).unwrap();
    assert_eq!(spec.validate(), Ok(()));
    assert_eq!(toml::from_str::<ServiceSpec>(&toml::to_string(&spec).unwrap()), Ok(spec.clone()));
    assert_eq!(ServiceSpec::from_stored(&spec.to_stored()).unwrap(), spec);
    spec.partitions.into_iter().next().unwrap()
}

#[test]
fn a_full_partition_reads_as_written_and_matches_only_what_fits_in_all() {
    let partition = full();
    assert_eq!((partition.priority, partition.share), (Priority(7), Fraction(2500)));
    assert_eq!(partition.affinity, Affinity::Hash(HashOn::Header("x-user".into())));
    let sid = (0..)
        .map(|n| n.to_string())
        .find(|sid| (1000..1250).contains(&((u128::from(place_hash(sid.as_bytes())) * 10_000) >> 64)));
    let cookies = format!("a=b; sid={}", sid.unwrap());
    let fields = [("X-Plan", "gold"), ("x-beta", ""), ("User-Agent", "curl/8"), ("Cookie", &cookies)];
    let without = |name: &str| -> Vec<(String, String)> {
        fields.iter().filter(|(n, _)| *n != name).map(|(n, v)| ((*n).into(), (*v).into())).collect()
    };
    let all = without("");
    let asked = Asked {
        port: 8443,
        host: "eu.shop.example",
        path: "/checkout/v1/x.json",
        method: "POST",
        client: [127, 0, 0, 1].into(),
        headers: &all[..].to_vec() as &dyn Headers,
    };
    assert_eq!(partition.miss(&asked), None);
    assert_eq!(partition.miss(&Asked { port: 80, ..asked }), Some(Miss::Port(8443)));
    assert_eq!(partition.miss(&Asked { path: "/v1/x.jso", ..asked }), Some(Miss::Suffix(".json")));
    assert_eq!(partition.miss(&Asked { path: "/x.json", ..asked }), Some(Miss::Contains("/v1/")));
    assert_eq!(partition.miss(&Asked { method: "GET", ..asked }), Some(Miss::Method(&partition.method)));
    for (i, name) in ["X-Plan", "x-beta", "User-Agent"].iter().enumerate() {
        let fewer = without(name);
        assert_eq!(partition.miss(&Asked { headers: &fewer, ..asked }), Some(Miss::Header(&partition.header[i])));
    }
    let fewer = without("Cookie");
    assert!(matches!(partition.miss(&Asked { headers: &fewer, ..asked }), Some(Miss::HashRange(_))));
}

#[test]
fn a_partition_of_a_newer_version_is_left_out_whole() {
    let kept = br#"{"run":["a"],"http":{},"partition":[{"name":"a","weekday":"sunday"},{"name":"b","priority":77},{"name":"c"}]}"#;
    let spec = ServiceSpec::from_stored(kept).unwrap();
    assert_eq!(spec.partitions, [Partition::new("c")], "without its condition it would take everything");
}

fn drop_with(status: Option<u16>, file: Option<&str>, service: Option<&str>) -> Option<DropHandler> {
    Some(DropHandler { status, file: file.map(Into::into), service: service.map(Into::into) })
}

#[test]
fn a_drop_handler_is_read_and_kept() {
    let spec = read("[[partition]]\nname = \"a\"\ndrop = { status = 429, file = \"busy.html\" }").unwrap();
    assert_eq!(spec.partitions[0].drop, drop_with(Some(429), Some("busy.html"), None));
    assert_eq!(ServiceSpec::from_stored(&spec.to_stored()).unwrap(), spec);
    assert_eq!(spec.partitions[0].drop.as_ref().unwrap().to_string(), "status 429 with busy.html");
    assert!(read("[[partition]]\nname = \"a\"\ndrop = { page = \"x\" }").unwrap_err().contains("unknown field"));
}

#[test]
fn what_is_of_another_kind_is_told_with_an_example() {
    for (line, told) in [
        ("method = \"POST GET\"", "method = [\"POST\", \"GET\"]"),
        ("header = [\"x-plan\"]", "header = [{ name = \"x-plan\""),
        ("drop = \"503\"", "drop = { status = 429 }"),
        ("share = 0.25", "like \"25%\""),
        ("affinity = 5", "like \"hash:client\""),
    ] {
        let why = read(&format!("[[partition]]\nname = \"a\"\n{line}")).unwrap_err();
        assert!(why.contains(told), "{line}: {why}");
    }
}

#[test]
fn a_mistake_names_its_key_and_what_would_be_right() {
    type Break = fn(&mut Partition);
    let cases: &[(Break, &str, &str)] = &[
        (|p| p.name = "A b".into(), "partition.A b.name", "a-z"),
        (|p| p.port = Some(0), "partition.checkout.port", "1 to 65535"),
        (|p| p.host = Some("http://x".into()), "partition.checkout.host", "without scheme"),
        (|p| p.host = Some("other.example".into()), "partition.checkout.host", "widen http.host"),
        (|p| p.host = Some("shop.example".into()), "partition.checkout.host", "widen http.host"),
        (|p| p.path = Some("x".into()), "partition.checkout.path", "begin with /"),
        (|p| p.path = Some("/%70ay".into()), "partition.checkout.path", "matched as \"/pay\""),
        (|p| p.path = Some("/pay//x".into()), "partition.checkout.path", "several ways"),
        (|p| p.path_suffix = Some("%2ejpg".into()), "partition.checkout.path_suffix", "matched as \".jpg\""),
        (|p| p.path_suffix = Some("".into()), "partition.checkout.path_suffix", "leave it out"),
        (|p| p.path_contains = Some("a b".into()), "partition.checkout.path_contains", "percent-encode"),
        (|p| p.method = vec!["post".into()], "partition.checkout.method", "\"POST\""),
        (|p| p.method = vec!["A B".into()], "partition.checkout.method", "[\"GET\""),
        (|p| p.header[0].name = "a b".into(), "partition.checkout.header", "x-plan"),
        (|p| p.header[0].begins = Some("g".into()), "partition.checkout.header", "one of them"),
        (|p| p.header[0].is = Some("a\nb".into()), "partition.checkout.header", "no field"),
        (|p| p.header[0].is = Some("a".repeat(1025)), "partition.checkout", "limit of 1024"),
        (|p| p.hash_range.as_mut().unwrap().to = Fraction(1000), "partition.checkout.hash_range", "10%"),
        (|p| p.drop = drop_with(Some(302), None, None), "partition.checkout.drop", "400 to 599"),
        (|p| p.drop = drop_with(None, None, None), "partition.checkout.drop", "status = 429"),
        (|p| p.drop = drop_with(None, Some(""), None), "partition.checkout.drop", "service folder"),
        (|p| p.drop = drop_with(None, Some("a"), Some("b")), "partition.checkout.drop", "leave out status"),
    ];
    for (spoil, key, hint) in cases {
        let mut partition = full();
        spoil(&mut partition);
        let mut spec = read("").unwrap();
        spec.partitions = vec![partition];
        let errors = spec.validate().unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].key, *key);
        assert!(errors[0].why.contains(hint), "{}", errors[0]);
    }
    for (line, hint) in [
        ("affinity = \"hash\"", "\"hash:\" and one of"),
        ("affinity = \"hash:cookie:\"", "cookie:NAME"),
        ("priority = 10", "0 (refused first) to 9"),
        ("priority = \"urgent\"", "\"critical\""),
        ("share = 0.5", "in quotes"),
        ("share = \"101%\"", "25%"),
        ("share = \"half\"", "25%"),
        ("pth = \"/\"", "unknown field"),
    ] {
        let error = read(&format!("[[partition]]\nname = \"a\"\n{line}")).unwrap_err();
        assert!(error.contains(hint) && error.contains("line"), "{error}");
    }
}

#[test]
fn mistakes_between_partitions_are_found() {
    let all =
        |spec: &ServiceSpec| -> Vec<String> { spec.validate().unwrap_err().iter().map(ToString::to_string).collect() };
    let share = |name: &str, percent: u16| Partition { share: Fraction(percent * 100), ..full_named(name) };
    let mut spec = read("").unwrap();
    spec.partitions = vec![share("a", 60), share("a", 60)];
    let errors = all(&spec);
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors[0].contains("partition.a.name: another") && errors[1].contains("as \"a\" before it"), "{errors:?}");
    assert!(errors[2].contains("120%"), "{errors:?}");

    spec.partitions = vec![Partition::new("all"), full_named("late")];
    assert!(all(&spec)[0].contains("partition.late: never takes a request, as \"all\""), "{:?}", all(&spec));
    let several = Partition { ask: Some(2), affinity: Affinity::Sticky, ..Partition::new("two") };
    spec.partitions = vec![several];
    assert!(all(&spec)[0].contains("partition.two.ask: asks several clones"), "{:?}", all(&spec));
    spec.partitions = vec![Partition { ask_late: Some(true), ..Partition::new("late") }];
    assert!(all(&spec)[0].contains("partition.late.ask_late: says when a second"), "{:?}", all(&spec));
    spec.ask = Some(2);
    assert_eq!(spec.validate(), Ok(()), "the service says of how many");
    assert_eq!(spec.newer_key(), Some(("ask".into(), crate::LEVEL_ASKS)));
    spec.ask = None;
    spec.partitions = vec![Partition { ask: Some(6), ..Partition::new("six") }];
    assert!(all(&spec)[0].contains("partition.six.ask: 6 is not between 1"), "{:?}", all(&spec));
    assert_eq!(spec.newer_key(), Some(("partition.six.ask".into(), crate::LEVEL_ASKS)));
    let port = |n: u16| Partition { port: Some(n), ..Partition::new(format!("p{n}")) };
    spec.partitions = (1..=300).map(port).chain([Partition::new("all"), full_named("late")]).collect();
    assert!(all(&spec)[0].contains("partition.late: never"), "however many stand before it: {:?}", all(&spec));

    spec.http = Some(HttpRoute { host: "*".into(), path: "/shop".into() });
    spec.partitions = vec![Partition { path: Some("/other".into()), ..Partition::new("a") }];
    assert!(all(&spec)[0].contains("widen http.path"), "{:?}", all(&spec));

    spec.http = None;
    assert!(all(&spec)[0].contains("give it an address"), "{:?}", all(&spec));
    spec.tcp = vec![TcpRoute::on(25)];
    spec.partitions = vec![full_named("a")];
    let errors = all(&spec);
    assert!(
        errors[0].contains("partition.a.host: is known of HTTP") && errors[1].contains("hash:client"),
        "{errors:?}"
    );
    spec.partitions = vec![Partition { port: Some(26), priority: Priority(7), ..Partition::new("a") }];
    assert_eq!(spec.validate(), Ok(()), "connections have a priority as well");
}

#[test]
fn a_partition_that_could_never_take_a_request_is_refused_and_no_other() {
    let refuses = |before: &str, after: &str| {
        let spec =
            read(&format!("[[partition]]\nname = \"a\"\n{before}\n[[partition]]\nname = \"b\"\n{after}")).unwrap();
        let errors = spec.validate().err().unwrap_or_default();
        assert!(errors.iter().all(|e| e.why.contains("never takes a request, as \"a\" before it")), "{errors:?}");
        !errors.is_empty()
    };
    let pairs = [
        ("port = 81", "port = 81\nmethod = [\"GET\"]", "port = 82"),
        ("host = \"*.shop.example\"", "host = \"EU.shop.example\"", "path = \"/\""),
        ("path = \"/a\"", "path = \"/a/b\"", "path = \"/ab\""),
        ("path_suffix = \"g\"", "path_suffix = \".jpg\"", "path_suffix = \"gif\""),
        ("path_contains = \"v1\"", "path_contains = \"/v1/\"", "path_contains = \"v\""),
        ("method = [\"GET\", \"PUT\"]", "method = [\"PUT\"]", "method = [\"PUT\", \"POST\"]"),
        (
            "header = [{ name = \"x-a\" }]",
            "header = [{ name = \"X-A\", is = \"1\" }, { name = \"b\" }]",
            "header = [{ name = \"b\" }]",
        ),
        (
            "header = [{ name = \"a\", begins = \"x\" }]",
            "header = [{ name = \"a\", is = \"xy\" }]",
            "header = [{ name = \"a\" }]",
        ),
        (
            "header = [{ name = \"a\", is = \"x\" }]",
            "header = [{ name = \"a\", is = \"x\" }]",
            "header = [{ name = \"a\", begins = \"x\" }]",
        ),
        (
            "hash_range = { on = \"client\", from = \"10%\", to = \"50%\" }",
            "hash_range = { on = \"client\", from = \"20%\", to = \"50%\" }",
            "hash_range = { on = \"path\", from = \"20%\", to = \"50%\" }",
        ),
    ];
    for (before, inside, beside) in pairs {
        assert!(refuses(before, inside) && refuses(before, before) && refuses("", before), "{before}: {inside}");
        assert!(!refuses(before, beside) && !refuses(before, ""), "{before}: {beside}");
    }
}

fn full_named(name: &str) -> Partition {
    Partition { name: name.into(), share: Fraction(0), ..full() }
}

#[test]
fn fractions_read_and_write_the_same() {
    for (text, n) in [("0%", 0), ("0.5%", 50), ("12.25%", 1225), ("100%", 10_000), ("7%", 700)] {
        assert_eq!(text.parse(), Ok(Fraction(n)), "{text}");
        assert_eq!(Fraction(n).to_string(), text);
    }
    for text in ["", "%", "5", "-5%", "100.01%", "1.234%", ".5%", "5.%", "1e2%"] {
        assert!(text.parse::<Fraction>().unwrap_err().contains("25%"), "{text}");
    }
}

#[test]
fn a_cookie_is_found_by_its_whole_name() {
    let value = |line: &str| {
        let mut value = None;
        let headers = [("Cookie".to_string(), line.to_string())];
        cookie(&headers[..], "sid", &mut |found| value = Some(String::from_utf8(found.to_vec()).unwrap()));
        value
    };
    assert_eq!(value("a=1; sid=x=y; b=2").as_deref(), Some("x=y"));
    assert_eq!(value("sid=1").as_deref(), Some("1"));
    for none in ["", "sid", "sid=", "xsid=1", "sida=1", "SID=1", ";;="] {
        assert_eq!(value(none), None, "{none}");
    }
}

proptest! {
    #[test]
    fn shares_never_overlap_and_get_what_they_say(clones in prop_oneof![0u32..6, 0u32..300], parts in prop::collection::vec(0u16..4000, 0..6)) {
        let mut left = 10_000u16;
        let shares: Vec<Fraction> = parts.iter().map(|part| { let part = (*part).min(left); left -= part; Fraction(part) }).collect();
        let given = reserved(clones, &shares);
        let mut next = 0;
        for (range, share) in given.iter().zip(&shares) {
            prop_assert!(range.start == next && range.end <= clones);
            next = range.end;
            let exact = f64::from(clones) * f64::from(share.0) / 10_000.0;
            prop_assert!(f64::from(range.len() as u32) <= exact.round().max(1.0));
            prop_assert!(share.0 > 0 || range.is_empty());
        }
        let open = clones - next;
        prop_assert!(left == 0 || clones < 2 || open >= 1, "nothing is left for the rest");
        if clones >= 100 {
            for (range, share) in given.iter().zip(&shares) {
                let exact = f64::from(clones) * f64::from(share.0) / 10_000.0;
                prop_assert!((f64::from(range.len() as u32) - exact).abs() <= 3.0, "{range:?} of {exact}");
            }
        }
    }
}
