//! A cluster by `coppice up --json` on free ports in a folder of its own. When it is dropped everything that it started
//! is ended; when a test fails, the last lines of its nodes' logs are printed first.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::at::{At, Ports, new_folder};
use crate::minder::Minder;
use crate::procs::{self, Proc, Signal};
use crate::program::coppice;
use crate::resp::{Resp, Word};
use crate::tools::{self, Said};
use crate::wait::{poll, wait_for};
use crate::{http, say};

/// With a debug binary on two cores beside a compiler.
const READY_WITHIN: Duration = Duration::from_secs(40);
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// What one node knows of the declaration all others know, if none is cut off.
const SPREADS_WITHIN: Duration = Duration::from_secs(5);
const LOG_LINES_SHOWN: usize = 40;

pub struct Up {
    pub dir: PathBuf,
    pub ports: Ports,
    pub nodes: u8,
    /// The event.
    pub ready: Value,
    /// From the start of the program to `ready`, as seen from outside.
    pub took: Duration,
    child: Child,
    events: mpsc::Receiver<Value>,
    errors: mpsc::Receiver<String>,
    minder: Option<Minder>,
    options: Vec<String>,
    keeps_dir: bool,
}

impl Up {
    pub fn shop() -> Up {
        Up::start(3, &[])
    }

    pub fn bare(nodes: u8) -> Up {
        Up::start(nodes, &["--no-demo"])
    }

    pub fn start(nodes: u8, options: &[&str]) -> Up {
        let mut up = Up::begin(nodes, options);
        up.ready = up.event("ready", READY_WITHIN);
        up.took = up.took_since_start();
        up
    }

    /// Starts it and waits for nothing.
    pub fn begin(nodes: u8, options: &[&str]) -> Up {
        let options = options.iter().map(|o| (*o).to_owned()).collect();
        Up::begin_in(new_folder(), Ports::free(nodes), nodes, options)
    }

    pub fn begin_in(dir: PathBuf, ports: Ports, nodes: u8, options: Vec<String>) -> Up {
        Up::begin_of(coppice(), dir, ports, nodes, options)
    }

    /// [`start`](Self::start), with this in the environment.
    pub fn start_with(nodes: u8, options: &[&str], environment: &[(&str, &str)]) -> Up {
        let options = options.iter().map(|o| (*o).to_owned()).collect();
        let mut up =
            Up::begin_with(Command::new(coppice()), new_folder(), Ports::free(nodes), nodes, options, environment);
        up.ready = up.event("ready", READY_WITHIN);
        up.took = up.took_since_start();
        up
    }

    /// [`begin_in`](Self::begin_in), of a program that lies elsewhere.
    pub fn begin_of(program: &Path, dir: PathBuf, ports: Ports, nodes: u8, options: Vec<String>) -> Up {
        Up::begin_with(Command::new(program), dir, ports, nodes, options, &[])
    }

    /// [`bare`](Self::bare), started as by a shell that lets a program have so many open files, and raise that.
    pub fn bare_with_files(nodes: u8, files: u64) -> Up {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -Sn {files} && exec \"$0\" \"$@\"")]).arg(coppice());
        let mut up =
            Up::begin_with(command, new_folder(), Ports::free(nodes), nodes, vec!["--no-demo".to_owned()], &[]);
        up.ready = up.event("ready", READY_WITHIN);
        up.took = up.took_since_start();
        up
    }

    /// Begins a cluster with this in the environment, and waits for nothing.
    pub fn begin_with(
        mut command: Command,
        dir: PathBuf,
        ports: Ports,
        nodes: u8,
        options: Vec<String>,
        environment: &[(&str, &str)],
    ) -> Up {
        command
            .args(["up", "--json", "--nodes", &nodes.to_string()])
            .args(ports.options())
            .args(&options)
            .arg("--dir")
            .arg(&dir);
        // Marks all that it starts, whatever they do to their command line.
        command.env("COPPICE_E2E", &dir).env_remove("COPPICE_DIR");
        let mut child = command
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let minder = Some(Minder::of(child.id(), &dir));
        let (tell, events) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line)
                    .unwrap_or_else(|e| serde_json::json!({"event": "not JSON", "line": line, "why": e.to_string()}));
                if tell.send(event).is_err() {
                    return;
                }
            }
        });
        let (complain, errors) = mpsc::channel();
        let mut err = child.stderr.take().expect("piped");
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            let _ = complain.send(text);
        });
        Up {
            dir,
            ports,
            nodes,
            ready: Value::Null,
            took: Duration::ZERO,
            child,
            events,
            errors,
            minder,
            options,
            keeps_dir: false,
        }
    }

    fn took_since_start(&self) -> Duration {
        // The kernel's word for when the program began; good to a hundredth of a second.
        procs::age(self.pid())
    }

    /// The process of `up` itself.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn at(&self, node: u8) -> At {
        self.ports.on(node)
    }

    /// The next event of this kind; those before it are passed over.
    #[track_caller]
    pub fn event(&mut self, kind: &str, within: Duration) -> Value {
        let end = Instant::now() + within;
        let mut passed = Vec::new();
        loop {
            match self.events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(event) if event["event"] == kind => return event,
                Ok(event) => passed.push(event),
                Err(_) => panic!("`up` did not say {kind:?} within {within:?}, only {passed:?} {}", self.complaint()),
            }
        }
    }

    fn complaint(&mut self) -> String {
        match self.child.try_wait() {
            Ok(Some(status)) => {
                format!("and ended ({status}): {}", self.errors.recv_timeout(ENDS_WITHIN).unwrap_or_default())
            }
            Ok(None) | Err(_) => String::new(),
        }
    }

    /// What a node says of the cluster, to its operator.
    pub fn status(&self, node: u8) -> Result<Value, String> {
        let at = self.at(node);
        let bearer = format!("Bearer {}", self.admin_token());
        let asked = http::request(at.api, "GET", "/v1/status", &[("Authorization", &bearer)], b"");
        asked.map_err(|e| format!("status of {}: {e}", at.name))?.json()
    }

    /// The process of a node, as `up` last started it. One that has just been started has no command line for a moment.
    #[track_caller]
    pub fn node_pid(&self, node: u8) -> u32 {
        let now = || self.node_pid_now(node).ok_or_else(|| format!("no process of n{node}"));
        wait_for(&format!("n{node} has a process"), Duration::from_secs(2), now).0
    }

    /// The same, if there is one at this moment.
    pub fn node_pid_now(&self, node: u8) -> Option<u32> {
        let mark = self.dir.join(format!("n{node}")).display().to_string();
        let run = |p: &Proc| p.command.contains(&format!("run --dir {mark} "));
        procs::family(self.pid()).iter().find(|p| run(p)).map(|p| p.pid)
    }

    /// Until every node sees all nodes live with their present processes, and every wanted clone serving, each node at
    /// least `clones_each` of them.
    #[track_caller]
    pub fn settle(&self, within: Duration, clones_each: usize) -> Duration {
        wait_for("all nodes and clones are well", within, || {
            // One may just be about to be started again.
            let pid = |n| self.node_pid_now(n).ok_or_else(|| format!("no process of n{n}"));
            let pids = (1..=self.nodes).map(|n| Ok((format!("n{n}"), pid(n)?))).collect::<Result<Vec<_>, String>>()?;
            for node in 1..=self.nodes {
                let view = self.status(node)?;
                whole(&view, &pids, clones_each).map_err(|why| format!("n{node} says {why}"))?;
            }
            Ok(())
        })
        .1
    }

    /// The command line, told where this cluster is.
    pub fn coppice(&self, args: &[&str]) -> Said {
        let mut command = Command::new(coppice());
        command.args(args).args(["--api", &self.at(1).api.to_string(), "--dir"]).arg(&self.dir).current_dir(&self.dir);
        tools::run(&mut command, Duration::from_secs(30))
    }

    /// Writes a declaration into the cluster's folder and applies it, whatever that removes.
    pub fn apply(&self, file: &str, text: &str) -> Said {
        let path = self.write(file, text);
        let said = self.coppice(&["apply", "--remove-namespaces", "-f", &path.display().to_string()]);
        self.spread();
        said
    }

    /// What one node has told us the others hear a moment later. Those that do not answer are not waited for.
    fn spread(&self) {
        let version = |node| self.status(node).ok()?["root"]["version"].as_u64();
        let Some(first) = version(1) else { return };
        for node in 2..=self.nodes {
            let _ = poll(SPREADS_WITHIN, || match version(node) {
                Some(behind) if behind < first => Err(format!("n{node} is at {behind}")),
                Some(_) | None => Ok(()),
            });
        }
    }

    pub fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.dir.join(file);
        std::fs::write(&path, text).expect("its folder is writable");
        path
    }

    /// A Redis connection through node `n` to a `linear` namespace, once that has a leader.
    #[track_caller]
    pub fn linear(&self, n: u8, namespace: &str, token: &str) -> Resp {
        let open = || {
            let mut resp = Resp::open(self.at(n).resp, namespace, token)?;
            match resp.ask(&["DBSIZE"])? {
                Word::Int(_) => Ok(resp),
                other => Err(format!("{other:?}")),
            }
        };
        // With a debug binary beside a compiler.
        wait_for(&format!("{namespace} is open"), Duration::from_secs(60), open).0
    }

    /// The token of a namespace, which is the password of its user.
    #[track_caller]
    pub fn token(&self, namespace: &str) -> String {
        namespace_token(self.at(1).api, &self.dir.join("n1"), namespace)
    }

    /// The operator's token.
    pub fn admin_token(&self) -> String {
        let path = self.dir.join("n1").join("admin.token");
        std::fs::read_to_string(path).expect("the founder has the operator's token").trim().to_owned()
    }

    /// Everything that runs because of it.
    pub fn everything(&self) -> Vec<Proc> {
        let mut all = procs::family(self.pid());
        all.extend(procs::marked(&self.dir.display().to_string()));
        all.sort();
        all.dedup();
        all
    }

    /// Waits for its end.
    #[track_caller]
    pub fn ended(&mut self, within: Duration) -> ExitStatus {
        wait_for("`up` ends", within, || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err("it runs".into()),
            Err(e) => Err(e.to_string()),
        })
        .0
    }

    /// What it wrote to standard error; only after its end.
    pub fn errors(&self) -> String {
        self.errors.recv_timeout(ENDS_WITHIN).unwrap_or_default()
    }

    /// Its folder is another one's too: leaves that alone, with all that runs there.
    pub fn forget_folder(mut self) {
        self.keeps_dir = true;
    }

    /// Kills it with everything, at once, and starts it again in its folder.
    pub fn kill_all_and_start(self) -> Up {
        self.kill_all_change_and_start(|_| ())
    }

    /// The same, with something done to its folder in between.
    pub fn kill_all_change_and_start(mut self, change: impl FnOnce(&Path)) -> Up {
        let all = self.everything();
        for one in &all {
            procs::kill(one.pid, Signal::KILL);
        }
        self.ended(ENDS_WITHIN);
        wait_for("all of it is dead", ENDS_WITHIN, || none_alive(&all));
        self.keeps_dir = true;
        let (dir, ports, nodes, options) = (self.dir.clone(), self.ports, self.nodes, self.options.clone());
        drop(self);
        change(&dir);
        let mut up = Up::begin_in(dir, ports, nodes, options);
        up.ready = up.event("ready", READY_WITHIN);
        up.took = up.took_since_start();
        up
    }
}

/// Asks a node for it, with the operator's token in this folder.
#[track_caller]
pub fn namespace_token(api: SocketAddr, dir: &Path, namespace: &str) -> String {
    let admin = std::fs::read_to_string(dir.join("admin.token")).expect("the founder has the operator's token");
    let bearer = format!("Bearer {}", admin.trim());
    let path = format!("/v1/ns/{namespace}/token");
    let reply = http::request(api, "GET", &path, &[("Authorization", &bearer)], b"").expect("the node answers");
    let json = reply.json().unwrap_or_else(|e| panic!("GET {path}: {e}"));
    json["token"].as_str().map(str::to_owned).unwrap_or_else(|| panic!("no token in {json}"))
}

/// Ok if none of them lives.
pub fn none_alive(procs: &[Proc]) -> Result<(), String> {
    let alive = procs::alive(procs);
    if alive.is_empty() { Ok(()) } else { Err(format!("alive: {alive:?}")) }
}

/// Whether a view shows these nodes live with these processes, and every service with all its clones serving.
pub fn whole(view: &Value, pids: &[(String, u32)], clones_each: usize) -> Result<(), String> {
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let nodes = list(&view["nodes"]);
    for (name, pid) in pids {
        let found = nodes.iter().find(|n| n["name"] == name.as_str() && n["pid"] == *pid);
        if !found.is_some_and(|n| n["state"] == "live") {
            return Err(format!("{name} with process {pid} is not live: {}", view["nodes"]));
        }
    }
    // A view may be a moment old: a clone that serves has a process.
    let serves =
        |c: &Value| c["state"] == "serving" && c["pid"].as_u64().is_some_and(|pid| Proc::of(pid as u32).is_some());
    let clones = clones(view);
    let serving: Vec<&Value> = clones.iter().filter(|c| serves(c)).collect();
    for service in list(&view["services"]) {
        // One too many, as after a node came back, is about to be stopped.
        let of = list(&service["clones"]);
        let serve = of.iter().filter(|c| serves(c)).count();
        if serve != of.len() || Some(serve as u64) != service["wanted"].as_u64() {
            return Err(format!("{serve} clones of {} serve, {} wanted: {of:?}", service["name"], service["wanted"]));
        }
    }
    for (name, _) in pids {
        if serving.iter().filter(|c| c["node"] == name.as_str()).count() < clones_each {
            return Err(format!("{name} has fewer than {clones_each} serving clones: {}", view["services"]));
        }
    }
    Ok(())
}

/// The clones of all services, as a view shows them.
pub fn clones(view: &Value) -> Vec<Value> {
    let all = |of: &Value| of.as_array().cloned().unwrap_or_default();
    all(&view["services"]).iter().flat_map(|service| all(&service["clones"])).collect()
}

/// The last lines of every node's log below a folder.
pub fn show_logs(dir: &Path) {
    let mut logs: Vec<PathBuf> =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path().join("node.log")).collect();
    logs.sort();
    for log in logs {
        let Ok(text) = std::fs::read_to_string(&log) else { continue };
        say(&format!("--- {}", log.display()));
        let lines: Vec<&str> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..] {
            say(&format!("  | {line}"));
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_logs(&self.dir);
        }
        let all = if self.keeps_dir { procs::family(self.pid()) } else { self.everything() };
        procs::kill(self.pid(), Signal::TERM);
        let ended = poll(ENDS_WITHIN, || match self.child.try_wait() {
            Ok(None) => Err(String::new()),
            Ok(Some(_)) | Err(_) => Ok(()),
        });
        if ended.is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        drop(self.minder.take());
        // Whatever it left is a fault that other tests look for; here it only must not stay.
        for left in all.iter().filter(|p| p.is_alive()) {
            procs::kill(left.pid, Signal::KILL);
        }
        if !self.keeps_dir {
            for left in procs::marked(&self.dir.display().to_string()) {
                procs::kill(left.pid, Signal::KILL);
            }
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}
