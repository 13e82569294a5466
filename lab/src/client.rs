//! One connection of the Redis protocol, as the load generators use it: commands out, answers in, in order.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub struct Conn {
    stream: tokio::net::TcpStream,
    /// Commands to be sent.
    pub out: Vec<u8>,
    buffer: Vec<u8>,
}

impl Conn {
    pub async fn open(addr: SocketAddr, auth: Option<&(String, String)>) -> Result<Conn, String> {
        let stream = tokio::net::TcpStream::connect(addr).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let mut conn = Conn { stream, out: Vec::new(), buffer: Vec::new() };
        if let Some((user, password)) = auth {
            command(&mut conn.out, &[b"AUTH", user.as_bytes(), password.as_bytes()]);
            conn.send().await?;
            conn.status().await?;
        }
        Ok(conn)
    }

    pub async fn send(&mut self) -> Result<(), String> {
        self.stream.write_all(&self.out).await.map_err(|e| e.to_string())?;
        self.out.clear();
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), String> {
        if self.stream.read_buf(&mut self.buffer).await.map_err(|e| e.to_string())? == 0 {
            return Err("the server closed the connection".into());
        }
        Ok(())
    }

    async fn line(&mut self) -> Result<String, String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.buffer.drain(..end + 2);
                return Ok(line);
            }
            self.fill().await?;
        }
    }

    pub async fn status(&mut self) -> Result<String, String> {
        let line = self.line().await?;
        if line.starts_with('-') { Err(line) } else { Ok(line) }
    }

    pub async fn bulk_equals(&mut self, value: &[u8]) -> Result<bool, String> {
        let Some(len) = self.bulk_len().await? else { return Ok(false) };
        let equal = &self.buffer[..len] == value;
        self.buffer.drain(..len + 2);
        Ok(equal)
    }

    /// Whether the next answers are exactly this, so many times. An error of the server is one here; after anything else
    /// that differs the connection is of no more use.
    pub async fn exactly(&mut self, expected: &[u8], times: usize) -> Result<bool, String> {
        let mut at = 0;
        for _ in 0..times {
            loop {
                let came = &self.buffer[at..];
                let have = came.len().min(expected.len());
                if came[..have] != expected[..have] {
                    let is_error = came[0] == b'-';
                    self.buffer.drain(..at);
                    return if is_error { Err(self.line().await?) } else { Ok(false) };
                }
                if have == expected.len() {
                    break;
                }
                self.fill().await?;
            }
            at += expected.len();
        }
        self.buffer.drain(..at);
        Ok(true)
    }

    /// A value; none if there is none.
    pub async fn bulk(&mut self) -> Result<Option<Vec<u8>>, String> {
        let Some(len) = self.bulk_len().await? else { return Ok(None) };
        let value = self.buffer[..len].to_vec();
        self.buffer.drain(..len + 2);
        Ok(Some(value))
    }

    /// Length of the value that comes next and is all in the buffer then.
    async fn bulk_len(&mut self) -> Result<Option<usize>, String> {
        let line = self.status().await?;
        let len: i64 =
            line.strip_prefix('$').and_then(|n| n.parse().ok()).ok_or_else(|| format!("not a value: {line}"))?;
        let Ok(len) = usize::try_from(len) else { return Ok(None) };
        while self.buffer.len() < len + 2 {
            self.fill().await?;
        }
        Ok(Some(len))
    }
}

/// Appends one command.
pub fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}
