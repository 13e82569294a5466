//! Certificates of the cluster as the root group keeps them: what clients are shown anyway in the clear, the key sealed
//! as [secrets](crate::secrets) are, and bound to its name. Whether a certificate is one, and whose key it has, was
//! looked at by the front door that brings it: nothing here reads X.509.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Now;
use base::process::Private;
use base::text::span_text;
use cluster::root::{Change, Declared};
use serde::{Deserialize, Serialize};

use crate::acme::{self, Account};
use crate::declared::{Diff, check_name, json, kind, listed};
use crate::limits::{CERTIFICATE_BYTES_MAX, CERTIFICATE_TOLD_AT, CERTIFICATES_BYTES_MAX, CERTIFICATES_MAX};
use crate::node::{Node, Out};
use crate::secrets::{self, Sealed};
use crate::view::CertificateView;

/// From this level on of all nodes there are certificates of the cluster: older ones would show others.
pub const LEVEL: u32 = 7;

/// A certificate with its chain and its key, looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Host names that it is for, in lower case.
    pub names: Vec<String>,
    /// Who signed it, for people.
    pub issuer: String,
    /// From when and until when it is good, milliseconds since 1970.
    pub begins_at_ms: u64,
    pub ends_at_ms: u64,
    /// In PEM, its own first.
    pub chain: String,
    /// In PEM.
    pub key: Private,
}

/// One as the doors show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keyed {
    pub name: String,
    pub ends_at_ms: u64,
    pub chain: Arc<str>,
    pub key: Private,
}

/// A record.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    names: Vec<String>,
    issuer: String,
    begins_at_ms: u64,
    ends_at_ms: u64,
    chain: String,
    key: Sealed,
}

/// What is done with the cluster's certificates.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Set one, with these notes for whoever does. `entropy` seals its key.
    Set { name: String, certificate: Box<Certificate>, notes: Vec<String>, entropy: [u8; 32] },
    /// Take one away.
    Remove { name: String },
    /// Keep the key of the account with which they are asked for, if there is none yet.
    Account { account: Account, entropy: [u8; 32] },
    /// Show a directory over TLS that names of one are ours, until its order has ended.
    Show { name: String, mark: String, proofs: acme::Proofs },
    /// Set one that was asked for, as of this mark of what is declared.
    Issued { name: String, mark: String, certificate: Box<Certificate>, entropy: [u8; 32] },
    /// Keep that one cannot be had, and is not asked for again for so long.
    Failed { name: String, mark: String, why: String, wait_ms: u64 },
}

impl Deed {
    /// What all nodes must understand for it.
    pub(crate) fn level(&self) -> u32 {
        match self {
            Self::Show { .. } => clones::LEVEL_CHALLENGES,
            Self::Set { .. }
            | Self::Remove { .. }
            | Self::Account { .. }
            | Self::Issued { .. }
            | Self::Failed { .. } => LEVEL,
        }
    }

    /// The change that it needs, in words too; none if all is so already.
    pub(crate) fn diff(&self, now: &Declared, wall_ms: u64) -> Result<Diff, String> {
        match self {
            Self::Account { account, entropy } => acme::keep_account(now, account, wall_ms, entropy),
            Self::Issued { name, mark, certificate, entropy } => {
                acme::issued(now, (name, mark), certificate, wall_ms, entropy)
            }
            Self::Show { name, mark, proofs } => acme::show(now, name, mark, proofs),
            Self::Failed { name, mark, why, wait_ms } => acme::failed(now, name, mark, why, (wall_ms, *wait_ms)),
            Self::Set { name, certificate, notes, entropy } => {
                if let Some(why) = acme::comes_by_itself(now, name) {
                    return Err(why);
                }
                let mut diff = set(now, name, certificate, wall_ms, entropy)?;
                if !diff.lines.is_empty() {
                    diff.lines.extend(notes.iter().cloned());
                }
                Ok(diff)
            }
            Self::Remove { name } => remove(now, name),
        }
    }
}

/// Sets a certificate. `entropy` seals its key.
///
/// # Errors
/// A sentence that says nothing of the key.
pub fn set(
    now: &Declared,
    name: &str,
    certificate: &Certificate,
    wall_ms: u64,
    entropy: &[u8; 32],
) -> Result<Diff, String> {
    check_name(name).map_err(|why| format!("{why}; {name:?} does not fit"))?;
    let Certificate { names, issuer, begins_at_ms, ends_at_ms, chain, key } = certificate;
    let len = chain.len() + key.0.len();
    if len > CERTIFICATE_BYTES_MAX {
        return Err(format!("{name} has {len} bytes with its chain and key; {CERTIFICATE_BYTES_MAX} are the most"));
    }
    if *ends_at_ms <= wall_ms {
        return Err(format!("the certificate for {} has ended", names.join(", ")));
    }
    let before = records(now).find(|(of, _)| *of == name).map(|(_, kept)| kept);
    if before.is_none() && records(now).count() >= CERTIFICATES_MAX {
        return Err(format!("this cluster has {CERTIFICATES_MAX} certificates, which is all that it may; remove one"));
    }
    let held: usize =
        records(now).filter(|(of, _)| *of != name).map(|(_, kept)| kept.chain.len() + kept.key.len()).sum();
    if held + len > CERTIFICATES_BYTES_MAX {
        return Err(format!(
            "all certificates together may have {CERTIFICATES_BYTES_MAX} bytes, and {held} are held; remove one"
        ));
    }
    let mut change = Change { expect: Some(now.version), ..Change::default() };
    if let Some(before) = &before
        && before.chain == *chain
        && secrets::open_record(now, &record_name(name), &before.key).as_ref() == Some(key)
    {
        return Ok(Diff { lines: Vec::new(), change });
    }
    let key = secrets::seal_record(now, &record_name(name), key, (entropy, wall_ms), &mut change)?;
    let kept = Kept {
        names: names.clone(),
        issuer: issuer.clone(),
        begins_at_ms: *begins_at_ms,
        ends_at_ms: *ends_at_ms,
        chain: chain.clone(),
        key,
    };
    change.puts.push((kind::SECRET.into(), record_name(name), json(&kept)));
    let sign = if before.is_some() { '~' } else { '+' };
    Ok(Diff { lines: vec![format!("{sign} certificate {name} for {}", names.join(", "))], change })
}

/// Takes a certificate away.
///
/// # Errors
/// A sentence: there is none of this name.
pub fn remove(now: &Declared, name: &str) -> Result<Diff, String> {
    if let Some(why) = acme::comes_by_itself(now, name) {
        return Err(why);
    }
    let record = record_name(name);
    if now.get(kind::SECRET, &record).is_none() {
        let known = listed(records(now).map(|(name, _)| name));
        return Err(format!("there is no certificate {name:?}; there are: {known}"));
    }
    let change = Change { expect: Some(now.version), puts: Vec::new(), removes: vec![(kind::SECRET.into(), record)] };
    Ok(Diff { lines: vec![format!("- certificate {name}")], change })
}

/// All certificates, opened: for the doors. One whose key does not open is left out, and is in no list of what is shown
/// to clients.
pub(crate) fn opened(now: &Declared) -> Vec<Keyed> {
    let of = |(name, kept): (&str, Kept)| {
        let key = secrets::open_record(now, &record_name(name), &kept.key)?;
        Some(Keyed { name: name.to_owned(), ends_at_ms: kept.ends_at_ms, chain: kept.chain.into(), key })
    };
    records(now).filter_map(of).collect()
}

/// As people see them, and those that are to come by themselves and are not there.
pub(crate) fn views(now: &Declared) -> Vec<CertificateView> {
    let mut views: BTreeMap<String, CertificateView> =
        kept_views(now).into_iter().map(|view| (view.name.clone(), view)).collect();
    for (name, wanted) in acme::acme(now).wanted {
        let none =
            || CertificateView { name: name.clone(), names: wanted.spec.names.clone(), ..CertificateView::default() };
        let view = views.entry(name.clone()).or_insert_with(none);
        view.from = Some(wanted.spec.directory);
        if let Some(trouble) = wanted.trouble {
            (view.why, view.next_at_ms) = (Some(trouble.why), Some(trouble.next_at_ms));
        }
    }
    views.into_values().collect()
}

/// Views of the certificates that are there.
pub(crate) fn kept_views(now: &Declared) -> Vec<CertificateView> {
    let of = |(name, kept): (&str, Kept)| CertificateView {
        name: name.to_owned(),
        names: kept.names,
        issuer: kept.issuer,
        begins_at_ms: kept.begins_at_ms,
        ends_at_ms: kept.ends_at_ms,
        at_ms: kept.key.at_ms,
        ..CertificateView::default()
    };
    records(now).map(of).collect()
}

fn records(now: &Declared) -> impl Iterator<Item = (&str, Kept)> {
    now.of_kind(kind::SECRET).filter_map(|(record, bytes)| {
        let name = record.strip_prefix(OF_CERTIFICATE)?;
        Some((name, serde_json::from_slice(bytes).ok()?))
    })
}

pub(crate) fn record_name(name: &str) -> String {
    format!("{OF_CERTIFICATE}{name}")
}

/// How records of certificates begin among the secret ones.
const OF_CERTIFICATE: &str = "cert/";

impl Node {
    /// Takes what is declared to the doors. What stays the same stays the same pointer, so that they see by it that
    /// nothing changed.
    pub(crate) fn show_certificates(&mut self) {
        let declared = self.root.declared();
        let (keyed, views) = (opened(declared), views(declared));
        if *self.keyed != keyed[..] {
            self.keyed = keyed.into();
        }
        if *self.certificates != views[..] {
            self.certificates = views.into();
        }
        let acme = acme::acme(self.root.declared());
        if *self.acme != acme {
            self.acme = acme.into();
        }
    }

    /// Tells of what was done.
    pub(crate) fn certified_by(&mut self, now: Now, deed: &Deed, lines: &[String], out: &mut Out) {
        let (name, text) = match deed {
            Deed::Account { .. } | Deed::Show { .. } => return,
            Deed::Issued { name, certificate, .. } => {
                (name, format!("the certificate for {} has come", certificate.names.join(", ")))
            }
            Deed::Failed { name, why, wait_ms, .. } => {
                (name, format!("it cannot be had: {why}; asked for again in {}", span_text(wait_ms / 60_000 * 60_000)))
            }
            Deed::Set { name, .. } | Deed::Remove { name } => {
                return self.happened(now, "certificate", name, lines.first().cloned().unwrap_or_default());
            }
        };
        self.decided(now, "certificate", name, text, out);
    }

    /// At the root group's leader: says it when a certificate is about to end, and when it has.
    pub(crate) fn keep_certificates(&mut self, now: Now, out: &mut Out) {
        let certificates = Arc::clone(&self.certificates);
        let mut told = std::mem::take(&mut self.certificates_told);
        told.retain(|name, _| certificates.iter().any(|of| of.name == *name));
        for of in certificates.iter().filter(|of| of.is_there()) {
            let step = step(now.wall_ms, of.ends_at_ms);
            if let Some(text) = news(&mut told, of, step) {
                self.decided(now, "certificate", &of.name, text, out);
            }
        }
        self.certificates_told = told;
    }
}

/// How near its end a certificate is: 0 not near, then one more at each of [`CERTIFICATE_TOLD_AT`], then ended.
fn step(wall_ms: u64, ends_at_ms: u64) -> usize {
    match ends_at_ms.saturating_sub(wall_ms) {
        0 => CERTIFICATE_TOLD_AT.len() + 1,
        left => CERTIFICATE_TOLD_AT.iter().filter(|at| left <= at.as_millis()).count(),
    }
}

/// What is to be told of a certificate, if that is another thing than was told last: of another one it begins anew.
fn news(told: &mut BTreeMap<String, (u64, usize)>, of: &CertificateView, step: usize) -> Option<String> {
    let before = told.insert(of.name.clone(), (of.ends_at_ms, step));
    let before = before.filter(|(ends, _)| *ends == of.ends_at_ms).map_or(0, |(_, step)| step);
    (step > before).then(|| {
        let names = of.names.join(", ");
        match CERTIFICATE_TOLD_AT.get(step - 1) {
            Some(at) => format!("the certificate for {names} ends in less than {} days", at.as_millis() / 86_400_000),
            None => format!("the certificate for {names} has ended: clients refuse it"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared::after;

    const DAY_MS: u64 = 86_400_000;

    fn some(names: &[&str], key: &'static str) -> Certificate {
        Certificate {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            issuer: "Toy CA".into(),
            begins_at_ms: 1,
            ends_at_ms: 100 * DAY_MS,
            chain: "chain".into(),
            key: Private(key.as_bytes().into()),
        }
    }

    fn with(now: &Declared, name: &str, certificate: &Certificate, seed: u8) -> Declared {
        let diff = set(now, name, certificate, 5, &[seed; 32]).unwrap();
        Declared { version: now.version + 1, ..after(now, &diff.change) }
    }

    #[test]
    fn a_key_is_opened_for_its_certificate_alone_and_stands_nowhere_in_clear() {
        let empty = Declared { version: 1, ..Declared::default() };
        let one = some(&["shop.example"], "k3y of it");
        let first = set(&empty, "shop", &one, 5, &[1; 32]).unwrap();
        assert_eq!(first.lines, ["+ certificate shop for shop.example"]);
        let now = with(&empty, "shop", &one, 1);
        assert_eq!((opened(&now)[0].key.text(), &*opened(&now)[0].chain), (Some("k3y of it"), "chain"));
        let holds = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        for bytes in now.records.values() {
            assert!(!holds(bytes, b"k3y of it") && !holds(bytes, crate::asks::hex(b"k3y of it").as_bytes()));
        }
        assert!(!crate::declared::export(&now).contains("chain") && !format!("{:?}", opened(&now)).contains("k3y"));
        assert!(set(&now, "shop", &one, 6, &[2; 32]).unwrap().lines.is_empty(), "the same changes nothing");
        let other = set(&now, "shop", &some(&["shop.example"], "other"), 6, &[2; 32]).unwrap();
        assert_eq!(other.lines, ["~ certificate shop for shop.example"]);

        let mut moved = now.clone();
        let record = now.get(kind::SECRET, "cert/shop").unwrap().clone();
        moved.records.insert((kind::SECRET.into(), "cert/bank".into()), record);
        assert_eq!(opened(&moved).iter().map(|of| &*of.name).collect::<Vec<_>>(), ["shop"], "it is bound to its name");

        // Services' secrets are sealed with the same key, and neither is in the other's way.
        let secret = secrets::set(&now, ("shop", "PW"), &Private(b"pw".as_slice().into()), 5, &[3; 32]).unwrap();
        let both = after(&now, &secret.change);
        assert_eq!((opened(&both).len(), secrets::opened(&both).len()), (1, 1));

        let gone = after(&now, &remove(&now, "shop").unwrap().change);
        assert!(opened(&gone).is_empty() && views(&gone).is_empty());
        assert!(remove(&gone, "shop").unwrap_err().contains("there are: none"));
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let mut now = Declared { version: 1, ..Declared::default() };
        let one = some(&["a.example"], "secret key");
        let long = Certificate { chain: "x".repeat(CERTIFICATE_BYTES_MAX), ..one.clone() };
        let ended = Certificate { ends_at_ms: 5, ..one.clone() };
        for (name, certificate, why) in [
            ("A b", &one, "lower-case"),
            ("", &one, "lower-case"),
            ("a", &long, "are the most"),
            ("a", &ended, "has ended"),
        ] {
            let told = set(&now, name, certificate, 5, &[1; 32]).unwrap_err();
            assert!(told.contains(why) && !told.contains("secret key"), "{told}");
        }
        for n in 0..CERTIFICATES_MAX {
            now = with(&now, &format!("c{n}"), &one, n as u8);
        }
        assert!(set(&now, "more", &one, 5, &[1; 32]).unwrap_err().contains("which is all that it may"));
        assert!(set(&now, "c3", &some(&["a.example"], "another"), 5, &[1; 32]).is_ok());
        let large = Certificate { chain: "x".repeat(CERTIFICATE_BYTES_MAX - 20), ..one };
        let mut now = Declared { version: 1, ..Declared::default() };
        for n in 0..CERTIFICATES_BYTES_MAX / CERTIFICATE_BYTES_MAX {
            now = with(&now, &format!("c{n}"), &large, n as u8);
        }
        assert!(set(&now, "more", &large, 5, &[1; 32]).unwrap_err().contains("together"));
    }

    #[test]
    fn an_end_that_comes_near_is_told_at_each_step_once_and_anew_of_another_certificate() {
        let mut told = BTreeMap::new();
        let mut of = CertificateView { name: "shop".into(), ends_at_ms: 100 * DAY_MS, ..CertificateView::default() };
        let mut at = |of: &CertificateView, day: u64| news(&mut told, of, step(day * DAY_MS, of.ends_at_ms));
        assert_eq!(at(&of, 1), None);
        assert!(at(&of, 87).unwrap().contains("14 days"));
        assert_eq!(at(&of, 88), None);
        assert!(at(&of, 98).unwrap().contains("3 days"));
        assert!(at(&of, 101).unwrap().contains("has ended"));
        of.ends_at_ms = 190 * DAY_MS;
        assert_eq!(at(&of, 102), None);
        assert!(at(&of, 180).unwrap().contains("14 days"));
    }
}
