//! An origin of pictures inside the load generator: each path gives one with a comment of its own, so that nothing that
//! anybody keeps can be used twice.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub struct Pictures {
    pub addr: SocketAddr,
    // Ends what it runs when it is dropped.
    _runtime: tokio::runtime::Runtime,
}

impl Pictures {
    /// `picture` gives the body for a path.
    pub fn serve(
        kind: &'static str,
        picture: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
    ) -> Result<Pictures, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).map_err(|e| e.to_string())?;
        let addr = listener.local_addr().map_err(|e| e.to_string())?;
        let picture = Arc::new(picture);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, kind, Arc::clone(&picture)));
            }
        });
        Ok(Pictures { addr, _runtime: runtime })
    }
}

async fn answer(mut stream: TcpStream, kind: &str, picture: Arc<impl Fn(&[u8]) -> Vec<u8>>) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while stream.read_buf(&mut buffer).await.is_ok_and(|n| n > 0) {
        let Some(end) = memchr::memmem::find(&buffer, b"\r\n\r\n") else { continue };
        let head: Vec<u8> = buffer.drain(..end + 4).collect();
        let path = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let body = picture(path);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nCache-Control: no-store\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all(&[head.as_bytes(), &body].concat()).await.is_err() {
            return;
        }
    }
}

/// A JPEG with a comment right after its beginning.
pub fn commented(picture: &[u8], comment: &[u8]) -> Vec<u8> {
    let length = (comment.len() as u16 + 2).to_be_bytes();
    [&picture[..2], &[0xff, 0xfe], &length, comment, &picture[2..]].concat()
}

/// Width and height that a JPEG says of itself.
pub fn size_of(bytes: &[u8]) -> Option<(u16, u16)> {
    let mut at = 2;
    while bytes.get(at)? == &0xff {
        let (kind, two) = (*bytes.get(at + 1)?, bytes.get(at + 2..at + 4)?);
        // A start of frame: precision, height, width.
        if matches!(kind, 0xc0..=0xc2) {
            let of = |from: usize| Some(u16::from_be_bytes(bytes.get(from..from + 2)?.try_into().ok()?));
            return Some((of(at + 7)?, of(at + 5)?));
        }
        at += 2 + usize::from(u16::from_be_bytes(two.try_into().ok()?));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_changes_the_file_and_not_the_picture() {
        let frame = [0xff, 0xc0, 0, 11, 8, 0, 240, 1, 64, 1, 1, 0x11, 0];
        let picture = [&[0xff, 0xd8][..], &frame].concat();
        let other = commented(&picture, b"/7.jpg");
        assert_eq!((size_of(&picture), size_of(&other)), (Some((320, 240)), Some((320, 240))));
        assert_ne!(picture, other);
        assert_eq!(size_of(b"\xff\xd8\xff"), None);
    }
}
