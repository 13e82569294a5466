//! One cluster for several tests of a file, where that hides nothing: started by the first, thrown away after a failure,
//! so that one test's wreck does not fail the others. The minder ends the last one with the process.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Up;

pub struct Shared {
    start: fn() -> Up,
    up: Mutex<Option<Up>>,
}

/// The cluster, for one test. Holds back the other tests of the file.
pub struct Held {
    // Dropped in this order: the cluster is put back, or ended, before the next test begins.
    up: Option<Up>,
    home: &'static Shared,
    _turn: MutexGuard<'static, ()>,
}

impl Shared {
    pub const fn new(start: fn() -> Up) -> Shared {
        Shared { start, up: Mutex::new(None) }
    }

    pub fn take(&'static self) -> Held {
        let turn = crate::turn();
        let kept = self.up.lock().unwrap_or_else(PoisonError::into_inner).take();
        Held { up: Some(kept.unwrap_or_else(self.start)), home: self, _turn: turn }
    }
}

impl Deref for Held {
    type Target = Up;

    fn deref(&self) -> &Up {
        self.up.as_ref().expect("held until dropped")
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Up {
        self.up.as_mut().expect("held until dropped")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            *self.home.up.lock().unwrap_or_else(PoisonError::into_inner) = self.up.take();
        }
    }
}
