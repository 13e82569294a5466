//! What clones print is read at any node: of all nodes, in order, with what happened to them, and by the operator alone.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::procs::{Proc, Signal};
use e2e::up::clones;
use e2e::{Up, http, wait_for};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(20);
/// Says its name, something with control characters to standard error, and then a number ten times a second.
const TALK: &str = r#"
[service.talk]
run = ["sh", "-c", "echo \"I am $COPPICE_CLONE\"; printf 'oops \\033[2J {\"a\": 1}\\n' >&2; printf '\\302\\2332J \\342\\200\\256txt\\n'; n=0; while sleep 0.1; do n=$((n+1)); echo $n; done"]
clones = 3
"#;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_clones_print_is_read_at_any_node_in_order_and_by_the_operator_alone() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    let none = up.coppice(&["logs", "talk"]);
    assert!(none.err.contains("there is no service \"talk\"; none is declared"), "{}", none.err);
    up.apply("talk.toml", TALK).good();
    up.settle(SOON, 1);
    wait_for("all of them have spoken", SOON, || {
        let said = lines(&up.coppice(&["logs", "talk", "--json", "-n", "10000"]).good());
        let who: BTreeSet<_> =
            said.iter().map(|l| l["line"].as_str().unwrap()).filter(|l| l.starts_with("I am")).collect();
        let has = |source: &str, text: &str| {
            said.iter().any(|line| line["source"] == source && line["line"].as_str().unwrap().starts_with(text))
        };
        let all = has("err", "oops \u{1b}[2J {\"a\": 1}") && has("node", "started, pid ") && has("out", "1");
        if who.len() == 3 && all { Ok(()) } else { Err(format!("{said:?}")) }
    });
    let said = lines(&up.coppice(&["logs", "talk", "--json", "-n", "10000"]).good());
    assert!(said.is_sorted_by_key(|line| line["at_us"].as_u64()), "in order of time");
    let nodes: BTreeSet<_> = said.iter().map(|line| line["node"].as_str().unwrap()).collect();
    assert_eq!(nodes.len(), 3, "each node has a clone, and its lines");
    let text = up.coppice(&["logs", "talk", "-n", "10000"]).good();
    assert!(text.contains("oops \\u001b[2J {\"a\": 1}") && text.contains("\\u009b2J \\u202etxt"), "{text}");
    // Case E10: nothing steers the terminal, whatever is printed; JSON says the same all the same.
    for args in [
        &["logs", "talk", "--json", "-n", "10000"][..],
        &["status"],
        &["status", "--json"],
        &["events"],
        &["events", "--json"],
    ] {
        let steers = |c: char| c.is_control() && c != '\n' && c != '\t' || c == '\u{202e}';
        let text = up.coppice(args).good();
        assert!(!text.contains(steers), "{args:?}: {text:?}");
    }
    assert!(said.iter().any(|line| line["line"] == "\u{9b}2J \u{202e}txt"), "{said:?}");

    // One clone alone; and it is killed.
    let all = clones(&up.status(1).unwrap());
    let pid = all.iter().find(|clone| clone["name"] == "talk/1").unwrap()["pid"].as_u64().unwrap();
    Proc::of(u32::try_from(pid).unwrap()).unwrap().signal(Signal::KILL);
    wait_for("its end is told", SOON, || {
        let one = lines(&up.coppice(&["logs", "talk", "--json", "--clone", "1", "-n", "10000"]).good());
        assert!(one.iter().all(|line| line["clone"] == 1));
        let ended = one.iter().position(|line| line["line"] == "ended: killed by signal 9").ok_or("not told yet")?;
        let again = one[ended..].iter().any(|line| line["line"].as_str().unwrap().starts_with("started, pid "));
        if again { Ok(()) } else { Err("it was not started again yet".to_owned()) }
    });

    // Whoever reads on gets each line once.
    let ask = |query: &str, token: &str| {
        let shown = format!("Bearer {token}");
        let path = format!("/v1/services/talk/logs?{query}");
        http::request(up.at(2).api, "GET", &path, &[("Authorization", &shown)], b"").unwrap()
    };
    let (token, mut after, mut counted) = (up.admin_token(), String::new(), Vec::new());
    wait_for("twenty numbers of a clone came", SOON, || {
        let told = ask(&format!("clone=0&lines=5&after={after}"), &token).json().unwrap();
        for line in told["lines"].as_array().unwrap() {
            counted.extend(line["line"].as_str().unwrap().parse::<u32>().ok());
        }
        let places = told["after"].as_object().unwrap().iter().map(|(node, us)| format!("{node}:{us}"));
        after = places.collect::<Vec<_>>().join(",");
        if counted.len() >= 20 { Ok(()) } else { Err(format!("{counted:?}")) }
    });
    assert!(counted.iter().copied().eq(1..=counted.len() as u32), "{counted:?}");
    assert_eq!((ask("", "wrong").status, ask("lines=0", &token).status), (401, 400));

    // The lines of a dead node are left out until it is back.
    Proc::of(up.node_pid(3)).unwrap().signal(Signal::KILL);
    wait_for("the others tell theirs", SOON, || {
        let told = up.coppice(&["logs", "talk", "--json", "-n", "10"]);
        if told.is_good() && lines(&told.out).len() == 10 { Ok(()) } else { Err(told.err) }
    });
}
