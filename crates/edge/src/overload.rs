//! Which services have more to do than they can, as this node's doors see it: that it begins and ends is told, and how it is
//! is shown while it lasts. A stage itself says so from one moment to the next; what is told here has lasted.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often it is looked.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many looks in a row that see it are its beginning: a burst of one moment is no news.
const BEGINS_AFTER: u32 = 2;
/// It is over when nothing was seen of it for so long.
const ENDS_AFTER: Duration = Duration::from_secs(10);

/// Of one turnstile, at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heat {
    pub is_overloaded: bool,
    pub limit: u64,
    pub waiting: u64,
    /// Since it began.
    pub refused: u64,
}

/// What begins or ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// `shop`, `shop/pay`, `tcp:mail`.
    pub of: String,
    pub text: String,
}

#[derive(Debug, Default)]
pub struct Overloads(Mutex<BTreeMap<String, Seen>>);

#[derive(Debug)]
struct Seen {
    looked: Instant,
    refused: u64,
    refused_a_second: u64,
    /// Looks in a row that saw it.
    hot: u32,
    last: Instant,
    /// While it lasts: since when, and how many had been refused before.
    lasts: Option<(Instant, u64)>,
}

impl Overloads {
    /// Meant to be called every [`LOOK_EVERY`], with all turnstiles.
    pub fn look(&self, now: Instant, all: impl Iterator<Item = (String, Heat)>) -> Vec<Told> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut before, mut told) = (std::mem::take(&mut *seen), Vec::new());
        for (of, heat) in all {
            let fresh =
                || Seen { looked: now, refused: heat.refused, refused_a_second: 0, hot: 0, last: now, lasts: None };
            let mut it = before.remove(&of).unwrap_or_else(fresh);
            let (more, millis) = (heat.refused.saturating_sub(it.refused), now.duration_since(it.looked).as_millis());
            it.refused_a_second = (u128::from(more) * 1000 / millis.max(1)) as u64;
            if heat.is_overloaded || more > 0 {
                it.hot += 1;
                it.last = now;
            } else {
                it.hot = 0;
            }
            match it.lasts {
                None if it.hot >= BEGINS_AFTER => {
                    it.lasts = Some((now, it.refused));
                    let Heat { limit, waiting, .. } = heat;
                    let rate = it.refused_a_second;
                    let text = format!("is overloaded: limit {limit}, {waiting} wait, {rate} a second refused");
                    told.push(Told { of: of.clone(), text });
                }
                Some((since, refused)) if now.duration_since(it.last) >= ENDS_AFTER => {
                    it.lasts = None;
                    let (refused, lasted) =
                        (heat.refused.saturating_sub(refused), it.last.duration_since(since).as_secs());
                    let text = format!("is overloaded no more, after {lasted} s; {refused} were refused");
                    told.push(Told { of: of.clone(), text });
                }
                _ => (),
            }
            (it.looked, it.refused) = (now, heat.refused);
            seen.insert(of, it);
        }
        told
    }

    /// Those that are overloaded: how many are refused a second.
    pub fn each(&self) -> Vec<(String, u64)> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hot = seen.iter().filter(|(_, it)| it.lasts.is_some());
        hot.map(|(of, it)| (of.clone(), it.refused_a_second)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_that_lasts_is_told_once_when_it_begins_and_once_when_it_is_over() {
        let (all, begun) = (Overloads::default(), Instant::now());
        let at = |s: u64, heat: Heat| all.look(begun + Duration::from_secs(s), [("shop".to_owned(), heat)].into_iter());
        let heat = |is_overloaded, refused| Heat { is_overloaded, limit: 35, waiting: 6, refused };
        assert!(at(0, heat(true, 5)).is_empty() && at(1, heat(false, 5)).is_empty(), "a burst is no news");
        assert!(at(2, heat(false, 17)).is_empty());
        let told = at(3, heat(false, 29));
        assert_eq!(told[0].text, "is overloaded: limit 35, 6 wait, 12 a second refused");
        assert_eq!(all.each(), [("shop".to_owned(), 12)]);
        for s in 4..10 {
            assert!(at(s, heat(true, 29)).is_empty());
        }
        for s in 10..19 {
            assert!(at(s, heat(false, 29)).is_empty(), "{s}: it may come back at once");
        }
        let told = at(19, heat(false, 29));
        assert_eq!(told[0].text, "is overloaded no more, after 6 s; 12 were refused");
        assert!(all.each().is_empty() && at(20, heat(false, 29)).is_empty());
        all.look(begun + Duration::from_secs(21), std::iter::empty());
        assert!(all.0.lock().unwrap().is_empty(), "who is there no more is forgotten");
    }
}
