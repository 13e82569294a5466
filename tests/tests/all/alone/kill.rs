//! Killing: any one node or clone at any time, under load, and nobody who talks to a live node notices. How fast deaths
//! are known, and that load alone makes none.

use std::collections::BTreeSet;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use e2e::http::{Reply, Shopper};
use e2e::load::{Does, Load};
use e2e::procs::{Busy, Proc, Signal};
use e2e::up::clones;
use e2e::wait::watch;
use e2e::{Shared, Up, wait_for};
use serde_json::Value;

static SHOP: Shared = Shared::alone(Up::shop);

/// Until a node is back with its clone, from its death: restart, membership, a clone moved to it.
const BACK_WITHIN: Duration = Duration::from_secs(30);
const PROMISED_KILLED: u64 = 500;
const PROMISED_HUNG: u64 = 3_000;

#[test]
fn each_node_in_turn_is_killed_under_load_and_no_request_through_a_live_one_fails() {
    let mut up = SHOP.take();
    for victim in 1..=3 {
        up.settle(BACK_WITHIN, 1);
        let mut regulars: Vec<Shopper> = (1..=3).map(|n| Shopper::new(&format!("victim{victim}-via{n}"))).collect();
        for (node, me) in (1..=3).zip(&mut regulars) {
            me.add(up.at(node).http, "walnut").unwrap();
            me.add(up.at(node % 3 + 1).http, "cheese").unwrap();
        }
        let others: Vec<_> = (1..=3).filter(|n| *n != victim).map(|n| up.at(n).http).collect();
        let load = Load::start(&others, Does::AddsAndLooks);
        let old = Proc::of(up.node_pid(victim)).unwrap();

        old.signal(Signal::KILL);
        let died = up.event("died", Duration::from_secs(5));
        assert_eq!(
            (died["name"].as_str(), died["pid"].as_u64()),
            (Some(&*format!("n{victim}")), Some(old.pid.into())),
            "{died}"
        );
        assert!(died["how"].as_str().is_some_and(|how| how.contains('9')), "{died}");
        load.go_on(40);
        for me in &mut regulars {
            me.add(others[0], "apple").unwrap();
            me.check(others[1]).unwrap();
        }

        let back = up.event("restarted", BACK_WITHIN);
        assert_eq!(back["name"], format!("n{victim}"), "{back}");
        assert_eq!(back["pid"], up.node_pid(victim), "{back}");
        assert!(back["restarts"].as_u64() >= Some(1), "{back}");
        let took = up.settle(BACK_WITHIN, 1);
        load.go_on(40);
        // Back in membership, and it serves the carts at its own address.
        for me in &mut regulars {
            me.check(up.at(victim).http).unwrap();
            me.add(up.at(victim).http, "bread").unwrap();
        }
        let when = format!("n{victim} killed and back {} ms after its restart", took.as_millis());
        load.end().only_unrepeatable(2 * others.len(), &when);
    }
}

#[test]
fn each_clone_in_turn_is_killed_under_load_and_only_what_may_not_be_repeated_is_told_so() {
    let up = SHOP.take();
    up.settle(BACK_WITHIN, 1);
    let mut me = Shopper::new("clones");
    me.add(up.at(1).http, "honey").unwrap();
    let doors: Vec<_> = (1..=3).map(|n| up.at(n).http).collect();
    for number in 0..3 {
        let looks = Load::start(&doors, Does::Looks);
        let adds = Load::start(&doors, Does::AddsAndLooks);
        let clone = clone_of(&up, number);
        let (name, pid) = (clone["name"].as_str().unwrap().to_owned(), clone["pid"].as_u64().unwrap() as u32);
        Proc::of(pid).unwrap().signal(Signal::KILL);
        wait_for("the clone is started again", BACK_WITHIN, || {
            let now = clones(&up.status(1)?)
                .into_iter()
                .find(|c| c["name"] == name.as_str() && c["state"] == "serving" && c["pid"] != pid);
            now.map(|_| ()).ok_or_else(|| format!("{name} is not back"))
        });
        looks.go_on(60);
        looks.end().no_failures(&format!("{name} killed, carts looked at"));
        adds.end().only_unrepeatable(2 * doors.len(), &format!("{name} killed, carts filled"));
        me.check(doors[number]).unwrap();
        up.settle(BACK_WITHIN, 1);
    }
}

#[test]
fn a_killed_node_is_known_dead_to_the_others_in_under_half_a_second() {
    let mut up = SHOP.take();
    up.settle(BACK_WITHIN, 0);
    let at = now_ms();
    Proc::of(up.node_pid(3)).unwrap().signal(Signal::KILL);
    for node in 1..=2 {
        let took = death_of(&up, node, "n3", at, Duration::from_secs(5));
        e2e::say(&format!("n{node} knew {took} ms after the kill"));
        assert!(took < PROMISED_KILLED, "n{node} knew of the death after {took} ms");
    }
    up.event("restarted", BACK_WITHIN);
    up.settle(BACK_WITHIN, 0);
}

#[test]
fn a_hung_node_is_known_in_under_three_seconds_and_live_again_by_itself_when_it_goes_on() {
    let up = SHOP.take();
    up.settle(BACK_WITHIN, 1);
    // A brick that has not heard all others yet says of nothing that it is not there: without n2 its word would be missing.
    wait_for("all bricks have heard each other", BACK_WITHIN, || {
        let view = up.status(1)?;
        let all = view["nodes"].as_array().is_some_and(|nodes| nodes.iter().all(|n| n["brick"]["settled"] == true));
        all.then_some(()).ok_or_else(|| view["nodes"].to_string())
    });
    let mut me = Shopper::new("hung");
    me.add(up.at(2).http, "honey").unwrap();
    let load = Load::start(&[up.at(1).http, up.at(3).http], Does::AddsAndLooks);
    let hung = Proc::of(up.node_pid(2)).unwrap();
    let at = now_ms();
    hung.signal(Signal::STOP);
    let took: Vec<u64> = [1, 3].into_iter().map(|node| death_of(&up, node, "n2", at, Duration::from_secs(6))).collect();
    load.go_on(40);
    // The carts are there meanwhile.
    let checked = me.check(up.at(1).http).and_then(|()| me.add(up.at(3).http, "bread"));
    hung.signal(Signal::CONT);
    checked.unwrap();
    e2e::say(&format!("a hung node was known after {took:?} ms"));
    assert!(took.iter().all(|ms| *ms < PROMISED_HUNG), "a hung node was known after {took:?} ms");
    let took = up.settle(BACK_WITHIN, 1);
    e2e::say(&format!("live again, with a clone, {} ms after it went on", took.as_millis()));
    assert!(hung.is_alive(), "it is the same process, not restarted");
    load.go_on(40);
    load.end().only_unrepeatable(4, "n2 hung and went on");
    me.check(up.at(2).http).unwrap();
}

/// Its kernel acknowledges all that comes, and its program, which runs on, has the requests.
#[test]
fn requests_that_wait_at_a_node_that_hangs_are_answered_by_others_as_soon_as_that_is_known() {
    let _turn = e2e::alone();
    let up = Up::bare(3);
    let program = e2e::program::service_program("slow.py");
    let declaration = format!(
        "[service.slow]\nrun = [\"python3\", {program:?}]\nclones = 2\nhealth = \"/health\"\nenv = {{ TAKES_MS = \"700\" }}\n\
         http = {{ host = \"*\", path = \"/\" }}\n"
    );
    up.apply("slow.toml", &declaration).good();
    // What can wait at a clone of the same node mostly does.
    up.coppice(&["node", "drain", "n1"]).good();
    wait_for("one clone is on each other node", BACK_WITHIN, || {
        let view = up.status(1)?;
        let clones = view["services"][0]["clones"].as_array().ok_or("there is no service")?;
        let on = |node: &str| clones.iter().filter(|c| c["node"] == node && c["state"] == "serving").count();
        if on("n2") == 1 && on("n3") == 1 { Ok(()) } else { Err(format!("{clones:?}")) }
    });
    let at = up.at(1).http;
    let ask_many = || -> Vec<_> { (0..9).map(|_| std::thread::spawn(move || e2e::http::get(at, "/"))).collect() };
    let whose = |asked: Vec<JoinHandle<io::Result<Reply>>>| -> Result<BTreeSet<String>, String> {
        let reply = |asked: JoinHandle<io::Result<Reply>>| asked.join().unwrap().map_err(|error| error.to_string());
        asked.into_iter().map(|asked| reply(asked).map(|reply| format!("{} {}", reply.status, reply.text()))).collect()
    };
    let clones = whose(ask_many()).unwrap();
    assert!(clones.len() == 2 && clones.iter().all(|clone| clone.starts_with("200")), "to both: {clones:?}");
    let (hung, begun) = (Proc::of(up.node_pid(3)).unwrap(), Instant::now());
    let asked = ask_many();
    // Each of the two has several, and goes through them one after the other.
    e2e::wait::soon("the first is answered", 10, || asked.iter().any(JoinHandle::is_finished));
    hung.signal(Signal::STOP);
    let clones = whose(asked);
    let took = begun.elapsed();
    hung.signal(Signal::CONT);
    let clones = clones.unwrap();
    e2e::say(&format!("with a node that hangs, answers by {clones:?} took {} ms", took.as_millis()));
    assert!(clones.iter().all(|clone| clone.starts_with("200")), "{clones:?}");
    assert!(took < Duration::from_secs(12), "{took:?}");
}

#[test]
fn no_node_is_taken_for_dead_while_both_cores_are_saturated() {
    let up = SHOP.take();
    up.settle(BACK_WITHIN, 0);
    let before = now_ms();
    let busy = Busy::start(4);
    let false_death = watch(Duration::from_secs(5), || {
        (1..=3).find_map(|node| {
            let events = up.status(node).ok()?["events"].as_array()?.clone();
            let death = events.into_iter().find(|e| e["kind"] == "death" && e["at_ms"].as_u64() >= Some(before))?;
            Some(format!("n{node} says {death}"))
        })
    });
    drop(busy);
    assert_eq!(false_death, None);
    up.settle(BACK_WITHIN, 0);
}

/// Milliseconds from `at` to the moment when this node, by its own clock, which is ours, held that one for dead.
fn death_of(up: &Up, node: u8, whose: &str, at: u64, within: Duration) -> u64 {
    let (death, _) = wait_for(&format!("n{node} knows of the death of {whose}"), within, || {
        let view = up.status(node)?;
        let events = view["events"].as_array().cloned().unwrap_or_default();
        let is_it = |e: &&Value| e["kind"] == "death" && e["who"] == whose && e["at_ms"].as_u64() >= Some(at);
        events.iter().find(is_it).map(|e| e["at_ms"].as_u64().unwrap()).ok_or_else(|| format!("{}", view["nodes"]))
    });
    death - at
}

fn clone_of(up: &Up, number: usize) -> Value {
    let all = clones(&up.status(1).unwrap());
    let name = format!("shop/{number}");
    all.iter().find(|c| c["name"] == name.as_str()).cloned().unwrap_or_else(|| panic!("no {name} in {all:?}"))
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}
