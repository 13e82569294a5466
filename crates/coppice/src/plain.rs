//! Text that programs and people elsewhere wrote, made fit for the operator's terminal. Whatever prints such text sends it
//! through here: a program must not clear the screen, set the title or overwrite lines of the one who looks at it.

/// One line of it. Control characters are shown, not sent; so are marks that turn the direction of a text.
pub fn plain(text: &str) -> String {
    let steers =
        |c: char| c.is_control() && c != '\t' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |c: char| if steers(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// Several lines of it.
pub fn lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_the_terminal_is_shown() {
        assert_eq!(plain("\u{1b}[2J\u{1b}]0;x\u{7}\ta\r\n"), "\\u{1b}[2J\\u{1b}]0;x\\u{7}\ta\\r\\n");
        assert_eq!(plain("\u{9b}2J \u{202e}txt"), "\\u{9b}2J \\u{202e}txt");
        assert_eq!(lines("a\rb\n  c"), "a\\rb\n  c");
        assert_eq!(plain("na\u{ef}ve \u{1f600} a\\b"), "na\u{ef}ve \u{1f600} a\\b");
    }
}
