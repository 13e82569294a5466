//! Bytes of a client to commands. Arguments are ranges of the read buffer: nothing is copied, and nothing is reserved
//! for a length that was only announced. Whatever is not RESP ends the connection, since where the next command
//! begins is not known any more. Who may send what (the limits differ before AUTH) is the caller's to say.

use std::ops::Range;

use base::checksum::place_hash_pair;
use bytes::{Bytes, BytesMut};

use super::limits::*;

/// What is accepted at this moment.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub args: usize,
    pub arg_bytes: usize,
    pub command_bytes: usize,
}

impl Bounds {
    pub const STRANGER: Bounds =
        Bounds { args: STRANGER_ARGS_MAX, arg_bytes: STRANGER_BYTES_MAX, command_bytes: STRANGER_BYTES_MAX };
    pub const KNOWN: Bounds = Bounds { args: ARGS_MAX, arg_bytes: ARG_BYTES_MAX, command_bytes: COMMAND_BYTES_MAX };
}

/// One command: its bytes as they came, and where its arguments lie in them. Never without a name.
#[derive(Clone, Debug)]
pub struct Command {
    whole: Bytes,
    args: Args,
    /// Size of the buffer that `whole` is a part of.
    buffer: usize,
}

/// Why the bytes are not RESP, or too much. The connection gets this as an error and is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    TooManyArgs { max: usize },
    ArgTooLong { max: usize },
    CommandTooLong { max: usize },
    BadCount,
    ExpectedBulk { got: u8 },
    NoLineEnd,
    InlineTooLong,
    Quotes,
    Http,
    Tls,
}

/// What the buffer holds.
#[derive(Debug)]
pub enum Parsed {
    Command(Command),
    /// Not a whole command yet: at least so many bytes are missing (never 0).
    Need(usize),
}

/// Reads commands off the front of a buffer, and remembers how far it has come in an unfinished one.
#[derive(Debug, Default)]
pub struct Parser {
    /// Where to go on, from the buffer's start.
    at: usize,
    /// Arguments still to come; `None` before the `*N` line was read.
    missing: Option<usize>,
    args: Args,
}

impl Parser {
    /// Takes the next command off `buffer`, which is a part of `allocated` bytes that its values would hold on to.
    /// Between calls the caller may only append to the buffer.
    pub fn next(&mut self, buffer: &mut BytesMut, allocated: usize, bounds: &Bounds) -> Result<Parsed, Broken> {
        while self.missing.is_none() {
            let Some(&first) = buffer.first() else { return Ok(Parsed::Need(1)) };
            if first != b'*' {
                match inline(buffer, allocated)? {
                    Some(parsed) => return Ok(parsed),
                    None => continue,
                }
            }
            let Some((count, end)) = count_line(buffer, 0)? else { return Ok(Parsed::Need(1)) };
            match usize::try_from(count) {
                // `*0` and `*-1` say nothing and get no answer, as in Redis.
                Err(_) | Ok(0) => drop(buffer.split_to(end)),
                Ok(count) if count > bounds.args => return Err(Broken::TooManyArgs { max: bounds.args }),
                Ok(count) => (self.missing, self.at) = (Some(count), end),
            }
        }
        self.array(buffer, allocated, bounds)
    }

    fn array(&mut self, buffer: &mut BytesMut, allocated: usize, bounds: &Bounds) -> Result<Parsed, Broken> {
        while let Some(missing) = self.missing.filter(|&n| n > 0) {
            match buffer.get(self.at) {
                None => return Ok(Parsed::Need(1)),
                Some(b'$') => (),
                Some(&got) => return Err(Broken::ExpectedBulk { got }),
            }
            let Some((len, start)) = count_line(buffer, self.at)? else { return Ok(Parsed::Need(1)) };
            let len = usize::try_from(len).map_err(|_| Broken::BadCount)?;
            if len > bounds.arg_bytes {
                return Err(Broken::ArgTooLong { max: bounds.arg_bytes });
            }
            let end = start + len;
            if end + 2 > bounds.command_bytes {
                return Err(Broken::CommandTooLong { max: bounds.command_bytes });
            }
            if buffer.len() < end + 2 {
                // The length line is read again when more has come; it is short.
                return Ok(Parsed::Need(end + 2 - buffer.len()));
            }
            if &buffer[end..end + 2] != b"\r\n" {
                return Err(Broken::NoLineEnd);
            }
            self.args.push(start, end);
            self.missing = Some(missing - 1);
            self.at = end + 2;
        }
        let whole = buffer.split_to(self.at).freeze();
        let Parser { args, .. } = std::mem::take(self);
        Ok(Parsed::Command(Command { whole, args, buffer: allocated }))
    }
}

impl Command {
    /// One of these words; there must be some.
    pub fn of(words: &[Bytes]) -> Self {
        let (mut whole, mut args) = (BytesMut::new(), Args::default());
        for word in words {
            args.push(whole.len(), whole.len() + word.len());
            whole.extend_from_slice(word);
        }
        Self { buffer: whole.len(), whole: whole.freeze(), args }
    }

    /// Arguments, the name included: at least 1.
    pub fn len(&self) -> usize {
        self.args.len
    }

    pub fn is_empty(&self) -> bool {
        self.args.len == 0
    }

    /// A hash of its words, and of what was said before them.
    pub fn said(&self, before: u64) -> u64 {
        self.args().fold(before, |before, arg| place_hash_pair(arg, before))
    }

    /// In so many bytes it came.
    pub fn bytes(&self) -> usize {
        self.whole.len()
    }

    /// Argument `i` (0 is the name); empty if there is none.
    pub fn arg(&self, i: usize) -> &[u8] {
        self.args.get(i).map_or(&[], |(start, end)| &self.whole[start..end])
    }

    /// The command that its arguments from `first` on are; there must be some.
    pub fn without(&self, first: usize) -> Command {
        let mut args = Args::default();
        (first..self.len()).filter_map(|i| self.args.get(i)).for_each(|(start, end)| args.push(start, end));
        Command { whole: self.whole.clone(), args, buffer: self.buffer }
    }

    /// The command of the first arguments of this one, and of these.
    pub fn part(&self, head: usize, those: Range<usize>) -> Command {
        let mut args = Args::default();
        (0..head).chain(those).filter_map(|i| self.args.get(i)).for_each(|(start, end)| args.push(start, end));
        Command { whole: self.whole.clone(), args, buffer: self.buffer }
    }

    pub fn args(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.arg(i))
    }

    /// Argument `i` as a key. Always a copy: a key may outlive its value, and must not hold on to the read buffer.
    pub fn key(&self, i: usize) -> Bytes {
        Bytes::copy_from_slice(self.arg(i))
    }

    /// Argument `i` as a value: a part of the read buffer, unless it is so small in it that it is better copied.
    pub fn value(&self, i: usize) -> Bytes {
        let Some((start, end)) = self.args.get(i) else { return Bytes::new() };
        if (end - start).saturating_mul(PIN_SHARE) >= self.buffer {
            self.whole.slice(start..end)
        } else {
            Bytes::copy_from_slice(&self.whole[start..end])
        }
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooManyArgs { max } => write!(f, "Protocol error: a command may have {max} arguments here"),
            Self::ArgTooLong { max } => write!(f, "Protocol error: an argument may have {max} bytes here"),
            Self::CommandTooLong { max } => write!(f, "Protocol error: a command may have {max} bytes here"),
            Self::BadCount => f.write_str("Protocol error: invalid length"),
            Self::ExpectedBulk { got } => write!(f, "Protocol error: expected '$', got '{}'", got.escape_ascii()),
            Self::NoLineEnd => f.write_str("Protocol error: an argument does not end where its length says"),
            Self::InlineTooLong => write!(f, "Protocol error: an inline command may have {INLINE_BYTES_MAX} bytes"),
            Self::Quotes => f.write_str("Protocol error: unbalanced quotes in request"),
            Self::Http => f.write_str("this port speaks the Redis protocol, not HTTP"),
            Self::Tls => f.write_str("this port speaks the Redis protocol without TLS: redis://, not rediss://"),
        }
    }
}

/// `*N\r\n` or `$N\r\n` at `from`: the number and where the line ends; `None` if the line is not whole.
fn count_line(buffer: &[u8], from: usize) -> Result<Option<(i64, usize)>, Broken> {
    let rest = &buffer[from + 1..];
    let seen = &rest[..rest.len().min(COUNT_LINE_BYTES_MAX)];
    let Some(cr) = seen.iter().position(|&b| b == b'\r') else {
        // Nothing but a number may stand there, so that rubbish is not waited for.
        let fine = seen.len() < COUNT_LINE_BYTES_MAX && seen.iter().all(|b| b.is_ascii_digit() || *b == b'-');
        return if fine { Ok(None) } else { Err(Broken::BadCount) };
    };
    let number = integer(&seen[..cr]).ok_or(Broken::BadCount)?;
    match rest.get(cr + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((number, from + 1 + cr + 2))),
        Some(_) => Err(Broken::BadCount),
    }
}

/// A decimal number as Redis takes it: no plus, no spaces, no leading zeros, no `-0`; in range.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    match digits {
        [] => return None,
        [b'0'] => return (!negative).then_some(0),
        [b'0', ..] => return None,
        _ => (),
    }
    let mut value: i64 = 0;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(byte - b'0');
        value = value.checked_mul(10)?;
        value = if negative { value.checked_sub(digit)? } else { value.checked_add(digit)? };
    }
    Some(value)
}

/// First byte of a TLS ClientHello, and of no word that a person types.
const TLS_HANDSHAKE: u8 = 0x16;

/// A line of words, as a person types it; `None` if it was empty.
fn inline(buffer: &mut BytesMut, allocated: usize) -> Result<Option<Parsed>, Broken> {
    if buffer.first() == Some(&TLS_HANDSHAKE) {
        return Err(Broken::Tls);
    }
    let seen = buffer.len().min(INLINE_BYTES_MAX);
    if looks_like_http(&buffer[..seen]) {
        return Err(Broken::Http);
    }
    let Some(newline) = buffer[..seen].iter().position(|&b| b == b'\n') else {
        return if seen == INLINE_BYTES_MAX { Err(Broken::InlineTooLong) } else { Ok(Some(Parsed::Need(1))) };
    };
    let line = buffer.split_to(newline + 1);
    let (whole, args) = words(&line).ok_or(Broken::Quotes)?;
    Ok((args.len > 0).then(|| Parsed::Command(Command { whole: whole.into(), args, buffer: allocated })))
}

/// The words of a line one behind the other, and where each lies. As Redis reads them: `"..."` with `\n`, `\x41` and the like in
/// it, `'...'` with `\'`, and behind a quote that closes a word there is a space. None if a quote is not closed so.
fn words(line: &[u8]) -> Option<(Vec<u8>, Args)> {
    let (mut whole, mut args) = (Vec::with_capacity(line.len()), Args::default());
    let mut rest = line;
    loop {
        rest = &rest[rest.iter().position(|&byte| !is_space(byte)).unwrap_or(rest.len())..];
        if rest.is_empty() {
            return Some((whole, args));
        }
        let start = whole.len();
        while let Some((&byte, behind)) = rest.split_first().filter(|(byte, _)| !b" \t\r\n".contains(byte)) {
            if matches!(byte, b'"' | b'\'') {
                // There it ends, whatever blank follows.
                rest = quoted(byte, behind, &mut whole)?;
                break;
            }
            whole.push(byte);
            rest = behind;
        }
        args.push(start, whole.len());
    }
}

/// Reads to the end of a quote, behind which a word ends; what stands behind it.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, behind) = match *rest {
            [byte, ref behind @ ..] if byte == quote => {
                return behind.first().is_none_or(|&byte| is_space(byte)).then_some(behind);
            }
            [b'\\', b'x', high, low, ref behind @ ..] if quote == b'"' && hex(high).is_some() && hex(low).is_some() => {
                (hex(high)? * 16 + hex(low)?, behind)
            }
            [b'\\', byte, ref behind @ ..] if quote == b'"' => (escaped(byte), behind),
            [b'\\', b'\'', ref behind @ ..] => (b'\'', behind),
            [byte, ref behind @ ..] => (byte, behind),
            [] => return None,
        };
        word.push(byte);
        rest = behind;
    }
}

fn escaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

/// As C counts them.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// A web page can make a browser send an HTTP request here; its body could hold commands. So a line of HTTP ends it.
fn looks_like_http(seen: &[u8]) -> bool {
    let line = seen.split(|&b| b == b'\n').next().unwrap_or(seen);
    let starts = |word: &str| line.len() >= word.len() && line[..word.len()].eq_ignore_ascii_case(word.as_bytes());
    let methods = ["GET /", "POST ", "PUT /", "HEAD ", "DELETE /", "OPTIONS ", "PATCH ", "CONNECT ", "TRACE ", "Host:"];
    methods.iter().any(|method| starts(method)) || line.windows(6).any(|w| w.eq_ignore_ascii_case(b"HTTP/1"))
}

/// Where arguments lie. Most commands have few: those are kept in place.
#[derive(Clone, Debug, Default)]
struct Args {
    len: usize,
    near: [(u32, u32); ARGS_NEAR],
    far: Vec<(u32, u32)>,
}

const ARGS_NEAR: usize = 6;

impl Args {
    fn push(&mut self, start: usize, end: usize) {
        // COMMAND_BYTES_MAX is far under 4 GiB.
        let range = (start as u32, end as u32);
        match self.near.get_mut(self.len) {
            Some(place) => *place = range,
            None => self.far.push(range),
        }
        self.len += 1;
    }

    fn get(&self, i: usize) -> Option<(usize, usize)> {
        if i >= self.len {
            return None;
        }
        let (start, end) = if i < ARGS_NEAR { self.near[i] } else { self.far[i - ARGS_NEAR] };
        Some((start as usize, end as usize))
    }
}

const _: () = assert!(COMMAND_BYTES_MAX <= u32::MAX as usize, "positions in a command are kept in 32 bits");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All commands of these bytes when they come in pieces of the given sizes, and how it ended.
    fn parse(pieces: &[&[u8]], bounds: &Bounds) -> (Vec<Vec<Vec<u8>>>, Option<Broken>) {
        let (mut parser, mut buffer, mut commands) = (Parser::default(), BytesMut::new(), vec![]);
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match parser.next(&mut buffer, 64, bounds) {
                    Ok(Parsed::Command(command)) => commands.push(command.args().map(<[u8]>::to_vec).collect()),
                    Ok(Parsed::Need(n)) => {
                        assert!(n > 0);
                        break;
                    }
                    Err(broken) => return (commands, Some(broken)),
                }
            }
        }
        (commands, None)
    }

    fn check(bytes: &str, expect: &[&[&str]], end: Option<Broken>) {
        let expect: Vec<Vec<Vec<u8>>> =
            expect.iter().map(|c| c.iter().map(|a| a.as_bytes().to_vec()).collect()).collect();
        assert_eq!(parse(&[bytes.as_bytes()], &Bounds::KNOWN), (expect, end), "{bytes:?}");
    }

    #[test]
    fn commands_are_read_one_after_the_other() {
        check("*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n", &[&["PING"], &["GET", ""]], None);
        check("PING\r\n\r\n  set a  b \n*1\r\n$1\r\nx\r\n", &[&["PING"], &["set", "a", "b"], &["x"]], None);
        check("*0\r\n*-1\r\n*1\r\n$1\r\nx\r\n", &[&["x"]], None);
        let many: Vec<String> = (0..40).map(|i| format!("k{i}")).collect();
        let bytes: String = many.iter().map(|k| format!("${}\r\n{k}\r\n", k.len())).collect();
        check(&format!("*40\r\n{bytes}"), &[&many.iter().map(String::as_str).collect::<Vec<_>>()], None);
    }

    /// As Redis' `sdssplitargs` reads them.
    #[test]
    fn words_of_a_line_may_be_quoted() {
        check("SET \"a b\" \"x\\x41\"\r\n", &[&["SET", "a b", "xA"]], None);
        check("ECHO \"\\n\\r\\t\\b\\a\\\\\\\"\\q\"\n", &[&["ECHO", "\n\r\t\x08\x07\\\"q"]], None);
        check("ECHO \"\\x4\" \"\\xg1\" '\\x41'\n", &[&["ECHO", "x4", "xg1", "\\x41"]], None);
        check("ECHO 'it\\'s' 'a\"b' \"\" ''\n", &[&["ECHO", "it's", "a\"b", "", ""]], None);
        check("ECHO a\"b c\" \\n\n", &[&["ECHO", "ab c", "\\n"]], None);
        check("\"a\"\x0bb 'a'\x0cb\n", &[&["a", "b", "a", "b"]], None);
        check("\x0bPING \x0cx\x0b\n\"\"\n", &[&["PING", "x\x0b"], &[""]], None);
        for broken in ["SET a \"b\n", "SET a 'b\n", "SET \"a\"b c\n", "SET a 'b''c'\n", "SET \"a\\\"\n"] {
            check(broken, &[], Some(Broken::Quotes));
        }
    }

    #[test]
    fn what_is_not_resp_is_broken() {
        check("*1\r\n+PING\r\n", &[], Some(Broken::ExpectedBulk { got: b'+' }));
        check("*1\r\n$4\r\nPINGxx", &[], Some(Broken::NoLineEnd));
        check("*1\r\n$-1\r\n", &[], Some(Broken::BadCount));
        check("*1\r\n$01\r\n", &[], Some(Broken::BadCount));
        check("*x", &[], Some(Broken::BadCount));
        check("*1\rx", &[], Some(Broken::BadCount));
        check(&format!("*{}", "1".repeat(40)), &[], Some(Broken::BadCount));
        check(&"a".repeat(300), &[], Some(Broken::InlineTooLong));
        check("\x16\x03\x01\x02\0\x01", &[], Some(Broken::Tls));
        check("\x16", &[], Some(Broken::Tls));
    }

    #[test]
    fn limits_hold_before_the_bytes_have_come() {
        check("*1048577\r\n", &[], Some(Broken::TooManyArgs { max: ARGS_MAX }));
        check("*1\r\n$16777217\r\n", &[], Some(Broken::ArgTooLong { max: ARG_BYTES_MAX }));
        let strange = |bytes: &str| parse(&[bytes.as_bytes()], &Bounds::STRANGER).1;
        assert_eq!(strange("*17\r\n"), Some(Broken::TooManyArgs { max: 16 }));
        assert_eq!(strange("*1\r\n$65537\r\n"), Some(Broken::ArgTooLong { max: 65536 }));
        assert_eq!(strange("*1\r\n$65536\r\n"), Some(Broken::CommandTooLong { max: 65536 }));
        assert_eq!(strange("\r\n*17\r\n"), Some(Broken::TooManyArgs { max: 16 }), "an empty line changes nothing");
    }

    #[test]
    fn a_browser_gets_no_further_than_its_first_line() {
        for line in ["GET / HTTP/1.1\r\n", "POST /x", "Host: a", "foo / HTTP/1.1\r\n", "put /a", "x\r\nHost: b\r\n"] {
            assert_eq!(parse(&[line.as_bytes()], &Bounds::KNOWN).1, Some(Broken::Http), "{line:?}");
        }
    }

    #[test]
    fn big_values_share_the_buffer_and_small_ones_do_not() {
        let mut buffer = BytesMut::from(&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8\r\nvaluevau\r\n"[..]);
        let Parsed::Command(command) = Parser::default().next(&mut buffer, 32, &Bounds::KNOWN).unwrap() else {
            panic!("a whole command")
        };
        assert_eq!(command.value(2).as_ptr(), command.arg(2).as_ptr());
        assert_ne!(command.value(1).as_ptr(), command.arg(1).as_ptr());
        assert_ne!(command.key(1).as_ptr(), command.arg(1).as_ptr());
        assert_eq!(command.value(2), "valuevau");
        assert_eq!((command.key(1), command.value(9), command.arg(9)), ("k".into(), Bytes::new(), &b""[..]));
    }

    #[test]
    fn a_missing_argument_says_how_much_is_missing() {
        let mut parser = Parser::default();
        let mut buffer = BytesMut::from(&b"*2\r\n$3\r\nSET\r\n$100\r\nabc"[..]);
        let parsed = parser.next(&mut buffer, 64, &Bounds::KNOWN);
        assert!(matches!(parsed, Ok(Parsed::Need(99))), "{parsed:?}");
    }

    #[test]
    fn numbers_are_taken_as_redis_takes_them() {
        for (text, expect) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            (" 1", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(integer(text.as_bytes()), expect, "{text:?}");
        }
    }

    fn encode(commands: &[Vec<Vec<u8>>]) -> Vec<u8> {
        let mut bytes = vec![];
        for command in commands {
            bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
            for arg in command {
                bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
                bytes.extend_from_slice(arg);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        bytes
    }

    fn pieces(bytes: &[u8], cuts: Vec<prop::sample::Index>) -> Vec<&[u8]> {
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect()
    }

    /// Bytes that often look like RESP.
    fn nearly_resp() -> impl Strategy<Value = Vec<u8>> {
        let words: Vec<&[u8]> =
            vec![b"*", b"$", b"\r\n", b"\n", b"1", b"3", b"-1", b"GET", b" ", b"\xff", b"\"", b"'", b"\\x4"];
        let token = prop::sample::select(words);
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            prop::collection::vec(token, 0..60).prop_map(|tokens| tokens.concat())
        ]
    }

    proptest! {
        #[test]
        fn what_was_sent_is_what_is_read_wherever_it_is_cut(
            commands in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..10), 0..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let bytes = encode(&commands);
            let (read, end) = parse(&pieces(&bytes, cuts), &Bounds::KNOWN);
            prop_assert_eq!((read, end), (commands, None));
        }

        #[test]
        fn no_bytes_make_it_panic_and_cuts_do_not_matter(
            bytes in nearly_resp(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)
        ) {
            let whole = parse(&[&bytes], &Bounds::STRANGER);
            let cut = parse(&pieces(&bytes, cuts), &Bounds::STRANGER);
            prop_assert_eq!(whole, cut);
        }
    }
}
