//! What a node says at its doors while it reads its log, which takes seconds where there is much of it: that it is alive, to who asks the
//! API, and to Redis clients that they are to come again (`-LOADING`), as Redis does. For the first moment nothing is said: most starts are
//! over by then, and who waits in a socket's queue is served by the doors when they open.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Before anybody is told anything.
const PATIENCE: Duration = Duration::from_secs(1);
/// One who asks is answered within this, or not at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Of a question that are read.
const QUESTION_BYTES_MAX: usize = 8 << 10;
/// Who are answered at one moment at one door; others wait for their turn.
const AT_ONCE: usize = 64;

const WHY: &str = "this node starts and reads its log";

/// Answers until it is dropped, or said to be over.
#[derive(Debug)]
pub struct Starting(watch::Sender<bool>);

/// How a door is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    Api,
    Resp,
}

impl Starting {
    /// Answers at a socket that is the door's own, too.
    pub fn begin(manner: Manner, io: &Handle, socket: TcpListener) -> Self {
        Self::after(PATIENCE, manner, io, socket)
    }

    fn after(patience: Duration, manner: Manner, io: &Handle, socket: TcpListener) -> Self {
        let (over, mut watched) = watch::channel(false);
        io.spawn(async move {
            let is_over = async { while !*watched.borrow_and_update() && watched.changed().await.is_ok() {} };
            tokio::select! {
                () = is_over => (),
                ended = answers(manner, socket, patience) => {
                    if let Err(error) = ended {
                        tracing::warn!(%error, "nothing is said at a door while the node starts");
                    }
                }
            }
        });
        Self(over)
    }

    /// The door serves from now on. Who is being answered still is.
    pub fn over(&self) {
        self.0.send_replace(true);
    }
}

async fn answers(manner: Manner, socket: TcpListener, patience: Duration) -> io::Result<()> {
    tokio::time::sleep(patience).await;
    socket.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(socket)?;
    let places = std::sync::Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    while let Ok(place) = std::sync::Arc::clone(&places).acquire_owned().await {
        // The doors come upon the same errors, and say them.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        tokio::spawn(async move {
            let _ = tokio::time::timeout(ANSWER_WITHIN, answer(manner, stream)).await;
            drop(place);
        });
    }
    Ok(())
}

async fn answer(manner: Manner, mut stream: TcpStream) -> io::Result<()> {
    let mut question = Vec::new();
    let is_whole = |question: &[u8]| match manner {
        Manner::Api => question.windows(4).any(|end| end == b"\r\n\r\n"),
        // Whatever it is.
        Manner::Resp => question.contains(&b'\n'),
    };
    while !is_whole(&question) && question.len() < QUESTION_BYTES_MAX {
        if stream.read_buf(&mut question).await? == 0 {
            return Ok(());
        }
    }
    stream.write_all(said(manner, &question).as_bytes()).await?;
    stream.shutdown().await?;
    // What else it sends is taken, so that the answer is not lost to a reset.
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

fn said(manner: Manner, question: &[u8]) -> String {
    if manner == Manner::Resp {
        return format!("-LOADING {WHY}\r\n");
    }
    let is_live = [&b"GET /livez "[..], b"HEAD /livez "].iter().any(|begin| question.starts_with(begin));
    let (status, body) = if is_live { ("200 OK", "live: ") } else { ("503 Service Unavailable\r\nRetry-After: 1", "") };
    let length = body.len() + WHY.len() + 1;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if question.starts_with(b"HEAD ") { head } else { format!("{head}{body}{WHY}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(to: std::net::SocketAddr, question: &str) -> String {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(question.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        answer
    }

    #[tokio::test]
    async fn a_node_that_starts_is_alive_and_not_ready_until_its_doors_open() {
        let [api, resp] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let at = [&api, &resp].map(|socket| socket.local_addr().unwrap());
        let kept = api.try_clone().unwrap();
        let begin = |manner, socket| Starting::after(Duration::ZERO, manner, &Handle::current(), socket);
        let (starting, _resp) = (begin(Manner::Api, api), begin(Manner::Resp, resp));
        let live = asked(at[0], "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(
            live.starts_with("HTTP/1.1 200 OK\r\n") && live.ends_with("live: this node starts and reads its log\n")
        );
        for other in ["GET /readyz", "GET /v1/status", "PUT /livez"] {
            let busy = asked(at[0], &format!("{other} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
            assert!(busy.starts_with("HTTP/1.1 503 ") && busy.contains("Retry-After: 1\r\n"), "{busy}");
        }
        for question in ["PING\r\n", "*1\r\n$4\r\nPING\r\n"] {
            assert_eq!(asked(at[1], question).await, "-LOADING this node starts and reads its log\r\n");
        }
        starting.over();
        // From now on who comes is left to the door behind the same socket.
        kept.set_nonblocking(true).unwrap();
        let door = tokio::net::TcpListener::from_std(kept).unwrap();
        for _ in 0..3 {
            let (came, went) =
                tokio::join!(tokio::time::timeout(Duration::from_secs(20), door.accept()), TcpStream::connect(at[0]));
            came.expect("the door has it").unwrap();
            went.unwrap();
        }
    }
}
