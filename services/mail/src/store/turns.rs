//! Sessions of one mailbox take turns at a clone, as RFC 1939 wants it: who comes while somebody else reads would be shown, and would
//! read, what that one is about to delete. It is a courtesy and no lock: nobody could promise one where the cluster is cut in two, and
//! two sessions do each other no harm. So nobody waits long for somebody who hangs, and other clones are not asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

/// Mailboxes that are open here. Cheap to clone.
#[derive(Clone, Default)]
pub struct Turns(Arc<Mutex<HashMap<String, Weak<Place>>>>);

type Place = tokio::sync::Mutex<()>;

/// Lasts until it is dropped.
pub struct Turn {
    /// None: it was waited for long enough.
    _place: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits until those who came before have gone, or for so long at most.
    pub async fn take(&self, mailbox: &str, most: Duration) -> Turn {
        let place = self.place(mailbox);
        Turn { _place: tokio::time::timeout(most, place.lock_owned()).await.ok() }
    }

    fn place(&self, mailbox: &str) -> Arc<Place> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = open.get(mailbox).and_then(Weak::upgrade) {
            return place;
        }
        // Those of sessions that have ended go before the map would grow.
        if open.len() == open.capacity() {
            open.retain(|_, place| place.strong_count() > 0);
        }
        let place = Arc::new(Place::default());
        open.insert(mailbox.to_owned(), Arc::downgrade(&place));
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(3);

    #[tokio::test(start_paused = true)]
    async fn sessions_of_a_mailbox_come_one_after_the_other_and_nobody_waits_for_ever() {
        let turns = Turns::default();
        let begun = tokio::time::Instant::now();
        let first = turns.take("ann@b", MOST).await;
        drop(turns.take("bob@b", MOST).await);
        assert_eq!(begun.elapsed(), Duration::ZERO, "nobody else has it open");
        let (second, ()) = tokio::join!(turns.take("ann@b", MOST), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(first);
        });
        assert_eq!(begun.elapsed().as_secs(), 1);
        let third = turns.take("ann@b", MOST).await;
        assert_eq!(begun.elapsed().as_secs(), 4, "the second one hangs");
        drop((second, third));
        drop(turns.take("ann@b", MOST).await);
        assert_eq!(begun.elapsed().as_secs(), 4);
    }

    #[tokio::test]
    async fn mailboxes_that_were_open_are_forgotten() {
        let turns = Turns::default();
        for n in 0..10_000 {
            drop(turns.take(&format!("u{n}@b"), MOST).await);
        }
        let open = turns.0.lock().unwrap();
        assert!(open.capacity() < 64, "{} of {}", open.len(), open.capacity());
    }
}
