//! Wrong passwords at the entrance, by the address that they come from: who guesses is not heard for a while, and nobody else waits for it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use sdk::axum::http::{HeaderMap, HeaderValue};

use crate::limits::{WRONG_FROM_MAX, WRONG_MAX, WRONG_SPAN};

/// Addresses from which wrong ones came lately: since when, and how many.
#[derive(Debug, Default)]
pub(super) struct Wrong(Mutex<BTreeMap<Option<IpAddr>, (Instant, u32)>>);

/// Where a request comes from, as the edge says, which puts what it saw at the end. Whoever has one address of IPv6 has a network of them.
pub(super) fn from(headers: &HeaderMap) -> Option<IpAddr> {
    let said = headers.get_all("x-forwarded-for").iter().next_back().map(HeaderValue::to_str)?.ok()?;
    match said.rsplit(',').next()?.trim().parse().ok()? {
        IpAddr::V6(six) => Some(match six.to_ipv4_mapped() {
            Some(four) => four.into(),
            None => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
        }),
        four => Some(four),
    }
}

impl Wrong {
    /// Too many came from there; their time is not over.
    pub fn is_guessing(&self, from: Option<IpAddr>, now: Instant) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&from).is_some_and(|(since, count)| now.duration_since(*since) <= WRONG_SPAN && *count >= WRONG_MAX)
    }

    pub fn note(&self, from: Option<IpAddr>, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= WRONG_FROM_MAX && !all.contains_key(&from) {
            all.retain(|_, (since, _)| now.duration_since(*since) <= WRONG_SPAN);
            // Of so many at once those that have guessed least are let go.
            let least = all.iter().min_by_key(|(_, (since, count))| (*count, *since)).map(|(from, _)| *from);
            if let Some(least) = least.filter(|_| all.len() >= WRONG_FROM_MAX) {
                all.remove(&least);
            }
        }
        let of = all.entry(from).or_insert((now, 0));
        if now.duration_since(of.0) > WRONG_SPAN {
            *of = (now, 0);
        }
        of.1 += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn who_guesses_is_not_heard_for_a_minute_and_others_are() {
        let (wrong, now) = (Wrong::default(), Instant::now());
        for nth in 0..WRONG_MAX {
            assert!(!wrong.is_guessing(ip("192.0.2.1"), now), "{nth}");
            wrong.note(ip("192.0.2.1"), now);
        }
        let later = now + WRONG_SPAN + Duration::from_millis(1);
        let all = [("192.0.2.1", now, true), ("192.0.2.2", now, false), ("192.0.2.1", later, false)];
        for (from, at, expect) in all {
            assert_eq!(wrong.is_guessing(ip(from), at), expect, "{from}");
        }
        assert!(!wrong.is_guessing(None, now));
        wrong.note(ip("192.0.2.1"), later);
        assert!(!wrong.is_guessing(ip("192.0.2.1"), later), "it begins anew");
    }

    #[test]
    fn many_addresses_do_not_free_the_one_that_guesses_and_take_a_bounded_room() {
        let (wrong, now) = (Wrong::default(), Instant::now());
        (0..WRONG_MAX).for_each(|_| wrong.note(ip("192.0.2.1"), now));
        for nth in 0..2 * WRONG_FROM_MAX as u32 {
            wrong.note(Some(std::net::Ipv4Addr::from_bits(nth).into()), now);
        }
        assert!(wrong.is_guessing(ip("192.0.2.1"), now));
        assert_eq!(wrong.0.lock().unwrap().len(), WRONG_FROM_MAX);
    }

    #[test]
    fn an_address_is_what_the_edge_saw_and_of_ipv6_its_network() {
        let of = |said: &'static str| {
            from(&HeaderMap::from_iter([("x-forwarded-for".parse().unwrap(), HeaderValue::from_static(said))]))
        };
        for (said, expect) in [
            ("192.0.2.1", ip("192.0.2.1")),
            ("10.0.0.1, 192.0.2.1", ip("192.0.2.1")),
            ("2001:db8:1:2:3:4:5:6", ip("2001:db8:1:2::")),
            ("::ffff:192.0.2.1", ip("192.0.2.1")),
            ("unknown", None),
        ] {
            assert_eq!(of(said), expect, "{said}");
        }
        assert_eq!(from(&HeaderMap::new()), None);
    }
}
