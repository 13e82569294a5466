//! Who is one of the cluster's nodes and who is not any more: removals, stolen folders, borrowed names, used tokens.

use std::fs;
use std::path::Path;
use std::time::Duration;

use e2e::wait::poll;
use e2e::{Yard, wait_for};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for found in fs::read_dir(from).unwrap().flatten() {
        let (path, to) = (found.path(), to.join(found.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

fn live(yard: &Yard, node: u8) -> Result<Vec<String>, String> {
    let view = yard.status(node)?;
    let nodes = view["nodes"].as_array().cloned().unwrap_or_default();
    let live = nodes.iter().filter(|n| n["state"] != "dead").filter_map(|n| n["name"].as_str().map(str::to_owned));
    Ok(live.collect())
}

#[track_caller]
fn see(yard: &Yard, by: &[u8], names: &[&str]) {
    wait_for(&format!("{by:?} see {names:?} and nobody else"), SOON, || {
        by.iter().try_for_each(|node| {
            let live = live(yard, *node)?;
            if live == names { Ok(()) } else { Err(format!("n{node} sees {live:?}")) }
        })
    });
}

/// For as long as that nobody else is let in.
#[track_caller]
fn stay(yard: &Yard, by: &[u8], names: &[&str], time: Duration) {
    let other: Result<(), String> = poll(time, || {
        let seen = by.iter().map(|node| live(yard, *node).unwrap()).find(|live| live != names);
        seen.map(|live| panic!("{live:?} are seen")).ok_or_else(String::new)
    });
    drop(other);
}

fn has_secrets(dir: &Path) -> Vec<String> {
    let names = ["node.key", "log", "log.distrusted", "founding.json", "identity.json"];
    names.into_iter().filter(|name| dir.join(name).exists()).map(str::to_owned).collect()
}

#[test]
fn who_was_removed_is_let_in_by_nobody_also_with_a_copy_of_its_folder_and_gives_up_what_it_has() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(4);
    let (dir, stolen) = (yard.node_dir(4), yard.dir.join("stolen"));
    // What is on no disk yet nobody steals, and without it a node knows no others that could tell it.
    wait_for("what the root group keeps is on n4's disk", SOON, || {
        let mut files = fs::read_dir(dir.join("log")).unwrap().flatten().filter_map(|file| fs::read(file.path()).ok());
        let has = |bytes: Vec<u8>| memchr::memmem::find(&bytes, b"PRIVATE KEY").is_some();
        if files.any(has) { Ok(()) } else { Err("it is not".into()) }
    });
    yard.kill(4);
    copy(&dir, &stolen);
    yard.run(4);
    see(&yard, &[1, 2, 3, 4], &["n1", "n2", "n3", "n4"]);

    let removed = |yard: &Yard| {
        let said = yard.coppice_within(Duration::from_secs(120), 1, &["node", "remove", "n4", "--json"]);
        if said.is_good() { Ok(said.good()) } else { Err(said.err) }
    };
    wait_for("n4 is removed", Duration::from_secs(120), || removed(&yard));
    assert_eq!(yard.ended(4), Some(76));
    assert_eq!(has_secrets(&dir), [""; 0], "its key and its log are gone");
    see(&yard, &[1, 2, 3], &["n1", "n2", "n3"]);
    yard.begin(4, &[]);
    assert_eq!(yard.ended(4), Some(76), "it is not started again");
    yard.logs(4, &["removed"]);

    // Whoever has its key and its log, as they were before.
    fs::remove_dir_all(&dir).unwrap();
    copy(&stolen, &dir);
    yard.begin(4, &[]);
    yard.logs(1, &["n4", "was removed", "hung up"]);
    stay(&yard, &[1, 2, 3], &["n1", "n2", "n3"], Duration::from_secs(1));
    assert_eq!(yard.ended(4), Some(76), "it was told by more than half of those it knows");
    assert_eq!(has_secrets(&dir), [""; 0]);

    // Its name and its folder are free.
    let token = yard.token("10m");
    yard.join(4, &token).good();
    yard.run(4);
    see(&yard, &[1, 2, 3, 4], &["n1", "n2", "n3", "n4"]);
}

#[test]
fn a_machine_that_was_stolen_is_shut_out_within_seconds_whether_it_runs_or_not() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(5);
    let shut_out = |yard: &Yard, name: &str, options: &[&str]| {
        let args: Vec<&str> = ["node", "remove", name].iter().chain(options).copied().collect();
        let (said, took) = wait_for(&format!("{name} is shut out"), Duration::from_secs(60), || {
            let said = yard.coppice_within(Duration::from_secs(60), 1, &args);
            if said.is_good() { Ok(said.good()) } else { Err(said.err) }
        });
        e2e::say(&format!("{name} after {took:?}: {said}"));
    };
    shut_out(&yard, "n5", &["--now"]);
    see(&yard, &[1, 2, 3, 4], &["n1", "n2", "n3", "n4"]);
    assert_eq!(yard.ended(5), Some(76), "an honest one ends");
    assert_eq!(has_secrets(&yard.node_dir(5)), [""; 0]);

    yard.kill(4);
    shut_out(&yard, "n4", &["--force"]);
    yard.begin(4, &[]);
    stay(&yard, &[1, 2, 3], &["n1", "n2", "n3"], Duration::from_secs(2));
    assert_eq!(yard.ended(4), Some(76));
    let wrong = yard.coppice(1, &["node", "remove", "n9"]).wrong();
    assert!(wrong.contains("no node is named \"n9\"; there are: n1, n2, n3"), "{wrong}");
}

#[test]
fn nobody_shows_another_name_than_the_one_that_it_was_admitted_under() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(3);
    yard.kill(3);
    let identity = yard.node_dir(3).join("identity.json");
    let own = fs::read_to_string(&identity).unwrap();
    for name in ["n2", "evil.example"] {
        fs::write(&identity, own.replace("\"n3\"", &format!("{name:?}"))).unwrap();
        yard.begin(3, &[]);
        yard.logs(1, &["calls itself", name]);
        yard.logs(2, &["calls itself", name]);
        see(&yard, &[1, 2], &["n1", "n2"]);
        yard.kill(3);
    }
    fs::write(&identity, own).unwrap();
    yard.run(3);
    see(&yard, &[1, 2, 3], &["n1", "n2", "n3"]);
}

#[test]
fn a_token_lets_in_one_node_or_as_many_as_it_was_made_for_and_can_be_revoked() {
    let _turn = e2e::beside();
    let mut yard = Yard::new();
    yard.found("home");
    wait_for("the first records are in the root group alone", SOON, || {
        if yard.node_dir(1).join("founding.json").exists() { Err("it is there".into()) } else { Ok(()) }
    });
    let live =
        || -> Vec<Value> { serde_json::from_str(&yard.coppice(1, &["token", "list", "--json"]).good()).unwrap() };
    let token = yard.token("10m");
    let name = live()[0]["name"].as_str().unwrap().to_owned();
    assert!(yard.coppice(1, &["token", "list"]).good().contains(&format!("{name}  1 machine, ")), "it is listed");
    yard.join(2, &token).good();
    let used = yard.join(3, &token).wrong();
    assert!(used.contains("does not know the join token, or it was used"), "{used}");
    assert_eq!(live(), [Value::Null; 0]);
    let events = yard.coppice(1, &["events", "--json"]).good();
    assert!(events.lines().any(|line| line.contains("\"joined\"") && line.contains(&name)), "{events}");

    let two = yard.coppice(1, &["token", "--uses", "2"]).good().trim().to_owned();
    assert_eq!(live()[0]["uses_left"], 2);
    yard.join(3, &two).good();
    assert_eq!(live()[0]["uses_left"], 1);
    let name = live()[0]["name"].as_str().unwrap().to_owned();
    let wrong = yard.coppice(1, &["token", "revoke", "zz"]).wrong();
    assert!(wrong.contains("token list"), "{wrong}");
    yard.coppice(1, &["token", "revoke", &name]).good();
    assert!(yard.join(4, &two).wrong().contains("does not know the join token"));
    // What joined with it stays.
    yard.run(2);
    yard.run(3);
    see(&yard, &[1, 2, 3], &["n1", "n2", "n3"]);
    yard.kill(1);
    yard.run(1);
    see(&yard, &[1, 2, 3], &["n1", "n2", "n3"]);
}
