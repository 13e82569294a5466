//! Addresses as they stand in the commands of SMTP (RFC 5321 4.1.2, RFC 6531), and what of them names a mailbox.
//! Whatever asks us to pass mail on (source routes, `user%host`, `host!user`, a local part with `@`) is no address of
//! ours.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::limits::*;

/// `local@domain`. The domain is in lower case; the local part is as it was given, without quotes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    pub local: String,
    /// Empty for `postmaster` alone, which every host has.
    pub domain: String,
}

impl Address {
    /// Of what stands alone: on a command line, in an account.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > ADDRESS_BYTES_MAX {
            return None;
        }
        let (local, rest) = local_of(text)?;
        let domain = rest.strip_prefix('@')?;
        let domain = domain_of(domain)?;
        // Small letters may take more.
        (local.len() + domain.len() < ADDRESS_BYTES_MAX).then_some(Self { local, domain })
    }

    /// Whether it has letters that only clients with SMTPUTF8 may send and see.
    pub fn is_international(&self) -> bool {
        !self.local.is_ascii() || !self.domain.is_ascii()
    }

    /// Whether it asks to be passed on elsewhere.
    pub fn is_route(&self) -> bool {
        self.local.contains(['@', '%', '!', ':'])
    }

    /// What names its mailbox: without regard to case.
    pub fn key(&self) -> String {
        let local = self.local.to_lowercase();
        if self.domain.is_empty() { local } else { format!("{local}@{}", self.domain) }
    }

    /// `ann@b` of `ann+news@b`, if it is a sub-address.
    pub fn without_detail(&self) -> Option<Self> {
        let (local, _) = self.local.split_once('+').filter(|(local, _)| !local.is_empty())?;
        Some(Self { local: local.to_owned(), domain: self.domain.clone() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_dot_string(&self.local) {
            f.write_str(&self.local)?;
        } else {
            let quoted = self.local.replace('\\', "\\\\").replace('"', "\\\"");
            write!(f, "\"{quoted}\"")?;
        }
        if self.domain.is_empty() { Ok(()) } else { write!(f, "@{}", self.domain) }
    }
}

/// Reads `<address>` or `<>` (None), and gives what follows it.
pub fn path(text: &str) -> Option<(Option<Address>, &str)> {
    let inside = text.strip_prefix('<')?;
    // A quoted local part may have a `>`.
    let (mut quoted, mut escaped) = (false, false);
    let end = inside.bytes().position(|b| {
        let is_end = b == b'>' && !quoted;
        (quoted, escaped) = match b {
            _ if escaped => (quoted, false),
            b'\\' => (quoted, quoted),
            b'"' => (!quoted, false),
            _ => (quoted, false),
        };
        is_end
    })?;
    let (inside, rest) = (&inside[..end], &inside[end + 1..]);
    if !rest.is_empty() && !rest.starts_with(' ') {
        return None;
    }
    if inside.is_empty() {
        return Some((None, rest));
    }
    if inside.eq_ignore_ascii_case("postmaster") {
        return Some((Some(Address { local: inside.to_lowercase(), domain: String::new() }), rest));
    }
    Some((Some(Address::parse(inside)?), rest))
}

/// The local part in front, without its quotes, and the rest.
fn local_of(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find('@')?;
        let local = &text[..end];
        return (is_dot_string(local) && local.len() <= LOCAL_BYTES_MAX).then(|| (local.to_owned(), &text[end..]));
    };
    let (mut local, mut escaped) = (String::new(), false);
    for (at, letter) in quoted.char_indices() {
        if letter.is_control() || local.len() > LOCAL_BYTES_MAX {
            return None;
        }
        match letter {
            _ if escaped => {
                local.push(letter);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => {
                let is_fit = !local.is_empty() && local.len() <= LOCAL_BYTES_MAX;
                return is_fit.then(|| (local, &quoted[at + 1..]));
            }
            _ => local.push(letter),
        }
    }
    None
}

/// Atoms with dots between.
fn is_dot_string(text: &str) -> bool {
    let is_atom = |atom: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
        !atom.is_empty() && atom.chars().all(|c| fits(c) || (!c.is_ascii() && !c.is_control() && !c.is_whitespace()))
    };
    text.split('.').all(is_atom)
}

/// A name, or an address in brackets; in lower case.
pub fn domain_of(text: &str) -> Option<String> {
    if let Some(literal) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let is_v6 = |text: &str| text.parse::<Ipv6Addr>().is_ok();
        let is_known = literal.parse::<Ipv4Addr>().is_ok()
            || literal.get(..5).is_some_and(|tag| tag.eq_ignore_ascii_case("IPv6:")) && is_v6(&literal[5..]);
        return is_known.then(|| text.to_lowercase());
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || (!c.is_ascii() && c.is_alphanumeric());
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.chars().all(fits) && !label.starts_with('-') && !label.ends_with('-')
    };
    // The small letter of one may be two, of which the second is no letter: so what is checked is what is kept.
    let lower = text.to_lowercase();
    (lower.len() <= 253 && lower.split('.').all(is_label)).then_some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_rfc_has_them() {
        let told = |text: &str| path(text).map(|(address, rest)| (address.map(|a| a.to_string()), rest.to_owned()));
        let ok = |text: &str, address: &str, rest: &str| {
            let address = (!address.is_empty()).then(|| address.to_owned());
            assert_eq!(told(text), Some((address, rest.to_owned())), "{text}");
        };
        ok("<>", "", "");
        ok("<ann@Example.ORG>", "ann@example.org", "");
        ok("<Ann.Lee+x@b.c> SIZE=3", "Ann.Lee+x@b.c", " SIZE=3");
        ok("<\"a b\"@c>", "\"a b\"@c", "");
        ok("<\"a>b\\\"\"@c>", "\"a>b\\\"\"@c", "");
        ok("<\"ann\"@c>", "ann@c", "");
        ok("<a@[192.0.2.1]>", "a@[192.0.2.1]", "");
        ok("<a@[IPv6:2001:db8::1]>", "a@[ipv6:2001:db8::1]", "");
        ok("<Postmaster>", "postmaster", "");
        ok("<änn@bücher.example>", "änn@bücher.example", "");
        for wrong in [
            "",
            "<",
            ">",
            "ann@b",
            "<ann>",
            "<@>",
            "<a@>",
            "<@b>",
            "<a@b",
            "<a@b>x",
            "<a b@c>",
            "<a..b@c>",
            "<.a@c>",
            "<a.@c>",
            "<a@b..c>",
            "<a@-b>",
            "<a@b_c>",
            "<a@[1.2.3]>",
            "<a@[x]>",
            "<@x,@y:a@b>",
            "<@x:a@b>",
            "<a@b@c>",
            "<\"a@b>",
            "<\"\"@b>",
            "<a\"b@c>",
            "<a@b\0>",
            "<a(x)@b>",
            "<\u{85}a@b>",
            "<a@b >",
            "<a@\u{130}.test>",
        ] {
            assert_eq!(told(wrong), None, "{wrong:?}");
        }
        let long = |local: usize, label: usize| format!("<{}@{}.b>", "a".repeat(local), "b".repeat(label));
        assert!(path(&long(64, 63)).is_some());
        assert!(path(&long(65, 63)).is_none() && path(&long(64, 64)).is_none());
        assert!(path(&format!("<a@{}b>", "bb.".repeat(90))).is_none());
    }

    #[test]
    fn what_wants_to_be_passed_on_is_known() {
        for route in ["\"a@b\"@c", "a%b@c", "b!a@c", "\"@x:a\"@c"] {
            assert!(Address::parse(route).unwrap().is_route(), "{route}");
        }
        assert!(!Address::parse("a+b@c").unwrap().is_route());
    }

    #[test]
    fn a_mailbox_is_named_without_case_and_detail() {
        let address = Address::parse("Ann+News@B.c").unwrap();
        assert_eq!(address.key(), "ann+news@b.c");
        assert_eq!(address.without_detail().unwrap().key(), "ann@b.c");
        assert_eq!(Address::parse("+x@b").unwrap().without_detail(), None);
        // A letter that looks like one of ours is another one.
        assert_ne!(Address::parse("аnn@b.c").unwrap().key(), "ann@b.c");
    }
}
