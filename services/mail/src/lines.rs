//! Lines of a protocol out of bytes as they come. CR LF ends a line and nothing else does: two programs that disagree
//! on where a line ends can be played against each other (SMTP smuggling), so a CR or LF of its own is told apart
//! here and never passed over.

use memchr::memchr;

/// What has come and was not taken yet.
#[derive(Default, Debug)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Taken up to here.
    at: usize,
    /// The line that was too long goes on.
    skips: bool,
}

#[derive(PartialEq, Eq, Debug)]
pub enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    /// It is passed over to its end.
    TooLong,
    /// It has a CR or LF of its own.
    Bare,
    /// Not yet.
    Partial,
}

impl Lines {
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            self.clear();
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.at = 0;
    }

    /// What is left, for who does not want lines.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub fn skip(&mut self, count: usize) {
        self.at = (self.at + count).min(self.bytes.len());
    }

    /// The next line of at most `max` bytes with its end.
    pub fn next(&mut self, max: usize) -> Line {
        loop {
            let rest = self.rest();
            let Some(end) = memchr(b'\n', rest) else {
                let (is_long, last) = (rest.len() >= max, rest.last().copied());
                if self.skips || is_long {
                    // A CR that came last may be the half of an end.
                    let kept = usize::from(last == Some(b'\r'));
                    self.at = self.bytes.len() - kept;
                    if is_long && !self.skips {
                        self.skips = true;
                        return Line::TooLong;
                    }
                }
                return Line::Partial;
            };
            let has_cr = end > 0 && rest[end - 1] == b'\r';
            // As it is told when it comes in pieces.
            if end >= max && !self.skips {
                self.skips = true;
                return Line::TooLong;
            }
            let line = rest[..end.saturating_sub(1)].to_vec();
            if !has_cr {
                self.at += end + 1;
                self.skips = false;
                return Line::Bare;
            }
            self.at += end + 1;
            if std::mem::take(&mut self.skips) {
                continue;
            }
            return if line.contains(&b'\r') { Line::Bare } else { Line::Whole(line) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&[u8]], max: usize) -> Vec<Line> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece);
            loop {
                match lines.next(max) {
                    Line::Partial => break,
                    line => out.push(line),
                }
            }
        }
        out
    }

    #[test]
    fn only_cr_lf_ends_a_line() {
        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        assert_eq!(all(&[b"NOOP\r\nQUIT\r\n"], 100), [whole("NOOP"), whole("QUIT")]);
        assert_eq!(all(&[b"NO", b"OP\r", b"\nQ"], 100), [whole("NOOP")]);
        assert_eq!(all(&[b"\r\n"], 100), [whole("")]);
        for bare in [&b"NOOP\n"[..], b"\n", b"NOOP\rQUIT\r\n", b"NOOP\r\r\n"] {
            assert_eq!(all(&[bare], 100), [Line::Bare], "{bare:?}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_told_once_and_takes_no_room() {
        let long = [b'a'; 40];
        assert_eq!(
            all(&[&long, &long, &long, b"\r", b"\nQUIT\r\n"], 50),
            [Line::TooLong, Line::Whole(b"QUIT".to_vec())]
        );
        assert_eq!(all(&[b"123456789\r\n12345678\r\n"], 10), [Line::TooLong, Line::Whole(b"12345678".to_vec())]);
        let mut lines = Lines::default();
        for _ in 0..1000 {
            lines.push(&long);
            let _ = lines.next(50);
        }
        assert!(lines.bytes.len() <= 100, "{}", lines.bytes.len());
    }
}
