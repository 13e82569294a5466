//! The message itself. `DATA` ends with CR LF, a dot, CR LF and with nothing that looks like it: what another server
//! might have taken for an end (a CR or LF of its own, a NUL) is read on as text and makes the whole message one that
//! is refused, so that nothing can be smuggled behind it, neither here nor by who reads it from us.

use memchr::memchr3;

/// Why a message is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// It has a CR or LF that is no CR LF.
    Bare,
    Nul,
    TooLarge,
}

/// A message as it comes.
#[derive(Debug)]
pub struct Body {
    bytes: Vec<u8>,
    bytes_max: usize,
    unfit: Option<Unfit>,
}

impl Body {
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), bytes_max, unfit: None }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            self.unfit.get_or_insert(Unfit::TooLarge);
            self.bytes = Vec::new();
        }
        // What is not kept is not needed: it is refused.
        if self.unfit != Some(Unfit::TooLarge) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn is_unfit(&mut self, why: Unfit) {
        self.unfit.get_or_insert(why);
    }

    /// Memory that it takes.
    pub fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// The bytes, if they are a message.
    pub fn into_message(self) -> Result<Vec<u8>, Unfit> {
        match self.unfit {
            Some(unfit) => Err(unfit),
            None => Ok(self.bytes),
        }
    }

    /// For one that came in pieces, whose ends of lines nobody has looked at.
    pub fn into_checked(self) -> Result<Vec<u8>, Unfit> {
        let bytes = self.into_message()?;
        let mut at = 0;
        while let Some(found) = memchr3(b'\r', b'\n', 0, &bytes[at..]) {
            match (bytes[at + found], bytes.get(at + found + 1)) {
                (b'\r', Some(b'\n')) => at += found + 2,
                (0, _) => return Err(Unfit::Nul),
                _ => return Err(Unfit::Bare),
            }
        }
        Ok(bytes)
    }
}

/// What follows `DATA`, up to its end.
#[derive(Default, Debug)]
pub struct Text {
    at: At,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum At {
    #[default]
    LineStart,
    Middle,
    /// After a CR, which is not in the body yet.
    Cr,
    /// After a dot that began a line, which is not in the body.
    Dot,
    /// And a CR after it, which is not, either.
    DotCr,
}

impl Text {
    /// Takes bytes into the body. Gives how many, and whether the last of them was the end.
    pub fn take(&mut self, bytes: &[u8], body: &mut Body) -> (usize, bool) {
        let mut at = 0;
        while at < bytes.len() {
            if self.at == At::Middle {
                let found = memchr3(b'\r', b'\n', 0, &bytes[at..]).unwrap_or(bytes.len() - at);
                body.push(&bytes[at..at + found]);
                at += found;
                if at == bytes.len() {
                    break;
                }
            }
            let byte = bytes[at];
            at += 1;
            self.at = match (self.at, byte) {
                (At::LineStart, b'.') => At::Dot,
                (At::DotCr, b'\n') => return (at, true),
                (At::Dot, b'\r') => At::DotCr,
                (At::Cr, b'\n') => {
                    body.push(b"\r\n");
                    At::LineStart
                }
                (before, byte) => {
                    if matches!(before, At::Cr | At::DotCr) {
                        body.is_unfit(Unfit::Bare);
                        body.push(b"\r");
                    }
                    match byte {
                        b'\r' => At::Cr,
                        b'\n' | 0 => {
                            body.is_unfit(if byte == 0 { Unfit::Nul } else { Unfit::Bare });
                            body.push(&[byte]);
                            At::Middle
                        }
                        _ => {
                            body.push(&[byte]);
                            At::Middle
                        }
                    }
                }
            };
        }
        (at, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    fn text(pieces: &[&[u8]]) -> (Result<Vec<u8>, Unfit>, bool, usize) {
        let (mut text, mut body, mut used) = (Text::default(), Body::new(MAX), 0);
        for piece in pieces {
            let (taken, ended) = text.take(piece, &mut body);
            used += taken;
            if ended {
                return (body.into_message(), true, used);
            }
        }
        (body.into_message(), false, used)
    }

    #[test]
    fn dots_are_taken_away_and_the_end_is_found_wherever_it_is_cut() {
        let whole = b"a\r\n..b\r\n.c\r\n\r\n.\r\nQUIT\r\n";
        for cut in 0..whole.len() {
            let (body, ended, used) = text(&[&whole[..cut], &whole[cut..]]);
            assert_eq!((body.unwrap(), ended, used), (b"a\r\n.b\r\nc\r\n\r\n".to_vec(), true, 17), "{cut}");
        }
        assert_eq!(text(&[b".\r\n"]), (Ok(Vec::new()), true, 3));
    }

    #[test]
    fn pieces_are_looked_at_as_a_whole() {
        let of = |bytes: &[u8]| {
            let mut body = Body::new(MAX);
            body.push(bytes);
            body.into_checked()
        };
        assert_eq!(of(b"a\r\n.\r\nb\r\n"), Ok(b"a\r\n.\r\nb\r\n".to_vec()));
        for (bytes, why) in [
            (&b"a\nb"[..], Unfit::Bare),
            (b"a\r", Unfit::Bare),
            (b"\r\r\n", Unfit::Bare),
            (b"\n", Unfit::Bare),
            (b"a\0", Unfit::Nul),
        ] {
            assert_eq!(of(bytes), Err(why), "{bytes:?}");
        }
    }

    #[test]
    fn one_that_is_too_large_takes_no_room() {
        let mut body = Body::new(MAX);
        for _ in 0..3 {
            body.push(&vec![b'a'; MAX / 2 + 1]);
        }
        assert_eq!((body.held(), body.into_message()), (0, Err(Unfit::TooLarge)));
    }
}
