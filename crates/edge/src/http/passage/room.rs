//! A passage, which is large, in a room that its thread keeps for the next one.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use super::Passage;

/// Rooms that a thread keeps at most.
const KEPT_MAX: usize = 64;

/// It is moved as a pointer; what is in it would have to be copied.
type Room = Box<Option<Passage>>;

thread_local! {
    static KEPT: RefCell<Vec<Room>> = const { RefCell::new(Vec::new()) };
}

/// A passage in its room. It is handed on as this, as it is large.
pub struct Roomed(Option<Room>);

impl Roomed {
    pub fn new(passage: Passage) -> Self {
        let mut room = KEPT.with_borrow_mut(Vec::pop).unwrap_or_default();
        *room = Some(passage);
        Self(Some(room))
    }

    /// The passage; its room goes back.
    pub fn out(mut self) -> Passage {
        self.0.as_mut().and_then(|room| room.take()).expect("it is there as long as this")
    }
}

impl Drop for Roomed {
    fn drop(&mut self) {
        let Some(mut room) = self.0.take() else { return };
        *room = None;
        // A thread that ends keeps nothing.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_MAX {
                kept.push(room);
            }
        });
    }
}

impl Deref for Roomed {
    type Target = Passage;

    fn deref(&self) -> &Passage {
        self.0.as_deref().and_then(Option::as_ref).expect("it is there as long as this")
    }
}

impl DerefMut for Roomed {
    fn deref_mut(&mut self) -> &mut Passage {
        self.0.as_deref_mut().and_then(Option::as_mut).expect("it is there as long as this")
    }
}
