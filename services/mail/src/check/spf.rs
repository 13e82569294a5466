//! SPF (RFC 7208): whether the owner of a domain says that this address may send mail from there. With all mechanisms
//! and macros; `exp` is not asked for, as nobody reads it.

use std::net::IpAddr;

use super::dns::{Kind, Later, Lookup, Record};
use crate::limits::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spf {
    None,
    Neutral,
    Pass,
    Fail,
    SoftFail,
    /// Nobody could say, now.
    TempError,
    /// What the domain says is wrong.
    PermError,
}

impl Spf {
    /// As RFC 8601 has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Neutral => "neutral",
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::SoftFail => "softfail",
            Self::TempError => "temperror",
            Self::PermError => "permerror",
        }
    }
}

/// Who sends, as far as it does not change on the way from record to record.
struct Sender<'a, L> {
    dns: &'a L,
    ip: IpAddr,
    local: &'a str,
    domain: &'a str,
    hello: &'a str,
    /// Terms that asked something, and questions that were answered with nothing.
    lookups: u32,
    voids: u32,
}

/// Why it goes no further.
enum Stop {
    Later,
    Wrong,
}

impl From<Later> for Stop {
    fn from(_: Later) -> Self {
        Self::Later
    }
}

/// Whether this address may send for the domain of `local@domain`.
pub async fn check<L: Lookup>(dns: &L, ip: IpAddr, local: &str, domain: &str, hello: &str) -> Spf {
    let mut sender = Sender { dns, ip: ip.to_canonical(), local, domain, hello, lookups: 0, voids: 0 };
    of_domain(&mut sender, domain.to_owned()).await
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Mechanism {
    All,
    Include(String),
    A(Option<String>, Masks),
    Mx(Option<String>, Masks),
    Ptr(Option<String>),
    Net(IpAddr, u8),
    Exists(String),
}

/// Bits that count of an address: of four bytes and of sixteen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Masks(u8, u8);

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Policy {
    mechanisms: Vec<(char, Mechanism)>,
    redirect: Option<String>,
}

async fn of_domain<L: Lookup>(sender: &mut Sender<'_, L>, domain: String) -> Spf {
    let found = match sender.dns.look(&domain, Kind::Txt).await {
        Ok(found) => found,
        Err(Later) => return Spf::TempError,
    };
    let is_spf = |text: &Vec<u8>| {
        let starts = text.len() >= 6 && text[..6].eq_ignore_ascii_case(b"v=spf1");
        starts && matches!(text.get(6), None | Some(b' '))
    };
    let mut policies = found.into_iter().filter_map(|record| match record {
        Record::Text(text) if is_spf(&text) => Some(text),
        _ => None,
    });
    let Some(text) = policies.next() else { return Spf::None };
    if policies.next().is_some() {
        return Spf::PermError;
    }
    // A mistake anywhere makes all of it worth nothing.
    let Some(policy) = std::str::from_utf8(&text).ok().and_then(parsed) else { return Spf::PermError };
    for (qualifier, mechanism) in &policy.mechanisms {
        match matches(sender, mechanism, &domain).await {
            Ok(false) => (),
            Ok(true) => {
                return match qualifier {
                    '-' => Spf::Fail,
                    '~' => Spf::SoftFail,
                    '?' => Spf::Neutral,
                    _ => Spf::Pass,
                };
            }
            Err(Stop::Later) => return Spf::TempError,
            Err(Stop::Wrong) => return Spf::PermError,
        }
    }
    let Some(redirect) = &policy.redirect else { return Spf::Neutral };
    let Some(to) = expanded(sender, redirect, &domain) else { return Spf::PermError };
    if sender.asks().is_err() {
        return Spf::PermError;
    }
    match Box::pin(of_domain(sender, to)).await {
        Spf::None => Spf::PermError,
        other => other,
    }
}

impl<L: Lookup> Sender<'_, L> {
    /// Another term asks something. Ten of them are the most.
    fn asks(&mut self) -> Result<(), Stop> {
        self.lookups += 1;
        if self.lookups > SPF_LOOKUPS_MAX { Err(Stop::Wrong) } else { Ok(()) }
    }

    async fn look(&mut self, name: &str, kind: Kind) -> Result<Vec<Record>, Stop> {
        let found = self.dns.look(name, kind).await?;
        if found.is_empty() {
            self.voids += 1;
            if self.voids > SPF_VOIDS_MAX {
                return Err(Stop::Wrong);
            }
        }
        Ok(found)
    }

    /// Addresses of the sender's own kind.
    fn kind(&self) -> Kind {
        if self.ip.is_ipv4() { Kind::A } else { Kind::Aaaa }
    }

    fn is_in(&self, records: &[Record], masks: Masks) -> bool {
        let bits = if self.ip.is_ipv4() { masks.0 } else { masks.1 };
        records.iter().any(|record| matches!(record, Record::Address(net) if is_in(self.ip, *net, bits)))
    }
}

async fn matches<L: Lookup>(sender: &mut Sender<'_, L>, mechanism: &Mechanism, domain: &str) -> Result<bool, Stop> {
    let target = |sender: &Sender<'_, L>, spec: &Option<String>| match spec {
        Some(spec) => expanded(sender, spec, domain).ok_or(Stop::Wrong),
        None => Ok(domain.to_owned()),
    };
    match mechanism {
        Mechanism::All => Ok(true),
        Mechanism::Net(net, bits) => Ok(is_in(sender.ip, *net, *bits)),
        Mechanism::Include(spec) => {
            sender.asks()?;
            let other = expanded(sender, spec, domain).ok_or(Stop::Wrong)?;
            match Box::pin(of_domain(sender, other)).await {
                Spf::Pass => Ok(true),
                Spf::Fail | Spf::SoftFail | Spf::Neutral => Ok(false),
                Spf::TempError => Err(Stop::Later),
                Spf::PermError | Spf::None => Err(Stop::Wrong),
            }
        }
        Mechanism::A(spec, masks) => {
            sender.asks()?;
            let (name, kind) = (target(sender, spec)?, sender.kind());
            let found = sender.look(&name, kind).await?;
            Ok(sender.is_in(&found, *masks))
        }
        Mechanism::Mx(spec, masks) => {
            sender.asks()?;
            let (name, kind) = (target(sender, spec)?, sender.kind());
            let hosts = sender.look(&name, Kind::Mx).await?;
            if hosts.len() > SPF_NAMES_MAX {
                return Err(Stop::Wrong);
            }
            for host in hosts {
                let Record::Name(host) = host else { continue };
                let found = sender.look(&host, kind).await?;
                if sender.is_in(&found, *masks) {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Mechanism::Ptr(spec) => {
            sender.asks()?;
            let (name, kind) = (target(sender, spec)?, sender.kind());
            let reverse = reverse(sender.ip);
            let Ok(names) = sender.look(&reverse, Kind::Ptr).await else { return Ok(false) };
            let below = |host: &str| host == name || host.ends_with(&format!(".{name}"));
            for host in names.into_iter().take(SPF_NAMES_MAX) {
                let Record::Name(host) = host else { continue };
                // A name is only believed if it leads back.
                if below(&host)
                    && let Ok(found) = sender.look(&host, kind).await
                    && sender.is_in(&found, Masks(32, 128))
                {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Mechanism::Exists(spec) => {
            sender.asks()?;
            let name = expanded(sender, spec, domain).ok_or(Stop::Wrong)?;
            Ok(!sender.look(&name, Kind::A).await?.is_empty())
        }
    }
}

fn is_in(ip: IpAddr, net: IpAddr, bits: u8) -> bool {
    let (ip, net, all) = match (ip, net) {
        (IpAddr::V4(ip), IpAddr::V4(net)) => (u128::from(ip.to_bits()), u128::from(net.to_bits()), 32),
        (IpAddr::V6(ip), IpAddr::V6(net)) => (ip.to_bits(), net.to_bits(), 128),
        _ => return false,
    };
    let rest = all - u32::from(bits).min(all);
    ip.checked_shr(rest).unwrap_or(0) == net.checked_shr(rest).unwrap_or(0)
}

/// What a record says. None: it is wrong somewhere.
fn parsed(text: &str) -> Option<Policy> {
    let mut policy = Policy::default();
    for term in text.split(' ').skip(1).filter(|term| !term.is_empty()) {
        if policy.mechanisms.len() > SPF_TERMS_MAX {
            return None;
        }
        let name_end = term.find(['=', ':', '/']).unwrap_or(term.len());
        if term[name_end..].starts_with('=') {
            let (name, value) = (&term[..name_end], &term[name_end + 1..]);
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            if !is_name || !is_spec(value) {
                return None;
            }
            if name.eq_ignore_ascii_case("redirect") && policy.redirect.replace(value.to_owned()).is_some() {
                return None;
            }
            continue;
        }
        let (qualifier, rest) = match term.chars().next()? {
            sign @ ('+' | '-' | '?' | '~') => (sign, &term[1..]),
            _ => ('+', term),
        };
        policy.mechanisms.push((qualifier, mechanism(rest)?));
    }
    Some(policy)
}

fn mechanism(text: &str) -> Option<Mechanism> {
    let name_end = text.find([':', '/']).unwrap_or(text.len());
    let (name, rest) = (text[..name_end].to_ascii_lowercase(), &text[name_end..]);
    match name.as_str() {
        "all" => rest.is_empty().then_some(Mechanism::All),
        "include" => spec_of(rest).map(Mechanism::Include),
        "exists" => spec_of(rest).map(Mechanism::Exists),
        "ptr" if rest.is_empty() => Some(Mechanism::Ptr(None)),
        "ptr" => spec_of(rest).map(|spec| Mechanism::Ptr(Some(spec))),
        "ip4" | "ip6" => {
            let (address, bits) =
                rest.strip_prefix(':')?.split_once('/').map_or((&rest[1..], None), |(a, b)| (a, Some(b)));
            let address: IpAddr = address.parse().ok().filter(|a: &IpAddr| a.is_ipv4() == (name == "ip4"))?;
            let all = if address.is_ipv4() { 32 } else { 128 };
            Some(Mechanism::Net(address, bits.map_or(Some(all), |bits| mask(bits, all))?))
        }
        "a" | "mx" => {
            // A slash may also stand in a macro.
            let plain = rest.rfind('}').map_or(0, |at| at + 1);
            let end = rest[plain..].find('/').map_or(rest.len(), |at| plain + at);
            let spec = if end == 0 { None } else { Some(spec_of(&rest[..end])?) };
            let masks = masks(&rest[end..])?;
            Some(if name == "a" { Mechanism::A(spec, masks) } else { Mechanism::Mx(spec, masks) })
        }
        _ => None,
    }
}

/// `/24`, `//64`, `/24//64`.
fn masks(text: &str) -> Option<Masks> {
    let (four, sixteen) = text.split_once("//").map_or((text, None), |(four, sixteen)| (four, Some(sixteen)));
    let four = if four.is_empty() { 32 } else { mask(four.strip_prefix('/')?, 32)? };
    Some(Masks(four, sixteen.map_or(Some(128), |bits| mask(bits, 128))?))
}

fn mask(text: &str, most: u8) -> Option<u8> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|bits| is_number && *bits <= most)
}

fn spec_of(rest: &str) -> Option<String> {
    let spec = rest.strip_prefix(':')?;
    (!spec.is_empty() && is_spec(spec)).then(|| spec.to_owned())
}

/// Whether all macros in it are written right.
fn is_spec(spec: &str) -> bool {
    spec.bytes().all(|b| b.is_ascii_graphic()) && pieces(spec).is_some()
}

enum Piece<'a> {
    Text(&'a str),
    Macro { letter: char, keep: usize, reversed: bool, delimiters: &'a str },
}

fn pieces(spec: &str) -> Option<Vec<Piece<'_>>> {
    let (mut found, mut rest) = (Vec::new(), spec);
    while let Some(at) = rest.find('%') {
        found.push(Piece::Text(&rest[..at]));
        let after = &rest[at + 1..];
        rest = after.get(1..)?;
        match after.as_bytes()[0] {
            b'%' => found.push(Piece::Text("%")),
            b'_' => found.push(Piece::Text(" ")),
            b'-' => found.push(Piece::Text("%20")),
            b'{' => {
                let (inside, behind) = rest.split_once('}')?;
                rest = behind;
                let letter = inside.chars().next().filter(|c| "slodipvhSLODIPVHcrtCRT".contains(*c))?;
                let tail = &inside[1..];
                let digits = tail.bytes().take_while(u8::is_ascii_digit).count();
                let keep = if digits == 0 { 128 } else { tail[..digits].parse().ok().filter(|n| *n > 0)? };
                let tail = &tail[digits..];
                let (reversed, delimiters) = match tail.strip_prefix(['r', 'R']) {
                    Some(delimiters) => (true, delimiters),
                    None => (false, tail),
                };
                if !delimiters.chars().all(|c| ".-+,/_=".contains(c)) {
                    return None;
                }
                found.push(Piece::Macro { letter, keep, reversed, delimiters });
            }
            _ => return None,
        }
    }
    found.push(Piece::Text(rest));
    Some(found)
}

/// A name with its macros filled in. None: it is wrong.
fn expanded<L>(sender: &Sender<'_, L>, spec: &str, domain: &str) -> Option<String> {
    let mut name = String::new();
    for piece in pieces(spec)? {
        match piece {
            Piece::Text(text) => name.push_str(text),
            Piece::Macro { letter, keep, reversed, delimiters } => {
                let value = match letter.to_ascii_lowercase() {
                    's' => format!("{}@{}", sender.local, sender.domain),
                    'l' => sender.local.to_owned(),
                    'o' => sender.domain.to_owned(),
                    'd' => domain.to_owned(),
                    'i' => dotted(sender.ip),
                    // Who sends is to be known by its address; RFC 7208 advises against this one.
                    'p' => "unknown".to_owned(),
                    'v' => if sender.ip.is_ipv4() { "in-addr" } else { "ip6" }.to_owned(),
                    'h' => sender.hello.to_owned(),
                    // These are for explanations alone.
                    _ => return None,
                };
                let delimiters = if delimiters.is_empty() { "." } else { delimiters };
                let mut parts: Vec<&str> = value.split(|c| delimiters.contains(c)).collect();
                if reversed {
                    parts.reverse();
                }
                let kept = parts[parts.len().saturating_sub(keep)..].join(".");
                if letter.is_ascii_uppercase() {
                    kept.bytes().for_each(|b| match b {
                        b'-' | b'.' | b'_' | b'~' => name.push(char::from(b)),
                        b if b.is_ascii_alphanumeric() => name.push(char::from(b)),
                        b => name.push_str(&format!("%{b:02X}")),
                    });
                } else {
                    name.push_str(&kept);
                }
            }
        }
    }
    // Whole labels go from the left, until it may be a name.
    while name.len() > 253 {
        name = name.split_once('.')?.1.to_owned();
    }
    Some(name.to_ascii_lowercase())
}

fn dotted(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => {
            let digits = format!("{:032x}", ip.to_bits());
            digits.chars().map(String::from).collect::<Vec<_>>().join(".")
        }
    }
}

fn reverse(ip: IpAddr) -> String {
    let dotted = dotted(ip);
    let parts: Vec<&str> = dotted.rsplit('.').collect();
    format!("{}.{}", parts.join("."), if ip.is_ipv4() { "in-addr.arpa" } else { "ip6.arpa" })
}

#[cfg(test)]
mod tests {
    use super::super::dns::zone::Zone;
    use super::*;

    /// As RFC 7208, appendix A, has it.
    fn example() -> Zone {
        Zone::default()
            .name("example.com", Kind::Mx, "mail-a.example.com")
            .name("example.com", Kind::Mx, "mail-b.example.com")
            .address("example.com", "192.0.2.10")
            .address("example.com", "192.0.2.11")
            .address("mail-a.example.com", "192.0.2.129")
            .address("mail-b.example.com", "192.0.2.130")
            .name("example.org", Kind::Mx, "mail-c.example.org")
            .address("mail-c.example.org", "192.0.2.140")
            .name("10.2.0.192.in-addr.arpa", Kind::Ptr, "example.com")
            .name("65.2.0.192.in-addr.arpa", Kind::Ptr, "amy.example.com")
            .address("amy.example.com", "192.0.2.65")
            .name("4.0.0.10.in-addr.arpa", Kind::Ptr, "bob.example.com")
    }

    async fn of(zone: Zone, ip: &str) -> Spf {
        check(&zone, ip.parse().unwrap(), "strong-bad", "example.com", "mx.example.org").await
    }

    #[tokio::test]
    async fn the_examples_of_the_rfc() {
        use Spf::*;
        for (record, ip, expect) in [
            ("v=spf1 +all", "192.0.2.129", Pass),
            ("v=spf1 a -all", "192.0.2.10", Pass),
            ("v=spf1 a -all", "192.0.2.129", Fail),
            ("v=spf1 a:example.org -all", "192.0.2.10", Fail),
            ("v=spf1 mx -all", "192.0.2.129", Pass),
            ("v=spf1 mx -all", "192.0.2.10", Fail),
            ("v=spf1 mx:example.org -all", "192.0.2.140", Pass),
            ("v=spf1 mx mx:example.org -all", "192.0.2.130", Pass),
            ("v=spf1 mx/30 mx:example.org/30 -all", "192.0.2.131", Pass),
            ("v=spf1 mx/30 mx:example.org/30 -all", "192.0.2.143", Pass),
            ("v=spf1 mx/30 mx:example.org/30 -all", "192.0.2.144", Fail),
            ("v=spf1 ptr -all", "192.0.2.10", Pass),
            ("v=spf1 ptr -all", "192.0.2.65", Pass),
            // The name does not lead back.
            ("v=spf1 ptr -all", "10.0.0.4", Fail),
            ("v=spf1 ip4:192.0.2.128/28 -all", "192.0.2.129", Pass),
            ("v=spf1 ip4:192.0.2.128/28 -all", "192.0.2.65", Fail),
            // And what it says of qualifiers, kinds and mistakes.
            ("v=spf1 ~all", "192.0.2.1", SoftFail),
            ("v=spf1 ?all", "192.0.2.1", Neutral),
            ("v=spf1 a", "192.0.2.1", Neutral),
            ("v=spf1", "192.0.2.1", Neutral),
            ("v=spf10 +all", "192.0.2.1", None),
            ("V=SPF1 -ALL", "192.0.2.1", Fail),
            ("v=spf1 ip6:2001:db8::/32 -all", "2001:db8::7", Pass),
            ("v=spf1 ip6:2001:db8::/32 -all", "::ffff:192.0.2.1", Fail),
            ("v=spf1 ip4:192.0.2.1 -all", "::ffff:192.0.2.1", Pass),
            ("v=spf1 ip4:0.0.0.0/0 -all", "192.0.2.1", Pass),
            ("v=spf1 ip4:192.0.2.1/33", "192.0.2.1", PermError),
            ("v=spf1 ip4:192.0.2.1/08", "192.0.2.1", PermError),
            ("v=spf1 ip4:2001:db8::1", "192.0.2.1", PermError),
            ("v=spf1 +all nonsense", "192.0.2.1", PermError),
            ("v=spf1 +all moo=x", "192.0.2.1", Pass),
            ("v=spf1 a:%{x} -all", "192.0.2.1", PermError),
            ("v=spf1 exists:%{c}.x -all", "192.0.2.1", PermError),
            ("v=spf1 redirect=a.test redirect=b.test", "192.0.2.1", PermError),
            ("v=spf1 redirect=nothing.test", "192.0.2.1", PermError),
            ("v=spf1 include:nothing.test -all", "192.0.2.1", PermError),
            ("v=spf1 include:silent.test -all", "192.0.2.1", TempError),
            ("v=spf1 a:silent.test -all", "192.0.2.1", TempError),
            ("v=spf1 a:1.void a:2.void +all", "192.0.2.1", Pass),
            ("v=spf1 a:1.void a:2.void a:3.void +all", "192.0.2.1", PermError),
        ] {
            assert_eq!(of(example().txt("example.com", record), ip).await, expect, "{record} {ip}");
        }
        assert_eq!(of(example(), "192.0.2.1").await, None);
        let two = example().txt("example.com", "v=spf1 +all").txt("example.com", "v=spf1 -all");
        assert_eq!(of(two, "192.0.2.1").await, PermError);
    }

    #[tokio::test]
    async fn other_records_are_followed_and_that_has_an_end() {
        let zone = || {
            Zone::default()
                .txt("example.com", "v=spf1 include:in.test redirect=to.test")
                .txt("in.test", "v=spf1 ip4:192.0.2.1 -all")
                .txt("to.test", "v=spf1 exists:%{ir}.%{v}._spf.%{d2} ~all")
                .address("7.2.0.192.in-addr._spf.to.test", "127.0.0.2")
        };
        assert_eq!(of(zone(), "192.0.2.1").await, Spf::Pass);
        assert_eq!(of(zone(), "192.0.2.7").await, Spf::Pass);
        assert_eq!(of(zone(), "192.0.2.8").await, Spf::SoftFail);
        let round = Zone::default().txt("example.com", "v=spf1 include:example.com -all");
        assert_eq!(of(round, "192.0.2.1").await, Spf::PermError);
        let round = Zone::default().txt("example.com", "v=spf1 redirect=example.com");
        assert_eq!(of(round, "192.0.2.1").await, Spf::PermError);
        let many = |count: usize| {
            let terms = "-ptr:x.test ".repeat(count);
            let zone = Zone::default().name("1.2.0.192.in-addr.arpa", Kind::Ptr, "other.test");
            zone.txt("example.com", &format!("v=spf1 {terms}+all"))
        };
        // Ten terms may ask something.
        assert_eq!(of(many(10), "192.0.2.1").await, Spf::Pass);
        assert_eq!(of(many(11), "192.0.2.1").await, Spf::PermError);
    }

    #[test]
    fn macros_are_those_of_the_rfc() {
        let of = |ip: &str, spec: &str| {
            let (local, domain, hello) = ("strong-bad", "email.example.com", "mx.example.org");
            let dns = Zone::default();
            let sender = Sender { dns: &dns, ip: ip.parse().unwrap(), local, domain, hello, lookups: 0, voids: 0 };
            expanded(&sender, spec, "email.example.com")
        };
        // RFC 7208 7.4.
        for (spec, expect) in [
            ("%{s}", "strong-bad@email.example.com"),
            ("%{o}", "email.example.com"),
            ("%{d4}", "email.example.com"),
            ("%{d3}", "email.example.com"),
            ("%{d2}", "example.com"),
            ("%{d1}", "com"),
            ("%{dr}", "com.example.email"),
            ("%{d2r}", "example.email"),
            ("%{l}", "strong-bad"),
            ("%{l-}", "strong.bad"),
            ("%{lr}", "strong-bad"),
            ("%{lr-}", "bad.strong"),
            ("%{l1r-}", "strong"),
            ("%{ir}.%{v}._spf.%{d2}", "3.2.0.192.in-addr._spf.example.com"),
            ("%{lr-}.lp._spf.%{d2}", "bad.strong.lp._spf.example.com"),
            ("%{ir}.%{v}.%{l1r-}.lp._spf.%{d2}", "3.2.0.192.in-addr.strong.lp._spf.example.com"),
            ("%{d2}.trusted-domains.example.net", "example.com.trusted-domains.example.net"),
            ("a%%b%_c%-d", "a%b c%20d"),
            ("%{S}", "strong-bad%40email.example.com"),
        ] {
            assert_eq!(of("192.0.2.3", spec).as_deref(), Some(expect.to_ascii_lowercase().as_str()), "{spec}");
        }
        let long = "1.0.b.c.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6._spf.example.com";
        assert_eq!(of("2001:db8::cb01", "%{ir}.%{v}._spf.%{d2}").as_deref(), Some(long));
        for wrong in ["%", "%{", "%{d", "%{d0}", "%{q}", "%{dx}", "%x", "%{}", "%é"] {
            assert!(pieces(wrong).is_none(), "{wrong}");
        }
        assert_eq!(of("192.0.2.3", &format!("{}%{{d}}", "a.".repeat(200))).unwrap().len(), 253);
    }

    proptest::proptest! {
        #[test]
        fn no_record_makes_it_panic(text in "(v=spf1 |include:|a|mx|ptr|ip4:|ip6:|exists:|redirect=|[%{}slodi0-9r./: é-]){0,12}") {
            if let Some(policy) = parsed(&text) {
                let dns = Zone::default();
                let ip = "192.0.2.1".parse().unwrap();
                let sender = Sender { dns: &dns, ip, local: "a", domain: "b", hello: "c", lookups: 0, voids: 0 };
                policy.redirect.iter().for_each(|spec| drop(expanded(&sender, spec, "d.e")));
            }
        }
    }
}
