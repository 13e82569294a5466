//! Calls to other services that are made for a request: they matter as much as that one does, and are over when nobody waits
//! for it any more.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use crate::node::{Call, DEADLINE};

/// By this the edge believes which priority the request had.
const TICKET: HeaderName = HeaderName::from_static("coppice-ticket");

/// How much what is done for it matters.
const PRIORITY: HeaderName = HeaderName::from_static("coppice-priority");

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
        Self { ticket: headers.get(TICKET).cloned(), until: until(headers) }
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

/// The request that operations on values are done for, as the edge described it.
#[derive(Clone, Debug)]
pub(crate) struct During {
    priority: Option<HeaderValue>,
    until: Option<Instant>,
}

impl During {
    pub fn of(headers: &HeaderMap) -> Self {
        Self { priority: headers.get(PRIORITY).cloned(), until: until(headers) }
    }

    /// The same call, which matters as much as that request does and has no more time.
    pub fn call(&self, mut call: Call) -> Call {
        call.headers.extend(self.priority.clone().map(|priority| (PRIORITY, priority)));
        call.until = self.until;
        call
    }
}

/// When nobody waits for the answer any more.
fn until(headers: &HeaderMap) -> Option<Instant> {
    let left = headers.get(DEADLINE)?.to_str().ok()?.trim().parse().ok()?;
    Instant::now().checked_add(Duration::from_millis(left))
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
