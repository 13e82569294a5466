//! A parrot with three doors. At `say` it repeats each line, at `shout` in capitals, at `whisper` behind TLS, with the certificates of its
//! node's folder. It speaks first, as mail servers do, and has a word for its goodbye: who comes again is at another clone.
//!
//!     nc 127.0.0.1 7001        openssl s_client -quiet -connect 127.0.0.1:7003

use std::sync::Arc;

use sdk::tokio_rustls::TlsAcceptor;
use sdk::{Certificates, Conn, Drain, Service, StartError};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

/// Longest line; who says more is not heard out.
const LINE_BYTES_MAX: u64 = 1024;

#[tokio::main]
async fn main() -> Result<(), StartError> {
    let service = Service::from_env()?;
    let node: Arc<str> = service.given().node.as_str().into();
    let certificates = service.certificates().await?;
    service.serve_tcp(move |conn| come(conn, Arc::clone(&node), certificates.clone())).await
}

async fn come(conn: Conn, node: Arc<str>, certificates: Certificates) {
    let Conn { stream, peer, door, drain, .. } = conn;
    let hello = format!("220 {peer} at {door} of {node}\n");
    // An error is the client's going away, which is no news.
    let _ = match &*door {
        "whisper" => match certificates.config(&[]) {
            Ok(config) if !certificates.is_empty() => match TlsAcceptor::from(config).accept(stream).await {
                Ok(stream) => talk(stream, &hello, &drain, str::to_owned).await,
                Err(error) => Err(error),
            },
            Ok(_) | Err(_) => return,
        },
        "shout" => talk(stream, &hello, &drain, str::to_uppercase).await,
        _ => talk(stream, &hello, &drain, str::to_owned).await,
    };
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite,
    hello: &str,
    drain: &Drain,
    repeat: fn(&str) -> String,
) -> std::io::Result<()> {
    let (read, mut write) = tokio::io::split(stream);
    let mut read = BufReader::new(read);
    write.write_all(hello.as_bytes()).await?;
    let mut line = String::new();
    loop {
        let mut bounded = (&mut read).take(LINE_BYTES_MAX);
        tokio::select! {
            _ = bounded.read_line(&mut line) => (),
            () = drain.told() => line.clear(),
        }
        if !line.ends_with('\n') {
            // The client is gone, or the node ends the connection, as the clone leaves; or it is this clone's own goodbye.
            write.write_all(b"421 come again\n").await?;
            return write.shutdown().await;
        }
        write.write_all(repeat(&line).as_bytes()).await?;
        line.clear();
    }
}
