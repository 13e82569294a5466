//! Who fetches what is missing: for each key one at a time, and for a while only. The others ask again until it is there, or
//! their time is over; then they fetch it themselves. So whatever becomes of who fetches delays the others at most, and a claim
//! that is lost with its node costs one fetch more.

use std::collections::BTreeMap;

use base::{NodeId, Time};
use bytes::Bytes;

use super::limits::CLAIMS_MAX;

#[derive(Default)]
pub struct Claims {
    /// By namespace and key: at whose door it was asked for, and until when.
    of: BTreeMap<(u32, Bytes), (NodeId, Time)>,
}

impl Claims {
    /// Whether it is for `by` to fetch it, from now until then; else somebody else does already.
    pub fn claim(&mut self, now: Time, namespace: u32, key: &Bytes, by: NodeId, until: Time) -> bool {
        let place = (namespace, key.clone());
        if self.of.get(&place).is_some_and(|(_, until)| *until > now) {
            return false;
        }
        if self.of.len() >= CLAIMS_MAX && !self.of.contains_key(&place) {
            self.of.retain(|_, (_, until)| *until > now);
            if self.of.len() >= CLAIMS_MAX {
                // Without a claim everybody fetches.
                return true;
            }
        }
        self.of.insert(place, (by, until));
        true
    }

    /// It is here, or it will not be.
    pub fn end(&mut self, namespace: u32, key: &Bytes) {
        if !self.of.is_empty() {
            self.of.remove(&(namespace, key.clone()));
        }
    }

    pub fn death(&mut self, peer: NodeId) {
        self.of.retain(|_, (by, _)| *by != peer);
    }
}

#[cfg(test)]
mod tests {
    use base::Span;

    use super::*;

    #[test]
    fn one_at_a_time_and_for_a_while() {
        let mut claims = Claims::default();
        let (key, now) = (Bytes::from_static(b"k"), Time(1_000_000));
        let (a, b, until) = (NodeId(1), NodeId(2), now + Span::secs(1));
        assert!(claims.claim(now, 7, &key, a, until));
        assert!(!claims.claim(now, 7, &key, b, until) && !claims.claim(now, 7, &key, a, until));
        assert!(claims.claim(now, 8, &key, b, until), "another namespace");
        assert!(claims.claim(until, 7, &key, b, until + Span::secs(1)), "it took too long");
        claims.end(7, &key);
        assert!(claims.claim(until, 7, &key, a, until + Span::secs(1)));
        claims.death(a);
        assert!(claims.claim(until, 7, &key, b, until + Span::secs(1)));
    }

    #[test]
    fn there_is_a_bound() {
        let mut claims = Claims::default();
        let key = |n: usize| Bytes::from(n.to_string());
        for n in 0..CLAIMS_MAX {
            assert!(claims.claim(Time(1), 7, &key(n), NodeId(1), Time(9)));
        }
        assert!(claims.claim(Time(1), 7, &key(CLAIMS_MAX), NodeId(1), Time(9)));
        assert_eq!(claims.of.len(), CLAIMS_MAX);
        assert!(claims.claim(Time(9), 7, &key(CLAIMS_MAX), NodeId(1), Time(20)));
        assert_eq!(claims.of.len(), 1, "what is over went");
    }
}
