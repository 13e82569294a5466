//! Known weaknesses of dependencies: the versions that Cargo.lock has, compared with a dated copy of RustSec's list
//! (`xtask/advisories.txt`), as nothing is fetched here. `cargo run -p xtask -- advisories CLONE` prints that file anew from a clone of
//! <https://github.com/RustSec/advisory-db>; `tidy` says how old it is.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Finding;

const COPY: &str = "xtask/advisories.txt";
const LOCK: &str = "Cargo.lock";
/// Those that concern us and are no trouble, each with the reason.
const KNOWN: [(&str, &str); 3] = [
    (
        "RUSTSEC-2024-0437",
        "protobuf 2 comes with raft; our wire maps its messages to prost, so its parser sees no bytes (docs/dependencies.md)",
    ),
    (
        "RUSTSEC-2024-0436",
        "paste comes with rav1e (feature `avif`), makes names while that is built, and is merely not maintained",
    ),
    ("RUSTSEC-2025-0057", "fxhash comes with raft and is merely not maintained; its keys are ids of our own"),
];
const DAY_SECS: u64 = 86_400;

/// One line of the copy.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Advisory {
    id: String,
    package: String,
    /// Requirements of versions that are not concerned, patched ones and others.
    good: Vec<String>,
}

/// Findings of the versions that are locked.
pub fn check(root: &Path) -> Vec<Finding> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
    let (copy, lock) = (read(COPY), read(LOCK));
    compare(&copy, &lock, &KNOWN)
}

/// Of the copy, for people: `advisories of 2026-08-21, 98 days old`.
pub fn age(root: &Path) -> String {
    let copy = std::fs::read_to_string(root.join(COPY)).unwrap_or_default();
    let date = copy.lines().next().and_then(|line| line.split_whitespace().last()).unwrap_or("nobody knows when");
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs() / DAY_SECS;
    match days(date) {
        Some(then) => format!("advisories of {date}, {} days old", today.saturating_sub(then)),
        None => format!("advisories of {date}"),
    }
}

/// The copy, made of a clone.
///
/// # Errors
/// There is no such clone.
pub fn copy(clone: &Path) -> Result<String, String> {
    let git = |args: &[&str]| {
        let said = Command::new("git").arg("-C").arg(clone).args(args).output().map_err(|e| e.to_string())?;
        if said.status.success() {
            Ok(String::from_utf8_lossy(&said.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&said.stderr).into_owned())
        }
    };
    let date = git(&["log", "-1", "--format=%cs"])?;
    let names = git(&["ls-tree", "-r", "--name-only", "HEAD", "crates/"])?;
    let mut lines = Vec::new();
    for name in names.lines().filter(|name| name.ends_with(".md")) {
        let text = git(&["show", &format!("HEAD:{name}")])?;
        lines.extend(line_of(&text));
    }
    lines.sort();
    Ok(format!("# RustSec advisory-db of {}\n{}\n", date.trim(), lines.join("\n")))
}

/// A file of the clone as a line: none, if it was withdrawn.
fn line_of(text: &str) -> Option<String> {
    let toml = text.split_once("```toml")?.1.split("```").next()?;
    let quoted = |line: &str| line.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let value = |key: &str| {
        let at = toml.lines().position(|line| line.split('=').next().is_some_and(|name| name.trim() == key))?;
        let mut all = Vec::new();
        for (nth, line) in toml.lines().skip(at).enumerate() {
            let said = if nth == 0 { line.split_once('=')?.1 } else { line };
            all.extend(quoted(said));
            // A list may go over several lines.
            if nth == 0 && !said.trim_start().starts_with('[') || said.trim_end().ends_with(']') {
                break;
            }
        }
        Some(all)
    };
    if value("withdrawn").is_some() {
        return None;
    }
    let one = |key: &str| value(key)?.into_iter().next();
    let good = [value("patched"), value("unaffected")].into_iter().flatten().flatten().collect::<Vec<_>>();
    Some(format!("{} {} {}", one("package")?, one("id")?, good.join(" | ")).trim_end().to_owned())
}

fn compare(copy: &str, lock: &str, known: &[(&str, &str)]) -> Vec<Finding> {
    let finding = |place: &str, what: String| Finding { place: place.to_owned(), line: 0, what };
    let all: Vec<Advisory> = copy.lines().filter(|line| !line.starts_with('#')).filter_map(parsed).collect();
    if all.is_empty() {
        return vec![finding(
            COPY,
            "has no advisories; `cargo run -p xtask -- advisories CLONE` prints some".to_owned(),
        )];
    }
    let mut found = Vec::new();
    let mut met = Vec::new();
    for (package, version) in locked(lock) {
        let concern = all.iter().filter(|it| it.package == package);
        for it in concern.filter(|it| !it.good.iter().any(|good| fits(good, &version).unwrap_or(false))) {
            if known.iter().any(|(id, _)| *id == it.id) {
                met.push(it.id.as_str());
            } else {
                let what =
                    format!("{package} {version} is concerned by {0}: https://rustsec.org/advisories/{0}", it.id);
                found.push(finding(LOCK, what));
            }
        }
    }
    for (id, _) in known.iter().filter(|(id, _)| !met.contains(id)) {
        found.push(finding("xtask/src/advisories.rs", format!("{id} concerns nothing here any more; take it out")));
    }
    found
}

fn parsed(line: &str) -> Option<Advisory> {
    let mut words = line.splitn(3, ' ');
    let (package, id) = (words.next()?.to_owned(), words.next()?.to_owned());
    let good = words.next().unwrap_or_default().split('|').map(|good| good.trim().to_owned());
    Some(Advisory { id, package, good: good.filter(|good| !good.is_empty()).collect() })
}

/// Packages from a registry, with their versions.
fn locked(lock: &str) -> Vec<(String, String)> {
    let packages = lock.split("[[package]]").skip(1);
    let of = |package: &str, key: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
        line.map(str::to_owned)
    };
    packages
        .filter(|package| of(package, "source").is_some())
        .filter_map(|package| Some((of(package, "name")?, of(package, "version")?)))
        .collect()
}

/// Whether a version meets a requirement as Cargo reads it: `>= 1.2, < 1.4`, `^0.3.4`. None: it cannot be read.
fn fits(requirement: &str, version: &str) -> Option<bool> {
    let version = numbers(version)?.0;
    for part in requirement.split(',').map(str::trim) {
        let end = part.find(|c: char| c.is_ascii_digit())?;
        let (what, (bound, said)) = (part[..end].trim(), numbers(&part[end..])?);
        let [major, minor, patch] = bound;
        let next = match (major, minor) {
            (1.., _) => [major + 1, 0, 0],
            (0, 1..) => [0, minor + 1, 0],
            (0, 0) if said < 3 => [0, 1, 0],
            (0, 0) => [0, 0, patch + 1],
        };
        let is_so = match what {
            ">=" => version >= bound,
            ">" => version > bound,
            "<" => version < bound,
            "<=" => version <= bound,
            "=" => version == bound,
            "~" => version >= bound && version < [major, minor + 1, 0],
            "" | "^" => version >= bound && version < next,
            _ => return None,
        };
        if !is_so {
            return Some(false);
        }
    }
    Some(true)
}

/// The three numbers of a version, and how many were said; what is before a release counts as that.
fn numbers(version: &str) -> Option<([u64; 3], usize)> {
    let plain = version.split(['-', '+']).next()?.trim();
    let mut all = [0; 3];
    let mut said = 0;
    for part in plain.split('.') {
        *all.get_mut(said)? = part.parse().ok()?;
        said += 1;
    }
    Some((all, said))
}

/// Days from 1970 to a date like `2026-08-21`.
fn days(date: &str) -> Option<u64> {
    let mut parts = date.split('-').map(str::parse::<u64>);
    let (year, month, day) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    // Years that begin in March, so that a leap day is the last one of a year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    (before + (month * 153 + 2) / 5 + day).checked_sub(719_469)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKED: &str = "version = 4\n\n[[package]]\nname = \"h2\"\nversion = \"0.4.1\"\nsource = \"registry\"\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";

    #[test]
    fn what_is_locked_and_not_good_is_found_unless_it_is_known() {
        let copy = "# RustSec advisory-db of 2026-08-21\nh2 RUSTSEC-1 ^0.3.26 | >= 0.4.4\nh2 RUSTSEC-2 >= 0.4.1\nours RUSTSEC-3\n";
        let what = |known: &[(&str, &str)]| {
            compare(copy, LOCKED, known).iter().map(|found| found.what.clone()).collect::<Vec<_>>()
        };
        let found = what(&[]);
        assert!(found.len() == 1 && found[0].contains("h2 0.4.1") && found[0].contains("RUSTSEC-1:"), "{found:?}");
        assert_eq!(what(&[("RUSTSEC-1", "why")]), Vec::<String>::new());
        let found = what(&[("RUSTSEC-1", "why"), ("RUSTSEC-9", "why")]);
        assert!(found.len() == 1 && found[0].contains("RUSTSEC-9 concerns nothing"), "{found:?}");
        assert!(compare("", LOCKED, &[])[0].what.contains("no advisories"));
    }

    #[test]
    fn requirements_are_read_as_cargo_reads_them() {
        for (requirement, version, expect) in [
            (">= 1.2.3", "1.2.3", true),
            (">= 1.2.3", "1.2.2", false),
            (">=1.0, <1.4", "1.3.9", true),
            (">=1.0, <1.4", "1.4.0", false),
            ("^0.3.4", "0.3.9", true),
            ("^0.3.4", "0.4.0", false),
            ("^0.0.4", "0.0.5", false),
            ("^1.2", "1.9.0", true),
            ("1.2.3", "2.0.0", false),
            ("=1.2.3", "1.2.3", true),
            ("~1.2.3", "1.2.9", true),
            ("< 2.0.0-alpha.1", "1.9.9", true),
            (">= 0.1.5", "0.1.5+wasi", true),
        ] {
            assert_eq!(fits(requirement, version), Some(expect), "{requirement} {version}");
        }
        assert_eq!(fits("*", "1.0.0"), None);
    }

    #[test]
    fn a_file_of_the_list_becomes_a_line() {
        let text = "```toml\n[advisory]\nid = \"RUSTSEC-7\"\npackage = \"h2\"\ndate = \"2024-01-17\"\n[versions]\npatched = [\n  \"^0.3.24\",\n  \">= 0.4.2\",\n]\nunaffected = [\"< 0.1\"]\n```\n\n# Title\n";
        assert_eq!(line_of(text).unwrap(), "h2 RUSTSEC-7 ^0.3.24 | >= 0.4.2 | < 0.1");
        assert_eq!(line_of(&text.replace("date =", "withdrawn = \"2024-02-01\"\ndate =")), None);
        assert_eq!((days("1970-01-01"), days("2000-03-01"), days("2026-08-21")), (Some(0), Some(11_017), Some(20_686)));
    }
}
