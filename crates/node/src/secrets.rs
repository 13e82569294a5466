//! Secrets of services as the root group keeps them: sealed one by one with a key that is a record of its own, each
//! bound to its service and name. Their values are for the clones alone; what people are shown is names. What that
//! protects, and what not, is said in SECURITY.md.

use std::collections::BTreeMap;

use base::process::Private;
use clones::secrets::{Secret, Secrets, name_error};
use clones::spec::ServiceSpec;
use cluster::root::{Change, Declared};
use ring::{aead, hmac};
use serde::{Deserialize, Serialize};

use crate::asks::hex;
use crate::declared::{Diff, all, json, kind};
use crate::limits::{SECRET_BYTES_MAX, SECRETS_BYTES_MAX, SECRETS_PER_SERVICE_MAX};

/// A secret as it is shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SecretView {
    pub name: String,
    /// When it was set; milliseconds since 1970.
    pub at_ms: u64,
    /// Its clones get it as a file, not as a variable.
    pub is_file: bool,
}

/// A record, or a part of one. Hexadecimal where it is bytes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sealed {
    /// Another one each time: what is sealed with one key twice under one nonce is open.
    nonce: String,
    sealed: String,
    pub at_ms: u64,
    is_text: bool,
}

impl Sealed {
    /// Length of what is sealed, bytes.
    pub fn len(&self) -> usize {
        self.sealed.len() / 2
    }
}

/// The key that seals them all, made with the first one.
#[derive(Serialize, Deserialize)]
struct SealKey {
    key: String,
}

/// Sets a secret. `entropy` makes its nonce, and the key if it is the first.
///
/// # Errors
/// A sentence that says nothing of the value.
pub fn set(
    now: &Declared,
    (service, name): (&str, &str),
    value: &Private,
    wall_ms: u64,
    entropy: &[u8; 32],
) -> Result<Diff, String> {
    if let Some(why) = clones::spec::name_error(service).or_else(|| name_error(name)) {
        return Err(why);
    }
    let len = value.0.len();
    if len == 0 {
        return Err(format!("secret {name} is empty; `coppice secret remove {service} {name}` takes it away"));
    }
    if len > SECRET_BYTES_MAX {
        return Err(format!("secret {name} has {len} bytes, which is over the limit of {SECRET_BYTES_MAX}"));
    }
    let declared = all::<ServiceSpec>(now, kind::SERVICE).remove(service);
    let is_file = declared.as_ref().is_some_and(|spec| spec.secret_files.iter().any(|file| file == name));
    // Of a service that is not declared yet: `apply` refuses one that does not say that it is a file.
    if value.text().is_none() && !is_file && declared.is_some() {
        return Err(format!(
            "secret {name} is not text without zero bytes, and can only be a file: declare secret_files = [{name:?}] in \
             [service.{service}] first"
        ));
    }
    let its: Vec<(&str, Sealed)> =
        records(now).filter(|(of, ..)| *of == service).map(|(_, name, s)| (name, s)).collect();
    let before = its.iter().find(|(of, _)| *of == name).map(|(_, sealed)| sealed);
    if before.is_none() && its.len() >= SECRETS_PER_SERVICE_MAX {
        return Err(format!(
            "{service} has {SECRETS_PER_SERVICE_MAX} secrets, which is all that it may; remove one first"
        ));
    }
    let others = records(now).filter(|(of, its, _)| (*of, *its) != (service, name));
    let held: usize = others.map(|(.., sealed)| sealed.sealed.len() / 2).sum();
    if held + len > SECRETS_BYTES_MAX {
        return Err(format!(
            "all secrets together may have {SECRETS_BYTES_MAX} bytes, and {held} are held; keep what is large in a namespace or a file"
        ));
    }
    let mut change = Change { expect: Some(now.version), ..Change::default() };
    let key = seal_key(now, entropy, &mut change)?;
    if before.is_some_and(|before| open(&key, &record_name(service, name), before).as_ref() == Some(value)) {
        return Ok(Diff { lines: Vec::new(), change: Change { expect: Some(now.version), ..Change::default() } });
    }
    let record = record_name(service, name);
    let sealed = seal(&key, &record, value, entropy, wall_ms).ok_or("the secret cannot be sealed")?;
    change.puts.push((kind::SECRET.into(), record, json(&sealed)));
    let sign = if before.is_some() { '~' } else { '+' };
    let mut lines = vec![format!("{sign} secret {service} {name}")];
    match declared {
        None => lines.push(format!("! service {service} is not declared yet: its clones get the secret when it is")),
        Some(spec) if spec.env.contains_key(name) => {
            lines.push(format!("! service {service} declares env.{name} itself, and that holds"));
        }
        Some(_) => (),
    }
    Ok(Diff { lines, change })
}

/// Takes a secret away.
///
/// # Errors
/// A sentence: there is none of this name.
pub fn remove(now: &Declared, service: &str, name: &str) -> Result<Diff, String> {
    let record = record_name(service, name);
    if now.get(kind::SECRET, &record).is_none() {
        let known = crate::declared::listed(records(now).filter(|(of, ..)| *of == service).map(|(_, name, _)| name));
        return Err(format!("service {service:?} has no secret {name:?}; it has: {known}"));
    }
    let change = Change { expect: Some(now.version), puts: Vec::new(), removes: vec![(kind::SECRET.into(), record)] };
    Ok(Diff { lines: vec![format!("- secret {service} {name}")], change })
}

/// The secrets of a service, without their values.
///
/// # Errors
/// A sentence: there is no such service.
pub fn list(now: &Declared, service: &str) -> Result<Vec<SecretView>, String> {
    let spec = all::<ServiceSpec>(now, kind::SERVICE).remove(service);
    let is_file = |name: &str| spec.iter().flat_map(|spec| &spec.secret_files).any(|file| file == name);
    let its = records(now).filter(|(of, ..)| *of == service);
    let view = |(_, name, sealed): (&str, &str, Sealed)| SecretView {
        name: name.to_owned(),
        at_ms: sealed.at_ms,
        is_file: is_file(name),
    };
    let views: Vec<SecretView> = its.map(view).collect();
    if views.is_empty() && spec.is_none() {
        let known = crate::declared::listed(now.of_kind(kind::SERVICE).map(|(name, _)| name));
        return Err(format!("there is no service {service:?}; declared are: {known}"));
    }
    Ok(views)
}

/// All secrets, opened, by service: for its clones.
pub fn opened(now: &Declared) -> BTreeMap<String, Secrets> {
    let key = now.get(kind::SECRET, KEY).and_then(|record| key_of(record));
    let mut all: BTreeMap<String, Secrets> = BTreeMap::new();
    for (service, name, sealed) in records(now) {
        let value = key.as_ref().and_then(|key| open(key, &record_name(service, name), &sealed));
        let secret = Secret { value, mark: sealed.nonce };
        all.entry(service.to_owned()).or_default().insert(name.to_owned(), secret);
    }
    all
}

/// Seals something else, for the record of this name. `change` gets the key of all, if this is the first.
pub(crate) fn seal_record(
    now: &Declared,
    record: &str,
    value: &Private,
    (entropy, wall_ms): (&[u8; 32], u64),
    change: &mut Change,
) -> Result<Sealed, String> {
    let key = seal_key(now, entropy, change)?;
    seal(&key, record, value, entropy, wall_ms).ok_or_else(|| "it cannot be sealed".to_owned())
}

/// What was sealed for the record of this name.
pub(crate) fn open_record(now: &Declared, record: &str, sealed: &Sealed) -> Option<Private> {
    open(&key_of(now.get(kind::SECRET, KEY)?)?, record, sealed)
}

/// The key that seals all; if there is none yet it is made, and becomes a part of the change.
fn seal_key(now: &Declared, entropy: &[u8; 32], change: &mut Change) -> Result<[u8; 32], String> {
    if let Some(record) = now.get(kind::SECRET, KEY) {
        return key_of(record).ok_or_else(|| "the key of this cluster's secrets cannot be read".to_owned());
    }
    let key = derived(entropy, "key");
    change.puts.push((kind::SECRET.into(), KEY.into(), json(&SealKey { key: hex(&key) })));
    Ok(key)
}

/// Records that go with a service, and what is told of it.
pub(crate) fn gone_with(now: &Declared, service: &str) -> (Vec<(String, String)>, Vec<String>) {
    let names: Vec<&str> = records(now).filter(|(of, ..)| *of == service).map(|(_, name, _)| name).collect();
    let removes = names.iter().map(|name| (kind::SECRET.to_owned(), record_name(service, name)));
    (removes.collect(), names.iter().map(|name| format!("- secret {service} {name}")).collect())
}

/// Secrets of a service that can only be files and are none in what it declares.
pub(crate) fn not_text(now: &Declared, service: &str, spec: &ServiceSpec) -> Vec<String> {
    let its = records(now).filter(|(of, name, sealed)| {
        *of == service && !sealed.is_text && !spec.secret_files.iter().any(|file| file == name)
    });
    its.map(|(_, name, _)| name.to_owned()).collect()
}

fn records(now: &Declared) -> impl Iterator<Item = (&str, &str, Sealed)> {
    now.of_kind(kind::SECRET).filter_map(|(record, bytes)| {
        let (service, name) = record.strip_prefix(OF_SERVICE)?.split_once('/')?;
        Some((service, name, serde_json::from_slice(bytes).ok()?))
    })
}

fn record_name(service: &str, name: &str) -> String {
    format!("{OF_SERVICE}{service}/{name}")
}

fn derived(entropy: &[u8; 32], what: &str) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, entropy), format!("secret {what}").as_bytes());
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn key_of(record: &[u8]) -> Option<[u8; 32]> {
    unhex(&serde_json::from_slice::<SealKey>(record).ok()?.key)?.try_into().ok()
}

fn cipher(key: &[u8; 32]) -> Option<aead::LessSafeKey> {
    Some(aead::LessSafeKey::new(aead::UnboundKey::new(&aead::CHACHA20_POLY1305, key).ok()?))
}

/// What is moved to a record of another name does not open.
fn bound_to(record: &str) -> aead::Aad<&[u8]> {
    aead::Aad::from(record.as_bytes())
}

fn seal(key: &[u8; 32], record: &str, value: &Private, entropy: &[u8; 32], at_ms: u64) -> Option<Sealed> {
    let nonce: [u8; aead::NONCE_LEN] = *derived(entropy, "nonce").first_chunk()?;
    let mut bytes = value.0.to_vec();
    cipher(key)?
        .seal_in_place_append_tag(aead::Nonce::assume_unique_for_key(nonce), bound_to(record), &mut bytes)
        .ok()?;
    Some(Sealed { nonce: hex(&nonce), sealed: hex(&bytes), at_ms, is_text: value.text().is_some() })
}

fn open(key: &[u8; 32], record: &str, sealed: &Sealed) -> Option<Private> {
    let nonce: [u8; aead::NONCE_LEN] = unhex(&sealed.nonce)?.try_into().ok()?;
    let mut bytes = unhex(&sealed.sealed)?;
    let value =
        cipher(key)?.open_in_place(aead::Nonce::assume_unique_for_key(nonce), bound_to(record), &mut bytes).ok()?;
    Some(Private(value.to_vec().into()))
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let pair = |pair: &[u8]| u8::try_from(digit(pair[0])? << 4 | digit(*pair.get(1)?)?).ok();
    text.as_bytes().chunks(2).map(pair).collect()
}

/// Where the key is among the secret records, and how those of services begin.
const KEY: &str = "seal";
const OF_SERVICE: &str = "of/";

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: &str = "[service.shop]\nrun = [\"a\"]\n";

    fn after(now: &Declared, change: Change) -> Declared {
        let mut records = now.records.clone();
        change.removes.iter().for_each(|key| drop(records.remove(key)));
        records.extend(change.puts.into_iter().map(|(kind, name, value)| ((kind, name), value)));
        Declared { version: now.version + 1, records }
    }

    fn with(text: &str) -> Declared {
        let now = Declared { version: 1, ..Declared::default() };
        let diff = crate::declared::diff(&now, "shop.toml", text, &[7; 32]).unwrap();
        after(&now, diff.change)
    }

    fn value(bytes: &'static [u8]) -> Private {
        Private(bytes.into())
    }

    fn shown(now: &Declared, name: &str) -> Option<Private> {
        opened(now).get("shop")?.get(name)?.value.clone()
    }

    #[test]
    fn what_is_set_is_opened_for_its_service_alone_and_is_nowhere_in_clear() {
        let now = with(SHOP);
        let first = set(&now, ("shop", "PW"), &value(b"hunter2"), 5, &[1; 32]).unwrap();
        assert_eq!(first.lines, ["+ secret shop PW"]);
        let now = after(&now, first.change);
        assert_eq!(shown(&now, "PW"), Some(value(b"hunter2")));
        let holds = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|w| w == part);
        for bytes in now.records.values() {
            assert!(!holds(bytes, b"hunter2") && !holds(bytes, hex(b"hunter2").as_bytes()));
        }
        assert!(!crate::declared::export(&now).contains("PW"));
        let mark = |now: &Declared| opened(now)["shop"]["PW"].mark.clone();
        let again = set(&now, ("shop", "PW"), &value(b"hunter2"), 6, &[2; 32]).unwrap();
        assert!(again.lines.is_empty() && again.change.puts.is_empty(), "no clone restarts for nothing");
        let other = set(&now, ("shop", "PW"), &value(b"hunter3"), 6, &[2; 32]).unwrap();
        assert_eq!(other.lines, ["~ secret shop PW"]);
        let later = after(&now, other.change);
        assert_ne!(mark(&now), mark(&later));
        assert_eq!(list(&later, "shop").unwrap(), [SecretView { name: "PW".into(), at_ms: 6, is_file: false }]);

        // Records that were exchanged, cut or come without their key do not open.
        let moved = later.get(kind::SECRET, "of/shop/PW").unwrap().clone();
        let mut bad = later.clone();
        bad.records.insert((kind::SECRET.into(), "of/shop/ROOT_PW".into()), moved.clone());
        assert_eq!((shown(&bad, "ROOT_PW"), shown(&bad, "PW")), (None, Some(value(b"hunter3"))));
        assert!(opened(&bad)["shop"].contains_key("ROOT_PW"), "it is there: clones wait");
        bad.records.remove(&(kind::SECRET.to_owned(), KEY.to_owned()));
        assert_eq!(shown(&bad, "PW"), None);

        let gone = remove(&later, "shop", "PW").unwrap();
        assert_eq!(gone.lines, ["- secret shop PW"]);
        let now = after(&later, gone.change);
        assert_eq!(shown(&now, "PW"), None);
        assert!(remove(&now, "shop", "PW").unwrap_err().contains("it has: none"));
    }

    #[test]
    fn what_cannot_be_a_secret_is_refused_and_its_value_is_not_told() {
        let file = with("[service.shop]\nrun = [\"a\"]\nsecret_files = [\"KEY\"]\nenv = { PW = \"x\" }\n");
        let large: &'static [u8] = vec![b'x'; SECRET_BYTES_MAX + 1].leak();
        for (service, name, bytes, why) in [
            ("shop", "A B", &b"v4lue"[..], "as DB_PASSWORD"),
            ("shop", "PORT", b"v4lue", "given to the clone by its node"),
            ("Shop", "PW", b"v4lue", "a service's name"),
            ("shop", "PW", b"", "secret remove shop PW"),
            ("shop", "PW", b"v4lue\xff", "declare secret_files = [\"PW\"]"),
            ("shop", "PW", b"v4lue\0", "declare secret_files = [\"PW\"]"),
            ("shop", "KEY", large, "65537 bytes"),
        ] {
            let told = set(&file, (service, name), &value(bytes), 1, &[1; 32]).unwrap_err();
            assert!(told.contains(why) && !told.contains("v4lue"), "{told}");
        }
        let raw = after(&file, set(&file, ("shop", "KEY"), &value(b"\xff\0"), 1, &[1; 32]).unwrap().change);
        assert_eq!(shown(&raw, "KEY"), Some(value(b"\xff\0")));
        let told = crate::declared::diff(&raw, "shop.toml", SHOP, &[7; 32]).unwrap_err();
        assert!(told.contains("shop.toml:1: service.shop.secret_files: secret \"KEY\" is not text"), "{told}");
        let hidden = set(&file, ("shop", "PW"), &value(b"y"), 1, &[1; 32]).unwrap();
        assert_eq!(hidden.lines[1], "! service shop declares env.PW itself, and that holds");
        let early = set(&file, ("later", "PW"), &value(b"y"), 1, &[1; 32]).unwrap();
        assert!(early.lines[1].contains("is not declared yet"), "{:?}", early.lines);
        let raw = after(&file, set(&file, ("later", "RAW"), &value(b"\xff"), 1, &[1; 32]).unwrap().change);
        let later = |files: &str| format!("[service.later]\nrun = [\"a\"]\n{files}");
        let told = crate::declared::diff(&raw, "later.toml", &later(""), &[7; 32]).unwrap_err();
        assert!(told.contains("secret \"RAW\" is not text"), "{told}");
        assert!(crate::declared::diff(&raw, "later.toml", &later("secret_files = [\"RAW\"]"), &[7; 32]).is_ok());
        assert!(list(&file, "later").unwrap_err().contains("declared are: shop"));
    }

    #[test]
    fn there_are_bounds_and_secrets_go_with_their_service() {
        let mut now = with(SHOP);
        for n in 0..SECRETS_PER_SERVICE_MAX {
            let one = set(&now, ("shop", &format!("S{n}")), &value(b"x"), 1, &[n as u8; 32]).unwrap();
            now = after(&now, one.change);
        }
        let told = set(&now, ("shop", "MORE"), &value(b"x"), 1, &[1; 32]).unwrap_err();
        assert!(told.contains("64 secrets"), "{told}");
        assert!(set(&now, ("shop", "S3"), &value(b"other"), 1, &[99; 32]).is_ok());
        let big: &'static [u8] = vec![b'x'; SECRET_BYTES_MAX].leak();
        for n in 0..SECRETS_BYTES_MAX / SECRET_BYTES_MAX {
            match set(&now, ("large", &format!("S{n}")), &value(big), 1, &[n as u8; 32]) {
                Ok(one) => now = after(&now, one.change),
                Err(told) => {
                    assert!(told.contains("together") && n + 1 == SECRETS_BYTES_MAX / SECRET_BYTES_MAX, "{n}: {told}");
                }
            }
        }
        let gone = crate::declared::diff(&now, "shop.toml", "", &[7; 32]).unwrap();
        assert!(gone.lines.contains(&"- secret shop S3".to_owned()), "{:?}", gone.lines);
        let now = after(&now, gone.change);
        assert_eq!(opened(&now).into_keys().collect::<Vec<_>>(), ["large"]);
    }
}
