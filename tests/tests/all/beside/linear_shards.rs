//! A `linear` namespace with several shards through the real program: commands about all keys, following it from a place on,
//! and shards that move to where there are fewer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use e2e::resp::{Resp, Word};
use e2e::sse::{Event, Sse};
use e2e::{Yard, http, say, wait_for};
use serde_json::{Value, json};

const FILE: &str = "[namespace.wide]\nclass = \"linear\"\nshards = 6\n";

fn open(yard: &Yard, n: u8, token: &str) -> Resp {
    let open = || {
        let mut resp = Resp::open(yard.at(n).resp, "wide", token)?;
        match resp.ask(&["DBSIZE"])? {
            Word::Int(_) => Ok(resp),
            other => Err(format!("{other:?}")),
        }
    };
    wait_for("all shards are open", Duration::from_secs(60), open).0
}

fn int(n: i64) -> Word {
    Word::Int(n)
}

/// Of each node, how many shards it has and how many it leads.
fn spread(yard: &Yard, node: u8) -> Result<BTreeMap<String, (usize, usize)>, String> {
    let view = yard.status(node)?;
    let mut of: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for shard in view["namespaces"][0]["shards"].as_array().ok_or("no shards")? {
        for member in shard["members"].as_array().into_iter().flatten() {
            of.entry(member.as_str().unwrap_or_default().to_owned()).or_default().0 += 1;
        }
        let leader = shard["leader"].as_str().ok_or("a shard without a leader")?;
        of.entry(leader.to_owned()).or_default().1 += 1;
    }
    Ok(of)
}

fn is_spread(yard: &Yard, node: u8, expected: &[(usize, usize)]) -> Result<(), String> {
    let of = spread(yard, node)?;
    let found: Vec<(usize, usize)> = of.values().copied().collect();
    if found == expected { Ok(()) } else { Err(format!("{of:?}")) }
}

#[test]
fn shards_are_one_namespace_and_follow_the_nodes() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(3);
    yard.apply(1, "wide.toml", FILE).good();
    let token = yard.namespace_token("wide");
    let mut one = open(&yard, 1, &token);
    let mut two = open(&yard, 2, &token);

    // Commands about many keys, and about all.
    let names: Vec<String> = (0..40).map(|n| format!("k{n:02}")).collect();
    for name in &names {
        assert_eq!(one.ask(&["SET", name, &name[1..]]).unwrap(), Word::Simple("OK".into()));
    }
    assert_eq!(two.ask(&["DBSIZE"]).unwrap(), int(40));
    let words = |first: &'static str| [first].into_iter().chain(names.iter().map(String::as_str)).collect::<Vec<_>>();
    let bulk = |text: &str| Word::Bulk(text.to_owned());
    assert_eq!(two.ask(&words("MGET")).unwrap(), Word::List(names.iter().map(|name| bulk(&name[1..])).collect()));
    assert_eq!(two.ask(&words("EXISTS")).unwrap(), int(40));
    assert!(matches!(two.ask(&["RANDOMKEY"]).unwrap(), Word::Bulk(key) if names.contains(&key)));
    // Each page comes from another node, and one of them is killed and starts again meanwhile.
    let (mut scanned, mut cursor, mut pages) = (BTreeSet::new(), "0".to_owned(), 0);
    loop {
        let mut at = open(&yard, pages % 3 + 1, &token);
        let Word::List(page) = at.ask(&["SCAN", &cursor, "COUNT", "2"]).unwrap() else { panic!("no page") };
        let [Word::Bulk(next), Word::List(keys)] = &page[..] else { panic!("{page:?}") };
        scanned.extend(keys.iter().map(|key| if let Word::Bulk(key) = key { key.clone() } else { panic!("{key:?}") }));
        cursor = next.clone();
        pages += 1;
        if cursor == "0" {
            break;
        }
        assert!(pages < 100, "it comes to no end");
        if pages == 2 {
            yard.kill(2);
            yard.run(2);
        }
    }
    assert!(pages > 2, "more pages than that: {pages}");
    assert!(scanned.iter().eq(&names), "all keys: {scanned:?}");
    let mut two = open(&yard, 2, &token);
    let split = two.ask(&["MSET", "k00", "x", "k01", "x", "k02", "x", "k03", "x", "k04", "x"]).unwrap();
    assert!(
        matches!(&split, Word::Error(text) if text.contains("6 shards") && text.contains("shards = 1")),
        "{split:?}"
    );
    assert_eq!(one.ask(&["DEL", "k38", "k39", "nosuch"]).unwrap(), int(2));

    // Reading and following meet, over all shards, and a place is good at any node.
    let bearer = format!("Bearer {token}");
    let path = "/v1/ns/wide/keys?prefix=k&limit=20&reverse=true";
    let page = http::request(yard.at(3).api, "GET", path, &[("Authorization", &bearer)], b"").unwrap().json().unwrap();
    let expected: Vec<&String> = names[18..38].iter().rev().collect();
    assert_eq!((&page["keys"], &page["after"]), (&json!(expected), &json!("k18")));
    let place = page["version"].as_str().unwrap().to_owned();
    assert_eq!(place.split('.').count(), 6, "{place}");
    for name in &names[..20] {
        one.ask(&["SET", name, "new"]).unwrap();
    }
    let path = format!("/v1/ns/wide/watch?prefix=k&after={place}");
    let mut watch = Sse::open(yard.at(2).api, &path, &token, None).unwrap();
    let mut told: Vec<Event> = (0..12).map(|_| watch.next().unwrap()).collect();
    drop(watch);
    let last = told.last().unwrap().id.clone().unwrap();
    let mut watch = Sse::open(yard.at(3).api, "/v1/ns/wide/watch?prefix=k", &token, Some(&last)).unwrap();
    while told.len() < 20 {
        told.push(watch.next().unwrap());
    }
    assert!(told.iter().all(|event| event.name == "put" && event.data["value"] == json!("new")), "{told:?}");
    let keys: BTreeSet<&str> = told.iter().map(|event| event.data["key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), 20, "each once");
    one.ask(&["SET", "k30", "live"]).unwrap();
    let next = |watch: &mut Sse| loop {
        let event = watch.next().unwrap();
        if event.name != "version" {
            return event;
        }
    };
    assert_eq!(next(&mut watch).data["key"], json!("k30"));
    let wrong = Sse::open(yard.at(1).api, "/v1/ns/wide/watch?prefix=&after=7", &token, None).err().unwrap();
    assert!(wrong.contains("410") && wrong.contains("6") && wrong.contains("compacted"), "{wrong}");
    assert_eq!(one.ask(&["FLUSHDB"]).unwrap(), Word::Simple("OK".into()));
    let cleared = next(&mut watch);
    assert_eq!((&*cleared.name, &cleared.data["type"]), ("error", &json!("cleared")), "{cleared:?}");
    assert!(cleared.data["version"].as_str().is_some_and(|place| place.split('.').count() == 6), "{cleared:?}");
    assert_eq!(two.ask(&["DBSIZE"]).unwrap(), int(0));

    // Who dies loses its leads, and gets them back; who comes gets a share. Meanwhile all is served.
    for name in &names {
        one.ask(&["SET", name, "kept"]).unwrap();
    }
    let all = [(6, 2); 3];
    wait_for("leads are spread", Duration::from_secs(60), || is_spread(&yard, 1, &all));
    yard.kill(3);
    wait_for("others lead", Duration::from_secs(20), || match spread(&yard, 1)?.get("n3") {
        Some((6, 0)) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    yard.run(3);
    let back = wait_for("it leads again", Duration::from_secs(60), || is_spread(&yard, 1, &all)).1;
    let begun = Instant::now();
    let fourth = yard.token("10m");
    yard.join(4, &fourth).good();
    yard.run(4);
    let mut slowest = Duration::ZERO;
    let mut written = 0u32;
    loop {
        let asked = Instant::now();
        let name = &names[written as usize % names.len()];
        let answer = one.ask(&["SET", name, &written.to_string()]).unwrap();
        assert_eq!(answer, Word::Simple("OK".into()), "after {written} writes, {:?} after the join", begun.elapsed());
        slowest = slowest.max(asked.elapsed());
        written += 1;
        // 18 places of members and 6 leads on four nodes.
        let of: Vec<(usize, usize)> = spread(&yard, 1).unwrap_or_default().into_values().collect();
        let is_even = |what: fn(&(usize, usize)) -> usize| {
            let counts: Vec<usize> = of.iter().map(what).collect();
            counts.iter().max().zip(counts.iter().min()).is_some_and(|(most, least)| most - least <= 1)
        };
        if of.len() == 4 && is_even(|n| n.0) && of.iter().map(|n| n.1).max() <= Some(2) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{of:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    say(&format!(
        "leads back after {back:?}; shards moved to a new node within {:?}, slowest of {written} writes {slowest:?}",
        begun.elapsed()
    ));
    assert_eq!(open(&yard, 4, &token).ask(&["DBSIZE"]).unwrap(), int(40));
    let last: Value = json!(written - 1);
    let name = &names[(written as usize - 1) % names.len()];
    assert_eq!(open(&yard, 4, &token).ask(&["GET", name]).unwrap(), Word::Bulk(last.to_string()));
}
