//! ARC (RFC 8617): whether servers that handed a message on have sealed what they found, one after the other, and the message is as the last
//! of them left it. What they found is theirs; whom of them to believe is for who reads it.

use super::dkim::{
    Algorithm, Bad, Canonical, Message, Signature, Tags, canonical_field, decoded, is_named, judge, key, read, tag,
    tags, value, without_signature,
};
use super::dns::Lookup;
use crate::limits::*;

/// What became of the chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arc {
    None,
    /// Sealed by so many, the last one this domain.
    Pass {
        count: usize,
        domain: String,
    },
    Fail(&'static str),
}

/// What one server has added, each field with its end.
#[derive(Default)]
struct Set<'a> {
    results: Option<&'a [u8]>,
    signature: Option<&'a [u8]>,
    seal: Option<&'a [u8]>,
}

/// Judges the chain of a message.
pub async fn check<L: Lookup>(dns: &L, message: &Message<'_>) -> Arc {
    match chain(message.fields) {
        Ok(sets) if sets.is_empty() => Arc::None,
        Ok(sets) => follow(dns, message, &sets).await.unwrap_or_else(Arc::Fail),
        Err(why) => Arc::Fail(why),
    }
}

/// The sets in order; none may be missing, and nothing of any.
fn chain<'a>(fields: &[&'a [u8]]) -> Result<Vec<Set<'a>>, &'static str> {
    let mut sets: Vec<Set<'a>> = Vec::new();
    for &field in fields {
        let of = |name: &str| is_named(field, name.as_bytes());
        let (is_results, is_signature, is_seal) =
            (of("ARC-Authentication-Results"), of("ARC-Message-Signature"), of("ARC-Seal"));
        if !(is_results || is_signature || is_seal) {
            continue;
        }
        let number = if is_results { of_results(field) } else { tags(value(field)).as_ref().and_then(of_tags) };
        let number = number.filter(|n| (1..=ARC_SETS_MAX).contains(n)).ok_or("a field of it has no place in it")?;
        if sets.len() < number {
            sets.resize_with(number, Set::default);
        }
        let set = &mut sets[number - 1];
        let place = match (is_results, is_signature) {
            (true, _) => &mut set.results,
            (false, true) => &mut set.signature,
            (false, false) => &mut set.seal,
        };
        if place.replace(field).is_some() {
            return Err("a field of it is there twice");
        }
    }
    let is_whole = |set: &Set<'_>| set.results.is_some() && set.signature.is_some() && set.seal.is_some();
    if sets.iter().all(is_whole) { Ok(sets) } else { Err("a field of it is missing") }
}

/// `i=2; mx.example; ...`
fn of_results(field: &[u8]) -> Option<usize> {
    let first = value(field).split(|b| *b == b';').next()?;
    let (name, number) = std::str::from_utf8(first).ok()?.split_once('=')?;
    if name.trim() == "i" { number.trim().parse().ok() } else { None }
}

fn of_tags(tags: &Tags) -> Option<usize> {
    tag(tags, "i")?.parse().ok()
}

async fn follow<L: Lookup>(dns: &L, message: &Message<'_>, sets: &[Set<'_>]) -> Result<Arc, &'static str> {
    let mut seals = Vec::new();
    for (at, set) in sets.iter().enumerate() {
        let seal = read(set.seal.unwrap_or_default()).ok_or("a seal is not readable")?;
        // Whoever sealed it after a break has said so, and each one after that.
        let wanted = if at == 0 { "none" } else { "pass" };
        match tag(&seal.0, "cv").map(str::to_ascii_lowercase).as_deref() {
            Some("fail") => return Err("it was broken when it was sealed last"),
            Some(said) if said == wanted => (),
            _ => return Err("a seal does not fit in its place"),
        }
        if tag(&seal.0, "h").is_some() {
            return Err("a seal names fields");
        }
        seals.push(seal);
    }
    let Some(last) = sets.last() else { return Ok(Arc::None) };
    let field = last.signature.unwrap_or_default();
    let (tags, domain, selector) = read(field).ok_or("the last signature is not readable")?;
    if tag(&tags, "h").is_some_and(|h| h.split(':').any(|name| name.trim().eq_ignore_ascii_case("ARC-Seal"))) {
        return Err("the last signature is of seals");
    }
    let signature = Signature { tags: &tags, domain: &domain, selector: &selector, field, is_arc: true };
    judge(dns, &signature, message).await.map_err(|bad| why(bad, "the message is not as the last one left it"))?;
    // A later seal is of all before it, so the last one says most, and is asked for first.
    for (at, (tags, domain, selector)) in seals.iter().enumerate().rev() {
        let bad = |bad| why(bad, "a seal does not hold");
        let algorithm = Algorithm::of(tag(tags, "a")).map_err(bad)?;
        let seal = tag(tags, "b").and_then(decoded).filter(|b| !b.is_empty()).ok_or("a seal is not whole")?;
        let key = key(dns, domain, selector, algorithm, true).await.map_err(bad)?;
        if !algorithm.is_good(&key, &sealed(&sets[..=at]), &seal) {
            return Err("a seal does not hold");
        }
    }
    let domain = seals.pop().map(|(_, domain, _)| domain).unwrap_or_default();
    Ok(Arc::Pass { count: sets.len(), domain })
}

fn why(bad: Bad, else_: &'static str) -> &'static str {
    match bad {
        Bad::TempError => "a key cannot be asked for now",
        Bad::Fail(_) | Bad::Policy(_) | Bad::PermError(_) => else_,
    }
}

/// What the last of these seals signs: all sets in order, its own field without the signature.
fn sealed(sets: &[Set<'_>]) -> Vec<u8> {
    let mut input = Vec::new();
    for (at, set) in sets.iter().enumerate() {
        for field in [set.results, set.signature].into_iter().flatten() {
            canonical_field(field, Canonical::Relaxed, &mut input);
        }
        let seal = set.seal.unwrap_or_default();
        if at + 1 < sets.len() {
            canonical_field(seal, Canonical::Relaxed, &mut input);
        } else {
            canonical_field(&without_signature(seal), Canonical::Relaxed, &mut input);
            input.truncate(input.len() - 2);
        }
    }
    input
}

#[cfg(test)]
#[path = "arc_tests.rs"]
mod tests;
