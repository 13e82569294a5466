//! What is in a mailbox: objects of class `object`, whose owner is the account's address. They are written once: a
//! deletion is final, whatever copy comes back later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sdk::{ObjectError, ObjectId, ObjectReader, Objects};
use tokio::sync::Semaphore;

use crate::limits::*;
use crate::pop::{Entry, NotOpened};
use crate::smtp::Delivered;

/// All mailboxes. Cheap to clone.
#[derive(Clone)]
pub struct Mailboxes {
    objects: Objects,
    /// Large messages on their way to the cluster, or back for another look.
    large: Arc<Semaphore>,
    used: Arc<Mutex<HashMap<String, Used>>>,
}

/// What a mailbox held when it was last looked at, and what came here since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used {
    pub bytes: u64,
    pub messages: u64,
    seen: Instant,
}

impl Mailboxes {
    pub fn new(objects: Objects) -> Self {
        Self { objects, large: Arc::new(Semaphore::new(LARGE_AT_A_TIME)), used: Arc::default() }
    }

    /// Stores a message. `Stored` is said when it is on as many disks as the namespace asks for, or was so before.
    pub async fn put(&self, mailbox: &str, id: ObjectId, parts: [Bytes; 2]) -> Delivered {
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        // None if nobody gives turns any more, which does not happen.
        let _turn = if bytes > LARGE_BYTES { self.large.acquire().await.ok() } else { None };
        let put = match self.objects.put_parts(mailbox, id, parts).await {
            // It came before, under another stamp of ours, and perhaps nobody was told that it is stored: what is
            // there is made sure of.
            Err(ObjectError::Conflict(_)) => match self.objects.get(mailbox, id).await {
                Ok(Some(there)) => self.objects.put_as(mailbox, id, there.body).await.map(|_| false),
                Ok(None) => return Delivered::Later,
                Err(error) => Err(error),
            },
            done => done.map(|_| true),
        };
        match put {
            Ok(is_new) => {
                if is_new && let Some(used) = self.known().get_mut(mailbox) {
                    used.bytes += bytes as u64;
                    used.messages += 1;
                }
                Delivered::Stored
            }
            // It came before, was read, and is not wanted again.
            Err(ObjectError::Deleted) => Delivered::Stored,
            Err(ObjectError::Full(_)) => {
                tracing::warn!(mailbox, %id, "a message is not taken: the disks of all nodes are full");
                Delivered::Full
            }
            Err(error) => {
                tracing::warn!(%error, mailbox, %id, "a message is not known to be stored");
                Delivered::Later
            }
        }
    }

    /// The messages of a mailbox that can be reached, the oldest first.
    pub async fn list(&self, mailbox: &str) -> Result<Vec<Entry>, ObjectError> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = self.objects.list(mailbox, after, LIST_PAGE).await?;
            if !page.missing.is_empty() {
                tracing::info!(mailbox, missing = ?page.missing, "a list may lack messages that only nodes have that are away");
            }
            found.extend(page.objects);
            after = page.after;
            if after.is_none() || found.len() >= LISTED_MAX {
                break;
            }
        }
        // A version begins with the time of the write. Nothing rests on this order but what a person sees.
        found.sort_by_cached_key(|head| (head.version.to_string(), head.id));
        Ok(found.into_iter().map(|head| Entry { id: head.id, bytes: head.bytes }).collect())
    }

    /// A message, to be read piece by piece.
    pub async fn open(&self, mailbox: &str, id: ObjectId) -> Result<ObjectReader, NotOpened> {
        match self.objects.read(mailbox, id).await {
            Ok(Some(reader)) => Ok(reader),
            Ok(None) | Err(ObjectError::Deleted) => Err(NotOpened::Gone),
            Err(error) => {
                tracing::warn!(%error, mailbox, %id, "a message cannot be read");
                Err(NotOpened::Later)
            }
        }
    }

    /// Deletes messages. Gives how many are not known to be deleted.
    pub async fn delete(&self, mailbox: &str, ids: Vec<ObjectId>) -> usize {
        let deletes = ids.into_iter().map(|id| async move {
            match self.objects.delete(mailbox, id).await {
                Ok(_) | Err(ObjectError::Deleted) => 0,
                Err(error) => {
                    tracing::warn!(%error, mailbox, %id, "a message is not known to be deleted");
                    1
                }
            }
        });
        let failed =
            stream::iter(deletes).buffer_unordered(DELETES_AT_A_TIME).fold(0, async |sum, one| sum + one).await;
        self.known().remove(mailbox);
        failed
    }

    /// What a mailbox holds: a few seconds old, and with what came through this clone since.
    pub async fn used(&self, mailbox: &str) -> Result<Used, ObjectError> {
        if let Some(used) = self.known().get(mailbox).filter(|used| used.seen.elapsed() < USED_TIME) {
            return Ok(*used);
        }
        let entries = self.list(mailbox).await?;
        let bytes = entries.iter().map(|entry| entry.bytes).sum();
        let used = Used { bytes, messages: entries.len() as u64, seen: Instant::now() };
        let mut known = self.known();
        if known.len() >= USED_MAX {
            known.clear();
        }
        known.insert(mailbox.to_owned(), used);
        Ok(used)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Used>> {
        // What is inside is whole at every moment.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of a mailbox's use is looked up anew after this.
const USED_TIME: Duration = Duration::from_secs(5);
/// Mailboxes with a quota of which it is known; then all are forgotten.
const USED_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    use super::*;

    const STORED: &str = "204 No Content\r\netag: \"8a\"\r\ncoppice-copies: 2\r\n";
    const THERE: &str = "200 OK\r\netag: \"8a\"\r\ncontent-length: 5\r\n";
    const CONFLICT: &str = "409 Conflict\r\netag: \"8a\"\r\ncontent-length: 0\r\n";
    const GONE: &str = "410 Gone\r\ncontent-length: 0\r\n";
    const ABSENT: &str = "404 Not Found\r\ncontent-length: 0\r\n";
    const FULL: &str = "503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 31\r\n";
    const REFUSED: &str = "413 Content Too Large\r\ncontent-length: 0\r\n";

    /// A node that gives these answers, one connection each.
    fn node(answers: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = Vec::new();
                // The head, and behind it the message, which ends with a dash.
                while !asked.ends_with(b"\r\n\r\n") || asked.starts_with(b"PUT") && !asked.ends_with(b"-") {
                    let mut some = [0; 1024];
                    let count = stream.read(&mut some).unwrap();
                    asked.extend(&some[..count]);
                    if count == 0 || asked.ends_with(b"-") {
                        break;
                    }
                }
                let body = match *answer {
                    THERE => "text-",
                    FULL => r#"{"error": "no", "type": "full"}"#,
                    _ => "",
                };
                write!(stream, "HTTP/1.1 {answer}connection: close\r\n\r\n{body}").unwrap();
            }
        });
        at
    }

    #[tokio::test]
    async fn stored_is_said_only_of_what_is_on_disks_or_was_deleted_since() {
        for (answers, said) in [
            (&[STORED][..], Delivered::Stored),
            (&[GONE], Delivered::Stored),
            (&[REFUSED], Delivered::Later),
            (&[FULL], Delivered::Full),
            // Other bytes are there under the id: they are put once more, as nobody knows whether both disks have them.
            (&[CONFLICT, THERE, STORED], Delivered::Stored),
            (&[CONFLICT, THERE, REFUSED], Delivered::Later),
            (&[CONFLICT, ABSENT], Delivered::Later),
        ] {
            let objects = Objects::new(sdk::Node::at([node(answers)]).unwrap(), "mail", "token");
            let boxes = Mailboxes::new(objects);
            let put =
                boxes.put("ann@mail.test", ObjectId([7; 16]), [&b"wor"[..], b"ds-"].map(Bytes::from_static)).await;
            assert_eq!(put, said, "{answers:?}");
        }
    }
}
