//! Checks of one source file: its header, leftovers, its length, and, below the waterline, that it touches nothing of the
//! world. They read text, not syntax: comments and strings are skipped where that matters, which is enough for a house
//! whose people mean well. Words that are looked for are put together here, so that this file does not find itself.

use crate::Finding;
use crate::layers::is_below_water;

/// A longer file says in its header why it is one thing.
const LINES_MAX: usize = 1000;

/// All findings of one file. `path` is relative to the repository.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    header(text, &mut findings);
    length(text, &mut findings);
    leftovers(text, &mut findings);
    if !path.starts_with("crates/sdk/") {
        examples(text, &mut findings);
    }
    if is_below_water(path) {
        // A test may say what it saw.
        let in_tests = path.contains("/tests/") || path.ends_with("tests.rs");
        purity(text, in_tests, &mut findings);
    }
    findings.into_iter().map(|(line, what)| Finding { place: path.to_owned(), line, what }).collect()
}

type Found = Vec<(usize, String)>;

fn header(text: &str, found: &mut Found) {
    if !text.starts_with("//!") {
        found.push((1, "begins without `//!`: say what this is, what it leaves to others, and why it is here".into()));
    }
}

fn length(text: &str, found: &mut Found) {
    let lines = text.lines().count();
    let header = text.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join(" ").to_lowercase();
    if lines > LINES_MAX && !header.contains("one file") && !header.contains("one thing") && !header.contains("long") {
        found.push((0, format!("has {lines} lines; over {LINES_MAX} its header says why it is one thing")));
    }
}

/// Examples in docs that look as if they were run. Only those of the SDK are: looking for them costs each crate seconds.
fn examples(text: &str, found: &mut Found) {
    let mut is_open = false;
    for (at, line) in text.lines().enumerate() {
        let doc = ["///", "//!"].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
        let Some(told) = doc.and_then(|doc| doc.trim().strip_prefix("```")) else { continue };
        if !is_open && ["", "rust", "no_run", "should_panic", "compile_fail"].contains(&told) {
            found
                .push((at + 1, "an example that nobody runs: ```text, or `doctest` in its Cargo.toml and here".into()));
        }
        is_open = !is_open;
    }
}

/// What nobody means to leave behind.
fn leftovers(text: &str, found: &mut Found) {
    let macros = ["todo", "unimplemented", "dbg"].map(|name| format!("{name}!"));
    let marks = ["FIX", "XX"].map(|start| format!("{start}{}", if start == "XX" { "X" } else { "ME" }));
    let machine_paths = [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"]].map(|parts| parts.concat());
    let ignore = ["#[ig", "nore]"].concat();
    for (at, line) in text.lines().enumerate() {
        let code = code_of(line);
        for name in &macros {
            if has_word(&code, name) {
                found.push((at + 1, format!("{name} is left")));
            }
        }
        for mark in &marks {
            if has_word(line, mark) {
                found.push((at + 1, format!("{mark} is left")));
            }
        }
        for path in &machine_paths {
            if has_path(line, path) {
                found.push((at + 1, format!("{path} is a path of one machine")));
            }
        }
        if code.contains(&ignore) {
            found.push((at + 1, format!("{ignore} without a reason")));
        }
    }
}

/// Names of the world, and what they would bring below the waterline.
const WORLD: &[(&str, &str)] = &[
    ("std::thread", "a thread"),
    ("std::fs", "a disk"),
    ("std::process", "processes"),
    ("std::env", "the environment"),
    ("TcpStream", "a socket"),
    ("TcpListener", "a socket"),
    ("UdpSocket", "a socket"),
    ("UnixStream", "a socket"),
    ("ToSocketAddrs", "name resolution"),
    ("SystemTime", "a clock"),
    ("Instant", "a clock"),
    ("tokio", "an async runtime"),
    ("async", "async"),
    ("getrandom", "entropy"),
    ("rand", "entropy"),
    ("thread_rng", "entropy"),
    ("SystemRandom", "entropy"),
    ("new_v4", "entropy"),
    ("now_v7", "entropy and a clock"),
    ("RandomState", "a random order"),
    ("DefaultHasher", "a hash that may change"),
    ("HashMap::new", "a random order"),
    ("HashSet::new", "a random order"),
    ("HashMap::with_capacity", "a random order"),
    ("HashSet::with_capacity", "a random order"),
];

/// Output that nobody asked for; tests may have it.
const PRINTS: &[&str] = &["println!", "eprintln!", "print!", "eprint!"];

/// What of `ring` computes only: `aead` is given its nonces.
const RING_MODULES: &[&str] = &["hmac", "constant_time", "digest", "aead"];

fn purity(text: &str, in_tests: bool, found: &mut Found) {
    for (at, line) in text.lines().enumerate() {
        let code = code_of(line);
        for (name, what) in WORLD {
            if has_word(&code, name) {
                found.push((at + 1, format!("{name} brings {what} below the waterline")));
            }
        }
        for name in PRINTS {
            if !in_tests && has_word(&code, name) {
                found.push((at + 1, format!("{name} brings output below the waterline")));
            }
        }
        if let Some(what) = std_group(&code) {
            found.push((at + 1, format!("std::{what} is not for below the waterline")));
        }
        for module in ring_modules(&code) {
            if !RING_MODULES.contains(&module.as_str()) {
                found.push((at + 1, format!("ring::{module}: below the waterline only {RING_MODULES:?}")));
            }
        }
    }
}

/// `use std::{fs, thread}` says it in another way.
fn std_group(code: &str) -> Option<String> {
    let group = code.trim_start().strip_prefix("use std::{")?;
    let names = group.split(',').map(|name| name.trim().trim_end_matches(['}', ';', ' ']));
    let mut firsts = names.map(|name| name.split("::").next().unwrap_or_default());
    firsts.find(|name| ["fs", "thread", "process", "env"].contains(name)).map(str::to_owned)
}

/// `ring::hmac::Key`, `use ring::{digest, rand}`.
fn ring_modules(code: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for (at, _) in code.match_indices("ring::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + "ring::".len()..];
        let named = match rest.strip_prefix('{') {
            Some(group) => group.split('}').next().unwrap_or_default(),
            None => rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default(),
        };
        let module = |name: &str| name.trim().split("::").next().unwrap_or_default().to_owned();
        modules.extend(named.split(',').map(module).filter(|name| !name.is_empty()));
    }
    modules
}

/// The line without its comment and without what stands in strings.
fn code_of(line: &str) -> String {
    let mut code = String::new();
    let mut chars = line.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => _ = chars.next(),
            '"' => in_string = !in_string,
            '\'' if chars.peek() == Some(&'"') => {
                // The character of a quote: '"'.
                chars.next();
            }
            '/' if !in_string && chars.peek() == Some(&'/') => break,
            c if !in_string => code.push(c),
            _ => (),
        }
    }
    code
}

/// Whether `word` stands in the text by itself, not as a part of a longer name.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !(before.ends_with(part) || after.starts_with(part) && word.ends_with(part))
    })
}

/// Whether an absolute path begins so, and not a longer path or an address that ends so.
fn has_path(line: &str, path: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || "._-/}:*".contains(c);
    line.match_indices(path).any(|(at, _)| !line[..at].ends_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "//! What this is.\n";

    /// Findings of a file below the waterline with a good header and this line.
    fn pure(line: &str) -> Vec<String> {
        check("crates/state/src/x.rs", &format!("{HEAD}{line}\n"))
            .into_iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    fn any(line: &str) -> Vec<String> {
        check("crates/edge/src/x.rs", &format!("{HEAD}{line}\n"))
            .into_iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn a_missing_header_is_found() {
        assert!(check("crates/edge/src/x.rs", "fn main() {}\n")[0].what.starts_with("begins without"));
        assert!(check("crates/edge/src/x.rs", HEAD).is_empty());
    }

    #[test]
    fn a_long_file_says_why() {
        let body = "fn f() {}\n".repeat(1000);
        assert!(check("a.rs", &format!("{HEAD}{body}"))[0].what.contains("1001 lines"));
        assert!(check("a.rs", &format!("//! A table of codes: one thing, so one file.\n{body}")).is_empty());
    }

    #[test]
    fn leftovers_are_found() {
        for parts in
            [["to", "do!()"], ["unim", "plemented!()"], ["db", "g!(x)"], ["// FIX", "ME: later"], ["// XX", "X"]]
        {
            assert_eq!(any(&parts.concat()).len(), 1, "{parts:?}");
        }
        assert_eq!(any(&["#[ig", "nore]"].concat()).len(), 1);
        assert_eq!(any(&["#[ig", "nore = \"needs a network\"]"].concat()).len(), 0);
        assert_eq!(any(&["let p = \"/wo", "rk/main\";"].concat()).len(), 1);
        assert_eq!(any(&["let p = \"/tmp/wo", "rk/main\";"].concat()).len(), 0);
    }

    #[test]
    fn examples_are_run_or_are_text() {
        assert_eq!(any("/// ```\n/// f();\n/// ```").len(), 1);
        assert_eq!(any("    //! ```no_run\n    //! f();\n    //! ```").len(), 1);
        assert_eq!(any("/// ```text\n/// a -> b\n/// ```").len(), 0);
        let of_sdk = format!("{HEAD}/// ```\n/// f();\n/// ```\n");
        assert!(check("crates/sdk/src/x.rs", &of_sdk).is_empty());
    }

    #[test]
    fn words_in_strings_comments_and_longer_names_are_not_leftovers() {
        for line in
            ["// no tokio here", "let s = \"std::fs\";", "let strand = 1;", "fn instantly() {}", "operand.rand_like()"]
        {
            assert_eq!(pure(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn the_world_below_the_waterline_is_found() {
        for line in [
            "use std::time::Instant;",
            "use std::time::{Duration, SystemTime};",
            "std::thread::spawn(f);",
            "use std::{fs, io};",
            "use std::net::{SocketAddr, TcpStream};",
            "use tokio::sync::mpsc;",
            "let mut rng = rand::rng();",
            "let map: HashMap<u8, u8> = HashMap::new();",
            "use std::hash::RandomState;",
            "async fn f() {}",
            "println!(\"x\");",
            "let rng = ring::rand::SystemRandom::new();",
            "use ring::{hmac, signature};",
        ] {
            assert!(!pure(line).is_empty(), "{line}");
            assert!(any(line).is_empty(), "above the waterline it is allowed: {line}");
        }
        assert!(check("crates/state/src/tests/x.rs", &format!("{HEAD}println!(\"x\");\n")).is_empty());
        for line in [
            "use std::net::SocketAddr;",
            "use std::time::Duration;",
            "let tag = ring::hmac::sign(&key, b);",
            "use ring::{constant_time, hmac};",
            "let map = FixedMap::default();",
        ] {
            assert_eq!(pure(line), [""; 0], "{line}");
        }
    }
}
