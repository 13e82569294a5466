//! What a client's connection and the request that is being answered on it tell each other. Over HTTP/2 each stream has
//! its own.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::check::Violation;
use super::limits::INTERIM_BYTES_MAX;
use super::upgrade::Handed;
use crate::wait::Wait;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

#[derive(Default)]
pub struct Flags {
    /// Why the request's body was refused.
    violation: Mutex<Option<Violation>>,
    /// The client waits for leave to send its body, and was not given it.
    owes_continue: AtomicBool,
    /// Interim answers that the client is to get before the next head.
    interim: Mutex<Vec<u8>>,
    has_interim: AtomicBool,
    /// Who gets the connection if the answer says that it changes to another protocol.
    heir: Mutex<Option<oneshot::Sender<Handed>>>,
    /// The timer of requests that wait to be let in: one of each request would be set and taken back thousands of times
    /// a second.
    pub patience: Mutex<Wait>,
}

impl Flags {
    /// A request of HTTP/1 is taken up: nothing of the one before is left.
    pub fn begin(&self) {
        self.owes_continue.store(false, Relaxed);
        if self.has_interim.load(Relaxed) {
            drop(self.take_interim());
        }
    }

    pub fn set_owes_continue(&self, owes: bool) {
        self.owes_continue.store(owes, Relaxed);
    }

    pub fn owes_continue(&self) -> bool {
        self.owes_continue.load(Relaxed)
    }

    /// The body is asked for: the client gets leave to send it, if it waits for that.
    pub fn wants_body(&self) {
        if self.owes_continue.load(Relaxed) && self.owes_continue.swap(false, Relaxed) {
            lock(&self.interim).extend_from_slice(CONTINUE);
            self.has_interim.store(true, Relaxed);
        }
    }

    /// Has an interim answer sent. What does not fit is left out.
    pub fn send_interim(&self, head: &[u8]) {
        let mut interim = lock(&self.interim);
        if interim.len() + head.len() <= INTERIM_BYTES_MAX {
            interim.extend_from_slice(head);
            self.has_interim.store(true, Relaxed);
        }
    }

    pub fn has_interim(&self) -> bool {
        self.has_interim.load(Relaxed)
    }

    pub fn take_interim(&self) -> Vec<u8> {
        self.has_interim.store(false, Relaxed);
        std::mem::take(&mut *lock(&self.interim))
    }

    pub fn violation(&self) -> Option<Violation> {
        *lock(&self.violation)
    }

    pub fn set_violation(&self, violation: Violation) {
        *lock(&self.violation) = Some(violation);
    }

    /// Where the connection comes out once the client has heard that it changes to another protocol.
    pub fn awaits_stream(&self) -> oneshot::Receiver<Handed> {
        let (sender, receiver) = oneshot::channel();
        *lock(&self.heir) = Some(sender);
        receiver
    }

    pub fn heir(&self) -> Option<oneshot::Sender<Handed>> {
        lock(&self.heir).take()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
