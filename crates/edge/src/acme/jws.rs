//! The account's key, and what is signed with it (RFC 7515, RFC 7638): ECDSA on P-256.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

pub struct AccountKey {
    pair: EcdsaKeyPair,
    chance: SystemRandom,
}

impl AccountKey {
    /// A new one, in PKCS #8.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn generate() -> Result<Vec<u8>, String> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        made.map(|made| made.as_ref().to_vec()).map_err(|_| "the system gives no random numbers".to_owned())
    }

    /// # Errors
    /// It is none.
    pub fn read(pkcs8: &[u8]) -> Result<Self, String> {
        let chance = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &chance);
        let pair = pair.map_err(|e| format!("the key of the account cannot be read: {e}"))?;
        Ok(Self { pair, chance })
    }

    /// Of the public key: what answers a challenge, behind its token.
    pub fn thumbprint(&self) -> String {
        let [x, y] = self.point();
        // RFC 7638 3.2: these members, in this order, without a blank.
        let form = format!("{{\"crv\":\"P-256\",\"kty\":\"EC\",\"x\":\"{x}\",\"y\":\"{y}\"}}");
        URL_SAFE_NO_PAD.encode(digest(&SHA256, form.as_bytes()))
    }

    /// SHA-256 of what answers the challenge of this token (RFC 8737 3).
    pub fn proof(&self, token: &str) -> [u8; 32] {
        let hash = digest(&SHA256, format!("{token}.{}", self.thumbprint()).as_bytes());
        std::array::from_fn(|at| hash.as_ref()[at])
    }

    /// The body of a request to `url`: signed for that one and this nonce. `account` is its URL; none: it is to be made, or found, by its
    /// key. No payload: what is there is wanted (RFC 8555 6.3).
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn sign(
        &self,
        url: &str,
        nonce: &str,
        account: Option<&str>,
        payload: Option<&Value>,
    ) -> Result<String, String> {
        let [x, y] = self.point();
        let mut head = json!({"alg": "ES256", "nonce": nonce, "url": url});
        match account {
            Some(account) => head["kid"] = account.into(),
            None => head["jwk"] = json!({"crv": "P-256", "kty": "EC", "x": x, "y": y}),
        }
        let head = URL_SAFE_NO_PAD.encode(head.to_string());
        let payload = payload.map_or_else(String::new, |payload| URL_SAFE_NO_PAD.encode(payload.to_string()));
        let signed = self.pair.sign(&self.chance, format!("{head}.{payload}").as_bytes());
        let signature = signed.map_err(|_| "the system gives no random numbers")?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Ok(json!({"protected": head, "payload": payload, "signature": signature}).to_string())
    }

    fn point(&self) -> [String; 2] {
        let point = self.pair.public_key().as_ref();
        // 4 says that both coordinates follow.
        [&point[1..33], &point[33..65]].map(|part| URL_SAFE_NO_PAD.encode(part))
    }
}
