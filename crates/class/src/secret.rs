//! The keys that seal a namespace's cookies, as the root group keeps them, and how they rotate: a new key is known
//! everywhere before it seals, and old ones open until what they sealed has ended. Nobody is logged out by a rotation.

use std::fmt;

use base::text::span_text;
use serde::{Deserialize, Serialize};

use crate::limits::{COOKIE_KEYS_MAX, ROTATE_LEAD};

/// A namespace's cookie keys. Secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CookieSecret {
    /// Stands in every cookie for namespace and cluster, and stays when keys change. Chance, so that no other cluster
    /// has it.
    pub realm: u32,
    /// Oldest first; one to [`COOKIE_KEYS_MAX`]. The newest that is in use seals, all open.
    pub keys: Vec<CookieKey>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CookieKey {
    /// Counts up, and wraps.
    pub id: u8,
    /// When it begins to seal; milliseconds since 1970.
    pub from_ms: u64,
    pub key: [u8; 32],
}

impl CookieSecret {
    /// With a first key, in use from the start.
    pub fn new(realm: u32, key: [u8; 32]) -> Self {
        Self { realm, keys: vec![CookieKey { id: 0, from_ms: 0, key }] }
    }

    /// With a new key. `lease_ms` is how long cookies live. With `end_sessions` the old keys go at once, for the case
    /// that one has leaked: all cookies end.
    ///
    /// # Errors
    /// A sentence: it would end sessions, or the last rotation is under way.
    pub fn rotated(&self, key: [u8; 32], wall_ms: u64, lease_ms: u64, end_sessions: bool) -> Result<Self, String> {
        let newest = self.keys.last().expect("a namespace has a key from its birth");
        let id = newest.id.wrapping_add(1);
        if end_sessions {
            return Ok(Self { realm: self.realm, keys: vec![CookieKey { id, from_ms: wall_ms, key }] });
        }
        if newest.from_ms > wall_ms {
            let wait = span_text(newest.from_ms - wall_ms);
            return Err(format!("the key of the last rotation is not in use yet; rotate again in {wait}"));
        }
        let mut next = self.clone();
        next.keys.push(CookieKey { id, from_ms: wall_ms + ROTATE_LEAD.as_millis(), key });
        if next.keys.len() > COOKIE_KEYS_MAX {
            // It sealed until its successor did, and a cookie lives for a lease.
            let last_end = next.keys[1].from_ms.saturating_add(lease_ms);
            if last_end > wall_ms {
                let wait = span_text(last_end - wall_ms);
                return Err(format!(
                    "{COOKIE_KEYS_MAX} keys are kept, and sessions that the oldest sealed may live for {wait} more; \
                     rotate then, or end all sessions now with --end-sessions"
                ));
            }
            next.keys.remove(0);
        }
        Ok(next)
    }
}

impl fmt::Debug for CookieKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CookieKey({} from {})", self.id, self.from_ms)
    }
}
