//! A service without a port works on a queue of class `linear`: how many clones it has follows from how long jobs wait, also while the
//! node that decides is killed.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use e2e::procs::{Signal, kill};
use e2e::resp::Word;
use e2e::{Up, wait_for};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(60);
const JOBS: usize = 60;

/// Takes a job, works on it for a second, writes down what it was, and ends it: plain Redis, and nothing else.
const WORKER: &str = r#"
[namespace.jobs]
class = "linear"

[service.mailer]
run = ["python3", "-u", "-c", '''
import os, socket, time, urllib.parse
at = urllib.parse.urlsplit(os.environ["COPPICE_JOBS_URL"])
def one(lines):
    line = lines.readline()
    if not line: raise OSError("hung up")
    kind, rest = line[:1], line[1:-2]
    if kind == b"*": return [one(lines) for _ in range(max(int(rest), 0))]
    if kind == b"$": return lines.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
    return rest
def ask(door, lines, *words):
    words = [str(word).encode() for word in words]
    door.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    return one(lines)
while True:
    try:
        door = socket.create_connection((at.hostname, at.port), 5)
        door.settimeout(20)
        lines = door.makefile("rb")
        ask(door, lines, "AUTH", at.username, at.password)
        while True:
            got = ask(door, lines, "FCALL", "queue.take", 1, "mails", 1, 8000, 2000)
            for job in got if isinstance(got, list) else []:
                time.sleep(1)
                open(os.environ["DATA"] + "/done", "ab").write(job[1] + b"\n")
                ask(door, lines, "FCALL", "queue.done", 1, "mails", job[0].decode())
            if not isinstance(got, list): time.sleep(0.2)
    except OSError as why:
        print(why)
        time.sleep(0.2)
''']
namespaces = ["jobs"]
queues = ["jobs/mails"]
clones = { min = 0, max = 6 }
wait = "2s"
env = { DATA = "@DATA@" }
sandbox = { write = ["@DATA@"] }
"#;

fn mailer(view: &Value) -> &Value {
    view["services"].as_array().into_iter().flatten().find(|of| of["name"] == "mailer").unwrap_or(&Value::Null)
}

/// Clones that are wanted.
fn wanted(up: &Up, node: u8) -> Result<u64, String> {
    let view = up.status(node)?;
    mailer(&view)["wanted"].as_u64().ok_or_else(|| view["services"].to_string())
}

#[test]
fn clones_that_work_on_a_queue_become_more_and_fewer_by_how_long_its_oldest_job_waits() {
    let _turn = e2e::beside();
    let up = Up::start(3, &["--no-demo"]);
    let data = up.dir.join("data");
    fs::create_dir_all(&data).unwrap();
    up.apply("mailer.toml", &WORKER.replace("@DATA@", &data.display().to_string())).good();
    let token = up.token("jobs");
    let put = |node: u8, name: &str| {
        let word = wait_for("a job is put", SOON, || {
            let mut resp = up.linear(node, "jobs", &token);
            match resp.ask(&["FCALL", "queue.put", "1", "mails", name, "key", name]) {
                Ok(Word::List(word)) => Ok(word),
                other => Err(format!("{other:?}")),
            }
        });
        assert!(matches!(word.0[..], [Word::Int(_), Word::Int(_)]), "{word:?}");
    };
    let done = || {
        let text = fs::read_to_string(data.join("done")).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    wait_for("there is nothing to do", SOON, || match wanted(&up, 1)? {
        0 => Ok(()),
        clones => Err(format!("{clones} clones")),
    });
    put(1, "first");
    wait_for("the first job starts a clone, which does it", SOON, || {
        if done().contains("first") { Ok(()) } else { Err(wanted(&up, 1)?.to_string()) }
    });

    for n in 0..JOBS {
        put(1 + (n % 3) as u8, &format!("job {n}"));
    }
    wait_for("jobs that wait bring clones", SOON, || {
        let view = up.status(1)?;
        if mailer(&view)["wanted"].as_u64() > Some(2) { Ok(()) } else { Err(mailer(&view).to_string()) }
    });
    let page = up.coppice(&["status"]).good();
    assert!(page.lines().any(|line| line.starts_with("mailer ") && line.contains("works on jobs/mails: ")), "{page}");
    let events = up.coppice(&["events"]).good();
    assert!(events.contains("clones: the oldest job of jobs/mails waits "), "{events}");

    // Who decides is gone: the next one goes on from what there is.
    let leader = || {
        let name = up.status(1).ok()?["root"]["leader"].as_str()?.to_owned();
        name.strip_prefix('n')?.parse::<u8>().ok()
    };
    let (killed, _) = wait_for("the root group has a leader", SOON, || leader().ok_or("none".to_owned()));
    let other = if killed == 1 { 2 } else { 1 };
    kill(up.node_pid(killed), Signal::KILL);
    wait_for("all jobs are done", Duration::from_secs(120), || {
        let left = JOBS + 1 - done().len();
        if left == 0 { Ok(()) } else { Err(format!("{left} are left, {:?} clones", wanted(&up, other))) }
    });
    let most = wait_for("a node answers", SOON, || wanted(&up, other)).0;
    wait_for("clones go when there is nothing to do", Duration::from_secs(90), || {
        let now = wanted(&up, other)?;
        if now < most.max(2) { Ok(()) } else { Err(format!("{now} of {most}")) }
    });
}
