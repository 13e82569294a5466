//! Profiles: changes of them over HTTP on three nodes, a majority's disks, beside PostgreSQL alone and with a standby that
//! it waits for; and what it costs a request that its profile goes with it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::Plan;
use crate::closed::{Caller, Shape, run as run_closed, runtime};
use crate::cluster::Cluster;
use crate::keep::Kept;
use crate::load::http_get;
use crate::peers::wait_until;
use crate::postgres::{Conn, Postgres};
use crate::report::{Figure, Report, median};
use crate::sides::{OURS, Sides};
use crate::worker::run_line;

/// In this order.
pub const PARTS: [&str; 2] = ["updates", "request"];
const CLIENTS: [usize; 1] = [64];
const PEERS: [(&str, bool); 2] = [("postgresql, one copy", false), ("postgresql, synchronous standby", true)];
const READER: &str = "ann";
/// Requests of each kind in turn, before the other one's turn.
const TURN: usize = 200;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("profiles");
    let mut sides = Sides::default();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        if plan.has("updates") {
            updates(plan, round, &mut sides, &mut report)?;
        }
        if plan.has("request") {
            let (one, other) = requests(plan)?;
            with.push(one);
            without.push(other);
        }
    }
    sides.tell(&mut report, &plan.out)?;
    if !with.is_empty() {
        let (with, without) = (median(with), median(without));
        report.figures.extend([
            Figure::new("a request with its profile, median", "us", with, "the same without", Some(without)),
            Figure::new("the profile of a request", "us", with - without, "none", None),
        ]);
    }
    Ok(report)
}

/// A cluster where profiles are read and written: tokens open them.
fn cluster(nodes: u8) -> Result<(Cluster, String), String> {
    let cluster = Cluster::start(nodes, false)?;
    let run = run_line(64, Duration::ZERO)?;
    let service = |name: &str, more: &str| {
        format!("[service.{name}]\n{run}clones = 1\nhealth = \"/health\"\nhttp = {{ path = \"/{name}\" }}\n{more}\n")
    };
    cluster.apply(&format!(
        "[namespace.people]\nclass = \"sql\"\n[profile.readers]\nnamespace = \"people\"\nkey = \"cookie:reader\"\n\
         schema = {{ quality = {{ type = \"integer\", min = 1, max = 1000000000 }}, grey = \"boolean\" }}\n{}{}",
        service("with", "namespaces = [\"people\"]\nprofile = \"readers\""),
        service("without", ""),
    ))?;
    let token = cluster.namespace_token("people")?;
    let runtime = runtime()?;
    let works =
        |addr: SocketAddr| runtime.block_on(async { Ours::open(addr, &token, READER).await?.put(1).await }).is_ok();
    wait_until("profiles are written at every node", || cluster.doors("api").into_iter().all(works))?;
    Ok((cluster, token))
}

fn profile(turn: u64) -> String {
    format!("{{\"grey\":true,\"quality\":{turn}}}")
}

/// A client that changes one profile.
struct Ours {
    conn: Kept,
    head: String,
    last: u64,
}

impl Ours {
    async fn open(addr: SocketAddr, token: &str, id: &str) -> Result<Ours, String> {
        let head = format!("/v1/profiles/readers/{id} HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer {token}\r\n");
        Ok(Ours { conn: Kept::open(addr).await?, head, last: 0 })
    }

    async fn put(&mut self, turn: u64) -> Result<(), String> {
        let body = profile(turn);
        let request = format!("PUT {}Content-Length: {}\r\n\r\n{body}", self.head, body.len());
        let answer = self.conn.ask(request.as_bytes()).await?;
        match answer.status {
            200 | 201 | 204 => Ok(()),
            status => Err(format!("HTTP {status}: {}", String::from_utf8_lossy(&answer.body))),
        }
    }
}

impl Caller for Ours {
    async fn call(&mut self, turn: u64) -> Result<bool, String> {
        self.put(turn).await?;
        self.last = turn;
        Ok(true)
    }

    async fn check(&mut self) -> Result<u64, String> {
        let answer = self.conn.ask(format!("GET {}\r\n", self.head).as_bytes()).await?;
        let said: serde_json::Value = serde_json::from_slice(&answer.body).map_err(|e| e.to_string())?;
        Ok(u64::from(self.last > 0 && said["profile"]["quality"] != self.last))
    }
}

struct Theirs {
    conn: Conn,
    id: String,
    last: u64,
}

impl Caller for Theirs {
    async fn call(&mut self, turn: u64) -> Result<bool, String> {
        self.conn.update(&self.id, &profile(turn)).await?;
        self.last = turn;
        Ok(true)
    }

    async fn check(&mut self) -> Result<u64, String> {
        let read = self.conn.read(&self.id).await?;
        Ok(u64::from(self.last > 0 && read != Some(profile(self.last))))
    }
}

fn updates(plan: &Plan, round: usize, sides: &mut Sides, report: &mut Report) -> Result<(), String> {
    let clients = if plan.connections.is_empty() { CLIENTS.to_vec() } else { plan.connections.clone() };
    let shape = |clients| Shape { clients, length: Duration::from_secs(plan.seconds), each: 1 };
    let what = |clients| format!("profile updates, {clients} clients");
    let (ours, token) = cluster(3)?;
    let doors = ours.doors("api");
    for &clients in &clients {
        let (doors, token) = (doors.clone(), token.clone());
        let ran = run_closed(&shape(clients), &ours.pids(), move |index| {
            let (addr, token) = (doors[index % doors.len()], token.clone());
            async move { Ours::open(addr, &token, &format!("user-{index}")).await }
        })?;
        sides.add(&what(clients), OURS, round, ran);
    }
    drop(ours);
    for (name, has_standby) in PEERS {
        let theirs = match Postgres::start(has_standby) {
            Ok(theirs) => theirs,
            Err(why) => {
                if round == 0 {
                    report.notes.push(format!("{name} was not run: {why}"));
                }
                continue;
            }
        };
        for &clients in &clients {
            let addr = theirs.addr;
            let ran = run_closed(&shape(clients), &theirs.pids(), move |index| async move {
                let conn = Conn::of_profiles(addr).await?;
                Ok(Theirs { conn, id: format!("user-{index}"), last: 0 })
            })?;
            sides.add(&what(clients), name, round, ran);
        }
    }
    Ok(())
}

/// Median microseconds of a request with its profile, and of one without, on one kept connection in turn.
fn requests(plan: &Plan) -> Result<(f64, f64), String> {
    let (cluster, _) = cluster(1)?;
    let door = cluster.doors("http").first().copied().ok_or("no edge")?;
    let served = |path: &str| http_get(door, path, None).is_ok();
    wait_until("both services serve", || served("/with") && served("/without"))?;
    let begun = Instant::now();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    runtime()?.block_on(async {
        let mut conn = Kept::open(door).await?;
        while begun.elapsed() < Duration::from_secs(plan.seconds) {
            for (path, times) in [("/with", &mut with), ("/without", &mut without)] {
                let request = format!("GET {path} HTTP/1.1\r\nHost: lab\r\nCookie: reader={READER}\r\n\r\n");
                for _ in 0..TURN {
                    let at = Instant::now();
                    let answer = conn.ask(request.as_bytes()).await?;
                    times.push(at.elapsed().as_secs_f64() * 1e6);
                    if answer.status != 200 || !answer.body.starts_with(path.as_bytes()) {
                        return Err(format!("{path} was answered {}", answer.status));
                    }
                }
            }
        }
        Ok::<_, String>(())
    })?;
    // A profile went with each of them.
    let api = cluster.doors("api").first().copied().ok_or("no node")?;
    let figures = http_get(api, "/metrics", None)?;
    let count = |name: &str| -> f64 {
        let lines = figures.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let told = count("coppice_http_profiles_kept_total") + count("coppice_http_profiles_read_total");
    if told < with.len() as f64 {
        return Err(format!("{} requests were to have a profile, {told} had one", with.len()));
    }
    Ok((median(with), median(without)))
}
