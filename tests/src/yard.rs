//! Nodes started one by one with `coppice init`, `token`, `join` and `run`, as on several machines. Nobody restarts them.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::at::{At, Ports, new_folder};
use crate::http;
use crate::minder::Minder;
use crate::net::Net;
use crate::procs::{self, Proc, Signal};
use crate::program::coppice;
use crate::tools::{self, Said};
use crate::up::{namespace_token, show_logs, whole};
use crate::wait::wait_for;

const READY_WITHIN: Duration = Duration::from_secs(30);

pub struct Yard {
    pub dir: PathBuf,
    pub ports: Ports,
    running: Vec<(u8, Child, Minder)>,
    /// Each node is in a namespace of its own.
    pub net: Option<Net>,
    /// What its nodes have in their environment.
    env: Vec<(&'static str, &'static str)>,
}

impl Yard {
    pub fn new() -> Yard {
        Yard::on(Ports::free(4))
    }

    pub fn on(ports: Ports) -> Yard {
        Yard { dir: new_folder(), ports, running: Vec::new(), net: None, env: Vec::new() }
    }

    /// A cluster of so many nodes, all of them running and known to each other, with three voters if there are three.
    pub fn cluster(nodes: u8) -> Yard {
        // One more may join.
        Yard::on(Ports::free(nodes + 1)).grown(nodes)
    }

    /// The same, with this in the environment of its nodes.
    pub fn cluster_with(nodes: u8, env: &[(&'static str, &'static str)]) -> Yard {
        let mut yard = Yard::on(Ports::free(nodes));
        yard.env = env.to_vec();
        yard.grown(nodes)
    }

    /// The same, each node in a namespace of its own ([`crate::net::enter`] comes before).
    pub fn apart(nodes: u8) -> Yard {
        let mut yard = Yard::on(Ports { apart: true, ..Ports::free(nodes) });
        yard.net = Some(Net::new(nodes));
        yard.grown(nodes)
    }

    fn grown(mut self, nodes: u8) -> Yard {
        let yard = &mut self;
        yard.found("home");
        for node in 2..=nodes {
            let token = yard.token("10m");
            yard.join(node, &token).good();
            yard.run(node);
        }
        let voters = usize::from(nodes.min(3));
        wait_for("all nodes see each other, the voters, and what is declared", READY_WITHIN, || {
            let declared = yard.status(1)?["root"]["version"].as_u64();
            for node in 1..=nodes {
                let view = yard.whole(node, &(1..=nodes).collect::<Vec<_>>(), 0)?;
                let has = view["root"]["voters"].as_array().map_or(0, Vec::len);
                if has < voters {
                    return Err(format!("n{node} sees {has} voters"));
                }
                let version = view["root"]["version"].as_u64();
                if version < declared {
                    return Err(format!("n{node} knows version {version:?} of what is declared, n1 {declared:?}"));
                }
            }
            Ok(())
        });
        self
    }

    /// `init` and `run` of the first node.
    pub fn found(&mut self, cluster: &str) {
        self.found_with(cluster, &[]);
    }

    /// The same, run with these options.
    pub fn found_with(&mut self, cluster: &str, options: &[&str]) {
        let dir = self.node_dir(1).display().to_string();
        let host = self.ports.host(1).to_string();
        self.command(1, &["init", "--dir", &dir, "--cluster", cluster, "--name", "n1", "--host", &host], true).good();
        self.run_with(1, options);
    }

    pub fn at(&self, node: u8) -> At {
        self.ports.on(node)
    }

    pub fn node_dir(&self, node: u8) -> PathBuf {
        self.dir.join(format!("n{node}"))
    }

    pub fn token(&self, ttl: &str) -> String {
        self.coppice(1, &["token", "--ttl", ttl]).good().trim().to_owned()
    }

    pub fn join(&self, node: u8, token: &str) -> Said {
        self.join_as(node, &format!("n{node}"), token)
    }

    pub fn join_as(&self, node: u8, name: &str, token: &str) -> Said {
        self.join_with(node, name, token, &[])
    }

    pub fn join_with(&self, node: u8, name: &str, token: &str, options: &[&str]) -> Said {
        let (dir, host) = (self.node_dir(node).display().to_string(), self.ports.host(node).to_string());
        let args = ["join", "--dir", &dir, "--name", name, "--host", &host, token];
        self.command(node, &[&args, options].concat(), true)
    }

    /// Starts a node and waits until it is ready.
    #[track_caller]
    pub fn run(&mut self, node: u8) {
        self.run_with(node, &[]);
    }

    #[track_caller]
    pub fn run_with(&mut self, node: u8, options: &[&str]) {
        self.begin(node, options);
        let api = self.at(node).api;
        wait_for(&format!("n{node} is ready"), READY_WITHIN, || match http::get(api, "/readyz") {
            Ok(reply) if reply.status == 200 => Ok(()),
            Ok(reply) => Err(reply.text()),
            Err(e) => Err(e.to_string()),
        });
    }

    /// Starts a node and waits for nothing.
    pub fn begin(&mut self, node: u8, options: &[&str]) {
        let dir = self.node_dir(node);
        let log = File::options().create(true).append(true).open(dir.join("node.log")).expect("its folder is there");
        let (mut command, mut doors) = (self.program(node), Vec::new());
        if self.net.is_some() {
            // Its doors are on loopback unless it is told otherwise.
            let at = self.at(node);
            for (door, addr) in [("--http", at.http), ("--resp", at.resp), ("--api", at.api)] {
                doors.extend([door.to_owned(), addr.to_string()]);
            }
        }
        command
            .args(["run", "--dir"])
            .arg(&dir)
            .args(&doors)
            .args(options)
            .env("COPPICE_E2E", &self.dir)
            .envs(self.env.iter().copied())
            .current_dir(&self.dir);
        let out = log.try_clone().expect("a file can be had twice");
        let child = command.stdin(Stdio::null()).stdout(out).stderr(log).spawn().expect("the program starts");
        let minder = Minder::of(child.id(), &self.dir);
        self.running.push((node, child, minder));
    }

    #[track_caller]
    pub fn pid(&self, node: u8) -> u32 {
        let found = self.running.iter().find(|(n, ..)| *n == node);
        found.map(|(_, child, _)| child.id()).unwrap_or_else(|| panic!("n{node} does not run"))
    }

    /// SIGKILL, and it is gone.
    #[track_caller]
    pub fn kill(&mut self, node: u8) {
        let index =
            self.running.iter().position(|(n, ..)| *n == node).unwrap_or_else(|| panic!("n{node} does not run"));
        let (_, mut child, _minder) = self.running.remove(index);
        procs::kill(child.id(), Signal::KILL);
        child.wait().expect("it is ours");
    }

    /// Waits until a node has ended by itself, and gives its exit status.
    #[track_caller]
    pub fn ended(&mut self, node: u8) -> Option<i32> {
        let index =
            self.running.iter().position(|(n, ..)| *n == node).unwrap_or_else(|| panic!("n{node} does not run"));
        let (_, mut child, _minder) = self.running.remove(index);
        wait_for(&format!("n{node} ends"), Duration::from_secs(30), || match child.try_wait() {
            Ok(Some(status)) => Ok(status.code()),
            Ok(None) => Err("it runs".into()),
            Err(e) => Err(e.to_string()),
        })
        .0
    }

    /// SIGKILL to all at one moment.
    pub fn kill_everything(&mut self) {
        let all = self.everything();
        for one in &all {
            procs::kill(one.pid, Signal::KILL);
        }
        for (_, mut child, _minder) in self.running.drain(..) {
            child.wait().expect("it is ours");
        }
        wait_for("all of it is dead", Duration::from_secs(5), || crate::up::none_alive(&all));
    }

    pub fn everything(&self) -> Vec<Proc> {
        procs::marked(&self.dir.display().to_string())
    }

    pub fn status(&self, node: u8) -> Result<Value, String> {
        http::get(self.at(node).api, "/v1/status").map_err(|e| format!("status of n{node}: {e}"))?.json()
    }

    /// The view of one node, if it shows these nodes live and all wanted clones serving.
    pub fn whole(&self, node: u8, live: &[u8], clones_each: usize) -> Result<Value, String> {
        let pids: Vec<(String, u32)> = live.iter().map(|n| (format!("n{n}"), self.pid(*n))).collect();
        let view = self.status(node)?;
        whole(&view, &pids, clones_each).map_err(|why| format!("n{node} says {why}"))?;
        Ok(view)
    }

    #[track_caller]
    pub fn namespace_token(&self, namespace: &str) -> String {
        namespace_token(self.at(1).api, &self.node_dir(1), namespace)
    }

    /// The log of a node.
    pub fn log(&self, node: u8) -> String {
        std::fs::read_to_string(self.node_dir(node).join("node.log")).unwrap_or_default()
    }

    /// Waits until a line of a node's log has all these words, whatever their case.
    #[track_caller]
    pub fn logs(&self, node: u8, words: &[&str]) {
        wait_for(&format!("a line in the log of n{node} with {words:?}"), Duration::from_secs(10), || {
            let log = self.log(node);
            let has = |line: &&str| words.iter().all(|word| line.to_lowercase().contains(&word.to_lowercase()));
            log.lines().find(has).map(|_| ()).ok_or_else(|| log.lines().rev().take(8).collect::<Vec<_>>().join("\n"))
        });
    }

    /// The command line, told to ask this node, with the operator's token of the founder.
    pub fn coppice(&self, node: u8, args: &[&str]) -> Said {
        let (api, dir) = (self.at(node).api.to_string(), self.node_dir(1).display().to_string());
        let args: Vec<&str> = args.iter().copied().chain(["--api", &api, "--dir", &dir]).collect();
        self.command(node, &args, false)
    }

    /// The same for what may take long.
    pub fn coppice_within(&self, limit: Duration, node: u8, args: &[&str]) -> Said {
        let (api, dir) = (self.at(node).api.to_string(), self.node_dir(1).display().to_string());
        let mut command = Command::new(coppice());
        command.args(args).args(["--api", &api, "--dir", &dir]).env_remove("COPPICE_DIR").current_dir(&self.dir);
        tools::run(&mut command, limit)
    }

    pub fn apply(&self, node: u8, file: &str, text: &str) -> Said {
        let path = self.dir.join(file);
        std::fs::write(&path, text).expect("its folder is writable");
        self.coppice(node, &["apply", "--remove-namespaces", "-f", &path.display().to_string()])
    }

    /// The program where a node is.
    fn program(&self, node: u8) -> Command {
        self.net.as_ref().map_or_else(|| Command::new(coppice()), |net| net.command(node, coppice()))
    }

    fn command(&self, node: u8, args: &[&str], with_ports: bool) -> Said {
        let mut command = self.program(node);
        command.args(args).env_remove("COPPICE_DIR").current_dir(&self.dir);
        if with_ports {
            command.args(self.ports.options());
        }
        tools::run(&mut command, Duration::from_secs(30))
    }
}

impl Default for Yard {
    fn default() -> Yard {
        Yard::new()
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show_logs(&self.dir);
        }
        for (_, mut child, minder) in self.running.drain(..) {
            procs::kill(child.id(), Signal::KILL);
            let _ = child.wait();
            drop(minder);
        }
        for left in procs::marked(&self.dir.display().to_string()) {
            procs::kill(left.pid, Signal::KILL);
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
