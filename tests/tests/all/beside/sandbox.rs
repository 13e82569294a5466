//! Programs that try to reach what is their node's, or another clone's: each way is shut, and open where the service declares it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::{Up, http, skip, wait_for};

/// Deploys the prober as a service of this name.
fn deploy(up: &Up, name: &str, more: &str) {
    let dir = up.dir.join(format!("{name}-folder"));
    fs::create_dir_all(&dir).unwrap();
    let own = format!(
        "[service.{name}]\nrun = [\"python3\", \"reach.py\"]\nclones = 1\nhealth = \"/health\"\nhttp = {{ path = \"/{name}\" }}\n{more}"
    );
    fs::write(dir.join("coppice.toml"), own).unwrap();
    fs::copy(e2e::program::service_program("reach.py"), dir.join("reach.py")).unwrap();
    up.coppice(&["deploy", &dir.display().to_string()]).good();
}

/// What the service's program says to that, and whether it could.
fn tries(up: &Up, name: &str, way: &str, what: &str) -> (u16, String) {
    let reply = http::request(up.at(1).http, "POST", &format!("/{name}/{way}"), &[], what.as_bytes()).unwrap();
    (reply.status, reply.text())
}

struct Own {
    scratch: PathBuf,
    code: PathBuf,
    pid: u32,
}

fn own(up: &Up, name: &str) -> Own {
    let (status, text) = tries(up, name, "own", "");
    assert_eq!(status, 200, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    Own { scratch: lines[0].into(), code: lines[1].into(), pid: lines[2].parse().unwrap() }
}

fn figure(up: &Up, name: &str) -> u64 {
    let text = http::get(up.at(1).api, "/metrics").unwrap().text();
    let line = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
    let line = line.unwrap_or_else(|| panic!("no figure in {text}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

fn first_in(dir: &Path) -> String {
    fs::read_dir(dir).unwrap().flatten().next().unwrap().path().display().to_string()
}

#[test]
fn a_clone_reaches_its_own_and_nothing_of_its_node_or_of_others_unless_that_is_declared() {
    let _turn = e2e::beside();
    let up = Up::bare(1);
    let node = up.dir.join("n1");
    let given = up.dir.join("given");
    fs::create_dir_all(&given).unwrap();
    let write = format!("sandbox = {{ write = [{:?}] }}\n", given.display().to_string());
    deploy(&up, "shut", &write);
    deploy(&up, "open", "sandbox = \"none\"\n");
    up.settle(Duration::from_secs(30), 1);
    assert!(up.coppice(&["export"]).good().contains("sandbox = \"none\""));
    let has = figure(&up, "coppice_kernel_landlock");
    let page = up.coppice(&["status"]).good();
    assert_eq!(page.contains("clones on n1 can"), has < 6, "{page}");
    if has < 3 {
        return skip("the kernel has no Landlock, or an old one");
    }
    let (shut, open) = (own(&up, "shut"), own(&up, "open"));
    assert_eq!(tries(&up, "open", "write", &open.scratch.join("mine").display().to_string()).0, 200);
    let of = |path: &Path| path.display().to_string();
    let in_node = |name: &str| of(&node.join(name));
    let new = of(&up.dir.join("new"));
    let mut ways = vec![
        ("the node's key", "read", in_node("node.key")),
        ("the operator's token", "read", in_node("admin.token")),
        ("the log, which has the authority's key", "read", first_in(&node.join("log"))),
        ("its names", "list", in_node("log")),
        ("output of others", "read", first_in(&node.join("logs"))),
        ("code of others", "read", of(&open.code.join("reach.py"))),
        ("files of others", "read", of(&open.scratch.join("mine"))),
        ("a new file for others", "write", of(&open.scratch.join("theirs"))),
        ("the node's folder", "write", in_node("planted")),
        ("the key by a path out of its code", "read", of(&shut.code.join("../../node.key"))),
        ("its own code", "write", of(&shut.code.join("reach.py"))),
        ("beside its own code", "write", of(&shut.code.join("planted.py"))),
        ("a folder of the machine", "write", new.clone()),
    ];
    if has >= 6 {
        ways.push(("a signal to the node", "signal", up.node_pid(1).to_string()));
        ways.push(("a signal to another clone", "signal", open.pid.to_string()));
    }
    for (what, way, path) in &ways {
        let (status, text) = tries(&up, "shut", way, path);
        assert_eq!(status, 403, "{what}: {way} {path}: {text}");
    }
    // The same from a clone that is not shut in: each of these is there, and all that shuts it is the sandbox.
    for (what, way, path) in &ways {
        let (status, text) = tries(&up, "open", way, path);
        assert_eq!(status, 200, "{what}: {way} {path}: {text}");
    }
    fs::remove_file(new).unwrap();
    // What the node closes by itself to all that are not root.
    for name in ["environ", "maps", "mem"] {
        for pid in [up.node_pid(1), open.pid] {
            let path = format!("/proc/{pid}/{name}");
            let (status, text) = tries(&up, "shut", "read", &path);
            assert_eq!(status, 403, "{path}: {text}");
        }
    }
    let environ = tries(&up, "open", "read", &format!("/proc/{}/environ", shut.pid));
    assert!(environ.1.contains("COPPICE_SERVICE=shut"), "it is there: {environ:?}");

    let fine = [
        ("read", of(&shut.code.join("coppice.toml"))),
        ("list", of(&shut.code)),
        ("write", of(&shut.scratch.join("mine"))),
        ("read", of(&shut.scratch.join("mine"))),
        ("write", of(&given.join("kept"))),
        ("read", "/etc/passwd".into()),
        ("read", "/proc/self/environ".into()),
        ("write", "/dev/null".into()),
        ("run", "ls".into()),
        ("signal", shut.pid.to_string()),
    ];
    for (way, path) in fine {
        let (status, text) = tries(&up, "shut", way, &path);
        assert_eq!(status, 200, "{way} {path}: {text}");
    }
    // Of the environment of whoever started the node: the tests have `CARGO_MANIFEST_DIR`, cargo sets it.
    let names = tries(&up, "shut", "environment", "").1;
    assert!(names.split(' ').any(|name| name == "PATH") && !names.contains("CARGO"), "{names}");
    limits_and_another_user(&up, &in_node("node.key"));
    up.apply("none.toml", "").good();
    let remove =
        |name: &str| up.apply(&format!("{name}.toml"), &format!("[service.{name}]\nrun = [\"true\"]\nclones = 0\n"));
    for name in ["shut", "open", "low"] {
        remove(name);
    }
    wait_for("temporary files end with their clones", Duration::from_secs(30), || {
        let left: Vec<PathBuf> =
            fs::read_dir(node.join("scratch")).unwrap().flatten().map(|found| found.path()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    assert!(given.join("kept").exists());
}

/// A service that takes no more than it is given, and runs as somebody else where the tests are root's.
fn limits_and_another_user(up: &Up, key: &str) {
    let is_root = tries(up, "open", "who", "").1.starts_with("0 ");
    let user = if is_root { "user = \"nobody\"\n" } else { "" };
    deploy(up, "low", &format!("limits = {{ memory = \"256MiB\", files = 40 }}\n{user}"));
    up.settle(Duration::from_secs(30), 1);
    let (status, text) = tries(up, "low", "files", "60");
    assert!(status == 400 && text.contains("Too many open files"), "{status} {text}");
    assert_eq!(tries(up, "shut", "files", "60").0, 200);
    let page = up.coppice(&["status"]).good();
    assert_eq!(page.contains("their `limits`"), figure(up, "coppice_kernel_groups") == 0, "{page}");
    if !is_root {
        return skip("another user than the node's, as this is not root");
    }
    assert!(tries(up, "low", "who", "").1.ends_with(" nobody"));
    let own = own(up, "low");
    for (way, path) in [
        ("read", own.code.join("reach.py").display().to_string()),
        ("write", own.scratch.join("mine").display().to_string()),
        ("read", own.scratch.join("mine").display().to_string()),
    ] {
        let (status, text) = tries(up, "low", way, &path);
        assert_eq!(status, 200, "{way} {path}: {text}");
    }
    assert_eq!(tries(up, "low", "read", key).0, 403);
}
