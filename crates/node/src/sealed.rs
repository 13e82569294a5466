//! Secrets of services and certificates of the cluster, as they leave it for a backup: all of them together, sealed with a key that whoever
//! asks has made for this once. So no answer of a node has one in the clear, and what is written down opens for who has the key, alone.
//! Where the key comes from, and the file that this becomes, is `coppice/src/sealed.rs`.
//!
//! ```text
//! nonce (12)  JSON of [`Contents`], sealed with ChaCha20-Poly1305  tag (16)
//! ```

use base::process::Private;
use base::{Now, Outcome, Refused};
use cluster::root::Declared;
use ring::aead::{self, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::asks::hex;
use crate::certificates;
use crate::node::{Node, Out};
use crate::secrets::{self, unhex};

/// What is sealed, opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    pub secrets: Vec<Kept>,
    /// Their values are the chain and the key, in PEM.
    pub certificates: Vec<Kept>,
}

/// A secret of a service, or a certificate of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Whose it is; empty of a certificate.
    pub service: String,
    pub name: String,
    pub value: Private,
}

/// Bytes in hexadecimal: secrets need not be text.
#[derive(Serialize, Deserialize)]
struct Written {
    secrets: Vec<(String, String, String)>,
    certificates: Vec<(String, String)>,
}

impl Node {
    /// All that there is, for whoever has this key; that it left is an event.
    pub(crate) fn sealed(&mut self, now: Now, key: &Private, entropy: &[u8; 32], out: &mut Out) -> Outcome<Private> {
        match seal(self.root.declared(), key, entropy) {
            Ok(bytes) => {
                let name = self.card.name.clone();
                let text = "secrets of services and certificates were sealed for a backup".to_owned();
                self.decided(now, "backup", &name, text, out);
                Outcome::Done(Private(bytes.into()))
            }
            Err(why) => Outcome::Refused(Refused::wrong(why)),
        }
    }
}

/// All that there is, sealed. `entropy` is chance.
///
/// # Errors
/// One cannot be opened here, and a backup without it would be missed too late; its name, not its value.
pub(crate) fn seal(now: &Declared, key: &Private, entropy: &[u8; 32]) -> Result<Vec<u8>, String> {
    let cipher = cipher(&key.0).ok_or_else(|| format!("a key has {KEY_BYTES} bytes, not {}", key.0.len()))?;
    let mut written = Written { secrets: Vec::new(), certificates: Vec::new() };
    for (service, its) in secrets::opened(now) {
        for (name, secret) in its {
            let value = secret.value.ok_or_else(|| format!("secret {name} of service {service} cannot be opened"))?;
            written.secrets.push((service.clone(), name, hex(&value.0)));
        }
    }
    let opened = certificates::opened(now);
    if let Some(lost) = certificates::kept_views(now).iter().find(|of| opened.iter().all(|it| it.name != of.name)) {
        return Err(format!("the key of certificate {} cannot be opened", lost.name));
    }
    for keyed in opened {
        let pem = [keyed.chain.as_bytes(), b"\n", &keyed.key.0].concat();
        written.certificates.push((keyed.name, hex(&pem)));
    }
    let mut bytes = serde_json::to_vec(&written).expect("strings become JSON");
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, entropy), b"nonce of a backup");
    let nonce: [u8; NONCE_LEN] = *tag.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
    let sealed =
        cipher.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aead::Aad::from(BOUND_TO), &mut bytes);
    sealed.map_err(|_| "they cannot be sealed".to_owned())?;
    Ok([&nonce[..], &bytes].concat())
}

/// What was sealed with this key. None: with another one, or a byte of it is not what it was.
pub fn open(key: &[u8; KEY_BYTES], sealed: &[u8]) -> Option<Contents> {
    let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>()?;
    let mut bytes = rest.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let plain = cipher(key)?.open_in_place(nonce, aead::Aad::from(BOUND_TO), &mut bytes).ok()?;
    let written: Written = serde_json::from_slice(plain).ok()?;
    let value = |text: &str| Some(Private(unhex(text)?.into()));
    let secret = |(service, name, text): (String, String, String)| Some(Kept { service, name, value: value(&text)? });
    let pem = |(name, text): (String, String)| Some(Kept { service: String::new(), name, value: value(&text)? });
    Some(Contents {
        secrets: written.secrets.into_iter().map(secret).collect::<Option<_>>()?,
        certificates: written.certificates.into_iter().map(pem).collect::<Option<_>>()?,
    })
}

/// A key as it is sent: in hexadecimal digits.
pub fn key_of(digits: &[u8]) -> Option<Private> {
    let key = unhex(std::str::from_utf8(digits).ok()?)?;
    (key.len() == KEY_BYTES && digits.len() == 2 * KEY_BYTES).then(|| Private(key.into()))
}

fn cipher(key: &[u8]) -> Option<LessSafeKey> {
    Some(LessSafeKey::new(UnboundKey::new(&aead::CHACHA20_POLY1305, key).ok()?))
}

/// Length of a key, bytes.
pub const KEY_BYTES: usize = 32;
/// What else this node seals does not open as this.
const BOUND_TO: &[u8] = b"coppice backup";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared::after;

    const KEY: [u8; KEY_BYTES] = [3; KEY_BYTES];

    fn key() -> Private {
        Private(KEY.to_vec().into())
    }

    fn some() -> Declared {
        let mut now = Declared { version: 1, ..Declared::default() };
        for (n, name) in ["PW", "KEY"].into_iter().enumerate() {
            let value = Private(b"hunter2\xff"[..7 + n].to_vec().into());
            let set = secrets::set(&now, ("shop", name), &value, 5, &[n as u8; 32]).unwrap();
            now = Declared { version: now.version + 1, ..after(&now, &set.change) };
        }
        let certificate = certificates::Certificate {
            names: vec!["shop.example".into()],
            issuer: "Toy".into(),
            begins_at_ms: 1,
            ends_at_ms: 90,
            chain: "chain".into(),
            key: Private(b"its key".as_slice().into()),
        };
        let set = certificates::set(&now, "shop", &certificate, 5, &[9; 32]).unwrap();
        after(&now, &set.change)
    }

    #[test]
    fn all_of_it_opens_with_its_key_alone_and_only_as_it_was() {
        let sealed = seal(&some(), &key(), &[1; 32]).unwrap();
        let all = open(&KEY, &sealed).unwrap();
        let values: Vec<(&str, &str, &[u8])> =
            all.secrets.iter().chain(&all.certificates).map(|of| (&*of.service, &*of.name, &*of.value.0)).collect();
        assert_eq!(
            values,
            [("shop", "KEY", &b"hunter2\xff"[..]), ("shop", "PW", b"hunter2"), ("", "shop", b"chain\nits key"),]
        );
        let holds = |part: &[u8]| sealed.windows(part.len()).any(|w| w == part);
        assert!(!holds(b"hunter2") && !holds(hex(b"hunter2").as_bytes()) && !holds(b"shop"));
        assert_eq!(open(&[4; KEY_BYTES], &sealed), None);
        for at in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[at] ^= 1;
            assert_eq!(open(&KEY, &flipped), None, "a byte at {at}");
            assert_eq!(open(&KEY, &sealed[..at]), None, "cut at {at}");
        }
        assert_ne!(seal(&some(), &key(), &[2; 32]).unwrap()[..NONCE_LEN], sealed[..NONCE_LEN]);
        let none = seal(&Declared::default(), &key(), &[1; 32]).unwrap();
        assert_eq!(open(&KEY, &none), Some(Contents::default()));
    }

    #[test]
    fn what_cannot_be_opened_here_is_no_backup() {
        let mut now = some();
        assert!(key_of(&[b'a'; 64]).is_some());
        for bad in [&b""[..], &[b'a'; 63], &[b'a'; 66], &[b'g'; 64], &[0xff; 64]] {
            assert_eq!(key_of(bad), None, "{bad:?}");
        }
        assert!(seal(&now, &Private(b"short".as_slice().into()), &[1; 32]).unwrap_err().contains("32 bytes, not 5"));
        now.records.retain(|(_, name), _| name != "seal");
        let told = seal(&now, &key(), &[1; 32]).unwrap_err();
        assert!(told.contains("secret KEY of service shop cannot be opened") && !told.contains("hunter2"), "{told}");
    }
}
