//! What grows with what: the cost of a node that has nothing to do, of one change and of one request, by how many nodes, services,
//! routes, namespaces, keys, connections and watchers there are. What exists should cost nothing as long as it does not change, so the
//! law of most figures is `flat`. Without a peer: each is compared with the fewest of its kind. More than 16 nodes are the simulator's:
//! `cargo run --release -p sim -- --idle 8,48,200` counts their bytes and events and prints the same laws.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::Plan;
use crate::client::{Conn, command};
use crate::cluster::Cluster;
use crate::experiments::memory::resident;
use crate::load::Target;
use crate::report::{Figure, Report};

pub const PARTS: [&str; 7] = ["nodes", "services", "routes", "namespaces", "keys", "connections", "watchers"];

/// How many of a kind, few and many. Of nodes as many as one machine has room for: they take turns at its processors.
fn steps(part: &str) -> [usize; 2] {
    match part {
        "nodes" => [4, 16],
        "services" => [20, 200],
        "namespaces" => [20, 400],
        "keys" => [10_000, 200_000],
        "connections" | "watchers" => [100, 800],
        _ => [100, 5_000],
    }
}

const REQUESTS: usize = 4_000;
const CHANGES: usize = 10;
/// After what was prepared, until it is over.
const REST: Duration = Duration::from_secs(4);
const BASE: &str = "[namespace.lab]\nclass = \"session\"\nlease = \"10m\"\n\n[namespace.bank]\nclass = \"linear\"\n";

/// Of one size. Processor time of a request is that of all nodes.
#[derive(Clone, Copy, Debug)]
struct Costs {
    idle_ms: f64,
    /// Over the loopback, whoever sent it.
    bytes: f64,
    memory: f64,
    change_ms: f64,
    request_us: f64,
}

/// Name, unit, what it is, and below what it cannot be told from nothing.
type Measure = (&'static str, &'static str, fn(&Costs) -> f64, f64);
const MEASURES: [Measure; 5] = [
    ("idle, processor", "ms a second and node", |costs| costs.idle_ms, 10.0),
    ("idle, between nodes", "bytes a second and node", |costs| costs.bytes, 1_000.0),
    ("memory", "bytes a node", |costs| costs.memory, 1_000_000.0),
    ("one change", "ms of processor a node", |costs| costs.change_ms, 4.0),
    ("one request", "us of processor of all", |costs| costs.request_us, 10.0),
];

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("growth");
    let mut csv = "of,count,idle_ms,bytes,memory,change_ms,request_us\n".to_owned();
    for part in PARTS.into_iter().filter(|part| plan.has(part)) {
        let [few, many] = steps(part);
        let (first, last) = (costs(part, few, plan)?, costs(part, many, plan)?);
        for (count, Costs { idle_ms, bytes, memory, change_ms, request_us }) in [(few, first), (many, last)] {
            let _ = writeln!(csv, "{part},{count},{idle_ms:.2},{bytes:.0},{memory:.0},{change_ms:.2},{request_us:.1}");
        }
        for (name, unit, of, least) in MEASURES {
            let law = law((few as f64, of(&first)), (many as f64, of(&last)), least);
            let what = format!("{many} {part}: {name}: {law}");
            report.figures.push(Figure::new(what, unit, of(&last), &format!("{few} {part}"), Some(of(&first))));
        }
    }
    report.notes.push(
        "a law is told from two sizes: flat, linear, or worse than linear; a request's processor time is that of all nodes".into(),
    );
    report.write(&plan.out, "growth.csv", &csv)?;
    Ok(report)
}

/// How a cost grows from one size to another: by the exponent between them. What is below `least` is noise.
fn law((few, low): (f64, f64), (many, high): (f64, f64), least: f64) -> &'static str {
    if high - low < least {
        return "flat";
    }
    match (high / low.max(least)).ln() / (many / few).ln() {
        grows if grows < 0.25 => "flat",
        grows if grows < 1.25 => "linear",
        _ => "worse than linear",
    }
}

fn costs(part: &str, count: usize, plan: &Plan) -> Result<Costs, String> {
    let nodes = if part == "nodes" { count } else { 1 };
    let cluster = Cluster::start(u8::try_from(nodes).map_err(|e| e.to_string())?, false)?;
    let declared = format!("{BASE}{}", declaration(part, count));
    cluster.apply(&declared)?;
    let auth = Some(("lab".to_owned(), cluster.namespace_token("lab")?));
    let target = Target { addrs: cluster.doors("resp"), auth, wait: None };
    if part == "keys" {
        redis(&target, count, |n, out| command(out, &[b"SET", format!("key:{n}").as_bytes(), &[b'v'; 100]]))?;
    }
    let _held = match part {
        "connections" => hold(cluster.doors("http")[0], count, "GET / HTTP/1.1\r\nHost: lab\r\n\r\n")?,
        "watchers" => {
            let token = cluster.namespace_token("bank")?;
            let request =
                format!("GET /v1/ns/bank/watch?prefix= HTTP/1.1\r\nHost: lab\r\nAuthorization: Bearer {token}\r\n\r\n");
            hold(cluster.doors("api")[0], count, &request)?
        }
        _ => Vec::new(),
    };
    std::thread::sleep(REST);

    let pids: Vec<i32> = (0..nodes).map(|node| cluster.pid(node).ok_or("no pid")).collect::<Result<_, _>>()?;
    let (processor, loopback, begun) = (processor_ms(&pids)?, loopback_bytes()?, Instant::now());
    std::thread::sleep(Duration::from_secs(plan.seconds.max(5)));
    let each = begun.elapsed().as_secs_f64() * nodes as f64;
    let (idle_ms, bytes) = ((processor_ms(&pids)? - processor) / each, (loopback_bytes()? - loopback) / each);
    let memory = pids.iter().map(|pid| resident(*pid)).sum::<Result<f64, String>>()? / nodes as f64;

    let before = processor_ms(&pids)?;
    for change in 0..CHANGES {
        cluster.apply(&format!("{declared}\n[namespace.changed{change}]\nclass = \"session\"\n"))?;
    }
    let change_ms = (processor_ms(&pids)? - before) / CHANGES as f64 / nodes as f64;

    let before = processor_ms(&pids)?;
    match part {
        // Of the last route.
        "routes" | "services" => ask(cluster.doors("http")[0], part, count - 1)?,
        _ => redis(&target, REQUESTS, |n, out| command(out, &[b"SET", format!("asked:{}", n % 10).as_bytes(), b"v"]))?,
    }
    let request_us = (processor_ms(&pids)? - before) * 1_000.0 / REQUESTS as f64;
    Ok(Costs { idle_ms, bytes, memory, change_ms, request_us })
}

fn declaration(part: &str, count: usize) -> String {
    let all = 0..count;
    match part {
        "services" => all.map(|n| format!("\n[service.s{n}]\nrun = [\"true\"]\nclones = 0\nhttp = {{ host = \"s{n}.lab\" }}\n")).collect(),
        "routes" => all.fold("\n[service.s]\nrun = [\"true\"]\nclones = 0\nhttp = { host = \"s.lab\" }\n".to_owned(), |text, n| {
            text + &format!("\n[[service.s.partition]]\nname = \"p{n}\"\npath_contains = \"/p{n}/\"\ndrop = {{ status = 410 }}\n")
        }),
        "namespaces" => all.map(|n| format!("\n[namespace.n{n}]\nclass = \"session\"\n")).collect(),
        _ => String::new(),
    }
}

/// One after the other: some wait until those before them are answered.
fn redis(target: &Target, count: usize, of: impl Fn(usize, &mut Vec<u8>)) -> Result<(), String> {
    const AT_ONCE: usize = 100;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let mut conn = Conn::open(target.addrs[0], target.auth.as_ref()).await?;
        for from in (0..count).step_by(AT_ONCE) {
            let some = from..count.min(from + AT_ONCE);
            some.clone().for_each(|n| of(n, &mut conn.out));
            conn.send().await?;
            for _ in some {
                conn.status().await?;
            }
        }
        Ok(())
    })
}

/// Requests on one connection that nobody serves: the answer is the edge's own.
fn ask(door: SocketAddr, part: &str, last: usize) -> Result<(), String> {
    let (host, path) =
        if part == "services" { (format!("s{last}"), "/".to_owned()) } else { ("s".to_owned(), format!("/p{last}/")) };
    let request = format!("HEAD {path} HTTP/1.1\r\nHost: {host}.lab\r\n\r\n");
    let mut stream = TcpStream::connect(door).map_err(|e| e.to_string())?;
    for _ in 0..REQUESTS {
        stream.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
        head(&mut stream)?;
    }
    Ok(())
}

/// Connections that have had an answer and stay.
fn hold(door: SocketAddr, count: usize, request: &str) -> Result<Vec<TcpStream>, String> {
    let one = |_| {
        let mut stream = TcpStream::connect(door).map_err(|e| e.to_string())?;
        stream.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
        head(&mut stream).map(|()| stream)
    };
    (0..count).map(one).collect()
}

/// Reads up to the end of an answer's head.
fn head(stream: &mut TcpStream) -> Result<(), String> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).map_err(|e| e.to_string())?;
    let (mut head, mut some) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut some).map_err(|e| e.to_string())?;
        if count == 0 {
            return Err(format!("closed after {:?}", String::from_utf8_lossy(&head)));
        }
        head.extend_from_slice(&some[..count]);
    }
    Ok(())
}

fn processor_ms(pids: &[i32]) -> Result<f64, String> {
    let of = |pid: &i32| -> Result<f64, String> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| e.to_string())?;
        let after = stat.rsplit_once(')').ok_or("no stat")?.1;
        // utime and stime, in hundredths of a second.
        let ticks = after.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum::<f64>();
        Ok(ticks * 10.0)
    };
    pids.iter().map(of).sum()
}

/// All that went over the loopback of this network namespace: nobody else should use it meanwhile.
fn loopback_bytes() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/net/dev").map_err(|e| e.to_string())?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("lo:")).ok_or("no loopback")?;
    line.split_whitespace().next().and_then(|n| n.parse().ok()).ok_or_else(|| format!("no bytes in {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::law;

    #[test]
    fn a_law_is_told_by_how_much_more_many_cost_than_few() {
        let of = |low, high| law((10.0, low), (100.0, high), 1.0);
        assert_eq!([of(5.0, 5.2), of(50.0, 70.0), of(0.0, 0.9)], ["flat"; 3]);
        assert_eq!([of(5.0, 50.0), of(20.0, 80.0), of(0.0, 9.0)], ["linear"; 3]);
        assert_eq!([of(5.0, 500.0), of(0.0, 90.0)], ["worse than linear"; 2]);
    }
}
