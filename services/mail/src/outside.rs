//! What bytes of strangers reach, without a socket and a cluster: for the fuzzer (`fuzz/src/mail.rs`), which takes the part of both.

use std::net::{IpAddr, Ipv4Addr};
use std::time::SystemTime;

use bytes::Bytes;

use crate::address;
use crate::check;
use crate::letter::{Letter, Stamp};
use crate::pop::{self, Entry};
use crate::smtp::{self, Delivered, Envelope, Input, Output, Recipient};
use sdk::ObjectId;

/// What a connection came to.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Told {
    pub said: Vec<u8>,
    /// Messages that were taken.
    pub messages: Vec<Bytes>,
    /// Numbers of messages that were deleted.
    pub deleted: Vec<u8>,
    pub is_closed: bool,
    /// Bytes of a message that the connection has at its end.
    pub held: usize,
}

/// One connection of SMTP, or of LMTP. Mailboxes whose names begin with `n` are not there.
pub fn smtp(pieces: &[&[u8]], is_lmtp: bool, offers_tls: bool, bytes_max: usize) -> Told {
    let setting = smtp::Setting { host: "mx.test".into(), is_lmtp, offers_tls, is_tls: false, bytes_max };
    let (mut told, mut out) = (Told::default(), Vec::new());
    let mut session = smtp::Session::new(setting, &mut out);
    let mut pieces = pieces.iter();
    loop {
        let answers: Vec<Output> = std::mem::take(&mut out);
        if answers.is_empty() {
            let Some(piece) = pieces.next() else { break };
            session.handle(Input::Bytes(piece), &mut out);
        }
        for output in answers {
            match output {
                Output::Say(bytes) => told.said.extend(bytes),
                Output::Ask(address) => {
                    let is_here = !address.local.starts_with('n');
                    let known = if is_here { Recipient::Here(vec![address.key()]) } else { Recipient::Unknown };
                    session.handle(Input::Known(known), &mut out);
                }
                Output::Deliver(envelope) => {
                    let delivered = envelope.to.iter().map(|_| Delivered::Stored).collect();
                    stored(&envelope);
                    told.messages.push(envelope.message);
                    session.handle(Input::Delivered(delivered), &mut out);
                }
                Output::StartTls => session.handle(Input::Secured, &mut out),
                Output::Close => told.is_closed = true,
            }
        }
    }
    told.held = session.held();
    told
}

/// A message is written as it would be stored, for each recipient.
///
/// # Panics
/// If what was written cannot be read, or says of itself what its sender did.
fn stored(envelope: &Envelope) {
    let Ok(letter) = Letter::of(&envelope.message, "mx.test") else { return };
    let id = letter.id("ann@mx.test", &envelope.message);
    for to in &envelope.to {
        let peer = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let stamp = Stamp { host: "mx.test", peer, at: SystemTime::UNIX_EPOCH, results: " none" };
        let stored = letter.stored(envelope, &to.address, id, &stamp).concat();
        let (fields, text) = crate::letter::split(&stored);
        let ours = |field: &&&[u8]| {
            crate::letter::name_of(field).is_some_and(|name| name.eq_ignore_ascii_case(b"return-path"))
        };
        assert_eq!(fields.iter().filter(ours).count(), 1, "{}", stored.escape_ascii());
        assert!(text.len() <= envelope.message.len(), "{}", stored.escape_ascii());
    }
}

/// One connection of POP3 to a mailbox of so many messages, which lets in everybody.
pub fn pop3(pieces: &[&[u8]], offers_tls: bool, takes_passwords: bool, messages: u8) -> Told {
    let setting = pop::Setting { host: "mx.test".into(), offers_tls, takes_passwords };
    let (mut told, mut out) = (Told::default(), Vec::new());
    let mut session = pop::Session::new(setting, &mut out);
    let entries: Vec<Entry> =
        (0..messages).map(|n| Entry { id: ObjectId([n; 16]), bytes: TEXT.len() as u64 }).collect();
    // What is left of the message that is read.
    let mut left: &'static [u8] = &[];
    let mut pieces = pieces.iter();
    loop {
        let answers: Vec<pop::Output> = std::mem::take(&mut out);
        if answers.is_empty() {
            let Some(piece) = pieces.next() else { break };
            session.handle(pop::Input::Bytes(piece), &mut out);
        }
        for output in answers {
            match output {
                pop::Output::Say(bytes) => told.said.extend(bytes),
                pop::Output::LogIn { .. } => session.handle(pop::Input::LoggedIn(Ok(entries.clone())), &mut out),
                pop::Output::Fetch(_) => {
                    left = TEXT;
                    session.handle(pop::Input::Opened(Ok(TEXT.len() as u64)), &mut out);
                }
                pop::Output::More => {
                    let (piece, rest) = left.split_at(left.len().min(5));
                    left = rest;
                    let piece = (!piece.is_empty()).then(|| Bytes::from_static(piece));
                    session.handle(pop::Input::Piece(Ok(piece)), &mut out);
                }
                pop::Output::Delete(ids) => {
                    told.deleted.extend(ids.iter().map(|id| id.0[0]));
                    session.handle(pop::Input::Deleted { failed: 0 }, &mut out);
                }
                pop::Output::StartTls => session.handle(pop::Input::Secured, &mut out),
                pop::Output::Close => told.is_closed = true,
            }
        }
    }
    told
}

/// The message that POP3 gives: dots at the beginning of lines, an empty line, and no end of the last one.
pub const TEXT: &[u8] = b"Subject: a\r\n.dot: b\r\n\r\n.\r\n..\r\nlast";

/// An address in angle brackets as RFC 5321 has it, written again; `<>` as nothing.
pub fn path(text: &str) -> Option<(String, usize)> {
    let (address, rest) = address::path(text)?;
    if let Some(address) = &address {
        let (key, detail) = (address.key(), address.without_detail());
        assert!(!key.contains(char::is_control) && detail.is_none_or(|of| !of.local.contains('+')), "{key:?}");
    }
    Some((format!("<{}>", address.map_or(String::new(), |address| address.to_string())), rest.len()))
}

/// The domains in the addresses of a `From` field (RFC 5322).
pub fn from(value: &str) -> Option<Vec<String>> {
    check::addresses(value)
}
