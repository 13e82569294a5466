//! What operators declare: applied as a whole or not at all, the same on every node, kept over every death, and changes
//! alone stop when the majority of those who agree on it is gone.

use std::time::{Duration, Instant};

use e2e::http::{self, Shopper};
use e2e::resp::{Resp, Word};
use e2e::{Shared, Up, Yard, wait_for};

static BARE: Shared = Shared::beside(|| Up::bare(3));

const FILE: &str = r#"
[namespace.boxes]
class = "session"
lease = "45m"

[service.idle]
run = ["sleep", "1000"]
clones = 2
env = { FLAVOUR = "mint" }
stop = { signal = "INT", drain = "1s" }
"#;

#[test]
fn apply_twice_changes_nothing_diff_changes_nothing_and_what_is_dropped_is_removed() {
    let up = BARE.take();
    let first = up.apply("boxes.toml", FILE).good();
    assert!(first.contains("+ namespace boxes") && first.contains("+ service idle"), "{first}");
    let version = version(&up);
    let again = up.apply("boxes.toml", FILE).good();
    assert!(again.contains("nothing to change"), "{again}");
    let other = up.write("boxes.toml", &FILE.replace("clones = 2", "clones = 4"));
    let diff = up.coppice(&["diff", "-f", &other.display().to_string()]).good();
    assert!(diff.contains("~ service idle: clones 2 -> 4") && diff.contains("nothing was changed"), "{diff}");
    assert_eq!(self::version(&up), version, "neither made a new version");
    let less = up.apply("boxes.toml", "[namespace.boxes]\nclass = \"session\"\nlease = \"45m\"\n").good();
    assert!(less.contains("- service idle"), "{less}");
    wait_for("its clones are gone from every node's view", Duration::from_secs(15), || {
        let left = (1..=3).find_map(|n| up.status(n).ok()?["services"].as_array()?.first().cloned());
        left.map_or(Ok(()), |s| Err(s.to_string()))
    });
    clear(&up);
}

#[test]
fn what_a_namespace_holds_is_removed_only_if_that_is_meant() {
    let up = BARE.take();
    up.apply("boxes.toml", FILE).good();
    let before = up.coppice(&["export"]).good();
    // Somebody else's file of the same name.
    let other = up.write("boxes.toml", "[namespace.others]\nclass = \"session\"\n").display().to_string();
    let refused = up.coppice(&["apply", "-f", &other]).wrong();
    assert!(refused.contains("boxes; nothing was changed") && refused.contains("--remove-namespaces"), "{refused}");
    assert_eq!(up.coppice(&["export"]).good(), before);
    let shown = up.coppice(&["diff", "-f", &other]).good();
    assert!(shown.contains("- namespace boxes") && shown.contains("+ namespace others"), "{shown}");
    let meant = up.coppice(&["apply", "--remove-namespaces", "-f", &other]).good();
    assert!(meant.contains("- namespace boxes"), "{meant}");
    clear(&up);
}

#[test]
fn an_export_is_a_file_that_apply_takes_and_gives_the_same_again() {
    let up = BARE.take();
    up.apply("boxes.toml", FILE).good();
    let exported = up.coppice(&["export"]).good();
    let path = up.write("export.toml", &exported);
    let same = up.coppice(&["diff", "-f", &path.display().to_string()]).good();
    assert!(same.contains("nothing to change"), "{same}");
    up.apply("boxes.toml", "").good();
    assert_eq!(up.coppice(&["export"]).good().trim(), "");
    up.apply("export.toml", &exported).good();
    assert_eq!(up.coppice(&["export"]).good(), exported);
    up.apply("export.toml", "").good();
}

#[test]
fn a_mistake_names_file_line_key_and_what_would_be_right_and_nothing_is_half_applied() {
    let up = BARE.take();
    up.apply("boxes.toml", FILE).good();
    let before = up.coppice(&["export"]).good();
    let good = "[namespace.fine]\nclass = \"session\"\n[service.fine]\nrun = [\"true\"]\n";
    // What comes after the good part, the line of the mistake there, the key, and a word of what would be right.
    let mistakes = [
        ("[service.a]\nrun = [\"x\"]\nclone = 3\n", 3, "clone", "clones"),
        ("[service.a]\nrun = \"x\"\n", 2, "run", "run = [\"x\"]"),
        ("[service.a]\nclones = 2\n", 1, "run", "builtin"),
        ("[service.a]\nrun = [\"x\"]\nhttp = { path = \"shop\" }\n", 3, "http", "/"),
        ("[service.a]\nrun = [\"x\"]\nnamespaces = [\"cart\"]\n", 3, "namespaces", "boxes"),
        ("[service.a]\nrun = [\"x\"]\nenv = { PORT = \"1\" }\n", 3, "env", "given"),
        ("[service.a]\nrun = [\"x\"]\nstop = { drain = \"soon\" }\n", 3, "drain", "10s"),
        ("[service.a]\nrun = [\"x\"]\nclones = 100000\n", 3, "clones", "256"),
        ("[namespace.a]\nclass = \"sesion\"\n", 2, "class", "session"),
        ("[namespace.a]\nclass = \"session\"\nlease = \"0s\"\n", 3, "lease", "1s"),
        ("[namespace.A_b]\nclass = \"session\"\n", 1, "A_b", "lower-case"),
        ("[servce.a]\nrun = [\"x\"]\n", 1, "servce", "service"),
        ("[service.a\n", 1, "", "]"),
    ];
    let mut wrong = Vec::new();
    for (text, line, key, right) in mistakes {
        let error = up.apply("wrong.toml", &format!("{good}{text}")).wrong();
        let line = good.lines().count() + line;
        let has_line = error.contains(&format!("wrong.toml:{line}")) || error.contains(&format!("line {line},"));
        if !(error.contains("wrong.toml") && has_line && error.contains(key) && error.contains(right)) {
            wrong.push(format!("line {line}, {key:?} and {right:?} should be in:\n{error}"));
        }
        assert_eq!(up.coppice(&["export"]).good(), before, "after {text:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    clear(&up);
}

#[test]
fn without_the_operators_token_nothing_is_changed_or_shown() {
    let up = BARE.take();
    let file = up.write("boxes.toml", FILE).display().to_string();
    let none = up.dir.join("nowhere").display().to_string();
    let api = up.at(2).api.to_string();
    let ask = |args: &[&str]| {
        let mut command = std::process::Command::new(e2e::program::coppice());
        e2e::tools::run(
            command.args(args).args(["--api", &api, "--dir", &none]).env_remove("COPPICE_TOKEN"),
            Duration::from_secs(20),
        )
    };
    let error = ask(&["apply", "-f", &file]).wrong();
    assert!(error.contains("token") && error.contains("--dir"), "{error}");
    let error = ask(&["apply", "-f", &file, "--token", "0123"]).wrong();
    assert!(error.contains("token"), "{error}");
    assert!(ask(&["export", "--token", "0123"]).wrong().contains("token"));
    assert!(ask(&["token", "--token", "0123"]).wrong().contains("token"));
    assert_eq!(up.coppice(&["export"]).good().trim(), "");
}

#[test]
fn the_group_grows_to_three_voters_by_itself_and_any_node_takes_changes() {
    let up = BARE.take();
    let (_, took) = wait_for("three voters in the view of each node", Duration::from_secs(20), || {
        for node in 1..=3 {
            let view = up.status(node)?;
            if view["root"]["voters"].as_array().map_or(0, Vec::len) != 3 || view["root"]["leader"].is_null() {
                return Err(view["root"].to_string());
            }
        }
        Ok(())
    });
    e2e::say(&format!("three voters {} ms after `ready`, at the latest", took.as_millis()));
    let dir = up.dir.display().to_string();
    for node in 1..=3 {
        let file = up.write("each.toml", &format!("[namespace.by{node}]\nclass = \"session\"\n")).display().to_string();
        let mut command = std::process::Command::new(e2e::program::coppice());
        command.args([
            "apply",
            "--remove-namespaces",
            "-f",
            &file,
            "--dir",
            &dir,
            "--api",
            &up.at(node).api.to_string(),
        ]);
        let said = e2e::tools::run(&mut command, Duration::from_secs(20)).good();
        assert!(said.contains(&format!("+ namespace by{node}")), "{said}");
    }
    up.apply("each.toml", "").good();
}

#[test]
fn all_killed_at_one_moment_comes_back_with_its_declarations_and_tokens() {
    let _turn = e2e::beside();
    let up = Up::shop();
    up.apply("boxes.toml", FILE).good();
    let (exported, token, before) = (up.coppice(&["export"]).good(), up.token("boxes"), version(&up));
    let up = up.kill_all_and_start();
    e2e::say(&format!("cold start of three nodes: ready after {} ms", up.took.as_millis()));
    assert_eq!(up.coppice(&["export"]).good(), exported);
    assert_eq!(up.token("boxes"), token);
    assert!(version(&up) >= before);
    assert!(up.apply("boxes.toml", FILE).good().contains("nothing to change"));
    assert_eq!(up.ready["demo"], true, "{}", up.ready);
    let mut me = Shopper::new("after the cut");
    for node in 1..=3 {
        me.add(up.at(node).http, "honey").unwrap();
    }
    me.check(up.at(1).http).unwrap();
}

#[test]
fn with_the_majority_dead_changes_stop_and_all_that_runs_goes_on() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(3);
    let shop = e2e::program::repository().join("examples/cart").display().to_string();
    let shop = std::fs::read_to_string(format!("{shop}/coppice.toml")).unwrap().replace("examples/cart", &shop);
    yard.apply(1, "shop.toml", &shop).good();
    wait_for("a clone serves on each node", Duration::from_secs(30), || {
        (1..=3).try_for_each(|n| yard.whole(n, &[1, 2, 3], 1).map(|_| ()))
    });
    let mut me = Shopper::new("survivor");
    me.add(yard.at(1).http, "honey").unwrap();
    wait_for("the cart is everywhere", Duration::from_secs(5), || (1..=3).try_for_each(|n| me.check(yard.at(n).http)));

    let token = yard.namespace_token("carts");

    // The founder is the one that is left; the leader may be any.
    yard.kill(2);
    yard.kill(3);
    wait_for("the survivor knows", Duration::from_secs(5), || {
        let view = yard.status(1)?;
        let dead = view["nodes"].as_array().into_iter().flatten().filter(|n| n["state"] == "dead").count();
        if dead == 2 && view["root"]["leader"].is_null() {
            Ok(())
        } else {
            Err(format!("{} {}", view["nodes"], view["root"]))
        }
    });
    // The clone on the survivor serves on. Of sessions only one of three bricks is left: that is too few to be sure
    // that an answer is not stale, so operations are refused in time, and nothing is called absent.
    for _ in 0..20 {
        assert_eq!(http::get(yard.at(1).http, "/health").unwrap().status, 200);
    }
    let mut sessions = Resp::open(yard.at(1).resp, "carts", &token).unwrap();
    for words in [vec!["GET", me.sid.as_str()], vec!["SET", "k", "v"]] {
        let asked = Instant::now();
        let answer = sessions.ask(&words).unwrap();
        assert!(
            matches!(&answer, Word::Error(e) if e.starts_with("BUSY") && e.contains("retry")),
            "{words:?}: {answer:?}"
        );
        assert!(asked.elapsed() < Duration::from_secs(2), "{words:?} took {:?}", asked.elapsed());
    }
    let begun = Instant::now();
    let error = yard.apply(1, "more.toml", "[namespace.more]\nclass = \"session\"\n").wrong();
    assert!(begun.elapsed() < Duration::from_secs(15), "it took {:?}", begun.elapsed());
    e2e::say(&format!("without a majority apply said after {} ms: {}", begun.elapsed().as_millis(), error.trim()));
    assert!(["leader", "majority", "unknown"].iter().any(|w| error.contains(w)), "{error}");
    assert!(yard.coppice(1, &["export"]).good().contains("carts"), "what is declared can still be read");
    assert!(yard.coppice(1, &["status"]).good().contains("changes wait"));

    yard.run(2);
    wait_for("with two of three the cart is there again", Duration::from_secs(20), || me.check(yard.at(1).http));
    me.add(yard.at(2).http, "bread").unwrap();
    wait_for("with two of three changes are possible again", Duration::from_secs(20), || {
        let said = yard.apply(2, "more.toml", "[namespace.more]\nclass = \"session\"\n");
        if said.is_good() { Ok(()) } else { Err(said.err) }
    });
    yard.run(3);
    wait_for("all is well again", Duration::from_secs(30), || {
        (1..=3).try_for_each(|n| yard.whole(n, &[1, 2, 3], 1).map(|_| ()))
    });
    me.check(yard.at(3).http).unwrap();
}

#[test]
fn nodes_killed_at_one_moment_and_started_by_hand_agree_again() {
    let _turn = e2e::beside();
    let mut yard = Yard::cluster(3);
    yard.apply(3, "ns.toml", "[namespace.boxes]\nclass = \"session\"\n").good();
    let before = yard.coppice(2, &["export"]).good();
    yard.kill_everything();
    for node in [3, 2, 1] {
        yard.begin(node, &[]);
    }
    wait_for("the cluster is whole", Duration::from_secs(20), || {
        (1..=3).try_for_each(|n| {
            let view = yard.whole(n, &[1, 2, 3], 0)?;
            if view["root"]["leader"].is_null() { Err("no leader".to_owned()) } else { Ok(()) }
        })
    });
    assert_eq!(yard.coppice(3, &["export"]).good(), before);
}

#[test]
fn a_founder_killed_before_its_first_write_founds_when_it_is_started_again() {
    let _turn = e2e::beside();
    let mut yard = Yard::new();
    yard.found("home");
    yard.kill(1);
    // What is left if the kill comes between the making of the log and the first write: an empty log.
    std::fs::remove_dir_all(yard.node_dir(1).join("log")).unwrap();
    yard.run(1);
    yard.apply(1, "ns.toml", "[namespace.boxes]\nclass = \"session\"\n").good();
    let token = yard.token("10m");
    yard.join(2, &token).good();
}

#[test]
fn a_namespace_is_there_on_every_node_as_soon_as_apply_has_said_so() {
    let up = BARE.take();
    up.apply("boxes.toml", FILE).good();
    let token = up.token("boxes");
    wait_for("each node opens it", Duration::from_secs(2), || {
        (1..=3).try_for_each(|n| match Resp::open(up.at(n).resp, "boxes", &token)?.ask(&["SET", "k", "v"])? {
            Word::Simple(_) => Ok(()),
            other => Err(format!("n{n}: {other:?}")),
        })
    });
    clear(&up);
}

fn version(up: &Up) -> u64 {
    up.status(1).unwrap()["root"]["version"].as_u64().unwrap()
}

fn clear(up: &Up) {
    up.apply("boxes.toml", "").good();
}
