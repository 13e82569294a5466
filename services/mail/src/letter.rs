//! A message as it is stored: the bytes that came, with our own fields before them, and the id under which it is
//! stored.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ring::digest::{Context, SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use sdk::ObjectId;

use crate::address::Address;
use crate::limits::*;
use crate::smtp::Envelope;

/// What is known of a message by its fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Letter<'a> {
    /// Its fields that are kept, each with its end.
    kept: Vec<&'a [u8]>,
    /// From the empty line on.
    text: &'a [u8],
    message_id: Option<&'a [u8]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// It has come round and round.
    Loops,
    /// More fields than anybody reads.
    Fields,
}

/// Who brought it, when, and who we are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stamp<'a> {
    pub host: &'a str,
    pub peer: Option<IpAddr>,
    pub at: SystemTime,
    /// What the checks found, as it stands behind our name in `Authentication-Results`.
    pub results: &'a str,
}

/// Fields, each with its end, and what stands behind the empty line.
pub fn split(message: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let (mut fields, mut at) = (Vec::new(), 0);
    while at < message.len() {
        let field = &message[at..at + field_len(&message[at..])];
        if name_of(field).is_none() {
            break;
        }
        fields.push(field);
        at += field.len();
    }
    let text = &message[at..];
    (fields, text.strip_prefix(b"\r\n").unwrap_or(text))
}

impl<'a> Letter<'a> {
    /// Reads the fields. Those that only we may write are left out: `Return-Path`, and `Authentication-Results` in
    /// our name, which a reader would take for our word.
    pub fn of(message: &'a [u8], host: &str) -> Result<Self, Unfit> {
        let (mut kept, mut received, mut message_id, mut at) = (Vec::new(), 0, None, 0);
        while at < message.len() {
            let field = &message[at..at + field_len(&message[at..])];
            let Some(name) = name_of(field) else { break };
            at += field.len();
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            let value = &field[name_end(field) + 1..];
            if is("Received") {
                received += 1;
            } else if is("Message-ID") && message_id.is_none() {
                message_id = Some(value.trim_ascii()).filter(|id| !id.is_empty());
            }
            let foreign = is("Return-Path") || is("Authentication-Results") && is_by(value, host);
            if !foreign {
                kept.push(field);
            }
            if at > FIELDS_BYTES_MAX {
                return Err(Unfit::Fields);
            }
        }
        if received > RECEIVED_MAX {
            return Err(Unfit::Loops);
        }
        Ok(Self { kept, text: &message[at..], message_id })
    }

    /// The same for the same bytes with the same Message-ID in the same mailbox, so that one that is sent again is
    /// stored once. Without a Message-ID each is another one.
    pub fn id(&self, mailbox: &str, message: &[u8]) -> ObjectId {
        let mut id = [0; 16];
        match self.message_id {
            Some(message_id) => {
                let mut sum = Context::new(&SHA256);
                for part in [mailbox.as_bytes(), message_id, message] {
                    sum.update(&(part.len() as u64).to_be_bytes());
                    sum.update(part);
                }
                id.copy_from_slice(&sum.finish().as_ref()[..16]);
            }
            None => SystemRandom::new().fill(&mut id).expect("the kernel has random bytes"),
        }
        ObjectId(id)
    }

    /// Those that are kept, for a notice about it.
    pub fn fields(&self) -> Vec<u8> {
        self.kept.concat()
    }

    /// What is stored for one recipient: fields, and behind them the text as it came, of which there is one for all.
    pub fn stored(&self, envelope: &Envelope, to: &Address, id: ObjectId, stamp: &Stamp<'_>) -> [Bytes; 2] {
        let from = envelope.from.as_ref().map_or(String::new(), ToString::to_string);
        let Stamp { host, peer, at, results } = stamp;
        let peer = peer.map_or(String::new(), |peer| format!(" ([{peer}])"));
        let Envelope { hello, protocol, .. } = envelope;
        let own = format!(
            "Return-Path: <{from}>\r\nDelivered-To: {to}\r\nReceived: from {hello}{peer}\r\n\tby {host} (Coppice) with {protocol} id {id}\r\n\t\
             for <{to}>; {}\r\nAuthentication-Results: {host};{results}\r\n",
            date(*at)
        );
        let mut bytes = own.into_bytes();
        self.kept.iter().for_each(|field| bytes.extend_from_slice(field));
        if !self.text.starts_with(b"\r\n") {
            bytes.extend_from_slice(b"\r\n");
        }
        let text = envelope.message.slice(envelope.message.len() - self.text.len()..);
        [bytes.into(), text]
    }
}

/// Of the first field, with the lines that go on with it.
fn field_len(bytes: &[u8]) -> usize {
    let mut end = 0;
    loop {
        end += memchr::memchr(b'\n', &bytes[end..]).map_or(bytes.len() - end, |at| at + 1);
        if !matches!(bytes.get(end), Some(b' ' | b'\t')) {
            return end;
        }
    }
}

fn name_end(field: &[u8]) -> usize {
    memchr::memchr(b':', field).unwrap_or(0)
}

/// None: this is no field, so the text begins.
pub fn name_of(field: &[u8]) -> Option<&[u8]> {
    // RFC 5322 lets spaces stand before the colon in old messages.
    let name = field[..name_end(field)].trim_ascii_end();
    (!name.is_empty() && name.iter().all(u8::is_ascii_graphic)).then_some(name)
}

/// Whether results are told in this host's name. Comments may stand before it.
fn is_by(value: &[u8], host: &str) -> bool {
    let (mut depth, mut name) = (0u32, Vec::new());
    for &byte in value {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ if depth > 0 => (),
            b';' => break,
            b' ' | b'\t' | b'\r' | b'\n' if name.is_empty() => (),
            b' ' | b'\t' | b'\r' | b'\n' => break,
            b'"' => (),
            _ => name.push(byte),
        }
    }
    name.eq_ignore_ascii_case(host.as_bytes())
}

/// As RFC 5322 writes it, in UTC: `Thu, 26 Nov 2026 13:16:12 +0000`.
pub fn date(at: SystemTime) -> String {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day is the last one. Hinnant, "chrono-compatible low-level date
    // algorithms".
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(days % 7) as usize];
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months[(month - 1) as usize];
    format!("{weekday}, {day} {month} {year} {:02}:{:02}:{:02} +0000", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(from: &str, message: &[u8]) -> Envelope {
        let (hello, protocol) = ("me.example".to_owned(), "ESMTP");
        let message = message.to_vec().into();
        Envelope { from: Address::parse(from), to: vec![], message, hello, protocol, envid: None }
    }

    fn stored(message: &[u8]) -> String {
        let letter = Letter::of(message, "mx.example").unwrap();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_698_972);
        let stamp = Stamp { host: "mx.example", peer: "192.0.2.7".parse().ok(), at, results: " none" };
        let to = Address::parse("ann+x@here").unwrap();
        let parts = letter.stored(&envelope("eve@there", message), &to, ObjectId([0xab; 16]), &stamp);
        String::from_utf8(parts.concat()).unwrap()
    }

    #[test]
    fn our_fields_stand_before_what_came() {
        let id = "ab".repeat(16);
        let own = format!(
            "Return-Path: <eve@there>\r\nDelivered-To: ann+x@here\r\nReceived: from me.example ([192.0.2.7])\r\n\tby mx.example (Coppice) with ESMTP id {id}\r\n\t\
             for <ann+x@here>; Thu, 26 Nov 2026 13:16:12 +0000\r\nAuthentication-Results: mx.example; none\r\n"
        );
        for message in ["Subject: x\r\n\r\ntext\r\n", "\r\ntext\r\n", "Subject: a\r\n b\r\n"] {
            let text = stored(message.as_bytes());
            let rest = text.strip_prefix(&own).unwrap_or_else(|| panic!("{text}"));
            let expect = if message.contains("\r\n\r\n") || message.starts_with("\r\n") {
                message.to_owned()
            } else {
                format!("{message}\r\n")
            };
            assert_eq!(rest, expect);
            assert!(own.len() < OWN_FIELDS_BYTES_MAX);
        }
        // What is no field begins the text.
        assert!(stored(b"just words\r\nA: b\r\n").ends_with("; none\r\n\r\njust words\r\nA: b\r\n"));
    }

    #[test]
    fn nobody_else_speaks_in_our_name() {
        let text = stored(
            b"Return-Path: <x@y>\r\nAuthentication-Results: mx.example; dkim=pass\r\nauthentication-results : (a (b)) MX.Example\r\n 1; spf=pass\r\n\
            Authentication-Results: other.example; spf=fail\r\nSubject: x\r\n\r\nAuthentication-Results: mx.example; is text\r\n",
        );
        assert_eq!(text.matches("uthentication-").count(), 3, "{text}");
        assert!(text.contains("other.example; spf=fail\r\nSubject: x\r\n\r\nAuth") && !text.contains("pass"), "{text}");
        assert_eq!(text.matches("Return-Path").count(), 1);
    }

    #[test]
    fn the_same_message_in_the_same_mailbox_has_the_same_id() {
        let id = |mailbox: &str, message: &[u8]| Letter::of(message, "h").unwrap().id(mailbox, message);
        let message = b"message-id: <1@x>\r\n\r\na\r\n";
        assert_eq!(id("ann", message), id("ann", message));
        assert_ne!(id("ann", message), id("bob", message));
        assert_ne!(id("ann", message), id("ann", b"message-id: <1@x>\r\n\r\nb\r\n"));
        assert_ne!(id("ann", b"\r\na\r\n"), id("ann", b"\r\na\r\n"));
    }

    #[test]
    fn what_comes_round_or_is_all_fields_is_not_taken() {
        let of = |count: usize, field: &str| Letter::of(field.repeat(count).as_bytes(), "h").map(|_| ());
        assert_eq!(of(50, "Received: x\r\n"), Ok(()));
        assert_eq!(of(51, "Received: x\r\n"), Err(Unfit::Loops));
        assert_eq!(of(20_000, "X-Long: 12345\r\n"), Err(Unfit::Fields));
    }

    #[test]
    fn days_are_counted_as_the_calendar_does() {
        let at = |seconds| date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "Thu, 1 Jan 1970 00:00:00 +0000");
        assert_eq!(at(951_782_400), "Tue, 29 Feb 2000 00:00:00 +0000");
        assert_eq!(at(1_735_689_599), "Tue, 31 Dec 2024 23:59:59 +0000");
        assert_eq!(at(4_107_542_400), "Mon, 1 Mar 2100 00:00:00 +0000");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(message in proptest::collection::vec(proptest::sample::select(b"A: \r\n\tReceived(;\xff\0".to_vec()), 0..200)) {
            if let Ok(letter) = Letter::of(&message, "h") {
                let stamp = Stamp { host: "h", peer: None, at: SystemTime::UNIX_EPOCH, results: " none" };
                let to = Address::parse("a@b").unwrap();
                letter.stored(&envelope("", &message), &to, letter.id("a@b", &message), &stamp);
            }
        }
    }
}
