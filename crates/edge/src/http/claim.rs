//! Bytes that are counted in a room of all requests of a node while anybody holds them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// An answer that comes takes room in steps of so many bytes.
const STEP: usize = 64 << 10;

/// What a body takes of a room; it is given back with the claim, or with the last holder of what was kept by it.
#[derive(Debug)]
pub struct Claim(OwnedSemaphorePermit);

/// A body with its claim.
struct Kept {
    body: Bytes,
    _claim: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Claim {
    /// None: there is no room for so many bytes.
    pub fn of(room: &Arc<Semaphore>, bytes: usize) -> Option<Self> {
        Arc::clone(room).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok().map(Self)
    }

    /// Takes what is missing to so many bytes, and somewhat ahead if there is room. False: there is no room for them.
    pub fn cover(&mut self, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(self.0.num_permits());
        if missing == 0 {
            return true;
        }
        let room = Arc::clone(self.0.semaphore());
        let more = Self::of(&room, missing.next_multiple_of(STEP)).or_else(|| Self::of(&room, missing));
        more.map(|more| self.0.merge(more.0)).is_some()
    }

    /// The body, counted as long as it or a clone or a part of it lives; what was taken beyond its length is given back.
    pub fn keep(mut self, body: Bytes) -> Bytes {
        let claim = self.0.split(body.len().min(self.0.num_permits()));
        match claim {
            Some(_claim) if !body.is_empty() => Bytes::from_owner(Kept { body, _claim }),
            _ => body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_counted_while_anybody_holds_a_part_of_it() {
        let room = Arc::new(Semaphore::new(100_000));
        let mut claim = Claim::of(&room, 0).unwrap();
        assert!(claim.cover(10) && claim.cover(70_000));
        assert!(!claim.cover(100_001), "so much there is not");
        let body = claim.keep(Bytes::from(vec![7; 70_000]));
        assert_eq!(room.available_permits(), 30_000, "what was taken ahead is given back");
        assert!(Claim::of(&room, 30_001).is_none());
        let part = body.slice(5..9);
        drop(body);
        assert_eq!((room.available_permits(), &*part), (30_000, &[7; 4][..]));
        drop(part);
        assert_eq!(room.available_permits(), 100_000);
        assert_eq!(Claim::of(&room, 10).unwrap().keep(Bytes::new()), Bytes::new());
        assert_eq!(room.available_permits(), 100_000);
    }
}
