//! What there is too much of, counted over the whole tree: it may become less, and never more. Whoever makes it less lowers the number
//! here. Comments should begin with the noun or the verb and say what a thing is, so that a stranger understands them without the
//! code; a public type should have a name of its own, so that a search finds it.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;

/// Comments of an item that begin with one of [`OPENINGS`].
const OPENINGS_MOST: usize = 1_030;
/// Lines of comments over [`COLUMNS_MAX`].
const LONG_MOST: usize = 100;
/// Names of public types that stand in more than one file. `Input`, `Output` and the like, of machines, are among them.
const TWICE_MOST: usize = 290;

/// Words with which a comment begins that leaves out what it is about.
const OPENINGS: [&str; 7] = ["Of ", "By ", "Those ", "It ", "So many", "Likewise", "The same"];
/// As wide as code may be, columns.
const COLUMNS_MAX: usize = 140;

/// Findings of all files, each with its path and what stands in it.
pub fn check(files: &[(String, String)]) -> Vec<Finding> {
    let Counts { openings, long, types } = count(files);
    let twice: Vec<&str> = types.iter().filter(|(_, files)| files.len() > 1).map(|(name, _)| *name).collect();
    let mut findings = Vec::new();
    let mut most = |is: usize, most: usize, what: String| {
        if is > most {
            let what = format!("{is} {what}: at most {most} (xtask/src/ratchets.rs)");
            findings.push(Finding { place: "tree".to_owned(), line: 0, what });
        }
    };
    let words = OPENINGS.map(|word| format!("`{}`", word.trim())).join(", ");
    most(openings, OPENINGS_MOST, format!("comments of items begin with {words}, and not with what the item is"));
    most(long.len(), LONG_MOST, format!("lines of comments are over {COLUMNS_MAX} columns, as in {}", few(&long)));
    most(twice.len(), TWICE_MOST, format!("names of public types stand in more than one file, as {}", few(&twice)));
    findings
}

/// What was counted.
#[derive(Default)]
struct Counts<'a> {
    openings: usize,
    /// Where they are, `PATH:LINE`.
    long: Vec<String>,
    /// Public types by name, with the files that have one.
    types: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

fn count(files: &[(String, String)]) -> Counts<'_> {
    let mut counts = Counts::default();
    for (path, text) in files {
        let mut in_comment = false;
        for (at, line) in text.lines().enumerate() {
            let code = line.trim_start();
            let comment = code.strip_prefix("///");
            let begins = comment.filter(|_| !in_comment).map(str::trim_start);
            counts.openings +=
                usize::from(begins.is_some_and(|text| OPENINGS.iter().any(|word| text.starts_with(word))));
            in_comment = comment.is_some();
            if code.starts_with("//") && line.chars().count() > COLUMNS_MAX {
                counts.long.push(format!("{path}:{}", at + 1));
            }
            if let Some(name) = public_type(code) {
                counts.types.entry(name).or_default().insert(path);
            }
        }
    }
    counts
}

/// The name of the type that a line declares for all.
fn public_type(code: &str) -> Option<&str> {
    let rest = ["struct", "enum", "trait", "type"].iter().find_map(|kind| {
        let rest = code.strip_prefix("pub ")?.strip_prefix(kind)?;
        rest.strip_prefix(' ')
    })?;
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| name.starts_with(|c: char| c.is_uppercase()))
}

/// The last few of them: what is new is often there.
fn few<T: AsRef<str>>(all: &[T]) -> String {
    all.iter().rev().take(4).map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_too_much_of_is_counted() {
        let long = "x".repeat(COLUMNS_MAX);
        let first = format!(
            "/// Of a call.\npub struct Call;\n/// Calls that wait.\n/// It is one line of several.\npub enum Wait {{}}\n// {long}\n\
             pub struct Lone<T>(T);\npub(crate) struct Hidden;\n    /// By name.\n    names: u8,\n"
        );
        let files = [("a.rs".to_owned(), first), ("b.rs".to_owned(), "pub struct Call;\nstruct Lone;\n".to_owned())];
        let Counts { openings, long, types } = count(&files);
        assert_eq!((openings, long), (2, vec!["a.rs:6".to_owned()]));
        let twice: Vec<_> = types.iter().filter(|(_, files)| files.len() > 1).map(|(name, _)| *name).collect();
        assert_eq!((twice, types.len()), (vec!["Call"], 3));
    }

    #[test]
    fn more_than_there_were_is_found() {
        let riddles = |count: usize| [("a.rs".to_owned(), "/// Of it.\nfn a() {}\n".repeat(count))];
        assert_eq!(check(&riddles(OPENINGS_MOST)), []);
        let found = check(&riddles(OPENINGS_MOST + 1));
        assert!(found.len() == 1 && found[0].what.contains("`Of`, `By`"), "{found:?}");
    }
}
