//! Peers: other people's programs, started on free ports in folders of their own and ended with the experiment. One
//! that is not installed is an error that names its package.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::free_port;
use crate::load::Target;
use crate::users::MASTER;

/// A started program; ended when dropped.
pub struct Program {
    child: Child,
    dir: PathBuf,
}

impl Program {
    pub fn start(package: &str, program: &str, dir: PathBuf, args: &[&str]) -> Result<Program, String> {
        std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        let child = Command::new(program)
            .args(args)
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.map_err(|e| format!("{program} cannot be started ({e}); it is in the package {package}"))?;
        Ok(Program { child, dir })
    }
}

impl Program {
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // TERM first: nginx then ends its workers itself.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("coppice-lab-{name}-{}", std::process::id()))
}

/// A Redis primary with so many replicas, all caught up.
pub struct Redis {
    /// The primary comes first.
    programs: Vec<Program>,
    addrs: Vec<SocketAddr>,
    pub target: Target,
}

impl Redis {
    /// Nothing is written to disk.
    pub fn start(replicas: u32) -> Result<Redis, String> {
        Self::with(replicas, &["--appendonly", "no"])
    }

    /// Alone, and each write is forced to disk before it is answered.
    pub fn forced() -> Result<Redis, String> {
        Self::with(0, &["--appendonly", "yes", "--appendfsync", "always"])
    }

    fn with(replicas: u32, options: &[&str]) -> Result<Redis, String> {
        let (mut programs, mut addrs) = (Vec::new(), Vec::new());
        let mut start = |primary: Option<u16>| {
            let port = free_port(1)?;
            let text = port.to_string();
            let mut args = vec!["--port", &text, "--bind", "127.0.0.1", "--save", ""];
            args.extend(options);
            let primary = primary.map(|p| p.to_string()).unwrap_or_default();
            if !primary.is_empty() {
                args.extend(["--replicaof", "127.0.0.1", &primary]);
            }
            programs.push(Program::start("redis-server", "redis-server", scratch(&format!("redis-{port}")), &args)?);
            addrs.push(SocketAddr::from(([127, 0, 0, 1], port)));
            Ok::<u16, String>(port)
        };
        let primary = start(None)?;
        for _ in 0..replicas {
            start(Some(primary))?;
        }
        let addr = SocketAddr::from(([127, 0, 0, 1], primary));
        wait_until("redis replicas are in step", || replicas_online(addr).is_some_and(|n| n >= replicas))?;
        let wait = (replicas > 0).then_some((1, 100));
        Ok(Redis { programs, addrs, target: Target { addrs: vec![addr], auth: None, wait } })
    }
}

impl Redis {
    /// Of all, the primary first.
    pub fn pids(&self) -> Vec<i32> {
        self.programs.iter().map(Program::pid).collect()
    }

    /// Of all, the primary first.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.addrs.clone()
    }

    /// Of the primary.
    pub fn pid(&self) -> i32 {
        self.programs[0].pid()
    }
}

/// A primary with two replicas, watched by three sentinels that agree by two.
pub struct Sentinels {
    redis: Redis,
    _programs: Vec<Program>,
    pub addrs: Vec<SocketAddr>,
}

impl Sentinels {
    pub fn start(down_after_ms: u32) -> Result<Sentinels, String> {
        let redis = Redis::start(2)?;
        let primary = redis.target.addrs[0];
        let (mut programs, mut addrs) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let port = free_port(1)?;
            let dir = scratch(&format!("sentinel-{port}"));
            std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
            let conf = format!(
                "port {port}\nbind 127.0.0.1\nsentinel monitor {MASTER} {} {} 2\n\
                 sentinel down-after-milliseconds {MASTER} {down_after_ms}\nsentinel failover-timeout {MASTER} 10000\n",
                primary.ip(),
                primary.port()
            );
            // A sentinel writes into its configuration what it learns.
            let file = dir.join("sentinel.conf");
            std::fs::write(&file, conf).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
            programs.push(Program::start("redis-sentinel", "redis-sentinel", dir, &["sentinel.conf"])?);
            addrs.push(SocketAddr::from(([127, 0, 0, 1], port)));
        }
        let knows_all = |addr: &SocketAddr| {
            let text = ask(*addr, b"INFO sentinel\r\n").unwrap_or_default();
            text.contains("slaves=2,sentinels=3")
        };
        wait_until("the sentinels know each other", || addrs.iter().all(knows_all))?;
        Ok(Sentinels { redis, _programs: programs, addrs })
    }

    pub fn kill_primary(&self) -> Result<(), String> {
        crate::cluster::send(self.redis.pid(), rustix::process::Signal::KILL)
    }
}

fn replicas_online(addr: SocketAddr) -> Option<u32> {
    let text = ask(addr, b"INFO replication\r\n")?;
    Some(u32::try_from(text.matches("state=online").count()).unwrap_or(0))
}

/// One question, the beginning of the answer.
pub fn ask(addr: SocketAddr, line: &[u8]) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(addr).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
    stream.write_all(line).ok()?;
    let mut buffer = [0u8; 8192];
    let n = stream.read(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..n]).into_owned())
}

pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !so() {
        if begun.elapsed() > Duration::from_secs(20) {
            return Err(format!("not so within 20 s: {what}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What `wrk` measured.
pub struct Wrk {
    pub per_second: f64,
    pub requests: u64,
    pub p99_us: f64,
    /// Answers that are no good ones, and connections that failed.
    pub errors: u64,
}

impl Wrk {
    pub fn good_per_second(&self) -> f64 {
        let bad = self.errors.min(self.requests);
        self.per_second * (self.requests - bad) as f64 / self.requests.max(1) as f64
    }
}

/// `wrk` with one thread and so many connections, which are kept or used for one request each.
pub fn wrk(url: &str, connections: u32, seconds: u64, is_kept: bool) -> Result<Wrk, String> {
    let mut command = Command::new("wrk");
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "--latency", url]);
    if !is_kept {
        command.args(["-H", "Connection: close"]);
    }
    let output = command.output();
    let output = output.map_err(|e| format!("wrk cannot be started ({e}); it is in the package wrk"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let after = |mark: &str| text.lines().find_map(|l| l.trim().strip_prefix(mark).map(|rest| rest.trim().to_owned()));
    let per_second = after("Requests/sec:").and_then(|t| t.parse().ok()).ok_or_else(|| format!("wrk said: {text}"))?;
    let p99_us = after("99%").as_deref().and_then(micros).ok_or_else(|| format!("wrk said: {text}"))?;
    let numbers =
        |line: String| line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u64>().ok()).sum::<u64>();
    let errors = after("Non-2xx or 3xx responses:").map_or(0, numbers) + after("Socket errors:").map_or(0, numbers);
    let requests = text.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok());
    let requests = requests.ok_or_else(|| format!("wrk said: {text}"))?;
    Ok(Wrk { per_second, requests, p99_us, errors })
}

/// `812.00us`, `1.20ms`, `2.01s` in microseconds.
fn micros(text: &str) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let unit = match &text[split..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(text[..split].parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_refused_is_no_good_answer() {
        let wrk = |requests, errors| super::Wrk { per_second: 1000.0, requests, p99_us: 1.0, errors };
        assert_eq!(wrk(1100, 0).good_per_second(), 1000.0);
        assert_eq!(wrk(1100, 825).good_per_second(), 250.0);
        assert_eq!(wrk(1100, 2000).good_per_second(), 0.0);
        assert_eq!(wrk(0, 5).good_per_second(), 0.0);
    }

    #[test]
    fn times_of_wrk_are_read() {
        assert_eq!(super::micros("812.00us"), Some(812.0));
        assert_eq!(super::micros("1.20ms"), Some(1200.0));
        assert_eq!(super::micros("2.00s"), Some(2e6));
    }
}
