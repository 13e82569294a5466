//! DKIM (RFC 6376, 8301, 8463): whether a domain has signed a message, and the message is as it was signed.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::digest::{Context, SHA256};
use ring::signature::{ED25519, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};

use super::dns::{Kind, Later, Lookup, Record};
use crate::address::domain_of;
use crate::letter::name_of;
use crate::limits::*;

/// What became of one signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dkim {
    /// Who signed: in lower case, and a name that may stand in a field.
    pub domain: String,
    pub selector: String,
    pub is_good: Result<(), Bad>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bad {
    /// The message is another one, or the key is.
    Fail(&'static str),
    /// It holds, but says less than its reader would think.
    Policy(&'static str),
    TempError,
    PermError(&'static str),
}

impl Bad {
    /// As RFC 8601 has it, with the reason.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Fail(why) => ("fail", why),
            Self::Policy(why) => ("policy", why),
            Self::TempError => ("temperror", "the key cannot be asked for now"),
            Self::PermError(why) => ("permerror", why),
        }
    }
}

/// Judges the signatures of a message.
pub async fn check<L: Lookup>(dns: &L, message: &Message<'_>) -> Vec<Dkim> {
    let mut found = Vec::new();
    for field in message.fields.iter().filter(|field| is_named(field, b"DKIM-Signature")).take(DKIM_SIGNATURES_MAX) {
        // Whose signature it would be cannot be said of one that is not readable.
        let Some((tags, domain, selector)) = read(field) else { continue };
        let signature = Signature { tags: &tags, domain: &domain, selector: &selector, field, is_arc: false };
        let is_good = judge(dns, &signature, message).await;
        found.push(Dkim { domain, selector, is_good });
    }
    found
}

pub(super) fn is_named(field: &[u8], name: &[u8]) -> bool {
    name_of(field).is_some_and(|its| its.eq_ignore_ascii_case(name))
}

pub(super) fn value(field: &[u8]) -> &[u8] {
    memchr::memchr(b':', field).map_or(&[], |at| &field[at + 1..])
}

/// `a=b; c=d`, in order.
pub(super) type Tags = Vec<(String, String)>;

pub(super) fn tags(text: &[u8]) -> Option<Tags> {
    let text = std::str::from_utf8(text).ok()?;
    let mut found: Tags = Vec::new();
    for part in text.split(';').filter(|part| !part.trim().is_empty()) {
        let (name, value) = part.split_once('=')?;
        let name = name.trim();
        if found.iter().any(|(other, _)| other == name) || found.len() >= DKIM_TAGS_MAX {
            return None;
        }
        found.push((name.to_owned(), value.trim().to_owned()));
    }
    Some(found)
}

pub(super) fn tag<'a>(tags: &'a Tags, name: &str) -> Option<&'a str> {
    tags.iter().find(|(its, _)| its == name).map(|(_, value)| value.as_str())
}

pub(super) fn read(field: &[u8]) -> Option<(Tags, String, String)> {
    let tags = tags(value(field))?;
    let domain = tag(&tags, "d").and_then(domain_of).filter(|domain| !domain.starts_with('['))?;
    let selector = tag(&tags, "s").filter(|s| is_selector(s))?.to_ascii_lowercase();
    Some((tags, domain, selector))
}

fn is_selector(text: &str) -> bool {
    let fits = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    text.len() <= 128 && text.split('.').all(fits)
}

pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let text: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    GeneralPurpose::new(&STANDARD, config).decode(text).ok()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Algorithm {
    Rsa,
    Ed25519,
}

impl Algorithm {
    pub fn of(said: Option<&str>) -> Result<Self, Bad> {
        match said.map(str::to_ascii_lowercase).as_deref() {
            Some("rsa-sha256") => Ok(Self::Rsa),
            Some("ed25519-sha256") => Ok(Self::Ed25519),
            // RFC 8301: SHA-1 says nothing any more.
            Some("rsa-sha1") => Err(Bad::Policy("SHA-1 is not believed")),
            _ => Err(Bad::PermError("its algorithm is not known")),
        }
    }

    pub fn is_good(self, key: &[u8], input: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa => UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, key)
                .verify(input, signature)
                .is_ok(),
            Self::Ed25519 => {
                // RFC 8463: what is signed is the hash.
                let mut sum = Context::new(&SHA256);
                sum.update(input);
                UnparsedPublicKey::new(&ED25519, key).verify(sum.finish().as_ref(), signature).is_ok()
            }
        }
    }
}

/// A field that signs a message, read.
pub(super) struct Signature<'a> {
    pub tags: &'a Tags,
    pub domain: &'a str,
    pub selector: &'a str,
    pub field: &'a [u8],
    /// It is an `ARC-Message-Signature`: without a version, and `i` is its place in the chain.
    pub is_arc: bool,
}

/// What is signed: fields with their ends, and what stands behind the empty line. `now`: seconds since 1970.
pub(super) struct Message<'a> {
    pub fields: &'a [&'a [u8]],
    pub body: &'a [u8],
    pub now: u64,
}

pub(super) async fn judge<L: Lookup>(dns: &L, signature: &Signature<'_>, message: &Message<'_>) -> Result<(), Bad> {
    let &Signature { tags, domain, selector, field, is_arc } = signature;
    let &Message { fields, body, now } = message;
    let wrong = Bad::PermError;
    let said = |name: &str| tag(tags, name);
    if !is_arc && said("v") != Some("1") {
        return Err(wrong("its version is not known"));
    }
    let algorithm = Algorithm::of(said("a"))?;
    let (head, text) = canonicalizations(said("c")).ok_or(wrong("its canonicalization is not known"))?;
    let signed: Vec<String> =
        said("h").unwrap_or_default().split(':').map(|name| name.trim().to_ascii_lowercase()).collect();
    if !signed.iter().any(|name| name == "from") || signed.len() > DKIM_FIELDS_MAX {
        return Err(wrong("the sender is not signed"));
    }
    if said("q").is_some_and(|q| !q.split(':').any(|q| q.trim().eq_ignore_ascii_case("dns/txt"))) {
        return Err(wrong("its key is elsewhere"));
    }
    let identity = said("i").filter(|_| !is_arc);
    let identity = identity.map_or(domain, |i| i.rsplit_once('@').map_or(i, |(_, domain)| domain)).to_ascii_lowercase();
    if identity != domain && !identity.ends_with(&format!(".{domain}")) {
        return Err(wrong("it speaks for somebody else"));
    }
    let time =
        |name: &str| said(name).map(|t| t.parse::<u64>().map_err(|_| wrong("its time is no number"))).transpose();
    let (made, ends) = (time("t")?, time("x")?);
    if made.zip(ends).is_some_and(|(made, ends)| ends <= made) {
        return Err(wrong("it ends before it begins"));
    }
    if ends.is_some_and(|ends| ends < now) {
        return Err(Bad::Fail("it has ended"));
    }
    let body = canonical_body(body, text);
    if let Some(len) = said("l") {
        let len: usize = len.parse().map_err(|_| wrong("its length is no number"))?;
        // Anything could stand behind what is signed.
        if len != body.len() {
            return Err(Bad::Policy("a part of the text is not signed"));
        }
    }
    let bytes = |name: &str| said(name).and_then(decoded).filter(|b| !b.is_empty()).ok_or(wrong("it is not whole"));
    let (body_hash, signed_hash) = (bytes("bh")?, bytes("b")?);
    if ring::digest::digest(&SHA256, &body).as_ref() != body_hash {
        return Err(Bad::Fail("the text is another one"));
    }
    let key = key(dns, domain, selector, algorithm, identity == domain).await?;
    let input = signed_input(field, fields, &signed, head);
    let is_good = algorithm.is_good(&key, &input, &signed_hash);
    is_good.then_some(()).ok_or(Bad::Fail("the fields or the key are others"))
}

/// The public key, as `ring` wants it.
pub(super) async fn key<L: Lookup>(
    dns: &L,
    domain: &str,
    selector: &str,
    algorithm: Algorithm,
    is_domain_itself: bool,
) -> Result<Vec<u8>, Bad> {
    let found = dns.look(&format!("{selector}._domainkey.{domain}"), Kind::Txt).await;
    let found = found.map_err(|Later| Bad::TempError)?;
    let text = found.into_iter().find_map(|record| match record {
        Record::Text(text) => Some(text),
        _ => None,
    });
    let wrong = Bad::PermError;
    let tags = tags(&text.ok_or(wrong("there is no key"))?).ok_or(wrong("the key is not readable"))?;
    let said = |name: &str| tag(&tags, name);
    let lists = |name: &str, word: &str| {
        said(name).is_none_or(|all| all.split(':').any(|one| [word, "*"].contains(&one.trim())))
    };
    let is_first = tags.first().is_some_and(|(name, value)| name == "v" && value == "DKIM1");
    if said("v").is_some() && !is_first {
        return Err(wrong("the key's version is not known"));
    }
    let kind = match algorithm {
        Algorithm::Rsa => "rsa",
        Algorithm::Ed25519 => "ed25519",
    };
    if said("k").unwrap_or("rsa") != kind || !lists("h", "sha256") || !lists("s", "email") {
        return Err(wrong("the key is for something else"));
    }
    if said("t").is_some_and(|flags| flags.split(':').any(|flag| flag.trim() == "s")) && !is_domain_itself {
        return Err(wrong("the key is not for names below it"));
    }
    match said("p") {
        Some("") => return Err(wrong("the key was taken back")),
        Some(p) => decoded(p).and_then(|bytes| if algorithm == Algorithm::Rsa { rsa_key(&bytes) } else { Some(bytes) }),
        None => None,
    }
    .ok_or(wrong("the key is not readable"))
}

/// Takes the key out of its SubjectPublicKeyInfo; some publish it bare.
fn rsa_key(der: &[u8]) -> Option<Vec<u8>> {
    let (outer, _) = element(der, 0x30)?;
    if outer.first() == Some(&0x02) {
        return Some(der.to_vec());
    }
    let (_, rest) = element(outer, 0x30)?;
    let (bits, _) = element(rest, 0x03)?;
    bits.strip_prefix(&[0]).map(<[u8]>::to_vec)
}

/// An element of DER with this tag, and what stands behind it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = der.split_first()?;
    let (len, rest) = rest.split_first()?;
    let (len, rest) = match len {
        0..=0x7f => (usize::from(*len), rest),
        0x81..=0x82 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(len & 0x7f))?;
            (bytes.iter().fold(0, |sum, b| sum << 8 | usize::from(*b)), rest)
        }
        _ => return None,
    };
    (*first == tag).then(|| rest.split_at_checked(len)).flatten()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Canonical {
    Simple,
    Relaxed,
}

/// Of fields and of the text.
fn canonicalizations(said: Option<&str>) -> Option<(Canonical, Canonical)> {
    let of = |word: &str| match word.to_ascii_lowercase().as_str() {
        "simple" => Some(Canonical::Simple),
        "relaxed" => Some(Canonical::Relaxed),
        _ => None,
    };
    let (head, text) = said.unwrap_or("simple").split_once('/').unwrap_or((said.unwrap_or("simple"), "simple"));
    Some((of(head.trim())?, of(text.trim())?))
}

fn canonical_body(body: &[u8], how: Canonical) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 2);
    // Empty lines at the end are none.
    let mut empty = 0;
    for line in body.split_inclusive(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_empty = match how {
            Canonical::Simple => line.is_empty(),
            Canonical::Relaxed => line.iter().all(|b| matches!(b, b' ' | b'\t')),
        };
        if is_empty {
            empty += 1;
            continue;
        }
        (0..empty).for_each(|_| out.extend_from_slice(b"\r\n"));
        empty = 0;
        match how {
            Canonical::Simple => out.extend_from_slice(line),
            Canonical::Relaxed => relaxed(line, &mut out),
        }
        out.extend_from_slice(b"\r\n");
    }
    if out.is_empty() && how == Canonical::Simple {
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Blanks become one space each, and none at the end.
fn relaxed(line: &[u8], out: &mut Vec<u8>) {
    let mut blank = false;
    for byte in line {
        if matches!(byte, b' ' | b'\t') {
            blank = true;
        } else {
            if blank {
                out.push(b' ');
            }
            blank = false;
            out.push(*byte);
        }
    }
}

pub(super) fn canonical_field(field: &[u8], how: Canonical, out: &mut Vec<u8>) {
    if how == Canonical::Simple {
        return out.extend_from_slice(field);
    }
    let name = name_of(field).unwrap_or_default();
    out.extend(name.to_ascii_lowercase());
    out.push(b':');
    let unfolded: Vec<u8> = value(field).iter().copied().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    relaxed(unfolded.trim_ascii(), out);
    out.extend_from_slice(b"\r\n");
}

fn signed_input(signature: &[u8], fields: &[&[u8]], signed: &[String], how: Canonical) -> Vec<u8> {
    let mut input = Vec::new();
    let mut used = vec![false; fields.len()];
    for name in signed {
        // The last one that is left; one that is not there is signed as such.
        let at = (0..fields.len()).rev().find(|at| !used[*at] && is_named(fields[*at], name.as_bytes()));
        if let Some(at) = at {
            used[at] = true;
            canonical_field(fields[at], how, &mut input);
        }
    }
    canonical_field(&without_signature(signature), how, &mut input);
    if input.ends_with(b"\r\n") {
        input.truncate(input.len() - 2);
    }
    input
}

/// The field of the signature with nothing in its `b`.
pub(super) fn without_signature(field: &[u8]) -> Vec<u8> {
    let start = field.len() - value(field).len();
    let mut out = field[..start].to_vec();
    let end = if field.ends_with(b"\r\n") { field.len() - 2 } else { field.len() };
    for (at, part) in field[start..end.max(start)].split(|b| *b == b';').enumerate() {
        if at > 0 {
            out.push(b';');
        }
        let equals = memchr::memchr(b'=', part);
        match equals.filter(|equals| part[..*equals].trim_ascii() == b"b") {
            Some(equals) => out.extend_from_slice(&part[..=equals]),
            None => out.extend_from_slice(part),
        }
    }
    out.extend_from_slice(b"\r\n");
    out
}

#[cfg(test)]
#[path = "dkim_tests.rs"]
mod tests;
