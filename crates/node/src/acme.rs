//! Certificates that come by themselves (RFC 8555), as the root group keeps what belongs to them: the key of the
//! cluster's account, sealed as secrets are, and what went wrong, so that whoever leads next waits as long. Who asks is
//! `coppice/src/acme.rs`, at the leader. That names are ours is shown at every node's HTTP door by what follows from
//! the account's key alone, and at every HTTPS door by what is kept here for as long as a directory looks.

use std::collections::{BTreeMap, BTreeSet};

use base::process::Private;
use bytes::Bytes;
use clones::{CertificateSpec, SpecError};
use cluster::root::{Change, Declared};
use ring::digest;
use serde::{Deserialize, Serialize};

use crate::asks::hex;
use crate::certificates;
use crate::declared::{Diff, all, json, kind};
use crate::limits::CERTIFICATES_MAX;
use crate::secrets::{self, Sealed, unhex};

/// All that is known of them, for who asks and for the doors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acme {
    pub account: Option<Account>,
    /// Certificates that come by themselves, by name.
    pub wanted: BTreeMap<String, Wanted>,
    /// Host names of all of them.
    pub hosts: BTreeSet<String>,
    /// What HTTPS doors show who asks for nothing else (RFC 8737 3), by host name.
    pub proofs: Proofs,
}

/// SHA-256 of what answers a challenge, by host name in lower case.
pub type Proofs = BTreeMap<String, [u8; 32]>;

/// One account at all directories.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// PKCS #8.
    pub key: Private,
    /// Thumbprint of the key (RFC 7638): what answers a challenge, behind its token.
    pub thumbprint: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    pub spec: CertificateSpec,
    /// Another one with each change of what is declared.
    pub mark: String,
    /// The certificate that is there: from when and until when it is good, if it is for the names that are declared.
    pub has: Option<(u64, u64)>,
    pub trouble: Option<Trouble>,
}

/// What went wrong the last time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trouble {
    /// Mark of the declaration that it is about ([`Wanted::mark`]).
    pub mark: String,
    /// How often, one after the other.
    pub tries: u32,
    pub why: String,
    /// When, and when it is tried again; milliseconds since 1970.
    pub at_ms: u64,
    pub next_at_ms: u64,
}

/// A record.
#[derive(Serialize, Deserialize)]
struct ProofsKept {
    /// Mark of the declaration that they are about ([`Wanted::mark`]).
    mark: String,
    /// In hexadecimal digits.
    proofs: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct AccountKept {
    key: Sealed,
    thumbprint: String,
}

/// Keeps the key of the account; if there is one by now that one stays.
///
/// # Errors
/// A sentence that says nothing of the key.
pub(crate) fn keep_account(
    now: &Declared,
    account: &Account,
    wall_ms: u64,
    entropy: &[u8; 32],
) -> Result<Diff, String> {
    let mut change = Change { expect: Some(now.version), ..Change::default() };
    if now.get(kind::SECRET, ACCOUNT).is_none() {
        let key = secrets::seal_record(now, ACCOUNT, &account.key, (entropy, wall_ms), &mut change)?;
        let kept = AccountKept { key, thumbprint: account.thumbprint.clone() };
        change.puts.push((kind::SECRET.into(), ACCOUNT.into(), json(&kept)));
    }
    Ok(Diff { lines: Vec::new(), change })
}

/// What all nodes are to show for names of one that is asked for as of this mark.
///
/// # Errors
/// It is not declared so any more, or never had such a name.
pub(crate) fn show(now: &Declared, name: &str, mark: &str, proofs: &Proofs) -> Result<Diff, String> {
    let spec = declared_as(now, name, mark)?;
    if let Some(other) = proofs.keys().find(|host| !spec.names.contains(host)) {
        return Err(format!("certificate {name} is not for {other}"));
    }
    let proofs = proofs.iter().map(|(host, proof)| (host.clone(), hex(proof))).collect();
    let put = (kind::PROOF.to_owned(), name.to_owned(), json(&ProofsKept { mark: mark.to_owned(), proofs }));
    Ok(Diff { lines: Vec::new(), change: Change { expect: Some(now.version), puts: vec![put], removes: Vec::new() } })
}

/// What is shown no more when an order has ended.
fn shown_no_more(now: &Declared, name: &str) -> Option<(String, String)> {
    now.get(kind::PROOF, name).map(|_| (kind::PROOF.to_owned(), name.to_owned()))
}

/// What went wrong with one that was asked for as of this mark, when, and for how long to wait.
///
/// # Errors
/// It is not declared so any more.
pub(crate) fn failed(
    now: &Declared,
    name: &str,
    mark: &str,
    why: &str,
    (at_ms, wait_ms): (u64, u64),
) -> Result<Diff, String> {
    declared_as(now, name, mark)?;
    let before = trouble(now, name, mark).map_or(0, |before| before.tries);
    let trouble = Trouble {
        mark: mark.to_owned(),
        tries: before.saturating_add(1),
        why: why.chars().take(WHY_CHARS_MAX).collect(),
        at_ms,
        next_at_ms: at_ms.saturating_add(wait_ms),
    };
    let put = (kind::TROUBLE.to_owned(), name.to_owned(), json(&trouble));
    let removes = shown_no_more(now, name).into_iter().collect();
    Ok(Diff { lines: Vec::new(), change: Change { expect: Some(now.version), puts: vec![put], removes } })
}

/// The change that sets a certificate which was asked for as of this mark. What went wrong before is over.
///
/// # Errors
/// It is not declared so any more, or cannot be kept.
pub(crate) fn issued(
    now: &Declared,
    (name, mark): (&str, &str),
    certificate: &certificates::Certificate,
    wall_ms: u64,
    entropy: &[u8; 32],
) -> Result<Diff, String> {
    declared_as(now, name, mark)?;
    let mut diff = certificates::set(now, name, certificate, wall_ms, entropy)?;
    if now.get(kind::TROUBLE, name).is_some() {
        diff.change.removes.push((kind::TROUBLE.into(), name.into()));
    }
    diff.change.removes.extend(shown_no_more(now, name));
    Ok(diff)
}

fn declared_as(now: &Declared, name: &str, mark: &str) -> Result<CertificateSpec, String> {
    let declared = all::<CertificateSpec>(now, kind::CERTIFICATE).remove(name);
    let same = declared.filter(|spec| mark_of(spec) == mark);
    same.ok_or_else(|| format!("certificate {name} is not declared so any more"))
}

/// Why nobody may set or remove it by hand, if nobody may.
pub(crate) fn comes_by_itself(now: &Declared, name: &str) -> Option<String> {
    let spec = all::<CertificateSpec>(now, kind::CERTIFICATE).remove(name)?;
    Some(format!(
        "certificate {name} comes by itself from {}: take [certificate.{name}] out of what is declared, or choose another name",
        spec.directory
    ))
}

/// What goes with a certificate that is not declared any more.
pub(crate) fn gone_with(now: &Declared, name: &str) -> Vec<(String, String)> {
    let its = [
        (kind::SECRET.to_owned(), certificates::record_name(name)),
        (kind::TROUBLE.to_owned(), name.to_owned()),
        (kind::PROOF.to_owned(), name.to_owned()),
    ];
    its.into_iter().filter(|(kind, name)| now.get(kind, name).is_some()).collect()
}

/// All that is declared, and what there is of it.
pub(crate) fn acme(now: &Declared) -> Acme {
    let account = now.get(kind::SECRET, ACCOUNT).and_then(|bytes| {
        let kept: AccountKept = serde_json::from_slice(bytes).ok()?;
        let key = secrets::open_record(now, ACCOUNT, &kept.key)?;
        Some(Account { key, thumbprint: kept.thumbprint })
    });
    let views = certificates::kept_views(now);
    let (mut wanted, mut proofs) = (BTreeMap::new(), Proofs::new());
    for (name, spec) in all::<CertificateSpec>(now, kind::CERTIFICATE) {
        let mark = mark_of(&spec);
        let is_for_all = |of: &&crate::view::CertificateView| spec.names.iter().all(|name| of.names.contains(name));
        let has = views.iter().find(|of| of.name == name).filter(is_for_all);
        let has = has.map(|of| (of.begins_at_ms, of.ends_at_ms));
        let trouble = trouble(now, &name, &mark);
        proofs.extend(shown(now, &name, &mark).into_iter().flatten());
        wanted.insert(name, Wanted { spec, mark, has, trouble });
    }
    let hosts = wanted.values().flat_map(|wanted| wanted.spec.names.iter().cloned()).collect();
    Acme { account, wanted, hosts, proofs }
}

fn shown(now: &Declared, name: &str, mark: &str) -> Option<Proofs> {
    let kept: ProofsKept = serde_json::from_slice(now.get(kind::PROOF, name)?).ok()?;
    let read = |(host, proof): (String, String)| Some((host, unhex(&proof)?.try_into().ok()?));
    (kept.mark == mark).then(|| kept.proofs.into_iter().filter_map(read).collect())
}

fn trouble(now: &Declared, name: &str, mark: &str) -> Option<Trouble> {
    let read = |bytes: &Bytes| serde_json::from_slice::<Trouble>(bytes).ok();
    now.get(kind::TROUBLE, name).and_then(read).filter(|trouble| trouble.mark == mark)
}

fn mark_of(spec: &CertificateSpec) -> String {
    hex(&digest::digest(&digest::SHA256, &json(spec)).as_ref()[..8])
}

/// A mistake of a whole declaration: more than can be kept.
pub(crate) fn too_many(now: &Declared) -> Option<SpecError> {
    let count = now.of_kind(kind::CERTIFICATE).count();
    let why = || format!("{count} certificates are over the limit of {CERTIFICATES_MAX}");
    (count > CERTIFICATES_MAX).then(|| SpecError { key: kind::CERTIFICATE.to_owned(), why: why() })
}

impl Acme {
    /// What answers a challenge (RFC 8555 8.3) of this host, if one of ours may be asked for.
    pub fn answer(&self, host: &str, token: &str) -> Option<String> {
        let is_token = !token.is_empty()
            && token.len() <= TOKEN_BYTES_MAX
            && token.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        let account = self.account.as_ref().filter(|_| is_token && self.is_ours(host))?;
        Some(format!("{token}.{}", account.thumbprint))
    }

    /// The certificate of this host, perhaps with a port, comes by itself.
    pub fn is_ours(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => host,
        };
        !self.hosts.is_empty() && self.hosts.contains(&name.trim_end_matches('.').to_ascii_lowercase())
    }
}

/// Where the key of the account is among the secret records.
const ACCOUNT: &str = "account";
/// What a directory says may be long.
const WHY_CHARS_MAX: usize = 600;
/// Tokens have 128 bits at least; nobody sends more than some dozen letters.
const TOKEN_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared::{after, diff};

    const SHOP: &str =
        "[certificate.shop]\nnames = [\"shop.example\"]\ndirectory = \"https://ca.example/dir\"\nagree = true\n";

    fn with(now: &Declared, change: &Change) -> Declared {
        Declared { version: now.version + 1, ..after(now, change) }
    }

    fn declared(now: &Declared, text: &str) -> Declared {
        with(now, &diff(now, "shop.toml", text, &[7; 32]).unwrap().change)
    }

    fn some(names: &[&str]) -> certificates::Certificate {
        certificates::Certificate {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            issuer: "Toy".into(),
            begins_at_ms: 10,
            ends_at_ms: 90,
            chain: "chain".into(),
            key: Private(b"key".as_slice().into()),
        }
    }

    #[test]
    fn what_is_declared_is_wanted_until_it_is_there_and_goes_with_its_declaration() {
        let now = declared(&Declared { version: 1, ..Declared::default() }, SHOP);
        let wanted = |now: &Declared| acme(now).wanted["shop"].clone();
        let mark = wanted(&now).mark;
        assert_eq!((wanted(&now).has, wanted(&now).trouble), (None, None));
        assert!(comes_by_itself(&now, "shop").unwrap().contains("https://ca.example/dir"));
        let text = crate::declared::export(&now);
        assert!(text.contains("[certificate.shop]") && text.contains("agree = true"), "{text}");

        let now = with(&now, &failed(&now, "shop", &mark, "nobody is there", (100, 60)).unwrap().change);
        let now = with(&now, &failed(&now, "shop", &mark, "still not", (200, 120)).unwrap().change);
        let trouble = wanted(&now).trouble.unwrap();
        assert_eq!((trouble.tries, &*trouble.why, trouble.next_at_ms), (2, "still not", 320));
        let view = &certificates::views(&now)[0];
        assert_eq!((view.ends_at_ms, view.why.as_deref(), view.next_at_ms), (0, Some("still not"), Some(320)));

        let done = issued(&now, ("shop", &mark), &some(&["shop.example"]), 50, &[1; 32]).unwrap();
        let now = with(&now, &done.change);
        assert_eq!((wanted(&now).has, wanted(&now).trouble), (Some((10, 90)), None));
        let view = &certificates::views(&now)[0];
        assert_eq!(
            (view.ends_at_ms, view.why.as_deref(), view.from.as_deref()),
            (90, None, Some("https://ca.example/dir"))
        );

        // With another name it is wanted anew, and what was asked for before is not taken.
        let now = declared(&now, &SHOP.replace("[\"shop.example\"]", "[\"shop.example\", \"www.shop.example\"]"));
        assert_eq!(wanted(&now).has, None);
        assert!(
            issued(&now, ("shop", &mark), &some(&["shop.example"]), 50, &[1; 32]).unwrap_err().contains("any more")
        );
        assert!(failed(&now, "shop", &mark, "late", (1, 1)).unwrap_err().contains("any more"));
        let now = declared(&now, "");
        assert!(acme(&now).wanted.is_empty() && certificates::views(&now).is_empty(), "all of it is gone");
    }

    #[test]
    fn what_proves_names_over_tls_is_shown_while_its_order_goes_on() {
        let now = declared(&Declared { version: 1, ..Declared::default() }, SHOP);
        let mark = acme(&now).wanted["shop"].mark.clone();
        let proofs = Proofs::from([("shop.example".to_owned(), [7; 32])]);
        let asked = with(&now, &show(&now, "shop", &mark, &proofs).unwrap().change);
        assert_eq!(acme(&asked).proofs, proofs);
        assert!(!crate::declared::export(&asked).contains("0707"));
        let other = Proofs::from([("bank.example".to_owned(), [7; 32])]);
        assert!(show(&now, "shop", &mark, &other).unwrap_err().contains("not for bank.example"));
        let ends = [
            failed(&asked, "shop", &mark, "no", (1, 1)).unwrap(),
            issued(&asked, ("shop", &mark), &some(&["shop.example"]), 50, &[1; 32]).unwrap(),
            diff(&asked, "shop.toml", "", &[7; 32]).unwrap(),
        ];
        for end in ends {
            let after = with(&asked, &end.change);
            assert_eq!((acme(&after).proofs, after.get(kind::PROOF, "shop")), (Proofs::new(), None));
        }
        // An order of what was declared before proves nothing any more.
        let again = declared(&asked, &format!("{SHOP}challenge = \"tls-alpn-01\"\n"));
        assert_eq!(acme(&again).proofs, Proofs::new());
        assert!(show(&again, "shop", &mark, &proofs).unwrap_err().contains("any more"));
    }

    #[test]
    fn a_challenge_is_answered_for_declared_hosts_by_the_one_account() {
        let now = declared(&Declared { version: 1, ..Declared::default() }, SHOP);
        assert_eq!(acme(&now).answer("shop.example", "abc"), None, "there is no account yet");
        let account = |n: &'static [u8]| Account { key: Private(n.into()), thumbprint: "print".into() };
        let now = with(&now, &keep_account(&now, &account(b"pkcs8"), 5, &[1; 32]).unwrap().change);
        let other = keep_account(&now, &account(b"other"), 5, &[2; 32]).unwrap();
        assert!(other.change.puts.is_empty(), "the first one stays");
        let all = acme(&now);
        assert_eq!(all.account, Some(account(b"pkcs8")));
        assert!(!now.records.values().any(|bytes| bytes.windows(5).any(|part| part == b"pkcs8")));
        for (host, token, expect) in [
            ("shop.example", "a-B_9", Some("a-B_9.print")),
            ("SHOP.example.:80", "a", Some("a.print")),
            ("other.example", "a", None),
            ("shop.example", "", None),
            ("shop.example", "a/b", None),
            ("shop.example", "<script>", None),
        ] {
            assert_eq!(all.answer(host, token).as_deref(), expect, "{host} {token}");
        }
        assert_eq!(all.answer("shop.example", &"a".repeat(129)), None);
    }

    #[test]
    fn a_mistake_has_its_line() {
        let now = Declared { version: 1, ..Declared::default() };
        let told = diff(&now, "shop.toml", &SHOP.replace("shop.example", "*.example"), &[7; 32]).unwrap_err();
        assert!(told.starts_with("shop.toml:2: certificate.shop.names: "), "{told}");
        let told = crate::declared::is_understood("shop.toml", SHOP, 6).unwrap_err();
        assert!(told.contains("certificate.shop: needs programs of level 7"), "{told}");
        let text = format!("{SHOP}challenge = \"http-01\"\n");
        let told = crate::declared::is_understood("shop.toml", &text, 8).unwrap_err();
        assert!(told.starts_with("shop.toml:5: certificate.shop.challenge: needs programs of level 9"), "{told}");
        assert_eq!(crate::declared::is_understood("shop.toml", SHOP, 8), Ok(()));
    }
}
