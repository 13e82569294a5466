//! What others say of who sent a message: SPF, DKIM, DMARC and ARC, written into `Authentication-Results`. Asks a DNS
//! server, and so is off unless the operator names one. Each message has so long; what was not found out then is
//! `temperror`, and never a reason to refuse it.
//!
//! - `dns.rs`: questions. `spf.rs`, `dkim.rs`, `dmarc.rs`, `arc.rs`: what the answers mean.

mod arc;
mod dkim;
mod dmarc;
mod dns;
mod spf;

pub(crate) use dmarc::addresses;

use std::net::IpAddr;
use std::time::SystemTime;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::address::domain_of;
use crate::letter::split;
use crate::limits::*;
use crate::smtp::Envelope;

use dmarc::{Dmarc, Verdict, Wish};
use dns::{Lookup, Resolver};
use spf::Spf;

/// How messages are checked.
#[derive(Debug)]
pub struct Checks {
    resolver: Resolver,
    /// Whether what the owner of its sender's domain wants refused is refused.
    refuses: bool,
    /// Messages that are being checked.
    checking: Semaphore,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// What stands behind our name in `Authentication-Results`.
    pub results: String,
    /// It is not to be taken.
    pub is_refused: bool,
    /// The owner of its sender's domain has it sent from there, so what comes back to the sender comes to who sent it.
    pub is_of_sender: bool,
}

impl Checked {
    /// Of one that was not looked at.
    pub fn not() -> Self {
        Self { results: " none".to_owned(), is_refused: false, is_of_sender: false }
    }
}

impl Checks {
    /// `resolver`: `off`, `system`, or ADDRESS:PORT. `dmarc`: `report` or `reject`.
    pub fn named(resolver: &str, dmarc: &str) -> Result<Option<Self>, String> {
        let refuses = match dmarc {
            "report" | "" => false,
            "reject" => true,
            other => return Err(format!("MAIL_DMARC is {other:?}: it is report or reject")),
        };
        match resolver {
            "off" | "" if refuses => Err("MAIL_DMARC is reject, and MAIL_RESOLVER names nobody to ask".to_owned()),
            "off" | "" => Ok(None),
            named => {
                let resolver = Resolver::named(named).map_err(|why| format!("MAIL_RESOLVER: {why}"))?;
                Ok(Some(Self { resolver, refuses, checking: Semaphore::new(CHECKING_MAX) }))
            }
        }
    }

    /// Of a message that came from this address.
    pub async fn of(&self, envelope: &Envelope, peer: Option<IpAddr>) -> Checked {
        // Who hands on by LMTP has taken it from somebody else, and has checked that.
        if envelope.protocol.contains("LMTP") {
            return Checked::not();
        }
        let judged = async {
            let _turn = self.checking.acquire().await;
            judge(&self.resolver, envelope, peer).await
        };
        let Ok(found) = timeout(CHECK_TIME_MAX, judged).await else {
            let results = " spf=temperror; dkim=temperror; dmarc=temperror".to_owned();
            return Checked { results, ..Checked::not() };
        };
        let is_refused = self.refuses && found.dmarc.verdict == Verdict::Fail && found.dmarc.wish == Wish::Reject;
        let passes = |(spf, what, _): &(Spf, &str, String)| *spf == Spf::Pass && *what == "mailfrom";
        let is_of_sender = found.spf.as_ref().is_some_and(passes);
        Checked { results: found.to_string(), is_refused, is_of_sender }
    }
}

/// All that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Found {
    /// Of a name: the sender's domain, or what its client calls itself.
    spf: Option<(Spf, &'static str, String)>,
    dkim: Vec<dkim::Dkim>,
    dmarc: Dmarc,
    arc: arc::Arc,
}

async fn judge<L: Lookup>(dns: &L, envelope: &Envelope, peer: Option<IpAddr>) -> Found {
    let (fields, body) = split(&envelope.message);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let is_name = |name: &str| domain_of(name).filter(|name| !name.starts_with('[') && name.is_ascii());
    let hello = is_name(&envelope.hello);
    let whose = match &envelope.from {
        Some(from) => is_name(&from.domain).map(|domain| ("mailfrom", from.local.as_str(), domain)),
        // A notice has no sender, so it is its client who speaks.
        None => hello.clone().map(|hello| ("helo", "postmaster", hello)),
    };
    let spf = async {
        let ((what, local, domain), ip) = whose.zip(peer)?;
        let found = spf::check(dns, ip, local, &domain, hello.as_deref().unwrap_or("unknown")).await;
        Some((found, what, domain))
    };
    let message = dkim::Message { fields: &fields, body, now };
    let (spf, dkim, arc) = tokio::join!(spf, dkim::check(dns, &message), arc::check(dns, &message));
    let of_spf = spf.as_ref().filter(|(found, ..)| *found == Spf::Pass).map(|(.., domain)| domain.as_str());
    let of_dkim: Vec<&str> = dkim.iter().filter(|one| one.is_good.is_ok()).map(|one| one.domain.as_str()).collect();
    let dmarc = dmarc::check(dns, &fields, of_spf, &of_dkim).await;
    Found { spf, dkim, dmarc, arc }
}

/// As RFC 8601 has it, on lines of their own.
impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = Vec::new();
        if let Some((spf, what, domain)) = &self.spf {
            all.push(format!("spf={} smtp.{what}={domain}", spf.word()));
        }
        let Dmarc { verdict, wish, from } = &self.dmarc;
        let policy = if matches!(verdict, Verdict::Pass | Verdict::Fail) {
            format!(" (p={})", wish.word())
        } else {
            String::new()
        };
        let from = from.as_ref().map(|from| format!(" header.from={from}")).unwrap_or_default();
        all.push(format!("dmarc={}{policy}{from}", verdict.word()));
        match &self.arc {
            arc::Arc::None => (),
            arc::Arc::Pass { count, domain } => all.push(format!("arc=pass (i={count} d={domain})")),
            arc::Arc::Fail(why) => all.push(format!("arc=fail reason=\"{why}\"")),
        }
        for dkim::Dkim { domain, selector, is_good } in &self.dkim {
            let (word, why) = is_good.map_or_else(|bad| bad.words(), |()| ("pass", ""));
            let reason = if why.is_empty() { String::new() } else { format!(" reason=\"{why}\"") };
            all.push(format!("dkim={word}{reason} header.d={domain} header.s={selector}"));
        }
        if self.dkim.is_empty() {
            all.push("dkim=none".to_owned());
        }
        let mut room = RESULTS_BYTES_MAX;
        for (at, one) in all.iter().enumerate() {
            // Many signatures: the last ones are not told.
            let Some(left) = room.checked_sub(one.len() + 4) else { break };
            room = left;
            write!(f, "{}\r\n\t{one}", if at > 0 { ";" } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::net::UdpSocket;

    use super::dns::zone::{self, Zone};
    use super::*;
    use crate::address::Address;

    fn envelope(from: &str, message: &str) -> Envelope {
        let message = message.replace('\n', "\r\n").into();
        let (hello, protocol) = ("mx.sender.test".to_owned(), "ESMTP");
        Envelope { from: Address::parse(from), to: vec![], message, hello, protocol, envid: None }
    }

    #[tokio::test]
    async fn what_was_found_is_written_down() {
        let zone = Zone::default()
            .txt("sender.test", "v=spf1 ip4:192.0.2.0/24 -all")
            .txt("mx.sender.test", "v=spf1 a ~all")
            .txt("_dmarc.sender.test", "v=DMARC1; p=reject");
        let of = async |from: &str, ip: &str, message: &str| {
            judge(&zone, &envelope(from, message), ip.parse().ok()).await.to_string()
        };
        let message = "From: Eve <eve@sender.test>\n\nwords\n";
        assert_eq!(
            of("eve@sender.test", "192.0.2.7", message).await,
            "\r\n\tspf=pass smtp.mailfrom=sender.test;\r\n\tdmarc=pass (p=reject) header.from=sender.test;\r\n\tdkim=none"
        );
        assert_eq!(
            of("eve@sender.test", "198.51.100.7", message).await,
            "\r\n\tspf=fail smtp.mailfrom=sender.test;\r\n\tdmarc=fail (p=reject) header.from=sender.test;\r\n\tdkim=none"
        );
        assert_eq!(
            of("", "198.51.100.7", "From: a@b.test\n\n").await,
            "\r\n\tspf=softfail smtp.helo=mx.sender.test;\r\n\tdmarc=none header.from=b.test;\r\n\tdkim=none"
        );
        let forged =
            format!("DKIM-Signature: v=1; a=rsa-sha256; d=Sender.test; s=k;\n h=from; bh=AAAA; b=AAAA\n{message}");
        let told = of("eve@other.test", "192.0.2.7", &forged).await;
        let end = ";\r\n\tdkim=fail reason=\"the text is another one\" header.d=sender.test header.s=k";
        assert!(
            told.starts_with("\r\n\tspf=none smtp.mailfrom=other.test;\r\n\tdmarc=fail") && told.ends_with(end),
            "{told}"
        );
        let long = format!("DKIM-Signature: v=1; s=k; d={}x.test\n", "a23456789.".repeat(20)).repeat(5);
        let domain = format!("{}x.test", "b23456789.".repeat(20));
        let told = of(&format!("a@{domain}"), "192.0.2.7", &format!("{long}From: a@{domain}\n\n")).await;
        assert!(told.len() <= RESULTS_BYTES_MAX && told.matches("dkim=").count() >= 3, "{told}");
    }

    /// Answers what is asked, until the test ends.
    async fn server(texts: &'static [(&'static str, &'static str)]) -> String {
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let at = socket.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((read, from)) = socket.recv_from(&mut buffer).await {
                let question = &buffer[..read];
                let (mut name, mut at) = (String::new(), 12);
                while question[at] != 0 {
                    let label = &question[at + 1..at + 1 + usize::from(question[at])];
                    name += &format!("{}.", std::str::from_utf8(label).unwrap());
                    at += 1 + label.len();
                }
                let found = texts.iter().find(|(known, _)| name == format!("{known}."));
                let records: Vec<_> = found.map(|(_, text)| zone::txt_data(text)).into_iter().collect();
                let code = if records.is_empty() { 3 } else { 0 };
                socket.send_to(&zone::answer(question, [0, code], &records), from).await.unwrap();
            }
        });
        at
    }

    #[tokio::test]
    async fn a_server_is_asked_and_what_its_owner_wants_refused_is_refused() {
        let at =
            server(&[("sender.test", "v=spf1 ip4:192.0.2.7 -all"), ("_dmarc.sender.test", "v=DMARC1; p=reject")]).await;
        let message = envelope("eve@sender.test", "From: eve@sender.test\n\n");
        for (dmarc, ip, is_refused) in
            [("reject", "192.0.2.7", false), ("reject", "192.0.2.8", true), ("report", "192.0.2.8", false)]
        {
            let checks = Checks::named(&at, dmarc).unwrap().unwrap();
            let found = checks.of(&message, ip.parse().ok()).await;
            assert_eq!(found.is_refused, is_refused, "{dmarc} {ip}: {found:?}");
            assert!(found.results.contains(if ip.ends_with('7') { "dmarc=pass" } else { "dmarc=fail" }), "{found:?}");
            // Its sender is not the one who hands it on.
            let by_lmtp = Envelope { protocol: "LMTP", ..message.clone() };
            assert_eq!(checks.of(&by_lmtp, ip.parse().ok()).await, Checked::not());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_no_reason_to_refuse() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let checks = Checks::named(&silent.local_addr().unwrap().to_string(), "reject").unwrap().unwrap();
        let found =
            checks.of(&envelope("eve@sender.test", "From: eve@sender.test\n\n"), "192.0.2.7".parse().ok()).await;
        assert!(
            !found.is_refused && found.results.contains("spf=temperror") && found.results.contains("dmarc=temperror"),
            "{found:?}"
        );
    }

    #[test]
    fn nobody_is_asked_unless_the_operator_says_whom() {
        assert!(Checks::named("", "").unwrap().is_none() && Checks::named("off", "report").unwrap().is_none());
        assert!(Checks::named("off", "reject").is_err() && Checks::named("127.0.0.1:53", "sometimes").is_err());
        assert!(Checks::named("nowhere", "").is_err() && Checks::named("127.0.0.1:53", "reject").unwrap().is_some());
    }
}
