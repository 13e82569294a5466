//! How large pictures were before and after, so that toolbars can say what was saved. Each clone tells the others what it made; what
//! is lost is not known until it is made again. Nothing depends on it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sdk::{Group, Heard};

use crate::limits::{SIZES_MAX, TELL_BYTES_MAX, TELL_EVERY, URL_BYTES_MAX};

/// Bytes before and after.
pub type Size = (u64, u64);

#[derive(Clone, Default)]
pub struct Sizes(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    known: HashMap<String, Size>,
    /// Oldest first.
    order: VecDeque<String>,
    /// What the others have not been told.
    news: VecDeque<(String, Size)>,
}

impl Sizes {
    /// A picture was made, under this URL.
    pub fn note(&self, url: &str, size: Size) {
        let mut inner = self.lock();
        if inner.learn(url, size) && inner.news.len() < SIZES_MAX {
            inner.news.push_back((url.to_owned(), size));
        }
    }

    /// How many of these are known, and their bytes before and after.
    pub fn of(&self, urls: &[String]) -> (usize, Size) {
        let inner = self.lock();
        let known: Vec<Size> = urls.iter().filter_map(|url| inner.known.get(url).copied()).collect();
        (known.len(), known.iter().fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1)))
    }

    /// Tells the other clones, and hears them, for as long as the program runs.
    pub fn share(&self, group: Group) {
        let (heard, mut messages) = (self.clone(), group.messages());
        tokio::spawn(async move {
            loop {
                if let Heard::Message { body, .. } = messages.next().await {
                    heard.hear(&body);
                }
            }
        });
        let told = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TELL_EVERY).await;
                while let Some(news) = told.news() {
                    // Not heard everywhere: then some toolbars know less.
                    let _ = group.broadcast(news).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        });
    }

    fn news(&self) -> Option<Vec<u8>> {
        let mut inner = self.lock();
        let (mut told, mut bytes) = (Vec::new(), 0);
        while let Some((url, _)) = inner.news.front() {
            // Quotes, figures, and what JSON escapes.
            bytes += url.len() * 2 + 64;
            if bytes > TELL_BYTES_MAX && !told.is_empty() {
                break;
            }
            told.extend(inner.news.pop_front());
        }
        drop(inner);
        (!told.is_empty()).then(|| serde_json::to_vec(&told).unwrap_or_default())
    }

    fn hear(&self, body: &[u8]) {
        let Ok(told) = serde_json::from_slice::<Vec<(String, Size)>>(body) else { return };
        let mut inner = self.lock();
        for (url, size) in told {
            inner.learn(&url, size);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Whether it is news.
    fn learn(&mut self, url: &str, size: Size) -> bool {
        if url.len() > URL_BYTES_MAX {
            return false;
        }
        match self.known.insert(url.to_owned(), size) {
            Some(before) => before != size,
            None => {
                self.order.push_back(url.to_owned());
                if self.order.len() > SIZES_MAX
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.known.remove(&oldest);
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_clone_made_the_others_hear_of_once() {
        let (one, other) = (Sizes::default(), Sizes::default());
        let urls: Vec<String> = (0..3).map(|n| format!("/_distill/i/q40/{n}.jpg")).collect();
        one.note(&urls[0], (100, 20));
        one.note(&urls[1], (50, 10));
        one.note(&urls[0], (100, 20));
        let told = one.news().unwrap();
        assert_eq!(one.news(), None);
        other.hear(&told);
        other.hear(b"nonsense");
        assert_eq!(other.of(&urls), (2, (150, 30)));
        assert_eq!(other.news(), None);
        for n in 0..SIZES_MAX + 10 {
            other.note(&n.to_string(), (1, 1));
        }
        assert_eq!(other.of(&urls), (0, (0, 0)));
        let all: Vec<_> = std::iter::from_fn(|| other.news()).collect();
        assert!(all.len() > 1 && all.iter().all(|told| told.len() <= TELL_BYTES_MAX));
    }
}
