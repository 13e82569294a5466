//! Watermarks that are laid over pictures: where the service or a URL says they are. Each is fetched once in a while.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sdk::axum::http::HeaderMap;

use crate::fetch::{Fetch, FetchError, Source};
use crate::image::File;
use crate::limits::MARK_BYTES_MAX;

/// So long one is not fetched anew.
const FRESH: Duration = Duration::from_secs(60);
const KEPT_MAX: usize = 16;

#[derive(Default)]
pub struct Marks {
    kept: Mutex<BTreeMap<String, (Instant, File)>>,
}

impl Marks {
    /// # Errors
    /// It was not had, or is too large.
    pub async fn get(&self, fetch: &Fetch, at: &str) -> Result<File, FetchError> {
        let seen = |marks: &BTreeMap<String, (Instant, File)>| marks.get(at).cloned();
        let kept = seen(&self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some((_, file)) = kept.as_ref().filter(|(since, _)| since.elapsed() < FRESH) {
            return Ok(file.clone());
        }
        let had = match at.strip_prefix("file://") {
            Some(path) => of_disk(path).await,
            None => fetch.whole(&Source::parse(at)?, &HeaderMap::new()).await.map(|whole| whole.bytes),
        };
        let bytes = match (had, kept) {
            (Ok(bytes), _) => bytes,
            // The one of a minute ago is better than none.
            (Err(_), Some((_, file))) => return Ok(file),
            (Err(error), None) => return Err(error),
        };
        if bytes.len() > MARK_BYTES_MAX {
            return Err(FetchError::TooLarge);
        }
        let file = File::new(bytes);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX && !kept.contains_key(at) {
            let oldest = kept.iter().min_by_key(|(_, (since, _))| *since).map(|(at, _)| at.clone());
            oldest.map(|oldest| kept.remove(&oldest));
        }
        kept.insert(at.to_owned(), (Instant::now(), file.clone()));
        Ok(file)
    }
}

async fn of_disk(path: &str) -> Result<Bytes, FetchError> {
    let wrong = |why: String| FetchError::Unreachable(format!("the watermark {path}: {why}"));
    let size = tokio::fs::metadata(path).await.map_err(|error| wrong(error.to_string()))?;
    if !size.is_file() || size.len() > MARK_BYTES_MAX as u64 {
        return Err(wrong(format!("is no file of up to {MARK_BYTES_MAX} bytes")));
    }
    tokio::fs::read(path).await.map(Bytes::from).map_err(|error| wrong(error.to_string()))
}
