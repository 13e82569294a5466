//! A Coppice cluster for one experiment: `coppice up --json` on free ports in a folder of its own, gone at the end.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::load::Target;

pub struct Cluster {
    up: Child,
    dir: PathBuf,
    pub ready: Value,
    events: mpsc::Receiver<Value>,
}

/// Which node it runs on (the first one is 0), where it listens, and its process.
pub struct FirstClone {
    pub node: usize,
    pub addr: SocketAddr,
    pub pid: i32,
}

impl Cluster {
    pub fn start(nodes: u8, demo: bool) -> Result<Cluster, String> {
        Self::start_with(nodes, demo, &[], &[])
    }

    /// Nodes without the shop, with options of `coppice up`.
    pub fn with_options(nodes: u8, options: &[&str]) -> Result<Cluster, String> {
        Self::start_with(nodes, false, options, &[])
    }

    /// A cluster with a session namespace, and how its clients reach it through any node.
    pub fn with_sessions(nodes: u8, environment: &[(&str, &str)]) -> Result<(Cluster, Target), String> {
        let cluster = Self::start_with(nodes, false, &[], environment)?;
        cluster.apply("[namespace.lab]\nclass = \"session\"\nlease = \"10m\"\n")?;
        let auth = Some(("lab".to_owned(), cluster.namespace_token("lab")?));
        let target = Target { addrs: cluster.doors("resp"), auth, wait: None };
        let (user, token) = target.auth.as_ref().expect("just set");
        let line = format!("AUTH {user} {token}\r\n");
        let opens = |addr: &SocketAddr| crate::peers::ask(*addr, line.as_bytes()).is_some_and(|a| a.starts_with("+OK"));
        crate::peers::wait_until("every node knows the namespace", || target.addrs.iter().all(opens))?;
        Ok((cluster, target))
    }

    fn start_with(nodes: u8, demo: bool, options: &[&str], environment: &[(&str, &str)]) -> Result<Cluster, String> {
        let dir = std::env::temp_dir().join(format!("coppice-lab-{}-{}", std::process::id(), free_port(nodes)?));
        let ports: Vec<String> = (0..4).map(|_| free_port(nodes).map(|p| p.to_string())).collect::<Result<_, _>>()?;
        let mut command = Command::new(program()?);
        command.args(["up", "--json", "--nodes", &nodes.to_string(), "--dir"]).arg(&dir);
        command.args([
            "--http-port",
            &ports[0],
            "--resp-port",
            &ports[1],
            "--api-port",
            &ports[2],
            "--peer-port",
            &ports[3],
        ]);
        if !demo {
            command.arg("--no-demo");
        }
        let mut up = command
            .args(options)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start coppice: {e}"))?;
        let lines = BufReader::new(up.stdout.take().expect("piped")).lines();
        let (tell, events) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Ok(event) = serde_json::from_str::<Value>(&line)
                    && tell.send(event).is_err()
                {
                    return;
                }
            }
        });
        let mut cluster = Cluster { up, dir, ready: Value::Null, events };
        cluster.ready = cluster.event("ready", Duration::from_secs(40))?;
        Ok(cluster)
    }

    /// The next event of this kind; others are passed over.
    pub fn event(&mut self, kind: &str, within: Duration) -> Result<Value, String> {
        let end = std::time::Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(std::time::Instant::now());
            let event = self
                .events
                .recv_timeout(left)
                .map_err(|_| format!("coppice did not say {kind:?} within {within:?}"))?;
            match event["event"].as_str() {
                Some(k) if k == kind => return Ok(event),
                Some("error") => return Err(format!("coppice: {}", event["text"])),
                _ => (),
            }
        }
    }

    /// Addresses of one door (`http`, `resp`, `api`) of all nodes.
    pub fn doors(&self, door: &str) -> Vec<SocketAddr> {
        let nodes = self.ready["nodes"].as_array().into_iter().flatten();
        nodes.filter_map(|n| n[door].as_str()?.parse().ok()).collect()
    }

    pub fn pid(&self, node: usize) -> Option<i32> {
        i32::try_from(self.ready["nodes"][node]["pid"].as_i64()?).ok()
    }

    /// Gives all nodes one processor together and the caller, who makes the load, another, so that more load does not
    /// take from what is measured.
    pub fn set_apart(&self) -> Result<(), String> {
        let nodes = self.ready["nodes"].as_array().map_or(0, Vec::len);
        for node in 0..nodes {
            pin(self.pid(node).ok_or("no pid")?, 0)?;
        }
        pin(std::process::id().cast_signed(), 1)
    }

    /// While held, a killed node is not started again. (`up`, which would do it, is stopped.)
    pub fn hold_restarts(&self, hold: bool) -> Result<(), String> {
        let signal = if hold { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT };
        send(self.up.id().cast_signed(), signal)
    }

    pub fn kill(&self, node: usize) -> Result<(), String> {
        send(self.pid(node).ok_or("no pid")?, rustix::process::Signal::KILL)
    }

    /// Waits until a node that was killed serves again.
    pub fn wait_restarted(&mut self, node: usize) -> Result<(), String> {
        let event = self.event("restarted", Duration::from_secs(20))?;
        self.ready["nodes"][node]["pid"] = event["pid"].clone();
        let door = self.doors("api")[node];
        crate::peers::wait_until("the node is ready again", || crate::load::http_get(door, "/readyz", None).is_ok())
    }

    /// Applies a declaration, and gives the URL of a namespace in it.
    pub fn apply(&self, declaration: &str) -> Result<(), String> {
        let file = self.dir.join("lab.toml");
        std::fs::write(&file, declaration).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        self.coppice(&["apply", "--remove-namespaces", "-f", &file.display().to_string()]).map(|_| ())
    }

    /// Applies services of `lab worker` clones and waits until each node's door leads to the one named.
    pub fn serve(&self, declaration: &str) -> Result<(), String> {
        self.apply(declaration)?;
        self.wait_served()
    }

    pub fn wait_served(&self) -> Result<(), String> {
        let well = |door: &SocketAddr| crate::load::http_get(*door, "/health", None).is_ok();
        crate::peers::wait_until("the service serves at every node", || self.doors("http").iter().all(well))
    }

    /// Deploys a folder as the next version of a service; returns when all clones run it.
    pub fn deploy(&self, folder: &Path) -> Result<String, String> {
        self.coppice(&["deploy", &folder.display().to_string()])
    }

    /// Upgrades Coppice itself: each node becomes the program at its path, one after the other.
    pub fn restart_rolling(&self) -> Result<(), String> {
        self.coppice(&["node", "restart", "--rolling"]).map(|_| ())
    }

    /// A node leaves for good; returns when it has.
    pub fn remove(&self, name: &str) -> Result<(), String> {
        self.coppice(&["node", "remove", name]).map(|_| ())
    }

    /// A folder of this cluster's own, gone with it.
    pub fn folder(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.dir.join(name);
        std::fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
        Ok(folder)
    }

    /// What a node shows, read without starting a program.
    pub fn look(api: SocketAddr) -> Result<Value, String> {
        serde_json::from_str(&crate::load::http_get(api, "/v1/status", None)?).map_err(|e| e.to_string())
    }

    /// Token of a namespace, from the API.
    pub fn namespace_token(&self, name: &str) -> Result<String, String> {
        let api = self.doors("api").first().copied().ok_or("no node")?;
        let admin = std::fs::read_to_string(self.dir.join("n1/admin.token"))
            .map_err(|e| format!("no operator's token: {e}"))?;
        let reply = crate::load::http_get(api, &format!("/v1/ns/{name}/token"), Some(admin.trim()))?;
        let json: Value = serde_json::from_str(&reply).map_err(|e| format!("{e}: {reply}"))?;
        json["token"].as_str().map(str::to_owned).ok_or_else(|| format!("no token in {reply}"))
    }

    /// Where the first clone of a service listens. It serves already.
    pub fn clone_addr(&self, service: &str) -> Result<SocketAddr, String> {
        Ok(self.first_clone(service)?.addr)
    }

    /// The first clone of a service. It serves already.
    pub fn first_clone(&self, service: &str) -> Result<FirstClone, String> {
        let status = self.status()?;
        let all = status["services"].as_array().into_iter().flatten();
        let clones = all.filter(|of| of["name"] == service).find_map(|of| of["clones"].as_array());
        let clone = clones.and_then(|clones| clones.first()).ok_or_else(|| format!("{service} has no clone"))?;
        let names = self.ready["nodes"].as_array().into_iter().flatten().map(|node| &node["name"]);
        let node = names.enumerate().find(|(_, name)| **name == clone["node"]).map(|(node, _)| node);
        let number =
            |field: &str| clone[field].as_u64().ok_or_else(|| format!("the clone of {service} has no {field}"));
        let node = node.ok_or_else(|| format!("nobody knows the node of {service}"))?;
        let ip = self.doors("http").get(node).ok_or("no edge")?.ip();
        let port = u16::try_from(number("port")?).map_err(|e| e.to_string())?;
        let pid = i32::try_from(number("pid")?).map_err(|e| e.to_string())?;
        Ok(FirstClone { node, addr: SocketAddr::new(ip, port), pid })
    }

    /// Where all clones of a service listen.
    pub fn clone_addrs(&self, service: &str) -> Result<Vec<SocketAddr>, String> {
        let status = self.status()?;
        let of = status["services"].as_array().into_iter().flatten().find(|of| of["name"] == service);
        let clones = of.and_then(|of| of["clones"].as_array()).into_iter().flatten();
        let nodes: Vec<&Value> =
            self.ready["nodes"].as_array().into_iter().flatten().map(|node| &node["name"]).collect();
        let doors = self.doors("http");
        // A clone listens where its node does.
        let addr = |clone: &Value| {
            let node = nodes.iter().position(|name| **name == clone["node"])?;
            Some(SocketAddr::new(doors.get(node)?.ip(), u16::try_from(clone["port"].as_u64()?).ok()?))
        };
        Ok(clones.filter_map(addr).collect())
    }

    pub fn status(&self) -> Result<Value, String> {
        serde_json::from_str(&self.coppice(&["status", "--json"])?).map_err(|e| e.to_string())
    }

    /// What a command says that asks no node.
    pub fn coppice_alone(&self, args: &[&str]) -> Result<String, String> {
        said(Command::new(program()?).args(args))
    }

    /// What a command says that asks the first node.
    pub fn coppice(&self, args: &[&str]) -> Result<String, String> {
        let api = self.doors("api").first().copied().ok_or("no node")?.to_string();
        said(Command::new(program()?).args(args).args(["--api", &api, "--dir"]).arg(&self.dir))
    }
}

fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Keeps all threads of a process on one processor.
fn pin(pid: i32, processor: u32) -> Result<(), String> {
    let output = Command::new("taskset").args(["-a", "-c", "-p", &processor.to_string(), &pid.to_string()]).output();
    let output = output.map_err(|e| format!("taskset cannot be started ({e}); it is in the package util-linux"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Sends a signal to a process that this experiment started.
pub fn send(pid: i32, signal: rustix::process::Signal) -> Result<(), String> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or("no pid")?;
    rustix::process::kill_process(pid, signal).map_err(|e| format!("cannot signal {pid}: {e}"))
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SIGTERM lets `up` end its nodes and reap them; it must not be stopped then.
        let _ = self.hold_restarts(false);
        if let Some(pid) = rustix::process::Pid::from_raw(self.up.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.up.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The program beside this one, so that both are of one build.
pub fn program() -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let beside = me.with_file_name("coppice");
    if beside.exists() {
        Ok(beside)
    } else {
        Err(format!("{} is not there; build it first: cargo build --release", beside.display()))
    }
}

/// Below those that the kernel gives to who connects (32768 to 60999): a node could find its port taken by its own neighbour.
const FIRST_PORT: u16 = 21_000;
const PORTS: u16 = 11_000;

/// A port that is free on the addresses of so many nodes at this moment, and that nobody is given who connects somewhere.
pub fn free_port(nodes: u8) -> Result<u16, String> {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let start = std::process::id() as u16;
    for _ in 0..PORTS {
        let nth = start.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let port = FIRST_PORT + nth;
        let on = |i| TcpListener::bind((IpAddr::V4(Ipv4Addr::new(127, 0, 0, i)), port));
        if (1..=nodes).all(|i| on(i).is_ok()) {
            return Ok(port);
        }
    }
    Err("no free port".into())
}
