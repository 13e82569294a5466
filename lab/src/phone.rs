//! An application as SSM's section 6 has one: callers listen to one message after the other, and which one comes next is
//! their session. Where sessions lie is its choice: in its own memory, in files that are forced to the disk, or in bricks. Each
//! request works for a known time in one of few places and reads and writes its session in that place, so a slow store costs
//! capacity. An answer is the number of the message: 1 is what somebody hears who has no session.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::client::{Conn, command};

pub const STORES: [&str; 3] = ["memory", "disk", "bricks"];
/// Of the namespace of class `session` that it declares for bricks.
pub const NAMESPACE: &str = "calls";
/// Folder, place in it, and what else a call has decided so far.
const SESSION_BYTES: usize = 2048;
/// A store that does not answer by then has failed, and so has the request.
const PATIENCE: Duration = Duration::from_secs(2);

enum Store {
    Memory(Mutex<HashMap<String, Vec<u8>>>),
    Disk(PathBuf),
    Bricks { addr: SocketAddr, auth: (String, String), idle: Mutex<Vec<Conn>> },
}

struct Phone {
    store: Store,
    places: Semaphore,
    takes: Duration,
}

/// The line of a declaration with which this program runs as a clone. Files lie in a folder of each node's own, as if it were
/// its disk.
pub fn run_line(store: &str, at_once: usize, takes: Duration, disk: &std::path::Path) -> Result<String, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?.display().to_string();
    Ok(format!(
        "run = [{me:?}, \"phone\", \"--store\", {store:?}, \"--at-once\", \"{at_once}\", \"--takes-ms\", \"{}\", \"--disk\", {:?}]\n",
        takes.as_millis(),
        disk.display().to_string()
    ))
}

/// Serves HTTP on `HOST` and `PORT` of the environment, as a clone does. Ends with the process.
pub fn run(store: &str, at_once: usize, takes: Duration, disk: PathBuf) -> Result<(), String> {
    let of = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set; this runs as a clone"));
    let addr = format!("{}:{}", of("HOST")?, of("PORT")?);
    let store = match store {
        "memory" => Store::Memory(Mutex::default()),
        "disk" => {
            let member = of("COPPICE_MEMBER")?;
            let disk = disk.join(member.split('.').next().unwrap_or("disk"));
            std::fs::create_dir_all(&disk).map_err(|e| format!("cannot make {}: {e}", disk.display()))?;
            Store::Disk(disk)
        }
        "bricks" => {
            let url = of("COPPICE_CALLS_URL")?;
            let (auth, addr) = read_url(&url).ok_or("COPPICE_CALLS_URL is no redis://USER:PASSWORD@HOST:PORT")?;
            Store::Bricks { addr, auth, idle: Mutex::default() }
        }
        other => return Err(format!("there is no store {other:?}; there are {STORES:?}")),
    };
    let phone = Arc::new(Phone { store, places: Semaphore::new(at_once), takes });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let listener = TcpListener::bind(&addr).await.map_err(|e| format!("cannot listen on {addr}: {e}"))?;
        loop {
            let (stream, _) = listener.accept().await.map_err(|e| e.to_string())?;
            tokio::spawn(serve(stream, Arc::clone(&phone)));
        }
    })
}

fn read_url(url: &str) -> Option<((String, String), SocketAddr)> {
    let (auth, at) = url.strip_prefix("redis://")?.split_once('@')?;
    let (user, password) = auth.split_once(':')?;
    let addr = at.split('/').next()?.parse().ok()?;
    Some(((user.to_owned(), password.to_owned()), addr))
}

async fn serve(mut stream: TcpStream, phone: Arc<Phone>) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while stream.read_buf(&mut buffer).await.is_ok_and(|n| n > 0) {
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head: Vec<u8> = buffer.drain(..end + 4).collect();
        let head = String::from_utf8_lossy(&head).into_owned();
        let (status, body) = match head.split("call=").nth(1).and_then(|rest| rest.split([' ', '\r', ';']).next()) {
            None => ("200 OK", "ok\n".to_owned()),
            Some(call) => match phone.next(call).await {
                Ok(message) => ("200 OK", format!("{message}\n")),
                Err(why) => ("500 Internal Server Error", format!("{why}\n")),
            },
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

impl Phone {
    /// The number of the next message of a call.
    async fn next(&self, call: &str) -> Result<u64, String> {
        let _place = self.places.acquire().await;
        let session = self.store.get(call).await?;
        let before: u64 = session
            .and_then(|session| String::from_utf8_lossy(&session).split(' ').next()?.parse().ok())
            .unwrap_or_default();
        tokio::time::sleep(self.takes).await;
        let mut session = format!("{} inbox ", before + 1).into_bytes();
        session.resize(SESSION_BYTES, b'.');
        self.store.put(call, session).await?;
        Ok(before + 1)
    }
}

impl Store {
    async fn get(&self, call: &str) -> Result<Option<Vec<u8>>, String> {
        match self {
            Store::Memory(sessions) => Ok(sessions.lock().unwrap_or_else(PoisonError::into_inner).get(call).cloned()),
            Store::Disk(folder) => Ok(tokio::fs::read(folder.join(call)).await.ok()),
            Store::Bricks { .. } => self.ask(&[b"GET", call.as_bytes()], true).await,
        }
    }

    async fn put(&self, call: &str, session: Vec<u8>) -> Result<(), String> {
        match self {
            Store::Memory(sessions) => {
                sessions.lock().unwrap_or_else(PoisonError::into_inner).insert(call.to_owned(), session);
                Ok(())
            }
            Store::Disk(folder) => {
                let (part, file) = (folder.join(format!("{call}.part")), folder.join(call));
                let written = async {
                    let mut to = tokio::fs::File::create(&part).await?;
                    to.write_all(&session).await?;
                    to.sync_all().await?;
                    tokio::fs::rename(&part, &file).await
                };
                written.await.map_err(|e| format!("{}: {e}", file.display()))
            }
            Store::Bricks { .. } => {
                self.ask(&[b"SET", call.as_bytes(), &session, b"EX", b"600"], false).await.map(|_| ())
            }
        }
    }

    async fn ask(&self, words: &[&[u8]], gives_value: bool) -> Result<Option<Vec<u8>>, String> {
        let Store::Bricks { addr, auth, idle } = self else { return Ok(None) };
        let taken = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let asked = tokio::time::timeout(PATIENCE, async {
            let mut conn = match taken {
                Some(conn) => conn,
                None => Conn::open(*addr, Some(auth)).await?,
            };
            command(&mut conn.out, words);
            conn.send().await?;
            let answer = if gives_value { conn.bulk().await? } else { conn.status().await.map(|_| None)? };
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
            Ok(answer)
        });
        asked.await.map_err(|_| format!("the bricks did not answer within {PATIENCE:?}"))?
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_address_of_a_namespace_is_read() {
        let read = super::read_url("redis://calls:secret@127.0.0.2:7000/0").expect("it is one");
        assert_eq!(read, (("calls".into(), "secret".into()), "127.0.0.2:7000".parse().expect("an address")));
        assert_eq!(super::read_url("redis://127.0.0.2:7000"), None);
    }
}
