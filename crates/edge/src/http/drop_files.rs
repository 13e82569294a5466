//! Files that drop handlers answer with. They are read when requests are refused, which is when least time is left: so
//! each is kept for a while, and only a bounded number of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::HeaderValue;
use tokio::io::AsyncReadExt;

use super::limits::{DROP_FILE_BYTES_MAX, DROP_FILE_KEPT, DROP_FILES_MAX};

#[derive(Default)]
pub struct DropFiles(Mutex<BTreeMap<PathBuf, (Instant, Option<Bytes>)>>);

impl DropFiles {
    /// The file's bytes; none if it cannot be read, which is said in the log.
    pub async fn get(&self, path: &Path) -> Option<Bytes> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, kept)) = lock().get(path)
            && at.elapsed() < DROP_FILE_KEPT
        {
            return kept.clone();
        }
        let found = read(path).await;
        let mut all = lock();
        if all.len() >= DROP_FILES_MAX {
            all.clear();
        }
        all.insert(path.to_owned(), (Instant::now(), found.clone()));
        found
    }
}

async fn read(path: &Path) -> Option<Bytes> {
    let mut bytes = Vec::new();
    let opened = tokio::fs::File::open(path).await;
    let result = match opened {
        Ok(file) => file.take(DROP_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).await.map(drop),
        Err(error) => Err(error),
    };
    match result {
        Ok(()) if bytes.len() as u64 <= DROP_FILE_BYTES_MAX => Some(bytes.into()),
        Ok(()) => {
            tracing::warn!(path = %path.display(), max = DROP_FILE_BYTES_MAX, "a drop handler's file is too long");
            None
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a drop handler's file cannot be read");
            None
        }
    }
}

/// The `Content-Type` of a file, by the end of its name, as far as browsers should know it.
pub fn content_type(path: &Path) -> HeaderValue {
    HeaderValue::from_static(match path.extension().and_then(|e| e.to_str()).unwrap_or_default() {
        "html" | "htm" => "text/html; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        _ => "text/plain; charset=utf-8",
    })
}
