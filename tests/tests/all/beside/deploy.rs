//! Folders that become versions of a service, under load: nobody notices a good one, a bad one goes back by itself.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use e2e::procs::{Proc, Signal};
use e2e::{Up, http, wait_for};
use serde_json::Value;

/// Requests without an end; those that fail are counted.
struct Users {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Users {
    fn start(doors: &[SocketAddr]) -> Users {
        let (stop, asked, failed) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let user = |at: SocketAddr| {
            let (stop, asked, failed) = (Arc::clone(&stop), Arc::clone(&asked), Arc::clone(&failed));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let reply = http::get(at, "/");
                    asked.fetch_add(1, Ordering::Relaxed);
                    if !reply.as_ref().is_ok_and(|reply| reply.status == 200) {
                        eprintln!("{reply:?}");
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            })
        };
        let threads = doors.iter().map(|at| user(*at)).collect();
        Users { stop, asked, failed, threads }
    }

    /// How many were asked, and how many failed.
    fn end(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        (self.asked.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

const OWN: &str = r#"
[service.app]
run = ["python3", "app.py"]
clones = 3
health = "/health"
http = { host = "*" }
"#;

fn app(up: &Up, says: &str, fails: bool) -> PathBuf {
    let dir = up.dir.join("app");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("coppice.toml"), OWN).unwrap();
    let program = fs::read_to_string(e2e::program::service_program("says.py")).unwrap();
    let fails = if fails { "True" } else { "False" };
    fs::write(dir.join("app.py"), program.replace("SAYS", says).replace("FAILS", fails)).unwrap();
    dir
}

fn deploy(up: &Up, dir: &Path) -> Vec<Value> {
    let said = up.coppice(&["deploy", &dir.display().to_string(), "--json"]).good();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn body(up: &Up, node: u8) -> String {
    http::get(up.at(node).http, "/").unwrap().text().trim().to_owned()
}

#[test]
fn several_versions_follow_each_other_under_load_a_bad_one_goes_back_and_no_request_fails() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    let wrong = up.coppice(&["deploy", "/no/such/folder"]).wrong();
    assert!(wrong.contains("is not a folder"), "{wrong}");
    let dir = app(&up, "one", false);
    let said = deploy(&up, &dir);
    assert_eq!((&said[0]["event"], &said[0]["copies"]), (&"kept".into(), &2.into()), "{said:?}");
    up.settle(Duration::from_secs(30), 1);
    assert_eq!(body(&up, 2), "one");
    assert_eq!(deploy(&up, &dir).last().unwrap()["event"], "same");

    let doors: Vec<_> = (1..=3).map(|n| up.at(n).http).collect();
    let users = Users::start(&doors);
    for (n, says) in ["two", "three", "four"].into_iter().enumerate() {
        let said = deploy(&up, &app(&up, says, false));
        let last = said.last().unwrap();
        assert_eq!(
            (last["event"].as_str(), last["version"].as_u64()),
            (Some("serves"), Some(n as u64 + 2)),
            "{said:?}"
        );
        e2e::say(&format!("version {} serves after {} ms", last["version"], last["millis"]));
        for node in 1..=3 {
            assert_eq!(body(&up, node), says);
        }
    }
    up.coppice(&["rollback", "app"]).good();
    assert_eq!(body(&up, 1), "three");
    let (asked, failed) = users.end();
    assert_eq!(failed, 0, "of {asked} requests");
    e2e::say(&format!("{asked} requests, 0 failed, over four versions"));

    // One that fails whatever it is asked, but is well: judged by its answers alone.
    let users = Users::start(&doors);
    let said = up.coppice(&["deploy", &app(&up, "bad", true).display().to_string()]).wrong();
    assert!(said.contains("was taken back") && said.contains("answers failed"), "{said}");
    users.end();
    wait_for("the former version serves alone", Duration::from_secs(30), || {
        let bodies: Vec<String> = (1..=3).map(|node| body(&up, node)).collect();
        if bodies == ["three"; 3] { Ok(()) } else { Err(format!("{bodies:?}")) }
    });
    // One that does not come up tells where its words are.
    fs::write(dir.join("app.py"), "raise SystemExit('no honey')\n").unwrap();
    let said = up.coppice(&["deploy", &dir.display().to_string()]).wrong();
    assert!(said.contains("app/0 died") && said.contains("logs/app-0.log in the folder of n"), "{said}");
    let log = |n| fs::read_to_string(up.dir.join(format!("n{n}/logs/app-0.log"))).unwrap_or_default();
    assert!((1..=3).any(|n| said.contains(&format!("of n{n}")) && log(n).contains("no honey")), "{said}");

    // Whoever decides may die in the middle of it: the next one goes on.
    let users = Users::start(&doors[1..]);
    up.coppice(&["deploy", &app(&up, "five", false).display().to_string(), "--no-wait"]).good();
    Proc::of(up.node_pid(1)).unwrap().signal(Signal::KILL);
    wait_for("the new version serves everywhere", Duration::from_secs(60), || {
        let view = up.status(2)?;
        let service = &view["services"][0];
        let runs = |c: &&Value| c["state"] == "serving" && c["version"] == service["version"];
        let run = service["clones"].as_array().unwrap().iter().filter(runs).count();
        let is_over = service["next"].is_null() && body(&up, 2) == "five" && run == 3;
        if is_over { Ok(()) } else { Err(service.to_string()) }
    });
    up.settle(Duration::from_secs(30), 0);
    let (asked, failed) = users.end();
    assert_eq!(failed, 0, "of {asked} requests");
    e2e::say(&format!("{asked} requests, 0 failed, while the manager's node was killed in a roll-out"));

    let list = up.coppice(&["versions", "app"]).good();
    assert!(list.contains("serves") && list.contains("was taken back") && list.contains("was replaced"), "{list}");
    let events = up.coppice(&["events", "--json"]).good();
    assert!(events.contains("is taken back") && events.contains("serves everywhere"), "{events}");
}
