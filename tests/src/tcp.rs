//! A client of a TCP service that answers lines.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any good answer takes.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// A new connection, one line, and what the clone answers to it.
pub fn ask(at: SocketAddr) -> Result<String, String> {
    let mut stream = TcpStream::connect(at).map_err(|e| format!("connect: {e}"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|e| format!("timeout: {e}"))?;
    stream.write_all(b"honey\n").map_err(|e| format!("write: {e}"))?;
    let mut said = String::new();
    match BufReader::new(stream).read_line(&mut said) {
        Ok(0) => Err("it ended".into()),
        Ok(_) => Ok(said.trim().to_owned()),
        Err(e) => Err(format!("read: {e}")),
    }
}
