//! One cluster for several tests of a file, where that hides nothing: started by the first, thrown away after a failure,
//! so that one test's wreck does not fail the others. Tests beside each other have one each. Ended when a test of another file
//! begins; the minder ends the last one with the process.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Up;
use crate::turn::{self, Turn};

pub struct Shared {
    start: fn() -> Up,
    turn: fn() -> Turn,
}

/// Clusters that no test has at the moment, with whose they are.
static IDLE: Mutex<Vec<(&'static Shared, Up)>> = Mutex::new(Vec::new());

/// The cluster, for one test.
pub struct Taken {
    // Dropped in this order: the cluster is put back, or ended, before the next test begins.
    up: Option<Up>,
    home: &'static Shared,
    _turn: Turn,
}

impl Shared {
    /// For tests of which each runs [`crate::alone`].
    pub const fn alone(start: fn() -> Up) -> Shared {
        Shared { start, turn: turn::alone }
    }

    /// For tests that run [`crate::beside`] each other.
    pub const fn beside(start: fn() -> Up) -> Shared {
        Shared { start, turn: turn::beside }
    }

    pub fn take(&'static self) -> Taken {
        let turn = (self.turn)();
        let own = {
            let mut idle = idle();
            idle.iter().position(|(home, _)| std::ptr::eq(*home, self)).map(|at| idle.swap_remove(at).1)
        };
        if own.is_none() {
            end_idle();
        }
        Taken { up: Some(own.unwrap_or_else(self.start)), home: self, _turn: turn }
    }
}

fn idle() -> MutexGuard<'static, Vec<(&'static Shared, Up)>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn end_idle() {
    let all = std::mem::take(&mut *idle());
    drop(all);
}

impl Deref for Taken {
    type Target = Up;

    fn deref(&self) -> &Up {
        self.up.as_ref().expect("held until dropped")
    }
}

impl DerefMut for Taken {
    fn deref_mut(&mut self) -> &mut Up {
        self.up.as_mut().expect("held until dropped")
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(up) = self.up.take_if(|_| !std::thread::panicking()) {
            idle().push((self.home, up));
        }
    }
}
