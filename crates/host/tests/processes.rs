//! Real children of a real host. This file is its own `keep` and `reap` program, and its own node to be killed, so it has
//! a `main` instead of the usual test harness: without a first argument it runs the stories, each named by a sentence.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base::process::{Limits, Open, Probe};
use base::{Effect, Event, Exit, ProcId, ProcSpec, Signal, Span};
use common::{Act, Node, PATIENCE, TempDir, cluster, config, listener, run, temp_dir};

fn main() {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|arg| arg.to_str()) {
        Some("keep") => host::keep_main(args),
        Some("reap") => host::reap_main(args),
        Some("node") => node_to_be_killed(),
        Some("open") => return show_what_a_child_has(),
        // What the usual harness is asked by tools.
        Some("--list") => return,
        _ => (),
    }
    let stories: [(&str, fn()); 12] = [
        ("a_child_gets_its_environment_and_its_output_and_exit_are_told", a_child_is_told_of),
        ("a_child_gets_nothing_of_its_node_but_what_is_meant_for_it", a_child_has_a_skin),
        ("a_child_that_cannot_start_says_why", a_child_that_cannot_start_says_why),
        ("a_child_takes_no_more_than_its_limits", a_child_takes_no_more_than_its_limits),
        ("a_child_runs_as_the_user_that_is_declared_and_reaches_what_is_its_own", a_child_runs_as_another_user),
        ("a_signal_reaches_the_whole_group", a_signal_reaches_the_whole_group),
        ("what_a_child_leaves_behind_ends_with_it", what_a_child_leaves_behind_ends_with_it),
        ("a_child_has_a_folder_for_temporary_files_that_ends_with_it", a_child_has_a_folder_that_ends_with_it),
        ("a_child_of_a_node_whose_folder_is_named_from_here_reads_its_code_alone", a_child_reads_its_code_alone),
        ("a_serving_child_is_found_healthy", a_serving_child_is_found_healthy),
        ("children_and_their_children_die_with_a_killed_node", children_die_with_a_killed_node),
        ("a_child_that_prints_without_end_is_held_back_in_the_machine_and_on_disk", a_flood_is_held_back),
    ];
    for (name, story) in stories {
        println!("story {name} ...");
        story();
    }
    println!("all {} stories ok", stories.len());
}

const CHILD: ProcId = ProcId(1);

fn node(dir: &TempDir) -> (tokio::runtime::Runtime, Node) {
    let io = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (ids, _) = cluster(&["a"]);
    let node = run(config(&ids[0], dir, listener("127.0.0.1"), io.handle()));
    (io, node)
}

fn shell(script: &str) -> Act {
    let run = vec!["sh".into(), "-c".into(), script.into()];
    // Another one in each life, as clones have it: what is left of the one before is ended by it.
    static LIVES: AtomicU32 = AtomicU32::new(0);
    let member = format!("n1.1.{}", LIVES.fetch_add(1, Ordering::Relaxed));
    let at = ("AT", "at ${HOST}:$PORT $HOME $$PORT $COPPICE_MEMBER");
    let env = [("GREETING", "hello"), at, ("COPPICE_MEMBER", &member)];
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Effect::Spawn {
        proc: CHILD,
        spec: ProcSpec {
            name: "shop/2".into(),
            version: 3,
            run,
            code: None,
            dir: None,
            env,
            sandbox: Some(Open::default()),
            limits: Default::default(),
            user: None,
            given: Default::default(),
        },
    }
}

fn wait_line(node: &Node, wanted: impl Fn(&str) -> bool) -> String {
    node.wait("line", |event| match event {
        Event::Output { line, .. } if wanted(&line) => Some(line),
        _ => None,
    })
}

fn wait_exit(node: &Node) -> Exit {
    node.wait("exit", |event| match event {
        Event::Exited { proc: CHILD, exit } => Some(exit),
        _ => None,
    })
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn wait_dead(pid: u32) {
    let end = Instant::now() + PATIENCE;
    while is_alive(pid) {
        assert!(Instant::now() < end, "process {pid} lives on");
        std::thread::yield_now();
    }
}

fn a_child_is_told_of() {
    let dir = temp_dir("proc");
    let (_io, node) = node(&dir);
    node.act(vec![shell("echo $GREETING $HOST $PORT; echo \"$AT\"; echo second >&2; printf unfinished; exit 7")]);
    let port = node.wait("spawn", |event| match event {
        Event::Spawned { proc: CHILD, pid, port } if pid > 0 => Some(port),
        _ => None,
    });
    let mut lines = Vec::new();
    let exit = node.wait("exit", |event| match event {
        Event::Output { line, .. } => {
            lines.push(line);
            None
        }
        Event::Exited { exit, .. } => Some(exit),
        _ => None,
    });
    lines.sort();
    let at = format!("at 127.0.0.1:{port} $HOME $PORT $COPPICE_MEMBER");
    assert_eq!(lines, [at, format!("hello 127.0.0.1 {port}"), "second".into(), "unfinished".into()]);
    assert_eq!(exit, Exit::Code(7));
    let log = dir.0.join("logs/shop-2.log");
    let end = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(&log).is_ok_and(|text| text.contains("unfinished\n")) {
        assert!(Instant::now() < end, "the log file lacks a line");
        std::thread::yield_now();
    }
}

/// Runs as a process of its own, whose shell has left variables and a descriptor behind; prints what a child has of them.
fn show_what_a_child_has() {
    host::close_self().unwrap();
    let closed = rustix::process::dumpable_behavior().unwrap() == rustix::process::DumpableBehavior::NotDumpable;
    println!("node closed {closed}");
    let dir = temp_dir("open");
    let (_io, node) = node(&dir);
    node.act(vec![shell(
        "env | sed 's/=.*//; s/^/variable /'; for n in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$n ] && echo descriptor $n; done; grep NoNewPrivs /proc/self/status; \
         echo core $(ulimit -H -c); echo $LC_OWN $GREETING; echo end",
    )]);
    loop {
        let line = wait_line(&node, |_| true);
        println!("{line}");
        if line == "end" {
            return;
        }
    }
}

fn a_child_has_a_skin() {
    let open = "exec 7</dev/null; exec \"$0\" open";
    let mut node = Command::new("sh");
    node.args(["-c", open]).arg(std::env::current_exe().unwrap());
    let out = node.env("SECRET_OF_THE_SHELL", "x").env("LC_OWN", "passed").output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let all = |kind: &str| text.lines().filter_map(|line| line.strip_prefix(kind)).collect::<Vec<_>>();
    assert_eq!(all("descriptor "), ["0", "1", "2"], "{text}");
    let variables = all("variable ");
    assert!(!variables.iter().any(|name| name.starts_with("SECRET") || name.starts_with("CARGO")), "{variables:?}");
    assert!(["PATH", "PORT", "LC_OWN", "GREETING"].iter().all(|name| variables.contains(name)), "{variables:?}");
    for line in ["node closed true", "NoNewPrivs:\t1", "core 0", "passed hello"] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in {text}");
    }
}

fn a_child_that_cannot_start_says_why() {
    let dir = temp_dir("proc");
    let (_io, node) = node(&dir);
    let cases = [
        (vec!["no-such-program".to_string()], None, "no-such-program"),
        (vec!["true".to_string()], Some("no-such-folder".to_string()), "no-such-folder"),
        (vec![], None, "no program"),
    ];
    for (run, folder, why) in cases {
        let spec = ProcSpec {
            name: "x/0".into(),
            version: 3,
            run,
            code: None,
            dir: folder,
            env: BTreeMap::new(),
            sandbox: Some(Open::default()),
            limits: Default::default(),
            user: None,
            given: Default::default(),
        };
        node.act(vec![Effect::Spawn { proc: CHILD, spec }]);
        let exit = wait_exit(&node);
        assert!(matches!(&exit, Exit::NotStarted(text) if text.contains(why)), "{exit:?}");
    }
}

/// As root's node or as another: what is given to a child besides.
fn start_with(node: &Node, limits: Limits, user: Option<&str>, script: &str) {
    let Effect::Spawn { proc, spec } = shell(script) else { unreachable!("it spawns") };
    let user = user.map(str::to_owned);
    node.act(vec![Effect::Spawn { proc, spec: ProcSpec { limits: limits.into(), user, ..spec } }]);
}

fn a_child_takes_no_more_than_its_limits() {
    let dir = temp_dir("limits");
    let (_io, node) = node(&dir);
    // More files than it may, then 200 MiB.
    let hungry = "
try: print('files', len([open('/dev/null') for _ in range(64)]))
except OSError as e: print('files refused', e.errno)
try: print('memory', len(bytearray(200 << 20)))
except MemoryError: print('memory refused')";
    let script = format!("exec python3 -u -c \"{hungry}\"");
    let said = |limits: Limits| {
        start_with(&node, limits, None, &script);
        let line = || {
            node.wait("a line, or the end", |event| match event {
                Event::Output { line, .. } => Some(Some(line)),
                Event::Exited { .. } => Some(None),
                _ => None,
            })
        };
        std::iter::from_fn(line).collect::<Vec<_>>()
    };
    assert_eq!(said(Limits::default()), ["files 64", "memory 209715200"]);
    // In a control group all of it is killed; process by process what is too much is not given.
    let held = said(Limits { memory: Some(48 << 20), pids: None, files: Some(32) });
    assert!(held == ["files refused 24", "memory refused"] || held == ["files refused 24"], "{held:?}");
}

/// Of a node of root alone; another one refuses, and says so.
fn a_child_runs_as_another_user() {
    let dir = temp_dir("user");
    let (_io, node) = node(&dir);
    if !rustix::process::geteuid().is_root() {
        start_with(&node, Limits::default(), Some("root"), "true");
        let exit = wait_exit(&node);
        return assert!(matches!(&exit, Exit::NotStarted(why) if why.contains("run it as root")), "{exit:?}");
    }
    let limits = Limits { pids: Some(20), ..Limits::default() };
    let forks = "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do sleep 30 & done; echo all of them";
    let script = format!(
        "id -u; id -G; echo $USER $HOME; grep -E 'CapEff|CapPrm' /proc/self/status; echo x > $TMPDIR/mine && cat $TMPDIR/mine; \
         cat {}/node.key 2>/dev/null || echo no key; ls /root >/dev/null 2>&1 || echo no home of root; {forks}",
        dir.0.display()
    );
    std::fs::write(dir.0.join("node.key"), "secret").unwrap();
    start_with(&node, limits, Some("nobody"), &script);
    let lines: Vec<String> = (0..8).map(|_| wait_line(&node, |_| true)).collect();
    assert_eq!((&*lines[0], lines[2].starts_with("nobody ")), ("65534", true), "{lines:?}");
    assert!(lines[1].split(' ').all(|group| group == "65534"), "no group of root: {lines:?}");
    assert_eq!(lines[3..5], ["CapPrm:\t0000000000000000", "CapEff:\t0000000000000000"], "{lines:?}");
    assert_eq!(lines[5..8], ["x", "no key", "no home of root"], "{lines:?}");
    let line = wait_line(&node, |line| line.contains("fork") || line == "all of them");
    assert!(line.contains("fork"), "25 processes where 20 are the most: {line}");
    node.act(vec![Effect::Signal { proc: CHILD, signal: Signal::Kill }]);
    wait_exit(&node);

    start_with(&node, Limits::default(), Some("no-such-user-here"), "true");
    let exit = wait_exit(&node);
    assert!(matches!(&exit, Exit::NotStarted(why) if why.contains("no user no-such-user-here")), "{exit:?}");
}

fn a_signal_reaches_the_whole_group() {
    let dir = temp_dir("proc");
    let (_io, node) = node(&dir);
    // The shell waits; its child must get the signal, too, or the line never comes.
    node.act(vec![shell("(trap 'echo child has it; exit 0' TERM; echo ready; while :; do sleep 0.05; done) & trap 'wait; exit 3' TERM; wait")]);
    wait_line(&node, |line| line == "ready");
    node.act(vec![Effect::Signal { proc: CHILD, signal: Signal::Term }]);
    wait_line(&node, |line| line == "child has it");
    assert_eq!(wait_exit(&node), Exit::Code(3));
    node.act(vec![shell("echo ready; sleep 1000")]);
    wait_line(&node, |line| line == "ready");
    node.act(vec![Effect::Signal { proc: CHILD, signal: Signal::Kill }]);
    assert_eq!(wait_exit(&node), Exit::Signal(9));
}

fn what_a_child_leaves_behind_ends_with_it() {
    let dir = temp_dir("proc");
    let (_io, node) = node(&dir);
    // One in its group, and one that has left for a session of its own, where nobody hears of it.
    let pids = "echo left $!";
    node.act(vec![shell(&format!("sleep 1000 & {pids}; setsid sleep 1000 >/dev/null 2>&1 & {pids}; exit 0"))]);
    let left = [(); 2].map(|()| wait_line(&node, |line| line.starts_with("left ")));
    assert_eq!(wait_exit(&node), Exit::Code(0));
    left.iter().for_each(|line| wait_dead(line["left ".len()..].parse().unwrap()));
}

fn a_child_has_a_folder_that_ends_with_it() {
    let dir = temp_dir("proc");
    let (_io, node) = node(&dir);
    node.act(vec![shell(
        "mkdir $TMPDIR/deep && echo x > $TMPDIR/deep/file && chmod 0 $TMPDIR/deep && echo made $TMPDIR; read x",
    )]);
    let line = wait_line(&node, |line| line.starts_with("made "));
    let made = std::path::Path::new(&line["made ".len()..]).to_owned();
    assert!(made.starts_with(dir.0.canonicalize().unwrap().join("scratch")), "{made:?}");
    assert_eq!(wait_exit(&node), Exit::Code(1));
    let end = Instant::now() + PATIENCE;
    while made.exists() {
        assert!(Instant::now() < end, "{made:?} is still there");
        std::thread::yield_now();
    }
}

/// The node's folder is given as `coppice up --dir d` gives it: the child's working folder is another one.
fn a_child_reads_its_code_alone() {
    let dir = temp_dir("relative");
    let here = std::env::current_dir().unwrap();
    let up: std::path::PathBuf = here.components().skip(1).map(|_| "..").collect();
    let from_here = up.join(dir.0.canonicalize().unwrap().strip_prefix("/").unwrap());
    for (path, text) in [("n1/node.key", "secret"), ("n1/code/abc/packages/one.py", "x"), ("beside", "x")] {
        std::fs::create_dir_all(dir.0.join(path).parent().unwrap()).unwrap();
        std::fs::write(dir.0.join(path), text).unwrap();
    }
    let io = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (ids, _) = cluster(&["a"]);
    let config = config(&ids[0], &dir, listener("127.0.0.1"), io.handle());
    let (node_dir, code_dir) = (from_here.join("n1"), from_here.join("n1/code"));
    let node = run(host::HostConfig { dir: node_dir, code_dir, ..config });
    let whole = dir.0.canonicalize().unwrap();
    let script = format!(
        "ls packages; cat {0}/beside && echo || echo shut; cat {0}/n1/node.key || echo closed",
        whole.display()
    );
    let Effect::Spawn { proc, mut spec } = shell(&script) else { unreachable!() };
    spec.code = Some("abc".into());
    // What lies around the node is open to it, and the node is not.
    spec.sandbox = Some(Open { read: vec![whole.display().to_string()], write: Vec::new() });
    node.act(vec![Effect::Spawn { proc, spec }]);
    let mut lines = Vec::new();
    while lines.len() < 3 {
        lines.push(wait_line(&node, |line| !line.contains("ermission denied")));
    }
    assert_eq!(lines, ["one.py", "x", "closed"]);
    wait_exit(&node);
}

fn a_serving_child_is_found_healthy() {
    let dir = temp_dir("proc");
    let (_io, node) = node(&dir);
    let run = ["python3", "-u", "-c", SERVER].map(String::from).to_vec();
    let spec = ProcSpec {
        name: "web/0".into(),
        version: 3,
        run,
        code: None,
        dir: None,
        env: BTreeMap::new(),
        sandbox: Some(Open::default()),
        limits: Default::default(),
        user: None,
        given: Default::default(),
    };
    node.act(vec![Effect::Spawn { proc: CHILD, spec }]);
    let port = node.wait("spawn", |event| match event {
        Event::Spawned { port, .. } => Some(port),
        _ => None,
    });
    wait_line(&node, |line| line == "serving");
    let probe = |path: Option<&str>| {
        let probe = Probe { path: path.map(String::from), ..Probe::of(port, Span::secs(10)) };
        node.act(vec![Effect::Probe { proc: CHILD, probe }]);
        node.wait("probe", |event| match event {
            Event::Probed { result, .. } => Some(result),
            _ => None,
        })
    };
    assert_eq!(probe(None), Ok(()));
    assert_eq!(probe(Some("/")), Ok(()));
    assert_eq!(probe(Some("/nowhere")).unwrap_err(), "GET /nowhere answered 404");
    node.act(vec![Effect::Signal { proc: CHILD, signal: Signal::Kill }]);
    wait_exit(&node);
    assert!(probe(None).is_err());
}

const SERVER: &str = r#"
import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/" else 404); self.end_headers()
s = http.server.HTTPServer((os.environ["HOST"], int(os.environ["PORT"])), H)
print("serving"); s.serve_forever()
"#;

/// Runs as a process of its own, prints who its children are, and waits for its end.
fn node_to_be_killed() -> ! {
    let dir = temp_dir("killed");
    let (_io, node) = node(&dir);
    // A grandchild in the group, and one that has left it for a session of its own.
    node.act(vec![shell("sleep 1000 & echo pid $!; setsid sleep 1000 & echo pid $!; echo pid $$; wait")]);
    for _ in 0..3 {
        println!("{}", wait_line(&node, |line| line.starts_with("pid ")));
    }
    // The temporary folder is the parent's to remove: we are killed.
    println!("dir {}", dir.0.display());
    loop {
        std::thread::park();
    }
}

fn children_die_with_a_killed_node() {
    let mut node = Command::new("/proc/self/exe").arg("node").stdout(Stdio::piped()).spawn().unwrap();
    let (mut pids, mut lines) = (Vec::new(), BufReader::new(node.stdout.take().unwrap()).lines());
    let folder = loop {
        let line = lines.next().unwrap().unwrap();
        match line.split_once(' ') {
            Some(("pid", pid)) => pids.push(pid.parse::<u32>().unwrap()),
            Some(("dir", dir)) => break dir.to_string(),
            _ => panic!("{line:?}"),
        }
    };
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|&pid| is_alive(pid)), "not all of {pids:?} live before the kill");
    let start = Instant::now();
    node.kill().unwrap();
    node.wait().unwrap();
    pids.iter().for_each(|&pid| wait_dead(pid));
    assert!(start.elapsed() < Duration::from_secs(5), "it took {:?}", start.elapsed());
    std::fs::remove_dir_all(folder).unwrap();
}

fn a_flood_is_held_back() {
    let dir = temp_dir("proc");
    let (_io, node) = node(&dir);
    node.act(vec![shell(
        "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; echo done >&2; exec sleep 1000",
    )]);
    let started = Instant::now();
    let mut lines = 0u64;
    node.wait("count of held lines", |event| match event {
        Event::Output { line, .. } => {
            lines += 1;
            line.ends_with("see the log)").then_some(())
        }
        _ => {
            // The count comes with the next line that passes.
            (started.elapsed() > Duration::from_secs(2)).then_some(())
        }
    });
    let most = (started.elapsed().as_secs() + 2) * 100;
    assert!(lines <= most, "{lines} lines in {:?}", started.elapsed());
    node.act(vec![Effect::Signal { proc: CHILD, signal: Signal::Kill }]);
    assert_eq!(wait_exit(&node), Exit::Signal(9));
}
