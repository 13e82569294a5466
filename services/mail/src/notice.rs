//! The notice that mail was delivered (RFC 3461, 3464), for a sender who has a mailbox here and asked for it. Nothing is sent out from
//! here, so nobody else is told; and it goes to nobody who may not be the sender.

use std::time::SystemTime;

use sdk::ObjectId;

use crate::address::Address;
use crate::letter::{Letter, date};
use crate::smtp::Target;

/// Of a message that was delivered to these.
pub struct Notice<'a> {
    pub host: &'a str,
    pub id: ObjectId,
    pub at: SystemTime,
    pub sender: &'a Address,
    pub envid: Option<&'a str>,
    pub delivered: &'a [&'a Target],
}

impl Notice<'_> {
    /// The letter that says so, with the fields of the message.
    pub fn text(&self, letter: &Letter<'_>) -> Vec<u8> {
        let Notice { host, id, at, sender, envid, delivered } = self;
        let (date, edge) = (date(*at), format!("notice-{id}"));
        let fields = letter.fields();
        // RFC 6533: other kinds, where there are letters that are not of ASCII.
        let is_plain = sender.to_string().is_ascii()
            && delivered.iter().all(|target| target.address.to_string().is_ascii())
            && delivered.iter().all(|target| target.report.original.as_ref().is_none_or(|text| text.is_ascii()))
            && fields.is_ascii();
        let (status, headers) = if is_plain {
            ("message/delivery-status", "text/rfc822-headers")
        } else {
            ("message/global-delivery-status", "message/global-headers")
        };
        let mut text = format!(
            "Return-Path: <>\r\nDelivered-To: {sender}\r\nFrom: Mail delivery <postmaster@{host}>\r\nTo: <{sender}>\r\n\
             Subject: Your message was delivered\r\nDate: {date}\r\nMessage-ID: <{edge}@{host}>\r\nAuto-Submitted: auto-replied\r\n\
             MIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=delivery-status;\r\n\tboundary=\"{edge}\"\r\n\r\n\
             --{edge}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\
             Your message was put into the mailbox of\r\n\r\n"
        );
        for target in *delivered {
            text += &format!("    {}\r\n", target.address);
        }
        text += &format!("\r\n--{edge}\r\nContent-Type: {status}\r\n\r\nReporting-MTA: dns; {host}\r\n");
        if let Some(envid) = envid {
            text += &format!("Original-Envelope-Id: {envid}\r\n");
        }
        text += &format!("Arrival-Date: {date}\r\n");
        for target in *delivered {
            text += "\r\n";
            if let Some(original) = &target.report.original {
                text += &format!("Original-Recipient: {original}\r\n");
            }
            let address = target.address.to_string();
            let kind = if address.is_ascii() { "rfc822" } else { "utf-8" };
            text += &format!("Final-Recipient: {kind};{address}\r\nAction: delivered\r\nStatus: 2.0.0\r\n");
        }
        text += &format!("\r\n--{edge}\r\nContent-Type: {headers}\r\n\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&fields);
        bytes.extend_from_slice(format!("\r\n--{edge}--\r\n").as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::smtp::Report;

    fn text(message: &[u8], to: &[(&str, Option<&str>)]) -> String {
        let target = |(address, original): &(&str, Option<&str>)| Target {
            address: Address::parse(address).unwrap(),
            mailboxes: Vec::new(),
            report: Report { success: true, original: original.map(str::to_owned) },
        };
        let targets: Vec<Target> = to.iter().map(target).collect();
        let sender = Address::parse("ann@here").unwrap();
        let notice = Notice {
            host: "mx.example",
            id: ObjectId([0xab; 16]),
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_698_972),
            sender: &sender,
            envid: Some("a b+c"),
            delivered: &targets.iter().collect::<Vec<_>>(),
        };
        String::from_utf8(notice.text(&Letter::of(message, "mx.example").unwrap())).unwrap()
    }

    #[test]
    fn a_notice_is_a_report_as_rfc_3464_has_it() {
        let message = b"Subject: x\r\n y\r\nReturn-Path: <evil@there>\r\n\r\nnobody else's business\r\n";
        let text = text(message, &[("bob@here", Some("rfc822;Bob@old")), ("eve@here", None)]);
        let edge = format!("notice-{}", "ab".repeat(16));
        let parts: Vec<&str> = text.split(&format!("--{edge}")).collect();
        let [head, words, status, fields, end] = parts[..] else { panic!("{text}") };
        assert!(head.starts_with("Return-Path: <>\r\nDelivered-To: ann@here\r\nFrom: "), "{text}");
        assert!(head.contains("\r\nAuto-Submitted: auto-replied\r\n") && head.ends_with("\"\r\n\r\n"), "{text}");
        assert!(words.contains("    bob@here\r\n    eve@here\r\n"), "{text}");
        assert_eq!(
            status,
            "\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.example\r\nOriginal-Envelope-Id: a b+c\r\n\
             Arrival-Date: Thu, 26 Nov 2026 13:16:12 +0000\r\n\r\nOriginal-Recipient: rfc822;Bob@old\r\n\
             Final-Recipient: rfc822;bob@here\r\nAction: delivered\r\nStatus: 2.0.0\r\n\r\nFinal-Recipient: rfc822;eve@here\r\n\
             Action: delivered\r\nStatus: 2.0.0\r\n\r\n"
        );
        assert_eq!(fields, "\r\nContent-Type: text/rfc822-headers\r\n\r\nSubject: x\r\n y\r\n\r\n");
        assert_eq!(end, "--\r\n");
        assert!(!text.contains("business"), "the text of a message is not told again");
    }

    #[test]
    fn letters_of_all_kinds_have_parts_of_other_kinds() {
        for (message, to) in [(&b"A: b\r\n\r\n"[..], "ö@here"), ("A: ö\r\n\r\n".as_bytes(), "bob@here")] {
            let text = text(message, &[(to, None)]);
            assert!(text.contains("Content-Type: message/global-delivery-status\r\n"), "{text}");
            assert!(text.contains("Content-Type: message/global-headers\r\n"), "{text}");
        }
        assert!(text(b"\r\n", &[("ö@here", None)]).contains("Final-Recipient: utf-8;ö@here\r\n"));
    }
}
