//! Data folders that released versions have left behind (`tests/fixtures/VERSION/node`) are opened by this program, and all
//! that was acknowledged is there. `UPDATE_FIXTURES=1 cargo test -p e2e kept::` writes one for the present version, if
//! it has none; what is there is never changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::at::{Ports, new_folder};
use e2e::procs::{Signal, kill};
use e2e::resp::{Resp, Word};
use e2e::{Up, http, wait_for};

const SOON: Duration = Duration::from_secs(60);

fn declared(shards: u32) -> String {
    format!(
        "[namespace.bank]\nclass = \"linear\"\nshards = {shards}\n\n[namespace.carts]\nclass = \"session\"\ntimeout = \"3s\"\n\n\
         [namespace.quick]\nclass = \"linear\"\ndurability = \"memory\"\nshards = 1\n"
    )
}

/// Ids of writes, as callers give them.
const ONCE: [&str; 3] = [
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "01890a5d-ac97-774b-bcce-b302099a8058",
    "01890a5d-ac98-774b-bcce-b302099a8059",
];

/// What was done before the shard was split, and what was answered.
fn before(ask: &mut impl FnMut(&str) -> Word) {
    for n in 0..40 {
        assert_eq!(ask(&format!("SET key:{n} value-{n}")), ok());
    }
    for (command, answer) in [
        ("DEL key:7", Word::Int(1)),
        ("INCRBY number 41", Word::Int(41)),
        ("SET ends soon PX 1", ok()),
        ("SET lasts long EX 3000000000", ok()),
        ("HSET hash a 1 b 2 c 3", Word::Int(3)),
        ("HDEL hash b", Word::Int(1)),
        ("RPUSH list one two three four", Word::Int(4)),
        ("LPOP list", bulk("one")),
        ("SADD set x y z", Word::Int(3)),
        ("SREM set z", Word::Int(1)),
        ("FCALL lease.claim 1 lock me 3000000000000", Word::Int(55)),
        ("FCALL json.merge 1 doc {\"a\":{\"b\":1}}", bulk("{\"a\":{\"b\":1}}")),
        (&format!("ONCE {} INCRBY number 1", ONCE[0]), Word::Int(42)),
        (&format!("ONCE {} RPUSH list five", ONCE[1]), Word::Int(4)),
        ("MULTI", ok()),
        ("SET {t}a 1", queued()),
        ("APPEND {t}b more", queued()),
        ("RENAME {t}b {t}c", queued()),
        ("EXEC", Word::List(vec![ok(), Word::Int(4), ok()])),
    ] {
        assert_eq!(ask(command), answer, "{command}");
    }
}

/// What was done after it.
fn after(ask: &mut impl FnMut(&str) -> Word) {
    for n in 20..60 {
        assert_eq!(ask(&format!("SET key:{n} later-{n}")), ok());
    }
    for (command, answer) in [
        ("DEL key:8", Word::Int(1)),
        ("INCR number", Word::Int(43)),
        (&format!("ONCE {} SADD set w", ONCE[2]), Word::Int(1)),
        ("WATCH {t}a", ok()),
        ("MULTI", ok()),
        ("INCR {t}a", queued()),
        ("EXEC", Word::List(vec![Word::Int(2)])),
    ] {
        assert_eq!(ask(command), answer, "{command}");
    }
}

/// What is there then.
fn check(ask: &mut impl FnMut(&str) -> Word) {
    for n in 0..60 {
        let value = match n {
            7 | 8 => Word::Nil,
            0..20 => bulk(&format!("value-{n}")),
            _ => bulk(&format!("later-{n}")),
        };
        assert_eq!(ask(&format!("GET key:{n}")), value, "key:{n}");
    }
    let list = |words: &[&str]| Word::List(words.iter().map(|word| bulk(word)).collect());
    for (command, answer) in [
        ("DBSIZE", Word::Int(67)),
        ("GET number", bulk("43")),
        ("EXISTS ends", Word::Int(0)),
        ("GET lasts", bulk("long")),
        ("TTL number", Word::Int(-1)),
        ("HGETALL hash", list(&["a", "1", "c", "3"])),
        ("LRANGE list 0 -1", list(&["two", "three", "four", "five"])),
        ("SMEMBERS set", list(&["w", "x", "y"])),
        ("FCALL lease.holder 1 lock", Word::List(vec![bulk("me"), Word::Int(55)])),
        ("FCALL lease.claim 1 lock you 1000", Word::Nil),
        ("GET doc", bulk("{\"a\":{\"b\":1}}")),
        ("MGET {t}a {t}b {t}c", Word::List(vec![bulk("2"), Word::Nil, bulk("more")])),
        // Asked again, writes get their first answers and do not happen again.
        (&format!("ONCE {} INCRBY number 1", ONCE[0]), Word::Int(42)),
        (&format!("ONCE {} RPUSH list five", ONCE[1]), Word::Int(4)),
        (&format!("ONCE {} SADD set w", ONCE[2]), Word::Int(1)),
        ("GET number", bulk("43")),
        ("LLEN list", Word::Int(4)),
        // ... and it goes on.
        ("INCR number", Word::Int(44)),
    ] {
        assert_eq!(ask(command), answer, "{command}");
    }
    let Word::Int(left) = ask("TTL lasts") else { panic!("no time") };
    assert!((2_900_000_000..=3_000_000_000).contains(&left), "{left} s are left");
}

fn ok() -> Word {
    Word::Simple("OK".into())
}

fn queued() -> Word {
    Word::Simple("QUEUED".into())
}

fn bulk(text: &str) -> Word {
    Word::Bulk(text.into())
}

fn asker(resp: &mut Resp) -> impl FnMut(&str) -> Word {
    |command| resp.ask(&command.split(' ').collect::<Vec<_>>()).unwrap()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn present() -> PathBuf {
    let version = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    fixtures().join(version).join("node")
}

fn write(to: &Path) {
    let up = Up::bare(1);
    up.apply("bank.toml", &declared(1)).good();
    let (bank, quick) = (up.token("bank"), up.token("quick"));
    before(&mut asker(&mut up.linear(1, "bank", &bank)));
    up.apply("bank.toml", &declared(2)).good();
    wait_for("the shard is split", SOON, || match up.status(1)?["namespaces"][0]["shards"].as_array() {
        Some(shards) if shards.len() == 2 && shards.iter().all(|shard| shard["leader"] == "n1") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    after(&mut asker(&mut up.linear(1, "bank", &bank)));
    let mut quick = up.linear(1, "quick", &quick);
    assert_eq!(quick.ask(&["SET", "fast", "and loose"]).unwrap(), ok());
    for one in up.everything() {
        kill(one.pid, Signal::KILL);
    }
    copy(&up.dir.join("n1"), to);
}

/// All that a data folder needs, nothing of the process that had it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap().map(|file| file.unwrap()) {
        let (path, name) = (file.path(), file.file_name().into_string().unwrap());
        match name.as_str() {
            "log" => copy(&path, &to.join("log")),
            // Made anew: the lock, room for the log, what the process said, the machine's boot.
            "lock" | "spare" | "spare-1" | "spare-2" | "node.log" | "founding.json" => (),
            "boot" if from.ends_with("log") => (),
            _ if path.is_dir() => (),
            _ => _ = fs::copy(&path, to.join(name)).unwrap(),
        }
    }
}

#[test]
fn what_every_version_has_kept_is_there() {
    let _turn = e2e::beside();
    if std::env::var_os("UPDATE_FIXTURES").is_some() && !present().exists() {
        write(&present());
    }
    assert!(present().exists(), "UPDATE_FIXTURES=1 cargo test -p e2e kept:: writes it");
    for version in fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path().join("node")) {
        if version.exists() {
            opened(&version);
        }
    }
}

fn opened(folder: &Path) {
    let dir = new_folder();
    copy(folder, &dir.join("n1"));
    let boot = || fs::read_to_string(dir.join("n1/boot")).unwrap().trim().parse::<u64>().unwrap();
    let last = boot();
    let mut up = Up::begin_in(dir.clone(), Ports::free(1), 1, vec!["--no-demo".into()]);
    up.event("ready", SOON);
    assert_eq!(boot(), last + 1, "{}", folder.display());
    let export = http::request(
        up.at(1).api,
        "GET",
        "/v1/export",
        &[("Authorization", &format!("Bearer {}", up.admin_token()))],
        b"",
    );
    let export = export.unwrap().text();
    for line in ["[namespace.bank]", "[namespace.carts]", "timeout = \"3s\"", "[namespace.quick]", "shards = 2"] {
        assert!(export.contains(line), "{line} is not in {export}");
    }
    check(&mut asker(&mut up.linear(1, "bank", &up.token("bank"))));
    let mut quick = up.linear(1, "quick", &up.token("quick"));
    assert_eq!(quick.ask(&["GET", "fast"]).unwrap(), bulk("and loose"));
    // Nothing was distrusted or put right, but that others could read what a repository has.
    let log = fs::read_to_string(dir.join("n1/node.log")).unwrap();
    let wrong = |line: &&str| {
        ["WARN", "ERROR"].iter().any(|level| line.contains(level)) && !line.contains("others could reach")
    };
    assert_eq!(log.lines().find(wrong), None, "{log}");
    assert!(!dir.join("n1/log.distrusted").exists());
}
