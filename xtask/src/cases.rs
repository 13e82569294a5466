//! Keeps the table of cases in docs/testing.md true: each small input that once failed has a row, and the row names tests that are
//! there, or says what is open.

use std::path::Path;

use crate::Finding;

const PAGE: &str = "docs/testing.md";

/// Kinds of cases, and how many there are of each: of state, of the edge and operations, of scale.
const KINDS: [(char, usize); 3] = [('S', 14), ('E', 24), ('C', 11)];

/// Findings of the table.
pub fn check(root: &Path) -> Vec<Finding> {
    let text = std::fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    findings(&text, &|path| {
        let read = |path: String| std::fs::read_to_string(root.join(path)).ok();
        read(path.to_owned()).or_else(|| read(format!("crates/{path}")))
    })
}

fn findings(text: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut finding = |line: usize, what: String| found.push(Finding { place: PAGE.to_owned(), line, what });
    for case in KINDS.iter().flat_map(|(kind, count)| (1..=*count).map(move |nth| format!("{kind}{nth}"))) {
        let row = text.lines().enumerate().find(|(_, line)| line.starts_with(&format!("| {case} |")));
        let Some((at, row)) = row else {
            finding(0, format!("case {case} has no row in the table of cases"));
            continue;
        };
        let held_by = row.split(" | ").nth(2).unwrap_or_default();
        let words: Vec<&str> = held_by.split('`').skip(1).step_by(2).collect();
        let is_open = held_by.starts_with("Open:");
        let mut tests: Vec<&str> = Vec::new();
        for word in words {
            // A file stands behind the names of its tests.
            if !word.contains('/') {
                tests.push(word);
                continue;
            }
            let Some(source) = read(word) else {
                finding(at + 1, format!("case {case}: {word} is not there"));
                continue;
            };
            if tests.is_empty() && !is_open {
                finding(at + 1, format!("case {case}: no test stands before {word}"));
            }
            for test in tests.drain(..).filter(|test| !source.contains(&format!("fn {test}("))) {
                finding(at + 1, format!("case {case}: {word} has no test {test}"));
            }
        }
        if !is_open && !held_by.contains(".rs`") {
            finding(at + 1, format!("case {case} names no test, and does not say that it is open"));
        }
        if !is_open && !tests.is_empty() {
            finding(at + 1, format!("case {case}: no file stands behind {}", tests.join(", ")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_s1(row: &str) -> Vec<String> {
        let read = |path: &str| (path == "a/b.rs").then(|| "#[test]\nfn it_holds() {".to_owned());
        let all = findings(row, &read).into_iter().map(|finding| finding.what);
        all.filter(|what| what.split([' ', ':']).nth(1) == Some("S1")).collect()
    }

    #[test]
    fn a_case_has_a_row_with_a_test_that_is_there_or_says_that_it_is_open() {
        assert_eq!(of_s1("| S1 | x | `it_holds` (`a/b.rs`) |"), [""; 0]);
        assert_eq!(of_s1("| S1 | x | Open: ten seconds |"), [""; 0]);
        assert_eq!(of_s1("| S10 | x | `it_holds` (`a/b.rs`) |"), ["case S1 has no row in the table of cases"]);
        assert_eq!(of_s1("| S1 | x | `it_fell` (`a/b.rs`) |"), ["case S1: a/b.rs has no test it_fell"]);
        assert_eq!(
            of_s1("| S1 | x | `it_holds` (`a/c.rs`) |").len(),
            2,
            "the file is not there, so nothing stands behind the test"
        );
        assert_eq!(of_s1("| S1 | x | `a/b.rs` |"), ["case S1: no test stands before a/b.rs"]);
        assert_eq!(of_s1("| S1 | x | it holds |"), ["case S1 names no test, and does not say that it is open"]);
    }
}
