//! What a service runs once and is over: before its versions, at times, and by hand.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use e2e::procs::{self, Proc, Signal};
use e2e::tools::{self, Said};
use e2e::{Up, http, program, wait_for};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(40);

const APP: &str = r#"
[service.app]
run = ["python3", "-u", "app.py"]
before = ["python3", "-u", "migrate.py"]
clones = 2
http = { host = "*" }
env = { DATA = "@DATA@", GREETING = "hello" }
sandbox = { write = ["@DATA@"] }
"#;

/// Runs at once hold one lock; whoever dies lets it go.
const JOB: &str = r#"
[service.job]
run = ["python3", "-u", "-c", '''
import fcntl, os, time
data = os.environ["DATA"]
def say(what): open(data + "/jobs", "a").write(what + " " + os.environ["COPPICE_RUN"] + "\n")
lock = open(data + "/lock", "w")
try: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError: say("twice")
say("begun")
time.sleep(0.7)
say("done")
''']
every = "1s"
env = { DATA = "@DATA@" }
sandbox = { write = ["@DATA@"] }
"#;

const MIGRATES: &str = "\
import os
open(os.environ['DATA'] + '/tables', 'a').write(os.environ['COPPICE_VERSION'] + os.environ['GREETING'] + '\\n')
print('migrated by', os.environ['COPPICE_CLONE'])
";
const FAILS: &str = "import sys\nprint('altering table')\nprint('no such table: orders')\nsys.exit(3)\n";

struct App {
    up: Up,
    data: PathBuf,
}

impl App {
    fn folder(&self, says: &str, migrate: &str) -> String {
        let dir = self.up.dir.join("app");
        fs::create_dir_all(&dir).unwrap();
        let program = fs::read_to_string(program::service_program("says.py")).unwrap();
        fs::write(dir.join("app.py"), program.replace("SAYS", says).replace("FAILS", "False")).unwrap();
        fs::write(dir.join("migrate.py"), migrate).unwrap();
        fs::write(dir.join("coppice.toml"), self.text(APP)).unwrap();
        dir.display().to_string()
    }

    fn text(&self, toml: &str) -> String {
        toml.replace("@DATA@", &self.data.display().to_string())
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.data.join(file)).unwrap_or_default()
    }

    fn run(&self, words: &[&str], command: &[&str]) -> Said {
        let mut run = Command::new(program::coppice());
        run.arg("run").args(words).args(["--api", &self.up.at(1).api.to_string(), "--dir"]).arg(&self.up.dir);
        tools::run(run.arg("--").args(command), SOON)
    }

    fn service(&self, name: &str) -> Result<Value, String> {
        let view = self.up.status(1)?;
        let found = view["services"].as_array().into_iter().flatten().find(|s| s["name"] == name).cloned();
        found.ok_or_else(|| format!("no {name} in {view}"))
    }
}

fn app(nodes: u8) -> App {
    let up = Up::bare(nodes);
    let data = up.dir.join("data");
    fs::create_dir_all(&data).unwrap();
    App { up, data }
}

#[test]
fn what_goes_before_a_version_runs_once_and_its_failure_ends_the_deploy_and_commands_run_by_hand() {
    let _turn = e2e::beside();
    let app = app(2);
    // The first version: what fails ends it, and the same folder is tried again.
    let dir = app.folder("one", FAILS);
    let said = app.up.coppice(&["deploy", &dir]).wrong();
    for part in ["version 1 of app does not serve: what goes before it failed on n", "exit status 3", "| no such table"]
    {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert_eq!(app.service("app").unwrap()["clones"].as_array().map(Vec::len), Some(0), "no clone starts");
    let said = app.up.coppice(&["deploy", &dir]).wrong();
    assert!(said.contains("| no such table"), "it was not tried again: {said}");

    let dir = app.folder("two", MIGRATES);
    let said = app.up.coppice(&["deploy", &dir]).good();
    assert!(said.contains("version 2 serves after"), "{said}");
    assert_eq!(app.read("tables"), "2hello\n");

    // One that fails: the old version serves on, and it is said what it printed.
    let dir = app.folder("three", FAILS);
    let said = app.up.coppice(&["deploy", &dir]).wrong();
    for part in ["version 3 of app was taken back", "exit status 3", "| altering table", "| no such table: orders"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    let reply = http::request(app.up.at(1).http, "GET", "/", &[], b"").unwrap();
    assert!(reply.text().contains("two"), "{reply:?}");
    let logs = app.up.coppice(&["logs", "app", "--clone", "1000"]).good();
    assert!(logs.contains("migrated by app/before") && logs.contains("no such table: orders"), "{logs}");
    let dir = app.folder("four", MIGRATES);
    app.up.coppice(&["deploy", &dir]).good();
    assert_eq!(app.read("tables"), "2hello\n4hello\n", "once for a version");

    // By hand: its folder, its environment, its status; on the node that is named.
    let script = "cat migrate.py; echo $GREETING $COPPICE_VERSION $COPPICE_NODE; echo oops >&2; exit 7";
    let said = app.run(&["app", "--node", "n2"], &["sh", "-c", script]);
    assert_eq!((said.code, said.err.as_str()), (Some(7), "oops\n"), "{said:?}");
    assert_eq!(said.out, format!("{MIGRATES}hello 4 n2\n"));
    let said = app.run(&["app"], &["no-such-program"]);
    assert!(said.code == Some(127) && said.err.contains("could not be started"), "{said:?}");
    assert!(app.run(&["apq"], &["ls"]).wrong().contains("declared are: app"));
    let mut shell = Command::new(program::coppice());
    let sleeps = shell.args(["run", "app", "--api", &app.up.at(1).api.to_string(), "--dir"]).arg(&app.up.dir);
    let mut sleeps = sleeps.args(["--", "sh", "-c", "echo $$ > $DATA/pid; sleep 600"]).spawn().unwrap();
    let pid = wait_for("it runs", SOON, || app.read("pid").trim().parse::<u32>().map_err(|e| e.to_string())).0;
    procs::kill(sleeps.id(), Signal::TERM);
    sleeps.wait().unwrap();
    wait_for("it ends with whoever ran it", SOON, || {
        if Proc::of(pid).is_some_and(|proc| proc.is_alive()) { Err(format!("{pid} lives")) } else { Ok(()) }
    });
}

#[test]
fn what_runs_at_times_goes_on_when_its_node_is_killed_and_never_twice_at_once() {
    let _turn = e2e::beside();
    let app = app(3);
    let said = app
        .up
        .coppice(&[
            "diff",
            "-f",
            &app.up
                .write("bad.toml", "[service.job]\nrun = [\"a\"]\nschedule = \"0 0 30 2 *\"\n")
                .display()
                .to_string(),
        ])
        .wrong();
    assert!(said.contains("bad.toml:3: service.job.schedule: \"0 0 30 2 *\" never comes"), "{said}");
    app.up.apply("job.toml", &app.text(JOB)).good();
    assert!(app.up.coppice(&["scale", "job", "3"]).wrong().contains("one run at a time"));
    let done = || app.read("jobs").lines().filter(|line| line.starts_with("done")).count();
    let runs_since = |before: usize| {
        wait_for("it runs again and again", SOON, || {
            if done() >= before + 2 {
                Ok(())
            } else {
                Err(format!("{} and {}", app.read("jobs"), app.up.status(1)?["events"]))
            }
        });
    };
    runs_since(0);
    let at = wait_for("it runs somewhere", SOON, || {
        let service = app.service("job")?;
        let node = service["runs"]["job"]["node"].as_str().ok_or_else(|| service.to_string())?;
        let open = app.read("jobs").lines().last().is_some_and(|line| line.starts_with("begun"));
        node.trim_start_matches('n').parse::<u8>().ok().filter(|_| open).ok_or_else(|| app.read("jobs"))
    });
    procs::kill(app.up.node_pid(at.0), Signal::KILL);
    runs_since(done());
    let jobs = app.read("jobs");
    assert!(!jobs.contains("twice"), "{jobs}");
    let numbers: Vec<u64> = jobs
        .lines()
        .filter(|l| l.starts_with("begun"))
        .map(|l| l.split(' ').nth(1).unwrap().parse().unwrap())
        .collect();
    assert!(numbers.is_sorted(), "what is compared with it grows: {numbers:?}");
    // The node that was killed may be the one that is asked.
    wait_for("the last run is shown", SOON, || {
        let runs = app.service("job")?["runs"].clone();
        let is_good = runs["job"]["last"]["good"] == true && runs["next_ms"].as_u64() > Some(0);
        if is_good { Ok(()) } else { Err(runs.to_string()) }
    });
    let page = app.up.coppice(&["status"]).good();
    assert!(page.lines().any(|line| line.starts_with("job ") && line.contains("at every 1s: ")), "{page}");
}
