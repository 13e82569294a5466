//! Keeps the house in order (architecture.md, style.md): who may use whom, purity below the waterline, headers, leftovers,
//! length of files, paths in documents, cases that have tests, what a class costs (`recipe`), what belongs to a built-in
//! service, floors of the edge (`floors`), what may only become less (`ratchets`), known weaknesses of dependencies
//! (`advisories`). `layers` holds the table and compares it with Cargo's; `files` looks at each source file, `documents` at
//! what leads people through the tree. Every check is a plain function from text to findings, with a test in which it
//! fails.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod advisories;
pub mod cases;
pub mod documents;
pub mod files;
pub mod floors;
pub mod layers;
pub mod ratchets;
pub mod recipe;
pub mod services;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that is not in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Relative to the repository; a crate's name for what concerns the whole crate.
    pub place: String,
    /// From 1; 0 if it concerns all of it.
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.place, self.what),
            line => write!(f, "{}:{line}: {}", self.place, self.what),
        }
    }
}

/// The repository's folder.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the repository").to_path_buf()
}

/// All checks over the repository. Returns how many files were looked at.
///
/// # Errors
/// What is not in order.
pub fn tidy(root: &Path) -> Result<usize, Vec<Finding>> {
    let mut findings = layers::check(&metadata(root));
    findings.extend(advisories::check(root));
    findings.extend(cases::check(root));
    findings.extend(documents::check(root));
    findings.extend(services::check(root));
    let files = sources(root);
    let mut read = Vec::new();
    for path in &files {
        let name = path.strip_prefix(root).expect("it was found there").to_string_lossy().replace('\\', "/");
        match std::fs::read_to_string(path) {
            Ok(text) => read.push((name, text)),
            Err(error) => findings.push(Finding { place: name, line: 0, what: format!("cannot be read: {error}") }),
        }
    }
    for (name, text) in &read {
        findings.extend(files::check(name, text));
    }
    findings.extend(floors::check(&read));
    findings.extend(ratchets::check(&read));
    if findings.is_empty() { Ok(files.len()) } else { Err(findings) }
}

/// What Cargo knows of the workspace.
fn metadata(root: &Path) -> serde_json::Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .expect("cargo runs, as it runs us");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// Every Rust file of the repository, in order; what was built is not ours.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let hidden = name.to_string_lossy().starts_with('.');
            if path.is_dir() {
                if !hidden && name != "target" && name != "node_modules" {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_house_is_in_order() {
        if let Err(findings) = tidy(&root()) {
            let all: Vec<_> = findings.iter().map(Finding::to_string).collect();
            panic!("{} findings:\n{}", all.len(), all.join("\n"));
        }
    }

    #[test]
    fn every_source_file_is_looked_at() {
        let files = sources(&root());
        for expected in ["xtask/src/lib.rs", "crates/base/src/lib.rs", "crates/sim/tests/all/planted.rs"] {
            assert!(files.contains(&root().join(expected)), "{expected}");
        }
        assert!(files.iter().all(|file| !file.starts_with(root().join("target"))));
    }
}
