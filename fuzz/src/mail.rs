//! Mail: what strangers say to the doors, and the addresses in it. The first byte of an input of a protocol says how the door is, the
//! second where the rest is cut.

use mail::outside::{self, TEXT, Told};

use crate::memory::bounded;

pub const SMTP_WORDS: &[&[u8]] = &[
    b"EHLO a.test\r\n",
    b"LHLO a.test\r\n",
    b"HELO a\r\n",
    b"MAIL FROM:<>\r\n",
    b"MAIL FROM:<ann@b.test> SIZE=9 BODY=8BITMIME\r\n",
    b" SMTPUTF8",
    b" RET=HDRS ENVID=a+2Bb",
    b"RCPT TO:<ann@b.test>\r\n",
    b"RCPT TO:<nobody@b.test> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;a\r\n",
    b"DATA\r\n",
    b"BDAT 5\r\n",
    b"BDAT 3 LAST\r\n",
    b"BDAT 99999999999999999999 LAST\r\n",
    b"RSET\r\n",
    b"NOOP\r\n",
    b"QUIT\r\n",
    b"STARTTLS\r\n",
    b"\r\n.\r\n",
    b"\n.\n",
    b"\r.\r",
    b"\n.\r\n",
    b"\r\n.\n",
    b"\r\n\x00.\r\n",
    b"..",
    b"Return-Path: <x>\r\n",
    b"Message-ID: <1@a>\r\n",
    b"\r\n ",
    b"GET / HTTP/1.1\r\n",
    b"\xc3\xa4",
];

pub const POP3_WORDS: &[&[u8]] = &[
    b"USER ann\r\n",
    b"PASS a b\r\n",
    b"AUTH PLAIN\r\n",
    b"AUTH PLAIN AGFubgBzZWNyZXQ=\r\n",
    b"AGFubgBzZWNyZXQ=\r\n",
    b"*\r\n",
    b"STLS\r\n",
    b"CAPA\r\n",
    b"STAT\r\n",
    b"LIST\r\n",
    b"LIST 1\r\n",
    b"UIDL\r\n",
    b"RETR 1\r\n",
    b"TOP 2 1\r\n",
    b"TOP 1 18446744073709551616\r\n",
    b"DELE 2\r\n",
    b"RSET\r\n",
    b"NOOP\r\n",
    b"QUIT\r\n",
    b"4294967297",
    b"-1",
    b"\n",
];

pub const ADDRESS_WORDS: &[&[u8]] = &[
    b"<",
    b">",
    b"<>",
    b"\"",
    b"\\\"",
    b"@",
    b".",
    b"..",
    b"[127.0.0.1]",
    b"[IPv6:::1]",
    b"(a\\)(b))",
    b"+news",
    b"%",
    b",",
    b"; ",
    b"postmaster",
    b"xn--",
    b"\xc3\xa4",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\xc4\xb0",
];

/// Replies and what is kept of commands, for each byte: the shortest command that is answered is two bytes long.
const TIMES: usize = 512;
/// Of a message, so that small inputs are too large, too.
const MESSAGE_MAX: usize = 300;
const MESSAGES: u8 = 3;

pub fn smtp(data: &[u8]) -> bool {
    let [how, cut, bytes @ ..] = data else { return false };
    let is_lmtp = how & 1 == 1;
    let run = |pieces: &[&[u8]]| outside::smtp(pieces, is_lmtp, false, MESSAGE_MAX);
    let whole = bounded(bytes.len(), TIMES, || run(&[bytes]));
    same_in_pieces(bytes, *cut, &whole, run);
    is_in_lines(&whole.said, |line| line[..3].iter().all(u8::is_ascii_digit) && matches!(line[3], b' ' | b'-'));
    for message in &whole.messages {
        // What another server could take for its end is not in it.
        assert!(message.len() <= MESSAGE_MAX && !message.contains(&0), "{}", message.escape_ascii());
        let is_bare = |(at, byte): (usize, &u8)| match byte {
            b'\r' => message.get(at + 1) != Some(&b'\n'),
            b'\n' => at == 0 || message[at - 1] != b'\r',
            _ => false,
        };
        assert!(!message.iter().enumerate().any(is_bare), "{}", message.escape_ascii());
    }
    let ends = bytes.windows(3).filter(|three| *three == b".\r\n").count();
    let chunks = bytes.windows(4).filter(|four| four.eq_ignore_ascii_case(b"BDAT")).count();
    assert!(whole.messages.len() <= ends + chunks, "{} messages of {ends} ends", whole.messages.len());
    assert!(whole.held <= 2 * MESSAGE_MAX, "{} bytes are held", whole.held);
    // What comes with a STARTTLS is not heard behind it.
    let tls = outside::smtp(&[bytes], is_lmtp, true, MESSAGE_MAX);
    if !bytes.to_ascii_uppercase().windows(8).any(|word| word == b"STARTTLS") {
        assert_eq!(tls.messages, whole.messages);
    }
    whole.said.windows(7).any(|words| words == b"\r\n250 2")
}

pub fn pop3(data: &[u8]) -> bool {
    let [how, cut, bytes @ ..] = data else { return false };
    let takes_passwords = how & 1 == 0;
    let run = |pieces: &[&[u8]]| outside::pop3(pieces, false, takes_passwords, MESSAGES);
    let whole = bounded(bytes.len(), TIMES, || run(&[bytes]));
    same_in_pieces(bytes, *cut, &whole, run);
    is_in_lines(&whole.said, |_| true);
    let upper = bytes.to_ascii_uppercase();
    let asks = |word: &[u8]| upper.windows(word.len()).any(|part| part == word);
    assert!(takes_passwords || whole.deleted.is_empty(), "nobody is logged in");
    if !whole.deleted.is_empty() {
        assert!(asks(b"DELE") && asks(b"QUIT") && whole.is_closed && whole.deleted.iter().all(|n| *n < MESSAGES));
    }
    outside::pop3(&[bytes], true, true, MESSAGES);
    whole.said.windows(TEXT.len() / 2).any(|text| TEXT.starts_with(text))
        || whole.said.windows(5).any(|w| w == b"\r\n+OK")
}

/// What SMTP says to who does not wait for the answer to DATA. That is seen where what follows comes in the same piece, and there alone.
const TOO_EARLY: &[u8] = b"554 5.5.0 wait for the answer to DATA";

/// Bytes mean what they mean however they come.
fn same_in_pieces(bytes: &[u8], cut: u8, whole: &Told, run: impl Fn(&[&[u8]]) -> Told) {
    let said = |told: Told| Told { held: 0, ..told };
    let whole = Told {
        held: 0,
        said: whole.said.clone(),
        messages: whole.messages.clone(),
        deleted: whole.deleted.clone(),
        ..*whole
    };
    let is_early = |told: &Told| told.said.windows(TOO_EARLY.len()).any(|words| words == TOO_EARLY);
    if is_early(&whole) {
        return;
    }
    assert_eq!(said(run(&bytes.chunks(1).collect::<Vec<_>>())), whole, "byte by byte");
    let at = usize::from(cut) * (bytes.len() + 1) / 256;
    assert_eq!(said(run(&[&bytes[..at], &bytes[at..]])), whole, "cut at {at}");
}

/// What is said is lines, whose ends nothing that was heard can make.
fn is_in_lines(said: &[u8], fits: impl Fn(&[u8]) -> bool) {
    let lines = said.strip_suffix(b"\r\n").expect("the last line has an end");
    for line in lines.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        assert!(!line.contains(&b'\r') && fits(line), "{}", line.escape_ascii());
    }
}

/// As SMTP has them, and as a field of a message has them.
pub fn address(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let read = bounded(data.len(), 64, || outside::path(text));
    if let Some((written, rest)) = &read {
        assert_eq!(outside::path(written), Some((written.clone(), 0)), "written again");
        assert!(*rest < text.len() && !written.contains(char::is_control), "{written:?}");
    }
    let domains = bounded(data.len(), 64, || outside::from(text));
    for domain in domains.iter().flatten() {
        assert_eq!(outside::from(&format!("a@{domain}")), Some(vec![domain.clone()]), "{domain}");
    }
    read.is_some() || domains.is_some_and(|domains| !domains.is_empty())
}
