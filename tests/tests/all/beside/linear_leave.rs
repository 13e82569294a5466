//! Nodes leave for good, restart, and are drained, while values of class `linear` are written: what is acknowledged stays, no
//! shard stands, and others lead before a node ends.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use e2e::resp::{Resp, Word};
use e2e::tools::Said;
use e2e::writes::Writes;
use e2e::{Up, Yard, http, say, wait_for};
use serde_json::Value;

/// Each with several shards: one on three nodes, one on a single node for each.
const FILE: &str = "[namespace.wide]\nclass = \"linear\"\nshards = 5\n\n\
                    [namespace.sole]\nclass = \"linear\"\nshards = 4\nreplicas = 1\n";
const REMOVED_WITHIN: Duration = Duration::from_secs(120);

fn open(at: SocketAddr, namespace: &str, token: &str) -> Resp {
    let open = || {
        let mut resp = Resp::open(at, namespace, token)?;
        match resp.ask(&["DBSIZE"])? {
            Word::Int(_) => Ok(resp),
            other => Err(format!("{other:?}")),
        }
    };
    wait_for("all shards are open", Duration::from_secs(60), open).0
}

fn shards(view: &Value) -> impl Iterator<Item = &Value> {
    let namespaces = view["namespaces"].as_array().into_iter().flatten();
    namespaces.flat_map(|namespace| namespace["shards"].as_array().into_iter().flatten())
}

fn are_whole(view: &Value) -> Result<(), String> {
    let groups = &view["groups"];
    if groups["all"].as_u64() > Some(0) && groups["all"] == groups["whole"] { Ok(()) } else { Err(groups.to_string()) }
}

/// Asks until it is not refused because bricks are changing places.
fn remove(yard: &Yard, by: u8, name: &str, options: &[&str]) -> String {
    let args: Vec<&str> = ["node", "remove", name, "--json"].iter().chain(options).copied().collect();
    let done = wait_for(&format!("{name} is removed"), REMOVED_WITHIN, || {
        let said: Said = yard.coppice_within(REMOVED_WITHIN, by, &args);
        if said.is_good() { Ok(said.good()) } else { Err(said.err) }
    });
    say(&format!("{name} was removed within {:?}: {}", done.1, done.0.replace('\n', " ")));
    done.0
}

#[test]
fn nodes_leave_one_after_the_other_and_two_at_once_and_nothing_that_was_acknowledged_is_lost() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(5);
    yard.apply(1, "both.toml", FILE).good();
    let tokens = ["wide", "sole"].map(|namespace| (namespace, yard.namespace_token(namespace)));
    for (namespace, token) in &tokens {
        open(yard.at(5).resp, namespace, token);
    }
    wait_for("all shards are whole", Duration::from_secs(60), || are_whole(&yard.status(5)?));
    let doors: Vec<SocketAddr> = [5, 4, 3, 1].map(|n| yard.at(n).resp).to_vec();
    let loads: Vec<Writes> = tokens.iter().map(|(namespace, token)| Writes::start(&doors, namespace, token)).collect();
    let go_on = |loads: &[Writes]| loads.iter().for_each(|load| load.go_on(100));

    // Who founded the cluster, leads it perhaps, and votes; and another one at the same moment.
    std::thread::scope(|scope| {
        let yard = &yard;
        scope.spawn(|| remove(yard, 5, "n1", &[]));
        scope.spawn(|| remove(yard, 4, "n2", &[]));
    });
    assert_eq!((yard.ended(1), yard.ended(2)), (Some(76), Some(76)));
    go_on(&loads);
    let view = yard.status(5).unwrap();
    for shard in shards(&view) {
        let members: Vec<&str> = shard["members"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(members.iter().all(|name| ["n3", "n4", "n5"].contains(name)), "{shard}");
    }
    let voters: Vec<&str> = view["root"]["voters"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(voters.len() == 3 && !voters.contains(&"n1") && !voters.contains(&"n2"), "{voters:?}");

    // Three are the fewest. By force it goes on: with fewer copies, but all is there.
    let refused = yard.coppice(5, &["node", "remove", "n3"]).wrong();
    assert!(refused.contains("3 bricks are the fewest") && refused.contains("join"), "{refused}");
    for (name, number, by) in [("n3", 3, 5), ("n4", 4, 5)] {
        let said = remove(&yard, by, name, &["--force"]);
        assert!(said.contains("forcing") && said.contains("bricks"), "{said}");
        assert_eq!(yard.ended(number), Some(76));
        go_on(&loads);
    }
    let view = yard.status(5).unwrap();
    assert_eq!((&view["root"]["voters"], &view["root"]["leader"]), (&serde_json::json!(["n5"]), &"n5".into()));
    for (load, (namespace, token)) in loads.into_iter().zip(&tokens) {
        let written = load.end();
        written.no_failures(&format!("{namespace}: four of five nodes left"));
        written.are_kept(&mut open(yard.at(5).resp, namespace, token));
    }
    // What the last one has it has on its disk.
    yard.kill(5);
    yard.run(5);
    for (namespace, token) in &tokens {
        open(yard.at(5).resp, namespace, token);
    }
}

#[test]
fn a_node_does_not_leave_if_its_copies_have_nowhere_to_go() {
    let _turn = e2e::beside();
    let yard = Yard::cluster(5);
    yard.apply(1, "five.toml", "[namespace.five]\nclass = \"linear\"\nreplicas = 5\n").good();
    wait_for("it has five copies", Duration::from_secs(60), || are_whole(&yard.status(1)?));
    let (refused, _) = wait_for("the bricks do not hinder it", Duration::from_secs(60), || {
        let refused = yard.coppice(1, &["node", "remove", "n5"]).wrong();
        if refused.contains("brick") { Err(refused) } else { Ok(refused) }
    });
    let words = ["namespace five has 5 copies", "4 other live nodes", "join", "fewer replicas"];
    assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
    assert_eq!(yard.status(1).unwrap()["nodes"].as_array().map(Vec::len), Some(5));
}

#[test]
fn a_rolling_restart_hands_leads_over_and_no_write_fails_or_waits_for_an_election() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("wide.toml", "[namespace.wide]\nclass = \"linear\"\nshards = 6\n").good();
    let token = up.token("wide");
    open(up.at(1).resp, "wide", &token);
    wait_for("all shards are whole", Duration::from_secs(60), || are_whole(&up.status(1)?));
    let doors: Vec<SocketAddr> = (1..=3).map(|n| up.at(n).resp).collect();
    let mut longest = Vec::new();
    for turn in 1..=2 {
        let load = Writes::start(&doors, "wide", &token);
        let begun = Instant::now();
        wait_for("all may restart", Duration::from_secs(60), || {
            let said = up.coppice(&["node", "restart", "--rolling"]);
            if said.is_good() { Ok(()) } else { Err(said.err) }
        });
        let took = begun.elapsed();
        load.go_on(100);
        are_whole(&up.status(1).unwrap()).expect("it waits until all members are back");
        let written = load.end();
        written.no_failures(&format!("rolling restart {turn}, {took:?}"));
        written.are_kept(&mut open(doors[1], "wide", &token));
        longest.push(written.longest);
        let anew = doors.iter().map(|door| open(*door, "wide", &token)).map(|mut conn| conn.ask(&["FLUSHDB"]).unwrap());
        assert!(anew.into_iter().all(|word| word == Word::Simple("OK".into())));
    }
    if e2e::is_release() {
        assert!(longest.iter().all(|wait| *wait < Duration::from_millis(500)), "as an election takes: {longest:?}");
    }
}

#[test]
fn a_drained_node_leads_nothing_until_it_is_put_back() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("wide.toml", "[namespace.wide]\nclass = \"linear\"\nshards = 6\n").good();
    let leads = |name: &str| -> Result<usize, String> {
        let view = up.status(1)?;
        let all: Vec<&str> = shards(&view).filter_map(|shard| shard["leader"].as_str()).collect();
        if all.len() < 6 {
            return Err(format!("{all:?} lead 6 shards"));
        }
        let root = usize::from(view["root"]["leader"] == name);
        Ok(root + all.into_iter().filter(|leader| *leader == name).count())
    };
    let is = |name: &'static str, right: fn(usize) -> bool| {
        move || match leads(name)? {
            n if right(n) => Ok(()),
            n => Err(format!("{name} leads {n}")),
        }
    };
    let leader = up.status(1).unwrap()["root"]["leader"].as_str().unwrap().to_owned();
    let name = ["n1", "n2", "n3"].into_iter().find(|name| *name == leader).unwrap();
    wait_for("it leads shards", Duration::from_secs(60), is(name, |n| n > 1));
    up.coppice(&["node", "drain", name]).good();
    let took = wait_for("it leads nothing", Duration::from_secs(20), is(name, |n| n == 0)).1;
    say(&format!("{name} led nothing {took:?} after it was drained"));
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(leads(name), Ok(0), "nobody gives it a lead meanwhile");
    up.coppice(&["node", "undrain", name]).good();
    wait_for("it leads shards again", Duration::from_secs(60), is(name, |n| n > 0));
    assert_eq!(http::get(up.at(1).api, "/readyz").unwrap().status, 200);
}
