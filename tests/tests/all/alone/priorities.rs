//! Priorities over the doors of several nodes, with real clones that answer one request after the other.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use e2e::Up;
use e2e::program::coppice;
use serde_json::Value;

/// So many requests a second, whatever becomes of them.
fn load(at: SocketAddr, path: &str, rate: u32, seconds: u32) -> Child {
    let mut command = Command::new(coppice());
    command.args(["load", &format!("http://{at}{path}"), "-q", "--json"]);
    command.args(["--rate", &rate.to_string(), "--duration", &format!("{seconds}s")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// What became of it.
fn ended(load: Child) -> Value {
    let out = load.wait_with_output().unwrap().stdout;
    serde_json::from_slice(&out).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out)))
}

fn part(json: &Value, status: &str) -> f64 {
    json["statuses"][status].as_f64().unwrap_or(0.0) / json["offered"].as_f64().unwrap()
}

/// The part of what was due that was served.
fn served(load: Child) -> f64 {
    part(&ended(load), "200")
}

/// Loads a service at two paths with half more than it can do, the lower one at this door, and tells which part of each was served:
/// in the best of three measures, as in one the machine may stand still for something else. What promises that the upper one
/// comes first, and does not keep it, breaks it in all.
fn upper_and_lower(up: &Up, lower_at: u8, good: impl Fn(f64, f64) -> bool) -> (f64, f64) {
    let measure = || {
        let lower = load(up.at(lower_at).http, "/lower", 40, 13);
        // Until the doors know what clones can do.
        served(load(up.at(1).http, "/upper", 35, 4));
        let upper = served(load(up.at(1).http, "/upper", 35, 8));
        (upper, served(lower))
    };
    let mut found = measure();
    for _ in 0..2 {
        e2e::say(&format!("served: {:.3} of the upper, {:.3} of the lower", found.0, found.1));
        if good(found.0, found.1) {
            break;
        }
        found = measure();
    }
    found
}

/// Two clones, 25 requests a second each; what matters more, and less.
fn slow(clones: &str) -> String {
    let program = e2e::program::service_program("slow.py");
    format!(
        "[service.slow]\nrun = [\"python3\", {program:?}]\nclones = {clones}\nhealth = \"/health\"\nhttp = {{ host = \"*\" }}\n\
         env = {{ TAKES_MS = \"40\" }}\n\
         [[service.slow.partition]]\nname = \"upper\"\npath = \"/upper\"\npriority = \"critical\"\n\
         [[service.slow.partition]]\nname = \"lower\"\npath = \"/lower\"\npriority = \"low\"\n"
    )
}

#[test]
fn what_matters_more_goes_first_though_it_comes_to_another_node() {
    let _turn = e2e::alone();
    let up = Up::bare(2);
    up.apply("slow.toml", &slow("2")).good();
    up.settle(Duration::from_secs(30), 0);
    // Both together are asked for half more than they can do, 50 a second.
    let good = |upper, lower| upper > 0.93 && (0.02..0.7).contains(&lower);
    let (upper, lower) = upper_and_lower(&up, 2, good);
    assert!(upper > 0.93, "{upper} of the upper partition was served, {lower} of the lower one");
    assert!((0.02..0.7).contains(&lower), "{lower} of the lower one");
}

/// The manager hears of no request and edges not of each other's, as if all that they say were lost.
#[test]
fn without_any_report_traffic_flows_and_each_door_admits_by_itself() {
    let _turn = e2e::alone();
    let up = Up::start_with(2, &["--no-demo"], &[("COPPICE_LAB_NO_REPORTS", "1")]);
    up.apply("slow.toml", &slow("{ min = 2, max = 6 }")).good();
    up.settle(Duration::from_secs(30), 0);
    // Less than they can do, through both.
    let calm: Vec<_> = [1, 2].map(|n| load(up.at(n).http, "/upper", 10, 4)).into();
    for calm in calm.into_iter().map(ended) {
        assert_eq!(calm["statuses"]["200"], calm["offered"], "{calm}");
    }
    // Half more than they can do, through one.
    let lower = load(up.at(1).http, "/lower", 40, 13);
    served(load(up.at(1).http, "/upper", 35, 4));
    let upper = ended(load(up.at(1).http, "/upper", 35, 8));
    let lower = ended(lower);
    e2e::say(&format!(
        "served: {:.3} of the upper partition, {:.3} of the lower",
        part(&upper, "200"),
        part(&lower, "200")
    ));
    assert!(part(&upper, "200") > 0.93, "upper {upper}, lower {lower}");
    assert!((0.02..0.7).contains(&part(&lower, "200")), "{lower}");
    for one in [&upper, &lower] {
        assert!(part(one, "200") + part(one, "503") > 0.999, "answered or told to come again: {one}");
    }
    // Nobody heard of it who could have brought clones.
    let service = &up.status(1).unwrap()["services"][0];
    assert_eq!((&service["wanted"], service["clones"].as_array().unwrap().len()), (&2.into(), 2), "{service}");
}

/// Two services, of which one matters more, ask a third that can do less than both want: it is the same for all by itself.
#[test]
fn a_call_to_another_service_matters_as_much_as_the_request_that_it_is_made_for() {
    let _turn = e2e::alone();
    let up = Up::bare(2);
    let (slow, calls) = (e2e::program::service_program("slow.py"), e2e::program::service_program("calls.py"));
    let asks = format!("http://{}/back", up.at(1).http);
    let front = |name: &str, priority: &str| {
        format!(
            "[service.{name}]\nrun = [\"python3\", {calls:?}]\nclones = 2\nhealth = \"/health\"\nhttp = {{ path = \"/{name}\" }}\n\
             env = {{ ASKS = {asks:?} }}\n[[service.{name}.partition]]\nname = \"all\"\npriority = \"{priority}\"\n"
        )
    };
    let back = format!(
        "[service.back]\nrun = [\"python3\", {slow:?}]\nclones = 2\nhealth = \"/health\"\nhttp = {{ path = \"/back\" }}\n\
         env = {{ TAKES_MS = \"40\" }}\n"
    );
    up.apply("calls.toml", &(front("upper", "critical") + &front("lower", "low") + &back)).good();
    up.settle(Duration::from_secs(40), 0);
    let good = |upper, lower| upper > 0.78 && upper > lower + 0.25 && (0.02..0.7).contains(&lower);
    let (upper, lower) = upper_and_lower(&up, 1, good);
    // With equal chances each would get less than two thirds.
    assert!(upper > 0.78 && upper > lower + 0.25, "{upper} of the upper service was served, {lower} of the lower one");
    assert!((0.02..0.7).contains(&lower), "{lower} of the lower one");
}
