//! Floors of `crates/edge`: doors (HTTP, TCP, the Redis protocol, the API) stand side by side on what they have in common, and none knows
//! another. Code that does names the other door in `use crate::DOOR` or in a path; what still does is listed here, file by file, and
//! the list only gets shorter.

use std::collections::BTreeSet;

use crate::Finding;

const EDGE: &str = "crates/edge/src/";

/// How a door is told: its folder has a `mod.rs` in which this stands. All other files of the crate are below them, but for the list of
/// modules.
const SERVES: &str = "\npub async fn serve";

/// Which files still know a door that is not theirs, and which one.
const KNOWN: &[(&str, &str)] = &[
    // A clone is reached by HTTP, so what asks clones for others stands on that part of the door.
    ("functions/rounds.rs", "http"),
    ("pool.rs", "http"),
];

/// Findings of the files of the crate among these, each with its path and what stands in it.
pub fn check(files: &[(String, String)]) -> Vec<Finding> {
    let doors: Vec<&str> = files.iter().filter_map(|(path, text)| door(path, text)).collect();
    let mut known: BTreeSet<(&str, &str)> = KNOWN.iter().copied().collect();
    let mut findings = Vec::new();
    for (path, text) in files {
        let Some(name) = path.strip_prefix(EDGE).filter(|name| *name != "lib.rs" && !is_test(name)) else { continue };
        for (line, other) in doors_in(name, text, &doors) {
            let is_known = KNOWN.contains(&(name, other));
            known.remove(&(name, other));
            if !is_known {
                let what = format!("knows the door `{other}`: what both need belongs on the floor below, in {EDGE}");
                findings.push(Finding { place: path.clone(), line, what });
            }
        }
    }
    for (name, door) in known {
        let what = format!("does not know the door `{door}` any more: take it off the list in xtask/src/floors.rs");
        findings.push(Finding { place: format!("{EDGE}{name}"), line: 0, what });
    }
    findings
}

/// The door that this file is the head of, if it is one.
fn door<'a>(path: &'a str, text: &str) -> Option<&'a str> {
    let name = path.strip_prefix(EDGE)?.strip_suffix("/mod.rs")?;
    (!name.contains('/') && text.contains(SERVES)).then_some(name)
}

fn is_test(name: &str) -> bool {
    name.ends_with("tests.rs") || name.contains("tests/")
}

/// Doors that a file names and does not belong to, with the line. Tests at its end may know all.
fn doors_in<'a>(name: &str, text: &str, doors: &[&'a str]) -> Vec<(usize, &'a str)> {
    let own = name.split('/').next().unwrap_or_default();
    let mut found = Vec::new();
    let mut group = false;
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("#[cfg(test)]") {
            break;
        }
        let code = line.split("//").next().unwrap_or_default();
        group |= code.trim_start().starts_with("use crate::{");
        for door in doors.iter().copied().filter(|door| *door != own) {
            let by_path = code.contains(&format!("crate::{door}::")) || code.contains(&format!("crate::{door};"));
            let is_part = |word: &str| word == door || word.starts_with(&format!("{door}::"));
            let in_group = group && code.split(['{', '}', ',', ' ', ';']).any(is_part);
            if by_path || in_group {
                found.push((at + 1, door));
            }
        }
        group &= !code.contains(';');
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOORS: [&str; 4] = ["api", "http", "resp", "tcp"];

    #[test]
    fn a_door_that_knows_another_one_is_found_however_it_is_written() {
        for (code, found) in [
            ("use crate::http::limits::X;\n", vec![(1, "http")]),
            ("//! a\nuse crate::{\n    Meter, http::limits,\n};\n", vec![(3, "http")]),
            ("fn a() { crate::tcp::serve() }\n", vec![(1, "tcp")]),
            ("use crate::{Meter, resp};\n", vec![]),
            ("// crate::http::serve\nuse crate::https::X;\n", vec![]),
            ("fn a() {}\n#[cfg(test)]\nmod tests {\n    use crate::api::Gone;\n}\n", vec![]),
        ] {
            assert_eq!(doors_in("resp/conn.rs", code, &DOORS), found, "{code}");
        }
    }

    #[test]
    fn the_floor_knows_no_door_and_the_list_only_gets_shorter() {
        let file = |name: &str, text: &str| (format!("{EDGE}{name}"), text.to_owned());
        // Each door as it serves, and each file that still knows one.
        let knows = |name: &str| -> String {
            let doors = KNOWN.iter().filter(|(file, _)| *file == name);
            doors.map(|(_, door)| format!("use crate::{door}::X;\n")).collect()
        };
        let mods = DOORS.map(|door| format!("{door}/mod.rs"));
        let doors = mods.iter().map(|name| file(name, &format!("{}{SERVES}() {{}}\n", knows(name))));
        let others = KNOWN.iter().filter(|(name, _)| !mods.contains(&(*name).to_owned()));
        let listed: Vec<_> = others.map(|(name, _)| file(name, &knows(name))).chain(doors).collect();
        let told = |files: &[(String, String)]| check(files).iter().map(Finding::to_string).collect::<Vec<_>>();
        let with = |more: (String, String)| [&listed[..], &[more]].concat();
        let tests = "use crate::http::X;\n#[cfg(test)]\nmod tests {}\n";
        assert_eq!(told(&with(file("resp/tests/mod.rs", tests))), [""; 0]);
        assert_eq!(told(&with(file("lib.rs", "pub use crate::http::X;\n"))), [""; 0]);
        let found = told(&with(file("spread.rs", "use crate::http::X;\n")));
        assert!(
            found.len() == 1 && found[0].starts_with("crates/edge/src/spread.rs:1: knows the door `http`"),
            "{found:?}"
        );
        let fewer = told(&listed[1..]);
        assert!(fewer.len() == 1 && fewer[0].contains("take it off the list"), "{fewer:?}");
    }
}
