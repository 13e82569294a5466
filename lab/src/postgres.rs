//! PostgreSQL as a peer of profiles: one server, or one with a standby that it waits for, and the little of its protocol
//! that one prepared statement needs. Each commit is forced to disk.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::free_port;
use crate::peers::{Program, ask, scratch, wait_until};

const PACKAGE: &str = "postgresql";
/// It does not start as root; then as this one, whom the package makes.
const USER: &str = "postgres";

pub struct Postgres {
    /// Ended before the one that it follows.
    standby: Option<Program>,
    primary: Program,
    pub addr: SocketAddr,
}

impl Postgres {
    pub fn start(has_standby: bool) -> Result<Postgres, String> {
        let port = free_port(1)?;
        let dir = folder(port)?;
        let data = dir.join("data");
        let data = data.display().to_string();
        run("initdb", &["-D", &data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale"])?;
        // As many as any experiment has, and the standby.
        append(&dir.join("data/postgresql.conf"), "max_connections = 400\n")?;
        if has_standby {
            append(&dir.join("data/postgresql.conf"), "synchronous_standby_names = '*'\n")?;
        }
        let primary = serve(port, dir, &data)?;
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        let mut standby = None;
        if has_standby {
            let (at, from) = (free_port(1)?, format!("host=127.0.0.1 port={port} user={USER}"));
            let dir = folder(at)?;
            let data = dir.join("data").display().to_string();
            run("pg_basebackup", &["-D", &data, "-R", "-c", "fast", "-d", &from])?;
            standby = Some(serve(at, dir, &data)?);
        }
        let postgres = Postgres { standby, primary, addr };
        let runtime = crate::closed::runtime()?;
        // With a standby that it waits for this returns when that one follows.
        wait_until("PostgreSQL has its table", || runtime.block_on(made(addr)).is_ok())?;
        Ok(postgres)
    }

    pub fn pids(&self) -> Vec<i32> {
        [Some(&self.primary), self.standby.as_ref()].into_iter().flatten().map(Program::pid).collect()
    }
}

async fn made(addr: SocketAddr) -> Result<(), String> {
    let make = async { Conn::open(addr).await?.run(TABLE).await };
    tokio::time::timeout(std::time::Duration::from_secs(5), make).await.map_err(|e| e.to_string())?
}

/// As a namespace of class `sql` has it for a profile.
const TABLE: &str = "create table if not exists profile_readers (id text primary key, version integer not null, \
    profile text not null, changed_at timestamptz not null default now())";
const UPDATE: &str = "insert into profile_readers (id, version, profile) values ($1, 1, $2) on conflict (id) do update \
    set version = profile_readers.version + 1, profile = excluded.profile, changed_at = now() returning version";
const READ: &str = "select profile from profile_readers where id = $1";

fn folder(port: u16) -> Result<PathBuf, String> {
    let dir = scratch(&format!("postgres-{port}"));
    std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    if is_root() {
        let given = Command::new("chown").arg(USER).arg(&dir).output().map_err(|e| e.to_string())?;
        if !given.status.success() {
            return Err(format!("there is no user {USER} whom PostgreSQL could run as (package {PACKAGE})"));
        }
    }
    Ok(dir)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where Debian puts the newest one, or as the path finds it.
fn program(name: &str) -> String {
    let all = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = all.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).max();
    found.map_or_else(|| name.to_owned(), |path| path.display().to_string())
}

/// Program and arguments, as the user that may.
fn line(name: &str, args: &[&str]) -> Vec<String> {
    let user = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"];
    let user: &[&str] = if is_root() { &user } else { &[] };
    let all = user.iter().map(|word| (*word).to_owned()).chain([program(name)]);
    all.chain(args.iter().map(|word| (*word).to_owned())).collect()
}

fn run(name: &str, args: &[&str]) -> Result<(), String> {
    let words = line(name, args);
    let output = Command::new(&words[0]).args(&words[1..]).current_dir("/").output();
    let output = output.map_err(|e| format!("{name} cannot be started ({e}); it is in the package {PACKAGE}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{name} (package {PACKAGE}): {}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn append(file: &Path, text: &str) -> Result<(), String> {
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new().append(true).open(file).map_err(|e| e.to_string())?;
    file.write_all(text.as_bytes()).map_err(|e| e.to_string())
}

fn serve(port: u16, dir: PathBuf, data: &str) -> Result<Program, String> {
    let port_text = port.to_string();
    let options =
        ["listen_addresses=127.0.0.1", "unix_socket_directories=", "synchronous_commit=on", "max_connections=300"];
    let mut args = vec!["-D", data, "-p", &port_text];
    options.iter().for_each(|option| args.extend(["-c", option]));
    let words = line("postgres", &args);
    let rest: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let program = Program::start(PACKAGE, &words[0], dir, &rest)?;
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    // It answers one byte to who asks whether it speaks TLS.
    wait_until("PostgreSQL answers", || ask(addr, &[0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f]).is_some_and(|said| said == "N"))?;
    Ok(program)
}

/// One connection with its statements prepared, one after the other.
pub struct Conn {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Conn {
    async fn open(addr: SocketAddr) -> Result<Conn, String> {
        let stream = TcpStream::connect(addr).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let mut conn = Conn { stream, buffer: Vec::new() };
        let words = format!("user\0{USER}\0database\0{USER}\0\0");
        let mut hello = (words.len() as u32 + 8).to_be_bytes().to_vec();
        hello.extend(196_608_u32.to_be_bytes());
        hello.extend(words.as_bytes());
        conn.stream.write_all(&hello).await.map_err(|e| e.to_string())?;
        conn.rows().await?;
        Ok(conn)
    }

    /// With what is needed for profiles.
    pub async fn of_profiles(addr: SocketAddr) -> Result<Conn, String> {
        let mut conn = Conn::open(addr).await?;
        let mut out = Vec::new();
        for (name, text) in [("u", UPDATE), ("r", READ)] {
            message(&mut out, b'P', format!("{name}\0{text}\0\0\0").as_bytes());
        }
        message(&mut out, b'S', b"");
        conn.stream.write_all(&out).await.map_err(|e| e.to_string())?;
        conn.rows().await?;
        Ok(conn)
    }

    async fn run(&mut self, text: &str) -> Result<(), String> {
        let mut out = Vec::new();
        message(&mut out, b'Q', format!("{text}\0").as_bytes());
        self.stream.write_all(&out).await.map_err(|e| e.to_string())?;
        self.rows().await.map(drop)
    }

    /// The version that came of it.
    pub async fn update(&mut self, id: &str, profile: &str) -> Result<u64, String> {
        let row = self.execute("u", &[id, profile]).await?;
        row.and_then(|version| version.parse().ok()).ok_or_else(|| "no version came back".into())
    }

    pub async fn read(&mut self, id: &str) -> Result<Option<String>, String> {
        self.execute("r", &[id]).await
    }

    async fn execute(&mut self, name: &str, values: &[&str]) -> Result<Option<String>, String> {
        let mut bind = format!("\0{name}\0").into_bytes();
        bind.extend([0, 0]);
        bind.extend((values.len() as u16).to_be_bytes());
        for value in values {
            bind.extend((value.len() as u32).to_be_bytes());
            bind.extend(value.as_bytes());
        }
        bind.extend([0, 0]);
        let mut out = Vec::new();
        message(&mut out, b'B', &bind);
        message(&mut out, b'E', &[0, 0, 0, 0, 0]);
        message(&mut out, b'S', b"");
        self.stream.write_all(&out).await.map_err(|e| e.to_string())?;
        self.rows().await
    }

    /// Reads until it is ready for more: the first value of the first row.
    async fn rows(&mut self) -> Result<Option<String>, String> {
        let (mut first, mut failed) = (None, None);
        loop {
            let (kind, body) = self.message().await?;
            match kind {
                b'Z' => return failed.map_or(Ok(first), Err),
                // Columns, then the length of the first one.
                b'D' if first.is_none() => {
                    let length = body.get(2..6).and_then(|four| four.try_into().ok()).map(u32::from_be_bytes);
                    let value = length.and_then(|length| body.get(6..6 + length as usize));
                    first = value.map(|value| String::from_utf8_lossy(value).into_owned());
                }
                b'E' => failed = Some(String::from_utf8_lossy(&body).replace('\0', " ")),
                _ => (),
            }
        }
    }

    async fn message(&mut self) -> Result<(u8, Vec<u8>), String> {
        loop {
            if let Some(length) = self.buffer.get(1..5).and_then(|four| four.try_into().ok()).map(u32::from_be_bytes) {
                let whole = length as usize + 1;
                if self.buffer.len() >= whole {
                    let (kind, body) = (self.buffer[0], self.buffer.get(5..whole).unwrap_or_default().to_vec());
                    self.buffer.drain(..whole);
                    return Ok((kind, body));
                }
            }
            if self.stream.read_buf(&mut self.buffer).await.map_err(|e| e.to_string())? == 0 {
                return Err("PostgreSQL has ended the connection".into());
            }
        }
    }
}

fn message(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    out.extend((body.len() as u32 + 4).to_be_bytes());
    out.extend(body);
}
