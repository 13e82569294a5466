//! Machines apart from each other on this one: a network namespace for each node, joined by a bridge, with packet filters of
//! their own. All of it lies within one namespace that the test runs in, so nothing of it is seen outside, and it goes with
//! the test.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command};
use std::time::Duration;

use crate::{apart, tools};

/// No test is longer.
const LIFE_MAX: &str = "900";

pub struct Net {
    /// Each holds the namespace of a node.
    holders: Vec<Child>,
}

/// The address of a node.
pub fn host(node: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 77, 0, node))
}

/// Runs this test in a network of its own ([`apart::enter`]).
pub fn enter(module: &str, test: &str) -> Result<bool, String> {
    apart::enter(module, test, "--net", &["ip", "nft", "nsenter"])
}

impl Net {
    /// For so many nodes. Only within a namespace of its own.
    pub fn new(nodes: u8) -> Net {
        assert!(apart::is_within(), "it is not in a namespace of its own");
        ip("link set lo up");
        ip("link add bridge type bridge");
        ip("addr add 10.77.0.254/24 dev bridge");
        ip("link set bridge up");
        let holder = |node: u8| {
            let mut command = Command::new("unshare");
            let child = command.args(["--net", "sleep", LIFE_MAX]).spawn().expect("unshare was there");
            let net = Net { holders: vec![child] };
            // It has its own namespace once it has become `sleep`.
            crate::wait_for("a namespace", Duration::from_secs(5), || {
                let comm = std::fs::read_to_string(format!("/proc/{}/comm", net.pid(1))).map_err(|e| e.to_string())?;
                if comm.trim() == "sleep" { Ok(()) } else { Err(comm) }
            });
            ip(&format!("link add v{node} type veth peer name up{node}"));
            ip(&format!("link set up{node} netns {}", net.pid(1)));
            ip(&format!("link set v{node} master bridge up"));
            net.inside(1, "ip", &["link", "set", "lo", "up"]);
            net.inside(1, "ip", &["addr", "add", &format!("{}/24", host(node)), "dev", &format!("up{node}")]);
            net.inside(1, "ip", &["link", "set", &format!("up{node}"), "up"]);
            let mut net = net;
            net.holders.pop().expect("it is there")
        };
        Net { holders: (1..=nodes).map(holder).collect() }
    }

    fn pid(&self, node: u8) -> u32 {
        self.holders[usize::from(node) - 1].id()
    }

    /// A program that is to run where a node is.
    pub fn command(&self, node: u8, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid(node))).arg(program);
        command
    }

    fn inside(&self, node: u8, program: &str, args: &[&str]) {
        tools::run(self.command(node, program).args(args), Duration::from_secs(10)).good();
    }

    /// A node hears nothing of these others.
    pub fn deafen(&self, node: u8, to: &[u8]) {
        let hosts: Vec<_> = to.iter().map(|node| host(*node).to_string()).collect();
        self.filter(node, &format!("ip saddr {{ {} }} drop", hosts.join(", ")));
    }

    /// So many of a hundred packets to a node from other nodes are lost.
    pub fn lose(&self, node: u8, percent: u8) {
        self.filter(node, &format!("ip saddr != 10.77.0.254 numgen random mod 100 < {percent} drop"));
    }

    fn filter(&self, node: u8, rule: &str) {
        self.mend(node);
        let chain = "{ type filter hook input priority 0; policy accept; }";
        self.inside(node, "nft", &["add", "table", "inet", "faults"]);
        self.inside(node, "nft", &["add", "chain", "inet", "faults", "hears", chain]);
        let words: Vec<&str> = ["add", "rule", "inet", "faults", "hears"].into_iter().chain(rule.split(' ')).collect();
        self.inside(node, "nft", &words);
    }

    /// A node hears all again.
    pub fn mend(&self, node: u8) {
        self.inside(node, "nft", &["flush", "ruleset"]);
    }
}

fn ip(words: &str) {
    tools::run(Command::new("ip").args(words.split(' ')), Duration::from_secs(10)).good();
}

impl Drop for Net {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}
