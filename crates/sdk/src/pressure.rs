//! How hard pressed the service is, as the edge says with each request (`Coppice-Pressure`): how much of what may be under way
//! at this clone is. Who is told in time leaves out what is costly, instead of being late with everything.

use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::limits::{PRESSURE_HIGH, PRESSURE_LOW};

/// On requests what the edge measured; on an answer, `1.0` tells the edge to send less ([`overloaded`]).
pub(crate) const PRESSURE: HeaderName = HeaderName::from_static("coppice-pressure");

/// 0.0 (nothing to do) to 1.0 (no more may be under way). None if no edge was passed, or an older one.
///
/// ```
/// use sdk::axum::http::{HeaderMap, HeaderValue};
/// let mut headers = HeaderMap::new();
/// assert_eq!(sdk::pressure(&headers), None);
/// headers.insert("coppice-pressure", HeaderValue::from_static("0.8"));
/// assert_eq!(sdk::pressure(&headers), Some(0.8));
/// ```
pub fn pressure(headers: &HeaderMap) -> Option<f32> {
    let said: f32 = headers.get(PRESSURE)?.to_str().ok()?.trim().parse().ok()?;
    (0.0..=1.0).contains(&said).then_some(said)
}

/// A field for an answer by which this clone says that it has too much to do: the edge then sends it less at a time.
pub fn overloaded() -> (HeaderName, HeaderValue) {
    (PRESSURE, HeaderValue::from_static("1.0"))
}

/// Tells when pressure becomes high and when it is low again, with room between the two so that it does not flap.
pub(crate) struct Watch {
    /// At the edge.
    is_high: AtomicBool,
    /// In the service's own stage.
    is_full: AtomicBool,
    told: AtomicBool,
    tell: Box<dyn Fn(bool) + Send + Sync>,
}

impl Watch {
    pub fn new(tell: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self { is_high: false.into(), is_full: false.into(), told: false.into(), tell: Box::new(tell) }
    }

    pub fn saw(&self, headers: &HeaderMap) {
        let Some(pressure) = pressure(headers) else { return };
        let becomes = if pressure >= PRESSURE_HIGH {
            true
        } else if pressure <= PRESSURE_LOW {
            false
        } else {
            return;
        };
        self.is_high.store(becomes, Ordering::Relaxed);
        self.tell();
    }

    /// Whether the service's own stage is overloaded.
    pub fn stage_is(&self, full: bool) {
        self.is_full.store(full, Ordering::Relaxed);
        self.tell();
    }

    fn tell(&self) {
        let is = self.is_high.load(Ordering::Relaxed) || self.is_full.load(Ordering::Relaxed);
        if self.told.swap(is, Ordering::Relaxed) != is {
            (self.tell)(is);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn high_and_low_are_told_once_each() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&told);
        let watch = Watch::new(move |is_high| seen.lock().unwrap().push(is_high));
        for text in ["0.2", "0.7", "0.9", "1.0", "0.7", "7", "x", "0.5", "0.0", "0.95"] {
            watch.saw(&HeaderMap::from_iter([(PRESSURE, HeaderValue::from_static(text))]));
        }
        watch.saw(&HeaderMap::new());
        assert_eq!(*told.lock().unwrap(), [true, false, true]);
        // It is over when both are.
        watch.stage_is(true);
        watch.saw(&HeaderMap::from_iter([(PRESSURE, HeaderValue::from_static("0.0"))]));
        assert_eq!(told.lock().unwrap().len(), 3);
        watch.stage_is(false);
        assert_eq!(*told.lock().unwrap(), [true, false, true, false]);
    }
}
