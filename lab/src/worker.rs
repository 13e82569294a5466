//! A service whose capacity is known: so many requests at once, each takes so long, more wait in it in their order. It
//! costs nearly no processor time, so what an experiment sees is the edge and not the program.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Serves HTTP on `HOST` and `PORT` of the environment, as a clone does. Ends with the process.
pub fn run(at_once: usize, takes: Duration) -> Result<(), String> {
    let of = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set; this runs as a clone"));
    let addr = format!("{}:{}", of("HOST")?, of("PORT")?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let listener = TcpListener::bind(&addr).await.map_err(|e| format!("cannot listen on {addr}: {e}"))?;
        let places = Arc::new(Semaphore::new(at_once));
        loop {
            let (stream, _) = listener.accept().await.map_err(|e| e.to_string())?;
            tokio::spawn(serve(stream, Arc::clone(&places), takes));
        }
    })
}

async fn serve(mut stream: TcpStream, places: Arc<Semaphore>, takes: Duration) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while stream.read_buf(&mut buffer).await.is_ok_and(|n| n > 0) {
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let is_health = buffer.starts_with(b"GET /health ");
        buffer.drain(..end + 4);
        if !is_health {
            let _place = places.acquire().await;
            tokio::time::sleep(takes).await;
        }
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n").await.is_err() {
            return;
        }
    }
}
