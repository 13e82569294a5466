//! Handles: how a program reaches a session whose value is too large for a header, by a call to its own node. A handle
//! is the session as its client names it, encrypted with a key of the namespace. So any node can take it, none keeps it
//! in memory, and the program learns nothing of bricks from it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use crate::cookie::{Held, NoChance};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handle {
    pub held: Held,
    /// Largest value that may be stored by it.
    pub max_bytes: u32,
    /// Milliseconds since 1970.
    pub until_ms: u64,
}

/// ```text
/// NAMESPACE.base64url( 12 bytes nonce  sealed( u32 max bytes  u64 until ms  text of `Held` ) )
/// ```
const FIXED_BYTES: usize = 4 + 8;

impl Handle {
    /// `token` is the namespace's secret.
    pub fn seal(&self, namespace: &str, token: &str) -> Result<String, NoChance> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| NoChance)?;
        let mut sealed = Vec::with_capacity(FIXED_BYTES + 160);
        sealed.extend(self.max_bytes.to_be_bytes());
        sealed.extend(self.until_ms.to_be_bytes());
        sealed.extend(self.held.text().bytes());
        let aad = Aad::from(namespace.as_bytes());
        let nonce_now = Nonce::assume_unique_for_key(nonce);
        key(token).seal_in_place_append_tag(nonce_now, aad, &mut sealed).expect("far below what the cipher takes");
        Ok(format!("{namespace}.{}", URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat())))
    }

    /// The namespace that a handle is of, before anything of it is believed.
    pub fn namespace(text: &str) -> Option<&str> {
        text.rsplit_once('.').map(|(namespace, _)| namespace)
    }

    /// None if it is not one of ours, or its time is over.
    pub fn open(text: &str, token: &str, wall_ms: u64) -> Option<Self> {
        let (namespace, sealed) = text.rsplit_once('.')?;
        let mut bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = key(token).open_in_place(nonce, Aad::from(namespace.as_bytes()), sealed).ok()?;
        let (max_bytes, rest) = opened.split_first_chunk()?;
        let (until_ms, text) = rest.split_first_chunk()?;
        let until_ms = u64::from_be_bytes(*until_ms);
        let (id, cookie) = std::str::from_utf8(text).ok()?.split_once('.')?;
        let cookie = (!cookie.is_empty()).then(|| cookie.to_owned());
        let held = Held { id: id.to_owned(), cookie };
        (wall_ms < until_ms).then_some(Self { held, max_bytes: u32::from_be_bytes(*max_bytes), until_ms })
    }
}

fn key(token: &str) -> LessSafeKey {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
    let key = hmac::sign(&secret, b"coppice session handle");
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).expect("32 bytes, as the cipher wants"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn handle(cookie: Option<&str>) -> Handle {
        let held = Held { id: "x".repeat(22), cookie: cookie.map(str::to_owned) };
        Handle { held, max_bytes: 65536, until_ms: 1000 }
    }

    #[test]
    fn a_handle_opens_with_its_token_alone_and_shows_nothing() {
        for handle in [handle(None), handle(Some("brick"))] {
            let text = handle.seal("carts", "token").unwrap();
            assert_ne!(text, handle.seal("carts", "token").unwrap(), "never twice the same");
            assert_eq!(Handle::namespace(&text), Some("carts"));
            assert_eq!(Handle::open(&text, "token", 999), Some(handle.clone()));
            assert_eq!(Handle::open(&text, "token", 1000), None, "its time is over");
            assert_eq!(Handle::open(&text, "other", 0), None);
            assert_eq!(Handle::open(&text.replace("carts.", "other."), "token", 0), None);
            let decoded = URL_SAFE_NO_PAD.decode(text.split_once('.').unwrap().1).unwrap();
            assert!(!String::from_utf8_lossy(&decoded).contains("xxxx"));
            for at in 0..decoded.len() {
                let mut changed = decoded.clone();
                changed[at] ^= 1;
                let changed = format!("carts.{}", URL_SAFE_NO_PAD.encode(changed));
                assert_eq!(Handle::open(&changed, "token", 0), None, "byte {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_is_a_handle_but_ours(text in "\\PC{0,200}", bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(Handle::open(&text, "token", 0), None);
            prop_assert_eq!(Handle::open(&format!("carts.{}", URL_SAFE_NO_PAD.encode(bytes)), "token", 0), None);
        }
    }
}
