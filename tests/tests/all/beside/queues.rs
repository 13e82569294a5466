//! Libraries for job queues, unmodified, as clones of services of a cluster of three nodes of which some are killed: RQ, Dramatiq, Huey,
//! arq, and by hand Celery, BullMQ and asynq (examples/queues). Each job leaves its number in a file; none may be
//! lost, and none done twice beyond what its library
//! promises. Packages come from their registry into cargo's folder for test files, once; where they cannot be had, the test says so.
//!
//! `COPPICE_QUEUES=rq,arq:20000:6` is for a long run by hand: which libraries, how many jobs each, how many kills; what was counted is
//! written into examples/queues/counted.json, which the table in docs/guide/queues.md is made from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use e2e::procs::{Proc, Signal};
use e2e::tools::{has, run};
use e2e::{Up, beside, say, skip, wait_for};
use serde_json::{Value, json};

/// A library, where its packages are, and what it promises of a job whose worker dies.
struct Library {
    name: &'static str,
    packages: &'static str,
    /// As packages are called: its own, and its client of Redis.
    versions: [&'static str; 2],
    promise: Promise,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Promise {
    AtLeastOnce,
    AtMostOnce,
}

const LIBRARIES: &[Library] = &[
    Library { name: "rq", packages: "packages", versions: ["rq", "redis"], promise: Promise::AtLeastOnce },
    Library { name: "dramatiq", packages: "packages", versions: ["dramatiq", "redis"], promise: Promise::AtLeastOnce },
    Library { name: "huey", packages: "packages", versions: ["huey", "redis"], promise: Promise::AtMostOnce },
    Library { name: "arq", packages: "arq/packages", versions: ["arq", "redis"], promise: Promise::AtLeastOnce },
    Library { name: "celery", packages: "packages", versions: ["celery", "redis"], promise: Promise::AtLeastOnce },
    Library { name: BULLMQ, packages: NODE, versions: ["bullmq", "ioredis"], promise: Promise::AtLeastOnce },
    Library { name: ASYNQ, packages: GO, versions: ["asynq", "go-redis"], promise: Promise::AtLeastOnce },
];

/// Only by hand: their packages are many, or take minutes to build, and they come from other registries.
const BULLMQ: &str = "bullmq";
const ASYNQ: &str = "asynq";
/// And one whose results come a moment after its jobs are done, for which a short run does not wait.
const BY_HAND: &[&str] = &[BULLMQ, ASYNQ, "celery"];
const NODE: &str = "bullmq/node_modules";
/// Where the program is that was built of them.
const GO: &str = "asynq";

/// Jobs that a killed node's workers of one library have at a time: two clones of two threads at most, as both may be there.
const AT_ONCE: usize = 4;

#[test]
fn libraries_for_queues_lose_no_job_when_nodes_are_killed() {
    let long = std::env::var("COPPICE_QUEUES").ok();
    let plan = Plan::of(long.as_deref().unwrap_or(":60:1"));
    if !has("python3") {
        return skip("python3 is not installed");
    }
    let dir = match installed(&plan) {
        Ok(dir) => dir,
        Err(why) => return skip(&format!("packages of job queues could not be installed: {why}")),
    };
    let _turn = beside();
    let mut up = Up::bare(3);
    let tries: Vec<Try> = plan.libraries.iter().map(|library| Try::new(library, &dir, &up)).collect();
    let declared: String = tries.iter().map(Try::declared).collect();
    up.apply("queues.toml", &declared).good();
    let began = Instant::now();
    let producers: Vec<_> = tries.iter().map(|one| one.put(&up, plan.jobs)).collect();
    for nth in 1..=plan.kills {
        let enough = plan.jobs * nth / (plan.kills + 1);
        wait_for("jobs are done", plan.within(), || tries.iter().try_for_each(|one| one.has_done(enough)));
        // Whom producers speak to lives on.
        let victim = 2 + (nth % 2) as u8;
        Proc::of(up.node_pid(victim)).unwrap().signal(Signal::KILL);
        up.event("restarted", Duration::from_secs(30));
    }
    let again: Vec<BTreeSet<u64>> = producers
        .into_iter()
        .map(|producer| {
            let told: Value = serde_json::from_str(&producer.join().unwrap().good()).unwrap();
            told["again"].as_array().unwrap().iter().filter_map(Value::as_u64).collect()
        })
        .collect();
    let mut counted = read_counted();
    for (one, again) in tries.iter().zip(&again) {
        // In a short run nobody waits until a library takes a dead worker's jobs for lost, for which RQ needs ten minutes: it still has
        // them.
        let (left, _) = wait_for("nothing waits", plan.within(), || {
            let left = one.left(&up)?;
            let is_done = left.waiting == 0 && (long.is_none() || one.library.name == "rq" || left.jobs.is_empty());
            if is_done {
                Ok(left)
            } else {
                Err(format!("{}: {} wait, {:?}", one.library.name, left.waiting, left.jobs))
            }
        });
        let (done, times) = one.done();
        let lost: Vec<u64> =
            (1..=plan.jobs as u64).filter(|job| !done.contains(job) && !left.jobs.contains(job)).collect();
        let twice = times - done.len();
        let name = one.library.name;
        say(&format!(
            "{name}: {} of {} done, {} lost, {twice} twice, {again:?} put again",
            done.len(),
            plan.jobs,
            lost.len()
        ));
        let (may_be_lost, may_be_twice) = match one.library.promise {
            Promise::AtLeastOnce => (0, plan.kills * AT_ONCE),
            Promise::AtMostOnce => (plan.kills * AT_ONCE, 0),
        };
        assert!(lost.len() <= may_be_lost, "{name} has lost {lost:?}");
        assert!(twice <= may_be_twice + again.len(), "{name} has done {twice} jobs twice, {again:?} were put again");
        if name == "celery" {
            assert_eq!(left.results, Some(done.len()), "a result for each, in database 1");
        }
        let client = if one.library.versions[1] == "redis" { "redis-py" } else { one.library.versions[1] };
        let of = json!({
            "version": one.version(0),
            "client": format!("{client} {}", one.version(1)),
            "jobs": plan.jobs, "kills": plan.kills, "lost": lost.len(), "held": left.jobs.len(), "twice": twice, "put_again": again.len(),
            "seconds": began.elapsed().as_secs(),
        });
        counted.insert(name.to_owned(), of);
    }
    if long.is_some() {
        std::fs::write(counted_at(), serde_json::to_string_pretty(&counted).unwrap() + "\n").unwrap();
    }
}

/// Which libraries, how many jobs of each, and how many kills.
struct Plan {
    libraries: Vec<&'static Library>,
    jobs: usize,
    kills: usize,
}

impl Plan {
    fn of(text: &str) -> Plan {
        let parts: Vec<&str> = text.split(':').collect();
        let [names, jobs, kills] = parts[..] else { panic!("write rq,arq:20000:6") };
        let is_named = |library: &Library| names.split(',').any(|name| name == library.name);
        let is_wanted = |library: &&Library| names.is_empty() && !BY_HAND.contains(&library.name) || is_named(library);
        let libraries = LIBRARIES.iter().filter(is_wanted).collect();
        Plan { libraries, jobs: jobs.parse().unwrap(), kills: kills.parse().unwrap() }
    }

    fn within(&self) -> Duration {
        Duration::from_secs(90 + self.jobs as u64 / 4)
    }
}

/// One library in this cluster.
struct Try {
    library: &'static Library,
    dir: PathBuf,
    /// A line for each time that a job was done.
    file: PathBuf,
}

/// What a library still has.
struct Left {
    jobs: BTreeSet<u64>,
    waiting: u64,
    results: Option<usize>,
}

impl Try {
    fn new(library: &'static Library, dir: &Path, up: &Up) -> Try {
        let file = up.dir.join(format!("{}.done", library.name));
        std::fs::write(&file, "").unwrap();
        Try { library, dir: dir.to_owned(), file }
    }

    /// The example's own declaration, which also tells jobs where to leave their numbers.
    fn declared(&self) -> String {
        let text = std::fs::read_to_string(self.dir.join(self.library.name).join("coppice.toml")).unwrap();
        let (dir, env) = ("dir = \"examples/queues\"", "env = { QUEUE_URL =");
        assert!(text.contains(dir) && text.contains(env), "{text}");
        let text = text.replace(dir, &format!("dir = \"{}\"\nsandbox = \"none\"", self.dir.display()));
        text.replace(env, &format!("env = {{ DONE = \"{}\", QUEUE_URL =", self.file.display()))
    }

    /// Its program, which asks the first node.
    fn program(&self, up: &Up, words: &[&str]) -> Command {
        let (name, at) = (self.library.name, up.at(1).resp);
        let (program, file) = match self.library.packages {
            NODE => (PathBuf::from("node"), Some("tasks.mjs")),
            GO => (self.dir.join(name).join("tasks"), None),
            _ => (PathBuf::from("python3"), Some("tasks.py")),
        };
        let mut command = Command::new(program);
        command.args(file).args(words).current_dir(self.dir.join(name));
        command.env("PYTHONPATH", format!("..:{}", self.dir.join(self.library.packages).display()));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("QUEUE_URL", format!("redis://{name}:{}@{at}", up.token(name)));
        command
    }

    /// Of one of its packages, as it was installed.
    fn version(&self, nth: usize) -> String {
        let (packages, name) = (self.dir.join(self.library.packages), self.library.versions[nth]);
        if self.library.packages == NODE {
            let text = std::fs::read_to_string(packages.join(name).join("package.json")).unwrap();
            return serde_json::from_str::<Value>(&text).unwrap()["version"].as_str().unwrap().to_owned();
        }
        if self.library.packages == GO {
            let text = std::fs::read_to_string(packages.join("go.mod")).unwrap();
            let of = |line: &str| Some(line.split_once(&format!("/{name}"))?.1.rsplit_once(" v")?.1.to_owned());
            let line = text.lines().find_map(of).unwrap_or_default();
            return line.replace(" // indirect", "");
        }
        let names =
            std::fs::read_dir(packages).unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
        let of = |file: String| Some(file.strip_prefix(&format!("{name}-"))?.strip_suffix(".dist-info")?.to_owned());
        names.filter_map(of).next().unwrap_or_default()
    }

    fn put(&self, up: &Up, jobs: usize) -> std::thread::JoinHandle<e2e::tools::Said> {
        let mut command = self.program(up, &["put", &jobs.to_string()]);
        std::thread::spawn(move || run(&mut command, Duration::from_secs(90 + jobs as u64 / 4)))
    }

    fn left(&self, up: &Up) -> Result<Left, String> {
        let said = run(&mut self.program(up, &["left"]), Duration::from_secs(60));
        let left: Value = serde_json::from_str(&said.out).map_err(|_| format!("{said:?}"))?;
        let jobs = left["left"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        let results = left["results"].as_u64().map(|results| results as usize);
        Ok(Left { jobs, waiting: left["waiting"].as_u64().unwrap(), results })
    }

    /// Which jobs were done, and how many times one was.
    fn done(&self) -> (BTreeSet<u64>, usize) {
        let text = std::fs::read_to_string(&self.file).unwrap();
        (text.lines().map(|line| line.parse().unwrap()).collect(), text.lines().count())
    }

    fn has_done(&self, enough: usize) -> Result<(), String> {
        let done = self.done().0.len();
        if done >= enough { Ok(()) } else { Err(format!("{}: {done} of {enough}", self.library.name)) }
    }
}

/// The examples in a folder with their packages.
fn installed(plan: &Plan) -> Result<PathBuf, String> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/queues");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("queues");
    std::fs::create_dir_all(&dir).unwrap();
    let copied = run(Command::new("cp").arg("-R").arg(from.join(".")).arg(&dir), Duration::from_secs(10));
    assert!(copied.is_good(), "{copied:?}");
    let pip = "python3 -m pip install -q --retries 1 --upgrade --target packages -r requirements.txt";
    let npm = "npm install --no-audit --no-fund --silent";
    for (within, wants, words) in [
        (".", "requirements.txt", pip),
        ("arq", "requirements.txt", pip),
        (BULLMQ, "package.json", npm),
        (ASYNQ, "go.sum", "go build -o tasks ."),
    ] {
        if [BULLMQ, ASYNQ].contains(&within) && plan.libraries.iter().all(|library| library.name != within) {
            continue;
        }
        let folder = dir.join(within);
        let wanted = std::fs::read_to_string(folder.join(wants)).unwrap();
        let mark = folder.join("installed");
        if std::fs::read_to_string(&mark).is_ok_and(|has| has == wanted) {
            continue;
        }
        let (program, words) = words.split_once(' ').unwrap();
        let said = run(Command::new(program).args(words.split(' ')).current_dir(&folder), Duration::from_secs(600));
        if !said.is_good() {
            return Err(said.err.lines().next().unwrap_or("no word").to_owned());
        }
        std::fs::write(mark, wanted).unwrap();
    }
    Ok(dir)
}

fn counted_at() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/queues/counted.json")
}

fn read_counted() -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(counted_at()).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}
