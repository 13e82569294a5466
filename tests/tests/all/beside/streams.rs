//! A stream and a group of consumers, by redis-py, while the leader of the stream is killed: each entry is acknowledged once.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::procs::{Signal, kill};
use e2e::resp::{Resp, Word};
use e2e::tools::{has, run};
use e2e::{Up, skip, wait_for};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn each_entry_is_acknowledged_once_while_the_leader_is_killed() {
    if !has("python3") || !run(Command::new("python3").args(["-c", "import redis"]), SOON).is_good() {
        return skip("redis-py is not installed (python3 -m pip install redis)");
    }
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("bank.toml", "[namespace.bank]\nclass = \"linear\"\nshards = 1\n").good();
    let token = up.token("bank");
    for n in 1..=3 {
        wait_for("the bank is open", SOON, || match Resp::open(up.at(n).resp, "bank", &token)?.ask(&["DBSIZE"])? {
            Word::Int(_) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/linear/redis_py/groups.py");
    let urls = (1..=3).map(|n| format!("redis://bank:{token}@{}", up.at(n).resp));
    let mut child = Command::new("python3").arg(program).args(urls).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "half");
    let leader = wait_for("somebody leads", SOON, || {
        let view = up.status(1)?;
        let all = view["namespaces"].as_array().into_iter().flatten();
        let mut shards = all.flat_map(|namespace| namespace["shards"].as_array().into_iter().flatten());
        let name = shards.find_map(|shard| shard["leader"].as_str()).ok_or("nobody does")?;
        name.trim_start_matches('n').parse::<u8>().map_err(|error| error.to_string())
    });
    kill(up.node_pid(leader.0), Signal::KILL);
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    assert_eq!(rest, ["each of 240 jobs was acknowledged once"]);
}
