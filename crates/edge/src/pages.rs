//! Pages of docs/ that are printed from the program: a test compares each with what the program says, and writes it if asked to.

use std::path::Path;

/// Fails if a page of docs/ is not this text. With `UPDATE_DOCS=1` (`just docs`) it is written.
pub fn is_kept(page: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "docs/{page} is not what the program says; `just docs` writes it");
}
