//! One fetch for all who miss the same at the same time at this node. Who comes while it is under way waits for its end and looks
//! again: so nobody gets what was purged before he came. What turns out not to be kept is asked for by each for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;

use crate::http::limits::{CACHED_FAILING_TIME, CACHED_FLIGHTS_MAX, CACHED_PASS_TIME, CACHED_PASSES_MAX};

/// How a fetch ended for those who wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Look again: it may be there. If not, one of them fetches.
    Look,
    /// The answer is not kept: each of those who wait fetches for itself.
    Alone,
}

#[derive(Default)]
pub struct Flights(Mutex<Known>);

#[derive(Default)]
struct Known {
    under_way: HashMap<Bytes, watch::Receiver<Option<End>>>,
    /// Not to be waited for, until then.
    passes: HashMap<Bytes, Instant>,
    /// Its clones could not answer, until then.
    failing: HashMap<Bytes, Instant>,
}

/// What somebody does who misses something.
pub enum Joined {
    Fetch(Leader),
    Wait(watch::Receiver<Option<End>>),
    /// Fetch, and nobody waits.
    Alone,
}

/// Fetches for others. If it is dropped before, they look again.
pub struct Leader {
    of: Arc<Flights>,
    key: Bytes,
    said: watch::Sender<Option<End>>,
}

impl Flights {
    pub fn join(self: &Arc<Self>, key: &Bytes) -> Joined {
        let mut known = self.known();
        if let Some(until) = known.passes.get(key) {
            if *until > Instant::now() {
                return Joined::Alone;
            }
            known.passes.remove(key);
        }
        if let Some(under_way) = known.under_way.get(key) {
            return Joined::Wait(under_way.clone());
        }
        if known.under_way.len() >= CACHED_FLIGHTS_MAX {
            return Joined::Alone;
        }
        let (said, heard) = watch::channel(None);
        known.under_way.insert(key.clone(), heard);
        Joined::Fetch(Leader { of: Arc::clone(self), key: key.clone(), said })
    }

    /// Whether it was asked for in vain a moment ago.
    pub fn is_failing(&self, key: &Bytes) -> bool {
        self.known().failing.get(key).is_some_and(|until| *until > Instant::now())
    }

    pub fn fails(&self, key: &Bytes) {
        let mut known = self.known();
        note(&mut known.failing, key, CACHED_FAILING_TIME);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leader {
    pub fn end(self, end: End) {
        if end == End::Alone {
            note(&mut self.of.known().passes, &self.key, CACHED_PASS_TIME);
        }
        self.said.send_replace(Some(end));
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.of.known().under_way.remove(&self.key);
        self.said.send_if_modified(|end| {
            let is_open = end.is_none();
            *end = end.or(Some(End::Look));
            is_open
        });
    }
}

/// Remembers it for so long, if there is room.
fn note(table: &mut HashMap<Bytes, Instant>, key: &Bytes, time: Duration) {
    let now = Instant::now();
    if table.len() >= CACHED_PASSES_MAX {
        table.retain(|_, until| *until > now);
    }
    if table.len() < CACHED_PASSES_MAX {
        table.insert(key.clone(), now + time);
    }
}

/// How it ended, or None if that takes too long.
pub async fn wait(mut heard: watch::Receiver<Option<End>>, most: Duration) -> Option<End> {
    let ended = tokio::time::timeout(most, heard.wait_for(Option::is_some)).await.ok()?;
    Some(ended.ok().and_then(|end| *end).unwrap_or(End::Look))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_fetches_and_the_others_hear_how_that_ended() {
        let (flights, key) = (Arc::<Flights>::default(), Bytes::from_static(b"k"));
        for (end, then) in [(Some(End::Look), End::Look), (None, End::Look), (Some(End::Alone), End::Alone)] {
            let Joined::Fetch(leader) = flights.join(&key) else { panic!("the first one fetches") };
            let Joined::Wait(heard) = flights.join(&key) else { panic!("the second one waits") };
            assert_eq!(wait(heard.clone(), Duration::from_secs(1)).await, None, "it takes too long");
            match end {
                Some(end) => leader.end(end),
                None => drop(leader),
            }
            assert_eq!(wait(heard, Duration::from_secs(1)).await, Some(then), "{end:?}");
        }
        assert!(matches!(flights.join(&key), Joined::Alone), "it was not kept");
    }

    #[tokio::test]
    async fn the_tables_have_bounds() {
        let flights = Arc::<Flights>::default();
        let key = |n: usize| Bytes::from(n.to_string());
        let leaders: Vec<_> = (0..CACHED_FLIGHTS_MAX).map(|n| flights.join(&key(n))).collect();
        assert!(matches!(flights.join(&key(CACHED_FLIGHTS_MAX)), Joined::Alone));
        for leader in leaders {
            let Joined::Fetch(leader) = leader else { panic!() };
            leader.end(End::Alone);
        }
        let Joined::Fetch(leader) = flights.join(&key(CACHED_PASSES_MAX)) else { panic!() };
        leader.end(End::Alone);
        let known = flights.known();
        assert!(known.under_way.is_empty() && known.passes.len() <= CACHED_PASSES_MAX);
    }
}
