//! Passwords. An account holds the argon2id hash (RFC 9106, 19 MiB and 2 passes) in the usual text form, so that
//! others can read it.

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use ring::rand::{SecureRandom, SystemRandom};

use crate::limits::*;

/// Of what nobody has: compared where there is no account, so that the time does not tell whether there is one.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$Y29wcGljZW5vYm9keQ$VqSnyXu4UNS3NKtLgUNnbKyZvWXZHPuJMf9bbY1JN8Q";

fn argon2() -> Argon2<'static> {
    let params = Params::new(19 * 1024, 2, 1, None).expect("these are in bounds");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// The hash that an account holds, or why the password is none.
pub fn hash(password: &str) -> Result<String, String> {
    if !(1..=PASSWORD_BYTES_MAX).contains(&password.len()) || password.contains(['\r', '\n', '\0']) {
        return Err(format!("a password has 1 to {PASSWORD_BYTES_MAX} bytes on one line"));
    }
    let mut salt = [0; 16];
    SystemRandom::new().fill(&mut salt).map_err(|_| "there are no random bytes")?;
    let salt = SaltString::encode_b64(&salt).map_err(|e| e.to_string())?;
    argon2().hash_password(password.as_bytes(), &salt).map(|hash| hash.to_string()).map_err(|e| e.to_string())
}

/// Whether it is the one. Takes a core for tens of milliseconds, also where there is no account.
pub fn is_right(password: &str, hash: Option<&str>) -> bool {
    let is_right = |hash: &str| {
        let hash = PasswordHash::new(hash).ok();
        hash.is_some_and(|hash| argon2().verify_password(password.as_bytes(), &hash).is_ok())
    };
    if password.len() > PASSWORD_BYTES_MAX {
        return false;
    }
    let matches = is_right(hash.unwrap_or(NOBODY));
    matches && hash.is_some()
}

/// A password for who asks for one: 20 letters and digits.
pub fn fresh() -> Result<String, String> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut random = [0; 20];
    SystemRandom::new().fill(&mut random).map_err(|_| "there are no random bytes")?;
    Ok(random.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_known_by_its_hash_alone() {
        let stored = hash("a secret").unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert_ne!(stored, hash("a secret").unwrap());
        assert!(is_right("a secret", Some(&stored)));
        for (password, hash) in
            [("A secret", Some(stored.as_str())), ("", Some(&stored)), ("a secret", None), ("a secret", Some("plain"))]
        {
            assert!(!is_right(password, hash), "{password} {hash:?}");
        }
        assert!(PasswordHash::new(NOBODY).is_ok(), "it takes as long as any");
        for wrong in ["", "a\nb", &"a".repeat(257)] {
            assert!(hash(wrong).is_err(), "{wrong:?}");
        }
        assert!(fresh().unwrap().len() == 20 && fresh() != fresh());
    }
}
