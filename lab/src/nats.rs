//! NATS KV as a peer of `durability = "memory"`: three nodes of a program found in `COPPICE_LAB_NATS` or on the path, with a bucket
//! of three replicas as it comes (files, forced to disk every two minutes), and the little of its protocol that puts and gets need.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::cluster::free_port;
use crate::peers::{Program, scratch, wait_until};

const MISSING: &str = "nats-server, with its path in COPPICE_LAB_NATS unless it is on the PATH";
const BUCKET: &str = "lab";

pub struct Nats {
    programs: Vec<Program>,
    pub addrs: Vec<SocketAddr>,
}

impl Nats {
    pub fn start() -> Result<Nats, String> {
        let program = std::env::var("COPPICE_LAB_NATS").unwrap_or_else(|_| "nats-server".to_owned());
        let ports: Vec<(u16, u16)> =
            (0..3).map(|_| Ok((free_port(1)?, free_port(1)?))).collect::<Result<_, String>>()?;
        let routes: Vec<String> = ports.iter().map(|(_, peer)| format!("nats://127.0.0.1:{peer}")).collect();
        let (routes, mut programs, mut addrs) = (routes.join(","), Vec::new(), Vec::new());
        for (n, (client, peer)) in ports.into_iter().enumerate() {
            let (port, at) = (client.to_string(), format!("nats://127.0.0.1:{peer}"));
            let name = format!("n{n}");
            let args = ["-a", "127.0.0.1", "-p", &port, "-n", &name, "-js", "-sd", "data"];
            let args: Vec<&str> =
                args.into_iter().chain(["--cluster_name", "lab", "--cluster", &at, "--routes", &routes]).collect();
            programs.push(Program::start(MISSING, &program, scratch(&format!("nats-{client}")), &args)?);
            addrs.push(SocketAddr::from(([127, 0, 0, 1], client)));
        }
        let nats = Nats { programs, addrs };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        wait_until("NATS has a bucket of three replicas", || runtime.block_on(bucket(nats.addrs[0])).is_ok())?;
        Ok(nats)
    }

    pub fn pids(&self) -> Vec<i32> {
        self.programs.iter().map(Program::pid).collect()
    }
}

/// Makes the bucket as NATS' own clients do.
async fn bucket(addr: SocketAddr) -> Result<(), String> {
    let config = serde_json::json!({
        "name": format!("KV_{BUCKET}"), "subjects": [format!("$KV.{BUCKET}.>")], "num_replicas": 3, "storage": "file",
        "retention": "limits", "discard": "new", "max_msgs_per_subject": 1, "max_msgs": -1, "max_bytes": -1, "max_age": 0,
        "allow_rollup_hdrs": true, "deny_delete": true, "allow_direct": true,
    })
    .to_string();
    let mut conn = Conn::open(addr).await?;
    let subject = format!("$JS.API.STREAM.CREATE.KV_{BUCKET}");
    let asked = conn.ask(&subject, config.as_bytes());
    let answer = tokio::time::timeout(std::time::Duration::from_secs(5), asked).await.map_err(|e| e.to_string())??;
    good(&answer.body)
}

fn good(answer: &[u8]) -> Result<(), String> {
    let answer: serde_json::Value = serde_json::from_slice(answer).map_err(|e| format!("no JSON from NATS: {e}"))?;
    if answer["error"].is_null() { Ok(()) } else { Err(answer["error"].to_string()) }
}

struct Answer {
    /// With its first line, which has a status if there is no value.
    head: Vec<u8>,
    body: Vec<u8>,
}

/// One connection, with one request at a time.
pub struct Conn {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
    /// Where its answers come to; nobody else's do.
    inbox: String,
    asked: u64,
}

impl Conn {
    pub async fn open(addr: SocketAddr) -> Result<Conn, String> {
        let stream = TcpStream::connect(addr).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let from = stream.local_addr().map_err(|e| e.to_string())?;
        let (read, mut write) = stream.into_split();
        let inbox = format!("_INBOX.{}", from.port());
        let hello =
            format!("CONNECT {{\"verbose\":false,\"headers\":true,\"no_responders\":true}}\r\nSUB {inbox}.* 1\r\n");
        write.write_all(hello.as_bytes()).await.map_err(|e| e.to_string())?;
        Ok(Conn { read: BufReader::with_capacity(64 << 10, read), write, inbox, asked: 0 })
    }

    pub async fn put(&mut self, key: &str, value: &[u8]) -> Result<(), String> {
        let answer = self.ask(&format!("$KV.{BUCKET}.{key}"), value).await?;
        good(&answer.body)
    }

    pub async fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let answer = self.ask(&format!("$JS.API.DIRECT.GET.KV_{BUCKET}.$KV.{BUCKET}.{key}"), b"").await?;
        Ok((!answer.head.starts_with(b"NATS/1.0 404")).then_some(answer.body))
    }

    async fn ask(&mut self, subject: &str, value: &[u8]) -> Result<Answer, String> {
        self.asked += 1;
        let mut out = format!("PUB {subject} {}.{} {}\r\n", self.inbox, self.asked, value.len()).into_bytes();
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
        self.write.write_all(&out).await.map_err(|e| e.to_string())?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Answer, String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.read.read_line(&mut line).await.map_err(|e| e.to_string())? == 0 {
                return Err("NATS has ended the connection".into());
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            // MSG subject sid bytes, or HMSG subject sid bytes-of-head bytes-of-all.
            let (head, all) = match *words.as_slice() {
                ["PING"] => {
                    self.write.write_all(b"PONG\r\n").await.map_err(|e| e.to_string())?;
                    continue;
                }
                ["MSG", subject, _, all] if self.is_asked(subject) => (0, number(all)?),
                ["HMSG", subject, _, head, all] if self.is_asked(subject) => (number(head)?, number(all)?),
                ["-ERR", ..] => return Err(format!("NATS says {}", line.trim())),
                _ => continue,
            };
            let mut message = vec![0; all + 2];
            self.read.read_exact(&mut message).await.map_err(|e| e.to_string())?;
            message.truncate(all);
            let body = message.split_off(head.min(all));
            return Ok(Answer { head: message, body });
        }
    }

    fn is_asked(&self, subject: &str) -> bool {
        subject.rsplit('.').next().and_then(|n| n.parse().ok()) == Some(self.asked)
    }
}

fn number(word: &str) -> Result<usize, String> {
    word.parse().ok().filter(|n| *n <= 64 << 20).ok_or_else(|| format!("NATS says {word} where a length belongs"))
}
