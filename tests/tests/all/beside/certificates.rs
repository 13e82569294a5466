//! Nodes' certificates end, and nobody notices: they live seconds here.

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use e2e::tools::{has, run};
use e2e::{Yard, http, wait_for};
use serde_json::Value;

const LIFE: (&str, &str) = ("COPPICE_LAB_CERTIFICATE_SECS", "6");
const ALL: [u8; 3] = [1, 2, 3];
/// A life, and what two busy cores take for the rest.
const WITHIN: Duration = Duration::from_secs(30);

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// When all three certificates have ended, as one node shows it, and since when it has seen the nodes as they are.
fn shown(view: &Value) -> Result<(u64, Vec<u64>), String> {
    let nodes = view["nodes"].as_array().filter(|nodes| nodes.len() == ALL.len()).ok_or("not all are there")?;
    let soon = now_ms() + 7_000;
    let ends = nodes.iter().map(|n| n["certificate_ends_at_ms"].as_u64().filter(|ends| (1..soon).contains(ends)));
    let ends = ends.collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max());
    let since = nodes.iter().filter_map(|n| n["since_ms"].as_u64()).collect();
    Ok((ends.ok_or_else(|| format!("some have a certificate that lives longer: {view}"))?, since))
}

#[test]
fn certificates_renew_themselves_and_a_cluster_that_was_off_until_all_had_ended_comes_back() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster_with(3, &[LIFE]);
    let ((ends, since), _) = wait_for("all have short certificates", WITHIN, || shown(&yard.status(1)?));
    let first: Vec<_> = ALL.iter().map(|n| fs::read(yard.node_dir(*n).join("node.pem")).unwrap()).collect();
    let past = |yard: &Yard, ends: u64| {
        wait_for("those have ended", WITHIN, || if now_ms() > ends { Ok(()) } else { Err("not yet".into()) });
        ALL.map(|n| fs::read(yard.node_dir(n).join("node.pem")).unwrap())
    };

    // While they run: others are there before, and the links of the first ones stay.
    let second = past(&yard, ends);
    assert!(first.iter().zip(&second).all(|(first, second)| first != second));
    let view = yard.whole(1, &ALL, 0).unwrap();
    assert_eq!(shown(&view).unwrap().1, since, "nobody was away meanwhile: {view}");
    let told = view["events"].as_array().unwrap().iter().filter(|e| e["kind"] == "certificate");
    assert!(told.clone().any(|e| e["who"] == "n2" && e["text"] == "its certificate was renewed, for 6 seconds"));
    assert!(view["nodes"].as_array().unwrap().iter().all(|n| n["certificate_fails"] == false), "{view}");
    let metrics = http::get(yard.at(1).api, "/metrics").unwrap().text();
    assert!(metrics.contains("\ncoppice_node_certificate_ends_seconds 1"), "{metrics}");

    // One that was away until its own had ended, and all at once: nobody is left who could sign for them.
    let back = |yard: &mut Yard, away: &[u8]| {
        let ((ends, _), _) = wait_for("all have told theirs", WITHIN, || shown(&yard.status(1)?));
        away.iter().for_each(|n| yard.kill(*n));
        past(yard, ends.max(now_ms() + 6_000));
        away.iter().for_each(|n| yard.begin(*n, &[]));
        wait_for("all are back", WITHIN, || yard.whole(1, &ALL, 0));
    };
    back(&mut yard, &[3]);
    back(&mut yard, &ALL);
}

#[test]
fn another_authority_takes_over_while_all_nodes_run_and_the_old_one_opens_nothing() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(3);
    let of = |yard: &Yard, n: u8, file: &str| fs::read_to_string(yard.node_dir(n).join(file)).unwrap();
    wait_for("all understand level 9", WITHIN, || match yard.status(1)?["root"]["level"].as_u64() {
        Some(9..) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let (old, token) = (of(&yard, 1, "ca.pem"), yard.token("1h"));
    let since = |yard: &Yard| {
        let view = yard.whole(1, &ALL, 0).unwrap();
        view["nodes"].as_array().unwrap().iter().map(|n| n["since_ms"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let before = since(&yard);
    let old_file = yard.node_dir(1).join("old.pem").display().to_string();
    fs::write(&old_file, &old).unwrap();

    let said = yard.coppice(1, &["ca", "rotate"]).good();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 4 && lines[2].contains("(3 of 3)") && lines[3].contains("another authority"), "{said}");
    let new = of(&yard, 1, "ca.pem");
    assert!(new != old && new.matches("BEGIN CERTIFICATE").count() == 1, "{new}");
    for n in ALL {
        assert_eq!(of(&yard, n, "ca.pem"), new);
        let signed = |by: &str| {
            let own = yard.node_dir(n).join("node.pem");
            run(Command::new("openssl").args(["verify", "-CAfile", by]).arg(own), WITHIN).is_good()
        };
        if has("openssl") {
            assert!(signed(&yard.node_dir(n).join("ca.pem").display().to_string()) && !signed(&old_file));
        }
    }
    assert_eq!(since(&yard), before, "nobody was away meanwhile");
    let shown = yard.coppice(1, &["status", "--json"]).good() + &yard.coppice(1, &["events"]).good();
    assert!(shown.contains("the old one counts no more") && !shown.contains("PRIVATE KEY"));

    // All links anew, of all nodes.
    ALL.iter().for_each(|n| yard.kill(*n));
    ALL.iter().for_each(|n| yard.begin(*n, &[]));
    wait_for("all are back", WITHIN, || yard.whole(1, &ALL, 0));
    let refused = yard.join(4, &token).wrong();
    assert!(
        refused.contains("another cluster than this token"),
        "a token has the fingerprint of the old one: {refused}"
    );
    let token = yard.token("1h");
    yard.join(4, &token).good();
    assert_eq!(of(&yard, 4, "ca.pem"), new);
}
