//! A kept connection of HTTP with one request at a time, for answers that say their length.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Kept {
    stream: TcpStream,
    buffer: Vec<u8>,
}

pub struct Answer {
    pub status: u16,
    /// In small letters.
    pub head: String,
    pub body: Vec<u8>,
}

impl Kept {
    pub async fn open(addr: SocketAddr) -> Result<Kept, String> {
        let stream = TcpStream::connect(addr).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        Ok(Kept { stream, buffer: Vec::new() })
    }

    pub async fn ask(&mut self, request: &[u8]) -> Result<Answer, String> {
        self.stream.write_all(request).await.map_err(|e| e.to_string())?;
        loop {
            if let Some(end) = memchr::memmem::find(&self.buffer, b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
                let (status, length) = read(&head).ok_or_else(|| format!("no answer with a length: {head:?}"))?;
                let whole = end + 4 + length;
                while self.buffer.len() < whole {
                    self.fill().await?;
                }
                let body = self.buffer[end + 4..whole].to_vec();
                self.buffer.drain(..whole);
                return Ok(Answer { status, head, body });
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), String> {
        if self.stream.read_buf(&mut self.buffer).await.map_err(|e| e.to_string())? == 0 {
            return Err("the server closed the connection".into());
        }
        Ok(())
    }
}

/// Status, and length of the body.
fn read(head: &str) -> Option<(u16, usize)> {
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    Some((status, if matches!(status, 204 | 304) { 0 } else { length? }))
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_answer_without_a_length_is_none() {
        assert_eq!(super::read("http/1.1 200 ok\r\ncontent-length: 12"), Some((200, 12)));
        assert_eq!(super::read("http/1.1 204 no content"), Some((204, 0)));
        assert_eq!(super::read("http/1.1 200 ok\r\ntransfer-encoding: chunked"), None);
    }
}
