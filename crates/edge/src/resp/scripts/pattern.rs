//! Lua's patterns, as `string.find` and its kin match them, with an end: a pattern of a few stars may take longer than the world
//! lasts, and Lua's own matching cannot be stopped.

use super::limits::{CAPTURES_MAX, LOOK_AFTER_STEPS, MATCH_DEPTH_MAX};

pub struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<Capture>,
    steps: u32,
    depth: usize,
    /// Is the time over? Asked now and then.
    is_over: &'a dyn Fn() -> bool,
}

#[derive(Clone, Copy, Debug)]
struct Capture {
    start: usize,
    len: Len,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Len {
    Open,
    Position,
    Of(usize),
}

/// What a capture has.
#[derive(Clone, PartialEq, Debug)]
pub enum Captured {
    Text(Vec<u8>),
    /// Counted from 1.
    Position(usize),
}

/// Where a match lies, and what it has captured.
pub type Found = (usize, usize, Vec<Captured>);

type Done<T> = Result<T, String>;

/// Has it nothing that stands for something else?
pub fn is_plain(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

/// The first match from `from` on. `anchors`: a `^` at the pattern's beginning is none of its characters.
pub fn find(
    text: &[u8],
    pattern: &[u8],
    from: usize,
    anchors: bool,
    is_over: &dyn Fn() -> bool,
) -> Done<Option<Found>> {
    let anchored = anchors && pattern.first() == Some(&b'^');
    let pattern = if anchored { &pattern[1..] } else { pattern };
    let mut matcher = Matcher { text, pattern, captures: Vec::new(), steps: 0, depth: 0, is_over };
    for start in from..=text.len() {
        matcher.captures.clear();
        if let Some(end) = matcher.run(start, 0)? {
            return Ok(Some((start, end, matcher.captured()?)));
        }
        if anchored {
            break;
        }
    }
    Ok(None)
}

impl Matcher<'_> {
    fn captured(&self) -> Done<Vec<Captured>> {
        let one = |capture: &Capture| match capture.len {
            Len::Open => Err("unfinished capture".to_owned()),
            Len::Position => Ok(Captured::Position(capture.start + 1)),
            Len::Of(len) => Ok(Captured::Text(self.text[capture.start..capture.start + len].to_vec())),
        };
        self.captures.iter().map(one).collect()
    }

    fn step(&mut self) -> Done<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(LOOK_AFTER_STEPS) && (self.is_over)() {
            return Err("the script's time is over".to_owned());
        }
        Ok(())
    }

    /// Where a match ends that begins here, of the pattern from `p` on.
    fn run(&mut self, s: usize, p: usize) -> Done<Option<usize>> {
        self.depth += 1;
        if self.depth > MATCH_DEPTH_MAX {
            return Err("pattern too complex".to_owned());
        }
        let found = self.run_on(s, p);
        self.depth -= 1;
        found
    }

    fn run_on(&mut self, mut s: usize, mut p: usize) -> Done<Option<usize>> {
        loop {
            self.step()?;
            let Some(&first) = self.pattern.get(p) else { return Ok(Some(s)) };
            match first {
                b'(' if self.pattern.get(p + 1) == Some(&b')') => return self.open(s, p + 2, Len::Position),
                b'(' => return self.open(s, p + 1, Len::Open),
                b')' => return self.close(s, p + 1),
                b'%' if self.pattern.get(p + 1) == Some(&b'b') => match self.balance(s, p + 2)? {
                    Some(end) => {
                        (s, p) = (end, p + 4);
                        continue;
                    }
                    None => return Ok(None),
                },
                b'%' if self.pattern.get(p + 1) == Some(&b'f') => {
                    p += 2;
                    if self.pattern.get(p) != Some(&b'[') {
                        return Err("missing '[' after '%f' in pattern".to_owned());
                    }
                    let end = self.class_end(p)?;
                    let before = if s == 0 { 0 } else { self.text[s - 1] };
                    let here = self.text.get(s).copied().unwrap_or(0);
                    if self.in_set(before, p, end - 1) || !self.in_set(here, p, end - 1) {
                        return Ok(None);
                    }
                    p = end;
                    continue;
                }
                b'%' if self.pattern.get(p + 1).is_some_and(u8::is_ascii_digit) => {
                    let digit = self.pattern[p + 1];
                    match self.same_again(s, digit)? {
                        Some(end) => {
                            (s, p) = (end, p + 2);
                            continue;
                        }
                        None => return Ok(None),
                    }
                }
                b'$' if p + 1 == self.pattern.len() => return Ok((s == self.text.len()).then_some(s)),
                _ => (),
            }
            let end = self.class_end(p)?;
            let fits = self.fits(s, p, end);
            match self.pattern.get(end) {
                Some(b'?') => {
                    if fits && let Some(found) = self.run(s + 1, end + 1)? {
                        return Ok(Some(found));
                    }
                    p = end + 1;
                }
                Some(b'*') => return self.most(s, p, end),
                Some(b'+') => return if fits { self.most(s + 1, p, end) } else { Ok(None) },
                Some(b'-') => return self.least(s, p, end),
                _ if !fits => return Ok(None),
                _ => (s, p) = (s + 1, end),
            }
        }
    }

    fn most(&mut self, s: usize, p: usize, end: usize) -> Done<Option<usize>> {
        let mut count = 0;
        while self.fits(s + count, p, end) {
            self.step()?;
            count += 1;
        }
        loop {
            if let Some(found) = self.run(s + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    fn least(&mut self, mut s: usize, p: usize, end: usize) -> Done<Option<usize>> {
        loop {
            if let Some(found) = self.run(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.fits(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, len: Len) -> Done<Option<usize>> {
        if self.captures.len() >= CAPTURES_MAX {
            return Err("too many captures".to_owned());
        }
        let count = self.captures.len();
        self.captures.push(Capture { start: s, len });
        let found = self.run(s, p)?;
        if found.is_none() {
            self.captures.truncate(count);
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Done<Option<usize>> {
        let open = self.captures.iter().rposition(|capture| capture.len == Len::Open);
        let at = open.ok_or_else(|| "invalid pattern capture".to_owned())?;
        self.captures[at].len = Len::Of(s - self.captures[at].start);
        let found = self.run(s, p)?;
        if found.is_none() {
            self.captures[at].len = Len::Open;
        }
        Ok(found)
    }

    fn balance(&mut self, s: usize, p: usize) -> Done<Option<usize>> {
        let (Some(&begins), Some(&ends)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err("unbalanced pattern".to_owned());
        };
        if self.text.get(s) != Some(&begins) {
            return Ok(None);
        }
        let mut depth = 1;
        for at in s + 1..self.text.len() {
            self.step()?;
            let byte = self.text[at];
            if byte == ends {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == begins {
                depth += 1;
            }
        }
        Ok(None)
    }

    fn same_again(&mut self, s: usize, digit: u8) -> Done<Option<usize>> {
        let wrong = || "invalid capture index".to_owned();
        let capture = usize::from(digit).checked_sub(usize::from(b'1')).and_then(|at| self.captures.get(at));
        let capture = capture.ok_or_else(wrong)?;
        let Len::Of(len) = capture.len else { return Err(wrong()) };
        let is_same = self.text.get(s..s + len) == Some(&self.text[capture.start..capture.start + len]);
        Ok(is_same.then_some(s + len))
    }

    /// Where the class ends that begins at `p`.
    fn class_end(&self, mut p: usize) -> Done<usize> {
        let first = self.pattern[p];
        p += 1;
        match first {
            b'%' if p >= self.pattern.len() => Err("malformed pattern (ends with '%')".to_owned()),
            b'%' => Ok(p + 1),
            b'[' => {
                p += usize::from(self.pattern.get(p) == Some(&b'^'));
                // What stands first in it is a member, also a bracket.
                loop {
                    match self.pattern.get(p) {
                        None => return Err("malformed pattern (missing ']')".to_owned()),
                        Some(b'%') if p + 1 < self.pattern.len() => p += 2,
                        Some(_) => p += 1,
                    }
                    if self.pattern.get(p) == Some(&b']') {
                        return Ok(p + 1);
                    }
                }
            }
            _ => Ok(p),
        }
    }

    fn fits(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(s) else { return false };
        match self.pattern[p] {
            b'.' => true,
            b'%' => is_of(byte, self.pattern[p + 1]),
            b'[' => self.in_set(byte, p, end - 1),
            other => other == byte,
        }
    }

    /// Is it in the set from the bracket at `p` to the one at `last`?
    fn in_set(&self, byte: u8, p: usize, last: usize) -> bool {
        let is_not = self.pattern.get(p + 1) == Some(&b'^');
        let mut at = p + 1 + usize::from(is_not);
        while at < last {
            let here = self.pattern[at];
            if here == b'%' && at + 1 < last {
                if is_of(byte, self.pattern[at + 1]) {
                    return !is_not;
                }
                at += 2;
            } else if self.pattern.get(at + 1) == Some(&b'-') && at + 2 < last {
                if (here..=self.pattern[at + 2]).contains(&byte) {
                    return !is_not;
                }
                at += 3;
            } else {
                if here == byte {
                    return !is_not;
                }
                at += 1;
            }
        }
        is_not
    }
}

/// Is it of a class by its letter? Whatever is no class stands for itself.
fn is_of(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | 9..=13),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return byte == class,
    };
    is != class.is_ascii_uppercase()
}

/// `string.gsub` with a text in place of what is found: what comes of it, and how often.
pub fn replace(
    text: &[u8],
    pattern: &[u8],
    by: &[u8],
    most: usize,
    bytes_max: usize,
    is_over: &dyn Fn() -> bool,
) -> Done<(Vec<u8>, usize)> {
    let anchored = pattern.first() == Some(&b'^');
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0);
    while count < most {
        let Some((start, end, captures)) = find(text, pattern, at, true, is_over)? else { break };
        if anchored && start != at {
            break;
        }
        count += 1;
        out.extend_from_slice(&text[at..start]);
        add(&mut out, &text[start..end], by, &captures)?;
        if out.len() > bytes_max {
            return Err("not enough memory".to_owned());
        }
        at = end;
        if end == start {
            match text.get(start) {
                Some(byte) => {
                    out.push(*byte);
                    at += 1;
                }
                None => break,
            }
        }
        if anchored {
            break;
        }
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    Ok((out, count))
}

fn add(out: &mut Vec<u8>, whole: &[u8], by: &[u8], captures: &[Captured]) -> Done<()> {
    let mut bytes = by.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'0') => out.extend_from_slice(whole),
            Some(b'1') if captures.is_empty() => out.extend_from_slice(whole),
            Some(digit @ b'1'..=b'9') => match captures.get(usize::from(digit - b'1')) {
                Some(Captured::Text(text)) => out.extend_from_slice(text),
                Some(Captured::Position(at)) => out.extend_from_slice(at.to_string().as_bytes()),
                None => return Err("invalid capture index".to_owned()),
            },
            Some(&other) => out.push(other),
            None => out.push(0),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_would_never_end_does() {
        let (text, pattern) = (vec![b'a'; 60], [&b"a*".repeat(30)[..], b"b"].concat());
        let asked = std::cell::Cell::new(0);
        let is_over = || {
            asked.set(asked.get() + 1);
            asked.get() > 3
        };
        assert_eq!(find(&text, &pattern, 0, true, &is_over), Err("the script's time is over".to_owned()));
        let deep = b"(a".repeat(40);
        assert_eq!(find(&text, &deep, 0, true, &|| false), Err("too many captures".to_owned()));
        let long = b"a?".repeat(1_000);
        assert_eq!(find(&[b'a'; 2_000], &long, 0, true, &|| false), Err("pattern too complex".to_owned()));
    }

    #[test]
    fn broken_patterns_are_errors() {
        for pattern in ["%", "[a", "[", "[^", "[%", "%b", "%bx", "%f", "%1", ")", "(", "(()", "%f[", "[a%"] {
            let found = find(b"aab)", pattern.as_bytes(), 0, true, &|| false);
            assert!(found.is_err(), "{pattern}: {found:?}");
        }
    }
}
