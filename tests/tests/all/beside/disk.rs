//! Disks that forget, refuse and fill up, under the real program: it is one node's trouble, it is said, and nothing that
//! was acknowledged is lost or changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::at::{Ports, new_folder};
use e2e::history::{History, can_judge};
use e2e::procs::{Signal, kill};
use e2e::resp::{Resp, Word};
use e2e::{Up, Yard, say, skip, tools, wait_for};
use serde_json::Value;

const FILE: &str = "[namespace.bank]\nclass = \"linear\"\n";
/// With a debug binary beside a compiler.
const SOON: Duration = Duration::from_secs(60);
const KEYS: usize = 120;

fn put(resp: &mut Resp, round: usize) {
    for n in 0..KEYS {
        let (key, value) = (format!("key:{n}"), format!("{n} in round {round} {}", "x".repeat(n)));
        assert_eq!(resp.ask(&["SET", &key, &value]).unwrap(), Word::Simple("OK".into()));
    }
}

fn check(resp: &mut Resp, round: usize) {
    for n in 0..KEYS {
        let value = format!("{n} in round {round} {}", "x".repeat(n));
        assert_eq!(
            resp.ask(&["GET", &format!("key:{n}")]).unwrap(),
            Word::Bulk(value),
            "acknowledged in round {round}"
        );
    }
}

fn node(up: &Up, of: u8, name: &str) -> Result<Value, String> {
    let view = up.status(of)?;
    let nodes = view["nodes"].as_array().cloned().unwrap_or_default();
    nodes.into_iter().find(|n| n["name"] == name).ok_or_else(|| format!("{name} is not shown: {view}"))
}

/// All three have the bank, and n2 goes by another id than before.
fn whole(up: &Up, not: &Value) -> Result<Value, String> {
    let view = up.status(1)?;
    let n2 = node(up, 1, "n2")?;
    let mut members = view["namespaces"][0]["shards"][0]["members"].as_array().cloned().unwrap_or_default();
    members.sort_by_key(Value::to_string);
    let figure: u64 = (1..=3)
        .map(|n| up.status(n).map(|v| v["figures"]["linear.groups_whole"].as_u64()))
        .try_fold(0, |sum, n: Result<Option<u64>, String>| n.map(|n| sum + n.unwrap_or(0)))?;
    let is_so = n2["state"] == "live" && n2["id"] != *not && members == ["n1", "n2", "n3"] && figure == 1;
    if is_so { Ok(n2["id"].clone()) } else { Err(format!("{figure} whole, {members:?}, n2 {}", n2["state"])) }
}

fn log_files(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir.join("n2/log")).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|f| f.extension().is_some_and(|end| end == "seg" || end == "snap")).collect();
    files.sort();
    files
}

/// Does something to the disk of n2 while it cannot look, and has it start again.
fn behind_its_back(up: &Up, act: impl FnOnce()) {
    let pid = up.node_pid(2);
    kill(pid, Signal::STOP);
    act();
    kill(pid, Signal::KILL);
}

#[test]
fn a_wrong_byte_in_any_file_of_one_node_loses_and_changes_nothing() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("bank.toml", FILE).good();
    let token = up.token("bank");
    put(&mut up.linear(1, "bank", &token), 0);
    let mut id = wait_for("the bank is whole", SOON, || whole(&up, &Value::Null)).0;
    let mut rounds = 0;
    // In each round: of each file in turn, the first byte, one in the middle, and the last that was written.
    for part in [0.0, 0.5, 1.0] {
        for file in 0..log_files(&up.dir).len() {
            let Some(path) = log_files(&up.dir).get(file).cloned() else { continue };
            rounds += 1;
            put(&mut up.linear(1, "bank", &token), rounds);
            // Until it has forced what was promised last, a wrong byte there is a write that was cut short.
            wait_for("n2 has nothing to write", SOON, || match &up.status(2)?["figures"]["linear.groups_asleep"] {
                Value::Number(n) if n.as_u64() == Some(1) => Ok(()),
                other => Err(format!("{other} asleep")),
            });
            let mut at = 0;
            behind_its_back(&up, || {
                let mut bytes = fs::read(&path).unwrap();
                let written = bytes.iter().rposition(|byte| *byte != 0).unwrap();
                // The last twenty bytes are the seal, which nothing rests on.
                at = ((written.saturating_sub(24)) as f64 * part) as usize;
                bytes[at] ^= 0x20;
                fs::write(&path, bytes).unwrap();
            });
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let (new, took) = wait_for("n2 has entered anew", SOON, || whole(&up, &id));
            say(&format!(
                "byte {at} of {name} was wrong: n2 is {new} instead of {id} and has its copies after {took:?}"
            ));
            id = new;
            for n in 1..=3 {
                check(&mut up.linear(n, "bank", &token), rounds);
            }
        }
    }
    assert!(rounds >= 3, "{rounds} rounds");
    // It is said, and what was there is kept for whoever wants to look at it.
    let view = up.status(1).unwrap();
    let events = view["events"].as_array().unwrap();
    assert!(events.iter().any(|e| e["kind"] == "anew" && e["who"] == "n2"), "{events:?}");
    assert!(up.dir.join("n2/log.distrusted").exists());
    // A whole log that is gone is no empty one.
    behind_its_back(&up, || fs::remove_dir_all(up.dir.join("n2/log")).unwrap());
    wait_for("n2 has entered anew", SOON, || whole(&up, &id));
    check(&mut up.linear(2, "bank", &token), rounds);
}

#[test]
fn an_older_disk_is_found_out_and_the_node_enters_anew() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("bank.toml", FILE).good();
    let token = up.token("bank");
    put(&mut up.linear(1, "bank", &token), 0);
    let id = wait_for("the bank is whole", SOON, || whole(&up, &Value::Null)).0;
    let (log, copy) = (up.dir.join("n2/log"), up.dir.join("older"));
    fn copied(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for file in fs::read_dir(from).unwrap() {
            let file = file.unwrap();
            let to = to.join(file.file_name());
            if file.file_type().unwrap().is_dir() {
                copied(&file.path(), &to);
            } else {
                fs::copy(file.path(), to).unwrap();
            }
        }
    }
    behind_its_back(&up, || copied(&log, &copy));
    wait_for("n2 is back", SOON, || whole(&up, &Value::Null));
    put(&mut up.linear(1, "bank", &token), 1);
    // The boot count is not older: only what the others remember gives it away.
    behind_its_back(&up, || {
        fs::remove_dir_all(&log).unwrap();
        copied(&copy, &log);
    });
    let (new, took) = wait_for("n2 has entered anew", SOON, || whole(&up, &id));
    say(&format!("an older log: n2 is {new} instead of {id} after {took:?}"));
    for n in 1..=3 {
        check(&mut up.linear(n, "bank", &token), 1);
    }
}

#[test]
fn a_lone_node_with_a_wrong_byte_says_what_can_be_done_and_changes_nothing() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(1);
    let log = yard.node_dir(1).join("log");
    // It is made beside the log, and the node does not wait for it.
    let (snapshot, _) = wait_for("its first snapshot is on the disk", SOON, || {
        let mut files = fs::read_dir(&log).unwrap().map(|file| file.unwrap().path());
        files.find(|f| f.extension().is_some_and(|end| end == "snap")).ok_or("none yet".to_owned())
    });
    yard.kill(1);
    let mut bytes = fs::read(&snapshot).unwrap();
    bytes[60] ^= 1;
    fs::write(&snapshot, &bytes).unwrap();
    yard.begin(1, &[]);
    assert_ne!(yard.ended(1), Some(0));
    let said = yard.log(1);
    assert!(said.contains("is damaged at byte") && said.contains("put the folder"), "{said}");
    assert_eq!(fs::read(&snapshot).unwrap(), bytes, "nothing is cut");
}

#[test]
fn a_full_disk_is_one_nodes_trouble_and_over_when_there_is_room() {
    let _turn = e2e::beside();
    let dir = new_folder();
    let place = dir.join("n3");
    fs::create_dir_all(&place).unwrap();
    let mounted = tools::has("mount")
        && Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=160m", "tmpfs"])
            .arg(&place)
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
    if !mounted {
        return skip("a small file system cannot be mounted here");
    }
    let _mount = Mount(place.clone());
    let mut up = Up::begin_in(dir, Ports::free(3), 3, vec!["--no-demo".into()]);
    up.ready = up.event("ready", SOON);
    up.apply("bank.toml", FILE).good();
    let token = up.token("bank");
    put(&mut up.linear(1, "bank", &token), 0);
    wait_for("the bank is whole", SOON, || whole(&up, &Value::Null));
    let doors: Vec<_> = (1..=3).map(|n| up.at(n).resp).collect();
    let history = can_judge().then(|| History::start(&doors, "bank", &token));
    // All room goes, and what the log holds in reserve.
    for spare in ["spare", "spare-1", "spare-2"] {
        let _ = fs::remove_file(place.join("log").join(spare));
    }
    let filler = place.join("filler");
    let full = fs::write(&filler, vec![1; 200 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let mut resp = up.linear(1, "bank", &token);
    let mut n = 0;
    let (shown, _) = wait_for("it is said that the disk takes nothing", SOON, || {
        n += 1;
        resp.ask(&["SET", &format!("fill:{}", n % 100), &"y".repeat(20_000)])?;
        match &node(&up, 1, "n3")?["disk"] {
            Value::String(text) => Ok(text.clone()),
            other => Err(format!("{other}")),
        }
    });
    assert!(shown.contains("No space left"), "{shown}");
    assert!(up.coppice(&["status"]).good().contains("n3's disk takes nothing"));
    // All others go on, and so do the doors of n3.
    put(&mut resp, 1);
    check(&mut up.linear(3, "bank", &token), 1);
    fs::remove_file(&filler).unwrap();
    wait_for("n3 takes part again", SOON, || match &node(&up, 1, "n3")?["disk"] {
        Value::Null => whole(&up, &Value::Null),
        other => Err(other.to_string()),
    });
    kill(up.node_pid(1), Signal::KILL);
    let mut resp = up.linear(3, "bank", &token);
    check(&mut resp, 1);
    put(&mut resp, 2);
    check(&mut resp, 2);
    if let Some(history) = history {
        history.judge(&up.dir);
    }
}

#[test]
fn a_slow_disk_leads_nothing_and_its_groups_go_to_nodes_that_are_better() {
    let _turn = e2e::beside();
    if !tools::has("strace") {
        return skip("strace is not installed");
    }
    let up = Up::bare(4);
    up.apply("bank.toml", FILE).good();
    let token = up.token("bank");
    put(&mut up.linear(1, "bank", &token), 0);
    let shard_at = |n: u8| Ok::<_, String>(up.status(n)?["namespaces"][0]["shards"][0].clone());
    let shard = || shard_at(1);
    let names = |members: &Value| -> Vec<String> {
        members.as_array().map_or(Vec::new(), |all| all.iter().map(|name| name.as_str().unwrap().to_owned()).collect())
    };
    let (leader, _) = wait_for("three have it, and one leads", SOON, || {
        let shard = shard()?;
        match (names(&shard["members"]).len(), shard["leader"].as_str()) {
            (3, Some(leader)) => Ok(leader.to_owned()),
            _ => Err(shard.to_string()),
        }
    });
    // One of the four is no member, and those that nobody asks anything know it too.
    for n in 2..=4 {
        wait_for("each node knows who leads", SOON, || match shard_at(n)? {
            shard if shard["leader"] == leader.as_str() => Ok(()),
            shard => Err(format!("n{n} says {shard}")),
        });
    }
    let slow: u8 = leader.strip_prefix('n').unwrap().parse().unwrap();
    let mut strace = Command::new("strace")
        .args([
            "-f",
            "-q",
            "-e",
            "trace=fdatasync",
            "-e",
            "inject=fdatasync:delay_enter=1500000",
            "-o",
            "/dev/null",
            "-p",
        ])
        .arg(up.node_pid(slow).to_string())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut resp = up.linear(slow % 4 + 1, "bank", &token);
    let mut n = 0;
    let mut write = || {
        n += 1;
        let begun = std::time::Instant::now();
        resp.ask(&["SET", "again", &n.to_string()])?;
        Ok::<_, String>(begun.elapsed())
    };
    let moved = wait_for("another one leads", SOON, || {
        let took = write()?;
        let shard = shard()?;
        if shard["leader"] == leader.as_str() { Err(format!("{took:?} for a write: {shard}")) } else { Ok(()) }
    });
    say(&format!("another one leads after {:?}", moved.1));
    assert!(up.coppice(&["status"]).good().contains(&format!("{leader}'s disk is slow: a force takes ")));
    let longest = (0..20).map(|_| write().unwrap()).max().unwrap();
    assert!(longest < Duration::from_millis(1_200), "writes still wait for the slow disk: {longest:?}");
    let gone = wait_for("its copy is another one's", SOON, || {
        write()?;
        let shard = shard()?;
        let members = names(&shard["members"]);
        if members.len() == 3 && !members.contains(&leader) { Ok(()) } else { Err(shard.to_string()) }
    });
    say(&format!("its copy is another one's after {:?} more", gone.1));
    kill(strace.id(), Signal::TERM);
    let _ = strace.wait();
    check(&mut up.linear(slow, "bank", &token), 0);
}

struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a node may still hold it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_failed_force_ends_the_node_and_the_next_start_writes_the_end_of_its_log_anew() {
    let _turn = e2e::beside();
    if !tools::has("strace") {
        return skip("strace is not installed");
    }
    let mut up = Up::bare(3);
    up.apply("bank.toml", FILE).good();
    let token = up.token("bank");
    let mut resp = up.linear(1, "bank", &token);
    put(&mut resp, 0);
    wait_for("the bank is whole", SOON, || whole(&up, &Value::Null));
    let pid = up.node_pid(2);
    let mut strace = Command::new("strace")
        .args([
            "-f",
            "-q",
            "-e",
            "trace=fdatasync",
            "-e",
            "inject=fdatasync:error=EIO:when=3+",
            "-o",
            "/dev/null",
            "-p",
        ])
        .arg(pid.to_string())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut n = 0;
    let ended = wait_for("the node has ended", SOON, || {
        n += 1;
        resp.ask(&["SET", "again", &n.to_string()])?;
        if up.node_pid_now(2) == Some(pid) { Err("it runs".to_owned()) } else { Ok(()) }
    });
    let _ = strace.kill();
    let _ = strace.wait();
    say(&format!("the node ended {:?} after its disk began to fail", ended.1));
    let died = up.event("died", SOON);
    assert!(died["how"].as_str().unwrap().contains("74"), "{died}");
    wait_for("it is back and says what happened", SOON, || {
        whole(&up, &Value::Null)?;
        let log = fs::read_to_string(up.dir.join("n2/node.log")).map_err(|e| e.to_string())?;
        let says = log.contains("the node stops") && log.contains("was written anew");
        if says { Ok(()) } else { Err("not yet".to_owned()) }
    });
    check(&mut up.linear(2, "bank", &token), 0);
}
