//! Checks that documents which lead people through the tree lead somewhere: each path between backticks in ARCHITECTURE.md and in
//! `docs/recipes` is there. A path begins at the repository's folder or at `crates/`; `{a,b}` stands for several.

use std::path::Path;

use crate::Finding;

/// Ends of what counts as a path; a name without a slash is a word of the text.
const ENDS: [&str; 7] = [".rs", ".md", ".toml", ".py", ".json", ".service", "/"];

/// Findings of the documents that name places.
pub fn check(root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in documents(root) {
        let text = std::fs::read_to_string(root.join(&document)).unwrap_or_default();
        findings.extend(missing(&document, &text, &|path| root.join(path).exists()));
    }
    findings
}

fn documents(root: &Path) -> Vec<String> {
    let recipes = std::fs::read_dir(root.join("docs/recipes")).into_iter().flatten().flatten();
    let recipes = recipes.map(|entry| format!("docs/recipes/{}", entry.file_name().to_string_lossy()));
    let mut all: Vec<String> = recipes.filter(|name| name.ends_with(".md")).collect();
    all.push("ARCHITECTURE.md".to_owned());
    all.sort();
    all
}

fn missing(document: &str, text: &str, is_there: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_code = false;
    for (at, line) in text.lines().enumerate() {
        in_code ^= line.starts_with("```");
        if in_code {
            continue;
        }
        for path in line.split('`').skip(1).step_by(2).flat_map(spelled_out) {
            if is_path(&path) && !is_there(&path) && !is_there(&format!("crates/{path}")) {
                findings.push(Finding {
                    place: document.to_owned(),
                    line: at + 1,
                    what: format!("{path} is not there"),
                });
            }
        }
    }
    findings
}

/// Names in capitals stand for something that the reader chooses.
fn is_path(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c));
    let has_place = word.trim_end_matches('/').contains('/');
    plain && has_place && !word.starts_with(['/', '.']) && ENDS.iter().any(|end| word.ends_with(end))
}

/// `a/{b,c}.rs` is two paths.
fn spelled_out(word: &str) -> Vec<String> {
    let braces = word.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match braces {
        Some((before, (names, after))) => names.split(',').map(|name| format!("{before}{name}{after}")).collect(),
        None => vec![word.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        missing("x.md", text, &|path| ["crates/a/src/b.rs", "docs/c.md"].contains(&path))
            .iter()
            .map(Finding::to_string)
            .collect()
    }

    #[test]
    fn a_path_that_is_not_there_is_found_with_its_line() {
        assert_eq!(found("see\n`a/src/d.rs`"), ["x.md:2: a/src/d.rs is not there"]);
        assert_eq!(found("`a/src/{b,d}.rs`"), ["x.md:1: a/src/d.rs is not there"]);
        assert_eq!(found("`docs/gone/`"), ["x.md:1: docs/gone/ is not there"]);
    }

    #[test]
    fn what_is_there_and_what_is_no_path_is_not_found() {
        for text in
            ["`a/src/b.rs`", "`crates/a/src/b.rs` and `docs/c.md`", "`b.rs`", "`fn a()`", "`crates/NAME/src/x.rs`"]
        {
            assert_eq!(found(text), [""; 0], "{text}");
        }
        assert_eq!(found("```\n`a/src/d.rs`\n```"), [""; 0], "drawings are not read");
    }
}
