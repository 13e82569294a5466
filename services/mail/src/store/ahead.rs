//! Messages that are asked for before their client asks: one that has read two in order reads the next ones, too, and would wait a
//! round trip through the cluster for each. Few and small ones, as each lies in memory until its turn.

use std::collections::VecDeque;
use std::sync::Arc;

use sdk::{ObjectId, ObjectReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::limits::*;
use crate::pop::{Entry, NotOpened};
use crate::store::Mailboxes;

/// What one session has asked for ahead.
pub struct Ahead {
    mailboxes: Mailboxes,
    mailbox: String,
    entries: Vec<Entry>,
    /// The one that comes next, if the client goes on in order.
    next: usize,
    /// How many are asked for: one more with each that was read in order.
    window: usize,
    coming: VecDeque<Coming>,
    room: Arc<Semaphore>,
}

struct Coming {
    id: ObjectId,
    task: JoinHandle<Result<ObjectReader, NotOpened>>,
    _room: OwnedSemaphorePermit,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Ahead {
    /// `room`: of all sessions of the clone.
    pub fn new(mailboxes: Mailboxes, mailbox: &str, entries: Vec<Entry>, room: Arc<Semaphore>) -> Self {
        let mailbox = mailbox.to_owned();
        Self { mailboxes, mailbox, entries, next: 0, window: 0, coming: VecDeque::new(), room }
    }

    /// A message, and what comes behind it is on its way.
    pub async fn open(&mut self, id: ObjectId) -> Result<ObjectReader, NotOpened> {
        match self.entries.get(self.next) {
            Some(entry) if entry.id == id => self.window = (self.window + 1).min(AHEAD_MAX),
            _ => {
                self.window = 0;
                self.next = self.entries.iter().position(|entry| entry.id == id).unwrap_or(self.entries.len());
            }
        }
        self.next += 1;
        // Those before it are not wanted any more.
        let known = self.coming.iter().position(|coming| coming.id == id);
        self.coming.drain(..known.unwrap_or(self.coming.len()));
        let first = self.coming.pop_front();
        // The first one says nothing of an order.
        if self.window > 1 {
            self.ask();
        }
        match first {
            Some(mut coming) => (&mut coming.task).await.unwrap_or(Err(NotOpened::Later)),
            None => self.mailboxes.open(&self.mailbox, id).await,
        }
    }

    fn ask(&mut self) {
        let from = self.next + self.coming.len();
        let to = (self.next + self.window).min(self.entries.len());
        for Entry { id, bytes } in self.entries.get(from..to).unwrap_or_default().iter().copied() {
            if bytes > AHEAD_BYTES_MAX {
                break;
            }
            let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else { break };
            let (mailboxes, mailbox) = (self.mailboxes.clone(), self.mailbox.clone());
            let task = tokio::spawn(async move { mailboxes.open(&mailbox, id).await });
            self.coming.push_back(Coming { id, task, _room: room });
        }
    }
}
