//! Room of this node for large objects that are on their way in: one namespace has so much of it at most that others have some, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::{OBJECTS_COMING_MIB, OBJECTS_COMING_OF_ONE_MIB};

#[derive(Debug)]
pub struct Coming {
    all: Arc<Semaphore>,
    /// Of namespaces that have some now.
    of: Mutex<BTreeMap<String, Weak<Semaphore>>>,
}

/// Room for a MiB, until it is dropped.
#[derive(Debug)]
pub struct Room {
    _of_all: OwnedSemaphorePermit,
    _of_one: OwnedSemaphorePermit,
}

impl Default for Coming {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(OBJECTS_COMING_MIB)), of: Mutex::default() }
    }
}

impl Coming {
    /// Room for one MiB more of this namespace, which is there.
    pub fn take(&self, namespace: &str) -> Option<Room> {
        let of_one = self.its(namespace).try_acquire_owned().ok()?;
        Some(Room { _of_all: Arc::clone(&self.all).try_acquire_owned().ok()?, _of_one: of_one })
    }

    fn its(&self, namespace: &str) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(its) = of.get(namespace).and_then(Weak::upgrade) {
            return its;
        }
        of.retain(|_, its| its.strong_count() > 0);
        let its = Arc::new(Semaphore::new(OBJECTS_COMING_OF_ONE_MIB));
        of.insert(namespace.to_owned(), Arc::downgrade(&its));
        its
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_namespace_leaves_room_to_others() {
        let coming = Coming::default();
        let mut first: Vec<Room> = std::iter::from_fn(|| coming.take("first")).collect();
        assert_eq!(first.len(), OBJECTS_COMING_OF_ONE_MIB);
        let second: Vec<Room> = std::iter::from_fn(|| coming.take("second")).collect();
        assert_eq!(second.len(), OBJECTS_COMING_MIB - OBJECTS_COMING_OF_ONE_MIB);
        assert!(coming.take("third").is_none(), "all of it is taken");
        first.pop();
        assert!(coming.take("third").is_some() && coming.take("first").is_some());
        drop((first, second));
        assert!(coming.take("fourth").is_some());
        assert_eq!(coming.of.lock().unwrap().len(), 1, "who has nothing is not remembered");
    }
}
