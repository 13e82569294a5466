//! Calls to other services that are made for a request: they matter as much as that one does, and are over when nobody waits
//! for it any more.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use crate::node::DEADLINE;

/// By this the edge believes which priority the request had.
const TICKET: HeaderName = HeaderName::from_static("coppice-ticket");

/// What calls take over of the request that they are made for.
///
/// ```
/// use sdk::axum::http::{HeaderMap, HeaderValue};
/// # let mut request = HeaderMap::new();
/// # request.insert("coppice-ticket", HeaderValue::from_static("7.1763877123.AAAA"));
/// # request.insert("coppice-deadline-ms", HeaderValue::from_static("60000"));
/// let behalf = sdk::OnBehalf::of(&request);               // when the request has come
/// let fields = behalf.fields();                           // with each call to another service, by any HTTP client
/// assert_eq!(fields["coppice-ticket"], "7.1763877123.AAAA");
/// assert!(fields["coppice-deadline-ms"].to_str().unwrap().parse::<u64>().unwrap() <= 60_000);
/// assert!(sdk::OnBehalf::of(&HeaderMap::new()).fields().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct OnBehalf {
    ticket: Option<HeaderValue>,
    until: Option<Instant>,
}

impl OnBehalf {
    /// Of the request that has just come with these fields.
    pub fn of(headers: &HeaderMap) -> Self {
        let left = headers.get(DEADLINE).and_then(|ms| ms.to_str().ok()?.trim().parse().ok());
        let until = left.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        Self { ticket: headers.get(TICKET).cloned(), until }
    }

    /// How long somebody still waits for its answer, if that is known.
    pub fn left(&self) -> Option<Duration> {
        Some(self.until?.saturating_duration_since(Instant::now()))
    }

    /// What to send with a call that is made now. It goes to an edge of the cluster; to others it means nothing.
    pub fn fields(&self) -> HeaderMap {
        let ticket = self.ticket.clone().map(|ticket| (TICKET, ticket));
        let left = self.left().map(|left| (DEADLINE, HeaderValue::from(left.as_millis() as u64)));
        ticket.into_iter().chain(left).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_that_has_passed_is_taken_off() {
        let deadline = |ms: &str| HeaderMap::from_iter([(DEADLINE, HeaderValue::from_str(ms).unwrap())]);
        let behalf = OnBehalf::of(&deadline("1000"));
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(behalf.fields(), deadline("700"));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!((behalf.fields(), behalf.left()), (deadline("0"), Some(Duration::ZERO)));
        for text in ["x", "-1"] {
            assert_eq!(OnBehalf::of(&deadline(text)).fields(), HeaderMap::new());
        }
        assert!(
            OnBehalf::of(&deadline(&u64::MAX.to_string())).left().is_none_or(|left| left > Duration::from_secs(60))
        );
    }
}
