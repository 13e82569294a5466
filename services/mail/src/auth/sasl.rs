//! SASL, as far as it is spoken here: PLAIN (RFC 4616).

use crate::limits::*;

/// Name and password of a message of PLAIN. Nobody may act for another.
pub fn plain(message: &[u8]) -> Option<(String, String)> {
    let mut parts = message.split(|b| *b == 0);
    let [acts_for, name, password] = [parts.next()?, parts.next()?, parts.next()?].map(std::str::from_utf8);
    let (acts_for, name, password) = (acts_for.ok()?, name.ok()?, password.ok()?);
    let is_fit = parts.next().is_none()
        && (acts_for.is_empty() || acts_for == name)
        && (1..=ADDRESS_BYTES_MAX).contains(&name.len())
        && (1..=PASSWORD_BYTES_MAX).contains(&password.len());
    is_fit.then(|| (name.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn plain_is_read_strictly() {
        let told = |message: &str| plain(message.as_bytes());
        let ann = Some(("ann".to_owned(), "p".to_owned()));
        assert_eq!(told("\0ann\0p"), ann);
        assert_eq!(told("ann\0ann\0p"), ann);
        for wrong in ["", "ann", "\0ann", "\0ann\0", "\0\0p", "bob\0ann\0p", "\0ann\0p\0"] {
            assert_eq!(told(wrong), None, "{wrong:?}");
        }
        assert_eq!(plain(b"\0ann\0\xff"), None);
        assert_eq!(told(&format!("\0ann\0{}", "p".repeat(257))), None);
    }
}
