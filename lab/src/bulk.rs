//! A service of large bodies: gives as many bytes as are asked for, and takes as many as come. Both sides know what each
//! byte must be, so that what was lost or stands in another place is seen.

use std::io::{Error, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Bytes between two calls of the kernel.
const PIECE: usize = 256 * 1024;
/// Bytes after which they begin anew: a prime, so that a shifted piece is not like its neighbour.
const PERIOD: usize = 251;
/// A body that stands still for so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);
const HEAD_MAX: usize = 16 * 1024;

/// The line of a declaration with which this program runs as a clone.
pub fn run_line() -> Result<String, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?.display().to_string();
    Ok(format!("run = [{me:?}, \"bulk\"]\n"))
}

/// Serves HTTP on `HOST` and `PORT` of the environment, as a clone does. Ends with the process.
pub fn run() -> Result<(), String> {
    let of = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set; this runs as a clone"));
    let addr = format!("{}:{}", of("HOST")?, of("PORT")?);
    let listener = TcpListener::bind(&addr).map_err(|e| format!("cannot listen on {addr}: {e}"))?;
    for stream in listener.incoming() {
        let stream = stream.map_err(|e| e.to_string())?;
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}

/// One connection: `/down/BYTES`, `/up` and `/health`.
fn serve(mut stream: TcpStream) -> Result<(), Error> {
    stream.set_nodelay(true)?;
    let pattern = pattern();
    loop {
        let Some((head, early)) = head(&mut stream)? else { return Ok(()) };
        let path = head.split(' ').nth(1).unwrap_or_default();
        if let Some(bytes) = path.strip_prefix("/down/").and_then(|n| n.parse().ok()) {
            stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").as_bytes())?;
            give(&mut stream, &pattern, bytes)?;
            continue;
        }
        let said = match path {
            "/up" => {
                let bytes = length(&head).ok_or_else(|| Error::other("no length"))?;
                let good = take(&mut stream, &pattern, &early, bytes).is_ok();
                format!("{bytes} {good}\n")
            }
            _ => "ok\n".to_owned(),
        };
        stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{said}", said.len()).as_bytes())?;
    }
}

/// Seconds that a body of so many bytes took to come from `/down` through this door.
pub fn down(door: SocketAddr, bytes: u64) -> Result<f64, String> {
    let begun = Instant::now();
    let asked = format!("GET /down/{bytes} HTTP/1.1\r\nHost: lab\r\n\r\n");
    let come = || {
        let mut stream = open(door)?;
        stream.write_all(asked.as_bytes())?;
        let (head, early) = head(&mut stream)?.ok_or_else(|| Error::other("no answer"))?;
        if !head.starts_with("HTTP/1.1 200") || length(&head) != Some(bytes) {
            return Err(Error::other(head));
        }
        take(&mut stream, &pattern(), &early, bytes)
    };
    come().map_err(|e| format!("{bytes} bytes down through {door}: {e}"))?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Seconds until a body of so many bytes was answered by `/up` through this door.
pub fn up(door: SocketAddr, bytes: u64) -> Result<f64, String> {
    let begun = Instant::now();
    let asked = format!("PUT /up HTTP/1.1\r\nHost: lab\r\nContent-Length: {bytes}\r\n\r\n");
    let go = || {
        let mut stream = open(door)?;
        stream.write_all(asked.as_bytes())?;
        give(&mut stream, &pattern(), bytes)?;
        let (head, mut body) = head(&mut stream)?.ok_or_else(|| Error::other("no answer"))?;
        let all = usize::try_from(length(&head).unwrap_or(0)).unwrap_or(usize::MAX).min(HEAD_MAX);
        while body.len() < all {
            let mut more = [0; 64];
            match stream.read(&mut more)? {
                0 => break,
                n => body.extend_from_slice(&more[..n]),
            }
        }
        let wanted = format!("{bytes} true\n");
        if body == wanted.as_bytes() { Ok(()) } else { Err(Error::other(head + &String::from_utf8_lossy(&body))) }
    };
    go().map_err(|e| format!("{bytes} bytes up through {door}: {e}"))?;
    Ok(begun.elapsed().as_secs_f64())
}

fn open(door: SocketAddr) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect(door)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A piece from any place of a body, by where it begins in its period.
fn pattern() -> Vec<u8> {
    (0..PIECE + PERIOD).map(|at| (at % PERIOD) as u8).collect()
}

fn give(stream: &mut TcpStream, pattern: &[u8], bytes: u64) -> Result<(), Error> {
    let mut sent = 0;
    while sent < bytes {
        let from = (sent % PERIOD as u64) as usize;
        let count = PIECE.min(usize::try_from(bytes - sent).unwrap_or(PIECE));
        stream.write_all(&pattern[from..from + count])?;
        sent += count as u64;
    }
    Ok(())
}

/// Reads a body to its end. What is another byte than it must be is an error.
fn take(stream: &mut TcpStream, pattern: &[u8], early: &[u8], bytes: u64) -> Result<(), Error> {
    let (mut piece, mut come) = (vec![0; PIECE], 0);
    let check = |part: &[u8], come: u64| {
        let from = (come % PERIOD as u64) as usize;
        if part == &pattern[from..from + part.len()] {
            Ok(come + part.len() as u64)
        } else {
            Err(Error::other(format!("other bytes than were sent after {come}")))
        }
    };
    for part in early.chunks(PIECE) {
        come = check(part, come)?;
    }
    while come < bytes {
        let most = PIECE.min(usize::try_from(bytes - come).unwrap_or(PIECE));
        match stream.read(&mut piece[..most])? {
            0 => return Err(Error::other(format!("ended after {come} bytes"))),
            n => come = check(&piece[..n], come)?,
        }
    }
    if come == bytes { Ok(()) } else { Err(Error::other(format!("{come} bytes came"))) }
}

/// A head and what of the body came with it; none at the end of the connection.
fn head(stream: &mut TcpStream) -> Result<Option<(String, Vec<u8>)>, Error> {
    let (mut all, mut piece) = (Vec::new(), [0; 2048]);
    loop {
        if let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = all.split_off(end + 4);
            return Ok(Some((String::from_utf8_lossy(&all).into_owned(), body)));
        }
        match stream.read(&mut piece)? {
            0 if all.is_empty() => return Ok(None),
            n if n > 0 && all.len() < HEAD_MAX => all.extend_from_slice(&piece[..n]),
            _ => return Err(Error::other("half a head")),
        }
    }
}

fn length(head: &str) -> Option<u64> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length")).find_map(|(_, n)| n.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A served connection, and what a client does through it.
    fn served() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten().take(3) {
                std::thread::spawn(move || serve(stream));
            }
        });
        addr
    }

    #[test]
    fn bodies_go_down_and_up_whole() {
        let door = served();
        let odd = (3 * PIECE + 17) as u64;
        assert!(down(door, odd).is_ok());
        assert!(up(door, odd).is_ok());
    }

    #[test]
    fn a_byte_in_another_place_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("one comes");
            let _ = head(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\0\x01\x03\x03");
        });
        let why = down(addr, 4).expect_err("a byte was changed");
        assert!(why.contains("other bytes"), "{why}");
    }
}
