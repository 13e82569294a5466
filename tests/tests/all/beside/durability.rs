//! `durability = "memory"` through the real program: what it says, what a kill of all processes and the power of one machine cost.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use e2e::procs::{Signal, kill};
use e2e::resp::Word;
use e2e::{Up, say, wait_for};
use serde_json::Value;

const FILE: &str = "[namespace.bank]\nclass = \"linear\"\ndurability = \"memory\"\n";
/// With a debug binary beside a compiler.
const SOON: Duration = Duration::from_secs(60);
const WRITERS: u8 = 6;

fn ok() -> Word {
    Word::Simple("OK".to_owned())
}

fn members(up: &Up) -> Result<(), String> {
    let view = up.status(1)?;
    let members = view["namespaces"][0]["shards"][0]["members"].as_array().map_or(0, Vec::len);
    if members == 3 { Ok(()) } else { Err(format!("{members} members")) }
}

#[test]
fn its_loss_window_is_shown_and_what_cannot_be_is_refused_with_the_line() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    let tape = up.apply("tape.toml", &FILE.replace("memory", "tape")).wrong();
    assert!(
        tape.contains("tape.toml:3: namespace.bank.durability") && tape.contains("\"tape\" is not known"),
        "{tape}"
    );
    let alone = up.apply("alone.toml", &format!("{FILE}replicas = 1\n")).wrong();
    assert!(alone.contains("alone.toml:3") && alone.contains("second node's memory"), "{alone}");
    up.apply("bank.toml", FILE).good();
    let disk = up.apply("bank.toml", &FILE.replace("memory", "disk")).wrong();
    assert!(disk.contains("bank.toml:") && disk.contains("cannot become \"disk\""), "{disk}");
    let token = up.token("bank");
    wait_for("three have it", SOON, || members(&up));
    let mut resp = up.linear(1, "bank", &token);
    assert_eq!(resp.ask(&["SET", "k", "v"]).unwrap(), ok());
    let shown = up.coppice(&["ns", "show", "bank"]).good();
    assert!(shown.contains("durability:        memory") && shown.contains("50 ms and the time of a force"), "{shown}");
    let (longest, _) = wait_for("the window is measured", SOON, || {
        // What another group forces soon after a write forces the write too: some write will wait for its own.
        assert_eq!(resp.ask(&["SET", "k", "v"]).unwrap(), ok());
        let text = up.coppice(&["ns", "show", "bank", "--json"]).good();
        let json: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        assert_eq!((&json["durability"], &json["loss_window"]["force_after_ms"]), (&"memory".into(), &50.into()));
        json["loss_window"]["longest_ms"].as_u64().filter(|ms| *ms >= 50).ok_or(text)
    });
    say(&format!("the longest time to a force was {longest} ms"));
}

#[test]
fn every_process_may_be_killed_at_once_under_writes_and_nothing_acknowledged_is_lost() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("bank.toml", FILE).good();
    let token = up.token("bank");
    wait_for("three have it", SOON, || members(&up));
    let (mut writers, written) = (Vec::new(), Arc::new(AtomicUsize::new(0)));
    for writer in 0..WRITERS {
        let mut resp = up.linear(writer % 3 + 1, "bank", &token);
        let written = Arc::clone(&written);
        writers.push(thread::spawn(move || {
            let mut put = |n: &u64| resp.ask(&["SET", &format!("{writer}:{n}"), "x"]) == Ok(ok());
            // Until its node is killed.
            (0..u64::MAX).take_while(|n| put(n)).inspect(|_| _ = written.fetch_add(1, Relaxed)).count()
        }));
    }
    wait_for("enough was written", SOON, || match written.load(Relaxed) {
        200.. => Ok(()),
        few => Err(few.to_string()),
    });
    (1..=3).map(|n| up.node_pid(n)).collect::<Vec<_>>().into_iter().for_each(|pid| kill(pid, Signal::KILL));
    let acked: Vec<usize> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let all = acked.iter().sum::<usize>();
    let mut resp = up.linear(2, "bank", &token);
    for (writer, count) in acked.iter().enumerate() {
        for n in 0..*count {
            assert_eq!(resp.ask(&["GET", &format!("{writer}:{n}")]).unwrap(), Word::Bulk("x".into()), "acknowledged");
        }
    }
    say(&format!("{all} acknowledged writes are there after the kill of all processes"));
}

#[test]
fn a_machine_that_lost_its_power_takes_part_again_as_who_it_was() {
    let _turn = e2e::beside();
    let up = Up::bare(3);
    up.apply("bank.toml", FILE).good();
    let token = up.token("bank");
    wait_for("three have it", SOON, || members(&up));
    let mut resp = up.linear(1, "bank", &token);
    assert_eq!(resp.ask(&["SET", "first", "x"]).unwrap(), ok());
    let asleep = || match up.status(2)?["figures"]["linear.groups_asleep"].as_u64() {
        Some(1) => Ok(()),
        other => Err(format!("{other:?} asleep")),
    };
    wait_for("n2 has nothing to write", SOON, asleep);
    let log = up.dir.join("n2/log");
    let segment = fs::read_dir(&log).unwrap().map(|file| file.unwrap().path());
    let segment = segment.filter(|path| path.extension().is_some_and(|end| end == "seg")).max().unwrap();
    let end = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let before = end(&fs::read(&segment).unwrap());
    for n in 0..50 {
        assert_eq!(resp.ask(&["SET", &format!("key:{n}"), "x"]).unwrap(), ok());
    }
    let id = |up: &Up| -> Result<Value, String> {
        let view = up.status(1)?;
        let nodes = view["nodes"].as_array().cloned().unwrap_or_default();
        let n2 = nodes.into_iter().find(|n| n["name"] == "n2").ok_or("n2 is not shown")?;
        if n2["state"] == "live" { Ok(n2["id"].clone()) } else { Err(n2["state"].to_string()) }
    };
    let was = id(&up).unwrap();
    // As the power leaves it: another boot, and nothing of the last moments. What n2 had acknowledged the others know.
    let pid = up.node_pid(2);
    kill(pid, Signal::STOP);
    let mut bytes = fs::read(&segment).unwrap();
    let after = end(&bytes);
    assert!(after > before, "n2 has written what it acknowledged");
    // The seal is the last that stood there before.
    bytes[before - 20..].fill(0);
    fs::write(&segment, &bytes).unwrap();
    fs::write(log.join("boot"), "before the power failed").unwrap();
    kill(pid, Signal::KILL);
    wait_for("n2 runs again", SOON, || up.node_pid_now(2).filter(|now| *now != pid).ok_or("not yet".to_owned()));
    // It holds all again, and its log is known to be whole.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let recovered = || match fs::read_to_string(log.join("boot")) {
        Ok(text) if text == boot => id(&up),
        other => Err(format!("{other:?}")),
    };
    assert_eq!(wait_for("n2 has recovered", SOON, recovered).0, was, "it did not have to enter anew");
    // With one of the others dead its copy counts.
    kill(up.node_pid(1), Signal::KILL);
    let mut resp = up.linear(2, "bank", &token);
    for n in 0..50 {
        assert_eq!(resp.ask(&["GET", &format!("key:{n}")]).unwrap(), Word::Bulk("x".to_owned()));
    }
    assert!(!up.dir.join("n2/log.distrusted").exists());
}
