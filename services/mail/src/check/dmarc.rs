//! DMARC: whether the domain that a reader sees as the sender's stands behind a message, by SPF or DKIM, and what its
//! owner wants done else. Whose domain a name belongs to is found by the walk up the names that the successor of
//! RFC 7489 has (DMARCbis), so no list of public suffixes is kept here.

use super::dns::{Kind, Later, Lookup, Record};
use crate::address::domain_of;
use crate::limits::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nobody says anything about this domain.
    None,
    Pass,
    Fail,
    TempError,
    /// There is no one sender that could be judged.
    PermError,
}

impl Verdict {
    /// As RFC 8601 has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::TempError => "temperror",
            Self::PermError => "permerror",
        }
    }
}

/// What the owner of a domain wants done with what is not from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    Nothing,
    Quarantine,
    Reject,
}

impl Wish {
    pub fn word(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Quarantine => "quarantine",
            Self::Reject => "reject",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dmarc {
    pub verdict: Verdict,
    pub wish: Wish,
    /// The domain of the sender that a reader sees, if there is one.
    pub from: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Policy {
    wish: Wish,
    below: Wish,
    strict_dkim: bool,
    strict_spf: bool,
    /// `y`: names below it are others' own. `n`: none is.
    psd: char,
}

/// `passed`: domains that SPF and DKIM found to stand behind the message.
pub async fn check<L: Lookup>(dns: &L, fields: &[&[u8]], spf: Option<&str>, dkim: &[&str]) -> Dmarc {
    let Some(from) = sender(fields) else {
        return Dmarc { verdict: Verdict::PermError, wish: Wish::Nothing, from: None };
    };
    let (verdict, wish) = match judge(dns, &from, spf, dkim).await {
        Ok(found) => found,
        Err(Later) => (Verdict::TempError, Wish::Nothing),
    };
    Dmarc { verdict, wish, from: Some(from) }
}

async fn judge<L: Lookup>(dns: &L, from: &str, spf: Option<&str>, dkim: &[&str]) -> Result<(Verdict, Wish), Later> {
    let (organisation, own, whole) = organisation(dns, from).await?;
    let is_below = own.is_none();
    let Some(policy) = own.or(whole) else { return Ok((Verdict::None, Wish::Nothing)) };
    let wish = if is_below { policy.below } else { policy.wish };
    let with_strictness = spf.map(|domain| (domain, policy.strict_spf)).into_iter();
    for (domain, strict) in with_strictness.chain(dkim.iter().map(|domain| (*domain, policy.strict_dkim))) {
        if domain == from {
            return Ok((Verdict::Pass, wish));
        }
        // Only names within one organisation can belong to it.
        let may = domain == organisation || domain.ends_with(&format!(".{organisation}"));
        if !strict && may && self::organisation(dns, domain).await?.0 == organisation {
            return Ok((Verdict::Pass, wish));
        }
    }
    Ok((Verdict::Fail, wish))
}

/// The name at the top of all that belong to one owner; what is said at the name itself, and at the top.
async fn organisation<L: Lookup>(dns: &L, domain: &str) -> Result<(String, Option<Policy>, Option<Policy>), Later> {
    let labels: Vec<&str> = domain.split('.').collect();
    let (mut own, mut top): (Option<Policy>, Option<(usize, Policy)>) = (None, None);
    // At most so many questions: after the name itself its last seven labels.
    let ups = 1.max(labels.len().saturating_sub(DMARC_LABELS_MAX))..labels.len();
    for from in std::iter::once(0).chain(ups) {
        let Some(policy) = policy(dns, &labels[from..].join(".")).await? else { continue };
        if from == 0 {
            own = Some(policy.clone());
        }
        match policy.psd {
            'n' => {
                top = Some((from, policy));
                break;
            }
            // The top is the name below, unless it is that name which was asked for.
            'y' if from > 0 => {
                let below = from - 1;
                let is_known = top.as_ref().is_some_and(|(at, _)| *at == below);
                if !is_known {
                    top = Some((below, policy));
                }
                break;
            }
            _ => top = Some((from, policy)),
        }
    }
    Ok(match top {
        Some((from, policy)) => (labels[from..].join("."), own, Some(policy)),
        None => (domain.to_owned(), own, None),
    })
}

async fn policy<L: Lookup>(dns: &L, domain: &str) -> Result<Option<Policy>, Later> {
    let found = dns.look(&format!("_dmarc.{domain}"), Kind::Txt).await?;
    let mut policies = found.iter().filter_map(|record| match record {
        Record::Text(text) => std::str::from_utf8(text).ok().and_then(parsed),
        _ => None,
    });
    let one = policies.next();
    // Of several none holds.
    Ok(if policies.next().is_some() { None } else { one })
}

fn parsed(text: &str) -> Option<Policy> {
    let mut tags = text.split(';').filter_map(|part| {
        let (name, value) = part.split_once('=')?;
        Some((name.trim().to_ascii_lowercase(), value.trim()))
    });
    if tags.next()? != ("v".to_owned(), "DMARC1") {
        return None;
    }
    let mut policy =
        Policy { wish: Wish::Nothing, below: Wish::Nothing, strict_dkim: false, strict_spf: false, psd: 'u' };
    let (mut wish, mut below, mut is_test) = (None, None, false);
    for (name, value) in tags {
        let value = value.to_ascii_lowercase();
        let wanted = match value.as_str() {
            "reject" => Wish::Reject,
            "quarantine" => Wish::Quarantine,
            _ => Wish::Nothing,
        };
        match name.as_str() {
            "p" => wish = Some(wanted),
            "sp" => below = Some(wanted),
            "adkim" => policy.strict_dkim = value == "s",
            "aspf" => policy.strict_spf = value == "s",
            "psd" => policy.psd = value.chars().next().unwrap_or('u'),
            "t" => is_test = value == "y",
            _ => (),
        }
    }
    // While its owner only tries it, one step less is done.
    let tried = |wish: Wish| match wish {
        Wish::Reject if is_test => Wish::Quarantine,
        Wish::Quarantine if is_test => Wish::Nothing,
        wish => wish,
    };
    policy.wish = tried(wish.unwrap_or(Wish::Nothing));
    policy.below = tried(below.or(wish).unwrap_or(Wish::Nothing));
    Some(policy)
}

/// The domain of the one sender in `From`. None: there are several, or none that can be read.
fn sender(fields: &[&[u8]]) -> Option<String> {
    let is_from = |field: &&&[u8]| crate::letter::name_of(field).is_some_and(|name| name.eq_ignore_ascii_case(b"From"));
    let mut found = fields.iter().filter(is_from);
    let field = found.next()?;
    if found.next().is_some() {
        return None;
    }
    let value = &field[memchr::memchr(b':', field)? + 1..];
    let mut domains = addresses(std::str::from_utf8(value).ok()?)?;
    let domain = domains.pop()?;
    domains.iter().all(|other| *other == domain).then_some(domain)
}

/// Domains of a list of addresses, without what is in comments and quotes.
pub(crate) fn addresses(text: &str) -> Option<Vec<String>> {
    let (mut plain, mut depth, mut quoted, mut escaped) = (String::new(), 0u32, false, false);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted || depth > 0 => escaped = true,
            '"' if depth == 0 => {
                quoted = !quoted;
                // It may be a local part.
                plain.push('q');
            }
            _ if quoted => (),
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ if depth > 0 => (),
            _ => plain.push(c),
        }
    }
    if quoted || depth > 0 {
        return None;
    }
    let one = |part: &str| {
        let inside = match part.split_once('<') {
            Some((_, rest)) => rest.split_once('>')?.0,
            None => part,
        };
        let (_, domain) = inside.trim().rsplit_once('@')?;
        domain_of(domain.trim()).filter(|domain| !domain.starts_with('['))
    };
    plain.split(',').map(str::trim).filter(|part| !part.is_empty()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::dns::zone::Zone;
    use super::*;

    fn from(value: &str) -> Option<String> {
        sender(&[b"To: x@other.test\r\n", format!("From: {value}\r\n").as_bytes()])
    }

    #[test]
    fn the_sender_that_a_reader_sees() {
        for (value, domain) in [
            ("ann@A.test", "a.test"),
            ("Ann <ann@a.test>", "a.test"),
            ("\"ann@evil.test\" <ann@a.test>", "a.test"),
            ("\"x\\\" <y@evil.test>\" <ann@a.test>", "a.test"),
            ("Ann (x@evil.test (y)) <ann@a.test>", "a.test"),
            ("\"odd name\"@a.test", "a.test"),
            ("ann@a.test, bob@a.test", "a.test"),
            ("Ann\r\n <ann@a.test>", "a.test"),
        ] {
            assert_eq!(from(value).as_deref(), Some(domain), "{value}");
        }
        for wrong in [
            "",
            "ann",
            "ann@a.test, bob@b.test",
            "<ann@a.test",
            "(x ann@a.test",
            "\"ann@a.test",
            "ann@[192.0.2.1]",
            "a@b_c",
        ] {
            assert_eq!(from(wrong), None, "{wrong}");
        }
        assert_eq!(sender(&[b"From: a@b.test\r\n", b"FROM: a@b.test\r\n"]), None);
    }

    async fn of(zone: &Zone, value: &str, spf: Option<&str>, dkim: &[&str]) -> (Verdict, Wish) {
        let field = format!("From: {value}\r\n");
        let found = check(zone, &[field.as_bytes()], spf, dkim).await;
        (found.verdict, found.wish)
    }

    #[tokio::test]
    async fn the_domain_stands_behind_it_or_not() {
        use Verdict::{Fail, Pass, PermError, TempError};
        let zone = Zone::default()
            .txt("_dmarc.a.test", "v=DMARC1; p=reject; sp=quarantine")
            .txt("_dmarc.strict.test", "v=DMARC1;p=quarantine;adkim=s;aspf=s")
            .txt("_dmarc.two.test", "v=DMARC1; p=reject")
            .txt("_dmarc.two.test", "v=DMARC1; p=none")
            .txt("_dmarc.tried.test", "v=DMARC1; p=reject; t=y")
            .txt("_dmarc.other.test", "v=spf1 -all")
            .txt("_dmarc.suffix.test", "v=DMARC1; p=reject; psd=y")
            .txt("_dmarc.own.a.test", "v=DMARC1; p=none; psd=n");
        for (from, spf, dkim, expect) in [
            ("x@a.test", Some("a.test"), &[][..], (Pass, Wish::Reject)),
            ("x@a.test", None, &["evil.test", "a.test"], (Pass, Wish::Reject)),
            ("x@a.test", Some("mail.a.test"), &[], (Pass, Wish::Reject)),
            ("x@mail.a.test", Some("a.test"), &[], (Pass, Wish::Quarantine)),
            ("x@mail.a.test", None, &["news.a.test"], (Pass, Wish::Quarantine)),
            ("x@a.test", Some("evil.test"), &["evila.test"], (Fail, Wish::Reject)),
            ("x@a.test", None, &[], (Fail, Wish::Reject)),
            // A part that its owner made another one's own.
            ("x@a.test", None, &["own.a.test"], (Fail, Wish::Reject)),
            ("x@own.a.test", None, &["a.test"], (Fail, Wish::Nothing)),
            ("x@strict.test", Some("mail.strict.test"), &["mail.strict.test"], (Fail, Wish::Quarantine)),
            ("x@strict.test", None, &["strict.test"], (Pass, Wish::Quarantine)),
            // Names below a public suffix are not one's own.
            ("x@one.suffix.test", None, &["two.suffix.test"], (Fail, Wish::Reject)),
            ("x@one.suffix.test", None, &["mail.one.suffix.test"], (Pass, Wish::Reject)),
            ("x@tried.test", None, &[], (Fail, Wish::Quarantine)),
            ("x@two.test", None, &[], (Verdict::None, Wish::Nothing)),
            ("x@other.test", Some("other.test"), &[], (Verdict::None, Wish::Nothing)),
            ("x@silent.test", None, &[], (TempError, Wish::Nothing)),
            ("x@a.test, y@b.test", None, &[], (PermError, Wish::Nothing)),
        ] {
            assert_eq!(of(&zone, from, spf, dkim).await, expect, "{from} {spf:?} {dkim:?}");
        }
        // A long name is asked for, and then its last labels.
        let long = format!("x@{}a.test", "b.".repeat(40));
        assert_eq!(of(&zone, &long, None, &["a.test"]).await, (Pass, Wish::Quarantine));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a@<>,()\"\\\\.; v=DMARC1psd\u{e9}-]{0,40}") {
            addresses(&text);
            parsed(&text);
        }
    }
}
