//! Class `soft` while the network is cut: both sides go on, and when it is whole again all nodes have what both did.

use std::time::Duration;

use e2e::resp::{Resp, Word};
use e2e::sse::Sse;
use e2e::{Yard, net, skip, wait_for};

const SOON: Duration = Duration::from_secs(30);

fn ask(resp: &mut Resp, command: &str) -> Word {
    resp.ask(&command.split(' ').collect::<Vec<_>>()).unwrap()
}

fn members(resp: &mut Resp) -> Vec<String> {
    let Word::List(members) = ask(resp, "SMEMBERS online") else { panic!("SMEMBERS says a list") };
    let text = |word: &Word| if let Word::Bulk(text) = word { text.clone() } else { panic!("{word:?}") };
    members.iter().map(text).collect()
}

#[test]
fn both_sides_of_a_cut_network_keep_what_they_did() {
    let _turn = e2e::beside();
    match net::enter(module_path!(), "both_sides_of_a_cut_network_keep_what_they_did") {
        Ok(true) => (),
        Ok(false) => return,
        Err(why) => return skip(&why),
    }
    let yard = Yard::apart(3);
    yard.apply(1, "floor.toml", "[namespace.floor]\nclass = \"soft\"\n").good();
    let token = yard.namespace_token("floor");
    let open = |n: u8| Resp::open(yard.at(n).resp, "floor", &token).unwrap();
    let mut nodes: Vec<Resp> = (1..=3).map(open).collect();
    ask(&mut nodes[0], "SADD online ann bob");
    ask(&mut nodes[0], "INCRBY visits 10");
    wait_for("all have it", SOON, || match (members(&mut nodes[2]), ask(&mut nodes[2], "GET visits")) {
        (all, Word::Bulk(sum)) if all.len() == 2 && sum == "10" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let cut = yard.net.as_ref().unwrap();
    cut.deafen(3, &[1, 2]);
    [1, 2].into_iter().for_each(|other| cut.deafen(other, &[3]));
    // Writes wait for another node until it is known that there is none.
    for n in 0..20 {
        assert_eq!(ask(&mut nodes[n % 3], &format!("SADD online m{n}")), Word::Int(1));
        assert!(matches!(ask(&mut nodes[n % 3], "INCRBY visits 1"), Word::Int(_)));
    }
    assert_eq!(ask(&mut nodes[0], "SREM online ann"), Word::Int(1));
    // What the other side has removed and this one adds anew stays.
    assert_eq!(ask(&mut nodes[0], "SREM online bob"), Word::Int(1));
    assert_eq!(ask(&mut nodes[2], "SADD online bob"), Word::Int(0));
    assert!(!members(&mut nodes[0]).contains(&"m2".to_owned()), "it is cut off");
    ask(&mut nodes[0], "SET flag older");
    std::thread::sleep(Duration::from_millis(5));
    ask(&mut nodes[2], "SET flag newer");
    let mut watch = Sse::open(yard.at(1).api, "/v1/ns/floor/watch?prefix=flag&after=", &token, None).unwrap();
    wait_for("it is told", SOON, || match watch.next()?.data["value"] == "older" {
        true => Ok(()),
        false => Err("another event".into()),
    });
    (1..=3).for_each(|n| cut.mend(n));
    wait_for("what lost is told to who watches", SOON, || match watch.next()?.data {
        data if data["value"] == "newer" && data["lost"][0] == "older" && data["why"] == "repair" => Ok(()),
        other => Err(other.to_string()),
    });
    let mut expect: Vec<String> = (0..20).map(|n| format!("m{n}")).chain(["bob".to_owned()]).collect();
    expect.sort();
    for resp in &mut nodes {
        wait_for("all nodes have what both sides did", SOON, || match (members(resp), ask(resp, "GET visits")) {
            (all, Word::Bulk(sum)) if all == expect && sum == "30" => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}
