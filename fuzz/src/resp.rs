//! The Redis protocol's parser. The first byte of an input says who sends the rest (a stranger or one who is known) and where
//! it is cut.

use bytes::BytesMut;
use edge::resp::limits::INLINE_BYTES_MAX;
use edge::resp::parse::{Bounds, Broken, Parsed, Parser};

use crate::memory::bounded;

pub const WORDS: &[&[u8]] = &[
    b"*",
    b"$",
    b"\r\n",
    b"\n",
    b"*1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"$0\r\n\r\n",
    b"$-1\r\n",
    b"$3\r\nGET\r\n",
    b"PING\r\n",
    b"$2147483647\r\n",
    b"$65536\r\n",
    b"$16777217\r\n",
    b"*16385\r\n",
    b"9223372036854775808",
    b"GET / HTTP/1.1",
    b"Host:",
    b" ",
    b"\"",
    b"'",
    b"\\x41",
    b"\x0b",
    b"\x0c",
];

type Words = Vec<Vec<u8>>;

/// What came of some bytes: the commands, and how it ended.
#[derive(PartialEq, Debug)]
struct Read {
    commands: Vec<Words>,
    broken: Option<Broken>,
    left: usize,
}

pub fn commands(data: &[u8]) -> bool {
    let Some((&how, bytes)) = data.split_first() else { return false };
    let bounds = if how & 1 == 0 { Bounds::KNOWN } else { Bounds::STRANGER };
    // An argument of 6 bytes costs a range of 8, kept in a vector that doubles.
    let whole = bounded(bytes.len(), 8, || read(&[bytes], &bounds));
    assert_eq!(read(&bytes.chunks(1).collect::<Vec<_>>(), &bounds), whole, "byte by byte");
    let cut = usize::from(how >> 1) * (bytes.len() + 1) / 128;
    assert_eq!(read(&[&bytes[..cut], &bytes[cut..]], &bounds), whole, "cut at {cut}");
    let again: Vec<u8> = whole.commands.iter().flat_map(encode).collect();
    assert_eq!(read(&[&again], &Bounds::KNOWN).commands, whole.commands, "written again");
    for words in &whole.commands {
        let line = quote(words);
        // A longer line is refused.
        if line.len() <= INLINE_BYTES_MAX {
            assert_eq!(read(&[&line], &Bounds::KNOWN).commands, std::slice::from_ref(words), "in quotes");
        }
    }
    !whole.commands.is_empty()
}

/// Reads all that comes in these pieces.
fn read(pieces: &[&[u8]], bounds: &Bounds) -> Read {
    let (mut parser, mut buffer, mut commands) = (Parser::default(), BytesMut::new(), vec![]);
    // All bytes until this one were promised to be missing.
    let (mut came, mut promised) = (0, 0);
    for piece in pieces {
        came += piece.len();
        buffer.extend_from_slice(piece);
        loop {
            let before = buffer.clone();
            match parser.next(&mut buffer, before.len(), bounds) {
                Ok(Parsed::Command(command)) => {
                    assert!(!command.is_empty(), "a command has a name");
                    let read = &before[..before.len() - buffer.len()];
                    let words: Words = command.args().map(<[u8]>::to_vec).collect();
                    is_what_was_sent(&words, read);
                    assert!(came - buffer.len() >= promised, "more was missing than was");
                    for (i, word) in words.iter().enumerate() {
                        assert!(command.key(i) == word[..] && command.value(i) == word[..] && command.arg(i) == word);
                    }
                    commands.push(words);
                }
                Ok(Parsed::Need(missing)) => {
                    assert!((1..=bounds.command_bytes).contains(&missing), "{missing} are missing");
                    promised = came + missing;
                    break;
                }
                Err(broken) => {
                    assert!(!broken.to_string().contains(['\r', '\n']), "an error is one line");
                    return Read { commands, broken: Some(broken), left: 0 };
                }
            }
        }
    }
    Read { commands, broken: None, left: buffer.len() }
}

/// Bytes of a command are its words: as an array behind lines that say nothing, or as a line of words, which may be quoted.
fn is_what_was_sent(words: &Words, read: &[u8]) {
    let array = encode(words);
    let line = read.rsplitn(3, |b| *b == b'\n').nth(1).unwrap_or_default();
    // Quotes have a table beside the parser, and are written again below.
    let is_quoted = line.iter().any(|b| matches!(b, b'"' | b'\''));
    assert!(read.ends_with(&array) || is_quoted || *words == plain(line), "{words:?} of {}", read.escape_ascii());
}

/// The words of a line without quotes. As Redis does, it takes more bytes for blanks before a word than in one.
fn plain(line: &[u8]) -> Words {
    let (mut words, mut rest) = (vec![], line);
    while let Some(from) = rest.iter().position(|b| !matches!(b, b' ' | b'\t'..=b'\r')) {
        rest = &rest[from..];
        let to = rest.iter().position(|b| b" \t\r\n".contains(b)).unwrap_or(rest.len());
        words.push(rest[..to].to_vec());
        rest = &rest[to..];
    }
    words
}

/// As a line of words in quotes, which can hold any bytes.
fn quote(words: &Words) -> Vec<u8> {
    let quoted = |word: &Vec<u8>| format!("\"{}\" ", word.iter().map(|b| format!("\\x{b:02x}")).collect::<String>());
    (words.iter().map(quoted).collect::<String>() + "\n").into_bytes()
}

fn encode(words: &Words) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
