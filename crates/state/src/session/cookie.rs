//! Cookies: what a client of cookie mode holds (SSM 3.1): who has its value, of which version, until when, the value's
//! checksum, and a keyed MAC where the paper has a plain checksum, as clients may change what they hold.

use std::fmt;

use base::NodeId;
use base::checksum::Checksum;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use super::Version;
use super::limits::BRICKS_ASKED;

/// What a cookie says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cookie {
    /// Who acknowledged the write; one to three.
    pub bricks: Vec<NodeId>,
    pub version: Version,
    /// When the lease ends, by the wall clock of the node that made it; milliseconds since 1970.
    pub lease_end_ms: u64,
    pub sum: Checksum,
}

/// Why a text is not a good cookie. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CookieError {
    /// Not a whole cookie: cut, or not ours at all.
    Truncated,
    /// Its MAC is wrong: it was changed.
    Forged,
    /// Of another namespace, or sealed with a key that is no longer in use.
    Foreign,
    /// Its lease has ended.
    Expired,
}

impl fmt::Display for CookieError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the cookie is cut or no cookie",
            Self::Forged => "the cookie was changed",
            Self::Foreign => "the cookie is of another namespace or was sealed with an old key",
            Self::Expired => "the lease of the cookie has ended",
        })
    }
}

/// Seals and opens the cookies of one namespace.
#[derive(Clone)]
pub struct Sealer {
    namespace: u32,
    key: hmac::Key,
    /// Tells keys apart when they are changed; derived from the key.
    key_id: u8,
}

/// ```text
/// u8 format  u8 key id  u32 namespace  u8 bricks  3 x u64 brick (unused: 0)
/// u48 version ms  u32 counter  u64 node  u48 lease end ms  u32 checksum  16 bytes MAC
/// ```
const COOKIE_BYTES: usize = SIGNED_BYTES + MAC_BYTES;
const SIGNED_BYTES: usize = 1 + 1 + 4 + 1 + 8 * BRICKS_ASKED + 6 + 4 + 8 + 6 + 4;
/// HMAC-SHA256 cut to 16 bytes: nobody finds 128 bits by trying.
const MAC_BYTES: usize = 16;
const FORMAT: u8 = 1;
const _: () = assert!(COOKIE_BYTES.div_ceil(3) * 4 <= 128, "a cookie fits into 128 bytes of text");

impl Sealer {
    pub fn new(namespace: u32, key: &[u8; 32]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let key_id = hmac::sign(&key, b"coppice cookie key id").as_ref()[0];
        Self { namespace, key, key_id }
    }

    /// At most 128 bytes of base64url.
    pub fn seal(&self, cookie: &Cookie) -> String {
        assert!((1..=BRICKS_ASKED).contains(&cookie.bricks.len()), "a cookie names one to three bricks");
        let mut bytes = Vec::with_capacity(COOKIE_BYTES);
        bytes.extend([FORMAT, self.key_id]);
        bytes.extend(self.namespace.to_be_bytes());
        bytes.push(cookie.bricks.len() as u8);
        for i in 0..BRICKS_ASKED {
            bytes.extend(cookie.bricks.get(i).map_or(0, |node| node.0).to_be_bytes());
        }
        bytes.extend(&cookie.version.ms.to_be_bytes()[2..]);
        bytes.extend(cookie.version.counter.to_be_bytes());
        bytes.extend(cookie.version.node.0.to_be_bytes());
        bytes.extend(&cookie.lease_end_ms.to_be_bytes()[2..]);
        bytes.extend(cookie.sum.0.to_be_bytes());
        let mac = hmac::sign(&self.key, &bytes);
        bytes.extend(&mac.as_ref()[..MAC_BYTES]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Checks the MAC before anything else is believed, in time that does not depend on where it differs.
    pub fn open(&self, text: &str, wall_ms: u64) -> Result<Cookie, CookieError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| CookieError::Truncated)?;
        if bytes.len() != COOKIE_BYTES {
            return Err(CookieError::Truncated);
        }
        let (signed, mac) = bytes.split_at(SIGNED_BYTES);
        let mut rest = signed;
        let mut take = |n: usize| {
            let (head, tail) = rest.split_at(n);
            rest = tail;
            head.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let (format, key_id, namespace) = (take(1), take(1), take(4));
        let ours = hmac::sign(&self.key, signed);
        let differs = std::hint::black_box(ours.as_ref().iter().zip(mac).fold(0, |sum, (a, b)| sum | (a ^ b)));
        if differs != 0 {
            let foreign = key_id != u64::from(self.key_id) || namespace != u64::from(self.namespace);
            return Err(if foreign { CookieError::Foreign } else { CookieError::Forged });
        }
        // A format that this version does not know, but which was sealed with our key: made by a newer node.
        if format != u64::from(FORMAT) || namespace != u64::from(self.namespace) {
            return Err(CookieError::Foreign);
        }
        let count = take(1) as usize;
        let bricks: Vec<_> = [take(8), take(8), take(8)].into_iter().take(count).map(NodeId).collect();
        let version = Version { ms: take(6), counter: take(4) as u32, node: NodeId(take(8)) };
        let cookie = Cookie { bricks, version, lease_end_ms: take(6), sum: Checksum(take(4) as u32) };
        if cookie.lease_end_ms <= wall_ms {
            return Err(CookieError::Expired);
        }
        Ok(cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie() -> Cookie {
        Cookie {
            bricks: vec![NodeId(0xa1), NodeId(0xb2)],
            version: Version { ms: 1_700_000_000_000, counter: 5, node: NodeId(0xa1) },
            lease_end_ms: 1_700_000_600_000,
            sum: Checksum(0xdead_beef),
        }
    }

    fn sealer() -> Sealer {
        Sealer::new(7, &[9; 32])
    }

    #[test]
    fn a_cookie_has_these_bytes() {
        let text = sealer().seal(&cookie());
        assert_eq!(
            text,
            "AfUAAAAHAgAAAAAAAAChAAAAAAAAALIAAAAAAAAAAAGLz-VoAAAAAAUAAAAAAAAAoQGLz-6PwN6tvu_-CZs3ywv5UpoSxe0c6NaR"
        );
        assert!(text.len() <= 128);
        assert_eq!(sealer().open(&text, 1_700_000_000_000), Ok(cookie()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = URL_SAFE_NO_PAD.decode(sealer().seal(&cookie())).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let error = sealer().open(&URL_SAFE_NO_PAD.encode(changed), 0).unwrap_err();
            let names_another = (8..48).contains(&bit);
            assert_eq!(error, if names_another { CookieError::Foreign } else { CookieError::Forged }, "bit {bit}");
        }
    }

    #[test]
    fn each_mistake_has_its_name() {
        let text = sealer().seal(&cookie());
        assert_eq!(sealer().open(&text[..50], 0), Err(CookieError::Truncated));
        assert_eq!(sealer().open("not base64!", 0), Err(CookieError::Truncated));
        assert_eq!(sealer().open("", 0), Err(CookieError::Truncated));
        assert_eq!(sealer().open(&text, 1_700_000_600_000), Err(CookieError::Expired));
        assert_eq!(Sealer::new(8, &[9; 32]).open(&text, 0), Err(CookieError::Foreign));
        assert_eq!(Sealer::new(7, &[8; 32]).open(&text, 0), Err(CookieError::Foreign));
    }
}
