//! Class `object` by HTTP: objects of 4.7 KB put on the disks of two of three nodes, and read through any. It has no peer:
//! MinIO is not to be had as a package.

use std::net::SocketAddr;
use std::time::Duration;

use crate::Plan;
use crate::closed::{Caller, Shape, run as run_closed, runtime};
use crate::keep::Kept;
use crate::peers::wait_until;
use crate::report::Report;
use crate::sides::{OURS, Sides};
use crate::space::token_of;

const CLIENTS: [usize; 2] = [16, 64];
const BYTES: usize = 4700;
/// That each client has, where they are read.
const HELD: u64 = 16;

pub fn run(plan: &Plan) -> Result<Report, String> {
    let mut report = Report::new("objects");
    let mut sides = Sides::default();
    let clients = if plan.connections.is_empty() { CLIENTS.to_vec() } else { plan.connections.clone() };
    for round in 0..plan.rounds {
        let (cluster, token) = token_of(3, "class = \"object\"\n")?;
        let doors = cluster.doors("api");
        let runtime = runtime()?;
        let works = |(node, addr): (usize, &SocketAddr)| {
            let put = async { Client::open(*addr, token.clone(), node as u64, true).await?.put(0).await };
            runtime.block_on(put).is_ok_and(|is_twice| is_twice)
        };
        wait_until("objects are put at every node", || doors.iter().enumerate().all(works))?;
        for (n, (is_put, &clients)) in
            [true, false].iter().flat_map(|put| clients.iter().map(move |n| (*put, n))).enumerate()
        {
            let shape = Shape { clients, length: Duration::from_secs(plan.seconds), each: 1 };
            let (doors, token) = (doors.clone(), token.clone());
            let ran = run_closed(&shape, &cluster.pids(), move |index| {
                let (addr, token) = (doors[index % doors.len()], token.clone());
                // Ids are of this run alone: an object never changes.
                async move { Client::open(addr, token, (n as u64 + 1) << 32 | index as u64, is_put).await }
            })?;
            let does = if is_put { "puts" } else { "gets" };
            sides.add(&format!("{does} of 4.7 KB, 3 nodes, 2 copies, {clients} clients"), OURS, round, ran);
        }
    }
    sides.tell(&mut report, &plan.out)?;
    Ok(report)
}

struct Client {
    conn: Kept,
    addr: SocketAddr,
    token: String,
    me: u64,
    is_put: bool,
    /// The one that was put last.
    last: u64,
}

impl Client {
    async fn open(addr: SocketAddr, token: String, me: u64, is_put: bool) -> Result<Client, String> {
        let mut client = Client { conn: Kept::open(addr).await?, addr, token, me, is_put, last: 0 };
        if !is_put {
            for n in 1..=HELD {
                client.put(n).await?;
            }
        }
        Ok(client)
    }

    fn head(&self, method: &str, n: u64) -> String {
        format!(
            "{method} /v1/ns/lab/objects/owner-{}/{:016x}{n:016x} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n",
            self.me, self.me, self.addr, self.token
        )
    }

    fn body(&self, n: u64) -> Vec<u8> {
        format!("{}:{n};", self.me).into_bytes().into_iter().cycle().take(BYTES).collect()
    }

    async fn put(&mut self, n: u64) -> Result<bool, String> {
        let head = format!("{}Content-Length: {BYTES}\r\n\r\n", self.head("PUT", n));
        let answer = self.conn.ask(&[head.as_bytes(), &self.body(n)].concat()).await?;
        match answer.status {
            200 | 201 | 204 => Ok(answer.head.contains("coppice-copies: 2")),
            status => Err(format!("HTTP {status}: {}", String::from_utf8_lossy(&answer.body))),
        }
    }

    async fn get(&mut self, n: u64) -> Result<bool, String> {
        let answer = self.conn.ask(format!("{}\r\n", self.head("GET", n)).as_bytes()).await?;
        match answer.status {
            200 => Ok(answer.body == self.body(n)),
            status => Err(format!("HTTP {status}: {}", String::from_utf8_lossy(&answer.body))),
        }
    }
}

impl Caller for Client {
    /// Stored at two nodes; or whole.
    async fn call(&mut self, turn: u64) -> Result<bool, String> {
        if !self.is_put {
            return self.get(turn % HELD + 1).await;
        }
        self.last = turn;
        self.put(turn).await
    }

    async fn check(&mut self) -> Result<u64, String> {
        if !self.is_put || self.last == 0 {
            return Ok(0);
        }
        self.get(self.last).await.map(|good| u64::from(!good))
    }
}
