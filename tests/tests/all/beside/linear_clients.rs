//! Other people's clients, unmodified, on a `linear` namespace of three nodes: redis-py, Django's cache and Django's own
//! tests of it, ioredis, go-redis, redis-cli, redis-benchmark. Packages come from their registries into cargo's folder for
//! test files, once; what cannot be had here is skipped with a line that says so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::resp::{Resp, Word};
use e2e::tools::{Said, has, run};
use e2e::{Shared, Up, say, skip, wait_for};

static UP: Shared = Shared::beside(|| Up::bare(3));

const WITHIN: Duration = Duration::from_secs(120);

/// The namespace's token, when every node has its group.
fn bank(up: &Up) -> String {
    up.apply("bank.toml", "[namespace.bank]\nclass = \"linear\"\n").good();
    wait_for("a node shows it", Duration::from_secs(10), || match up.status(1)?["namespaces"].as_array() {
        Some(all) if all.iter().any(|namespace| namespace["name"] == "bank") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let token = up.token("bank");
    for n in 1..=3 {
        wait_for("the bank is open", Duration::from_secs(20), || {
            match Resp::open(up.at(n).resp, "bank", &token)?.ask(&["DBSIZE"])? {
                Word::Int(_) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }
    token
}

fn urls(up: &Up) -> Vec<String> {
    let token = bank(up);
    (1..=3).map(|n| format!("redis://bank:{token}@{}", up.at(n).resp)).collect()
}

/// A program of tests/programs/linear, in a folder with its packages.
fn installed(name: &str, install: &[&str]) -> Result<PathBuf, String> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/linear").join(name);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("linear").join(name);
    std::fs::create_dir_all(&dir).unwrap();
    run(Command::new("cp").arg("-R").arg(from.join(".")).arg(&dir), Duration::from_secs(10)).good();
    let files = ["package.json", "requirements.txt", "go.mod"];
    let wanted = files.map(|file| std::fs::read_to_string(from.join(file)).unwrap_or_default()).concat();
    let mark = dir.join("installed");
    if install.is_empty() || std::fs::read_to_string(&mark).is_ok_and(|has| has == wanted) {
        return Ok(dir);
    }
    let said = run(Command::new(install[0]).args(&install[1..]).current_dir(&dir), Duration::from_secs(240));
    if !said.is_good() {
        return Err(format!("{install:?}: {}", said.err.lines().chain(said.out.lines()).next().unwrap_or("no word")));
    }
    std::fs::write(mark, wanted).unwrap();
    Ok(dir)
}

fn client(name: &str, needs: &[&str], install: &[&str], program: &[&str], content: &str) {
    if let Some(missing) = needs.iter().find(|program| !has(program)) {
        return skip(&format!("{missing} is not installed"));
    }
    let dir = match installed(name, install) {
        Ok(dir) => dir,
        Err(why) => return skip(&format!("packages of {name} cannot be had: {why}")),
    };
    let up = UP.take();
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).args(urls(&up)).current_dir(dir).env("PYTHONPATH", "packages");
    let said = run(&mut command, WITHIN).good();
    assert!(said.contains(content), "{said}");
}

#[test]
fn redis_py_is_content() {
    if !has("python3") || !run(Command::new("python3").args(["-c", "import redis"]), WITHIN).is_good() {
        return skip("redis-py is not installed (python3 -m pip install redis)");
    }
    client("redis_py", &["python3"], &[], &["python3", "client.py"], "redis-py");
}

#[test]
fn djangos_cache_is_content() {
    let install = ["python3", "-m", "pip", "install", "--quiet", "--target", "packages", "-r", "requirements.txt"];
    client("django", &["python3"], &install, &["python3", "cache.py"], "Django is content");
}

#[test]
fn djangos_own_tests_of_its_redis_cache_are_content() {
    client(
        "django_tests",
        &["python3"],
        &["sh", "install.sh"],
        &["python3", "run.py"],
        "Django's own tests are content",
    );
}

#[test]
fn ioredis_is_content() {
    let install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"];
    client("ioredis", &["node", "npm"], &install, &["node", "client.mjs"], "ioredis is content");
}

#[test]
fn go_redis_is_content() {
    let install = ["sh", "-c", "go mod tidy && go build -o client ."];
    client("go", &["go"], &install, &["./client"], "go-redis is content");
}

fn redis(up: &Up, program: &str, token: &str, n: u8, words: &[&str]) -> Said {
    let at = up.at(n).resp;
    let mut command = Command::new(program);
    command.args(["-h", &at.ip().to_string(), "-p", &at.port().to_string(), "--user", "bank", "-a", token]);
    run(command.args(words), WITHIN)
}

#[test]
fn redis_cli_finds_its_way() {
    if !has("redis-cli") {
        return skip("redis-cli is not installed (apt install redis-tools)");
    }
    let up = UP.take();
    let token = bank(&up);
    for dialect in ["-2", "-3"] {
        let cli = |n: u8, words: &[&str]| {
            redis(&up, "redis-cli", &token, n, &[&[dialect, "--no-auth-warning"], words].concat()).good()
        };
        cli(1, &["FLUSHDB"]);
        assert_eq!(cli(1, &["RPUSH", "l", "a", "b", "c"]), "3\n");
        assert_eq!(cli(2, &["LRANGE", "l", "0", "-1"]), "a\nb\nc\n");
        assert_eq!(cli(3, &["OBJECT", "ENCODING", "l"]), "quicklist\n");
        assert!(cli(1, &["CLUSTER", "INFO"]).contains("cluster_enabled:0"));
        assert!(cli(1, &["CONFIG", "GET", "save"]).starts_with("save"));
        assert!(cli(2, &["COMMAND", "DOCS", "lmove"]).contains("one end of a list"));
        assert!(cli(2, &["FUNCTION", "LIST", "LIBRARYNAME", "coppice"]).contains("json.merge"));
        let merged = cli(3, &["FCALL", "json.merge", "1", "doc", "{\"a\":1}"]);
        assert_eq!(merged, "{\"a\":1}\n");
        let wrong = cli(3, &["FCALL", "nope", "1", "doc"]);
        assert!(wrong.contains("Function not found"), "{wrong}");
        for n in 0..30 {
            cli(1, &["SET", &format!("k{n}"), "x"]);
        }
        assert_eq!(cli(2, &["--scan", "--pattern", "k*"]).lines().count(), 30);
    }
}

#[test]
fn redis_benchmark_runs_what_is_offered() {
    if !has("redis-benchmark") {
        return skip("redis-benchmark is not installed (apt install redis-tools)");
    }
    let up = UP.take();
    let token = bank(&up);
    let tests = "ping_inline,ping_mbulk,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,lrange_100,mset";
    let said =
        redis(&up, "redis-benchmark", &token, 2, &["-n", "2000", "-c", "20", "-t", tests, "--csv", "-r", "1000"]);
    let lines: Vec<&str> = said.out.lines().filter(|line| line.starts_with('"')).collect();
    assert!(said.is_good() && lines.len() > tests.split(',').count(), "{said:?}");
    assert!(!said.err.contains("Error") && !said.out.contains("ERR"), "{said:?}");
    for line in lines.iter().filter(|line| line.contains("\"SET\"") || line.contains("\"GET\"")) {
        say(&format!("redis-benchmark: {line}"));
    }
}
