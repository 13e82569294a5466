//! Names of one collection in the order of their places, for who walks through it page by page (`functions/walk.rs`). It is made
//! with a page, and good for the next ones as long as the collection stays as it is: so a page costs by what it shows, and only one
//! after a change by all that there is. It is no part of the state.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;

use super::limits::WALK_PLACED_MIN;
use super::order::place_of;

/// Names with their places, in order.
pub type NamesInOrder = Arc<Vec<(u64, Bytes)>>;

/// Key and version of the collection that was walked through last.
#[derive(Default)]
pub struct LastWalked(RefCell<Option<(Bytes, u64, NamesInOrder)>>);

impl LastWalked {
    /// The walk through the collection with this key and version, which has these names.
    pub fn of<'a>(&self, key: &Bytes, version: u64, names: impl Iterator<Item = &'a Bytes>) -> NamesInOrder {
        if let Some((last, at, placed)) = &*self.0.borrow()
            && (last, *at) == (key, version)
        {
            return Arc::clone(placed);
        }
        let mut placed: Vec<(u64, Bytes)> = names.map(|name| (place_of(name), name.clone())).collect();
        placed.sort_unstable_by_key(|(place, _)| *place);
        let placed = Arc::new(placed);
        if placed.len() >= WALK_PLACED_MIN {
            self.0.replace(Some((key.clone(), version, Arc::clone(&placed))));
        }
        placed
    }

    pub fn forget(&mut self) {
        self.0.take();
    }
}
