//! The operator's terminal: all that a command prints goes through here (clippy refuses `println!` and its like elsewhere in this crate). Text that
//! programs and people elsewhere wrote must not clear the screen, set the title or overwrite lines of the one who looks at it, and whoever adds a
//! line to a command need not know which of its parts are such text. That a text of several lines is one line is not seen here:
//! `plain` is for that, where the text is known.

use std::io::{IsTerminal, Write};

/// One line of it. Control characters are shown, not sent; so are marks that turn the direction of a text. They are shown as JSON writes
/// them, so that a document in JSON is the same one behind this.
pub fn plain(text: &str) -> String {
    let steers =
        |c: char| c.is_control() && c != '\t' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c if steers(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Several lines of it.
pub fn lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// Prints this to standard output, with a line's end.
macro_rules! say {
    ($($text:tt)*) => { $crate::plain::said(&(format!($($text)*) + "\n")) };
}

/// The same to standard error.
macro_rules! complain {
    ($($text:tt)*) => { $crate::plain::complained(&format!($($text)*)) };
}

pub(crate) use {complain, say};

/// Prints lines to standard output as they end.
pub fn said(text: &str) {
    put(lines(text).as_bytes());
}

pub fn complained(text: &str) {
    // There is nobody to be told that this cannot be said.
    let _ = writeln!(std::io::stderr(), "{}", lines(text));
}

/// Prints what a file or another program is to have byte for byte; to a terminal as all else.
pub fn given(text: &str) {
    put(match std::io::stdout().is_terminal() {
        true => lines(text).into_bytes(),
        false => text.as_bytes().to_vec(),
    }
    .as_slice());
}

/// The same to standard error.
pub fn given_aside(text: &str) {
    let is_terminal = std::io::stderr().is_terminal();
    let _ = std::io::stderr().write_all(if is_terminal { lines(text) } else { text.to_owned() }.as_bytes());
}

fn put(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        // Whoever reads it has read enough, as `head` does.
        std::process::exit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_the_terminal_is_shown() {
        assert_eq!(plain("\u{1b}[2J\u{1b}]0;x\u{7}\ta\r\n"), "\\u001b[2J\\u001b]0;x\\u0007\ta\\r\\n");
        assert_eq!(plain("\u{9b}2J \u{202e}txt"), "\\u009b2J \\u202etxt");
        assert_eq!(lines("a\rb\n  c"), "a\\rb\n  c");
        assert_eq!(plain("na\u{ef}ve \u{1f600} a\\b"), "na\u{ef}ve \u{1f600} a\\b");
        let once = plain("\u{1b}\u{9b}\r\n");
        assert_eq!(plain(&once), once, "who makes it plain twice shows the same");
    }

    /// JSON leaves what is above U+001F as it is, controls of terminals among it.
    #[test]
    fn a_document_in_json_says_the_same_behind_it() {
        let text: String = (0..=0x2100).filter_map(char::from_u32).collect();
        for document in [serde_json::to_string(&text).unwrap(), serde_json::to_string_pretty(&[&text]).unwrap()] {
            let shown = lines(&document);
            assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown}");
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
                serde_json::from_str::<serde_json::Value>(&document).unwrap()
            );
        }
    }
}
